/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_THREAD_H
#define DR_PLUGIN_THREAD_H

#include "base/defs.h"
#include "base/err.h"
#include "base/poller.h"

#include <stdbool.h>

/*
 * Threads of the plugin. Each has a poller, runs work that other threads post, and drives its members: an I/O thread the
 * bulk managers of all sessions at its position, the control thread the rendezvous and what nobody drove lately.
 *
 * Threads: any thread may post and call. Members belong to the thread; they are added and removed on it. All signals
 * are blocked.
 */
struct ha_thread;

/* A piece of work, posted once at a time. The owner's memory until `run` began. */
struct ha_work {
	void (*run)(struct ha_work *self, int64_t now_ns);
	struct ha_work *next; /* private */
};

struct ha_member {
	/* Bounded. To be called after every wait. */
	void (*tick)(struct ha_member *self, int64_t now_ns);
	/* Latest time of the next call; DR_NEVER. */
	int64_t (*deadline)(const struct ha_member *self);
	struct ha_member *next; /* private */
};

/* name: at most 15 bytes. spin_ns: how long it polls without an event before it sleeps, while its load is not 0. Without load
 * it sleeps at once. Errors: -EAGAIN (no thread), -ENOMEM, those of
 * dr_poller_create. */
int ha_thread_start(const char *name, int64_t spin_ns, struct ha_thread **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Runs what was posted, then ends the thread, which must have no members. NULL is allowed. */
void ha_thread_stop(struct ha_thread *t);
/* For objects of this thread: only on it. */
struct dr_poller *ha_thread_poller(struct ha_thread *t);

/* Work of one poster runs in the order of its posts. */
void ha_thread_post(struct ha_thread *t, struct ha_work *w);
/* Runs fn(arg) on the thread and waits for it. Not from a thread of the plugin that t may wait for. On t: runs it now. */
void ha_thread_call(struct ha_thread *t, void (*fn)(void *arg, int64_t now_ns), void *arg);

/* Bytes that its members have in flight, or are asked to move: adds to them. Any thread. */
void ha_thread_add_load(struct ha_thread *t, int64_t bytes);
int64_t ha_thread_load(const struct ha_thread *t);

/* On the thread. A member may remove itself, or another one, in its tick. */
void ha_thread_add(struct ha_thread *t, struct ha_member *m);
void ha_thread_remove(struct ha_thread *t, struct ha_member *m);

#endif
