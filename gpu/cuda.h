/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_GPU_CUDA_H
#define DR_GPU_CUDA_H

#include "base/defs.h"
#include "base/err.h"

/*
 * The part of the CUDA driver API that gpu/ uses: own declarations, since few build machines have cuda.h, and a
 * table that is filled from libcuda.so.1 at run time. Private to gpu/.
 *
 * Struct tags are those of cuda.h. Its types appear as their base types: CUresult, CUdevice_attribute, CUjit_option
 * and CUmemRangeHandleType are unsigned, CUdevice is int, CUdeviceptr unsigned long long. Symbols are looked up
 * with the version that has this signature (_v2 where cuda.h renames by macro). tests/gpu/cuda_abi_test.c compares
 * each line with cuda.h where that is installed.
 */
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;

enum {
	DR_CUDA_SUCCESS = 0,
	DR_CUDA_INVALID_VALUE = 1,
	DR_CUDA_OUT_OF_MEMORY = 2,
	DR_CUDA_STUB_LIBRARY = 34,
	DR_CUDA_DEVICE_UNAVAILABLE = 46,
	DR_CUDA_NO_DEVICE = 100,
	DR_CUDA_INVALID_DEVICE = 101,
	DR_CUDA_INVALID_CONTEXT = 201,
	DR_CUDA_INVALID_PTX = 218,
	DR_CUDA_OPERATING_SYSTEM = 304,
	DR_CUDA_INVALID_HANDLE = 400,
	DR_CUDA_NOT_READY = 600,
	DR_CUDA_LAUNCH_FAILED = 719,
	DR_CUDA_NOT_PERMITTED = 800,
	DR_CUDA_NOT_SUPPORTED = 801,
	DR_CUDA_SYSTEM_NOT_READY = 802,
	DR_CUDA_SYSTEM_DRIVER_MISMATCH = 803,
	DR_CUDA_COMPAT_NOT_SUPPORTED = 804,
	DR_CUDA_UNKNOWN = 999,
};

enum {
	DR_CUDA_ATTR_MULTIPROCESSORS = 16,
	DR_CUDA_ATTR_CC_MAJOR = 75,
	DR_CUDA_ATTR_CC_MINOR = 76,
	DR_CUDA_ATTR_WRITES_ORDERING = 118,
	DR_CUDA_ATTR_DMA_BUF = 124,

	DR_CUDA_ORDERED = 100, /* WRITES_ORDERING at or above: remote writes need no flush */
	DR_CUDA_STREAM_NON_BLOCKING = 1, /* not ordered with the default stream */
	DR_CUDA_EVENT_DISABLE_TIMING = 2,
	DR_CUDA_HOST_PORTABLE = 1,
	DR_CUDA_RANGE_DMA_BUF_FD = 1,
	DR_CUDA_JIT_ERROR_LOG = 5,
	DR_CUDA_JIT_ERROR_LOG_BYTES = 6,

	DR_CUDA_VERSION_MIN = 11000, /* 1000 * major + 10 * minor: as cuDriverGetVersion counts */
};

/* clang-format off */
/* X(field, symbol, arguments): every call returns CUresult. OPT: NULL in older libraries. */
#define DR_CUDA_CALLS(X, OPT)                                                                      \
	X(init, cuInit, (unsigned flags))                                                          \
	X(get_error_name, cuGetErrorName, (unsigned result, const char **out))                     \
	X(get_error_string, cuGetErrorString, (unsigned result, const char **out))                 \
	X(device_get_count, cuDeviceGetCount, (int *n))                                            \
	X(device_get, cuDeviceGet, (int *dev, int ordinal))                                        \
	X(device_get_name, cuDeviceGetName, (char *buf, int len, int dev))                         \
	X(device_total_mem, cuDeviceTotalMem_v2, (size_t *bytes, int dev))                         \
	X(device_get_attribute, cuDeviceGetAttribute, (int *value, unsigned attr, int dev))        \
	X(device_get_bus_id, cuDeviceGetPCIBusId, (char *buf, int len, int dev))                   \
	X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (struct CUctx_st **ctx, int dev))          \
	X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (int dev))                            \
	X(ctx_set_current, cuCtxSetCurrent, (struct CUctx_st *ctx))                                \
	X(ctx_get_current, cuCtxGetCurrent, (struct CUctx_st **ctx))                               \
	X(mem_get_info, cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))                \
	X(mem_alloc, cuMemAlloc_v2, (unsigned long long *dev, size_t len))                         \
	X(mem_free, cuMemFree_v2, (unsigned long long dev))                                        \
	X(mem_host_alloc, cuMemHostAlloc, (void **p, size_t len, unsigned flags))                  \
	X(mem_free_host, cuMemFreeHost, (void *p))                                                 \
	X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2,                                                 \
		(void *to, unsigned long long from, size_t len, struct CUstream_st *s))            \
	X(memcpy_htod_async, cuMemcpyHtoDAsync_v2,                                                 \
		(unsigned long long to, const void *from, size_t len, struct CUstream_st *s))      \
	X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2,                                                 \
		(unsigned long long to, unsigned long long from, size_t len, struct CUstream_st *s)) \
	X(memset_d8_async, cuMemsetD8Async,                                                        \
		(unsigned long long dev, unsigned char byte, size_t len, struct CUstream_st *s))   \
	X(stream_create, cuStreamCreate, (struct CUstream_st **s, unsigned flags))                 \
	X(stream_destroy, cuStreamDestroy_v2, (struct CUstream_st *s))                             \
	X(stream_synchronize, cuStreamSynchronize, (struct CUstream_st *s))                        \
	X(event_create, cuEventCreate, (struct CUevent_st **ev, unsigned flags))                   \
	X(event_destroy, cuEventDestroy_v2, (struct CUevent_st *ev))                               \
	X(event_record, cuEventRecord, (struct CUevent_st *ev, struct CUstream_st *s))             \
	X(event_query, cuEventQuery, (struct CUevent_st *ev))                                      \
	X(event_synchronize, cuEventSynchronize, (struct CUevent_st *ev))                          \
	X(event_elapsed_time, cuEventElapsedTime,                                                  \
		(float *ms, struct CUevent_st *from, struct CUevent_st *to))                       \
	X(module_load_data_ex, cuModuleLoadDataEx,                                                 \
		(struct CUmod_st **mod, const void *image, unsigned n, unsigned *options,          \
			void **values))                                                            \
	X(module_unload, cuModuleUnload, (struct CUmod_st *mod))                                   \
	X(module_get_function, cuModuleGetFunction,                                                \
		(struct CUfunc_st **fn, struct CUmod_st *mod, const char *name))                   \
	X(launch_kernel, cuLaunchKernel,                                                           \
		(struct CUfunc_st *fn, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
			unsigned block_x, unsigned block_y, unsigned block_z,                      \
			unsigned shared_bytes, struct CUstream_st *s, void **args, void **extra))  \
	X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2,                               \
		(unsigned long long *dev, void *host, unsigned flags))                             \
	X(stream_query, cuStreamQuery, (struct CUstream_st *s))                                    \
	OPT(stream_write_value32, cuStreamWriteValue32_v2,                                         \
		(struct CUstream_st *s, unsigned long long dev, uint32_t value, unsigned flags))   \
	OPT(mem_get_handle_for_address_range, cuMemGetHandleForAddressRange,                       \
		(void *handle, unsigned long long dev, size_t len, unsigned type,                  \
			unsigned long long flags))
/* clang-format on */

#define DR_CUDA_FIELD(field, symbol, args) unsigned(*field) args;
struct dr_cuda {
	DR_CUDA_CALLS(DR_CUDA_FIELD, DR_CUDA_FIELD)
};

/* The table, opened and initialised once per process (DR_LIBCUDA names another library than libcuda.so.1).
 * Thread-safe. A failed call may be repeated. Errors as in gpu/gpu.h. */
int dr_cuda_load(const struct dr_cuda **out, struct dr_err *e) DR_MUST_CHECK;

/* The code of gpu/gpu.h for a result that is not success, and the text "WHAT: CUDA_ERROR_X (number, description); remedy". */
int dr_cuda_fail(const struct dr_cuda *c, unsigned result, struct dr_err *e, const char *what, ...)
	DR_PRINTF(4, 5);

#endif
