/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/testkit.h"

/*
 * The core by hand: each test plays the paths and the peer, and looks at what the core wants done.
 * The simulation in tests/sim runs both ends against each other; here stand the single rules.
 * failover_switch_test.c has dials, answers and drains, failover_end_test.c what ends a channel.
 */

/* Invariant 3: the NIC's word completes nothing; invariant 2: nor does an acknowledgement before the
 * NIC has let go of the buffer. */
static void completion_needs_ack_and_retirement(void **state)
{
	(void)state;
	sender_running(2);
	dr_fo_sent(&f, 0, 1, 1, 0, 0);
	assert_false(dr_fo_sent_whole(&f, 0));
	dr_fo_sent(&f, 0, 1, 1, 0, 1);
	assert_true(dr_fo_sent_whole(&f, 0));
	assert_false(dr_fo_sent_whole(&f, 1));
	assert_false(dr_fo_done(&f, 0));
	frame(DR_FRAME_ACK, 1, 0, 1, 1, 0, 5);
	assert_true(dr_fo_done(&f, 0));
	frame(DR_FRAME_ACK, 1, 0, 1, 2, 0, 6);
	assert_false(dr_fo_done(&f, 1));
	dr_fo_sent(&f, 0, 1, 1, 1, 1);
	assert_false(dr_fo_done(&f, 1));
	dr_fo_sent(&f, 0, 1, 1, 1, 0);
	assert_true(dr_fo_done(&f, 1));
	done();
}

/* A completion of another epoch retires nothing, even of the same connection. */
static void completion_of_another_epoch_is_stale(void **state)
{
	(void)state;
	sender_running(1);
	dr_fo_sent(&f, 0, 1, 0, 0, 0);
	dr_fo_sent(&f, 0, 1, 0, 0, 1);
	frame(DR_FRAME_ACK, 1, 0, 1, 1, 0, 5);
	assert_false(dr_fo_done(&f, 0));
	assert_int_equal(f.stale_dropped, 2);
	retired(0);
	assert_true(dr_fo_done(&f, 0));
	done();
}

/* Invariants 2 and 4: nothing is completed or replayed before the own fence, then from the cut on. */
static void answer_waits_for_own_fence(void **state)
{
	unsigned part, skip;
	uint64_t seq;

	(void)state;
	sender_running(3);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10);
	assert_non_null(find(DR_FOA_FENCE, 0));
	assert_int_equal(sent(DR_FRAME_SWITCH, 1)->epoch, 2);
	assert_null(sent(DR_FRAME_SWITCH, 0));
	done();
	frame(DR_FRAME_ANSWER, 2, 1, 1, 1, 1, 11); /* message 0 there, of 1 part 0 */
	assert_int_equal(f.state, DR_FO_SWITCH);
	assert_false(dr_fo_done(&f, 0));
	assert_false(dr_fo_next(&f, &seq, &part, &skip));
	dr_fo_fenced(&f, 0, 1, 12);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_true(dr_fo_done(&f, 0));
	assert_false(dr_fo_done(&f, 1));
	assert_true(dr_fo_sent_whole(&f, 0));
	assert_false(dr_fo_sent_whole(&f, 1)); /* to be replayed */
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	assert_int_equal(seq, 1);
	assert_int_equal(part, 1); /* part 0 is not sent again */
	dr_fo_posted(&f, 13);
	assert_true(dr_fo_next(&f, &seq, &part, &skip));
	assert_int_equal(seq, 2);
	assert_int_equal(part, 0);
	done();
}

static void stale_frames_change_nothing(void **state)
{
	struct dr_fo before;

	(void)state;
	sender_running(3);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10);
	dr_fo_fenced(&f, 0, 1, 11);
	done();
	before = f;
	frame(DR_FRAME_ACK, 1, 0, 1, 3, 0, 12);
	frame(DR_FRAME_ANSWER, 1, 1, 1, 3, 0, 12);
	frame(DR_FRAME_NOTIFY, 1, 0, 1, 0, 0, 12);
	assert_memory_equal(&before, &f, sizeof(f));
	frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, 12);
	assert_int_equal(f.state, DR_FO_RUN);
	done();
	before = f;
	frame(DR_FRAME_ANSWER, 2, 1, 1, 2, 0, 13); /* once more, with another cut */
	assert_memory_equal(&before, &f, sizeof(f));
}

static void lies_end_the_channel(void **state)
{
	(void)state;
	sender_running(2);
	frame(DR_FRAME_ACK, 1, 0, 1, 3, 0, 5);
	assert_int_equal(f.err, -EPROTO);
	sender_running(2);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10);
	f.n_act = 0;
	frame(DR_FRAME_ANSWER, 2, 1, 1, 3, 0, 11);
	assert_int_equal(f.err, -EPROTO);
	assert_non_null(sent(DR_FRAME_ABORT, 1));
}

/* Invariant 5: a fault during the switch is a switch to the next epoch. */
static void second_fault_takes_the_next_epoch(void **state)
{
	(void)state;
	sender_running(2);
	drop_path(0, 1, 10);
	done();
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 11);
	assert_int_equal(f.epoch, 3);
	assert_null(sent(DR_FRAME_SWITCH, 0));
	dr_fo_fenced(&f, 1, 1, 12);
	done();
	dr_fo_tick(&f, 13);
	assert_int_equal(find_one(DR_FOA_CONNECT, 0)->gen, 2);
	done();
	dr_fo_path_ready(&f, 0, 2, 14);
	assert_int_equal(sent(DR_FRAME_SWITCH, 0)->epoch, 3);
	assert_int_equal(sent(DR_FRAME_SWITCH, 0)->gen, 2);
	done();
	frame(DR_FRAME_ANSWER, 3, 0, 2, 0, 0, 15);
	assert_int_equal(f.state, DR_FO_RUN);
	done();
}

static void sender_repeats_its_switch(void **state)
{
	(void)state;
	sender_running(1);
	drop_path(0, 1, 10 * MS);
	done();
	assert_true(dr_fo_deadline(&f) <= 20 * MS);
	dr_fo_tick(&f, 19 * MS);
	assert_null(sent(DR_FRAME_SWITCH, 1));
	dr_fo_tick(&f, 20 * MS);
	assert_non_null(sent(DR_FRAME_SWITCH, 1));
	done();
	assert_true(dr_fo_deadline(&f) <= 30 * MS);
}

/* The processor is the switch's first, unless there is nothing to switch to. */
static void broken_path_rests_while_another_carries(void **state)
{
	(void)state;
	sender_running(1);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
	dr_fo_fenced(&f, 0, 1, 11 * MS);
	dr_fo_tick(&f, 30 * MS);
	assert_null(find(DR_FOA_CONNECT, 0));
	done();
	frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, 30 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(dr_fo_deadline(&f), 31 * MS);
	dr_fo_tick(&f, 31 * MS);
	assert_int_equal(find_one(DR_FOA_CONNECT, 0)->gen, 2);
	done();
	/* The other one goes while it rests: dialled at once. */
	drop_path(0, 2, 2000 * MS);
	f.path[0].retry_ns = 2001 * MS;
	dr_fo_tick(&f, 2001 * MS);
	assert_null(find(DR_FOA_CONNECT, 0));
	done();
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 2002 * MS);
	assert_true(dr_fo_deadline(&f) <= 2002 * MS);
	dr_fo_tick(&f, 2002 * MS);
	assert_int_equal(find_one(DR_FOA_CONNECT, 0)->gen, 3);
	done();
}

/* Invariant 6. */
static void shadow_death_disturbs_nothing(void **state)
{
	(void)state;
	sender_running(2);
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_RAIL, -ENETDOWN, "test", 10);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.epoch, 1);
	assert_false(find_one(DR_FOA_PROTECTION, 1)->prot);
	done();
	dr_fo_fenced(&f, 1, 1, 11);
	dr_fo_tick(&f, 11 + 20 * MS);
	assert_int_equal(find_one(DR_FOA_CONNECT, 1)->gen, 2);
	done();
	dr_fo_path_ready(&f, 1, 2, 12 + 20 * MS);
	assert_true(find_one(DR_FOA_PROTECTION, 1)->prot);
	done();
}

/* Own stall: a jump of the clock between two ticks is not the peer's silence. */
static void own_stall_restarts_the_timers(void **state)
{
	(void)state;
	sender_running(2);
	dr_fo_tick(&f, 5 * MS);
	dr_fo_tick(&f, 60000 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.epoch, 1);
	done();
}

static void stuck_counts_credited_data_on_a_living_rail_only(void **state)
{
	int64_t t = 5 * MS;

	(void)state;
	sender_running(0); /* nothing is owed: the receiver gave no credit */
	for (int i = 0; i < 200; i++, t += 50 * MS)
		dr_fo_tick(&f, t);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.epoch, 1);
	done();
	sender_running(1);
	t = 5 * MS;
	for (int i = 0; i < 39; i++, t += 50 * MS)
		dr_fo_tick(&f, t);
	assert_int_equal(f.epoch, 1);
	for (int i = 0; i < 3; i++, t += 50 * MS)
		dr_fo_tick(&f, t);
	assert_int_equal(f.epoch, 2);
	done();
}

/* Invariant 7: hold-down, drain at a message boundary. */
static void failback_drains_first(void **state)
{
	unsigned part, skip;
	uint64_t seq;

	(void)state;
	sender_running(2);
	drop_path(0, 1, 10);
	frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, 11);
	done();
	dr_fo_tick(&f, 10 + 20 * MS);
	dr_fo_path_ready(&f, 0, 2, 21 * MS);
	for (unsigned i = 0; i < 3; i++) { /* into the middle of message 1 */
		assert_true(dr_fo_next(&f, &seq, &part, &skip));
		dr_fo_posted(&f, 21 * MS);
	}
	dr_fo_sent(&f, 1, 1, 2, 0, 0);
	dr_fo_sent(&f, 1, 1, 2, 0, 1);
	done();
	dr_fo_tick(&f, 122 * MS);
	assert_int_equal(f.state,
		DR_FO_RUN); /* the last switch is not complete: nothing was acknowledged since */
	frame(DR_FRAME_ACK, 2, 1, 1, 1, 0, 122 * MS);
	assert_false(f.done.planned);
	assert_int_equal(f.done.to, 1);
	done();
	f.path[0].ready_ns = 30 * MS;
	dr_fo_tick(&f, 129 * MS);
	assert_int_equal(f.state, DR_FO_RUN); /* hold-down */
	dr_fo_tick(&f, 130 * MS);
	assert_int_equal(f.state, DR_FO_DRAIN);
	assert_true(dr_fo_next(&f, &seq, &part, &skip)); /* the message that is begun is finished */
	assert_int_equal(seq, 1);
	dr_fo_posted(&f, 130 * MS);
	assert_false(dr_fo_next(&f, &seq, &part, &skip));
	dr_fo_sent(&f, 1, 1, 2, 1, 0);
	dr_fo_sent(&f, 1, 1, 2, 1, 1);
	frame(DR_FRAME_ACK, 2, 1, 1, 2, 0, 131 * MS);
	done();
	dr_fo_tick(&f, 132 * MS);
	assert_int_equal(f.state, DR_FO_SWITCH);
	assert_int_equal(sent(DR_FRAME_SWITCH, 0)->flags, DR_FRAME_PLANNED);
	assert_true(f.rec.planned);
	assert_int_equal(f.rec.from, 1);
	assert_int_equal(f.rec.err, 0);
	assert_null(find(DR_FOA_FENCE, 1));
	done();
}

/* Invariants 2 and 4 at the receiver: the cut is told after the own fence, never before. */
static void receiver_fences_before_it_answers(void **state)
{
	(void)state;
	receiver_running(3);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 0, 5), 0);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 5), 1);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 1, 1, 6), 0);
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 7);
	assert_non_null(find(DR_FOA_FENCE, 0));
	assert_null(sent(DR_FRAME_ANSWER, 1));
	done();
	dr_fo_fenced(&f, 0, 1, 8);
	assert_int_equal(sent(DR_FRAME_ANSWER, 1)->epoch, 2);
	assert_int_equal(sent(DR_FRAME_ANSWER, 1)->seq, 1);
	assert_int_equal(sent(DR_FRAME_ANSWER, 1)->mask, 2);
	done();
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 9); /* repeated: the same answer */
	assert_non_null(sent(DR_FRAME_ANSWER, 1));
	assert_int_equal(sent(DR_FRAME_ANSWER, 1)->seq, 1);
	done();
}

/* Invariant 1. */
static void only_the_head_of_this_epoch_is_accepted(void **state)
{
	(void)state;
	receiver_running(3);
	assert_int_equal(
		dr_fo_delivered(&f, dr_fo_conn(1, 1), 1, 0, 0, 5), -ESTALE); /* idle path */
	assert_int_equal(
		dr_fo_delivered(&f, dr_fo_conn(0, 1), 0, 0, 0, 5), -ESTALE); /* old epoch */
	assert_int_equal(
		dr_fo_delivered(&f, dr_fo_conn(0, 2), 1, 0, 0, 5), -ESTALE); /* other connection */
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 0, 5), 0);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 0, 5), -EALREADY);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 5), 1);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 5), -EALREADY);
	assert_int_equal(f.head, 1);
	done();
}

static void receiver_notifies_until_switched(void **state)
{
	(void)state;
	receiver_running(3);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 5 * MS);
	assert_int_equal(sent(DR_FRAME_NOTIFY, 1)->epoch, 1);
	done();
	dr_fo_fenced(&f, 0, 1, 6 * MS);
	dr_fo_tick(&f, 10 * MS);
	assert_null(sent(DR_FRAME_NOTIFY, 1));
	done();
	dr_fo_tick(&f, 16 * MS);
	assert_non_null(sent(DR_FRAME_NOTIFY, 1));
	done();
	dr_fo_tick(&f, 26 * MS);
	assert_int_equal(f.path[0].state, DR_FOP_CONNECTING);
	done();
	dr_fo_path_ready(&f, 0, 2, 27 * MS); /* told at once */
	assert_non_null(sent(DR_FRAME_NOTIFY, 0));
	done();
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 28 * MS);
	assert_non_null(sent(DR_FRAME_ANSWER, 1));
	done();
}

/* While its own fence runs a receiver that had sent NOTIFY waits for the fence, not for a time that is over. */
static void fence_after_notify_is_no_spin(void **state)
{
	(void)state;
	receiver_running(3);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 5 * MS);
	done();
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 6 * MS);
	assert_int_equal(f.state, DR_FO_FENCE);
	dr_fo_tick(&f, 30 * MS);
	assert_true(dr_fo_deadline(&f) > 30 * MS);
	done();
}

/* Both connections were lost. A new one that nobody has proposed yet is not adopted at once where only a
 * hard fence could free it for the proposal that is on its way. */
static void fresh_path_waits_for_its_proposal(void **state)
{
	(void)state;
	for (int proposed = 0; proposed < 2; proposed++) {
		start(false);
		done();
		dr_fo_path_ready(&f, 0, 1, 2);
		dr_fo_path_ready(&f, 1, 1, 2);
		frame(DR_FRAME_SWITCH, 1, 0, 1, 0, 0, 3);
		assert_non_null(sent(DR_FRAME_ANSWER, 0));
		for (unsigned i = 0; i < 2; i++) {
			drop_path(i, 1, 5 * MS);
		}
		frame(DR_FRAME_SWITCH, 2, 1, 2, 0, 0, 6 * MS);
		assert_int_equal(f.state, DR_FO_FENCE);
		dr_fo_tick(&f, 7 * MS);
		done();
		dr_fo_path_ready(&f, 0, 2, 30 * MS);
		assert_int_equal(f.state, DR_FO_FENCE);
		assert_true(dr_fo_deadline(&f) > 30 * MS);
		if (proposed) {
			frame(DR_FRAME_SWITCH, 3, 0, 2, 0, 0, 31 * MS);
			assert_null(find(DR_FOA_FENCE, 0));
			assert_int_equal(sent(DR_FRAME_ANSWER, 0)->epoch, 3);
		} else {
			dr_fo_tick(&f, 40 * MS);
			assert_int_equal(sent(DR_FRAME_ANSWER, 0)->epoch, 2);
		}
		done();
	}
}

/* A peer that repeats itself while we stand still gets one answer a path. */
static void repeated_frames_do_not_pile_up(void **state)
{
	(void)state;
	receiver_running(3);
	for (int i = 0; i < 1000; i++)
		frame(DR_FRAME_SWITCH, 1, 0, 1, 0, 0, 5);
	assert_int_equal(f.n_act, 2);
	done();
}

/* Its ANSWER on another path was lost with that path: the receiver waits for the next epoch. */
static void lost_answer_is_notified(void **state)
{
	(void)state;
	start(true);
	done();
	dr_fo_path_ready(&f, 1, 1, 2);
	dr_fo_path_ready(&f, 0, 1, 3);
	assert_int_equal(sent(DR_FRAME_SWITCH, 0)->path, 0);
	done();
	dr_fo_path_failed(&f, dr_fo_conn(1, 1), DR_SCOPE_PATH, -ECONNRESET, "cut", 4);
	assert_int_equal(f.epoch, 1);
	done();
	frame(DR_FRAME_NOTIFY, 1, 1, 1, 0, 0, 5);
	assert_int_equal(f.epoch, 2);
	assert_int_equal(sent(DR_FRAME_SWITCH, 0)->path, 0);
	done();
	frame(DR_FRAME_NOTIFY, 1, 1, 1, 0, 0, 6); /* repeated: heard already */
	assert_int_equal(f.epoch, 2);
	done();
}

/* A NOTIFY that was late names a connection that is gone. */
static void notify_of_another_connection_changes_nothing(void **state)
{
	struct dr_fo before;

	(void)state;
	sender_running(1);
	dr_fo_path_failed(&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
	dr_fo_fenced(&f, 0, 1, 11 * MS);
	frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, 12 * MS);
	dr_fo_tick(&f, 31 * MS);
	dr_fo_path_ready(&f, 0, 2, 32 * MS);
	done();
	before = f;
	frame(DR_FRAME_NOTIFY, 2, 0, 1, 0, 0, 33 * MS);
	frame(DR_FRAME_NOTIFY, 2, 1, 2, 0, 0, 33 * MS);
	assert_memory_equal(&before, &f, sizeof(f));
	frame(DR_FRAME_NOTIFY, 2, 1, 1, 0, 0, 34 * MS);
	assert_int_equal(f.epoch, 3);
	done();
}

/* The proposed primary failed at the receiver, which answered on the path that it had. The next attempt waits for
 * another hold-down. */
static void planned_switch_answered_on_the_shadow(void **state)
{
	(void)state;
	sender_running(0);
	fail_over();
	heal();
	dr_fo_tick(&f, 132 * MS);
	assert_int_equal(sent(DR_FRAME_SWITCH, 1)->flags, DR_FRAME_PLANNED | DR_FRAME_IDLE);
	done();
	frame(DR_FRAME_ANSWER, 3, 1, 1, 0, 0, 140 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.active, 1);
	assert_int_equal(f.failback_ns, 0); /* it was none: what follows is no flap */
	done();
	dr_fo_tick(&f, 239 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	dr_fo_tick(&f, 240 * MS);
	assert_int_equal(f.state, DR_FO_SWITCH);
	done();
}

/* Three messages of two parts: 0 is acknowledged, 1 sent, of 2 one part; 3 is posted by the user only. */
static void cut_is_checked_against_what_was_sent(void **state)
{
	static const struct {
		uint64_t seq;
		unsigned mask;
		bool good;
	} cut[] = { { 0, 0, false }, { 1, 0, true }, { 2, 0, true }, { 3, 0, true },
		{ 4, 0, false }, { UINT64_MAX, 0, false }, { 0, 1, false }, { 1, 1, true },
		{ 1, 2, true }, { 2, 1, true }, { 1, 3, false }, { 1, 4, false },
		{ 1, 0x81, false }, { 2, 3, false }, { 3, 1, false }, { 4, 1, false } };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cut); i++) {
		uint64_t seq;

		sender_running(2);
		retired(0);
		frame(DR_FRAME_ACK, 1, 0, 1, 1, 0, 5);
		for (unsigned m = 2; m < 4; m++)
			assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
		dr_fo_posted(&f, 6);
		drop_path(0, 1, 10);
		f.n_act = 0;
		frame(DR_FRAME_ANSWER, 2, 1, 1, cut[i].seq, cut[i].mask, 11);
		assert_int_equal(f.state, cut[i].good ? DR_FO_RUN : DR_FO_DEAD);
		assert_int_equal(f.err, cut[i].good ? 0 : -EPROTO);
		if (cut[i].good)
			assert_int_equal(f.head, cut[i].seq);
		done();
	}
}

/* Frames of the wrong end, and a path that the channel does not have. */
static void frames_of_the_wrong_end_end_the_channel(void **state)
{
	static const enum dr_frame_type from_receiver[] = { DR_FRAME_ACK, DR_FRAME_ANSWER,
		DR_FRAME_NOTIFY };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(from_receiver); i++) {
		receiver_running(1);
		frame(from_receiver[i], 1, 0, 1, 0, 0, 5);
		assert_int_equal(f.err, -EPROTO);
	}
	sender_running(1);
	frame(DR_FRAME_SWITCH, 2, 0, 1, 0, 0, 5);
	assert_int_equal(f.err, -EPROTO);
	receiver_running(1);
	f.path[1].state = DR_FOP_ABSENT;
	dr_fo_frame(&f, 0,
		&(struct dr_frame){ .type = DR_FRAME_SWITCH, .epoch = 2, .path = 1, .gen = 1 }, 5);
	assert_int_equal(f.err, -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(completion_needs_ack_and_retirement),
		cmocka_unit_test(completion_of_another_epoch_is_stale),
		cmocka_unit_test(answer_waits_for_own_fence),
		cmocka_unit_test(stale_frames_change_nothing),
		cmocka_unit_test(lies_end_the_channel),
		cmocka_unit_test(second_fault_takes_the_next_epoch),
		cmocka_unit_test(sender_repeats_its_switch),
		cmocka_unit_test(broken_path_rests_while_another_carries),
		cmocka_unit_test(shadow_death_disturbs_nothing),
		cmocka_unit_test(own_stall_restarts_the_timers),
		cmocka_unit_test(stuck_counts_credited_data_on_a_living_rail_only),
		cmocka_unit_test(failback_drains_first),
		cmocka_unit_test(receiver_fences_before_it_answers),
		cmocka_unit_test(only_the_head_of_this_epoch_is_accepted),
		cmocka_unit_test(receiver_notifies_until_switched),
		cmocka_unit_test(fence_after_notify_is_no_spin),
		cmocka_unit_test(fresh_path_waits_for_its_proposal),
		cmocka_unit_test(repeated_frames_do_not_pile_up),
		cmocka_unit_test(lost_answer_is_notified),
		cmocka_unit_test(notify_of_another_connection_changes_nothing),
		cmocka_unit_test(planned_switch_answered_on_the_shadow),
		cmocka_unit_test(cut_is_checked_against_what_was_sent),
		cmocka_unit_test(frames_of_the_wrong_end_end_the_channel),
	};

	return cmocka_run_group_tests_name("failover", tests, NULL, NULL);
}
