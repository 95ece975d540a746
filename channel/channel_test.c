/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_testkit.h"

/*
 * When a receiver's acknowledgements and credits leave: they share a frame with each other, never stand
 * before the user's reply, and are never held back by an owner who has nothing else to do. Over a path
 * that counts what it is told to put on the wire.
 */
static void test_reply_goes_first(void **state)
{
	struct kit k;

	(void)state;
	setup(&k, 16);
	arrive(&k, 0, 1);
	assert_int_equal(k.path->flushes, 0); /* nothing stands before the user's reply */
	repost(&k, 1);
	assert_int_equal(k.path->flushes, 0); /* one of 16 is not worth a frame */
	assert_true(dr_channel_idle(k.ch, k.now));
	assert_int_equal(k.path->flushes, 1);
	assert_int_equal(k.path->acks_out, 1);
	assert_int_equal(k.path->credits_out, 1); /* rode along */
	assert_int_equal(k.path->acked, 1);
	assert_false(dr_channel_idle(k.ch, k.now)); /* and nothing is left */
	assert_int_equal(k.path->flushes, 1);
	teardown(&k);
}

static void test_quarter_of_window(void **state)
{
	struct kit k;

	(void)state;
	setup(&k, 16);
	arrive(&k, 0, 3);
	repost(&k, 3);
	assert_int_equal(k.path->flushes, 0);
	arrive(&k, 3, 1);
	assert_int_equal(k.path->flushes, 0);
	repost(&k, 1);
	assert_int_equal(k.path->flushes, 1);
	assert_int_equal(k.path->acks_out, 1);
	assert_int_equal(k.path->credits_out, 4);
	assert_int_equal(k.path->acked, 4);
	teardown(&k);
}

/* With one message in flight the sender waits for both: one frame run must do. */
static void test_window_of_one(void **state)
{
	struct kit k;

	(void)state;
	setup(&k, 1);
	for (unsigned i = 0; i < 5; i++) {
		arrive(&k, i, 1);
		assert_int_equal(k.path->flushes, i);
		repost(&k, 1);
		assert_int_equal(k.path->flushes, i + 1);
		assert_int_equal(k.path->acks_out, i + 1);
		assert_int_equal(k.path->credits_out, i + 1);
	}
	teardown(&k);
}

static void test_held_back_has_a_deadline(void **state)
{
	struct kit k;
	int64_t due;

	(void)state;
	setup(&k, 16);
	dr_channel_tick(k.ch, k.now);
	due_ns = DR_NEVER;
	arrive(&k, 0, 1);
	due = dr_channel_deadline(k.ch);
	assert_true(due > k.now && due <= k.now + 50 * DR_NS_PER_US);
	assert_int_equal(due_ns, due); /* the owner was told */
	dr_channel_tick(k.ch, due - 1);
	assert_int_equal(k.path->acks_out, 0);
	dr_channel_tick(k.ch, due);
	assert_int_equal(k.path->acks_out, 1);
	assert_true(dr_channel_deadline(k.ch) > due);
	teardown(&k);
}

/* Nobody waits for it: with the credits, when a quarter of the window is left, or after 20 ms. */
static void test_ack_batch(void **state)
{
	struct kit k;

	(void)state;
	setup(&k, 16);
	dr_channel_set_ack_batch(k.ch, true);
	for (unsigned i = 0; i < 11; i++) {
		due_ns = DR_NEVER;
		arrive(&k, i, 1);
		assert_int_equal(due_ns, dr_channel_deadline(k.ch));
		repost(&k, 1);
		assert_false(dr_channel_idle(k.ch, k.now));
		assert_int_equal(k.path->flushes, 0);
	}
	dr_channel_tick(k.ch, k.now + 19 * DR_NS_PER_MS);
	assert_int_equal(k.path->flushes, 0);
	k.now += 20 * DR_NS_PER_MS;
	assert_true(dr_channel_deadline(k.ch) <= k.now);
	dr_channel_tick(k.ch, k.now);
	assert_int_equal(k.path->flushes, 1);
	assert_int_equal(k.path->acked, 11);
	assert_int_equal(k.path->credits_out, 11);
	for (unsigned i = 0; i < 12; i++) {
		assert_int_equal(k.path->flushes, 1);
		arrive(&k, 11 + i, 1);
		repost(&k, 1);
	}
	assert_int_equal(k.path->flushes, 2); /* one frame run of both */
	assert_int_equal(k.path->acked, 23);
	assert_int_equal(k.path->credits_out, 23);
	arrive(&k, 23, 1);
	dr_channel_set_ack_batch(k.ch, false);
	assert_true(dr_channel_idle(k.ch, k.now));
	teardown(&k);
}

static void test_back_pressure_is_no_spin(void **state)
{
	struct kit k;
	int64_t due;

	(void)state;
	setup(&k, 16);
	arrive(&k, 0, 1);
	k.path->full = true;
	assert_false(dr_channel_idle(k.ch, k.now));
	due = dr_channel_deadline(k.ch);
	dr_channel_tick(k.ch, due);
	assert_true(dr_channel_deadline(k.ch) > due);
	k.path->full = false;
	dr_channel_tick(k.ch, dr_channel_deadline(k.ch));
	assert_int_equal(k.path->acks_out, 1);
	teardown(&k);
}

static void test_poll_looks_at_active_only(void **state)
{
	struct kit k;

	(void)state;
	setup(&k, 16);
	made[0]->looks = made[1]->looks = 0;
	assert_int_equal(dr_channel_poll(k.ch, k.now), 0);
	assert_int_equal(made[0]->looks, 1);
	assert_int_equal(made[1]->looks, 0);
	teardown(&k);
}

/* A receive that a path refuses for good is never announced, so nothing would ever arrive in it. Of an
 * error that passes nothing is seen. */
static void test_refused_receive_ends_the_channel(void **state)
{
	static const int passes[] = { -EAGAIN, -ENOTCONN },
			 stays[] = { -EMSGSIZE, -EINVAL, -ENOMEM };
	struct kit k;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(passes); i++) {
		setup(&k, 4);
		arrive(&k, 0, 1);
		k.path->refuses = passes[i];
		repost(&k, 1);
		assert_int_equal(dr_channel_ready(k.ch), 1);
		k.path->refuses = 0;
		dr_channel_tick(k.ch, k.now);
		dr_channel_flush(k.ch, k.now);
		assert_int_equal(k.path->credits + k.path->credits_out, 1);
		teardown(&k);
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(stays); i++) {
		setup(&k, 4);
		arrive(&k, 0, 1);
		k.path->refuses = stays[i];
		repost(&k, 1);
		assert_int_equal(dr_channel_ready(k.ch), stays[i]);
		assert_int_equal(dr_channel_test(k.ch, 4), stays[i]);
		assert_int_equal(k.path->aborts, 1); /* the peer learns of it */
		teardown(&k);
	}
}

/* CLOSE may overtake the path's acknowledgements. What it completes is reported and counted. */
static void test_completions_told_by_datagram_are_reported(void **state)
{
	struct dr_frame fr = { .type = DR_FRAME_CLOSE, .epoch = 1, .seq = 2 };
	struct dr_channel_stats stats;
	struct kit k;
	uint64_t seq;

	(void)state;
	setup_end(&k, 4, true);
	for (unsigned i = 0; i < 2; i++) {
		struct dr_span span = { .mem = &k.mem, .len = 8 };

		assert_int_equal(dr_channel_send(k.ch, &span, 1, &seq, k.now), 0);
		dr_channel_flush(k.ch, k.now);
		push(k.path, (struct dr_event){ .kind = DR_EV_SENT, .epoch = 1, .seq = seq });
	}
	dr_channel_progress(k.ch, k.now);
	assert_int_equal(reported, 0);
	dr_channel_datagram(k.ch, &fr, k.now);
	assert_int_equal(dr_channel_ready(k.ch), -ESHUTDOWN);
	assert_int_equal(reported, 2);
	dr_channel_stats(k.ch, &stats);
	assert_int_equal(stats.bytes, 16);
	teardown(&k);
}

/* What the paths show of the peer's kernel: the newest answer of those that are up. */
static void test_answers_of_a_peers_kernel(void **state)
{
	static const struct {
		int64_t age_ms[DR_PATHS];
		unsigned unanswered[DR_PATHS];
		int64_t newest_ms;
		bool known, pending;
	} c[] = {
		{ { -1, -1 }, { 0, 0 }, -1, false, false },
		{ { 300, -1 }, { 0, 0 }, 300, true, true },
		{ { -1, 300 }, { 0, 1 }, 300, true, true },
		{ { 7, 300 }, { 2, 2 }, 7, true, false },
		{ { 300, 7 }, { 2, 1 }, 7, true, true }, /* one that is not overdue decides */
	};
	struct dr_channel_answers a;
	struct kit k;

	(void)state;
	setup(&k, 4);
	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		for (unsigned p = 0; p < DR_PATHS; p++)
			made[p]->stats = (struct dr_path_stats){ .unanswered = c[i].unanswered[p],
				.peer_ack_age_ns =
					c[i].age_ms[p] < 0 ? -1 : c[i].age_ms[p] * DR_NS_PER_MS };
		dr_channel_answers(k.ch, &a, 1000 * DR_NS_PER_MS);
		assert_true(a.up);
		assert_int_equal(a.at_ns, c[i].known ? (1000 - c[i].newest_ms) * DR_NS_PER_MS : 0);
		assert_int_equal(a.pending, c[i].pending);
	}
	dr_channel_rail_down(
		k.ch, 1, -ENETDOWN, "test", k.now); /* a path that is down says nothing */
	dr_channel_answers(k.ch, &a, 1000 * DR_NS_PER_MS);
	assert_int_equal(a.at_ns, 700 * DR_NS_PER_MS);
	assert_false(a.pending);
	teardown(&k);
}

static void test_memory_is_safe_after_mem_dereg(void **state)
{
	struct kit k;

	(void)state;
	for (unsigned outstanding = 0; outstanding < 2; outstanding++) {
		setup(&k, 1);
		if (!outstanding)
			arrive(&k, 0, 1);
		assert_int_equal(dr_channel_mem_dereg(k.ch, &k.mem, k.now, NULL), 0);
		assert_int_equal(deregs, DR_PATHS);
		teardown(&k);
	}
}

/* Either rail's NIC may keep it; both are told to let it go. */
static void test_region_that_cannot_be_deregistered(void **state)
{
	struct dr_err e;
	struct kit k;

	(void)state;
	for (unsigned i = 0; i < DR_PATHS; i++) {
		setup(&k, 4);
		dereg_err[i] = -EBUSY;
		assert_int_equal(dr_channel_mem_dereg(k.ch, &k.mem, k.now, &e), -EBUSY);
		assert_int_equal(e.code, -EBUSY);
		assert_string_equal(
			e.text, i ? "channel 3: 4096 bytes could not be deregistered from "
				    "rail 1 (fake): EBUSY"
				  : "channel 3: 4096 bytes could not be deregistered from "
				    "rail 0 (fake): EBUSY");
		assert_int_equal(deregs, DR_PATHS);
		dereg_err[i] = 0;
		teardown(&k);
	}
}

/* Whoever stopped it: mem_dereg with messages outstanding, stop, or the channel itself, which replaced the path. */
static void test_connection_that_cannot_be_destroyed(void **state)
{
	static const char text[] =
		"channel 3: the connection of path 0 (rail 0, fake) could not be destroyed: EIO";
	struct dr_err e;
	struct kit k;

	(void)state;
	for (unsigned who = 0; who < 3; who++) {
		setup(&k, 4);
		k.path->stuck = -EIO;
		memset(&e, 0, sizeof(e));
		if (who == 0)
			assert_int_equal(dr_channel_stop(k.ch, &e), -EIO);
		if (who == 1)
			assert_int_equal(dr_channel_mem_dereg(k.ch, &k.mem, k.now, &e), -EIO);
		if (who == 2) {
			k.path->fences = true;
			push(k.path, (struct dr_event){ .kind = DR_EV_FAILED,
					     .scope = DR_SCOPE_PATH,
					     .err = -ECONNRESET,
					     .text = "test" });
			dr_channel_progress(k.ch, k.now); /* fences */
			dr_channel_progress(k.ch, k.now); /* fenced: the path is freed */
			assert_null(dr_channel_path(k.ch, 0));
			assert_int_equal(dr_channel_stop(k.ch, &e), -EIO);
		}
		assert_string_equal(e.text, text);
		/* It stays so, for all memory of the channel. */
		assert_int_equal(dr_channel_stop(k.ch, NULL), -EIO);
		if (who != 1)
			assert_int_equal(dr_channel_mem_dereg(k.ch, &k.mem, k.now, NULL), -EIO);
		assert_int_equal(deregs, DR_PATHS);
		dr_channel_fini(k.ch);
	}
}

/* The owner of a sender learns what the receiver waits for, message by message. */
static void test_credit_names_the_next_message(void **state)
{
	struct dr_credit c;
	struct kit k;

	(void)state;
	setup_end(&k, 4, true);
	assert_int_equal(dr_channel_credit(k.ch, &c), -EAGAIN);
	credits_told = 0;
	k.path->granted = 2;
	push(k.path, (struct dr_event){ .kind = DR_EV_CREDIT, .epoch = 1, .seq = 1 });
	dr_channel_progress(k.ch, k.now);
	assert_int_equal(credits_told, 1);
	for (uint64_t i = 0; i < 2; i++) {
		struct dr_span span = { .mem = &k.mem, .len = 8 };
		uint64_t seq;

		assert_int_equal(dr_channel_credit(k.ch, &c), 0);
		assert_int_equal(c.tag[0], i);
		assert_int_equal(dr_channel_send(k.ch, &span, 1, &seq, k.now), 0);
		assert_int_equal(seq, i);
	}
	assert_int_equal(dr_channel_credit(k.ch, &c), -EAGAIN);
	dr_channel_fail(k.ch, -EIO, "test", k.now);
	assert_int_equal(dr_channel_credit(k.ch, &c), -EIO);
	teardown(&k);
}

/* Credits that came while this end was still fencing the old path are told when the switch is over. */
static void test_credits_of_a_new_epoch_are_told(void **state)
{
	struct dr_frame fr = { .type = DR_FRAME_ANSWER, .path = 1, .gen = 1, .epoch = 2 };
	struct dr_credit c;
	struct kit k;

	(void)state;
	setup_end(&k, 4, true);
	made[1]->granted = 1;
	push(k.path, (struct dr_event){ .kind = DR_EV_FAILED,
			     .scope = DR_SCOPE_PATH,
			     .err = -ECONNRESET,
			     .text = "test" });
	dr_channel_progress(k.ch, k.now);
	dr_frame_encode(&fr, made[1]->frame);
	push(made[1], (struct dr_event){
			      .kind = DR_EV_CTRL, .data = made[1]->frame, .len = DR_FRAME_LEN });
	push(made[1], (struct dr_event){ .kind = DR_EV_CREDIT, .epoch = 2, .seq = 0 });
	dr_channel_progress(k.ch, k.now);
	assert_int_equal(dr_channel_credit(k.ch, &c), -EAGAIN); /* the fence is not done */
	credits_told = 0;
	push(k.path, (struct dr_event){ .kind = DR_EV_FENCED });
	dr_channel_progress(k.ch, k.now);
	assert_int_equal(dr_channel_ready(k.ch), 1);
	assert_int_equal(credits_told, 1);
	assert_int_equal(dr_channel_credit(k.ch, &c), 0);
	teardown(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reply_goes_first),
		cmocka_unit_test(test_quarter_of_window),
		cmocka_unit_test(test_window_of_one),
		cmocka_unit_test(test_held_back_has_a_deadline),
		cmocka_unit_test(test_ack_batch),
		cmocka_unit_test(test_back_pressure_is_no_spin),
		cmocka_unit_test(test_poll_looks_at_active_only),
		cmocka_unit_test(test_refused_receive_ends_the_channel),
		cmocka_unit_test(test_completions_told_by_datagram_are_reported),
		cmocka_unit_test(test_answers_of_a_peers_kernel),
		cmocka_unit_test(test_memory_is_safe_after_mem_dereg),
		cmocka_unit_test(test_region_that_cannot_be_deregistered),
		cmocka_unit_test(test_connection_that_cannot_be_destroyed),
		cmocka_unit_test(test_credit_names_the_next_message),
		cmocka_unit_test(test_credits_of_a_new_epoch_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
