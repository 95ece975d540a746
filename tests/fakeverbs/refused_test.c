/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/duo.h"

/*
 * What the driver refuses when the paths are up already: memory that is registered at first use, the queue pair
 * that flushes GPU memory. Refused once, the channel goes on over the other path. Refused on both for good, it ends
 * with the driver's error at both ends; before, it switched without end, since every switch completed.
 */
static void open_paused(struct duo *d, const struct duo_opts *o)
{
	duo_open(d, duo_nics(duo_two_rails), o);
	duo_until(d,
		duo_whole(d) && dr_manager_ready(d->m[0]) == 1 && dr_manager_ready(d->m[1]) == 1);
}

static void has_ended_with(struct duo *d, unsigned end, int err)
{
	struct dr_channel_stats st;

	assert_int_equal(d->err[end], err);
	assert_int_equal(d->err[!end], err);
	assert_non_null(strstr(d->why[!end], "the peer ended the channel"));
	dr_channel_stats(d->ch[end], &st);
	assert_int_equal(d->taken, 0);
	assert_true(st.epoch >= 2); /* both paths were tried */
	duo_end(d);
}

static void end_with(struct duo *d, unsigned end, int err)
{
	d->o.paused = false;
	duo_until(d, d->err[SENDER] && d->err[RECEIVER]);
	has_ended_with(d, end, err);
}

static void memory_refused_for_good_ends_the_channel(void **state)
{
	static const struct {
		int err, reported; /* the driver's; as dr_verbs_explain() gives it */
	} c[] = { { ENOMEM, -ENOMEM }, { EPERM, -EACCES }, { EFAULT, -EFAULT } };
	const struct duo_opts o = {
		.rails = 2, .lazy = true, .ends = true, .waits_long = true, .paused = true
	};
	static struct duo d;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++)
		for (unsigned end = 0; end < 2; end++) {
			open_paused(&d, &o);
			d.fake->refuse(d.buf[end], 1, c[i].err);
			end_with(&d, end, c[i].reported);
		}
}

/* A path is refused its queue pair when it carries the data: before, it would not have come up. */
static bool ended(struct duo *d)
{
	static const char *const nic[] = { "b0", "b1" };

	for (unsigned i = 0; i < 2; i++)
		d->fake->loop_hold(nic[i], !duo_on_path(d, i));
	return d->err[SENDER] && d->err[RECEIVER];
}

static void flushing_queue_pair_refused_for_good_ends_the_channel(void **state)
{
	const struct duo_opts o = { .rails = 2, .cuda = true, .ends = true, .waits_long = true };
	const struct dr_fake_ctl *fake = duo_nics(duo_two_rails);
	static struct duo d;

	(void)state;
	fake->loop(NULL, ENOMEM);
	fake->loop_hold(NULL, true);
	duo_open(&d, fake, &o);
	duo_until(&d, ended(&d));
	has_ended_with(&d, RECEIVER, -ENOMEM);
}

/* It is there again after a few refusals, fewer than end the channel. */
static void memory_refused_for_a_while_costs_switches(void **state)
{
	const struct duo_opts o = { .rails = 2, .lazy = true, .paused = true };
	struct dr_channel_stats st;
	static struct duo d;

	(void)state;
	open_paused(&d, &o);
	d.fake->refuse(d.buf[RECEIVER], 1, ENOMEM);
	d.o.paused = false;
	d.began_ns = duo_now();
	do {
		duo_turn(&d, "two switches");
		dr_channel_stats(d.ch[SENDER], &st);
	} while (st.epoch < 3);
	d.fake->refuse(NULL, 0, 0);
	duo_until(&d, d.taken > 50);
	duo_end(&d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_refused_for_good_ends_the_channel),
		cmocka_unit_test(flushing_queue_pair_refused_for_good_ends_the_channel),
		cmocka_unit_test(memory_refused_for_a_while_costs_switches),
	};

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
