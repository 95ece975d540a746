/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_OPTS_H
#define DR_BASE_OPTS_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * One table of options. It defines the parser (getopt_long), the names in the environment and in the configuration
 * file, --help, the man page, the completion scripts and the JSON echo.
 *
 * The command line has precedence over the environment, the environment over the configuration file, the file over
 * the default. The functions below may be called in any order (--config must be known before the file is read). A
 * value from a source of lower precedence than the present one is ignored. All sources use the same parser.
 *
 * One thread. The table and everything it points to must outlive the dr_opts.
 */
struct json_t;
struct dr_opts;
struct dr_opt;

enum { DR_OPT_LIST_MAX = 256 };

/* Type at the row's offset in the target struct. */
enum dr_opt_kind {
	DR_OPT_FLAG,	 /* bool; without a value: on; "--name=off" switches it off */
	DR_OPT_STRING,	 /* const char *, owned by the dr_opts; NULL without default */
	DR_OPT_SIZE,	 /* uint64_t, bytes */
	DR_OPT_DURATION, /* int64_t, ns */
	DR_OPT_RATE,	 /* double, bits per second */
	DR_OPT_UINT,	 /* uint64_t */
	DR_OPT_DOUBLE,	 /* double */
	DR_OPT_CHOICE,	 /* int, index into `choices` */
	DR_OPT_LIST,	 /* struct dr_opt_list; `max` is the largest value */
	DR_OPT_CUSTOM,	 /* defined by parse() */
};

struct dr_opt_list {
	size_t n;
	unsigned v[DR_OPT_LIST_MAX];
};

/*
 * CUSTOM: parse one occurrence into dst (target + offset). text is NULL when the stored value must be discarded,
 * because a source of higher precedence follows, or a later occurrence of an option that is not `repeat`. On failure
 * the text in e reads `"VALUE" is not ...; use e.g. ...`; the caller prefixes the option's name. text lives as long
 * as the dr_opts.
 */
typedef int (*dr_opt_parse_fn)(
	const struct dr_opt *row, const char *text, void *dst, struct dr_err *e);

/* A file that is added to may be read by another option, too. */
enum dr_opt_file { DR_OPT_NO_FILE, DR_OPT_READ, DR_OPT_ADD, DR_OPT_WRITE };

struct dr_opt {
	const char *name; /* "hold-down": without dashes, also the configuration key */
	char short_name;  /* 0: none */
	enum dr_opt_kind kind;
	const char *arg; /* placeholder in help, "SIZE"; not used by FLAG */
	const char *def; /* default as text; NULL: zeroed, or nothing for CUSTOM */
	const char
		*implied;  /* not NULL: the argument is optional ("--json"); this is its default */
	const char *unit;  /* DURATION: "seconds", for help; NULL: a bare number is refused */
	const char *help;  /* one or more sentences; required */
	const char *brief; /* for --help, which has common options only; NULL: it is none */
	/* Appends text to help that is known at run time only; NULL: none. buf is an empty string at first. */
	void (*help_more)(char *buf, size_t len);
	const char *choices; /* CHOICE: "a|b|c" */
	/* For completion, of a value that is no CHOICE: appends its words, "a|b". NULL: those words of arg that have
	 * no capitals ("INDEX|auto"). A value of arg "FILE..." or "DIR" is completed to files. */
	void (*words)(char *buf, size_t len);
	const char *env[3]; /* aliases beside <PROGRAM>_<NAME>, which every option has */
	unsigned commands;  /* mask, see struct dr_opt_command */
	bool repeat;	    /* CUSTOM: may be given several times, parse() is called for each */
	bool list; /* CUSTOM: a configuration file may give the items of "a,b" as an array */
	enum dr_opt_file file; /* the value is the name of one */
	bool no_config;	       /* command line only, and not echoed: --config, --help, --version */
	size_t offset;
	double min, max; /* of numbers, sizes (bytes), durations (ns), rates; both 0: no limits */
	dr_opt_parse_fn parse;
};

/* Pairs of texts; `a` of NULL ends a list. */
struct dr_opt_pair {
	const char *a, *b;
};

/* The subcommands, for messages, help and completion; ends with a name of NULL. */
struct dr_opt_command {
	const char *name;
	unsigned bit;		  /* 0: has no options of the table */
	const char *args;	  /* "HOST [options]" */
	const char *help, *brief; /* brief: for the list of commands */
	/* May be NULL: defaults of this command that differ from the rows' (long name, value); what is done and the
	 * command line without the program. */
	const struct dr_opt_pair *defaults, *examples;
};

/* What the man page has beside the table. Sections and exit statuses are pairs: heading or status, text. */
struct dr_opt_manual {
	const char *version, *purpose;	    /* purpose: without a full stop */
	const struct dr_opt_pair *sections; /* behind the synopsis, "DESCRIPTION" first */
	const struct dr_opt_pair *statuses;
	const struct dr_opt_pair *files,
		*notes;	      /* name and text; sections at the end. NULL: none */
	const char *see_also; /* "ip(8), tc(8)" */
};

/* Rows under one heading of help and man page. */
struct dr_opt_group {
	const char *title;
	const struct dr_opt *rows;
	size_t n;
};

struct dr_opts_spec {
	const char *program; /* "dualrail"; upper case of it starts the environment names */
	const struct dr_opt_group *const *groups; /* in the order of help; NULL ends them */
	const struct dr_opt_command *commands;
	const struct dr_opt_manual *manual; /* required by dr_opts_man */
	/* The struct that each group's offsets refer to, in the order of groups. NULL, or a NULL entry: the
	 * target passed to dr_opts_create. The structs must outlive the dr_opts, the arrays need not. */
	void *const *targets;
	/* The rows are environment variables ("NCCL_IB_TC"); there is no command line. */
	bool variables;
	char *const *env; /* "NAME=VALUE", ended by NULL; NULL: the process's own */
};

/* target: the caller's struct, zeroed; strings in it live as long as the dr_opts. -ENOMEM. */
int dr_opts_create(struct dr_opts **out, const struct dr_opts_spec *spec, void *target)
	DR_MUST_CHECK;
void dr_opts_destroy(struct dr_opts *o);

/* command: one bit. All return 0, -EINVAL or -ERANGE (bad value, unknown option) or -ENOMEM. */
int dr_opts_defaults(struct dr_opts *o, unsigned command, struct dr_err *e) DR_MUST_CHECK;
/* Variables of options that the command does not take are ignored; an empty variable counts as not set, and so does one
 * that Kubernetes has set for a Service of the program's name ("tcp://..."). */
int dr_opts_from_env(struct dr_opts *o, unsigned command, struct dr_err *e) DR_MUST_CHECK;
/* The value of a variable where dr_opts_from_env looks; NULL: not set, as above. */
const char *dr_opts_variable(const struct dr_opts *o, const char *name);
/* The default of a row for a command (one bit; 0: the row's own); NULL: none. */
const char *dr_opt_default(const struct dr_opts *o, const struct dr_opt *row, unsigned command);
/*
 * Variables that begin with the program's name and set no option: misspelled ones, and those of options that only the
 * command line has. Writes a text about the next one, with the most similar variable. *at is 0 at first. False: no
 * more.
 */
bool dr_opts_next_stray_env(const struct dr_opts *o, size_t *at, char *buf, size_t len);
/* An object {"long-name": text | number | bool | [...]}. Keys of other commands are ignored, so that both ends can
 * share a file; null and unknown keys are errors. May be called for several files: a later one
 * replaces each option that it has. */
int dr_opts_from_json(struct dr_opts *o, unsigned command, const struct json_t *config,
	struct dr_err *e) DR_MUST_CHECK;
/* argv[0] is skipped and argv is not changed. Options may be abbreviated as long as that is unambiguous. After an
 * error, which e has, the rest is read all the same: the caller may need to know where results go. */
int dr_opts_parse(struct dr_opts *o, unsigned command, int argc, char *const argv[],
	struct dr_err *e) DR_MUST_CHECK;
/* -EINVAL: a file to be written is another one of the command as well, by device and inode or, if
 * it does not exist, by name; a device may be. inputs: n arguments that are files to be read. */
int dr_opts_check_files(const struct dr_opts *o, char *const *inputs, int n, struct dr_err *e)
	DR_MUST_CHECK;
/* The arguments that were no options, after dr_opts_parse: strings of its argv, *n of them. The array is
 * the dr_opts' own. */
char **dr_opts_positional(const struct dr_opts *o, int *n);

/* The option with an optional text ("--json") that is the word before `arg`, one of dr_opts_positional, in the argv of
 * dr_opts_parse, which must still be there: the value needed a "=". NULL: none. */
const char *dr_opts_detached(const struct dr_opts *o, const char *arg);

/* True when the option came from the command line, the environment or the configuration file. The
 * name must be in the table. */
bool dr_opts_given(const struct dr_opts *o, const char *name);
/* "command line", "environment", "config", "default" or "unset". */
const char *dr_opts_source(const struct dr_opts *o, const char *name);

/* What `program command --help` prints, the command's common options, or --help-all: all of them,
 * the forms of values, and examples. NULL: the commands. False: there is no such command. */
bool dr_opts_help(const struct dr_opts *o, const char *command, bool all, FILE *f);
/* For "did you mean": the most similar command; NULL: none is similar. */
const char *dr_opts_nearest_command(const struct dr_opt_command *c, const char *name);
/* The man page, man(7) source. */
void dr_opts_man(const struct dr_opts *o, FILE *f);
/* A completion script. shell: "bash"; others: -EINVAL. */
int dr_opts_complete(const struct dr_opts *o, const char *shell, FILE *f) DR_MUST_CHECK;

/* The effective value of each option that the command takes: bytes and counts as integers, rates and
 * ratios as reals, durations as text ("10ms"), lists as arrays, CUSTOM as the texts given; null:
 * not set. Reading the others with dr_opts_from_json gives the same values. A new reference; NULL:
 * out of memory. */
struct json_t *dr_opts_to_json(const struct dr_opts *o, unsigned command);
/* The same as "name=value" lines, of what has a value; control bytes in values are escaped as in C. */
void dr_opts_print_kv(const struct dr_opts *o, unsigned command, FILE *f);
/* The words of the text and a newline, in lines of at most `width` columns where words allow it.
 * f is in this column; further lines are indented by so many blanks. */
void dr_opts_wrap(FILE *f, const char *text, size_t column, size_t indent, size_t width);

#endif
