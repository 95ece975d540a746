/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/poller.h"

struct probe {
	struct dr_pollable po;
	struct dr_poller *p;
	int calls;
	uint32_t revents;
	struct probe *del_too;
	int kick_again;
};

static void on_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct probe *x = dr_container_of(po, struct probe, po);

	assert_true(now_ns > 0);
	x->calls++;
	x->revents = revents;
	if (x->del_too) {
		dr_poller_del(x->p, &x->po);
		dr_poller_del(x->p, &x->del_too->po);
	}
	if (x->kick_again)
		dr_poller_kick(x->p, &x->po);
}

static struct probe make(struct dr_poller *p, int fd)
{
	return (struct probe){ .po = { .fd = fd, .ready = on_ready }, .p = p };
}

static int ready_fd(void)
{
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);

	assert_true(fd >= 0);
	return fd;
}

static int setup(void **state)
{
	struct dr_poller *p;

	assert_int_equal(dr_poller_create(&p, NULL), 0);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	dr_poller_destroy(*state);
	return 0;
}

static void readiness_is_reported_and_modified(void **state)
{
	struct dr_poller *p = *state;
	int fd = ready_fd();
	struct probe a = make(p, fd);

	assert_int_equal(dr_poller_wait(p, 0), 0);
	assert_int_equal(dr_poller_add(p, &a.po, EPOLLIN), 0);
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 1);
	assert_int_equal(a.revents, EPOLLIN);
	assert_int_equal(dr_poller_mod(p, &a.po, EPOLLIN | EPOLLOUT), 0);
	assert_int_equal(dr_poller_wait(p, 0), 1);
	assert_int_equal(a.revents, EPOLLIN | EPOLLOUT);
	/* The same events again are no system call: it would fail without the descriptor. */
	a.po.fd = -1;
	assert_int_equal(dr_poller_mod(p, &a.po, EPOLLIN | EPOLLOUT), 0);
	assert_int_equal(dr_poller_mod(p, &a.po, EPOLLIN), -EBADF);
	a.po.fd = fd;
	dr_poller_del(p, &a.po);
	dr_poller_del(p, &a.po);
	assert_int_equal(dr_poller_wait(p, 0), 0);
	assert_int_equal(a.calls, 2);
	close(a.po.fd);
}

static void one_callback_may_delete_the_next(void **state)
{
	struct dr_poller *p = *state;
	struct probe a = make(p, ready_fd()), b = make(p, ready_fd());

	a.del_too = &b;
	b.del_too = &a;
	assert_int_equal(dr_poller_add(p, &a.po, EPOLLIN), 0);
	assert_int_equal(dr_poller_add(p, &b.po, EPOLLIN), 0);
	assert_int_equal(dr_poller_wait(p, 0), 1);
	assert_int_equal(a.calls + b.calls, 1);

	dr_poller_kick(p, &a.po);
	dr_poller_kick(p, &b.po);
	assert_int_equal(dr_poller_wait(p, 0), 1);
	assert_int_equal(a.calls + b.calls, 2);
	assert_int_equal(dr_poller_wait(p, 0), 0);
	close(a.po.fd);
	close(b.po.fd);
}

static void a_kick_runs_in_the_next_wait_once(void **state)
{
	struct dr_poller *p = *state;
	struct probe a = make(p, -1), b = make(p, -1), c = make(p, -1);

	dr_poller_kick(p, &a.po);
	dr_poller_kick(p, &a.po);
	dr_poller_kick(p, &b.po);
	dr_poller_kick(p, &c.po);
	dr_poller_del(p, &c.po);
	dr_poller_kick(p, &c.po);
	dr_poller_del(p, &b.po);
	a.kick_again = 1;
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 2);
	assert_int_equal(a.revents, 0);
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 1);
	assert_int_equal(a.calls, 2);
	assert_int_equal(b.calls, 0);
	assert_int_equal(c.calls, 1);
	dr_poller_del(p, &a.po);
	assert_int_equal(dr_poller_wait(p, 0), 0);
}

static void *waker(void *arg)
{
	dr_poller_wake(arg);
	return NULL;
}

static void a_wake_ends_a_sleep_and_is_not_lost(void **state)
{
	struct dr_poller *p = *state;
	pthread_t t;

	dr_poller_wake(p);
	dr_poller_wake(p);
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 0);
	assert_int_equal(pthread_create(&t, NULL, waker, p), 0);
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 0);
	pthread_join(t, NULL);
	assert_int_equal(dr_poller_wait(p, 0), 0);
}

static void a_sleep_lasts_as_long_as_asked(void **state)
{
	struct dr_poller *p = *state;
	int64_t start = dr_now_ns();

	assert_int_equal(dr_poller_wait(p, 2 * DR_NS_PER_MS), 0);
	assert_true(dr_now_ns() - start >= 2 * DR_NS_PER_MS);
}

struct eye {
	struct dr_watch w;
	struct dr_poller *p;
	int polls, arms;
	int found; /* what the next look finds */
	int comes; /* ... once it is armed */
	struct eye *unwatch_too;
};

static int on_poll(struct dr_watch *w, int64_t now_ns)
{
	struct eye *x = dr_container_of(w, struct eye, w);
	int n = x->found;

	assert_true(now_ns > 0);
	x->polls++;
	x->found = 0;
	if (x->unwatch_too) {
		dr_poller_unwatch(x->p, &x->w);
		dr_poller_unwatch(x->p, &x->unwatch_too->w);
	}
	return n;
}

static bool on_arm(struct dr_watch *w, int64_t now_ns)
{
	struct eye *x = dr_container_of(w, struct eye, w);

	assert_true(now_ns > 0);
	x->arms++;
	x->found = x->comes;
	x->comes = 0;
	return x->found > 0;
}

static struct eye open_eye(struct dr_poller *p)
{
	return (struct eye){ .w = { .poll = on_poll, .arm = on_arm }, .p = p };
}

static void a_watch_is_looked_at_before_and_armed_for_a_sleep(void **state)
{
	struct dr_poller *p = *state;
	struct eye x = open_eye(p);
	struct probe ready = make(p, ready_fd());

	dr_poller_watch(p, &x.w);
	assert_int_equal(dr_poller_wait(p, 0), 0);
	assert_int_equal(x.polls, 1);
	assert_int_equal(x.arms, 0);
	/* it found something: file descriptors are not asked */
	x.found = 3;
	assert_int_equal(dr_poller_add(p, &ready.po, EPOLLIN), 0);
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 3);
	assert_int_equal(x.arms, 0);
	assert_int_equal(ready.calls, 0);
	dr_poller_del(p, &ready.po);
	close(ready.po.fd);
	/* came between the look and the arming */
	x.comes = 2;
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 2);
	assert_int_equal(x.arms, 1);
	assert_int_equal(dr_poller_wait(p, DR_NS_PER_MS), 0);
	assert_int_equal(x.arms, 2);
	dr_poller_unwatch(p, &x.w);
	dr_poller_unwatch(p, &x.w);
	assert_int_equal(dr_poller_wait(p, 0), 0);
	assert_int_equal(x.polls, 5);
}

static void file_descriptors_and_kicks_have_their_turn_beside_a_busy_watch(void **state)
{
	struct dr_poller *p = *state;
	struct probe a = make(p, ready_fd()), k = make(p, -1);
	struct eye x = open_eye(p);

	dr_poller_watch(p, &x.w);
	assert_int_equal(dr_poller_add(p, &a.po, EPOLLIN), 0);
	x.found = 1;
	dr_poller_kick(p, &k.po);
	assert_int_equal(dr_poller_wait(p, DR_NEVER), 2);
	assert_int_equal(k.calls, 1);
	for (int i = 0; i < 16; i++) {
		x.found = 1;
		assert_true(dr_poller_wait(p, DR_NEVER) >= 1);
	}
	assert_true(a.calls >= 1);
	dr_poller_del(p, &a.po);
	dr_poller_unwatch(p, &x.w);
	close(a.po.fd);
}

static void file_descriptors_are_asked_in_every_wait_beside_some_watches(void **state)
{
	struct dr_poller *p = *state;
	struct probe a = make(p, ready_fd());
	struct eye x = open_eye(p);

	x.w.with_fds = true;
	dr_poller_watch(p, &x.w);
	assert_int_equal(dr_poller_add(p, &a.po, EPOLLIN), 0);
	for (int i = 1; i <= 5; i++) {
		x.found = 1;
		assert_int_equal(dr_poller_wait(p, DR_NEVER), 2);
		assert_int_equal(a.calls, i);
	}
	dr_poller_del(p, &a.po);
	dr_poller_unwatch(p, &x.w);
	close(a.po.fd);
}

static void one_look_may_unwatch_the_next(void **state)
{
	struct dr_poller *p = *state;
	struct eye x = open_eye(p), y = open_eye(p);

	x.unwatch_too = &y;
	y.unwatch_too = &x;
	dr_poller_watch(p, &x.w);
	dr_poller_watch(p, &y.w);
	assert_int_equal(dr_poller_wait(p, 0), 0);
	assert_int_equal(x.polls + y.polls, 1);
	assert_int_equal(dr_poller_wait(p, 0), 0);
	assert_int_equal(x.polls + y.polls, 1);
}

/* Of a poller that another one watches, everything that a wait would find makes its descriptor readable. */
static void a_poller_may_be_watched(void **state)
{
	struct dr_poller *p = *state, *outer;
	struct probe in = make(p, dr_poller_fd(p)), a = make(p, -1), b = make(p, ready_fd());
	struct eye x = open_eye(p);

	assert_int_equal(dr_poller_create(&outer, NULL), 0);
	assert_int_equal(dr_poller_add(outer, &in.po, EPOLLIN), 0);
	dr_poller_rest(p);
	assert_int_equal(dr_poller_wait(outer, 0), 0);
	dr_poller_kick(p, &a.po);
	dr_poller_rest(p);
	assert_int_equal(dr_poller_wait(outer, 0), 1);
	assert_int_equal(dr_poller_wait(p, 0), 1);
	assert_int_equal(dr_poller_wait(outer, 0), 0);
	assert_int_equal(dr_poller_add(p, &b.po, EPOLLIN), 0);
	assert_int_equal(dr_poller_wait(outer, 0), 1);
	dr_poller_del(p, &b.po);
	dr_poller_watch(p, &x.w);
	dr_poller_rest(p);
	assert_int_equal(x.arms, 1);
	assert_int_equal(dr_poller_wait(outer, 0), 0);
	x.comes = 1;
	dr_poller_rest(p);
	assert_int_equal(dr_poller_wait(outer, 0), 1);
	dr_poller_unwatch(p, &x.w);
	dr_poller_destroy(outer);
	close(b.po.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			readiness_is_reported_and_modified, setup, teardown),
		cmocka_unit_test_setup_teardown(one_callback_may_delete_the_next, setup, teardown),
		cmocka_unit_test_setup_teardown(a_kick_runs_in_the_next_wait_once, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_wake_ends_a_sleep_and_is_not_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(a_sleep_lasts_as_long_as_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_watch_is_looked_at_before_and_armed_for_a_sleep, setup, teardown),
		cmocka_unit_test_setup_teardown(
			file_descriptors_and_kicks_have_their_turn_beside_a_busy_watch, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			file_descriptors_are_asked_in_every_wait_beside_some_watches, setup,
			teardown),
		cmocka_unit_test_setup_teardown(one_look_may_unwatch_the_next, setup, teardown),
		cmocka_unit_test_setup_teardown(a_poller_may_be_watched, setup, teardown),
	};

	return cmocka_run_group_tests_name("poller", tests, NULL, NULL);
}
