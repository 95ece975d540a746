/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/engine.h"

/*
 * Where the transport moves to another NIC no switch tells what it cost. Then the deliveries are watched, from before the
 * fault until DR_CMD_GAPS asks for the answer. What counts is the longest interval that overlaps that time, at its full
 * length: it begins with the last delivery before the fault or, as data that was received already is still delivered,
 * after it.
 */

void dr_engine_gaps(struct dr_engine *g, const struct dr_command *cmd)
{
	for (unsigned i = 0; g->running && g->phase.kind != DR_PHASE_LAT && i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];

		if (s->sender || !s->busy)
			continue;
		if (!cmd->flag)
			dr_gaps_reset(&s->gaps.all);
		s->gaps.on |= !cmd->flag;
		s->gaps.asked = cmd->flag;
		s->gaps.trial = cmd->path;
		s->gaps.since_ns = cmd->value;
	}
}

void dr_stream_gap(struct dr_stream *s, int64_t now_ns)
{
	struct dr_report r = {
		.kind = DR_REP_GAP, .channel = s->number, .value = (int64_t)s->gaps.trial
	};
	struct dr_gap longest;

	if (s->last_done_ns)
		dr_gaps_add(&s->gaps.all, s->last_done_ns, now_ns);
	if (!s->gaps.asked)
		return;
	s->gaps.on = false;
	if (!dr_gaps_longest(&s->gaps.all, s->gaps.since_ns, &longest))
		return;
	r.rec.last_delivery_ns = longest.from_ns;
	r.rec.first_delivery_ns = longest.to_ns;
	dr_engine_report(s->eng, &r);
}
