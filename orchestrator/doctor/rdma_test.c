/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/doctor_testkit.h"

#include "orchestrator/doctor/rdma.h"

/* What the probe answers, by the rail's number in its address 10.N.0.1. */
static struct {
	int rc;
	struct dr_kind_rdma dev;
} answers[4];

static struct dr_options opt;
static struct dr_doctor_nic two[2];

static int probe(const struct dr_options *o, const struct dr_netdev_rail *rail,
	struct dr_kind_rdma *out, struct dr_err *e)
{
	int i = rail->ifindex;

	assert_ptr_equal(o, &opt);
	if (answers[i].rc)
		return dr_err_set(
			e, answers[i].rc, "%s: not well; mend %s", rail->ifname, rail->ifname);
	*out = answers[i].dev;
	return 0;
}

static void both(int rc, bool v2, unsigned mtu, unsigned netdev_mtu)
{
	two[0] = nic("eth1", 0, "10.1.0.1", 24, netdev_mtu);
	two[1] = nic("eth2", 1, "10.2.0.1", 24, netdev_mtu);
	for (int i = 0; i < 2; i++) {
		answers[i].rc = rc;
		answers[i].dev = (struct dr_kind_rdma){
			.device = "mlx5_0", .port = 1, .roce = true, .v2 = v2, .mtu = mtu
		};
	}
}

static bool look(bool verbs, bool named)
{
	return dr_check_rdma(&opt, verbs, named, two, 2, probe, &found);
}

static void well(void **state)
{
	(void)state;
	both(0, true, 4096, 9000);
	assert_true(look(true, true));
	assert_int_equal(dr_findings_count(&found, DR_SEVERITY_OK), 2);
	expect(DR_SEVERITY_OK, "rdma", "eth2", "RoCE v2");
	answers[0].dev.roce = answers[1].dev.roce = false; /* InfiniBand has its own MTU */
	answers[0].dev.v2 = answers[1].dev.v2 = false;
	answers[0].dev.mtu = 2048;
	assert_true(look(true, true));
	assert_int_equal(found.n, 2);
	expect(DR_SEVERITY_OK, "rdma", "eth1", "MTU 2048");
}

static void gid_v1_only(void **state)
{
	(void)state;
	both(0, false, 4096, 9000);
	assert_true(look(true, true));
	assert_int_equal(found.n, 2);
	expect(DR_SEVERITY_WARN, "rdma-gid", "eth1", "RoCE v1");
}

static void mtu(void **state)
{
	static const struct {
		unsigned netdev, active;
		int severity; /* -1: no finding */
		const char *says;
	} cases[] = {
		{ 9000, 4096, -1, NULL },
		{ 9000, 1024, DR_SEVERITY_WARN, "4096" },
		{ 4192, 2048, DR_SEVERITY_WARN, "4096" },
		{ 4191, 2048, DR_SEVERITY_NOTE, "4096" },
		{ 1500, 1024, DR_SEVERITY_NOTE, "mtu 9000" },
		{ 1500, 512, DR_SEVERITY_WARN, "1024" },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		both(0, true, cases[i].active, cases[i].netdev);
		look(true, true);
		if (cases[i].severity < 0)
			expect_none("rdma-mtu");
		else
			expect((enum dr_severity)cases[i].severity, "rdma-mtu", "eth1",
				cases[i].says);
	}
}

/* Nothing there stops a run of verbs, and is said once; for tcp it is good to know. */
static void nothing_there(void **state)
{
	(void)state;
	both(-ENOENT, false, 0, 9000);
	assert_false(look(false, false));
	assert_int_equal(found.n, 1);
	expect(DR_SEVERITY_NOTE, "rdma", NULL, "apt-get install libibverbs1");
	assert_false(look(true, false));
	assert_int_equal(found.n, 1);
	expect(DR_SEVERITY_FAIL, "rdma", NULL, "mend eth1");
	both(-ENODEV, false, 0, 9000);
	assert_false(look(false, false));
	expect(DR_SEVERITY_NOTE, "rdma", NULL, "no RDMA device");
	assert_false(look(true, false));
	expect(DR_SEVERITY_FAIL, "rdma", NULL, "mend eth1");
	/* One rail has a device: the other is left out, unless it was named. */
	answers[1].rc = 0;
	assert_true(look(true, false));
	expect(DR_SEVERITY_NOTE, "rdma", "", "mend eth1");
	assert_true(look(true, true));
	expect(DR_SEVERITY_FAIL, "rdma", "", "mend eth1");
}

static void device_with_a_fault(void **state)
{
	(void)state;
	both(0, true, 4096, 9000);
	answers[1].rc = -ENETDOWN;
	assert_true(look(true, false));
	expect(DR_SEVERITY_FAIL, "rdma", "eth2", "mend eth2");
	look(false, false);
	expect(DR_SEVERITY_WARN, "rdma", "eth2", "not well");
	look(false, false);
	expect(DR_SEVERITY_OK, "rdma", "eth1", "active");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(well),
		cmocka_unit_test(gid_v1_only),
		cmocka_unit_test(mtu),
		cmocka_unit_test(nothing_there),
		cmocka_unit_test(device_with_a_fault),
	};

	return cmocka_run_group_tests_name("doctor rdma", tests, tree_make, tree_remove);
}
