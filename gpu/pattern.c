/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include <stdatomic.h>

/*
 * Two kernels (pattern_ptx.c), compiled by the driver when a GPU is opened. Each thread handles 16 bytes, then the
 * 16 bytes one grid further on. So neighbouring threads access neighbouring memory, and a grid of
 * BLOCKS_PER_MULTIPROCESSOR blocks occupies the GPU for any length.
 *
 * A check without a finding costs one launch and one wait, no copy. A thread that finds a wrong byte lowers `worst`
 * in GPU memory by an atomic, because several threads may find one, and sets `wrong` in pinned host memory. Only
 * then worst is read and reset. (Atomics over PCIe are avoided: not every machine has them.)
 */
enum {
	BLOCK = 256, /* threads */
	BLOCKS_PER_MULTIPROCESSOR = 8,
	BYTES_PER_THREAD = 16,
};

/* ---- the code ---- */

int dr_gpu_pattern_load(struct dr_gpu *g, struct dr_err *e)
{
	const struct dr_gpu_code code = { .ptx = dr_gpu_pattern_ptx,
		.what = "pattern",
		.module = &g->module,
		.kernel = { { "dr_pattern_fill", &g->fill }, { "dr_pattern_check", &g->check } } };

	return dr_gpu_code_load(g, &code, e);
}

void dr_gpu_pattern_unload(struct dr_gpu *g)
{
	dr_gpu_code_unload(g, &g->module);
}

/* ---- per stream ---- */

int dr_gpu_pattern_init(struct dr_gpu_stream *s, struct dr_err *e)
{
	void *wrong = NULL;
	int rc = dr_gpu_host_alloc(s->gpu, sizeof(*s->wrong), &wrong, e);

	if (rc)
		return rc;
	s->wrong = wrong;
	*s->wrong = 0;
	rc = dr_gpu_alloc(s->gpu, sizeof(uint64_t), &s->worst, e);
	if (rc)
		return rc;
	return dr_gpu_set(s, s->worst.dev, 0xff, sizeof(uint64_t), e);
}

/* Allowed after an init that failed. */
void dr_gpu_pattern_fini(struct dr_gpu_stream *s)
{
	dr_gpu_free(s->gpu, &s->worst);
	dr_gpu_host_free(s->gpu, s->wrong);
}

/* ---- launches ---- */

static int launch(struct dr_gpu_stream *s, struct CUfunc_st *fn, size_t len, void **args,
	const char *what, struct dr_err *e)
{
	const struct dr_gpu *g = s->gpu;
	size_t blocks = (len + BYTES_PER_THREAD * BLOCK - 1) / (BYTES_PER_THREAD * BLOCK);
	unsigned grid =
		(unsigned)DR_MIN(blocks, (size_t)g->multiprocessors * BLOCKS_PER_MULTIPROCESSOR);

	if (s->failed)
		return dr_cuda_fail(g->cuda, s->failed, e, "%s on GPU %u", what, g->info.ordinal);
	int rc = dr_gpu_use(g, e);
	if (rc)
		return rc;
	unsigned result =
		g->cuda->launch_kernel(fn, grid, 1, 1, BLOCK, 1, 1, 0, s->stream, args, NULL);
	if (result)
		return dr_cuda_fail(g->cuda, result, e, "%s on GPU %u", what, g->info.ordinal);
	return dr_gpu_stream_drain(s, what, e);
}

int dr_gpu_pattern_fill(
	struct dr_gpu_stream *s, uint64_t dev, size_t len, uint64_t base, struct dr_err *e)
{
	uint64_t bytes = len;
	void *args[] = { &dev, &bytes, &base };

	dr_assert(dev % DR_GPU_PATTERN_ALIGN == 0);
	return len ? launch(s, s->gpu->fill, len, args, "filling with the pattern", e) : 0;
}

/* Offset of the first wrong byte; resets the state for the next check. */
static int fetch_worst(struct dr_gpu_stream *s, uint64_t *bad_offset, struct dr_err *e)
{
	uint64_t worst;
	int rc = dr_gpu_read(s, &worst, s->worst.dev, sizeof(worst), e);

	if (rc == 0)
		rc = dr_gpu_set(s, s->worst.dev, 0xff, sizeof(worst), e);
	if (rc)
		return rc;
	*s->wrong = 0;
	*bad_offset = worst;
	return 1;
}

int dr_gpu_pattern_check(struct dr_gpu_stream *s, uint64_t dev, size_t len, uint64_t base,
	uint64_t *bad_offset, struct dr_err *e)
{
	uint64_t bytes = len, wrong = (uintptr_t)s->wrong, worst = s->worst.dev;
	void *args[] = { &dev, &bytes, &base, &worst, &wrong };

	dr_assert(dev % DR_GPU_PATTERN_ALIGN == 0);
	if (len == 0)
		return 0;
	int rc = launch(s, s->gpu->check, len, args, "checking the pattern", e);
	if (rc)
		return rc;
	/* Written by the GPU, which the compiler cannot know. */
	atomic_signal_fence(memory_order_acquire);
	return *s->wrong ? fetch_worst(s, bad_offset, e) : 0;
}
