/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_LINKMON_H
#define DR_TOPOLOGY_LINKMON_H

#include "base/defs.h"
#include "base/err.h"
#include "base/poller.h"

/*
 * Reports changes of link state in this network namespace, from rtnetlink's multicast group.
 * Needs no privilege. The state at open is the base line and is not reported. When the kernel dropped notifications
 * (ENOBUFS), the monitor reads the full state and reports the differences.
 */
struct dr_linkmon;

/* The state is another one, see dr_linkmon_state. */
typedef void (*dr_link_changed_fn)(int ifindex, void *arg);

int dr_linkmon_open(struct dr_linkmon **out, struct dr_err *e) DR_MUST_CHECK;
/* Readable (EPOLLIN) when progress has something to do. */
int dr_linkmon_fd(const struct dr_linkmon *m);
/* Never blocks but for a resync's dump. fn may not close the monitor. Returns the number of
 * changes, or -errno when the socket is broken (close and open again). */
int dr_linkmon_progress(struct dr_linkmon *m, dr_link_changed_fn fn, void *arg);
/* As of the last message: 1 up (IFF_UP and IFF_LOWER_UP), 0 down, -ENODEV removed or unknown. */
int dr_linkmon_state(const struct dr_linkmon *m, int ifindex);
void dr_linkmon_close(struct dr_linkmon *m);

/*
 * A monitor on a poller. Only the state of a link after all pending notifications counts. The
 * kernel reports a lost carrier up to a second late (linkwatch). By then the link may be up again
 * and its paths rebuilt, so acting on the notification would break them again. Heartbeats and path
 * errors detect the effects of a short loss.
 */
struct dr_link_watch {
	struct dr_poller *poller;
	void (*on_link)(void *arg, int ifindex, bool up);
	void *arg;
	/* Its own: */
	struct dr_linkmon *m; /* NULL: closed */
	struct dr_pollable po;
	int changed[64]; /* devices that notifications were about, while they are read */
	unsigned n_changed;
};
/* A monitor that breaks is opened again. Without one, heartbeats detect a failure later. */
int dr_link_watch_open(struct dr_link_watch *w, struct dr_err *e) DR_MUST_CHECK;
/* Allowed when it is closed. */
void dr_link_watch_close(struct dr_link_watch *w);

#endif
