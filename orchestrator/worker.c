/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/worker_priv.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "topology/numa.h"

/*
 * A worker's life and the main thread's side of it.
 *  1. Before start, and after the join in destroy, everything is the main thread's; in between only
 *     what worker_priv.h calls shared.
 *  2. The buffers are made on the worker's thread, when it is on its CPU and node: pages come from the
 *     node of whoever touches them first.
 */

static const int64_t SPIN_DEFAULT_NS = 50 * DR_NS_PER_US;

void dr_worker_report(void *arg, const struct dr_report *r)
{
	struct dr_worker *w = arg;

	dr_queue_push(w->reports, r); /* out of memory: next_report tells */
}

static const struct dr_engine_ops engine_ops = { .report = dr_worker_report };

static struct dr_engine *engine_at(const struct dr_worker *w, unsigned position)
{
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		if (w->gpu[i]->prm.position == position)
			return w->gpu[i];
	return NULL;
}

/* ---- its thread ---- */

static void pin(const struct dr_worker *w)
{
	cpu_set_t *set;
	size_t size;

	if (w->prm.cpu < 0)
		return;
	set = CPU_ALLOC(w->prm.cpu + 1);
	size = CPU_ALLOC_SIZE(w->prm.cpu + 1);
	if (!set)
		return;
	CPU_ZERO_S(size, set);
	CPU_SET_S((size_t)w->prm.cpu, size, set);
	if (sched_setaffinity(0, size, set))
		dr_warn("worker", "worker %u: cannot pin to CPU %d: %s; it runs unpinned",
			w->prm.index, w->prm.cpu, strerror(errno));
	CPU_FREE(set);
}

/* Before the buffers are touched. A run on the wrong node is slower, not wrong: it goes on. */
static void go_to_node(const struct dr_worker *w)
{
	struct dr_err e = { 0 };
	int rc = 0;

	if (w->prm.node >= 0)
		rc = w->prm.cpu >= 0 ? dr_numa_prefer(w->prm.node, &e)
				     : dr_numa_bind_thread(w->prm.node, &e);
	if (rc)
		dr_warn("worker", "worker %u runs anywhere: %s", w->prm.index, e.text);
}

static void free_engines(struct dr_worker *w)
{
	/* All closed first, so that what they wait for passes at the same time. */
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
	dr_worker_close_links(w);
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		dr_engine_close(w->gpu[i]);
	return NULL;
}

/* ---- life ---- */

static int worker_init(struct dr_worker *w, struct dr_err *e)
{
	int rc;

	rc = dr_queue_create(&w->commands, sizeof(struct dr_command));
	if (rc == 0)
		rc = dr_queue_create(&w->reports, sizeof(struct dr_report));
	if (rc < 0)
		return dr_err_set(e, rc, "worker %u: queues: %s", w->prm.index, dr_errno_name(rc));
	w->gpu = dr_calloc(w->prm.n_gpus, sizeof(struct dr_engine *));
	w->snap = dr_calloc((size_t)w->prm.n_gpus * DR_CHANNELS_MAX, sizeof(*w->snap));
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
	for (unsigned i = 0; i < w->prm.n_gpus && rc == 0; i++)
		rc = dr_engine_create(
			&w->prm, &w->prm.gpus[i], w->poller, &engine_ops, w, &w->gpu[i], e);
	return rc;
}

int dr_worker_create(const struct dr_worker_params *p, struct dr_worker **out, struct dr_err *e)
{
	struct dr_worker *w;
	int rc;

	if (p->n_gpus < 1)
		return dr_err_set(e, -EINVAL, "worker %u: no GPUs", p->index);
	w = dr_calloc(1, sizeof(*w));
	if (!w)
		return dr_err_set(e, -ENOMEM, "worker %u: out of memory", p->index);
	w->prm = *p;
	if (w->prm.spin_ns <= 0)
		w->prm.spin_ns = SPIN_DEFAULT_NS;
	pthread_mutex_init(&w->snap_lock, NULL);
	sem_init(&w->started, 0, 0);
	rc = worker_init(w, e);
	w->prm.gpus = NULL; /* the caller's; the engines have copies */
	if (rc < 0) {
		dr_worker_destroy(w);
		return rc;
	}
	*out = w;
	return 0;
}

void dr_worker_destroy(struct dr_worker *w)
{
	if (!w)
		return;
	atomic_store_explicit(&w->quit, true, memory_order_release);
	if (w->running) {
		dr_poller_wake(w->poller);
		pthread_join(w->thread, NULL);
	}
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
	sigset_t all, old;
	char name[16];
	int rc;

	dr_assert(!w->running);
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&w->thread, NULL, thread_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return dr_err_set(
			e, -rc, "worker %u: starting its thread: %s", w->prm.index, strerror(rc));
	w->running = true;
	snprintf(name, sizeof(name), "dr-worker-%u", w->prm.index % 10000);
	pthread_setname_np(w->thread, name);
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

/* ---- the main thread's side ---- */

struct dr_manager *dr_worker_manager(struct dr_worker *w, unsigned position)
{
	struct dr_engine *g = engine_at(w, position);

	dr_assert(g && !w->running);
	return g->mgr;
}

int dr_worker_set_peer(struct dr_worker *w, unsigned position,
	const uint8_t (*handles)[DR_HANDLE_MAX], const uint16_t *lens, unsigned n)
{
	struct dr_engine *g = engine_at(w, position);

	dr_assert(g && !g->peer);
	if (n != dr_manager_handle_count(g->mgr))
		return -EPROTO;
	g->peer = dr_calloc(n, sizeof(*g->peer));
	g->peer_len = dr_calloc(n, sizeof(*g->peer_len));
	if (!g->peer || !g->peer_len) {
		dr_free(g->peer);
		dr_free(g->peer_len);
		g->peer = NULL;
		g->peer_len = NULL;
		return -ENOMEM;
	}
	memcpy(g->peer, handles, n * sizeof(*g->peer));
	memcpy(g->peer_len, lens, n * sizeof(*g->peer_len));
	g->n_peer = n;
	return 0;
}

void dr_worker_post(struct dr_worker *w, const struct dr_command *cmd)
{
	struct dr_report r = { .kind = DR_REP_FAILED,
		.position = DR_ALL,
		.channel = DR_ALL,
		.err = -ENOMEM,
		.text = "no memory for a command" };

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
			.text = "reports were lost for want of memory" };
		return 1;
	}
	return dr_queue_pop(w->reports, out);
}

void dr_worker_live(
	const struct dr_worker *w, unsigned position, unsigned channel, struct dr_live *out)
{
	const struct dr_engine *g = engine_at(w, position);
	const struct dr_live_cell *l;

	dr_assert(g && channel < g->n_streams);
	l = &g->stream[channel].live;
	*out = (struct dr_live){
		.chunks_tx = atomic_load_explicit(&l->chunks_tx, memory_order_relaxed),
		.bytes_tx = atomic_load_explicit(&l->bytes_tx, memory_order_relaxed),
		.chunks_rx = atomic_load_explicit(&l->chunks_rx, memory_order_relaxed),
		.bytes_rx = atomic_load_explicit(&l->bytes_rx, memory_order_relaxed),
		.posted = atomic_load_explicit(&l->posted, memory_order_relaxed),
		.in_flight = atomic_load_explicit(&l->in_flight, memory_order_relaxed),
		.last_ns = atomic_load_explicit(&l->last_ns, memory_order_relaxed),
		.epoch = atomic_load_explicit(&l->epoch, memory_order_relaxed),
		.active = atomic_load_explicit(&l->active, memory_order_relaxed),
	};
}

const struct dr_phase_result *dr_worker_result(const struct dr_worker *w, unsigned position)
{
	const struct dr_engine *g = engine_at(w, position);

	dr_assert(g);
	return &g->result;
}

static const struct dr_worker_snap *snap_at(
	const struct dr_worker *w, unsigned position, unsigned channel)
{
	dr_assert(channel < DR_CHANNELS_MAX);
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		if (w->gpu[i]->prm.position == position)
			return &w->snap[i * DR_CHANNELS_MAX + channel];
	dr_assert(!"no such GPU");
	return NULL;
}

void dr_worker_channel_stats(const struct dr_worker *w, unsigned position, unsigned channel,
	struct dr_channel_stats *out)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&w->snap_lock;

	pthread_mutex_lock(lock);
	*out = snap_at(w, position, channel)->stats;
	pthread_mutex_unlock(lock);
}

void dr_worker_describe(
	const struct dr_worker *w, unsigned position, unsigned channel, char *buf, size_t len)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&w->snap_lock;

	pthread_mutex_lock(lock);
	snprintf(buf, len, "%s", snap_at(w, position, channel)->text);
	pthread_mutex_unlock(lock);
}
