/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_FAILOVER_H
#define DR_CHANNEL_FAILOVER_H

#include "channel/channel.h"
#include "channel/frame.h"

/*
 * The failover core of one channel end: epochs, paths, the cut, replay, failback. Sans-IO: events
 * and time come in through the functions below, actions go out through `act` (drained by the caller
 * after every call), and the struct holds no pointer, so a search may copy and compare it.
 *
 * The design note with the numbered invariants stands on top of failover.c.
 */
enum {
	DR_FO_NONE = DR_PATHS, /* "no path" where a path index is expected */
	DR_FO_ACTS_MAX = 32,
	DR_FO_ROUNDS_MAX = 64, /* epochs without progress before the channel gives up */
};

enum dr_fo_pstate {
	DR_FOP_ABSENT,	   /* the channel has no such path */
	DR_FOP_DOWN,	   /* no connection; retry_ns says when the connector dials again */
	DR_FOP_CONNECTING, /* dialled, or waiting for the peer's dial */
	DR_FOP_READY,
	DR_FOP_FENCING, /* waits for FENCED; hard: DOWN follows; soft: READY follows */
};

enum dr_fo_state {
	DR_FO_START, /* no path carried data yet */
	DR_FO_RUN,   /* data flows on `active` in `epoch` */
	DR_FO_DRAIN, /* sender: failback wanted, no new message is posted until all is acknowledged */
	DR_FO_SWITCH, /* sender: SWITCH is out, waits for ANSWER and for its own fence */
	DR_FO_NOTIFY, /* receiver: its end failed, NOTIFY is repeated until SWITCH comes */
	DR_FO_FENCE,  /* receiver: SWITCH came, waits for its own fence and for a ready path */
	DR_FO_DEAD,   /* ended with `err` */
	DR_FO_STATES
};

enum dr_fo_act_kind {
	DR_FOA_CONNECT,	   /* make path `path` of generation `gen` and connect it */
	DR_FOA_FENCE,	   /* fence path `path` (soft or not) */
	DR_FOA_CTRL,	   /* send frame on path `path`; a lost one is repeated by timer */
	DR_FOA_SWITCHED,   /* `done` is complete: tell the owner */
	DR_FOA_PROTECTION, /* soft: both paths up; path: the one that changed */
	DR_FOA_DEAD,	   /* the channel ended: release everything, tell the owner */
};

struct dr_fo_act {
	enum dr_fo_act_kind kind;
	unsigned path;
	uint32_t gen;
	bool soft;
	struct dr_frame frame;
};

struct dr_fo_path {
	enum dr_fo_pstate state;
	uint32_t gen;	     /* of the connection that exists or is being made; 0: none yet */
	uint32_t incoming;   /* acceptor: newest generation the peer dialled */
	bool soft;	     /* FENCING: softly */
	bool rail_ok;	     /* the rail's owner believes that it carries */
	int64_t ready_ns;    /* READY since */
	int64_t retry_ns;    /* DOWN: dial then, */
	int64_t rest_ns;     /* but not before this while another path is READY */
	int64_t deadline_ns; /* CONNECTING: give up then */
	int64_t backoff_ns;
};

struct dr_fo_params {
	bool sender, connector, soft_fence, shadow, failback;
	unsigned window;
	int64_t hold_down_ns, lost_after_ns, stuck_after_ns;
};

struct dr_fo {
	struct dr_fo_params prm;
	enum dr_fo_state state;
	int err; /* DEAD: -errno */
	char why[96];

	uint32_t epoch;
	unsigned active; /* path that carries data, DR_FO_NONE */
	unsigned target; /* SWITCH, DRAIN: proposed path; FENCE: the sender's proposal */
	uint32_t target_gen;
	bool planned;
	struct dr_fo_path path[DR_PATHS];

	/* Messages: slot = seq % window. Sender: posted, retired: bit per part, in this epoch.
	 * Receiver: posted: this epoch; got: bit per part that is there (head only). */
	uint64_t head;	      /* oldest message not done */
	uint64_t acked;	      /* sender: everything below is delivered there; receiver: last told */
	uint64_t tail;	      /* next message the user posts */
	uint64_t cursor;      /* next message to post on the active path */
	unsigned cursor_part; /* sender: next part of it */
	uint64_t high; /* sender: highest message any part of which was ever posted, plus one */
	uint8_t n_parts[DR_CHANNEL_WINDOW_MAX];
	uint8_t posted[DR_CHANNEL_WINDOW_MAX];
	uint8_t retired[DR_CHANNEL_WINDOW_MAX];
	uint8_t got; /* receiver: parts of the head message */

	/* Receiver: where receives are posted, hence from where parts are accepted. */
	unsigned data_path;
	uint32_t data_gen, data_epoch;

	/* Sender: the answer to the current epoch, held until the own fence is done. */
	bool answered;
	unsigned answer_path;
	uint64_t answer_seq;
	unsigned answer_mask;

	unsigned rounds;     /* epochs since the last progress */
	int64_t asked_ns;    /* SWITCH: the target was first proposed then */
	int64_t resend_ns;   /* SWITCH, NOTIFY: repeat then */
	int64_t since_ns;    /* in this state since */
	int64_t nopath_ns;   /* no path is READY since; 0: some is */
	int64_t last_ns;     /* last delivery or acknowledgement */
	int64_t stuck_ns;    /* credited time without an acknowledgement, while the rail lived */
	int64_t tick_ns;     /* last tick, to see stalls of our own */
	int64_t failback_ns; /* last failback done */
	int64_t calm_ns;     /* penalty decays then */
	unsigned penalty;    /* flap damping: the hold-down is doubled so often */
	bool ever_up, protected_told, stalled;
	uint64_t dup_dropped, stale_dropped;
	uint32_t switches, failbacks, heals;

	struct dr_switch_record rec;  /* of the switch under way, when rec_open */
	struct dr_switch_record done; /* of the last one: what SWITCHED tells */
	bool rec_open;

	struct dr_fo_act act[DR_FO_ACTS_MAX];
	unsigned n_act;
};

void dr_fo_init(struct dr_fo *f, const struct dr_fo_params *p);
void dr_fo_start(struct dr_fo *f, int64_t now);

/* Events of the paths. gen: of the path object that reports; events of another one are stale. */
void dr_fo_path_ready(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now);
void dr_fo_path_failed(struct dr_fo *f, unsigned p, uint32_t gen, enum dr_scope scope, int err,
	const char *why, int64_t now);
void dr_fo_fenced(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now);
void dr_fo_incoming(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now);
void dr_fo_rail(struct dr_fo *f, unsigned p, bool ok, int64_t now);
void dr_fo_frame(struct dr_fo *f, unsigned p, const struct dr_frame *fr, int64_t now);
void dr_fo_tick(struct dr_fo *f, int64_t now);
/* Nobody called us for so long although it was due: what the peer sent meanwhile is still to be read,
 * so the timers that judge it start again. */
void dr_fo_own_stall(struct dr_fo *f, int64_t for_ns);
int64_t dr_fo_deadline(const struct dr_fo *f);

/* The user posts a message of n parts; -EAGAIN: window full. */
int dr_fo_push(struct dr_fo *f, unsigned n_parts, uint64_t *seq);
/* What may be posted on the active path now; false: nothing. Receiver: whole message, part unused,
 * *skip: parts already there. */
bool dr_fo_next(const struct dr_fo *f, uint64_t *seq, unsigned *part, unsigned *skip);
/* It was posted. */
void dr_fo_posted(struct dr_fo *f, int64_t now);
/* Sender: the path reads that part's buffer no more. */
void dr_fo_sent(
	struct dr_fo *f, unsigned p, uint32_t gen, uint32_t epoch, uint64_t seq, unsigned part);
/* Receiver: data of this epoch begin to come. */
void dr_fo_arriving(struct dr_fo *f, unsigned p, uint32_t gen, uint32_t epoch, int64_t now);
/* Receiver: 1 the message is complete, 0 accepted, -EALREADY duplicate, -ESTALE old epoch or path. */
int dr_fo_delivered(struct dr_fo *f, unsigned p, uint32_t gen, uint32_t epoch, uint64_t seq,
	unsigned part, int64_t now);
/* Receiver: the frame that tells the sender all that is delivered; marks it as told. */
void dr_fo_make_ack(struct dr_fo *f, struct dr_frame *out);
/* True when the message is done: its buffers are the user's. */
bool dr_fo_done(const struct dr_fo *f, uint64_t seq);
/* Sender: planned switch now. -EAGAIN: no other ready path, or a switch is under way. */
int dr_fo_switch_now(struct dr_fo *f, int64_t now);
/* The channel ends with err here; the peer is told on every ready path. */
void dr_fo_die(struct dr_fo *f, int err, const char *why, int64_t now);
/* Peer's process stands still (its kernel answers): deadlines wait. */
void dr_fo_stalled(struct dr_fo *f, bool stalled, int64_t now);

const char *dr_fo_state_name(enum dr_fo_state s);
const char *dr_fo_pstate_name(enum dr_fo_pstate s);
/* Asserts what must hold between two calls. */
void dr_fo_validate(const struct dr_fo *f);

#endif
