/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

#include "orchestrator/checks/peer.h"

#include <errno.h>

static struct dr_doctor_path path(enum dr_mtu_state to_server, enum dr_mtu_state to_client)
{
	return (struct dr_doctor_path){ .nic = "eth1",
		.peer_nic = "ens1",
		.nic_mtu = 9000,
		.way = { [DR_PLAN_SERVER] = { to_server, 1500, 9000 },
			[DR_PLAN_CLIENT] = { to_client, 1500, 9000 } },
		.hole = { [DR_PLAN_SERVER] = to_server == DR_MTU_HOLE,
			[DR_PLAN_CLIENT] = to_client == DR_MTU_HOLE } };
}

/* Row i has this severity and this word; it is about eth1. */
static void row_of(size_t i, const char *check, enum dr_severity severity, const char *says)
{
	const struct dr_finding *f = &doctor.f.v[i];

	assert_true(i < doctor.f.n);
	assert_int_equal(f->severity, severity);
	assert_string_equal(f->check, check);
	assert_string_equal(f->where, "eth1");
	if (!strstr(f->text, says) && !strstr(f->remedy, says))
		fail_msg("%s; %s", f->text, f->remedy);
}

static void row(size_t i, enum dr_severity severity, const char *says)
{
	row_of(i, "path-mtu", severity, says);
}

static void each_direction_is_a_finding(void **state)
{
	struct dr_doctor_path p = path(DR_MTU_HOLE, DR_MTU_REFUSED);

	(void)state;
	forget();
	dr_check_path_mtu(&doctor, &p);
	row(0, DR_SEVERITY_FAIL, "above 1500 bytes to the server's ens1 are lost without an error");
	row(1, DR_SEVERITY_WARN, "from the server's ens1 reports a smaller MTU");
	p = path(DR_MTU_PASSES, DR_MTU_UNKNOWN);
	dr_check_path_mtu(&doctor, &p);
	row(2, DR_SEVERITY_OK, "1500 bytes to the server's ens1 arrive");
	row(3, DR_SEVERITY_NOTE, "from the server's ens1: too few answers");
	assert_int_equal(doctor.f.n, 4);
	forget();
}

static void without_an_answer(void **state)
{
	struct dr_doctor_path p = path(DR_MTU_UNKNOWN, DR_MTU_UNKNOWN);

	(void)state;
	forget();
	snprintf(p.why, sizeof(p.why), "no answer from 10.1.0.2; check the firewalls");
	p.needed = true;
	dr_check_path_mtu(&doctor, &p);
	row_of(0, "peer-address", DR_SEVERITY_FAIL, "no answer from 10.1.0.2");
	row_of(0, "peer-address", DR_SEVERITY_FAIL, "check the firewalls");
	p.needed = false; /* the transport does without sockets */
	dr_check_path_mtu(&doctor, &p);
	row_of(1, "peer-address", DR_SEVERITY_NOTE, "no answer from 10.1.0.2");
	assert_int_equal(doctor.f.n, 2);
	forget();
}

static void the_fix_names_both_nics_or_the_kinds_option(void **state)
{
	struct dr_doctor_path p = path(DR_MTU_HOLE, DR_MTU_PASSES);

	(void)state;
	forget();
	dr_check_path_mtu(&doctor, &p);
	row(0, DR_SEVERITY_FAIL, "ip link set eth1 mtu 1500 (at the server: ens1)");
	assert_string_equal(doctor.f.v[0].found, "1500");
	assert_string_equal(doctor.f.v[0].needed, "9000");
	snprintf(p.option, sizeof(p.option), "--mtu 1024");
	dr_check_path_mtu(&doctor, &p);
	row(2, DR_SEVERITY_FAIL, "in each run: --mtu 1024");
	forget();
}

/* RDMA packets have the size of the queue pair's path MTU; nobody adapts it. */
static void verbs_tests_the_size_of_its_packets(void **state)
{
	const struct dr_transport_kind *k = dr_transport_kind("verbs");
	union dr_kind_params params;
	char option[32];

	(void)state;
	if (!k)
		skip();
	memset(&params, 0, sizeof(params));
	assert_int_equal(k->packet_bytes(&params, 9000, false), 4096 + 64);
	assert_int_equal(k->packet_bytes(&params, 9000, true), 4096 + 84);
	assert_int_equal(k->packet_bytes(&params, 1500, false), 1024 + 64);
	assert_int_equal(k->packet_bytes(&params, 100, false), 100);
	assert_true(k->fit_packets(1500, false, option, sizeof(option)));
	assert_string_equal(option, "--mtu 1024");
	assert_true(k->fit_packets(2048 + 64, false, option, sizeof(option)));
	assert_string_equal(option, "--mtu 2048");
	assert_true(k->fit_packets(2048 + 63, false, option, sizeof(option)));
	assert_string_equal(option, "--mtu 1024");
	assert_false(k->fit_packets(300, false, option, sizeof(option)));
}

static void devices_that_carry_a_rail(void **state)
{
	struct dr_doctor_nic rail = nic("bond0", 3, "10.1.0.1", 24, 9000);
	struct dr_netdev devs[] = {
		{ .name = "bond0", .ifindex = 3, .mtu = 9000, .link = 7 },
		{ .name = "eth1", .ifindex = 4, .mtu = 9000, .master = 3 },
		{ .name = "eth2", .ifindex = 5, .mtu = 1500, .master = 3 },
		{ .name = "other", .ifindex = 6, .mtu = 1500, .master = 9 },
		{ .name = "below", .ifindex = 7, .mtu = 4000 },
	};

	(void)state;
	forget();
	dr_check_mtu_carriers(with(&rail, 1), devs, DR_ARRAY_LEN(devs));
	assert_int_equal(doctor.f.n, 2);
	assert_string_equal(doctor.f.v[0].remedy,
		"ip link set eth2 mtu 9000 (also at the switch and the peer)");
	assert_non_null(strstr(doctor.f.v[1].text, "pass below, which has a smaller MTU"));
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_FAIL), 2);
	forget();
	devs[2].mtu = devs[4].mtu = 9000;
	dr_check_mtu_carriers(with(&rail, 1), devs, DR_ARRAY_LEN(devs));
	assert_int_equal(doctor.f.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_direction_is_a_finding),
		cmocka_unit_test(without_an_answer),
		cmocka_unit_test(the_fix_names_both_nics_or_the_kinds_option),
		cmocka_unit_test(verbs_tests_the_size_of_its_packets),
		cmocka_unit_test(devices_that_carry_a_rail),
	};

	return cmocka_run_group_tests_name("doctor path MTU", tests, tree_make, tree_remove);
}
