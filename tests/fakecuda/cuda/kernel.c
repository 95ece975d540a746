/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/cuda/fake.h"

#include "gpu/gpu.h"

#include <endian.h>

/*
 * Modules and launches. Of a module's PTX the entries' names and parameters are read, the rest is not
 * understood (tests/fakecuda/ptx_test.c runs it): a known name stands for a function in C.
 */
#define STEP 0x9e3779b97f4a7c15ULL

struct dr_fgpu_node *dr_fgpu_modules;

/* ---- the kernels ---- */

enum { ARG_DEV, ARG_LEN, ARG_BASE, ARG_WORST, ARG_FLAG };

static unsigned char pattern_byte(uint64_t base, uint64_t i)
{
	uint64_t le = htole64(base + i / 8 * STEP);

	return ((const unsigned char *)&le)[i % 8];
}

static void run_fill(const struct dr_fgpu_work *w)
{
	uint64_t word = w->arg[ARG_BASE], le, i;

	for (i = 0; i + 8 <= w->len; i += 8, word += STEP) {
		le = htole64(word);
		memcpy(w->to + i, &le, 8);
	}
	for (; i < w->len; i++)
		w->to[i] = pattern_byte(w->arg[ARG_BASE], i);
}

static void run_check(const struct dr_fgpu_work *w)
{
	uint64_t word = w->arg[ARG_BASE], le, i, worst;
	uint32_t one = 1;

	for (i = 0; i + 8 <= w->len; i += 8, word += STEP) {
		le = htole64(word);
		if (memcmp(w->to + i, &le, 8) != 0)
			break;
	}
	while (i < w->len && w->to[i] == pattern_byte(w->arg[ARG_BASE], i))
		i++;
	if (i == w->len)
		return;
	memcpy(&worst, (void *)(uintptr_t)w->arg[ARG_WORST], sizeof(worst));
	worst = DR_MIN(worst, i);
	memcpy((void *)(uintptr_t)w->arg[ARG_WORST], &worst, sizeof(worst));
	memcpy((void *)(uintptr_t)w->arg[ARG_FLAG], &one, sizeof(one));
}

/* Where it works; addresses that are wrong are an illegal address (700), as on a GPU. */
static unsigned place(struct dr_fgpu_work *w)
{
	uint64_t dev = w->arg[ARG_DEV];

	w->len = w->arg[ARG_LEN];
	w->memory = dr_fgpu_memory_at(dev, w->len);
	if (!w->memory || dev % 16) {
		dr_fgpu_violation("a kernel at %#llx, %zu bytes", (unsigned long long)dev, w->len);
		return 700;
	}
	w->to = w->memory->bytes + (dev - w->memory->dev);
	if (w->fn->n_args == 3)
		return 0;
	if (!dr_fgpu_memory_at(w->arg[ARG_WORST], 8) ||
		!dr_fgpu_pinned_at((const void *)(uintptr_t)w->arg[ARG_FLAG], 4)) {
		dr_fgpu_violation("a kernel's result is not where a GPU can write it");
		return 700;
	}
	w->arg[ARG_WORST] = (uintptr_t)dr_fgpu_bytes(w->arg[ARG_WORST]);
	return 0;
}

/* ---- unpacking ---- */

enum { ARG_DST, ARG_SRC, ARG_LIST, ARG_N };

static const struct dr_gpu_piece *list_of(const struct dr_fgpu_work *w)
{
	return (const struct dr_gpu_piece *)(uintptr_t)w->arg[ARG_LIST];
}

static void run_unpack(const struct dr_fgpu_work *w)
{
	const struct dr_gpu_piece *x = list_of(w);

	for (uint64_t i = 0; i < w->arg[ARG_N]; i++)
		memcpy(w->to + x[i].dst_off, w->from + x[i].src_off, x[i].len);
}

/* The pieces are checked at the launch, and read again when the kernel runs. */
static unsigned place_unpack(struct dr_fgpu_work *w)
{
	const struct dr_gpu_piece *x = list_of(w);
	uint64_t dst = w->arg[ARG_DST], src = w->arg[ARG_SRC], n = w->arg[ARG_N];

	w->memory = dr_fgpu_memory_at(dst, 1);
	w->source = dr_fgpu_memory_at(src, 1);
	w->pinned = dr_fgpu_pinned_at(x, n * sizeof(*x));
	for (uint64_t i = 0; w->memory && w->source && w->pinned && i < n; i++)
		if (!dr_fgpu_memory_at(dst + x[i].dst_off, x[i].len) ||
			!dr_fgpu_memory_at(src + x[i].src_off, x[i].len))
			w->memory = NULL;
	if (!w->memory || !w->source || !w->pinned || w->arg[ARG_LIST] % 8) {
		dr_fgpu_violation("dr_unpack of %llu pieces from %#llx to %#llx: no memory, or the "
				  "list is not pinned or not aligned",
			(unsigned long long)n, (unsigned long long)src, (unsigned long long)dst);
		return 700;
	}
	w->to = w->memory->bytes + (dst - w->memory->dev);
	w->from = w->source->bytes + (src - w->source->dev);
	return 0;
}

static const struct CUfunc_st known[DR_FGPU_KERNELS] = {
	{ "dr_pattern_fill", 3, place, run_fill },
	{ "dr_pattern_check", 5, place, run_check },
	{ "dr_unpack", 4, place_unpack, run_unpack },
};

/* ---- modules ---- */

/* Parameters of the entry, which all are of 8 bytes; UINT_MAX: there is none of that name. */
static unsigned count_params(const char *ptx, const char *name)
{
	char head[64];
	const char *p, *end;
	unsigned n = 0;

	(void)snprintf(head, sizeof(head), ".visible .entry %s(", name);
	p = strstr(ptx, head);
	end = p ? strchr(p, ')') : NULL;
	if (!end)
		return UINT_MAX;
	while ((p = strstr(p, ".param ")) != NULL && p < end) {
		if (strncmp(p, ".param .u64 ", 12) != 0)
			return UINT_MAX;
		n++;
		p += 7;
	}
	return n;
}

static unsigned complain(unsigned n, const unsigned *options, void **values, unsigned result)
{
	char *log = NULL;
	size_t len = 0;

	for (unsigned i = 0; i < n; i++) {
		if (options[i] == DR_CUDA_JIT_ERROR_LOG)
			log = values[i];
		else if (options[i] == DR_CUDA_JIT_ERROR_LOG_BYTES)
			len = (uintptr_t)values[i];
	}
	if (log && len)
		(void)snprintf(log, len, "ptxas fatal : the fake's compiler failed\nand so on");
	return result;
}

unsigned cuModuleLoadDataEx(
	struct CUmod_st **out, const void *image, unsigned n, unsigned *options, void **values)
{
	struct CUmod_st *m;
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuModuleLoadDataEx, &ctx);

	if (result == 0 && strncmp(image, ".version ", 9) != 0)
		result = DR_CUDA_INVALID_PTX;
	if (result)
		return dr_fgpu_leave(complain(n, options, values, result));
	m = calloc(1, sizeof(*m));
	dr_assert(m != NULL);
	for (unsigned i = 0; i < DR_FGPU_KERNELS; i++)
		if (count_params(image, known[i].name) == known[i].n_args)
			m->fn[m->n++] = known[i];
	dr_fgpu_add(&dr_fgpu_modules, &m->node, ctx);
	*out = m;
	return dr_fgpu_leave(0);
}

unsigned cuModuleUnload(struct CUmod_st *m)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuModuleUnload, &ctx);

	if (!dr_fgpu_has(dr_fgpu_modules, m) || m->node.ctx != ctx) {
		dr_fgpu_violation("cuModuleUnload of what is no module");
		return dr_fgpu_leave(DR_CUDA_INVALID_HANDLE);
	}
	dr_fgpu_del(&dr_fgpu_modules, &m->node);
	free(m);
	return dr_fgpu_leave(result);
}

unsigned cuModuleGetFunction(struct CUfunc_st **fn, struct CUmod_st *m, const char *name)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuModuleGetFunction, &ctx);

	if (result)
		return dr_fgpu_leave(result);
	for (unsigned i = 0; i < m->n; i++)
		if (strcmp(m->fn[i].name, name) == 0) {
			*fn = &m->fn[i];
			return dr_fgpu_leave(0);
		}
	return dr_fgpu_leave(500); /* CUDA_ERROR_NOT_FOUND */
}

static bool grid_ok(const unsigned grid[3], const unsigned block[3])
{
	return grid[0] > 0 && grid[1] == 1 && grid[2] == 1 && block[0] > 0 && block[0] <= 1024 &&
	       block[1] == 1 && block[2] == 1;
}

unsigned cuLaunchKernel(struct CUfunc_st *fn, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
	struct CUstream_st *s, void **args, void **extra)
{
	const unsigned grid[] = { grid_x, grid_y, grid_z }, block[] = { block_x, block_y, block_z };
	struct dr_fgpu_work w = { .kind = DR_FGPU_KERNEL, .fn = fn };
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuLaunchKernel, &ctx);

	if (result == 0 && (!dr_fgpu_has(dr_fgpu_streams, s) || s->node.ctx != ctx))
		result = DR_CUDA_INVALID_HANDLE;
	if (result == 0 && (!grid_ok(grid, block) || shared_bytes || extra || !args))
		result = DR_CUDA_INVALID_VALUE;
	if (result)
		return dr_fgpu_leave(result);
	for (unsigned i = 0; i < fn->n_args; i++)
		memcpy(&w.arg[i], args[i], sizeof(w.arg[i]));
	result = fn->place(&w);
	if (result == 700) {
		ctx->failed = result;
		result = 0;
	} else {
		result = dr_fgpu_submit(s, &w);
	}
	return dr_fgpu_leave(result);
}
