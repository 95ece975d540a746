/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/worker_priv.h"

#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

/*
 * The loop is one fixed sequence: poll (paths move data here), timers, a bounded step of each GPU, commands. It
 * sleeps only after a whole round without any work, at most until the next deadline of a manager or a rate limit.
 * No wake-up is lost:
 *  - a completion comes from dr_poller_wait, before the step of the same round, or, rarely, from a tick that read
 *    more data; that tick counts as work, so another round follows;
 *  - what a step made possible (a slot freed, a receive posted): the step counts as work, so another round follows;
 *  - a command: its eventfd is level-triggered in the poller.
 */
enum {
	STEP_BUDGET_NS = 500 * 1000,
	DIRECT_PROBES = 32, /* of a ping-pong channel before the poller is called again */
	DIRECT_ROUNDS = 8,  /* of ping-pong between two calls of the poller */
};
/* A worker that has spun without work for this long yields its CPU: the thread it waits for may be queued behind it
 * (the scheduler tends to place a woken thread on the CPU of the waker). If the worker is alone on the CPU, a yield
 * costs a fraction of a microsecond. */
static const int64_t YIELD_ADAPTIVE_NS = 5 * DR_NS_PER_US, YIELD_BUSY_NS = 10 * DR_NS_PER_US;
/* The time of dr_channel_close. A channel that ended with an error may tell its peer for longer; that is cut. */
static const int64_t CLOSE_NS = 500 * DR_NS_PER_MS;

/* ---- link events ---- */

static void on_link(void *arg, int ifindex, bool up)
{
	struct dr_worker *w = arg;

	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		dr_manager_link(w->gpu[i]->mgr, ifindex, up, dr_now_ns());
}

/* Without link events, heartbeats detect a failure later. So no error here ends the run. */
void dr_worker_open_links(struct dr_worker *w)
{
	struct dr_err e;
	bool wanted = false;

	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		for (unsigned r = 0; r < w->gpu[i]->prm.manager.n_rails; r++)
			wanted |= w->gpu[i]->prm.manager.rail[r].ifindex > 0;
	w->links.poller = w->poller;
	w->links.on_link = on_link;
	w->links.arg = w;
	if (wanted && dr_link_watch_open(&w->links, &e))
		dr_warn("worker", "no link events (%s); failures are detected by heartbeats only",
			e.text);
}

/* ---- commands ---- */

static void snapshot(struct dr_worker *w, int64_t token, int64_t now)
{
	struct dr_report r = { .kind = DR_REP_SNAPSHOT,
		.position = w->gpu[0]->prm.position,
		.now_ns = now,
		.value = token };

	pthread_mutex_lock(&w->snap_lock);
	for (unsigned i = 0; i < w->prm.n_gpus; i++) {
		for (unsigned c = 0; c < w->gpu[i]->n_streams; c++) {
			struct dr_worker_snap *s = &w->snap[i * DR_GPU_CHANNELS_MAX + c];
			struct dr_channel *ch = w->gpu[i]->stream[c].ch;

			dr_channel_stats(ch, &s->stats);
			dr_channel_describe(ch, now, s->text, sizeof(s->text));
		}
	}
	pthread_mutex_unlock(&w->snap_lock);
	dr_worker_report(w, &r);
}

void dr_worker_command_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	/* Commands are handled at the end of the round; only the wake-up is needed. */
	(void)po;
	(void)revents;
	(void)now_ns;
}

/* Lines of the log are about this GPU, DR_ALL: about any; of a worker with one GPU all are about that. */
static void about(const struct dr_worker *w, unsigned i)
{
	if (w->prm.n_gpus > 1)
		dr_log_set_gpu(i == DR_ALL ? -1 : (int)w->gpu[i]->prm.gpu);
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
			if (cmd.position == DR_ALL || cmd.position == w->gpu[i]->prm.position) {
				about(w, i);
				dr_engine_command(w->gpu[i], &cmd, now);
			}
		about(w, DR_ALL);
	}
	return any;
}

/* ---- rounds ---- */

/* Adaptive: how long to spin after work. Between phases only heartbeats wake it: nothing to spin for. */
static int64_t spin_ns(const struct dr_worker *w)
{
	int64_t spin = 0;

	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		if (w->gpu[i]->running)
			spin = DR_MAX(spin, DR_MAX(w->prm.spin_ns, dr_engine_spin_ns(w->gpu[i])));
	return spin;
}

static bool spins(const struct dr_worker *w, int64_t now)
{
	return w->prm.poll == DR_POLL_BUSY || now - w->active_ns < spin_ns(w);
}

/* How long this round may sleep, after one that did something (or did not). */
static int64_t sleep_ns(struct dr_worker *w, bool did)
{
	int64_t now = dr_now_ns(), deadline = DR_NEVER;

	if (did)
		w->active_ns = now;
	if (did || spins(w, now))
		return 0;
	for (unsigned i = 0; i < w->prm.n_gpus; i++) {
		struct dr_engine *g = w->gpu[i];

		if (g->state == DR_ENGINE_NEW)
			continue;
		deadline = DR_MIN(deadline, dr_manager_deadline(g->mgr));
		deadline = DR_MIN(deadline, dr_engine_deadline(g));
	}
	return deadline == DR_NEVER ? DR_NEVER : DR_MAX(deadline - now, (int64_t)0);
}

/* After a round without work. The next one begins with the direct read of a ping-pong. */
static void yield(const struct dr_worker *w)
{
	int64_t now = dr_now_ns();
	int64_t after = w->prm.poll == DR_POLL_BUSY ? YIELD_BUSY_NS : YIELD_ADAPTIVE_NS;

	if (spins(w, now) && now - w->active_ns > after)
		sched_yield();
}

static bool step_all(struct dr_worker *w, int64_t now)
{
	unsigned n = w->prm.n_gpus;
	bool did = false;

	for (unsigned k = 0; k < n; k++) {
		unsigned i = (w->first + k) % n;
		int64_t at = k > 0 ? dr_now_ns() : now, left = now + STEP_BUDGET_NS - at;

		/* Out of time: this GPU is the first of the next round. */
		if (left <= 0) {
			w->first = i;
			return true;
		}
		about(w, i);
		did |= dr_engine_step(w->gpu[i], at, left);
		about(w, DR_ALL);
	}
	return did;
}

/* No work: acknowledgements that were held back are sent. */
static void idle(struct dr_worker *w)
{
	int64_t now = dr_now_ns();

	for (unsigned i = 0; i < w->prm.n_gpus; i++) {
		dr_manager_idle(w->gpu[i]->mgr, now);
		dr_engine_idle(w->gpu[i]);
	}
}

/* While it spins, a ping-pong reads its channel without calling the poller: this saves a system call per message,
 * and the reply leaves before the kernel acknowledges (tcp_rx.c). Everything else is polled every DIRECT_ROUNDS. */
static int poll_direct(struct dr_worker *w)
{
	int64_t now = dr_now_ns();
	int n = 0;

	if (w->direct >= DIRECT_ROUNDS || !spins(w, now))
		return 0;
	for (unsigned probe = 0; probe < DIRECT_PROBES && n == 0; probe++) {
		bool any = false;

		for (unsigned i = 0; i < w->prm.n_gpus; i++) {
			if (!w->gpu[i]->ping.on)
				continue;
			n += dr_ping_poll(w->gpu[i], now);
			any = true;
		}
		if (!any)
			return 0;
		if (n == 0 && probe == 0)
			idle(w);
		now = dr_now_ns();
	}
	if (n > 0)
		w->active_ns = now;
	return n;
}

static int poll_all(struct dr_worker *w, bool did)
{
	int n = poll_direct(w);

	w->direct++;
	if (n > 0)
		return n;
	w->direct = 0;
	int64_t sleep = sleep_ns(w, did);
	n = dr_poller_wait(w->poller, sleep);
	if (n == 0 && sleep == 0 && !did)
		yield(w);
	return n;
}

void dr_worker_loop(struct dr_worker *w)
{
	bool did = true;

	while (!atomic_load_explicit(&w->quit, memory_order_acquire)) {
		int n = poll_all(w, did);
		if (n < 0) {
			struct dr_report r = { .kind = DR_REP_FAILED,
				.position = DR_ALL,
				.channel = DR_ALL,
				.err = n };

			snprintf(r.text, sizeof(r.text), "worker %u: polling failed: %s",
				w->prm.index, dr_errno_name(n));
			dr_error("worker", "%s", r.text);
			dr_worker_report(w, &r);
			return;
		}
		did = n > 0;
		did |= step_all(w, dr_now_ns());
		int64_t now = dr_now_ns();
		for (unsigned i = 0; i < w->prm.n_gpus; i++) {
			about(w, i);
			did |= dr_manager_tick(w->gpu[i]->mgr, now) > 0;
			dr_engine_watch(w->gpu[i], now);
			about(w, DR_ALL);
		}
		did |= run_commands(w);
		if (!did)
			idle(w);
	}
}

/* ---- the end ---- */

static bool all_closed(const struct dr_worker *w)
{
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		if (!dr_manager_closed(w->gpu[i]->mgr))
			return false;
	return true;
}

void dr_worker_close_channels(struct dr_worker *w)
{
	struct dr_command cmd;
	int64_t now = dr_now_ns(), until = now + CLOSE_NS;

	/* Otherwise the queue would be readable all the time. */
	while (dr_queue_pending(w->commands) && dr_queue_pop(w->commands, &cmd))
		;
	for (unsigned i = 0; i < w->prm.n_gpus; i++)
		dr_engine_close(w->gpu[i]);
	for (; !all_closed(w) && now < until; now = dr_now_ns()) {
		int64_t next = until;

		for (unsigned i = 0; i < w->prm.n_gpus; i++)
			next = DR_MIN(next, dr_manager_deadline(w->gpu[i]->mgr));
		if (dr_poller_wait(w->poller, DR_MAX(next - now, (int64_t)0)) < 0)
			return;
		for (unsigned i = 0; i < w->prm.n_gpus; i++)
			dr_manager_tick(w->gpu[i]->mgr, dr_now_ns());
	}
}
