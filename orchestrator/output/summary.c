/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "base/mem.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"
#include "topology/netdev.h"

static int64_t percentile(double *v, size_t n, double p)
{
	return n ? (int64_t)dr_percentile_exact(v, n, p) : DR_UNSET;
}

/* --------------------------- one fault from its switches or gaps --------------------------- */

/*
 * The receiver's six times, made monotonic: a time that was not reached (0) or lies before its
 * predecessor counts as its predecessor, and none is later than the first delivery. So the five
 * differences are never negative and always add up to the gap.
 */
static int receiver_parts(const struct dr_switch_record *r, int64_t part[5], int64_t *gap)
{
	int64_t t[6] = { r->last_delivery_ns, r->detect_ns, r->fenced_ns, r->answer_ns,
		r->first_frame_ns, r->first_delivery_ns };

	*gap = dr_switch_gap(r);
	if (*gap < 0)
		return 0;
	for (int i = 1; i < 5; i++)
		t[i] = DR_MIN(DR_MAX(t[i], t[i - 1]), t[5]);
	for (int i = 0; i < 5; i++)
		part[i] = t[i + 1] - t[i];
	return 1;
}

static const struct dr_switch_row *sender_of(
	const struct dr_switch_row *sw, size_t n, const struct dr_switch_row *receiver)
{
	for (size_t i = 0; i < n; i++)
		if (sw[i].receiver == 0 && sw[i].gpu == receiver->gpu &&
			sw[i].channel == receiver->channel &&
			sw[i].rec.epoch == receiver->rec.epoch)
			return &sw[i];
	return NULL;
}

static int64_t shifted(int64_t sender_ns, int64_t offset_ns, int64_t origin_ns)
{
	return sender_ns ? sender_ns + offset_ns - origin_ns : DR_UNSET;
}

/* Did the sender detect the failure, and before the receiver? The other end may see a consequence only, such as
 * a connection that the first one closed. */
static bool sender_first(const struct dr_switch_record *receiver,
	const struct dr_switch_record *sender, int64_t offset_ns)
{
	if (!sender->self_detected || !sender->cause[0])
		return !receiver->self_detected;
	return !receiver->self_detected ||
	       (offset_ns != DR_UNSET && sender->detect_ns + offset_ns < receiver->detect_ns);
}

static void take_worst(struct dr_fault_row *row, const struct dr_switch_row *worst,
	const struct dr_switch_row *sender)
{
	int64_t part[5] = { 0 }, origin = worst->rec.last_delivery_ns, off = row->clock_offset_ns;

	receiver_parts(&worst->rec, part, &row->gap_ns);
	row->gpu = worst->gpu;
	row->channel = worst->channel;
	row->detect_ns = part[0];
	row->fence_ns = part[1];
	row->handshake_ns = part[2];
	row->replay_ns = part[3];
	row->first_delivery_ns = part[4];
	snprintf(row->cause, sizeof(row->cause), "%s", worst->rec.cause);
	if (!sender)
		return;
	if (sender_first(&worst->rec, &sender->rec, off))
		snprintf(row->cause, sizeof(row->cause), "%s", sender->rec.cause);
	if (off == DR_UNSET)
		return;
	row->sender_detect_ns = shifted(sender->rec.detect_ns, off, origin);
	row->sender_fenced_ns = shifted(sender->rec.fenced_ns, off, origin);
	row->sender_answer_ns = shifted(sender->rec.answer_ns, off, origin);
	row->sender_first_frame_ns = shifted(sender->rec.first_frame_ns, off, origin);
	row->sender_first_ack_ns = shifted(sender->rec.first_delivery_ns, off, origin);
}

static void add_sender(struct dr_fault_row *row, const struct dr_switch_record *r)
{
	row->in_flight_chunks = DR_MAX(row->in_flight_chunks, 0) + r->in_flight_messages;
	row->replayed_chunks = DR_MAX(row->replayed_chunks, 0) + r->replayed_messages;
	row->replayed_bytes = (int64_t)DR_MIN(
		(uint64_t)DR_MAX(row->replayed_bytes, 0) + r->replayed_bytes, (uint64_t)1 << 53);
}

size_t dr_fault_row_from_switches(struct dr_fault_row *row, const struct dr_switch_row *sw,
	size_t n, int64_t clock_offset_ns, int64_t clock_error_ns, int64_t fault_ns)
{
	double *gaps = dr_calloc(n, sizeof(*gaps));
	int64_t gap, worst_gap = -1, part[5];
	const struct dr_switch_row *worst = NULL;
	size_t n_gaps = 0;

	row->clock_offset_ns = clock_offset_ns;
	row->clock_error_ns = clock_error_ns;
	for (size_t i = 0; i < n; i++) {
		const struct dr_switch_record *r = &sw[i].rec;

		if (sw[i].receiver == 0 && !r->planned)
			add_sender(row, r);
		if (sw[i].receiver != 1 || !receiver_parts(r, part, &gap))
			continue;
		if (r->planned) {
			if (r->to == 0)
				row->failback_gap_ns = DR_MAX(row->failback_gap_ns, gap);
			continue;
		}
		row->rounds = DR_MAX(row->rounds, (int64_t)r->rounds);
		if (gap > worst_gap) {
			worst_gap = gap;
			worst = &sw[i];
		}
		if (gaps)
			gaps[n_gaps] = (double)gap;
		n_gaps++;
	}
	if (worst) {
		take_worst(row, worst, sender_of(sw, n, worst));
		if (gaps)
			row->gap_median_channel_ns = percentile(gaps, n_gaps, 50);
		if (fault_ns != DR_UNSET)
			row->fault_after_ns = fault_ns - worst->rec.last_delivery_ns;
		if (fault_ns != DR_UNSET)
			row->fault_to_detect_ns = row->detect_ns - row->fault_after_ns;
	}
	dr_free(gaps);
	row->channels_affected = (int64_t)n_gaps;
	return n_gaps;
}

const struct dr_delivery_gap_row *dr_fault_row_from_gaps(
	struct dr_fault_row *row, const struct dr_delivery_gap_row *gaps, size_t n)
{
	int64_t *const parts[] = { &row->detect_ns, &row->fence_ns, &row->handshake_ns,
		&row->replay_ns, &row->first_delivery_ns, &row->fault_to_detect_ns,
		&row->sender_detect_ns, &row->sender_fenced_ns, &row->sender_answer_ns,
		&row->sender_first_frame_ns, &row->sender_first_ack_ns };
	double *each = dr_calloc(n, sizeof(*each));
	const struct dr_delivery_gap_row *worst = NULL;

	for (size_t i = 0; i < n; i++) {
		if (each)
			each[i] = (double)gaps[i].gap_ns;
		if (!worst || gaps[i].gap_ns > worst->gap_ns)
			worst = &gaps[i];
	}
	if (worst) {
		row->gpu = worst->gpu;
		row->channel = worst->channel;
		row->gap_ns = worst->gap_ns;
		row->gap_median_channel_ns = each ? percentile(each, n, 50) : DR_UNSET;
		for (size_t i = 0; i < DR_ARRAY_LEN(parts); i++)
			*parts[i] = DR_UNSET;
	}
	dr_free(each);
	return worst;
}

/* ------------------------------- the gap table ------------------------------- */

static bool is_of(const struct dr_gap_summary *a, const struct dr_fault_row *b)
{
	return a->side == b->side && a->dir == b->dir && !strcmp(a->kind, b->kind);
}

static bool finished_hit(const struct dr_fault_row *f)
{
	return f->verdict != DR_VERDICT_MISSED_FAULT && f->verdict != DR_VERDICT_INCOMPLETE &&
	       f->in_flight_chunks != 0; /* 0: it hit idle paths */
}

/* Faults of a group, or all; room for one number of each. */
struct group {
	const struct dr_fault_row **fault;
	size_t n;
	double *v;
};

/* The known values of one member of these faults: of int64_t, if `hit` of trials that hit data alone; or of double. */
static size_t collect(const struct group *g, size_t off, bool hit)
{
	size_t k = 0;

	for (size_t i = 0; i < g->n; i++) {
		const char *p = (const char *)g->fault[i] + off;
		double v = hit ? known(*(const int64_t *)(const void *)p)
			       : *(const double *)(const void *)p;

		if (isfinite(v) && (!hit || finished_hit(g->fault[i])))
			g->v[k++] = v;
	}
	return k;
}

static void count_fault(struct dr_gap_summary *s, const struct dr_fault_row *f)
{
	s->n++;
	s->hit += finished_hit(f);
	s->failbacks += f->failback_ns != DR_UNSET || f->failback_gap_ns != DR_UNSET;
	if (f->verdict >= 0 && f->verdict < DR_VERDICTS)
		s->verdicts[f->verdict]++;
}

#define OFF(member) offsetof(struct dr_fault_row, member)
static void summarize(struct dr_gap_summary *s, const struct group *g)
{
	const struct {
		size_t from;
		int64_t *to;
	} times[] = { { OFF(detect_ns), &s->detect_ns }, { OFF(fence_ns), &s->fence_ns },
		{ OFF(handshake_ns), &s->handshake_ns }, { OFF(replay_ns), &s->replay_ns },
		{ OFF(first_delivery_ns), &s->first_delivery_ns },
		{ OFF(failback_gap_ns), &s->failback_gap_ns } };
	const struct {
		size_t from;
		double *to;
	} rates[] = { { OFF(bandwidth_before_gbps), &s->before_gbps },
		{ OFF(bandwidth_during_gbps), &s->during_gbps },
		{ OFF(bandwidth_after_gbps), &s->after_gbps } };
	double sum = 0;

	for (size_t i = 0; i < g->n; i++)
		count_fault(s, g->fault[i]);
	size_t k = collect(g, OFF(gap_ns), true);
	s->gaps = (int64_t)k;
	for (size_t i = 0; i < k; i++)
		sum += g->v[i];
	s->sum_ns = (int64_t)fmin(sum, 9e18);
	s->p50_ns = percentile(g->v, k, 50);
	s->p90_ns = percentile(g->v, k, 90);
	s->p99_ns = percentile(g->v, k, 99);
	s->max_ns = percentile(g->v, k, 100);
	for (size_t i = 0; i < DR_ARRAY_LEN(times); i++)
		*times[i].to = percentile(g->v, collect(g, times[i].from, true), 50);
	for (size_t i = 0; i < DR_ARRAY_LEN(rates); i++)
		*rates[i].to = dr_percentile_exact(g->v, collect(g, rates[i].from, false), 50);
}

/* Fills s from the faults of first's group; of all faults when first is NULL. Without memory the
 * figures stay unknown. */
static void summarize_group(
	const struct dr_record *rec, const struct dr_fault_row *first, struct dr_gap_summary *s)
{
	size_t n = rec->faults.n;
	struct group g = { dr_calloc(n, sizeof(*g.fault)), 0, dr_calloc(n, sizeof(*g.v)) };

	dr_fields_init(&dr_gap_summary_fields, s);
	s->n = s->hit = s->gaps = s->failbacks = s->sum_ns = 0;
	memset(s->verdicts, 0, sizeof(s->verdicts));
	snprintf(s->kind, sizeof(s->kind), "%s", first ? first->kind : "all");
	s->side = first ? first->side : -1;
	s->dir = first ? first->dir : -1;
	for (size_t i = 0; g.fault && i < n; i++)
		if (!first || is_of(s, &rec->faults.v[i]))
			g.fault[g.n++] = &rec->faults.v[i];
	if (g.fault && g.v)
		summarize(s, &g);
	dr_free(g.fault);
	dr_free(g.v);
}

static void summarize_faults(struct dr_record *rec)
{
	struct dr_gap_summary s;

	summarize_group(rec, NULL, &rec->gap_all);
	rec->gap_groups.n = 0;
	for (size_t i = 0; i < rec->faults.n; i++) {
		size_t k = 0;

		while (k < rec->gap_groups.n && !is_of(&rec->gap_groups.v[k], &rec->faults.v[i]))
			k++;
		if (k < rec->gap_groups.n)
			continue;
		summarize_group(rec, &rec->faults.v[i], &s);
		if (!dr_record_add(rec, gap_groups, &s))
			return;
	}
}

/* ------------------------------ line rate, totals ------------------------------ */

const struct dr_rail_row *dr_record_rail(const struct dr_record *rec, int64_t rail)
{
	for (size_t i = 0; i < rec->rails.n; i++)
		if (rec->rails.v[i].rail == rail)
			return &rec->rails.v[i];
	return NULL;
}

const struct dr_rail_row *dr_record_rail_on(const struct dr_record *rec, const char *nic)
{
	for (size_t i = 0; i < rec->rails.n; i++)
		if (strcmp(rec->rails.v[i].ifname, nic) == 0)
			return &rec->rails.v[i];
	return NULL;
}

void dr_record_silent_nics(const struct dr_record *rec, char *buf, size_t len)
{
	for (size_t i = 0; i < rec->unused_nics.n; i++) {
		const struct dr_unused_nic_row *r = &rec->unused_nics.v[i];

		if (r->side == DR_END_CLIENT && dr_reason_unproven(r->reason))
			dr_append(buf, len, "; %s is missing: %s", r->nic, r->reason);
	}
}

void dr_record_control_nic(const struct dr_record *rec, char *buf, size_t len)
{
	for (size_t i = 0; i < rec->unused_nics.n && strcmp(rec->command, "demo") != 0; i++) {
		const struct dr_unused_nic_row *r = &rec->unused_nics.v[i];

		if (r->side == DR_END_CLIENT && strcmp(r->reason, DR_CONTROL_CONNECTION) == 0)
			dr_append(
				buf, len, "; %s was not measured: HOST is reached over it", r->nic);
	}
}

double dr_record_rail_gbps(const struct dr_record *rec, int64_t rail)
{
	const struct dr_rail_row *r = dr_record_rail(rec, rail);

	return r ? r->speed_gbps : NAN;
}

double dr_record_gpu_line_gbps(const struct dr_record *rec, int64_t gpu)
{
	double sum = 0;

	for (size_t k = 0; k < rec->rails.n; k++) {
		double own = 0, all = 0; /* channels whose primary path is on this rail */

		for (size_t i = 0; i < rec->gpus.n; i++) {
			const struct dr_gpu_row *g = &rec->gpus.v[i];
			double n = (double)DR_MAX(g->channels, 1);

			if (g->primary != rec->rails.v[k].rail)
				continue;
			all += n;
			own += g->gpu == gpu ? n : 0;
		}
		sum += own > 0 ? rec->rails.v[k].speed_gbps * own / all : 0;
	}
	return sum > 0 ? sum : NAN;
}

bool dr_bandwidth_first(const struct dr_record *rec, size_t i)
{
	const struct dr_bandwidth_row *v = rec->bandwidth.v;
	size_t k = 0;

	while (v[k].phase != v[i].phase)
		k++;
	return k == i;
}

void dr_total_of_phase(const struct dr_record *rec, int64_t phase, struct dr_total *t)
{
	double dir[2] = { 0, 0 }, line[2] = { 0, 0 };
	bool there[2] = { false, false };

	t->phase = phase;
	t->message_bytes = DR_UNSET;
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *r = &rec->bandwidth.v[i];
		int d = r->direction == DR_TO_CLIENT;

		if (r->phase != phase || !isfinite(r->gbps))
			continue;
		there[d] = true;
		dir[d] += r->gbps;
		line[d] += dr_record_gpu_line_gbps(rec, r->gpu);
		t->message_bytes = r->message_bytes;
	}
	t->gbps = there[0] || there[1] ? dir[0] + dir[1] : NAN;
	t->to_server_gbps = there[0] ? dir[0] : NAN;
	t->to_client_gbps = there[1] ? dir[1] : NAN;
	/* fmax and fmin leave a NAN out, so an absent direction does not count; an unknown speed does. */
	t->line_gbps = there[0] && there[1] ? (line[0] + line[1]) / 2 : line[0] + line[1];
	if (!(t->line_gbps > 0))
		t->line_gbps = NAN;
	t->line_rate_percent = 100 * fmin(t->to_server_gbps, t->to_client_gbps) / t->line_gbps;
}

const char *dr_total_slower(const struct dr_total *t)
{
	return isfinite(t->to_server_gbps) && isfinite(t->to_client_gbps)
		       ? " in the slower direction"
		       : "";
}

static void set_total(const struct dr_record *rec, struct dr_total *out)
{
	struct dr_total t;

	dr_fields_init(&dr_total_fields, out);
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		if (!dr_bandwidth_first(rec, i))
			continue;
		dr_total_of_phase(rec, rec->bandwidth.v[i].phase, &t);
		if (isfinite(t.gbps) && !(t.gbps <= out->gbps))
			*out = t;
	}
	out->cpu_percent_local = rec->cpu_percent_local;
	out->cpu_percent_peer = rec->cpu_percent_peer;
}

bool dr_switch_unexpected(const struct dr_record *rec, const struct dr_switch_row *r)
{
	return r->side == rec->side && r->unexpected == 1 && r->trial == DR_UNSET;
}

const struct dr_switch_row *dr_switch_at(
	const struct dr_record *rec, int side, const struct dr_switch_row *r)
{
	for (size_t i = rec->switches.n; i-- > 0;) {
		const struct dr_switch_row *o = &rec->switches.v[i];

		if (o->side == side && o->gpu == r->gpu && o->channel == r->channel &&
			o->rec.epoch == r->rec.epoch)
			return o;
	}
	return NULL;
}

/* ------------------------------ everything computed ------------------------------ */

void dr_record_settle(struct dr_record *rec)
{
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		struct dr_bandwidth_row *r = &rec->bandwidth.v[i];

		r->line_rate_percent = 100 * r->gbps / dr_record_gpu_line_gbps(rec, r->gpu);
	}
	set_total(rec, &rec->total);
	rec->integrity_total = rec->integrity;
	dr_integrity_add(&rec->integrity_total, &rec->peer_integrity);
	rec->matrix.gbps = rec->total.gbps;
	rec->matrix.to_server_gbps = rec->total.to_server_gbps;
	rec->matrix.to_client_gbps = rec->total.to_client_gbps;
	dr_matrix_judge(rec);
	summarize_faults(rec);
	rec->unexpected_switches = 0;
	for (size_t i = 0; i < rec->switches.n; i++)
		rec->unexpected_switches += dr_switch_unexpected(rec, &rec->switches.v[i]);
}

json_t *dr_record_to_json(struct dr_record *rec)
{
	dr_record_settle(rec);
	return dr_fields_to_json(&dr_record_fields, rec);
}

int dr_record_write(struct dr_record *rec, FILE *f)
{
	json_t *doc = dr_record_to_json(rec);
	int rc = doc ? dr_json_write(doc, f, 2) : -ENOMEM;

	json_decref(doc);
	return rc;
}
