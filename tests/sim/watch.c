/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include <inttypes.h>

/*
 * Managers of one process that share heartbeats, of which some stand:
 *
 *  beat	the tick is executed a quarter of an interval late at most while any of them runs; every one that runs
 *		takes a verdict at once, but that a rail is up only while it is heard (conservative detection may keep it)
 *  others	where nothing is wrong but that some stand, the channels of the others go on
 */
static const int64_t LOOK_NS = DR_NS_PER_MS / 2;
static const int64_t TURN_NS =
	2 * DR_NS_PER_MS; /* of a thread that was woken, with all that it may have to do */
static const int64_t GOES_ON_NS = 300 * DR_NS_PER_MS;

/* The time since when the worker has been running, or DR_NEVER. */
static int64_t running_since(struct sim_worker *wk, int64_t now)
{
	int64_t stands = sim_stalled_until(wk);

	if (!wk->started || now < stands)
		return DR_NEVER;
	return DR_MAX(wk->running_ns, stands);
}

/* The longest of all workers of this end. */
static int64_t any_running_since(struct sim_run *r, unsigned end, int64_t now)
{
	int64_t since = DR_NEVER;

	for (unsigned k = 0; k < r->s->n_managers; k++)
		since = DR_MIN(since, running_since(&r->wk[end][k], now));
	return since;
}

static void check_tick(struct sim_run *r, unsigned end, int64_t now)
{
	const struct dr_hb *h = &r->peer[end]->hb;
	int64_t late = dr_sim_world_clock(r->w, end) - h->next_ns,
		bound = h->interval_ns / 4 + TURN_NS;
	int64_t since = any_running_since(r, end, now);

	if (late <= 0 || since == DR_NEVER || now - since < bound)
		return;
	sim_cover.worst_late_ns = DR_MAX(sim_cover.worst_late_ns, (uint64_t)late);
	if (late > bound)
		sim_fail(r, "beat: end %u: the tick is %.3f ms late, and a manager runs", end,
			SIM_MS(late));
}

static void check_verdict(struct sim_run *r, unsigned end, unsigned rail, int64_t now)
{
	const struct peer_rail *pr = &r->peer[end]->rail[rail];
	int64_t at = r->verdict[end][rail].at_ns;

	if (r->verdict[end][rail].n != pr->verdicts) {
		r->verdict[end][rail].n = pr->verdicts;
		r->verdict[end][rail].at_ns = now;
		sim_cover.verdicts += r->s->n_managers > 1;
		return;
	}
	for (unsigned k = 0; k < r->s->n_managers && at > 0; k++) {
		struct sim_worker *wk = &r->wk[end][k];
		int64_t since = DR_MAX(running_since(wk, now), at);

		if (since == DR_NEVER || now - since < TURN_NS ||
			(!pr->down && r->peer[end]->hb.d.rail[rail].down))
			continue;
		if ((wk->m->rail[rail].state == DR_RAIL_DOWN) != pr->down)
			sim_fail(r,
				"beat: end %u manager %u does not know after %.3f ms that rail %u is %s",
				end, k, SIM_MS(now - since), rail, pr->down ? "down" : "up");
	}
}

/* The managers of both ends of the channel have been running since then. */
static int64_t both_running_since(struct sim_run *r, unsigned c, int64_t now)
{
	return DR_MAX(running_since(sim_worker_of(r, c, 0), now),
		running_since(sim_worker_of(r, c, 1), now));
}

static void check_goes_on(struct sim_run *r, unsigned c, int64_t now)
{
	struct sim_channel *a = &r->ch[c];
	uint64_t seen = a->user[0].done + a->user[1].done;
	int64_t since;

	if (a->seen != seen || seen == 2 * a->total || !r->was_ready || now <= r->pause_until_ns) {
		a->seen = seen;
		a->moved_ns = now;
		return;
	}
	since = DR_MAX(both_running_since(r, c, now), a->moved_ns);
	if (since != DR_NEVER && now - since > GOES_ON_NS)
		sim_fail(r,
			"others: channel %u does not go on for %.3f ms although its managers run",
			c, SIM_MS(now - since));
}

void sim_watch(struct sim_run *r, int64_t now)
{
	if (now < r->watch_due_ns)
		return;
	r->watch_due_ns = now + LOOK_NS;
	sim_give_up_watch(r);
	for (unsigned end = 0; end < 2; end++) {
		if (!r->peer[end] || r->dead[end])
			continue;
		check_tick(r, end, now);
		for (unsigned rail = 0; rail < 2; rail++)
			check_verdict(r, end, rail, now);
	}
	for (unsigned c = 0; r->s->calm && c < r->s->n_channels; c++)
		check_goes_on(r, c, now);
}
