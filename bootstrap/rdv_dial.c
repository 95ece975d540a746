/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_priv.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * Connecting end. A comm tries its routes one at a time, and again after a delay that grows, until
 * it is done, refused or late: first the acceptor's addresses that share a subnet with one of its
 * own, in the order of preference of both, bound to that address and interface; then each address
 * without binding. An address may answer for another process (two hosts may have the same private
 * address), so a denied key at one address is final only when all addresses deny it.
 *
 * At most DR_RDV_OPENING_MAX connections of the process are on the way to OPEN; the turns go round, so that hosts that do not
 * answer do not keep the others waiting.
 */
static const int64_t TIMEOUT_NS = 30 * DR_NS_PER_S;

static void out_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns);

static const struct dr_link_ops out_ops = { .event = out_event };

/* ---- failures ----------------------------------------------------------------------------- */

/* The acceptor is told if it is connected. */
static void final(struct dr_rdv_comm *c, const struct dr_err *e, int64_t now_ns)
{
	dr_xchg_goodbye(&c->x);
	dr_rdv_comm_close_link(c, now_ns);
	dr_rdv_comm_failed(c, e);
	dr_rdv_comm_over(c);
}

static void denied_everywhere(struct dr_rdv_comm *c, int64_t now_ns)
{
	struct dr_err e;
	dr_err_set(&e, -EKEYREJECTED,
		"cannot connect to the comm: every address answers, the last one %s: %s",
		c->dial->last, c->dial->text);
	final(c, &e, now_ns);
}

static void attempt_failed(
	struct dr_rdv_comm *c, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	struct dr_rdv_dialler *d = c->dial;
	c->link = NULL;
	dr_xchg_detach(&c->x);
	dr_text_copy(d->text, sizeof(d->text), text);
	d->denied += cause == DR_BOOT_KEY;
	d->next_ns = now_ns;
	if (++d->index < d->n_routes)
		return;
	bool denied = d->denied == d->n_routes;
	d->index = d->denied = 0;
	d->next_ns = now_ns + d->backoff_ns;
	d->backoff_ns = DR_MIN(2 * d->backoff_ns, c->rdv->timing.retry_max_ns);
	if (denied)
		denied_everywhere(c, now_ns);
}

static const char *waits_for(const struct dr_rdv_comm *c)
{
	if (!c->link)
		return c->dial->text;
	if (c->link->state == DR_LINK_DIALLING)
		return "no answer to the connection request";
	if (c->link->conv.state != DR_CONV_OPEN)
		return "connected, but the hello is not answered; the process may be stopped";
	if (c->x.state == DR_XCHG_OFFERED)
		return "the peer has not answered the offer";
	if (!c->x.own.set)
		return "this end has not given its handles";
	return c->x.theirs.set ? "the peer has not confirmed the exchange"
			       : "the peer has not sent its handles";
}

static void time_over(struct dr_rdv_comm *c, int64_t now_ns)
{
	struct dr_rdv_dialler *d = c->dial;
	struct dr_err e;
	dr_err_set(&e, -ETIMEDOUT,
		"cannot connect to the comm: %u attempt%s in %.1f s, the last one %s: %s",
		d->attempts, d->attempts == 1 ? "" : "s", (double)(now_ns - d->began_ns) / 1e9,
		d->last, waits_for(c));
	final(c, &e, now_ns);
}

static void refused(struct dr_rdv_comm *c, const struct dr_link *l, const struct dr_conv_event *ev,
	int64_t now_ns)
{
	struct dr_err e;
	if (ev->cause == DR_BOOT_LOCAL) {
		attempt_failed(c, ev->cause, l->conv.err.text, now_ns);
		return;
	}
	dr_err_set(&e, -ev->code, "the peer at %s refused the comm: %s", l->peer, l->conv.err.text);
	c->link = NULL;
	dr_xchg_detach(&c->x);
	final(c, &e, now_ns);
}

static void out_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_rdv_comm *c = l->owner;
	switch (ev->kind) {
	case DR_CONV_OPENED:
		dr_xchg_attach(&c->x, &l->conv);
		if (l->conv.state != DR_CONV_ENDED)
			return;
		break;
	case DR_CONV_FRAME:
		if (dr_rdv_comm_frame(c, ev, now_ns))
			return;
		break;
	case DR_CONV_REFUSED:
		refused(c, l, ev, now_ns);
		return;
	default:
		attempt_failed(c, ev->cause, l->conv.err.text, now_ns);
		return;
	}
	dr_link_abort(l);
	attempt_failed(c, l->conv.cause, l->conv.err.text, now_ns);
}

/* ---- dialling ----------------------------------------------------------------------------- */

static void name_route(struct dr_rdv_dialler *d, const struct dr_rdv_route *route)
{
	char to[DR_ADDR_TEXT], from[DR_ADDR_TEXT] = "";
	dr_addr_format(&route->to, to, sizeof(to));
	if (route->from)
		dr_addr_format(&route->from->addr, from, sizeof(from));
	snprintf(d->last, sizeof(d->last), "to %s%s%s", to, from[0] ? " from " : "", from);
}

static int dial_route(struct dr_rdv_comm *c, const struct dr_rdv_route *route, int64_t now_ns)
{
	struct dr_rdv *r = c->rdv;
	struct dr_addr own = { .len = 0 };
	struct dr_net_from from = { .addr = &own };
	struct dr_link_opts o;
	int rc = dr_rdv_link_opts(r, DR_CONV_CLIENT, &o);
	o.list = &r->out;
	o.ops = &out_ops;
	o.owner = c;
	o.conv.key = &c->x.key;
	o.conv.hello.purpose = DR_CONV_COMM;
	o.conv.hello.last_seq = c->x.number;
	memcpy(o.conv.hello.session, c->dial->session, sizeof(o.conv.hello.session));
	if (route->from) {
		own = route->from->addr;
		dr_sa_set_port(&own.ss, 0);
		from.n = 1;
		/* Packets to an address of this host pass through the loopback interface, whatever its NIC. */
		if (route->from->device[0] && !dr_addr_is_local(&route->to))
			from.device = route->from->device;
	}
	if (rc == 0)
		rc = dr_link_dial(&o, &route->to, &from, now_ns, &c->link);
	if (rc == -EPERM && from.device) { /* before Linux 5.7 that needs CAP_NET_RAW */
		from.device = NULL;
		rc = dr_link_dial(&o, &route->to, &from, now_ns, &c->link);
	}
	return rc;
}

static void dial_next(struct dr_rdv_comm *c, int64_t now_ns)
{
	struct dr_rdv_dialler *d = c->dial;
	const struct dr_rdv_route *route = &d->routes[d->index];
	d->attempts++;
	name_route(d, route);
	int rc = dial_route(c, route, now_ns);
	if (rc)
		attempt_failed(c, dr_net_cause(-rc, true), strerror(-rc), now_ns);
	else
		c->link->due_ns = now_ns + c->rdv->timing.dial_ns;
}

static unsigned count_opening(const struct dr_rdv *r)
{
	unsigned n = 0;
	for (const struct dr_rdv_comm *c = r->dials; c; c = c->next)
		n += c->link && c->link->conv.state < DR_CONV_OPEN;
	return n;
}

static bool wants_dial(const struct dr_rdv_comm *c)
{
	return !c->over && !c->link;
}

void dr_rdv_dial_tick(struct dr_rdv *r, int64_t now_ns)
{
	for (struct dr_rdv_comm *c = r->dials; c; c = c->next)
		if (!c->over && now_ns >= c->until_ns)
			time_over(c, now_ns);
	unsigned opening = count_opening(r);
	struct dr_rdv_comm *first = r->turn ? r->turn : r->dials, *c = first;
	do {
		if (!c || opening >= DR_RDV_OPENING_MAX)
			break;
		if (wants_dial(c) && now_ns >= c->dial->next_ns) {
			dial_next(c, now_ns);
			opening += c->link != NULL;
		}
		c = c->next ? c->next : r->dials;
	} while (c != first);
	r->turn = c;
}

int64_t dr_rdv_dial_deadline(const struct dr_rdv *r)
{
	int64_t at = DR_NEVER;
	bool full = count_opening(r) >= DR_RDV_OPENING_MAX;
	for (const struct dr_rdv_comm *c = r->dials; c; c = c->next) {
		if (c->over)
			continue;
		at = DR_MIN(at, c->until_ns);
		if (!full && wants_dial(c))
			at = DR_MIN(at, c->dial->next_ns);
	}
	return at;
}

/* ---- owner's call ------------------------------------------------------------------------- */

static void set_session(struct dr_rdv_dialler *d, const struct dr_rdv_handle *h)
{
	struct dr_wbuf w;
	dr_wbuf_init(&w, d->session, sizeof(d->session));
	dr_wbuf_u64(&w, h->process);
	dr_wbuf_u64(&w, h->listen);
	dr_assert(!w.failed && w.len == sizeof(d->session));
}

static int set_routes(struct dr_rdv_dialler *d, const struct dr_rdv_handle *h,
	const struct dr_rdv_connect_opts *o)
{
	d->local = dr_calloc(o->n_local, sizeof(*d->local));
	if (!d->local)
		return -ENOMEM;
	if (o->n_local)
		memcpy(d->local, o->local, o->n_local * sizeof(*d->local));
	d->n_routes = dr_rdv_routes(h, d->local, o->n_local, d->routes);
	return d->n_routes ? 0 : -EPROTO;
}

static int set_exchange(struct dr_rdv_comm *c, const struct dr_rdv_handle *h,
	const struct dr_rdv_connect_opts *o, int64_t timeout_ns)
{
	struct {
		uint64_t number;
		uint8_t nonce[DR_XCHG_NONCE_BYTES];
	} random;
	struct dr_boot_key key;
	int rc = dr_random_bytes(&random, sizeof(random));
	if (rc)
		return rc;
	dr_rdv_expand_key(h, &key);
	struct dr_xchg_opts xo = { .key = &key, .number = random.number, .nonce = random.nonce };
	rc = dr_xchg_init_dialler(&c->x, &xo, o->offer, timeout_ns);
	sodium_memzero(&key, sizeof(key));
	return rc;
}

int dr_rdv_connect(struct dr_rdv *r, const struct dr_rdv_connect_opts *o, int64_t now_ns,
	struct dr_rdv_comm **out, struct dr_err *e)
{
	struct dr_rdv_handle h;
	int64_t timeout_ns = o->timeout_ns ? o->timeout_ns : TIMEOUT_NS;
	int rc = dr_rdv_handle_decode(o->handle, &h, e);
	if (rc)
		return rc;
	if (o->n_local > DR_RDV_ADDRS_MAX)
		return dr_err_set(e, -EINVAL, "rendezvous: %u local addresses, %d are allowed",
			o->n_local, DR_RDV_ADDRS_MAX);
	struct dr_rdv_comm *c = dr_calloc(1, sizeof(*c));
	struct dr_rdv_dialler *d = dr_calloc(1, sizeof(*d));
	rc = c && d ? set_routes(d, &h, o) : -ENOMEM;
	if (rc == 0)
		rc = set_exchange(c, &h, o, timeout_ns);
	if (rc) {
		dr_free(d ? d->local : NULL);
		dr_free(d);
		if (c)
			dr_xchg_fini(&c->x);
		dr_free(c);
		return dr_err_set(e, rc, "rendezvous: cannot start to connect: %s", strerror(-rc));
	}
	set_session(d, &h);
	d->began_ns = d->next_ns = now_ns;
	d->backoff_ns = r->timing.retry_min_ns;
	*c = (struct dr_rdv_comm){ .rdv = r,
		.dial = d,
		.x = c->x,
		.arg = o->arg,
		.until_ns = now_ns + timeout_ns,
		.next = r->dials };
	r->dials = c;
	*out = c;
	return 0;
}
