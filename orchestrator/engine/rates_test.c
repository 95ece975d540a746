/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/grey_testkit.h"
#include "orchestrator/engine/rates.h"

#include <errno.h>

/* A rail that became slow is kept. Both rails carry the same at first. */
static struct flow f;
static struct dr_rail_rates judge;
static struct dr_rates rates;
static unsigned changes; /* of verdicts */

static void rates_begin(void)
{
	dr_rail_rates_init(&judge, RAILS);
	dr_rates_init(&rates, &judge);
	rates.sampled_ns = dr_sim_world_clock(f.p.w, 0);
	changes = 0;
}

static void rates_end(void)
{
	dr_rail_rates_fini(&judge);
	flow_close(&f);
}

/* As an engine does, after each tick. */
static void rates_for(int64_t ns)
{
	for (int64_t t = 0; t < ns; t += BEAT_NS) {
		struct dr_channel *ch = dr_manager_channel_at(f.p.m[0], 0);
		int64_t now;

		flow_for(&f, BEAT_NS);
		now = dr_sim_world_clock(f.p.w, 0);
		if (dr_rates_due(&rates, now))
			changes += dr_rates_sample(&rates, &ch, 1, now) != 0;
	}
}

static struct dr_rate_state rail_state(unsigned rail)
{
	struct dr_rate_state st;

	dr_rail_rates_get(&judge, rail, &st);
	return st;
}

/* 6.5 Mb/s of 100. On the long rail a round trip takes 40 ms, so that something is always in
 * flight. */
static void test_a_rail_that_is_asked_for_little_is_not_slow(void **state)
{
	static const int64_t delay_ns[] = { DR_NS_PER_MS / 10, 20 * DR_NS_PER_MS };
	struct dr_sim_opts o = small_packets();

	(void)state;
	for (unsigned k = 0; k < DR_ARRAY_LEN(delay_ns); k++) {
		o.link.delay_min_ns = delay_ns[k];
		flow_open(&f, &o, WARM_NS);
		rates_begin();
		f.most = f.posted[0];
		for (unsigned i = 0; i < 1000; i++, f.most++)
			rates_for(10 * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).active, 0);
		assert_int_equal(sender_stats(&f).epoch, 1);
		assert_false(rail_state(0).degraded);
		rates_end();
	}
}

static void test_a_slow_rail_is_kept(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	o.link.bits_per_s = 100e6;
	flow_open(&f, &o, WARM_NS);
	rates_begin();
	set_rate(&f, 0, 1e6);
	rates_for(20 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).epoch, 1);
	rates_end();
}

/* Heartbeats pass on a rail with a hundredth of the rate. Traffic returns to it, and names it; not
 * any more when the rate returns. */
static void a_slow_rail_is_named_after_a_failback(enum dr_sim_personality kind)
{
	struct dr_sim_opts o = small_packets();

	o.personality = kind;
	o.link.bits_per_s = 100e6;
	flow_open(&f, &o, WARM_NS);
	rates_begin();
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	rates_for(DR_NS_PER_S);
	set_rate(&f, 0, 1e6);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, false);
	rates_for(12 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(sender_stats(&f).failbacks, 1);
	assert_true(rail_state(0).degraded);
	assert_true(rail_state(0).bps > 0.5e6 && rail_state(0).bps < 1.5e6);
	assert_int_equal(rail_state(0).versus, 1);
	set_rate(&f, 0, 100e6);
	rates_for(4 * DR_NS_PER_S);
	assert_false(rail_state(0).degraded);
	assert_int_equal(changes, 2);
	assert_int_equal(sender_stats(&f).switches, 1);
	rates_end();
}

static void test_a_slow_rail_is_named_after_a_failback(void **state)
{
	(void)state;
	a_slow_rail_is_named_after_a_failback(DR_SIM_STREAM);
	a_slow_rail_is_named_after_a_failback(DR_SIM_REMOTE_WRITE);
}

/* What one connection has acknowledged, and what waited there, says nothing about the next one on
 * the same path. */
static void test_a_rate_is_that_of_one_connection(void **state)
{
	struct dr_path_stats st = { .unacked_bytes = 5000 };
	const struct dr_transport_ops *path_ops;
	struct dr_rate_state rate;
	struct dr_channel *ch;

	(void)state;
	for (unsigned anew = 0; anew < 2; anew++) {
		grey_open(&f, &st, UINT32_MAX);
		rates_begin();
		dr_sim_cut(f.p.w, 1, DR_SIM_BOTH, true);
		acked_step = 10;
		ch = dr_manager_channel_at(f.p.m[0], 0);
		path_ops = dr_channel_path(ch, 0)->ops;
		rates_for(400 * DR_NS_PER_MS);
		for (unsigned i = 0; i < 4; i++) {
			if (anew) {
				dr_channel_path_dead(
					ch, 0, -ECONNABORTED, "test", dr_sim_world_clock(f.p.w, 0));
				dr_rates_switched(&rates, 0);
			}
			while (!dr_channel_path_up(ch, 0))
				flow_for(&f, DR_NS_PER_MS);
			dr_channel_path(ch, 0)->ops = path_ops;
			rates_for(250 * DR_NS_PER_MS);
		}
		rate = rail_state(0);
		assert_int_equal(rate.bps > 0 && rate.bps < 1e4, !anew);
		rates_end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_rail_that_is_asked_for_little_is_not_slow),
		cmocka_unit_test(test_a_slow_rail_is_kept),
		cmocka_unit_test(test_a_slow_rail_is_named_after_a_failback),
		cmocka_unit_test(test_a_rate_is_that_of_one_connection),
	};

	return cmocka_run_group_tests_name("rates", tests, NULL, NULL);
}
