/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/rate.h"

#include <stdio.h>
#include <string.h>

void dr_rate_init(struct dr_rate *r, unsigned n_rails)
{
	dr_assert(n_rails <= DR_RATE_RAILS_MAX);
	memset(r, 0, sizeof(*r));
	r->n_rails = n_rails;
	for (unsigned i = 0; i < n_rails; i++)
		r->rail[i].loss_percent = -1;
}

static bool recent(const struct dr_rate_rail *p, int64_t now)
{
	return p->capacity > 0 && now - p->at_ns <= DR_RATE_RECENT_NS;
}

int dr_rate_reference(const struct dr_rate *r, unsigned rail, int64_t now)
{
	int best = -1;

	for (unsigned i = 0; i < r->n_rails; i++)
		if (i != rail && recent(&r->rail[i], now) &&
			(best < 0 || r->rail[i].capacity > r->rail[best].capacity))
			best = (int)i;
	return best;
}

/* One more measurement of a rail: a window in which data waited, or a lower bound. */
static bool judge(struct dr_rate *r, unsigned rail, double bps, bool exact, int64_t now)
{
	struct dr_rate_rail *p = &r->rail[rail];
	int ref = dr_rate_reference(r, rail, now);
	bool was = p->by_rate;
	double other;

	if (exact || !recent(p, now) || bps >= p->capacity) {
		p->capacity = bps;
		p->exact = exact;
		p->at_ns = now;
	}
	if (exact)
		p->measured = bps;
	if (ref < 0)
		return false;
	other = r->rail[ref].capacity;
	p->slow = !exact ? p->slow : bps * DR_RATE_SLOW < other ? p->slow + 1 : 0;
	p->fast = bps * DR_RATE_FAST >= other ? p->fast + 1 : 0;
	if (p->slow >= DR_RATE_JUDGED) {
		p->by_rate = true;
		p->versus = (unsigned)ref;
	} else if (p->fast >= DR_RATE_JUDGED) {
		p->by_rate = false;
	}
	return p->by_rate != was && (was ? !p->by_loss : true);
}

bool dr_rate_acked(struct dr_rate *r, unsigned rail, uint64_t bytes, int64_t waited_ns, int64_t now)
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

static int64_t limit_of(int64_t rtt_ns)
{
	return DR_MAX(DR_RATE_PROBE_NS, 12 * rtt_ns);
}

void dr_rate_probe_init(struct dr_rate_probe *p, int64_t rtt_ns, int64_t held_ns, int64_t window_ns)
{
	*p = (struct dr_rate_probe){ .chunk = window_ns > 0 ? DR_RATE_CHUNK_MIN : DR_RATE_CHUNK,
		.held_ns = held_ns,
		.window_ns = window_ns,
		.limit_ns = limit_of(rtt_ns) };
}

static double rate_of(uint64_t bytes, int64_t ns)
{
	return (double)bytes * 8e9 / (double)DR_MAX(ns, 1);
}

/* So much of ns proves nothing. */
static bool mostly_counts(int64_t idle_ns, int64_t ns)
{
	return idle_ns * 5 <= ns;
}

/* The time until `end`, since the last look, that does not count. */
static void count_idle(struct dr_rate_probe *p, const struct dr_rate_look *look, int64_t end)
{
	int64_t dt = DR_MAX(end - p->seen_ns, 0), idle = DR_MAX(look->held_ns - p->held_ns, 0);

	if (dt >= DR_RATE_AWAY_NS &&
		(p->handed < p->sent || (look->polled && look->acked >= p->sent)))
		idle = dt;
	p->idle_ns += DR_MIN(idle, dt);
}

/* What was carried in ns. Much may have been carried in the time that does not count: then the rate in all of it is a
 * lower bound. If acknowledgements are polled, the rate without that time is an upper one. */
static void conclude(struct dr_rate_probe *p, uint64_t bytes, int64_t ns, int64_t idle_ns)
{
	p->proven = mostly_counts(idle_ns, ns);
	p->most = p->polled ? rate_of(bytes, ns - idle_ns) : 0;
	p->bps = rate_of(bytes, p->proven ? ns - idle_ns : ns);
}

static void probe_over(struct dr_rate_probe *p, int64_t end)
{
	int64_t late = p->late_ns != 0 ? end - p->late_ns : 0, idle = p->idle_ns - p->late_idle_ns;
	int64_t all = p->spent_ns + p->wasted_ns + (p->acked < p->sent ? end - p->sent_ns : 0);
	int64_t all_idle = p->wasted_ns + (p->acked < p->sent ? p->idle_ns : 0);

	p->done = true;
	p->whole = p->late_ns == 0;
	/* What is acknowledged in a moment is too little to measure. */
	if (late >= p->limit_ns / 4 && p->acked > p->late_acked) {
		conclude(p, p->acked - p->late_acked, late, idle);
		if (p->polled) { /* they come in batches, of which one may have been carried before */
			p->bps = DR_MIN(p->bps, rate_of(p->acked, all));
			p->most = DR_MIN(p->most, rate_of(p->acked, all - all_idle));
		}
		return;
	}
	p->bps = p->best;
	if (p->best > 0)
		return;
	conclude(p, DR_MAX(p->acked, 1u), all, all_idle);
}

/* Behind its round trip a chunk has taken 1 / n of the NIC's window. */
static bool takes_of_window(const struct dr_rate_probe *p, int64_t took, int n)
{
	return p->window_ns > 0 &&
	       took - p->rtt_ns > DR_MAX((p->window_ns - p->rtt_ns) / n, DR_RATE_NEAR_NS);
}

/* A chunk was carried until `end`. True: the burst goes on. */
static bool chunk_over(struct dr_rate_probe *p, int64_t end)
{
	int64_t took = DR_MAX(end - p->sent_ns, 1);
	bool proves = mostly_counts(p->idle_ns, took), grows = true;
	int64_t counts = proves ? took - p->idle_ns : took;

	p->spent_ns += took - p->idle_ns;
	p->wasted_ns += p->idle_ns;
	p->chunk = p->last;
	if (!takes_of_window(p, took, DR_RATE_NEAR))
		p->chunk = DR_MIN(4 * p->last, (uint32_t)DR_RATE_CHUNK_MAX);
	if (p->last == DR_RATE_CHUNK_MAX) {
		double bps = rate_of(p->last, DR_MAX(counts - p->rtt_ns, DR_RATE_LOOK_NS));

		grows = bps > 1.25 * p->latest;
		p->latest = bps;
		p->best = DR_MAX(p->best, bps);
		p->proven |= proves;
	}
	if (p->late_ns != 0 || p->best >= DR_RATE_PROBE_MAX_BPS || p->sent == DR_RATE_BURST_MAX)
		return false;
	if (p->spent_ns >= p->limit_ns && p->best <= 0)
		p->late_ns = end;
	if (p->spent_ns >= p->limit_ns || p->wasted_ns >= p->limit_ns)
		return false;
	return p->sent < DR_RATE_BURST || grows || !proves;
}

/* The NIC may give up what is left of the chunk. What is known is enough. */
static bool half_of_window(struct dr_rate_probe *p, int64_t now)
{
	if (p->acked == 0 || !takes_of_window(p, now - p->sent_ns, 2))
		return false;
	if (p->late_ns == 0)
		p->late_ns = now;
	return true;
}

/* Of the chunk that was carried. The shortest one contains the least of what this process did meanwhile. */
static void learn_round_trip(struct dr_rate_probe *p, int64_t rtt_ns)
{
	if (p->sent == 0 || rtt_ns <= 0)
		return;
	p->rtt_ns = p->rtt_ns > 0 ? DR_MIN(p->rtt_ns, rtt_ns) : rtt_ns;
	p->limit_ns = DR_MAX(p->limit_ns, limit_of(p->rtt_ns));
}

/* The first chunk is under way. */
static bool round_trip_unknown(const struct dr_rate_probe *p)
{
	return p->window_ns > 0 && p->acked == 0;
}

uint32_t dr_rate_probe_step(struct dr_rate_probe *p, const struct dr_rate_look *look, int64_t now)
{
	bool carried = look->acked >= p->sent;
	int64_t end = now;

	if (p->done)
		return 0;
	if (p->sent > 0) {
		if (carried)
			end = DR_MAX(now - DR_MAX(look->age_ns - DR_RATE_AGE_NS, 0), p->sent_ns);
		count_idle(p, look, end);
	}
	p->acked = look->acked;
	p->handed = look->handed;
	p->held_ns = look->held_ns;
	p->seen_ns = now;
	p->polled = look->polled;
	if (!carried) {
		int64_t busy = p->spent_ns + now - p->sent_ns - p->idle_ns;

		if (busy >= p->limit_ns && p->late_ns == 0 && !round_trip_unknown(p)) {
			p->late_ns = now;
			p->late_acked = p->acked;
			p->late_idle_ns = p->idle_ns;
		}
		if (busy >= p->limit_ns + DR_NS_PER_S || p->wasted_ns + p->idle_ns >= p->limit_ns ||
			half_of_window(p, now))
			probe_over(p, now);
		return 0;
	}
	learn_round_trip(p, look->rtt_ns);
	if (p->sent > 0 && !chunk_over(p, end)) {
		probe_over(p, end);
		return 0;
	}
	p->last = (uint32_t)DR_MIN((uint64_t)p->chunk, DR_RATE_BURST_MAX - p->sent);
	p->sent += p->last;
	p->sent_ns = now;
	p->idle_ns = 0;
	return p->last;
}

static const int64_t PROBE_FRESH_NS = 60 * DR_NS_PER_MS; /* channels ask at about the same time */
static const int64_t PROBE_MAX_NS = 4 * DR_NS_PER_S;	 /* its owner may have gone */

void dr_rate_flows(struct dr_rate *r, unsigned rail, int more)
{
	struct dr_rate_rail *p = &r->rail[rail];

	dr_assert(rail < r->n_rails && (int)p->flows + more >= 0);
	p->flows = (unsigned)((int)p->flows + more);
}

/* An average connection of the rail does not carry more. */
static bool as_one_of(const struct dr_rate_rail *o, double bps)
{
	return o->flows > 1 && bps * o->flows >= o->capacity;
}

bool dr_rate_probing(const struct dr_rate *r, unsigned rail, int64_t now)
{
	const struct dr_rate_rail *p = &r->rail[rail];

	dr_assert(rail < r->n_rails);
	return p->probing_ns != 0 && now - p->probing_ns < PROBE_MAX_NS;
}

/* What the probe measured is too little beside the rail in use. */
static bool too_slow(
	const struct dr_rate_result *p, const struct dr_rate_rail *o, bool known, unsigned refused)
{
	double needed = o->capacity / DR_RATE_SLOW;

	if (as_one_of(o, p->bps))
		return false;
	if (p->whole)
		return known && p->bps < DR_MIN(needed, DR_RATE_PROBE_MAX_BPS);
	if (o->exact)
		return p->bps < needed;
	/* The traffic on the other rail may want all that is known of its capacity. But that may have been
	 * measured too high, and a rail that is not degraded is not kept waiting for it. */
	return p->bps < o->capacity / DR_MIN((double)(2u << refused), DR_RATE_SLOW);
}

/* Whatever was carried in the time that does not count, it is too little. */
static bool slow_at_most(const struct dr_rate_rail *o, double most)
{
	return most > 0 && most * DR_RATE_SLOW < o->capacity && !as_one_of(o, most);
}

/* What the probe measured is no lower bound, or too little in any case. */
static bool proves(const struct dr_rate_result *p, const struct dr_rate_rail *o)
{
	return p->proven || slow_at_most(o, p->most);
}

/* The answer of the probe that ended last; DR_RATE_PROBE: *which is to be probed. */
static enum dr_rate_gate result(
	struct dr_rate *r, const struct dr_rate_question *q, int64_t now, unsigned *which)
{
	struct dr_rate_rail *p = &r->rail[q->rail], *o = &r->rail[q->other];
	const struct dr_rate_result *before = &p->before;
	bool known = recent(o, now);

	if (p->probed.bps <= 0)
		return DR_RATE_LOST;
	if (!p->probed.whole && !known) {
		if (o->probed.ns != 0 && o->probed.ns >= p->probed.ns)
			return DR_RATE_LOST;
		*which = q->other;
		return q->busy ? DR_RATE_WAIT : DR_RATE_PROBE;
	}
	if (!too_slow(&p->probed, o, known, p->refused)) {
		p->refused = 0;
		return DR_RATE_OPEN;
	}
	if (!proves(&p->probed, o))
		return p->by_rate ? DR_RATE_LOST : DR_RATE_OPEN;
	if (p->by_rate || (before->ns != 0 && now - before->ns <= DR_RATE_RECENT_NS &&
				  proves(before, o) && too_slow(before, o, known, p->refused))) {
		p->refused = DR_MIN(p->refused + 1, (unsigned)DR_RATE_REFUSED_MAX);
		return DR_RATE_SHUT;
	}
	return DR_RATE_PROBE;
}

enum dr_rate_gate dr_rate_gate(
	struct dr_rate *r, const struct dr_rate_question *q, int64_t now, unsigned *which)
{
	struct dr_rate_rail *p = &r->rail[q->rail];

	dr_assert(q->rail < r->n_rails && q->other < r->n_rails);
	*which = q->rail;
	if (q->blind)
		return DR_RATE_OPEN;
	if (p->probed.ns != 0 && p->probed.ns >= q->asked_ns - PROBE_FRESH_NS &&
		p->probing_ns == 0) {
		enum dr_rate_gate gate = result(r, q, now, which);

		if (gate != DR_RATE_PROBE)
			return gate;
	}
	if (dr_rate_probing(r, *which, now))
		return DR_RATE_WAIT;
	r->rail[*which].probing_ns = now;
	return DR_RATE_PROBE;
}

bool dr_rate_returned(struct dr_rate *r, unsigned rail)
{
	struct dr_rate_rail *p = &r->rail[rail];
	bool was = p->by_rate;

	dr_assert(rail < r->n_rails);
	p->by_rate = false;
	p->slow = p->fast = p->slow_probes = 0;
	return was && !p->by_loss;
}

bool dr_rate_probed(struct dr_rate *r, unsigned rail, const struct dr_rate_probe *p, int64_t now)
{
	struct dr_rate_rail *x = &r->rail[rail];
	int ref = dr_rate_reference(r, rail, now);
	const struct dr_rate_rail *o = ref >= 0 ? &r->rail[ref] : NULL;
	struct dr_rate_result got = {
		.ns = now, .bps = p->bps, .most = p->most, .whole = p->whole, .proven = p->proven
	};
	bool proven = o ? proves(&got, o) && !as_one_of(o, p->bps) : p->proven;
	bool exact = proven && p->bps < DR_RATE_PROBE_MAX_BPS, changed;

	dr_assert(rail < r->n_rails && p->done);
	x->probing_ns = 0;
	x->before = x->probed;
	x->probed = got;
	if (p->bps <= 0)
		return false;
	if (exact) /* it was made to tell, but a repetition of the kernel may have delayed one */
		x->slow = x->slow_probes;
	x->fast = DR_RATE_JUDGED - 1;
	changed =
		judge(r, rail, exact ? p->bps : DR_MIN(p->bps, DR_RATE_PROBE_MAX_BPS), exact, now);
	if (exact)
		x->slow_probes = DR_MIN(x->slow, (unsigned)DR_RATE_JUDGED);
	else if (p->bps >= DR_RATE_PROBE_MAX_BPS)
		x->slow_probes = 0;
	return changed;
}

bool dr_rate_datagrams(struct dr_rate *r, unsigned rail, int sent, int lost, int64_t now)
{
	struct dr_rate_rail *p = &r->rail[rail];
	bool was = p->by_loss;

	dr_assert(rail < r->n_rails && sent >= 0);
	p->sent += sent;
	p->lost += lost;
	if (p->sent_ns == 0)
		p->sent_ns = now;
	if (p->sent < DR_RATE_DATAGRAMS || now - p->sent_ns < DR_RATE_LOSS_NS)
		return false;
	p->loss_percent = (int)(100 * DR_MAX(p->lost, 0) / p->sent);
	p->sent = p->lost = 0;
	p->sent_ns = now;
	if (p->loss_percent >= DR_RATE_LOSSY)
		p->by_loss = true;
	else if (p->loss_percent < DR_RATE_CLEAN)
		p->by_loss = false;
	return p->by_loss != was && !p->by_rate;
}

void dr_rate_get(const struct dr_rate *r, unsigned rail, struct dr_rate_state *out)
{
	const struct dr_rate_rail *p = &r->rail[rail];

	dr_assert(rail < r->n_rails);
	*out = (struct dr_rate_state){ .degraded = p->by_rate || p->by_loss,
		.by_loss = p->by_loss,
		.bps = p->measured,
		.carries_bps = p->capacity,
		.loss_percent = p->loss_percent,
		.versus = p->by_rate ? p->versus : rail };
	if (p->by_rate)
		out->versus_bps = r->rail[p->versus].capacity;
}

bool dr_rate_enough(const struct dr_rate *r, unsigned rail, double bps, int64_t now)
{
	const struct dr_rate_rail *p = &r->rail[rail];
	int ref = dr_rate_reference(r, rail, now);

	if (ref < 0 || p->by_rate)
		return false;
	return bps * DR_RATE_FAST >= r->rail[ref].capacity ||
	       (recent(p, now) && bps * DR_RATE_FAST >= p->capacity && p->slow == 0 &&
		       p->capacity * DR_RATE_FAST >= r->rail[ref].capacity);
}

static int format_rate(double bps, char *buf, size_t len)
{
	double unit = bps >= 1e9 ? 1e9 : bps >= 1e6 ? 1e6 : 1e3;

	return snprintf(buf, len, "%.*f %cb/s", bps / unit < 100 ? 1 : 0, bps / unit,
		unit == 1e9   ? 'G'
		: unit == 1e6 ? 'M'
			      : 'k');
}

void dr_rate_describe(const struct dr_rate_state *s, char *buf, size_t len)
{
	char rate[32], other[32];
	int n;

	if (!s->degraded) {
		format_rate(s->carries_bps, rate, sizeof(rate));
		snprintf(buf, len,
			s->carries_bps > 0 ? "no longer degraded: it carries %s or more"
					   : "no longer degraded",
			rate);
		return;
	}
	n = snprintf(buf, len, "degraded: ");
	if (s->versus_bps > 0 && n > 0 && (size_t)n < len) {
		format_rate(s->bps, rate, sizeof(rate));
		format_rate(s->versus_bps, other, sizeof(other));
		n += snprintf(buf + n, len - (size_t)n, "%s measured, rail %u carries %s%s", rate,
			s->versus, other, s->by_loss ? "; " : "");
	}
	if (s->by_loss && n > 0 && (size_t)n < len)
		snprintf(buf + n, len - (size_t)n, "%d %% of heartbeats lost", s->loss_percent);
}

/* The small datagrams that had been sent before `newest`, about; false: unknown. */
static bool sent_before(const struct dr_rate_reports *p, uint64_t newest, uint16_t *sent)
{
	for (unsigned i = 0; i < DR_MIN(p->n_marks, (unsigned)DR_RATE_MARKS); i++) {
		unsigned k = (p->n_marks - 1 - i) % DR_RATE_MARKS;

		if (p->mark[k].last <= newest) {
			*sent = p->mark[k].sent;
			return true;
		}
	}
	return false;
}

bool dr_rate_report(struct dr_rate_reports *p, const struct dr_rate_report *now, int64_t pause_ns,
	int *sent, int *lost)
{
	bool paused = p->ns != 0 && now->ns - p->ns > pause_ns, counted = p->counted;
	unsigned k = p->n_marks++ % DR_RATE_MARKS;
	uint16_t before;

	p->mark[k].last = now->last;
	p->mark[k].sent = now->sent;
	if (p->ns != 0 && now->number == p->number)
		return false;
	p->number = now->number;
	p->ns = now->ns;
	if (!sent_before(p, now->newest, &before))
		return false;
	*sent = (uint16_t)(before - p->sent);
	*lost = *sent - (uint16_t)(now->got - p->got);
	p->counted = true;
	p->sent = before;
	p->got = now->got;
	return counted && !paused;
}

void dr_rail_rates_init(struct dr_rail_rates *r, unsigned n_rails)
{
	int rc = pthread_mutex_init(&r->lock, NULL);

	dr_assert(rc == 0);
	dr_rate_init(&r->rate, n_rails);
}

void dr_rail_rates_fini(struct dr_rail_rates *r)
{
	int rc = pthread_mutex_destroy(&r->lock);

	dr_assert(rc == 0);
}

void dr_rail_rates_get(struct dr_rail_rates *r, unsigned rail, struct dr_rate_state *out)
{
	pthread_mutex_lock(&r->lock);
	dr_rate_get(&r->rate, rail, out);
	pthread_mutex_unlock(&r->lock);
}
