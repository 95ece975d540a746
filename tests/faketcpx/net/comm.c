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

	(void)fprintf(stderr, "%s: ", tcpx_kind.name);
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
	if (c->freed < c->complete)
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
	tcpx_kind.fini(c);
	result = tcpx_gpu_close(&c->gpu);
	(void)pthread_mutex_destroy(&c->lock);
	free(c->request);
	free(c);
	return result;
}

enum min_result tcpx_use_gpu(struct tcpx_comm *c, const void *data)
{
	enum min_result result = MIN_OK;

	if (!tcpx_settings.cuda)
		return MIN_OK;
	if (!tcpx_gpu_knows(data))
		tcpx_misuse("regMr of CUDA memory at %p, which is no GPU memory", data);
	/* Of receives the address is only handed back. */
	if (!c->is_send && tcpx_kind.unpack)
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
	if (tcpx_kind.unpack && type == TCPX_PTR_CUDA && (uintptr_t)data % TCPX_PAGE != 0)
		tcpx_misuse(
			"regMr of CUDA memory at %p, which is no multiple of %d", data, TCPX_PAGE);
	if (type == TCPX_PTR_CUDA && tcpx_use_gpu(c, data) != MIN_OK)
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
	for (uint64_t no = c->complete; no < c->posted; no++) {
		const struct tcpx_request *r = &c->request[no % TCPX_REQUESTS_MAX];

		if (r->mr == mr && !r->reported)
			c->ended = true;
	}
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
	if (tcpx_kind.unpack && !c->is_send && mr->type == TCPX_PTR_CUDA &&
		(uintptr_t)data % TCPX_PAGE != 0)
		tcpx_misuse("a receive into CUDA memory at %p, which is no multiple of %d", data,
			TCPX_PAGE);
}

static bool has_room(const struct tcpx_comm *c)
{
	if (c->posted - c->freed < TCPX_REQUESTS_MAX)
		return true;
	if (!tcpx_kind.unpack)
		return false;
	if (!c->is_send && c->complete > c->freed)
		tcpx_misuse(
			"more than %d receives; %llu are complete, but irecvConsumed is missing",
			TCPX_REQUESTS_MAX, (unsigned long long)(c->complete - c->freed));
	tcpx_misuse("more than %d %s", TCPX_REQUESTS_MAX, c->is_send ? "sends" : "receives");
}

static void fill(struct tcpx_comm *c, struct tcpx_request *r, void *data, int size, void *mh)
{
	r->head.comm = c;
	r->no = c->posted++;
	r->mr = mh;
	r->data = data;
	r->room = (uint32_t)size;
	r->size = c->is_send ? (uint32_t)size : 0;
	r->known = c->is_send;
	r->in_gpu = tcpx_settings.cuda && r->mr->type == TCPX_PTR_CUDA;
	r->offset = r->moved = 0;
	r->fragments = r->pages = 0;
	r->reported = false;
	if (!c->is_send)
		tcpx_kind.posted(c, r);
}

static enum min_result post(struct tcpx_comm *c, void *data, int size, void *mh, void **request)
{
	struct tcpx_request *r = NULL;

	(void)pthread_mutex_lock(&c->lock);
	check_memory(c, data, size, mh);
	if (has_room(c)) {
		r = &c->request[c->posted % TCPX_REQUESTS_MAX];
		fill(c, r, data, size, mh);
	}
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
	if ((uint32_t)size > tcpx_kind.message_max)
		tcpx_misuse("isend of %d bytes, %u is the limit", size, tcpx_kind.message_max);
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
	if (tcpx_kind.unpack && !c->device)
		tcpx_misuse("irecv on a comm whose accept got no place for the device handle");
	if ((uint32_t)sizes[0] > tcpx_kind.message_max)
		tcpx_misuse("irecv of %d bytes, %u is the limit", sizes[0], tcpx_kind.message_max);
	return post(c, data[0], sizes[0], mhs[0], request);
}

static void check_test(const struct tcpx_comm *c, const struct tcpx_request *r)
{
	if (c->complete == c->posted || r->no < c->complete || r->reported)
		tcpx_misuse("test of request %llu, which is complete", (unsigned long long)r->no);
	if (tcpx_kind.unpack && r->no != c->complete)
		tcpx_misuse("test of request %llu out of order: the oldest one is %llu",
			(unsigned long long)r->no, (unsigned long long)c->complete);
}

static void report(struct tcpx_comm *c, struct tcpx_request *r, int *size)
{
	/* Google's does not write it. */
	if (!tcpx_kind.unpack && size)
		*size = (int)r->size;
	r->reported = true;
	while (c->complete < c->posted && c->request[c->complete % TCPX_REQUESTS_MAX].reported) {
		c->complete++;
		c->freed += c->is_send || !tcpx_kind.unpack;
	}
}

enum min_result tcpx_test(void *request, int *done, int *size)
{
	struct tcpx_request *r = request;
	enum min_result result;
	struct tcpx_comm *c;

	*done = 0;
	if (!r || !r->head.comm)
		tcpx_misuse("test of no request");
	c = r->head.comm;
	(void)pthread_mutex_lock(&c->lock);
	check_test(c, r);
	result = tcpx_progress(c);
	if (result == MIN_OK && r->no < c->handed && r->moved == r->size) {
		if (!c->is_send)
			result = c->error = tcpx_kind.complete(c, r);
		if (result == MIN_OK) {
			*done = 1;
			report(c, r, size);
		}
	}
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}
