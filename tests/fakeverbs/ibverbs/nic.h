/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEVERBS_IBVERBS_NIC_H
#define DR_TESTS_FAKEVERBS_IBVERBS_NIC_H

#include "tests/fakeverbs/fakeverbs.h"

#include "base/defs.h"

#include <errno.h>

/* verbs.h gives these other shapes by macros; the library defines the symbols. */
#undef ibv_query_port
#undef ibv_reg_mr

/*
 * The parts of the fake library. One mutex guards all of it; functions named *_locked and those of
 * wire.c and cq.c are called with it held, calls of the API without.
 */
enum {
	DR_FAKE_DEVS = 32,
	DR_FAKE_GIDS = 16,
	DR_FAKE_SGES = 8,
	DR_FAKE_INLINE_MAX = 512,
	DR_FAKE_WR_MAX = 32768,
	DR_FAKE_CQE_MAX = 32767,
	DR_FAKE_MSG_MAX = 8 << 20,
	DR_FAKE_GRH = 40,
};

/* calls.c: every call is counted, may be delayed and made to fail. */
#define DR_FAKE_CALLS(X)                                                                           \
	X(get_device_list, ENOMEM)                                                                 \
	X(free_device_list, 0)                                                                     \
	X(get_device_name, 0)                                                                      \
	X(open_device, EACCES)                                                                     \
	X(close_device, EIO)                                                                       \
	X(query_device, EIO)                                                                       \
	X(query_port, EIO)                                                                         \
	X(query_gid_ex, EIO)                                                                       \
	X(query_gid_table, EIO)                                                                    \
	X(get_async_event, EIO)                                                                    \
	X(ack_async_event, 0)                                                                      \
	X(alloc_pd, ENOMEM)                                                                        \
	X(dealloc_pd, EBUSY)                                                                       \
	X(reg_mr, ENOMEM)                                                                          \
	X(reg_dmabuf_mr, ENOMEM)                                                                   \
	X(dereg_mr, EBUSY)                                                                         \
	X(create_comp_channel, EMFILE)                                                             \
	X(destroy_comp_channel, EBUSY)                                                             \
	X(create_cq, ENOMEM)                                                                       \
	X(destroy_cq, EBUSY)                                                                       \
	X(get_cq_event, EIO)                                                                       \
	X(ack_cq_events, 0)                                                                        \
	X(create_qp, ENOMEM)                                                                       \
	X(modify_qp, EINVAL)                                                                       \
	X(query_qp, EIO)                                                                           \
	X(destroy_qp, EBUSY)                                                                       \
	X(create_ah, ENOMEM)                                                                       \
	X(destroy_ah, EBUSY)                                                                       \
	X(post_send, EIO)                                                                          \
	X(post_recv, EIO)                                                                          \
	X(poll_cq, EIO)                                                                            \
	X(req_notify_cq, EIO)
#define DR_FAKE_ENUM(name, err) DR_FAKE_CALL_##name,
enum dr_fake_call { DR_FAKE_CALLS(DR_FAKE_ENUM) DR_FAKE_N_CALLS };

/* 0, or the errno that this call fails with. Not locked. */
int dr_fake_enter(enum dr_fake_call c);
void dr_fake_calls_reset(void);
void dr_fake_call_fail(const char *call, unsigned k, int err);
const char *dr_fake_call_failed(void);
void dr_fake_call_fail_always(const char *call, int err);
void dr_fake_call_delay(const char *call, int ms);
void dr_fake_call_before(const char *call, void (*fn)(void *arg), void *arg);
unsigned dr_fake_call_count(const char *call);
/* The calling thread stops for so long. */
void dr_fake_block_ms(int ms);
/* While locked: until the flag is cleared, for ms at most; who changes such a flag wakes. */
void dr_fake_wait_while(const bool *flag, int ms);
void dr_fake_wake(void);

void dr_fake_lock(void);
void dr_fake_unlock(void);
/* Locked. Misuse by the tested code. */
void dr_fake_violation(const char *fmt, ...) DR_PRINTF(1, 2);
unsigned dr_fake_violations(const char **first);

/* Objects that are alive, by kind. */
struct dr_fake_set {
	void **p;
	unsigned n, cap;
};
extern struct dr_fake_set dr_fake_ctxs, dr_fake_pds, dr_fake_mrs, dr_fake_channels, dr_fake_cqs,
	dr_fake_qps, dr_fake_ahs, dr_fake_lists;
void dr_fake_set_add(struct dr_fake_set *s, void *p);
void dr_fake_set_del(struct dr_fake_set *s, const void *p);
bool dr_fake_set_has(const struct dr_fake_set *s, const void *p);

/* A queue with a descriptor that is readable while something is in it. */
struct dr_fake_item {
	void *about; /* object that takes its items along when it goes */
	struct ibv_async_event ev;
};
struct dr_fake_queue {
	int fd;
	unsigned n, cap;
	struct dr_fake_item *item;
};
int dr_fake_queue_init(struct dr_fake_queue *q);
void dr_fake_queue_fini(struct dr_fake_queue *q);
void dr_fake_queue_put(struct dr_fake_queue *q, const struct dr_fake_item *i); /* locked */
/* Not locked; blocks unless the descriptor is O_NONBLOCK. On success the lock is held. 0 or errno. */
int dr_fake_queue_get(struct dr_fake_queue *q, struct dr_fake_item *i);
void dr_fake_queue_drop(struct dr_fake_queue *q, const void *about); /* locked */

struct dr_fake_gid {
	bool used;
	union ibv_gid gid;
	uint32_t type;
};
struct dr_fake_rule {
	bool on, done;
	uint32_t qpn;
	unsigned skip;
	enum ibv_wc_status status;
};
struct dr_fake_dev {
	struct ibv_device ibv;
	char ifname[32], addr[32];
	struct dr_fake_gid gid[DR_FAKE_GIDS];
	unsigned cut, cut_rc, cut_ud, hole, drop;
	bool down, fatal, held, no_flush, retry7_for_ever, loop_held;
	bool ib, grh_required; /* InfiniBand; its port wants a GRH everywhere */
	uint16_t lid;
	bool gone;   /* not listed any more */
	int node_fd; /* ibv.dev_path is this descriptor's: there while the device is; 0: closed */
	int64_t latency_ns;
	int rtr_ms, rtr_err, loop_err, dmabuf_err;
	struct dr_fake_rule rule[2]; /* of sends, of receives */
};
extern struct dr_fake_dev dr_fake_dev[DR_FAKE_DEVS];
extern unsigned dr_fake_n_devs;
void dr_fake_devs_read(void); /* locked; once, from DR_FAKE_IBV */
void dr_fake_devs_reset(void);
/* Locked. The device is not listed any more and its node is gone. */
void dr_fake_dev_unlist(struct dr_fake_dev *d);
/* Locked. Another device of the same name and address, which has its GIDs at index at; -1: no room. */
int dr_fake_dev_again(struct dr_fake_dev *old, unsigned at);
void dr_fake_gid_of(const char *ipv4, union ibv_gid *out);
/* Locked. An event of the device to all its contexts; about: NULL or the queue pair or CQ. */
void dr_fake_emit(struct dr_fake_dev *d, enum ibv_event_type type, void *about);

struct dr_fake_ctx {
	struct ibv_context ibv;
	struct dr_fake_dev *dev;
	struct dr_fake_queue events;
	unsigned unacked;
};
static inline struct dr_fake_dev *dr_fake_dev_of(const struct ibv_context *c)
{
	return dr_container_of(c, struct dr_fake_ctx, ibv)->dev;
}
extern const struct ibv_context_ops dr_fake_ops;
/* Locked. Frees every object of this context (NULL: of all); returns how many there were. */
unsigned dr_fake_reap(const struct ibv_context *c);

/* What a NIC wrote to GPU memory and nobody can see yet. */
struct dr_fake_write {
	struct dr_fake_write *next;
	uint8_t *to;
	uint32_t len;
	uint8_t bytes[];
};
struct dr_fake_mr {
	struct ibv_mr ibv;
	uint8_t *view; /* GPU memory: where its first byte is mapped here; NULL: host memory */
	void *map;
	size_t map_len;
	struct dr_fake_write *unseen, **unseen_end;
	uint32_t lkey, rkey; /* whatever becomes of those in ibv */
	int access;
};
/* Locked. The region that this key names and that allows it. */
struct dr_fake_mr *dr_fake_mr_find(const struct ibv_pd *pd, uint32_t key, bool remote,
	uint64_t addr, uint64_t len, int access);

/* gpu.c; all but the first locked. */
int dr_fake_peer_memory(uint64_t base, size_t len, int fd);
/* Maps GPU memory, the file's bytes from off. */
int dr_fake_gpu_map(struct dr_fake_mr *mr, int fd, uint64_t off, size_t len); /* 0 or errno */
/* The descriptor and offset behind a device address; -1: not GPU memory. */
int dr_fake_gpu_find(uint64_t addr, size_t len, uint64_t *off);
void dr_fake_gpu_forget(void);
void dr_fake_gpu_unmap(struct dr_fake_mr *mr);
/* Where this address of a region can be followed. */
uint8_t *dr_fake_host(const struct dr_fake_mr *mr, uint64_t addr);
/* A write that lands at addr; in GPU memory it is not seen before a read of that region. */
void dr_fake_land(struct dr_fake_mr *mr, uint64_t addr, const uint8_t *bytes, uint32_t len);
void dr_fake_gpu_show(struct dr_fake_mr *mr);

/* reg_mr of memory in this range fails; err 0: of none. Locked. */
void dr_fake_mr_refuse(const void *base, size_t len, int err);
void dr_fake_mr_free(void *mr); /* locked; not in the set any more */

struct dr_fake_ah {
	struct ibv_ah ibv;
	struct ibv_ah_attr attr;
	union ibv_gid sgid; /* when it was made */
};

struct dr_fake_channel {
	struct ibv_comp_channel ibv;
	struct dr_fake_queue events;
};

struct dr_fake_qp;
struct dr_fake_cqe {
	struct ibv_wc wc;
	struct dr_fake_qp *qp;
	unsigned release; /* send or receive slots that polling it frees */
	bool recv;
};
struct dr_fake_cq {
	struct ibv_cq ibv;
	struct dr_fake_cqe *ring;
	unsigned head, n;
	bool overrun, armed, armed_solicited;
	unsigned got; /* events handed out; ibv.comp_events_completed: acknowledged */
};
/* It takes no completion any more; its context is told by CQ_ERR. */
void dr_fake_cq_break(struct dr_fake_cq *cq);
void dr_fake_cq_push(struct dr_fake_cq *cq, const struct dr_fake_cqe *e, bool solicited);
/* The queue pair's completions go, or with keep_cqes only their tie to it. */
void dr_fake_cq_forget(struct dr_fake_cq *cq, const struct dr_fake_qp *qp);
extern bool dr_fake_keep_cqes;
int dr_fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int dr_fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);

struct dr_fake_swqe {
	struct ibv_send_wr wr; /* sg_list is the copy below */
	struct ibv_sge sge[DR_FAKE_SGES];
	uint8_t *inl;
	uint32_t len;
	struct ibv_ah_attr ah;
	union ibv_gid sgid;
	int64_t ready_ns;
	bool landed;	/* the front of a write whose last packet finds no receive */
	bool delivered; /* only the acknowledgment is missing */
};
struct dr_fake_rwqe {
	uint64_t wr_id;
	struct ibv_sge sge[DR_FAKE_SGES];
	int n_sge;
};
struct dr_fake_qp {
	struct ibv_qp ibv; /* its state is what the last modify said */
	struct dr_fake_dev *dev;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	enum ibv_qp_state state;
	struct ibv_qp_attr attr;
	union ibv_gid sgid; /* at the time of RTR */
	struct dr_fake_swqe *sq;
	uint8_t *inl;
	struct dr_fake_rwqe *rq;
	unsigned sq_head, sq_tail, sq_used, sq_silent, rq_head, rq_tail, rq_used;
	uint64_t sent, received;  /* messages: stand for the PSNs */
	int64_t retry_ns, rnr_ns; /* when patience ends; 0: no trouble */
	unsigned events_got, events_acked;
};

/* qp.c */
void dr_fake_qp_free(struct dr_fake_qp *qp);
void dr_fake_qp_clear(struct dr_fake_qp *qp);
/* state.c: 0 or EINVAL. */
int dr_fake_qp_check(const struct dr_fake_qp *qp, const struct ibv_qp_attr *a, int mask,
	enum ibv_qp_state *next);
void dr_fake_qp_apply(struct dr_fake_qp *qp, const struct ibv_qp_attr *a, int mask);

/* work.c */
int dr_fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int dr_fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* done.c: how work ends. */
void dr_fake_done_send(struct dr_fake_qp *qp, enum ibv_wc_status s);
void dr_fake_done_recv(struct dr_fake_qp *qp, const struct ibv_wc *wc, bool solicited);
void dr_fake_qp_err(struct dr_fake_qp *qp);
void dr_fake_qp_flush(struct dr_fake_qp *qp);
/* The status that a test ordered for this completion, or IBV_WC_SUCCESS. */
enum ibv_wc_status dr_fake_ordered(struct dr_fake_qp *qp, bool recv);

/* wire.c: moves what can be moved. */
void dr_fake_move(struct dr_fake_qp *qp);
void dr_fake_move_all(void);
void dr_fake_move_due(int64_t now_ns); /* the same, for the timer: does not kick it */
/* timer.c: the thread for what time alone brings; counted by open contexts. */
int dr_fake_timer_start(void);
void dr_fake_timer_stop(void);
void dr_fake_timer_kick(void); /* locked */
int64_t dr_fake_next_ns(void); /* locked; wire.c */
int64_t dr_fake_now_ns(void);  /* the monotonic clock, or what dr_fake_set_time() said last */
void dr_fake_set_time(int64_t now_ns); /* DR_NEVER: the monotonic clock again */

/* rc.c, ud.c: one try for the head of the send queue. */
enum {
	DR_FAKE_DONE = -1,
	DR_FAKE_LOST = -2, /* no answer: retries */
	DR_FAKE_RNR = -3,
	DR_FAKE_IDLE = -4, /* nothing happens, no timer runs */
};
int dr_fake_try_rc(struct dr_fake_qp *qp, struct dr_fake_swqe *w);
int dr_fake_try_ud(struct dr_fake_qp *qp, struct dr_fake_swqe *w);
int64_t dr_fake_patience_ns(const struct dr_fake_qp *qp);
/* What both use (wire.c). */
/* Where this route leads from d; NULL: nowhere. */
struct dr_fake_dev *dr_fake_route(const struct dr_fake_dev *d, const struct ibv_ah_attr *ah);
/* The source that a route was made with, sgid, stands where it stood. */
bool dr_fake_source_ok(
	const struct dr_fake_dev *d, const struct ibv_ah_attr *ah, const union ibv_gid *sgid);
/* A route that this device takes; counts it. */
bool dr_fake_route_ok(struct dr_fake_dev *d, const struct ibv_ah_attr *ah);
extern unsigned dr_fake_routes[2]; /* without and with a GRH */
struct dr_fake_qp *dr_fake_find_qp(const struct dr_fake_dev *d, uint32_t qpn);
/* Local keys of the sender: false, LOC_PROT_ERR. */
bool dr_fake_gather_ok(const struct dr_fake_qp *qp, const struct dr_fake_swqe *w);
void dr_fake_gather(
	const struct dr_fake_qp *qp, const struct dr_fake_swqe *w, uint8_t *to, uint32_t len);
/* Into a posted receive from byte off; IBV_WC_SUCCESS, LOC_LEN_ERR, LOC_PROT_ERR. */
enum ibv_wc_status dr_fake_scatter(
	struct dr_fake_qp *qp, const struct dr_fake_rwqe *r, const uint8_t *from, uint32_t len);

#endif
