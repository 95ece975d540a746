/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_GPU_H
#define DR_TRANSPORT_GPU_H

#include "base/defs.h"
#include "base/err.h"

#include <stddef.h>

/*
 * GPU memory for a kind whose rails give it to foreign code (a plugin), put data together there (GPUDirect-TCPX), or let another
 * process do so. Everything is done through ops tables, so that transports do not depend on CUDA. One struct dr_rail_gpu is used
 * by one thread, the one that drives the rails.
 */
enum dr_unpack_how {
	DR_UNPACK_KERNEL, /* one kernel copies all pieces */
	DR_UNPACK_D2D,	  /* a copy from GPU to GPU for each piece */
	DR_UNPACK_HOST,	  /* through host memory */
};
/* Pieces of src become dst. The list is in pinned host memory, of the layout of struct nn_unpack_piece
 * (transport/ncclnet/unpack.h). All three stay until the work is done. The caller has checked that the pieces lie within dst. */
struct dr_unpack_work {
	void *dst;	 /* GPU, len bytes */
	const void *src; /* GPU */
	const void *piece;
	unsigned n;
	size_t len;
};
/* What unpacking has cost the GPU so far. Counts only grow. */
struct dr_unpack_stats {
	uint64_t copies, bytes; /* finished; a launch of the kernel counts as one copy */
	int64_t busy_ns;	/* in which the GPU executed them */
};

/* How another process, which opens the same GPU, maps a buffer. */
enum { DR_GPU_HANDLE_LEN = 64 };
struct dr_gpu_shared {
	uint8_t handle[DR_GPU_HANDLE_LEN]; /* of CUDA IPC, for the whole allocation */
	uint64_t off;			   /* of the buffer in it */
};

struct dr_rail_gpu_ops {
	/* Make the GPU's context current on this thread: a plugin takes the one that is current. */
	int (*enter)(void *arg, struct dr_err *e);
	/* Allocate what read, start and done need. Once, when a rail that needs them is opened. */
	int (*prepare)(void *arg, struct dr_err *e);
	/* Read GPU memory; waits. */
	int (*read)(void *arg, void *host, const void *dev, size_t len, struct dr_err *e);
	/* Start to unpack. Work is done in the order started; the n-th has ticket n, from 1. Does not wait. -EAGAIN: too
	 * much is outstanding. Any other error is final. */
	int (*start)(void *arg, const struct dr_unpack_work *w, enum dr_unpack_how how,
		uint64_t *ticket, struct dr_err *e);
	/* The last ticket that is done. Does not wait. An error is final. */
	int (*done)(void *arg, uint64_t *ticket, struct dr_err *e);
	/* Wait until nothing that was started is running. */
	void (*wait)(void *arg);
	void (*stats)(void *arg, struct dr_unpack_stats *out);
	/* Another process has unpacked for this one: count that here. */
	void (*add_stats)(void *arg, const struct dr_unpack_stats *more);
	/* dev: a data buffer. It stays until the other process has unmapped it or has ended. -ENOTSUP: not possible here. */
	int (*share)(void *arg, const void *dev, struct dr_gpu_shared *out, struct dr_err *e);
	const struct dr_gpu_process_ops *process;
};
/* NULL ops: the run has no GPU memory. */
struct dr_rail_gpu {
	const struct dr_rail_gpu_ops *ops;
	void *arg;
	unsigned ordinal; /* CUDA's number of the GPU, in this process and those that it starts */
};

/*
 * The other process. It is forked before this one uses CUDA. The thread that opens a GPU there is the one that uses it. Errors of
 * open and map are the driver's; their text says which call failed.
 */
struct dr_gpu_process_ops {
	int (*open)(unsigned ordinal, struct dr_rail_gpu *out, struct dr_err *e);
	/* Nothing is mapped. */
	void (*close)(struct dr_rail_gpu *gpu);
	/* *base: the allocation's start, for unmap; *dev: the buffer. */
	int (*map)(void *arg, const struct dr_gpu_shared *s, void **base, void **dev,
		struct dr_err *e);
	void (*unmap)(void *arg, void *base);
};

#endif
