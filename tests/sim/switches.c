/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "channel/channel_priv.h"

/*
 * The switches and failbacks that the ends record: compared with what the paths delivered, with each other, and with
 * the faults. Faults hit a path: those of its rail, and those of its connection.
 *
 *  record    The receiver records one switch for each delivery that is of another epoch than the
 *            one before it, from and to the paths that carried these two; or later, if the next
 *            switch had begun by then; or, if nothing waited to be delivered, when it answers.
 *            Epochs grow, and each record begins where the last one ended. Between two times at
 *            which the channel is at rest in the same epoch at both ends, k epochs apart, each end
 *            records 1 to k switches, and both end alike. With k = 1 they record the same one: a
 *            fault in the middle of a switch leads to another epoch, and one end may have finished
 *            the first one, or not. Not covered: until data flows for the first time, one end may
 *            take for a switch what the other one does not.
 *  cause     A single switch that is no failback leaves a path that a fault hit since the last rest, or CAUSE_NS before it.
 *            Completions and credits are hit when they come, which may be at any time. Losses of the world are a
 *            cause at any time.
 *  missing   A connection that broke while it carried the data was left; so was one whose rail was out for longer than
 *            detection takes at most (its patience follows what was usual on the rail), where nothing else is wrong.
 *  calm      Where nothing is wrong that could be a cause, nothing switches. One outage makes one switch and one failback,
 *            and none for an idle path. Before the first data an end that stood may find its first connections given up.
 */
static const int64_t CAUSE_NS = 2500 * DR_NS_PER_MS, STOOD_NS = 200 * DR_NS_PER_MS;
enum { OUT_TICKS = 5 }; /* of heartbeats, in which an outage is detected behind the patience */

static const struct dr_fo *fo_of(const struct sim_user *u)
{
	return &sim_channel_of(u)->fo;
}

static struct sim_channel *channel_of(const struct sim_user *u)
{
	return &u->r->ch[u->channel];
}

/* ---- of an end ---- */

void sim_switch_delivered(const struct sim_user *u, uint32_t epoch, unsigned path)
{
	struct sim_channel *c = channel_of(u);

	if (c->owed && c->due)
		sim_fail(u->r, "record: channel %u: no switch is recorded for epoch %u", u->channel,
			c->epoch);
	if (!c->owed)
		c->from = c->epoch != 0 ? c->to : DR_PATHS; /* unknown: one on which no data came */
	c->due = fo_of(u)->state == DR_FO_RUN;
	c->owed = c->epoch != 0 || !c->due;
	c->to = path;
	c->epoch = epoch;
}

void sim_switch_recorded(const struct sim_user *u, const struct dr_switch_record *rec)
{
	struct sim_channel *c = channel_of(u);
	struct sim_records *n = &c->rec[u->end];

	c->at_rest = false;
	if (rec->epoch <= n->epoch || (n->n > 0 && rec->from != n->to))
		sim_fail(u->r,
			"record: channel %u %s: epoch %u from path %u, behind epoch %u to path %u",
			u->channel, u->sender ? "sender" : "receiver", rec->epoch, rec->from,
			n->epoch, n->to);
	if (!u->sender && rec->idle) { /* complete before anything is delivered */
		if (rec->epoch <= c->epoch || dr_switch_gap(rec) >= 0)
			sim_fail(u->r, "record: channel %u: an idle switch to epoch %u, behind %u",
				u->channel, rec->epoch, c->epoch);
		c->epoch = rec->epoch;
		c->to = rec->to;
		c->owed = false;
		sim_cover.idle_switches++;
	}
	if (!u->sender && !rec->idle &&
		(rec->epoch != c->epoch || rec->to != c->to ||
			(c->owed ? rec->from != c->from && c->from != DR_PATHS : n->n > 0)))
		sim_fail(u->r,
			"record: channel %u: epoch %u from path %u to %u; it was %u from %u to %u%s",
			u->channel, rec->epoch, rec->from, rec->to, c->epoch, c->from, c->to,
			c->owed ? "" : ", and is recorded");
	c->owed = c->owed && u->sender;
	n->n++;
	n->planned += rec->planned;
	n->initial += rec->from == DR_FO_NONE && !rec->planned;
	n->refused += rec->from == rec->to && rec->planned;
	n->epoch = rec->epoch;
	n->from = rec->from;
	n->to = rec->to;
}

/* ---- of faults ---- */

static bool of_rail(enum sim_fault_kind k)
{
	return k <= F_FLAPS || k == F_BLINK || k == F_CLOG || k == F_MUTE || k == F_STUCK ||
	       k == F_BOTH_CUT;
}

static bool of_connection(enum sim_fault_kind k)
{
	return k == F_BREAK || k == F_COMPLETION || k == F_CREDIT || k == F_STUCK;
}

/* The fault struck a path of this channel over this rail after `since`. */
static bool hit(const struct sim_run *r, unsigned i, unsigned c, unsigned rail, int64_t since)
{
	const struct sim_fault *f = &r->s->fault[i];
	const struct sim_fault_state *fs = &r->fs[i];
	bool late = fs->st == SIM_ON || fs->until >= since;

	if (fs->st != SIM_ON && fs->st != SIM_OVER)
		return false;
	if (of_rail(f->kind) && late &&
		(f->rail == rail || f->kind == F_FLAPS || f->kind == F_BLINK ||
			f->kind == F_BOTH_CUT))
		return true;
	return of_connection(f->kind) && fs->hit == c + 1 && f->rail == rail &&
	       (late || f->kind == F_COMPLETION || f->kind == F_CREDIT);
}

static void check_cause(struct sim_run *r, unsigned c, unsigned path)
{
	unsigned rail = sim_rail_of_path(r, c, path);

	if (sim_lossy(r->s))
		return;
	/* A plugin does not show that the peer's channel has ended: heartbeats may leave on its
	 * paths. */
	for (unsigned i = 0; r->s->world.personality == DR_SIM_PLUGIN && i < r->s->n_faults; i++)
		if (r->s->fault[i].kind == F_DEREG)
			return;
	for (unsigned i = 0; i < r->s->n_faults; i++)
		if (hit(r, i, c, rail, r->ch[c].rest_ns - CAUSE_NS))
			return;
	sim_fail(r, "cause: channel %u left path %u in epoch %u, and no fault hit it", c, path,
		r->ch[c].rec[0].epoch);
}

/* ---- of both ends ---- */

static bool at_rest(const struct sim_channel *c)
{
	const struct dr_fo *f[2] = { fo_of(&c->user[0]), fo_of(&c->user[1]) };

	for (unsigned end = 0; end < 2; end++)
		if (c->user[end].err != 0 || f[end]->state != DR_FO_RUN || f[end]->rec_open)
			return false;
	return f[0]->epoch == f[1]->epoch && !c->owed;
}

/* It carries the data at both ends. */
static bool carries(const struct sim_channel *c, unsigned path)
{
	return at_rest(c) && fo_of(&c->user[0])->active == path &&
	       fo_of(&c->user[0])->path[path].gen == fo_of(&c->user[1])->path[path].gen;
}

void sim_switch_broke(struct sim_run *r, unsigned i, unsigned c, unsigned path)
{
	r->fs[i].hit = c + 1;
	if (r->s->fault[i].kind == F_BREAK && carries(&r->ch[c], path))
		r->ch[c].leaves = fo_of(r->ch[c].user)->epoch + 1;
}

/* An outage of this rail is detected in this time, for all that was heard on it until now; see
 * patience_ns in detect/rules.c. */
static int64_t detected_ns(const struct sim_run *r, unsigned c, unsigned rail)
{
	int64_t usual = 0, ns = OUT_TICKS * r->s->heartbeat_ns;

	for (unsigned end = 0; end < 2; end++)
		usual = DR_MAX(
			usual, dr_detect_usual_gap(&sim_worker_of(r, c, end)->m->hb->d, rail));
	return ns + DR_MAX(ns, DR_MIN(2 * usual, 200 * DR_NS_PER_MS));
}

void sim_switch_out(struct sim_run *r, unsigned i)
{
	const struct sim_fault *f = &r->s->fault[i];

	for (unsigned c = 0; c < r->s->n_channels; c++)
		if (r->s->one_rail && !r->s->conservative &&
			f->len_ns >= detected_ns(r, c, f->rail) &&
			carries(&r->ch[c], f->rail != r->s->primary[c]))
			r->ch[c].leaves = fo_of(r->ch[c].user)->epoch + 1;
}

static void compare(struct sim_run *r, unsigned ch)
{
	struct sim_channel *c = &r->ch[ch];
	const struct sim_records *a = c->rec, *was = c->rested;
	uint32_t epoch = fo_of(&c->user[0])->epoch, k = epoch - c->rest_epoch;
	bool first = c->rest_epoch == 0, alike = a[0].to == a[1].to;

	for (unsigned end = 0; end < 2; end++)
		alike &= k == 0 ? a[end].n == was[end].n
				: a[end].epoch == epoch && a[end].n > was[end].n &&
					  a[end].n - was[end].n <= k;
	if (k == 1)
		alike &= a[0].from == a[1].from &&
			 a[0].planned - was[0].planned == a[1].planned - was[1].planned;
	if (!alike && !first)
		sim_fail(r,
			"record: channel %u: %u epochs to %u; end 0 records %u switches, the last from path "
			"%u to %u in epoch %u, end 1 %u, from %u to %u in %u",
			ch, k, epoch, a[0].n - was[0].n, a[0].from, a[0].to, a[0].epoch,
			a[1].n - was[1].n, a[1].from, a[1].to, a[1].epoch);
	if (!first && k == 1 && a[0].planned == was[0].planned)
		check_cause(r, ch, a[0].from);
	sim_cover.compared += !first && k == 1;
	c->rested[0] = a[0];
	c->rested[1] = a[1];
	c->rest_epoch = epoch;
}

void sim_switch_watch(struct sim_run *r, int64_t now)
{
	int64_t stood = sim_all_run_ns(r);

	for (unsigned i = 0; i < r->s->n_channels; i++) {
		struct sim_channel *c = &r->ch[i];

		if (!c->at_rest && at_rest(c)) {
			compare(r, i);
			c->at_rest = true;
		}
		/* An end that stood learns what hit its path when it goes on. */
		if (c->at_rest && at_rest(c) && (stood == 0 || now - stood > STOOD_NS))
			c->rest_ns = now;
	}
}

void sim_switch_collect(struct sim_run *r, unsigned i)
{
	const struct sim_channel *c = &r->ch[i];
	uint32_t most = !r->s->calm, initial = DR_MAX(c->rec[0].initial, c->rec[1].initial);

	/* An end may be killed before it goes on, and then has not learned of it. */
	if (at_rest(c) && c->leaves > fo_of(&c->user[0])->epoch && !r->dead[0] && !r->dead[1])
		sim_fail(r, "missing: channel %u still uses a connection that broke", i);
	for (unsigned k = 0; r->s->one_rail && k < r->s->n_faults; k++)
		if (!(r->s->without & (1u << k)))
			most = r->s->fault[k].rail == r->s->primary[i];
	for (unsigned end = 0; end < 2 && (r->s->calm || r->s->one_rail); end++)
		/* It may have begun on its shadow; an end whose answer was lost does not know. A
		 * failback is refused while the last packet of the primary's handshake is lost:
		 * TCP repeats it after 200 ms, which is more than the hold-down here. */
		if (c->rec[end].n > most + c->rec[end].planned + initial ||
			c->rec[end].planned > most + 1 + c->rec[end].refused)
			sim_fail(r,
				"calm: channel %u end %u switched %u times, and failed back %u times",
				i, end, c->rec[end].n - c->rec[end].planned, c->rec[end].planned);
}
