/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/worker_priv.h"

#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

/*
 * The loop is one fixed sequence: poll (paths move data here), timers, a bounded step of each GPU,
 * commands. It sleeps only after a whole round in which nothing was done, and then at most until the
 * next deadline of a manager or a rate limit, so a wake-up can be lost in none of these ways:
 *  - a completion: it comes out of dr_poller_wait, before the step of the same round, or, rarely, out of
 *    a tick that read on, which then did something, so there is another round;
 *  - something a step made possible (a slot freed, a receive posted): that step did something, so
 *    there is another round;
 *  - a command: its eventfd is level-triggered in the poller.
 */
enum {
	STEP_BUDGET_NS = 500 * 1000,
	DIRECT_LOOKS = 32, /* at a ping-pong's channel before the poller is asked again */
	DIRECT_ROUNDS = 8, /* of ping-pong between two looks at everything else */
};
/* A spinning worker that found nothing for so long lets others have its CPU: the one it waits for may
 * be queued behind it (a wake-up likes to put the woken on the waker's CPU). Alone on the CPU it costs
 * a fraction of a microsecond. */
static const int64_t YIELD_ADAPTIVE_NS = 5 * DR_NS_PER_US, YIELD_BUSY_NS = 10 * DR_NS_PER_US;

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
			struct dr_worker_snap *s = &w->snap[i * DR_CHANNELS_MAX + c];
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

/* ---- rounds ---- */

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
		int64_t at = k > 0 ? dr_now_ns() : now, left = now + STEP_BUDGET_NS - at;

		/* Out of time: the one that waits is the first of the next round. */
		if (left <= 0) {
			w->first = i;
			return true;
		}
		did |= dr_engine_step(w->gpu[i], at, left);
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

void dr_worker_loop(struct dr_worker *w)
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
			dr_worker_report(w, &r);
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
