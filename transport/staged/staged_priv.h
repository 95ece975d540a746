/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_STAGED_PRIV_H
#define DR_TRANSPORT_STAGED_PRIV_H

#include "transport/path_base.h"
#include "transport/staged.h"

/*
 * Internal to transport/staged.
 *
 *   staged.c   the wrapper, rails, memory        ring.c   rings and their store
 *   path.c     path: life, events, waiting       fence.c   path: fence
 *   tx.c       path: copies out, then sends      rx.c     path: receives, then copies in
 */
enum {
	STAGE_WAYS = 2,
	STAGE_SENDS = 128,			  /* parts posted and not SENT */
	STAGE_RECVS = 128,			  /* messages posted */
	STAGE_PARTS = STAGE_RECVS * DR_PARTS_MAX, /* of these; spans of a ring */
	STAGE_ALIGN = 64,			  /* of a span: no two share a cache line */
};
#define STAGE_NO_SPAN UINT64_MAX

/* Of this kind; `inner` points to one of the inner kind's, which is another struct of that name. */
struct dr_mr {
	struct dr_mr *inner; /* NULL: the inner kind cannot reach it */
	uint8_t *base;
	size_t len;
};

/* ---- rings ---------------------------------------------------------------------------------- */

/* [off, off + len) of the ring, in use until freed. Spans are given out in order, freed in any. */
struct stage_span {
	size_t off, len;
	bool is_free;
};

struct stage_ring {
	struct stage_ring *next;
	uint8_t *mem;
	size_t size;
	struct dr_mr *mr[DR_STAGED_RAILS_MAX]; /* the inner kind's, by slot of the rail */
	uint64_t first, end; /* spans [first, end) count; place = number % STAGE_PARTS */
	struct stage_span span[STAGE_PARTS];
	bool kept; /* something may reach it until the process ends: it is not given back */
};

struct dr_staged {
	struct dr_transport_ops ops;
	struct dr_staged_params prm;
	char name[48];
	struct staged_rail *rail[DR_STAGED_RAILS_MAX];
	struct stage_ring *idle;  /* no path has it */
	struct stage_ring *stuck; /* of paths whose fence failed: never used again, never freed */
	unsigned kept;		  /* rings that were not given back */
	/* The copier, as last looked at. */
	uint64_t done[STAGE_WAYS];
	uint64_t last[STAGE_WAYS]; /* tickets given */
	int64_t looked_ns;	   /* by the watches: once for all that are looked at together */
	bool broken;		   /* nothing is copied any more */
	bool refused;		   /* a copy could not be started; others may be running still */
	struct dr_err err;	   /* why, of the first of these two */
	struct dr_staged_choice choice;
};

/* A ring registered on rail `slot`, from the store or new. */
int dr_stage_ring_take(struct dr_staged *f, unsigned slot, struct stage_ring **out,
	struct dr_err *e) DR_MUST_CHECK;
/* Back to the store. stuck: something may still touch it. */
void dr_stage_ring_put(struct dr_staged *f, struct stage_ring *r, bool stuck);
/* A rail goes: no ring is registered there any more. last: memory is given back. */
void dr_stage_rings_drop(struct dr_staged *f, unsigned slot, bool last);
/* The number of a span of len bytes; -EAGAIN: no room now. */
int dr_stage_span(struct stage_ring *r, size_t len, uint64_t *out) DR_MUST_CHECK;
void dr_stage_span_free(struct stage_ring *r, uint64_t span);
static inline size_t dr_stage_span_off(const struct stage_ring *r, uint64_t span)
{
	return r->span[span % STAGE_PARTS].off;
}

/* ---- rails and paths ------------------------------------------------------------------------ */

struct staged_rail {
	struct dr_rail base;
	struct dr_staged *f;
	struct dr_rail *inner;
	unsigned slot; /* in f->rail */
	struct dr_poller *poller;
	struct dr_sink sink, *out;
};

/* Sender: a part. */
struct stage_send {
	uint32_t epoch;
	uint64_t seq;
	unsigned part;
	struct dr_part what; /* the user's */
	uint64_t span;	     /* STAGE_NO_SPAN: nothing to copy */
	uint64_t ticket;     /* of its copy; 0: none */
	bool sent;
};

/* Counts, place = count % STAGE_SENDS: retired <= handed <= started <= posted, handed <= flushed.
 * started: its copy was started; handed: posted to the inner path; retired: it and all before it were
 * SENT. */
struct stage_tx {
	struct stage_send queue[STAGE_SENDS];
	uint64_t retired, handed, started, flushed, posted;
	bool blocked; /* the inner path took no more */
};

/* Receiver: a posted message, in place seq % STAGE_RECVS. */
struct stage_recv {
	uint32_t epoch;
	uint64_t seq;
	uint32_t todo; /* bit i: part i is posted and not DELIVERED upwards; 0: free place */
	uint32_t here; /* bit i: the inner path delivered it */
	struct {
		struct dr_part what;
		uint64_t span;
	} part[DR_PARTS_MAX];
};

/* A part that the inner path delivered. */
struct stage_arrival {
	uint32_t epoch;
	uint64_t seq;
	unsigned part;
	uint32_t len;
	bool known; /* the first of a posted part: else (the inner kind's mistake) only passed on */
	uint64_t ticket;
};

/* Counts, place = count % STAGE_PARTS: told <= started <= came. */
struct stage_rx {
	struct stage_recv posted[STAGE_RECVS];
	struct stage_arrival arrived[STAGE_PARTS];
	uint64_t told, started, came;
};

struct staged_path {
	struct dr_path_base base;
	struct dr_staged *f;
	struct dr_path *inner;
	struct stage_ring *ring;     /* NULL: nothing was staged since the last fence */
	struct stage_tx *tx;	     /* sender */
	struct stage_rx *rx;	     /* receiver */
	uint64_t ticket[STAGE_WAYS]; /* of the last copy started */
	uint64_t seen[STAGE_WAYS];   /* f->done at the last progress */

	bool ready, closed;
	bool failed;   /* FAILED was reported */
	bool fail_due; /* ... is due */

	bool fencing;	   /* fence was called, */
	bool inner_fenced; /* the inner path has answered, */
	bool fenced;	   /* FENCED was reported */
	bool quarantined;  /* a fence, or stop, failed */
	int64_t fence_deadline_ns;

	struct dr_watch watch; /* while copies are outstanding */
	bool watching;
	bool by_watch;	     /* the progress that follows is for copies alone */
	struct dr_sink sink; /* of the inner path */
};

static inline struct staged_path *staged_path(struct dr_path *p)
{
	return dr_container_of(p, struct staged_path, base.path);
}

static inline struct staged_rail *staged_rail(struct dr_rail *r)
{
	return dr_container_of(r, struct staged_rail, base);
}

/* staged.c */
/* Ask the copier what is done, if anything is not; f->broken when it failed. */
void dr_stage_look(struct dr_staged *f, enum dr_stage_way way);
static inline bool dr_stage_done(const struct dr_staged *f, enum dr_stage_way way, uint64_t ticket)
{
	return ticket <= f->done[way];
}

/* path.c */
int dr_stage_create(struct dr_rail *r, const struct dr_path_params *par, struct dr_path **out,
	struct dr_err *e);
int dr_stage_handle(struct dr_path *p, void *buf, size_t cap);
int dr_stage_connect(
	struct dr_path *p, const void *handle, size_t len, int64_t now_ns, struct dr_err *e);
int dr_stage_post_ctrl(struct dr_path *p, const void *frame, size_t len);
void dr_stage_flush(struct dr_path *p, int64_t now_ns);
int dr_stage_progress(struct dr_path *p, int64_t now_ns, struct dr_sink *sink);
void dr_stage_stats(struct dr_path *p, struct dr_path_stats *out);
void dr_stage_probe(struct dr_path *p, bool all, int64_t now_ns);
void dr_stage_close(struct dr_path *p);
int dr_stage_stop(struct dr_path *p);
void dr_stage_fini(struct dr_path *p);

/* May a part be posted now? 0 or what to answer. */
int dr_stage_may_post(const struct staged_path *p);
/* Break p; the next progress reports it. Only the first reason counts. */
void dr_stage_fail(struct staged_path *p, enum dr_scope scope, int err, const char *fmt, ...)
	DR_PRINTF(4, 5);
/* Start a copy between the user's memory and a span. False: not now, or p is failing. */
bool dr_stage_copy(struct staged_path *p, enum dr_stage_way way, const struct dr_part *what,
	uint32_t len, uint64_t span, uint64_t *ticket);
/* p has its ring; false: it cannot be had, and p is failing. */
bool dr_stage_need_ring(struct staged_path *p);
/* Wait by watching while copies are outstanding, and by a kick for a failure that is due. */
void dr_stage_attend(struct staged_path *p);
/* The part as the inner path is to see it. */
struct dr_part dr_stage_inner_part(
	const struct staged_path *p, const struct dr_part *what, uint64_t span);

/* Are copies of this path running? */
bool dr_stage_copying(const struct staged_path *p);

/* fence.c */
void dr_stage_fence(struct dr_path *p, int64_t deadline_ns);
/* Would dr_stage_fence_settle, which progress ends with while a fence is wanted, do something? */
bool dr_stage_fence_due(const struct staged_path *p, int64_t now_ns);
void dr_stage_fence_settle(struct staged_path *p);
/* Nothing of this path's is under way: its ring is given back. */
void dr_stage_forget(struct staged_path *p);

/* tx.c */
int dr_stage_credit(struct dr_path *p, uint32_t epoch, uint64_t seq, struct dr_credit *out);
int dr_stage_post_send(
	struct dr_path *p, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what);
/* Start the copies that can be, hand over what is copied and flushed. Returns how many were handed over:
 * the caller flushes the inner path. */
unsigned dr_stage_tx_push(struct staged_path *p);
void dr_stage_tx_sent(struct staged_path *p, const struct dr_event *ev);
/* Would a push do something? */
bool dr_stage_tx_due(const struct staged_path *p);

/* rx.c */
int dr_stage_post_recv(struct dr_path *p, uint32_t epoch, uint64_t seq, const struct dr_part *parts,
	unsigned n, uint32_t skip);
/* The inner path delivered a part. */
void dr_stage_rx_came(struct staged_path *p, const struct dr_event *ev);
/* Start the copies that can be, report what is copied, in order. */
void dr_stage_rx_push(struct staged_path *p);
bool dr_stage_rx_due(const struct staged_path *p);
/* Every part that came was reported. */
static inline bool dr_stage_rx_all_told(const struct stage_rx *x)
{
	return x->told == x->came;
}

#endif
