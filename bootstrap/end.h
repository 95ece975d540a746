/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_END_H
#define DR_BOOTSTRAP_END_H

#include "bootstrap/control.h"
#include "bootstrap/link.h"

/* What the server and the client of a session do alike; both begin with struct dr_boot_end. */

struct dr_boot_end;
struct dr_boot_role {
	struct dr_link_ops link; /* owner: the struct dr_boot_end */
	enum dr_conv_role conv;
	const char *peer; /* "the client" */
	/* May the session continue on another connection after this loss of control? */
	bool (*resumable)(const struct dr_boot_end *e, enum dr_boot_cause cause);
	/* Control was lost; wait for the next connection. */
	void (*await)(
		struct dr_boot_end *e, enum dr_boot_cause cause, const char *text, int64_t now_ns);
	/* The session is over. l: the link that is the reason; NULL: none. */
	void (*ended)(struct dr_boot_end *e, const struct dr_link *l, enum dr_boot_cause cause,
		const char *text, int64_t now_ns);
	/* A frame on the control connection that is not of control.h and carries no handles. */
	void (*frame)(struct dr_boot_end *e, struct dr_link *l, const struct dr_conv_event *ev,
		int64_t now_ns);
	/* The peer's handles of pair k were received and reported. */
	void (*received)(struct dr_boot_end *e, unsigned k, int64_t now_ns);
};

struct dr_boot_pair {
	bool in_done, sent;
	struct dr_handle *out;		  /* given by the application, not sent yet */
	struct dr_link *link;		  /* k > 0 only */
	int64_t next_dial_ns, backoff_ns; /* client */
};

struct dr_boot_end {
	const struct dr_boot_role *role;
	struct dr_boot_ops ops;
	void *arg;
	struct dr_poller *poller;
	unsigned gpus[DR_BOOT_GPUS_MAX], n_gpus;
	bool has_key;
	struct dr_boot_key key;
	char version[DR_CONV_BUILD_MAX];
	struct dr_boot_timing timing;
	struct dr_link *links;
	/* session */
	struct dr_link *control_link;
	struct dr_control control;
	uint16_t ports[DR_BOOT_GPUS_MAX]; /* the server's */
	unsigned pairs, handles_in, handles_out;
	struct dr_boot_pair pair[DR_BOOT_GPUS_MAX];
	int64_t exchange_until_ns;
	bool begun; /* READY, and a message of the peer came: the run has begun */
};

/* Call a callback of the application if it has it. */
#define DR_BOOT_TELL(e, op, ...) ((e)->ops.op ? (e)->ops.op((e)->arg, __VA_ARGS__) : (void)0)
#define DR_BOOT_TELL_BARE(e, op) ((e)->ops.op ? (e)->ops.op((e)->arg) : (void)0)

/* role, ops, arg and poller are set. After a failure fini is allowed. */
int dr_boot_end_init(struct dr_boot_end *e, const struct dr_boot_opts *o, struct dr_err *err)
	DR_MUST_CHECK;
void dr_boot_end_fini(struct dr_boot_end *e);
/* Forget the session; its links are the caller's. */
void dr_boot_end_reset(struct dr_boot_end *e);
/* For a new link, with nonce and ephemeral secret. 0 or -errno. */
int dr_boot_link_opts(struct dr_boot_end *e, struct dr_link_opts *o) DR_MUST_CHECK;

/* This end's handles of pair k, copied. -EINVAL, -ENOMEM. */
int dr_boot_pair_give(struct dr_boot_end *e, unsigned k, const struct dr_handle *handles,
	unsigned n) DR_MUST_CHECK;
/* Send them: 1; 0: not yet possible, or sent before; -errno. */
int dr_boot_pair_send(struct dr_boot_end *e, unsigned k) DR_MUST_CHECK;
/* HANDLES of pair k came over this link. */
void dr_boot_pair_came(struct dr_boot_end *e, struct dr_link *l, unsigned k,
	const struct dr_conv_event *ev, int64_t now_ns);

void dr_boot_control_frame(
	struct dr_boot_end *e, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns);
/* Control connection lost: the session waits for another one, or ends. */
void dr_boot_control_lost(
	struct dr_boot_end *e, enum dr_boot_cause cause, const char *text, int64_t now_ns);
/* The exchange of handles has taken too long. */
void dr_boot_exchange_tick(struct dr_boot_end *e, int64_t now_ns);
/* Silence, and a goodbye without acknowledgement. */
void dr_boot_control_tick(struct dr_boot_end *e, int64_t now_ns);
/* dr_link_ops.batch */
void dr_boot_link_batch(struct dr_link *l, int64_t now_ns);

#endif
