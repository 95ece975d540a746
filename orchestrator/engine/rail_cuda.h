/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_RAIL_CUDA_H
#define DR_ORCHESTRATOR_RAIL_CUDA_H

#include "gpu/gpu.h"
#include "transport/gpu.h"

/*
 * What rails do with GPU memory themselves (transport/gpu.h), on the driver: in the process of the run, and in one that it has
 * started.
 */
struct dr_rail_cuda {
	struct dr_gpu *gpu;
	/* Of unpacking: NULL before prepare. A stream that had an error is destroyed, which waits for what it was told. */
	struct dr_gpu_stream *stream;
	struct dr_gpu_stream_stats past; /* of it, when it was destroyed */
	struct dr_unpack_stats foreign;	 /* of other processes */
};

extern const struct dr_rail_gpu_ops dr_rail_cuda_ops;

/* gpu stays open until fini. */
struct dr_rail_gpu dr_rail_cuda_init(struct dr_rail_cuda *r, struct dr_gpu *gpu);
/* Waits for outstanding work. */
void dr_rail_cuda_fini(struct dr_rail_cuda *r);
/* Of unpacking, here and in other processes. */
void dr_rail_cuda_stats(const struct dr_rail_cuda *r, struct dr_gpu_stream_stats *out);

#endif
