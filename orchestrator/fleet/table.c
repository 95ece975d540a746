/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/verdict.h"

#include "base/mem.h"
#include "base/units.h"
#include "orchestrator/output/parts.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FULL_MAX = 11, WORST_MAX = 20, GROUP_SHOWN = 12 };

enum { CELL_NONE = -1, CELL_FAILED = -2, CELL_MISSING = -3 };

/* From a node to another: lowest Gb/s of their NICs; CELL_* below 0. */
static float cell(const struct dr_sweep_result *r, enum dr_sweep_way way)
{
	float lowest = dr_sweep_lowest(r, way);

	return r->state == DR_SWEEP_FAILED ? CELL_FAILED
	       : r->state != DR_SWEEP_OK   ? CELL_MISSING
	       : isnan(lowest)		   ? CELL_NONE
					   : lowest;
}

static void print_cell(FILE *f, float gbps, double bound)
{
	char text[16];

	if (gbps >= 0)
		snprintf(text, sizeof(text),
			gbps < 1      ? "%.4f%s"
			: gbps < 1000 ? "%.3g%s"
				      : "%.0f%s",
			(double)gbps, dr_sweep_is_low(gbps, bound) ? "!" : "");
	else
		snprintf(text, sizeof(text), "%s",
			gbps == (float)CELL_FAILED    ? "fail"
			: gbps == (float)CELL_MISSING ? "none"
						      : "-");
	fprintf(f, " %7.7s", text);
}

static int print_full(const struct dr_sweep_judge *j, const struct dr_sweep_verdict *v, FILE *f)
{
	float *m = dr_calloc((size_t)j->nodes * j->nodes, sizeof(*m));
	double bound = isfinite(v->median_gbps) ? j->least * v->median_gbps : 0;

	if (!m)
		return -ENOMEM;
	for (uint32_t i = 0; i < j->nodes * j->nodes; i++)
		m[i] = CELL_NONE;
	for (size_t i = 0; i < j->n_results; i++) {
		const struct dr_sweep_pair p = j->result[i].pair;

		m[p.client * j->nodes + p.server] = cell(&j->result[i], DR_SWEEP_TO_SERVER);
		m[p.server * j->nodes + p.client] = cell(&j->result[i], DR_SWEEP_TO_CLIENT);
	}
	fprintf(f,
		"\nGb/s from the node of the row to that of the column, lowest of their NICs\n     ");
	for (uint32_t c = 0; c < j->nodes; c++)
		fprintf(f, " %7u", c);
	for (uint32_t r = 0; r < j->nodes; r++) {
		fprintf(f, "\n%5u", r);
		for (uint32_t c = 0; c < j->nodes; c++)
			print_cell(f, m[r * j->nodes + c], bound);
		if (j->nodes <= 8)
			fprintf(f, "  %.24s", j->node[r].host);
	}
	fprintf(f, "\n  ");
	if (isfinite(v->median_gbps))
		fprintf(f, "!: below %.0f %% of the median %.3g; ", 100 * j->least, v->median_gbps);
	fprintf(f, "fail: the run failed; none: not measured\n");
	dr_free(m);
	return 0;
}

struct worst {
	uint32_t rank, ok, failed, missing;
	float lowest;
	uint32_t peer;
};

static int by_lowest(const void *a, const void *b)
{
	const struct worst *x = a, *y = b;

	if (x->failed != y->failed)
		return x->failed < y->failed ? 1 : -1;
	if (x->missing != y->missing)
		return x->missing < y->missing ? 1 : -1;
	return x->lowest < y->lowest ? -1 : x->lowest > y->lowest;
}

static void count(struct worst *w, const struct dr_sweep_result *r, uint32_t peer)
{
	float lowest = dr_sweep_lowest(r, DR_SWEEP_BOTH_WAYS);

	w->ok += r->state == DR_SWEEP_OK;
	w->failed += r->state == DR_SWEEP_FAILED;
	w->missing += r->state == DR_SWEEP_MISSING;
	if (r->state == DR_SWEEP_OK && lowest < w->lowest) {
		w->lowest = lowest;
		w->peer = peer;
	}
}

static int print_worst(const struct dr_sweep_judge *j, const struct dr_sweep_verdict *v, FILE *f)
{
	struct worst *w = dr_calloc(j->nodes, sizeof(*w));

	if (!w)
		return -ENOMEM;
	for (uint32_t i = 0; i < j->nodes; i++)
		w[i] = (struct worst){ .rank = i, .lowest = INFINITY };
	for (size_t i = 0; i < j->n_results; i++) {
		const struct dr_sweep_pair p = j->result[i].pair;

		count(&w[p.client], &j->result[i], p.server);
		count(&w[p.server], &j->result[i], p.client);
	}
	qsort(w, j->nodes, sizeof(*w), by_lowest);
	fprintf(f,
		"\nThe worst %d of %u nodes (median %.3g Gb/s)\n   rank  pairs  failed  missing   lowest  %% median  "
		"with  host\n",
		WORST_MAX, j->nodes, v->median_gbps);
	for (uint32_t i = 0; i < WORST_MAX && i < j->nodes; i++)
		if (isfinite(w[i].lowest))
			fprintf(f, "  %5u  %5u  %6u  %7u  %7.3g  %8.0f  %4u  %.30s\n", w[i].rank,
				w[i].ok, w[i].failed, w[i].missing, (double)w[i].lowest,
				100 * (double)w[i].lowest / v->median_gbps, w[i].peer,
				j->node[w[i].rank].host);
		else
			fprintf(f, "  %5u  %5u  %6u  %7u        -         -     -  %.30s\n",
				w[i].rank, w[i].ok, w[i].failed, w[i].missing,
				j->node[w[i].rank].host);
	dr_free(w);
	return 0;
}

/* Equal but for numbers: addresses and ports differ between pairs. */
static bool is_same_reason(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (isdigit((unsigned char)*a))
			a++;
		while (isdigit((unsigned char)*b))
			b++;
		if (*a != *b || !*a)
			return *a == *b;
	}
}

static bool is_same_failure(const struct dr_sweep_finding *a, const struct dr_sweep_finding *b)
{
	return a->kind == b->kind && *a->reason && is_same_reason(a->reason, b->reason);
}

/* Failures with the same reason, the first of which is i, as one finding. */
static void describe_group(
	const struct dr_sweep_verdict *v, size_t i, size_t n, char *buf, size_t len)
{
	bool pair = v->v[i].kind == DR_SWEEP_FAILED_PAIR;
	size_t shown = 0;

	snprintf(buf, len, "%s: %zu %s with the same reason, rank%s",
		dr_sweep_kind_names[v->v[i].kind], n, pair ? "pairs" : "nodes", pair ? "" : "s");
	for (size_t k = i; k < v->n && shown < GROUP_SHOWN; k++) {
		const struct dr_sweep_finding *x = &v->v[k];

		if (!is_same_failure(&v->v[i], x))
			continue;
		dr_append(buf, len, "%s %lld", shown++ ? "," : "", (long long)x->rank);
		if (pair)
			dr_append(buf, len, " with %lld", (long long)x->peer_rank);
	}
	if (n > shown)
		dr_append(buf, len, " and %zu more", n - shown);
	dr_append(buf, len, ": %s", v->v[i].reason);
}

/* How many failures share the reason of i, from i on; 0: it is not the first. */
static size_t group_of(const struct dr_sweep_verdict *v, size_t i)
{
	size_t n = 0;

	for (size_t k = 0; k < v->n; k++) {
		if (!is_same_failure(&v->v[i], &v->v[k]))
			continue;
		if (k < i)
			return 0;
		n++;
	}
	return n;
}

static void print_finding(FILE *f, const struct dr_sweep_verdict *v, size_t i)
{
	size_t n = *v->v[i].reason ? group_of(v, i) : 1;
	char text[600];

	if (n == 0)
		return; /* printed with the first of its group */
	if (n > 1)
		describe_group(v, i, n, text, sizeof(text));
	else
		snprintf(text, sizeof(text), "%s: %s", dr_sweep_kind_names[v->v[i].kind],
			v->v[i].text);
	fprintf(f, "  %s\n", text);
}

static void print_rtt(const struct dr_sweep_judge *j, const struct dr_sweep_verdict *v, FILE *f)
{
	if (!v->rtt_pairs)
		return;
	fprintf(f,
		"\nRound trip of %llu pairs: median %.4g us; slowest %.4g us (p99 %.4g), rank %u (%.24s) "
		"with %u (%.24s)\n",
		(unsigned long long)v->rtt_pairs, v->rtt_us, v->rtt_max_us, v->rtt_max_p99_us,
		v->rtt_max_pair.client, j->node[v->rtt_max_pair.client].host,
		v->rtt_max_pair.server, j->node[v->rtt_max_pair.server].host);
}

int dr_sweep_print(const struct dr_sweep_judge *j, const struct dr_sweep_verdict *v, FILE *f)
{
	struct dr_wrap w;
	FILE *m = dr_wrap_open(&w);

	if (!m)
		return -ENOMEM;
	int rc = j->nodes <= FULL_MAX ? print_full(j, v, m) : print_worst(j, v, m);

	print_rtt(j, v, m);
	if (v->n)
		fprintf(m, "\nFindings\n");
	for (size_t i = 0; i < v->n; i++)
		print_finding(m, v, i);
	dr_wrap_close(&w, f);
	return rc;
}
