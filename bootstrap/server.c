/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/server_priv.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * One session at a time.
 *
 *   client                                         server
 *   connection 0   HELLO NEW, handshake  ------->
 *                  OFFER {params}        ------->  on_offer -> accept or refuse
 *     on_accept    <-------  ACCEPT {reply, GPU list, ports}
 *   connections 1..n-1   HELLO GPU(k)    ------->
 *   each k         HANDLES               ------->  on_handles(k) -> dr_boot_server_handles(k)
 *     on_handles   <-------  HANDLES
 *     on_ready     <------>  (all k done)          on_ready
 *   connection 0   numbered control messages, PING/PONG; lost -> client comes back with RESUME
 *
 * The client's k-th GPU talks to the server's k-th, whatever their ids.
 *
 *   IDLE        OFFER of an identified connection creates the session              -> OFFERED
 *   OFFERED     the application accepts                                            -> EXCHANGING
 *   EXCHANGING  handles of pair k are sent after the client's were received and the application gave
 *               its own; READY of the client, when all are exchanged               -> READY
 *   READY       messages in both directions
 *   LOST        control connection lost after the exchange: waits for RESUME       -> READY
 *
 * Invariants
 * 1. on_closed is called once for each on_offer, from tick or from a socket event, never inside a
 *    call of the application; refuse, drop and goodbye set a mark for the tick.
 * 2. A link with role DONE does not affect the session.
 * 3. A link is freed in dr_boot_server_tick and destroy only, so pointers stay valid in callbacks.
 * 4. A pair's handles are sent after the client's were received. So they prove to the client that its
 *    own arrived, and its READY proves the rest.
 * 5. They are sent after on_handles returned. An application that cannot continue there refuses a
 *    client that is not READY yet, so the client gets the reason and the exit status.
 * 6. Until the run has begun a client that is silent gives way to another one that waits (evict_at). One that prepares
 *    for long shows with PING that it is alive. Nothing ends a session that has begun in favour of another client.
 */

static struct dr_boot_server *server_of(struct dr_boot_end *e)
{
	return dr_container_of(e, struct dr_boot_server, e);
}

/* ---- end and loss ------------------------------------------------------------------------- */

static void retire(struct dr_link *l, int64_t now_ns)
{
	l->role = DR_SERVER_DONE;
	dr_link_close(l, now_ns);
}

/* After a refusal the client closes the pair's connection, so that EOF does not overtake the reason. */
static void retire_pair(struct dr_boot_server *s, struct dr_link *l, bool refused, int64_t now_ns)
{
	if (!refused) {
		retire(l, now_ns);
		return;
	}
	l->role = DR_SERVER_DONE;
	l->due_ns = now_ns + s->e.timing.stage_ns;
}

void dr_server_session_end(
	struct dr_boot_server *s, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	if (!ss->open)
		return;
	char why[256];
	snprintf(why, sizeof(why), "%s", text);
	if (s->e.control_link)
		retire(s->e.control_link, now_ns);
	for (unsigned k = 0; k < DR_BOOT_GPUS_MAX; k++)
		if (s->e.pair[k].link)
			retire_pair(s, s->e.pair[k].link, ss->end_asked, now_ns);
	memset(ss, 0, sizeof(*ss));
	dr_boot_end_reset(&s->e);
	s->e.control.state = DR_BOOT_IDLE;
	DR_BOOT_TELL(&s->e, on_closed, cause, why);
}

static void ended(struct dr_boot_end *e, const struct dr_link *l, enum dr_boot_cause cause,
	const char *text, int64_t now_ns)
{
	(void)l;
	dr_server_session_end(server_of(e), cause, text, now_ns);
}

/* All handles were exchanged in both directions: the client may be READY already. */
bool dr_server_exchanged(const struct dr_boot_end *e)
{
	for (unsigned k = 0; k < e->pairs; k++)
		if (!e->pair[k].in_done || !e->pair[k].sent)
			return false;
	return e->pairs > 0;
}

static bool resumable(const struct dr_boot_end *e, enum dr_boot_cause cause)
{
	return dr_server_exchanged(e) &&
	       (cause == DR_BOOT_EOF || cause == DR_BOOT_RESET || cause == DR_BOOT_SILENT ||
		       cause == DR_BOOT_TIMEOUT);
}

static void await(struct dr_boot_end *e, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	struct dr_server_session *ss = &server_of(e)->session;
	ss->lost_cause = cause;
	snprintf(ss->lost_text, sizeof(ss->lost_text), "%s", text);
	ss->lost_ns = now_ns;
	/* A client that has not said READY may not have all handles yet, and then it does not come back. */
	ss->resume_until_ns = now_ns + (ss->last	   ? e->timing.last_ns
					       : ss->ready ? e->timing.resume_ns
							   : e->timing.silent_ns);
}

/* ---- a silent client gives way ------------------------------------------------------------ */

/*
 * One that was told BUSY asks again after retry_max_ns at the latest. So the server is free for it within silent_ns of
 * its first attempt; ping_ns is for delays.
 */
static int64_t patience(const struct dr_boot_timing *t)
{
	return DR_MAX(t->silent_ns - t->retry_max_ns - t->ping_ns, t->ping_ns);
}

/* Whoever did not come back within this time waits no more. */
static int64_t waits_ns(const struct dr_boot_timing *t)
{
	return 2 * t->retry_max_ns;
}

void dr_server_asked(struct dr_boot_server *s, int64_t now_ns)
{
	if (now_ns - s->asked_ns > waits_ns(&s->e.timing))
		s->asked_since_ns = now_ns;
	s->asked_ns = now_ns;
}

/* DR_NEVER: no reason, as far as is known now. */
static int64_t evict_at(const struct dr_boot_server *s)
{
	const struct dr_server_session *ss = &s->session;
	if (!ss->open || ss->end_asked || s->e.begun)
		return DR_NEVER;
	int64_t since = DR_MAX(dr_control_quiet_since(&s->e.control), s->asked_since_ns);
	int64_t at = since + patience(&s->e.timing);
	return at <= s->asked_ns + waits_ns(&s->e.timing) ? at : DR_NEVER;
}

static void refuse(struct dr_boot_server *s, enum dr_boot_cause cause, int code, const char *text)
{
	if (s->e.control_link) {
		dr_conv_refuse(&s->e.control_link->conv, cause, code, text);
		dr_link_wake(s->e.control_link);
	}
	s->session.end_asked = true;
}

static void evict(struct dr_boot_server *s, int64_t now_ns)
{
	char text[160];
	snprintf(text, sizeof(text),
		"nothing was received from the client for %.3g s before the run began, and another client waits",
		(double)(now_ns - s->e.control.heard_ns) / 1e9);
	refuse(s, DR_BOOT_TIMEOUT, 3, text);
	dr_server_session_end(s, DR_BOOT_EVICTED, text, now_ns);
}

/* ---- handles ------------------------------------------------------------------------------ */

/* 0: sent, or not yet possible. */
static int try_send_handles(struct dr_boot_server *s, unsigned k, int64_t now_ns)
{
	struct dr_boot_pair *p = &s->e.pair[k];
	int rc = p->in_done ? dr_boot_pair_send(&s->e, k) : 0;
	if (rc > 0 && k > 0) { /* the client closes it when it has read them */
		p->link->role = DR_SERVER_DONE;
		p->link->due_ns = now_ns + s->e.timing.stage_ns;
		p->link = NULL;
	}
	return DR_MIN(rc, 0);
}

static void received(struct dr_boot_end *e, unsigned k, int64_t now_ns)
{
	struct dr_boot_server *s = server_of(e);
	if (!s->session.end_asked && try_send_handles(s, k, now_ns))
		dr_server_session_end(
			s, DR_BOOT_LOCAL, "cannot send handles: out of memory", now_ns);
}

int dr_boot_server_handles(
	struct dr_boot_server *s, unsigned k, const struct dr_handle *handles, unsigned n)
{
	int rc = dr_boot_pair_give(&s->e, k, handles, n);
	return rc ? rc : try_send_handles(s, k, dr_now_ns());
}

/* ---- the application ends it ------------------------------------------------------------- */

void dr_boot_server_refuse(struct dr_boot_server *s, int code, const char *text)
{
	struct dr_server_session *ss = &s->session;
	if (!ss->open || ss->end_asked ||
		(s->e.control.state != DR_BOOT_OFFERED && s->e.control.state != DR_BOOT_EXCHANGING))
		return;
	snprintf(ss->end_text, sizeof(ss->end_text), "%s", text);
	refuse(s, DR_BOOT_DECLINED, code, text);
}

void dr_boot_server_drop(struct dr_boot_server *s)
{
	struct dr_server_session *ss = &s->session;
	if (!ss->open || ss->end_asked)
		return;
	snprintf(ss->end_text, sizeof(ss->end_text), "session ended by this end");
	ss->end_asked = true;
}

void dr_boot_server_last(struct dr_boot_server *s)
{
	struct dr_server_session *ss = &s->session;
	if (!ss->open || ss->last)
		return;
	ss->last = true;
	if (s->e.control.state == DR_BOOT_LOST)
		ss->resume_until_ns =
			DR_MIN(ss->resume_until_ns, dr_now_ns() + s->e.timing.last_ns);
}

/* ---- events ------------------------------------------------------------------------------- */

static void frame(
	struct dr_boot_end *e, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_boot_server *s = server_of(e);
	if (ev->type != DR_CONV_FRAME_READY) {
		ended(e, l, DR_BOOT_PROTOCOL, "unexpected message during the exchange of handles",
			now_ns);
	} else if (!dr_server_exchanged(e) || s->session.ready) {
		ended(e, l, DR_BOOT_PROTOCOL, "unexpected READY message", now_ns);
	} else {
		s->session.ready = true;
		e->exchange_until_ns = DR_NEVER;
		e->control.state = DR_BOOT_READY;
		DR_BOOT_TELL_BARE(e, on_ready);
	}
}

static void failed(
	struct dr_boot_server *s, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	char text[256];
	switch ((enum dr_server_role)l->role) {
	case DR_SERVER_DONE:
		return;
	case DR_SERVER_UNIDENTIFIED:
	case DR_SERVER_IDENTIFIED:
		dr_acceptor_warn(&s->acceptor, l, l->conv.err.text, now_ns);
		return;
	case DR_SERVER_PAIR:
		/* The client gives up a connection that this end is too busy to answer, and dials again. */
		if (s->e.pair[l->k].link == l && !s->e.pair[l->k].in_done &&
			(ev->cause == DR_BOOT_EOF || ev->cause == DR_BOOT_RESET)) {
			s->e.pair[l->k].link = NULL;
			return;
		}
		snprintf(text, sizeof(text), "connection of pair %u: %.200s", l->k,
			l->conv.err.text);
		dr_server_session_end(s, ev->cause, text, now_ns);
		return;
	case DR_SERVER_CONTROL:
		dr_boot_control_lost(&s->e, ev->cause, l->conv.err.text, now_ns);
		return;
	}
}

static void link_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_boot_server *s = server_of(l->owner);
	if (ev->kind == DR_CONV_IDENTIFIED)
		dr_server_identified(s, l, now_ns);
	else if (ev->kind == DR_CONV_FAILED)
		failed(s, l, ev, now_ns);
	else if (ev->kind != DR_CONV_FRAME)
		return;
	else if (l->role == DR_SERVER_CONTROL)
		dr_boot_control_frame(&s->e, l, ev, now_ns);
	else if (l->role == DR_SERVER_PAIR)
		dr_boot_pair_came(&s->e, l, l->k, ev, now_ns);
	else if (l->role == DR_SERVER_IDENTIFIED)
		dr_server_offer_came(s, l, ev, now_ns);
	else
		dr_link_abort(l);
}

static const struct dr_boot_role role = {
	.link = { link_event, dr_boot_link_batch },
	.conv = DR_CONV_SERVER,
	.peer = "the client",
	.resumable = resumable,
	.await = await,
	.ended = ended,
	.frame = frame,
	.received = received,
};

/* ---- life --------------------------------------------------------------------------------- */

int dr_boot_server_create(struct dr_boot_server **out, const struct dr_boot_opts *opts,
	const struct dr_boot_ops *ops, void *arg, struct dr_poller *poller, struct dr_err *e)
{
	dr_assert(ops->on_offer);
	struct dr_boot_server *s = dr_calloc(1, sizeof(*s));
	if (!s)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	s->e = (struct dr_boot_end){ .role = &role, .ops = *ops, .arg = arg, .poller = poller };
	int rc = dr_boot_end_init(&s->e, opts, e);
	if (rc == 0)
		rc = dr_server_open_listeners(s, opts, e);
	if (rc) {
		dr_boot_server_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void dr_boot_server_destroy(struct dr_boot_server *s)
{
	if (!s)
		return;
	dr_acceptor_fini(&s->acceptor);
	dr_boot_end_fini(&s->e);
	dr_free(s);
}

static void session_tick(struct dr_boot_server *s, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	if (ss->open && ss->end_asked)
		dr_server_session_end(s, DR_BOOT_LOCAL, ss->end_text, now_ns);
	dr_boot_exchange_tick(&s->e, now_ns);
	if (now_ns >= evict_at(s))
		evict(s, now_ns);
	if (ss->open && now_ns >= ss->resume_until_ns)
		dr_server_session_end(s, ss->lost_cause, ss->lost_text, now_ns);
	dr_boot_control_tick(&s->e, now_ns);
}

void dr_boot_server_tick(struct dr_boot_server *s, int64_t now_ns)
{
	dr_links_tick(&s->e.links, now_ns);
	session_tick(s, now_ns);
	dr_acceptor_tick(&s->acceptor, now_ns);
	dr_links_reap(&s->e.links);
}

int64_t dr_boot_server_deadline(const struct dr_boot_server *s)
{
	const struct dr_server_session *ss = &s->session;
	int64_t at = DR_MIN(dr_acceptor_deadline(&s->acceptor), dr_links_deadline(s->e.links));
	if (!ss->open)
		return at;
	if (ss->end_asked)
		return 0;
	at = DR_MIN(at, dr_control_deadline(&s->e.control));
	at = DR_MIN(at, s->e.exchange_until_ns);
	at = DR_MIN(at, evict_at(s));
	return DR_MIN(at, ss->resume_until_ns);
}

uint16_t dr_boot_server_port(const struct dr_boot_server *s, unsigned k)
{
	dr_assert(k < s->e.n_gpus);
	return s->e.ports[k];
}

struct dr_control *dr_boot_server_control(struct dr_boot_server *s)
{
	return &s->e.control;
}
