/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_HEARTBEAT_H
#define DR_CHANNEL_HEARTBEAT_H

#include "transport/path.h"

/*
 * Judges the rails between two workers. Sans-IO: the owner reports what it received and calls the tick
 * when it is due, and sends the datagrams that the tick requests. One thread; times are monotonic ns.
 *
 * Silence alone proves nothing: either process may be stalled. So a rail is judged relative to the
 * other rails. `miss` of a rail counts our own executed ticks in which a heartbeat of the peer arrived
 * on another rail and nothing arrived on this one. A sign of life, received by any worker, resets it.
 * At DR_HB_MISSES the rail is declared down in our direction. Each datagram carries our counts, so
 * that the peer learns of the direction that it cannot observe. A stalled peer is heard on no rail,
 * and nothing counts; a stall of our own executes no tick. Ticks in which no rail is heard count as
 * silence; the owner then checks what the peer's kernel still does.
 *
 * Only the peer's own datagrams are evidence against a rail. Its bytes are sent whenever its loop
 * handles a path, its heartbeats of all rails in one tick; a starved peer may send bytes on one rail
 * for many of our ticks before it executes its own. What another worker hears is no evidence either,
 * since its peer is another thread. Bytes on another rail raise a first miss only. Then both ends send
 * datagrams on every rail, and these decide.
 *
 * A rail on which we sent anything within the last interval needs no datagram: its bytes are the sign
 * of life. While any rail is suspect, every rail gets a datagram each half interval, so that a single
 * loss does not matter.
 */
enum {
	DR_HB_RAILS_MAX = 16,
	DR_HB_MISSES = 3, /* consecutive ticks */
	DR_HB_REVIVE = 3, /* ticks heard in both directions before a rail is up again */
};

struct dr_hb_rail {
	bool heard;	      /* since the last tick: bytes or a datagram arrived, */
	bool beat;	      /* a datagram arrived: the peer executed a tick, */
	bool heard_elsewhere; /* or another worker heard the rail */
	bool down;	      /* verdict */
	uint8_t miss;	      /* see above */
	uint8_t peer_miss;    /* as the peer reported last */
	uint8_t good;	      /* consecutive ticks heard */
	uint64_t rx_tick;     /* number of the newest datagram; older ones are refused */
};

struct dr_hb {
	unsigned n_rails;
	int64_t interval_ns;
	uint8_t key[DR_TOKEN_LEN];
	uint16_t gpu;
	bool connector; /* part of the datagram, so that a reflected one is refused */
	bool started;
	uint64_t tick;	      /* number of the last datagram sent */
	uint64_t told;	      /* newest number of the peer over all rails: its report counts */
	int64_t next_ns;      /* when dr_hb_tick is due */
	int64_t last_tick_ns; /* last full tick */
	uint32_t silent;      /* consecutive ticks in which no rail was heard */
	struct dr_hb_rail rail[DR_HB_RAILS_MAX];
	uint64_t sent, received, refused;
};

/* Results of a tick; bit i stands for rail i. */
struct dr_hb_out {
	uint32_t send; /* rails that need a datagram now */
	uint32_t fell; /* rails declared down */
	uint32_t rose; /* rails that are up again */
	bool full;     /* a full tick was executed, not a half one */
};

/* n_rails in 1..DR_HB_RAILS_MAX. gpu and connector identify the pair of workers; key: the session's
 * token. */
void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t key[DR_TOKEN_LEN]);
/* From now on dr_hb_tick is due. */
void dr_hb_start(struct dr_hb *h, int64_t now);
/* Bytes arrived on the rail. */
void dr_hb_life(struct dr_hb *h, unsigned rail);
/* Another worker of this process heard the rail. */
void dr_hb_heard_elsewhere(struct dr_hb *h, unsigned rail);
/* Bits of the rails that the next full tick would declare down if nothing more is received. The owner
 * should first read what has arrived on them. */
uint32_t dr_hb_suspects(const struct dr_hb *h);
/* A datagram arrived on the rail. 0, or -EPROTO: not ours, forged or stale; it is counted and
 * ignored. */
int dr_hb_receive(struct dr_hb *h, unsigned rail, const void *data, size_t len);
/* Due at next_ns; earlier calls do nothing. busy: bits of the rails on which this end sent bytes within
 * the last interval. */
void dr_hb_tick(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out);
/* Writes the datagram for a rail; returns its length. */
size_t dr_hb_make(struct dr_hb *h, unsigned rail, uint8_t buf[DR_DGRAM_MAX]);
/* The rail is known to be down (link state, another worker): it stays down until it is heard again. */
void dr_hb_force_down(struct dr_hb *h, unsigned rail);
/* Time since any rail was heard, in executed ticks times the interval. */
int64_t dr_hb_silent_ns(const struct dr_hb *h);

#endif
