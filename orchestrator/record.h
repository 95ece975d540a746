/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_RECORD_H
#define DR_ORCHESTRATOR_RECORD_H

#include "base/err.h"
#include "base/hist.h"
#include "channel/channel.h"

#include <jansson.h>
#include <stdbool.h>

/*
 * The one record of a run, from which every output is made: JSON document, JSON lines, CSV,
 * Prometheus text, tables (orchestrator/report/output.h). It is valid from dr_record_create on, so
 * that every exit path, however early, writes a complete document.
 *
 * Unknown values: an integer is DR_UNSET, a double is NAN, an enum is -1, a string is "". They come
 * out as null. dr_*_init(&row) sets every field of a row to unknown; then set what is known and add
 * it. Rows are copied. Adders do not fail towards the caller: a row that finds no memory or passes
 * the limit is counted in rows_lost, and dr_record_verdict makes an error of it.
 *
 * One thread (the main one). Times are ns on the clock of the end that wrote them unless said
 * otherwise; bandwidth is in Gb/s of 10^9 bits, payload only.
 */
#define DR_UNSET INT64_MIN
#define DR_LIST(type)                                                                              \
	struct {                                                                                   \
		type *v;                                                                           \
		size_t n, cap;                                                                     \
	}

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
enum dr_verdict {
	DR_VERDICT_PASS,
	DR_VERDICT_WRONG,	/* data lost, doubled, reordered or corrupted */
	DR_VERDICT_HANG,	/* no delivery within the trial's deadline */
	DR_VERDICT_CLEAN_ERROR, /* the channel ended with an error at both ends */
	DR_VERDICT_MISSED_FAULT /* no message was in flight when the fault hit */
};

/* ------------------------------- rows ------------------------------- */

/* One GPU, one direction, one phase. Key: phase, gpu, direction. Adding a row whose key is there
 * already fills in that row's unknown fields: the receiver's end adds bytes, seconds, messages, the
 * sender's end sender_*, retransmits, and the merge joins them. */
struct dr_bandwidth_row {
	int64_t phase, gpu;
	int direction; /* enum dr_direction */
	int64_t message_bytes;
	int64_t bytes, messages;  /* receiver: between its marks */
	double seconds;		  /* receiver's clock */
	double gbps;		  /* receiver; NAN: computed from bytes and seconds */
	double line_rate_percent; /* NAN: computed when the speeds of the GPU's rails are known */
	int64_t sender_bytes;	  /* acknowledged */
	double sender_seconds, sender_gbps;
	int64_t retransmits; /* of the kernel or NIC, at the sender */
};

/* One NIC of one end over the whole measurement. Key: side, name. */
struct dr_nic_row {
	int side; /* enum dr_end */
	char name[64];
	double speed_gbps;
	int64_t tx_bytes, rx_bytes; /* payload over this NIC's paths, replays included */
	int64_t counter_tx_bytes, counter_rx_bytes; /* difference of the interface's own counters */
	int64_t connections; /* paths that came up over it, rebuilds included */
	int64_t slack_bytes; /* what the two may differ by besides headers: e.g. bytes in socket
				buffers when a link was cut. unknown: 0 */
	double seconds;
	double gbps; /* NAN: computed: payload both ways */
};

/*
 * --matrix: one GPU (unknown: all together) over one rail alone, one direction. Key: phase, gpu,
 * direction; the ends fill in their halves as with bandwidth. Where channels left their rail while the
 * cell was measured (switched > 0), gbps is what came, not what the rail can do.
 */
struct dr_cell_row {
	int64_t phase, gpu, rail;
	int direction;
	char nic[64], peer_nic[64]; /* client's, server's */
	int64_t message_bytes, channels;
	int64_t switched; /* channels that were not on this rail all the time; the larger of both ends' */
	int64_t bytes, messages;
	double seconds, gbps; /* receiver; NAN: computed */
	int64_t sender_bytes;
	double sender_seconds, sender_gbps;
	int64_t retransmits;
	/* What the NIC's own counter of this direction rose by between the marks, or in the whole cell
	 * with --iters, headers included. Unknown: no such counter (loopback). */
	int64_t client_counter_bytes, server_counter_bytes;
};

/* --matrix: what one NIC's own counters rose by while all GPUs used all rails. Key: side, nic. */
struct dr_together_row {
	int side; /* enum dr_end */
	int64_t rail;
	char nic[64];
	int64_t counter_tx_bytes, counter_rx_bytes;
	double seconds;
	int64_t switched; /* channels of this rail that were not on it all the time */
};

/* Key: gpu, bytes. */
struct dr_latency_row {
	int64_t gpu, bytes, samples;
	int64_t p50_ns, p90_ns, p99_ns, p999_ns, max_ns; /* round trip */
};

/* One fault, one trial. The gap and its parts are of the worst channel, on the receiver's clock;
 * dr_fault_row_from_switches fills them. */
struct dr_fault_row {
	int64_t trial;
	char kind[24]; /* as in --fault */
	int64_t path;
	int side; /* enum dr_end: where it acted */
	char nic[64];
	int64_t at_ns;				 /* CLOCK_MONOTONIC of that end */
	int64_t channels_affected, gpu, channel; /* of the worst channel */
	int64_t gap_ns, gap_median_channel_ns;
	int64_t cadence_p50_ns,
		cadence_p99_ns; /* between deliveries of a channel without a fault */
	/* add up to gap_ns */
	int64_t detect_ns, fence_ns, handshake_ns, replay_ns, first_delivery_ns;
	/* Since the receiver's last delivery, shifted to its clock by clock_offset_ns. */
	int64_t fault_after_ns; /* when the fault acted; negative: before that delivery */
	int64_t sender_detect_ns, sender_fenced_ns, sender_answer_ns, sender_first_frame_ns,
		sender_first_ack_ns;
	int64_t clock_offset_ns, clock_error_ns; /* receiver's clock minus sender's */
	int64_t in_flight_messages, replayed_messages, replayed_bytes; /* sums over the channels */
	int64_t rounds; /* most epochs that one switch took */
	int64_t failback_ns,
		failback_gap_ns; /* from the fault's undoing to the switch back; its gap */
	double bandwidth_before_gbps, bandwidth_during_gbps, bandwidth_after_gbps;
	int verdict;	/* enum dr_verdict */
	char cause[96]; /* why the detecting end switched */
	char note[96];
};

/* One end's record of one switch of one channel. */
struct dr_switch_row {
	int side;	      /* enum dr_end: whose record and clock */
	int64_t gpu, channel; /* position of the GPU in this run, channel number within the GPU */
	int64_t trial;	      /* fault it belongs to; unknown: none was active */
	int receiver;	      /* 0, 1 */
	struct dr_switch_record rec;
};

/* gpu unknown: the sum. Starts start_ns after the measurement began. */
struct dr_interval_row {
	int64_t phase, gpu;
	int direction;
	int64_t start_ns, duration_ns, bytes, messages, retransmits;
	double gbps; /* NAN: computed */
};

struct dr_event_row {
	int64_t monotonic_ns, wall_ns; /* unknown: now, both */
	int side;
	char kind[24]; /* fault, undo, switch, failback, protection, rail, silence, phase, ... */
	int64_t gpu, channel, path;
	char nic[64];
	char text[160];
};

struct dr_error_row {
	int exit_status; /* enum dr_exit or 128 + signal: what this error alone ends the run with */
	int code;	 /* -errno; 0: none */
	int64_t wall_ns;
	char text[256];
	bool criterion; /* made by dr_record_verdict, which replaces it when it judges again */
};

/* Key: rail. Speed: the slower end's when both are known. */
struct dr_rail_row {
	int64_t rail;
	char ifname[64], address[64], peer_ifname[64], peer_address[64];
	bool routed; /* the two share no subnet */
	double speed_gbps;
	int64_t mtu;
	int64_t numa;
};

/* channels of this GPU have rail `primary` as primary path and `shadow` as shadow. Several rows a
 * GPU when its channels are spread. Key: gpu, primary, shadow. */
struct dr_gpu_row {
	int64_t gpu;
	char name[64], bus_id[24];
	int64_t primary, shadow, channels;
	int64_t numa, cpu;
	char reason[96]; /* why these rails */
};

/* Where the data of one end's GPU is. Key: side, gpu. */
struct dr_memory_row {
	int side; /* enum dr_end */
	int64_t gpu;
	int memory; /* 0 host, 1 cuda */
	char name[96], bus_id[16];
	int staged; /* 1: copied through pinned host memory; 0: the NIC reaches it; -1: host, unknown */
	char why[256]; /* staged: because */
	/* Copies out of the GPU and into it during the bandwidth phases, and the share of these phases in
	 * which they ran, by the GPU's clock: those that were timed stand for all. */
	int64_t out_bytes, in_bytes;
	double out_busy_percent, in_busy_percent;
	int64_t copies, timed, calls; /* calls of the driver for them */
};

/* How many of a GPU's channels have their primary (0) or shadow (1) path up. Key: gpu, path. */
struct dr_path_row {
	int64_t gpu, path, channels, up;
};

/* Sums over one end's receivers. verified 1: every byte compared (--verify), 0: sequence only, -1:
 * nothing was looked at. */
struct dr_integrity_row {
	int64_t messages, bytes, lost, duplicated, reordered, corrupted;
	int verified;
};

struct dr_host {
	char name[72], kernel[72];
	int64_t cpus, memory_bytes;
};

/* ------------------------------ record ------------------------------ */

enum dr_status { DR_STATUS_PASS, DR_STATUS_FAIL, DR_STATUS_ERROR };

struct dr_record {
	int side; /* enum dr_end of this process; -1: neither (usage error, topo) */
	char run_id[40];
	char command[16]; /* server, client, demo, ... */
	int64_t start_wall_ns, start_ns;
	json_t *argv, *options; /* never NULL: an array, an object */
	int status;		/* enum dr_status; ERROR until dr_record_verdict */
	int exit_code;		/* -1 (null) until dr_record_verdict */
	char version[64], peer_version[64];
	struct dr_host host, peer_host;
	DR_LIST(struct dr_rail_row) rails;
	DR_LIST(struct dr_gpu_row) gpus;
	DR_LIST(struct dr_path_row) paths;
	DR_LIST(struct dr_memory_row) memory;
	int64_t numa_nodes; /* of this end; unknown: no run began */
	char numa_binding[160];
	struct {
		char mode[16]; /* fast, conservative */
		char transport[64];
		int64_t bound_ns, heartbeat_ns, lost_after_ns, stuck_after_ns, hold_down_ns;
		int failback;	/* 0, 1, -1 */
		char fence[96]; /* what the fence of this transport promises; "": fully */
	} detection;
	DR_LIST(struct dr_bandwidth_row) bandwidth;
	DR_LIST(struct dr_cell_row) cells;
	DR_LIST(struct dr_together_row) together;
	DR_LIST(struct dr_nic_row) nics;
	double cpu_percent_local, cpu_percent_peer; /* 100 = one core busy */
	DR_LIST(struct dr_latency_row) latency;
	DR_LIST(struct dr_fault_row) faults;
	DR_LIST(struct dr_switch_row) switches;
	int64_t false_failovers;			   /* unknown: failover was not tested */
	struct dr_integrity_row integrity, peer_integrity; /* unknown: this end received nothing */
	DR_LIST(struct dr_interval_row) intervals;
	DR_LIST(struct dr_event_row) events;
	DR_LIST(struct dr_error_row) errors;
	uint64_t rows_lost;
};
enum { DR_RECORD_ROWS_MAX = 1000000 }; /* of each list; switches: a quarter */

int dr_record_create(struct dr_record **out) DR_MUST_CHECK; /* run_id, host, start times, version */
void dr_record_destroy(struct dr_record *rec);
void dr_record_set_argv(struct dr_record *rec, int argc, char *const argv[]);
/* Takes over the reference. NULL: an empty object. */
void dr_record_set_options(struct dr_record *rec, json_t *options);
/* After fork or for a server's next client: empty all results, errors and the peer's fields; new
 * run_id and start times; argv, options, host, version, rails and gpus stay. */
void dr_record_reset(struct dr_record *rec);

void dr_bandwidth_row_init(struct dr_bandwidth_row *r);
void dr_cell_row_init(struct dr_cell_row *r);
void dr_together_row_init(struct dr_together_row *r);
void dr_nic_row_init(struct dr_nic_row *r);
void dr_latency_row_init(struct dr_latency_row *r);
void dr_fault_row_init(struct dr_fault_row *r);
void dr_switch_row_init(struct dr_switch_row *r);
void dr_interval_row_init(struct dr_interval_row *r);
void dr_event_row_init(struct dr_event_row *r);
void dr_integrity_row_init(struct dr_integrity_row *i);
void dr_rail_row_init(struct dr_rail_row *r);
void dr_gpu_row_init(struct dr_gpu_row *r);
void dr_memory_row_init(struct dr_memory_row *r);

void dr_record_bandwidth(struct dr_record *rec, const struct dr_bandwidth_row *row);
/* The row as it stands now, for the moment; NULL: it found no room. */
const struct dr_cell_row *dr_record_cell(struct dr_record *rec, const struct dr_cell_row *row);
void dr_record_together(struct dr_record *rec, const struct dr_together_row *row);
void dr_record_nic(struct dr_record *rec, const struct dr_nic_row *row);
void dr_record_latency(struct dr_record *rec, const struct dr_latency_row *row);
void dr_record_latency_hist(
	struct dr_record *rec, int64_t gpu, int64_t bytes, const struct dr_hist *rtt);
void dr_record_fault(struct dr_record *rec, const struct dr_fault_row *row);
void dr_record_switch(struct dr_record *rec, const struct dr_switch_row *row);
void dr_record_interval(struct dr_record *rec, const struct dr_interval_row *row);
/* row->side -1: this end. */
void dr_record_event(struct dr_record *rec, const struct dr_event_row *row);
void dr_record_eventf(struct dr_record *rec, const char *kind, const char *fmt, ...)
	DR_PRINTF(3, 4);
void dr_record_rail(struct dr_record *rec, const struct dr_rail_row *row);
void dr_record_gpu(struct dr_record *rec, const struct dr_gpu_row *row);
void dr_record_memory(struct dr_record *rec, const struct dr_memory_row *row);
/* exit_status: enum dr_exit or 128 + signal. Does not log. e may be NULL. */
void dr_record_error(struct dr_record *rec, int exit_status, const struct dr_err *e);
void dr_record_errorf(struct dr_record *rec, int exit_status, const char *fmt, ...) DR_PRINTF(3, 4);
/* Adds to the integrity sums; unknown sums become 0 first. verified: the lower of the two
 * that are known. */
void dr_record_integrity(struct dr_record *rec, const struct dr_integrity_row *add);
void dr_record_path(struct dr_record *rec, int64_t gpu, int64_t path, int64_t channels, int64_t up);

/* --------------------- the peer's part of the results --------------------- */

/* How much of a record was handed over already; zero it before the first call. */
struct dr_record_mark {
	size_t bandwidth, cells, together, nics, latency, memory, switches, intervals, events,
		errors;
};
/*
 * The rows that this end measured and added since `since` (which is moved on; NULL: all of them),
 * as one JSON object for the control connection: bandwidth, cells, together, nics, latency, memory, switches, intervals,
 * events, errors; always: version, host, cpu_percent, integrity (sums so far of this end's
 * receivers), false_failovers. NULL: no memory. Call it on the record that gets no merge itself.
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

/* All faults of one kind and side together; the row of the failover table. */
struct dr_gap_summary {
	char kind[24];
	int side;
	int64_t n, hit; /* trials; those that hit data in flight */
	int64_t gaps;	/* those of the latter that have a gap; its exact percentiles and sum: */
	int64_t p50_ns, p90_ns, p99_ns, max_ns, sum_ns;
	/* medians, each by itself: they need not add up */
	int64_t detect_ns, fence_ns, handshake_ns, replay_ns, first_delivery_ns;
	double before_gbps, during_gbps, after_gbps; /* medians */
	int64_t failback_gap_ns;		     /* median */
	int64_t failbacks;			     /* trials that came back */
	int64_t verdicts[DR_VERDICT_MISSED_FAULT + 1];
};
/* The groups in order of their first trial; returns how many there are (at most cap are written). */
size_t dr_record_gap_summary(const struct dr_record *rec, struct dr_gap_summary *out, size_t cap);
/* The same over all faults, kind "all", side -1. n is 0 without faults. */
void dr_record_gap_all(const struct dr_record *rec, struct dr_gap_summary *out);

/* Sum over the receivers' rows of the phase with the largest sum. NAN: no rows. */
struct dr_total {
	int64_t phase, message_bytes;
	double gbps, to_server_gbps, to_client_gbps;
	double line_gbps;	  /* of all rails used, one way; NAN unknown */
	double line_rate_percent; /* the worse direction's share of it */
};
/* Sum of this end's and the peer's; unknown stays unknown only when both are. */
void dr_record_integrity_total(const struct dr_record *rec, struct dr_integrity_row *out);
/* The row's share of its GPU's line rate; NAN unknown. */
double dr_record_line_percent(const struct dr_record *rec, const struct dr_bandwidth_row *row);
void dr_record_total(const struct dr_record *rec, struct dr_total *out);
/* This GPU's share of its primary rails' speeds, by channels; NAN when one is unknown. */
double dr_record_gpu_line_gbps(const struct dr_record *rec, int64_t gpu);

/* Payload against the interface's own counter, tolerance as stated in report/summary.c. */
enum dr_nic_check { DR_NIC_CHECK_UNKNOWN, DR_NIC_CHECK_OK, DR_NIC_CHECK_DIFFERS };
enum dr_nic_check dr_nic_row_check(const struct dr_nic_row *r);

/* ------------------------------ the verdict ------------------------------ */

struct dr_thresholds {
	double min_bw_gbps; /* of the total; NAN: none */
	double min_bw_percent; /* of the line rate or, with a baseline, of that; NAN: none (baseline: 90) */
	int64_t max_gap_ns;	/* of every trial; DR_UNSET: none */
	double min_hit_percent; /* of the trials hit data in flight; NAN: 90 */
	const json_t *baseline; /* dr_baseline_load; NULL: none */
};
void dr_thresholds_init(struct dr_thresholds *t);
/* "90%", "37.5", "37.5Gb/s" (a number is Gb/s). -EINVAL. */
int dr_thresholds_parse_min_bw(struct dr_thresholds *t, const char *s, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * Judge the record: sets status and exit_code, adds an error row for each criterion missed, returns
 * exit_code. Priority: signal, usage 1, environment 2, peer 3, transport 4, timeout 5, data 6,
 * threshold 7, failover 8, pass 0. May be called again after more was added. t may be NULL.
 */
int dr_record_verdict(struct dr_record *rec, const struct dr_thresholds *t);

/* The whole document, valid in every state of the record. NULL: no memory. */
json_t *dr_record_to_json(const struct dr_record *rec);

#endif
