/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

/*
 * Samples what the transport acknowledged to sending channels, for the judge of the rails' rates
 * (detect/rate.h):
 *
 *  1. Data waited on a rail since the last sample if one of its channels had more bytes at its
 *     transport then than were acknowledged since, or something there was not acknowledged nearly
 *     all the time, for another reason than the rail's delay. It was not held back by the peer's
 *     receive buffer.
 *  2. A rail that is down, and a peer whose process is stalled, are not judged.
 */
enum { LIMITED_PERCENT = 20, BUSY_PERCENT = 95, DELAYS = 4 };

static void tell(struct dr_manager *m, unsigned r)
{
	struct dr_rate_state st;

	if (!m->prm.ops || !m->prm.ops->degraded)
		return;
	dr_rail_rates_get(m->rates, r, &st);
	m->prm.ops->degraded(m->prm.arg, r, &st, m->now);
}

struct sample {
	uint64_t bytes; /* that were acknowledged */
	bool waited;	/* see rule 1 */
};

/* Adds what a channel shows to the sample of its rail. */
static void ask(const struct dr_manager *m, struct mgr_channel *c, struct sample of[DR_RAILS_MAX])
{
	struct mgr_flow was = c->flow, *f = &c->flow;
	struct dr_path_stats s = { 0 };
	int64_t since, dt = m->now - m->sampled_ns;
	struct sample *sample;
	unsigned i;

	f->path = dr_channel_owed(c->ch, &i, &since) ? dr_channel_path(c->ch, i) : NULL;
	if (!f->path)
		return;
	f->path->ops->stats(f->path, &s);
	sample = &of[f->path->rail->index];
	f->acked = s.acked_bytes;
	f->unacked = s.window_shut ? 0 : s.unacked_bytes;
	f->held_ns = s.held_ns;
	f->busy_ns = s.busy_ns;
	if (was.path != f->path || f->acked < was.acked)
		return;
	sample->waited |= (was.unacked > f->acked - was.acked ||
				  ((f->busy_ns - was.busy_ns) * 100 >= dt * BUSY_PERCENT &&
					  s.rtt_min_ns * DELAYS < dt)) &&
			  !s.window_shut && (f->held_ns - was.held_ns) * 100 < dt * LIMITED_PERCENT;
	sample->bytes += f->acked - was.acked;
}

void dr_manager_rates(struct dr_manager *m)
{
	struct sample of[DR_RAILS_MAX] = { 0 };

	if (m->now - m->sampled_ns < DR_RATE_SAMPLE_NS)
		return;
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		ask(m, c, of);
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		if (!of[r].waited)
			m->waited_ns[r] = DR_NEVER;
		else if (m->waited_ns[r] == DR_NEVER)
			m->waited_ns[r] = m->sampled_ns;
		if (m->rail[r].state == DR_RAIL_DOWN || m->stalled)
			continue;
		if (dr_rate_acked(m->rates, r, of[r].bytes, m->waited_ns[r], m->now))
			tell(m, r);
	}
	m->sampled_ns = m->now;
}
