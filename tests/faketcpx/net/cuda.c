/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faketcpx/net/tcpx.h"

/*
 * The driver's calls are declared here and looked up in libcuda.so.1, or in the library that DR_LIBCUDA names.
 * Its types appear as their base types, as in gpu/cuda.h. cuInit is missing: who has a current context has called it.
 */
enum {
	CUDA_INVALID_VALUE = 1,
	HOST_PORTABLE = 1, /* memory is mapped for the GPU in any case */
	STREAM_NON_BLOCKING = 1,
	ATTRIBUTE_MEMORY_TYPE = 2,
	MEMORY_TYPE_DEVICE = 2,
};

typedef unsigned long long dev_ptr;
typedef struct CUctx_st *context;
typedef struct CUstream_st *stream;

/* clang-format off */
#define CALLS(X)                                                                                   \
	X(cuGetErrorName, (unsigned result, const char **out))                                     \
	X(cuCtxGetCurrent, (context *ctx))                                                         \
	X(cuCtxSetCurrent, (context ctx))                                                          \
	X(cuMemAlloc_v2, (dev_ptr *dev, size_t len))                                               \
	X(cuMemFree_v2, (dev_ptr dev))                                                             \
	X(cuMemHostAlloc, (void **p, size_t len, unsigned flags))                                  \
	X(cuMemFreeHost, (void *p))                                                                \
	X(cuMemcpyDtoHAsync_v2, (void *to, dev_ptr from, size_t len, stream s))                    \
	X(cuMemcpyHtoDAsync_v2, (dev_ptr to, const void *from, size_t len, stream s))              \
	X(cuMemsetD8Async, (dev_ptr to, unsigned char byte, size_t len, stream s))                 \
	X(cuStreamCreate, (stream *s, unsigned flags))                                             \
	X(cuStreamDestroy_v2, (stream s))                                                          \
	X(cuStreamSynchronize, (stream s))
/* clang-format on */

#define FIELD(name, args) unsigned(*name) args;
static struct {
	CALLS(FIELD)
	/* NULL: the library lacks it */
	unsigned (*cuPointerGetAttribute)(void *out, unsigned attribute, dev_ptr dev);
} cu;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char load_error[256]; /* "": loaded */

static bool find(void *lib, const char *name, void *field)
{
	void *p = dlsym(lib, name);

	memcpy(field, &p, sizeof(p));
	if (!p)
		(void)snprintf(load_error, sizeof(load_error), "libcuda lacks %s", name);
	return p != NULL;
}

#define FIND(name, args)                                                                           \
	if (!find(lib, #name, &cu.name))                                                           \
		return;

/* The library is never closed: the caller uses it, too. */
static void load(void)
{
	const char *name = getenv("DR_LIBCUDA"), *why;
	void *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *p;

	if (!lib) {
		why = dlerror();
		(void)snprintf(load_error, sizeof(load_error), "%s", why ? why : "no libcuda");
		return;
	}
	CALLS(FIND)
	p = dlsym(lib, "cuPointerGetAttribute");
	memcpy(&cu.cuPointerGetAttribute, &p, sizeof(p));
}

static bool loaded(bool say)
{
	(void)pthread_once(&once, load);
	if (load_error[0] && say)
		min_log(MIN_LEVEL_WARN, "%s=cuda: %s", tcpx_kind.memory, load_error);
	return !load_error[0];
}

static enum min_result check(unsigned result, const char *call)
{
	const char *name = NULL;

	if (result == 0)
		return MIN_OK;
	if (cu.cuGetErrorName(result, &name) != 0 || !name)
		name = "unknown error";
	min_log(MIN_LEVEL_WARN, "%s: %s (%u)", call, name, result);
	return MIN_CUDA_ERROR;
}

#define CALL(name, ...) check(cu.name(__VA_ARGS__), #name)

static enum min_result first(enum min_result a, enum min_result b)
{
	return a != MIN_OK ? a : b;
}

static enum min_result enter(const struct tcpx_gpu *g, context *callers)
{
	enum min_result result = CALL(cuCtxGetCurrent, callers);

	if (result != MIN_OK || *callers == g->ctx)
		return result;
	return CALL(cuCtxSetCurrent, g->ctx);
}

/* Returns the first failure: of what was done, or of this. */
static enum min_result leave(const struct tcpx_gpu *g, context callers, enum min_result result)
{
	return callers == g->ctx ? result : first(result, CALL(cuCtxSetCurrent, callers));
}

static dev_ptr address(const uint8_t *p)
{
	return (uintptr_t)p;
}

/* ---- what a comm has ---- */

enum min_result tcpx_gpu_take(struct tcpx_gpu *g)
{
	if (!g->ctx && (!loaded(false) || cu.cuCtxGetCurrent(&g->ctx) != 0))
		g->ctx = NULL;
	return g->ctx ? MIN_OK : MIN_CUDA_ERROR;
}

static enum min_result take(struct tcpx_gpu *g)
{
	enum min_result result;

	if (g->ctx)
		return MIN_OK;
	if (!loaded(true))
		return MIN_CUDA_ERROR;
	result = CALL(cuCtxGetCurrent, &g->ctx);
	if (result == MIN_OK && g->ctx)
		return MIN_OK;
	g->ctx = NULL;
	if (result == MIN_OK)
		min_log(MIN_LEVEL_WARN, "%s=cuda: no CUDA context is current", tcpx_kind.memory);
	return MIN_CUDA_ERROR;
}

static enum min_result pin(size_t len, void *out)
{
	void *p = NULL;
	enum min_result result = CALL(cuMemHostAlloc, &p, len, HOST_PORTABLE);

	if (result == MIN_OK)
		memcpy(out, &p, sizeof(p));
	return result;
}

static enum min_result open_entered(struct tcpx_gpu *g, unsigned n_socks)
{
	enum min_result result = MIN_OK;

	if (!g->stage)
		result = pin((size_t)n_socks * TCPX_STAGE, &g->stage);
	/* The last: with a stream the comm is open. */
	if (result == MIN_OK && !g->stream) {
		result = CALL(cuStreamCreate, &g->stream, STREAM_NON_BLOCKING);
		if (result != MIN_OK)
			g->stream = NULL;
	}
	return result;
}

enum min_result tcpx_gpu_open(struct tcpx_gpu *g, unsigned n_socks)
{
	enum min_result result = take(g);
	context callers;

	if (result != MIN_OK || g->stream)
		return result;
	result = enter(g, &callers);
	if (result != MIN_OK)
		return result;
	return leave(g, callers, open_entered(g, n_socks));
}

static enum min_result bounce_entered(struct tcpx_gpu *g, unsigned pages, uint8_t **bounce)
{
	size_t len = (size_t)pages * TCPX_PAGE;
	enum min_result result;
	dev_ptr start;

	result = CALL(cuMemAlloc_v2, &g->memory, len + 2 * TCPX_PAGE);
	if (result != MIN_OK) {
		g->memory = 0;
		return result;
	}
	result = pin(sizeof(*g->meta), &g->meta);
	if (result != MIN_OK)
		return result;
	memset(g->meta, 0, sizeof(*g->meta));
	start = (g->memory + TCPX_PAGE - 1) / TCPX_PAGE * TCPX_PAGE;
	*bounce = (uint8_t *)(uintptr_t)start;
	g->handle = *bounce + len;
	result = CALL(cuMemsetD8Async, start, TCPX_POISON, len, g->stream);
	return first(result, CALL(cuStreamSynchronize, g->stream));
}

enum min_result tcpx_gpu_bounce(
	struct tcpx_gpu *g, unsigned n_socks, unsigned pages, uint8_t **bounce)
{
	enum min_result result = tcpx_gpu_open(g, n_socks);
	context callers;

	if (result != MIN_OK)
		return result;
	result = enter(g, &callers);
	if (result != MIN_OK)
		return result;
	return leave(g, callers, bounce_entered(g, pages, bounce));
}

/* What is freed may not be in use by the stream any more. Each call frees, even if it fails. */
static enum min_result free_entered(const struct tcpx_gpu *g)
{
	enum min_result result = MIN_OK;

	if (g->stream) {
		result = CALL(cuStreamSynchronize, g->stream);
		result = first(result, CALL(cuStreamDestroy_v2, g->stream));
	}
	if (g->memory)
		result = first(result, CALL(cuMemFree_v2, g->memory));
	if (g->meta)
		result = first(result, CALL(cuMemFreeHost, g->meta));
	if (g->stage)
		result = first(result, CALL(cuMemFreeHost, g->stage));
	return result;
}

enum min_result tcpx_gpu_close(struct tcpx_gpu *g)
{
	context callers = NULL;
	enum min_result known = MIN_OK, result = MIN_OK;

	if (g->stream || g->stage) {
		known = CALL(cuCtxGetCurrent, &callers);
		if (known != MIN_OK || callers != g->ctx)
			result = CALL(cuCtxSetCurrent, g->ctx);
		/* Else the context is gone. */
		if (result == MIN_OK)
			result = leave(g, known == MIN_OK ? callers : g->ctx, free_entered(g));
	}
	memset(g, 0, sizeof(*g));
	return first(known, result);
}

/* ---- data ---- */

enum min_result tcpx_gpu_read(struct tcpx_gpu *g, void *to, const uint8_t *from, size_t len)
{
	context callers;
	enum min_result result = enter(g, &callers);

	if (result != MIN_OK)
		return result;
	result = CALL(cuMemcpyDtoHAsync_v2, to, address(from), len, g->stream);
	if (result == MIN_OK)
		result = CALL(cuStreamSynchronize, g->stream);
	return leave(g, callers, result);
}

enum min_result tcpx_gpu_write(struct tcpx_gpu *g, uint8_t *to, const void *from, size_t len)
{
	context callers;
	enum min_result result = enter(g, &callers);

	if (result != MIN_OK)
		return result;
	g->writing = true;
	result = CALL(cuMemcpyHtoDAsync_v2, address(to), from, len, g->stream);
	return leave(g, callers, result);
}

enum min_result tcpx_gpu_wait(struct tcpx_gpu *g)
{
	context callers;
	enum min_result result;

	if (!g->writing)
		return MIN_OK;
	result = enter(g, &callers);
	if (result != MIN_OK)
		return result;
	result = CALL(cuStreamSynchronize, g->stream);
	g->writing = result != MIN_OK;
	return leave(g, callers, result);
}

enum min_result tcpx_gpu_fill(
	struct tcpx_gpu *g, uint8_t *bounce, const uint32_t *page, unsigned n, uint8_t byte)
{
	context callers;
	enum min_result result = n > 0 ? enter(g, &callers) : MIN_OK;

	if (n == 0 || result != MIN_OK)
		return result;
	for (unsigned i = 0; i < n && result == MIN_OK; i++)
		result = CALL(cuMemsetD8Async, address(bounce + (size_t)page[i] * TCPX_PAGE), byte,
			TCPX_PAGE, g->stream);
	return leave(g, callers, first(result, CALL(cuStreamSynchronize, g->stream)));
}

bool tcpx_gpu_knows(const void *data)
{
	unsigned type = MEMORY_TYPE_DEVICE, result;

	if (!loaded(false) || !cu.cuPointerGetAttribute)
		return true;
	result = cu.cuPointerGetAttribute(&type, ATTRIBUTE_MEMORY_TYPE, address(data));
	return result != CUDA_INVALID_VALUE && type == MEMORY_TYPE_DEVICE;
}
