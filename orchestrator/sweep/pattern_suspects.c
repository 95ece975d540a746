/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "orchestrator/sweep/pattern.h"
#include "orchestrator/sweep/suspects.h"

#include <errno.h>

/*
 * The search of suspects.h as a pattern. Groups are consecutive ranks, about as many as there are nodes in each: schedulers
 * number nodes in the order of the topology where they know it. A pair that was measured before is left out, for the
 * document has one result per pair.
 */
enum { ROUNDS = 3, GROUPED_MIN = 16, PARTNERS_MAX = 32 };

struct search {
	struct dr_suspects *s;
	struct dr_suspects_pair *pairs; /* of the last round */
	uint32_t *index;		/* in pairs, of those that were named */
	uint32_t n;			/* named */
	uint32_t (*partner)[PARTNERS_MAX];
	uint8_t *partners;
};

static void fini(struct dr_pattern *p)
{
	struct search *t = p->state;

	if (!t)
		return;
	dr_suspects_destroy(t->s);
	dr_free(t->pairs);
	dr_free(t->index);
	dr_free(t->partner);
	dr_free(t->partners);
	dr_free(t);
	p->state = NULL;
}

static uint32_t groups_of(uint32_t nodes)
{
	uint32_t g = 1;

	while (g < DR_SUSPECTS_GROUPS_MAX && (g + 1) * (g + 1) <= nodes)
		g++;
	return nodes < GROUPED_MIN ? 0 : g;
}

static int init(struct dr_pattern *p)
{
	const struct dr_suspects_setup setup = { .nodes = p->nodes,
		.groups = groups_of(p->nodes),
		.rounds = ROUNDS,
		.noise = 0.03,
		.prior = 0.03,
		.seed = p->nodes };
	struct search *t = dr_calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	p->state = t;
	t->pairs = dr_calloc(p->nodes / 2, sizeof(*t->pairs));
	t->index = dr_calloc(p->nodes / 2, sizeof(*t->index));
	t->partner = dr_calloc(p->nodes, sizeof(*t->partner));
	t->partners = dr_calloc(p->nodes, 1);
	rc = t->pairs && t->index && t->partner && t->partners ? dr_suspects_create(&t->s, &setup)
							       : -ENOMEM;
	if (rc)
		fini(p);
	return rc;
}

static bool met(const struct search *t, const struct dr_suspects_pair *p)
{
	for (uint32_t i = 0; i < t->partners[p->a]; i++)
		if (t->partner[p->a][i] == p->b)
			return true;
	return t->partners[p->a] == PARTNERS_MAX || t->partners[p->b] == PARTNERS_MAX;
}

static uint32_t next_round(
	struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out)
{
	struct search *t = p->state;
	uint32_t n;

	for (uint32_t i = 0; last && i < t->n; i++)
		if (last[i] != DR_SWEEP_UNKNOWN)
			dr_suspects_result(t->s, t->index[i], last[i] == DR_SWEEP_BAD);
	do {
		t->n = 0;
		n = dr_suspects_next(t->s, t->pairs);
		for (uint32_t i = 0; i < n; i++) {
			const struct dr_suspects_pair *q = &t->pairs[i];

			if (met(t, q))
				continue;
			t->partner[q->a][t->partners[q->a]++] = q->b;
			t->partner[q->b][t->partners[q->b]++] = q->a;
			t->index[t->n] = i;
			out[t->n++] = (struct dr_sweep_pair){ q->a, q->b };
		}
	} while (n > 0 && t->n == 0);
	return t->n;
}

const struct dr_pattern_ops dr_pattern_suspects = {
	.name = "suspects", .next_round = next_round, .init = init, .fini = fini
};
