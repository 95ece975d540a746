/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/child.h"

#include "base/child.h"
#include "base/mem.h"
#include "base/packet.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ERR_TAIL = 400, DOC_MAX = 64 << 20 };
static const int64_t KILL_NS = 3 * DR_NS_PER_S;

/* ---- in the run, between fork and exec ---- */

/* Of the sweep, whose options are in the configuration. */
static void drop_variables(void)
{
	char **to = environ;

	for (char **from = environ; *from; from++)
		if (strncmp(*from, "DUALRAIL_", 9) != 0)
			*to++ = *from;
	*to = NULL;
}

/* fds: document, standard error. */
static _Noreturn void be_run(const struct dr_sweep_child *c, const struct dr_sweep_order *o,
	const int fds[2], pid_t parent)
{
	char port[8], host[DR_ADDR_TEXT];
	/* What others have chosen is behind "--", or a number. */
	const char *const argv[] = { "dualrail", o->client ? "client" : "server", "--quiet",
		"--config=/dev/fd/3", o->client ? "--json=/dev/fd/4" : "--one-off", "--port", port,
		"--", o->client ? host : NULL, NULL };
	const char *text = c->config[o->config];
	/* Above those that are placed, so that none is overwritten. */
	int config_fd = fcntl(memfd_create("dualrail-sweep", MFD_CLOEXEC), F_DUPFD_CLOEXEC, 16);
	int doc_fd = fcntl(fds[0], F_DUPFD_CLOEXEC, 16);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent || write(config_fd, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(127);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL); /* the starter ignores some, and that is inherited */
	if (!c->loud)
		dup2(fds[1], STDERR_FILENO);
	dup2(config_fd, 3);
	dup2(doc_fd, 4);
	drop_variables();
	dr_addr_format(&o->host, host, sizeof(host));
	snprintf(port, sizeof(port), "%u", o->port);
	execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
	_exit(127);
}

/* ---- in the starter ---- */

struct run {
	pid_t pid; /* 0: none */
	int fd;
};

static void answer(int32_t status)
{
	(void)!dr_packet_send(DR_CHILD_FD, &status, sizeof(status), NULL, 0);
}

static void reap(struct run *r)
{
	int status = 0;

	waitpid(r->pid, &status, 0);
	close(r->fd);
	*r = (struct run){ .fd = -1 };
	answer(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static void start_run(struct run *r, const struct dr_sweep_child *c, const struct dr_sweep_order *o,
	const int fds[2])
{
	pid_t parent = getpid();

	r->pid = fork();
	if (r->pid == 0)
		be_run(c, o, fds, parent);
	r->fd = r->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, r->pid, 0);
	if (r->fd >= 0)
		return;
	answer(-errno);
	if (r->pid > 0) {
		kill(r->pid, SIGKILL);
		waitpid(r->pid, NULL, 0);
	}
	r->pid = 0;
}

static _Noreturn void starter(int fd, const struct dr_sweep_child *c)
{
	struct run r = { .fd = -1 };
	struct dr_sweep_order o;
	int fds[2];

	dr_child_settle(fd, "dualrail-runs");
	for (;;) {
		struct pollfd p[2] = { { .fd = DR_CHILD_FD, .events = POLLIN },
			{ .fd = r.fd, .events = POLLIN } };

		(void)poll(p, 2, -1);
		if (p[1].revents)
			reap(&r);
		if (!p[0].revents)
			continue;
		if (dr_packet_receive(DR_CHILD_FD, &o, sizeof(o), fds, 2, 0) != (ssize_t)sizeof(o))
			break; /* the sweep has ended */
		if (o.signo && r.pid && kill(r.pid, o.signo) == 0)
			kill(r.pid, SIGCONT);
		else if (!o.signo && !r.pid && o.config < DR_SWEEP_CONFIGS &&
			 o.host.len <= sizeof(o.host.ss))
			start_run(&r, c, &o, fds);
		for (int i = 0; i < 2; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
	if (r.pid) {
		kill(r.pid, SIGKILL);
		waitpid(r.pid, NULL, 0);
	}
	_exit(0);
}

/* ---- in the sweep ---- */

static json_t *read_document(int fd)
{
	off_t len = lseek(fd, 0, SEEK_END);
	json_t *doc = NULL;
	char *text;

	if (len <= 0 || len > DOC_MAX)
		return NULL;
	text = dr_calloc(1, (size_t)len + 1);
	if (text && pread(fd, text, (size_t)len, 0) == (ssize_t)len)
		doc = json_loadb(text, (size_t)len, 0, NULL);
	dr_free(text);
	return doc;
}

/* The last line that is not blank. */
static void read_text(int fd, char *out, size_t size)
{
	char buf[ERR_TAIL + 1];
	off_t len = lseek(fd, 0, SEEK_END);
	off_t from = len > ERR_TAIL ? len - ERR_TAIL : 0;
	ssize_t n = len > 0 ? pread(fd, buf, ERR_TAIL, from) : 0;

	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == ' '))
		n--;
	buf[n > 0 ? n : 0] = '\0';
	const char *line = strrchr(buf, '\n');

	dr_text_copy(out, size, line ? line + 1 : buf);
}

static void run_over(struct dr_sweep_child *c)
{
	dr_poller_del(c->poller, &c->po);
	if (c->doc_fd >= 0)
		close(c->doc_fd);
	if (c->err_fd >= 0)
		close(c->err_fd);
	c->runs = false;
	c->until_ns = DR_NEVER;
}

static void has_ended(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_sweep_child *c = dr_container_of(po, struct dr_sweep_child, po);
	char text[ERR_TAIL + 1];
	int32_t status;
	ssize_t n = dr_packet_receive(po->fd, &status, sizeof(status), NULL, 0, MSG_DONTWAIT);
	json_t *doc;

	(void)revents;
	(void)now_ns;
	if (n == -EAGAIN)
		return;
	doc = read_document(c->doc_fd);
	read_text(c->err_fd, text, sizeof(text));
	run_over(c);
	if (n != (ssize_t)sizeof(status) || status < 0) {
		status = 2;
		snprintf(text, sizeof(text), "no process for the run: %s",
			n == 0 ? "what starts them has ended" : strerror(-status));
	}
	c->ended(c->arg, status, doc, text);
	json_decref(doc);
}

int dr_sweep_child_init(struct dr_sweep_child *c, struct dr_err *e)
{
	int fds[2], rc = 0;

	c->until_ns = DR_NEVER;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return dr_err_set(e, -errno, "starter of runs: socket pair: %s", strerror(errno));
	c->po = (struct dr_pollable){ .fd = fds[0], .ready = has_ended };
	c->starter = fork();
	if (c->starter == 0)
		starter(fds[1], c);
	if (c->starter < 0)
		rc = dr_err_set(e, -errno, "starter of runs: fork: %s", strerror(errno));
	close(fds[1]);
	return rc;
}

int dr_sweep_child_start(struct dr_sweep_child *c, const struct dr_sweep_order *o, int64_t until_ns,
	struct dr_err *e)
{
	int fds[2], rc;

	c->doc_fd = fds[0] = memfd_create("dualrail-sweep", MFD_CLOEXEC);
	c->err_fd = fds[1] = memfd_create("dualrail-sweep", MFD_CLOEXEC);
	rc = c->doc_fd < 0 || c->err_fd < 0 ? -errno : dr_poller_add(c->poller, &c->po, EPOLLIN);
	rc = rc ? rc : dr_packet_send(c->po.fd, o, sizeof(*o), fds, 2);
	c->runs = rc == 0;
	c->asked = false;
	c->until_ns = until_ns;
	if (rc == 0)
		return 0;
	run_over(c);
	return dr_err_set(e, rc, "cannot start a process for the run: %s", strerror(-rc));
}

static void send_signal(struct dr_sweep_child *c, int signo, int64_t now_ns)
{
	const struct dr_sweep_order o = { .signo = signo };

	c->asked = true;
	c->until_ns = now_ns + KILL_NS;
	(void)!dr_packet_send(c->po.fd, &o, sizeof(o), NULL, 0);
}

void dr_sweep_child_stop(struct dr_sweep_child *c, int64_t now_ns)
{
	if (!c->asked)
		send_signal(c, SIGTERM, now_ns);
}

void dr_sweep_child_tick(struct dr_sweep_child *c, int64_t now_ns)
{
	if (now_ns >= c->until_ns)
		send_signal(c, c->asked ? SIGKILL : SIGTERM, now_ns);
}

void dr_sweep_child_fini(struct dr_sweep_child *c)
{
	if (c->runs)
		run_over(c);
	if (c->starter > 0) {
		close(c->po.fd);
		waitpid(c->starter, NULL, 0);
	}
	c->starter = 0;
}
