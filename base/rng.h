/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_RNG_H
#define DR_BASE_RNG_H

#include "base/defs.h"

/* xoshiro256** seeded by splitmix64 (Blackman and Vigna, prng.di.unimi.it). Not for secrets. */
struct dr_rng {
	uint64_t s[4];
};
void dr_rng_seed(struct dr_rng *r, uint64_t seed);
uint64_t dr_rng_u64(struct dr_rng *r);
/* Uniform in [0, n); n > 0. */
uint64_t dr_rng_below(struct dr_rng *r, uint64_t n);
/* True with probability num/den. */
int dr_rng_chance(struct dr_rng *r, uint32_t num, uint32_t den);
/* One step of splitmix64 as a hash. */
uint64_t dr_mix64(uint64_t x);
/* Up to 256 random bytes from the kernel, for tokens and nonces. 0 or -errno. */
int dr_random_bytes(void *buf, size_t len) DR_MUST_CHECK;

#endif
