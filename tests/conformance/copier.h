/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_CONFORMANCE_COPIER_H
#define DR_TESTS_CONFORMANCE_COPIER_H

#include "transport/staged.h"

/*
 * Who copies for staged paths in tests: "GPU memory" is any memory that only the copier and the test
 * touch. A copy is done some looks (calls of done) after it was started, and its bytes move then, not
 * before: whoever reads the target, reuses the source or lets go of either too early is found out by
 * wrong bytes. How long each takes follows from the seed.
 */
struct copier;
struct copier_opts {
	uint64_t seed;
	unsigned looks_max;   /* a copy takes 0..looks_max calls of done */
	unsigned outstanding; /* of one way at most, else -EAGAIN; 0: 64 */
};
void copier_create(const struct copier_opts *o, struct copier **out);
/* Everything was given back, except what was said to be lost; asserts. */
void copier_destroy(struct copier *c);
void copier_lose(struct copier *c, unsigned allocs);
extern const struct dr_stage_ops copier_ops; /* arg: the copier */

/* Copies that will still end by being looked at. */
unsigned copier_busy(const struct copier *c);
/* Copies done so far. */
uint64_t copier_copies(const struct copier *c, enum dr_stage_way way);
/* The n-th call from now of alloc, start or done fails with -EIO, or -ENOMEM (alloc); 0: none. */
enum copier_call { COPIER_ALLOC, COPIER_START, COPIER_DONE, COPIER_CALLS };
void copier_fail(struct copier *c, enum copier_call call, unsigned n);
/* No copy of that way ends any more, or again. */
void copier_stop(struct copier *c, enum dr_stage_way way, bool stopped);

#endif
