/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/demo/lab.h"

#include "base/clock.h"
#include "topology/netdev.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct dr_err unsupported;

static int set_up(void **state)
{
	(void)state;
	dr_lab_supported(&unsupported);
	return 0;
}

static void need_root(void)
{
	if (!unsupported.code)
		return;
	print_message("SKIP: %s\n", unsupported.text);
	skip();
}

static int status_of(pid_t pid)
{
	int status;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct ping {
	const struct dr_lab *lab;
	unsigned node;
	int ready[2]; /* node 1 tells that it listens */
};

/* Node 0 sends one datagram over every link, IPv4 and IPv6, and hears it back from node 1. */
static int ping(void *arg)
{
	const struct ping *p = arg;
	unsigned n = p->lab->n_links;

	for (unsigned i = 0; i <= 2 * n; i++) {
		struct sockaddr_storage me, peer;
		struct pollfd pfd = { .events = POLLIN };
		char text[64], buf[16];
		socklen_t len = sizeof(peer);
		ssize_t got;

		for (unsigned k = 0; k < 2; k++) {
			unsigned node = k ? 1 - p->node : p->node;

			if (i <= n)
				dr_lab_address(p->lab, node, i, text, sizeof(text));
			else
				snprintf(text, sizeof(text), "fd77:%u::%u", i - n - 1, node + 1);
			if (dr_netdev_addr_parse(text, k ? &peer : &me) < 0)
				return 1;
		}
		/* The namespaces are the test's own: any port is free. It is at the same place in both
		 * families. */
		((struct sockaddr_in *)&me)->sin_port = ((struct sockaddr_in *)&peer)->sin_port =
			htons(4000);
		pfd.fd = socket(me.ss_family, SOCK_DGRAM, 0);
		if (bind(pfd.fd, (struct sockaddr *)&me, sizeof(me)) < 0)
			return 2;
		if (p->node == 1 && write(p->ready[1], "r", 1) != 1)
			return 3;
		if (p->node == 0 && (read(p->ready[0], buf, 1) != 1 ||
					    sendto(pfd.fd, "ping", 4, 0, (struct sockaddr *)&peer,
						    sizeof(peer)) != 4))
			return 4;
		if (poll(&pfd, 1, 5000) != 1)
			return 5;
		got = recvfrom(pfd.fd, buf, sizeof(buf), 0, (struct sockaddr *)&peer, &len);
		if (got != 4)
			return 6;
		if (p->node == 1 && sendto(pfd.fd, buf, 4, 0, (struct sockaddr *)&peer, len) != 4)
			return 7;
		close(pfd.fd);
	}
	return 0;
}

static void nodes_talk_over_every_link(void **state)
{
	struct ping p[2];
	struct dr_lab lab;
	struct dr_err e = { 0 };
	pid_t pids[2];

	(void)state;
	need_root();
	if (dr_lab_create(3, 0, &lab, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(pipe(p[0].ready), 0);
	for (unsigned i = 0; i < 2; i++) {
		memcpy(p[i].ready, p[0].ready, sizeof(p[0].ready));
		p[i].lab = &lab;
		p[i].node = i;
		pids[i] = dr_lab_run(&lab, i, ping, &p[i], &e);
	}
	assert_int_equal(status_of(pids[0]), 0);
	assert_int_equal(status_of(pids[1]), 0);
	close(p[0].ready[0]);
	close(p[0].ready[1]);
	dr_lab_destroy(&lab);
}

static int look_around(void *arg)
{
	struct dr_netdev d;
	char name[IFNAMSIZ];

	for (unsigned i = 0; i < *(unsigned *)arg; i++) {
		snprintf(name, sizeof(name), "rail%u", i);
		if (dr_netdev_by_name(name, &d, NULL) < 0 || !d.running || d.mtu != 1400)
			return 1;
	}
	if (dr_netdev_by_name("ctl0", &d, NULL) < 0 || !d.running)
		return 2;
	return dr_netdev_by_name("lo", &d, NULL) < 0 || !d.running ? 3 : 42;
}

static void devices_are_there(void **state)
{
	unsigned most = DR_LAB_LINKS_MAX;
	struct dr_lab lab;
	struct dr_err e;

	(void)state;
	need_root();
	assert_int_equal(dr_lab_create(most, 1400, &lab, &e), 0);
	assert_int_equal(status_of(dr_lab_run(&lab, 0, look_around, &most, &e)), 42);
	assert_int_equal(status_of(dr_lab_run(&lab, 1, look_around, &most, &e)), 42);
	dr_lab_destroy(&lab);
	assert_int_equal(dr_lab_create(0, 0, &lab, &e), -EINVAL);
	assert_int_equal(dr_lab_create(most + 1, 0, &lab, &e), -EINVAL);
}

/* Does a process, or (fd) this one, live in the namespace with that inode? */
static int users_of(ino_t ino)
{
	DIR *d = opendir("/proc");
	const struct dirent *de;
	int n = 0;

	while ((de = readdir(d)) != NULL) {
		char path[300];
		struct stat st;

		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/ns/net", de->d_name);
		if (stat(path, &st) == 0 && st.st_ino == ino)
			n++;
	}
	closedir(d);
	return n;
}

static int sit(void *arg)
{
	(void)arg;
	while (pause() < 0)
		;
	return 0;
}

/* The program with the lab is killed: its children in the namespaces go too, so the namespaces do. */
static void nothing_left_after_sigkill(void **state)
{
	int64_t deadline;
	ino_t inos[2];
	int fds[2];
	pid_t pid;

	(void)state;
	need_root();
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		struct dr_lab lab;
		struct stat st;

		if (dr_lab_create(2, 0, &lab, NULL) < 0)
			_exit(1);
		for (unsigned i = 0; i < 2; i++) {
			if (dr_lab_run(&lab, i, sit, NULL, NULL) < 0 ||
				fstat(lab.netns_fd[i], &st) < 0 ||
				write(fds[1], &st.st_ino, sizeof(st.st_ino)) != sizeof(st.st_ino))
				_exit(2);
		}
		sit(NULL);
	}
	assert_int_equal(read(fds[0], &inos[0], sizeof(ino_t)), sizeof(ino_t));
	assert_int_equal(read(fds[0], &inos[1], sizeof(ino_t)), sizeof(ino_t));
	deadline = dr_now_ns() + 5 * DR_NS_PER_S;
	while (!users_of(inos[0]) || !users_of(inos[1]))
		assert_true(dr_now_ns() < deadline);
	kill(pid, SIGKILL);
	assert_int_equal(status_of(pid), 1000 + SIGKILL);
	deadline = dr_now_ns() + 5 * DR_NS_PER_S;
	while (users_of(inos[0]) || users_of(inos[1]))
		assert_true(dr_now_ns() < deadline);
	close(fds[0]);
	close(fds[1]);
}

static void says_what_is_missing(void **state)
{
	pid_t pid;

	(void)state;
	if (unsupported.code == -EPERM) {
		assert_non_null(strstr(unsupported.text, "CAP_NET_ADMIN"));
		return;
	}
	need_root();
	pid = fork();
	if (pid == 0) {
		struct dr_err e = { 0 };
		struct dr_lab lab;

		if (setuid(65534) < 0)
			_exit(1);
		if (dr_lab_supported(&e) != -EPERM || !strstr(e.text, "CAP_NET_ADMIN"))
			_exit(2);
		_exit(dr_lab_create(2, 0, &lab, &e) == -EPERM ? 0 : 3);
	}
	assert_int_equal(status_of(pid), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_talk_over_every_link),
		cmocka_unit_test(devices_are_there),
		cmocka_unit_test(nothing_left_after_sigkill),
		cmocka_unit_test(says_what_is_missing),
	};

	return cmocka_run_group_tests_name("lab", tests, set_up, NULL);
}
