/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_PATH_H
#define DR_TRANSPORT_PATH_H

#include "base/defs.h"
#include "base/err.h"
#include "base/poller.h"
#include "base/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

/*
 * The path contract. A RAIL is a pair of NICs, one at each end; a struct dr_rail is one worker's end
 * of it (listener, heartbeat datagrams). A PATH is one channel's connection over a rail: data one
 * way, control frames both ways.
 *
 * Every kind obeys, and tests/conformance checks:
 *  - Nothing blocks. Everything moves in progress(), whose work is bounded; events are reported only
 *    from inside progress(), to the sink passed to it, on the caller's thread. The sink may call
 *    any op of any path except progress, stop and fini of the path that is reporting.
 *  - A rail and its paths belong to one thread at a time.
 *  - After FAILED a path reports nothing but FENCED (when asked to fence). FAILED comes once; the one
 *    exception is a fence that fails too, see fence().
 *  - FAILED of a rail has scope RAIL when its device or link failed, which concerns everyone who uses it, and
 *    LOCAL when only objects of this struct dr_rail did. Then its paths report what fails of them.
 *  - post_* outside READY: -ENOTCONN before READY and after FAILED was reported. A part that was posted
 *    already or that no credit names: -EINVAL.
 *  - DELIVERED comes in message order: early parts of a later message are held back. Parts of no
 *    bytes are parts.
 *  - One convention for errors: 0 or -errno; -EAGAIN is back-pressure, nothing was taken.
 *    An error found while posting is not returned but reported as FAILED by the next progress.
 *  - Lifetime: create -> connect -> (READY) -> fence -> (FENCED) -> close -> stop -> fini. close is
 *    allowed in every state, twice too; stop waits until nothing can touch a buffer; fini frees.
 *  - A posted buffer may be read or written until SENT or DELIVERED of its part, FENCED, or stop that
 *    returned 0. FAILED and close end nothing. Where stop returns an error, until the process ends; the
 *    kind keeps its own memory of that connection too.
 */

enum {
	DR_PATHS = 2,	    /* paths of a channel: 0 primary, 1 shadow */
	DR_PARTS_MAX = 8,   /* parts of a message */
	DR_CTRL_MAX = 64,   /* bytes of a control frame */
	DR_DGRAM_MAX = 256, /* bytes of a heartbeat datagram */
	DR_TOKEN_LEN = 16,  /* bytes of the secret that admits a connection */
};

/* What is broken. Set by the code that detects the failure; failover decides on this value only. */
enum dr_scope {
	DR_SCOPE_OP,	/* one operation; the path still works */
	DR_SCOPE_PATH,	/* this connection; the rail may work */
	DR_SCOPE_RAIL,	/* everything over this pair of NICs */
	DR_SCOPE_PEER,	/* the peer process */
	DR_SCOPE_LOCAL, /* this end: out of memory, misuse */
};
const char *dr_scope_name(enum dr_scope s);

struct dr_rail;
struct dr_path;
struct dr_mr; /* memory registered on one rail */

enum dr_memory_kind { DR_MEMORY_HOST, DR_MEMORY_CUDA };
/* Memory that is to be registered. */
struct dr_memory {
	void *base; /* CUDA: a device pointer, never dereferenced by the CPU */
	size_t len;
	enum dr_memory_kind kind;
	/* CUDA, if dmabuf is set: the range exported as a dma-buf; base is at dmabuf_off in it. The caller
	 * owns the descriptor and may close it after mr_reg. */
	bool dmabuf;
	int dmabuf_fd;
	uint64_t dmabuf_off;
	/* CUDA: the GPU sees a NIC's writes in the order of the NIC's completions, so the receiver of
	 * remote writes needs no flush. */
	bool ordered;
};

enum dr_event_kind {
	DR_EV_READY,  /* path: both ends may post */
	DR_EV_CREDIT, /* path, sender: a new clear-to-send came; post_send may work now */
	DR_EV_SENT, /* path, sender: this part's buffer is no longer read; says nothing about delivery */
	DR_EV_ARRIVING,	 /* path, receiver: first data frame of this epoch began to arrive */
	DR_EV_DELIVERED, /* path, receiver: the part is whole in the posted buffer */
	DR_EV_CTRL,	 /* path: a control frame; bytes valid during the call */
	DR_EV_FENCED,	 /* path: see fence() */
	DR_EV_FAILED,	 /* path or rail: scope, err, text */
	DR_EV_DGRAM,	 /* rail: a datagram from the peer; bytes valid during the call */
	DR_EV_INCOMING, /* rail: the peer connects (channel, index, gen) and no path waits for that connection */
};

struct dr_event {
	enum dr_event_kind kind;
	struct dr_path *path; /* NULL for rail events */
	struct dr_rail *rail;
	uint32_t epoch;	     /* CREDIT, SENT, ARRIVING, DELIVERED */
	uint64_t seq;	     /* CREDIT, SENT, ARRIVING, DELIVERED */
	unsigned part;	     /* SENT, DELIVERED */
	uint32_t len;	     /* DELIVERED: bytes of the part; CTRL, DGRAM: bytes at data */
	uint32_t size;	     /* DGRAM: bytes that arrived; more than len if it was padded */
	const void *data;    /* CTRL, DGRAM */
	uint32_t channel;    /* INCOMING */
	unsigned index;	     /* INCOMING */
	uint32_t gen;	     /* INCOMING */
	enum dr_scope scope; /* FAILED */
	int err;	     /* FAILED: -errno */
	const char *text;    /* FAILED: for people, valid during the call */
};

struct dr_sink {
	void (*event)(struct dr_sink *sink, const struct dr_event *ev);
};

/* Capability bits: how kinds differ. */
enum {
	DR_CAP_ORDERED = 1u << 0, /* parts of a path are delivered in the order posted (stream) */
	DR_CAP_REMOTE_WRITE =
		1u << 1,	/* data may land in a posted buffer without an action of this end */
	DR_CAP_DGRAM = 1u << 3, /* datagrams need no path of the rail */
	DR_CAP_RESET = 1u << 4, /* the peer sees a fence (FAILED); otherwise only when it sends */
};

struct dr_rail_params {
	unsigned index;		       /* this rail's number in this session, same at both ends */
	const char *ifname;	       /* device to bind to; NULL or "": by address only */
	struct sockaddr_storage local; /* address on that device; port ignored */
	uint16_t port_min, port_max;   /* data ports; 0,0: ephemeral */
	int sockbuf; /* bytes for SO_SNDBUF and SO_RCVBUF; 0: the kernel's choice */
	int dscp;    /* 0..63 */
	bool alone;  /* only errors of the transport end a path: --detect transport */
	uint8_t token[DR_TOKEN_LEN]; /* admits data connections of this session */
	struct dr_poller *poller;    /* may be NULL: then the owner calls progress by itself */
	void (*ready)(void *arg, int64_t now_ns); /* called by the poller: call rail_progress */
	void *arg;
	const void *kind_params; /* of the kind alone, e.g. the simulated world */
};

struct dr_path_params {
	uint32_t channel; /* number of the channel in this session */
	unsigned index;	  /* 0 primary, 1 shadow */
	uint32_t gen;	  /* grows with every rebuild; both ends must agree */
	bool sender;	  /* data leaves here */
	bool connector;	  /* this end dials, the other admits */
	void (*ready)(void *arg, int64_t now_ns); /* called by the poller: call progress */
	void *arg;
};

/* One part of a posted receive or send: [off, off+len) of mr. tag travels with the credit. */
struct dr_part {
	struct dr_mr *mr;
	uint64_t off;
	uint32_t len;
	uint32_t tag;
};

/* What a clear-to-send grants. */
struct dr_credit {
	unsigned n;    /* parts of the message */
	uint32_t todo; /* bit i: part i may still be posted: neither skipped nor posted before */
	uint32_t cap[DR_PARTS_MAX];
	uint32_t tag[DR_PARTS_MAX];
};

struct dr_path_stats {
	uint64_t tx_bytes, rx_bytes; /* user's data, without frames; partial parts included */
	uint64_t tx_wire, rx_wire;   /* bytes handed to or taken from the wire, frames included */
	uint64_t syscalls;
	/* Activity of the peer's kernel or NIC (not its process); 0 if unknown. */
	/* Of data that the peer's kernel acknowledged; control frames do not count. */
	uint64_t acked_bytes;
	/* The same of all bytes, control frames included; 0: unknown. */
	uint64_t acked_wire;
	/* Handed over and not acknowledged by the peer's kernel. */
	uint64_t unacked_bytes;
	int64_t peer_ack_age_ns; /* since the peer's kernel acknowledged anything; -1 unknown */
	unsigned unanswered;	 /* transmissions and probes since then whose answer is overdue */
	bool window_shut;	 /* data waits for room at the peer; only probes are sent */
	int64_t held_ns; /* time so far in which data waited for room at the peer; 0: it needs none */
	int64_t busy_ns; /* time so far in which something was not acknowledged, held_ns included; 0: unknown */
	/* Data segments, repetitions included, that were sent since the peer's kernel acknowledged
	 * anything, or shortly before, and are not acknowledged. Kinds whose NIC does not show them: what has no
	 * answer is as unlikely as the loss of so many segments. */
	unsigned silent_segments;
	bool repeats; /* unanswered counts the repetitions of a segment, and more follow */
	/* Segments with data that this end's kernel received, in any order; 0: unknown. */
	uint64_t rx_segments;
	uint32_t segment_bytes; /* size of a datagram as long as a full data packet; 0: unknown */
	int64_t rtt_ns;		/* smoothed round trip; 0: unknown */
	uint64_t retransmits;	/* segments with data that were sent again */
	/* Segments with data that were sent before the peer's kernel acknowledged last, and of
	 * these, repetitions: of 2,000 to 4,000 segments and one to two seconds at least (more if
	 * nobody asked in between), 60 s at most. Fewer show no losses. 0: unknown. */
	uint32_t recent_segments, recent_retransmits;
	int64_t rtt_min_ns; /* shortest lately, without queues; 0: unknown */
};

/* More than so many of a thousand segments were repetitions. */
static inline bool dr_path_loses(const struct dr_path_stats *s, unsigned per_mille)
{
	return (uint64_t)s->recent_retransmits * 1000 > (uint64_t)s->recent_segments * per_mille;
}

/* Whether the peer's kernel answers on a rail, with or without its process: see rail_ask. */
struct dr_rail_answer {
	int64_t at_ns; /* it did last; 0: not since the first question */
	bool refused;  /* it answers that nobody listens any more */
};

struct dr_transport_ops {
	size_t size; /* of this struct */
	const char *name;
	uint32_t caps;

	/* Open this worker's end of a rail; it listens when this returns. Errors: -EADDRINUSE, -ENODEV,
	 * -EADDRNOTAVAIL, -EPERM, -ENOMEM. The token is copied, ifname too. */
	int (*listen)(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e);
	/* Write what the peer needs to reach this rail; returns the length <= DR_HANDLE_MAX. */
	int (*rail_handle)(struct dr_rail *r, void *buf, size_t cap);
	/* Set the rail's peer from its handle. -EPROTO: the handle is invalid. */
	int (*rail_peer)(struct dr_rail *r, const void *handle, size_t len, struct dr_err *e);
	/* Send one datagram, unreliable, outside the bulk queues. Errors are ignored. Without
	 * DR_CAP_DGRAM it goes on the rail's paths, if any is READY. The peer's end calls `ready` of
	 * its rail for it while a path is in progress, and the sink must not drive paths then. */
	void (*rail_dgram)(struct dr_rail *r, const void *data, size_t len);
	/* The same, padded with zeros to `size` bytes (more than len, at most 65,535) and never fragmented.
	 * The peer gets the first DR_DGRAM_MAX bytes of it. NULL: this kind cannot. */
	void (*rail_padded)(struct dr_rail *r, const void *data, size_t len, uint32_t size);
	/* Asks the peer's kernel something that its process need not take, without a path: at
	 * most one connection per second. To be called every 100 ms while it matters; out NULL:
	 * no more. What is asked stays in the peer's backlog until its process accepts it. NULL:
	 * this kind cannot. */
	void (*rail_ask)(struct dr_rail *r, int64_t now_ns, struct dr_rail_answer *out);
	/* Accept connections, receive datagrams. Returns how much was taken in, with or without an
	 * event; 0: no datagram is left to read. To be called when `ready` is, and every 500 ms:
	 * nothing wakes the owner for a route that comes back (tcp), or for a device that is removed
	 * without an event (verbs). */
	int (*rail_progress)(struct dr_rail *r, int64_t now_ns, struct dr_sink *sink);
	void (*rail_close)(struct dr_rail *r);
	void (*rail_fini)(struct dr_rail *r); /* all its paths are gone */

	/* Make memory reachable by paths of this rail; m is read during the call only. The caller owns
	 * the memory, which must outlive the region. -ENOTSUP: this kind, or this NIC, cannot reach memory
	 * of that kind. */
	int (*mr_reg)(
		struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e);
	/* The region is gone for its user, whatever is returned; the caller fenced before. 0: nothing of
	 * this rail touches the memory any more, unless others registered it too. -errno: the NIC may touch
	 * it until the process ends. May wait for a call to the driver. */
	int (*mr_dereg)(struct dr_rail *r, struct dr_mr *mr);

	/* A path in state "new". */
	int (*create)(struct dr_rail *r, const struct dr_path_params *p, struct dr_path **out,
		struct dr_err *e);
	/* This end's handle of the path (what the peer's connect needs); length <= DR_HANDLE_MAX. */
	int (*handle)(struct dr_path *p, void *buf, size_t cap);
	/* Start connecting; READY or FAILED follows. Both ends call it with the other's handle. A rebuild
	 * (gen > 1) has len 0: connected rails exchange what has changed. There is no deadline: the caller
	 * closes a path that takes too long. */
	int (*connect)(struct dr_path *p, const void *handle, size_t len, int64_t now_ns,
		struct dr_err *e);

	/* Receiver. Post n parts for message seq of this epoch, and announce them to the sender as a
	 * credit, which leaves at the next flush. Bit i of skip: part i was received before (replay).
	 * The path owns the buffers until DELIVERED of the part or FENCED. seq of one epoch are posted in
	 * ascending order. -EAGAIN: too many posted. -EMSGSIZE: more than the kind can ever take. Any
	 * other error but -ENOTCONN is for good too, and ends the channel. */
	int (*post_recv)(struct dr_path *p, uint32_t epoch, uint64_t seq,
		const struct dr_part *parts, unsigned n, uint32_t skip);
	/* Sender. Queue one part; leaves at the next flush. Only against a credit of this epoch and seq:
	 * else -EAGAIN, as when the queue is full. -EMSGSIZE: larger than the credit's capacity.
	 * The path reads the buffer until SENT or FENCED. */
	int (*post_send)(struct dr_path *p, uint32_t epoch, uint64_t seq, unsigned part,
		const struct dr_part *what);
	/* Queue a control frame, 1..DR_CTRL_MAX bytes, copied; leaves at the next flush, in order among
	 * control frames, before data that is not on the wire yet. -EAGAIN: queue full. */
	int (*post_ctrl)(struct dr_path *p, const void *frame, size_t len);
	/* Send what is queued as far as the wire accepts it; progress sends the rest. */
	void (*flush)(struct dr_path *p, int64_t now_ns);
	/* Sender: the credit for seq in this epoch. 0, or -EAGAIN: none yet, *out as it was. */
	int (*credit)(struct dr_path *p, uint32_t epoch, uint64_t seq, struct dr_credit *out);

	/* Drive I/O, bounded; returns the number of events. */
	int (*progress)(struct dr_path *p, int64_t now_ns, struct dr_sink *sink);
	/* FENCED follows when every posted send and receive is accounted for and nothing can reach or
	 * read a local buffer any more. Events SENT and DELIVERED of work that was done come before it.
	 * The path is dead afterwards. Idempotent: a completed fence is not reported again. After
	 * deadline_ns the kind destroys its connection; if that fails: FAILED{RAIL}, and the buffers
	 * are quarantined. */
	void (*fence)(struct dr_path *p, int64_t deadline_ns);
	void (*stats)(struct dr_path *p, struct dr_path_stats *out);
	/* Have the peer's NIC answer something that its process need not take, so that stats shows whether
	 * it does; at most one such probe is in flight. all: more of them, on whatever the path has for it, so
	 * that losses alone do not explain it if none is answered; to be repeated every 4 ms or more. Nothing
	 * before READY and after FAILED. NULL: any control frame does. */
	void (*probe)(struct dr_path *p, bool all, int64_t now_ns);

	void (*close)(struct dr_path *p);
	/* After close: wait until nothing can touch a buffer. -errno: the connection could not be
	 * destroyed, and the NIC may touch what is posted on it until the process ends. Another call
	 * returns the same. */
	int (*stop)(struct dr_path *p);
	void (*fini)(struct dr_path *p);
};

/* Every kind's struct begins with these. */
struct dr_rail {
	const struct dr_transport_ops *ops;
	unsigned index;
	/* The latest of its paths' rx_last_ns and tx_last_ns so far. Written by its thread, for others to look at; relaxed,
	 * since only the times matter. */
	_Atomic int64_t rx_last_ns, tx_last_ns;
	/* Longest time between two reads of bytes, on any of its paths; the owner resets it. */
	int64_t rx_gap_ns;
};

static inline int dr_rail_handle(struct dr_rail *r, struct dr_handle *out)
{
	int n = r->ops->rail_handle(r, out->bytes, sizeof(out->bytes));

	out->len = (uint8_t)DR_MAX(n, 0);
	return DR_MIN(n, 0);
}
struct dr_path {
	const struct dr_transport_ops *ops;
	struct dr_rail *rail;
	void *user; /* the channel's, set after create */
	/* Kept by the kind from the times passed in, so that reading them costs nothing. */
	int64_t rx_last_ns; /* when the last byte of any sort came; 0: never */
	/* Last send that the peer's process notices at once, which replaces a heartbeat; 0: never. A
	 * remote write is noticed when the whole part has arrived; a HELLO by no path. */
	int64_t tx_last_ns;
};

/* For the kinds: bytes arrived on p. */
static inline void dr_path_heard(struct dr_path *p, int64_t now_ns)
{
	int64_t last = atomic_load_explicit(&p->rail->rx_last_ns, memory_order_relaxed);

	if (last != 0)
		p->rail->rx_gap_ns = DR_MAX(p->rail->rx_gap_ns, now_ns - last);
	p->rx_last_ns = now_ns;
	atomic_store_explicit(&p->rail->rx_last_ns, now_ns, memory_order_relaxed);
}

/* Bytes left on p that the peer's process notices at once. */
static inline void dr_path_sent(struct dr_path *p, int64_t now_ns)
{
	p->tx_last_ns = now_ns;
	atomic_store_explicit(&p->rail->tx_last_ns, now_ns, memory_order_relaxed);
}

/* -ENOTSUP unless m is host memory; for kinds that support no other. */
int dr_memory_host_only(const struct dr_rail *r, const struct dr_memory *m, struct dr_err *e);

/* Kind by name ("tcp"); NULL when it is not in this build. */
const struct dr_transport_ops *dr_transport_find(const char *name);

static inline int dr_path_post_recv(struct dr_path *p, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	dr_dassert(n >= 1 && n <= DR_PARTS_MAX && skip < (1u << n));
	return p->ops->post_recv(p, epoch, seq, parts, n, skip);
}

static inline int dr_path_post_send(
	struct dr_path *p, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	dr_dassert(part < DR_PARTS_MAX);
	return p->ops->post_send(p, epoch, seq, part, what);
}

static inline int dr_path_post_ctrl(struct dr_path *p, const void *frame, size_t len)
{
	dr_dassert(len >= 1 && len <= DR_CTRL_MAX);
	return p->ops->post_ctrl(p, frame, len);
}

static inline void dr_path_flush(struct dr_path *p, int64_t now_ns)
{
	p->ops->flush(p, now_ns);
}

static inline int dr_path_progress(struct dr_path *p, int64_t now_ns, struct dr_sink *sink)
{
	return p->ops->progress(p, now_ns, sink);
}

#endif
