/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "topology/mtu_search.h"

/* Two ends and the rail between them, in virtual time. */

enum { HEADERS = 28, QUEUE = 4096 };

struct rail {
	struct dr_mtu_search end[2];
	uint32_t limit[2];   /* larger packets of this end vanish */
	unsigned lost_of_10; /* of all packets */
	int64_t delay_ns;
	int64_t deaf_until_ns;		   /* end 1 takes nothing before */
	int64_t cut_from_ns, cut_until_ns; /* nothing passes */
	unsigned lost_large;		   /* of the first large ones */
	uint64_t random;
	unsigned sent[2]; /* datagrams */
	unsigned large;	  /* of these, above 1000 bytes */
	struct {
		int64_t at_ns;
		unsigned from;
		uint32_t size;
		uint8_t head[DR_MTU_DGRAM];
	} queue[QUEUE];
	unsigned begin, end_;
	int64_t now;
};

static unsigned draw(struct rail *r)
{
	r->random = r->random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(r->random >> 33) % 10;
}

static void put(struct rail *r, unsigned from, uint32_t size, const uint8_t *head)
{
	r->sent[from]++;
	r->large += size > 1000;
	if (size + HEADERS > r->limit[from] || draw(r) < r->lost_of_10 ||
		(r->now >= r->cut_from_ns && r->now < r->cut_until_ns))
		return;
	if (size > 1000 && r->lost_large > 0) {
		r->lost_large--;
		return;
	}
	assert_true(r->end_ < QUEUE);
	r->queue[r->end_].at_ns = r->now + r->delay_ns;
	r->queue[r->end_].from = from;
	r->queue[r->end_].size = size;
	memcpy(r->queue[r->end_++].head, head, DR_MTU_DGRAM);
}

static void deliver(struct rail *r)
{
	uint8_t answer[DR_MTU_DGRAM];

	while (r->begin < r->end_ && r->queue[r->begin].at_ns <= r->now) {
		unsigned i = r->begin, to = !r->queue[i].from;

		if (to == 1 && r->now < r->deaf_until_ns)
			return;
		r->begin++;
		int rc = dr_mtu_search_receive(&r->end[to], r->queue[i].head, DR_MTU_DGRAM,
			r->queue[i].size, r->now, answer);
		assert_true(rc >= 0);
		if (rc)
			put(r, to, DR_MTU_DGRAM, answer);
	}
}

static void begin(struct rail *r, uint32_t full, uint32_t to_1, uint32_t to_0)
{
	struct dr_mtu_params p = { .full_bytes = full, .header_bytes = HEADERS, .rail = 3 };
	unsigned lost = r->lost_of_10;
	int64_t delay = r->delay_ns, deaf = r->deaf_until_ns;
	uint64_t seed = r->random;

	memset(r, 0, sizeof(*r));
	r->lost_of_10 = lost;
	r->delay_ns = delay ? delay : DR_NS_PER_MS / 10;
	r->deaf_until_ns = deaf;
	r->random = seed;
	r->limit[0] = to_1;
	r->limit[1] = to_0;
	memset(p.key, 7, sizeof(p.key));
	for (unsigned e = 0; e < 2; e++) {
		p.connector = e == 0;
		dr_mtu_search_init(&r->end[e], &p, 0);
	}
}

static bool over(const struct rail *r)
{
	return dr_mtu_search_over(&r->end[0]) && dr_mtu_search_over(&r->end[1]);
}

static void step(struct rail *r)
{
	uint8_t buf[DR_MTU_DGRAM];
	uint32_t size;

	deliver(r);
	for (unsigned e = 0; e < 2; e++)
		while ((size = dr_mtu_search_next(&r->end[e], r->now, buf)) > 0)
			put(r, e, size, buf);
	r->now += DR_NS_PER_MS / 10;
}

static void run_to_end(struct rail *r)
{
	while (!over(r)) {
		assert_true(r->now < 10 * DR_NS_PER_S);
		step(r);
	}
}

#define HOLDS(result, what, size)                                                                  \
	do {                                                                                       \
		assert_int_equal((result).state, what);                                            \
		assert_int_equal((result).bytes, size);                                            \
	} while (0)

static struct rail rail;

static void a_full_packet_that_is_answered_ends_it(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	begin(&rail, 9000, 9000, 9000);
	while (rail.end[0].own.state != DR_MTU_PASSES || rail.end[1].own.state != DR_MTU_PASSES)
		step(&rail);
	assert_true(rail.now <= DR_NS_PER_MS / 2); /* one round trip of 0.2 ms */
	run_to_end(&rail);
	for (unsigned e = 0; e < 2; e++) {
		HOLDS(rail.end[e].own, DR_MTU_PASSES, 9000);
		HOLDS(rail.end[e].peer, DR_MTU_PASSES, 9000);
	}
	assert_int_equal(rail.large, 2);
	assert_true(rail.sent[0] + rail.sent[1] <= 14);
	assert_true(rail.now < 30 * DR_NS_PER_MS);
}

static void each_direction_has_its_own_result(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	begin(&rail, 9000, 1500, 9000);
	run_to_end(&rail);
	HOLDS(rail.end[0].own, DR_MTU_HOLE, 1500);
	HOLDS(rail.end[1].peer, DR_MTU_HOLE, 1500);
	HOLDS(rail.end[1].own, DR_MTU_PASSES, 9000);
	HOLDS(rail.end[0].peer, DR_MTU_PASSES, 9000);
	begin(&rail, 9000, 9000, 4321);
	run_to_end(&rail);
	HOLDS(rail.end[0].own, DR_MTU_PASSES, 9000);
	HOLDS(rail.end[0].peer, DR_MTU_HOLE, 4321);
	assert_true(rail.now < 400 * DR_NS_PER_MS);
}

static void every_size_is_found(void **state)
{
	static const uint32_t full[] = { 65535, 9000, 1500, 576, 66 };

	(void)state;
	memset(&rail, 0, sizeof(rail));
	for (unsigned i = 0; i < DR_ARRAY_LEN(full); i++)
		for (uint32_t limit = 64; limit < full[i]; limit += 1 + full[i] / 37) {
			begin(&rail, full[i], limit, full[i]);
			run_to_end(&rail);
			HOLDS(rail.end[0].own, DR_MTU_HOLE, limit);
			assert_true(rail.now < 600 * DR_NS_PER_MS);
		}
}

/* A start waits while an end is in doubt, so doubt has to be known before the answer would be used. */
static void doubt_is_known_to_both_ends(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	begin(&rail, 9000, 1500, 9000);
	while (rail.end[0].own.state == DR_MTU_OPEN)
		step(&rail);
	assert_int_equal(rail.end[0].own.state, DR_MTU_DOUBT);
	while (rail.end[1].peer.state == DR_MTU_OPEN)
		step(&rail);
	assert_int_equal(rail.end[1].peer.state, DR_MTU_DOUBT);
	assert_true(rail.now < 10 * DR_NS_PER_MS);
}

static void losses_are_no_hole(void **state)
{
	(void)state;
	for (unsigned lost = 1; lost <= 4; lost++)
		for (unsigned seed = 1; seed <= (lost < 4 ? 300 : 20000); seed++) {
			memset(&rail, 0, sizeof(rail));
			rail.lost_of_10 = lost;
			rail.random = seed;
			begin(&rail, 9000, 9000, 9000);
			run_to_end(&rail);
			for (unsigned e = 0; e < 2; e++)
				HOLDS(rail.end[e].own, DR_MTU_PASSES, 9000);
		}
}

static void a_hole_is_found_beside_losses(void **state)
{
	unsigned exact = 0;

	(void)state;
	for (unsigned seed = 1; seed <= 100; seed++) {
		memset(&rail, 0, sizeof(rail));
		rail.lost_of_10 = 1;
		rail.random = seed;
		begin(&rail, 9000, 1500, 9000);
		run_to_end(&rail);
		assert_int_equal(rail.end[0].own.state, DR_MTU_HOLE);
		assert_true(rail.end[0].own.bytes <= 1500);
		exact += rail.end[0].own.bytes == 1500;
	}
	assert_true(exact >= 90);
}

static void a_long_round_trip(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	rail.delay_ns = 50 * DR_NS_PER_MS;
	begin(&rail, 9000, 9000, 9000);
	run_to_end(&rail);
	HOLDS(rail.end[0].own, DR_MTU_PASSES, 9000);
	rail.delay_ns = 50 * DR_NS_PER_MS;
	begin(&rail, 9000, 1500, 9000);
	run_to_end(&rail);
	HOLDS(rail.end[0].own, DR_MTU_HOLE, 1500);
}

/* It opens GPUs, for example: the datagrams wait in its socket. */
static void a_peer_that_is_late_is_no_hole(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	rail.deaf_until_ns = 1500 * DR_NS_PER_MS;
	begin(&rail, 9000, 9000, 9000);
	run_to_end(&rail);
	for (unsigned e = 0; e < 2; e++)
		HOLDS(rail.end[e].own, DR_MTU_PASSES, 9000);
	assert_true(rail.now < 1600 * DR_NS_PER_MS);
	assert_true(rail.sent[0] < 80);
}

/* The first full packet of each end is lost, then everything for half a second: rounds without an answer say nothing. */
static void an_outage_is_no_hole(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	begin(&rail, 9000, 9000, 9000);
	rail.lost_large = 2;
	rail.cut_from_ns = DR_NS_PER_MS;
	rail.cut_until_ns = 500 * DR_NS_PER_MS;
	run_to_end(&rail);
	for (unsigned e = 0; e < 2; e++)
		HOLDS(rail.end[e].own, DR_MTU_PASSES, 9000);
	assert_true(rail.large <= 40);
}

static void nobody_answers(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	begin(&rail, 9000, 0, 9000);
	run_to_end(&rail);
	for (unsigned e = 0; e < 2; e++) {
		assert_int_equal(rail.end[e].own.state, DR_MTU_UNKNOWN);
		assert_int_equal(rail.end[e].own.bytes, 0);
	}
	assert_true(rail.sent[0] < 100);
}

/* A router reports its MTU: TCP follows, so packets of that size are the full ones. */
static void a_reported_size_is_tested(void **state)
{
	(void)state;
	memset(&rail, 0, sizeof(rail));
	begin(&rail, 9000, 1400, 9000);
	step(&rail);
	dr_mtu_search_refused(&rail.end[0], 1400);
	dr_mtu_search_refused(&rail.end[0], 1400);
	dr_mtu_search_refused(&rail.end[0], 9000);
	run_to_end(&rail);
	HOLDS(rail.end[0].own, DR_MTU_REFUSED, 1400);
	HOLDS(rail.end[1].peer, DR_MTU_REFUSED, 1400);
	begin(&rail, 9000, 1000, 9000);
	dr_mtu_search_refused(&rail.end[0], 1400);
	run_to_end(&rail);
	HOLDS(rail.end[0].own, DR_MTU_HOLE, 1000);
}

static int take(const uint8_t *bytes, size_t len, size_t size, unsigned to)
{
	uint8_t answer[DR_MTU_DGRAM];

	return dr_mtu_search_receive(&rail.end[to], bytes, len, size, 0, answer);
}

static void strangers_datagrams_are_refused(void **state)
{
	uint8_t good[DR_MTU_DGRAM], bad[DR_MTU_DGRAM];
	struct dr_mtu_search before;

	(void)state;
	memset(&rail, 0, sizeof(rail));
	begin(&rail, DR_MTU_DGRAM + HEADERS, 9000, 9000);
	assert_int_equal(dr_mtu_search_next(&rail.end[0], 0, good), DR_MTU_DGRAM);
	before = rail.end[1];
	for (unsigned i = 0; i < 8 * DR_MTU_DGRAM; i++) {
		memcpy(bad, good, sizeof(bad));
		bad[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_true(take(bad, DR_MTU_DGRAM, DR_MTU_DGRAM, 1) < 0);
	}
	for (size_t len = 0; len < DR_MTU_DGRAM; len++)
		assert_true(take(good, len, len, 1) < 0);
	assert_true(take(good, DR_MTU_DGRAM, DR_MTU_DGRAM, 0) < 0); /* reflected */
	rail.end[1].prm.rail++;
	assert_true(take(good, DR_MTU_DGRAM, DR_MTU_DGRAM, 1) < 0);
	rail.end[1].prm.rail--;
	assert_memory_equal(&before, &rail.end[1], sizeof(before));
	assert_int_equal(take(good, DR_MTU_DGRAM, DR_MTU_DGRAM, 1), 1);
	assert_true(take(good, DR_MTU_DGRAM, DR_MTU_DGRAM + 1, 1) < 0); /* another size */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_packet_that_is_answered_ends_it),
		cmocka_unit_test(each_direction_has_its_own_result),
		cmocka_unit_test(every_size_is_found),
		cmocka_unit_test(doubt_is_known_to_both_ends),
		cmocka_unit_test(losses_are_no_hole),
		cmocka_unit_test(a_hole_is_found_beside_losses),
		cmocka_unit_test(a_long_round_trip),
		cmocka_unit_test(a_peer_that_is_late_is_no_hole),
		cmocka_unit_test(an_outage_is_no_hole),
		cmocka_unit_test(nobody_answers),
		cmocka_unit_test(a_reported_size_is_tested),
		cmocka_unit_test(strangers_datagrams_are_refused),
	};

	return cmocka_run_group_tests_name("search of the path MTU", tests, NULL, NULL);
}
