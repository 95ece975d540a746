/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/unpack.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Metadata of a plugin, which may say anything. */

static struct nn_unpack_meta meta;
static uint8_t bounce[64], out[32];
static const struct nn_unpack_handle handle = { &meta, bounce, 0 };

static void piece(unsigned slot, uint32_t src, uint32_t len, uint64_t dst)
{
	meta.mem[slot][meta.cnt[slot]++] = (struct nn_unpack_piece){ src, len, dst };
}

static int setup(void **state)
{
	(void)state;
	memset(&meta, 0, sizeof(meta));
	memset(out, 0xee, sizeof(out));
	for (unsigned i = 0; i < sizeof(bounce); i++)
		bounce[i] = (uint8_t)i;
	return 0;
}

static void pieces_come_together_in_any_order(void **state)
{
	(void)state;
	piece(3, 40, 4, 8);
	piece(3, 0, 8, 0);
	piece(3, 60, 4, 12);
	assert_int_equal(dr_nn_unpack(&handle, 3, NN_UNPACK_HOST, out, sizeof(out)), 16);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(out[i], i < 8 ? i : i < 12 ? 32 + i : 48 + i);
	assert_int_equal(out[16], 0xee);
	assert_int_equal(dr_nn_unpack(&handle, 2, NN_UNPACK_HOST, out, sizeof(out)), 0);
}

static void nothing_is_copied_with_none(void **state)
{
	(void)state;
	piece(0, 0, 8, 0);
	assert_int_equal(dr_nn_unpack(&handle, 0, NN_UNPACK_NONE, out, sizeof(out)), 8);
	assert_int_equal(out[0], 0xee);
}

static void pieces_beside_the_receive_are_refused(void **state)
{
	(void)state;
	piece(0, 0, 1, sizeof(out));
	assert_int_equal(dr_nn_unpack(&handle, 0, NN_UNPACK_HOST, out, sizeof(out)), -EPROTO);
	piece(1, 0, sizeof(out) + 1, 0);
	assert_int_equal(dr_nn_unpack(&handle, 1, NN_UNPACK_HOST, out, sizeof(out)), -EPROTO);
	piece(2, 0, 8, UINT64_MAX - 3);
	assert_int_equal(dr_nn_unpack(&handle, 2, NN_UNPACK_HOST, out, sizeof(out)), -EPROTO);
	/* Each fits, together they are more than the receive. */
	piece(4, 0, sizeof(out), 0);
	piece(4, 0, 1, 0);
	assert_int_equal(dr_nn_unpack(&handle, 4, NN_UNPACK_HOST, out, sizeof(out)), -EPROTO);
	meta.cnt[5] = NN_UNPACK_PIECES + 1;
	assert_int_equal(dr_nn_unpack(&handle, 5, NN_UNPACK_HOST, out, sizeof(out)), -EPROTO);
	piece(6, 0, sizeof(out), 0);
	assert_int_equal(dr_nn_unpack(&handle, 6, NN_UNPACK_HOST, out, sizeof(out)), sizeof(out));
}

static void settings_are_numbers_of_the_environment(void **state)
{
	uint32_t s[4];
	struct dr_err e;

	(void)state;
	assert_null(dr_nn_unpack_setting(4));
	for (unsigned i = 0; i < 4; i++)
		unsetenv(dr_nn_unpack_setting(i));
	dr_nn_unpack_settings(s, 4);
	assert_int_equal(s[0] | s[1] | s[2] | s[3], 0);
	assert_int_equal(dr_nn_unpack_check_env("x", &e), -EINVAL);
	assert_non_null(strstr(e.text, "NCCL_DYNAMIC_CHUNK_SIZE"));
	setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288", 1);
	setenv("NCCL_SOCKET_NTHREADS", "2", 1);
	dr_nn_unpack_settings(s, 4);
	assert_int_equal(s[0], 524288);
	assert_int_equal(s[2], 2);
	assert_int_equal(dr_nn_unpack_check_env("x", &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(pieces_come_together_in_any_order, setup),
		cmocka_unit_test_setup(nothing_is_copied_with_none, setup),
		cmocka_unit_test_setup(pieces_beside_the_receive_are_refused, setup),
		cmocka_unit_test(settings_are_numbers_of_the_environment),
	};
	return cmocka_run_group_tests_name("ncclnet unpack", tests, NULL, NULL);
}
