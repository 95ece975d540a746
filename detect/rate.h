/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_DETECT_RATE_H
#define DR_DETECT_RATE_H

#include "detect/detect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * Which rails are degraded: what each rail carries, and how many of its heartbeats are lost. Sans-
 * IO: the owner samples its channels and reports what it saw; times are monotonic ns, rates bit/s.
 *
 * By rate: DR_RATE_JUDGED windows in a row in which data waited carried less than 1 / DR_RATE_SLOW
 * of what another rail carries (measured within DR_RATE_RECENT_NS), and no more if as many in a row
 * carried 1 / DR_RATE_FAST of it. A rail that is asked for little is never called degraded.
 *
 * By loss: of DR_RATE_DATAGRAMS or more heartbeats without padding, of DR_RATE_LOSS_NS or more, the
 * peer did not receive DR_RATE_LOSSY percent, and no more if fewer than DR_RATE_CLEAN percent of
 * the next as many are lost. With 5 % loss, 20 or more of 100 are lost with a probability of 2e-7.
 */
enum {
	DR_RATE_RAILS_MAX = 16,
	DR_RATE_JUDGED = 2,
	DR_RATE_SLOW = 10,
	DR_RATE_FAST = 5,
	DR_RATE_DATAGRAMS = 100,
	DR_RATE_LOSSY = 20,
	DR_RATE_CLEAN = 10,
	DR_RATE_CUT = 50, /* lost in a row: the rail was cut, or their receiver stood */
	DR_RATE_UNKNOWN = UINT8_MAX,
};
#define DR_RATE_SAMPLE_NS (100 * DR_NS_PER_MS)
#define DR_RATE_WINDOW_NS (400 * DR_NS_PER_MS)
#define DR_RATE_LOSS_NS DR_NS_PER_S
#define DR_RATE_RECENT_NS (60 * DR_NS_PER_S)

struct dr_rate_rail {
	int64_t from_ns;     /* begin of the window; 0: none */
	uint64_t bytes;	     /* acknowledged in it */
	double capacity;     /* bit/s; 0: unknown */
	int64_t at_ns;	     /* when it was measured */
	double measured;     /* of the last window in which data waited; 0: none */
	unsigned slow, fast; /* such windows in a row */
	int loss_percent;    /* of the last sample of heartbeats; -1: none yet */
	bool by_rate, by_loss;
	unsigned versus; /* by_rate: the rail that it was compared with */
};

struct dr_rate {
	unsigned n_rails;
	struct dr_rate_rail rail[DR_RATE_RAILS_MAX];
};

/* What is known of a rail. */
struct dr_rate_state {
	bool degraded, by_loss; /* by_loss: loss is a reason */
	double bps;		/* last measurement while data waited; 0: none */
	double carries_bps;	/* at least; 0: unknown */
	int loss_percent;	/* of the heartbeats sent; -1: unknown */
	unsigned versus;	/* degraded by rate: the other rail, */
	double versus_bps;	/* and what it carries */
};

void dr_rate_init(struct dr_rate *r, unsigned n_rails);
/* Of the rail: `bytes` were acknowledged since the last call of the same owner; data has waited
 * since waited_ns, DR_NEVER: it did not. Several owners may use a rail. True: the rail's verdict
 * changed. */
bool dr_rate_acked(
	struct dr_rate *r, unsigned rail, uint64_t bytes, int64_t waited_ns, int64_t now);
/* The peer reports this loss. True: the rail's verdict changed. */
bool dr_rate_lost(struct dr_rate *r, unsigned rail, int percent);
void dr_rate_get(const struct dr_rate *r, unsigned rail, struct dr_rate_state *out);
/* "rail 0 is degraded: ..." without the rail's name, for people. */
void dr_rate_describe(const struct dr_rate_state *s, char *buf, size_t len);

/* Heartbeats of the peer that were lost on their way on one rail. */
struct dr_rate_loss {
	uint16_t at;	     /* that it had sent there, as its newest one on the rail says */
	unsigned sent, lost; /* of the sample in progress, */
	int64_t from_ns;     /* and its begin; 0: none */
	uint8_t percent;     /* of the last whole sample; DR_RATE_UNKNOWN: none yet */
};
/* One came on the rail; the peer has sent `sent` there, this one included. skip: those before it
 * do not count. */
void dr_rate_heard(struct dr_rate_loss *l, uint16_t sent, bool skip, int64_t now);

/* The rails of a process, judged once for all of its workers. */
struct dr_rail_rates {
	/* Silences that ended before the rail was declared down, by missed heartbeats; the last: or
	 * more. Relaxed atomics, as an exception from the lock. */
	_Atomic uint64_t silences[DR_RATE_RAILS_MAX][DR_DETECT_SILENCES];
	pthread_mutex_t lock;
	struct dr_rate rate;
};
void dr_rail_rates_init(struct dr_rail_rates *r, unsigned n_rails);
void dr_rail_rates_fini(struct dr_rail_rates *r);
void dr_rail_rates_get(struct dr_rail_rates *r, unsigned rail, struct dr_rate_state *out);

#endif
