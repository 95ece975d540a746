/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/testkit.h"

#include <linux/tcp.h>
#include <poll.h>

/* A rail asks the kernel of a peer whose process does nothing, which here is a rail that nobody
 * drives. */

static int setup(void **state)
{
	static struct kit k;

	kit_count_warnings();
	kit_open(&k, AF_INET, false);
	*state = &k;
	return 0;
}

static int teardown(void **state)
{
	kit_close(*state);
	dr_log_set_sink(NULL, NULL);
	return 0;
}

/* Asks every 10 ms until `want` holds of the answer; at most 2 s. */
static struct dr_rail_answer ask_until(
	struct kit *k, bool (*want)(const struct dr_rail_answer *a, int64_t after), int64_t after)
{
	int64_t end = dr_now_ns() + 2 * DR_NS_PER_S;
	struct dr_rail_answer a = { 0 };

	for (int64_t now = dr_now_ns(); now < end; now = dr_now_ns()) {
		k->rail[0]->ops->rail_ask(k->rail[0], now + k->ahead_ns, &a);
		if (want(&a, after))
			return a;
		(void)poll(NULL, 0, 10);
	}
	fail_msg("no such answer: at %lld, refused %d", (long long)a.at_ns, a.refused);
	return a;
}

static bool answers(const struct dr_rail_answer *a, int64_t after)
{
	return a->at_ns > after && !a->refused;
}

static bool refuses(const struct dr_rail_answer *a, int64_t after)
{
	return a->at_ns > after && a->refused;
}

static unsigned backlog(const struct kit *k)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof(ti);

	assert_int_equal(
		getsockopt(tcp_rail(k->rail[1])->listener.fd, IPPROTO_TCP, TCP_INFO, &ti, &len), 0);
	return ti.tcpi_unacked; /* of a listener: connections that wait to be accepted */
}

/* It answers again and again, on one connection. When the process goes on it drops that without
 * a word. */
static void the_kernel_of_a_stopped_process_answers(void **state)
{
	struct kit *k = *state;
	int64_t at = 0;

	for (unsigned i = 0; i < 4; i++) {
		at = ask_until(k, answers, at).at_ns;
		k->ahead_ns +=
			250 *
			DR_NS_PER_MS; /* the next byte is due, and its answer younger than this */
		at += 249 * DR_NS_PER_MS;
	}
	assert_int_equal(backlog(k), 1);
	kit_rail_progress(k, 1, dr_now_ns());
	kit_rail_progress(k, 1, dr_now_ns());
	assert_int_equal(backlog(k), 0);
	assert_int_equal(tcp_rail(k->rail[1])->admission.n, 0);
	assert_int_equal(kit_warnings, 0);
	assert_int_equal(k->rail_sink[1].n, 0);
}

/* A process that ends closes its listener, and its kernel refuses what is asked then. */
static void the_kernel_of_a_process_that_ended_refuses(void **state)
{
	struct kit *k = *state;
	int64_t at = ask_until(k, answers, 0).at_ns;

	k->rail[1]->ops->rail_close(k->rail[1]);
	k->ahead_ns += 2 * DR_NS_PER_S; /* the next connection is due */
	ask_until(k, refuses, at);
	k->rail[0]->ops->rail_ask(k->rail[0], 0, NULL);
}

/* What was asked is given back, and the next question begins anew. */
static void the_end_of_a_question_closes_its_connection(void **state)
{
	struct kit *k = *state;
	struct dr_rail_answer a;

	ask_until(k, answers, 0);
	k->rail[0]->ops->rail_ask(k->rail[0], 0, NULL);
	assert_int_equal(tcp_rail(k->rail[0])->ask.fd, -1);
	k->ahead_ns += 2 * DR_NS_PER_S;
	k->rail[0]->ops->rail_ask(k->rail[0], dr_now_ns() + k->ahead_ns, &a);
	assert_int_equal(a.at_ns, 0);
	assert_true(tcp_rail(k->rail[0])->ask.fd >= 0);
}

/* A connection per second at most: the time is the caller's. */
static void dials_are_rare(void **state)
{
	struct kit *k = *state;
	struct dr_rail_answer a = { 0 };
	int64_t now = dr_now_ns(), end = now + 2 * DR_NS_PER_S;

	k->rail[1]->ops->rail_close(k->rail[1]);
	while (!a.refused && dr_now_ns() < end) {
		k->rail[0]->ops->rail_ask(k->rail[0], now, &a);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(a.at_ns, now);
	for (unsigned ms = 10; ms < 1000; ms += 10) {
		k->rail[0]->ops->rail_ask(k->rail[0], now + ms * DR_NS_PER_MS, &a);
		assert_int_equal(a.at_ns, now);
		assert_int_equal(tcp_rail(k->rail[0])->ask.fd, -1);
	}
	k->rail[0]->ops->rail_ask(k->rail[0], now + DR_NS_PER_S, &a);
	assert_true(tcp_rail(k->rail[0])->ask.fd >= 0 || a.at_ns > now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_kernel_of_a_stopped_process_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(
			the_kernel_of_a_process_that_ended_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(
			the_end_of_a_question_closes_its_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(dials_are_rare, setup, teardown),
	};

	return cmocka_run_group_tests_name("tcp_ask", tests, NULL, NULL);
}
