/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/clocksync.h"

#include <string.h>

/* CLOCK_MONOTONIC stays far below this; larger values are nonsense and could overflow. */
#define TIME_MAX (INT64_MAX / 8)

void dr_clocksync_init(struct dr_clocksync *cs)
{
	memset(cs, 0, sizeof(*cs));
}

static int64_t drift_ns(const struct dr_clocksync *cs, int64_t now_ns)
{
	int64_t age = DR_MAX(now_ns - cs->at_ns, 0);
	return age / (1000000 / DR_CLOCK_DRIFT_PPM) + 1;
}

void dr_clocksync_sample(struct dr_clocksync *cs, int64_t t1, int64_t t2, int64_t t3, int64_t t4)
{
	if (t1 < 0 || t2 < 0 || t3 < t2 || t4 < t1 || t3 > TIME_MAX || t4 > TIME_MAX)
		return;
	int64_t low = t3 - t4, high = t2 - t1;
	if (low > high)
		return;
	cs->samples++;
	if (cs->valid) {
		int64_t drift = drift_ns(cs, t4);
		int64_t old_low = cs->low_ns - drift, old_high = cs->high_ns + drift;
		if (old_low <= high && low <= old_high) {
			low = DR_MAX(low, old_low);
			high = DR_MIN(high, old_high);
		} else {
			cs->restarts++;
		}
	}
	cs->low_ns = low;
	cs->high_ns = high;
	cs->at_ns = t4;
	cs->valid = true;
}

bool dr_clocksync_get(
	const struct dr_clocksync *cs, int64_t now_ns, int64_t *offset_ns, int64_t *error_ns)
{
	if (!cs->valid)
		return false;
	*offset_ns = cs->low_ns + (cs->high_ns - cs->low_ns) / 2;
	*error_ns = (cs->high_ns - cs->low_ns + 1) / 2 + drift_ns(cs, now_ns);
	return true;
}
