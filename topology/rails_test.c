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
	struct dr_netdev_rail r[DEVS];
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
	n = dr_netdev_choose(&from, r, DEVS, &e);
	for (int i = 0; i < n; i++)
		at += (size_t)snprintf(got + at, sizeof(got) - at, "%s ", r[i].ifname);
	assert_string_equal(got, want);
}

static void a_slow_look_alike_is_left_out(void **state)
{
	static const int64_t one_slow[DEVS] = { 1000, 100000, 100000, 25000 };
	static const int64_t two_sorts[DEVS] = { 100000, 200000, 100000, 200000 };
	static const int64_t unknown[DEVS] = { -1, 100000, -1, 100000 };
	static const int64_t all_slow[DEVS] = { 1000, 1000, 1000, 1000 };
	struct dr_netdev devs[DEVS];

	(void)state;
	make(devs, one_slow);
	choose(devs, NULL, NULL, "eth1 eth2 ");
	choose(devs, "eth0,eth1", NULL, "eth0 eth1 ");
	make(devs, two_sorts);
	choose(devs, "auto", NULL, "eth0 eth1 eth2 eth3 ");
	make(devs, unknown);
	choose(devs, NULL, NULL, "eth0 eth1 eth2 eth3 ");
	make(devs, all_slow);
	choose(devs, NULL, NULL, "eth0 eth1 eth2 eth3 ");
}

/* A device that is down counts for nothing. */
static void only_candidates_set_the_pace(void **state)
{
	static const int64_t one_fast[DEVS] = { 100000, 25000, 25000, 1000 };
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

/* A container in a container has a bridge alone. */
static void where_nothing_else_is_a_bridge_or_tunnel_is_a_rail(void **state)
{
	static const int64_t unknown[DEVS] = { -1, -1, -1, -1 };
	struct dr_netdev devs[DEVS];

	(void)state;
	make(devs, unknown);
	devs[0].running = devs[1].running = false;
	snprintf(devs[2].kind, sizeof(devs[2].kind), "bridge");
	snprintf(devs[3].kind, sizeof(devs[3].kind), "tun");
	devs[3].up = false;
	choose(devs, NULL, "10.0.2.1", "eth2 ");
	devs[1].running = true;
	choose(devs, NULL, "10.0.2.1", "eth1 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_look_alike_is_left_out),
		cmocka_unit_test(only_candidates_set_the_pace),
		cmocka_unit_test(the_control_nic_is_a_rail_where_another_is_for_management),
		cmocka_unit_test(without_a_control_nic_the_default_route_tells),
		cmocka_unit_test(where_nothing_else_is_a_bridge_or_tunnel_is_a_rail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
