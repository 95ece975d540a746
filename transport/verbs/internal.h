/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_INTERNAL_H
#define DR_TRANSPORT_VERBS_INTERNAL_H

#include "base/rng.h"
#include "transport/verbs/dev.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/hello.h"

#include <net/if.h>
#include <pthread.h>
#include <stdatomic.h>

/*
 * How the verbs kind is put together.
 *
 *	rail	rail.c: life, peer; nic.c: the device, also when it goes and comes back; ud.c: datagrams; admit.c: greetings; cq.c: completion queues, what the
 *		poller looks at; event.c: asynchronous events; mr.c, gpumem.c: memory; helper.c: what may block
 *	conn	conn.c: the connection of one path; qp.c: its queue pairs, made and destroyed by the helper
 *	path	path.c: life, ops; ctrl.c: control messages; tx.c: data out; rx.c: data in; flush.c: GPU
 *		memory; fence.c
 *	bytes	hello.c, frame.c; status.c: what a completion status means
 *
 * Threads. A rail and its paths belong to their owner's thread. The helper thread of a rail sees
 * only jobs, and what a job holds is the helper's from submit until its done() runs, which is in
 * rail_progress, on the owner's thread. A path never waits for the helper: it lets go of its conn,
 * whose own DESTROY job comes after every other job of it.
 */
enum {
	VB_CTRL_DEPTH = 32,  /* control messages in flight, each way */
	VB_CTRL_MSG = 1024,  /* bytes of a control message at most */
	VB_SLAB_SPARE = 64,  /* where flushes read to */
	VB_CTRL_BUF = 65536, /* bytes of queued control frames */
	VB_INLINE = 256,     /* bytes asked for; a device that has less: registered copies */
	VB_INLINE_DATA = 64, /* of data: more makes every work request larger */
	VB_RING = 128,	     /* messages posted, credits held */
	VB_SENDS = 64,	     /* parts queued on one data queue pair */
	VB_FLUSH = 32,	     /* flushes under way on a path */
	VB_SQ = 128,	     /* work requests on one data queue pair */
	VB_RQ = 1024,	     /* receives of a path, over all its data queue pairs */
	VB_CHAIN = 16,	     /* work requests of one ibv_post_send */
	VB_POLL = 32,	     /* completions of one ibv_poll_cq, and taken by one progress */
	VB_CQ_CONNS = 8,     /* connections that share a completion queue */
	VB_PARKED = 64,	     /* greetings that no path waits for */
	VB_GRH = 40,	     /* bytes in front of each datagram */
	VB_UD_BUF = 384,
	VB_UD_RECVS = 64,
	VB_UD_SENDS = 32,
	VB_SLOTS_MAX = 1 << 16,
};
#define VB_HELLO_NS (12 * DR_NS_PER_MS) /* between two HELLOs of a path */
#define VB_TICK_NS (4 * DR_NS_PER_MS)	/* of the rail's timer while a path waits for time */
#define VB_SLOW_TICK_NS                                                                            \
	(20 * DR_NS_PER_MS)	       /* of the same timer while the device or the port is gone */
#define VB_NEWS_NS (20 * DR_NS_PER_MS) /* between two tellings of a new address */
#define VB_MEND_NS (20 * DR_NS_PER_MS)
#define VB_AH_AGAIN_NS (50 * DR_NS_PER_MS)
#define VB_PARK_NS (5 * DR_NS_PER_S) /* a greeting is kept so long after its last repetition */

struct vb_rail;
struct vb_path;
struct vb_conn;

/* ---- helper thread ---- */

struct vb_job {
	struct vb_job *next;
	void (*run)(struct vb_job *job);  /* on the helper's thread */
	void (*done)(struct vb_job *job); /* on the owner's, in rail_progress; may free the job */
};

struct vb_helper {
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct vb_job *todo, **todo_end;
	struct vb_job *finished, **finished_end;
	atomic_uint n_finished;
	bool quit;
	int efd; /* readable when something finished; -1: nobody sleeps on it */
};

int dr_verbs_helper_start(struct vb_helper *h, bool with_fd, struct dr_err *e) DR_MUST_CHECK;
void dr_verbs_helper_submit(struct vb_helper *h, struct vb_job *job);
/* The jobs that finished, oldest first; NULL: none. */
struct vb_job *dr_verbs_helper_take(struct vb_helper *h);
/* Ends the thread after every submitted job has run; then take once more. */
void dr_verbs_helper_stop(struct vb_helper *h);
void dr_verbs_helper_fini(struct vb_helper *h);

/* ---- memory ---- */

struct dr_mr {
	struct dr_mr *next;
	struct vb_rail *rail;
	uint8_t *base;
	size_t len;
	enum dr_memory_kind kind;
	int dmabuf_fd; /* of our own; -1: none */
	uint64_t dmabuf_off;
	bool flush;	   /* what is written here is seen only after a flush (flush.c) */
	char how[200];	   /* CUDA: how it is reached, in words */
	struct ibv_mr *mr; /* NULL: not registered yet (lazy, or the device is gone) */
	unsigned refs;
	struct vb_job job; /* while the device goes or comes back */
	bool busy;	   /* job is under way: mr is the helper's */
	bool gone;	   /* deregistered meanwhile: freed when the job is done */
};

int dr_verbs_mr_reg(
	struct dr_rail *br, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e);
void dr_verbs_mr_dereg(struct dr_rail *br, struct dr_mr *mr);
/* Registered now, if it was not: 0 or -errno. */
int dr_verbs_mr_need(struct dr_mr *mr, struct dr_err *e);
void dr_verbs_mr_fini(struct vb_rail *r);
/* gpumem.c. CUDA memory through dma-buf or peer memory; mr->how says which. -ENOTSUP and the reasons. */
int dr_verbs_gpu_enter(struct dr_mr *mr, struct dr_err *e);
/* The device is to be closed: have all regions of it deregistered. And: it is back, register them. */
void dr_verbs_mr_release(struct vb_rail *r);
void dr_verbs_mr_renew(struct vb_rail *r);

/* ---- completion queues ---- */

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

/* wr_id: serial of the connection (slot 16, generation 16) | receive 1 | queue pair 3 | count 28. */
enum { VB_ID_RECV = 1u << 31, VB_ID_QP_SHIFT = 28, VB_ID_COUNT = (1u << 28) - 1 };
static inline uint32_t vb_id(bool recv, unsigned qp, uint64_t count)
{
	return (recv ? VB_ID_RECV : 0) | (uint32_t)qp << VB_ID_QP_SHIFT |
	       ((uint32_t)count & VB_ID_COUNT);
}
static inline unsigned vb_id_qp(uint32_t id)
{
	return id >> VB_ID_QP_SHIFT & 7;
}
/* The 64-bit count that `id` stands for, given one that is less than 2^27 away. */
static inline uint64_t vb_id_count(uint32_t id, uint64_t near)
{
	uint32_t ahead = ((id & VB_ID_COUNT) - (uint32_t)near) & VB_ID_COUNT;

	return ahead <= VB_ID_COUNT / 2 ? near + ahead : near - (VB_ID_COUNT + 1 - ahead);
}

struct vb_cq *dr_verbs_cq_take(struct vb_rail *r);
/* On the helper's thread: make cq->cq if it is not there. */
int dr_verbs_cq_make(struct vb_rail *r, struct vb_cq *cq, struct dr_err *e);
void dr_verbs_cq_fini(struct vb_rail *r);
/* Poll one batch and hand it out. Returns how many came. */
int dr_verbs_cq_poll(struct vb_rail *r, struct vb_cq *cq);
/* Take the events of the completion channel: its queues may be armed again. */
void dr_verbs_cq_events(struct vb_rail *r);
int dr_verbs_look(struct dr_watch *w, int64_t now_ns);
bool dr_verbs_arm(struct dr_watch *w, int64_t now_ns);

/* ---- connection ---- */

enum { VB_CONN_QPS = DR_VERBS_QPS + 1 };
struct vb_conn {
	struct vb_conn *next; /* stuck ones, on the rail */
	struct vb_rail *rail;
	struct vb_path *path; /* NULL: it has let go */
	uint32_t serial;
	bool sender;
	unsigned n; /* queue pairs: control, then data, then the flushing one when it is there */
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
	bool stuck; /* a queue pair could not be destroyed: nothing of it is freed */

	struct vb_job work, end; /* BUILD and JOIN; DESTROY */
	int rc;			 /* of work */
	struct dr_err err;
	struct dr_verbs_hello peer; /* JOIN */
	struct dr_verbs_dev dev;    /* JOIN: a copy, so that looking the GID up disturbs nobody */
};

int dr_verbs_conn_create(struct vb_path *p, struct vb_conn **out);
void dr_verbs_conn_build(struct vb_conn *c);
void dr_verbs_conn_join(struct vb_conn *c, const struct dr_verbs_hello *peer);
/* All queue pairs to the error state; the first that does not go there. */
int dr_verbs_conn_error(struct vb_conn *c);
/* Destroy the data queue pairs here and now: after that nothing can touch a buffer. */
int dr_verbs_conn_kill(struct vb_conn *c);
/* The path has no more to do with it; what is left is freed in the background. */
void dr_verbs_conn_release(struct vb_conn *c);
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
/* The device is closed, and with it all that was made on it. */
void dr_verbs_conn_free_stuck(struct vb_rail *r);
int dr_verbs_post_data_recvs(struct vb_conn *c, unsigned qp, unsigned n);

/* ---- rail ---- */

struct vb_parked {
	bool used;
	int64_t seen_ns;
	struct dr_verbs_hello hello;
};

struct vb_ah_job {
	struct vb_job job;
	struct vb_rail *rail;
	bool busy, again;
	struct ibv_ah *old, *ah;
	struct ibv_ah_attr attr;
	int rc;
};

struct vb_gid_job {
	struct vb_job job;
	struct vb_rail *rail;
	bool busy, again;
	struct dr_verbs_dev dev;
	int rc;
};

/* The rail's datagrams. Sends are counted: done <= posted, buffer = count % VB_UD_SENDS. */
struct vb_ud {
	struct ibv_qp *qp;
	uint32_t life;	 /* of the queue pair, between two resets; high half of its wr_ids */
	bool broken;	 /* in the error state */
	int64_t mend_ns; /* when it was last brought up again */
	struct vb_cq cq;
	uint32_t qkey;
	uint8_t *slab;
	struct ibv_mr *mr;
	uint64_t posted, done;
	struct ibv_wc wc[VB_POLL]; /* polled by a look, not handled yet: [at, n) */
	int at, n;
	struct ibv_ah *ah;
	bool ah_stale; /* it may lead nowhere: a new one is wanted */
	int64_t ah_tried_ns;
	struct vb_ah_job job;
};

/* The device that the rail has open; nic.c states the rules. */
enum vb_nic_state { VB_NIC_OPEN, VB_NIC_DYING, VB_NIC_CLOSING, VB_NIC_GONE, VB_NIC_OPENING };
struct vb_nic {
	enum vb_nic_state state;
	struct vb_job job; /* CLOSING, OPENING */
	int rc;
	struct dr_err err;
	int64_t try_ns, wait_ns; /* GONE: when it is looked for; OPEN: when news are told next */
	unsigned sq, rq;	 /* depths of its queues */
	int64_t seen_ns;	 /* when it was looked at last */
	uint64_t life;		 /* grows with every new address */
	bool news;		 /* the peer is to be told the new address */
};

struct vb_rail {
	struct dr_rail base;
	struct dr_rail_params par;
	struct dr_verbs_params vp;
	char ifname[IFNAMSIZ];
	const struct dr_ibv *ibv;
	struct dr_verbs_dev dev;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct vb_cq *cqs;
	unsigned conn_cqes, cq_conns; /* see rail.c: plan_depths */
	unsigned sq, rq;	      /* work requests of one data queue pair */
	struct vb_ud ud;
	struct vb_helper helper;
	struct vb_gid_job gid;
	struct vb_nic nic;
	ino_t node;	    /* of the device's entry in sysfs; 0: not known */
	unsigned n_conns;   /* that are not destroyed */
	uint64_t peer_life; /* of the address that the peer told last */
	struct dr_rng rng;
	bool closed, has_peer;
	unsigned flushing; /* regions that want a flush */
	struct dr_verbs_addr peer;
	struct vb_path *paths; /* every path that is not closed */
	unsigned n_paths;      /* every path that is not freed */
	struct vb_path *ready; /* paths that their owner should drive, and have a poller */
	unsigned ticking;      /* paths that wait for time */
	struct dr_mr *mrs;
	struct vb_conn **slots;
	uint32_t n_slots;
	struct vb_conn *stuck; /* could not be destroyed: kept until the device is closed */
	uint16_t *slot_gen;

	struct dr_watch watch;
	struct dr_pollable comp, async, helped, tick, self;
	int64_t tick_ns; /* of the timer; 0: off */
	bool async_fired;
	int64_t async_ns; /* looked at last, where there is no poller */
	struct vb_parked parked[VB_PARKED];
	int64_t warn_ns;

	int err; /* 0, or why the rail failed */
	bool err_due;
	bool dead; /* the device is gone: no path comes up before it is back */
	char text[200];
	struct dr_sink *sink; /* during rail_progress */
	int64_t now_ns;
	int n_events;
	uint64_t syscalls, strays, quarantined;
};

static inline struct vb_rail *vb_rail(struct dr_rail *r)
{
	return dr_container_of(r, struct vb_rail, base);
}

int dr_verbs_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e);
int dr_verbs_rail_handle(struct dr_rail *r, void *buf, size_t cap);
int dr_verbs_rail_peer(struct dr_rail *r, const void *handle, size_t len, struct dr_err *e);
int dr_verbs_rail_progress(struct dr_rail *r, int64_t now_ns, struct dr_sink *sink);
void dr_verbs_rail_close(struct dr_rail *r);
void dr_verbs_rail_fini(struct dr_rail *r);
void dr_verbs_rail_emit(struct vb_rail *r, struct dr_event *ev);
/* The rail is broken; FAILED is reported by the next rail_progress. */
void dr_verbs_rail_fail(struct vb_rail *r, int err, const char *fmt, ...) DR_PRINTF(3, 4);
void dr_verbs_rail_kick(struct vb_rail *r);
/* Have the timer run while paths wait for time. */
void dr_verbs_tick_update(struct vb_rail *r);
int dr_verbs_run_ready(struct vb_rail *r, int64_t now_ns);

void dr_verbs_rail_addr(const struct vb_rail *r, struct dr_verbs_addr *out);

int dr_verbs_nic_open(struct vb_rail *r, struct dr_err *e);
/* Also of what open left half-done. */
void dr_verbs_nic_close(struct vb_rail *r);
/* Opened: the owner takes it over. */
void dr_verbs_nic_use(struct vb_rail *r);
int dr_verbs_nic_watch(struct vb_rail *r);
void dr_verbs_nic_unwatch(struct vb_rail *r);
/* It is gone; why goes on after its name. FAILED of the rail and of its paths follows. */
void dr_verbs_nic_lost(struct vb_rail *r, const char *why);
/* It has another address: the peer is told. */
void dr_verbs_nic_moved(struct vb_rail *r);
void dr_verbs_nic_progress(struct vb_rail *r);

int dr_verbs_ud_open(struct vb_rail *r, struct dr_err *e);
void dr_verbs_ud_close(struct vb_rail *r);
int dr_verbs_ud_poll(struct vb_rail *r);
void dr_verbs_ud_progress(struct vb_rail *r);
void dr_verbs_ud_send(
	struct vb_rail *r, const void *head, size_t head_len, const void *data, size_t len);
void dr_verbs_rail_dgram(struct dr_rail *br, const void *data, size_t len);
/* Ask the helper for an address handle, also when there is one. */
void dr_verbs_ah_renew(struct vb_rail *r);

void dr_verbs_event_progress(struct vb_rail *r);

void dr_verbs_admit(struct vb_rail *r, const void *data, size_t len);
/* Tell the peer where this rail is now. */
void dr_verbs_tell_news(struct vb_rail *r, bool answer);
/* The acceptor p waits: is its peer's greeting here already? */
void dr_verbs_admit_claim(struct vb_path *p);
/* Send this path's HELLO or WELCOME. */
void dr_verbs_greet(struct vb_path *p, uint8_t type);

/* ---- path ---- */

/*
 * States. Posts work in UP only (before: -ENOTCONN; between a failure and its report: -EAGAIN; after:
 * -ENOTCONN).
 */
enum vb_state {
	VB_NEW,	       /* connect was not called */
	VB_BUILDING,   /* the helper makes the queue pairs */
	VB_GREETING,   /* connector: repeats HELLO */
	VB_WAITING,    /* acceptor: waits for HELLO */
	VB_JOINING,    /* the helper leads the queue pairs to the peer's */
	VB_ADMITTED,   /* acceptor: WELCOME sent, nothing came on the control queue pair yet */
	VB_CONFIRMING, /* connector: first message sent, none came */
	VB_UP,
	VB_FAILING, /* broken; FAILED is due in the next progress */
	VB_FAILED,  /* FAILED was reported; waits for fence or close */
	VB_FENCING, /* queue pairs in the error state; counts what comes back */
	VB_FENCED,  /* FENCED was reported, or is due (fenced_due); waits for close */
	VB_CLOSED,
};

/* Sender: a clear-to-send. Slot seq % VB_RING. */
struct vb_credit {
	bool used;
	uint8_t todo; /* bit i: part i may be posted still */
	struct dr_verbs_credit c;
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
struct vb_lane {
	struct vb_send queue[VB_SENDS];
	uint64_t told, posted, flushed, queued;
	uint64_t wr_done, wr_posted; /* wr_retired: errors and flushed ones included */
	uint64_t wr_retired;
	bool broken; /* an error came: what follows was not done */
};

/* Receiver: a posted message. Slot seq % VB_RING. */
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
	uint8_t fifo[VB_RING]; /* slots in the order posted */
	unsigned head, n;
	/* by data queue pair, from 1: receives in the queue; those that credits may use up */
	unsigned posted[DR_VERBS_QPS], promised[DR_VERBS_QPS];
	bool arrived;
	uint32_t arrived_epoch;
	struct vb_flush *flush; /* NULL: not needed yet */
};

/* Control messages. Counted: done <= sent <= granted by the peer; own receives: granted so far. */
struct vb_ctrl {
	uint8_t *buf; /* [at, end) is queued, [at, flushed) may go */
	size_t at, flushed, end;
	uint64_t sent, done;
	uint32_t peer_granted;	/* messages the peer can take in all */
	uint32_t granted, told; /* own receives posted in all; what the peer was told of that */
	uint16_t len[VB_CTRL_DEPTH]; /* bytes of the message in each send slot */
};

struct vb_path {
	struct dr_path base;
	struct dr_path_params par;
	struct vb_path *next;	    /* on the rail */
	struct vb_path *ready_next; /* on the rail's list of paths to drive */
	bool is_ready;
	enum vb_state state;
	bool ticks;	       /* counted in rail.ticking */
	struct dr_pollable po; /* for kicks */
	struct vb_conn *conn;
	struct vb_wcs ctrl_wcs, data_wcs;
	struct vb_ctrl ctrl;
	struct vb_lane *lanes; /* sender: of queue pair i + 1 */
	struct vb_credit *credits;
	uint32_t credit_epoch;
	struct vb_rx rx;
	uint32_t msg_max; /* bytes of one work request, as both ends count them */
	int64_t hello_ns; /* when the next HELLO is due */
	bool first_sent;

	bool mute; /* FAILED was reported: only FENCED may follow */
	bool fenced_due, fence_bad;
	bool uncounted; /* a post failed half-way: what is out is not known, only destroying helps */
	bool flushed_seen; /* a queue pair was found in the error state, its reason is looked for */
	uint32_t flush_vendor;
	int64_t fence_deadline_ns, fence_from_ns;
	int err;
	enum dr_scope scope;
	char text[240];

	struct dr_sink *sink; /* during progress, else NULL */
	int64_t now_ns;
	int n_events;
	int64_t ack_ns; /* last good send completion */
	uint64_t posted_bytes, acked_bytes;
	struct dr_path_stats st;
};

static inline struct vb_path *vb_path(struct dr_path *p)
{
	return dr_container_of(p, struct vb_path, base);
}
static inline struct vb_rail *vb_path_rail(const struct vb_path *p)
{
	return vb_rail(p->base.rail);
}
/* Data queue pair, from 1, of part i of message seq: single-part messages use all of them too. */
static inline unsigned vb_qp_of(const struct vb_path *p, uint64_t seq, unsigned part)
{
	return 1 + (unsigned)((seq + part) % vb_path_rail(p)->vp.qps);
}
/* Queue pairs that both ends have. */
static inline unsigned vb_shared_qps(const struct vb_path *p)
{
	return 1 + vb_path_rail(p)->vp.qps;
}
/* Work requests that carry len bytes. */
static inline uint32_t vb_pieces(const struct vb_path *p, uint32_t len)
{
	return len == 0 ? 1 : (uint32_t)(((uint64_t)len + p->msg_max - 1) / p->msg_max);
}

/* Break p; the next progress reports it. Only the first reason counts. */
void dr_verbs_fail(struct vb_path *p, enum dr_scope scope, int err, const char *fmt, ...)
	DR_PRINTF(4, 5);
void dr_verbs_emit(struct vb_path *p, struct dr_event *ev);
/* Have progress called: the poller's next round, if there is one. */
void dr_verbs_wake(struct vb_path *p);
void dr_verbs_set_state(struct vb_path *p, enum vb_state s);
void dr_verbs_built(struct vb_path *p);
void dr_verbs_joined(struct vb_path *p);
/* HELLO or WELCOME came for this path and its generation. */
void dr_verbs_greeted(struct vb_path *p, const struct dr_verbs_hello *h);
/* 0, or why not. */
int dr_verbs_may_post(const struct vb_path *p);

/* ctrl.c */
int dr_verbs_post_ctrl(struct dr_path *bp, const void *frame, size_t len);
/* Bytes for one more frame: NULL, no room. */
uint8_t *dr_verbs_ctrl_room(struct vb_path *p);
void dr_verbs_ctrl_push(struct vb_path *p);
void dr_verbs_ctrl_wc(struct vb_path *p, const struct vb_wc *wc);
/* Send a message without frames. */
void dr_verbs_ctrl_nudge(struct vb_path *p);

/* tx.c */
int dr_verbs_post_send(struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part,
	const struct dr_part *what);
int dr_verbs_credit(struct dr_path *bp, uint32_t epoch, uint64_t seq, struct dr_credit *out);
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
void dr_verbs_fence(struct dr_path *bp, bool soft, int64_t deadline_ns);
void dr_verbs_fence_settle(struct vb_path *p);
/* After close: nothing touches a buffer when this returns 0. */
int dr_verbs_fence_now(struct vb_path *p);

/* status.c */
struct vb_status {
	enum dr_scope scope;
	int err;
	const char *what; /* in words */
};
const struct vb_status *dr_verbs_status(enum ibv_wc_status s);
/* A completion with an error on this path. */
void dr_verbs_wc_failed(struct vb_path *p, const struct vb_wc *wc);

#endif
