/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/opts_priv.h"
#include "base/units.h"

/*
 * Completion scripts, made from the table. They are complete in themselves: nothing is asked from the program
 * while somebody types. Words and names of the table have no blanks and no quotes; help texts are quoted.
 */

/* WORDS_MAX: all words of one value; TEXT_MAX: a description. */
enum { WORDS_MAX = 512, TEXT_MAX = 200 };

enum value { VALUE_NONE, VALUE_OTHER, VALUE_WORDS, VALUE_LIST, VALUE_FILE };

static bool has_capital(const char *word)
{
	for (; *word; word++)
		if (isupper((unsigned char)*word))
			return true;
	return false;
}

/* The words of "INDEX|auto" that are written as they stand: "auto". */
static void literal_words(const char *arg, char *buf, size_t len)
{
	char copy[WORDS_MAX], *rest = copy, *word;

	snprintf(copy, sizeof(copy), "%s", arg);
	while ((word = strsep(&rest, "|")))
		if (strchr(arg, '|') && !has_capital(word))
			dr_append(buf, len, "%s%s", *buf ? "|" : "", word);
}

/* What completes the value of an option; words are separated by "|". */
static enum value value_of(const struct dr_opt *row, char *words, size_t len)
{
	*words = '\0';
	if (row->kind == DR_OPT_FLAG)
		return VALUE_NONE;
	if (row->choices)
		dr_append(words, len, "%s", row->choices);
	else if (row->words)
		row->words(words, len);
	else
		literal_words(row->arg, words, len);
	if (*words)
		return row->list ? VALUE_LIST : VALUE_WORDS;
	return strncmp(row->arg, "FILE", 4) == 0 || strcmp(row->arg, "DIR") == 0 ? VALUE_FILE
										 : VALUE_OTHER;
}

static void blanks(char *words)
{
	for (; (words = strchr(words, '|')); *words = ' ')
		;
}

/* The first sentence of the help, without its full stop. "e.g. 3" does not end one. */
static void brief(const char *help, char *buf, size_t len)
{
	size_t n = 0;

	while (help[n] &&
		!(help[n] == '.' && (!help[n + 1] || (help[n + 1] == ' ' &&
							     isupper((unsigned char)help[n + 2])))))
		n++;
	snprintf(buf, len, "%.*s", (int)DR_MIN(n, len - 1), help);
}

/* Text between single quotes; a backslash before each of `also`. */
static void put_quoted(FILE *f, const char *text, const char *also)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", f);
		else if (strchr(also, *text))
			fprintf(f, "\\%c", *text);
		else
			fputc(*text, f);
	}
}

static bool takes_host(const struct dr_opt_command *c)
{
	return strstr(c->args, "HOST") != NULL;
}

/* The words that may follow a command without options: those of "bash|zsh|fish" or "[a|b]". */
static void argument_words(
	const struct dr_opts *o, const struct dr_opt_command *c, char *buf, size_t len)
{
	char args[WORDS_MAX];

	*buf = '\0';
	if (c->bit)
		return;
	snprintf(args, sizeof(args), "%s", c->args + (*c->args == '['));
	args[strcspn(args, "]")] = '\0';
	literal_words(args, buf, len);
	if (strstr(c->args, "COMMAND"))
		for (const struct dr_opt_command *k = o->spec.commands; k->name; k++)
			if (k->bit)
				dr_append(buf, len, "%s%s", *buf ? "|" : "", k->name);
}

/* ---- bash ---- */

static void bash_head(const struct dr_opts *o, FILE *f)
{
	const char *p = o->spec.program;

	fprintf(f, "# bash completion for %s, written by: %s completion bash\n\n_%s()\n{\n", p, p,
		p);
	fputs("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	      "\tlocal cmd=${COMP_WORDS[1]} eq= opts= words= list= files= word rest=\n\n"
	      "\tCOMPREPLY=()\n"
	      "\t# \"--poll=busy\" is three words here.\n"
	      "\tif [[ $cur == = ]]; then\n"
	      "\t\tcur= eq=1\n"
	      "\telif [[ $prev == = ]]; then\n"
	      "\t\tprev=${COMP_WORDS[COMP_CWORD-2]} eq=1\n"
	      "\tfi\n"
	      "\tif ((COMP_CWORD == 1)); then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"--help --version",
		f);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++)
		fprintf(f, " %s", c->name);
	fputs("\" -- \"$cur\")\n\t\treturn\n\tfi\n", f);
}

static void bash_commands(const struct dr_opts *o, FILE *f)
{
	char words[WORDS_MAX];

	fputs("\tcase $cmd in\n", f);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++) {
		argument_words(o, c, words, sizeof(words));
		blanks(words);
		fprintf(f, "\t%s)\n\t\topts=\"%s", c->name, words);
		const char *between = "";
		for (size_t i = 0; i < o->n; i++) {
			if (!(o->value[i].row->commands & c->bit))
				continue;
			fprintf(f, "%s--%s", between, o->value[i].row->name);
			between = " ";
		}
		fputs("\"\n", f);
		if (takes_host(c))
			fputs("\t\t[[ $cur == -* ]] || opts=$(compgen -A hostname)\n", f);
		fputs("\t\t;;\n", f);
	}
	fputs("\t*) return ;;\n\tesac\n", f);
}

static void bash_value(const struct dr_opt *row, FILE *f)
{
	char words[WORDS_MAX];
	enum value kind = value_of(row, words, sizeof(words));

	/* Flags and optional arguments take a value behind "=" only. */
	if (kind && !row->implied && row->short_name)
		fprintf(f, "\t-%c | ", row->short_name);
	else
		fputs("\t", f);
	if (kind && !row->implied)
		fprintf(f, "--%s | ", row->name);
	fprintf(f, "--%s=", row->name);
	blanks(words);
	switch (kind) {
	case VALUE_NONE:
		fputs(") words=\"on off\" ;;\n", f);
		break;
	case VALUE_WORDS:
		fprintf(f, ") words=\"%s\" ;;\n", words);
		break;
	case VALUE_LIST:
		fprintf(f, ") words=\"%s\" list=1 ;;\n", words);
		break;
	case VALUE_FILE:
		fputs(") files=1 ;;\n", f);
		break;
	case VALUE_OTHER:
		fputs(") return ;;\n", f);
		break;
	}
}

static void bash(const struct dr_opts *o, FILE *f)
{
	const char *p = o->spec.program;

	bash_head(o, f);
	bash_commands(o, f);
	fputs("\tcase $prev${eq:+=} in\n", f);
	for (size_t i = 0; i < o->n; i++)
		bash_value(o->value[i].row, f);
	fputs("\t*=) return ;;\n"
	      "\tesac\n"
	      "\tif [[ $files ]]; then\n"
	      "\t\tcompopt -o filenames 2>/dev/null || :\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
	      "\telif [[ $list && $cur == *,* ]]; then\n"
	      "\t\tfor word in $words; do\n"
	      "\t\t\t[[ ,${cur%,*}, == *,$word,* ]] || rest+=\" $word\"\n"
	      "\t\tdone\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -P \"${cur%,*},\" -W \"$rest\" -- \"${cur##*,}\")\n"
	      "\telse\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"${words:-$opts}\" -- \"$cur\")\n"
	      "\tfi\n"
	      "}\n",
		f);
	fprintf(f, "complete -F _%s %s\n", p, p);
}

/* ---- zsh ---- */

/* One argument of _arguments. */
static void zsh_option(const struct dr_opt *row, FILE *f)
{
	char words[WORDS_MAX], text[TEXT_MAX];
	enum value kind = value_of(row, words, sizeof(words));
	const char *form = !kind ? "" : row->implied ? "=-" : "=";

	blanks(words);
	brief(row->help, text, sizeof(text));
	fputs(" \\\n\t\t\t", f);
	if (row->repeat)
		fputs("'*'", f);
	else if (row->short_name)
		fprintf(f, "'(-%c --%s)'", row->short_name, row->name);
	if (row->short_name)
		fprintf(f, "{-%c%s,--%s%s}", row->short_name, kind && !row->implied ? "+" : "",
			row->name, form);
	else
		fprintf(f, "--%s%s", row->name, form);
	fputs("'[", f);
	put_quoted(f, text, "[]:\\");
	fputs("]", f);
	if (kind) {
		fputs(row->implied ? "::" : ":", f);
		put_quoted(f, row->arg, ":\\");
	}
	if (kind == VALUE_WORDS)
		fprintf(f, ":(%s)", words);
	else if (kind == VALUE_LIST)
		fprintf(f, ":_values -s , word %s", words);
	else if (kind == VALUE_FILE)
		fputs(":_files", f);
	else if (kind)
		fputs(": ", f);
	fputc('\'', f);
}

static void zsh_command(const struct dr_opts *o, const struct dr_opt_command *c, FILE *f)
{
	char words[WORDS_MAX];

	fprintf(f, "\t%s)\n\t\t_arguments -s -S", c->name);
	for (size_t i = 0; i < o->n; i++)
		if (o->value[i].row->commands & c->bit)
			zsh_option(o->value[i].row, f);
	argument_words(o, c, words, sizeof(words));
	blanks(words);
	if (*words)
		fprintf(f, " \\\n\t\t\t'1:argument:(%s)'", words);
	else if (takes_host(c))
		fputs(" \\\n\t\t\t'1:host:_hosts'", f);
	fputs("\n\t\t;;\n", f);
}

static void zsh(const struct dr_opts *o, FILE *f)
{
	const char *p = o->spec.program;
	char text[TEXT_MAX];

	fprintf(f, "#compdef %s\n# zsh completion for %s, written by: %s completion zsh\n\n", p, p,
		p);
	fprintf(f, "_%s()\n{\n\tlocal -a commands\n\tcommands=(\n", p);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++) {
		brief(c->help, text, sizeof(text));
		fprintf(f, "\t\t'%s:", c->name);
		put_quoted(f, text, "\\");
		fputs("'\n", f);
	}
	fputs("\t)\n"
	      "\tif ((CURRENT == 2)); then\n"
	      "\t\tif [[ $PREFIX == -* ]]; then\n"
	      "\t\t\tcompadd -- --help --version\n"
	      "\t\telse\n"
	      "\t\t\t_describe command commands\n"
	      "\t\tfi\n"
	      "\t\treturn\n"
	      "\tfi\n"
	      "\tshift words\n"
	      "\t((CURRENT--))\n"
	      "\tcase $words[1] in\n",
		f);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++)
		zsh_command(o, c, f);
	/* As a file of fpath it is run by its first use; sourced it only defines the function. */
	fprintf(f, "\tesac\n}\n\nif [[ $funcstack[1] == _%s ]]; then\n\t_%s \"$@\"\nelse\n", p, p);
	fprintf(f, "\tcompdef _%s %s\nfi\n", p, p);
}

/* ---- fish ---- */

static void fish_option(const struct dr_opts *o, const struct dr_opt *row, FILE *f)
{
	char words[WORDS_MAX], text[TEXT_MAX];
	enum value kind = value_of(row, words, sizeof(words));

	brief(row->help, text, sizeof(text));
	fprintf(f, "complete -c %s -n '__fish_seen_subcommand_from", o->spec.program);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++)
		if (c->bit & row->commands)
			fprintf(f, " %s", c->name);
	fputc('\'', f);
	if (row->short_name)
		fprintf(f, " -s %c", row->short_name);
	fprintf(f, " -l %s", row->name);
	if (kind && !row->implied)
		fputs(kind == VALUE_FILE ? " -r -F" : " -x", f);
	if (kind == VALUE_LIST)
		fputs(" -a '(__fish_append , ", f);
	else if (kind == VALUE_WORDS)
		fputs(" -a '", f);
	if (kind == VALUE_LIST || kind == VALUE_WORDS) {
		blanks(words);
		fprintf(f, "%s%s'", words, kind == VALUE_LIST ? ")" : "");
	}
	fputs(" -d '", f);
	/* In fish a quote and a backslash are escaped with a backslash. */
	for (const char *t = text; *t; t++)
		fprintf(f, "%s%c", strchr("'\\", *t) ? "\\" : "", *t);
	fputs("'\n", f);
}

static void fish(const struct dr_opts *o, FILE *f)
{
	const char *p = o->spec.program;
	char text[TEXT_MAX], words[WORDS_MAX];

	fprintf(f, "# fish completion for %s, written by: %s completion fish\n\n", p, p);
	fprintf(f, "complete -c %s -f\n", p);
	fprintf(f, "complete -c %s -n __fish_use_subcommand -l help -d 'Print the commands'\n", p);
	fprintf(f, "complete -c %s -n __fish_use_subcommand -l version -d 'Print the version'\n",
		p);
	for (const struct dr_opt_command *c = o->spec.commands; c->name; c++) {
		brief(c->help, text, sizeof(text));
		fprintf(f, "complete -c %s -n __fish_use_subcommand -a %s -d '", p, c->name);
		for (const char *t = text; *t; t++)
			fprintf(f, "%s%c", strchr("'\\", *t) ? "\\" : "", *t);
		fputs("'\n", f);
		argument_words(o, c, words, sizeof(words));
		blanks(words);
		if (takes_host(c))
			snprintf(words, sizeof(words), "(__fish_print_hostnames)");
		if (*words)
			fprintf(f, "complete -c %s -n '__fish_seen_subcommand_from %s' -a '%s'\n",
				p, c->name, words);
	}
	for (size_t i = 0; i < o->n; i++)
		fish_option(o, o->value[i].row, f);
}

int dr_opts_complete(const struct dr_opts *o, const char *shell, FILE *f)
{
	static const struct {
		const char *name;
		void (*put)(const struct dr_opts *o, FILE *f);
	} kind[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

	for (size_t i = 0; i < DR_ARRAY_LEN(kind); i++)
		if (strcmp(shell, kind[i].name) == 0) {
			kind[i].put(o, f);
			return 0;
		}
	return -EINVAL;
}
