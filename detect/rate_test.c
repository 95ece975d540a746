/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Rail 0 beside rail 1, sampled every 100 ms. */
static struct dr_rate r;
static int64_t now;
static unsigned changes;

static int setup(void **state)
{
	(void)state;
	dr_rate_init(&r, 2);
	now = DR_NS_PER_S;
	changes = 0;
	return 0;
}

/* For for_ns the rail carries bps; waits: data waits all the time. */
static void carry(unsigned rail, double bps, bool waits, int64_t for_ns)
{
	int64_t since = waits ? now : DR_NEVER, end = now + for_ns;

	while (now < end) {
		now += DR_RATE_SAMPLE_NS;
		changes += dr_rate_acked(
			&r, rail, (uint64_t)(bps / 8e9 * (double)DR_RATE_SAMPLE_NS), since, now);
	}
}

static struct dr_rate_state state_of(unsigned rail)
{
	struct dr_rate_state st;

	dr_rate_get(&r, rail, &st);
	return st;
}

/* Heartbeats: `lost` of 100, n times. */
static void beats(int lost, unsigned n)
{
	for (unsigned i = 0; i < 10 * n; i++) {
		now += DR_RATE_SAMPLE_NS;
		changes += dr_rate_datagrams(
			&r, 0, 10, lost / 10 + (int)(i % 10 < (unsigned)lost % 10), now);
	}
}

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

/* Two workers use the rail: the sum of both is what it carries, and it is enough that one of
 * them waits. */
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

/* The peer's report `number`: it received datagram `newest` last and `got` small ones. We have
 * sent `sent` on this rail alone. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
