/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_COMM_H
#define DR_PLUGIN_COMM_H

#include "plugin/session.h"

/*
 * One end of a comm: what NCCL sends or receives with. See plugin/match.h for the messages.
 *
 * Threads: one thread at a time calls ha_comm_send, ha_comm_recv, ha_comm_flush and ha_comm_test of a comm. ha_mr_reg and ha_mr_dereg may
 * come from another thread at the same time. Open, start and close are the control thread's.
 *
 * Nothing transient is an error: until a comm is lost, calls say "not yet".
 */
enum { HA_REQUESTS_MAX = 512 };

/* Memory registered with the lanes of a session, through one of its comms. What is left is deregistered with the comm. */
struct ha_mr {
	struct ha_session *s;
	uint8_t *base;
	size_t len;
	/* In the list of its comm, or in ha_session.replaced: then base is memory of the plugin. */
	struct ha_mr *next;
	struct dr_mem *mem; /* by lane */
	atomic_uint chunks; /* in flight */
};
int ha_mr_reg(struct ha_comm *c, const struct dr_memory *m, struct ha_mr **out, struct dr_err *e)
	DR_MUST_CHECK;
/* 0: nothing accesses the memory any more, and mr is not the caller's. Waits up to 100 ms for
 * chunks in flight whose lane has a path that is up (without a shadow: and not silent for
 * DR_BOUND_BEATS heartbeats). Those that are left go on in other memory, over new connections.
 * -errno: the NIC may access the memory until the process ends. */
int ha_mr_dereg(struct ha_comm *c, struct ha_mr *mr, struct dr_err *e);

/* ---- for the session ---- */
void ha_mr_free(struct ha_mr *mr);

struct ha_buffer {
	struct ha_mr *mr;
	uint8_t *data; /* in mr */
	uint64_t size;
	uint32_t tag;
};

struct ha_request {
	struct ha_request *next; /* free ones */
	struct ha_comm *comm;
	atomic_bool used;
	bool receive;
	atomic_bool done;		      /* send */
	unsigned n, group;		      /* receive */
	uint64_t ordinal;		      /* send */
	bool copied;			      /* send: done when the frame was sent */
	struct ha_buffer buf[HA_BUFFERS_MAX]; /* send: [0] */
	struct {
		bool asked; /* its chunks are on lanes */
		uint64_t size;
		atomic_uint left; /* chunks that are missing */
	} part[HA_BUFFERS_MAX];
};

struct ha_comm {
	struct ha_session *s;
	struct ha_comm *next; /* of the session */
	uint32_t id;	      /* of its channel; never used again in this session */
	unsigned number;      /* id modulo HA_COMMS_MAX: in the names of its chunks */
	bool sender;
	atomic_bool closing; /* written by the control thread */
	struct dr_channel *ch;
	unsigned generation; /* of the process, see process.h */
	atomic_int err;	     /* -errno: it is lost */
	atomic_int
		ended; /* -errno: its channel has ended; what arrived before is still delivered */
	struct ha_mr *mrs;  /* registered through it; under the session's names */
	atomic_uint chunks; /* in flight on lanes */
	/* Frames: HA_SLOTS slots of slot_bytes in one region. */
	uint8_t *slots;
	size_t slot_bytes;
	struct dr_mem mem;
	/* Sender. box: under the session's names. */
	struct ha_outbox *box;
	struct ha_request *large[HA_LARGE_MAX];
	/* Receiver. Frames [taken, arrived) are to be read; slot_of: by sequence number modulo HA_SLOTS. */
	struct ha_match *match;
	struct ha_request *by_group[HA_GROUPS_MAX];
	uint64_t taken, arrived;
	uint8_t slot_of[HA_SLOTS];
	struct ha_request *free;
	struct ha_request request[HA_REQUESTS_MAX];
	uint64_t messages, bytes;
};

/* id: which the dialling end chose: 0, 1, ... -EEXIST: its number is in use. */
int ha_comm_open(struct ha_session *s, uint32_t id, struct ha_comm **out, struct dr_err *e)
	DR_MUST_CHECK;
int ha_comm_handle(struct ha_comm *c, struct dr_handle *out);
int ha_comm_start(struct ha_comm *c, const struct dr_handle *peer, struct dr_err *e) DR_MUST_CHECK;
/* 1 it carries data, 0 not yet, -errno it is lost. Any thread. */
int ha_comm_ready(struct ha_comm *c);

/* *out NULL: try again later. A comm that has ended still takes requests: ha_comm_test returns its
 * error. If no request is free, the error of the comm is returned here. -EINVAL: n is not in
 * 1..HA_BUFFERS_MAX. */
int ha_comm_send(struct ha_comm *c, const struct ha_buffer *b, struct ha_request **out);
int ha_comm_recv(struct ha_comm *c, const struct ha_buffer *b, unsigned n, struct ha_request **out);
/* *done: whether the request is; then it is gone. sizes: bytes of each buffer; may be NULL. */
int ha_comm_test(struct ha_request *r, bool *done, int *sizes);
/* Ends the comm if a request that is not done uses this memory: nothing of the comm accesses it afterwards. */
void ha_comm_forget(struct ha_comm *c, const struct ha_mr *mr);

/* Starts to close. To be driven (ha_session_tick) until it is closed, then freed. */
void ha_comm_close(struct ha_comm *c);
bool ha_comm_closed(struct ha_comm *c);
int ha_comm_free(struct ha_comm *c);

/* ---- for the session ---- */

/* Ends the comm; the first cause counts. Any thread. */
void ha_comm_fail(struct ha_comm *c, int err, const char *why);
/* Its channel has ended. Requests fail when nothing is left to be delivered. Any thread. */
void ha_comm_ended(struct ha_comm *c, int err, const char *why);
/* With lock held: message seq of its channel is done. */
void ha_comm_completed(struct ha_comm *c, uint64_t seq);
/* With lock held: reads what arrived, matches it, posts. */
void ha_comm_progress(struct ha_comm *c, int64_t now_ns);
/* Sender, with names held: fills in what to send for that name; k->comm NULL: no bytes. -EPROTO: the peer asks for
 * what is not there. */
int ha_comm_answer(struct ha_comm *c, const struct ha_chunk_name *name, uint64_t cap, unsigned lane,
	struct ha_chunk *k);
/* A chunk was acknowledged (sender) or has arrived with so many bytes (receiver). On the I/O thread. */
void ha_comm_chunk_done(struct ha_chunk *k, uint64_t bytes);

#endif
