/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/document.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "orchestrator/fleet/sweep.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[] = { "running", "ok", "failed", "missing", NULL };
static const char *const presence_names[] = { "awaited", "present", "lost", NULL };
static const char *const status_names[] = { "pass", "fail", NULL };

#define F(kind, name, member, text_, ...)                                                          \
	DR_FIELD(name, DR_F_##kind, T, member, .text = (text_), __VA_ARGS__)

/* ---- rows ---- */

#define T struct dr_sweep_nic
static DR_TABLE(nic_fields, "nic", T, "a NIC of a node",
	F(STR, "name", name, "its name", .flags = DR_F_WORD),
	F(INT, "speed_mbps", speed_mbps, "speed of its link, Mb/s; null: unknown"),
	F(BOOL, "up", up, "set up by the administrator"),
	F(BOOL, "carrier", carrier, "its link is there"),
	F(BOOL, "told", told,
		"the node described it; false: only runs named it, e.g. an RDMA device"));
#undef T

#define T struct dr_sweep_node
static DR_TABLE(node_fields, "node", T, "a node",
	F(UINT, "rank", rank, "its number in the job", .flags = DR_F_REQUIRED),
	DR_FIELD_ENUM("presence", T, presence, presence_names,
		.text = "awaited: it never joined; lost: its process or its connection ended during the sweep"),
	F(STR, "host", host, "its name"),
	F(STR, "address", address, "where its connection came from"),
	F(STR, "reason", reason, "why it was lost, or refused"),
	F(LIST, "nics", nic, "its NICs with an address, and those that runs named",
		.row = &nic_fields));
#undef T

struct lane_row {
	char client_nic[32], server_nic[32];
	int direction;
	double gbps, percent, alone;
	int64_t wrong;
	json_t *runs;
};
#define T struct lane_row
static DR_TABLE(lane_fields, "lane", T, "data from a NIC of one node to a NIC of the other",
	F(STR, "client_nic", client_nic, "the client's NIC; all: without --matrix, all together"),
	F(STR, "server_nic", server_nic, "the server's NIC"),
	DR_FIELD_ENUM(
		"direction", T, direction, dr_direction_names, .text = "direction of the data"),
	F(NUM, "gbps", gbps,
		"bandwidth, all GPUs at once, of the best run; null: no data, or channels left the NIC"),
	F(JSON, "runs_gbps", runs, "gbps of each run that had it, in their order",
		.schema = "{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"null\"]}}"),
	F(NUM, "percent", percent, "gbps relative to the median of the sweep"),
	F(NUM, "alone_gbps", alone,
		"bandwidth without data in the other direction; null: not measured, or no data"),
	F(INT, "wrong_chunks", wrong, "chunks with wrong bytes, most of a run"));
#undef T

struct pair_row {
	uint32_t client, server;
	int state;
	unsigned attempts;
	int64_t exit_code;
	const char *text, *counters;
	double rtt_us, rtt_p99_us;
	json_t *lanes, *unused;
};
#define T struct pair_row
static DR_TABLE(pair_fields, "pair", T, "a pair of nodes",
	F(UINT, "client", client, "rank of the client of its run", .flags = DR_F_REQUIRED),
	F(UINT, "server", server, "rank of the server", .flags = DR_F_REQUIRED),
	DR_FIELD_ENUM("state", T, state, state_names,
		.text = "failed: its run had no figures; missing: a node was not there",
		.flags = DR_F_REQUIRED),
	F(UINT, "attempts", attempts, "runs, this sweep's and those of --resume"),
	F(INT, "exit_code", exit_code, "exit status of the client's last run"),
	F(TEXT, "error", text, "why it failed"),
	F(TEXT, "counters", counters,
		"counters of errors, drops and link changes that grew in its last run, by end and NIC"),
	F(NUM, "rtt_us", rtt_us, "largest median round trip of a GPU, with --test lat"),
	F(NUM, "rtt_p99_us", rtt_p99_us, "largest 99th percentile of the round trip of a GPU"),
	F(JSON, "lanes", lanes, "its figures", .row = &lane_fields),
	F(JSON, "unused_nics", unused,
		"[end, NIC] that the run could not use, for they are down or have no carrier",
		.schema =
			"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}"));
#undef T

#define T struct dr_sweep_finding
static DR_TABLE(finding_fields, "finding", T, "what is bad, with its evidence",
	DR_FIELD_ENUM("kind", T, kind, dr_sweep_kind_names, .text = "what it is, see docs/SWEEP.md",
		.flags = DR_F_REQUIRED),
	F(INT, "rank", rank, "the node; of a pair or a group of nodes, the first one"),
	F(INT, "peer_rank", peer_rank, "the other node of a pair; a node of the other group"),
	F(STR, "nic", nic, "the NIC; null: the whole node"),
	F(STR, "peer_nic", peer_nic, "the other NIC of a pair"),
	F(NUM, "gbps", gbps, "lowest figure behind it"),
	F(NUM, "median_gbps", median_gbps, "median of all figures"),
	F(NUM, "percent", percent, "gbps relative to it"),
	F(INT, "low", low, "figures behind it that are low or wrong (failed pairs, of failures)"),
	F(INT, "of", of, "figures of the same part"),
	F(INT, "wrong_chunks", wrong_chunks, "chunks with wrong bytes"),
	F(STR, "reason", reason, "why the runs failed, or the node was lost"),
	F(STR, "text", text, "the same in words"));
#undef T

/* ---- the document ---- */

struct document {
	struct dr_sweep_verdict v;
	struct dr_sweep_summary s;
	const char *version;
	int failed;
	double least;
	uint32_t nodes, rounds;
	json_t *node_rows, *pair_rows;
};
#define T struct document
static const struct dr_field document[] = {
	DR_FIELD_CONST("schema", DR_SWEEP_SCHEMA, .text = "format of this document"),
	F(TEXT, "version", version, "version of this program"),
	F(TEXT, "run_id", s.run_id, "name of the sweep"),
	DR_FIELD_ENUM("status", T, failed, status_names, .text = "outcome", .flags = DR_F_REQUIRED),
	F(SINT, "exit_code", s.exit_code, "exit status of the program", .min = 0, .max = 255),
	F(TEXT, "verdict", s.line, "the last line that is printed"),
	F(WALL, "start_time", s.start_wall_ns, "when it began, ISO 8601"),
	F(NUM, "seconds", s.seconds, "time that it took"),
	F(TEXT, "source", s.source,
		"what told ranks and addresses: a scheduler, --rank, --hostfile"),
	F(TEXT, "pattern", s.pattern, "--pattern"),
	F(UINT, "nodes_expected", nodes, "nodes of the job", .flags = DR_F_REQUIRED),
	F(UINT, "rounds", rounds, "rounds of pairs that ran at the same time"),
	F(NUM, "measured.median_gbps", v.median_gbps,
		"median of all figures, each of its first run"),
	F(NUM, "measured.min_pair_percent", least, "bound: lower figures are low (--min-pair)"),
	F(NUM, "measured.lowest_percent", v.lowest_percent,
		"lowest figure, relative to the median"),
	F(UINT, "measured.pairs", v.pairs, "pairs of the pattern, as far as it came"),
	F(UINT, "measured.ok", v.ok, "pairs with figures"),
	F(UINT, "measured.failed", v.failed, "pairs whose run failed"),
	F(UINT, "measured.missing", v.missing, "pairs of which a node was not there"),
	F(UINT, "measured.figures", v.figures, "figures: pairs of NICs, each direction"),
	F(UINT, "measured.low", v.low, "figures below the bound"),
	F(UINT, "measured.low_pairs", v.low_pairs, "pairs with such a figure"),
	F(UINT, "measured.cleared_pairs", v.cleared,
		"pairs that were low in a run, but not when they were measured again"),
	F(BOOL, "measured.reference_in_doubt", v.in_doubt,
		"most pairs are low, so the median may be, too"),
	F(UINT, "measured.rtt_pairs", v.rtt_pairs, "pairs with a round trip (--test bw,lat)"),
	F(NUM, "measured.rtt_us", v.rtt_us, "median of these pairs' rtt_us"),
	F(NUM, "measured.rtt_max_us", v.rtt_max_us, "rtt_us of the slowest pair"),
	F(NUM, "measured.rtt_max_p99_us", v.rtt_max_p99_us, "rtt_p99_us of that pair"),
	F(LIST, "findings", v.v, "what is bad; empty: nothing", .row = &finding_fields),
	F(JSON, "nodes", node_rows, "the nodes, by rank", .row = &node_fields),
	F(JSON, "pairs", pair_rows, "the pairs, in the order in which they were begun",
		.row = &pair_fields),
	F(JSON, "options", s.options, "effective options of rank 0 by name",
		.schema = "{\"type\":\"object\"}"),
};
DR_FIELDS(dr_sweep_fields, "sweep", document, T, .text = "what `dualrail sweep` found");
#undef T
#undef F

static const char *nic_name(const struct dr_sweep_node *n, unsigned i)
{
	return i < n->n_nics ? n->nic[i].name : "";
}

static json_t *runs_json(const struct dr_sweep_lane *l)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < l->n_runs; i++)
		dr_json_append(
			&a, isfinite(l->run[i]) ? json_real((double)l->run[i]) : json_null());
	return a;
}

static json_t *lanes_json(const struct dr_hub *h, const struct dr_sweep_result *r, double median)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < r->n_lanes && a; i++) {
		const struct dr_sweep_lane *l = &r->lane[i];
		struct lane_row row = { .direction = l->to_client,
			.gbps = (double)l->gbps,
			.percent = 100 * (double)l->gbps / median,
			.alone = l->has_alone ? (double)l->alone : NAN,
			.wrong = l->wrong,
			.runs = runs_json(l) };

		snprintf(row.client_nic, sizeof(row.client_nic), "%s",
			nic_name(&h->node[r->pair.client], l->client_nic));
		snprintf(row.server_nic, sizeof(row.server_nic), "%s",
			nic_name(&h->node[r->pair.server], l->server_nic));
		dr_json_append(&a, row.runs ? dr_fields_to_json(&lane_fields, &row) : NULL);
		json_decref(row.runs);
	}
	return a;
}

static json_t *unused_json(const struct dr_hub *h, const struct dr_sweep_result *r)
{
	const struct dr_sweep_node *end[2] = { &h->node[r->pair.client], &h->node[r->pair.server] };
	static const char *const names[2] = { "client", "server" };
	json_t *a = json_array();

	for (int e = 0; e < 2; e++)
		for (unsigned i = 0; i < end[e]->n_nics; i++)
			if (r->unused[e] >> i & 1)
				dr_json_append(
					&a, json_pack("[s,s]", names[e], nic_name(end[e], i)));
	return a;
}

static json_t *pairs_json(const struct dr_hub *h, double median)
{
	json_t *a = json_array();

	for (size_t i = 0; i < h->coord.n_results && a; i++) {
		const struct dr_sweep_result *r = &h->coord.result[i];
		struct pair_row row = { .client = r->pair.client,
			.server = r->pair.server,
			.state = r->state,
			.attempts = r->attempts,
			.exit_code = r->exit_code >= 0 ? r->exit_code : DR_UNSET,
			.text = r->state == DR_SWEEP_FAILED ? r->text : NULL,
			.counters = r->counters,
			.rtt_us = (double)r->rtt_us,
			.rtt_p99_us = (double)r->rtt_p99_us,
			.lanes = lanes_json(h, r, median),
			.unused = unused_json(h, r) };

		dr_json_append(
			&a, row.lanes && row.unused ? dr_fields_to_json(&pair_fields, &row) : NULL);
		json_decref(row.lanes);
		json_decref(row.unused);
	}
	return a;
}

json_t *dr_sweep_document(const struct dr_sweep_summary *s)
{
	const struct dr_hub *h = s->hub;
	struct document d = { .v = *s->verdict,
		.s = *s,
		.version = DR_VERSION,
		.failed = s->exit_code != 0,
		.least = 100 * s->least,
		.nodes = h->o.coord.nodes,
		.rounds = h->coord.rounds,
		.node_rows = dr_rows_to_json(&node_fields, h->node, h->o.coord.nodes),
		.pair_rows = pairs_json(h, s->verdict->median_gbps) };
	json_t *doc = NULL;

	if (d.node_rows && d.pair_rows)
		doc = dr_fields_to_json(&dr_sweep_fields, &d);
	json_decref(d.node_rows);
	json_decref(d.pair_rows);
	return doc;
}

/* ---- --resume ---- */

static int read_unused(const json_t *rows, struct dr_hub *h, struct dr_sweep_result *r)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *end = json_string_value(json_array_get(row, 0)),
			   *nic = json_string_value(json_array_get(row, 1));
		bool client = end && strcmp(end, "client") == 0;
		int k = nic ? dr_sweep_nic_index(
				      &h->node[client ? r->pair.client : r->pair.server], nic)
			    : -1;

		if (k < 0)
			return -EPROTO;
		r->unused[client ? 0 : 1] |= 1u << k;
	}
	return 0;
}

static int read_runs(const json_t *runs, struct dr_sweep_lane *l)
{
	const json_t *run;
	size_t i;

	if (!json_is_array(runs) || json_array_size(runs) > DR_SWEEP_RUNS_MAX)
		return -EPROTO;
	json_array_foreach(runs, i, run)
	{
		if (!json_is_null(run) && !(json_number_value(run) >= 0))
			return -EPROTO;
		l->run[l->n_runs++] = json_is_null(run) ? NAN : (float)json_number_value(run);
	}
	return 0;
}

static int read_lanes(
	const json_t *rows, struct dr_hub *h, struct dr_sweep_result *r, struct dr_err *e)
{
	size_t n = json_array_size(rows);

	if (n > DR_SWEEP_LANES_MAX)
		return dr_err_set(e, -EPROTO, "a pair has %zu lanes", n);
	r->lane = n ? dr_calloc(n, sizeof(*r->lane)) : NULL;
	if (n && !r->lane)
		return dr_err_set(e, -ENOMEM, "out of memory");
	for (size_t i = 0; i < n; i++) {
		struct lane_row row;
		int rc = dr_fields_from_json(&lane_fields, &row, json_array_get(rows, i), e);
		int c = rc ? -1 : dr_sweep_nic_index(&h->node[r->pair.client], row.client_nic);
		int s = rc ? -1 : dr_sweep_nic_index(&h->node[r->pair.server], row.server_nic);

		if (rc)
			return rc;
		if (c < 0 || s < 0 || row.direction < 0 || row.gbps < 0)
			return dr_err_set(e, -EPROTO, "a lane without NICs, direction or figure");
		r->lane[i] = (struct dr_sweep_lane){ .client_nic = (uint8_t)c,
			.server_nic = (uint8_t)s,
			.to_client = (uint8_t)row.direction,
			.gbps = (float)row.gbps,
			.has_alone = isfinite(row.alone),
			.alone = (float)row.alone,
			.wrong = row.wrong > 0 ? (uint32_t)DR_MIN(row.wrong, (int64_t)UINT32_MAX)
					       : 0 };
		r->n_lanes = (uint16_t)(i + 1);
		if (read_runs(json_object_get(json_array_get(rows, i), "runs_gbps"), &r->lane[i]))
			return dr_err_set(e, -EPROTO, "a lane whose runs are no figures");
	}
	return 0;
}

static int read_pair(struct dr_hub *h, const json_t *obj, struct dr_err *e)
{
	struct pair_row row;
	struct dr_sweep_result *r;
	char counters[400];
	int rc = dr_fields_from_json(&pair_fields, &row, obj, e);

	if (rc)
		return rc;
	if (row.client >= h->o.coord.nodes || row.server >= h->o.coord.nodes ||
		row.client == row.server)
		return dr_err_set(e, -EPROTO, "a pair of ranks %u and %u", row.client, row.server);
	r = dr_coord_known(&h->coord, (struct dr_sweep_pair){ row.client, row.server });
	if (!r)
		return dr_err_set(e, -ENOMEM, "out of memory");
	r->attempts = (uint8_t)DR_MIN(row.attempts, 255u);
	r->exit_code = row.exit_code >= 0 ? (int16_t)row.exit_code : -1;
	r->rtt_us = (float)row.rtt_us;
	r->rtt_p99_us = (float)row.rtt_p99_us;
	rc = read_lanes(json_object_get(obj, "lanes"), h, r, e);
	if (rc == 0 && read_unused(json_object_get(obj, "unused_nics"), h, r))
		rc = dr_err_set(e, -EPROTO, "an unused NIC without a name");
	if (rc)
		return rc;
	dr_text_copy(counters, sizeof(counters), dr_json_string(obj, "counters"));
	r->counters = dr_strdup(counters);
	/* One that failed has nothing to keep. */
	r->state = row.state == DR_SWEEP_OK && r->n_lanes ? DR_SWEEP_OK : DR_SWEEP_MISSING;
	return 0;
}

static int take(struct dr_hub *h, const char *pattern, const json_t *doc, struct dr_err *e)
{
	const char *was = dr_json_string(doc, "pattern");
	json_int_t nodes = json_integer_value(json_object_get(doc, "nodes_expected"));
	const json_t *row;
	size_t i;
	int rc = 0;

	if (strcmp(dr_json_string(doc, "schema"), DR_SWEEP_SCHEMA) != 0)
		return dr_err_set(e, -EINVAL, "its schema is not " DR_SWEEP_SCHEMA);
	if (nodes != h->o.coord.nodes || strcmp(was, pattern) != 0)
		return dr_err_set(e, -EINVAL,
			"it is of %lld nodes and pattern %.20s, this sweep of %u and %s",
			(long long)nodes, *was ? was : "?", h->o.coord.nodes, pattern);
	json_array_foreach(json_object_get(doc, "pairs"), i, row)
	{
		rc = rc ? rc : read_pair(h, row, e);
	}
	return rc;
}

int dr_sweep_resume(struct dr_hub *h, const char *pattern, const char *path, struct dr_err *e)
{
	json_t *doc = NULL;
	int rc = dr_document_load_any(path, &doc, e);

	rc = rc ? rc : take(h, pattern, doc, e);
	json_decref(doc);
	return rc ? dr_err_prefix(e, "--resume %.80s", path) : 0;
}
