/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_STAGED_H
#define DR_TRANSPORT_STAGED_H

#include "transport/path.h"

/*
 * A path kind around another one, for memory that the inner kind cannot reach: its bytes go through a
 * ring in pinned host memory. The sender copies a part out of the GPU while the part before it is on
 * the wire; the receiver copies a part in while the next one arrives. Memory that the
 * inner kind can register (host memory; GPU memory if the NIC supports it) is not copied.
 *
 * To the user it is one more kind: name "staged(inner)", the inner kind's capabilities. SENT and
 * DELIVERED come when the copy is done too; DELIVERED in message order; FENCED when no copy reads or
 * writes the user's memory either. A copy that fails is FAILED{LOCAL}.
 *
 * Copies are made through an ops table, so this code does not depend on CUDA. One struct dr_staged serves the
 * rails of one GPU on one thread. Its rails come from dr_staged_ops(f)->listen with kind_params =
 * &(struct dr_staged_rail_params){ f, kind_params of the inner kind }; f outlives them.
 */

enum dr_stage_way { DR_STAGE_OUT, DR_STAGE_IN }; /* direction: out of the GPU, into the GPU */
struct dr_stage_span {
	enum dr_stage_way way;
	void *dev, *host;
	size_t len;
};

/*
 * Copies of one direction complete in the order started and are counted: the n-th has ticket n, from 1.
 * Source and destination stay valid until the copy is done. Called by the thread that drives the
 * paths; alloc and release by any one thread.
 */
struct dr_stage_ops {
	/* Pinned host memory, page-aligned. */
	int (*alloc)(void *arg, size_t len, void **out, struct dr_err *e);
	void (*release)(void *arg, void *mem, size_t len);
	/* Start to copy len > 0 bytes between host memory and dr_memory.base + something. Does not
	 * wait. -EAGAIN: too many copies are outstanding. Any other error is final. */
	int (*start)(
		void *arg, const struct dr_stage_span *what, uint64_t *ticket, struct dr_err *e);
	/* The last ticket of that direction that is done. Does not wait. An error is final: no copy is
	 * made after it. */
	int (*done)(void *arg, enum dr_stage_way way, uint64_t *ticket, struct dr_err *e);
	/* Wait for that ticket; after an error: until no copy of that direction is running. */
	void (*wait)(void *arg, enum dr_stage_way way, uint64_t ticket);
};

struct dr_staged_params {
	const struct dr_transport_ops *inner;
	const struct dr_stage_ops *copy;
	void *arg; /* of copy */
	/* Text on how the inner kind reaches GPU memory that it registered; NULL: none. */
	const char *(*how)(const struct dr_mr *inner);
	/* Of a path's ring: what is posted at most, and at least one largest part (-EMSGSIZE above). A
	 * ring that is full answers -EAGAIN. */
	size_t ring_bytes;
};

struct dr_staged;
struct dr_staged_rail_params {
	struct dr_staged *staged;
	const void *inner; /* kind_params of the inner kind */
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

/* The GPU memory registered so far: regions that the inner kind reaches directly, and regions that are
 * staged. why: the reason for the last staged region; if there is none, how the inner kind reaches it. */
struct dr_staged_choice {
	unsigned direct, staged;
	char why[256];
};
void dr_staged_choice(const struct dr_staged *f, struct dr_staged_choice *out);
/* Why copies of this GPU fail: every path that stages fails or has failed. NULL: they work. */
const struct dr_err *dr_staged_error(const struct dr_staged *f);
/* Rings that were not given back to dr_stage_ops.release, since a NIC or a copy may reach them until the
 * process ends. Complete when the rails are gone. */
unsigned dr_staged_kept(const struct dr_staged *f);
/* The path within, which is p itself when p is of another kind. */
struct dr_path *dr_staged_inner(struct dr_path *p);

#endif
