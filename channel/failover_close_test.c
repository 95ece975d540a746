/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/testkit.h"

/* The end of a channel between its two ends: ABORT, CLOSE, and who has which error (docs/PROTOCOL.md 4.1). */

static void farewell(enum dr_frame_type type, unsigned flags, uint64_t seq, int err, int64_t now)
{
	struct dr_frame fr = {
		.type = type, .flags = flags, .epoch = f.epoch, .seq = seq, .err = err
	};

	dr_fo_frame(&f, 0, &fr, now);
}

static bool said(enum dr_frame_type type, unsigned flags, int err)
{
	const struct dr_fo_act *d = find(DR_FOA_DGRAM, 0);

	return sent(type, 0) && sent(type, 0)->flags == flags && sent(type, 0)->err == err &&
	       sent(type, 1) && sent(type, 1)->flags == flags && d && d->frame.type == type &&
	       d->frame.flags == flags;
}

/* Runs the timers until the core wants to leave; returns when, and how often it said `type`. */
static int64_t until_left(int64_t t, enum dr_frame_type type, unsigned *times)
{
	*times = 0;
	while (!f.left) {
		int64_t due = dr_fo_deadline(&f);

		assert_true(due > t); /* no spin, and it ends */
		t = due;
		dr_fo_tick(&f, t);
		*times += !!sent(type, 0);
		if (f.left)
			assert_non_null(find(DR_FOA_LEAVE, DR_FO_NONE));
		done();
	}
	assert_int_equal(dr_fo_deadline(&f), DR_NEVER);
	return t;
}

static void end_is_told_until_it_is_confirmed(void **state)
{
	unsigned times;

	(void)state;
	sender_running(1);
	dr_fo_die(&f, -ECANCELED, "test", 10 * MS);
	assert_non_null(find(DR_FOA_DEAD, DR_FO_NONE));
	assert_null(find(DR_FOA_LEAVE, DR_FO_NONE));
	assert_true(said(DR_FRAME_ABORT, 0, -ECANCELED));
	done();
	dr_fo_tick(&f, 60 * MS);
	assert_true(said(DR_FRAME_ABORT, 0, -ECANCELED));
	done();
	farewell(DR_FRAME_ABORT, DR_FRAME_CONFIRM, 0, -ECANCELED, 25 * MS);
	assert_non_null(find(DR_FOA_LEAVE, DR_FO_NONE));
	assert_null(sent(DR_FRAME_ABORT, 0));
	done();
	assert_int_equal(dr_fo_deadline(&f), DR_NEVER);
	/* Nobody confirms. */
	sender_running(1);
	dr_fo_die(&f, -ECANCELED, "test", 10 * MS);
	done();
	assert_int_equal(until_left(10 * MS, DR_FRAME_ABORT, &times), 1510 * MS);
	assert_in_range(times, 15, 30);
}

/* It confirms the error again and again, but not when its user closes it. */
static void end_that_was_told_an_error_leaves_when_it_closes(void **state)
{
	(void)state;
	receiver_running(1);
	farewell(DR_FRAME_ABORT, 0, 0, -EMSGSIZE, 10 * MS);
	assert_true(said(DR_FRAME_ABORT, DR_FRAME_CONFIRM, -EMSGSIZE));
	assert_false(f.left);
	done();
	dr_fo_close(&f, 20 * MS);
	assert_non_null(find(DR_FOA_LEAVE, DR_FO_NONE));
	assert_int_equal(f.err, -EMSGSIZE);
	done();
	/* The error is its own: not before the peer was told. */
	receiver_running(1);
	dr_fo_die(&f, -EMSGSIZE, "test", 10 * MS);
	done();
	dr_fo_close(&f, 20 * MS);
	assert_false(f.left);
	farewell(DR_FRAME_ABORT, 0, 0, -ECANCELED, 30 * MS); /* it had an error at the same time */
	assert_true(said(DR_FRAME_ABORT, DR_FRAME_CONFIRM, -EMSGSIZE));
	assert_true(f.left);
	done();
}

static void dead_end_answers_whoever_does_not_know(void **state)
{
	unsigned times;

	(void)state;
	receiver_running(1);
	farewell(DR_FRAME_ABORT, 0, 0, -EMSGSIZE, 10 * MS);
	assert_int_equal(f.err, -EMSGSIZE);
	assert_true(said(DR_FRAME_ABORT, DR_FRAME_CONFIRM, -EMSGSIZE));
	done();
	farewell(DR_FRAME_ABORT, 0, 0, -EMSGSIZE, 20 * MS); /* the confirmation was lost */
	assert_true(said(DR_FRAME_ABORT, DR_FRAME_CONFIRM, -EMSGSIZE));
	done();
	assert_int_equal(until_left(20 * MS, DR_FRAME_ABORT, &times), 1510 * MS);
	assert_int_equal(times, 0);
	/* This end ended, and the time to tell it is over. The peer still works on it, then dials. */
	receiver_running(1);
	f.prm.connector = false;
	dr_fo_die(&f, -EMSGSIZE, "test", 10 * MS);
	done();
	until_left(10 * MS, DR_FRAME_ABORT, &times);
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 2000 * MS);
	assert_true(said(DR_FRAME_ABORT, 0, -EMSGSIZE));
	done();
	dr_fo_incoming(&f, 0, 2, 2010 * MS);
	assert_true(said(DR_FRAME_ABORT, 0, -EMSGSIZE));
	assert_null(find(DR_FOA_CONNECT, 0));
	f.prm.connector = true; /* for validate */
	done();
}

/* The held acknowledgement is in CLOSE. */
static void receivers_close_acknowledges(void **state)
{
	(void)state;
	receiver_running(2);
	dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 0, 5);
	dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 5);
	dr_fo_close(&f, 10 * MS);
	assert_true(said(DR_FRAME_CLOSE, 0, 0));
	assert_int_equal(sent(DR_FRAME_CLOSE, 0)->seq, 1);
	done();
	assert_int_equal(dr_fo_push(&f, 1, &(uint64_t){ 0 }), -ESHUTDOWN);
	farewell(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 1, 0, 11 * MS);
	assert_int_equal(f.err, -ESHUTDOWN);
	assert_true(f.left);
	assert_null(find(DR_FOA_DEAD, DR_FO_NONE));
	assert_null(sent(DR_FRAME_CLOSE, 0));
	done();

	sender_running(1);
	dr_fo_sent(&f, 0, 1, 1, 0, 0);
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 10 * MS);
	assert_false(dr_fo_done(&f, 0)); /* the NIC still reads it */
	assert_int_equal(f.state, DR_FO_RUN);
	dr_fo_sent(&f, 0, 1, 1, 0, 1);
	assert_true(dr_fo_done(&f, 0));
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 20 * MS);
	assert_true(said(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 0));
	ended(-ESHUTDOWN, false);
	assert_false(f.left); /* its confirmation may be lost */
	done();
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 30 * MS);
	assert_true(said(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 0));
	done();
}

static void senders_close_waits_for_its_messages(void **state)
{
	unsigned times;

	(void)state;
	receiver_running(2);
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 10 * MS);
	assert_int_equal(f.state, DR_FO_RUN); /* message 0 is still to come */
	dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 0, 11 * MS);
	dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 11 * MS);
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 20 * MS);
	assert_true(said(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 0));
	assert_int_equal(sent(DR_FRAME_CLOSE, 0)->seq, 1);
	assert_int_equal(f.err, -ESHUTDOWN);
	done();

	sender_running(1);
	dr_fo_close(&f, 10 * MS);
	assert_int_equal(sent(DR_FRAME_CLOSE, 0)->seq, 1);
	done();
	retired(0);
	farewell(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 1, 0, 11 * MS);
	assert_true(dr_fo_done(&f, 0));
	assert_true(f.left);
	done();

	sender_running(1);
	dr_fo_close(&f, 10 * MS);
	done();
	assert_int_equal(until_left(10 * MS, DR_FRAME_CLOSE, &times), 510 * MS);
	assert_in_range(times, 4, 20);
	assert_int_equal(f.err, -ESHUTDOWN);
}

static void close_with_messages_outstanding_is_an_error(void **state)
{
	(void)state;
	sender_running(2);
	retired(0);
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 10 * MS);
	assert_true(dr_fo_done(&f, 0));
	ended(-ECANCELED, true);
	done();
	/* Lies. */
	sender_running(1);
	farewell(DR_FRAME_CLOSE, 0, 2, 0, 10 * MS);
	assert_int_equal(f.err, -EPROTO);
	receiver_running(2);
	dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 0, 5);
	dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 5);
	farewell(DR_FRAME_CLOSE, 0, 0, 0, 10 * MS);
	assert_int_equal(f.err, -EPROTO);
	done();
}

static void (*const roles[])(unsigned) = { sender_running, receiver_running };

/* The messages of a peer that has ended: a sender's end there, a receiver has delivered so many. */
static void peer_ended(uint64_t seq, int err, int64_t now)
{
	farewell(DR_FRAME_ABORT, 0, seq, err, now);
	assert_int_equal(f.state, DR_FO_DEAD);
	assert_true(said(DR_FRAME_ABORT, DR_FRAME_CONFIRM, f.err));
}

static void closing_end_is_told_of_a_close_without_an_error(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		roles[i](2); /* with messages outstanding */
		dr_fo_close(&f, 10 * MS);
		done();
		peer_ended(0, -ESHUTDOWN, 11 * MS);
		ended(-ESHUTDOWN, false);
		assert_non_null(find(DR_FOA_LEAVE, DR_FO_NONE));
		assert_int_equal(dr_fo_deadline(&f), DR_NEVER);
		done();
	}
}

/* The receiver's close cuts the sender off, whose error is no news to the receiver. */
static void closing_receiver_expects_a_sender_that_is_cut_off(void **state)
{
	(void)state;
	receiver_running(2);
	dr_fo_close(&f, 10 * MS);
	done();
	peer_ended(3, -ECANCELED, 11 * MS);
	ended(-ESHUTDOWN, false);
	assert_true(f.left);
	done();
	sender_running(1);
	dr_fo_close(&f, 10 * MS);
	done();
	peer_ended(0, -ECANCELED, 11 * MS); /* its message is lost */
	ended(-ECANCELED, true);
	done();
}

/* Its own error, and the peer's, are reported; neither makes the close longer. */
static void closing_end_keeps_its_deadline(void **state)
{
	unsigned times;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		roles[i](2);
		dr_fo_close(&f, 10 * MS);
		done();
		dr_fo_die(&f, -EIO, "test", 300 * MS);
		assert_non_null(find(DR_FOA_DEAD, DR_FO_NONE));
		done();
		assert_int_equal(until_left(300 * MS, DR_FRAME_ABORT, &times), 510 * MS);
		assert_in_range(times, 4, 20);

		roles[i](2);
		dr_fo_close(&f, 10 * MS);
		done();
		peer_ended(0, -EMSGSIZE, 11 * MS);
		ended(-EMSGSIZE, true);
		assert_true(f.left);
		done();
	}
}

/* A close that nobody confirmed: whoever works on, or dials, learns of it later. */
static void close_that_was_not_confirmed_is_told_later(void **state)
{
	unsigned times;

	(void)state;
	for (unsigned start_only = 0; start_only < 2; start_only++) {
		if (start_only)
			start(false);
		else
			receiver_running(1);
		f.prm.connector = false;
		f.n_act = 0;
		dr_fo_close(&f, 10 * MS);
		done();
		if (!start_only)
			until_left(10 * MS, DR_FRAME_CLOSE, &times);
		assert_true(f.left);
		frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 2000 * MS);
		assert_int_equal(find_one(DR_FOA_DGRAM, 0)->frame.type, DR_FRAME_ABORT);
		assert_int_equal(find_one(DR_FOA_DGRAM, 0)->frame.err, -ESHUTDOWN);
		done();
		dr_fo_incoming(&f, 0, 2, 2010 * MS);
		assert_int_equal(find_one(DR_FOA_DGRAM, 0)->frame.type, DR_FRAME_ABORT);
		f.prm.connector = true; /* for validate */
		done();
	}
}

/* The confirmation is lost and the closing peer switches: it says no CLOSE then. */
static void confirmation_that_is_lost_is_told_again(void **state)
{
	(void)state;
	receiver_running(0);
	farewell(DR_FRAME_CLOSE, 0, 0, 0, 10 * MS);
	assert_int_equal(f.err, -ESHUTDOWN);
	done();
	frame(DR_FRAME_SWITCH, 2, 1, 1, 0, 0, 20 * MS);
	assert_true(said(DR_FRAME_ABORT, 0, -ESHUTDOWN));
	done();
}

/* What is outstanding when the peer turns out to be closed is an error, and nothing else is. */
static void peer_that_closed_unheard_is_an_error_for_what_is_left(void **state)
{
	(void)state;
	sender_running(2);
	for (unsigned m = 0; m < 2; m++)
		for (unsigned part = 0; part < 2; part++)
			dr_fo_sent(&f, 0, 1, 1, m, part);
	peer_ended(1, -ESHUTDOWN, 10 * MS);
	assert_true(dr_fo_done(&f, 0)); /* it was delivered */
	assert_false(dr_fo_done(&f, 1));
	ended(-ECANCELED, true);
	done();
	sender_running(1);
	retired(0);
	peer_ended(1, -ESHUTDOWN, 10 * MS);
	assert_true(dr_fo_done(&f, 0));
	ended(-ESHUTDOWN, false);
	assert_false(f.left); /* it confirms again until 500 ms are over */
	done();
	receiver_running(2); /* more receives than messages */
	peer_ended(0, -ESHUTDOWN, 10 * MS);
	ended(-ESHUTDOWN, false);
	done();
	receiver_running(2);
	peer_ended(1, -ESHUTDOWN, 10 * MS);
	ended(-ECANCELED, true);
	done();
}

/* Invariants 2 and 3 hold for the last acknowledgement, too. */
static void abort_acknowledges_what_no_path_reads(void **state)
{
	(void)state;
	sender_running(2);
	retired(0);
	peer_ended(2, -EMSGSIZE, 10 * MS);
	assert_true(dr_fo_done(&f, 0));
	assert_false(dr_fo_done(&f, 1)); /* the path still reads it */
	done();
	sender_running(2);
	peer_ended(3, -EMSGSIZE, 10 * MS); /* more than was sent */
	assert_false(dr_fo_done(&f, 0));
	done();
	for (unsigned fenced = 0; fenced < 2; fenced++) { /* during a switch */
		sender_running(2);
		dr_fo_path_failed(
			&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
		if (fenced)
			dr_fo_fenced(&f, 0, 1, 11 * MS);
		f.n_act = 0;
		farewell(DR_FRAME_ABORT, 0, 1, -EMSGSIZE, 12 * MS);
		assert_int_equal(dr_fo_done(&f, 0), fenced);
		assert_false(dr_fo_done(&f, 1));
		done();
	}
}

/* The peer closed, unheard, while this end fences: what it delivered is done when the fence is. */
static void close_of_the_peer_waits_for_own_fence(void **state)
{
	(void)state;
	for (unsigned told_again = 0; told_again < 2; told_again++) {
		sender_running(1);
		dr_fo_path_failed(
			&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
		done();
		farewell(DR_FRAME_ABORT, 0, 1, -ESHUTDOWN, 12 * MS);
		assert_int_equal(f.state, DR_FO_SWITCH);
		dr_fo_fenced(&f, 0, 1, 13 * MS);
		dr_fo_tick(&f, 20 * MS);
		assert_non_null(sent(DR_FRAME_SWITCH, 1)); /* still asks */
		done();
		assert_false(dr_fo_done(&f, 0));
		if (told_again)
			farewell(DR_FRAME_ABORT, 0, 1, -ESHUTDOWN, 21 * MS);
		else
			dr_fo_die(&f, -ENETDOWN, "test", 1500 * MS);
		assert_true(dr_fo_done(&f, 0));
		assert_int_equal(f.err, told_again ? -ESHUTDOWN : -ENETDOWN);
		done();
	}
}

static void late_completion_needs_no_fence(void **state)
{
	(void)state;
	sender_running(1);
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 10 * MS);
	dr_fo_own_stall(&f, 80 * MS, 90 * MS); /* it may be there, and unread */
	dr_fo_tick(&f, 150 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	retired(0);
	dr_fo_tick(&f, 200 * MS);
	assert_null(find(DR_FOA_FENCE, 0));
	assert_true(dr_fo_done(&f, 0));
	farewell(DR_FRAME_CLOSE, 0, 1, 0, 210 * MS);
	assert_int_equal(f.err, -ESHUTDOWN);
	done();
}

/* The process was stopped beyond the time of a close. What came meanwhile is read before the close is given up. */
static void own_stall_is_no_time_of_a_close(void **state)
{
	(void)state;
	sender_running(1);
	dr_fo_close(&f, 10 * MS);
	done();
	dr_fo_own_stall(&f, 9000 * MS, 9000 * MS);
	dr_fo_tick(&f, 9000 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	done();
	/* A process that gets its processor now and then is no reason to stay: only the time in which it runs counts. */
	assert_int_equal(f.leave_ns, 9050 * MS);
	dr_fo_own_stall(&f, 100 * MS, 9140 * MS);
	assert_int_equal(f.leave_ns, 9150 * MS);
	f.leave_ns = 9050 * MS;
	farewell(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 1, 0, 9000 * MS + MS);
	assert_int_equal(f.state, DR_FO_RUN);
	retired(0);
	dr_fo_tick(&f, 9000 * MS + 2 * MS);
	assert_true(dr_fo_done(&f, 0));
	done();
	dr_fo_tick(&f, 9000 * MS + 50 * MS);
	assert_int_equal(f.err, -ESHUTDOWN);
	assert_non_null(find(DR_FOA_LEAVE, DR_FO_NONE));
	done();
}

/* The peer is gone: nothing is left for which the path would be needed. */
static void end_of_the_peer_makes_the_sender_fence_what_it_still_reads(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		bool closing = i & 1, drain = i & 2;

		sender_running(1);
		if (drain)
			assert_int_equal(dr_fo_switch_now(&f, 5 * MS), 0);
		if (closing)
			dr_fo_close(&f, 10 * MS);
		done();
		farewell(DR_FRAME_ABORT, 0, 1, -ESHUTDOWN, 11 * MS);
		assert_int_equal(f.state, DR_FO_SWITCH);
		assert_non_null(find(DR_FOA_FENCE, 0));
		assert_non_null(sent(DR_FRAME_SWITCH, 1)); /* the peer answers it */
		assert_false(dr_fo_done(&f, 0));
		done();
		dr_fo_fenced(&f, 0, 1, 12 * MS);
		farewell(DR_FRAME_ABORT, 0, 1, -ESHUTDOWN, 13 * MS);
		assert_true(dr_fo_done(&f, 0));
		ended(-ESHUTDOWN, false);
		f.n_act = 0;
	}
}

/* Confirming would tell the peer that everything was in order. */
static void dead_end_answers_close_with_its_error(void **state)
{
	unsigned times;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		roles[i](1);
		dr_fo_die(&f, -EIO, "test", 10 * MS);
		done();
		farewell(DR_FRAME_CLOSE, 0, 1, 0, 15 * MS);
		assert_true(said(DR_FRAME_ABORT, 0, -EIO));
		assert_null(sent(DR_FRAME_CLOSE, 0));
		done();
		dr_fo_tick(&f, 60 * MS); /* and goes on telling */
		assert_true(said(DR_FRAME_ABORT, 0, -EIO));
		done();
		farewell(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 1, 0, 65 * MS); /* of a close before */
		assert_true(f.left);
		assert_null(sent(DR_FRAME_ABORT, 0));
		done();

		roles[i](1);
		dr_fo_die(&f, -EIO, "test", 10 * MS);
		done();
		until_left(10 * MS, DR_FRAME_ABORT, &times);
		farewell(DR_FRAME_CLOSE, 0, 1, 0, 2000 * MS);
		assert_true(said(DR_FRAME_ABORT, 0, -EIO));
		done();
	}
}

/* Its CLOSE says how far it got, and the sender fails the rest. */
static void closing_receiver_delivers_nothing_more(void **state)
{
	(void)state;
	receiver_running(2);
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 0, 5), 0);
	dr_fo_close(&f, 10 * MS);
	assert_int_equal(sent(DR_FRAME_CLOSE, 0)->seq, 0);
	done();
	assert_int_equal(dr_fo_delivered(&f, dr_fo_conn(0, 1), 1, 0, 1, 11 * MS), -ESTALE);
	assert_false(dr_fo_done(&f, 0));
	farewell(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 2, 0, 12 * MS);
	assert_int_equal(f.err, -ESHUTDOWN);
	assert_false(dr_fo_done(&f, 0));
	done();
}

/* The receiver closed as well and confirms with less than everything. */
static void closing_sender_takes_any_confirmation(void **state)
{
	(void)state;
	sender_running(2);
	retired(0);
	dr_fo_close(&f, 10 * MS);
	done();
	farewell(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 1, 0, 11 * MS);
	assert_true(dr_fo_done(&f, 0));
	assert_false(dr_fo_done(&f, 1));
	assert_int_equal(f.err, -ESHUTDOWN);
	assert_true(f.left);
	done();
}

/* Its number is of the epoch before: what was on the way then is replayed. */
static void close_of_an_older_epoch_is_ignored(void **state)
{
	(void)state;
	sender_running(1);
	fail_over();
	done();
	frame(DR_FRAME_CLOSE, 1, 1, 0, 0, 0, 12 * MS);
	assert_int_equal(f.state, DR_FO_RUN);
	frame(DR_FRAME_CLOSE, 2, 1, 0, 0, 0, 13 * MS);
	assert_int_equal(f.err, -ECANCELED);
	done();
}

/* Whatever the peer names as its error, this end has one. */
static void abort_without_an_error_is_one(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		roles[i](1);
		farewell(DR_FRAME_ABORT, 0, 0, 0, 10 * MS);
		ended(-ECANCELED, true);
		done();
	}
}

/* The peer that closed may not get the confirmation: it is repeated on request for 500 ms, then the end leaves. */
static void end_whose_peer_closed_stays_for_500_ms(void **state)
{
	unsigned times;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		roles[i](0);
		farewell(DR_FRAME_CLOSE, 0, 0, 0, 10 * MS);
		assert_int_equal(f.err, -ESHUTDOWN);
		done();
		assert_int_equal(until_left(10 * MS, DR_FRAME_CLOSE, &times), 510 * MS);
		assert_int_equal(times, 0);
	}
}

static void confirmation_that_nobody_asked_for_ends_nothing(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		roles[i](2);
		farewell(DR_FRAME_CLOSE, DR_FRAME_CONFIRM, 0, 0, 10 * MS);
		assert_int_equal(f.state, DR_FO_RUN);
		assert_null(find(DR_FOA_DEAD, DR_FO_NONE));
		done();
	}
}

/* What waits for a path was not sent: the last acknowledgement cannot cover it, in no state. */
static void abort_acknowledges_nothing_that_waits(void **state)
{
	uint64_t seq;

	(void)state;
	for (unsigned err = 0; err < 2; err++) {
		sender_running(2);
		assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
		dr_fo_path_failed(
			&f, dr_fo_conn(0, 1), DR_SCOPE_PATH, -ECONNRESET, "test", 10 * MS);
		dr_fo_fenced(&f, 0, 1, 11 * MS);
		f.n_act = 0;
		farewell(DR_FRAME_ABORT, 0, 3, err ? -EMSGSIZE : -ESHUTDOWN, 12 * MS);
		assert_false(dr_fo_done(&f, 2));
		assert_int_equal(f.err, err ? -EMSGSIZE : -ECANCELED);
		done();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(end_is_told_until_it_is_confirmed),
		cmocka_unit_test(end_that_was_told_an_error_leaves_when_it_closes),
		cmocka_unit_test(dead_end_answers_whoever_does_not_know),
		cmocka_unit_test(receivers_close_acknowledges),
		cmocka_unit_test(senders_close_waits_for_its_messages),
		cmocka_unit_test(close_with_messages_outstanding_is_an_error),
		cmocka_unit_test(closing_end_is_told_of_a_close_without_an_error),
		cmocka_unit_test(closing_receiver_expects_a_sender_that_is_cut_off),
		cmocka_unit_test(closing_end_keeps_its_deadline),
		cmocka_unit_test(close_that_was_not_confirmed_is_told_later),
		cmocka_unit_test(confirmation_that_is_lost_is_told_again),
		cmocka_unit_test(peer_that_closed_unheard_is_an_error_for_what_is_left),
		cmocka_unit_test(abort_acknowledges_what_no_path_reads),
		cmocka_unit_test(close_of_the_peer_waits_for_own_fence),
		cmocka_unit_test(late_completion_needs_no_fence),
		cmocka_unit_test(own_stall_is_no_time_of_a_close),
		cmocka_unit_test(end_of_the_peer_makes_the_sender_fence_what_it_still_reads),
		cmocka_unit_test(dead_end_answers_close_with_its_error),
		cmocka_unit_test(closing_receiver_delivers_nothing_more),
		cmocka_unit_test(closing_sender_takes_any_confirmation),
		cmocka_unit_test(close_of_an_older_epoch_is_ignored),
		cmocka_unit_test(abort_without_an_error_is_one),
		cmocka_unit_test(end_whose_peer_closed_stays_for_500_ms),
		cmocka_unit_test(confirmation_that_nobody_asked_for_ends_nothing),
		cmocka_unit_test(abort_acknowledges_nothing_that_waits),
	};

	return cmocka_run_group_tests_name("failover_close", tests, NULL, NULL);
}
