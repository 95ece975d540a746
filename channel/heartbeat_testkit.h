/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_HEARTBEAT_TESTKIT_H
#define DR_CHANNEL_HEARTBEAT_TESTKIT_H

#include "base/rng.h"
#include "channel/heartbeat.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Two judges joined by hand: rails 0 and 1, one call of round() per interval. */
static const uint8_t key[DR_TOKEN_LEN] = "0123456789abcde";
static const int64_t T = 10 * DR_NS_PER_MS;

struct pair {
	struct dr_hb h[2];
	struct dr_hb_out out[2];
	int64_t now;
	uint32_t cut[2];       /* rails that lose what end e sends */
	uint32_t hole[2];      /* rails that lose what end e pads */
	unsigned loss_percent; /* of rail 0 */
	bool stopped[2];
	bool unsent[2];	  /* end e sends nothing on rail 0 */
	uint32_t busy[2]; /* rails on which end e sends bytes */
	struct dr_rng rng;
	unsigned sent;
};

static inline int setup(void **state)
{
	static struct pair p;

	memset(&p, 0, sizeof(p));
	dr_rng_seed(&p.rng, 1);
	for (unsigned e = 0; e < 2; e++) {
		dr_hb_init(&p.h[e], 2, T, 7, e == 0, key);
		dr_hb_start(&p.h[e], 0);
	}
	*state = &p;
	return 0;
}

static inline void deliver(struct pair *p, unsigned e, unsigned r, uint32_t size)
{
	uint8_t buf[DR_DGRAM_MAX];
	size_t n = dr_hb_make(&p->h[e], r, size, buf);
	bool lost = (p->cut[e] & (1u << r)) || p->stopped[!e] ||
		    (size != 0 && (p->hole[e] & (1u << r))) ||
		    (r == 0 && dr_rng_chance(&p->rng, p->loss_percent, 100));

	p->sent++;
	if (!lost)
		assert_int_equal(
			dr_hb_receive(&p->h[!e], r, buf, n, size != 0 ? size : n, p->now), 0);
}

static inline void step(struct pair *p, int64_t ns)
{
	p->now += ns;
	for (unsigned e = 0; e < 2; e++) {
		p->out[e] = (struct dr_hb_out){ 0 };
		if (p->stopped[e])
			continue;
		dr_hb_tick(&p->h[e], p->busy[e], p->now, &p->out[e]);
		for (unsigned r = 0; r < 2; r++) {
			if (r == 0 && p->unsent[e])
				continue;
			if (p->out[e].padded & p->out[e].send & (1u << r))
				deliver(p, e, r, p->h[e].rail[r].padded_size);
			if (p->out[e].send & (1u << r))
				deliver(p, e, r, 0);
		}
	}
}

/* Bytes arrive on rail r at end e. */
static inline void hear_bytes(struct pair *p, unsigned e, unsigned r)
{
	dr_detect_life(&p->h[e].d, r, p->now);
}

static inline void half_round(struct pair *p)
{
	struct dr_hb_out first[2];

	step(p, T / 4);
	memcpy(first, p->out, sizeof(first));
	step(p, T / 4);
	for (unsigned e = 0; e < 2; e++) {
		p->out[e].v.fell |= first[e].v.fell;
		p->out[e].v.rose |= first[e].v.rose;
	}
}

static inline void half_rounds(struct pair *p, int n)
{
	for (int i = 0; i < n; i++)
		half_round(p);
}

/* Runs until `e` reports that rail r fell (or rose); returns the intervals it took, -1: never. */
static inline int rounds_until(struct pair *p, unsigned e, unsigned r, bool fell)
{
	for (int i = 1; i <= 100; i++) {
		half_round(p);
		if ((fell ? p->out[e].v.fell : p->out[e].v.rose) & (1u << r))
			return (i + 1) / 2;
	}
	return -1;
}

#endif
