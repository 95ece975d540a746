/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/units.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/* The answer of each test in a line: what its table is read for, and what is worst in it. */

static const char *plural(size_t n)
{
	return n == 1 ? "" : "s";
}

/* " over eth2", the NIC of the GPU's first primary rail at this end; "": unknown. */
static struct cell over_nic(const struct dr_record *rec, int64_t gpu)
{
	struct cell c = { "" };

	for (size_t i = 0; i < rec->gpus.n; i++) {
		if (rec->gpus.v[i].gpu != gpu)
			continue;
		const struct dr_rail_row *r = dr_record_rail(rec, rec->gpus.v[i].primary);

		if (r)
			snprintf(c.s, sizeof(c.s), " over %.63s", r->ifname);
		break;
	}
	return c;
}

/* " over eth1", " (over all 3 NICs)": the NICs of the GPU's primary rails. */
static struct cell over_nics(const struct dr_record *rec, int64_t gpu)
{
	struct cell c = { "" };
	size_t n = 0;

	for (size_t i = 0; i < rec->gpus.n; i++) {
		size_t k = 0;

		while (k < i && (rec->gpus.v[k].gpu != gpu ||
					rec->gpus.v[k].primary != rec->gpus.v[i].primary))
			k++;
		n += k == i && rec->gpus.v[i].gpu == gpu;
	}
	if (n < 2)
		return over_nic(rec, gpu);
	snprintf(c.s, sizeof(c.s), " (over %s%zu NICs)", n == rec->rails.n ? "all " : "", n);
	return c;
}

/* The GPUs that use the one rail of this GPU, and no other: their number and sum. 1: not shared. */
static size_t sharing(const struct dr_record *rec, const struct dr_bandwidth_row *of,
	int64_t *first, double *gbps)
{
	int64_t rail = DR_UNSET;
	size_t n = 0;

	for (size_t i = 0; i < rec->gpus.n; i++) {
		if (rec->gpus.v[i].gpu != of->gpu)
			continue;
		if (rail != DR_UNSET && rail != rec->gpus.v[i].primary)
			return 1;
		rail = rec->gpus.v[i].primary;
	}
	*gbps = 0;
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *b = &rec->bandwidth.v[i];
		size_t uses = 0;

		for (size_t k = 0; k < rec->gpus.n; k++)
			uses += rec->gpus.v[k].gpu == b->gpu && rec->gpus.v[k].primary == rail;
		if (b->phase != of->phase || b->direction != of->direction || !uses ||
			!isfinite(b->gbps))
			continue;
		if (n < 2)
			first[n] = b->gpu;
		n++;
		*gbps += b->gbps;
	}
	return n;
}

/* What the slowest GPU shares its NIC with explains its figure. */
static void print_sharing(
	const struct dr_record *rec, const struct dr_bandwidth_row *worst, FILE *f)
{
	int64_t first[2] = { DR_UNSET, DR_UNSET };
	double gbps = 0;
	size_t n = sharing(rec, worst, first, &gbps);
	struct cell nic = over_nic(rec, worst->gpu);

	if (n < 2 || first[0] == first[1] || strncmp(nic.s, " over ", 6) != 0)
		return;
	fprintf(f, " (%s is shared by ", nic.s + 6);
	if (n == 2)
		fprintf(f, "GPUs %s and %s", count(first[0]).s, count(first[1]).s);
	else
		fprintf(f, "%zu GPUs", n);
	fprintf(f, ": %s Gb/s together)", sig(gbps).s);
}

/* The row of the total's measurement that has the smallest share of its line rate or, without one, the least. */
static const struct dr_bandwidth_row *slowest(
	const struct dr_record *rec, size_t *gpus, double *mean)
{
	const struct dr_bandwidth_row *worst = NULL;
	double sum = 0;
	size_t n = 0;

	*gpus = 0;
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *r = &rec->bandwidth.v[i];
		size_t k = 0;

		if (r->phase != rec->total.phase)
			continue;
		while (k < i && (rec->bandwidth.v[k].phase != r->phase ||
					rec->bandwidth.v[k].gpu != r->gpu))
			k++;
		*gpus += k == i;
		if (!isfinite(r->gbps))
			continue;
		n++;
		sum += r->gbps;
		bool rates = worst && isfinite(r->line_rate_percent) &&
			     isfinite(worst->line_rate_percent);
		if (!worst || (rates ? r->line_rate_percent < worst->line_rate_percent
				     : r->gbps < worst->gbps))
			worst = r;
	}
	*mean = sum / (double)n;
	return worst;
}

void dr_result_bandwidth(const struct dr_record *rec, const char *title, FILE *f)
{
	const struct dr_total *t = &rec->total;
	size_t gpus, rails = rec->rails.n;
	double mean;
	const struct dr_bandwidth_row *worst = slowest(rec, &gpus, &mean);

	if (!worst || !isfinite(t->gbps))
		return;
	fprintf(f, "%s: %zu GPU%s x %zu NIC%s: %s Gb/s (%s GB/s)", title, gpus, plural(gpus), rails,
		plural(rails), sig(t->gbps).s, sig(t->gbps / 8).s);
	if (t->message_bytes != DR_UNSET)
		fprintf(f, " with messages of %s", size(t->message_bytes).s);
	if (isfinite(t->line_rate_percent))
		fprintf(f, ", %.1f %% of %.6g Gb/s%s", t->line_rate_percent, t->line_gbps,
			dr_total_slower(t));
	if (gpus > 1) {
		fprintf(f, "; slowest GPU %s%s: ", count(worst->gpu).s,
			over_nics(rec, worst->gpu).s);
		if (isfinite(worst->line_rate_percent))
			fprintf(f, "%.0f %%", worst->line_rate_percent);
		else
			fprintf(f, "%.0f %% of the mean", 100 * worst->gbps / mean);
		print_sharing(rec, worst, f);
	}
	fputc('\n', f);
}

void dr_result_nics(const struct dr_record *rec, const char *title, FILE *f)
{
	size_t n = rec->nics.n, ok = 0, unknown = 0;
	const struct dr_nic_row *bad = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct dr_nic_row *r = &rec->nics.v[i];

		ok += r->counter_check == DR_NIC_CHECK_OK;
		unknown += r->counter_check != DR_NIC_CHECK_OK &&
			   r->counter_check != DR_NIC_CHECK_DIFFERS;
		if (!bad && r->counter_check == DR_NIC_CHECK_DIFFERS)
			bad = r;
	}
	if (bad)
		fprintf(f,
			"%s: %zu of %zu NICs carried other traffic than theirs, the first is %s at the %s\n",
			title, n - ok - unknown, n, bad->name,
			dr_enum_name(dr_end_names, bad->side));
	else if (unknown == n)
		fprintf(f, "%s: no NIC could be compared with its counters\n", title);
	else
		fprintf(f, "%s: %zu of %zu NICs carried what was sent over them%s\n", title, ok, n,
			unknown ? "; the others could not be compared" : "");
}

void dr_result_sizes(const struct dr_record *rec, FILE *f)
{
	const struct dr_bandwidth_row *v = rec->bandwidth.v;
	size_t n = rec->bandwidth.n;
	bool several = false;

	for (size_t i = 1; i < n; i++)
		several |= v[i].phase != v[0].phase || v[i].direction != v[0].direction;
	for (size_t i = 0; several && i < n; i++) {
		struct dr_total t;

		if (!dr_bandwidth_first(rec, i))
			continue;
		dr_total_of_phase(rec, v[i].phase, &t);
		const double gbps[] = { t.to_server_gbps, t.to_client_gbps };
		fprintf(f, "  %s:", size(v[i].message_bytes).s);
		for (size_t k = 0; k < 2; k++)
			if (isfinite(gbps[k]))
				fprintf(f, " %s %s Gb/s", dr_direction_names[k], sig(gbps[k]).s);
		fputc('\n', f);
	}
}

/* Of one message size, in rows of it. */
static void print_latency(const struct dr_record *rec, int64_t bytes, const char *title, FILE *f)
{
	const struct dr_latency_row *best = NULL, *worst = NULL;
	int64_t p99 = 0, max = 0;

	for (size_t i = 0; i < rec->latency.n; i++) {
		const struct dr_latency_row *r = &rec->latency.v[i];

		if (r->p50_ns == DR_UNSET || r->bytes != bytes)
			continue;
		p99 = DR_MAX(p99, r->p99_ns);
		max = DR_MAX(max, r->max_ns);
		if (!best || r->p50_ns < best->p50_ns)
			best = r;
		if (!worst || r->p50_ns > worst->p50_ns)
			worst = r;
	}
	if (!best)
		return;
	fprintf(f, "%s, round trip of %s: median %s us (GPU %s over %s)", title, size(bytes).s,
		us(best->p50_ns).s, count(best->gpu).s, best->nic);
	if (worst != best)
		fprintf(f, " to %s us (GPU %s over %s)", us(worst->p50_ns).s, count(worst->gpu).s,
			worst->nic);
	fprintf(f, "; p99 %s%s us, longest %s us\n", worst != best ? "at most " : "", us(p99).s,
		us(max).s);
}

void dr_result_latency(const struct dr_record *rec, const char *title, FILE *f)
{
	for (size_t i = 0; i < rec->latency.n; i++) {
		size_t k = 0;

		while (k < i && rec->latency.v[k].bytes != rec->latency.v[i].bytes)
			k++;
		if (k == i)
			print_latency(rec, rec->latency.v[i].bytes, title, f);
	}
}

void dr_result_failover(const struct dr_record *rec, const char *title, FILE *f)
{
	const struct dr_fault_row *worst = NULL, *ended = NULL;
	size_t n = rec->faults.n, passed = 0, cut = 0;
	int64_t failback = DR_UNSET;

	for (size_t i = 0; i < n; i++) {
		const struct dr_fault_row *r = &rec->faults.v[i];

		passed += r->verdict == DR_VERDICT_PASS;
		failback = DR_MAX(failback, r->failback_gap_ns);
		cut += r->verdict == DR_VERDICT_INCOMPLETE;
		if (r->verdict != DR_VERDICT_INCOMPLETE && r->gap_ns != DR_UNSET &&
			(!worst || r->gap_ns > worst->gap_ns))
			worst = r;
		if (r->error_after_ns != DR_UNSET)
			ended = r;
	}
	if (!n)
		return;
	if (cut == n)
		fprintf(f, "%s: 0 of %zu trial%s finished", title, n, plural(n));
	else
		fprintf(f, "%s: %zu of %zu trial%s passed", title, passed, n, plural(n));
	if (cut && cut < n)
		fprintf(f, ", %zu did not finish", cut);
	if (worst)
		fprintf(f, "; longest gap %s ms (fault %s, %s, GPU %s%s)", ms(worst->gap_ns).s,
			count(worst->trial).s, dr_fault_row_name(worst->kind, worst->dir).s,
			count(worst->gpu).s, over_nic(rec, worst->gpu).s);
	if (failback != DR_UNSET)
		fprintf(f, ", longest failback gap %s ms", ms(failback).s);
	if (ended)
		fprintf(f, "; no delivery for %s s until the error (fault %s)",
			num((double)ended->error_after_ns / 1e9, 2).s, count(ended->trial).s);
	fputc('\n', f);
}

void dr_result_matrix(const struct dr_record *rec, int direction, FILE *f)
{
	const struct dr_matrix_cell_row *worst = NULL;
	size_t cells = 0;

	for (size_t i = 0; i < rec->matrix.cells.n; i++) {
		const struct dr_matrix_cell_row *r = &rec->matrix.cells.v[i];

		if (r->direction != direction || r->gpu == DR_UNSET)
			continue;
		cells++;
		if (isfinite(r->gbps) && !(r->switched > 0) && (!worst || r->gbps < worst->gbps))
			worst = r;
	}
	if (!worst)
		return;
	fprintf(f,
		"Result: %zu pairs of GPU and NIC: %s Gb/s all together; slowest pair GPU %s over %s: %s Gb/s\n",
		cells,
		sig(direction == DR_TO_SERVER ? rec->matrix.to_server_gbps
					      : rec->matrix.to_client_gbps)
			.s,
		count(worst->gpu).s, worst->nic, sig(worst->gbps).s);
}

void dr_result_faults(const struct dr_record *rec, FILE *f)
{
	for (size_t i = 0; i < rec->gap_groups.n; i++) {
		const struct dr_gap_summary *g = &rec->gap_groups.v[i];

		fprintf(f, "  %s, %s: data in flight in %s of %s",
			dr_fault_row_name(g->kind, g->dir).s, dr_enum_name(dr_end_names, g->side),
			count(g->hit).s, count(g->n).s);
		if (g->gaps > 0)
			fprintf(f, "; gap median %s ms", ms(g->p50_ns).s);
		if (g->gaps > 0 && g->detect_ns != DR_UNSET)
			fprintf(f, " (detection %s ms)", ms(g->detect_ns).s);
		if (g->gaps >= 100)
			fprintf(f, ", p99 %s ms", ms(g->p99_ns).s);
		if (g->gaps > 0)
			fprintf(f, ", longest %s ms", ms(g->max_ns).s);
		if (isfinite(g->after_gbps / g->before_gbps))
			fprintf(f, "; bandwidth afterwards %.0f %% of before",
				100 * g->after_gbps / g->before_gbps);
		fputc('\n', f);
	}
}

void dr_result_data(const struct dr_record *rec, const char *title, FILE *f)
{
	const struct dr_integrity_row *r = &rec->integrity_total;

	fprintf(f,
		"%s: %s chunks, %s GB: lost %s, duplicated %s, reordered %s, corrupted %s (%s)\n",
		title, count(r->chunks).s, sig(known(r->bytes) / 1e9).s, count(r->lost).s,
		count(r->duplicated).s, count(r->reordered).s, count(r->corrupted).s,
		r->verified > 0 ? "every byte compared" : "by sequence numbers");
}

/* A run that passed may still have something to say. */
static void put_reserves(const struct dr_record *rec, char *buf, size_t len)
{
	const struct dr_switch_row *first = NULL;

	dr_record_silent_nics(rec, buf, len);
	for (size_t i = 0; i < rec->switches.n; i++) {
		const struct dr_switch_row *r = &rec->switches.v[i];

		/* The end that noticed the failure knows why. */
		if (dr_switch_unexpected(rec, r) &&
			(!first || (r->rec.self_detected && !first->rec.self_detected)))
			first = r;
	}
	if (first)
		dr_append(buf, len, "; %" PRId64 " unexpected switch%s, the first at %s s: %s",
			rec->unexpected_switches,
			rec->unexpected_switches == 1 ? " of a channel" : "es of channels",
			num((double)(first->rec.detect_ns -
				     (rec->session_ns ? rec->session_ns : rec->start_ns)) /
					1e9,
				2)
				.s,
			first->rec.cause[0] ? first->rec.cause : "no reason is known");
	for (size_t i = 0; i < rec->nics.n; i++)
		if (rec->nics.v[i].degraded == 1)
			dr_append(buf, len, "; %s is degraded for what the %s sends",
				rec->nics.v[i].name,
				dr_enum_name(dr_end_names, rec->nics.v[i].side));
}

void dr_result_verdict(const struct dr_record *rec, FILE *f)
{
	static const char *const words[] = { "PASS", "FAIL", "ERROR" };
	char but[512] = "", control[128] = "";

	put_reserves(rec, but, sizeof(but));
	dr_record_control_nic(rec, control, sizeof(control));
	fprintf(f, "%s (exit status %d)%s%s%s\n", words[rec->status], rec->exit_code,
		*but ? (rec->exit_code ? "; " : ", but ") : "", *but ? but + 2 : "", control);
}
