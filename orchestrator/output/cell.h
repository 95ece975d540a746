/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_CELL_H
#define DR_ORCHESTRATOR_OUTPUT_CELL_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/units.h"
#include "orchestrator/output/record.h"

/* The text of one cell of a table for people; "-" is unknown. */
struct cell {
	char s[72];
};

/* A number with `decimals`. */
static inline struct cell num(double v, int decimals)
{
	struct cell c = { "-" };

	if (isfinite(v))
		snprintf(c.s, sizeof(c.s), "%.*f", decimals, v);
	return c;
}

/* Four significant digits or so: 0.123, 12.3, 1234. */
static inline struct cell sig(double v)
{
	double a = fabs(v);

	return num(v, a == 0 ? 0 : a < 1 ? 3 : a < 100 ? 2 : a < 10000 ? 1 : 0);
}

static inline struct cell count(int64_t v)
{
	struct cell c = { "-" };

	if (v != DR_UNSET)
		snprintf(c.s, sizeof(c.s), "%" PRId64, v);
	return c;
}

/* A kind of fault with its direction: "blackhole in". */
static inline struct cell dr_fault_row_name(const char *kind, int dir)
{
	static const char *const only[] = { "", " in", " out" };
	struct cell c;

	snprintf(c.s, sizeof(c.s), "%.40s%s", kind, dir < 0 ? "" : only[dir]);
	return c;
}

static inline const char *way(int direction)
{
	return direction == DR_TO_CLIENT ? "server to client" : "client to server";
}

/* "GPU 3", "eth1", "GPU 3 over eth1". */
static inline struct cell figure_name(int64_t gpu, const char *nic)
{
	struct cell s;

	if (gpu == DR_UNSET)
		snprintf(s.s, sizeof(s.s), "%.40s", nic);
	else
		snprintf(s.s, sizeof(s.s), "GPU %" PRId64 "%s%.38s", gpu, nic[0] ? " over " : "",
			nic);
	return s;
}

/* A percentage that is below a bound never reads as the bound. */
static inline double floored(double percent)
{
	return floor(10 * percent) / 10;
}

static inline double known(int64_t v)
{
	return v == DR_UNSET ? NAN : (double)v;
}

static inline struct cell ms(int64_t ns)
{
	return num(known(ns) / 1e6, ns < DR_NS_PER_MS ? 3 : ns < 100 * DR_NS_PER_MS ? 2 : 1);
}

static inline struct cell us(int64_t ns)
{
	return sig(known(ns) / 1e3);
}

static inline struct cell size(int64_t bytes)
{
	struct cell c = { "-" };

	if (bytes != DR_UNSET)
		dr_format_size((uint64_t)bytes, c.s, sizeof(c.s));
	return c;
}

#endif
