/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_POLLER_H
#define DR_BASE_POLLER_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>
#include <sys/epoll.h>

/*
 * What one worker thread sleeps on: level-triggered epoll over pollables that their owners embed,
 * plus a list of pollables that asked to run again without a file descriptor being ready ("kick").
 * One thread owns a poller; only dr_poller_wake may be called from another thread.
 *
 * A "watch" is something that can be looked at without a system call (a completion queue in memory).
 * It is looked at at the start of every wait, and armed before one sleeps; see struct dr_watch.
 */
struct dr_poller;
struct dr_pollable {
	int fd;		 /* -1: not registered, may still be kicked */
	uint32_t events; /* EPOLLIN | EPOLLOUT as registered now */
	/* Runs inside dr_poller_wait, never inside add, mod, del or kick. It may del itself or others. */
	void (*ready)(struct dr_pollable *self, uint32_t revents, int64_t now_ns);
	/* private */
	bool kicked;
	struct dr_pollable *kick_next;
};

/* Both run inside dr_poller_wait and may call anything that a pollable's ready may, and watch or unwatch
 * any watch. */
struct dr_watch {
	/* Do what there is to do, bounded; returns how much that was. */
	int (*look)(struct dr_watch *self, int64_t now_ns);
	/* Have a registered file descriptor become ready at the next occasion, then see whether one came in
	 * between: true, and the wait looks again instead of sleeping. */
	bool (*arm)(struct dr_watch *self, int64_t now_ns);
	/* What it finds goes with work that comes by file descriptors: they are asked in every wait all the
	 * same. */
	bool beside;
	/* private */
	struct dr_watch *next;
};

int dr_poller_create(struct dr_poller **out, struct dr_err *e) DR_MUST_CHECK;
void dr_poller_destroy(struct dr_poller *p);
/* Register po->fd with events. 0 or -errno. */
int dr_poller_add(struct dr_poller *p, struct dr_pollable *po, uint32_t events) DR_MUST_CHECK;
/* Change the events; no system call when they are the same. */
int dr_poller_mod(struct dr_poller *p, struct dr_pollable *po, uint32_t events);
/* Forget the pollable, kicks included, before its fd is closed. Safe when it was never added. */
void dr_poller_del(struct dr_poller *p, struct dr_pollable *po);
/* Have ready(po, 0, now) called in the next dr_poller_wait, which then does not sleep. */
void dr_poller_kick(struct dr_poller *p, struct dr_pollable *po);
/* A watch may be registered once; unwatch of one that is not is safe. */
void dr_poller_watch(struct dr_poller *p, struct dr_watch *w);
void dr_poller_unwatch(struct dr_poller *p, struct dr_watch *w);
/* Dispatch what is ready; sleeps at most timeout_ns (0: do not sleep; DR_NEVER: until woken).
 * Returns the number of callbacks made plus what watches did, or -errno. EINTR is no error. While
 * watches have something to do (but those "beside"), file descriptors are asked only every few waits. */
int dr_poller_wait(struct dr_poller *p, int64_t timeout_ns);
/* Thread- and signal-safe: make a sleeping dr_poller_wait return. */
void dr_poller_wake(struct dr_poller *p);
/* System calls made by this poller so far, for the cost-by-counts benchmarks. */
uint64_t dr_poller_syscalls(const struct dr_poller *p);

#endif
