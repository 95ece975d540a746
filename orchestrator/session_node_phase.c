/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_node_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

/*
 * A phase as this end's workers see it: begun, marked, stopped, over; and what of them may be read when.
 *  1. A part that this end does not have is done from the beginning.
 *  2. Live counters may be read at any time, statistics after the snapshot that was asked for.
 */

void dr_node_post(struct dr_node *node, unsigned position, const struct dr_command *cmd)
{
	for (unsigned i = 0; i < node->n_workers; i++)
		if (node->worker[i].po.fd >= 0 &&
			(position == DR_ALL || node->worker_of[position] == i))
			dr_worker_post(node->worker[i].w, cmd);
}

void dr_node_go_home(struct dr_node *node)
{
	struct dr_command cmd = { .kind = DR_CMD_SWITCH };
	struct dr_live l;

	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		for (unsigned c = 0; c < node->n_channels; c++) {
			dr_node_live(node, k, c, &l);
			if (!dr_node_sends(node, c) || l.active == 0)
				continue;
			cmd.position = k;
			cmd.channel = c;
			dr_node_post(node, k, &cmd);
		}
	}
}

void dr_node_phase(struct dr_node *node, const struct dr_phase *phase)
{
	struct dr_command cmd = { .kind = DR_CMD_PHASE, .position = DR_ALL, .phase = *phase };
	int64_t now = dr_now_ns();

	node->phase = *phase;
	node->snapshot_last = false;
	node->phase_open = true;
	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		bool in = dr_phase_has_gpu(phase, k), lat = phase->kind == DR_PHASE_LAT;

		node->part_done[k][0] = !in || (!lat && !dr_node_has_bulk(node, false));
		node->part_done[k][1] = !in || (!lat && !dr_node_has_bulk(node, true));
		node->retransmits[k] = dr_node_retransmits(node, k);
	}
	node->mark_ns[0] = node->mark_ns[1] = 0;
	node->interval_at_ns = 0;
	node->phase_ns = now;
	node->mark_cpu_ns[0] = dr_cpu_ns();
	if (phase->kind != DR_PHASE_LAT && node->plan->interval_ns &&
		dr_node_has_bulk(node, false)) {
		struct dr_node_flow f;

		dr_node_flow(node, &f);
		node->interval_at_ns = now;
		node->interval_bytes = f.rx_bytes;
		node->interval_chunks = f.rx_chunks;
	}
	memset(&node->cells, 0, sizeof(node->cells));
	dr_cells_mark(node, 0);
	dr_node_post(node, DR_ALL, &cmd);
}

void dr_node_mark(struct dr_node *node, int which)
{
	struct dr_command cmd = { .kind = DR_CMD_MARK, .position = DR_ALL, .value = which };

	node->mark_ns[which] = dr_now_ns();
	node->mark_cpu_ns[which] = dr_cpu_ns();
	dr_node_post(node, DR_ALL, &cmd);
	dr_cells_mark(node, which);
	if (which == 1 && node->mark_ns[0] && node->phase.kind == DR_PHASE_BW &&
		!dr_cells_cell(node)) {
		node->cpu_ns += node->mark_cpu_ns[1] - node->mark_cpu_ns[0];
		node->cpu_wall_ns += node->mark_ns[1] - node->mark_ns[0];
	}
}

void dr_node_stop(struct dr_node *node)
{
	struct dr_command cmd = { .kind = DR_CMD_STOP, .position = DR_ALL };

	dr_node_post(node, DR_ALL, &cmd);
}

void dr_node_expect(struct dr_node *node, unsigned position, const uint64_t *totals, unsigned n)
{
	struct dr_command cmd = { .kind = DR_CMD_EXPECT, .position = position };

	memcpy(cmd.expect, totals, n * sizeof(*totals));
	dr_node_post(node, position, &cmd);
}

bool dr_node_phase_over(const struct dr_node *node)
{
	for (unsigned k = 0; k < node->plan->n_gpus; k++)
		if (!node->part_done[k][0] || !node->part_done[k][1])
			return false;
	return true;
}

bool dr_node_all_sent(const struct dr_node *node)
{
	for (unsigned k = 0; k < node->plan->n_gpus; k++)
		if (!node->part_done[k][1])
			return false;
	return true;
}

void dr_node_snapshot(struct dr_node *node)
{
	struct dr_command cmd = { .kind = DR_CMD_SNAPSHOT, .position = DR_ALL };

	cmd.value = (int64_t)++node->token;
	node->snapshots_open = 0;
	node->snapshot_last = false;
	for (unsigned i = 0; i < node->n_workers; i++)
		node->snapshots_open += node->worker[i].po.fd >= 0;
	dr_node_post(node, DR_ALL, &cmd);
}

/* ---- reading ---- */

uint64_t dr_node_retransmits(const struct dr_node *node, unsigned position)
{
	struct dr_channel_stats st;
	uint64_t sum = 0;

	for (unsigned c = 0; c < dr_plan_n_bulk(node->plan); c++) {
		if (!dr_node_sends(node, c))
			continue;
		dr_node_stats(node, position, c, &st);
		sum += st.retransmits;
	}
	return sum;
}

const struct dr_phase_result *dr_node_result(const struct dr_node *node, unsigned position)
{
	return dr_worker_result(dr_node_worker_of(node, position), position);
}

void dr_node_stats(const struct dr_node *node, unsigned position, unsigned channel,
	struct dr_channel_stats *out)
{
	dr_worker_channel_stats(dr_node_worker_of(node, position), position, channel, out);
}

void dr_node_stall_report(struct dr_node *node, const char *why)
{
	char line[400];

	dr_warn("stall", "%s; what each channel waits for:", why);
	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		if (node->part_done[k][0] && node->part_done[k][1])
			continue;
		for (unsigned c = 0; c < node->n_channels; c++) {
			dr_worker_describe(dr_node_worker_of(node, k), k, c, line, sizeof(line));
			dr_warn("stall", "GPU %u channel %u: %s", dr_node_gpu(node, k), c, line);
		}
	}
}

void dr_node_live(
	const struct dr_node *node, unsigned position, unsigned channel, struct dr_live *out)
{
	dr_worker_live(dr_node_worker_of(node, position), position, channel, out);
}

void dr_node_flow(const struct dr_node *node, struct dr_node_flow *out)
{
	struct dr_live l;

	memset(out, 0, sizeof(*out));
	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		for (unsigned c = 0; c < dr_plan_n_bulk(node->plan); c++) {
			dr_node_live(node, k, c, &l);
			out->tx_bytes += l.bytes_tx;
			out->rx_bytes += l.bytes_rx;
			out->tx_chunks += l.chunks_tx;
			out->rx_chunks += l.chunks_rx;
			out->in_flight += l.in_flight;
		}
	}
}
