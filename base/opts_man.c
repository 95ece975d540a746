/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "base/opts_priv.h"

/* The man page, made from the table. A paragraph is one line of man(7) source. */

/* No request at the start of a line, characters that can be copied from the formatted page. */
static void put_roff(FILE *f, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", f);
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", f);
		else if (*text == '-')
			fputs("\\-", f);
		else if (*text == '^')
			fputs("\\(ha", f);
		else if (*text == '~')
			fputs("\\(ti", f);
		else
			fputc(*text, f);
	}
}

/* The text as a line; "\n" in it starts a paragraph. */
static void put_paragraphs(FILE *f, const char *text)
{
	char line[1024];

	for (const char *end; *text; text = *end ? end + 1 : end) {
		end = strchrnul(text, '\n');
		dr_assert((size_t)(end - text) < sizeof(line));
		memcpy(line, text, (size_t)(end - text));
		line[end - text] = '\0';
		put_roff(f, line);
		fputs(*end ? "\n.PP\n" : "\n", f);
	}
}

static void put_sections(const struct dr_opt_pair *s, FILE *f)
{
	for (; s && s->a; s++) {
		fprintf(f, ".SH %s\n", s->a);
		put_paragraphs(f, s->b);
	}
}

static void put_bold(FILE *f, const char *text)
{
	fputs("\\fB", f);
	put_roff(f, text);
	fputs("\\fR", f);
}

static void put_heading(const struct dr_opts *o, FILE *f)
{
	const struct dr_opt_manual *m = o->spec.manual;

	fputs(".TH ", f);
	for (const char *p = o->spec.program; *p; p++)
		fputc(toupper((unsigned char)*p), f);
	fprintf(f, " 1 \"\" \"%s %s\" \"User Commands\"\n.SH NAME\n", o->spec.program, m->version);
	put_roff(f, o->spec.program);
	fputs(" \\- ", f);
	put_roff(f, m->purpose);
	fputs("\n.SH SYNOPSIS\n", f);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++) {
		put_bold(f, o->spec.program);
		fputc(' ', f);
		put_bold(f, c->name);
		fputc(' ', f);
		put_roff(f, c->args);
		fputs("\n.br\n", f);
	}
	put_bold(f, o->spec.program);
	fputs(" \\fB\\-\\-help\\fR | \\fB\\-\\-version\\fR [\\fB\\-v\\fR]\n", f);
}

static void put_commands(const struct dr_opts *o, FILE *f)
{
	fputs(".SH COMMANDS\n", f);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++) {
		fputs(".TP\n", f);
		put_bold(f, c->name);
		fputc(' ', f);
		put_roff(f, c->args);
		fputc('\n', f);
		put_roff(f, c->help);
		fputc('\n', f);
	}
}

/* "Default: 64M (demo: 4M)." */
static void put_defaults(const struct dr_opts *o, const struct dr_opt *row, FILE *f)
{
	const char *between = "";

	if (row->unit)
		fprintf(f, " A bare number is in %s.", row->unit);
	if (!row->def || row->kind == DR_OPT_FLAG)
		return;
	fputs(" Default: ", f);
	put_roff(f, row->def);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++) {
		const char *own = dr_opt_default(o, row, c->bit);

		if (!(c->bit & row->commands) || strcmp(own, row->def) == 0)
			continue;
		fprintf(f, "%s%s: ", *between ? between : " (", c->name);
		put_roff(f, own);
		between = ", ";
	}
	fputs(*between ? ")." : ".", f);
}

static void put_row(const struct dr_opts *o, const struct dr_opt *row, FILE *f)
{
	const char *between = " ";
	char text[DR_OPT_HELP_MAX];

	fputs(".TP\n", f);
	if (row->short_name)
		fprintf(f, "\\fB\\-%c\\fR, ", row->short_name);
	fputs("\\fB\\-\\-", f);
	put_roff(f, row->name);
	fputs("\\fR", f);
	if (row->kind != DR_OPT_FLAG) {
		fputs(row->implied ? "[=\\fI" : " \\fI", f);
		put_roff(f, row->arg);
		fputs(row->implied ? "\\fR]" : "\\fR", f);
	}
	fputc('\n', f);
	dr_opt_help_text(row, text, sizeof(text));
	put_roff(f, text);
	put_defaults(o, row, f);
	if (row->repeat)
		fputs(" May be given several times.", f);
	fputs("\n.br\nCommands:", f);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++) {
		if (!(c->bit & row->commands))
			continue;
		fputs(between, f);
		put_roff(f, c->name);
		between = ", ";
	}
	fputs(".\n", f);
}

static void put_options(const struct dr_opts *o, FILE *f)
{
	const char *group = NULL;

	fputs(".SH OPTIONS\n", f);
	for (size_t i = 0; i < o->n; i++) {
		if (group != o->value[i].group) {
			fputs(".SS ", f);
			put_roff(f, o->value[i].group);
			fputc('\n', f);
		}
		group = o->value[i].group;
		put_row(o, o->value[i].row, f);
	}
}

static void put_environment(const struct dr_opts *o, FILE *f)
{
	char name[DR_OPT_ENV_MAX];

	fputs(".SH ENVIRONMENT\n", f);
	if (o->n) {
		dr_opt_env_name(o, o->value[0].row, name, sizeof(name));
		fprintf(f, "Every option has a variable, as \\fB%s\\fR for \\fB\\-\\-", name);
		put_roff(f, o->value[0].row->name);
		fputs("\\fR; flags take on or off. The command line has precedence over the environment, "
		      "the environment over the configuration file. A variable with this prefix that no option "
		      "has causes a warning. These names are read as well:\n",
			f);
	}
	for (size_t i = 0; i < o->n; i++) {
		const struct dr_opt *row = o->value[i].row;

		for (size_t k = 0; k < DR_ARRAY_LEN(row->env) && row->env[k]; k++) {
			fprintf(f, ".TP\n\\fB%s\\fR\nAs \\fB\\-\\-", row->env[k]);
			put_roff(f, row->name);
			fputs("\\fR.\n", f);
		}
	}
}

static void put_terms(const char *heading, const struct dr_opt_pair *s, FILE *f)
{
	fprintf(f, ".SH %s\n", heading);
	for (; s->a; s++) {
		fputs(".TP\n", f);
		put_bold(f, s->a);
		fputc('\n', f);
		put_roff(f, s->b);
		fputc('\n', f);
	}
}

static void put_examples(const struct dr_opts *o, FILE *f)
{
	fputs(".SH EXAMPLES\n", f);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++)
		for (const struct dr_opt_pair *x = c->examples; x && x->a; x++) {
			fputs(".PP\n", f);
			put_roff(f, x->a);
			fputs(":\n.PP\n.RS 4\n.EX\n", f);
			put_roff(f, o->spec.program);
			fputc(' ', f);
			put_roff(f, x->b);
			fputs("\n.EE\n.RE\n", f);
		}
}

void dr_opts_man(const struct dr_opts *o, FILE *f)
{
	const struct dr_opt_manual *m = o->spec.manual;

	dr_assert(m && o->spec.commands);
	put_heading(o, f);
	put_sections(m->sections, f);
	put_commands(o, f);
	put_options(o, f);
	put_terms("EXIT STATUS", m->statuses, f);
	put_environment(o, f);
	if (m->files)
		put_terms("FILES", m->files, f);
	put_sections(m->notes, f);
	put_examples(o, f);
	fputs(".SH SEE ALSO\n", f);
	put_roff(f, m->see_also);
	fputc('\n', f);
}
