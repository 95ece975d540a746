/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/duo.h"

#include <poll.h>

/*
 * Grey failures over verbs: of the reliable connections, the datagrams and the packets of full size some pass and
 * some do not. The NICs repeat without end and report nothing.
 */
static void open_duo(struct duo *d)
{
	const struct duo_opts o = { .rails = 2, .peer = true };
	const struct dr_fake_ctl *fake = duo_nics(duo_two_rails);

	fake->retry7_for_ever(NULL, true);
	duo_open(d, fake, &o);
	duo_until(d, duo_whole(d) && duo_on_path(d, 0) && d->taken > 20);
}

static void run(struct duo *d, int64_t for_ns)
{
	int64_t until = duo_now() + for_ns;

	while (duo_now() < until) {
		d->began_ns = duo_now();
		duo_turn(d, "the end of a time");
		(void)poll(NULL, 0, 1); /* leaves the processor to others */
	}
}

/* The data, or what acknowledges it. The rail works for heartbeats, so it stays up. */
static void connections_that_carry_nothing_are_left(void **state)
{
	static const char *const deaf[] = { "b0", "a0" };
	static struct duo d;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(deaf); i++) {
		open_duo(&d);
		d.fake->cut_type(deaf[i], IBV_QPT_RC, DR_FAKE_RX);
		duo_until(&d, duo_on_path(&d, 1) && d.cause[0]);
		assert_non_null(strstr(d.cause, "is silent although the rail works"));
		assert_int_equal(d.downs, 0);
		duo_end(&d);
	}
}

/* The idle rail goes down at both ends. */
static void lost_datagrams_switch_nothing(void **state)
{
	static struct duo d;

	(void)state;
	open_duo(&d);
	d.fake->cut_type("a1", IBV_QPT_UD, DR_FAKE_BOTH);
	run(&d, 2 * DR_NS_PER_S);
	assert_int_equal(d.downs, 2);
	assert_string_equal(d.cause, "");
	assert_true(duo_on_path(&d, 0));
	duo_end(&d);
}

/* Small messages pass, probes too. The rail is used again when packets of full size do. */
static void a_hole_for_packets_of_full_size(void **state)
{
	static struct duo d;

	(void)state;
	open_duo(&d);
	d.fake->hole("b0", 1500);
	duo_until(&d, duo_on_path(&d, 1) && d.cause[0]);
	assert_non_null(strstr(d.cause, "datagrams of 4095 bytes do not arrive"));
	run(&d, 300 * DR_NS_PER_MS); /* longer than the hold-down */
	assert_true(duo_on_path(&d, 1));
	d.fake->hole("b0", 0);
	duo_until(&d, duo_on_path(&d, 0));
	duo_end(&d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_that_carry_nothing_are_left),
		cmocka_unit_test(lost_datagrams_switch_nothing),
		cmocka_unit_test(a_hole_for_packets_of_full_size),
	};

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
