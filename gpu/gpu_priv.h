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
};

/*
 * One copy that is under way. Every DR_GPU_TIME_EVERY-th is timed, by the GPU's clock before and after it;
 * of the others `end` alone is needed, and not even that where words tell what is done (word.c).
 */
enum { DR_GPU_TIME_EVERY = 16 };
_Static_assert(DR_GPU_COPIES_MAX % DR_GPU_TIME_EVERY == 0, "a slot is always timed or never");
struct dr_gpu_copy {
	struct CUevent_st *begin, *end; /* made at the slot's first use */
	size_t len;
};

/* Done up to which ticket: its last 32 bits, which the stream writes behind a copy. NULL: by events. */
struct dr_gpu_word {
	_Atomic uint32_t *host;
	uint64_t dev;
	unsigned idle; /* looks in a row that found nothing new */
};

/*
 * Copies have tickets issued .. done + 1 outstanding; ticket t is in slot t % DR_GPU_COPIES_MAX.
 * failed: the result that a copy, or the way to learn of it, ended with; 0: none.
 */
struct dr_gpu_stream {
	struct dr_gpu *gpu;
	struct CUstream_st *stream;
	uint64_t issued, done;
	unsigned failed;
	struct dr_gpu_stream_stats stats;
	uint64_t timed_bytes;
	int64_t timed_ns;
	struct dr_gpu_word word;
	struct dr_gpu_copy copy[DR_GPU_COPIES_MAX];
	/* pattern.c: what a check found. The flag is in pinned memory and 0 unless a check is running;
	 * worst is in the GPU's, and UINT64_MAX then. */
	uint32_t *flag;
	struct dr_gpu_memory worst;
};

/* Make the GPU's context current on the calling thread. What frees goes on without. */
int dr_gpu_enter(const struct dr_gpu *g, struct dr_err *e);
/* Something was freed, with that result. Of interest to nobody but who looks for a bug: after an error the
 * driver gives it back here too, and frees. */
void dr_gpu_note(const struct dr_gpu *g, const char *what, unsigned result);
/* Wait for all that the stream was told so far. */
int dr_gpu_stream_drain(struct dr_gpu_stream *s, const char *what, struct dr_err *e) DR_MUST_CHECK;

/* word.c. Where the driver has no such thing, or DR_GPU_COMPLETION=events is in the environment, the stream
 * goes without. */
int dr_gpu_word_init(struct dr_gpu_stream *s, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_word_fini(struct dr_gpu_stream *s);
/* Have ticket written when all is done that the stream was told before; a result of the driver. */
unsigned dr_gpu_word_mark(struct dr_gpu_stream *s, uint64_t ticket);
/* The ticket that it has come to, between s->done and s->issued; no call of the driver, but for one in many
 * looks in vain, whose error goes to *result. */
uint64_t dr_gpu_word_look(struct dr_gpu_stream *s, unsigned *result);

/* list.c: one GPU's description. */
int dr_gpu_describe(const struct dr_cuda *c, unsigned ordinal, struct dr_gpu_info *out,
	struct dr_err *e) DR_MUST_CHECK;

/* pattern.c: load the code for the context that is current, and give it back. */
int dr_gpu_pattern_load(struct dr_gpu *g, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_pattern_unload(struct dr_gpu *g);
/* What a stream needs for checks. */
int dr_gpu_pattern_init(struct dr_gpu_stream *s, struct dr_err *e) DR_MUST_CHECK;
void dr_gpu_pattern_fini(struct dr_gpu_stream *s);

/* pattern_ptx.c: the code, as the driver compiles it. */
extern const char dr_gpu_pattern_ptx[];

#endif
