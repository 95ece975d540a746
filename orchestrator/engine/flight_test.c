/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/flight.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Senders that share one path: a queue of `gbps`, with `burst` bytes at once, and a delay of its own. */
enum { SENDERS_MAX = 64, CHUNK = 512 << 10, WINDOW = 16 };

struct chunk {
	unsigned sender;
	uint32_t len;
	int64_t acked_ns;
	struct dr_flight_mark mark;
};

static struct world {
	struct dr_flight f[SENDERS_MAX];
	struct chunk queue[SENDERS_MAX * WINDOW];
	unsigned n_senders, head, n, in_flight[SENDERS_MAX];
	double bytes_per_ns, burst;
	int64_t now, delay_ns, free_ns; /* free_ns: the path has sent everything that is queued */
	uint64_t delivered, chunks;
} w;

static void path(unsigned senders, double gbps, double burst, int64_t delay_ns)
{
	memset(&w, 0, sizeof(w));
	w.n_senders = senders;
	w.bytes_per_ns = gbps / 8;
	w.burst = burst;
	w.delay_ns = delay_ns;
	for (unsigned i = 0; i < senders; i++)
		dr_flight_begin(&w.f[i], true, CHUNK, WINDOW, 0);
}

static void post(unsigned i)
{
	uint32_t len;

	while (w.in_flight[i] < WINDOW && (len = dr_flight_next(&w.f[i], UINT64_MAX)) > 0) {
		struct chunk *c = &w.queue[(w.head + w.n++) % (SENDERS_MAX * WINDOW)];

		if (w.burst > 0) {
			w.burst -= len;
			w.free_ns = w.now;
		} else {
			w.free_ns = DR_MAX(w.free_ns, w.now) + (int64_t)(len / w.bytes_per_ns);
		}
		*c = (struct chunk){ i, len, w.free_ns + w.delay_ns,
			dr_flight_posted(&w.f[i], len, w.now) };
		w.in_flight[i]++;
	}
}

static void run_until(int64_t end)
{
	for (unsigned i = 0; i < w.n_senders; i++)
		post(i);
	while (w.n && w.queue[w.head].acked_ns < end) {
		struct chunk c = w.queue[w.head];

		w.head = (w.head + 1) % (SENDERS_MAX * WINDOW);
		w.n--;
		w.now = c.acked_ns;
		w.in_flight[c.sender]--;
		w.delivered += c.len;
		w.chunks++;
		dr_flight_done(&w.f[c.sender], c.len, c.mark, w.now);
		post(c.sender);
	}
	w.now = end;
}

/* How long what is in flight needs. */
static int64_t drain_ns(void)
{
	return w.n ? w.queue[(w.head + w.n - 1) % (SENDERS_MAX * WINDOW)].acked_ns - w.now : 0;
}

static double share_of_path(int64_t from_ns, uint64_t before)
{
	return (double)(w.delivered - before) / ((double)(w.now - from_ns) * w.bytes_per_ns);
}

/* 1 Mb/s to 10 Gb/s, one sender and 64, with and without a burst at the begin. */
static void whatever_the_rate_it_drains_in_a_fraction_of_a_second_and_the_path_is_full(void **state)
{
	static const double gbps[] = { 0.001, 0.05, 0.1, 1, 10 };

	(void)state;
	for (size_t r = 0; r < DR_ARRAY_LEN(gbps); r++)
		for (unsigned senders = 1; senders <= SENDERS_MAX; senders *= 8)
			for (int burst = 0; burst < 2; burst++) {
				path(senders, gbps[r], burst ? 256 << 10 : 0, 200 * 1000);
				run_until(300 * DR_NS_PER_MS);
				assert_true(drain_ns() < 1500 * DR_NS_PER_MS);
				run_until(2 * DR_NS_PER_S);
				uint64_t before = w.delivered;
				run_until(5 * DR_NS_PER_S);
				assert_true(share_of_path(2 * DR_NS_PER_S, before) > 0.97);
				assert_true(
					drain_ns() < (gbps[r] < 0.01 ? 800 : 200) * DR_NS_PER_MS);
			}
}

/* The delay of the path is longer than the queue that is wanted. */
static void a_long_path_is_filled(void **state)
{
	(void)state;
	path(4, 0.1, 0, 300 * DR_NS_PER_MS);
	run_until(6 * DR_NS_PER_S);
	uint64_t before = w.delivered;
	run_until(9 * DR_NS_PER_S);
	assert_true(share_of_path(6 * DR_NS_PER_S, before) > 0.97);
}

/* Fast paths see neither the limit nor smaller chunks after the first milliseconds. */
static void a_fast_path_is_limited_by_the_window_alone(void **state)
{
	(void)state;
	path(4, 50, 0, 50 * 1000);
	run_until(40 * DR_NS_PER_MS);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(dr_flight_next(&w.f[i], UINT64_MAX), CHUNK);
		assert_int_equal(w.in_flight[i], WINDOW);
	}
	assert_int_equal(dr_flight_next(&w.f[0], 77), 77);
}

static void off_it_limits_nothing(void **state)
{
	struct dr_flight f;

	(void)state;
	dr_flight_begin(&f, false, CHUNK, WINDOW, 0);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(dr_flight_next(&f, UINT64_MAX), CHUNK);
		dr_flight_posted(&f, CHUNK, i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			whatever_the_rate_it_drains_in_a_fraction_of_a_second_and_the_path_is_full),
		cmocka_unit_test(a_long_path_is_filled),
		cmocka_unit_test(a_fast_path_is_limited_by_the_window_alone),
		cmocka_unit_test(off_it_limits_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
