/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* How the client tells the server a phase. */

static void a_phase_travels_whole(void **state)
{
	const struct dr_phase p = { .index = 7,
		.kind = DR_PHASE_BW,
		.message_bytes = 1 << 20,
		.chunk_bytes = 4096,
		.iters = 12,
		.warmup = 3,
		.verify = true,
		.rate_bits = 1.5e9,
		.gpu_mask = 1u << 31,
		.rail_mask = 5 };
	struct dr_phase q;
	json_t *j = dr_phase_to_json(&p);

	(void)state;
	assert_non_null(j);
	assert_int_equal(dr_phase_from_json(j, &q), 0);
	assert_int_equal(q.index, 7);
	assert_int_equal(q.kind, DR_PHASE_BW);
	assert_int_equal(q.message_bytes, 1 << 20);
	assert_int_equal(q.chunk_bytes, 4096);
	assert_int_equal(q.iters, 12);
	assert_int_equal(q.warmup, 3);
	assert_true(q.verify && q.rate_bits == p.rate_bits);
	assert_int_equal(q.gpu_mask, p.gpu_mask);
	assert_int_equal(q.rail_mask, 5);
	/* A client of an earlier version knows no rails to choose from. */
	json_object_del(j, "rail_mask");
	assert_int_equal(dr_phase_from_json(j, &q), 0);
	assert_int_equal(q.rail_mask, 0);
	json_decref(j);
}

static void bad_phases_are_errors(void **state)
{
	static const struct {
		const char *key;
		json_int_t value;
	} bad[] = { { "rail_mask", -1 }, { "rail_mask", 1ll << 32 }, { "gpu_mask", -1 },
		{ "gpu_mask", 1ll << 32 }, { "kind", 3 }, { "chunk_bytes", 0 } };
	const struct dr_phase p = { .message_bytes = 4096, .chunk_bytes = 4096 };
	struct dr_phase q;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		json_t *j = dr_phase_to_json(&p);

		json_object_set_new(j, bad[i].key, json_integer(bad[i].value));
		assert_int_equal(dr_phase_from_json(j, &q), -EPROTO);
		json_decref(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_phase_travels_whole),
		cmocka_unit_test(bad_phases_are_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
