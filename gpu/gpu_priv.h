/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_GPU_GPU_PRIV_H
#define DR_GPU_GPU_PRIV_H

#include "gpu/cuda.h"
#include "gpu/gpu.h"

#include <stdatomic.h>

/* What the files of gpu/ share. */

struct dr_gpu {
	const struct dr_cuda *cuda;
	struct dr_gpu_info info;
	int dev;
	struct CUctx_st *ctx; /* retained once, by open */
	unsigned multiprocessors;
	struct CUmod_st *module; /* pattern.c's */
	struct CUfunc_st *fill, *check;
	struct CUmod_st *unpack_module;
	struct CUfunc_st *unpack;
};

/*
 * One outstanding copy. Every DR_GPU_TIME_EVERY-th is timed by the GPU's clock and has both events. The others
 * have `end` alone, and no event where the stream has a completion flag.
 */
enum { DR_GPU_TIME_EVERY = 16 };
_Static_assert(DR_GPU_COPIES_MAX % DR_GPU_TIME_EVERY == 0, "a slot is always timed or never");
struct dr_gpu_copy {
	struct CUevent_st *begin, *end; /* made at the slot's first use */
	size_t len;
};

/* Completion flag: the low 32 bits of the last finished ticket, in pinned memory. */
struct dr_gpu_flag {
	_Atomic uint32_t *host; /* NULL: completion is detected by events */
	uint64_t dev;		/* the same memory as an address of the GPU */
	unsigned idle;		/* polls in a row without progress */
};

/*
 * Tickets done + 1 .. issued are outstanding; ticket t is in slot t % DR_GPU_COPIES_MAX.
 * failed: CUDA result of the first failed copy or completion test; 0: none.
 */
struct dr_gpu_stream {
	struct dr_gpu *gpu;
	struct CUstream_st *stream;
	uint64_t issued, done;
	unsigned failed;
	struct dr_gpu_stream_stats stats;
	uint64_t timed_bytes;
	int64_t timed_ns;
	struct dr_gpu_flag flag;
	struct dr_gpu_copy copy[DR_GPU_COPIES_MAX];
	/* pattern.c: result of a check. `wrong` is in pinned memory, `worst` in GPU memory. They are 0 and
	 * UINT64_MAX unless a check is running. */
	uint32_t *wrong;
	struct dr_gpu_memory worst;
	/* unpack.c: pinned memory for DR_GPU_UNPACK_HOST. */
	uint8_t *gather;
	size_t gather_len;
};

/* Work of a stream that has a ticket. start queues it, counts its calls in the stream's stats, and returns CUDA's
 * result. */
struct dr_gpu_task {
	unsigned (*start)(struct dr_gpu_stream *s, const void *arg);
	const void *arg;
	size_t len; /* bytes, for the stats */
	const char *what;
};
/* -EAGAIN: the stream is full. An error of start is permanent: part of the work may be running. */
int dr_gpu_stream_submit(struct dr_gpu_stream *s, const struct dr_gpu_task *t, uint64_t *ticket,
	struct dr_err *e) DR_MUST_CHECK;

/* DR_GPU_COPIES_MAX are outstanding. Not after an error, which every call returns. */
static inline bool dr_gpu_stream_full(const struct dr_gpu_stream *s)
{
	return !s->failed && s->issued - s->done == DR_GPU_COPIES_MAX;
}

/* Debug message about the result of freeing something. After an earlier error the driver frees and returns that
 * error again. */
void dr_gpu_note(const struct dr_gpu *g, const char *what, unsigned result);
/* Wait for everything queued on the stream. `what` is the operation named in an error. */
int dr_gpu_stream_drain(struct dr_gpu_stream *s, const char *what, struct dr_err *e) DR_MUST_CHECK;

/* list.c: one GPU's description. */
int dr_gpu_describe(const struct dr_cuda *c, unsigned ordinal, struct dr_gpu_info *out,
	struct dr_err *e) DR_MUST_CHECK;

/* code.c: code in PTX, and where its module and its kernels go. */
enum { DR_GPU_KERNELS_MAX = 2 };
struct dr_gpu_code {
	const char *ptx;
	const char *what; /* "pattern", for errors */
	struct CUmod_st **module;
	struct {
		const char *name; /* NULL: no more */
		struct CUfunc_st **fn;
	} kernel[DR_GPU_KERNELS_MAX];
};
/* Compile it for the context that is current, and look up its kernels, which are valid until the unload. Nothing is owed on
 * an error. */
int dr_gpu_code_load(const struct dr_gpu *g, const struct dr_gpu_code *c, struct dr_err *e)
	DR_MUST_CHECK;
/* *module becomes NULL, and may be that before. */
void dr_gpu_code_unload(const struct dr_gpu *g, struct CUmod_st **module);
/* pattern.c: load the code for the context that is current, and give it back. */
int dr_gpu_pattern_load(struct dr_gpu *g, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_pattern_unload(struct dr_gpu *g);
/* What a stream needs for checks. */
int dr_gpu_pattern_init(struct dr_gpu_stream *s, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_pattern_fini(struct dr_gpu_stream *s);

/* unpack.c, as pattern.c. */
int dr_gpu_unpack_load(struct dr_gpu *g, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_unpack_unload(struct dr_gpu *g);
/* The stream is idle or destroyed. */
void dr_gpu_unpack_fini(struct dr_gpu_stream *s);

/* pattern_ptx.c, unpack_ptx.c: the code, as the driver compiles it. */
extern const char dr_gpu_pattern_ptx[], dr_gpu_unpack_ptx[];

#endif
