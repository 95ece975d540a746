/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/detect.h"

#include <string.h>

/*
 *  1. Heartbeats that the peer says it sent on a rail after the rail was heard last are missing;
 *     nothing else is. One alone may be on its way: rails differ in their delay. Of DR_MISSES or
 *     more between two reports none counts: as many reports were missed on all rails, so this end
 *     may have stood.
 *  2. A sign of life counts from the moment when it was read, and not against a suspicion or a
 *     report that is younger.
 *  3. Only time in which ticks were executed is silence.
 */
static const int64_t GAPS_NS = 100 * DR_NS_PER_MS;
static const int64_t GAP_MAX_NS = 200 * DR_NS_PER_MS; /* longer: nothing was sent */

void dr_detect_init(struct dr_detector *d, unsigned n_rails, int64_t interval_ns)
{
	dr_assert(n_rails >= 1 && n_rails <= DR_DETECT_RAILS_MAX && interval_ns > 0);
	memset(d, 0, sizeof(*d));
	d->n_rails = n_rails;
	d->interval_ns = interval_ns;
}

void dr_detect_start(struct dr_detector *d, int64_t now)
{
	d->tick_ns = now;
	for (unsigned i = 0; i < d->n_rails; i++)
		d->rail[i].heard_ns = now;
}

static unsigned missed(const struct dr_detect_rail *r)
{
	return (uint16_t)(r->sent - r->heard_at);
}

static void heard(const struct dr_detector *d, struct dr_detect_rail *r, int64_t at)
{
	if (at - r->good_ns >= d->interval_ns / 2) {
		r->good = at - r->good_ns <= 5 * d->interval_ns / 2 ? DR_MIN(r->good + 1, 255) : 1;
		r->good_ns = at;
	}
	r->ever = true;
	r->heard_ns = DR_MAX(r->heard_ns, at);
	if (at >= r->told_ns)
		r->heard_at = r->sent;
	else if ((uint16_t)(r->sent_before - r->heard_at) < missed(r))
		r->heard_at = r->sent_before;
	r->suspected = false;
}

void dr_detect_life(struct dr_detector *d, unsigned rail, int64_t at)
{
	struct dr_detect_rail *r = &d->rail[rail];

	r->bytes_ns = DR_MAX(r->bytes_ns, at);
	if (r->suspected && at <= r->suspect_ns)
		return;
	d->heard = true;
	/* Only heartbeats clear a rail that is down: the peer learns by them what is missing. */
	if (!r->down)
		heard(d, r, at);
}

void dr_detect_beat(struct dr_detector *d, unsigned rail, int64_t now)
{
	struct dr_detect_rail *r = &d->rail[rail];

	if (r->beat_ns != 0 && now - r->beat_ns < GAP_MAX_NS)
		r->beat_gap_ns = DR_MAX(r->beat_gap_ns, now - r->beat_ns);
	r->beat_ns = now;
	d->heard = true;
	heard(d, r, now);
}

void dr_detect_report(
	struct dr_detector *d, unsigned rail, uint16_t sent, uint8_t miss, int64_t now)
{
	struct dr_detect_rail *r = &d->rail[rail];
	unsigned more = (uint16_t)(sent - r->sent);

	if (more != 0) {
		r->told_ns = now;
		r->sent_before = r->sent;
	}
	r->sent = sent;
	r->peer_miss = miss;
	if ((r->no_path || more >= DR_MISSES) && !r->down)
		r->heard_at = sent;
}

void dr_detect_acked(struct dr_detector *d, unsigned rail, int64_t now)
{
	d->rail[rail].acked_ns = now;
}

void dr_detect_no_path(struct dr_detector *d, unsigned rail, bool none)
{
	if (d->rail[rail].no_path && !none) /* what was missing before does not count */
		d->rail[rail].heard_at = d->rail[rail].sent;
	d->rail[rail].no_path = none;
}

void dr_detect_suspect(struct dr_detector *d, unsigned rail, int64_t now)
{
	d->rail[rail].suspected = true;
	d->rail[rail].suspect_ns = now;
}

void dr_detect_force_down(struct dr_detector *d, unsigned rail, bool padded)
{
	struct dr_detect_rail *r = &d->rail[rail];

	r->down = true;
	r->padded_only |= padded;
	r->suspected = false;
	r->good = 0;
	/* Unless it is heard: then the peer need not leave it. */
	r->heard_at = (uint16_t)(r->sent - (padded ? 0 : DR_MISSES));
}

bool dr_detect_misses(const struct dr_detector *d, unsigned rail, unsigned n)
{
	const struct dr_detect_rail *r = &d->rail[rail];

	return !r->down && (dr_detect_missed(d, rail) >= n || r->peer_miss >= n);
}

uint32_t dr_detect_suspects(const struct dr_detector *d)
{
	uint32_t suspects = 0;

	for (unsigned i = 0; i < d->n_rails; i++)
		if (!d->rail[i].down && missed(&d->rail[i]) + 1 >= DR_MISSES)
			suspects |= 1u << i;
	return suspects;
}

uint8_t dr_detect_missed(const struct dr_detector *d, unsigned rail)
{
	const struct dr_detect_rail *r = &d->rail[rail];

	if (r->down && missed(r) >= DR_MISSES)
		return DR_DETECT_DOWN;
	return (uint8_t)DR_MIN(DR_MAX(missed(r), 2u * r->suspected), DR_DETECT_DOWN - 1u);
}

void dr_detect_gap(struct dr_detector *d, unsigned rail, int64_t bytes_gap_ns)
{
	struct dr_detect_rail *r = &d->rail[rail];
	int64_t gap = bytes_gap_ns < GAP_MAX_NS ? bytes_gap_ns : 0;

	if (r->beat_gap_ns != 0) /* bytes came between two heartbeats, or before these */
		gap = DR_MIN(r->beat_gap_ns, gap != 0 ? gap : r->beat_ns - r->bytes_ns);
	else if (d->tick_ns - r->beat_ns <= gap) /* a heartbeat came before the bytes */
		gap = DR_MIN(gap, r->bytes_ns - r->beat_ns);
	r->beat_gap_ns = 0;
	r->gap_ns[0] = DR_MAX(r->gap_ns[0], gap);
}

int64_t dr_detect_usual_gap(const struct dr_detector *d, unsigned rail)
{
	const int64_t *gap = d->rail[rail].gap_ns;

	return DR_MAX(gap[0], gap[1] != 0 ? gap[1] : d->interval_ns);
}

static void forget_gaps(struct dr_detector *d, int64_t now)
{
	if (now < d->gaps_ns)
		return;
	d->gaps_ns = now + GAPS_NS;
	for (unsigned i = 0; i < d->n_rails; i++) {
		d->rail[i].gap_ns[1] = d->rail[i].gap_ns[0];
		d->rail[i].gap_ns[0] = 0;
	}
}

static void judge(struct dr_detector *d, unsigned i, int64_t now, struct dr_detect_out *out)
{
	struct dr_detect_rail *r = &d->rail[i];
	const struct dr_rail_evidence e = {
		.down = r->down,
		.never = !r->ever,
		.padded_only = r->padded_only,
		.peer_down = r->peer_miss == DR_DETECT_DOWN,
		.peer_hears = r->peer_miss <= 1,
		.missed = missed(r),
		.good = now - r->good_ns <= 5 * d->interval_ns / 2 ? r->good : 0,
		.silent_ns = now - DR_MAX(r->heard_ns, r->acked_ns),
		.usual_ns = dr_detect_usual_gap(d, i),
		.interval_ns = d->interval_ns,
	};
	const struct dr_rail_rule *rule = dr_rail_rule(&e);

	if (rule->verdict == DR_RAIL_AS_IT_WAS)
		return;
	r->down = rule->verdict == DR_RAIL_FELL;
	r->good = 0;
	out->rule[i] = rule;
	*(r->down ? &out->fell : &out->rose) |= 1u << i;
}

/* A rail that was not heard for more than an interval although another one is: bytes may replace
 * the heartbeats of both ends. Now both send them on all rails. */
static void watch(struct dr_detector *d, int64_t now)
{
	for (unsigned i = 0; i < d->n_rails; i++) {
		struct dr_detect_rail *r = &d->rail[i];
		int64_t usual = DR_MAX(d->interval_ns, dr_detect_usual_gap(d, i));

		if (r->no_path && !r->down) /* nothing could be heard, which is no silence */
			r->heard_ns = now;
		if (d->heard && !r->down && !r->suspected && now - r->heard_ns >= usual * 3 / 2)
			dr_detect_suspect(d, i, now);
	}
}

void dr_detect_tick(struct dr_detector *d, int64_t now, struct dr_detect_out *out)
{
	*out = (struct dr_detect_out){ 0 };
	watch(d, now);
	d->silent_ns = d->heard ? 0 : d->silent_ns + DR_MIN(now - d->tick_ns, d->interval_ns);
	d->tick_ns = now;
	for (unsigned i = 0; i < d->n_rails; i++)
		judge(d, i, now, out);
	d->heard = false;
	forget_gaps(d, now);
}
