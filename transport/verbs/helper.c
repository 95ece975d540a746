/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of a rail that does what may block: resolving a neighbour, making and destroying queue
 * pairs. Invariants:
 *  1. Jobs run one at a time, in the order submitted, and finish in that order; those submitted for later
 *     among themselves, once they are due and nothing else waits.
 *  2. A submitted job always runs and is always taken, also when the rail goes: then at once.
 */
#include "transport/verbs/path_priv.h"

#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct vb_job *pop(struct vb_jobs *q)
{
	struct vb_job *job = STAILQ_FIRST(q);

	STAILQ_REMOVE_HEAD(q, next);
	return job;
}

static void finish(struct vb_helper *h, struct vb_job *job)
{
	uint64_t one = 1;

	pthread_mutex_lock(&h->lock);
	job->ran = true;
	pthread_cond_signal(&h->ran);
	STAILQ_INSERT_TAIL(&h->finished, job, next);
	atomic_fetch_add_explicit(&h->n_finished, 1, memory_order_release);
	pthread_mutex_unlock(&h->lock);
	if (h->efd >= 0 && write(h->efd, &one, sizeof(one)) < 0)
		return; /* full: a wake-up is pending already */
}

/* Waits for the next job with the lock held; NULL: none is left and the rail goes. */
static struct vb_job *next_job(struct vb_helper *h)
{
	bool due = false; /* the first of `later` is; nobody else takes it away */

	for (;;) {
		if (!STAILQ_EMPTY(&h->todo))
			return pop(&h->todo);
		if (!STAILQ_EMPTY(&h->later) && (due || h->quit))
			return pop(&h->later);
		if (h->quit)
			return NULL;
		if (!STAILQ_EMPTY(&h->later)) {
			due = !dr_cond_wait(&h->wake, &h->lock, STAILQ_FIRST(&h->later)->due_ns);
		} else {
			pthread_cond_wait(&h->wake, &h->lock);
		}
	}
}

static void *helper_main(void *arg)
{
	struct vb_helper *h = arg;

	for (;;) {
		pthread_mutex_lock(&h->lock);
		struct vb_job *job = next_job(h);
		pthread_mutex_unlock(&h->lock);
		if (!job)
			return NULL;
		job->run(job);
		finish(h, job);
	}
}

int dr_verbs_helper_start(struct vb_helper *h, bool with_fd, struct dr_err *e)
{
	memset(h, 0, sizeof(*h));
	STAILQ_INIT(&h->todo);
	STAILQ_INIT(&h->later);
	STAILQ_INIT(&h->finished);
	h->efd = -1;
	if (with_fd) {
		h->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (h->efd < 0)
			return dr_err_set(e, -errno, "eventfd: %s; see ulimit -n", strerror(errno));
	}
	pthread_mutex_init(&h->lock, NULL);
	dr_cond_init(&h->wake);
	pthread_cond_init(&h->ran, NULL);
	int rc = dr_thread_start(&h->thread, "dr-verbs", helper_main, h);
	h->running = rc == 0;
	if (rc == 0)
		return 0;
	dr_verbs_helper_fini(h);
	return dr_err_set(e, rc, "start a thread: %s", strerror(-rc));
}

void dr_verbs_helper_submit(struct vb_helper *h, struct vb_job *job, int64_t due_ns)
{
	dr_assert(h->running && !h->quit);
	job->due_ns = due_ns;
	job->ran = false;
	pthread_mutex_lock(&h->lock);
	if (due_ns > 0)
		STAILQ_INSERT_TAIL(&h->later, job, next);
	else
		STAILQ_INSERT_TAIL(&h->todo, job, next);
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->lock);
}

void dr_verbs_helper_wait(struct vb_helper *h, const struct vb_job *job)
{
	pthread_mutex_lock(&h->lock);
	while (!job->ran)
		pthread_cond_wait(&h->ran, &h->lock);
	pthread_mutex_unlock(&h->lock);
}

void dr_verbs_helper_take(struct vb_helper *h, struct vb_jobs *out)
{
	STAILQ_INIT(out);
	if (atomic_load_explicit(&h->n_finished, memory_order_acquire) == 0)
		return;
	pthread_mutex_lock(&h->lock);
	STAILQ_CONCAT(out, &h->finished);
	atomic_store_explicit(&h->n_finished, 0, memory_order_relaxed);
	pthread_mutex_unlock(&h->lock);
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
	dr_assert(!h->running && STAILQ_EMPTY(&h->todo) && STAILQ_EMPTY(&h->later) &&
		  STAILQ_EMPTY(&h->finished));
	if (h->efd >= 0)
		close(h->efd);
	h->efd = -1;
	pthread_cond_destroy(&h->wake);
	pthread_cond_destroy(&h->ran);
	pthread_mutex_destroy(&h->lock);
}
