/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_priv.h"
#include "channel/flow_testkit.h"

/* A rail that became slow is kept. Both rails carry the same at first. */
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
	flow_close(&f);
}

/* Heartbeats pass on a rail with a hundredth of the rate. Traffic returns to it, and names it; not any more when the
 * rate returns. */
static void a_slow_rail_is_named_after_a_failback(enum dr_sim_personality kind)
{
	struct dr_sim_opts o = small_packets();

	o.personality = kind;
	o.link.bits_per_s = 100e6;
	flow_open(&f, &o, WARM_NS);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	flow_for(&f, DR_NS_PER_S);
	set_rate(&f, 0, 1e6);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, false);
	flow_for(&f, 12 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(sender_stats(&f).failbacks, 1);
	assert_true(rail_state(&f, 0).degraded && f.p.slow[0][0]);
	assert_true(rail_state(&f, 0).bps > 0.5e6 && rail_state(&f, 0).bps < 1.5e6);
	assert_int_equal(rail_state(&f, 0).versus, 1);
	set_rate(&f, 0, 100e6);
	flow_for(&f, 4 * DR_NS_PER_S);
	assert_false(rail_state(&f, 0).degraded || f.p.slow[0][0]);
	assert_int_equal(sender_stats(&f).switches, 1);
	flow_close(&f);
}

static void test_a_slow_rail_is_named_after_a_failback(void **state)
{
	(void)state;
	a_slow_rail_is_named_after_a_failback(DR_SIM_STREAM);
	a_slow_rail_is_named_after_a_failback(DR_SIM_REMOTE_WRITE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_rail_that_is_asked_for_little_is_not_slow),
		cmocka_unit_test(test_a_slow_rail_is_kept),
		cmocka_unit_test(test_a_slow_rail_is_named_after_a_failback),
	};

	return cmocka_run_group_tests_name("manager_rates", tests, NULL, NULL);
}
