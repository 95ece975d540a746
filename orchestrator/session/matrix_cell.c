/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"

#include <stdio.h>

/* Is the running phase one of a matrix? */
static bool running(const struct dr_local *l)
{
	return l->plan->spread == DR_SPREAD_EACH && l->phase.kind == DR_PHASE_BW;
}

bool dr_matrix_cell_running(const struct dr_local *l)
{
	return running(l) && l->phase.rail_mask;
}

void dr_matrix_mark(struct dr_local *l, int which)
{
	if (!running(l))
		return;
	l->matrix[which].ns = dr_now_ns();
	for (unsigned i = 0; i < l->plan->n_rails; i++)
		l->matrix[which].counted[i] =
			l->nic_counted[i] && dr_netdev_counters(l->plan->rail[i][l->side].ifindex,
						     &l->matrix[which].counter[i], NULL) == 0;
}

/* ---- rows ---- */

static int64_t risen(const struct dr_local *l, unsigned rail, bool sending)
{
	const struct dr_netdev_counters *a = &l->matrix[0].counter[rail];
	const struct dr_netdev_counters *b = &l->matrix[1].counter[rail];

	if (!l->matrix[0].counted[rail] || !l->matrix[1].counted[rail])
		return DR_UNSET;
	return (int64_t)(sending ? b->tx_bytes - a->tx_bytes : b->rx_bytes - a->rx_bytes);
}

static bool is_on(const struct dr_local_channel *ch, unsigned rail)
{
	return ch->bulk && ch->rails.primary == rail;
}

static void add_known(int64_t *sum, int64_t n)
{
	if (n != DR_UNSET)
		*sum = DR_MAX(*sum, 0) + n;
}

/* What the GPU received. */
static void add_check(
	const struct dr_local *l, const struct dr_phase_result *r, struct dr_matrix_cell_row *row)
{
	add_known(&row->wrong_chunks,
		(int64_t)(r->corrupted + r->lost + r->duplicated + r->reordered));
	if (l->phase.verify)
		add_known(&row->wrong_bytes, (int64_t)r->wrong_bytes);
	if (!row->first_wrong[0])
		snprintf(row->first_wrong, sizeof(row->first_wrong), "%s", r->first_wrong);
}

/* The GPU's part of a cell. */
static void add_gpu(struct dr_local *l, const struct dr_local_gpu *g, bool sending,
	struct dr_tally *sum, struct dr_matrix_cell_row *row)
{
	const struct dr_phase_result *r = dr_worker_result(g->on->w, g->position);
	const struct dr_tally *t = sending ? &r->tx : &r->rx;

	sum->bytes += t->bytes;
	sum->messages += t->messages;
	sum->ns = DR_MAX(sum->ns, t->ns);
	if (sending)
		add_known(&row->retransmits, dr_local_again(l, g));
	else
		add_check(l, r, row);
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		if (ch->gpu != g || ch->sends != sending || !is_on(ch, (unsigned)row->rail))
			continue;
		row->channels++;
		row->switched += ch->away;
	}
}

/* The GPUs of the phase: one, or all of them as one row. */
static void cell_row(struct dr_local *l, unsigned rail, bool sending)
{
	struct dr_tally sum = { 0 };
	struct dr_matrix_cell_row row;
	unsigned n = 0;

	dr_fields_init(&dr_matrix_cell_fields, &row);
	row.channels = row.switched = 0;
	row.rail = rail;
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++) {
		if (!dr_phase_has_gpu(&l->phase, g->position) || !dr_local_gpu_over(g))
			continue;
		n++;
		if (l->phase.gpu_mask)
			row.gpu = g->number;
		add_gpu(l, g, sending, &sum, &row);
	}
	if (!n)
		return;
	row.phase = l->phase.index;
	row.direction = dr_local_direction(l, sending);
	row.message_bytes = (int64_t)l->phase.message_bytes;
	snprintf(row.nic, sizeof(row.nic), "%s", l->plan->rail[rail][DR_PLAN_CLIENT].name);
	snprintf(
		row.peer_nic, sizeof(row.peer_nic), "%s", l->plan->rail[rail][DR_PLAN_SERVER].name);
	if (sending) {
		row.sender_bytes = (int64_t)sum.bytes;
		row.sender_seconds = (double)sum.ns / 1e9;
	} else {
		row.bytes = (int64_t)sum.bytes;
		row.messages = (int64_t)sum.messages;
		row.seconds = (double)sum.ns / 1e9;
	}
	*(l->side == DR_PLAN_CLIENT ? &row.client_counter_bytes : &row.server_counter_bytes) =
		risen(l, rail, sending);
	dr_output_row(l->out, matrix.cells, dr_record_add(l->rec, matrix.cells, &row));
}

/* Rails that share a NIC share its row. */
static void total_row(struct dr_local *l, unsigned rail)
{
	struct dr_matrix_total_row row;

	dr_fields_init(&dr_matrix_total_fields, &row);
	row.side = (int)l->side;
	row.rail = rail;
	snprintf(row.nic, sizeof(row.nic), "%s", l->plan->rail[rail][l->side].name);
	row.counter_tx_bytes = risen(l, rail, true);
	row.counter_rx_bytes = risen(l, rail, false);
	row.seconds = (double)(l->matrix[1].ns - l->matrix[0].ns) / 1e9;
	row.switched = 0;
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		row.switched += is_on(ch, rail) && ch->away;
	dr_record_add(l->rec, matrix.totals, &row);
}

void dr_matrix_results(struct dr_local *l)
{
	if (!running(l))
		return;
	if (l->phase.iters || !l->matrix[1].ns)
		dr_matrix_mark(l, 1);
	for (unsigned i = 0; i < l->plan->n_rails; i++) {
		if (!l->phase.rail_mask)
			total_row(l, i);
		else if (dr_phase_has_rail(&l->phase, i))
			for (int sending = 0; sending < 2; sending++)
				if (dr_local_has_bulk(l, sending))
					cell_row(l, i, sending);
	}
}
