/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/testkit.h"

#include <sys/ioctl.h>

/* An owner that spins reads without taking the bytes out of the socket. */

enum { BUF = 4 << 20 };

static struct kit kit;
static uint8_t *buf[2];
static struct dr_mr *mr[2];

static int setup(void **state)
{
	kit_open(&kit, AF_INET, *state != NULL);
	for (int i = 0; i < 2; i++) {
		struct dr_memory m = { .len = BUF };

		m.base = buf[i] = dr_pages_alloc(BUF);
		assert_non_null(buf[i]);
		assert_int_equal(dr_tcp_ops.mr_reg(kit.rail[i], &m, &mr[i], NULL), 0);
	}
	for (size_t b = 0; b < BUF; b++)
		buf[0][b] = (uint8_t)(b * 31 >> 4);
	kit_up(&kit);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		kit_destroy(&kit, i);
		assert_int_equal(dr_tcp_ops.mr_dereg(kit.rail[i], mr[i]), 0);
		dr_pages_free(buf[i], BUF);
	}
	kit_close(&kit);
	return 0;
}

/* Bytes that the kernel still holds for this end. */
static int unread(int end)
{
	int n = -1;

	assert_int_equal(ioctl(tcp_path(kit.path[end])->base.po.fd, FIONREAD, &n), 0);
	return n;
}

/* Message seq of len bytes, at offset seq * len. */
static void message(uint64_t seq, uint32_t len)
{
	struct dr_part at = { .mr = mr[1], .off = seq * len, .len = len };
	struct dr_part from = { .mr = mr[0], .off = seq * len, .len = len };
	struct dr_credit credit;

	assert_int_equal(dr_path_post_recv(kit.path[1], 1, seq, &at, 1, 0), 0);
	dr_path_flush(kit.path[1], dr_now_ns());
	kit_until(&kit, dr_tcp_ops.credit(kit.path[0], 1, seq, &credit) == 0);
	assert_int_equal(dr_path_post_send(kit.path[0], 1, seq, 0, &from), 0);
	dr_path_flush(kit.path[0], dr_now_ns());
}

/* The kernel acknowledges inside the call that takes the bytes out of the socket. */
static void the_reply_leaves_before_the_kernel_acknowledges(void **state)
{
	int n = kit.poller ? 0 : DR_PATH_FRAME_HDR + 64;

	(void)state;
	for (uint64_t seq = 0; seq < 8; seq++) {
		message(seq, 64);
		kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == (int)seq + 1);
		assert_int_equal(unread(1), n);
		assert_int_equal(dr_path_post_ctrl(kit.path[1], "reply", 5), 0);
		dr_path_flush(kit.path[1], dr_now_ns());
		assert_int_equal(unread(1), n);
		kit_until(&kit, kit.sink[0].count[DR_EV_CTRL] == (int)seq + 1);
		assert_int_equal(unread(1), 0);
	}
	assert_memory_equal(buf[0], buf[1], 8 * 64);
	assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], 8);
}

/* One send, and two reads: the first for the bytes, the second to take them out. */
static void a_message_takes_three_system_calls_at_most(void **state)
{
	struct dr_path_stats before[2], after[2];

	(void)state;
	for (uint64_t seq = 0; seq < 8; seq++) {
		message(seq, 64);
		kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == (int)seq + 1);
	}
	for (int i = 0; i < 2; i++) {
		kit_step(&kit);
		dr_tcp_ops.stats(kit.path[i], &before[i]);
	}
	for (uint64_t seq = 8; seq < 16; seq++) {
		struct dr_part at = { .mr = mr[1], .off = seq * 64, .len = 64 };

		assert_int_equal(dr_path_post_recv(kit.path[1], 1, seq, &at, 1, 0), 0);
	}
	dr_path_flush(kit.path[1], dr_now_ns());
	dr_tcp_ops.stats(kit.path[1], &after[1]);
	assert_int_equal(after[1].syscalls - before[1].syscalls, 1); /* eight credits */
	while (unread(0) < 8 * (DR_PATH_FRAME_HDR + DR_PATH_CREDIT_PART))
		;
	kit_path_progress(&kit, 0, dr_now_ns());
	kit_path_progress(&kit, 0, dr_now_ns());
	for (uint64_t seq = 8; seq < 16; seq++) {
		struct dr_part from = { .mr = mr[0], .off = seq * 64, .len = 64 };

		dr_tcp_ops.stats(kit.path[0], &before[0]);
		dr_tcp_ops.stats(kit.path[1], &before[1]);
		assert_int_equal(dr_path_post_send(kit.path[0], 1, seq, 0, &from), 0);
		dr_path_flush(kit.path[0], dr_now_ns());
		while (unread(1) == 0)
			;
		kit_path_progress(&kit, 1, dr_now_ns());
		assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], (int)seq + 1);
		dr_tcp_ops.stats(kit.path[0], &after[0]);
		dr_tcp_ops.stats(kit.path[1], &after[1]);
		assert_int_equal(after[0].syscalls - before[0].syscalls, 1);
		assert_int_equal(after[1].syscalls - before[1].syscalls, 1);
		kit_path_progress(&kit, 1, dr_now_ns()); /* takes it out, and finds nothing */
		dr_tcp_ops.stats(kit.path[1], &after[1]);
		assert_int_equal(after[1].syscalls - before[1].syscalls, 3);
	}
}

/* The stage, and the rest straight into the buffer. */
static void bulk_is_taken_out_at_once(void **state)
{
	enum { LEN = 1 << 16 };
	struct dr_path_stats before, after;

	(void)state;
	for (uint64_t seq = 0; seq < 16; seq++) {
		message(seq, LEN);
		while (unread(1) <= TCP_STAGE)
			;
		dr_tcp_ops.stats(kit.path[1], &before);
		kit_path_progress(&kit, 1, dr_now_ns());
		dr_tcp_ops.stats(kit.path[1], &after);
		if (seq > 0)
			assert_int_equal(after.syscalls - before.syscalls, 2);
		kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == (int)seq + 1);
		assert_int_equal(unread(1), 0);
	}
	assert_memory_equal(buf[0], buf[1], 16 * LEN);
}

static void sizes_around_the_stage_arrive_whole(void **state)
{
	static const uint32_t sizes[] = { 1, TCP_STAGE - DR_PATH_FRAME_HDR - 1,
		TCP_STAGE - DR_PATH_FRAME_HDR, TCP_STAGE - DR_PATH_FRAME_HDR + 1, TCP_STAGE,
		TCP_STAGE + 1, 40000, 7 };
	int delivered = 0;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(sizes); i++)
		for (int k = 0; k < 4; k++) {
			memset(buf[1], 0xee, BUF);
			message((uint64_t)delivered, sizes[i]);
			kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == delivered + 1);
			assert_memory_equal(buf[0] + (uint64_t)delivered * sizes[i],
				buf[1] + (uint64_t)delivered * sizes[i], sizes[i]);
			delivered++;
		}
	assert_int_equal(kit.sink[1].count[DR_EV_FAILED], 0);
}

/* Closing a socket with unread bytes resets the connection. */
static void what_was_read_is_no_reason_for_a_reset(void **state)
{
	(void)state;
	assert_int_equal(dr_path_post_ctrl(kit.path[0], "last", 4), 0);
	dr_path_flush(kit.path[0], dr_now_ns());
	kit_until(&kit, kit.sink[1].count[DR_EV_CTRL] == 1);
	assert_int_equal(unread(1) > 0, !kit.poller);
	kit_destroy(&kit, 1);
	kit_until(&kit, kit.sink[0].count[DR_EV_FAILED] == 1);
	assert_non_null(strstr(kit.sink[0].text, "the peer closed the connection"));
}

#define BOTH(t)                                                                                    \
	cmocka_unit_test_setup_teardown(t, setup, teardown),                                       \
	{                                                                                          \
#t ", poller", t, setup, teardown, &polled                                         \
	}

int main(void)
{
	static int polled = 1;
	const struct CMUnitTest tests[] = {
		BOTH(the_reply_leaves_before_the_kernel_acknowledges),
		cmocka_unit_test_setup_teardown(
			a_message_takes_three_system_calls_at_most, setup, teardown),
		cmocka_unit_test_setup_teardown(bulk_is_taken_out_at_once, setup, teardown),
		BOTH(sizes_around_the_stage_arrive_whole),
		BOTH(what_was_read_is_no_reason_for_a_reset),
	};

	return cmocka_run_group_tests_name("tcp_spin", tests, NULL, NULL);
}
