/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/duo.h"

#include <poll.h>

/*
 * A receiver's process that is stopped for 10 s while its NICs go on: they answer writes of no bytes and
 * nothing else of it is heard. The sender waits. Several channels are stopped together, because duo_now() is no faster than real time.
 */
static const int64_t STOPPED_NS = 10 * DR_NS_PER_S;

enum { ONE_RAIL, SHADOW_DOWN, PRIMARY_DOWN, BOTH_UP, N };

static void carry(struct duo *d, unsigned messages)
{
	uint64_t before = d->taken;

	duo_until(d, d->taken >= before + messages);
}

/* The ends move, or only the sender's; nothing may end. */
static void run(struct duo *d, int64_t for_ns, bool stopped)
{
	int64_t until = duo_now() + for_ns;

	while (duo_now() < until) {
		for (unsigned i = 0; i < N; i++) {
			duo_turn_one(&d[i], SENDER);
			if (!stopped)
				duo_turn_one(&d[i], RECEIVER);
			if (d[i].err[SENDER] || d[i].err[RECEIVER])
				fail_msg("channel %u ended: %s %s", i, d[i].why[SENDER],
					d[i].why[RECEIVER]);
		}
		(void)poll(NULL, 0, 1); /* leaves the processor to others */
	}
}

static void a_stopped_receiver_is_waited_for(void **state)
{
	static const char *const down[N] = { [SHADOW_DOWN] = "s3", [PRIMARY_DOWN] = "s4" };
	const struct dr_fake_ctl *fake =
		duo_nics("s0:lo:127.0.0.1,r0:lo:127.0.0.2,"
			 "s2:lo:127.0.0.3,r2:lo:127.0.0.4,s3:lo:127.0.0.5,r3:lo:127.0.0.6,"
			 "s4:lo:127.0.0.7,r4:lo:127.0.0.8,s5:lo:127.0.0.9,r5:lo:127.0.0.10,"
			 "s6:lo:127.0.0.11,r6:lo:127.0.0.12,s7:lo:127.0.0.13,r7:lo:127.0.0.14");
	static const unsigned address[N] = { 0, 2, 6, 10 };
	static struct duo d[N];

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		const struct duo_opts o = { .rails = i == ONE_RAIL ? 1 : 2, .address = address[i] };

		duo_open(&d[i], fake, &o);
		duo_until(&d[i], duo_whole(&d[i]));
		if (down[i])
			fake->port(down[i], false);
		duo_until(&d[i], duo_on_path(&d[i], i == PRIMARY_DOWN));
		carry(&d[i], 20);
	}
	run(d, 300 * DR_NS_PER_MS, false);
	run(d, STOPPED_NS, true);
	for (unsigned i = 0; i < N; i++) {
		/* It is known to be stalled until the end: told once a second. */
		assert_true(d[i].stalled_ns > duo_now() - 3 * DR_NS_PER_S);
		assert_int_equal(dr_manager_ready(d[i].m[SENDER]), 1);
	}
	run(d, 300 * DR_NS_PER_MS, false);
	for (unsigned i = 0; i < N; i++) {
		carry(&d[i], 20);
		duo_shut(&d[i]);
	}
	duo_clean(fake);
}

/* The same sender gives up where no NIC answers. */
static void without_an_answer_both_rails_are_lost(void **state)
{
	const struct duo_opts o = { .rails = 2, .ends = true };
	static struct duo d;

	(void)state;
	duo_open(&d, duo_nics(duo_two_rails), &o);
	duo_until(&d, duo_whole(&d) && d.taken > 20);
	d.fake->cut(NULL, DR_FAKE_BOTH);
	duo_until(&d, d.err[SENDER] && d.err[RECEIVER]);
	assert_int_equal(d.err[SENDER], -ENETDOWN);
	duo_end(&d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stopped_receiver_is_waited_for),
		cmocka_unit_test(without_an_answer_both_rails_are_lost),
	};

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
