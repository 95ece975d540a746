/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_CHANNEL_H
#define DR_CHANNEL_CHANNEL_H

#include "transport/path.h"

/*
 * One end of a dual-path channel: one-way, ordered messages, each of 1..DR_PARTS_MAX parts, that
 * survive the loss of either path. docs/PROTOCOL.md states frames, states and invariants.
 *
 * Time comes in as an argument and nothing here blocks or makes a system call of its own, so the
 * simulator runs this very code over simulated paths.
 *
 * Driving. A channel has one driver at a time. dr_channel_try_drive takes the right to call the
 * functions below it; whoever gets -EBUSY goes on with something else.
 */
struct dr_channel;

/* Memory registered on the rails of both paths. Made by dr_channel_mem_reg, one per channel. */
struct dr_mem {
	void *base;
	size_t len;
	struct dr_mr *mr[DR_PATHS];
};

/* A message part as the user names it. */
struct dr_span {
	const struct dr_mem *mem;
	uint64_t off;
	uint32_t len;
	uint32_t tag;
};

/* What one end saw of one switch of paths. All times: this end's monotonic clock, ns; 0 = not
 * reached. Receiver: gap = first_delivery - last_delivery, and its parts add up to it. */
struct dr_switch_record {
	uint32_t epoch;	     /* the epoch that the switch began */
	unsigned from, to;   /* path indices */
	bool planned;	     /* failback */
	bool self_detected;  /* false: the other end asked */
	enum dr_scope scope; /* of the cause, when self-detected */
	int err;	     /* of the cause, -errno */
	char cause[96];	     /* of the cause, for people */
	int64_t last_delivery_ns; /* receiver: last in-order delivery of the old epoch (sender: last ack) */
	int64_t detect_ns;	/* own detection, or the other end's NOTIFY or SWITCH */
	int64_t fenced_ns;	/* own end of the old path fenced */
	int64_t answer_ns;	/* receiver: ANSWER posted; sender: ANSWER taken */
	int64_t first_frame_ns; /* receiver: first data frame of the epoch; sender: first data posted */
	int64_t first_delivery_ns; /* receiver: first in-order delivery; sender: first acknowledgement */
	uint32_t in_flight_messages; /* sender: posted and not acknowledged when it detected */
	uint32_t replayed_messages;  /* sender: posted again */
	uint64_t replayed_bytes;     /* sender */
	uint32_t rounds;	     /* epochs this switch took */
};

struct dr_channel_stats {
	uint64_t messages, bytes; /* sender: acknowledged; receiver: delivered */
	uint64_t posted_messages; /* by the user */
	uint64_t path_bytes
		[DR_PATHS]; /* user bytes over each path, replays and partial parts included */
	uint64_t path_wire[DR_PATHS]; /* with frames, both ways */
	uint64_t replayed_messages, replayed_bytes;
	uint64_t duplicates_dropped; /* receiver: parts refused because they were there already */
	uint64_t stale_dropped;	     /* completions of an old epoch or generation */
	uint32_t switches, failbacks, heals;
	uint32_t epoch;
	unsigned active; /* path index; DR_PATHS: none now */
	bool path_up[DR_PATHS];
	uint32_t path_connections[DR_PATHS]; /* how often each came up, rebuilds included */
	int64_t last_progress_ns;	     /* last delivery or acknowledgement */
	uint64_t acked_seq, next_seq;	     /* sender: oldest not acknowledged, next to be taken;
					   receiver: next to be delivered, next to be posted */
	uint64_t syscalls, retransmits;
};

/* What the owner wants to hear; every function may be NULL. Called from inside the functions below. */
struct dr_channel_ops {
	void (*switched)(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec);
	/* prot: both paths up. Tells also when one was lost or healed. */
	void (*protection)(
		void *arg, struct dr_channel *ch, bool prot, unsigned path, int64_t now_ns);
	/* The channel ended for good: err is final (-ENETDOWN both paths lost, -ECANCELED memory taken
	 * away or closed by the peer, -EPROTO, -ENOMEM). Once. */
	void (*failed)(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now_ns);
	/* A control frame that is not the channel's own: its first byte is DR_CHANNEL_FOREIGN or more. The
	 * rail's owner sends its heartbeats so where the kind has no datagrams. */
	void (*foreign)(void *arg, struct dr_channel *ch, unsigned path, const void *data,
		size_t len, int64_t now_ns);
	/* A message became testable as done (sender: acknowledged; receiver: delivered). */
	void (*completed)(
		void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now_ns);
};

struct dr_channel_params {
	uint32_t id;
	bool sender, connector;
	unsigned window;		/* messages in flight, 1..DR_CHANNEL_WINDOW_MAX */
	struct dr_rail *rail[DR_PATHS]; /* rail[1] NULL: no shadow */
	bool failback;
	int64_t hold_down_ns;
	int64_t lost_after_ns;	  /* no path for so long: both are lost */
	int64_t stuck_after_ns;	  /* no acknowledgement of credited data while the rail lives */
	struct dr_poller *poller; /* NULL: the owner calls dr_channel_progress */
	int64_t *due_ns; /* lowered to dr_channel_deadline whenever that changes; may be NULL */
	const struct dr_channel_ops *ops;
	void *arg;
};
enum { DR_CHANNEL_WINDOW_MAX = 256, DR_CHANNEL_FOREIGN = 0x40 };

int dr_channel_create(const struct dr_channel_params *p, struct dr_channel **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Both paths' handles in one, <= DR_HANDLE_MAX bytes; returns the length or -errno. */
int dr_channel_handle(struct dr_channel *ch, void *buf, size_t cap);
/* The peer's handle; starts both paths. The channel runs as soon as either path is up. */
int dr_channel_start(struct dr_channel *ch, const void *handle, size_t len, int64_t now_ns,
	struct dr_err *e) DR_MUST_CHECK;
/* True once the first path carries data; a channel that failed returns its error. */
int dr_channel_ready(const struct dr_channel *ch);

/* Errors: those of mr_reg of both rails' kind. */
int dr_channel_mem_reg(struct dr_channel *ch, const struct dr_memory *m, struct dr_mem *out,
	struct dr_err *e) DR_MUST_CHECK;
/* Nothing touches the memory afterwards. With messages outstanding in it the channel is fenced now
 * and ends with -ECANCELED at both ends. */
void dr_channel_mem_dereg(struct dr_channel *ch, struct dr_mem *mem, int64_t now_ns);

/* 0 or -EBUSY. Pairs with dr_channel_unlock. */
int dr_channel_try_drive(struct dr_channel *ch) DR_MUST_CHECK;
void dr_channel_unlock(struct dr_channel *ch);

/*
 * Post one message; *seq counts from 0 in each channel. -EAGAIN: `window` messages are in flight.
 * A channel that failed returns its error. The spans' memory is the channel's until the message is
 * done. Nothing need be posted at the other end: data waits for the receiver's credit here.
 */
int dr_channel_send(struct dr_channel *ch, const struct dr_span *parts, unsigned n, uint64_t *seq,
	int64_t now_ns) DR_MUST_CHECK;
int dr_channel_recv(struct dr_channel *ch, const struct dr_span *parts, unsigned n, uint64_t *seq,
	int64_t now_ns) DR_MUST_CHECK;
/* 1 done: its buffers are the user's again (delivered: in order, once); 0 not yet; -errno final. */
int dr_channel_test(const struct dr_channel *ch, uint64_t seq);
/* Receiver: length of part i of a done message among the last `window`. */
uint32_t dr_channel_received_len(const struct dr_channel *ch, uint64_t seq, unsigned part);
/* Put posted work on the wire now (posting alone may wait for the next progress). Acknowledgements that
 * are not worth a frame yet are held back, up to 50 us: */
void dr_channel_flush(struct dr_channel *ch, int64_t now_ns);
/* The owner has nothing else to do: what was held back goes now. False: nothing was. */
bool dr_channel_idle(struct dr_channel *ch, int64_t now_ns);
/* Receiver: nobody waits for single acknowledgements (what comes back says it all). They leave with the
 * credits when the sender has a quarter of its window left, or after 20 ms. */
void dr_channel_set_patient(struct dr_channel *ch, bool on);
/* For an owner who spins on one channel: look at its active path alone, at once, whether the poller
 * has something to say or not. Returns the number of events. */
int dr_channel_poll(struct dr_channel *ch, int64_t now_ns);

/* Drive both paths and the timers; bounded. Returns the number of events. */
int dr_channel_progress(struct dr_channel *ch, int64_t now_ns);
/* Timers alone (with a poller the paths drive themselves). */
void dr_channel_tick(struct dr_channel *ch, int64_t now_ns);
/* When dr_channel_tick wants to be called at the latest; DR_NEVER. */
int64_t dr_channel_deadline(const struct dr_channel *ch);

/* Verdicts of the rail's owner about path `index`. */
void dr_channel_rail_down(
	struct dr_channel *ch, unsigned index, int err, const char *why, int64_t now_ns);
void dr_channel_rail_up(struct dr_channel *ch, unsigned index, int64_t now_ns);
/* Peer dials again (rail event INCOMING). */
void dr_channel_incoming(struct dr_channel *ch, unsigned index, uint32_t gen, int64_t now_ns);
/* Fault injection at this end: abort the connection of path `index` ("close"). */
void dr_channel_break_path(struct dr_channel *ch, unsigned index, int64_t now_ns);
/* Send such a frame on path `index` if it is up; -EAGAIN otherwise. */
int dr_channel_send_foreign(
	struct dr_channel *ch, unsigned index, const void *data, size_t len, int64_t now_ns);
/* Have the peer's kernel acknowledge something on every live path, so that stats tell whether it
 * still does. */
void dr_channel_probe(struct dr_channel *ch, int64_t now_ns);
/* Newest sign of a living peer kernel on any path: its acknowledgements' age in ns; -1 unknown. */
int64_t dr_channel_peer_kernel_age(struct dr_channel *ch);
/* This process stood still for so long: timers that judge the peer start again. */
void dr_channel_own_stall(struct dr_channel *ch, int64_t for_ns);
/* The peer's process stands still although its kernel answers: deadlines wait. */
void dr_channel_stalled(struct dr_channel *ch, bool stalled, int64_t now_ns);
/* Path `index` carries frames, as far as this end knows. */
bool dr_channel_path_up(const struct dr_channel *ch, unsigned index);
/* The connection of path `index` now, NULL when there is none; for reading its counters. */
struct dr_path *dr_channel_path(struct dr_channel *ch, unsigned index);
/* Sender: switch to the other path now at a message boundary (planned). -EAGAIN: not possible now. */
int dr_channel_switch_now(struct dr_channel *ch, int64_t now_ns);
/* End with err at both ends. */
void dr_channel_fail(struct dr_channel *ch, int err, const char *why, int64_t now_ns);

void dr_channel_stats(struct dr_channel *ch, struct dr_channel_stats *out);
uint32_t dr_channel_id(const struct dr_channel *ch);
bool dr_channel_is_sender(const struct dr_channel *ch);
/* One line for a stall report: state, epoch, head request, credits, per path. */
void dr_channel_describe(struct dr_channel *ch, int64_t now_ns, char *buf, size_t len);

/* Non-blocking close, wait, free: in this order. */
void dr_channel_close(struct dr_channel *ch);
void dr_channel_stop(struct dr_channel *ch);
void dr_channel_fini(struct dr_channel *ch);

#endif
