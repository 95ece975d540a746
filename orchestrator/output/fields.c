/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/output/fields.h"

#include "detect/detect.h"
#include "orchestrator/output/parts.h"

#include <math.h>

const char *const dr_end_names[] = { "client", "server", NULL };
const char *const dr_direction_names[] = { "to-server", "to-client", NULL };
const char *const dr_verdict_names[] = { "PASS", "WRONG", "HANG", "CLEAN_ERROR", "MISSED_FAULT",
	"FAIL", "INCOMPLETE", NULL };
const char *const dr_fault_dir_names[] = { "both", "in", "out", NULL };
const char *const dr_phase_names[] = { "bw", "lat", "failover", NULL };
const char *const dr_figure_names[] = { "gpu", "nic", "pair", NULL };
const char *const dr_comparison_names[] = { "ok", "below", "not-in-run", "not-in-baseline", NULL };
const char *const dr_rail_state_names[] = { "alive", "suspect", "down", NULL };
const char *const dr_matrix_finding_names[] = { "ok", "slow", "left", "idle", "unknown", NULL };
const char *const dr_reason_names[] = { "unreachable", "refused", "timeout", "busy", "key",
	"version", "protocol", "declined", "paths", "died", "ended", "lost", "local", NULL };
static const char *const status_names[] = { "pass", "fail", "error", NULL };
static const char *const check_names[] = { "ok", "differs", "too-little", NULL };
static const char *const memory_names[] = { "host", "cuda", NULL };
static const char *const scope_names[] = { "op", "path", "rail", "peer", "local", NULL };

/* rows.h: the tables. */
#define NAME_(type) type##_table
#define NAME(type) NAME_(type)
#define BEGIN static const struct dr_field NAME(T)[] = {
#define END(var, what_, text_)                                                                     \
	}                                                                                          \
	;                                                                                          \
	DR_FIELDS(var, what_, NAME(T), struct T, .text = (text_));
#define F(kind_, member, text_, ...) G(kind_, #member, member, text_, __VA_ARGS__)
#define G(kind_, name_, member, text_, ...)                                                        \
	DR_FIELD(name_, DR_F_##kind_, struct T, member, .text = (text_), __VA_ARGS__),
#define E(member, names_, text_, ...) F(ENUM, member, text_, .names = (names_), __VA_ARGS__)
#define S(bytes, member, text_, ...) F(STR, member, text_, __VA_ARGS__)
#define A G
#define X(...)
/* The tables here. */
#define TABLE(var, what_, text_, ...) DR_TABLE(var, what_, struct T, text_, __VA_ARGS__)
#define L(name_, member, type, row_, text_) G(LIST, name_, member, text_, .row = &(row_))
#define R(name_, member, type, row_, text_, ...)                                                   \
	G(ROW, name_, member, text_, .row = &(row_), __VA_ARGS__)
#define B(member, max, type, row_, text_, ...)                                                     \
	DR_FIELD_ROWS(#member, struct T, member, n_##member, row_, .text = (text_), __VA_ARGS__),
#define C(name_, value, text_) DR_FIELD_CONST(name_, value, .text = (text_)),
#define P(name_, row_, text_)                                                                      \
	{ .name = (name_), .kind = DR_F_ROW, .row = &(row_), .text = (text_) },
#define VERDICT(name_, text_, ...)                                                                 \
	G(INT, "verdicts." #name_, verdicts[DR_VERDICT_##name_], text_,                            \
		METRIC("fault_trials", .extra = "verdict", .value = #name_, __VA_ARGS__))
#define KEY .flags = DR_F_KEY
#define NO_CSV .flags = DR_F_NO_CSV
#define OUT(...)                                                                                   \
	.out = &(const struct dr_field_out)                                                        \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define LABEL(name_) OUT(.label = (name_))
#define METRIC(name_, ...) OUT(.metric = (name_), __VA_ARGS__)

static const struct dr_fields gap_fields;
#define DR_ROW_TABLES
#include "orchestrator/output/rows.h"

/* clang-format off */
#define GAP_HELP .help = "Gap between deliveries around a fault, channel with the longest gap; quantile 1 is the maximum, and of fewer than 100 gaps quantile 0.99 too."
#define T dr_gap_summary
static TABLE(gap_fields, "gap", "gaps of the trials that hit data in flight",
	G(INT, "n", gaps, "trials with a gap", METRIC("switchover_seconds", GAP_HELP, .suffix = "_count"))
	G(US, "p50", p50_ns, "median", METRIC("switchover_seconds", .extra = "quantile", .value = "0.5"))
	G(US, "p90", p90_ns, "90th percentile", METRIC("switchover_seconds", .extra = "quantile", .value = "0.9"))
	G(US, "p99", p99_ns, "99th percentile", METRIC("switchover_seconds", .extra = "quantile", .value = "0.99"))
	G(US, "max", max_ns, "longest gap", METRIC("switchover_seconds", .extra = "quantile", .value = "1"))
	G(US, "sum", sum_ns, "sum of all gaps", .flags = DR_F_HIDDEN, METRIC("switchover_seconds", .suffix = "_sum"))
);
#undef T
#define T dr_record
TABLE(dr_result_fields, "measured", "results so far",
	L("bandwidth", bandwidth, dr_bandwidth_row, dr_bandwidth_fields, "one for each GPU, direction and measurement")
	R("total", total, dr_total, dr_total_fields, "sums over all GPUs")
	L("latency", latency, dr_latency_row, dr_latency_fields, "one for each GPU and size")
	L("nics", nics, dr_nic_row, dr_nic_fields, "one for each NIC of each end")
	R("integrity", integrity_total, dr_integrity_row, dr_integrity_fields, "what the receivers found")
);
#undef T
/* clang-format on */

/* ------------------------------- computed fields ------------------------------- */

static void set_rate(double *gbps, int64_t bytes, double seconds)
{
	if (isnan(*gbps) && bytes != DR_UNSET && seconds > 0)
		*gbps = (double)bytes * 8 / seconds / 1e9;
}

static void settle_bandwidth(void *row)
{
	struct dr_bandwidth_row *r = row;

	set_rate(&r->gbps, r->bytes, r->seconds);
	set_rate(&r->sender_gbps, r->sender_bytes, r->sender_seconds);
}

static void settle_cell(void *row)
{
	struct dr_matrix_cell_row *r = row;

	set_rate(&r->gbps, r->bytes, r->seconds);
	set_rate(&r->sender_gbps, r->sender_bytes, r->sender_seconds);
}

/*
 * What a counter may show above the payload: headers, at worst TCP over IPv6 at MTU 1500 (98 bytes
 * for 1428, 6.9 %) plus our frames, taken as 10 %; acknowledgements and control frames for the other
 * direction, 5 % of that; and 1 MiB for what else is on the wire. Where packets are small, headers
 * and frames are most of the bytes: then it is what they take in all packets, if those are known. Below the payload:
 * 1 % (the two are not read at one instant) and 1 MiB. Both: slack_bytes.
 */
static const double CHECK_HEADERS = 0.10, CHECK_ACKS = 0.05, CHECK_BELOW = 0.01,
		    CHECK_BYTES = 1048576;
/* Of one packet: Ethernet 14, IPv6 40, TCP 32 to 60, a frame of ours, or UDP and a heartbeat. */
static const double CHECK_PACKET = 192;

/* One direction of a NIC. */
struct counted {
	int64_t payload, other, bytes, packets;
};

static bool counter_fits(const struct counted *d, double slack)
{
	double p = (double)d->payload, c = (double)d->bytes,
	       above = p * CHECK_HEADERS + (double)d->other * CHECK_ACKS;

	if (d->packets != DR_UNSET)
		above = fmax(above, (double)d->packets * CHECK_PACKET);
	return c >= p * (1 - CHECK_BELOW) - CHECK_BYTES - slack &&
	       c <= p + above + CHECK_BYTES + slack;
}

enum dr_nic_check dr_nic_row_check(const struct dr_nic_row *r)
{
	const struct counted tx = { r->tx_bytes, r->rx_bytes, r->counter_tx_bytes,
		r->counter_tx_packets },
			     rx = { r->rx_bytes, r->tx_bytes, r->counter_rx_bytes,
				     r->counter_rx_packets };
	double slack = r->slack_bytes == DR_UNSET ? 0 : (double)r->slack_bytes;

	if (r->tx_bytes == DR_UNSET || r->rx_bytes == DR_UNSET || r->counter_tx_bytes == DR_UNSET ||
		r->counter_rx_bytes == DR_UNSET)
		return DR_NIC_CHECK_UNKNOWN;
	if (DR_MAX(r->tx_bytes, r->rx_bytes) < DR_NIC_CHECK_LEAST)
		return DR_NIC_CHECK_TOO_LITTLE;
	return counter_fits(&tx, slack) && counter_fits(&rx, slack) ? DR_NIC_CHECK_OK
								    : DR_NIC_CHECK_DIFFERS;
}

static void settle_nic(void *row)
{
	struct dr_nic_row *r = row;

	if (r->tx_bytes != DR_UNSET && r->rx_bytes != DR_UNSET)
		set_rate(&r->gbps, r->tx_bytes + r->rx_bytes, r->seconds);
	r->counter_check = dr_nic_row_check(r);
}

static void settle_interval(void *row)
{
	struct dr_interval_row *r = row;

	if (r->duration_ns != DR_UNSET)
		set_rate(&r->gbps, r->bytes, (double)r->duration_ns / 1e9);
}

static void settle_path(void *row)
{
	struct dr_path_row *r = row;

	r->all_up = r->up >= r->channels;
}

#define AT(member) .off = offsetof(struct dr_record, member)
#define ALL DR_ROW_PART_ALL
#define NEW DR_ROW_PART_NEW
#define GPU DR_ROW_OF_GPU
#define RAIL DR_ROW_OF_RAIL
#define CHANNEL (DR_ROW_OF_GPU | DR_ROW_OF_CHANNEL)
#define PHASES DR_RECORD_PHASES_MAX
#define PLACE (DR_ROW_REPLACE | DR_ROW_KEEP)
#define OWN .flags = (DR_ROW_OWN | DR_ROW_REPLACE)
/* MAX(n, flags): so many rows of each that the flags name, for both ends or directions. */
#define MAX(n, what) .max = (n), .flags = (what)
const struct dr_row_type dr_row_types[] = {
	{ &dr_bandwidth_fields, AT(bandwidth), MAX(2 * PHASES, ALL | GPU), .csv = "bandwidth",
		.settle = settle_bandwidth },
	{ &dr_total_fields, AT(total), .flags = DR_ROW_SINGLE, .csv = "total" },
	{ &dr_matrix_cell_fields, AT(matrix.cells), MAX(4 * PHASES, NEW | GPU | RAIL),
		.csv = "matrix-cell", .event = "matrix-cell", .line = dr_matrix_print_cell,
		.settle = settle_cell },
	{ &dr_matrix_total_fields, AT(matrix.totals), MAX(2, NEW | RAIL) },
	{ &dr_matrix_nic_fields, AT(matrix.nics), .csv = "matrix-nic" },
	{ &dr_nic_fields, AT(nics), MAX(2, ALL | RAIL), .csv = "nic", .settle = settle_nic },
	{ &dr_latency_fields, AT(latency), MAX(PHASES, ALL | GPU), .csv = "latency" },
	{ &dr_env_fields, AT(environment), MAX(2, ALL), .csv = "environment" },
	{ &dr_env_nic_fields, AT(environment_nics), MAX(2, ALL | RAIL) },
	/* A server tells the GPUs of its earlier sessions, too. */
	{ &dr_memory_fields, AT(memory), MAX(128, ALL | PLACE) },
	{ &dr_fault_fields, AT(faults), .csv = "fault", .event = "fault", .line = dr_table_fault,
		.always = true },
	{ &dr_gap_summary_fields, AT(gap_groups), .max = 64 },
	{ &dr_switch_fields, AT(switches), MAX(1 << 15, NEW | CHANNEL), .event = "switch" },
	{ &dr_delivery_gap_fields, AT(delivery_gaps), MAX(1 << 15, NEW | CHANNEL),
		.event = "delivery-gap" },
	{ &dr_check_fields, AT(checks), MAX(4 * PHASES, ALL | GPU | RAIL) },
	{ &dr_phase_fields, AT(phases), MAX(4 * PHASES, ALL | GPU | RAIL) },
	{ &dr_channel_fields, AT(channels), MAX(2, NEW | CHANNEL) },
	{ &dr_interval_fields, AT(intervals), NEW, .csv = "interval", .event = "interval",
		.line = dr_table_interval, .interval = true, .settle = settle_interval },
	{ &dr_event_fields, AT(events), MAX(1 << 16, NEW | CHANNEL), .event = "event" },
	{ &dr_error_fields, AT(errors), MAX(1 << 16, NEW) },
	{ &dr_rail_fields, AT(rails), MAX(1, RAIL | PLACE) },
	{ &dr_unused_nic_fields, AT(unused_nics), .flags = DR_ROW_REPLACE },
	{ &dr_gpu_fields, AT(gpus), MAX(1, CHANNEL | PLACE) },
	{ &dr_path_fields, AT(paths), MAX(2, GPU | DR_ROW_REPLACE), .settle = settle_path },
	{ &dr_integrity_fields, AT(integrity_total), .flags = DR_ROW_SINGLE },
	{ &dr_detection_fields, AT(detection), .flags = DR_ROW_SINGLE },
	{ &dr_figure_fields, AT(baseline), .flags = DR_ROW_REPLACE },
	{ &dr_comparison_fields, AT(comparison) },
	{ &dr_live_process_fields, AT(live_process), .flags = DR_ROW_SINGLE | DR_ROW_OWN },
	{ &dr_live_gpu_fields, AT(live_gpus), OWN | DR_ROW_KEEP },
	{ &dr_live_path_fields, AT(live_paths), OWN | DR_ROW_KEEP },
	{ &dr_live_rail_fields, AT(live_rails), OWN | DR_ROW_KEEP },
};
const size_t dr_n_row_types = DR_ARRAY_LEN(dr_row_types);

const struct dr_row_type *dr_row_type_at(size_t off)
{
	for (size_t i = 0; i < dr_n_row_types; i++)
		if (dr_row_types[i].off == off)
			return &dr_row_types[i];
	return NULL;
}

const void *dr_row_type_rows(const struct dr_row_type *t, const struct dr_record *rec, size_t *n)
{
	const void *p = (const char *)rec + t->off;
	const struct dr_list *list = p;
	bool single = t->flags & DR_ROW_SINGLE;

	*n = single ? 1 : list->n;
	return single ? p : list->v;
}
