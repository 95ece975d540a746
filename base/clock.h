/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_CLOCK_H
#define DR_BASE_CLOCK_H

#include "base/defs.h"

/* CLOCK_MONOTONIC in ns: the one clock of intervals, deadlines and gaps. */
int64_t dr_now_ns(void);
/* CLOCK_REALTIME in ns since the epoch: for output only. */
int64_t dr_wall_ns(void);
/* CPU time (user + system) of this process in ns, all threads. */
int64_t dr_cpu_ns(void);
/* ISO 8601 UTC with microseconds, "2026-01-31T10:20:30.123456Z". buf holds at least 32 bytes. */
void dr_wall_format(int64_t wall_ns, char *buf, size_t len);

#endif
