/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/engine.h"
#include "orchestrator/queue.h"
#include "topology/linkmon.h"
#include "topology/numa.h"

/*
 * The loop is one fixed sequence: poll (paths move data here), timers, a bounded step of each GPU,
 * commands. It sleeps only after a whole round in which nothing was done, and then at most until the
 * next deadline of a manager or a rate limit, so a wake-up can be lost in none of these ways:
 *  - a completion that came during the step: it comes out of dr_poller_wait alone (ticks complete
 *    nothing), before the step of the same round;
 *  - something a step made possible (a slot freed, a receive posted): that step did something, so
 *    there is another round;
 *  - a command: its eventfd is level-triggered in the poller.
 *
 * Shared with the main thread: the two queues, the live cells (relaxed atomics), `snap` under its
 * lock, `quit`; and each engine's published result, which the report queue hands over.
 */
enum {
	STEP_BUDGET_NS = 500 * 1000,
	DIRECT_LOOKS = 32, /* at a ping-pong's channel before the poller is asked again */
	DIRECT_ROUNDS = 8, /* of ping-pong between two looks at everything else */
};
static const int64_t SPIN_DEFAULT_NS = 50 * DR_NS_PER_US;
/* A spinning worker that found nothing for so long lets others have its CPU: the one it waits for may
 * be queued behind it (a wake-up likes to put the woken on the waker's CPU). Alone on the CPU it costs
 * a fraction of a microsecond. */
static const int64_t YIELD_ADAPTIVE_NS = 5 * DR_NS_PER_US, YIELD_BUSY_NS = 10 * DR_NS_PER_US;

struct snapshot {
	struct dr_channel_stats stats;
	char text[256];
};

struct dr_worker {
	struct dr_worker_params prm;
	struct dr_engine **gpu; /* prm.n_gpus */
	struct dr_poller *poller;
	struct dr_queue *commands, *reports;
	struct dr_pollable command_po, link_po;
	struct dr_linkmon *links;
	int changed[64]; /* devices that notifications were about, while they are read */
	unsigned n_changed;
	int64_t active_ns; /* when something was last done */
	unsigned first;	   /* GPU whose step comes first in this round */
	unsigned direct;   /* rounds since the poller was asked */

	pthread_t thread;
	bool running;
	sem_t started;
	int start_rc; /* ordered by `started` */
	struct dr_err start_err;
	atomic_bool quit;

	pthread_mutex_t snap_lock;
	struct snapshot *snap; /* n_gpus * DR_CHANNELS_MAX */
};

static void report(void *arg, const struct dr_report *r)
{
	struct dr_worker *w = arg;

	dr_queue_push(w->reports, r); /* out of memory: next_report tells */
}

static const struct dr_engine_ops engine_ops = { .report = report };

static struct dr_engine *engine_at(const struct dr_worker *w, unsigned position)
{
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		if (w->gpu[i]->prm.position == position)
			return w->gpu[i];
	return NULL;
}

/* --- link state ------------------------------------------------------------------------------- */

/*
 * Only the state that a link has after all pending notifications counts. The kernel reports a lost
 * carrier up to a second late (linkwatch): by then the link may be up, and its paths rebuilt; taking
 * that news for a loss would cut them again. What a short loss broke the heartbeats and the paths tell.
 */
static void on_link(const struct dr_link_event *ev, void *arg)
{
	struct dr_worker *w = arg;

	/* A lost address alone is left to the heartbeats: nothing tells when it is back. */
	if (ev->change == DR_LINK_ADDR_REMOVED)
		return;
	for (unsigned i = 0; i < w->n_changed; i++)
		if (w->changed[i] == ev->ifindex)
			return;
	if (w->n_changed < DR_ARRAY_LEN(w->changed))
		w->changed[w->n_changed++] = ev->ifindex;
}

static void apply_links(struct dr_worker *w)
{
	int64_t now = dr_now_ns();

	for (unsigned c = 0; c < w->n_changed; c++)
		for (unsigned i = 0; i < w->prm.n_gpus; i++)
			dr_manager_link(w->gpu[i]->mgr, w->changed[c],
				dr_linkmon_state(w->links, w->changed[c]) == 1, now);
	w->n_changed = 0;
}

static void close_links(struct dr_worker *w)
{
	if (!w->links)
		return;
	dr_poller_del(w->poller, &w->link_po);
	dr_linkmon_close(w->links);
	w->links = NULL;
}

static void open_links(struct dr_worker *w);

static void links_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_worker *w = dr_container_of(po, struct dr_worker, link_po);
	int rc = dr_linkmon_progress(w->links, on_link, w);

	(void)revents;
	(void)now_ns;
	apply_links(w);
	if (rc >= 0)
		return;
	dr_warn("worker", "link monitor: %s; opening it again", dr_errno_name(rc));
	close_links(w);
	open_links(w);
}

/* Detection works without it, by heartbeats, only later: so no failure here ends the run. */
static void open_links(struct dr_worker *w)
{
	struct dr_err e = { .code = 0, .text = "" };
	bool wanted = false;
	int rc;

	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		for (unsigned r = 0; r < w->gpu[i]->prm.manager.n_rails; r++)
			wanted |= w->gpu[i]->prm.manager.rail[r].ifindex > 0;
	if (!wanted)
		return;
	rc = dr_linkmon_open(&w->links, &e);
	if (rc == 0) {
		w->link_po =
			(struct dr_pollable){ .fd = dr_linkmon_fd(w->links), .ready = links_ready };
		rc = dr_poller_add(w->poller, &w->link_po, EPOLLIN);
		if (rc < 0)
			close_links(w);
	}
	if (rc < 0)
		dr_warn("worker", "no link events (%s); links are judged by heartbeats",
			e.text[0] ? e.text : dr_errno_name(rc));
}

/* --- commands --------------------------------------------------------------------------------- */

static void snapshot(struct dr_worker *w, int64_t token, int64_t now)
{
	struct dr_report r = { .kind = DR_REP_SNAPSHOT,
		.position = w->gpu[0]->prm.position,
		.now_ns = now,
		.value = token };

	pthread_mutex_lock(&w->snap_lock);
	for (unsigned i = 0; i < w->prm.n_gpus; i++) {
		for (unsigned c = 0; c < w->gpu[i]->n_streams; c++) {
			struct snapshot *s = &w->snap[i * DR_CHANNELS_MAX + c];
			struct dr_channel *ch = w->gpu[i]->stream[c].ch;

			dr_channel_stats(ch, &s->stats);
			dr_channel_describe(ch, now, s->text, sizeof(s->text));
		}
	}
	pthread_mutex_unlock(&w->snap_lock);
	report(w, &r);
}

static void command_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	/* Taken at the end of the round; the wake-up is all that was needed. */
	(void)po;
	(void)revents;
	(void)now_ns;
}

static bool run_commands(struct dr_worker *w)
{
	struct dr_command cmd;
	bool any = false;

	while (dr_queue_pending(w->commands) && dr_queue_pop(w->commands, &cmd)) {
		int64_t now = dr_now_ns();

		any = true;
		if (cmd.kind == DR_CMD_SNAPSHOT) {
			snapshot(w, cmd.value, now);
			continue;
		}
		for (unsigned i = 0; i < w->prm.n_gpus; i++)
			if (cmd.position == DR_ALL || cmd.position == w->gpu[i]->prm.position)
				dr_engine_command(w->gpu[i], &cmd, now);
	}
	return any;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* How long this round may sleep, after one that did something (or did not). */
static int64_t sleep_ns(struct dr_worker *w, bool did)
{
	int64_t now = dr_now_ns(), deadline = DR_NEVER, spin = 0;

	if (did)
		w->active_ns = now;
	if (did)
		return 0;
	if (w->prm.poll == DR_POLL_BUSY) {
		if (now - w->active_ns > YIELD_BUSY_NS)
			sched_yield();
		return 0;
	}
	for (unsigned i = 0; i < w->prm.n_gpus; i++) {
		struct dr_engine *g = w->gpu[i];

		/* Between phases only heartbeats wake it: nothing to spin for. */
		if (g->running)
			spin = DR_MAX(spin, DR_MAX(w->prm.spin_ns, dr_engine_spin_ns(g)));
		if (g->state == DR_ENGINE_NEW)
			continue;
		deadline = DR_MIN(deadline, dr_manager_deadline(g->mgr));
		deadline = DR_MIN(deadline, dr_engine_deadline(g));
	}
	if (now - w->active_ns < spin) {
		if (now - w->active_ns > YIELD_ADAPTIVE_NS)
			sched_yield();
		return 0;
	}
	return deadline == DR_NEVER ? DR_NEVER : DR_MAX(deadline - now, (int64_t)0);
}

static bool step_all(struct dr_worker *w, int64_t now)
{
	unsigned n = w->prm.n_gpus;
	bool did = false;

	for (unsigned k = 0; k < n; k++) {
		unsigned i = (w->first + k) % n;
		int64_t left = now + STEP_BUDGET_NS - dr_now_ns();

		/* Out of time: the one that waits is the first of the next round. */
		if (left <= 0) {
			w->first = i;
			return true;
		}
		did |= dr_engine_step(w->gpu[i], dr_now_ns(), left);
	}
	return did;
}

/* Nothing better to do: acknowledgements that were held back go out. */
static void idle(struct dr_worker *w)
{
	int64_t now = dr_now_ns();

	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		dr_manager_idle(w->gpu[i]->mgr, now);
}

/* Busy polling of a ping-pong reads its channel without asking the poller whether to: a system call
 * less on the way of each message. Everything else has its turn every DIRECT_ROUNDS. */
static int look_direct(struct dr_worker *w)
{
	int n = 0;

	if (w->prm.poll != DR_POLL_BUSY || w->direct >= DIRECT_ROUNDS)
		return 0;
	for (unsigned look = 0; look < DIRECT_LOOKS && n == 0; look++) {
		bool any = false;

		for (unsigned i = 0; i < w->prm.n_gpus; i++) {
			if (!w->gpu[i]->ping.on)
				continue;
			n += dr_ping_poll(w->gpu[i]);
			any = true;
		}
		if (!any)
			return 0;
		if (n == 0 && look == 0)
			idle(w);
	}
	return n;
}

static int look(struct dr_worker *w, bool did)
{
	int n = look_direct(w);

	w->direct++;
	if (n > 0)
		return n;
	w->direct = 0;
	return dr_poller_wait(w->poller, sleep_ns(w, did));
}

static void loop(struct dr_worker *w)
{
	bool did = true;
	int n;

	while (!atomic_load_explicit(&w->quit, memory_order_acquire)) {
		int64_t now;

		n = look(w, did);
		if (n < 0) {
			struct dr_report r = { .kind = DR_REP_FAILED,
				.position = DR_ALL,
				.channel = DR_ALL,
				.err = n };

			snprintf(r.text, sizeof(r.text), "worker %u: polling failed: %s",
				w->prm.index, dr_errno_name(n));
			dr_error("worker", "%s", r.text);
			report(w, &r);
			return;
		}
		did = n > 0;
		did |= step_all(w, dr_now_ns());
		now = dr_now_ns();
		for (unsigned i = 0; i < w->prm.n_gpus; i++)
			did |= dr_manager_tick(w->gpu[i]->mgr, now) > 0;
		did |= run_commands(w);
		if (!did)
			idle(w);
	}
}

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
		open_links(w);
	w->start_rc = rc;
	sem_post(&w->started);
	if (rc == 0)
		loop(w);
	close_links(w);
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		dr_engine_close(w->gpu[i]);
	return NULL;
}

/* --- the main thread's side ------------------------------------------------------------------- */

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
	w->command_po =
		(struct dr_pollable){ .fd = dr_queue_fd(w->commands), .ready = command_ready };
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

static const struct snapshot *snap_at(
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
