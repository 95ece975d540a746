/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/client_impl.h"
#include "bootstrap/handles.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 *   CONNECTING  dials (client_dial.c) until a server welcomes it                -> OFFERED
 *   OFFERED     waits for ACCEPT                                                -> EXCHANGING
 *   EXCHANGING  one connection for each pair above 0; handles out, handles in   -> READY
 *   READY       messages both ways
 *   LOST        control broke: dials RESUME                                     -> READY
 *   CLOSED      on_failed (never READY) or on_closed was called, once
 *
 * Invariants
 * 1. Every way out leads through finish(), from tick or a socket event only.
 * 2. A link is freed in dr_boot_client_tick and destroy only, so pointers hold inside callbacks.
 * 3. READY is posted when the server's handles of all pairs are here; the server sends those of a
 *    pair after it received ours, so READY says that both directions are complete.
 */

static void wake_control(void *arg)
{
	struct dr_boot_client *c = arg;
	if (c->control_link)
		dr_link_wake(c->control_link);
}

static void free_handles(struct dr_boot_client *c)
{
	for (unsigned k = 0; k < DR_BOOT_GPUS_MAX; k++) {
		dr_free(c->pair[k].out);
		c->pair[k].out = NULL;
	}
}

static void finish(struct dr_boot_client *c, enum dr_boot_cause cause, int code, const char *text,
	int64_t now_ns)
{
	if (c->control.state == DR_BOOT_CLOSED)
		return;
	struct dr_err e;
	dr_err_set(&e, -ECONNABORTED, "%s", text);
	for (struct dr_link *l = c->links; l; l = l->next)
		if (l == c->control_link)
			dr_link_close(l, now_ns);
		else if (l->state != DR_LINK_CLOSING)
			dr_link_abort(l);
	c->control_link = NULL;
	c->dial.active = false;
	c->dial.link = NULL;
	dr_control_detach(&c->control);
	c->control.state = DR_BOOT_CLOSED;
	free_handles(c);
	if (c->was_ready)
		c->ops.on_closed(c->arg, cause, e.text);
	else
		c->ops.on_failed(c->arg, cause, code, &e);
}

/* "server 192.0.2.7:20000: text" */
static void finish_at(struct dr_boot_client *c, const struct dr_link *l, enum dr_boot_cause cause,
	int code, const char *text, int64_t now_ns)
{
	struct dr_err e;
	dr_err_set(&e, -ECONNABORTED, "server %s: %s", l->peer, text);
	finish(c, cause, code, e.text, now_ns);
}

static void protocol_error(
	struct dr_boot_client *c, const struct dr_link *l, const char *text, int64_t now_ns)
{
	finish_at(c, l, DR_BOOT_PROTOCOL, 3, text, now_ns);
}

static bool may_pass(enum dr_boot_cause cause)
{
	return cause == DR_BOOT_EOF || cause == DR_BOOT_RESET || cause == DR_BOOT_SILENT ||
	       cause == DR_BOOT_TIMEOUT || cause == DR_BOOT_REFUSED ||
	       cause == DR_BOOT_UNREACHABLE || cause == DR_BOOT_LOCAL;
}

static void control_lost(
	struct dr_boot_client *c, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	struct dr_link *l = c->control_link;
	char why[256];
	snprintf(why, sizeof(why), "%s", text);
	if (dr_control_only_goodbye_left(&c->control)) {
		finish(c, DR_BOOT_LOCAL, 3, "goodbye was on its way", now_ns);
		return;
	}
	if (c->control.state != DR_BOOT_READY || !may_pass(cause)) {
		finish_at(c, l, cause, 3, why, now_ns);
		return;
	}
	dr_link_abort(l);
	c->control_link = NULL;
	dr_control_detach(&c->control);
	c->control.state = DR_BOOT_LOST;
	dr_client_dial_start(c, now_ns, now_ns + c->timing.resume_ns);
	c->ops.on_lost(c->arg, cause, why);
}

/* ---- handles ------------------------------------------------------------------------------ */

static int try_send_handles(struct dr_boot_client *c, unsigned k)
{
	struct dr_client_pair *p = &c->pair[k];
	struct dr_link *l = k == 0 ? c->control_link : p->link;
	if (!p->out || p->sent || !l || l->conv.state != DR_CONV_OPEN)
		return 0;
	size_t len = dr_handles_encoded_len(p->out, c->handles_out);
	uint8_t *buf = dr_calloc(1, len);
	if (!buf)
		return -ENOMEM;
	int rc = dr_handles_encode(buf, len, k, p->out, c->handles_out);
	if (rc == 0)
		rc = dr_conv_send(&l->conv, DR_FRAME_HANDLES, 0, buf, len);
	dr_free(buf);
	if (rc)
		return rc;
	p->sent = true;
	dr_link_wake(l);
	return 0;
}

int dr_boot_client_handles(
	struct dr_boot_client *c, unsigned k, const struct dr_boot_handle *handles, unsigned n)
{
	if (c->control.state != DR_BOOT_EXCHANGING || k >= c->pairs || n != c->handles_out ||
		c->pair[k].out)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if (handles[i].len > DR_BOOT_HANDLE_MAX)
			return -EINVAL;
	struct dr_boot_handle *copy = dr_calloc(n, sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, handles, n * sizeof(*copy));
	c->pair[k].out = copy;
	return try_send_handles(c, k);
}

static void check_ready(struct dr_boot_client *c, int64_t now_ns)
{
	if (c->control.state != DR_BOOT_EXCHANGING)
		return;
	for (unsigned k = 0; k < c->pairs; k++)
		if (!c->pair[k].in_done)
			return;
	if (dr_control_post(&c->control, DR_FRAME_READY)) {
		finish(c, DR_BOOT_LOCAL, 3, "out of memory", now_ns);
		return;
	}
	free_handles(c);
	c->was_ready = true;
	c->control.state = DR_BOOT_READY;
	c->exchange_until_ns = DR_NEVER;
	c->ops.on_ready(c->arg);
}

static void handles_came(struct dr_boot_client *c, struct dr_link *l, unsigned k,
	const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_client_pair *p = &c->pair[k];
	struct dr_boot_handle *h;
	struct dr_err e;
	if (c->control.state != DR_BOOT_EXCHANGING || p->in_done || !p->sent) {
		protocol_error(c, l, "handles came twice or before their time", now_ns);
		return;
	}
	int rc = dr_handles_decode(ev->data, ev->len, k, c->handles_in, &h, &e);
	if (rc) {
		finish_at(
			c, l, rc == -ENOMEM ? DR_BOOT_LOCAL : DR_BOOT_PROTOCOL, 3, e.text, now_ns);
		return;
	}
	p->in_done = true;
	if (k > 0) {
		p->link = NULL;
		dr_link_close(l, now_ns);
	}
	c->ops.on_handles(c->arg, k, h, c->handles_in);
	dr_free(h);
	check_ready(c, now_ns);
}

/* ---- answers of the server ---------------------------------------------------------------- */

static bool get_count(const json_t *j, const char *key, int max, unsigned *out)
{
	const json_t *v = json_object_get(j, key);
	json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < 1 || n > max)
		return false;
	*out = (unsigned)n;
	return true;
}

static bool get_hex(const json_t *j, const char *key, uint8_t *out, size_t len)
{
	const char *s = json_string_value(json_object_get(j, key));
	size_t got = 0;
	return s && strlen(s) == 2 * len &&
	       sodium_hex2bin(out, len, s, 2 * len, NULL, &got, NULL) == 0 && got == len;
}

static bool get_list(const json_t *j, const char *key, unsigned min_n, int min, unsigned *out)
{
	const json_t *list = json_object_get(j, key), *v;
	size_t i;
	if (!json_is_array(list) || json_array_size(list) < min_n ||
		json_array_size(list) > DR_BOOT_GPUS_MAX)
		return false;
	json_array_foreach((json_t *)list, i, v)
	{
		json_int_t n = json_integer_value(v);
		if (!json_is_integer(v) || n < min || n > UINT16_MAX)
			return false;
		out[i] = (unsigned)n;
	}
	return true;
}

static void accept_came(
	struct dr_boot_client *c, struct dr_link *l, const json_t *j, int64_t now_ns)
{
	unsigned ports[DR_BOOT_GPUS_MAX] = { 0 };
	const json_t *reply = json_object_get(j, "reply");
	if (c->control.state != DR_BOOT_OFFERED || !json_is_object(reply) ||
		!get_count(j, "pairs", (int)c->n_gpus, &c->pairs) ||
		/* The server names what goes in and out of it. */
		!get_count(j, "handles_in", DR_BOOT_HANDLES_MAX, &c->handles_out) ||
		!get_count(j, "handles_out", DR_BOOT_HANDLES_MAX, &c->handles_in) ||
		!get_list(j, "gpus", c->pairs, 0, c->server_gpus) ||
		!get_list(j, "ports", c->pairs, 1, ports) ||
		!get_hex(j, "session", c->control.session_id, DR_CONV_SESSION_BYTES) ||
		!get_hex(j, "token", c->control.token, DR_BOOT_TOKEN_BYTES)) {
		protocol_error(c, l, "its acceptance is malformed", now_ns);
		return;
	}
	for (unsigned k = 0; k < DR_BOOT_GPUS_MAX; k++)
		c->ports[k] = (uint16_t)ports[k];
	c->control.has_ids = true;
	c->control.state = DR_BOOT_EXCHANGING;
	c->exchange_until_ns = now_ns + c->timing.exchange_ns;
	c->ops.on_accept(c->arg, reply, c->server_gpus, c->pairs, c->handles_out, c->handles_in);
}

static void welcomed_new(struct dr_boot_client *c, struct dr_link *l, int64_t now_ns)
{
	int rc = dr_control_attach(&c->control, &l->conv, 0, now_ns);
	dr_assert(rc == 0);
	c->control.state = DR_BOOT_OFFERED;
	c->exchange_until_ns = now_ns + c->timing.exchange_ns;
	if (dr_conv_send_json(&l->conv, DR_FRAME_OFFER, 0, c->offer))
		finish(c, DR_BOOT_LOCAL, 3, "cannot send the parameters: out of memory", now_ns);
}

static void welcomed_back(
	struct dr_boot_client *c, struct dr_link *l, uint64_t last_seq, int64_t now_ns)
{
	if (dr_control_attach(&c->control, &l->conv, last_seq, now_ns)) {
		protocol_error(c, l, "it resumes at a message number that was never sent", now_ns);
		return;
	}
	c->control.state = DR_BOOT_READY;
	c->ops.on_resumed(c->arg);
	if (dr_control_goodbye_done(&c->control))
		finish(c, DR_BOOT_LOCAL, 3, "goodbye arrived", now_ns);
}

static void opened(
	struct dr_boot_client *c, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	if (l->role == DR_CONV_GPU) {
		if (try_send_handles(c, l->k))
			finish(c, DR_BOOT_LOCAL, 3, "cannot send handles: out of memory", now_ns);
		return;
	}
	c->dial.active = false;
	c->dial.link = NULL;
	c->control_link = l;
	if (l->role == DR_CONV_NEW)
		c->server = l->addr;
	snprintf(c->control.peer, sizeof(c->control.peer), "%s", l->peer);
	if (l->role == DR_CONV_NEW)
		welcomed_new(c, l, now_ns);
	else
		welcomed_back(c, l, ev->seq, now_ns);
}

/* ---- events ------------------------------------------------------------------------------- */

static void control_frame(
	struct dr_boot_client *c, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	unsigned k = 0;
	switch (dr_control_frame(&c->control, ev, now_ns)) {
	case DR_CONTROL_NOTHING:
		return;
	case DR_CONTROL_MESSAGE:
		if (c->control.has_ids)
			c->ops.on_message(c->arg, ev->json);
		else
			protocol_error(c, l, "message before it accepted", now_ns);
		return;
	case DR_CONTROL_GOODBYE:
		dr_control_flush(&c->control);
		finish(c, DR_BOOT_GOODBYE, 3, "the server said goodbye", now_ns);
		return;
	case DR_CONTROL_GOODBYE_ACKED:
		finish(c, DR_BOOT_LOCAL, 3, "goodbye arrived", now_ns);
		return;
	case DR_CONTROL_BROKEN:
		control_lost(c, l->conv.cause, l->conv.err.text, now_ns);
		return;
	case DR_CONTROL_READY: /* never: the client's to send */
	case DR_CONTROL_OTHER:
		break;
	}
	if (ev->type == DR_FRAME_ACCEPT)
		accept_came(c, l, ev->json, now_ns);
	else if (ev->type == DR_FRAME_HANDLES && dr_handles_pair(ev->data, ev->len, &k) == 0 &&
		 k == 0)
		handles_came(c, l, 0, ev, now_ns);
	else
		protocol_error(c, l, "message out of turn", now_ns);
}

static void failed(
	struct dr_boot_client *c, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	const char *text = l->conv.err.text;
	if (l == c->control_link) {
		control_lost(c, ev->cause, text, now_ns);
	} else if (l == c->dial.link) {
		if (may_pass(ev->cause))
			dr_client_dial_failed(c, ev->cause, text, now_ns);
		else
			finish_at(c, l, ev->cause, 3, text, now_ns);
	} else if (l->role == DR_CONV_GPU && c->pair[l->k].link == l) {
		/* Before our handles went out nothing is lost: dial again. */
		if (may_pass(ev->cause) && !c->pair[l->k].sent)
			c->pair[l->k].link = NULL;
		else
			finish_at(c, l, ev->cause, 3, text, now_ns);
	}
}

void dr_client_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_boot_client *c = l->owner;
	switch (ev->kind) {
	case DR_CONV_OPENED:
		opened(c, l, ev, now_ns);
		return;
	case DR_CONV_REFUSED:
		finish_at(c, l, ev->cause, ev->code, l->conv.err.text, now_ns);
		return;
	case DR_CONV_FAILED:
		failed(c, l, ev, now_ns);
		return;
	case DR_CONV_FRAME:
		if (l == c->control_link)
			control_frame(c, l, ev, now_ns);
		else if (l->role == DR_CONV_GPU && c->pair[l->k].link == l)
			handles_came(c, l, l->k, ev, now_ns);
		return;
	default:
		return;
	}
}

void dr_client_batch(struct dr_link *l, int64_t now_ns)
{
	struct dr_boot_client *c = l->owner;
	if (l != c->control_link)
		return;
	dr_control_heard(&c->control, now_ns);
	dr_control_flush(&c->control);
}

/* ---- life --------------------------------------------------------------------------------- */

static bool all_set(const struct dr_boot_client_ops *o)
{
	return o->on_accept && o->on_handles && o->on_ready && o->on_message && o->on_lost &&
	       o->on_resumed && o->on_failed && o->on_closed;
}

static int make_offer(struct dr_boot_client *c, const struct dr_boot_client_opts *o,
	const json_t *params, struct dr_err *e)
{
	if (!json_is_object(params))
		return dr_err_set(e, -EINVAL, "the parameters are no JSON object");
	json_t *list = json_array();
	for (unsigned i = 0; list && i < o->n_gpus; i++)
		json_array_append_new(list, json_integer(o->gpus[i]));
	json_t *copy = json_deep_copy(params);
	c->offer =
		json_pack("{s:o,s:b,s:o}", "gpus", list, "pair", o->pair ? 1 : 0, "params", copy);
	if (!c->offer)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	if (json_dumpb(c->offer, NULL, 0, JSON_COMPACT) > DR_BOOT_MESSAGE_BYTES_MAX)
		return dr_err_set(e, -EMSGSIZE, "the parameters are above 1 MiB");
	return 0;
}

static int fill(struct dr_boot_client *c, const struct dr_boot_client_opts *o, const json_t *params,
	struct dr_err *e)
{
	memcpy(c->gpus, o->gpus, o->n_gpus * sizeof(*o->gpus));
	c->n_gpus = o->n_gpus;
	c->port_base = o->port_base ? o->port_base : DR_BOOT_PORT_BASE;
	unsigned port = o->port ? o->port : c->port_base + o->gpus[0];
	if (port > UINT16_MAX)
		return dr_err_set(e, -EINVAL,
			"port %u + GPU %u is above 65535; choose a lower --port", c->port_base,
			o->gpus[0]);
	c->port_first = (uint16_t)port;
	if (o->port) /* exactly this one */
		c->port_base = o->port;
	c->has_key = o->key != NULL;
	if (o->key)
		c->key = *o->key;
	snprintf(c->version, sizeof(c->version), "%s", o->version ? o->version : "?");
	c->timing = o->timing;
	dr_boot_timing_complete(&c->timing);
	dr_control_init(&c->control, &c->timing, wake_control, c);
	c->host = dr_strdup(o->host);
	if (!c->host)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	c->numeric = dr_addr_parse(o->host, &c->addrs[0]) == 0;
	c->n_addrs = c->numeric ? 1 : 0;
	int rc = o->bind ? dr_addr_local(o->bind, c->local, DR_ADDRS_MAX, &c->n_local, e) : 0;
	return rc ? rc : make_offer(c, o, params, e);
}

int dr_boot_client_create(struct dr_boot_client **out, const struct dr_boot_client_opts *opts,
	const json_t *params, const struct dr_boot_client_ops *ops, void *arg,
	struct dr_poller *poller, struct dr_err *e)
{
	dr_assert(all_set(ops) && poller && opts->host);
	if (opts->n_gpus == 0 || opts->n_gpus > DR_BOOT_GPUS_MAX)
		return dr_err_set(
			e, -EINVAL, "%u GPUs: 1 to %d are allowed", opts->n_gpus, DR_BOOT_GPUS_MAX);
	if (sodium_init() < 0)
		return dr_err_set(e, -EIO, "libsodium does not start");
	struct dr_boot_client *c = dr_calloc(1, sizeof(*c));
	if (!c)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	c->ops = *ops;
	c->arg = arg;
	c->poller = poller;
	c->exchange_until_ns = DR_NEVER;
	int rc = fill(c, opts, params, e);
	if (rc) {
		dr_boot_client_destroy(c);
		return rc;
	}
	int64_t now = dr_now_ns();
	int64_t wait = opts->connect_timeout_ns ? opts->connect_timeout_ns : 30 * DR_NS_PER_S;
	c->control.state = DR_BOOT_CONNECTING;
	dr_client_dial_start(c, now, now + wait);
	*out = c;
	return 0;
}

void dr_boot_client_destroy(struct dr_boot_client *c)
{
	if (!c)
		return;
	dr_links_free(&c->links);
	free_handles(c);
	dr_control_reset(&c->control);
	json_decref(c->offer);
	dr_free(c->host);
	sodium_memzero(&c->key, sizeof(c->key));
	dr_free(c);
}

static void session_tick(struct dr_boot_client *c, int64_t now_ns)
{
	enum dr_boot_cause cause;
	struct dr_err e;
	char text[96];
	if (c->drop_asked)
		finish(c, DR_BOOT_LOCAL, 3, "dropped by this end", now_ns);
	if (dr_client_dial_tick(c, now_ns, &cause, &e))
		finish(c, cause, 3, e.text, now_ns);
	dr_client_pairs_tick(c, now_ns);
	if (now_ns >= c->exchange_until_ns)
		finish(c, DR_BOOT_TIMEOUT, 3,
			c->control.state == DR_BOOT_OFFERED
				? "the server does not answer the parameters"
				: "the exchange of handles took too long",
			now_ns);
	if (dr_control_tick(&c->control, now_ns)) {
		snprintf(text, sizeof(text), "nothing heard for %.3g s",
			(double)c->timing.silent_ns / 1e9);
		control_lost(c, DR_BOOT_SILENT, text, now_ns);
	}
	if (c->control.goodbye && now_ns >= c->control.goodbye_until_ns)
		finish(c, DR_BOOT_LOCAL, 3, "goodbye was not answered", now_ns);
}

void dr_boot_client_tick(struct dr_boot_client *c, int64_t now_ns)
{
	dr_links_reap(&c->links);
	for (struct dr_link *l = c->links; l; l = l->next)
		dr_link_tick(l, now_ns);
	if (c->control.state != DR_BOOT_CLOSED)
		session_tick(c, now_ns);
	dr_links_reap(&c->links);
}

int64_t dr_boot_client_deadline(const struct dr_boot_client *c)
{
	int64_t at = DR_NEVER;
	for (const struct dr_link *l = c->links; l; l = l->next)
		at = DR_MIN(at, dr_link_deadline(l));
	if (c->control.state == DR_BOOT_CLOSED)
		return at;
	if (c->drop_asked)
		return 0;
	at = DR_MIN(at, c->exchange_until_ns);
	at = DR_MIN(at, dr_client_dial_deadline(c));
	at = DR_MIN(at, dr_client_pairs_deadline(c));
	return DR_MIN(at, dr_control_deadline(&c->control));
}

int dr_boot_client_alternatives(
	struct dr_boot_client *c, const char *const *addresses, unsigned n, struct dr_err *e)
{
	struct dr_addr parsed[DR_ADDRS_MAX];
	if (n > DR_ADDRS_MAX)
		return dr_err_set(
			e, -EINVAL, "%u alternative addresses: at most %d", n, DR_ADDRS_MAX);
	for (unsigned i = 0; i < n; i++)
		if (dr_addr_parse(addresses[i], &parsed[i]))
			return dr_err_set(e, -EINVAL,
				"alternative address %s: not a numeric IP "
				"address",
				addresses[i]);
	memcpy(c->alternatives, parsed, n * sizeof(parsed[0]));
	c->n_alternatives = n;
	return 0;
}

void dr_boot_client_drop(struct dr_boot_client *c)
{
	c->drop_asked = true;
}

unsigned dr_boot_client_pairs(const struct dr_boot_client *c)
{
	return c->pairs;
}

struct dr_control *dr_boot_client_control(struct dr_boot_client *c)
{
	return &c->control;
}
