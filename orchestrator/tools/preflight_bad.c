/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "orchestrator/record/fields.h"
#include "orchestrator/tools/preflight_priv.h"

/*
 * The comparison judges figures (record/baseline.c). Here they are put down to parts.
 *  1. A figure counts once: what one part explains is no evidence against another.
 *  2. Directions are apart, since a cable or a port may be bad in one only.
 */

enum { SHOWN = 4 };

struct search {
	const struct dr_record *rec;
	struct preflight_bad *out;
	size_t n;
};

static const struct dr_comparison_row *row_at(const struct search *s, size_t i)
{
	return i < s->rec->comparison.n ? &s->rec->comparison.v[i] : NULL;
}

static bool is_below(const struct dr_comparison_row *c)
{
	return c->result == DR_COMPARISON_BELOW;
}

/* Compared, and of a pair in this direction. */
static bool is_pair(const struct dr_comparison_row *c, int direction)
{
	return c->kind == DR_FIGURE_PAIR && c->direction == direction &&
	       c->result <= DR_COMPARISON_BELOW;
}

static bool is_bad_nic(const struct search *s, const char *nic, int direction)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->out[i].kind == DR_FIGURE_NIC && strcmp(s->out[i].nic, nic) == 0 &&
			(s->out[i].direction == direction || s->out[i].direction < 0))
			return true;
	return false;
}

static bool is_bad_gpu(const struct search *s, int64_t gpu, int direction)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->out[i].kind == DR_FIGURE_GPU && s->out[i].gpu == gpu &&
			s->out[i].direction == direction)
			return true;
	return false;
}

static struct preflight_bad *add(
	struct search *s, enum dr_figure_kind kind, int64_t gpu, const char *nic, int direction)
{
	struct preflight_bad *b = &s->out[s->n];

	if (s->n == PREFLIGHT_BAD_MAX)
		return NULL;
	s->n++;
	*b = (struct preflight_bad){ .kind = (int)kind,
		.gpu = gpu,
		.direction = direction,
		.gbps = NAN,
		.mean_gbps = NAN,
		.percent = NAN };
	snprintf(b->nic, sizeof(b->nic), "%s", nic);
	return b;
}

/* The figure behind it, unless a lower one is known. */
static void take_figure(struct preflight_bad *b, const struct dr_comparison_row *c)
{
	if (!b || b->percent <= c->percent)
		return;
	b->gbps = c->gbps;
	b->mean_gbps = c->mean_gbps;
	b->percent = c->percent;
}

static void add_figure(struct search *s, const struct dr_comparison_row *c)
{
	take_figure(add(s, (enum dr_figure_kind)c->kind, c->gpu, c->nic, c->direction), c);
}

/* ---- NICs ---- */

static bool in_run(const struct dr_record *rec, const char *nic)
{
	for (size_t i = 0; i < rec->rails.n; i++)
		if (strcmp(rec->rails.v[i].ifname, nic) == 0)
			return true;
	return false;
}

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
	const struct dr_comparison_row *c;

	for (size_t i = 0; (c = row_at(s, i)) != NULL; i++) {
		struct preflight_bad *b;

		if (c->result != DR_COMPARISON_NOT_RUN || !c->nic[0] || in_run(s->rec, c->nic) ||
			is_bad_nic(s, c->nic, -1))
			continue;
		b = add(s, DR_FIGURE_NIC, DR_UNSET, c->nic, -1);
		if (b)
			why_missing(s->rec, b);
	}
}

/* Is every GPU below over this NIC? */
static bool all_gpus_below(const struct search *s, const char *nic, int direction)
{
	const struct dr_comparison_row *c;
	size_t n = 0;

	for (size_t i = 0; (c = row_at(s, i)) != NULL; i++) {
		if (!is_pair(c, direction) || strcmp(c->nic, nic) != 0)
			continue;
		if (!is_below(c))
			return false;
		n++;
	}
	return n > 0;
}

static void whole_nics(struct search *s)
{
	const struct dr_comparison_row *c, *of;

	for (size_t i = 0; (c = row_at(s, i)) != NULL; i++) {
		if (!is_below(c) || c->kind != DR_FIGURE_PAIR ||
			is_bad_nic(s, c->nic, c->direction) ||
			!all_gpus_below(s, c->nic, c->direction))
			continue;
		struct preflight_bad *b = add(s, DR_FIGURE_NIC, DR_UNSET, c->nic, c->direction);

		for (size_t k = 0; (of = row_at(s, k)) != NULL; k++)
			if (is_pair(of, c->direction) && strcmp(of->nic, c->nic) == 0)
				take_figure(b, of);
	}
}

/* ---- GPUs and pairs ---- */

/* Is it below over every NIC that is not bad itself? */
static bool all_nics_below(const struct search *s, int64_t gpu, int direction)
{
	const struct dr_comparison_row *c;
	size_t n = 0;

	for (size_t i = 0; (c = row_at(s, i)) != NULL; i++) {
		if (!is_pair(c, direction) || c->gpu != gpu || is_bad_nic(s, c->nic, direction))
			continue;
		if (!is_below(c))
			return false;
		n++;
	}
	return n > 0;
}

static void whole_gpus(struct search *s)
{
	const struct dr_comparison_row *c, *of;

	for (size_t i = 0; (c = row_at(s, i)) != NULL; i++) {
		if (!is_below(c) || c->kind != DR_FIGURE_PAIR ||
			is_bad_gpu(s, c->gpu, c->direction) ||
			!all_nics_below(s, c->gpu, c->direction))
			continue;
		struct preflight_bad *b = add(s, DR_FIGURE_GPU, c->gpu, "", c->direction);

		for (size_t k = 0; (of = row_at(s, k)) != NULL; k++)
			if (is_pair(of, c->direction) && of->gpu == c->gpu &&
				!is_bad_nic(s, of->nic, of->direction))
				take_figure(b, of);
	}
}

static void single_pairs(struct search *s)
{
	const struct dr_comparison_row *c;

	for (size_t i = 0; (c = row_at(s, i)) != NULL; i++)
		if (is_below(c) && c->kind == DR_FIGURE_PAIR &&
			!is_bad_nic(s, c->nic, c->direction) &&
			!is_bad_gpu(s, c->gpu, c->direction))
			add_figure(s, c);
}

/* A NIC with all GPUs, a GPU with all NICs. */
static void shared(struct search *s)
{
	static const char *const why[] = { "only together with all GPUs over all NICs",
		"only with all GPUs at once" };
	const struct dr_comparison_row *c;

	for (size_t i = 0; (c = row_at(s, i)) != NULL; i++) {
		if (!is_below(c) || c->kind == DR_FIGURE_PAIR)
			continue;
		add_figure(s, c);
		if (s->n < PREFLIGHT_BAD_MAX)
			snprintf(s->out[s->n - 1].reason, sizeof(s->out->reason), "%s",
				why[c->kind == DR_FIGURE_NIC]);
	}
}

size_t preflight_find_bad(const struct dr_record *rec, struct preflight_bad *out)
{
	struct search s = { .rec = rec, .out = out };

	missing_nics(&s);
	whole_nics(&s);
	whole_gpus(&s);
	single_pairs(&s);
	if (!s.n)
		shared(&s);
	return s.n;
}

/* ---- in words ---- */

static void describe(const struct preflight_bad *b, char *buf, size_t len)
{
	if (b->kind == DR_FIGURE_NIC)
		dr_append(buf, len, "NIC %s", b->nic);
	else
		dr_append(
			buf, len, "GPU %" PRId64 "%s%s", b->gpu, b->nic[0] ? " over " : "", b->nic);
	if (b->direction >= 0)
		dr_append(buf, len, ", %s", dr_enum_name(dr_direction_names, b->direction));
	if (isfinite(b->percent))
		dr_append(buf, len, ": %.3g Gb/s is %.0f %% of the baseline's %.3g", b->gbps,
			b->percent, b->mean_gbps);
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
