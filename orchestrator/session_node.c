/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_node_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "orchestrator/engine.h"
#include "orchestrator/kinds.h"
#include "topology/numa.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/*
 * One end of a session, from the plan to workers that have the peer's handles, and its end.
 *  1. A bank outlives the worker that copies with it: workers are destroyed first.
 *  2. A worker is watched once it has made its buffers; until then commands pass it over.
 */

enum { SPIN_NS = 20 * 1000 };

struct dr_node_channel *dr_node_channel(struct dr_node *node, unsigned position, unsigned channel)
{
	return &node->channel[position * node->n_channels + channel];
}

struct dr_worker *dr_node_worker_of(const struct dr_node *node, unsigned position)
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

struct dr_affinity_place dr_node_place(const struct dr_node *node, unsigned worker)
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
	p.cpu = dr_node_place(node, i).cpu;
	p.node = dr_node_place(node, i).node;
	p.chunk_max = node->plan->chunk_max;
	p.seed = node->plan->seed;
	p.client = client;
	p.trace_requests = node->opt->trace_requests;
	if (rc == 0)
		rc = dr_worker_create(&p, &node->worker[i].w, e);
	dr_free(gpus);
	return rc;
}

static int watch_worker(struct dr_node *node, unsigned i, struct dr_err *e)
{
	struct dr_node_worker *w = &node->worker[i];
	int rc = dr_worker_started(w->w, e);

	if (rc)
		return rc;
	w->po.fd = dr_worker_report_fd(w->w);
	w->po.ready = dr_node_on_reports;
	rc = dr_poller_add(node->poller, &w->po, EPOLLIN);
	return rc ? dr_err_set(e, rc, "epoll: %s", strerror(-rc)) : 0;
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
	dr_node_record_plan(node);
	dr_node_memory(node);
	dr_node_count_nics(node);
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
	struct dr_manager *m = dr_worker_manager(dr_node_worker_of(node, position), position);

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
