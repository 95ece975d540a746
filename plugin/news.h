/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_NEWS_H
#define DR_PLUGIN_NEWS_H

#include "base/defs.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * What happens to a device is one line of NCCL's log (level INFO), whatever number of connections
 * and peers it meets. Each connection has lines of its own at TRACE. Any thread; for the process.
 */
struct ha_news {
	unsigned device;    /* its number */
	const char *ifname; /* ... and name */
	const char *peer;
	const char *to; /* the device that a connection goes on over; NULL: none was moved */
	int64_t gap_ns; /* time without data; below 0: the connection carried none */
	const char *why;
};
void ha_news_add(const struct ha_news *n, int64_t now_ns);
/* Print what began a second ago, so that the connections of an event are together; or all. */
void ha_news_print(int64_t now_ns, bool all);

#endif
