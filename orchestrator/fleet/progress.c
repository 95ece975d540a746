/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/progress.h"

#include "base/units.h"
#include "orchestrator/fleet/verdict.h"

#include <math.h>
#include <stdio.h>

enum { RANKS_MAX = 8, COST_RATIO = 20 };

void dr_sweep_progress_init(struct dr_sweep_progress *p, int64_t every_ns, int64_t now_ns)
{
	*p = (struct dr_sweep_progress){
		.every_ns = every_ns, .begin_ns = now_ns, .due_ns = now_ns + every_ns
	};
}

/* Changes with what is measured; 0: nothing is yet. */
static uint32_t stage_of(const struct dr_coord *c)
{
	return c->phase == DR_COORD_JOINING ? 0 : c->phase == DR_COORD_AGAIN ? 1 + c->reviewed : 1;
}

bool dr_sweep_progress_due(
	const struct dr_sweep_progress *p, const struct dr_coord *c, int64_t now_ns)
{
	return c->phase != DR_COORD_OVER && (stage_of(c) != p->stage || now_ns >= p->due_ns);
}

void dr_sweep_progress_done(struct dr_sweep_progress *p, int64_t took_ns, int64_t now_ns)
{
	p->due_ns = now_ns + DR_MAX(p->every_ns, COST_RATIO * took_ns);
}

int64_t dr_sweep_progress_deadline(const struct dr_sweep_progress *p)
{
	return p->due_ns;
}

static void joining(const struct dr_coord *c, char *buf, size_t len)
{
	uint32_t missing = c->o.nodes - c->present, shown = 0;

	snprintf(buf, len, "%u of %u nodes have joined; not yet: ranks", c->present, c->o.nodes);
	for (uint32_t r = 0; r < c->o.nodes && shown < RANKS_MAX; r++)
		if (!dr_coord_is_here(c, r))
			dr_append(buf, len, "%s %u", shown++ ? "," : "", r);
	if (missing > shown)
		dr_append(buf, len, " and %u more", missing - shown);
}

struct counts {
	uint64_t done, failed, low, rest;
};

static struct counts count(const struct dr_coord *c, double least)
{
	struct counts n = { 0 };
	double median;

	if (dr_sweep_median(c->result, c->n_results, &median))
		median = 0; /* no memory: nothing is low */
	for (size_t i = 0; i < c->n_results; i++) {
		const struct dr_sweep_result *r = &c->result[i];

		n.done += r->n_lanes || r->state == DR_SWEEP_FAILED;
		n.failed += r->state == DR_SWEEP_FAILED;
		n.low += r->n_lanes &&
			 dr_sweep_is_low(dr_sweep_lowest(r, DR_SWEEP_BOTH_WAYS), least * median);
		n.rest += r->again || r->state == DR_SWEEP_RUNNING;
	}
	return n;
}

static void again(const struct dr_coord *c, const struct counts *n, char *buf, size_t len)
{
	static const char *const ways[] = { "measured again", "measured to the server alone",
		"measured to the client alone" };

	if (c->phase == DR_COORD_AGAIN && c->n_round)
		dr_append(buf, len, "; %llu to be %s", (unsigned long long)n->rest,
			ways[c->result[c->round[0]].way]);
}

void dr_sweep_progress_line(struct dr_sweep_progress *p, const struct dr_coord *c, double least,
	int64_t now_ns, char *buf, size_t len)
{
	struct counts n;

	if (!p->stage && stage_of(c))
		p->begin_ns = now_ns;
	p->stage = stage_of(c);
	if (!p->stage) {
		joining(c, buf, len);
		return;
	}
	n = count(c, least);
	snprintf(buf, len, "round %u, %llu of %llu pairs measured, %llu failed, %llu low",
		c->rounds, (unsigned long long)n.done,
		(unsigned long long)c->o.pattern->total(c->o.nodes), (unsigned long long)n.failed,
		(unsigned long long)n.low);
	if (c->present < c->o.nodes)
		dr_append(
			buf, len, ", %u of %u nodes missing", c->o.nodes - c->present, c->o.nodes);
	again(c, &n, buf, len);
	dr_append(buf, len, "; after %.0f s", (double)(now_ns - p->begin_ns) / 1e9);
}
