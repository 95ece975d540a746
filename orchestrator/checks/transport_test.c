/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

/* The probe's result, by the rail's number in its name. */
static int answers[4];
static const union dr_kind_params params;
static struct dr_doctor_nic two[2];

static int probe(const struct dr_rail_params *rail, const void *p, struct dr_kind_probe *out,
	struct dr_err *e)
{
	int rc = answers[rail->ifname[3] - '1'];

	assert_ptr_equal(p, &params);
	assert_int_equal(out->netdev_mtu, 9000);
	if (rc)
		return dr_err_set(e, rc, "%s: does not work; fix %s", rail->ifname, rail->ifname);
	out->v[out->n++] =
		(struct dr_kind_finding){ DR_KIND_OK, "fake", "port active", "", "", "" };
	out->v[out->n++] = (struct dr_kind_finding){ DR_KIND_WARN, "fake-mtu", "small MTU", "1024",
		"4096", "raise it" };
	return 0;
}

static const struct dr_transport_kind kind = {
	.name = "fake", .check_name = "fake", .probe = probe
};

static void both(int rc)
{
	two[0] = nic("eth1", 0, "10.1.0.1", 24, 9000);
	two[1] = nic("eth2", 1, "10.2.0.1", 24, 9000);
	answers[0] = answers[1] = rc;
}

static bool check(bool chosen, bool named)
{
	doctor.run.kind = chosen ? &kind : NULL;
	doctor.named = named;
	return dr_check_transport(with(two, 2), &kind, &params);
}

static void findings_of_the_probe(void **state)
{
	(void)state;
	both(0);
	assert_true(check(true, true));
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_OK), 2);
	assert_int_equal(doctor.f.n, 4);
	expect(DR_SEVERITY_OK, "fake", "eth2", "port active");
	assert_true(check(false, false));
	expect(DR_SEVERITY_WARN, "fake-mtu", "eth1", "4096");
	assert_true(check(false, false));
	expect(DR_SEVERITY_WARN, "fake-mtu", "eth2", "raise it");
}

static void a_kind_without_probe(void **state)
{
	static const struct dr_transport_kind plain = { .name = "plain" };

	(void)state;
	both(0);
	assert_false(dr_check_transport(with(two, 2), &plain, &params));
	assert_int_equal(doctor.f.n, 0);
}

/* Nothing there stops a run over the kind, and is reported once; for other runs it is a note. */
static void nothing_there(void **state)
{
	(void)state;
	both(-ENOENT);
	assert_false(check(false, false));
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_NOTE, "fake", NULL, "--transport fake will not run");
	assert_false(check(true, false));
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_FAIL, "fake", NULL, "fix eth1");
	both(-ENODEV);
	assert_false(check(false, false));
	expect(DR_SEVERITY_NOTE, "fake", NULL, "fix eth1");
	assert_false(check(true, false));
	expect(DR_SEVERITY_FAIL, "fake", NULL, "fix eth1");
	/* One rail has a device: the other is left out, unless it was named. */
	answers[1] = 0;
	assert_true(check(true, false));
	expect(DR_SEVERITY_NOTE, "fake", "", "fix eth1");
	assert_true(check(true, true));
	expect(DR_SEVERITY_FAIL, "fake", "", "fix eth1");
}

static void device_with_a_fault(void **state)
{
	(void)state;
	both(0);
	answers[1] = -ENETDOWN;
	assert_true(check(true, false));
	expect(DR_SEVERITY_FAIL, "fake", "eth2", "fix eth2");
	check(false, false);
	expect(DR_SEVERITY_WARN, "fake", "eth2", "does not work");
	check(false, false);
	expect(DR_SEVERITY_OK, "fake", "eth1", "active");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(findings_of_the_probe),
		cmocka_unit_test(a_kind_without_probe),
		cmocka_unit_test(nothing_there),
		cmocka_unit_test(device_with_a_fault),
	};

	return cmocka_run_group_tests_name("doctor transport", tests, tree_make, tree_remove);
}
