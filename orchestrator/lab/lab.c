/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: the only thing that keeps a namespace of the lab alive is a descriptor of it and the
 * processes inside; no bind mount, no name. The caller's own namespace is never left: all set-up
 * happens in children.
 */
#include "orchestrator/lab/lab.h"

#include "topology/netdev.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int reap(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

/* What a child has to say: an error, complete. code 0: all went well. */
static int hear(int fd, struct dr_err *e)
{
	struct dr_err got;
	ssize_t n;

	do {
		n = read(fd, &got, sizeof(got));
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(got))
		return dr_err_set(e, -EPIPE, "lab: a helper process died");
	if (got.code && e)
		*e = got;
	return got.code;
}

static _Noreturn void say(int fd, const struct dr_err *e)
{
	ssize_t n = write(fd, e, sizeof(*e)); /* one small write to a pipe is whole or fails */

	_exit(n == (ssize_t)sizeof(*e) ? 0 : 1);
}

static int explain(struct dr_err *e, int rc, const char *what)
{
	if (rc == -EPERM)
		return dr_err_set(e, rc,
			"lab: %s: %s; needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root, in a container "
			"--privileged); without, demo runs over the loopback device",
			what, strerror(EPERM));
	return dr_err_set(e, rc, "lab: %s: %s", what, strerror(-rc));
}

/* A new network namespace, as a descriptor: made by a child that ends once we hold it. */
static int new_netns(int *out, struct dr_err *e)
{
	struct dr_err made = { 0 };
	int up[2], down[2], rc;
	char path[64], c;
	pid_t pid;

	if (pipe2(up, O_CLOEXEC) < 0)
		return explain(e, -errno, "make a pipe");
	if (pipe2(down, O_CLOEXEC) < 0) {
		rc = -errno;
		close(up[0]);
		close(up[1]);
		return explain(e, rc, "make a pipe");
	}
	pid = fork();
	if (pid == 0) {
		close(down[1]);
		if (unshare(CLONE_NEWNET) < 0)
			explain(&made, -errno, "make a network namespace");
		if (write(up[1], &made, sizeof(made)) == (ssize_t)sizeof(made))
			while (read(down[0], &c, 1) < 0 && errno == EINTR)
				;
		_exit(0);
	}
	rc = pid < 0 ? explain(e, -errno, "fork") : 0;
	close(up[1]);
	close(down[0]);
	if (rc == 0)
		rc = hear(up[0], e);
	if (rc == 0) {
		snprintf(path, sizeof(path), "/proc/%ld/ns/net", (long)pid);
		*out = open(path, O_RDONLY | O_CLOEXEC);
		if (*out < 0)
			rc = explain(e, -errno, "open the new namespace");
	}
	close(down[1]); /* now the child may go */
	close(up[0]);
	if (pid > 0)
		reap(pid);
	return rc;
}

void dr_lab_address(const struct dr_lab *lab, unsigned node, unsigned link, char *buf, size_t len)
{
	snprintf(buf, len, "10.77.%u.%u", link == lab->n_links ? 255 : link, node + 1);
}

static int add_text_addr(int ifindex, const char *text, unsigned prefix, struct dr_err *e)
{
	struct sockaddr_storage ss;
	int rc = dr_netdev_addr_parse(text, &ss);

	return rc < 0 ? dr_err_set(e, rc, "lab: bad address %s", text)
		      : dr_netdev_add_addr(ifindex, (struct sockaddr *)&ss, prefix, e);
}

static void device_name(const struct dr_lab *lab, unsigned link, char *buf, size_t len)
{
	if (link == lab->n_links)
		snprintf(buf, len, "ctl0");
	else
		snprintf(buf, len, "rail%u", link);
}

/* In node's namespace: addresses on one link's device, then up. */
static int set_up_device(const struct dr_lab *lab, unsigned node, unsigned link, struct dr_err *e)
{
	char name[IFNAMSIZ], text[64];
	struct dr_netdev d;
	int rc;

	device_name(lab, link, name, sizeof(name));
	rc = dr_netdev_by_name(name, &d, e);
	if (rc < 0)
		return rc;
	dr_lab_address(lab, node, link, text, sizeof(text));
	rc = add_text_addr(d.ifindex, text, link == lab->n_links ? 30 : 24, e);
	if (rc == 0 && link < lab->n_links) {
		snprintf(text, sizeof(text), "fd77:%u::%u", link, node + 1);
		rc = add_text_addr(d.ifindex, text, 64, e);
		if (rc == -EACCES || rc == -EOPNOTSUPP || rc == -EAFNOSUPPORT)
			rc = 0; /* IPv6 switched off here: IPv4 alone */
	}
	return rc < 0 ? rc : dr_netdev_set_up(d.ifindex, true, e);
}

static int set_up_links(const struct dr_lab *lab, unsigned mtu, struct dr_err *e)
{
	int rc = dr_lab_enter(lab, 0, e);

	for (unsigned i = 0; i <= lab->n_links && rc == 0; i++) {
		char name[IFNAMSIZ];

		device_name(lab, i, name, sizeof(name));
		rc = dr_netdev_create_veth(
			name, name, lab->netns_fd[1], i == lab->n_links ? 1500 : mtu, e);
	}
	for (unsigned node = 0; node < DR_LAB_NODES && rc == 0; node++) {
		struct dr_netdev lo;

		rc = dr_lab_enter(lab, node, e);
		if (rc == 0)
			rc = dr_netdev_by_name("lo", &lo, e);
		if (rc == 0)
			rc = dr_netdev_set_up(lo.ifindex, true, e);
		for (unsigned i = 0; i <= lab->n_links && rc == 0; i++)
			rc = set_up_device(lab, node, i, e);
	}
	return rc;
}

int dr_lab_create(unsigned n_links, unsigned mtu, struct dr_lab *out, struct dr_err *e)
{
	struct dr_lab lab = { .netns_fd = { -1, -1 }, .n_links = n_links };
	struct dr_err made = { 0 };
	int fds[2], rc = 0;
	pid_t pid;

	if (n_links < 1 || n_links > DR_LAB_LINKS_MAX)
		return dr_err_set(e, -EINVAL, "lab: %u links; 1 to %d are possible", n_links,
			DR_LAB_LINKS_MAX);
	for (unsigned node = 0; node < DR_LAB_NODES && rc == 0; node++)
		rc = new_netns(&lab.netns_fd[node], e);
	if (rc == 0 && pipe2(fds, O_CLOEXEC) < 0)
		rc = explain(e, -errno, "make a pipe");
	if (rc < 0) {
		dr_lab_destroy(&lab);
		return rc;
	}
	pid = fork();
	if (pid == 0) {
		set_up_links(&lab, mtu ? mtu : DR_LAB_MTU, &made);
		say(fds[1], &made);
	}
	rc = pid < 0 ? explain(e, -errno, "fork") : 0;
	close(fds[1]);
	if (rc == 0) {
		rc = hear(fds[0], e);
		reap(pid);
	}
	close(fds[0]);
	if (rc < 0)
		dr_lab_destroy(&lab);
	else
		*out = lab;
	return rc;
}

void dr_lab_destroy(struct dr_lab *lab)
{
	for (unsigned node = 0; node < DR_LAB_NODES; node++) {
		if (lab->netns_fd[node] >= 0)
			close(lab->netns_fd[node]);
		lab->netns_fd[node] = -1;
	}
}

int dr_lab_supported(struct dr_err *e)
{
	int fd, rc = new_netns(&fd, e);

	if (rc == 0)
		close(fd);
	return rc;
}

int dr_lab_enter(const struct dr_lab *lab, unsigned node, struct dr_err *e)
{
	dr_assert(node < DR_LAB_NODES);
	if (setns(lab->netns_fd[node], CLONE_NEWNET) < 0)
		return explain(e, -errno, "enter a namespace");
	return 0;
}

/* Fork into node's namespace. Returns as fork does; in the child only when it got there. */
static pid_t fork_into(const struct dr_lab *lab, unsigned node, struct dr_err *e)
{
	pid_t parent = getpid(), pid;
	struct dr_err why;

	fflush(NULL); /* else what is buffered would be written by both */
	pid = fork();
	if (pid < 0)
		return explain(e, -errno, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
	if (dr_lab_enter(lab, node, &why) < 0) {
		dprintf(STDERR_FILENO, "%s\n", why.text);
		_exit(126);
	}
	return 0;
}

pid_t dr_lab_run(
	const struct dr_lab *lab, unsigned node, int (*fn)(void *arg), void *arg, struct dr_err *e)
{
	pid_t pid = fork_into(lab, node, e);

	if (pid == 0) {
		int status = fn(arg);

		fflush(NULL);
		_exit(status);
	}
	return pid;
}

pid_t dr_lab_exec(const struct dr_lab *lab, unsigned node, char *const argv[], struct dr_err *e)
{
	pid_t pid = fork_into(lab, node, e);

	if (pid == 0) {
		execvp(argv[0], argv);
		dprintf(STDERR_FILENO, "lab: run %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	return pid;
}
