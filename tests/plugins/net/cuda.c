/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/cuda.h"

#include <stdatomic.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda.h"
#include "tests/plugins/net/net.h"

enum { ATTRIBUTE_MEMORY_TYPE = 2, MEMORY_TYPE_DEVICE = 2 };

typedef unsigned long long dev_ptr;
typedef struct CUctx_st *context;

static _Atomic(const struct dr_cuda *) cu; /* the same for all threads */

static bool loaded(bool say)
{
	const struct dr_cuda *c;
	struct dr_err e;

	if (dr_cuda_load(&c, &e) == 0) {
		atomic_store(&cu, c);
		return true;
	}
	if (say)
		fn_log(FN_LEVEL_WARN, "FAKENET_MEMORY=cuda: %s", e.text);
	return false;
}

static enum fn_result check(unsigned result, const char *call)
{
	struct dr_err e;

	if (result == 0)
		return FN_OK;
	(void)dr_cuda_fail(atomic_load(&cu), result, &e, "%s", call);
	fn_log(FN_LEVEL_WARN, "%s", e.text);
	return FN_CUDA_ERROR;
}

#define CALL(name, ...) check(atomic_load(&cu)->name(__VA_ARGS__), #name)

static enum fn_result first(enum fn_result a, enum fn_result b)
{
	return a != FN_OK ? a : b;
}

/* Returns the first failure: of what was done, or of this. */
static enum fn_result leave(const struct fn_gpu *g, context callers, enum fn_result result)
{
	return callers == g->ctx ? result : first(result, CALL(ctx_set_current, callers));
}

/* Returns what `work` results in, which is done in the comm's context. */
#define WITHIN(g, work)                                                                            \
	do {                                                                                       \
		context callers_ = NULL;                                                           \
		enum fn_result result_ = CALL(ctx_get_current, &callers_);                         \
                                                                                                   \
		if (result_ == FN_OK && callers_ != (g)->ctx)                                      \
			result_ = CALL(ctx_set_current, (g)->ctx);                                 \
		return result_ == FN_OK ? leave(g, callers_, work) : result_;                      \
	} while (0)

static enum fn_result finish(const struct fn_gpu *g, enum fn_result result)
{
	return result == FN_OK ? CALL(stream_synchronize, g->stream) : result;
}

static dev_ptr address(const uint8_t *p)
{
	return (uintptr_t)p;
}

/* ---- what a comm has ---- */

enum fn_result fn_gpu_take(struct fn_gpu *g, bool say)
{
	enum fn_result result;

	if (g->ctx)
		return FN_OK;
	if (!loaded(say))
		return FN_CUDA_ERROR;
	result = CALL(ctx_get_current, &g->ctx);
	if (result != FN_OK)
		g->ctx = NULL;
	else if (!g->ctx && say)
		fn_log(FN_LEVEL_WARN, "FAKENET_MEMORY=cuda: no CUDA context is current");
	return g->ctx ? FN_OK : FN_CUDA_ERROR;
}

static enum fn_result pin(size_t len, void *out)
{
	void *p = NULL;
	enum fn_result result = CALL(mem_host_alloc, &p, len, DR_CUDA_HOST_PORTABLE);

	if (result == FN_OK)
		memcpy(out, &p, sizeof(p));
	return result;
}

static enum fn_result open_entered(struct fn_gpu *g, unsigned n_socks)
{
	enum fn_result result = FN_OK;

	if (!g->stage)
		result = pin((size_t)n_socks * FN_STAGE, &g->stage);
	/* The last: with a stream the comm is open. */
	if (result == FN_OK && !g->stream) {
		result = CALL(stream_create, &g->stream, DR_CUDA_STREAM_NON_BLOCKING);
		if (result != FN_OK)
			g->stream = NULL;
	}
	return result;
}

enum fn_result fn_gpu_open(struct fn_gpu *g, unsigned n_socks)
{
	enum fn_result result = fn_gpu_take(g, true);

	if (result != FN_OK || g->stream)
		return result;
	WITHIN(g, open_entered(g, n_socks));
}

static enum fn_result bounce_entered(struct fn_gpu *g, unsigned pages, uint8_t **bounce)
{
	size_t len = (size_t)pages * FN_PAGE;
	enum fn_result result;
	dev_ptr start;

	result = CALL(mem_alloc, &g->memory, len + 2 * FN_PAGE);
	if (result != FN_OK) {
		g->memory = 0;
		return result;
	}
	result = pin(sizeof(*g->meta), &g->meta);
	if (result != FN_OK)
		return result;
	memset(g->meta, 0, sizeof(*g->meta));
	start = (g->memory + FN_PAGE - 1) / FN_PAGE * FN_PAGE;
	*bounce = (uint8_t *)(uintptr_t)start;
	g->handle = *bounce + len;
	return finish(g, CALL(memset_d8_async, start, FN_POISON, len, g->stream));
}

enum fn_result fn_gpu_bounce(struct fn_gpu *g, unsigned n_socks, unsigned pages, uint8_t **bounce)
{
	enum fn_result result = fn_gpu_open(g, n_socks);

	if (result != FN_OK)
		return result;
	WITHIN(g, bounce_entered(g, pages, bounce));
}

/* What is freed may not be in use by the stream any more. Each call frees, even if it fails. */
static enum fn_result free_entered(const struct fn_gpu *g)
{
	enum fn_result result = FN_OK;

	if (g->stream) {
		result = CALL(stream_synchronize, g->stream);
		result = first(result, CALL(stream_destroy, g->stream));
	}
	if (g->memory)
		result = first(result, CALL(mem_free, g->memory));
	if (g->meta)
		result = first(result, CALL(mem_free_host, g->meta));
	if (g->stage)
		result = first(result, CALL(mem_free_host, g->stage));
	return result;
}

enum fn_result fn_gpu_close(struct fn_gpu *g)
{
	context callers = NULL;
	enum fn_result known = FN_OK, result = FN_OK;

	if (g->stream || g->stage) {
		known = CALL(ctx_get_current, &callers);
		if (known != FN_OK || callers != g->ctx)
			result = CALL(ctx_set_current, g->ctx);
		/* Else the context is gone. */
		if (result == FN_OK)
			result = leave(g, known == FN_OK ? callers : g->ctx, free_entered(g));
	}
	memset(g, 0, sizeof(*g));
	return first(known, result);
}

/* ---- data ---- */

enum fn_result fn_gpu_read(struct fn_gpu *g, void *to, const uint8_t *from, size_t len)
{
	WITHIN(g, finish(g, CALL(memcpy_dtoh_async, to, address(from), len, g->stream)));
}

enum fn_result fn_gpu_write(struct fn_gpu *g, uint8_t *to, const void *from, size_t len)
{
	g->writing = true;
	WITHIN(g, CALL(memcpy_htod_async, address(to), from, len, g->stream));
}

enum fn_result fn_gpu_wait(struct fn_gpu *g)
{
	if (!g->writing)
		return FN_OK;
	g->writing = false;
	WITHIN(g, finish(g, FN_OK));
}

static enum fn_result fill_entered(
	struct fn_gpu *g, uint8_t *bounce, const uint32_t *page, unsigned n, uint8_t byte)
{
	enum fn_result result = FN_OK;

	for (unsigned i = 0; i < n && result == FN_OK; i++)
		result = CALL(memset_d8_async, address(bounce + (size_t)page[i] * FN_PAGE), byte,
			FN_PAGE, g->stream);
	return finish(g, result);
}

enum fn_result fn_gpu_fill(
	struct fn_gpu *g, uint8_t *bounce, const uint32_t *page, unsigned n, uint8_t byte)
{
	if (n == 0)
		return FN_OK;
	WITHIN(g, fill_entered(g, bounce, page, n, byte));
}

bool fn_gpu_knows(const void *data)
{
	const char *name = getenv("DR_LIBCUDA");
	void *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *symbol = lib ? dlsym(lib, "cuPointerGetAttribute") : NULL;
	unsigned (*get)(void *out, unsigned attribute, dev_ptr dev), type = 0, result;

	if (lib)
		(void)dlclose(lib);
	if (!symbol)
		return true;
	memcpy(&get, &symbol, sizeof(get));
	result = get(&type, ATTRIBUTE_MEMORY_TYPE, address(data));
	return result != DR_CUDA_INVALID_VALUE && (result != 0 || type == MEMORY_TYPE_DEVICE);
}
