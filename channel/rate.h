/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_RATE_H
#define DR_CHANNEL_RATE_H

#include "base/defs.h"

#include <pthread.h>
#include <stdbool.h>

/*
 * Which rails are degraded: what each rail carries, and how many of its heartbeats are lost. Sans-IO: the
 * owner samples its channels and reports what it saw; times are monotonic ns, rates bit/s.
 *
 * A window is DR_RATE_WINDOW_NS of samples of one rail. Data WAITED in it if at the beginning of each
 * sampling interval the transport held more data than the peer's transport acknowledged until its end, so
 * that the rail never ran out of data. Then the acknowledged bytes are what the rail carries, its capacity;
 * otherwise they are a lower bound of it, which raises the capacity but never lowers it. A window without any
 * acknowledged byte shows nothing: it is the business of failure detection.
 *
 * A rail is degraded by rate if DR_RATE_JUDGED windows in a row in which data waited carried less than
 * 1 / DR_RATE_SLOW of what another rail carries (measured within DR_RATE_RECENT_NS), and no more if as many
 * windows in a row carried 1 / DR_RATE_FAST of it. A rail that is asked for little is never called degraded.
 *
 * It is degraded by loss if of DR_RATE_DATAGRAMS or more heartbeats without padding, of DR_RATE_LOSS_NS or more,
 * DR_RATE_LOSSY percent did not arrive, and no more if fewer than DR_RATE_CLEAN percent of the next as many are lost. With 5 % loss, 20 or
 * more of 100 are lost with a probability of 2e-7.
 */
enum {
	DR_RATE_RAILS_MAX = 16,
	DR_RATE_JUDGED = 2,
	DR_RATE_SLOW = 10,
	DR_RATE_FAST = 5,
	DR_RATE_DATAGRAMS = 100,
	DR_RATE_LOSSY = 20,
	DR_RATE_CLEAN = 10,
	DR_RATE_REFUSED_MAX = 3,
};
#define DR_RATE_SAMPLE_NS (100 * DR_NS_PER_MS)
#define DR_RATE_WINDOW_NS (400 * DR_NS_PER_MS)
#define DR_RATE_LOSS_NS DR_NS_PER_S
#define DR_RATE_RECENT_NS (60 * DR_NS_PER_S)

/* What a probe showed. */
struct dr_rate_result {
	int64_t ns;  /* its end; 0: there was none */
	double bps;  /* what the rail carries at least; 0: the probe was lost */
	double most; /* no less than it carries; 0: unknown */
	bool whole;  /* the burst was carried in its time */
	bool proven; /* nothing but the rail is known to have held it back: the rail carries no more */
};

struct dr_rate_rail {
	int64_t from_ns;     /* begin of the window; 0: none */
	uint64_t bytes;	     /* acknowledged in it */
	double capacity;     /* bit/s; 0: unknown */
	bool exact;	     /* data waited: not only a lower bound */
	int64_t at_ns;	     /* when it was measured */
	double measured;     /* of the last window in which data waited; 0: none */
	unsigned slow, fast; /* such windows in a row */
	int64_t sent, lost;  /* datagrams of the sample in progress, */
	int64_t sent_ns;     /* and its begin; 0: none */
	int loss_percent;    /* of the last whole sample; -1: none yet */
	bool by_rate, by_loss;
	unsigned versus;		      /* by_rate: the rail that it was compared with */
	int64_t probing_ns;		      /* a probe began at; 0: none is going on */
	struct dr_rate_result probed, before; /* the last probe, and the one before it */
	unsigned slow_probes;		      /* in a row */
	unsigned refused; /* times in a row that failback to it was refused, see dr_rate_gate */
	unsigned flows;	  /* see dr_rate_flows */
};

struct dr_rate {
	unsigned n_rails;
	struct dr_rate_rail rail[DR_RATE_RAILS_MAX];
};

/*
 * A probe: a burst of filler, in chunks that begin with DR_RATE_CHUNK and become four times as long up to DR_RATE_CHUNK_MAX,
 * each sent when the one before is acknowledged, so that little is queued on a slow rail. The fastest of the longest chunks
 * is what the rail carries: the first ones measure round trips, a connection that was idle sends slowly at first, and a token
 * bucket carries them at any rate. The burst ends at DR_RATE_PROBE_MAX_BPS; or with DR_RATE_BURST bytes, if the last chunk
 * proves something and was not faster, else with DR_RATE_BURST_MAX.
 *
 * After DR_RATE_PROBE_NS (12 round trips, if that is longer) nothing more is sent, and what the rest takes, one second
 * at most, is the measurement. With a window, see below, the first chunk shows the round trip, and is waited for. What
 * is known in this way is not counted in the time of a longest chunk.
 *
 * A NIC ends a connection on which nothing is acknowledged for its window, and what is queued for a slow rail may take longer.
 * Then the first chunk is DR_RATE_CHUNK_MIN, and what follows a chunk that took more than 1 / DR_RATE_NEAR of the window,
 * less a round trip, is no longer than it. A chunk that is not carried in half of the window, after what a token
 * bucket carried at once, is the last: what is known by then is the measurement.
 *
 * Time does not count in which the peer's receive buffer was closed. Neither does time in which the owner did not look for
 * DR_RATE_AWAY_NS or more, if the kernel lacked a part of the chunk then. If acknowledgements are polled, such time does not
 * count either if the chunk was acknowledged at its end: that may have happened at any moment of it.
 *
 * Where more than a fifth of a chunk's time does not count, its rate is a lower bound that proves nothing. If acknowledgements
 * are polled, the rate without that time is an upper bound, and proves something if it is too low as well.
 * After DR_RATE_PROBE_NS of such time the probe is over.
 */
enum {
	DR_RATE_BURST = 1 << 20,
	DR_RATE_BURST_MAX = 4 << 20,
	DR_RATE_CHUNK = 8 << 10,
	DR_RATE_CHUNK_MIN = 2 << 10,
	DR_RATE_CHUNK_MAX = 512 << 10,
	DR_RATE_NEAR = 8,
};
#define DR_RATE_PROBE_NS (100 * DR_NS_PER_MS)
#define DR_RATE_AWAY_NS (4 * DR_NS_PER_MS)
#define DR_RATE_LOOK_NS DR_NS_PER_MS	      /* between two looks */
#define DR_RATE_NEAR_NS (2 * DR_RATE_AWAY_NS) /* less is not known to be the rail's */
#define DR_RATE_AGE_NS                                                                             \
	(8 * DR_NS_PER_MS) /* an age may be so much too long: two ticks of the kernel's clock */
/* Above this a probe tells no difference: the owner looks once per millisecond or so. */
#define DR_RATE_PROBE_MAX_BPS 200e6
struct dr_rate_look {
	uint64_t handed,
		acked; /* filler of the probe that the kernel took; and that the peer's acknowledged, */
	int64_t age_ns;	 /* so long ago */
	int64_t held_ns; /* path's so far, see dr_path_stats */
	bool polled;	 /* acked is known when the owner looks, not when it happened */
	int64_t rtt_ns;	 /* of the chunk; 0: unknown */
};
struct dr_rate_probe {
	int64_t limit_ns;
	int64_t window_ns, rtt_ns;    /* 0: none; 0: unknown */
	uint64_t sent, acked, handed; /* bytes */
	uint32_t chunk;		      /* next one's length, */
	uint32_t last;		      /* last one's, */
	int64_t sent_ns, idle_ns;     /* when it was sent, and the time of it that does not count */
	int64_t seen_ns, held_ns;     /* at the last look */
	int64_t spent_ns, wasted_ns;  /* time of whole chunks that counts, and that does not */
	int64_t late_ns, late_idle_ns; /* the limit was reached at, 0: not yet; idle_ns then */
	uint64_t late_acked;
	double best, latest; /* bit/s of chunks of full length */
	bool proven, done, whole;
	double bps; /* done; 0: the connection failed, or did not take the filler: the probe is lost */
	double most; /* bit/s, no less than the rail carries; 0: unknown */
	bool polled;
};
/* rtt_ns, 0: unknown; window_ns: see dr_path_stats. */
void dr_rate_probe_init(
	struct dr_rate_probe *p, int64_t rtt_ns, int64_t held_ns, int64_t window_ns);
/* Returns how much to send now. */
uint32_t dr_rate_probe_step(struct dr_rate_probe *p, const struct dr_rate_look *look, int64_t now);

/*
 * So many more (or fewer) connections carry data on the rail, and share one processor with what is sent on other rails: of a
 * software device, for example. A probe is one connection. If it is as fast as an average one of them, it shows nothing
 * about its rail, however little that is beside all of them together.
 */
void dr_rate_flows(struct dr_rate *r, unsigned rail, int more);
/* A probe of the rail is going on. */
bool dr_rate_probing(const struct dr_rate *r, unsigned rail, int64_t now);

/* What a channel that wants to fail back to a rail has to do. */
enum dr_rate_gate {
	DR_RATE_OPEN,
	DR_RATE_SHUT, /* the rail carries less than it should */
	DR_RATE_LOST, /* the probe was lost */
	DR_RATE_WAIT, /* a probe is going on */
	DR_RATE_PROBE,
};
/* `other` is the rail in use; the channel asks since asked_ns, and a probe that ended long before is no answer.
 * A rail is refused if it is named degraded by rate, or was too slow for two proven probes in a row. A slow probe that proves
 * nothing opens the gate to a rail that is not named, and is lost for one that is.
 * Too slow for the burst's time, and the capacity of the other rail is only a lower bound: less than half of that is refused
 * at first, after a refusal less than a quarter, then an eighth, then 1 / DR_RATE_SLOW.
 * busy: it has data on the way, so that its rail is measured by that and not by a probe.
 * DR_RATE_PROBE: *which is to be probed now, by the caller. */
struct dr_rate_question {
	unsigned rail, other;
	bool busy;
	bool blind; /* the kind cannot probe */
	int64_t asked_ns;
};
enum dr_rate_gate dr_rate_gate(
	struct dr_rate *r, const struct dr_rate_question *q, int64_t now, unsigned *which);
/* Traffic returns to the rail, which is no longer degraded by rate until its traffic or a probe says so. True: the
 * rail's verdict changed. */
bool dr_rate_returned(struct dr_rate *r, unsigned rail);
/* The end of the probe. True: the rail's verdict changed. */
bool dr_rate_probed(struct dr_rate *r, unsigned rail, const struct dr_rate_probe *p, int64_t now);

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
/* Of the rail: `bytes` were acknowledged since the last call of the same owner; data has waited since
 * waited_ns, DR_NEVER: it did not. Several owners may use a rail. True: the rail's verdict changed. */
bool dr_rate_acked(
	struct dr_rate *r, unsigned rail, uint64_t bytes, int64_t waited_ns, int64_t now);
/* Of `sent` heartbeats `lost` did not arrive (negative: more arrived than were sent in this time). */
bool dr_rate_datagrams(struct dr_rate *r, unsigned rail, int sent, int lost, int64_t now);
void dr_rate_get(const struct dr_rate *r, unsigned rail, struct dr_rate_state *out);
/* The fastest other rail that was measured lately; -1: none. */
int dr_rate_reference(const struct dr_rate *r, unsigned rail, int64_t now);
/* `bps`, which the rail carries at least, is so much that it need not be asked whether data waits. */
bool dr_rate_enough(const struct dr_rate *r, unsigned rail, double bps, int64_t now);
/* "rail 0 is degraded: ..." without the rail's name, for people. */
void dr_rate_describe(const struct dr_rate_state *s, char *buf, size_t len);

/* The peer's reports of our small datagrams on one rail. What is under way, perhaps in a long queue, is not lost: only
 * datagrams are counted that are older than the newest one that the peer received. */
struct dr_rate_report {
	uint64_t number; /* of the peer's report */
	uint64_t newest; /* our newest datagram that it received on the rail */
	uint16_t got;	 /* small ones that it received so far */
	uint64_t last;	 /* our last datagram on any rail, */
	uint16_t sent;	 /* and small ones that we had sent on the rail then */
	int64_t ns;	 /* now */
};
enum { DR_RATE_MARKS = 256 };
struct dr_rate_reports {
	struct {
		uint64_t last;
		uint16_t sent;
	} mark[DR_RATE_MARKS]; /* of the calls so far, a ring */
	unsigned n_marks;
	uint64_t number;    /* of the last report */
	int64_t ns;	    /* when it came; 0: none did */
	bool counted;	    /* the next two are known */
	uint16_t sent, got; /* up to the last call that counted */
};
/* False: no new report, or the first one after a pause of more than pause_ns, in which the peer may have been
 * stopped. To be called after each tick that may have sent datagrams. */
bool dr_rate_report(struct dr_rate_reports *p, const struct dr_rate_report *now, int64_t pause_ns,
	int *sent, int *lost);

/* The rails of a process, judged once for all of its workers. */
struct dr_rail_rates {
	pthread_mutex_t lock;
	struct dr_rate rate;
};
void dr_rail_rates_init(struct dr_rail_rates *r, unsigned n_rails);
void dr_rail_rates_fini(struct dr_rail_rates *r);
void dr_rail_rates_get(struct dr_rail_rates *r, unsigned rail, struct dr_rate_state *out);

#endif
