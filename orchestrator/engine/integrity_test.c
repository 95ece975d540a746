/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "orchestrator/engine/integrity.h"
#include "orchestrator/engine/worker.h"

enum { SEED = 42, GPU = 3, CH = 5 };

/* The definition, word by word and byte by byte. */
static uint8_t expected_byte(uint64_t seq, size_t i)
{
	uint64_t w = dr_pattern_base(SEED, GPU, CH, seq) + i / 8 * 0x9e3779b97f4a7c15ULL;

	return (uint8_t)(w >> (8 * (i % 8)));
}

static const size_t lengths[] = { 0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 511, 1000, 4096 };

static void test_fill_is_the_definition(void **state)
{
	uint8_t buf[4096 + 2];

	(void)state;
	for (size_t k = 0; k < DR_ARRAY_LEN(lengths); k++) {
		memset(buf, 0xa5, sizeof(buf));
		/* An odd address: nothing may rest on alignment. */
		dr_pattern_fill(buf + 1, lengths[k], dr_pattern_base(SEED, GPU, CH, 99));
		for (size_t i = 0; i < lengths[k]; i++)
			assert_int_equal(buf[1 + i], expected_byte(99, i));
		assert_int_equal(buf[0], 0xa5);
		assert_int_equal(buf[1 + lengths[k]], 0xa5);
	}
}

static void test_check_finds_every_byte(void **state)
{
	uint8_t buf[1000];
	size_t off;

	(void)state;
	dr_pattern_fill(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 7));
	assert_int_equal(
		dr_pattern_check(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 7), &off), 0);
	for (size_t i = 0; i < sizeof(buf); i++) {
		buf[i] ^= 0x80;
		off = SIZE_MAX;
		assert_int_equal(
			dr_pattern_check(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 7), &off),
			1);
		assert_int_equal(off, i);
		/* The first of two. */
		buf[sizeof(buf) - 1] ^= 1;
		assert_int_equal(
			dr_pattern_check(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 7), &off),
			1);
		assert_int_equal(off, i);
		buf[sizeof(buf) - 1] ^= 1;
		buf[i] ^= 0x80;
	}
}

static void test_streams_differ(void **state)
{
	uint8_t buf[64];
	size_t off;

	(void)state;
	dr_pattern_fill(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 7));
	assert_int_equal(
		dr_pattern_check(buf, sizeof(buf), dr_pattern_base(SEED + 1, GPU, CH, 7), &off), 1);
	assert_int_equal(
		dr_pattern_check(buf, sizeof(buf), dr_pattern_base(SEED, GPU + 1, CH, 7), &off), 1);
	assert_int_equal(
		dr_pattern_check(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH + 1, 7), &off), 1);
	assert_int_equal(
		dr_pattern_check(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 8), NULL), 1);
	assert_int_equal(dr_pattern_check(buf, 0, dr_pattern_base(SEED, GPU, CH, 8), &off), 0);
}

/* Streams of contents fed in; BAD is damaged, SHORT is a right beginning of wrong length. */
enum { BAD = 1000000, SHORT };
struct stream {
	const char *name;
	uint64_t content[16];
	unsigned n;
	unsigned corrupted, lost, duplicated, reordered;
};

static const struct stream streams[] = {
	{ "in order", { 0, 1, 2, 3 }, 4, 0, 0, 0, 0 },
	{ "one lost", { 0, 1, 3, 4 }, 4, 0, 1, 0, 0 },
	{ "three lost", { 0, 4, 5 }, 3, 0, 3, 0, 0 },
	{ "first lost", { 1, 2 }, 2, 0, 1, 0, 0 },
	{ "doubled", { 0, 1, 1, 2 }, 4, 0, 0, 1, 0 },
	{ "old one again", { 0, 1, 2, 3, 0, 4 }, 6, 0, 0, 1, 0 },
	{ "swapped", { 0, 2, 1, 3 }, 4, 0, 0, 0, 1 },
	{ "late by three", { 0, 2, 3, 4, 1, 5 }, 6, 0, 0, 0, 1 },
	{ "late, then doubled", { 0, 2, 1, 1, 3 }, 5, 0, 0, 1, 1 },
	{ "reversed block", { 3, 2, 1, 0, 4 }, 5, 0, 0, 0, 3 },
	{ "lost and late", { 0, 3, 1, 4 }, 4, 0, 1, 0, 1 },
	{ "damaged", { 0, BAD, 2, 3 }, 4, 1, 0, 0, 0 },
	{ "damaged, then its own again", { 0, BAD, 1, 2 }, 4, 1, 0, 1, 0 },
	{ "short", { 0, SHORT, 2 }, 3, 1, 0, 0, 0 },
	{ "too far away to know", { 0, 40, 2, 3 }, 4, 1, 0, 0, 0 },
};

static void feed(struct dr_integrity *v, uint64_t content, uint64_t base)
{
	uint8_t buf[256];
	struct dr_chunk c = { buf, sizeof(buf), sizeof(buf), v->next };
	int rc;

	if (content == SHORT) {
		dr_pattern_fill(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, v->next));
		c.len = 17;
	} else {
		dr_pattern_fill(buf, sizeof(buf),
			dr_pattern_base(SEED, GPU, CH, content == BAD ? v->next : base + content));
		if (content == BAD)
			buf[200] ^= 4;
	}
	v->text[0] = '\0';
	rc = dr_integrity_check(v, &c);
	assert_int_equal(rc, v->text[0] != '\0');
	if (content == BAD)
		assert_non_null(strstr(v->text, "offset 200"));
}

static void test_classification(void **state)
{
	static const uint64_t bases[] = { 0, 511, 1ULL << 33 };
	struct dr_integrity v;

	(void)state;
	for (size_t b = 0; b < DR_ARRAY_LEN(bases); b++) {
		for (size_t i = 0; i < DR_ARRAY_LEN(streams); i++) {
			const struct stream *s = &streams[i];

			dr_integrity_init(&v, SEED, GPU, CH, 16);
			dr_integrity_begin(&v, bases[b]);
			for (unsigned k = 0; k < s->n; k++)
				feed(&v, s->content[k], bases[b]);
			if (v.checked != s->n || v.corrupted != s->corrupted || v.lost != s->lost ||
				v.duplicated != s->duplicated || v.reordered != s->reordered)
				fail_msg("stream \"%s\" from %llu: corrupted %llu lost %llu "
					 "duplicated %llu reordered %llu",
					s->name, (unsigned long long)bases[b],
					(unsigned long long)v.corrupted, (unsigned long long)v.lost,
					(unsigned long long)v.duplicated,
					(unsigned long long)v.reordered);
		}
	}
}

/* The bytes of damaged chunks are counted, until the next phase; those of moved ones are not wrong. */
static void test_wrong_bytes_are_counted(void **state)
{
	struct dr_integrity v;
	uint8_t buf[4096];
	struct dr_chunk c = { buf, sizeof(buf), sizeof(buf), 0 };

	(void)state;
	dr_integrity_init(&v, SEED, GPU, CH, 16);
	dr_integrity_begin(&v, 0);
	dr_pattern_fill(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 0));
	buf[0] ^= 1;
	buf[777] ^= 0x80;
	buf[4095] ^= 0xff;
	assert_int_equal(dr_integrity_check(&v, &c), 1);
	assert_int_equal(v.wrong_bytes, 3);
	dr_pattern_fill(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 2));
	assert_int_equal(dr_integrity_check(&v, &c), 1);
	assert_int_equal(v.lost, 1);
	assert_int_equal(v.wrong_bytes, 3);
	dr_pattern_fill(buf, sizeof(buf), dr_pattern_base(SEED, GPU, CH, 3));
	buf[8] ^= 1;
	assert_int_equal(dr_integrity_check(&v, &c), 1);
	assert_int_equal(v.wrong_bytes, 4);
	assert_int_equal(v.corrupted, 2);
	dr_integrity_begin(&v, 4);
	assert_int_equal(v.wrong_bytes, 0);
}

/* A chunk too short to be told from others is never called moved. */
static void test_tiny_chunks(void **state)
{
	struct dr_integrity v;
	uint8_t byte;
	const struct dr_chunk c = { &byte, 1, 1, 10 };

	(void)state;
	dr_integrity_init(&v, SEED, GPU, CH, 256);
	dr_integrity_begin(&v, 10);
	dr_pattern_fill(&byte, 1, dr_pattern_base(SEED, GPU, CH, 10));
	byte ^= 1;
	assert_int_equal(dr_integrity_check(&v, &c), 1);
	assert_int_equal(v.corrupted, 1);
	dr_pattern_fill(&byte, 1, dr_pattern_base(SEED, GPU, CH, 11));
	assert_int_equal(dr_integrity_check(&v, &c), 0);
}

/* A random permutation with losses and copies: no chunk is called damaged, and the counts add up:
 * chunks in = contents passed - lost + duplicated. */
static void test_random_moves_add_up(void **state)
{
	const char *env = getenv("DR_TEST_SEED");
	uint64_t seed = env ? strtoull(env, NULL, 0) : (uint64_t)dr_now_ns();
	struct dr_integrity v;
	struct dr_rng rng;
	uint64_t held = UINT64_MAX;

	(void)state;
	print_message("replay: DR_TEST_SEED=%llu integrity_test\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	dr_integrity_init(&v, SEED, GPU, CH, 16);
	dr_integrity_begin(&v, 0);
	for (uint64_t s = 0; s < 5000; s++) {
		if (dr_rng_chance(&rng, 1, 50))
			continue;
		if (held == UINT64_MAX && dr_rng_chance(&rng, 1, 20)) {
			held = s;
			continue;
		}
		feed(&v, s, 0);
		if (dr_rng_chance(&rng, 1, 30))
			feed(&v, s, 0);
		if (held != UINT64_MAX && dr_rng_chance(&rng, 1, 4)) {
			if (s - held < 20)
				feed(&v, held, 0);
			held = UINT64_MAX;
		}
	}
	assert_int_equal(v.corrupted, 0);
	assert_int_equal(v.checked, v.next - v.lost + v.duplicated);
	assert_true(v.lost && v.duplicated && v.reordered);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fill_is_the_definition),
		cmocka_unit_test(test_check_finds_every_byte),
		cmocka_unit_test(test_streams_differ),
		cmocka_unit_test(test_classification),
		cmocka_unit_test(test_wrong_bytes_are_counted),
		cmocka_unit_test(test_tiny_chunks),
		cmocka_unit_test(test_random_moves_add_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
