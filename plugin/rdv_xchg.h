/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HA_PLUGIN_RDV_XCHG_H
#define HA_PLUGIN_RDV_XCHG_H

#include "bootstrap/conv.h"
#include "plugin/rdv.h"

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
enum { HA_XCHG_NONCE_BYTES = 16 };
enum ha_xchg_state { HA_XCHG_OFFERED, HA_XCHG_ACCEPTED, HA_XCHG_DONE, HA_XCHG_REFUSED };

/* What a frame brought, for the owner to act on. */
enum ha_xchg_news {
	HA_XCHG_NOTHING,
	HA_XCHG_ACCEPT, /* dialler, once: the acceptor's reply */
	HA_XCHG_ALL,	/* once: this end is done */
	HA_XCHG_GOODBYE, /* acceptor: the dialler will not come again; it was done or gave up, as the state says */
	HA_XCHG_BROKEN, /* the conversation has failed, see its err; the dialler needs another one */
};

struct ha_xchg_handles {
	bool set;
	unsigned n;
	struct dr_boot_handle *h;
};
struct ha_xchg {
	bool dialler;
	enum ha_xchg_state state;
	struct dr_boot_key key;
	uint64_t number;
	uint8_t nonce[HA_XCHG_NONCE_BYTES], peer_nonce[HA_XCHG_NONCE_BYTES];
	uint8_t secret[HA_RDV_SECRET_BYTES]; /* from ACCEPTED (dialler), OFFERED (acceptor) on */
	char *text;			     /* OFFER or ACCEPT as it is sent */
	struct ha_xchg_handles own, theirs;
	int refuse_code;
	char refuse_text[200];
	/* of the conversation now attached */
	struct dr_conv *conv;
	bool accepted, sent, received, ready; /* ACCEPT; HANDLES out, in; READY */
};

/* An OFFER as received. */
struct ha_xchg_offer {
	uint8_t nonce[HA_XCHG_NONCE_BYTES];
	int64_t timeout_ns;  /* that the dialler has left */
	const json_t *offer; /* borrowed from the frame */
};
/* -EPROTO. */
int ha_xchg_offer_read(const json_t *frame, struct ha_xchg_offer *out) DR_MUST_CHECK;

struct ha_xchg_opts {
	const struct dr_boot_key *key; /* copied */
	uint64_t number;
	const uint8_t *nonce; /* own, HA_XCHG_NONCE_BYTES */
};
/* -EINVAL: offer is no object; -EMSGSIZE, -ENOMEM. */
int ha_xchg_init_dialler(struct ha_xchg *x, const struct ha_xchg_opts *o, const json_t *offer,
	int64_t timeout_ns) DR_MUST_CHECK;
void ha_xchg_init_acceptor(
	struct ha_xchg *x, const struct ha_xchg_opts *o, const struct ha_xchg_offer *offer);
void ha_xchg_fini(struct ha_xchg *x);
void ha_xchg_validate(const struct ha_xchg *x);

/* c is OPEN; at the acceptor after OFFER came on it. Says on it what there is to say. The conversation may fail of it,
 * see c->state. */
void ha_xchg_attach(struct ha_xchg *x, struct dr_conv *c);
void ha_xchg_detach(struct ha_xchg *x);
/* ACCEPT: *reply is the owner's object, borrowed from ev. */
enum ha_xchg_news ha_xchg_frame(
	struct ha_xchg *x, const struct dr_conv_event *ev, const json_t **reply);

/* Owner's calls, as in rdv.h; they queue output on the conversation that is attached. */
int ha_xchg_accept(struct ha_xchg *x, const json_t *reply) DR_MUST_CHECK;
int ha_xchg_give(struct ha_xchg *x, const struct dr_boot_handle *h, unsigned n) DR_MUST_CHECK;
void ha_xchg_refuse(struct ha_xchg *x, int code, const char *text);
/* Dialler: give up. */
void ha_xchg_goodbye(struct ha_xchg *x);

#endif
