/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/poller.h"

/*
 * 1. A callback may delete any pollable. Delete searches the current batch and the list of kicks being run, so
 *    that no pointer is used after its delete.
 * 2. Kicks made inside a callback go to `kicks` while `running` is processed. They run in the next wait, so a
 *    pollable that always kicks itself cannot keep a wait from returning.
 * 3. The wake eventfd is level-triggered and read only by the owner: a wake between two waits makes the next one
 *    return at once.
 * 4. A poll callback may unwatch any watch: the loop continues with next_watch, and unwatch advances it.
 * 5. A wait sleeps only after every watch was polled without result, armed, and had no event meanwhile. While
 *    watches find work, file descriptors are polled in every FD_TURN-th wait only, unless all that work came from
 *    watches with `with_fds`.
 */
enum { BATCH = 64, FD_TURN = 16 };

struct dr_poller {
	int epfd, wakefd;
	int no_pwait2; /* kernel before 5.11: epoll_wait's milliseconds */
	struct epoll_event batch[BATCH];
	int batch_n;
	struct dr_pollable *kicks, **kicks_end;
	struct dr_pollable *running;
	struct dr_watch *watches, *next_watch;
	unsigned fd_skipped; /* waits in a row without polling file descriptors */
	bool no_fds;	     /* in this wait, watches without `with_fds` found work */
};

int dr_poller_create(struct dr_poller **out, struct dr_err *e)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	struct dr_poller *p = dr_calloc(1, sizeof(*p));

	if (!p)
		return dr_err_set(e, -ENOMEM, "poller: out of memory");
	p->kicks_end = &p->kicks;
	p->wakefd = -1;
	p->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (p->epfd >= 0)
		p->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wakefd < 0 || epoll_ctl(p->epfd, EPOLL_CTL_ADD, p->wakefd, &ev)) {
		int rc = dr_err_set(
			e, -errno, "poller: epoll or eventfd: %s; see ulimit -n", strerror(errno));
		dr_poller_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

void dr_poller_destroy(struct dr_poller *p)
{
	if (!p)
		return;
	if (p->wakefd >= 0)
		close(p->wakefd);
	if (p->epfd >= 0)
		close(p->epfd);
	dr_free(p);
}

static int control(struct dr_poller *p, int op, struct dr_pollable *po, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = po };

	return epoll_ctl(p->epfd, op, po->fd, &ev) ? -errno : 0;
}

int dr_poller_add(struct dr_poller *p, struct dr_pollable *po, uint32_t events)
{
	int rc = control(p, EPOLL_CTL_ADD, po, events);

	dr_assert(po->ready);
	if (rc == 0)
		po->events = events;
	return rc;
}

int dr_poller_mod(struct dr_poller *p, struct dr_pollable *po, uint32_t events)
{
	if (po->events == events)
		return 0;
	int rc = control(p, EPOLL_CTL_MOD, po, events);
	if (rc == 0)
		po->events = events;
	return rc;
}

static int unlink_kick(struct dr_pollable **at, const struct dr_pollable *po)
{
	for (; *at; at = &(*at)->kick_next) {
		if (*at == po) {
			*at = po->kick_next;
			return 1;
		}
	}
	return 0;
}

void dr_poller_del(struct dr_poller *p, struct dr_pollable *po)
{
	if (po->fd >= 0)
		control(p, EPOLL_CTL_DEL, po, 0);
	po->events = 0;
	for (int i = 0; i < p->batch_n; i++)
		if (p->batch[i].data.ptr == po)
			p->batch[i].data.ptr = NULL;
	if (!po->kicked)
		return;
	if (!unlink_kick(&p->running, po) && unlink_kick(&p->kicks, po)) {
		p->kicks_end = &p->kicks;
		while (*p->kicks_end)
			p->kicks_end = &(*p->kicks_end)->kick_next;
	}
	po->kicked = false;
	po->kick_next = NULL;
}

void dr_poller_kick(struct dr_poller *p, struct dr_pollable *po)
{
	dr_assert(po->ready);
	if (po->kicked)
		return;
	po->kicked = true;
	po->kick_next = NULL;
	*p->kicks_end = po;
	p->kicks_end = &po->kick_next;
}

static int sleep_ms(int64_t timeout_ns)
{
	if (timeout_ns == DR_NEVER)
		return -1;
	int64_t ms = timeout_ns / DR_NS_PER_MS + (timeout_ns % DR_NS_PER_MS != 0);
	return (int)DR_MIN(ms, (int64_t)INT_MAX);
}

static int wait_fds(struct dr_poller *p, int64_t timeout_ns)
{
	struct timespec ts;
	int n;

	if (timeout_ns > 0 && timeout_ns != DR_NEVER && !p->no_pwait2) {
		ts.tv_sec = (time_t)(timeout_ns / DR_NS_PER_S);
		ts.tv_nsec = (long)(timeout_ns % DR_NS_PER_S);
		n = epoll_pwait2(p->epfd, p->batch, BATCH, &ts, NULL);
		if (n >= 0 || (errno != ENOSYS && errno != EPERM)) /* EPERM: old seccomp filters */
			return n < 0 ? -errno : n;
		p->no_pwait2 = 1;
	}
	n = epoll_wait(p->epfd, p->batch, BATCH, sleep_ms(timeout_ns));
	return n < 0 ? -errno : n;
}

static void take_wake(struct dr_poller *p)
{
	uint64_t v;
	ssize_t n = read(p->wakefd, &v, sizeof(v));

	(void)n; /* nothing to read: another wait took it */
}

static int run_ready(struct dr_poller *p, int64_t now_ns)
{
	int calls = 0;

	for (int i = 0; i < p->batch_n; i++) {
		struct dr_pollable *po = p->batch[i].data.ptr;
		if (!po)
			continue;
		po->ready(po, p->batch[i].events, now_ns);
		calls++;
	}
	p->batch_n = 0;
	return calls;
}

static int run_kicks(struct dr_poller *p, int64_t now_ns)
{
	struct dr_pollable *po;
	int calls = 0;

	while ((po = p->running)) {
		p->running = po->kick_next;
		po->kick_next = NULL;
		po->kicked = false;
		po->ready(po, 0, now_ns);
		calls++;
	}
	return calls;
}

void dr_poller_watch(struct dr_poller *p, struct dr_watch *w)
{
	dr_assert(w->poll && w->arm);
	w->next = p->watches;
	p->watches = w;
}

void dr_poller_unwatch(struct dr_poller *p, struct dr_watch *w)
{
	DR_UNLINK(&p->watches, w, next);
	if (p->next_watch == w)
		p->next_watch = w->next;
	w->next = NULL;
}

static int poll_watches(struct dr_poller *p)
{
	int64_t now_ns = dr_now_ns();
	int done = 0;

	for (struct dr_watch *w = p->watches; w; w = p->next_watch) {
		bool with_fds = w->with_fds;

		p->next_watch = w->next;
		int n = w->poll(w, now_ns);
		p->no_fds |= n > 0 && !with_fds;
		done += n;
	}
	return done;
}

/* True: there is an event, do not sleep. */
static bool arm(struct dr_poller *p)
{
	int64_t now_ns = dr_now_ns();
	bool came = false;

	for (struct dr_watch *w = p->watches; w; w = p->next_watch) {
		p->next_watch = w->next;
		came |= w->arm(w, now_ns);
	}
	return came;
}

/* Returns the amount of work that watches did. *timeout_ns becomes 0 when the wait must not sleep. */
static int run_watches(struct dr_poller *p, int64_t *timeout_ns)
{
	int done = poll_watches(p);

	if (done == 0 && *timeout_ns != 0 && !p->kicks && arm(p)) {
		*timeout_ns = 0;
		done = poll_watches(p);
	}
	if (done > 0)
		*timeout_ns = 0;
	return done;
}

/* File descriptors are delayed while watches have work; kicks are not. */
static bool skip_fds(struct dr_poller *p)
{
	if (p->no_fds && ++p->fd_skipped < FD_TURN)
		return true;
	p->fd_skipped = 0;
	return false;
}

int dr_poller_wait(struct dr_poller *p, int64_t timeout_ns)
{
	int n = 0, done = 0;

	dr_assert(!p->batch_n && !p->running);
	p->no_fds = false;
	if (p->watches)
		done = run_watches(p, &timeout_ns);
	if (!skip_fds(p))
		n = wait_fds(p, p->kicks || timeout_ns < 0 ? 0 : timeout_ns);
	if (n < 0 && n != -EINTR)
		return n;
	p->batch_n = DR_MAX(n, 0);
	/* Kicks made by the fd callbacks below are for the next wait, so the list is taken first. */
	p->running = p->kicks;
	p->kicks = NULL;
	p->kicks_end = &p->kicks;
	for (int i = 0; i < p->batch_n; i++)
		if (!p->batch[i].data.ptr)
			take_wake(p);
	int64_t now_ns = dr_now_ns();
	int calls = run_ready(p, now_ns);
	return done + calls + run_kicks(p, now_ns);
}

void dr_poller_wake(struct dr_poller *p)
{
	uint64_t one = 1;
	int saved = errno;
	ssize_t n = write(p->wakefd, &one, sizeof(one));

	(void)n; /* full: a wake is pending already */
	errno = saved;
}

int dr_poller_fd(const struct dr_poller *p)
{
	return p->epfd;
}

void dr_poller_rest(struct dr_poller *p)
{
	if (p->kicks || (p->watches && arm(p)))
		dr_poller_wake(p);
}
