/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_priv.h"
#include "channel/flow_testkit.h"

/* A rail that became slow is kept while it is in use, and is not failed back to. Both rails carry the same at first. */
static struct flow f;

static struct dr_rate_state rail_state(struct flow *of, unsigned rail)
{
	struct dr_rate_state st;

	dr_rail_rates_get(of->p.m[0]->rates, rail, &st);
	return st;
}

/* 6.5 Mb/s of 100. On the long rail a round trip takes 40 ms, so that something is always in flight. */
static void test_a_rail_that_is_asked_for_little_is_not_slow(void **state)
{
	static const int64_t delay_ns[] = { DR_NS_PER_MS / 10, 20 * DR_NS_PER_MS };
	struct dr_sim_opts o = small_packets();

	(void)state;
	for (unsigned k = 0; k < DR_ARRAY_LEN(delay_ns); k++) {
		o.link.delay_min_ns = delay_ns[k];
		flow_open(&f, &o, WARM_NS);
		f.most = f.posted[0];
		for (unsigned i = 0; i < 1000; i++, f.most++)
			flow_for(&f, 10 * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).active, 0);
		assert_int_equal(sender_stats(&f).epoch, 1);
		assert_false(rail_state(&f, 0).degraded);
		flow_close(&f);
	}
}

static void test_a_slow_rail_is_kept(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	o.link.bits_per_s = 100e6;
	flow_open(&f, &o, WARM_NS);
	set_rate(&f, 0, 1e6);
	flow_for(&f, 20 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).epoch, 1);
	assert_int_equal(sender_stats(&f).path_fill[1], 0);
	flow_close(&f);
}

static unsigned flows_of(struct flow *of, unsigned rail)
{
	return of->p.m[0]->rates->rate.rail[rail].flows;
}

/* Heartbeats pass on a rail with a hundredth of the rate. Traffic returns when the rate does, once. */
static void failback_waits_for_bandwidth(enum dr_sim_personality kind)
{
	struct dr_sim_opts o = small_packets();
	struct dr_rate_state st;

	o.personality = kind;
	o.link.bits_per_s = 100e6;
	flow_open(&f, &o, WARM_NS);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	flow_for(&f, DR_NS_PER_S);
	set_rate(&f, 0, 1e6);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, false);
	flow_for(&f, 12 * DR_NS_PER_S);
	assert_int_equal(flows_of(&f, 0), 0);
	assert_int_equal(flows_of(&f, 1), kind == DR_SIM_REMOTE_WRITE);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(sender_stats(&f).failbacks, 0);
	dr_rail_rates_get(f.p.m[0]->rates, 0, &st);
	assert_true(st.degraded);
	assert_true(st.bps > 0.5e6 && st.bps < 1.5e6);
	set_rate(&f, 0, 100e6);
	flow_for(&f, 12 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(sender_stats(&f).failbacks, 1);
	flow_close(&f);
}

static void test_failback_waits_for_bandwidth(void **state)
{
	(void)state;
	failback_waits_for_bandwidth(DR_SIM_STREAM);
}

static void test_failback_of_remote_writes_waits_for_bandwidth(void **state)
{
	(void)state;
	failback_waits_for_bandwidth(DR_SIM_REMOTE_WRITE);
}

/* While filler is on a rail of little bandwidth, heartbeats wait behind it. Where the kind does not tell that, the peer
 * is told that there is a probe. */
static void test_heartbeats_behind_filler_are_waited_for(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	o.personality = DR_SIM_REMOTE_WRITE;
	for (unsigned probing = 0; probing < 2; probing++) {
		flow_open(&f, &o, WARM_NS);
		dr_sim_cut(f.p.w, 0, DR_SIM_NODE0, true);
		if (probing)
			f.p.m[0]->rates->rate.rail[0].probing_ns = dr_sim_world_clock(f.p.w, 0);
		assert_int_equal(dr_channel_switch_now(dr_manager_channel_at(f.p.m[0], 0),
					 dr_sim_world_clock(f.p.w, 0)),
			0);
		flow_for(&f, 200 * DR_NS_PER_MS);
		assert_int_equal(f.p.downs[1][0], !probing);
		flow_close(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failback_waits_for_bandwidth),
		cmocka_unit_test(test_failback_of_remote_writes_waits_for_bandwidth),
		cmocka_unit_test(test_heartbeats_behind_filler_are_waited_for),
		cmocka_unit_test(test_a_rail_that_is_asked_for_little_is_not_slow),
		cmocka_unit_test(test_a_slow_rail_is_kept),
	};

	return cmocka_run_group_tests_name("manager_rates", tests, NULL, NULL);
}
