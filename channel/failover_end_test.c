/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/testkit.h"

/* What ends a channel and what does not, and fences that do not end. failover_close_test.c has how the peer is told. */

static void no_path_for_long_is_the_end(void **state)
{
	(void)state;
	sender_running(2);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_RAIL, -ENETDOWN, "test", 10 * MS);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_RAIL, -ENETDOWN, "test", 11 * MS);
	dr_fo_fenced(&f, 0, 1, 12 * MS);
	dr_fo_fenced(&f, 1, 1, 12 * MS);
	for (int64_t t = 20 * MS; t < 1505 * MS; t += 20 * MS) {
		f.n_act = 0;
		dr_fo_tick(&f, t);
		assert_int_not_equal(f.state, DR_FO_DEAD);
	}
	dr_fo_tick(&f, 1520 * MS);
	ended(-ENETDOWN, true);
}

/* The accepting end cannot dial. While no path carries GONE, datagrams do, until the peer dials. */
static void end_without_paths_asks_for_a_dial(void **state)
{
	unsigned asked = 0;

	(void)state;
	receiver_running(0);
	f.prm.connector = false;
	drop_path(1, 1, 10 * MS);
	assert_int_equal(sent(DR_FRAME_GONE, 0)->path, 1); /* another path carries it */
	assert_null(find(DR_FOA_DGRAM, 1));
	done();
	drop_path(0, 1, 20 * MS);
	assert_non_null(find(DR_FOA_DGRAM, 0));
	assert_int_equal(find_one(DR_FOA_DGRAM, 0)->frame.type, DR_FRAME_GONE);
	assert_int_equal(find_one(DR_FOA_DGRAM, 0)->frame.gen, 1);
	done();
	for (int64_t t = dr_fo_deadline(&f); t < 1020 * MS; t = dr_fo_deadline(&f)) {
		dr_fo_tick(&f, t);
		asked += !!find(DR_FOA_DGRAM, 0);
		done();
	}
	assert_int_equal(asked, 9);
	dr_fo_incoming(&f, 0, 2, 1020 * MS);
	dr_fo_path_ready(&f, 0, 2, 1021 * MS);
	done();
	dr_fo_tick(&f, dr_fo_deadline(&f));
	assert_null(find(DR_FOA_DGRAM, 1));
	f.prm.connector = true; /* for validate */
	done();
}

/* The idle path fails and its fence never ends. */
static void stuck_idle_path(void (*running)(unsigned))
{
	running(2);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
	assert_non_null(find(DR_FOA_FENCE, 1));
	assert_false(find_one(DR_FOA_PROTECTION, 1)->prot);
	done();
	for (int64_t t = 20 * MS; t < 60 * DR_NS_PER_S;) {
		if (f.prm.sender && t % DR_NS_PER_S == 0)
			dr_fo_own_stall(&f, MS, t);
		dr_fo_tick(&f, t);
		f.stuck_ns = 0;
		assert_int_equal(f.state, DR_FO_RUN);
		assert_null(find(DR_FOA_CONNECT, 1)); /* what it holds is not given to another */
		done();
		assert_true(dr_fo_deadline(&f) > t); /* no spin */
		t = DR_MIN(dr_fo_deadline(&f), t + 100 * MS);
	}
}

/* Invariant 6. The channel remains unprotected, and heals if the fence ends after all. */
static void idle_path_that_cannot_be_fenced_is_quarantined(void **state)
{
	const int64_t t = 61 * DR_NS_PER_S;

	(void)state;
	stuck_idle_path(sender_running);
	dr_fo_fenced(&f, 1, 1, t);
	dr_fo_tick(&f, t + 20 * MS);
	assert_int_equal(find_one(DR_FOA_CONNECT, 1)->gen, 2);
	done();
	dr_fo_path_ready(&f, 1, 2, t + 21 * MS);
	assert_true(find_one(DR_FOA_PROTECTION, 1)->prot);
	done();
	/* Without the heal the loss of the other path is the end, by the clock of lost paths. */
	stuck_idle_path(receiver_running);
	drop_path(0, 1, t);
	dr_fo_tick(&f, t + 1499 * MS);
	assert_int_not_equal(f.state, DR_FO_DEAD);
	dr_fo_tick(&f, t + 1501 * MS);
	assert_int_equal(f.err, -ENETDOWN);
}

/* Invariant 2. A path that cannot be fenced ends the channel if it holds a buffer of the user. */
static void path_that_holds_buffers_must_be_fenced(void **state)
{
	void (*const role[])(unsigned) = { sender_running, receiver_running };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		role[i](2);
		dr_fo_path_failed(
			&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
		done();
		frame(role[i] == sender_running ? DR_FRAME_ANSWER : DR_FRAME_SWITCH, 2, 1, 1, 0, 0,
			11 * MS);
		dr_fo_tick(&f, 1009 * MS);
		assert_int_not_equal(f.state, DR_FO_RUN);
		assert_int_not_equal(f.state, DR_FO_DEAD);
		dr_fo_tick(&f, 1011 * MS);
		assert_int_equal(f.err, -EIO);
	}
}

/* The path that was active held nothing: the switch goes on without its fence. */
static void empty_path_that_cannot_be_fenced_is_left(void **state)
{
	void (*const role[])(unsigned) = { sender_running, receiver_running };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		role[i](0);
		dr_fo_path_failed(
			&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
		done();
		frame(role[i] == sender_running ? DR_FRAME_ANSWER : DR_FRAME_SWITCH, 2, 1, 1, 0, 0,
			11 * MS);
		dr_fo_tick(&f, 1009 * MS);
		assert_int_not_equal(f.state, DR_FO_RUN); /* the fence may still end */
		done();
		dr_fo_tick(&f, 1011 * MS);
		assert_int_equal(f.state, DR_FO_RUN);
		assert_int_equal(f.active, 1);
		done();
	}
}

/* Invariant 5: rounds without progress are bounded. */
static void endless_switching_is_the_end(void **state)
{
	int64_t t = 10 * MS;

	(void)state;
	sender_running(1);
	for (unsigned i = 0; f.state != DR_FO_DEAD; i++, t += 10 * MS) {
		unsigned p = f.state == DR_FO_RUN ? f.active : f.target;

		assert_true(i <= DR_FO_ROUNDS_MAX);
		f.n_act = 0;
		dr_fo_path_failed(
			&f, dr_fo_conn(p, f.path[p].gen), DR_SCOPE_RAIL, -ENETDOWN, "test", t);
		dr_fo_fenced(&f, p, f.path[p].gen, t);
		dr_fo_rail(&f, p, false, t);
		dr_fo_rail(&f, p, true, t);
		dr_fo_tick(&f, t + 1); /* dials */
		dr_fo_path_ready(&f, p, f.path[p].gen, t + 2);
	}
	assert_int_equal(f.err, -ETIMEDOUT);
}

/* The active path fails, the switch to the other one is answered, and the first is dialled again. */
static void flap(uint64_t cut, int64_t t)
{
	unsigned p = f.active, q = !p;

	f.n_act = 0;
	drop_path(p, f.path[p].gen, t);
	if (f.state == DR_FO_DEAD)
		return;
	frame(DR_FRAME_ANSWER, f.epoch, q, f.path[q].gen, cut, 0, t + 1);
	assert_int_equal(f.state, DR_FO_RUN);
	done();
	dr_fo_tick(&f, t + 100 * MS); /* dials */
	dr_fo_path_ready(&f, p, f.path[p].gen, t + 101 * MS);
	done();
}

/* A channel that is idle, or whose receiver posts nothing, survives any number of completed switches. */
static void idle_channel_survives_thousands_of_flaps(void **state)
{
	uint64_t seq;

	(void)state;
	sender_running(0);
	f.prm.failback = false;
	for (int64_t i = 1; i <= 5000; i++) {
		flap(0, i * 10 * DR_NS_PER_S);
		assert_int_not_equal(f.state, DR_FO_DEAD);
		if (i == 2500)
			assert_int_equal(dr_fo_push(&f, 1, &seq), 0); /* no credit for it */
	}
}

/* What the receiver's cut says it has is progress, even if no acknowledgement arrives in between. */
static void a_cut_that_grows_is_progress(void **state)
{
	uint64_t seq;

	(void)state;
	sender_running(4);
	f.prm.failback = false;
	for (unsigned i = 1; i <= 3 * DR_FO_ROUNDS_MAX; i++) {
		flap(i, i * DR_NS_PER_S);
		assert_int_not_equal(f.state, DR_FO_DEAD);
		assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
		post_all(i * DR_NS_PER_S);
	}
}

/* Each switch completes, and the data that goes out afterwards never arrives. */
static void completed_switches_without_progress_are_bounded(void **state)
{
	unsigned i = 0;

	(void)state;
	sender_running(1);
	f.prm.failback = false;
	for (; f.state != DR_FO_DEAD; i++) {
		assert_true(i <= DR_FO_ROUNDS_MAX);
		flap(0, i * DR_NS_PER_S);
		post_all(i * DR_NS_PER_S);
	}
	assert_int_equal(f.err, -ETIMEDOUT);
	assert_int_equal(i, DR_FO_ROUNDS_MAX + 1);
}

/* The sender never answers the receiver's NOTIFY, although a path is up. */
static void switch_without_an_end_is_given_up(void **state)
{
	(void)state;
	receiver_running(1);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 1);
	for (int64_t t = 100 * MS; t < 30000 * MS; t += 100 * MS) {
		if (f.path[0].state == DR_FOP_FENCING)
			dr_fo_fenced(&f, 0, f.path[0].gen, t);
		dr_fo_tick(&f, t);
		assert_int_equal(f.state, DR_FO_NOTIFY);
		done();
	}
	dr_fo_tick(&f, 30001 * MS);
	assert_int_equal(f.err, -ETIMEDOUT);
}

/* Both paths are up, and the sender has not proposed one yet: only dials are due. */
static void receiver_waiting(unsigned n)
{
	(void)n;
	start(false);
	dr_fo_path_ready(&f, 0, 1, 2);
	dr_fo_path_ready(&f, 1, 1, 2);
	done();
}

/* Who only calls when it is due learns of the loss in time, although dials go on. */
static void loss_of_all_paths_is_a_deadline(void **state)
{
	void (*const role[])(unsigned) = { sender_running, receiver_running, receiver_waiting };
	int64_t t = 10 * MS;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(role); i++) {
		role[i](0);
		for (unsigned p = 0; p < DR_PATHS; p++)
			dr_fo_path_failed(
				&f, dr_fo_conn(p, 1), DR_SCOPE_RAIL, -ENETDOWN, "test", 10 * MS);
		for (t = 10 * MS; f.state != DR_FO_DEAD; t = dr_fo_deadline(&f)) {
			for (unsigned p = 0; p < DR_PATHS; p++)
				if (f.path[p].state == DR_FOP_FENCING)
					dr_fo_fenced(&f, p, f.path[p].gen, t);
			dr_fo_tick(&f, t);
			f.n_act = 0;
			assert_true(t <= 1510 * MS);
		}
		assert_int_equal(f.err, -ENETDOWN);
	}
}

/* The owner has a deadline for that. */
static void channel_that_was_never_up_does_not_end(void **state)
{
	(void)state;
	start(true);
	for (int64_t t = 10 * MS; t < 60 * DR_NS_PER_S; t += 100 * MS) {
		for (unsigned p = 0; p < DR_PATHS; p++) {
			dr_fo_path_failed(&f, dr_fo_conn(p, f.path[p].gen), DR_SCOPE_PATH,
				-ECONNREFUSED, "test", t);
			dr_fo_fenced(&f, p, f.path[p].gen, t);
		}
		dr_fo_tick(&f, t);
		assert_int_equal(f.state, DR_FO_START);
		f.n_act = 0;
	}
}

/* What is retired is not read any more, although the peer has not acknowledged it. */
static void retired_messages_hold_no_buffers(void **state)
{
	(void)state;
	sender_running(2);
	for (unsigned m = 0; m < 2; m++)
		for (unsigned part = 0; part < 2; part++)
			dr_fo_sent(&f, 0, 1, 1, m, part);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
	frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, 11 * MS);
	assert_int_equal(f.state, DR_FO_SWITCH);
	dr_fo_tick(&f, 1010 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.active, 1);
	done();
}

/* A first connection heals nothing, however late it comes and of whichever path it is; each later one does. */
static void first_connections_heal_nothing(void **state)
{
	(void)state;
	sender_running(2);
	assert_int_equal(f.heals, 0);
	for (uint32_t gen = 1; gen < 4; gen++) {
		int64_t t = gen * DR_NS_PER_S;

		drop_path(1, gen, t);
		dr_fo_tick(&f, t + 550 * MS);
		dr_fo_path_ready(&f, 1, gen + 1, t + 551 * MS);
		assert_int_equal(f.heals, gen);
		done();
	}
	start(true);
	done();
	dr_fo_path_ready(&f, 0, 1, 2);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNREFUSED, "test", 3);
	dr_fo_fenced(&f, 1, 1, 4);
	done();
	dr_fo_tick(&f, 550 * MS);
	dr_fo_path_ready(&f, 1, 2, 551 * MS); /* its second dial */
	assert_int_equal(f.path[1].state, DR_FOP_READY);
	assert_int_equal(f.heals, 0);
	done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_connections_heal_nothing),
		cmocka_unit_test(no_path_for_long_is_the_end),
		cmocka_unit_test(end_without_paths_asks_for_a_dial),
		cmocka_unit_test(idle_path_that_cannot_be_fenced_is_quarantined),
		cmocka_unit_test(path_that_holds_buffers_must_be_fenced),
		cmocka_unit_test(empty_path_that_cannot_be_fenced_is_left),
		cmocka_unit_test(endless_switching_is_the_end),
		cmocka_unit_test(idle_channel_survives_thousands_of_flaps),
		cmocka_unit_test(a_cut_that_grows_is_progress),
		cmocka_unit_test(completed_switches_without_progress_are_bounded),
		cmocka_unit_test(switch_without_an_end_is_given_up),
		cmocka_unit_test(loss_of_all_paths_is_a_deadline),
		cmocka_unit_test(channel_that_was_never_up_does_not_end),
		cmocka_unit_test(retired_messages_hold_no_buffers),
	};

	return cmocka_run_group_tests_name("failover_end", tests, NULL, NULL);
}
