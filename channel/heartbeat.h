/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_HEARTBEAT_H
#define DR_CHANNEL_HEARTBEAT_H

#include "base/key.h"
#include "detect/detect.h"
#include "transport/path.h"

/*
 * Heartbeats of the rails between two processes: datagrams, their numbers, and when they are sent.
 * Sans-IO: the owner reports what it received, calls the tick when it is due, and sends the
 * datagrams that the tick requests. What they tell goes to detect/, whose state (`d`) the owner
 * uses as well. One thread; times are monotonic ns. docs/PROTOCOL.md, 1.3, has the format.
 */
enum {
	DR_HB_RAILS_MAX = DR_DETECT_RAILS_MAX,
	DR_HB_QUARTER = 4, /* datagrams per interval while a rail is suspect */
	DR_HB_BUDGET = 32, /* fast ticks; a phase needs half of them to begin */
	DR_HB_SPARED = 4,  /* ordinary ticks that give one fast tick back */
	DR_HB_PADDED_MAX = 32,
	DR_HB_PADDED_FLIGHT = 4,
	DR_HB_ASKS = 4, /* intervals in which a question holds */
};

struct dr_hb_padded {
	uint64_t number;
	int64_t sent_ns;
};

struct dr_hb_rail {
	uint64_t rx_tick;      /* number of the newest datagram; older ones are refused */
	uint64_t rx_padded;    /* number of the newest padded one */
	uint32_t padded_size;  /* of padded datagrams to send, in bytes; 0: none */
	int64_t asks_until_ns; /* the question ends */
	/* The padded ones that were sent and not reported as received, a ring; when the newest one
	 * that was received had been sent. */
	struct dr_hb_padded padded[DR_HB_PADDED_MAX];
	unsigned n_padded;
	int64_t passed_ns;
	uint16_t small_sent;  /* without padding, all so far */
	uint32_t peer_newest; /* newest datagram of the last report of the peer */
};

struct dr_hb {
	struct dr_detector d;
	unsigned n_rails;
	int64_t interval_ns;
	uint8_t tx_key[DR_KEY_LEN], rx_key[DR_KEY_LEN];
	uint16_t gpu;
	bool connector; /* part of the datagram, so that a reflected one is refused */
	bool started;
	/* The peer waits for a report: a padded datagram arrived, or a rail is down there. */
	bool asked;
	uint64_t tick;	       /* number of the last datagram sent */
	uint64_t told;	       /* newest number of the peer over all rails: its report counts */
	int64_t tick_ns;       /* last tick */
	int64_t next_ns;       /* when dr_hb_tick is due */
	int64_t last_tick_ns;  /* last full tick */
	int64_t fast_until_ns; /* end of the fast phase */
	unsigned budget;       /* fast ticks left */
	unsigned spared;       /* ordinary ticks since the budget was full */
	struct dr_hb_rail rail[DR_HB_RAILS_MAX];
	uint64_t sent, received, refused;
};

/* Results of a tick; bit i stands for rail i. */
struct dr_hb_out {
	uint32_t send;		/* rails that need a datagram now */
	uint32_t padded;	/* of these, the rails that need a padded one before */
	struct dr_detect_out v; /* verdicts */
	bool full;		/* a full tick was executed, not a quarter */
};

/* n_rails in 1..DR_HB_RAILS_MAX. gpu and connector identify the pair of workers; token: the session's. */
void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t token[DR_TOKEN_LEN]);
/* From now on dr_hb_tick is due. */
void dr_hb_start(struct dr_hb *h, int64_t now);
/* A datagram of `size` bytes arrived on the rail; data has its first len bytes, all but padding. 0, or
 * -EPROTO: not ours, forged, stale, or with a number that cannot be; it is counted and ignored. */
int dr_hb_receive(
	struct dr_hb *h, unsigned rail, const void *data, size_t len, size_t size, int64_t now);
/* Due at next_ns; earlier calls do nothing. busy: bits of the rails on which this end sent bytes within
 * the last interval. */
void dr_hb_tick(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out);
/* Writes the datagram for a rail; returns its length. size: of the whole datagram, which the caller pads
 * with zeros; 0: no padding. It counts as sent. */
size_t dr_hb_make(struct dr_hb *h, unsigned rail, uint32_t size, uint8_t buf[DR_DGRAM_MAX]);
/* Data on the rail waits for an answer longer than usual: a fast phase begins. */
void dr_hb_suspect(struct dr_hb *h, unsigned rail, int64_t now);
/* For DR_HB_ASKS intervals padded datagrams of `size` bytes, or the largest size that is asked for,
 * are sent on the rail. A call per interval goes on with the question. */
void dr_hb_question(struct dr_hb *h, unsigned rail, uint32_t size, int64_t now);
/* Of the padded datagrams that were sent after since_ns, DR_PADDED_LOST or more in a row were lost
 * while small ones arrived. */
bool dr_hb_padded_lost(const struct dr_hb *h, unsigned rail, int64_t since_ns);

#endif
