/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "gpu/gpu_priv.h"
#include "orchestrator/engine/integrity.h"
#include "orchestrator/engine/worker.h"
#include "tests/fakecuda/ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* The kernels as they are given to the driver, run here instruction by instruction. */

enum { ROOM = 8192, GUARD = 64, FILLER = 0x5c };

static _Alignas(16) uint8_t memory[GUARD + ROOM + GUARD];
static uint8_t *const data = memory + GUARD;
static uint64_t worst;
static uint32_t flag;

static const struct {
	unsigned grid, block;
} shapes[] = { { 1, 16 }, { 1, 256 }, { 3, 32 }, { 8, 256 } };

static void run(const char *entry, unsigned shape, size_t len, uint64_t base, bool writes)
{
	struct dr_ptx_launch l = {
		.grid = shapes[shape].grid,
		.block = shapes[shape].block,
		.param = { (uintptr_t)data, len, base, (uintptr_t)&worst, (uintptr_t)&flag },
		.range = { { data, len, writes }, { &worst, sizeof(worst), true },
			{ &flag, sizeof(flag), true } },
	};
	char why[200];

	if (dr_ptx_run(dr_gpu_pattern_ptx, entry, &l, why, sizeof(why)))
		fail_msg("%s, %zu bytes, %u x %u: %s", entry, len, l.grid, l.block, why);
}

/* UINT64_MAX: nothing is wrong. */
static uint64_t check(unsigned shape, size_t len, uint64_t base)
{
	worst = UINT64_MAX;
	flag = 0;
	run("dr_pattern_check", shape, len, base, false);
	assert_int_equal(flag, worst != UINT64_MAX);
	return worst;
}

static void fill(unsigned shape, size_t len, uint64_t seq)
{
	memset(memory, FILLER, sizeof(memory));
	run("dr_pattern_fill", shape, len, dr_pattern_base(3, 2, 1, seq), true);
}

static void fills_every_length(void **state)
{
	size_t wrong = 0;

	(void)state;
	for (unsigned shape = 0; shape < DR_ARRAY_LEN(shapes); shape++)
		for (size_t len = 0; len < ROOM; len += len < 300 ? 1 : 211) {
			fill(shape, len, len);
			if (dr_pattern_check(data, len, dr_pattern_base(3, 2, 1, len), &wrong))
				fail_msg("%zu bytes: byte %zu is wrong", len, wrong);
			for (unsigned i = 0; i < GUARD; i++) {
				assert_int_equal(memory[i], FILLER);
				assert_int_equal(data[len + i], FILLER);
			}
			assert_true(check(shape, len, dr_pattern_base(3, 2, 1, len)) == UINT64_MAX);
		}
}

/* Each byte, each bit of it in turn. */
static void finds_every_wrong_byte(void **state)
{
	static const size_t lens[] = { 1, 8, 15, 16, 17, 63, 300 };

	(void)state;
	for (unsigned shape = 0; shape < DR_ARRAY_LEN(shapes); shape++)
		for (size_t k = 0; k < DR_ARRAY_LEN(lens); k++) {
			fill(shape, lens[k], k);
			for (size_t i = 0; i < lens[k]; i++) {
				data[i] ^= (uint8_t)(1u << (i % 8));
				assert_int_equal(
					check(shape, lens[k], dr_pattern_base(3, 2, 1, k)), i);
				data[i] ^= (uint8_t)(1u << (i % 8));
			}
		}
}

static void finds_the_first_of_many(void **state)
{
	uint64_t seed = 0, first, at;
	struct dr_rng rng;
	size_t len;

	(void)state;
	assert_int_equal(dr_random_bytes(&seed, sizeof(seed)), 0);
	print_message("seed %llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	for (unsigned round = 0; round < 200; round++) {
		unsigned shape = round % DR_ARRAY_LEN(shapes);

		len = 1 + dr_rng_below(&rng, ROOM);
		fill(shape, len, round);
		first = UINT64_MAX;
		for (int n = 0; n < 5; n++) {
			at = dr_rng_below(&rng, len);
			data[at] = (uint8_t)~data[at];
			first = DR_MIN(first, at);
		}
		/* Two may have met. */
		for (at = first; at < len; at++) {
			uint64_t word =
				dr_pattern_base(3, 2, 1, round) + at / 8 * 0x9e3779b97f4a7c15ULL;

			if (data[at] != (uint8_t)(word >> (8 * (at % 8))))
				break;
		}
		first = at < len ? at : UINT64_MAX;
		assert_true(check(shape, len, dr_pattern_base(3, 2, 1, round)) == first);
	}
}

/* ---- unpacking ---- */

enum { PIECES_MAX = 70, PAGE = 4096 };

static _Alignas(16) uint8_t source[ROOM * 2];
/* At a multiple of 8, but not of 16. */
static _Alignas(16) struct {
	uint64_t unused;
	struct dr_gpu_piece piece[PIECES_MAX];
} list;

static void rng_new(struct dr_rng *rng)
{
	uint64_t seed = 0;

	assert_int_equal(dr_random_bytes(&seed, sizeof(seed)), 0);
	print_message("seed %llu\n", (unsigned long long)seed);
	dr_rng_seed(rng, seed);
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)dr_rng_below(rng, 256);
}

/* The first n of the list, in any order. The bytes beside them must stay. */
static void unpack(struct dr_rng *rng, unsigned shape, unsigned n)
{
	struct dr_ptx_launch l = {
		.grid = shapes[shape].grid,
		.block = shapes[shape].block,
		.param = { (uintptr_t)data, (uintptr_t)source, (uintptr_t)list.piece, n },
		.range = { { data, ROOM, true }, { source, sizeof(source), false },
			{ list.piece, n * sizeof(list.piece[0]), false } },
	};
	char why[200];

	for (unsigned i = 0; i < n; i++) {
		unsigned other = (unsigned)dr_rng_below(rng, i + 1);
		struct dr_gpu_piece p = list.piece[i];

		list.piece[i] = list.piece[other];
		list.piece[other] = p;
	}
	memset(memory, FILLER, sizeof(memory));
	if (dr_ptx_run(dr_gpu_unpack_ptx, "dr_unpack", &l, why, sizeof(why)))
		fail_msg("%u pieces, %u x %u: %s", n, l.grid, l.block, why);
	for (unsigned i = 0; i < n; i++) {
		const struct dr_gpu_piece *p = &list.piece[i];

		assert_memory_equal(data + p->dst_off, source + p->src_off, p->len);
		memset(data + p->dst_off, FILLER, p->len);
	}
	for (size_t i = 0; i < sizeof(memory); i++)
		assert_int_equal(memory[i], FILLER);
}

/* Pieces of first, first + 1, ... bytes, with gaps between them; src and dst: their addresses modulo 16. */
static void unpack_lengths(
	struct dr_rng *rng, unsigned shape, uint32_t first, unsigned n, uint32_t src, uint32_t dst)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		list.piece[i] = (struct dr_gpu_piece){ at + src, first + i, at + dst };
		at += (first + i + 15) / 16 * 16 + 16;
	}
	assert_true(at <= ROOM);
	unpack(rng, shape, n);
}

static void unpacks_every_length(void **state)
{
	static const uint32_t offsets[] = { 0, 1, 4, 8, 15 };
	struct dr_rng rng;

	(void)state;
	rng_new(&rng);
	for (unsigned shape = 0; shape < DR_ARRAY_LEN(shapes); shape++)
		for (size_t i = 0; i < DR_ARRAY_LEN(offsets); i++)
			for (size_t k = 0; k < DR_ARRAY_LEN(offsets); k++) {
				unpack_lengths(&rng, shape, 1, 70, offsets[i], offsets[k]);
				unpack_lengths(&rng, shape, PAGE, 1, offsets[i], offsets[k]);
			}
}

/* Pieces of random length and place; `aligned`: all at multiples of 16. */
static unsigned random_pieces(struct dr_rng *rng, bool aligned)
{
	uint32_t step = aligned ? 16 : 1, at = 0, to = 0;
	unsigned n = 0;

	while (n < PIECES_MAX && to < ROOM) {
		uint32_t len = (uint32_t)dr_rng_below(rng, dr_rng_below(rng, 4) ? 71 : 1500);

		len = DR_MIN(len, ROOM - to);
		at += (uint32_t)dr_rng_below(rng, 4) * step;
		if (at + len > sizeof(source))
			break;
		list.piece[n++] = (struct dr_gpu_piece){ at, len, to };
		at = (at + len + step - 1) / step * step;
		to = (to + len + step - 1) / step * step;
	}
	return n;
}

static void unpacks_pieces_anywhere(void **state)
{
	struct dr_rng rng;

	(void)state;
	rng_new(&rng);
	for (unsigned round = 0; round < 60; round++)
		unpack(&rng, round % DR_ARRAY_LEN(shapes), random_pieces(&rng, round / 4 % 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fills_every_length),
		cmocka_unit_test(finds_every_wrong_byte),
		cmocka_unit_test(finds_the_first_of_many),
		cmocka_unit_test(unpacks_every_length),
		cmocka_unit_test(unpacks_pieces_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
