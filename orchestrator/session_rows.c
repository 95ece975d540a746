/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_node_priv.h"

#include "base/clock.h"
#include "topology/numa.h"

#include <stdio.h>
#include <string.h>

/* The rows of an end: what was planned, and what it measured: bandwidth, latency, intervals, NICs. */

/* Data in a socket's buffers when its link was cut was handed over and never seen by the NIC, or
 * counted by the NIC and never by us: at most one send and one receive buffer a switch. */
enum { SLACK_PER_SWITCH = 8 << 20 };

/* ---- the plan ---- */

static void name_gpu(const struct dr_node *node, unsigned position, struct dr_gpu_row *r)
{
	struct dr_bank_info info = { .name = "host memory" };

	if (node->bank[position])
		dr_bank_info(node->bank[position], &info);
	snprintf(r->name, sizeof(r->name), "%.63s", info.name);
	snprintf(r->bus_id, sizeof(r->bus_id), "%s", info.bus_id);
}

static void rail_row(struct dr_node *node, unsigned i)
{
	const struct dr_plan_rail *a = &node->plan->rail[i][node->side],
				  *b = &node->plan->rail[i][!node->side];
	int64_t speed = a->speed_mbps < 0   ? b->speed_mbps
			: b->speed_mbps < 0 ? a->speed_mbps
					    : DR_MIN(a->speed_mbps, b->speed_mbps);
	struct dr_rail_row r;

	dr_rail_row_init(&r);
	r.rail = i;
	snprintf(r.ifname, sizeof(r.ifname), "%s", a->name);
	snprintf(r.address, sizeof(r.address), "%s", a->address);
	snprintf(r.peer_ifname, sizeof(r.peer_ifname), "%s", b->name);
	snprintf(r.peer_address, sizeof(r.peer_address), "%s", b->address);
	r.routed = a->routed;
	if (speed > 0)
		r.speed_gbps = (double)speed / 1000;
	dr_affinity_rail_row(node->plan, node->side, i, &r);
	dr_record_rail(node->rec, &r);
}

/* How many channels of the GPU have the same two rails as channel c; 0: c is not the first of them. */
static unsigned channels_like(const struct dr_plan *p, unsigned k, unsigned c)
{
	struct dr_plan_map m = dr_plan_paths(p, k, c);
	unsigned same = 0;

	for (unsigned d = 0; d < dr_plan_n_bulk(p); d++) {
		struct dr_plan_map o = dr_plan_paths(p, k, d);

		if (o.primary != m.primary || o.shadow != m.shadow)
			continue;
		if (d < c)
			return 0;
		same++;
	}
	return same;
}

/* The channels of GPU k that go the way of channel c. */
static void gpu_row(struct dr_node *node, unsigned k, unsigned c, unsigned channels)
{
	struct dr_plan_map m = dr_plan_paths(node->plan, k, c);
	int cpu = dr_node_place(node, node->worker_of[k]).cpu;
	struct dr_gpu_row r;

	dr_gpu_row_init(&r);
	r.gpu = dr_node_gpu(node, k);
	name_gpu(node, k, &r);
	r.primary = m.primary;
	r.shadow = m.primary == m.shadow ? DR_UNSET : (int64_t)m.shadow;
	r.channels = channels;
	dr_affinity_gpu_row(node->plan, node->side, k, &r);
	if (cpu >= 0)
		r.cpu = cpu;
	dr_record_gpu(node->rec, &r);
}

void dr_node_record_plan(struct dr_node *node)
{
	const struct dr_plan *p = node->plan;

	node->rec->numa_nodes = dr_numa_nodes();
	dr_affinity_describe(node->opt, p, node->side, dr_numa_nodes(), node->rec->numa_binding,
		sizeof(node->rec->numa_binding));
	for (unsigned i = 0; i < p->n_rails; i++)
		rail_row(node, i);
	for (unsigned k = 0; k < p->n_gpus; k++) {
		for (unsigned c = 0; c < dr_plan_n_bulk(p); c++) {
			unsigned n = channels_like(p, k, c);

			if (n)
				gpu_row(node, k, c, n);
		}
	}
}

void dr_node_count_nics(struct dr_node *node)
{
	for (unsigned i = 0; i < node->plan->n_rails; i++) {
		const struct dr_plan_rail *r = &node->plan->rail[i][node->side];
		struct dr_netdev d;

		node->nic_counted[i] =
			r->ifindex > 0 && dr_netdev_by_name(r->name, &d, NULL) == 0 &&
			!d.loopback &&
			dr_netdev_counters(r->ifindex, &node->nic_before[i], NULL) == 0;
	}
}

/* ---- a phase ---- */

static void bandwidth_row(struct dr_node *node, unsigned k, bool sending)
{
	const struct dr_phase_result *r = dr_node_result(node, k);
	struct dr_bandwidth_row row;

	dr_bandwidth_row_init(&row);
	row.phase = node->phase.index;
	row.gpu = node->plan->gpu[k][DR_PLAN_CLIENT];
	row.direction = dr_node_direction(node, sending);
	row.message_bytes = (int64_t)node->phase.message_bytes;
	if (sending) {
		uint64_t now = dr_node_retransmits(node, k);

		row.sender_bytes = (int64_t)r->tx_bytes;
		row.sender_seconds = (double)r->tx_ns / 1e9;
		if (r->tx_ns > 0)
			row.sender_gbps = (double)r->tx_bytes * 8 / (double)r->tx_ns;
		row.retransmits =
			(int64_t)(now > node->retransmits[k] ? now - node->retransmits[k] : 0);
	} else {
		row.bytes = (int64_t)r->rx_bytes;
		row.messages = (int64_t)r->rx_messages;
		row.seconds = (double)r->rx_ns / 1e9;
	}
	dr_record_bandwidth(node->rec, &row);
}

static void integrity(struct dr_node *node, const struct dr_phase_result *r)
{
	struct dr_integrity_row i;

	dr_integrity_row_init(&i);
	i.messages = (int64_t)r->rx_chunks;
	i.bytes = (int64_t)r->rx_bytes;
	i.lost = (int64_t)r->lost;
	i.duplicated = (int64_t)r->duplicated;
	i.reordered = (int64_t)r->reordered;
	i.corrupted = (int64_t)r->corrupted;
	i.verified = node->phase.verify;
	dr_record_integrity(node->rec, &i);
}

static void add_copies(struct dr_node *node, unsigned k, const struct dr_phase_result *r)
{
	if (node->phase.kind != DR_PHASE_BW || !r->copies_ns)
		return;
	dr_bank_copies_add(&node->copies[k], &r->copies);
	node->copies_ns[k] += r->copies_ns;
}

void dr_node_results(struct dr_node *node)
{
	if (!node->phase_open)
		return;
	node->phase_open = false;
	node->interval_at_ns = 0;
	if (node->phase.kind == DR_PHASE_BW && node->phase.iters && !dr_cells_cell(node)) {
		node->cpu_ns += dr_cpu_ns() - node->mark_cpu_ns[0];
		node->cpu_wall_ns += dr_now_ns() - node->phase_ns;
	}
	dr_cells_results(node);
	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		const struct dr_phase_result *r = dr_node_result(node, k);

		add_copies(node, k, r);
		/* A GPU that did not come to its end has no results to read. */
		if (!dr_phase_has_gpu(&node->phase, k))
			continue;
		if (!node->part_done[k][0] && dr_node_has_bulk(node, false))
			continue;
		if (!node->part_done[k][1] && dr_node_has_bulk(node, true))
			continue;
		bool row = node->phase.kind == DR_PHASE_BW && !dr_cells_cell(node);

		if (row && dr_node_has_bulk(node, true))
			bandwidth_row(node, k, true);
		if (row && dr_node_has_bulk(node, false))
			bandwidth_row(node, k, false);
		if (node->phase.kind == DR_PHASE_LAT && node->side == DR_PLAN_CLIENT && r->rtt)
			dr_record_latency_hist(node->rec, node->plan->gpu[k][DR_PLAN_CLIENT],
				(int64_t)node->phase.message_bytes, r->rtt);
		if (node->phase.kind == DR_PHASE_LAT || dr_node_has_bulk(node, false))
			integrity(node, r);
	}
}

void dr_node_cadence(const struct dr_node *node, int64_t *p50_ns, int64_t *p99_ns)
{
	*p50_ns = *p99_ns = DR_UNSET;
	for (unsigned k = 0; k < node->plan->n_gpus && dr_node_has_bulk(node, false); k++) {
		const struct dr_phase_result *r = dr_node_result(node, k);

		if (!r->cadence || dr_hist_count(r->cadence) == 0)
			continue;
		*p50_ns = DR_MAX(*p50_ns, dr_hist_percentile(r->cadence, 50));
		*p99_ns = DR_MAX(*p99_ns, dr_hist_percentile(r->cadence, 99));
	}
}

/* ---- intervals ---- */

int64_t dr_node_deadline(const struct dr_node *node)
{
	return node->interval_at_ns ? node->interval_at_ns + node->plan->interval_ns : DR_NEVER;
}

void dr_node_tick(struct dr_node *node, int64_t now_ns)
{
	struct dr_interval_row row;
	struct dr_node_flow f;

	if (now_ns < dr_node_deadline(node))
		return;
	dr_node_flow(node, &f);
	dr_interval_row_init(&row);
	row.phase = node->phase.index;
	row.direction = dr_node_direction(node, false);
	row.start_ns = node->interval_at_ns - node->begin_ns;
	row.duration_ns = now_ns - node->interval_at_ns;
	row.bytes = (int64_t)(f.rx_bytes - node->interval_bytes);
	row.messages = (int64_t)(f.rx_chunks - node->interval_chunks);
	node->interval_at_ns = now_ns;
	node->interval_bytes = f.rx_bytes;
	node->interval_chunks = f.rx_chunks;
	dr_record_interval(node->rec, &row);
	dr_output_interval(node->out, &row);
	dr_output_publish(node->out, node->rec);
}

/* ---- the end ---- */

/* What the channels sent and received over the devices called `name`, and how often they connected. */
static void add_payload(const struct dr_node *node, const char *name, struct dr_nic_row *row)
{
	struct dr_channel_stats st;

	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		for (unsigned c = 0; c < node->n_channels; c++) {
			struct dr_plan_map m = dr_plan_paths(node->plan, k, c);
			unsigned rail[DR_PATHS] = { m.primary, m.shadow };
			int64_t *sum = dr_node_sends(node, c) ? &row->tx_bytes : &row->rx_bytes;

			dr_node_stats(node, k, c, &st);
			for (unsigned p = 0; p < (m.primary == m.shadow ? 1u : 2u); p++)
				if (strcmp(node->plan->rail[rail[p]][node->side].name, name) == 0) {
					*sum += (int64_t)st.path_bytes[p];
					row->connections += st.path_connections[p];
				}
			row->slack_bytes +=
				(int64_t)(st.switches - st.failbacks) * SLACK_PER_SWITCH;
		}
	}
}

static void nic_row(struct dr_node *node, unsigned i)
{
	const struct dr_plan_rail *rail = &node->plan->rail[i][node->side];
	struct dr_netdev_counters now;
	struct dr_nic_row row;

	for (unsigned j = 0; j < i; j++)
		if (strcmp(node->plan->rail[j][node->side].name, rail->name) == 0)
			return;
	dr_nic_row_init(&row);
	row.side = (int)node->side;
	snprintf(row.name, sizeof(row.name), "%s", rail->name);
	if (rail->speed_mbps > 0)
		row.speed_gbps = (double)rail->speed_mbps / 1000;
	row.tx_bytes = row.rx_bytes = row.slack_bytes = row.connections = 0;
	row.seconds = (double)(dr_now_ns() - node->begin_ns) / 1e9;
	add_payload(node, rail->name, &row);
	if (node->nic_counted[i] && dr_netdev_counters(rail->ifindex, &now, NULL) == 0) {
		row.counter_tx_bytes = (int64_t)(now.tx_bytes - node->nic_before[i].tx_bytes);
		row.counter_rx_bytes = (int64_t)(now.rx_bytes - node->nic_before[i].rx_bytes);
	}
	dr_record_nic(node->rec, &row);
}

/* How many channels have each of their two paths up at the end. */
static void path_rows(struct dr_node *node)
{
	struct dr_channel_stats st;

	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		for (unsigned p = 0; p < DR_PATHS; p++) {
			int64_t n = 0, up = 0;

			for (unsigned c = 0; c < dr_plan_n_bulk(node->plan); c++) {
				struct dr_plan_map m = dr_plan_paths(node->plan, k, c);

				if (p == 1 && m.primary == m.shadow)
					continue;
				dr_node_stats(node, k, c, &st);
				n++;
				up += st.path_up[p];
			}
			if (n)
				dr_record_path(node->rec, dr_node_gpu(node, k), p, n, up);
		}
	}
}

/* ---- memory ---- */

static void copy_figures(const struct dr_node *node, unsigned k, struct dr_memory_row *r)
{
	const struct dr_bank_copies *c = &node->copies[k];
	double ns = (double)node->copies_ns[k];

	if (!node->bank[k] || ns <= 0)
		return;
	r->out_bytes = (int64_t)c->bytes[0];
	r->in_bytes = (int64_t)c->bytes[1];
	r->out_busy_percent = 100 * (double)c->busy_ns[0] / ns;
	r->in_busy_percent = 100 * (double)c->busy_ns[1] / ns;
	r->copies = (int64_t)(c->copies[0] + c->copies[1]);
	r->timed = (int64_t)(c->timed[0] + c->timed[1]);
	r->calls = (int64_t)(c->calls[0] + c->calls[1]);
}

void dr_node_memory(struct dr_node *node)
{
	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		struct dr_bank_info info = { .name = "" };
		struct dr_bank_way way = { .why = "" };
		struct dr_memory_row r;

		dr_memory_row_init(&r);
		r.side = (int)node->side;
		r.gpu = dr_node_gpu(node, k);
		r.memory = node->bank[k] != NULL;
		if (node->bank[k])
			dr_bank_info(node->bank[k], &info);
		snprintf(r.name, sizeof(r.name), "%s", info.name);
		snprintf(r.bus_id, sizeof(r.bus_id), "%s", info.bus_id);
		if (node->bank[k] && node->ready[k]) {
			dr_bank_way(node->bank[k], &way);
			r.staged = way.staged;
		}
		snprintf(r.why, sizeof(r.why), "%s", way.why);
		copy_figures(node, k, &r);
		dr_record_memory(node->rec, &r);
	}
}

bool dr_node_describe_memory(const struct dr_node *node, char *buf, size_t len)
{
	struct dr_bank_way way;

	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		if (!node->bank[k] || !node->ready[k])
			continue;
		dr_bank_way(node->bank[k], &way);
		if (way.staged)
			snprintf(buf, len, "GPU memory: staged through pinned host memory: %s",
				way.why);
		else
			snprintf(buf, len, "GPU memory: reached by the NICs themselves");
		return true;
	}
	return false;
}

void dr_node_finish(struct dr_node *node)
{
	dr_node_memory(node);
	/* Old statistics beside new counters would look like a difference. */
	for (unsigned i = 0; node->snapshot_last && i < node->plan->n_rails; i++)
		nic_row(node, i);
	if (node->snapshot_last)
		path_rows(node);
	if (node->cpu_wall_ns > 0)
		node->rec->cpu_percent_local =
			100.0 * (double)node->cpu_ns / (double)node->cpu_wall_ns;
}
