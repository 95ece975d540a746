/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/server_impl.h"

#include "base/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * Who has proven the key says what it comes for: to offer a run, to bring handles of a pair, to resume.
 * It is welcomed into its part of the session, or refused with a reason; a refused link disturbs nobody.
 */

/* ---- a connection identified itself ------------------------------------------------------- */

static void refuse(struct dr_boot_server *s, struct dr_link *l, enum dr_boot_cause cause, int code,
	const char *text, int64_t now_ns)
{
	dr_server_warn(s, l, now_ns, text);
	l->role = DR_SERVER_DONE;
	dr_conv_refuse(&l->conv, cause, code, text);
	dr_link_close(l, now_ns);
}

static void refuse_busy(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns)
{
	char text[200];
	bool lost = s->control.state == DR_BOOT_LOST;
	int64_t since = lost ? s->session.lost_ns : s->session.opened_ns;
	snprintf(text, sizeof(text),
		lost ? "busy: waits for client %s to come back, lost %lld s ago; try again later"
		     : "busy: serves client %s since %lld s; try again later",
		s->control.peer, (long long)((now_ns - since) / DR_NS_PER_S));
	refuse(s, l, DR_BOOT_BUSY, 3, text, now_ns);
}

static bool knows_session(const struct dr_boot_server *s, const struct dr_link *l)
{
	const uint8_t *id = dr_control_session_id(&s->control);
	return id && sodium_memcmp(id, l->conv.peer.session, DR_CONV_SESSION_BYTES) == 0;
}

static void welcome(struct dr_link *l, int64_t now_ns)
{
	if (dr_conv_welcome(&l->conv, 0, now_ns))
		dr_link_abort(l);
}

static void pair_identified(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	unsigned k = l->conv.peer.k;
	if (!knows_session(s, l) || s->control.state != DR_BOOT_EXCHANGING) {
		refuse(s, l, DR_BOOT_GONE, 3, "handles for a session that is not here", now_ns);
		return;
	}
	if (k == 0 || k >= ss->pairs || ss->pair[k].in_done) {
		refuse(s, l, DR_BOOT_PROTOCOL, 3, "handles for a pair that does not wait for any",
			now_ns);
		return;
	}
	if (ss->pair[k].link) { /* the client tries again; it gave the earlier one up */
		ss->pair[k].link->role = DR_SERVER_DONE;
		dr_link_abort(ss->pair[k].link);
	}
	l->role = DR_SERVER_PAIR;
	l->k = k;
	ss->pair[k].link = l;
	welcome(l, now_ns);
	if (l->state == DR_LINK_DEAD)
		dr_server_session_end(s, DR_BOOT_LOCAL, "out of memory", now_ns);
}

static void resume_identified(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	if (!knows_session(s, l) || !dr_server_exchanged(ss)) {
		refuse(s, l, DR_BOOT_GONE, 3, "wants to resume a session that is not here", now_ns);
		return;
	}
	struct dr_link *old = ss->control;
	if (dr_control_attach(&s->control, &l->conv, l->conv.peer.last_seq, now_ns)) {
		refuse(s, l, DR_BOOT_PROTOCOL, 3,
			"resume with a message number that was never sent", now_ns);
		return;
	}
	bool was_lost = s->control.state == DR_BOOT_LOST;
	if (old) {
		old->role = DR_SERVER_DONE;
		dr_link_abort(old);
	}
	l->role = DR_SERVER_CONTROL;
	ss->control = l;
	ss->resume_until_ns = DR_NEVER;
	snprintf(s->control.peer, sizeof(s->control.peer), "%s", l->peer);
	if (dr_conv_welcome(&l->conv, s->control.mail.received, now_ns)) {
		dr_server_control_lost(s, DR_BOOT_RESET, "out of memory", now_ns);
		return;
	}
	s->control.state = ss->ready ? DR_BOOT_READY : DR_BOOT_EXCHANGING;
	dr_control_flush(&s->control);
	if (!was_lost)
		s->ops.on_lost(s->arg, DR_BOOT_RESET, "the client came back on a new connection");
	s->ops.on_resumed(s->arg);
	if (dr_control_goodbye_done(&s->control))
		dr_server_session_end(s, DR_BOOT_LOCAL, "goodbye arrived", now_ns);
}

void dr_server_identified(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns)
{
	switch (l->conv.peer.purpose) {
	case DR_CONV_GPU:
		pair_identified(s, l, now_ns);
		return;
	case DR_CONV_RESUME:
		resume_identified(s, l, now_ns);
		return;
	default:
		if (s->session.open) {
			refuse_busy(s, l, now_ns);
			return;
		}
		l->role = DR_SERVER_GUEST;
		/* For the whole offer; one that stops half-way ends earlier. */
		l->due_ns = now_ns + 2 * s->timing.stage_ns;
		l->due_text = "offered nothing after its hello";
		welcome(l, now_ns);
	}
}

/* ---- offer and answer --------------------------------------------------------------------- */

static bool parse_offer(const json_t *offer, unsigned *gpus, unsigned *n)
{
	const json_t *list = json_object_get(offer, "gpus"), *v;
	size_t i;
	if (!json_is_array(list) || json_array_size(list) == 0 ||
		json_array_size(list) > DR_BOOT_GPUS_MAX ||
		!json_is_object(json_object_get(offer, "params")))
		return false;
	json_array_foreach((json_t *)list, i, v)
	{
		json_int_t id = json_integer_value(v);
		if (!json_is_integer(v) || id < 0 || id > UINT16_MAX)
			return false;
		gpus[i] = (unsigned)id;
	}
	*n = (unsigned)json_array_size(list);
	return true;
}

/* "0,1,2": at most what fits, then "...". */
static void list_text(const unsigned *v, unsigned n, char *buf, size_t cap)
{
	size_t at = 0;
	buf[0] = 0;
	for (unsigned i = 0; i < n; i++) {
		if (at + 16 > cap) {
			snprintf(buf + at, cap - at, "...");
			return;
		}
		at += (size_t)snprintf(buf + at, cap - at, i ? ",%u" : "%u", v[i]);
	}
}

static bool counts_fit(struct dr_boot_server *s, struct dr_link *l, const json_t *offer,
	const unsigned *gpus, unsigned n, int64_t now_ns)
{
	if (n == s->n_gpus || s->pair || json_is_true(json_object_get(offer, "pair")))
		return true;
	char client[64], server[64], text[256];
	list_text(gpus, n, client, sizeof(client));
	list_text(s->gpus, s->n_gpus, server, sizeof(server));
	snprintf(text, sizeof(text),
		"GPU counts differ: client has %u (%s), server %u (%s); choose equal lists with -g or "
		"use min(n) of them with --pair",
		n, client, s->n_gpus, server);
	refuse(s, l, DR_BOOT_DECLINED, 3, text, now_ns);
	return false;
}

void dr_server_offer_came(
	struct dr_boot_server *s, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	unsigned gpus[DR_BOOT_GPUS_MAX], n = 0;
	if (ev->type != DR_FRAME_OFFER || !parse_offer(ev->json, gpus, &n)) {
		refuse(s, l, DR_BOOT_PROTOCOL, 3, "its first message is no valid offer", now_ns);
		return;
	}
	if (ss->open) {
		refuse_busy(s, l, now_ns);
		return;
	}
	if (!counts_fit(s, l, ev->json, gpus, n, now_ns))
		return;
	memset(ss, 0, sizeof(*ss));
	ss->open = true;
	ss->control = l;
	ss->opened_ns = now_ns;
	ss->exchange_until_ns = ss->resume_until_ns = DR_NEVER;
	memcpy(ss->gpus, gpus, sizeof(ss->gpus));
	ss->n_gpus = n;
	l->role = DR_SERVER_CONTROL;
	l->due_ns = DR_NEVER;
	dr_control_reset(&s->control);
	int rc = dr_control_attach(&s->control, &l->conv, 0, now_ns);
	dr_assert(rc == 0);
	s->control.state = DR_BOOT_OFFERED;
	snprintf(s->control.peer, sizeof(s->control.peer), "%s", l->peer);
	s->ops.on_offer(s->arg, json_object_get(ev->json, "params"), ss->gpus, n);
}

static json_t *number_list(const unsigned *v, unsigned n)
{
	json_t *list = json_array();
	for (unsigned i = 0; list && i < n; i++)
		json_array_append_new(list, json_integer(v[i]));
	return list;
}

static json_t *acceptance(const struct dr_boot_server *s, const json_t *reply, unsigned pairs,
	unsigned handles_in, unsigned handles_out)
{
	char session[2 * DR_CONV_SESSION_BYTES + 1], token[2 * DR_BOOT_TOKEN_BYTES + 1];
	unsigned ports[DR_BOOT_GPUS_MAX];
	sodium_bin2hex(session, sizeof(session), s->control.session_id, DR_CONV_SESSION_BYTES);
	sodium_bin2hex(token, sizeof(token), s->control.token, DR_BOOT_TOKEN_BYTES);
	for (unsigned k = 0; k < s->n_gpus; k++)
		ports[k] = s->ports[k];
	return json_pack("{s:s,s:s,s:o,s:o,s:i,s:i,s:i,s:O}", "session", session, "token", token,
		"gpus", number_list(s->gpus, s->n_gpus), "ports", number_list(ports, s->n_gpus),
		"pairs", (int)pairs, "handles_in", (int)handles_in, "handles_out", (int)handles_out,
		"reply", (json_t *)reply);
}

int dr_boot_server_accept(
	struct dr_boot_server *s, const json_t *reply, unsigned handles_in, unsigned handles_out)
{
	struct dr_server_session *ss = &s->session;
	if (s->control.state != DR_BOOT_OFFERED || !json_is_object(reply) || ss->end_asked)
		return -EINVAL;
	if (handles_in == 0 || handles_in > DR_BOOT_HANDLES_MAX || handles_out == 0 ||
		handles_out > DR_BOOT_HANDLES_MAX)
		return -EINVAL;
	int rc = dr_random_bytes(s->control.session_id, DR_CONV_SESSION_BYTES);
	if (rc == 0)
		rc = dr_random_bytes(s->control.token, DR_BOOT_TOKEN_BYTES);
	if (rc)
		return rc;
	unsigned pairs = DR_MIN(ss->n_gpus, s->n_gpus);
	json_t *j = acceptance(s, reply, pairs, handles_in, handles_out);
	if (!j)
		return -ENOMEM;
	rc = ss->control->conv.state == DR_CONV_OPEN
		     ? dr_conv_send_json(&ss->control->conv, DR_FRAME_ACCEPT, 0, j)
		     : -ENOTCONN;
	json_decref(j);
	if (rc)
		return rc;
	ss->pairs = pairs;
	ss->handles_in = handles_in;
	ss->handles_out = handles_out;
	s->control.has_ids = true;
	s->control.state = DR_BOOT_EXCHANGING;
	ss->exchange_until_ns = dr_now_ns() + s->timing.exchange_ns;
	dr_link_wake(ss->control);
	return 0;
}
