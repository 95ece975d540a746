/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/iso_port.h"
#include "transport/ncclnet/iso_testkit.h"
#include "transport/ncclnet/net_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/shared.h"

#include <arpa/inet.h>
#include <libgen.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * The end of paths whose plugin is in another process, which may touch their buffers: two channels between two rails of this process,
 * over the minimal plugin on the loopback interface. Both rails have the same plugin's process.
 */
enum { BYTES = 4096, CHANNELS = 2 };

struct end {
	struct dr_sink sink;
	struct dr_path *path;
	bool ready, fenced, failed;
};
static struct {
	struct dr_rail *rail[2]; /* 0 sends, 1 receives */
	struct end end[CHANNELS][2];
	uint8_t *memory;
	struct dr_mr *mr;
	struct dr_sink nobody;
} w;

#define drive_until(cond)                                                                          \
	do {                                                                                       \
		int64_t until_ns = dr_now_ns() + 20 * DR_NS_PER_S;                                 \
		while (!(cond)) {                                                                  \
			progress_all();                                                            \
			(void)poll(NULL, 0, 1);                                                    \
			if (dr_now_ns() > until_ns)                                                \
				fail_msg("never: %s", #cond);                                      \
		}                                                                                  \
	} while (0)

static void on_event(struct dr_sink *s, const struct dr_event *ev)
{
	struct end *e = dr_container_of(s, struct end, sink);

	e->ready |= ev->kind == DR_EV_READY;
	e->fenced |= ev->kind == DR_EV_FENCED;
	e->failed |= ev->kind == DR_EV_FAILED;
}

static void on_rail_event(struct dr_sink *s, const struct dr_event *ev)
{
	(void)s;
	(void)ev;
}

static void progress_all(void)
{
	for (int i = 0; i < 2; i++) {
		(void)dr_nccl_ops.rail_progress(w.rail[i], dr_now_ns(), &w.nobody);
		for (int c = 0; c < CHANNELS; c++)
			if (w.end[c][i].path)
				(void)dr_nccl_ops.progress(
					w.end[c][i].path, dr_now_ns(), &w.end[c][i].sink);
	}
}

static struct nn_port *port(void)
{
	return nn_rail(w.rail[1])->port;
}

static void open_rail(int i, const char *file)
{
	const struct dr_nccl_params k = { .file = file, .isolate = true };
	struct dr_rail_params p = { .ifname = "lo", .kind_params = &k };
	struct sockaddr_in *at = (struct sockaddr_in *)&p.local;
	struct dr_err e = { 0 };

	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (dr_nccl_ops.listen(&p, &w.rail[i], &e))
		fail_msg("%s", e.text);
}

static void join_rails(void)
{
	uint8_t handle[DR_HANDLE_MAX];
	struct dr_err e = { 0 };

	for (int i = 0; i < 2; i++) {
		int n = dr_nccl_ops.rail_handle(w.rail[!i], handle, sizeof(handle));

		assert_true(n > 0);
		if (dr_nccl_ops.rail_peer(w.rail[i], handle, (size_t)n, &e))
			fail_msg("%s", e.text);
	}
}

static void connect_channel(int c)
{
	for (int i = 0; i < 2; i++) {
		const struct dr_path_params p = {
			.channel = (uint32_t)c, .gen = 1, .sender = i == 0, .connector = i == 0
		};
		struct end *e = &w.end[c][i];

		*e = (struct end){ .sink.event = on_event };
		assert_int_equal(dr_nccl_ops.create(w.rail[i], &p, &e->path, NULL), 0);
		assert_int_equal(dr_nccl_ops.connect(e->path, NULL, 0, dr_now_ns(), NULL), 0);
	}
	drive_until(w.end[c][0].ready && w.end[c][1].ready);
}

/* The plugin has a receive in the memory. */
static void post_receive(int c)
{
	const struct dr_part part = { .mr = w.mr, .len = BYTES };
	struct dr_path *p = w.end[c][1].path;

	assert_int_equal(dr_nccl_ops.post_recv(p, 0, 0, &part, 1, 0), 0);
	dr_nccl_ops.flush(p, dr_now_ns());
	drive_until(nn_lane_used(&nn_path(p)->data) == 1);
}

/* By a receiver that hears the peer, for which the plugin's close is enough. */
static void fence(int c)
{
	int64_t now;

	progress_all();
	now = dr_now_ns();
	atomic_store(&w.rail[1]->rx_last_ns, now);
	dr_nccl_ops.fence(w.end[c][1].path, false, now + 100 * DR_NS_PER_MS);
}

static int close_path(int c, int i)
{
	struct dr_path *p = w.end[c][i].path;
	int rc;

	dr_nccl_ops.close(p);
	rc = dr_nccl_ops.stop(p);
	dr_nccl_ops.fini(p);
	w.end[c][i].path = NULL;
	return rc;
}

static void stop_process(void)
{
	pid_t pid = dr_nn_proc_hello(port()->proc)->pid;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	while (!all_stopped(pid))
		(void)poll(NULL, 0, 1);
}

static int setup(void **state)
{
	struct dr_memory memory = { .len = BYTES };
	char exe[256], file[320];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	(void)state;
	assert_true(n > 0);
	exe[n] = '\0';
	(void)snprintf(
		file, sizeof(file), "%s/../../tests/plugins/libnccl-net-fake.so", dirname(exe));
	w.nobody.event = on_rail_event;
	memory.base = w.memory = dr_shared_alloc(BYTES);
	for (int i = 0; i < 2; i++)
		open_rail(i, file);
	join_rails();
	assert_int_equal(dr_nccl_ops.mr_reg(w.rail[1], &memory, &w.mr, NULL), 0);
	for (int c = 0; c < CHANNELS; c++)
		connect_channel(c);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int c = 0; c < CHANNELS; c++)
		for (int i = 0; i < 2; i++)
			if (w.end[c][i].path)
				(void)close_path(c, i);
	assert_int_equal(dr_nccl_ops.mr_dereg(w.rail[1], w.mr), 0);
	for (int i = 0; i < 2; i++) {
		dr_nccl_ops.rail_close(w.rail[i]);
		dr_nccl_ops.rail_fini(w.rail[i]);
	}
	dr_shared_free(w.memory);
	return 0;
}

static void fenced_when_the_process_has_closed_it(void **state)
{
	(void)state;
	post_receive(0);
	fence(0);
	drive_until(w.end[0][1].fenced);
	assert_int_equal(dr_nn_port_closes(port()), 1);
	assert_false(dr_nn_port_is_closing(port(), 1));
	assert_false(w.end[0][1].failed);
	assert_int_equal(close_path(0, 1), 0);
}

static void fenced_when_the_process_has_ended(void **state)
{
	struct end *e = &w.end[0][1];
	bool waited = false;

	(void)state;
	post_receive(0);
	stop_process();
	fence(0);
	drive_until(e->fenced || (waited |= nn_path(e->path)->state == NN_CLOSING, false));
	assert_true(waited);
	assert_false(e->failed);
	assert_false(dr_nn_port_is_closing(port(), dr_nn_port_closes(port())));
	assert_int_equal(close_path(0, 1), 0);
}

static void closed_while_its_fence_waits(void **state)
{
	struct end *e = &w.end[0][1];

	(void)state;
	post_receive(0);
	stop_process();
	fence(0);
	drive_until(nn_path(e->path)->state == NN_CLOSING);
	assert_int_equal(close_path(0, 1), 0);
	assert_false(e->fenced);
	assert_true(dr_nn_port_is_gone(port()));
}

/* Its worker has other paths to drive. */
static void a_fenced_path_does_not_wait_for_another(void **state)
{
	(void)state;
	post_receive(1);
	fence(0);
	drive_until(w.end[0][1].fenced);
	stop_process();
	fence(1);
	drive_until(nn_path(w.end[1][1].path)->state == NN_CLOSING);
	assert_int_equal(close_path(0, 1), 0);
	assert_false(dr_nn_port_is_gone(port()));
	assert_int_equal(close_path(1, 1), 0);
	assert_true(dr_nn_port_is_gone(port()));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(fenced_when_the_process_has_closed_it),
		T(fenced_when_the_process_has_ended), T(closed_while_its_fence_waits),
		T(a_fenced_path_does_not_wait_for_another) };
	struct dr_err e = { 0 };

	dr_log_set_level(DR_LOG_ERROR);
	if (setenv("FAKENET_IFNAME", "lo", 1) || dr_iso_spawner_start(NULL, &e)) {
		printf("%s\n", e.text);
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
