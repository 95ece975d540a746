/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/net_priv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/*
 * Receives whose pieces a GPU unpacks: a plugin and a GPU in memory, each as slow as the test says. The plugin refuses what
 * GPUDirect-TCPX does: a test out of order or of a request that is complete, irecvConsumed out of order.
 */
enum { LEN = 16 };

static struct {
	unsigned posted, complete, reported, consumed; /* counts */
	int fails_at;				       /* test of this request fails; -1: none */
	int type;				       /* of the last registration */
	bool closed, early;			       /* before the GPU was done */
} plugin;

static struct {
	unsigned started, finished, waits, reads;
	int refuse, error; /* of the next start; of done */
	struct dr_unpack_work work[64];
	enum dr_unpack_how how;
} gpu;

static struct nn_unpack_meta meta;
static uint8_t bounce[NN_UNPACK_SLOTS * LEN], memory[64 * LEN];
static struct nn_queue queue;
static struct dr_mr mr;
static struct nn_mem mem;

static enum nccl_result reg(void *comm, void *data, int size, int type, void **mhandle)
{
	(void)comm;
	(void)data;
	(void)size;
	plugin.type = type;
	*mhandle = &plugin;
	return NCCL_SUCCESS;
}

static enum nccl_result dereg(void *comm, void *mhandle)
{
	(void)comm;
	assert_ptr_equal(mhandle, &plugin);
	return NCCL_SUCCESS;
}

static enum nccl_result irecv(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	(void)comm;
	(void)data;
	(void)tags;
	(void)mhandles;
	assert_int_equal(n, 1);
	assert_int_equal(sizes[0], LEN);
	*request = (void *)(uintptr_t)++plugin.posted;
	return NCCL_SUCCESS;
}

static enum nccl_result test(void *request, int *done, int *size)
{
	unsigned k = (unsigned)(uintptr_t)request - 1, slot = k % NN_UNPACK_SLOTS;

	(void)size;
	assert_int_equal(k, plugin.reported);
	if (plugin.fails_at == (int)k)
		return NCCL_SYSTEM_ERROR;
	*done = k < plugin.complete;
	if (!*done)
		return NCCL_SUCCESS;
	plugin.reported++;
	assert_true(k < plugin.consumed + NN_UNPACK_SLOTS);
	memset(bounce + slot * LEN, (int)k + 1, LEN);
	meta.cnt[slot] = 2;
	meta.mem[slot][0] = (struct nn_unpack_piece){ slot * LEN + 4, LEN - 4, 4 };
	meta.mem[slot][1] = (struct nn_unpack_piece){ slot * LEN, 4, 0 };
	return NCCL_SUCCESS;
}

static enum nccl_result consumed(void *comm, int n, void *request)
{
	(void)comm;
	assert_int_equal(n, 1);
	assert_int_equal((unsigned)(uintptr_t)request - 1, plugin.consumed);
	assert_true(plugin.consumed < plugin.reported);
	/* The GPU reads pieces and list until then. */
	assert_true(gpu.started <= gpu.finished || plugin.consumed < gpu.finished);
	plugin.consumed++;
	return NCCL_SUCCESS;
}

static enum nccl_result close_recv(void *comm)
{
	(void)comm;
	plugin.early = gpu.finished != gpu.started;
	plugin.closed = true;
	return NCCL_SUCCESS;
}

static int gpu_enter(void *arg, struct dr_err *e)
{
	(void)arg;
	(void)e;
	return 0;
}

static int gpu_read(void *arg, void *host, const void *dev, size_t len, struct dr_err *e)
{
	(void)arg;
	(void)e;
	gpu.reads++;
	memcpy(host, dev, len);
	return 0;
}

static int gpu_start(void *arg, const struct dr_unpack_work *w, enum dr_unpack_how how,
	uint64_t *ticket, struct dr_err *e)
{
	(void)arg;
	(void)e;
	if (gpu.refuse)
		return gpu.refuse;
	gpu.how = how;
	gpu.work[gpu.started] = *w;
	*ticket = ++gpu.started;
	return 0;
}

/* Does the next n pieces of work. */
static void gpu_works(unsigned n)
{
	for (; n > 0; n--, gpu.finished++) {
		const struct dr_unpack_work *w = &gpu.work[gpu.finished];
		const struct nn_unpack_piece *x = w->piece;

		for (unsigned i = 0; i < w->n; i++)
			memcpy((uint8_t *)w->dst + x[i].dst_off,
				(const uint8_t *)w->src + x[i].src_off, x[i].len);
	}
}

static int gpu_done(void *arg, uint64_t *ticket, struct dr_err *e)
{
	(void)arg;
	(void)e;
	*ticket = gpu.finished;
	return gpu.error;
}

static void gpu_wait(void *arg)
{
	(void)arg;
	gpu.waits++;
	gpu_works(gpu.started - gpu.finished);
}

static const struct dr_rail_gpu_ops ops = {
	.enter = gpu_enter, .read = gpu_read, .start = gpu_start, .done = gpu_done, .wait = gpu_wait
};

static void post(unsigned n)
{
	for (; n > 0; n--)
		assert_int_equal(dr_nn_queue_post(&queue, &mem,
					 memory + (size_t)plugin.posted * LEN, LEN, 1),
			0);
}

/* The k-th receive is whole, and no other byte of its place was written. */
static void whole(unsigned k)
{
	for (unsigned i = 0; i < LEN; i++)
		assert_int_equal(memory[k * LEN + i], k + 1);
}

static int over(void)
{
	size_t size = 0;
	int rc = dr_nn_queue_test(&queue, &size);

	if (rc == 1)
		assert_int_equal(size, LEN);
	return rc;
}

static const struct dr_nccl net = { .name = "test",
	.version = 7,
	.test = test,
	.consumed = consumed,
	.dereg_mr = dereg,
	.close_recv = close_recv,
	.reg_mr.narrow = reg,
	.irecv.narrow = irecv };

static int setup(void **state)
{
	(void)state;
	memset(&plugin, 0, sizeof(plugin));
	plugin.fails_at = -1;
	memset(&gpu, 0, sizeof(gpu));
	memset(&meta, 0, sizeof(meta));
	memset(memory, 0xee, sizeof(memory));
	mr = (struct dr_mr){ .base = memory, .len = sizeof(memory), .cuda = true };
	mem = (struct nn_mem){ .base = mr.base, .len = mr.len, .mr = &mr };
	dr_nn_queue_open(&queue, &net, &plugin, false, 16);
	queue.pieces = true;
	queue.unpack = (struct nn_unpack_handle){ &meta, bounce, 0 };
	queue.gpu = (struct dr_rail_gpu){ .ops = &ops };
	queue.mode = NN_UNPACK_KERNEL;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (queue.comm)
		assert_int_equal(dr_nn_queue_close(&queue), 0);
	assert_true(plugin.closed);
	return 0;
}

static void a_receive_is_over_when_the_gpu_has_unpacked_it(void **state)
{
	(void)state;
	post(3);
	assert_int_equal(plugin.type, NCCL_PTR_CUDA);
	assert_int_equal(over(), 0);
	plugin.complete = 2;
	assert_int_equal(over(), 0);
	assert_int_equal(gpu.started, 2); /* at once, without waiting for the first */
	assert_int_equal(gpu.how, DR_UNPACK_KERNEL);
	assert_int_equal(gpu.work[1].len, LEN);
	assert_int_equal(plugin.consumed, 0);
	gpu_works(1);
	assert_int_equal(over(), 1);
	whole(0);
	assert_int_equal(plugin.consumed, 1);
	assert_int_equal(over(), 0);
	gpu_works(1);
	plugin.complete = 3;
	assert_int_equal(over(), 1);
	whole(1);
	gpu_works(1);
	assert_int_equal(over(), 1);
	whole(2);
	assert_int_equal(nn_queue_used(&queue), 0);
}

static void slots_go_round(void **state)
{
	(void)state;
	for (unsigned k = 0; k < 40; k++) {
		post(1);
		plugin.complete = k + 1;
		assert_int_equal(over(), 0);
		gpu_works(1);
		assert_int_equal(over(), 1);
		whole(k);
	}
	post(16);
	plugin.complete = 56;
	size_t size;
	assert_int_equal(dr_nn_queue_post(&queue, &mem, memory, LEN, 1), -EAGAIN);
	for (unsigned k = 0; k < 16; k++) {
		assert_int_equal(dr_nn_queue_test(&queue, &size), 0);
		gpu_works(1);
		assert_int_equal(over(), 1);
	}
	assert_int_equal(plugin.consumed, 56);
}

static void each_mode_reaches_the_gpu(void **state)
{
	static const enum dr_unpack_how how[] = { DR_UNPACK_KERNEL, DR_UNPACK_D2D, DR_UNPACK_HOST };

	(void)state;
	for (unsigned k = 0; k < DR_ARRAY_LEN(how); k++) {
		queue.mode = (enum nn_unpack_mode)(NN_UNPACK_KERNEL + k);
		post(1);
		plugin.complete++;
		assert_int_equal(over(), 0);
		assert_int_equal(gpu.how, how[k]);
		gpu_works(1);
		assert_int_equal(over(), 1);
	}
	queue.mode = NN_UNPACK_NONE;
	post(1);
	plugin.complete++;
	assert_int_equal(over(), 1);
	assert_int_equal(gpu.started, 3);
	assert_int_equal(memory[3 * LEN], 0xee);
}

static void messages_in_host_memory_are_read(void **state)
{
	(void)state;
	mr.cuda = false;
	post(1);
	assert_int_equal(plugin.type, NCCL_PTR_HOST);
	plugin.complete = 1;
	assert_int_equal(over(), 1);
	assert_int_equal(gpu.reads, 2);
	assert_int_equal(gpu.started, 0);
	whole(0);
}

static void a_gpu_that_is_full_is_asked_again(void **state)
{
	(void)state;
	post(2);
	plugin.complete = 2;
	gpu.refuse = -EAGAIN;
	assert_int_equal(over(), 0);
	assert_int_equal(over(), 0);
	assert_int_equal(plugin.reported, 2);
	gpu.refuse = 0;
	assert_int_equal(over(), 0);
	gpu_works(2);
	assert_int_equal(over(), 1);
	assert_int_equal(over(), 1);
	whole(1);
}

static void what_came_before_an_error_is_over_first(void **state)
{
	(void)state;
	post(2);
	plugin.complete = 1;
	plugin.fails_at = 1;
	assert_int_equal(over(), 0);
	gpu_works(1);
	assert_int_equal(over(), 1);
	whole(0);
	assert_int_equal(over(), -EIO);
	assert_int_equal(over(), -EIO);
	assert_false(queue.gpu_failed);
}

static void an_error_of_the_gpu_is_told_apart(void **state)
{
	(void)state;
	post(2);
	plugin.complete = 2;
	assert_int_equal(over(), 0);
	gpu.error = -EIO;
	assert_int_equal(over(), -EIO);
	assert_true(queue.gpu_failed);
	assert_int_equal(plugin.consumed, 0);
}

static void pieces_that_do_not_fit_never_reach_the_gpu(void **state)
{
	(void)state;
	post(1);
	plugin.complete = 1;
	queue.request[0].cap = LEN - 1;
	assert_int_equal(over(), -EIO);
	assert_int_equal(gpu.started, 0);
	assert_false(queue.gpu_failed);
}

static void close_waits_for_the_gpu(void **state)
{
	(void)state;
	post(3);
	plugin.complete = 2;
	assert_int_equal(over(), 0);
	assert_int_equal(dr_nn_queue_close(&queue), 0);
	assert_true(plugin.closed);
	assert_false(plugin.early);
	assert_int_equal(gpu.waits, 1);
	assert_int_equal(nn_queue_used(&queue), 0);
}

/* A part of the work may be running. */
static void close_waits_after_a_failed_start_too(void **state)
{
	(void)state;
	post(1);
	plugin.complete = 1;
	gpu.refuse = -EIO;
	assert_int_equal(over(), -EIO);
	assert_int_equal(dr_nn_queue_close(&queue), 0);
	assert_int_equal(gpu.waits, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(a_receive_is_over_when_the_gpu_has_unpacked_it),
		T(slots_go_round), T(each_mode_reaches_the_gpu),
		T(messages_in_host_memory_are_read), T(a_gpu_that_is_full_is_asked_again),
		T(what_came_before_an_error_is_over_first), T(an_error_of_the_gpu_is_told_apart),
		T(pieces_that_do_not_fit_never_reach_the_gpu), T(close_waits_for_the_gpu),
		T(close_waits_after_a_failed_start_too) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
