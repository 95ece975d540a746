/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_GPU_GPU_H
#define DR_GPU_GPU_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>

/*
 * NVIDIA GPUs: list, memory, copies, and the test pattern written and checked by the GPU itself. The CUDA driver
 * library is opened at run time at the first use, so one binary runs with and without it.
 *
 * A device address is a uint64_t, so that host code cannot dereference it by mistake; 0 is none.
 *
 * Threads: any number of threads may use a struct dr_gpu at the same time, one thread at a time a struct
 * dr_gpu_stream. Every call makes the GPU's context current on its thread (tens of nanoseconds) and leaves it
 * current. No call waits for the whole device. Calls that wait say so, and wait for their stream alone.
 *
 * Errors: the text has the driver's name and description. The code:
 *   -ENOENT    no CUDA driver library on this machine
 *   -ENOSYS    the library is too old, a stub, or lacks a call
 *   -ENODEV    the driver runs, but there is no GPU, or not this one
 *   -ENOMEM    out of GPU memory, pinned host memory or ordinary memory
 *   -ENOTSUP   this GPU or driver cannot do that
 *   -EINVAL    the driver rejected an argument (a bug of ours)
 *   -EPERM     the driver denied permission
 *   -EIO       anything else: the driver or the GPU failed. An error of work on the GPU is permanent in its
 *              context: every later call fails, frees included. Close everything and give up.
 * -EAGAIN, as everywhere, is back-pressure alone.
 */

enum {
	DR_GPU_BUS_ID_MAX = 16, /* "0000:3b:00.0" with its zero, room for a long domain */
	DR_GPU_NAME_MAX = 96,
	/* Device memory starts at and fills multiples of this: whole pages of 4 KiB, and the granule in which
	 * RDMA pins GPU memory. */
	DR_GPU_ALIGN = 65536,
	DR_GPU_PATTERN_ALIGN = 16, /* see dr_gpu_pattern_fill */
	DR_GPU_COPIES_MAX = 256,   /* copies of one stream that may be outstanding */
};

struct dr_gpu_info {
	unsigned ordinal; /* CUDA's number: after CUDA_VISIBLE_DEVICES, which may hide or reorder */
	char bus_id[DR_GPU_BUS_ID_MAX]; /* PCI, "0000:3b:00.0", as in /sys/bus/pci/devices */
	char name[DR_GPU_NAME_MAX];	/* "NVIDIA H200" */
	uint64_t memory_bytes;		/* total, used or not */
	unsigned cc_major, cc_minor;	/* compute capability */
	bool dmabuf;			/* its memory can be exported as a dma-buf */
	bool ordered; /* a NIC's writes become visible in the order of its completions */
};

/* The GPUs that CUDA shows to this process, in its order. Writes the first cap of them and returns their
 * number, at least 1. Opens no context. Errors: -ENOENT, -ENOSYS, -ENODEV, -EIO. */
int dr_gpu_list(struct dr_gpu_info *out, unsigned cap, struct dr_err *e) DR_MUST_CHECK;
/* Find the GPU that a user named: by its index in the list ("1") or its address ("0000:3b:00.0", "3B:00.0"; the
 * domain has any length and is 0 by default). Returns the index. -EINVAL: neither an index nor an address.
 * -ENODEV: no such GPU; the text lists the available ones. */
int dr_gpu_find(const struct dr_gpu_info *list, unsigned n, const char *what, struct dr_err *e)
	DR_MUST_CHECK;

/* One opened GPU. Holds the primary context, which other users of the GPU in this process share, until close.
 * Loads the pattern's code. -ENODEV: no such ordinal. */
struct dr_gpu;
int dr_gpu_open(unsigned ordinal, struct dr_gpu **out, struct dr_err *e) DR_MUST_CHECK;
/* Free its memory and streams first. NULL is allowed. */
void dr_gpu_close(struct dr_gpu *g);
/* Instead of close: the context stays open until the process ends, and with it the memory that was not
 * freed, because a NIC may still access it. Free the streams first. */
void dr_gpu_abandon(struct dr_gpu *g);
/* Make its context current on this thread, also for code of others that takes the current one.
 * Functions that free ignore the error. */
int dr_gpu_use(const struct dr_gpu *g, struct dr_err *e);
/* Valid until close. */
const struct dr_gpu_info *dr_gpu_info(const struct dr_gpu *g);
/* Free and total bytes of GPU memory; either pointer may be NULL. */
int dr_gpu_memory(struct dr_gpu *g, uint64_t *free_bytes, uint64_t *total_bytes, struct dr_err *e);

/* Device memory of at least len > 0 bytes, aligned to DR_GPU_ALIGN and rounded up to it, with undefined
 * contents. -ENOMEM states the bytes requested, free and in total. */
struct dr_gpu_memory {
	uint64_t dev;
	uint64_t len; /* rounded up */
	uint64_t raw; /* the driver's allocation */
};
int dr_gpu_alloc(struct dr_gpu *g, uint64_t len, struct dr_gpu_memory *out, struct dr_err *e)
	DR_MUST_CHECK;
/* No copy may be running on it. No-op when dev is 0. Clears *m. */
void dr_gpu_free(struct dr_gpu *g, struct dr_gpu_memory *m);

/* Pinned host memory, aligned to 256 bytes, which every GPU of this process copies at full speed. The calling
 * thread's memory policy chooses the NUMA node. NULL may be freed. */
int dr_gpu_host_alloc(struct dr_gpu *g, size_t len, void **out, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_host_free(struct dr_gpu *g, void *p);

/* File descriptor of a dma-buf with the bytes [dev, dev + len) of m; offset 0 is the first. The caller closes
 * it; memory registered through it stays registered. -ENOTSUP: the GPU or the driver cannot export. */
int dr_gpu_dmabuf(struct dr_gpu *g, const struct dr_gpu_memory *m, int *fd, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * A stream executes its work in order, independently of other streams. Copies are asynchronous: the n-th copy of a
 * stream has ticket n, from 1, and is finished when dr_gpu_stream_done() has reached n. Both its buffers must stay
 * until then. Host memory should be pinned (dr_gpu_host_alloc); with other memory the call may wait. A copy may
 * have length 0.
 *
 * A stream that reported an error can only be destroyed. No copy accesses memory after destroy returns.
 */
struct dr_gpu_stream;
struct dr_gpu_stream_stats {
	uint64_t copies, bytes; /* finished */
	uint64_t timed;		/* copies that were timed: the first of every 16 */
	uint64_t calls; /* driver calls for copies and for their completion, without contexts */
	/* Time in which the GPU executed the copies, without queueing: the time of the timed copies by the GPU's
	 * clock, scaled by total bytes / timed bytes. */
	int64_t busy_ns;
};

int dr_gpu_stream_create(struct dr_gpu *g, struct dr_gpu_stream **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Waits for outstanding work. NULL is allowed. */
void dr_gpu_stream_destroy(struct dr_gpu_stream *s);
/* Start a copy from the GPU or to it. -EAGAIN: DR_GPU_COPIES_MAX are outstanding. */
int dr_gpu_copy_out(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, uint64_t *ticket,
	struct dr_err *e) DR_MUST_CHECK;
int dr_gpu_copy_in(struct dr_gpu_stream *s, uint64_t dev, const void *host, size_t len,
	uint64_t *ticket, struct dr_err *e) DR_MUST_CHECK;
/* The ticket up to which all copies are finished; *done never decreases. Does not wait. Needs no driver call when
 * nothing is outstanding, and almost none with completion flags (CUDA 11.7). The error is a copy's, and permanent. */
int dr_gpu_stream_done(struct dr_gpu_stream *s, uint64_t *done, struct dr_err *e) DR_MUST_CHECK;
/* The last ticket that was given; 0: none. */
uint64_t dr_gpu_stream_issued(const struct dr_gpu_stream *s);
/* Wait until that ticket is finished. */
int dr_gpu_stream_wait(struct dr_gpu_stream *s, uint64_t ticket, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_stream_stats(const struct dr_gpu_stream *s, struct dr_gpu_stream_stats *out);

/*
 * Put pieces of src together in dst, for GPUDirect-TCPX: a receive lies in pieces in a bounce buffer of the GPU, and
 * a list in pinned host memory, allocated by CUDA here or in a plugin, says which piece goes where. Unpacking has a
 * ticket as a copy has, and counts as one copy with the bytes of its pieces. The list, src and dst must stay until it
 * is finished.
 *
 * The pieces lie within [dst, dst + len), which the caller checks. They also lie within src and do not overlap in dst;
 * that is not checked, since a plugin does not tell the size of src. Bytes of dst between the pieces keep their value.
 * n may be 0.
 *
 * -EAGAIN as for a copy. -ENOMEM: no pinned memory for DR_GPU_UNPACK_HOST, whose buffer has len bytes. It waits for
 * the stream when its buffer must grow.
 */
struct dr_gpu_piece {	  /* layout of loadMeta in NCCL's src/device/network/unpack/unpack_defs.h */
	uint32_t src_off; /* in the source */
	uint32_t len;
	uint64_t dst_off; /* in the destination */
};
_Static_assert(sizeof(struct dr_gpu_piece) == 16, "loadMeta");
enum dr_gpu_unpack_how {
	DR_GPU_UNPACK_KERNEL, /* one kernel reads the list, through its mapping into the GPU, and copies */
	DR_GPU_UNPACK_D2D, /* one copy from GPU to GPU for each piece */
	DR_GPU_UNPACK_HOST, /* each piece to pinned host memory, and the whole back in one copy, or in one
			       * for each piece where there are gaps (debugging) */
};
struct dr_gpu_unpack {
	uint64_t dst, src;
	const struct dr_gpu_piece *piece;
	unsigned n;
	size_t len; /* bytes of dst */
};
int dr_gpu_unpack(struct dr_gpu_stream *s, const struct dr_gpu_unpack *u,
	enum dr_gpu_unpack_how how, uint64_t *ticket, struct dr_err *e) DR_MUST_CHECK;

/* Synchronous: these wait until they, and everything queued before, are finished. */
int dr_gpu_read(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, struct dr_err *e)
	DR_MUST_CHECK;
int dr_gpu_set(struct dr_gpu_stream *s, uint64_t dev, uint8_t byte, size_t len, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * The test pattern, written and checked by the GPU: 64-bit little-endian words, word i is base + i *
 * 0x9e3779b97f4a7c15; a tail shorter than a word takes its first bytes. dr_pattern_fill and dr_pattern_check
 * (orchestrator/engine/integrity.h) do the same in host memory with base dr_pattern_base(). dev is a multiple of
 * DR_GPU_PATTERN_ALIGN (asserted); len is any.
 *
 * check returns 0: equal; 1 and the offset of the first wrong byte; or an error.
 */
int dr_gpu_pattern_fill(struct dr_gpu_stream *s, uint64_t dev, size_t len, uint64_t base,
	struct dr_err *e) DR_MUST_CHECK;
int dr_gpu_pattern_check(struct dr_gpu_stream *s, uint64_t dev, size_t len, uint64_t base,
	uint64_t *bad_offset, struct dr_err *e) DR_MUST_CHECK;

#endif
