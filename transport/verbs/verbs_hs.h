/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_HS_H
#define DR_TRANSPORT_VERBS_HS_H

#include "transport/verbs/hello.h"

/*
 * The handshake of the verbs kind, sans-IO: datagrams, what happened to queue pairs, and times come in; what
 * is to be done goes out. The verbs kind runs it over libibverbs, the simulated kind over its datagrams and
 * lanes (the only other folder that may include this).
 *
 *	connector	NEW -> BUILDING -> GREETING (HELLO, again and again) -> JOINING (WELCOME came)
 *			-> CONFIRMING (first message sent) -> UP (one came)
 *	acceptor	NEW -> BUILDING -> WAITING -> JOINING (HELLO came) -> ADMITTED (WELCOME sent, again
 *			for each HELLO) -> ANSWERING (first message came; one is sent) -> UP (the peer's NIC
 *			acknowledged it, or another message came)
 *
 * Two objects: the handshake of a path (vb_hs), and a rail's admission (vb_admission), which gets every
 * datagram and keeps the HELLOs that no path waits for. verbs_hs.c states the rules.
 */
enum {
	VB_PARKED = 64, /* HELLOs that no path waits for */
};
#define VB_HELLO_NS (12 * DR_NS_PER_MS) /* between two HELLOs of a path */
#define VB_PARK_NS (5 * DR_NS_PER_S)	/* how long a HELLO is kept after its last repetition */

enum vb_hs_state {
	VB_HS_NEW,	  /* not started */
	VB_HS_BUILDING,	  /* the queue pairs are being made */
	VB_HS_GREETING,	  /* connector: repeats HELLO */
	VB_HS_WAITING,	  /* acceptor: waits for HELLO */
	VB_HS_JOINING,	  /* the queue pairs are being led to the peer's */
	VB_HS_ADMITTED,	  /* acceptor: WELCOME sent, nothing came on the control queue pair yet */
	VB_HS_CONFIRMING, /* connector: first message sent, none came */
	VB_HS_ANSWERING, /* acceptor: first message came, and one was sent that is not acknowledged yet */
	VB_HS_UP,
	VB_HS_ENDED, /* the path failed, was fenced or closed */
};

/* What the owner does now. */
enum vb_hs_do {
	VB_HS_NOTHING,
	VB_HS_GREET,	/* send dr_verbs_hs_greeting */
	VB_HS_JOIN,	/* lead the queue pairs to those of `who`; then dr_verbs_hs_joined */
	VB_HS_SAY,	/* send a message without frames over the control queue pair */
	VB_HS_READY,	/* the path is up: report READY */
	VB_HS_UNEQUAL,	/* the path fails: its peer has another number of queue pairs */
	VB_HS_INCOMING, /* report INCOMING with the coordinates of `who` */
	VB_HS_DROP,   /* outdated, or of no path: it changes nothing, not even where the peer is */
	VB_HS_REJECT, /* of nobody who is the peer: log why */
};

struct vb_admission;
struct vb_hs {
	struct vb_hs *next; /* of the rail */
	struct vb_admission *rail;
	struct dr_path_ident id;
	unsigned n; /* queue pairs that both ends have */
	enum vb_hs_state state;
	int64_t hello_ns; /* GREETING: when the next HELLO is due */
};

/* The answer to a datagram, or to dr_verbs_hs_built. */
struct vb_verdict {
	enum vb_hs_do what;
	struct vb_hs *to;	   /* GREET, JOIN, UNEQUAL: whose; else NULL */
	const char *why;	   /* REJECT */
	struct dr_verbs_hello who; /* but for REJECT: what it said */
};

/* A HELLO that no path waits for. */
struct vb_parked {
	bool used;
	int64_t seen_ns;
	struct dr_verbs_hello hello;
};

struct vb_admission {
	uint8_t token[DR_TOKEN_LEN];
	struct vb_hs *paths; /* from init to fini */
	struct vb_parked parked[VB_PARKED];
};

/* ---- a path ---------------------------------------------------------------------------------- */

/* From init to fini the generation counts as known: an older HELLO is outdated. */
void dr_verbs_hs_init(struct vb_hs *h, struct vb_admission *rail, const struct dr_path_ident *id,
	unsigned n_queue_pairs);
void dr_verbs_hs_fini(struct vb_hs *h);
/* The path failed or was fenced: nothing is joined any more. */
void dr_verbs_hs_end(struct vb_hs *h);

/* Make the queue pairs. */
void dr_verbs_hs_start(struct vb_hs *h);
/* They are there, in BUILDING. JOIN, UNEQUAL, NOTHING. */
struct vb_verdict dr_verbs_hs_built(struct vb_hs *h, int64_t now_ns);
/* Time passed. GREET, NOTHING. */
enum vb_hs_do dr_verbs_hs_tick(struct vb_hs *h, int64_t now_ns);
/* When tick has something to do; DR_NEVER. */
int64_t dr_verbs_hs_deadline(const struct vb_hs *h);
/* HELLO or WELCOME. *mine: where this end and its queue pairs are; the rest is filled in. Its length. */
size_t dr_verbs_hs_greeting(
	const struct vb_hs *h, struct dr_verbs_hello *mine, uint8_t buf[DR_VERBS_HELLO_MAX]);
/* The queue pairs are led to the peer's, in JOINING. GREET, SAY. */
enum vb_hs_do dr_verbs_hs_joined(struct vb_hs *h);
/* A message came over the control queue pair. SAY, READY, NOTHING. */
enum vb_hs_do dr_verbs_hs_message(struct vb_hs *h);
/* The peer's NIC acknowledged what was sent over it. READY, NOTHING. */
enum vb_hs_do dr_verbs_hs_acked(struct vb_hs *h);

/* ---- a rail ---------------------------------------------------------------------------------- */

void dr_verbs_admission_init(struct vb_admission *a, const uint8_t token[DR_TOKEN_LEN]);
/* A datagram that may be HELLO or WELCOME. GREET, JOIN, UNEQUAL, INCOMING, NOTHING, DROP, REJECT. */
struct vb_verdict dr_verbs_admission_bytes(
	struct vb_admission *a, const void *data, size_t len, int64_t now_ns);

#endif
