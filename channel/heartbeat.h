/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_HEARTBEAT_H
#define DR_CHANNEL_HEARTBEAT_H

#include "base/key.h"
#include "transport/path.h"

/*
 * Judges the rails between two processes by heartbeats. Sans-IO: the owner reports what it received,
 * calls the tick when it is due, and sends the datagrams that the tick requests. One thread; times are
 * monotonic ns. The rules are in docs/PROTOCOL.md, 1.3 (numbers), and docs/DETECTION.md. In short:
 *
 *  - Silence is judged relative to the other rails. A miss of a rail is an executed tick of ours in which
 *    a datagram of the peer arrived on another rail, and nothing on this one. A stalled peer is heard on
 *    no rail, and a stall of ours executes no tick: neither counts.
 *  - A rail is declared down after DR_HB_MISSES, later if it was silent before and came back, and only
 *    with evidence that is younger than the silence.
 *  - Each datagram carries our counts, so that the peer learns of the direction that it cannot observe.
 *  - Doubts of the owner are questions (dr_hb_question): padded datagrams show whether full packets pass.
 */
enum {
	DR_HB_RAILS_MAX = 16,
	DR_HB_MISSES = 3, /* consecutive ticks */
	DR_HB_REVIVE =
		3, /* ticks heard in both directions, without two missed ones in a row, before a rail is up again */
	DR_HB_QUARTER = 4, /* datagrams per interval after a second miss */
	DR_HB_FAST = 10,   /* ticks of a fast phase in one interval */
	DR_HB_BUDGET = 32,
	DR_HB_SPARED = 4,
	DR_HB_RARE = 8,
	DR_HB_FAST_MISSES =
		7, /* shortest silence that counts, in fast ticks: 0.05^7 is below 1e-9 */
	DR_HB_PADDED_LOST =
		8, /* fewest padded datagrams lost in a row that show that the rail carries none */
	DR_HB_PADDED_MAX = 32,
	DR_HB_PADDED_FLIGHT = 4,
	DR_HB_HISTOGRAM = 16,
};

/* At 1 Mb/s four packets of 9,000 bytes, which the kernel may send as one unit, take 288 ms. */
#define DR_HB_HELD_NS (350 * DR_NS_PER_MS)
/* Kernels delay an acknowledgement by up to 40 ms; two may be lost. */
#define DR_HB_MUTE_NS (150 * DR_NS_PER_MS)
#define DR_HB_AHEAD_NS (4 * DR_NS_PER_S)
#define DR_HB_REFRESH_NS DR_NS_PER_S
#define DR_HB_FAR_NS (300 * DR_NS_PER_MS)
/* The peer began no earlier than that before this end. */
#define DR_HB_EARLIER_NS (600 * DR_NS_PER_S)

struct dr_hb_rail {
	bool heard;	      /* since the last tick: bytes or a datagram arrived, */
	bool beat;	      /* a datagram arrived: the peer executed a tick, */
	bool heard_elsewhere; /* or another worker heard the rail, */
	bool heard_late;      /* or bytes were read that may have waited: they end no silence */
	bool down;	      /* verdict */
	bool padded_only;     /* down until a padded datagram arrives */
	bool mute;	      /* carries bytes, and no datagrams */
	bool suspected;	      /* by the owner: that is one of the misses */
	uint8_t miss;	      /* see above */
	uint8_t proved;	      /* of the misses, those in which a datagram arrived on another rail */
	uint8_t proved_full;  /* of these, those of ticks that were a whole interval apart */
	/* Most proved misses of a silence that ended by itself, lately; and of whole intervals alone, since a miss of
	 * a fast phase says nothing about those. See forget(). */
	uint8_t longest, longest_full;
	/* The owner's datagrams have not left this host; one was sent since the rail is suspect; and the owner has
	 * looked since, so that `held` is about it. */
	bool held, tried, looked;
	bool no_path;	     /* heartbeats use the paths, and none is up here */
	int64_t sent_ns;     /* the tick that had the last one sent */
	bool peer_held;	     /* the peer's, as it reported last */
	uint8_t peer_miss;   /* as the peer reported last; 255: it declared the rail down */
	uint8_t good;	     /* ticks heard since two in a row were not */
	uint64_t missed_at;  /* number of the last datagram that was sent before the first miss */
	uint64_t rx_tick;    /* number of the newest datagram; older ones are refused */
	uint64_t rx_padded;  /* number of the newest padded one */
	int64_t heard_ns;    /* last tick that found a sign of life */
	int64_t acked_ns;    /* dr_hb_acked, 0: never */
	int64_t beat_ns;     /* the last datagram arrived; 0: none yet */
	int64_t beat_gap_ns; /* longest time between two datagrams since the last ordinary tick */
	int64_t gap_ns
		[2]; /* longest time between two signs of life, in the present and the last tenth
				 of a second or so; 0: unknown */
	uint32_t padded_size; /* of padded datagrams to send, in bytes; 0: none */
	/* Numbers of the padded ones that were sent and not reported as received, a ring. */
	uint64_t padded[DR_HB_PADDED_MAX];
	unsigned n_padded;
	unsigned padded_lost; /* of these, overtaken by a small one */
	unsigned quick;	      /* padded datagrams to be sent more often than once per interval */
	/* Small datagrams, all so far: received; sent; received by the peer, as it reported last. */
	uint16_t small, small_sent, peer_small;
	uint32_t peer_newest; /* newest datagram of the last report of the peer */
	uint32_t peer_padded,
		asked_padded; /* newest padded one of the peer's reports: last, and then */
};

struct dr_hb {
	unsigned n_rails;
	int64_t interval_ns;
	uint8_t tx_key[DR_KEY_LEN], rx_key[DR_KEY_LEN];
	uint16_t gpu;
	bool connector; /* part of the datagram, so that a reflected one is refused */
	bool started;
	/* Set by the owner, which calls dr_hb_no_path: heartbeats use the paths. An end may hold a path that the other one has
	 * left, and heartbeats of the other rails are evidence then. So a request for reports adds some only once in
	 * DR_HB_RARE intervals: fewer than DR_HB_MISSES in the time that a rebuild takes. */
	bool on_paths;
	bool looks;	/* set by the owner: it calls dr_hb_held */
	bool peer_runs; /* a datagram arrived before the last full tick */
	/* The peer waits for a report: a padded datagram arrived, or a rail is down there. */
	bool asked;
	int64_t report_ns; /* earliest time of the next report on request */
	/* Workers that stand: here, in the datagrams of the last full tick, and at the peer as it reported last. */
	uint64_t stand, told_stand, peer_stand;
	int64_t peer_stand_ns; /* when it did */
	uint64_t tick;	       /* number of the last datagram sent */
	uint64_t echoed;       /* newest of ours, on any rail, that the peer reported */
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
	int64_t forget_ns;	   /* when `longest` is reduced next */
	int64_t gaps_ns;	   /* when gap_ns[1] is replaced by gap_ns[0] next */
	int64_t silent_ns; /* executed ticks in a row in which no rail was heard, their time */
	int64_t alive_ns;  /* last full tick in which one was */
	struct dr_hb_rail rail[DR_HB_RAILS_MAX];
	uint64_t sent, received, refused;
};

/* One doubt about a rail: what was known of its datagrams when it began. */
struct dr_hb_doubt {
	uint64_t from;	     /* number of the last one sent */
	uint32_t padded;     /* newest padded one that the peer had reported */
	uint16_t sent, peer; /* small ones: sent, and received by the peer */
};

/* Results of a tick; bit i stands for rail i. */
struct dr_hb_out {
	uint32_t send;	 /* rails that need a datagram now */
	uint32_t padded; /* of these, the rails that need a padded one before */
	/* Of these, the rails that need two: losses are likely the reason of a short silence. */
	uint32_t twice;
	/* Rails that are down, or missed twice, although the peer runs: bytes on a path of theirs would clear them. */
	uint32_t suspect;
	uint32_t fell; /* rails declared down */
	uint32_t rose; /* rails that are up again */
	/* Misses of a silence that ended in this tick while the rail was up; 0: none. DR_HB_HISTOGRAM - 1: or more. */
	uint8_t ended[DR_HB_RAILS_MAX];
	bool full; /* a full tick was executed, not a quarter */
};

/* n_rails in 1..DR_HB_RAILS_MAX. gpu and connector identify the pair of workers; token: the session's. */
void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t token[DR_TOKEN_LEN]);
/* From now on dr_hb_tick is due. */
void dr_hb_start(struct dr_hb *h, int64_t now);
/* Bytes arrived on the rail. */
void dr_hb_life(struct dr_hb *h, unsigned rail);
/* Bytes were read that may have arrived long ago, since their reader stood. They clear the rail, are no evidence against
 * others, and end no silence of all rails. */
void dr_hb_late_life(struct dr_hb *h, unsigned rail);
/* The peer's kernel or NIC acknowledged bytes: the rail works, whether or not the peer's process runs. A silence goes on, and how
 * long it was is remembered; the verdict waits. */
void dr_hb_acked(struct dr_hb *h, unsigned rail, int64_t now);
/* Another worker of this process heard the rail. */
void dr_hb_heard_elsewhere(struct dr_hb *h, unsigned rail);
/* Bits of the workers that stand, for the reports. While there are any, datagrams are sent in every full tick. */
void dr_hb_stand(struct dr_hb *h, uint64_t workers);
/* The peer reported lately that its worker stands. */
bool dr_hb_peer_stands(const struct dr_hb *h, unsigned worker, int64_t now);
/* Whether datagrams that were sent on the rail have not left this host; between two ticks. */
void dr_hb_held(struct dr_hb *h, unsigned rail, bool held);
/* Whether heartbeats use the paths and none of the rail's is up at this end; before a tick. */
void dr_hb_no_path(struct dr_hb *h, unsigned rail, bool none);
/* The rail is suspect or in question: the owner should look for that. */
bool dr_hb_doubted(const struct dr_hb *h, unsigned rail);
/* Bits of the rails that the next full tick would declare down if nothing more is received. The owner
 * should first read what has arrived on them. */
uint32_t dr_hb_suspects(const struct dr_hb *h);
/* The rail is up and was missed at this end, or at the peer's. */
bool dr_hb_suspected(const struct dr_hb *h, unsigned rail);
/* A datagram of `size` bytes arrived on the rail; data has its first len bytes, all but padding. 0, or
 * -EPROTO: not ours, forged, stale, or with a number that cannot be; it is counted and ignored. */
int dr_hb_receive(
	struct dr_hb *h, unsigned rail, const void *data, size_t len, size_t size, int64_t now);
/* Due at next_ns; earlier calls do nothing. busy: bits of the rails on which this end sent bytes within
 * the last interval. */
void dr_hb_tick(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out);
/* Writes the datagram for a rail; returns its length. size: of the whole datagram, which the caller pads
 * with zeros; 0: no padding. */
size_t dr_hb_make(struct dr_hb *h, unsigned rail, uint32_t size, uint8_t buf[DR_DGRAM_MAX]);
/* The longest time between two reads of bytes on a path of the rail, since the last call; of several
 * paths the shortest such time; 0: unknown. Datagrams that arrive more often replace it. */
void dr_hb_gap(struct dr_hb *h, unsigned rail, int64_t bytes_gap_ns);
/* The usual longest time between two signs of life on the rail; not less than an interval before it
 * was observed for a tenth of a second. */
int64_t dr_hb_usual_gap(const struct dr_hb *h, unsigned rail);
/* Data on the rail waits for an answer longer than usual: a fast phase begins. */
void dr_hb_suspect(struct dr_hb *h, unsigned rail, int64_t now);
/* From now on padded datagrams of `size` bytes, the largest of all doubts, are sent on the rail: twice
 * DR_HB_PADDED_LOST of them quickly, then one per interval; 0: no more, unless the rail is down for want of one. */
void dr_hb_question(struct dr_hb *h, unsigned rail, uint32_t size, int64_t now);
/* A doubt begins, before dr_hb_question: as many are sent quickly for it, too. The next functions look at what was sent
 * since. */
void dr_hb_doubt(struct dr_hb *h, unsigned rail, struct dr_hb_doubt *out);
/* So many segments without an answer that losses explain them with a probability of 1e-6 only, at the share of small
 * datagrams that were lost; if any were, as many answers may be. UINT_MAX: the sample is too small, or too many are lost. */
unsigned dr_hb_silent_needed(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d);
/* DR_HB_PADDED_LOST or more padded datagrams in a row were lost while small ones arrived. */
bool dr_hb_padded_lost(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d);
/* One arrived. */
bool dr_hb_padded_passed(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d);
/* From now on padded datagrams on a rail that is down for want of one have `size` bytes. */
void dr_hb_padded_size(struct dr_hb *h, unsigned rail, uint32_t size);
/* The rail does not carry padded datagrams: it stays down until one arrives. */
void dr_hb_padded_only(struct dr_hb *h, unsigned rail);
/* The rail is known to be down (link state, another worker): it stays down until it is heard again. */
void dr_hb_force_down(struct dr_hb *h, unsigned rail);
/* What is known of the rail's small datagrams; ns is not set. */
struct dr_rate_report;
void dr_hb_small(const struct dr_hb *h, unsigned rail, struct dr_rate_report *out);
/* Time since any rail was heard, in executed ticks times the interval. */
int64_t dr_hb_silent_ns(const struct dr_hb *h);

#endif
