/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/integrity.h"
#include "orchestrator/worker.h"

/*
 * Invariant: bit seq % SPAN of skipped[] speaks of the one seq in [next - SPAN, next) with that
 * remainder; it is set iff that content was passed over and has not come since. Content before the
 * phase's first seq is never marked, so it counts as seen: a duplicate.
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

static bool content_is(const struct dr_integrity *v, const void *buf, size_t len, uint64_t seq)
{
	uint64_t first;

	memcpy(&first, buf, sizeof(first));
	return le64toh(first) == dr_pattern_base(v->seed, v->gpu, v->channel, seq) &&
	       !dr_pattern_check(buf, len, v->seed, v->gpu, v->channel, seq, NULL);
}

/* Which seq near by has this content? Nearest first; false: none. */
static bool identify(const struct dr_integrity *v, const void *buf, size_t len, uint64_t *out)
{
	if (len < sizeof(uint64_t))
		return false;
	for (uint64_t d = 1; d <= v->span; d++) {
		*out = v->next + d;
		if (content_is(v, buf, len, *out))
			return true;
		*out = v->next - d;
		if (v->next >= d && content_is(v, buf, len, *out))
			return true;
	}
	return false;
}

static void damaged(struct dr_integrity *v, const void *buf, size_t len, size_t len_expected,
	char *text, size_t text_len)
{
	size_t off = 0;

	v->corrupted++;
	if (len != len_expected)
		snprintf(text, text_len,
			"gpu %u channel %u seq %llu: %zu bytes arrived, %zu were expected", v->gpu,
			v->channel, (unsigned long long)v->next, len, len_expected);
	else if (dr_pattern_check(buf, len, v->seed, v->gpu, v->channel, v->next, &off))
		snprintf(text, text_len,
			"gpu %u channel %u seq %llu: corrupted, first wrong byte at offset %zu is 0x%02x",
			v->gpu, v->channel, (unsigned long long)v->next, off,
			((const uint8_t *)buf)[off]);
}

static void moved(struct dr_integrity *v, uint64_t content, char *text, size_t text_len)
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
	snprintf(text, text_len, "gpu %u channel %u: seq %llu has the content of %llu (%s)", v->gpu,
		v->channel, (unsigned long long)expected, (unsigned long long)content, what);
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

int dr_integrity_check(struct dr_integrity *v, const void *buf, size_t len, size_t len_expected,
	char *text, size_t text_len)
{
	uint64_t content;

	v->checked++;
	if (len == len_expected &&
		!dr_pattern_check(buf, len, v->seed, v->gpu, v->channel, v->next, NULL)) {
		as_expected(v);
		return 0;
	}
	/* The last chunk of a message may be shorter, so a moved chunk may have another length. */
	if (identify(v, buf, len, &content)) {
		moved(v, content, text, text_len);
		return 1;
	}
	damaged(v, buf, len, len_expected, text, text_len);
	as_expected(v); /* it took the place */
	return 1;
}
