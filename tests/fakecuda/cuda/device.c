/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/cuda/fake.h"

#include <stdio.h>

/* The library itself, its GPUs and their primary contexts. */

struct dr_fgpu_config dr_fgpu_config;
struct CUctx_st dr_fgpu_ctx[DR_FGPU_DEVICES_MAX];
static pid_t initialised; /* the process that called cuInit: once, and for good */

/* ---- DR_FAKE_CUDA ---- */

static void set_fail(char *value)
{
	char *k = strchr(value, ':');

	if (k)
		*k++ = '\0';
	dr_fgpu_fail_call(value, k ? (unsigned)strtoul(k, NULL, 10) : 1, 0);
}

static void set_hold(char *value)
{
	char *file = strchr(value, ':');

	if (!file)
		return;
	*file++ = '\0';
	dr_fgpu_hold_call(value, file);
}

static void set(const char *key, char *value)
{
	unsigned long n = strtoul(value, NULL, 10);

	if (strcmp(key, "devices") == 0)
		dr_fgpu_config.devices = (unsigned)DR_MIN(n, (unsigned long)DR_FGPU_DEVICES_MAX);
	else if (strcmp(key, "memory_mib") == 0)
		dr_fgpu_config.memory_bytes = (uint64_t)n << 20;
	else if (strcmp(key, "version") == 0)
		dr_fgpu_config.version = (int)n;
	else if (strcmp(key, "dmabuf") == 0)
		dr_fgpu_config.dmabuf = n > 0;
	else if (strcmp(key, "ordered") == 0)
		dr_fgpu_config.ordered = n > 0;
	else if (strcmp(key, "flags") == 0)
		dr_fgpu_config.flags = n > 0;
	else if (strcmp(key, "delay_us") == 0)
		dr_fgpu_delay((int64_t)n * DR_NS_PER_US);
	else if (strcmp(key, "counts") == 0)
		dr_fgpu_config.tell_counts = n > 0;
	else if (strcmp(key, "init") == 0)
		dr_fgpu_config.init = (unsigned)n;
	else if (strcmp(key, "fail") == 0)
		set_fail(value);
	else if (strcmp(key, "hold") == 0)
		set_hold(value);
	else
		dr_fgpu_violation("DR_FAKE_CUDA: no such key: %s", key);
}

/* CUDA_VISIBLE_DEVICES: numbers, those before the first that is none. */
static void choose_visible(void)
{
	const char *p = getenv("CUDA_VISIBLE_DEVICES");
	unsigned n = 0;
	char *end;

	for (unsigned i = 0; !p && i < DR_FGPU_DEVICES_MAX; i++)
		dr_fgpu_config.slot[i] = i;
	if (!p)
		return;
	while (n < dr_fgpu_config.devices) {
		unsigned long slot = strtoul(p, &end, 10);

		if (end == p || slot >= dr_fgpu_config.devices)
			break;
		dr_fgpu_config.slot[n++] = (unsigned)slot;
		p = *end == ',' ? end + 1 : end;
	}
	dr_fgpu_config.devices = n;
}

void dr_fgpu_configure(void)
{
	const char *env = getenv("DR_FAKE_CUDA");
	char *copy = strdup(env ? env : ""), *rest = copy, *item, *value;

	dr_fgpu_config = (struct dr_fgpu_config){ .devices = 2,
		.memory_bytes = 1 << 30,
		.version = 13000,
		.dmabuf = true,
		.flags = true };
	dr_fgpu_delay(50 * DR_NS_PER_US);
	dr_assert(copy != NULL);
	while ((item = strsep(&rest, ",")) != NULL) {
		value = strchr(item, '=');
		if (value) {
			*value++ = '\0';
			set(item, value);
		}
	}
	free(copy);
	choose_visible();
}

/* ---- the library ---- */

unsigned cuDriverGetVersion(int *version)
{
	unsigned result = dr_fgpu_enter(DR_FGPU_CALL_cuDriverGetVersion);

	if (result == 0)
		*version = dr_fgpu_config.version;
	return dr_fgpu_leave(result);
}

unsigned cuInit(unsigned flags)
{
	unsigned result = dr_fgpu_enter(DR_FGPU_CALL_cuInit);

	if (result == 0 && flags)
		result = DR_CUDA_INVALID_VALUE;
	if (result == 0)
		result = dr_fgpu_config.init;
	if (result == 0 && dr_fgpu_config.devices == 0)
		result = DR_CUDA_NO_DEVICE;
	if (initialised && initialised != getpid())
		dr_fgpu_violation("cuInit in a process that was forked after cuInit");
	else if (result == 0)
		initialised = getpid();
	return dr_fgpu_leave(result);
}

static const struct {
	unsigned result;
	const char *name, *words;
} errors[] = {
	{ DR_CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ DR_CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ DR_CUDA_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library" },
	{ DR_CUDA_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
		"CUDA-capable device(s) is/are busy or unavailable" },
	{ DR_CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ DR_CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ DR_CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ DR_CUDA_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed" },
	{ DR_CUDA_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ DR_CUDA_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ DR_CUDA_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
	{ DR_CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ DR_CUDA_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
		"system has unsupported display driver / cuda driver combination" },
	{ DR_CUDA_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

static unsigned look_up(unsigned result, bool words, const char **out)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(errors); i++)
		if (errors[i].result == result) {
			*out = words ? errors[i].words : errors[i].name;
			return 0;
		}
	*out = NULL;
	return DR_CUDA_INVALID_VALUE;
}

unsigned cuGetErrorName(unsigned result, const char **out)
{
	unsigned failed = dr_fgpu_leave(dr_fgpu_enter(DR_FGPU_CALL_cuGetErrorName));

	return failed ? failed : look_up(result, false, out);
}

unsigned cuGetErrorString(unsigned result, const char **out)
{
	unsigned failed = dr_fgpu_leave(dr_fgpu_enter(DR_FGPU_CALL_cuGetErrorString));

	return failed ? failed : look_up(result, true, out);
}

/* ---- GPUs ---- */

static unsigned enter_device(enum dr_fgpu_call c, int dev)
{
	unsigned result = dr_fgpu_enter(c);

	if (initialised != getpid()) {
		dr_fgpu_violation(initialised ? "a call in a process that was forked after cuInit"
					      : "a call before cuInit");
		return 3; /* CUDA_ERROR_NOT_INITIALIZED */
	}
	if (dev < 0 || (unsigned)dev >= dr_fgpu_config.devices)
		return DR_CUDA_INVALID_DEVICE;
	return result;
}

/* A call that tells something about a GPU. */
#define TELLS(symbol, args, dev, tell)                                                             \
	unsigned symbol args                                                                       \
	{                                                                                          \
		unsigned result = enter_device(DR_FGPU_CALL_##symbol, dev);                        \
                                                                                                   \
		if (result == 0)                                                                   \
			tell;                                                                      \
		return dr_fgpu_leave(result);                                                      \
	}
TELLS(cuDeviceGetCount, (int *n), 0, *n = (int)dr_fgpu_config.devices)
TELLS(cuDeviceGet, (int *dev, int ordinal), ordinal, *dev = ordinal)
TELLS(cuDeviceGetName, (char *buf, int len, int dev), dev,
	(void)snprintf(buf, (size_t)len, "Fake GPU"))
TELLS(cuDeviceTotalMem_v2, (size_t * bytes, int dev), dev, *bytes = dr_fgpu_config.memory_bytes)
/* In capitals, as CUDA has it. */
TELLS(cuDeviceGetPCIBusId, (char *buf, int len, int dev), dev,
	(void)snprintf(buf, (size_t)len, "0000:%02X:00.0", 0x1b + 0x10 * dr_fgpu_config.slot[dev]))

unsigned cuDeviceGetAttribute(int *value, unsigned attr, int dev)
{
	unsigned result = enter_device(DR_FGPU_CALL_cuDeviceGetAttribute, dev);

	if (result)
		return dr_fgpu_leave(result);
	if (attr == DR_CUDA_ATTR_MULTIPROCESSORS)
		*value = 4;
	else if (attr == DR_CUDA_ATTR_CC_MAJOR)
		*value = 9;
	else if (attr == DR_CUDA_ATTR_CC_MINOR)
		*value = 0;
	else if (attr == DR_CUDA_ATTR_WRITES_ORDERING)
		*value = dr_fgpu_config.ordered ? DR_CUDA_ORDERED : 0;
	else if (attr == DR_CUDA_ATTR_DMA_BUF && dr_fgpu_config.version >= 11070)
		*value = dr_fgpu_config.dmabuf;
	else
		result = DR_CUDA_INVALID_VALUE;
	return dr_fgpu_leave(result);
}

/* ---- contexts ---- */

unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int dev)
{
	unsigned result = enter_device(DR_FGPU_CALL_cuDevicePrimaryCtxRetain, dev);

	if (result == 0) {
		*ctx = &dr_fgpu_ctx[dev];
		(*ctx)->dev = dev;
		(*ctx)->retained++;
	}
	return dr_fgpu_leave(result);
}

static unsigned left_in(const struct dr_fgpu_node *list, const struct CUctx_st *ctx)
{
	unsigned n = 0;

	for (; list; list = list->next)
		n += list->ctx == ctx;
	return n;
}

unsigned cuDevicePrimaryCtxRelease_v2(int dev)
{
	unsigned result = enter_device(DR_FGPU_CALL_cuDevicePrimaryCtxRelease_v2, dev);
	struct CUctx_st *ctx = &dr_fgpu_ctx[dev];

	if (ctx->retained == 0) {
		dr_fgpu_violation("a context is released more often than it was retained");
		return dr_fgpu_leave(DR_CUDA_INVALID_CONTEXT);
	}
	if (--ctx->retained > 0)
		return dr_fgpu_leave(result);
	ctx->failed = 0;
	if (left_in(dr_fgpu_memories, ctx) || left_in(dr_fgpu_pinneds, ctx) ||
		left_in(dr_fgpu_streams, ctx) || left_in(dr_fgpu_events, ctx) ||
		left_in(dr_fgpu_modules, ctx))
		dr_fgpu_violation(
			"GPU %d is closed with %u memories, %u pinned, %u streams, %u events, %u modules",
			dev, left_in(dr_fgpu_memories, ctx), left_in(dr_fgpu_pinneds, ctx),
			left_in(dr_fgpu_streams, ctx), left_in(dr_fgpu_events, ctx),
			left_in(dr_fgpu_modules, ctx));
	return dr_fgpu_leave(result);
}

/* Costs nothing that could fail, but for a context that is gone. */
unsigned cuCtxSetCurrent(struct CUctx_st *ctx)
{
	unsigned result = dr_fgpu_enter(DR_FGPU_CALL_cuCtxSetCurrent);

	if (ctx && ctx->retained == 0) {
		dr_fgpu_violation("a context is made current that is not retained");
		result = DR_CUDA_INVALID_CONTEXT;
	}
	if (result == 0)
		dr_fgpu_current = ctx;
	return dr_fgpu_leave(result);
}

unsigned cuCtxGetCurrent(struct CUctx_st **ctx)
{
	unsigned result = dr_fgpu_enter(DR_FGPU_CALL_cuCtxGetCurrent);

	if (result == 0)
		*ctx = dr_fgpu_current;
	return dr_fgpu_leave(result);
}
