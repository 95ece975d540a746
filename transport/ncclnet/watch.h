/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_WATCH_H
#define DR_TRANSPORT_NCCLNET_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * A plugin's call may not return, may crash, or may end the process. Each call is marked by its
 * thread, so that the end has one message and a documented exit status:
 *  - no return within DR_NN_CALL_S seconds in which this process ran, but for calls that may
 *    wait: a message, then _exit;
 *  - exit() within a call: a message, then _exit with the status below in place of the plugin's;
 *  - a signal of a crash within a call: a message, then the signal's default action (128+n).
 * The status is 2 for calls that start a plugin (dlopen, init, devices, getProperties, listen) and 4 for the others.
 * _exit by the plugin cannot be noticed.
 */
enum { DR_NN_CALL_S = 10 };

struct nn_watch_mark {
	_Atomic(const char *) call; /* NULL: in no call */
	_Atomic(const char *) plugin;
	_Atomic unsigned count; /* of calls */
	atomic_bool waits;	/* this one may */
	/* private */
	unsigned seen, ticks;
	struct nn_watch_mark *next;
	atomic_bool used;
};

/* Of this thread; NULL: out of memory, and the calls of this thread are not watched. */
struct nn_watch_mark *dr_nn_watch_mark(void);
/* Watch the calls from here on, by a thread that ends after as many calls of dr_nn_watch_stop. */
void dr_nn_watch_start(void);
void dr_nn_watch_stop(void);
static inline void nn_watch_enter(const char *plugin, const char *call, bool waits)
{
	struct nn_watch_mark *m = dr_nn_watch_mark();

	if (!m)
		return;
	atomic_store_explicit(&m->plugin, plugin, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->count, 1, memory_order_relaxed);
	atomic_store_explicit(&m->waits, waits, memory_order_relaxed);
	atomic_store_explicit(&m->call, call, memory_order_release);
}

static inline int nn_watch_left(int rc)
{
	struct nn_watch_mark *m = dr_nn_watch_mark();

	if (m)
		atomic_store_explicit(&m->call, NULL, memory_order_relaxed);
	return rc;
}

/* The result of a call of the plugin, and of one that may wait for as long as it likes. */
#define NN_CALL(plugin, call, expression)                                                          \
	(nn_watch_enter(plugin, call, false), nn_watch_left((int)(expression)))
#define NN_CALL_WAITS(plugin, call, expression)                                                    \
	(nn_watch_enter(plugin, call, true), nn_watch_left((int)(expression)))

#endif
