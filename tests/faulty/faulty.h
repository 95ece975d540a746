/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAULTY_FAULTY_H
#define DR_TESTS_FAULTY_FAULTY_H

#include "base/rng.h"
#include "transport/path.h"

/*
 * A wrapper around a path kind that injects faults at the ops boundary, for tests over real kinds. With
 * all options 0 it only changes the pointers. Its faults follow from the seed and the order of calls.
 * Memory regions are the inner kind's and pass through unchanged.
 *
 * Rails come from f->ops.listen with kind_params =
 * &(struct dr_faulty_rail_params){ f, kind_params of the inner kind }; f outlives its rails.
 */
struct dr_faulty_opts {
	uint64_t seed;
	uint32_t eagain_ppm;	 /* post_recv, post_send, post_ctrl return -EAGAIN, per million */
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
	int stop_err,
		dereg_err; /* -errno that stop and mr_dereg return although they did it; 0: none */
	/* Called with each op and event as one line; NULL: none. */
	void (*trace)(void *arg, const char *line);
	void *trace_arg;
};

/* ops: name "faulty(inner)", capabilities of the inner kind. A test may write o at any time; it reads the
 * counts to assert that its fault happened. The counts of fail_at_* go on from create. */
struct dr_faulty {
	struct dr_transport_ops ops;
	const struct dr_transport_ops *inner;
	struct dr_faulty_opts o;
	struct dr_rng rng;
	char name[48];
	uint64_t posts, events, injected; /* seen, seen, faults made */
};
struct dr_faulty_rail_params {
	struct dr_faulty *faulty;
	const void *inner; /* kind_params of the inner kind */
};

int dr_faulty_create(const struct dr_transport_ops *inner, const struct dr_faulty_opts *opts,
	struct dr_faulty **out);
void dr_faulty_destroy(struct dr_faulty *f);
/* The wrapped path. */
struct dr_path *dr_faulty_inner(struct dr_path *p);

#endif
