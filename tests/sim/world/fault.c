/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

/* What a test does to the world. */

void dr_sim_link_get(
	const struct dr_sim_world *w, unsigned rail, unsigned from_node, struct dr_sim_link *out)
{
	*out = w->link[rail][from_node].o;
}

void dr_sim_link_set(
	struct dr_sim_world *w, unsigned rail, unsigned from_mask, const struct dr_sim_link *l)
{
	for (unsigned n = 0; n < 2; n++)
		if (from_mask & (1u << n))
			w->link[rail][n].o = *l;
}

void dr_sim_cut(struct dr_sim_world *w, unsigned rail, unsigned from_mask, bool on)
{
	for (unsigned n = 0; n < 2; n++)
		if (from_mask & (1u << n))
			w->link[rail][n].cut = on;
	if (on && from_mask)
		sim_lanes_probe(w, rail);
}

void dr_sim_hole(struct dr_sim_world *w, unsigned rail, unsigned from_mask, uint32_t bytes)
{
	for (unsigned n = 0; n < 2; n++)
		if (from_mask & (1u << n))
			w->link[rail][n].passes = bytes;
}

void dr_sim_mute_dgrams(struct dr_sim_world *w, unsigned rail, unsigned from_mask, bool on)
{
	for (unsigned n = 0; n < 2; n++)
		if (from_mask & (1u << n))
			w->link[rail][n].mute = on;
}

void dr_sim_clog(struct dr_sim_world *w, unsigned rail, unsigned from_mask, int64_t for_ns)
{
	for (unsigned n = 0; n < 2; n++)
		if (from_mask & (1u << n))
			w->link[rail][n].clog_until = w->now + for_ns;
}

void dr_sim_cut_hello(struct dr_sim_world *w, unsigned rail, unsigned from_node, unsigned bytes)
{
	w->link[rail][from_node].cut_hello = 1 + bytes;
}

bool dr_sim_link_is_cut(const struct dr_sim_world *w, unsigned rail, unsigned from_node)
{
	return sim_link_dead(w, rail, from_node);
}

static void rail_is_down(struct sim_rail *r, bool paths_too)
{
	struct sim_item *it = sim_item_add(r->w, &r->items, SIM_IT_FAILED);

	it->scope = DR_SCOPE_RAIL;
	it->err = -ENETDOWN;
	it->text = "link down";
	for (struct sim_path *p = paths_too ? r->paths : NULL; p; p = p->next)
		sim_path_broke(p, DR_SCOPE_RAIL, -ENETDOWN);
}

/* lane: the rail; a: number of this link-down and whether the paths are told too. */
static void tell_down(struct dr_sim_world *w, const struct sim_event *ev)
{
	if (!w->down[ev->lane] || ev->a >> 1 != w->down_no[ev->lane])
		return;
	w->told[ev->lane][ev->from] = true;
	for (struct sim_rail *r = w->rails[ev->from]; r; r = r->next)
		if (r->base.index == ev->lane && !r->closed && !w->dead[ev->from])
			rail_is_down(r, ev->a & 1);
}

void dr_sim_link_down(
	struct dr_sim_world *w, unsigned rail, unsigned told_mask, int64_t delay_ns, bool paths_too)
{
	w->down[rail] = true;
	w->down_no[rail]++;
	sim_lanes_probe(w, rail);
	for (unsigned n = 0; n < 2; n++)
		if (told_mask & (1u << n))
			sim_at(w, w->now + delay_ns,
				(struct sim_event){ .fn = tell_down,
					.from = n,
					.lane = rail,
					.a = 2 * (uint64_t)w->down_no[rail] + paths_too });
}

void dr_sim_link_up(struct dr_sim_world *w, unsigned rail)
{
	w->down[rail] = false;
	w->told[rail][0] = w->told[rail][1] = false;
}

static struct sim_path *first_path(const struct dr_sim_world *w, const struct dr_sim_place *at)
{
	const struct sim_rail *r = w->rail[at->node][at->port][at->rail];

	return r ? r->paths : NULL;
}

static bool is_at(const struct sim_path *p, const struct dr_sim_place *at)
{
	return p->par.channel == at->channel && p->par.index == at->index;
}

struct dr_path *dr_sim_path_find(struct dr_sim_world *w, const struct dr_sim_place *at)
{
	for (struct sim_path *p = first_path(w, at); p; p = p->next) /* newest first */
		if (!p->closed && is_at(p, at))
			return &p->base;
	return NULL;
}

static bool is_up(const struct sim_path *p)
{
	return p && p->ready && !p->broken && !p->closed && p->fence == SIM_FENCE_NO &&
	       !p->w->dead[p->node];
}

unsigned dr_sim_path_ends(const struct dr_sim_world *w, const struct dr_sim_place *at)
{
	const struct sim_path *p = first_path(w, at);

	while (p && (p->closed || !is_at(p, at)))
		p = p->next;
	return is_up(p) ? 1 + (p->conn && is_up(p->conn->end[!p->node])) : 0;
}

bool dr_sim_path_quarantined(const struct dr_sim_world *w, const struct dr_sim_place *at)
{
	for (const struct sim_path *p = first_path(w, at); p; p = p->next)
		if (p->quarantined && is_at(p, at))
			return true;
	return false;
}

bool dr_sim_path_holds(const struct dr_sim_world *w, const struct dr_sim_place *at)
{
	for (const struct sim_path *p = first_path(w, at); p; p = p->next)
		if (p->quarantined && p->holds && is_at(p, at))
			return true;
	return false;
}

void dr_sim_path_break(struct dr_path *dp, unsigned at_mask, int err)
{
	struct sim_path *p = sim_path_of(dp);
	struct sim_path *peer = p->conn ? p->conn->end[!p->node] : NULL;

	if (at_mask & (1u << p->node))
		sim_path_broke(p, DR_SCOPE_PATH, err);
	if (at_mask & (1u << !p->node))
		sim_path_broke(peer, DR_SCOPE_PATH, err);
}

int dr_sim_next_completion(struct dr_path *sender_end, enum dr_sim_wc wc, int64_t ns)
{
	struct sim_path *p = sim_path_of(sender_end);

	dr_assert(p->par.sender);
	if (!p->conn)
		return -ENOTCONN;
	if (sim_is_stream(p->w) && wc != DR_SIM_WC_OK && wc < DR_SIM_WC_ERR_LANDED)
		return -ENOTSUP;
	p->conn->wc = wc;
	p->conn->wc_ns = ns;
	return 0;
}

int dr_sim_drop_credit(struct dr_path *receiver_end)
{
	struct sim_path *p = sim_path_of(receiver_end);

	dr_assert(!p->par.sender);
	if (sim_is_stream(p->w))
		return -ENOTSUP;
	if (!p->conn)
		return -ENOTCONN;
	p->conn->drop_credit = true;
	return 0;
}

void dr_sim_dup_delivered(struct dr_path *receiver_end, unsigned later)
{
	struct sim_path *p = sim_path_of(receiver_end);

	dr_assert(!p->par.sender);
	p->dup_next = later + 1;
}

void dr_sim_clock_stand(struct dr_sim_world *w, unsigned node, int64_t for_ns)
{
	dr_assert(for_ns >= 0 && for_ns <= sim_now(w, node));
	w->skew[node] += for_ns;
}

void dr_sim_fence_time(struct dr_sim_world *w, unsigned rail, unsigned node, int64_t ns, bool stuck)
{
	w->fence_ns[rail][node] = ns;
	w->fence_stuck[rail][node] = stuck;
}

void dr_sim_kill(struct dr_sim_world *w, unsigned node)
{
	if (w->dead[node])
		return;
	for (struct sim_conn *c = w->conns; c; c = c->next) {
		if (c->state == SIM_PARKED && c->dialer != node) {
			c->state = SIM_GONE;
			sim_path_broke_later(
				c, c->dialer, sim_link_delay(w, c->rail, node), -ECONNREFUSED);
		}
		if (!c->end[node])
			continue;
		if (c->state == SIM_OPEN || c->state == SIM_ACCEPTED)
			sim_conn_reset_peer(c, node);
		sim_path_tear_down(c->end[node]);
	}
	w->dead[node] = true;
	sim_tcp_kill(w, node);
}
