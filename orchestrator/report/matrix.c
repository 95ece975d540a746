/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/report/cell.h"
#include "orchestrator/report/fields.h"
#include "orchestrator/report/matrix.h"

/* Findings about the NICs of a matrix (rules in matrix.h), and the matrix in the document. */

static const double IDLE_PART = 0.1, TOGETHER_PART = 0.01, SLOW_PART = 0.8;

const char *const dr_matrix_verdict_names[] = { "ok", "slow", "left", "idle", "unknown", NULL };

/* A rail and direction on the way to its finding. */
struct judged {
	struct dr_matrix_nic *nic;
	size_t cells, left;
	double delivered;
	/* [enum dr_end]: sums over the cells in which that end's counter is known */
	double counted[2], counted_of[2];
	bool has_counter[2];
	double speed_gbps; /* NAN: unknown */
};

/* ------------------------------- figures ------------------------------- */

static struct judged *find(struct judged *j, size_t n, const struct dr_cell_row *r)
{
	for (size_t i = 0; i < n; i++)
		if (j[i].nic->rail == r->rail && j[i].nic->direction == r->direction)
			return &j[i];
	return NULL;
}

static void add_cell(struct judged *j, const struct dr_cell_row *r)
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

static double speed_of(const struct dr_record *rec, int64_t rail)
{
	for (size_t i = 0; i < rec->rails.n; i++)
		if (rec->rails.v[i].rail == rail)
			return rec->rails.v[i].speed_gbps;
	return NAN;
}

static double together_gbps(const struct dr_together_row *r, bool receiving)
{
	int64_t bytes = receiving ? r->counter_rx_bytes : r->counter_tx_bytes;

	return r->seconds > 0 ? known(bytes) * 8 / r->seconds / 1e9 : NAN;
}

/* Sets the rail's figure of the run of all together, and its share, as one end's NICs counted it. */
static bool together_at(const struct dr_record *rec, struct dr_matrix_nic *nic, int end)
{
	bool receiving = (nic->direction == DR_TO_SERVER) == (end == DR_END_SERVER);
	const char *name = end == DR_END_CLIENT ? nic->nic : nic->peer_nic;
	double sum = 0;

	for (size_t i = 0; i < rec->together.n; i++) {
		const struct dr_together_row *r = &rec->together.v[i];
		double gbps = together_gbps(r, receiving);

		if (r->side != end || !isfinite(gbps))
			continue;
		sum += gbps;
		if (strcmp(r->nic, name) == 0)
			nic->together_gbps = gbps;
	}
	nic->share_percent = sum > 0 ? 100 * nic->together_gbps / sum : NAN;
	return isfinite(nic->together_gbps);
}

static size_t figures(
	const struct dr_record *rec, struct dr_matrix_nic *out, struct judged *j, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < rec->cells.n; i++) {
		const struct dr_cell_row *r = &rec->cells.v[i];
		struct judged *at = find(j, n, r);

		if (!at && n < cap) {
			at = &j[n];
			*at = (struct judged){ .nic = &out[n++],
				.speed_gbps = speed_of(rec, r->rail) };
			*at->nic = (struct dr_matrix_nic){ .rail = r->rail,
				.direction = r->direction,
				.nic = r->nic,
				.peer_nic = r->peer_nic,
				.alone_gbps = NAN,
				.together_gbps = NAN,
				.share_percent = NAN };
			if (!together_at(rec, at->nic, r->direction == DR_TO_SERVER))
				(void)together_at(rec, at->nic, r->direction != DR_TO_SERVER);
		}
		if (at)
			add_cell(at, r);
	}
	return n;
}

/* ------------------------------- findings ------------------------------- */

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median of the other rails' best cells in the same direction; NAN: none. */
static double others(const struct judged *j, size_t n, size_t self)
{
	double v[DR_MATRIX_NICS_MAX];
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (i != self && j[i].nic->direction == j[self].nic->direction &&
			isfinite(j[i].nic->alone_gbps))
			v[k++] = j[i].nic->alone_gbps;
	if (!k)
		return NAN;
	qsort(v, k, sizeof(*v), cmp);
	return k % 2 ? v[k / 2] : (v[k / 2 - 1] + v[k / 2]) / 2;
}

static bool reaches_its_speed(const struct judged *j)
{
	return j->nic->alone_gbps >= SLOW_PART * j->speed_gbps; /* no with a NAN */
}

static bool another_reaches_its_speed(const struct judged *j, size_t n, size_t self)
{
	for (size_t i = 0; i < n; i++)
		if (i != self && j[i].nic->direction == j[self].nic->direction &&
			reaches_its_speed(&j[i]))
			return true;
	return false;
}

/* The most that any rail carried in this direction when all were used together. */
static double busiest(const struct judged *j, size_t n, int direction)
{
	double most = NAN;

	for (size_t i = 0; i < n; i++)
		if (j[i].nic->direction == direction)
			most = fmax(most, j[i].nic->together_gbps);
	return most;
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

/* A device's counters may not see RDMA at all; a queue pair then cannot go another way, so what came
 * without a switch went over its NIC. */
static bool counters_see_all(const struct dr_record *rec, const struct judged *j)
{
	return strcmp(rec->detection.transport, "verbs") != 0 || j->left;
}

static bool idle(const struct dr_record *rec, struct judged *j, double most)
{
	struct dr_matrix_nic *nic = j->nic;
	bool none = j->delivered <= 0, see = counters_see_all(rec, j);
	char counters[80];

	for (int end = 0; end < 2; end++)
		none |= see && j->has_counter[end] &&
			j->counted[end] < IDLE_PART * j->counted_of[end];
	if (none) {
		say_counters(j, counters, sizeof(counters));
		snprintf(nic->text, sizeof(nic->text),
			"its own counters: %s, where its cells delivered %s MB; channels left it in %zu of "
			"%zu cells",
			counters, sig(j->delivered / 1e6).s, j->left, j->cells);
		return true;
	}
	if (!see || !(nic->together_gbps < TOGETHER_PART * most))
		return false;
	snprintf(nic->text, sizeof(nic->text),
		"its own counter: %s Gb/s when all are used together, the busiest %s Gb/s",
		sig(nic->together_gbps).s, sig(most).s);
	return true;
}

static bool slow(const struct judged *j, size_t n, size_t self)
{
	struct dr_matrix_nic *nic = j[self].nic;
	double peers = others(j, n, self), speed = j[self].speed_gbps;

	if (nic->alone_gbps < SLOW_PART * peers)
		snprintf(nic->text, sizeof(nic->text),
			"%s Gb/s alone is %.0f %% of %s Gb/s, the median of the others",
			sig(nic->alone_gbps).s, 100 * nic->alone_gbps / peers, sig(peers).s);
	else if (nic->alone_gbps < SLOW_PART * speed && another_reaches_its_speed(j, n, self))
		snprintf(nic->text, sizeof(nic->text),
			"%s Gb/s alone is %.0f %% of its own %s Gb/s, and another reaches its own",
			sig(nic->alone_gbps).s, 100 * nic->alone_gbps / speed, sig(speed).s);
	else
		return false;
	return true;
}

static int judge(const struct dr_record *rec, struct judged *j, size_t n, size_t self)
{
	struct dr_matrix_nic *nic = j[self].nic;

	if (idle(rec, &j[self], busiest(j, n, nic->direction)))
		return DR_MATRIX_IDLE;
	if (j[self].left) {
		snprintf(nic->text, sizeof(nic->text),
			"channels left it in %zu of %zu cells (see failover.switches)",
			j[self].left, j[self].cells);
		return DR_MATRIX_LEFT;
	}
	if (slow(j, n, self))
		return DR_MATRIX_SLOW;
	return isfinite(nic->alone_gbps) ? DR_MATRIX_OK : DR_MATRIX_UNKNOWN;
}

size_t dr_matrix_nics(const struct dr_record *rec, struct dr_matrix_nic *out, size_t cap)
{
	struct judged j[DR_MATRIX_NICS_MAX];
	size_t n = figures(rec, out, j, DR_MIN(cap, (size_t)DR_MATRIX_NICS_MAX));

	for (size_t i = 0; i < n; i++)
		out[i].verdict = judge(rec, j, n, i);
	return n;
}

/* ------------------------------- document ------------------------------- */

static json_t *nic_json(const struct dr_matrix_nic *n)
{
	json_t *o = json_object();
	int bad = !o;

	dr_json_put(o, "rail", dr_json_int(n->rail), &bad);
	dr_json_put(o, "nic", dr_json_str(n->nic), &bad);
	dr_json_put(o, "peer_nic", dr_json_str(n->peer_nic), &bad);
	dr_json_put(
		o, "direction", dr_json_str(dr_enum_name(dr_direction_names, n->direction)), &bad);
	dr_json_put(o, "alone_gbps", dr_json_num(n->alone_gbps), &bad);
	dr_json_put(o, "together_gbps", dr_json_num(n->together_gbps), &bad);
	dr_json_put(o, "share_percent", dr_json_num(n->share_percent), &bad);
	dr_json_put(o, "finding", json_string(dr_matrix_verdict_names[n->verdict]), &bad);
	dr_json_put(o, "cause", dr_json_str(n->text), &bad);
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static json_t *rows(const struct dr_fields *t, const void *v, size_t n, int *bad)
{
	json_t *a = json_array();

	for (size_t i = 0; a && i < n; i++)
		*bad += !!json_array_append_new(
			a, dr_fields_to_json(t, (const char *)v + i * t->size));
	return a;
}

static json_t *together_json(const struct dr_record *rec, int *bad)
{
	json_t *o = json_object();
	struct dr_total t;

	dr_record_total(rec, &t);
	dr_json_put(o, "gbps", dr_json_num(t.gbps), bad);
	dr_json_put(o, "to_server_gbps", dr_json_num(t.to_server_gbps), bad);
	dr_json_put(o, "to_client_gbps", dr_json_num(t.to_client_gbps), bad);
	dr_json_put(o, "counters", rows(&dr_together_fields, rec->together.v, rec->together.n, bad),
		bad);
	return o;
}

json_t *dr_matrix_to_json(const struct dr_record *rec)
{
	struct dr_matrix_nic nic[DR_MATRIX_NICS_MAX];
	size_t n = dr_matrix_nics(rec, nic, DR_ARRAY_LEN(nic));
	json_t *o, *list;
	int bad = 0;

	if (!n)
		return json_null();
	o = json_object();
	list = json_array();
	for (size_t i = 0; i < n; i++)
		bad += !!json_array_append_new(list, nic_json(&nic[i]));
	dr_json_put(o, "cells", rows(&dr_cell_fields, rec->cells.v, rec->cells.n, &bad), &bad);
	dr_json_put(o, "together", together_json(rec, &bad), &bad);
	dr_json_put(o, "nics", list, &bad);
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}
