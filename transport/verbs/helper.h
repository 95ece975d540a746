/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_HELPER_H
#define DR_TRANSPORT_VERBS_HELPER_H

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

/* The thread of a rail that makes blocking calls; helper.c states the rules. */
struct vb_job {
	STAILQ_ENTRY(vb_job) next;
	void (*run)(struct vb_job *job);  /* on the helper's thread */
	void (*done)(struct vb_job *job); /* on the owner's, in rail_progress; may free the job */
	int64_t due_ns;			  /* submitted for later */
	bool ran;
};

STAILQ_HEAD(vb_jobs, vb_job);

struct vb_helper {
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t wake; /* there is something to do */
	pthread_cond_t ran;  /* a job has run */
	struct vb_jobs todo, later, finished;
	atomic_uint n_finished;
	bool quit;
	int efd; /* readable when something finished; -1: no thread waits for it */
};

int dr_verbs_helper_start(struct vb_helper *h, bool with_fd, struct dr_err *e) DR_MUST_CHECK;
/* Due times do not fall. 0: at once; else when the clock of dr_now_ns() is there and nothing else is to be done. */
void dr_verbs_helper_submit(struct vb_helper *h, struct vb_job *job, int64_t due_ns);
/* Wait until this submitted job has run. Its done() is still to be called. */
void dr_verbs_helper_wait(struct vb_helper *h, const struct vb_job *job);
/* The jobs that finished, oldest first. */
void dr_verbs_helper_take(struct vb_helper *h, struct vb_jobs *out);
/* Ends the thread after every submitted job has run; then take once more. */
void dr_verbs_helper_stop(struct vb_helper *h);
void dr_verbs_helper_fini(struct vb_helper *h);

#endif
