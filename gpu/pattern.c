/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/*
 * Two kernels (pattern_ptx.c), compiled by the driver when a GPU is opened. Each thread takes 16 bytes,
 * then those a whole grid further on; so neighbouring threads touch neighbouring memory, and a grid of
 * BLOCKS_PER_MULTIPROCESSOR blocks fills the GPU whatever the length.
 *
 * A check that finds nothing costs a launch and a wait, no copy: a thread that finds a wrong byte lowers
 * `worst` in GPU memory, by an atomic, since many may find one, and raises `flag` in pinned host
 * memory. Only when that is up, worst is read and put back. (No atomic goes over PCIe, where not
 * every machine has them.)
 */
enum {
	BLOCK = 256, /* threads */
	BLOCKS_PER_MULTIPROCESSOR = 8,
	BYTES_PER_THREAD = 16,
	LOG_BYTES = 160, /* of the compiler's complaint: what a text of ours has room for */
};

/* ---- the code ---- */

static int compile(struct dr_gpu *g, struct dr_err *e)
{
	char log[LOG_BYTES] = "";
	unsigned option[] = { DR_CUDA_JIT_ERROR_LOG, DR_CUDA_JIT_ERROR_LOG_BYTES };
	void *value[] = { log, (void *)(uintptr_t)sizeof(log) };
	unsigned result = g->cuda->module_load_data_ex(
		&g->module, dr_gpu_pattern_ptx, DR_ARRAY_LEN(option), option, value);

	if (result == 0)
		return 0;
	log[sizeof(log) - 1] = '\0';
	log[strcspn(log, "\r\n")] = '\0';
	return dr_cuda_fail(g->cuda, result, e, "loading the pattern's code on GPU %u%s%s",
		g->info.ordinal, log[0] ? ": " : "", log);
}

int dr_gpu_pattern_load(struct dr_gpu *g, struct dr_err *e)
{
	unsigned result;
	int rc = compile(g, e);

	if (rc)
		return rc;
	result = g->cuda->module_get_function(&g->fill, g->module, "dr_pattern_fill");
	if (result == 0)
		result = g->cuda->module_get_function(&g->check, g->module, "dr_pattern_check");
	if (result == 0)
		return 0;
	dr_gpu_pattern_unload(g);
	return dr_cuda_fail(
		g->cuda, result, e, "looking up the pattern's code on GPU %u", g->info.ordinal);
}

void dr_gpu_pattern_unload(struct dr_gpu *g)
{
	(void)g->cuda->module_unload(g->module);
	g->module = NULL;
}

/* ---- what a stream has for it ---- */

int dr_gpu_pattern_init(struct dr_gpu_stream *s, struct dr_err *e)
{
	void *flag = NULL;
	int rc = dr_gpu_host_alloc(s->gpu, sizeof(*s->flag), &flag, e);

	if (rc)
		return rc;
	s->flag = flag;
	*s->flag = 0;
	rc = dr_gpu_alloc(s->gpu, sizeof(uint64_t), &s->worst, e);
	if (rc)
		return rc;
	return dr_gpu_set(s, s->worst.dev, 0xff, sizeof(uint64_t), e);
}

/* Also of a stream whose init failed half-way. */
void dr_gpu_pattern_fini(struct dr_gpu_stream *s)
{
	dr_gpu_free(s->gpu, &s->worst);
	dr_gpu_host_free(s->gpu, s->flag);
}

/* ---- launches ---- */

static int launch(struct dr_gpu_stream *s, struct CUfunc_st *fn, size_t len, void **args,
	const char *what, struct dr_err *e)
{
	const struct dr_gpu *g = s->gpu;
	size_t blocks = (len + BYTES_PER_THREAD * BLOCK - 1) / (BYTES_PER_THREAD * BLOCK);
	unsigned grid =
		(unsigned)DR_MIN(blocks, (size_t)g->multiprocessors * BLOCKS_PER_MULTIPROCESSOR);
	unsigned result;
	int rc;

	if (s->failed)
		return dr_cuda_fail(g->cuda, s->failed, e, "%s on GPU %u", what, g->info.ordinal);
	rc = dr_gpu_enter(g, e);
	if (rc)
		return rc;
	result = g->cuda->launch_kernel(fn, grid, 1, 1, BLOCK, 1, 1, 0, s->stream, args, NULL);
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

/* Which byte it was; all is as before the check then. */
static int fetch_worst(struct dr_gpu_stream *s, uint64_t *bad_offset, struct dr_err *e)
{
	uint64_t worst;
	int rc = dr_gpu_read(s, &worst, s->worst.dev, sizeof(worst), e);

	if (rc == 0)
		rc = dr_gpu_set(s, s->worst.dev, 0xff, sizeof(worst), e);
	if (rc)
		return rc;
	*s->flag = 0;
	*bad_offset = worst;
	return 1;
}

int dr_gpu_pattern_check(struct dr_gpu_stream *s, uint64_t dev, size_t len, uint64_t base,
	uint64_t *bad_offset, struct dr_err *e)
{
	uint64_t bytes = len, flag = (uintptr_t)s->flag, worst = s->worst.dev;
	void *args[] = { &dev, &bytes, &base, &worst, &flag };
	int rc;

	dr_assert(dev % DR_GPU_PATTERN_ALIGN == 0);
	if (len == 0)
		return 0;
	rc = launch(s, s->gpu->check, len, args, "checking the pattern", e);
	if (rc)
		return rc;
	/* The GPU wrote it, behind the compiler's back. */
	atomic_signal_fence(memory_order_acquire);
	return *s->flag ? fetch_worst(s, bad_offset, e) : 0;
}
