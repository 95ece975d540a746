/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_priv.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * NICs of an exported machine: hwloc's operating system devices. hwloc itself exports a device's PCI
 * place, "Address" (hardware), "Port" and of RDMA devices "PortNState", "PortNGIDi". What it does not
 * know may be written into the file as info attributes of the device:
 *
 *   DualrailLink       up | down
 *   DualrailSpeedMbps  100000
 *   DualrailMtu        9000
 *   DualrailAddress    10.0.1.1/24[,...]
 *   DualrailPhysFn     0000:81:00.0     bus id of a VF's physical function
 *   DualrailPort       any text; the same for functions of one physical port
 *   DualrailSlaves     eth1,eth2        a bond's; "" elsewhere
 */

static const char *info(hwloc_obj_t o, const char *name)
{
	const char *v = hwloc_obj_get_info_by_name(o, name);

	return v ? v : "";
}

static int64_t number(hwloc_obj_t o, const char *name, int64_t otherwise)
{
	uint64_t v;

	return dr_parse_u64(info(o, name), 0, 1u << 30, &v, NULL) ? otherwise : (int64_t)v;
}

static void take_addrs(hwloc_obj_t o, struct dr_topo_nic *n)
{
	char buf[256], *save = NULL;

	snprintf(buf, sizeof(buf), "%s", info(o, "DualrailAddress"));
	for (char *a = strtok_r(buf, ",", &save); a; a = strtok_r(NULL, ",", &save)) {
		struct dr_netdev_addr *out = &n->addr[n->n_addrs];
		char *slash = strchr(a, '/');
		uint64_t prefix = 0;

		if (slash)
			*slash = '\0';
		if (n->n_addrs == DR_TOPO_ADDRS_MAX || dr_netdev_addr_parse(a, &out->addr) ||
			(slash && dr_parse_u64(slash + 1, 0, 128, &prefix, NULL)))
			return;
		out->prefix = (unsigned)prefix;
		out->global = true;
		n->n_addrs++;
	}
}

static void take_gid(hwloc_obj_t o, struct dr_topo_nic *n)
{
	for (unsigned i = 0; i < o->infos_count; i++) {
		const char *name = o->infos[i].name, *gid = strstr(name, "GID");
		uint64_t index;

		if (strncmp(name, "Port", 4) != 0 || !gid ||
			dr_parse_u64(gid + 3, 0, 65535, &index, NULL))
			continue;
		if (n->gid[0] &&
			!(n->n_addrs && dr_topo_gid_of(o->infos[i].value, &n->addr[0].addr)))
			continue;
		snprintf(n->gid, sizeof(n->gid), "%s", o->infos[i].value);
		n->gid_index = (int)index;
	}
}

static void take_common(hwloc_obj_t o, hwloc_topology_t hw, struct dr_topo_nic *n)
{
	hwloc_obj_t pci = dr_topo_hw_pci(o);
	const char *link = info(o, "DualrailLink");
	const char *pf = info(o, "DualrailPhysFn");

	snprintf(n->name, sizeof(n->name), "%s", o->name ? o->name : "?");
	if (link[0])
		n->up = strcmp(link, "up") == 0;
	n->speed_mbps = number(o, "DualrailSpeedMbps", -1);
	n->mtu = (unsigned)number(o, "DualrailMtu", 0);
	snprintf(n->port, sizeof(n->port), "%.79s", info(o, "DualrailPort"));
	take_addrs(o, n);
	if (pci)
		dr_topo_nic_at(n, hw, pci, pf, info(o, "Port"));
	else if (!n->port[0])
		snprintf(n->port, sizeof(n->port), "if:%.70s", n->name);
}

static int add_rdma(struct dr_topo *t, hwloc_topology_t hw, hwloc_obj_t o)
{
	hwloc_obj_t pci = dr_topo_hw_pci(o);
	char id[16] = "";

	if (pci)
		dr_topo_hw_bus_id(pci, id);
	struct dr_topo_nic *n = dr_topo_nic_without_rdma(t, id);
	if (!n) {
		n = dr_topo_add_nic(t);
		if (!n)
			return -ENOMEM;
		take_common(o, hw, n);
	}
	snprintf(n->rdma, sizeof(n->rdma), "%s", o->name ? o->name : "?");
	if (n->up < 0 && info(o, "Port1State")[0])
		n->up = strcmp(info(o, "Port1State"), "4") == 0;
	take_gid(o, n);
	return 0;
}

static int add_netdev(struct dr_topo *t, hwloc_topology_t hw, hwloc_obj_t o)
{
	if (!o->name || !strcmp(o->name, "lo"))
		return 0;
	struct dr_topo_nic *n = dr_topo_add_nic(t);
	if (!n)
		return -ENOMEM;
	take_common(o, hw, n);
	n->netdev = true;
	return 0;
}

static void join(struct dr_topo *t, struct dr_topo_nic *bond, const char *slaves)
{
	char buf[256], *save = NULL;

	snprintf(buf, sizeof(buf), "%s", slaves);
	snprintf(bond->kind, sizeof(bond->kind), "bond");
	for (char *s = strtok_r(buf, ",", &save); s; s = strtok_r(NULL, ",", &save))
		for (unsigned i = 0; i < t->n_nics; i++) {
			struct dr_topo_nic *n = &t->nic[i];

			if (strcmp(n->name, s) != 0)
				continue;
			n->slave = true;
			if (n->n_places && bond->n_places < DR_TOPO_PLACES_MAX)
				bond->place[bond->n_places++] = n->place[0];
		}
}

static void join_bonds(struct dr_topo *t, hwloc_topology_t hw)
{
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(hw, o));)
		for (unsigned i = 0; info(o, "DualrailSlaves")[0] && i < t->n_nics; i++)
			if (o->name && !strcmp(t->nic[i].name, o->name))
				join(t, &t->nic[i], info(o, "DualrailSlaves"));
}

int dr_topo_xml_nics(struct dr_topo *t, hwloc_topology_t hw, struct dr_err *e)
{
	int rc = 0;

	for (hwloc_obj_t o = NULL; rc == 0 && (o = hwloc_get_next_osdev(hw, o));)
		if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
			rc = add_netdev(t, hw, o);
	for (hwloc_obj_t o = NULL; rc == 0 && (o = hwloc_get_next_osdev(hw, o));)
		if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
			rc = add_rdma(t, hw, o);
	if (rc)
		return dr_err_set(e, rc, "topology: out of memory");
	join_bonds(t, hw);
	return 0;
}
