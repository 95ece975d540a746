/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/frame.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void every_type_survives_the_wire(void **state)
{
	uint8_t buf[DR_FRAME_LEN], again[DR_FRAME_LEN];
	struct dr_frame out;

	(void)state;
	for (int t = 1; t < DR_FRAME_TYPES; t++) {
		struct dr_frame in = { .type = (enum dr_frame_type)t,
			.path = 1,
			.flags = DR_FRAME_FLAGS,
			.mask = 0xa5,
			.epoch = 0x01020304,
			.gen = 0xfffffffe,
			.err = -ENETDOWN,
			.seq = 0x1122334455667788 };

		dr_frame_encode(&in, buf);
		assert_int_equal(buf[4], 1); /* big endian */
		assert_int_equal(dr_frame_decode(buf, sizeof(buf), &out), 0);
		dr_frame_encode(&out, again);
		assert_memory_equal(buf, again, sizeof(buf));
		assert_int_equal(out.err, in.err);
		assert_int_equal(out.seq, in.seq);
		assert_string_not_equal(dr_frame_type_name(in.type), "?");
	}
}

static void nonsense_is_refused(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} bad[] = {
		{ 0, 0, "type 0" },
		{ 0, DR_FRAME_TYPES, "unknown type" },
		{ 1, 2, "path 2" },
		{ 2, 8, "unknown flag" },
		{ 12, 0x7f, "positive error" },
		{ 12, 0x80, "error below -4095" },
	};
	struct dr_frame in = { .type = DR_FRAME_ACK }, out;
	uint8_t buf[DR_FRAME_LEN + 1];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		dr_frame_encode(&in, buf);
		buf[bad[i].at] = bad[i].value;
		if (dr_frame_decode(buf, DR_FRAME_LEN, &out) != -EPROTO)
			fail_msg("%s was accepted", bad[i].what);
	}
	dr_frame_encode(&in, buf);
	for (size_t n = 0; n < DR_FRAME_LEN; n++)
		assert_int_equal(dr_frame_decode(buf, n, &out), -EPROTO);
	assert_int_equal(dr_frame_decode(buf, DR_FRAME_LEN + 1, &out), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_survives_the_wire),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
