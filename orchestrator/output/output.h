/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_OUTPUT_H
#define DR_ORCHESTRATOR_OUTPUT_OUTPUT_H

#include "base/opts.h"
#include "orchestrator/output/record.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * Where the results go. A session makes one dr_output right after the options are parsed, tells it what
 * happens, and ends with dr_output_finish on every exit path. A reader never sees half of a file.
 */
enum { DR_OUTPUT_FILES_MAX = 8 };
/* Paths of the files written at the end, in the order of dr_output_group; NULL: not wanted. */
struct dr_output_files {
	const char *path[DR_OUTPUT_FILES_MAX];
	struct dr_prom_labels labels;
};
/* Their options, for these commands (a baseline: those that judge); the target is a struct
 * dr_output_files. */
const struct dr_opt_group *dr_output_group(unsigned commands, unsigned judging);

struct dr_output_options {
	bool json_stdout;      /* --json: document to stdout, tables to stderr */
	const char *json_path; /* --json=FILE */
	bool json_stream; /* --json-stream: one event object a line on stdout, tables to stderr */
	struct dr_output_files files;
	const char *metrics_listen; /* ADDR:PORT, [V6]:PORT; port 0: any (dr_output_metrics_port) */
	const struct dr_networks *metrics_allow; /* who may read them; NULL: all */
	const char *baseline_path;
	const char *options; /* for the header: "name=value ..."; NULL: all of the record */
	bool quiet;	     /* the verdict alone; no progress line */
	bool live;	     /* the progress line all the same */
	bool tables;	     /* all tables, and a line of each interval and cell */
	bool intervals;	     /* a line of each interval */
	bool no_tables;	     /* not even the final ones: the run did not begin */
	FILE *out, *err;     /* NULL: stdout, stderr */
};

struct dr_output;
/*
 * Probes every path, reads the baseline and starts the metrics listener. Failure is exit status 2 (DR_EXIT_ENV) unless
 * -EINVAL, which is 1 (bad ADDR:PORT).
 * The strings must outlive it.
 */
int dr_output_open(const struct dr_output_options *o, struct dr_output **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Could each file of the run still be written, by this user with these rights? As dr_output_open; leaves nothing behind. */
int dr_output_probe(const struct dr_output *o, struct dr_err *e) DR_MUST_CHECK;
/* --metrics-listen answers from now on, in a thread of its own. Once, after the process has given up its rights: it reads
 * bytes of strangers. -ENOMEM. */
int dr_output_serve(struct dr_output *o, struct dr_err *e) DR_MUST_CHECK;
/* After an error before the run, in the options or of dr_output_open: writes what --json,
 * --json-stream, --prom and --trace want and what can be written, and no table; no file if the
 * status is DR_EXIT_USAGE. Returns the exit status. */
int dr_output_refuse(const struct dr_output_options *o, struct dr_record *rec, int status,
	const struct dr_err *e);
/* The baseline that was read, for struct dr_thresholds; NULL: none. */
const json_t *dr_output_baseline(const struct dr_output *o);
/* Do the files of --baseline and --save-baseline measure what this run does? The GPUs are those of the record or, while
 * it has none, these n_gpus (0: not known yet). -EEXIST: a file does not; the text names the differences. */
int dr_output_check_baselines(const struct dr_output *o, const struct dr_record *rec,
	const unsigned *gpus, size_t n_gpus, struct dr_err *e) DR_MUST_CHECK;
/* Are all tables wanted, not only answers? */
bool dr_output_has_tables(const struct dr_output *o);
/* Is a document or a stream wanted? */
bool dr_output_is_json(const struct dr_output *o);
/* Will the result of a run that passes become a baseline? */
bool dr_output_saves_baseline(const struct dr_output *o);
/* After dr_output_finish: how many runs the file of --save-baseline has now; 0: this run was not added. */
int64_t dr_output_saved(const struct dr_output *o);
/* Port of --metrics-listen; 0: it was not given. */
uint16_t dr_output_metrics_port(const struct dr_output *o);
/* Where people's tables go: stderr when stdout carries JSON. */
FILE *dr_output_tables(const struct dr_output *o);
/* The text of an error that ends the run, on standard error (dr_complain). Not where that is the terminal that the
 * tables go to: their last lines have the errors of the record. */
void dr_output_complain(const struct dr_output *o, const char *text);
/* Sentences there, in lines as wide as the screen, the further ones indented. */
void dr_output_text(struct dr_output *o, const char *text);

/* The run begins, options are effective: "start" line of the stream, header for people. */
void dr_output_start(struct dr_output *o, struct dr_record *rec);
/* dr_output_row(o, faults, &row): the row's line of the stream, and its line for people, if it has
 * one (struct dr_row_type). Call it after dr_record_add. row NULL: nothing. */
#define dr_output_row(o, list, row)                                                                \
	dr_output_row_at((o),                                                                      \
		offsetof(struct dr_record, list) +                                                 \
			0 * sizeof((row) == ((struct dr_record *)NULL)->list.v),                   \
		(row))
void dr_output_row_at(struct dr_output *o, size_t list_off, const void *row);
/* A line for people while the run lasts; after dr_log_set_json(true) also in the log, with this component. */
void dr_output_line(struct dr_output *o, const char *component, const char *text);
/* "result" of the stream: a phase is over. Publishes the live metrics too. */
void dr_output_result(struct dr_output *o, struct dr_record *rec);
/* Live figures for /metrics; cheap enough for once a second. */
void dr_output_publish(struct dr_output *o, struct dr_record *rec);
/* One line that is overwritten (\r), only when stderr is a terminal; NULL erases it. */
void dr_output_progress(struct dr_output *o, const char *line);

/*
 * Judge the record (dr_record_verdict) and write everything: tables, JSON, CSV, Prometheus, baseline,
 * the stream's "end". What cannot be written is reported on stderr, in the record's errors, and makes
 * the exit status 2 unless it is worse already. Returns the final exit status. Once a run; a server
 * calls it for each client (files are replaced, stdout documents follow each other).
 */
int dr_output_finish(struct dr_output *o, struct dr_record *rec, const struct dr_thresholds *t);
/* NULL is allowed. */
void dr_output_close(struct dr_output *o);

#endif
