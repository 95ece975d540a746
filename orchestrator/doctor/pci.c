/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/machine.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* linux/pci_ids.h */
enum { VENDOR_NVIDIA = 0x10de, CLASS_DISPLAY = 0x03 };

/* Link attributes: Documentation/ABI/testing/sysfs-bus-pci. */
struct link {
	int64_t width, width_max;
	double speed, speed_max; /* GT/s */
};

/* "32.0 GT/s PCIe"; 0 when it says "Unknown". */
static double speed_of(const char *root, const char *dir, const char *file)
{
	char text[64];

	if (dr_machine_text(text, sizeof(text), root, "%s/%s", dir, file) <= 0)
		return 0;
	return strtod(text, NULL);
}

/* false: no PCI Express link (virtio, an old bus), or one that does not say. */
static bool read_link(const char *root, const char *dir, struct link *l)
{
	if (!dr_machine_number(&l->width, root, "%s/current_link_width", dir) ||
		!dr_machine_number(&l->width_max, root, "%s/max_link_width", dir))
		return false;
	l->speed = speed_of(root, dir, "current_link_speed");
	l->speed_max = speed_of(root, dir, "max_link_speed");
	/* 63 and 255 are what virtual functions and hosts without access report. */
	return l->width > 0 && l->width_max > 0 && l->width_max <= 32 && l->speed > 0 &&
	       l->speed_max > 0;
}

static void check_width(const struct link *l, const char *where, struct dr_findings *f)
{
	struct dr_finding *x = dr_findings_add(f, DR_SEVERITY_WARN, "pcie-width", where,
		"fewer PCIe lanes than the card has: the link is that much slower");

	dr_finding_found(x, "x%lld", (long long)l->width);
	dr_finding_needed(x, "x%lld", (long long)l->width_max);
	dr_finding_remedy(x,
		"seat the card again, take a slot with x%lld, look at bifurcation in the "
		"firmware setup",
		(long long)l->width_max);
}

/* A GPU lowers its link's speed while it is idle; a NIC does not. */
static void check_speed(const struct link *l, const char *where, bool gpu, struct dr_findings *f)
{
	struct dr_finding *x = dr_findings_add(f, gpu ? DR_SEVERITY_NOTE : DR_SEVERITY_WARN,
		"pcie-speed", where, "the PCIe link is slower than the card%s",
		gpu ? "; an idle GPU does that: look again under load" : "");

	dr_finding_found(x, "%g GT/s", l->speed);
	dr_finding_needed(x, "%g GT/s", l->speed_max);
	if (gpu)
		dr_finding_remedy(x, "nvidia-smi -q -d PERFORMANCE,CLOCK -i %s", where);
	else
		dr_finding_remedy(x, "look at the slot's generation and at risers; lspci -vv "
				     "says what the slot can do");
}

static void check_link(
	const char *root, const char *dir, const char *where, bool gpu, struct dr_findings *f)
{
	struct link l;

	if (!read_link(root, dir, &l))
		return;
	if (l.width < l.width_max)
		check_width(&l, where, f);
	if (l.speed < l.speed_max)
		check_speed(&l, where, gpu, f);
	if (l.width >= l.width_max && l.speed >= l.speed_max)
		dr_findings_add(f, DR_SEVERITY_OK, "pcie", where, "x%lld at %g GT/s, all it has",
			(long long)l.width, l.speed);
}

/* ---- NUMA ---- */

static unsigned numa_nodes(const char *root)
{
	unsigned n = 0;

	while (n < 1024 && dr_machine_has(root, "/sys/devices/system/node/node%u", n))
		n++;
	return n;
}

static void check_numa(const char *root, const char *dir, const char *where, struct dr_findings *f)
{
	unsigned nodes = numa_nodes(root);
	struct dr_finding *x;
	int64_t node;

	if (nodes < 2 || !dr_machine_number(&node, root, "%s/numa_node", dir))
		return;
	if (node >= 0) {
		dr_findings_add(
			f, DR_SEVERITY_OK, "numa", where, "on NUMA node %lld", (long long)node);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_WARN, "numa", where,
		"the firmware does not say which NUMA node it is on: workers and buffers cannot be put "
		"near it");
	dr_finding_found(x, "-1");
	dr_finding_needed(x, "0 to %u", nodes - 1);
	dr_finding_remedy(x,
		"update the firmware, in a virtual machine pass the topology on; or by "
		"hand: --pin CPUS");
}

/* ---- IOMMU ---- */

/* Kernel documentation, sysfs-kernel-iommu_groups: "identity" is pass-through, "DMA" and "DMA-FQ"
 * translate. */
static void check_iommu(const char *root, const char *dir, const char *where, struct dr_findings *f)
{
	struct dr_finding *x;
	char type[32];

	if (dr_machine_text(type, sizeof(type), root, "%s/iommu_group/type", dir) <= 0 ||
		strncmp(type, "DMA", 3) != 0)
		return;
	x = dr_findings_add(f, DR_SEVERITY_NOTE, "iommu", where,
		"the IOMMU translates its transfers: those between GPU and NIC go up to the root "
		"complex and are slower");
	dr_finding_found(x, "%s", type);
	dr_finding_needed(x, "identity");
	dr_finding_remedy(x, "kernel command line: iommu=pt, or IOMMU and ACS off in the firmware");
}

/* ---- entry points ---- */

void dr_check_pci_nic(const char *root, const struct dr_doctor_nic *nic, struct dr_findings *f)
{
	const char *name = nic->rail.ifname;
	char dir[96];
	int64_t index;

	/* /sys may be that of another network namespace: then the name means another device. */
	if (!nic->hardware || !dr_machine_number(&index, root, "/sys/class/net/%s/ifindex", name) ||
		index != nic->rail.ifindex)
		return;
	snprintf(dir, sizeof(dir), "/sys/class/net/%s/device", name);
	check_link(root, dir, name, false, f);
	check_numa(root, dir, name, f);
	check_iommu(root, dir, name, f);
}

static bool is_gpu(const char *root, const char *dir)
{
	int64_t vendor, class;

	return dr_machine_number(&vendor, root, "%s/vendor", dir) && vendor == VENDOR_NVIDIA &&
	       dr_machine_number(&class, root, "%s/class", dir) && class >> 16 == CLASS_DISPLAY;
}

static int visible(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

unsigned dr_check_pci_gpus(const char *root, struct dr_findings *f)
{
	char path[DR_MACHINE_PATH_MAX], dir[320];
	struct dirent **list;
	unsigned gpus = 0;
	int n = dr_machine_path(path, sizeof(path), root, "/sys/bus/pci/devices")
			? scandir(path, &list, visible, alphasort)
			: -1;

	for (int i = 0; i < n; i++) {
		const char *id = list[i]->d_name;

		snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s", id);
		if (is_gpu(root, dir)) {
			gpus++;
			check_link(root, dir, id, true, f);
			check_numa(root, dir, id, f);
			check_iommu(root, dir, id, f);
		}
		free(list[i]); /* lint-ok: scandir's memory */
	}
	if (n >= 0)
		free(list); /* lint-ok: scandir's memory */
	return gpus;
}
