/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sysfile.h"
#include "orchestrator/checks/doctor_priv.h"
#include "topology/reach.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <string.h>

/*
 * Sockets of the tcp kind are bound to their device, so they send through it whatever the route is. Incoming
 * packets can still be lost: a strict rp_filter drops a packet if the kernel would answer through another NIC,
 * and with two NICs in one subnet the peer may have learnt the hardware address of the wrong one.
 */

static const struct sockaddr *sa(const struct sockaddr_storage *ss)
{
	return (const struct sockaddr *)ss;
}

static bool is_rail(const struct dr_doctor *d, const struct sockaddr_storage *a)
{
	for (unsigned i = 0; i < d->n; i++)
		if (dr_netdev_addr_equal(sa(&d->nic[i].rail.addr), sa(a)))
			return true;
	return false;
}

bool dr_doctor_neighbour(const struct dr_doctor *d, unsigned which, struct sockaddr_storage *out)
{
	const struct dr_netdev_rail *r = &d->nic[which].rail;
	bool v4 = r->addr.ss_family == AF_INET;
	unsigned bits = v4 ? 32 : 128, host = DR_MIN(bits - DR_MIN(r->prefix, bits), 6u);
	uint8_t *low = v4 ? (uint8_t *)&((struct sockaddr_in *)out)->sin_addr + 3
			  : &((struct sockaddr_in6 *)out)->sin6_addr.s6_addr[15];

	*out = r->addr;
	/* Vary the last bits of the address, from 1. With more than one host bit the first address is the
	 * network and the last one its broadcast address. */
	for (unsigned k = host > 1 ? 1 : 0; host && k < (1u << host) - (host > 1); k++) {
		*low = (uint8_t)((*low & ~((1u << host) - 1)) | k);
		if (!is_rail(d, out))
			return true;
	}
	return false;
}

/* IN_DEV_MAXCONF: the kernel takes the larger of "all" and the device's. -1: cannot be read. */
static int64_t conf(const struct dr_doctor *d, const char *ifname, const char *name)
{
	int64_t all = -1, own = -1;

	(void)dr_sysfile_number(&all, d->root, "/proc/sys/net/ipv4/conf/all/%s", name);
	(void)dr_sysfile_number(&own, d->root, "/proc/sys/net/ipv4/conf/%s/%s", ifname, name);
	return DR_MAX(all, own);
}

/* ---- routes and rp_filter ---- */

struct route {
	struct sockaddr_storage to;
	struct dr_netdev via;
	bool known, elsewhere;
};

static void find_route(const struct dr_doctor *d, unsigned i, const struct sockaddr_storage *peers,
	struct route *w)
{
	const struct dr_netdev_rail *r = &d->nic[i].rail;

	memset(w, 0, sizeof(*w));
	if (peers)
		w->to = peers[i];
	else if (!dr_doctor_neighbour(d, i, &w->to))
		w->to.ss_family = AF_UNSPEC;
	if (w->to.ss_family == AF_UNSPEC)
		return;
	w->known = d->toward(sa(&w->to), sa(&r->addr), &w->via, NULL) == 0;
	w->elsewhere = w->known && !w->via.loopback && w->via.ifindex != r->ifindex;
}

static void other_nic(struct dr_doctor *d, const struct dr_netdev_rail *r, const struct route *w)
{
	bool strict = w->to.ss_family == AF_INET && dr_reach_strict(d->root, r->ifname);
	char to[64], from[64], subnet[72];
	struct dr_prefix p = { 0 };

	dr_netdev_addr_format(sa(&w->to), to, sizeof(to));
	dr_netdev_addr_format(sa(&r->addr), from, sizeof(from));
	(void)!dr_prefix_of(sa(&r->addr), r->prefix, &p);
	dr_prefix_mask(&p);
	dr_prefix_format(&p, subnet, sizeof(subnet));
	if (strict)
		dr_find_fail(d, "rp-filter", r->ifname,
			"the kernel drops incoming packets: its route to %s leaves through %s, and the "
			"strict rp_filter requires %s\n"
			"net.ipv4.conf.%s.rp_filter=1 (of the interface or of \"all\")\n"
			"2 (loose), or a route through %s\n"
			"sysctl -w net/ipv4/conf/%s/rp_filter=2",
			to, w->via.name, r->ifname, r->ifname, r->ifname, r->ifname);
	else
		dr_find_warn(d, "route", r->ifname,
			"the route from %s to %s leaves through %s; data sockets are bound to %s, other "
			"sockets with this address are not\n"
			"%s\n"
			"%s\n"
			"ip route add %s dev %s table %d; ip rule add from %s table %d (or use one subnet "
			"per rail)",
			from, to, w->via.name, r->ifname, w->via.name, r->ifname, subnet, r->ifname,
			1000 + r->ifindex, from, 1000 + r->ifindex);
}

static void no_route(struct dr_doctor *d, const struct dr_netdev_rail *r, const struct route *w)
{
	char to[64];

	dr_netdev_addr_format(sa(&w->to), to, sizeof(to));
	dr_find_fail(d, "route", r->ifname,
		"no route from this rail to %s\n"
		"none\n"
		"one through %s\n"
		"ip route add %s dev %s (and a gateway if there is one)",
		to, r->ifname, to, r->ifname);
}

void dr_check_routes(struct dr_doctor *d, const struct sockaddr_storage *peers)
{
	unsigned good = 0, checked = 0;

	for (unsigned i = 0; i < d->n; i++) {
		const struct dr_netdev_rail *r = &d->nic[i].rail;
		struct route w;

		find_route(d, i, peers, &w);
		if (w.to.ss_family == AF_UNSPEC || !r->running)
			continue;
		checked++;
		if (!w.known && peers)
			no_route(d, r, &w);
		else if (w.elsewhere)
			other_nic(d, r, &w);
		else
			good++;
	}
	if (good && good == checked)
		dr_find_ok(d, "route", NULL,
			"the traffic of every rail leaves and returns through its own NIC");
}

/* ---- ARP ---- */

static bool same_subnet(const struct dr_netdev_rail *a, const struct dr_netdev_rail *b)
{
	unsigned bits = DR_MAX(a->prefix, b->prefix);
	struct dr_prefix x, y;

	/* ARP exists for IPv4 only. */
	return dr_prefix_of(sa(&a->addr), bits, &x) == 0 && x.family == AF_INET &&
	       dr_prefix_of(sa(&b->addr), bits, &y) == 0 && dr_prefix_holds(&x, &y);
}

static bool shares_subnet(const struct dr_doctor *d, const struct dr_netdev_rail *a)
{
	for (unsigned i = 0; i < d->n; i++)
		if (d->nic[i].rail.ifindex != a->ifindex && same_subnet(a, &d->nic[i].rail))
			return true;
	return false;
}

void dr_check_arp(struct dr_doctor *d)
{
	unsigned shared = 0, bad = 0;

	for (unsigned i = 0; i < d->n; i++) {
		const char *name = d->nic[i].rail.ifname;

		if (!shares_subnet(d, &d->nic[i].rail))
			continue;
		shared++;
		int64_t ignore = conf(d, name, "arp_ignore");
		int64_t announce = conf(d, name, "arp_announce");
		if (ignore < 0 || announce < 0 || (ignore >= 1 && announce >= 2))
			continue;
		bad++;
		dr_find_fail(d, "arp", name,
			"shares its subnet with another rail and answers ARP requests for its address: "
			"data arrives at the wrong NIC and is dropped\n"
			"arp_ignore=%" PRId64 " arp_announce=%" PRId64 "\n"
			"arp_ignore=1 arp_announce=2\n"
			"sysctl -w net/ipv4/conf/%s/arp_ignore=1 net/ipv4/conf/%s/arp_announce=2; ip "
			"neigh flush dev %s (at both ends; or use one subnet per rail)",
			ignore, announce, name, name, name);
	}
	if (!bad && d->n > 1)
		dr_find_ok(d, "arp", NULL, "%s",
			shared ? "each rail answers ARP requests for its own address only"
			       : "no two rails share a subnet");
}
