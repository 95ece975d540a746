/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CONTROL_H
#define DR_BOOTSTRAP_CONTROL_H

#include "bootstrap/clocksync.h"
#include "bootstrap/conv.h"
#include "bootstrap/mailbox.h"

/*
 * The part of a session that both roles share and that outlives a connection: numbered messages,
 * liveness, clock offset. Sans-IO: works on a dr_conv that the owner attaches and detaches; `wake`
 * tells the owner that the conv has output.
 */
struct dr_control {
	enum dr_boot_state state; /* the owner's to set */
	struct dr_mailbox mail;
	struct dr_clocksync clock;
	struct dr_conv *conv; /* NULL: no connection */
	void (*wake)(void *arg);
	void *arg;
	struct dr_boot_timing timing; /* complete */
	int64_t heard_ns;	      /* last byte, DR_NEVER before the first */
	int64_t silent_from_ns;	      /* silence counts from here */
	int64_t ticked_ns, ping_due_ns;
	bool goodbye;	    /* said by this end */
	bool goodbye_heard; /* by the peer */
	uint64_t goodbye_seq;
	int64_t goodbye_until_ns;
	char peer[80];
	char peer_version[DR_CONV_BUILD_MAX];
	bool has_ids;
	uint8_t session_id[DR_CONV_SESSION_BYTES];
	uint8_t token[DR_BOOT_TOKEN_BYTES];
};

/* What a frame meant for the owner. */
enum dr_control_news {
	DR_CONTROL_NOTHING,
	DR_CONTROL_MESSAGE, /* ev->json is the peer's message */
	DR_CONTROL_READY,
	DR_CONTROL_GOODBYE,	  /* the peer's */
	DR_CONTROL_GOODBYE_ACKED, /* ours arrived */
	DR_CONTROL_OTHER,	  /* OFFER, ACCEPT, HANDLES: the owner's */
	DR_CONTROL_BROKEN,	  /* the conv has failed: numbers do not fit */
};

/* Fill in the defaults of timing. */
void dr_boot_timing_complete(struct dr_boot_timing *t);

void dr_control_init(struct dr_control *c, const struct dr_boot_timing *timing,
	void (*wake)(void *arg), void *arg);
/* Forget the session: ready for the next one, or to be freed. */
void dr_control_reset(struct dr_control *c);
/* A connection comes in place of what was there; messages go once it is OPEN. peer_last: what the
 * peer says it received (0 for a new session). -EPROTO: that is impossible; nothing is attached. */
int dr_control_attach(
	struct dr_control *c, struct dr_conv *conv, uint64_t peer_last, int64_t now_ns);
void dr_control_detach(struct dr_control *c);
enum dr_control_news dr_control_frame(
	struct dr_control *c, const struct dr_conv_event *ev, int64_t now_ns);
/* Bytes of the peer came. */
void dr_control_heard(struct dr_control *c, int64_t now_ns);
/* After a batch of input, or once the conv is OPEN: acknowledge what came, send what waits. */
void dr_control_flush(struct dr_control *c);
/* PING when due. Returns true when the peer has been silent for too long. */
bool dr_control_tick(struct dr_control *c, int64_t now_ns);
int64_t dr_control_deadline(const struct dr_control *c);
/* Queue a message of the session's own (READY). */
int dr_control_post(struct dr_control *c, enum dr_frame_type type);
/* This end's goodbye is acknowledged. */
bool dr_control_goodbye_done(const struct dr_control *c);
/* This end said goodbye and nothing that matters is left to deliver. */
bool dr_control_only_goodbye_left(const struct dr_control *c);

#endif
