/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CONTROL_H
#define DR_BOOTSTRAP_CONTROL_H

#include "bootstrap/conv.h"
#include "bootstrap/mailbox.h"

/*
 * Offset of the peer's clock from PING/PONG exchanges, with a bound that holds for any asymmetry of
 * the two ways: a PING sent at t1 (own) arrived at t2 (peer), the PONG left at t3 (peer) and was
 * here at t4 (own), so offset = peer - own lies in [t3 - t4, t2 - t1]; the middle is off by at most
 * half the round trip. Each exchange's interval is intersected with what earlier ones left, widened
 * by the drift that the clocks may have had since (DR_CLOCK_DRIFT_PPM, both together); it is never
 * wider than the interval of the shortest round trip plus its drift. An empty intersection
 * means that a clock stepped or a host slept: the newest exchange alone counts.
 */
enum { DR_CLOCK_DRIFT_PPM = 100 };

/* All zero: no exchange yet. */
struct dr_clocksync {
	bool valid;
	int64_t low_ns, high_ns; /* the offset lies between, as of at_ns (own clock) */
	int64_t at_ns;
};

/* One exchange; impossible values (a lying peer) are ignored. */
void dr_clocksync_sample(struct dr_clocksync *cs, int64_t t1, int64_t t2, int64_t t3, int64_t t4);

/*
 * State of a session that both roles have and that survives a lost connection: numbered messages, liveness, clock
 * offset. Sans-IO: works on a dr_conv that the owner attaches and detaches; `wake` tells the owner that the
 * conversation has output.
 */
struct dr_control {
	enum dr_boot_state state; /* the owner's to set */
	struct dr_mailbox mail;
	struct dr_clocksync clock;
	struct dr_conv *conv; /* NULL: no connection */
	void (*wake)(void *arg);
	void *arg;
	struct dr_boot_timing timing; /* complete */
	int64_t heard_ns;	      /* bytes of the peer's process were received */
	int64_t silent_from_ns;	      /* silence counts from here */
	int64_t ticked_ns, ping_due_ns;
	int64_t late_ns; /* the last tick that came late: this end may not have read until then */
	bool goodbye;	 /* GOODBYE queued by this end */
	bool goodbye_heard; /* GOODBYE received */
	uint64_t goodbye_seq;
	int64_t goodbye_until_ns;
	char peer[80];
	char peer_version[DR_CONV_BUILD_MAX];
	bool has_ids;
	struct dr_conv_ids ids;
};

/* What the owner has to do about a frame. */
enum dr_control_news {
	DR_CONTROL_NOTHING,
	DR_CONTROL_MESSAGE, /* ev->json is the peer's message */
	DR_CONTROL_READY,
	DR_CONTROL_GOODBYE,	  /* the peer's */
	DR_CONTROL_GOODBYE_ACKED, /* the peer acknowledged ours */
	DR_CONTROL_OTHER,	  /* OFFER, ACCEPT, HANDLES: the owner handles them */
	DR_CONTROL_BROKEN,	  /* wrong number: the conversation has failed */
};

/* A list of GPU ids or ports as JSON; NULL: out of memory. */
json_t *dr_boot_list(const unsigned *v, unsigned n);
/* 1 .. DR_BOOT_GPUS_MAX integers of min .. 65535; false when it is anything else. */
bool dr_boot_list_read(const json_t *list, unsigned min, unsigned *out, unsigned *n);
/* Fill in the defaults of timing. */
void dr_boot_timing_complete(struct dr_boot_timing *t);

/* The session's ids are those of this conversation. */
void dr_control_take_ids(struct dr_control *c, const struct dr_conv *conv);
/* The secret for a connection whose hello names a session. False: it is not this one. */
bool dr_control_secret_of(const struct dr_control *c, const struct dr_conv_hello *peer,
	uint8_t out[DR_CONV_SECRET_BYTES]);

void dr_control_init(struct dr_control *c, const struct dr_boot_timing *timing,
	void (*wake)(void *arg), void *arg);
/* Discard the session. Needed before the next one and before freeing. */
void dr_control_reset(struct dr_control *c);
/* Use this connection from now on; messages are sent once it is OPEN. peer_last: last message number that the peer
 * received (0 for a new session). -EPROTO: it was never sent; nothing is attached. */
int dr_control_attach(
	struct dr_control *c, struct dr_conv *conv, uint64_t peer_last, int64_t now_ns);
void dr_control_detach(struct dr_control *c);
enum dr_control_news dr_control_frame(
	struct dr_control *c, const struct dr_conv_event *ev, int64_t now_ns);
/* Bytes of the peer were received. */
void dr_control_heard(struct dr_control *c, int64_t now_ns);
/* Since when nothing of the peer was received although this end read, also before READY. */
int64_t dr_control_quiet_since(const struct dr_control *c);
/* Send PING if it is due. */
void dr_control_ping(struct dr_control *c, int64_t now_ns);
/* What the peer does while it is late, on a connection that has not failed: words for the end of a message. */
void dr_control_observed(const struct dr_control *c, int64_t now_ns, char *text, size_t cap);
/* After a batch of input, or once the conversation is OPEN: acknowledge received messages, send queued ones. */
void dr_control_flush(struct dr_control *c);
/* PING when due. Returns true when the peer has been silent for too long. */
bool dr_control_tick(struct dr_control *c, int64_t now_ns);
int64_t dr_control_deadline(const struct dr_control *c);
/* Queue a message without payload (READY, GOODBYE). */
int dr_control_post(struct dr_control *c, enum dr_conv_frame type);
/* This end's goodbye is acknowledged. */
bool dr_control_goodbye_done(const struct dr_control *c);
/* GOODBYE was sent and every other message is acknowledged. */
bool dr_control_only_goodbye_left(const struct dr_control *c);

#endif
