/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * Invariants
 * 1. A callback may end any comm or listen, and start others. So these are freed only in the next tick, outside of
 *    callbacks, and a comm that is over has no link.
 * 2. `told` is set before the last callback of a comm; after it the owner's pointer is not used.
 * 3. A listen stays while comms refer to it, so that an exchange is repeated after its listen was closed.
 */

/* ---- comms -------------------------------------------------------------------------------- */

void dr_rdv_comm_over(struct dr_rdv_comm *c)
{
	if (c->link)
		dr_link_abort(c->link);
	c->link = NULL;
	dr_xchg_detach(&c->x);
	c->told = c->over = c->rdv->reap = true;
}

void dr_rdv_comm_failed(struct dr_rdv_comm *c, const struct dr_err *e)
{
	bool tell = !c->told;
	c->told = true;
	if (tell)
		c->rdv->ops.on_failed(c->arg, c, e);
}

static void comm_done(struct dr_rdv_comm *c)
{
	struct dr_rdv_done d = {
		.handles = c->x.theirs.h, .n = c->x.theirs.n, .peer = c->link->peer
	};
	c->told = true;
	c->rdv->ops.on_done(c->arg, c, &d);
}

void dr_rdv_comm_close_link(struct dr_rdv_comm *c, int64_t now_ns)
{
	struct dr_link *l = c->link;
	c->link = NULL;
	dr_xchg_detach(&c->x);
	if (l)
		dr_link_close(l, now_ns);
}

static void goodbye_came(struct dr_rdv_comm *c, int64_t now_ns)
{
	struct dr_err e;
	dr_err_set(&e, -ECANCELED, "the connecting end at %s gave the comm up", c->link->peer);
	dr_rdv_comm_close_link(c, now_ns);
	dr_rdv_comm_failed(c, &e);
	dr_rdv_comm_over(c);
}

bool dr_rdv_comm_frame(struct dr_rdv_comm *c, const struct dr_conv_event *ev, int64_t now_ns)
{
	const json_t *reply;
	switch (dr_xchg_frame(&c->x, ev, &reply)) {
	case DR_XCHG_NOTHING:
		return true;
	case DR_XCHG_ACCEPT:
		c->rdv->ops.on_accept(c->arg, c, reply);
		return c->over || c->x.conv->state != DR_CONV_ENDED;
	case DR_XCHG_ALL:
		if (!c->told)
			comm_done(c);
		if (!c->x.dialler)
			return c->over || c->x.conv->state != DR_CONV_ENDED;
		dr_rdv_comm_close_link(c, now_ns);
		dr_rdv_comm_over(c);
		return true;
	case DR_XCHG_GOODBYE:
		goodbye_came(c, now_ns);
		return true;
	default:
		return false;
	}
}

void dr_rdv_cancel(struct dr_rdv_comm *c)
{
	int64_t now = dr_now_ns();
	if (c->told)
		return;
	c->told = true;
	if (c->x.dialler) {
		dr_xchg_goodbye(&c->x);
		dr_rdv_comm_close_link(c, now);
		dr_rdv_comm_over(c);
	} else {
		dr_rdv_comm_refuse(c, ECANCELED, "the listening end gave the comm up", now);
	}
}

void dr_rdv_set_arg(struct dr_rdv_comm *c, void *arg)
{
	c->arg = arg;
}

const uint8_t *dr_rdv_secret(const struct dr_rdv_comm *c)
{
	dr_assert(!c->x.dialler || c->x.state != DR_XCHG_OFFERED);
	return c->x.secret;
}

int dr_rdv_give(struct dr_rdv_comm *c, const struct dr_handle *handles, unsigned n)
{
	if (c->told)
		return -EINVAL;
	int rc = dr_xchg_give(&c->x, handles, n);
	if (rc == 0 && c->link)
		dr_link_wake(c->link);
	return rc;
}

/* ---- life --------------------------------------------------------------------------------- */

int dr_rdv_link_opts(struct dr_rdv *r, enum dr_conv_role role, struct dr_link_opts *o)
{
	*o = (struct dr_link_opts){ .poller = r->poller,
		.silent_ns = r->timing.silent_ns,
		.conv = { .role = role, .stage_ns = r->timing.stage_ns } };
	memcpy(o->conv.hello.build, r->version, sizeof(o->conv.hello.build));
	int rc = dr_random_bytes(o->conv.hello.nonce, sizeof(o->conv.hello.nonce));
	return rc ? rc : dr_random_bytes(o->conv.ephemeral, sizeof(o->conv.ephemeral));
}

static void set_default(int64_t *v, int64_t ns)
{
	if (*v == 0)
		*v = ns;
}

int dr_rdv_create(struct dr_rdv **out, const struct dr_rdv_opts *opts, const struct dr_rdv_ops *ops,
	struct dr_poller *poller, struct dr_err *e)
{
	dr_assert(ops->on_offer && ops->on_accept && ops->on_done && ops->on_failed);
	if (opts->port_min > opts->port_max || (opts->port_max && !opts->port_min))
		return dr_err_set(e, -EINVAL, "rendezvous: ports %u-%u are no range",
			opts->port_min, opts->port_max);
	if (sodium_init() < 0)
		return dr_err_set(e, -EIO, "rendezvous: cannot initialise libsodium");
	struct dr_rdv *r = dr_calloc(1, sizeof(*r));
	if (!r)
		return dr_err_set(e, -ENOMEM, "rendezvous: out of memory");
	r->ops = *ops;
	r->poller = poller;
	r->process = opts->process;
	r->port_min = opts->port_min;
	r->port_max = opts->port_max;
	r->timing = opts->timing;
	set_default(&r->timing.dial_ns, DR_NS_PER_S);
	set_default(&r->timing.stage_ns, 5 * DR_NS_PER_S);
	set_default(&r->timing.place_ns, 50 * DR_NS_PER_MS);
	set_default(&r->timing.silent_ns, 2 * DR_NS_PER_S);
	set_default(&r->timing.retry_min_ns, 20 * DR_NS_PER_MS);
	set_default(&r->timing.retry_max_ns, 500 * DR_NS_PER_MS);
	snprintf(r->version, sizeof(r->version), "%s", opts->version ? opts->version : "?");
	dr_acceptor_init(&r->acceptor, &dr_rdv_acceptor_ops, poller, &r->in, "rendezvous");
	r->acceptor.places = DR_RDV_UNPROVEN_MAX;
	r->acceptor.place_ns = r->timing.place_ns;
	*out = r;
	return 0;
}

static void free_comm(struct dr_rdv_comm *c)
{
	if (c->rdv->turn == c)
		c->rdv->turn = c->next;
	if (c->listen)
		c->listen->comms--;
	if (c->dial)
		dr_free(c->dial->local);
	dr_free(c->dial);
	dr_xchg_fini(&c->x);
	dr_free(c);
}

static void free_comms(struct dr_rdv_comm **list, bool all)
{
	while (*list) {
		struct dr_rdv_comm *c = *list;
		if (!c->over && !all) {
			list = &c->next;
			continue;
		}
		*list = c->next;
		free_comm(c);
	}
}

static void free_listens(struct dr_rdv *r, bool all)
{
	for (unsigned i = 0; i < DR_RDV_BUCKETS; i++)
		for (struct dr_rdv_listen **at = &r->listens[i]; *at;) {
			struct dr_rdv_listen *l = *at;
			if (!all && (!l->closed || l->comms > 0)) {
				at = &l->next;
				continue;
			}
			*at = l->next;
			sodium_memzero(&l->key, sizeof(l->key));
			dr_free(l);
		}
}

void dr_rdv_destroy(struct dr_rdv *r)
{
	if (!r)
		return;
	dr_acceptor_fini(&r->acceptor);
	dr_links_free(&r->in);
	dr_links_free(&r->out);
	free_comms(&r->accepts, true);
	free_comms(&r->dials, true);
	free_listens(r, true);
	dr_free(r);
}

void dr_rdv_tick(struct dr_rdv *r, int64_t now_ns)
{
	dr_links_tick(&r->in, now_ns);
	dr_links_tick(&r->out, now_ns);
	dr_rdv_accept_tick(r, now_ns);
	dr_rdv_dial_tick(r, now_ns);
	dr_acceptor_tick(&r->acceptor, now_ns);
	dr_links_reap(&r->in);
	dr_links_reap(&r->out);
	if (!r->reap)
		return;
	r->reap = false;
	free_comms(&r->accepts, false);
	free_comms(&r->dials, false);
	free_listens(r, false);
}

int64_t dr_rdv_deadline(const struct dr_rdv *r)
{
	if (r->reap)
		return 0;
	int64_t links = DR_MIN(dr_links_deadline(r->in), dr_links_deadline(r->out));
	int64_t comms = DR_MIN(dr_rdv_accept_deadline(r), dr_rdv_dial_deadline(r));
	return DR_MIN(DR_MIN(links, comms), dr_acceptor_deadline(&r->acceptor));
}
