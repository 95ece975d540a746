/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_GPU_H
#define DR_TRANSPORT_GPU_H

#include "base/defs.h"
#include "base/err.h"

#include <stddef.h>

/*
 * GPU memory for a kind whose rails give it to foreign code (a plugin) or put data together there (GPUDirect-TCPX).
 * Everything is done through an ops table, so that transports do not depend on CUDA. One struct dr_rail_gpu is used by
 * one thread, the one that drives the rails; enter by any thread.
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
};
/* NULL ops: the run has no GPU memory. */
struct dr_rail_gpu {
	const struct dr_rail_gpu_ops *ops;
	void *arg;
};

#endif
