/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_GAPS_H
#define DR_ORCHESTRATOR_GAPS_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * The longest time between two deliveries of one channel since a moment that is told afterwards,
 * for faults without a switch (--detect transport); the gap of a switch is dr_switch_gap
 * (channel/channel.h). Sans-IO: times are arguments.
 *
 * When a fault took effect is known only after it did, perhaps from the other end. An interval that
 * is neither longer nor later than another one is never the answer, so only intervals that are
 * longer than all later ones are kept. Of n intervals in random order those are about ln n. When
 * there are more than DR_GAPS_MAX, the shortest are forgotten.
 */
enum { DR_GAPS_MAX = 32 };

struct dr_gap {
	int64_t from_ns, to_ns; /* two deliveries in a row */
};

struct dr_gaps {
	unsigned n;
	struct dr_gap v[DR_GAPS_MAX]; /* by time; each one shorter than the one before */
};

/* Forget all. */
void dr_gaps_reset(struct dr_gaps *g);
/* The next interval; later than those before. */
void dr_gaps_add(struct dr_gaps *g, int64_t from_ns, int64_t to_ns);
/* The longest one that ended after since_ns. False: none did. */
bool dr_gaps_longest(const struct dr_gaps *g, int64_t since_ns, struct dr_gap *out);

#endif
