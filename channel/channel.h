/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_CHANNEL_H
#define DR_CHANNEL_CHANNEL_H

#include "transport/path.h"

/*
 * One end of a dual-path channel: one-way, ordered messages, each of 1..DR_PARTS_MAX parts, that
 * survive the loss of either path. docs/PROTOCOL.md states frames, states and invariants.
 *
 * Time is an argument (monotonic ns). Nothing here blocks, unless a comment says so, or makes a
 * system call of its own, so the simulator runs the same code over simulated paths.
 *
 * Threads: one at a time drives a channel. Where several may (the plugin, the library), their owner
 * has a lock for all channels of a manager.
 *
 * Errors are -errno. A channel has at most one final error, which every later call returns. After
 * it, a buffer of a message that is not done may still be read or written, until
 * dr_channel_mem_dereg or dr_channel_stop has returned 0. If either returns an error, the NIC may
 * access the buffers until the process ends, and their memory must not be freed or used again.
 */
struct dr_channel;
struct dr_frame;

/* Memory registered on the rails of both paths, made by dr_channel_mem_reg for one channel. */
struct dr_mem {
	void *base;
	size_t len;
	struct dr_mr *mr[DR_PATHS];
};

/* A message part: len bytes at offset off of mem. tag travels with the credit. */
struct dr_span {
	const struct dr_mem *mem;
	uint64_t off;
	uint32_t len;
	uint32_t tag;
};

/* One switch of paths as one end observed it. Times: its monotonic clock, ns; 0: not
 * reached. Receiver: gap = first_delivery - last_delivery (dr_switch_gap), the sum of the steps. */
struct dr_switch_record {
	uint32_t epoch;	    /* the epoch that the switch began */
	unsigned from, to;  /* path indices */
	bool planned;	    /* a failback or a request */
	bool self_detected; /* false: requested by the other end */
	bool idle; /* nothing waited to be delivered: no gap, and complete with the ANSWER */
	enum dr_scope scope; /* of the cause, when self-detected */
	int err;	     /* of the cause, -errno */
	char cause[96];	     /* of the cause, for people */
	int64_t last_delivery_ns; /* receiver: last in-order delivery of the old epoch; sender: last ack */
	int64_t detect_ns;	  /* own detection, or the other end's NOTIFY or SWITCH */
	int64_t fenced_ns;	  /* own end of the old path fenced */
	int64_t answer_ns;	  /* receiver: ANSWER posted; sender: ANSWER accepted */
	int64_t first_frame_ns; /* receiver: first data frame of the epoch; sender: first data posted */
	int64_t first_delivery_ns; /* receiver: first in-order delivery; sender: first acknowledgement */
	uint32_t in_flight_messages; /* sender: posted and unacknowledged at detection */
	uint32_t replayed_messages;  /* sender: posted again */
	uint64_t replayed_bytes;     /* sender */
	uint32_t rounds;	     /* epochs that this switch took */
};

/* The gap of a receiver's switch, ns; -1: it was idle, or a delivery is not known. */
static inline int64_t dr_switch_gap(const struct dr_switch_record *r)
{
	return !r->idle && r->last_delivery_ns && r->first_delivery_ns >= r->last_delivery_ns
		       ? r->first_delivery_ns - r->last_delivery_ns
		       : -1;
}

struct dr_channel_stats {
	uint64_t messages, bytes;      /* sender: acknowledged; receiver: delivered */
	uint64_t path_bytes[DR_PATHS]; /* of the user, replays and partial parts included */
	uint64_t replayed_messages, replayed_bytes;
	uint64_t duplicates_dropped;  /* receiver: parts that had been received before */
	uint32_t switches, failbacks; /* failbacks: all planned switches */
	uint32_t heals;		      /* connections of paths that had been up before */
	uint32_t epoch;
	unsigned active; /* path index; DR_PATHS: none */
	bool path_up[DR_PATHS];
	uint32_t path_connections[DR_PATHS]; /* connections made, including rebuilt ones */
	int64_t last_progress_ns;	     /* last delivery or acknowledgement */
	uint64_t syscalls, retransmits;
	bool closed; /* it has ended without an error: the peer, or this end, closed it */
};

/* Callbacks to the owner; each may be NULL. They run on the driver's thread, inside a function
 * below, and must not close or free the channel. Pointers are valid during the call only. */
struct dr_channel_ops {
	void (*switched)(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec);
	/* Both paths are up (prot), or not any more, because of path `path`. */
	void (*protection)(
		void *arg, struct dr_channel *ch, bool prot, unsigned path, int64_t now_ns);
	/* The channel ended with a final error: -ENETDOWN both paths lost, -ECANCELED memory
	 * deregistered or ended by the peer, -ETIMEDOUT no progress, -EMSGSIZE a message larger
	 * than the receive, or a receive larger than the kind can take, -EPROTO, -EIO, -ENOMEM.
	 * Called once. */
	void (*failed)(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now_ns);
	/* A message is done: dr_channel_test returns 1. */
	void (*completed)(
		void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now_ns);
	/* Sender: a clear-to-send came; dr_channel_credit may return 0 now. */
	void (*credited)(void *arg, struct dr_channel *ch, int64_t now_ns);
};

/* The same to the owner of the rails. */
struct dr_channel_host {
	/* A control frame for the peer's end of this channel that paths may not carry: to be sent
	 * as a datagram on the rails of both paths, where that needs no path, and given to
	 * dr_channel_datagram there. */
	void (*datagram)(void *arg, const struct dr_frame *frame);
	/* params.due_ns was lowered. */
	void (*sooner)(void *arg);
};

struct dr_channel_params {
	uint32_t id;
	bool sender, connector;
	unsigned window;		/* messages in flight, 1..DR_CHANNEL_WINDOW_MAX */
	struct dr_rail *rail[DR_PATHS]; /* rail[1] NULL: no shadow */
	bool failback;
	int64_t hold_down_ns;	/* time the primary must be healthy before failback */
	int64_t lost_after_ns;	/* the channel ends after this time without any path */
	int64_t stuck_after_ns; /* longest time without an acknowledgement while the rail works */
	/* Lowered to dr_channel_deadline() when that is earlier, and then host->sooner is called;
	 * may be NULL. */
	int64_t *due_ns;
	const struct dr_channel_ops *ops; /* may be NULL */
	void *arg;
	const struct dr_channel_host *host; /* may be NULL; else it has all functions */
	void *host_arg;
};
enum { DR_CHANNEL_WINDOW_MAX = 256 };
/* What dr_channel_idle would send is due within this time: dr_channel_deadline is not later. */
#define DR_CHANNEL_HELD_NS (2 * DR_NS_PER_MS)

int dr_channel_create(const struct dr_channel_params *p, struct dr_channel **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Writes both paths' handles for the peer. -EMSGSIZE or another -errno. */
int dr_channel_handle(struct dr_channel *ch, struct dr_handle *out);
/* Takes the peer's handle and starts both paths. The channel carries data as soon as either path is
 * up. -EPROTO: the handle is malformed or belongs to another channel. A channel that has ended
 * returns its error. */
int dr_channel_start(struct dr_channel *ch, const struct dr_handle *h, int64_t now_ns,
	struct dr_err *e) DR_MUST_CHECK;
/* 1 the channel carries data; 0 not yet, or a switch is under way; -errno it has ended. */
int dr_channel_ready(const struct dr_channel *ch);

/* Registers memory with both rails; out is the caller's and must outlive its messages. Errors:
 * those of the kind's mr_reg; nothing stays registered then. */
int dr_channel_mem_reg(struct dr_channel *ch, const struct dr_memory *m, struct dr_mem *out,
	struct dr_err *e) DR_MUST_CHECK;
/* 0: nothing accesses the memory any more. If messages are outstanding in it, the channel is fenced
 * here, which may block until the fence's deadline, and ends with -ECANCELED at both ends. An error
 * (*e says what failed): the NIC may access the memory until the process ends. mem is cleared in
 * either case. */
int dr_channel_mem_dereg(
	struct dr_channel *ch, struct dr_mem *mem, int64_t now_ns, struct dr_err *e) DR_MUST_CHECK;

/* The same, but messages that are outstanding in it go on in `with`, as long and with the bytes to
 * send, which mem has then: their paths are destroyed and built again. An error: the channel has
 * ended, too. */
int dr_channel_mem_replace(struct dr_channel *ch, struct dr_mem *mem, const struct dr_memory *with,
	int64_t now_ns, struct dr_err *e) DR_MUST_CHECK;

/*
 * Posts one message of n parts (1..DR_PARTS_MAX, else -EINVAL); *seq counts from 0 in each channel.
 * -EAGAIN: `window` messages are in flight. A channel that ended returns its error. The spans are
 * copied; their memory belongs to the channel until the message is done. The other end need not
 * have posted: data waits here for the receiver's credit.
 */
int dr_channel_send(struct dr_channel *ch, const struct dr_span *parts, unsigned n, uint64_t *seq,
	int64_t now_ns) DR_MUST_CHECK;
int dr_channel_recv(struct dr_channel *ch, const struct dr_span *parts, unsigned n, uint64_t *seq,
	int64_t now_ns) DR_MUST_CHECK;
/* Sender: what the receiver posted for the message that the next dr_channel_send posts: its parts,
 * their capacities and tags. So a sender may choose what it sends by what the receiver waits for.
 * 0; -EAGAIN: not known yet, or a switch is under way; the channel's error. */
int dr_channel_credit(const struct dr_channel *ch, struct dr_credit *out) DR_MUST_CHECK;
/* 1 done: the buffers belong to the user again (receiver: delivered once, in order); 0 not yet;
 * -errno the channel ended before. */
int dr_channel_test(const struct dr_channel *ch, uint64_t seq);
/* Sender: the active path's transport has taken all of a posted message. After a switch it may be
 * false again, until the message is replayed. */
bool dr_channel_sent(const struct dr_channel *ch, uint64_t seq);
/* Receiver: bytes received in part `part` of a done message; seq is among the last `window`. */
uint32_t dr_channel_received_len(const struct dr_channel *ch, uint64_t seq, unsigned part);
/* Sends posted work now; without it, it is sent with the next progress. Fewer acknowledgements than
 * a quarter of the window are held back for at most 50 us. */
void dr_channel_flush(struct dr_channel *ch, int64_t now_ns);
/* The owner is idle: sends what was held back. False: nothing was held back, or it could not be
 * sent. */
bool dr_channel_idle(struct dr_channel *ch, int64_t now_ns);
/* Receiver: batch acknowledgements, for a sender that does not wait for single ones (ping-pong: the
 * reply acknowledges). They are sent with the credits when the sender has a quarter of its window
 * left, or after 20 ms. */
void dr_channel_set_ack_batch(struct dr_channel *ch, bool on);
/* For an owner that spins on one channel: drives only its active path, without the poller. Returns
 * the number of events. */
int dr_channel_poll(struct dr_channel *ch, int64_t now_ns);

/* Drives both paths and the timers; bounded work. Returns the number of events. */
int dr_channel_progress(struct dr_channel *ch, int64_t now_ns);
/* Drives the timers only (with a poller the paths drive themselves). */
void dr_channel_tick(struct dr_channel *ch, int64_t now_ns);
/* Latest time for the next dr_channel_tick, monotonic ns; DR_NEVER. */
int64_t dr_channel_deadline(const struct dr_channel *ch);

/* The rail of path `index` is down (err: -errno, why: text for people), or up. */
void dr_channel_rail_down(
	struct dr_channel *ch, unsigned index, int err, const char *why, int64_t now_ns);
void dr_channel_rail_up(struct dr_channel *ch, unsigned index, int64_t now_ns);
/* The peer dialled path `index` with generation `gen` (rail event INCOMING). */
void dr_channel_incoming(struct dr_channel *ch, unsigned index, uint32_t gen, int64_t now_ns);
/* A control frame of the peer's end arrived as a datagram (see dr_channel_host.datagram). */
void dr_channel_datagram(struct dr_channel *ch, const struct dr_frame *frame, int64_t now_ns);
/* The owner found out that path `index` carries no data; the rail may work. */
void dr_channel_path_dead(
	struct dr_channel *ch, unsigned index, int err, const char *why, int64_t now_ns);
/* Sends a PROBE on every path that is up: statistics show whether the peer's kernel answers. */
void dr_channel_probe(struct dr_channel *ch, int64_t now_ns);
/* The same on path `index`. all: as many probes at a time as the kind allows. */
void dr_channel_probe_path(struct dr_channel *ch, unsigned index, bool all, int64_t now_ns);
/* Sender: data on the active path waits for the peer's acknowledgement. *since_ns: of the last one
 * by the peer or its transport, or when the first of it was posted. */
bool dr_channel_owed(const struct dr_channel *ch, unsigned *path, int64_t *since_ns);
/* The path that carries the data; -1: none now. */
int dr_channel_active(const struct dr_channel *ch);
/* When data was acknowledged last, by the peer or its transport, as far as it was asked (sender),
 * or a message was complete (receiver). */
int64_t dr_channel_carried_ns(const struct dr_channel *ch);
/* The active path carries nothing: since then the transport of a sender acknowledged no data
 * although some is owed, or that of a receiver none of what it sent, and nothing arrived. */
struct dr_channel_stall {
	unsigned path;
	int64_t since_ns;
	struct dr_path_stats st;
};
/* True: it is so for for_ns, and the peer's process is not known to be stalled. To be called in
 * each ordinary tick. It asks the transport only if nothing else shows progress. */
bool dr_channel_stalled_path(
	struct dr_channel *ch, int64_t for_ns, struct dr_channel_stall *out, int64_t now_ns);
/* What the peer's kernel (or NIC), not its process, answers on the paths that are up. */
struct dr_channel_answers {
	int64_t at_ns; /* the newest answer; 0: no path shows any */
	bool up;       /* a path is up */
	bool pending;  /* and has fewer than two transmissions without an answer */
};
void dr_channel_answers(struct dr_channel *ch, struct dr_channel_answers *out, int64_t now_ns);
/* The owner was late by for_ns. A switch for silence soon after says so. After more than
 * DR_CHANNEL_STALL_NS timers that judge the peer are extended by it, and the paths are probed: the
 * peer may have closed connections, and its resets may be lost. */
#define DR_CHANNEL_STALL_NS (100 * DR_NS_PER_MS)
void dr_channel_late(struct dr_channel *ch, int64_t for_ns, int64_t now_ns);
/* The peer's process is stalled, its kernel answers: a switch has no deadline. */
void dr_channel_stalled(struct dr_channel *ch, bool stalled, int64_t now_ns);
/* Path `index` is READY at this end. */
bool dr_channel_path_up(const struct dr_channel *ch, unsigned index);
/* The current connection of path `index`, NULL if there is none; only for reading its counters. It
 * is valid until the next call that drives the channel. */
struct dr_path *dr_channel_path(struct dr_channel *ch, unsigned index);
/* Sender: starts a planned switch to the other path, at a message boundary. -EAGAIN: no other path
 * is ready, or a switch is under way. */
int dr_channel_switch_now(struct dr_channel *ch, int64_t now_ns);
/* Ends the channel with err (-errno) at both ends. */
void dr_channel_fail(struct dr_channel *ch, int err, const char *why, int64_t now_ns);

void dr_channel_stats(struct dr_channel *ch, struct dr_channel_stats *out);
uint32_t dr_channel_id(const struct dr_channel *ch);
bool dr_channel_is_sender(const struct dr_channel *ch);
/* Writes one line for a stall report: state, epoch, head message, counters, state of each path. */
void dr_channel_describe(struct dr_channel *ch, int64_t now_ns, char *buf, size_t len);

/* To give up a channel: close, drive it until dr_channel_closed (the peer may learn nothing
 * otherwise), stop, fini. close does not block. The peer is told until it confirms, for 500 ms at
 * most. Nothing can be posted any more (-ESHUTDOWN). A sender's close waits for outstanding
 * messages within that time; that of a receiver fails them with -ECANCELED at the sender. Then both
 * ends have ended, without ops->failed. */
void dr_channel_close(struct dr_channel *ch, int64_t now_ns);
/* The channel has ended and the peer knows, or could not be told in time. An end that the peer told
 * waits as long, in case the peer asks again, or until its paths are gone. */
bool dr_channel_closed(const struct dr_channel *ch);
/* Waits until nothing can access a buffer; the peer is told nothing any more. An error (*e says
 * what failed): the NIC may access the memory of this channel until the process ends. */
int dr_channel_stop(struct dr_channel *ch, struct dr_err *e) DR_MUST_CHECK;
/* Frees. NULL is allowed. */
void dr_channel_fini(struct dr_channel *ch);

#endif
