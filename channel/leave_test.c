/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_priv.h"
#include "channel/flow_testkit.h"

/*
 * Managers that leave degraded rails, or do not fail back to them. Both rails carry the same; rail 0, the primary,
 * becomes worse.
 */
static struct flow f;

static const double RATE = 100e6;

static void leave_open(struct flow *of, enum dr_sim_personality kind, double rate, double leave)
{
	struct dr_sim_opts o = small_packets();

	o.personality = kind;
	o.link.bits_per_s = rate;
	pair_leave_degraded = leave;
	flow_open(of, &o, WARM_NS);
	pair_leave_degraded = 0;
}

static struct dr_rate_state rail_state(struct flow *of, unsigned rail)
{
	struct dr_rate_state st;

	dr_rail_rates_get(of->p.m[0]->rates, rail, &st);
	return st;
}

static void set_loss(struct flow *of, unsigned rail, unsigned percent)
{
	struct dr_sim_link l;

	dr_sim_link_get(of->p.w, rail, 0, &l);
	l.loss_ppm = l.dgram_loss_ppm = 10000 * percent;
	dr_sim_link_set(of->p.w, rail, DR_SIM_BOTH, &l);
}

/* Nothing is known of the other rail at first. */
static void test_a_rail_with_a_hundredth_is_left_and_returned_to_once(void **state)
{
	struct dr_channel *ch;
	uint64_t before;

	(void)state;
	leave_open(&f, DR_SIM_STREAM, RATE, 0.1);
	ch = dr_manager_channel_at(f.p.m[0], 0);
	flow_for(&f, 2 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).path_fill[1], 0);
	set_rate(&f, 0, 1e6);
	flow_for(&f, 4 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_true(rail_state(&f, 0).degraded);
	assert_true(ch->fo.done.planned);
	assert_non_null(strstr(ch->fo.done.cause, "rail 0 is degraded: "));
	assert_non_null(strstr(ch->fo.done.cause, "b/s measured, rail 1 carries "));
	ch = dr_manager_channel_at(f.p.m[1], 0);
	assert_true(ch->fo.done.planned);
	assert_string_equal(ch->fo.done.cause, "degraded rail, left by the sender");
	before = f.next[1];
	flow_for(&f, 20 * DR_NS_PER_S);
	/* The other rail's bandwidth, and no failback. */
	assert_true((double)(f.next[1] - before) * CHUNK * 8 > 0.8 * 20 * 100e6);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(sender_stats(&f).failbacks, 1);
	set_rate(&f, 0, 100e6);
	flow_for(&f, 40 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).failbacks, 2);
	assert_int_equal(sender_stats(&f).switches, 0);
	assert_false(rail_state(&f, 0).degraded);
	flow_close(&f);
}

/* What is in flight is acknowledged within half a sample: the transport tells that it was never idle. */
static void test_a_rail_with_little_in_flight_is_left(void **state)
{
	(void)state;
	leave_open(&f, DR_SIM_STREAM, RATE, 0.1);
	set_rate(&f, 0, 5e6);
	flow_for(&f, 4 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_true(rail_state(&f, 0).bps > 4e6 && rail_state(&f, 0).bps < 6e6);
	flow_close(&f);
}

/* 6.5 Mb/s of 100. On the long rail a round trip takes 40 ms, so that something is always in flight. */
static void test_a_rail_that_is_asked_for_little_is_not_slow(void **state)
{
	static const int64_t delay_ns[] = { DR_NS_PER_MS / 10, 20 * DR_NS_PER_MS };
	struct dr_sim_opts o = small_packets();

	(void)state;
	for (unsigned k = 0; k < DR_ARRAY_LEN(delay_ns); k++) {
		o.link.delay_min_ns = delay_ns[k];
		pair_leave_degraded = 0.5;
		flow_open(&f, &o, WARM_NS);
		pair_leave_degraded = 0;
		f.most = f.posted[0];
		for (unsigned i = 0; i < 1000; i++, f.most++)
			flow_for(&f, 10 * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).active, 0);
		assert_int_equal(sender_stats(&f).epoch, 1);
		assert_false(rail_state(&f, 0).degraded);
		flow_close(&f);
	}
}

static void test_without_the_option_it_is_kept(void **state)
{
	(void)state;
	leave_open(&f, DR_SIM_STREAM, RATE, 0);
	set_rate(&f, 0, 1e6);
	flow_for(&f, 20 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).epoch, 1);
	assert_int_equal(sender_stats(&f).path_fill[1], 0);
	flow_close(&f);
}

/* Between the limits the channel stays where it is. */
static void test_the_ratio_decides(void **state)
{
	static const struct {
		double leave, rate, back;
		unsigned active, after;
	} c[] = {
		{ 0.1, 0.52e6, 4e6, 0, 0 },
		{ 0.5, 1.2e6, 2.6e6, 1, 1 },
		{ 0.5, 1.2e6, 3.6e6, 1, 0 },
		{ 0.5, 2.4e6, 4e6, 0, 0 },
		{ 0.02, 0.2e6, 4e6, 0, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
		leave_open(&f, DR_SIM_STREAM, 4e6, c[i].leave);
		set_rate(&f, 0, c[i].rate);
		flow_for(&f, 10 * DR_NS_PER_S);
		assert_int_equal(sender_stats(&f).active, c[i].active);
		set_rate(&f, 0, c[i].back);
		flow_for(&f, 30 * DR_NS_PER_S);
		assert_int_equal(sender_stats(&f).active, c[i].after);
		assert_true(sender_stats(&f).failbacks <= 2);
		flow_close(&f);
	}
}

static void test_a_rail_is_not_left_for_a_slow_one(void **state)
{
	(void)state;
	leave_open(&f, DR_SIM_STREAM, RATE, 0.1);
	set_rate(&f, 0, 1e6);
	set_rate(&f, 1, 2e6);
	flow_for(&f, 20 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).epoch, 1);
	flow_close(&f);
}

static void test_a_rail_is_not_left_for_one_that_is_down(void **state)
{
	(void)state;
	leave_open(&f, DR_SIM_STREAM, RATE, 0.1);
	dr_sim_cut(f.p.w, 1, DR_SIM_BOTH, true);
	set_rate(&f, 0, 1e6);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).epoch, 1);
	dr_sim_cut(f.p.w, 1, DR_SIM_BOTH, false);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(sender_stats(&f).switches, 0);
	flow_close(&f);
}

/* The rail may be declared down meanwhile; it is not used again before its heartbeats arrive. */
static void test_a_rail_that_loses_heartbeats_is_left(void **state)
{
	(void)state;
	leave_open(&f, DR_SIM_STREAM, RATE, 0.1);
	set_loss(&f, 0, 40);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_true(rail_state(&f, 0).by_loss);
	for (unsigned i = 0; i < 20; i++) {
		flow_for(&f, DR_NS_PER_S);
		assert_int_equal(sender_stats(&f).active, 1);
	}
	set_loss(&f, 0, 0);
	flow_for(&f, 30 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 0);
	flow_close(&f);
}

/* Rail 0 is slow every other 6 s; rail 1 never, or when rail 0 is not. Undamped this would be 23 changes. */
static void test_rails_that_are_slow_in_turns_are_left_less_and_less(void **state)
{
	static const enum dr_sim_personality kind[] = { DR_SIM_STREAM, DR_SIM_REMOTE_WRITE };
	static const double FAST = 20e6, SLOW = 0.4e6;

	(void)state;
	for (unsigned i = 0; i < 2 * DR_ARRAY_LEN(kind); i++) {
		bool both = i % 2;
		uint32_t half = 0;

		leave_open(&f, kind[i / 2], FAST, 0.1);
		for (unsigned turn = 0; turn < 24; turn++) {
			if (turn == 12)
				half = sender_stats(&f).failbacks;
			set_rate(&f, 0, turn % 2 ? SLOW : FAST);
			set_rate(&f, 1, both && turn > 0 && turn % 2 == 0 ? SLOW : FAST);
			flow_for(&f, 6 * DR_NS_PER_S);
		}
		assert_true(half >= 2);
		assert_true(sender_stats(&f).failbacks <= half + 2);
		assert_true(sender_stats(&f).failbacks <= 10);
		assert_int_equal(sender_stats(&f).switches, 0);
		/* It is returned to when it is sound for good. */
		set_rate(&f, 0, FAST);
		set_rate(&f, 1, FAST);
		flow_for(&f, 100 * DR_NS_PER_S);
		assert_int_equal(sender_stats(&f).active, 0);
		flow_close(&f);
	}
}

/* Without a probe the traffic finds out: the other rail has to be known, and returns become rarer. */
static void test_a_kind_that_cannot_probe_returns_less_and_less(void **state)
{
	struct dr_transport_ops blind = *dr_sim_ops(DR_SIM_STREAM);
	struct dr_channel *ch;
	uint32_t planned;

	(void)state;
	blind.fill = NULL;
	leave_open(&f, DR_SIM_STREAM, RATE, 0.1);
	f.p.m[0]->prm.transport = &blind;
	set_rate(&f, 0, 1e6);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).epoch, 1); /* nothing is known of rail 1 */
	ch = dr_manager_channel_at(f.p.m[0], 0);
	assert_int_equal(dr_channel_switch_now(ch, dr_sim_world_clock(f.p.w, 0)), 0);
	/* There, back after the hold-down, and there again. */
	flow_for(&f, 6 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).failbacks, 3);
	assert_int_equal(sender_stats(&f).active, 1);
	/* The next returns are tried after 10, 20 and 40 s, and the one after them later than that. */
	flow_for(&f, 95 * DR_NS_PER_S);
	planned = sender_stats(&f).failbacks;
	assert_true(planned >= 7 && planned <= 9);
	flow_for(&f, 40 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).failbacks, planned);
	assert_int_equal(sender_stats(&f).switches, 0);
	assert_int_equal(sender_stats(&f).active, 1);
	f.p.m[0]->prm.transport = dr_sim_ops(DR_SIM_STREAM);
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
		cmocka_unit_test(test_a_rail_with_a_hundredth_is_left_and_returned_to_once),
		cmocka_unit_test(test_a_rail_with_little_in_flight_is_left),
		cmocka_unit_test(test_a_rail_that_is_asked_for_little_is_not_slow),
		cmocka_unit_test(test_without_the_option_it_is_kept),
		cmocka_unit_test(test_the_ratio_decides),
		cmocka_unit_test(test_a_rail_is_not_left_for_a_slow_one),
		cmocka_unit_test(test_a_rail_is_not_left_for_one_that_is_down),
		cmocka_unit_test(test_a_rail_that_loses_heartbeats_is_left),
		cmocka_unit_test(test_rails_that_are_slow_in_turns_are_left_less_and_less),
		cmocka_unit_test(test_a_kind_that_cannot_probe_returns_less_and_less),
	};

	return cmocka_run_group_tests_name("leave", tests, NULL, NULL);
}
