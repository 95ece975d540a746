/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "window/window.h"

enum { REQS = 4096 };

/* What the transport would say of request i, and what the window did with it. */
struct fake {
	int test_rc[REQS], consume_rc[REQS];
	unsigned tested[REQS], consumed[REQS];
	uint64_t order[REQS];
	unsigned n_order;
	uint64_t last_tested;
	struct dr_window *push_from_consume;
	int push_rc;
};

static int fake_test(void *ctx, uint64_t r)
{
	struct fake *f = ctx;

	f->tested[r]++;
	f->last_tested = r;
	return f->test_rc[r];
}

static int fake_consume(void *ctx, uint64_t r)
{
	struct fake *f = ctx;

	/* Never before done, never twice, never an entry that was not the one just tested. */
	assert_int_equal(f->test_rc[r], 1);
	assert_int_equal(f->consumed[r], 0);
	assert_int_equal(f->last_tested, r);
	f->consumed[r]++;
	f->order[f->n_order++] = r;
	if (f->push_from_consume)
		f->push_rc = dr_window_push(f->push_from_consume, 7);
	return f->consume_rc[r];
}

static const struct dr_window_ops ops = { .test = fake_test, .consume = fake_consume };
static struct fake fake;
static struct dr_window win;

static void start(unsigned cap)
{
	memset(&fake, 0, sizeof(fake));
	assert_int_equal(dr_window_init(&win, cap, &ops, &fake), 0);
	dr_window_validate(&win);
}

static void test_capacity_limits(void **state)
{
	static const struct {
		unsigned cap;
		int rc;
	} row[] = { { 0, -EINVAL }, { 1, 0 }, { 16, 0 }, { DR_WINDOW_MAX, 0 },
		{ DR_WINDOW_MAX + 1, -EINVAL }, { 0xffffffffu, -EINVAL } };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++)
		assert_int_equal(dr_window_init(&win, row[i].cap, &ops, &fake), row[i].rc);
}

/* One entry at the head; what does one try say, and what is left behind? */
static void test_tri_state(void **state)
{
	static const struct {
		const char *name;
		unsigned pushed;
		int test_rc, consume_rc;
		int rc, err;
		unsigned in_flight, consumed;
	} row[] = {
		{ "empty", 0, 1, 0, 1, 0, 0, 0 },
		{ "not ready", 1, 0, 0, 1, 0, 1, 0 },
		{ "done", 1, 1, 0, 0, 0, 0, 1 },
		{ "done, one behind it", 2, 1, 0, 0, 0, 1, 1 },
		{ "peer closed", 1, -ECONNRESET, 0, -1, -ECONNRESET, 1, 0 },
		{ "EAGAIN from test is an error too", 1, -EAGAIN, 0, -1, -EAGAIN, 1, 0 },
		{ "consume fails", 1, 1, -EIO, -1, -EIO, 1, 1 },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		start(4);
		for (unsigned k = 0; k < row[i].pushed; k++)
			assert_int_equal(dr_window_push(&win, k), 0);
		fake.test_rc[0] = row[i].test_rc;
		fake.consume_rc[0] = row[i].consume_rc;
		if (dr_window_try_release_oldest(&win) != row[i].rc ||
			dr_window_error(&win) != row[i].err ||
			dr_window_in_flight(&win) != row[i].in_flight ||
			fake.consumed[0] != row[i].consumed)
			fail_msg("row \"%s\"", row[i].name);
		dr_window_validate(&win);
	}
}

static void test_only_the_head_is_tested(void **state)
{
	(void)state;
	start(4);
	for (unsigned k = 0; k < 4; k++)
		assert_int_equal(dr_window_push(&win, k), 0);
	fake.test_rc[1] = fake.test_rc[2] = fake.test_rc[3] = 1;
	assert_int_equal(dr_window_drain(&win), 0);
	assert_int_equal(fake.tested[0], 1);
	assert_int_equal(fake.tested[1] + fake.tested[2] + fake.tested[3], 0);
	fake.test_rc[0] = 1;
	assert_int_equal(dr_window_drain(&win), 4);
	for (unsigned k = 0; k < 4; k++)
		assert_int_equal(fake.order[k], k);
}

static void test_full_takes_nothing(void **state)
{
	static const unsigned caps[] = { 1, 2, 3, 16, DR_WINDOW_MAX };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(caps); i++) {
		start(caps[i]);
		for (unsigned k = 0; k < caps[i]; k++) {
			assert_false(dr_window_full(&win));
			assert_int_equal(dr_window_push(&win, k), 0);
		}
		assert_true(dr_window_full(&win));
		assert_int_equal(dr_window_push(&win, caps[i]), -EAGAIN);
		assert_int_equal(dr_window_in_flight(&win), caps[i]);
		fake.test_rc[0] = 1;
		assert_int_equal(dr_window_drain(&win), 1);
		assert_int_equal(dr_window_push(&win, caps[i]), 0);
	}
}

/* A cap that divides no power of two, many times round the ring. */
static void test_wrap(void **state)
{
	(void)state;
	start(3);
	for (unsigned k = 0; k < REQS; k++) {
		fake.test_rc[k] = 1;
		assert_int_equal(dr_window_push(&win, k), 0);
		if (k % 3 == 2)
			assert_int_equal(dr_window_drain(&win), 3);
	}
	assert_int_equal(dr_window_drain(&win), REQS % 3);
	for (unsigned k = 0; k < REQS; k++)
		assert_int_equal(fake.order[k], k);
}

static void test_error_kills_the_window(void **state)
{
	(void)state;
	start(4);
	for (unsigned k = 0; k < 3; k++) {
		fake.test_rc[k] = 1;
		assert_int_equal(dr_window_push(&win, k), 0);
	}
	fake.test_rc[1] = -EPIPE;
	assert_int_equal(dr_window_drain(&win), -1);
	assert_int_equal(fake.n_order, 1);
	/* The first error stays, even when the request would be done now. */
	fake.test_rc[1] = 1;
	assert_int_equal(dr_window_try_release_oldest(&win), -1);
	assert_int_equal(dr_window_drain(&win), -1);
	assert_int_equal(dr_window_push(&win, 9), -EPIPE);
	assert_int_equal(dr_window_error(&win), -EPIPE);
	assert_int_equal(dr_window_in_flight(&win), 2);
	assert_int_equal(fake.tested[1], 1);
	assert_int_equal(fake.n_order, 1);
}

/* The entry is in the window until its consume has returned. */
static void test_push_from_consume_sees_the_entry(void **state)
{
	(void)state;
	start(1);
	fake.test_rc[0] = 1;
	fake.push_from_consume = &win;
	assert_int_equal(dr_window_push(&win, 0), 0);
	assert_int_equal(dr_window_try_release_oldest(&win), 0);
	assert_int_equal(fake.push_rc, -EAGAIN);
	assert_int_equal(dr_window_in_flight(&win), 0);
}

/* Against a model that is a plain array: pushes, completions in any order, single releases, drains. */
static void random_run(uint64_t seed)
{
	struct dr_rng rng;
	unsigned pushed = 0, released = 0, cap;

	dr_rng_seed(&rng, seed);
	cap = 1 + (unsigned)dr_rng_below(&rng, 20);
	start(cap);
	while (released < REQS) {
		switch (dr_rng_below(&rng, 4)) {
		case 0:
			if (pushed == REQS)
				break;
			assert_int_equal(dr_window_push(&win, pushed),
				pushed - released < cap ? 0 : -EAGAIN);
			pushed += pushed - released < cap;
			break;
		case 1:
			if (pushed > released)
				fake.test_rc[released + dr_rng_below(&rng, pushed - released)] = 1;
			break;
		case 2: {
			int done = released < pushed && fake.test_rc[released];

			assert_int_equal(dr_window_try_release_oldest(&win), !done);
			released += (unsigned)done;
			break;
		}
		default: {
			int n = 0;

			for (unsigned k = released; k < pushed && fake.test_rc[k]; k++)
				n++;
			assert_int_equal(dr_window_drain(&win), n);
			released += (unsigned)n;
		}
		}
		dr_window_validate(&win);
		assert_int_equal(dr_window_in_flight(&win), pushed - released);
		assert_int_equal(fake.n_order, released);
	}
	for (unsigned k = 0; k < REQS; k++)
		assert_int_equal(fake.order[k], k);
}

static void test_random_against_model(void **state)
{
	const char *s = getenv("DR_TEST_SEED");
	uint64_t seed = s ? strtoull(s, NULL, 0) : (uint64_t)dr_now_ns();

	(void)state;
	print_message("replay: DR_TEST_SEED=%llu window_test\n", (unsigned long long)seed);
	for (unsigned i = 0; i < 50; i++)
		random_run(dr_mix64(seed + i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capacity_limits),
		cmocka_unit_test(test_tri_state),
		cmocka_unit_test(test_only_the_head_is_tested),
		cmocka_unit_test(test_full_takes_nothing),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_error_kills_the_window),
		cmocka_unit_test(test_push_from_consume_sees_the_entry),
		cmocka_unit_test(test_random_against_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
