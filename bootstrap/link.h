/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_LINK_H
#define DR_BOOTSTRAP_LINK_H

#include "bootstrap/conv.h"
#include "bootstrap/net.h"

/*
 * One TCP socket that carries one conversation.
 *
 *   DIALLING  connect under way
 *   UP        bytes both ways; events go to the owner
 *   CLOSING   no more events; rest of the output goes out, then FIN, then wait for the peer's
 *             (at most 1 s), so that a refusal is not lost to a reset
 *   DEAD      socket closed; the owner frees it with dr_links_reap, outside of callbacks
 *
 * The last event of a link is DR_CONV_FAILED or DR_CONV_REFUSED (also for a failed dial, EOF and
 * reset), after which the link closes itself; there is none after dr_link_close or _abort.
 */
enum dr_link_state { DR_LINK_DIALLING, DR_LINK_UP, DR_LINK_CLOSING, DR_LINK_DEAD };

struct dr_link;
/* Callbacks run inside dr_poller_wait or dr_links_tick. */
struct dr_link_ops {
	/* now_ns was read after the bytes of the event. */
	void (*event)(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns);
	/* After the events of one read; NULL: nothing. */
	void (*batch)(struct dr_link *l, int64_t now_ns);
};

/* What a new link belongs to. */
struct dr_link_opts {
	struct dr_link **list; /* the link is appended, so the list is in order of age */
	struct dr_poller *poller;
	const struct dr_link_ops *ops;
	void *owner;
	int64_t silent_ns; /* the link fails (SILENT) when the peer's kernel acknowledges nothing for so long */
	struct dr_conv_opts conv;
};

struct dr_link {
	struct dr_pollable po;
	struct dr_poller *poller;
	enum dr_link_state state;
	struct dr_conv conv;
	struct dr_addr addr;
	int64_t since_ns; /* accepted */
	char peer[DR_ADDR_TEXT];
	uint16_t local_port;
	const struct dr_link_ops *ops;
	void *owner;
	int64_t silent_ns;
	int role;	/* owner's */
	unsigned k;	/* owner's: pair */
	int64_t due_ns; /* owner's stage deadline: FAILED(TIMEOUT) then; DIALLING too */
	const char *due_text;
	int64_t closing_until_ns;
	bool fin_sent;
	int write_err; /* why a write failed; a socket says so once, so the read that finds the end reports it */
	struct dr_link *next;
};

/* Take over an accepted socket. On failure fd remains the caller's. */
int dr_link_accept(const struct dr_link_opts *o, int fd, const struct dr_addr *from, int64_t now_ns,
	struct dr_link **out) DR_MUST_CHECK;
/* Start to connect, as dr_net_connect. -errno when that fails at once (no event then). */
int dr_link_dial(const struct dr_link_opts *o, const struct dr_addr *to,
	const struct dr_net_from *from, int64_t now_ns, struct dr_link **out) DR_MUST_CHECK;
/* There is output: write it in the next dr_poller_wait. */
void dr_link_wake(struct dr_link *l);
/* Write output now; what fails is reported by the next dr_poller_wait. */
void dr_link_write(struct dr_link *l, int64_t now_ns);
void dr_link_close(struct dr_link *l, int64_t now_ns);
void dr_link_abort(struct dr_link *l);
/* Of all links of a list. tick frees the dead ones first. */
void dr_links_tick(struct dr_link **list, int64_t now_ns);
int64_t dr_links_deadline(const struct dr_link *first);
/* Free the dead ones of a list. */
void dr_links_reap(struct dr_link **list);
/* Abort and free all. */
void dr_links_free(struct dr_link **list);

#endif
