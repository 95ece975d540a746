/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fields.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t INT_LIMIT = (int64_t)1 << 53, NS_LIMIT = (int64_t)1 << 62;
static const double NS_DOUBLE_LIMIT = 4e18, /* nanoseconds with room for a difference */
	NUM_LIMIT = 1e18;

const char *const dr_bool_names[] = { "false", "true", NULL };

const char *dr_enum_name(const char *const *names, int i)
{
	for (int k = 0; names[k]; k++)
		if (k == i)
			return names[k];
	return "-";
}

/* What the bytes of an integer kind are where the value is unknown; 0 where nothing is to be set. */
static int64_t unset_of(enum dr_field_kind k)
{
	if (k == DR_F_INT || k == DR_F_US || k == DR_F_MS || k == DR_F_NS)
		return DR_UNSET;
	return k == DR_F_ENUM ? -1 : 0;
}

/* Where the lower `len` bytes of an integer are. */
static void *lower_bytes(int64_t *v, size_t len)
{
	return (char *)v + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? sizeof(*v) - len : 0);
}

/* The value of any kind whose member is an integer. */
static int64_t get_int(const struct dr_field *f, const void *p)
{
	unsigned spare = 64 - 8 * (unsigned)f->len;
	int64_t v = 0;

	memcpy(lower_bytes(&v, f->len), p, f->len);
	if (f->kind == DR_F_UINT || f->kind == DR_F_BOOL)
		return v;
	return (int64_t)((uint64_t)v << spare) >> spare;
}

static void put_int(const struct dr_field *f, void *p, int64_t v)
{
	memcpy(p, lower_bytes(&v, f->len), f->len);
}

void dr_fields_init(const struct dr_fields *t, void *row)
{
	memset(row, 0, t->size);
	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field *f = &t->f[i];
		void *p = (char *)row + f->off;

		if (f->kind == DR_F_NUM)
			*(double *)p = NAN;
		else if (f->kind == DR_F_ROW)
			dr_fields_init(f->row, p);
		else if (unset_of(f->kind))
			put_int(f, p, unset_of(f->kind));
	}
}

static bool in_range(const struct dr_field *f, int64_t v)
{
	return f->min == f->max || (v >= f->min && v <= f->max);
}

/* Rows of a ROWS or LIST field; *n: how many. */
static const void *field_rows(const struct dr_field *f, const void *row, size_t *n)
{
	const char *p = (const char *)row + f->off;
	const void *v;

	if (f->kind == DR_F_ROWS) {
		*n = *(const unsigned *)(const void *)((const char *)row + f->n_off);
		return p;
	}
	/* A pointer to rows of some type, then the count. */
	memcpy(&v, p, sizeof(v));
	memcpy(n, p + sizeof(v), sizeof(*n));
	return v;
}

bool dr_field_unknown(const struct dr_field *f, const void *row)
{
	const void *p = (const char *)row + f->off;
	size_t n;

	switch (f->kind) {
	case DR_F_NUM:
		return !isfinite(*(const double *)p);
	case DR_F_STR:
		return !*(const char *)p;
	case DR_F_TEXT:
		return !*(const char *const *)p || !**(const char *const *)p;
	case DR_F_JSON:
		return !*(json_t *const *)p;
	case DR_F_ROW:
		return dr_field_unknown(&f->row->f[0], p);
	case DR_F_ROWS:
	case DR_F_LIST:
		field_rows(f, row, &n);
		return n == 0;
	case DR_F_UINT:
	case DR_F_SINT:
		return !in_range(f, get_int(f, p));
	case DR_F_WALL:
	case DR_F_ENUM:
		return get_int(f, p) < 0;
	case DR_F_BOOL:
	case DR_F_CONST:
		return false;
	default:
		return get_int(f, p) == unset_of(f->kind);
	}
}

void dr_fields_fill(const struct dr_fields *t, void *into, const void *from)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field *f = &t->f[i];
		void *p = (char *)into + f->off;
		const void *q = (const char *)from + f->off;

		if (f->flags & DR_F_LARGER)
			*(int64_t *)p = DR_MAX(*(int64_t *)p, *(const int64_t *)q);
		else if (f->kind < DR_F_UINT && dr_field_unknown(f, into))
			memcpy(p, q, f->len);
	}
}

bool dr_fields_same_key(const struct dr_fields *t, const void *a, const void *b)
{
	bool any = false;

	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field *f = &t->f[i];
		const char *p = (const char *)a + f->off, *q = (const char *)b + f->off;

		if (!(f->flags & DR_F_KEY))
			continue;
		any = true;
		if (f->kind == DR_F_STR ? strcmp(p, q) != 0 : memcmp(p, q, f->len) != 0)
			return false;
	}
	return any;
}

/* Where the row with this one's key is, or would be. */
static uint32_t *slot_of(
	const struct dr_row_index *x, const struct dr_fields *t, const char *v, const char *row)
{
	uint64_t h = 0, part = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field *f = &t->f[i];
		const char *p = row + f->off;

		if (!(f->flags & DR_F_KEY))
			continue;
		crypto_shorthash((uint8_t *)&part, (const uint8_t *)p,
			f->kind == DR_F_STR ? strlen(p) : f->len, x->key);
		h = dr_mix64(h ^ part);
	}
	while (x->slot[h &= x->cap - 1] &&
		!dr_fields_same_key(t, v + (x->slot[h] - 1) * t->size, row))
		h++;
	return &x->slot[h];
}

void *dr_rows_find(
	struct dr_row_index *x, const struct dr_fields *t, const void *v, size_t n, const void *row)
{
	const char *rows = v;
	size_t i = 0;

	if (!x->cap && dr_random_bytes(x->key, sizeof(x->key)))
		memset(x->key, 0, sizeof(x->key));
	if (!x->slot || n < x->n || x->cap / 2 <= n) {
		for (x->cap = DR_MAX(x->cap, (size_t)32); x->cap / 2 <= n;)
			x->cap *= 2;
		dr_free(x->slot);
		x->slot = dr_calloc(x->cap, sizeof(*x->slot));
		x->n = 0;
	}
	for (; x->slot && x->n < n; x->n++)
		*slot_of(x, t, rows, rows + x->n * t->size) = (uint32_t)x->n + 1;
	if (x->slot)
		i = *slot_of(x, t, rows, row) - 1u;
	else
		while (i < n && !dr_fields_same_key(t, rows + i * t->size, row))
			i++;
	return i < n ? (void *)((uintptr_t)rows + i * t->size) : NULL;
}

/* ------------------------------- writing ------------------------------- */

json_t *dr_json_text(const char *s)
{
	s = s ? s : "";
	json_t *v = json_string(s);
	if (v)
		return v;
	/* Not UTF-8 (a file name, a cut text), or no memory. */
	char *copy = dr_strdup(s);
	if (!copy)
		return NULL;
	dr_text_copy(copy, strlen(s) + 1, s);
	v = json_string(copy);
	dr_free(copy);
	return v;
}

json_t *dr_json_wall(int64_t wall_ns)
{
	char buf[32];

	if (wall_ns < 0)
		return json_null();
	dr_wall_format(wall_ns, buf, sizeof(buf));
	return json_string(buf);
}

const char *dr_json_string(const json_t *obj, const char *key)
{
	const char *s = json_string_value(json_object_get(obj, key));

	return s ? s : "";
}

static json_t *enum_value(const struct dr_field *f, int i)
{
	const char *name = dr_enum_name(f->names, i);

	if (!strcmp(name, "-"))
		return json_null();
	return f->names == dr_bool_names ? json_boolean(i) : json_string(name);
}

static double unit_ns(const struct dr_field *f)
{
	return f->kind == DR_F_US ? DR_NS_PER_US : DR_NS_PER_MS;
}

/* Written as what it is where others are null. */
static bool is_never_null(const struct dr_field *f)
{
	return f->kind == DR_F_ROWS || f->kind == DR_F_LIST ||
	       (f->kind == DR_F_STR && f->flags & DR_F_REQUIRED) ||
	       (f->kind == DR_F_ROW && !(f->flags & DR_F_NULLABLE));
}

json_t *dr_field_value(const struct dr_field *f, const void *row)
{
	const void *p = (const char *)row + f->off;
	size_t n;

	if (!is_never_null(f) && dr_field_unknown(f, row))
		return json_null();
	switch (f->kind) {
	case DR_F_INT:
	case DR_F_NS:
	case DR_F_STAMP:
	case DR_F_UINT:
	case DR_F_SINT:
		return json_integer(get_int(f, p));
	case DR_F_US:
	case DR_F_MS:
		return json_real((double)get_int(f, p) / unit_ns(f));
	case DR_F_WALL:
		return dr_json_wall(get_int(f, p));
	case DR_F_NUM:
		return json_real(*(const double *)p);
	case DR_F_ENUM:
		return enum_value(f, *(const int *)p);
	case DR_F_STR:
		return dr_json_text(p);
	case DR_F_TEXT:
		return dr_json_text(*(const char *const *)p);
	case DR_F_BOOL:
		return json_boolean(*(const bool *)p);
	case DR_F_ERRNO:
		return json_string(dr_errno_name(*(const int *)p));
	case DR_F_CONST:
		return json_string(f->text_value);
	case DR_F_JSON:
		return json_incref(*(json_t *const *)p);
	case DR_F_ROW:
		return dr_fields_to_json(f->row, p);
	case DR_F_ROWS:
	case DR_F_LIST:
		p = field_rows(f, row, &n);
		return dr_rows_to_json(f->row, p, n);
	}
	return json_null();
}

void dr_json_append(json_t **list, json_t *v)
{
	if (json_array_append_new(*list, v)) {
		json_decref(*list);
		*list = NULL;
	}
}

void dr_json_put(json_t *obj, const char *key, json_t *v, int *failed)
{
	if (json_object_set_new(obj, key, v))
		++*failed;
}

const char *dr_field_key(const struct dr_field *f, char outer[DR_FIELD_OUTER])
{
	const char *dot = strchr(f->name, '.');

	snprintf(outer, DR_FIELD_OUTER, "%.*s", dot ? (int)(dot - f->name) : 0, f->name);
	return dot ? dot + 1 : f->name;
}

/* The object that the field stands in, made when it is not there, and the key in it. */
static json_t *field_home(json_t *obj, const struct dr_field *f, const char **key)
{
	char outer[DR_FIELD_OUTER];

	*key = dr_field_key(f, outer);
	if (!*outer)
		return obj;
	if (!json_object_get(obj, outer))
		json_object_set_new(obj, outer, json_object());
	return json_object_get(obj, outer);
}

static bool left_out(const struct dr_field *f, const void *row)
{
	const void *p = (const char *)row + f->off;

	if (f->flags & DR_F_HIDDEN)
		return true;
	if (!(f->flags & DR_F_OMIT))
		return false;
	if (f->kind == DR_F_UINT || f->kind == DR_F_SINT || f->kind == DR_F_BOOL)
		return get_int(f, p) == 0;
	return dr_field_unknown(f, row);
}

static json_t *tuple_to_json(const struct dr_fields *t, const void *row)
{
	json_t *a = json_array();

	for (size_t i = 0; i < t->n; i++)
		dr_json_append(&a, dr_field_value(&t->f[i], row));
	return a;
}

static bool is_single_value(const struct dr_fields *t)
{
	return t->n == 1 && !*t->f[0].name;
}

json_t *dr_fields_to_json(const struct dr_fields *t, const void *row)
{
	int failed = 0;

	if (is_single_value(t))
		return dr_field_value(&t->f[0], row);
	if (t->tuple)
		return tuple_to_json(t, row);
	json_t *obj = json_object();
	for (size_t i = 0; obj && i < t->n; i++) {
		const char *key;

		if (left_out(&t->f[i], row))
			continue;
		json_t *home = field_home(obj, &t->f[i], &key);
		dr_json_put(home, key, dr_field_value(&t->f[i], row), &failed);
	}
	if (failed || (obj && t->put && t->put(row, obj))) {
		json_decref(obj);
		return NULL;
	}
	return obj;
}

json_t *dr_rows_to_json(const struct dr_fields *t, const void *v, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; a && i < n; i++)
		dr_json_append(&a, dr_fields_to_json(t, (const char *)v + i * t->size));
	return a;
}

/* ------------------------------- reading ------------------------------- */

/* At most one value for every 6 bytes, where a list or object counts as two, and 4096 more. */
static int check_values(const char *s, size_t len, struct dr_err *e)
{
	size_t values = 0, most = len / 6 + 4096;
	unsigned depth = 0;
	bool quoted = false;

	for (size_t i = 0; i < len; i++) {
		if (s[i] == '"')
			quoted = !quoted;
		else if (quoted)
			i += s[i] == '\\';
		else if (s[i] == ',')
			values++;
		else if (s[i] == '}' || s[i] == ']')
			depth -= depth > 0;
		else if (s[i] == '{' || s[i] == '[')
			values += 2, depth++;
		if (depth > DR_JSON_DEPTH_MAX)
			return dr_err_set(e, -EPROTO, "JSON is nested deeper than %d levels",
				DR_JSON_DEPTH_MAX);
	}
	return values <= most ? 0
			      : dr_err_set(e, -EPROTO, "JSON of %zu bytes has more than %zu values",
					len, most);
}

json_t *dr_json_parse(const char *text, size_t len, struct dr_err *e)
{
	json_error_t je;
	json_t *j;

	if (check_values(text, len, e))
		return NULL;
	j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	if (!j)
		dr_err_set(
			e, -EPROTO, "not JSON: line %d column %d: %s", je.line, je.column, je.text);
	return j;
}

/* What is accepted: the kind's limits, of UINT and SINT the member's width, within the field's range. */
static void limits(const struct dr_field *f, int64_t *min, int64_t *max)
{
	bool is_signed = f->kind == DR_F_SINT;
	int64_t top = f->len >= 8 ? INT_LIMIT : ((int64_t)1 << (8 * f->len - is_signed)) - 1;

	*max = f->kind == DR_F_NS || f->kind == DR_F_STAMP ? NS_LIMIT : top;
	*min = is_signed ? -top - (f->len < 8) : 0;
	if (f->kind == DR_F_ROWS)
		*max = (int64_t)(f->len / f->row->size);
	if (f->min != f->max) {
		*min = DR_MAX(*min, f->min);
		*max = DR_MIN(*max, f->max);
	}
}

static int read_int(const struct dr_field *f, const json_t *v, void *p)
{
	int64_t i = json_integer_value(v), min, max;

	limits(f, &min, &max);
	if (!json_is_integer(v) || i < min || i > max)
		return -EPROTO;
	put_int(f, p, i);
	return 0;
}

/* Nothing that is measured is below 0; sums and means of what is read are finite. */
static int read_num(const json_t *v, double *out)
{
	*out = json_number_value(v);
	return json_is_number(v) && *out >= 0 && *out <= NUM_LIMIT ? 0 : -EPROTO;
}

static int read_scaled(const struct dr_field *f, const json_t *v, void *p)
{
	double d = json_number_value(v) * unit_ns(f);

	if (!json_is_number(v) || !(fabs(d) < NS_DOUBLE_LIMIT))
		return -EPROTO;
	*(int64_t *)p = llround(d);
	return 0;
}

/* A word without blanks and control bytes, which fits. */
static bool is_word(const char *s, size_t size)
{
	size_t n = 0;

	for (; s[n]; n++)
		if ((unsigned char)s[n] <= ' ' || s[n] == 0x7f)
			return false;
	return n > 0 && n < size;
}

static int read_bool(const struct dr_field *f, const json_t *v, void *p)
{
	if (!json_is_boolean(v))
		return -EPROTO;
	put_int(f, p, json_is_true(v));
	return 0;
}

static int read_enum(const struct dr_field *f, const json_t *v, int *out)
{
	const char *s = json_string_value(v);

	for (int i = 0; s && f->names[i]; i++)
		if (!strcmp(f->names[i], s)) {
			*out = i;
			return 0;
		}
	return -EPROTO;
}

static int read_errno(const json_t *v, int *out)
{
	const char *s = json_string_value(v);
	int i = 1;

	if (!s)
		return -EPROTO;
	while (i < 134 && strcmp(dr_errno_name(i), s) != 0)
		i++;
	*out = i < 134 ? -i : -EIO;
	return 0;
}

static int read_rows(const struct dr_field *f, void *row, const json_t *list, struct dr_err *e)
{
	size_t n = json_array_size(list), i;
	int64_t min, max;
	int rc = 0;

	limits(f, &min, &max);
	if (!json_is_array(list) || (int64_t)n < min || (int64_t)n > max)
		return -EPROTO;
	for (i = 0; !rc && i < n; i++)
		rc = dr_fields_from_json(f->row, (char *)row + f->off + i * f->row->size,
			json_array_get(list, i), e);
	*(unsigned *)(void *)((char *)row + f->n_off) = (unsigned)i;
	return rc;
}

static int read_text(const struct dr_field *f, void *p, const json_t *v)
{
	const char *s = json_string_value(v);

	if (!s || (f->flags & DR_F_WORD && !is_word(s, f->len)))
		return -EPROTO;
	dr_text_copy(p, f->len, s);
	return 0;
}

static int read_field(const struct dr_field *f, void *row, const json_t *v, struct dr_err *e)
{
	void *p = (char *)row + f->off;

	switch (f->kind) {
	case DR_F_INT:
	case DR_F_NS:
	case DR_F_STAMP:
	case DR_F_UINT:
	case DR_F_SINT:
		return read_int(f, v, p);
	case DR_F_US:
	case DR_F_MS:
		return read_scaled(f, v, p);
	case DR_F_WALL:
	case DR_F_TEXT:
	case DR_F_JSON:
	case DR_F_LIST:
		return 0;
	case DR_F_NUM:
		return read_num(v, p);
	case DR_F_BOOL:
		return read_bool(f, v, p);
	case DR_F_ENUM:
		return f->names == dr_bool_names ? read_bool(f, v, p) : read_enum(f, v, p);
	case DR_F_STR:
		return read_text(f, p, v);
	case DR_F_ERRNO:
		return read_errno(v, p);
	case DR_F_CONST:
		return json_is_string(v) && !strcmp(json_string_value(v), f->text_value) ? 0
											 : -EPROTO;
	case DR_F_ROW:
		return dr_fields_from_json(f->row, p, v, e);
	case DR_F_ROWS:
		return read_rows(f, row, v, e);
	}
	return -EPROTO;
}

/* "an integer from 1 to 64" */
static void describe_accepted(const struct dr_field *f, char *buf, size_t len)
{
	static const char *const plain[] = { [DR_F_NUM] = "a number from 0 to 1e18",
		[DR_F_STR] = "a text",
		[DR_F_ERRNO] = "the name of an error" };
	const char *const *names = f->kind == DR_F_BOOL ? dr_bool_names : f->names;
	int64_t min, max;

	limits(f, &min, &max);
	if (f->kind == DR_F_US || f->kind == DR_F_MS) {
		snprintf(buf, len, "a number below %.0e", NS_DOUBLE_LIMIT / unit_ns(f));
	} else if (f->kind == DR_F_CONST) {
		snprintf(buf, len, "\"%s\"", f->text_value);
	} else if (f->flags & DR_F_WORD) {
		snprintf(buf, len, "a word of 1 to %zu bytes", f->len - 1);
	} else if (f->kind < DR_ARRAY_LEN(plain) && plain[f->kind]) {
		snprintf(buf, len, "%s", plain[f->kind]);
	} else if (names) {
		snprintf(buf, len, "one of");
		for (; *names; names++)
			dr_append(buf, len, " %s", *names);
	} else {
		snprintf(buf, len, "%s %" PRId64 " to %" PRId64,
			f->kind == DR_F_ROWS ? "a list of" : "an integer from", min, max);
	}
}

/* "window.n: 100 is not an integer from 1 to 64" */
static int refuse(
	const struct dr_fields *t, const struct dr_field *f, const json_t *v, struct dr_err *e)
{
	char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
	char value[48], accepted[160];

	dr_text_copy(value, sizeof(value), text ? text : "");
	free(text); /* lint-ok: of jansson */
	describe_accepted(f, accepted, sizeof(accepted));
	return dr_err_set(e, -EPROTO, "%s%s%s: %s is not %s", t->what, *f->name ? "." : "", f->name,
		value, accepted);
}

/* Where the field's value is in v, which the row is read from. */
static const json_t *field_in(const struct dr_fields *t, const struct dr_field *f, const json_t *v)
{
	char outer[DR_FIELD_OUTER];
	const char *key = dr_field_key(f, outer);

	if (t->tuple)
		return json_array_get(v, (size_t)(f - t->f));
	if (!*key)
		return v;
	return json_object_get(*outer ? json_object_get(v, outer) : v, key);
}

static int check_form(const struct dr_fields *t, const json_t *v, struct dr_err *e)
{
	if (t->tuple && json_array_size(v) != t->n)
		return dr_err_set(e, -EPROTO, "%s: not a list of %zu", t->what, t->n);
	if (!t->tuple && !is_single_value(t) && !json_is_object(v))
		return dr_err_set(e, -EPROTO, "%s: not an object", t->what);
	return 0;
}

int dr_fields_from_json(const struct dr_fields *t, void *row, const json_t *obj, struct dr_err *e)
{
	int rc = check_form(t, obj, e);

	if (rc)
		return rc;
	dr_fields_init(t, row);
	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field *f = &t->f[i];
		const json_t *v = field_in(t, f, obj);
		struct dr_err inner = { 0 };

		if (f->flags & DR_F_HIDDEN)
			continue;
		if (!v || json_is_null(v)) {
			if (f->flags & DR_F_REQUIRED)
				return dr_err_set(e, -EPROTO, "%s.%s: missing", t->what, f->name);
			continue;
		}
		if (!read_field(f, row, v, &inner))
			continue;
		if (inner.code)
			return dr_err_set(e, -EPROTO, "%s.%.200s", t->what, inner.text);
		return refuse(t, f, v, e);
	}
	return t->get ? t->get(row, obj, e) : 0;
}
