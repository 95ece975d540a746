/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_WORKER_PRIV_H
#define DR_ORCHESTRATOR_WORKER_PRIV_H

#include <pthread.h>
#include <semaphore.h>

#include "base/queue.h"
#include "orchestrator/engine/engine.h"
#include "topology/linkmon.h"

/*
 * The worker's files among themselves. worker.c owns the struct dr_worker and is the main thread's
 * side of it; worker_loop.c runs on its thread.
 *
 * Shared by both threads: the two queues, the live cells (relaxed atomics), `snap` under its
 * lock, `quit`; and each engine's published result, which the report queue hands over.
 */
struct dr_worker {
	struct dr_worker_params prm;
	struct dr_engine **gpu; /* prm.n_gpus */
	struct dr_poller *poller;
	struct dr_queue *commands, *reports;
	struct dr_pollable command_po;
	struct dr_link_watch links;
	int64_t active_ns; /* when something was last done */
	unsigned first;	   /* GPU whose step comes first in this round */
	unsigned direct;   /* rounds since the poller was asked */

	pthread_t thread;
	bool running;
	sem_t started;
	int start_rc; /* ordered by `started` */
	struct dr_err start_err;
	atomic_bool quit;

	pthread_mutex_t snap_lock;
	struct dr_worker_snap *snap; /* n_gpus * DR_GPU_CHANNELS_MAX */
};

/* worker.c: to the main thread; arg: the worker. Its own thread. */
void dr_worker_report(void *arg, const struct dr_report *r);

/* worker_loop.c, on the worker's thread: its loop, until quit or until polling fails, which it reports. */
void dr_worker_loop(struct dr_worker *w);
/* Closes all channels and drives them until the peer knows or the time for it is over. */
void dr_worker_close_channels(struct dr_worker *w);
/* The command queue is readable. */
void dr_worker_command_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns);

/* Link events of the rails' devices; without them heartbeats judge alone. */
void dr_worker_open_links(struct dr_worker *w);

#endif
