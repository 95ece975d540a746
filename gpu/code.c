/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include <string.h>

/* Fits into struct dr_err. */
enum { LOG_BYTES = 160 };

static int compile(const struct dr_gpu *g, const struct dr_gpu_code *c, struct dr_err *e)
{
	char log[LOG_BYTES] = "";
	unsigned option[] = { DR_CUDA_JIT_ERROR_LOG, DR_CUDA_JIT_ERROR_LOG_BYTES };
	void *value[] = { log, (void *)(uintptr_t)sizeof(log) };
	unsigned result = g->cuda->module_load_data_ex(
		c->module, c->ptx, DR_ARRAY_LEN(option), option, value);

	if (result == 0)
		return 0;
	log[sizeof(log) - 1] = '\0';
	log[strcspn(log, "\r\n")] = '\0';
	return dr_cuda_fail(g->cuda, result, e, "load the %s code on GPU %u%s%s", c->what,
		g->info.ordinal, log[0] ? ": " : "", log);
}

int dr_gpu_code_load(const struct dr_gpu *g, const struct dr_gpu_code *c, struct dr_err *e)
{
	int rc = compile(g, c, e);

	for (unsigned i = 0; rc == 0 && i < DR_GPU_KERNELS_MAX && c->kernel[i].name; i++) {
		unsigned result = g->cuda->module_get_function(
			c->kernel[i].fn, *c->module, c->kernel[i].name);

		if (result == 0)
			continue;
		rc = dr_cuda_fail(g->cuda, result, e, "look up %s in the %s code on GPU %u",
			c->kernel[i].name, c->what, g->info.ordinal);
		dr_gpu_code_unload(g, c->module);
	}
	return rc;
}

void dr_gpu_code_unload(const struct dr_gpu *g, struct CUmod_st **module)
{
	if (*module)
		(void)g->cuda->module_unload(*module);
	*module = NULL;
}
