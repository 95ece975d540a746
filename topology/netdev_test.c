/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "base/log.h"
#include "topology/nl.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "topology/netdev_testkit.h"

/* The test's own namespace: lo up, veth pair ta (10.9.0.1/24, fd09::1/64) and tb (10.9.1.1/24). */
static int why_not;
static int ta, tb;

static struct sockaddr_storage addr(const char *s)
{
	struct sockaddr_storage ss;

	assert_int_equal(dr_netdev_addr_parse(s, &ss), 0);
	return ss;
}

static void give(int ifindex, const char *s, unsigned prefix)
{
	struct sockaddr_storage ss = addr(s);

	assert_int_equal(dr_netdev_add_addr(ifindex, (struct sockaddr *)&ss, prefix, NULL), 0);
}

static int set_up(void **state)
{
	struct dr_netdev d;

	(void)state;
	if (unshare(CLONE_NEWNET) < 0) {
		why_not = errno;
		return 0;
	}
	assert_int_equal(dr_netdev_by_name("lo", &d, NULL), 0);
	assert_int_equal(dr_netdev_set_up(d.ifindex, true, NULL), 0);
	assert_int_equal(dr_netdev_create_veth("ta", "tb", -1, 9000, NULL), 0);
	assert_int_equal(dr_netdev_by_name("ta", &d, NULL), 0);
	ta = d.ifindex;
	assert_int_equal(dr_netdev_by_name("tb", &d, NULL), 0);
	tb = d.ifindex;
	assert_int_equal(dr_netdev_set_up(ta, true, NULL), 0);
	assert_int_equal(dr_netdev_set_up(tb, true, NULL), 0);
	give(ta, "10.9.0.1", 24);
	give(ta, "fd09::1", 64);
	give(tb, "10.9.1.1", 24);
	return 0;
}

static void need_root(void)
{
	if (!why_not)
		return;
	print_message("SKIP: needs a network namespace of its own (root): %s\n", strerror(why_not));
	skip();
}

static void lists_without_root(void **state)
{
	struct dr_netdev *list, d;
	struct dr_err e = { 0 };
	size_t n;

	(void)state;
	assert_int_equal(dr_netdev_list(&list, &n, &e), 0);
	assert_true(n >= 1);
	dr_netdev_list_free(list);
	assert_int_equal(dr_netdev_by_name("lo", &d, &e), 0);
	assert_true(d.loopback);
	assert_string_equal(d.kind, "lo");
	assert_int_equal(dr_netdev_by_name("nosuch0", &d, &e), -ENODEV);
	assert_non_null(strstr(e.text, "nosuch0"));
	assert_non_null(strstr(e.text, "lo"));
}

static void veth_is_described(void **state)
{
	struct dr_netdev d, peer;

	(void)state;
	need_root();
	assert_int_equal(dr_netdev_by_name("ta", &d, NULL), 0);
	assert_string_equal(d.kind, "veth");
	assert_true(d.up && d.running && !d.loopback);
	assert_int_equal(d.mtu, 9000);
	assert_int_equal(d.speed_mbps, -1);
	assert_int_equal(d.link, tb);
	assert_int_equal(d.master, 0);
	assert_true(d.n_addrs >= 2);
	assert_int_equal(d.addrs[0].addr.ss_family, AF_INET);
	assert_int_equal(d.addrs[0].prefix, 24);
	assert_true(d.addrs[0].global);
	set_mtu(tb, 1400);
	assert_int_equal(dr_netdev_by_name("tb", &peer, NULL), 0);
	assert_int_equal(peer.mtu, 1400);
	assert_int_equal(dr_netdev_set_up(ta, false, NULL), 0);
	assert_int_equal(dr_netdev_by_name("tb", &peer, NULL), 0);
	assert_true(peer.up && !peer.running);
	assert_int_equal(dr_netdev_set_up(ta, true, NULL), 0);
	give(ta, "fd09::1", 64); /* flushed */
}

static void found_by_address(void **state)
{
	struct sockaddr_storage a;
	struct dr_netdev d;
	struct dr_err e;

	(void)state;
	need_root();
	a = addr("10.9.0.1");
	assert_int_equal(dr_netdev_by_addr((struct sockaddr *)&a, &d, &e), 0);
	assert_string_equal(d.name, "ta");
	a = addr("::ffff:10.9.1.1");
	assert_int_equal(dr_netdev_by_addr((struct sockaddr *)&a, &d, &e), 0);
	assert_string_equal(d.name, "tb");
	a = addr("127.0.0.77");
	assert_int_equal(dr_netdev_by_addr((struct sockaddr *)&a, &d, &e), 0);
	assert_string_equal(d.name, "lo");
	a = addr("192.0.2.1");
	assert_int_equal(dr_netdev_by_addr((struct sockaddr *)&a, &d, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "192.0.2.1"));
	assert_int_equal(dr_netdev_toward((struct sockaddr *)&a, NULL, &d, &e), -ENETUNREACH);
	a = addr("10.9.1.9");
	assert_int_equal(dr_netdev_toward((struct sockaddr *)&a, NULL, &d, &e), 0);
	assert_string_equal(d.name, "tb");
	a = addr("fd09::9");
	assert_int_equal(dr_netdev_toward((struct sockaddr *)&a, NULL, &d, &e), 0);
	assert_string_equal(d.name, "ta");
}

static void counters_count(void **state)
{
	struct dr_netdev_counters before, after;
	struct sockaddr_storage to;
	int fd;

	(void)state;
	need_root();
	assert_int_equal(dr_netdev_counters(ta, &before, NULL), 0);
	to = addr("10.9.0.255");
	((struct sockaddr_in *)&to)->sin_port = htons(9);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &(int){ 1 }, sizeof(int)), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(
			sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(struct sockaddr_in)),
			1);
	close(fd);
	assert_int_equal(dr_netdev_counters(ta, &after, NULL), 0);
	assert_true(after.tx_packets >= before.tx_packets + 10);
	assert_true(after.tx_bytes >= before.tx_bytes + 10 * (14 + 20 + 8 + 1));
	assert_int_equal(dr_netdev_counters(9999, &after, NULL), -ENODEV);
}

static const struct {
	const char *list, *control;
	int rc;
	const char *first, *second, *says;
} rail_cases[] = {
	{ "ta,tb", NULL, 2, "ta@10.9.0.1", "tb@10.9.1.1", NULL },
	{ "tb,ta", NULL, 2, "tb@10.9.1.1", "ta@10.9.0.1", NULL },
	{ "ta", "fd09::1", 1, "ta@fd09::1", NULL, NULL },
	{ "fd09::1", NULL, 1, "ta@fd09::1", NULL, NULL },
	{ "127.0.0.2,127.0.0.3", NULL, 2, "lo@127.0.0.2", "lo@127.0.0.3", NULL },
	{ "lo@127.0.0.2", NULL, 1, "lo@127.0.0.2", NULL, NULL },
	{ "ta@10.9.0.1,tb", NULL, 2, "ta@10.9.0.1", "tb@10.9.1.1", NULL },
	{ "lo", NULL, 1, "lo@127.0.0.1", NULL, NULL },
	{ NULL, NULL, -ENODEV, NULL, NULL, "lo@127.0.0.2" }, /* both ends of the pair are here */
	{ "ta@10.9.1.1", NULL, -EADDRNOTAVAIL, NULL, NULL, "address of tb, not of ta" },
	{ "10.1.1.1", NULL, -EADDRNOTAVAIL, NULL, NULL, "10.1.1.1" },
	{ "eth77", NULL, -ENODEV, NULL, NULL, "eth77" },
	{ "eth77@10.9.0.1", NULL, -ENODEV, NULL, NULL, "eth77" },
	{ "ta@x", NULL, -EINVAL, NULL, NULL, "'x'" },
	{ "ta,,tb", NULL, -EINVAL, NULL, NULL, "empty" },
	{ "", NULL, -EINVAL, NULL, NULL, "empty" },
	{ "ta,10.9.0.1", NULL, -EINVAL, NULL, NULL, "twice" },
	{ "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5,127.0.0.6,127.0.0.7,127.0.0.8,"
	  "127.0.0.9,127.0.0.10,127.0.0.11,127.0.0.12,127.0.0.13,127.0.0.14,127.0.0.15,127.0.0.16,"
	  "127.0.0.17",
		NULL, -E2BIG, NULL, NULL, "more than 16" },
};

static void check_rail(const struct dr_netdev_rail *r, const char *want)
{
	char text[64], whole[96];

	dr_netdev_addr_format((const struct sockaddr *)&r->addr, text, sizeof(text));
	snprintf(whole, sizeof(whole), "%s@%s", r->ifname, text);
	assert_string_equal(whole, want);
	assert_true(r->ifindex > 0 && r->prefix > 0 && r->mtu > 0 && r->running);
}

static void rails_chosen(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 0; i < DR_ARRAY_LEN(rail_cases); i++) {
		struct sockaddr_storage control = { 0 };
		struct dr_netdev_rail r[20];
		struct dr_err e = { 0 };
		int rc;

		if (rail_cases[i].control)
			control = addr(rail_cases[i].control);
		rc = dr_netdev_rails(rail_cases[i].list,
			rail_cases[i].control ? (struct sockaddr *)&control : NULL, r, 20, &e);
		if (rc > 0)
			rc = (int)dr_netdev_firsts(r, (unsigned)rc);
		if (rc != rail_cases[i].rc)
			fail_msg("case %zu: %d, not %d: %s", i, rc, rail_cases[i].rc, e.text);
		if (rail_cases[i].first)
			check_rail(&r[0], rail_cases[i].first);
		if (rail_cases[i].second)
			check_rail(&r[1], rail_cases[i].second);
		if (rail_cases[i].says && !strstr(e.text, rail_cases[i].says))
			fail_msg("case %zu: no '%s' in '%s'", i, rail_cases[i].says, e.text);
	}
}

static void rails_when_little_is_there(void **state)
{
	struct dr_netdev_rail r[4];
	struct dr_err e;

	(void)state;
	need_root();
	assert_int_equal(
		dr_netdev_del_addr(tb, (struct sockaddr *)&(struct sockaddr_storage){ 0 }, 24, &e),
		-EAFNOSUPPORT);
	assert_int_equal(dr_netdev_set_up(tb, false, NULL), 0);
	assert_int_equal(dr_netdev_rails("tb", NULL, r, 4, &e), 1); /* down, but named */
	assert_false(r[0].running);
	assert_int_equal(dr_netdev_set_up(tb, true, NULL), 0);
}

static bool is_global(int ifindex, unsigned i)
{
	struct dr_netdev d;

	assert_int_equal(dr_netdev_by_index(ifindex, &d, NULL), 0);
	assert_true(d.n_addrs > i);
	return d.addrs[i].global;
}

/* An address of two devices, and a link-local one, tell no other host which NIC is meant. */
static void addresses_that_name_no_nic(void **state)
{
	struct sockaddr_storage shared, local;

	(void)state;
	need_root();
	shared = addr("10.9.1.1");
	local = addr("169.254.3.4");
	assert_true(is_global(ta, 0) && is_global(tb, 0));
	give(ta, "10.9.1.1", 32);
	give(ta, "169.254.3.4", 16);
	assert_true(is_global(ta, 0));
	assert_false(is_global(ta, 1) || is_global(ta, 2) || is_global(tb, 0));
	assert_int_equal(dr_netdev_del_addr(ta, (struct sockaddr *)&local, 16, NULL), 0);
	assert_int_equal(dr_netdev_del_addr(ta, (struct sockaddr *)&shared, 32, NULL), 0);
	assert_true(is_global(tb, 0));
}

static int add_route(const char *dst, unsigned bits, const char *gateway, int oif, unsigned table)
{
	struct sockaddr_storage d = addr(dst), g;
	size_t len = d.ss_family == AF_INET ? 4 : 16;
	const void *raw = len == 4 ? (void *)&((struct sockaddr_in *)&d)->sin_addr
				   : (void *)&((struct sockaddr_in6 *)&d)->sin6_addr;
	char buf[512];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(
		buf, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct rtmsg), &body);
	struct rtmsg *rtm = body;

	rtm->rtm_family = (uint8_t)d.ss_family;
	rtm->rtm_dst_len = (uint8_t)bits;
	rtm->rtm_protocol = RTPROT_STATIC;
	rtm->rtm_type = RTN_UNICAST;
	rtm->rtm_scope = gateway ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
	mnl_attr_put(nlh, RTA_DST, len, raw);
	mnl_attr_put_u32(nlh, RTA_TABLE, table);
	mnl_attr_put_u32(nlh, RTA_OIF, (uint32_t)oif);
	mnl_attr_put_u32(nlh, RTA_PRIORITY, 77);
	if (gateway) {
		g = addr(gateway);
		mnl_attr_put(nlh, RTA_GATEWAY, len,
			len == 4 ? (void *)&((struct sockaddr_in *)&g)->sin_addr
				 : (void *)&((struct sockaddr_in6 *)&g)->sin6_addr);
	}
	return dr_nl_once(nlh, NULL, NULL);
}

static void put_hop(struct nlmsghdr *nlh, int oif, const char *gateway)
{
	struct sockaddr_storage g = addr(gateway);
	struct rtnexthop *h = mnl_nlmsg_get_payload_tail(nlh);

	*h = (struct rtnexthop){ .rtnh_ifindex = oif };
	nlh->nlmsg_len += sizeof(*h);
	mnl_attr_put(nlh, RTA_GATEWAY, 4, &((struct sockaddr_in *)&g)->sin_addr);
	h->rtnh_len = (uint16_t)((char *)mnl_nlmsg_get_payload_tail(nlh) - (char *)h);
}

/* 10.33.0.0/16 by both devices at once. */
/* To "10.33.0.0", 16 bits; bits 0: the default route. */
static int add_two_hops(int tc, int td, unsigned bits)
{
	struct sockaddr_storage d = addr("10.33.0.0");
	struct nlattr *hops;
	char buf[512];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(
		buf, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct rtmsg), &body);

	*(struct rtmsg *)body = (struct rtmsg){ .rtm_family = AF_INET,
		.rtm_dst_len = (uint8_t)bits,
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_type = RTN_UNICAST };
	if (bits)
		mnl_attr_put(nlh, RTA_DST, 4, &((struct sockaddr_in *)&d)->sin_addr);
	mnl_attr_put_u32(nlh, RTA_PRIORITY, 50);
	hops = mnl_attr_nest_start(nlh, RTA_MULTIPATH);
	put_hop(nlh, tc, "10.6.0.9");
	put_hop(nlh, td, "10.7.0.9");
	mnl_attr_nest_end(nlh, hops);
	return dr_nl_once(nlh, NULL, NULL);
}

static bool leads_to(const struct dr_netdev_rail *r, const char *block)
{
	char text[64];

	for (unsigned i = 0; i < r->routes.n; i++) {
		dr_prefix_format(&r->routes.to[i], text, sizeof(text));
		if (strcmp(text, block) == 0)
			return true;
	}
	return false;
}

/* Which blocks of addresses are reached by which NIC, over all tables and next hops. */
static void rails_know_their_routes(void **state)
{
	struct dr_netdev_rail r[3];
	struct dr_err e;
	int tc, td;

	(void)state;
	need_root();
	assert_int_equal(dr_netdev_create_veth("tc", "td", -1, 0, NULL), 0);
	tc = (int)if_nametoindex("tc");
	td = (int)if_nametoindex("td");
	assert_int_equal(dr_netdev_set_up(tc, true, NULL), 0);
	assert_int_equal(dr_netdev_set_up(td, true, NULL), 0);
	give(tc, "10.6.0.1", 24);
	give(tc, "fd06::1", 64);
	give(td, "10.7.0.1", 24);
	assert_int_equal(dr_netdev_rails("tc,td", NULL, r, 3, &e), 3);
	assert_false(r[0].routes.known);
	assert_int_equal(add_route("10.31.0.0", 16, "10.6.0.9", tc, RT_TABLE_MAIN), 0);
	assert_int_equal(add_route("10.34.0.0", 15, "10.7.0.9", td, 77), 0);
	assert_int_equal(add_route("fd31::", 32, "fd06::9", tc, RT_TABLE_MAIN), 0);
	assert_int_equal(add_two_hops(tc, td, 16), 0);
	dr_netdev_rail_routes(r, 3);
	assert_true(r[0].routes.known && r[2].routes.known);
	assert_true(leads_to(&r[0], "10.31.0.0/16") && leads_to(&r[1], "fd31::/32"));
	assert_true(leads_to(&r[0], "10.6.0.0/24"));
	assert_true(leads_to(&r[2], "10.34.0.0/15") && !leads_to(&r[2], "10.31.0.0/16"));
	assert_true(leads_to(&r[0], "10.33.0.0/16") && leads_to(&r[2], "10.33.0.0/16"));
	/* The host's own addresses are no way anywhere, link-local ones lead nowhere else. */
	assert_false(leads_to(&r[0], "10.6.0.1/32") || leads_to(&r[1], "fe80::/64"));
	for (unsigned i = 0; i <= DR_ROUTES_MAX; i++) {
		char text[32];

		snprintf(text, sizeof(text), "10.40.%u.0", i);
		assert_int_equal(add_route(text, 24, "10.7.0.9", td, 78), 0);
	}
	dr_netdev_rail_routes(r, 3);
	assert_true(r[0].routes.known);
	assert_false(r[2].routes.known); /* more than fit */
	assert_int_equal(r[2].routes.n, 0);
	delete_link(tc);
}

/* Only one device that has the preferred default route alone tells something. */
static void the_default_route_is_on_one_device(void **state)
{
	int tc, td;

	(void)state;
	need_root();
	assert_int_equal(dr_netdev_default(AF_INET), 0);
	assert_int_equal(dr_netdev_create_veth("tc", "td", -1, 0, NULL), 0);
	tc = (int)if_nametoindex("tc");
	td = (int)if_nametoindex("td");
	assert_int_equal(dr_netdev_set_up(tc, true, NULL), 0);
	assert_int_equal(dr_netdev_set_up(td, true, NULL), 0);
	give(tc, "10.6.0.1", 24);
	give(tc, "fd06::1", 64);
	give(td, "10.7.0.1", 24);
	assert_int_equal(add_route("0.0.0.0", 0, "10.7.0.9", td, 77), 0); /* another table */
	assert_int_equal(dr_netdev_default(AF_INET), 0);
	assert_int_equal(add_route("0.0.0.0", 0, "10.6.0.9", tc, RT_TABLE_MAIN), 0);
	assert_int_equal(dr_netdev_default(AF_INET), tc);
	assert_int_equal(dr_netdev_default(AF_INET6), 0);
	assert_int_equal(add_two_hops(tc, td, 0), 0); /* of a lower metric */
	assert_int_equal(dr_netdev_default(AF_INET), 0);
	delete_link(tc);
}

static int add_neighbour(const char *dst, int oif)
{
	static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 9 };
	struct sockaddr_storage d = addr(dst);
	char buf[512];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(
		buf, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof(struct ndmsg), &body);
	struct ndmsg *ndm = body;

	ndm->ndm_family = AF_INET;
	ndm->ndm_ifindex = oif;
	ndm->ndm_state = NUD_PERMANENT;
	mnl_attr_put(nlh, NDA_DST, 4, &((struct sockaddr_in *)&d)->sin_addr);
	mnl_attr_put(nlh, NDA_LLADDR, sizeof(mac), mac);
	return dr_nl_once(nlh, NULL, NULL);
}

static void snapshot_brings_all_back(void **state)
{
	struct dr_netdev_snapshot before, down, after;
	struct dr_err e = { 0 };

	(void)state;
	need_root();
	/* The gateway 10.8.0.1 is reached by a static route: order matters. */
	assert_int_equal(add_route("10.8.0.0", 24, NULL, ta, RT_TABLE_MAIN), 0);
	assert_int_equal(add_route("10.7.0.0", 16, "10.8.0.1", ta, RT_TABLE_MAIN), 0);
	assert_int_equal(add_route("10.6.0.0", 16, "10.9.0.2", ta, 100), 0);
	assert_int_equal(add_route("fd06::", 64, "fd09::2", ta, RT_TABLE_MAIN), 0);
	assert_int_equal(
		add_route("10.5.0.0", 16, "10.9.1.2", tb, RT_TABLE_MAIN), 0); /* not ours */
	assert_int_equal(add_neighbour("10.9.0.2", ta), 0);
	assert_int_equal(dr_netdev_save(ta, &before, &e), 0);
	assert_int_equal(before.routes, 4);
	assert_int_equal(before.neighbours, 1);
	assert_true(before.addresses >= 2);

	assert_int_equal(dr_netdev_set_up(ta, false, &e), 0);
	assert_int_equal(dr_netdev_save(ta, &down, &e), 0);
	assert_int_equal(down.routes, 0);
	assert_true(down.addresses < before.addresses);
	assert_int_equal(dr_netdev_set_up(ta, true, &e), 0);
	for (int i = 0; i < 2; i++) { /* the second finds all of it there */
		if (dr_netdev_restore(ta, &before, &e) < 0)
			fail_msg("restore %d: %s", i, e.text);
	}
	assert_int_equal(dr_netdev_save(ta, &after, &e), 0);
	assert_int_equal(after.routes, before.routes);
	assert_int_equal(after.neighbours, before.neighbours);
	assert_int_equal(after.addresses, before.addresses);
	dr_netdev_snapshot_fini(&before);
	dr_netdev_snapshot_fini(&down);
	dr_netdev_snapshot_fini(&after);
}

/* Bytes from a file: refused or harmless, never a crash. */
static void snapshot_of_nonsense(void **state)
{
	struct dr_netdev_snapshot s;
	struct dr_err e;

	(void)state;
	need_root();
	assert_int_equal(dr_netdev_save(ta, &s, &e), 0);
	assert_true(s.len > 40);
	assert_int_equal(dr_netdev_restore(tb, &s, &e), -EPROTO); /* another device's */
	s.len -= 4;
	assert_int_equal(dr_netdev_restore(ta, &s, &e), -EPROTO);
	s.len += 4;
	for (size_t i = 0; i < s.len; i++) {
		uint8_t was = s.bytes[i];

		s.bytes[i] = (uint8_t)~was;
		(void)!dr_netdev_restore(ta, &s, &e);
		s.bytes[i] = was;
	}
	dr_netdev_snapshot_fini(&s);
}

static void changes_need_privilege(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	need_root();
	pid = fork();
	if (pid == 0) {
		struct dr_err e = { 0 };
		int rc = setuid(65534) < 0 ? 0 : dr_netdev_set_up(ta, false, &e);

		_exit(rc == -EPERM && strstr(e.text, "CAP_NET_ADMIN") &&
					dr_netdev_may_change(ta, &e) == -EPERM
				? 0
				: 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(dr_netdev_may_change(ta, NULL), 0);
	assert_int_equal(dr_netdev_may_change(9999, NULL), -ENODEV);
}

static void address_text(void **state)
{
	static const char *const texts[] = { "10.0.0.1", "::1", "fd77:1::2", "fe80::1%lo" };
	static const char *const wrong[] = { "", "10.0.0", "10.0.0.1%lo", "::1%nosuch0", "lo",
		"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc" };
	struct sockaddr_storage ss;
	char back[64];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(texts); i++) {
		ss = addr(texts[i]);
		dr_netdev_addr_format((struct sockaddr *)&ss, back, sizeof(back));
		assert_string_equal(back, texts[i]);
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(wrong); i++)
		assert_int_equal(dr_netdev_addr_parse(wrong[i], &ss), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_without_root),
		cmocka_unit_test(address_text),
		cmocka_unit_test(veth_is_described),
		cmocka_unit_test(found_by_address),
		cmocka_unit_test(counters_count),
		cmocka_unit_test(rails_chosen),
		cmocka_unit_test(rails_when_little_is_there),
		cmocka_unit_test(addresses_that_name_no_nic),
		cmocka_unit_test(snapshot_brings_all_back),
		cmocka_unit_test(snapshot_of_nonsense),
		cmocka_unit_test(rails_know_their_routes),
		cmocka_unit_test(the_default_route_is_on_one_device),
		cmocka_unit_test(changes_need_privilege),
	};

	dr_log_set_level(DR_LOG_ERROR);
	return cmocka_run_group_tests_name("netdev", tests, set_up, NULL);
}
