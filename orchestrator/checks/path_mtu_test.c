/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

#include "orchestrator/checks/peer.h"

#include <errno.h>

static struct dr_mtu_rail rail;
static struct dr_probe probe = { .mtu = { .n_rails = 1, .rail = { &rail }, .full_bytes = { 9000 } },
	.plan = { .transport = "tcp",
		.n_rails = 1,
		.rail = { { { .name = "eth1", .address = "127.0.0.1", .mtu = 9000 },
			{ .name = "ens1", .address = "127.0.0.2", .mtu = 9000 } } } } };

/* The test is over with these results; the client's end looks. */
static void found(enum dr_mtu_state to_server, enum dr_mtu_state to_client)
{
	forget();
	rail.proven = true;
	rail.search.own = (struct dr_mtu_result){ to_server, 1500 };
	rail.search.peer = (struct dr_mtu_result){ to_client, 1500 };
	dr_check_path_mtu(&doctor, &probe, 0);
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
	(void)state;
	found(DR_MTU_HOLE, DR_MTU_REFUSED);
	row(0, DR_SEVERITY_FAIL, "packets above 1500 bytes to the server are lost");
	row(0, DR_SEVERITY_FAIL,
		"both NICs' to 1500: ip link set eth1 mtu 1500 (at the server: ens1)");
	row(1, DR_SEVERITY_WARN, "a device on the path to the client has MTU 1500");
	assert_int_equal(doctor.f.n, 2);
	found(DR_MTU_PASSES, DR_MTU_UNKNOWN);
	row(0, DR_SEVERITY_OK, "packets of 1500 bytes to the server arrive");
	row(1, DR_SEVERITY_NOTE, "too few answers from the client");
	forget();
}

static void without_an_answer(void **state)
{
	(void)state;
	forget();
	rail.proven = false;
	dr_check_path_mtu(&doctor, &probe, 0);
	row_of(0, "peer-address", DR_SEVERITY_FAIL, "eth1 is not there any more");
	assert_int_equal(doctor.f.n, 1);
	forget();
	if (!dr_transport_kind("verbs"))
		return;
	snprintf(probe.plan.transport, sizeof(probe.plan.transport), "verbs");
	dr_check_path_mtu(&doctor, &probe, 0); /* that does without sockets */
	row_of(0, "peer-address", DR_SEVERITY_NOTE, "eth1 is not there any more");
	snprintf(probe.plan.transport, sizeof(probe.plan.transport), "tcp");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_direction_is_a_finding),
		cmocka_unit_test(without_an_answer),
		cmocka_unit_test(verbs_tests_the_size_of_its_packets),
	};

	return cmocka_run_group_tests_name("doctor path MTU", tests, tree_make, tree_remove);
}
