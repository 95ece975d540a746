/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/*
 * The heat table: a row for each GPU, a column for each NIC, one table for each direction, blocks of
 * NICS_WIDE columns so that a line stays within 110. Heat is told in marks, and in colours on top of
 * them where the reader's terminal has some and NO_COLOR (no-color.org) is not set.
 */
enum { NICS_WIDE = 8, NAME_WIDE = 10, GPUS_MAX = 64 };

struct table {
	const struct dr_record *rec;
	FILE *f;
	bool colour;
	const struct dr_matrix_nic_row *nic[DR_MATRIX_NICS_MAX]; /* of one direction */
	size_t n;
	int64_t gpu[GPUS_MAX]; /* with a cell in this direction */
	size_t n_gpus;
	bool has_all;	  /* cells of all GPUs */
	bool has_counter; /* in either direction */
	double best;	  /* of the cells that are compared */
};

/* ------------------------------- gathering ------------------------------- */

static const struct dr_matrix_cell_row *find(
	const struct table *t, int64_t gpu, const struct dr_matrix_nic_row *n)
{
	for (size_t i = 0; i < t->rec->matrix.cells.n; i++) {
		const struct dr_matrix_cell_row *r = &t->rec->matrix.cells.v[i];

		if (r->gpu == gpu && r->rail == n->rail && r->direction == n->direction)
			return r;
	}
	return NULL;
}

static void add_cell(struct table *t, const struct dr_matrix_cell_row *r)
{
	size_t i = 0;

	if (r->gpu == DR_UNSET) {
		t->has_all = true;
		return;
	}
	if (!(r->switched > 0))
		t->best = fmax(t->best, r->gbps);
	while (i < t->n_gpus && t->gpu[i] != r->gpu)
		i++;
	if (i == t->n_gpus && i < GPUS_MAX)
		t->gpu[t->n_gpus++] = r->gpu;
}

static void gather(struct table *t, int direction)
{
	const struct dr_matrix *m = &t->rec->matrix;

	t->n = t->n_gpus = 0;
	t->has_all = false;
	t->best = NAN;
	for (size_t i = 0; i < m->nics.n; i++)
		if (m->nics.v[i].direction == direction)
			t->nic[t->n++] = &m->nics.v[i];
	for (size_t i = 0; i < m->cells.n; i++) {
		const struct dr_matrix_cell_row *r = &m->cells.v[i];

		t->has_counter |=
			r->client_counter_bytes != DR_UNSET || r->server_counter_bytes != DR_UNSET;
		if (r->direction == direction)
			add_cell(t, r);
	}
}

/* ------------------------------- printing ------------------------------- */

/* The NIC's name, the end of a long one; with its rail where rails share a NIC. */
static struct cell label(const struct table *t, size_t self)
{
	const char *name = t->nic[self]->nic;
	struct cell c = { "" };
	bool shared = false;

	for (size_t i = 0; i < t->n; i++)
		shared |= i != self && strcmp(t->nic[i]->nic, name) == 0;
	if (shared)
		snprintf(c.s, sizeof(c.s), "%.15s:%.4s", name, count(t->nic[self]->rail).s);
	else
		snprintf(c.s, sizeof(c.s), "%.70s", name);
	size_t len = strlen(c.s);
	if (len > NAME_WIDE)
		memmove(c.s, c.s + len - NAME_WIDE, NAME_WIDE + 1);
	return c;
}

/* By the part of the best cell's bandwidth. */
static const struct heat {
	double from;
	const char *marks, *colour;
} heats[] = { { 0.9, "###", "\033[32m" }, { 0.5, "##", "\033[33m" }, { 0.1, "#", "\033[31m" },
	{ 0, ".", "\033[31m" }, { -INFINITY, "", "" } };

static void print_cell(const struct table *t, const struct dr_matrix_cell_row *r, bool compared)
{
	bool left = r && r->switched > 0;
	double part = r && compared && !left ? r->gbps / t->best : NAN;
	const struct heat *h = heats;
	bool paint = t->colour && isfinite(part);

	while (!(part >= h->from) && h->from >= 0)
		h++;
	fprintf(t->f, " %s%6s %-3s%s", paint ? h->colour : "",
		left ? "left" : sig(r ? r->gbps : NAN).s, h->marks, paint ? "\033[0m" : "");
}

/* The GPU's bandwidth in the phase of all GPUs over all NICs. */
static double total_of(const struct table *t, int64_t gpu)
{
	double gbps = NAN;

	for (size_t i = 0; i < t->rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *r = &t->rec->bandwidth.v[i];

		if (r->phase == t->rec->total.phase && r->gpu == gpu &&
			r->direction == t->nic[0]->direction)
			gbps = r->gbps;
	}
	return gbps;
}

static void print_rows(const struct table *t, size_t from, size_t to)
{
	for (size_t k = 0; k < t->n_gpus; k++) {
		fprintf(t->f, "%9s", count(t->gpu[k]).s);
		for (size_t i = from; i < to; i++)
			print_cell(t, find(t, t->gpu[k], t->nic[i]), true);
		fprintf(t->f, " | %8s\n", sig(total_of(t, t->gpu[k])).s);
	}
	if (!t->has_all)
		return;
	fprintf(t->f, "%9s", "all GPUs");
	for (size_t i = from; i < to; i++)
		print_cell(t, find(t, DR_UNSET, t->nic[i]), false);
	fputs(" |\n", t->f);
}

static void print_counters(const struct table *t, size_t from, size_t to)
{
	fprintf(t->f, "%9s", "total");
	for (size_t i = from; i < to; i++)
		fprintf(t->f, " %6s    ", sig(t->nic[i]->total_gbps).s);
	fprintf(t->f, " | %8s\n%9s",
		sig(t->nic[0]->direction == DR_TO_SERVER ? t->rec->matrix.to_server_gbps
							 : t->rec->matrix.to_client_gbps)
			.s,
		"share %");
	for (size_t i = from; i < to; i++)
		fprintf(t->f, " %6s    ", num(t->nic[i]->share_percent, 1).s);
	fputs(" |\n", t->f);
}

static bool has_direction(const struct dr_record *rec, int direction)
{
	for (size_t i = 0; i < rec->matrix.nics.n; i++)
		if (rec->matrix.nics.v[i].direction == direction)
			return true;
	return false;
}

static void print_notes(const struct table *t)
{
	int64_t moved = 0;

	if (!t->has_counter)
		fputs("  these NICs have no counters (loopback): a NIC counts as idle only if it delivered nothing\n",
			t->f);
	for (size_t i = 0; i < t->rec->matrix.totals.n; i++)
		moved = DR_MAX(moved, t->rec->matrix.totals.v[i].switched);
	if (moved)
		fprintf(t->f, "  total: up to %s channels of a NIC were on another one\n",
			count(moved).s);
}

static void print_direction(struct table *t, int direction)
{
	gather(t, direction);
	if (!t->n)
		return;
	fprintf(t->f,
		"\nMatrix: Gb/s of each GPU over each NIC alone, %s, messages of %s, on the receiver's "
		"clock\n",
		dr_direction_names[direction], size(t->rec->matrix.cells.v[0].message_bytes).s);
	for (size_t from = 0; from < t->n; from += NICS_WIDE) {
		size_t to = DR_MIN(from + NICS_WIDE, t->n);

		fprintf(t->f, "%9s", "GPU");
		for (size_t i = from; i < to; i++)
			fprintf(t->f, " %*s", NAME_WIDE, label(t, i).s);
		fprintf(t->f, " | %8s\n", "total");
		print_rows(t, from, to);
		print_counters(t, from, to);
	}
	fputs("  ###: at least 90 % of the best cell, ##: 50 %, #: 10 %; left: channels left that NIC, so the cell "
	      "has no figure. total: all GPUs over all NICs; below the NICs: their own counters, with headers\n",
		t->f);
	print_notes(t);
	dr_result_matrix(t->rec, direction, t->f);
}

void dr_matrix_print(const struct dr_record *rec, bool colour, FILE *f)
{
	struct table t = { .rec = rec, .f = f, .colour = colour };

	if (!rec->matrix.cells.n)
		return;
	print_direction(&t, DR_TO_SERVER);
	print_direction(&t, DR_TO_CLIENT);
}

/* ------------------------------- sentences ------------------------------- */

/* "eth2 <-> eth2 (rail 1, 10.50.2.2 -> 10.50.2.1)" */
static void print_rail(const struct dr_record *rec, const struct dr_matrix_nic_row *n, FILE *f)
{
	const struct dr_rail_row *r = dr_record_rail(rec, n->rail);
	bool from_here = (n->direction == DR_TO_SERVER) == (rec->side != DR_END_SERVER);

	fprintf(f, "%s <-> %s (rail %s", n->nic, n->peer_nic, count(n->rail).s);
	if (r && r->address[0])
		fprintf(f, ", %s -> %s", from_here ? r->address : r->peer_address,
			from_here ? r->peer_address : r->address);
	fputc(')', f);
}

/* "all 4 GPUs", "both GPUs", "3 of 4 GPUs": those whose cell is slow, too. */
static void print_slow_gpus(
	const struct dr_record *rec, const struct dr_matrix_nic_row *n, double limit, FILE *f)
{
	size_t gpus = 0, slow = 0;

	for (size_t i = 0; i < rec->matrix.cells.n; i++) {
		const struct dr_matrix_cell_row *c = &rec->matrix.cells.v[i];

		if (c->rail != n->rail || c->direction != n->direction || c->gpu == DR_UNSET ||
			!isfinite(c->gbps))
			continue;
		gpus++;
		slow += c->gbps < limit;
	}
	if (slow < gpus)
		fprintf(f, ", %zu of %zu GPUs", slow, gpus);
	else if (gpus > 2)
		fprintf(f, ", all %zu GPUs", gpus);
	else if (gpus == 2)
		fputs(", both GPUs", f);
}

static void print_other_way(const struct dr_record *rec, int direction, FILE *f)
{
	if (!has_direction(rec, !direction))
		fprintf(f, "; %s not measured (--bidir)", way(!direction));
	fputc('\n', f);
}

static void print_bad_nic(const struct dr_record *rec, const struct dr_matrix_nic_row *n, FILE *f)
{
	double others = 100 * n->alone_gbps / n->others_percent;

	print_rail(rec, n, f);
	fprintf(f, " is %s, %s:\n  ",
		n->finding == DR_MATRIX_LEFT ? "not measured" : dr_matrix_finding_names[n->finding],
		way(n->direction));
	if (n->finding == DR_MATRIX_SLOW && n->alone_gbps < dr_matrix_part(rec) * others) {
		fprintf(f, "%s Gb/s, others %s (%.0f %%)", sig(n->alone_gbps).s, sig(others).s,
			floor(n->others_percent));
		print_slow_gpus(rec, n, dr_matrix_part(rec) * others, f);
	} else {
		fputs(n->cause, f);
	}
	print_other_way(rec, n->direction, f);
}

static void print_good_nics(const struct dr_record *rec, int direction, FILE *f)
{
	double least = NAN, most = NAN;
	size_t n = 0;

	for (size_t i = 0; i < rec->matrix.nics.n; i++) {
		const struct dr_matrix_nic_row *r = &rec->matrix.nics.v[i];

		if (r->direction != direction)
			continue;
		if (r->finding != DR_MATRIX_OK)
			return;
		n++;
		least = fmin(least, r->alone_gbps);
		most = fmax(most, r->alone_gbps);
	}
	if (n < 2)
		return;
	fprintf(f, "None of %zu NICs is slow or idle, %s: medians %s-%s Gb/s", n, way(direction),
		sig(least).s, sig(most).s);
	print_other_way(rec, direction, f);
}

void dr_matrix_print_summary(const struct dr_record *rec, FILE *f)
{
	for (size_t i = 0; i < rec->matrix.nics.n; i++) {
		const struct dr_matrix_nic_row *n = &rec->matrix.nics.v[i];

		if (n->finding == DR_MATRIX_UNKNOWN && n->cause[0])
			fprintf(f, "%s: %s\n", way(n->direction), n->cause);
		else if (n->finding != DR_MATRIX_OK && n->finding != DR_MATRIX_UNKNOWN)
			print_bad_nic(rec, n, f);
		if (n->low_gpu != DR_UNSET)
			fprintf(f,
				"one cell is far below its column: GPU %s over %s %s (others %s-%s); repeat to "
				"confirm\n",
				count(n->low_gpu).s, n->nic, sig(n->low_gbps).s,
				sig(n->least_gbps).s, sig(n->most_gbps).s);
	}
	print_good_nics(rec, DR_TO_SERVER, f);
	print_good_nics(rec, DR_TO_CLIENT, f);
}

void dr_matrix_print_cell(const void *row, bool all, FILE *f)
{
	const struct dr_matrix_cell_row *r = row;

	(void)all;
	fprintf(f, "cell: %s%s over rail %s (%s), %s: %s Gb/s", r->gpu == DR_UNSET ? "" : "GPU ",
		r->gpu == DR_UNSET ? "all GPUs" : count(r->gpu).s, count(r->rail).s, r->nic,
		dr_enum_name(dr_direction_names, r->direction), sig(r->gbps).s);
	if (r->switched > 0)
		fprintf(f, ", but %s of %s channels left that NIC", count(r->switched).s,
			count(r->channels).s);
	if (r->wrong_chunks > 0)
		fprintf(f, ", WRONG DATA: %s chunks, %s bytes", count(r->wrong_chunks).s,
			count(r->wrong_bytes).s);
	fputc('\n', f);
}
