/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/coord.h"

#include "base/mem.h"
#include "base/rng.h"
#include "orchestrator/fleet/progress.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Nodes that answer at once, unless a test says otherwise. Time is virtual. */
struct fleet {
	struct dr_coord c;
	int64_t now_ns;
	uint32_t n;
	uint8_t *mute; /* of each rank: says nothing any more */
	uint8_t *busy; /* runs a part */
	uint64_t runs, stops, looks;
	bool ended;
	uint32_t die; /* this rank is lost at its first run; n: none */
};

static void setup(struct fleet *f, uint32_t n, const struct dr_pattern_ops *pattern)
{
	const struct dr_coord_opts o = {
		.nodes = n, .pattern = pattern, .join_ns = 100, .pair_ns = 1000, .reviews = 1
	};

	*f = (struct fleet){ .n = n, .die = n };
	f->mute = dr_calloc(n, 1);
	f->busy = dr_calloc(n, 1);
	assert_int_equal(dr_coord_init(&f->c, &o, 0), 0);
}

static void teardown(struct fleet *f)
{
	dr_coord_fini(&f->c);
	dr_free(f->mute);
	dr_free(f->busy);
}

static void join_all(struct fleet *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (!f->mute[i])
			dr_coord_joined(&f->c, i, f->now_ns);
}

static void lose(struct fleet *f, uint32_t rank)
{
	f->mute[rank] = 1;
	f->busy[rank] = 0;
	dr_coord_lost(&f->c, rank, f->now_ns);
}

static void run_part(struct fleet *f, const struct dr_coord_action *a)
{
	struct dr_sweep_result *r = &f->c.result[a->result];

	f->runs++;
	if (!dr_coord_is_here(&f->c, a->rank)) /* lost since */
		return;
	assert_false(f->busy[a->rank]); /* invariant 1 */
	f->busy[a->rank] = 1;
	if (a->rank == f->die) {
		f->die = f->n;
		lose(f, a->rank);
		return;
	}
	/* A server waits for its client. */
	if (f->mute[a->rank] || (!a->client && f->mute[r->pair.client]))
		return;
	if (a->client && r->state == DR_SWEEP_RUNNING && dr_coord_expects(&f->c, a->result, true))
		r->state = f->mute[r->pair.server] ? DR_SWEEP_FAILED : DR_SWEEP_OK;
	f->busy[a->rank] = 0;
	dr_coord_done(&f->c, a->result, a->client, f->now_ns);
}

/* One action; false: there is none. */
static bool step(struct fleet *f)
{
	struct dr_coord_action a;

	if (!dr_coord_next(&f->c, &a))
		return false;
	if (a.act == DR_COORD_RUN) {
		run_part(f, &a);
	} else if (a.act == DR_COORD_STOP) {
		f->stops++;
		f->busy[a.rank] = 0;
		if (!f->mute[a.rank])
			dr_coord_done(&f->c, a.result, a.client, f->now_ns);
	} else if (a.act == DR_COORD_LOOK) {
		f->looks++;
		dr_coord_reviewed(&f->c, f->now_ns);
	} else {
		f->ended = true;
	}
	return true;
}

/* Until nothing happens without time. */
static void settle(struct fleet *f)
{
	while (step(f))
		;
}

static void run_all(struct fleet *f)
{
	settle(f);
	for (int turns = 0; !f->ended; turns++) {
		assert_true(
			turns < 100000 && dr_coord_deadline(&f->c) != DR_NEVER); /* invariant 4 */
		f->now_ns = dr_coord_deadline(&f->c);
		dr_coord_tick(&f->c, f->now_ns);
		settle(f);
	}
}

static size_t count(const struct fleet *f, enum dr_sweep_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < f->c.n_results; i++)
		n += f->c.result[i].state == state;
	return n;
}

static void all_pairs_are_measured_once(void **state)
{
	struct fleet f;

	(void)state;
	for (uint32_t n = 2; n < 20; n++) {
		setup(&f, n, &dr_pattern_all_pairs);
		join_all(&f);
		run_all(&f);
		assert_int_equal(count(&f, DR_SWEEP_OK), n * (n - 1) / 2);
		assert_int_equal(f.c.n_results, n * (n - 1) / 2);
		assert_int_equal(f.c.rounds, n % 2 ? n : n - 1);
		assert_int_equal(f.now_ns, 0);
		teardown(&f);
	}
}

static void who_does_not_come_is_worked_around(void **state)
{
	struct fleet f;

	(void)state;
	setup(&f, 6, &dr_pattern_all_pairs);
	f.mute[2] = 1;
	join_all(&f);
	run_all(&f);
	assert_int_equal(f.now_ns, 100);
	assert_int_equal(count(&f, DR_SWEEP_OK), 10);
	assert_int_equal(count(&f, DR_SWEEP_MISSING), 5);
	teardown(&f);
	setup(&f, 3, &dr_pattern_all_pairs);
	f.mute[1] = f.mute[2] = 1;
	join_all(&f);
	run_all(&f);
	assert_int_equal(f.runs, 0);
	teardown(&f);
}

static void a_node_that_dies_costs_its_pairs_only(void **state)
{
	struct fleet f;

	(void)state;
	for (uint32_t die = 0; die < 6; die++) {
		setup(&f, 6, &dr_pattern_all_pairs);
		join_all(&f);
		f.die = die;
		run_all(&f);
		assert_int_equal(count(&f, DR_SWEEP_OK), 10);
		assert_int_equal(count(&f, DR_SWEEP_MISSING), 5);
		assert_int_equal(count(&f, DR_SWEEP_FAILED), 0);
		assert_int_equal(f.now_ns, 0);
		teardown(&f);
	}
}

static void a_node_that_stops_answering_fails_its_pairs_in_time(void **state)
{
	struct fleet f;

	(void)state;
	setup(&f, 4, &dr_pattern_all_pairs);
	join_all(&f);
	f.mute[3] = 1;
	run_all(&f);
	assert_int_equal(count(&f, DR_SWEEP_OK), 3);
	assert_int_equal(count(&f, DR_SWEEP_FAILED), 3);
	assert_true(f.stops > 0 && f.now_ns <= 10000);
	teardown(&f);
}

/* 2: peers report failures before it is known to be dead. None of them counts. */
static void a_node_that_dies_silently_fails_no_pair(void **state)
{
	struct fleet f;

	(void)state;
	for (uint32_t dies = 1; dies <= 5; dies++)
		for (uint32_t rank = 0; rank < 6; rank++) {
			setup(&f, 6, &dr_pattern_all_pairs);
			join_all(&f);
			while (f.c.rounds < dies && step(&f))
				;
			f.mute[rank] = 1;
			settle(&f);
			assert_false(f.ended);
			f.now_ns += f.c.o.pair_ns / 2;
			dr_coord_tick(&f.c, f.now_ns);
			lose(&f, rank);
			run_all(&f);
			assert_int_equal(f.now_ns, f.c.o.pair_ns / 2);
			assert_int_equal(f.c.n_results, 15);
			assert_int_equal(count(&f, DR_SWEEP_FAILED), 0);
			assert_int_equal(count(&f, DR_SWEEP_MISSING), 6 - dies);
			teardown(&f);
		}
}

/* 3: its pairs are measured behind the others. */
static void a_node_that_comes_back_is_measured(void **state)
{
	struct fleet f;

	(void)state;
	setup(&f, 4, &dr_pattern_all_pairs);
	join_all(&f);
	lose(&f, 1);
	while (f.c.rounds < 2 && step(&f))
		;
	f.mute[1] = 0;
	dr_coord_joined(&f.c, 1, f.now_ns);
	run_all(&f);
	assert_int_equal(count(&f, DR_SWEEP_OK), 6);
	assert_true(f.c.rounds > 3);
	teardown(&f);
}

static void known_pairs_are_not_measured_again(void **state)
{
	struct fleet f;

	(void)state;
	setup(&f, 6, &dr_pattern_all_pairs);
	for (uint32_t a = 0; a < 6; a++)
		for (uint32_t b = a + 1; b < 6; b++)
			dr_coord_known(&f.c, (struct dr_sweep_pair){ b, a })->state =
				a == 4 || b == 4 ? DR_SWEEP_MISSING : DR_SWEEP_OK;
	join_all(&f);
	run_all(&f);
	assert_int_equal(f.runs, 2 * 5);
	assert_int_equal(count(&f, DR_SWEEP_OK), 15);
	assert_int_equal(f.c.n_results, 15);
	teardown(&f);
}

/* Losses, returns, silence and stops in any order: it ends, and no node is ever in two pairs. */
static void whatever_nodes_do_it_ends(void **state)
{
	const char *given = getenv("DR_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : 17;

	(void)state;
	printf("seed %llu\n", (unsigned long long)seed);
	for (uint64_t run = 0; run < 300; run++) {
		static const struct dr_pattern_ops *const all[] = { &dr_pattern_all_pairs,
			&dr_pattern_ring, &dr_pattern_bisection, &dr_pattern_one_to_all };
		struct dr_rng rng;
		struct fleet f;

		dr_rng_seed(&rng, seed + run);
		setup(&f, 2 + (uint32_t)dr_rng_below(&rng, 12), all[run % 4]);
		for (uint32_t i = 0; i < f.n; i++)
			f.mute[i] = dr_rng_chance(&rng, 1, 8) != 0;
		join_all(&f);
		for (int turns = 0; !f.ended; turns++) {
			uint32_t rank = (uint32_t)dr_rng_below(&rng, f.n);

			assert_true(turns < 10000);
			f.die = dr_rng_chance(&rng, 1, 4) ? rank : f.n;
			if (dr_rng_chance(&rng, 1, 5))
				lose(&f, rank);
			if (dr_rng_chance(&rng, 1, 5) && !f.busy[rank]) {
				f.mute[rank] = 0;
				dr_coord_joined(&f.c, rank, f.now_ns);
			}
			settle(&f);
			if (f.ended)
				break;
			f.now_ns = dr_coord_deadline(&f.c);
			dr_coord_tick(&f.c, f.now_ns);
			settle(&f);
		}
		assert_int_equal(count(&f, DR_SWEEP_RUNNING), 0);
		teardown(&f);
	}
}

static void it_can_be_stopped(void **state)
{
	struct fleet f;

	(void)state;
	setup(&f, 4, &dr_pattern_all_pairs);
	join_all(&f);
	dr_coord_stop(&f.c);
	settle(&f);
	assert_true(f.ended && f.stops == 4);
	assert_int_equal(count(&f, DR_SWEEP_RUNNING), 0);
	teardown(&f);
}

/* A line for each stage, and one per interval; none in between. */
/* All nodes are lost, and a signal comes before the question for a review is answered. */
static void it_can_be_stopped_in_a_review(void **state)
{
	struct fleet f;

	(void)state;
	setup(&f, 4, &dr_pattern_all_pairs);
	join_all(&f);
	for (uint32_t rank = 0; rank < f.n; rank++)
		lose(&f, rank);
	assert_int_equal(f.c.phase, DR_COORD_REVIEW);
	dr_coord_stop(&f.c);
	settle(&f);
	assert_int_equal(f.looks, 1);
	assert_true(f.ended);
	teardown(&f);
}

static void progress_is_told_and_bounded(void **state)
{
	struct dr_sweep_progress p;
	struct fleet f;
	char line[300];

	(void)state;
	setup(&f, 20, &dr_pattern_all_pairs);
	dr_sweep_progress_init(&p, 50, 0);
	assert_false(dr_sweep_progress_due(&p, &f.c, 49));
	dr_coord_joined(&f.c, 0, 49);
	assert_true(dr_sweep_progress_due(&p, &f.c, 50));
	dr_sweep_progress_line(&p, &f.c, 0.8, 50, line, sizeof(line));
	assert_string_equal(line,
		"1 of 20 nodes have joined; not yet: ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more");
	dr_sweep_progress_done(&p, 1, 50);
	assert_int_equal(dr_sweep_progress_deadline(&p), 100);
	assert_false(dr_sweep_progress_due(&p, &f.c, 99));
	f.mute[7] = 1;
	join_all(&f);
	dr_coord_tick(&f.c, 100); /* the time to join is over */
	assert_true(dr_sweep_progress_due(&p, &f.c, 100));
	dr_sweep_progress_line(&p, &f.c, 0.8, 100, line, sizeof(line));
	assert_string_equal(line,
		"round 1, 0 of 190 pairs measured, 0 failed, 0 low, 1 of 20 nodes missing; "
		"after 0 s");
	/* A line that took long is not repeated soon. */
	dr_sweep_progress_done(&p, 10, 100);
	assert_false(dr_sweep_progress_due(&p, &f.c, 299));
	assert_true(dr_sweep_progress_due(&p, &f.c, 300));
	run_all(&f);
	assert_false(dr_sweep_progress_due(&p, &f.c, INT64_MAX));
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(progress_is_told_and_bounded),
		cmocka_unit_test(all_pairs_are_measured_once),
		cmocka_unit_test(who_does_not_come_is_worked_around),
		cmocka_unit_test(a_node_that_dies_costs_its_pairs_only),
		cmocka_unit_test(a_node_that_stops_answering_fails_its_pairs_in_time),
		cmocka_unit_test(a_node_that_dies_silently_fails_no_pair),
		cmocka_unit_test(a_node_that_comes_back_is_measured),
		cmocka_unit_test(known_pairs_are_not_measured_again),
		cmocka_unit_test(whatever_nodes_do_it_ends),
		cmocka_unit_test(it_can_be_stopped),
		cmocka_unit_test(it_can_be_stopped_in_a_review),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
