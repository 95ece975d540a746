/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include <string.h>

/*
 * Connections: how they break, and how those of a plugin come up.
 *
 *	SYN	  the dialer asked; lost requests are repeated every rto
 *	PARKED	  it arrived and no path waits for it: INCOMING, and park_ns to be adopted
 *	ACCEPTED  a path took it; the answer is on its way
 *	OPEN	  the dialer confirmed. The acceptor is READY at the confirmation or the first frame
 *	GONE	  an end left before it was open
 */

enum hs { HS_REQUEST, HS_ANSWER, HS_CONFIRM };

static void hs_arrive(struct dr_sim_world *w, const struct sim_event *ev);

static void hs_send(struct sim_conn *c, unsigned from, enum hs step)
{
	sim_conn_at(c, sim_link_delay(c->w, c->rail, from), hs_arrive, from, 0, step);
}

void sim_path_broke(struct sim_path *p, enum dr_scope scope, int err)
{
	if (!p || p->broken || p->closed || p->fence != SIM_FENCE_NO || p->w->dead[p->node])
		return;
	p->broken = true;
	p->waiting = false;
	sim_hs_end(p);
	struct sim_item *it = sim_item_add(p->w, &p->items, SIM_IT_FAILED);
	it->scope = scope;
	it->err = err;
	it->text = dr_errno_name(err);
	if (p->conn)
		sim_lanes_mute(p->conn, p->node, sim_is_stream(p->w));
}

static void broke_now(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;

	(void)w;
	sim_path_broke(c->end[ev->from], DR_SCOPE_PATH, -(int)ev->a);
}

void sim_path_broke_later(struct sim_conn *c, unsigned node, int64_t delay_ns, int err)
{
	sim_conn_at(c, delay_ns, broke_now, node, 0, (uint64_t)-err);
}

/* A reset that travels by itself, outside the lanes: lost when the link is. */
static void reset_arrive(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;

	if (!sim_link_dead(w, c->rail, ev->from))
		sim_path_broke(c->end[!ev->from], DR_SCOPE_PATH, -ECONNRESET);
}

void sim_conn_reset_peer(struct sim_conn *c, unsigned from)
{
	if (sim_is_stream(c->w) && c->state == SIM_OPEN && !c->mute[from]) {
		struct sim_seg *s = sim_seg_new(c->w, SIM_SEG_RESET);

		s->bytes = 1;
		sim_lane_send(c, from, 0, s);
	} else {
		sim_conn_at(c, sim_link_delay(c->w, c->rail, from), reset_arrive, from, 0, 0);
	}
}

void sim_conn_detach(struct sim_path *p)
{
	struct sim_conn *c = p->conn;

	p->waiting = false;
	p->conn = NULL;
	if (!c)
		return;
	c->end[p->node] = NULL;
	c->mute[p->node] = true;
	sim_lanes_reopen(c, p->node);
	if (c->state == SIM_OPEN)
		return;
	if (c->state == SIM_PENDING) {
		sim_tcp_dialer_left(c);
		return;
	}
	if (c->state == SIM_ACCEPTED && p->w->o.personality == DR_SIM_PLUGIN)
		sim_conn_reset_peer(c, p->node);
	c->state = SIM_GONE;
}

void sim_path_up(struct sim_path *p)
{
	p->ready = true;
	sim_check_peers(p);
}

void sim_conn_ready(struct sim_path *p)
{
	if (!p || p->ready || p->broken || p->closed || p->fence != SIM_FENCE_NO)
		return;
	p->conn->state = SIM_OPEN;
	sim_path_up(p);
	(void)sim_item_add(p->w, &p->items, SIM_IT_READY);
}

struct sim_conn *sim_conn_new(struct dr_sim_world *w, unsigned port, unsigned rail, unsigned dialer)
{
	struct sim_conn *c = sim_alloc(sizeof(*c));

	c->w = w;
	c->port = port;
	c->rail = rail;
	c->dialer = dialer;
	c->cut_after = UINT16_MAX;
	for (unsigned from = 0; from < 2; from++)
		for (unsigned n = 0; n < SIM_LANES; n++)
			sim_lane_init(w, &c->lane[from][n]);
	c->next = w->conns;
	w->conns = c;
	return c;
}

void sim_conn_join(struct sim_conn *c, struct sim_path *p)
{
	if (c->end[p->node])
		sim_violation(p->w, "two paths of node %u are ends of one connection", p->node);
	p->conn = c;
	c->end[p->node] = p;
	c->known[p->node] = true;
	c->id[p->node] = dr_path_ident(&p->par);
}

void sim_conn_dial(struct sim_path *p)
{
	const struct sim_rail *r = sim_rail_of(p->base.rail);
	struct sim_conn *c = sim_conn_new(p->w, r->port, r->base.index, p->node);

	c->channel = p->par.channel;
	c->index = p->par.index;
	c->gen = p->par.gen;
	sim_conn_join(c, p);
	hs_send(c, p->node, HS_REQUEST);
}

static void accepted(struct sim_conn *c, struct sim_path *p)
{
	p->waiting = false;
	sim_conn_join(c, p);
	c->state = SIM_ACCEPTED;
	hs_send(c, p->node, HS_ANSWER);
}

static bool same(
	const struct sim_conn *c, const struct sim_rail *r, uint32_t channel, unsigned index)
{
	return c->port == r->port && c->rail == r->base.index && c->channel == channel &&
	       c->index == index;
}

void sim_conn_adopt(struct sim_path *p)
{
	p->waiting = true;
	for (struct sim_conn *c = p->w->conns; c; c = c->next)
		if (c->state == SIM_PARKED && c->dialer != p->node && c->gen == p->par.gen &&
			same(c, sim_rail_of(p->base.rail), p->par.channel, p->par.index)) {
			accepted(c, p);
			return;
		}
}

static void unpark(struct sim_conn *c)
{
	if (c->state != SIM_PARKED)
		return;
	c->state = SIM_GONE;
	sim_path_broke_later(
		c, c->dialer, sim_link_delay(c->w, c->rail, !c->dialer), -ECONNREFUSED);
}

static void park_over(struct dr_sim_world *w, const struct sim_event *ev)
{
	(void)w;
	unpark(ev->obj);
}

static void request(struct dr_sim_world *w, struct sim_conn *c)
{
	unsigned to = !c->dialer;
	struct sim_rail *r = sim_conn_rail(c, to);
	const struct sim_rail *dr = sim_conn_rail(c, c->dialer);
	int64_t back = sim_link_delay(w, c->rail, to);

	if (!r || r->closed || w->dead[to]) {
		sim_path_broke_later(c, c->dialer, back, -ECONNREFUSED);
		return;
	}
	if (!dr || memcmp(r->token, dr->token, DR_TOKEN_LEN) != 0) {
		sim_path_broke_later(c, c->dialer, back, -EACCES);
		return;
	}
	for (struct sim_path *p = r->paths; p; p = p->next)
		if (p->waiting && p->par.gen == c->gen &&
			same(c, r, p->par.channel, p->par.index)) {
			accepted(c, p);
			return;
		}
	for (struct sim_conn *o = w->conns; o; o = o->next)
		if (o->dialer == c->dialer && same(o, r, c->channel, c->index))
			unpark(o);
	c->state = SIM_PARKED;
	struct sim_item *it = sim_item_add(w, &r->items, SIM_IT_INCOMING);
	it->channel = c->channel;
	it->index = c->index;
	it->gen = c->gen;
	sim_conn_at(c, w->o.park_ns, park_over, 0, 0, 0);
}

static void hs_arrive(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;

	if (c->state == SIM_GONE)
		return;
	if (w->link[c->rail][ev->from].clog_until > w->now) {
		sim_at(w, w->link[c->rail][ev->from].clog_until, *ev);
		return;
	}
	if (sim_link_dead(w, c->rail, ev->from)) {
		sim_at(w, w->now + w->o.rto_ns, *ev);
		return;
	}
	switch ((enum hs)ev->a) {
	case HS_REQUEST:
		request(w, c);
		return;
	case HS_ANSWER:
		sim_conn_ready(c->end[c->dialer]);
		hs_send(c, c->dialer, HS_CONFIRM);
		return;
	case HS_CONFIRM:
		sim_conn_ready(c->end[!c->dialer]);
		return;
	}
}
