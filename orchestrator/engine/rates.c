/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/rates.h"

/*
 * Data waited on a rail since the last sample if one of its channels had more bytes at its
 * transport then than were acknowledged since, or something there was not acknowledged nearly all
 * the time, for another reason than the rail's delay. It was not held back by the peer's receive
 * buffer.
 */
enum { LIMITED_PERCENT = 20, BUSY_PERCENT = 95, DELAYS = 4 };

void dr_rates_init(struct dr_rates *r, struct dr_rail_rates *judge)
{
	*r = (struct dr_rates){ .judge = judge };
	for (unsigned i = 0; i < DR_RAILS_MAX; i++)
		r->waited_ns[i] = DR_NEVER;
}

struct sample {
	uint64_t bytes; /* that were acknowledged */
	bool waited;
};

/* Adds what a channel shows to the sample of its rail. */
static void ask(struct dr_rate_flow *f, struct dr_channel *ch, int64_t dt, struct sample *of)
{
	struct dr_rate_flow was = *f;
	struct dr_path_stats s = { 0 };
	int64_t since;
	unsigned i;

	f->path = dr_channel_owed(ch, &i, &since) ? dr_channel_path(ch, i) : NULL;
	if (!f->path)
		return;
	f->path->ops->stats(f->path, &s);
	of += f->path->rail->index;
	f->acked = s.acked_bytes;
	f->unacked = s.window_shut ? 0 : s.unacked_bytes;
	f->held_ns = s.held_ns;
	f->busy_ns = s.busy_ns;
	if (was.path != f->path || f->acked < was.acked)
		return;
	of->waited |= (was.unacked > f->acked - was.acked ||
			      ((f->busy_ns - was.busy_ns) * 100 >= dt * BUSY_PERCENT &&
				      s.rtt_min_ns * DELAYS < dt)) &&
		      !s.window_shut && (f->held_ns - was.held_ns) * 100 < dt * LIMITED_PERCENT;
	of->bytes += f->acked - was.acked;
}

uint32_t dr_rates_sample(
	struct dr_rates *r, struct dr_channel *const *channel, unsigned n, int64_t now)
{
	struct sample of[DR_RAILS_MAX] = { 0 };
	uint32_t changed = 0;

	for (unsigned i = 0; i < n; i++)
		ask(&r->flow[i], channel[i], now - r->sampled_ns, of);
	for (unsigned i = 0; i < r->judge->n_rails; i++) {
		if (!of[i].waited)
			r->waited_ns[i] = DR_NEVER;
		else if (r->waited_ns[i] == DR_NEVER)
			r->waited_ns[i] = r->sampled_ns;
		if (dr_rate_acked(r->judge, i, of[i].bytes, r->waited_ns[i], now))
			changed |= 1u << i;
	}
	r->sampled_ns = now;
	return changed;
}
