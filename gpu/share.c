/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include <string.h>

/*
 * Memory of a GPU in two processes. The driver exports whole allocations, so a handle names the allocation and the
 * offset in it, and the other process maps all of it.
 */
struct CUipcMemHandle_st {
	char reserved[DR_GPU_SHARE_LEN];
};
_Static_assert(sizeof(struct CUipcMemHandle_st) == 64, "CU_IPC_HANDLE_SIZE of cuda.h");

int dr_gpu_share(struct dr_gpu *g, uint64_t dev, struct dr_gpu_share *out, struct dr_err *e)
{
	struct CUipcMemHandle_st handle;
	unsigned long long base = 0;
	size_t len = 0;
	int rc = dr_gpu_enter(g, e);

	if (rc)
		return rc;
	unsigned result = g->cuda->mem_get_address_range(&base, &len, dev);
	if (result == 0)
		result = g->cuda->ipc_get_mem_handle(&handle, base);
	if (result)
		return dr_cuda_fail(g->cuda, result, e,
			"share memory of GPU %u with another process (CUDA IPC)", g->info.ordinal);
	memcpy(out->handle, &handle, sizeof(out->handle));
	out->off = dev - base;
	return 0;
}

int dr_gpu_map(struct dr_gpu *g, const struct dr_gpu_share *s, struct dr_gpu_mapping *out,
	struct dr_err *e)
{
	struct CUipcMemHandle_st handle;
	unsigned long long base = 0;
	int rc = dr_gpu_enter(g, e);

	if (rc)
		return rc;
	memcpy(&handle, s->handle, sizeof(handle));
	unsigned result = g->cuda->ipc_open_mem_handle(&base, handle, DR_CUDA_IPC_LAZY_PEER_ACCESS);
	if (result)
		return dr_cuda_fail(g->cuda, result, e,
			"map memory of GPU %u of another process (CUDA IPC)", g->info.ordinal);
	*out = (struct dr_gpu_mapping){ .dev = base + s->off, .base = base };
	return 0;
}

void dr_gpu_unmap(struct dr_gpu *g, struct dr_gpu_mapping *m)
{
	if (!m->base)
		return;
	(void)dr_gpu_enter(g, NULL);
	dr_gpu_note(g, "unmap memory of another process", g->cuda->ipc_close_mem_handle(m->base));
	*m = (struct dr_gpu_mapping){ 0 };
}
