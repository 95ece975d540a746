/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/pattern.h"

enum { RANDOM_ROUNDS = 4 };

/*
 * Circle method: one node stays, the others move one place per round; nodes that face each other are a pair. With an odd
 * number of nodes the one that stays is a dummy, and who faces it rests.
 */
static uint32_t all_pairs(uint32_t nodes, uint32_t round, struct dr_sweep_pair *out)
{
	uint32_t even = nodes + nodes % 2, wheel = even - 1, n = 0;

	if (round == wheel)
		return 0;
	if (even == nodes)
		out[n++] = (struct dr_sweep_pair){ round, even - 1 };
	for (uint32_t i = 1; i < even / 2; i++) {
		uint32_t a = (round + i) % wheel, b = (round + wheel - i) % wheel;

		/* Who is the client alternates, so that a node is about as often the one as the other. */
		out[n++] = i % 2 ? (struct dr_sweep_pair){ a, b } : (struct dr_sweep_pair){ b, a };
	}
	return n;
}

static uint32_t ring(uint32_t nodes, uint32_t round, struct dr_sweep_pair *out)
{
	uint32_t n = 0;

	if (round == 2 && nodes % 2) {
		out[0] = (struct dr_sweep_pair){ nodes - 1, 0 };
		return 1;
	}
	if (round >= 2 || (round == 1 && nodes == 2))
		return 0;
	for (uint32_t i = round; i + 1 < nodes; i += 2)
		out[n++] = (struct dr_sweep_pair){ i, i + 1 };
	if (round == 1 && nodes % 2 == 0)
		out[n++] = (struct dr_sweep_pair){ nodes - 1, 0 };
	return n;
}

static uint32_t bisection(uint32_t nodes, uint32_t round, struct dr_sweep_pair *out)
{
	uint32_t half = nodes / 2;

	if (round)
		return 0;
	for (uint32_t i = 0; i < half; i++)
		out[i] = (struct dr_sweep_pair){ i, half + i };
	return half;
}

static uint32_t one_to_all(uint32_t nodes, uint32_t round, struct dr_sweep_pair *out)
{
	if (round + 1 >= nodes)
		return 0;
	out[0] = (struct dr_sweep_pair){ 0, round + 1 };
	return 1;
}

/*
 * A bijection of the numbers below n: steps that are bijections of as many bits, until the result is below n. The same for
 * every sweep of n nodes, so that one can go on with another one's document.
 */
static uint32_t shuffled(uint32_t i, uint32_t n)
{
	unsigned bits = 1;

	while ((n - 1) >> bits)
		bits++;
	do {
		for (unsigned step = 0; step < 3; step++) {
			i = (i * 0x9e3779b1 + 0x7f4a7c15) & ((1u << bits) - 1);
			i ^= i >> (bits / 2 + 1);
		}
	} while (i >= n);
	return i;
}

static uint32_t random_pairs(uint32_t nodes, uint32_t round, struct dr_sweep_pair *out)
{
	uint32_t n = round < RANDOM_ROUNDS ? all_pairs(nodes, round, out) : 0;

	for (uint32_t i = 0; i < n; i++)
		out[i] = (struct dr_sweep_pair){ shuffled(out[i].client, nodes),
			shuffled(out[i].server, nodes) };
	return n;
}

static uint64_t all_pairs_total(uint32_t nodes)
{
	return (uint64_t)nodes * (nodes - 1) / 2;
}

static uint64_t ring_total(uint32_t nodes)
{
	return nodes == 2 ? 1 : nodes;
}

static uint64_t random_total(uint32_t nodes)
{
	uint32_t rounds = nodes - 1 + nodes % 2;

	return (uint64_t)(nodes / 2) * DR_MIN(rounds, (uint32_t)RANDOM_ROUNDS);
}

static uint64_t bisection_total(uint32_t nodes)
{
	return nodes / 2;
}

static uint64_t one_to_all_total(uint32_t nodes)
{
	return nodes - 1;
}

const struct dr_pattern_ops dr_pattern_all_pairs = {
	.name = "all-pairs", .round = all_pairs, .total = all_pairs_total
};
const struct dr_pattern_ops dr_pattern_ring = {
	.name = "ring", .round = ring, .total = ring_total
};
const struct dr_pattern_ops dr_pattern_bisection = {
	.name = "bisection", .round = bisection, .total = bisection_total
};
const struct dr_pattern_ops dr_pattern_one_to_all = {
	.name = "one-to-all", .round = one_to_all, .total = one_to_all_total
};
const struct dr_pattern_ops dr_pattern_random = {
	.name = "random", .round = random_pairs, .total = random_total
};
