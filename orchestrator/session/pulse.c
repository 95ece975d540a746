/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/pulse.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <string.h>

static void *thread_main(void *arg)
{
	struct dr_pulse *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		int64_t next_ns = dr_now_ns() + DR_PULSE_NS;

		p->beat(p->arg);
		(void)dr_cond_wait(&p->stopped, &p->lock, next_ns);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void dr_pulse_start(struct dr_pulse *p, void (*beat)(void *arg), void *arg)
{
	*p = (struct dr_pulse){ .beat = beat, .arg = arg };
	if (!beat)
		return;
	pthread_mutex_init(&p->lock, NULL);
	dr_cond_init(&p->stopped);
	int rc = dr_thread_start(&p->thread, "dr-pulse", thread_main, p);
	p->running = rc == 0;
	if (rc)
		dr_warn("client", "no thread for PING while buffers are made: %s", strerror(-rc));
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
