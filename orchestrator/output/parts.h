/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_PARTS_H
#define DR_ORCHESTRATOR_OUTPUT_PARTS_H

#include "channel/manager.h"
#include "orchestrator/output/output.h"
#include "orchestrator/output/record.h"

#include <stdio.h>

/* The parts that output.c is made of. */

/* --------------------------------- files --------------------------------- */

/* Write and flush; what: "standard output". Says so too when an earlier write failed. */
int dr_stream_put(FILE *f, const char *text, size_t len, const char *what, struct dr_err *e);
/* One document and a newline into memory (open_memstream). indent 0: on one line. 0 or -ENOMEM. */
int dr_json_write(const json_t *doc, FILE *f, unsigned indent);
/* The document of a run, the same way. */
int dr_record_write(struct dr_record *rec, FILE *f);
/* The value of --json: the document to standard output ("-") or to a file, all of it or nothing; NULL: nothing. Takes
 * doc over; doc NULL: out of memory. Prints an error. Returns the exit status: `status`, unless that is 0 and
 * writing failed. */
int dr_json_output(const char *path, json_t *doc, int status);

/* A result document of an earlier run, at most 64 MiB. option ("--baseline") precedes the path in errors; NULL: none.
 * -EBADMSG: not JSON, another schema; errors of dr_file_open. The caller owns *out. */
int dr_document_load(const char *option, const char *path, json_t **out, struct dr_err *e)
	DR_MUST_CHECK;
#define DR_SWEEP_SCHEMA "dualrail-sweep/1"
/* A document of a run or of a sweep, at most 512 MiB, the same way. */
int dr_document_load_any(const char *path, json_t **out, struct dr_err *e) DR_MUST_CHECK;
/* Adds what the figures of a run follow from to an empty record: rails, GPUs, bandwidth, matrix, latency, faults, CPU time.
 * -EPROTO: the document breaks its schema. */
int dr_record_read(struct dr_record *rec, const json_t *doc, struct dr_err *e) DR_MUST_CHECK;

/* A result document written by --json=FILE or --save-baseline. At most 64 MiB. -EBADMSG: not
 * JSON, another schema, or no bandwidth in it; errors of dr_file_open. `option` ("--baseline") precedes the path in errors.
 * The caller owns *out. */
int dr_baseline_load(const char *option, const char *path, json_t **out, struct dr_err *e)
	DR_MUST_CHECK;

/* A baseline's file, and what it is for. */
struct dr_baseline_file {
	const char *path;
	const json_t *doc; /* NULL: none, which fits every run */
	bool saves;	   /* --save-baseline: this run is added to it */
};
/* Do its runs and this one measure the same? baseline_options.c has the options that must be equal. The GPUs are those
 * of the record or, while it has none, these n_gpus (0: not known yet). -EEXIST: every difference. */
int dr_baseline_check(const struct dr_baseline_file *file, const struct dr_record *rec,
	const unsigned *gpus, size_t n_gpus, struct dr_err *e) DR_MUST_CHECK;
/* Calls put for each difference of two documents in these options and GPUs; was, is: "--size 64M". */
typedef void (*dr_difference_fn)(void *arg, const char *was, const char *is);
void dr_baseline_differences(const json_t *was, const json_t *is, dr_difference_fn put, void *arg);
/* Fills rec->baseline with the figures of the record's run. */
void dr_baseline_figures(struct dr_record *rec);
/* What was added to a baseline. */
struct dr_baseline_saved {
	int64_t runs;	    /* in the file now */
	double low_percent; /* of the figure that is lowest beside its mean so far; NAN: a first run */
	char low[256];	    /* that figure */
};
/* The document that --save-baseline writes: with the figures of this run, added to those of `earlier` (NULL: none).
 * saved may be NULL. 0 or -ENOMEM. */
int dr_baseline_write(
	struct dr_record *rec, const json_t *earlier, FILE *f, struct dr_baseline_saved *saved);
/* Fills rec->comparison; below `percent` of the mean is below. */
void dr_baseline_compare(struct dr_record *rec, const json_t *baseline, double percent);
/* What was compared, with what, and what could not be. */
void dr_baseline_print(const struct dr_record *rec, FILE *f);

/* -------------------------------- formats -------------------------------- */

/*
 * CSV after RFC 4180 but for the line end, which is "\n": one flat table with a header. Column "record" is the
 * kind of a row, one of those with a name in CSV (fields.c); columns that it does not have are empty, as is what is
 * unknown. Names are those of the JSON document; rtt_us.p50 is rtt_us_p50. 0 or -ENOMEM.
 */
int dr_csv_write(struct dr_record *rec, FILE *f);
/*
 * Prometheus text format 0.0.4 for the textfile collector and /metrics: no timestamps, base units
 * (bytes, seconds). Every series has the labels host and test, and those of --prom-label. What is unknown has no
 * sample; last_run_* only once there is a verdict. live: also the rows of the process itself (DR_ROW_OWN), without
 * host and test, as they are the same for all peers. 0 or -ENOMEM.
 */
int dr_prom_write(struct dr_record *rec, FILE *f);
int dr_prom_write_live(struct dr_record *rec, FILE *f);
/*
 * The run as spans, in the JSON encoding of an OTLP ExportTraceServiceRequest on one line: run, phases, channels, faults
 * and switches, of both ends at the client. The trace id follows from the run_id. 0 or -ENOMEM.
 */
int dr_trace_write(struct dr_record *rec, FILE *f);
/* Of struct dr_opt: KEY=VALUE into a struct dr_prom_labels. */
int dr_prom_label_parse(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e);

/* ---------------------------- tables for people ---------------------------- */

/* The three levels: tables (-v), the answer of each test and its marks, the verdict alone (-q). */
void dr_table_print(struct dr_record *rec, FILE *f);
void dr_table_answers(struct dr_record *rec, FILE *f);
void dr_table_verdict(const struct dr_record *rec, FILE *f);
/* Program, run and options ("name=value ..."), before the run. */
void dr_table_header(const struct dr_record *rec, const char *options, FILE *f);
/* Words in lines as wide as the screen (100 columns without one), indented by so many. */
void dr_table_words(const char *text, unsigned first, unsigned further, FILE *f);
/* A stream for lines that go to f when it is closed, each as wide as the screen. A line with two
 * blanks behind its indentation is the row of a table and stays as it is. NULL: no memory; close it
 * all the same. */
struct dr_wrap {
	FILE *m;
	char *text;
	size_t len;
};
FILE *dr_wrap_open(struct dr_wrap *w);
void dr_wrap_close(struct dr_wrap *w, FILE *f);
/* One line while the run lasts; row: a struct dr_interval_row, dr_fault_row, dr_matrix_cell_row. */
void dr_table_interval(const void *row, bool all, FILE *f);
void dr_table_fault(const void *row, bool all, FILE *f);
void dr_matrix_print_cell(const void *row, bool all, FILE *f);

/* summary.c. Is row i the first of its phase? */
bool dr_bandwidth_first(const struct dr_record *rec, size_t i);
void dr_total_of_phase(const struct dr_record *rec, int64_t phase, struct dr_total *t);

/* result_line.c: what each table is read for, in a line that begins with the title; without
 * one in further lines, indented. */
void dr_result_bandwidth(const struct dr_record *rec, const char *title, FILE *f);
void dr_result_sizes(const struct dr_record *rec, FILE *f);
void dr_result_nics(const struct dr_record *rec, const char *title, FILE *f);
void dr_result_latency(const struct dr_record *rec, const char *title, FILE *f);
void dr_result_failover(const struct dr_record *rec, const char *title, FILE *f);
void dr_result_faults(const struct dr_record *rec, FILE *f);
void dr_result_data(const struct dr_record *rec, const char *title, FILE *f);
void dr_result_baseline(const struct dr_record *rec, const char *title, FILE *f);
void dr_result_verdict(const struct dr_record *rec, FILE *f);
void dr_result_matrix(const struct dr_record *rec, int direction, FILE *f);

enum { DR_MATRIX_NICS_MAX = 2 * DR_RAILS_MAX, DR_MATRIX_SLOW_PERCENT = 80 };
/* --min-nic as a part of 1: a rail below that part of the others is slow. */
double dr_matrix_part(const struct dr_record *rec);
/* Fills matrix.nics from the cells and totals, in the order of the cells. Part of dr_record_settle. */
void dr_matrix_judge(struct dr_record *rec);
/* The heat table and the findings; nothing without a matrix. Colours when f is a terminal. */
void dr_matrix_print(const struct dr_record *rec, bool colour, FILE *f);
/* The findings as sentences, each complete by itself; nothing without a matrix. */
void dr_matrix_print_summary(const struct dr_record *rec, FILE *f);

/* --------------------------------- metrics --------------------------------- */

/* An HTTP server in a thread of its own that answers GET /metrics with the text last published. */
struct dr_metrics;
struct dr_networks;
/* "ADDR:PORT", "[V6]:PORT", ":PORT" (all addresses); allow is borrowed, NULL: everybody. -EINVAL: not
 * that; -EADDRINUSE and others. */
int dr_metrics_start(const char *listen, const struct dr_networks *allow, struct dr_metrics **out,
	struct dr_err *e) DR_MUST_CHECK;
/* Starts the thread that answers; before, connections wait in the listener's queue. -ENOMEM. */
int dr_metrics_serve(struct dr_metrics *m, struct dr_err *e) DR_MUST_CHECK;
uint16_t dr_metrics_port(const struct dr_metrics *m);
/* The text is copied; any thread. Without memory the old text stays. */
void dr_metrics_publish(struct dr_metrics *m, const char *text, size_t len);
void dr_metrics_stop(struct dr_metrics *m); /* NULL is allowed */

#endif
