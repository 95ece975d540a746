/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/session_testkit.h"

#include "base/rng.h"

/* Messages of comms, with and without faults. */

static struct dr_rng rng;

static uint8_t pattern(uint64_t message, uint64_t i)
{
	return (uint8_t)(message * 31 + i * 7 + i / 251);
}

/* n messages of random sizes, at most `depth` in flight; one chance in `hazard` before each round to break a path. A channel
 * ends after many switches without progress: on a busy machine the rounds could break paths faster than messages pass. */
static void stream(unsigned n, unsigned depth, uint64_t size_max, unsigned hazard)
{
	struct message *x = dr_calloc(n, sizeof(*x));
	int64_t until = dr_now_ns() + LIMIT_NS;
	unsigned head = 0, breaks = 0;
	uint64_t room = BYTES / depth;

	for (unsigned k = 0; k < n; k++) {
		x[k].off = k % depth * room;
		x[k].size = dr_rng_below(&rng, 3) ? dr_rng_below(&rng, size_max + 1)
						  : dr_rng_below(&rng, 200);
		x[k].tag = 3;
		assert_true(x[k].size <= room);
	}
	while (head < n) {
		unsigned top = DR_MIN(n, head + depth);

		assert_true(dr_now_ns() < until);
		for (unsigned k = head; k < top; k++) {
			for (uint64_t i = 0; !x[k].req[TX] && i < x[k].size; i++)
				memory[TX][x[k].off + i] = pattern(k, i);
			test_one(&x[k], TX);
			if (!x[k].req[TX])
				break;
		}
		for (unsigned k = head; k < top; k++) {
			test_one(&x[k], RX);
			if (!x[k].req[RX])
				break;
		}
		if (hazard && breaks < BREAKS && dr_rng_below(&rng, hazard) == 0) {
			breaks++;
			unsigned i = (unsigned)dr_rng_below(&rng, ENDS);

			pthread_mutex_lock(&end[i]->lock);
			dr_channel_path_dead(comm[i]->ch,
				(unsigned)DR_MAX(dr_channel_active(comm[i]->ch), 0), -ECONNABORTED,
				"test", dr_now_ns());
			pthread_mutex_unlock(&end[i]->lock);
		}
		drive();
		for (; head < n && x[head].done[TX] && x[head].done[RX]; head++) {
			breaks = 0;
			until = dr_now_ns() + LIMIT_NS;
			assert_int_equal(x[head].got, x[head].size);
			for (uint64_t i = 0; i < x[head].size; i++)
				if (memory[RX][x[head].off + i] != pattern(head, i))
					fail_msg("message %u differs at byte %llu of %llu", head,
						(unsigned long long)i,
						(unsigned long long)x[head].size);
		}
	}
	dr_free(x);
}

static void small_messages_arrive(void **state)
{
	(void)state;
	stream(5000, 16, EAGER, 0);
}

static void large_messages_arrive(void **state)
{
	(void)state;
	stream(300, 8, BYTES / 8, 0);
}

static void messages_survive_broken_connections(void **state)
{
	(void)state;
	stream(2000, 16, 8000, 500);
	assert_true(dr_channel_ready(comm[TX]->ch) >= 0);
}

static void medium_messages_arrive(void **state)
{
	(void)state;
	stream(1000, 16, MEDIUM, 100);
	assert_true(dr_channel_ready(comm[TX]->ch) >= 0);
}

/* What the socket does not take yet is sent only while somebody calls: until then the request is not done. Its memory
 * is free. */
static void a_request_waits_for_the_socket(void **state)
{
	struct message x = { .size = MEDIUM };

	(void)state;
	memset(memory[TX], 1, MEDIUM);
	start(&x, TX);
	memset(memory[TX], 2, MEDIUM);
	for (unsigned i = 0; i < 100; i++) /* nobody reads at the other end */
		test_one(&x, TX);
	assert_false(x.done[TX]);
	both(&x);
	assert_int_equal(x.got, MEDIUM);
	for (unsigned i = 0; i < MEDIUM; i++)
		assert_int_equal(memory[RX][i], 1);
}

/* Those of messages that are taken before the other path carries the comm, too. */
static void slots_are_free_after_a_switch(void **state)
{
	struct message x[HA_SLOTS + 1] = { 0 };
	int64_t until = dr_now_ns() + LIMIT_NS;

	(void)state;
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		x[k].size = 8;
	for (unsigned k = 0; k < HA_SLOTS || comm[RX]->arrived < HA_SLOTS;) {
		assert_true(dr_now_ns() < until);
		if (k < HA_SLOTS)
			test_one(&x[k], TX);
		k += k < HA_SLOTS && x[k].done[TX];
		drive();
	}
	pthread_mutex_lock(&end[RX]->lock);
	dr_channel_path_dead(comm[RX]->ch, (unsigned)dr_channel_active(comm[RX]->ch), -ECONNABORTED,
		"test", dr_now_ns());
	pthread_mutex_unlock(&end[RX]->lock);
	for (unsigned k = 0; k < HA_SLOTS; k++)
		start(&x[k], RX);
	assert_int_equal(dr_channel_ready(comm[RX]->ch), 0);
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		both(&x[k]);
}

/* Nothing is received, so the peer's slots stay in use. What waits for one goes out only while somebody calls. */
static void a_small_request_waits_for_a_slot(void **state)
{
	struct message x[HA_SLOTS + 1] = { 0 };
	struct message *last = &x[HA_SLOTS];
	int64_t until = dr_now_ns() + LIMIT_NS;

	(void)state;
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		x[k].size = 8;
	for (unsigned k = 0; k < HA_SLOTS; k++)
		while (!x[k].done[TX]) {
			assert_true(dr_now_ns() < until);
			test_one(&x[k], TX);
			drive();
		}
	while (!last->req[TX]) { /* acknowledgements make room */
		assert_true(dr_now_ns() < until);
		start(last, TX);
		drive();
	}
	for (unsigned i = 0; i < 100; i++)
		test_one(last, TX);
	assert_false(last->done[TX]);
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		both(&x[k]);
}

static uint64_t system_calls(const struct ha_comm *c)
{
	struct dr_path_stats st;
	struct dr_path *p;
	uint64_t n;

	pthread_mutex_lock(&c->s->lock);
	p = dr_channel_path(c->ch, (unsigned)dr_channel_active(c->ch));
	p->ops->stats(p, &st);
	n = st.syscalls;
	pthread_mutex_unlock(&c->s->lock);
	return n;
}

/* One read, and its bytes stay in the socket until the next one. Other calls poll the connection too, now and then. */
static void a_small_message_takes_one_read(void **state)
{
	uint64_t least = UINT64_MAX;

	(void)state;
	for (unsigned i = 0; i < 200 && least > 1; i++) {
		struct message x = { .size = 8 };
		uint64_t before = 0;

		start(&x, RX);
		start(&x, TX);
		while (!x.done[TX] || !x.done[RX]) {
			if (!x.done[RX])
				before = system_calls(comm[RX]);
			test_one(&x, RX);
			if (x.done[RX])
				least = DR_MIN(least, system_calls(comm[RX]) - before);
			test_one(&x, TX);
		}
	}
	assert_int_equal(least, 1);
}

struct moved {
	unsigned thread;
	uint64_t bytes;
};

static void count_moved(void *arg, int64_t now)
{
	struct moved *m = arg;
	struct dr_channel_stats st;

	(void)now;
	for (unsigned l = 0; l < LANES; l++) {
		dr_channel_stats(end[RX]->bulk[m->thread].lane[l].ch, &st);
		m->bytes += st.bytes;
	}
}

static uint64_t bytes_moved_by(unsigned thread)
{
	struct moved m = { .thread = thread };

	ha_thread_call(io[RX][thread], count_moved, &m);
	return m.bytes;
}

/* Other sessions' work counts. Nothing is counted when all messages are done. */
static void chunks_go_to_the_thread_with_less_to_move(void **state)
{
	int64_t until = dr_now_ns() + LIMIT_NS;
	uint64_t before;

	(void)state;
	ha_thread_add_load(io[RX][0], 1 << 30);
	stream(50, 8, BYTES / 8, 0);
	assert_int_equal(bytes_moved_by(0), 0);
	assert_true(bytes_moved_by(1) > BYTES / 8);
	ha_thread_add_load(io[RX][0], -(1 << 30));
	ha_thread_add_load(io[RX][1], 1 << 30);
	before = bytes_moved_by(1);
	stream(50, 8, BYTES / 8, 0);
	assert_true(bytes_moved_by(0) > BYTES / 8);
	assert_int_equal(bytes_moved_by(1), before);
	ha_thread_add_load(io[RX][1], -(1 << 30));
	while (ha_thread_load(io[RX][0]) != 0 || ha_thread_load(io[RX][1]) != 0)
		assert_true(dr_now_ns() < until);
}

int main(void)
{
	const char *env = getenv("SEED");
	uint64_t seed = env ? strtoull(env, NULL, 0) : (uint64_t)dr_wall_ns();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(small_messages_arrive, setup, teardown),
		cmocka_unit_test_setup_teardown(large_messages_arrive, setup, teardown),
		cmocka_unit_test_setup_teardown(
			chunks_go_to_the_thread_with_less_to_move, setup, teardown),
		cmocka_unit_test_setup_teardown(
			messages_survive_broken_connections, setup, teardown),
		cmocka_unit_test_setup_teardown(slots_are_free_after_a_switch, setup, teardown),
		cmocka_unit_test_setup_teardown(a_small_request_waits_for_a_slot, setup, teardown),
		cmocka_unit_test_setup_teardown(a_small_message_takes_one_read, setup, teardown),
		cmocka_unit_test_setup_teardown(medium_messages_arrive, setup_medium, teardown),
		cmocka_unit_test_setup_teardown(
			a_request_waits_for_the_socket, setup_medium, teardown),
	};

	print_message("SEED=%llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
