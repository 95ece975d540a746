/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* What the peer's bytes may be: each single byte changed, each length. */

static const uint8_t key[DR_KEY_LEN] = "0123456789abcde", one[NN_NONCE_LEN] = "one",
		     two[NN_NONCE_LEN] = "two";
static const struct nn_hello_key there = { key, one, two };

static void hello_is_bound(void **state)
{
	struct nn_hello h = { .id = { .channel = 7, .gen = 3, .index = 1, .sender = true },
		.role = NN_DATA },
			got;
	struct nn_hello_key back = { key, two, one }, other = { one, one, two },
			    elsewhere = { key, one, one };
	uint8_t buf[NN_HELLO_LEN + 1] = { 0 };
	uint8_t wrong_key[DR_KEY_LEN] = { 0 };
	const char *why;

	(void)state;
	other.key = wrong_key;
	dr_nn_hello_encode(&h, &there, buf);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why), 0);
	assert_int_equal(got.id.channel, 7);
	assert_int_equal(got.id.gen, 3);
	assert_int_equal(got.id.index, 1);
	assert_true(got.id.sender && !got.id.connector);
	assert_int_equal(got.role, NN_DATA);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &back, &got, &why), -EPERM);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &other, &got, &why), -EPERM);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &elsewhere, &got, &why), -EPERM);
	for (size_t n = 0; n <= sizeof(buf); n++)
		if (n != NN_HELLO_LEN)
			assert_int_equal(dr_nn_hello_parse(buf, n, &there, &got, &why), -EPROTO);
	for (size_t i = 0; i < NN_HELLO_LEN; i++) {
		buf[i] ^= 1;
		assert_true(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why) < 0);
		buf[i] ^= 1;
	}
	/* A MAC that is right does not make it sensible. */
	h.id.index = DR_PATHS;
	dr_nn_hello_encode(&h, &there, buf);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why), -EPROTO);
	h.id.index = 0;
	h.id.sender = false;
	dr_nn_hello_encode(&h, &there, buf);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why), -EPROTO);
}

static void rail_handle(void **state)
{
	struct nn_rail_handle h = { .plugin = 0x1234, .nonce = "nonce" }, got;
	uint8_t buf[DR_HANDLE_MAX + 1] = { 0 };
	const char *why = NULL;

	(void)state;
	memset(h.listen, 0x5a, sizeof(h.listen));
	assert_int_equal(dr_nn_rail_handle_encode(&h, buf, sizeof(buf)), NN_RAIL_HANDLE_LEN);
	assert_in_range(NN_RAIL_HANDLE_LEN, 1, DR_HANDLE_MAX);
	assert_int_equal(dr_nn_rail_handle_encode(&h, buf, NN_RAIL_HANDLE_LEN - 1), -EMSGSIZE);
	assert_int_equal(dr_nn_rail_handle_parse(buf, NN_RAIL_HANDLE_LEN, &got, &why), 0);
	assert_memory_equal(&got, &h, sizeof(h));
	for (size_t n = 0; n <= sizeof(buf); n++)
		if (n != NN_RAIL_HANDLE_LEN)
			assert_int_equal(dr_nn_rail_handle_parse(buf, n, &got, &why), -EPROTO);
	for (size_t i = 0; i < 6; i++) {
		buf[i] ^= 0x80;
		why = NULL;
		assert_int_equal(
			dr_nn_rail_handle_parse(buf, NN_RAIL_HANDLE_LEN, &got, &why), -EPROTO);
		assert_non_null(why);
		buf[i] ^= 0x80;
	}
}

/* A header that is accepted is the one that its encoder writes, and announces a payload that fits. */
static void frames(void **state)
{
	struct nn_frame credit = { .type = NN_FRAME_CREDIT,
		.n = 3,
		.skip = 5,
		.len = 3 * NN_CREDIT_PART_LEN,
		.epoch = 9,
		.seq = 1ull << 40 };
	struct nn_frame ctrl = { .type = NN_FRAME_CTRL, .len = DR_CTRL_MAX }, got;
	const struct nn_frame *all[] = { &credit, &ctrl };
	uint8_t buf[NN_FRAME_HDR + 1], again[NN_FRAME_HDR];

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		dr_nn_frame_encode(all[k], buf);
		assert_int_equal(dr_nn_frame_parse(buf, NN_FRAME_HDR, &got, NULL), 0);
		assert_int_equal(got.seq, all[k]->seq);
		for (size_t n = 0; n <= sizeof(buf); n++)
			if (n != NN_FRAME_HDR)
				assert_int_equal(dr_nn_frame_parse(buf, n, &got, NULL), -EPROTO);
		for (unsigned i = 0; i < NN_FRAME_HDR * 256; i++) {
			uint8_t was = buf[i / 256];

			buf[i / 256] = (uint8_t)i;
			if (dr_nn_frame_parse(buf, NN_FRAME_HDR, &got, NULL) == 0) {
				dr_nn_frame_encode(&got, again);
				assert_memory_equal(buf, again, NN_FRAME_HDR);
				assert_in_range(got.len, 1, NN_SMALL_MAX);
			}
			buf[i / 256] = was;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_is_bound),
		cmocka_unit_test(rail_handle),
		cmocka_unit_test(frames),
	};
	return cmocka_run_group_tests_name("ncclnet wire", tests, NULL, NULL);
}
