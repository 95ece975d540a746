/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_priv.h"

#include "base/sysfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * RDMA devices from sysfs: state, speed and GID table of each port. GID entries name their network device. No
 * library and no open device is needed.
 */

struct port {
	struct dr_topo *t;
	hwloc_topology_t hw;
	char class[128]; /* .../infiniband */
	char ports[256]; /* .../infiniband/DEVICE/ports */
	char dir[288];	 /* .../infiniband/DEVICE/ports/N */
	const char *device;
	char bus_id[16];
	int up;
	int64_t speed_mbps;
	bool taken; /* a network device stands for it */
};

static struct dr_topo_nic *nic_named(struct dr_topo *t, const char *name)
{
	for (unsigned i = 0; i < t->n_nics; i++)
		if (t->nic[i].netdev && !strcmp(t->nic[i].name, name))
			return &t->nic[i];
	return NULL;
}

/* One entry of the table. The GID of the NIC's address is used, version 2 before 1. */
static void take_gid(struct port *p, unsigned index, const char *gid)
{
	char ifname[64], type[32];

	if (dr_sysfile_text(ifname, sizeof(ifname), p->dir, "/gid_attrs/ndevs/%u", index) < 0)
		return;
	struct dr_topo_nic *n = nic_named(p->t, ifname);
	if (!n || (n->rdma[0] && strcmp(n->rdma, p->device) != 0))
		return;
	(void)dr_sysfile_text(type, sizeof(type), p->dir, "/gid_attrs/types/%u", index);
	bool fits = n->n_addrs && dr_topo_gid_of(gid, &n->addr[0].addr);
	if (!n->gid[0] ||
		(fits && (strstr(type, "v2") || !dr_topo_gid_of(n->gid, &n->addr[0].addr)))) {
		snprintf(n->gid, sizeof(n->gid), "%.47s", gid);
		n->gid_index = (int)index;
	}
	snprintf(n->rdma, sizeof(n->rdma), "%s", p->device);
	p->taken = true;
}

static void read_gids(struct port *p)
{
	static const char none[] = "0000:0000:0000:0000:0000:0000:0000:0000";
	char gid[64];

	for (unsigned i = 0; i < 65536; i++) {
		if (dr_sysfile_text(gid, sizeof(gid), p->dir, "/gids/%u", i) <= 0)
			return;
		if (strcmp(gid, none) != 0)
			take_gid(p, i, gid);
	}
}

static void first_gid(const struct port *p, struct dr_topo_nic *n)
{
	char gid[64];

	if (dr_sysfile_text(gid, sizeof(gid), p->dir, "/gids/0") > 0) {
		snprintf(n->gid, sizeof(n->gid), "%.47s", gid);
		n->gid_index = 0;
	}
}

/* A port without a network device: shown, but without an address it cannot be a rail. */
static int add_port(const struct port *p)
{
	hwloc_obj_t pci = p->bus_id[0] ? hwloc_get_pcidev_by_busidstring(p->hw, p->bus_id) : NULL;
	struct dr_topo_nic *n = dr_topo_add_nic(p->t);

	if (!n)
		return -ENOMEM;
	snprintf(n->name, sizeof(n->name), "%s", p->device);
	snprintf(n->rdma, sizeof(n->rdma), "%s", p->device);
	n->up = p->up;
	n->speed_mbps = p->speed_mbps;
	first_gid(p, n);
	if (pci)
		dr_topo_nic_at(n, p->hw, pci, "", strrchr(p->dir, '/') + 1);
	else
		snprintf(n->port, sizeof(n->port), "%.60s/%.8s", p->device,
			strrchr(p->dir, '/') + 1);
	return 0;
}

static int take_port(struct port *p)
{
	char text[64];

	p->up = -1;
	p->speed_mbps = -1;
	if (dr_sysfile_text(text, sizeof(text), p->dir, "/state") > 0)
		p->up = strncmp(text, "4:", 2) == 0;
	if (dr_sysfile_text(text, sizeof(text), p->dir, "/rate") > 0)
		p->speed_mbps = (int64_t)(strtod(text, NULL) * 1000);
	read_gids(p);
	if (p->taken)
		return 0;
	/* IPoIB: no GID entry refers to it, but it is on the same PCI device. */
	struct dr_topo_nic *n = dr_topo_nic_without_rdma(p->t, p->bus_id);
	if (!n)
		return add_port(p);
	snprintf(n->rdma, sizeof(n->rdma), "%s", p->device);
	if (n->speed_mbps < 0)
		n->speed_mbps = p->speed_mbps;
	first_gid(p, n);
	return 0;
}

static int port_entry(const char *number, void *arg)
{
	struct port *p = arg;

	snprintf(p->dir, sizeof(p->dir), "%s/%.16s", p->ports, number);
	p->taken = false;
	return take_port(p);
}

static int device_entry(const char *device, void *arg)
{
	struct port *p = arg;

	p->device = device;
	if (dr_sysfile_link(p->bus_id, sizeof(p->bus_id), p->class, "/%s/device", device) < 0 ||
		!strchr(p->bus_id, ':'))
		p->bus_id[0] = '\0';
	snprintf(p->ports, sizeof(p->ports), "%s/%.64s/ports", p->class, device);
	return dr_sysfile_each("", p->ports, port_entry, p);
}

int dr_topo_rdma(struct dr_topo *t, hwloc_topology_t hw, const char *sysfs, struct dr_err *e)
{
	struct port p = { .t = t, .hw = hw };

	snprintf(p.class, sizeof(p.class), "%s/class/infiniband", sysfs);
	int rc = dr_sysfile_each("", p.class, device_entry, &p);
	return rc ? dr_err_set(e, rc, "topology: out of memory") : 0;
}
