/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/opts_priv.h"
#include "base/units.h"

/*
 * The completion script of bash, made from the table. It is complete in itself: nothing is asked
 * from the program while somebody types. Words and names of the table have no blanks and no
 * quotes.
 */

enum { WORDS_MAX = 512 }; /* all words of one value */

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

static void blanks(char *words)
{
	for (; (words = strchr(words, '|')); *words = ' ')
		;
}

/* What completes the value of an option, in the language of the script. */
static void put_words(const struct dr_opt *row, FILE *f)
{
	char words[WORDS_MAX] = "";

	if (row->kind == DR_OPT_FLAG)
		dr_append(words, sizeof(words), "on|off");
	else if (row->choices)
		dr_append(words, sizeof(words), "%s", row->choices);
	else if (row->words)
		row->words(words, sizeof(words));
	else
		literal_words(row->arg, words, sizeof(words));
	blanks(words);
	if (*words)
		fprintf(f, "words=\"%s\"%s", words, row->list ? " list=1" : "");
	else if (strcmp(row->arg, "NICS") == 0)
		fputs("words=$(ls /sys/class/net) list=1", f);
	else
		fputs(strncmp(row->arg, "FILE", 4) == 0 || strcmp(row->arg, "DIR") == 0 ? "files=1"
											: "return",
			f);
}

/* The words that may follow a command without options: those of "a|b" or "[a|b]". */
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

static void put_head(const struct dr_opts *o, FILE *f)
{
	const char *p = o->spec.program;

	fprintf(f, "# bash completion for %s, written by: %s completion bash\n\n_%s()\n{\n", p, p,
		p);
	fputs("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	      "\tlocal cmd=${COMP_WORDS[1]} eq= opts= words= list= files= args= word rest=\n\n"
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

static void put_commands(const struct dr_opts *o, FILE *f)
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
		if (strstr(c->args, "HOST"))
			fputs("\t\t[[ $cur == -* ]] || opts=$(compgen -A hostname)\n", f);
		else if (c->bit && *c->args && strcmp(c->args, "[options]") != 0)
			fputs("\t\targs=1\n", f); /* files */
		fputs("\t\t;;\n", f);
	}
	fputs("\t*) return ;;\n\tesac\n", f);
}

static void put_value(const struct dr_opt *row, FILE *f)
{
	/* Flags and optional arguments take a value behind "=" only. */
	bool apart = row->kind != DR_OPT_FLAG && !row->implied;

	fputs("\t", f);
	if (apart && row->short_name)
		fprintf(f, "-%c | ", row->short_name);
	if (apart)
		fprintf(f, "--%s | ", row->name);
	fprintf(f, "--%s=) ", row->name);
	put_words(row, f);
	fputs(" ;;\n", f);
}

int dr_opts_complete(const struct dr_opts *o, const char *shell, FILE *f)
{
	const char *p = o->spec.program;

	if (strcmp(shell, "bash") != 0)
		return -EINVAL;
	put_head(o, f);
	put_commands(o, f);
	fputs("\tcase $prev${eq:+=} in\n", f);
	for (size_t i = 0; i < o->n; i++)
		put_value(o->value[i].row, f);
	fputs("\t*=) return ;;\n"
	      "\tesac\n"
	      "\tif [[ $files || ($args && ! $words && $cur != -*) ]]; then\n"
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
	return 0;
}
