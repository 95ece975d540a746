/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_priv.h"

/*
 * Numbers of heartbeats: the sender's clock in units of 2^24 ns (16.8 ms; they last for two years), and below it 32 bits
 * that count. docs/PROTOCOL.md, 1.3, states the bound. Invariants:
 *  1. A number that was taken is above all that were taken on its rail.
 *  2. The bound (base) is raised only after DR_HB_FAR_NS in which no number was below it.
 *  3. What was recorded is never taken: its number is not above the newest one of its rail.
 */
enum { CLOCK_SHIFT = 24 };

uint64_t dr_hb_next_number(struct dr_hb *h)
{
	uint64_t clock = (uint64_t)(h->sent_ns - h->start_ns) >> CLOCK_SHIFT;

	return clock << 32 | (uint32_t)++h->tick;
}

/* The sender's clock in a number. */
static int64_t clock_ns(uint64_t number)
{
	return (int64_t)(number >> 32 << CLOCK_SHIFT);
}

/* Where the peer's clock cannot be beyond at this time. */
static int64_t latest_ns(const struct dr_hb *h, int64_t at)
{
	int64_t passed = at - h->base_ns;

	return h->base_clock_ns + passed + passed / 8;
}

/* A number beyond the bound. True: our clock stood. Meanwhile datagrams are sent on all rails and ask for reports, so
 * that a peer with possible numbers is heard. */
static bool clock_stood(struct dr_hb *h, uint64_t number, uint64_t reported, int64_t now)
{
	if (h->far_ns == 0) {
		h->far_ns = now;
		h->far_mark = h->tick + 1;
	}
	if (now - h->far_ns < DR_HB_FAR_NS || reported < h->far_mark)
		return false;
	h->base_clock_ns = clock_ns(number);
	h->base_ns = now;
	return true;
}

bool dr_hb_take_number(
	struct dr_hb *h, unsigned rail, uint64_t number, uint64_t reported, int64_t now)
{
	bool far = clock_ns(number) > latest_ns(h, now) + DR_HB_AHEAD_NS;

	if (number <= h->rail[rail].rx_tick || (far && !clock_stood(h, number, reported, now)))
		return false;
	h->far_ns = 0;
	if (number <= h->told || reported < h->mark)
		return true;
	if (clock_ns(number) < latest_ns(h, h->mark_ns)) {
		h->base_clock_ns = clock_ns(number);
		h->base_ns = h->mark_ns;
	}
	h->mark = h->tick + 1;
	h->mark_ns = now;
	return true;
}
