/* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "orchestrator/figures/shift.h"

/* That the count is at most u: the level above which the count is larger. */
static double probability(size_t n, size_t m, size_t u)
{
	double p = 0;
	size_t k;

	for (double step = 0.5; step > 1e-14; step /= 2) {
		assert_int_equal(dr_shift_count(n, m, p + step, &k), 0);
		p += k > u ? 0 : step;
	}
	return p;
}

/* Tables of the Mann-Whitney test: P(U <= u). */
static void probabilities_are_those_of_the_tables(void **state)
{
	(void)state;
	assert_float_equal(probability(3, 3, 0), 1.0 / 20, 1e-12);
	assert_float_equal(probability(4, 4, 1), 2.0 / 70, 1e-12);
	assert_float_equal(probability(5, 5, 2), 4.0 / 252, 1e-12);
	assert_float_equal(probability(3, 5, 1), 2.0 / 56, 1e-12);
	/* The 5 % point, two-sided, of 10 and 10 is 23: below 0.025; the next one is above. */
	assert_true(probability(10, 10, 23) < 0.025);
	assert_true(probability(10, 10, 24) > 0.025);
	/* 20 and 20: 127. */
	assert_true(probability(20, 20, 127) < 0.025);
	assert_true(probability(20, 20, 128) > 0.025);
	assert_float_equal(probability(7, 9, 63), 1, 1e-12);
	/* Where the exact distribution ends, the approximation is close to it. */
	double exact = probability(25, 25, 200), normal = probability(25, 26, 208);
	assert_true(exact > 0.01 && exact < 0.02);
	assert_true(fabs(normal / exact - 1) < 0.1);
}

static void the_runs_that_a_level_needs(void **state)
{
	(void)state;
	assert_int_equal(dr_shift_runs(0.5), 1);
	assert_int_equal(dr_shift_runs(0.05), 3);
	assert_int_equal(dr_shift_runs(0.01), 5); /* C(8, 4) = 70, C(10, 5) = 252 */
	assert_int_equal(dr_shift_runs(0.001), 7);
	for (size_t n = 2; n < 12; n++) {
		double least = probability(n, n, 0);

		assert_int_equal(dr_shift_runs(least * 1.001), n);
		assert_int_equal(dr_shift_runs(least * 0.999), n + 1);
	}
}

static struct dr_shift of(const double *a, size_t n, const double *b, size_t m, double level)
{
	struct dr_shift s;

	assert_int_equal(dr_shift_estimate(a, n, b, m, level, &s), 0);
	return s;
}

static void limits_are_order_statistics_of_the_ratios(void **state)
{
	static const double was[] = { 1, 2, 4 }, is[] = { 8, 16, 32 };
	struct dr_shift s = of(was, 3, is, 3, 0.05);

	(void)state;
	/* Ratios 2 4 4 8 8 8 16 16 32; at 5 % the least and the largest. */
	assert_float_equal(s.ratio, 8, 1e-12);
	assert_float_equal(s.low, 2, 1e-12);
	assert_float_equal(s.high, 32, 1e-12);
	s = of(was, 3, is, 3, 0.1);
	assert_float_equal(s.low, 4, 1e-12);
	assert_float_equal(s.high, 16, 1e-12);
	s = of(was, 3, is, 3, 0.049);
	assert_true(isnan(s.low) && isnan(s.high));
	assert_float_equal(s.ratio, 8, 1e-12);
	s = of(was, 0, is, 3, 0.1);
	assert_true(isnan(s.ratio));
}

static void an_outlier_moves_no_limit_far(void **state)
{
	static const double was[] = { 100, 101, 99, 100, 98, 102, 100, 101, 99, 100 };
	static const double is[] = { 100, 99, 101, 100, 98, 3, 100, 102, 101, 99 };
	struct dr_shift s = of(was, 10, is, 10, 0.005);

	(void)state;
	assert_true(s.ratio > 0.99 && s.ratio < 1.01);
	assert_true(s.low > 0.95 && s.low <= 1 && s.high >= 1 && s.high < 1.05);
}

/* Equal values, as of a coarse clock, show no difference. */
static void ties_count_against_a_difference(void **state)
{
	double was[15], is[15];

	(void)state;
	for (int i = 0; i < 15; i++)
		was[i] = is[i] = 5;
	for (int i = 0; i < 4; i++)
		is[i] = 4;
	struct dr_shift s = of(was, 15, is, 15, 0.01);
	assert_float_equal(s.high, 1, 1e-12);
	assert_float_equal(s.ratio, 1, 1e-12);
}

static double normal(struct dr_rng *r)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += (double)(dr_rng_u64(r) >> 11) / 9007199254740992.0;
	return sum;
}

/* Of equal distributions, at most the level is excluded on each side; a factor of 0.95 is covered, and found. */
static void levels_hold(void **state)
{
	enum { TIMES = 4000, RUNS = 15 };
	struct dr_rng r;
	int above = 0, below = 0, found = 0, covered = 0;

	(void)state;
	dr_rng_seed(&r, 11);
	for (int k = 0; k < TIMES; k++) {
		double was[RUNS], is[RUNS], slow[RUNS];

		for (int i = 0; i < RUNS; i++) {
			was[i] = exp(0.02 * normal(&r));
			is[i] = exp(0.02 * normal(&r));
			slow[i] = 0.95 * is[i];
		}
		struct dr_shift s = of(was, RUNS, is, RUNS, 0.02);
		above += s.low > 1;
		below += s.high < 1;
		s = of(was, RUNS, slow, RUNS, 0.02);
		covered += s.low <= 0.95 && s.high >= 0.95;
		found += s.high < 1;
	}
	assert_in_range(above, TIMES / 100, TIMES * 26 / 1000);
	assert_in_range(below, TIMES / 100, TIMES * 26 / 1000);
	assert_true(covered > TIMES * 95 / 100);
	assert_true(found > TIMES * 99 / 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probabilities_are_those_of_the_tables),
		cmocka_unit_test(the_runs_that_a_level_needs),
		cmocka_unit_test(limits_are_order_statistics_of_the_ratios),
		cmocka_unit_test(an_outlier_moves_no_limit_far),
		cmocka_unit_test(ties_count_against_a_difference),
		cmocka_unit_test(levels_hold),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
