/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "orchestrator/checks/preflight_priv.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"

/*
 * The comparison judges figures (output/baseline.c). Here they are put down to parts.
 *  1. A figure counts once: what one part explains is no evidence against another.
 *  2. Directions are apart, since a cable or a port may be bad in one only.
 */

enum { SHOWN = 4 };

struct search {
	const struct dr_record *rec;
	struct preflight_bad *out;
	size_t n;
};

static bool is_below(const struct dr_comparison_row *c)
{
	return c->result == DR_COMPARISON_BELOW;
}

/* Compared, and of a pair. */
static bool is_pair(const struct dr_comparison_row *c)
{
	return c->kind == DR_FIGURE_PAIR && c->result <= DR_COMPARISON_BELOW;
}

/* Is it a figure of this GPU or NIC? */
static bool is_part_of(const struct dr_comparison_row *c, const struct preflight_bad *b)
{
	return (b->direction < 0 || c->direction == b->direction) &&
	       (b->kind == DR_FIGURE_NIC	  ? strcmp(c->nic, b->nic) == 0
		       : b->kind == DR_FIGURE_GPU ? c->gpu == b->gpu
						  : false);
}

/* A GPU or NIC that is bad explains its figures. */
static bool is_explained(const struct search *s, const struct dr_comparison_row *c)
{
	for (size_t i = 0; i < s->n; i++)
		if (is_part_of(c, &s->out[i]))
			return true;
	return false;
}

static struct preflight_bad bad_part(
	enum dr_figure_kind kind, const struct dr_comparison_row *c, int direction)
{
	struct preflight_bad b = { .kind = (int)kind,
		.gpu = kind == DR_FIGURE_NIC ? DR_UNSET : c->gpu,
		.direction = direction,
		.gbps = NAN,
		.mean_gbps = NAN,
		.percent = NAN };

	snprintf(b.nic, sizeof(b.nic), "%s", kind == DR_FIGURE_GPU ? "" : c->nic);
	return b;
}

static void add(struct search *s, const struct preflight_bad *b)
{
	if (s->n < PREFLIGHT_BAD_MAX)
		s->out[s->n++] = *b;
}

/* The figure behind it, unless a lower one is known. */
static void take_figure(struct preflight_bad *b, const struct dr_comparison_row *c)
{
	if (b->percent <= c->percent)
		return;
	b->gbps = c->gbps;
	b->mean_gbps = c->mean_gbps;
	b->percent = c->percent;
}

/* A figure for which no GPU or NIC is bad by itself. */
static void add_figure(struct search *s, const struct dr_comparison_row *c, const char *why)
{
	struct preflight_bad b = bad_part((enum dr_figure_kind)c->kind, c, c->direction);

	take_figure(&b, c);
	snprintf(b.reason, sizeof(b.reason), "%s", why);
	add(s, &b);
}

/* ---- NICs ---- */

/* What the verdict of the run says about it: "... not in this run: its link is down". */
static void why_missing(const struct dr_record *rec, struct preflight_bad *b)
{
	size_t len = strlen(b->nic);

	snprintf(b->reason, sizeof(b->reason), "not in this run");
	for (size_t i = 0; i < rec->errors.n; i++) {
		const char *text = rec->errors.v[i].text, *why = strstr(text, "not in this run");

		if (why && strncmp(text, b->nic, len) == 0 && text[len] == ' ') {
			snprintf(b->reason, sizeof(b->reason), "%.95s", why);
			return;
		}
	}
}

static void missing_nics(struct search *s)
{
	for (size_t i = 0; i < s->rec->comparison.n; i++) {
		const struct dr_comparison_row *c = &s->rec->comparison.v[i];
		struct preflight_bad b = bad_part(DR_FIGURE_NIC, c, -1);

		if (c->result != DR_COMPARISON_NOT_RUN || !c->nic[0] ||
			dr_record_rail_on(s->rec, c->nic) || is_explained(s, c))
			continue;
		why_missing(s->rec, &b);
		add(s, &b);
	}
}

/* ---- GPUs and pairs ---- */

/* Each GPU or NIC of which every figure that nothing explains yet is below. */
static void whole_parts(struct search *s, enum dr_figure_kind kind)
{
	for (size_t i = 0; i < s->rec->comparison.n; i++) {
		const struct dr_comparison_row *c = &s->rec->comparison.v[i], *of;
		struct preflight_bad b = bad_part(kind, c, c->direction);
		bool all = is_pair(c) && is_below(c) && !is_explained(s, c);

		for (size_t k = 0; k < s->rec->comparison.n && all; k++) {
			of = &s->rec->comparison.v[k];
			if (!is_pair(of) || !is_part_of(of, &b) || is_explained(s, of))
				continue;
			all = is_below(of);
			take_figure(&b, of);
		}
		if (all)
			add(s, &b);
	}
}

static void single_pairs(struct search *s)
{
	for (size_t i = 0; i < s->rec->comparison.n; i++) {
		const struct dr_comparison_row *c = &s->rec->comparison.v[i];

		if (is_pair(c) && is_below(c) && !is_explained(s, c))
			add_figure(s, c, "");
	}
}

/* A NIC with all GPUs, a GPU with all NICs. */
static void shared(struct search *s)
{
	for (size_t i = 0; i < s->rec->comparison.n; i++) {
		const struct dr_comparison_row *c = &s->rec->comparison.v[i];

		if (is_below(c) && !is_pair(c))
			add_figure(s, c,
				c->kind == DR_FIGURE_NIC
					? "only with all GPUs at once"
					: "only together with all GPUs over all NICs");
	}
}

/* Without a baseline NICs are compared with each other. */
static void slow_nics(struct search *s)
{
	const struct dr_matrix *m = &s->rec->matrix;

	for (size_t i = 0; i < m->nics.n; i++) {
		const struct dr_matrix_nic_row *n = &m->nics.v[i];
		struct preflight_bad b = { .kind = DR_FIGURE_NIC,
			.gpu = DR_UNSET,
			.direction = n->direction,
			.gbps = n->alone_gbps,
			.mean_gbps = 100 * n->alone_gbps / n->others_percent,
			.percent = n->others_percent,
			.beside_others = true };

		if (n->finding != DR_MATRIX_SLOW && n->finding != DR_MATRIX_IDLE)
			continue;
		snprintf(b.nic, sizeof(b.nic), "%s", n->nic);
		if (n->finding == DR_MATRIX_IDLE)
			snprintf(b.reason, sizeof(b.reason), "%.95s", n->cause);
		add(s, &b);
	}
}

size_t preflight_find_bad(const struct dr_record *rec, struct preflight_bad *out)
{
	struct search s = { .rec = rec, .out = out };

	if (!rec->comparison.n)
		slow_nics(&s);
	missing_nics(&s);
	whole_parts(&s, DR_FIGURE_NIC);
	whole_parts(&s, DR_FIGURE_GPU);
	single_pairs(&s);
	if (!s.n)
		shared(&s);
	return s.n;
}

/* ---- in words ---- */

static void describe(const struct preflight_bad *b, char *buf, size_t len)
{
	dr_append(buf, len, "%s%s", b->kind == DR_FIGURE_NIC ? "NIC " : "",
		figure_name(b->gpu, b->nic).s);
	if (b->direction >= 0)
		dr_append(buf, len, ", %s", dr_enum_name(dr_direction_names, b->direction));
	if (isfinite(b->percent))
		dr_append(buf, len, ": %.3g Gb/s is %.0f %% of the %s %.3g", b->gbps,
			floor(b->percent), b->beside_others ? "other NICs'" : "baseline's",
			b->mean_gbps);
	if (b->reason[0])
		dr_append(buf, len, "%s%s", isfinite(b->percent) ? ", " : ": ", b->reason);
}

void preflight_describe_bad(const struct preflight_bad *bad, size_t n, char *buf, size_t len)
{
	buf[0] = '\0';
	for (size_t i = 0; i < n && i < SHOWN; i++) {
		dr_append(buf, len, "%s", i ? "; " : "");
		describe(&bad[i], buf, len);
	}
	if (n > SHOWN)
		dr_append(buf, len, "; and %zu more", n - SHOWN);
}

/* ---- JSON ---- */

#define T struct preflight_bad
static const struct dr_field fields[] = {
	DR_FIELD_ENUM("kind", T, kind, dr_figure_names, .text = "what is bad"),
	DR_FIELD("gpu", DR_F_INT, T, gpu, .text = "the client's GPU; null: of a NIC"),
	DR_FIELD("nic", DR_F_STR, T, nic, .text = "NIC at the client; null: of a GPU"),
	DR_FIELD_ENUM("direction", T, direction, dr_direction_names,
		.text = "direction of the data; null: the NIC is not in the run"),
	DR_FIELD("gbps", DR_F_NUM, T, gbps, .text = "lowest bandwidth behind it"),
	DR_FIELD("mean_gbps", DR_F_NUM, T, mean_gbps, .text = "that of the baseline"),
	DR_FIELD("percent", DR_F_NUM, T, percent, .text = "gbps relative to mean_gbps"),
	DR_FIELD("reason", DR_F_STR, T, reason, .text = "more about it"),
};
DR_FIELDS(preflight_bad_fields, "bad", fields, T,
	.text = "a GPU, a NIC or a pair of them that is bad");
#undef T
