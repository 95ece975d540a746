/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <string.h>

#include "base/rng.h"
#include "orchestrator/integrity.h"
#include "orchestrator/worker.h"

#define STEP 0x9e3779b97f4a7c15ULL

/* Eight words at a time with fixed trip counts, which the compiler turns into vector code at -O2. */
enum { LANES = 8, BLOCK = LANES * sizeof(uint64_t) };

uint64_t dr_pattern_base(uint64_t seed, unsigned gpu, unsigned channel, uint64_t seq)
{
	uint64_t stream = dr_mix64(seed ^ ((uint64_t)gpu << 32 | channel));

	return dr_mix64(stream + seq * STEP);
}

void dr_pattern_fill(
	void *buf, size_t len, uint64_t seed, unsigned gpu, unsigned channel, uint64_t seq)
{
	uint64_t word = dr_pattern_base(seed, gpu, channel, seq);
	uint64_t lane[LANES];
	uint8_t *p = buf;

	for (; len >= BLOCK; len -= BLOCK, p += BLOCK, word += LANES * STEP) {
		for (unsigned i = 0; i < LANES; i++)
			lane[i] = htole64(word + i * STEP);
		memcpy(p, lane, BLOCK);
	}
	for (; len > 0; word += STEP) {
		size_t n = DR_MIN(len, sizeof(word));
		uint64_t le = htole64(word);

		memcpy(p, &le, n);
		p += n;
		len -= n;
	}
}

/* Offset of the first byte of p that differs from the pattern that begins with word; len if none. */
static size_t first_wrong(const uint8_t *p, size_t len, uint64_t word)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t le = htole64(word + i / 8 * STEP);

		if (p[i] != ((const uint8_t *)&le)[i % 8])
			return i;
	}
	return len;
}

int dr_pattern_check(const void *buf, size_t len, uint64_t seed, unsigned gpu, unsigned channel,
	uint64_t seq, size_t *bad_offset)
{
	uint64_t word = dr_pattern_base(seed, gpu, channel, seq);
	uint64_t lane[LANES], diff;
	const uint8_t *p = buf;
	size_t done = 0, wrong;

	for (; len - done >= BLOCK; done += BLOCK, word += LANES * STEP) {
		memcpy(lane, p + done, BLOCK);
		diff = 0;
		for (unsigned i = 0; i < LANES; i++)
			diff |= lane[i] ^ htole64(word + i * STEP);
		if (diff)
			break;
	}
	wrong = first_wrong(p + done, DR_MIN(len - done, (size_t)BLOCK), word);
	if (done + wrong == len)
		return 0;
	if (bad_offset)
		*bad_offset = done + wrong;
	return 1;
}
