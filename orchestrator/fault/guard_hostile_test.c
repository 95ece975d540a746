/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/guard_testkit.h"

#include "base/packet.h"
#include "base/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Requests that the program sends once somebody else has taken it over. */
enum { ID = 77, DEADLINE_MS = 20000 };

/* The error of the guard's answer. */
static int ask(const struct dr_guard_request *q, struct dr_fault_report *r)
{
	struct pollfd p = { .fd = guard->fd, .events = POLLIN };

	assert_int_equal(send(guard->fd, q, sizeof(*q), 0), sizeof(*q));
	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
	if (dr_guard_poll(guard, r) != 1)
		fail_msg("the guard died");
	return r->err;
}

static struct dr_guard_request request_for(const char *text, const char *nic)
{
	struct dr_guard_request q = { .op = DR_GUARD_INJECT, .id = ID };

	snprintf(q.spec, sizeof(q.spec), "%s", text);
	snprintf(q.nic, sizeof(q.nic), "%s", nic);
	return q;
}

/* "": it is done, and undone. */
static void expect(const struct dr_guard_options *opt, const char *nic, const char *why)
{
	struct dr_guard_request q = request_for("link-down:path=0,nic=any,for=60s", nic);
	struct dr_fault_report r;

	begin_with(opt);
	int rc = ask(&q, &r);
	if (!*why ? rc : !rc || !strstr(r.text, why))
		fail_msg("%s: '%s', not '%s'", nic, r.text, why);
	assert_int_equal(is_up(nic), *why != '\0');
	end(NULL);
	assert_true(is_up(nic));
}

/* The request names no control connection: the guard has its own options. */
static void control_is_spared(void **state)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a4dff01) };
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a4dff02) };
	struct dr_fault_control by_name = { .ifname = "ctl0" };
	struct dr_fault_control by_address = { .local = (struct sockaddr *)&local };
	struct dr_fault_control by_host = { .peer = (struct sockaddr *)&peer };

	(void)state;
	expect(&(struct dr_guard_options){ .control = by_name }, "ctl0", "control connection");
	expect(&(struct dr_guard_options){ .control = by_address }, "ctl0", "control connection");
	expect(&(struct dr_guard_options){ .control = by_host }, "ctl0", "control connection");
	expect(&(struct dr_guard_options){ .control = by_host }, "rail0", "");
}

static void what_is_no_rail_is_spared(void **state)
{
	(void)state;
	expect(&(struct dr_guard_options){ .rails = "rail0,10.77.1.1" }, "ctl0",
		"ctl0 is not in --rails");
	expect(&(struct dr_guard_options){ .rails = "10.77.0.1" }, "rail1",
		"rail1 is not in --rails");
	expect(&(struct dr_guard_options){ .rails = "rail0@10.77.0.1,10.77.1.1" }, "rail1", "");
	expect(&(struct dr_guard_options){ .rails = "rail0@10.77.0.1,10.77.1.1" }, "rail0", "");
	if (system("ip link add port0 type veth peer name port1 && ip link add br0 type bridge && "
		   "ip link set port0 master br0 up"))
		skip();
	expect(&(struct dr_guard_options){ .nics = NULL }, "port0",
		"port0 is no rail: belongs to a bond or bridge");
	assert_int_equal(system("ip link del br0; ip link del port0"), 0);
}

/* Only this end's own options name the NIC of the default route, not the request. */
static void management_is_spared(void **state)
{
	struct dr_fault_spec own[2];

	(void)state;
	if (unsupported.code)
		skip();
	assert_int_equal(dr_fault_spec_parse("link-down:nic=rail1", &own[0], NULL), 0);
	assert_int_equal(dr_fault_spec_parse("link-down:nic=rail1,side=server", &own[1], NULL), 0);
	assert_int_equal(system("ip route add default via 10.77.255.2 dev ctl0"), 0);
	expect(&(struct dr_guard_options){ .own = own, .n_own = 2 }, "ctl0",
		"start this end with --fault-nics ctl0");
	assert_int_equal(system("ip route replace default via 10.77.1.2"), 0);
	expect(&(struct dr_guard_options){ .own = own + 1, .n_own = 1 }, "rail1",
		"start this end with --fault-nics rail1");
	expect(&(struct dr_guard_options){ .own = own, .n_own = 1 }, "rail1", "");
	assert_int_equal(system("ip route replace default via 10.77.1.2"), 0);
	expect(&(struct dr_guard_options){ .nics = "rail1" }, "rail1", "");
	assert_int_equal(system("ip route del default"), 0);
}

static void values_are_checked(void **state)
{
	struct dr_guard_request q = request_for("link-down:path=0,for=60s", "rail0");
	struct dr_fault_report r;

	(void)state;
	begin_with(&(struct dr_guard_options){ .nics = NULL });
	assert_int_equal(ask(&q, &r), 0);
	snprintf(q.nic, sizeof(q.nic), "rail1");
	assert_int_equal(ask(&q, &r), -ENOSPC); /* the id is in use: it could not be undone */
	q.id = 0;
	assert_int_equal(ask(&q, &r), -ENOSPC);
	assert_true(is_up("rail1"));
	q = (struct dr_guard_request){ .op = DR_GUARD_UNDO, .id = ID };
	assert_int_equal(ask(&q, &r), 0);
	assert_true(r.undo && is_up("rail0"));
	q = request_for("close:path=0", "rail0");
	assert_int_equal(ask(&q, &r), -EOPNOTSUPP);
	q = request_for("manual:path=0", "rail0");
	assert_int_equal(ask(&q, &r), -EOPNOTSUPP);
	q = request_for("exec=x;y:path=0", "rail0");
	assert_int_equal(ask(&q, &r), -EINVAL);
	q = request_for("link-down:path=0", "nosuch0");
	assert_int_equal(ask(&q, &r), -ENODEV);
	q = request_for("link-down:path=0", "");
	assert_int_equal(ask(&q, &r), -ENODEV);
	memset(q.spec, 'x', sizeof(q.spec));
	assert_int_equal(ask(&q, &r), -EPROTO);
	q = request_for("link-down:path=0", "rail0");
	memset(q.control, 'x', sizeof(q.control));
	assert_int_equal(ask(&q, &r), -EPROTO);
	q = request_for("link-down:path=0", "rail0");
	memset(q.nic, 'x', sizeof(q.nic));
	assert_int_equal(ask(&q, &r), -EPROTO);
	q = request_for("link-down:path=0", "rail0");
	memset(&q.local, 'x', sizeof(q.local));
	assert_int_not_equal(ask(&q, &r), 0);
	memset(&q.local, 0, sizeof(q.local));
	memset(&q.peer, 'x', sizeof(q.peer));
	assert_int_not_equal(ask(&q, &r), 0);
	assert_true(is_up("rail0"));
}

/* Each guard more would be a process with rights that nobody ends. */
static void one_guard_at_a_time(void **state)
{
	enum dr_keeper_op op = DR_KEEPER_START;
	struct dr_keeper_answer a;
	int fds[2];

	(void)state;
	begin_with(&(struct dr_guard_options){ .nics = NULL });
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(dr_packet_send(guard->keeper_fd, &op, sizeof(op), &fds[1], 1), 0);
	assert_int_equal(recv(guard->keeper_fd, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(a.pid, -EBUSY);
	close(fds[0]);
	close(fds[1]);
}

static struct dr_keeper_answer ask_keeper(enum dr_keeper_op op)
{
	struct dr_keeper_answer a;

	assert_int_equal(dr_packet_send(guard->keeper_fd, &op, sizeof(op), NULL, 0), 0);
	assert_int_equal(recv(guard->keeper_fd, &a, sizeof(a), 0), sizeof(a));
	return a;
}

/* The next process of this PID namespace gets the number pid. */
static bool next_pid(pid_t pid)
{
	char text[16];
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	int n = snprintf(text, sizeof(text), "%d", (int)pid - 1);
	bool set = fd >= 0 && write(fd, text, (size_t)n) == n;

	if (fd >= 0)
		close(fd);
	return set;
}

/* The program reaps the guard, and another process gets its number: the keeper spares that. */
static void only_the_guard_is_killed(void **state)
{
	struct dr_fault_report r;
	pid_t victim = 0;

	(void)state;
	begin_with(&(struct dr_guard_options){ .nics = NULL });
	assert_int_equal(kill(guard->pid, SIGKILL), 0);
	assert_int_equal(waitpid(guard->pid, NULL, 0), guard->pid);
	for (int i = 0; i < 100 && victim != guard->pid && next_pid(guard->pid); i++) {
		victim = fork();
		if (victim == 0) {
			while (getpid() == guard->pid)
				pause();
			_exit(0);
		}
		if (victim != guard->pid)
			waitpid(victim, NULL, 0);
	}
	if (victim != guard->pid) {
		print_message("SKIP: no process can be given a number here\n");
		skip();
	}
	assert_int_equal(ask_keeper(DR_KEEPER_BURY).left.code, 0);
	assert_int_equal(waitpid(victim, NULL, WNOHANG), 0);
	assert_int_equal(kill(victim, SIGKILL), 0);
	assert_int_equal(waitpid(victim, NULL, 0), victim);
	/* A guard without a socket would read the keeper's. */
	assert_int_equal(ask_keeper(DR_KEEPER_START).pid, -EBADF);
	while (dr_guard_poll(guard, &r) != -EPIPE)
		;
}

/* A late answer is not taken for that to another request: with its pid 0 the program would kill its
 * own process group. */
static void a_late_answer(void **state)
{
	struct dr_keeper_answer late = { .pid = 0 };
	struct dr_fault_report r;
	int fds[2], status;

	(void)state;
	begin_with(&(struct dr_guard_options){ .nics = NULL });
	assert_int_equal(kill(guard->pid, SIGKILL), 0);
	while (dr_guard_poll(guard, &r) != -EPIPE)
		;
	pid_t pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
			_exit(1);
		guard->keeper_fd = fds[0];
		if (send(fds[1], "", 1, 0) != 1 || dr_guard_renew(guard, NULL) != -EPIPE)
			_exit(2);
		(void)!send(fds[1], &late, sizeof(late), MSG_NOSIGNAL);
		_exit(dr_guard_renew(guard, NULL) == -EPIPE ? 0 : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int take_lock(const char *name, void *fd)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	*(int *)fd = open(path, O_RDWR | O_CLOEXEC);
	return 0;
}

/* A start of another process holds the record while it looks, and does not know the command. */
static void a_look_is_waited_for(void **state)
{
	struct dr_fault_execs t = { 0 };
	struct dr_guard_request q = request_for("exec=mark:path=0,for=60s", "");
	struct dr_fault_report r;
	char text[256], ready;
	int fd = -1, told[2];

	(void)state;
	snprintf(text, sizeof(text), "mark=touch %s.mark,rm %s.mark", dir, dir);
	assert_int_equal(dr_fault_execs_add(&t, text, NULL), 0);
	begin_with(&(struct dr_guard_options){ .execs = &t });
	assert_int_equal(ask(&q, &r), 0);
	assert_int_equal(dr_sysfile_each("", dir, take_lock, &fd), 0);
	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		(void)!write(told[1], "r", 1);
		flock(fd, LOCK_EX); /* until the guard is dead */
		poll(NULL, 0, 200);
		_exit(0);
	}
	assert_int_equal(read(told[0], &ready, 1), 1);
	close(fd);
	assert_int_equal(kill(guard->pid, SIGKILL), 0);
	while (dr_guard_poll(guard, &r) != -EPIPE)
		;
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	snprintf(text, sizeof(text), "%s.mark", dir);
	assert_int_equal(access(text, F_OK), -1);
	assert_int_equal(guard->left.code, 0);
	close(told[0]);
	close(told[1]);
	end(NULL);
	dr_fault_execs_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(control_is_spared, end),
		cmocka_unit_test_teardown(what_is_no_rail_is_spared, end),
		cmocka_unit_test_teardown(management_is_spared, end),
		cmocka_unit_test_teardown(values_are_checked, end),
		cmocka_unit_test_teardown(one_guard_at_a_time, end),
		cmocka_unit_test_teardown(only_the_guard_is_killed, end),
		cmocka_unit_test_teardown(a_late_answer, end),
		cmocka_unit_test_teardown(a_look_is_waited_for, end),
	};

	dr_log_set_level(DR_LOG_ERROR);
	return cmocka_run_group_tests_name("a hostile program", tests, set_up_lab, tear_down_lab);
}
