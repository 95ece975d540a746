/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/message.h"

#include "base/fields.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the ends of a session say to each other, as it stands in JSON. */

static json_t *written(const struct dr_phase *p)
{
	return dr_message_to_json(&(struct dr_message){ .kind = DR_MSG_PHASE, .phase = *p });
}

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
	struct dr_message m;
	const struct dr_phase *q = &m.phase;
	struct dr_err e;
	json_t *j = written(&p);

	(void)state;
	assert_non_null(j);
	assert_int_equal(dr_message_read(j, &m, &e), 0);
	assert_int_equal(q->index, 7);
	assert_int_equal(q->kind, DR_PHASE_BW);
	assert_int_equal(q->message_bytes, 1 << 20);
	assert_int_equal(q->chunk_bytes, 4096);
	assert_int_equal(q->iters, 12);
	assert_int_equal(q->warmup, 3);
	assert_true(q->verify && q->rate_bits == p.rate_bits);
	assert_int_equal(q->gpu_mask, p.gpu_mask);
	assert_int_equal(q->rail_mask, 5);
	json_decref(j);
}

static void bad_phases_are_errors(void **state)
{
	static const struct {
		const char *key;
		json_int_t value;
	} bad[] = { { "rail_mask", -1 }, { "rail_mask", 1ll << 32 }, { "gpu_mask", -1 },
		{ "gpu_mask", 1ll << 32 }, { "kind", 3 }, { "chunk_bytes", 0 },
		{ "chunk_bytes", 4097 }, { "message_bytes", (1ll << 40) + 1 }, { "iters", -1 },
		{ "rate_bits", -1 } };
	const struct dr_phase p = { .message_bytes = 4096, .chunk_bytes = 4096 };
	struct dr_message m;
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		json_t *j = written(&p);

		json_object_set_new(
			json_object_get(j, "phase"), bad[i].key, json_integer(bad[i].value));
		assert_int_equal(dr_message_read(j, &m, &e), -EPROTO);
		assert_non_null(strstr(e.text, bad[i].key));
		json_decref(j);
	}
}

/* The form is that of all versions: builds of several versions talk to each other. */
static void messages_have_one_form(void **state)
{
	static const struct {
		struct dr_message m;
		const char *json;
	} v[] = {
		{ { .kind = DR_MSG_MARK, .which = 1 }, "{\"which\":1,\"t\":\"mark\"}" },
		{ { .kind = DR_MSG_STOP }, "{\"t\":\"stop\"}" },
		{ { .kind = DR_MSG_COLLECT, .token = 7 }, "{\"token\":7,\"t\":\"collect\"}" },
		{ { .kind = DR_MSG_INJECT, .fault.id = 0x80000001u, .text = "close" },
			"{\"id\":2147483649,\"spec\":\"close\",\"t\":\"inject\"}" },
		{ { .kind = DR_MSG_UNDO, .fault.id = 3 }, "{\"id\":3,\"t\":\"undo\"}" },
		{ { .kind = DR_MSG_SWITCH }, "{\"t\":\"switch\"}" },
		{ { .kind = DR_MSG_GAPS, .index = 3, .since_ns = DR_UNSET },
			"{\"index\":3,\"which\":0,\"t\":\"gaps\"}" },
		{ { .kind = DR_MSG_GAPS, .index = 3, .which = 1, .since_ns = 50 },
			"{\"index\":3,\"which\":1,\"since_ns\":50,\"t\":\"gaps\"}" },
		{ { .kind = DR_MSG_ABORT, .status = 130 },
			"{\"status\":130,\"text\":\"\",\"t\":\"abort\"}" },
		{ { .kind = DR_MSG_EXPECT, .gpu = 1, .n_totals = 2, .totals = { 5, 0 } },
			"{\"gpu\":1,\"totals\":[5,0],\"t\":\"expect\"}" },
		{ { .kind = DR_MSG_EXPECT,
			  .gpu = 1,
			  .n_totals = 2,
			  .totals = { 5, 0 },
			  .n_bytes = 2,
			  .bytes = { 5000, 0 } },
			"{\"gpu\":1,\"totals\":[5,0],\"bytes\":[5000,0],\"t\":\"expect\"}" },
		{ { .kind = DR_MSG_FINISH }, "{\"t\":\"finish\"}" },
		{ { .kind = DR_MSG_UP }, "{\"t\":\"up\"}" },
		{ { .kind = DR_MSG_PHASE_OK, .index = 4 }, "{\"index\":4,\"t\":\"phase-ok\"}" },
		{ { .kind = DR_MSG_DONE,
			  .index = 4,
			  .cadence_p50_ns = 10,
			  .cadence_p99_ns = DR_UNSET },
			"{\"index\":4,\"cadence_p50_ns\":10,\"t\":\"done\"}" },
		{ { .kind = DR_MSG_PART }, "{\"token\":0,\"t\":\"part\"}" },
		{ { .kind = DR_MSG_FAULT, .fault = { 3, true, -EPERM, 5, 6, "no" } },
			"{\"id\":3,\"undo\":true,\"err\":-1,\"before_ns\":5,\"after_ns\":6,"
			"\"text\":\"no\",\"t\":\"fault\"}" },
		{ { .kind = DR_MSG_FAILED, .err = -ENETDOWN, .text = "gone" },
			"{\"err\":-100,\"text\":\"gone\",\"t\":\"failed\"}" },
	};
	struct dr_message m;
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(v); i++) {
		json_t *j = dr_message_to_json(&v[i].m), *again;
		char *text = json_dumps(j, JSON_COMPACT);

		assert_string_equal(text, v[i].json);
		assert_int_equal(dr_message_read(j, &m, &e), 0);
		assert_int_equal(m.kind, v[i].m.kind);
		again = dr_message_to_json(&m);
		assert_true(json_equal(j, again));
		json_decref(again);
		json_decref(j);
		free(text);
	}
}

static void bad_messages_are_errors(void **state)
{
	static const struct {
		const char *json;
		int rc;
		const char *says;
	} bad[] = { { "[]", -EPROTO, "without a type" }, { "{\"t\":7}", -EPROTO, "without a type" },
		{ "{\"t\":\"dance\"}", -ENOENT, "dance" },
		{ "{\"t\":\"mark\"}", -EPROTO, "mark.which: missing" },
		{ "{\"t\":\"mark\",\"which\":2}", -EPROTO, "2 is not an integer from 0 to 1" },
		{ "{\"t\":\"gaps\",\"index\":0,\"which\":2}", -EPROTO,
			"2 is not an integer from 0 to 1" },
		{ "{\"t\":\"expect\",\"gpu\":0,\"totals\":[-1]}", -EPROTO, "totals: -1" },
		{ "{\"t\":\"fault\",\"id\":1,\"undo\":true,\"err\":1}", -EPROTO, "fault.err: 1" },
		{ "{\"t\":\"phase\",\"phase\":{}}", -EPROTO, "phase.index: missing" } };
	struct dr_message m;
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		json_t *j = json_loads(bad[i].json, 0, NULL);

		assert_int_equal(dr_message_read(j, &m, &e), bad[i].rc);
		if (!strstr(e.text, bad[i].says))
			fail_msg("%s: %s", bad[i].json, e.text);
		json_decref(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_phase_travels_whole),
		cmocka_unit_test(bad_phases_are_errors),
		cmocka_unit_test(messages_have_one_form),
		cmocka_unit_test(bad_messages_are_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
