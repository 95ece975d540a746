/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "base/mem.h"
#include "base/opts_priv.h"
#include "base/units.h"

/* The command line. getopt_long finds the options; error messages are made here (opterr is 0). */

/* getopt_long returns ROW_BASE + i for row i; above any character. */
enum { ROW_BASE = 1000 };

struct getopt_tables {
	char shorts[256];
	struct option *longs;
};

static int make_tables(const struct dr_opts *o, unsigned command, struct getopt_tables *t)
{
	struct option *l = dr_calloc(o->n + 1, sizeof(*l));
	char *s = t->shorts;

	if (!l)
		return -ENOMEM;
	t->longs = l;
	*s++ = ':';
	for (size_t i = 0; i < o->n; i++) {
		const struct dr_opt *row = o->value[i].row;
		int flag = row->kind == DR_OPT_FLAG, optional = flag || row->implied;

		if (!(row->commands & command))
			continue;
		*l++ = (struct option){ .name = row->name,
			.has_arg = optional ? optional_argument : required_argument,
			.val = ROW_BASE + (int)i };
		if (!row->short_name)
			continue;
		*s++ = row->short_name;
		/* "-1q" is two flags: a short flag takes no argument. */
		for (int k = flag ? 0 : row->implied ? 2 : 1; k; k--)
			*s++ = ':';
	}
	*s = '\0';
	dr_assert(s < t->shorts + sizeof(t->shorts));
	return 0;
}

static const char *command_name(const struct dr_opts *o, unsigned command)
{
	for (const struct dr_opt_command *c = o->spec.commands; c && c->name; c++)
		if (c->bit & command)
			return c->name;
	return o->spec.program;
}

/* word: the argument as typed, "--foo=bar". */
static int not_for(const struct dr_opts *o, unsigned command, const char *word, struct dr_err *e)
{
	return dr_err_set(e, -EINVAL, "option \"%.*s\" is not for \"%s\"; see %s %s --help-all",
		(int)strcspn(word, "="), word, command_name(o, command), o->spec.program,
		command_name(o, command));
}

/* word: the argument as typed, "--foo=bar" or "-abc". */
static int unknown_long(
	const struct dr_opts *o, unsigned command, const char *word, struct dr_err *e)
{
	size_t len = strcspn(word + 2, "=");
	char name[64], several[128] = "";

	snprintf(name, sizeof(name), "%.*s", (int)DR_MIN(len, sizeof(name) - 1), word + 2);
	for (size_t k = 0; k < o->n && len; k++) {
		const struct dr_opt *row = o->value[k].row;

		if ((row->commands & command) && strncmp(row->name, name, len) == 0)
			dr_append(several, sizeof(several), "%s--%s", several[0] ? ", " : "",
				row->name);
	}
	if (several[0])
		return dr_err_set(e, -EINVAL, "option \"--%s\" is ambiguous: %s", name, several);
	if (dr_opts_find(o, name, strlen(name)) >= 0)
		return not_for(o, command, word, e);
	const char *hint = dr_opts_nearest(o, command, name);
	return dr_err_set(e, -EINVAL, "unknown option \"--%s\"%s%s%s see %s %s --help-all", name,
		hint ? "; did you mean \"--" : ";", hint ? hint : "", hint ? "\"?" : "",
		o->spec.program, command_name(o, command));
}

/* The long option that a word like "-tests" stands for, whose first letter is no short option; NULL: none. getopt has
 * read the letter only, so that the word is still the next one. */
static const char *meant_long(const struct dr_opts *o, unsigned command)
{
	const char *word = o->argv[optind];
	char name[64];

	if (!word || word[0] != '-' || word[1] != optopt || strlen(word) < 4)
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 1, "="), word + 1);
	return dr_opts_nearest(o, command, name);
}

static int refused(
	const struct dr_opts *o, unsigned command, int c, const char *word, struct dr_err *e)
{
	if (c == ':' && optopt >= ROW_BASE)
		return dr_err_set(e, -EINVAL, "--%s needs %s %s; see %s %s --help-all",
			o->value[optopt - ROW_BASE].row->name,
			strchr("AEIOU", o->value[optopt - ROW_BASE].row->arg[0]) ? "an" : "a",
			o->value[optopt - ROW_BASE].row->arg, o->spec.program,
			command_name(o, command));
	if (c == ':')
		return dr_err_set(e, -EINVAL, "-%c needs an argument; see %s %s --help-all", optopt,
			o->spec.program, command_name(o, command));
	if (optopt == 0 || optopt >= ROW_BASE)
		return unknown_long(o, command, word, e);
	const char *hint = meant_long(o, command);
	return dr_err_set(e, -EINVAL, "unknown option \"-%c\"%s%s%s see %s %s --help-all",
		isprint(optopt) ? optopt : '?', hint ? "; did you mean \"--" : ";",
		hint ? hint : "", hint ? "\"?" : "", o->spec.program, command_name(o, command));
}

/* A long option behind a single dash would be taken for short ones: "-gpus" for -g with the value "pus". */
static int check_dashes(
	const struct dr_opts *o, unsigned command, int argc, char *const argv[], struct dr_err *e)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (argv[i][0] != '-')
			continue;
		const char *name = argv[i] + 1;
		size_t len = strcspn(name, "=");
		long row = len > 2 ? dr_opts_find(o, name, len) : -1;

		if (row >= 0 && (o->value[row].row->commands & command))
			return dr_err_set(e, -EINVAL,
				"unknown option \"-%.*s\"; did you mean \"--%.*s\"? see %s %s --help-all",
				(int)len, name, (int)len, name, o->spec.program,
				command_name(o, command));
	}
	return 0;
}

static long row_of(const struct dr_opts *o, unsigned command, int c)
{
	if (c >= ROW_BASE)
		return c - ROW_BASE;
	for (size_t i = 0; i < o->n; i++)
		if (o->value[i].row->short_name == c && (o->value[i].row->commands & command))
			return (long)i;
	dr_assert(!"getopt returns what is in its tables");
	return -1;
}

/* The word of the long option that getopt has just returned. An argument of its own is behind it. */
static const char *long_word(const struct dr_opts *o)
{
	return o->argv[optarg == o->argv[optind - 1] ? optind - 2 : optind - 1];
}

/* getopt took the word for an abbreviation, but it is the whole name of an option of other commands. */
static bool is_other_name(const struct dr_opts *o, const struct dr_opt *row, const char *word)
{
	size_t len = strcspn(word + 2, "=");

	return len != strlen(row->name) && dr_opts_find(o, word + 2, len) >= 0;
}

static int parse_options(struct dr_opts *o, unsigned command, int argc,
	const struct getopt_tables *t, struct dr_err *e)
{
	char label[96];
	int rc = 0;

	rc = check_dashes(o, command, argc, o->argv, e);
	opterr = 0;
	optind = 0; /* glibc: start over */
	for (;;) {
		int c = getopt_long(argc, o->argv, t->shorts, t->longs, NULL);
		struct dr_err *first = rc ? NULL : e;
		int now;

		if (c == -1)
			break;
		if (c == '?' || c == ':') {
			now = refused(o, command, c, o->argv[optind - 1], first);
			rc = rc ? rc : now;
			continue;
		}
		long i = row_of(o, command, c);
		const struct dr_opt *row = o->value[i].row;
		if (c >= ROW_BASE && is_other_name(o, row, long_word(o))) {
			now = not_for(o, command, long_word(o), first);
			rc = rc ? rc : now;
			continue;
		}
		if (c >= ROW_BASE)
			snprintf(label, sizeof(label), "--%s", row->name);
		else
			snprintf(label, sizeof(label), "-%c", c);
		now = dr_opts_set(o, (size_t)i, DR_SRC_ARGV, label,
			optarg			   ? optarg
			: row->kind == DR_OPT_FLAG ? "on"
						   : row->implied,
			first);
		rc = rc ? rc : now;
	}
	return rc;
}

int dr_opts_parse(
	struct dr_opts *o, unsigned command, int argc, char *const argv[], struct dr_err *e)
{
	struct getopt_tables t;
	char **copy = dr_calloc((size_t)argc + 1, sizeof(*copy));

	if (!copy || make_tables(o, command, &t)) {
		dr_free(copy);
		return dr_err_set(e, -ENOMEM, "options: out of memory");
	}
	memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	dr_free(o->argv);
	o->argv = copy;
	o->typed = argv;
	int rc = parse_options(o, command, argc, &t, e);
	dr_free(t.longs);
	o->argc = argc;
	o->positional = optind;
	return rc;
}

const char *dr_opts_detached(const struct dr_opts *o, const char *arg)
{
	for (int i = 2; i < o->argc; i++) {
		const char *before = o->typed[i - 1];
		long row = strncmp(before, "--", 2)
				   ? -1
				   : dr_opts_find(o, before + 2, strlen(before + 2));

		if (o->typed[i] == arg && row >= 0 && o->value[row].row->implied &&
			o->value[row].row->kind == DR_OPT_STRING)
			return o->value[row].row->name;
	}
	return NULL;
}

char **dr_opts_positional(const struct dr_opts *o, int *n)
{
	*n = o->argc - o->positional;
	return o->argv + o->positional;
}
