/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

static struct dr_doctor_nic same[2], apart[2];

static int set_up(void **state)
{
	same[0] = nic("eth1", 3, "10.1.0.1", 24, 9000);
	same[1] = nic("eth2", 4, "10.1.0.2", 24, 9000);
	apart[0] = same[0];
	apart[1] = nic("eth2", 4, "10.2.0.1", 24, 9000);
	return tree_make(state);
}

/* Kernels that send all by eth1; by the source's own NIC; nowhere. */
static int by_eth1(const struct sockaddr *dst, const struct sockaddr *src, struct dr_netdev *out,
	struct dr_err *e)
{
	(void)dst;
	(void)src;
	(void)e;
	*out = (struct dr_netdev){ .name = "eth1", .ifindex = 3 };
	return 0;
}

static int by_own(const struct sockaddr *dst, const struct sockaddr *src, struct dr_netdev *out,
	struct dr_err *e)
{
	bool first = dr_netdev_addr_equal(src, (struct sockaddr *)&same[0].rail.addr);

	(void)dst;
	(void)e;
	*out = (struct dr_netdev){ .ifindex = first ? 3 : 4 };
	return 0;
}

static int nowhere(const struct sockaddr *dst, const struct sockaddr *src, struct dr_netdev *out,
	struct dr_err *e)
{
	(void)dst;
	(void)src;
	(void)out;
	return dr_err_set(e, -ENETUNREACH, "no");
}

static void filter(const char *all, const char *own)
{
	put("/proc/sys/net/ipv4/conf/all/rp_filter", all);
	put("/proc/sys/net/ipv4/conf/eth1/rp_filter", own);
	put("/proc/sys/net/ipv4/conf/eth2/rp_filter", own);
}

static void strict_filter(void **state)
{
	static const struct {
		const char *all, *own;
		bool drops;
	} cases[] = { { "0\n", "0\n", false }, { "1\n", "0\n", true }, { "0\n", "1\n", true },
		{ "2\n", "1\n", false }, { "1\n", "2\n", false }, { "1\n", "1\n", true } };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		filter(cases[i].all, cases[i].own);
		doctor.toward = by_eth1;
		dr_check_routes(with(same, 2), NULL);
		if (cases[i].drops)
			expect(DR_SEVERITY_FAIL, "rp-filter", "eth2", "eth2/rp_filter=2");
		else
			expect_none("rp-filter");
	}
	doctor.toward = by_own;
	dr_check_routes(with(same, 2), NULL);
	expect_none("rp-filter");
}

static void routes(void **state)
{
	struct sockaddr_storage peers[2] = { same[0].rail.addr, same[1].rail.addr };

	(void)state;
	filter("0\n", "0\n");
	doctor.toward = by_eth1;
	dr_check_routes(with(same, 2), NULL);
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_WARN, "route", "eth2",
		"ip route add 10.1.0.0/24 dev eth2 table 1004; ip rule add from 10.1.0.2 table 1004");
	doctor.toward = by_own;
	dr_check_routes(with(same, 2), NULL);
	expect(DR_SEVERITY_OK, "route", NULL, "own NIC");
	doctor.toward = nowhere;
	dr_check_routes(with(apart, 2), peers);
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_FAIL), 2);
	expect(DR_SEVERITY_FAIL, "route", "eth1", "no route");
	peers[0].ss_family = peers[1].ss_family = AF_UNSPEC; /* no partners */
	doctor.toward = nowhere;
	dr_check_routes(with(apart, 2), peers);
	assert_int_equal(doctor.f.n, 0);
	/* A rail that is down is another finding. */
	same[1].rail.running = false;
	doctor.toward = by_eth1;
	dr_check_routes(with(same, 2), NULL);
	expect(DR_SEVERITY_OK, "route", NULL, "own NIC");
	same[1].rail.running = true;
}

static void neighbours(void **state)
{
	static const struct {
		const char *address;
		unsigned prefix;
		const char *want; /* NULL: none */
	} cases[] = { { "10.0.0.1", 24, "10.0.0.2" }, { "10.0.0.7", 24, "10.0.0.1" },
		{ "10.0.0.200", 24, "10.0.0.193" }, { "10.0.0.0", 31, "10.0.0.1" },
		{ "10.0.0.1", 31, "10.0.0.0" }, { "10.0.0.5", 30, "10.0.0.6" },
		{ "10.0.0.1", 32, NULL }, { "fd00::1", 64, "fd00::2" }, { "fd00::5", 128, NULL } };
	struct sockaddr_storage got;
	char text[64];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		struct dr_doctor_nic n = nic("x", 1, cases[i].address, cases[i].prefix, 1500);
		bool there = dr_doctor_neighbour(with(&n, 1), 0, &got);

		assert_int_equal(there, cases[i].want != NULL);
		if (!there)
			continue;
		dr_netdev_addr_format((struct sockaddr *)&got, text, sizeof(text));
		assert_string_equal(text, cases[i].want);
	}
	/* Not an address of another rail here. */
	assert_true(dr_doctor_neighbour(with(same, 2), 0, &got));
	dr_netdev_addr_format((struct sockaddr *)&got, text, sizeof(text));
	assert_string_equal(text, "10.1.0.3");
}

static void arp_conf(const char *ignore, const char *announce)
{
	put("/proc/sys/net/ipv4/conf/all/arp_ignore", "0\n");
	put("/proc/sys/net/ipv4/conf/all/arp_announce", "0\n");
	for (int i = 1; i <= 2; i++) {
		char path[96];

		snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/eth%d/arp_ignore", i);
		put(path, ignore);
		snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/eth%d/arp_announce", i);
		put(path, announce);
	}
}

static void arp(void **state)
{
	struct dr_doctor_nic v6[2] = { nic("eth1", 3, "fd00::1", 64, 1500),
		nic("eth2", 4, "fd00::2", 64, 1500) };

	(void)state;
	arp_conf("0\n", "0\n");
	dr_check_arp(with(same, 2));
	assert_int_equal(doctor.f.n, 2);
	expect(DR_SEVERITY_FAIL, "arp", "eth1", "eth1/arp_ignore=1");
	dr_check_arp(with(apart, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "no two rails");
	dr_check_arp(with(v6, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "no two rails");
	arp_conf("1\n", "2\n");
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
	arp_conf("1\n", "1\n");
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_FAIL, "arp", "eth2", "arp_announce=1");
	put("/proc/sys/net/ipv4/conf/all/arp_announce", "2\n");
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "own address only");
	/* The mask of the longer prefix counts: 10.1.0.1/32 shares nothing. */
	arp_conf("0\n", "0\n");
	same[0].rail.prefix = 32;
	dr_check_arp(with(same, 2));
	expect(DR_SEVERITY_OK, "arp", NULL, "no two rails");
	same[0].rail.prefix = 24;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strict_filter),
		cmocka_unit_test(routes),
		cmocka_unit_test(neighbours),
		cmocka_unit_test(arp),
	};

	return cmocka_run_group_tests_name("doctor routes", tests, set_up, tree_remove);
}
