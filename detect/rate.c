/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/rate.h"

#include <string.h>

/*
 * A window is DR_RATE_WINDOW_NS of samples of one rail. Data WAITED in it if at the beginning of
 * each sampling interval the transport held more data than the peer's transport acknowledged until
 * its end, so that the rail never ran out of data. Then the acknowledged bytes are what the rail
 * carries, its capacity; otherwise they are a lower bound of it, which raises the capacity but
 * never lowers it. A window without any acknowledged byte shows nothing: it is the business of
 * failure detection.
 */
void dr_rail_rates_init(struct dr_rail_rates *r, unsigned n_rails)
{
	dr_assert(n_rails <= DR_RATE_RAILS_MAX);
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL); /* it cannot fail here */
	r->n_rails = n_rails;
}

void dr_rail_rates_fini(struct dr_rail_rates *r)
{
	pthread_mutex_destroy(&r->lock);
}

static bool recent(const struct dr_rate_rail *p, int64_t now)
{
	return p->capacity > 0 && now - p->at_ns <= DR_RATE_RECENT_NS;
}

/* The fastest other rail that was measured lately; -1: none. */
static int reference(const struct dr_rail_rates *r, unsigned rail, int64_t now)
{
	int best = -1;

	for (unsigned i = 0; i < r->n_rails; i++)
		if (i != rail && recent(&r->rail[i], now) &&
			(best < 0 || r->rail[i].capacity > r->rail[best].capacity))
			best = (int)i;
	return best;
}

/* One more measurement of a rail: a window in which data waited, or a lower bound. */
static bool judge(struct dr_rail_rates *r, unsigned rail, double bps, bool exact, int64_t now)
{
	struct dr_rate_rail *p = &r->rail[rail];
	int ref = reference(r, rail, now);
	bool was = p->degraded;
	double other;

	if (exact || !recent(p, now) || bps >= p->capacity) {
		p->capacity = bps;
		p->at_ns = now;
	}
	if (exact)
		p->measured = bps;
	if (ref < 0)
		return false;
	other = r->rail[ref].capacity;
	p->slow = bps * DR_RATE_SLOW >= other ? 0 : p->slow + exact;
	p->fast = bps * DR_RATE_FAST >= other ? p->fast + 1 : 0;
	if (p->slow >= DR_RATE_JUDGED) {
		p->degraded = true;
		p->versus = (unsigned)ref;
	} else if (p->fast >= DR_RATE_JUDGED) {
		p->degraded = false;
	}
	return p->degraded != was;
}

static bool acked(
	struct dr_rail_rates *r, unsigned rail, uint64_t bytes, int64_t waited_ns, int64_t now)
{
	struct dr_rate_rail *p = &r->rail[rail];
	bool waited;
	double bps;

	dr_assert(rail < r->n_rails);
	if (p->from_ns == 0) { /* the bytes are older than the window */
		p->from_ns = now;
		p->bytes = 0;
		return false;
	}
	p->bytes += bytes;
	waited = waited_ns <= p->from_ns;
	/* Another owner may know that data waited. */
	if (now - p->from_ns < (waited ? 1 : 2) * DR_RATE_WINDOW_NS)
		return false;
	bps = (double)p->bytes * 8e9 / (double)(now - p->from_ns);
	p->from_ns = now;
	p->bytes = 0;
	if (bps <= 0)
		return false;
	return judge(r, rail, bps, waited, now);
}

bool dr_rate_acked(
	struct dr_rail_rates *r, unsigned rail, uint64_t bytes, int64_t waited_ns, int64_t now)
{
	bool changed;

	pthread_mutex_lock(&r->lock);
	changed = acked(r, rail, bytes, waited_ns, now);
	pthread_mutex_unlock(&r->lock);
	return changed;
}

void dr_rail_rates_get(struct dr_rail_rates *r, unsigned rail, struct dr_rate_state *out)
{
	const struct dr_rate_rail *p = &r->rail[rail];

	dr_assert(rail < r->n_rails);
	pthread_mutex_lock(&r->lock);
	*out = (struct dr_rate_state){ .degraded = p->degraded,
		.bps = p->measured,
		.carries_bps = p->capacity,
		.versus = p->versus };
	if (p->degraded)
		out->versus_bps = r->rail[p->versus].capacity;
	pthread_mutex_unlock(&r->lock);
}
