/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "topology/numa.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The rows of an end: what was planned, and what it measured: bandwidth, latency, intervals, NICs. */

/* Data in a socket's buffers when its link was cut was handed over and never seen by the NIC, or
 * counted by the NIC and never by us: at most one send and one receive buffer a switch. */
enum { SLACK_PER_SWITCH = 8 << 20 };

/* NULL: host memory. */
static const struct dr_gpu_info *gpu_info(const struct dr_local_gpu *g)
{
	return g->buffers ? dr_gpu_info(dr_gpu_buffers_gpu(g->buffers)) : NULL;
}

/* ---- the plan ---- */

static void rail_row(struct dr_local *l, unsigned i)
{
	const struct dr_plan_rail *a = &l->plan->rail[i][l->side], *b = &l->plan->rail[i][!l->side];
	int64_t speed = a->speed_mbps < 0   ? b->speed_mbps
			: b->speed_mbps < 0 ? a->speed_mbps
					    : DR_MIN(a->speed_mbps, b->speed_mbps);
	struct dr_rail_row r;

	dr_fields_init(&dr_rail_fields, &r);
	r.rail = i;
	snprintf(r.ifname, sizeof(r.ifname), "%s", a->name);
	snprintf(r.address, sizeof(r.address), "%s", a->address);
	snprintf(r.peer_ifname, sizeof(r.peer_ifname), "%s", b->name);
	snprintf(r.peer_address, sizeof(r.peer_address), "%s", b->address);
	r.routed = a->routed;
	if (a->mtu > 0)
		r.mtu = a->mtu;
	if (b->mtu > 0)
		r.peer_mtu = b->mtu;
	if (speed > 0)
		r.speed_gbps = (double)speed / 1000;
	dr_affinity_rail_row(l->plan, l->side, i, &r);
	dr_record_add(l->rec, rails, &r);
}

static bool same_rails(const struct dr_local_channel *a, const struct dr_local_channel *b)
{
	return a->gpu == b->gpu && b->bulk && a->rails.primary == b->rails.primary &&
	       a->rails.shadow == b->rails.shadow;
}

/* The channels of the GPU with the paths of this one, which is the first of them. */
static void gpu_row(struct dr_local *l, const struct dr_local_channel *first)
{
	const struct dr_local_gpu *g = first->gpu;
	const struct dr_gpu_info *info = gpu_info(g);
	int cpu = dr_local_place(l, g->on).cpu;
	struct dr_gpu_row r;

	dr_fields_init(&dr_gpu_fields, &r);
	r.gpu = g->number;
	snprintf(r.name, sizeof(r.name), "%.63s", info ? info->name : "host memory");
	snprintf(r.bus_id, sizeof(r.bus_id), "%s", info ? info->bus_id : "");
	r.primary = first->rails.primary;
	if (first->rails.primary != first->rails.shadow)
		r.shadow = first->rails.shadow;
	r.channels = 0;
	for (const struct dr_local_channel *ch = first; ch < l->end; ch++)
		r.channels += same_rails(first, ch);
	dr_affinity_gpu_row(l->plan, l->side, g->position, &r);
	if (cpu >= 0)
		r.cpu = cpu;
	dr_record_add(l->rec, gpus, &r);
}

void dr_local_record_plan(struct dr_local *l)
{
	l->rec->numa_nodes = dr_numa_nodes();
	dr_affinity_describe(l->s->opt, l->plan, l->side, dr_numa_nodes(), l->rec->numa_binding,
		sizeof(l->rec->numa_binding));
	for (unsigned i = 0; i < l->plan->n_rails; i++)
		rail_row(l, i);
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		const struct dr_local_channel *first = ch - ch->number;

		while (ch->bulk && !same_rails(ch, first))
			first++;
		if (ch->bulk && first == ch)
			gpu_row(l, ch);
	}
}

void dr_local_channel_rows(struct dr_local *l, const struct dr_local_gpu *g, int64_t connected_ns)
{
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		struct dr_channel_row r;

		if (ch->gpu != g)
			continue;
		dr_fields_init(&dr_channel_fields, &r);
		r.side = (int)l->side;
		r.gpu = g->number;
		r.channel = ch->number;
		r.direction = dr_local_direction(l, ch->sends);
		r.latency = !ch->bulk;
		snprintf(r.primary_nic, sizeof(r.primary_nic), "%s",
			l->plan->rail[ch->rails.primary][l->side].name);
		if (ch->rails.primary != ch->rails.shadow)
			snprintf(r.shadow_nic, sizeof(r.shadow_nic), "%s",
				l->plan->rail[ch->rails.shadow][l->side].name);
		r.begin_ns = l->begin_ns;
		r.connected_ns = connected_ns;
		dr_record_add(l->rec, channels, &r);
	}
}

/* Those of its RDMA device, too. */
static void read_trouble(const struct dr_local *l, unsigned rail, struct dr_trouble_counts *out)
{
	const struct dr_plan_rail *r = &l->plan->rail[rail][l->side];
	const struct dr_topo_nic *n = l->s->topo ? dr_topo_find_nic(l->s->topo, r->name) : NULL;

	dr_trouble_read("", r->ifindex, n ? n->rdma : "", out);
}

void dr_local_count_nics(struct dr_local *l)
{
	for (unsigned i = 0; i < l->plan->n_rails; i++) {
		const struct dr_plan_rail *r = &l->plan->rail[i][l->side];
		struct dr_netdev d;

		read_trouble(l, i, &l->trouble_before[i]);
		l->nic_counted[i] = r->ifindex > 0 && dr_netdev_by_name(r->name, &d, NULL) == 0 &&
				    !d.loopback &&
				    dr_netdev_counters(r->ifindex, &l->nic_before[i], NULL) == 0;
	}
}

/* ---- a phase ---- */

void dr_local_phase_row(struct dr_local *l, bool over)
{
	struct dr_phase_row r;

	dr_fields_init(&dr_phase_fields, &r);
	r.phase = l->phase.index;
	r.side = (int)l->side;
	r.test = (int)l->phase.kind;
	r.message_bytes = (int64_t)l->phase.message_bytes;
	if (l->phase.gpu_mask && l->phase.rail_mask)
		r.gpu = l->gpu[__builtin_ctz(l->phase.gpu_mask)].number;
	if (l->phase.rail_mask && !(l->phase.rail_mask & (l->phase.rail_mask - 1)))
		r.rail = __builtin_ctz(l->phase.rail_mask);
	r.begin_ns = l->phase_ns;
	if (over)
		r.end_ns = dr_now_ns();
	dr_record_add(l->rec, phases, &r);
}

int64_t dr_local_again(const struct dr_local *l, const struct dr_local_gpu *g)
{
	const struct dr_transport_kind *k = dr_plan_kind(l->plan);

	if (!k || !k->retransmits)
		return DR_UNSET;
	return DR_MAX((int64_t)(dr_local_retransmits(l, g) - g->retransmits), 0);
}

static void bandwidth_row(struct dr_local *l, const struct dr_local_gpu *g, bool sending)
{
	const struct dr_phase_result *r = dr_worker_result(g->on->w, g->position);
	struct dr_bandwidth_row row;

	dr_fields_init(&dr_bandwidth_fields, &row);
	row.phase = l->phase.index;
	row.gpu = g->number;
	row.direction = dr_local_direction(l, sending);
	row.message_bytes = (int64_t)l->phase.message_bytes;
	row.switched = dr_local_away(l, g, sending);
	if (sending) {
		row.sender_bytes = (int64_t)r->tx.bytes;
		row.sender_seconds = (double)r->tx.ns / 1e9;
		if (r->tx.ns > 0)
			row.sender_gbps = (double)r->tx.bytes * 8 / (double)r->tx.ns;
		row.retransmits = dr_local_again(l, g);
	} else {
		row.bytes = (int64_t)r->rx.bytes;
		row.messages = (int64_t)r->rx.messages;
		row.seconds = (double)r->rx.ns / 1e9;
	}
	dr_record_add(l->rec, bandwidth, &row);
}

/* Adds to the measurement's row, of all GPUs of this end. */
static void add_check(struct dr_local *l, const struct dr_integrity_row *i)
{
	struct dr_check_row none = { .phase = l->phase.index,
		.side = (int)l->side,
		.test = (int)l->phase.kind,
		.verified = i->verified };
	struct dr_check_row *row = dr_rows_find(
		&l->rec->checks.index, &dr_check_fields, l->rec->checks.v, l->rec->checks.n, &none);

	if (!row)
		row = dr_record_add(l->rec, checks, &none);
	if (!row)
		return;
	row->chunks += i->chunks;
	row->bytes += i->bytes;
	row->lost += i->lost;
	row->duplicated += i->duplicated;
	row->reordered += i->reordered;
	row->corrupted += i->corrupted;
}

static void integrity(struct dr_local *l, const struct dr_phase_result *r)
{
	struct dr_integrity_row i = { .chunks = (int64_t)r->rx.chunks,
		.bytes = (int64_t)r->rx.bytes,
		.lost = (int64_t)r->lost,
		.duplicated = (int64_t)r->duplicated,
		.reordered = (int64_t)r->reordered,
		.corrupted = (int64_t)r->corrupted,
		.verified = l->phase.verify };

	dr_integrity_add(&l->rec->integrity, &i);
	add_check(l, &i);
}

/* Of the primary path of the GPU's channels for round trips. */
static const char *latency_nic(const struct dr_local *l, const struct dr_local_gpu *g)
{
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		if (ch->gpu == g && !ch->bulk)
			return l->plan->rail[ch->rails.primary][l->side].name;
	return "";
}

static void gpu_results(struct dr_local *l, struct dr_local_gpu *g)
{
	const struct dr_phase_result *r = dr_worker_result(g->on->w, g->position);
	bool bw = l->phase.kind == DR_PHASE_BW, lat = l->phase.kind == DR_PHASE_LAT;

	if (!dr_phase_has_gpu(&l->phase, g->position) || !dr_local_gpu_over(g))
		return;
	if (bw && r->copies_ns) {
		dr_gpu_buffers_copies_add(&g->copies, &r->copies, 1);
		g->copies_ns += r->copies_ns;
	}
	for (int sending = 1; sending >= 0; sending--)
		if (bw && !dr_matrix_cell_running(l) && dr_local_has_bulk(l, sending))
			bandwidth_row(l, g, sending);
	if (lat && l->side == DR_PLAN_CLIENT && r->rtt)
		dr_record_latency_hist(l->rec, g->number, latency_nic(l, g),
			(int64_t)l->phase.message_bytes, r->rtt,
			dr_local_away(l, g, true) + dr_local_away(l, g, false));
	if (lat || dr_local_has_bulk(l, false))
		integrity(l, r);
}

void dr_local_results(struct dr_local *l)
{
	if (!l->phase_open)
		return;
	l->phase_open = false;
	dr_local_phase_row(l, true);
	dr_local_interval_end(l, dr_now_ns());
	dr_local_measured(l);
	if (l->phase.kind == DR_PHASE_BW && l->phase.iters && !dr_matrix_cell_running(l)) {
		l->cpu_ns += dr_cpu_ns() - l->mark_cpu_ns[0];
		l->cpu_wall_ns += dr_now_ns() - l->phase_ns;
	}
	dr_matrix_results(l);
	for (struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++)
		gpu_results(l, g);
}

void dr_local_cadence(const struct dr_local *l, int64_t *p50_ns, int64_t *p99_ns)
{
	*p50_ns = *p99_ns = DR_UNSET;
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++) {
		if (!dr_local_has_bulk(l, false) || !dr_local_gpu_over(g))
			continue;
		const struct dr_hist *h = dr_worker_result(g->on->w, g->position)->cadence;
		if (!h || dr_hist_count(h) == 0)
			continue;
		*p50_ns = DR_MAX(*p50_ns, dr_hist_percentile(h, 50));
		*p99_ns = DR_MAX(*p99_ns, dr_hist_percentile(h, 99));
	}
}

/* ---- intervals ---- */

/*
 * Rows begin and end at the marks, so that those of the measured part add up to it; there are none while it drains.
 * A row is due a little after its time, so that the mark at the end of a whole number of intervals comes first.
 */
enum { INTERVAL_LATE_PART = 10, INTERVAL_LATE_MAX_NS = 20 * 1000 * 1000 };

/* With iterations: has a channel that receives here not counted its first message yet? */
static bool warming_up(const struct dr_local *l)
{
	const struct dr_phase *p = &l->phase;
	uint64_t warmup = p->warmup * ((p->message_bytes - 1) / p->chunk_bytes + 1);

	if (!p->iters)
		return !l->mark_ns[0];
	for (const struct dr_local_channel *ch = l->channel; warmup && ch < l->end; ch++)
		if (ch->bulk && !ch->sends && dr_phase_has_gpu(p, ch->gpu->position) &&
			dr_phase_has_rail(p, ch->rails.primary) &&
			dr_local_live(ch).chunks_rx - ch->chunks_before < warmup)
			return true;
	return false;
}

void dr_local_interval_begin(struct dr_local *l, int64_t now_ns)
{
	l->interval_at_ns = now_ns;
	l->interval_omitted = warming_up(l);
	l->interval = dr_local_flow(l);
}

static int64_t interval_deadline(const struct dr_local *l)
{
	int64_t every = l->plan->interval_ns;

	return l->interval_at_ns ? l->interval_due_ns + DR_MIN(every / INTERVAL_LATE_PART,
								(int64_t)INTERVAL_LATE_MAX_NS)
				 : DR_NEVER;
}

int64_t dr_local_deadline(const struct dr_local *l)
{
	int64_t lines = l->switch_lines.due_ns ? l->switch_lines.due_ns : DR_NEVER;

	return DR_MIN(DR_MIN(interval_deadline(l), dr_live_deadline(l)), lines);
}

void dr_local_interval_end(struct dr_local *l, int64_t now_ns)
{
	struct dr_local_flow flow = dr_local_flow(l);
	struct dr_interval_row row;

	if (!l->interval_at_ns || now_ns <= l->interval_at_ns)
		return;
	dr_fields_init(&dr_interval_fields, &row);
	row.phase = l->phase.index;
	row.direction = dr_local_direction(l, false);
	row.start_ns = l->interval_at_ns - l->begin_ns;
	row.duration_ns = now_ns - l->interval_at_ns;
	row.bytes = (int64_t)(flow.rx_bytes - l->interval.rx_bytes);
	row.chunks = (int64_t)(flow.rx_chunks - l->interval.rx_chunks);
	row.omitted = l->interval_omitted;
	l->interval_at_ns = 0;
	dr_record_add(l->rec, intervals, &row);
	dr_output_row(l->out, intervals, &row);
	dr_output_publish(l->out, l->rec);
}

bool dr_local_tick(struct dr_local *l, int64_t now_ns)
{
	bool lines = dr_switch_lines_tick(l, now_ns);

	dr_live_tick(l, now_ns);
	if (now_ns < interval_deadline(l))
		return lines;
	dr_local_interval_end(l, now_ns);
	dr_local_interval_begin(l, now_ns);
	while (l->interval_due_ns <= now_ns)
		l->interval_due_ns += l->plan->interval_ns;
	return true;
}

/* ---- the end ---- */

/* What the channel sent or received over the device called `name`, and how often it connected. */
static void add_payload(
	const struct dr_local *l, const struct dr_local_channel *ch, struct dr_nic_row *row)
{
	const unsigned rail[DR_PATHS] = { ch->rails.primary, ch->rails.shadow };
	struct dr_channel_stats st = dr_local_stats(ch);

	for (unsigned p = 0; p < (rail[0] == rail[1] ? 1 : DR_PATHS); p++) {
		if (strcmp(l->plan->rail[rail[p]][l->side].name, row->name) != 0)
			continue;
		*(ch->sends ? &row->tx_bytes : &row->rx_bytes) += (int64_t)st.path_bytes[p];
		row->connections += st.path_connections[p];
	}
	row->slack_bytes += (int64_t)(st.switches + st.failbacks) * SLACK_PER_SWITCH;
}

/* Of the rails that use the device, the worst. */
static void add_rate(struct dr_local *l, unsigned rail, struct dr_nic_row *row)
{
	struct dr_rate_state st;

	dr_rail_rates_get(&l->rates, rail, &st);
	if (st.bps > 0)
		row->measured_gbps = fmin(row->measured_gbps, st.bps / 1e9);
	row->degraded = DR_MAX(row->degraded, (int)st.degraded);
}

static void nic_row(struct dr_local *l, unsigned i)
{
	const struct dr_plan_rail *rail = &l->plan->rail[i][l->side];
	struct dr_netdev_counters now;
	struct dr_trouble_counts trouble;
	int64_t grown[DR_TROUBLES];
	struct dr_nic_row row;

	for (unsigned j = 0; j < i; j++)
		if (strcmp(l->plan->rail[j][l->side].name, rail->name) == 0)
			return;
	dr_fields_init(&dr_nic_fields, &row);
	row.side = (int)l->side;
	snprintf(row.name, sizeof(row.name), "%s", rail->name);
	if (rail->speed_mbps > 0)
		row.speed_gbps = (double)rail->speed_mbps / 1000;
	row.tx_bytes = row.rx_bytes = row.slack_bytes = row.connections = 0;
	row.seconds = (double)(dr_now_ns() - l->begin_ns) / 1e9;
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		add_payload(l, ch, &row);
	if (l->plan->detect == DR_DETECT_TRANSPORT) /* it may have used other NICs */
		row.tx_bytes = row.rx_bytes = row.slack_bytes = DR_UNSET;
	for (unsigned j = i; j < l->plan->n_rails; j++)
		if (strcmp(l->plan->rail[j][l->side].name, rail->name) == 0)
			add_rate(l, j, &row);
	if (l->nic_counted[i] && dr_netdev_counters(rail->ifindex, &now, NULL) == 0) {
		row.counter_tx_bytes = (int64_t)(now.tx_bytes - l->nic_before[i].tx_bytes);
		row.counter_rx_bytes = (int64_t)(now.rx_bytes - l->nic_before[i].rx_bytes);
		row.counter_tx_packets = (int64_t)(now.tx_packets - l->nic_before[i].tx_packets);
		row.counter_rx_packets = (int64_t)(now.rx_packets - l->nic_before[i].rx_packets);
	}
	read_trouble(l, i, &trouble);
	dr_trouble_growth(&l->trouble_before[i], &trouble, grown, row.grown, sizeof(row.grown));
	row.errors = grown[DR_TROUBLE_ERRORS];
	row.drops = grown[DR_TROUBLE_DROPS];
	row.link_changes = grown[DR_TROUBLE_LINK];
	dr_record_add(l->rec, nics, &row);
}

/* How many of the GPU's channels have this path up at the end. */
static void path_row(struct dr_local *l, const struct dr_local_gpu *g, unsigned path)
{
	struct dr_path_row row = { .gpu = g->number, .path = path };

	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		if (ch->gpu != g || !ch->bulk ||
			(path == 1 && ch->rails.primary == ch->rails.shadow))
			continue;
		row.channels++;
		row.up += dr_local_stats(ch).path_up[path];
	}
	if (row.channels)
		dr_record_add(l->rec, paths, &row);
}

/* ---- memory ---- */

static void copy_figures(const struct dr_local_gpu *g, struct dr_memory_row *r)
{
	const struct dr_gpu_stream_stats *out = &g->copies.way[DR_STAGE_OUT],
					 *in = &g->copies.way[DR_STAGE_IN],
					 *unpack = &g->copies.way[DR_GPU_UNPACKED];
	double ns = (double)g->copies_ns;

	if (!g->buffers || ns <= 0)
		return;
	r->out_bytes = (int64_t)out->bytes;
	r->in_bytes = (int64_t)in->bytes;
	r->out_busy_percent = 100 * (double)out->busy_ns / ns;
	r->in_busy_percent = 100 * (double)in->busy_ns / ns;
	r->unpacked_bytes = (int64_t)unpack->bytes;
	r->unpack_busy_percent = 100 * (double)unpack->busy_ns / ns;
	r->copies = (int64_t)(out->copies + in->copies);
	r->timed = (int64_t)(out->timed + in->timed);
	r->calls = (int64_t)(out->calls + in->calls);
}

static void memory_row(struct dr_local *l, const struct dr_local_gpu *g)
{
	const struct dr_gpu_info *info = gpu_info(g);
	struct dr_staged_choice method = { .why = "" };
	struct dr_memory_row r;

	dr_fields_init(&dr_memory_fields, &r);
	r.side = (int)l->side;
	r.gpu = g->number;
	r.memory = info != NULL;
	snprintf(r.name, sizeof(r.name), "%s", info ? info->name : "");
	snprintf(r.bus_id, sizeof(r.bus_id), "%s", info ? info->bus_id : "");
	if (info && g->ready) {
		dr_gpu_buffers_method(g->buffers, &method);
		r.staged = method.staged > 0;
	}
	snprintf(r.staged_because, sizeof(r.staged_because), "%s", method.why);
	copy_figures(g, &r);
	dr_record_add(l->rec, memory, &r);
}

void dr_local_memory(struct dr_local *l)
{
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++)
		memory_row(l, g);
}

bool dr_local_describe_memory(const struct dr_local *l, char *buf, size_t len)
{
	struct dr_staged_choice method;
	const struct dr_local_gpu *g = l->gpu;

	while (g < l->gpu_end && !(g->buffers && g->ready))
		g++;
	if (g == l->gpu_end)
		return false;
	dr_gpu_buffers_method(g->buffers, &method);
	snprintf(buf, len, "GPU memory: %s%s",
		method.staged ? "staged through pinned host memory: "
			      : "not staged: given to the NIC, or to the plugin",
		method.staged ? method.why : "");
	return true;
}

void dr_local_finish(struct dr_local *l)
{
	dr_switch_lines_end(l);
	dr_local_memory(l);
	dr_live_end(l);
	if (l->cpu_wall_ns > 0)
		l->rec->cpu_percent_local = 100.0 * (double)l->cpu_ns / (double)l->cpu_wall_ns;
	dr_local_record_processor(l);
	/* Old statistics beside new counters would look like a difference. */
	if (!l->snapshot_last)
		return;
	for (unsigned i = 0; i < l->plan->n_rails; i++)
		nic_row(l, i);
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++)
		for (unsigned p = 0; p < DR_PATHS; p++)
			path_row(l, g, p);
}
