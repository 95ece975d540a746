/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

#include "base/log.h"
#include "transport/verbs/path_priv.h"

/* Filler of the verbs kind (transport/verbs/fill.c) on the emulated NICs. */

enum { CHUNK = 512 << 10, SLOW = 1000000 };

static struct dr_path_stats stats_of(const struct pair *p, unsigned end)
{
	struct dr_path_stats s = { 0 };

	dr_verbs_ops.stats(p->e[end].path, &s);
	return s;
}

static void fill(struct pair *p, uint32_t bytes)
{
	for (; bytes > 0; bytes -= DR_FILL_MAX)
		assert_int_equal(dr_verbs_ops.fill(p->e[S].path, DR_FILL_MAX), 0);
	dr_verbs_ops.flush(p->e[S].path, dr_now_ns());
}

/* What is posted from now on passes at once. */
static void open_with_slow_filler(struct pair *p)
{
	pair_init(p, true);
	pair_up(p);
	p->fake->rate("fake0", SLOW);
	fill(p, CHUNK);
	p->fake->rate("fake0", 0);
}

static void filler_holds_nothing_up(void **state)
{
	enum { FRAMES = 100 };
	struct pair p;

	(void)state;
	open_with_slow_filler(&p);
	pair_transfer(&p);
	for (unsigned i = 0; i < FRAMES; i++)
		for (unsigned end = 0; end < 2; end++) {
			int rc;

			pair_until(&p,
				(rc = dr_verbs_ops.post_ctrl(p.e[end].path, "x", 1)) != -EAGAIN);
			assert_int_equal(rc, 0);
			dr_verbs_ops.flush(p.e[end].path, dr_now_ns());
		}
	pair_until(&p, p.e[S].count[DR_EV_CTRL] == FRAMES && p.e[R].count[DR_EV_CTRL] == FRAMES);
	pair_until(&p, stats_of(&p, S).unacked_bytes == 0);
	assert_int_equal(stats_of(&p, S).fill_bytes, CHUNK);
	assert_true(stats_of(&p, S).fill_acked < CHUNK);
	assert_int_equal(stats_of(&p, S).acked_bytes, stats_of(&p, S).tx_bytes);
	assert_int_equal(stats_of(&p, R).fill_bytes, 0);
	assert_false(pair_any_failed(&p));
	pair_end(&p);
}

static void more_than_the_queue_takes_is_refused(void **state)
{
	unsigned n = CHUNK / DR_FILL_MAX;
	struct pair p;

	(void)state;
	open_with_slow_filler(&p);
	while (n < 100 && dr_verbs_ops.fill(p.e[S].path, DR_FILL_MAX) == 0)
		n++;
	assert_int_equal(dr_verbs_ops.fill(p.e[S].path, DR_FILL_MAX), -EAGAIN);
	assert_int_equal(n, VB_FILL_MAX / DR_FILL_MAX);
	dr_verbs_ops.flush(p.e[S].path, dr_now_ns());
	pair_transfer(&p);
	pair_end(&p);
}

/* No byte of it is in the user's memory, and the receiver learns how much it was. */
static void filler_is_written_to_no_buffer(void **state)
{
	struct pair p;

	(void)state;
	pair_init(&p, true);
	pair_up(&p);
	memset(p.e[R].mem, 0x5a, PAIR_MEM);
	memset(p.e[S].mem, 0xa5, PAIR_MEM);
	for (unsigned i = 1; i <= 40; i++) {
		fill(&p, CHUNK);
		pair_until(&p, stats_of(&p, S).fill_acked == (uint64_t)i * CHUNK &&
				       stats_of(&p, R).fill_bytes == (uint64_t)i * CHUNK);
	}
	assert_true(pair_untouched(&p, 0x5a));
	assert_int_equal(stats_of(&p, S).tx_bytes, 0);
	assert_int_equal(stats_of(&p, R).rx_bytes, 0);
	assert_false(pair_any_failed(&p));
	pair_end(&p);
}

/* Only what is sent behind nothing is a round trip. */
static void the_queue_is_not_in_the_round_trip(void **state)
{
	int64_t began = dr_now_ns(), first;
	struct pair p;

	(void)state;
	pair_init(&p, true);
	pair_up(&p);
	assert_int_equal(stats_of(&p, S).fill_rtt_ns, 0);
	assert_int_equal(stats_of(&p, S).window_ns,
		dr_verbs_window_ns(&vb_path_rail(vb_path(p.e[S].path))->vp));
	assert_true(stats_of(&p, S).polled);
	p.fake->rate("fake0", SLOW);
	p.fake->latency("fake0", 3 * DR_NS_PER_MS);
	fill(&p, DR_FILL_MAX);
	pair_until(&p, stats_of(&p, S).fill_rtt_ns > 0);
	first = stats_of(&p, S).fill_rtt_ns;
	assert_true(first >= 3 * DR_NS_PER_MS);
	fill(&p, DR_FILL_MAX);
	pair_until(&p, stats_of(&p, S).fill_acked == 2 * DR_FILL_MAX);
	assert_true(first < (dr_now_ns() - began) / 2);
	assert_int_equal(stats_of(&p, S).fill_rtt_ns, first);
	pair_end(&p);
}

static void filler_that_fails_is_named(void **state)
{
	struct pair p;

	(void)state;
	pair_init(&p, true);
	pair_up(&p);
	p.fake->status("fake0", 0, false, IBV_WC_REM_ACCESS_ERR, 0);
	fill(&p, CHUNK);
	pair_until(&p, p.e[S].failed);
	assert_int_equal(p.e[S].scope, DR_SCOPE_PATH);
	assert_non_null(strstr(p.e[S].text, "filler failed"));
	assert_int_equal(dr_verbs_ops.fill(p.e[S].path, 1), -ENOTCONN);
	pair_again(&p);
	fill(&p, CHUNK);
	pair_until(&p, stats_of(&p, R).fill_bytes == CHUNK);
	pair_end(&p);
}

/* One that is less than before, one that no run reaches, and one that came to the sender. */
static void a_wrong_total_fails_the_path(void **state)
{
	static const uint64_t wrong[] = { 1, DR_VERBS_FILLED_MAX + 1 };
	struct pair p;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		unsigned end = i == 2 ? S : R;

		pair_init(&p, true);
		pair_up(&p);
		fill(&p, DR_FILL_MAX);
		pair_until(&p, stats_of(&p, R).fill_bytes == DR_FILL_MAX);
		dr_verbs_fill_told(vb_path(p.e[end].path), i == 2 ? 2 * DR_FILL_MAX : wrong[i]);
		pair_until(&p, p.e[end].failed);
		assert_int_equal(p.e[end].err, -EPROTO);
		pair_end(&p);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filler_holds_nothing_up),
		cmocka_unit_test(more_than_the_queue_takes_is_refused),
		cmocka_unit_test(filler_is_written_to_no_buffer),
		cmocka_unit_test(the_queue_is_not_in_the_round_trip),
		cmocka_unit_test(filler_that_fails_is_named),
		cmocka_unit_test(a_wrong_total_fails_the_path),
	};

	dr_log_set_level(DR_LOG_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
