/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

/* Padded datagrams: whether packets of full size pass. */
static struct dr_hb_doubt asked;

static void ask(struct pair *p)
{
	dr_hb_doubt(&p->h[0], 0, &asked);
	dr_hb_question(&p->h[0], 0, 9000, p->now);
}

/* Small datagrams pass and padded ones do not: known after DR_PADDED_LOST of them. */
static void packets_of_full_size_are_lost(void **state)
{
	struct pair *p = *state;
	int n = 0;

	half_rounds(p, 10);
	p->hole[0] = 1u << 0;
	ask(p);
	while (!dr_hb_padded_lost(&p->h[0], 0, &asked) && n < 100) {
		half_round(p);
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

/* Neither an answer nor losses of an earlier question belong to a later one. */
static void each_question_begins_anew(void **state)
{
	struct pair *p = *state;

	ask(p);
	half_rounds(p, 10);
	assert_true(dr_hb_padded_passed(&p->h[0], 0, &asked));
	dr_hb_question(&p->h[0], 0, 0, p->now);
	p->hole[0] = 1u << 0;
	ask(p);
	half_rounds(p, 10);
	assert_false(dr_hb_padded_passed(&p->h[0], 0, &asked));
	assert_true(dr_hb_padded_lost(&p->h[0], 0, &asked));
	dr_hb_question(&p->h[0], 0, 0, p->now);
	ask(p);
	assert_false(dr_hb_padded_lost(&p->h[0], 0, &asked));
	half_round(p);
	assert_false(dr_hb_padded_lost(&p->h[0], 0, &asked));
}

/* A doubt that begins later neither delays an earlier one, nor takes its answer. */
static void doubts_share_the_question(void **state)
{
	struct dr_hb_doubt first;
	struct pair *p = *state;
	unsigned n[2] = { 0 };

	ask(p);
	half_round(p);
	half_round(p);
	assert_true(dr_hb_padded_passed(&p->h[0], 0, &asked));
	dr_hb_question(&p->h[0], 0, 0, p->now);
	p->hole[0] = 1u << 0;
	ask(p);
	first = asked;
	half_rounds(p, 40);
	for (int i = 0; i < 2; i++) { /* the second, when few are sent, and of another size */
		assert_true(dr_hb_padded_lost(&p->h[0], 0, &first));
		dr_hb_doubt(&p->h[0], 0, &asked);
		dr_hb_question(&p->h[0], 0, i == 0 ? 8000 : 9000, p->now);
		assert_true(dr_hb_padded_lost(&p->h[0], 0, &first));
		while (!dr_hb_padded_lost(&p->h[0], 0, &asked) && n[i] < 100) {
			half_round(p);
			n[i]++;
		}
		assert_in_range(n[i], DR_PADDED_LOST / 2, DR_PADDED_LOST / 2 + 3);
		assert_false(dr_hb_padded_passed(&p->h[0], 0, &first));
	}
	p->hole[0] = 0;
	half_round(p);
	half_round(p);
	assert_true(dr_hb_padded_passed(&p->h[0], 0, &first));
	assert_true(dr_hb_padded_passed(&p->h[0], 0, &asked));
	dr_hb_doubt(&p->h[0], 0, &asked);
	assert_false(dr_hb_padded_passed(&p->h[0], 0, &asked));
	half_round(p);
	half_round(p);
	assert_true(dr_hb_padded_passed(&p->h[0], 0, &asked));
}

/* A few padded datagrams are sent quickly, then one per interval; the bandwidth is the data's. */
static void a_long_question_costs_one_datagram_per_interval(void **state)
{
	struct pair *p = *state;
	unsigned n;

	p->hole[0] = 1u << 0;
	ask(p);
	half_rounds(p, 10);
	n = p->h[0].rail[0].n_padded;
	half_rounds(p, 100);
	assert_in_range(p->h[0].rail[0].n_padded - n, 49, 51);
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

/* Numbers are reported by their low bits: an old report must not look new after they have gone round. */
static void an_old_padded_datagram_answers_nothing(void **state)
{
	struct pair *p = *state;

	ask(p);
	half_round(p);
	half_round(p);
	assert_true(dr_hb_padded_passed(&p->h[0], 0, &asked));
	p->hole[0] = 1u << 0;
	dr_hb_question(&p->h[0], 0, 0, p->now);
	ask(p);
	for (int i = 0; i < 100000; i++) {
		half_round(p);
		assert_false(dr_hb_padded_passed(&p->h[0], 0, &asked));
	}
	assert_true(p->h[0].tick > 2 * UINT16_MAX);
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
			if (i % 20 == 0) { /* data made progress */
				dr_hb_question(&p->h[0], 0, 0, p->now);
				ask(p);
			}
			half_round(p);
			if (dr_hb_padded_lost(&p->h[0], 0, &asked))
				fail_msg("%u %% loss: half interval %d", percent[k], i);
		}
	}
	p->loss_percent = 0;
	p->stopped[1] = true;
	for (int i = 0; i < 200; i++) {
		half_round(p);
		assert_false(dr_hb_padded_lost(&p->h[0], 0, &asked));
	}
	p->stopped[1] = false;
	p->cut[0] = 1u << 0;
	for (int i = 0; i < 200; i++) {
		half_round(p);
		assert_false(dr_hb_padded_lost(&p->h[0], 0, &asked));
	}
}

/* Half of those needed were overtaken when the peer stops: of the later ones nothing is known. */
static void what_nothing_overtook_is_not_lost(void **state)
{
	struct pair *p = *state;

	ask(p);
	half_rounds(p, 200); /* few of many small ones are lost */
	p->hole[0] = 1u << 0;
	while (p->h[0].rail[0].padded_lost < DR_PADDED_LOST - DR_HB_PADDED_FLIGHT)
		step(p, T / 4);
	p->stopped[1] = true;
	for (int i = 0; i < 100; i++) {
		half_round(p);
		assert_false(dr_hb_padded_lost(&p->h[0], 0, &asked));
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
	for (int i = 0; i < 150000; i++) {
		half_round(p);
		assert_int_equal(p->h[0].rail[0].padded_lost, 0);
	}
	assert_true(p->h[0].tick > 2 * UINT16_MAX);
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
		half_round(p);
	}
	assert_int_equal(p->h[0].rail[0].n_padded, DR_HB_PADDED_FLIGHT);
	p->cut[0] = 0; /* something that was sent later does */
	half_rounds(p, 10);
	assert_true(dr_hb_padded_passed(&p->h[0], 0, &asked));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(packets_of_full_size_are_lost, setup),
		cmocka_unit_test_setup(each_question_begins_anew, setup),
		cmocka_unit_test_setup(doubts_share_the_question, setup),
		cmocka_unit_test_setup(a_long_question_costs_one_datagram_per_interval, setup),
		cmocka_unit_test_setup(a_padded_datagram_is_answered, setup),
		cmocka_unit_test_setup(an_old_padded_datagram_answers_nothing, setup),
		cmocka_unit_test_setup(padded_datagrams_are_not_lost_alone, setup),
		cmocka_unit_test_setup(what_nothing_overtook_is_not_lost, setup),
		cmocka_unit_test_setup(a_report_that_stays_overtakes_nothing, setup),
		cmocka_unit_test_setup(padded_datagrams_do_not_fill_a_queue, setup),
	};

	return cmocka_run_group_tests_name("heartbeat, padded datagrams", tests, NULL, NULL);
}
