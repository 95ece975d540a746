/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/handles.h"
#include "bootstrap/server_impl.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * One session at a time.
 *
 *   IDLE        OFFER of an identified guest makes the session                     -> OFFERED
 *   OFFERED     the application accepts                                            -> EXCHANGING
 *   EXCHANGING  handles of pair k go out once the client's of k came and the application gave its
 *               own; the client's READY, when all are through                      -> READY
 *   READY       messages both ways
 *   LOST        control broke and everything had been exchanged: waits for RESUME  -> READY
 *
 * Invariants
 * 1. on_closed is called once for each on_offer, from tick or from a socket event, never from a
 *    call of the application's; refuse, drop and goodbye only leave a mark for the tick.
 * 2. A link with role DONE has no influence on the session.
 * 3. A link is freed in dr_boot_server_tick and destroy only, so pointers hold inside callbacks.
 * 4. A pair's handles are sent after the client's were received: what the client gets proves that
 *    its own arrived, and its READY proves the rest.
 * 5. They are sent after on_handles returned: an application that finds there that it cannot go on
 *    refuses a client that is not READY yet, and so learns the reason and the status.
 */

static void wake_control(void *arg)
{
	struct dr_boot_server *s = arg;
	if (s->session.control)
		dr_link_wake(s->session.control);
}

/* ---- end and loss ------------------------------------------------------------------------- */

static void retire(struct dr_link *l, int64_t now_ns)
{
	l->role = DR_SERVER_DONE;
	dr_link_close(l, now_ns);
}

/* The end of a pair's connection must not overtake the words of a refusal: the client closes it. */
static void retire_pair(struct dr_boot_server *s, struct dr_link *l, bool refused, int64_t now_ns)
{
	if (!refused) {
		retire(l, now_ns);
		return;
	}
	l->role = DR_SERVER_DONE;
	l->due_ns = now_ns + s->timing.stage_ns;
}

void dr_server_session_end(
	struct dr_boot_server *s, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	if (!ss->open)
		return;
	char why[256];
	snprintf(why, sizeof(why), "%s", text);
	if (ss->control)
		retire(ss->control, now_ns);
	for (unsigned k = 0; k < DR_BOOT_GPUS_MAX; k++) {
		if (ss->pair[k].link)
			retire_pair(s, ss->pair[k].link, ss->end_asked, now_ns);
		dr_free(ss->pair[k].out);
	}
	memset(ss, 0, sizeof(*ss));
	dr_control_reset(&s->control);
	s->control.state = DR_BOOT_IDLE;
	s->ops.on_closed(s->arg, cause, why);
}

/* All handles are through in both directions: the client may be READY already. */
bool dr_server_exchanged(const struct dr_server_session *ss)
{
	for (unsigned k = 0; k < ss->pairs; k++)
		if (!ss->pair[k].in_done || !ss->pair[k].sent)
			return false;
	return ss->pairs > 0;
}

static bool resumable(enum dr_boot_cause cause)
{
	return cause == DR_BOOT_EOF || cause == DR_BOOT_RESET || cause == DR_BOOT_SILENT ||
	       cause == DR_BOOT_TIMEOUT;
}

void dr_server_control_lost(
	struct dr_boot_server *s, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	if (dr_control_only_goodbye_left(&s->control)) {
		dr_server_session_end(s, DR_BOOT_LOCAL, "goodbye was on its way", now_ns);
		return;
	}
	if (!dr_server_exchanged(ss) || !resumable(cause)) {
		dr_server_session_end(s, cause, text, now_ns);
		return;
	}
	ss->lost_cause = cause;
	snprintf(ss->lost_text, sizeof(ss->lost_text), "%s", text);
	if (ss->control) {
		ss->control->role = DR_SERVER_DONE;
		dr_link_abort(ss->control);
	}
	ss->control = NULL;
	dr_control_detach(&s->control);
	s->control.state = DR_BOOT_LOST;
	ss->lost_ns = now_ns;
	ss->resume_until_ns = now_ns + s->timing.resume_ns;
	s->ops.on_lost(s->arg, cause, ss->lost_text);
}

/* ---- handles ------------------------------------------------------------------------------ */

static int send_handles(struct dr_link *l, unsigned k, const struct dr_boot_handle *h, unsigned n)
{
	size_t len = dr_handles_encoded_len(h, n);
	uint8_t *buf = dr_calloc(1, len);
	if (!buf)
		return -ENOMEM;
	int rc = dr_handles_encode(buf, len, k, h, n);
	if (rc == 0)
		rc = dr_conv_send(&l->conv, DR_FRAME_HANDLES, 0, buf, len);
	dr_free(buf);
	if (rc == 0)
		dr_link_wake(l);
	return rc;
}

static struct dr_link *pair_link(const struct dr_server_session *ss, unsigned k)
{
	return k == 0 ? ss->control : ss->pair[k].link;
}

/* 0: sent, or not yet possible. */
static int try_send_handles(struct dr_boot_server *s, unsigned k, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	struct dr_server_pair *p = &ss->pair[k];
	struct dr_link *l = pair_link(ss, k);
	if (!p->in_done || !p->out || p->sent || !l || l->conv.state != DR_CONV_OPEN)
		return 0;
	int rc = send_handles(l, k, p->out, ss->handles_out);
	if (rc)
		return rc;
	p->sent = true;
	dr_free(p->out);
	p->out = NULL;
	if (k > 0) { /* the client closes it when it has read them */
		l->role = DR_SERVER_DONE;
		l->due_ns = now_ns + s->timing.stage_ns;
		p->link = NULL;
	}
	return 0;
}

static void handles_came(
	struct dr_boot_server *s, unsigned k, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	struct dr_boot_handle *h;
	struct dr_err e;
	if (s->control.state != DR_BOOT_EXCHANGING || ss->pair[k].in_done) {
		dr_server_session_end(
			s, DR_BOOT_PROTOCOL, "handles came twice or before their time", now_ns);
		return;
	}
	int rc = dr_handles_decode(ev->data, ev->len, k, ss->handles_in, &h, &e);
	if (rc) {
		dr_server_session_end(
			s, rc == -ENOMEM ? DR_BOOT_LOCAL : DR_BOOT_PROTOCOL, e.text, now_ns);
		return;
	}
	ss->pair[k].in_done = true;
	s->ops.on_handles(s->arg, k, h, ss->handles_in);
	dr_free(h);
	if (!ss->end_asked && try_send_handles(s, k, now_ns))
		dr_server_session_end(
			s, DR_BOOT_LOCAL, "cannot send handles: out of memory", now_ns);
}

int dr_boot_server_handles(
	struct dr_boot_server *s, unsigned k, const struct dr_boot_handle *handles, unsigned n)
{
	struct dr_server_session *ss = &s->session;
	if (s->control.state != DR_BOOT_EXCHANGING || k >= ss->pairs || n != ss->handles_out ||
		ss->pair[k].out || ss->pair[k].sent)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if (handles[i].len > DR_BOOT_HANDLE_MAX)
			return -EINVAL;
	struct dr_boot_handle *copy = dr_calloc(n, sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, handles, n * sizeof(*copy));
	ss->pair[k].out = copy;
	return try_send_handles(s, k, dr_now_ns());
}

/* ---- the application ends it ------------------------------------------------------------- */

void dr_boot_server_refuse(struct dr_boot_server *s, int code, const char *text)
{
	struct dr_server_session *ss = &s->session;
	if (!ss->open || ss->end_asked ||
		(s->control.state != DR_BOOT_OFFERED && s->control.state != DR_BOOT_EXCHANGING))
		return;
	if (ss->control) {
		dr_conv_refuse(&ss->control->conv, DR_BOOT_DECLINED, code, text);
		dr_link_wake(ss->control);
	}
	snprintf(ss->end_text, sizeof(ss->end_text), "%s", text);
	ss->end_asked = true;
}

void dr_boot_server_drop(struct dr_boot_server *s)
{
	struct dr_server_session *ss = &s->session;
	if (!ss->open || ss->end_asked)
		return;
	snprintf(ss->end_text, sizeof(ss->end_text), "dropped by this end");
	ss->end_asked = true;
}

/* ---- events ------------------------------------------------------------------------------- */

static void control_frame(
	struct dr_boot_server *s, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	unsigned k = 0;
	switch (dr_control_frame(&s->control, ev, now_ns)) {
	case DR_CONTROL_NOTHING:
		return;
	case DR_CONTROL_MESSAGE:
		if (s->control.has_ids)
			s->ops.on_message(s->arg, ev->json);
		else
			dr_server_session_end(s, DR_BOOT_PROTOCOL,
				"message before its offer was accepted", now_ns);
		return;
	case DR_CONTROL_READY:
		if (!dr_server_exchanged(ss) || ss->ready) {
			dr_server_session_end(s, DR_BOOT_PROTOCOL, "READY out of turn", now_ns);
			return;
		}
		ss->ready = true;
		ss->exchange_until_ns = DR_NEVER;
		s->control.state = DR_BOOT_READY;
		s->ops.on_ready(s->arg);
		return;
	case DR_CONTROL_GOODBYE:
		dr_control_flush(&s->control);
		dr_server_session_end(s, DR_BOOT_GOODBYE, "the client said goodbye", now_ns);
		return;
	case DR_CONTROL_GOODBYE_ACKED:
		dr_server_session_end(s, DR_BOOT_LOCAL, "goodbye arrived", now_ns);
		return;
	case DR_CONTROL_BROKEN:
		dr_server_control_lost(s, l->conv.cause, l->conv.err.text, now_ns);
		return;
	case DR_CONTROL_OTHER:
		break;
	}
	if (ev->type == DR_FRAME_HANDLES && dr_handles_pair(ev->data, ev->len, &k) == 0 && k == 0)
		handles_came(s, 0, ev, now_ns);
	else
		dr_server_session_end(s, DR_BOOT_PROTOCOL, "message out of turn", now_ns);
}

static void failed(
	struct dr_boot_server *s, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	char text[256];
	switch ((enum dr_server_role)l->role) {
	case DR_SERVER_DONE:
		return;
	case DR_SERVER_STRANGER:
	case DR_SERVER_GUEST:
		dr_server_warn(s, l, now_ns, l->conv.err.text);
		return;
	case DR_SERVER_PAIR:
		snprintf(text, sizeof(text), "connection of pair %u: %.200s", l->k,
			l->conv.err.text);
		dr_server_session_end(s, ev->cause, text, now_ns);
		return;
	case DR_SERVER_CONTROL:
		dr_server_control_lost(s, ev->cause, l->conv.err.text, now_ns);
		return;
	}
}

void dr_server_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_boot_server *s = l->owner;
	if (ev->kind == DR_CONV_IDENTIFIED)
		dr_server_identified(s, l, now_ns);
	else if (ev->kind == DR_CONV_FAILED)
		failed(s, l, ev, now_ns);
	else if (ev->kind != DR_CONV_FRAME)
		return;
	else if (l->role == DR_SERVER_CONTROL)
		control_frame(s, l, ev, now_ns);
	else if (l->role == DR_SERVER_PAIR)
		handles_came(s, l->k, ev, now_ns);
	else if (l->role == DR_SERVER_GUEST)
		dr_server_offer_came(s, l, ev, now_ns);
	else
		dr_link_abort(l);
}

void dr_server_batch(struct dr_link *l, int64_t now_ns)
{
	struct dr_boot_server *s = l->owner;
	if (l->role != DR_SERVER_CONTROL)
		return;
	dr_control_heard(&s->control, now_ns);
	dr_control_flush(&s->control);
}

/* ---- life --------------------------------------------------------------------------------- */

static bool all_set(const struct dr_boot_server_ops *o)
{
	return o->on_offer && o->on_handles && o->on_ready && o->on_message && o->on_lost &&
	       o->on_resumed && o->on_closed;
}

int dr_boot_server_create(struct dr_boot_server **out, const struct dr_boot_server_opts *opts,
	const struct dr_boot_server_ops *ops, void *arg, struct dr_poller *poller, struct dr_err *e)
{
	dr_assert(all_set(ops) && poller);
	if (opts->n_gpus == 0 || opts->n_gpus > DR_BOOT_GPUS_MAX)
		return dr_err_set(
			e, -EINVAL, "%u GPUs: 1 to %d are allowed", opts->n_gpus, DR_BOOT_GPUS_MAX);
	if (sodium_init() < 0)
		return dr_err_set(e, -EIO, "libsodium does not start");
	struct dr_boot_server *s = dr_calloc(1, sizeof(*s));
	if (!s)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	s->ops = *ops;
	s->arg = arg;
	s->poller = poller;
	memcpy(s->gpus, opts->gpus, opts->n_gpus * sizeof(*opts->gpus));
	s->n_gpus = opts->n_gpus;
	s->pair = opts->pair;
	s->has_key = opts->key != NULL;
	if (opts->key)
		s->key = *opts->key;
	snprintf(s->version, sizeof(s->version), "%s", opts->version ? opts->version : "?");
	s->timing = opts->timing;
	dr_boot_timing_complete(&s->timing);
	dr_control_init(&s->control, &s->timing, wake_control, s);
	int rc = dr_server_open_doors(s, opts, e);
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
	dr_server_close_doors(s);
	dr_links_free(&s->links);
	for (unsigned k = 0; k < DR_BOOT_GPUS_MAX; k++)
		dr_free(s->session.pair[k].out);
	dr_control_reset(&s->control);
	sodium_memzero(&s->key, sizeof(s->key));
	dr_free(s);
}

static void session_tick(struct dr_boot_server *s, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	if (ss->open && ss->end_asked)
		dr_server_session_end(s, DR_BOOT_LOCAL, ss->end_text, now_ns);
	if (ss->open && dr_control_tick(&s->control, now_ns)) {
		char text[96];
		snprintf(text, sizeof(text), "nothing heard for %.3g s",
			(double)s->timing.silent_ns / 1e9);
		dr_server_control_lost(s, DR_BOOT_SILENT, text, now_ns);
	}
	if (ss->open && now_ns >= ss->exchange_until_ns)
		dr_server_session_end(
			s, DR_BOOT_TIMEOUT, "the exchange of handles took too long", now_ns);
	if (ss->open && now_ns >= ss->resume_until_ns)
		dr_server_session_end(s, ss->lost_cause, ss->lost_text, now_ns);
	if (ss->open && s->control.goodbye && now_ns >= s->control.goodbye_until_ns)
		dr_server_session_end(s, DR_BOOT_LOCAL, "goodbye was not answered", now_ns);
}

void dr_boot_server_tick(struct dr_boot_server *s, int64_t now_ns)
{
	dr_links_reap(&s->links);
	for (struct dr_link *l = s->links; l; l = l->next)
		dr_link_tick(l, now_ns);
	session_tick(s, now_ns);
	dr_server_tick_doors(s, now_ns);
	dr_links_reap(&s->links);
}

int64_t dr_boot_server_deadline(const struct dr_boot_server *s)
{
	const struct dr_server_session *ss = &s->session;
	int64_t at = s->accept_paused_until_ns;
	for (const struct dr_link *l = s->links; l; l = l->next)
		at = DR_MIN(at, dr_link_deadline(l));
	if (!ss->open)
		return at;
	if (ss->end_asked)
		return 0;
	at = DR_MIN(at, dr_control_deadline(&s->control));
	at = DR_MIN(at, ss->exchange_until_ns);
	return DR_MIN(at, ss->resume_until_ns);
}

uint16_t dr_boot_server_port(const struct dr_boot_server *s, unsigned k)
{
	dr_assert(k < s->n_gpus);
	return s->ports[k];
}

unsigned dr_boot_server_pairs(const struct dr_boot_server *s)
{
	return s->session.pairs;
}

struct dr_control *dr_boot_server_control(struct dr_boot_server *s)
{
	return &s->control;
}
