/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "base/mem.h"
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
			snprintf(d->kind, sizeof(d->kind), "%.*s", (int)mnl_attr_get_payload_len(a),
				mnl_attr_get_str(a));
	}
}

/* As hexadecimal text; what is too long for that is no id. */
static void parse_port_id(const struct nlattr *a, struct dr_netdev *d)
{
	const uint8_t *id = mnl_attr_get_payload(a);
	uint16_t len = mnl_attr_get_payload_len(a);

	for (unsigned i = 0; i < len && 2u * len < sizeof(d->port_id); i++)
		snprintf(d->port_id + 2 * i, 3, "%02x", id[i]);
}

static void parse_link(const struct nlmsghdr *nlh, struct dr_netdev *d)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	bool other_netns = false, on_pci = false;
	const struct nlattr *a;

	memset(d, 0, sizeof(*d));
	d->ifindex = ifi->ifi_index;
	d->up = ifi->ifi_flags & IFF_UP;
	d->running = d->up && (ifi->ifi_flags & IFF_LOWER_UP);
	d->loopback = ifi->ifi_flags & IFF_LOOPBACK;
	d->speed_mbps = -1;
	if (d->loopback)
		snprintf(d->kind, sizeof(d->kind), "lo");
	mnl_attr_for_each(a, nlh, sizeof(*ifi))
	{
		uint16_t len = mnl_attr_get_payload_len(a);

		switch (mnl_attr_get_type(a)) {
		case IFLA_IFNAME:
			snprintf(d->name, sizeof(d->name), "%.*s", (int)len, mnl_attr_get_str(a));
			break;
		case IFLA_MTU:
			d->mtu = dr_nl_u32(a);
			break;
		case IFLA_MASTER:
			d->master = (int)dr_nl_u32(a);
			break;
		case IFLA_LINK:
			d->link = (int)dr_nl_u32(a);
			break;
		case IFLA_LINK_NETNSID:
			other_netns = true;
			break;
		case IFLA_ADDRESS:
			if (len == sizeof(d->mac))
				memcpy(d->mac, mnl_attr_get_payload(a), len);
			break;
		case IFLA_LINKINFO:
			parse_linkinfo(a, d);
			break;
		case IFLA_PHYS_PORT_ID:
			parse_port_id(a, d);
			break;
		case IFLA_PARENT_DEV_NAME:
			snprintf(d->pci, sizeof(d->pci), "%.*s", (int)len, mnl_attr_get_str(a));
			break;
		case IFLA_PARENT_DEV_BUS_NAME:
			on_pci = len == 4 && memcmp(mnl_attr_get_payload(a), "pci", 4) == 0;
			break;
		default:
			break;
		}
	}
	if (other_netns || d->link == d->ifindex)
		d->link = 0;
	if (!on_pci)
		d->pci[0] = '\0';
}

static int on_link(const struct nlmsghdr *nlh, void *arg)
{
	struct listing *l = arg;

	if (nlh->nlmsg_type != RTM_NEWLINK ||
		mnl_nlmsg_get_payload_len(nlh) < sizeof(struct ifinfomsg))
		return MNL_CB_OK;
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 8;
		struct dr_netdev *p = dr_realloc(l->devs, cap * sizeof(*p));

		if (!p) {
			l->no_memory = true;
			return MNL_CB_OK;
		}
		l->devs = p;
		l->cap = cap;
	}
	parse_link(nlh, &l->devs[l->n++]);
	return MNL_CB_OK;
}

/* The kernel's attribute as a socket address; false when its length is not the family's. */
static bool addr_from_attr(
	int family, const struct nlattr *a, int ifindex, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	if (family == AF_INET && mnl_attr_get_payload_len(a) == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)out;

		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, mnl_attr_get_payload(a), 4);
		return true;
	}
	if (family == AF_INET6 && mnl_attr_get_payload_len(a) == 16) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, mnl_attr_get_payload(a), 16);
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			in6->sin6_scope_id = (uint32_t)ifindex;
		return true;
	}
	return false;
}

static int on_addr(const struct nlmsghdr *nlh, void *arg)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *a, *local = NULL;
	struct dr_netdev_addr addr = { 0 };
	struct listing *l = arg;

	if (nlh->nlmsg_type != RTM_NEWADDR || mnl_nlmsg_get_payload_len(nlh) < sizeof(*ifa))
		return MNL_CB_OK;
	mnl_attr_for_each(a, nlh, sizeof(*ifa))
	{
		int type = mnl_attr_get_type(a);

		/* On a point-to-point device IFA_ADDRESS is the peer's. */
		if (type == IFA_LOCAL || (type == IFA_ADDRESS && !local))
			local = a;
	}
	if (!local || !addr_from_attr(ifa->ifa_family, local, (int)ifa->ifa_index, &addr.addr))
		return MNL_CB_OK;
	addr.prefix = ifa->ifa_prefixlen;
	addr.global = ifa->ifa_scope == RT_SCOPE_UNIVERSE || ifa->ifa_scope == RT_SCOPE_SITE;
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
	if (ioctl(fd, SIOCETHTOOL, &ifr) < 0 || req.s.speed == (uint32_t)SPEED_UNKNOWN ||
		req.s.speed == 0)
		return -1;
	return (int64_t)req.s.speed;
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

static int by_ifindex(const void *a, const void *b)
{
	const struct dr_netdev *x = a, *y = b;

	return (x->ifindex > y->ifindex) - (x->ifindex < y->ifindex);
}

int dr_netdev_list(struct dr_netdev **out, size_t *out_n, struct dr_err *e)
{
	char buf[256];
	struct listing l = { 0 };
	struct nlmsghdr *nlh;
	struct dr_nl nl;
	void *body;
	int rc = dr_nl_open(&nl, NETLINK_ROUTE, 0, e);

	if (rc < 0)
		return rc;
	nlh = dr_nl_msg(buf, RTM_GETLINK, 0, sizeof(struct ifinfomsg), &body);
	mnl_attr_put_u32(nlh, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
	rc = dr_nl_dump(&nl, nlh, on_link, listing_restart, &l);
	if (rc == 0 && l.no_memory)
		rc = -ENOMEM;
	if (rc == 0) {
		nlh = dr_nl_msg(buf, RTM_GETADDR, 0, sizeof(struct ifaddrmsg), &body);
		rc = dr_nl_dump(&nl, nlh, on_addr, addrs_restart, &l);
	}
	dr_nl_close(&nl);
	if (rc < 0) {
		dr_free(l.devs);
		return dr_nl_err(e, rc, "list the network devices");
	}
	if (l.n > 0)
		qsort(l.devs, l.n, sizeof(*l.devs), by_ifindex);
	fill_speeds(&l);
	*out = l.devs;
	*out_n = l.n;
	return 0;
}

void dr_netdev_list_free(struct dr_netdev *list)
{
	dr_free(list);
}

/* "lo, eth0, eth1" for messages. */
static void names_of(const struct dr_netdev *devs, size_t n, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < n && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "", devs[i].name);
}

int dr_netdev_by_name(const char *name, struct dr_netdev *out, struct dr_err *e)
{
	struct dr_netdev *devs;
	char names[160];
	size_t n;
	int rc = dr_netdev_list(&devs, &n, e);

	if (rc < 0)
		return rc;
	rc = -ENODEV;
	for (size_t i = 0; i < n && rc < 0; i++) {
		if (!strcmp(devs[i].name, name)) {
			*out = devs[i];
			rc = 0;
		}
	}
	if (rc < 0) {
		names_of(devs, n, names, sizeof(names));
		dr_err_set(e, rc, "no network device '%s' here; there are: %s", name, names);
	}
	dr_netdev_list_free(devs);
	return rc;
}

static bool holds(const struct dr_netdev *d, const struct sockaddr *sa)
{
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
	struct dr_netdev *devs;
	size_t n;
	int rc = dr_netdev_list(&devs, &n, e);

	if (rc < 0)
		return rc;
	rc = -EADDRNOTAVAIL;
	for (size_t i = 0; i < n && rc < 0; i++) {
		if (holds(&devs[i], sa)) {
			*out = devs[i];
			rc = 0;
		}
	}
	dr_netdev_list_free(devs);
	if (rc < 0) {
		char text[64];

		dr_netdev_addr_format(sa, text, sizeof(text));
		dr_err_set(e, rc, "%s is no address of this host; see `ip address`", text);
	}
	return rc;
}

static int on_stats(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_netdev_counters *c = arg;
	struct rtnl_link_stats64 s = { 0 };
	const struct nlattr *a;

	if (nlh->nlmsg_type != RTM_NEWLINK)
		return MNL_CB_OK;
	mnl_attr_for_each(a, nlh, sizeof(struct ifinfomsg))
	{
		if (mnl_attr_get_type(a) == IFLA_STATS64)
			memcpy(&s, mnl_attr_get_payload(a),
				DR_MIN(sizeof(s), (size_t)mnl_attr_get_payload_len(a)));
	}
	*c = (struct dr_netdev_counters){ .rx_bytes = s.rx_bytes,
		.tx_bytes = s.tx_bytes,
		.rx_packets = s.rx_packets,
		.tx_packets = s.tx_packets,
		.rx_dropped = s.rx_dropped,
		.tx_dropped = s.tx_dropped,
		.rx_errors = s.rx_errors,
		.tx_errors = s.tx_errors };
	return MNL_CB_OK;
}

int dr_netdev_counters(int ifindex, struct dr_netdev_counters *out, struct dr_err *e)
{
	struct dr_netdev_counters c = { 0 };
	struct ifinfomsg *ifi;
	char buf[256];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(buf, RTM_GETLINK, 0, sizeof(*ifi), &body);
	int rc;

	ifi = body;
	ifi->ifi_index = ifindex;
	rc = dr_nl_once(nlh, on_stats, &c);
	if (rc < 0)
		return dr_nl_err(e, rc, "read the counters of device %d", ifindex);
	*out = c;
	return 0;
}
