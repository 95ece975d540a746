/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;
	int rc = clock_gettime(id, &ts);

	dr_assert(rc == 0);
	return (int64_t)ts.tv_sec * DR_NS_PER_S + ts.tv_nsec;
}

int64_t dr_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

int64_t dr_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

int64_t dr_cpu_ns(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void dr_wall_format(int64_t wall_ns, char *buf, size_t len)
{
	int64_t sec = wall_ns / DR_NS_PER_S;
	int64_t rest = wall_ns % DR_NS_PER_S;
	struct tm tm;

	dr_assert(len >= 32);
	if (rest < 0) {
		rest += DR_NS_PER_S;
		sec--;
	}
	time_t t = (time_t)sec;
	gmtime_r(&t, &tm);
	snprintf(buf, len, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year + 1900, tm.tm_mon + 1,
		tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(rest / DR_NS_PER_US));
}
