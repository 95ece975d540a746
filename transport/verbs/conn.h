/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_CONN_H
#define DR_TRANSPORT_VERBS_CONN_H

#include "base/poller.h"
#include "transport/verbs/dev.h"
#include "transport/verbs/hello.h"
#include "transport/verbs/helper.h"

/* Limits of the verbs kind: counts, bytes, times. */
enum {
	VB_CTRL_DEPTH = 32,			   /* control messages in flight, each way */
	VB_PROBES = 3,				   /* on one queue pair, without an answer */
	VB_PROBED = 1 + DR_VERBS_PROBE_QPS,	   /* queue pairs that carry probes */
	VB_CTRL_SENDS = VB_CTRL_DEPTH + VB_PROBES, /* work requests for them, and for probes */
	VB_CTRL_MSG = 1024,			   /* bytes of a control message at most */
	VB_SLAB_SPARE = 64,			   /* where flushes read to */
	VB_INLINE = 256,      /* bytes asked for; a device that has less: registered copies */
	VB_INLINE_DATA = 64,  /* of data: more makes every work request larger */
	VB_SENDS = 64,	      /* parts queued on one data queue pair */
	VB_FLUSH = 32,	      /* flushes under way on a path */
	VB_SQ = 128,	      /* work requests on one data queue pair */
	VB_RQ = 1024,	      /* receives of a path, over all its data queue pairs */
	VB_SIGNAL = 1 << 20,  /* data bytes without a signalled work request, at most one more */
	VB_MSG_MAX = 8 << 20, /* bytes of one work request of data: the unit of progress */
	VB_CHAIN = 16,	      /* work requests of one ibv_post_send */
	VB_POLL = 32,	      /* completions of one ibv_poll_cq, and taken by one progress */
	VB_CQ_CONNS = 8,      /* connections that share a completion queue */
	VB_GRH = 40,	      /* bytes in front of each datagram */
	VB_UD_BUF = 384,      /* bytes of a datagram that are kept, GRH included */
	VB_UD_PAD = 4096,     /* its padding at most */
	VB_UD_RECVS = 64,
	VB_UD_SENDS = 32,
	VB_SLOTS_MAX = 1 << 16,
};
#define VB_ANSWER_NS                                                                               \
	(500 * DR_NS_PER_MS) /* how long the answer to a probe may take at least: dr_verbs_answer_ns */
#define VB_PROBE_GAP_NS (4 * DR_NS_PER_MS) /* between two probes of one queue pair */
#define VB_TICK_NS (4 * DR_NS_PER_MS)	   /* of the rail's timer while a path waits for time */
#define VB_SLOW_TICK_NS                                                                            \
	(50 * DR_NS_PER_MS) /* of the same timer while the device or the port is gone */
#define VB_DESTROY_DELAY_NS                                                                        \
	(20 * DR_NS_PER_MS) /* from a fence to the destruction of its queue pairs */
#define VB_UD_RESET_NS (20 * DR_NS_PER_MS)
#define VB_AH_AGAIN_NS (50 * DR_NS_PER_MS)

/* Completion queues (cq.c), the connection of a path (conn.c) and its queue pairs (qp.c). */
struct vb_rail;
struct vb_path;

struct vb_cq {
	struct vb_cq *next;
	struct ibv_cq *cq; /* made by the first BUILD job that uses it */
	bool live;	   /* the owner may use cq */
	unsigned conns;
	bool armed;
	unsigned unacked; /* events taken and not acknowledged yet */
};

/* A completion on its way to its path. */
struct vb_wc {
	uint32_t status, vendor_err;
	uint32_t byte_len, imm;
	uint32_t id; /* low half of wr_id */
};
struct vb_wcs {
	struct vb_wc *ring;
	unsigned mask, head, tail;
};

/* wr_id: serial of the connection (slot 16, generation 16) | receive 1 | queue pair 3 | probe 1 | count 27. Of probes count is 0. */
enum {
	VB_ID_RECV = 1u << 31,
	VB_ID_QP_SHIFT = 28,
	VB_ID_PROBE = 1u << 27,
	VB_ID_COUNT = (1u << 27) - 1
};
static inline uint32_t vb_id(bool recv, unsigned qp, uint64_t count)
{
	return (recv ? VB_ID_RECV : 0) | (uint32_t)qp << VB_ID_QP_SHIFT |
	       ((uint32_t)count & VB_ID_COUNT);
}
static inline unsigned vb_id_qp(uint32_t id)
{
	return id >> VB_ID_QP_SHIFT & 7;
}
/* The 64-bit count that `id` stands for, given one that is less than 2^26 away. */
static inline uint64_t vb_id_count(uint32_t id, uint64_t near)
{
	uint32_t ahead = ((id & VB_ID_COUNT) - (uint32_t)near) & VB_ID_COUNT;

	return ahead <= VB_ID_COUNT / 2 ? near + ahead : near - (VB_ID_COUNT + 1 - ahead);
}

struct vb_cq *dr_verbs_cq_take(struct vb_rail *r);
/* Make cq->cq for so many completions if it is not there; on the helper's thread once the rail is up. */
int dr_verbs_cq_make(struct vb_rail *r, struct vb_cq *cq, unsigned cqes, struct dr_err *e);
void dr_verbs_cq_fini(struct vb_rail *r);
/* Poll one batch and hand it out. Returns how many came. */
int dr_verbs_cq_poll(struct vb_rail *r, struct vb_cq *cq);
/* Take the events of the completion channel: its queues may be armed again. */
void dr_verbs_cq_events(struct vb_rail *r);
int dr_verbs_look(struct dr_watch *w, int64_t now_ns);
bool dr_verbs_arm(struct dr_watch *w, int64_t now_ns);

/* ---- connection ---- */

enum { VB_CONN_QPS = DR_VERBS_SHARED_QPS + 1 };
struct vb_conn {
	struct vb_conn *next; /* stuck ones, on the rail */
	struct vb_rail *rail;
	struct vb_path *path; /* NULL: it has released this connection */
	uint32_t serial;
	bool sender;
	unsigned n; /* queue pairs: control, data, probes, then the flushing one when it is there */
	struct ibv_qp *qp[VB_CONN_QPS];
	uint32_t qpn[VB_CONN_QPS], psn;
	unsigned flush;	    /* receiver: which of them flushes (flush.c), the last; 0: none yet */
	bool flush_asked;   /* its job is under way */
	struct vb_job more; /* FLUSH */
	unsigned inline_max[VB_CONN_QPS]; /* bytes of each queue pair's work requests */
	struct vb_cq *cq;
	uint8_t *slab; /* VB_CTRL_DEPTH receives, then as many sends, then VB_SLAB_SPARE bytes */
	struct ibv_mr *slab_mr;
	bool busy;  /* work is under way: the queue pairs are the helper's */
	bool built; /* the helper has made them: qpn may be read */
	bool stuck; /* DESTROY failed: nothing of it is freed */

	struct vb_job work, end; /* BUILD and JOIN; DESTROY */
	int rc;			 /* of work */
	struct dr_err err;
	struct dr_verbs_hello peer; /* JOIN */
	struct dr_verbs_dev
		dev; /* JOIN: a copy, so that the GID lookup does not change the original */
};

int dr_verbs_conn_create(struct vb_path *p, struct vb_conn **out);
void dr_verbs_conn_build(struct vb_conn *c);
void dr_verbs_conn_join(struct vb_conn *c, const struct dr_verbs_hello *peer);
/* All queue pairs to the error state; the first that does not go there. */
int dr_verbs_conn_error(struct vb_conn *c);
/* Destroy the data queue pairs here and now: after that nothing can touch a buffer. */
int dr_verbs_conn_kill(struct vb_conn *c);
/* The path has no more to do with it; what is left is freed in the background, not before due_ns (0: at
 * once), since destroying takes a processor for milliseconds (rxe) that a switch needs more. */
void dr_verbs_conn_release(struct vb_conn *c, int64_t due_ns);
/* qp.c: queue pair i of a connection; on the helper's thread, the reason in c->err. */
struct vb_target { /* what it is led to */
	uint32_t qpn, rq_psn, sq_psn;
	unsigned mtu; /* bytes */
	uint16_t lid;
	const uint8_t *gid;
};
int dr_verbs_qp_make(struct vb_conn *c, unsigned i, struct ibv_qp_cap cap, int access);
int dr_verbs_qp_lead(struct vb_conn *c, unsigned i, const struct vb_target *to);
int dr_verbs_qp_destroy(struct vb_conn *c, unsigned i);
struct ibv_ah_attr dr_verbs_route(const struct vb_rail *r, const struct dr_verbs_dev *dev,
	uint16_t lid, const uint8_t gid[16]);
int dr_verbs_post_ctrl_recvs(struct vb_conn *c, unsigned first, unsigned n);
/* closed: the device is, and with it all that was made on it; else memory that it may access is not freed. */
void dr_verbs_conn_free_stuck(struct vb_rail *r, bool closed);
int dr_verbs_post_data_recvs(struct vb_conn *c, unsigned qp, unsigned n);

#endif
