/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_RDV_PRIV_H
#define DR_BOOTSTRAP_RDV_PRIV_H

#include "bootstrap/acceptor.h"
#include "bootstrap/rdv_route.h"
#include "bootstrap/rdv_xchg.h"

/* Shared by rdv.c (life, comms), rdv_listen.c (listens and their sockets), rdv_accept.c (connections at the listening end) and rdv_dial.c (connecting end). */

enum {
	DR_RDV_BUCKETS = 256,
	DR_RDV_OPENING_MAX = 64,
	DR_RDV_COMMS_MAX = 512, /* accepted ones of an address, until the dialler's GOODBYE */
};

/* A link's role at the listening end. Its owner is the comm when BOUND, else the rendezvous. */
enum dr_rdv_role {
	DR_RDV_UNPROVEN, /* no hello or proof yet */
	DR_RDV_PROVEN,	 /* waits for OFFER */
	DR_RDV_BOUND,	 /* carries a comm's exchange */
};

struct dr_rdv_listen {
	struct dr_rdv *rdv;
	uint64_t number;
	struct dr_boot_key key;
	void *arg;
	bool closed;
	unsigned comms; /* that refer to it */
	struct dr_rdv_listen *next;
};

struct dr_rdv_dialler {
	uint8_t session[DR_CONV_SESSION_BYTES];
	struct dr_rdv_addr *local;
	struct dr_rdv_route routes[DR_RDV_ROUTES_MAX];
	unsigned n_routes, index;
	unsigned attempts, denied; /* all; in this round */
	int64_t began_ns, next_ns, backoff_ns;
	char last[2 * DR_ADDR_TEXT + 16], text[160]; /* of the last failed attempt */
};

struct dr_rdv_comm {
	struct dr_rdv *rdv;
	struct dr_rdv_listen *listen; /* acceptor */
	struct dr_rdv_dialler *dial;  /* dialler */
	struct dr_xchg x;
	struct dr_link *link;
	void *arg;
	struct sockaddr_storage from; /* acceptor: the dialler */
	int64_t until_ns;
	bool told; /* no callbacks any more; an acceptor's exchange stays until until_ns */
	bool over; /* to be freed in the next tick */
	struct dr_rdv_comm *next;
};

struct dr_rdv {
	struct dr_rdv_ops ops;
	struct dr_poller *poller;
	struct dr_rdv_timing timing;
	char version[DR_CONV_BUILD_MAX];
	uint64_t process, last_listen;
	uint16_t port_min, port_max, port; /* port: 0 before the first listen */
	struct dr_acceptor acceptor;
	struct dr_link *in, *out; /* of the listening end, of the connecting end */
	struct dr_rdv_listen *listens[DR_RDV_BUCKETS];
	struct dr_rdv_comm *accepts, *dials;
	struct dr_rdv_comm *turn; /* of dials: the next one to dial; NULL: the first */
	int64_t left_out_ns;	  /* an address was left out, and logged; 0: never */
	bool reap;		  /* something is over or closed */
};

/* rdv.c: for a new link, with nonce and ephemeral secret. 0 or -errno. */
int dr_rdv_link_opts(struct dr_rdv *r, enum dr_conv_role role, struct dr_link_opts *o)
	DR_MUST_CHECK;
/* Forget the comm: no callback, no link. */
void dr_rdv_comm_over(struct dr_rdv_comm *c);
void dr_rdv_comm_failed(struct dr_rdv_comm *c, const struct dr_err *e);
/* A frame on the comm's link. False: the conversation has failed. */
bool dr_rdv_comm_frame(struct dr_rdv_comm *c, const struct dr_conv_event *ev, int64_t now_ns);

/* Send what is queued, then close the comm's link, if it has one. */
void dr_rdv_comm_close_link(struct dr_rdv_comm *c, int64_t now_ns);

/* rdv_listen.c: the conversation's key from the handle's. */
void dr_rdv_expand_key(const struct dr_rdv_handle *h, struct dr_boot_key *out);

/* rdv_accept.c */
extern const struct dr_acceptor_ops dr_rdv_acceptor_ops;
/* Refuse an exchange that is not done, without callback. The refusal is repeated until the dialler's time is over. */
void dr_rdv_comm_refuse(struct dr_rdv_comm *c, int code, const char *text, int64_t now_ns);
void dr_rdv_accept_tick(struct dr_rdv *r, int64_t now_ns);
int64_t dr_rdv_accept_deadline(const struct dr_rdv *r);

/* rdv_dial.c */
void dr_rdv_dial_tick(struct dr_rdv *r, int64_t now_ns);
int64_t dr_rdv_dial_deadline(const struct dr_rdv *r);

#endif
