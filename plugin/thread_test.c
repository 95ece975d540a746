/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/thread.h"

#include "base/clock.h"
#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { POSTERS = 4, PIECES = 20000 };

static struct ha_thread *t;
static pthread_t id;
static pid_t tid;

static void note_id(void *arg, int64_t now)
{
	(void)arg, (void)now;
	id = pthread_self();
	tid = gettid();
}

static int setup(void **state)
{
	(void)state;
	assert_int_equal(ha_thread_start("test", 0, &t, NULL), 0);
	ha_thread_call(t, note_id, NULL);
	assert_false(pthread_equal(id, pthread_self()));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ha_thread_stop(t);
	return 0;
}

struct piece {
	struct ha_work work;
	unsigned poster, number;
};
static unsigned next_of[POSTERS];
static unsigned run_in_all, wrong;

static void run_piece(struct ha_work *w, int64_t now)
{
	struct piece *p = dr_container_of(w, struct piece, work);

	(void)now;
	wrong += p->number != next_of[p->poster]++ || !pthread_equal(id, pthread_self());
	run_in_all++;
	dr_free(p);
}

static void *poster(void *arg)
{
	for (unsigned i = 0; i < PIECES; i++) {
		struct piece *p = dr_calloc(1, sizeof(*p));

		p->work.run = run_piece;
		p->poster = *(unsigned *)arg;
		p->number = i;
		ha_thread_post(t, &p->work);
	}
	return NULL;
}

static void nothing(void *arg, int64_t now)
{
	(void)arg, (void)now;
}

/* Also what was posted while the thread was about to sleep: a lost wake-up would stop this test. */
static void work_of_each_poster_runs_once_and_in_order(void **state)
{
	unsigned number[POSTERS];
	pthread_t thread[POSTERS];

	(void)state;
	for (unsigned i = 0; i < POSTERS; i++) {
		number[i] = i;
		assert_int_equal(pthread_create(&thread[i], NULL, poster, &number[i]), 0);
	}
	for (unsigned i = 0; i < 1000; i++)
		ha_thread_call(t, nothing, NULL);
	for (unsigned i = 0; i < POSTERS; i++)
		pthread_join(thread[i], NULL);
	ha_thread_call(t, nothing, NULL);
	assert_int_equal(run_in_all, POSTERS * PIECES);
	assert_int_equal(wrong, 0);
}

struct member {
	struct ha_member member;
	atomic_uint ticks;
	int64_t period_ns, due_ns;
	struct ha_member *removes; /* in its first tick */
};

static void member_tick(struct ha_member *m, int64_t now)
{
	struct member *x = dr_container_of(m, struct member, member);

	if (x->removes)
		ha_thread_remove(t, x->removes);
	x->removes = NULL;
	if (now < x->due_ns)
		return;
	x->due_ns = now + x->period_ns;
	atomic_fetch_add(&x->ticks, 1);
}

static int64_t member_deadline(const struct ha_member *m)
{
	return ((const struct member *)m)->due_ns;
}

static void add(void *arg, int64_t now)
{
	(void)now;
	ha_thread_add(t, arg);
}

static void drop(void *arg, int64_t now)
{
	(void)now;
	ha_thread_remove(t, arg);
}

static void members_are_called_when_they_are_due(void **state)
{
	struct member m = { .member = { member_tick, member_deadline, NULL },
		.period_ns = DR_NS_PER_MS };
	int64_t until = dr_now_ns() + 60 * DR_NS_PER_S;

	(void)state;
	ha_thread_call(t, add, &m.member);
	while (atomic_load(&m.ticks) < 5)
		assert_true(dr_now_ns() < until);
	ha_thread_call(t, drop, &m.member);
}

static void member_may_remove_itself_and_others_in_its_tick(void **state)
{
	struct member m[3] = { 0 };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		m[i].member = (struct ha_member){ member_tick, member_deadline, NULL };
		m[i].due_ns = DR_NEVER;
	}
	m[2].removes = &m[1].member; /* which would be next */
	m[0].removes = &m[0].member;
	for (unsigned i = 0; i < 3; i++)
		ha_thread_call(t, add, &m[i].member);
	ha_thread_call(t, nothing, NULL);
	ha_thread_call(t, nothing, NULL);
	ha_thread_call(t, drop, &m[2].member);
	assert_null(m[0].removes);
	assert_null(m[2].removes);
}

static int setup_spinning(void **state)
{
	(void)state;
	assert_int_equal(ha_thread_start("test", 600 * DR_NS_PER_S, &t, NULL), 0);
	ha_thread_call(t, note_id, NULL);
	return 0;
}

/* *ticks: of the clock, in which the thread ran. */
static bool sleeps(unsigned long *ticks)
{
	char file[64], text[512] = "", state = 0;
	unsigned long user = 0, kernel = 0;
	const char *at;
	FILE *f;

	snprintf(file, sizeof(file), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(file, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	at = strrchr(text, ')');
	assert_non_null(at);
	assert_int_equal(sscanf(at, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &state,
				 &user, &kernel),
		3);
	*ticks = user + kernel;
	return state == 'S';
}

/* A thread that polls is never asleep, and its own time advances, whatever else the machine does. */
static void it_polls_only_under_load(void **state)
{
	int64_t until = dr_now_ns() + 60 * DR_NS_PER_S;
	unsigned long before, ticks;

	(void)state;
	while (!sleeps(&before))
		assert_true(dr_now_ns() < until);
	ha_thread_add_load(t, 5);
	ha_thread_call(t, nothing, NULL); /* it looks at its load when it wakes */
	do {
		assert_true(dr_now_ns() < until);
		sched_yield();
		(void)sleeps(&ticks);
	} while (ticks < before + 4);
	ha_thread_add_load(t, -5);
	assert_int_equal(ha_thread_load(t), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			work_of_each_poster_runs_once_and_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(
			members_are_called_when_they_are_due, setup, teardown),
		cmocka_unit_test_setup_teardown(
			member_may_remove_itself_and_others_in_its_tick, setup, teardown),
		cmocka_unit_test_setup_teardown(it_polls_only_under_load, setup_spinning, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
