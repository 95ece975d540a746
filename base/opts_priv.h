/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_OPTS_PRIV_H
#define DR_BASE_OPTS_PRIV_H

#include "base/opts.h"

#include <sys/queue.h>

/* Shared by opts.c (values, defaults, environment), opts_argv.c (command line), opts_json.c (configuration file) and
 * opts_print.c (help and echo), opts_man.c and opts_complete.c. */

enum dr_opt_source { DR_SRC_UNSET, DR_SRC_DEFAULT, DR_SRC_CONFIG, DR_SRC_ENV, DR_SRC_ARGV };

/* Texts that were stored, oldest first: one, or one per occurrence of a repeated option. */
struct dr_opt_text {
	STAILQ_ENTRY(dr_opt_text) next;
	char text[];
};
STAILQ_HEAD(dr_opt_texts, dr_opt_text);

/* A row of the table, in the order of help, and its value. */
struct dr_opt_value {
	const struct dr_opt *row;
	const char *group;
	void *target; /* the struct that row->offset counts in */
	enum dr_opt_source source;
	struct dr_opt_texts texts;
};

struct dr_opts {
	struct dr_opts_spec spec;
	struct dr_opt_value *value; /* one per row */
	size_t n;
	struct dr_opt_texts old; /* replaced, but the target may still point to them */
	char *const *typed;	 /* the caller's */
	char **argv;		 /* a copy, permuted by getopt_long: positional arguments last */
	int argc, positional;	 /* index of the first positional argument */
};

enum { DR_OPT_ENV_MAX = 64 };
/* "DUALRAIL_HOLD_DOWN" */
void dr_opt_env_name(const struct dr_opts *o, const struct dr_opt *row, char *buf, size_t len);

/* DR_OPT_HELP_MAX: longest help of a row with its help_more. */
enum { DR_OPT_HELP_MAX = 1500 };
/* The help of a row with its help_more, without its default. */
void dr_opt_help_text(const struct dr_opt *row, char *buf, size_t len);

/* The row of that name (len bytes of it); -1. */
long dr_opts_find(const struct dr_opts *o, const char *name, size_t len);
/* For "did you mean": the most similar option of the command; NULL: none is similar. */
const char *dr_opts_nearest(const struct dr_opts *o, unsigned command, const char *name);
/* Set row i from text, unless a source of higher precedence has set it. label: the user's spelling, e.g. "--size",
 * for the error text. */
int dr_opts_set(struct dr_opts *o, size_t i, enum dr_opt_source source, const char *label,
	const char *text, struct dr_err *e) DR_MUST_CHECK;

/* Drops the texts of row i; of a CUSTOM row also its value. */
int dr_opts_forget(struct dr_opts *o, size_t i, struct dr_err *e) DR_MUST_CHECK;

#endif
