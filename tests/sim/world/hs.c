/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include <string.h>

/*
 * What the handshakes of the personalities have in common: which of them a path runs, what links remember of
 * them, and strangers.
 */

static bool is_verbs(const struct dr_sim_world *w)
{
	return w->o.personality == DR_SIM_REMOTE_WRITE;
}

void sim_hs_init(struct sim_path *p)
{
	struct sim_rail *r = sim_rail_of(p->base.rail);
	struct dr_path_ident id = dr_path_ident(&p->par);

	if (sim_is_stream(p->w))
		dr_tcp_hs_init(&p->tcp, r->admission, &id);
	else if (is_verbs(p->w))
		dr_verbs_hs_init(
			&p->verbs, r->greetings, &id, 1 + p->w->o.qps + DR_VERBS_PROBE_QPS);
}

void sim_hs_end(struct sim_path *p)
{
	dr_tcp_hs_end(&p->tcp);
	dr_verbs_hs_end(&p->verbs);
}

void sim_hs_fini(struct sim_path *p)
{
	if (sim_is_stream(p->w))
		dr_tcp_hs_fini(&p->tcp);
	else if (is_verbs(p->w))
		dr_verbs_hs_fini(&p->verbs);
}

bool sim_hs_is_new(const struct sim_path *p)
{
	return p->tcp.state == TCP_HS_NEW && p->verbs.state == VB_HS_NEW && !p->conn && !p->waiting;
}

void sim_hs_connect(struct sim_path *p)
{
	if (sim_is_stream(p->w))
		sim_tcp_connect(p);
	else if (is_verbs(p->w))
		sim_verbs_connect(p);
	else if (p->par.connector)
		sim_conn_dial(p);
	else
		sim_conn_adopt(p);
}

bool sim_hs_item(struct sim_path *p, const struct sim_item *it)
{
	return is_verbs(p->w) ? sim_verbs_item(p, it) : sim_tcp_item(p, it);
}

/* ---- what was said before ---- */

void sim_hs_said(struct sim_link *l, unsigned port, const void *data, unsigned len)
{
	struct sim_said *s = &l->said[l->n_said++ % SIM_SAID];

	dr_assert(len <= sizeof(s->data));
	s->len = len;
	s->port = port;
	memcpy(s->data, data, len);
}

const struct sim_said *sim_hs_recall(const struct sim_link *l, unsigned port, struct dr_rng *g)
{
	unsigned n = DR_MIN(l->n_said, (unsigned)SIM_SAID);
	const struct sim_said *s = &l->said[dr_rng_below(g, n + !n)];

	return n > 0 && s->port == port ? s : NULL;
}

const struct sim_path *sim_hs_newest(const struct sim_rail *r, uint32_t channel, unsigned index)
{
	const struct sim_path *best = NULL;

	for (const struct sim_path *p = r ? r->paths : NULL; p; p = p->next)
		if (p->par.channel == channel && p->par.index == index &&
			(!best || p->par.gen > best->par.gen))
			best = p;
	return best;
}

/* Some path of this rail; NULL: there is none. */
const struct sim_path *sim_hs_any(const struct sim_rail *r, struct dr_rng *g)
{
	const struct sim_path *p = r ? r->paths : NULL;

	for (unsigned skip = (unsigned)dr_rng_below(g, 4); p && p->next && skip > 0; skip--)
		p = p->next;
	return p;
}

/* ---- strangers ---- */

void dr_sim_stranger(struct dr_sim_world *w, unsigned port, unsigned rail, unsigned to,
	enum dr_sim_stranger what, uint64_t seed)
{
	struct dr_rng g;
	bool came = false;

	dr_rng_seed(&g, seed);
	if (sim_is_stream(w))
		came = sim_tcp_stranger(w, port, rail, to, what, &g);
	else if (is_verbs(w))
		came = sim_verbs_stranger(w, port, rail, to, what, &g);
	w->counts.strangers += came;
}
