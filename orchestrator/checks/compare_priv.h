/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_COMPARE_PRIV_H
#define DR_ORCHESTRATOR_CHECKS_COMPARE_PRIV_H

#include "orchestrator/checks/compare.h"
#include "orchestrator/figures/shift.h"
#include "orchestrator/output/fields.h"

/*
 * Method. Each document gives one value of each of its figures. A figure's change is the factor new / old (shift.h) with its
 * limits. A figure is worse if the limits exclude "no change" and the factor is beyond --tolerance.
 *
 * Multiplicity. The chance that any figure of runs that do not differ is called worse is at most COMPARE_LEVEL (1 %), and
 * likewise for better: the groups share this level, in a group its figures do, evenly (weighted Bonferroni). The totals have
 * half of it, so that hundreds of pairs do not make a loss of all GPUs harder to find.
 */
#define COMPARE_LEVEL 0.01

enum compare_group {
	GROUP_TOTAL,
	GROUP_GPU,
	GROUP_NIC,
	GROUP_PAIR,
	GROUP_LATENCY,
	GROUP_GAP,
	GROUP_CPU,
	GROUPS
};
enum compare_result {
	RESULT_SAME,
	RESULT_WORSE,
	RESULT_BETTER,
	RESULT_FEW, /* runs */
	RESULT_OLD, /* only the old runs have it */
	RESULT_NEW,
	RESULTS
};
enum compare_quantity {
	QUANTITY_BANDWIDTH,
	QUANTITY_P50,
	QUANTITY_P90,
	QUANTITY_P99,
	QUANTITY_P999,
	QUANTITY_GAP_P50,
	QUANTITY_GAP_P99,
	QUANTITY_FAILBACK_GAP,
	QUANTITY_CPU
};
enum { SIDE_OLD, SIDE_NEW };

/* The values of a figure on one side; sorted after compare_judge. */
struct compare_values {
	DR_LIST(double) values;
	double median, least, most;
};
struct compare_figure {
	int group, quantity, direction, end, dir;
	int64_t gpu, message_bytes;
	char nic[64], kind[24];
	const char *unit;
	struct compare_values of[2];
	struct dr_shift shift;
	double level; /* of one side */
	int64_t runs_needed;
	int result;
};
extern const struct dr_fields compare_figure_fields;
extern const char *const compare_unit_names[]; /* of each quantity */
/* A group of documents. */
struct compare_side {
	char *const *path;
	int n;
	size_t runs; /* that are compared */
	char versions[96], first[40], last[40];
};
struct compare_difference {
	char was[112], is[112], file[112];
};
struct compare_note {
	char file[112], text[256];
};
struct compare {
	double tolerance; /* 0.01: 1 % */
	bool allow_differences;
	struct compare_side side[2];
	DR_LIST(struct compare_figure) figures;
	DR_LIST(struct compare_difference) differences;
	DR_LIST(struct compare_note) notes;
	size_t results[RESULTS];
	bool trials; /* one document on each side: the trials of its faults are the values of gaps */
	bool no_memory;
	int status;
};

/* Appends a row; NULL: no memory, which is noted. */
#define compare_add(c, list, row)                                                                  \
	compare_add_row((c), (void *)(list), 1 ? (row) : (list)->v, sizeof(*(row)))
void *compare_add_row(struct compare *c, struct dr_list *list, const void *row, size_t size);
/* compare_load.c */
/* Reads all documents. 0, or -errno with the file that cannot be compared. */
int compare_load(struct compare *c, struct dr_err *e) DR_MUST_CHECK;
void compare_note(struct compare *c, const char *file, const char *fmt, ...) DR_PRINTF(3, 4);
/* compare_figures.c */
/* Adds the figures of one run. */
void compare_take(struct compare *c, int side, const char *file, struct dr_record *rec);
/* compare.c */
void compare_judge(struct compare *c);
void compare_fini(struct compare *c);
/* compare_print.c */
void compare_print(const struct compare *c, bool all, FILE *f);
json_t *compare_json(const struct compare *c);

#endif
