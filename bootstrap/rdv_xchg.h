/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_RDV_XCHG_H
#define DR_BOOTSTRAP_RDV_XCHG_H

#include "bootstrap/conv.h"
#include "bootstrap/rdv.h"

/*
 * What one comm's ends say to each other (see rdv.h), sans-IO: no socket, no clock, no randomness. Conversations come
 * and go, the exchange stays; on each of them everything is said again.
 *
 *   state     dialler                        acceptor
 *   OFFERED   waits for ACCEPT               its owner decides
 *   ACCEPTED  handles under way; READY sent  handles under way, waits for READY
 *             when it has everything
 *   DONE      ACK came                       READY came; repeats everything until GOODBYE
 *   REFUSED   (its owner forgets it)         repeats the refusal
 */
enum { DR_XCHG_NONCE_BYTES = 16 };
enum dr_xchg_state { DR_XCHG_OFFERED, DR_XCHG_ACCEPTED, DR_XCHG_DONE, DR_XCHG_REFUSED };

/* What a frame brought, for the owner to act on. */
enum dr_xchg_news {
	DR_XCHG_NOTHING,
	DR_XCHG_ACCEPT, /* dialler, once: the acceptor's reply */
	DR_XCHG_ALL,	/* once: this end is done */
	DR_XCHG_GOODBYE, /* acceptor: the dialler will not come again; it was done or gave up, as the state says */
	DR_XCHG_BROKEN, /* the conversation has failed, see its err; the dialler needs another one */
};

struct dr_xchg_handles {
	bool set;
	unsigned n;
	struct dr_handle *h;
};
struct dr_xchg {
	bool dialler;
	enum dr_xchg_state state;
	struct dr_boot_key key;
	uint64_t number;
	uint8_t nonce[DR_XCHG_NONCE_BYTES], peer_nonce[DR_XCHG_NONCE_BYTES];
	uint8_t secret[DR_RDV_SECRET_BYTES]; /* from ACCEPTED (dialler), OFFERED (acceptor) on */
	char *text;			     /* OFFER or ACCEPT as it is sent */
	struct dr_xchg_handles own, theirs;
	int refuse_code;
	char refuse_text[200];
	/* of the conversation now attached */
	struct dr_conv *conv;
	bool accepted, sent, received, ready; /* ACCEPT; HANDLES out, in; READY */
};

/* An OFFER as received. */
struct dr_xchg_offer {
	uint8_t nonce[DR_XCHG_NONCE_BYTES];
	int64_t timeout_ns;  /* that the dialler has left */
	const json_t *offer; /* borrowed from the frame */
};
/* -EPROTO. */
int dr_xchg_offer_read(const json_t *frame, struct dr_xchg_offer *out) DR_MUST_CHECK;

struct dr_xchg_opts {
	const struct dr_boot_key *key; /* copied */
	uint64_t number;
	const uint8_t *nonce; /* own, DR_XCHG_NONCE_BYTES */
};
/* -EINVAL: offer is no object; -EMSGSIZE, -ENOMEM. */
int dr_xchg_init_dialler(struct dr_xchg *x, const struct dr_xchg_opts *o, const json_t *offer,
	int64_t timeout_ns) DR_MUST_CHECK;
void dr_xchg_init_acceptor(
	struct dr_xchg *x, const struct dr_xchg_opts *o, const struct dr_xchg_offer *offer);
void dr_xchg_fini(struct dr_xchg *x);
void dr_xchg_validate(const struct dr_xchg *x);

/* c is OPEN; at the acceptor after OFFER came on it. Says on it what there is to say. The conversation may fail of it,
 * see c->state. */
void dr_xchg_attach(struct dr_xchg *x, struct dr_conv *c);
void dr_xchg_detach(struct dr_xchg *x);
/* ACCEPT: *reply is the owner's object, borrowed from ev. */
enum dr_xchg_news dr_xchg_frame(
	struct dr_xchg *x, const struct dr_conv_event *ev, const json_t **reply);

/* Owner's calls, as in rdv.h; they queue output on the conversation that is attached. */
int dr_xchg_accept(struct dr_xchg *x, const json_t *reply) DR_MUST_CHECK;
int dr_xchg_give(struct dr_xchg *x, const struct dr_handle *h, unsigned n) DR_MUST_CHECK;
void dr_xchg_refuse(struct dr_xchg *x, int code, const char *text);
/* Dialler: give up. */
void dr_xchg_goodbye(struct dr_xchg *x);

#endif
