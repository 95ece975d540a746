/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

/* Padded datagrams: whether packets of full size pass. */
static int64_t asked; /* when the doubt began */

/* Half an interval in which the owner goes on to ask. */
static void ask_on(struct pair *p)
{
	dr_hb_question(&p->h[0], 0, 9000, p->now);
	half_round(p);
}

static void ask(struct pair *p)
{
	asked = p->now;
	dr_hb_question(&p->h[0], 0, 9000, p->now);
}

static void end_question(struct pair *p)
{
	half_rounds(p, 2 * DR_HB_ASKS + 2);
	assert_int_equal(p->h[0].rail[0].padded_size, 0);
}

static bool lost(const struct pair *p)
{
	return dr_hb_padded_lost(&p->h[0], 0, asked);
}

static bool passed(const struct pair *p)
{
	return p->h[0].rail[0].passed_ns > asked;
}

/* Small datagrams pass and padded ones do not: known after DR_PADDED_LOST of them. */
static void packets_of_full_size_are_lost(void **state)
{
	struct pair *p = *state;
	int n = 0;

	half_rounds(p, 10);
	p->hole[0] = 1u << 0;
	ask(p);
	while (!lost(p) && n < 100) {
		ask_on(p);
		n++;
	}
	assert_in_range(n, DR_PADDED_LOST / 2, DR_PADDED_LOST / 2 + 2);
	assert_int_equal(p->h[0].d.rail[0].down || p->h[1].d.rail[0].down, false);
	/* The rail is down at this end until a padded one arrives. */
	dr_detect_force_down(&p->h[0].d, 0, true);
	for (int i = 0; i < 200; i++) {
		half_round(p);
		assert_true(p->h[0].d.rail[0].down && !p->h[1].d.rail[0].down);
	}
	p->hole[0] = 0;
	assert_in_range(rounds_until(p, 0, 0, false), 1, DR_REVIVE + 3);
}

/* Neither an answer nor losses of the time before a doubt belong to it, in one question or two. */
static void each_doubt_begins_anew(void **state)
{
	struct pair *p = *state;

	for (unsigned again = 0; again < 2; again++) {
		p->hole[0] = 0;
		ask(p);
		half_rounds(p, 4);
		assert_true(passed(p) && !lost(p));
		if (again)
			end_question(p);
		p->hole[0] = 1u << 0;
		ask(p);
		assert_false(passed(p));
		for (unsigned i = 0; i < DR_PADDED_LOST / 2 + 2; i++)
			ask_on(p);
		assert_true(lost(p) && !passed(p));
		if (again)
			end_question(p);
		ask(p);
		assert_false(lost(p));
		half_round(p);
		assert_false(lost(p));
	}
}

/* Owners may ask for different sizes: the largest passes where all do. */
static void the_largest_size_is_sent(void **state)
{
	struct pair *p = *state;

	ask(p);
	dr_hb_question(&p->h[0], 0, 8000, p->now);
	assert_int_equal(p->h[0].rail[0].padded_size, 9000);
	end_question(p);
	dr_hb_question(&p->h[0], 0, 8000, p->now);
	assert_int_equal(p->h[0].rail[0].padded_size, 8000);
}

/* A peer whose own bytes make heartbeats unnecessary reports padded datagrams all the same. */
static void a_padded_datagram_is_answered(void **state)
{
	struct pair *p = *state;
	struct dr_hb_out out;
	uint8_t buf[DR_DGRAM_MAX];
	size_t n = dr_hb_make(&p->h[0], 0, 9000, buf);

	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n, 9000, 0), 0);
	p->now = T;
	hear_bytes(p, 1, 1);
	dr_hb_tick(&p->h[1], 3, T, &out);
	assert_int_equal(out.send, 3);
	p->now = 2 * T;
	hear_bytes(p, 1, 0);
	hear_bytes(p, 1, 1);
	dr_hb_tick(&p->h[1], 3, 2 * T, &out);
	assert_int_equal(out.send, 0);
}

/* Neither a rail that loses one datagram in 25, nor one whose peer is stopped, nor one that is cut
 * looks like one that loses large packets. */
static void padded_datagrams_are_not_lost_alone(void **state)
{
	static const unsigned percent[] = { 1, 2, 4 };
	struct pair *p = *state;

	for (unsigned k = 0; k < DR_ARRAY_LEN(percent); k++) {
		p->loss_percent = percent[k];
		for (int i = 0; i < 20000; i++) {
			if (i % 20 == 0) /* data made progress */
				ask(p);
			ask_on(p);
			if (lost(p))
				fail_msg("%u %% loss: half interval %d", percent[k], i);
		}
	}
	p->loss_percent = 0;
	p->stopped[1] = true;
	for (int i = 0; i < 200; i++) {
		ask_on(p);
		assert_false(lost(p));
	}
	p->stopped[1] = false;
	p->cut[0] = 1u << 0;
	for (int i = 0; i < 200; i++) {
		ask_on(p);
		assert_false(lost(p));
	}
}

/* Half of those needed were overtaken when the peer stops: of the later ones nothing is known. */
static void what_nothing_overtook_is_not_lost(void **state)
{
	struct pair *p = *state;

	p->hole[0] = 1u << 0;
	ask(p);
	while (p->h[0].rail[0].n_padded < DR_PADDED_LOST - 1)
		step(p, T / 4);
	p->stopped[1] = true;
	for (int i = 0; i < 100; i++) {
		ask_on(p);
		assert_false(lost(p));
	}
	assert_true(p->h[0].rail[0].n_padded >= DR_PADDED_LOST);
}

/* Of a rail that carries nothing, the number that the peer reports stays, however many are sent. */
static void a_report_that_stays_overtakes_nothing(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->cut[0] = 1u << 0;
	ask(p);
	for (int i = 0; i < 15000; i++) {
		ask_on(p);
		assert_false(lost(p));
	}
}

/* What is sent on a rail with a long queue is reported late. Until then, few more follow. */
static void padded_datagrams_do_not_fill_a_queue(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->cut[0] = 1u << 0; /* bytes arrive, no datagram does for a second */
	ask(p);
	for (int i = 0; i < 200; i++) {
		hear_bytes(p, 1, 0);
		ask_on(p);
	}
	assert_int_equal(p->h[0].rail[0].n_padded, DR_HB_PADDED_FLIGHT);
	p->cut[0] = 0; /* something that was sent later does */
	half_rounds(p, 4);
	assert_true(passed(p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(packets_of_full_size_are_lost, setup),
		cmocka_unit_test_setup(each_doubt_begins_anew, setup),
		cmocka_unit_test_setup(the_largest_size_is_sent, setup),
		cmocka_unit_test_setup(a_padded_datagram_is_answered, setup),
		cmocka_unit_test_setup(padded_datagrams_are_not_lost_alone, setup),
		cmocka_unit_test_setup(what_nothing_overtook_is_not_lost, setup),
		cmocka_unit_test_setup(a_report_that_stays_overtakes_nothing, setup),
		cmocka_unit_test_setup(padded_datagrams_do_not_fill_a_queue, setup),
	};

	return cmocka_run_group_tests_name("heartbeat, padded datagrams", tests, NULL, NULL);
}
