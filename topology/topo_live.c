/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * NICs of this machine: rtnetlink says which devices there are in this network namespace, and of most
 * which PCI device they belong to; hwloc where that one sits. hwloc's own network devices come from
 * /sys/class/net, which may be another namespace's: one counts only when its hardware address is the
 * same too.
 */

struct live {
	struct dr_topo *t;
	hwloc_topology_t hw;
	const char *sysfs;
	const struct dr_netdev *devs;
	size_t n;
};

/* The physical function of a VF; "" for what is none. */
static void physical_function(const struct live *l, const char *bus_id, char out[16])
{
	char path[PATH_MAX], to[PATH_MAX];
	ssize_t len;

	out[0] = '\0';
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/physfn", l->sysfs, bus_id);
	len = readlink(path, to, sizeof(to) - 1);
	if (len <= 0)
		return;
	to[len] = '\0';
	snprintf(out, 16, "%.15s", strrchr(to, '/') ? strrchr(to, '/') + 1 : to);
}

/* Which port of its device: one function may have several. */
static void device_port(const struct live *l, const char *bus_id, const char *name, char out[16])
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(out, 16, "0");
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/net/%s/dev_port", l->sysfs, bus_id,
		name);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(out, 16, f))
		out[strcspn(out, "\n")] = '\0';
	fclose(f);
}

static void place_on_pci(
	const struct live *l, const struct dr_netdev *d, hwloc_obj_t pci, struct dr_topo_nic *n)
{
	char id[16], pf[16], port[16];

	dr_topo_hw_bus_id(pci, id);
	physical_function(l, id, pf);
	device_port(l, id, d->name, port);
	if (d->port_id[0])
		snprintf(n->port, sizeof(n->port), "id:%.70s", d->port_id);
	dr_topo_nic_at(n, l->hw, pci, pf, port);
}

static hwloc_obj_t pci_of(const struct live *l, const struct dr_netdev *d)
{
	hwloc_obj_t o = d->pci[0] ? dr_topo_hw_find(l->hw, d->pci) : NULL;

	if (!o && !d->kind[0])
		o = dr_topo_hw_pci(dr_topo_hw_netdev(l->hw, d->name, d->mac));
	return o;
}

/* A VRF only gives its members a routing table; they stay rails of their own. */
static bool is_slave(const struct live *l, const struct dr_netdev *d)
{
	for (size_t i = 0; d->master && i < l->n; i++)
		if (l->devs[i].ifindex == d->master)
			return strcmp(l->devs[i].kind, "vrf") != 0;
	return d->master != 0;
}

static bool is_master(const struct live *l, int ifindex)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->devs[i].master == ifindex)
			return true;
	return false;
}

static void take_addrs(const struct dr_netdev *d, struct dr_topo_nic *n)
{
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (d->addrs[i].global && n->n_addrs < DR_TOPO_ADDRS_MAX)
			n->addr[n->n_addrs++] = d->addrs[i];
}

/* Ends of containers' links and the like are no NICs: virtual, and without an address here. */
static bool is_nic(const struct live *l, const struct dr_netdev *d, hwloc_obj_t pci)
{
	if (d->loopback)
		return false;
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (d->addrs[i].global)
			return true;
	return pci || !strcmp(d->kind, "bond") || (d->kind[0] == '\0' && is_master(l, d->ifindex));
}

static int add(const struct live *l, const struct dr_netdev *d)
{
	hwloc_obj_t pci = pci_of(l, d);
	struct dr_topo_nic *n;

	if (!is_nic(l, d, pci))
		return 0;
	n = dr_topo_add_nic(l->t);
	if (!n)
		return -ENOMEM;
	snprintf(n->name, sizeof(n->name), "%s", d->name);
	snprintf(n->kind, sizeof(n->kind), "%s", d->kind);
	n->netdev = true;
	n->slave = is_slave(l, d);
	n->up = d->running;
	n->speed_mbps = d->speed_mbps;
	n->mtu = d->mtu;
	take_addrs(d, n);
	if (pci)
		place_on_pci(l, d, pci, n);
	else
		snprintf(n->port, sizeof(n->port), "if:%s", d->name);
	return 0;
}

static struct dr_topo_nic *nic_of(const struct live *l, int ifindex)
{
	for (size_t i = 0; i < l->n; i++)
		for (unsigned k = 0; l->devs[i].ifindex == ifindex && k < l->t->n_nics; k++)
			if (!strcmp(l->t->nic[k].name, l->devs[i].name))
				return &l->t->nic[k];
	return NULL;
}

/* A bond or bridge is where its ports are. */
static void place_master(const struct live *l, const struct dr_netdev *d, struct dr_topo_nic *n)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct dr_topo_nic *s =
			l->devs[i].master == d->ifindex ? nic_of(l, l->devs[i].ifindex) : NULL;

		if (s && s->n_places && n->n_places < DR_TOPO_PLACES_MAX)
			n->place[n->n_places++] = s->place[0];
	}
}

/* A VLAN and its like is where the device below is, on the same port. */
static void place_above(const struct dr_topo_nic *below, struct dr_topo_nic *n)
{
	memcpy(n->place, below->place, sizeof(n->place));
	n->n_places = below->n_places;
	memcpy(n->port, below->port, sizeof(n->port));
	memcpy(n->card, below->card, sizeof(n->card));
	n->vf = below->vf;
}

static void place_virtual(const struct live *l)
{
	/* Masters first: a VLAN may stand on a bond. */
	for (size_t i = 0; i < l->n; i++) {
		struct dr_topo_nic *n = nic_of(l, l->devs[i].ifindex);

		if (n && !n->n_places)
			place_master(l, &l->devs[i], n);
	}
	for (size_t i = 0; i < l->n; i++) {
		struct dr_topo_nic *n = nic_of(l, l->devs[i].ifindex);
		struct dr_topo_nic *below = l->devs[i].link ? nic_of(l, l->devs[i].link) : NULL;

		if (n && below && !n->n_places && strcmp(n->kind, "veth") != 0)
			place_above(below, n);
	}
}

int dr_topo_live_nics(struct dr_topo *t, hwloc_topology_t hw, const char *sysfs,
	const struct dr_netdev *devs, size_t n_devs, struct dr_err *e)
{
	struct live l = { .t = t, .hw = hw, .sysfs = sysfs, .devs = devs, .n = n_devs };

	for (size_t i = 0; i < n_devs; i++)
		if (add(&l, &devs[i]))
			return dr_err_set(e, -ENOMEM, "topology: out of memory");
	place_virtual(&l);
	return 0;
}
