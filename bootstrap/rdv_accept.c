/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/wire.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/*
 * Listening end. HELLO's session names process and listen, so the key is known before the proof; its last seq is the
 * comm number. Connections without proof or OFFER are bounded in number (acceptor.h) and time
 * (stage_ns): an honest peer proves its key in two round trips. Comms that are not forgotten yet
 * are bounded for each address: who has the handle's key can begin many and end none.
 */
static void in_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns);

static const struct dr_link_ops in_ops = { .event = in_event };

/* ---- connections without proof or OFFER --------------------------------------------------- */

static struct dr_rdv_listen *find_listen(
	const struct dr_rdv *r, const uint8_t session[DR_CONV_SESSION_BYTES])
{
	struct dr_rbuf b;
	uint64_t process = 0, number = 0;
	dr_rbuf_init(&b, session, DR_CONV_SESSION_BYTES);
	dr_rbuf_u64(&b, &process);
	dr_rbuf_u64(&b, &number);
	struct dr_rdv_listen *l = r->listens[number % DR_RDV_BUCKETS];
	while (l && l->number != number)
		l = l->next;
	return process == r->process ? l : NULL;
}

static bool key_of(void *arg, const struct dr_conv_hello *peer, struct dr_boot_key *out)
{
	const struct dr_rdv_listen *l = find_listen(arg, peer->session);
	if (l)
		*out = l->key;
	return l != NULL;
}

static void accepted(struct dr_acceptor *a, int fd, const struct dr_addr *from, int64_t now_ns)
{
	struct dr_rdv *r = dr_container_of(a, struct dr_rdv, acceptor);
	struct dr_link_opts o;
	struct dr_link *l;
	int rc = dr_rdv_link_opts(r, DR_CONV_SERVER, &o);
	o.list = &r->in;
	o.ops = &in_ops;
	o.owner = o.conv.of_arg = r;
	o.conv.key_of = key_of;
	if (rc || dr_link_accept(&o, fd, from, now_ns, &l)) {
		close(fd);
		return;
	}
	l->role = DR_RDV_UNPROVEN;
	l->due_ns = now_ns + r->timing.stage_ns;
	l->due_text = "no hello and proof in time";
}

static bool pending(const struct dr_link *l)
{
	return l->role != DR_RDV_BOUND;
}

const struct dr_acceptor_ops dr_rdv_acceptor_ops = { .accepted = accepted, .pending = pending };

/* ---- from the proof to the exchange ------------------------------------------------------- */

static void refuse_link(struct dr_rdv *r, struct dr_link *l, enum dr_boot_cause cause,
	const char *text, int64_t now_ns)
{
	dr_acceptor_warn(&r->acceptor, l, text, now_ns);
	dr_conv_refuse(&l->conv, cause, ECONNREFUSED, text);
	dr_link_close(l, now_ns);
	dr_acceptor_resume(&r->acceptor);
}

static struct dr_rdv_comm *find_comm(
	const struct dr_rdv *r, const struct dr_rdv_listen *listen, uint64_t number)
{
	struct dr_rdv_comm *c = r->accepts;
	while (c && (c->over || c->listen != listen || c->x.number != number))
		c = c->next;
	return c;
}

/* NULL, and the link is refused: this listen takes no offers any more. */
static struct dr_rdv_listen *open_listen(struct dr_rdv *r, struct dr_link *l, int64_t now_ns)
{
	struct dr_rdv_listen *listen = find_listen(r, l->conv.peer.session);
	if (listen && (!listen->closed || find_comm(r, listen, l->conv.peer.last_seq)))
		return listen;
	refuse_link(r, l, DR_BOOT_GONE, "the listen comm is closed", now_ns);
	return NULL;
}

static void identified(struct dr_rdv *r, struct dr_link *l, int64_t now_ns)
{
	if (!open_listen(r, l, now_ns))
		return;
	l->role = DR_RDV_PROVEN;
	l->due_ns = now_ns + r->timing.stage_ns;
	l->due_text = "no OFFER in time";
	if (dr_conv_welcome(&l->conv, 0, now_ns))
		dr_link_abort(l);
}

static void comm_end(struct dr_rdv_comm *c, const struct dr_err *e, int64_t now_ns)
{
	if (!c->told)
		dr_rdv_comm_refuse(c, -e->code, e->text, now_ns);
	dr_rdv_comm_failed(c, e);
	dr_rdv_comm_over(c);
}

/* The oldest comm of this address ends if it has too many; the newest are first. */
static void make_room(struct dr_rdv *r, const struct dr_link *l, int64_t now_ns)
{
	struct dr_rdv_comm *oldest = NULL;
	struct dr_err e;
	unsigned n = 0;
	for (struct dr_rdv_comm *c = r->accepts; c; c = c->next)
		if (!c->over && dr_same_host(&c->from, &l->addr.ss)) {
			oldest = c;
			n++;
		}
	if (n < DR_RDV_COMMS_MAX)
		return;
	dr_err_set(&e, -ENOBUFS, "%u comms of this address are not complete; the oldest ends", n);
	dr_acceptor_warn(&r->acceptor, l, e.text, now_ns);
	comm_end(oldest, &e, now_ns);
}

static struct dr_rdv_comm *comm_create(struct dr_rdv_listen *listen, const struct dr_link *l,
	const struct dr_xchg_offer *offer, int64_t now_ns)
{
	uint64_t number = l->conv.peer.last_seq;
	uint8_t nonce[DR_XCHG_NONCE_BYTES];
	struct dr_xchg_opts o = { .key = &listen->key, .number = number, .nonce = nonce };
	struct dr_rdv_comm *c = dr_calloc(1, sizeof(*c));
	if (!c || dr_random_bytes(nonce, sizeof(nonce))) {
		dr_free(c);
		return NULL;
	}
	c->rdv = listen->rdv;
	c->listen = listen;
	c->from = l->addr.ss;
	c->until_ns = now_ns + offer->timeout_ns;
	c->next = c->rdv->accepts;
	c->rdv->accepts = c;
	listen->comms++;
	dr_xchg_init_acceptor(&c->x, &o, offer);
	return c;
}

static void bind_link(struct dr_rdv_comm *c, struct dr_link *l)
{
	if (c->link) /* the dialler gave it up */
		dr_link_abort(c->link);
	c->link = l;
	l->role = DR_RDV_BOUND;
	l->owner = c;
	l->due_ns = DR_NEVER;
	dr_acceptor_resume(&c->rdv->acceptor);
	dr_xchg_attach(&c->x, &l->conv);
}

static void offer_came(
	struct dr_rdv *r, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_xchg_offer offer;
	uint64_t number = l->conv.peer.last_seq;
	struct dr_rdv_listen *listen = open_listen(r, l, now_ns);
	if (!listen)
		return;
	if (ev->type != DR_CONV_FRAME_OFFER || dr_xchg_offer_read(ev->json, &offer)) {
		refuse_link(
			r, l, DR_BOOT_PROTOCOL, "the first message is not a valid OFFER", now_ns);
		return;
	}
	struct dr_rdv_comm *c = find_comm(r, listen, number);
	if (c && memcmp(c->x.peer_nonce, offer.nonce, sizeof(offer.nonce)) != 0) {
		refuse_link(
			r, l, DR_BOOT_PROTOCOL, "the OFFER differs from the earlier one", now_ns);
		return;
	}
	bool first = !c;
	if (first) {
		make_room(r, l, now_ns);
		c = comm_create(listen, l, &offer, now_ns);
	}
	if (!c) {
		refuse_link(r, l, DR_BOOT_LOCAL, "out of memory", now_ns);
		return;
	}
	bind_link(c, l);
	if (first)
		r->ops.on_offer(listen->arg, c, offer.offer);
	else if (l->conv.state == DR_CONV_ENDED) { /* refused again */
		c->link = NULL;
		dr_xchg_detach(&c->x);
		dr_link_close(l, now_ns);
	}
}

static void bound_event(
	struct dr_rdv_comm *c, struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	if (ev->kind == DR_CONV_FRAME && dr_rdv_comm_frame(c, ev, now_ns))
		return;
	if (ev->kind == DR_CONV_FRAME) {
		dr_acceptor_warn(&c->rdv->acceptor, l, l->conv.err.text, now_ns);
		dr_link_abort(l);
	}
	/* The dialler comes again. */
	c->link = NULL;
	dr_xchg_detach(&c->x);
}

static void in_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	if (l->role == DR_RDV_BOUND) {
		bound_event(l->owner, l, ev, now_ns);
		return;
	}
	struct dr_rdv *r = l->owner;
	if (ev->kind == DR_CONV_IDENTIFIED) {
		identified(r, l, now_ns);
	} else if (ev->kind == DR_CONV_FRAME) {
		offer_came(r, l, ev, now_ns);
	} else {
		dr_acceptor_resume(&r->acceptor);
		dr_acceptor_warn(&r->acceptor, l, l->conv.err.text, now_ns);
	}
}

/* ---- owner's calls ------------------------------------------------------------------------ */

void dr_rdv_comm_refuse(struct dr_rdv_comm *c, int code, const char *text, int64_t now_ns)
{
	struct dr_link *l = c->link;
	dr_xchg_refuse(&c->x, code > 0 && code < 128 ? code : ECONNREFUSED, text);
	dr_xchg_detach(&c->x);
	c->link = NULL;
	if (l)
		dr_link_close(l, now_ns);
}

void dr_rdv_refuse(struct dr_rdv_comm *c, int code, const char *text)
{
	dr_assert(!c->x.dialler);
	if (c->told)
		return;
	c->told = true;
	dr_rdv_comm_refuse(c, code, text, dr_now_ns());
}

int dr_rdv_accept(struct dr_rdv_comm *c, const json_t *reply)
{
	if (c->told)
		return -EINVAL;
	int rc = dr_xchg_accept(&c->x, reply);
	if (rc == 0 && c->link)
		dr_link_wake(c->link);
	return rc;
}

/* ---- time --------------------------------------------------------------------------------- */

static void time_over(struct dr_rdv_comm *c, int64_t now_ns)
{
	struct dr_err e;
	if (c->x.state == DR_XCHG_OFFERED)
		dr_err_set(&e, -ETIMEDOUT, "an offered comm was not answered in time");
	else
		dr_err_set(&e, -ETIMEDOUT, "the connecting end %s in time",
			!c->link	? "did not connect again"
			: !c->x.own.set ? "did not get this end's handles"
					: "did not confirm the exchange");
	comm_end(c, &e, now_ns);
}

void dr_rdv_accept_tick(struct dr_rdv *r, int64_t now_ns)
{
	for (struct dr_rdv_comm *c = r->accepts; c; c = c->next)
		if (!c->over && now_ns >= c->until_ns)
			time_over(c, now_ns);
}

int64_t dr_rdv_accept_deadline(const struct dr_rdv *r)
{
	int64_t at = DR_NEVER;
	for (const struct dr_rdv_comm *c = r->accepts; c; c = c->next)
		if (!c->over)
			at = DR_MIN(at, c->until_ns);
	return at;
}
