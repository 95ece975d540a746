/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/output/schema.h"

#include "base/log.h"
#include "base/schema.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/output/record.h"
#include "transport/kind.h"

#include <stdio.h>
#include <string.h>

/* A line of --json-stream; what data is follows from event. */
struct line {
	int64_t wall_ns, monotonic_ns;
	const char *event;
	json_t *data;
};
#define F(kind_, name_, T, member, text_, ...)                                                     \
	DR_FIELD(name_, DR_F_##kind_, T, member, .text = (text_), .flags = DR_F_REQUIRED,          \
		__VA_ARGS__)
static const struct dr_field line[] = {
	F(TEXT, "event", struct line, event, "what the line reports"),
	F(WALL, "time", struct line, wall_ns, "when it was written, ISO 8601"),
	F(NS, "monotonic_ns", struct line, monotonic_ns, "the same time on the monotonic clock"),
	F(JSON, "data", struct line, data,
		"start, end: the result document so far; result: its results so far; "
		"others: a row of it",
		.schema = "{\"type\":\"object\"}"),
};
static DR_FIELDS(line_fields, "stream", line, struct line, .text = "a line of --json-stream");

/* A line of --log-json (base/log.c, which writes it without memory or locks). */
struct log_line {
	int64_t wall_ns;
	int level;
	const char *component, *text;
	int64_t exit_code;
	const char *run_id, *node;
	int64_t rank, gpu;
	json_t *options;
};
static const char *const levels[] = { "error", "warn", "info", "debug", NULL };
static const struct dr_field log_line[] = {
	F(WALL, "time", struct log_line, wall_ns, "ISO 8601"),
	DR_FIELD_ENUM("level", struct log_line, level, levels, .text = "severity",
		.flags = DR_F_REQUIRED),
	F(TEXT, "component", struct log_line, component, "part of the program"),
	DR_FIELD("run_id", DR_F_TEXT, struct log_line, run_id,
		.text = "name of the run, as in its document: that of the client at both ends; a server: of the "
			"client that it serves",
		.flags = DR_F_OMIT),
	DR_FIELD("node", DR_F_TEXT, struct log_line, node, .text = "name of the host",
		.flags = DR_F_OMIT),
	DR_FIELD("rank", DR_F_SINT, struct log_line, rank, .min = 0,
		.text = "number of the process, given by its launcher: the first of PMIX_RANK, "
			"OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID, JOB_COMPLETION_INDEX",
		.flags = DR_F_OMIT),
	DR_FIELD("gpu", DR_F_SINT, struct log_line, gpu, .min = 0,
		.text = "GPU that the line is about, as in the document, if it is one",
		.flags = DR_F_OMIT),
	DR_FIELD("exit_code", DR_F_SINT, struct log_line, exit_code, .min = 0, .max = 255,
		.text = "component result: exit status of the run", .flags = DR_F_OMIT),
	DR_FIELD("options", DR_F_JSON, struct log_line, options,
		.text = "effective options by name, with --verbose", .flags = DR_F_OMIT,
		.schema = "{\"type\":\"object\"}"),
	F(TEXT, "text", struct log_line, text, "the message"),
};
static DR_FIELDS(log_fields, "log", log_line, struct log_line, .text = "a line of --log-json");

static const struct dr_schema documents[] = {
	{ "result", "urn:dualrail:schema:result:1", &dr_record_fields },
	{ "stream", "urn:dualrail:schema:stream:1", &line_fields },
	{ "log", "urn:dualrail:schema:log:1", &log_fields },
	{ NULL, NULL, NULL },
};

/* If event is this, data is that; returns the table's name. */
static void add_event(json_t *doc, const char *event, const struct dr_fields *data)
{
	json_t *defs = json_object_get(doc, "$defs"), *body = dr_schema_of(data, defs);
	char ref[64];

	snprintf(ref, sizeof(ref), "#/$defs/%s", data->what);
	json_object_set_new(defs, data->what, body);
	json_array_append_new(json_object_get(doc, "allOf"),
		json_pack("{s:{s:{s:{s:s}}}, s:{s:{s:{s:s}}}}", "if", "properties", "event",
			"const", event, "then", "properties", "data", "$ref", ref));
	json_array_append_new(
		json_object_get(
			json_object_get(json_object_get(doc, "properties"), "event"), "enum"),
		json_string(event));
}

static void add_events(json_t *doc)
{
	json_t *event = json_object_get(json_object_get(doc, "properties"), "event");

	json_object_set_new(event, "enum", json_array());
	json_object_set_new(doc, "allOf", json_array());
	json_object_set_new(doc, "$defs", json_object());
	add_event(doc, "start", &dr_record_fields);
	add_event(doc, "end", &dr_record_fields);
	add_event(doc, "result", &dr_result_fields);
	for (size_t i = 0; i < dr_n_row_types; i++)
		if (dr_row_types[i].event)
			add_event(doc, dr_row_types[i].event, dr_row_types[i].fields);
}

/* What a document states about its own outcome. */
static void add_outcome(json_t *doc)
{
	json_object_set_new(doc, "allOf",
		json_pack(
			"[{s:{s:{s:{s:s}}}, s:{s:{s:{s:i}}}}, {s:{s:{s:{s:i}}}, s:{s:{s:{s:s}}}}]",
			"if", "properties", "status", "const", "pass", "then", "properties",
			"exit_code", "const", 0, "if", "properties", "exit_code", "const", 0,
			"then", "properties", "status", "const", "pass"));
}

/* The kinds of this build, where the object that `schema` describes names one. */
static void add_transports(json_t *schema)
{
	json_t *detection = json_object_get(json_object_get(schema, "properties"), "detection");
	json_t *transport = json_object_get(json_object_get(detection, "properties"), "transport");
	json_t *names = json_array();
	const struct dr_transport_kind *k;

	for (size_t i = 0; (k = dr_transport_kind_at(i)); i++)
		json_array_append_new(names, json_string(k->name));
	if (transport)
		json_object_set(transport, "examples", names);
	json_decref(names);
}

static int print(const struct dr_schema *x, FILE *f)
{
	json_t *doc = dr_schema_document(x->fields, x->id), *defs;

	if (x->fields == &line_fields)
		add_events(doc);
	else if (json_object_get(json_object_get(doc, "properties"), "status"))
		add_outcome(doc);
	add_transports(doc);
	defs = json_object_get(doc, "$defs");
	for (void *at = json_object_iter(defs); at; at = json_object_iter_next(defs, at))
		add_transports(json_object_iter_value(at));
	int rc = dr_json_write(doc, f, 1);
	json_decref(doc);
	return rc ? DR_EXIT_ENV : 0;
}

static const struct dr_schema *find(const struct dr_schema *list, const char *name)
{
	while (list->name && strcmp(list->name, name) != 0)
		list++;
	return list->name ? list : NULL;
}

int dr_schema_main(const struct dr_schema *others, int argc, char *const argv[])
{
	const struct dr_schema *x;

	if (argc < 2) {
		for (x = documents; x->name; x++)
			puts(x->name);
		for (x = others; x->name; x++)
			puts(x->name);
		return 0;
	}
	x = find(documents, argv[1]);
	x = x ? x : find(others, argv[1]);
	if (x)
		return print(x, stdout);
	dr_complain("no schema \"%.40s\"; `dualrail schema` lists them", argv[1]);
	return DR_EXIT_USAGE;
}
