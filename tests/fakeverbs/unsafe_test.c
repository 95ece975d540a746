/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

#include "transport/verbs/mem.h"

/*
 * Memory that the NIC may keep: stop and mr_dereg say so when the driver refuses to destroy a queue pair or to
 * deregister a region, and only then.
 */

/* R has two messages posted, one of them on its way. */
static void posted(struct pair *p)
{
	assert_int_equal(pair_post_recv(p, 0), 0);
	assert_int_equal(pair_post_recv(p, 1), 0);
	assert_int_equal(pair_post_send(p, 0), 0);
}

static void stop_reports_what_cannot_be_destroyed(struct pair *p)
{
	posted(p);
	p->fake->fail_always("destroy_qp", EBUSY);
	pair_end_path(p);
	assert_int_equal(p->e[S].stop_rc, -EBUSY);
	assert_int_equal(p->e[R].stop_rc, -EBUSY);
	pair_shut(p);
	/* What the queue pair may still touch is out of its reach: the region is gone. */
	assert_int_equal(p->e[S].dereg_rc, 0);
	assert_int_equal(p->e[R].dereg_rc, 0);
	pair_clean(p, true);
}

/* Destroyed by the second attempt: nothing is left, but what stop said stays. Either of two data queue pairs. */
static void one_refusal_is_reported_and_tried_again(struct pair *p)
{
	unsigned i = p->nth;
	struct pair_end *e = &p->e[i % 2];

	posted(p);
	dr_verbs_ops.close(e->path);
	p->fake->fail_call("destroy_qp", 1 + i / 2, EBUSY);
	assert_int_equal(dr_verbs_ops.stop(e->path), -EBUSY);
	assert_non_null(p->fake->failed());
	pair_end_path(p);
	assert_int_equal(e->stop_rc, -EBUSY);
	assert_int_equal(p->e[1 - i % 2].stop_rc, 0);
	pair_clean(p, false);
}

/* A fence found the queue pairs empty: no buffer is theirs any more. */
static void after_a_fence_stop_reports_nothing(struct pair *p)
{
	posted(p);
	pair_fence_both(p);
	assert_true(p->e[S].fenced && p->e[R].fenced);
	p->fake->fail_always("destroy_qp", EBUSY);
	pair_end_path(p);
	assert_int_equal(p->e[S].stop_rc, 0);
	assert_int_equal(p->e[R].stop_rc, 0);
	pair_clean(p, true);
}

/* A fence that could neither drain nor destroy: FAILED{RAIL}, no FENCED; stop tries again. */
static void a_failed_fence_is_repeated_by_stop(struct pair *p)
{
	unsigned heals = p->nth;

	posted(p);
	p->fake->no_flush("fake1", true);
	p->fake->fail_always("destroy_qp", EBUSY);
	pair_fence(p, R, dr_now_ns());
	pair_until(p, p->e[R].failed);
	assert_int_equal(p->e[R].scope, DR_SCOPE_RAIL);
	assert_false(p->e[R].fenced);
	p->fake->fail_always("destroy_qp", heals ? 0 : EBUSY);
	pair_end_path(p);
	assert_int_equal(p->e[R].stop_rc, heals ? 0 : -EBUSY);
	pair_clean(p, !heals);
}

static void mr_dereg_reports_what_stays_registered(struct pair *p)
{
	posted(p);
	pair_end_path(p);
	p->fake->fail_always("dereg_mr", EBUSY);
	pair_shut(p);
	assert_int_equal(p->e[S].dereg_rc, -EBUSY);
	assert_int_equal(p->e[R].dereg_rc, -EBUSY);
	pair_clean(p, true);
}

/* Registered twice, it is one region: the last one who deregisters it hears of it. */
static void a_shared_region_is_reported_to_the_last(struct pair *p)
{
	struct dr_memory m;
	struct dr_mr *again;

	posted(p);
	pair_end_path(p);
	m = (struct dr_memory){ .base = p->e[R].mem, .len = PAIR_MEM };
	assert_int_equal(dr_verbs_ops.mr_reg(p->e[R].rail, &m, &again, NULL), 0);
	p->fake->fail_always("dereg_mr", EBUSY);
	assert_int_equal(dr_verbs_ops.mr_dereg(p->e[R].rail, again), 0);
	pair_shut(p);
	assert_int_equal(p->e[R].dereg_rc, -EBUSY);
	pair_clean(p, true);
}

/* A device that goes takes its regions along when it is closed, whatever it said to their deregistration. */
static void a_closed_device_keeps_nothing(struct pair *p)
{
	unsigned closes = p->nth;

	posted(p);
	p->fake->fail_always("dereg_mr", EBUSY);
	p->fake->fail_always("close_device", closes ? 0 : EIO);
	p->fake->unplug("fake1", false);
	pair_until(p, p->e[R].failed);
	pair_end_path(p);
	p->doing = "unplug";
	pair_until(p, p->fake->count("close_device") > 0);
	/* The job is taken by a later round of the rail. */
	for (unsigned i = 0; i < 2; i++) {
		unsigned opens = p->fake->count("get_device_list");

		pair_until(p, p->fake->count("get_device_list") > opens);
	}
	pair_shut(p);
	assert_int_equal(p->e[R].dereg_rc, closes ? 0 : -EBUSY);
	pair_clean(p, true);
}

static unsigned regions(const struct pair *p)
{
	struct dr_fake_alive a;

	p->fake->alive(&a);
	return a.mrs;
}

/* The device is back and its regions are registered again, in the background. Whoever deregisters then waits for
 * that, so that nothing is registered afterwards. */
static void dereg_waits_for_a_registration_under_way(struct pair *p)
{
	unsigned refused = p->nth;

	posted(p);
	p->fake->unplug("fake1", false);
	pair_until(p, p->e[R].failed);
	pair_end_path(p);
	/* What is left is of S: of its datagrams and of its user. */
	pair_until(p, regions(p) == 2 && !p->e[R].mr->busy);
	p->fake->delay("reg_mr", 50);
	pair_until(p, p->fake->plug("fake1", 6) == 0);
	pair_until(p, p->e[R].mr->busy);
	p->fake->fail_always("dereg_mr", refused ? EBUSY : 0);
	assert_int_equal(dr_verbs_ops.mr_dereg(p->e[R].rail, p->e[R].mr), refused ? -EBUSY : 0);
	assert_int_equal(regions(p), 3 + refused); /* one of R, ... */
	p->e[R].mr = NULL;
	p->fake->fail_always("dereg_mr", 0);
	pair_clean(p, refused);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { PAIR(stop_reports_what_cannot_be_destroyed, PAIR_ALONE,
						    1),
		PAIR(one_refusal_is_reported_and_tried_again, PAIR_ALONE, 4),
		PAIR(after_a_fence_stop_reports_nothing, PAIR_ALONE, 1),
		PAIR(a_failed_fence_is_repeated_by_stop, PAIR_ALONE, 2),
		PAIR(mr_dereg_reports_what_stays_registered, PAIR_ALONE, 1),
		PAIR(a_shared_region_is_reported_to_the_last, PAIR_ALONE, 1),
		PAIR(a_closed_device_keeps_nothing, PAIR_ALONE, 2),
		PAIR(dereg_waits_for_a_registration_under_way, PAIR_ALONE, 2) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
