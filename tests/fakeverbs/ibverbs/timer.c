/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>

/* The NICs' clock: one thread, alive while a context is open, that moves what is due. It wakes on a
 * condition of its own, whose mutex is held only around the wait. While a test sets the time, the thread rests. */

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER, mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_cond_t wake;
static pthread_t thread;
static unsigned users;
static bool stop, kicked;
static _Atomic int64_t set_ns = DR_NEVER;

int64_t dr_fake_now_ns(void)
{
	int64_t t = atomic_load(&set_ns);

	return t == DR_NEVER ? dr_now_ns() : t;
}

void dr_fake_set_time(int64_t now_ns)
{
	atomic_store(&set_ns, now_ns);
}

static void wait_until(int64_t at_ns)
{
	struct timespec ts = { .tv_sec = at_ns / DR_NS_PER_S, .tv_nsec = at_ns % DR_NS_PER_S };

	pthread_mutex_lock(&mutex);
	if (!stop && !kicked) {
		if (at_ns == DR_NEVER)
			pthread_cond_wait(&wake, &mutex);
		else
			pthread_cond_timedwait(&wake, &mutex, &ts);
	}
	kicked = false;
	pthread_mutex_unlock(&mutex);
}

static bool stopping(void)
{
	bool s;

	pthread_mutex_lock(&mutex);
	s = stop;
	pthread_mutex_unlock(&mutex);
	return s;
}

static void *run(void *arg)
{
	int64_t next, now;

	while (!stopping()) {
		dr_fake_lock();
		now = dr_fake_now_ns();
		next = atomic_load(&set_ns) == DR_NEVER ? dr_fake_next_ns() : DR_NEVER;
		if (next <= now) {
			dr_fake_move_due(now);
			next = dr_fake_next_ns();
		}
		dr_fake_unlock();
		wait_until(next);
	}
	return arg;
}

static void init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&wake, &attr);
	pthread_condattr_destroy(&attr);
}

int dr_fake_timer_start(void)
{
	int err = 0;

	pthread_once(&once, init);
	pthread_mutex_lock(&life);
	if (users == 0) {
		stop = kicked = false;
		err = pthread_create(&thread, NULL, run, NULL);
	}
	if (!err)
		users++;
	pthread_mutex_unlock(&life);
	return err;
}

void dr_fake_timer_stop(void)
{
	pthread_mutex_lock(&life);
	if (users > 0 && --users == 0) {
		pthread_mutex_lock(&mutex);
		stop = true;
		pthread_cond_signal(&wake);
		pthread_mutex_unlock(&mutex);
		pthread_join(thread, NULL);
	}
	pthread_mutex_unlock(&life);
}

void dr_fake_timer_kick(void)
{
	pthread_mutex_lock(&mutex);
	kicked = true;
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&mutex);
}
