/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include "base/log.h"

#include <string.h>

/*
 * Samples what the channels of a manager send, for the judge of the rails' rates (detect/rate.h):
 *
 *  1. What the peer acknowledged costs nothing to know. The transport is asked, with system calls, only where
 *     that is less than could be expected of the rail.
 *  2. Data waited on a rail since the last sample if one of its channels had more bytes at its transport then than
 *     were acknowledged since, or something there was not acknowledged nearly all the time, for another reason than
 *     the rail's delay. It was not held back by the peer's receive buffer.
 *  3. A rail that is down, and a peer whose process is stalled, are not judged.
 *  4. What a channel sent since the last sample counts in the next one, too, if the channel is removed before it.
 */
enum { LIMITED_PERCENT = 20, BUSY_PERCENT = 95, DELAYS = 4 };

static unsigned rail_of(const struct mgr_channel *c, unsigned path)
{
	return path == 0 ? c->spec.primary : c->spec.shadow;
}

static void tell(struct dr_manager *m, unsigned r)
{
	struct dr_rate_state st;

	if (!m->prm.ops || !m->prm.ops->degraded)
		return;
	dr_rail_rates_get(m->rates, r, &st);
	m->prm.ops->degraded(m->prm.arg, r, &st, m->now);
}

/* The rail that carries the channel's data, or carried it last. */
static unsigned data_rail(struct mgr_channel *c)
{
	int active = dr_channel_active(c->ch);

	if (active >= 0)
		c->flow.rail = rail_of(c, (unsigned)active);
	return c->flow.rail;
}

/* Bytes that the peer acknowledged since the last call. */
static uint64_t newly_done(struct mgr_channel *c)
{
	uint64_t done = dr_channel_bytes_done(c->ch), before = c->flow.done;

	c->flow.done = done;
	return dr_channel_is_sender(c->ch) ? done - before : 0;
}

/* The bytes that the transport acknowledged on path *path since the last sample; *waited: see rule 2. */
static uint64_t ask(const struct dr_manager *m, struct mgr_channel *c, unsigned *path, bool *waited)
{
	struct mgr_flow was = c->flow, *f = &c->flow;
	struct dr_path_stats s;
	int64_t dt;

	*waited = false;
	f->known = dr_channel_sending(c->ch, path, &f->gen, &s);
	if (!f->known)
		return 0;
	f->path = *path;
	f->at_ns = m->now;
	f->acked = s.acked_bytes;
	f->unacked = s.window_shut ? 0 : s.unacked_bytes;
	f->held_ns = s.held_ns;
	f->busy_ns = s.busy_ns;
	if (!was.known || was.path != f->path || was.gen != f->gen || f->acked < was.acked)
		return 0;
	dt = m->now - was.at_ns;
	*waited = (was.unacked > f->acked - was.acked ||
			  ((f->busy_ns - was.busy_ns) * 100 >= dt * BUSY_PERCENT &&
				  s.rtt_min_ns * DELAYS < dt)) &&
		  !s.window_shut && (f->held_ns - was.held_ns) * 100 < dt * LIMITED_PERCENT;
	return f->acked - was.acked;
}

/* Rule 1: bytes per rail that the peer acknowledged since the last sample. */
static uint32_t slow_rails(struct dr_manager *m, uint64_t cheap[DR_RAILS_MAX])
{
	double dt = (double)(m->now - m->sampled_ns);
	uint32_t slow = 0;

	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		uint64_t done = newly_done(c);

		cheap[data_rail(c)] += done;
	}
	pthread_mutex_lock(&m->rates->lock);
	for (unsigned r = 0; r < m->prm.n_rails; r++)
		if (!dr_rate_enough(&m->rates->rate, r, (double)cheap[r] * 8e9 / dt, m->now))
			slow |= 1u << r;
	pthread_mutex_unlock(&m->rates->lock);
	return slow;
}

static void sample(struct dr_manager *m)
{
	uint64_t bytes[DR_RAILS_MAX], cheap[DR_RAILS_MAX];
	uint32_t slow, waits = 0, changed = 0;

	memcpy(bytes, m->removed_bytes, sizeof(bytes));
	memcpy(cheap, m->removed_bytes, sizeof(cheap));
	memset(m->removed_bytes, 0, sizeof(m->removed_bytes));
	slow = slow_rails(m, cheap);
	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		int active = dr_channel_active(c->ch);
		unsigned path = 0, r;
		uint64_t acked;
		bool waited;

		if (active < 0 || !(slow & (1u << rail_of(c, (unsigned)active)))) {
			c->flow.known = false;
			continue;
		}
		r = rail_of(c, (unsigned)active);
		acked = ask(m, c, &path, &waited);
		bytes[r] += acked;
		waits |= waited ? 1u << r : 0;
	}
	pthread_mutex_lock(&m->rates->lock);
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		if (!(waits & (1u << r)))
			m->waited_ns[r] = DR_NEVER;
		else if (m->waited_ns[r] == DR_NEVER)
			m->waited_ns[r] = m->sampled_ns;
		if (m->rail[r].state == DR_RAIL_DOWN || m->stalled)
			continue;
		if (dr_rate_acked(&m->rates->rate, r, slow & (1u << r) ? bytes[r] : cheap[r],
			    m->waited_ns[r], m->now))
			changed |= 1u << r;
	}
	pthread_mutex_unlock(&m->rates->lock);
	for (unsigned r = 0; r < m->prm.n_rails; r++)
		if (changed & (1u << r))
			tell(m, r);
}

/* The loss of our heartbeats that the peer reports. */
static void judge_loss(struct dr_manager *m, unsigned r)
{
	uint8_t *seen = &m->peer->rail[r].loss, loss = m->hb->rail[r].peer_loss;
	bool changed;

	if (loss == *seen || loss > 100 || m->stalled || m->rail[r].state == DR_RAIL_DOWN)
		return;
	*seen = loss;
	pthread_mutex_lock(&m->rates->lock);
	changed = dr_rate_lost(&m->rates->rate, r, loss);
	pthread_mutex_unlock(&m->rates->lock);
	if (changed)
		tell(m, r);
}

void dr_manager_forget_flow(struct dr_manager *m, struct mgr_channel *c)
{
	uint64_t done = newly_done(c);

	m->removed_bytes[data_rail(c)] += done;
}

void dr_manager_rates(struct dr_manager *m)
{
	for (unsigned r = 0; r < m->prm.n_rails; r++)
		judge_loss(m, r);
	if (m->now - m->sampled_ns < DR_RATE_SAMPLE_NS)
		return;
	sample(m);
	m->sampled_ns = m->now;
}
