/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/compare.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/checks/compare_priv.h"
#include "orchestrator/output/parts.h"

static double weight_of(int group)
{
	return group == GROUP_TOTAL ? GROUPS - 1 : 1;
}

/* The share of each figure in COMPARE_LEVEL; only those that both sides have count. */
static void share_level(struct compare *c)
{
	size_t n[GROUPS] = { 0 };
	double weights = 0;

	for (size_t i = 0; i < c->figures.n; i++)
		n[c->figures.v[i].group] += c->figures.v[i].of[SIDE_OLD].values.n &&
					    c->figures.v[i].of[SIDE_NEW].values.n;
	for (int g = 0; g < GROUPS; g++)
		weights += n[g] ? weight_of(g) : 0;
	for (size_t i = 0; i < c->figures.n; i++) {
		struct compare_figure *f = &c->figures.v[i];

		f->level = n[f->group] ? COMPARE_LEVEL * weight_of(f->group) / weights /
						 (double)n[f->group]
				       : NAN;
	}
}

static void describe(struct compare_values *v)
{
	size_t n = v->values.n;

	v->median = dr_median(v->values.v, n);
	v->least = n ? v->values.v[0] : NAN;
	v->most = n ? v->values.v[n - 1] : NAN;
}

static int result_of(const struct compare_figure *f, double tolerance)
{
	const struct dr_shift *s = &f->shift;
	bool higher = s->low > 1 && s->ratio > 1 + tolerance;
	bool lower = s->high < 1 && s->ratio < 1 - tolerance;

	if (isnan(s->low))
		return RESULT_FEW;
	if (!lower && !higher)
		return RESULT_SAME;
	/* Of bandwidth more is better, of all else less. */
	return higher == (f->quantity == QUANTITY_BANDWIDTH) ? RESULT_BETTER : RESULT_WORSE;
}

static void judge(struct compare *c, struct compare_figure *f)
{
	struct compare_values *was = &f->of[SIDE_OLD], *is = &f->of[SIDE_NEW];

	describe(was);
	describe(is);
	f->shift = (struct dr_shift){ NAN, NAN, NAN };
	f->runs_needed = DR_UNSET;
	if (!was->values.n || !is->values.n) {
		f->result = was->values.n ? RESULT_OLD : RESULT_NEW;
		return;
	}
	f->runs_needed = (int64_t)dr_shift_runs(f->level);
	if (dr_shift_estimate(
		    was->values.v, was->values.n, is->values.v, is->values.n, f->level, &f->shift))
		c->no_memory = true;
	f->result = result_of(f, c->tolerance);
}

static int status_of(const struct compare *c)
{
	if (c->no_memory || (c->differences.n && !c->allow_differences))
		return DR_EXIT_ENV;
	if (c->results[RESULT_WORSE])
		return DR_EXIT_THRESHOLD;
	return c->results[RESULT_SAME] || c->results[RESULT_BETTER] ? DR_EXIT_PASS : DR_EXIT_ENV;
}

static void drop_figures(struct compare *c)
{
	for (size_t i = 0; i < c->figures.n; i++)
		for (int side = 0; side < 2; side++)
			dr_free(c->figures.v[i].of[side].values.v);
	c->figures.n = 0;
}

void compare_judge(struct compare *c)
{
	if (c->differences.n && !c->allow_differences)
		drop_figures(c);
	share_level(c);
	for (size_t i = 0; i < c->figures.n; i++) {
		judge(c, &c->figures.v[i]);
		c->results[c->figures.v[i].result]++;
	}
	c->status = status_of(c);
}

void compare_fini(struct compare *c)
{
	drop_figures(c);
	dr_free(c->figures.v);
	dr_free(c->figures.index.slot);
	dr_free(c->differences.v);
	dr_free(c->notes.v);
}

int dr_compare_main(const struct dr_options *o)
{
	int n_old = o->n_inputs - o->n_new;
	struct compare c = { .tolerance = o->tolerance / 100,
		.allow_differences = o->allow_differences,
		.side = { { .path = o->inputs, .n = n_old },
			{ .path = o->inputs + n_old, .n = o->n_new } } };
	bool to_stdout = o->json_path && strcmp(o->json_path, "-") == 0;
	struct dr_err e;
	int rc = o->json_path && !to_stdout ? dr_file_probe("--json", o->json_path, &e) : 0;

	if (!rc)
		rc = compare_load(&c, &e);
	if (rc) {
		dr_complain("%s", e.text);
		compare_fini(&c);
		return DR_EXIT_ENV;
	}
	compare_judge(&c);
	compare_print(&c, o->verbose > 0, to_stdout ? dr_log_tables() : stdout);
	rc = dr_json_output(o->json_path, o->json_path ? compare_json(&c) : NULL, c.status);
	compare_fini(&c);
	return rc;
}
