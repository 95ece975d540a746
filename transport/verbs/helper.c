/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of a rail that does what may block: resolving a neighbour, making and destroying queue
 * pairs. Invariants:
 *  1. Jobs run one at a time, in the order submitted, and finish in that order.
 *  2. A submitted job always runs and is always taken, also when the rail goes.
 */
#include "transport/verbs/internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void finish(struct vb_helper *h, struct vb_job *job)
{
	uint64_t one = 1;

	job->next = NULL;
	pthread_mutex_lock(&h->lock);
	*h->finished_end = job;
	h->finished_end = &job->next;
	atomic_fetch_add_explicit(&h->n_finished, 1, memory_order_release);
	pthread_mutex_unlock(&h->lock);
	if (h->efd >= 0 && write(h->efd, &one, sizeof(one)) < 0)
		return; /* full: a wake-up is pending already */
}

static void *helper_main(void *arg)
{
	struct vb_helper *h = arg;
	struct vb_job *job;

	for (;;) {
		pthread_mutex_lock(&h->lock);
		while (!h->todo && !h->quit)
			pthread_cond_wait(&h->wake, &h->lock);
		job = h->todo;
		if (job) {
			h->todo = job->next;
			if (!h->todo)
				h->todo_end = &h->todo;
		}
		pthread_mutex_unlock(&h->lock);
		if (!job)
			return NULL;
		job->run(job);
		finish(h, job);
	}
}

static int start_thread(struct vb_helper *h)
{
	sigset_t all, old;
	int rc;

	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&h->thread, NULL, helper_main, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	h->running = rc == 0;
	return -rc;
}

int dr_verbs_helper_start(struct vb_helper *h, bool with_fd, struct dr_err *e)
{
	int rc;

	memset(h, 0, sizeof(*h));
	h->todo_end = &h->todo;
	h->finished_end = &h->finished;
	h->efd = -1;
	if (with_fd) {
		h->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (h->efd < 0)
			return dr_err_set(e, -errno, "eventfd: %s; see ulimit -n", strerror(errno));
	}
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->wake, NULL);
	rc = start_thread(h);
	if (rc == 0)
		return 0;
	dr_verbs_helper_fini(h);
	return dr_err_set(e, rc, "start a thread: %s", strerror(-rc));
}

void dr_verbs_helper_submit(struct vb_helper *h, struct vb_job *job)
{
	dr_assert(h->running && !h->quit);
	job->next = NULL;
	pthread_mutex_lock(&h->lock);
	*h->todo_end = job;
	h->todo_end = &job->next;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->lock);
}

struct vb_job *dr_verbs_helper_take(struct vb_helper *h)
{
	struct vb_job *jobs;

	if (atomic_load_explicit(&h->n_finished, memory_order_acquire) == 0)
		return NULL;
	pthread_mutex_lock(&h->lock);
	jobs = h->finished;
	h->finished = NULL;
	h->finished_end = &h->finished;
	atomic_store_explicit(&h->n_finished, 0, memory_order_relaxed);
	pthread_mutex_unlock(&h->lock);
	return jobs;
}

void dr_verbs_helper_stop(struct vb_helper *h)
{
	if (!h->running)
		return;
	pthread_mutex_lock(&h->lock);
	h->quit = true;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	h->running = false;
}

void dr_verbs_helper_fini(struct vb_helper *h)
{
	dr_assert(!h->running && !h->todo && !h->finished);
	if (h->efd >= 0)
		close(h->efd);
	h->efd = -1;
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
}
