/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/record/cell.h"
#include "orchestrator/record/fields.h"
#include "orchestrator/record/report.h"
#include "transport/kind.h"

/*
 * One finding for each rail and direction of a matrix, derived from its cells and the NICs' own counters. The
 * first rule that applies:
 *
 *   idle  the counter of either end's NIC increased by less than a tenth of what the rail's cells delivered
 *         (the data used another NIC), or they delivered nothing; or in the phase of all GPUs over all rails
 *         the rail carried less than a hundredth of the busiest one
 *   left  channels were not on the rail all the time in some of its cells
 *   slow  the best of its cells is below 80 % of the median of the other rails' best; or below 80 % of
 *         its own speed (the slower end's, if both are known) while another rail reaches that
 *   unknown, ok
 *
 * A cell that channels left gives no value for the rail. Speeds in Gb/s.
 */

static const double IDLE_PART = 0.1, TOTAL_PART = 0.01, SLOW_PART = 0.8;

/* A rail and direction, and what its finding is derived from. */
struct judged {
	struct dr_matrix_nic_row *nic;
	size_t cells, left;
	double delivered;
	/* [enum dr_end]: sums over the cells in which that end's counter is known */
	double counted[2], counted_of[2];
	bool has_counter[2];
	double speed_gbps; /* NAN: unknown */
};

/* ------------------------------- figures ------------------------------- */

static struct judged *find(struct judged *j, size_t n, const struct dr_matrix_cell_row *r)
{
	for (size_t i = 0; i < n; i++)
		if (j[i].nic->rail == r->rail && j[i].nic->direction == r->direction)
			return &j[i];
	return NULL;
}

static void add_cell(struct judged *j, const struct dr_matrix_cell_row *r)
{
	const int64_t counter[2] = { r->client_counter_bytes, r->server_counter_bytes };
	double bytes = (double)DR_MAX(r->bytes, 0);

	j->cells++;
	j->delivered += bytes;
	if (r->switched > 0)
		j->left++;
	else
		j->nic->alone_gbps = fmax(j->nic->alone_gbps, r->gbps);
	for (int end = 0; end < 2; end++) {
		if (counter[end] == DR_UNSET || r->bytes == DR_UNSET)
			continue;
		j->has_counter[end] = true;
		j->counted[end] += (double)counter[end];
		j->counted_of[end] += bytes;
	}
}

static double total_gbps(const struct dr_matrix_total_row *r, bool receiving)
{
	int64_t bytes = receiving ? r->counter_rx_bytes : r->counter_tx_bytes;

	return r->seconds > 0 ? known(bytes) * 8 / r->seconds / 1e9 : NAN;
}

/* Sets the rail's figure of the phase of all GPUs over all rails, and its share, as one end's NICs counted it. */
static bool total_at(const struct dr_record *rec, struct dr_matrix_nic_row *nic, int end)
{
	bool receiving = (nic->direction == DR_TO_SERVER) == (end == DR_END_SERVER);
	const char *name = end == DR_END_CLIENT ? nic->nic : nic->peer_nic;
	double sum = 0;

	for (size_t i = 0; i < rec->matrix.totals.n; i++) {
		const struct dr_matrix_total_row *r = &rec->matrix.totals.v[i];
		double gbps = total_gbps(r, receiving);

		if (r->side != end || !isfinite(gbps))
			continue;
		sum += gbps;
		if (strcmp(r->nic, name) == 0)
			nic->total_gbps = gbps;
	}
	nic->share_percent = sum > 0 ? 100 * nic->total_gbps / sum : NAN;
	return isfinite(nic->total_gbps);
}

static size_t figures(
	const struct dr_record *rec, struct dr_matrix_nic_row *out, struct judged *j, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < rec->matrix.cells.n; i++) {
		const struct dr_matrix_cell_row *r = &rec->matrix.cells.v[i];
		struct judged *at = find(j, n, r);

		if (!at && n < cap) {
			at = &j[n];
			*at = (struct judged){ .nic = &out[n++],
				.speed_gbps = dr_record_rail_gbps(rec, r->rail) };
			dr_fields_init(&dr_matrix_nic_fields, at->nic);
			at->nic->rail = r->rail;
			at->nic->direction = r->direction;
			memcpy(at->nic->nic, r->nic, sizeof(r->nic));
			memcpy(at->nic->peer_nic, r->peer_nic, sizeof(r->peer_nic));
			if (!total_at(rec, at->nic, r->direction == DR_TO_SERVER))
				(void)total_at(rec, at->nic, r->direction != DR_TO_SERVER);
		}
		if (at)
			add_cell(at, r);
	}
	return n;
}

/* ------------------------------- findings ------------------------------- */

/* The rails of the same direction. */
struct peers {
	double median;	/* of the others' best cells; NAN: none */
	double busiest; /* the most that any rail carried in the phase of all GPUs over all rails */
	bool full_speed; /* another one reaches its own speed */
};

static struct peers peers_of(const struct judged *j, size_t n, size_t self)
{
	struct peers p = { .busiest = NAN };
	double v[DR_MATRIX_NICS_MAX];
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		const struct dr_matrix_nic_row *nic = j[i].nic;

		if (nic->direction != j[self].nic->direction)
			continue;
		p.busiest = fmax(p.busiest, nic->total_gbps);
		if (i == self || !isfinite(nic->alone_gbps))
			continue;
		v[k++] = nic->alone_gbps;
		p.full_speed |= nic->alone_gbps >= SLOW_PART * j[i].speed_gbps; /* no with a NAN */
	}
	p.median = k ? (dr_percentile_exact(v, k, 50) + v[k / 2]) / 2 : NAN;
	return p;
}

static void say_counters(const struct judged *j, char *to, size_t size)
{
	size_t at = 0;

	for (int end = 0; end < 2; end++)
		if (j->has_counter[end] && at < size)
			at += (size_t)snprintf(to + at, size - at, "%s%s %s MB", at ? ", " : "",
				dr_end_names[end], sig(j->counted[end] / 1e6).s);
	if (!at)
		snprintf(to, size, "unknown");
}

/* A net device's counters may miss data that bypasses the kernel. Such a connection cannot move to
 * another NIC, so what came without a switch went over its own. */
static bool counters_see_all(const struct dr_record *rec, const struct judged *j)
{
	const struct dr_transport_kind *k = dr_transport_kind(rec->detection.transport);

	return !k || !k->bypass || j->left;
}

static bool idle(const struct dr_record *rec, const struct judged *j, double most)
{
	struct dr_matrix_nic_row *nic = j->nic;
	bool none = j->delivered <= 0, see = counters_see_all(rec, j);
	char counters[80];

	for (int end = 0; end < 2; end++)
		none |= see && j->has_counter[end] &&
			j->counted[end] < IDLE_PART * j->counted_of[end];
	if (none) {
		say_counters(j, counters, sizeof(counters));
		snprintf(nic->cause, sizeof(nic->cause),
			"its own counters show %s, but its cells delivered %s MB; channels left it in %zu of "
			"%zu cells",
			counters, sig(j->delivered / 1e6).s, j->left, j->cells);
		return true;
	}
	if (!see || !(nic->total_gbps < TOTAL_PART * most))
		return false;
	snprintf(nic->cause, sizeof(nic->cause),
		"its own counter shows %s Gb/s when all GPUs use all NICs, the busiest one %s Gb/s",
		sig(nic->total_gbps).s, sig(most).s);
	return true;
}

static bool slow(const struct judged *j, const struct peers *p)
{
	struct dr_matrix_nic_row *nic = j->nic;

	if (nic->alone_gbps < SLOW_PART * p->median)
		snprintf(nic->cause, sizeof(nic->cause),
			"%s Gb/s alone is %.0f %% of %s Gb/s, the median of the others",
			sig(nic->alone_gbps).s, 100 * nic->alone_gbps / p->median,
			sig(p->median).s);
	else if (nic->alone_gbps < SLOW_PART * j->speed_gbps && p->full_speed)
		snprintf(nic->cause, sizeof(nic->cause),
			"%s Gb/s alone is %.0f %% of its own %s Gb/s, and another NIC reaches its own",
			sig(nic->alone_gbps).s, 100 * nic->alone_gbps / j->speed_gbps,
			sig(j->speed_gbps).s);
	else
		return false;
	return true;
}

static int judge(const struct dr_record *rec, const struct judged *j, const struct peers *p)
{
	struct dr_matrix_nic_row *nic = j->nic;

	if (idle(rec, j, p->busiest))
		return DR_MATRIX_IDLE;
	if (j->left) {
		snprintf(nic->cause, sizeof(nic->cause),
			"channels left it in %zu of %zu cells (see failover.switches)", j->left,
			j->cells);
		return DR_MATRIX_LEFT;
	}
	if (slow(j, p))
		return DR_MATRIX_SLOW;
	return isfinite(nic->alone_gbps) ? DR_MATRIX_OK : DR_MATRIX_UNKNOWN;
}

void dr_matrix_judge(struct dr_record *rec)
{
	struct dr_matrix_nic_row row[DR_MATRIX_NICS_MAX];
	struct judged j[DR_MATRIX_NICS_MAX];
	size_t n = figures(rec, row, j, DR_ARRAY_LEN(row));

	rec->matrix.nics.n = 0;
	for (size_t i = 0; i < n; i++) {
		struct peers p = peers_of(j, n, i);

		row[i].finding = judge(rec, &j[i], &p);
		dr_record_add(rec, matrix.nics, &row[i]);
	}
}
