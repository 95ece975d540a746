/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include <errno.h>

/*
 * Pieces of a receive, put together by one kernel (unpack_ptx.c), by copies within the GPU, or through the host.
 *
 * The kernel reads the list where it is, in host memory. The list may come from a plugin, which chose how to pin it:
 * memory that is write-combined or was registered can have another address on the GPU than on the host, so the
 * driver is asked for it. A block takes piece after piece, and the grid is limited, so any number of pieces needs
 * one launch.
 *
 * DR_GPU_UNPACK_HOST gathers in one buffer of the stream. One is enough because the stream is in order: the pieces
 * of the next list come in when the last copy of this one is out.
 */
enum { BLOCK = 256 /* threads */, BLOCKS_PER_MULTIPROCESSOR = 8 };

/* ---- the code ---- */

int dr_gpu_unpack_load(struct dr_gpu *g, struct dr_err *e)
{
	const struct dr_gpu_code code = { .ptx = dr_gpu_unpack_ptx,
		.what = "unpacking",
		.module = &g->unpack_module,
		.kernel = { { "dr_unpack", &g->unpack } } };

	return dr_gpu_code_load(g, &code, e);
}

void dr_gpu_unpack_unload(struct dr_gpu *g)
{
	dr_gpu_code_unload(g, &g->unpack_module);
}

void dr_gpu_unpack_fini(struct dr_gpu_stream *s)
{
	dr_gpu_host_free(s->gpu, s->gather);
	s->gather = NULL;
	s->gather_len = 0;
}

/* ---- the three ways ---- */

static unsigned by_kernel(struct dr_gpu_stream *s, const void *arg)
{
	const struct dr_gpu_unpack *u = arg;
	const struct dr_cuda *c = s->gpu->cuda;
	uint64_t dst = u->dst, src = u->src, n = u->n;
	unsigned long long list = 0;
	void *args[] = { &dst, &src, &list, &n };
	unsigned grid = DR_MIN(u->n, s->gpu->multiprocessors * BLOCKS_PER_MULTIPROCESSOR);

	if (u->n == 0)
		return 0;
	s->stats.calls += 2;
	/* The driver does not write to the list; its signature has no const. */
	unsigned result = c->mem_host_get_device_pointer(&list, (void *)(uintptr_t)u->piece, 0);
	return result ? result
		      : c->launch_kernel(
				s->gpu->unpack, grid, 1, 1, BLOCK, 1, 1, 0, s->stream, args, NULL);
}

enum way { WITHIN, OUT, BACK };

/* A copy for each piece: within the GPU, or to and from `gather`, where they lie as in dst. */
static unsigned copy_pieces(struct dr_gpu_stream *s, const struct dr_gpu_unpack *u, enum way way)
{
	const struct dr_cuda *c = s->gpu->cuda;
	unsigned result = 0;

	for (unsigned i = 0; i < u->n && result == 0; i++) {
		const struct dr_gpu_piece *x = &u->piece[i];
		uint64_t to = u->dst + x->dst_off, from = u->src + x->src_off;

		if (x->len == 0)
			continue;
		s->stats.calls++;
		if (way == WITHIN)
			result = c->memcpy_dtod_async(to, from, x->len, s->stream);
		else if (way == OUT)
			result = c->memcpy_dtoh_async(
				s->gather + x->dst_off, from, x->len, s->stream);
		else
			result =
				c->memcpy_htod_async(to, s->gather + x->dst_off, x->len, s->stream);
	}
	return result;
}

static unsigned by_d2d(struct dr_gpu_stream *s, const void *arg)
{
	return copy_pieces(s, arg, WITHIN);
}

/* They go back in one copy where they leave no gap. */
static unsigned through_host(struct dr_gpu_stream *s, const void *arg)
{
	const struct dr_gpu_unpack *u = arg;
	uint64_t first = UINT64_MAX, end = 0, sum = 0;
	unsigned result = copy_pieces(s, u, OUT);

	for (unsigned i = 0; i < u->n; i++) {
		const struct dr_gpu_piece *x = &u->piece[i];

		if (x->len == 0)
			continue;
		first = DR_MIN(first, x->dst_off);
		end = DR_MAX(end, x->dst_off + x->len);
		sum += x->len;
	}
	if (result || sum == 0 || sum != end - first)
		return result ? result : copy_pieces(s, u, BACK);
	s->stats.calls++;
	return s->gpu->cuda->memcpy_htod_async(u->dst + first, s->gather + first, sum, s->stream);
}

/* Room for len bytes. A smaller buffer is in use until the stream is idle. */
static int reserve(struct dr_gpu_stream *s, size_t len, struct dr_err *e)
{
	void *more = NULL;
	uint64_t issued = dr_gpu_stream_issued(s);
	int rc = s->gather_len < len ? dr_gpu_stream_wait(s, issued, e) : 0;

	if (rc || s->gather_len >= len)
		return rc;
	rc = dr_gpu_host_alloc(s->gpu, len, &more, e);
	if (rc)
		return rc;
	dr_gpu_unpack_fini(s);
	s->gather = more;
	s->gather_len = len;
	return 0;
}

int dr_gpu_unpack(struct dr_gpu_stream *s, const struct dr_gpu_unpack *u,
	enum dr_gpu_unpack_how how, uint64_t *ticket, struct dr_err *e)
{
	static unsigned (*const start[])(struct dr_gpu_stream * s, const void *arg) = {
		[DR_GPU_UNPACK_KERNEL] = by_kernel,
		[DR_GPU_UNPACK_D2D] = by_d2d,
		[DR_GPU_UNPACK_HOST] = through_host,
	};
	struct dr_gpu_task t = { .start = start[how], .arg = u, .what = "unpacking" };

	if (dr_gpu_stream_full(s)) /* before reserve, which waits */
		return -EAGAIN;
	int rc = how == DR_GPU_UNPACK_HOST ? reserve(s, u->len, e) : 0;
	if (rc)
		return rc;
	for (unsigned i = 0; i < u->n; i++)
		t.len += u->piece[i].len;
	return dr_gpu_stream_submit(s, &t, ticket, e);
}
