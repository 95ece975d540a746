/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKECUDA_PTX_H
#define DR_TESTS_FAKECUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Runs a kernel in PTX, thread after thread, as far as PTX goes that dualrail's kernels use (NVIDIA's
 * "Parallel Thread Execution ISA" says what each instruction means). Global addresses are those of this
 * process; what is outside the ranges given, or not aligned to its size, is an error.
 */
enum { DR_PTX_PARAMS_MAX = 8, DR_PTX_RANGES_MAX = 4 };

struct dr_ptx_range {
	const void *begin;
	size_t len;
	bool writable;
};
struct dr_ptx_launch {
	unsigned grid, block; /* threads: grid * block, one-dimensional */
	uint64_t param[DR_PTX_PARAMS_MAX];
	struct dr_ptx_range range[DR_PTX_RANGES_MAX];
};

/* 0, or -1 and words for it: no such entry, not understood, a wrong address, no end. */
int dr_ptx_run(const char *ptx, const char *entry, const struct dr_ptx_launch *launch, char *why,
	size_t why_len);

#endif
