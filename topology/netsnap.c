/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration that a device loses when it is set down, saved as netlink messages.
 *
 * 1. save copies the kernel's messages; restore sends a cleaned copy: flags that the kernel sets itself are masked,
 *    and only attributes that a request may have are copied.
 * 2. restore validates every byte: a snapshot may come from a file.
 * 3. Order: addresses, routes without a gateway, routes with one, neighbours; each needs the former.
 * 4. All requests create and never replace; -EEXIST means that the item exists already, which is no error.
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
	struct dr_netdev_snapshot snap, kept; /* kept: before this dump; its bytes may have moved */
	size_t cap;
	int ifindex;
	bool no_memory;
};

static void append(struct saving *s, const struct nlmsghdr *nlh, unsigned *count)
{
	size_t len = MNL_ALIGN(nlh->nlmsg_len);
	uint8_t *p = dr_grow(s->snap.bytes, &s->cap, s->snap.len + len, 1);

	if (!p) {
		s->no_memory = true;
		return;
	}
	s->snap.bytes = p;
	memset(p + s->snap.len, 0, len);
	memcpy(p + s->snap.len, nlh, nlh->nlmsg_len);
	s->snap.len += len;
	(*count)++;
}

static void saving_restart(void *arg)
{
	struct saving *s = arg;
	uint8_t *bytes = s->snap.bytes;

	s->snap = s->kept;
	s->snap.bytes = bytes;
}

static int save_addr(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_nl_attrs t;
	const struct ifaddrmsg *ifa = dr_nl_body(nlh, RTM_NEWADDR, sizeof(*ifa), &t);
	struct saving *s = arg;

	/* The kernel creates privacy addresses again. */
	if (ifa && (int)ifa->ifa_index == s->ifindex &&
		!(ifa->ifa_family == AF_INET6 && (ifa->ifa_flags & IFA_F_TEMPORARY)))
		append(s, nlh, &s->snap.addresses);
	return MNL_CB_OK;
}

static bool multipath_has(const struct nlattr *a, int ifindex)
{
	const struct rtnexthop *nh;

	if (!a)
		return false;
	DR_NL_EACH_HOP(nh, a)
	{
		if (nh->rtnh_ifindex == ifindex)
			return true;
	}
	return false;
}

static int save_route(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_nl_attrs t;
	const struct rtmsg *rtm = dr_nl_body(nlh, RTM_NEWROUTE, sizeof(*rtm), &t);
	struct saving *s = arg;

	if (!rtm || (rtm->rtm_flags & RTM_F_CLONED) || rtm->rtm_protocol == RTPROT_KERNEL)
		return MNL_CB_OK;
	if ((int)dr_nl_u32(t.at[RTA_OIF]) == s->ifindex ||
		multipath_has(t.at[RTA_MULTIPATH], s->ifindex))
		append(s, nlh, &s->snap.routes);
	return MNL_CB_OK;
}

static int save_neigh(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_nl_attrs t;
	const struct ndmsg *ndm = dr_nl_body(nlh, RTM_NEWNEIGH, sizeof(*ndm), &t);
	struct saving *s = arg;

	if (ndm && ndm->ndm_ifindex == s->ifindex && (ndm->ndm_state & NUD_PERMANENT))
		append(s, nlh, &s->snap.neighbours);
	return MNL_CB_OK;
}

int dr_netdev_save(int ifindex, struct dr_netdev_snapshot *out, struct dr_err *e)
{
	static const struct {
		uint16_t type;
		size_t body;
		mnl_cb_t cb;
	} dumps[] = {
		{ RTM_GETADDR, sizeof(struct ifaddrmsg), save_addr },
		{ RTM_GETROUTE, sizeof(struct rtmsg), save_route },
		{ RTM_GETNEIGH, sizeof(struct ndmsg), save_neigh },
	};
	struct saving s = { .ifindex = ifindex };
	int rc = 0;

	for (size_t i = 0; i < 2 * DR_ARRAY_LEN(dumps) && rc == 0; i++) {
		const struct dr_nl_dump d = { dumps[i / 2].type, i % 2 ? AF_INET6 : AF_INET,
			dumps[i / 2].body, dumps[i / 2].cb, saving_restart, &s };

		rc = dr_nl_dump(&d);
		s.kept = s.snap;
	}
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

/* The class of a message of a snapshot of this device, or -EPROTO. */
static int classify(const struct nlmsghdr *nlh, int ifindex)
{
	struct dr_nl_attrs t;
	const struct ifaddrmsg *ifa = dr_nl_body(nlh, RTM_NEWADDR, sizeof(*ifa), &t);
	const struct ndmsg *ndm = dr_nl_body(nlh, RTM_NEWNEIGH, sizeof(*ndm), &t);

	if (ifa)
		return (int)ifa->ifa_index == ifindex ? ADDRESS : -EPROTO;
	if (ndm)
		return ndm->ndm_ifindex == ifindex ? NEIGHBOUR : -EPROTO;
	if (!dr_nl_body(nlh, RTM_NEWROUTE, sizeof(struct rtmsg), &t))
		return -EPROTO;
	if (t.at[RTA_MULTIPATH])
		return multipath_has(t.at[RTA_MULTIPATH], ifindex) ? ROUTE_GATEWAY : -EPROTO;
	if ((int)dr_nl_u32(t.at[RTA_OIF]) != ifindex)
		return -EPROTO;
	return t.at[RTA_GATEWAY] || t.at[RTA_VIA] ? ROUTE_GATEWAY : ROUTE_DIRECT;
}

/* What a request may have of a message: its fixed part and these attributes. */
struct copy {
	uint16_t type, flags;
	size_t body;
	const uint16_t *types;
	size_t n;
};

static struct nlmsghdr *copy_message(
	void *buf, const struct nlmsghdr *old, const struct copy *c, void **body)
{
	struct nlmsghdr *nlh = dr_nl_msg(buf, c->type, NLM_F_CREATE | c->flags, c->body, body);
	struct dr_nl_attrs t;

	memcpy(*body, mnl_nlmsg_get_payload(old), c->body);
	dr_nl_attrs(old, c->body, &t);
	for (size_t i = 0; i < c->n; i++) {
		const struct nlattr *a = t.at[c->types[i]];

		if (a)
			mnl_attr_put(nlh, c->types[i], mnl_attr_get_payload_len(a),
				mnl_attr_get_payload(a));
	}
	return nlh;
}

static struct nlmsghdr *clean_addr(void *buf, const struct nlmsghdr *old)
{
	static const uint16_t types[] = { IFA_ADDRESS, IFA_LOCAL, IFA_LABEL, IFA_BROADCAST,
		IFA_CACHEINFO, IFA_RT_PRIORITY };
	static const struct copy c = { RTM_NEWADDR, NLM_F_EXCL, sizeof(struct ifaddrmsg), types,
		DR_ARRAY_LEN(types) };
	const uint32_t settable = IFA_F_NODAD | IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR |
				  IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN;
	struct dr_nl_attrs t;
	void *body;
	struct nlmsghdr *nlh = copy_message(buf, old, &c, &body);
	struct ifaddrmsg *ifa = body;

	dr_nl_attrs(old, c.body, &t);
	uint32_t flags = (t.at[IFA_FLAGS] ? dr_nl_u32(t.at[IFA_FLAGS]) : ifa->ifa_flags) & settable;
	if (ifa->ifa_family == AF_INET6)
		flags |= IFA_F_NODAD; /* the address was ours before and must work at once */
	ifa->ifa_flags = (uint8_t)flags;
	mnl_attr_put_u32(nlh, IFA_FLAGS, flags);
	return nlh;
}

static struct nlmsghdr *clean_route(void *buf, const struct nlmsghdr *old)
{
	static const uint16_t types[] = { RTA_DST, RTA_SRC, RTA_IIF, RTA_OIF, RTA_GATEWAY,
		RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH, RTA_FLOW, RTA_TABLE, RTA_VIA,
		RTA_PREF, RTA_ENCAP_TYPE, RTA_ENCAP };
	/* Beside routes of the same prefix; its equal is -EEXIST. */
	struct copy c = { RTM_NEWROUTE, NLM_F_APPEND, sizeof(struct rtmsg), types,
		DR_ARRAY_LEN(types) };
	bool ipv6 = ((const struct rtmsg *)mnl_nlmsg_get_payload(old))->rtm_family == AF_INET6;
	struct dr_nl_attrs t;
	struct rta_cacheinfo ci = { 0 };
	struct rtnexthop *nh;
	void *body;

	dr_nl_attrs(old, c.body, &t);
	const struct nlattr *a = t.at[RTA_CACHEINFO];
	if (ipv6 && a && mnl_attr_get_payload_len(a) >= sizeof(ci))
		memcpy(&ci, mnl_attr_get_payload(a), sizeof(ci));
	/* IPv6 keeps the nexthops of the other devices; adding the whole set fails on those. */
	if (ipv6 && t.at[RTA_MULTIPATH])
		c.flags = NLM_F_REPLACE;
	struct nlmsghdr *nlh = copy_message(buf, old, &c, &body);
	((struct rtmsg *)body)->rtm_flags &= RTNH_F_ONLINK;
	if (ci.rta_expires > 0) /* in 1/100 s (USER_HZ); the attribute is in seconds */
		mnl_attr_put_u32(nlh, RTA_EXPIRES, (uint32_t)ci.rta_expires / 100 + 1);
	dr_nl_attrs(nlh, c.body, &t);
	if (!t.at[RTA_MULTIPATH])
		return nlh;
	DR_NL_EACH_HOP(nh, t.at[RTA_MULTIPATH])
	nh->rtnh_flags &= RTNH_F_ONLINK; /* "dead" and "linkdown" are refused in a request */
	return nlh;
}

static struct nlmsghdr *clean_neigh(void *buf, const struct nlmsghdr *old)
{
	static const uint16_t types[] = { NDA_DST, NDA_LLADDR };
	static const struct copy c = { RTM_NEWNEIGH, NLM_F_REPLACE, sizeof(struct ndmsg), types,
		DR_ARRAY_LEN(types) };
	void *body;
	struct nlmsghdr *nlh = copy_message(buf, old, &c, &body);
	struct ndmsg *to = body;

	to->ndm_state = NUD_PERMANENT;
	to->ndm_flags &= NTF_PROXY | NTF_ROUTER;
	return nlh;
}

static int send_clean(struct dr_nl *nl, enum class c, const struct nlmsghdr *old)
{
	static struct nlmsghdr *(*const clean[N_CLASSES])(void *buf,
		const struct nlmsghdr *old) = { clean_addr, clean_route, clean_route, clean_neigh };
	char buf[DR_NL_BUF + 512];

	if (old->nlmsg_len > DR_NL_BUF)
		return -EMSGSIZE;
	int rc = dr_nl_request(nl, clean[c](buf, old), NULL, NULL);
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
		return dr_err_set(e, rc, "restore device %d: the saved bytes are invalid", ifindex);
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
