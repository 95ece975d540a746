/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/grey_testkit.h"

/*
 * The verdicts of the ChannelManager while data flows: a black hole, and rails that carry heartbeats but not
 * the data, or the data but no heartbeats.
 */
static struct flow f;

/* The stall is a few fast ticks and the switch, not three heartbeats. */
static void test_a_black_hole_under_data_is_found_fast(void **state)
{
	static const unsigned dirs[] = { DR_SIM_NODE0, DR_SIM_NODE1, DR_SIM_BOTH };
	struct dr_sim_opts o = small_packets();

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(dirs); i++) {
		flow_open(&f, &o, WARM_NS);
		dr_sim_cut(f.p.w, 0, dirs[i], true);
		flow_for(&f, DR_NS_PER_S);
		assert_int_equal(sender_stats(&f).active, 1);
		assert_true(f.stall_ns > 0 && f.stall_ns <= 15 * DR_NS_PER_MS);
		flow_close(&f);
	}
}

/* A switch after a time without the processor says so, and is no evidence against the rail. */
static void test_a_switch_after_an_own_stall_says_so(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	for (unsigned stalled = 0; stalled < 2; stalled++) {
		flow_open(&f, &o, WARM_NS);
		dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
		if (stalled)
			dr_sim_world_step(f.p.w, dr_sim_world_now(f.p.w) + 300 * DR_NS_PER_MS);
		flow_for(&f, DR_NS_PER_S);
		assert_int_equal(sender_stats(&f).active, 1);
		for (unsigned end = 0; end < 2; end++) {
			assert_true(f.p.cause[end][0]);
			assert_int_equal(strncmp(f.p.cause[end], "after an own stall of ", 22) == 0,
				stalled);
		}
		flow_close(&f);
	}
}

/* Large segments are lost, small ones and heartbeats pass. The rail is not used again before a datagram of
 * full size passes. */
static void test_a_hole_for_large_packets(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	flow_open(&f, &o, WARM_NS);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, 600);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_true(f.stall_ns > 0 && f.stall_ns <= 150 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(f.p.m[0]->rail[0].state, DR_RAIL_DOWN);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, UINT32_MAX);
	flow_for(&f, 4 * DR_NS_PER_S);
	assert_int_equal(f.p.m[0]->rail[0].state, DR_RAIL_ALIVE);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).failbacks, 1);
	flow_close(&f);
}

/* While the other rail is away for a moment, the grey one is all there is, and a connection over it comes up.
 * It is left as soon as the other one is back. */
static void test_a_grey_rail_is_no_refuge(void **state)
{
	struct dr_sim_opts o = small_packets();
	uint64_t before;

	(void)state;
	flow_open(&f, &o, WARM_NS);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, 600);
	flow_for(&f, 2 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 1);
	dr_sim_cut(f.p.w, 1, DR_SIM_BOTH, true);
	flow_for(&f, 200 * DR_NS_PER_MS);
	dr_sim_cut(f.p.w, 1, DR_SIM_BOTH, false);
	flow_for(&f, DR_NS_PER_S);
	before = f.next[1];
	flow_for(&f, DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_true(f.next[1] > before + 100);
	flow_close(&f);
}

/* The round trip is longer than the interval of heartbeats: reports are late. */
static void test_a_hole_far_away(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	o.link.delay_min_ns = 25 * DR_NS_PER_MS;
	flow_open(&f, &o, 4 * WARM_NS);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, 600);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_true(f.stall_ns <= 500 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(sender_stats(&f).switches, 1);
	flow_close(&f);
}

/* Only datagrams pass: the connection is left after some repetitions without an answer. */
static void test_only_datagrams_pass(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	o.rto_ns = o.rto_max_ns = 10 * DR_NS_PER_MS;
	flow_open(&f, &o, WARM_NS);
	dr_sim_hole(f.p.w, 0, DR_SIM_BOTH, 200);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_true(f.stall_ns > 0 && f.stall_ns <= 150 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(sender_stats(&f).switches, 1);
	flow_close(&f);
}

/* Only datagrams are lost. A rail that carries data all the time is kept; one that is idle goes
 * down, and is used again if it is the only one. */
static void test_lost_datagrams(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	for (unsigned rail = 0; rail < RAILS; rail++) {
		flow_open(&f, &o, WARM_NS);
		dr_sim_mute_dgrams(f.p.w, rail, DR_SIM_BOTH, true);
		flow_for(&f, 10 * DR_NS_PER_S);
		for (unsigned end = 0; end < 2; end++) {
			assert_int_equal(f.p.downs[end][0], 0);
			assert_int_equal(f.p.downs[end][1], rail);
		}
		assert_int_equal(sender_stats(&f).active, 0);
		assert_int_equal(sender_stats(&f).switches, 0);
		flow_close(&f);
	}
}

/* Each message takes longer than any timer of progress: the transport's acknowledgements count. */
static void test_a_slow_rail_is_not_left(void **state)
{
	static const double rates[] = { 20e3, 100e3, 1e6 };

	(void)state;
	for (unsigned i = 0; i < 2 * DR_ARRAY_LEN(rates); i++) {
		struct dr_sim_opts o = small_packets();

		o.link.bits_per_s = rates[i / 2];
		o.segment_bytes = 100;
		flow_open_with(&f, &o, i % 2 ? DR_DETECT_CONSERVATIVE : DR_DETECT_FAST, 0);
		flow_for(&f, 60 * DR_NS_PER_S);
		assert_true(f.next[1] > 5);
		assert_int_equal(sender_stats(&f).switches, 0);
		assert_int_equal(sender_stats(&f).active, 0);
		flow_close(&f);
	}
}

/* ---- what the transport reports decides ---- */

static void test_no_answer_to_many_segments(void **state)
{
	enum { MANY, FEW, SHUT, FAR, YOUNG, ACKED, STALLED, CASES };

	(void)state;
	for (unsigned i = 0; i < CASES; i++) {
		struct dr_path_stats st = no_answer;

		st.silent_segments -= i == FEW;
		st.window_shut = i == SHUT;
		st.rtt_ns = i == FAR ? DR_NS_PER_S : st.rtt_ns;
		st.peer_ack_age_ns = i == YOUNG ? 99 * DR_NS_PER_MS : st.peer_ack_age_ns;
		grey_open(&f, &st, 200);
		acked_step = i == ACKED;
		if (i == STALLED)
			dr_channel_stalled(dr_manager_channel_at(f.p.m[0], 0), true,
				dr_sim_world_clock(f.p.w, 0));
		flow_for(&f, (i == MANY ? 250 : i == ACKED ? 5000 : 1900) * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, i == MANY);
		assert_int_equal(f.p.downs[0][0], 0);
		flow_close(&f);
	}
}

/* Whether packets of full size pass is found out first: then the rail is left, not one connection of it. */
static void test_padded_datagrams_decide_first(void **state)
{
	struct dr_path_stats st = no_answer;

	(void)state;
	st.segment_bytes = 1000;
	grey_open(&f, &st, 600);
	flow_for(&f, 200 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(f.p.downs[0][0], 1);
	flow_close(&f);
}

/* How long a path may make no progress depends on what its kernel does. */
static void test_patience_with_a_path(void **state)
{
	static const struct {
		unsigned silent_segments, unanswered, lost;
		int64_t rtt_ms, kept_ms, left_ms;
	} c[] = {
		{ 1, 9, 0, 1, 14000, 16000 },  /* it repeats segments */
		{ 1, 10, 0, 1, 1900, 2500 },   /* it did so often enough */
		{ 0, 0, 0, 1000, 7900, 8500 }, /* long round trips */
		{ 0, 0, 2, 1, 14000, 16000 },  /* the peer's kernel may repeat its answer */
		{ 0, 0, 1, 1, 1900, 2500 },
	};

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct dr_path_stats st = { .repeats = true,
			.silent_segments = c[i].silent_segments,
			.unanswered = c[i].unanswered,
			.recent_segments = 1000,
			.recent_retransmits = c[i].lost,
			.rtt_ns = c[i].rtt_ms * DR_NS_PER_MS };

		grey_open(&f, &st, 200);
		flow_for(&f, c[i].kept_ms * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, 0);
		flow_for(&f, (c[i].left_ms - c[i].kept_ms) * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, 1);
		flow_close(&f);
	}
}

/* While data of another connection with losses passes on the rail, losses explain that this one
 * has no answer. Then repetitions decide, as many as on a connection with losses. */
static void test_a_rail_that_carries_other_data(void **state)
{
	static const struct {
		unsigned id, unanswered;
		int64_t carries_ms, then_ms;
		uint64_t lost, own_lost;
		bool left;
	} c[] = {
		{ 2, 4, 1000, 0, 20, 0, false }, { 2, 5, 1000, 0, 20, 0, true },
		{ 2, 4, 30, 100, 20, 0, true },	 /* its queue has drained */
		{ 2, 4, 60, 300, 20, 0, false }, /* it carried what was sent later */
		{ 1, 4, 1000, 0, 20, 0, true },	 /* of another rail */
		{ 2, 1, 1000, 0, 9, 0, false },	 /* a queue lost it with its neighbours */
		{ 2, 2, 1000, 0, 9, 0, true },	 /* a switch loses one flow of several */
		{ 2, 9, 1000, 0, 20, 20, false } /* crowded */
	};

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct dr_path_stats st = no_answer;

		st.repeats = true;
		st.unanswered = c[i].unanswered;
		st.recent_segments = 1000;
		st.recent_retransmits = c[i].own_lost;
		grey_open(&f, &st, 200);
		others.recent_segments = 1000;
		others.recent_retransmits = c[i].lost;
		carry_for(&f, c[i].id, c[i].carries_ms);
		flow_for(&f, c[i].then_ms * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, c[i].left);
		flow_close(&f);
	}
}

/* Its queue takes small packets when it has no room for large ones. */
static void test_a_rail_that_carries_other_data_has_no_hole(void **state)
{
	struct dr_path_stats st = no_answer;

	(void)state;
	st.segment_bytes = 1000;
	st.silent_segments = 1;
	grey_open(&f, &st, 600);
	carry_for(&f, 2, 1000);
	assert_int_equal(sender_stats(&f).switches, 0);
	flow_for(&f, 150 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(f.p.downs[0][0], 1);
	flow_close(&f);
}

/* A connection that has sent little gets PROBE frames, whose answers decide. */
static void test_little_data_is_probed(void **state)
{
	struct dr_path_stats st = no_answer;
	struct dr_path *p;

	(void)state;
	st.silent_segments = 1;
	grey_open(&f, &st, 200);
	p = dr_channel_path(dr_manager_channel_at(f.p.m[0], 0), 0);
	for (int i = 0; i < 500;
		i++) { /* the other channel's data keeps the rail from being suspect */
		dr_path_heard(dr_channel_path(dr_manager_channel_at(f.p.m[0], 1), 1),
			dr_sim_world_clock(f.p.w, 0));
		flow_for(&f, DR_NS_PER_MS);
	}
	assert_true(dr_sim_world_clock(f.p.w, 0) - p->tx_last_ns <= 2 * BEAT_NS);
	flow_close(&f);
}

/* The last path of a channel is better than none. */
static void test_the_only_path_is_kept(void **state)
{
	struct dr_channel *ch;

	(void)state;
	grey_open(&f, &no_answer, 200);
	ch = dr_manager_channel_at(f.p.m[0], 0);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, UINT32_MAX);
	dr_sim_cut(f.p.w, 1, DR_SIM_BOTH, true);
	flow_for(&f, DR_NS_PER_S);
	assert_false(sender_stats(&f).path_up[1]);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, 200);
	flow_for(&f, DR_NS_PER_S);
	assert_non_null(dr_channel_path(ch, 0));
	assert_ptr_equal(dr_channel_path(ch, 0)->ops->stats, report); /* not a later one */
	flow_close(&f);
}

/* Data on another rail says nothing about the one on which data is owed. */
static void test_other_rails_data_clears_nothing(void **state)
{
	struct dr_sim_opts o = small_packets();

	(void)state;
	flow_open(&f, &o, WARM_NS);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	for (int i = 0; i < 50; i++) {
		struct dr_path *p = dr_channel_path(dr_manager_channel_at(f.p.m[0], 0), 1);

		if (p)
			dr_path_heard(p, dr_sim_world_clock(f.p.w, 0));
		flow_for(&f, DR_NS_PER_MS);
	}
	assert_int_equal(sender_stats(&f).active, 1);
	assert_true(f.stall_ns > 0 && f.stall_ns <= 15 * DR_NS_PER_MS);
	flow_close(&f);
}

/* What the kernel receives while nothing can be read is a sign of life. */
static void test_segments_that_the_kernel_holds_back(void **state)
{
	struct dr_path_stats st = { .rx_segments = 1 };

	(void)state;
	grey_open(&f, &st, UINT32_MAX);
	segments_step = 1;
	dr_sim_cut(f.p.w, 0, DR_SIM_NODE1, true);
	for (int i = 0; i < 50; i++) {
		flow_for(&f, DR_NS_PER_MS);
		f.p.m[0]->hb->d.rail[0].peer_miss = 0; /* it hears this end */
		assert_false(f.p.m[0]->hb->d.rail[0].down);
	}
	segments_step = 0;
	flow_for(&f, 200 * DR_NS_PER_MS); /* its datagrams are lost, too */
	assert_int_equal(sender_stats(&f).active, 1);
	flow_close(&f);
}

/* Segments of the time before the suspicion, and of other rails, are not. */
static void test_segments_before_the_suspicion(void **state)
{
	struct dr_path_stats st = { .rx_segments = 1 };
	struct dr_hb *h;

	(void)state;
	grey_open(&f, &st, UINT32_MAX);
	h = f.p.m[0]->hb;
	dr_hb_suspect(h, 0, dr_sim_world_clock(f.p.w, 0)); /* wrong */
	flow_for(&f, 20 * DR_NS_PER_MS);
	assert_false(dr_detect_misses(&h->d, 0, 2));
	reported.rx_segments = 1000;
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	flow_for(&f, 100 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	flow_close(&f);
}

static void test_segments_of_another_rail(void **state)
{
	struct dr_path_stats st = { .rx_segments = 1 };
	struct dr_channel *ch;

	(void)state;
	grey_open(&f, &st, UINT32_MAX);
	ch = dr_manager_channel_at(f.p.m[0], 0);
	dr_channel_path(ch, 1)->ops = dr_channel_path(ch, 0)->ops;
	segments_step = 1;
	dr_channel_path(ch, 0)->ops = dr_sim_ops(DR_SIM_STREAM);
	dr_sim_cut(f.p.w, 0, DR_SIM_NODE1, true); /* end 0 alone finds out */
	flow_for(&f, 100 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_true(f.stall_ns > 0 && f.stall_ns <= 15 * DR_NS_PER_MS);
	flow_close(&f);
}

/* Nothing is sent any more. The receiver's path reports `st`. */
static void idle_open(struct flow *of, const struct dr_path_stats *st)
{
	struct dr_sim_opts o = small_packets();
	static struct dr_transport_ops path_ops;
	struct dr_path *p;

	flow_open(of, &o, WARM_NS);
	p = dr_channel_path(dr_manager_channel_at(of->p.m[1], 0), 0);
	path_ops = *p->ops;
	path_ops.stats = report;
	p->ops = &path_ops;
	reported = *st;
	acked_step = segments_step = wire_step = 0;
	silent = NULL;
	n_reports = 0;
}

/* Its credits do not arrive, so that the sender waits for them, and nothing is owed to it. */
static void test_a_receiver_that_nothing_answers_leaves_the_path(void **state)
{
	struct dr_path_stats st = no_answer;

	(void)state;
	st.unacked_bytes = 64;
	idle_open(&f, &st);
	run_for(&f.p, 90 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).switches, 0);
	run_for(&f.p, 160 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(f.p.downs[0][0] + f.p.downs[1][0], 0);
	flow_close(&f);
}

/* What it sent last is asked for once. Nothing is sent before an idle path is probed, after 2 s. */
static void test_an_idle_receiver_costs_one_question(void **state)
{
	struct dr_path_stats st = no_answer;

	(void)state;
	idle_open(&f, &st);
	run_for(&f.p, 200 * DR_NS_PER_MS);
	assert_true(n_reports > 0);
	n_reports = 0;
	run_for(&f.p, 1500 * DR_NS_PER_MS);
	assert_int_equal(n_reports, 0);
	assert_int_equal(sender_stats(&f).switches, 0);
	flow_close(&f);
}

/* When the doubt is over, so is the question. */
static void test_a_question_ends(void **state)
{
	struct dr_path_stats st = no_answer;

	(void)state;
	st.segment_bytes = 1000;
	st.silent_segments = 1;
	grey_open(&f, &st, 200);
	flow_for(&f, 60 * DR_NS_PER_MS);
	assert_int_equal(f.p.m[0]->hb->rail[0].padded_size, 1000);
	assert_int_equal(f.p.m[0]->hb->rail[1].padded_size, 0);
	reported.window_shut = true;
	flow_for(&f, (DR_HB_ASKS + 2) * BEAT_NS);
	assert_int_equal(f.p.m[0]->hb->rail[0].padded_size, 0);
	flow_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_black_hole_under_data_is_found_fast),
		cmocka_unit_test(test_a_switch_after_an_own_stall_says_so),
		cmocka_unit_test(test_a_hole_for_large_packets),
		cmocka_unit_test(test_a_grey_rail_is_no_refuge),
		cmocka_unit_test(test_a_hole_far_away),
		cmocka_unit_test(test_only_datagrams_pass),
		cmocka_unit_test(test_lost_datagrams),
		cmocka_unit_test(test_a_slow_rail_is_not_left),
		cmocka_unit_test(test_no_answer_to_many_segments),
		cmocka_unit_test(test_padded_datagrams_decide_first),
		cmocka_unit_test(test_patience_with_a_path),
		cmocka_unit_test(test_a_rail_that_carries_other_data),
		cmocka_unit_test(test_a_rail_that_carries_other_data_has_no_hole),
		cmocka_unit_test(test_little_data_is_probed),
		cmocka_unit_test(test_the_only_path_is_kept),
		cmocka_unit_test(test_other_rails_data_clears_nothing),
		cmocka_unit_test(test_a_receiver_that_nothing_answers_leaves_the_path),
		cmocka_unit_test(test_an_idle_receiver_costs_one_question),
		cmocka_unit_test(test_a_question_ends),
		cmocka_unit_test(test_segments_that_the_kernel_holds_back),
		cmocka_unit_test(test_segments_before_the_suspicion),
		cmocka_unit_test(test_segments_of_another_rail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
