/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/rail_cuda.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

static uint64_t address(const void *dev)
{
	return (uintptr_t)dev;
}

static int no_stream(const struct dr_rail_cuda *r, struct dr_err *e)
{
	return dr_err_set(e, -EIO, "GPU %u has failed earlier", dr_gpu_info(r->gpu)->ordinal);
}

static int enter(void *arg, struct dr_err *e)
{
	return dr_gpu_use(((struct dr_rail_cuda *)arg)->gpu, e);
}

/* ---- unpacking ---- */

static int prepare(void *arg, struct dr_err *e)
{
	struct dr_rail_cuda *r = arg;

	return r->stream ? 0 : dr_gpu_stream_create(r->gpu, &r->stream, e);
}

static int read_gpu(void *arg, void *host, const void *dev, size_t len, struct dr_err *e)
{
	struct dr_rail_cuda *r = arg;

	return r->stream ? dr_gpu_read(r->stream, host, address(dev), len, e) : no_stream(r, e);
}

static int start(void *arg, const struct dr_unpack_work *w, enum dr_unpack_how how,
	uint64_t *ticket, struct dr_err *e)
{
	static const enum dr_gpu_unpack_how gpu_how[] = { [DR_UNPACK_KERNEL] = DR_GPU_UNPACK_KERNEL,
		[DR_UNPACK_D2D] = DR_GPU_UNPACK_D2D,
		[DR_UNPACK_HOST] = DR_GPU_UNPACK_HOST };
	struct dr_rail_cuda *r = arg;
	struct dr_gpu_unpack u = { .dst = address(w->dst),
		.src = address(w->src),
		.piece = w->piece,
		.n = w->n,
		.len = w->len };

	return r->stream ? dr_gpu_unpack(r->stream, &u, gpu_how[how], ticket, e) : no_stream(r, e);
}

static int done(void *arg, uint64_t *ticket, struct dr_err *e)
{
	struct dr_rail_cuda *r = arg;

	return r->stream ? dr_gpu_stream_done(r->stream, ticket, e) : no_stream(r, e);
}

static void wait_all(void *arg)
{
	struct dr_rail_cuda *r = arg;

	if (!r->stream || dr_gpu_stream_wait(r->stream, dr_gpu_stream_issued(r->stream), NULL) == 0)
		return;
	dr_gpu_stream_stats(r->stream, &r->past);
	dr_gpu_stream_destroy(r->stream);
	r->stream = NULL;
}

/* ---- what it cost ---- */

void dr_rail_cuda_stats(const struct dr_rail_cuda *r, struct dr_gpu_stream_stats *out)
{
	*out = r->past;
	if (r->stream)
		dr_gpu_stream_stats(r->stream, out);
}

const struct dr_rail_gpu_ops dr_rail_cuda_ops = { enter, prepare, read_gpu, start, done, wait_all };

/* ---- life ---- */

struct dr_rail_gpu dr_rail_cuda_init(struct dr_rail_cuda *r, struct dr_gpu *gpu)
{
	*r = (struct dr_rail_cuda){ .gpu = gpu };
	return (struct dr_rail_gpu){ .ops = &dr_rail_cuda_ops, .arg = r };
}

void dr_rail_cuda_fini(struct dr_rail_cuda *r)
{
	dr_gpu_stream_destroy(r->stream);
	r->stream = NULL;
}
