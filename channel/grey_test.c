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
static void flow_open(struct flow *f, const struct dr_sim_opts *o, int64_t warm_ns)
{
	struct dr_err e = { 0 };

	memset(f, 0, sizeof(*f));
	pair_open_with(&f->p, o, DR_DETECT_FAST, NULL, 0);
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
	for (unsigned i = 0; i < DR_ARRAY_LEN(rates); i++) {
		struct dr_sim_opts o = gigabit();

		o.link.bits_per_s = rates[i];
		o.segment_bytes = 100;
		flow_open(&f, &o, 0);
		flow_for(&f, 60 * DR_NS_PER_S);
		assert_true(f.next[1] > 5);
		assert_int_equal(sender_stats(&f).switches, 0);
		assert_int_equal(sender_stats(&f).active, 0);
		flow_close(&f);
	}
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
