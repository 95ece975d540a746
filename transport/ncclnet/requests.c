/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/net_priv.h"

#include "transport/ncclnet/watch.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* The plugin's results become -errno here. */

enum { SIZES = DR_NCCL_GROUP_MAX };

static int failed(struct nn_queue *l, const char *call, int rc)
{
	if (rc == NCCL_SUCCESS)
		return 0;
	l->failed = call;
	return rc == NCCL_REMOTE_ERROR ? -ECONNRESET : -EIO;
}
#define CALL(l, call, expression)                                                                  \
	((l)->calls++, failed(l, call, NN_CALL((l)->n->name, call, expression)))

void dr_nn_queue_open(
	struct nn_queue *l, const struct dr_nccl *n, void *comm, bool sends, unsigned limit)
{
	*l = (struct nn_queue){ .n = n,
		.comm = comm,
		.sends = sends,
		.limit = DR_MIN(limit, (unsigned)NN_REQUESTS_MAX) };
}

/* The reason is said here, once: an error of the GPU is permanent. */
static int gpu_failed(struct nn_queue *l, const char *what, int rc, const struct dr_err *e)
{
	if (rc >= 0 || rc == -EAGAIN)
		return rc;
	if (!l->gpu_failed)
		dr_warn("nccl", "%s failed: %s", what, e->text);
	l->failed = what;
	l->gpu_failed = true;
	return rc;
}

int dr_nn_queue_take_pieces(struct nn_queue *l, const struct nccl_net_device_handle *device,
	const struct dr_rail_gpu *gpu)
{
	struct dr_err e = { .text = "" };

	if (!device || device->netDeviceType != NCCL_NET_DEVICE_UNPACK || !device->handle)
		return 0;
	l->pieces = true;
	l->gpu = *gpu;
	if (gpu->ops) /* the handle is there, too */
		return gpu_failed(l, "reading the device handle from the GPU",
			gpu->ops->read(gpu->arg, &l->unpack, device->handle, sizeof(l->unpack), &e),
			&e);
	l->unpack = *(const struct nn_unpack_handle *)device->handle;
	return 0;
}

/* ---- memory ---- */

static bool same(const struct nn_mem *a, const struct nn_mem *b)
{
	return a->base == b->base && a->len == b->len && a->mr == b->mr;
}

/* The last one that was used stands in front. */
static struct nn_reg *find(struct nn_queue *l, const struct nn_mem *mem)
{
	for (struct nn_reg **at = &l->regs; *at; at = &(*at)->next) {
		struct nn_reg *r = *at;

		if (!same(&r->mem, mem))
			continue;
		*at = r->next;
		r->next = l->regs;
		l->regs = r;
		return r;
	}
	return NULL;
}

static int register_at(struct nn_queue *l, const struct dr_mr *mr, struct dr_nccl_buffer *b)
{
	int type = mr && mr->cuda ? NCCL_PTR_CUDA : NCCL_PTR_HOST;

	if (mr && mr->dmabuf && l->n->reg_dmabuf)
		return CALL(l, "regMrDmaBuf",
			dr_nccl_reg_dmabuf(l->n, l->comm, b, mr->dmabuf_fd, mr->dmabuf_off));
	return CALL(l, "regMr", dr_nccl_reg(l->n, l->comm, b, type));
}

static int add(struct nn_queue *l, const struct nn_mem *mem, struct nn_reg **out)
{
	struct dr_nccl_buffer b = { .data = mem->base, .size = mem->len };
	struct nn_reg *r = dr_calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	rc = register_at(l, mem->mr, &b);
	if (rc) {
		dr_free(r);
		return rc;
	}
	*r = (struct nn_reg){ .next = l->regs, .mem = *mem, .mhandle = b.mhandle };
	l->regs = r;
	*out = r;
	return 0;
}

static int dereg_first(struct nn_queue *l)
{
	struct nn_reg *r = l->regs;
	int rc = CALL(l, "deregMr", l->n->dereg_mr(l->comm, r->mhandle));

	l->regs = r->next;
	dr_free(r);
	return rc;
}

int dr_nn_queue_forget(struct nn_queue *l, const struct nn_mem *mem)
{
	return l->comm && find(l, mem) ? dereg_first(l) : 0;
}

/* ---- requests ---- */

static struct nn_request *request_at(struct nn_queue *l, unsigned i)
{
	return &l->request[i % NN_REQUESTS_MAX];
}

int dr_nn_queue_post(
	struct nn_queue *l, const struct nn_mem *mem, void *data, size_t size, int64_t now_ns)
{
	struct dr_nccl_buffer b = { .data = data, .size = size };
	struct nn_reg *reg;
	void *request;
	int rc = 0;

	if (nn_queue_used(l) == l->limit)
		return -EAGAIN;
	reg = find(l, mem);
	if (!reg)
		rc = add(l, mem, &reg);
	if (rc)
		return rc;
	b.mhandle = reg->mhandle;
	rc = l->sends ? CALL(l, "isend", dr_nccl_isend(l->n, l->comm, &b, &request))
		      : CALL(l, "irecv", dr_nccl_irecv(l->n, l->comm, 1, &b, &request));
	if (rc)
		return rc;
	if (request == DR_NCCL_UNSET) {
		l->failed = l->sends ? "isend without a request" : "irecv without a request";
		return -EIO;
	}
	if (!request)
		return -EAGAIN;
	*request_at(l, l->tail++) = (struct nn_request){ .request = request,
		.since_ns = now_ns,
		.data = data,
		.cap = size,
		.mhandle = b.mhandle,
		.cuda = mem->mr && mem->mr->cuda,
		.flush = !l->sends && !l->pieces && l->n->flush && mem->mr && mem->mr->flush };
	l->flushes = l->flushes || request_at(l, l->tail - 1)->flush;
	return 0;
}

/* The next request: 1 complete, says the plugin; 0 not yet. */
static int test_next(struct nn_queue *l)
{
	struct nn_request *q = request_at(l, l->tested);
	int sizes[SIZES], done = 0, rc;

	memset(sizes, -1, sizeof(sizes));
	rc = CALL(l, "test", l->n->test(q->request, &done, sizes));
	if (rc || !done)
		return rc;
	if (!l->sends && l->tested == 0)
		l->sizeless = !l->pieces && sizes[0] < 0;
	q->size = l->sizeless ? (ssize_t)q->cap : sizes[0];
	q->ticket = 0;
	q->flushing = NULL;
	if (l->pieces) /* test says no size */
		q->slot = (unsigned)(l->received++ % NN_UNPACK_SLOTS);
	l->tested++;
	return 1;
}

/* ---- pieces in GPU memory ---- */

/* Host memory: messages of control comms, which are short. */
static int read_pieces(struct nn_queue *l, const struct nn_request *q, struct dr_err *e)
{
	const struct nn_unpack_meta *meta = l->unpack.meta;
	int rc = 0;

	for (uint64_t i = 0; i < meta->cnt[q->slot] && rc == 0; i++) {
		const struct nn_unpack_piece *x = &meta->mem[q->slot][i];

		rc = l->gpu.ops->read(l->gpu.arg, q->data + x->dst_off,
			l->unpack.bounce_buf + x->src_off, x->len, e);
	}
	return rc;
}

static int start_on_gpu(struct nn_queue *l, struct nn_request *q, struct dr_err *e)
{
	static const enum dr_unpack_how how[] = { [NN_UNPACK_KERNEL] = DR_UNPACK_KERNEL,
		[NN_UNPACK_D2D] = DR_UNPACK_D2D,
		[NN_UNPACK_HOST] = DR_UNPACK_HOST };
	struct dr_unpack_work w = { .dst = q->data,
		.src = l->unpack.bounce_buf,
		.piece = l->unpack.meta->mem[q->slot],
		.n = (unsigned)l->unpack.meta->cnt[q->slot],
		.len = q->cap };

	if (!q->cuda)
		return read_pieces(l, q, e);
	if (l->mode == NN_UNPACK_NONE)
		return 0;
	return l->gpu.ops->start(l->gpu.arg, &w, how[l->mode], &q->ticket, e);
}

/* ---- flush ---- */

static int start_flush(struct nn_queue *l, struct nn_request *q)
{
	struct dr_nccl_buffer b = {
		.data = q->data, .size = (size_t)q->size, .mhandle = q->mhandle
	};
	int rc;

	if (q->size == 0)
		return 0;
	rc = CALL(l, "iflush", dr_nccl_flush(l->n, l->comm, &b, &q->flushing));
	if (rc == 0 && q->flushing == DR_NCCL_UNSET) {
		l->failed = "iflush without a request";
		rc = -EIO;
	}
	return rc;
}

/* 1: done, 0: not yet. */
static int flushed(struct nn_queue *l, struct nn_request *q)
{
	int done = 0, rc;

	if (!q->flushing)
		return 1;
	rc = CALL(l, "test of a flush", l->n->test(q->flushing, &done, NULL));
	if (rc || !done)
		return rc;
	q->flushing = NULL;
	return 1;
}

/* ---- the end of a request ---- */

/* Begin to unpack or flush a receive that is complete. In host memory that is all. */
static int start(struct nn_queue *l, struct nn_request *q)
{
	struct dr_err e = { .text = "" };
	int rc = 0;

	if (l->pieces && l->gpu.ops) {
		q->size = dr_nn_unpack_bytes(&l->unpack, q->slot, q->cap);
		if (q->size >= 0)
			rc = gpu_failed(l, "unpacking by the GPU", start_on_gpu(l, q, &e), &e);
	} else if (l->pieces) {
		q->size = dr_nn_unpack(&l->unpack, q->slot, l->mode, q->data, q->cap);
	}
	if (rc == 0 && q->size < 0) {
		l->failed = l->pieces ? "metadata of pieces that do not fit"
				      : "test without the size of a receive";
		rc = -EIO;
	}
	return rc == 0 && q->flush ? start_flush(l, q) : rc;
}

/* 1: the oldest receive is where it belongs. */
static int in_place(struct nn_queue *l)
{
	struct nn_request *q = request_at(l, l->head);
	struct dr_err e = { .text = "" };
	uint64_t done = 0;
	int rc;

	if (q->ticket == 0)
		return flushed(l, q);
	rc = gpu_failed(l, "unpacking by the GPU", l->gpu.ops->done(l->gpu.arg, &done, &e), &e);
	return rc ? rc : done >= q->ticket;
}

static int consume(struct nn_queue *l, size_t *size)
{
	const struct nn_request *q = request_at(l, l->head);
	int rc = 0;

	if (l->n->consumed)
		rc = CALL(l, "irecvConsumed", l->n->consumed(l->comm, 1, q->request));
	*size = (size_t)q->size;
	return rc;
}

/* The GPU unpacks, and the NIC flushes, while the plugin goes on: all that are complete are started. */
static void advance(struct nn_queue *l)
{
	int rc = 1;

	while (rc > 0 && l->error == 0 && l->tested != l->tail) {
		if (l->tested != l->head && !l->gpu.ops && !l->flushes)
			break;
		rc = test_next(l);
		if (l->sends && rc > 0)
			l->started = l->tested;
	}
	if (rc < 0)
		l->error = rc;
	while (l->started != l->tested && !l->start_failed) {
		rc = start(l, request_at(l, l->started));
		if (rc == -EAGAIN)
			return;
		l->start_failed = rc < 0;
		if (rc < 0)
			l->error = rc;
		else
			l->started++;
	}
}

int dr_nn_queue_test(struct nn_queue *l, size_t *size)
{
	int rc = 1;

	if (!l->comm || nn_queue_used(l) == 0)
		return 0;
	advance(l);
	if (l->head == l->started)
		return l->error;
	if (!l->sends)
		rc = in_place(l);
	if (rc <= 0)
		return rc;
	rc = l->sends ? 0 : consume(l, size);
	l->head++;
	return rc ? rc : 1;
}

int64_t dr_nn_queue_since(const struct nn_queue *l)
{
	return nn_queue_used(l) ? l->request[l->head % NN_REQUESTS_MAX].since_ns : DR_NEVER;
}

int dr_nn_queue_close(struct nn_queue *l)
{
	int rc = 0, err;

	if (!l->comm)
		return 0;
	if (l->gpu.ops && (l->head != l->started || l->start_failed))
		l->gpu.ops->wait(l->gpu.arg);
	while (l->regs) {
		err = dereg_first(l);
		rc = rc ? rc : err;
	}
	err = l->sends ? CALL(l, "closeSend", l->n->close_send(l->comm))
		       : CALL(l, "closeRecv", l->n->close_recv(l->comm));
	l->comm = NULL;
	if (!err)
		dr_free(l->device);
	l->device = NULL;
	l->head = l->started = l->tested = l->tail;
	return err ? err : rc;
}
