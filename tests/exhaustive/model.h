/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_EXHAUSTIVE_MODEL_H
#define DR_TESTS_EXHAUSTIVE_MODEL_H

#include "tests/exhaustive/clock.h"

/*
 * Exhaustive search of the failover core in a small scope: both ends' struct dr_fo, the objects that
 * ship, joined by an abstract model of two paths. A STATE is both cores, the paths with all that is in
 * flight on them, how far the users are, and how many faults are left. A TRANSITION is one atomic step
 * of one end, of a NIC, of the wire or of the fault injector; what dr_channel_turn does after an event
 * (carry out the core's actions, post what it allows) is part of the step.
 *
 * Time. Most scopes have no clock; clock.h describes the others. Without it, before each call of the core its timers are all set to "just started",
 * so no timer is due; a transition of its own sets one timer to due and calls dr_fo_tick. So every order
 * of timers and events is searched, also such as no clock would show. Three sorts are rationed:
 *  - a timer that judges the peer (dial, answer, stuck, drain, the wait for the primary) goes off when
 *    nothing else can happen, or its rail is cut; at any other moment it costs a fault, as it takes a
 *    delay of half a second or more;
 *  - a frame is repeated (SWITCH, NOTIFY, GONE) when nothing else can happen; at any other moment it
 *    costs one of `dups`.
 *  - failback begins when nothing else can happen; at any other moment it costs one of `holds`.
 * The channel may end for want of a path only when both rails are cut or the peer has ended.
 *
 * Left out of a state's key, and why that hides nothing: times (above); the records, counters and
 * texts, which the core only writes; `rounds`, `penalty`, `stuck_ns`, which bound or delay; slots of
 * messages that are not in the window, which dr_fo_push sets. Epochs and generations are renumbered,
 * in order: the core compares them and adds one at the end that is ahead. exhaustive_test.c compares,
 * on random walks, what a core that lived through it all does with what one made from the key does.
 *
 * Personalities (tests/sim/sim.h says what each is like):
 *  stream        one FIFO each way for control, credits and data; SENT when the kernel took the part;
 *                the peer of an end that is fenced is told;
 *  remote write  data in any order, beside control; SENT and DELIVERED in any order, each possibly
 *                never; what a fenced sender wrote may land until the receiver's fence is done;
 *  plugin        as remote write, data and SENT in order.
 * In all of them a fence takes a while, an end may learn late or first by a timer that its peer is gone,
 * and a cut rail freezes what is in flight until it is whole again or the connection is given up.
 */
enum { EX_MSGS_MAX = 5, EX_PARTS_MAX = 8, EX_LANE_MAX = 15, EX_PACK_MAX = 768 };

enum ex_personality { EX_STREAM, EX_REMOTE_WRITE, EX_PLUGIN, EX_PERSONALITIES };
enum { EX_TX, EX_RX }; /* ends: sender, receiver */
enum {
	EX_L_CTRL,
	EX_L_DATA,
	EX_L_BACK,
	EX_LANES
}; /* sender to receiver, twice; receiver to sender */

struct ex_scope {
	enum ex_personality kind;
	unsigned connector; /* end that dials */
	unsigned msgs, parts[EX_MSGS_MAX], window, faults, dups;
	unsigned holds;	 /* failbacks that come while something else is under way */
	unsigned frames; /* control frames in flight each way of a path; more: back-pressure */
	/* Steps of their own, else done at once: dialling again, the fence of a connection that never
	 * was; and a cut connection may be given up before the rail's owner tells. */
	bool lazy;
	/* A switch must be able to end without the timers for an answer that does not come and (stream)
	 * for data that is stuck. */
	bool prompt;
	bool any_order;	    /* remote write: SENT in any order; else in the order of posting */
	bool cold;	    /* from the first dial on; else both paths are up and the sender runs */
	bool late_users[2]; /* the user of this end posts at any moment; else as early as it may */
	/* With a clock: clock.h. */
	bool clock;
	unsigned may;	  /* the faults: EX_MAY_ */
	bool idle;	  /* the search goes on after the transfer */
	bool no_failback; /* the sender does not return to the primary */
	unsigned
		told; /* the peer of a stopped end learns of it at any time; 1: at once; 2: never */
	bool flaps;   /* an idle channel's paths break any number of times, which costs no fault */
	bool grey;    /* data is never reported, on both rails */
	unsigned rounds;		    /* epochs without progress before the first state */
	int64_t hold_ns, lost_ns, stuck_ns; /* parameters of the cores */
	int64_t stop_ns;		    /* longest stop of an end */
	int64_t stride_ns; /* ticks that change only times are one step, up to this; 0: a step each */
	/* made from the above by ex_scope_init */
	unsigned base[EX_MSGS_MAX], all; /* parts are numbered through: first of a message; mask */
};

enum { EX_IT_CREDIT = DR_FRAME_TYPES, EX_IT_DATA };
struct ex_item {
	uint8_t kind;		   /* a frame's type, or EX_IT_ */
	uint8_t path, flags, mask; /* frame; CREDIT: mask of parts there; DATA: mask is the part */
	uint8_t seq;
	uint32_t epoch, gen;
};
struct ex_lane {
	unsigned n;
	struct ex_item it[EX_LANE_MAX];
};

enum {
	EX_MAY_BREAK = 1,
	EX_MAY_CUT = 2,
	EX_MAY_STOP = 4,  /* an end is stopped */
	EX_MAY_HANG = 8,  /* a fence is never done */
	EX_MAY_LATE = 16, /* what may happen at once happens later */
	EX_MAY_LOSE = 32,
};

enum ex_end_state { EX_NONE, EX_CONNECTING, EX_UP, EX_FENCED };
struct ex_end {
	uint8_t st;
	bool fence;	/* the core asked for one */
	bool failed;	/* FAILED was reported: nothing but FENCED follows */
	bool told_down; /* the rail's owner said so */
	bool knocked;	/* acceptor: admitted the dial; connector: its dial was told as INCOMING */
	bool hung;	/* its fence is never done */
	uint32_t gen;
};

struct ex_path {
	bool cut;
	struct ex_end end[2];
	uint8_t wr, wr_lost; /* parts that the sender's end may read; SENT of them never comes */
	uint8_t rx;	     /* parts whose buffers the receiver's end may write */
	uint8_t cr_msgs, cr_parts; /* credits at the sender's end */
	uint32_t wr_epoch, rx_epoch, cr_epoch;
	struct ex_lane lane[EX_LANES];
};

struct ex_state {
	struct dr_fo fo[2];
	struct ex_path path[DR_PATHS];
	uint8_t consumed; /* parts: the witness that the core's head and got are held against */
	uint8_t faults, dups, holds;
	struct ex_watch watch[2]; /* with a clock */
};

enum ex_tr_kind {
	EX_PUSH, /* the user posts a message */
	EX_DIAL, /* a dial gets to the acceptor */
	EX_ACC,	 /* the acceptor's end is READY */
	EX_TAKE, /* the next item of a lane gets to an end */
	EX_DATA, /* a part gets to the receiver beside control */
	EX_SENT,
	EX_FENCE_DONE,
	EX_NOTICE, /* an end learns that its peer is gone, or gives its connection up */
	EX_RAIL_DOWN,
	EX_RAIL_UP,
	EX_HEAL,
	EX_RETRY, /* timers from here */
	EX_DRAINED,
	EX_HOLD,
	EX_WAITED,
	EX_LOST,
	EX_RESEND,
	EX_GONE,
	EX_DIAL_OUT,
	EX_NO_ANSWER,
	EX_PRIMARY_OUT,
	EX_STUCK,
	EX_DRAIN_OUT,
	EX_TIME, /* with a clock, from here */
	EX_TICK,
	EX_WAKE,
	EX_OWN,	 /* the end notices that it was stopped */
	EX_TOLD, /* the end learns that its peer is stopped */
	EX_UNTOLD,
	EX_BREAK, /* faults from here */
	EX_CUT,
	EX_STOP, /* with a clock */
	EX_HANG,
	EX_LOSE_SENT,
	EX_LOSE_DATA,
	EX_TR_KINDS
};
struct ex_tr {
	uint8_t kind, p, e, arg;
	bool fault, dup, hold; /* what it costs */
};
enum { EX_TRS_MAX = 128 };

/* model.c. A broken rule is told by ex_violation, which does not return: see search.h. */
void ex_scope_init(struct ex_scope *sc);
void ex_init(const struct ex_scope *sc, struct ex_state *s);
void ex_step(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t);
const char *ex_personality_name(enum ex_personality k);
/* What the core must find before a call: no timer is due. */
void ex_copy(struct ex_state *to, const struct ex_state *from);
void ex_times(struct dr_fo *f);
void ex_lane_purge(struct ex_path *pa, unsigned e, bool data_too);
unsigned ex_parts_of(const struct ex_scope *sc, unsigned seq);

/* turn.c: what dr_channel_turn does, on modelled paths. */
void ex_turn(const struct ex_scope *sc, struct ex_state *s, unsigned e);
bool ex_peer_gone(const struct ex_path *pa, unsigned e);

/* enabled.c: the transitions that may happen now. */
unsigned ex_enabled(const struct ex_scope *sc, const struct ex_state *s, struct ex_tr *out);

/* pack.c: a state's key, and a state made from it. */
unsigned ex_pack(const struct ex_scope *sc, const struct ex_state *s, uint8_t *out);
void ex_unpack(const struct ex_scope *sc, const uint8_t *in, struct ex_state *s);

/* check.c */
void ex_check(const struct ex_scope *sc, const struct ex_state *s);
bool ex_done(const struct ex_scope *sc, const struct ex_state *s);
bool ex_dead(const struct ex_state *s); /* ended on both ends, or where nobody can know */
_Noreturn void ex_violation(const char *fmt, ...) DR_PRINTF(1, 2);

/* trace.c: one line each. */
void ex_tr_text(const struct ex_scope *sc, const struct ex_state *s, const struct ex_tr *t,
	char *buf, size_t len);
void ex_state_text(const struct ex_state *s, char *buf, size_t len);

static const int64_t EX_NOW = 1000 * DR_NS_PER_S;

#endif
