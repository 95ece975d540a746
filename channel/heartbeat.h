/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_HEARTBEAT_H
#define DR_CHANNEL_HEARTBEAT_H

#include "transport/path.h"

/*
 * Judge of the rails between two workers. Sans-IO: the owner says what it heard and when a tick is
 * due, and sends what is asked for.
 *
 * Silence alone proves nothing: the peer may stand still, or we may have. So a rail is judged against
 * the other rails. `miss` of a rail counts our own executed ticks in which the peer beat on some other
 * rail and this one was not heard; a sign of life, heard by any worker, sets it back. With `misses` of
 * them the rail is down in our direction; each datagram carries our counts, so that the peer learns of
 * the direction that it cannot hear itself. A peer that stands still is heard on no rail and nothing
 * counts; a stall of our own executes no tick. Ticks in which no rail is heard count as silence, which
 * the owner splits by what the peer's kernel still does.
 *
 * Only the peer's own datagrams are evidence against a rail. Bytes pass whenever its loop touches a
 * path; what it owes to every rail it pays in a tick, and a starved peer may send bytes on one rail for
 * many of our ticks before it comes to its own. Nor does what another worker hears tell of ours: its
 * peer is another thread. Bytes elsewhere raise a first miss and no more: that makes both ends beat on
 * every rail, and whoever then is still without a beat had no tick.
 *
 * A rail on which we sent anything within the last interval needs no datagram: its bytes are the sign
 * of life. While any rail is suspect every rail gets a datagram each half interval, so that the loss
 * of single datagrams decides nothing.
 */
enum {
	DR_HB_RAILS_MAX = 16,
	DR_HB_MISSES = 3, /* of consecutive ticks */
	DR_HB_REVIVE = 3, /* ticks heard both ways before a rail is up again */
};

struct dr_hb_rail {
	bool heard;	   /* a sign of life since the last tick: bytes or a datagram, */
	bool beat;	   /* of these a datagram: the peer's loop came to its own tick, */
	bool vouched;	   /* or another worker's */
	bool down;	   /* verdict */
	uint8_t miss;	   /* see above */
	uint8_t peer_miss; /* as the peer reported last */
	uint8_t good;	   /* ticks heard in a row */
	uint64_t rx_tick;  /* newest datagram's number: older ones are stale */
};

struct dr_hb {
	unsigned n_rails;
	int64_t interval_ns;
	uint8_t key[DR_TOKEN_LEN];
	uint16_t gpu;
	bool connector; /* so that a datagram reflected to its sender is nobody's */
	bool started;
	uint64_t tick;	      /* datagram number */
	uint64_t told;	      /* newest of the peer's, over all rails: its report counts */
	int64_t next_ns;      /* next call of dr_hb_tick */
	int64_t last_tick_ns; /* last full tick */
	uint32_t silent;      /* consecutive ticks in which no rail was heard */
	struct dr_hb_rail rail[DR_HB_RAILS_MAX];
	uint64_t sent, received, refused;
};

/* What a tick found; the owner acts. */
struct dr_hb_out {
	uint32_t send; /* rails that want a datagram now */
	uint32_t fell; /* rails that went down */
	uint32_t rose; /* rails that came up */
	bool full;     /* a full tick was executed (not a half) */
};

void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t key[DR_TOKEN_LEN]);
void dr_hb_start(struct dr_hb *h, int64_t now);
/* Any byte came over the rail. */
void dr_hb_life(struct dr_hb *h, unsigned rail);
/* Another worker of this process heard the rail. */
void dr_hb_vouch(struct dr_hb *h, unsigned rail);
/* A rail would go down at the next full tick if nothing were heard of it until then: what has arrived
 * and was not read yet should be. The rails, as bits. */
uint32_t dr_hb_accused(const struct dr_hb *h);
/* A datagram came over the rail. 0, or -EPROTO: not ours, forged, stale; counted, nothing changed. */
int dr_hb_receive(struct dr_hb *h, unsigned rail, const void *data, size_t len);
/* Due when now >= next_ns. busy: rails on which this end sent bytes within the last interval. */
void dr_hb_tick(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out);
/* The datagram for a rail; returns its length. */
size_t dr_hb_make(struct dr_hb *h, unsigned rail, uint8_t buf[DR_DGRAM_MAX]);
/* The link says that the rail is gone: it is down until it is heard again. */
void dr_hb_force_down(struct dr_hb *h, unsigned rail);
/* Time in executed ticks since any rail was heard. */
int64_t dr_hb_silent_ns(const struct dr_hb *h);

#endif
