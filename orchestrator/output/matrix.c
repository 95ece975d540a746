/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/figures/shift.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"
#include "transport/kind.h"

/*
 * One finding for each rail and direction of a matrix, derived from its cells and the NICs' own counters. The
 * first rule that applies:
 *
 *   idle  the counter of either end's NIC increased by less than a tenth of what the rail's cells delivered
 *         (the data used another NIC), or they delivered nothing; or in the phase of all GPUs over all rails
 *         the rail carried less than a hundredth of the busiest one
 *   left  channels were not on the rail all the time in some of its cells
 *   slow  the median of its cells is below a part (80 %, --min-nic) of the median of the other rails' medians,
 *         its own cells are all below that median, and those of the rails that are not as low all above its own; or
 *         all its cells are below that part of its own speed (the slower end's, if both are known) while
 *         another rail reaches that part of its own
 *   unknown  its median is as low, but cells vary too much to say so: the cause names the rail whose cells do
 *   ok
 *
 * Cells are those of one GPU. A cell that channels left gives no value for the rail. A single cell that is below the
 * part of the other cells of its rail, which agree among each other, is named by itself and not counted as spread.
 * Speeds in Gb/s.
 */

static const double IDLE_PART = 0.1, TOTAL_PART = 0.01;
/* Other cells of a rail that are needed to call one of them far below. */
enum { AGREE = 3, CELLS_MAX = 64 };

/* A rail and direction, and what its finding is derived from. */
struct judged {
	struct dr_matrix_nic_row *nic;
	size_t cells, left;
	double delivered;
	/* [enum dr_end]: sums over the cells in which that end's counter is known */
	double counted[2], counted_of[2];
	bool has_counter[2];
	double speed_gbps; /* NAN: unknown */
	/* of one GPU, that no channel left; ascending after set_spread */
	double cell[CELLS_MAX];
	size_t n;
	bool has_low; /* cell[0] is far below the others */
};

/* ------------------------------- figures ------------------------------- */

static struct judged *find(struct judged *j, size_t n, const struct dr_matrix_cell_row *r)
{
	for (size_t i = 0; i < n; i++)
		if (j[i].nic->rail == r->rail && j[i].nic->direction == r->direction)
			return &j[i];
	return NULL;
}

/* low_gpu: that of the lowest cell, until set_spread has decided. */
static void keep(struct judged *j, const struct dr_matrix_cell_row *r)
{
	if (!(r->gbps >= j->nic->low_gbps))
		j->nic->low_gpu = r->gpu;
	j->nic->low_gbps = fmin(j->nic->low_gbps, r->gbps);
	j->cell[j->n++] = r->gbps;
}

static void set_spread(struct judged *j, double part)
{
	struct dr_matrix_nic_row *nic = j->nic;
	size_t n = j->n;

	nic->alone_gbps = dr_median(j->cell, n);
	j->has_low = n > AGREE && j->cell[1] >= part * j->cell[n - 1] &&
		     j->cell[0] < part * dr_median(j->cell + 1, n - 1);
	if (n) {
		nic->least_gbps = j->cell[j->has_low];
		nic->most_gbps = j->cell[n - 1];
	}
	if (!j->has_low) {
		nic->low_gbps = NAN;
		nic->low_gpu = DR_UNSET;
	}
}

static void add_cell(struct judged *j, const struct dr_matrix_cell_row *r)
{
	const int64_t counter[2] = { r->client_counter_bytes, r->server_counter_bytes };
	double bytes = (double)DR_MAX(r->bytes, 0);

	j->cells++;
	j->delivered += bytes;
	if (r->switched > 0)
		j->left++;
	else if (r->gpu != DR_UNSET && isfinite(r->gbps) && j->n < CELLS_MAX)
		keep(j, r);
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
	double part;	/* --min-nic */
	double median;	/* of the others' medians; NAN: none */
	double busiest; /* the most that any rail carried in the phase of all GPUs over all rails */
	bool full_speed; /* another one reaches its own speed */
	const struct judged
		*lowest; /* of the others that are not as low, the one with the lowest cell */
};

static bool is_peer(const struct judged *j, const struct judged *self)
{
	return j != self && j->nic->direction == self->nic->direction &&
	       isfinite(j->nic->alone_gbps);
}

static struct peers peers_of(
	const struct judged *j, size_t n, const struct judged *self, double part)
{
	struct peers p = { .part = part, .busiest = NAN };
	double v[DR_MATRIX_NICS_MAX] = { 0 };
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		const struct dr_matrix_nic_row *nic = j[i].nic;

		if (nic->direction == self->nic->direction)
			p.busiest = fmax(p.busiest, nic->total_gbps);
		if (!is_peer(&j[i], self))
			continue;
		v[k++] = nic->alone_gbps;
		p.full_speed |= nic->alone_gbps >= part * j[i].speed_gbps; /* no with a NAN */
	}
	p.median = dr_median(v, k);
	for (size_t i = 0; i < n; i++)
		if (is_peer(&j[i], self) && j[i].nic->alone_gbps >= part * p.median &&
			(!p.lowest || j[i].nic->least_gbps < p.lowest->nic->least_gbps))
			p.lowest = &j[i];
	return p;
}

static void say_counters(const struct judged *j, char *to, size_t size)
{
	*to = '\0';
	for (int end = 0; end < 2; end++)
		if (j->has_counter[end])
			dr_append(to, size, "%s%s %s MB", *to ? ", " : "", dr_end_names[end],
				sig(j->counted[end] / 1e6).s);
	if (!*to)
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

static int too_varied(struct dr_matrix_nic_row *nic, const struct dr_matrix_nic_row *of)
{
	snprintf(nic->cause, sizeof(nic->cause),
		"cells of %.20s vary %s-%s Gb/s: too much to call a NIC slow; use a longer -D",
		of->nic, sig(of->least_gbps).s, sig(of->most_gbps).s);
	return DR_MATRIX_UNKNOWN;
}

static int slow(const struct judged *j, const struct peers *p)
{
	struct dr_matrix_nic_row *nic = j->nic;

	nic->others_percent = 100 * nic->alone_gbps / p->median;
	if (nic->alone_gbps < p->part * p->median) {
		if (nic->most_gbps >= p->median)
			return too_varied(nic, nic);
		if (nic->alone_gbps >= p->lowest->nic->least_gbps)
			return too_varied(nic, p->lowest->nic);
		snprintf(nic->cause, sizeof(nic->cause),
			"%s Gb/s alone is %.0f %% of %s Gb/s, the median of the others",
			sig(nic->alone_gbps).s, nic->others_percent, sig(p->median).s);
		return DR_MATRIX_SLOW;
	}
	if (nic->most_gbps < p->part * j->speed_gbps && p->full_speed) {
		snprintf(nic->cause, sizeof(nic->cause),
			"%s Gb/s alone is %.0f %% of its own %s Gb/s, and another NIC reaches its own",
			sig(nic->alone_gbps).s, 100 * nic->alone_gbps / j->speed_gbps,
			sig(j->speed_gbps).s);
		return DR_MATRIX_SLOW;
	}
	return isfinite(nic->alone_gbps) ? DR_MATRIX_OK : DR_MATRIX_UNKNOWN;
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
	return slow(j, p);
}

double dr_matrix_part(const struct dr_record *rec)
{
	return (rec->min_nic_percent > 0 ? rec->min_nic_percent : DR_MATRIX_SLOW_PERCENT) / 100;
}

void dr_matrix_judge(struct dr_record *rec)
{
	struct dr_matrix_nic_row row[DR_MATRIX_NICS_MAX];
	struct judged j[DR_MATRIX_NICS_MAX];
	size_t n = figures(rec, row, j, DR_ARRAY_LEN(row));
	double part = dr_matrix_part(rec);

	rec->matrix.nics.n = 0;
	for (size_t i = 0; i < n; i++)
		set_spread(&j[i], part);
	for (size_t i = 0; i < n; i++) {
		struct peers p = peers_of(j, n, &j[i], part);

		row[i].finding = judge(rec, &j[i], &p);
		dr_record_add(rec, matrix.nics, &row[i]);
	}
}
