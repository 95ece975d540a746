/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_GPU_GPU_H
#define DR_GPU_GPU_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>

/*
 * NVIDIA GPUs: what there is, memory of theirs, copies to and from it, and the pattern written and
 * checked by the GPU itself. Underneath is the CUDA driver API, opened at run time at the first use,
 * so that one binary runs with and without it.
 *
 * A device address is a uint64_t, so that no code here can follow it by mistake; 0 is none.
 *
 * Threads: a struct dr_gpu may be used by any number of threads at a time, a struct dr_gpu_stream by
 * one at a time. Every call makes the GPU's context current on its thread by itself (tens of
 * nanoseconds) and leaves it so: nobody has to enter anything. Nothing here waits for the whole
 * device; what waits says so, and waits for its stream alone.
 *
 * Errors: what the driver says, by name and words, is in the text. Their code:
 *   -ENOENT    no CUDA driver library on this machine
 *   -ENOSYS    it is too old, a stub, or lacks a call
 *   -ENODEV    the driver runs, but there is no GPU, or not this one
 *   -ENOMEM    out of memory, of the GPU's, of pinned host memory or of our own
 *   -ENOTSUP   this GPU or driver cannot do that
 *   -EINVAL    the driver took an argument for wrong (a bug of ours)
 *   -EPERM     the driver refuses
 *   -EIO       anything else: the driver failed, or the GPU did. An error of work done on the GPU sticks
 *              to its context: after one every call fails, also frees. Close everything and give up.
 * -EAGAIN, as everywhere, is back-pressure alone.
 */

enum {
	DR_GPU_BUS_ID_MAX = 16, /* "0000:3b:00.0" with its zero, room for a long domain */
	DR_GPU_NAME_MAX = 96,
	DR_GPU_ALIGN =
		65536, /* device memory starts at and fills multiples of this: pages of 4 KiB,
				   and the granule in which RDMA pins GPU memory */
	DR_GPU_PATTERN_ALIGN = 16, /* see dr_gpu_pattern_fill */
	DR_GPU_COPIES_MAX = 256,   /* copies of one stream that may be outstanding */
};

struct dr_gpu_info {
	unsigned ordinal; /* CUDA's number: after CUDA_VISIBLE_DEVICES, which may hide or reorder */
	char bus_id
		[DR_GPU_BUS_ID_MAX]; /* PCI, "0000:3b:00.0", lower case, as in /sys/bus/pci/devices */
	char name[DR_GPU_NAME_MAX];  /* "NVIDIA H200" */
	uint64_t memory_bytes;	     /* all of it, used or not */
	unsigned cc_major, cc_minor; /* compute capability */
	bool dmabuf;		     /* its memory can be exported as a dma-buf */
	bool ordered; /* it sees what a NIC wrote in the order in which the NIC told of it */
};

/* The GPUs that CUDA shows to this process, in its order. Writes the first cap of them and returns how
 * many there are, at least 1. Opens no context. Errors: -ENOENT, -ENOSYS, -ENODEV, -EIO, each with
 * what to do. */
int dr_gpu_list(struct dr_gpu_info *out, unsigned cap, struct dr_err *e) DR_MUST_CHECK;
/* The GPU of a list that a person named: "1" is its place in the list, "0000:3b:00.0" and "3B:00.0" (a
 * domain of any length; none: 0) its address. Returns its place. -EINVAL: neither an index nor
 * an address. -ENODEV: no such GPU; the text names those that there are. */
int dr_gpu_find(const struct dr_gpu_info *list, unsigned n, const char *what, struct dr_err *e)
	DR_MUST_CHECK;

/* One opened GPU: holds its primary context, which it shares with whatever else in this process uses
 * that GPU, until close. The pattern's code is loaded. -ENODEV: no such ordinal. */
struct dr_gpu;
int dr_gpu_open(unsigned ordinal, struct dr_gpu **out, struct dr_err *e) DR_MUST_CHECK;
/* Its memory and streams were given back before. NULL is allowed. */
void dr_gpu_close(struct dr_gpu *g);
/* Valid until close. */
const struct dr_gpu_info *dr_gpu_info(const struct dr_gpu *g);
/* Bytes of GPU memory that are free, and all of them; either pointer may be NULL. */
int dr_gpu_memory(struct dr_gpu *g, uint64_t *free_bytes, uint64_t *total_bytes, struct dr_err *e);

/* Device memory of at least len > 0 bytes, aligned to DR_GPU_ALIGN and rounded up to it, with unknown
 * contents. raw is what the driver gave. -ENOMEM names bytes asked for, free and in total. */
struct dr_gpu_memory {
	uint64_t dev;
	uint64_t len; /* rounded up */
	uint64_t raw;
};
int dr_gpu_alloc(struct dr_gpu *g, uint64_t len, struct dr_gpu_memory *out, struct dr_err *e)
	DR_MUST_CHECK;
/* No copy may be running on it. Of memory that is not there (dev 0): nothing. Clears *m. */
void dr_gpu_free(struct dr_gpu *g, struct dr_gpu_memory *m);

/* Pinned host memory, aligned to 256 bytes, which every GPU of this process copies at full speed, on the NUMA
 * node where the calling thread's memory policy puts it. NULL may be freed. */
int dr_gpu_host_alloc(struct dr_gpu *g, size_t len, void **out, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_host_free(struct dr_gpu *g, void *p);

/* A file descriptor of the dma-buf with the memory's bytes, [dev, dev + len) of m, which begins with
 * its first byte: offset 0. The caller closes it; that leaves memory registered through it as it
 * is. -ENOTSUP: not with this GPU or driver, the text says which. */
int dr_gpu_dmabuf(struct dr_gpu *g, const struct dr_gpu_memory *m, int *fd, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * A stream does what it is told in order, beside all others. Copies are asynchronous and counted: the
 * n-th of a stream has ticket n, from 1; it is done when dr_gpu_stream_done() has reached n. Until then
 * both its ends must stay. Host memory is pinned (dr_gpu_host_alloc); other memory works, but the call
 * may then wait. A length of 0 is a copy too.
 *
 * A stream that reported an error is good for destroying alone; its copies touch nothing any more when
 * that returns.
 */
struct dr_gpu_stream;
struct dr_gpu_stream_stats {
	uint64_t copies, bytes; /* done */
	uint64_t timed;		/* of these copies: the first of every 16 */
	uint64_t
		calls; /* of the driver, for copies and for learning that they are done; contexts left out */
	/* Time in which the GPU ran them, without their wait in the queue: what the timed ones took by the
	 * GPU's clock, times all bytes / theirs. */
	int64_t busy_ns;
};

int dr_gpu_stream_create(struct dr_gpu *g, struct dr_gpu_stream **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Waits for what it still does. NULL is allowed. */
void dr_gpu_stream_destroy(struct dr_gpu_stream *s);
/* Start a copy out of the GPU or into it. -EAGAIN: DR_GPU_COPIES_MAX are outstanding. */
int dr_gpu_copy_out(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, uint64_t *ticket,
	struct dr_err *e) DR_MUST_CHECK;
int dr_gpu_copy_in(struct dr_gpu_stream *s, uint64_t dev, const void *host, size_t len,
	uint64_t *ticket, struct dr_err *e) DR_MUST_CHECK;
/* The ticket up to which all copies are done; *done grows only. Does not wait; where nothing is outstanding
 * it costs no call of the driver, and hardly any where the stream writes tickets to host memory (CUDA 11.7).
 * An error is that of a copy, and sticks. */
int dr_gpu_stream_done(struct dr_gpu_stream *s, uint64_t *done, struct dr_err *e) DR_MUST_CHECK;
/* Wait until that ticket is done. */
int dr_gpu_stream_wait(struct dr_gpu_stream *s, uint64_t ticket, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_stream_stats(const struct dr_gpu_stream *s, struct dr_gpu_stream_stats *out);

/* The rest waits until it is done (and so is everything that this stream was told before). */
int dr_gpu_read(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, struct dr_err *e)
	DR_MUST_CHECK;
int dr_gpu_write(struct dr_gpu_stream *s, uint64_t dev, const void *host, size_t len,
	struct dr_err *e) DR_MUST_CHECK;
int dr_gpu_set(struct dr_gpu_stream *s, uint64_t dev, uint8_t byte, size_t len, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * The pattern, made and checked where the bytes are: 64-bit little-endian words, word i is base + i *
 * 0x9e3779b97f4a7c15, and a tail shorter than a word takes its first bytes. The same that
 * dr_pattern_fill and dr_pattern_check (orchestrator/worker.h) do in host memory with base
 * dr_pattern_base(). dev is a multiple of DR_GPU_PATTERN_ALIGN (asserted), len is anything.
 *
 * check: 0 equal; 1 and the offset of the first wrong byte; or an error.
 */
int dr_gpu_pattern_fill(struct dr_gpu_stream *s, uint64_t dev, size_t len, uint64_t base,
	struct dr_err *e) DR_MUST_CHECK;
int dr_gpu_pattern_check(struct dr_gpu_stream *s, uint64_t dev, size_t len, uint64_t base,
	uint64_t *bad_offset, struct dr_err *e) DR_MUST_CHECK;

#endif
