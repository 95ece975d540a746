/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device loses when it is set down, kept as the kernel's own netlink messages.
 *
 * 1. save copies messages as they come; restore sends a cleaned copy: flags that the kernel sets
 *    itself are masked and only attributes that a request may carry are copied.
 * 2. restore trusts no byte: a snapshot may have been read back from a file.
 * 3. Order: addresses, routes without a gateway, routes with one, neighbours; each needs the former.
 * 4. Everything is "create, do not replace": what came back by itself answers -EEXIST.
 */
#include "topology/netdev.h"

#include "base/mem.h"
#include "topology/nl.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>

enum class { ADDRESS, ROUTE_DIRECT, ROUTE_GATEWAY, NEIGHBOUR, N_CLASSES };

struct saving {
	struct dr_netdev_snapshot snap;
	size_t cap, keep; /* keep: bytes of the dumps before this one */
	unsigned keep_n[3];
	int ifindex;
	bool no_memory;
};

static void append(struct saving *s, const struct nlmsghdr *nlh, unsigned *count)
{
	size_t len = MNL_ALIGN(nlh->nlmsg_len);

	if (s->snap.len + len > s->cap) {
		size_t cap = 2 * s->cap + len + 1024;
		uint8_t *p = dr_realloc(s->snap.bytes, cap);

		if (!p) {
			s->no_memory = true;
			return;
		}
		s->snap.bytes = p;
		s->cap = cap;
	}
	memset(s->snap.bytes + s->snap.len, 0, len);
	memcpy(s->snap.bytes + s->snap.len, nlh, nlh->nlmsg_len);
	s->snap.len += len;
	(*count)++;
}

static void saving_restart(void *arg)
{
	struct saving *s = arg;

	s->snap.len = s->keep;
	s->snap.addresses = s->keep_n[0];
	s->snap.routes = s->keep_n[1];
	s->snap.neighbours = s->keep_n[2];
}

static void saving_commit(struct saving *s)
{
	s->keep = s->snap.len;
	s->keep_n[0] = s->snap.addresses;
	s->keep_n[1] = s->snap.routes;
	s->keep_n[2] = s->snap.neighbours;
}

static int save_addr(const struct nlmsghdr *nlh, void *arg)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(nlh);
	struct saving *s = arg;

	if (nlh->nlmsg_type != RTM_NEWADDR || mnl_nlmsg_get_payload_len(nlh) < sizeof(*ifa) ||
		(int)ifa->ifa_index != s->ifindex)
		return MNL_CB_OK;
	/* Privacy addresses are the kernel's to make again. */
	if (ifa->ifa_family == AF_INET6 && (ifa->ifa_flags & IFA_F_TEMPORARY))
		return MNL_CB_OK;
	append(s, nlh, &s->snap.addresses);
	return MNL_CB_OK;
}

static bool multipath_has(const struct nlattr *a, int ifindex)
{
	const struct rtnexthop *nh = mnl_attr_get_payload(a);
	int left = mnl_attr_get_payload_len(a);

	while (left >= (int)sizeof(*nh) && RTNH_OK(nh, left)) {
		if (nh->rtnh_ifindex == ifindex)
			return true;
		left -= (int)RTNH_ALIGN(nh->rtnh_len);
		nh = RTNH_NEXT(nh);
	}
	return false;
}

static int save_route(const struct nlmsghdr *nlh, void *arg)
{
	const struct rtmsg *rtm = mnl_nlmsg_get_payload(nlh);
	struct saving *s = arg;
	const struct nlattr *a;
	bool ours = false;

	if (nlh->nlmsg_type != RTM_NEWROUTE || mnl_nlmsg_get_payload_len(nlh) < sizeof(*rtm) ||
		(rtm->rtm_flags & RTM_F_CLONED) || rtm->rtm_protocol == RTPROT_KERNEL)
		return MNL_CB_OK;
	mnl_attr_for_each(a, nlh, sizeof(*rtm))
	{
		uint16_t type = mnl_attr_get_type(a);

		if (type == RTA_OIF && (int)dr_nl_u32(a) == s->ifindex)
			ours = true;
		if (type == RTA_MULTIPATH && multipath_has(a, s->ifindex))
			ours = true;
	}
	if (ours)
		append(s, nlh, &s->snap.routes);
	return MNL_CB_OK;
}

static int save_neigh(const struct nlmsghdr *nlh, void *arg)
{
	const struct ndmsg *ndm = mnl_nlmsg_get_payload(nlh);
	struct saving *s = arg;

	if (nlh->nlmsg_type == RTM_NEWNEIGH && mnl_nlmsg_get_payload_len(nlh) >= sizeof(*ndm) &&
		ndm->ndm_ifindex == s->ifindex && (ndm->ndm_state & NUD_PERMANENT))
		append(s, nlh, &s->snap.neighbours);
	return MNL_CB_OK;
}

int dr_netdev_save(int ifindex, struct dr_netdev_snapshot *out, struct dr_err *e)
{
	static const struct {
		uint16_t type;
		uint8_t family;
		size_t body;
		mnl_cb_t cb;
	} dumps[] = {
		{ RTM_GETADDR, AF_INET, sizeof(struct ifaddrmsg), save_addr },
		{ RTM_GETADDR, AF_INET6, sizeof(struct ifaddrmsg), save_addr },
		{ RTM_GETROUTE, AF_INET, sizeof(struct rtmsg), save_route },
		{ RTM_GETROUTE, AF_INET6, sizeof(struct rtmsg), save_route },
		{ RTM_GETNEIGH, AF_INET, sizeof(struct ndmsg), save_neigh },
		{ RTM_GETNEIGH, AF_INET6, sizeof(struct ndmsg), save_neigh },
	};
	struct saving s = { .ifindex = ifindex };
	char buf[256];
	struct dr_nl nl;
	void *body;
	int rc = dr_nl_open(&nl, NETLINK_ROUTE, 0, e);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < DR_ARRAY_LEN(dumps) && rc == 0; i++) {
		struct nlmsghdr *nlh = dr_nl_msg(buf, dumps[i].type, 0, dumps[i].body, &body);

		*(uint8_t *)body = dumps[i].family; /* first field of all three */
		rc = dr_nl_dump(&nl, nlh, dumps[i].cb, saving_restart, &s);
		saving_commit(&s);
	}
	dr_nl_close(&nl);
	if (rc == 0 && s.no_memory)
		rc = -ENOMEM;
	if (rc < 0) {
		dr_free(s.snap.bytes);
		return dr_nl_err(e, rc, "save addresses and routes of device %d", ifindex);
	}
	*out = s.snap;
	return 0;
}

void dr_netdev_snapshot_fini(struct dr_netdev_snapshot *s)
{
	dr_free(s->bytes);
	memset(s, 0, sizeof(*s));
}

static const struct nlattr *find(const struct nlmsghdr *nlh, size_t body, int type, size_t len_min)
{
	const struct nlattr *a;

	mnl_attr_for_each(a, nlh, body)
	{
		if (mnl_attr_get_type(a) == type && mnl_attr_get_payload_len(a) >= len_min)
			return a;
	}
	return NULL;
}

/* The class of a message of a snapshot of this device, or -EPROTO. */
static int classify(const struct nlmsghdr *nlh, int ifindex)
{
	const void *body = mnl_nlmsg_get_payload(nlh);
	size_t len = mnl_nlmsg_get_payload_len(nlh);
	const struct nlattr *a;

	if (nlh->nlmsg_type == RTM_NEWADDR && len >= sizeof(struct ifaddrmsg))
		return (int)((const struct ifaddrmsg *)body)->ifa_index == ifindex ? ADDRESS
										   : -EPROTO;
	if (nlh->nlmsg_type == RTM_NEWNEIGH && len >= sizeof(struct ndmsg))
		return ((const struct ndmsg *)body)->ndm_ifindex == ifindex ? NEIGHBOUR : -EPROTO;
	if (nlh->nlmsg_type != RTM_NEWROUTE || len < sizeof(struct rtmsg))
		return -EPROTO;
	a = find(nlh, sizeof(struct rtmsg), RTA_MULTIPATH, sizeof(struct rtnexthop));
	if (a)
		return multipath_has(a, ifindex) ? ROUTE_GATEWAY : -EPROTO;
	a = find(nlh, sizeof(struct rtmsg), RTA_OIF, sizeof(uint32_t));
	if (!a || (int)dr_nl_u32(a) != ifindex)
		return -EPROTO;
	if (find(nlh, sizeof(struct rtmsg), RTA_GATEWAY, 1) ||
		find(nlh, sizeof(struct rtmsg), RTA_VIA, 1))
		return ROUTE_GATEWAY;
	return ROUTE_DIRECT;
}

static void copy_attrs(const struct nlmsghdr *from, size_t body, struct nlmsghdr *to,
	const uint16_t *types, size_t n)
{
	const struct nlattr *a;

	mnl_attr_for_each(a, from, body)
	{
		for (size_t i = 0; i < n; i++) {
			if (mnl_attr_get_type(a) == types[i])
				mnl_attr_put(to, types[i], mnl_attr_get_payload_len(a),
					mnl_attr_get_payload(a));
		}
	}
}

static struct nlmsghdr *clean_addr(void *buf, const struct nlmsghdr *old)
{
	static const uint16_t types[] = { IFA_ADDRESS, IFA_LOCAL, IFA_LABEL, IFA_BROADCAST,
		IFA_CACHEINFO, IFA_RT_PRIORITY };
	const uint32_t settable = IFA_F_NODAD | IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR |
				  IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN;
	const struct ifaddrmsg *from = mnl_nlmsg_get_payload(old);
	const struct nlattr *a = find(old, sizeof(*from), IFA_FLAGS, sizeof(uint32_t));
	uint32_t flags = (a ? dr_nl_u32(a) : from->ifa_flags) & settable;
	void *body;
	struct nlmsghdr *nlh =
		dr_nl_msg(buf, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*from), &body);
	struct ifaddrmsg *to = body;

	*to = *from;
	if (from->ifa_family == AF_INET6)
		flags |= IFA_F_NODAD; /* it was ours a moment ago, and has to work at once */
	to->ifa_flags = (uint8_t)flags;
	copy_attrs(old, sizeof(*from), nlh, types, DR_ARRAY_LEN(types));
	mnl_attr_put_u32(nlh, IFA_FLAGS, flags);
	return nlh;
}

static struct nlmsghdr *clean_route(void *buf, const struct nlmsghdr *old)
{
	static const uint16_t types[] = { RTA_DST, RTA_SRC, RTA_IIF, RTA_OIF, RTA_GATEWAY,
		RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH, RTA_FLOW, RTA_TABLE, RTA_VIA,
		RTA_PREF, RTA_ENCAP_TYPE, RTA_ENCAP };
	const struct rtmsg *from = mnl_nlmsg_get_payload(old);
	const struct nlattr *a =
		find(old, sizeof(*from), RTA_CACHEINFO, sizeof(struct rta_cacheinfo));
	uint16_t mode = NLM_F_APPEND; /* beside routes of the same prefix; its equal is -EEXIST */
	void *body;
	struct nlmsghdr *nlh;
	struct rtmsg *to;

	/* IPv6 keeps the nexthops of the other devices; adding the whole set fails on those. */
	if (from->rtm_family == AF_INET6 && find(old, sizeof(*from), RTA_MULTIPATH, 1))
		mode = NLM_F_REPLACE;
	nlh = dr_nl_msg(buf, RTM_NEWROUTE, NLM_F_CREATE | mode, sizeof(*from), &body);
	to = body;
	*to = *from;
	to->rtm_flags &= RTNH_F_ONLINK;
	copy_attrs(old, sizeof(*from), nlh, types, DR_ARRAY_LEN(types));
	if (a && from->rtm_family == AF_INET6) {
		struct rta_cacheinfo ci;

		memcpy(&ci, mnl_attr_get_payload(a), sizeof(ci));
		if (ci.rta_expires > 0) /* in 1/100 s (USER_HZ); the attribute is in seconds */
			mnl_attr_put_u32(nlh, RTA_EXPIRES, (uint32_t)ci.rta_expires / 100 + 1);
	}
	a = find(nlh, sizeof(*to), RTA_MULTIPATH, sizeof(struct rtnexthop));
	if (a) {
		struct rtnexthop *nh = mnl_attr_get_payload(a);
		int left = mnl_attr_get_payload_len(a);

		while (left >= (int)sizeof(*nh) &&
			RTNH_OK(nh, left)) { /* "dead" and "linkdown" are refused in a request */
			nh->rtnh_flags &= RTNH_F_ONLINK;
			left -= (int)RTNH_ALIGN(nh->rtnh_len);
			nh = RTNH_NEXT(nh);
		}
	}
	return nlh;
}

static struct nlmsghdr *clean_neigh(void *buf, const struct nlmsghdr *old)
{
	static const uint16_t types[] = { NDA_DST, NDA_LLADDR };
	const struct ndmsg *from = mnl_nlmsg_get_payload(old);
	void *body;
	struct nlmsghdr *nlh =
		dr_nl_msg(buf, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*from), &body);
	struct ndmsg *to = body;

	*to = *from;
	to->ndm_state = NUD_PERMANENT;
	to->ndm_flags &= NTF_PROXY | NTF_ROUTER;
	copy_attrs(old, sizeof(*from), nlh, types, DR_ARRAY_LEN(types));
	return nlh;
}

static int send_clean(struct dr_nl *nl, enum class c, const struct nlmsghdr *old)
{
	char buf[DR_NL_BUF + 512];
	struct nlmsghdr *nlh;
	int rc;

	if (old->nlmsg_len > DR_NL_BUF)
		return -EMSGSIZE;
	if (c == ADDRESS)
		nlh = clean_addr(buf, old);
	else if (c == NEIGHBOUR)
		nlh = clean_neigh(buf, old);
	else
		nlh = clean_route(buf, old);
	rc = dr_nl_request(nl, nlh, NULL, NULL);
	return rc == -EEXIST ? 0 : rc;
}

/* One pass over the messages of class c; *failed counts them. Returns the last error. */
static int pass(struct dr_nl *nl, int ifindex, const struct dr_netdev_snapshot *s, enum class c,
	unsigned *failed)
{
	const struct nlmsghdr *nlh = (const struct nlmsghdr *)s->bytes;
	int left = (int)s->len, last = 0;

	*failed = 0;
	while (mnl_nlmsg_ok(nlh, left)) {
		int rc = classify(nlh, ifindex) == (int)c ? send_clean(nl, c, nlh) : 0;

		if (rc < 0) {
			(*failed)++;
			last = rc;
		}
		nlh = mnl_nlmsg_next(nlh, &left);
	}
	return last;
}

/* mnl_nlmsg_ok takes lengths of 2^31 and more for negative, hence for small. */
static int validate(int ifindex, const struct dr_netdev_snapshot *s)
{
	size_t at = 0;

	if (s->len > INT32_MAX)
		return -EPROTO;
	while (at < s->len) {
		const struct nlmsghdr *nlh = (const struct nlmsghdr *)(s->bytes + at);

		if (s->len - at < sizeof(*nlh) || nlh->nlmsg_len < sizeof(*nlh) ||
			nlh->nlmsg_len > s->len - at || classify(nlh, ifindex) < 0)
			return -EPROTO;
		at += MNL_ALIGN(nlh->nlmsg_len);
	}
	return 0;
}

int dr_netdev_restore(int ifindex, const struct dr_netdev_snapshot *s, struct dr_err *e)
{
	static const char *const names[] = { "address", "route", "route", "neighbour" };
	struct dr_err first = { 0 };
	struct dr_nl nl;
	int rc = validate(ifindex, s);

	if (rc < 0)
		return dr_err_set(
			e, rc, "restore device %d: the saved bytes make no sense", ifindex);
	rc = dr_nl_open(&nl, NETLINK_ROUTE, 0, e);
	if (rc < 0)
		return rc;
	for (int c = 0; c < N_CLASSES; c++) {
		unsigned failed = 0, before;

		/* A gateway may be reached through a route that is restored only later. */
		do {
			before = failed;
			rc = pass(&nl, ifindex, s, (enum class)c, &failed);
		} while (c == ROUTE_GATEWAY && failed && failed != before);
		if (rc < 0 && !first.code)
			dr_nl_err(&first, rc, "restore %u %s(s) of device %d", failed, names[c],
				ifindex);
	}
	dr_nl_close(&nl);
	if (first.code && e)
		*e = first;
	return first.code;
}
