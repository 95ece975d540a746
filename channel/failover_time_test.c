/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/testkit.h"

/* Rules of time: hold-down and flap damping, own stalls, a peer whose process is stalled. */

/* What the sender of testkit.h has. */
static const int64_t HOLD_DOWN = 100 * DR_NS_PER_MS;

/* The active path fails and is fenced; the receiver answers on the other one. */
static void switch_over(int64_t t)
{
	unsigned p = f.active, q = !p;

	dr_fo_path_failed(&f, dr_fo_conn(p, f.path[p].gen), DR_SCOPE_PATH, -ECONNRESET, "test", t);
	assert_int_equal(f.target, q); /* at once, however often it flapped */
	dr_fo_fenced(&f, p, f.path[p].gen, t);
	frame(DR_FRAME_ANSWER, f.epoch, q, f.path[q].gen, f.acked, 0, t);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.active, q);
	done();
}

static void redial(unsigned p, int64_t t)
{
	f.path[p].retry_ns = t; /* whatever the back-off of dials is */
	dr_fo_tick(&f, t);
	assert_int_equal(f.path[p].state, DR_FOP_CONNECTING);
	dr_fo_path_ready(&f, p, f.path[p].gen, t);
	done();
}

/* The primary is READY since t: how long until the drain of the failback begins. */
static int64_t held_down(int64_t t)
{
	for (int64_t now = t;; now += MS) {
		assert_true(now < t + 100 * HOLD_DOWN);
		dr_fo_tick(&f, now);
		if (f.state != DR_FO_RUN)
			return now - t;
		done();
	}
}

static void failed_back(int64_t t)
{
	assert_int_equal(f.state, DR_FO_SWITCH); /* nothing is outstanding: no drain */
	assert_true(f.planned);
	frame(DR_FRAME_ANSWER, f.epoch, 0, f.path[0].gen, f.acked, 0, t);
	assert_int_equal(f.active, 0);
	done();
}

/* A flap: the primary fails `after` its failback at t, and is READY again at the time that is returned. */
static int64_t flap(int64_t t, int64_t after)
{
	switch_over(t + after);
	redial(0, t + after + 25 * MS);
	return t + after + 25 * MS;
}

static void sender_after_failback(int64_t *t)
{
	sender_running(0);
	*t = flap(10 * MS, 0);
	*t += held_down(*t);
	failed_back(*t);
}

/* Each failure within half a hold-down of a failback doubles the next one, up to 64 times. */
static void flaps_double_the_hold_down(void **state)
{
	int64_t t;

	(void)state;
	sender_after_failback(&t);
	for (unsigned i = 1; i <= 8; i++) {
		t = flap(t, HOLD_DOWN / 2 - MS);
		assert_int_equal(f.penalty, DR_MIN(i, 6u));
		t += held_down(t);
		assert_in_range(t - f.path[0].ready_ns, HOLD_DOWN << DR_MIN(i, 6u),
			(HOLD_DOWN << DR_MIN(i, 6u)) + MS);
		failed_back(t);
	}
}

static void late_failure_is_no_flap(void **state)
{
	int64_t t;

	(void)state;
	sender_after_failback(&t);
	t = flap(t, HOLD_DOWN / 2);
	assert_int_equal(f.penalty, 0);
	assert_in_range(held_down(t), HOLD_DOWN, HOLD_DOWN + MS);
}

/* The shadow that fails soon after the primary did is no flap of the primary. */
static void shadow_that_fails_is_no_flap(void **state)
{
	int64_t t;

	(void)state;
	sender_after_failback(&t);
	switch_over(t + 10 * MS);
	assert_int_equal(f.penalty, 1);
	redial(0, t + 35 * MS);
	switch_over(t + 40 * MS);
	assert_int_equal(f.active, 0);
	assert_int_equal(f.penalty, 1);
}

/* A primary whose rail is reported down, or without failback, is not gone back to. */
static void failback_needs_a_rail_that_works(void **state)
{
	int64_t t;

	(void)state;
	sender_running(0);
	t = flap(10 * MS, 0);
	dr_fo_rail(&f, 0, false, t);
	for (int64_t now = t; now < t + 3 * HOLD_DOWN; now += 10 * MS) {
		dr_fo_tick(&f, now);
		assert_int_equal(f.state, DR_FO_RUN);
		done();
	}
	dr_fo_rail(&f, 0, true, t + 3 * HOLD_DOWN);
	assert_int_equal(f.path[0].state, DR_FOP_READY);
	dr_fo_tick(&f,
		t + 4 * HOLD_DOWN - MS); /* the hold-down began then, although the path was up */
	assert_int_equal(f.state, DR_FO_RUN);
	dr_fo_tick(&f, t + 4 * HOLD_DOWN);
	assert_int_equal(f.state, DR_FO_SWITCH);
	done();
}

/* ---- our own stalls ---- */

static const int64_t STALL = 60 * DR_NS_PER_S;

static void own_stall_is_no_time_without_paths(void **state)
{
	(void)state;
	sender_running(0);
	for (unsigned p = 0; p < DR_PATHS; p++) {
		dr_fo_path_failed(&f, dr_fo_conn(p, 1), DR_SCOPE_RAIL, -ENETDOWN, "test", 10 * MS);
		dr_fo_fenced(&f, p, 1, 10 * MS);
	}
	f.n_act = 0;
	dr_fo_own_stall(&f, STALL, STALL + 10 * MS);
	dr_fo_tick(&f, STALL + 1509 * MS);
	assert_int_not_equal(f.state, DR_FO_DEAD);
	done();
	dr_fo_tick(&f, STALL + 1510 * MS);
	assert_int_equal(f.err, -ENETDOWN);
}

static void own_stall_is_no_time_of_a_dial(void **state)
{
	(void)state;
	start(true);
	done();
	dr_fo_own_stall(&f, STALL, STALL + 10 * MS);
	dr_fo_tick(&f, STALL + 999 * MS);
	assert_int_equal(f.path[0].state, DR_FOP_CONNECTING);
	assert_null(find(DR_FOA_FENCE, 0));
	done();
	dr_fo_tick(&f, STALL + 1001 * MS);
	assert_non_null(find(DR_FOA_FENCE, 0));
	done();
}

static void own_stall_is_no_time_of_a_fence(void **state)
{
	(void)state;
	sender_running(1);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
	done();
	dr_fo_own_stall(&f, STALL, STALL + 10 * MS);
	dr_fo_tick(&f, STALL + 1009 * MS);
	assert_int_not_equal(f.state, DR_FO_DEAD);
	f.n_act = 0;
	dr_fo_tick(&f, STALL + 1011 * MS);
	assert_int_equal(f.err, -EIO);
}

static void own_stall_is_no_time_without_an_answer(void **state)
{
	(void)state;
	sender_running(1);
	drop_path(0, 1, 10 * MS);
	done();
	dr_fo_own_stall(&f, STALL, STALL + 10 * MS);
	dr_fo_tick(&f, STALL + 509 * MS);
	assert_int_equal(f.epoch, 2);
	assert_int_equal(f.path[1].state, DR_FOP_READY);
	f.n_act = 0;
	dr_fo_tick(&f, STALL + 511 * MS);
	assert_int_equal(f.epoch, 3);
	done();
}

static void own_stall_is_no_time_of_a_switch_or_drain(void **state)
{
	(void)state;
	receiver_running(1);
	drop_path(0, 1, MS);
	done();
	dr_fo_own_stall(&f, STALL, STALL + 10 * MS);
	dr_fo_tick(&f, STALL + 30000 * MS);
	assert_int_equal(f.state, DR_FO_NOTIFY);
	f.n_act = 0;
	dr_fo_tick(&f, STALL + 30001 * MS);
	assert_int_equal(f.err, -ETIMEDOUT);

	sender_running(1);
	assert_int_equal(dr_fo_switch_now(&f, 10 * MS), 0);
	dr_fo_own_stall(&f, STALL, STALL + 10 * MS);
	dr_fo_tick(&f, STALL + 1009 * MS);
	assert_int_equal(f.state, DR_FO_DRAIN);
	dr_fo_tick(&f, STALL + 1010 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	done();
}

/* What was read first, when the end went on, began after the stall: its time is not longer for it. */
static void own_stall_extends_nothing_that_began_after_it(void **state)
{
	const int64_t t = STALL + 10 * MS;

	(void)state;
	sender_running(1);
	for (unsigned p = 0; p < DR_PATHS; p++)
		dr_fo_path_failed(&f, dr_fo_conn(p, 1), DR_SCOPE_PATH, -ECONNRESET, "test", t);
	dr_fo_own_stall(&f, STALL, t);
	assert_int_equal(f.nopath_ns, t);
	assert_int_equal(f.since_ns, t);
	assert_int_equal(f.proposed_ns, t);
	assert_true(f.tick_ns <= t && f.moved_ns <= t);
	for (unsigned p = 0; p < DR_PATHS; p++) {
		assert_int_equal(f.path[p].deadline_ns, t + 1000 * MS);
		dr_fo_fenced(&f, p, 1, t);
	}
	f.n_act = 0;
	dr_fo_tick(&f, t + 1500 * MS);
	assert_int_equal(f.err, -ENETDOWN);
}

/* Time without acknowledgements: without the correction the tick after a stall counts 100 ms. */
static void own_stall_is_no_time_without_acknowledgement(void **state)
{
	int64_t t = 1;

	(void)state;
	sender_running(1);
	for (unsigned i = 0; i < 39; i++)
		dr_fo_tick(&f, t += 50 * MS);
	assert_in_range(f.stuck_ns, 1949 * MS, 1950 * MS);
	dr_fo_own_stall(&f, STALL, t + STALL);
	dr_fo_tick(&f, t += STALL + MS);
	assert_in_range(f.stuck_ns, 1950 * MS, 1951 * MS);
	assert_int_equal(f.epoch, 1);
	done();
}

/* ---- a peer whose process is stalled ---- */

static void stalled_peer_suspends_the_bound_of_a_switch(void **state)
{
	int64_t t = 10 * MS;

	(void)state;
	receiver_running(1);
	drop_path(0, 1, t);
	dr_fo_stalled(&f, true, t);
	for (; t < 100 * DR_NS_PER_S; t += 100 * MS) {
		f.n_act = 0;
		dr_fo_tick(&f, t);
		assert_int_equal(f.state, DR_FO_NOTIFY);
	}
	dr_fo_stalled(&f, false, t); /* it has the whole time again */
	f.n_act = 0;
	dr_fo_tick(&f, t + 29999 * MS);
	assert_int_equal(f.state, DR_FO_NOTIFY);
	f.n_act = 0;
	dr_fo_tick(&f, t + 30000 * MS);
	assert_int_equal(f.err, -ETIMEDOUT);
}

/* A receiver whose peer names no other path, and does not dial, has no other deadline. */
static void the_bound_of_a_switch_is_a_deadline(void **state)
{
	(void)state;
	start(false);
	f.prm.connector = false;
	dr_fo_path_ready(&f, 0, 1, 2);
	done();
	frame(DR_FRAME_SWITCH, 1, 0, 1, 0, 0, 3);
	assert_int_equal(f.state, DR_FO_RUN);
	done();
	dr_fo_path_ready(&f, 1, 1, 5 * MS);
	f.path[0].incoming = 2; /* dialled */
	frame(DR_FRAME_SWITCH, 2, 1, 7, 0, 0, 10 * MS);
	dr_fo_fenced(&f, 0, 1, 10 * MS);
	assert_int_equal(f.state, DR_FO_FENCE);
	assert_int_equal(f.path[0].state, DR_FOP_CONNECTING);
	assert_int_equal(dr_fo_deadline(&f), 30010 * MS);
	done();
	dr_fo_stalled(&f, true, 20 * MS);
	assert_int_equal(dr_fo_deadline(&f), DR_NEVER);
	dr_fo_stalled(&f, false, 20 * MS);
	dr_fo_tick(&f, dr_fo_deadline(&f));
	assert_int_equal(f.err, -ETIMEDOUT);
}

/* Also one that did not fail, but was fenced by a switch. */
static void a_path_that_worked_is_dialled_at_once(void **state)
{
	const int64_t t = 5 * DR_NS_PER_S;

	(void)state;
	start(false);
	dr_fo_path_ready(&f, 0, 1, 2);
	dr_fo_path_ready(&f, 1, 1, 2);
	done();
	frame(DR_FRAME_SWITCH, 1, 1, 1, 0, 0, 3);
	assert_int_equal(f.active, 1);
	drop_path(0, 1, 10 * MS);
	done();
	redial(0, 40 * MS);
	frame(DR_FRAME_SWITCH, 2, 0, 2, 0, 0, 50 * MS);
	dr_fo_fenced(&f, 1, 1, 50 * MS);
	assert_int_equal(f.active, 0);
	assert_true(f.path[0].backoff_ns > 0);
	redial(1, 80 * MS);
	frame(DR_FRAME_SWITCH, 3, 1, 2, 0, 0, t);
	dr_fo_fenced(&f, 0, 2, t);
	assert_int_equal(f.active, 1);
	assert_int_equal(f.path[0].retry_ns, t);
	done();
}

/* Also when it is told again and again. */
static void peer_that_is_not_stalled_gets_no_more_time(void **state)
{
	(void)state;
	receiver_running(1);
	drop_path(0, 1, 0);
	for (int64_t t = 100 * MS; t <= 30000 * MS; t += 100 * MS) {
		assert_int_equal(f.state, DR_FO_NOTIFY);
		dr_fo_stalled(&f, false, t);
		f.n_act = 0;
		dr_fo_tick(&f, t);
	}
	assert_int_equal(f.err, -ETIMEDOUT);
}

/* A path that the stalled peer did not answer on is no worse for that. */
static void stalled_peer_owes_no_answer(void **state)
{
	int64_t t = 10 * MS;

	(void)state;
	sender_running(1);
	drop_path(0, 1, t);
	dr_fo_stalled(&f, true, t);
	for (; t < 60 * DR_NS_PER_S; t += 100 * MS) {
		f.n_act = 0;
		dr_fo_tick(&f, t);
		assert_int_equal(f.epoch, 2);
	}
	dr_fo_stalled(&f, false, t);
	f.n_act = 0;
	dr_fo_tick(&f, t + 499 * MS);
	assert_int_equal(f.epoch, 2);
	f.n_act = 0;
	dr_fo_tick(&f, t + 500 * MS);
	assert_int_equal(f.epoch, 3);
	done();
}

/* What a peer that stands does not read fills its buffer, what it does not accept its backlog. */
static void stalled_peer_gets_little(void **state)
{
	unsigned switches = 0;
	int64_t t = 10 * MS;

	(void)state;
	sender_running(1);
	dr_fo_stalled(&f, true, t);
	drop_path(0, 1, t);
	for (; t < 60 * DR_NS_PER_S; t += 10 * MS) {
		f.n_act = 0;
		dr_fo_tick(&f, t);
		assert_null(find(DR_FOA_CONNECT, 0));
		switches += sent(DR_FRAME_SWITCH, 1) != NULL;
		assert_true(dr_fo_deadline(&f) > t);
	}
	assert_in_range(switches, 100, 120);
	f.n_act = 0;
	dr_fo_stalled(&f, false, t);
	assert_true(dr_fo_deadline(&f) <= t + 20 * MS);
	dr_fo_tick(&f, t);
	assert_non_null(sent(DR_FRAME_SWITCH, 1));
	assert_non_null(find(DR_FOA_CONNECT, 0));
	done();
}

/* Both paths broke while the peer stood: it is waited for, and has the time of a lost path when
 * it goes on. */
static void stalled_peer_needs_no_path(void **state)
{
	for (unsigned sends = 0; sends < 2; sends++) {
		int64_t t = 10 * MS;

		(void)state;
		if (sends)
			sender_running(1);
		else
			receiver_running(1);
		dr_fo_stalled(&f, true, t);
		for (unsigned p = 0; p < DR_PATHS; p++) {
			f.n_act = 0;
			drop_path(p, 1, t);
		}
		for (; t < 300 * DR_NS_PER_S; t += 100 * MS) {
			f.n_act = 0;
			dr_fo_tick(&f, t);
			assert_int_not_equal(f.state, DR_FO_DEAD);
		}
		f.n_act = 0;
		dr_fo_stalled(&f, false, t);
		dr_fo_tick(&f, t + f.prm.lost_after_ns - 1);
		assert_int_not_equal(f.state, DR_FO_DEAD);
		assert_non_null(find(DR_FOA_CONNECT, 0));
		assert_non_null(find(DR_FOA_CONNECT, 1));
		f.n_act = 0;
		dr_fo_tick(&f, t + f.prm.lost_after_ns);
		assert_int_equal(f.err, -ENETDOWN);
		f.n_act = 0;
	}
}

static void stalled_peer_owes_no_acknowledgement(void **state)
{
	(void)state;
	sender_running(1);
	dr_fo_stalled(&f, true, 5 * MS);
	for (int64_t t = 10 * MS; t < 60 * DR_NS_PER_S; t += 50 * MS)
		dr_fo_tick(&f, t);
	assert_int_equal(f.stuck_ns, 0);
	assert_int_equal(f.epoch, 1);
	done();
}

/* ---- time without progress ---- */

/* It begins with the data that is owed, on the path that carries it. */
static void idle_time_is_no_time_without_progress(void **state)
{
	unsigned part, skip;
	uint64_t seq;

	(void)state;
	sender_running(0);
	for (int64_t t = 10 * MS; t < 10000 * MS; t += 50 * MS)
		dr_fo_tick(&f, t);
	assert_int_equal(dr_fo_push(&f, 1, &seq), 0);
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	dr_fo_posted(&f, 10000 * MS);
	assert_int_equal(f.moved_ns, 10000 * MS);
	done();
}

static void a_switch_begins_time_without_progress_anew(void **state)
{
	int64_t t = 1000 * MS;

	(void)state;
	sender_running(1);
	dr_fo_transport(&f, dr_fo_conn(0, 1), 0, 500 * MS, 15000 * MS, 500 * MS);
	assert_int_equal(f.patience_ns, 15000 * MS);
	drop_path(0, 1, t);
	done();
	frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, t);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.moved_ns, t);
	assert_int_equal(f.stuck_ns, 0);
	assert_int_equal(f.patience_ns, f.prm.stuck_after_ns);
	done();
}

/* Between two calls the transport's progress is dated by its last answer: the time before the first look at a
 * stall is part of it. */
static void progress_is_as_old_as_the_transports_last_answer(void **state)
{
	(void)state;
	sender_running(1);
	dr_fo_transport(&f, dr_fo_conn(0, 1), 1000, 460 * MS, 0, 500 * MS);
	assert_int_equal(f.moved_ns, 460 * MS);
	dr_fo_transport(
		&f, dr_fo_conn(0, 1), 2000, 460 * MS, 0, 510 * MS); /* it was not there at 500 */
	assert_int_equal(f.moved_ns, 500 * MS);
	dr_fo_transport(&f, dr_fo_conn(0, 1), 2000, 515 * MS, 0,
		520 * MS); /* something else was acknowledged */
	assert_int_equal(f.moved_ns, 500 * MS);
	dr_fo_transport(&f, dr_fo_conn(0, 1), 3000, 540 * MS, 0, 530 * MS);
	assert_int_equal(f.moved_ns, 530 * MS);
	done();
}

/* A path that comes up while its rail is down proves nothing about the rail; one that comes up later does. */
static void a_rail_that_is_up_again_works(void **state)
{
	(void)state;
	sender_running(0);
	dr_fo_rail(&f, 1, false, 5 * MS);
	assert_true(f.path[1].rail_down);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_RAIL, -ETIMEDOUT, "test", 5 * MS);
	dr_fo_fenced(&f, 1, 1, 5 * MS);
	dr_fo_rail(&f, 1, true, 10 * MS);
	done();
	dr_fo_tick(&f, 100 * MS);
	assert_int_equal(f.path[1].state, DR_FOP_CONNECTING);
	dr_fo_path_ready(&f, 1, f.path[1].gen, 101 * MS);
	assert_false(f.path[1].rail_down);
	done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flaps_double_the_hold_down),
		cmocka_unit_test(late_failure_is_no_flap),
		cmocka_unit_test(shadow_that_fails_is_no_flap),
		cmocka_unit_test(failback_needs_a_rail_that_works),
		cmocka_unit_test(own_stall_is_no_time_without_paths),
		cmocka_unit_test(own_stall_is_no_time_of_a_dial),
		cmocka_unit_test(own_stall_is_no_time_of_a_fence),
		cmocka_unit_test(own_stall_is_no_time_without_an_answer),
		cmocka_unit_test(own_stall_is_no_time_of_a_switch_or_drain),
		cmocka_unit_test(own_stall_is_no_time_without_acknowledgement),
		cmocka_unit_test(own_stall_extends_nothing_that_began_after_it),
		cmocka_unit_test(stalled_peer_suspends_the_bound_of_a_switch),
		cmocka_unit_test(the_bound_of_a_switch_is_a_deadline),
		cmocka_unit_test(a_path_that_worked_is_dialled_at_once),
		cmocka_unit_test(peer_that_is_not_stalled_gets_no_more_time),
		cmocka_unit_test(stalled_peer_owes_no_answer),
		cmocka_unit_test(stalled_peer_gets_little),
		cmocka_unit_test(stalled_peer_needs_no_path),
		cmocka_unit_test(stalled_peer_owes_no_acknowledgement),
		cmocka_unit_test(idle_time_is_no_time_without_progress),
		cmocka_unit_test(a_switch_begins_time_without_progress_anew),
		cmocka_unit_test(progress_is_as_old_as_the_transports_last_answer),
		cmocka_unit_test(a_rail_that_is_up_again_works),
	};

	return cmocka_run_group_tests_name("failover_time", tests, NULL, NULL);
}
