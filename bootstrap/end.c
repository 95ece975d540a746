/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/end.h"

#include "base/mem.h"
#include "base/rng.h"
#include "bootstrap/handles.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char ENDED_HERE[] = "session ended by this end";

static void wake_control(void *arg)
{
	struct dr_boot_end *e = arg;
	if (e->control_link)
		dr_link_wake(e->control_link);
}

int dr_boot_end_init(struct dr_boot_end *e, const struct dr_boot_opts *o, struct dr_err *err)
{
	dr_assert(e->poller && e->ops.on_closed);
	e->exchange_until_ns = DR_NEVER;
	e->timing = o->timing;
	dr_boot_timing_complete(&e->timing);
	dr_control_init(&e->control, &e->timing, wake_control, e);
	if (o->n_gpus == 0 || o->n_gpus > DR_BOOT_GPUS_MAX)
		return dr_err_set(
			err, -EINVAL, "%u GPUs: 1 to %d are allowed", o->n_gpus, DR_BOOT_GPUS_MAX);
	if (sodium_init() < 0)
		return dr_err_set(err, -EIO, "bootstrap: cannot initialise libsodium");
	memcpy(e->gpus, o->gpus, o->n_gpus * sizeof(*o->gpus));
	e->n_gpus = o->n_gpus;
	e->has_key = o->key != NULL;
	if (o->key)
		e->key = *o->key;
	snprintf(e->version, sizeof(e->version), "%s", o->version ? o->version : "?");
	return 0;
}

void dr_boot_end_reset(struct dr_boot_end *e)
{
	for (unsigned k = 0; k < DR_BOOT_GPUS_MAX; k++)
		dr_free(e->pair[k].out);
	memset(e->pair, 0, sizeof(e->pair));
	e->control_link = NULL;
	e->pairs = e->handles_in = e->handles_out = 0;
	e->exchange_until_ns = DR_NEVER;
	e->begun = false;
	dr_control_reset(&e->control);
}

void dr_boot_end_fini(struct dr_boot_end *e)
{
	dr_links_free(&e->links);
	dr_boot_end_reset(e);
	sodium_memzero(&e->key, sizeof(e->key));
}

static bool secret_of(
	void *arg, const struct dr_conv_hello *peer, uint8_t out[DR_CONV_SECRET_BYTES])
{
	const struct dr_boot_end *e = arg;
	return dr_control_secret_of(&e->control, peer, out);
}

int dr_boot_link_opts(struct dr_boot_end *e, struct dr_link_opts *o)
{
	*o = (struct dr_link_opts){ .list = &e->links,
		.poller = e->poller,
		.ops = &e->role->link,
		.owner = e,
		.silent_ns = e->timing.silent_ns,
		.conv = { .role = e->role->conv,
			.stage_ns = e->timing.stage_ns,
			/* Others wait for this client. */
			.message_ns = e->role->conv == DR_CONV_SERVER
					      ? DR_MIN(e->timing.stage_ns, e->timing.silent_ns)
					      : 0,
			.key = e->has_key ? &e->key : NULL } };
	memcpy(o->conv.hello.build, e->version, sizeof(o->conv.hello.build));
	if (e->role->conv == DR_CONV_SERVER) {
		o->conv.secret_of = secret_of;
		o->conv.of_arg = e;
	}
	int rc = dr_random_bytes(o->conv.hello.nonce, sizeof(o->conv.hello.nonce));
	return rc ? rc : dr_random_bytes(o->conv.ephemeral, sizeof(o->conv.ephemeral));
}

/* ---- handles ------------------------------------------------------------------------------ */

int dr_boot_pair_give(
	struct dr_boot_end *e, unsigned k, const struct dr_handle *handles, unsigned n)
{
	if (e->control.state != DR_BOOT_EXCHANGING || k >= e->pairs || n != e->handles_out ||
		e->pair[k].out || e->pair[k].sent)
		return -EINVAL;
	return dr_handles_copy(handles, n, &e->pair[k].out);
}

int dr_boot_pair_send(struct dr_boot_end *e, unsigned k)
{
	struct dr_boot_pair *p = &e->pair[k];
	struct dr_link *l = k == 0 ? e->control_link : p->link;
	if (!p->out || p->sent || !l || l->conv.state != DR_CONV_OPEN)
		return 0;
	int rc = dr_handles_send(&l->conv, k, p->out, e->handles_out);
	if (rc)
		return rc;
	dr_link_wake(l);
	p->sent = true;
	dr_free(p->out);
	p->out = NULL;
	return 1;
}

void dr_boot_pair_came(struct dr_boot_end *e, struct dr_link *l, unsigned k,
	const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_boot_pair *p = &e->pair[k];
	bool client = e->role->conv == DR_CONV_CLIENT;
	struct dr_handle *h;
	struct dr_err err;
	if (e->control.state != DR_BOOT_EXCHANGING || p->in_done || (client && !p->sent)) {
		e->role->ended(e, l, DR_BOOT_PROTOCOL, "unexpected HANDLES message", now_ns);
		return;
	}
	int rc = dr_handles_decode(ev->data, ev->len, k, e->handles_in, &h, &err);
	if (rc) {
		e->role->ended(
			e, l, rc == -ENOMEM ? DR_BOOT_LOCAL : DR_BOOT_PROTOCOL, err.text, now_ns);
		return;
	}
	p->in_done = true;
	if (client && k > 0) {
		p->link = NULL;
		dr_link_close(l, now_ns);
	}
	DR_BOOT_TELL(e, on_handles, k, h, e->handles_in);
	dr_free(h);
	e->role->received(e, k, now_ns);
}

/* ---- control ------------------------------------------------------------------------------ */

void dr_boot_control_frame(
	struct dr_boot_end *e, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	char text[64];
	unsigned k = 1;
	switch (dr_control_frame(&e->control, ev, now_ns)) {
	case DR_CONTROL_NOTHING:
		return;
	case DR_CONTROL_MESSAGE:
		e->begun = e->begun || e->control.state == DR_BOOT_READY;
		if (e->control.has_ids)
			DR_BOOT_TELL(e, on_message, ev->json);
		else
			e->role->ended(
				e, l, DR_BOOT_PROTOCOL, "unexpected MESSAGE before ACCEPT", now_ns);
		return;
	case DR_CONTROL_GOODBYE:
		dr_control_flush(&e->control);
		snprintf(text, sizeof(text), "%s ended the session", e->role->peer);
		e->role->ended(e, NULL, DR_BOOT_GOODBYE, text, now_ns);
		return;
	case DR_CONTROL_GOODBYE_ACKED:
		e->role->ended(e, NULL, DR_BOOT_LOCAL, ENDED_HERE, now_ns);
		return;
	case DR_CONTROL_BROKEN:
		dr_boot_control_lost(e, l->conv.cause, l->conv.err.text, now_ns);
		return;
	case DR_CONTROL_READY:
	case DR_CONTROL_OTHER:
		break;
	}
	if (ev->type == DR_CONV_FRAME_HANDLES && dr_handles_pair(ev->data, ev->len, &k) == 0 &&
		k == 0)
		dr_boot_pair_came(e, l, 0, ev, now_ns);
	else
		e->role->frame(e, l, ev, now_ns);
}

void dr_boot_control_lost(
	struct dr_boot_end *e, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	if (dr_control_only_goodbye_left(&e->control)) {
		e->role->ended(e, NULL, DR_BOOT_LOCAL, ENDED_HERE, now_ns);
		return;
	}
	if (!e->role->resumable(e, cause)) {
		e->role->ended(e, e->control_link, cause, text, now_ns);
		return;
	}
	dr_link_abort(e->control_link);
	e->control_link = NULL;
	dr_control_detach(&e->control);
	e->control.state = DR_BOOT_LOST;
	e->role->await(e, cause, text, now_ns);
	DR_BOOT_TELL(e, on_lost, cause, text);
}

void dr_boot_exchange_tick(struct dr_boot_end *e, int64_t now_ns)
{
	char observed[160], text[256];
	if (now_ns < e->exchange_until_ns)
		return;
	dr_control_observed(&e->control, now_ns, observed, sizeof(observed));
	snprintf(text, sizeof(text), "%s %s within %.3g s: %s", e->role->peer,
		e->control.state == DR_BOOT_OFFERED ? "did not answer the parameters"
						    : "did not complete the exchange of handles",
		(double)e->timing.exchange_ns / 1e9, observed);
	e->role->ended(e, NULL, DR_BOOT_TIMEOUT, text, now_ns);
}

void dr_boot_control_tick(struct dr_boot_end *e, int64_t now_ns)
{
	char text[96];
	if (dr_control_tick(&e->control, now_ns)) {
		snprintf(text, sizeof(text), "no data from %s for %.3g s", e->role->peer,
			(double)e->timing.silent_ns / 1e9);
		dr_boot_control_lost(e, DR_BOOT_SILENT, text, now_ns);
	}
	if (e->control.goodbye && now_ns >= e->control.goodbye_until_ns) {
		snprintf(text, sizeof(text), "%s; %s did not acknowledge it", ENDED_HERE,
			e->role->peer);
		e->role->ended(e, NULL, DR_BOOT_LOCAL, text, now_ns);
	}
}

void dr_boot_link_batch(struct dr_link *l, int64_t now_ns)
{
	struct dr_boot_end *e = l->owner;
	if (l != e->control_link)
		return;
	dr_control_heard(&e->control, now_ns);
	dr_control_flush(&e->control);
}
