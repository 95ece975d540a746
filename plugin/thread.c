/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/thread.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

/*
 *  1. Posted work is a list whose head producers exchange; the thread takes the whole list and reverses it.
 *  2. The thread announces that it is about to sleep and looks for work once more; a producer that finds the announcement
 *     wakes it. Both use sequential consistency, so at least one of them sees the other.
 *  3. The loop over members remembers the next one, which a removal advances.
 */
struct ha_thread {
	pthread_t thread;
	struct dr_poller *poller;
	int64_t spin_ns;
	struct ha_work *_Atomic posted; /* the latest first */
	atomic_bool sleeps, quit;
	struct ha_member *members, *next;
	_Atomic int64_t load; /* bytes */
};

/* The oldest first. */
static struct ha_work *take_all(struct ha_thread *t)
{
	struct ha_work *w = atomic_exchange(&t->posted, NULL), *list = NULL;

	while (w) {
		struct ha_work *next = w->next;

		w->next = list;
		list = w;
		w = next;
	}
	return list;
}

static unsigned run_posted(struct ha_thread *t)
{
	struct ha_work *w;
	unsigned n = 0;

	if (!atomic_load_explicit(&t->posted, memory_order_relaxed))
		return 0;
	for (w = take_all(t); w; n++) {
		struct ha_work *next = w->next; /* w may be freed, or posted again, by its run */

		w->run(w, dr_now_ns());
		w = next;
	}
	return n;
}

static int64_t tick(struct ha_thread *t)
{
	int64_t due = DR_NEVER, now = dr_now_ns();

	for (struct ha_member *m = t->members; m; m = t->next) {
		t->next = m->next;
		m->tick(m, now);
	}
	for (struct ha_member *m = t->members; m; m = m->next)
		due = DR_MIN(due, m->deadline(m));
	return due;
}

/* How long the next wait may sleep. */
static int64_t rest_ns(struct ha_thread *t, int64_t due, int64_t busy_ns)
{
	int64_t now = dr_now_ns();

	if (ha_thread_load(t) > 0 && now - busy_ns < t->spin_ns)
		return 0;
	atomic_store(&t->sleeps, true);
	if (atomic_load(&t->posted) || atomic_load(&t->quit))
		return 0;
	return due == DR_NEVER ? DR_NEVER : DR_MAX(due - now, 0);
}

static void *thread_main(void *arg)
{
	struct ha_thread *t = arg;
	int64_t busy_ns = 0, due = DR_NEVER;

	while (!atomic_load_explicit(&t->quit, memory_order_relaxed) || atomic_load(&t->posted)) {
		int n = dr_poller_wait(t->poller, rest_ns(t, due, busy_ns));

		atomic_store_explicit(&t->sleeps, false, memory_order_relaxed);
		if ((int)run_posted(t) + DR_MAX(n, 0) > 0)
			busy_ns = dr_now_ns();
		due = tick(t);
	}
	return NULL;
}

int ha_thread_start(const char *name, int64_t spin_ns, struct ha_thread **out, struct dr_err *e)
{
	struct ha_thread *t = dr_calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return dr_err_set(e, -ENOMEM, "thread %s: out of memory", name);
	t->spin_ns = spin_ns;
	rc = dr_poller_create(&t->poller, e);
	if (rc != 0) {
		dr_free(t);
		return rc;
	}
	rc = dr_thread_start(&t->thread, name, thread_main, t);
	if (rc != 0) {
		dr_poller_destroy(t->poller);
		dr_free(t);
		return dr_err_set(e, rc, "cannot start the thread %s: %s; see ulimit -u", name,
			strerror(-rc));
	}
	*out = t;
	return 0;
}

void ha_thread_stop(struct ha_thread *t)
{
	if (!t)
		return;
	atomic_store(&t->quit, true);
	dr_poller_wake(t->poller);
	pthread_join(t->thread, NULL);
	dr_assert(!t->members);
	dr_poller_destroy(t->poller);
	dr_free(t);
}

struct dr_poller *ha_thread_poller(struct ha_thread *t)
{
	return t->poller;
}

void ha_thread_post(struct ha_thread *t, struct ha_work *w)
{
	struct ha_work *head = atomic_load_explicit(&t->posted, memory_order_relaxed);

	do {
		w->next = head;
	} while (!atomic_compare_exchange_weak(&t->posted, &head, w));
	if (atomic_load(&t->sleeps) && atomic_exchange(&t->sleeps, false))
		dr_poller_wake(t->poller);
}

struct call {
	struct ha_work work;
	void (*fn)(void *arg, int64_t now_ns);
	void *arg;
	sem_t done;
};

static void run_call(struct ha_work *w, int64_t now)
{
	struct call *c = dr_container_of(w, struct call, work);

	c->fn(c->arg, now);
	sem_post(&c->done);
}

void ha_thread_call(struct ha_thread *t, void (*fn)(void *arg, int64_t now_ns), void *arg)
{
	struct call c = { .work.run = run_call, .fn = fn, .arg = arg };

	if (pthread_equal(pthread_self(), t->thread)) {
		fn(arg, dr_now_ns());
		return;
	}
	sem_init(&c.done, 0, 0);
	ha_thread_post(t, &c.work);
	while (sem_wait(&c.done) != 0) /* EINTR */
		;
	sem_destroy(&c.done);
}

void ha_thread_add_load(struct ha_thread *t, int64_t bytes)
{
	atomic_fetch_add_explicit(&t->load, bytes, memory_order_relaxed);
}

int64_t ha_thread_load(const struct ha_thread *t)
{
	return atomic_load_explicit(&t->load, memory_order_relaxed);
}

void ha_thread_add(struct ha_thread *t, struct ha_member *m)
{
	m->next = t->members;
	t->members = m;
}

void ha_thread_remove(struct ha_thread *t, struct ha_member *m)
{
	DR_UNLINK(&t->members, m, next);
	if (t->next == m)
		t->next = m->next;
}
