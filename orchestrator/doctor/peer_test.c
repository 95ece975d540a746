/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/doctor_testkit.h"

#include "orchestrator/doctor/peer.h"

static struct dr_doctor_nic here[2], there[2];
static struct dr_plan_probe told;
static bool follows; /* the server names no GPUs */

/* Two nodes with two alike rails. */
static void fresh(void)
{
	doctor.run.gpus = 8;
	here[0] = nic("eth1", 3, "10.1.0.1", 24, 9000);
	here[1] = nic("eth2", 4, "10.2.0.1", 24, 9000);
	there[0] = nic("ens1", 5, "10.1.0.2", 24, 9000);
	there[1] = nic("ens2", 6, "10.2.0.2", 24, 9000);
	for (int i = 0; i < 2; i++)
		here[i].rail.speed_mbps = there[i].rail.speed_mbps = 400000;
}

/* `there` as it arrives here; pairs: how many of the rails match. */
static void answer(unsigned pairs, size_t gpus, const char *why)
{
	struct dr_netdev_rail rails[2] = { there[0].rail, there[1].rail };
	json_t *list = json_array(), *reply;
	struct dr_err e = { 0 };
	char a[64], b[64];

	for (unsigned i = 0; i < pairs; i++) {
		dr_netdev_addr_format((struct sockaddr *)&here[i].rail.addr, a, sizeof(a));
		dr_netdev_addr_format((struct sockaddr *)&there[i].rail.addr, b, sizeof(b));
		json_array_append_new(list, json_pack("{s:s, s:s}", "client", a, "address", b));
	}
	reply = dr_plan_probe_reply(
		json_pack("{s:o}", "rails", list), rails, 2, gpus, why, follows);
	assert_non_null(reply);
	if (dr_plan_probe_read(reply, &told, &e))
		fail_msg("%s", e.text);
	json_decref(reply);
}

static void check(void)
{
	dr_check_peer(with(here, 2), &told);
}

static void alike(void **state)
{
	struct dr_doctor_end end[DR_RAILS_MAX];
	char text[64];

	(void)state;
	fresh();
	answer(2, 8, NULL);
	assert_int_equal(told.n_gpus, 8);
	assert_int_equal(told.n_nics, 2);
	assert_string_equal(told.nic[1].name, "ens2");
	assert_int_equal(told.nic[1].speed_mbps, 400000);
	check();
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_OK), doctor.f.n);
	expect(DR_SEVERITY_OK, "peer-rails", NULL, "2 rails");
	dr_doctor_ends(with(here, 2), &told, end);
	dr_netdev_addr_format((struct sockaddr *)&end[1].addr, text, sizeof(text));
	assert_string_equal(text, "10.2.0.2");
	assert_int_equal(end[1].mtu, 9000);
}

static void gpu_counts(void **state)
{
	(void)state;
	fresh();
	answer(2, 4, NULL);
	check();
	expect(DR_SEVERITY_FAIL, "peer-gpus", NULL, "8 here, 4 at the server");
	doctor.run.pair = true;
	dr_check_peer(&doctor, &told);
	doctor.run.pair = false;
	expect(DR_SEVERITY_OK, "peer-gpus", NULL, "4 at the server");
	/* A server without a list uses as many as the client names, if it has them. */
	follows = true;
	answer(2, 4, NULL);
	check();
	expect(DR_SEVERITY_FAIL, "peer-gpus", NULL, "8 here, 4 at the server");
	answer(2, 16, NULL);
	check();
	expect(DR_SEVERITY_OK, "peer-gpus", NULL, "8 GPUs here, 16 at the server");
	follows = false;
}

static void refused(void **state)
{
	(void)state;
	fresh();
	answer(0, 8, "rails do not match: client a, server b; name as many");
	check();
	expect(DR_SEVERITY_FAIL, "peer", NULL, "name as many");
}

static void without_partner(void **state)
{
	struct dr_doctor_end end[DR_RAILS_MAX];

	(void)state;
	fresh();
	answer(1, 8, NULL);
	check();
	expect(DR_SEVERITY_WARN, "peer-rails", "eth2", "no partner");
	check();
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_WARN), 2);
	forget();
	dr_doctor_ends(with(here, 2), &told, end);
	assert_int_equal(end[1].addr.ss_family, AF_UNSPEC);
	assert_int_equal(end[0].addr.ss_family, AF_INET);
}

static void unlike(void **state)
{
	(void)state;
	fresh();
	there[1].rail.mtu = 1500;
	answer(2, 8, NULL);
	check();
	expect(DR_SEVERITY_WARN, "peer-mtu", "eth2", "at the server: ip link set ens2 mtu 9000");
	check();
	expect_none("peer-rails");
	here[1].rail.mtu = 1400;
	check();
	expect(DR_SEVERITY_WARN, "peer-mtu", "eth2", "ip link set eth2 mtu 1500");
	fresh();
	there[0].rail.speed_mbps = 200000;
	answer(2, 8, NULL);
	check();
	expect(DR_SEVERITY_WARN, "peer-speed", "eth1", "200000");
	there[0].rail.speed_mbps = -1;
	answer(2, 8, NULL);
	check();
	expect_none("peer-speed");
	there[0].rail.running = false;
	answer(2, 8, NULL);
	check();
	expect(DR_SEVERITY_FAIL, "peer-link", "eth1", "ip link set ens1 up");
}

/* A server that does not know doctor answers as to a client. */
static void earlier_version(void **state)
{
	json_t *reply =
		json_pack("{s:[{s:s, s:s}]}", "rails", "client", "10.1.0.1", "address", "10.1.0.2");

	(void)state;
	assert_int_equal(dr_plan_probe_read(reply, &told, NULL), 0);
	json_decref(reply);
	assert_false(told.tells);
	check();
	expect(DR_SEVERITY_NOTE, "peer", NULL, "does not report");
}

static void nonsense(void **state)
{
	static const char *const texts[] = { "{}", "[]", "{\"rails\":1}",
		"{\"rails\":[{\"client\":\"x\"}]}",
		"{\"rails\":[{\"client\":\"x\",\"address\":\"y\"}]}", "{\"rails\":[],\"look\":{}}",
		"{\"rails\":[],\"look\":{\"gpus\":0,\"nics\":[]}}",
		"{\"rails\":[],\"look\":{\"gpus\":1,\"nics\":[{}]}}",
		"{\"rails\":[],\"look\":{\"gpus\":1,\"nics\":[],\"why\":7}}",
		"{\"rails\":[],\"look\":{\"gpus\":1,\"nics\":[{\"name\":\"\\u001b[2J\",\"address\":"
		"\"1.2.3.4\",\"mtu\":1500,\"speed_mbps\":1,\"running\":true}]}}",
		"{\"rails\":[],\"look\":{\"gpus\":1,\"nics\":[{\"name\":\"a\",\"address\":"
		"\"1.2.3.4\",\"mtu\":-1,\"speed_mbps\":1,\"running\":true}]}}" };
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(texts); i++) {
		json_t *j = json_loads(texts[i], 0, NULL);

		if (dr_plan_probe_read(j, &told, &e) != -EPROTO)
			fail_msg("taken: %s", texts[i]);
		assert_int_equal(told.n_pairs + told.n_nics, 0);
		json_decref(j);
	}
}

static void path_mtu(void **state)
{
	static const struct {
		struct dr_pmtu got;
		enum dr_severity severity;
		const char *says;
	} cases[] = {
		{ { DR_PMTU_ARRIVES, 9000, 0 }, DR_SEVERITY_OK, "9000 bytes reach 10.1.0.2" },
		{ { DR_PMTU_SMALLER, 1500, 0 }, DR_SEVERITY_WARN, "ip link set eth1 mtu 1500" },
		{ { DR_PMTU_VANISHES, 9000, 0 }, DR_SEVERITY_FAIL, "dropped without an error" },
		{ { DR_PMTU_SILENT, 9000, 0 }, DR_SEVERITY_NOTE, "ping -M do" },
		{ { DR_PMTU_ERROR, 0, -EHOSTUNREACH }, DR_SEVERITY_FAIL, "No route to host" },
	};
	struct dr_doctor_end end = { .mtu = 9000 };

	(void)state;
	fresh();
	end.addr = there[0].rail.addr;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		dr_check_pmtu(&doctor, &here[0], &end, &cases[i].got);
		expect(cases[i].severity, "path-mtu", "eth1", cases[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alike),
		cmocka_unit_test(gpu_counts),
		cmocka_unit_test(refused),
		cmocka_unit_test(without_partner),
		cmocka_unit_test(unlike),
		cmocka_unit_test(earlier_version),
		cmocka_unit_test(nonsense),
		cmocka_unit_test(path_mtu),
	};

	return cmocka_run_group_tests_name("doctor peer", tests, tree_make, tree_remove);
}
