/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_HIST_H
#define DR_BASE_HIST_H

#include "base/defs.h"

/*
 * Log-linear histogram of non-negative integers (ns): 128 buckets per power of two, so a percentile is within 1/256
 * (0.4 %) of the recorded value; minimum and maximum are exact. Fixed memory.
 * Values above 2^42 (73 minutes in ns) are counted at that limit. One writer.
 * Idea: HdrHistogram (hdrhistogram.org); not packaged in Debian 12.
 */
struct dr_hist;

int dr_hist_create(struct dr_hist **out) DR_MUST_CHECK;
void dr_hist_destroy(struct dr_hist *h);
void dr_hist_reset(struct dr_hist *h);
void dr_hist_record(struct dr_hist *h, int64_t value);
uint64_t dr_hist_count(const struct dr_hist *h);
/* Nearest-rank percentile, p in 0..100 (99.9 allowed; 100: the maximum, exact). -1 when the histogram is empty. */
int64_t dr_hist_percentile(const struct dr_hist *h, double p);

/* Sum of the recorded values, exact. */
int64_t dr_hist_sum(const struct dr_hist *h);
/*
 * Coarser bins for documents: four per power of two, of which the first begins at 2^k; below 4 one per value. Those that
 * are not empty, in order; `to` is exclusive. Returns their number, at most DR_HIST_BINS.
 */
struct dr_hist_bin {
	int64_t from, to;
	uint64_t count;
};
enum { DR_HIST_BINS = 168 };
unsigned dr_hist_bins(const struct dr_hist *h, struct dr_hist_bin out[DR_HIST_BINS]);

/* Nearest-rank percentile of n unsorted numbers, exact; sorts in place. NAN when n is 0. */
double dr_percentile_exact(double *samples, size_t n, double p);

#endif
