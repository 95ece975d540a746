/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

#include "orchestrator/checks/peer.h"

static struct dr_doctor_nic here[2], there[2];
static struct dr_probe told;
static struct dr_settings settings, own; /* the server's, and those here */

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
	struct dr_err e = { 0 };
	json_t *reply;

	told.plan.n_rails = pairs;
	for (unsigned i = 0; i < pairs; i++) {
		memcpy(told.plan.rail[i][DR_PLAN_CLIENT].name, here[i].rail.ifname, IFNAMSIZ);
		memcpy(told.plan.rail[i][DR_PLAN_SERVER].name, there[i].rail.ifname, IFNAMSIZ);
	}
	reply = dr_plan_probe_reply(json_object(),
		&(struct dr_plan_probe_own){
			.nic = rails, .n = 2, .settings = &settings, .gpus = gpus, .why = why });
	assert_non_null(reply);
	if (dr_plan_probe_read(reply, &told.peer, &e))
		fail_msg("%s", e.text);
	json_decref(reply);
}

static void check(void)
{
	dr_check_peer(with(here, 2), &told);
}

static void check_settings(void)
{
	answer(2, 8, NULL);
	dr_check_peer_settings(with(here, 2), &own, &told);
}

/* Two hosts that do not differ, with a congestion control of which nothing is said. */
static void same_settings(void)
{
	fresh();
	own = (struct dr_settings){
		.congestion_control = "reno", .rmem_max = 32 << 20, .wmem_max = 4 << 20
	};
	for (unsigned i = 0; i < DR_RAILS_MAX; i++)
		own.nic[i] = (struct dr_settings_nic){ .tso = 1, .gso = 1, .gro = 1 };
	settings = own;
}

static void alike(void **state)
{
	(void)state;
	fresh();
	answer(2, 8, NULL);
	assert_int_equal(told.peer.n_gpus, 8);
	assert_int_equal(told.peer.n_nics, 2);
	assert_string_equal(told.peer.nic[1].name, "ens2");
	assert_int_equal(told.peer.nic[1].speed_mbps, 400000);
	check();
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_OK), doctor.f.n);
	expect(DR_SEVERITY_OK, "peer-rails", NULL, "2 rails");
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
	answer(2, 16, NULL);
	check();
	expect(DR_SEVERITY_OK, "peer-gpus", NULL, "8 GPUs here, 16 at the server");
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
	(void)state;
	fresh();
	answer(1, 8, NULL);
	check();
	expect(DR_SEVERITY_WARN, "peer-rails", "eth2", "no partner");
	check();
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_WARN), 2);
	forget();
}

static void settings_of_both_ends(void **state)
{
	(void)state;
	same_settings();
	check_settings();
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_OK), 1);
	expect(DR_SEVERITY_OK, "settings", NULL, "reno");
	snprintf(settings.congestion_control, sizeof(settings.congestion_control), "cubic");
	check_settings();
	expect(DR_SEVERITY_WARN, "congestion-control", NULL,
		"at the server: sysctl -w net.ipv4.tcp_congestion_control=reno");
	same_settings();
	settings.wmem_max = 512 << 10;
	check_settings();
	expect(DR_SEVERITY_WARN, "tcp-buffers", "tcp_wmem", "4194304");
	own.wmem_max = 256 << 10;
	check_settings();
	expect(DR_SEVERITY_WARN, "tcp-buffers", "tcp_wmem", "524288");
	same_settings();
	settings.rmem_max = 1 << 20;
	check_settings();
	expect(DR_SEVERITY_WARN, "tcp-buffers", "tcp_rmem",
		"at the server: sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'");
	same_settings();
	same_settings();
	settings.nic[0].gro = own.nic[1].gso = 0;
	check_settings();
	assert_int_equal(dr_findings_count(&doctor.f, DR_SEVERITY_WARN), 2);
	expect(DR_SEVERITY_WARN, "offload", "eth1", "at the server: ethtool -K ens1 gro on");
	check_settings();
	expect(DR_SEVERITY_WARN, "offload", "eth2", "ethtool -K eth2 gso on");
	same_settings();
	settings.nic[0].gro = own.nic[0].gro = 0;
	here[0].hardware = false;
	check_settings();
	expect_none("offload");
}

/* What is unknown at one end is not compared. */
static void unknown_settings(void **state)
{
	(void)state;
	same_settings();
	memset(&settings, 0, sizeof(settings));
	for (unsigned i = 0; i < DR_RAILS_MAX; i++)
		settings.nic[i].tso = settings.nic[i].gso = settings.nic[i].gro = -1;
	check_settings();
	assert_int_equal(doctor.f.n, 1);
	expect(DR_SEVERITY_NOTE, "settings", NULL, "does not report");
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

static void nonsense(void **state)
{
	static const char *const texts[] = { "[]", "{\"rails\":[],\"look\":{}}",
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

		if (dr_plan_probe_read(j, &told.peer, &e) != -EPROTO)
			fail_msg("taken: %s", texts[i]);
		assert_int_equal(told.peer.n_nics, 0);
		json_decref(j);
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
		cmocka_unit_test(settings_of_both_ends),
		cmocka_unit_test(unknown_settings),
		cmocka_unit_test(nonsense),
	};

	return cmocka_run_group_tests_name("doctor peer", tests, tree_make, tree_remove);
}
