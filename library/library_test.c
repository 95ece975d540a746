/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "library/dualrail.h"

#include <errno.h>
#include <poll.h>

/*
 * Two endpoints of this process over loopback, through the public header alone.
 */
enum { KEY = 7, BYTES = 8 << 20 };

struct end {
	struct dualrail *d;
	struct dualrail_peer *peer;
	struct dualrail_memory *mem;
	uint8_t *bytes;
};
struct pair {
	struct end a, b; /* a connects to b */
};

static int64_t patience_ns(void)
{
	return 60 * DR_NS_PER_S;
}

/* The next event of this kind; others are passed over. */
static const struct dualrail_event *await(struct dualrail *d, int kind)
{
	int64_t until = dr_now_ns() + patience_ns();

	while (dr_now_ns() < until) {
		const struct dualrail_event *ev = dualrail_next(d);
		struct pollfd pfd = { .fd = dualrail_fd(d), .events = POLLIN };

		if (ev && ev->kind == kind)
			return ev;
		if (ev && ev->kind == DUALRAIL_CLOSED)
			print_message("closed: %d %s\n", ev->code, ev->text);
		if (!ev)
			poll(&pfd, 1, 1000);
	}
	fail_msg("no event %d", kind);
	return NULL;
}

static void open_end(struct end *e, uint64_t key, uint32_t lanes)
{
	const struct dualrail_options o = {
		.size = sizeof(o), .nics = "127.0.0.2,127.0.0.3", .lanes = lanes, .hold_down_ms = 50
	};
	struct dualrail_error why = { 0 };

	if (dualrail_open(&o, &e->d, &why) != 0)
		fail_msg("%s", why.text);
	e->bytes = dr_pages_alloc(BYTES);
	assert_non_null(e->bytes);
	assert_int_equal(dualrail_register(e->d, e->bytes, BYTES, key, &e->mem, &why), 0);
}

static void connect_ends(struct pair *t)
{
	uint8_t handle[DUALRAIL_HANDLE_BYTES];
	struct dualrail_error why = { 0 };
	const struct dualrail_event *ev;

	assert_int_equal(dualrail_listen(t->b.d, handle, &why), 0);
	assert_int_equal(dualrail_connect(t->a.d, handle, &t->a.peer, &why), 0);
	ev = await(t->a.d, DUALRAIL_CONNECTED);
	assert_ptr_equal(ev->peer, t->a.peer);
	assert_int_equal(ev->code, 0);
	ev = await(t->b.d, DUALRAIL_CONNECTED);
	assert_int_equal(ev->code, 1);
	t->b.peer = ev->peer;
}

static void open_pair(struct pair *t, uint32_t lanes)
{
	memset(t, 0, sizeof(*t));
	open_end(&t->a, 0, lanes);
	open_end(&t->b, KEY, lanes);
	connect_ends(t);
}

static void close_end(struct end *e)
{
	assert_int_equal(dualrail_close(e->d, NULL), 0);
	dr_pages_free(e->bytes, BYTES);
}

static void close_pair(struct pair *t)
{
	close_end(&t->a);
	close_end(&t->b);
}

static void fill_random(uint8_t *p, size_t n, uint64_t seed)
{
	struct dr_rng r;

	dr_rng_seed(&r, seed);
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t v = dr_rng_u64(&r);

		memcpy(p + i, &v, sizeof(v));
	}
}

static struct dualrail_block whole(const struct end *e)
{
	return (struct dualrail_block){ .key = KEY, .memory = e->mem, .len = BYTES };
}

/* ---- tests ---- */

static void blocks_and_their_note_arrive(void **state)
{
	struct pair t;
	struct dualrail_block b[3];
	struct dualrail_put *put;
	const struct dualrail_event *ev;

	(void)state;
	open_pair(&t, 0);
	fill_random(t.a.bytes, BYTES, 1);
	/* Crosswise, one longer than a chunk. */
	b[0] = (struct dualrail_block){ KEY, 4 << 20, t.a.mem, 0, 3 << 20 };
	b[1] = (struct dualrail_block){ KEY, 0, t.a.mem, 3 << 20, 1 };
	b[2] = (struct dualrail_block){ KEY, 1, t.a.mem, 5 << 20, 4096 };
	assert_int_equal(dualrail_put(t.a.peer, b, 3, "done", 4, 99, &put), 0);
	ev = await(t.b.d, DUALRAIL_NOTE);
	assert_int_equal(ev->len, 4);
	assert_memory_equal(ev->data, "done", 4);
	assert_ptr_equal(ev->peer, t.b.peer);
	assert_memory_equal(t.b.bytes + (4 << 20), t.a.bytes, 3 << 20);
	assert_memory_equal(t.b.bytes, t.a.bytes + (3 << 20), 1);
	assert_memory_equal(t.b.bytes + 1, t.a.bytes + (5 << 20), 4096);
	ev = await(t.a.d, DUALRAIL_PUT_DONE);
	assert_int_equal(ev->cookie, 99);
	assert_int_equal(ev->code, 0);
	assert_int_equal(dualrail_test(put), 1);
	dualrail_release(put);
	assert_null(dualrail_next(t.a.d));
	close_pair(&t);
}

static void notes_keep_their_order_and_need_no_block(void **state)
{
	struct pair t;

	(void)state;
	open_pair(&t, 1);
	/* More than the library holds for a reader that does not read, and both ways. */
	for (uint32_t i = 0; i < 3000; i++)
		assert_int_equal(dualrail_put(t.a.peer, NULL, 0, &i, sizeof(i), i, NULL), 0);
	for (uint32_t i = 0; i < 3000; i++) {
		const struct dualrail_event *ev = await(t.b.d, DUALRAIL_NOTE);

		assert_int_equal(ev->len, sizeof(i));
		assert_memory_equal(ev->data, &i, sizeof(i));
	}
	for (uint32_t i = 0; i < 3000; i++)
		assert_int_equal(await(t.a.d, DUALRAIL_PUT_DONE)->cookie, i);
	assert_int_equal(dualrail_put(t.b.peer, NULL, 0, "x", 1, 0, NULL), 0);
	assert_int_equal(await(t.a.d, DUALRAIL_NOTE)->len, 1);
	close_pair(&t);
}

static int refused(struct pair *t, const struct dualrail_block *b, size_t n)
{
	const struct dualrail_event *ev;

	assert_int_equal(dualrail_put(t->a.peer, b, n, "no", 2, 5, NULL), 0);
	ev = await(t->a.d, DUALRAIL_PUT_DONE);
	assert_int_equal(ev->cookie, 5);
	return ev->code;
}

static void what_the_peer_did_not_register_is_refused(void **state)
{
	struct pair t;
	struct dualrail_block b[2];

	(void)state;
	open_pair(&t, 2);
	memset(t.b.bytes, 0x55, BYTES);
	b[0] = whole(&t.a);
	b[1] = whole(&t.a);
	b[0].key = 8;
	assert_int_equal(refused(&t, b, 1), -ENOENT);
	b[0].key = 0;
	assert_int_equal(refused(&t, b, 1), -ENOENT);
	b[0].key = KEY;
	b[0].remote_offset = 1;
	b[0].len = BYTES;
	assert_int_equal(refused(&t, &b[0], 1), -ERANGE);
	b[0].remote_offset = UINT64_MAX - BYTES;
	assert_int_equal(refused(&t, &b[0], 1), -ERANGE);
	assert_int_equal(t.b.bytes[0], 0x55);
	/* The connection goes on, and no note of these came. */
	assert_int_equal(dualrail_put(t.a.peer, &b[1], 1, "yes", 3, 6, NULL), 0);
	assert_memory_equal(await(t.b.d, DUALRAIL_NOTE)->data, "yes", 3);
	assert_memory_equal(t.b.bytes, t.a.bytes, BYTES);
	close_pair(&t);
}

static void wrong_arguments_are_refused_here(void **state)
{
	struct pair t;
	struct dualrail_block b;
	struct dualrail_memory *again;
	struct dualrail_options o = { .size = sizeof(o), .lanes = 9 };
	struct dualrail *d;
	struct dualrail_error why;
	struct dualrail_peer *p;
	static const uint8_t no_handle[DUALRAIL_HANDLE_BYTES];
	static uint8_t note[DUALRAIL_NOTE_MAX + 1];

	(void)state;
	open_pair(&t, 1);
	b = whole(&t.a);
	b.len++;
	assert_int_equal(dualrail_put(t.a.peer, &b, 1, NULL, 0, 0, NULL), -EINVAL);
	b = whole(&t.a);
	b.offset = 1;
	assert_int_equal(dualrail_put(t.a.peer, &b, 1, NULL, 0, 0, NULL), -EINVAL);
	b = whole(&t.b);
	assert_int_equal(dualrail_put(t.a.peer, &b, 1, NULL, 0, 0, NULL), -EINVAL);
	assert_int_equal(dualrail_put(t.a.peer, NULL, 0, NULL, 0, 0, NULL), -EINVAL);
	assert_int_equal(dualrail_put(t.a.peer, NULL, 0, note, sizeof(note), 0, NULL), -EMSGSIZE);
	assert_int_equal(dualrail_register(t.b.d, note, 1, KEY, &again, &why), -EEXIST);
	assert_int_equal(dualrail_register(t.b.d, note, 0, 1, &again, &why), -EINVAL);
	assert_int_equal(dualrail_connect(t.a.d, no_handle, &p, &why), -EPROTO);
	assert_int_equal(dualrail_cut(t.a.peer, 2), -EINVAL);
	assert_int_equal(dualrail_open(&o, &d, &why), -EINVAL);
	assert_non_null(strstr(why.text, "lanes"));
	o.lanes = 0;
	o.transport = "carrier-pigeon";
	assert_int_equal(dualrail_open(&o, &d, &why), -ENOTSUP);
	o.transport = NULL;
	o.size = 4096;
	assert_int_equal(dualrail_open(&o, &d, &why), -EINVAL);
	close_pair(&t);
}

/* Cuts connections while blocks are on the way; every block arrives, and the note comes once. */
static void blocks_survive_cuts(void **state)
{
	struct pair t;
	struct dualrail_block b;
	struct dualrail_stats st = { .size = sizeof(st) };
	unsigned switched = 0;

	(void)state;
	open_pair(&t, 2);
	b = whole(&t.a);
	for (unsigned round = 0; round < 8; round++) {
		struct dualrail_put *put;

		fill_random(t.a.bytes, BYTES, round);
		assert_int_equal(
			dualrail_put(t.a.peer, &b, 1, &round, sizeof(round), round, &put), 0);
		do {
			assert_int_equal(dualrail_get_stats(t.a.peer, &st), 0);
		} while (st.in_flight == 0 && dualrail_test(put) == 0);
		assert_int_equal(dualrail_cut(t.a.peer, round % 2), 0);
		assert_memory_equal(await(t.b.d, DUALRAIL_NOTE)->data, &round, sizeof(round));
		assert_memory_equal(t.b.bytes, t.a.bytes, BYTES);
		assert_int_equal(await(t.a.d, DUALRAIL_PUT_DONE)->code, 0);
		dualrail_release(put);
		do {
			assert_int_equal(dualrail_get_stats(t.a.peer, &st), 0);
		} while (st.unprotected > 0);
		switched = st.switches;
	}
	assert_true(switched > 0);
	assert_int_equal(st.sent_bytes, 8ull * BYTES);
	assert_int_equal(dualrail_get_stats(t.b.peer, &st), 0);
	assert_int_equal(st.received_bytes, 8ull * BYTES);
	assert_int_equal(st.nics, 2);
	assert_int_equal(st.lanes, 2);
	close_pair(&t);
}

static void the_other_end_learns_of_a_disconnect(void **state)
{
	struct pair t;
	struct dualrail_block b;
	const struct dualrail_event *ev;
	struct dualrail_put *put;

	(void)state;
	open_pair(&t, 1);
	assert_int_equal(dualrail_disconnect(t.b.peer, NULL), 0);
	ev = await(t.a.d, DUALRAIL_CLOSED);
	assert_int_equal(ev->code, -ESHUTDOWN);
	assert_ptr_equal(ev->peer, t.a.peer);
	b = whole(&t.a);
	assert_int_equal(dualrail_put(t.a.peer, &b, 1, NULL, 0, 0, &put), -ESHUTDOWN);
	assert_int_equal(dualrail_disconnect(t.a.peer, NULL), 0);
	/* The endpoints serve another connection. */
	connect_ends(&t);
	assert_int_equal(dualrail_put(t.a.peer, &b, 1, "again", 5, 1, &put), 0);
	assert_int_equal(await(t.b.d, DUALRAIL_NOTE)->len, 5);
	assert_int_equal(await(t.a.d, DUALRAIL_PUT_DONE)->code, 0);
	dualrail_release(put);
	/* One that is not done when its end disconnects. */
	memset(t.b.bytes, 0, BYTES);
	assert_int_equal(dualrail_put(t.a.peer, &b, 1, NULL, 0, 2, &put), 0);
	assert_int_equal(dualrail_disconnect(t.a.peer, NULL), 0);
	assert_true(dualrail_test(put) == 1 || dualrail_test(put) == -ECANCELED);
	dualrail_release(put);
	assert_int_equal(await(t.b.d, DUALRAIL_CLOSED)->code, -ESHUTDOWN);
	close_pair(&t);
}

static void deregistered_memory_is_not_used(void **state)
{
	struct pair t;
	struct dualrail_block b;

	(void)state;
	open_pair(&t, 1);
	b = whole(&t.a);
	assert_int_equal(dualrail_deregister(t.b.mem, NULL), 0);
	assert_int_equal(refused(&t, &b, 1), -ENOENT);
	assert_int_equal(dualrail_register(t.b.d, t.b.bytes, BYTES / 2, KEY, &t.b.mem, NULL), 0);
	assert_int_equal(refused(&t, &b, 1), -ERANGE);
	b.len = BYTES / 2;
	assert_int_equal(refused(&t, &b, 1), 0);
	/* While a put reads it, that is waited for. */
	assert_int_equal(dualrail_put(t.a.peer, &b, 1, NULL, 0, 1, NULL), 0);
	assert_int_equal(dualrail_deregister(t.a.mem, NULL), 0);
	assert_int_equal(await(t.a.d, DUALRAIL_PUT_DONE)->code, 0);
	close_pair(&t);
}

static void nobody_behind_a_handle(void **state)
{
	struct end a = { 0 }, b = { 0 };
	struct dualrail_options o = {
		.size = sizeof(o), .nics = "127.0.0.2", .connect_timeout_ms = 300
	};
	uint8_t handle[DUALRAIL_HANDLE_BYTES];
	struct dualrail_peer *p;
	const struct dualrail_event *ev;

	(void)state;
	open_end(&b, KEY, 1);
	assert_int_equal(dualrail_listen(b.d, handle, NULL), 0);
	close_end(&b);
	assert_int_equal(dualrail_open(&o, &a.d, NULL), 0);
	assert_int_equal(dualrail_connect(a.d, handle, &p, NULL), 0);
	assert_int_equal(dualrail_put(p, NULL, 0, "x", 1, 0, NULL), -ENOTCONN);
	ev = await(a.d, DUALRAIL_CLOSED);
	assert_int_equal(ev->code, -ETIMEDOUT);
	assert_true(ev->text[0] != '\0');
	assert_int_equal(dualrail_disconnect(p, NULL), 0);
	/* One that is not decided yet. */
	assert_int_equal(dualrail_connect(a.d, handle, &p, NULL), 0);
	assert_int_equal(dualrail_close(a.d, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_and_their_note_arrive),
		cmocka_unit_test(notes_keep_their_order_and_need_no_block),
		cmocka_unit_test(what_the_peer_did_not_register_is_refused),
		cmocka_unit_test(wrong_arguments_are_refused_here),
		cmocka_unit_test(blocks_survive_cuts),
		cmocka_unit_test(the_other_end_learns_of_a_disconnect),
		cmocka_unit_test(deregistered_memory_is_not_used),
		cmocka_unit_test(nobody_behind_a_handle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
