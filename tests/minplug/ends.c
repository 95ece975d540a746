/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/ends.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };

static void *lib;

struct net ends_load(int version)
{
	char exe[PATH_MAX], path[PATH_MAX + 32];
	struct net n;

	if (!lib) {
		ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

		assert_true(len > 0);
		exe[len] = '\0';
		(void)snprintf(path, sizeof(path), "%s/libnccl-net-min.so", dirname(exe));
		lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!lib)
			(void)fprintf(stderr, "%s\n", dlerror());
		assert_non_null(lib);
	}
	n = net_load(lib, version);
	assert_non_null(n.table);
	return n;
}

bool ends_in_time(int64_t start)
{
	return dr_now_ns() - start < PATIENCE_S * INT64_C(1000000000);
}

void ends_init(struct ends *e, int version)
{
	memset(e, 0, sizeof(*e));
	e->net = ends_load(version);
	assert_int_equal(e->net.init(&e->net, NULL, &e->ctx), MIN_OK);
	assert_int_equal(e->net.listen(&e->net, e->ctx, 0, e->handle, &e->lcomm), MIN_OK);
	assert_non_null(e->lcomm);
}

void ends_connect(struct ends *e)
{
	uint8_t handle[MIN_HANDLE_BYTES];
	int64_t start = dr_now_ns();

	memcpy(handle, e->handle, sizeof(handle));
	e->scomm = e->rcomm = NULL;
	while (!e->scomm || !e->rcomm) {
		if (!e->scomm)
			assert_int_equal(
				e->net.connect(&e->net, e->ctx, 0, handle, &e->scomm), MIN_OK);
		if (!e->rcomm)
			assert_int_equal(e->net.accept(&e->net, e->lcomm, &e->rcomm), MIN_OK);
		assert_true(ends_in_time(start));
		(void)sched_yield();
	}
}

void ends_fini(struct ends *e)
{
	assert_int_equal(e->net.close_send(&e->net, e->scomm), MIN_OK);
	assert_int_equal(e->net.close_recv(&e->net, e->rcomm), MIN_OK);
	assert_int_equal(e->net.close_listen(&e->net, e->lcomm), MIN_OK);
	assert_int_equal(e->net.finalize(&e->net, e->ctx), MIN_OK);
}

enum min_result ends_wait(const struct net *n, void *request)
{
	enum min_result result = MIN_OK;
	int64_t start = dr_now_ns();
	int done = 0;

	assert_non_null(request);
	while (!done && result == MIN_OK) {
		result = n->test(n, request, &done, NULL);
		assert_true(ends_in_time(start));
		(void)sched_yield();
	}
	assert_true(done == (result == MIN_OK));
	return result;
}
