/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_node.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/affinity.h"
#include "orchestrator/engine.h"
#include "orchestrator/kinds.h"
#include "topology/numa.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct dr_node_worker {
	struct dr_pollable po;
	struct dr_node *node;
	struct dr_worker *w;
};

enum { SPIN_NS = 20 * 1000 };

struct dr_node_channel *dr_node_channel(struct dr_node *node, unsigned position, unsigned channel)
{
	return &node->channel[position * node->n_channels + channel];
}

static struct dr_worker *worker_of(const struct dr_node *node, unsigned position)
{
	return node->worker[node->worker_of[position]].w;
}

bool dr_node_sends(const struct dr_node *node, unsigned channel)
{
	return dr_plan_from_client(node->plan, channel) == (node->side == DR_PLAN_CLIENT);
}

bool dr_node_has_bulk(const struct dr_node *node, bool sending)
{
	return (node->side == DR_PLAN_CLIENT) == sending ? node->plan->forward
							 : node->plan->reverse;
}

int dr_node_direction(const struct dr_node *node, bool sending)
{
	return (node->side == DR_PLAN_CLIENT) == sending ? DR_TO_SERVER : DR_TO_CLIENT;
}

unsigned dr_node_gpu(const struct dr_node *node, unsigned position)
{
	return node->plan->gpu[position][DR_PLAN_CLIENT];
}

/* ---- making it ---- */

static struct dr_affinity_place place_of(const struct dr_node *node, unsigned worker)
{
	bool mine[DR_PLAN_GPUS_MAX];

	for (unsigned k = 0; k < node->plan->n_gpus; k++)
		mine[k] = node->worker_of[k] == worker;
	return dr_affinity_worker(node->opt, node->plan, node->side, dr_numa_nodes(), worker, mine);
}

/* GPU memory of the GPU at `position`: the manager's transport is wrapped. */
static int open_bank(
	struct dr_node *node, unsigned position, struct dr_manager_params *m, struct dr_err *e)
{
	const struct dr_plan *p = node->plan;
	struct dr_bank_params bp = { .ordinal = p->gpu[position][node->side],
		.ring_bytes = p->window * dr_engine_stride(p->chunk_max) };
	int rc = dr_bank_open(&bp, &node->bank[position], e);

	return rc ? rc : dr_bank_wrap(node->bank[position], m, e);
}

static int make_worker(struct dr_node *node, unsigned i, const uint8_t *token, struct dr_err *e)
{
	struct dr_worker_gpu_params *gpus = dr_calloc(node->plan->n_gpus, sizeof(*gpus));
	struct dr_worker_params p = { 0 };
	unsigned n_bulk = dr_plan_n_bulk(node->plan);
	bool client = node->side == DR_PLAN_CLIENT;
	int rc = 0;

	if (!gpus)
		return dr_err_set(e, -ENOMEM, "out of memory");
	for (unsigned k = 0; k < node->plan->n_gpus && rc == 0; k++) {
		if (node->worker_of[k] != i)
			continue;
		struct dr_worker_gpu_params *g = &gpus[p.n_gpus++];

		dr_plan_manager(node->plan, node->side, k, &g->manager);
		dr_kind_manager(node->kind, &g->manager);
		g->manager.gpu = node->plan->gpu[k][node->side];
		g->manager.port_min = node->opt->data_port_min;
		g->manager.port_max = node->opt->data_port_max;
		memcpy(g->manager.token, token, DR_TOKEN_LEN);
		g->manager.life = &node->life;
		g->position = k;
		g->gpu = dr_node_gpu(node, k);
		g->n_bulk = n_bulk;
		g->lat_tx = node->plan->lat ? (int)(n_bulk + !client) : -1;
		g->lat_rx = node->plan->lat ? (int)(n_bulk + client) : -1;
		if (node->opt->cuda)
			rc = open_bank(node, k, &g->manager, e);
		g->bank = node->bank[k];
	}
	p.index = i;
	p.gpus = gpus;
	p.poll = (enum dr_poll_policy)node->opt->poll;
	p.spin_ns = sysconf(_SC_NPROCESSORS_ONLN) >= 2 * (long)node->n_workers ? SPIN_NS : 0;
	p.cpu = place_of(node, i).cpu;
	p.node = place_of(node, i).node;
	p.chunk_max = node->plan->chunk_max;
	p.seed = node->plan->seed;
	p.client = client;
	p.trace_requests = node->opt->trace_requests;
	if (rc == 0)
		rc = dr_worker_create(&p, &node->worker[i].w, e);
	dr_free(gpus);
	return rc;
}

static void on_report_fd(struct dr_pollable *po, uint32_t revents, int64_t now_ns);

static int watch_worker(struct dr_node *node, unsigned i, struct dr_err *e)
{
	struct dr_node_worker *w = &node->worker[i];
	int rc = dr_worker_started(w->w, e);

	if (rc)
		return rc;
	w->po.fd = dr_worker_report_fd(w->w);
	w->po.ready = on_report_fd;
	rc = dr_poller_add(node->poller, &w->po, EPOLLIN);
	return rc ? dr_err_set(e, rc, "epoll: %s", strerror(-rc)) : 0;
}

static void name_gpu(const struct dr_node *node, unsigned position, struct dr_gpu_row *r)
{
	struct dr_bank_info info = { .name = "host memory" };

	if (node->bank[position])
		dr_bank_info(node->bank[position], &info);
	snprintf(r->name, sizeof(r->name), "%.63s", info.name);
	snprintf(r->bus_id, sizeof(r->bus_id), "%s", info.bus_id);
}

static void record_plan(struct dr_node *node)
{
	const struct dr_plan *p = node->plan;

	node->rec->numa_nodes = dr_numa_nodes();
	dr_affinity_describe(node->opt, p, node->side, dr_numa_nodes(), node->rec->numa_binding,
		sizeof(node->rec->numa_binding));

	for (unsigned i = 0; i < p->n_rails; i++) {
		const struct dr_plan_rail *a = &p->rail[i][node->side],
					  *b = &p->rail[i][!node->side];
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
		dr_affinity_rail_row(p, node->side, i, &r);
		dr_record_rail(node->rec, &r);
	}
	for (unsigned k = 0; k < p->n_gpus; k++) {
		for (unsigned c = 0; c < dr_plan_n_bulk(p); c++) {
			struct dr_plan_map m = dr_plan_paths(p, k, c);
			unsigned same = 0;
			bool first = true;
			struct dr_gpu_row r;

			for (unsigned d = 0; d < dr_plan_n_bulk(p); d++) {
				struct dr_plan_map o = dr_plan_paths(p, k, d);
				if (o.primary != m.primary || o.shadow != m.shadow)
					continue;
				first = first && d >= c;
				same++;
			}
			if (!first)
				continue;
			dr_gpu_row_init(&r);
			r.gpu = dr_node_gpu(node, k);
			name_gpu(node, k, &r);
			r.primary = m.primary;
			r.shadow = m.primary == m.shadow ? DR_UNSET : (int64_t)m.shadow;
			r.channels = same;
			dr_affinity_gpu_row(p, node->side, k, &r);
			if (place_of(node, node->worker_of[k]).cpu >= 0)
				r.cpu = place_of(node, node->worker_of[k]).cpu;
			dr_record_gpu(node->rec, &r);
		}
	}
}

static void count_nics(struct dr_node *node)
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

/* One worker a GPU, but by default no more than CPUs: workers that queue for a CPU wait for each other's
 * whole time slices, milliseconds of every gap, where one that serves several GPUs takes turns of its
 * own in a fraction of that. */
static unsigned count_workers(const struct dr_options *opt, const struct dr_plan *plan)
{
	cpu_set_t set;
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);

	if (opt->workers)
		return (unsigned)DR_MIN(opt->workers, plan->n_gpus);
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		cpus = CPU_COUNT(&set);
	return DR_MIN(plan->n_gpus, (unsigned)DR_MAX(cpus, 1));
}

int dr_node_create(struct dr_node **out, const struct dr_options *opt, const struct dr_plan *plan,
	enum dr_plan_end side, const uint8_t *token, struct dr_loop *loop, struct dr_record *rec,
	struct dr_output *output, const struct dr_node_ops *ops, void *arg, struct dr_err *e)
{
	struct dr_node *node = dr_calloc(1, sizeof(*node));
	unsigned n = count_workers(opt, plan);
	int rc = 0;

	if (!node)
		return dr_err_set(e, -ENOMEM, "out of memory");
	node->opt = opt;
	node->plan = plan;
	node->side = side;
	node->poller = loop->poller;
	node->rec = rec;
	node->out = output;
	node->ops = ops;
	node->arg = arg;
	node->n_channels = dr_plan_n_channels(plan);
	rc = dr_kind_create(opt, plan, &node->kind, e);
	node->channel = dr_calloc((size_t)plan->n_gpus * node->n_channels, sizeof(*node->channel));
	node->worker = dr_calloc(n, sizeof(*node->worker));
	if (rc == 0 && (!node->channel || !node->worker))
		rc = dr_err_set(e, -ENOMEM, "out of memory");
	for (unsigned k = 0; k < plan->n_gpus; k++)
		node->worker_of[k] = k % n;
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		node->worker[i].po.fd = -1;
		node->worker[i].node = node;
		node->n_workers = n;
		rc = make_worker(node, i, token, e);
	}
	if (rc) {
		dr_node_destroy(node);
		return rc;
	}
	node->begin_ns = dr_now_ns();
	record_plan(node);
	dr_node_memory(node);
	count_nics(node);
	*out = node;
	return 0;
}

void dr_node_destroy(struct dr_node *node)
{
	if (!node)
		return;
	for (unsigned i = 0; i < node->n_workers; i++) {
		if (node->worker[i].po.fd >= 0)
			dr_poller_del(node->poller, &node->worker[i].po);
		if (node->worker[i].w)
			dr_worker_destroy(node->worker[i].w);
	}
	for (unsigned k = 0; k < DR_PLAN_GPUS_MAX; k++)
		dr_bank_close(node->bank[k]);
	dr_kind_destroy(node->kind);
	dr_free(node->worker);
	dr_free(node->channel);
	dr_free(node);
}

/* ---- handles ---- */

unsigned dr_node_handle_count(const struct dr_node *node)
{
	return dr_plan_n_handles(node->plan);
}

int dr_node_handles(struct dr_node *node, unsigned position, struct dr_boot_handle *out, unsigned n)
{
	struct dr_manager *m = dr_worker_manager(worker_of(node, position), position);

	if (!m || dr_manager_handle_count(m) != n)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		int len = dr_manager_handle(m, i, out[i].bytes, sizeof(out[i].bytes));
		if (len < 0)
			return len;
		out[i].len = (uint8_t)len;
	}
	return 0;
}

int dr_node_start(struct dr_node *node, struct dr_err *e)
{
	int rc = 0;

	for (unsigned i = 0; i < node->n_workers && rc == 0; i++)
		rc = dr_worker_start(node->worker[i].w, e);
	return rc;
}

int dr_node_connect(struct dr_node *node, unsigned position, const struct dr_boot_handle *handles,
	unsigned n, struct dr_err *e)
{
	uint8_t bytes[DR_PLAN_HANDLES_MAX][DR_HANDLE_MAX];
	uint16_t lens[DR_PLAN_HANDLES_MAX];
	struct dr_command cmd = { .kind = DR_CMD_CONNECT, .position = position };
	unsigned i = node->worker_of[position];
	int rc;

	if (n != dr_node_handle_count(node))
		return dr_err_set(
			e, -EPROTO, "peer: %u handles, %u expected", n, dr_node_handle_count(node));
	for (unsigned h = 0; h < n; h++) {
		memcpy(bytes[h], handles[h].bytes, DR_HANDLE_MAX);
		lens[h] = handles[h].len;
	}
	rc = dr_worker_set_peer(node->worker[i].w, position, bytes, lens, n);
	if (rc)
		return dr_err_set(e, rc, "peer: handles of GPU %u: %s", dr_node_gpu(node, position),
			strerror(-rc));
	if (node->worker[i].po.fd < 0)
		rc = watch_worker(node, i, e);
	if (rc == 0)
		dr_worker_post(node->worker[i].w, &cmd);
	return rc;
}

/* ---- reports ---- */

static void event(
	struct dr_node *node, const struct dr_report *rep, const char *kind, const char *text)
{
	struct dr_event_row row;

	dr_event_row_init(&row);
	row.monotonic_ns = rep->now_ns;
	row.wall_ns = dr_wall_ns() - (dr_now_ns() - rep->now_ns);
	row.side = (int)node->side;
	snprintf(row.kind, sizeof(row.kind), "%s", kind);
	if (rep->position < node->plan->n_gpus)
		row.gpu = dr_node_gpu(node, rep->position);
	if (rep->kind == DR_REP_SWITCH || rep->kind == DR_REP_PROTECTION ||
		(rep->kind == DR_REP_FAILED && rep->channel != DR_ALL))
		row.channel = rep->channel;
	if (rep->kind == DR_REP_RAIL && rep->rail < node->plan->n_rails)
		snprintf(row.nic, sizeof(row.nic), "%s",
			node->plan->rail[rep->rail][node->side].name);
	snprintf(row.text, sizeof(row.text), "%s", text);
	dr_record_event(node->rec, &row);
	dr_output_event(node->out, &row);
}

static void on_switch(struct dr_node *node, const struct dr_report *rep)
{
	struct dr_node_channel *c = dr_node_channel(node, rep->position, rep->channel);
	struct dr_switch_row row;

	c->active = rep->rec.to;
	c->last_switch_ns = rep->now_ns;
	if (rep->rec.planned)
		c->planned++;
	else
		c->unplanned++;
	dr_switch_row_init(&row);
	row.side = (int)node->side;
	row.gpu = dr_node_gpu(node, rep->position);
	row.channel = rep->channel;
	row.receiver = !dr_node_sends(node, rep->channel);
	row.rec = rep->rec;
	dr_record_switch(node->rec, &row);
	dr_output_switch(node->out, &row);
}

static void on_failed(struct dr_node *node, const struct dr_report *rep)
{
	if (rep->position < node->plan->n_gpus) {
		for (unsigned c = 0; c < node->n_channels; c++)
			if (rep->channel == DR_ALL || rep->channel == c)
				dr_node_channel(node, rep->position, c)->failed = true;
		node->part_done[rep->position][0] = node->part_done[rep->position][1] = true;
	}
	if (node->n_failed++ == 0) {
		node->fail_err = rep->err;
		if (rep->position < node->plan->n_gpus)
			snprintf(node->fail_text, sizeof(node->fail_text), "GPU %u: %s",
				dr_node_gpu(node, rep->position), rep->text);
		else
			snprintf(node->fail_text, sizeof(node->fail_text), "%s", rep->text);
	}
	event(node, rep, "failed", rep->text);
}

static void on_protection(struct dr_node *node, const struct dr_report *rep)
{
	struct dr_node_channel *c = dr_node_channel(node, rep->position, rep->channel);
	unsigned before = node->unprotected;

	if (c->both_up == rep->flag)
		return;
	c->both_up = rep->flag;
	node->unprotected = 0;
	for (unsigned i = 0; i < node->plan->n_gpus * node->n_channels; i++)
		node->unprotected += !node->channel[i].both_up;
	if (!before != !node->unprotected)
		event(node, rep, "protection",
			node->unprotected ? "unprotected: a path is down"
					  : "both paths of all channels are up");
}

static void on_part_done(struct dr_node *node, const struct dr_report *rep)
{
	uint64_t totals[DR_CHANNELS_MAX] = { 0 };
	struct dr_live live;

	if (rep->value != (int64_t)node->phase.index)
		return;
	node->part_done[rep->position][rep->flag] = true;
	if (node->phase.kind == DR_PHASE_LAT)
		node->part_done[rep->position][0] = true;
	if (!rep->flag)
		return;
	for (unsigned c = 0; c < node->n_channels; c++) {
		if (!dr_node_sends(node, c))
			continue;
		dr_worker_live(worker_of(node, rep->position), rep->position, c, &live);
		totals[c] = live.posted;
	}
	node->ops->sent(node->arg, rep->position, totals, node->n_channels);
}

static void take(struct dr_node *node, const struct dr_report *rep)
{
	static const char *const rail_state[] = { "alive", "suspect", "down" };
	char text[200];

	switch (rep->kind) {
	case DR_REP_READY:
		if (!node->ready[rep->position]) {
			node->ready[rep->position] = true;
			node->n_ready++;
		}
		break;
	case DR_REP_PHASE_DONE:
		on_part_done(node, rep);
		break;
	case DR_REP_SWITCH:
		on_switch(node, rep);
		break;
	case DR_REP_PROTECTION:
		on_protection(node, rep);
		break;
	case DR_REP_RAIL:
		snprintf(text, sizeof(text), "%s: %s", rail_state[rep->rail_state % 3], rep->text);
		event(node, rep, "rail", text);
		break;
	case DR_REP_SILENCE:
		event(node, rep, "silence",
			rep->flag ? "every rail is silent; the peer's kernel answers: it is stopped"
				  : "every rail is silent and nothing answers");
		break;
	case DR_REP_FAILED:
		on_failed(node, rep);
		break;
	case DR_REP_SNAPSHOT:
		if ((uint64_t)rep->value == node->token && node->snapshots_open)
			node->snapshot_last = --node->snapshots_open == 0;
		break;
	case DR_REP_FIRST_ERROR:
		node->integrity_error = true;
		dr_error("data", "%s", rep->text);
		event(node, rep, "integrity", rep->text);
		break;
	}
	node->ops->report(node->arg, rep);
}

static void on_report_fd(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_node_worker *w = dr_container_of(po, struct dr_node_worker, po);
	struct dr_report rep;

	(void)revents;
	(void)now_ns;
	while (dr_worker_next_report(w->w, &rep) == 1)
		take(w->node, &rep);
}

/* ---- commands ---- */

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
	return dr_worker_result(worker_of(node, position), position);
}

void dr_node_stats(const struct dr_node *node, unsigned position, unsigned channel,
	struct dr_channel_stats *out)
{
	dr_worker_channel_stats(worker_of(node, position), position, channel, out);
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

void dr_node_stall_report(struct dr_node *node, const char *why)
{
	char line[400];

	dr_warn("stall", "%s; what each channel waits for:", why);
	for (unsigned k = 0; k < node->plan->n_gpus; k++) {
		if (node->part_done[k][0] && node->part_done[k][1])
			continue;
		for (unsigned c = 0; c < node->n_channels; c++) {
			dr_worker_describe(worker_of(node, k), k, c, line, sizeof(line));
			dr_warn("stall", "GPU %u channel %u: %s", dr_node_gpu(node, k), c, line);
		}
	}
}

void dr_node_live(
	const struct dr_node *node, unsigned position, unsigned channel, struct dr_live *out)
{
	dr_worker_live(worker_of(node, position), position, channel, out);
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
