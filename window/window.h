/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_WINDOW_WINDOW_H
#define DR_WINDOW_WINDOW_H

#include "base/defs.h"

/*
 * Sliding window of requests in flight: strict FIFO, at most `cap` entries. Only the oldest (the
 * head) is ever tested, and an entry leaves the window in one way alone: dr_window_try_release_oldest
 * tests it, consumes it and releases it, in that order; so nothing can be consumed before it is done,
 * out of order, or twice. Sans-IO: test and consume come in as a table of functions.
 *
 * One thread. Source of the rules: the sliding window of UCCL's TCPX study (at most 16 requests a
 * connection in flight, release in order, tri-state result).
 */
enum { DR_WINDOW_MAX = 256 };

struct dr_window_ops {
	/* 1 done, 0 not yet (no error), -errno real error. Must not block. */
	int (*test)(void *ctx, uint64_t request);
	/* The request is done: use its data now. 0 or -errno. Called once a request. */
	int (*consume)(void *ctx, uint64_t request);
};

struct dr_window {
	uint64_t request[DR_WINDOW_MAX]; /* ring, indexed by counter modulo cap */
	uint64_t head, tail;		 /* released and pushed so far; tail - head are in flight */
	unsigned cap;
	int err; /* first real error: the window is dead from then on */
	const struct dr_window_ops *ops;
	void *ctx;
};

/* cap in 1..DR_WINDOW_MAX, else -EINVAL. */
int dr_window_init(struct dr_window *w, unsigned cap, const struct dr_window_ops *ops, void *ctx)
	DR_MUST_CHECK;
unsigned dr_window_in_flight(const struct dr_window *w);
int dr_window_full(const struct dr_window *w);
/* Take a posted request. -EAGAIN: full, nothing taken. The dead window returns its error. */
int dr_window_push(struct dr_window *w, uint64_t request) DR_MUST_CHECK;
/*
 * Tri-state: 0 the oldest was done, is consumed and released; 1 nothing to release yet (head not
 * done, or window empty), not an error; -1 real error (see dr_window_error).
 */
int dr_window_try_release_oldest(struct dr_window *w) DR_MUST_CHECK;
/* Release as many as are done now. Returns how many, or -1. */
int dr_window_drain(struct dr_window *w) DR_MUST_CHECK;
/* -errno of the error that killed the window; 0 alive. */
int dr_window_error(const struct dr_window *w);
/* Asserts what must always hold. */
void dr_window_validate(const struct dr_window *w);

#endif
