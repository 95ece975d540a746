/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_FAILOVER_H
#define DR_CHANNEL_FAILOVER_H

#include "channel/channel.h"
#include "channel/frame.h"

/*
 * The failover core of one channel end: epochs, paths, the cut, replay, failback. Sans-IO: events and
 * time (monotonic ns) are arguments of the functions below. Actions are appended to `act`, which the
 * caller carries out and empties after every call. The struct holds no pointer, so a search may copy
 * and compare it. Not thread-safe: one driver. No function fails, except where it says so.
 *
 * The design note with the numbered invariants is at the top of failover.c.
 */
enum {
	DR_FO_NONE = DR_PATHS, /* "no path" where a path index is expected */
	DR_FO_ACTS_MAX = 32,
	DR_FO_ROUNDS_MAX = 64, /* epochs without progress before the channel gives up */
	DR_FO_LOCAL_MAX = 8,   /* failures of scope LOCAL in a row before the channel gives up */
};

enum dr_fo_pstate {
	DR_FOP_ABSENT,	   /* the channel has no such path */
	DR_FOP_DOWN,	   /* no connection; the connector dials again at retry_ns */
	DR_FOP_CONNECTING, /* dialling, or waiting for the peer's dial */
	DR_FOP_READY,
	DR_FOP_FENCING, /* waiting for FENCED; DOWN follows; see `stuck` */
};

enum dr_fo_state {
	DR_FO_START, /* no path carried data yet */
	DR_FO_RUN,   /* data flows on `active` in `epoch` */
	DR_FO_DRAIN, /* sender: before a failback, posts no new message until all are acknowledged */
	DR_FO_SWITCH, /* sender: SWITCH sent, waits for ANSWER and for its own fence */
	DR_FO_NOTIFY, /* receiver: its end failed, NOTIFY is repeated until SWITCH comes */
	DR_FO_FENCE,  /* receiver: SWITCH received, waits for its own fence and for a ready path */
	DR_FO_DEAD,   /* ended with `err` */
	DR_FO_STATES
};

enum dr_fo_act_kind {
	DR_FOA_CONNECT,	   /* create path `path` of generation `gen` and connect it */
	DR_FOA_FENCE,	   /* fence path `path` */
	DR_FOA_CTRL,	   /* send frame on path `path`; timers repeat lost ones */
	DR_FOA_DGRAM,	   /* send frame as a datagram on every rail, if the kind can */
	DR_FOA_SWITCHED,   /* a switch is complete, `done` describes it: tell the owner */
	DR_FOA_PROTECTION, /* prot: both paths are up; path: the one that changed */
	DR_FOA_DEAD, /* the channel ended with `err`: tell the owner; paths stay to tell the peer */
	DR_FOA_LEAVE, /* the peer knows, or the time to tell it is over: close the paths */
};

struct dr_fo_act {
	enum dr_fo_act_kind kind;
	unsigned path;
	uint32_t gen;
	bool prot;
	struct dr_frame frame;
};

struct dr_fo_path {
	enum dr_fo_pstate state;
	uint32_t gen;	   /* generation of the connection; 0: none yet */
	uint32_t incoming; /* acceptor: newest generation the peer dialled */
	bool stuck;	   /* FENCING: given up, nothing of the user's is in it; it stays unused */
	bool was_up;	   /* a connection of it was READY */
	bool rail_down;	   /* the rail's owner has declared it down */
	int64_t ready_ns;  /* READY since */
	int64_t retry_ns;  /* DOWN: time of the next dial, */
	int64_t dial_after_ns; /* delayed until this while another path is READY */
	int64_t deadline_ns;   /* CONNECTING, FENCING: timeout; DOWN, accepting end: repeat GONE */
	int64_t backoff_ns;    /* delay of the dial after the next failure */
};

/* connector: this end dials; shadow: path 1 exists; window:
 * messages, 1..DR_CHANNEL_WINDOW_MAX; times as in dr_channel_params. */
struct dr_fo_params {
	bool sender, connector, shadow, failback;
	unsigned window;
	int64_t hold_down_ns, lost_after_ns, stuck_after_ns;
};

struct dr_fo {
	struct dr_fo_params prm;
	enum dr_fo_state state;
	int err; /* DEAD: -errno */
	char why[256];

	uint32_t epoch;
	unsigned active; /* path that carries data, DR_FO_NONE */
	unsigned target; /* SWITCH, DRAIN, FENCE: proposed path; NOTIFY: the one that failed */
	uint32_t target_gen;
	bool planned;
	struct dr_fo_path path[DR_PATHS];

	/* Messages: slot = seq % window. Sender: posted and retired have a bit per part, for this
	 * epoch. Receiver: got has a bit per received part of the head message. */
	uint64_t head;	      /* oldest message that is not done */
	uint64_t acked;	      /* sender: all below are delivered; receiver: last acknowledged */
	uint64_t tail;	      /* next message that the user posts */
	uint64_t cursor;      /* next message to post on the active path */
	unsigned cursor_part; /* sender: its next part */
	uint64_t high; /* sender: highest message of which a part was ever posted, plus one */
	uint8_t n_parts[DR_CHANNEL_WINDOW_MAX];
	uint8_t posted[DR_CHANNEL_WINDOW_MAX];
	uint8_t retired[DR_CHANNEL_WINDOW_MAX];
	uint8_t got; /* receiver: received parts of the head message */

	unsigned sent_path; /* sender: connection of the parts posted last */
	uint32_t sent_gen;
	/* Receiver: path, generation and epoch of the posted receives; parts are accepted only from
	 * there. */
	unsigned data_path;
	uint32_t data_gen, data_epoch;

	/* Sender: the answer to the current epoch, held until the own fence is done. */
	bool answered;
	unsigned answer_path;
	uint64_t answer_seq;
	unsigned answer_mask;

	unsigned rounds; /* epochs since the last progress, or switch with nothing on the wire */
	unsigned local_failures; /* of the active path, scope LOCAL, since the last progress */
	int64_t proposed_ns;	 /* SWITCH: time of the first proposal of the target */
	int64_t resend_ns;	 /* SWITCH, NOTIFY: time of the next repetition */
	int64_t since_ns;	 /* time of the last change of state */
	int64_t nopath_ns;	 /* no path is READY since then; 0: one is */
	int64_t last_ns;	 /* time of the last delivery or acknowledgement */
	/* Sender: data was acknowledged last, by the peer or its transport, or nothing was owed; the
	 * time since then, without stalls; how much is too much; bytes that were acknowledged. */
	int64_t moved_ns, stuck_ns, patience_ns;
	uint64_t acked_bytes;
	int64_t looked_ns;   /* dr_fo_transport was called last */
	int64_t tick_ns;     /* time of the last tick, to detect our own stalls */
	int64_t failback_ns; /* time of the last failback */
	unsigned penalty;    /* flap damping: how often the hold-down is doubled */
	bool closing;	     /* this end closes: CLOSE is repeated */
	bool peer_knows;     /* DEAD: the peer has ended, or closes: nothing is repeated */
	bool left;	     /* DEAD: LEAVE was requested */
	int64_t leave_ns;    /* closing, DEAD: latest time of LEAVE, */
	int64_t say_ns;	     /* of the next CLOSE or ABORT */
	bool ever_up, protected_told, stalled;
	uint64_t dup_dropped, stale_dropped;
	uint32_t switches, failbacks, heals;

	struct dr_switch_record rec;  /* of the switch in progress, if rec_open */
	struct dr_switch_record done; /* of the last switch, for DR_FOA_SWITCHED */
	bool rec_open;

	struct dr_fo_act act[DR_FO_ACTS_MAX];
	unsigned n_act;
};

/* A connection: a path and the generation of its path object. */
struct dr_fo_conn {
	unsigned path;
	uint32_t gen;
};
static inline struct dr_fo_conn dr_fo_conn(unsigned path, uint32_t gen)
{
	return (struct dr_fo_conn){ .path = path, .gen = gen };
}

void dr_fo_init(struct dr_fo *f, const struct dr_fo_params *p);
void dr_fo_start(struct dr_fo *f, int64_t now);

/* Events of the paths. gen: generation of the reporting path object; events of another generation are
 * ignored. */
void dr_fo_path_ready(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now);
void dr_fo_path_failed(struct dr_fo *f, struct dr_fo_conn conn, enum dr_scope scope, int err,
	const char *why, int64_t now);
void dr_fo_fenced(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now);
void dr_fo_incoming(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now);
void dr_fo_rail(struct dr_fo *f, unsigned p, bool ok, int64_t now);
void dr_fo_frame(struct dr_fo *f, unsigned p, const struct dr_frame *fr, int64_t now);
/* Sender: what the transport of the active path has acknowledged so far; more than before is made
 * at answer_ns. patience_ns: the longest time without progress; at least stuck_after_ns. */
void dr_fo_transport(struct dr_fo *f, struct dr_fo_conn conn, uint64_t acked_bytes,
	int64_t answer_ns, int64_t patience_ns, int64_t now);
/* Sender: data was posted that the peer has not acknowledged. */
static inline bool dr_fo_owed(const struct dr_fo *f)
{
	return f->cursor + (f->cursor_part > 0) > f->head;
}
void dr_fo_tick(struct dr_fo *f, int64_t now);
/* The owner came for_ns too late: the timers that judge the peer and began before are extended. */
void dr_fo_own_stall(struct dr_fo *f, int64_t for_ns, int64_t now);
/* Latest time for the next dr_fo_tick; DR_NEVER. */
int64_t dr_fo_deadline(const struct dr_fo *f);

/* The user posts a message of n parts (1..DR_PARTS_MAX). -EAGAIN: window full; the channel's error if
 * it ended. */
int dr_fo_push(struct dr_fo *f, unsigned n_parts, uint64_t *seq);
/* The next item to post on the active path; false: none now. Sender: one part. Receiver: the whole
 * message; *skip has a bit per part that was received before. */
bool dr_fo_next(const struct dr_fo *f, uint64_t *seq, unsigned *part, unsigned *skip);
/* The item of dr_fo_next was posted. */
void dr_fo_posted(struct dr_fo *f, int64_t now);
/* Sender: the path no longer reads that part's buffer. */
void dr_fo_sent(
	struct dr_fo *f, unsigned p, uint32_t gen, uint32_t epoch, uint64_t seq, unsigned part);
/* Receiver: the first bytes of a data frame of this epoch arrived. */
void dr_fo_arriving(struct dr_fo *f, unsigned p, uint32_t gen, uint32_t epoch, int64_t now);
/* Receiver, a part arrived: 1 it completes the message, 0 accepted, -EALREADY duplicate, -ESTALE old
 * epoch or path. */
int dr_fo_delivered(struct dr_fo *f, struct dr_fo_conn conn, uint32_t epoch, uint64_t seq,
	unsigned part, int64_t now);
/* Receiver in RUN: makes the ACK for everything delivered, and records it as acknowledged. */
void dr_fo_make_ack(struct dr_fo *f, struct dr_frame *out);
/* True when the message is done: its buffers belong to the user. */
static inline bool dr_fo_done(const struct dr_fo *f, uint64_t seq)
{
	return seq < f->head;
}
/* Sender: all parts of the message are retired in this epoch, or it is done. */
bool dr_fo_sent_whole(const struct dr_fo *f, uint64_t seq);
/* Sender: starts a planned switch. -EAGAIN: no other ready path, or a switch is in progress; or the
 * final error. */
int dr_fo_switch_now(struct dr_fo *f, int64_t now);
/* Ends the channel with err (-errno); the peer is told on every ready path. */
void dr_fo_die(struct dr_fo *f, int err, const char *why, int64_t now);
/* Starts to close (docs/PROTOCOL.md, 4.1): CLOSE is repeated until the peer confirms it, for 500 ms
 * at most. Then the channel has ended with -ESHUTDOWN, without DR_FOA_DEAD. */
void dr_fo_close(struct dr_fo *f, int64_t now);
/* The peer's process stands: the deadline of a switch and the time without a path are suspended,
 * nothing is dialled, and frames are repeated rarely. */
void dr_fo_stalled(struct dr_fo *f, bool stalled, int64_t now);

const char *dr_fo_state_name(enum dr_fo_state s);
const char *dr_fo_pstate_name(enum dr_fo_pstate s);
/* Asserts the invariants that hold between two calls. */
void dr_fo_validate(const struct dr_fo *f);

#endif
