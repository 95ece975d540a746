/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/reach.h"

#include "base/failure.h"
#include "base/source.h"
#include "base/sysfile.h"
#include "topology/nl.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <netinet/in.h>
#include <string.h>

/* ---- the kernel's neighbours ---- */

struct neighbour {
	struct dr_prefix addr;
	int ifindex;
	bool found;
	uint16_t state; /* NUD_... */
	uint8_t mac[6];
	struct dr_prefix twin; /* another address with this MAC, on any NIC; family 0: none */
};

static int on_neighbour(const struct nlmsghdr *nlh, void *arg)
{
	struct neighbour *n = arg;
	struct dr_nl_attrs t;
	const struct ndmsg *nd = dr_nl_body(nlh, RTM_NEWNEIGH, sizeof(*nd), &t);
	struct dr_prefix to;

	if (!nd || !dr_nl_addr(t.at[NDA_DST], nd->ndm_family, &to))
		return MNL_CB_OK;
	const void *mac =
		t.at[NDA_LLADDR] && mnl_attr_get_payload_len(t.at[NDA_LLADDR]) == sizeof(n->mac)
			? mnl_attr_get_payload(t.at[NDA_LLADDR])
			: NULL;
	bool same = memcmp(to.addr, n->addr.addr, sizeof(to.addr)) == 0;
	if (n->found && !same && mac && memcmp(mac, n->mac, sizeof(n->mac)) == 0)
		n->twin = to;
	if (n->found || !same || nd->ndm_ifindex != n->ifindex)
		return MNL_CB_OK;
	n->found = true;
	n->state = nd->ndm_state;
	if (mac)
		memcpy(n->mac, mac, sizeof(n->mac));
	return MNL_CB_OK;
}

static void find_neighbour(const struct dr_reach *r, struct neighbour *n)
{
	struct dr_nl_dump dump = {
		.type = RTM_GETNEIGH, .body = sizeof(struct ndmsg), .cb = on_neighbour, .arg = n
	};

	*n = (struct neighbour){ .ifindex = (int)if_nametoindex(r->ifname) };
	if (dr_prefix_of((const struct sockaddr *)r->peer, 0, &n->addr))
		return;
	dump.family = n->addr.family;
	(void)dr_nl_dump(&dump);
	if (n->found && !(n->state & (NUD_INCOMPLETE | NUD_FAILED)))
		(void)dr_nl_dump(&dump);
}

/* The kernel's table of neighbours, which all network namespaces share. */
struct table {
	uint32_t entries, limit;
	bool refused; /* new ones, since the machine started */
};

static int on_table(const struct nlmsghdr *nlh, void *arg)
{
	struct table *table = arg;
	struct dr_nl_attrs t;
	struct ndt_config config;
	struct ndt_stats stats;

	/* The table itself comes first, and alone has a limit; one message for each NIC follows. */
	if (!dr_nl_body(nlh, RTM_NEWNEIGHTBL, sizeof(struct ndtmsg), &t) || !t.at[NDTA_THRESH3] ||
		!t.at[NDTA_CONFIG] || !t.at[NDTA_STATS] ||
		mnl_attr_get_payload_len(t.at[NDTA_CONFIG]) < sizeof(config) ||
		mnl_attr_get_payload_len(t.at[NDTA_STATS]) < sizeof(stats))
		return MNL_CB_OK;
	memcpy(&config, mnl_attr_get_payload(t.at[NDTA_CONFIG]), sizeof(config));
	memcpy(&stats, mnl_attr_get_payload(t.at[NDTA_STATS]), sizeof(stats));
	*table = (struct table){ .entries = config.ndtc_entries,
		.limit = dr_nl_u32(t.at[NDTA_THRESH3]),
		.refused = stats.ndts_table_fulls > 0 };
	return MNL_CB_OK;
}

/* No entry was free for the peer, so that packets to it are dropped here without an error. */
static bool table_full(const struct dr_reach *r, struct table *table)
{
	const struct dr_nl_dump dump = { .type = RTM_GETNEIGHTBL,
		.family = (uint8_t)r->peer->ss_family,
		.body = sizeof(struct ndtmsg),
		.cb = on_table,
		.arg = table };

	*table = (struct table){ 0 };
	return dr_nl_dump(&dump) == 0 && table->refused && table->entries >= table->limit;
}

/* Two NICs of the peer in one subnet, of which one answers ARP requests for both. */
static void describe_twin(const char *to, const struct neighbour *n, char *buf, size_t len)
{
	struct sockaddr_storage ss;
	char other[64];

	dr_prefix_sockaddr(&n->twin, &ss);
	dr_netdev_addr_format((const struct sockaddr *)&ss, other, sizeof(other));
	snprintf(buf, len,
		"one NIC of the peer answers ARP for %s and %s; if they belong to two, packets reach "
		"the wrong one; at the peer: sysctl -w net.ipv4.conf.all.arp_ignore=1 "
		"net.ipv4.conf.all.arp_announce=2; here: ip neigh flush all (or use one subnet per "
		"rail)",
		to, other);
}

/* ---- causes ---- */

/* IN_DEV_MAXCONF: the kernel takes the larger one of "all" and the device's. */
static int64_t conf(const char *root, const char *ifname, const char *name)
{
	int64_t all = 0, own = 0;

	(void)dr_sysfile_number(&all, root, "/proc/sys/net/ipv4/conf/all/%s", name);
	(void)dr_sysfile_number(&own, root, "/proc/sys/net/ipv4/conf/%s/%s", ifname, name);
	return DR_MAX(all, own);
}

bool dr_reach_flux(const char *root, const char *ifname, const struct sockaddr_storage *own,
	const struct sockaddr_storage *other, unsigned prefix)
{
	struct dr_prefix x, y;

	return dr_prefix_of((const struct sockaddr *)own, prefix, &x) == 0 &&
	       dr_prefix_of((const struct sockaddr *)other, prefix, &y) == 0 &&
	       x.family == AF_INET && dr_prefix_holds(&x, &y) &&
	       conf(root, ifname, "arp_filter") < 1 &&
	       (conf(root, ifname, "arp_ignore") < 1 || conf(root, ifname, "arp_announce") < 2);
}

/* The kernel drops what comes from the peer: its route there leaves through the NIC `via`. */
static bool filtered(const struct dr_reach *r, struct dr_netdev *via)
{
	return r->peer->ss_family == AF_INET && conf("", r->ifname, "rp_filter") == 1 &&
	       dr_netdev_toward((const struct sockaddr *)r->peer, (const struct sockaddr *)r->local,
		       via, NULL) == 0 &&
	       !via->loopback && strcmp(via->name, r->ifname) != 0;
}

static bool has_address(const struct dr_netdev *d, const struct sockaddr_storage *local)
{
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (dr_same_host(&d->addrs[i].addr, local))
			return true;
	return d->loopback;
}

/* The cause is at this host. */
static bool own_cause(const struct dr_reach *r, const char *to, char *buf, size_t len)
{
	const char *limit = dr_failure_own(r->err);
	struct dr_netdev d, via;

	if (dr_netdev_by_name(r->ifname, &d, NULL))
		snprintf(buf, len, "%s is not there any more; ip link", r->ifname);
	else if (!d.running)
		snprintf(buf, len, "%s is down or has no carrier; check link, cable and switch",
			r->ifname);
	else if (!has_address(&d, r->local))
		snprintf(buf, len, "%s does not have its address any more; ip address show %s",
			r->ifname, r->ifname);
	else if (limit)
		snprintf(buf, len, "%s", limit);
	else if (filtered(r, &via))
		snprintf(buf, len,
			"rp_filter of %s is strict, and the route to %s leaves through %s, so that "
			"its packets are dropped; sysctl -w net/ipv4/conf/%s/rp_filter=2",
			r->ifname, to, via.name, r->ifname);
	else if (r->err == -ENETUNREACH)
		snprintf(buf, len, "no route to %s through %s; ip route get %s oif %s, ip rule", to,
			r->ifname, to, r->ifname);
	else
		return false;
	return true;
}

void dr_reach_describe(const struct dr_reach *asked, char *buf, size_t len)
{
	const char *arp = asked->peer->ss_family == AF_INET6 ? "neighbour discovery" : "ARP";
	struct dr_reach last = *asked, *r = &last;
	char to[64], port[24] = "";
	struct neighbour n;
	struct table table;

	if (!r->err)
		r->err = dr_failure_last(r->local, r->peer, &r->port);
	dr_netdev_addr_format((const struct sockaddr *)r->peer, to, sizeof(to));
	if (r->peer->ss_family == AF_UNSPEC)
		snprintf(to, sizeof(to), "the peer");
	if (own_cause(r, to, buf, len))
		return;
	find_neighbour(r, &n);
	if (r->port)
		snprintf(port, sizeof(port), " on port %u", r->port);
	if (n.found && (n.state & NUD_PERMANENT))
		snprintf(buf, len,
			"no answer from %s%s, whose neighbour entry here is permanent "
			"(%02x:%02x:%02x:%02x:%02x:%02x); compare it with the peer's NIC, or ip "
			"neigh del %s dev %s",
			to, port, n.mac[0], n.mac[1], n.mac[2], n.mac[3], n.mac[4], n.mac[5], to,
			r->ifname);
	else if ((!n.found || n.state & (NUD_INCOMPLETE | NUD_FAILED)) && table_full(r, &table))
		snprintf(buf, len,
			"the neighbour table of this host is full (%u entries of at most %u), so that "
			"packets to %s are dropped; sysctl -w net.ipv%c.neigh.default.gc_thresh3=%u",
			table.entries, table.limit, to, r->peer->ss_family == AF_INET6 ? '6' : '4',
			4 * DR_MAX(table.entries, table.limit));
	else if (n.found && (n.state & (NUD_INCOMPLETE | NUD_FAILED)))
		snprintf(buf, len,
			"nobody answers %s for %s; check cable, switch port and VLAN, and the peer's "
			"address, arp_ignore and arp_filter",
			arp, to);
	else if (n.twin.family == AF_INET)
		describe_twin(to, &n, buf, len);
	else if (r->err == -ECONNREFUSED || r->err == -EHOSTUNREACH)
		snprintf(buf, len,
			"%s%s is rejected (%s) by a firewall, or packets reach another NIC of the "
			"peer; admit TCP and UDP on the ports of %s; ip neigh flush dev %s",
			to, port, strerror(-r->err), r->ports, r->ifname);
	else
		snprintf(buf, len,
			"no answer from %s%s%s; admit TCP and UDP on the ports of %s in the "
			"firewalls, check rp_filter of the peer",
			to, port, n.found ? ", although its MAC address is known" : "", r->ports);
}
