/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/worker_priv.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "topology/numa.h"

/*
 * Life cycle of a worker and the interface for the main thread.
 *  1. Before start and after the join in destroy, the main thread owns everything; in between only what
 *     worker_priv.h lists as shared.
 *  2. The buffers are allocated on the worker's thread, after it moved to its CPU and node: the kernel takes pages
 *     from the node of the thread that touches them first.
 */

static const int64_t SPIN_DEFAULT_NS = 50 * DR_NS_PER_US;

void dr_worker_report(void *arg, const struct dr_report *r)
{
	struct dr_worker *w = arg;

	dr_queue_push(w->reports, r); /* out of memory: next_report reports it */
}

static struct dr_engine *engine_at(const struct dr_worker *w, unsigned position)
{
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		if (w->gpu[i]->prm.position == position)
			return w->gpu[i];
	return NULL;
}

/* ---- the thread ---- */

static void pin(const struct dr_worker *w)
{
	if (w->prm.cpu < 0)
		return;
	cpu_set_t *set = CPU_ALLOC(w->prm.cpu + 1);
	size_t size = CPU_ALLOC_SIZE(w->prm.cpu + 1);
	if (!set)
		return;
	CPU_ZERO_S(size, set);
	CPU_SET_S((size_t)w->prm.cpu, size, set);
	if (sched_setaffinity(0, size, set))
		dr_warn("worker", "worker %u: cannot pin to CPU %d: %s; continuing unpinned",
			w->prm.index, w->prm.cpu, strerror(errno));
	CPU_FREE(set);
}

/* Before the buffers are touched. On the wrong node a run is only slower, so a failure is not an error. */
static void go_to_node(const struct dr_worker *w)
{
	struct dr_err e = { 0 };
	int rc = 0;

	if (w->prm.node >= 0)
		rc = w->prm.cpu >= 0 ? dr_numa_prefer(w->prm.node, &e)
				     : dr_numa_bind_thread(w->prm.node, &e);
	if (rc)
		dr_warn("worker", "worker %u is not bound to a NUMA node: %s", w->prm.index,
			e.text);
}

static void free_engines(struct dr_worker *w)
{
	/* Close all first, so that their waits overlap. */
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		if (w->gpu[i])
			dr_engine_close(w->gpu[i]);
	for (unsigned i = 0; i < w->prm.n_gpus; i++) {
		dr_engine_destroy(w->gpu[i]);
		w->gpu[i] = NULL;
	}
}

static void *thread_main(void *arg)
{
	struct dr_worker *w = arg;
	int rc = 0;

	if (w->prm.n_gpus == 1)
		dr_log_set_gpu((int)w->gpu[0]->prm.gpu);
	pin(w);
	go_to_node(w);
	for (unsigned i = 0; i < w->prm.n_gpus && rc == 0; i++)
		rc = dr_engine_alloc(w->gpu[i], &w->start_err);
	if (rc == 0)
		dr_worker_open_links(w);
	w->start_rc = rc;
	sem_post(&w->started);
	if (rc == 0)
		dr_worker_loop(w);
	dr_link_watch_close(&w->links);
	dr_worker_close_channels(w);
	return NULL;
}

/* ---- life ---- */

static int worker_init(struct dr_worker *w, struct dr_err *e)
{
	int rc = dr_queue_create(&w->commands, sizeof(struct dr_command));
	if (rc == 0)
		rc = dr_queue_create(&w->reports, sizeof(struct dr_report));
	if (rc < 0)
		return dr_err_set(e, rc, "worker %u: queues: %s", w->prm.index, dr_errno_name(rc));
	w->gpu = dr_calloc(w->prm.n_gpus, sizeof(struct dr_engine *));
	w->snap = dr_calloc((size_t)w->prm.n_gpus * DR_GPU_CHANNELS_MAX, sizeof(*w->snap));
	if (!w->gpu || !w->snap)
		return dr_err_set(e, -ENOMEM, "worker %u: out of memory", w->prm.index);
	rc = dr_poller_create(&w->poller, e);
	if (rc < 0)
		return rc;
	w->command_po = (struct dr_pollable){ .fd = dr_queue_fd(w->commands),
		.ready = dr_worker_command_ready };
	rc = dr_poller_add(w->poller, &w->command_po, EPOLLIN);
	if (rc < 0)
		return dr_err_set(e, rc, "worker %u: poller: %s", w->prm.index, dr_errno_name(rc));
	for (unsigned i = 0; i < w->prm.n_gpus && rc == 0; i++) {
		const struct dr_engine_params p = { .worker = &w->prm,
			.gpu = &w->prm.gpus[i],
			.poller = w->poller,
			.report = dr_worker_report,
			.arg = w };

		rc = dr_engine_create(&p, &w->gpu[i], e);
	}
	return rc;
}

int dr_worker_create(const struct dr_worker_params *p, struct dr_worker **out, struct dr_err *e)
{
	struct dr_worker *w = dr_calloc(1, sizeof(*w));

	dr_assert(p->n_gpus >= 1);
	if (!w)
		return dr_err_set(e, -ENOMEM, "worker %u: out of memory", p->index);
	w->prm = *p;
	if (w->prm.spin_ns <= 0)
		w->prm.spin_ns = SPIN_DEFAULT_NS;
	pthread_mutex_init(&w->snap_lock, NULL);
	sem_init(&w->started, 0, 0);
	int rc = worker_init(w, e);
	w->prm.gpus = NULL; /* the caller's; the engines have copies */
	if (rc < 0) {
		dr_worker_destroy(w);
		return rc;
	}
	*out = w;
	return 0;
}

void dr_worker_quit(struct dr_worker *w)
{
	atomic_store_explicit(&w->quit, true, memory_order_release);
	if (w->running)
		dr_poller_wake(w->poller);
}

void dr_worker_destroy(struct dr_worker *w)
{
	if (!w)
		return;
	dr_worker_quit(w);
	if (w->running)
		pthread_join(w->thread, NULL);
	if (w->gpu)
		free_engines(w);
	if (w->poller) {
		dr_poller_del(w->poller, &w->command_po);
		dr_poller_destroy(w->poller);
	}
	dr_queue_destroy(w->commands);
	dr_queue_destroy(w->reports);
	pthread_mutex_destroy(&w->snap_lock);
	sem_destroy(&w->started);
	dr_free(w->gpu);
	dr_free(w->snap);
	dr_free(w);
}

int dr_worker_start(struct dr_worker *w, struct dr_err *e)
{
	char name[16];

	dr_assert(!w->running);
	snprintf(name, sizeof(name), "dr-worker-%u", w->prm.index % 10000);
	int rc = dr_thread_start(&w->thread, name, thread_main, w);
	if (rc)
		return dr_err_set(e, rc, "worker %u: cannot start the thread: %s", w->prm.index,
			strerror(-rc));
	w->running = true;
	return 0;
}

int dr_worker_started(struct dr_worker *w, struct dr_err *e)
{
	dr_assert(w->running);
	while (sem_wait(&w->started) && errno == EINTR)
		;
	if (w->start_rc < 0 && e)
		*e = w->start_err;
	return w->start_rc;
}

/* ---- interface for the main thread ---- */

unsigned dr_worker_handle_count(const struct dr_worker *w, unsigned position)
{
	const struct dr_engine *g = engine_at(w, position);

	dr_assert(g);
	return dr_manager_handle_count(g->mgr) + g->n_streams;
}

int dr_worker_handle(struct dr_worker *w, unsigned position, unsigned i, struct dr_handle *out)
{
	struct dr_engine *g = engine_at(w, position);
	unsigned rails;

	dr_assert(g && !w->running);
	rails = dr_manager_handle_count(g->mgr);
	if (i < rails)
		return dr_manager_handle(g->mgr, i, out);
	dr_assert(i - rails < g->n_streams);
	return dr_channel_handle(g->stream[i - rails].ch, out);
}

int dr_worker_set_peer(
	struct dr_worker *w, unsigned position, const struct dr_handle *h, unsigned n)
{
	struct dr_engine *g = engine_at(w, position);

	dr_assert(g && !g->peer);
	if (n != dr_worker_handle_count(w, position))
		return -EPROTO;
	g->peer = dr_calloc(n, sizeof(*g->peer));
	if (!g->peer)
		return -ENOMEM;
	memcpy(g->peer, h, n * sizeof(*h));
	return 0;
}

void dr_worker_post(struct dr_worker *w, const struct dr_command *cmd)
{
	struct dr_report r = { .kind = DR_REP_FAILED,
		.position = DR_ALL,
		.channel = DR_ALL,
		.err = -ENOMEM,
		.text = "out of memory for a command" };

	if (dr_queue_push(w->commands, cmd) < 0)
		dr_queue_push(w->reports, &r);
}

int dr_worker_report_fd(const struct dr_worker *w)
{
	return dr_queue_fd(w->reports);
}

int dr_worker_next_report(struct dr_worker *w, struct dr_report *out)
{
	if (dr_queue_take_lost(w->reports)) {
		*out = (struct dr_report){ .kind = DR_REP_FAILED,
			.position = DR_ALL,
			.channel = DR_ALL,
			.err = -ENOMEM,
			.now_ns = dr_now_ns(),
			.text = "out of memory: reports were lost" };
		return 1;
	}
	return dr_queue_pop(w->reports, out);
}

void dr_worker_live(
	const struct dr_worker *w, unsigned position, unsigned channel, struct dr_live *out)
{
	const struct dr_engine *g = engine_at(w, position);

	dr_assert(g && channel < g->n_streams);
	const struct dr_stream *s = &g->stream[channel];
	const struct dr_live_cell *l = &s->live;
	*out = (struct dr_live){
		.chunks_tx = atomic_load_explicit(&l->chunks_tx, memory_order_relaxed),
		.bytes_tx = atomic_load_explicit(&l->bytes_tx, memory_order_relaxed),
		.chunks_rx = atomic_load_explicit(&l->chunks_rx, memory_order_relaxed),
		.bytes_rx = atomic_load_explicit(&l->bytes_rx, memory_order_relaxed),
		.posted = atomic_load_explicit(&l->posted, memory_order_relaxed),
		.epoch = atomic_load_explicit(&l->epoch, memory_order_relaxed),
		.active = atomic_load_explicit(&l->active, memory_order_relaxed),
	};
	out->in_flight = s->sender ? out->posted - DR_MIN(out->posted, out->chunks_tx) : 0;
}

int64_t dr_worker_late_ns(const struct dr_worker *w)
{
	int64_t late = 0;

	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		late = DR_MAX(
			late, atomic_load_explicit(&w->gpu[i]->late_ns, memory_order_relaxed));
	return late;
}

const struct dr_phase_result *dr_worker_result(const struct dr_worker *w, unsigned position)
{
	const struct dr_engine *g = engine_at(w, position);

	dr_assert(g);
	return &g->result;
}

void dr_worker_snapshot(
	const struct dr_worker *w, unsigned position, unsigned channel, struct dr_worker_snap *out)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&w->snap_lock;
	unsigned i = 0;

	dr_assert(channel < DR_GPU_CHANNELS_MAX && engine_at(w, position));
	while (w->gpu[i]->prm.position != position)
		i++;
	pthread_mutex_lock(lock);
	*out = w->snap[i * DR_GPU_CHANNELS_MAX + channel];
	pthread_mutex_unlock(lock);
}
