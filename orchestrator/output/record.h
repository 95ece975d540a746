/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_RECORD_H
#define DR_ORCHESTRATOR_OUTPUT_RECORD_H

#include "base/err.h"
#include "base/fields.h"
#include "base/hist.h"
#include "channel/channel.h"

#include <jansson.h>
#include <stdbool.h>

/*
 * Folder output/: the results of a run as rows with one schema, their verdict, and every output
 * made from them: documents, tables, metrics, traces and baselines.
 *
 * The one record of a run is valid from dr_record_create on, so that every exit path, however
 * early, writes a complete document.
 *
 * Rows: dr_fields_init(&dr_nic_fields, &row) sets every field to unknown (base/fields.h). Set what
 * is known, then dr_record_add(rec, nics, &row). Rows are copied. Adding does not fail towards the
 * caller: a row for which there is no memory or that exceeds the limit is counted in rows_lost, and
 * dr_record_verdict makes an error of it. The rows are declared in orchestrator/output/rows.h.
 *
 * One thread (the main one). Times are ns on the clock of the end that wrote them unless stated
 * otherwise; bandwidth is in Gb/s of 10^9 bits, payload only.
 */

/* Exit statuses (README: "Exit status"); 128 + n: signal n. */
enum dr_exit {
	DR_EXIT_PASS = 0,
	DR_EXIT_USAGE = 1,
	DR_EXIT_ENV = 2,
	DR_EXIT_PEER = 3,
	DR_EXIT_TRANSPORT = 4,
	DR_EXIT_TIMEOUT = 5,
	DR_EXIT_DATA = 6,
	DR_EXIT_THRESHOLD = 7,
	DR_EXIT_FAILOVER = 8,
};

/* Which end; the words "client", "server". Absolute, so that a merge translates nothing. */
enum dr_end { DR_END_CLIENT, DR_END_SERVER };
/* Direction of data: "to-server", "to-client". */
enum dr_direction { DR_TO_SERVER, DR_TO_CLIENT };
enum dr_status { DR_STATUS_PASS, DR_STATUS_FAIL, DR_STATUS_ERROR };
/* orchestrator/output/matrix.c has the rules. */
enum dr_matrix_finding {
	DR_MATRIX_OK,
	DR_MATRIX_SLOW,
	DR_MATRIX_LEFT,
	DR_MATRIX_IDLE,
	DR_MATRIX_UNKNOWN
};
enum dr_nic_check {
	DR_NIC_CHECK_UNKNOWN = -1,
	DR_NIC_CHECK_OK,
	DR_NIC_CHECK_DIFFERS,
	DR_NIC_CHECK_TOO_LITTLE /* payload below DR_NIC_CHECK_LEAST: the tolerance hides a difference */
};
enum { DR_NIC_CHECK_LEAST = 10 << 20 };

#include "orchestrator/output/rows.h"

/* --prom-label: of every line of Prometheus text. */
enum { DR_PROM_LABELS_MAX = 16 };
struct dr_prom_labels {
	size_t n;
	struct {
		char name[64];
		const char *value;
	} v[DR_PROM_LABELS_MAX];
};

enum { DR_RECORD_LIST_MAX = 256 << 20 }; /* bytes of a list; fields.c has the rows of each */
enum { DR_RECORD_PHASES_MAX = 128, DR_RECORD_CHANNELS_MAX = 64 }; /* of the options; of a GPU */
enum { DR_RECORD_ROW_MAX = 6144 };				  /* bytes of a row in memory */

int dr_record_create(struct dr_record **out) DR_MUST_CHECK; /* run_id, host, start times, version */
void dr_record_destroy(struct dr_record *rec);
void dr_record_set_argv(struct dr_record *rec, int argc, char *const argv[]);
/* Takes over the reference. NULL: an empty object. */
void dr_record_set_options(struct dr_record *rec, json_t *options);
/* After fork or for a server's next client: empty all results, errors and the peer's fields; new
 * run_id and start times; argv, options, host, version, rails and gpus stay. */
void dr_record_reset(struct dr_record *rec);

/*
 * Add a row to a list: dr_record_add(rec, nics, &row). Where the rows have a key and one with this key
 * exists, the two are joined. Returns a pointer to the row as it stands now, valid until the next add;
 * NULL: no memory, or the limit is reached.
 */
#define dr_record_add(rec, list, row)                                                              \
	dr_record_add_row((rec), offsetof(struct dr_record, list), 1 ? (row) : (rec)->list.v)
void *dr_record_add_row(struct dr_record *rec, size_t list_off, const void *row);
void dr_record_latency_hist(struct dr_record *rec, int64_t gpu, const char *nic, int64_t bytes,
	const struct dr_hist *rtt, int64_t switched);
void dr_record_eventf(struct dr_record *rec, const char *kind, const char *fmt, ...)
	DR_PRINTF(3, 4);
/* exit_status: enum dr_exit or 128 + signal. Does not log. e may be NULL. The row, as of dr_record_add. */
struct dr_error_row *dr_record_error(
	struct dr_record *rec, int exit_status, const struct dr_err *e);
struct dr_error_row *dr_record_errorf(struct dr_record *rec, int exit_status, const char *fmt, ...)
	DR_PRINTF(3, 4);
/* Of an error with exit status 3. row: as of dr_record_error, may be NULL. */
void dr_record_reason(struct dr_error_row *row, enum dr_reason reason);
/* Adds to the integrity sums; unknown sums become 0 first. verified: the lower of the two
 * that are known. */
void dr_integrity_add(struct dr_integrity_row *into, const struct dr_integrity_row *from);

/* --------------------- the peer's part of the results --------------------- */

/* How many rows of each list were handed over already; zero it before the first call. */
enum { DR_RECORD_LISTS_MAX = 40 };
struct dr_record_mark {
	size_t n[DR_RECORD_LISTS_MAX];
};
/*
 * The rows that this end measured and added since `since` (which is moved on; NULL: all of them),
 * as one JSON object for the control connection: the lists whose row type says so (fields.c), and always
 * version, host, cpu_percent, integrity (sums so far of this end's receivers), false_failovers. NULL: no
 * memory. Call it on the record that gets no merge itself.
 */
json_t *dr_record_part(const struct dr_record *rec, struct dr_record_mark *since);
/*
 * Take in the peer's part; rows are appended or joined by key. integrity: of the newest part only,
 * kept in peer_integrity. Bytes of the peer: -EPROTO names the field, rows before it are in. Errors
 * of the peer become events of kind "peer-error", not errors of this end.
 */
int dr_record_merge(struct dr_record *rec, const json_t *part, struct dr_err *e) DR_MUST_CHECK;

/* --------------------------- computed figures --------------------------- */

/*
 * One fault's figures from the records of both ends: of all switches that belong to the fault
 * (planned ones apart), the receiver's (the end that has row->receiver set) with the largest gap
 * gives gap, parts, gpu, channel; the sender's of the same gpu, channel and epoch gives sender_*.
 * clock_offset_ns (receiver minus sender) and clock_error_ns: unknown leaves sender_* unknown;
 * fault_ns is on the receiver's clock already, or unknown. Planned switches give failback_gap_ns.
 * Also in_flight, replayed, channels_affected, rounds, cause. Returns the number of channels.
 */
size_t dr_fault_row_from_switches(struct dr_fault_row *row, const struct dr_switch_row *sw,
	size_t n, int64_t clock_offset_ns, int64_t clock_error_ns, int64_t fault_ns);

/*
 * The same from the delivery gaps of channels that did not switch, whose transport moved to another NIC: gap, gpu and
 * channel are those of the longest one, which is returned. There are no parts. NULL: there is none, nothing is changed.
 */
const struct dr_delivery_gap_row *dr_fault_row_from_gaps(
	struct dr_fault_row *row, const struct dr_delivery_gap_row *gaps, size_t n);

/* Compute what follows from the rows. The functions that judge or make an output call it first. */
void dr_record_settle(struct dr_record *rec);
/* " in the slower direction" where there are two, else "". */
const char *dr_total_slower(const struct dr_total *t);
/* Counts among unexpected_switches. Each switch has a row of either end: that of this end counts. */
bool dr_switch_unexpected(const struct dr_record *rec, const struct dr_switch_row *r);
/* The row of the same switch at that end, which may be r; NULL: not here. */
const struct dr_switch_row *dr_switch_at(
	const struct dr_record *rec, int side, const struct dr_switch_row *r);
/* NULL: there is none of that number, or on that NIC. */
const struct dr_rail_row *dr_record_rail(const struct dr_record *rec, int64_t rail);
const struct dr_rail_row *dr_record_rail_on(const struct dr_record *rec, const char *nic);
/* Appends "; rail1 is missing: no answer from 10.0.1.2" for each NIC here whose peer did not answer. */
void dr_record_silent_nics(const struct dr_record *rec, char *buf, size_t len);
/* Appends "; ctl0 was not measured: HOST is reached over it", since it may have been meant as a rail. */
void dr_record_control_nic(const struct dr_record *rec, char *buf, size_t len);
/* Speed of a rail; NAN: unknown. */
double dr_record_rail_gbps(const struct dr_record *rec, int64_t rail);
/* This GPU's share of its primary rails' speeds, by channels; NAN when one is unknown. */
double dr_record_gpu_line_gbps(const struct dr_record *rec, int64_t gpu);

/* Payload against the interface's own counter, tolerance as stated in fields.c. */
enum dr_nic_check dr_nic_row_check(const struct dr_nic_row *r);

/* ------------------------------ the verdict ------------------------------ */

/* Figures of a latency row: "p50", "p90", "p99", "p999", "max". */
enum { DR_LAT_FIGURES = 5 };

struct dr_thresholds {
	double min_bw_gbps; /* of the total; NAN: none */
	double min_bw_percent; /* of the line rate or, with a baseline, of that; NAN: none (baseline: 90) */
	double min_nic_percent; /* of a NIC, relative to the others of a matrix; NAN: not judged */
	bool min_nic_implied;	/* nobody asked for it: a single NIC passes */
	int64_t max_gap_ns;	/* of every trial; DR_UNSET: none */
	int64_t max_lat_ns
		[DR_LAT_FIGURES]; /* full round trip of every GPU and size; DR_UNSET: none */
	double min_hit_percent;	  /* of the trials hit data in flight; NAN: 90 */
	const json_t *baseline;	  /* dr_baseline_load; NULL: none */
	bool save_baseline;	  /* the result becomes one */
};
void dr_thresholds_init(struct dr_thresholds *t);
/* "80%". -EINVAL. */
int dr_thresholds_parse_min_nic(struct dr_thresholds *t, const char *s, struct dr_err *e)
	DR_MUST_CHECK;
/* "90%", "37.5", "37.5Gb/s" (a number is Gb/s). -EINVAL. */
int dr_thresholds_parse_min_bw(struct dr_thresholds *t, const char *s, struct dr_err *e)
	DR_MUST_CHECK;
/* "200us" (p99), "p50=50us,max=1ms": full round trips. -EINVAL. */
int dr_thresholds_parse_max_lat(struct dr_thresholds *t, const char *s, struct dr_err *e)
	DR_MUST_CHECK;

/* Before the run, when the rails of each GPU are in the record: -ENODATA if a percentage has nothing to refer to. */
int dr_thresholds_check(
	const struct dr_thresholds *t, const struct dr_record *rec, struct dr_err *e) DR_MUST_CHECK;

/*
 * Judge the record: sets status and exit_code, adds an error row for each criterion missed, returns
 * exit_code. Priority: signal, usage 1, environment 2, peer 3, transport 4, timeout 5, data 6,
 * threshold 7, failover 8, pass 0. May be called again after more was added. t may be NULL.
 */
int dr_record_verdict(struct dr_record *rec, const struct dr_thresholds *t);

/* The whole document, valid in every state of the record. NULL: no memory. */
json_t *dr_record_to_json(struct dr_record *rec);

#endif
