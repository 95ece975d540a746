/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's side of a plugin's process. Rails of all workers on one device of one plugin share it. A process that has
 * ended is started again by the first rail that attaches after a pause, which grows while processes end early.
 */
#include "transport/ncclnet/guard.h"
#include "transport/ncclnet/iso.h"
#include "transport/ncclnet/kind.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELLO_MS = 10000, END_MS = 3000, KILL_MS = 1000 };
static const int64_t PAUSE_MIN_NS = 50 * DR_NS_PER_MS, PAUSE_MAX_NS = 500 * DR_NS_PER_MS,
		     LIVED_NS = 10 * DR_NS_PER_S;

struct nn_proc {
	struct nn_proc *next;
	struct iso_config config;
	unsigned users;
	struct iso_hello hello;
	/* Of the last start. */
	uint64_t start;
	int ctl; /* -1: it has ended */
	int64_t began_ns, again_ns, pause_ns;
	char why[ISO_TEXT_MAX]; /* it was ended by this program; "": it ended by itself */
	char end[ISO_TEXT_MAX];
	uint64_t before; /* the start before it, and how that ended */
	char before_end[ISO_TEXT_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nn_proc *procs; /* under lock, with what is in them */
static uint64_t last_start;

void dr_nn_iso_config(
	const struct dr_nccl_params *params, const char *ifname, struct iso_config *out)
{
	*out = (struct iso_config){ .version = params->version, .unpack = params->unpack };
	snprintf(out->file, sizeof(out->file), "%s", params->file);
	snprintf(out->ifname, sizeof(out->ifname), "%s", ifname ? ifname : "");
}

/* ---- start ---- */

static int start(struct nn_proc *p, int64_t now_ns, struct dr_err *e)
{
	int fds[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return dr_err_set(e, -errno, "--isolate: socketpair: %s", strerror(errno));
	p->before = p->start;
	memcpy(p->before_end, p->end, sizeof(p->before_end));
	p->start = ++last_start;
	rc = dr_iso_spawn(p->start, &p->config, fds[1], e);
	close(fds[1]);
	if (rc) {
		close(fds[0]);
		return rc;
	}
	p->ctl = fds[0];
	p->began_ns = now_ns;
	p->why[0] = p->end[0] = '\0';
	return 0;
}

/* What it sent before it ended: "crashed in isend", or "could not start: ...". */
static void read_reason(struct nn_proc *p, char *text, size_t len)
{
	struct iso_hello h;
	ssize_t n;

	*text = '\0';
	while ((n = dr_packet_receive(p->ctl, &h, sizeof(h), NULL, 0, MSG_DONTWAIT)) > 0) {
		bool hello = n == (ssize_t)sizeof(h);
		const char *reason = hello ? h.text : (const char *)&h;
		size_t max = hello ? sizeof(h.text) : (size_t)n;

		if (!hello || h.rc)
			snprintf(text, len, "%s%.*s", hello ? "could not start: " : "",
				(int)strnlen(reason, max), reason);
	}
}

/* "it ended by signal 11 (Segmentation fault)" */
static void describe(struct nn_proc *p, int status, char *text, size_t len)
{
	char reason[ISO_TEXT_MAX];

	read_reason(p, reason, sizeof(reason));
	if (reason[0])
		snprintf(text, len, "it %s", reason);
	else if (p->why[0])
		snprintf(text, len, "%s", p->why);
	else if (status < 0)
		snprintf(text, len, "it could not be started: %s", strerror(-status));
	else if (WIFSIGNALED(status))
		snprintf(text, len, "it ended by signal %d (%s)", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else
		snprintf(text, len, "it ended with status %d", WEXITSTATUS(status));
}

/* A process closes its descriptors after it has let go of its memory. */
static bool has_hung_up(int ctl)
{
	struct pollfd pfd = { .fd = ctl, .events = POLLRDHUP };

	return poll(&pfd, 1, 0) > 0;
}

/* With the lock: the last start has ended. */
static bool look(struct nn_proc *p)
{
	int status;

	if (p->ctl < 0)
		return true;
	if (!dr_iso_has_ended(p->start, &status)) {
		if (!dr_iso_is_lost() || !has_hung_up(p->ctl))
			return false;
		status = -EPIPE;
	}
	int64_t now = dr_now_ns();
	bool early = now - p->began_ns < LIVED_NS;

	dr_iso_forget(p->start);
	describe(p, status, p->end, sizeof(p->end));
	close(p->ctl);
	p->ctl = -1;
	p->pause_ns = early ? DR_MIN(2 * p->pause_ns, PAUSE_MAX_NS) : PAUSE_MIN_NS;
	p->pause_ns = DR_MAX(p->pause_ns, PAUSE_MIN_NS);
	p->again_ns = now + (early ? p->pause_ns : 0);
	return true;
}

static bool ends_within(struct nn_proc *p, int ms)
{
	for (int i = 0; i < ms; i++) {
		if (look(p))
			return true;
		(void)poll(NULL, 0, 1);
	}
	return look(p);
}

/* What the first start says of itself. */
static int await_hello(struct nn_proc *p, struct dr_err *e)
{
	struct pollfd pfd = { .fd = p->ctl, .events = POLLIN };
	ssize_t n = 0;

	while (poll(&pfd, 1, HELLO_MS) < 0 && errno == EINTR)
		;
	if (pfd.revents)
		n = dr_packet_receive(p->ctl, &p->hello, sizeof(p->hello), NULL, 0, MSG_PEEK);
	if (n == (ssize_t)sizeof(p->hello))
		n = dr_packet_receive(p->ctl, &p->hello, sizeof(p->hello), NULL, 0, 0);
	if (n == (ssize_t)sizeof(p->hello)) {
		p->hello.text[sizeof(p->hello.text) - 1] = '\0';
		p->hello.name[sizeof(p->hello.name) - 1] = '\0';
		return p->hello.rc ? dr_err_set(e, p->hello.rc, "%s", p->hello.text) : 0;
	}
	if (!pfd.revents)
		return dr_err_set(e, -EIO,
			"plugin %.120s has not come up in its process within %d s; check the file with "
			"`dualrail plugin`",
			p->config.file, HELLO_MS / 1000);
	(void)ends_within(p, KILL_MS);
	return dr_err_set(e, -EIO,
		"the process of plugin %.120s has ended at its start: %s; check the file with `dualrail "
		"plugin`",
		p->config.file, p->end[0] ? p->end : "for an unknown reason");
}

/* A plugin finds its devices when it starts: it has none on a link that is down. */
static bool link_is_up(const char *ifname)
{
	struct ifreq q = { .ifr_flags = 0 };
	int fd = *ifname ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1, rc;

	if (fd < 0)
		return true;
	snprintf(q.ifr_name, sizeof(q.ifr_name), "%.*s", IFNAMSIZ - 1, ifname);
	rc = ioctl(fd, SIOCGIFFLAGS, &q);
	close(fd);
	return rc == 0 && (q.ifr_flags & IFF_UP) && (q.ifr_flags & IFF_RUNNING);
}

/* ---- users ---- */

static bool same(const struct iso_config *a, const struct iso_config *b)
{
	return a->version == b->version && a->unpack == b->unpack &&
	       strcmp(a->file, b->file) == 0 && strcmp(a->ifname, b->ifname) == 0;
}

/* The process ends when ctl is closed, and is ended if it does not. */
static void destroy(struct nn_proc *p)
{
	if (p->ctl >= 0)
		(void)shutdown(p->ctl, SHUT_RDWR);
	if (!ends_within(p, END_MS)) {
		dr_iso_kill(p->start);
		if (!ends_within(p, KILL_MS))
			dr_warn("nccl",
				"the process of plugin %s has not ended %d ms after SIGKILL; a driver may hold it, "
				"see dualrail-plugin in `ps -eo pid,stat,comm`",
				p->hello.name, KILL_MS);
	}
	if (p->ctl >= 0)
		close(p->ctl);
	dr_free(p);
}

static int add(const struct iso_config *config, struct nn_proc **out, struct dr_err *e)
{
	struct nn_proc *p = dr_calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return dr_err_set(e, -ENOMEM, "out of memory");
	p->config = *config;
	p->ctl = -1;
	rc = start(p, dr_now_ns(), e);
	if (rc == 0)
		rc = await_hello(p, e);
	if (rc) {
		if (p->ctl >= 0)
			dr_iso_kill(p->start);
		destroy(p);
		return rc;
	}
	p->next = procs;
	procs = p;
	*out = p;
	return 0;
}

int dr_nn_proc_get(const struct iso_config *config, struct nn_proc **out, struct dr_err *e)
{
	struct nn_proc *p;
	int rc = 0;

	(void)pthread_mutex_lock(&lock);
	for (p = procs; p && !same(&p->config, config); p = p->next)
		;
	if (!p)
		rc = add(config, &p, e);
	if (rc == 0) {
		p->users++;
		*out = p;
	}
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

void dr_nn_proc_put(struct nn_proc *p)
{
	struct nn_proc **at = &procs;

	(void)pthread_mutex_lock(&lock);
	dr_assert(p->users > 0);
	if (--p->users == 0) {
		while (*at != p)
			at = &(*at)->next;
		*at = p->next;
		destroy(p);
	}
	(void)pthread_mutex_unlock(&lock);
}

const struct iso_hello *dr_nn_proc_hello(const struct nn_proc *p)
{
	return &p->hello;
}

/* ---- while it runs ---- */

int dr_nn_proc_attach(struct nn_proc *p, const struct iso_attach *what, const int fds[ISO_FDS],
	int64_t now_ns, uint64_t *start_out)
{
	int rc = 0;

	(void)pthread_mutex_lock(&lock);
	if (look(p))
		rc = now_ns < p->again_ns || !link_is_up(p->config.ifname) ? -EAGAIN
									   : start(p, now_ns, NULL);
	if (rc == 0)
		rc = dr_packet_send(p->ctl, what, sizeof(*what), fds, ISO_FDS);
	*start_out = p->start;
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

void dr_nn_proc_kill(struct nn_proc *p, uint64_t start_id, const char *why)
{
	(void)pthread_mutex_lock(&lock);
	if (p->start == start_id && p->ctl >= 0 && !p->why[0]) {
		snprintf(p->why, sizeof(p->why), "%s", why);
		dr_iso_kill(p->start);
	}
	(void)pthread_mutex_unlock(&lock);
}

bool dr_nn_proc_has_ended(struct nn_proc *p, uint64_t start_id, char *text, size_t len)
{
	bool is;

	(void)pthread_mutex_lock(&lock);
	is = p->start != start_id || look(p);
	if (is)
		snprintf(text, len, "%s",
			p->start == start_id	? p->end
			: p->before == start_id ? p->before_end
						: "it has ended");
	(void)pthread_mutex_unlock(&lock);
	return is;
}
