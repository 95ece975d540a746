/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/rate_testkit.h"

static void test_a_rail_with_a_hundredth_of_the_other_ones_rate_is_named(void **state)
{
	char text[128];

	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	carry(0, 1e6, true, 2 * DR_NS_PER_S);
	assert_true(state_of(0).degraded && !state_of(1).degraded);
	assert_true(state_of(0).bps > 0.9e6 && state_of(0).bps < 1.1e6);
	assert_int_equal(changes, 1);
	struct dr_rate_state st = state_of(0);
	dr_rate_describe(&st, text, sizeof(text));
	assert_string_equal(text, "degraded: 1.0 Mb/s measured, rail 1 carries 9.4 Gb/s");
	carry(0, 9e9, true, 2 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
	assert_int_equal(changes, 2);
	st = state_of(0);
	dr_rate_describe(&st, text, sizeof(text));
	assert_string_equal(text, "no longer degraded: it carries 9.0 Gb/s or more");
}

static void test_a_rail_that_is_asked_for_little_is_not_slow(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	carry(0, 1e6, false, 10 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
	assert_int_equal(changes, 0);
}

/* Data that waited for part of a window only does not make it a measurement. */
static void test_data_waits_during_the_whole_window(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	for (unsigned i = 0; i < 20; i++) {
		carry(0, 1e6, true, 2 * DR_RATE_SAMPLE_NS);
		carry(0, 1e6, false, DR_RATE_SAMPLE_NS);
	}
	assert_false(state_of(0).degraded);
}

static void test_nothing_acknowledged_shows_nothing(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	carry(0, 0, true, 10 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
}

static void test_one_slow_window_is_no_verdict(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	carry(0, 9e9, true, DR_NS_PER_S);
	for (unsigned i = 0; i < 10; i++) {
		carry(0, 1e6, true, DR_RATE_WINDOW_NS);
		carry(0, 9e9, true, DR_RATE_WINDOW_NS);
	}
	assert_int_equal(changes, 0);
}

/* Between a tenth and a fifth of the other rail's rate the verdict stays as it is. */
static void test_the_verdict_has_a_hysteresis(void **state)
{
	(void)state;
	carry(1, 1e9, true, 2 * DR_NS_PER_S);
	carry(0, 150e6, true, 4 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
	carry(0, 50e6, true, 2 * DR_NS_PER_S);
	assert_true(state_of(0).degraded);
	carry(0, 150e6, true, 4 * DR_NS_PER_S);
	assert_true(state_of(0).degraded);
	carry(0, 250e6, true, 2 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
}

static void test_an_old_measurement_is_no_reference(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	now += DR_RATE_RECENT_NS;
	carry(0, 1e6, true, 4 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
	assert_int_equal(dr_rate_reference(&r, 0, now), -1);
}

/* Two workers use the rail: the sum of both is what it carries, and it is enough that one of them waits. */
static void test_the_rates_of_all_workers_count(void **state)
{
	(void)state;
	carry(1, 1e9, true, 2 * DR_NS_PER_S);
	int64_t since = now;
	for (unsigned i = 0; i < 20; i++) {
		now += DR_RATE_SAMPLE_NS;
		dr_rate_acked(&r, 0, 3125000, DR_NEVER, now - 1);
		dr_rate_acked(&r, 0, 12500, since, now);
	}
	assert_false(state_of(0).degraded); /* 251 Mb/s */
	assert_true(state_of(0).bps > 200e6);
}

static void test_a_lower_bound_does_not_lower_the_capacity(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	carry(1, 1e6, false, 2 * DR_NS_PER_S);
	carry(0, 100e6, true, 2 * DR_NS_PER_S);
	assert_true(state_of(0).degraded);
}

static void test_lost_heartbeats_are_named_after_a_hundred(void **state)
{
	char text[128];

	(void)state;
	assert_int_equal(state_of(0).loss_percent, -1);
	assert_false(dr_rate_datagrams(&r, 0, 0, 0, now));
	now += 2 * DR_RATE_LOSS_NS;
	for (unsigned i = 0; i < 9; i++)
		assert_false(dr_rate_datagrams(&r, 0, 11, 5, now));
	assert_true(dr_rate_datagrams(&r, 0, 1, 0, now));
	struct dr_rate_state st = state_of(0);
	assert_true(st.degraded && st.by_loss);
	dr_rate_describe(&st, text, sizeof(text));
	assert_string_equal(text, "degraded: 45 % of heartbeats lost");
	beats(15, 5);
	assert_true(state_of(0).degraded);
	beats(5, 2);
	assert_false(state_of(0).degraded);
}

/* A fast phase sends as many in a moment in which the receiver's queue may be full. */
static void test_a_burst_of_lost_heartbeats_is_no_sample(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 38; i++) {
		now += i % 19 < 10 ? 0 : DR_RATE_LOSS_NS / 9 + 1;
		changes +=
			dr_rate_datagrams(&r, 0, i % 19 < 10 ? 20 : 200, i % 19 < 10 ? 20 : 0, now);
	}
	assert_int_equal(changes, 0);
	assert_int_equal(state_of(0).loss_percent, 10);
}

static void test_five_percent_loss_is_no_degradation(void **state)
{
	(void)state;
	beats(5, 20);
	beats(19, 3);
	assert_int_equal(changes, 0);
	assert_int_equal(state_of(0).loss_percent, 19);
}

/* The peer's report `number`: it received datagram `newest` last and `got` small ones. We have sent `sent` on this
 * rail alone. */
static bool report(struct dr_rate_reports *p, uint64_t number, uint64_t newest, unsigned got,
	unsigned sent, int *lost)
{
	struct dr_rate_report rep = { .number = number,
		.newest = newest,
		.got = (uint16_t)got,
		.last = sent,
		.sent = (uint16_t)sent,
		.ns = now };
	int all;

	now += DR_RATE_SAMPLE_NS;
	*lost = 0;
	return dr_rate_report(p, &rep, DR_NS_PER_S, &all, lost);
}

/* A queue of a second on a slow rail: for a second nothing arrives, and nothing is lost. */
static void test_datagrams_in_a_queue_are_not_lost(void **state)
{
	struct dr_rate_reports p = { 0 };
	int lost, sum = 0;

	(void)state;
	assert_false(report(&p, 1, 65530, 65530, 65530, &lost));
	assert_false(report(&p, 1, 65530, 65530, 65540, &lost)); /* the same report */
	for (unsigned i = 2; i < 30; i++) {
		unsigned sent = 65530 + 10 * i, got = i < 10 ? 65530 : sent - 100;

		assert_true(report(&p, i, got, got, sent, &lost));
		sum += lost;
	}
	assert_int_equal(sum, 0);
}

static void test_lost_datagrams_are_counted(void **state)
{
	struct dr_rate_reports p = { 0 };
	int lost, sum = 0;

	(void)state;
	for (unsigned i = 0; i < 11; i++) {
		(void)report(&p, i + 1, 20 * i, 12 * i, 20 * i, &lost);
		sum += lost;
	}
	assert_int_equal(sum, 80);
}

/* The socket of a stopped process overflows: what it did not receive was not lost by the rail. */
static void test_a_pause_of_the_peer_is_not_counted(void **state)
{
	struct dr_rate_reports p = { 0 };
	int lost;

	(void)state;
	(void)report(&p, 1, 10, 10, 10, &lost);
	assert_true(report(&p, 2, 20, 20, 20, &lost));
	now += 3 * DR_NS_PER_S;
	assert_false(report(&p, 3, 1000, 200, 1000, &lost));
	assert_true(report(&p, 4, 1010, 210, 1010, &lost));
	assert_int_equal(lost, 0);
}

static void test_a_probe_measures_what_the_rail_carries(void **state)
{
	struct dr_rate_probe p = probe_of(1e6, 0);

	(void)state;
	assert_true(p.proven && !p.whole && p.bps > 0.9e6 && p.bps < 1.2e6);
	assert_true(p.sent <= 64 << 10); /* little is queued on a slow rail */
	p = probe_of(1e6, 20000);
	assert_true(p.proven && !p.whole && p.bps < 2e6);
	p = probe_of(1e6, 64000);
	assert_true(p.proven && !p.whole && p.bps < 2e6);
	p = probe_of(20e6, 0);
	assert_true(p.proven && !p.whole && p.bps > 15e6 && p.bps < 25e6);
	p = probe_of(100e6, 0);
	assert_true(p.proven && p.bps > 80e6 && p.bps < 110e6);
	p = probe_of(0, 0);
	assert_true(p.done && p.proven && !p.whole && p.bps < 1e3);
}

/* The time of a return: four round trips. */
static void test_a_fast_rail_is_probed_with_few_looks(void **state)
{
	int64_t begin = now;
	struct dr_rate_probe p = probe_of(10e9, 0);

	(void)state;
	assert_true(p.whole && p.bps > DR_RATE_PROBE_MAX_BPS);
	assert_true(p.sent < DR_RATE_BURST && now - begin <= 5 * DR_NS_PER_MS);
}

/* The fastest chunk counts, and the burst goes on while they become faster. */
static void test_a_ramp_is_not_the_rate(void **state)
{
	struct dr_rate_probe p =
		probe_with(&(struct slow){ .bps = 800e6, .ramp_ns = 55 * DR_NS_PER_MS });

	(void)state;
	assert_true(p.whole && p.bps > DR_RATE_PROBE_MAX_BPS);
	assert_true(p.sent > DR_RATE_BURST / 2 && p.sent <= DR_RATE_BURST_MAX);
}

static void test_a_closed_buffer_of_the_peer_is_not_the_rail(void **state)
{
	struct dr_rate_probe p =
		probe_with(&(struct slow){ .bps = 150e6, .held_ns = 1 * DR_NS_PER_MS });

	(void)state;
	assert_true(p.proven && p.bps > 140e6 && p.bps < 160e6);
	p = probe_with(&(struct slow){ .bps = 150e6, .held_ns = 6 * DR_NS_PER_MS });
	assert_false(p.proven);
	p = probe_with(&(struct slow){ .bps = 150e6, .stopped = true });
	assert_true(p.done && !p.proven);
}

/* What the kernel has leaves all the same. */
static void test_time_in_which_the_prober_does_not_run_proves_nothing(void **state)
{
	struct slow sl = { .bps = 150e6, .away_ns = 36 * DR_NS_PER_MS, .handed_max = 64 << 10 };
	struct dr_rate_probe p = probe_with(&sl);

	(void)state;
	assert_false(p.proven);
	sl.handed_max = 0;
	sl.bps = 1e6;
	p = probe_with(&sl);
	assert_true(p.proven && p.bps < 2e6);
}

/* However little of the time counts, the rail carried all that it carried in the whole of it. */
static void test_a_lower_bound_is_no_more_than_the_rail_carries(void **state)
{
	unsigned unproven = 0;

	(void)state;
	for (int64_t ms = 4; ms < 40; ms++)
		for (unsigned held = 0; held < 10; held += 3) {
			struct slow sl = { .bps = 5e6,
				.away_ns = ms * DR_NS_PER_MS,
				.held_ns = held * DR_NS_PER_MS,
				.handed_max = 4 << 10 };
			struct dr_rate_probe p = probe_with(&sl);

			assert_true(p.proven || p.bps < 5.5e6);
			unproven += !p.proven;
		}
	assert_true(unproven > 50);
}

/* Acknowledgements that are found late show neither a slow rail nor hide one. */
static void test_what_was_not_polled_for_is_no_time_of_the_rail(void **state)
{
	struct slow sl = { .bps = 150e6, .away_ns = 36 * DR_NS_PER_MS };
	struct dr_rate_probe p = probe_with(&sl);
	unsigned probes;

	(void)state;
	assert_true(p.proven && p.bps < 140e6);
	sl.polled = true;
	p = probe_with(&sl);
	assert_false(p.proven);
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	assert_int_equal(gate_with(&sl, true, &probes), DR_RATE_OPEN);
	assert_int_equal(probes, 1);
	assert_false(state_of(0).degraded);
	sl.bps = 2e6;
	sl.away_ns = 12 * DR_NS_PER_MS;
	assert_int_equal(gate_with(&sl, true, &probes), DR_RATE_SHUT);
	assert_true(state_of(0).degraded && state_of(0).bps < 3e6);
	dr_rate_init(&r, 2);
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	sl.away_ns = 36 * DR_NS_PER_MS;
	sl.window_ns = DR_NS_PER_S;
	assert_false(probe_with(&sl).proven);
	assert_int_equal(gate_with(&sl, true, &probes), DR_RATE_SHUT);
	assert_true(state_of(0).degraded);
}

/* What the other rail carries becomes known after the probe. */
static void test_a_slow_rail_is_known_later(void **state)
{
	struct slow sl = {
		.bps = 2e6, .away_ns = 36 * DR_NS_PER_MS, .polled = true, .window_ns = DR_NS_PER_S
	};
	struct dr_rate_question q = { .rail = 0, .other = 1, .busy = true };
	struct dr_rate_probe p;
	unsigned which;

	(void)state;
	q.asked_ns = now;
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	p = probe_with(&sl);
	assert_false(p.proven);
	dr_rate_probed(&r, 0, &p, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_WAIT);
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	assert_int_equal(which, 0);
	p = probe_with(&sl);
	assert_false(p.proven);
	dr_rate_probed(&r, 0, &p, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
}

enum { WINDOW_MS = 470 };

/* What is on the way takes a part of the NIC's window only: of rails of 1 Mb/s or more behind a small token bucket, too. */
static void test_filler_does_not_reach_the_window_of_a_nic(void **state)
{
	static const double rates[] = { 0.1e6, 0.3e6, 1e6, 3e6, 20e6, 100e6 };
	struct slow sl = { .polled = true, .window_ns = WINDOW_MS * DR_NS_PER_MS };

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(rates); i++)
		for (sl.bucket = 0; sl.bucket <= 40 << 10; sl.bucket += 4 << 10) {
			struct dr_rate_probe p;

			sl.bps = rates[i];
			p = probe_with(&sl);
			assert_true(p.proven && p.bps > 0.8 * sl.bps && p.bps < 3 * sl.bps);
			assert_true(p.whole == (sl.bps > 50e6));
			if (sl.bucket == 0 || (sl.bps >= 1e6 && sl.bucket <= 32 << 10))
				assert_true((double)(p.sent - sl.bucket) * 8 < 0.5 * sl.bps);
		}
}

/* A NIC gives up what a larger bucket has let in; by then the rate is known. */
static void test_a_rate_is_known_before_the_nic_gives_up(void **state)
{
	struct slow sl = { .bps = 1e6,
		.polled = true,
		.bucket = 200 << 10,
		.window_ns = WINDOW_MS * DR_NS_PER_MS };
	int64_t begin = now;
	struct dr_rate_probe p = probe_with(&sl);

	(void)state;
	assert_true(p.proven && !p.whole && p.bps > 0.8e6 && p.bps < 1.2e6);
	assert_true(now - begin < 300 * DR_NS_PER_MS);
	sl.stands_ns = DR_NS_PER_S; /* nothing is carried: nothing is known */
	sl.bucket = 0;
	assert_true(probe_with(&sl).bps == 0);
}

/* One repetition of a lost packet is no rate, and the ramp goes on. */
static void test_a_chunk_that_took_long_once_is_repeated(void **state)
{
	struct slow sl = { .bps = 4e9,
		.polled = true,
		.stands_ns = 70 * DR_NS_PER_MS,
		.window_ns = WINDOW_MS * DR_NS_PER_MS };
	struct dr_rate_probe p = probe_with(&sl);

	(void)state;
	assert_true(p.whole && p.proven && p.bps >= DR_RATE_PROBE_MAX_BPS);
}

/* Neither is a long round trip, or a moment in which this process did not look. */
static void test_a_round_trip_is_no_part_of_the_window(void **state)
{
	struct slow sl = { .bps = 4e9,
		.polled = true,
		.rtt_ns = 120 * DR_NS_PER_MS, /* more than the time of a burst without it */
		.window_ns = WINDOW_MS * DR_NS_PER_MS };
	struct dr_rate_probe p = probe_with(&sl);

	(void)state;
	assert_true(p.whole && p.bps > DR_RATE_PROBE_MAX_BPS);
	sl.rtt_ns = 25 * DR_NS_PER_MS;
	sl.window_ns = 34 * DR_NS_PER_MS;
	p = probe_with(&sl);
	assert_true(p.whole && p.bps > DR_RATE_PROBE_MAX_BPS);
	sl.rtt_ns = 6 * DR_NS_PER_MS;
	sl.window_ns = 9 * DR_NS_PER_MS;
	p = probe_with(&sl);
	assert_true(p.whole && p.bps > DR_RATE_PROBE_MAX_BPS);
}

/* The connection that ends in a probe says nothing, and does not make the one before it be forgotten. */
static void test_a_lost_probe_leaves_the_one_before_it(void **state)
{
	struct dr_rate_probe lost = { .done = true };
	struct dr_rate_question q = { .rail = 0, .other = 1 };
	struct dr_rate_probe p;
	unsigned which;

	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	q.asked_ns = now;
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	p = probe_of(1e6, 0);
	dr_rate_probed(&r, 0, &p, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	dr_rate_probed(&r, 0, &lost, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_LOST);
	q.asked_ns = now += DR_NS_PER_S;
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	p = probe_of(1e6, 0);
	dr_rate_probed(&r, 0, &p, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
	assert_true(state_of(0).degraded);
}

/* Of the rest's time little counts, but of the whole burst's enough to tell. */
static void test_a_rest_that_nobody_looked_at_hides_no_slow_rail(void **state)
{
	struct dr_rate_look look = { .polled = true, .rtt_ns = DR_NS_PER_MS };
	struct dr_rate_probe p;

	(void)state;
	carry(1, 60e6, true, 2 * DR_NS_PER_S);
	for (unsigned i = 0; i < 2; i++) {
		now += DR_NS_PER_S;
		dr_rate_probe_init(&p, 0, 0, WINDOW_MS * DR_NS_PER_MS);
		look.acked = look.handed = 0;
		for (unsigned n = 0; n < 6; n++) { /* 2 and 8 KiB at once, then 32 KiB */
			(void)dr_rate_probe_step(&p, &look, now);
			look.handed = p.sent;
			if (n < 2)
				look.acked = p.sent;
			now += (n < 3 ? 1 : n < 5 ? 52 : 30) * DR_NS_PER_MS;
		}
		look.acked = p.sent; /* seen late */
		(void)dr_rate_probe_step(&p, &look, now);
		assert_true(p.done && !p.proven && p.most < 6e6);
		dr_rate_probed(&r, 0, &p, now);
	}
	assert_true(state_of(0).degraded);
}

/* Nearly all of the time is none in which the rail was looked at: it may be fast. */
static void test_a_rate_that_may_be_enough_proves_nothing(void **state)
{
	struct dr_rate_look look = { .polled = true, .rtt_ns = DR_NS_PER_MS };
	struct dr_rate_probe p;

	(void)state;
	carry(1, 60e6, true, 2 * DR_NS_PER_S);
	for (unsigned i = 0; i < 3; i++) {
		now += DR_NS_PER_S;
		dr_rate_probe_init(&p, 0, 0, WINDOW_MS * DR_NS_PER_MS);
		look.acked = look.handed = 0;
		while (!p.done) {
			(void)dr_rate_probe_step(&p, &look, now);
			look.acked = look.handed = p.sent;
			now += 55 * DR_NS_PER_MS;
		}
		assert_true(!p.proven && p.bps < 2e6);
		dr_rate_probed(&r, 0, &p, now);
	}
	assert_false(state_of(0).degraded);
}

/* Its time is over when the second chunk is carried, and nobody looked in between. */
static void test_a_burst_whose_time_ends_unseen_is_not_whole(void **state)
{
	struct dr_rate_look look = { 0 };
	struct dr_rate_probe p;

	(void)state;
	dr_rate_probe_init(&p, DR_NS_PER_MS, 0, 0);
	while (!p.done) {
		(void)dr_rate_probe_step(&p, &look, now);
		look.handed = p.sent;
		(void)dr_rate_probe_step(&p, &look, now += DR_NS_PER_MS);
		look.acked = p.sent;
		now += 54 * DR_NS_PER_MS;
	}
	assert_true(p.proven && !p.whole && p.bps < 4e6);
}

/* Sixteen connections on one processor: another one gets its share and no more. */
static void test_a_probe_as_fast_as_a_connection_in_use_shows_nothing(void **state)
{
	(void)state;
	carry(1, 320e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(gate_after(24e6, true), DR_RATE_SHUT);
	assert_true(state_of(0).degraded);
	dr_rate_init(&r, 2);
	carry(1, 320e6, true, 2 * DR_NS_PER_S);
	dr_rate_flows(&r, 1, 7);
	dr_rate_flows(&r, 1, 9);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gate_after(24e6, true), DR_RATE_OPEN);
	assert_false(state_of(0).degraded);
	assert_int_equal(gate_after(5e6, true), DR_RATE_SHUT);
	assert_true(state_of(0).degraded && state_of(0).bps < 6e6);
	dr_rate_flows(&r, 1, -16);
	assert_int_equal(gate_after(24e6, true), DR_RATE_SHUT);
}

/* The same where the other rail's capacity is a lower bound, and the burst is not carried in its time. */
static void test_a_share_of_a_lower_bound_is_enough(void **state)
{
	(void)state;
	carry(1, 320e6, false, 2 * DR_NS_PER_S);
	assert_int_equal(gate_after(40e6, true), DR_RATE_SHUT);
	dr_rate_init(&r, 2);
	carry(1, 320e6, false, 2 * DR_NS_PER_S);
	dr_rate_flows(&r, 1, 16);
	assert_int_equal(gate_after(40e6, true), DR_RATE_OPEN);
}

static void test_a_slow_rail_is_not_failed_back_to(void **state)
{
	(void)state;
	carry(1, 9.4e9, false, 2 * DR_NS_PER_S);
	assert_int_equal(gate_after(1e6, true), DR_RATE_SHUT);
	assert_true(state_of(0).degraded && state_of(0).bps < 1.2e6);
	assert_int_equal(
		gate_after(100e6, true), DR_RATE_SHUT); /* it carries the burst in its time */
	assert_int_equal(gate_after(9e9, true), DR_RATE_OPEN);
	dr_rate_init(&r, 2);
	carry(1, 50e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(gate_after(20e6, true), DR_RATE_OPEN);
}

/* A lower bound may be too high, for example if the clock stood still while it was measured. It keeps a rail waiting
 * that is not degraded, but not for as long as it is remembered. */
static void test_a_lower_bound_refuses_a_sound_rail_for_a_while(void **state)
{
	unsigned refused = 0;

	(void)state;
	carry(1, 300e6, false, DR_NS_PER_S);
	while (gate_after(50e6, true) != DR_RATE_OPEN)
		assert_true(++refused < 3);
	assert_int_equal(refused, 2);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(gate_after(25e6, true), DR_RATE_SHUT);
}

/* A probe shows no difference above that. */
static void test_a_probe_shows_no_more_than_its_limit(void **state)
{
	struct dr_rate_probe p = probe_of(4e9, 0);

	(void)state;
	assert_true(p.bps > 1e9);
	dr_rate_probed(&r, 1, &p, now);
	assert_true(state_of(1).carries_bps == DR_RATE_PROBE_MAX_BPS);
	carry(1, 9.4e9, false, 2 * DR_NS_PER_S);
	assert_true(state_of(1).carries_bps > 9e9);
	/* The clock stood still in the part that was late. */
	dr_rate_init(&r, 2);
	p = (struct dr_rate_probe){ .done = true, .proven = true, .bps = 4e15 };
	dr_rate_probed(&r, 1, &p, now);
	assert_true(state_of(1).carries_bps == DR_RATE_PROBE_MAX_BPS && state_of(1).bps == 0);
}

/* The age of an acknowledgement is known to the kernel's clock tick. It shortens a chunk only where the look was late. */
static void test_an_age_is_not_exact(void **state)
{
	struct dr_rate_look look = { 0 };
	struct dr_rate_probe p;

	(void)state;
	dr_rate_probe_init(&p, DR_NS_PER_MS, 0, 0);
	while (!p.done) {
		(void)dr_rate_probe_step(&p, &look, now);
		look.handed = look.acked = p.sent;
		now += 30 * DR_NS_PER_MS;
		look.age_ns = p.last < DR_RATE_CHUNK_MAX ? 30 * DR_NS_PER_MS : 8 * DR_NS_PER_MS;
	}
	assert_true(p.bps > 135e6 && p.bps < 145e6); /* 512 KiB in 30 ms */
	assert_true(p.sent >= DR_RATE_BURST);	     /* the late looks cost nothing */
}

static void test_one_slow_probe_refuses_nothing(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1 };
	struct dr_rate_probe p;
	unsigned which;

	(void)state;
	carry(1, 1.4e9, false, 2 * DR_NS_PER_S);
	carry(0, 1e6, true, DR_RATE_WINDOW_NS); /* as the rail was cut */
	q.asked_ns = now;
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	p = probe_of(100e6, 0);
	assert_false(dr_rate_probed(&r, 0, &p, now));
	assert_false(state_of(0).degraded);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	p = probe_of(1e9, 0);
	dr_rate_probed(&r, 0, &p, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_OPEN);
	assert_false(state_of(0).degraded);
	/* That one was long ago: two more are needed. */
	unsigned probes;
	assert_int_equal(gate_with(&(struct slow){ .bps = 50e6 }, true, &probes), DR_RATE_SHUT);
	assert_int_equal(probes, 2);
	assert_int_equal(gate_with(&(struct slow){ .bps = 50e6 }, true, &probes), DR_RATE_SHUT);
	assert_int_equal(probes, 1);
}

static void test_a_probe_that_proves_nothing_names_no_rail(void **state)
{
	struct slow sl = { .bps = 20e6, .held_ns = 6 * DR_NS_PER_MS };
	unsigned probes;

	(void)state;
	carry(1, 1.4e9, false, 2 * DR_NS_PER_S);
	assert_int_equal(gate_with(&sl, true, &probes), DR_RATE_OPEN);
	assert_int_equal(probes, 1);
	assert_false(state_of(0).degraded);
	/* Of a rail that is named it is no answer. */
	assert_int_equal(gate_after(1e6, true), DR_RATE_SHUT);
	assert_int_equal(gate_with(&sl, true, &probes), DR_RATE_LOST);
	assert_true(state_of(0).degraded);
}

/* Also where the probe cannot tell whether the rail has the fifth that ends the mark. */
static void test_a_rail_that_traffic_returned_to_is_not_degraded(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	assert_int_equal(gate_after(1e6, true), DR_RATE_SHUT);
	assert_int_equal(changes, 1);
	assert_int_equal(gate_after(500e6, true), DR_RATE_OPEN);
	assert_true(dr_rate_returned(&r, 0));
	assert_false(state_of(0).degraded);
	assert_false(dr_rate_returned(&r, 0));
	carry(0, 1e6, true, 2 * DR_NS_PER_S); /* its traffic may say so again */
	assert_true(state_of(0).degraded);
}

static void test_an_idle_channel_fails_back_to_a_rail_that_carries_the_burst(void **state)
{
	(void)state;
	assert_int_equal(gate_after(200e6, false), DR_RATE_OPEN);
}

/* Without a reference an idle channel probes the other rail; traffic measures it by itself. */
static void test_a_slow_rail_is_compared_with_the_rail_in_use(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .asked_ns = now };
	struct dr_rate_probe p;
	unsigned which;

	(void)state;
	assert_int_equal(gate_after(20e6, true), DR_RATE_WAIT);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	assert_int_equal(which, 1);
	p = probe_of(30e6, 0);
	dr_rate_probed(&r, 1, &p, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_OPEN);
}

static void test_a_lost_probe_is_no_measurement(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .asked_ns = now };
	struct dr_rate_probe p = { .done = true };
	unsigned which;

	(void)state;
	carry(1, 9.4e9, false, 2 * DR_NS_PER_S);
	q.asked_ns = now;
	dr_rate_gate(&r, &q, now, &which);
	dr_rate_probed(&r, 0, &p, now);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_LOST);
	assert_false(state_of(0).degraded);
	q.asked_ns = now += DR_NS_PER_S; /* the next question has a probe of its own */
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_a_probe_measures_what_the_rail_carries, setup),
		cmocka_unit_test_setup(test_a_fast_rail_is_probed_with_few_looks, setup),
		cmocka_unit_test_setup(test_a_ramp_is_not_the_rate, setup),
		cmocka_unit_test_setup(test_a_closed_buffer_of_the_peer_is_not_the_rail, setup),
		cmocka_unit_test_setup(
			test_time_in_which_the_prober_does_not_run_proves_nothing, setup),
		cmocka_unit_test_setup(test_what_was_not_polled_for_is_no_time_of_the_rail, setup),
		cmocka_unit_test_setup(test_a_slow_rail_is_known_later, setup),
		cmocka_unit_test_setup(test_filler_does_not_reach_the_window_of_a_nic, setup),
		cmocka_unit_test_setup(test_a_rate_is_known_before_the_nic_gives_up, setup),
		cmocka_unit_test_setup(test_a_chunk_that_took_long_once_is_repeated, setup),
		cmocka_unit_test_setup(test_a_round_trip_is_no_part_of_the_window, setup),
		cmocka_unit_test_setup(test_a_rest_that_nobody_looked_at_hides_no_slow_rail, setup),
		cmocka_unit_test_setup(test_a_burst_whose_time_ends_unseen_is_not_whole, setup),
		cmocka_unit_test_setup(test_a_rate_that_may_be_enough_proves_nothing, setup),
		cmocka_unit_test_setup(test_a_lost_probe_leaves_the_one_before_it, setup),
		cmocka_unit_test_setup(
			test_a_probe_as_fast_as_a_connection_in_use_shows_nothing, setup),
		cmocka_unit_test_setup(test_a_share_of_a_lower_bound_is_enough, setup),
		cmocka_unit_test_setup(test_a_lower_bound_refuses_a_sound_rail_for_a_while, setup),
		cmocka_unit_test_setup(test_a_probe_shows_no_more_than_its_limit, setup),
		cmocka_unit_test_setup(test_an_age_is_not_exact, setup),
		cmocka_unit_test_setup(test_one_slow_probe_refuses_nothing, setup),
		cmocka_unit_test_setup(test_a_probe_that_proves_nothing_names_no_rail, setup),
		cmocka_unit_test_setup(test_a_rail_that_traffic_returned_to_is_not_degraded, setup),
		cmocka_unit_test_setup(test_a_lower_bound_is_no_more_than_the_rail_carries, setup),
		cmocka_unit_test_setup(test_a_slow_rail_is_not_failed_back_to, setup),
		cmocka_unit_test_setup(
			test_an_idle_channel_fails_back_to_a_rail_that_carries_the_burst, setup),
		cmocka_unit_test_setup(test_a_slow_rail_is_compared_with_the_rail_in_use, setup),
		cmocka_unit_test_setup(test_a_lost_probe_is_no_measurement, setup),
		cmocka_unit_test_setup(
			test_a_rail_with_a_hundredth_of_the_other_ones_rate_is_named, setup),
		cmocka_unit_test_setup(test_a_rail_that_is_asked_for_little_is_not_slow, setup),
		cmocka_unit_test_setup(test_data_waits_during_the_whole_window, setup),
		cmocka_unit_test_setup(test_nothing_acknowledged_shows_nothing, setup),
		cmocka_unit_test_setup(test_one_slow_window_is_no_verdict, setup),
		cmocka_unit_test_setup(test_the_verdict_has_a_hysteresis, setup),
		cmocka_unit_test_setup(test_an_old_measurement_is_no_reference, setup),
		cmocka_unit_test_setup(test_the_rates_of_all_workers_count, setup),
		cmocka_unit_test_setup(test_a_lower_bound_does_not_lower_the_capacity, setup),
		cmocka_unit_test_setup(test_lost_heartbeats_are_named_after_a_hundred, setup),
		cmocka_unit_test_setup(test_a_burst_of_lost_heartbeats_is_no_sample, setup),
		cmocka_unit_test_setup(test_five_percent_loss_is_no_degradation, setup),
		cmocka_unit_test_setup(test_datagrams_in_a_queue_are_not_lost, setup),
		cmocka_unit_test_setup(test_lost_datagrams_are_counted, setup),
		cmocka_unit_test_setup(test_a_pause_of_the_peer_is_not_counted, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
