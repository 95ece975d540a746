/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/service.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/plugins/env.h"

/* Calls that wait, over the personality of tests/plugins/fake.h that stands for Fast Socket. */

static struct dr_nccl_host *host;
static struct nn_service *service;
static char hang[64];

static int setup(void **state)
{
	char exe[PATH_MAX], path[PATH_MAX + 64];
	const struct dr_rail_gpu none = { .ops = NULL };
	struct dr_nccl_device dev;
	struct dr_err e = { .text = "" };
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	(void)state;
	assert_true(len > 0);
	exe[len] = '\0';
	(void)snprintf(
		path, sizeof(path), "%s/../../tests/plugins/libnccl-net-fake.so", dirname(exe));
	dr_log_set_level(DR_LOG_ERROR);
	/* connect hangs once this file is there. */
	(void)snprintf(hang, sizeof(hang), "/tmp/service_test.%d", (int)getpid());
	assert_int_equal(setenv("FAKENET_ONCE", hang, 1), 0);
	assert_int_equal(
		fakenet_env("FAKENET=fast\nFAKENET_IFNAME=lo\nFAKENET_BUGS=hang:connect\n"), 0);
	assert_int_equal(dr_nccl_host_get(path, 0, &host, &e), 0);
	assert_int_equal(dr_nccl_host_device(host, "lo", &dev, &e), 0);
	return dr_nn_service_open(host, dev.dev, &none, &service);
}

static int teardown(void **state)
{
	(void)state;
	dr_nn_service_close(service);
	dr_nccl_host_put(host);
	return 0;
}

/* A listener that accepts, and its handle. */
static struct nn_call *accepting(uint8_t handle[NCCL_NET_HANDLE_BYTES])
{
	struct nn_call *c;
	void *listener;

	assert_int_equal(dr_nccl_listen(dr_nccl_host_plugin(host), 0, handle, &listener), 0);
	assert_int_equal(dr_nn_call_accept(service, listener, handle, &c), 0);
	return c;
}

static struct nn_comm wait_for(struct nn_call **c)
{
	int64_t until = dr_now_ns() + 60 * DR_NS_PER_S;
	struct nn_comm got;
	int rc;

	while ((rc = dr_nn_call_take(c, &got)) == 0 && dr_now_ns() < until)
		(void)poll(NULL, 0, 1);
	assert_int_equal(rc, 1);
	assert_null(*c);
	return got;
}

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

static unsigned threads(void)
{
	return entries("/proc/self/task");
}

static void until_threads(unsigned n)
{
	int64_t until = dr_now_ns() + 60 * DR_NS_PER_S;

	while (threads() > n && dr_now_ns() < until)
		(void)poll(NULL, 0, 1);
	assert_int_equal(threads(), n);
}

static unsigned descriptors(void)
{
	return entries("/proc/self/fd");
}

static void both_ends_meet(void **state)
{
	const struct dr_nccl *n = dr_nccl_host_plugin(host);
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	struct nn_call *in = accepting(handle), *out;
	struct nn_comm sends, receives;

	(void)state;
	assert_int_equal(dr_nn_call_connect(service, handle, &out), 0);
	sends = wait_for(&out);
	receives = wait_for(&in);
	assert_ptr_equal(receives.device, receives.room);
	assert_int_equal(n->close_send(sends.comm), 0);
	assert_int_equal(n->close_recv(receives.comm), 0);
	dr_free(receives.room);
}

/* Nobody connects: the thread ends nevertheless. Many, since those that have not returned are
 * counted. */
static void accept_is_given_up(void **state)
{
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	unsigned before = threads();

	(void)state;
	for (int i = 0; i < 40; i++) {
		struct nn_call *c = accepting(handle);

		(void)poll(NULL, 0, i % 3); /* in accept, or before it */
		dr_nn_call_drop(&c);
		assert_null(c);
		until_threads(before);
	}
}

/* What connect gives after it was given up is closed: the peer's comm ends. */
static void connect_is_given_up(void **state)
{
	const struct dr_nccl *n = dr_nccl_host_plugin(host);
	uint8_t handle[NCCL_NET_HANDLE_BYTES], byte;
	struct nn_call *in = accepting(handle), *out;
	struct dr_nccl_buffer b = { .data = &byte, .size = 1 };
	struct nn_comm receives;
	void *request;
	int done = 0, rc = 0;

	(void)state;
	unsigned before = descriptors();
	assert_int_equal(dr_nn_call_connect(service, handle, &out), 0);
	while (descriptors() == before) /* it waits 200 ms with its sockets */
		(void)poll(NULL, 0, 1);
	dr_nn_call_drop(&out);
	receives = wait_for(&in);
	assert_int_equal(dr_nccl_reg(n, receives.comm, &b, NCCL_PTR_HOST), 0);
	assert_int_equal(dr_nccl_irecv(n, receives.comm, 1, &b, &request), 0);
	while (rc == 0 && !done)
		rc = (int)n->test(request, &done, NULL);
	assert_int_not_equal(rc, 0);
	assert_int_equal(n->close_recv(receives.comm), 0);
	dr_free(receives.room);
}

/* Calls that never return are left alone, up to a number of them. */
static void connect_never_returns(void **state)
{
	const struct dr_rail_gpu none = { .ops = NULL };
	uint8_t handle[NCCL_NET_HANDLE_BYTES] = { 0 };
	int64_t start;
	int rc = 0, fd;

	(void)state;
	fd = open(hang, O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
	assert_true(fd >= 0 && close(fd) == 0);
	for (unsigned i = 0; i < 200 && rc == 0; i++) {
		struct nn_call *c;

		rc = dr_nn_call_connect(service, handle, &c);
		if (rc == 0) {
			(void)poll(NULL, 0, 5);
			dr_nn_call_drop(&c);
		}
	}
	assert_int_equal(rc, -EAGAIN);
	start = dr_now_ns();
	dr_nn_service_close(service);
	assert_true(dr_now_ns() - start < 30 * DR_NS_PER_S);
	assert_int_equal(dr_nn_service_open(host, 0, &none, &service), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_meet),
		cmocka_unit_test(accept_is_given_up),
		cmocka_unit_test(connect_is_given_up),
		cmocka_unit_test(connect_never_returns),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
