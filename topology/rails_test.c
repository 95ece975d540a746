/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Which of a machine's devices become rails by themselves. */

enum { DEVS = 4 };

static void make(struct dr_netdev devs[DEVS], const int64_t mbps[DEVS])
{
	memset(devs, 0, DEVS * sizeof(*devs));
	for (unsigned i = 0; i < DEVS; i++) {
		char addr[32];

		snprintf(devs[i].name, sizeof(devs[i].name), "eth%u", i);
		snprintf(addr, sizeof(addr), "10.0.%u.1", i);
		devs[i].ifindex = (int)i + 2;
		devs[i].up = devs[i].running = true;
		devs[i].speed_mbps = mbps[i];
		devs[i].n_addrs = 1;
		devs[i].addrs[0].prefix = 24;
		devs[i].addrs[0].global = true;
		assert_int_equal(dr_netdev_addr_parse(addr, &devs[i].addrs[0].addr), 0);
	}
}

/* "eth1 eth2 " */
static void choose(
	const struct dr_netdev *devs, const char *list, const char *control, const char *want)
{
	struct dr_netdev_rail r[2 * DEVS];
	struct sockaddr_storage sa;
	char got[128] = "";
	size_t at = 0;
	struct dr_err e;
	struct dr_netdev_choice from = { .devs = devs, .n_devs = DEVS, .list = list };
	int n;

	if (control) {
		assert_int_equal(dr_netdev_addr_parse(control, &sa), 0);
		from.control = (const struct sockaddr *)&sa;
	}
	n = dr_netdev_choose(&from, r, DR_ARRAY_LEN(r), &e);
	n = n < 0 ? n : (int)dr_netdev_firsts(r, (unsigned)n);
	for (int i = 0; i < n; i++)
		at += (size_t)snprintf(got + at, sizeof(got) - at, "%s ", r[i].ifname);
	assert_string_equal(got, want);
}

static void a_slow_look_alike_is_left_out(void **state)
{
	static const int64_t one_slow[DEVS] = { 1000, 100000, 100000, 10000 };
	static const int64_t two_sorts[DEVS] = { 100000, 200000, 100000, 200000 };
	static const int64_t unknown[DEVS] = { -1, 100000, -1, 100000 };
	static const int64_t impossible[DEVS] = { 1000, 65535, INT32_MAX, UINT32_MAX };
	static const int64_t all_slow[DEVS] = { 1000, 1000, 1000, 1000 };
	struct dr_netdev devs[DEVS];

	(void)state;
	make(devs, one_slow);
	choose(devs, NULL, NULL, "eth1 eth2 eth3 ");
	choose(devs, "eth0,eth1", NULL, "eth0 eth1 ");
	devs[3].speed_mbps = 9999;
	choose(devs, NULL, NULL, "eth1 eth2 ");
	make(devs, two_sorts);
	choose(devs, "auto", NULL, "eth0 eth1 eth2 eth3 ");
	make(devs, unknown);
	choose(devs, NULL, NULL, "eth0 eth1 eth2 eth3 ");
	make(devs, impossible);
	choose(devs, NULL, NULL, "eth0 eth1 eth2 eth3 ");
	make(devs, all_slow);
	choose(devs, NULL, NULL, "eth0 eth1 eth2 eth3 ");
}

/* A device that is down counts for nothing. */
static void only_candidates_set_the_pace(void **state)
{
	static const int64_t one_fast[DEVS] = { 100000, 9000, 9000, 800 };
	struct dr_netdev devs[DEVS];

	(void)state;
	make(devs, one_fast);
	choose(devs, NULL, NULL, "eth0 ");
	devs[0].running = false;
	choose(devs, NULL, NULL, "eth1 eth2 ");
}

static void management_is(
	const struct dr_netdev *devs, const char *control, int default_ifindex, const char *want)
{
	struct dr_netdev_choice from = { .devs = devs, .n_devs = DEVS };
	struct sockaddr_storage sa;
	const struct dr_netdev *d;

	assert_int_equal(dr_netdev_addr_parse(control, &sa), 0);
	from.control = (const struct sockaddr *)&sa;
	from.default_ifindex = default_ifindex;
	d = dr_netdev_management(&from);
	assert_string_equal(d ? d->name : "none", want);
	from.reserve_control = true;
	d = dr_netdev_management(&from);
	assert_non_null(d);
	assert_int_equal(d->name[3], control[5]);
}

/* Wherever the control connection runs: eth0 to eth3 have the indexes 2 to 5. */
static void the_control_nic_is_a_rail_where_another_is_for_management(void **state)
{
	static const int64_t slow[DEVS] = { 1000, 100000, 100000, 100000 };
	static const int64_t equal[DEVS] = { 100000, 100000, 100000, 100000 };
	static const int64_t unknown[DEVS] = { -1, -1, -1, -1 };
	static const int64_t control_known[DEVS] = { -1, 10000, -1, -1 };
	struct dr_netdev devs[DEVS];

	(void)state;
	make(devs, slow);
	management_is(devs, "10.0.0.1", 2, "eth0");
	management_is(devs, "10.0.1.1", 0, "none");
	management_is(
		devs, "10.0.1.1", 4, "none"); /* the slow NIC is, whatever has the default route */
	choose(devs, NULL, "10.0.0.1", "eth1 eth2 eth3 ");
	choose(devs, NULL, "10.0.1.1", "eth1 eth2 eth3 ");
	make(devs, equal);
	management_is(devs, "10.0.0.1", 2, "eth0");
	management_is(devs, "10.0.1.1", 2, "eth0");
	management_is(devs, "10.0.1.1", 0, "none"); /* no default route, or ECMP */
	make(devs, unknown);
	management_is(devs, "10.0.0.1", 2, "eth0");
	management_is(devs, "10.0.1.1", 2, "eth0");
	management_is(devs, "10.0.1.1", 0, "eth1");
	choose(devs, NULL, "10.0.1.1", "eth0 eth2 eth3 ");
	make(devs, control_known);
	management_is(devs, "10.0.1.1", 0, "eth1"); /* nothing to compare it with */
	management_is(devs, "10.0.1.1", 9, "eth1"); /* the default route is on none of them */
}

/* eth0 has the default route. Its kind and those of the others are changed. */
static void without_a_control_nic_the_default_route_tells(void **state)
{
	static const int64_t equal[DEVS] = { 25000, 25000, 25000, 25000 };
	struct dr_netdev_choice from = { .n_devs = DEVS, .default_ifindex = 2 };
	struct dr_netdev devs[DEVS];
	struct sockaddr_storage sa;

	(void)state;
	make(devs, equal);
	from.devs = devs;
	assert_int_equal(dr_netdev_refused(&from, &devs[0]), DR_NETDEV_DEFAULT_ROUTE);
	/* Control runs over a NIC that is no rail. */
	assert_int_equal(dr_netdev_addr_parse("10.0.3.1", &sa), 0);
	from.control = (const struct sockaddr *)&sa;
	snprintf(devs[3].kind, sizeof(devs[3].kind), "wireguard");
	assert_int_equal(dr_netdev_refused(&from, &devs[3]), DR_NETDEV_VIRTUAL);
	assert_int_equal(dr_netdev_refused(&from, &devs[0]), DR_NETDEV_DEFAULT_ROUTE);
	/* The others are VLANs of one NIC: eth0 is needed. */
	snprintf(devs[2].kind, sizeof(devs[2].kind), "vlan");
	devs[2].link = devs[1].ifindex;
	assert_int_equal(dr_netdev_refused(&from, &devs[0]), DR_NETDEV_RAIL);
}

static void give(struct dr_netdev *d, const char *addr, bool global)
{
	struct dr_netdev_addr *a = &d->addrs[d->n_addrs++];

	assert_int_equal(dr_netdev_addr_parse(addr, &a->addr), 0);
	a->prefix = 24;
	a->global = global;
}

/* Docker's bridge, a tunnel, the ends of container links: never, even where nothing else is. */
static void what_leads_into_this_host_is_no_rail(void **state)
{
	static const int64_t unknown[DEVS] = { -1, -1, -1, -1 };
	struct dr_netdev devs[DEVS];

	(void)state;
	make(devs, unknown);
	snprintf(devs[0].kind, sizeof(devs[0].kind), "bridge");
	snprintf(devs[1].kind, sizeof(devs[1].kind), "tun");
	for (unsigned i = 2; i < DEVS; i++)
		snprintf(devs[i].kind, sizeof(devs[i].kind), "veth");
	devs[2].link = devs[3].ifindex;
	devs[3].link = devs[2].ifindex;
	choose(devs, NULL, NULL, "");
	choose(devs, "eth0,eth3", NULL, "eth0 eth3 ");
	devs[3].master = 99; /* of a bridge that leads on */
	choose(devs, NULL, NULL, "eth2 ");
	devs[2].link = devs[3].link = 0; /* the other ends are elsewhere */
	devs[3].master = 0;
	choose(devs, NULL, NULL, "eth2 eth3 ");
}

static void link_local_addresses_are_for_named_nics(void **state)
{
	static const int64_t unknown[DEVS] = { -1, -1, -1, -1 };
	struct dr_netdev devs[DEVS];

	(void)state;
	make(devs, unknown);
	devs[1].n_addrs = 0;
	give(&devs[1], "169.254.7.1", false);
	choose(devs, NULL, NULL, "eth0 eth2 eth3 ");
	choose(devs, "eth1,eth2", NULL, "eth1 eth2 ");
}

/* Those of the control connection's family first, and the NIC once. */
static void all_addresses_are_offered(void **state)
{
	static const char *const want[] = { "fd00::1", "10.0.0.1", "10.0.9.1", "10.0.1.1" };
	static const int64_t unknown[DEVS] = { -1, -1, -1, -1 };
	struct dr_netdev devs[DEVS];
	struct dr_netdev_rail r[8];
	struct sockaddr_storage sa;
	struct dr_netdev_choice from = {
		.devs = devs, .n_devs = 2, .control = (const struct sockaddr *)&sa
	};
	struct dr_err e;
	char text[64];

	(void)state;
	make(devs, unknown);
	give(&devs[0], "10.0.9.1", true);
	give(&devs[0], "fe80::1", false);
	give(&devs[0], "fd00::1", true);
	assert_int_equal(dr_netdev_addr_parse("fd99::1", &sa), 0);
	assert_int_equal(dr_netdev_choose(&from, r, DR_ARRAY_LEN(r), &e), 4);
	for (unsigned i = 0; i < 4; i++) {
		dr_netdev_addr_format((const struct sockaddr *)&r[i].addr, text, sizeof(text));
		assert_string_equal(text, want[i]);
		assert_int_equal(r[i].nic, i == 3);
	}
	assert_int_equal(dr_netdev_firsts(r, 4), 2);
}

/* The management NIC and slow ones come behind, for where nothing else pairs. */
static void spares_are_offered_last(void **state)
{
	static const int64_t mbps[DEVS] = { 1000, 100000, 2000, 100000 };
	struct dr_netdev devs[DEVS];
	struct dr_netdev_rail r[8];
	struct dr_netdev_choice from = { .devs = devs, .n_devs = DEVS };
	struct sockaddr_storage sa;
	struct dr_err e;

	(void)state;
	make(devs, mbps);
	assert_int_equal(dr_netdev_addr_parse("10.0.0.1", &sa), 0);
	from.control = (const struct sockaddr *)&sa;
	snprintf(devs[3].kind, sizeof(devs[3].kind), "dummy");
	assert_int_equal(dr_netdev_choose(&from, r, DR_ARRAY_LEN(r), &e), 4);
	assert_string_equal(r[0].ifname, "eth1");
	assert_string_equal(r[1].ifname, "eth0");
	assert_int_equal(r[1].rank, DR_NIC_MANAGEMENT);
	assert_string_equal(r[2].ifname, "eth2");
	assert_int_equal(r[2].rank, DR_NIC_SLOW);
	assert_int_equal(r[3].rank, DR_NIC_NONE);
	devs[1].running = devs[2].running = false;
	choose(devs, NULL, "10.0.0.1", "eth0 ");
	devs[0].running = false;
	choose(devs, NULL, "10.0.0.1", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_look_alike_is_left_out),
		cmocka_unit_test(only_candidates_set_the_pace),
		cmocka_unit_test(the_control_nic_is_a_rail_where_another_is_for_management),
		cmocka_unit_test(without_a_control_nic_the_default_route_tells),
		cmocka_unit_test(what_leads_into_this_host_is_no_rail),
		cmocka_unit_test(link_local_addresses_are_for_named_nics),
		cmocka_unit_test(all_addresses_are_offered),
		cmocka_unit_test(spares_are_offered_last),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
