/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/gaps.h"

static int64_t length(const struct dr_gap *v)
{
	return v->to_ns - v->from_ns;
}

void dr_gaps_reset(struct dr_gaps *g)
{
	g->n = 0;
}

void dr_gaps_add(struct dr_gaps *g, int64_t from_ns, int64_t to_ns)
{
	const struct dr_gap next = { from_ns, to_ns };

	while (g->n && length(&g->v[g->n - 1]) <= length(&next))
		g->n--;
	/* The newest one has to stay: without it there is no answer for a moment just before it. */
	if (g->n == DR_GAPS_MAX)
		g->n--;
	g->v[g->n++] = next;
}

bool dr_gaps_longest(const struct dr_gaps *g, int64_t since_ns, struct dr_gap *out)
{
	for (unsigned i = 0; i < g->n; i++) {
		if (g->v[i].to_ns <= since_ns)
			continue;
		*out = g->v[i];
		return true;
	}
	return false;
}
