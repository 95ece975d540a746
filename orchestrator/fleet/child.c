/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/child.h"

#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONFIG_FD = 3, DOC_FD = 4, ERR_TAIL = 400, DOC_MAX = 64 << 20 };
static const int64_t KILL_NS = 3 * DR_NS_PER_S;

struct dr_sweep_child {
	struct dr_pollable po; /* of the pidfd */
	struct dr_sweep_child_opts o;
	pid_t pid;
	int config_fd, doc_fd, err_fd;
	int64_t until_ns;
	bool asked; /* to end */
};

static int memory_file(const char *text)
{
	int fd = memfd_create("dualrail-sweep", MFD_CLOEXEC);
	size_t len = text ? strlen(text) : 0;

	if (fd >= 0 && len && write(fd, text, len) != (ssize_t)len) {
		close(fd);
		return -1;
	}
	return fd;
}

/* ---- in the child, between fork and exec ---- */

/* The environment without DUALRAIL_*. */
static char **environment(void)
{
	size_t n = 0, k = 0;
	char **out;

	while (environ[n])
		n++;
	out = dr_calloc(n + 1, sizeof(*out));
	for (size_t i = 0; out && i < n; i++)
		if (strncmp(environ[i], "DUALRAIL_", 9) != 0)
			out[k++] = environ[i];
	return out ? out : environ;
}

/* fd with the number `as`, kept across exec. */
static void place_fd(int fd, int as)
{
	if (fd == as)
		fcntl(fd, F_SETFD, 0);
	else
		dup2(fd, as);
}

static void be_child(const struct dr_sweep_child *c, pid_t parent)
{
	char port[8], config[32], doc[32], host[DR_ADDR_TEXT];
	const char *argv[12];
	sigset_t none;
	/* Above those that are placed, so that none is overwritten. */
	int config_fd = fcntl(c->config_fd, F_DUPFD_CLOEXEC, 16);
	int doc_fd = fcntl(c->doc_fd, F_DUPFD_CLOEXEC, 16);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), n = 0;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (!c->o.loud)
		place_fd(c->err_fd, STDERR_FILENO);
	place_fd(null, STDIN_FILENO);
	place_fd(null, STDOUT_FILENO);
	place_fd(config_fd, CONFIG_FD);
	place_fd(doc_fd, DOC_FD);
	dr_addr_format(&c->o.host, host, sizeof(host));
	snprintf(port, sizeof(port), "%u", c->o.port);
	snprintf(config, sizeof(config), "/dev/fd/%d", CONFIG_FD);
	snprintf(doc, sizeof(doc), "--json=/dev/fd/%d", DOC_FD);
	argv[n++] = "dualrail";
	argv[n++] = c->o.client ? "client" : "server";
	argv[n++] = "--port";
	argv[n++] = port;
	argv[n++] = "--config";
	argv[n++] = config;
	argv[n++] = c->o.client ? doc : "--one-off";
	argv[n++] = "--quiet";
	argv[n++] = "--";
	if (c->o.client)
		argv[n++] = host;
	argv[n] = NULL;
	execve("/proc/self/exe", (char *const *)argv, environment());
	_exit(127);
}

/* ---- in the parent ---- */

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

static void close_all(struct dr_sweep_child *c)
{
	if (c->po.fd >= 0) {
		dr_poller_del(c->o.poller, &c->po);
		close(c->po.fd);
	}
	if (c->config_fd >= 0)
		close(c->config_fd);
	if (c->doc_fd >= 0)
		close(c->doc_fd);
	if (c->err_fd >= 0)
		close(c->err_fd);
	dr_free(c);
}

static void has_ended(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_sweep_child *c = dr_container_of(po, struct dr_sweep_child, po);
	char text[ERR_TAIL + 1];
	int status = 0;
	json_t *doc;

	(void)revents;
	(void)now_ns;
	if (waitpid(c->pid, &status, WNOHANG) != c->pid)
		return;
	status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	doc = c->o.client ? read_document(c->doc_fd) : NULL;
	read_text(c->err_fd, text, sizeof(text));
	c->o.ended(c->o.arg, status, doc, text);
	json_decref(doc);
	close_all(c);
}

int dr_sweep_child_start(
	struct dr_sweep_child **out, const struct dr_sweep_child_opts *o, struct dr_err *e)
{
	struct dr_sweep_child *c = dr_calloc(1, sizeof(*c));
	pid_t parent = getpid();
	int rc;

	if (!c)
		return dr_err_set(e, -ENOMEM, "out of memory");
	c->o = *o;
	c->until_ns = o->until_ns;
	c->po.fd = -1;
	c->po.ready = has_ended;
	c->config_fd = memory_file(o->config);
	c->doc_fd = memory_file(NULL);
	c->err_fd = memory_file(NULL);
	c->pid = c->config_fd < 0 || c->doc_fd < 0 || c->err_fd < 0 ? -1 : fork();
	if (c->pid == 0)
		be_child(c, parent);
	rc = c->pid < 0 ? -errno : 0;
	if (rc == 0) {
		c->po.fd = (int)syscall(SYS_pidfd_open, c->pid, 0);
		rc = c->po.fd < 0 ? -errno : dr_poller_add(o->poller, &c->po, EPOLLIN);
	}
	if (rc) {
		dr_sweep_child_destroy(c);
		return dr_err_set(e, rc, "cannot start a process for the run: %s", strerror(-rc));
	}
	*out = c;
	return 0;
}

void dr_sweep_child_stop(struct dr_sweep_child *c, int64_t now_ns)
{
	if (c->asked)
		return;
	c->asked = true;
	c->until_ns = now_ns + KILL_NS;
	kill(c->pid, SIGTERM);
	kill(c->pid, SIGCONT);
}

void dr_sweep_child_tick(struct dr_sweep_child *c, int64_t now_ns)
{
	if (now_ns < c->until_ns)
		return;
	if (!c->asked) {
		dr_sweep_child_stop(c, now_ns);
		return;
	}
	kill(c->pid, SIGKILL);
	c->until_ns = now_ns + KILL_NS;
}

int64_t dr_sweep_child_deadline(const struct dr_sweep_child *c)
{
	return c->until_ns;
}

void dr_sweep_child_destroy(struct dr_sweep_child *c)
{
	if (!c)
		return;
	if (c->pid > 0) {
		kill(c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
	}
	close_all(c);
}
