/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_PATH_BASE_H
#define DR_TRANSPORT_PATH_BASE_H

#include "transport/path.h"

#include <stdarg.h>

/*
 * What paths of every kind do alike: report events during progress, keep the first failure until the
 * next progress reports it, wake the owner, check the peer's handle. A kind's path begins with this
 * struct and adds its states. For transport kinds only; everybody else sees struct dr_path.
 */
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
/* Have progress called in the poller's next round, if there is a poller and progress is not running. */
void dr_path_wake(struct dr_path_base *b);
/* Keep why the path failed; the text gets the path's numbers in front. */
void dr_path_keep_failure(
	struct dr_path_base *b, enum dr_scope scope, int err, const char *fmt, va_list ap);
/* Report FAILED with what was kept. */
void dr_path_emit_failure(struct dr_path_base *b);

/* What a path's handle tells of it, whatever its bytes are. */
struct dr_path_ident {
	uint32_t channel, gen;
	uint8_t index;
	bool sender, connector;
};
struct dr_path_ident dr_path_ident(const struct dr_path_base *b);
/* May connect begin? -EINVAL: it was called before (!is_new); -ENOTCONN: the rail has no peer to dial. */
int dr_path_check_connect(
	const struct dr_path_base *b, bool is_new, bool has_peer, struct dr_err *e) DR_MUST_CHECK;
/* Is the handle that of the other end of this path? why: the parser's reason, when it refused the bytes;
 * else NULL. -EPROTO. */
int dr_path_check_peer(const struct dr_path_base *b, const struct dr_path_ident *peer,
	const char *why, struct dr_err *e) DR_MUST_CHECK;

#endif
