/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/gaps.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Deliveries at these times; 0 ends the list. */
static void deliveries(struct dr_gaps *g, const int64_t *at)
{
	dr_gaps_reset(g);
	for (; at[1]; at++)
		dr_gaps_add(g, at[0], at[1]);
}

static void assert_longest(const struct dr_gaps *g, int64_t since, int64_t from, int64_t to)
{
	struct dr_gap v;

	assert_true(dr_gaps_longest(g, since, &v));
	assert_int_equal(v.from_ns, from);
	assert_int_equal(v.to_ns, to);
}

/* The last delivery comes before the fault, or after it: data that was received already is still delivered. */
static void the_interval_may_begin_on_either_side_of_the_fault(void **state)
{
	struct dr_gaps g;

	(void)state;
	deliveries(&g, (const int64_t[]){ 10, 11, 12, 52, 53, 54, 0 });
	assert_longest(&g, 11, 12, 52);
	assert_longest(&g, 13, 12, 52);
	assert_longest(&g, 51, 12, 52);
}

/* An earlier one, however long, has another reason. */
static void an_interval_that_is_over_does_not_count(void **state)
{
	struct dr_gaps g;
	struct dr_gap v;

	(void)state;
	deliveries(&g, (const int64_t[]){ 10, 60, 61, 63, 80, 82, 83, 0 });
	assert_longest(&g, 59, 10, 60);
	assert_longest(&g, 60, 63, 80);
	assert_longest(&g, 80, 80, 82);
	assert_longest(&g, 82, 82, 83);
	assert_false(dr_gaps_longest(&g, 83, &v));
	dr_gaps_reset(&g);
	assert_false(dr_gaps_longest(&g, 0, &v));
}

/* The same as a list of all intervals, for every moment. */
static void what_is_kept_is_enough(void **state)
{
	enum { N = 20000 };
	static int64_t at[N];
	const uint64_t seed = 20260611;
	struct dr_gaps g;
	struct dr_rng rng;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	at[0] = 1;
	dr_gaps_reset(&g);
	for (unsigned i = 1; i < N; i++) {
		at[i] = at[i - 1] + 1 + (int64_t)(dr_rng_below(&rng, 1000000));
		dr_gaps_add(&g, at[i - 1], at[i]);
	}
	assert_true(g.n < DR_GAPS_MAX);
	for (unsigned i = N - 1, best = N - 1; i > 0; i--) {
		if (at[i] - at[i - 1] >= at[best] - at[best - 1])
			best = i;
		assert_longest(&g, at[i] - 1, at[best - 1], at[best]);
	}
}

/* More than there is room for: each shorter than the one before. The long ones and the newest one stay. */
static void the_longest_and_the_newest_stay(void **state)
{
	enum { N = 3 * DR_GAPS_MAX };
	struct dr_gaps g;
	int64_t at = 1;

	(void)state;
	dr_gaps_reset(&g);
	for (int64_t i = N; i > 0; i--) {
		dr_gaps_add(&g, at, at + i);
		at += i;
	}
	assert_int_equal(g.n, DR_GAPS_MAX);
	assert_longest(&g, 0, 1, 1 + N);
	assert_longest(&g, 1 + N, 1 + N, 2 * N);
	assert_longest(&g, at - 1, at - 1, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_interval_may_begin_on_either_side_of_the_fault),
		cmocka_unit_test(an_interval_that_is_over_does_not_count),
		cmocka_unit_test(what_is_kept_is_enough),
		cmocka_unit_test(the_longest_and_the_newest_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
