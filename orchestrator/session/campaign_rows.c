/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/campaign_priv.h"

#include "base/mem.h"

/*
 * Which switches of the record belong to which trial, and the figures that follow from them. A switch is counted once:
 * with its trial, or as a false failover.
 *  1. In time: every switch of a channel that the fault hit, from the injection on.
 *  2. Not one that this end detected longer than the detection bound after the fault was undone: it has another reason.
 *  3. Late: the first unplanned switch of a channel that missed the deadline of its trial, whenever it comes before the
 *     next trial begins. The trial is a HANG already.
 */

static struct dr_local_channel *channel_of(const struct dr_client *c, const struct dr_switch_row *r)
{
	return dr_local_channel_of(c->s.local, r->gpu, r->channel);
}

bool dr_trial_complete(struct dr_client *c, const struct dr_trial *t)
{
	unsigned n = 0;

	for (size_t s = t->first_switch; s < c->s.rec->switches.n; s++) {
		const struct dr_switch_row *r = &c->s.rec->switches.v[s];
		struct dr_local_channel *ch = channel_of(c, r);

		if (ch && r->receiver && !r->rec.planned)
			ch->trial.has_row = true;
	}
	for (const struct dr_local_channel *ch = c->s.local->channel; ch < c->s.local->end; ch++)
		n += ch->trial.affected && ch->trial.has_row;
	return n == t->n_affected;
}

/* A loss that this end noticed long after the fault was undone has another reason. */
static bool too_late(
	const struct dr_client *c, const struct dr_trial *t, const struct dr_switch_row *r)
{
	int64_t bound = c->s.rec->detection.bound_ns;

	return !r->rec.planned && t->undone_ns && bound != DR_UNSET &&
	       r->rec.detect_ns > t->undone_ns + bound;
}

void dr_trial_claim(struct dr_client *c, const struct dr_trial *t)
{
	for (size_t s = t->first_switch; s < c->s.rec->switches.n; s++) {
		struct dr_switch_row *r = &c->s.rec->switches.v[s];
		const struct dr_switch_row *own = dr_switch_at(c->s.rec, DR_END_CLIENT, r);
		const struct dr_local_channel *ch = channel_of(c, r);

		if (ch && (ch->trial.hit || !(t->expects_switch || t->idle)) &&
			!(own && too_late(c, t, own)))
			r->trial = t->number;
	}
	dr_trial_claim_late(c);
}

/* ---- switches after the deadline ---- */

void dr_trial_late(struct dr_client *c, const struct dr_trial *t)
{
	for (struct dr_local_channel *ch = c->s.local->channel; ch < c->s.local->end; ch++) {
		ch->trial.late = ch->trial.affected && ch->unplanned == ch->trial.unplanned;
		ch->trial.number = t->number;
		ch->trial.first_switch = t->first_switch;
	}
}

/* The epoch of the channel's first unplanned switch since the trial began; 0: none yet. */
static uint32_t late_epoch(const struct dr_client *c, const struct dr_local_channel *ch)
{
	uint32_t epoch = 0;

	for (size_t s = ch->trial.first_switch; s < c->s.rec->switches.n; s++) {
		const struct dr_switch_row *r = &c->s.rec->switches.v[s];

		if (channel_of(c, r) == ch && !r->rec.planned && (!epoch || r->rec.epoch < epoch))
			epoch = r->rec.epoch;
	}
	return epoch;
}

void dr_trial_claim_late(struct dr_client *c)
{
	for (const struct dr_local_channel *ch = c->s.local->channel; ch < c->s.local->end; ch++) {
		uint32_t epoch = ch->trial.late ? late_epoch(c, ch) : 0;

		for (size_t s = ch->trial.first_switch; epoch && s < c->s.rec->switches.n; s++) {
			struct dr_switch_row *r = &c->s.rec->switches.v[s];

			if (channel_of(c, r) == ch && r->rec.epoch == epoch)
				r->trial = ch->trial.number;
		}
	}
}

/* ---- figures ---- */

/* Those of the affected channels that it claimed, in a copy; NULL: none, or no memory. */
static struct dr_switch_row *claimed(const struct dr_client *c, const struct dr_trial *t, size_t *n)
{
	size_t max = c->s.rec->switches.n - t->first_switch;
	struct dr_switch_row *rows = max ? dr_calloc(max, sizeof(*rows)) : NULL;

	*n = 0;
	for (size_t i = 0; rows && i < max; i++) {
		const struct dr_switch_row *r = &c->s.rec->switches.v[t->first_switch + i];
		const struct dr_local_channel *ch = channel_of(c, r);

		if (ch && r->trial == t->number && ch->trial.affected)
			rows[(*n)++] = *r;
	}
	return rows;
}

/* The channels ended with an error: a switch before that is no gap after which data went on. */
static void end_without_gap(const struct dr_client *c, struct dr_fault_row *r)
{
	int64_t *const of_gap[] = { &r->gap_ns, &r->gap_median_channel_ns, &r->detect_ns,
		&r->fence_ns, &r->handshake_ns, &r->replay_ns, &r->first_delivery_ns,
		&r->fault_after_ns, &r->fault_to_detect_ns, &r->failback_gap_ns };

	for (size_t i = 0; i < DR_ARRAY_LEN(of_gap); i++)
		*of_gap[i] = DR_UNSET;
	if (c->s.local->n_failed)
		r->error_after_ns = c->s.local->fail_silent_ns;
}

/* On the clock of the end where it acted. */
static int64_t fault_time(const struct dr_trial *t)
{
	return t->fault_ns && dr_fault_timed(t->spec) ? t->fault_ns : DR_UNSET;
}

void dr_trial_figures(struct dr_client *c, struct dr_trial *t)
{
	int64_t offset = 0, error = 0, fault = fault_time(t);
	bool known = dr_control_clock(c->s.control, dr_now_ns(), &offset, &error);
	struct dr_fault_row base = t->row;
	size_t n;
	struct dr_switch_row *rows = claimed(c, t, &n);

	/* The first pass finds the worst channel, whose direction says which end receives. */
	dr_fault_row_from_switches(&t->row, rows, n, DR_UNSET, DR_UNSET, DR_UNSET);
	if (t->row.channel != DR_UNSET) {
		bool at_server = dr_plan_from_client(&c->s.plan, (unsigned)t->row.channel);
		bool acted_at_server = t->spec->side == DR_FAULT_SERVER;

		if (at_server != acted_at_server && fault != DR_UNSET)
			fault = known ? fault + (at_server ? offset : -offset) : DR_UNSET;
		t->row = base;
		dr_fault_row_from_switches(&t->row, rows, n,
			known ? (at_server ? offset : -offset) : DR_UNSET, known ? error : DR_UNSET,
			fault);
	}
	if (t->by_transport && !t->unused)
		dr_trial_gaps_figures(c, t);
	if (t->error)
		end_without_gap(c, &t->row);
	dr_free(rows);
}

int64_t dr_trial_false_failovers(const struct dr_client *c)
{
	int64_t n = 0;

	/* Each switch has a row of either end: count the senders'. */
	for (size_t s = 0; s < c->s.rec->switches.n; s++) {
		const struct dr_switch_row *r = &c->s.rec->switches.v[s];

		n += !r->receiver && !r->rec.planned && r->trial == DR_UNSET;
	}
	return n;
}
