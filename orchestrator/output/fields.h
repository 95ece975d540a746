/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OUTPUT_FIELDS_H
#define DR_ORCHESTRATOR_OUTPUT_FIELDS_H

#include "base/fields.h"
#include "orchestrator/output/record.h"

#include <stdio.h>

/*
 * The schema of the record: a table for each row (rows.h), a dr_row_type for each list. From these come the result
 * document, the peer's part, the stream, CSV, Prometheus, baselines and the JSON Schema. A new sort of row is
 * declared in rows.h, has its list in record.h, its row type and its line in dr_record_fields in fields.c.
 */

/* A field in other outputs than JSON (dr_field.out). */
struct dr_field_out {
	const char *label; /* Prometheus: a label of every metric of the row */
	/* Prometheus: its metric; help stands at the first field of a metric. "_total": a counter of a DR_ROW_OWN row, with a
	 * label quantile a summary, an array of bins (dr_bin_fields) a histogram, else a gauge. Values in base units (bytes, seconds, cores). */
	const char *metric, *help;
	const char *extra, *value; /* a label of this field alone */
	const char *suffix;	   /* after the metric's name: "_sum" */
	const char *csv;	   /* column; NULL: the field's name */
};
enum { DR_F_NO_CSV = DR_F_FLAG_FIRST };

enum dr_row_flags {
	DR_ROW_REPLACE =
		1, /* a row with the key of another replaces it; else it fills in what is unknown */
	DR_ROW_KEEP = 2,     /* stays at dr_record_reset */
	DR_ROW_PART_NEW = 4, /* in the peer's part: rows added since the last one */
	DR_ROW_PART_ALL = 8, /* in the peer's part: all rows, as they may have changed */
	DR_ROW_SINGLE = 16,  /* not a list: one struct in the record */
	DR_ROW_OWN = 32,     /* of this process, whoever its peer is: no label peer */
	/* `max` counts for each of these that the run has (dr_row_bounds). */
	DR_ROW_OF_GPU = 64,
	DR_ROW_OF_RAIL = 128,
	DR_ROW_OF_CHANNEL = 256,
};
struct dr_row_type {
	const struct dr_fields *fields;
	size_t off; /* of the DR_LIST in struct dr_record */
	unsigned flags;
	size_t max;	   /* rows; 0: DR_RECORD_LIST_MAX alone bounds them */
	const char *csv;   /* name of the row in CSV; NULL: not there */
	const char *event; /* name in the stream; NULL: not there */
	/* For people, while the run lasts; NULL: none. With -v, all the row has to say; without,
	 * it is there only if always, or if intervals are wanted and it is one. */
	void (*line)(const void *row, bool all, FILE *f);
	bool always, interval;
	/* Computes what follows from the row's other fields; after each add. */
	void (*settle)(void *row);
};
extern const struct dr_row_type dr_row_types[];
extern const size_t dr_n_row_types;
/* The list at that offset. */
const struct dr_row_type *dr_row_type_at(size_t off);
/* How many rows the list may have. */
size_t dr_row_type_max(const struct dr_row_type *t, const struct dr_record *rec);
/* The rows of that type; *n: how many. */
const void *dr_row_type_rows(const struct dr_row_type *t, const struct dr_record *rec, size_t *n);

/* The part of the document (dr_record_fields) that "result" in the stream has. */
extern const struct dr_fields dr_result_fields;

extern const char *const dr_end_names[],
	*const dr_direction_names[],
		*const dr_verdict_names[],
			*const dr_fault_dir_names[],
				*const dr_matrix_finding_names[],
					*const dr_phase_names[],
						*const dr_rail_state_names[],
							*const dr_reason_names[],
								*const dr_figure_names[],
									*const dr_comparison_names
										[];

#endif
