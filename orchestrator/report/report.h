/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_REPORT_REPORT_H
#define DR_REPORT_REPORT_H

#include "orchestrator/record.h"

#include <stdio.h>

/* The parts that output.c is made of. */

/* --------------------------------- files --------------------------------- */

/*
 * What a file is replaced with: written beside the target, flushed to disk, renamed. A target that
 * is there and is no regular file (/dev/stdout, a pipe), or whose folder takes no new files, is
 * written in place. `option` ("--json") is the word in front of the path in errors.
 */
struct dr_file {
	FILE *f;
	char *path, *temp; /* temp NULL: in place */
	const char *option;
};
/* Could it be written? Leaves nothing behind, makes no empty file. -errno. */
int dr_file_probe(const char *option, const char *path, struct dr_err *e) DR_MUST_CHECK;
int dr_file_begin(struct dr_file *f, const char *option, const char *path, struct dr_err *e)
	DR_MUST_CHECK;
/* Write the text: all of it is on disk under its name, or -errno and the target is as it was (in
 * place: cut). f is empty then either way. */
int dr_file_commit(struct dr_file *f, const char *text, size_t len, struct dr_err *e) DR_MUST_CHECK;
/* Write and flush; what: "standard output". Says so too when an earlier write failed. */
int dr_stream_put(FILE *f, const char *text, size_t len, const char *what, struct dr_err *e);
/* One document and a newline into memory (open_memstream). indent 0: on one line. 0 or -ENOMEM. */
int dr_json_write(const json_t *doc, FILE *f, unsigned indent);

/* -------------------------------- baseline -------------------------------- */

/* A result document written by --json=FILE or --save-baseline. At most 64 MiB. -EBADMSG: not
 * JSON, another schema, or no bandwidth in it. The caller owns *out. */
int dr_baseline_load(const char *path, json_t **out, struct dr_err *e) DR_MUST_CHECK;

/* --------------------------------- texts --------------------------------- */

/*
 * CSV after RFC 4180 but for the line end, which is "\n": one flat table, a header, one row for each
 * bandwidth, total, cell and matrix-nic (--matrix), nic, latency, fault and interval. Columns that
 * a kind of row does not have are empty, as is what is unknown. Column "record" says which kind. Names are those of the JSON document; rtt_us.p50 is rtt_us_p50. In latency rows
 * message_bytes is what the document calls bytes. 0 or -ENOMEM.
 */
int dr_csv_write(const struct dr_record *rec, FILE *f);

/*
 * Prometheus text format 0.0.4 for the textfile collector and /metrics: no timestamps, base units
 * (bytes, seconds), every series with the label peer. What is unknown has no sample; last_run_* only
 * once there is a verdict. 0 or -ENOMEM.
 */
int dr_prom_write(const struct dr_record *rec, FILE *f);

/* ---------------------------- tables for people ---------------------------- */

void dr_table_print(const struct dr_record *rec, FILE *f);
/* Effective options, rails and GPU map, before the run. */
void dr_table_header(const struct dr_record *rec, FILE *f);
void dr_table_interval(const struct dr_interval_row *row, FILE *f);
void dr_table_fault(const struct dr_fault_row *row, FILE *f);

/* --------------------------------- metrics --------------------------------- */

/* An HTTP server in a thread of its own that answers GET /metrics with the text last published. */
struct dr_metrics;
/* "ADDR:PORT", "[V6]:PORT", ":PORT" (all addresses). -EINVAL: not that; -EADDRINUSE and others. */
int dr_metrics_start(const char *listen, struct dr_metrics **out, struct dr_err *e) DR_MUST_CHECK;
uint16_t dr_metrics_port(const struct dr_metrics *m);
/* The text is copied; any thread. Without memory the old text stays. */
void dr_metrics_publish(struct dr_metrics *m, const char *text, size_t len);
void dr_metrics_stop(struct dr_metrics *m); /* NULL is allowed */

#endif
