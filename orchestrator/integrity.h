/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_INTEGRITY_H
#define DR_ORCHESTRATOR_INTEGRITY_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * What is wrong with a stream of chunks, judged by content alone. The chunks of one channel, in the
 * order in which they were handed to the user, should carry the patterns of seq, seq+1, ... A chunk
 * whose bytes are those of another seq near by was not damaged but moved:
 *
 *   content     counted as
 *   expected    nothing
 *   a later one every seq skipped is lost; the stream goes on after what came
 *   one skipped before   it was not lost but reordered
 *   one seen before      duplicated
 *   none of these        corrupted; it took the place of the expected one
 *
 * "Near by" is 2 * window, at most DR_INTEGRITY_SPAN. Chunks shorter than 8 bytes cannot be told
 * apart well enough and count as corrupted.
 */
enum { DR_INTEGRITY_SPAN = 512 };

struct dr_integrity {
	uint64_t seed;
	unsigned gpu, channel, span;
	uint64_t next; /* content expected next */
	uint64_t skipped[DR_INTEGRITY_SPAN /
			 64]; /* bit seq % SPAN: not seen, of the span before next */
	uint64_t checked, corrupted, lost, duplicated, reordered;
};

void dr_integrity_init(
	struct dr_integrity *v, uint64_t seed, unsigned gpu, unsigned channel, unsigned window);
/* A verified phase begins: the next chunk should be seq's. Counters to 0. */
void dr_integrity_begin(struct dr_integrity *v, uint64_t seq);
/* Judge the next chunk; len_expected is what the phase says it should have. 0 as expected; else 1 and
 * a description in text. */
int dr_integrity_check(struct dr_integrity *v, const void *buf, size_t len, size_t len_expected,
	char *text, size_t text_len);

/* The same for a chunk that was found to be as expected elsewhere. */
void dr_integrity_good(struct dr_integrity *v);

/* First word of a chunk's pattern. */
uint64_t dr_pattern_base(uint64_t seed, unsigned gpu, unsigned channel, uint64_t seq);

#endif
