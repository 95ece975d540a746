/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, durations, rates, numbers and lists as people type them, and how they are printed. */
#include "base/units.h"
#include "tests/fuzz/lib/fuzz.h"

#include <inttypes.h>
#include <math.h>

enum { LIST_CAP = 64, LIST_MAX = 1000 };
static const uint64_t U_MARK = 0x5a5a5a5a5a5a5a5a;

static void size(const char *s)
{
	uint64_t v = U_MARK, again = 0;
	struct dr_err e = { 0 };
	char buf[64], *space;

	if (fz_failed(dr_parse_size(s, &v, &e), &e)) {
		dr_assert(v == U_MARK);
		return;
	}
	dr_format_size(v, buf, sizeof(buf));
	space = strchr(buf, ' ');
	dr_assert(space);
	memmove(space, space + 1, strlen(space));
	dr_assert(dr_parse_size(buf, &again, NULL) == 0 && again == v);
}

static void duration(const char *s)
{
	int64_t v = -7, again = 0;
	struct dr_err e = { 0 };
	char buf[64];

	if (fz_failed(dr_parse_duration(s, &v, &e), &e)) {
		dr_assert(v == -7);
		return;
	}
	dr_assert(v >= 0);
	snprintf(buf, sizeof(buf), "%" PRId64 "ns", v);
	dr_assert(dr_parse_duration(buf, &again, NULL) == 0 && again == v);
	dr_format_duration(v, buf, sizeof(buf));
	dr_assert(buf[0]);
}

static void reals(const char *s)
{
	struct dr_err e = { 0 };
	double v = -7;
	bool bad = fz_failed(dr_parse_rate(s, &v, &e), &e);

	dr_assert(bad ? v == -7 : isfinite(v) && v >= 0);
	v = -7;
	bad = fz_failed(dr_parse_double(s, -1e6, 1e9, &v, &e), &e);
	dr_assert(bad ? v == -7 : v >= -1e6 && v <= 1e9);
}

static void number(const char *s)
{
	uint64_t v = U_MARK;
	struct dr_err e = { 0 };
	char buf[32];
	bool bad = fz_failed(dr_parse_u64(s, 3, 40000, &v, &e), &e);

	dr_assert(bad ? v == U_MARK : v >= 3 && v <= 40000);
	if (dr_parse_u64(s, 0, UINT64_MAX, &v, NULL))
		return;
	snprintf(buf, sizeof(buf), "%" PRIu64, v);
	dr_assert(strcmp(buf, s + strspn(s, "0")) == 0 || (v == 0 && s[strspn(s, "0")] == 0));
}

static void list(const char *s)
{
	unsigned v[LIST_CAP];
	struct dr_err e = { 0 };
	size_t n = 99;

	if (fz_failed(dr_parse_list(s, LIST_MAX, v, LIST_CAP, &n, &e), &e)) {
		dr_assert(n == 99);
		return;
	}
	dr_assert(n >= 1 && n <= LIST_CAP);
	for (size_t i = 0; i < n; i++) {
		dr_assert(v[i] <= LIST_MAX);
		for (size_t k = 0; k < i; k++)
			dr_assert(v[k] != v[i]);
	}
}

FUZZ(z)
{
	const struct fz whole = *z;
	char *s = fz_text(z, 4096), buf[32];
	int64_t ns = 0;

	size(s);
	duration(s);
	reals(s);
	number(s);
	list(s);
	memcpy(&ns, whole.n ? (const void *)whole.p : "", DR_MIN(whole.n, sizeof(ns)));
	dr_format_duration(ns, buf, sizeof(buf));
	dr_assert(strlen(buf) < sizeof(buf) - 1);
}
