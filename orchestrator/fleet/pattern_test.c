/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/pattern.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* Runs a pattern; asserts that no node is in two pairs of a round and that no pair comes twice. Returns the rounds. */
static uint32_t walk(const struct dr_pattern_ops *ops, uint32_t nodes, uint64_t *pairs)
{
	struct dr_sweep_pair *out = dr_calloc(nodes / 2 + 1, sizeof(*out));
	uint32_t *busy = dr_calloc(nodes, sizeof(*busy)), rounds = 0;
	uint8_t *met = dr_calloc((size_t)nodes * nodes, 1);

	*pairs = 0;
	for (uint32_t n; (n = ops->round(nodes, rounds, out)) > 0;) {
		rounds++;
		assert_true(n <= nodes / 2);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t a = out[i].client, b = out[i].server;

			assert_true(a < nodes && b < nodes && a != b);
			assert_true(busy[a] < rounds && busy[b] < rounds);
			busy[a] = busy[b] = rounds;
			assert_false(met[(size_t)a * nodes + b] || met[(size_t)b * nodes + a]);
			met[(size_t)a * nodes + b] = 1;
		}
		*pairs += n;
	}
	assert_int_equal(ops->total(nodes), *pairs);
	dr_free(met);
	dr_free(busy);
	dr_free(out);
	return rounds;
}

static void all_pairs_takes_one_round_less_than_nodes(void **state)
{
	uint64_t pairs;

	(void)state;
	for (uint32_t n = 2; n <= 65; n++) {
		assert_int_equal(walk(&dr_pattern_all_pairs, n, &pairs), n % 2 ? n : n - 1);
		assert_int_equal(pairs, (uint64_t)n * (n - 1) / 2);
	}
	assert_int_equal(walk(&dr_pattern_all_pairs, 4000, &pairs), 3999);
	assert_int_equal(pairs, (uint64_t)4000 * 3999 / 2);
}

static void other_patterns_have_their_pairs(void **state)
{
	uint64_t pairs;

	(void)state;
	for (uint32_t n = 2; n <= 33; n++) {
		assert_int_equal(walk(&dr_pattern_ring, n, &pairs), n == 2 ? 1 : n % 2 ? 3 : 2);
		assert_int_equal(pairs, n == 2 ? 1 : n);
		assert_int_equal(walk(&dr_pattern_bisection, n, &pairs), 1);
		assert_int_equal(pairs, n / 2);
		assert_int_equal(walk(&dr_pattern_one_to_all, n, &pairs), n - 1);
		assert_int_equal(pairs, n - 1);
		assert_int_equal(walk(&dr_pattern_random, n, &pairs), DR_MIN(n - 1 + n % 2, 4u));
		assert_int_equal(pairs, DR_MIN(n - 1 + n % 2, 4u) * (n / 2));
	}
}

/* Ranks near each other share a switch as a rule: about an eighth of the pairs are within a sixteenth of all ranks. */
static void random_pairs_are_far_apart(void **state)
{
	enum { NODES = 1000 };
	struct dr_sweep_pair out[NODES / 2];
	unsigned near = 0;

	(void)state;
	for (uint32_t round = 0; round < 4; round++) {
		assert_int_equal(dr_pattern_random.round(NODES, round, out), NODES / 2);
		for (unsigned i = 0; i < NODES / 2; i++)
			near += DR_MAX(out[i].client, out[i].server) -
					DR_MIN(out[i].client, out[i].server) <
				NODES / 16;
	}
	assert_in_range(near, 160, 320);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_pairs_takes_one_round_less_than_nodes),
		cmocka_unit_test(other_patterns_have_their_pairs),
		cmocka_unit_test(random_pairs_are_far_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
