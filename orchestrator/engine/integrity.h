/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_INTEGRITY_H
#define DR_ORCHESTRATOR_INTEGRITY_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * The pattern of a verified message: 64-bit little-endian words, word i of chunk seq is
 * dr_pattern_base(seed, gpu, channel, seq) + i * 0x9e3779b97f4a7c15 (the golden-ratio constant of splitmix64).
 * A tail shorter than a word has the first bytes of that word. fill and check run at memory speed.
 */
uint64_t dr_pattern_base(uint64_t seed, unsigned gpu, unsigned channel, uint64_t seq);
void dr_pattern_fill(void *buf, size_t len, uint64_t base);
/* 0: equal; else 1 and, unless bad_offset is NULL, the offset of the first wrong byte. */
int dr_pattern_check(const void *buf, size_t len, uint64_t base, size_t *bad_offset);

/*
 * Checks a stream of chunks by content alone. The chunks of one channel, in delivery order, should have the
 * patterns of seq, seq+1, ... A chunk with the content of another nearby seq was not damaged but moved:
 *
 *   content              counted as
 *   expected             nothing
 *   a later seq          every seq skipped is lost; checking continues after the later one
 *   skipped before       reordered instead of lost
 *   seen before          duplicated
 *   none of these        corrupted; it replaces the expected one
 *
 * "Nearby" is within 2 * window, at most DR_INTEGRITY_SPAN. Chunks shorter than 8 bytes cannot be
 * identified reliably and count as corrupted.
 */
enum { DR_INTEGRITY_SPAN = 512 };

struct dr_integrity {
	uint64_t seed;
	unsigned gpu, channel, span;
	uint64_t next; /* content expected next */
	uint64_t skipped[DR_INTEGRITY_SPAN /
			 64]; /* bit seq % SPAN: skipped, within the span before next */
	uint64_t checked, corrupted, lost, duplicated, reordered;
	uint64_t wrong_bytes; /* in chunks that count as corrupted and have the right length */
	char text[160];	      /* describes the last wrong chunk */
};

/* A received chunk and the length that the phase gives it. */
struct dr_chunk {
	const uint8_t *at;
	size_t len, expected;
	uint64_t seq; /* of its channel; for texts */
};

void dr_integrity_init(
	struct dr_integrity *v, uint64_t seed, unsigned gpu, unsigned channel, unsigned window);
/* A phase begins; seq is that of the next chunk. Resets the counters. */
void dr_integrity_begin(struct dr_integrity *v, uint64_t seq);
/* First word of the pattern of a chunk. */
uint64_t dr_integrity_base(const struct dr_integrity *v, uint64_t seq);
/* Check the next chunk. 0: as expected; else 1 and a description in v->text. */
int dr_integrity_check(struct dr_integrity *v, const struct dr_chunk *c);
/* Count the next chunk, which was checked elsewhere, as expected. */
void dr_integrity_good(struct dr_integrity *v);
/* Without a pattern: the chunk has the wrong length. Counts it as corrupted and describes it. */
void dr_integrity_wrong_length(struct dr_integrity *v, const struct dr_chunk *c);
/* The chunks of the phase had other bytes in sum than the sender says: counts one as corrupted. */
void dr_integrity_wrong_sum(struct dr_integrity *v, uint64_t got, uint64_t expected);

#endif
