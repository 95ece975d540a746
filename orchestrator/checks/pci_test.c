/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

#define NIC "/sys/class/net/eth1/device"
#define GPU "/sys/bus/pci/devices/0000:17:00.0"
#define OTHER "/sys/bus/pci/devices/0000:00:02.0"

static void device(const char *dir, const char *width, const char *speed, const char *numa)
{
	static const struct {
		const char *name, *text;
	} fixed[] = { { "max_link_width", "16\n" }, { "max_link_speed", "32.0 GT/s PCIe\n" } };
	char path[128];

	for (size_t i = 0; i < DR_ARRAY_LEN(fixed); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, fixed[i].name);
		put(path, fixed[i].text);
	}
	snprintf(path, sizeof(path), "%s/current_link_width", dir);
	put(path, width);
	snprintf(path, sizeof(path), "%s/current_link_speed", dir);
	put(path, speed);
	snprintf(path, sizeof(path), "%s/numa_node", dir);
	put(path, numa);
}

static void look_nic(void)
{
	struct dr_doctor_nic n = nic("eth1", 3, "10.1.0.1", 24, 9000);

	dr_check_pci_nic(&doctor, &n);
}

static void link_of_a_nic(void **state)
{
	(void)state;
	put("/sys/class/net/eth1/ifindex", "3\n");
	device(NIC, "16\n", "32.0 GT/s PCIe\n", "0\n");
	look_nic();
	expect(DR_SEVERITY_OK, "pcie", "eth1", "x16 at 32 GT/s");
	device(NIC, "8\n", "32.0 GT/s PCIe\n", "0\n");
	look_nic();
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_WARN, "pcie-width", "eth1", "x8");
	device(NIC, "16\n", "16.0 GT/s PCIe\n", "0\n");
	look_nic();
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_WARN, "pcie-speed", "eth1", "16 GT/s");
	/* What says nothing is not judged: virtio has no link, a virtual function an unknown one. */
	device(NIC, "0\n", "Unknown\n", "0\n");
	look_nic();
	assert_int_equal(doctor.f.n, 0);
	drop(NIC "/current_link_width");
	look_nic();
	assert_int_equal(doctor.f.n, 0);
	put("/sys/class/net/eth1/ifindex", "4\n"); /* another namespace's */
	device(NIC, "8\n", "32.0 GT/s PCIe\n", "-1\n");
	look_nic();
	assert_int_equal(doctor.f.n, 0);
	put("/sys/class/net/eth1/ifindex", "3\n");
}

static void numa(void **state)
{
	(void)state;
	device(NIC, "16\n", "32.0 GT/s PCIe\n", "-1\n");
	put("/sys/devices/system/node/node0/cpulist", "0-1\n");
	look_nic();
	expect_none("numa"); /* one node: no choice */
	put("/sys/devices/system/node/node1/cpulist", "2-3\n");
	look_nic();
	expect(DR_SEVERITY_WARN, "numa", "eth1", "--pin");
	device(NIC, "16\n", "32.0 GT/s PCIe\n", "1\n");
	look_nic();
	expect(DR_SEVERITY_OK, "numa", "eth1", "node 1");
}

static void iommu(void **state)
{
	(void)state;
	put(NIC "/iommu_group/type", "DMA-FQ\n");
	look_nic();
	expect(DR_SEVERITY_NOTE, "iommu", "eth1", "iommu=pt");
	put(NIC "/iommu_group/type", "identity\n");
	look_nic();
	expect_none("iommu");
}

static void gpus(void **state)
{
	(void)state;
	dr_check_pci_gpus(&doctor);
	assert_int_equal(doctor.pci_gpus, 0);
	assert_int_equal(doctor.f.n, 0);
	put(OTHER "/vendor", "0x10de\n"); /* its audio function is no GPU */
	put(OTHER "/class", "0x040300\n");
	put(GPU "/vendor", "0x10de\n");
	put(GPU "/class", "0x030200\n");
	device(GPU, "16\n", "32.0 GT/s PCIe\n", "0\n");
	dr_check_pci_gpus(&doctor);
	assert_int_equal(doctor.pci_gpus, 1);
	expect(DR_SEVERITY_OK, "pcie", "0000:17:00.0", "x16");
	device(GPU, "4\n", "2.5 GT/s PCIe\n", "-1\n");
	dr_check_pci_gpus(&doctor);
	assert_int_equal(doctor.pci_gpus, 1);
	expect(DR_SEVERITY_WARN, "pcie-width", "0000:17:00.0", "x4");
	dr_check_pci_gpus(&doctor);
	expect(DR_SEVERITY_NOTE, "pcie-speed", "0000:17:00.0", "idle");
	dr_check_pci_gpus(&doctor);
	expect(DR_SEVERITY_WARN, "numa", "0000:17:00.0", "-1");
}

/* ---- gpu.c ---- */

#define OPEN                                                                                       \
	"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.129.03  Release Build\n"     \
	"GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
#define CLOSED                                                                                     \
	"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"

static void driver(void **state)
{
	(void)state;
	doctor.pci_gpus = 0;
	dr_check_gpu_driver(&doctor);
	expect(DR_SEVERITY_NOTE, "gpu-driver", NULL, "only host memory");
	doctor.pci_gpus = 8;
	dr_check_gpu_driver(&doctor);
	expect(DR_SEVERITY_WARN, "gpu-driver", NULL, "modprobe nvidia");
	put("/proc/driver/nvidia/version", OPEN);
	doctor.pci_gpus = 8;
	dr_check_gpu_driver(&doctor);
	expect(DR_SEVERITY_OK, "gpu-driver", NULL, "535.129.03 (open");
	put("/proc/driver/nvidia/version", CLOSED);
	doctor.pci_gpus = 8;
	dr_check_gpu_driver(&doctor);
	expect(DR_SEVERITY_OK, "gpu-driver", NULL, "535.129.03, 8 GPUs");
	put("/proc/driver/nvidia/version", "rubbish\n");
	doctor.pci_gpus = 1;
	dr_check_gpu_driver(&doctor);
	expect(DR_SEVERITY_WARN, "gpu-driver", NULL, "no driver");
}

static void rdma_says(enum dr_severity s, bool rdma, const char *says)
{
	doctor.run = (struct dr_doctor_run){ .kind = dr_transport_kind("tcp"), .gpus = 8 };
	doctor.bypass = rdma;
	dr_check_gpu_rdma(&doctor);
	expect(s, "gpu-rdma", NULL, says);
}

static void gpu_rdma(void **state)
{
	(void)state;
	doctor.run = (struct dr_doctor_run){ .kind = dr_transport_kind("verbs") };
	drop("/proc/driver/nvidia/version");
	doctor.bypass = true;
	dr_check_gpu_rdma(&doctor);
	expect_none("gpu-rdma");
	put("/proc/driver/nvidia/version", OPEN);
	put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
	rdma_says(DR_SEVERITY_OK, true, "dma-buf");
	put("/boot/config-6.1.0-18-amd64", "CONFIG_X=y\nCONFIG_DMA_SHARED_BUFFER=y\n");
	rdma_says(DR_SEVERITY_OK, true, "dma-buf");
	put("/boot/config-6.1.0-18-amd64", "CONFIG_X=y\n# CONFIG_DMA_SHARED_BUFFER is not set\n");
	rdma_says(DR_SEVERITY_WARN, true, "CONFIG_DMA_SHARED_BUFFER");
	rdma_says(DR_SEVERITY_NOTE, false, "modprobe nvidia-peermem");
	drop("/boot/config-6.1.0-18-amd64");
	put("/proc/driver/nvidia/version", CLOSED);
	rdma_says(DR_SEVERITY_WARN, true, "open kernel modules");
	put("/proc/driver/nvidia/version",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  510.47.03  Release\n");
	rdma_says(DR_SEVERITY_WARN, true, "older than 515");
	put("/proc/driver/nvidia/version", OPEN);
	put("/proc/sys/kernel/osrelease", "5.4.0\n");
	rdma_says(DR_SEVERITY_WARN, true, "5.12");
	put("/sys/module/nvidia_peermem/refcnt", "0\n");
	rdma_says(DR_SEVERITY_OK, true, "nvidia_peermem");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(link_of_a_nic),
		cmocka_unit_test(numa),
		cmocka_unit_test(iommu),
		cmocka_unit_test(gpus),
		cmocka_unit_test(driver),
		cmocka_unit_test(gpu_rdma),
	};

	return cmocka_run_group_tests_name("doctor pci, gpu", tests, tree_make, tree_remove);
}
