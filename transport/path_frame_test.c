/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/path_frame.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void frames_parse_or_are_refused(void **state)
{
	static const struct {
		const char *what;
		struct dr_path_frame f;
		int err;
	} table[] = {
		{ "data", { .type = 1, .part = 7, .len = 1 << 20, .epoch = 3, .seq = 9 }, 0 },
		{ "empty data", { .type = 1 }, 0 },
		{ "longest data", { .type = 1, .len = DR_PATH_DATA_MAX }, 0 },
		{ "data too long", { .type = 1, .len = DR_PATH_DATA_MAX + 1u }, -EPROTO },
		{ "data, no such part", { .type = 1, .part = 8, .len = 1 }, -EPROTO },
		{ "data with a count", { .type = 1, .n = 1, .len = 1 }, -EPROTO },
		{ "data with a mask", { .type = 1, .skip = 1, .len = 1 }, -EPROTO },
		{ "credit", { .type = 2, .n = 2, .skip = 3, .len = 16, .seq = ~0ull }, 0 },
		{ "credit of eight", { .type = 2, .n = 8, .skip = 0xff, .len = 64 }, 0 },
		{ "credit of none", { .type = 2, .len = 0 }, -EPROTO },
		{ "credit of nine", { .type = 2, .n = 9, .len = 72 }, -EPROTO },
		{ "credit, mask too wide", { .type = 2, .n = 2, .skip = 4, .len = 16 }, -EPROTO },
		{ "credit, short", { .type = 2, .n = 2, .len = 15 }, -EPROTO },
		{ "credit, long", { .type = 2, .n = 2, .len = 24 }, -EPROTO },
		{ "credit with a part", { .type = 2, .part = 1, .n = 1, .len = 8 }, -EPROTO },
		{ "control", { .type = 3, .len = 64 }, 0 },
		{ "empty control", { .type = 3, .len = 0 }, -EPROTO },
		{ "long control", { .type = 3, .len = 65 }, -EPROTO },
		{ "control with epoch", { .type = 3, .len = 1, .epoch = 1 }, -EPROTO },
		{ "control with seq", { .type = 3, .len = 1, .seq = 1 }, -EPROTO },
		{ "datagram", { .type = 4, .len = 256 }, 0 },
		{ "long datagram", { .type = 4, .len = 257 }, -EPROTO },
		{ "datagram with a part", { .type = 4, .part = 1, .len = 1 }, -EPROTO },
		{ "type 0", { .type = 0, .len = 1 }, -EPROTO },
		{ "type 5", { .type = 5, .len = 1 }, -EPROTO },
	};
	uint8_t buf[DR_PATH_FRAME_HDR], again[DR_PATH_FRAME_HDR];
	struct dr_path_frame got;
	const char *why;
	size_t i;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(table); i++) {
		dr_path_frame_encode(&table[i].f, buf);
		memset(&got, 0, sizeof(got));
		why = NULL;
		if (dr_path_frame_parse(buf, sizeof(buf), &got, &why) != table[i].err)
			fail_msg("%s", table[i].what);
		assert_true(!table[i].err == !why);
		assert_int_equal(dr_path_frame_parse(buf, sizeof(buf) - 1, &got, &why), -EPROTO);
		/* Of bytes that differ in one, those are accepted that the encoder writes. */
		for (unsigned k = 0; k < sizeof(buf) * 256; k++) {
			uint8_t was = buf[k / 256];

			buf[k / 256] = (uint8_t)k;
			if (dr_path_frame_parse(buf, sizeof(buf), &got, NULL) == 0) {
				dr_path_frame_encode(&got, again);
				assert_memory_equal(again, buf, sizeof(buf));
			}
			buf[k / 256] = was;
		}
	}
}

static void credits_come_back_as_sent(void **state)
{
	struct dr_part parts[DR_PARTS_MAX] = { 0 };
	uint8_t buf[DR_PATH_QUEUE];
	struct dr_path_queue q = { .buf = buf };
	struct dr_path_frame f;

	(void)state;
	for (unsigned i = 0; i < DR_PARTS_MAX; i++)
		parts[i] = (struct dr_part){ .len = 1000 + i, .tag = 0xffffffffu - i };
	assert_int_equal(dr_path_queue_credit(&q, 3, 9, parts, DR_PARTS_MAX, 6), 0);
	assert_int_equal(dr_path_frame_parse(buf, DR_PATH_FRAME_HDR, &f, NULL), 0);
	assert_int_equal(q.end, DR_PATH_FRAME_HDR + f.len);
	const struct dr_credit c = dr_path_credit_read(&f, buf + DR_PATH_FRAME_HDR);
	assert_true(f.epoch == 3 && f.seq == 9 && c.n == DR_PARTS_MAX && c.todo == 0xf9);
	for (unsigned i = 0; i < DR_PARTS_MAX; i++)
		assert_true(c.cap[i] == parts[i].len && c.tag[i] == parts[i].tag);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_parse_or_are_refused),
		cmocka_unit_test(credits_come_back_as_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
