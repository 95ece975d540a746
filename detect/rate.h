/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_DETECT_RATE_H
#define DR_DETECT_RATE_H

#include "detect/detect.h"

#include <pthread.h>
#include <stdbool.h>

/*
 * Which rails of a process are degraded, judged once for all of its workers by what each rail
 * carries. The rules: docs/DETECTION.md, 6.1. The owners sample their channels and report what they
 * saw; times are monotonic ns, rates bit/s.
 */
enum {
	DR_RATE_RAILS_MAX = 16,
	DR_RATE_JUDGED = 2, /* windows in a row */
	DR_RATE_SLOW = 10,  /* as large a part of another rail's rate: degraded; */
	DR_RATE_FAST = 5,   /* and no more */
};
#define DR_RATE_SAMPLE_NS (100 * DR_NS_PER_MS)
#define DR_RATE_WINDOW_NS (400 * DR_NS_PER_MS)
#define DR_RATE_RECENT_NS (60 * DR_NS_PER_S)

struct dr_rate_rail {
	int64_t from_ns;     /* begin of the window; 0: none */
	uint64_t bytes;	     /* acknowledged in it */
	double capacity;     /* bit/s; 0: unknown */
	int64_t at_ns;	     /* when it was measured */
	double measured;     /* of the last window in which data waited; 0: none */
	unsigned slow, fast; /* such windows in a row */
	bool degraded;
	unsigned versus; /* degraded: the rail that it was compared with */
};

/* What is known of a rail. */
struct dr_rate_state {
	bool degraded;
	double bps;	    /* last measurement while data waited; 0: none */
	double carries_bps; /* at least; 0: unknown */
	unsigned versus;    /* degraded: the other rail, */
	double versus_bps;  /* and what it carries */
};

struct dr_rail_rates {
	pthread_mutex_t lock;
	unsigned n_rails;
	struct dr_rate_rail rail[DR_RATE_RAILS_MAX];
};

/* Any thread may call the functions between init and fini. */
void dr_rail_rates_init(struct dr_rail_rates *r, unsigned n_rails);
void dr_rail_rates_fini(struct dr_rail_rates *r);
/* Of the rail: `bytes` were acknowledged since the last call of the same owner; data has waited
 * since waited_ns, DR_NEVER: it did not. Several owners may use a rail. True: the rail's verdict
 * changed. */
bool dr_rate_acked(
	struct dr_rail_rates *r, unsigned rail, uint64_t bytes, int64_t waited_ns, int64_t now);
void dr_rail_rates_get(struct dr_rail_rates *r, unsigned rail, struct dr_rate_state *out);

#endif
