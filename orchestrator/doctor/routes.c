/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/machine.h"

#include <netinet/in.h>
#include <string.h>

/*
 * Sockets of the tcp kind are bound to their device, so what they send leaves through it whatever the
 * route says. What comes in is another matter: a strict rp_filter drops it when the kernel would
 * answer through another NIC, and with two NICs in one subnet the peer may have learnt the wrong one's
 * hardware address.
 */

static const struct sockaddr *sa(const struct sockaddr_storage *ss)
{
	return (const struct sockaddr *)ss;
}

static bool is_rail(const struct dr_doctor_nic *nic, unsigned n, const struct sockaddr_storage *a)
{
	for (unsigned i = 0; i < n; i++)
		if (dr_netdev_addr_equal(sa(&nic[i].rail.addr), sa(a)))
			return true;
	return false;
}

/* The address bytes, 4 or 16. */
static uint8_t *raw(struct sockaddr_storage *a, unsigned *bits)
{
	if (a->ss_family == AF_INET) {
		*bits = 32;
		return (uint8_t *)&((struct sockaddr_in *)a)->sin_addr;
	}
	*bits = 128;
	return ((struct sockaddr_in6 *)a)->sin6_addr.s6_addr;
}

bool dr_doctor_neighbour(
	const struct dr_doctor_nic *nic, unsigned n, unsigned which, struct sockaddr_storage *out)
{
	const struct dr_netdev_rail *r = &nic[which].rail;
	unsigned bits, host;
	uint8_t *low;

	*out = r->addr;
	low = raw(out, &bits) + bits / 8 - 1;
	host = DR_MIN(bits - DR_MIN(r->prefix, bits), 6u);
	/* The last bits of the address, from 1 on; of more than one host bit the first and the last
	 * address are the network's and its broadcast. */
	for (unsigned k = host > 1 ? 1 : 0; host && k < (1u << host) - (host > 1); k++) {
		*low = (uint8_t)((*low & ~((1u << host) - 1)) | k);
		if (!is_rail(nic, n, out))
			return true;
	}
	return false;
}

/* IN_DEV_MAXCONF: the kernel takes the larger of "all" and the device's. -1: cannot be read. */
static int64_t conf(const char *root, const char *ifname, const char *name)
{
	int64_t all = -1, own = -1;

	(void)dr_machine_number(&all, root, "/proc/sys/net/ipv4/conf/all/%s", name);
	(void)dr_machine_number(&own, root, "/proc/sys/net/ipv4/conf/%s/%s", ifname, name);
	return DR_MAX(all, own);
}

/* ---- routes and rp_filter ---- */

struct way {
	struct sockaddr_storage to;
	struct dr_netdev via;
	bool known, elsewhere;
};

static void look(const struct dr_doctor_nic *nic, unsigned n, unsigned i,
	const struct sockaddr_storage *peers, dr_doctor_route_fn route, struct way *w)
{
	memset(w, 0, sizeof(*w));
	if (peers)
		w->to = peers[i];
	else if (!dr_doctor_neighbour(nic, n, i, &w->to))
		memset(&w->to, 0, sizeof(w->to));
	if (w->to.ss_family == AF_UNSPEC)
		return;
	w->known = route(sa(&w->to), sa(&nic[i].rail.addr), &w->via, NULL) == 0;
	w->elsewhere = w->known && !w->via.loopback && w->via.ifindex != nic[i].rail.ifindex;
}

/* "10.0.0.0/24" */
static void subnet_text(const struct dr_netdev_rail *r, char *buf, size_t len)
{
	struct sockaddr_storage a = r->addr;
	unsigned bits;
	uint8_t *byte = raw(&a, &bits);
	char text[64];

	for (unsigned i = r->prefix; i < bits; i++)
		byte[i / 8] &= (uint8_t) ~(0x80u >> (i % 8));
	dr_netdev_addr_format(sa(&a), text, sizeof(text));
	snprintf(buf, len, "%s/%u", text, r->prefix);
}

static void say_elsewhere(
	const struct dr_netdev_rail *r, const struct way *w, bool strict, struct dr_findings *f)
{
	char to[64], from[64], subnet[72];
	struct dr_finding *x;

	dr_netdev_addr_format(sa(&w->to), to, sizeof(to));
	dr_netdev_addr_format(sa(&r->addr), from, sizeof(from));
	subnet_text(r, subnet, sizeof(subnet));
	if (strict) {
		x = dr_findings_add(f, DR_SEVERITY_FAIL, "rp-filter", r->ifname,
			"the kernel drops what comes in here: its way back to %s is %s, and the strict "
			"rp_filter demands %s",
			to, w->via.name, r->ifname);
		dr_finding_found(
			x, "net.ipv4.conf.%s.rp_filter=1 (its own, or that of all)", r->ifname);
		dr_finding_needed(x, "2 (loose), or a route through %s", r->ifname);
		dr_finding_remedy(x, "sysctl -w net/ipv4/conf/%s/rp_filter=2", r->ifname);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_WARN, "route", r->ifname,
		"the route from %s to %s leaves through %s; the data sockets are bound to %s, but what "
		"else uses that address is not",
		from, to, w->via.name, r->ifname);
	dr_finding_found(x, "%s", w->via.name);
	dr_finding_needed(x, "%s", r->ifname);
	dr_finding_remedy(x,
		"ip route add %s dev %s table %d; ip rule add from %s table %d (or a subnet per rail)",
		subnet, r->ifname, 1000 + r->ifindex, from, 1000 + r->ifindex);
}

static void say_none(const struct dr_netdev_rail *r, const struct way *w, struct dr_findings *f)
{
	char to[64];
	struct dr_finding *x;

	dr_netdev_addr_format(sa(&w->to), to, sizeof(to));
	x = dr_findings_add(
		f, DR_SEVERITY_FAIL, "route", r->ifname, "no route from this rail to %s", to);
	dr_finding_found(x, "none");
	dr_finding_needed(x, "one through %s", r->ifname);
	dr_finding_remedy(
		x, "ip route add %s dev %s (and a gateway where there is one)", to, r->ifname);
}

void dr_check_routes(const char *root, const struct dr_doctor_nic *nic, unsigned n,
	const struct sockaddr_storage *peers, dr_doctor_route_fn route, struct dr_findings *f)
{
	unsigned good = 0, looked = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct dr_netdev_rail *r = &nic[i].rail;
		struct way w;

		look(nic, n, i, peers, route, &w);
		if (w.to.ss_family == AF_UNSPEC || !r->running)
			continue;
		looked++;
		if (!w.known && peers)
			say_none(r, &w, f);
		else if (w.elsewhere)
			say_elsewhere(r, &w,
				w.to.ss_family == AF_INET &&
					conf(root, r->ifname, "rp_filter") == 1,
				f);
		else
			good++;
	}
	if (good && good == looked)
		dr_findings_add(f, DR_SEVERITY_OK, "route", NULL,
			"every rail's traffic leaves and returns through its own NIC");
}

/* ---- ARP ---- */

static bool same_subnet(const struct dr_netdev_rail *a, const struct dr_netdev_rail *b)
{
	const struct sockaddr_in *x = (const struct sockaddr_in *)&a->addr;
	const struct sockaddr_in *y = (const struct sockaddr_in *)&b->addr;
	unsigned bits = DR_MIN(DR_MAX(a->prefix, b->prefix), 32u);
	uint32_t mask = htonl((uint32_t)(UINT64_MAX << (32 - bits)));

	/* ARP is of IPv4 alone. */
	return a->addr.ss_family == AF_INET && b->addr.ss_family == AF_INET &&
	       (x->sin_addr.s_addr & mask) == (y->sin_addr.s_addr & mask);
}

static bool shares_subnet(const struct dr_doctor_nic *nic, unsigned n, unsigned i)
{
	const struct dr_netdev_rail *a = &nic[i].rail;

	for (unsigned j = 0; j < n; j++) {
		const struct dr_netdev_rail *b = &nic[j].rail;

		if (b->ifindex != a->ifindex && same_subnet(a, b))
			return true;
	}
	return false;
}

void dr_check_arp(
	const char *root, const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f)
{
	unsigned shared = 0, bad = 0;

	for (unsigned i = 0; i < n; i++) {
		const char *name = nic[i].rail.ifname;
		int64_t ignore, announce;
		struct dr_finding *x;

		if (!shares_subnet(nic, n, i))
			continue;
		shared++;
		ignore = conf(root, name, "arp_ignore");
		announce = conf(root, name, "arp_announce");
		if (ignore < 0 || announce < 0 || (ignore >= 1 && announce >= 2))
			continue;
		bad++;
		x = dr_findings_add(f, DR_SEVERITY_FAIL, "arp", name,
			"shares its subnet with another rail, and answers ARP requests for that one's "
			"address: data arrives at the wrong NIC, where no socket takes it");
		dr_finding_found(x, "arp_ignore=%lld arp_announce=%lld", (long long)ignore,
			(long long)announce);
		dr_finding_needed(x, "arp_ignore=1 arp_announce=2");
		dr_finding_remedy(x,
			"sysctl -w net/ipv4/conf/%s/arp_ignore=1 net/ipv4/conf/%s/arp_announce=2 (at "
			"both ends; or a subnet per rail)",
			name, name);
	}
	if (!bad && n > 1)
		dr_findings_add(f, DR_SEVERITY_OK, "arp", NULL, "%s",
			shared ? "each rail answers for its own address only"
			       : "no two rails share a subnet");
}
