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
 * GPU memory that a plugin receives into itself: how it is registered, and that a receive is over when the plugin has flushed it.
 * The plugin's requests: 1 to 99 are receives, 100 + n the flush of receive n.
 */
enum { LEN = 16, FLUSH = 100, FD = 77, OFF = 4096 };

static struct {
	uintptr_t posted, complete, reported; /* receives, counted */
	uintptr_t flushes, flushed,
		told;		  /* flushes that were started, are done, and were reported so */
	int size;		  /* of the next receives */
	bool nothing_to_wait_for; /* iflush gives no request */
	enum nccl_result result;  /* of iflush */
	int type, fd;		  /* of the registration */
	uint64_t off;
	bool closed;
} plugin;

static uint8_t memory[64 * LEN];
static struct nn_queue queue;
static struct dr_mr mr;
static struct nn_mem mem;

static enum nccl_result reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	(void)comm;
	assert_ptr_equal(data, memory);
	assert_int_equal(size, sizeof(memory));
	plugin.type = type;
	*mhandle = memory;
	return NCCL_SUCCESS;
}

static enum nccl_result reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t off, int fd, void **mhandle)
{
	plugin.fd = fd;
	plugin.off = off;
	return reg(comm, data, size, type, mhandle);
}

static enum nccl_result dereg(void *comm, void *mhandle)
{
	(void)comm;
	assert_ptr_equal(mhandle, memory);
	return NCCL_SUCCESS;
}

static enum nccl_result irecv(
	void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	(void)comm;
	(void)data;
	(void)sizes;
	(void)tags;
	(void)mhandles;
	assert_int_equal(n, 1);
	*request = (void *)++plugin.posted;
	return NCCL_SUCCESS;
}

static enum nccl_result isend(
	void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	(void)comm;
	(void)data;
	(void)size;
	(void)tag;
	(void)mhandle;
	*request = (void *)++plugin.posted;
	return NCCL_SUCCESS;
}

static enum nccl_result flush(
	void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	uintptr_t k = ++plugin.flushes;

	(void)comm;
	assert_true(k <= plugin.reported); /* not before the receive is complete */
	assert_int_equal(n, 1);
	assert_ptr_equal(data[0], memory + (k - 1) * LEN);
	assert_int_equal(sizes[0], plugin.size);
	assert_ptr_equal(mhandles[0], memory);
	*request = plugin.nothing_to_wait_for ? NULL : (void *)(FLUSH + k);
	return plugin.result;
}

static enum nccl_result test(void *request, int *done, int *size)
{
	uintptr_t k = (uintptr_t)request;

	if (k > FLUSH) {
		assert_null(size); /* as NCCL calls it */
		assert_int_equal(k - FLUSH, plugin.told + 1);
		*done = k - FLUSH <= plugin.flushed;
		plugin.told += *done ? 1 : 0;
		return NCCL_SUCCESS;
	}
	assert_int_equal(k, plugin.reported + 1);
	*done = k <= plugin.complete;
	plugin.reported += *done ? 1 : 0;
	*size = plugin.size;
	return NCCL_SUCCESS;
}

static enum nccl_result close_comm(void *comm)
{
	(void)comm;
	plugin.closed = true;
	return NCCL_SUCCESS;
}

static const struct dr_nccl net = { .name = "test",
	.version = 9,
	.test = test,
	.flush = flush,
	.dereg_mr = dereg,
	.close_recv = close_comm,
	.close_send = close_comm,
	.reg_mr.wide = reg,
	.reg_dmabuf = reg_dmabuf,
	.isend.wide = isend,
	.irecv.wide = irecv };

static void post(unsigned n)
{
	for (; n > 0; n--)
		assert_int_equal(
			dr_nn_queue_post(&queue, &mem, memory + plugin.posted * LEN, LEN, 1), 0);
}

static int over(void)
{
	size_t size = 0;
	int rc = dr_nn_queue_test(&queue, &size);

	if (rc == 1 && !queue.sends)
		assert_int_equal(size, plugin.size);
	return rc;
}

static int setup(void **state)
{
	(void)state;
	memset(&plugin, 0, sizeof(plugin));
	plugin.size = LEN;
	plugin.fd = -1;
	mr = (struct dr_mr){ .base = memory, .len = sizeof(memory), .cuda = true, .flush = true };
	mem = (struct nn_mem){ .base = mr.base, .len = mr.len, .mr = &mr };
	dr_nn_queue_open(&queue, &net, &plugin, false, 16);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(dr_nn_queue_close(&queue), 0);
	assert_true(plugin.closed);
	return 0;
}

static void a_receive_is_over_when_it_is_flushed(void **state)
{
	(void)state;
	post(3);
	assert_int_equal(plugin.type, NCCL_PTR_CUDA);
	assert_int_equal(plugin.fd, -1);
	assert_int_equal(over(), 0);
	plugin.complete = 2;
	assert_int_equal(over(), 0);
	assert_int_equal(plugin.flushes, 2); /* at once, without waiting for the first */
	plugin.flushed = 1;
	assert_int_equal(over(), 1);
	assert_int_equal(over(), 0);
	plugin.complete = 3;
	plugin.flushed = 3;
	assert_int_equal(over(), 1);
	assert_int_equal(over(), 1);
	assert_int_equal(over(), 0);
	assert_int_equal(nn_queue_used(&queue), 0);
	assert_int_equal(plugin.told, 3);
}

static void a_flush_that_is_done_at_once(void **state)
{
	(void)state;
	plugin.nothing_to_wait_for = true;
	post(2);
	plugin.complete = 2;
	assert_int_equal(over(), 1);
	assert_int_equal(over(), 1);
	assert_int_equal(plugin.flushes, 2);
}

static void what_needs_no_flush(void **state)
{
	(void)state;
	plugin.size = 0; /* nothing was received */
	post(1);
	plugin.complete = 1;
	assert_int_equal(over(), 1);
	plugin.size = LEN;
	mr.flush = false; /* the GPU sees what the NIC has completed */
	post(1);
	plugin.complete = 2;
	assert_int_equal(over(), 1);
	queue.sends = true;
	mr.flush = true;
	post(1);
	plugin.complete = 3;
	assert_int_equal(over(), 1);
	assert_int_equal(plugin.flushes, 0);
}

static void a_flush_that_fails_ends_the_comm(void **state)
{
	(void)state;
	plugin.result = NCCL_REMOTE_ERROR;
	post(1);
	plugin.complete = 1;
	assert_int_equal(over(), -ECONNRESET);
	assert_string_equal(queue.failed, "iflush");
	assert_int_equal(over(), -ECONNRESET);
}

static void memory_with_a_dma_buf_is_registered_by_it(void **state)
{
	(void)state;
	mr.dmabuf = true;
	mr.dmabuf_fd = FD;
	mr.dmabuf_off = OFF;
	post(1);
	assert_int_equal(plugin.type, NCCL_PTR_CUDA);
	assert_int_equal(plugin.fd, FD);
	assert_int_equal(plugin.off, OFF);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(a_receive_is_over_when_it_is_flushed),
		T(a_flush_that_is_done_at_once), T(what_needs_no_flush),
		T(a_flush_that_fails_ends_the_comm), T(memory_with_a_dma_buf_is_registered_by_it) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
