/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/opts_impl.h"
#include "base/units.h"

/*
 * 1. The target changes through set_value() only, which knows the source of what is there.
 * 2. A text handed to the target (STRING, CUSTOM) is kept until dr_opts_destroy, also after it was
 *    replaced: the caller may have taken the pointer.
 * 3. getopt_long finds options; everything it would say is said here (opterr is 0).
 */

static void free_texts(struct dr_opt_text *t)
{
	struct dr_opt_text *next;

	for (; t; t = next) {
		next = t->next;
		dr_free(t);
	}
}

/* Mistakes in the table are bugs of ours. */
static void check_table(const struct dr_opts_spec *spec)
{
	for (size_t i = 0; i < spec->n; i++) {
		const struct dr_opt *a = &spec->rows[i];

		dr_assert(a->name && a->help && a->group);
		dr_assert(a->kind == DR_OPT_FLAG || a->arg);
		dr_assert((a->kind == DR_OPT_CHOICE) == (a->choices != NULL));
		dr_assert((a->kind == DR_OPT_CUSTOM) == (a->parse != NULL));
		dr_assert((!a->repeat && !a->list) ||
			  (a->kind == DR_OPT_CUSTOM && a->repeat != a->list));
		for (size_t k = 0; k < i; k++) {
			const struct dr_opt *b = &spec->rows[k];

			dr_assert(strcmp(a->name, b->name) != 0);
			dr_assert(!a->short_name || a->short_name != b->short_name ||
				  !(a->commands & b->commands));
		}
	}
}

int dr_opts_create(struct dr_opts **out, const struct dr_opts_spec *spec, void *target)
{
	struct dr_opts *o;

	check_table(spec);
	o = dr_calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->spec = *spec;
	o->target = target;
	o->value = dr_calloc(spec->n, sizeof(*o->value));
	if (!o->value) {
		dr_free(o);
		return -ENOMEM;
	}
	*out = o;
	return 0;
}

void dr_opts_destroy(struct dr_opts *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->spec.n; i++)
		free_texts(o->value[i].texts);
	free_texts(o->old);
	dr_free(o->argv);
	dr_free(o->value);
	dr_free(o);
}

void dr_opt_env_name(const struct dr_opts *o, const struct dr_opt *row, char *buf, size_t len)
{
	dr_assert(strlen(o->spec.program) + strlen(row->name) + 2 <= len);
	snprintf(buf, len, "%s_%s", o->spec.program, row->name);
	for (; *buf; buf++)
		*buf = *buf == '-' ? '_' : (char)toupper((unsigned char)*buf);
}

static int parse_flag(const char *text, bool *out, struct dr_err *e)
{
	static const char *const word[] = { "off", "on", "no", "yes", "false", "true", "0", "1" };

	for (size_t i = 0; i < DR_ARRAY_LEN(word); i++) {
		if (strcasecmp(text, word[i]) == 0) {
			*out = i % 2;
			return 0;
		}
	}
	return dr_err_set(e, -EINVAL, "\"%.60s\" is neither on nor off", text);
}

static int parse_choice(const char *choices, const char *text, int *out, struct dr_err *e)
{
	size_t len = strlen(text), n;
	int i = 0;

	for (const char *p = choices; p; p = p[n] ? p + n + 1 : NULL, i++) {
		n = strcspn(p, "|");
		if (n == len && strncmp(p, text, n) == 0) {
			*out = i;
			return 0;
		}
	}
	return dr_err_set(e, -EINVAL, "\"%.60s\" is not one of %s", text, choices);
}

static int out_of_range(const struct dr_opt *row, const char *text, struct dr_err *e)
{
	char min[32], max[32];

	if (row->kind == DR_OPT_SIZE) {
		dr_format_size((uint64_t)row->min, min, sizeof(min));
		dr_format_size((uint64_t)row->max, max, sizeof(max));
	} else if (row->kind == DR_OPT_DURATION) {
		dr_format_duration((int64_t)row->min, min, sizeof(min));
		dr_format_duration((int64_t)row->max, max, sizeof(max));
	} else {
		snprintf(min, sizeof(min), "%.15g", row->min);
		snprintf(max, sizeof(max), "%.15g", row->max);
	}
	return dr_err_set(e, -ERANGE, "%.60s is out of range; use %s to %s", text, min, max);
}

static int check_range(const struct dr_opt *row, double v, const char *text, struct dr_err *e)
{
	int limited = row->min != 0 || row->max != 0;

	return limited && !(v >= row->min && v <= row->max) ? out_of_range(row, text, e) : 0;
}

/* Sizes, durations, counts, rates: read into a local, check, store. */
static int parse_number(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	uint64_t u = 0;
	int64_t ns = 0;
	double d = 0;
	int rc;

	switch (row->kind) {
	case DR_OPT_SIZE:
		rc = dr_parse_size(text, &u, e);
		d = (double)u;
		break;
	case DR_OPT_UINT:
		rc = dr_parse_u64(text, 0, UINT64_MAX, &u, e);
		d = (double)u;
		break;
	case DR_OPT_DURATION:
		rc = dr_parse_duration(text, &ns, e);
		d = (double)ns;
		break;
	case DR_OPT_RATE:
		rc = dr_parse_rate(text, &d, e);
		break;
	default:
		rc = dr_parse_double(text, -DBL_MAX, DBL_MAX, &d, e);
		break;
	}
	if (rc == 0)
		rc = check_range(row, d, text, e);
	if (rc)
		return rc;
	if (row->kind == DR_OPT_SIZE || row->kind == DR_OPT_UINT)
		*(uint64_t *)dst = u;
	else if (row->kind == DR_OPT_DURATION)
		*(int64_t *)dst = ns;
	else
		*(double *)dst = d;
	return 0;
}

static int parse_list(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	unsigned max = row->max > 0 ? (unsigned)row->max : UINT32_MAX;
	struct dr_opt_list list;
	int rc;

	memset(&list, 0, sizeof(list));
	rc = dr_parse_list(text, max, list.v, DR_OPT_LIST_MAX, &list.n, e);
	if (rc == 0)
		*(struct dr_opt_list *)dst = list;
	return rc;
}

static int parse_value(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	switch (row->kind) {
	case DR_OPT_FLAG:
		return parse_flag(text, dst, e);
	case DR_OPT_STRING:
		*(const char **)dst = text;
		return 0;
	case DR_OPT_CHOICE:
		return parse_choice(row->choices, text, dst, e);
	case DR_OPT_LIST:
		return parse_list(row, text, dst, e);
	case DR_OPT_CUSTOM:
		return row->parse(row, text, dst, e);
	default:
		return parse_number(row, text, dst, e);
	}
}

/* Forget what the row holds; its texts stay alive (2). */
static int forget(struct dr_opts *o, size_t i, void *dst, struct dr_err *e)
{
	const struct dr_opt *row = &o->spec.rows[i];
	struct dr_opt_value *v = &o->value[i];
	struct dr_opt_text **end = &o->old;

	while (*end)
		end = &(*end)->next;
	*end = v->texts;
	v->texts = NULL;
	return row->kind == DR_OPT_CUSTOM ? row->parse(row, NULL, dst, e) : 0;
}

/* label: how the user wrote it, e.g. "--size", for the error text. */
static int set_value(struct dr_opts *o, size_t i, enum dr_opt_source source, const char *label,
	const char *text, struct dr_err *e)
{
	const struct dr_opt *row = &o->spec.rows[i];
	struct dr_opt_value *v = &o->value[i];
	void *dst = (char *)o->target + row->offset;
	size_t len = strlen(text) + 1;
	struct dr_opt_text *t, **end;
	int rc = 0;

	if (source < v->source)
		return 0;
	t = dr_calloc(1, sizeof(*t) + len);
	if (!t)
		return dr_err_set(e, -ENOMEM, "%s: out of memory", label);
	memcpy(t->text, text, len);
	if (v->texts && (source > v->source || !row->repeat))
		rc = forget(o, i, dst, e);
	for (end = &v->texts; *end; end = &(*end)->next)
		;
	*end = t;
	v->source = source;
	if (rc == 0)
		rc = parse_value(row, t->text, dst, e);
	if (rc)
		dr_err_prefix(e, "%s", label);
	return rc;
}

int dr_opts_defaults(struct dr_opts *o, struct dr_err *e)
{
	char label[96];
	int rc = 0;

	for (size_t i = 0; i < o->spec.n && rc == 0; i++) {
		snprintf(label, sizeof(label), "default of --%s", o->spec.rows[i].name);
		if (o->spec.rows[i].def)
			rc = set_value(o, i, DR_SRC_DEFAULT, label, o->spec.rows[i].def, e);
	}
	return rc;
}

static const char *env_value(const char *name)
{
	const char *text = name ? getenv(name) : NULL;

	return text && *text ? text : NULL;
}

int dr_opts_from_env(struct dr_opts *o, unsigned command, struct dr_err *e)
{
	char own[DR_OPT_ENV_MAX], label[160];
	const char *name, *text;
	int rc = 0;

	for (size_t i = 0; i < o->spec.n && rc == 0; i++) {
		const struct dr_opt *row = &o->spec.rows[i];

		if (!(row->commands & command) || row->no_config)
			continue;
		dr_opt_env_name(o, row, own, sizeof(own));
		name = own;
		text = env_value(name);
		for (size_t k = 0; k < DR_ARRAY_LEN(row->env) && !text; k++) {
			name = row->env[k];
			text = env_value(name);
		}
		if (!text)
			continue;
		snprintf(label, sizeof(label), "%s (--%s)", name, row->name);
		rc = set_value(o, i, DR_SRC_ENV, label, text, e);
	}
	return rc;
}

/* Edits (insert, delete, replace) from a to b, for names of a few letters. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[DR_OPT_ENV_MAX + 1];
	size_t n = strlen(b);
	unsigned diag, up;

	if (n > DR_OPT_ENV_MAX)
		return UINT32_MAX;
	for (size_t k = 0; k <= n; k++)
		row[k] = (unsigned)k;
	for (; *a; a++) {
		diag = row[0]++;
		for (size_t k = 1; k <= n; k++) {
			up = row[k];
			row[k] = DR_MIN(DR_MIN(row[k], row[k - 1]) + 1, diag + (*a != b[k - 1]));
			diag = up;
		}
	}
	return row[n];
}

static const char *nearest(const struct dr_opts *o, unsigned command, const char *name)
{
	unsigned best = (unsigned)DR_MIN(strlen(name) / 3 + 1, (size_t)3), d;
	const char *found = NULL;

	for (size_t i = 0; i < o->spec.n; i++) {
		if (!(o->spec.rows[i].commands & command))
			continue;
		d = distance(name, o->spec.rows[i].name);
		if (d < best || (d == best && !found)) {
			best = d;
			found = o->spec.rows[i].name;
		}
	}
	return found;
}

static long find_row(const struct dr_opts *o, const char *name, size_t len)
{
	for (size_t i = 0; i < o->spec.n; i++)
		if (strncmp(o->spec.rows[i].name, name, len) == 0 && !o->spec.rows[i].name[len])
			return (long)i;
	return -1;
}

static int set_json(struct dr_opts *o, size_t i, const json_t *v, struct dr_err *e);

/* Numbers, and what else a list of its own syntax may hold. */
static int add_item(const struct dr_opt *row, const json_t *v, bool first, char *text, size_t size,
	size_t *len, struct dr_err *e)
{
	const char *s = json_string_value(v), *comma = first ? "" : ",";
	size_t room = size - *len;
	int n = 0;

	if (json_is_integer(v))
		n = snprintf(
			text + *len, room, "%s%" JSON_INTEGER_FORMAT, comma, json_integer_value(v));
	else if (row->list && s)
		n = snprintf(text + *len, room, "%s%s", comma, s);
	if (n <= 0 || (size_t)n >= room)
		return dr_err_set(e, -EINVAL, "config \"%s\": not a list of numbers%s", row->name,
			row->list ? " and names" : "");
	*len += (size_t)n;
	return 0;
}

static int set_json_array(struct dr_opts *o, size_t i, const json_t *array, struct dr_err *e)
{
	const struct dr_opt *row = &o->spec.rows[i];
	char text[4096] = "";
	size_t len = 0, k;
	json_t *v;
	int rc = 0;

	if (row->repeat) {
		json_array_foreach(array, k, v)
		{
			if (json_is_array(v))
				return dr_err_set(
					e, -EINVAL, "config \"%s\": a list in a list", row->name);
			rc = set_json(o, i, v, e);
			if (rc)
				break;
		}
		return rc;
	}
	if (row->kind != DR_OPT_LIST && !row->list)
		return dr_err_set(
			e, -EINVAL, "config \"%s\": one value is expected, not a list", row->name);
	json_array_foreach(array, k, v)
	{
		rc = add_item(row, v, k == 0, text, sizeof(text), &len, e);
		if (rc)
			return rc;
	}
	v = json_string(text);
	rc = v ? set_json(o, i, v, e) : dr_err_set(e, -ENOMEM, "config: out of memory");
	json_decref(v);
	return rc;
}

/* The parsers of sizes, durations and rates know no exponents. */
static void real_text(const struct dr_opt *row, double v, char *buf, size_t len)
{
	char *end;

	if (row->kind == DR_OPT_DOUBLE || fabs(v) >= 1e18) {
		snprintf(buf, len, "%.17g", v);
		return;
	}
	snprintf(buf, len, "%.9f", v);
	for (end = buf + strlen(buf) - 1; *end == '0'; end--)
		*end = '\0';
	if (*end == '.')
		*end = '\0';
}

static int set_json(struct dr_opts *o, size_t i, const json_t *v, struct dr_err *e)
{
	const char *text, *name = o->spec.rows[i].name;
	char buf[64], label[96];

	if (json_is_null(v))
		return 0;
	if (json_is_array(v))
		return set_json_array(o, i, v, e);
	if (json_is_object(v))
		return dr_err_set(
			e, -EINVAL, "config \"%s\": a value is expected, not an object", name);
	text = buf;
	if (json_is_string(v))
		text = json_string_value(v);
	else if (json_is_integer(v))
		snprintf(buf, sizeof(buf), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		real_text(&o->spec.rows[i], json_real_value(v), buf, sizeof(buf));
	else
		snprintf(buf, sizeof(buf), "%s", json_is_true(v) ? "on" : "off");
	snprintf(label, sizeof(label), "config \"%s\"", name);
	return set_value(o, i, DR_SRC_CONFIG, label, text, e);
}

int dr_opts_from_json(struct dr_opts *o, unsigned command, const json_t *config, struct dr_err *e)
{
	const char *key, *hint;
	json_t *v;
	int rc = 0;
	long i;

	if (!json_is_object(config))
		return dr_err_set(e, -EINVAL, "config: an object {\"option\": value} is expected");
	/* The macro wants a json_t that it may change; iteration does not. */
	json_object_foreach((json_t *)config, key, v)
	{
		i = find_row(o, key, strlen(key));
		if (i < 0) {
			hint = nearest(o, ~0u, key);
			return dr_err_set(e, -EINVAL, "config: unknown option \"%.60s\"%s%s%s", key,
				hint ? "; did you mean \"" : "", hint ? hint : "",
				hint ? "\"" : "");
		}
		if (o->spec.rows[i].no_config)
			return dr_err_set(
				e, -EINVAL, "config: \"%s\" belongs on the command line", key);
		if (o->spec.rows[i].commands & command)
			rc = set_json(o, (size_t)i, v, e);
		if (rc)
			break;
	}
	return rc;
}

/* Values that getopt_long returns for row i; above any character. */
#define ROW_BASE 1000

struct getopt_tables {
	char shorts[256];
	struct option *longs;
};

static int make_tables(const struct dr_opts *o, unsigned command, struct getopt_tables *t)
{
	struct option *l = dr_calloc(o->spec.n + 1, sizeof(*l));
	char *s = t->shorts;

	if (!l)
		return -ENOMEM;
	t->longs = l;
	*s++ = ':';
	for (size_t i = 0; i < o->spec.n; i++) {
		const struct dr_opt *row = &o->spec.rows[i];
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

/* word: the argument as typed, "--foo=bar" or "-abc". */
static int unknown_long(
	const struct dr_opts *o, unsigned command, const char *word, struct dr_err *e)
{
	size_t len = strcspn(word + 2, "=");
	const char *hint;
	char name[64], several[128] = "";
	long i;

	snprintf(name, sizeof(name), "%.*s", (int)DR_MIN(len, sizeof(name) - 1), word + 2);
	for (size_t k = 0; k < o->spec.n && len; k++) {
		const struct dr_opt *row = &o->spec.rows[k];
		size_t used = strlen(several);

		if ((row->commands & command) && strncmp(row->name, name, len) == 0)
			snprintf(several + used, sizeof(several) - used, "%s--%s", used ? ", " : "",
				row->name);
	}
	if (several[0])
		return dr_err_set(e, -EINVAL, "option \"--%s\" is ambiguous: %s", name, several);
	i = find_row(o, name, strlen(name));
	if (i >= 0)
		return dr_err_set(e, -EINVAL, "option \"--%s\" is not for \"%s\"; see %s %s --help",
			name, command_name(o, command), o->spec.program, command_name(o, command));
	hint = nearest(o, command, name);
	return dr_err_set(e, -EINVAL, "unknown option \"--%s\"%s%s%s see %s --help", name,
		hint ? "; did you mean \"--" : ";", hint ? hint : "", hint ? "\"?" : "",
		o->spec.program);
}

static int refused(
	const struct dr_opts *o, unsigned command, int c, const char *word, struct dr_err *e)
{
	if (c == ':' && optopt >= ROW_BASE)
		return dr_err_set(e, -EINVAL, "--%s: needs %s %s; see %s --help",
			o->spec.rows[optopt - ROW_BASE].name,
			strchr("AEIOU", o->spec.rows[optopt - ROW_BASE].arg[0]) ? "an" : "a",
			o->spec.rows[optopt - ROW_BASE].arg, o->spec.program);
	if (c == ':')
		return dr_err_set(e, -EINVAL, "-%c: needs an argument; see %s --help", optopt,
			o->spec.program);
	if (optopt == 0 || optopt >= ROW_BASE)
		return unknown_long(o, command, word, e);
	return dr_err_set(e, -EINVAL, "unknown option \"-%c\"; see %s --help",
		isprint(optopt) ? optopt : '?', o->spec.program);
}

static long row_of(const struct dr_opts *o, unsigned command, int c)
{
	if (c >= ROW_BASE)
		return c - ROW_BASE;
	for (size_t i = 0; i < o->spec.n; i++)
		if (o->spec.rows[i].short_name == c && (o->spec.rows[i].commands & command))
			return (long)i;
	dr_assert(!"getopt returns what is in its tables");
	return -1;
}

static int parse_options(struct dr_opts *o, unsigned command, int argc,
	const struct getopt_tables *t, struct dr_err *e)
{
	const struct dr_opt *row;
	char label[96];
	int c, rc = 0;
	long i;

	opterr = 0;
	optind = 0; /* glibc: start over */
	while (rc == 0) {
		c = getopt_long(argc, o->argv, t->shorts, t->longs, NULL);
		if (c == -1)
			break;
		if (c == '?' || c == ':')
			return refused(o, command, c, o->argv[optind - 1], e);
		i = row_of(o, command, c);
		row = &o->spec.rows[i];
		if (c >= ROW_BASE)
			snprintf(label, sizeof(label), "--%s", row->name);
		else
			snprintf(label, sizeof(label), "-%c", c);
		rc = set_value(o, (size_t)i, DR_SRC_ARGV, label,
			optarg			   ? optarg
			: row->kind == DR_OPT_FLAG ? "on"
						   : row->implied,
			e);
	}
	return rc;
}

int dr_opts_parse(struct dr_opts *o, unsigned command, int argc, char *const argv[],
	char ***positional, int *n, struct dr_err *e)
{
	struct getopt_tables t;
	char **copy;
	int rc;

	copy = dr_calloc((size_t)argc + 1, sizeof(*copy));
	if (!copy || make_tables(o, command, &t)) {
		dr_free(copy);
		return dr_err_set(e, -ENOMEM, "options: out of memory");
	}
	memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	dr_free(o->argv);
	o->argv = copy;
	rc = parse_options(o, command, argc, &t, e);
	dr_free(t.longs);
	if (rc)
		return rc;
	*positional = copy + optind;
	*n = argc - optind;
	return 0;
}

static enum dr_opt_source source_of(const struct dr_opts *o, const char *name)
{
	long i = find_row(o, name, strlen(name));

	dr_assert(i >= 0);
	return o->value[i].source;
}

bool dr_opts_given(const struct dr_opts *o, const char *name)
{
	return source_of(o, name) > DR_SRC_DEFAULT;
}

const char *dr_opts_source(const struct dr_opts *o, const char *name)
{
	static const char *const text[] = {
		[DR_SRC_UNSET] = "unset",
		[DR_SRC_DEFAULT] = "default",
		[DR_SRC_CONFIG] = "config",
		[DR_SRC_ENV] = "environment",
		[DR_SRC_ARGV] = "command line",
	};

	return text[source_of(o, name)];
}
