/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/rng.h"
#include "tests/exhaustive/search.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/*
 * A small scope of the search in a few seconds (make exhaustive searches a larger one), and whether
 * the search can be trusted: that a key leaves out nothing that matters, that broken rules are seen.
 */
static struct ex_scope scope(enum ex_personality kind, unsigned connector, unsigned faults)
{
	struct ex_scope sc = { .kind = kind,
		.connector = connector,
		.msgs = 2,
		.parts = { 2, 1 },
		.window = 2,
		.faults = faults,
		.dups = 1,
		.holds = 1,
		.frames = 4 };

	return sc;
}

/* With AddressSanitizer a search takes eight times as long, and the small ones run the same code. */
static void skip_if_slow(void)
{
#if defined(__SANITIZE_ADDRESS__)
	print_message("SKIP: a large search, which the release build runs\n");
	skip();
#endif
}

static void search_small(enum ex_personality kind, unsigned connector, unsigned parts)
{
	struct ex_scope sc = scope(kind, connector, 1);
	struct ex_limits lim = { .bytes = 512u << 20 };
	struct ex_result r;

	sc.parts[0] = parts;
	sc.msgs = parts;
	sc.prompt = true;
	ex_scope_init(&sc);
	assert_true(ex_search(&sc, &lim, stderr, &r));
	assert_true(r.complete);
	assert_true(r.done > 0);
	if (connector == EX_TX) /* else it takes two faults */
		assert_true(r.elsewhere > 0);
	print_message("# %s: %" PRIu64 " states, %" PRIu64 " transitions, depth %u\n",
		ex_personality_name(kind), r.states, r.transitions, r.depth);
}

static void test_search(void **state)
{
	const enum ex_personality *kind = *state;

	search_small(*kind, EX_RX, 1);
	skip_if_slow();
	search_small(*kind, EX_TX, 2);
}

/* Both rails cut: the channel ends at both ends, and such states are found. */
static void test_both_rails_lost(void **state)
{
	struct ex_scope sc = scope(EX_STREAM, EX_TX, 2);
	struct ex_limits lim = { .bytes = 512u << 20 };
	struct ex_result r;

	(void)state;
	skip_if_slow();
	sc.msgs = 1;
	sc.parts[0] = 1;
	sc.dups = sc.holds = 0;
	ex_scope_init(&sc);
	assert_true(ex_search(&sc, &lim, stderr, &r));
	assert_true(r.complete);
	assert_true(r.dead > 0);
}

static struct ex_scope clock_scope(enum ex_personality kind, unsigned faults, unsigned may)
{
	struct ex_scope sc = scope(kind, EX_TX, faults);

	sc.msgs = sc.parts[0] = 1;
	sc.dups = sc.holds = 0;
	sc.clock = true;
	sc.may = may;
	sc.hold_ns = 100 * DR_NS_PER_MS;
	sc.lost_ns = sc.stuck_ns = 300 * DR_NS_PER_MS;
	sc.stop_ns = 400 * DR_NS_PER_MS;
	return sc;
}

static void search_clock(struct ex_scope *sc, struct ex_result *sum)
{
	struct ex_limits lim = { .bytes = 512u << 20 };
	struct ex_result r;

	ex_scope_init(sc);
	assert_true(ex_search(sc, &lim, stderr, &r));
	assert_true(r.complete);
	for (unsigned i = 0; i < EX_TR_KINDS; i++)
		sum->seen[i] += r.seen[i];
	for (unsigned i = 0; i < EX_RARES; i++)
		sum->rare[i] += r.rare[i];
}

/* Each kind of step that needs the clock is taken, and each rule of time has an effect. */
static void test_clock(void **state)
{
	struct ex_result sum = { .states = 0 };
	struct ex_scope sc;

	(void)state;
	skip_if_slow();
	for (unsigned kind = 0; kind < EX_PERSONALITIES; kind++) {
		sc = clock_scope(kind, 2, EX_MAY_BREAK | EX_MAY_HANG);
		search_clock(&sc, &sum);
		sc = clock_scope(kind, 1, EX_MAY_STOP);
		search_clock(&sc, &sum);
	}
	sc = clock_scope(EX_STREAM, 0, 0); /* any number of flaps, without an end */
	sc.idle = sc.flaps = true;
	sc.stride_ns = 200 * DR_NS_PER_MS;
	sc.hold_ns = 20 * DR_NS_PER_MS;
	search_clock(&sc, &sum);
	sc = clock_scope(EX_REMOTE_WRITE, 1, EX_MAY_CUT);
	search_clock(&sc, &sum);
	sc = clock_scope(EX_REMOTE_WRITE, 0, 0);
	sc.grey = true;
	sc.rounds = 61;
	search_clock(&sc, &sum);
	sc = clock_scope(EX_REMOTE_WRITE, 2, EX_MAY_BREAK | EX_MAY_STOP);
	sc.told = 2;
	sc.stop_ns = 31 * DR_NS_PER_S;
	sc.stride_ns = 31 * DR_NS_PER_S;
	search_clock(&sc, &sum);
	for (unsigned i = EX_TIME; i <= EX_HANG; i++)
		if (sum.seen[i] == 0)
			fail_msg("no step of kind %u", i);
	for (unsigned i = 0; i < EX_RARES; i++) /* flaps take long: exhaustive_main */
		if (sum.rare[i] == 0 && i != EX_R_FLAPS && i != EX_R_CALM)
			fail_msg("result %u of the rules of time is not reached", i);
}

/* A core whose times are wrong is refused, in both directions. */
static void test_broken_times_are_seen(void **state)
{
	struct ex_scope sc = clock_scope(EX_STREAM, 1, EX_MAY_BREAK);
	const struct ex_tr tick = { .kind = EX_TICK }, later = { .kind = EX_TIME };
	static struct ex_state good, s;
	uint8_t key[EX_PACK_MAX];
	unsigned len;

	(void)state;
	ex_scope_init(&sc);
	ex_init(&sc, &good);
	assert_int_equal(good.fo[EX_TX].path[1].state, DR_FOP_CONNECTING);
	s = good;
	assert_null(ex_try(&sc, &s, &tick, key, &len));
	s = good; /* a dial is given up at once */
	s.fo[EX_TX].path[1].deadline_ns = EX_NOW;
	assert_non_null(ex_try(&sc, &s, &tick, key, &len));
	s = good; /* or too late */
	s.watch[EX_TX].path_ns[1] = DR_NS_PER_S;
	assert_non_null(ex_try(&sc, &s, &tick, key, &len));
	s = good; /* the channel ends early */
	s.fo[EX_TX].nopath_ns = EX_NOW - DR_NS_PER_S;
	assert_non_null(ex_try(&sc, &s, &tick, key, &len));
	s = good; /* data is owed for too long */
	s.watch[EX_TX].owed_ns = sc.stuck_ns + 50 * DR_NS_PER_MS;
	assert_non_null(ex_try(&sc, &s, &later, key, &len));
}

/* What the core writes and a key leaves out: after other values it must do the same. */
static void scribble(struct ex_state *s, struct dr_rng *rng)
{
	for (unsigned e = 0; e < 2; e++) {
		struct dr_fo *f = &s->fo[e];

		if (f->state == DR_FO_DEAD)
			continue;
		f->rec = (struct dr_switch_record){ .planned = dr_rng_below(rng, 2),
			.rounds = (uint32_t)dr_rng_below(rng, 100),
			.fenced_ns = (int64_t)dr_rng_below(rng, 100),
			.first_frame_ns = (int64_t)dr_rng_below(rng, 100) };
		if (!f->prm.sender) /* a sender's failback waits for it */
			f->rec_open = dr_rng_below(rng, 2);
		f->protected_told = dr_rng_below(rng, 2);
		f->switches = f->failbacks = f->heals = (uint32_t)dr_rng_below(rng, 1000);
		f->dup_dropped = f->stale_dropped = dr_rng_below(rng, 1000);
		for (unsigned p = 0; p < DR_PATHS; p++)
			f->path[p].was_up = dr_rng_below(rng, 2);
		memset(f->why, 'x', sizeof(f->why) - 1);
		for (unsigned i = 0; i < DR_CHANNEL_WINDOW_MAX; i++)
			if (i >= f->prm.window)
				f->posted[i] = f->retired[i] = f->n_parts[i] = 255;
	}
}

/*
 * Random walks. `old` lives through all of it: its epochs and generations grow, its records fill up.
 * In each state it is compared with one made from the key: the same transitions, and each of them
 * leads both to the same key.
 */
static void walk(const struct ex_scope *sc, struct dr_rng *rng, uint64_t *compared)
{
	static struct ex_state old, fresh, s;
	static uint8_t keys[EX_TRS_MAX][EX_PACK_MAX];
	uint8_t key[EX_PACK_MAX];
	struct ex_tr t[EX_TRS_MAX], u[EX_TRS_MAX];
	unsigned lens[EX_TRS_MAX], n, len, k, j;

	ex_init(sc, &old);
	for (unsigned step = 0; step < 200; step++) {
		bool used[EX_TRS_MAX] = { false };

		ex_pack(sc, &old, key);
		ex_unpack(sc, key, &fresh);
		scribble(&old, rng);
		n = ex_enabled(sc, &old, t);
		assert_int_equal(n, ex_enabled(sc, &fresh, u));
		for (k = 0; k < n; k++) {
			s = fresh;
			assert_null(ex_try(sc, &s, &u[k], keys[k], &lens[k]));
		}
		for (k = 0; k < n; k++) {
			s = old;
			assert_null(ex_try(sc, &s, &t[k], key, &len));
			/* Lanes without an order are sorted in the key: the index may differ. */
			for (j = 0; j < n; j++)
				if (!used[j] && u[j].kind == t[k].kind && lens[j] == len &&
					memcmp(keys[j], key, len) == 0)
					break;
			if (j == n)
				fail_msg("step %u: a transition of kind %u leads elsewhere", step,
					t[k].kind);
			used[j] = true;
			++*compared;
		}
		if (n == 0)
			return;
		k = (unsigned)dr_rng_below(rng, n);
		assert_null(ex_try(sc, &old, &t[k], key, &len));
	}
}

static void give_clock(struct ex_scope *sc, unsigned i)
{
	struct ex_scope with = clock_scope(sc->kind, 3, 63);

	with.connector = sc->connector;
	with.cold = sc->cold;
	with.idle = i % 2;
	with.flaps = i / 2 % 2;
	with.no_failback = i / 4 % 2;
	with.grey = i / 8 % 4 == 0;
	with.told = i / 8 % 3;
	with.stride_ns = i / 16 % 2 * 100 * DR_NS_PER_MS;
	*sc = with;
}

static void test_keys_leave_out_nothing(void **state)
{
	const char *env = getenv("SEED");
	uint64_t seed = env != NULL ? strtoull(env, NULL, 10) : (uint64_t)dr_wall_ns();
	struct dr_rng rng;
	uint64_t compared = 0;

	(void)state;
	print_message("# SEED=%" PRIu64 "\n", seed);
	dr_rng_seed(&rng, seed);
	for (unsigned i = 0; i < 1500; i++) {
		struct ex_scope sc = scope(i % EX_PERSONALITIES, i / 3 % 2, 3);

		sc.lazy = i / 6 % 2;
		sc.any_order = i / 12 % 2;
		sc.cold = i / 24 % 2;
		sc.late_users[0] = sc.late_users[1] = i / 48 % 2;
		if (i % 4 == 3)
			give_clock(&sc, i / 4);
		ex_scope_init(&sc);
		walk(&sc, &rng, &compared);
	}
	print_message("# %" PRIu64 " transitions compared\n", compared);
	assert_true(compared > 50000);
}

/* The checkers are no decoration: states that break the rules are refused. */
static void test_broken_states_are_seen(void **state)
{
	struct ex_scope sc = scope(EX_REMOTE_WRITE, EX_TX, 0);
	const struct ex_tr nothing = { .kind = EX_HEAL };
	static struct ex_state good, s;
	uint8_t key[EX_PACK_MAX];
	unsigned len;

	(void)state;
	ex_scope_init(&sc);
	ex_init(&sc, &good);
	s = good;
	assert_null(ex_try(&sc, &s, &nothing, key, &len));
	s = good; /* consumed before its turn */
	s.consumed |= 1u << 2;
	assert_non_null(ex_try(&sc, &s, &nothing, key, &len));
	s = good; /* the sender has its buffer back, the receiver has nothing */
	s.fo[EX_TX].head = s.fo[EX_TX].acked = s.fo[EX_TX].cursor = s.fo[EX_TX].high = 1;
	assert_non_null(ex_try(&sc, &s, &nothing, key, &len));
	s = good; /* a write in flight into a buffer that was given back */
	s.fo[EX_RX].head = s.fo[EX_RX].cursor = 1;
	s.consumed = 3;
	s.path[0].rx = s.path[1].rx = 0;
	s.path[1].lane[EX_L_DATA].n = 1;
	assert_non_null(ex_try(&sc, &s, &nothing, key, &len));
	s = good; /* two leaders */
	s.fo[EX_RX].epoch = s.fo[EX_TX].epoch + 1;
	assert_non_null(ex_try(&sc, &s, &nothing, key, &len));
	s = good; /* an assertion of the core itself */
	s.fo[EX_TX].acked = 2;
	assert_non_null(ex_try(&sc, &s, &nothing, key, &len));
}

int main(void)
{
	static enum ex_personality kind[] = { EX_STREAM, EX_REMOTE_WRITE, EX_PLUGIN };
	const struct CMUnitTest tests[] = {
		{ "test_stream", test_search, NULL, NULL, &kind[0] },
		{ "test_remote_write", test_search, NULL, NULL, &kind[1] },
		{ "test_plugin", test_search, NULL, NULL, &kind[2] },
		cmocka_unit_test(test_both_rails_lost),
		cmocka_unit_test(test_clock),
		cmocka_unit_test(test_broken_times_are_seen),
		cmocka_unit_test(test_keys_leave_out_nothing),
		cmocka_unit_test(test_broken_states_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
