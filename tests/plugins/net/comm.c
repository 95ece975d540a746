/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/plugins/net/bugs.h"

/* Memory and requests, and what a caller must not do with them. */

static _Atomic(struct fn_comm *) receiver; /* the latest, for FN_BUG_EARLY */

struct fn_comm *fn_comm_new(struct fn_ctx *ctx, bool is_send)
{
	struct fn_comm *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->request = calloc(fn_kind->requests, sizeof(*c->request));
	if (!c->request) {
		free(c);
		return NULL;
	}
	(void)pthread_mutex_init(&c->lock, NULL);
	c->is_send = is_send;
	c->ctrl_fd = -1;
	if (!is_send)
		atomic_store(&receiver, c);
	fn_object_add(&c->object, ctx, FN_COMM);
	return c;
}

enum fn_result fn_comm_free(struct fn_comm *c)
{
	enum fn_result result;

	if (c->freed < c->complete)
		fn_log(FN_LEVEL_WARN, "close with %llu complete receives that were not consumed",
			(unsigned long long)(c->complete - c->freed));
	for (uint64_t no = c->complete; fn_bug(FN_BUG_LATE) && !c->is_send && no < c->posted; no++)
		memset(fn_request(c, no)->part[0].data, 0, fn_request(c, no)->part[0].room);
	if (c->ctrl_fd >= 0)
		(void)close(c->ctrl_fd);
	for (unsigned i = 0; i < c->n_socks; i++)
		if (c->sock[i].fd != c->ctrl_fd)
			(void)close(c->sock[i].fd);
	while (!LIST_EMPTY(&c->mrs)) {
		struct fn_mr *mr = LIST_FIRST(&c->mrs);

		LIST_REMOVE(mr, next);
		free(mr);
	}
	if (fn_kind->pieces)
		fn_bounce_fini(c);
	free(c->receive);
	result = fn_gpu_close(&c->gpu);
	(void)pthread_mutex_destroy(&c->lock);
	free(c->request);
	free(c);
	return result;
}

/* ---- memory ---- */

enum fn_result fn_use_gpu(struct fn_comm *c, const void *data)
{
	enum fn_result result;

	if (!fn_settings.cuda)
		return FN_OK;
	if (!fn_gpu_knows(data))
		fn_misuse("regMr of CUDA memory at %p, which is no GPU memory", data);
	/* Of receives the address is only handed back. */
	if (!c->is_send && fn_kind->pieces)
		return FN_OK;
	(void)pthread_mutex_lock(&c->lock);
	result = fn_gpu_open(&c->gpu, c->n_socks);
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

enum fn_result fn_reg_memory(struct fn_comm *c, const void *data, size_t size, int type, void **mh)
{
	struct fn_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return fn_failed(ENOMEM, "a registration");
	mr->comm = c;
	mr->data = data;
	mr->size = size;
	mr->type = type;
	(void)pthread_mutex_lock(&c->lock);
	LIST_INSERT_HEAD(&c->mrs, mr, next);
	(void)pthread_mutex_unlock(&c->lock);
	*mh = fn_bug(FN_BUG_MHANDLE_NULL) ? NULL : mr;
	return FN_OK;
}

enum fn_result fn_reg(void *comm, void *data, size_t size, int type, void **mh)
{
	struct fn_comm *c = comm;

	FN_ENTER("regMr");
	*mh = NULL;
	if (!c || c->object.kind != FN_COMM || !data || size > INT_MAX ||
		(type != FN_PTR_HOST && !(type == FN_PTR_CUDA && fn_kind->cuda)))
		fn_misuse("regMr of %zu bytes of type %d at %p", size, type, data);
	if (fn_kind->pieces && type == FN_PTR_CUDA && (uintptr_t)data % FN_PAGE != 0)
		fn_misuse("regMr of CUDA memory at %p, which is no multiple of %d", data, FN_PAGE);
	if (type == FN_PTR_CUDA && fn_settings.dmabuf_only) {
		fn_log(FN_LEVEL_WARN, "regMr of CUDA memory, which needs a dma-buf");
		return FN_INTERNAL_ERROR;
	}
	if (type == FN_PTR_CUDA && fn_use_gpu(c, data) != FN_OK)
		return FN_CUDA_ERROR;
	return fn_reg_memory(c, data, size, type, mh);
}

/* Ends the comm if a request that was not reported uses the memory. */
static void end_requests(struct fn_comm *c, const struct fn_mr *mr)
{
	for (uint64_t no = c->complete; no < c->posted; no++) {
		struct fn_request *r = fn_request(c, no);

		for (unsigned i = 0; i < r->n && !r->reported; i++)
			if (r->part[i].mr == mr) {
				r->part[i].mr = NULL;
				c->ended = true;
			}
	}
	if (c->ended && fn_kind->single && c->error == FN_OK) {
		fn_log(FN_LEVEL_INFO, "deregMr with requests outstanding ends the comm");
		c->error = FN_INTERNAL_ERROR;
	}
}

enum fn_result fn_dereg(void *comm, void *mh)
{
	struct fn_comm *c = comm;
	struct fn_mr *mr = mh;

	FN_ENTER("deregMr");
	if (!mr)
		return FN_OK;
	if (!c || mr->comm != c)
		fn_misuse("deregMr of memory of another comm");
	(void)pthread_mutex_lock(&c->lock);
	if (c->receive)
		fn_direct_forget(c, mr);
	end_requests(c, mr);
	LIST_REMOVE(mr, next);
	(void)pthread_mutex_unlock(&c->lock);
	free(mr);
	return FN_OK;
}

static bool holds(const struct fn_mr *mr, const uint8_t *data, size_t size)
{
	return data >= mr->data && size <= mr->size && (size_t)(data - mr->data) <= mr->size - size;
}

static struct fn_mr *registered(
	const struct fn_comm *c, const uint8_t *data, size_t size, struct fn_mr *mr)
{
	const char *what = c->is_send ? "send" : "receive";

	if (!mr && fn_bug(FN_BUG_MHANDLE_NULL)) {
		LIST_FOREACH(mr, &c->mrs, next)
		if (holds(mr, data, size))
			break;
	}
	if (!mr)
		fn_misuse("a %s without registration", what);
	if (mr->comm != c)
		fn_misuse("a %s of memory that another comm has registered", what);
	if (!holds(mr, data, size))
		fn_misuse("a %s of %zu bytes at %p, which is not registered: %p to %p is", what,
			size, (const void *)data, (const void *)mr->data,
			(const void *)(mr->data + mr->size));
	if (fn_kind->pieces && !c->is_send && mr->type == FN_PTR_CUDA &&
		(uintptr_t)data % FN_PAGE != 0)
		fn_misuse("a receive into CUDA memory at %p, which is no multiple of %d",
			(const void *)data, FN_PAGE);
	return mr;
}

/* ---- requests ---- */

static bool has_room(struct fn_comm *c)
{
	uint64_t used = c->posted - c->freed;

	c->busy = fn_bug(FN_BUG_BUSY) && !c->busy;
	if (c->busy || (fn_bug(FN_BUG_FEW_REQUESTS) && !c->is_send && used >= 4))
		return false;
	if (used < fn_kind->requests)
		return true;
	if (!fn_kind->pieces)
		return false;
	if (!c->is_send && c->complete > c->freed)
		fn_misuse("more than %u receives; %llu are complete, but irecvConsumed is missing",
			fn_kind->requests, (unsigned long long)(c->complete - c->freed));
	fn_misuse("more than %u %s", fn_kind->requests, c->is_send ? "sends" : "receives");
}

static void exchange(struct fn_request *a, struct fn_request *b)
{
	struct fn_mr *mr = a->part[0].mr;
	uint8_t *data = a->part[0].data;

	a->part[0].mr = b->part[0].mr;
	a->part[0].data = b->part[0].data;
	b->part[0].mr = mr;
	b->part[0].data = data;
}

static void fill(struct fn_comm *c, struct fn_request *r, const struct fn_request *want)
{
	r->head.comm = c;
	r->no = c->posted++;
	r->n = want->n;
	memcpy(r->part, want->part, sizeof(r->part));
	r->handed = r->n_pieces = 0;
	r->moved = 0;
	r->reported = false;
	if (c->receive)
		fn_direct_posted(c, r);
	if (c->is_send && fn_bug(FN_BUG_ORDER) && r->no % 2 && c->started < r->no)
		exchange(r, fn_request(c, r->no - 1));
}

/* What is wanted, checked, becomes a request. */
static enum fn_result post(struct fn_comm *c, struct fn_request *want, void **out)
{
	struct fn_request *r = NULL;
	enum fn_result result;

	(void)pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < want->n; i++) {
		struct fn_part *p = &want->part[i];

		p->mr = registered(c, p->data, p->room, p->mr);
		p->known = c->is_send;
		p->size = c->is_send ? p->room : 0;
		p->in_gpu = fn_settings.cuda && p->mr->type == FN_PTR_CUDA;
	}
	result = fn_kind->single ? c->error : FN_OK;
	if (result == FN_OK && has_room(c)) {
		r = fn_request(c, c->posted);
		fill(c, r, want);
	}
	*out = r;
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

static struct fn_part part(const char *call, void *data, size_t size, int tag, void *mh)
{
	if (size > fn_kind->message_max)
		fn_misuse("%s of %zu bytes, %u is the limit", call, size, fn_kind->message_max);
	return (struct fn_part){ .mr = mh, .data = data, .tag = tag, .room = (uint32_t)size };
}

enum fn_result fn_isend(void *scomm, void *data, size_t size, int tag, void *mh, void **out)
{
	struct fn_request want = { .n = 1 };
	struct fn_comm *c = scomm;

	FN_ENTER("isend");
	if (fn_bug(FN_BUG_ISEND_UNSET))
		return FN_OK;
	if (!c || !c->is_send)
		fn_misuse("isend on what does not send");
	if (fn_settings.chunk == 0 && size > 0)
		fn_misuse("isend without NCCL_DYNAMIC_CHUNK_SIZE would never end");
	want.part[0] = part("isend", data, size, tag, mh);
	return post(c, &want, out);
}

enum fn_result fn_irecv(
	void *rcomm, int n, void **data, const size_t *sizes, int *tags, void **mhs, void **out)
{
	struct fn_request want = { .n = (unsigned)n };
	struct fn_comm *c = rcomm;

	FN_ENTER("irecv");
	if (n < 1 || n > (int)fn_kind->group)
		fn_misuse("irecv of %d buffers, %u are possible", n, fn_kind->group);
	if (!c || c->is_send)
		fn_misuse("irecv on what does not receive");
	if (fn_kind->pieces && !c->device)
		fn_misuse("irecv on a comm whose accept got no place for the device handle");
	for (int i = 0; i < n; i++)
		want.part[i] = part("irecv", data[i], sizes[i], tags[i], mhs ? mhs[i] : NULL);
	return post(c, &want, out);
}

static void check_test(const struct fn_comm *c, const struct fn_request *r)
{
	if (c->complete == c->posted || r->no < c->complete || r->reported)
		fn_misuse("test of request %llu, which is complete", (unsigned long long)r->no);
	if (fn_kind->in_order && r->no != c->complete)
		fn_misuse("test of request %llu out of order: the oldest one is %llu",
			(unsigned long long)r->no, (unsigned long long)c->complete);
}

static bool is_lost(const struct fn_comm *c, const struct fn_request *r)
{
	if (c->is_send)
		return fn_bug(FN_BUG_LOST_SEND) && c->posted > 5;
	return (fn_bug(FN_BUG_LOST_RECEIVE) && c->posted > 5) ||
	       (fn_bug(FN_BUG_LOST_EMPTY) && r->part[0].size == 0);
}

static bool is_complete(const struct fn_comm *c, const struct fn_request *r)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < r->n; i++) {
		size += r->part[i].size;
		if (!r->part[i].mr)
			return false; /* deregistered */
	}
	return r->handed == r->n && !is_lost(c, r) &&
	       (r->moved == size || (fn_bug(FN_BUG_EARLY) && !c->is_send));
}

static void report(struct fn_comm *c, struct fn_request *r, int *sizes)
{
	for (unsigned i = 0; i < r->n && !fn_kind->in_order && sizes; i++) {
		sizes[i] = (int)r->part[i].size;
		if (!c->is_send && fn_bug(FN_BUG_OVERSIZE))
			sizes[i] = (int)r->part[i].room + 8;
		if (!c->is_send && fn_bug(FN_BUG_CAPACITY))
			sizes[i] = (int)r->part[i].room;
	}
	r->reported = true;
	while (c->complete < c->posted && fn_request(c, c->complete)->reported) {
		c->complete++;
		c->freed += (c->is_send || !fn_kind->pieces) && !fn_bug(FN_BUG_LEAK);
	}
}

/* FN_BUG_EARLY: the data follow when the send is tested. */
static void follow(void)
{
	struct fn_comm *c = atomic_load(&receiver);

	for (int i = 0; i < 100 && c; i++) {
		(void)pthread_mutex_lock(&c->lock);
		(void)fn_progress(c);
		(void)pthread_mutex_unlock(&c->lock);
		if (c->sock[0].count == 0)
			return;
		(void)poll(NULL, 0, 1);
	}
}

static enum fn_result test_locked(struct fn_comm *c, struct fn_request *r, int *done, int *sizes)
{
	enum fn_result result;

	check_test(c, r);
	result = fn_progress(c);
	if (result == FN_CUDA_ERROR || !is_complete(c, r))
		return result;
	if (!c->is_send) {
		result = fn_kind->pieces ? fn_bounce_complete(c, r) : fn_direct_complete(c, r);
		if (result != FN_OK)
			return c->error = result;
	}
	*done = 1;
	report(c, r, sizes);
	return FN_OK;
}

enum fn_result fn_test(void *request, int *done, int *sizes)
{
	struct fn_request *r = request;
	enum fn_result result;
	struct fn_comm *c;

	FN_ENTER("test");
	if (fn_bug(FN_BUG_TEST_UNSET))
		return FN_OK;
	*done = 0;
	if (!r || !r->head.comm)
		fn_misuse("test of no request");
	if (r->head.is_flush)
		return fn_test_flush(request, done);
	c = r->head.comm;
	(void)pthread_mutex_lock(&c->lock);
	result = test_locked(c, r, done, sizes);
	(void)pthread_mutex_unlock(&c->lock);
	if (fn_bug(FN_BUG_EARLY) && c->is_send)
		follow();
	return result;
}
