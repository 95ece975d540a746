/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/client_priv.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
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
 * 1. A client ends in finish() only, called from tick or from a socket event.
 * 2. A link is freed in dr_boot_client_tick and destroy only, so pointers stay valid in callbacks.
 * 3. READY is posted when the handles of all pairs were received. The server sends those of a pair after it
 *    received ours, so READY means that both directions are complete.
 */

static struct dr_boot_client *client_of(struct dr_boot_end *e)
{
	return dr_container_of(e, struct dr_boot_client, e);
}

static void finish(struct dr_boot_client *c, enum dr_boot_cause cause, int code, const char *text,
	int64_t now_ns)
{
	if (c->e.control.state == DR_BOOT_CLOSED)
		return;
	struct dr_err e;
	dr_err_set(&e, -ECONNABORTED, "%s", text);
	for (struct dr_link *l = c->e.links; l; l = l->next)
		/* A DENY may be on its way in the output. */
		if (l == c->e.control_link || l->conv.state == DR_CONV_ENDED)
			dr_link_close(l, now_ns);
		else if (l->state != DR_LINK_CLOSING)
			dr_link_abort(l);
	c->e.control_link = NULL;
	c->dial.active = false;
	c->dial.link = NULL;
	dr_control_detach(&c->e.control);
	c->e.control.state = DR_BOOT_CLOSED;
	if (c->was_ready && cause != DR_BOOT_DECLINED)
		DR_BOOT_TELL(&c->e, on_closed, cause, e.text);
	else
		DR_BOOT_TELL(&c->e, on_failed, cause, code, &e);
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

/* May a new connection succeed after this? */
static bool may_pass(enum dr_boot_cause cause)
{
	return cause == DR_BOOT_EOF || cause == DR_BOOT_RESET || cause == DR_BOOT_SILENT ||
	       cause == DR_BOOT_TIMEOUT || cause == DR_BOOT_REFUSED ||
	       cause == DR_BOOT_UNREACHABLE || cause == DR_BOOT_LOCAL;
}

static bool resumable(const struct dr_boot_end *e, enum dr_boot_cause cause)
{
	return e->control.state == DR_BOOT_READY && may_pass(cause);
}

static void await(struct dr_boot_end *e, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	(void)cause;
	(void)text;
	dr_client_dial_start(client_of(e), now_ns, now_ns + e->timing.resume_ns);
}

static void ended(struct dr_boot_end *e, const struct dr_link *l, enum dr_boot_cause cause,
	const char *text, int64_t now_ns)
{
	if (l)
		finish_at(client_of(e), l, cause, 3, text, now_ns);
	else
		finish(client_of(e), cause, 3, text, now_ns);
}

/* ---- handles ------------------------------------------------------------------------------ */

int dr_boot_client_handles(
	struct dr_boot_client *c, unsigned k, const struct dr_handle *handles, unsigned n)
{
	int rc = dr_boot_pair_give(&c->e, k, handles, n);
	return rc ? rc : DR_MIN(dr_boot_pair_send(&c->e, k), 0);
}

static void received(struct dr_boot_end *e, unsigned last, int64_t now_ns)
{
	struct dr_boot_client *c = client_of(e);
	(void)last;
	if (c->e.control.state != DR_BOOT_EXCHANGING)
		return;
	for (unsigned k = 0; k < c->e.pairs; k++)
		if (!c->e.pair[k].in_done)
			return;
	if (dr_control_post(&c->e.control, DR_CONV_FRAME_READY)) {
		finish(c, DR_BOOT_LOCAL, 3, "out of memory", now_ns);
		return;
	}
	c->was_ready = true;
	c->e.control.state = DR_BOOT_READY;
	c->e.exchange_until_ns = DR_NEVER;
	DR_BOOT_TELL_BARE(e, on_ready);
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

static void accept_came(
	struct dr_boot_client *c, struct dr_link *l, const json_t *j, int64_t now_ns)
{
	unsigned ports[DR_BOOT_GPUS_MAX] = { 0 }, n_gpus, n_ports;
	const json_t *reply = json_object_get(j, "reply");
	if (c->e.control.state != DR_BOOT_OFFERED || !json_is_object(reply) ||
		!get_count(j, "pairs", (int)c->e.n_gpus, &c->e.pairs) ||
		/* The server names what goes in and out of it. */
		!get_count(j, "handles_in", DR_BOOT_HANDLES_MAX, &c->e.handles_out) ||
		!get_count(j, "handles_out", DR_BOOT_HANDLES_MAX, &c->e.handles_in) ||
		!dr_boot_list_read(json_object_get(j, "gpus"), 0, c->server_gpus, &n_gpus) ||
		!dr_boot_list_read(json_object_get(j, "ports"), 1, ports, &n_ports) ||
		n_gpus < c->e.pairs || n_ports < c->e.pairs) {
		protocol_error(c, l, "malformed ACCEPT message", now_ns);
		return;
	}
	for (unsigned k = 0; k < DR_BOOT_GPUS_MAX; k++)
		c->e.ports[k] = (uint16_t)ports[k];
	dr_control_take_ids(&c->e.control, &l->conv);
	c->e.control.state = DR_BOOT_EXCHANGING;
	c->e.exchange_until_ns = now_ns + c->e.timing.exchange_ns;
	DR_BOOT_TELL(&c->e, on_accept, reply, c->server_gpus, c->e.pairs, c->e.handles_out,
		c->e.handles_in);
}

static void welcomed_new(struct dr_boot_client *c, struct dr_link *l, int64_t now_ns)
{
	int rc = dr_control_attach(&c->e.control, &l->conv, 0, now_ns);
	dr_assert(rc == 0);
	c->e.control.state = DR_BOOT_OFFERED;
	c->e.exchange_until_ns = now_ns + c->e.timing.exchange_ns;
	if (dr_conv_send_json(&l->conv, DR_CONV_FRAME_OFFER, 0, c->offer))
		finish(c, DR_BOOT_LOCAL, 3, "cannot send the parameters: out of memory", now_ns);
}

static void welcomed_back(
	struct dr_boot_client *c, struct dr_link *l, uint64_t last_seq, int64_t now_ns)
{
	if (dr_control_attach(&c->e.control, &l->conv, last_seq, now_ns)) {
		protocol_error(c, l, "WELCOME names a message that was never sent", now_ns);
		return;
	}
	c->e.control.state = DR_BOOT_READY;
	DR_BOOT_TELL_BARE(&c->e, on_resumed);
	if (dr_control_goodbye_done(&c->e.control))
		finish(c, DR_BOOT_LOCAL, 3, "session ended by this end", now_ns);
}

static void opened(
	struct dr_boot_client *c, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	if (l->role == DR_CONV_GPU) {
		if (dr_boot_pair_send(&c->e, l->k) < 0)
			finish(c, DR_BOOT_LOCAL, 3, "cannot send handles: out of memory", now_ns);
		return;
	}
	c->dial.active = false;
	c->dial.link = NULL;
	c->e.control_link = l;
	if (l->role == DR_CONV_NEW)
		c->server = l->addr;
	snprintf(c->e.control.peer, sizeof(c->e.control.peer), "%s", l->peer);
	if (l->role == DR_CONV_NEW)
		welcomed_new(c, l, now_ns);
	else
		welcomed_back(c, l, ev->seq, now_ns);
}

/* ---- events ------------------------------------------------------------------------------- */

static void frame(
	struct dr_boot_end *e, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	char text[48];
	if (ev->type == DR_CONV_FRAME_ACCEPT) {
		accept_came(client_of(e), l, ev->json, now_ns);
		return;
	}
	snprintf(text, sizeof(text), "unexpected %s message", dr_frame_name(ev->type));
	protocol_error(client_of(e), l, text, now_ns);
}

static void failed(
	struct dr_boot_client *c, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	const char *text = l->conv.err.text;
	if (l == c->e.control_link) {
		dr_boot_control_lost(&c->e, ev->cause, text, now_ns);
	} else if (l == c->dial.link) {
		if (may_pass(ev->cause))
			dr_client_dial_failed(c, ev->cause, text, now_ns);
		else
			finish_at(c, l, ev->cause, 3, text, now_ns);
	} else if (l->role == DR_CONV_GPU && c->e.pair[l->k].link == l) {
		/* Before our handles went out nothing is lost: dial again. */
		if (may_pass(ev->cause) && !c->e.pair[l->k].sent)
			c->e.pair[l->k].link = NULL;
		else
			finish_at(c, l, ev->cause, 3, text, now_ns);
	}
}

static void link_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_boot_client *c = client_of(l->owner);
	switch (ev->kind) {
	case DR_CONV_OPENED:
		opened(c, l, ev, now_ns);
		return;
	case DR_CONV_REFUSED:
		if (ev->cause == DR_BOOT_BUSY && c->wait_busy && l == c->dial.link)
			dr_client_dial_failed(c, ev->cause, l->conv.err.text, now_ns);
		else
			finish_at(c, l, ev->cause, ev->code, l->conv.err.text, now_ns);
		return;
	case DR_CONV_FAILED:
		failed(c, l, ev, now_ns);
		return;
	case DR_CONV_FRAME:
		if (l == c->e.control_link)
			dr_boot_control_frame(&c->e, l, ev, now_ns);
		else if (l->role == DR_CONV_GPU && c->e.pair[l->k].link == l)
			dr_boot_pair_came(&c->e, l, l->k, ev, now_ns);
		return;
	default:
		return;
	}
}

static const struct dr_boot_role role = {
	.link = { link_event, dr_boot_link_batch },
	.conv = DR_CONV_CLIENT,
	.peer = "the server",
	.resumable = resumable,
	.await = await,
	.ended = ended,
	.frame = frame,
	.received = received,
};

/* ---- life --------------------------------------------------------------------------------- */

static int make_offer(struct dr_boot_client *c, const struct dr_boot_opts *o, struct dr_err *e)
{
	if (!json_is_object(o->params))
		return dr_err_set(e, -EINVAL, "bootstrap: the parameters are not a JSON object");
	c->offer = json_pack("{s:o,s:b,s:o}", "gpus", dr_boot_list(o->gpus, o->n_gpus), "pair",
		o->pair, "params", json_deep_copy(o->params));
	if (!c->offer)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	if (json_dumpb(c->offer, NULL, 0, JSON_COMPACT) > DR_BOOT_MESSAGE_BYTES_MAX)
		return dr_err_set(e, -EMSGSIZE, "bootstrap: the parameters exceed %d bytes",
			DR_BOOT_MESSAGE_BYTES_MAX);
	return 0;
}

/* --control. A socket of the other family could never reach a host that is given as an address. */
static int bind_to(struct dr_boot_client *c, const char *local, struct dr_err *e)
{
	int rc = dr_addr_local(local, c->local, DR_ADDRS_MAX, &c->n_local, e);
	if (rc || !c->numeric)
		return rc;
	for (unsigned i = 0; i < c->n_local; i++)
		if (c->local[i].ss.ss_family == c->addrs[0].ss.ss_family)
			return 0;
	return dr_err_set(e, -EADDRNOTAVAIL,
		"--control %.50s has no %s address to reach the server %.50s from; name another "
		"interface or another address of the server",
		local, c->addrs[0].ss.ss_family == AF_INET ? "IPv4" : "IPv6", c->host);
}

static int fill(struct dr_boot_client *c, const struct dr_boot_opts *o, struct dr_err *e)
{
	int rc = dr_boot_end_init(&c->e, o, e);
	if (rc)
		return rc;
	c->port_base = o->port_base ? o->port_base : DR_BOOT_PORT_BASE;
	unsigned port = o->port ? o->port : c->port_base + o->gpus[0];
	if (port > UINT16_MAX)
		return dr_err_set(e, -EINVAL,
			"port %u + GPU %u is above 65535; choose a lower --port", c->port_base,
			o->gpus[0]);
	c->port_first = (uint16_t)port;
	if (o->port) /* exactly this one */
		c->port_base = o->port;
	c->wait_busy = o->wait_busy;
	c->host = dr_strdup(o->host);
	if (!c->host)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	c->numeric = dr_addr_parse(o->host, &c->addrs[0]) == 0;
	c->n_addrs = c->numeric ? 1 : 0;
	rc = o->bind ? bind_to(c, o->bind, e) : 0;
	return rc ? rc : make_offer(c, o, e);
}

int dr_boot_client_create(struct dr_boot_client **out, const struct dr_boot_opts *opts,
	const struct dr_boot_ops *ops, void *arg, struct dr_poller *poller, struct dr_err *e)
{
	dr_assert(ops->on_accept && ops->on_failed && opts->host);
	struct dr_boot_client *c = dr_calloc(1, sizeof(*c));
	if (!c)
		return dr_err_set(e, -ENOMEM, "bootstrap: out of memory");
	c->e = (struct dr_boot_end){ .role = &role, .ops = *ops, .arg = arg, .poller = poller };
	int rc = fill(c, opts, e);
	if (rc) {
		dr_boot_client_destroy(c);
		return rc;
	}
	int64_t now = dr_now_ns();
	int64_t wait = opts->connect_timeout_ns ? opts->connect_timeout_ns : 30 * DR_NS_PER_S;
	c->e.control.state = DR_BOOT_CONNECTING;
	dr_client_dial_start(c, now, now + wait);
	*out = c;
	return 0;
}

void dr_boot_client_destroy(struct dr_boot_client *c)
{
	if (!c)
		return;
	dr_boot_end_fini(&c->e);
	json_decref(c->offer);
	dr_free(c->host);
	dr_free(c);
}

static void session_tick(struct dr_boot_client *c, int64_t now_ns)
{
	enum dr_boot_cause cause;
	struct dr_err e;
	if (c->drop_asked)
		finish(c, DR_BOOT_LOCAL, 3, "session ended by this end", now_ns);
	if (dr_client_dial_tick(c, now_ns, &cause, &e))
		finish(c, cause, 3, e.text, now_ns);
	int rc = dr_client_pairs_tick(c, now_ns);
	if (rc) {
		dr_err_set(&e, rc, "cannot connect to %s: %s; " DR_CLIENT_LOCAL_ADVICE, c->host,
			strerror(-rc));
		finish(c, DR_BOOT_LOCAL, 2, e.text, now_ns);
	}
	dr_boot_exchange_tick(&c->e, now_ns);
	dr_boot_control_tick(&c->e, now_ns);
}

void dr_boot_client_tick(struct dr_boot_client *c, int64_t now_ns)
{
	dr_links_tick(&c->e.links, now_ns);
	if (c->e.control.state != DR_BOOT_CLOSED)
		session_tick(c, now_ns);
	dr_links_reap(&c->e.links);
}

void dr_boot_client_pulse(struct dr_boot_client *c, int64_t now_ns)
{
	struct dr_link *l = c->e.control_link;
	if (!l || l->state != DR_LINK_UP)
		return;
	dr_control_ping(&c->e.control, now_ns);
	dr_link_write(l, now_ns);
}

int64_t dr_boot_client_deadline(const struct dr_boot_client *c)
{
	int64_t at = dr_links_deadline(c->e.links);
	if (c->e.control.state == DR_BOOT_CLOSED)
		return at;
	if (c->drop_asked)
		return 0;
	at = DR_MIN(at, c->e.exchange_until_ns);
	at = DR_MIN(at, dr_client_dial_deadline(c));
	at = DR_MIN(at, dr_client_pairs_deadline(c));
	return DR_MIN(at, dr_control_deadline(&c->e.control));
}

int dr_boot_client_alternatives(
	struct dr_boot_client *c, const char *const *addresses, unsigned n, struct dr_err *e)
{
	struct dr_addr parsed[DR_ADDRS_MAX];
	if (n > DR_ADDRS_MAX)
		return dr_err_set(e, -EINVAL, "%u alternative addresses, at most %d are allowed", n,
			DR_ADDRS_MAX);
	for (unsigned i = 0; i < n; i++)
		if (dr_addr_parse(addresses[i], &parsed[i]))
			return dr_err_set(e, -EINVAL,
				"alternative address %s is not a numeric IP address", addresses[i]);
	memcpy(c->alternatives, parsed, n * sizeof(parsed[0]));
	c->n_alternatives = n;
	return 0;
}

void dr_boot_client_drop(struct dr_boot_client *c)
{
	c->drop_asked = true;
}

const char *dr_boot_client_busy(const struct dr_boot_client *c)
{
	return c->dial.active && c->dial.cause == DR_BOOT_BUSY ? c->dial.text : NULL;
}

struct dr_control *dr_boot_client_control(struct dr_boot_client *c)
{
	return &c->e.control;
}
