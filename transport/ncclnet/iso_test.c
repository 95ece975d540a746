/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/iso_port.h"
#include "transport/ncclnet/iso_testkit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/shared.h"
#include "base/sysfile.h"
#include "tests/plugins/env.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Two ports of one process, which runs the emulated plugin on the loopback interface. */

enum { BYTES = 1 << 16 };
static struct {
	struct nn_port *port[2]; /* 0 dials, 1 listens */
	void *send, *recv, *listener;
} w;

static const struct dr_nccl *net(int i)
{
	return dr_nn_port_plugin(w.port[i]);
}

static bool accepted(void)
{
	struct nccl_net_device_handle room, *device = &room;

	assert_int_equal(dr_nccl_accept(net(1), w.listener, &w.recv, &device), NCCL_SUCCESS);
	return w.recv != NULL;
}

static bool connected(uint8_t *handle)
{
	assert_int_equal(dr_nccl_connect(net(0), 0, handle, &w.send), NCCL_SUCCESS);
	return w.send != NULL;
}

static void connect_both(void)
{
	uint8_t handle[NCCL_NET_HANDLE_BYTES] = { 0 };
	enum nccl_result rc = NCCL_IN_PROGRESS;

	until((rc = dr_nccl_listen(net(1), 0, handle, &w.listener)) != NCCL_IN_PROGRESS);
	assert_int_equal(rc, NCCL_SUCCESS);
	w.send = w.recv = NULL;
	/* A plugin may finish one end only when the other one has sent. */
	until(w.send || connected(handle));
	until(accepted());
	assert_int_equal(net(1)->close_listen(w.listener), NCCL_SUCCESS);
}

static void close_both(void)
{
	assert_int_equal(net(0)->close_send(w.send), NCCL_SUCCESS);
	assert_int_equal(net(1)->close_recv(w.recv), NCCL_SUCCESS);
}

static void *post(int i, struct dr_nccl_buffer *b, size_t size)
{
	void *request = NULL;

	b->size = size;
	until((i ? dr_nccl_irecv(net(1), w.recv, 1, b, &request)
		 : dr_nccl_isend(net(0), w.send, b, &request)) != NCCL_SUCCESS ||
		request);
	assert_non_null(request);
	return request;
}

static int done_with(int i, void *request, int *size)
{
	int done = 0, rc;
	int64_t end = dr_now_ns() + 60 * DR_NS_PER_S;

	do {
		rc = (int)net(i)->test(request, &done, size);
		(void)dr_nn_port_progress(w.port[i], dr_now_ns());
	} while (rc == 0 && !done && dr_now_ns() < end);
	return rc;
}

static void reg(int i, struct dr_nccl_buffer *b, void *data)
{
	*b = (struct dr_nccl_buffer){ .data = data, .size = BYTES };
	assert_int_equal(dr_nccl_reg(net(i), i ? w.recv : w.send, b, NCCL_PTR_HOST), NCCL_SUCCESS);
}

/* Messages of `from` into `to`, and back to a receive that is longer. */
static void exchange(uint8_t *from, uint8_t *to)
{
	struct dr_nccl_buffer a, b;
	int size = 0;

	connect_both();
	reg(0, &a, from);
	reg(1, &b, to);
	for (size_t len = 1; len <= BYTES; len *= 4) {
		for (size_t i = 0; i < len; i++)
			from[i] = (uint8_t)(i * 7 + len);
		memset(to, 0xee, BYTES);
		void *r = post(1, &b, BYTES), *s = post(0, &a, len);
		assert_int_equal(done_with(0, s, &size), NCCL_SUCCESS);
		assert_int_equal(done_with(1, r, &size), NCCL_SUCCESS);
		assert_int_equal(size, len);
		assert_memory_equal(from, to, len);
		assert_int_equal(to[DR_MIN(len, BYTES - 1)], len < BYTES ? 0xee : from[BYTES - 1]);
	}
	assert_int_equal(net(0)->dereg_mr(w.send, a.mhandle), NCCL_SUCCESS);
	assert_int_equal(net(1)->dereg_mr(w.recv, b.mhandle), NCCL_SUCCESS);
	close_both();
}

static int setup_bugs(const char *bugs)
{
	const struct dr_rail_gpu no_gpu = { .ops = NULL };
	struct iso_config c = { .unpack = NN_UNPACK_AUTO, .ifname = "lo" };
	struct dr_err e = { 0 };
	char exe[256];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(n > 0);
	exe[n] = '\0';
	(void)snprintf(
		c.file, sizeof(c.file), "%s/../../tests/plugins/libnccl-net-fake.so", dirname(exe));
	assert_int_equal(fakenet_env(bugs), 0);
	for (int i = 0; i < 2; i++)
		if (dr_nn_port_open(&c, NULL, &no_gpu, &w.port[i], &e))
			fail_msg("%s", e.text);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_bugs("");
}

static int setup_faulty(void **state)
{
	(void)state;
	return setup_bugs("FAKENET_BUGS=error:deregMr");
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		dr_nn_port_close(w.port[i]);
	return 0;
}

static void memory_that_is_shared_and_memory_that_is_copied(void **state)
{
	uint8_t *shared = dr_shared_alloc(2 * BYTES), *own = malloc(2 * BYTES);

	(void)state;
	assert_string_equal(net(0)->name, "FakeSocket");
	exchange(shared, shared + BYTES);
	exchange(own, own + BYTES);
	exchange(own, shared);
	exchange(shared, own);
	free(own);
	dr_shared_free(shared);
}

/* Of the processes that are running, and of those that have ended. */
static void the_time_of_the_processor_is_counted(void **state)
{
	int64_t before = dr_iso_cpu_ns(), with;

	(void)state;
	assert_true(before > 0);
	until(dr_iso_cpu_ns() > before); /* its threads look for work */
	dr_nn_port_kill(w.port[0]);
	until(dr_nn_port_is_gone(w.port[0]));
	with = dr_iso_cpu_ns();
	assert_true(with >= before);
	until(dr_nn_port_progress(w.port[0], dr_now_ns()));
	assert_true(dr_iso_cpu_ns() >= with);
	until(dr_nn_port_progress(w.port[1], dr_now_ns()));
}

static bool holds_done(struct iso_ring *r)
{
	bool any = false;

	for (unsigned i = atomic_load(&r->head); i != atomic_load(&r->tail); i++)
		any |= r->slot[i % ISO_RING].op == ISO_DONE;
	return any;
}

/* What came before the process ended is given out, and everything fails afterwards. */
static void the_end_of_the_process(void **state)
{
	uint8_t *shared = dr_shared_alloc(2 * BYTES);
	struct dr_nccl_buffer a, b;
	int size = 0, more = 0, done = 0;

	(void)state;
	connect_both();
	reg(0, &a, shared);
	reg(1, &b, shared + BYTES);
	memset(shared, 3, BYTES);
	void *first = post(1, &b, BYTES), *second = post(1, &b, BYTES), *s = post(0, &a, 100);
	assert_int_equal(done_with(0, s, &size), NCCL_SUCCESS);
	until(holds_done(&w.port[1]->rings->events)); /* and it is not taken */
	dr_nn_port_kill(w.port[0]);
	until(dr_nn_port_is_gone(w.port[0]) && dr_nn_port_is_gone(w.port[1]));
	until(dr_nn_port_death(w.port[1]));
	assert_non_null(strstr(dr_nn_port_death(w.port[0]), DR_ISO_FENCED));
	assert_int_equal(dr_nccl_isend(net(0), w.send, &a, &s), NCCL_REMOTE_ERROR);
	/* It is started again by whoever looks, and both ports find the new one. */
	until(dr_nn_port_progress(w.port[0], dr_now_ns()));
	until(dr_nn_port_progress(w.port[1], dr_now_ns()));
	assert_null(dr_nn_port_death(w.port[0]));
	assert_int_equal(done_with(1, first, &size), NCCL_SUCCESS);
	assert_int_equal(size, 100);
	assert_int_equal(shared[BYTES + 99], 3);
	assert_int_equal(net(1)->test(second, &done, &more), NCCL_REMOTE_ERROR);
	assert_int_equal(dr_nccl_isend(net(0), w.send, &a, &s), NCCL_REMOTE_ERROR);
	close_both(); /* nothing is waited for */
	exchange(shared, shared + BYTES);
	dr_shared_free(shared);
}

static void stop_process(void)
{
	pid_t pid = dr_nn_proc_hello(w.port[1]->proc)->pid;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	until(all_stopped(pid));
}

/* A comm whose user's memory is outstanding: the process has closed it when close returns, or has ended. */
static void a_close_that_does_not_come_ends_the_process(void **state)
{
	uint8_t *shared = dr_shared_alloc(BYTES);
	struct dr_nccl_buffer b;
	uint64_t first, both;

	(void)state;
	connect_both();
	reg(1, &b, shared);
	(void)post(1, &b, BYTES);
	assert_int_equal(dr_nn_port_closes(w.port[1]), 0);
	assert_int_equal(net(1)->close_recv(w.recv), NCCL_SUCCESS);
	first = dr_nn_port_closes(w.port[1]);
	assert_int_equal(first, 1);
	assert_int_equal(dr_nn_port_finish_closing(w.port[1], first), 0);
	assert_false(dr_nn_port_is_closing(w.port[1], first));
	(void)dr_nn_port_progress(w.port[1], dr_now_ns());
	assert_null(dr_nn_port_death(w.port[1])); /* it was confirmed */
	assert_int_equal(net(0)->close_send(w.send), NCCL_SUCCESS);
	connect_both();
	reg(1, &b, shared);
	(void)post(1, &b, BYTES);
	/* Nobody takes the commands: the process is stopped. */
	stop_process();
	assert_int_equal(net(1)->close_recv(w.recv), NCCL_SUCCESS);
	both = dr_nn_port_closes(w.port[1]);
	assert_true(dr_nn_port_is_closing(w.port[1], both)); /* it did not wait */
	/* Who has closed the first only need not wait for the second. */
	assert_false(dr_nn_port_is_closing(w.port[1], first));
	assert_int_equal(dr_nn_port_finish_closing(w.port[1], first), 0);
	assert_true(dr_nn_port_is_closing(w.port[1], both));
	assert_false(dr_nn_port_is_gone(w.port[1]));
	assert_int_equal(dr_nn_port_finish_closing(w.port[1], both), 0);
	assert_false(dr_nn_port_is_closing(w.port[1], both));
	assert_true(dr_nn_port_is_gone(w.port[1]));
	assert_int_equal(net(0)->close_send(w.send), NCCL_SUCCESS);
	dr_shared_free(shared);
}

/* A process that works on what it was told is not ended for taking long, within a bound. */
static void a_process_that_makes_progress_is_waited_for(void **state)
{
	const struct iso_message m = { .op = ISO_CLOSE };
	const int64_t ms = DR_NS_PER_MS;
	struct iso_ring *commands;
	struct nn_patience x;

	(void)state;
	stop_process();
	commands = &w.port[1]->rings->commands;
	x = dr_nn_port_patience(w.port[1], 0);
	assert_true(dr_nn_port_may_wait(w.port[1], &x, 99 * ms));
	assert_false(dr_nn_port_may_wait(w.port[1], &x, 100 * ms));
	for (int64_t now = 80; now < 240; now += 80) {
		(void)iso_ring_push(commands, &m);
		iso_ring_pop(commands);
		assert_true(dr_nn_port_may_wait(w.port[1], &x, now * ms));
		assert_true(dr_nn_port_may_wait(w.port[1], &x, (now + 79) * ms));
	}
	(void)iso_ring_push(commands, &m);
	iso_ring_pop(commands);
	assert_true(dr_nn_port_may_wait(w.port[1], &x, 249 * ms));
	assert_false(dr_nn_port_may_wait(w.port[1], &x, 250 * ms));
	dr_nn_port_kill(w.port[1]);
}

/* A receive that the plugin has: one before it is complete. */
static void leave_outstanding(uint8_t *memory, struct dr_nccl_buffer *b)
{
	struct dr_nccl_buffer a;
	int size = 0;

	reg(0, &a, memory);
	reg(1, b, memory);
	void *first = post(1, b, BYTES), *s = post(0, &a, 100);
	(void)post(1, b, BYTES);
	assert_int_equal(done_with(0, s, &size), NCCL_SUCCESS);
	assert_int_equal(done_with(1, first, &size), NCCL_SUCCESS);
}

/* A plugin that could not deregister memory may still write to it. */
static void a_plugin_that_fails_to_deregister_is_ended(void **state)
{
	uint8_t *shared = dr_shared_alloc(BYTES);
	struct dr_nccl_buffer b;
	uint64_t closes;

	(void)state;
	for (int by_close = 0; by_close < 2; by_close++) {
		connect_both();
		leave_outstanding(shared, &b);
		if (!by_close)
			assert_int_equal(net(1)->dereg_mr(w.recv, b.mhandle), NCCL_SUCCESS);
		close_both();
		closes = dr_nn_port_closes(w.port[1]);
		until(!dr_nn_port_is_closing(w.port[1], closes));
		assert_true(dr_nn_port_is_gone(w.port[1]));
		for (int i = 0; i < 2; i++)
			until(dr_nn_port_progress(w.port[i], dr_now_ns()));
	}
	assert_int_equal(closes, 2);
	dr_shared_free(shared);
}

/* Otherwise the process could invalidate the program's mappings. */
static void shared_memory_keeps_its_size(void **state)
{
	uint8_t *own = dr_shared_alloc(BYTES);
	struct dr_shared s;

	(void)state;
	assert_true(dr_shared_find(own, BYTES, &s));
	for (int more = -1; more <= 1; more += 2) {
		assert_int_equal(ftruncate(s.fd, BYTES + more), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(
			ftruncate(w.port[0]->rings_fd, (off_t)sizeof(struct iso_rings) + more), -1);
		assert_int_equal(errno, EPERM);
	}
	dr_shared_free(own);
}

static pid_t parent_of(pid_t pid)
{
	char stat[256];
	const char *state;

	(void)dr_sysfile_text(stat, sizeof(stat), "", "/proc/%d/stat", pid);
	state = strrchr(stat, ')');
	assert_non_null(state);
	return (pid_t)strtol(state + 3, NULL, 10);
}

/* That a later comm was closed does not show that an earlier one is, whose close failed. */
static void a_close_that_fails_holds_up_later_ones(void **state)
{
	struct iso_message m = { .op = ISO_CLOSED, .rc = NCCL_SYSTEM_ERROR };
	uint8_t *shared = dr_shared_alloc(BYTES);
	pid_t spawner = parent_of(dr_nn_proc_hello(w.port[1]->proc)->pid);
	struct dr_nccl_buffer b;
	struct iso_comm *comm[2];
	void *send[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		connect_both();
		leave_outstanding(shared, &b);
		comm[i] = w.recv;
		send[i] = w.send;
	}
	stop_process();
	assert_int_equal(kill(spawner, SIGSTOP), 0); /* nobody ends the process */
	until(all_stopped(spawner));
	for (int i = 0; i < 2; i++, m.rc = NCCL_SUCCESS) {
		m.comm = comm[i]->id;
		assert_int_equal(net(1)->close_recv(comm[i]), NCCL_SUCCESS);
		(void)iso_ring_push(&w.port[1]->rings->events, &m);
	}
	bool first = dr_nn_port_is_closing(w.port[1], 1),
	     both = dr_nn_port_is_closing(w.port[1], 2);
	assert_int_equal(kill(spawner, SIGCONT), 0);
	assert_true(first);
	assert_true(both);
	until(!dr_nn_port_is_closing(w.port[1], 2));
	assert_true(dr_nn_port_is_gone(w.port[1]));
	for (int i = 0; i < 2; i++)
		assert_int_equal(net(0)->close_send(send[i]), NCCL_SUCCESS);
	dr_shared_free(shared);
}

/* Its end counts when it is reaped, not when it is wanted. The spawner is stopped, and ends nobody. */
static void a_process_that_is_to_be_ended_has_not_ended(void **state)
{
	uint8_t *shared = dr_shared_alloc(BYTES);
	pid_t spawner = parent_of(dr_nn_proc_hello(w.port[1]->proc)->pid);
	struct dr_nccl_buffer b;
	uint64_t closes;

	(void)state;
	connect_both();
	reg(1, &b, shared);
	(void)post(1, &b, BYTES);
	assert_int_equal(kill(spawner, SIGSTOP), 0);
	until(all_stopped(spawner));
	dr_nn_port_kill(w.port[1]);
	assert_int_equal(net(1)->close_recv(w.recv), NCCL_SUCCESS);
	closes = dr_nn_port_closes(w.port[1]);
	assert_int_equal(closes, 1);
	bool before = dr_nn_port_is_closing(w.port[1], closes);
	int rc = dr_nn_port_finish_closing(w.port[1], closes);
	bool after = dr_nn_port_is_closing(w.port[1], closes);
	assert_int_equal(kill(spawner, SIGCONT), 0);
	assert_true(before);
	assert_int_equal(rc, -EIO);
	assert_true(after);
	until(!dr_nn_port_is_closing(w.port[1], closes));
	assert_true(dr_nn_port_is_gone(w.port[1]));
	assert_int_equal(net(0)->close_send(w.send), NCCL_SUCCESS);
	dr_shared_free(shared);
}

/* The program does not wait for a process that takes no descriptors: it ends it. */
static void a_process_that_takes_no_memory_is_ended(void **state)
{
	uint8_t *own = malloc(BYTES);
	int few = 1; /* bytes: the least that the kernel has */
	enum nccl_result rc = NCCL_SUCCESS;

	(void)state;
	connect_both();
	stop_process();
	assert_int_equal(setsockopt(w.port[1]->sock, SOL_SOCKET, SO_SNDBUF, &few, sizeof(few)), 0);
	(void)alarm(60);
	for (int i = 0; i < 100 && rc == NCCL_SUCCESS; i++) {
		struct dr_nccl_buffer b = { .data = own, .size = BYTES };

		rc = (enum nccl_result)dr_nccl_reg(net(1), w.recv, &b, NCCL_PTR_HOST);
	}
	(void)alarm(0);
	assert_int_equal(rc, NCCL_SYSTEM_ERROR);
	until(dr_nn_port_is_gone(w.port[1]));
	close_both();
	free(own);
}

/* More dials than there are numbers fail, and give theirs back. */
static void dials_that_fail(void **state)
{
	uint8_t handle[NCCL_NET_HANDLE_BYTES] = { 0 }, copy[NCCL_NET_HANDLE_BYTES];
	enum nccl_result rc;

	(void)state;
	until((rc = dr_nccl_listen(net(1), 0, handle, &w.listener)) != NCCL_IN_PROGRESS);
	assert_int_equal(rc, NCCL_SUCCESS);
	assert_int_equal(net(1)->close_listen(w.listener), NCCL_SUCCESS);
	for (unsigned i = 0; i < ISO_COMMS + 8; i++) {
		memcpy(copy, handle, sizeof(copy));
		until((rc = dr_nccl_connect(net(0), 0, copy, &w.send)) != NCCL_SUCCESS || w.send);
		if (rc == NCCL_SUCCESS) /* its connection failed later */
			assert_int_equal(net(0)->close_send(w.send), NCCL_SUCCESS);
	}
	connect_both();
	close_both();
}

/* What the process writes into the rings is not believed. */
static void numbers_of_the_process_are_checked(void **state)
{
	static const struct iso_message bad[] = {
		{ .op = ISO_DONE, .comm = ISO_COMMS },
		{ .op = ISO_DONE, .comm = UINT32_MAX },
		{ .op = ISO_CLOSED, .comm = 1000 },
		{ .op = 99, .comm = 0 },
		{ .op = ISO_LISTEN, .comm = 0 },
	};
	struct iso_ring *events;
	uint8_t *own = malloc(BYTES);
	struct dr_nccl_buffer b;
	struct iso_message m = { .op = ISO_DONE, .len = BYTES + 1 };
	int size = 0;

	(void)state;
	connect_both();
	events = &w.port[1]->rings->events;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++)
		(void)iso_ring_push(events, &bad[i]);
	reg(1, &b, own);
	void *r = post(1, &b, BYTES);
	m.comm = ((struct iso_comm *)w.recv)->id;
	(void)iso_ring_push(events, &m);
	assert_int_equal(done_with(1, r, &size), NCCL_INTERNAL_ERROR);
	m.len = 0; /* more than was posted */
	for (int i = 0; i < 3; i++)
		(void)iso_ring_push(events, &m);
	dr_iso_take_events(w.port[1]);
	close_both();
	free(own);
}

/* The reader says that it sleeps, or sees the message: never neither. */
static void a_reader_that_sleeps_is_woken(void **state)
{
	static struct iso_ring r;
	struct iso_message m = { .op = ISO_DONE };

	(void)state;
	assert_true(iso_ring_sleep(&r));
	assert_true(iso_ring_push(&r, &m));  /* to be woken */
	assert_false(iso_ring_push(&r, &m)); /* once */
	assert_false(iso_ring_sleep(&r));    /* there is something */
	assert_false(iso_ring_push(&r, &m)); /* awake */
	for (unsigned n = 3; n < ISO_RING; n++) {
		assert_false(iso_ring_full(&r));
		(void)iso_ring_push(&r, &m);
	}
	assert_true(iso_ring_full(&r));
	iso_ring_pop(&r);
	assert_false(iso_ring_full(&r));
}

/* The last test: no process can be started afterwards. */
static void without_the_spawner_the_time_is_kept(void **state)
{
	pid_t spawner = parent_of(dr_nn_proc_hello(w.port[0]->proc)->pid);
	int64_t before = dr_iso_cpu_ns();

	(void)state;
	assert_int_equal(kill(spawner, SIGKILL), 0);
	for (int i = 0; i < 2; i++)
		until(dr_nn_port_is_gone(w.port[i]));
	assert_true(dr_iso_is_lost());
	assert_true(dr_iso_cpu_ns() >= before);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(memory_that_is_shared_and_memory_that_is_copied),
		T(the_end_of_the_process), T(the_time_of_the_processor_is_counted),
		T(a_close_that_does_not_come_ends_the_process),
		T(a_process_that_is_to_be_ended_has_not_ended),
		T(a_process_that_takes_no_memory_is_ended), T(dials_that_fail),
		T(numbers_of_the_process_are_checked),
		T(a_process_that_makes_progress_is_waited_for), T(shared_memory_keeps_its_size),
		T(a_close_that_fails_holds_up_later_ones),
		cmocka_unit_test_setup_teardown(
			a_plugin_that_fails_to_deregister_is_ended, setup_faulty, teardown),
		cmocka_unit_test(a_reader_that_sleeps_is_woken),
		T(without_the_spawner_the_time_is_kept) };
	struct dr_err e = { 0 };

	dr_log_set_level(DR_LOG_ERROR);
	if (setenv("FAKENET_IFNAME", "lo", 1) || fakenet_env("") ||
		dr_iso_spawner_start(NULL, &e)) {
		printf("%s\n", e.text);
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
