/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_RATE_TESTKIT_H
#define DR_CHANNEL_RATE_TESTKIT_H

#include "channel/rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Rail 0 beside rail 1, sampled every 100 ms. */
static struct dr_rate r;
static int64_t now;
static unsigned changes;

static inline int setup(void **state)
{
	(void)state;
	dr_rate_init(&r, 2);
	now = DR_NS_PER_S;
	changes = 0;
	return 0;
}

/* For for_ns the rail carries bps; waits: data waits all the time. */
static inline void carry(unsigned rail, double bps, bool waits, int64_t for_ns)
{
	int64_t since = waits ? now : DR_NEVER, end = now + for_ns;

	while (now < end) {
		now += DR_RATE_SAMPLE_NS;
		changes += dr_rate_acked(
			&r, rail, (uint64_t)(bps / 8e9 * (double)DR_RATE_SAMPLE_NS), since, now);
	}
}

static inline struct dr_rate_state state_of(unsigned rail)
{
	struct dr_rate_state st;

	dr_rate_get(&r, rail, &st);
	return st;
}

/* Heartbeats: `lost` of 100, n times. */
static inline void beats(int lost, unsigned n)
{
	for (unsigned i = 0; i < 10 * n; i++) {
		now += DR_RATE_SAMPLE_NS;
		changes += dr_rate_datagrams(
			&r, 0, 10, lost / 10 + (int)(i % 10 < (unsigned)lost % 10), now);
	}
}

/* A rail of bps, looked at each ms, and what else delays a probe. */
struct slow {
	double bps;
	uint64_t bucket;     /* bytes at any rate */
	int64_t ramp_ns;     /* until then a tenth of the rate */
	int64_t held_ns;     /* of each 10 ms the peer's buffer is closed for so long */
	int64_t away_ns;     /* of each 40 ms this process does not run for so long, */
	uint64_t handed_max; /* in which the kernel has so much */
	bool stopped;	     /* the peer's buffer is closed */
	bool polled;	     /* see dr_rate_look */
	int64_t window_ns;   /* a NIC ends the connection if a chunk takes longer; bps is 0 then */
	int64_t rtt_ns;	     /* of each chunk */
	int64_t stands_ns;   /* nothing is carried until then */
};

static inline struct dr_rate_probe probe_with(const struct slow *sl)
{
	struct dr_rate_look look = { .polled = sl->polled, .rtt_ns = sl->rtt_ns };
	struct dr_rate_probe p;
	double acked = 0;

	dr_rate_probe_init(&p, DR_NS_PER_MS, 0, sl->window_ns);
	for (int64_t t = 0; !p.done; t += DR_NS_PER_MS) {
		bool held = sl->stopped || t % (10 * DR_NS_PER_MS) < sl->held_ns;
		bool away = t % (40 * DR_NS_PER_MS) < sl->away_ns;
		double bps = t < sl->ramp_ns ? sl->bps / 10 : sl->bps;

		assert_true(t < 2 * DR_NS_PER_S);
		look.acked = (uint64_t)acked;
		if (!away) {
			(void)dr_rate_probe_step(&p, &look, now);
			look.handed = p.sent;
			if (sl->handed_max != 0)
				look.handed = DR_MIN(p.sent, look.acked + sl->handed_max);
		}
		now += DR_NS_PER_MS;
		if (sl->window_ns != 0 && acked < (double)p.sent &&
			now - p.sent_ns > sl->window_ns) {
			p.done = true;
			p.bps = 0;
		}
		if (held)
			look.held_ns += DR_NS_PER_MS;
		else if (t >= sl->stands_ns && now > p.sent_ns + sl->rtt_ns)
			acked = DR_MIN(acked + bps / 8e3, (double)look.handed);
		acked = DR_MAX(acked, DR_MIN((double)p.sent, (double)sl->bucket));
	}
	return p;
}

static inline struct dr_rate_probe probe_of(double bps, uint64_t bucket)
{
	return probe_with(&(struct slow){ .bps = bps, .bucket = bucket });
}

/* The gate for rail 0, with rail 1 in use and rail 0 probed as `sl` says; until there is an answer. */
static inline enum dr_rate_gate gate_with(const struct slow *sl, bool busy, unsigned *probes)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .busy = busy };
	enum dr_rate_gate gate;
	struct dr_rate_probe p;
	unsigned which;

	q.asked_ns = now += DR_NS_PER_S;
	for (*probes = 0;; ++*probes) {
		gate = dr_rate_gate(&r, &q, now, &which);
		if (gate != DR_RATE_PROBE || which != 0)
			return gate;
		assert_true(*probes < 2);
		assert_int_equal(
			dr_rate_gate(&r, &q, now, &which), DR_RATE_WAIT); /* of another worker */
		p = probe_with(sl);
		changes += dr_rate_probed(&r, 0, &p, now);
	}
}

static inline enum dr_rate_gate gate_after(double bps, bool busy)
{
	unsigned probes;

	return gate_with(&(struct slow){ .bps = bps }, busy, &probes);
}

#endif
