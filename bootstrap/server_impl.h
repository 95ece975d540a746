/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_SERVER_IMPL_H
#define DR_BOOTSTRAP_SERVER_IMPL_H

#include "bootstrap/control.h"
#include "bootstrap/link.h"

/* Shared by server.c (the session), server_guest.c (how links come into it) and server_door.c (listeners,
 * strangers). */

/* What a link is to the server (dr_link.role). */
enum dr_server_role {
	DR_SERVER_STRANGER, /* no hello or proof yet */
	DR_SERVER_GUEST,    /* identified as NEW, has not offered yet */
	DR_SERVER_CONTROL,
	DR_SERVER_PAIR, /* carries the handles of pair k */
	DR_SERVER_DONE, /* refused or finished: nothing it does matters any more */
};
enum { DR_SERVER_PENDING_MAX = 64 };

struct dr_listener {
	struct dr_pollable po;
	struct dr_boot_server *server;
	struct dr_addr addr;
	uint16_t port;
};

/* At most `burst` lines at once and one a second after that; what was left out is counted. */
struct dr_warn_limit {
	int64_t at_ns;
	double tokens;
	unsigned left_out;
};

struct dr_server_pair {
	bool in_done, sent;
	struct dr_boot_handle *out; /* given by the application, not sent yet */
	struct dr_link *link;	    /* k > 0 only */
};

struct dr_server_session {
	bool open, ready;
	struct dr_link *control;
	unsigned gpus[DR_BOOT_GPUS_MAX], n_gpus; /* the client's */
	unsigned pairs, handles_in, handles_out;
	struct dr_server_pair pair[DR_BOOT_GPUS_MAX];
	int64_t opened_ns, lost_ns;
	int64_t exchange_until_ns, resume_until_ns;
	bool end_asked; /* by the application: on_closed(LOCAL) at the next tick */
	enum dr_boot_cause lost_cause;
	char lost_text[256], end_text[256];
};

struct dr_boot_server {
	struct dr_boot_server_ops ops;
	void *arg;
	struct dr_poller *poller;
	unsigned gpus[DR_BOOT_GPUS_MAX], n_gpus;
	bool pair;
	bool has_key;
	struct dr_boot_key key;
	char version[DR_CONV_BUILD_MAX];
	struct dr_boot_timing timing;
	struct dr_listener **listeners;
	unsigned n_listeners;
	uint16_t ports[DR_BOOT_GPUS_MAX];
	bool wildcard;
	int64_t accept_paused_until_ns, accept_warn_ns;
	struct dr_link *links;
	struct dr_warn_limit warn;
	struct dr_control control;
	struct dr_server_session session;
};

/* server_door.c */
int dr_server_open_doors(
	struct dr_boot_server *s, const struct dr_boot_server_opts *o, struct dr_err *e);
void dr_server_close_doors(struct dr_boot_server *s);
void dr_server_tick_doors(struct dr_boot_server *s, int64_t now_ns);
/* One WARN line about a peer that is not served. */
void dr_server_warn(
	struct dr_boot_server *s, const struct dr_link *l, int64_t now_ns, const char *text);

/* server_guest.c: a link proved the key, or sent its first message after that. */
void dr_server_identified(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns);
void dr_server_offer_came(struct dr_boot_server *s, struct dr_link *l,
	const struct dr_conv_event *ev, int64_t now_ns);

/* server.c: all handles are through in both directions, the client may be READY already. */
bool dr_server_exchanged(const struct dr_server_session *ss);
/* Control broke: the session waits for RESUME, or ends. */
void dr_server_control_lost(
	struct dr_boot_server *s, enum dr_boot_cause cause, const char *text, int64_t now_ns);
void dr_server_session_end(
	struct dr_boot_server *s, enum dr_boot_cause cause, const char *text, int64_t now_ns);
/* Events of every link. */
void dr_server_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns);
void dr_server_batch(struct dr_link *l, int64_t now_ns);

#endif
