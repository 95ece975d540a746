/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/clock.h"

#include <signal.h>
#include <time.h>

int dr_thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(t, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		pthread_setname_np(*t, name);
	return -rc;
}

void dr_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

bool dr_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t until_ns)
{
	struct timespec at = { .tv_sec = (time_t)(until_ns / DR_NS_PER_S),
		.tv_nsec = (long)(until_ns % DR_NS_PER_S) };

	return pthread_cond_timedwait(c, lock, &at) == 0;
}
