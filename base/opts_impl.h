/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_OPTS_IMPL_H
#define DR_BASE_OPTS_IMPL_H

#include "base/opts.h"

/* Shared by opts.c (the values), opts_argv.c and opts_json.c (where they come from) and opts_print.c
 * (shows them); nobody else includes this. */

enum dr_opt_source { DR_SRC_UNSET, DR_SRC_DEFAULT, DR_SRC_CONFIG, DR_SRC_ENV, DR_SRC_ARGV };

/* Texts that were stored, oldest first: one, or one per occurrence of a repeated option. */
struct dr_opt_text {
	struct dr_opt_text *next;
	char text[];
};

/* A row of the table, in the order of help, and what it has. */
struct dr_opt_value {
	const struct dr_opt *row;
	const char *group;
	enum dr_opt_source source;
	struct dr_opt_text *texts;
};

struct dr_opts {
	struct dr_opts_spec spec;
	void *target;
	struct dr_opt_value *value; /* one per row */
	size_t n;
	struct dr_opt_text *old; /* replaced, but the target may still point to them */
	char **argv;		 /* getopt_long permutes it */
};

#define DR_OPT_ENV_MAX 64
/* "DUALRAIL_HOLD_DOWN" */
void dr_opt_env_name(const struct dr_opts *o, const struct dr_opt *row, char *buf, size_t len);

/* The row of that name (len bytes of it); -1. */
long dr_opts_find(const struct dr_opts *o, const char *name, size_t len);
/* For "did you mean": the name of the command's that is nearest, if it is near; NULL. */
const char *dr_opts_nearest(const struct dr_opts *o, unsigned command, const char *name);
/* Row i takes text, unless a stronger source holds it. label: how the user wrote it, e.g. "--size", for
 * the error text. */
int dr_opts_set(struct dr_opts *o, size_t i, enum dr_opt_source source, const char *label,
	const char *text, struct dr_err *e) DR_MUST_CHECK;

#endif
