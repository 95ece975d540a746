/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/opts_priv.h"
#include "base/units.h"

/*
 * The table, its values, defaults and the environment.
 * 1. Only dr_opts_set() changes the target. It knows the source of the present value.
 * 2. A text that the target points to (STRING, CUSTOM) is kept until dr_opts_destroy, also after it was
 *    replaced, because the caller may have copied the pointer.
 */

static void free_texts(struct dr_opt_texts *l)
{
	for (struct dr_opt_text *t; (t = STAILQ_FIRST(l));) {
		STAILQ_REMOVE_HEAD(l, next);
		dr_free(t);
	}
}

/* Errors in the table are bugs of ours. */
static void check_row(const struct dr_opts *o, size_t i)
{
	const struct dr_opt *a = o->value[i].row;

	dr_assert(a->name && a->help);
	dr_assert(a->kind == DR_OPT_FLAG || a->arg || o->spec.variables);
	dr_assert((a->kind == DR_OPT_CHOICE) == !!a->choices);
	dr_assert((a->kind == DR_OPT_CUSTOM) == !!a->parse);
	dr_assert((!a->repeat && !a->list) || (a->kind == DR_OPT_CUSTOM && a->repeat != a->list));
	for (size_t k = 0; k < i; k++) {
		const struct dr_opt *b = o->value[k].row;

		dr_assert(strcmp(a->name, b->name) != 0);
		dr_assert(!a->short_name || a->short_name != b->short_name ||
			  !(a->commands & b->commands));
	}
}

static void check_commands(const struct dr_opts *o)
{
	for (const struct dr_opt_command *c = o->spec.commands; c && c->name; c++)
		for (const struct dr_opt_pair *d = c->defaults; d && d->a; d++) {
			long i = dr_opts_find(o, d->a, strlen(d->a));

			dr_assert(i >= 0 && (o->value[i].row->commands & c->bit));
		}
}

static size_t count_rows(const struct dr_opts_spec *spec)
{
	size_t n = 0;

	for (const struct dr_opt_group *const *g = spec->groups; *g; g++)
		n += (*g)->n;
	return n;
}

static void take_groups(struct dr_opts *o, void *target)
{
	for (size_t k = 0; o->spec.groups[k]; k++) {
		const struct dr_opt_group *g = o->spec.groups[k];
		void *own = o->spec.targets ? o->spec.targets[k] : NULL;

		dr_assert(g->title);
		for (size_t i = 0; i < g->n; i++) {
			STAILQ_INIT(&o->value[o->n].texts);
			o->value[o->n].row = &g->rows[i];
			o->value[o->n].group = g->title;
			o->value[o->n].target = own ? own : target;
			check_row(o, o->n++);
		}
	}
}

int dr_opts_create(struct dr_opts **out, const struct dr_opts_spec *spec, void *target)
{
	struct dr_opts *o = dr_calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->spec = *spec;
	o->value = dr_calloc(count_rows(spec) + 1, sizeof(*o->value));
	if (!o->value) {
		dr_free(o);
		return -ENOMEM;
	}
	STAILQ_INIT(&o->old);
	take_groups(o, target);
	check_commands(o);
	o->spec.groups = NULL; /* the arrays are the caller's */
	o->spec.targets = NULL;
	*out = o;
	return 0;
}

void dr_opts_destroy(struct dr_opts *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->n; i++)
		free_texts(&o->value[i].texts);
	free_texts(&o->old);
	dr_free(o->argv);
	dr_free(o->value);
	dr_free(o);
}

/* ---- names ---- */

void dr_opt_env_name(const struct dr_opts *o, const struct dr_opt *row, char *buf, size_t len)
{
	dr_assert(strlen(o->spec.program) + strlen(row->name) + 2 <= len);
	if (o->spec.variables) {
		memcpy(buf, row->name, strlen(row->name) + 1);
		return;
	}
	snprintf(buf, len, "%s_%s", o->spec.program, row->name);
	for (; *buf; buf++)
		*buf = *buf == '-' ? '_' : (char)toupper((unsigned char)*buf);
}

/* Edits (insert, delete, replace) from a to b, for names of a few letters. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[DR_OPT_ENV_MAX + 1];
	size_t n = strlen(b);

	if (n > DR_OPT_ENV_MAX)
		return UINT32_MAX;
	for (size_t k = 0; k <= n; k++)
		row[k] = (unsigned)k;
	for (; *a; a++) {
		unsigned diag = row[0]++;
		for (size_t k = 1; k <= n; k++) {
			unsigned up = row[k];
			row[k] = DR_MIN(DR_MIN(row[k], row[k - 1]) + 1, diag + (*a != b[k - 1]));
			diag = up;
		}
	}
	return row[n];
}

/* found, or candidate if that is more like name; NULL as long as nothing is similar. */
static const char *nearer(const char *name, const char *candidate, const char *found)
{
	unsigned limit = (unsigned)DR_MIN(strlen(name) / 3 + 1, (size_t)3);
	unsigned d = distance(name, candidate);

	return d <= limit && (!found || d < distance(name, found)) ? candidate : found;
}

const char *dr_opts_nearest(const struct dr_opts *o, unsigned command, const char *name)
{
	const char *found = NULL;

	for (size_t i = 0; i < o->n; i++)
		if (o->value[i].row->commands & command)
			found = nearer(name, o->value[i].row->name, found);
	return found;
}

const char *dr_opts_nearest_command(const struct dr_opt_command *c, const char *name)
{
	const char *found = NULL;

	for (; c->name; c++)
		found = nearer(name, c->name, found);
	return found;
}

long dr_opts_find(const struct dr_opts *o, const char *name, size_t len)
{
	for (size_t i = 0; i < o->n; i++)
		if (strncmp(o->value[i].row->name, name, len) == 0 && !o->value[i].row->name[len])
			return (long)i;
	return -1;
}

/* ---- values ---- */

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
		if (rc == 0 && !row->unit) /* the help does not state one */
			rc = dr_check_duration_unit(text, e);
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

	memset(&list, 0, sizeof(list));
	int rc = dr_parse_list(text, max, list.v, DR_OPT_LIST_MAX, &list.n, e);
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
		return dr_parse_choice(row->choices, text, dst, e);
	case DR_OPT_LIST:
		return parse_list(row, text, dst, e);
	case DR_OPT_CUSTOM:
		return row->parse(row, text, dst, e);
	default:
		return parse_number(row, text, dst, e);
	}
}

/* Discard the row's value; its texts stay allocated (2). */
int dr_opts_forget(struct dr_opts *o, size_t i, struct dr_err *e)
{
	const struct dr_opt *row = o->value[i].row;
	struct dr_opt_value *v = &o->value[i];
	void *dst = (char *)v->target + row->offset;

	STAILQ_CONCAT(&o->old, &v->texts);
	return row->kind == DR_OPT_CUSTOM ? row->parse(row, NULL, dst, e) : 0;
}

int dr_opts_set(struct dr_opts *o, size_t i, enum dr_opt_source source, const char *label,
	const char *text, struct dr_err *e)
{
	const struct dr_opt *row = o->value[i].row;
	struct dr_opt_value *v = &o->value[i];
	void *dst = (char *)o->value[i].target + row->offset;
	size_t len = strlen(text) + 1;
	int rc = 0;

	if (source < v->source)
		return 0;
	struct dr_opt_text *t = dr_calloc(1, sizeof(*t) + len);
	if (!t)
		return dr_err_set(e, -ENOMEM, "%s: out of memory", label);
	memcpy(t->text, text, len);
	if (!STAILQ_EMPTY(&v->texts) && (source > v->source || !row->repeat))
		rc = dr_opts_forget(o, i, e);
	STAILQ_INSERT_TAIL(&v->texts, t, next);
	v->source = source;
	if (rc == 0)
		rc = parse_value(row, t->text, dst, e);
	if (rc)
		dr_err_prefix(e, "%s", label);
	return rc;
}

/* ---- defaults, environment, source of a value ---- */

const char *dr_opt_default(const struct dr_opts *o, const struct dr_opt *row, unsigned command)
{
	for (const struct dr_opt_command *c = o->spec.commands; c && c->name; c++) {
		if (!(c->bit & command))
			continue;
		for (const struct dr_opt_pair *d = c->defaults; d && d->a; d++)
			if (strcmp(d->a, row->name) == 0)
				return d->b;
	}
	return row->def;
}

int dr_opts_defaults(struct dr_opts *o, unsigned command, struct dr_err *e)
{
	char label[96];
	int rc = 0;

	for (size_t i = 0; i < o->n && rc == 0; i++) {
		const struct dr_opt *row = o->value[i].row;
		const char *text = dr_opt_default(o, row, command);

		snprintf(label, sizeof(label), "default of --%s", row->name);
		if (text)
			rc = dr_opts_set(o, i, DR_SRC_DEFAULT, label, text, e);
	}
	return rc;
}

/* Kubernetes sets NAME_PORT=tcp://10.0.0.1:80 in every pod for a Service of the program's name. */
static bool is_service_url(const char *value)
{
	return strncmp(value, "tcp://", 6) == 0 || strncmp(value, "udp://", 6) == 0 ||
	       strncmp(value, "sctp://", 7) == 0;
}

static char *const *environment(const struct dr_opts *o)
{
	static char *const none[] = { NULL }; /* after clearenv() */

	return o->spec.env ? o->spec.env : environ ? environ : none;
}

const char *dr_opts_variable(const struct dr_opts *o, const char *name)
{
	size_t n = name ? strlen(name) : 0;
	char *const *env = environment(o);

	while (n && *env && !(strncmp(*env, name, n) == 0 && (*env)[n] == '='))
		env++;
	const char *text = n && *env ? *env + n + 1 : "";
	return *text && !is_service_url(text) ? text : NULL;
}

int dr_opts_from_env(struct dr_opts *o, unsigned command, struct dr_err *e)
{
	char own[DR_OPT_ENV_MAX], label[160];
	int rc = 0;

	for (size_t i = 0; i < o->n && rc == 0; i++) {
		const struct dr_opt *row = o->value[i].row;

		if (!(row->commands & command) || row->no_config)
			continue;
		dr_opt_env_name(o, row, own, sizeof(own));
		const char *name = own;
		const char *text = dr_opts_variable(o, name);
		for (size_t k = 0; k < DR_ARRAY_LEN(row->env) && !text; k++) {
			name = row->env[k];
			text = dr_opts_variable(o, name);
		}
		if (!text)
			continue;
		snprintf(label, sizeof(label), "%s", name);
		if (!o->spec.variables)
			dr_append(label, sizeof(label), " (--%s)", row->name);
		rc = dr_opts_set(o, i, DR_SRC_ENV, label, text, e);
	}
	return rc;
}

/* What is to be said of a variable with the program's prefix; false: nothing, an option has it. */
static bool describe_env(const struct dr_opts *o, const char *var, char *buf, size_t len)
{
	char own[DR_OPT_ENV_MAX], name[DR_OPT_ENV_MAX];
	const char *hint = NULL;
	size_t prefix = strlen(o->spec.program) + 1, n = 0;

	for (size_t i = 0; i < o->n; i++) {
		dr_opt_env_name(o, o->value[i].row, own, sizeof(own));
		if (strcmp(own, var) != 0)
			continue;
		if (o->value[i].row->no_config)
			snprintf(buf, len, "%s has no effect: --%s works on the command line only",
				var, o->value[i].row->name);
		return o->value[i].row->no_config;
	}
	for (const char *p = var + prefix; *p && n < sizeof(name) - 1; p++)
		name[n++] = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
	name[n] = '\0';
	hint = dr_opts_nearest(o, ~0u, o->spec.variables ? var : name);
	if (hint)
		dr_opt_env_name(
			o, o->value[dr_opts_find(o, hint, strlen(hint))].row, own, sizeof(own));
	snprintf(buf, len, "%s has no effect: no %s has this name%s%s%s", var,
		o->spec.variables ? "variable" : "option", hint ? "; did you mean " : "",
		hint ? own : "", hint ? "?" : "");
	if (!o->spec.variables)
		dr_append(buf, len, "%s see %s COMMAND --help", hint ? "" : ";", o->spec.program);
	return true;
}

/* More such variables: NAME_SERVICE_HOST, NAME_SERVICE_PORT, NAME_PORT_80_TCP_ADDR, and others; also of Services whose
 * name begins like the program's. */
static bool is_service_link(const char *var, const char *value)
{
	const char *port = strstr(var, "_PORT_");

	return strstr(var, "_SERVICE_HOST") || strstr(var, "_SERVICE_PORT") ||
	       is_service_url(value) || (port && isdigit((unsigned char)port[6]));
}

bool dr_opts_next_stray_env(const struct dr_opts *o, size_t *at, char *buf, size_t len)
{
	size_t prefix = strlen(o->spec.program);
	char var[DR_OPT_ENV_MAX];

	char *const *env = environment(o);

	while (env[*at]) {
		const char *text = env[(*at)++];
		size_t n = strcspn(text, "=");

		if (strncasecmp(text, o->spec.program, prefix) != 0 || text[prefix] != '_' ||
			!text[n] || !text[n + 1])
			continue;
		snprintf(var, sizeof(var), "%.*s", (int)n, text);
		if (!is_service_link(var, text + n + 1) && describe_env(o, var, buf, len))
			return true;
	}
	return false;
}

static enum dr_opt_source source_of(const struct dr_opts *o, const char *name)
{
	long i = dr_opts_find(o, name, strlen(name));

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

/* ---- files ---- */

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;
	bool there = stat(a, &x) == 0;

	if (there && !S_ISREG(x.st_mode))
		return false;
	return there && stat(b, &y) == 0 ? x.st_dev == y.st_dev && x.st_ino == y.st_ino
					 : strcmp(a, b) == 0;
}

/* Is `text`, which row i writes, also read, or written by a row before it? */
static int check_file(const struct dr_opts *o, size_t i, const char *text, char *const *inputs,
	int n, struct dr_err *e)
{
	const struct dr_opt *row = o->value[i].row;
	const struct dr_opt_text *t;

	for (int k = 0; k < n; k++)
		if (same_file(text, inputs[k]))
			return dr_err_set(e, -EINVAL,
				"%s and --%s=%s are the same file; choose another one to write",
				inputs[k], row->name, text);
	for (size_t k = 0; k < o->n; k++) {
		enum dr_opt_file other = o->value[k].row->file;

		if (k == i || !other || (other != DR_OPT_READ && k > i) ||
			(other == DR_OPT_READ && row->file == DR_OPT_ADD))
			continue;
		for (t = STAILQ_FIRST(&o->value[k].texts); t; t = STAILQ_NEXT(t, next))
			if (same_file(text, t->text))
				return dr_err_set(e, -EINVAL,
					"--%s=%s and --%s=%s are the same file; choose another one to write",
					o->value[k].row->name, t->text, row->name, text);
	}
	return 0;
}

int dr_opts_check_files(const struct dr_opts *o, char *const *inputs, int n, struct dr_err *e)
{
	const struct dr_opt_text *t;
	int rc = 0;

	for (size_t i = 0; i < o->n && rc == 0; i++)
		if (o->value[i].row->file >= DR_OPT_ADD)
			for (t = STAILQ_FIRST(&o->value[i].texts); t && rc == 0;
				t = STAILQ_NEXT(t, next))
				rc = check_file(o, i, t->text, inputs, n, e);
	return rc;
}
