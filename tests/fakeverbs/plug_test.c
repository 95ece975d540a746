/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

/* An RDMA device that is removed during a run, and comes back as another one: its rail opens it again. */

/* Datagrams arrive at both ends. */
static void pair_heard(struct pair *p)
{
	p->e[S].count[DR_EV_DGRAM] = p->e[R].count[DR_EV_DGRAM] = 0;
	p->doing = "datagrams";
	p->began_ns = dr_now_ns();
	while (!p->e[S].count[DR_EV_DGRAM] || !p->e[R].count[DR_EV_DGRAM]) {
		if (dr_now_ns() - p->began_ns > 15 * DR_NS_PER_S)
			pair_stuck(p, "datagrams");
		dr_verbs_ops.rail_dgram(p->e[S].rail, "beat", 4);
		dr_verbs_ops.rail_dgram(p->e[R].rail, "beat", 4);
		pair_turn(p);
	}
}

/* The other end's datagrams go to a queue pair that is not there any more, so it must be told. */
static void goes_and_comes(struct pair *p, unsigned node, bool waits)
{
	const char *dev = node ? "fake1" : "fake0";

	pair_transfer(p);
	for (unsigned again = 0; again < 2; again++) {
		p->doing = "device gone";
		p->fake->unplug(dev, waits);
		pair_until(p, p->e[node].failed && p->e[node].rail_failed);
		assert_int_equal(p->e[node].rail_scope, DR_SCOPE_RAIL);
		pair_fence_both(p);
		assert_true(p->e[S].fenced && p->e[R].fenced);
		pair_end_path(p);
		p->doing = "device closed by its rail";
		pair_until(p, p->fake->plug(dev, 5 + 2 * again) == 0);
		p->doing = "device back";
		pair_heard(p);
		pair_again(p);
	}
}

static void device_gone_and_back(struct pair *p)
{
	p->vp.lazy_mr = p->nth & 4;
	pair_up(p);
	goes_and_comes(p, p->nth / 2 % 2, false);
}

static void gone_without_an_event(struct pair *p)
{
	goes_and_comes(p, p->nth, true);
}

/* A path that is asked for before the device is back fails as the first one did, with the rail. */
static void path_before_the_device_is_back(struct pair *p)
{
	p->fake->unplug("fake0", false);
	pair_until(p, p->e[S].failed);
	pair_fence_both(p);
	for (unsigned i = 0; i < 3; i++) {
		pair_end_path(p);
		pair_dial_again(p);
		pair_until(p, p->e[S].failed);
		assert_int_equal(p->e[S].scope, DR_SCOPE_RAIL);
		pair_fence_both(p);
	}
	assert_int_equal(p->fake->plug("fake0", 9), 0);
	pair_heard(p);
	pair_again(p);
}

/* The rail goes while its device is away, or while it is being opened. */
static void rail_closed_while_its_device_is_away(struct pair *p)
{
	p->fake->unplug("fake1", false);
	pair_until(p, p->e[R].failed);
	pair_fence_both(p);
	if (p->nth >= 4) {
		pair_end_path(p);
		assert_int_equal(p->fake->plug("fake1", 5), 0);
		p->fake->delay("open_device", 5);
	}
	for (unsigned i = 0; i < p->nth * p->nth; i++)
		pair_turn(p);
	pair_clean(p, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { PAIR(device_gone_and_back, PAIR_BOTH | PAIR_BARE, 8),
		PAIR(gone_without_an_event, PAIR_ALONE, 2),
		PAIR(path_before_the_device_is_back, PAIR_POLLED, 1),
		PAIR(rail_closed_while_its_device_is_away, PAIR_BOTH, 12) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
