/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_testkit.h"

/*
 * The verdicts of the ChannelManager while data flows: a black hole, and rails that carry heartbeats but not
 * the data, or the data but no heartbeats. Channel 0 sends from end 0 to end 1; its primary is rail 0.
 */
enum { CHUNK = 8 << 10, WINDOW = 4 };
static const int64_t WARM_NS = 500 * DR_NS_PER_MS;

struct flow {
	struct pair p;
	uint8_t buf[2][WINDOW * CHUNK];
	struct dr_mem mem[2];
	uint64_t next[2]; /* oldest message that is not done */
	uint64_t posted[2];
	int64_t done_ns;  /* the receiver's last delivery */
	int64_t stall_ns; /* its longest time without one */
};

static void pump(struct flow *f)
{
	for (unsigned end = 0; end < 2; end++) {
		struct dr_channel *ch = dr_manager_channel_at(f->p.m[end], 0);
		struct dr_span span = { &f->mem[end], 0, CHUNK, 0 };
		int64_t now = dr_sim_world_clock(f->p.w, end);
		uint64_t seq;

		while (f->next[end] < f->posted[end] && dr_channel_test(ch, f->next[end]) == 1) {
			f->next[end]++;
			if (end == 0)
				continue;
			f->stall_ns = DR_MAX(f->stall_ns, now - f->done_ns);
			f->done_ns = now;
		}
		do
			span.off = (f->posted[end] % WINDOW) * CHUNK;
		while ((end == 0 ? dr_channel_send : dr_channel_recv)(ch, &span, 1, &seq, now) ==
				0 &&
			++f->posted[end]);
		dr_channel_flush(ch, now);
	}
}

static void flow_for(struct flow *f, int64_t ns)
{
	int64_t until = dr_sim_world_now(f->p.w) + ns;

	while (dr_sim_world_now(f->p.w) < until) {
		turn(&f->p, until);
		pump(f);
	}
}

static struct dr_sim_opts gigabit(void)
{
	struct dr_sim_opts o = world_of(DR_SIM_STREAM);

	o.link.bits_per_s = 1e9;
	o.segment_bytes = 1000;
	return o;
}

/* Data flows on rail 0 for warm_ns. */
static void flow_open_with(
	struct flow *f, const struct dr_sim_opts *o, enum dr_detect detect, int64_t warm_ns)
{
	struct dr_err e = { 0 };

	memset(f, 0, sizeof(*f));
	pair_open_with(&f->p, o, detect, NULL, 0);
	run_for(&f->p, 2 * DR_NS_PER_S);
	for (unsigned end = 0; end < 2; end++) {
		struct dr_memory m = { .base = f->buf[end], .len = WINDOW * CHUNK };

		if (dr_channel_mem_reg(dr_manager_channel_at(f->p.m[end], 0), &m, &f->mem[end], &e))
			fail_msg("%s", e.text);
	}
	f->done_ns = dr_sim_world_clock(f->p.w, 1);
	flow_for(f, warm_ns);
	f->stall_ns = 0;
}

static void flow_open(struct flow *f, const struct dr_sim_opts *o, int64_t warm_ns)
{
	flow_open_with(f, o, DR_DETECT_FAST, warm_ns);
}

static struct dr_channel_stats sender_stats(struct flow *f)
{
	struct dr_channel_stats st;

	dr_channel_stats(dr_manager_channel_at(f->p.m[0], 0), &st);
	return st;
}

static void flow_close(struct flow *f)
{
	for (unsigned end = 0; end < 2; end++) {
		struct dr_channel *ch = dr_manager_channel_at(f->p.m[end], 0);

		assert_int_equal(dr_channel_mem_dereg(
					 ch, &f->mem[end], dr_sim_world_clock(f->p.w, end), NULL),
			0);
	}
	pair_close(&f->p);
}

/* The stall is a few fast ticks and the switch, not three heartbeats. */
static void test_a_black_hole_under_data_is_found_fast(void **state)
{
	static const unsigned dirs[] = { DR_SIM_NODE0, DR_SIM_NODE1, DR_SIM_BOTH };
	struct dr_sim_opts o = gigabit();
	static struct flow f;

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

/* Large segments are lost, small ones and heartbeats pass. The rail is not used again before a datagram of
 * full size passes. */
static void test_a_hole_for_large_packets(void **state)
{
	struct dr_sim_opts o = gigabit();
	static struct flow f;

	(void)state;
	flow_open(&f, &o, WARM_NS);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, 600);
	flow_for(&f, 10 * DR_NS_PER_S);
	assert_true(f.stall_ns > 0 && f.stall_ns <= 150 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(dr_manager_rail_state(f.p.m[0], 0), DR_RAIL_DOWN);
	dr_sim_hole(f.p.w, 0, DR_SIM_NODE0, UINT32_MAX);
	flow_for(&f, 4 * DR_NS_PER_S);
	assert_int_equal(dr_manager_rail_state(f.p.m[0], 0), DR_RAIL_ALIVE);
	assert_int_equal(sender_stats(&f).active, 0);
	assert_int_equal(sender_stats(&f).failbacks, 1);
	flow_close(&f);
}

/* While the other rail is away for a moment, the grey one is all there is, and a connection over it comes up.
 * It is left as soon as the other one is back. */
static void test_a_grey_rail_is_no_refuge(void **state)
{
	struct dr_sim_opts o = gigabit();
	static struct flow f;
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
	struct dr_sim_opts o = gigabit();
	static struct flow f;

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
	struct dr_sim_opts o = gigabit();
	static struct flow f;

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

/* Only datagrams are lost, on a rail that carries data and on one that is idle: PROBE frames pass. */
static void test_lost_datagrams_are_no_failure(void **state)
{
	struct dr_sim_opts o = gigabit();
	static struct flow f;

	(void)state;
	for (unsigned rail = 0; rail < RAILS; rail++) {
		flow_open(&f, &o, WARM_NS);
		dr_sim_mute_dgrams(f.p.w, rail, DR_SIM_BOTH, true);
		flow_for(&f, 10 * DR_NS_PER_S);
		for (unsigned end = 0; end < 2; end++)
			assert_int_equal(f.p.downs[end][0] + f.p.downs[end][1], 0);
		assert_int_equal(sender_stats(&f).active, 0);
		assert_true(sender_stats(&f).path_up[1]);
		assert_int_equal(sender_stats(&f).switches, 0);
		flow_close(&f);
	}
}

/* Each message takes longer than any timer of progress: the transport's acknowledgements count. */
static void test_a_slow_rail_is_not_left(void **state)
{
	static const double rates[] = { 20e3, 100e3, 1e6 };
	static struct flow f;

	(void)state;
	for (unsigned i = 0; i < 2 * DR_ARRAY_LEN(rates); i++) {
		struct dr_sim_opts o = gigabit();

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

static struct dr_path_stats reported;
static uint64_t acked_step, segments_step;

static void report(struct dr_path *p, struct dr_path_stats *out)
{
	(void)p;
	reported.acked_bytes += acked_step;
	reported.rx_segments += segments_step;
	*out = reported;
}

/* Data on rail 0 is lost, heartbeats pass. The sender's path reports `st`. */
static void grey_open(struct flow *f, const struct dr_path_stats *st, uint32_t passes)
{
	struct dr_sim_opts o = gigabit();
	static struct dr_transport_ops path_ops;
	struct dr_path *p;

	flow_open(f, &o, WARM_NS);
	dr_sim_hole(f->p.w, 0, DR_SIM_NODE0, passes);
	p = dr_channel_path(dr_manager_channel_at(f->p.m[0], 0), 0);
	path_ops = *p->ops;
	path_ops.stats = report;
	p->ops = &path_ops;
	reported = *st;
	acked_step = segments_step = 0;
}

static const struct dr_path_stats no_answer = {
	.peer_ack_age_ns = 200 * DR_NS_PER_MS, .rtt_ns = DR_NS_PER_MS, .silent_segments = 8
};

static void test_no_answer_to_many_segments(void **state)
{
	static struct flow f;

	(void)state;
	grey_open(&f, &no_answer, 200);
	flow_for(&f, 250 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).switches, 1);
	assert_int_equal(f.p.downs[0][0], 0);
	flow_close(&f);
}

static void test_no_verdict_without_evidence(void **state)
{
	struct dr_path_stats few = no_answer, shut = no_answer, far = no_answer, young = no_answer;
	const struct dr_path_stats *st[] = { &few, &shut, &far, &young };
	static struct flow f;

	(void)state;
	few.silent_segments = 7;
	shut.window_shut = true;
	far.rtt_ns = DR_NS_PER_S;
	young.peer_ack_age_ns = 99 * DR_NS_PER_MS;
	for (unsigned i = 0; i < DR_ARRAY_LEN(st); i++) {
		grey_open(&f, st[i], 200);
		flow_for(&f, 1900 * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, 0);
		flow_close(&f);
	}
}

static void test_data_that_the_kernel_acknowledges_is_in_no_doubt(void **state)
{
	struct dr_path_stats st = no_answer;
	static struct flow f;

	(void)state;
	grey_open(&f, &st, 200);
	acked_step = 1;
	flow_for(&f, 5 * DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).switches, 0);
	flow_close(&f);
}

static void test_a_stalled_peer_is_in_no_doubt(void **state)
{
	static struct flow f;

	(void)state;
	grey_open(&f, &no_answer, 200);
	dr_channel_stalled(dr_manager_channel_at(f.p.m[0], 0), true, dr_sim_world_clock(f.p.w, 0));
	flow_for(&f, DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).switches, 0);
	flow_close(&f);
}

/* Whether packets of full size pass is found out first: then the rail is left, not one connection of it. */
static void test_padded_datagrams_decide_first(void **state)
{
	struct dr_path_stats st = no_answer;
	static struct flow f;

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
		unsigned silent_segments, unanswered;
		int64_t rtt_ms, kept_ms, left_ms;
	} c[] = {
		{ 1, 9, 1, 14000, 16000 },  /* it repeats segments */
		{ 1, 10, 1, 1900, 2500 },   /* it did so often enough */
		{ 0, 0, 1000, 7900, 8500 }, /* long round trips */
	};
	static struct flow f;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct dr_path_stats st = { .silent_segments = c[i].silent_segments,
			.unanswered = c[i].unanswered,
			.rtt_ns = c[i].rtt_ms * DR_NS_PER_MS };

		grey_open(&f, &st, 200);
		flow_for(&f, c[i].kept_ms * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, 0);
		flow_for(&f, (c[i].left_ms - c[i].kept_ms) * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, 1);
		flow_close(&f);
	}
}

/* A connection that has sent little gets PROBE frames, whose answers decide. */
static void test_little_data_is_probed(void **state)
{
	struct dr_path_stats st = no_answer;
	static struct flow f;
	struct dr_path *p;

	(void)state;
	st.silent_segments = 1;
	grey_open(&f, &st, 200);
	p = dr_channel_path(dr_manager_channel_at(f.p.m[0], 0), 0);
	for (int i = 0; i < 500;
		i++) { /* the other channel's data keeps the rail from being suspect */
		dr_channel_path(dr_manager_channel_at(f.p.m[0], 1), 1)->rx_last_ns =
			dr_sim_world_clock(f.p.w, 0);
		flow_for(&f, DR_NS_PER_MS);
	}
	assert_true(dr_sim_world_clock(f.p.w, 0) - p->tx_last_ns <= 2 * BEAT_NS);
	flow_close(&f);
}

/* The last path of a channel is better than none. */
static void test_the_only_path_is_kept(void **state)
{
	static struct flow f;
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
	struct dr_sim_opts o = gigabit();
	static struct flow f;

	(void)state;
	flow_open(&f, &o, WARM_NS);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	for (int i = 0; i < 50; i++) {
		struct dr_path *p = dr_channel_path(dr_manager_channel_at(f.p.m[0], 0), 1);

		if (p)
			p->rx_last_ns = dr_sim_world_clock(f.p.w, 0);
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
	static struct flow f;

	(void)state;
	grey_open(&f, &st, UINT32_MAX);
	segments_step = 1;
	dr_sim_cut(f.p.w, 0, DR_SIM_NODE1, true);
	for (int i = 0; i < 50; i++) {
		flow_for(&f, DR_NS_PER_MS);
		f.p.m[0]->hb.rail[0].peer_miss = 0; /* it hears this end */
		assert_false(f.p.m[0]->hb.rail[0].down);
	}
	segments_step = 0;
	flow_for(&f, 100 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	flow_close(&f);
}

/* Segments of the time before the suspicion, and of other rails, are not. */
static void test_segments_before_the_suspicion(void **state)
{
	struct dr_path_stats st = { .rx_segments = 1 };
	static struct flow f;
	struct dr_hb *h;

	(void)state;
	grey_open(&f, &st, UINT32_MAX);
	h = &f.p.m[0]->hb;
	dr_hb_suspect(h, 0, dr_sim_world_clock(f.p.w, 0)); /* wrong */
	flow_for(&f, 20 * DR_NS_PER_MS);
	assert_false(dr_hb_suspected(h, 0));
	memset(h->rail[0].silences, 0, sizeof(h->rail[0].silences));
	reported.rx_segments = 1000;
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	flow_for(&f, 100 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	for (unsigned i = 0; i < DR_HB_HISTOGRAM; i++)
		assert_int_equal(h->rail[0].silences[i], 0); /* no silence ended by itself */
	flow_close(&f);
}

static void test_segments_of_another_rail(void **state)
{
	struct dr_path_stats st = { .rx_segments = 1 };
	static struct flow f;
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

/* When the doubt is over, so is the question. */
static void test_a_question_ends(void **state)
{
	struct dr_path_stats st = no_answer;
	static struct flow f;

	(void)state;
	st.segment_bytes = 1000;
	st.silent_segments = 1;
	grey_open(&f, &st, 200);
	flow_for(&f, 60 * DR_NS_PER_MS);
	assert_int_equal(f.p.m[0]->hb.rail[0].padded_size, 1000);
	assert_int_equal(f.p.m[0]->hb.rail[1].padded_size, 0);
	reported.window_shut = true;
	flow_for(&f, 2 * BEAT_NS);
	assert_int_equal(f.p.m[0]->hb.rail[0].padded_size, 0);
	flow_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_black_hole_under_data_is_found_fast),
		cmocka_unit_test(test_a_hole_for_large_packets),
		cmocka_unit_test(test_a_grey_rail_is_no_refuge),
		cmocka_unit_test(test_a_hole_far_away),
		cmocka_unit_test(test_only_datagrams_pass),
		cmocka_unit_test(test_lost_datagrams_are_no_failure),
		cmocka_unit_test(test_a_slow_rail_is_not_left),
		cmocka_unit_test(test_no_answer_to_many_segments),
		cmocka_unit_test(test_no_verdict_without_evidence),
		cmocka_unit_test(test_data_that_the_kernel_acknowledges_is_in_no_doubt),
		cmocka_unit_test(test_a_stalled_peer_is_in_no_doubt),
		cmocka_unit_test(test_padded_datagrams_decide_first),
		cmocka_unit_test(test_patience_with_a_path),
		cmocka_unit_test(test_little_data_is_probed),
		cmocka_unit_test(test_the_only_path_is_kept),
		cmocka_unit_test(test_other_rails_data_clears_nothing),
		cmocka_unit_test(test_a_question_ends),
		cmocka_unit_test(test_segments_that_the_kernel_holds_back),
		cmocka_unit_test(test_segments_before_the_suspicion),
		cmocka_unit_test(test_segments_of_another_rail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
