/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "library/request.h"

#include <errno.h>

static void a_put_is_read_as_it_was_written(void **state)
{
	uint8_t buf[DR_REQUEST_BYTES];
	size_t len = dr_request_put(buf);
	struct dr_request r;

	(void)state;
	for (unsigned i = 0; i < DR_REQUEST_ENTRIES_MAX; i++) {
		const struct dr_request_entry en = {
			.key = ~0ull - i, .off = 1ull << (i % 60), .len = i + 1, .lane = i % 8
		};

		len = dr_request_add(buf, len, &en);
	}
	assert_int_equal(dr_request_read(buf, len, 8, &r), 0);
	assert_int_equal(r.type, DR_REQUEST_PUT);
	assert_int_equal(r.n, DR_REQUEST_ENTRIES_MAX);
	for (unsigned i = 0; i < r.n; i++) {
		struct dr_request_entry en = dr_request_entry_at(buf, i);

		assert_true(en.key == ~0ull - i && en.off == 1ull << (i % 60));
		assert_true(en.len == i + 1 && en.lane == i % 8);
	}
}

static void a_note_is_read_as_it_was_written(void **state)
{
	static uint8_t text[DR_REQUEST_NOTE_MAX];
	uint8_t buf[DR_REQUEST_BYTES];
	struct dr_request r;
	size_t len;

	(void)state;
	memset(text, 0x5a, sizeof(text));
	len = dr_request_note(buf, text, sizeof(text));
	assert_int_equal(dr_request_read(buf, len, 1, &r), 0);
	assert_int_equal(r.type, DR_REQUEST_NOTE);
	assert_int_equal(r.n, sizeof(text));
	assert_memory_equal(r.note, text, sizeof(text));
	assert_int_equal(dr_request_read(buf, len - 1, 1, &r), -EPROTO);
	assert_int_equal(dr_request_read(buf, len + 1, 1, &r), -EPROTO);
}

static int with(uint32_t lanes, struct dr_request_entry en)
{
	uint8_t buf[DR_REQUEST_BYTES];
	size_t len = dr_request_add(buf, dr_request_put(buf), &en);
	struct dr_request r;

	return dr_request_read(buf, len, lanes, &r);
}

static void wrong_bytes_are_refused(void **state)
{
	uint8_t buf[DR_REQUEST_BYTES];
	struct dr_request r;
	size_t len;

	(void)state;
	assert_int_equal(with(2, (struct dr_request_entry){ 1, 0, 1, 1 }), 0);
	assert_int_equal(with(1, (struct dr_request_entry){ 1, 0, 1, 1 }), -EPROTO);
	assert_int_equal(with(1, (struct dr_request_entry){ 1, 0, 0, 0 }), -EPROTO);
	assert_int_equal(with(1, (struct dr_request_entry){ 1, 0, DR_REQUEST_CHUNK_MAX, 0 }), 0);
	assert_int_equal(
		with(1, (struct dr_request_entry){ 1, 0, DR_REQUEST_CHUNK_MAX + 1, 0 }), -EPROTO);
	assert_int_equal(with(1, (struct dr_request_entry){ 1, UINT64_MAX, 1, 0 }), -EPROTO);
	len = dr_request_put(buf);
	assert_int_equal(dr_request_read(buf, len, 1, &r), -EPROTO);
	len = dr_request_add(buf, len, &(struct dr_request_entry){ 1, 0, 1, 0 });
	for (size_t short_len = 0; short_len < len; short_len++)
		assert_int_equal(dr_request_read(buf, short_len, 1, &r), -EPROTO);
	assert_int_equal(dr_request_read(buf, len + 1, 1, &r), -EPROTO);
	buf[0] = 3;
	assert_int_equal(dr_request_read(buf, len, 1, &r), -EPROTO);
	buf[0] = 1;
	buf[1] = 1;
	assert_int_equal(dr_request_read(buf, len, 1, &r), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_put_is_read_as_it_was_written),
		cmocka_unit_test(a_note_is_read_as_it_was_written),
		cmocka_unit_test(wrong_bytes_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
