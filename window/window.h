/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_WINDOW_WINDOW_H
#define DR_WINDOW_WINDOW_H

#include "base/defs.h"

/*
 * Sliding window of requests in flight: strict FIFO, at most `cap` entries. Only the oldest entry (the
 * head) is tested. An entry leaves the window only through dr_window_try_release_oldest, which tests,
 * consumes and releases it, in that order. So nothing is consumed before it is done, out of order, or
 * twice. Sans-IO: test and consume are a table of functions.
 *
 * Threads: one. Source of the rules: the sliding window of UCCL's TCPX study (at most 16 requests in
 * flight per connection, release in order, tri-state result).
 */
enum { DR_WINDOW_MAX = 256 };

struct dr_window_ops {
	/* 1 done, 0 not yet, -errno error. Must not block. */
	int (*test)(void *ctx, uint64_t request);
	/* The request is done: uses its data. 0 or -errno. Called once per request; may push, must not
	 * release. */
	int (*consume)(void *ctx, uint64_t request);
};

struct dr_window {
	uint64_t request[DR_WINDOW_MAX]; /* ring, indexed by counter modulo cap */
	uint64_t head, tail; /* entries released and pushed; tail - head are in flight */
	unsigned cap;
	int err; /* first error, final */
	const struct dr_window_ops *ops;
	void *ctx;
};

/* cap in 1..DR_WINDOW_MAX, else -EINVAL. ops and ctx are borrowed and must outlive the window. */
int dr_window_init(struct dr_window *w, unsigned cap, const struct dr_window_ops *ops, void *ctx)
	DR_MUST_CHECK;
unsigned dr_window_in_flight(const struct dr_window *w);
int dr_window_full(const struct dr_window *w);
/* Adds a posted request. -EAGAIN: full, not added. After an error: that error. */
int dr_window_push(struct dr_window *w, uint64_t request) DR_MUST_CHECK;
/*
 * Tri-state: 0 the oldest request was done and is consumed and released; 1 nothing to release yet
 * (head not done, or window empty), no error; -1 error (see dr_window_error).
 */
int dr_window_try_release_oldest(struct dr_window *w) DR_MUST_CHECK;
/* Releases all that are done now. Returns their number, or -1 on error. */
int dr_window_drain(struct dr_window *w) DR_MUST_CHECK;
/* The first error as -errno; 0: none. */
int dr_window_error(const struct dr_window *w);
/* Asserts the invariants. */
void dr_window_validate(const struct dr_window *w);

#endif
