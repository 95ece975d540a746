/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/hist.h"
#include "base/mem.h"
#include "base/rng.h"

static const double percentiles[] = { 0, 0.1, 1, 25, 50, 90, 99, 99.9, 99.99, 100 };

static uint64_t seed;

static void within_a_bucket(int64_t got, int64_t exact)
{
	double off = fabs((double)got - (double)exact);

	if (off > (double)exact / 256 + 0.5)
		fail_msg("%lld instead of %lld; replay with SEED=%llu", (long long)got,
			(long long)exact, (unsigned long long)seed);
}

/* sample: sorted. Each sample is in the bin that has it within its bounds. */
static void check_bins(const struct dr_hist *h, const double *sample, size_t n)
{
	struct dr_hist_bin bin[DR_HIST_BINS];
	unsigned bins = dr_hist_bins(h, bin);
	size_t k = 0;

	for (unsigned i = 0; i < bins; i++) {
		size_t from = k;

		assert_true(bin[i].from < bin[i].to && (i == 0 || bin[i].from >= bin[i - 1].to));
		assert_true(k < n && sample[k] >= (double)bin[i].from);
		while (k < n && sample[k] < (double)bin[i].to)
			k++;
		assert_int_equal(bin[i].count, k - from);
	}
	assert_int_equal(k, n);
}

static void compare_with_exact(const struct dr_hist *h, double *sample, size_t n)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(percentiles); i++)
		within_a_bucket(dr_hist_percentile(h, percentiles[i]),
			(int64_t)dr_percentile_exact(sample, n, percentiles[i]));
	assert_int_equal(dr_hist_count(h), n);
	assert_int_equal(dr_hist_percentile(h, 100), (int64_t)sample[n - 1]);
	check_bins(h, sample, n);
}

/* Magnitudes are uniform in log2, as latencies are: 1 ns to 2^bits ns. */
static void random_samples_agree_with_exact(void **state)
{
	static double sample[20000];
	struct dr_hist *h;
	struct dr_rng rng;
	size_t n;

	(void)state;
	dr_rng_seed(&rng, seed);
	assert_int_equal(dr_hist_create(&h), 0);
	for (int round = 0; round < 40; round++) {
		dr_hist_reset(h);
		n = 1 + dr_rng_below(&rng, round < 20 ? 50 : DR_ARRAY_LEN(sample));
		for (size_t i = 0; i < n; i++) {
			int64_t v = (int64_t)(dr_rng_u64(&rng) >> (22 + dr_rng_below(&rng, 42)));

			sample[i] = (double)v;
			dr_hist_record(h, v);
		}
		compare_with_exact(h, sample, n);
	}
	dr_hist_destroy(h);
}

static void every_small_and_every_edge_value_is_close(void **state)
{
	struct dr_hist *h;
	int64_t v;

	(void)state;
	assert_int_equal(dr_hist_create(&h), 0);
	for (int bit = 0; bit < 42; bit++) {
		for (int d = -1; d <= 1; d++) {
			v = ((int64_t)1 << bit) + d;
			dr_hist_reset(h);
			dr_hist_record(h, 0);
			dr_hist_record(h, v);
			dr_hist_record(h, (int64_t)1 << 42);
			within_a_bucket(dr_hist_percentile(h, 50), v);
		}
	}
	dr_hist_destroy(h);
}

static void empty_and_beyond_the_limit(void **state)
{
	struct dr_hist *h;

	(void)state;
	assert_int_equal(dr_hist_create(&h), 0);
	assert_int_equal(dr_hist_percentile(h, 50), -1);
	assert_int_equal(dr_hist_percentile(h, 100), -1);
	dr_hist_record(h, INT64_MAX);
	assert_int_equal(dr_hist_percentile(h, 100), (int64_t)1 << 42);
	assert_int_equal(dr_hist_percentile(h, 50), (int64_t)1 << 42);
	dr_hist_reset(h);
	assert_int_equal(dr_hist_count(h), 0);
	dr_hist_destroy(h);
	dr_hist_destroy(NULL);
	assert_true(isnan(dr_percentile_exact(NULL, 0, 50)));
}

static void nearest_rank(void **state)
{
	double sample[1000];

	(void)state;
	for (int i = 0; i < 1000; i++)
		sample[i] = 1000 - i;
	assert_true(dr_percentile_exact(sample, 1000, 0) == 1);
	assert_true(dr_percentile_exact(sample, 1000, 50) == 500);
	assert_true(dr_percentile_exact(sample, 1000, 99.9) == 999);
	assert_true(dr_percentile_exact(sample, 1000, 99.91) == 1000);
	assert_true(dr_percentile_exact(sample, 1000, 100) == 1000);
	assert_true(dr_percentile_exact(sample, 5, 50) == 3);
}

static void memory_that_is_not_there(void **state)
{
	struct dr_hist *h = NULL;

	(void)state;
	dr_mem_fail_after(1);
	assert_int_equal(dr_hist_create(&h), -ENOMEM);
	assert_null(h);
	dr_mem_fail_after(2);
	assert_int_equal(dr_hist_create(&h), 0);
	assert_null(dr_pages_alloc(1));
	assert_int_equal(errno, ENOMEM);
	dr_mem_fail_after(-1);
	dr_hist_destroy(h);
}

static void random_numbers_keep_their_bounds(void **state)
{
	unsigned seen[7] = { 0 }, hits = 0;
	struct dr_rng a, b;
	char bytes[16] = { 0 }, zero[16] = { 0 };

	(void)state;
	dr_rng_seed(&a, seed);
	dr_rng_seed(&b, seed);
	for (int i = 0; i < 70000; i++) {
		assert_int_equal(dr_rng_u64(&a), dr_rng_u64(&b));
		seen[dr_rng_below(&a, 7)]++;
		hits += (unsigned)dr_rng_chance(&a, 1, 10);
		b = a;
	}
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], 9000, 11000);
	assert_in_range(hits, 6000, 8000);
	assert_int_equal(dr_rng_chance(&a, 0, 5), 0);
	assert_int_equal(dr_rng_chance(&a, 5, 5), 1);
	/* The first output of splitmix64 for the seed 0, from its reference code. */
	assert_true(dr_mix64(0) == 0xe220a8397b1dcdafULL);
	assert_int_equal(dr_random_bytes(bytes, sizeof(bytes)), 0);
	assert_memory_not_equal(bytes, zero, sizeof(bytes));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_samples_agree_with_exact),
		cmocka_unit_test(every_small_and_every_edge_value_is_close),
		cmocka_unit_test(empty_and_beyond_the_limit),
		cmocka_unit_test(nearest_rank),
		cmocka_unit_test(memory_that_is_not_there),
		cmocka_unit_test(random_numbers_keep_their_bounds),
	};
	const char *given = getenv("SEED");

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)dr_wall_ns();
	printf("hist: SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests_name("hist", tests, NULL, NULL);
}
