/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/pulse.h"

#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <string.h>
#include <time.h>

static struct timespec at(int64_t ns)
{
	return (struct timespec){ .tv_sec = ns / DR_NS_PER_S, .tv_nsec = ns % DR_NS_PER_S };
}

static void *thread_main(void *arg)
{
	struct dr_pulse *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		struct timespec next = at(dr_now_ns() + DR_PULSE_NS);

		p->beat(p->arg);
		pthread_cond_timedwait(&p->stopped, &p->lock, &next);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void dr_pulse_start(struct dr_pulse *p, void (*beat)(void *arg), void *arg)
{
	pthread_condattr_t monotonic;
	sigset_t all, old;

	*p = (struct dr_pulse){ .beat = beat, .arg = arg };
	if (!beat)
		return;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&p->stopped, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* The main thread handles all signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(&p->thread, NULL, thread_main, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	p->running = rc == 0;
	if (rc)
		dr_warn("client", "no thread for PING while buffers are made: %s", strerror(rc));
	else
		pthread_setname_np(p->thread, "dr-pulse");
}

void dr_pulse_stop(struct dr_pulse *p)
{
	if (!p->beat)
		return;
	if (p->running) {
		pthread_mutex_lock(&p->lock);
		p->stop = true;
		pthread_cond_signal(&p->stopped);
		pthread_mutex_unlock(&p->lock);
		pthread_join(p->thread, NULL);
	}
	pthread_cond_destroy(&p->stopped);
	pthread_mutex_destroy(&p->lock);
	*p = (struct dr_pulse){ 0 };
}
