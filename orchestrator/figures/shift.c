/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/figures/shift.h"

#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

double dr_median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), ascending);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/*
 * Number of arrangements of n and m values for each count 0..n*m: the coefficients of the Gaussian binomial, the product over
 * i = 1..n of (1 - q^(m+i)) / (1 - q^i). Each partial product is one too, so all are whole numbers below
 * C(n+m, n), which is below 2^53 for SHIFT_EXACT values: doubles are exact. Freed by the caller; NULL: no memory.
 */
static double *arrangements(size_t n, size_t m)
{
	size_t top = n * m;
	double *f = dr_calloc(top + 1, sizeof(*f));

	if (!f)
		return NULL;
	f[0] = 1;
	for (size_t i = 1; i <= n; i++) {
		for (size_t u = top; u >= m + i; u--)
			f[u] -= f[u - m - i];
		for (size_t u = i; u <= top; u++)
			f[u] += f[u - i];
	}
	return f;
}

static double normal_probability(size_t n, size_t m, double u)
{
	double mean = (double)n * (double)m / 2, sd = sqrt(mean * ((double)n + (double)m + 1) / 6);

	return erfc((mean - u - 0.5) / sd / sqrt(2)) / 2;
}

int dr_shift_count(size_t n, size_t m, double level, size_t *u)
{
	double *f, sum = 0, all = 0;

	if (n + m > SHIFT_EXACT) {
		for (*u = 0; *u < n * m && normal_probability(n, m, (double)*u) <= level; ++*u)
			;
		return 0;
	}
	f = arrangements(n, m);
	if (!f)
		return -ENOMEM;
	for (size_t i = 0; i <= n * m; i++)
		all += f[i];
	for (*u = 0; *u < n * m && (sum += f[*u]) <= level * all; ++*u)
		;
	dr_free(f);
	return 0;
}

int dr_shift_estimate(const double *was, size_t n_was, const double *is, size_t n_is, double level,
	struct dr_shift *out)
{
	size_t n = n_was * n_is, k = 0;
	struct dr_shift s = { NAN, NAN, NAN };
	double *ratio;
	int rc;

	*out = s;
	if (!n)
		return 0;
	ratio = dr_calloc(n, sizeof(*ratio));
	rc = ratio ? dr_shift_count(n_was, n_is, level, &k) : -ENOMEM;
	if (rc) {
		dr_free(ratio);
		return rc;
	}
	for (size_t i = 0; i < n_was; i++)
		for (size_t j = 0; j < n_is; j++)
			ratio[i * n_is + j] = is[j] / was[i];
	s.ratio = dr_median(ratio, n);
	if (k > 0 && 2 * k <= n) {
		s.low = ratio[k - 1];
		s.high = ratio[n - k];
	}
	dr_free(ratio);
	*out = s;
	return 0;
}

size_t dr_shift_runs(double level)
{
	double all = 1; /* C(2n, n) arrangements of n and n values */
	size_t n = 0;

	while (all * level < 1 && n < 1000) {
		n++;
		all = all * (2 * (2 * (double)n - 1)) / (double)n;
	}
	return n;
}
