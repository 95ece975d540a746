/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/rail_cuda.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

_Static_assert((int)DR_GPU_HANDLE_LEN == (int)DR_GPU_SHARE_LEN, "handle");

static uint64_t address(const void *dev)
{
	return (uintptr_t)dev;
}

static void *pointer(uint64_t dev)
{
	return (void *)(uintptr_t)dev;
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
	out->copies += r->foreign.copies;
	out->bytes += r->foreign.bytes;
	out->busy_ns += r->foreign.busy_ns;
}

static void get_stats(void *arg, struct dr_unpack_stats *out)
{
	struct dr_gpu_stream_stats all;

	dr_rail_cuda_stats(arg, &all);
	*out = (struct dr_unpack_stats){
		.copies = all.copies, .bytes = all.bytes, .busy_ns = all.busy_ns
	};
}

static void add_stats(void *arg, const struct dr_unpack_stats *more)
{
	struct dr_rail_cuda *r = arg;

	r->foreign.copies += more->copies;
	r->foreign.bytes += more->bytes;
	r->foreign.busy_ns += more->busy_ns;
}

/* ---- two processes ---- */

static int share(void *arg, const void *dev, struct dr_gpu_shared *out, struct dr_err *e)
{
	struct dr_rail_cuda *r = arg;
	struct dr_gpu_share s;
	int rc = dr_gpu_share(r->gpu, address(dev), &s, e);

	if (rc)
		return rc;
	memcpy(out->handle, s.handle, sizeof(out->handle));
	out->off = s.off;
	return 0;
}

static int process_open(unsigned ordinal, struct dr_rail_gpu *out, struct dr_err *e)
{
	struct dr_rail_cuda *r = dr_calloc(1, sizeof(*r));
	struct dr_gpu *gpu;
	int rc = r ? dr_gpu_open(ordinal, &gpu, e) : dr_err_set(e, -ENOMEM, "out of memory");

	if (rc) {
		dr_free(r);
		return rc;
	}
	*out = dr_rail_cuda_init(r, gpu);
	return 0;
}

static void process_close(struct dr_rail_gpu *gpu)
{
	struct dr_rail_cuda *r = gpu->arg;

	dr_rail_cuda_fini(r);
	dr_gpu_close(r->gpu);
	dr_free(r);
	*gpu = (struct dr_rail_gpu){ .ops = NULL };
}

static int process_map(
	void *arg, const struct dr_gpu_shared *s, void **base, void **dev, struct dr_err *e)
{
	struct dr_rail_cuda *r = arg;
	struct dr_gpu_share from = { .off = s->off };
	struct dr_gpu_mapping m;
	int rc;

	memcpy(from.handle, s->handle, sizeof(from.handle));
	rc = dr_gpu_map(r->gpu, &from, &m, e);
	if (rc)
		return rc;
	*base = pointer(m.base);
	*dev = pointer(m.dev);
	return 0;
}

static void process_unmap(void *arg, void *base)
{
	struct dr_rail_cuda *r = arg;
	struct dr_gpu_mapping m = { .base = address(base) };

	dr_gpu_unmap(r->gpu, &m);
}

static const struct dr_gpu_process_ops process_ops = { process_open, process_close, process_map,
	process_unmap };

const struct dr_rail_gpu_ops dr_rail_cuda_ops = { enter, prepare, read_gpu, start, done, wait_all,
	get_stats, add_stats, share, &process_ops };

/* ---- life ---- */

struct dr_rail_gpu dr_rail_cuda_init(struct dr_rail_cuda *r, struct dr_gpu *gpu)
{
	*r = (struct dr_rail_cuda){ .gpu = gpu };
	return (struct dr_rail_gpu){
		.ops = &dr_rail_cuda_ops, .arg = r, .ordinal = dr_gpu_info(gpu)->ordinal
	};
}

void dr_rail_cuda_fini(struct dr_rail_cuda *r)
{
	dr_gpu_stream_destroy(r->stream);
	r->stream = NULL;
}
