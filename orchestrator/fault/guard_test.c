/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/guard_testkit.h"

#include "base/clock.h"
#include "orchestrator/fault/kind_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* sock[n] is a UDP socket of node n on rail 0. */
static int sock[2];
static const struct dr_guard_options here = { .state_dir = dir };

enum { DEADLINE_S = 10 };

static const struct dr_fault_control control = { .ifname = "ctl0" };

static int64_t soon(void)
{
	return dr_now_ns() + DEADLINE_S * DR_NS_PER_S;
}

static struct sockaddr_in rail_addr(unsigned node, unsigned rail)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(5000) };

	in.sin_addr.s_addr = htonl(0x0a4d0000 | rail << 8 | (node + 1));
	return in;
}

static int open_on(unsigned node)
{
	struct sockaddr_in me = rail_addr(node, 0);
	int fd, on = 1;

	assert_int_equal(dr_lab_enter(&lab, node, NULL), 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&me, sizeof(me)), 0);
	/* With this, a packet dropped on its way out within the host is an error of sendto. */
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)), 0);
	return fd;
}

static int set_up(void **state)
{
	if (set_up_lab(state))
		return -1;
	if (unsupported.code)
		return 0;
	sock[1] = open_on(1);
	sock[0] = open_on(0);
	return 0;
}

static int tear_down(void **state)
{
	if (!unsupported.code) {
		close(sock[0]);
		close(sock[1]);
	}
	return tear_down_lab(state);
}

/* Send n datagrams from a node to the other and count those that arrive, waiting for the last ones
 * at most wait_ms. */
static int deliver(unsigned from, int n, int wait_ms)
{
	struct sockaddr_in to = rail_addr(1 - from, 0);
	struct pollfd p = { .fd = sock[1 - from], .events = POLLIN };
	char buf[16];
	int got = 0;

	for (int i = 0; i < n; i++) {
		assert_int_equal(
			sendto(sock[from], "data", 4, 0, (struct sockaddr *)&to, sizeof(to)), 4);
		while (recv(p.fd, buf, sizeof(buf), MSG_DONTWAIT) == 4)
			got++;
	}
	while (got < n && poll(&p, 1, wait_ms) == 1 &&
		recv(p.fd, buf, sizeof(buf), MSG_DONTWAIT) == 4)
		got++;
	return got;
}

/* Both ways work within the deadline. */
static void expect_working(void)
{
	struct sockaddr_in to = rail_addr(0, 0);
	int64_t deadline = soon();
	int ok = 0;
	char buf[16];

	while (ok < 2) {
		assert_true(dr_now_ns() < deadline);
		/* An unreachable network is an error here, and its report one more: both pass. */
		to = rail_addr(1, 0);
		sendto(sock[0], "x", 1, 0, (struct sockaddr *)&to, sizeof(to));
		to = rail_addr(0, 0);
		sendto(sock[1], "x", 1, 0, (struct sockaddr *)&to, sizeof(to));
		ok = 0;
		for (unsigned i = 0; i < 2; i++) {
			struct pollfd p = { .fd = sock[i], .events = POLLIN };

			ok += poll(&p, 1, 50) == 1 &&
			      recv(p.fd, buf, sizeof(buf), MSG_DONTWAIT) == 1;
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		int err;
		socklen_t len = sizeof(err);

		while (recv(sock[i], buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		while (recv(sock[i], buf, sizeof(buf), MSG_DONTWAIT | MSG_ERRQUEUE) >= 0)
			;
		getsockopt(sock[i], SOL_SOCKET, SO_ERROR, &err, &len);
	}
}

static struct dr_fault_spec spec(const char *text)
{
	struct dr_fault_spec s;
	struct dr_err e;

	if (dr_fault_spec_parse(text, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static struct dr_netdev rail(void)
{
	struct dr_netdev d;

	assert_int_equal(dr_netdev_by_name("rail0", &d, NULL), 0);
	return d;
}

static bool has_addr(const char *text)
{
	struct sockaddr_storage ss;
	struct dr_netdev d;

	assert_int_equal(dr_netdev_addr_parse(text, &ss), 0);
	return dr_netdev_by_addr((struct sockaddr *)&ss, &d, NULL) == 0;
}

static void begin_for(const struct dr_guard_options *opt)
{
	begin_with(opt);
	expect_working();
}

static void begin(void)
{
	begin_for(NULL);
}

/* Wait for the one report; -EPIPE: the guard is dead. */
static int wait_report(struct dr_guard *g, struct dr_fault_report *r)
{
	struct pollfd p = { .fd = dr_guard_fd(g), .events = POLLIN };
	int64_t deadline = soon();
	int rc;

	while ((rc = dr_guard_poll(g, r)) == 0) {
		assert_true(dr_now_ns() < deadline);
		poll(&p, 1, 100);
	}
	return rc < 0 ? rc : 0;
}

/* The error of starting it, or of its report. */
static int try_inject(
	struct dr_guard *g, const char *text, const char *nic, struct dr_fault_report *r)
{
	struct dr_fault_spec s = spec(text);
	struct dr_err e;
	uint32_t id;
	int rc = dr_guard_inject(g, &s, nic, &control, &id, &e);

	memset(r, 0, sizeof(*r));
	if (rc == 0)
		rc = wait_report(g, r);
	else
		snprintf(r->text, sizeof(r->text), "%s", e.text);
	assert_true(rc || (r->id == id && !r->undo));
	return rc ? rc : r->err;
}

static uint32_t inject(const char *text)
{
	struct dr_fault_report r;
	int64_t t0 = dr_now_ns();

	if (try_inject(guard, text, "rail0", &r) < 0)
		fail_msg("%s: %s", text, r.text);
	assert_true(t0 <= r.before_ns && r.before_ns <= r.after_ns && r.after_ns <= dr_now_ns());
	return r.id;
}

static void undo(uint32_t id)
{
	struct dr_fault_report r;
	struct dr_err e;

	if (dr_guard_undo(guard, id, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(wait_report(guard, &r), 0);
	if (r.err < 0)
		fail_msg("%s", r.text);
	assert_true(r.undo && r.id == id);
}

static void blackhole_both_ways(void **state)
{
	uint32_t id;

	(void)state;
	begin();
	id = inject("blackhole");
	assert_int_equal(deliver(0, 20, 50), 0);
	assert_int_equal(deliver(1, 20, 50), 0);
	assert_true(rail().running); /* silent */
	undo(id);
	assert_int_equal(deliver(0, 20, 2000), 20);
	assert_int_equal(deliver(1, 20, 2000), 20);
}

static void blackhole_one_way(void **state)
{
	uint32_t id;

	(void)state;
	begin();
	id = inject("blackhole:dir=out");
	assert_int_equal(deliver(0, 20, 50), 0);
	assert_int_equal(deliver(1, 20, 2000), 20);
	undo(id);
	id = inject("blackhole:dir=in");
	assert_int_equal(deliver(0, 20, 2000), 20);
	assert_int_equal(deliver(1, 20, 50), 0);
	undo(id);
	assert_int_equal(deliver(0, 20, 2000), 20);
}

/* 8000 draws of 0.3 have a standard deviation of 41: bounds at 400 are ten of them. */
static void loss_drops_its_share(void **state)
{
	uint32_t id;
	int got;

	(void)state;
	begin();
	id = inject("loss=30");
	for (unsigned from = 0; from < 2; from++) {
		got = deliver(from, 8000, 100);
		if (got < 5200 || got > 6000)
			fail_msg("from node %u: %d of 8000 arrived", from, got);
	}
	undo(id);
	assert_int_equal(deliver(0, 1000, 2000), 1000);
}

static void link_down_and_all_is_back(void **state)
{
	struct dr_netdev_snapshot before, after;
	uint32_t id;

	(void)state;
	begin();
	assert_true(has_addr("fd77:0::1"));
	assert_int_equal(dr_netdev_save(rail().ifindex, &before, NULL), 0);
	id = inject("link-down");
	assert_false(rail().up);
	assert_false(has_addr("fd77:0::1")); /* the kernel flushed it */
	undo(id);
	assert_true(rail().up);
	assert_true(has_addr("fd77:0::1"));
	assert_int_equal(dr_netdev_save(rail().ifindex, &after, NULL), 0);
	assert_int_equal(before.routes, after.routes);
	dr_netdev_snapshot_fini(&before);
	dr_netdev_snapshot_fini(&after);
	expect_working();
	undo(id); /* twice is no error, and does nothing */
	assert_true(rail().up);
}

static uint32_t inject_on(const char *text, const char *nic)
{
	struct dr_fault_report r;

	if (try_inject(guard, text, nic, &r) < 0)
		fail_msg("%s on %s: %s", text, nic, r.text);
	return r.id;
}

/* Routes that went with the address come back with it. */
static void address_taken_and_all_is_back(void **state)
{
	struct dr_netdev_snapshot before, after;
	struct dr_fault_report r;
	struct sockaddr_storage extra;
	uint32_t id;

	(void)state;
	begin();
	assert_int_equal(system("ip route add 10.200.0.0/16 via 10.77.0.2 2>/dev/null"), 0);
	assert_int_equal(dr_netdev_save(rail().ifindex, &before, NULL), 0);
	id = inject_on("addr-del", "rail0@10.77.0.1");
	assert_false(has_addr("10.77.0.1"));
	assert_true(rail().running && has_addr("fd77:0::1"));
	undo(id);
	assert_true(has_addr("10.77.0.1"));
	assert_int_equal(dr_netdev_save(rail().ifindex, &after, NULL), 0);
	assert_int_equal(before.routes, after.routes);
	dr_netdev_snapshot_fini(&before);
	dr_netdev_snapshot_fini(&after);
	assert_int_equal(system("ip route del 10.200.0.0/16"), 0);
	expect_working();
	undo(id);
	/* IPv6, and without a name the first global one. */
	id = inject_on("addr-del", "rail0@fd77:0::1");
	assert_true(has_addr("10.77.0.1") && !has_addr("fd77:0::1"));
	undo(id);
	assert_true(has_addr("fd77:0::1"));
	id = inject_on("addr-del", "rail0");
	assert_true(!has_addr("10.77.0.1") || !has_addr("fd77:0::1"));
	undo(id);
	expect_working();
	/* Refused: not there; and one that would take another one with it. */
	assert_int_equal(try_inject(guard, "addr-del", "rail0@10.77.9.9", &r), -EADDRNOTAVAIL);
	assert_int_equal(dr_netdev_addr_parse("10.77.0.99", &extra), 0);
	assert_int_equal(
		dr_netdev_add_addr(rail().ifindex, (struct sockaddr *)&extra, 24, NULL), 0);
	assert_int_equal(try_inject(guard, "addr-del", "rail0@10.77.0.1", &r), -EBUSY);
	assert_int_equal(
		dr_netdev_del_addr(rail().ifindex, (struct sockaddr *)&extra, 24, NULL), 0);
	assert_true(has_addr("10.77.0.1"));
}

/* A program that injects and dies with its guard: nobody is left to undo the fault. */
static void die_with_the_guard(const char *text, const char *nic)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct dr_fault_report r;
		struct dr_guard *g;

		if (dr_guard_start(&here, &g, NULL) < 0 || try_inject(g, text, nic, &r) < 0)
			_exit(1);
		kill(g->pid, SIGKILL);
		waitpid(g->pid, NULL, 0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void repaired(void)
{
	struct dr_err e = { 0 };

	assert_int_equal(dr_fault_repair(&here, 0, &e), 1);
	assert_int_equal(e.code, 0);
	assert_int_equal(dr_fault_repair(&here, 0, &e), 0);
}

static void repaired_when_both_are_killed(void **state)
{
	struct dr_fault_report r;

	(void)state;
	begin();
	die_with_the_guard("addr-del", "rail0@10.77.0.1");
	assert_false(has_addr("10.77.0.1"));
	repaired();
	assert_true(has_addr("10.77.0.1"));
	die_with_the_guard("blackhole", "rail0");
	expect_working(); /* the kernel removed the filter; its record is in the way until it is repaired */
	assert_int_equal(try_inject(guard, "link-down", "rail0", &r), -EBUSY);
	assert_non_null(strstr(r.text, "doctor"));
	repaired();
	die_with_the_guard("link-down", "rail0");
	assert_false(rail().up);
	repaired();
	assert_true(rail().up && has_addr("fd77:0::1"));
	expect_working();
}

static int prove(const char *text, char *undo_text)
{
	struct dr_fault_spec s = spec(text);
	struct dr_fault_action a = { .spec = &s, .state = { .nic = "rail0", .undo = undo_text } };

	return s.kind->prove(&a, NULL);
}

/* An injection that another program undoes at once is not reported as done. */
static void effects_are_proved(void **state)
{
	char address[] = "10.77.0.1/24";
	uint32_t id;

	(void)state;
	begin();
	assert_int_equal(prove("link-down", NULL), -EIO);
	assert_int_equal(prove("addr-del", address), -EIO);
	id = inject("link-down");
	assert_int_equal(prove("link-down", NULL), 0);
	undo(id);
	id = inject_on("addr-del", "rail0@10.77.0.1");
	assert_int_equal(prove("addr-del", address), 0);
	undo(id);
	expect_working();
}

static void several_and_busy(void **state)
{
	struct dr_fault_report r;
	struct dr_guard *other;
	struct dr_err e;
	struct dr_netdev_snapshot snap;
	struct dr_netdev d;
	uint32_t id;

	(void)state;
	begin();
	id = inject("blackhole");
	assert_int_equal(try_inject(guard, "link-down", "rail0", &r), -EBUSY);
	assert_int_equal(dr_guard_start(&here, &other, &e), 0);
	assert_int_equal(try_inject(other, "link-down", "rail0", &r), -EBUSY);
	assert_int_equal(try_inject(other, "link-down", "rail1", &r), 0);
	assert_int_equal(try_inject(guard, "link-down", "rail0x", &r), -ENODEV);
	assert_int_equal(r.before_ns, 0);
	assert_int_equal(dr_fault_repair(&here, 0, &e), 0); /* the living are left alone */
	assert_int_equal(e.code, 0);
	dr_guard_stop(other); /* undoes its own */
	assert_int_equal(dr_netdev_by_name("rail1", &d, NULL), 0);
	assert_true(d.up);
	assert_int_equal(deliver(0, 5, 50), 0);
	undo(id);
	assert_int_equal(dr_netdev_save(rail().ifindex, &snap, NULL), 0);
	assert_int_equal(dr_netdev_set_up(rail().ifindex, false, NULL), 0);
	assert_int_equal(try_inject(guard, "link-down", "rail0", &r), -ENETDOWN);
	assert_int_equal(dr_netdev_set_up(rail().ifindex, true, NULL), 0);
	assert_int_equal(dr_netdev_restore(rail().ifindex, &snap, NULL), 0);
	dr_netdev_snapshot_fini(&snap);
	assert_int_equal(try_inject(guard, "close", "rail0", &r), -EOPNOTSUPP);
	assert_non_null(strstr(r.text, "channel"));
	assert_int_equal(try_inject(guard, "link-down", "lo", &r), -EPERM);
}

static void bounded(void **state)
{
	struct dr_guard_options opt = { .for_max_ns = 200 * DR_NS_PER_MS };
	struct dr_fault_spec s = spec("blackhole:for=0");
	struct dr_fault_report r;
	struct dr_err e;
	uint32_t id;

	(void)state;
	begin_for(&opt);
	assert_int_equal(dr_guard_inject(guard, &s, "rail0", &control, &id, &e), 0);
	assert_int_equal(wait_report(guard, &r), 0);
	assert_true(r.id == id && !r.undo && r.err == 0);
	assert_int_equal(wait_report(guard, &r), 0); /* the bound is over: undone by itself */
	assert_true(r.id == id && r.undo && r.err == 0);
	assert_int_equal(deliver(0, 20, 2000), 20);
	assert_int_equal(dr_guard_undo(guard, id, &e), 0);
	assert_int_equal(wait_report(guard, &r), 0);
	assert_true(r.id == id && r.undo && r.err == 0);
	assert_string_equal(r.text, "undone already");
}

/* Run a child that injects and says so, then kill it. A grandchild that holds every descriptor of
 * it lives on, which must not keep the guard from noticing. */
static void inject_and_die(const char *text)
{
	int told[2], hold[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct dr_fault_report r;
		struct dr_guard *g;

		prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing is left of a test that fails */
		close(hold[1]);
		if (dr_guard_start(&here, &g, NULL) < 0 || try_inject(g, text, "rail0", &r) < 0)
			_exit(1);
		if (fork() == 0) {
			close(told[1]);
			(void)!read(hold[0], &c, 1); /* until the test lets go */
			_exit(0);
		}
		if (write(told[1], "d", 1) != 1)
			_exit(2);
		while (pause() < 0)
			;
	}
	close(told[1]);
	close(hold[0]);
	assert_int_equal(read(told[0], &c, 1), 1);
	if (!strncmp(text, "link-down", 9))
		assert_false(rail().up);
	else
		assert_int_equal(deliver(0, 5, 50), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	expect_working();
	close(hold[1]);
	close(told[0]);
}

/* No guard of the program is left either, nor its state file. */
static void expect_no_state(void)
{
	int64_t deadline = soon();

	while (rmdir(dir) < 0)
		assert_true(dr_now_ns() < deadline);
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void undone_when_the_program_is_killed(void **state)
{
	int64_t deadline;

	(void)state;
	begin();
	dr_guard_stop(guard);
	guard = NULL;
	inject_and_die("blackhole");
	expect_no_state();
	inject_and_die("link-down");
	deadline = soon();
	while (!has_addr("fd77:0::1"))
		assert_true(dr_now_ns() < deadline);
	expect_no_state();
}

static void guard_ignores_the_terminal(void **state)
{
	static const int signals[] = { SIGINT, SIGHUP, SIGTERM, SIGQUIT };
	uint32_t id;

	(void)state;
	begin();
	id = inject("blackhole");
	assert_int_equal(getsid(guard->pid), guard->pid);
	for (size_t i = 0; i < DR_ARRAY_LEN(signals); i++)
		assert_int_equal(kill(guard->pid, signals[i]), 0);
	undo(id);
	assert_int_equal(deliver(0, 20, 2000), 20);
}

/* The guard itself is killed: whatever call of the program notices it, everything is undone then. */
static void undone_when_the_guard_is_killed(void **state)
{
	struct dr_fault_report r;
	struct dr_err e = { 0 };

	(void)state;
	begin();
	inject("link-down");
	inject_on("addr-del", "rail1");
	assert_int_equal(kill(guard->pid, SIGKILL), 0);
	assert_int_equal(wait_report(guard, &r), -EPIPE);
	assert_true(rail().up && has_addr("fd77:0::1") && has_addr("10.77.1.1"));
	assert_int_equal(dr_guard_undo(guard, 1, &e), -EPIPE);
	assert_non_null(strstr(e.text, "its faults were undone"));
	expect_no_state();
	end(NULL);
	begin();
	inject("link-down");
	assert_int_equal(kill(guard->pid, SIGKILL), 0);
	end(NULL); /* nobody polled */
	assert_true(rail().up && has_addr("fd77:0::1"));
	expect_no_state();
	expect_working();
}

static bool exists(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s.%s", dir, name);
	return access(path, F_OK) == 0;
}

static void commands(void **state)
{
	struct dr_fault_execs t = { 0 };
	struct dr_guard_options opt = { .execs = &t, .exec_timeout_ns = DR_NS_PER_S };
	struct dr_fault_report r;
	char text[256];
	uint32_t id;

	(void)state;
	snprintf(text, sizeof(text), "mark=touch %s.$DUALRAIL_FAULT_NIC,rm %s.rail0", dir, dir);
	assert_int_equal(dr_fault_execs_add(&t, text, NULL), 0);
	snprintf(text, sizeof(text), "fails=touch %s.half; exit 3,rm %s.half", dir, dir);
	assert_int_equal(dr_fault_execs_add(&t, text, NULL), 0);
	assert_int_equal(dr_fault_execs_add(&t, "hangs=sleep 600 & sleep 600,true", NULL), 0);
	begin_for(&opt);
	id = inject("exec=mark");
	assert_true(exists("rail0"));
	undo(id);
	assert_false(exists("rail0"));
	inject("exec=mark"); /* left to dr_guard_stop */
	assert_int_equal(try_inject(guard, "exec=fails", "", &r), -EIO);
	assert_non_null(strstr(r.text, "status 3"));
	assert_false(exists("half"));
	assert_int_equal(try_inject(guard, "exec=hangs", "", &r), -ETIMEDOUT);
	assert_int_equal(try_inject(guard, "exec=unknown", "", &r), -ENOENT);
	end(NULL);
	assert_false(exists("rail0"));
	dr_fault_execs_fini(&t);
}

static void control_is_spared(void **state)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a4dff01) };
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a4dff02) };
	struct dr_fault_control c = { .local = (struct sockaddr *)&local,
		.peer = (struct sockaddr *)&peer };
	struct dr_fault_control named = { .ifname = "rail0" };
	struct dr_fault_control wrong = { .ifname = "nosuch0" };
	struct dr_fault_spec s = spec("link-down");
	char text[256];
	struct dr_err e;

	(void)state;
	begin();
	assert_int_equal(dr_fault_check(&s, "rail0", &c, NULL, true, &e), 0);
	assert_int_equal(dr_fault_check(&s, "ctl0", &c, NULL, true, &e), -EPERM);
	assert_non_null(strstr(e.text, "control connection"));
	c.local = NULL; /* the route to the peer alone tells */
	assert_int_equal(dr_fault_check(&s, "ctl0", &c, NULL, true, &e), -EPERM);
	/* Sent over ctl0, but from an address that rail0 holds: both would cut it. */
	local = rail_addr(0, 0);
	c.local = (struct sockaddr *)&local;
	assert_int_equal(dr_fault_check(&s, "rail0", &c, NULL, true, &e), -EPERM);
	assert_int_equal(dr_fault_check(&s, "ctl0", &c, NULL, true, &e), -EPERM);
	assert_int_equal(dr_fault_check(&s, "rail1", &c, NULL, true, &e), 0);
	assert_int_equal(dr_fault_check(&s, "rail0", &named, NULL, true, &e), -EPERM);
	assert_int_equal(dr_fault_check(&s, "rail1", &wrong, NULL, true, &e), -ENODEV);
	s = spec("blackhole");
	assert_int_equal(dr_fault_check(&s, "rail1", &named, NULL, true, &e), 0);
	dr_fault_describe(&s, "rail1", NULL, text, sizeof(text));
	assert_non_null(strstr(text, "every packet in both directions on rail1"));
	s = spec("link-down");
	dr_fault_describe(&s, "rail1", NULL, text, sizeof(text));
	assert_non_null(strstr(text, "set rail1 down"));
}

/* The guard refuses by itself what the program should not have asked for. */
static void guard_keeps_to_its_scope(void **state)
{
	static const char *const refused[][3] = {
		{ "link-down:for=0", "ctl0", "ctl0 is not in --fault-nics" },
		{ "exec=none:for=0", "ctl0", "ctl0 is not in --fault-nics" },
		{ "exec=none:for=0", "rail0", "rail0 is not in --fault-nics rail1,rail0x" },
		{ "link-down:for=1s", "rail1", "the longest fault lasts 200 ms" },
	};
	struct dr_fault_execs t = { 0 };
	struct dr_guard_options opt = {
		.execs = &t, .nics = "rail1,rail0x", .for_max_ns = 200 * DR_NS_PER_MS
	};
	struct dr_fault_report r;

	(void)state;
	assert_int_equal(dr_fault_execs_add(&t, "none=false,true", NULL), 0);
	begin_for(&opt);
	for (size_t i = 0; i < DR_ARRAY_LEN(refused); i++) {
		assert_int_equal(try_inject(guard, refused[i][0], refused[i][1], &r), -EPERM);
		assert_non_null(strstr(r.text, refused[i][2]));
	}
	assert_int_equal(try_inject(guard, "exec=none:for=0", "rail1", &r), -EIO); /* it ran */
	assert_int_equal(try_inject(guard, "link-down:for=0", "rail1", &r), 0);
	assert_int_equal(wait_report(guard, &r), 0); /* for=0 is undone after the longest time */
	assert_true(r.undo && r.err == 0);
	end(NULL);
	opt.nics = NULL;
	begin_for(&opt);
	assert_int_equal(try_inject(guard, "exec=none:nic=ctl0,for=0", "ctl0", &r), -EPERM);
	assert_non_null(strstr(r.text, "control connection"));
	end(NULL);
	dr_fault_execs_fini(&t);
}

static void needs_privilege(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	begin();
	pid = fork();
	if (pid == 0) {
		struct dr_fault_spec down = spec("link-down"), hole = spec("blackhole");
		struct dr_err e = { 0 };

		if (setuid(65534) < 0)
			_exit(1);
		if (dr_fault_check(&down, "rail0", NULL, NULL, true, &e) != -EPERM ||
			!strstr(e.text, "CAP_NET_ADMIN"))
			_exit(2);
		if (dr_fault_check(&hole, "rail0", NULL, NULL, true, &e) != -EPERM)
			_exit(3);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(blackhole_both_ways, end),
		cmocka_unit_test_teardown(blackhole_one_way, end),
		cmocka_unit_test_teardown(loss_drops_its_share, end),
		cmocka_unit_test_teardown(link_down_and_all_is_back, end),
		cmocka_unit_test_teardown(address_taken_and_all_is_back, end),
		cmocka_unit_test_teardown(effects_are_proved, end),
		cmocka_unit_test_teardown(several_and_busy, end),
		cmocka_unit_test_teardown(bounded, end),
		cmocka_unit_test_teardown(undone_when_the_program_is_killed, end),
		cmocka_unit_test_teardown(guard_ignores_the_terminal, end),
		cmocka_unit_test_teardown(undone_when_the_guard_is_killed, end),
		cmocka_unit_test_teardown(repaired_when_both_are_killed, end),
		cmocka_unit_test_teardown(commands, end),
		cmocka_unit_test_teardown(control_is_spared, end),
		cmocka_unit_test_teardown(guard_keeps_to_its_scope, end),
		cmocka_unit_test_teardown(needs_privilege, end),
	};

	dr_log_set_level(DR_LOG_ERROR);
	return cmocka_run_group_tests_name("fault guard", tests, set_up, tear_down);
}
