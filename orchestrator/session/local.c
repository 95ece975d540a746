/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "channel/peer.h"
#include "orchestrator/engine/engine.h"
#include "orchestrator/session/pulse.h"
#include "topology/numa.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/*
 * One end of a session, from the plan to workers that have the peer's handles, and its end.
 *  1. The GPU buffers outlive the worker that uses them: workers are destroyed first.
 *  2. A worker is watched once it has made its buffers; until then commands pass it over.
 *  3. What may take long runs beside a pulse: it touches neither the bootstrap nor the main thread's poller.
 */

enum { SPIN_NS = 20 * 1000 };

struct dr_affinity_place dr_local_place(
	const struct dr_local *l, const struct dr_local_worker *worker)
{
	bool mine[DR_PLAN_GPUS_MAX];

	for (unsigned k = 0; k < l->plan->n_gpus; k++)
		mine[k] = l->gpu[k].on == worker;
	return dr_affinity_worker(
		l->s->opt, l->plan, l->side, dr_numa_nodes(), (unsigned)(worker - l->worker), mine);
}

/* What the managers of all GPUs have in common. */
static void manager_params(const struct dr_local *l, unsigned position, struct dr_manager_params *m)
{
	dr_plan_manager(l->plan, l->side, m);
	m->gpu = l->plan->gpu[position][l->side];
	m->port_min = l->s->opt->data_port_min;
	m->port_max = l->s->opt->data_port_max;
	memcpy(m->token, dr_control_token(l->s->control), DR_TOKEN_LEN);
	m->peer = l->peer;
}

static int make_peer(struct dr_local *l, struct dr_err *e)
{
	struct dr_manager_params m;
	int rc;

	if (dr_plan_n_peer_handles(l->plan) == 0)
		return 0;
	manager_params(l, 0, &m);
	rc = dr_poller_create(&l->peer_poller, e);
	return rc ? rc : dr_peer_create(&m, l->peer_poller, &l->peer, e);
}

/* With GPU memory the manager's transport is wrapped. */
static int gpu_params(struct dr_local *l, struct dr_local_gpu *g, struct dr_worker_gpu_params *p,
	struct dr_err *e)
{
	unsigned n_bulk = dr_plan_n_bulk(l->plan), client = l->side == DR_PLAN_CLIENT;
	struct dr_gpu_buffers_params bp = { .ordinal = l->plan->gpu[g->position][l->side],
		.ring_bytes = l->plan->window * dr_engine_stride(l->plan->chunk_max) };
	int rc = 0;

	manager_params(l, g->position, &p->manager);
	p->n_channels = dr_plan_channels(l->plan, l->side, g->position, p->channel);
	p->position = g->position;
	p->gpu = g->number;
	p->n_bulk = n_bulk;
	p->lat_tx = l->plan->lat ? (int)(n_bulk + !client) : -1;
	p->lat_rx = l->plan->lat ? (int)(n_bulk + client) : -1;
	if (l->s->opt->cuda)
		rc = dr_gpu_buffers_open(&bp, &g->buffers, e);
	if (g->buffers)
		rc = dr_gpu_buffers_wrap(g->buffers, &p->manager, e);
	p->gpu_buffers = g->buffers;
	return rc;
}

static int make_worker(struct dr_local *l, struct dr_local_worker *w, struct dr_err *e)
{
	struct dr_worker_gpu_params *gpus = dr_calloc(l->plan->n_gpus, sizeof(*gpus));
	struct dr_affinity_place place = dr_local_place(l, w);
	struct dr_worker_params p = { .index = (unsigned)(w - l->worker),
		.gpus = gpus,
		.poll = (enum dr_poll_policy)l->s->opt->poll,
		.spin_ns = sysconf(_SC_NPROCESSORS_ONLN) >= 2 * (long)l->n_workers ? SPIN_NS : 0,
		.cpu = place.cpu,
		.node = place.node,
		.chunk_max = l->plan->chunk_max,
		.seed = l->plan->seed,
		.client = l->side == DR_PLAN_CLIENT,
		.trace_requests = l->s->opt->verbose >= 3,
		.rates = &l->rates };
	int rc = 0;

	if (!gpus)
		return dr_err_set(e, -ENOMEM, "out of memory");
	for (struct dr_local_gpu *g = l->gpu; g < l->gpu_end && rc == 0; g++)
		if (g->on == w)
			rc = gpu_params(l, g, &gpus[p.n_gpus++], e);
	if (rc == 0)
		rc = dr_worker_create(&p, &w->w, e);
	dr_free(gpus);
	return rc;
}

static int watch_worker(struct dr_local_worker *w, struct dr_err *e)
{
	struct dr_session *s = w->local->s;
	struct dr_pulse pulse;

	dr_pulse_start(&pulse, s->ops->alive, s);
	int rc = dr_worker_started(w->w, e);
	dr_pulse_stop(&pulse);
	if (rc)
		return rc;
	w->po.fd = dr_worker_report_fd(w->w);
	w->po.ready = dr_local_on_reports;
	rc = dr_poller_add(w->local->s->loop.poller, &w->po, EPOLLIN);
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

static void warn_transport(const struct dr_plan *plan)
{
	const struct dr_transport_kind *k = dr_plan_kind(plan);
	const char *text =
		k->warning ? k->warning(&plan->kind_params, plan->detect == DR_DETECT_CONSERVATIVE)
			   : NULL;

	if (text)
		dr_warn(k->name, "%s", text);
}

static void set_up_gpu(struct dr_local *l, unsigned k)
{
	struct dr_local_gpu *g = &l->gpu[k];

	g->position = k;
	g->number = l->plan->gpu[k][DR_PLAN_CLIENT];
	g->on = &l->worker[k % l->n_workers];
	for (unsigned c = 0; c < l->n_channels; c++)
		l->channel[k * l->n_channels + c] = (struct dr_local_channel){ .gpu = g,
			.number = c,
			.sends = dr_plan_from_client(l->plan, c) == (l->side == DR_PLAN_CLIENT),
			.bulk = c < dr_plan_n_bulk(l->plan),
			.rails = dr_plan_paths(l->plan, k, c) };
}

static int make_workers(struct dr_local *l, struct dr_err *e)
{
	struct dr_pulse pulse;

	dr_pulse_start(&pulse, l->s->ops->alive, l->s);
	int rc = make_peer(l, e);
	for (unsigned i = 0; rc == 0 && i < l->n_workers; i++)
		rc = make_worker(l, &l->worker[i], e);
	dr_pulse_stop(&pulse);
	return rc;
}

static int set_up(struct dr_local *l, struct dr_err *e)
{
	size_t n = (size_t)l->plan->n_gpus * l->n_channels;

	l->channel = dr_calloc(n, sizeof(*l->channel));
	l->worker = dr_calloc(l->n_workers, sizeof(*l->worker));
	for (unsigned i = 0; l->worker && i < l->n_workers; i++) {
		l->worker[i].po.fd = -1;
		l->worker[i].local = l;
	}
	if (!l->channel || !l->worker)
		return dr_err_set(e, -ENOMEM, "out of memory");
	l->end = l->channel + n;
	l->gpu_end = l->gpu + l->plan->n_gpus;
	for (unsigned k = 0; k < l->plan->n_gpus; k++)
		set_up_gpu(l, k);
	return make_workers(l, e);
}

/* One port on each NIC for each GPU, the heartbeats and the test of the path MTU. */
static int explain_ports(const struct dr_local *l, int rc, struct dr_err *e)
{
	return rc != -EADDRINUSE || !l->s->opt->data_ports
		       ? rc
		       : dr_err_set(e, rc,
				 "%s: --data-ports %s: none of them is free; this run needs %u on each "
				 "NIC, and as many for each further process: give a larger range",
				 l->side == DR_PLAN_CLIENT ? "client" : "server",
				 l->s->opt->data_ports, l->plan->n_gpus + 2);
}

int dr_local_create(struct dr_session *s, struct dr_err *e)
{
	struct dr_local *l = dr_calloc(1, sizeof(*l));

	if (!l)
		return dr_err_set(e, -ENOMEM, "out of memory");
	l->s = s;
	l->plan = &s->plan;
	l->rec = s->rec;
	l->out = s->out;
	l->side = s->side;
	l->n_channels = dr_plan_n_channels(l->plan);
	l->n_workers = count_workers(s->opt, l->plan);
	dr_rail_rates_init(&l->rates, l->plan->n_rails);
	warn_transport(l->plan);
	int rc = explain_ports(l, set_up(l, e), e);
	if (rc) {
		dr_local_destroy(l);
		return rc;
	}
	l->rec->session_ns = l->begin_ns = dr_now_ns();
	dr_local_record_plan(l);
	dr_local_record_environment(l);
	dr_local_memory(l);
	dr_local_count_nics(l);
	dr_live_begin(l);
	s->local = l;
	return 0;
}

void dr_local_destroy(struct dr_local *l)
{
	if (!l)
		return;
	for (unsigned i = 0; l->worker && i < l->n_workers; i++)
		if (l->worker[i].w)
			dr_worker_quit(l->worker[i].w);
	for (unsigned i = 0; l->worker && i < l->n_workers; i++) {
		if (l->worker[i].po.fd >= 0)
			dr_poller_del(l->s->loop.poller, &l->worker[i].po);
		if (l->worker[i].w)
			dr_worker_destroy(l->worker[i].w);
	}
	dr_peer_destroy(l->peer);
	dr_poller_destroy(l->peer_poller);
	for (unsigned k = 0; k < DR_PLAN_GPUS_MAX; k++)
		dr_gpu_buffers_close(l->gpu[k].buffers);
	dr_rail_rates_fini(&l->rates);
	dr_free(l->worker);
	dr_free(l->channel);
	dr_free(l);
}

/* ---- handles ---- */

/* The manager's handles, then those of the peer, which come once, with the first GPU. */
static int send_handles(const struct dr_local *l, const struct dr_local_gpu *g)
{
	struct dr_handle h[DR_PLAN_HANDLES_MAX] = { 0 };
	unsigned n = dr_plan_n_handles(l->plan), own = n - dr_plan_n_peer_handles(l->plan);

	if (dr_worker_handle_count(g->on->w, g->position) != own)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		int rc = 0;

		if (i < own)
			rc = dr_worker_handle(g->on->w, g->position, i, &h[i]);
		else if (g->position == 0)
			rc = dr_peer_handle(l->peer, i - own, &h[i]);
		if (rc < 0)
			return rc;
	}
	return l->s->ops->handles(l->s, g->position, h, n);
}

int dr_local_start(struct dr_local *l, struct dr_err *e)
{
	int rc = 0;

	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end && rc == 0; g++)
		rc = send_handles(l, g);
	if (rc)
		return dr_err_set(e, rc, "handles: %s", strerror(-rc));
	for (unsigned i = 0; i < l->n_workers && rc == 0; i++)
		rc = dr_worker_start(l->worker[i].w, e);
	return rc;
}

int dr_local_connect(struct dr_local *l, unsigned position, const struct dr_handle *handles,
	unsigned n, struct dr_err *e)
{
	struct dr_command cmd = { .kind = DR_CMD_CONNECT, .position = position };
	struct dr_local_gpu *g = &l->gpu[position];
	unsigned own = dr_plan_n_handles(l->plan) - dr_plan_n_peer_handles(l->plan);
	int rc = 0;

	if (n != dr_plan_n_handles(l->plan))
		return dr_err_set(
			e, -EPROTO, "peer: %u handles, %u expected", n, dr_plan_n_handles(l->plan));
	/* Data and datagrams go to the NICs of the plan, nowhere else. */
	rc = dr_plan_check_hosts(l->plan, l->side, handles, e);
	if (rc == 0 && n > own)
		rc = dr_plan_check_hosts(l->plan, l->side, handles + own, e);
	if (rc == 0 && l->peer && position == 0)
		rc = dr_peer_start(l->peer, handles + own, n - own, dr_now_ns(), e);
	if (rc)
		return rc;
	rc = dr_worker_set_peer(g->on->w, position, handles, own);
	if (rc)
		return dr_err_set(e, rc, "peer: handles of GPU %u: %s", g->number, strerror(-rc));
	if (g->on->po.fd < 0)
		rc = watch_worker(g->on, e);
	if (rc == 0)
		dr_worker_post(g->on->w, &cmd);
	return rc;
}
