/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Rail 0 beside rail 1, sampled every 100 ms. */
static struct dr_rail_rates r;
static int64_t now;
static unsigned changes;

static int setup(void **state)
{
	(void)state;
	dr_rail_rates_init(&r, 2);
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

	dr_rail_rates_get(&r, rail, &st);
	return st;
}

static void test_a_rail_with_a_hundredth_of_the_other_ones_rate_is_named(void **state)
{
	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	carry(0, 1e6, true, 2 * DR_NS_PER_S);
	assert_true(state_of(0).degraded && !state_of(1).degraded);
	assert_true(state_of(0).bps > 0.9e6 && state_of(0).bps < 1.1e6);
	assert_int_equal(changes, 1);
	carry(0, 9e9, true, 2 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
	assert_int_equal(changes, 2);
}

static void test_it_is_compared_with_the_fastest_other_rail(void **state)
{
	(void)state;
	for (unsigned fastest = 0; fastest < 3; fastest++) {
		dr_rail_rates_fini(&r);
		dr_rail_rates_init(&r, 4);
		for (unsigned rail = 0; rail < 3; rail++)
			carry(rail, rail == fastest ? 9e9 : (rail + 1) * 1e9, true, DR_NS_PER_S);
		carry(3, 1e6, true, 2 * DR_NS_PER_S);
		assert_true(state_of(3).degraded);
		assert_int_equal(state_of(3).versus, fastest);
		assert_true(state_of(3).versus_bps > 8.9e9);
	}
}

/* From the second slow window on, and not before. A window opens with the first sample. */
static void test_two_slow_windows_are_the_verdict(void **state)
{
	int64_t since;

	(void)state;
	carry(1, 9.4e9, true, 2 * DR_NS_PER_S);
	since = now;
	for (unsigned i = 1; i <= 9; i++) {
		now += DR_RATE_SAMPLE_NS;
		dr_rate_acked(&r, 0, 12500, since, now);
		assert_int_equal(state_of(0).degraded, i == 9);
	}
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
	int64_t since;

	(void)state;
	carry(1, 1e9, true, 2 * DR_NS_PER_S);
	carry(0, 150e6, true, 4 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
	carry(0, 50e6, true, 2 * DR_NS_PER_S);
	assert_true(state_of(0).degraded);
	carry(0, 150e6, true, 4 * DR_NS_PER_S);
	assert_true(state_of(0).degraded);
	/* The window in progress ends, then two are fast. */
	since = now;
	for (unsigned i = 1; i <= 13; i++) {
		now += DR_RATE_SAMPLE_NS;
		dr_rate_acked(&r, 0, 2500000, since, now);
		assert_int_equal(state_of(0).degraded, i < 13);
	}
	carry(0, 100e6, true, 4 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
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
}

/* Data that did not wait, and was as fast as ever. */
static void test_an_equal_rate_is_a_recent_one(void **state)
{
	(void)state;
	carry(1, 1e9, true, 2 * DR_NS_PER_S);
	now += DR_RATE_RECENT_NS - DR_NS_PER_S;
	carry(1, 1e9, false, 3 * DR_NS_PER_S);
	now += DR_RATE_RECENT_NS / 2;
	carry(0, 1e6, true, 4 * DR_NS_PER_S);
	assert_true(state_of(0).degraded);
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

/* What was acknowledged before the first window is not of it. */
static void test_the_first_sample_measures_nothing(void **state)
{
	(void)state;
	assert_false(dr_rate_acked(&r, 0, 1u << 30, DR_NEVER, now));
	assert_true(state_of(0).carries_bps <= 0);
}

/* A reference counts for 60 s: the second slow window ends just then, or 1 ns later. */
static void test_the_last_moment_of_a_reference(void **state)
{
	for (int late = 0; late < 2; late++) {
		(void)setup(state);
		carry(1, 9e9, true, DR_NS_PER_S);
		r.rail[1].at_ns = now + 900 * DR_NS_PER_MS - DR_RATE_RECENT_NS - late;
		carry(0, 1e6, true, 900 * DR_NS_PER_MS);
		assert_int_equal(state_of(0).degraded, !late);
	}
}

/* A window of 500 ms: 1,000 bytes are 16,000 bit/s, the next one's too. */
static void test_a_window_has_its_bytes_alone(void **state)
{
	(void)state;
	dr_rate_acked(&r, 0, 1u << 20, now, now);
	for (int i = 0; i < 2; i++) {
		now += DR_RATE_WINDOW_NS;
		dr_rate_acked(&r, 0, 1000, now - DR_RATE_WINDOW_NS, now);
		assert_true(state_of(0).carries_bps == 8e12 / (double)DR_RATE_WINDOW_NS);
	}
}

static void test_rails_beyond_the_count_are_no_reference(void **state)
{
	(void)state;
	r.rail[2] = (struct dr_rate_rail){ .capacity = 1e12, .at_ns = now };
	carry(0, 1e6, true, 2 * DR_NS_PER_S);
	assert_false(state_of(0).degraded);
}

static void test_a_higher_lower_bound_raises_the_capacity(void **state)
{
	(void)state;
	carry(1, 1e6, true, DR_NS_PER_S);
	carry(1, 9e9, false, 3 * DR_NS_PER_S);
	assert_true(state_of(1).carries_bps > 8.9e9);
}

static void test_of_equal_rails_the_first_is_the_reference(void **state)
{
	(void)state;
	dr_rail_rates_fini(&r);
	dr_rail_rates_init(&r, 3);
	carry(1, 9e9, true, DR_NS_PER_S);
	carry(2, 9e9, true, DR_NS_PER_S);
	r.rail[1].capacity = r.rail[2].capacity;
	carry(0, 1e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(state_of(0).versus, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			test_a_rail_with_a_hundredth_of_the_other_ones_rate_is_named, setup),
		cmocka_unit_test_setup(test_it_is_compared_with_the_fastest_other_rail, setup),
		cmocka_unit_test_setup(test_two_slow_windows_are_the_verdict, setup),
		cmocka_unit_test_setup(test_a_rail_that_is_asked_for_little_is_not_slow, setup),
		cmocka_unit_test_setup(test_data_waits_during_the_whole_window, setup),
		cmocka_unit_test_setup(test_nothing_acknowledged_shows_nothing, setup),
		cmocka_unit_test_setup(test_one_slow_window_is_no_verdict, setup),
		cmocka_unit_test_setup(test_the_verdict_has_a_hysteresis, setup),
		cmocka_unit_test_setup(test_an_old_measurement_is_no_reference, setup),
		cmocka_unit_test_setup(test_an_equal_rate_is_a_recent_one, setup),
		cmocka_unit_test_setup(test_the_rates_of_all_workers_count, setup),
		cmocka_unit_test_setup(test_the_first_sample_measures_nothing, setup),
		cmocka_unit_test_setup(test_the_last_moment_of_a_reference, setup),
		cmocka_unit_test_setup(test_a_higher_lower_bound_raises_the_capacity, setup),
		cmocka_unit_test_setup(test_of_equal_rails_the_first_is_the_reference, setup),
		cmocka_unit_test_setup(test_a_window_has_its_bytes_alone, setup),
		cmocka_unit_test_setup(test_rails_beyond_the_count_are_no_reference, setup),
		cmocka_unit_test_setup(test_a_lower_bound_does_not_lower_the_capacity, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
