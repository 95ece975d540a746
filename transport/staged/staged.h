/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_STAGED_STAGED_H
#define DR_TRANSPORT_STAGED_STAGED_H

#include "transport/path.h"

/*
 * A path kind around another one, for memory that the inner kind cannot reach: its bytes go through a
 * ring in pinned host memory. The sender copies a part out of the GPU while the part before it is on
 * the wire; the receiver copies a part in while the next one arrives. What the inner kind registers by
 * itself (host memory; GPU memory where the NIC can) goes straight through, with no copy.
 *
 * To the user it is one more kind: name "staged(inner)", the inner kind's capabilities. SENT and
 * DELIVERED come when the copy is done too; DELIVERED in message order; FENCED when no copy reads or
 * writes the user's memory either. A copy that fails is FAILED{LOCAL}.
 *
 * Who copies comes in as an ops table, so nothing here knows CUDA. One struct dr_staged serves the
 * rails of one GPU on one thread. Its rails come from dr_staged_ops(f)->listen with kind_params =
 * &(struct dr_staged_rail_params){ f, kind_params of the inner kind }; f outlives them.
 */

enum dr_stage_way { DR_STAGE_OUT, DR_STAGE_IN }; /* out of the GPU, into it */

/*
 * Copies of one way are done in the order started, and are counted: the n-th has ticket n, from 1.
 * Both ends of a copy stay until it is done. Called by the thread that drives the paths, alloc and
 * release by any one thread.
 */
struct dr_stage_ops {
	/* Pinned host memory, page-aligned. */
	int (*alloc)(void *arg, size_t len, void **out, struct dr_err *e);
	void (*release)(void *arg, void *mem, size_t len);
	/* Start to copy len > 0 bytes between host memory and dr_memory.base + something. Does not
	 * wait. -EAGAIN: too many copies are outstanding. Any other error is final. */
	int (*start)(void *arg, enum dr_stage_way way, void *dev, void *host, size_t len,
		uint64_t *ticket, struct dr_err *e);
	/* Up to which ticket the copies of that way are done. Does not wait. An error is final: nothing
	 * is copied any more. */
	int (*done)(void *arg, enum dr_stage_way way, uint64_t *ticket, struct dr_err *e);
	/* Wait until they are; after an error: until nothing of that way is copied any more. */
	void (*wait)(void *arg, enum dr_stage_way way, uint64_t ticket);
};

struct dr_staged_params {
	const struct dr_transport_ops *inner;
	const struct dr_stage_ops *copy;
	void *arg; /* of copy */
	/* How the inner kind reaches GPU memory that it registered, in words; NULL: it does not say. */
	const char *(*how)(const struct dr_mr *inner);
	/* Of a path's ring: what is posted at most, and at least one largest part (-EMSGSIZE above). A
	 * ring that is full answers -EAGAIN. */
	size_t ring_bytes;
};

struct dr_staged;
struct dr_staged_rail_params {
	struct dr_staged *staged;
	void *inner; /* kind_params of the inner kind */
};

enum { DR_STAGED_RAILS_MAX = 16 };

int dr_staged_create(const struct dr_staged_params *p, struct dr_staged **out, struct dr_err *e)
	DR_MUST_CHECK;
/* All its rails are gone. */
void dr_staged_destroy(struct dr_staged *f);
/* Valid until destroy. */
const struct dr_transport_ops *dr_staged_ops(struct dr_staged *f);
/*
 * Have n rings ready, registered on every rail that is open. Without it a path makes its ring when it
 * first needs one, which takes milliseconds. A ring goes from path to path: one that is fenced gives
 * its own back, so a channel of two paths needs one.
 */
int dr_staged_reserve(struct dr_staged *f, unsigned n, struct dr_err *e) DR_MUST_CHECK;

/* What became of the GPU memory registered so far: regions that the inner kind reaches by itself, and
 * regions that are staged, with the reason for the last of these; where none is: with the inner kind's
 * way. */
struct dr_staged_choice {
	unsigned direct, staged;
	char why[256];
};
void dr_staged_choice(const struct dr_staged *f, struct dr_staged_choice *out);
/* Why this GPU copies no more: every path that stages fails or has failed. NULL: it does. */
const struct dr_err *dr_staged_error(const struct dr_staged *f);
/* The path within, which is p itself when p is of another kind. */
struct dr_path *dr_staged_inner(struct dr_path *p);

#endif
