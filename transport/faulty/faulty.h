/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_FAULTY_FAULTY_H
#define DR_TRANSPORT_FAULTY_FAULTY_H

#include "transport/path.h"

/*
 * A path kind around another one that does harm at the ops boundary, for tests over real kinds. With
 * all options 0 it changes nothing but the pointers. What it does follows from the seed and from the
 * order of calls. Memory regions are the inner kind's: they pass through untouched.
 *
 * Rails come from dr_faulty_ops(f)->listen with kind_params =
 * &(struct dr_faulty_rail_params){ f, kind_params of the inner kind }; f outlives its rails.
 */
struct dr_faulty_opts {
	uint64_t seed;
	uint32_t eagain_ppm;	 /* post_recv, post_send, post_ctrl say -EAGAIN, per million */
	uint32_t dgram_loss_ppm; /* datagrams sent that are lost */
	uint32_t hold_ppm;	 /* events that are held back, and all behind them ... */
	unsigned hold_calls;	 /* ... for so many progress calls of their path */
	uint64_t
		fail_at_event; /* the path of the n-th event from create reports FAILED instead; 0: none */
	uint64_t
		fail_at_post; /* the path of the n-th post reports FAILED; the post was taken; 0: none */
	int fail_err;	      /* -errno of these; 0: -EIO */
	enum dr_scope fail_scope; /* of these */
	bool withhold_fenced;	  /* FENCED is reported at the fence's deadline, not before */
	/* Sees each op and event as one line; NULL: none. */
	void (*trace)(void *arg, const char *line);
	void *trace_arg;
};

struct dr_faulty;
struct dr_faulty_rail_params {
	struct dr_faulty *faulty;
	void *inner; /* kind_params of the inner kind */
};

int dr_faulty_create(const struct dr_transport_ops *inner, const struct dr_faulty_opts *opts,
	struct dr_faulty **out);
void dr_faulty_destroy(struct dr_faulty *f);
/* Name "faulty(inner)", capabilities of the inner kind; valid until destroy. */
const struct dr_transport_ops *dr_faulty_ops(struct dr_faulty *f);
/* May be written at any time. The counts of fail_at_* go on from create. */
struct dr_faulty_opts *dr_faulty_opts(struct dr_faulty *f);
/* Posts and events seen, and faults done so far: a test asserts that its fault happened. */
uint64_t dr_faulty_posts(const struct dr_faulty *f);
uint64_t dr_faulty_events(const struct dr_faulty *f);
uint64_t dr_faulty_injected(const struct dr_faulty *f);
/* The wrapped path. */
struct dr_path *dr_faulty_inner(struct dr_path *p);
/* Have this path report FAILED in its next progress, whatever the inner one does. */
void dr_faulty_fail(struct dr_path *p, enum dr_scope scope, int err);

#endif
