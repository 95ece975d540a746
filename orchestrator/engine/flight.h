/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLIGHT_H
#define DR_ORCHESTRATOR_FLIGHT_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * How much one sender may have in flight, so that a measurement of a given duration ends with it: what is in flight at
 * its end takes about DR_FLIGHT_QUEUE_NS to drain, however slow the path is. Sans-IO: times are arguments.
 *
 *  limit = rate * max(DR_FLIGHT_QUEUE_NS, 2 * delay)    within DR_FLIGHT_LEAST and window * chunk
 *
 * rate: the highest one at which chunks were acknowledged during the last two periods, each from the chunk's post to
 * its acknowledgement; delay: the shortest such time. The limit begins at DR_FLIGHT_LEAST, grows by what is acknowledged
 * and at most doubles within DR_FLIGHT_DOUBLE_NS. A burst that a shaper or an empty queue takes at once is thus over
 * before much more than the path carries is in flight. A chunk is at most half of the limit.
 */
enum {
	DR_FLIGHT_QUEUE_NS = 100 * 1000 * 1000,
	DR_FLIGHT_DOUBLE_NS = 2 * 1000 * 1000,
	DR_FLIGHT_LEAST = 1024
};

struct dr_flight {
	bool on; /* false: whole chunks, and the window alone limits */
	uint32_t chunk_bytes;
	double limit, most; /* bytes */
	double ceiling;	    /* of the limit within DR_FLIGHT_DOUBLE_NS from grown_ns on */
	int64_t grown_ns;
	uint64_t posted, done; /* bytes */
	double rate[2];	       /* bytes per ns: highest of this period, of the one before */
	int64_t period_ns;     /* begin of this one */
	int64_t delay_ns;
};

/* A chunk in flight. */
struct dr_flight_mark {
	int64_t ns;
	uint64_t done; /* bytes acknowledged when it was posted */
};

/* A phase begins, with nothing in flight. */
void dr_flight_begin(
	struct dr_flight *f, bool on, uint32_t chunk_bytes, unsigned window, int64_t now_ns);
/* The path is another one now. */
void dr_flight_moved(struct dr_flight *f, int64_t now_ns);
/* Length of the next chunk, at most left; 0: wait for an acknowledgement. */
uint32_t dr_flight_next(const struct dr_flight *f, uint64_t left);
struct dr_flight_mark dr_flight_posted(struct dr_flight *f, uint32_t len, int64_t now_ns);
/* The chunk was acknowledged. */
void dr_flight_done(struct dr_flight *f, uint32_t len, struct dr_flight_mark m, int64_t now_ns);

#endif
