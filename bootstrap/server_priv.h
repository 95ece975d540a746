/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_SERVER_PRIV_H
#define DR_BOOTSTRAP_SERVER_PRIV_H

#include "bootstrap/acceptor.h"
#include "bootstrap/end.h"

/*
 * Shared by server.c (the session), server_pending.c (identified connections join the session) and
 * server_listener.c (listening sockets, connections without identity). A pending connection is one that is
 * not part of a session yet.
 */

/* What a link is to the server (dr_link.role). */
enum dr_server_role {
	DR_SERVER_UNIDENTIFIED, /* no hello or proof yet */
	DR_SERVER_IDENTIFIED,	/* identified as NEW, has not offered yet */
	DR_SERVER_CONTROL,
	DR_SERVER_PAIR, /* carries the handles of pair k */
	DR_SERVER_DONE, /* refused or finished; its events are ignored */
};

/* What a session has beside struct dr_boot_end. */
struct dr_server_session {
	bool open, ready;
	bool last; /* the run is over: only the client's confirmation is missing */
	unsigned gpus[DR_BOOT_GPUS_MAX], n_gpus; /* the client's */
	int64_t opened_ns, lost_ns, resume_until_ns;
	bool end_asked; /* the application ended it: on_closed(LOCAL) at the next tick */
	enum dr_boot_cause lost_cause;
	char lost_text[256], end_text[256];
};

struct dr_boot_server {
	struct dr_boot_end e;
	struct dr_acceptor acceptor;
	struct dr_networks allow;
	bool wildcard;
	struct dr_server_session session;
	/* Clients that were told BUSY: the last one, and the first of those that came one soon after the other. */
	int64_t asked_ns, asked_since_ns;
};

/* server_listener.c */
int dr_server_open_listeners(
	struct dr_boot_server *s, const struct dr_boot_opts *o, struct dr_err *e);

/* server_pending.c: a link is identified, or sent its first message after that. */
void dr_server_identified(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns);
void dr_server_offer_came(struct dr_boot_server *s, struct dr_link *l,
	const struct dr_conv_event *ev, int64_t now_ns);

/* server.c: somebody is told BUSY. */
void dr_server_asked(struct dr_boot_server *s, int64_t now_ns);
/* server.c: all handles were exchanged in both directions; the client may be READY already. */
bool dr_server_exchanged(const struct dr_boot_end *e);
void dr_server_session_end(
	struct dr_boot_server *s, enum dr_boot_cause cause, const char *text, int64_t now_ns);

#endif
