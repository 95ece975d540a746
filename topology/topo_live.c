/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_priv.h"

#include "base/sysfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * NICs of this machine. rtnetlink lists the devices of this network namespace and the PCI devices of most of them;
 * hwloc has the place of a PCI device. hwloc's own network devices come from /sys/class/net, which may show another
 * namespace, so one is used only when its hardware address matches too.
 */

struct live {
	struct dr_topo *t;
	hwloc_topology_t hw;
	const char *sysfs;
	const struct dr_netdev *devs;
	size_t n;
};

static void place_on_pci(
	const struct live *l, const struct dr_netdev *d, hwloc_obj_t pci, struct dr_topo_nic *n)
{
	char id[16], pf[16], port[16];

	dr_topo_hw_bus_id(pci, id);
	/* Of a VF: the bus id of its physical function. */
	(void)dr_sysfile_link(pf, sizeof(pf), l->sysfs, "/bus/pci/devices/%s/physfn", id);
	/* One function may have several ports. */
	if (dr_sysfile_text(port, sizeof(port), l->sysfs, "/bus/pci/devices/%s/net/%s/dev_port", id,
		    d->name) <= 0)
		snprintf(port, sizeof(port), "0");
	if (d->port_id[0])
		snprintf(n->port, sizeof(n->port), "id:%.70s", d->port_id);
	dr_topo_nic_at(n, l->hw, pci, pf, port);
}

static hwloc_obj_t pci_of(const struct live *l, const struct dr_netdev *d)
{
	hwloc_obj_t o = d->pci[0] ? hwloc_get_pcidev_by_busidstring(l->hw, d->pci) : NULL;

	if (!o && !d->kind[0])
		o = dr_topo_hw_pci(dr_topo_hw_netdev(l->hw, d->name, d->mac));
	return o;
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

/* Virtual devices without an address (for example the host's ends of container links) are not NICs. */
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

	if (!is_nic(l, d, pci))
		return 0;
	struct dr_topo_nic *n = dr_topo_add_nic(l->t);
	if (!n)
		return -ENOMEM;
	snprintf(n->name, sizeof(n->name), "%s", d->name);
	snprintf(n->kind, sizeof(n->kind), "%s", d->kind);
	n->netdev = true;
	n->slave = dr_netdev_is_port(l->devs, l->n, d);
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

/* A bond or bridge has the places of its ports. */
static void place_master(const struct live *l, const struct dr_netdev *d, struct dr_topo_nic *n)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct dr_topo_nic *s =
			l->devs[i].master == d->ifindex ? nic_of(l, l->devs[i].ifindex) : NULL;

		if (s && s->n_places && n->n_places < DR_TOPO_PLACES_MAX)
			n->place[n->n_places++] = s->place[0];
	}
}

/* A VLAN or similar device has the place and the port of the device below. */
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
