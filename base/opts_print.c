/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <jansson.h>
#include <string.h>

#include "base/fields.h"
#include "base/opts_priv.h"
#include "base/units.h"

/* --help and the echoes of the effective options, made from the table. */

enum { HELP_COLUMN = 30, HELP_WIDTH = 80, BRIEF_EXAMPLES = 5 };

static const void *at(const struct dr_opts *o, size_t i)
{
	return (const char *)o->value[i].target + o->value[i].row->offset;
}

static bool echoed(const struct dr_opt *row, unsigned command)
{
	return (row->commands & command) && !row->no_config;
}

/* "(bare number: seconds; default: 10ms)", or nothing. */
static void put_default(const struct dr_opt *row, const char *def, char *buf, size_t len)
{
	buf[0] = '\0';
	if (row->unit && def)
		snprintf(buf, len, " (bare number: %s; default: %s)", row->unit, def);
	else if (row->unit)
		snprintf(buf, len, " (bare number: %s)", row->unit);
	else if (def && row->kind != DR_OPT_FLAG)
		snprintf(buf, len, " (default: %s)", def);
}

static void put_brief_default(const struct dr_opt *row, const char *def, char *buf, size_t len)
{
	buf[0] = '\0';
	if (def && row->kind != DR_OPT_FLAG)
		snprintf(buf, len, " (%s%s)", def,
			row->unit && isdigit(def[strlen(def) - 1]) ? " s" : "");
}

void dr_opt_help_text(const struct dr_opt *row, char *buf, size_t len)
{
	char more[DR_OPT_HELP_MAX] = "";

	if (row->help_more)
		row->help_more(more, sizeof(more));
	snprintf(buf, len, "%s%s%s", row->help, *more ? " " : "", more);
}

void dr_opts_wrap(FILE *f, const char *text, size_t column, size_t indent, size_t width)
{
	const char *blank = "";

	for (; *(text += strspn(text, " ")); blank = " ") {
		size_t len = strcspn(text, " ");

		if (*blank && column + 1 + len > width) {
			fprintf(f, "\n%*s", (int)indent, "");
			column = indent;
			blank = "";
		}
		column += (size_t)fprintf(f, "%s%.*s", blank, (int)len, text);
		text += len;
	}
	fputc('\n', f);
}

static void print_help_row(
	const struct dr_opts *o, const struct dr_opt *row, unsigned command, bool all, FILE *f)
{
	char left[160], extra[256], text[DR_OPT_HELP_MAX];
	const char *arg = row->kind == DR_OPT_FLAG ? "" : row->arg;
	const char *open = !*arg ? "" : row->implied ? "[=" : " ";
	const char *close = *arg && row->implied ? "]" : "";
	char dash[8] = "    ";

	if (row->short_name)
		snprintf(dash, sizeof(dash), "-%c, ", row->short_name);
	snprintf(left, sizeof(left), "  %s--%s%s%s%s", dash, row->name, open, arg, close);
	if (all) {
		dr_opt_help_text(row, text, sizeof(text));
		put_default(row, dr_opt_default(o, row, command), extra, sizeof(extra));
	} else {
		snprintf(text, sizeof(text), "%s", row->brief);
		put_brief_default(row, dr_opt_default(o, row, command), extra, sizeof(extra));
	}
	dr_append(text, sizeof(text), "%s", extra);
	if (strlen(left) + 2 > HELP_COLUMN)
		fprintf(f, "%s\n%*s", left, HELP_COLUMN, "");
	else
		fprintf(f, "%-*s", HELP_COLUMN, left);
	dr_opts_wrap(f, text, HELP_COLUMN, HELP_COLUMN, HELP_WIDTH);
}

static void print_examples(const struct dr_opts *o, const struct dr_opt_command *c, FILE *f)
{
	for (const struct dr_opt_pair *x = c->examples; x && x->a; x++)
		fprintf(f, "  %s:\n    %s %s\n", x->a, o->spec.program, x->b);
}

/* How the placeholders in the options are written, for those that the command has. */
static void print_forms(const struct dr_opts *o, unsigned command, FILE *f)
{
	static const struct {
		enum dr_opt_kind kind;
		const char *text;
	} form[] = {
		{ DR_OPT_SIZE,
			"SIZE: bytes; K, M, G, T are powers of 1024, kB, MB, GB, TB powers of 1000" },
		{ DR_OPT_DURATION, "TIME: a number with ns, us, ms, s, m or h" },
		{ DR_OPT_RATE, "RATE: bit/s; K, M, G are powers of 1000" },
	};
	const char *title = "\nValues:\n";

	for (size_t k = 0; k < DR_ARRAY_LEN(form); k++)
		for (size_t i = 0; i < o->n; i++)
			if (o->value[i].row->kind == form[k].kind &&
				(o->value[i].row->commands & command)) {
				fprintf(f, "%s  %s\n", title, form[k].text);
				title = "";
				break;
			}
}

static void print_overview(const struct dr_opts *o, bool all, FILE *f)
{
	char left[160];

	fprintf(f, "Usage: %s COMMAND [options]\n\nCommands:\n", o->spec.program);
	for (const struct dr_opt_command *c = o->spec.commands; c && c->name; c++) {
		snprintf(left, sizeof(left), "  %s %s", c->name, c->args);
		fprintf(f, "%-*s  ", HELP_COLUMN - 2, left);
		if (strlen(left) > HELP_COLUMN - 2)
			fprintf(f, "\n%*s", HELP_COLUMN, "");
		dr_opts_wrap(f, all || !c->brief ? c->help : c->brief, HELP_COLUMN, HELP_COLUMN,
			HELP_WIDTH);
	}
	fprintf(f, "\n%s COMMAND --help lists common options, --help-all and man %s all.\n",
		o->spec.program, o->spec.program);
	fputs("\nExamples:\n", f);
	for (const struct dr_opt_command *c = o->spec.commands; c && c->name; c++) {
		struct dr_opt_command first = *c;
		struct dr_opt_pair one[2] = { { NULL, NULL }, { NULL, NULL } };

		if (!c->examples || (!all && c - o->spec.commands >= BRIEF_EXAMPLES))
			continue;
		one[0] = c->examples[0];
		first.examples = one;
		print_examples(o, &first, f);
	}
}

static void print_options(const struct dr_opts *o, unsigned command, bool all, FILE *f)
{
	const char *group = NULL;

	for (size_t i = 0; i < o->n; i++) {
		const struct dr_opt *row = o->value[i].row;

		if (!(row->commands & command) || (!all && !row->brief))
			continue;
		if (group != o->value[i].group)
			fprintf(f, "%s%s:\n", all || !group ? "\n" : "", o->value[i].group);
		group = o->value[i].group;
		print_help_row(o, row, command, all, f);
	}
}

static void print_environment(const struct dr_opts *o, unsigned command, FILE *f)
{
	char name[DR_OPT_ENV_MAX];

	for (size_t i = 0; i < o->n; i++) {
		const struct dr_opt *row = o->value[i].row;

		if (!(row->commands & command) || row->no_config)
			continue;
		dr_opt_env_name(o, row, name, sizeof(name));
		fprintf(f, "\nOptions can also be set in the environment, as %s for --%s.\n", name,
			row->name);
		return;
	}
}

static void print_command(
	const struct dr_opts *o, const struct dr_opt_command *c, bool all, FILE *f)
{
	fprintf(f, "Usage: %s %s %s\n\n", o->spec.program, c->name, c->args);
	dr_opts_wrap(f, all || !c->brief ? c->help : c->brief, 0, 0, HELP_WIDTH);
	if (c->bit) {
		print_options(o, c->bit, all, f);
		if (!all)
			return;
		print_forms(o, c->bit, f);
		print_environment(o, c->bit, f);
	}
	if (!c->examples)
		return;
	fputs("\nExamples:\n", f);
	print_examples(o, c, f);
}

bool dr_opts_help(const struct dr_opts *o, const char *command, bool all, FILE *f)
{
	const struct dr_opt_command *c = o->spec.commands;

	if (!command) {
		print_overview(o, all, f);
		return true;
	}
	while (c->name && strcmp(c->name, command) != 0)
		c++;
	if (c->name)
		print_command(o, c, all, f);
	return c->name;
}

static json_t *list_json(const struct dr_opt_list *list)
{
	json_t *array = json_array();

	for (size_t i = 0; array && i < list->n; i++)
		json_array_append_new(array, json_integer(list->v[i]));
	return array;
}

static json_t *texts_json(const struct dr_opt *row, const struct dr_opt_text *t)
{
	if (!row->repeat)
		return t ? dr_json_text(t->text) : json_null();
	json_t *array = json_array();
	for (; array && t; t = STAILQ_NEXT(t, next))
		json_array_append_new(array, dr_json_text(t->text));
	return array;
}

static json_t *value_json(const struct dr_opts *o, size_t i)
{
	const struct dr_opt *row = o->value[i].row;
	const void *v = at(o, i);
	char buf[128];

	switch (row->kind) {
	case DR_OPT_FLAG:
		return json_boolean(*(const bool *)v);
	case DR_OPT_STRING:
		return *(const char *const *)v ? dr_json_text(*(const char *const *)v)
					       : json_null();
	case DR_OPT_SIZE:
	case DR_OPT_UINT:
		if (o->value[i].source == DR_SRC_UNSET)
			return json_null();
		return json_integer((json_int_t) * (const uint64_t *)v);
	case DR_OPT_RATE:
	case DR_OPT_DOUBLE:
		if (o->value[i].source == DR_SRC_UNSET)
			return json_null();
		return json_real(*(const double *)v);
	case DR_OPT_DURATION:
		if (o->value[i].source == DR_SRC_UNSET)
			return json_null();
		dr_format_duration_exact(*(const int64_t *)v, buf, sizeof(buf));
		return json_string(buf);
	case DR_OPT_CHOICE:
		dr_format_choice(row->choices, *(const int *)v, buf, sizeof(buf));
		return json_string(buf);
	case DR_OPT_LIST:
		return o->value[i].source == DR_SRC_UNSET ? json_null() : list_json(v);
	case DR_OPT_CUSTOM:
		return texts_json(row, STAILQ_FIRST(&o->value[i].texts));
	}
	dr_assert(!"every kind is above");
	return NULL;
}

json_t *dr_opts_to_json(const struct dr_opts *o, unsigned command)
{
	json_t *all = json_object();

	for (size_t i = 0; all && i < o->n; i++) {
		if (!echoed(o->value[i].row, command))
			continue;
		if (json_object_set_new(all, o->value[i].row->name, value_json(o, i))) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

static void print_escaped(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '\n')
			fputs("\\n", f);
		else if (*s == '\\')
			fputs("\\\\", f);
		else if ((unsigned char)*s < 0x20 || *s == 0x7f)
			fprintf(f, "\\%03o", (unsigned char)*s);
		else
			fputc(*s, f);
	}
}

static void print_list(FILE *f, const struct dr_opt_list *list)
{
	char text[DR_OPT_LIST_MAX * sizeof("4294967295")];

	dr_format_list(list->v, list->n, text, sizeof(text));
	fputs(text, f);
}

static void print_json(FILE *f, const struct dr_opt *row, const json_t *v)
{
	char buf[32];

	if (json_is_boolean(v)) {
		fputs(json_is_true(v) ? "on" : "off", f);
	} else if (json_is_string(v)) {
		print_escaped(f, json_string_value(v));
	} else if (json_is_real(v)) {
		fprintf(f, "%.15g", json_real_value(v));
	} else if (json_is_integer(v) && row->kind == DR_OPT_SIZE) {
		dr_format_size((uint64_t)json_integer_value(v), buf, sizeof(buf));
		fprintf(f, "%.*s%s", (int)strcspn(buf, " "), buf, strchr(buf, ' ') + 1);
	} else if (json_is_integer(v)) {
		fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	}
}

void dr_opts_print_kv(const struct dr_opts *o, unsigned command, FILE *f)
{
	for (size_t i = 0; i < o->n; i++) {
		const struct dr_opt *row = o->value[i].row;

		if (!echoed(row, command))
			continue;
		json_t *v = value_json(o, i);
		size_t n = json_is_array(v) ? json_array_size(v) : !json_is_null(v);

		/* A line for each occurrence. */
		for (size_t k = 0; k < (row->repeat ? n : DR_MIN(n, 1)); k++) {
			fprintf(f, "%s=", row->name);
			if (row->kind == DR_OPT_LIST)
				print_list(f, at(o, i));
			else
				print_json(f, row, row->repeat ? json_array_get(v, k) : v);
			fputc('\n', f);
		}
		json_decref(v);
	}
}
