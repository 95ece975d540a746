/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_HIST_H
#define DR_BASE_HIST_H

#include "base/defs.h"

/*
 * Log-linear histogram of non-negative integers (ns): 128 buckets per power of two, so that a value
 * read back is within 1/256 (0.4 %) of what was recorded; min and max are exact. Fixed memory.
 * Values above 2^42 (73 minutes in ns) are counted at that limit. One writer; merge to combine.
 * Idea: HdrHistogram (hdrhistogram.org); not packaged in Debian 12.
 */
struct dr_hist;

int dr_hist_create(struct dr_hist **out) DR_MUST_CHECK;
void dr_hist_destroy(struct dr_hist *h);
void dr_hist_reset(struct dr_hist *h);
void dr_hist_record(struct dr_hist *h, int64_t value);
void dr_hist_merge(struct dr_hist *into, const struct dr_hist *from);
uint64_t dr_hist_count(const struct dr_hist *h);
/* Nearest-rank percentile, p in 0..100 (99.9 allowed). -1 when the histogram is empty. */
int64_t dr_hist_percentile(const struct dr_hist *h, double p);
/* Exact (up to the limit); -1 when the histogram is empty. */
int64_t dr_hist_min(const struct dr_hist *h);
int64_t dr_hist_max(const struct dr_hist *h);

/* Nearest-rank percentile of n unsorted samples, exact; sorts in place. -1 when n is 0. */
int64_t dr_percentile_exact(int64_t *samples, size_t n, double p);

#endif
