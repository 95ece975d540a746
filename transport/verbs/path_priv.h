/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_PATH_PRIV_H
#define DR_TRANSPORT_VERBS_PATH_PRIV_H

#include "transport/path_frame.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/rail_priv.h"

/*
 * How the verbs kind is put together.
 *
 *	rail	rail.c: life cycle, peer; nic.c: the device, its removal and return; ud.c: datagrams;
 *		admit.c: greetings (verbs_hs.c), news; event.c: asynchronous events; mr.c, gpumem.c: memory; helper.c: blocking
 *		calls						rail_priv.h, mem.h, helper.h
 *	conn	conn.c: the connection of one path; qp.c: its queue pairs, made and destroyed by the helper;
 *		cq.c: completion queues, the poller's probes	conn.h
 *	path	path.c: life, ops; up.c: coming up; ctrl.c: control messages; probe.c: what the peer's NIC
 *		answers; tx.c: data out; rx.c: data in; flush.c: GPU memory; fence.c	path_priv.h
 *	sans-IO	verbs_hs.c: the handshake; where.c: addresses of rails; hello.c, frame.c: bytes; status.c: what a completion status means
 *
 * Threads. A rail and its paths belong to their owner's thread. The helper thread of a rail sees
 * only jobs, and the helper owns what a job holds from submit until its done() runs, which is in
 * rail_progress, on the owner's thread. A path never waits for the helper: it releases its conn, whose
 * DESTROY job runs after all its other jobs.
 */

/*
 * States of a path. Posts work in UP only (before: -ENOTCONN; between a failure and its report: -EAGAIN; after:
 * -ENOTCONN).
 */
enum vb_state {
	VB_COMING, /* verbs_hs.h has its states */
	VB_UP,
	VB_FAILING, /* broken; FAILED is due in the next progress */
	VB_FAILED,  /* FAILED was reported; waits for fence or close */
	VB_FENCING, /* queue pairs in the error state; counts what comes back */
	VB_FENCED,  /* FENCED was reported, or is due (fenced_due); waits for close */
	VB_CLOSED,
};

/* Sender: a part on its way. */
struct vb_send {
	uint32_t epoch, len, off; /* off: bytes handed to the NIC */
	uint64_t seq;
	unsigned part;
	bool begun;
	struct dr_mr *mr;
	uint64_t addr, raddr;
	uint32_t rkey;
	uint64_t wr_end; /* count of work requests after its last one */
};

/*
 * Sender: one data queue pair. Parts are counted, told <= done(by wr_done) <= posted <= flushed <=
 * queued, place = count % VB_SENDS; work requests too, wr_done <= wr_posted.
 */
struct vb_sendq {
	struct vb_send queue[VB_SENDS];
	uint64_t told, posted, flushed, queued;
	uint64_t wr_done, wr_posted; /* wr_retired: errors and flushed ones included */
	uint64_t wr_retired;
	uint64_t bytes, wr_bytes[VB_SQ]; /* posted so far; the same after each work request */
	uint64_t acked;			 /* of these */
	uint32_t unsignalled;		 /* bytes since the last signalled one */
	bool broken;			 /* an error came: what follows was not done */
};

/* Receiver: a posted message. Slot seq % DR_PATH_RING. */
struct vb_recv {
	bool used;
	uint8_t n, todo; /* todo: bit i: part i is not whole yet */
	uint8_t told;	 /* bit i: DELIVERED was reported, or skipped */
	uint8_t n_whole, n_told, order[DR_PARTS_MAX];
	uint8_t n_clear; /* n_told <= n_clear <= n_whole: the user may see so many */
	uint32_t epoch;
	uint64_t seq;
	struct {
		uint64_t got;
		uint32_t cap, pieces, used;
		const struct dr_mr *flush; /* NULL: what landed can be seen */
		uint64_t addr;
	} part[DR_PARTS_MAX];
};

struct vb_flush;
struct vb_rx {
	struct vb_recv *ring;
	uint8_t fifo[DR_PATH_RING]; /* slots in the order posted */
	unsigned head, n;
	/* by data queue pair, from 1: receives in the queue; those that credits may use up */
	unsigned posted[DR_VERBS_QPS], promised[DR_VERBS_QPS];
	struct vb_flush *flush; /* NULL: not needed yet */
};

/* Control messages. Counted: done <= sent <= granted by the peer; own receives: granted so far. */
struct vb_ctrl {
	struct dr_path_queue q;
	uint64_t sent, done;
	uint32_t peer_granted;	/* messages the peer can take in all */
	uint32_t granted, told; /* own receives posted in all; what the peer was told of that */
	uint16_t len[VB_CTRL_DEPTH]; /* bytes of the message in each send slot */
	uint64_t
		timed; /* the round trip of what is sent below this count is measured; 0: of none */
	int64_t timed_ns; /* since then */
};

/* Probes of one queue pair: done <= sent <= done + VB_PROBES, place = count % VB_PROBES. */
struct vb_probes {
	unsigned sent, done;
	int64_t at_ns[VB_PROBES];
};

struct vb_path {
	struct dr_path_base base;
	struct vb_path *next;	    /* on the rail */
	struct vb_path *ready_next; /* on the rail's list of paths to drive */
	bool is_ready;
	enum vb_state state;
	struct vb_hs hs;
	bool ticks; /* counted in rail.ticking */
	struct vb_conn *conn;
	struct vb_wcs ctrl_wcs, data_wcs;
	struct vb_ctrl ctrl;
	struct vb_sendq *sendq;				 /* sender: of queue pair i + 1 */
	struct dr_verbs_target (*targets)[DR_PARTS_MAX]; /* sender: of each credit, in its place */
	struct vb_rx rx;
	uint32_t msg_max; /* bytes of one work request, as both ends count them */

	bool mute; /* FAILED was reported: only FENCED may follow */
	bool fenced_due, fence_bad;
	int stop_err;	/* what stop returned */
	bool uncounted; /* a post failed half-way: what is out is not known, only destroying helps */
	bool flushed_seen; /* a queue pair was found in the error state, its reason is looked for */
	uint32_t flush_vendor;
	int64_t fence_deadline_ns, fence_from_ns;

	int64_t ack_ns;			    /* last good send completion */
	struct vb_probes probes[VB_PROBED]; /* of queue pair 0, then of the probe queue pairs */
	int64_t rtt_ns;			    /* smoothed; 0: nothing was answered yet */
	uint64_t posted_bytes, acked_bytes;
	uint64_t acked_data; /* of acked_bytes */
};

static inline struct vb_path *vb_path(struct dr_path *p)
{
	return dr_container_of(p, struct vb_path, base.path);
}
static inline struct vb_rail *vb_path_rail(const struct vb_path *p)
{
	return vb_rail(p->base.path.rail);
}
/* Data queue pair, from 1, of part i of message seq: single-part messages use all of them too. */
static inline unsigned vb_qp_of(const struct vb_path *p, uint64_t seq, unsigned part)
{
	return 1 + (unsigned)((seq + part) % vb_path_rail(p)->vp.qps);
}
/* One behind the last data queue pair: the first for probes. */
static inline unsigned vb_data_end(const struct vb_path *p)
{
	return 1 + vb_path_rail(p)->vp.qps;
}
/* Queue pairs that both ends have. */
static inline unsigned vb_shared_qps(const struct vb_path *p)
{
	return vb_data_end(p) + DR_VERBS_PROBE_QPS;
}
/* Work requests that carry len bytes. */
static inline uint32_t vb_pieces(const struct vb_path *p, uint32_t len)
{
	return len == 0 ? 1 : (uint32_t)(((uint64_t)len + p->msg_max - 1) / p->msg_max);
}

/* Break p; the next progress reports it. Only the first reason counts. */
void dr_verbs_fail(struct vb_path *p, enum dr_scope scope, int err, const char *fmt, ...)
	DR_PRINTF(4, 5);
void dr_verbs_set_state(struct vb_path *p, enum vb_state s);
/* The state, or the handshake's, has changed: does the path wait for time? */
void dr_verbs_update_ticks(struct vb_path *p);
/* up.c */
int dr_verbs_connect(
	struct dr_path *bp, const void *peer, size_t len, int64_t now_ns, struct dr_err *e);
void dr_verbs_built(struct vb_path *p);
void dr_verbs_joined(struct vb_path *p);
/* What the handshake asks for; who: for JOIN and UNEQUAL. */
void dr_verbs_obey(struct vb_path *p, enum vb_hs_do what, const struct dr_verbs_hello *who);
/* 0, or why not. */
int dr_verbs_may_post(const struct vb_path *p);

/* ctrl.c */
int dr_verbs_post_ctrl(struct dr_path *bp, const void *frame, size_t len);
void dr_verbs_ctrl_push(struct vb_path *p);
void dr_verbs_ctrl_wc(struct vb_path *p, const struct vb_wc *wc);
/* Send a message without frames. */
void dr_verbs_ctrl_nudge(struct vb_path *p);

/* probe.c */
void dr_verbs_probe(struct dr_path *bp, bool all, int64_t now_ns);
/* A probe was answered. */
void dr_verbs_probed(struct vb_path *p, const struct vb_wc *wc);
/* A round trip was measured. */
void dr_verbs_rtt(struct vb_path *p, int64_t sample_ns);
/* When the oldest probe without an answer on queue pair 0 was posted; 0: there is none. */
int64_t dr_verbs_probe_ns(const struct vb_path *p);
/* How many lone packets would have to be lost for what is observed: dr_path_stats.silent_segments. */
struct vb_silence {
	const struct vb_probes *probes; /* VB_PROBED of them */
	int64_t ack_ns;			/* the last completion of any kind */
	int64_t rtt_ns, retry_ns;	/* the latter as dr_verbs_retry_ns */
};
unsigned dr_verbs_silent(const struct vb_silence *s, int64_t now_ns);

/* tx.c */
int dr_verbs_post_send(struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part,
	const struct dr_part *what);
void dr_verbs_credited(struct vb_path *p, const struct dr_verbs_credit *c);
void dr_verbs_tx_push(struct vb_path *p);
void dr_verbs_tx_wc(struct vb_path *p, const struct vb_wc *wc);
void dr_verbs_tx_report(struct vb_path *p);
bool dr_verbs_tx_idle(const struct vb_path *p);

/* rx.c */
int dr_verbs_post_recv(struct dr_path *bp, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip);
void dr_verbs_rx_push(struct vb_path *p);
void dr_verbs_rx_wc(struct vb_path *p, const struct vb_wc *wc);
void dr_verbs_rx_report(struct vb_path *p);
/* The first n parts that became whole, and those behind them that need no flush, can be seen. */
void dr_verbs_rx_clear(struct vb_recv *v, unsigned n);
bool dr_verbs_rx_due(const struct vb_path *p);
bool dr_verbs_rx_idle(const struct vb_path *p);

/* flush.c */
/* 0: parts whose memory wants it can be posted; -EAGAIN: soon, the path is woken then; -ENOMEM. */
int dr_verbs_flush_need(struct vb_path *p);
/* The last part of the message in this slot to become whole wants a flush. */
void dr_verbs_flush_queue(struct vb_path *p, unsigned slot);
void dr_verbs_flush_push(struct vb_path *p);
void dr_verbs_flush_wc(struct vb_path *p, const struct vb_wc *wc);
bool dr_verbs_flush_idle(const struct vb_path *p);

/* fence.c */
void dr_verbs_fence(struct dr_path *bp, int64_t deadline_ns);
void dr_verbs_fence_settle(struct vb_path *p);

/* status.c */
struct vb_status {
	enum dr_scope scope;
	int err;
	const char *what; /* in words */
};
const struct vb_status *dr_verbs_status(enum ibv_wc_status s);
/* A completion with an error on this path. */
void dr_verbs_wc_failed(struct vb_path *p, const struct vb_wc *wc);

/* Fault injection "qp-error": this end's queue pairs go to the error state, as a NIC does it. */
void dr_verbs_path_error(struct dr_path *p);

#endif
