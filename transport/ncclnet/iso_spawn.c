/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spawner: a process without threads that forks the plugins' processes and reaps them. Invariants:
 *  1. It ends when the program does. Its children end by themselves then: their ctl is closed.
 *  2. A child that has ended is reported once, after it was reaped: its memory is gone.
 *  3. Only ids of children that are not reaped are killed, so that no foreign process is.
 */
#include "transport/ncclnet/iso.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/privileges.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN_MAX = 64 };

/* ---- the process ---- */

struct child {
	uint64_t id;
	pid_t pid;
	int pidfd;
};
struct spawner {
	struct child child[CHILDREN_MAX];
	unsigned n;
	const struct dr_gpu_process_ops *gpu;
};

static void report(const struct iso_report *r)
{
	if (dr_packet_send(DR_CHILD_FD, r, sizeof(*r), NULL, 0))
		_exit(0); /* lint-ok: the program has ended */
}

static void spawn(struct spawner *s, const struct iso_request *q, int ctl)
{
	struct iso_report r = { .id = q->id };
	struct child c = { .id = q->id, .pid = -1, .pidfd = -1 };
	pid_t spawner = getpid();

	if (ctl >= 0 && s->n < CHILDREN_MAX)
		c.pid = fork();
	if (c.pid == 0) {
		/* Without the spawner nobody would know of its end. */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != spawner)
			_exit(0); /* lint-ok: the spawner has ended */
		close(DR_CHILD_FD);
		for (unsigned i = 0; i < s->n; i++)
			close(s->child[i].pidfd);
		dr_iso_child(ctl, &q->config, s->gpu);
	}
	if (c.pid > 0)
		c.pidfd = (int)syscall(SYS_pidfd_open, c.pid, 0);
	if (c.pid > 0 && c.pidfd < 0) { /* its end would not be noticed */
		(void)kill(c.pid, SIGKILL);
		(void)waitpid(c.pid, NULL, 0);
	}
	if (c.pidfd < 0) {
		r.ended = true;
		r.status = -EAGAIN;
	} else {
		r.pid = c.pid;
		s->child[s->n++] = c;
	}
	report(&r);
}

static int64_t time_of(const struct rusage *u)
{
	return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * DR_NS_PER_S +
	       (u->ru_utime.tv_usec + u->ru_stime.tv_usec) * DR_NS_PER_US;
}

/* Processes that are started later inherit it. The program has said what does not work here. */
static void limit(const struct iso_request *q)
{
	struct dr_err e;

	if (dr_privileges_limit(q->config.caps, &e))
		dr_debug("nccl", "the process that starts plugins: %s", e.text);
	if (dr_privileges_filter(&e))
		dr_debug("nccl", "the process that starts plugins: %s", e.text);
}

static void serve(struct spawner *s)
{
	struct iso_request q;
	int ctl;
	ssize_t n = dr_packet_receive(DR_CHILD_FD, &q, sizeof(q), &ctl, 1, 0);

	if (n != (ssize_t)sizeof(q))
		_exit(0); /* lint-ok: the program has ended */
	if (q.op == ISO_SPAWN)
		spawn(s, &q, ctl);
	if (q.op == ISO_LIMIT)
		limit(&q);
	for (unsigned i = 0; q.op == ISO_KILL && i < s->n; i++)
		if (s->child[i].id == q.id)
			(void)kill(s->child[i].pid, SIGKILL);
	if (ctl >= 0)
		close(ctl);
}

/* What the plugin forked in its process group goes too: it has the buffers mapped. */
static void reap(struct spawner *s, unsigned i)
{
	struct child c = s->child[i];
	struct iso_report r = { .id = c.id, .pid = c.pid, .ended = true };
	struct rusage used = { .ru_nsignals = 0 };

	(void)kill(-c.pid, SIGKILL);
	while (wait4(c.pid, &r.status, 0, &used) < 0 && errno == EINTR)
		;
	r.cpu_ns = time_of(&used);
	while (waitpid(-c.pid, NULL, 0) > 0 || errno == EINTR)
		;
	close(c.pidfd);
	s->child[i] = s->child[--s->n];
	report(&r);
}

static _Noreturn void spawner_main(int fd, const struct dr_gpu_process_ops *gpu)
{
	static struct spawner s;

	s.gpu = gpu;
	dr_child_settle(fd, "dualrail-spawn");
	/* So that what a plugin prints is not lost. */
	(void)dup2(STDERR_FILENO, STDOUT_FILENO);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (;;) {
		struct pollfd p[1 + CHILDREN_MAX] = { { DR_CHILD_FD, POLLIN, 0 } };
		unsigned n = s.n;

		for (unsigned i = 0; i < n; i++)
			p[1 + i] = (struct pollfd){ s.child[i].pidfd, POLLIN, 0 };
		if (poll(p, 1 + n, -1) < 0)
			continue;
		for (unsigned i = n; i-- > 0;) /* from the end: reap moves the last one */
			if (p[1 + i].revents)
				reap(&s, i);
		if (p[0].revents)
			serve(&s);
	}
}

/* ---- the program's side ---- */

/* Processes that were started and not forgotten. */
struct started {
	struct started *next;
	struct iso_report r;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct started *started; /* under lock, as is sock */
static int64_t forgotten_ns;	/* processor time of those that are forgotten */
static int sock = -1;
static bool lost; /* the spawner has ended, and its children are ended by the kernel */

int dr_iso_spawner_start(const struct dr_gpu_process_ops *gpu, struct dr_err *e)
{
	int fds[2];
	pid_t pid;

	if (sock >= 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return dr_err_set(e, -errno, "--isolate: socketpair: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		spawner_main(fds[1], gpu);
	}
	close(fds[1]);
	if (pid < 0) {
		int rc = -errno;

		close(fds[0]);
		return dr_err_set(e, rc, "--isolate: no process can be started: %s", strerror(-rc));
	}
	sock = fds[0];
	return 0;
}

static struct started **find(uint64_t id)
{
	struct started **at = &started;

	while (*at && (*at)->r.id != id)
		at = &(*at)->next;
	return at;
}

/* With the lock. What was reported goes into the list. */
static void take_reports(void)
{
	struct iso_report r;
	ssize_t n;

	while ((n = dr_packet_receive(sock, &r, sizeof(r), NULL, 0, MSG_DONTWAIT)) > 0) {
		struct started **at = find(r.id);

		if (!*at)
			*at = dr_calloc(1, sizeof(**at));
		if (!*at) { /* read again later is not possible: say nothing wrong */
			lost = true;
			return;
		}
		(*at)->r = r;
	}
	lost = lost || (n != -EAGAIN);
}

/* Of a process that has ended, and whose report has not come or is lost: what was read last. */
static int64_t time_now(struct iso_report *r)
{
	struct timespec ts;
	clockid_t clock;

	if (!r->ended && clock_getcpuclockid(r->pid, &clock) == 0 &&
		clock_gettime(clock, &ts) == 0) /* lint-ok: processor time of another process */
		r->cpu_ns = (int64_t)ts.tv_sec * DR_NS_PER_S + ts.tv_nsec;
	return r->cpu_ns;
}

int64_t dr_iso_cpu_ns(void)
{
	int64_t sum;

	(void)pthread_mutex_lock(&lock);
	if (sock >= 0)
		take_reports();
	sum = forgotten_ns;
	for (struct started *x = started; x; x = x->next)
		sum += time_now(&x->r);
	(void)pthread_mutex_unlock(&lock);
	return sum;
}

int dr_iso_spawn(uint64_t id, const struct iso_config *config, int ctl, struct dr_err *e)
{
	struct iso_request q = { .op = ISO_SPAWN, .id = id, .config = *config };
	int rc = -EPIPE;

	q.config.uid = getuid();
	q.config.caps = dr_privileges_held();
	(void)pthread_mutex_lock(&lock);
	if (sock >= 0 && !lost)
		rc = dr_packet_send(sock, &q, sizeof(q), &ctl, 1);
	(void)pthread_mutex_unlock(&lock);
	return rc ? dr_err_set(e, rc,
			    "the process that starts plugins (--isolate on, dualrail-spawn) has ended, so that "
			    "none can be started; start the run again")
		  : 0;
}

void dr_iso_limit(void)
{
	struct iso_request q = { .op = ISO_LIMIT, .config.caps = dr_privileges_held() };

	(void)pthread_mutex_lock(&lock);
	if (sock >= 0 && dr_packet_send(sock, &q, sizeof(q), NULL, 0))
		lost = true;
	(void)pthread_mutex_unlock(&lock);
}

void dr_iso_kill(uint64_t id)
{
	struct iso_request q = { .op = ISO_KILL, .id = id };

	(void)pthread_mutex_lock(&lock);
	if (sock >= 0 && dr_packet_send(sock, &q, sizeof(q), NULL, 0))
		lost = true;
	(void)pthread_mutex_unlock(&lock);
}

bool dr_iso_is_lost(void)
{
	bool is;

	(void)pthread_mutex_lock(&lock);
	is = lost;
	(void)pthread_mutex_unlock(&lock);
	return is;
}

bool dr_iso_has_ended(uint64_t id, int *status)
{
	const struct started *x;
	bool has;

	(void)pthread_mutex_lock(&lock);
	if (sock >= 0)
		take_reports();
	x = *find(id);
	has = x && x->r.ended;
	if (has)
		*status = x->r.status;
	(void)pthread_mutex_unlock(&lock);
	return has;
}

void dr_iso_forget(uint64_t id)
{
	struct started **at, *x;

	(void)pthread_mutex_lock(&lock);
	at = find(id);
	x = *at;
	if (x) {
		*at = x->next;
		forgotten_ns += x->r.cpu_ns;
	}
	(void)pthread_mutex_unlock(&lock);
	dr_free(x);
}
