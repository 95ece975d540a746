/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/server_priv.h"

#include "base/clock.h"
#include "base/units.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * Pending connections. An identified client states its purpose: a new run, the handles of a pair, or RESUME. The link
 * gets its role in the session, or is refused with a reason. A refused link does not affect the session.
 */

static const char GONE[] = "the server does not know this session; it may have been restarted";

/* ---- a connection identified itself ------------------------------------------------------- */

static void refuse(struct dr_boot_server *s, struct dr_link *l, enum dr_boot_cause cause, int code,
	const char *text, int64_t now_ns)
{
	dr_acceptor_warn(&s->acceptor, l, text, now_ns);
	l->role = DR_SERVER_DONE;
	dr_conv_refuse(&l->conv, cause, code, text);
	dr_link_close(l, now_ns);
}

static void refuse_busy(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns)
{
	char text[200];
	bool lost = s->e.control.state == DR_BOOT_LOST;
	int64_t since = lost ? s->session.lost_ns : s->session.opened_ns;
	snprintf(text, sizeof(text),
		lost ? "server busy: waiting for client %s to reconnect, lost %lld s ago; try again later"
		     : "server busy: serving client %s for %lld s; try again later",
		s->e.control.peer, (long long)((now_ns - since) / DR_NS_PER_S));
	refuse(s, l, DR_BOOT_BUSY, 3, text, now_ns);
	dr_server_asked(s, now_ns);
}

static bool knows_session(const struct dr_boot_server *s, const struct dr_link *l)
{
	uint8_t secret[DR_CONV_SECRET_BYTES];
	bool knows = dr_control_secret_of(&s->e.control, &l->conv.peer, secret);
	sodium_memzero(secret, sizeof(secret));
	return knows;
}

static void welcome(struct dr_link *l, int64_t now_ns)
{
	if (dr_conv_welcome(&l->conv, 0, now_ns))
		dr_link_abort(l);
}

static void pair_identified(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns)
{
	unsigned k = l->conv.peer.k;
	if (!knows_session(s, l) || s->e.control.state != DR_BOOT_EXCHANGING) {
		refuse(s, l, DR_BOOT_GONE, 3, GONE, now_ns);
		return;
	}
	if (k == 0 || k >= s->e.pairs || s->e.pair[k].in_done) {
		refuse(s, l, DR_BOOT_PROTOCOL, 3, "unexpected handles of this pair", now_ns);
		return;
	}
	if (s->e.pair[k].link) { /* the client abandoned the earlier one */
		s->e.pair[k].link->role = DR_SERVER_DONE;
		dr_link_abort(s->e.pair[k].link);
	}
	l->role = DR_SERVER_PAIR;
	l->k = k;
	s->e.pair[k].link = l;
	welcome(l, now_ns);
	if (l->state == DR_LINK_DEAD)
		dr_server_session_end(s, DR_BOOT_LOCAL, "out of memory", now_ns);
}

static void resume_identified(struct dr_boot_server *s, struct dr_link *l, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	if (!knows_session(s, l) || !dr_server_exchanged(&s->e)) {
		refuse(s, l, DR_BOOT_GONE, 3, GONE, now_ns);
		return;
	}
	struct dr_link *old = s->e.control_link;
	if (dr_control_attach(&s->e.control, &l->conv, l->conv.peer.last_seq, now_ns)) {
		refuse(s, l, DR_BOOT_PROTOCOL, 3, "RESUME names a message that was never sent",
			now_ns);
		return;
	}
	bool was_lost = s->e.control.state == DR_BOOT_LOST;
	if (old) {
		old->role = DR_SERVER_DONE;
		dr_link_abort(old);
	}
	l->role = DR_SERVER_CONTROL;
	s->e.control_link = l;
	ss->resume_until_ns = DR_NEVER;
	snprintf(s->e.control.peer, sizeof(s->e.control.peer), "%s", l->peer);
	if (dr_conv_welcome(&l->conv, s->e.control.mail.received, now_ns)) {
		dr_boot_control_lost(&s->e, DR_BOOT_RESET, "out of memory", now_ns);
		return;
	}
	s->e.control.state = ss->ready ? DR_BOOT_READY : DR_BOOT_EXCHANGING;
	dr_control_flush(&s->e.control);
	if (!was_lost)
		DR_BOOT_TELL(&s->e, on_lost, DR_BOOT_RESET, "the client reconnected");
	DR_BOOT_TELL_BARE(&s->e, on_resumed);
	if (dr_control_goodbye_done(&s->e.control))
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
		l->role = DR_SERVER_IDENTIFIED;
		/* For the whole OFFER. The conversation ends a partial one earlier. */
		l->due_ns = now_ns + 2 * s->e.timing.stage_ns;
		l->due_text = "no OFFER received after the hello";
		welcome(l, now_ns);
	}
}

/* ---- offer and answer --------------------------------------------------------------------- */

/* The client has no more GPUs than the server, or named none. */
static bool counts_fit(struct dr_boot_server *s, struct dr_link *l, const json_t *offer,
	const unsigned *gpus, unsigned n, int64_t now_ns)
{
	if (n <= s->e.n_gpus || json_is_true(json_object_get(offer, "pair")))
		return true;
	char client[64], server[64], text[256];
	dr_format_list(gpus, n, client, sizeof(client));
	dr_format_list(s->e.gpus, s->e.n_gpus, server, sizeof(server));
	snprintf(text, sizeof(text),
		"GPU counts differ: client has %u (%s), server %u (%s); name no more than the server has with -g",
		n, client, s->e.n_gpus, server);
	refuse(s, l, DR_BOOT_DECLINED, 3, text, now_ns);
	return false;
}

void dr_server_offer_came(
	struct dr_boot_server *s, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_server_session *ss = &s->session;
	unsigned gpus[DR_BOOT_GPUS_MAX], n = 0;
	const json_t *params = json_object_get(ev->json, "params");
	if (ev->type != DR_CONV_FRAME_OFFER || !json_is_object(params) ||
		!dr_boot_list_read(json_object_get(ev->json, "gpus"), 0, gpus, &n)) {
		refuse(s, l, DR_BOOT_PROTOCOL, 3, "the first message is not a valid OFFER", now_ns);
		return;
	}
	if (ss->open) {
		refuse_busy(s, l, now_ns);
		return;
	}
	if (!counts_fit(s, l, ev->json, gpus, n, now_ns))
		return;
	dr_boot_end_reset(&s->e);
	*ss = (struct dr_server_session){
		.open = true, .opened_ns = now_ns, .resume_until_ns = DR_NEVER
	};
	s->e.control_link = l;
	memcpy(ss->gpus, gpus, sizeof(ss->gpus));
	ss->n_gpus = n;
	l->role = DR_SERVER_CONTROL;
	l->due_ns = DR_NEVER;
	int rc = dr_control_attach(&s->e.control, &l->conv, 0, now_ns);
	dr_assert(rc == 0);
	s->e.control.state = DR_BOOT_OFFERED;
	snprintf(s->e.control.peer, sizeof(s->e.control.peer), "%s", l->peer);
	DR_BOOT_TELL(&s->e, on_offer, params, ss->gpus, n);
}

static json_t *acceptance(const struct dr_boot_server *s, const json_t *reply, unsigned pairs,
	unsigned handles_in, unsigned handles_out)
{
	unsigned ports[DR_BOOT_GPUS_MAX];
	for (unsigned k = 0; k < s->e.n_gpus; k++)
		ports[k] = s->e.ports[k];
	return json_pack("{s:o,s:o,s:i,s:i,s:i,s:O}", "gpus", dr_boot_list(s->e.gpus, s->e.n_gpus),
		"ports", dr_boot_list(ports, s->e.n_gpus), "pairs", (int)pairs, "handles_in",
		(int)handles_in, "handles_out", (int)handles_out, "reply", (json_t *)reply);
}

int dr_boot_server_accept(
	struct dr_boot_server *s, const json_t *reply, unsigned handles_in, unsigned handles_out)
{
	struct dr_server_session *ss = &s->session;
	if (s->e.control.state != DR_BOOT_OFFERED || !json_is_object(reply) || ss->end_asked)
		return -EINVAL;
	if (handles_in == 0 || handles_in > DR_BOOT_HANDLES_MAX || handles_out == 0 ||
		handles_out > DR_BOOT_HANDLES_MAX)
		return -EINVAL;
	unsigned pairs = DR_MIN(ss->n_gpus, s->e.n_gpus);
	json_t *j = acceptance(s, reply, pairs, handles_in, handles_out);
	if (!j)
		return -ENOMEM;
	int rc = s->e.control_link->conv.state == DR_CONV_OPEN
			 ? dr_conv_send_json(&s->e.control_link->conv, DR_CONV_FRAME_ACCEPT, 0, j)
			 : -ENOTCONN;
	json_decref(j);
	if (rc)
		return rc;
	s->e.pairs = pairs;
	s->e.handles_in = handles_in;
	s->e.handles_out = handles_out;
	dr_control_take_ids(&s->e.control, &s->e.control_link->conv);
	s->e.control.state = DR_BOOT_EXCHANGING;
	s->e.exchange_until_ns = dr_now_ns() + s->e.timing.exchange_ns;
	dr_link_wake(s->e.control_link);
	return 0;
}
