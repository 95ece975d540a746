/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/opts_priv.h"

/* The configuration file. Each value is converted to the text that the command line would have. */

static int set_json(struct dr_opts *o, size_t i, const json_t *v, struct dr_err *e);

/* The text "1,2,3" of an array. */
struct list_text {
	size_t len;
	char text[4096];
};

/* Numbers; names where the option's own list syntax has them. */
static int add_item(
	struct list_text *l, const struct dr_opt *row, const json_t *v, struct dr_err *e)
{
	const char *s = json_string_value(v), *comma = l->len ? "," : "";
	size_t room = sizeof(l->text) - l->len;
	int n = 0;

	if (json_is_integer(v))
		n = snprintf(l->text + l->len, room, "%s%" JSON_INTEGER_FORMAT, comma,
			json_integer_value(v));
	else if (row->list && s)
		n = snprintf(l->text + l->len, room, "%s%s", comma, s);
	if (n <= 0 || (size_t)n >= room)
		return dr_err_set(e, -EINVAL, "\"%s\": not a list of numbers%s", row->name,
			row->list ? " and names" : "");
	l->len += (size_t)n;
	return 0;
}

static int set_json_array(struct dr_opts *o, size_t i, const json_t *array, struct dr_err *e)
{
	const struct dr_opt *row = o->value[i].row;
	struct list_text list = { 0 };
	size_t k;
	json_t *v;
	int rc = 0;

	if (row->repeat) {
		json_array_foreach(array, k, v)
		{
			if (json_is_array(v))
				return dr_err_set(
					e, -EINVAL, "\"%s\": a list in a list", row->name);
			rc = set_json(o, i, v, e);
			if (rc)
				break;
		}
		return rc;
	}
	if (row->kind != DR_OPT_LIST && !row->list)
		return dr_err_set(
			e, -EINVAL, "\"%s\": one value is expected, not a list", row->name);
	json_array_foreach(array, k, v)
	{
		rc = add_item(&list, row, v, e);
		if (rc)
			return rc;
	}
	v = json_string(list.text);
	rc = v ? set_json(o, i, v, e) : dr_err_set(e, -ENOMEM, "out of memory");
	json_decref(v);
	return rc;
}

/* The parsers of sizes, durations and rates accept no exponents. */
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
	const char *name = o->value[i].row->name;
	char buf[64], label[96];

	if (json_is_null(v)) /* "key-file": null of a template would be a run without a key */
		return dr_err_set(e, -EINVAL,
			"\"%s\": null is no value; give one, or remove the line for the default",
			name);
	if (json_is_array(v))
		return set_json_array(o, i, v, e);
	if (json_is_object(v))
		return dr_err_set(e, -EINVAL, "\"%s\": a value is expected, not an object", name);
	const char *text = buf;
	if (json_is_string(v))
		text = json_string_value(v);
	else if (json_is_integer(v))
		snprintf(buf, sizeof(buf), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		real_text(o->value[i].row, json_real_value(v), buf, sizeof(buf));
	else
		snprintf(buf, sizeof(buf), "%s", json_is_true(v) ? "on" : "off");
	snprintf(label, sizeof(label), "\"%s\"", name);
	return dr_opts_set(o, i, DR_SRC_CONFIG, label, text, e);
}

int dr_opts_from_json(struct dr_opts *o, unsigned command, const json_t *config, struct dr_err *e)
{
	const char *key;
	json_t *v;
	int rc = 0;

	if (!json_is_object(config))
		return dr_err_set(e, -EINVAL, "an object {\"option\": value} is expected");
	/* The macro wants a json_t that it may change; iteration does not. */
	json_object_foreach((json_t *)config, key, v)
	{
		long i = dr_opts_find(o, key, strlen(key));
		if (i < 0) {
			const char *hint = dr_opts_nearest(o, ~0u, key);
			return dr_err_set(e, -EINVAL, "unknown option \"%.60s\"%s%s%s", key,
				hint ? "; did you mean \"" : "", hint ? hint : "",
				hint ? "\"" : "");
		}
		if (o->value[i].row->no_config)
			return dr_err_set(e, -EINVAL, "\"%s\" belongs on the command line", key);
		/* Of an earlier file: a list is replaced, not continued. */
		if (o->value[i].source == DR_SRC_CONFIG)
			rc = dr_opts_forget(o, (size_t)i, e);
		if (rc == 0 && (o->value[i].row->commands & command))
			rc = set_json(o, (size_t)i, v, e);
		if (rc)
			break;
	}
	return rc;
}
