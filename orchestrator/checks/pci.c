/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sysfile.h"
#include "orchestrator/checks/doctor_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* linux/pci_ids.h */
enum { VENDOR_NVIDIA = 0x10de, CLASS_DISPLAY = 0x03 };

/* Link attributes: Documentation/ABI/testing/sysfs-bus-pci. */
struct link {
	int64_t width, width_max;
	double speed, speed_max; /* GT/s */
};

/* "32.0 GT/s PCIe"; 0 when it says "Unknown". */
static double speed_of(const struct dr_doctor *d, const char *dir, const char *file)
{
	char text[64];

	if (dr_sysfile_text(text, sizeof(text), d->root, "%s/%s", dir, file) <= 0)
		return 0;
	return strtod(text, NULL);
}

/* false: not a PCI Express link (virtio, an old bus), or its attributes are not valid. */
static bool read_link(const struct dr_doctor *d, const char *dir, struct link *l)
{
	if (!dr_sysfile_number(&l->width, d->root, "%s/current_link_width", dir) ||
		!dr_sysfile_number(&l->width_max, d->root, "%s/max_link_width", dir))
		return false;
	l->speed = speed_of(d, dir, "current_link_speed");
	l->speed_max = speed_of(d, dir, "max_link_speed");
	/* Virtual functions and hosts without access report widths of 63 and 255. */
	return l->width > 0 && l->width_max > 0 && l->width_max <= 32 && l->speed > 0 &&
	       l->speed_max > 0;
}

static void check_width(struct dr_doctor *d, const struct link *l, const char *where)
{
	dr_find_warn(d, "pcie-width", where,
		"the PCIe link has fewer lanes than the card: it is slower by that factor\n"
		"x%" PRId64 "\n"
		"x%" PRId64 "\n"
		"reseat the card, use an x%" PRId64
		" slot, check bifurcation in the firmware setup",
		l->width, l->width_max, l->width_max);
}

/* A GPU reduces the link speed while it is idle; a NIC does not. */
static void check_speed(struct dr_doctor *d, const struct link *l, const char *where, bool gpu)
{
	if (gpu)
		dr_find_note(d, "pcie-speed", where,
			"the PCIe link is slower than the GPU supports; this is normal for an idle GPU: "
			"check again under load\n"
			"%g GT/s\n"
			"%g GT/s\n"
			"nvidia-smi -q -d PERFORMANCE,CLOCK -i %s",
			l->speed, l->speed_max, where);
	else
		dr_find_warn(d, "pcie-speed", where,
			"the PCIe link is slower than the card supports\n"
			"%g GT/s\n"
			"%g GT/s\n"
			"check the PCIe generation of the slot and the risers; lspci -vv shows what the "
			"slot supports",
			l->speed, l->speed_max);
}

static void check_link(struct dr_doctor *d, const char *dir, const char *where, bool gpu)
{
	struct link l;

	if (!read_link(d, dir, &l))
		return;
	if (l.width < l.width_max)
		check_width(d, &l, where);
	if (l.speed < l.speed_max)
		check_speed(d, &l, where, gpu);
	if (l.width >= l.width_max && l.speed >= l.speed_max)
		dr_find_ok(d, "pcie", where, "x%" PRId64 " at %g GT/s, the maximum of the card",
			l.width, l.speed);
}

/* ---- NUMA ---- */

static void check_numa(struct dr_doctor *d, const char *dir, const char *where)
{
	unsigned nodes = 0;
	int64_t node;

	while (nodes < 1024 && dr_sysfile_has(d->root, "/sys/devices/system/node/node%u", nodes))
		nodes++;
	if (nodes < 2 || !dr_sysfile_number(&node, d->root, "%s/numa_node", dir))
		return;
	if (node >= 0)
		dr_find_ok(d, "numa", where, "on NUMA node %" PRId64, node);
	else
		dr_find_warn(d, "numa", where,
			"the firmware does not report the NUMA node: workers and buffers cannot be placed near "
			"the device\n"
			"-1\n"
			"0 to %u\n"
			"update the firmware; in a virtual machine, pass the topology through; or use --pin CPUS",
			nodes - 1);
}

/* ---- IOMMU ---- */

/* Kernel documentation, sysfs-kernel-iommu_groups: "identity" is pass-through, "DMA" and "DMA-FQ"
 * translate. */
static void check_iommu(struct dr_doctor *d, const char *dir, const char *where)
{
	char type[32];

	if (dr_sysfile_text(type, sizeof(type), d->root, "%s/iommu_group/type", dir) <= 0 ||
		strncmp(type, "DMA", 3) != 0)
		return;
	dr_find_note(d, "iommu", where,
		"the IOMMU translates addresses: transfers between GPU and NIC pass the root complex "
		"and are slower\n"
		"%s\n"
		"identity\n"
		"kernel command line: iommu=pt, or disable IOMMU and ACS in the firmware",
		type);
}

/* ---- entry points ---- */

static void check_device(struct dr_doctor *d, const char *dir, const char *where, bool gpu)
{
	check_link(d, dir, where, gpu);
	check_numa(d, dir, where);
	check_iommu(d, dir, where);
}

/* Does /sys/class/net/NAME belong to this NIC? It may show another network namespace. */
static bool sysfs_shows(const struct dr_doctor *d, const struct dr_doctor_nic *nic)
{
	int64_t index;

	return nic->hardware &&
	       dr_sysfile_number(&index, d->root, "/sys/class/net/%s/ifindex", nic->rail.ifname) &&
	       index == nic->rail.ifindex;
}

void dr_check_pci_nic(struct dr_doctor *d, const struct dr_doctor_nic *nic)
{
	char dir[96];

	snprintf(dir, sizeof(dir), "/sys/class/net/%s/device", nic->rail.ifname);
	if (sysfs_shows(d, nic))
		check_device(d, dir, nic->rail.ifname, false);
}

static int visit_gpu(const char *id, void *arg)
{
	struct dr_doctor *d = arg;
	int64_t vendor, class;
	char dir[320];

	snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s", id);
	if (!dr_sysfile_number(&vendor, d->root, "%s/vendor", dir) || vendor != VENDOR_NVIDIA ||
		!dr_sysfile_number(&class, d->root, "%s/class", dir) ||
		class >> 16 != CLASS_DISPLAY)
		return 0;
	d->pci_gpus++;
	check_device(d, dir, id, true);
	return 0;
}

void dr_check_pci_gpus(struct dr_doctor *d)
{
	d->pci_gpus = 0;
	dr_sysfile_each(d->root, "/sys/bus/pci/devices", visit_gpu, d);
}
