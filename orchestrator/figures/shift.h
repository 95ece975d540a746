/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FIGURES_SHIFT_H
#define DR_ORCHESTRATOR_FIGURES_SHIFT_H

#include "base/defs.h"

/*
 * Folder figures/: arithmetic of measured figures, for all that judge them: the matrix, the sweep
 * and compare. It knows no record, no document, no clock, and no limit of what is too low.
 *
 * By which factor do two groups of runs differ? The estimate is that of Hodges and Lehmann, the
 * median of all ratios new / old. Its limits are order statistics of these ratios that the
 * Mann-Whitney test selects: exact for up to SHIFT_EXACT runs in all, the normal approximation with
 * continuity correction above (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 4.2
 * and 4.3). They hold for any distribution of the figure, outliers included, if the runs are
 * independent. Equal values of both groups count against a difference.
 */
enum { SHIFT_EXACT = 50 };

struct dr_shift {
	double ratio;
	/* Exceeded by the true factor with at most the probability `level`; NAN: too few runs. */
	double low, high;
};

/* All values > 0, level: 0 to 0.5, of one side. 0 or -ENOMEM. */
int dr_shift_estimate(const double *was, size_t n_was, const double *is, size_t n_is, double level,
	struct dr_shift *out) DR_MUST_CHECK;
/* Runs that each side needs at least, so that limits at this level exist. */
size_t dr_shift_runs(double level);

/* The least u for which the Mann-Whitney count of n and m equally distributed values is at most u
 * with a probability above `level`. 0 or -ENOMEM. */
int dr_shift_count(size_t n, size_t m, double level, size_t *u) DR_MUST_CHECK;

/* Sorts them. NAN: none. */
double dr_median(double *v, size_t n);

#endif
