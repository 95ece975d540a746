/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "orchestrator/record.h"
#include "orchestrator/report/fields.h"

/* --------------------------- one fault from its switches --------------------------- */

/*
 * The receiver's six times, made monotonic: a time that was not reached (0) or lies before its
 * predecessor counts as its predecessor, and none is later than the first delivery. So the five
 * differences are never negative and always add up to the gap.
 */
static int receiver_parts(const struct dr_switch_record *r, int64_t part[5], int64_t *gap)
{
	int64_t t[6] = { r->last_delivery_ns, r->detect_ns, r->fenced_ns, r->answer_ns,
		r->first_frame_ns, r->first_delivery_ns };
	int i;

	if (!t[0] || !t[5] || t[5] < t[0])
		return 0;
	for (i = 1; i < 5; i++)
		t[i] = DR_MIN(DR_MAX(t[i], t[i - 1]), t[5]);
	for (i = 0; i < 5; i++)
		part[i] = t[i + 1] - t[i];
	*gap = t[5] - t[0];
	return 1;
}

static bool is_receiver(const struct dr_switch_row *s)
{
	return s->receiver == 1;
}

static const struct dr_switch_row *sender_of(
	const struct dr_switch_row *sw, size_t n, const struct dr_switch_row *receiver)
{
	size_t i;

	for (i = 0; i < n; i++)
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
	if (worst->rec.self_detected || !sender)
		snprintf(row->cause, sizeof(row->cause), "%s", worst->rec.cause);
	else
		snprintf(row->cause, sizeof(row->cause), "%s", sender->rec.cause);
	if (!sender || off == DR_UNSET)
		return;
	row->sender_detect_ns = shifted(sender->rec.detect_ns, off, origin);
	row->sender_fenced_ns = shifted(sender->rec.fenced_ns, off, origin);
	row->sender_answer_ns = shifted(sender->rec.answer_ns, off, origin);
	row->sender_first_frame_ns = shifted(sender->rec.first_frame_ns, off, origin);
	row->sender_first_ack_ns = shifted(sender->rec.first_delivery_ns, off, origin);
}

static void add_sender(struct dr_fault_row *row, const struct dr_switch_record *r)
{
	row->in_flight_messages = DR_MAX(row->in_flight_messages, 0) + r->in_flight_messages;
	row->replayed_messages = DR_MAX(row->replayed_messages, 0) + r->replayed_messages;
	row->replayed_bytes = DR_MAX(row->replayed_bytes, 0) +
			      (int64_t)DR_MIN(r->replayed_bytes, (uint64_t)1 << 53);
}

size_t dr_fault_row_from_switches(struct dr_fault_row *row, const struct dr_switch_row *sw,
	size_t n, int64_t clock_offset_ns, int64_t clock_error_ns, int64_t fault_ns)
{
	int64_t *gaps = dr_calloc(n, sizeof(*gaps)), gap, worst_gap = -1, part[5];
	const struct dr_switch_row *worst = NULL;
	size_t i, n_gaps = 0;

	row->clock_offset_ns = clock_offset_ns;
	row->clock_error_ns = clock_error_ns;
	for (i = 0; i < n; i++) {
		if (!is_receiver(&sw[i])) {
			if (sw[i].receiver == 0 && !sw[i].rec.planned)
				add_sender(row, &sw[i].rec);
			continue;
		}
		if (!receiver_parts(&sw[i].rec, part, &gap))
			continue;
		if (sw[i].rec.planned) {
			row->failback_gap_ns = DR_MAX(row->failback_gap_ns, gap);
			continue;
		}
		row->rounds = DR_MAX(row->rounds, (int64_t)sw[i].rec.rounds);
		if (gap > worst_gap) {
			worst_gap = gap;
			worst = &sw[i];
		}
		if (gaps)
			gaps[n_gaps] = gap;
		n_gaps++;
	}
	if (worst) {
		take_worst(row, worst, sender_of(sw, n, worst));
		if (gaps)
			row->gap_median_channel_ns = dr_percentile_exact(gaps, n_gaps, 50);
		if (fault_ns != DR_UNSET)
			row->fault_after_ns = fault_ns - worst->rec.last_delivery_ns;
	}
	dr_free(gaps);
	row->channels_affected = (int64_t)n_gaps;
	return n_gaps;
}

/* ------------------------------- the gap table ------------------------------- */

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median of one double of the group's faults, unknown ones left out. NAN: none. */
static double median_num(const struct dr_fault_row *const *f, size_t n, size_t off, double *scratch)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		double v;

		memcpy(&v, (const char *)f[i] + off, sizeof(v));
		if (isfinite(v))
			scratch[k++] = v;
	}
	if (!k)
		return NAN;
	qsort(scratch, k, sizeof(*scratch), cmp_double);
	return scratch[(k - 1) / 2];
}

/* The known values of one int64 of the group's faults that hit data in flight. */
static size_t collect(const struct dr_fault_row *const *f, size_t n, size_t off, int64_t *out)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		int64_t v = *(const int64_t *)((const char *)f[i] + off);

		if (v != DR_UNSET && f[i]->verdict != DR_VERDICT_MISSED_FAULT)
			out[k++] = v;
	}
	return k;
}

static int64_t pct(int64_t *v, size_t n, double p)
{
	return n ? dr_percentile_exact(v, n, p) : DR_UNSET;
}

#define OFF(member) offsetof(struct dr_fault_row, member)
static void summarize(
	struct dr_gap_summary *s, const struct dr_fault_row *const *f, size_t n, int64_t *scratch)
{
	const struct {
		size_t from;
		int64_t *to;
	} medians[] = { { OFF(detect_ns), &s->detect_ns }, { OFF(fence_ns), &s->fence_ns },
		{ OFF(handshake_ns), &s->handshake_ns }, { OFF(replay_ns), &s->replay_ns },
		{ OFF(first_delivery_ns), &s->first_delivery_ns },
		{ OFF(failback_gap_ns), &s->failback_gap_ns } };
	double *num = (double *)(void *)scratch;
	size_t i, k;

	s->n = (int64_t)n;
	for (i = 0; i < n; i++) {
		if (f[i]->verdict != DR_VERDICT_MISSED_FAULT)
			s->hit++;
		if (f[i]->failback_ns != DR_UNSET || f[i]->failback_gap_ns != DR_UNSET)
			s->failbacks++;
		if (f[i]->verdict >= 0 && f[i]->verdict <= DR_VERDICT_MISSED_FAULT)
			s->verdicts[f[i]->verdict]++;
	}
	k = collect(f, n, OFF(gap_ns), scratch);
	s->gaps = (int64_t)k;
	for (i = 0; i < k; i++)
		s->sum_ns += scratch[i];
	s->p50_ns = pct(scratch, k, 50);
	s->p90_ns = pct(scratch, k, 90);
	s->p99_ns = pct(scratch, k, 99);
	s->max_ns = pct(scratch, k, 100);
	for (i = 0; i < DR_ARRAY_LEN(medians); i++)
		*medians[i].to = pct(scratch, collect(f, n, medians[i].from, scratch), 50);
	s->before_gbps = median_num(f, n, OFF(bandwidth_before_gbps), num);
	s->during_gbps = median_num(f, n, OFF(bandwidth_during_gbps), num);
	s->after_gbps = median_num(f, n, OFF(bandwidth_after_gbps), num);
}

static void summary_init(struct dr_gap_summary *s, const char *kind, int side)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->kind, sizeof(s->kind), "%s", kind);
	s->side = side;
	s->p50_ns = s->p90_ns = s->p99_ns = s->max_ns = DR_UNSET;
	s->detect_ns = s->fence_ns = s->handshake_ns = s->replay_ns = DR_UNSET;
	s->first_delivery_ns = s->failback_gap_ns = DR_UNSET;
	s->before_gbps = s->during_gbps = s->after_gbps = NAN;
}

static bool same_group(const struct dr_fault_row *a, const struct dr_fault_row *b)
{
	return a->side == b->side && !strcmp(a->kind, b->kind);
}

/* Fill s from the faults of first's group; of all faults when first is NULL. Without memory the
 * figures stay unknown. */
static void summarize_group(
	const struct dr_record *rec, const struct dr_fault_row *first, struct dr_gap_summary *s)
{
	const struct dr_fault_row **f = dr_calloc(rec->faults.n, sizeof(*f));
	int64_t *scratch = dr_calloc(rec->faults.n, sizeof(*scratch));
	size_t i, k = 0;

	summary_init(s, first ? first->kind : "all", first ? first->side : -1);
	if (f && scratch) {
		for (i = 0; i < rec->faults.n; i++)
			if (!first || same_group(first, &rec->faults.v[i]))
				f[k++] = &rec->faults.v[i];
		summarize(s, f, k, scratch);
	}
	dr_free(f);
	dr_free(scratch);
}

size_t dr_record_gap_summary(const struct dr_record *rec, struct dr_gap_summary *out, size_t cap)
{
	size_t i, k, groups = 0;

	for (i = 0; i < rec->faults.n; i++) {
		for (k = 0; k < i && !same_group(&rec->faults.v[k], &rec->faults.v[i]); k++)
			;
		if (k < i)
			continue;
		if (groups < cap)
			summarize_group(rec, &rec->faults.v[i], &out[groups]);
		groups++;
	}
	return groups;
}

void dr_record_gap_all(const struct dr_record *rec, struct dr_gap_summary *out)
{
	summarize_group(rec, NULL, out);
}

/* ------------------------------ line rate, totals ------------------------------ */

static double rail_speed(const struct dr_record *rec, int64_t rail)
{
	size_t i;

	for (i = 0; i < rec->rails.n; i++)
		if (rec->rails.v[i].rail == rail)
			return rec->rails.v[i].speed_gbps;
	return NAN;
}

static double rail_channels(const struct dr_record *rec, int64_t rail)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < rec->gpus.n; i++)
		if (rec->gpus.v[i].primary == rail)
			sum += (double)DR_MAX(rec->gpus.v[i].channels, 1);
	return sum;
}

double dr_record_gpu_line_gbps(const struct dr_record *rec, int64_t gpu)
{
	double sum = 0;
	bool any = false;
	size_t i;

	for (i = 0; i < rec->gpus.n; i++) {
		const struct dr_gpu_row *g = &rec->gpus.v[i];

		if (g->gpu != gpu)
			continue;
		any = true;
		sum += rail_speed(rec, g->primary) * (double)DR_MAX(g->channels, 1) /
		       rail_channels(rec, g->primary);
	}
	return any && sum > 0 ? sum : NAN;
}

double dr_record_line_percent(const struct dr_record *rec, const struct dr_bandwidth_row *row)
{
	if (isfinite(row->line_rate_percent))
		return row->line_rate_percent;
	return 100 * row->gbps / dr_record_gpu_line_gbps(rec, row->gpu);
}

static void total_of_phase(const struct dr_record *rec, int64_t phase, struct dr_total *t)
{
	double dir[2] = { 0, 0 }, line[2] = { 0, 0 };
	bool there[2] = { false, false };
	size_t i;

	t->phase = phase;
	t->message_bytes = DR_UNSET;
	for (i = 0; i < rec->bandwidth.n; i++) {
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

void dr_record_total(const struct dr_record *rec, struct dr_total *out)
{
	struct dr_total t;
	size_t i, k;

	memset(out, 0, sizeof(*out));
	out->phase = out->message_bytes = DR_UNSET;
	out->gbps = out->to_server_gbps = out->to_client_gbps = NAN;
	out->line_gbps = out->line_rate_percent = NAN;
	for (i = 0; i < rec->bandwidth.n; i++) {
		for (k = 0; k < i && rec->bandwidth.v[k].phase != rec->bandwidth.v[i].phase; k++)
			;
		if (k < i)
			continue;
		total_of_phase(rec, rec->bandwidth.v[i].phase, &t);
		if (isfinite(t.gbps) && !(t.gbps <= out->gbps))
			*out = t;
	}
}

/* ---------------------------------- NIC check ---------------------------------- */

/*
 * What a counter may show above the payload: headers, at worst TCP over IPv6 at MTU 1500 (98 bytes
 * for 1428, 6.9 %) plus our frames, taken as 10 %; acknowledgements and control frames for the other
 * way, 5 % of that; and 1 MiB for what else is on the wire. Below the payload: 1 % (the two are not
 * read at one instant) and 1 MiB. Both: slack_bytes.
 */
#define CHECK_HEADERS 0.10
#define CHECK_ACKS 0.05
#define CHECK_BELOW 0.01
#define CHECK_BYTES 1048576.0

static bool counter_fits(int64_t payload, int64_t other, int64_t counter, double slack)
{
	double p = (double)payload, c = (double)counter;

	return c >= p * (1 - CHECK_BELOW) - CHECK_BYTES - slack &&
	       c <= p * (1 + CHECK_HEADERS) + (double)other * CHECK_ACKS + CHECK_BYTES + slack;
}

enum dr_nic_check dr_nic_row_check(const struct dr_nic_row *r)
{
	double slack = r->slack_bytes == DR_UNSET ? 0 : (double)r->slack_bytes;

	if (r->tx_bytes == DR_UNSET || r->rx_bytes == DR_UNSET || r->counter_tx_bytes == DR_UNSET ||
		r->counter_rx_bytes == DR_UNSET)
		return DR_NIC_CHECK_UNKNOWN;
	return counter_fits(r->tx_bytes, r->rx_bytes, r->counter_tx_bytes, slack) &&
			       counter_fits(r->rx_bytes, r->tx_bytes, r->counter_rx_bytes, slack)
		       ? DR_NIC_CHECK_OK
		       : DR_NIC_CHECK_DIFFERS;
}
