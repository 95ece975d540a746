/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/*
 * One opened GPU and its memory.
 *
 * 1. Open retains the primary context once; close, or an open that fails later, releases it once. The driver
 *    counts references, so another user of the context in this process is not disturbed.
 * 2. Each function that needs a current context makes it current (dr_gpu_use) on its thread.
 * 3. No lists are kept: the owner of memory frees it before close.
 * 4. Freeing continues after an error, because the driver frees even where it returns the error of earlier work.
 */

/* ---- open and close ---- */

int dr_gpu_use(const struct dr_gpu *g, struct dr_err *e)
{
	unsigned result = g->cuda->ctx_set_current(g->ctx);

	return result ? dr_cuda_fail(
				g->cuda, result, e, "use the context of GPU %u", g->info.ordinal)
		      : 0;
}

void dr_gpu_note(const struct dr_gpu *g, const char *what, unsigned result)
{
	if (result)
		dr_debug("gpu", "GPU %u: %s: CUDA error %u", g->info.ordinal, what, result);
}

/* The calling thread must not keep a released context. Calls of other threads fail in the driver. */
static void release(struct dr_gpu *g)
{
	struct CUctx_st *now = NULL;

	if (g->cuda->ctx_get_current(&now) == 0 && now == g->ctx)
		(void)g->cuda->ctx_set_current(NULL);
	dr_gpu_note(g, "release the context", g->cuda->primary_ctx_release(g->dev));
}

static int retain(struct dr_gpu *g, struct dr_err *e)
{
	const struct dr_cuda *c = g->cuda;
	int multiprocessors = 0;
	unsigned result = c->device_get(&g->dev, (int)g->info.ordinal);

	if (result == 0)
		result = c->device_get_attribute(
			&multiprocessors, DR_CUDA_ATTR_MULTIPROCESSORS, g->dev);
	if (result == 0)
		result = c->primary_ctx_retain(&g->ctx, g->dev);
	if (result)
		return dr_cuda_fail(
			c, result, e, "open GPU %u (%s)", g->info.ordinal, g->info.bus_id);
	g->multiprocessors = (unsigned)DR_MAX(multiprocessors, 1);
	return 0;
}

static int enter_and_load(struct dr_gpu *g, struct dr_err *e)
{
	int rc = dr_gpu_use(g, e);

	if (rc == 0)
		rc = dr_gpu_pattern_load(g, e);
	if (rc)
		return rc;
	rc = dr_gpu_unpack_load(g, e);
	if (rc)
		dr_gpu_pattern_unload(g);
	return rc;
}

int dr_gpu_open(unsigned ordinal, struct dr_gpu **out, struct dr_err *e)
{
	const struct dr_cuda *c;
	int rc = dr_cuda_load(&c, e);

	if (rc)
		return rc;
	struct dr_gpu *g = dr_calloc(1, sizeof(*g));
	if (!g)
		return dr_err_set(e, -ENOMEM, "open GPU %u: out of memory", ordinal);
	g->cuda = c;
	rc = dr_gpu_describe(c, ordinal, &g->info, e);
	if (rc == 0)
		rc = retain(g, e);
	if (rc == 0) {
		rc = enter_and_load(g, e);
		if (rc)
			release(g);
	}
	if (rc) {
		dr_free(g);
		return rc;
	}
	*out = g;
	return 0;
}

void dr_gpu_close(struct dr_gpu *g)
{
	if (!g)
		return;
	(void)dr_gpu_use(g, NULL);
	dr_gpu_unpack_unload(g);
	dr_gpu_pattern_unload(g);
	release(g);
	dr_free(g);
}

void dr_gpu_abandon(struct dr_gpu *g)
{
	(void)dr_gpu_use(g, NULL);
	dr_gpu_unpack_unload(g);
	dr_gpu_pattern_unload(g);
	dr_free(g);
}

const struct dr_gpu_info *dr_gpu_info(const struct dr_gpu *g)
{
	return &g->info;
}

/* ---- memory ---- */

int dr_gpu_memory(struct dr_gpu *g, uint64_t *free_bytes, uint64_t *total_bytes, struct dr_err *e)
{
	size_t unused = 0, total = 0;
	int rc = dr_gpu_use(g, e);

	if (rc)
		return rc;
	unsigned result = g->cuda->mem_get_info(&unused, &total);
	if (result)
		return dr_cuda_fail(
			g->cuda, result, e, "query the memory of GPU %u", g->info.ordinal);
	if (free_bytes)
		*free_bytes = unused;
	if (total_bytes)
		*total_bytes = total;
	return 0;
}

static int out_of_memory(struct dr_gpu *g, uint64_t bytes, struct dr_err *e)
{
	uint64_t unused = 0, total = 0;

	if (dr_gpu_memory(g, &unused, &total, NULL))
		total = g->info.memory_bytes;
	return dr_err_set(e, -ENOMEM,
		"GPU %u (%s) is out of memory: %llu bytes requested, %llu of %llu free; reduce --window, --chunk or --channels, or stop the process that holds the memory (nvidia-smi lists it)",
		g->info.ordinal, g->info.bus_id, (unsigned long long)bytes,
		(unsigned long long)unused, (unsigned long long)total);
}

/* The driver guarantees a smaller alignment, so more is allocated and the start is rounded up. */
int dr_gpu_alloc(struct dr_gpu *g, uint64_t len, struct dr_gpu_memory *out, struct dr_err *e)
{
	const uint64_t mask = DR_GPU_ALIGN - 1;
	unsigned long long raw = 0;

	dr_assert(len > 0);
	int rc = dr_gpu_use(g, e);
	if (rc)
		return rc;
	if (len > UINT64_MAX - 2 * mask)
		return out_of_memory(g, len, e);
	uint64_t whole = (len + mask) & ~mask;
	unsigned result = g->cuda->mem_alloc(&raw, whole + mask);
	if (result == DR_CUDA_OUT_OF_MEMORY)
		return out_of_memory(g, whole + mask, e);
	if (result)
		return dr_cuda_fail(g->cuda, result, e, "allocate %llu bytes of memory on GPU %u",
			(unsigned long long)whole, g->info.ordinal);
	*out = (struct dr_gpu_memory){ .dev = (raw + mask) & ~mask, .len = whole, .raw = raw };
	return 0;
}

void dr_gpu_free(struct dr_gpu *g, struct dr_gpu_memory *m)
{
	if (!m->dev)
		return;
	(void)dr_gpu_use(g, NULL);
	dr_gpu_note(g, "free memory", g->cuda->mem_free(m->raw));
	*m = (struct dr_gpu_memory){ 0 };
}

int dr_gpu_host_alloc(struct dr_gpu *g, size_t len, void **out, struct dr_err *e)
{
	void *p = NULL;
	int rc = dr_gpu_use(g, e);

	if (rc)
		return rc;
	unsigned result = g->cuda->mem_host_alloc(&p, len, DR_CUDA_HOST_PORTABLE);
	if (result == DR_CUDA_OUT_OF_MEMORY)
		return dr_err_set(e, -ENOMEM,
			"cannot allocate %zu bytes of pinned host memory; reduce --window, --chunk or --channels, or raise the memory limit of this machine or container",
			len);
	if (result)
		return dr_cuda_fail(
			g->cuda, result, e, "allocate %zu bytes of pinned host memory", len);
	*out = p;
	return 0;
}

void dr_gpu_host_free(struct dr_gpu *g, void *p)
{
	if (!p)
		return;
	(void)dr_gpu_use(g, NULL);
	dr_gpu_note(g, "free pinned memory", g->cuda->mem_free_host(p));
}

int dr_gpu_dmabuf(struct dr_gpu *g, const struct dr_gpu_memory *m, int *fd, struct dr_err *e)
{
	int got = -1;

	if (!g->info.dmabuf)
		return dr_err_set(e, -ENOTSUP,
			"GPU %u (%s) cannot export its memory as a dma-buf; this needs CUDA 11.7, NVIDIA's open kernel modules and a data-centre GPU",
			g->info.ordinal, g->info.name);
	int rc = dr_gpu_use(g, e);
	if (rc)
		return rc;
	unsigned result = g->cuda->mem_get_handle_for_address_range(
		&got, m->dev, m->len, DR_CUDA_RANGE_DMA_BUF_FD, 0);
	if (result)
		return dr_cuda_fail(g->cuda, result, e, "export %llu bytes of GPU %u as a dma-buf",
			(unsigned long long)m->len, g->info.ordinal);
	*fd = got;
	return 0;
}
