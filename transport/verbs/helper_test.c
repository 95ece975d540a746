/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which a rail's helper does its jobs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "transport/verbs/path_priv.h"

enum { JOBS = 8 };

struct seen {
	struct vb_helper h;
	atomic_uint n;
	char order[JOBS + 1];
};

struct named {
	struct vb_job job;
	struct seen *seen;
	char name;
	bool waits; /* until somebody submitted more */
	atomic_bool go;
};

static void run(struct vb_job *j)
{
	struct named *x = dr_container_of(j, struct named, job);

	while (x->waits && !atomic_load(&x->go))
		;
	x->seen->order[atomic_load(&x->seen->n)] = x->name;
	atomic_fetch_add(&x->seen->n, 1);
}

static void start(struct seen *s)
{
	struct dr_err e;

	memset(s, 0, sizeof(*s));
	assert_int_equal(dr_verbs_helper_start(&s->h, false, &e), 0);
}

static void name_all(struct named *x, struct seen *s)
{
	for (unsigned i = 0; i < JOBS; i++) {
		x[i] = (struct named){ .seen = s, .name = (char)('a' + i) };
		x[i].job.run = run;
	}
}

static void wait_until(struct seen *s, unsigned n)
{
	int64_t end = dr_now_ns() + 10 * DR_NS_PER_S;

	while (atomic_load(&s->n) < n)
		if (dr_now_ns() > end)
			fail_msg("%u of %u jobs ran: %s", atomic_load(&s->n), n, s->order);
}

/* All that ran comes back, in the order in which it ran. */
static void end(struct seen *s, const char *order)
{
	struct vb_jobs ran;
	size_t n = 0;

	dr_verbs_helper_stop(&s->h);
	assert_string_equal(s->order, order);
	dr_verbs_helper_take(&s->h, &ran);
	for (struct vb_job *j = STAILQ_FIRST(&ran); j; j = STAILQ_NEXT(j, next), n++)
		assert_int_equal(dr_container_of(j, struct named, job)->name, order[n]);
	assert_int_equal(n, strlen(order));
	dr_verbs_helper_fini(&s->h);
}

static void what_is_for_later_waits(void **state)
{
	int64_t far = dr_now_ns() + 3600 * DR_NS_PER_S;
	struct named x[JOBS];
	struct seen s;

	(void)state;
	start(&s);
	name_all(x, &s);
	dr_verbs_helper_submit(&s.h, &x[0].job, far);
	dr_verbs_helper_submit(&s.h, &x[1].job, far + 1);
	dr_verbs_helper_submit(&s.h, &x[2].job, 0);
	wait_until(&s, 1);
	dr_verbs_helper_submit(&s.h, &x[3].job, 0);
	wait_until(&s, 2);
	assert_string_equal(s.order, "cd");
	end(&s, "cdab"); /* but with a bound: the rail is closed */
}

static void what_is_due_comes_after_the_rest(void **state)
{
	struct named x[JOBS];
	struct seen s;

	(void)state;
	start(&s);
	name_all(x, &s);
	x[0].waits = true;
	dr_verbs_helper_submit(&s.h, &x[0].job, 0);
	dr_verbs_helper_submit(&s.h, &x[1].job, 1);
	dr_verbs_helper_submit(&s.h, &x[2].job, 1);
	dr_verbs_helper_submit(&s.h, &x[3].job, 0);
	atomic_store(&x[0].go, true);
	wait_until(&s, 4);
	end(&s, "adbc");
}

static void its_time_comes_by_itself(void **state)
{
	int64_t due = dr_now_ns() + 5 * DR_NS_PER_MS;
	struct named x[JOBS];
	struct seen s;

	(void)state;
	start(&s);
	name_all(x, &s);
	dr_verbs_helper_submit(&s.h, &x[0].job, due);
	wait_until(&s, 1);
	assert_true(dr_now_ns() >= due);
	end(&s, "a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_for_later_waits),
		cmocka_unit_test(what_is_due_comes_after_the_rest),
		cmocka_unit_test(its_time_comes_by_itself),
	};

	return cmocka_run_group_tests_name("verbs_helper", tests, NULL, NULL);
}
