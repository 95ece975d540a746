/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "orchestrator/engine/integrity.h"

/* ---- the pattern ---- */

#define STEP 0x9e3779b97f4a7c15ULL

/* Eight words at a time with fixed trip counts: the compiler vectorises these loops at -O2. */
enum { LANES = 8, BLOCK = LANES * sizeof(uint64_t) };

uint64_t dr_pattern_base(uint64_t seed, unsigned gpu, unsigned channel, uint64_t seq)
{
	uint64_t stream = dr_mix64(seed ^ ((uint64_t)gpu << 32 | channel));

	return dr_mix64(stream + seq * STEP);
}

void dr_pattern_fill(void *buf, size_t len, uint64_t base)
{
	uint64_t word = base, lane[LANES];
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

/* Offset of the first byte of p that differs from the pattern starting with word; len: none. */
static size_t first_wrong(const uint8_t *p, size_t len, uint64_t word)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t le = htole64(word + i / 8 * STEP);

		if (p[i] != ((const uint8_t *)&le)[i % 8])
			return i;
	}
	return len;
}

int dr_pattern_check(const void *buf, size_t len, uint64_t base, size_t *bad_offset)
{
	uint64_t word = base, lane[LANES];
	const uint8_t *p = buf;
	size_t done = 0;

	for (; len - done >= BLOCK; done += BLOCK, word += LANES * STEP) {
		memcpy(lane, p + done, BLOCK);
		uint64_t diff = 0;
		for (unsigned i = 0; i < LANES; i++)
			diff |= lane[i] ^ htole64(word + i * STEP);
		if (diff)
			break;
	}
	size_t wrong = first_wrong(p + done, DR_MIN(len - done, (size_t)BLOCK), word);
	if (done + wrong == len)
		return 0;
	if (bad_offset)
		*bad_offset = done + wrong;
	return 1;
}

/* How many bytes differ. */
static uint64_t count_wrong(const void *buf, size_t len, uint64_t base)
{
	const uint8_t *p = buf;
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++) {
		uint64_t le = htole64(base + i / 8 * STEP);

		n += p[i] != ((const uint8_t *)&le)[i % 8];
	}
	return n;
}

/* ---- the order of the chunks ---- */

/*
 * Invariant: bit seq % SPAN of skipped[] is that of the one seq in [next - SPAN, next) with that remainder.
 * It is set if and only if that content was skipped and has not arrived since. Content before the first seq of
 * the phase is never marked, so it counts as a duplicate.
 */

void dr_integrity_init(
	struct dr_integrity *v, uint64_t seed, unsigned gpu, unsigned channel, unsigned window)
{
	dr_assert(window >= 1);
	*v = (struct dr_integrity){ .seed = seed, .gpu = gpu, .channel = channel };
	v->span = DR_MIN(2 * window, (unsigned)DR_INTEGRITY_SPAN);
}

void dr_integrity_begin(struct dr_integrity *v, uint64_t seq)
{
	v->next = seq;
	memset(v->skipped, 0, sizeof(v->skipped));
	v->checked = v->corrupted = v->lost = v->duplicated = v->reordered = 0;
	v->wrong_bytes = 0;
}

static bool is_skipped(const struct dr_integrity *v, uint64_t seq)
{
	unsigned bit = (unsigned)(seq % DR_INTEGRITY_SPAN);

	return v->skipped[bit / 64] >> (bit % 64) & 1;
}

static void set_skipped(struct dr_integrity *v, uint64_t seq, bool on)
{
	unsigned bit = (unsigned)(seq % DR_INTEGRITY_SPAN);
	uint64_t mask = 1ULL << (bit % 64);

	v->skipped[bit / 64] = on ? v->skipped[bit / 64] | mask : v->skipped[bit / 64] & ~mask;
}

uint64_t dr_integrity_base(const struct dr_integrity *v, uint64_t seq)
{
	return dr_pattern_base(v->seed, v->gpu, v->channel, seq);
}

static bool content_is(const struct dr_integrity *v, const struct dr_chunk *c, uint64_t seq)
{
	uint64_t first, base = dr_integrity_base(v, seq);

	memcpy(&first, c->at, sizeof(first));
	return le64toh(first) == base && !dr_pattern_check(c->at, c->len, base, NULL);
}

/* Find the nearest seq within the span that has this content; false: none. */
static bool identify(const struct dr_integrity *v, const struct dr_chunk *c, uint64_t *out)
{
	if (c->len < sizeof(uint64_t))
		return false;
	for (uint64_t d = 1; d <= v->span; d++) {
		*out = v->next + d;
		if (content_is(v, c, *out))
			return true;
		*out = v->next - d;
		if (v->next >= d && content_is(v, c, *out))
			return true;
	}
	return false;
}

static void damaged(struct dr_integrity *v, const struct dr_chunk *c)
{
	size_t off = 0;

	if (c->len != c->expected) {
		dr_integrity_wrong_length(v, c);
		return;
	}
	v->corrupted++;
	dr_pattern_check(c->at, c->len, dr_integrity_base(v, v->next), &off);
	v->wrong_bytes += count_wrong(c->at, c->len, dr_integrity_base(v, v->next));
	snprintf(v->text, sizeof(v->text),
		"gpu %u channel %u seq %llu: corrupted, first wrong byte at offset %zu is 0x%02x",
		v->gpu, v->channel, (unsigned long long)v->next, off, c->at[off]);
}

static void moved(struct dr_integrity *v, uint64_t content)
{
	uint64_t expected = v->next;
	const char *what;

	if (content > expected) {
		what = "lost";
		v->lost += content - expected;
		for (uint64_t s = expected; s < content; s++)
			set_skipped(v, s, true);
		set_skipped(v, content, false);
		v->next = content + 1;
	} else if (is_skipped(v, content)) {
		what = "reordered";
		v->lost--;
		v->reordered++;
		set_skipped(v, content, false);
	} else {
		what = "duplicated";
		v->duplicated++;
	}
	snprintf(v->text, sizeof(v->text),
		"gpu %u channel %u: seq %llu has the content of %llu (%s)", v->gpu, v->channel,
		(unsigned long long)expected, (unsigned long long)content, what);
}

static void as_expected(struct dr_integrity *v)
{
	set_skipped(v, v->next, false);
	v->next++;
}

void dr_integrity_good(struct dr_integrity *v)
{
	v->checked++;
	as_expected(v);
}

void dr_integrity_wrong_length(struct dr_integrity *v, const struct dr_chunk *c)
{
	v->corrupted++;
	snprintf(v->text, sizeof(v->text),
		"gpu %u channel %u seq %llu: %zu bytes arrived, %zu were expected", v->gpu,
		v->channel, (unsigned long long)c->seq, c->len, c->expected);
}

void dr_integrity_wrong_sum(struct dr_integrity *v, uint64_t got, uint64_t expected)
{
	v->corrupted++;
	snprintf(v->text, sizeof(v->text),
		"gpu %u channel %u: %llu bytes arrived since the start, the peer sent %llu", v->gpu,
		v->channel, (unsigned long long)got, (unsigned long long)expected);
}

int dr_integrity_check(struct dr_integrity *v, const struct dr_chunk *c)
{
	uint64_t content;

	v->checked++;
	if (c->len == c->expected &&
		!dr_pattern_check(c->at, c->len, dr_integrity_base(v, v->next), NULL)) {
		as_expected(v);
		return 0;
	}
	/* The last chunk of a message may be shorter, so a moved chunk may have another length. */
	if (identify(v, c, &content)) {
		moved(v, content);
		return 1;
	}
	damaged(v, c);
	as_expected(v); /* it replaces the expected one */
	return 1;
}
