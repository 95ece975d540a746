/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CLOCKSYNC_H
#define DR_BOOTSTRAP_CLOCKSYNC_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * Offset of the peer's clock from PING/PONG exchanges, with a bound that holds for any asymmetry of
 * the two ways: a PING sent at t1 (own) arrived at t2 (peer), the PONG left at t3 (peer) and was
 * here at t4 (own), so offset = peer - own lies in [t3 - t4, t2 - t1]; the middle is off by at most
 * half the round trip. Each exchange's interval is intersected with what earlier ones left, widened
 * by the drift that the clocks may have had since (DR_CLOCK_DRIFT_PPM, both together); it is never
 * wider than the interval of the shortest round trip plus its drift. An empty intersection
 * means that a clock stepped or a host slept: the newest exchange alone counts.
 */
enum { DR_CLOCK_DRIFT_PPM = 100 };

struct dr_clocksync {
	bool valid;
	int64_t low_ns, high_ns; /* the offset lies between, as of at_ns (own clock) */
	int64_t at_ns;
	uint64_t samples, restarts;
};

void dr_clocksync_init(struct dr_clocksync *cs);
/* One exchange; impossible values (a lying peer) are ignored. */
void dr_clocksync_sample(struct dr_clocksync *cs, int64_t t1, int64_t t2, int64_t t3, int64_t t4);
bool dr_clocksync_get(
	const struct dr_clocksync *cs, int64_t now_ns, int64_t *offset_ns, int64_t *error_ns);

#endif
