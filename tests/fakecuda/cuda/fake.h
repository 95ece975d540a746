/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKECUDA_CUDA_FAKE_H
#define DR_TESTS_FAKECUDA_CUDA_FAKE_H

#include "gpu/cuda.h"
#include "tests/fakecuda/fakecuda.h"

#include <pthread.h>
#include <stdbool.h>

/* What the parts of the emulated library share. Everything is under one lock, except the work of
 * streams while it runs. */

#define DR_FGPU_DECLARE(field, symbol, args) DR_EXPORT unsigned symbol args;
DR_CUDA_CALLS(DR_FGPU_DECLARE, DR_FGPU_DECLARE)
DR_EXPORT unsigned cuDriverGetVersion(int *version);

enum { DR_FGPU_DEVICES_MAX = 8, DR_FGPU_ARGS_MAX = 8 };

/* ---- lists of what is alive ---- */

struct dr_fgpu_node {
	struct dr_fgpu_node *next;
	struct CUctx_st *ctx;
};
void dr_fgpu_add(struct dr_fgpu_node **list, struct dr_fgpu_node *n, struct CUctx_st *ctx);
void dr_fgpu_del(struct dr_fgpu_node **list, struct dr_fgpu_node *n);
bool dr_fgpu_has(const struct dr_fgpu_node *list, const void *n);
unsigned dr_fgpu_len(const struct dr_fgpu_node *list);

/* ---- device.c: the process's view ---- */

struct CUctx_st {
	unsigned retained;
	unsigned failed; /* sticks */
	int dev;
	uint64_t used; /* bytes */
};
struct dr_fgpu_config {
	unsigned devices;
	unsigned slot[DR_FGPU_DEVICES_MAX]; /* which GPU of the machine the process's n-th is */
	uint64_t memory_bytes;
	int version;
	bool dmabuf, ordered, tell_counts, flags;
	unsigned init;
};
extern struct dr_fgpu_config dr_fgpu_config; /* read at the first call and at reset */
extern struct CUctx_st dr_fgpu_ctx[DR_FGPU_DEVICES_MAX];
void dr_fgpu_configure(void);

/* ---- calls.c: what happens to every call before it does its work ---- */

#define DR_FGPU_ENUM(field, symbol, args) DR_FGPU_CALL_##symbol,
enum dr_fgpu_call {
	DR_CUDA_CALLS(DR_FGPU_ENUM, DR_FGPU_ENUM) DR_FGPU_CALL_cuDriverGetVersion,
	DR_FGPU_N_CALLS
};
void dr_fgpu_lock(void);
void dr_fgpu_unlock(void);
/* Wait, locked, until the condition was signalled or that time (CLOCK_MONOTONIC) came. */
void dr_fgpu_wait_on(pthread_cond_t *c, int64_t until_ns);
/* The same for what calls wait for: an event, an empty stream, memory that is not in use. */
void dr_fgpu_wait(int64_t until_ns);
void dr_fgpu_changed(void);
/* Count it, and the result to fail with, 0: none. Locks, and stays locked. */
unsigned dr_fgpu_enter(enum dr_fgpu_call c);
/* The same for a call that needs a current context: 201, or what the context failed with. */
unsigned dr_fgpu_enter_ctx(enum dr_fgpu_call c, struct CUctx_st **ctx);
/* Unlocks; returns result. */
unsigned dr_fgpu_leave(unsigned result);
void dr_fgpu_violation(const char *fmt, ...) DR_PRINTF(1, 2); /* locked */
void dr_fgpu_calls_reset(void);
void dr_fgpu_fail_call(const char *call, unsigned k, unsigned result);
void dr_fgpu_hold_call(const char *call, const char *file);
const char *dr_fgpu_failed(void);
void dr_fgpu_fail_always(const char *call, unsigned result);
unsigned dr_fgpu_count(const char *call);
void dr_fgpu_tell_counts(void); /* to standard error */
unsigned dr_fgpu_violations(const char **first);
extern _Thread_local struct CUctx_st *dr_fgpu_current;

/* ---- memory.c ---- */

struct dr_fgpu_memory {
	struct dr_fgpu_node node;
	unsigned long long dev;
	size_t len, mapped;
	unsigned char *bytes; /* of dev */
	unsigned char *map;
	int fd;
	unsigned users; /* pieces of work that are not done */
};
struct dr_fgpu_pinned {
	struct dr_fgpu_node node;
	unsigned char *p;
	size_t len, mapped;
	unsigned users;
};
extern struct dr_fgpu_node *dr_fgpu_memories, *dr_fgpu_pinneds;
/* Whose memory [dev, dev + len) is; NULL: nobody's. */
struct dr_fgpu_memory *dr_fgpu_memory_at(unsigned long long dev, size_t len);
struct dr_fgpu_pinned *dr_fgpu_pinned_at(const void *p, size_t len);
void dr_fgpu_memory_free(struct dr_fgpu_memory *m);
void dr_fgpu_pinned_free(struct dr_fgpu_pinned *p);
void *dr_fgpu_bytes(unsigned long long dev);

/* ---- stream.c ---- */

enum dr_fgpu_work_kind { DR_FGPU_COPY, DR_FGPU_SET, DR_FGPU_EVENT, DR_FGPU_FLAG, DR_FGPU_KERNEL };
struct dr_fgpu_work {
	struct dr_fgpu_work *next;
	enum dr_fgpu_work_kind kind;
	int64_t issued_ns;
	unsigned char *to; /* copy, set */
	const unsigned char *from;
	size_t len;
	unsigned char byte;
	uint32_t value;				/* word */
	struct dr_fgpu_memory *memory, *source; /* in use until done; may be NULL */
	struct dr_fgpu_pinned *pinned;
	struct CUevent_st *event;
	struct CUfunc_st *fn; /* kernel */
	uint64_t arg[DR_FGPU_ARGS_MAX];
	unsigned threads; /* of the grid */
};
struct CUstream_st {
	struct dr_fgpu_node node;
	pthread_t thread;
	/* Of the thread alone: with one for all, each copy would wake the threads of all streams. */
	pthread_cond_t work;
	bool stop;
	struct dr_fgpu_work *head, *tail; /* the head stays in place while it runs */
};
struct CUevent_st {
	struct dr_fgpu_node node;
	unsigned recorded, reached;
	bool timed;
	int64_t at_ns;
};
extern struct dr_fgpu_node *dr_fgpu_streams, *dr_fgpu_events;
/* Locked. Takes a copy of w, counts users. 0, or 2 without memory. */
unsigned dr_fgpu_submit(struct CUstream_st *s, const struct dr_fgpu_work *w);
void dr_fgpu_drain(const struct CUstream_st *s); /* locked; waits */
void dr_fgpu_stream_free(struct CUstream_st *s); /* locked; drops it for the time of joining */
void dr_fgpu_hold(bool on);
void dr_fgpu_delay(int64_t ns);
void dr_fgpu_fail_work(unsigned result);
void dr_fgpu_streams_reset(void);
unsigned dr_fgpu_pageable(void);

/* ---- kernel.c ---- */

struct CUfunc_st {
	const char *name;
	unsigned n_args; /* 8 bytes each, as the code declares them */
	/* Where it works: 0, or 700 where an address is wrong. */
	unsigned (*place)(struct dr_fgpu_work *w);
	void (*run)(const struct dr_fgpu_work *w);
};
enum { DR_FGPU_KERNELS = 3 };
struct CUmod_st {
	struct dr_fgpu_node node;
	struct CUfunc_st fn[DR_FGPU_KERNELS];
	unsigned n;
};
extern struct dr_fgpu_node *dr_fgpu_modules;

#endif
