/* SPDX-License-Identifier: Apache-2.0 */
#include "base/schema.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void put(json_t *o, const char *key, json_t *v)
{
	/* A NULL v (no memory) leaves the key out; dr_schema_document finds that by itself. */
	json_object_set_new(o, key, v);
}

/* Unit of a number by its kind, else by its name: the names of all documents end in their units. */
static const char *unit_of(const struct dr_field *f)
{
	static const char *const by_kind[] = {
		[DR_F_US] = "us", [DR_F_MS] = "ms", [DR_F_NS] = "ns", [DR_F_STAMP] = "ns"
	};
	static const char *const by_name[][2] = { { "bytes", "B" }, { "gbps", "Gb/s" },
		{ "percent", "%" }, { "seconds", "s" }, { "mbps", "Mb/s" } };

	if (f->kind < DR_ARRAY_LEN(by_kind) && by_kind[f->kind])
		return by_kind[f->kind];
	for (size_t i = 0; i < DR_ARRAY_LEN(by_name); i++)
		if (strstr(f->name, by_name[i][0]))
			return by_name[i][1];
	return NULL;
}

static bool is_number(const struct dr_field *f)
{
	return f->kind <= DR_F_STAMP || f->kind == DR_F_NUM || f->kind == DR_F_UINT ||
	       f->kind == DR_F_SINT;
}

static bool may_be_null(const struct dr_field *f)
{
	if (f->flags & (DR_F_REQUIRED | DR_F_OMIT))
		return false;
	if (f->kind == DR_F_UINT || f->kind == DR_F_SINT)
		return f->min != f->max;
	return f->kind < DR_F_UINT || f->kind == DR_F_ERRNO ||
	       (f->kind == DR_F_ROW && f->flags & DR_F_NULLABLE);
}

static void put_type(json_t *o, const struct dr_field *f, const char *type)
{
	put(o, "type", may_be_null(f) ? json_pack("[s, s]", type, "null") : json_string(type));
}

static void put_enum(json_t *o, const struct dr_field *f)
{
	json_t *list = json_array();

	for (size_t i = 0; f->names[i]; i++)
		json_array_append_new(list, json_string(f->names[i]));
	if (may_be_null(f))
		json_array_append_new(list, json_null());
	put(o, "enum", list);
}

static void put_number(json_t *o, const struct dr_field *f)
{
	bool real = f->kind == DR_F_US || f->kind == DR_F_MS || f->kind == DR_F_NUM;

	put_type(o, f, real ? "number" : "integer");
	if (f->min != f->max) {
		put(o, "minimum", json_integer(f->min));
		put(o, "maximum", json_integer(f->max));
	} else if (!real && f->kind != DR_F_SINT) {
		put(o, "minimum", json_integer(0));
	}
}

static json_t *rows_of(const struct dr_fields *t, json_t *defs)
{
	char ref[64];

	if (!json_object_get(defs, t->what))
		put(defs, t->what, dr_schema_of(t, defs));
	snprintf(ref, sizeof(ref), "#/$defs/%s", t->what);
	return json_pack("{s:s}", "$ref", ref);
}

static json_t *schema_of_field(const struct dr_field *f, json_t *defs)
{
	json_t *o = f->kind == DR_F_ROW ? dr_schema_of(f->row, defs) : json_object();
	json_t *more = f->schema ? json_loads(f->schema, 0, NULL) : NULL;

	if (is_number(f))
		put_number(o, f);
	else if (f->kind == DR_F_CONST)
		put(o, "const", json_string(f->text_value));
	else if (f->kind == DR_F_BOOL || (f->kind == DR_F_ENUM && f->names == dr_bool_names))
		put_type(o, f, "boolean");
	else if (f->kind == DR_F_ENUM)
		put_enum(o, f);
	else if (f->kind == DR_F_ROW)
		put_type(o, f, f->row->tuple ? "array" : "object");
	else if (f->row) {
		put(o, "type", json_string("array"));
		put(o, "items", rows_of(f->row, defs));
	} else if (f->kind != DR_F_JSON)
		put_type(o, f, "string");
	if (f->kind == DR_F_WALL)
		put(o, "format", json_string("date-time"));
	json_object_update(o, more); /* nothing when NULL */
	json_decref(more);
	if (f->text)
		put(o, "description", json_string(f->text));
	if (is_number(f) && unit_of(f))
		put(o, "unit", json_string(unit_of(f)));
	return o;
}

static json_t *new_object(const char *text)
{
	json_t *o = json_pack("{s:s, s:{}, s:[], s:b}", "type", "object", "properties", "required",
		"additionalProperties", 0);

	if (text)
		put(o, "description", json_string(text));
	return o;
}

/* The object schema that the field belongs to: o, or for "rtt_us.p50" that of rtt_us in it. */
static json_t *home_of(json_t *o, const struct dr_field *f, const char **key)
{
	json_t *properties = json_object_get(o, "properties"), *inner;
	char outer[DR_FIELD_OUTER];

	*key = dr_field_key(f, outer);
	if (!*outer)
		return o;
	inner = json_object_get(properties, outer);
	if (!inner) {
		inner = new_object(NULL);
		put(properties, outer, inner);
		json_array_append_new(json_object_get(o, "required"), json_string(outer));
	}
	return inner;
}

json_t *dr_schema_of(const struct dr_fields *t, json_t *defs)
{
	if (t->n == 1 && !*t->f[0].name)
		return schema_of_field(&t->f[0], defs);
	json_t *o = new_object(t->text);
	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field *f = &t->f[i];
		const char *key;

		if (f->flags & DR_F_HIDDEN)
			continue;
		json_t *home = home_of(o, f, &key);
		put(json_object_get(home, "properties"), key, schema_of_field(f, defs));
		if (!(f->flags & DR_F_OMIT))
			json_array_append_new(json_object_get(home, "required"), json_string(key));
	}
	return o;
}

json_t *dr_schema_document(const struct dr_fields *t, const char *id)
{
	json_t *defs = json_object(), *body = dr_schema_of(t, defs);
	json_t *o = json_pack("{s:s, s:s, s:s}", "$schema",
		"https://json-schema.org/draft/2020-12/schema", "$id", id, "title", t->what);

	if (o && body && defs)
		json_object_update(o, body);
	json_decref(body);
	if (o && json_object_size(defs))
		json_object_set(o, "$defs", defs);
	json_decref(defs);
	return o;
}
