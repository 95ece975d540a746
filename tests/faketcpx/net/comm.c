/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/tcpx.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Memory and requests, and what a caller must not do with them. */

void tcpx_misuse(const char *fmt, ...)
{
	va_list ap;

	(void)fputs("faketcpx: ", stderr);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	abort(); /* lint-ok: the plugin's purpose: a caller that errs is found */
}

struct tcpx_comm *tcpx_comm_new(bool is_send)
{
	struct tcpx_comm *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	(void)pthread_mutex_init(&c->lock, NULL);
	c->is_send = is_send;
	c->recv_sync = tcpx_settings.recv_sync;
	c->ctrl_fd = -1;
	c->request = calloc(TCPX_REQUESTS_MAX, sizeof(*c->request));
	if (!c->request) {
		(void)tcpx_close(c);
		return NULL;
	}
	return c;
}

enum min_result tcpx_close(void *comm)
{
	struct tcpx_comm *c = comm;
	enum min_result result;

	if (!c)
		return MIN_OK;
	if (!c->is_send && c->freed < c->complete)
		min_log(MIN_LEVEL_WARN, "close with %llu complete receives that were not consumed",
			(unsigned long long)(c->complete - c->freed));
	if (c->ctrl_fd >= 0)
		(void)close(c->ctrl_fd);
	for (unsigned i = 0; i < c->n_socks; i++)
		(void)close(c->sock[i].fd);
	while (!LIST_EMPTY(&c->mrs)) {
		struct tcpx_mr *mr = LIST_FIRST(&c->mrs);

		LIST_REMOVE(mr, next);
		free(mr);
	}
	tcpx_bounce_fini(c);
	result = tcpx_gpu_close(&c->gpu);
	(void)pthread_mutex_destroy(&c->lock);
	free(c->request);
	free(c);
	return result;
}

/* A sender copies out of GPU memory, a receiver only hands its address back. */
static enum min_result use_gpu(struct tcpx_comm *c, const void *data)
{
	enum min_result result = MIN_OK;

	if (!tcpx_gpu_knows(data))
		tcpx_misuse("regMr of CUDA memory at %p, which is no GPU memory", data);
	if (!c->is_send)
		return MIN_OK;
	(void)pthread_mutex_lock(&c->lock);
	result = tcpx_gpu_open(&c->gpu, c->n_socks);
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

enum min_result tcpx_reg(void *comm, void *data, int size, int type, void **mh)
{
	struct tcpx_comm *c = comm;
	struct tcpx_mr *mr;

	if (!c || size < 0 || (type != MIN_PTR_HOST && type != TCPX_PTR_CUDA))
		tcpx_misuse("regMr of %d bytes of type %d", size, type);
	if (type == TCPX_PTR_CUDA && (uintptr_t)data % TCPX_PAGE != 0)
		tcpx_misuse(
			"regMr of CUDA memory at %p, which is no multiple of %d", data, TCPX_PAGE);
	if (tcpx_settings.cuda && type == TCPX_PTR_CUDA && use_gpu(c, data) != MIN_OK)
		return MIN_CUDA_ERROR;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return min_failed(ENOMEM, "a registration");
	mr->comm = c;
	mr->data = data;
	mr->size = (size_t)size;
	mr->type = type;
	(void)pthread_mutex_lock(&c->lock);
	LIST_INSERT_HEAD(&c->mrs, mr, next);
	(void)pthread_mutex_unlock(&c->lock);
	*mh = mr;
	return MIN_OK;
}

enum min_result tcpx_dereg(void *comm, void *mh)
{
	struct tcpx_comm *c = comm;
	struct tcpx_mr *mr = mh;

	if (!mr)
		return MIN_OK;
	if (!c || mr->comm != c)
		tcpx_misuse("deregMr of memory of another comm");
	(void)pthread_mutex_lock(&c->lock);
	for (uint64_t no = c->complete; no < c->posted; no++)
		if (c->request[no % TCPX_REQUESTS_MAX].mr == mr)
			c->ended = true;
	LIST_REMOVE(mr, next);
	(void)pthread_mutex_unlock(&c->lock);
	free(mr);
	return MIN_OK;
}

static void check_memory(const struct tcpx_comm *c, const void *data, int size, void *mh)
{
	const char *what = c->is_send ? "send" : "receive";
	const uint8_t *start = data;
	const struct tcpx_mr *mr = mh;

	if (!mr)
		tcpx_misuse("a %s without registration", what);
	if (mr->comm != c)
		tcpx_misuse("a %s of memory that another comm has registered", what);
	if (start < mr->data || (size_t)size > mr->size ||
		(size_t)(start - mr->data) > mr->size - (size_t)size)
		tcpx_misuse("a %s of %d bytes at %p, which is not registered: %p to %p is", what,
			size, data, (const void *)mr->data, (const void *)(mr->data + mr->size));
	if (!c->is_send && mr->type == TCPX_PTR_CUDA && (uintptr_t)data % TCPX_PAGE != 0)
		tcpx_misuse("a receive into CUDA memory at %p, which is no multiple of %d", data,
			TCPX_PAGE);
}

static void check_room(const struct tcpx_comm *c)
{
	if (c->posted - c->freed < TCPX_REQUESTS_MAX)
		return;
	if (!c->is_send && c->complete > c->freed)
		tcpx_misuse(
			"more than %d receives; %llu are complete, but irecvConsumed is missing",
			TCPX_REQUESTS_MAX, (unsigned long long)(c->complete - c->freed));
	tcpx_misuse("more than %d %s", TCPX_REQUESTS_MAX, c->is_send ? "sends" : "receives");
}

static enum min_result post(struct tcpx_comm *c, void *data, int size, void *mh, void **request)
{
	struct tcpx_request *r;

	(void)pthread_mutex_lock(&c->lock);
	check_memory(c, data, size, mh);
	check_room(c);
	r = &c->request[c->posted % TCPX_REQUESTS_MAX];
	r->comm = c;
	r->no = c->posted++;
	r->mr = mh;
	r->data = data;
	r->room = (uint32_t)size;
	r->size = c->is_send ? (uint32_t)size : 0;
	r->known = c->is_send;
	r->in_gpu = tcpx_settings.cuda && r->mr->type == TCPX_PTR_CUDA;
	r->offset = r->moved = 0;
	r->fragments = r->pages = 0;
	*request = r;
	(void)pthread_mutex_unlock(&c->lock);
	return MIN_OK;
}

enum min_result tcpx_isend(void *scomm, void *data, int size, int tag, void *mh, void **request)
{
	struct tcpx_comm *c = scomm;

	(void)tag;
	if (!c || !c->is_send || size < 0)
		tcpx_misuse("isend of %d bytes on what does not send", size);
	if (size > TCPX_RECEIVE_MAX)
		tcpx_misuse("isend of %d bytes, %d is the limit", size, TCPX_RECEIVE_MAX);
	if (tcpx_settings.chunk == 0 && size > 0)
		tcpx_misuse("isend without NCCL_DYNAMIC_CHUNK_SIZE would never end");
	return post(c, data, size, mh, request);
}

enum min_result tcpx_irecv(
	void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request)
{
	struct tcpx_comm *c = rcomm;

	(void)tags;
	if (n != 1)
		tcpx_misuse("irecv of %d buffers, 1 is possible", n);
	if (!c || c->is_send || sizes[0] < 0)
		tcpx_misuse("irecv of %d bytes on what does not receive", sizes[0]);
	if (!c->device)
		tcpx_misuse("irecv on a comm whose accept got no place for the device handle");
	if (sizes[0] > TCPX_RECEIVE_MAX)
		tcpx_misuse("irecv of %d bytes, %d is the limit", sizes[0], TCPX_RECEIVE_MAX);
	return post(c, data[0], sizes[0], mhs[0], request);
}

enum min_result tcpx_test(void *request, int *done, int *size)
{
	struct tcpx_request *r = request;
	enum min_result result;
	struct tcpx_comm *c;

	(void)size; /* Google's does not write it. */
	*done = 0;
	if (!r || !r->comm)
		tcpx_misuse("test of no request");
	c = r->comm;
	(void)pthread_mutex_lock(&c->lock);
	if (c->complete == c->posted || r->no < c->complete)
		tcpx_misuse("test of request %llu, which is complete", (unsigned long long)r->no);
	if (r->no != c->complete)
		tcpx_misuse("test of request %llu out of order: the oldest one is %llu",
			(unsigned long long)r->no, (unsigned long long)c->complete);
	result = tcpx_progress(c);
	if (result == MIN_OK && c->complete < c->handed && r->moved == r->size) {
		if (!c->is_send)
			result = c->error = tcpx_bounce_publish(c, r);
		if (result == MIN_OK) {
			*done = 1;
			c->complete++;
			c->freed += c->is_send;
		}
	}
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

enum min_result tcpx_consumed(void *rcomm, int n, void *request)
{
	struct tcpx_request *r = request;
	struct tcpx_comm *c = rcomm;
	enum min_result result;

	if (n != 1 || !c || c->is_send || !r || r->comm != c)
		tcpx_misuse("irecvConsumed of %d requests, or of none of this comm", n);
	(void)pthread_mutex_lock(&c->lock);
	if (r->no < c->freed)
		tcpx_misuse("irecvConsumed twice for receive %llu", (unsigned long long)r->no);
	if (r->no >= c->complete)
		tcpx_misuse("irecvConsumed of receive %llu, which is not complete",
			(unsigned long long)r->no);
	if (r->no != c->freed)
		tcpx_misuse("irecvConsumed of receive %llu out of order: the oldest one is %llu",
			(unsigned long long)r->no, (unsigned long long)c->freed);
	result = tcpx_bounce_recycle(c, r);
	if (result != MIN_OK)
		c->error = result;
	c->freed++;
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}
