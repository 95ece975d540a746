/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/match_testkit.h"

#include "base/clock.h"
#include "base/rng.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ha_match m;
static struct ha_outbox o;

static unsigned post(unsigned n, const uint32_t *tags, uint64_t cap)
{
	struct ha_match_buffer b[HA_BUFFERS_MAX] = { 0 };
	unsigned group;

	for (unsigned i = 0; i < n; i++)
		b[i] = (struct ha_match_buffer){ .cap = cap, .tag = tags[i] };
	assert_int_equal(ha_match_post(&m, b, n, &group), 0);
	ha_match_validate(&m);
	return group;
}

static unsigned post1(uint32_t tag)
{
	return post(1, &tag, 100);
}

/* The frame of the k-th send is in slot k. */
static void arrive(uint64_t ordinal, uint32_t tag, uint64_t size)
{
	struct ha_header h = { HA_EAGER, tag, ordinal, size };

	assert_int_equal(ha_match_frame(&m, &h, (unsigned)ordinal), 0);
	ha_match_validate(&m);
}

static void expect(unsigned slot, unsigned group, unsigned buffer)
{
	struct ha_match_frame f;
	unsigned g, b;

	assert_int_equal(ha_match_next(&m, &f, &g, &b), 1);
	ha_match_validate(&m);
	assert_int_equal(f.slot, slot);
	assert_int_equal(g, group);
	assert_int_equal(b, buffer);
}

static void expect_none(void)
{
	struct ha_match_frame f;
	unsigned g, b;

	assert_int_equal(ha_match_next(&m, &f, &g, &b), 0);
}

static int setup(void **state)
{
	(void)state;
	ha_match_init(&m);
	ha_outbox_init(&o, 1000, 100);
	return 0;
}

static void header_survives_the_wire(void **state)
{
	struct ha_header in = { HA_EAGER, 0x01020304, 0x1122334455667788, 3 }, out;
	uint8_t buf[HA_HEADER_LEN + 4] = { 0 };

	(void)state;
	ha_header_encode(&in, buf);
	assert_int_equal(buf[4], 1); /* big endian */
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN + 3, &out), 0);
	assert_int_equal(out.type, HA_EAGER);
	assert_int_equal(out.tag, in.tag);
	assert_int_equal(out.ordinal, in.ordinal);
	assert_int_equal(out.size, 3);
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN + 2, &out), -EPROTO);
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN + 4, &out), -EPROTO);
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN - 1, &out), -EPROTO);
	buf[0] = 3;
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN + 3, &out), -EPROTO);
	buf[0] = HA_EAGER;
	buf[2] = 1;
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN + 3, &out), -EPROTO);
}

static void announcement_has_a_size_and_no_data(void **state)
{
	struct ha_header in = { HA_ANNOUNCE, 1, 2, 3 }, out;
	uint8_t buf[HA_HEADER_LEN + 1] = { 0 };

	(void)state;
	ha_header_encode(&in, buf);
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN, &out), 0);
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN + 1, &out), -EPROTO);
	in.size = 0;
	ha_header_encode(&in, buf);
	assert_int_equal(ha_header_decode(buf, HA_HEADER_LEN, &out), -EPROTO);
}

static void chunk_name_survives_the_wire(void **state)
{
	struct ha_chunk_name in = { HA_COMMS_MAX - 1, HA_LARGE_MAX - 2, HA_CHUNKS_MAX - 3 };
	struct ha_chunk_name out = ha_chunk_decode(ha_chunk_encode(&in));

	(void)state;
	assert_int_equal(out.comm, in.comm);
	assert_int_equal(out.message, in.message);
	assert_int_equal(out.chunk, in.chunk);
}

static void large_messages_have_at_most_so_many_chunks(void **state)
{
	(void)state;
	assert_int_equal(ha_divide(1, 1000).n, 1);
	assert_int_equal(ha_divide(1000, 1000).n, 1);
	assert_int_equal(ha_divide(1001, 1000).n, 2);
	assert_int_equal(ha_divide(1000ull * HA_CHUNKS_MAX, 1000).chunk_bytes, 1000);
	assert_int_equal(ha_divide(1000ull * HA_CHUNKS_MAX + 1, 1000).chunk_bytes, 1001);
	for (uint64_t size = 1ull << 40; size > (1ull << 40) - 5000; size--) {
		struct ha_division d = ha_divide(size, 1000);

		assert_true(d.n <= HA_CHUNKS_MAX && d.n * d.chunk_bytes >= size &&
			    (d.n - 1) * d.chunk_bytes < size);
	}
}

static void messages_take_the_buffers_in_order(void **state)
{
	unsigned a = post1(7), b = post1(7);

	(void)state;
	expect_none();
	arrive(0, 7, 1);
	arrive(1, 7, 1);
	expect(0, a, 0);
	expect(1, b, 0);
	expect_none();
	arrive(2, 7, 1); /* before its receive */
	expect_none();
	expect(2, post1(7), 0);
}

static void only_the_head_group_takes_messages(void **state)
{
	unsigned a = post(2, (uint32_t[]){ 1, 2 }, 100), b = post(2, (uint32_t[]){ 3, 1 }, 100);

	(void)state;
	arrive(0, 3, 1); /* waits for the second group */
	arrive(1, 1, 1);
	arrive(2, 1, 1); /* the head's buffer with that tag is taken */
	expect(1, a, 0);
	expect_none();
	arrive(3, 2, 1);
	expect(3, a, 1);
	expect(0, b, 0);
	expect(2, b, 1);
	expect_none();
}

static void equal_tags_of_a_group_are_taken_in_order(void **state)
{
	unsigned a = post(3, (uint32_t[]){ 5, 6, 5 }, 100);

	(void)state;
	arrive(0, 5, 1);
	arrive(1, 5, 1);
	arrive(2, 6, 1);
	expect(0, a, 0);
	expect(1, a, 2);
	expect(2, a, 1);
}

static void group_is_complete_when_all_buffers_are(void **state)
{
	unsigned a = post(2, (uint32_t[]){ 1, 2 }, 100);

	(void)state;
	arrive(0, 1, 10);
	arrive(1, 2, 0);
	expect(0, a, 0);
	expect(1, a, 1);
	ha_match_done(&m, a, 1, 0);
	assert_false(ha_match_complete(&m, a));
	ha_match_done(&m, a, 0, 10);
	assert_true(ha_match_complete(&m, a));
	assert_int_equal(m.group[a].buf[0].bytes, 10);
	ha_match_release(&m, a);
	ha_match_validate(&m);
	assert_int_equal(m.used, 0);
}

static void groups_are_released_in_any_order(void **state)
{
	unsigned g[HA_GROUPS_MAX], again;
	struct ha_match_buffer b = { .cap = 1, .tag = 1 };

	(void)state;
	for (unsigned i = 0; i < HA_GROUPS_MAX; i++)
		g[i] = post1(1);
	assert_int_equal(ha_match_post(&m, &b, 1, &again), -EAGAIN);
	for (unsigned i = 0; i < HA_GROUPS_MAX; i++) {
		arrive(i, 1, 1);
		expect(i, g[i], 0);
	}
	ha_match_done(&m, g[40], 0, 1);
	ha_match_release(&m, g[40]);
	assert_int_equal(post1(1), g[40]);
}

static void too_long_a_message_is_named(void **state)
{
	struct ha_match_frame f;
	unsigned g, b, a = post(2, (uint32_t[]){ 1, 2 }, 100);

	(void)state;
	arrive(0, 2, 101);
	assert_int_equal(ha_match_next(&m, &f, &g, &b), -EMSGSIZE);
	assert_int_equal(g, a);
	assert_int_equal(b, 1);
	assert_int_equal(f.h.size, 101);
}

static void frames_come_in_order_and_are_bounded(void **state)
{
	struct ha_header h = { HA_EAGER, 1, 1, 1 };

	(void)state;
	assert_int_equal(ha_match_frame(&m, &h, 0), -EPROTO);
	for (unsigned i = 0; i < HA_FRAMES_MAX; i++)
		arrive(i, 1, 1);
	h.ordinal = HA_FRAMES_MAX;
	assert_int_equal(ha_match_frame(&m, &h, 0), -ENOBUFS);
}

static void group_size_is_checked(void **state)
{
	struct ha_match_buffer b[HA_BUFFERS_MAX + 1] = { 0 };
	unsigned g;

	(void)state;
	assert_int_equal(ha_match_post(&m, b, 0, &g), -EINVAL);
	assert_int_equal(ha_match_post(&m, b, HA_BUFFERS_MAX + 1, &g), -EINVAL);
}

/* ---- a slow model: the head's buffers and the waiting frames are searched from the start each time ---- */

enum { STEPS = 400, TAGS = 4 };
struct slow_group {
	unsigned n, number;
	uint32_t tag[HA_BUFFERS_MAX];
	bool taken[HA_BUFFERS_MAX];
};
static struct {
	struct slow_group group[STEPS];
	unsigned head, n_groups;
	struct {
		uint32_t tag;
		bool taken;
	} frame[STEPS];
	unsigned n_frames;
} slow;

static bool slow_next(unsigned *frame, unsigned *group, unsigned *buffer)
{
	while (slow.head < slow.n_groups) {
		struct slow_group *g = &slow.group[slow.head];
		unsigned taken = 0;

		for (unsigned i = 0; i < slow.n_frames; i++)
			for (unsigned b = 0; !slow.frame[i].taken && b < g->n; b++)
				if (!g->taken[b] && g->tag[b] == slow.frame[i].tag) {
					slow.frame[i].taken = g->taken[b] = true;
					*frame = i;
					*group = g->number;
					*buffer = b;
					return true;
				}
		for (unsigned b = 0; b < g->n; b++)
			taken += g->taken[b];
		if (taken < g->n)
			return false;
		slow.head++;
	}
	return false;
}

static void settle(void)
{
	unsigned frame, group, buffer;

	while (slow_next(&frame, &group, &buffer)) {
		expect(frame, group, buffer);
		ha_match_done(&m, group, buffer, 1);
		if (ha_match_complete(&m, group))
			ha_match_release(&m, group);
	}
	expect_none();
}

static void random_order(uint64_t seed)
{
	struct dr_rng r;

	dr_rng_seed(&r, seed);
	setup(NULL);
	memset(&slow, 0, sizeof(slow));
	for (unsigned i = 0; i < STEPS; i++) {
		if (dr_rng_below(&r, 2) && __builtin_popcountll(m.used) < HA_GROUPS_MAX) {
			struct slow_group *g = &slow.group[slow.n_groups++];

			g->n = 1 + (unsigned)dr_rng_below(&r, HA_BUFFERS_MAX);
			for (unsigned b = 0; b < g->n; b++)
				g->tag[b] = (uint32_t)dr_rng_below(&r, TAGS);
			g->number = post(g->n, g->tag, 100);
		} else if (m.n_frames < HA_FRAMES_MAX) {
			slow.frame[slow.n_frames].tag = (uint32_t)dr_rng_below(&r, TAGS);
			arrive(slow.n_frames, slow.frame[slow.n_frames].tag, 1);
			slow.n_frames++;
		}
		if (dr_rng_below(&r, 3) == 0)
			settle();
	}
	settle();
}

static void random_orders_match_as_in_a_slow_model(void **state)
{
	const char *env = getenv("SEED");
	uint64_t seed = env ? strtoull(env, NULL, 0) : (uint64_t)dr_wall_ns();

	(void)state;
	print_message("SEED=%llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < 200; i++)
		random_order(seed + i);
}

/* ---- sender ---- */

static uint64_t send_one(uint64_t size)
{
	struct ha_header h;

	assert_int_equal(ha_outbox_next(&o, size, 9, &h), 0);
	assert_int_equal(h.type, size > 100 ? HA_ANNOUNCE : HA_EAGER);
	assert_int_equal(h.tag, 9);
	assert_int_equal(h.size, size);
	ha_outbox_sent(&o, &h);
	return h.ordinal;
}

static int ask(unsigned message, unsigned chunk, uint64_t cap, uint64_t *off)
{
	struct ha_chunk_name name = { 0, message, chunk };
	uint64_t ordinal, len;
	int rc = ha_outbox_chunk(&o, &name, cap, &ordinal, off, &len);

	if (rc == 0) {
		assert_int_equal(ordinal % HA_LARGE_MAX, message);
		assert_int_equal(len, cap);
	}
	return rc;
}

static void each_chunk_is_sent_once(void **state)
{
	uint64_t off, a;

	(void)state;
	assert_int_equal(send_one(100), 0); /* small */
	a = send_one(2500);
	assert_int_equal(ask(1, 2, 500, &off), 0); /* the last one first */
	assert_int_equal(off, 2000);
	assert_int_equal(ask(1, 2, 500, &off), -EPROTO);
	assert_int_equal(ask(1, 3, 500, &off), -EPROTO);
	assert_int_equal(ask(1, 0, 999, &off), -EPROTO);
	assert_int_equal(ask(2, 0, 1000, &off), -EPROTO);
	assert_int_equal(ask(1, 0, 1000, &off), 0);
	assert_int_equal(off, 0);
	assert_false(ha_outbox_acked(&o, a));
	assert_int_equal(ask(1, 1, 1000, &off), 0);
	assert_false(ha_outbox_acked(&o, a));
	assert_true(ha_outbox_acked(&o, a));
	assert_int_equal(ask(1, 1, 1000, &off), -EPROTO);
}

static void unfinished_large_messages_are_bounded(void **state)
{
	struct ha_header h;
	uint64_t off;

	(void)state;
	for (unsigned i = 0; i < HA_LARGE_MAX; i++)
		send_one(101);
	assert_int_equal(ha_outbox_next(&o, 101, 9, &h), -EAGAIN);
	assert_int_equal(ha_outbox_next(&o, 100, 9, &h), 0);
	assert_int_equal(ask(0, 0, 101, &off), 0);
	assert_true(ha_outbox_acked(&o, 0));
	assert_int_equal(ha_outbox_next(&o, 101, 9, &h), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_survives_the_wire),
		cmocka_unit_test(announcement_has_a_size_and_no_data),
		cmocka_unit_test(chunk_name_survives_the_wire),
		cmocka_unit_test(large_messages_have_at_most_so_many_chunks),
		cmocka_unit_test_setup(messages_take_the_buffers_in_order, setup),
		cmocka_unit_test_setup(only_the_head_group_takes_messages, setup),
		cmocka_unit_test_setup(equal_tags_of_a_group_are_taken_in_order, setup),
		cmocka_unit_test_setup(group_is_complete_when_all_buffers_are, setup),
		cmocka_unit_test_setup(groups_are_released_in_any_order, setup),
		cmocka_unit_test_setup(too_long_a_message_is_named, setup),
		cmocka_unit_test_setup(frames_come_in_order_and_are_bounded, setup),
		cmocka_unit_test_setup(group_size_is_checked, setup),
		cmocka_unit_test(random_orders_match_as_in_a_slow_model),
		cmocka_unit_test_setup(each_chunk_is_sent_once, setup),
		cmocka_unit_test_setup(unfinished_large_messages_are_bounded, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
