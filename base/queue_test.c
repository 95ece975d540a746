/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/queue.h"

enum { PRODUCERS = 4, EACH = 20000 };

struct item {
	unsigned producer, n;
	char pad[24];
};

static int readable(const struct dr_queue *q)
{
	struct pollfd p = { .fd = dr_queue_fd(q), .events = POLLIN };

	return poll(&p, 1, 0);
}

static void test_fd_says_what_pop_gives(void **state)
{
	struct item it = { 0 };
	struct dr_queue *q;

	(void)state;
	assert_int_equal(dr_queue_create(&q, sizeof(it)), 0);
	assert_int_equal(dr_queue_pop(q, &it), 0);
	for (unsigned round = 0; round < 3; round++) {
		assert_false(dr_queue_pending(q));
		assert_int_equal(readable(q), 0);
		/* More than the first ring holds, with head somewhere inside it. */
		for (unsigned i = 0; i < 150; i++) {
			it.n = i;
			assert_int_equal(dr_queue_push(q, &it), 0);
			assert_int_equal(readable(q), 1);
			assert_true(dr_queue_pending(q));
		}
		for (unsigned i = 0; i < 150; i++) {
			assert_int_equal(readable(q), 1);
			assert_int_equal(dr_queue_pop(q, &it), 1);
			assert_int_equal(it.n, i);
		}
	}
	dr_queue_destroy(q);
}

static void test_out_of_memory_is_told(void **state)
{
	struct item it = { 0 };
	struct dr_queue *q;
	unsigned n = 0;

	(void)state;
	for (long k = 1; k <= 2; k++) {
		dr_mem_fail_after(k);
		assert_int_equal(dr_queue_create(&q, sizeof(it)), -ENOMEM);
	}
	dr_mem_fail_after(-1);
	assert_int_equal(dr_queue_create(&q, sizeof(it)), 0);
	dr_mem_fail_after(1);
	while (dr_queue_push(q, &it) == 0)
		n++;
	assert_int_equal(dr_queue_take_lost(q), 1);
	assert_int_equal(dr_queue_take_lost(q), 0);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(dr_queue_pop(q, &it), 1);
	assert_int_equal(dr_queue_pop(q, &it), 0);
	dr_queue_destroy(q);
}

struct producer {
	struct dr_queue *q;
	unsigned number;
	int rc;
};

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct item it = { .producer = p->number };

	for (it.n = 0; it.n < EACH && p->rc == 0; it.n++)
		p->rc = dr_queue_push(p->q, &it);
	return NULL;
}

static void test_many_producers(void **state)
{
	struct producer p[PRODUCERS];
	pthread_t thread[PRODUCERS];
	unsigned next[PRODUCERS] = { 0 };
	struct dr_queue *q;
	struct item it;

	(void)state;
	assert_int_equal(dr_queue_create(&q, sizeof(it)), 0);
	for (unsigned i = 0; i < PRODUCERS; i++) {
		p[i] = (struct producer){ .q = q, .number = i };
		assert_int_equal(pthread_create(&thread[i], NULL, produce, &p[i]), 0);
	}
	for (unsigned got = 0; got < PRODUCERS * EACH;) {
		struct pollfd pf = { .fd = dr_queue_fd(q), .events = POLLIN };

		/* No wake-up may be lost: a sleeping consumer is always woken. */
		assert_int_equal(poll(&pf, 1, 30000), 1);
		for (; dr_queue_pop(q, &it); got++) {
			assert_true(it.producer < PRODUCERS);
			assert_int_equal(it.n, next[it.producer]);
			next[it.producer]++;
		}
	}
	for (unsigned i = 0; i < PRODUCERS; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(p[i].rc, 0);
	}
	assert_int_equal(readable(q), 0);
	dr_queue_destroy(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fd_says_what_pop_gives),
		cmocka_unit_test(test_out_of_memory_is_told),
		cmocka_unit_test(test_many_producers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
