/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_PATH_BASE_H
#define DR_TRANSPORT_PATH_BASE_H

#include "transport/path.h"

#include <stdarg.h>

/*
 * What paths of every kind do alike: report events during progress, keep the first failure until
 * the next progress reports it, wake the owner, write a handle and check the peer's. A kind's path
 * begins with this struct and adds its states. For transport kinds only; everybody else sees struct
 * dr_path.
 */
/* Messages announced and not complete; a message has the place seq % DR_PATH_RING. */
enum { DR_PATH_RING = 128 };

/* Sender: a clear-to-send. */
struct dr_path_credit {
	bool used;
	uint8_t skip;
	uint32_t epoch;
	uint64_t seq;
	uint64_t first; /* nccl: number of its first part */
	struct dr_credit c;
};

struct dr_path_base {
	struct dr_path path;
	struct dr_path_params par;
	struct dr_poller *poller; /* of the rail; may be NULL */
	struct dr_pollable po; /* kicked to have progress called; a kind may give it a descriptor */
	struct dr_sink *sink;  /* during progress, else NULL */
	int64_t now_ns;	       /* of the last progress or flush */
	int n_events;	       /* of this progress */
	/* The first failure. */
	enum dr_scope scope;
	int err;
	char text[320];
	struct dr_path_stats st;
	struct dr_path_credit *credits; /* sender: DR_PATH_RING of them */
	uint32_t credit_epoch;		/* newest that came */
	bool arrived;			/* receiver: ARRIVING was reported for arrived_epoch */
	uint32_t arrived_epoch;
};

/* ready: what a kick calls; NULL: the owner's par->ready. */
void dr_path_init(struct dr_path_base *b, struct dr_rail *r, const struct dr_path_params *par,
	struct dr_poller *poller, void (*ready)(struct dr_pollable *, uint32_t, int64_t));
/* -ENOMEM for create. */
int dr_path_no_memory(const struct dr_path_params *par, struct dr_err *e);

/* progress runs between these two; end returns the number of events. */
void dr_path_begin(struct dr_path_base *b, int64_t now_ns, struct dr_sink *sink);
int dr_path_end(struct dr_path_base *b);
/* Report an event of this path, during progress. Afterwards the path may be in any state. */
void dr_path_emit(struct dr_path_base *b, struct dr_event *ev);
/* The same: READY, FENCED; CREDIT, and ARRIVING unless it was reported for this epoch; SENT and
 * DELIVERED. */
void dr_path_tell(struct dr_path_base *b, enum dr_event_kind kind);
void dr_path_tell_message(
	struct dr_path_base *b, enum dr_event_kind kind, uint32_t epoch, uint64_t seq);
void dr_path_tell_part(struct dr_path_base *b, enum dr_event_kind kind, uint32_t epoch,
	uint64_t seq, unsigned part, uint32_t len);
/* Have progress called in the poller's next round, if there is a poller and progress is not
 * running. */
void dr_path_wake(struct dr_path_base *b);
/* Keep why the path failed; the text gets the path's numbers in front. */
void dr_path_keep_failure(
	struct dr_path_base *b, enum dr_scope scope, int err, const char *fmt, va_list ap);
/* Report FAILED with what was kept. */
void dr_path_emit_failure(struct dr_path_base *b);

/* ---- credits ---- */

/* create: room for the credits of a sender, which the kind frees. */
int dr_path_credits_init(struct dr_path_base *b) DR_MUST_CHECK;
/* A credit came: its place, and CREDIT is to be reported; NULL: the message in its place is not
 * complete, or newer. */
struct dr_path_credit *dr_path_grant(struct dr_path_base *b, uint32_t epoch, uint64_t seq,
	uint32_t skip, const struct dr_credit *c);
/* The op of all kinds. */
int dr_path_credit(struct dr_path *p, uint32_t epoch, uint64_t seq, struct dr_credit *out);
/* post_send: may part, of len bytes, be posted? 0 and the credit, whose todo the kind clears; else
 * what to answer. */
int dr_path_claim(const struct dr_path_base *b, uint32_t epoch, uint64_t seq, unsigned part,
	uint32_t len, struct dr_path_credit **out) DR_MUST_CHECK;

/* ---- the other end ---- */

/* The host of dr_host_bytes, port 0. family: AF_INET or AF_INET6, of 4 or 16 bytes. */
void dr_path_host(int family, const uint8_t *bytes, struct sockaddr_storage *out);

/* What tells a path from others. */
struct dr_path_ident {
	uint32_t channel, gen;
	uint8_t index;
	bool sender, connector;
};
struct dr_path_ident dr_path_ident(const struct dr_path_params *par);
/* 10 bytes of a message: u8 index | u8 flags (1 sender, 2 connector) | u32 channel | u32 gen. */
void dr_path_ident_put(struct dr_wbuf *w, const struct dr_path_ident *id);
/* False: fields are out of range, or r has failed. */
bool dr_path_ident_get(struct dr_rbuf *r, struct dr_path_ident *out);
/* Is it the other end of this path? */
bool dr_path_fits(const struct dr_path_params *par, const struct dr_path_ident *peer);
/* The op of all kinds: no path needs an address of its own, so a handle only lets both ends notice
 * that they are mixed up. */
int dr_path_handle(struct dr_path *p, void *buf, size_t cap);
/* Accepts any bytes: 0, or -EPROTO and the reason in *why. */
int dr_path_handle_parse(const void *buf, size_t len, struct dr_path_ident *out, const char **why);
/* May connect begin? -EINVAL: it was called before (!is_new); -ENOTCONN: the rail has no peer to
 * dial; -EPROTO: the handle is not that of the other end of this path. */
int dr_path_check_connect(const struct dr_path_base *b, bool is_new, bool has_peer,
	const void *handle, size_t len, struct dr_err *e) DR_MUST_CHECK;

#endif
