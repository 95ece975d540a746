/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/campaign_priv.h"

#include "base/mem.h"

/*
 * The delivery gaps of trials in which the transport has to move to another NIC (--detect transport), so that no switch
 * of a channel tells what the fault cost. Both ends' receivers note the time between deliveries from before the injection
 * until chunks that were posted after it arrive on every affected channel, and then report the longest one that ended after
 * the injection (orchestrator/engine/stream_gaps.c). Where the time of the fault is not known (exec, manual), until it is
 * about to be undone.
 *  1. The server knows before the injection: the message goes ahead of a COLLECT, whose answer is waited for.
 *  2. Which intervals ended after the injection is decided on the receiver's clock, with the earliest time that the error
 *     of the clocks' comparison allows: a gap is never left out for it.
 *  3. When such chunks have arrived the gap is over: before, all that a path held was posted earlier. What happens later, such
 *     as delays that the fault did not cause, its end, and the transport's failback, is not in it.
 */

/* When the fault took effect, on the clock of this end; of the middle of what is possible. DR_UNSET: not known. */
static int64_t fault_on_clock(
	const struct dr_client *c, const struct dr_trial *t, enum dr_end end, int64_t *error_ns)
{
	bool acted_at_server = t->spec->side == DR_FAULT_SERVER;
	int64_t offset;

	*error_ns = 0;
	if ((end == DR_END_SERVER) == acted_at_server)
		return t->fault_ns;
	if (!dr_control_clock(c->s.control, dr_now_ns(), &offset, error_ns))
		return DR_UNSET;
	return t->fault_ns + (end == DR_END_SERVER ? offset : -offset);
}

void dr_trial_gaps_begin(struct dr_client *c, struct dr_trial *t)
{
	t->watched = c->s.plan.detect == DR_DETECT_TRANSPORT && dr_fault_cuts(t->spec) &&
		     dr_fault_by(t->spec) != DR_FAULT_BY_CHANNEL;
	if (!t->watched)
		return;
	struct dr_message m = { .kind = DR_MSG_GAPS, .index = t->number, .since_ns = DR_UNSET };

	dr_local_take(c->s.local, &m, NULL);
	dr_session_send(&c->s, &m);
}

void dr_trial_gaps_end(struct dr_client *c, struct dr_trial *t)
{
	struct dr_message m = { .kind = DR_MSG_GAPS, .index = t->number, .which = 1 };

	for (int end = DR_END_CLIENT; t->watched && end <= DR_END_SERVER; end++) {
		int64_t error, fault = fault_on_clock(c, t, (enum dr_end)end, &error);

		m.since_ns = fault == DR_UNSET ? DR_NEVER : fault - error;
		if (end == DR_END_CLIENT)
			dr_local_take(c->s.local, &m, NULL);
		else
			dr_session_send(&c->s, &m);
	}
	t->watched = false;
}

/* Those of its affected channels, in a copy; NULL: none, or no memory. */
static struct dr_delivery_gap_row *gaps_of(
	const struct dr_client *c, const struct dr_trial *t, size_t *n)
{
	size_t all = c->s.rec->delivery_gaps.n - t->first_gap;
	struct dr_delivery_gap_row *rows = all ? dr_calloc(all, sizeof(*rows)) : NULL;

	*n = 0;
	for (size_t i = 0; rows && i < all; i++) {
		const struct dr_delivery_gap_row *r = &c->s.rec->delivery_gaps.v[t->first_gap + i];
		const struct dr_local_channel *ch =
			dr_local_channel_of(c->s.local, r->gpu, r->channel);

		if (ch && ch->trial.affected && r->trial == t->number)
			rows[(*n)++] = *r;
	}
	return rows;
}

bool dr_trial_gaps_complete(const struct dr_client *c, const struct dr_trial *t)
{
	size_t n;

	dr_free(gaps_of(c, t, &n));
	return n == t->n_affected;
}

void dr_trial_gaps_figures(const struct dr_client *c, struct dr_trial *t)
{
	size_t n;
	struct dr_delivery_gap_row *rows = gaps_of(c, t, &n);
	const struct dr_delivery_gap_row *worst = dr_fault_row_from_gaps(&t->row, rows, n);

	if (worst) {
		int64_t offset, error;
		int64_t fault = fault_on_clock(c, t, (enum dr_end)worst->side, &error);

		if (dr_control_clock(c->s.control, dr_now_ns(), &offset, &error)) {
			t->row.clock_offset_ns = worst->side == DR_END_SERVER ? offset : -offset;
			t->row.clock_error_ns = error;
		}
		if (fault != DR_UNSET && dr_fault_timed(t->spec))
			t->row.fault_after_ns = fault - worst->last_delivery_ns;
	}
	dr_free(rows);
}
