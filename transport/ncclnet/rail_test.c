/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/net_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Datagrams of a rail with several paths, without a plugin: what is queued on a path is counted. */
enum { PATHS = 3 };

static struct nn_rail rail;
static struct nn_path path[PATHS];
static uint8_t queue[PATHS][DR_PATH_QUEUE];
static unsigned sent[PATHS], told, ready;

static void flush(struct dr_path *bp, int64_t now_ns)
{
	struct nn_path *p = nn_path(bp);

	(void)now_ns;
	sent[p - path]++;
	dr_path_queue_took(&p->ctrl, p->ctrl.end);
}

static void on_event(struct dr_sink *sink, const struct dr_event *ev)
{
	(void)sink;
	assert_int_equal(ev->kind, DR_EV_DGRAM);
	assert_ptr_equal(ev->rail, &rail.base);
	assert_true(ev->len == 4 && ev->size == 4);
	assert_memory_equal(ev->data, "beat", 4);
	told++;
}

static void on_ready(void *arg, int64_t now_ns)
{
	static struct dr_sink sink = { on_event };

	(void)arg;
	ready++;
	assert_int_equal(now_ns, 7);
	assert_int_equal(dr_nn_rail_progress(&rail.base, now_ns, &sink), 1);
}

static int setup(void **state)
{
	static const struct dr_transport_ops ops = { .flush = flush };

	(void)state;
	memset(&rail, 0, sizeof(rail));
	memset(path, 0, sizeof(path));
	memset(sent, 0, sizeof(sent));
	told = ready = 0;
	for (unsigned i = 0; i < PATHS; i++) {
		path[i].state = NN_UP;
		path[i].base.path = (struct dr_path){ .ops = &ops, .rail = &rail.base };
		path[i].ctrl.buf = queue[i];
		path[i].next = rail.paths;
		rail.paths = &path[i];
	}
	return 0;
}

/* The paths that carried the next datagram, as bits. */
static unsigned next(void)
{
	unsigned bits = 0;

	memset(sent, 0, sizeof(sent));
	dr_nn_rail_dgram(&rail.base, "beat", 4);
	for (unsigned i = 0; i < PATHS; i++)
		bits |= sent[i] << i;
	return bits;
}

static void one_leaves_on_the_path_heard_last(void **state)
{
	(void)state;
	for (int64_t now = 1; now < 10; now++) {
		dr_path_heard(&path[now % PATHS].base.path, now);
		assert_int_equal(next(), 1u << now % PATHS);
	}
}

/* The peer may have fenced that path. */
static void every_path_carries_a_copy_if_none_was_heard(void **state)
{
	(void)state;
	assert_int_equal(next(), 7);
	dr_path_heard(&path[1].base.path, 1);
	assert_int_equal(next(), 2);
	assert_int_equal(next(), 7);
	assert_int_equal(next(), 7);
	dr_path_heard(&path[1].base.path, 2);
	assert_int_equal(next(), 2);
}

static void every_path_carries_a_copy_if_the_plugin_keeps_the_last_one(void **state)
{
	(void)state;
	dr_path_heard(&path[1].base.path, 1);
	path[1].out.tail++;
	assert_int_equal(next(), 7);
}

static void none_leaves_on_a_path_that_is_not_up(void **state)
{
	(void)state;
	dr_path_heard(&path[1].base.path, 1);
	path[1].state = NN_FAILED;
	assert_int_equal(next(), 5);
	path[0].state = path[2].state = NN_OPENING;
	assert_int_equal(next(), 0);
}

static void one_that_came_is_reported_at_once(void **state)
{
	(void)state;
	dr_nn_rail_dgram_came(&rail, "beat", 4, 7);
	assert_int_equal(told, 0); /* nobody drives the rail */
	rail.par.ready = on_ready;
	dr_nn_rail_dgram_came(&rail, "beat", 4, 7);
	assert_true(ready == 1 && told == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_leaves_on_the_path_heard_last, setup),
		cmocka_unit_test_setup(every_path_carries_a_copy_if_none_was_heard, setup),
		cmocka_unit_test_setup(
			every_path_carries_a_copy_if_the_plugin_keeps_the_last_one, setup),
		cmocka_unit_test_setup(none_leaves_on_a_path_that_is_not_up, setup),
		cmocka_unit_test_setup(one_that_came_is_reported_at_once, setup),
	};

	return cmocka_run_group_tests_name("ncclnet_rail", tests, NULL, NULL);
}
