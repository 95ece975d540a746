/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_HEARTBEAT_H
#define DR_CHANNEL_HEARTBEAT_H

#include "base/key.h"
#include "detect/detect.h"
#include "detect/rate.h"
#include "transport/path.h"

/*
 * Heartbeats of the rails between two processes: datagrams, their numbers, and when they are sent.
 * Sans-IO: the owner reports what it received, calls the tick when it is due, and sends the
 * datagrams that the tick requests. What they tell goes to detect/, whose state (`d`) the owner
 * uses as well. One thread; times are monotonic ns. docs/PROTOCOL.md, 1.3, has the format and the
 * numbers.
 *
 * Doubts of the owner are questions (dr_hb_question): padded datagrams show whether full packets
 * pass.
 */
enum {
	DR_HB_RAILS_MAX = DR_DETECT_RAILS_MAX,
	DR_HB_QUARTER = 4, /* datagrams per interval while a rail is suspect */
	DR_HB_BUDGET = 32, /* fast ticks; a phase needs half of them to begin */
	DR_HB_SPARED = 4,  /* ordinary ticks that give one fast tick back */
	DR_HB_PADDED_MAX = 32,
	DR_HB_PADDED_FLIGHT = 4,
};

#define DR_HB_AHEAD_NS (4 * DR_NS_PER_S)
#define DR_HB_REFRESH_NS DR_NS_PER_S
#define DR_HB_FAR_NS (300 * DR_NS_PER_MS)
/* The peer began no earlier than that before this end. */
#define DR_HB_EARLIER_NS (600 * DR_NS_PER_S)

struct dr_hb_rail {
	uint64_t rx_tick;     /* number of the newest datagram; older ones are refused */
	uint64_t rx_padded;   /* number of the newest padded one */
	uint32_t padded_size; /* of padded datagrams to send, in bytes; 0: none */
	/* Numbers of the padded ones that were sent and not reported as received, a ring. */
	uint64_t padded[DR_HB_PADDED_MAX];
	unsigned n_padded;
	unsigned padded_lost; /* of these, overtaken by a small one */
	unsigned quick;	      /* padded datagrams to be sent more often than once per interval */
	uint16_t small_sent;  /* without padding, all so far */
	struct dr_rate_loss loss; /* of the peer's on their way; */
	uint8_t peer_loss;	  /* of ours, in percent, as it reported last */
	uint32_t peer_newest;	  /* newest datagram of the last report of the peer */
	uint32_t peer_padded,
		asked_padded; /* newest padded one of the peer's reports: last, and then */
};

struct dr_hb {
	struct dr_detector d;
	unsigned n_rails;
	int64_t interval_ns;
	uint8_t tx_key[DR_KEY_LEN], rx_key[DR_KEY_LEN];
	uint16_t gpu;
	bool connector; /* part of the datagram, so that a reflected one is refused */
	bool started;
	bool beat;	/* a datagram arrived since the last full tick, */
	bool peer_runs; /* or before it */
	/* The peer waits for a report: a padded datagram arrived, or a rail is down there. */
	bool asked;
	/* Workers that stand: here, in the datagrams of the last full tick, and at the peer as it reported last. */
	uint64_t stand, told_stand, peer_stand;
	int64_t peer_stand_ns; /* when it did */
	uint64_t tick;	       /* number of the last datagram sent */
	uint64_t told;	       /* newest number of the peer over all rails: its report counts */
	/* The peer's clock was not above base_clock_ns at base_ns. It is known anew when the peer reports our datagram
	 * number `mark`, or a later one: those are sent after mark_ns. */
	int64_t base_clock_ns, base_ns, mark_ns;
	uint64_t mark;
	int64_t far_ns; /* numbers beyond the bound came since then, and no others; 0: none did */
	uint64_t
		far_mark; /* a report of this datagram of ours, or a later one, is younger than the first of them */
	int64_t all_ns;		   /* datagrams were sent on all rails */
	int64_t start_ns, sent_ns; /* of our clock: its zero; the last tick */
	int64_t next_ns;	   /* when dr_hb_tick is due */
	int64_t last_tick_ns;	   /* last full tick */
	int64_t fast_until_ns;	   /* end of the fast phase */
	unsigned budget;	   /* fast ticks left */
	unsigned spared;	   /* ordinary ticks since the budget was full */
	struct dr_hb_rail rail[DR_HB_RAILS_MAX];
	uint64_t sent, received, refused;
};

/* One doubt about a rail: what was known of its datagrams when it began. */
struct dr_hb_doubt {
	uint64_t from;	 /* number of the last one sent */
	uint32_t padded; /* newest padded one that the peer had reported */
};

/* Results of a tick; bit i stands for rail i. */
struct dr_hb_out {
	uint32_t send;	 /* rails that need a datagram now */
	uint32_t padded; /* of these, the rails that need a padded one before */
	/* Rails that are down, or missed twice, although the peer runs: bytes on a path of theirs would clear them. */
	uint32_t suspect;
	struct dr_detect_out v; /* verdicts */
	bool full;		/* a full tick was executed, not a quarter */
};

/* n_rails in 1..DR_HB_RAILS_MAX. gpu and connector identify the pair of workers; token: the session's. */
void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t token[DR_TOKEN_LEN]);
/* From now on dr_hb_tick is due. */
void dr_hb_start(struct dr_hb *h, int64_t now);
/* Bits of the workers that stand, for the reports. While there are any, datagrams are sent in every full tick. */
void dr_hb_stand(struct dr_hb *h, uint64_t workers);
/* The peer reported lately that its worker stands. */
bool dr_hb_peer_stands(const struct dr_hb *h, unsigned worker, int64_t now);
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
/* From now on padded datagrams of `size` bytes, the largest of all doubts, are sent on the rail:
 * twice DR_PADDED_LOST of them quickly, then one per interval; 0: no more, unless the rail is
 * down for want of one. */
void dr_hb_question(struct dr_hb *h, unsigned rail, uint32_t size, int64_t now);
/* A doubt begins, before dr_hb_question: as many are sent quickly for it, too. The next functions look at what was sent
 * since. */
void dr_hb_doubt(struct dr_hb *h, unsigned rail, struct dr_hb_doubt *out);
/* DR_PADDED_LOST or more padded datagrams in a row were lost while small ones arrived. */
bool dr_hb_padded_lost(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d);
/* One arrived. */
bool dr_hb_padded_passed(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d);
/* From now on padded datagrams on a rail that is down for want of one have `size` bytes. */
void dr_hb_padded_size(struct dr_hb *h, unsigned rail, uint32_t size);

#endif
