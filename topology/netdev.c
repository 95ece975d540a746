/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "base/mem.h"
#include "base/units.h"
#include "topology/nl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct listing {
	struct dr_netdev *devs;
	size_t n, cap;
	bool no_memory;
};

static void listing_restart(void *arg)
{
	struct listing *l = arg;

	l->n = 0;
}

static void parse_linkinfo(const struct nlattr *info, struct dr_netdev *d)
{
	const struct nlattr *a;

	mnl_attr_for_each_nested(a, info)
	{
		if (mnl_attr_get_type(a) == IFLA_INFO_KIND)
			dr_nl_text(a, d->kind, sizeof(d->kind));
	}
}

/* As hexadecimal text; empty when too long. */
static void parse_port_id(const struct nlattr *a, struct dr_netdev *d)
{
	const uint8_t *id = mnl_attr_get_payload(a);
	uint16_t len = mnl_attr_get_payload_len(a);

	for (unsigned i = 0; i < len && 2u * len < sizeof(d->port_id); i++)
		snprintf(d->port_id + 2 * i, 3, "%02x", id[i]);
}

static void parse_link(
	const struct ifinfomsg *ifi, const struct dr_nl_attrs *t, struct dr_netdev *d)
{
	const struct nlattr *mac = t->at[IFLA_ADDRESS];
	char bus[8];

	*d = (struct dr_netdev){ .ifindex = ifi->ifi_index,
		.up = ifi->ifi_flags & IFF_UP,
		.running = (ifi->ifi_flags & IFF_UP) && (ifi->ifi_flags & IFF_LOWER_UP),
		.loopback = ifi->ifi_flags & IFF_LOOPBACK,
		.mtu = dr_nl_u32(t->at[IFLA_MTU]),
		.speed_mbps = -1,
		.master = (int)dr_nl_u32(t->at[IFLA_MASTER]),
		.link = (int)dr_nl_u32(t->at[IFLA_LINK]) };
	dr_nl_text(t->at[IFLA_IFNAME], d->name, sizeof(d->name));
	dr_nl_text(t->at[IFLA_QDISC], d->qdisc, sizeof(d->qdisc));
	d->gso_max = dr_nl_u32(t->at[IFLA_GSO_MAX_SIZE]);
	d->gro_max = dr_nl_u32(t->at[IFLA_GRO_MAX_SIZE]);
	if (t->at[IFLA_LINK_NETNSID] || d->link == d->ifindex)
		d->link = 0;
	if (mac && mnl_attr_get_payload_len(mac) == sizeof(d->mac))
		memcpy(d->mac, mnl_attr_get_payload(mac), sizeof(d->mac));
	if (d->loopback)
		snprintf(d->kind, sizeof(d->kind), "lo");
	if (t->at[IFLA_LINKINFO])
		parse_linkinfo(t->at[IFLA_LINKINFO], d);
	if (t->at[IFLA_PHYS_PORT_ID])
		parse_port_id(t->at[IFLA_PHYS_PORT_ID], d);
	dr_nl_text(t->at[IFLA_PARENT_DEV_BUS_NAME], bus, sizeof(bus));
	if (!strcmp(bus, "pci"))
		dr_nl_text(t->at[IFLA_PARENT_DEV_NAME], d->pci, sizeof(d->pci));
}

static int on_link(const struct nlmsghdr *nlh, void *arg)
{
	struct listing *l = arg;
	struct dr_nl_attrs t;
	const struct ifinfomsg *ifi = dr_nl_body(nlh, RTM_NEWLINK, sizeof(*ifi), &t);

	if (!ifi)
		return MNL_CB_OK;
	struct dr_netdev *p = dr_grow(l->devs, &l->cap, l->n + 1, sizeof(*p));
	if (!p) {
		l->no_memory = true;
		return MNL_CB_OK;
	}
	l->devs = p;
	parse_link(ifi, &t, &p[l->n++]);
	return MNL_CB_OK;
}

static int on_addr(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_nl_attrs t;
	const struct ifaddrmsg *ifa = dr_nl_body(nlh, RTM_NEWADDR, sizeof(*ifa), &t);
	struct dr_netdev_addr addr = { .shared = false };
	struct listing *l = arg;
	struct dr_prefix p;

	/* On a point-to-point device IFA_ADDRESS is the peer's. */
	if (!ifa ||
		!dr_nl_addr(t.at[t.at[IFA_LOCAL] ? IFA_LOCAL : IFA_ADDRESS], ifa->ifa_family, &p))
		return MNL_CB_OK;
	dr_prefix_sockaddr(&p, &addr.addr);
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&addr.addr;
	if (p.family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = ifa->ifa_index;
	addr.prefix = ifa->ifa_prefixlen;
	addr.global = (ifa->ifa_scope == RT_SCOPE_UNIVERSE || ifa->ifa_scope == RT_SCOPE_SITE) &&
		      !(p.family == AF_INET && p.addr[0] == 169 && p.addr[1] == 254);
	for (size_t i = 0; i < l->n; i++) {
		struct dr_netdev *d = &l->devs[i];

		if (d->ifindex == (int)ifa->ifa_index && d->n_addrs < DR_NETDEV_ADDRS_MAX)
			d->addrs[d->n_addrs++] = addr;
	}
	return MNL_CB_OK;
}

static void addrs_restart(void *arg)
{
	struct listing *l = arg;

	for (size_t i = 0; i < l->n; i++)
		l->devs[i].n_addrs = 0;
}

/* Link speed through the ethtool ioctl, which answers for the socket's own namespace. */
static int64_t speed_of(int fd, const char *name)
{
	struct {
		struct ethtool_link_settings s;
		uint32_t masks[3 * 127];
	} req = { .s = { .cmd = ETHTOOL_GLINKSETTINGS } };
	struct ifreq ifr = { 0 };

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	ifr.ifr_data = (void *)&req;
	/* First call: the kernel tells the number of mask words, negated; second: the settings. */
	if (ioctl(fd, SIOCETHTOOL, &ifr) < 0 || req.s.link_mode_masks_nwords >= 0)
		return -1;
	req.s.link_mode_masks_nwords = (int8_t)-req.s.link_mode_masks_nwords;
	req.s.cmd = ETHTOOL_GLINKSETTINGS;
	return ioctl(fd, SIOCETHTOOL, &ifr) < 0 ? -1 : dr_netdev_mbps(req.s.speed);
}

int64_t dr_netdev_mbps(int64_t told)
{
	return told <= 0 || told == UINT16_MAX || told >= INT32_MAX ? -1 : told;
}

static bool speed_is_made_up(const struct dr_netdev *d)
{
	return d->loopback || !strcmp(d->kind, "veth") || !strcmp(d->kind, "tun");
}

static void fill_speeds(struct listing *l)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	for (size_t i = 0; i < l->n; i++) {
		if (!speed_is_made_up(&l->devs[i]))
			l->devs[i].speed_mbps = speed_of(fd, l->devs[i].name);
	}
	close(fd);
}

/* An address that another device has too tells neither: docker0 of two bridges, addresses of
 * gateways. */
static void mark_shared(struct dr_netdev *d, const struct dr_netdev *other)
{
	for (unsigned i = 0; other != d && other->up && i < d->n_addrs; i++)
		for (unsigned k = 0; d->addrs[i].global && k < other->n_addrs; k++) {
			d->addrs[i].shared =
				dr_netdev_addr_equal((const struct sockaddr *)&d->addrs[i].addr,
					(const struct sockaddr *)&other->addrs[k].addr);
			d->addrs[i].global = !d->addrs[i].shared;
		}
}

static int by_ifindex(const void *a, const void *b)
{
	const struct dr_netdev *x = a, *y = b;

	return (x->ifindex > y->ifindex) - (x->ifindex < y->ifindex);
}

int dr_netdev_list(struct dr_netdev **out, size_t *out_n, struct dr_err *e)
{
	struct listing l = { 0 };
	const struct dr_nl_dump links = { .type = RTM_GETLINK,
		.body = sizeof(struct ifinfomsg),
		.cb = on_link,
		.restart = listing_restart,
		.arg = &l };
	const struct dr_nl_dump addrs = { .type = RTM_GETADDR,
		.body = sizeof(struct ifaddrmsg),
		.cb = on_addr,
		.restart = addrs_restart,
		.arg = &l };
	int rc = dr_nl_dump(&links);

	if (rc == 0)
		rc = l.no_memory ? -ENOMEM : dr_nl_dump(&addrs);
	if (rc < 0) {
		dr_free(l.devs);
		return dr_nl_err(e, rc, "list the network devices");
	}
	if (l.n > 0)
		qsort(l.devs, l.n, sizeof(*l.devs), by_ifindex);
	fill_speeds(&l);
	for (size_t i = 0; i < l.n * l.n; i++)
		mark_shared(&l.devs[i / l.n], &l.devs[i % l.n]);
	*out = l.devs;
	*out_n = l.n;
	return 0;
}

void dr_netdev_list_free(struct dr_netdev *list)
{
	dr_free(list);
}

void dr_netdev_names(const struct dr_netdev *devs, size_t n, char *buf, size_t len)
{
	buf[0] = '\0';
	for (size_t i = 0; i < n; i++)
		dr_append(buf, len, "%s%s", i ? ", " : "", devs[i].name);
}

/* The device that `is` accepts: 0, or 1 with the names of those that are there. */
static int find(bool (*is)(const struct dr_netdev *d, const void *key), const void *key,
	struct dr_netdev *out, char names[160], struct dr_err *e)
{
	struct dr_netdev *devs;
	size_t n, i = 0;
	int rc = dr_netdev_list(&devs, &n, e);

	if (rc < 0)
		return rc;
	while (i < n && !is(&devs[i], key))
		i++;
	if (i < n)
		*out = devs[i];
	dr_netdev_names(devs, n, names, 160);
	dr_netdev_list_free(devs);
	return i == n;
}

static bool has_name(const struct dr_netdev *d, const void *name)
{
	return strcmp(d->name, name) == 0;
}

int dr_netdev_by_name(const char *name, struct dr_netdev *out, struct dr_err *e)
{
	char names[160];
	int rc = find(has_name, name, out, names, e);

	return rc > 0 ? dr_err_set(e, -ENODEV, "no network device '%s' on this host; available: %s",
				name, names)
		      : rc;
}

static bool has_index(const struct dr_netdev *d, const void *ifindex)
{
	return d->ifindex == *(const int *)ifindex;
}

int dr_netdev_by_index(int ifindex, struct dr_netdev *out, struct dr_err *e)
{
	char names[160];
	int rc = find(has_index, &ifindex, out, names, e);

	return rc > 0 ? dr_err_set(e, -ENODEV, "device %d was removed", ifindex) : rc;
}

static bool holds(const struct dr_netdev *d, const void *key)
{
	const struct sockaddr *sa = key;

	for (unsigned i = 0; i < d->n_addrs; i++) {
		if (dr_netdev_addr_equal((const struct sockaddr *)&d->addrs[i].addr, sa))
			return true;
	}
	if (d->loopback && sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
	}
	return false;
}

int dr_netdev_by_addr(const struct sockaddr *sa, struct dr_netdev *out, struct dr_err *e)
{
	char names[160], text[64];
	int rc = find(holds, sa, out, names, e);

	if (rc <= 0)
		return rc;
	dr_netdev_addr_format(sa, text, sizeof(text));
	return dr_err_set(
		e, -EADDRNOTAVAIL, "%s is not an address of this host; see `ip address`", text);
}

static int on_stats(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_netdev_counters *c = arg;
	struct rtnl_link_stats64 s = { 0 };
	struct dr_nl_attrs t;

	if (!dr_nl_body(nlh, RTM_NEWLINK, sizeof(struct ifinfomsg), &t))
		return MNL_CB_OK;
	const struct nlattr *a = t.at[IFLA_STATS64];
	if (a)
		memcpy(&s, mnl_attr_get_payload(a),
			DR_MIN(sizeof(s), (size_t)mnl_attr_get_payload_len(a)));
	*c = (struct dr_netdev_counters){ .rx_bytes = s.rx_bytes,
		.tx_bytes = s.tx_bytes,
		.rx_packets = s.rx_packets,
		.tx_packets = s.tx_packets,
		.rx_dropped = s.rx_dropped,
		.tx_dropped = s.tx_dropped,
		.rx_missed = s.rx_missed_errors,
		.rx_errors = s.rx_errors,
		.tx_errors = s.tx_errors,
		.carrier_changes = dr_nl_u32(t.at[IFLA_CARRIER_CHANGES]) };
	return MNL_CB_OK;
}

int dr_netdev_counters(int ifindex, struct dr_netdev_counters *out, struct dr_err *e)
{
	struct dr_netdev_counters c = { 0 };
	struct ifinfomsg *ifi;
	char buf[256];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(buf, RTM_GETLINK, 0, sizeof(*ifi), &body);

	ifi = body;
	ifi->ifi_index = ifindex;
	int rc = dr_nl_once(nlh, on_stats, &c);
	if (rc < 0)
		return dr_nl_err(e, rc, "read the counters of device %d", ifindex);
	*out = c;
	return 0;
}
