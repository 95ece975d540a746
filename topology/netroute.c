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
	const struct nlattr *a;
	int *oif = arg;

	if (nlh->nlmsg_type != RTM_NEWROUTE)
		return MNL_CB_OK;
	mnl_attr_for_each(a, nlh, sizeof(struct rtmsg))
	{
		if (mnl_attr_get_type(a) == RTA_OIF)
			*oif = (int)dr_nl_u32(a);
	}
	return MNL_CB_OK;
}

/* The bytes of an address; an IPv4 one that a dual-stack socket shows as ::ffff:a.b.c.d is IPv4. */
static size_t raw_addr(const struct sockaddr *sa, uint8_t *family, const void **bytes)
{
	const struct in6_addr *a6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;

	*family = AF_INET;
	if (sa->sa_family == AF_INET) {
		*bytes = &((const struct sockaddr_in *)sa)->sin_addr;
		return 4;
	}
	if (IN6_IS_ADDR_V4MAPPED(a6)) {
		*bytes = a6->s6_addr + 12;
		return 4;
	}
	*family = AF_INET6;
	*bytes = a6;
	return 16;
}

static int find_ifindex(int ifindex, struct dr_netdev *out, struct dr_err *e)
{
	struct dr_netdev *devs;
	size_t n;
	int rc = dr_netdev_list(&devs, &n, e);

	if (rc < 0)
		return rc;
	rc = -ENODEV;
	for (size_t i = 0; i < n; i++) {
		if (devs[i].ifindex == ifindex) {
			*out = devs[i];
			rc = 0;
		}
	}
	dr_netdev_list_free(devs);
	return rc < 0 ? dr_err_set(e, rc, "device %d is gone", ifindex) : 0;
}

int dr_netdev_toward(const struct sockaddr *dst, const struct sockaddr *src, struct dr_netdev *out,
	struct dr_err *e)
{
	char buf[256], text[64];
	const void *bytes;
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(buf, RTM_GETROUTE, 0, sizeof(struct rtmsg), &body);
	struct rtmsg *rtm = body;
	uint8_t family, src_family;
	size_t len = raw_addr(dst, &family, &bytes);
	int oif = 0, rc;

	rtm->rtm_family = family;
	rtm->rtm_dst_len = (uint8_t)(8 * len);
	mnl_attr_put(nlh, RTA_DST, len, bytes);
	if (src && (len = raw_addr(src, &src_family, &bytes)) > 0 && src_family == family) {
		rtm->rtm_src_len = family == AF_INET6 ? 128 : 0;
		mnl_attr_put(nlh, RTA_SRC, len, bytes);
	}
	if (family == AF_INET6 && ((const struct sockaddr_in6 *)dst)->sin6_scope_id)
		mnl_attr_put_u32(nlh, RTA_OIF, ((const struct sockaddr_in6 *)dst)->sin6_scope_id);
	rc = dr_nl_once(nlh, on_route, &oif);
	if (rc == 0 && oif == 0)
		rc = -ENETUNREACH;
	if (rc < 0) {
		dr_netdev_addr_format(dst, text, sizeof(text));
		return dr_nl_err(e, rc, "find the device toward %s", text);
	}
	return find_ifindex(oif, out, e);
}

/* ---- where routes lead ---- */

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

		if (d->rails[i].ifindex != oif)
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
	const struct rtnexthop *h = mnl_attr_get_payload(a);
	int left = mnl_attr_get_payload_len(a);

	for (; left >= (int)sizeof(*h) && RTNH_OK(h, left);
		left -= RTNH_ALIGN(h->rtnh_len), h = RTNH_NEXT(h))
		add_route(d, h->rtnh_ifindex, to);
}

static bool link_local(const struct dr_prefix *p)
{
	return p->family == AF_INET6 && p->addr[0] == 0xfe && (p->addr[1] & 0xc0) == 0x80;
}

static int on_any_route(const struct nlmsghdr *nlh, void *arg)
{
	const struct rtmsg *rtm = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *a, *hops = NULL;
	struct dr_prefix to = { 0 };
	struct route_dump *d = arg;
	size_t len;
	int oif = 0;

	if (nlh->nlmsg_type != RTM_NEWROUTE || mnl_nlmsg_get_payload_len(nlh) < sizeof(*rtm) ||
		rtm->rtm_type != RTN_UNICAST || (rtm->rtm_flags & RTM_F_CLONED) ||
		(rtm->rtm_family != AF_INET && rtm->rtm_family != AF_INET6))
		return MNL_CB_OK;
	len = rtm->rtm_family == AF_INET ? 4 : 16;
	if (rtm->rtm_dst_len > 8 * len)
		return MNL_CB_OK;
	to.family = rtm->rtm_family;
	to.bits = rtm->rtm_dst_len;
	mnl_attr_for_each(a, nlh, sizeof(*rtm))
	{
		int type = mnl_attr_get_type(a);

		if (type == RTA_DST && mnl_attr_get_payload_len(a) == len)
			memcpy(to.addr, mnl_attr_get_payload(a), len);
		else if (type == RTA_OIF)
			oif = (int)dr_nl_u32(a);
		else if (type == RTA_MULTIPATH)
			hops = a;
	}
	if (link_local(&to))
		return MNL_CB_OK;
	if (oif)
		add_route(d, oif, &to);
	if (hops)
		add_hops(d, hops, &to);
	return MNL_CB_OK;
}

void dr_netdev_rail_routes(struct dr_netdev_rail *rails, unsigned n)
{
	struct route_dump d = { rails, n };
	struct dr_nl nl;
	char buf[256];
	void *body;
	int rc = dr_nl_open(&nl, NETLINK_ROUTE, 0, NULL);

	if (rc == 0) {
		struct nlmsghdr *nlh = dr_nl_msg(buf, RTM_GETROUTE, 0, sizeof(struct rtmsg), &body);

		rc = dr_nl_dump(&nl, nlh, on_any_route, routes_restart, &d);
		dr_nl_close(&nl);
	}
	for (unsigned i = 0; i < n; i++) {
		rails[i].routes.known &= rc == 0;
		if (!rails[i].routes.known) {
			rails[i].routes.n = 0;
			dr_info("rails", "routes by %s are not looked at: %s", rails[i].ifname,
				rc < 0 ? strerror(-rc) : "too many");
		}
	}
}
