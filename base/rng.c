/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <unistd.h>

#include "base/rng.h"

static const uint64_t GOLDEN = 0x9e3779b97f4a7c15ULL;

static uint64_t rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

uint64_t dr_mix64(uint64_t x)
{
	x += GOLDEN;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

void dr_rng_seed(struct dr_rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		r->s[i] = dr_mix64(seed + (uint64_t)i * GOLDEN);
}

uint64_t dr_rng_u64(struct dr_rng *r)
{
	uint64_t *s = r->s;
	uint64_t out = rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return out;
}

uint64_t dr_rng_below(struct dr_rng *r, uint64_t n)
{
	uint64_t v;

	dr_assert(n > 0);
	/* 2^64 mod n: values below are dropped, so that what is left divides evenly. */
	uint64_t skip = -n % n;
	do
		v = dr_rng_u64(r);
	while (v < skip);
	return v % n;
}

int dr_rng_chance(struct dr_rng *r, uint32_t num, uint32_t den)
{
	return dr_rng_below(r, den) < num;
}

int dr_random_bytes(void *buf, size_t len)
{
	return getentropy(buf, len) ? -errno : 0;
}
