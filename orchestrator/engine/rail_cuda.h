/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_RAIL_CUDA_H
#define DR_ORCHESTRATOR_RAIL_CUDA_H

#include "gpu/gpu.h"
#include "transport/gpu.h"

/* The functions of transport/gpu.h, by calls of the CUDA driver. */
struct dr_rail_cuda {
	struct dr_gpu *gpu;
	/* For unpacking. NULL before prepare, and after an error: it is destroyed then, which waits for its work. */
	struct dr_gpu_stream *stream;
	struct dr_gpu_stream_stats past; /* of streams that were destroyed */
};

extern const struct dr_rail_gpu_ops dr_rail_cuda_ops;

/* gpu stays open until fini. */
struct dr_rail_gpu dr_rail_cuda_init(struct dr_rail_cuda *r, struct dr_gpu *gpu);
/* Waits for outstanding work. */
void dr_rail_cuda_fini(struct dr_rail_cuda *r);
/* Of unpacking. */
void dr_rail_cuda_stats(const struct dr_rail_cuda *r, struct dr_gpu_stream_stats *out);

#endif
