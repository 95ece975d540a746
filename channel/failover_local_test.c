/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/testkit.h"

/* Failures of scope LOCAL: what this end lacks on both paths ends the channel, what it lacks on one does not. */

/* The active path fails with this scope; the channel moves to the other one, and the failed one heals. */
static void fail_active_path(enum dr_scope scope, int64_t now)
{
	unsigned p = f.active, q = !p;
	uint32_t gen = f.path[p].gen;

	dr_fo_path_failed(&f, dr_fo_conn(p, gen), scope, -ENOMEM, "no memory", now);
	if (f.state == DR_FO_DEAD)
		return;
	dr_fo_fenced(&f, p, gen, now);
	if (f.prm.sender)
		frame(DR_FRAME_ANSWER, f.epoch, q, f.path[q].gen, f.acked, 0, now);
	else
		frame(DR_FRAME_SWITCH, f.epoch + 1, q, f.path[q].gen, 0, 0, now);
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.active, q);
	done();
	dr_fo_tick(&f, now + 550 * MS); /* past the longest time between two dials */
	dr_fo_path_ready(&f, p, gen + 1, now + 550 * MS);
	assert_int_equal(f.path[p].state, DR_FOP_READY);
	done();
}

/* What is missing at this end is missing on both paths. Nothing is on the wire, so no other bound ends it. */
static void local_failures_in_a_row_are_the_end(void **state)
{
	void (*const role[])(unsigned) = { sender_running, receiver_running };
	int64_t now = 10 * MS;

	(void)state;
	for (unsigned i = 0; i < 2; i++, now = 10 * MS) {
		role[i](0);
		for (unsigned k = 1; k < DR_FO_LOCAL_MAX; k++, now += 600 * MS) {
			fail_active_path(DR_SCOPE_LOCAL, now);
			assert_int_equal(f.state, DR_FO_RUN);
		}
		fail_active_path(DR_SCOPE_LOCAL, now);
		assert_int_equal(f.state, DR_FO_DEAD);
		assert_int_equal(f.err, -ENOMEM);
		assert_string_equal(f.why, "no memory");
		assert_non_null(find(DR_FOA_DEAD, DR_FO_NONE));
		assert_int_equal(sent(DR_FRAME_ABORT, 0)->err, -ENOMEM);
	}
}

static void progress(unsigned i, int64_t now)
{
	if (f.prm.sender) {
		frame(DR_FRAME_ACK, f.epoch, f.active, f.path[f.active].gen, f.acked + 1, 0, now);
		return;
	}
	for (unsigned part = 0; part < 2; part++)
		assert_true(dr_fo_delivered(&f, dr_fo_conn(f.data_path, f.data_gen), f.data_epoch,
				    i, part, now) >= 0);
}

/* Any number of them, with progress in between, or with a second in which the path worked. */
static void single_local_failures_are_no_end(void **state)
{
	void (*const role[])(unsigned) = { sender_running, receiver_running };
	unsigned part;
	uint64_t seq;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		int64_t now = 10 * MS;

		role[i](0);
		for (unsigned k = 0; k < 20; k++) {
			for (unsigned n = 0; n < DR_FO_LOCAL_MAX - 1; n++, now += 600 * MS)
				fail_active_path(DR_SCOPE_LOCAL, now);
			assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
			post_all(now);
			progress(k, now);
			for (part = 0; f.prm.sender && part < 2; part++)
				dr_fo_sent(&f, f.active, f.path[f.active].gen, f.epoch, k, part);
			assert_int_equal(f.head, k + 1);
			done();
		}
		for (unsigned k = 0; k < 3 * DR_FO_LOCAL_MAX; k++, now += 2000 * MS)
			fail_active_path(DR_SCOPE_LOCAL, now);
		assert_int_equal(f.state, DR_FO_RUN);
	}
}

static void fail_back(int64_t now)
{
	struct dr_frame fr = { .type = DR_FRAME_SWITCH,
		.epoch = f.epoch + 1,
		.gen = f.path[0].gen,
		.flags = DR_FRAME_PLANNED };

	if (f.prm.sender) {
		dr_fo_tick(&f, now); /* the hold-down is over: drains, which is nothing */
		assert_int_equal(sent(DR_FRAME_SWITCH, 0)->flags, DR_FRAME_PLANNED | DR_FRAME_IDLE);
		frame(DR_FRAME_ANSWER, f.epoch, 0, f.path[0].gen, f.acked, 0, now);
	} else {
		dr_fo_frame(&f, 1, &fr, now);
		f.path[1].backoff_ns = 0;
		dr_fo_fenced(&f, 1, f.path[1].gen, now);
		dr_fo_tick(&f, now + 20 * MS);
		dr_fo_path_ready(&f, 1, f.path[1].gen, now + 20 * MS);
	}
	assert_int_equal(f.state, DR_FO_RUN);
	assert_int_equal(f.active, 0);
	done();
}

/* Only the primary fails, after each failback; the shadow works. */
static void local_failures_of_one_path_are_no_end(void **state)
{
	void (*const role[])(unsigned) = { sender_running, receiver_running };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		int64_t now = 10 * MS;

		role[i](0);
		f.prm.hold_down_ns = 0;
		for (unsigned k = 0; k < 3 * DR_FO_LOCAL_MAX; k++, now += 600 * MS) {
			fail_active_path(DR_SCOPE_LOCAL, now);
			fail_back(now + 551 * MS);
		}
	}
}

/* Invariant 6; and a rail that flaps under an idle channel. */
static void only_local_failures_of_the_active_path_count(void **state)
{
	int64_t now = 10 * MS;

	(void)state;
	receiver_running(0);
	for (unsigned k = 0; k < 3 * DR_FO_LOCAL_MAX; k++, now += 600 * MS)
		fail_active_path(k % 2 ? DR_SCOPE_PATH : DR_SCOPE_RAIL, now);
	receiver_running(0);
	now = 10 * MS;
	for (unsigned k = 0; k <= DR_FO_LOCAL_MAX; k++) { /* most of them within a second */
		uint32_t gen = f.path[1].gen;

		dr_fo_path_failed(
			&f, dr_fo_conn(1, gen), DR_SCOPE_LOCAL, -ENOMEM, "no memory", now);
		assert_int_equal(f.state, DR_FO_RUN);
		dr_fo_fenced(&f, 1, gen, now);
		done();
		now = dr_fo_deadline(&f);
		assert_true(k + 1 >= DR_FO_LOCAL_MAX || now < DR_NS_PER_S);
		dr_fo_tick(&f, now);
		dr_fo_path_ready(&f, 1, gen + 1, now);
		assert_int_equal(f.path[1].state, DR_FOP_READY);
		done();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(local_failures_in_a_row_are_the_end),
		cmocka_unit_test(single_local_failures_are_no_end),
		cmocka_unit_test(local_failures_of_one_path_are_no_end),
		cmocka_unit_test(only_local_failures_of_the_active_path_count),
	};

	return cmocka_run_group_tests_name("failover_local", tests, NULL, NULL);
}
