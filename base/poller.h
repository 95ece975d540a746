/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_POLLER_H
#define DR_BASE_POLLER_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>
#include <sys/epoll.h>

/*
 * Event loop of one worker thread: level-triggered epoll over pollables that their owners embed, plus a list of
 * pollables to run again without a ready file descriptor ("kick"). One thread owns a poller; only dr_poller_wake may
 * be called from another thread.
 *
 * A "watch" is an event source that is polled without a system call (a completion queue in memory). It is polled at
 * the start of every wait, and armed before the wait sleeps; see struct dr_watch.
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
	/* Process pending work, bounded; returns its amount. */
	int (*poll)(struct dr_watch *self, int64_t now_ns);
	/* Make a registered file descriptor ready at the next event, then test for events that came before. True:
	 * there is one, and the wait polls again instead of sleeping. */
	bool (*arm)(struct dr_watch *self, int64_t now_ns);
	/* Its work needs file descriptors as well: they are polled in every wait even while it finds work. */
	bool with_fds;
	/* private */
	struct dr_watch *next;
};

int dr_poller_create(struct dr_poller **out, struct dr_err *e) DR_MUST_CHECK;
void dr_poller_destroy(struct dr_poller *p);
/* Register po->fd with events. 0 or -errno. */
int dr_poller_add(struct dr_poller *p, struct dr_pollable *po, uint32_t events) DR_MUST_CHECK;
/* Change the events; no system call when they are the same. */
int dr_poller_mod(struct dr_poller *p, struct dr_pollable *po, uint32_t events);
/* Remove the pollable and its kick, before its fd is closed. Allowed when it was never added. */
void dr_poller_del(struct dr_poller *p, struct dr_pollable *po);
/* Call ready(po, 0, now) in the next dr_poller_wait, which then does not sleep. */
void dr_poller_kick(struct dr_poller *p, struct dr_pollable *po);
/* A watch may be registered once. Unwatch is allowed when it is not registered. */
void dr_poller_watch(struct dr_poller *p, struct dr_watch *w);
void dr_poller_unwatch(struct dr_poller *p, struct dr_watch *w);
/* Dispatch ready events; sleeps at most timeout_ns (0: do not sleep; DR_NEVER: until woken). Returns the number of
 * callbacks plus the work of watches, or -errno. EINTR is no error. While watches without `with_fds` find work, file
 * descriptors are polled only every few waits. */
int dr_poller_wait(struct dr_poller *p, int64_t timeout_ns);
/* For a poller that another one watches: readable when dr_poller_wait(p, 0) would find work, provided that
 * dr_poller_rest was called after the last call that changed anything. */
int dr_poller_fd(const struct dr_poller *p);
void dr_poller_rest(struct dr_poller *p);
/* Thread- and signal-safe: make a sleeping dr_poller_wait return. */
void dr_poller_wake(struct dr_poller *p);

#endif
