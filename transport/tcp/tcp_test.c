/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/testkit.h"

#include <linux/tcp.h>
#include <poll.h>

#include "base/rng.h"

enum { BUF = 4 << 20 };

static struct kit kit;
static uint8_t *buf[2];
static struct dr_mr *mr[2];

static int setup_family(void **state, int family)
{
	int i;

	kit_open(&kit, family, *state != NULL);
	for (i = 0; i < 2; i++) {
		buf[i] = dr_pages_alloc(BUF);
		assert_non_null(buf[i]);
		assert_int_equal(
			dr_tcp_ops.mr_reg(kit.rail[i],
				&(struct dr_memory){ .base = buf[i], .len = BUF }, &mr[i], NULL),
			0);
	}
	kit_up(&kit);
	*state = &kit;
	return 0;
}

static int setup(void **state)
{
	return setup_family(state, AF_INET);
}

static int setup6(void **state)
{
	return setup_family(state, AF_INET6);
}

static int teardown(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		kit_destroy(&kit, i);
		assert_int_equal(dr_tcp_ops.mr_dereg(kit.rail[i], mr[i]), 0);
		dr_pages_free(buf[i], BUF);
	}
	kit_close(&kit);
	return 0;
}

static struct dr_part part(int end, uint64_t off, uint32_t len)
{
	return (struct dr_part){ .mr = mr[end], .off = off, .len = len, .tag = (uint32_t)off };
}

static int post_recv1(uint32_t epoch, uint64_t seq, uint64_t off, uint32_t cap)
{
	struct dr_part pt = part(1, off, cap);
	int err = dr_path_post_recv(kit.path[1], epoch, seq, &pt, 1, 0);

	if (!err)
		dr_path_flush(kit.path[1], dr_now_ns());
	return err;
}

static int post_send1(uint32_t epoch, uint64_t seq, unsigned i, uint64_t off, uint32_t len)
{
	struct dr_part pt = part(0, off, len);
	int err = dr_path_post_send(kit.path[0], epoch, seq, i, &pt);

	if (!err)
		dr_path_flush(kit.path[0], dr_now_ns());
	return err;
}

static void wait_credit(uint32_t epoch, uint64_t seq)
{
	struct dr_credit credit;

	kit_until(&kit, dr_tcp_ops.credit(kit.path[0], epoch, seq, &credit) == 0);
}

static void fill(uint64_t seed)
{
	struct dr_rng rng;
	size_t i;

	dr_rng_seed(&rng, seed);
	for (i = 0; i < BUF; i += 8) {
		uint64_t v = dr_rng_u64(&rng);

		memcpy(buf[0] + i, &v, 8);
	}
}

/* ---- transfer --------------------------------------------------------------------------------- */

/* A stream of messages of one size after another, several under way, each checked where it lands. */
static void stream(const uint32_t *sizes, size_t n_sizes, unsigned messages, unsigned window)
{
	uint32_t slot = BUF / window, len;
	uint64_t posted = 0, sent = 0, checked = 0;

	fill(messages);
	while (checked < messages) {
		for (; posted < messages && posted - checked < window; posted++)
			assert_int_equal(post_recv1(1, posted, posted % window * slot, slot), 0);
		while (sent < posted) {
			len = sizes[sent % n_sizes];
			assert_true(len <= slot);
			if (post_send1(1, sent, 0, sent % window * slot, len))
				break;
			sent++;
		}
		kit_step(&kit);
		while (kit.sink[1].count[DR_EV_DELIVERED] > (int)checked) {
			len = sizes[checked % n_sizes];
			assert_memory_equal(buf[1] + checked % window * slot,
				buf[0] + checked % window * slot, len);
			memset(buf[1] + checked % window * slot, 0, len);
			checked++;
		}
	}
	kit_until(&kit, kit.sink[0].count[DR_EV_SENT] == (int)messages);
	assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], messages);
	assert_int_equal(kit.sink[1].count[DR_EV_ARRIVING], 1);
}

static void mixed_sizes_arrive_whole(void **state)
{
	static const uint32_t sizes[] = { 1, 64, 0, 4096, 16364, 16384, 16385, 65536, 200000, 20,
		524288 };
	struct dr_path_stats st[2];
	uint64_t total = 0;
	int i;

	(void)state;
	stream(sizes, DR_ARRAY_LEN(sizes), 600, 8);
	for (i = 0; i < 600; i++)
		total += sizes[i % (int)DR_ARRAY_LEN(sizes)];
	for (i = 0; i < 2; i++)
		dr_tcp_ops.stats(kit.path[i], &st[i]);
	assert_int_equal(st[0].tx_bytes, total);
	assert_int_equal(st[1].rx_bytes, total);
	assert_int_equal(st[0].tx_wire - TCP_HELLO_LEN, total + 600 * DR_PATH_FRAME_HDR);
	assert_int_equal(st[0].rx_wire, st[1].tx_wire + TCP_CHALLENGE_LEN); /* the rail's */
	assert_int_equal(st[1].rx_wire + TCP_HELLO_LEN, st[0].tx_wire);
	assert_true(kit.path[1]->rx_last_ns > 0 && kit.path[0]->tx_last_ns > 0);
	assert_true(st[0].rtt_ns > 0 && st[0].peer_ack_age_ns >= 0);
	assert_true(st[0].acked_bytes + st[0].unacked_bytes >= total);
}

static void small_messages_share_system_calls(void **state)
{
	static const uint32_t sizes[] = { 64 };
	struct dr_path_stats before, after;
	struct dr_part pt;
	unsigned i, n = 64;

	(void)state;
	for (i = 0; i < n; i++)
		assert_int_equal(post_recv1(1, i, i * 64, 64), 0);
	wait_credit(1, n - 1);
	dr_tcp_ops.stats(kit.path[0], &before);
	for (i = 0; i < n; i++) {
		pt = part(0, i * 64, sizes[0]);
		assert_int_equal(dr_path_post_send(kit.path[0], 1, i, 0, &pt), 0);
	}
	assert_int_equal(dr_path_post_send(kit.path[0], 1, n, 0, &pt), -EAGAIN);
	dr_path_flush(kit.path[0], dr_now_ns());
	dr_tcp_ops.stats(kit.path[0], &after);
	assert_int_equal(after.syscalls - before.syscalls, 1);
	assert_int_equal(after.tx_bytes - before.tx_bytes, n * 64);
	dr_tcp_ops.stats(kit.path[1], &before);
	kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == (int)n);
	dr_tcp_ops.stats(kit.path[1], &after);
	assert_in_range(after.syscalls - before.syscalls, 1, 4);
}

static void nothing_is_sent_without_credit(void **state)
{
	struct dr_part pt = part(0, 0, 10), out = part(0, BUF - 5, 10);
	struct dr_credit credit;
	int i;

	(void)state;
	assert_int_equal(dr_path_post_send(kit.path[0], 1, 0, 0, &pt), -EAGAIN);
	assert_int_equal(dr_tcp_ops.credit(kit.path[0], 1, 0, &credit), -EAGAIN);
	assert_int_equal(post_recv1(1, 0, 0, 9), 0);
	kit_until(&kit, kit.sink[0].count[DR_EV_CREDIT] == 1);
	assert_int_equal(dr_path_post_send(kit.path[0], 1, 0, 0, &pt), -EMSGSIZE);
	assert_int_equal(dr_path_post_send(kit.path[0], 1, 0, 0, &out), -EINVAL);
	assert_int_equal(dr_path_post_send(kit.path[0], 2, 0, 0, &pt), -EAGAIN);
	assert_int_equal(dr_path_post_send(kit.path[0], 1, 1, 0, &pt), -EAGAIN);
	assert_int_equal(post_send1(1, 0, 0, 0, 9), 0);
	assert_int_equal(post_send1(1, 0, 0, 0, 9), -EINVAL);
	kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == 1);
	for (i = 1; i <= DR_PATH_RING; i++)
		assert_int_equal(post_recv1(1, (uint64_t)i, 0, 9), 0);
	assert_int_equal(post_recv1(1, DR_PATH_RING + 1, 0, 9), -EAGAIN);
}

/* Neither posts nor progress put anything on the wire: flush does. */
static void posts_wait_for_flush(void **state)
{
	struct dr_path_stats before, after;
	struct dr_part pt = part(1, 0, 10);
	int i;

	(void)state;
	dr_tcp_ops.stats(kit.path[1], &before);
	assert_int_equal(dr_path_post_recv(kit.path[1], 1, 0, &pt, 1, 0), 0);
	assert_int_equal(dr_path_post_ctrl(kit.path[1], "x", 1), 0);
	for (i = 0; i < 3; i++)
		kit_path_progress(&kit, 1, dr_now_ns());
	dr_tcp_ops.stats(kit.path[1], &after);
	assert_int_equal(before.tx_wire, after.tx_wire);
	dr_path_flush(kit.path[1], dr_now_ns());
	kit_until(&kit, kit.sink[0].count[DR_EV_CTRL] == 1);
	assert_int_equal(kit.sink[0].ev[kit.sink[0].n - 2].kind, DR_EV_CREDIT);
}

/* 128 MiB are more than the sockets take while the receiver does not read. */
static void post_more_than_fits(void)
{
	int i;

	for (i = 0; i < 32; i++)
		assert_int_equal(post_recv1(1, (uint64_t)i, 0, BUF), 0);
	wait_credit(1, 31);
	for (i = 0; i < 32; i++)
		assert_int_equal(post_send1(1, (uint64_t)i, 0, 0, BUF), 0);
}

static void control_frames_pass_bulk_that_waits(void **state)
{
	uint8_t frame[DR_CTRL_MAX] = { 0 };
	int i, n = 0, sent = 0;

	(void)state;
	fill(9);
	post_more_than_fits();
	while (sent < 600) {
		frame[0] = (uint8_t)sent;
		frame[1] = (uint8_t)(sent >> 8);
		if (dr_path_post_ctrl(kit.path[0], frame, 1 + (size_t)sent % DR_CTRL_MAX))
			break;
		sent++;
	}
	assert_int_equal(sent, 600);
	dr_path_flush(kit.path[0], dr_now_ns());
	assert_int_equal(dr_path_post_ctrl(kit.path[1], "back", 4), 0);
	dr_path_flush(kit.path[1], dr_now_ns());
	kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == 32);
	assert_int_equal(kit.sink[1].count[DR_EV_CTRL], sent);
	assert_int_equal(kit.sink[0].count[DR_EV_CTRL], 1);
	for (i = 0; i < kit.sink[1].n; i++) {
		if (kit.sink[1].ev[i].kind == DR_EV_CTRL)
			assert_int_equal(kit.sink[1].ev[i].len, 1 + n++ % DR_CTRL_MAX);
		else if (n == 0 && kit.sink[1].ev[i].kind == DR_EV_DELIVERED)
			assert_true(kit.sink[1].ev[i].seq < 30);
	}
	assert_memory_equal(buf[0], buf[1], BUF);
}

static void the_control_queue_is_bounded(void **state)
{
	uint8_t frame[DR_CTRL_MAX] = { 0 };
	int n = 0, err;

	(void)state;
	while ((err = dr_path_post_ctrl(kit.path[0], frame, sizeof(frame))) == 0)
		n++;
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(n, DR_PATH_QUEUE / (DR_PATH_FRAME_HDR + DR_CTRL_MAX));
	dr_path_flush(kit.path[0], dr_now_ns());
	kit_until(&kit, kit.sink[1].count[DR_EV_CTRL] == n);
	assert_int_equal(dr_path_post_ctrl(kit.path[0], frame, sizeof(frame)), 0);
}

/* The kernel took some of the queue. What follows moves up, and what was not flushed stays so. */
static void the_control_queue_moves_up(void **state)
{
	enum { LEN = DR_PATH_FRAME_HDR + DR_CTRL_MAX, TAKEN = 2 * LEN + 5, FLUSHED = 3 * LEN };
	struct tcp_tx *t = &tcp_path(kit.path[0])->tx;
	uint8_t frame[DR_CTRL_MAX] = { 0 }, *kept;
	size_t end;

	(void)state;
	for (uint8_t n = 0; dr_path_post_ctrl(kit.path[0], frame, sizeof(frame)) == 0; n++)
		frame[0] = n;
	end = t->ctrl.end;
	t->ctrl.at = TAKEN;
	t->ctrl.flushed = FLUSHED;
	kept = dr_calloc(1, end - TAKEN);
	assert_non_null(kept);
	memcpy(kept, t->ctrl.buf + TAKEN, end - TAKEN);
	assert_int_equal(dr_path_post_ctrl(kit.path[0], frame, sizeof(frame)), 0);
	assert_int_equal(t->ctrl.at, 0);
	assert_int_equal(t->ctrl.flushed, FLUSHED - TAKEN);
	assert_int_equal(t->ctrl.end, end - TAKEN + LEN);
	assert_memory_equal(t->ctrl.buf, kept, end - TAKEN);
	dr_free(kept);
}

/* The peer's process takes nothing for some seconds and its kernel shuts the window: the probes of it are
 * answered, however rare they are. */
static void a_shut_window_is_no_silence(void **state)
{
	uint8_t frame[DR_CTRL_MAX] = { 0 };
	int64_t end_ns, oldest_ns = 0;
	struct dr_path_stats st;

	(void)state;
	while (!tcp_path(kit.path[0])->tx.blocked) {
		(void)dr_path_post_ctrl(kit.path[0], frame, sizeof(frame));
		dr_path_flush(kit.path[0], dr_now_ns());
	}
	dr_tcp_ops.stats(kit.path[0], &st);
	assert_true(st.unacked_bytes > 0);
	for (end_ns = dr_now_ns() + 2 * DR_NS_PER_S; dr_now_ns() < end_ns;) {
		(void)poll(NULL, 0, 10);
		dr_tcp_ops.stats(kit.path[0], &st);
		assert_true(st.unanswered < 3); /* one may be on its way, one late on a busy host */
		oldest_ns = DR_MAX(oldest_ns, st.peer_ack_age_ns);
	}
	assert_true(st.window_shut);
	assert_true(oldest_ns > 300 * DR_NS_PER_MS);
	kit_until(&kit, tcp_path(kit.path[0])->tx.ctrl.at == tcp_path(kit.path[0])->tx.ctrl.end);
	dr_tcp_ops.stats(kit.path[0], &st);
	assert_false(st.window_shut);
}

/* ---- what the kernel says ---- */

static void control_frames_are_no_progress_of_the_data(void **state)
{
	static const uint32_t sizes[] = { 4096 };
	uint8_t frame[DR_CTRL_MAX] = { 0 };
	struct dr_path_stats before, st;

	(void)state;
	stream(sizes, 1, 8, 4);
	do {
		kit_step(&kit);
		dr_tcp_ops.stats(kit.path[0], &before);
	} while (before.unacked_bytes > 0);
	assert_true(before.acked_bytes >= 8 * 4096);
	assert_int_equal(dr_path_post_ctrl(kit.path[0], frame, sizeof(frame)), 0);
	dr_path_flush(kit.path[0], dr_now_ns());
	do {
		kit_step(&kit);
		dr_tcp_ops.stats(kit.path[0], &st);
	} while (st.unacked_bytes > 0);
	assert_true(st.tx_wire > before.tx_wire);
	assert_int_equal(st.acked_bytes, before.acked_bytes);
}

/* An IP packet with a datagram of this size is as long as one with a full segment. */
static void a_padded_datagram_is_as_long_as_a_segment(void **state)
{
	struct dr_path_stats st;
	struct tcp_info ti;
	socklen_t len = sizeof(ti);
	uint32_t tcp;

	(void)state;
	assert_int_equal(
		getsockopt(tcp_path(kit.path[0])->base.po.fd, IPPROTO_TCP, TCP_INFO, &ti, &len), 0);
	dr_tcp_ops.stats(kit.path[0], &st);
	tcp = 20 + (ti.tcpi_options & TCPI_OPT_TIMESTAMPS ? 12 : 0) + ti.tcpi_snd_mss;
	assert_int_equal(st.segment_bytes, DR_MIN(tcp - 8, 65507u));
}

/* The padding is sent, and the reader learns the size of the whole. */
static void padded_datagrams_have_their_size(void **state)
{
	static const uint32_t sizes[] = { 5, 1472, 9000 };

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(sizes); i++) {
		dr_tcp_ops.rail_padded(kit.rail[0], "beat", 4, sizes[i]);
		kit_until(&kit, kit.rail_sink[1].count[DR_EV_DGRAM] == (int)i + 1);
		assert_int_equal(kit_last(&kit.rail_sink[1], DR_EV_DGRAM)->size, sizes[i]);
		assert_int_equal(kit_last(&kit.rail_sink[1], DR_EV_DGRAM)->len,
			DR_MIN(sizes[i], (uint32_t)DR_DGRAM_MAX));
		assert_memory_equal(kit.rail_sink[1].bytes, "beat", 4);
	}
}

/* ---- fences ----------------------------------------------------------------------------------- */

static void a_fence_resets_and_leaves_buffers_alone(void **state)
{
	struct dr_part pt = part(1, 0, 8);
	size_t i;

	(void)state;
	memset(buf[0], 1, BUF);
	assert_int_equal(post_recv1(1, 0, 0, BUF), 0);
	assert_int_equal(post_recv1(1, 1, 0, BUF), 0);
	wait_credit(1, 1);
	assert_int_equal(post_send1(1, 0, 0, 0, BUF), 0);
	assert_int_equal(post_send1(1, 1, 0, 0, BUF), 0);
	kit_until(&kit, kit.sink[1].count[DR_EV_ARRIVING]);
	dr_tcp_ops.fence(kit.path[1], dr_now_ns());
	dr_tcp_ops.fence(kit.path[1], dr_now_ns());
	memset(buf[1], 0xcc, BUF);
	kit_until(&kit, kit.sink[1].count[DR_EV_FENCED] && kit.sink[0].count[DR_EV_FAILED]);
	assert_int_equal(kit_last(&kit.sink[0], DR_EV_FAILED)->scope, DR_SCOPE_PATH);
	dr_tcp_ops.fence(kit.path[0], dr_now_ns());
	kit_until(&kit, kit.sink[0].count[DR_EV_FENCED]);
	for (i = 0; i < 5; i++) {
		kit_path_progress(&kit, 0, dr_now_ns());
		kit_path_progress(&kit, 1, dr_now_ns());
	}
	for (i = 0; i < BUF; i++)
		if (buf[1][i] != 0xcc)
			fail_msg("byte %zu was written after the fence", i);
	for (i = 0; i < 2; i++) {
		assert_int_equal(kit.sink[i].count[DR_EV_FENCED], 1);
		assert_int_equal(
			kit_last(&kit.sink[i], DR_EV_FENCED), &kit.sink[i].ev[kit.sink[i].n - 1]);
	}
	assert_int_equal(dr_path_post_recv(kit.path[1], 1, 2, &pt, 1, 0), -ENOTCONN);
}

/* What the kernel has taken and not sent reaches nobody. */
static void a_fence_drops_what_the_kernel_holds(void **state)
{
	struct dr_path_stats st[2];

	(void)state;
	post_more_than_fits();
	dr_tcp_ops.fence(kit.path[0], DR_NEVER);
	kit_path_progress(&kit, 0, dr_now_ns());
	assert_int_equal(kit.sink[0].count[DR_EV_FENCED], 1);
	kit_until(&kit, kit.sink[1].count[DR_EV_FAILED]);
	for (int i = 0; i < 2; i++)
		dr_tcp_ops.stats(kit.path[i], &st[i]);
	assert_true(st[1].rx_bytes < st[0].tx_bytes);
}

static void fence_in_hook(struct kit_sink *s, const struct dr_event *ev)
{
	if (ev->kind == DR_EV_ARRIVING)
		dr_tcp_ops.fence(ev->path, 0);
	(void)s;
}

static void close_in_hook(struct kit_sink *s, const struct dr_event *ev)
{
	(void)s;
	if (ev->kind == DR_EV_DELIVERED)
		dr_tcp_ops.close(ev->path);
}

static void the_sink_may_fence_or_close(void **state)
{
	(void)state;
	kit.sink[1].hook = fence_in_hook;
	memset(buf[0], 1, 100000);
	assert_int_equal(post_recv1(1, 0, 0, 100000), 0);
	wait_credit(1, 0);
	assert_int_equal(post_send1(1, 0, 0, 0, 100000), 0);
	kit_until(&kit, kit.sink[1].count[DR_EV_FENCED] && kit.sink[0].count[DR_EV_FAILED]);
	assert_int_equal(buf[1][0], 0);
	assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], 0);
	kit_destroy(&kit, 0);
	kit_destroy(&kit, 1);

	kit.sink[1].hook = close_in_hook;
	kit_up(&kit);
	assert_int_equal(post_recv1(1, 0, 0, 64), 0);
	assert_int_equal(post_recv1(1, 1, 0, 64), 0);
	wait_credit(1, 1);
	assert_int_equal(post_send1(1, 0, 0, 0, 64), 0);
	assert_int_equal(post_send1(1, 1, 0, 0, 64), 0);
	kit_until(&kit, kit.sink[0].count[DR_EV_FAILED]);
	assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], 1);
	assert_int_equal(
		kit_last(&kit.sink[1], DR_EV_DELIVERED), &kit.sink[1].ev[kit.sink[1].n - 1]);
}

/* ---- failures --------------------------------------------------------------------------------- */

static void what_came_before_the_end_is_delivered(void **state)
{
	int i;

	(void)state;
	fill(5);
	for (i = 0; i < 3; i++)
		assert_int_equal(post_recv1(1, (uint64_t)i, (uint64_t)i * 10000, 10000), 0);
	wait_credit(1, 2);
	for (i = 0; i < 3; i++)
		assert_int_equal(post_send1(1, (uint64_t)i, 0, (uint64_t)i * 10000, 10000), 0);
	assert_int_equal(dr_path_post_ctrl(kit.path[0], "bye", 3), 0);
	dr_path_flush(kit.path[0], dr_now_ns());
	kit_destroy(&kit, 0);
	/* Our own side writes into the closed connection, and hears of it, before it reads. */
	for (i = 0; i < 50; i++) {
		assert_in_range(-dr_path_post_ctrl(kit.path[1], "hello?", 6), 0, EAGAIN);
		dr_path_flush(kit.path[1], dr_now_ns());
	}
	kit_until(&kit, kit.sink[1].count[DR_EV_FAILED]);
	assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], 3);
	assert_int_equal(kit.sink[1].count[DR_EV_CTRL], 1);
	assert_memory_equal(buf[0], buf[1], 30000);
	assert_int_equal(kit_last(&kit.sink[1], DR_EV_FAILED)->scope, DR_SCOPE_PATH);
	for (i = 0; i < 3; i++)
		kit_path_progress(&kit, 1, dr_now_ns());
	assert_int_equal(kit.sink[1].count[DR_EV_FAILED], 1);
	assert_int_equal(dr_path_post_ctrl(kit.path[1], "x", 1), -ENOTCONN);
}

/* Bytes put on the wire behind the sender's (end 0) or receiver's (end 1) back. */
static void inject(int from, const struct dr_path_frame *f, size_t payload)
{
	uint8_t bytes[DR_PATH_FRAME_HDR + 256] = { 0 };

	dr_path_frame_encode(f, bytes);
	assert_int_equal(
		send(tcp_path(kit.path[from])->base.po.fd, bytes, DR_PATH_FRAME_HDR + payload, 0),
		DR_PATH_FRAME_HDR + payload);
}

static void frames_that_cannot_be_fail_the_path(void **state)
{
	static const struct {
		const char *what;
		int from;
		struct dr_path_frame f;
		size_t payload;
	} table[] = {
		{ "garbage", 0, { .type = 0x47, .len = 0x45542f }, 0 },
		{ "credit from the sender", 0, { .type = 2, .n = 1, .len = 8 }, 8 },
		{ "data from the receiver", 1, { .type = 1, .len = 8 }, 8 },
		{ "data not announced", 0, { .type = 1, .len = 8, .epoch = 1, .seq = 5 }, 8 },
		{ "data of the future", 0, { .type = 1, .len = 8, .epoch = 2, .seq = 0 }, 8 },
		{ "data too long", 0, { .type = 1, .len = 101, .epoch = 1, .seq = 0 }, 8 },
		{ "data, no such part", 0, { .type = 1, .len = 8, .part = 3, .epoch = 1 }, 8 },
		{ "data, skipped part", 0, { .type = 1, .len = 8, .part = 1, .epoch = 1 }, 8 },
		{ "credit twice", 1, { .type = 2, .n = 1, .len = 8, .epoch = 1, .seq = 0 }, 8 },
		{ "credit over credit", 1, { .type = 2, .n = 1, .len = 8, .epoch = 1, .seq = 128 },
			8 },
	};
	struct dr_part pts[2];
	size_t i;
	int to;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(table); i++) {
		to = !table[i].from;
		pts[0] = part(1, 0, 100);
		pts[1] = part(1, 100, 100);
		assert_int_equal(dr_path_post_recv(kit.path[1], 1, 0, pts, 2, 2), 0);
		dr_path_flush(kit.path[1], dr_now_ns());
		wait_credit(1, 0);
		inject(table[i].from, &table[i].f, table[i].payload);
		kit_until(&kit, kit.sink[to].count[DR_EV_FAILED]);
		if (kit_last(&kit.sink[to], DR_EV_FAILED)->err != -EPROTO)
			fail_msg("%s: %s", table[i].what, kit.sink[to].text);
		assert_int_equal(kit_last(&kit.sink[to], DR_EV_FAILED)->scope, DR_SCOPE_PATH);
		assert_int_equal(kit.sink[to].count[DR_EV_DELIVERED], 0);
		kit_destroy(&kit, 0);
		kit_destroy(&kit, 1);
		kit_up(&kit);
	}
	/* A part that is here already. */
	assert_int_equal(post_recv1(1, 0, 0, 8), 0);
	wait_credit(1, 0);
	assert_int_equal(post_send1(1, 0, 0, 0, 8), 0);
	inject(0, &(struct dr_path_frame){ .type = 1, .len = 8, .epoch = 1 }, 8);
	kit_until(&kit, kit.sink[1].count[DR_EV_FAILED]);
	assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], 1);
	kit_destroy(&kit, 0);
	kit_destroy(&kit, 1);
	kit_up(&kit); /* the same, while its message still waits for another part */
	pts[0] = part(1, 0, 100);
	pts[1] = part(1, 100, 100);
	assert_int_equal(dr_path_post_recv(kit.path[1], 1, 0, pts, 2, 0), 0);
	dr_path_flush(kit.path[1], dr_now_ns());
	wait_credit(1, 0);
	assert_int_equal(post_send1(1, 0, 0, 0, 8), 0);
	kit_until(&kit, kit.sink[1].count[DR_EV_DELIVERED] == 1);
	inject(0, &(struct dr_path_frame){ .type = 1, .len = 8, .epoch = 1 }, 8);
	kit_until(&kit, kit.sink[1].count[DR_EV_FAILED]);
	assert_int_equal(kit.sink[1].count[DR_EV_DELIVERED], 1);
}

/* Which part of the system is at fault decides what is left: a path, or all paths of the rail. */
static void errors_of_the_system_have_a_scope(void **state)
{
	static const struct {
		int err;
		enum dr_scope scope;
	} table[] = { { ENETDOWN, DR_SCOPE_RAIL }, { ENETUNREACH, DR_SCOPE_RAIL },
		{ EHOSTUNREACH, DR_SCOPE_RAIL }, { EHOSTDOWN, DR_SCOPE_RAIL },
		{ ENODEV, DR_SCOPE_RAIL }, { EADDRNOTAVAIL, DR_SCOPE_RAIL },
		{ ENOMEM, DR_SCOPE_LOCAL }, { ENOBUFS, DR_SCOPE_LOCAL }, { EMFILE, DR_SCOPE_LOCAL },
		{ ENFILE, DR_SCOPE_LOCAL }, { ECONNRESET, DR_SCOPE_PATH },
		{ ETIMEDOUT, DR_SCOPE_PATH }, { EPIPE, DR_SCOPE_PATH } };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(table); i++) {
		dr_tcp_fail_socket(tcp_path(kit.path[0]), -table[i].err, "test");
		kit_path_progress(&kit, 0, dr_now_ns());
		assert_int_equal(kit_last(&kit.sink[0], DR_EV_FAILED)->scope, table[i].scope);
		assert_int_equal(kit_last(&kit.sink[0], DR_EV_FAILED)->err, -table[i].err);
		kit_destroy(&kit, 0);
		kit_destroy(&kit, 1);
		kit_up(&kit);
	}
}

#define BOTH(f)                                                                                    \
	{ #f ", spinning", f, setup, teardown, NULL },                                             \
	{                                                                                          \
#f ", polled", f, setup, teardown, &polled                                         \
	}

/* Each answer of the peer's kernel begins the count anew. */
static void answered_segments_are_not_silent(void **state)
{
	static const uint32_t sizes[] = { 64 };
	struct dr_path_stats st;
	int64_t until;

	(void)state;
	dr_tcp_ops.stats(kit.path[0], &st);
	for (until = dr_now_ns() + 20 * DR_NS_PER_MS; dr_now_ns() < until;)
		kit_step(&kit);
	stream(sizes, 1, 100, 1);
	do {
		kit_step(&kit);
		dr_tcp_ops.stats(kit.path[0], &st);
	} while (st.unacked_bytes > 0);
	assert_true(st.rx_segments > 0 && st.recent_segments > 0);
	assert_true(st.silent_segments < 50);
}

int main(void)
{
	static int polled = 1;
	const struct CMUnitTest tests[] = {
		BOTH(answered_segments_are_not_silent),
		BOTH(mixed_sizes_arrive_whole),
		{ "mixed_sizes_arrive_whole, IPv6", mixed_sizes_arrive_whole, setup6, teardown,
			&polled },
		BOTH(small_messages_share_system_calls),
		BOTH(nothing_is_sent_without_credit),
		BOTH(posts_wait_for_flush),
		BOTH(control_frames_pass_bulk_that_waits),
		BOTH(the_control_queue_is_bounded),
		{ "the_control_queue_moves_up", the_control_queue_moves_up, setup, teardown, NULL },
		{ "a_shut_window_is_no_silence", a_shut_window_is_no_silence, setup, teardown,
			&polled },
		BOTH(control_frames_are_no_progress_of_the_data),
		BOTH(a_padded_datagram_is_as_long_as_a_segment),
		BOTH(padded_datagrams_have_their_size),
		BOTH(a_fence_resets_and_leaves_buffers_alone),
		BOTH(a_fence_drops_what_the_kernel_holds),
		BOTH(the_sink_may_fence_or_close),
		BOTH(what_came_before_the_end_is_delivered),
		BOTH(frames_that_cannot_be_fail_the_path),
		{ "errors_of_the_system_have_a_scope", errors_of_the_system_have_a_scope, setup,
			teardown, NULL },
	};

	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
