/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_NET_PRIV_H
#define DR_TRANSPORT_NCCLNET_NET_PRIV_H

#include "transport/ncclnet/host.h"
#include "transport/ncclnet/kind.h"
#include "transport/ncclnet/service.h"
#include "transport/ncclnet/unpack.h"
#include "transport/ncclnet/wire.h"
#include "transport/gpu.h"

/*
 * The nccl kind: paths over the comms of a network plugin of NCCL.
 *
 * A comm carries messages one way, from the end that dials to the end that accepts. A path has three: data, control to
 * the receiver, control to the sender. Each end dials the comms that it sends on. A listener of the plugin gives one comm;
 * a dialler asks the peer's rail for the handle of a new one. The first message on a comm, HELLO, says which path and
 * role it is for. The connector dials first; the acceptor dials when the connector's HELLO has come.
 *
 * A plugin moves bytes inside its calls only, and has no descriptor to sleep on. With a poller a rail is looked at in
 * every wait, and a timer ends the wait when nothing has moved for a while (rail.c).
 *
 * Messages have no header and belong to receives by their order. Both ends therefore take the parts of a path in one
 * order: ascending messages, in each the parts without skipped ones. A part that the user posts earlier waits for those
 * before it.
 */
enum {
	NN_REQUESTS_MAX = 16, /* outstanding on a comm */
	NN_CTRL_REQUESTS =
		8, /* messages of a control comm: receives posted ahead, sends outstanding */
	NN_CTRL_MESSAGE = 2048, /* bytes of each, at most */
	NN_SENDS =
		64, /* parts that may be posted, counted from the oldest whose SENT was not reported */
	NN_PARTS = DR_PATH_RING * DR_PARTS_MAX,
	NN_PENDING_MAX =
		64, /* of a rail: accepted comms that no path has yet, listeners, diallers that ask */
};

struct nn_rail;
struct nn_path;

struct dr_mr {
	uint8_t *base; /* cuda: an address of the GPU */
	size_t len;
	bool cuda;
	bool flush;  /* cuda: what was received is visible to the GPU after iflush */
	bool dmabuf; /* cuda: registered by this descriptor */
	int dmabuf_fd;
	uint64_t dmabuf_off;
	char how[64]; /* how the GPU memory is reached, a text for the result; "" for host memory */
};

/* ---- requests.c: the requests of one comm, in order ---- */

struct nn_mem {
	void *base;
	size_t len;
	const struct dr_mr *mr; /* NULL: ours */
};

/* Memory that is registered on a comm. */
struct nn_reg {
	struct nn_reg *next;
	struct nn_mem mem;
	void *mhandle;
};

struct nn_request {
	void *request;
	int64_t since_ns;
	/* Of a receive. */
	uint8_t *data;
	size_t cap;
	void *mhandle;	 /* of what it is in */
	bool cuda;	 /* data is an address of the GPU */
	bool flush;	 /* ... that needs iflush */
	unsigned slot;	 /* of its pieces */
	ssize_t size;	 /* once it is complete */
	uint64_t ticket; /* of unpacking; 0: done at once */
	void *flushing;	 /* the request of iflush; NULL: none, or it is done */
};

/*
 * Only the oldest request that is not complete is tested: some plugins can do no other. Counts, slot = count %
 * NN_REQUESTS_MAX: head <= started <= tested <= tail. tested: complete, says the plugin; started: being unpacked or flushed;
 * head: over.
 */
struct nn_queue {
	const struct dr_nccl *n;
	void *comm; /* NULL: none */
	bool sends;
	unsigned limit;
	struct nn_request request[NN_REQUESTS_MAX];
	unsigned head, started, tested, tail;
	int error; /* of the oldest request that is not complete; reported when those before it are over */
	bool start_failed; /* ... and it was complete, but could not be unpacked or flushed */
	bool sizeless;	   /* test said no size of the first receive: each counts as full */
	/* Receives of a device of type UNPACK: handle, mode, and how many were complete. */
	bool pieces;
	struct nn_unpack_handle unpack;
	enum nn_unpack_mode mode;
	struct dr_rail_gpu gpu; /* with ops: bounce buffer and pieces are in GPU memory */
	bool gpu_failed;
	bool flushes; /* receives are in GPU memory that needs iflush */
	uint64_t received;
	struct nccl_net_device_handle *device; /* the plugin's device handle, ours to free */
	struct nn_reg *regs;
	uint64_t calls;	    /* of the plugin */
	const char *failed; /* the call that failed last */
};

void dr_nn_queue_open(
	struct nn_queue *l, const struct dr_nccl *n, void *comm, bool sends, unsigned limit);
/* The device handle that accept gave: whether receives are left in pieces, and where. gpu: of the rail; without ops it is in host
 * memory. An error of the GPU is logged. */
int dr_nn_queue_take_pieces(struct nn_queue *l, const struct nccl_net_device_handle *device,
	const struct dr_rail_gpu *gpu) DR_MUST_CHECK;
static inline unsigned nn_queue_used(const struct nn_queue *l)
{
	return l->tail - l->head;
}
/* Post [data, data+size), which is part of mem; mem is registered first if it was not. -EAGAIN: as many as are allowed are
 * outstanding, or the plugin gave no request, which it may at any time: try again. Other errors are final for the comm. */
int dr_nn_queue_post(struct nn_queue *l, const struct nn_mem *mem, void *data, size_t size,
	int64_t now_ns) DR_MUST_CHECK;
/* Test the oldest request: 1 done, with its size where it is a receive; 0 not done, or there is none; -errno. */
int dr_nn_queue_test(struct nn_queue *l, size_t *size) DR_MUST_CHECK;
/* When the oldest request was posted; DR_NEVER: there is none. */
int64_t dr_nn_queue_since(const struct nn_queue *l);
/* Deregister, if it was registered. Nothing is posted in it. -EIO: the plugin reports an error. */
int dr_nn_queue_forget(struct nn_queue *l, const struct nn_mem *mem);
/* Deregister everything and close the comm, whatever is outstanding. -EIO: the plugin reports an error, and may touch
 * memory still. */
int dr_nn_queue_close(struct nn_queue *l);

/* ---- rail.c, dial.c, listener.c, pending.c ---- */

/* A comm on its way out. */
struct nn_dial {
	struct nn_dial *next;  /* on the rail: given up */
	struct nn_call *call;  /* connect, once the handle has come */
	struct nn_queue queue; /* ... and what it gave */
	bool said;	       /* HELLO was posted */
	const char *failed;    /* what did, if anything does now */
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	int64_t since_ns;
	int fd; /* on which the peer's rail is asked for the handle; -1: it has come */
	size_t sent, got;
	uint8_t hello[NN_HELLO_LEN], reply[NN_REPLY_LEN];
};

/* A connection on which a dialler asks for a handle. */
struct nn_asker {
	struct nn_asker *next;
	int fd;
	size_t got;
	int64_t until_ns;
	uint8_t hello[NN_HELLO_LEN];
};

/* A listener of the plugin, until its comm comes. */
struct nn_listener {
	struct nn_listener *next;
	struct nn_call *call;
	int64_t until_ns;
};

/* A comm that was accepted and has no path: HELLO is awaited, or the path. */
struct nn_pending {
	struct nn_queue queue;
	struct nn_pending *next;
	bool posted; /* the receive of HELLO */
	bool greeted;
	struct nn_hello hello;
	int64_t until_ns;
	uint8_t bytes[NN_HELLO_LEN];
};

struct nn_rail {
	struct dr_rail base;
	struct dr_rail_params par;
	struct dr_nccl_host *host;
	const struct dr_nccl *n;
	struct dr_nccl_device dev;
	struct nn_service *service;
	struct nn_dial *dials;
	bool closed, has_peer, warned;
	uint32_t scope_id; /* of an IPv6 link-local address */
	enum nn_unpack_mode unpack;
	struct dr_rail_gpu gpu;
	struct nn_rail_handle self, peer;
	uint8_t key[DR_KEY_LEN];
	struct dr_pollable ask; /* where diallers ask for handles */
	bool asked;		/* somebody does */
	struct nn_asker *askers;
	struct nn_listener *listeners;
	unsigned n_askers, n_listeners;
	struct nn_pending *pending;
	unsigned n_pending;
	struct nn_path *paths; /* every path that is not closed */
	unsigned n_paths;      /* every path that is not freed */
	struct dr_watch watch;
	struct dr_pollable timer;
	int64_t heard_ns;	/* rx_last_ns when the last datagram was sent */
	struct dr_event *came;	/* a datagram, during progress of the path that it came on */
	struct nn_path *cursor; /* the next one that look() drives */
	int64_t moved_ns;	/* when something moved last */
	int64_t looked_ns;	/* ... and the listener was looked at */
	int64_t pause_ns;	/* no descriptors or memory: no further dialler before */
	struct dr_sink *sink;	/* during progress */
	int n_events;
};

static inline struct nn_rail *nn_rail(struct dr_rail *r)
{
	return dr_container_of(r, struct nn_rail, base);
}

/* Before the plugin is called: it takes the context that is current. An error shows up in the plugin's own calls. */
static inline void nn_rail_enter(const struct nn_rail *r)
{
	if (r->gpu.ops)
		(void)r->gpu.ops->enter(r->gpu.arg, NULL);
}

/* Of a HELLO of this end, or of the peer. */
static inline struct nn_hello_key nn_rail_key(const struct nn_rail *r, bool dialler)
{
	return (struct nn_hello_key){ .key = r->key,
		.dialler = dialler ? r->self.nonce : r->peer.nonce,
		.listener = dialler ? r->peer.nonce : r->self.nonce };
}

int dr_nn_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e);
int dr_nn_rail_handle(struct dr_rail *br, void *buf, size_t cap);
int dr_nn_rail_peer(struct dr_rail *br, const void *handle, size_t len, struct dr_err *e);
void dr_nn_rail_dgram(struct dr_rail *br, const void *data, size_t len);
/* On a path, which is in progress. */
void dr_nn_rail_dgram_came(struct nn_rail *r, const void *data, uint32_t len, int64_t now_ns);
int dr_nn_rail_progress(struct dr_rail *br, int64_t now_ns, struct dr_sink *sink);
void dr_nn_rail_close(struct dr_rail *br);
void dr_nn_rail_fini(struct dr_rail *br);
int dr_nn_mr_reg(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e);
int dr_nn_mr_dereg(struct dr_rail *br, struct dr_mr *mr);
void dr_nn_rail_event(struct nn_rail *r, struct dr_event *ev);

/* The HELLO asks for a handle and is the first message of the comm. -errno of the socket, -ENOMEM. */
int dr_nn_dial_start(struct nn_rail *r, const struct nn_hello *hello, int64_t now_ns,
	struct nn_dial **out) DR_MUST_CHECK;
/* A step: 1 and the comm, whose first message has left; 0 not yet; -errno, and *failed says what.
 * Not 0: d is freed. */
int dr_nn_dial(struct nn_rail *r, struct nn_dial *d, int64_t now_ns, struct nn_queue *out,
	const char **failed) DR_MUST_CHECK;
void dr_nn_dial_drop(struct nn_rail *r, struct nn_dial *d);
/* Of dials that were given up; with r->closed all end. */
void dr_nn_dials_progress(struct nn_rail *r, int64_t now_ns);

/* Sets r->self.at. The errors of socket, bind and listen. */
int dr_nn_listener_open(struct nn_rail *r, struct dr_err *e) DR_MUST_CHECK;
void dr_nn_listener_progress(struct nn_rail *r, int64_t now_ns);
void dr_nn_listener_close(struct nn_rail *r);
void dr_nn_set_port(const struct nn_rail *r, struct sockaddr_storage *ss, uint16_t port);

/* A comm that was accepted; closed on error. device: the memory of its device handle, which the comm owns from here on; used:
 * where the handle is. -ENOMEM, or the plugin's. */
int dr_nn_pending_add(struct nn_rail *r, void *comm, struct nccl_net_device_handle *device,
	const struct nccl_net_device_handle *used, int64_t now_ns) DR_MUST_CHECK;
void dr_nn_pending_progress(struct nn_rail *r, int64_t now_ns);
void dr_nn_pending_close(struct nn_rail *r);
/* The comms that wait for p, which is connecting, become its own. */
void dr_nn_pending_claim(struct nn_rail *r, struct nn_path *p);

/* ---- path.c ---- */

/* States as of the tcp kind (transport/tcp/tcp.h). */
enum nn_state {
	NN_NEW,
	NN_OPENING, /* connect was called */
	NN_UP,
	NN_FAILING, /* FAILED is due in the next progress */
	NN_FAILED,
	NN_DRAINING, /* fenced: completed requests are still taken, until none is outstanding or a short time has passed */
	NN_ABORTED,  /* comms closed: FENCED is due in the next progress */
	NN_FENCED,
	NN_CLOSED,
};

/* A part in the order of the path. */
struct nn_part {
	bool posted; /* sender: by the user */
	uint8_t part;
	uint32_t epoch;
	uint64_t seq;
	const struct dr_mr *mr;
	uint8_t *data;
	uint32_t len; /* receiver: capacity; the size once it is known */
};

/*
 * Parts are counted, never moved: told <= done <= issued <= flushed <= known, slot = count % NN_PARTS. known: announced;
 * flushed: may be given to the plugin; issued: was; done: complete; told: reported. The receiver reports at once: done
 * and told are the same. sized: where the plugin says no sizes, those whose length was queued or
 * has come.
 */
struct nn_path {
	struct dr_path_base base;
	struct nn_path *next; /* on the rail */
	enum nn_state state;
	bool fence_due;
	int64_t fence_deadline_ns;
	int close_err; /* the plugin could not close a comm */
	int broken;    /* a send failed: what has come is read before FAILED */

	struct nn_dial *dial[NN_ROLES];
	struct nn_queue data, out, in; /* control from this end, to this end */

	struct nn_part *part;
	uint64_t told, done, issued, flushed, known, sized;
	uint8_t open[DR_PATH_RING]; /* receiver: parts of the message that are to come */
	uint32_t epoch;

	struct dr_path_queue ctrl;
	uint8_t *slots; /* messages: NN_CTRL_REQUESTS to send, as many to receive */
};

static inline struct nn_path *nn_path(struct dr_path *p)
{
	return dr_container_of(p, struct nn_path, base.path);
}

static inline struct nn_rail *nn_path_rail(struct nn_path *p)
{
	return nn_rail(p->base.path.rail);
}

void dr_nn_fail(struct nn_path *p, enum dr_scope scope, int err, const char *fmt, ...)
	DR_PRINTF(4, 5);
/* A comm of p, accepted by the rail; p has it from here on. */
void dr_nn_adopt(struct nn_path *p, enum nn_role role, const struct nn_queue *queue);
bool dr_nn_wants(const struct nn_path *p, const struct nn_hello *h);
/* 0, -EAGAIN or -ENOTCONN. */
int dr_nn_may_post(const struct nn_path *p);

/* data.c */
int dr_nn_post_recv(struct dr_path *bp, uint32_t epoch, uint64_t seq, const struct dr_part *parts,
	unsigned n, uint32_t skip);
int dr_nn_post_send(struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part,
	const struct dr_part *what);
void dr_nn_credited(struct nn_path *p, const struct dr_path_frame *f, const uint8_t *payload);
/* The length of the next part. */
void dr_nn_sized(struct nn_path *p, uint32_t len);
/* Give the plugin what it may have. */
void dr_nn_data_push(struct nn_path *p);
/* Test; the receiver reports what came. True: something was done. */
bool dr_nn_data_pull(struct nn_path *p);
void dr_nn_report_sent(struct nn_path *p);

/* ctrl.c */
int dr_nn_ctrl_init(struct nn_path *p);
void dr_nn_ctrl_fini(struct nn_path *p);
int dr_nn_post_ctrl(struct dr_path *bp, const void *frame, size_t len);
/* Post what is missing of the receives of the control comm. */
void dr_nn_ctrl_listen(struct nn_path *p);
void dr_nn_ctrl_push(struct nn_path *p);
bool dr_nn_ctrl_pull(struct nn_path *p);

#endif
