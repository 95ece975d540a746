/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/rank.h"

#include "base/clock.h"
#include "base/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 5, SPIN = 500 };
/* For the other ranks to end by themselves after one has failed. */
static const int64_t GRACE_NS = DR_NS_PER_S;

/* ---- in a rank ---- */

static struct rank_view *own_view;

void rank_logger(enum nccl_log_level level, unsigned long flags, const char *file, int line,
	const char *fmt, ...)
{
	struct rank_view *v = own_view;
	struct rank_line *l = &v->line_of[atomic_fetch_add(&v->n_lines, 1) % RANK_LINES];
	va_list ap;

	(void)flags, (void)file, (void)line;
	atomic_store(&l->whole, false);
	l->level = level;
	va_start(ap, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
	atomic_store(&l->whole, true);
}

unsigned rank_logged(const struct rank *r, enum nccl_log_level level, const char *text)
{
	unsigned found = 0;

	for (unsigned i = 0; i < RANK_LINES; i++) {
		const struct rank_line *l = &r->view->line_of[i];

		found += atomic_load(&l->whole) && (level == NCCL_LOG_NONE || l->level == level) &&
			 strstr(l->text, text);
	}
	return found;
}

void rank_fail(struct rank *r, const char *file, int line, const char *fmt, ...)
{
	int at = snprintf(r->view->text, sizeof(r->view->text), "%s:%d: ", file, line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->view->text + at, sizeof(r->view->text) - (size_t)at, fmt, ap);
	va_end(ap);
	_exit(1);
}

void rank_send(struct rank *r, unsigned to, const void *data, size_t len)
{
	ssize_t n = send(r->fd[to], data, len, MSG_NOSIGNAL);

	if (n != (ssize_t)len)
		rank_fail(r, __FILE__, __LINE__, "rank %u is gone", to);
}

void rank_recv(struct rank *r, unsigned from, void *data, size_t len)
{
	ssize_t n = recv(r->fd[from], data, len, MSG_WAITALL);

	if (n != (ssize_t)len)
		rank_fail(r, __FILE__, __LINE__, "rank %u sent %zd bytes, expected %zu (at %s)",
			from, n, len, atomic_load(&r->view->what));
}

void rank_barrier(struct rank *r)
{
	char token = 'b';

	for (unsigned i = 0; i < r->n; i++)
		if (i != r->id)
			rank_send(r, i, &token, 1);
	for (unsigned i = 0; i < r->n; i++)
		if (i != r->id)
			rank_recv(r, i, &token, 1);
}

void rank_relax(unsigned *n)
{
	if (++*n < SPIN)
		sched_yield();
	else
		(void)poll(NULL, 0, 1);
}

/* As `ip netns exec`: with the namespace's own /sys. */
static int enter(const char *netns)
{
	char path[256];
	int fd, rc;

	snprintf(path, sizeof(path), "/run/netns/%s", netns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = setns(fd, CLONE_NEWNET);
	close(fd);
	if (rc != 0 || unshare(CLONE_NEWNS) != 0)
		return -errno;
	if (mount("", "/", "none", MS_SLAVE | MS_REC, NULL) != 0)
		return -errno;
	(void)umount2("/sys", MNT_DETACH);
	return mount("sysfs", "/sys", "sysfs", 0, NULL) ? -errno : 0;
}

static void *nothing(void *arg)
{
	return arg;
}

/* A sanitizer may have a thread of its own from the first one on: now, before anything is counted. */
static void begin_threads(struct rank *r)
{
	pthread_t t;

	RANK_CHECK(r, pthread_create(&t, NULL, nothing, NULL) == 0, "thread");
	pthread_join(t, NULL);
}

_Noreturn static void rank_main(struct rank *r, const struct rank_job *job, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (job->netns[0] && job->netns[r->id]) {
		int rc = enter(job->netns[r->id]);

		if (rc != 0)
			rank_fail(r, __FILE__, __LINE__, "network namespace %s: %s",
				job->netns[r->id], strerror(-rc));
	}
	own_view = r->view;
	begin_threads(r);
	job->run(r);
	exit(0); /* lint-ok: as a job does, so that the plugin's destructors run */
}

/* ---- in the parent ---- */

struct crew {
	const struct rank_job *job;
	struct rank_view *views;
	int pair[RANKS_MAX][RANKS_MAX]; /* [i][j]: end of rank i towards j */
	pid_t pid[RANKS_MAX];
	int status[RANKS_MAX];
	bool ended[RANKS_MAX];
	int64_t end_ns;
	bool failed, late;
};

/* Is the rank made on another host? */
static bool elsewhere(const struct crew *c, unsigned id)
{
	return c->job->far && c->job->n == 2 && id != c->job->remote.id;
}

static int make_sockets(struct crew *c)
{
	memset(c->pair, -1, sizeof(c->pair));
	if (c->job->far && c->job->n == 2) {
		unsigned id = c->job->remote.id;
		int fd = rank_remote_open(c->job, c->end_ns);

		c->pair[id][!id] = fd;
		c->ended[!id] = true;
		return fd < 0 ? fd : 0;
	}
	for (unsigned i = 0; i < c->job->n; i++)
		for (unsigned j = 0; j < i; j++) {
			int fd[2];

			if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) != 0)
				return -errno;
			c->pair[i][j] = fd[0];
			c->pair[j][i] = fd[1];
		}
	return 0;
}

static void close_sockets(struct crew *c, int except)
{
	for (int i = 0; i < RANKS_MAX; i++)
		for (int j = 0; j < RANKS_MAX; j++)
			if (i != except && c->pair[i][j] >= 0)
				close(c->pair[i][j]);
}

static void start(struct crew *c, unsigned id, pid_t parent)
{
	const struct rank_job *job = c->job;
	struct rank r = { .id = id,
		.n = job->n,
		.plugin = job->plugin,
		.version = job->version,
		.view = &c->views[id],
		.seed = job->seed,
		.arg = job->arg };
	sigset_t none;

	fflush(NULL);
	c->pid[id] = fork();
	if (c->pid[id] != 0)
		return;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	close_sockets(c, (int)id);
	memcpy(r.fd, c->pair[id], sizeof(r.fd));
	dr_rng_seed(&r.common, job->seed);
	dr_rng_seed(&r.own, dr_mix64(job->seed + id + 1));
	rank_main(&r, job, parent);
}

static unsigned reap(struct crew *c)
{
	unsigned running = 0;

	for (unsigned i = 0; i < c->job->n; i++) {
		if (c->ended[i])
			continue;
		if (c->pid[i] < 0 || waitpid(c->pid[i], &c->status[i], WNOHANG) == 0) {
			running++;
			continue;
		}
		c->ended[i] = true;
		if (c->status[i] != 0 && !c->failed) {
			c->failed = true;
			c->end_ns = DR_MIN(c->end_ns, dr_now_ns() + GRACE_NS);
		}
	}
	return running;
}

static int print_thread(const char *tid, void *arg)
{
	char name[64], where[64];
	int pid = *(int *)arg;

	(void)dr_sysfile_text(name, sizeof(name), "", "/proc/%d/task/%s/comm", pid, tid);
	(void)dr_sysfile_text(where, sizeof(where), "", "/proc/%d/task/%s/wchan", pid, tid);
	printf("#     thread %s: %s\n", name, where);
	return 0;
}

/* Threads of a process and what they wait for. */
static void print_threads(int pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	(void)dr_sysfile_each("", path, print_thread, &pid);
}

static void print_log(const struct rank_view *v)
{
	unsigned n = atomic_load(&v->n_lines);

	for (unsigned i = n > RANK_LINES ? n - RANK_LINES : 0; i < n; i++) {
		const struct rank_line *l = &v->line_of[i % RANK_LINES];

		printf("#     %s %s\n", l->level == NCCL_LOG_WARN ? "WARN" : "info", l->text);
	}
}

static void print_rank(const struct crew *c, unsigned i)
{
	const struct rank_view *v = &c->views[i];
	const char *file = atomic_load(&v->file), *what = atomic_load(&v->what);

	printf("#   rank %u: ", i);
	if (!c->ended[i])
		printf("did not end");
	else if (WIFSIGNALED(c->status[i]))
		printf("signal %d", WTERMSIG(c->status[i]));
	else
		printf("status %d", WEXITSTATUS(c->status[i]));
	printf(", last at %s:%d (%s), step %lu\n", file ? file : "?", atomic_load(&v->line),
		what ? what : "start", atomic_load(&v->step));
	if (v->text[0])
		printf("#     %s\n", v->text);
	if (!c->ended[i])
		print_threads(c->pid[i]);
	print_log(v);
}

static void wait_for_ranks(struct crew *c)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * DR_NS_PER_MS };
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	while (reap(c) > 0) {
		if (dr_now_ns() > c->end_ns) {
			c->late = true;
			return;
		}
		if (c->job->watch)
			c->job->watch(c->job->watch_arg, c->views);
		(void)sigtimedwait(&chld, NULL, &tick);
	}
}

static void end_ranks(struct crew *c)
{
	for (unsigned i = 0; i < c->job->n; i++)
		if (!c->ended[i] && c->pid[i] > 0) {
			kill(c->pid[i], SIGKILL);
			waitpid(c->pid[i], &c->status[i], 0);
		}
}

static void report(const struct crew *c, bool passed)
{
	if (!passed)
		printf("# %s, version %u, SEED=%llu%s\n", c->job->name, c->job->version,
			(unsigned long long)c->job->seed,
			c->late && !c->failed ? ": the time is over" : "");
	for (unsigned i = 0; i < c->job->n; i++)
		if (!passed && !elsewhere(c, i))
			print_rank(c, i);
		else if (c->job->show_log)
			print_log(&c->views[i]);
}

bool rank_run(const struct rank_job *job)
{
	struct crew c = { .job = job };
	bool passed;
	sigset_t chld, old;
	pid_t parent = getpid();
	int rc;

	c.end_ns = dr_now_ns() + job->limit_s * DR_NS_PER_S;
	c.views = mmap(NULL, sizeof(*c.views) * job->n, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	rc = c.views == MAP_FAILED ? -errno : make_sockets(&c);
	if (rc != 0) {
		printf("# %s: ranks cannot be connected: %s\n", job->name, strerror(-rc));
		return false;
	}
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &old);
	for (unsigned i = 0; i < job->n; i++)
		if (!elsewhere(&c, i))
			start(&c, i, parent);
	close_sockets(&c, -1);
	wait_for_ranks(&c);
	if (job->watch)
		job->watch(job->watch_arg, c.views);
	passed = !c.failed && !c.late;
	report(&c, passed);
	end_ranks(&c);
	sigprocmask(SIG_SETMASK, &old, NULL);
	munmap(c.views, sizeof(*c.views) * job->n);
	return passed;
}
