/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/wire.h"

static void written_bytes_are_big_endian_and_read_back(void **state)
{
	static const uint8_t expected[] = { 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09,
		0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 'h', 'i' };
	uint8_t buf[sizeof(expected)], u8;
	struct dr_wbuf w;
	struct dr_rbuf r;
	const void *view;
	uint16_t u16;
	uint32_t u32;
	uint64_t u64;
	char c;

	(void)state;
	dr_wbuf_init(&w, buf, sizeof(buf));
	assert_int_equal(dr_wbuf_u8(&w, 0x01), 0);
	assert_int_equal(dr_wbuf_u16(&w, 0x0203), 0);
	assert_int_equal(dr_wbuf_u32(&w, 0x04050607), 0);
	assert_int_equal(dr_wbuf_u64(&w, 0x08090a0b0c0d0e0f), 0);
	assert_int_equal(dr_wbuf_bytes(&w, "hi", 2), 0);
	assert_int_equal(w.len, sizeof(expected));
	assert_memory_equal(buf, expected, sizeof(expected));

	dr_rbuf_init(&r, buf, sizeof(buf));
	assert_int_equal(dr_rbuf_u8(&r, &u8), 0);
	assert_int_equal(u8, 1);
	assert_int_equal(dr_rbuf_u16(&r, &u16), 0);
	assert_int_equal(u16, 0x0203);
	assert_int_equal(dr_rbuf_u32(&r, &u32), 0);
	assert_int_equal(u32, 0x04050607);
	assert_int_equal(dr_rbuf_u64(&r, &u64), 0);
	assert_int_equal(u64, 0x08090a0b0c0d0e0f);
	assert_int_equal(dr_rbuf_view(&r, &view, 1), 0);
	assert_ptr_equal(view, buf + 15);
	assert_int_equal(dr_rbuf_done(&r), -EPROTO);
	assert_int_equal(dr_rbuf_left(&r), 1);
	assert_int_equal(dr_rbuf_bytes(&r, &c, 1), 0);
	assert_int_equal(c, 'i');
	assert_int_equal(dr_rbuf_done(&r), 0);
}

static void a_read_that_does_not_fit_stays_failed(void **state)
{
	static const uint8_t data[3] = { 1, 2, 3 };
	struct dr_rbuf r;
	const void *view = NULL;
	uint32_t u32 = 7;
	uint8_t u8 = 7;

	(void)state;
	dr_rbuf_init(&r, data, sizeof(data));
	assert_int_equal(dr_rbuf_u32(&r, &u32), -EMSGSIZE);
	assert_int_equal(u32, 7);
	assert_int_equal(r.pos, 0);
	assert_int_equal(dr_rbuf_u8(&r, &u8), -EMSGSIZE);
	assert_int_equal(u8, 7);
	assert_int_equal(dr_rbuf_left(&r), 0);
	assert_int_equal(dr_rbuf_done(&r), -EPROTO);

	dr_rbuf_init(&r, data, sizeof(data));
	assert_int_equal(dr_rbuf_u8(&r, &u8), 0);
	assert_int_equal(dr_rbuf_view(&r, &view, SIZE_MAX), -EMSGSIZE);
	assert_null(view);
}

static void a_write_that_does_not_fit_stays_failed(void **state)
{
	uint8_t buf[3] = { 9, 9, 9 };
	struct dr_wbuf w;

	(void)state;
	dr_wbuf_init(&w, buf, sizeof(buf));
	assert_int_equal(dr_wbuf_u16(&w, 0x0102), 0);
	assert_int_equal(dr_wbuf_u16(&w, 0x0304), -EMSGSIZE);
	assert_int_equal(dr_wbuf_u8(&w, 5), -EMSGSIZE);
	assert_int_equal(w.len, 2);
	assert_true(w.failed);
	assert_int_equal(buf[2], 9);
}

static void nothing_is_a_message_too(void **state)
{
	struct dr_rbuf r;
	struct dr_wbuf w;
	const void *view = NULL;
	uint8_t u8;

	(void)state;
	dr_rbuf_init(&r, NULL, 0);
	assert_int_equal(dr_rbuf_bytes(&r, NULL, 0), 0);
	assert_int_equal(dr_rbuf_view(&r, &view, 0), 0);
	assert_non_null(view);
	assert_int_equal(dr_rbuf_done(&r), 0);
	assert_int_equal(dr_rbuf_u8(&r, &u8), -EMSGSIZE);
	dr_wbuf_init(&w, NULL, 0);
	assert_int_equal(dr_wbuf_bytes(&w, NULL, 0), 0);
	assert_int_equal(dr_wbuf_u8(&w, 1), -EMSGSIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_bytes_are_big_endian_and_read_back),
		cmocka_unit_test(a_read_that_does_not_fit_stays_failed),
		cmocka_unit_test(a_write_that_does_not_fit_stays_failed),
		cmocka_unit_test(nothing_is_a_message_too),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
