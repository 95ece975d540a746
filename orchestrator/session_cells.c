/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_cells.h"

#include "base/clock.h"
#include "orchestrator/session_node.h"

#include <stdio.h>
#include <string.h>

bool dr_cells_matrix(const struct dr_node *node)
{
	return node->plan->spread == DR_SPREAD_EACH && node->phase.kind == DR_PHASE_BW;
}

bool dr_cells_cell(const struct dr_node *node)
{
	return dr_cells_matrix(node) && node->phase.rail_mask;
}

static unsigned home(const struct dr_node *node, unsigned position, unsigned channel)
{
	return dr_plan_paths(node->plan, position, channel).primary;
}

/* ---- marks ---- */

static void note_channels(struct dr_node *node)
{
	struct dr_live l;

	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		for (unsigned c = 0; c < node->n_channels; c++) {
			struct dr_node_channel *ch = dr_node_channel(node, k, c);

			dr_node_live(node, k, c, &l);
			ch->mark_epoch = l.epoch;
			ch->mark_away = l.active != 0;
		}
	}
}

void dr_cells_mark(struct dr_node *node, int which)
{
	struct dr_cells *m = &node->cells;

	if (!dr_cells_matrix(node))
		return;
	m->ns[which] = dr_now_ns();
	for (unsigned i = 0; i < node->plan->n_rails; i++)
		m->counted[which][i] = node->nic_counted[i] &&
				       dr_netdev_counters(node->plan->rail[i][node->side].ifindex,
					       &m->counter[which][i], NULL) == 0;
	if (which == 0)
		note_channels(node);
}

/* ---- rows ---- */

static int64_t risen(const struct dr_node *node, unsigned rail, bool sending)
{
	const struct dr_cells *m = &node->cells;
	const struct dr_netdev_counters *a = &m->counter[0][rail], *b = &m->counter[1][rail];

	if (!m->counted[0][rail] || !m->counted[1][rail])
		return DR_UNSET;
	return (int64_t)(sending ? b->tx_bytes - a->tx_bytes : b->rx_bytes - a->rx_bytes);
}

/* Channels of that rail whose path is or was another one since the mark; *n: of how many. A switch back
 * home is a new epoch too. */
static int64_t away(
	struct dr_node *node, unsigned position, unsigned rail, bool sending, int64_t *n)
{
	struct dr_live l;
	int64_t gone = 0;

	for (unsigned c = 0; c < dr_plan_n_bulk(node->plan); c++) {
		const struct dr_node_channel *ch = dr_node_channel(node, position, c);

		if (dr_node_sends(node, c) != sending || home(node, position, c) != rail)
			continue;
		dr_node_live(node, position, c, &l);
		gone += ch->mark_away || l.epoch != ch->mark_epoch;
		++*n;
	}
	return gone;
}

static void add_sender(struct dr_node *node, unsigned k, struct dr_cell_row *row)
{
	const struct dr_phase_result *r = dr_node_result(node, k);
	uint64_t now = dr_node_retransmits(node, k);

	row->sender_bytes = DR_MAX(row->sender_bytes, 0) + (int64_t)r->tx_bytes;
	row->sender_seconds =
		DR_MAX((double)r->tx_ns / 1e9, row->sender_seconds >= 0 ? row->sender_seconds : 0);
	row->retransmits = DR_MAX(row->retransmits, 0) +
			   (int64_t)(now > node->retransmits[k] ? now - node->retransmits[k] : 0);
}

static void add_receiver(struct dr_node *node, unsigned k, struct dr_cell_row *row)
{
	const struct dr_phase_result *r = dr_node_result(node, k);

	row->bytes = DR_MAX(row->bytes, 0) + (int64_t)r->rx_bytes;
	row->messages = DR_MAX(row->messages, 0) + (int64_t)r->rx_messages;
	row->seconds = DR_MAX((double)r->rx_ns / 1e9, row->seconds >= 0 ? row->seconds : 0);
}

/* The GPUs of the phase: one, or all of them as one row. */
static void cell_row(struct dr_node *node, unsigned rail, bool sending)
{
	struct dr_cell_row row;
	int64_t *counter;
	unsigned n = 0;

	dr_cell_row_init(&row);
	row.channels = row.switched = 0;
	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		if (!dr_phase_has_gpu(&node->phase, k) || !node->part_done[k][sending])
			continue;
		n++;
		if (node->phase.gpu_mask)
			row.gpu = dr_node_gpu(node, k);
		row.switched += away(node, k, rail, sending, &row.channels);
		if (sending)
			add_sender(node, k, &row);
		else
			add_receiver(node, k, &row);
	}
	if (!n)
		return;
	row.phase = node->phase.index;
	row.rail = rail;
	row.direction = dr_node_direction(node, sending);
	row.message_bytes = (int64_t)node->phase.message_bytes;
	snprintf(row.nic, sizeof(row.nic), "%s", node->plan->rail[rail][DR_PLAN_CLIENT].name);
	snprintf(row.peer_nic, sizeof(row.peer_nic), "%s",
		node->plan->rail[rail][DR_PLAN_SERVER].name);
	counter = node->side == DR_PLAN_CLIENT ? &row.client_counter_bytes
					       : &row.server_counter_bytes;
	*counter = risen(node, rail, sending);
	dr_output_cell(node->out, dr_record_cell(node->rec, &row));
}

/* Rails that share a NIC share its row. */
static void together_row(struct dr_node *node, unsigned rail)
{
	const char *name = node->plan->rail[rail][node->side].name;
	struct dr_together_row row;
	int64_t n = 0;

	dr_together_row_init(&row);
	row.side = (int)node->side;
	row.rail = rail;
	snprintf(row.nic, sizeof(row.nic), "%s", name);
	row.counter_tx_bytes = risen(node, rail, true);
	row.counter_rx_bytes = risen(node, rail, false);
	row.seconds = (double)(node->cells.ns[1] - node->cells.ns[0]) / 1e9;
	row.switched = 0;
	for (unsigned k = 0; k < node->plan->n_gpus; k++)
		row.switched += away(node, k, rail, true, &n) + away(node, k, rail, false, &n);
	dr_record_together(node->rec, &row);
}

void dr_cells_results(struct dr_node *node)
{
	if (!dr_cells_matrix(node))
		return;
	if (node->phase.iters || !node->cells.ns[1])
		dr_cells_mark(node, 1);
	for (unsigned i = 0; i < node->plan->n_rails; i++) {
		if (!node->phase.rail_mask) {
			together_row(node, i);
			continue;
		}
		if (!dr_phase_has_rail(&node->phase, i))
			continue;
		if (dr_node_has_bulk(node, false))
			cell_row(node, i, false);
		if (dr_node_has_bulk(node, true))
			cell_row(node, i, true);
	}
}
