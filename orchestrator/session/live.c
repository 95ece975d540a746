/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/*
 * Invariants
 *  1. The data path does nothing for this: the main thread reads relaxed counters, and asks for a snapshot only when the
 *     one before has been answered.
 *  2. Sums never fall while the process runs: a row is what earlier sessions left plus what this one has.
 *  3. Bytes of a GPU and of its paths are of one snapshot. Those of the paths have the replays too,
 *     and are never behind.
 *  4. What is a state and no sum is 0 when no session runs; the state of a rail is unknown.
 *  5. A loss of a rail in the failover test is none of its losses: the test causes it.
 */
enum { LIVE_NS = 500 * 1000 * 1000 };

void dr_live_start(struct dr_output *out, struct dr_record *rec)
{
	if (!dr_output_metrics_port(out))
		return;
	rec->live_process.active = rec->live_process.sessions = 0;
	dr_output_publish(out, rec);
}

/* ---- the rows ---- */

/* What an earlier session left for the GPU. */
static void gpu_base(const struct dr_local *l, struct dr_local_gpu *g)
{
	const struct dr_record *rec = l->rec;

	g->live_base = (struct dr_live_gpu_row){ .gpu = g->number };
	for (size_t i = 0; i < rec->live_gpus.n; i++)
		if (rec->live_gpus.v[i].gpu == g->number)
			g->live_base = rec->live_gpus.v[i];
	for (int p = 0; p < DR_PATHS; p++)
		g->live_path_base[p] = (struct dr_live_path_row){ .gpu = g->number, .path = p };
	for (size_t i = 0; i < rec->live_paths.n; i++)
		if (rec->live_paths.v[i].gpu == g->number)
			g->live_path_base[rec->live_paths.v[i].path] = rec->live_paths.v[i];
}

static void gpu_row(const struct dr_local *l, const struct dr_local_gpu *g)
{
	struct dr_live_gpu_row r = g->live_base;

	r.in_flight = r.unprotected = 0;
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		struct dr_channel_stats st = dr_local_stats(ch);

		if (ch->gpu != g)
			continue;
		*(ch->sends ? &r.tx_bytes : &r.rx_bytes) += (int64_t)st.bytes;
		*(ch->sends ? &r.tx_chunks : &r.rx_chunks) += (int64_t)st.messages;
		r.in_flight += l->live_due_ns ? (int64_t)dr_local_live(ch).in_flight : 0;
		r.unprotected += l->live_due_ns && g->ready && !ch->both_up;
	}
	r.failovers += g->live.failovers;
	r.failbacks += g->live.failbacks;
	r.leaves += g->live.leaves;
	r.gaps += g->live.gaps;
	r.gap_sum_ns += g->live.gap_sum_ns;
	r.gap_max_ns = DR_MAX(r.gap_max_ns, g->live.gap_max_ns);
	dr_record_add(l->rec, live_gpus, &r);
}

static void rail_base(struct dr_local *l, unsigned rail)
{
	const char *nic = l->plan->rail[rail][l->side].name;

	for (size_t i = 0; i < l->rec->live_rails.n; i++) {
		const struct dr_live_rail_row *r = &l->rec->live_rails.v[i];

		if (r->rail == rail && !strcmp(r->nic, nic))
			l->rail_losses[rail] = r->losses;
	}
}

static void path_row(const struct dr_local *l, const struct dr_local_gpu *g, unsigned path)
{
	struct dr_live_path_row r = g->live_path_base[path];
	bool any = false;

	r.up = r.active = 0;
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		if (ch->gpu != g || (path == 1 && ch->rails.primary == ch->rails.shadow))
			continue;
		struct dr_channel_stats st = dr_local_stats(ch);

		any = true;
		*(ch->sends ? &r.tx_bytes : &r.rx_bytes) += (int64_t)st.path_bytes[path];
		r.connections += st.path_connections[path];
		r.up += l->live_due_ns && st.path_up[path];
		r.active += l->live_due_ns && g->ready && dr_local_live(ch).active == path;
	}
	if (any)
		dr_record_add(l->rec, live_paths, &r);
}

static void rail_row(const struct dr_local *l, unsigned rail)
{
	struct dr_live_rail_row r = { .rail = rail,
		.state = l->live_due_ns ? l->rail_state[rail] : -1,
		.losses = l->rail_losses[rail] };

	snprintf(r.nic, sizeof(r.nic), "%s", l->plan->rail[rail][l->side].name);
	dr_record_add(l->rec, live_rails, &r);
}

static void rows(const struct dr_local *l)
{
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++) {
		gpu_row(l, g);
		for (unsigned p = 0; p < DR_PATHS; p++)
			path_row(l, g, p);
	}
	for (unsigned i = 0; i < l->plan->n_rails; i++)
		rail_row(l, i);
}

/* ---- a session ---- */

void dr_live_begin(struct dr_local *l)
{
	if (!dr_output_metrics_port(l->out))
		return;
	l->rec->live_process.active = 1;
	l->rec->live_process.sessions++;
	for (struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++)
		gpu_base(l, g);
	for (unsigned i = 0; i < l->plan->n_rails; i++)
		rail_base(l, i);
	l->live_due_ns = dr_now_ns();
}

int64_t dr_live_deadline(const struct dr_local *l)
{
	return l->live_due_ns ? l->live_due_ns : DR_NEVER;
}

void dr_live_tick(struct dr_local *l, int64_t now_ns)
{
	if (now_ns < dr_live_deadline(l))
		return;
	l->live_due_ns = now_ns + LIVE_NS;
	rows(l);
	dr_output_publish(l->out, l->rec);
	dr_local_snapshot_live(l);
}

void dr_live_switch(struct dr_local_gpu *g, const struct dr_report *rep, bool receiver)
{
	const struct dr_switch_record *r = &rep->rec;
	int64_t gap = dr_switch_gap(r);

	if (r->planned) {
		*(r->to == 0 ? &g->live.failbacks : &g->live.leaves) += 1;
		return;
	}
	g->live.failovers++;
	if (!receiver || gap < 0)
		return;
	g->live.gaps++;
	g->live.gap_sum_ns += gap;
	g->live.gap_max_ns = DR_MAX(g->live.gap_max_ns, gap);
}

void dr_live_rail(struct dr_local *l, unsigned rail, enum dr_rail_state state)
{
	bool trials = l->phase_open && l->phase.kind == DR_PHASE_FAILOVER;

	if (state == DR_RAIL_DOWN && l->rail_state[rail] != DR_RAIL_DOWN && !trials)
		l->rail_losses[rail]++;
	l->rail_state[rail] = (int)state;
}

void dr_live_end(struct dr_local *l)
{
	if (!l->live_due_ns)
		return;
	l->live_due_ns = 0;
	l->rec->live_process.active = 0;
	rows(l);
}
