/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "orchestrator/checks/compare_priv.h"
#include "orchestrator/output/parts.h"

/* Which figures a run has. Bandwidth is that of the baselines (output/baseline.c). */

static struct compare_figure key_of(enum compare_group group, enum compare_quantity quantity)
{
	return (struct compare_figure){ .group = group,
		.quantity = quantity,
		.direction = -1,
		.end = -1,
		.dir = -1,
		.unit = compare_unit_names[quantity],
		.gpu = DR_UNSET,
		.message_bytes = DR_UNSET };
}

void *compare_add_row(struct compare *c, struct dr_list *list, const void *row, size_t size)
{
	void *grown = dr_grow(list->v, &list->cap, list->n + 1, size);

	if (!grown) {
		c->no_memory = true;
		return NULL;
	}
	list->v = grown;
	return memcpy((char *)grown + list->n++ * size, row, size);
}

static struct compare_figure *figure_of(struct compare *c, const struct compare_figure *key)
{
	struct compare_figure *f = dr_rows_find(
		&c->figures.index, &compare_figure_fields, c->figures.v, c->figures.n, key);

	return f ? f : compare_add(c, &c->figures, key);
}

static void add(struct compare *c, int side, const struct compare_figure *key, double value)
{
	struct compare_figure *f;

	if (!(value > 0) || !isfinite(value))
		return;
	f = figure_of(c, key);
	if (f)
		(void)compare_add(c, &f->of[side].values, &value);
}

static void take_figures(struct compare *c, int side, const struct dr_record *rec)
{
	static const enum compare_group groups[] = { [DR_FIGURE_GPU] = GROUP_GPU,
		[DR_FIGURE_NIC] = GROUP_NIC,
		[DR_FIGURE_PAIR] = GROUP_PAIR };

	for (size_t i = 0; i < rec->baseline.n; i++) {
		const struct dr_figure_row *r = &rec->baseline.v[i];
		struct compare_figure key = key_of(groups[r->kind], QUANTITY_BANDWIDTH);

		key.gpu = r->gpu;
		key.direction = r->direction;
		key.message_bytes = r->message_bytes;
		snprintf(key.nic, sizeof(key.nic), "%s", r->nic);
		add(c, side, &key, r->mean_gbps);
	}
}

static void take_total(struct compare *c, int side, const struct dr_record *rec)
{
	const double gbps[] = { rec->total.to_server_gbps, rec->total.to_client_gbps };
	const double cpu[] = { rec->cpu_percent_local, rec->cpu_percent_peer };

	for (int i = 0; i < 2; i++) {
		struct compare_figure key = key_of(GROUP_TOTAL, QUANTITY_BANDWIDTH);

		key.direction = i;
		add(c, side, &key, gbps[i]);
	}
	for (int i = 0; i < 2; i++) {
		struct compare_figure key = key_of(GROUP_CPU, QUANTITY_CPU);

		key.end = i ? !rec->side : rec->side;
		if (rec->total.gbps > 0)
			add(c, side, &key, cpu[i] / rec->total.gbps);
	}
}

static void take_latency(struct compare *c, int side, const struct dr_record *rec)
{
	for (size_t i = 0; i < rec->latency.n; i++) {
		const struct dr_latency_row *r = &rec->latency.v[i];
		const int64_t ns[] = { r->p50_ns, r->p90_ns, r->p99_ns, r->p999_ns };

		for (int k = 0; k < 4 && !(r->switched > 0); k++) {
			struct compare_figure key =
				key_of(GROUP_LATENCY, (enum compare_quantity)(QUANTITY_P50 + k));

			key.gpu = r->gpu;
			key.message_bytes = r->bytes;
			add(c, side, &key, ns[k] == DR_UNSET ? NAN : (double)ns[k] / 1e3);
		}
	}
}

static void add_gap(struct compare *c, int side, const struct dr_gap_summary *g,
	enum compare_quantity quantity, int64_t ns)
{
	struct compare_figure key = key_of(GROUP_GAP, quantity);

	snprintf(key.kind, sizeof(key.kind), "%s", g->kind);
	key.end = g->side;
	key.dir = g->dir;
	add(c, side, &key, ns == DR_UNSET ? NAN : (double)ns / 1e3);
}

static void take_gaps(struct compare *c, int side, const struct dr_record *rec)
{
	for (size_t i = 0; i < rec->gap_groups.n; i++) {
		const struct dr_gap_summary *g = &rec->gap_groups.v[i];

		add_gap(c, side, g, QUANTITY_GAP_P50, g->p50_ns);
		add_gap(c, side, g, QUANTITY_GAP_P99, g->p99_ns);
		add_gap(c, side, g, QUANTITY_FAILBACK_GAP, g->failback_gap_ns);
	}
}

/* Trials of one run are independent of one another: a fault, then hold-down and failback. */
static void take_trials(struct compare *c, int side, const struct dr_record *rec)
{
	for (size_t i = 0; i < rec->faults.n; i++) {
		const struct dr_fault_row *r = &rec->faults.v[i];
		struct dr_gap_summary g = { .side = r->side, .dir = r->dir };

		if (r->verdict != DR_VERDICT_PASS && r->verdict != DR_VERDICT_FAIL)
			continue;
		snprintf(g.kind, sizeof(g.kind), "%s", r->kind);
		add_gap(c, side, &g, QUANTITY_GAP_P50, r->gap_ns);
		add_gap(c, side, &g, QUANTITY_FAILBACK_GAP, r->failback_gap_ns);
	}
}

/* Bandwidth that was measured while channels were not on their own rail is not that of these rails. */
static int64_t switched(const struct dr_record *rec)
{
	int64_t n = 0;

	for (size_t i = 0; i < rec->bandwidth.n; i++)
		n += DR_MAX(rec->bandwidth.v[i].switched, 0);
	return n;
}

void compare_take(struct compare *c, int side, const char *file, struct dr_record *rec)
{
	int64_t left = switched(rec);

	if (left) {
		compare_note(c, file,
			"its bandwidth is left out: %lld channels were not on their own rail all the time",
			(long long)left);
		rec->bandwidth.n = 0;
	}
	dr_record_settle(rec);
	dr_baseline_figures(rec);
	take_figures(c, side, rec);
	take_total(c, side, rec);
	take_latency(c, side, rec);
	if (c->trials)
		take_trials(c, side, rec);
	else
		take_gaps(c, side, rec);
}
