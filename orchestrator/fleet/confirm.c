/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/confirm.h"

#include "base/mem.h"
#include "orchestrator/fleet/verdict.h"

#include <errno.h>

static bool is_bad(const struct dr_sweep_result *r, double bound)
{
	return r->state == DR_SWEEP_FAILED ||
	       (r->state == DR_SWEEP_OK &&
		       dr_sweep_is_low(dr_sweep_lowest(r, DR_SWEEP_BOTH_WAYS), bound));
}

static void count_bad(const struct dr_sweep_result *result, size_t n, double bound, uint32_t *bad)
{
	for (size_t i = 0; i < n; i++)
		if (is_bad(&result[i], bound)) {
			bad[result[i].pair.client]++;
			bad[result[i].pair.server]++;
		}
}

int dr_sweep_confirm(struct dr_sweep_result *result, size_t n, uint32_t nodes, double least)
{
	uint32_t *bad = dr_calloc(nodes, sizeof(*bad)); /* pairs of each node */
	double median;
	int rc = bad ? dr_sweep_median(result, n, &median) : -ENOMEM;

	if (rc == 0)
		count_bad(result, n, least * median, bad);
	for (size_t i = 0; i < n; i++) {
		struct dr_sweep_result *r = &result[i];
		bool open = rc == 0 &&
			    (r->attempts < 2 || DR_MAX(bad[r->pair.client], bad[r->pair.server]) <=
							DR_SWEEP_CONFIRM_PAIRS);

		r->again = open && !r->known && is_bad(r, least * median);
	}
	dr_free(bad);
	return rc;
}

/* NICs of this pair are low in both directions. */
static bool is_low_both_ways(const struct dr_sweep_result *r, double bound)
{
	for (unsigned i = 0; i < r->n_lanes; i++)
		for (unsigned k = i + 1; k < r->n_lanes; k++) {
			const struct dr_sweep_lane *a = &r->lane[i], *b = &r->lane[k];

			if (a->client_nic == b->client_nic && a->server_nic == b->server_nic &&
				a->to_client != b->to_client && dr_sweep_is_low(a->gbps, bound) &&
				dr_sweep_is_low(b->gbps, bound))
				return true;
		}
	return false;
}

struct marks {
	struct dr_sweep_result *result;
	size_t n;
	double bound;
	uint32_t *bad, *taken; /* of each node: low pairs, marked pairs */
};

/* clean: only pairs with a node that has few low pairs. */
static void mark_some(const struct marks *m, bool clean)
{
	for (size_t i = 0; i < m->n; i++) {
		struct dr_sweep_result *r = &m->result[i];
		uint32_t a = r->pair.client, b = r->pair.server;

		if (r->again || r->known || r->state != DR_SWEEP_OK || !is_bad(r, m->bound) ||
			DR_MAX(m->taken[a], m->taken[b]) >= DR_SWEEP_ALONE_PAIRS ||
			(clean && DR_MIN(m->bad[a], m->bad[b]) > DR_SWEEP_CONFIRM_PAIRS) ||
			!is_low_both_ways(r, m->bound))
			continue;
		r->again = true;
		m->taken[a]++;
		m->taken[b]++;
	}
}

int dr_sweep_mark_alone(struct dr_sweep_result *result, size_t n, uint32_t nodes, double least)
{
	uint32_t *counts = dr_calloc(2 * (size_t)nodes, sizeof(*counts));
	struct marks m = { .result = result, .n = n };
	double median;
	int rc = counts ? dr_sweep_median(result, n, &median) : -ENOMEM;

	for (size_t i = 0; i < n; i++)
		result[i].again = false;
	if (rc == 0) {
		m.bound = least * median;
		m.bad = counts;
		m.taken = counts + nodes;
		count_bad(result, n, m.bound, m.bad);
		mark_some(&m, true);
		mark_some(&m, false);
	}
	dr_free(counts);
	return rc;
}
