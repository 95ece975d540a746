/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/sweep/pattern.h"

#include <errno.h>

int dr_pattern_init(struct dr_pattern *p, const struct dr_pattern_ops *ops, uint32_t nodes)
{
	dr_assert(nodes >= 2);
	*p = (struct dr_pattern){ .ops = ops, .nodes = nodes };
	return ops->init ? ops->init(p) : 0;
}

void dr_pattern_fini(struct dr_pattern *p)
{
	if (p->ops && p->ops->fini)
		p->ops->fini(p);
	*p = (struct dr_pattern){ .ops = NULL };
}

uint32_t dr_pattern_next(
	struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out)
{
	uint32_t n = p->ops->next_round(p, last, out);

	p->round += n > 0;
	return n;
}

/*
 * Circle method: one node stays, the others move one place per round; nodes that face each other are a pair. With an odd
 * number of nodes the one that stays is a dummy, and who faces it rests.
 */
static uint32_t all_pairs(
	struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out)
{
	uint32_t even = p->nodes + p->nodes % 2, wheel = even - 1, r = p->round, n = 0;

	(void)last;
	if (r == wheel)
		return 0;
	if (even == p->nodes)
		out[n++] = (struct dr_sweep_pair){ r, even - 1 };
	for (uint32_t i = 1; i < even / 2; i++) {
		uint32_t a = (r + i) % wheel, b = (r + wheel - i) % wheel;

		/* Who is the client alternates, so that a node is about as often the one as the other. */
		out[n++] = i % 2 ? (struct dr_sweep_pair){ a, b } : (struct dr_sweep_pair){ b, a };
	}
	return n;
}

static uint32_t ring(
	struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out)
{
	uint32_t n = 0, nodes = p->nodes;

	(void)last;
	if (p->round == 2 && nodes % 2) {
		out[0] = (struct dr_sweep_pair){ nodes - 1, 0 };
		return 1;
	}
	if (p->round >= 2 || (p->round == 1 && nodes == 2))
		return 0;
	for (uint32_t i = p->round; i + 1 < nodes; i += 2)
		out[n++] = (struct dr_sweep_pair){ i, i + 1 };
	if (p->round == 1 && nodes % 2 == 0)
		out[n++] = (struct dr_sweep_pair){ nodes - 1, 0 };
	return n;
}

static uint32_t bisection(
	struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out)
{
	uint32_t half = p->nodes / 2;

	(void)last;
	if (p->round)
		return 0;
	for (uint32_t i = 0; i < half; i++)
		out[i] = (struct dr_sweep_pair){ i, half + i };
	return half;
}

static uint32_t one_to_all(
	struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out)
{
	(void)last;
	if (p->round + 1 >= p->nodes)
		return 0;
	out[0] = (struct dr_sweep_pair){ 0, p->round + 1 };
	return 1;
}

static uint64_t all_pairs_total(uint32_t nodes)
{
	return (uint64_t)nodes * (nodes - 1) / 2;
}

static uint64_t ring_total(uint32_t nodes)
{
	return nodes == 2 ? 1 : nodes;
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
	.name = "all-pairs", .next_round = all_pairs, .total = all_pairs_total
};
const struct dr_pattern_ops dr_pattern_ring = {
	.name = "ring", .next_round = ring, .total = ring_total
};
const struct dr_pattern_ops dr_pattern_bisection = {
	.name = "bisection", .next_round = bisection, .total = bisection_total
};
const struct dr_pattern_ops dr_pattern_one_to_all = {
	.name = "one-to-all", .next_round = one_to_all, .total = one_to_all_total
};
