/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/sweep/pattern.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Runs the pattern on nodes of which one is bad and one is absent (UINT32_MAX: none). Counts the tests of the bad one. */
static uint32_t walk(uint32_t nodes, uint32_t bad, uint32_t absent, uint32_t *tests_of_bad)
{
	struct dr_pattern p;
	struct dr_sweep_pair *out = dr_calloc(nodes / 2, sizeof(*out));
	enum dr_sweep_outcome *last = dr_calloc(nodes / 2, sizeof(*last));
	uint32_t *busy = dr_calloc(nodes, sizeof(*busy)), rounds;
	uint8_t *met = dr_calloc((size_t)nodes * nodes, 1);

	*tests_of_bad = 0;
	assert_int_equal(dr_pattern_init(&p, &dr_pattern_suspects, nodes), 0);
	for (uint32_t n; (n = dr_pattern_next(&p, p.round ? last : NULL, out)) > 0;) {
		assert_true(n <= nodes / 2);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t a = out[i].client, b = out[i].server;

			assert_true(a < nodes && b < nodes && a != b);
			assert_true(busy[a] < p.round && busy[b] < p.round);
			busy[a] = busy[b] = p.round;
			assert_false(met[(size_t)a * nodes + b] || met[(size_t)b * nodes + a]);
			met[(size_t)a * nodes + b] = 1;
			last[i] = a == absent || b == absent ? DR_SWEEP_UNKNOWN
				  : a == bad || b == bad     ? DR_SWEEP_BAD
							     : DR_SWEEP_GOOD;
			*tests_of_bad += a == bad || b == bad;
		}
	}
	rounds = p.round;
	dr_pattern_fini(&p);
	dr_free(out);
	dr_free(last);
	dr_free(busy);
	dr_free(met);
	return rounds;
}

/* The bad node is measured with several partners, which is what the verdict needs, in far fewer rounds than all pairs. */
static void few_rounds_of_new_pairs(void **state)
{
	static const uint32_t NODES[] = { 2, 3, 5, 6, 15, 16, 64, 256, 1000 };
	uint32_t tests;

	(void)state;
	for (size_t i = 0; i < sizeof(NODES) / sizeof(*NODES); i++) {
		uint32_t n = NODES[i], log2 = 0;

		while (n >> log2 > 1)
			log2++;
		for (uint32_t bad = 0; bad < n && bad < 9; bad++) {
			assert_in_range(walk(n, bad, UINT32_MAX, &tests), 1, 3 + 2 + log2);
			assert_true(n < 6 || tests >= 2);
			assert_in_range(walk(n, bad, n - 1, &tests), 1, 3 + 2 + log2);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_rounds_of_new_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
