/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void on_signal(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_loop *l = dr_container_of(po, struct dr_loop, sig);
	struct signalfd_siginfo si;

	(void)revents;
	(void)now_ns;
	while (read(po->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		if (!l->signo)
			l->signo = (int)si.ssi_signo;
}

int dr_loop_init(struct dr_loop *l, struct dr_err *e)
{
	sigset_t set;
	int rc;

	memset(l, 0, sizeof(*l));
	l->sig.fd = -1;
	l->sig.ready = on_signal;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	rc = -pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (rc)
		return dr_err_set(e, rc, "signals: %s", strerror(-rc));
	rc = dr_poller_create(&l->poller, e);
	if (rc)
		return rc;
	l->sig.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	rc = l->sig.fd < 0 ? -errno : dr_poller_add(l->poller, &l->sig, EPOLLIN);
	if (rc) {
		dr_err_set(e, rc, "signalfd: %s", strerror(-rc));
		dr_loop_fini(l);
	}
	return rc;
}

void dr_loop_fini(struct dr_loop *l)
{
	if (l->sig.fd >= 0) {
		dr_poller_del(l->poller, &l->sig);
		close(l->sig.fd);
	}
	dr_poller_destroy(l->poller);
	l->poller = NULL;
	l->sig.fd = -1;
}

void dr_loop_turn(struct dr_loop *l, int64_t deadline_ns)
{
	int64_t now = dr_now_ns();
	int64_t sleep = deadline_ns == DR_NEVER ? DR_NEVER : DR_MAX(deadline_ns - now, 0);

	dr_poller_wait(l->poller, sleep);
}
