/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "base/log.h"
#include "base/mem.h"
#include "topology/nl.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>

static int on_route(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_nl_attrs t;

	if (dr_nl_body(nlh, RTM_NEWROUTE, sizeof(struct rtmsg), &t) && t.at[RTA_OIF])
		*(int *)arg = (int)dr_nl_u32(t.at[RTA_OIF]);
	return MNL_CB_OK;
}

int dr_netdev_toward(const struct sockaddr *dst, const struct sockaddr *src, struct dr_netdev *out,
	struct dr_err *e)
{
	char buf[256], text[64];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(buf, RTM_GETROUTE, 0, sizeof(struct rtmsg), &body);
	struct rtmsg *rtm = body;
	struct dr_prefix to, from;
	int oif = 0, rc = dr_prefix_of(dst, 0, &to);

	if (rc == 0) {
		rtm->rtm_family = to.family;
		rtm->rtm_dst_len = (uint8_t)(8 * dr_prefix_len(&to));
		mnl_attr_put(nlh, RTA_DST, dr_prefix_len(&to), to.addr);
		if (src && dr_prefix_of(src, 0, &from) == 0 && from.family == to.family) {
			rtm->rtm_src_len = to.family == AF_INET6 ? 128 : 0;
			mnl_attr_put(nlh, RTA_SRC, dr_prefix_len(&from), from.addr);
		}
		if (to.family == AF_INET6 && ((const struct sockaddr_in6 *)dst)->sin6_scope_id)
			mnl_attr_put_u32(
				nlh, RTA_OIF, ((const struct sockaddr_in6 *)dst)->sin6_scope_id);
		rc = dr_nl_once(nlh, on_route, &oif);
	}
	if (rc == 0 && oif == 0)
		rc = -ENETUNREACH;
	if (rc < 0) {
		dr_netdev_addr_format(dst, text, sizeof(text));
		return dr_nl_err(e, rc, "find the device toward %s", text);
	}
	return dr_netdev_by_index(oif, out, e);
}

/* ---- the default route ---- */

struct default_route {
	bool found;
	uint32_t metric;
	int ifindex; /* 0: several devices */
};

static void default_restart(void *arg)
{
	memset(arg, 0, sizeof(struct default_route));
}

static void add_default(struct default_route *d, uint32_t metric, int ifindex)
{
	if (d->found && metric > d->metric)
		return;
	if (d->found && metric == d->metric && ifindex != d->ifindex)
		ifindex = 0;
	*d = (struct default_route){ true, metric, ifindex };
}

static int on_default(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_nl_attrs t;
	const struct rtmsg *rtm = dr_nl_body(nlh, RTM_NEWROUTE, sizeof(*rtm), &t);
	const struct rtnexthop *h;

	if (!rtm || rtm->rtm_type != RTN_UNICAST || rtm->rtm_dst_len > 0 ||
		rtm->rtm_table != RT_TABLE_MAIN || (rtm->rtm_flags & RTM_F_CLONED))
		return MNL_CB_OK;
	uint32_t metric = dr_nl_u32(t.at[RTA_PRIORITY]);
	if (t.at[RTA_MULTIPATH]) {
		DR_NL_EACH_HOP(h, t.at[RTA_MULTIPATH])
		{
			add_default(arg, metric, h->rtnh_ifindex);
		}
	} else {
		add_default(arg, metric, (int)dr_nl_u32(t.at[RTA_OIF]));
	}
	return MNL_CB_OK;
}

int dr_netdev_default(int family)
{
	struct default_route d = { 0 };
	const struct dr_nl_dump dump = { .type = RTM_GETROUTE,
		.family = (uint8_t)family,
		.body = sizeof(struct rtmsg),
		.cb = on_default,
		.restart = default_restart,
		.arg = &d };

	return dr_nl_dump(&dump) == 0 ? d.ifindex : 0;
}

/* ---- routes ---- */

struct route_dump {
	struct dr_netdev_rail *rails;
	unsigned n;
};

static void routes_restart(void *arg)
{
	struct route_dump *d = arg;

	for (unsigned i = 0; i < d->n; i++)
		d->rails[i].routes = (struct dr_routes){ .known = true };
}

static void add_route(struct route_dump *d, int oif, const struct dr_prefix *to)
{
	for (unsigned i = 0; i < d->n; i++) {
		struct dr_routes *r = &d->rails[i].routes;

		if (d->rails[i].ifindex != oif || d->rails[i].addr.ss_family != to->family)
			continue;
		if (r->n == DR_ROUTES_MAX)
			r->known = false;
		else
			r->to[r->n++] = *to;
	}
}

/* One route may leave by several devices at once. */
static void add_hops(struct route_dump *d, const struct nlattr *a, const struct dr_prefix *to)
{
	const struct rtnexthop *h;

	DR_NL_EACH_HOP(h, a)
	{
		add_route(d, h->rtnh_ifindex, to);
	}
}

static bool link_local(const struct dr_prefix *p)
{
	return p->family == AF_INET6 && p->addr[0] == 0xfe && (p->addr[1] & 0xc0) == 0x80;
}

static int on_any_route(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_nl_attrs t;
	const struct rtmsg *rtm = dr_nl_body(nlh, RTM_NEWROUTE, sizeof(*rtm), &t);
	struct dr_prefix to = { 0 };

	if (!rtm || rtm->rtm_type != RTN_UNICAST || (rtm->rtm_flags & RTM_F_CLONED) ||
		(rtm->rtm_family != AF_INET && rtm->rtm_family != AF_INET6))
		return MNL_CB_OK;
	(void)dr_nl_addr(t.at[RTA_DST], rtm->rtm_family, &to); /* none: the default route */
	to.bits = rtm->rtm_dst_len;
	if (to.bits > 8 * dr_prefix_len(&to) || link_local(&to))
		return MNL_CB_OK;
	if (t.at[RTA_OIF])
		add_route(arg, (int)dr_nl_u32(t.at[RTA_OIF]), &to);
	if (t.at[RTA_MULTIPATH])
		add_hops(arg, t.at[RTA_MULTIPATH], &to);
	return MNL_CB_OK;
}

void dr_netdev_rail_routes(struct dr_netdev_rail *rails, unsigned n)
{
	struct route_dump d = { rails, n };
	const struct dr_nl_dump dump = { .type = RTM_GETROUTE,
		.body = sizeof(struct rtmsg),
		.cb = on_any_route,
		.restart = routes_restart,
		.arg = &d };
	int rc = dr_nl_dump(&dump);

	for (unsigned i = 0; i < n; i++) {
		rails[i].routes.known &= rc == 0;
		if (!rails[i].routes.known) {
			rails[i].routes.n = 0;
			dr_info("rails", "routes of %s are ignored: %s", rails[i].ifname,
				rc < 0 ? strerror(-rc) : "too many");
		}
	}
}
