/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_priv.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VENDOR_NVIDIA = 0x10de, CLASS_VGA = 0x0300, CLASS_3D = 0x0302, XML_BYTES_MAX = 64 << 20 };

/* Backends that would start GPU runtimes, bind this thread to each CPU in turn, or read the PCI tree through
 * libpciaccess, which leaks memory; the sysfs backend is sufficient. */
static void exclude_backends(hwloc_topology_t hw)
{
	static const char *const names[] = { "pci", "x86", "cuda", "nvml", "opencl", "gl", "rsmi",
		"levelzero" };

	for (size_t i = 0; i < DR_ARRAY_LEN(names); i++)
		hwloc_topology_set_components(
			hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
}

static int prepare(hwloc_topology_t hw, const char *xml, struct dr_err *e)
{
	size_t len = 0;
	char *text = NULL;
	int rc = xml ? dr_file_text(xml, XML_BYTES_MAX, &text, &len, e) : 0;

	if (rc)
		return dr_err_prefix(e, "--topology %s", xml);
	if (xml)
		rc = hwloc_topology_set_xmlbuffer(hw, text, (int)len + 1); /* the 0, too */
	else
		exclude_backends(hw);
	dr_free(text);
	if (rc)
		return dr_err_set(e, -EBADMSG,
			"--topology %s: not an hwloc XML file; create it with `lstopo --of xml --whole-io FILE.xml`",
			xml);
	hwloc_topology_set_all_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
	hwloc_topology_set_cache_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_NONE);
	hwloc_topology_set_io_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_ALL);
	return 0;
}

int dr_topo_hw_open(const char *xml, hwloc_topology_t *out, struct dr_err *e)
{
	hwloc_topology_t hw;

	if (hwloc_topology_init(&hw))
		return dr_err_set(e, -ENOMEM, "topology: out of memory");
	int rc = prepare(hw, xml, e);
	if (rc == 0 && hwloc_topology_load(hw))
		rc = xml ? dr_err_set(e, -EBADMSG,
				   "--topology %s: hwloc 2 cannot read it; create it with `lstopo --of "
				   "xml --whole-io FILE.xml`",
				   xml)
			 : dr_err_set(e, -EIO,
				   "topology: hwloc cannot read this machine; assign the rails of "
				   "each GPU with --map");
	if (rc) {
		hwloc_topology_destroy(hw);
		return rc;
	}
	*out = hw;
	return 0;
}

hwloc_obj_t dr_topo_hw_pci(hwloc_obj_t obj)
{
	while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE)
		obj = obj->parent;
	return obj;
}

/* The one local node with CPUs; nodes without CPUs (a GPU's memory, CXL) are ignored. */
static int node_of(hwloc_topology_t hw, hwloc_obj_t io)
{
	hwloc_obj_t local = hwloc_get_non_io_ancestor_obj(hw, io), node = NULL;
	int found = -1;

	while ((node = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_NUMANODE, node))) {
		if (!local || !local->nodeset || hwloc_bitmap_iszero(node->cpuset) ||
			!hwloc_bitmap_isset(local->nodeset, node->os_index))
			continue;
		if (found >= 0)
			return -1;
		found = (int)node->os_index;
	}
	return found;
}

void dr_topo_hw_place(hwloc_topology_t hw, hwloc_obj_t pci, struct dr_topo_place *out)
{
	unsigned depth = 0;

	memset(out, 0, sizeof(*out));
	out->numa = node_of(hw, pci);
	for (hwloc_obj_t o = pci->parent; o && o->type == HWLOC_OBJ_BRIDGE; o = o->parent)
		depth++;
	for (hwloc_obj_t o = pci->parent; o && o->type == HWLOC_OBJ_BRIDGE; o = o->parent)
		if (--depth < DR_TOPO_DEPTH_MAX) {
			out->up[depth] = o->logical_index + 1;
			out->n_up = DR_MAX(out->n_up, depth + 1);
		}
}

void dr_topo_hw_bus_id(hwloc_obj_t pci, char buf[16])
{
	const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;

	snprintf(buf, 16, "%04x:%02x:%02x.%01x", (unsigned)a->domain & 0xffff, a->bus, a->dev,
		a->func & 0xfu);
}

hwloc_obj_t dr_topo_hw_netdev(hwloc_topology_t hw, const char *name, const uint8_t mac[6])
{
	hwloc_obj_t o = NULL;
	char text[32];

	snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2],
		mac[3], mac[4], mac[5]);
	while ((o = hwloc_get_next_osdev(hw, o))) {
		const char *address = hwloc_obj_get_info_by_name(o, "Address");

		if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && o->name &&
			!strcmp(o->name, name) && address && !strcasecmp(address, text))
			return o;
	}
	return NULL;
}

/* ---- GPUs and nodes ---- */

static bool is_gpu(hwloc_obj_t pci)
{
	const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;

	return a->vendor_id == VENDOR_NVIDIA &&
	       (a->class_id == CLASS_VGA || a->class_id == CLASS_3D);
}

static int add_gpu(struct dr_topo *t, hwloc_topology_t hw, hwloc_obj_t pci)
{
	struct dr_topo_gpu *p = dr_realloc(t->gpu, (t->n_gpus + 1) * sizeof(*p));
	const char *name = hwloc_obj_get_info_by_name(pci, "PCIDevice");

	if (!p)
		return -ENOMEM;
	t->gpu = p;
	p = &t->gpu[t->n_gpus++];
	memset(p, 0, sizeof(*p));
	dr_topo_hw_bus_id(pci, p->bus_id);
	snprintf(p->name, sizeof(p->name), "%s", name ? name : "");
	dr_topo_hw_place(hw, pci, &p->place);
	return 0;
}

static int by_bus_id(const void *a, const void *b)
{
	const struct dr_topo_gpu *x = a, *y = b;

	return strcmp(x->bus_id, y->bus_id);
}

static int find_gpus(struct dr_topo *t, hwloc_topology_t hw)
{
	hwloc_obj_t o = NULL;

	while ((o = hwloc_get_next_pcidev(hw, o)))
		if (is_gpu(o) && add_gpu(t, hw, o))
			return -ENOMEM;
	if (t->n_gpus)
		qsort(t->gpu, t->n_gpus, sizeof(*t->gpu), by_bus_id);
	return 0;
}

static int no_such_gpu(hwloc_topology_t hw, const char *bus_id, struct dr_err *e)
{
	hwloc_obj_t o = NULL;
	char list[140] = "";

	while ((o = hwloc_get_next_pcidev(hw, o))) {
		char id[16];

		dr_topo_hw_bus_id(o, id);
		if (is_gpu(o))
			dr_append(list, sizeof(list), " %s", id);
	}
	return dr_err_set(e, -ENODEV, "topology: no PCI device %s; available GPUs:%s", bus_id,
		list[0] ? list : " none");
}

static void count_nodes(struct dr_topo *t, hwloc_topology_t hw)
{
	hwloc_obj_t node = NULL;

	while ((node = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_NUMANODE, node)))
		t->n_nodes += !hwloc_bitmap_iszero(node->cpuset);
	t->n_nodes = DR_MAX(t->n_nodes, 1u);
}

int dr_topo_hw_gpus(
	struct dr_topo *t, hwloc_topology_t hw, const struct dr_topo_params *p, struct dr_err *e)
{
	int rc = 0;

	count_nodes(t, hw);
	if (!p->bus_ids)
		rc = find_gpus(t, hw);
	for (unsigned i = 0; p->bus_ids && rc == 0 && i < p->n_bus_ids; i++) {
		hwloc_obj_t pci = hwloc_get_pcidev_by_busidstring(hw, p->bus_ids[i]);

		if (!pci)
			return no_such_gpu(hw, p->bus_ids[i], e);
		rc = add_gpu(t, hw, pci);
	}
	return rc ? dr_err_set(e, rc, "topology: out of memory") : 0;
}
