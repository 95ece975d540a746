/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

static struct dr_doctor_nic two[2];

static void fresh(void)
{
	two[0] = nic("eth1", 3, "10.1.0.1", 24, 9000);
	two[1] = nic("eth2", 4, "10.2.0.1", 24, 9000);
}

static void rails(void **state)
{
	(void)state;
	fresh();
	dr_check_rail_count(with(two, 2));
	expect(DR_SEVERITY_OK, "rails", NULL, "eth1, eth2");
	dr_check_rail_count(with(two, 1));
	expect(DR_SEVERITY_WARN, "rails", NULL, "unprotected");
}

static void link_state(void **state)
{
	struct dr_netdev devs[] = {
		{ .name = "lo", .loopback = true },
		{ .name = "ifb0", .kind = "ifb" },
		{ .name = "eth3", .up = true },
		{ .name = "eth5", .up = true, .running = true },
		{ .name = "eth6", .up = true, .master = 9 },
		/* With an address: somebody expects it to be used. */
		{ .name = "veth7",
			.up = true,
			.kind = "veth",
			.n_addrs = 1,
			.addrs = { { .global = true } } },
		{ .name = "docker0",
			.up = true,
			.kind = "bridge",
			.n_addrs = 1,
			.addrs = { { .global = true } } },
	};

	(void)state;
	fresh();
	dr_check_link(&doctor, &two[0]);
	expect(DR_SEVERITY_OK, "link", "eth1", "carrier");
	two[0].rail.running = false;
	dr_check_link(&doctor, &two[0]);
	expect(DR_SEVERITY_FAIL, "link", "eth1", "ip link set eth1 up");
	dr_check_unused(&doctor, devs, DR_ARRAY_LEN(devs));
	assert_int_equal(doctor.f.n, 2);
	expect(DR_SEVERITY_WARN, "link", "veth7", "has an address but no carrier: no rail uses it");
	dr_check_unused(&doctor, devs, DR_ARRAY_LEN(devs));
	expect(DR_SEVERITY_WARN, "link", "veth7", "check the cable or port; ip link set veth7 up");
}

static void speed(void **state)
{
	(void)state;
	fresh();
	dr_check_speed(with(two, 2));
	expect(DR_SEVERITY_NOTE, "speed", NULL, "virtual");
	two[0].rail.speed_mbps = two[1].rail.speed_mbps = 400000;
	dr_check_speed(with(two, 2));
	expect(DR_SEVERITY_OK, "speed", NULL, "400 Gb/s");
	two[1].rail.speed_mbps = 2500;
	dr_check_speed(with(two, 2));
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_WARN, "speed", "eth2", "2500 Mb/s");
	/* One that does not tell is no slow one. */
	two[1].rail.speed_mbps = -1;
	dr_check_speed(with(two, 2));
	expect(DR_SEVERITY_OK, "speed", NULL, "400 Gb/s");
}

static void mtu(void **state)
{
	(void)state;
	fresh();
	dr_check_mtu(with(two, 2));
	expect(DR_SEVERITY_OK, "mtu", NULL, "9000 on all rails");
	two[0].rail.mtu = 1500;
	dr_check_mtu(with(two, 2));
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_WARN, "mtu", "eth1", "ip link set eth1 mtu 9000");
}

static void arp_conf(const char *ignore, const char *announce, const char *filter)
{
	put("/proc/sys/net/ipv4/conf/all/arp_announce", "0\n");
	put("/proc/sys/net/ipv4/conf/eth1/arp_ignore", ignore);
	put("/proc/sys/net/ipv4/conf/eth2/arp_ignore", ignore);
	put("/proc/sys/net/ipv4/conf/eth1/arp_announce", announce);
	put("/proc/sys/net/ipv4/conf/eth2/arp_announce", announce);
	put("/proc/sys/net/ipv4/conf/all/arp_filter", filter);
}

static void arp(void **state)
{
	struct dr_doctor_nic same[2] = { nic("eth1", 3, "10.1.0.1", 24, 9000),
		nic("eth2", 4, "10.1.0.2", 24, 9000) };
	struct dr_doctor_nic apart[2] = { same[0], nic("eth2", 4, "10.2.0.1", 24, 9000) };
	struct dr_doctor_nic v6[2] = { nic("eth1", 3, "fd00::1", 64, 1500),
		nic("eth2", 4, "fd00::2", 64, 1500) };

	(void)state;
	arp_conf("0\n", "0\n", "0\n");
	dr_check_arp(with(same, 2));
	assert_int_equal(doctor.f.n, 2);
	expect(DR_SEVERITY_WARN, "arp", "eth1", "eth1/arp_ignore=1");
	dr_check_arp(with(apart, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
	dr_check_arp(with(v6, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
	arp_conf("1\n", "2\n", "0\n");
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
	arp_conf("1\n", "1\n", "0\n");
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_WARN, "arp", "eth2", "arp_announce=2");
	put("/proc/sys/net/ipv4/conf/all/arp_announce", "2\n");
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
	/* Only a NIC by which the answer leaves. */
	arp_conf("0\n", "0\n", "1\n");
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
	/* The mask of the longer prefix counts: 10.1.0.1/32 shares nothing. */
	arp_conf("0\n", "0\n", "0\n");
	same[0].rail.prefix = 32;
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rails),
		cmocka_unit_test(link_state),
		cmocka_unit_test(speed),
		cmocka_unit_test(mtu),
		cmocka_unit_test(arp),
	};

	return cmocka_run_group_tests_name("doctor nics", tests, tree_make, tree_remove);
}
