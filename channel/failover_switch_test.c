/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/testkit.h"

/* Rules of dials, answers, drains and records: what happens around a switch. */

/* Dials that fail: 10 ms, doubled up to 500 ms; from the beginning when the rail is heard again, or after a
 * connection that lived. */
static void dials_back_off(void **state)
{
	static const int64_t pause[] = { 0, 10, 20, 40, 80, 160, 320, 500, 500 };
	int64_t t = 2000 * MS;

	(void)state;
	sender_running(0);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNRESET, "test", t);
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < DR_ARRAY_LEN(pause); i++) {
			dr_fo_fenced(&f, 1, f.path[1].gen, t);
			assert_int_equal(f.path[1].retry_ns, t + pause[i] * MS);
			t += DR_MAX(pause[i], 20) * MS; /* another path is READY */
			dr_fo_tick(&f, t);
			assert_int_equal(f.path[1].state, DR_FOP_CONNECTING);
			dr_fo_path_failed(&f, dr_fo_conn(1, f.path[1].gen), DR_SCOPE_PATH,
				-ECONNREFUSED, "test", t);
			f.n_act = 0;
		}
		dr_fo_fenced(&f, 1, f.path[1].gen, t);
		dr_fo_rail(&f, 1, false, t);
		dr_fo_rail(&f, 1, true, t);
		assert_int_equal(f.path[1].retry_ns, t);
		t += 20 * MS;
		dr_fo_tick(&f, t);
		dr_fo_path_failed(
			&f, dr_fo_conn(1, f.path[1].gen), DR_SCOPE_PATH, -ECONNREFUSED, "test", t);
		f.n_act = 0;
	}
}

/* At the start the shadow waits for the primary, but not if the primary's rail is down: known before, or later. */
static void a_rail_that_is_down_delays_no_start(void **state)
{
	(void)state;
	for (unsigned later = 0; later < 2; later++) {
		start(true);
		if (!later)
			dr_fo_rail(&f, 0, false, 2 * MS);
		dr_fo_path_ready(&f, 1, 1, 3 * MS);
		dr_fo_tick(&f, 4 * MS);
		assert_int_equal(f.state, later ? DR_FO_START : DR_FO_SWITCH);
		if (later)
			dr_fo_rail(&f, 0, false, 5 * MS);
		dr_fo_tick(&f, 6 * MS);
		assert_int_equal(f.state, DR_FO_SWITCH);
		assert_int_equal(sent(DR_FRAME_SWITCH, 1)->path, 1);
		assert_int_equal(sent(DR_FRAME_SWITCH, 1)->flags, 0);
		done();
	}
}

/* A dial that was begun on a rail that was dead may wait for a second: it is begun again. */
static void rail_that_is_heard_again_is_dialled_again(void **state)
{
	(void)state;
	sender_running(0);
	dr_fo_rail(&f, 1, false, 10 * MS);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_RAIL, -ENETDOWN, "test", 10 * MS);
	dr_fo_fenced(&f, 1, 1, 10 * MS);
	dr_fo_tick(&f, 30 * MS);
	assert_int_equal(f.path[1].state, DR_FOP_CONNECTING);
	done();
	dr_fo_rail(&f, 1, true, 100 * MS);
	assert_non_null(find(DR_FOA_FENCE, 1));
	done();
	dr_fo_fenced(&f, 1, 2, 101 * MS);
	dr_fo_tick(&f, 121 * MS);
	assert_int_equal(find_one(DR_FOA_CONNECT, 1)->gen, 3);
	done();
	dr_fo_rail(&f, 1, true, 130 * MS); /* said again */
	assert_int_equal(f.path[1].state, DR_FOP_CONNECTING);
	done();
}

/* A dial that is heard late, of the connection that is up or of an older one, ends nothing. */
static void old_dial_changes_nothing(void **state)
{
	struct dr_fo before;

	(void)state;
	receiver_running(1);
	f.prm.connector = false;
	before = f;
	dr_fo_incoming(&f, 0, 1, 10 * MS);
	dr_fo_incoming(&f, 0, 0, 10 * MS);
	assert_memory_equal(&before, &f, sizeof(f));
	dr_fo_incoming(&f, 0, 2, 10 * MS);
	assert_non_null(find(DR_FOA_FENCE, 0));
	f.prm.connector = true; /* for validate */
	done();
}

/* A further fault during the switch belongs to its record; a failback is counted as one. */
static void record_of_a_switch_with_two_faults(void **state)
{
	(void)state;
	sender_running(0);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_RAIL, -ENETDOWN, "first", 10 * MS);
	dr_fo_fenced(&f, 0, 1, 11 * MS);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNRESET, "second", 15 * MS);
	dr_fo_fenced(&f, 1, 1, 16 * MS);
	f.n_act = 0;
	dr_fo_tick(&f, 30 * MS);
	dr_fo_path_ready(&f, 1, 2, 31 * MS);
	f.n_act = 0;
	frame(DR_FRAME_ANSWER, 3, 1, 2, 0, 0, 32 * MS);
	assert_non_null(find(DR_FOA_SWITCHED, 1));
	assert_int_equal(f.done.detect_ns, 10 * MS);
	assert_int_equal(f.done.scope, DR_SCOPE_RAIL);
	assert_string_equal(f.done.cause, "first");
	assert_int_equal(f.done.rounds, 2);
	assert_int_equal(f.done.from, 0);
	assert_int_equal(f.done.to, 1);
	done();
	dr_fo_path_ready(&f, 0, 2, 40 * MS);
	f.n_act = 0;
	dr_fo_tick(&f, 140 * MS);
	frame(DR_FRAME_ANSWER, 4, 0, 2, 0, 0, 141 * MS);
	assert_true(f.done.planned);
	assert_int_equal(f.switches, 1);
	assert_int_equal(f.failbacks, 1);
	done();
}

/* The receiver found the fault itself; that the sender asks for the switch then changes nothing. */
static void record_of_a_switch_that_the_receiver_began(void **state)
{
	(void)state;
	receiver_running(1);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_RAIL, -ENETDOWN, "own", 10 * MS);
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 15 * MS);
	dr_fo_fenced(&f, 0, 1, 20 * MS);
	f.n_act = 0;
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(1, 1), 2, 0, 0, 30 * MS), 0);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(1, 1), 2, 0, 1, 31 * MS), 1);
	assert_non_null(find(DR_FOA_SWITCHED, 1));
	assert_true(f.done.self_detected);
	assert_int_equal(f.done.detect_ns, 10 * MS);
	assert_string_equal(f.done.cause, "own");
	assert_int_equal(f.done.fenced_ns, 20 * MS);
	assert_int_equal(f.done.first_delivery_ns, 31 * MS);
	done();
}

/* The path that was answered on fails while the own fence still runs: the answer is void. */
static void answer_on_a_path_that_fails_is_void(void **state)
{
	(void)state;
	sender_running(2);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
	frame(DR_FRAME_ANSWER, 2, 1, 1, 1, 0, 11 * MS);
	assert_true(f.answered);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 12 * MS);
	assert_int_equal(f.epoch, 3);
	assert_false(f.answered);
	dr_fo_fenced(&f, 0, 1, 13 * MS);
	dr_fo_fenced(&f, 1, 1, 13 * MS);
	assert_int_equal(f.state, DR_FO_SWITCH);
	assert_false(dr_fo_done(&f, 0));
	f.n_act = 0;
}

/* An ANSWER names a connection, here the second one: while it is dialled it is waited for, and then it is used. Any other
 * is gone, or this end does not know it yet. */
static void answer_names_a_connection(void **state)
{
	(void)state;
	for (unsigned k = 0; k < 6; k++) {
		uint32_t gen = 1 + k / 2;
		bool ready = k % 2;

		sender_running(1);
		drop_path(0, 1, 10 * MS);
		f.n_act = 0;
		dr_fo_tick(&f, 30 * MS);
		assert_int_equal(f.path[0].state, DR_FOP_CONNECTING);
		if (ready)
			dr_fo_path_ready(&f, 0, 2, 30 * MS);
		frame(DR_FRAME_ANSWER, 2, 0, gen, 0, 0, 31 * MS);
		assert_int_equal(f.epoch, gen == 2 ? 2 : 3);
		assert_int_equal(f.state, gen == 2 && ready ? DR_FO_RUN : DR_FO_SWITCH);
		assert_int_equal(f.state == DR_FO_RUN ? f.active : f.target, gen == 2 ? 0 : 1);
		done();
	}
}

/* The primary fails in the drain that is for it: messages go on at once. */
static void drain_ends_with_its_primary(void **state)
{
	unsigned part, skip;
	uint64_t seq;

	(void)state;
	sender_running(0);
	fail_over();
	heal();
	assert_int_equal(dr_fo_push(&f, 1, &seq), 0);
	dr_fo_posted(&f, 33 * MS);
	assert_int_equal(dr_fo_push(&f, 1, &seq), 0);
	dr_fo_tick(&f, 132 * MS);
	assert_int_equal(f.state, DR_FO_DRAIN);
	assert_false(dr_fo_next(&f, &seq, &part, &skip));
	dr_fo_path_failed(&f, dr_fo_conn(0, 2), DR_SCOPE_PATH, -ECONNRESET, "test", 140 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.active, 1);
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	done();
}

/* A drain that takes too long is given up; the next one waits for a hold-down. */
static void drain_that_was_given_up_waits(void **state)
{
	unsigned part, skip;
	uint64_t seq;

	(void)state;
	sender_running(0);
	fail_over();
	heal();
	assert_int_equal(dr_fo_push(&f, 1, &seq), 0);
	dr_fo_posted(&f, 33 * MS);
	dr_fo_tick(&f, 132 * MS);
	assert_int_equal(f.state, DR_FO_DRAIN);
	dr_fo_tick(&f, 1132 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(dr_fo_push(&f, 1, &seq), 0);
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	dr_fo_tick(&f, 1231 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	dr_fo_tick(&f, 1232 * MS);
	assert_int_equal(f.state, DR_FO_DRAIN);
	done();
}

/* The time for an answer runs from the proposal, not from the time when nothing could be proposed. */
static void time_for_an_answer_runs_from_the_proposal(void **state)
{
	(void)state;
	sender_running(1);
	for (unsigned p = 0; p < DR_PATHS; p++) {
		drop_path(p, 1, 10 * MS);
	}
	f.n_act = 0;
	dr_fo_tick(&f, 11 * MS);
	dr_fo_path_ready(&f, 1, 2, 600 * MS);
	assert_int_equal(sent(DR_FRAME_SWITCH, 1)->gen, 2);
	done();
	dr_fo_tick(&f, 1099 * MS);
	assert_int_equal(f.path[1].state, DR_FOP_READY);
	f.n_act = 0;
	dr_fo_tick(&f, 1100 * MS);
	assert_int_equal(f.path[1].state, DR_FOP_FENCING);
	f.n_act = 0;
}

/* A part that its message does not have fails the path. */
static void part_out_of_range_fails_the_path(void **state)
{
	(void)state;
	receiver_running(1);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 2, 5), -ESTALE);
	assert_int_equal(f.got, 0);
	assert_int_equal(f.path[0].state, DR_FOP_FENCING);
	assert_non_null(sent(DR_FRAME_NOTIFY, 1));
	done();
}

/* NOTIFY names the connection that failed, also if the sender had proposed another one. */
static void notify_names_the_connection_that_failed(void **state)
{
	(void)state;
	receiver_running(1);
	frame(DR_FRAME_SWITCH, 2, 1, 9, 0, 0, 10 * MS);
	dr_fo_fenced(&f, 0, 1, 11 * MS);
	f.n_act = 0;
	dr_fo_tick(&f, 31 * MS);
	dr_fo_path_ready(&f, 0, 2, 32 * MS);
	dr_fo_tick(&f, 42 * MS);
	assert_int_equal(sent(DR_FRAME_ANSWER, 1)->gen, 2);
	done();
	dr_fo_path_failed(&f, dr_fo_conn(0, 2), DR_SCOPE_PATH, -ECONNRESET, "test", 50 * MS);
	assert_int_equal(sent(DR_FRAME_NOTIFY, 1)->path, 0);
	assert_int_equal(sent(DR_FRAME_NOTIFY, 1)->gen, 2);
	done();
}

/* The message that was under way is sent again from its first part. */
static void replay_begins_with_the_cut(void **state)
{
	unsigned part, skip;
	uint64_t seq;

	(void)state;
	sender_running(0);
	assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
	dr_fo_posted(&f, 5); /* its part 0 */
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	assert_int_equal(part, 1);
	fail_over();
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	assert_int_equal(part, 0);
	done();
}

/* Only of the head message parts may be there already. */
static void parts_are_skipped_in_the_head_only(void **state)
{
	unsigned part, skip;
	uint64_t seq;

	(void)state;
	receiver_running(2);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 5), 0);
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 6);
	dr_fo_fenced(&f, 0, 1, 7);
	done();
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	assert_int_equal(skip, 2);
	dr_fo_posted(&f, 8);
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	assert_int_equal(seq, 1);
	assert_int_equal(skip, 0);
	done();
}

/* A record is open until something is delivered: with a planned switch before that, the failure stays in the record. */
static void a_failure_stays_one_when_a_planned_switch_follows(void **state)
{
	struct dr_frame fr = { .type = DR_FRAME_SWITCH, .epoch = 2, .path = 1, .gen = 1 };

	(void)state;
	receiver_running(2);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "reset", 9 * MS);
	dr_fo_frame(&f, 1, &fr, 10 * MS);
	dr_fo_fenced(&f, 0, 1, 11 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	fr.epoch = 3;
	fr.flags = DR_FRAME_PLANNED;
	dr_fo_frame(&f, 1, &fr, 500 * MS);
	assert_true(!f.rec.planned && f.rec.self_detected);
	assert_int_equal(f.rec.err, -ECONNRESET);
	assert_string_equal(f.rec.cause, "reset");
	f.n_act = 0;
}

/* A path that comes up and fails at once is not dialled without end: only a connection that lived for more than a
 * second resets the delay. */
static void flapping_connection_keeps_the_back_off(void **state)
{
	static const int64_t pause[] = { 0, 10, 20, 40 };
	int64_t t = 2000 * MS;

	(void)state;
	sender_running(0);
	for (size_t i = 0; i < DR_ARRAY_LEN(pause); i++) {
		uint32_t gen = f.path[1].gen;

		drop_path(1, gen, t);
		assert_int_equal(f.path[1].retry_ns, t + pause[i] * MS);
		t += DR_MAX(pause[i], 20) * MS; /* another path is READY */
		dr_fo_tick(&f, t);
		dr_fo_path_ready(&f, 1, gen + 1, t);
		assert_int_equal(f.path[1].state, DR_FOP_READY);
		done();
		t += 1000 * MS;
	}
	t += MS;
	drop_path(1, f.path[1].gen, t);
	assert_int_equal(f.path[1].retry_ns, t);
	done();
}

/* GONE names a connection: one that was replaced since changes nothing. */
static void gone_of_an_older_connection_changes_nothing(void **state)
{
	(void)state;
	sender_running(0);
	drop_path(1, 1, 10 * MS);
	dr_fo_tick(&f, 30 * MS);
	dr_fo_path_ready(&f, 1, 2, 31 * MS);
	done();
	frame(DR_FRAME_GONE, 1, 1, 1, 0, 0, 40 * MS);
	assert_int_equal(f.path[1].state, DR_FOP_READY);
	assert_null(find(DR_FOA_FENCE, 1));
	frame(DR_FRAME_GONE, 1, 1, 2, 0, 0, 50 * MS);
	assert_non_null(find(DR_FOA_FENCE, 1));
	done();
}

/* A switch is complete before a failback begins, so that each has its own record. */
static void a_failback_waits_for_the_end_of_the_switch_before_it(void **state)
{
	(void)state;
	sender_running(2);
	fail_over();
	post_all(12 * MS);
	heal();
	dr_fo_tick(&f, 140 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(dr_fo_switch_now(&f, 140 * MS), -EAGAIN);
	f.n_act = 0;
	frame(DR_FRAME_ACK, 2, 1, 1, 2, 0, 142 * MS);
	assert_non_null(find(DR_FOA_SWITCHED, 1));
	assert_true(!f.done.planned && f.done.from == 0 && f.done.to == 1);
	assert_int_equal(f.done.replayed_messages, 2);
	for (uint64_t seq = 0; seq < 2; seq++)
		for (unsigned part = 0; part < 2; part++)
			dr_fo_sent(&f, 1, 1, 2, seq, part);
	f.n_act = 0;
	dr_fo_tick(&f, 143 * MS);
	dr_fo_tick(&f, 143 * MS);
	assert_int_equal(f.state, DR_FO_SWITCH);
	frame(DR_FRAME_ANSWER, 3, 0, 2, 2, 0, 144 * MS);
	assert_true(f.done.planned && f.done.from == 1 && f.done.to == 0);
	assert_true(f.switches == 1 && f.failbacks == 1);
	f.n_act = 0;
}

/* A primary may fail during the drain, or the planned switch. */
static void a_failback_that_loses_its_path_ends(void **state)
{
	uint64_t seq;

	(void)state;
	for (unsigned drained = 0; drained < 2; drained++) {
		sender_running(0);
		fail_over();
		heal();
		assert_int_equal(dr_fo_push(&f, 1, &seq), 0);
		dr_fo_posted(&f, 33 * MS);
		dr_fo_tick(&f, 132 * MS);
		assert_int_equal(f.state, DR_FO_DRAIN);
		if (drained) {
			dr_fo_sent(&f, 1, 1, 2, 0, 0);
			frame(DR_FRAME_ACK, 2, 1, 1, 1, 0, 133 * MS);
			dr_fo_tick(&f, 133 * MS);
			assert_int_equal(f.state, DR_FO_SWITCH);
		}
		f.n_act = 0;
		drop_path(0, 2, 140 * MS);
		if (drained) {
			frame(DR_FRAME_ANSWER, 4, 1, 1, 1, 0, 141 * MS);
			assert_false(f.done.planned);
			assert_string_equal(f.done.cause, "a path failed during a planned switch");
		}
		assert_int_equal(f.state, DR_FO_RUN);
		f.n_act = 0;
	}
}

/* A receiver to which nothing was under way has no gap, and its switch is complete with the
 * answer. */
static void a_switch_of_an_idle_channel_has_no_gap(void **state)
{
	struct dr_frame fr = { .type = DR_FRAME_SWITCH, .epoch = 2, .path = 1, .gen = 1 };

	(void)state;
	for (unsigned c = 0; c < 4;
		c++) { /* bit 0: the sender has data; bit 1: a receive is posted */
		bool gap = c == 3;

		receiver_running(c >> 1);
		fr.flags = c & 1 ? 0 : DR_FRAME_IDLE;
		f.last_ns = 4;
		dr_fo_path_failed(
			&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "reset", 9 * MS);
		dr_fo_frame(&f, 1, &fr, 10 * MS);
		dr_fo_fenced(&f, 0, 1, 11 * MS);
		assert_int_equal(f.state, DR_FO_RUN);
		assert_int_equal(f.rec_open, gap);
		if (!gap) {
			assert_non_null(find(DR_FOA_SWITCHED, 1));
			assert_true(f.done.idle && f.done.to == 1);
			assert_int_equal(dr_switch_gap(&f.done), -1);
			assert_int_equal(f.done.answer_ns - f.done.detect_ns, 2 * MS);
		}
		f.n_act = 0;
	}
}

/* So has a sender that had nothing to send for some time. */
static void a_switch_of_an_idle_sender_is_idle(void **state)
{
	(void)state;
	for (unsigned c = 0; c < 4;
		c++) { /* bit 0: a message waits; bit 1: all was acknowledged lately */
		bool idle = c == 0;

		sender_running(c & 1);
		f.last_ns = c & 2 ? MS + 1 : MS;
		drop_path(0, 1, 11 * MS);
		assert_int_equal(sent(DR_FRAME_SWITCH, 1)->flags, idle ? DR_FRAME_IDLE : 0);
		frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, 12 * MS);
		assert_int_equal(f.rec_open ? f.rec.idle : f.done.idle, idle);
		f.n_act = 0;
	}
}

/* A message that waits for the path is not sent yet: nobody can have received it. */
static void acknowledgement_of_what_waits_is_a_lie(void **state)
{
	uint64_t seq;

	(void)state;
	sender_running(2);
	assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
	frame(DR_FRAME_ACK, 1, 0, 1, 3, 0, 10 * MS);
	assert_int_equal(f.err, -EPROTO);
	assert_int_equal(f.acked, 0);
	done();
}

/* A NOTIFY that was overtaken by the switch that it asked for says nothing of this epoch. */
static void notify_of_an_older_epoch_is_ignored(void **state)
{
	(void)state;
	sender_running(0);
	fail_over();
	assert_int_equal(f.active, 1);
	done();
	frame(DR_FRAME_NOTIFY, 1, 1, 1, 0, 0, 12 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.epoch, 2);
	assert_null(find(DR_FOA_FENCE, 1));
	done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_stays_one_when_a_planned_switch_follows),
		cmocka_unit_test(dials_back_off),
		cmocka_unit_test(a_rail_that_is_down_delays_no_start),
		cmocka_unit_test(rail_that_is_heard_again_is_dialled_again),
		cmocka_unit_test(old_dial_changes_nothing),
		cmocka_unit_test(record_of_a_switch_with_two_faults),
		cmocka_unit_test(record_of_a_switch_that_the_receiver_began),
		cmocka_unit_test(answer_on_a_path_that_fails_is_void),
		cmocka_unit_test(answer_names_a_connection),
		cmocka_unit_test(drain_ends_with_its_primary),
		cmocka_unit_test(drain_that_was_given_up_waits),
		cmocka_unit_test(time_for_an_answer_runs_from_the_proposal),
		cmocka_unit_test(part_out_of_range_fails_the_path),
		cmocka_unit_test(notify_names_the_connection_that_failed),
		cmocka_unit_test(replay_begins_with_the_cut),
		cmocka_unit_test(parts_are_skipped_in_the_head_only),
		cmocka_unit_test(flapping_connection_keeps_the_back_off),
		cmocka_unit_test(gone_of_an_older_connection_changes_nothing),
		cmocka_unit_test(a_failback_waits_for_the_end_of_the_switch_before_it),
		cmocka_unit_test(a_failback_that_loses_its_path_ends),
		cmocka_unit_test(a_switch_of_an_idle_channel_has_no_gap),
		cmocka_unit_test(a_switch_of_an_idle_sender_is_idle),
		cmocka_unit_test(acknowledgement_of_what_waits_is_a_lie),
		cmocka_unit_test(notify_of_an_older_epoch_is_ignored),
	};

	return cmocka_run_group_tests_name("failover_switch", tests, NULL, NULL);
}
