/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hist.h"
#include "base/mem.h"

/*
 * Values below 2^SUB_BITS have a bucket each. Above, the bucket of v is its highest bit's row and
 * the SUB_BITS bits below that one: buckets of row k are 2^k wide and start at 2^(k + SUB_BITS), so
 * that the middle is off by at most 2^(k-1) / 2^(k+7) = 1/256.
 */
enum {
	SUB_BITS = 7,
	SUB = 1 << SUB_BITS,
	VALUE_BITS = 42,
	BIN_BITS = 2,
	ROWS = VALUE_BITS - SUB_BITS + 2,
	BUCKETS = ROWS * SUB,
};
static const int64_t VALUE_LIMIT = (int64_t)1 << VALUE_BITS;

struct dr_hist {
	uint64_t count;
	int64_t min, max, sum;
	uint64_t bucket[BUCKETS];
};

int dr_hist_create(struct dr_hist **out)
{
	struct dr_hist *h = dr_calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	*out = h;
	return 0;
}

void dr_hist_destroy(struct dr_hist *h)
{
	dr_free(h);
}

void dr_hist_reset(struct dr_hist *h)
{
	memset(h, 0, sizeof(*h));
}

static unsigned bucket_of(int64_t value)
{
	uint64_t v = (uint64_t)value;

	if (v < SUB)
		return (unsigned)v;
	unsigned shift = (unsigned)(63 - __builtin_clzll(v)) - SUB_BITS;
	return (shift + 1) * SUB + (unsigned)((v >> shift) - SUB);
}

static int64_t bucket_middle(unsigned i)
{
	unsigned row = i / SUB;

	if (row == 0)
		return i;
	unsigned shift = row - 1;
	return ((int64_t)(SUB + i % SUB) << shift) + (((int64_t)1 << shift) >> 1);
}

void dr_hist_record(struct dr_hist *h, int64_t value)
{
	dr_dassert(value >= 0);
	value = DR_MIN(DR_MAX(value, (int64_t)0), VALUE_LIMIT);
	h->bucket[bucket_of(value)]++;
	h->min = h->count ? DR_MIN(h->min, value) : value;
	h->max = h->count ? DR_MAX(h->max, value) : value;
	h->sum += value;
	h->count++;
}

int64_t dr_hist_sum(const struct dr_hist *h)
{
	return h->sum;
}

/* The bin of v; its begin and end. */
static struct dr_hist_bin bin_of(int64_t v)
{
	if (v < 1 << BIN_BITS)
		return (struct dr_hist_bin){ v, v + 1, 0 };
	unsigned shift = (unsigned)(63 - __builtin_clzll((uint64_t)v)) - BIN_BITS;
	int64_t from = v >> shift << shift;

	return (struct dr_hist_bin){ from, from + ((int64_t)1 << shift), 0 };
}

unsigned dr_hist_bins(const struct dr_hist *h, struct dr_hist_bin out[DR_HIST_BINS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < BUCKETS; i++) {
		if (!h->bucket[i])
			continue;
		struct dr_hist_bin b = bin_of(bucket_middle(i));

		if (n == 0 || out[n - 1].from != b.from) {
			dr_assert(n < DR_HIST_BINS);
			out[n++] = b;
		}
		out[n - 1].count += h->bucket[i];
	}
	return n;
}

uint64_t dr_hist_count(const struct dr_hist *h)
{
	return h->count;
}

/* Nearest rank, 1..n: ceil(p / 100 * n), where 99.9 % of 1000 is 999 although 99.9 is not exact. */
static uint64_t rank_of(double p, uint64_t n)
{
	double rank = ceil(p * (double)n / 100 * (1 - 1e-12));

	if (!(rank >= 1))
		return 1;
	return rank >= (double)n ? n : (uint64_t)rank;
}

int64_t dr_hist_percentile(const struct dr_hist *h, double p)
{
	uint64_t seen = 0;

	if (!h->count)
		return -1;
	uint64_t rank = rank_of(p, h->count);
	if (rank == 1)
		return h->min;
	if (rank == h->count)
		return h->max;
	for (unsigned i = 0; i < BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= rank) {
			int64_t v = bucket_middle(i);
			return DR_MIN(DR_MAX(v, h->min), h->max);
		}
	}
	dr_assert(!"the buckets sum up to count");
	return -1;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double dr_percentile_exact(double *samples, size_t n, double p)
{
	if (!n)
		return NAN;
	qsort(samples, n, sizeof(*samples), compare);
	return samples[rank_of(p, n) - 1];
}
