/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_GPU_BUFFERS_H
#define DR_ORCHESTRATOR_GPU_BUFFERS_H

#include "channel/manager.h"
#include "gpu/gpu.h"
#include "orchestrator/engine/integrity.h"
#include "transport/staged.h"

/*
 * The memory of one CUDA GPU of the run: its context, the buffers of its streams, the pattern in them, and the
 * copies of staged paths. With host memory there is none of this (NULL gpu_buffers): the buffers are pages and the
 * paths are not wrapped.
 *
 * The main thread opens and closes it; in between only the worker uses it.
 */
struct dr_gpu_buffers;
struct dr_gpu_buffers_params {
	unsigned ordinal;  /* CUDA's number of the GPU */
	size_t ring_bytes; /* window times the largest chunk's stride: of a staging ring */
};

/* Errors of dr_gpu_open. */
int dr_gpu_buffers_open(const struct dr_gpu_buffers_params *p, struct dr_gpu_buffers **out,
	struct dr_err *e) DR_MUST_CHECK;
/* After its manager was destroyed. NULL is allowed. If memory of the GPU has to stay allocated, or a staging
 * ring, the GPU's context stays open until the process ends, since closing it would free them. */
void dr_gpu_buffers_close(struct dr_gpu_buffers *b);
/* A buffer on the GPU is not freed, because a NIC may access it until the process ends. */
void dr_gpu_buffers_keep(struct dr_gpu_buffers *b);
/* Wrap the transport of a manager that is to be created with staging; m->kind_params is kept, or copied where the kind
 * takes the GPU. */
int dr_gpu_buffers_wrap(struct dr_gpu_buffers *b, struct dr_manager_params *m, struct dr_err *e)
	DR_MUST_CHECK;

/* Its GPU, to allocate buffers and for the tables; valid until close. */
struct dr_gpu *dr_gpu_buffers_gpu(const struct dr_gpu_buffers *b);
/* Register the buffer on the rails of both paths. If one of them has to stage, a ring is reserved. */
int dr_gpu_buffers_register(struct dr_gpu_buffers *b, const struct dr_gpu_memory *buf,
	struct dr_channel *ch, struct dr_mem *out, struct dr_err *e) DR_MUST_CHECK;

/* Write the pattern of a chunk on the GPU; at is a multiple of 16. */
int dr_gpu_buffers_fill(struct dr_gpu_buffers *b, uint8_t *at, size_t len, uint64_t base,
	struct dr_err *e) DR_MUST_CHECK;
/* As dr_integrity_check, for a chunk on the GPU: a wrong one is read back to be identified. Returns 0, 1 or
 * an error of the GPU. */
int dr_gpu_buffers_check(struct dr_gpu_buffers *b, struct dr_integrity *v, const struct dr_chunk *c,
	struct dr_err *e) DR_MUST_CHECK;

/* What was copied between this GPU and host memory, by enum dr_stage_way, and unpacked within it. One engine can be busy
 * with each at a time. */
enum { DR_GPU_UNPACKED = 2, DR_GPU_WAYS };
struct dr_gpu_buffers_copies {
	struct dr_gpu_stream_stats way[DR_GPU_WAYS];
};
void dr_gpu_buffers_copies(const struct dr_gpu_buffers *b, struct dr_gpu_buffers_copies *out);
/* *c += sign * *more. */
void dr_gpu_buffers_copies_add(
	struct dr_gpu_buffers_copies *c, const struct dr_gpu_buffers_copies *more, int sign);

/* The permanent error of the GPU, which affects all paths; NULL: none. */
const struct dr_err *dr_gpu_buffers_error(const struct dr_gpu_buffers *b);

/* Is the memory staged, and why not (or how) reached by the NICs? Not before the worker has registered the
 * buffers; constant then. */
void dr_gpu_buffers_method(const struct dr_gpu_buffers *b, struct dr_staged_choice *out);

#endif
