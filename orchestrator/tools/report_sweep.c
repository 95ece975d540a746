/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/tools/report_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "orchestrator/record/report.h"

/* The page of a sweep: what is bad first, then the figures of all pairs. */

bool report_is_sweep(const json_t *doc)
{
	return strcmp(report_string(doc, "schema"), DR_SWEEP_SCHEMA) == 0;
}

/* ---- nodes ---- */

/* "3 node3"; "3" if the node did not say its name; "" for no rank. At most `size` bytes with the 0. */
static void node_name(const json_t *doc, const json_t *rank, char *out, size_t size)
{
	const json_t *nodes = report_at(doc, "nodes"), *node = NULL;
	json_int_t r = json_integer_value(rank);

	*out = 0;
	if (!json_is_integer(rank))
		return;
	if (r >= 0)
		node = json_array_get(nodes, (size_t)r); /* by rank, from 0 on */
	if (report_number(node, "rank") != (double)r)
		node = NULL;
	snprintf(out, size, "%lld%s%.100s", (long long)r, *report_string(node, "host") ? " " : "",
		report_string(node, "host"));
}

static json_t *node_json(const json_t *doc, const json_t *rank)
{
	char name[128];

	node_name(doc, rank, name, sizeof(name));
	return json_string(name); /* NULL, thus no member, if the name is no UTF-8 */
}

/* ---- figures ---- */

/* One row of a table that has the worst first. */
struct figure {
	double rank; /* the lowest is shown first; infinite: no figure */
	const json_t *pair, *lane;
};

static size_t count_figures(const json_t *pairs)
{
	const json_t *pair;
	size_t i, n = 0;

	json_array_foreach(pairs, i, pair) n += json_array_size(report_at(pair, "lanes"));
	return n;
}

static int worst_first(const void *a, const void *b)
{
	const struct figure *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

static json_t *figure_row(const json_t *doc, const struct figure *x)
{
	bool back = strcmp(report_string(x->lane, "direction"), "to-client") == 0;
	const char *const ends[] = { "client", "server" }, *const nics[] = { "client_nic",
		"server_nic" };

	return json_pack("{s:o*, s:O?, s:o*, s:O?, s:O?, s:O?, s:O?, s:O?, s:O?}", "from",
		node_json(doc, report_at(x->pair, ends[back])), "from_nic",
		report_at(x->lane, nics[back]), "to",
		node_json(doc, report_at(x->pair, ends[!back])), "to_nic",
		report_at(x->lane, nics[!back]), "gbps", report_at(x->lane, "gbps"), "percent",
		report_at(x->lane, "percent"), "alone_gbps", report_at(x->lane, "alone_gbps"),
		"wrong_chunks", report_at(x->lane, "wrong_chunks"), "attempts",
		report_at(x->pair, "attempts"));
}

static const struct report_column figures[] = { { "from", "from", FORM_TEXT, NULL },
	{ "NIC", "from_nic", FORM_TEXT, NULL }, { "to", "to", FORM_TEXT, NULL },
	{ "NIC", "to_nic", FORM_TEXT, NULL }, { "Gb/s", "gbps", FORM_GBPS, NULL },
	{ "", "gbps", FORM_METER, NULL }, { "% of the median", "percent", FORM_PERCENT, NULL },
	{ "alone, Gb/s", "alone_gbps", FORM_GBPS, NULL },
	{ "wrong chunks", "wrong_chunks", FORM_INT, NULL }, { "runs", "attempts", FORM_INT, NULL },
	{ NULL, NULL, 0, NULL } };
static const struct report_column roundtrips[] = { { "client", "client", FORM_TEXT, NULL },
	{ "server", "server", FORM_TEXT, NULL }, { "median, µs", "rtt_us", FORM_US, NULL },
	{ "", "rtt_us", FORM_METER, NULL }, { "p99", "rtt_p99_us", FORM_US, NULL },
	{ NULL, NULL, 0, NULL } };

static json_t *roundtrip_row(const json_t *doc, const struct figure *x)
{
	return json_pack("{s:o*, s:o*, s:O?, s:O?}", "client",
		node_json(doc, report_at(x->pair, "client")), "server",
		node_json(doc, report_at(x->pair, "server")), "rtt_us",
		report_at(x->pair, "rtt_us"), "rtt_p99_us", report_at(x->pair, "rtt_p99_us"));
}

/* The worst REPORT_ROWS of n; a sweep of 200 nodes has tens of thousands. */
static void table_worst(FILE *f, const json_t *doc, const struct report_column *columns,
	json_t *(*row)(const json_t *doc, const struct figure *x), struct figure *all, size_t n)
{
	json_t *rows = json_array();
	char caption[128];

	if (n > 1)
		qsort(all, n, sizeof(*all), worst_first);
	for (size_t i = 0; i < n && i < REPORT_ROWS; i++)
		json_array_append_new(rows, row(doc, &all[i]));
	if (n > REPORT_ROWS)
		snprintf(caption, sizeof(caption), "The worst %d of %zu; the document has all",
			REPORT_ROWS, n);
	else
		snprintf(caption, sizeof(caption), "The worst ones first");
	report_table(f, caption, columns, rows, NULL);
	json_decref(rows);
}

static void table_figures(FILE *f, const json_t *doc)
{
	const json_t *pairs = report_at(doc, "pairs"), *pair, *lane;
	struct figure *all = dr_calloc(count_figures(pairs), sizeof(*all));
	size_t n = 0, i, k;

	json_array_foreach(pairs, i, pair) json_array_foreach(report_at(pair, "lanes"), k, lane)
	{
		double percent = report_number(lane, "percent");

		if (all)
			all[n++] = (struct figure){ .pair = pair,
				.lane = lane,
				.rank = isfinite(percent) ? percent : INFINITY };
	}
	table_worst(f, doc, figures, figure_row, all, n);
	dr_free(all);
}

static void table_roundtrips(FILE *f, const json_t *doc)
{
	const json_t *pairs = report_at(doc, "pairs"), *pair;
	struct figure *all = dr_calloc(json_array_size(pairs), sizeof(*all));
	size_t n = 0, i;

	json_array_foreach(pairs, i, pair) if (all && isfinite(report_number(pair, "rtt_us")))
		all[n++] = (struct figure){ .pair = pair, .rank = -report_number(pair, "rtt_us") };
	table_worst(f, doc, roundtrips, roundtrip_row, all, n);
	dr_free(all);
}

/* ---- parts ---- */

static void count(FILE *f, const json_t *doc, const char *path, const char *behind)
{
	report_count(f, report_number(doc, path));
	fputs(behind, f);
}

static void tiles(FILE *f, const json_t *doc)
{
	fputs("<dl class=\"tiles\">", f);
	report_tile_whole(f, "Pairs with figures", report_number(doc, "measured.ok"));
	fputs("of ", f);
	count(f, doc, "measured.pairs", " pairs, ");
	count(f, doc, "measured.failed", " failed, ");
	count(f, doc, "measured.missing", " missing");
	report_tile_end(f);
	report_tile_number(f, "Median figure", report_number(doc, "measured.median_gbps"), "Gb/s");
	fputs("lowest: ", f);
	report_sig(f, report_number(doc, "measured.lowest_percent"));
	fputs(" % of it", f);
	report_tile_end(f);
	report_tile_whole(f, "Low figures", report_number(doc, "measured.low"));
	fputs("of ", f);
	count(f, doc, "measured.figures", "; low is below ");
	count(f, doc, "measured.min_pair_percent", " % of the median");
	report_tile_end(f);
	report_tile_count(f, "Findings", (double)json_array_size(report_at(doc, "findings")),
		"bad nodes, NICs, links and pairs");
	if (report_number(doc, "measured.rtt_pairs") > 0) {
		report_tile_number(
			f, "Round trip, median", report_number(doc, "measured.rtt_us"), "µs");
		fputs("of the slowest pair: ", f);
		report_sig(f, report_number(doc, "measured.rtt_max_us"));
		fputs(" µs", f);
		report_tile_end(f);
	}
	fputs("</dl>\n", f);
}

static void line(FILE *f, const json_t *doc)
{
	fputs("<p class=\"soft\">sweep of ", f);
	count(f, doc, "nodes_expected", " nodes, ");
	count(f, doc, "rounds", " rounds, pattern ");
	report_text(f, report_string(doc, "pattern"));
	fputs(" · ranks from ", f);
	report_text(f, report_string(doc, "source"));
	fputs(" · ", f);
	report_text(f, report_string(doc, "start_time"));
	fputs(" · ", f);
	report_sig(f, report_number(doc, "seconds"));
	fputs(" s · run ", f);
	report_text(f, report_string(doc, "run_id"));
	fputs("</p>\n", f);
}

static const struct report_column findings[] = { { "finding", "kind", FORM_BAD, "" },
	{ "in words", "text", FORM_TEXT, NULL }, { "NIC", "nic", FORM_TEXT, NULL },
	{ "peer's NIC", "peer_nic", FORM_TEXT, NULL }, { "lowest, Gb/s", "gbps", FORM_GBPS, NULL },
	{ "% of the median", "percent", FORM_PERCENT, NULL },
	{ "low figures", "low", FORM_INT, NULL }, { "of", "of", FORM_INT, NULL },
	{ "wrong chunks", "wrong_chunks", FORM_INT, NULL }, { "cause", "reason", FORM_TEXT, NULL },
	{ NULL, NULL, 0, NULL } };

static void section_findings(FILE *f, const json_t *doc, unsigned n)
{
	report_heading(f, n, "findings", "Findings");
	if (!report_table(
		    f, "What is bad, and its evidence", findings, report_at(doc, "findings"), NULL))
		fputs("<p>None.</p>\n", f);
	if (json_is_true(report_at(doc, "measured.reference_in_doubt")))
		fputs("<p>Most pairs are low, so the median, with which all are compared, may be low, "
		      "too.</p>\n",
			f);
}

/* ---- what was not measured ---- */

static bool has_no_figures(const json_t *pair)
{
	return strcmp(report_string(pair, "state"), "ok") != 0;
}

static bool is_absent(const json_t *node)
{
	return strcmp(report_string(node, "presence"), "present") != 0;
}

static const struct report_column unmeasured[] = { { "client", "client", FORM_TEXT, NULL },
	{ "server", "server", FORM_TEXT, NULL }, { "state", "state", FORM_BAD, "" },
	{ "exit status", "exit_code", FORM_INT, NULL }, { "cause", "error", FORM_TEXT, NULL },
	{ NULL, NULL, 0, NULL } };
static const struct report_column absent[] = { { "rank", "rank", FORM_INT, NULL },
	{ "host", "host", FORM_TEXT, NULL }, { "address", "address", FORM_TEXT, NULL },
	{ "presence", "presence", FORM_BAD, "present" }, { "cause", "reason", FORM_TEXT, NULL },
	{ NULL, NULL, 0, NULL } };

static void section_missing(FILE *f, const json_t *doc, unsigned n)
{
	json_t *rows = json_array();
	const json_t *pair;
	size_t i, found;

	json_array_foreach(report_at(doc, "pairs"), i, pair) if (has_no_figures(pair))
		json_array_append_new(rows,
			json_pack("{s:o*, s:o*, s:O?, s:O?, s:O?}", "client",
				node_json(doc, report_at(pair, "client")), "server",
				node_json(doc, report_at(pair, "server")), "state",
				report_at(pair, "state"), "exit_code", report_at(pair, "exit_code"),
				"error", report_at(pair, "error")));
	report_heading(f, n, "missing", "Not measured");
	found = report_table(f, "Nodes that never came or were lost", absent,
		report_at(doc, "nodes"), is_absent);
	found += report_table(f, "Pairs without figures", unmeasured, rows, NULL);
	if (!found)
		fputs("<p>Nothing: every pair of the pattern has its figures.</p>\n", f);
	json_decref(rows);
}

/* ---- all pairs and nodes ---- */

static void section_figures(FILE *f, const json_t *doc, unsigned n)
{
	report_heading(f, n, "figures", "Node × node");
	report_chart(f, n, "sweep",
		"The lowest figure of each pair, from the node of the row to that of the column.");
	report_details(f, "Table of the figures");
	table_figures(f, doc);
	report_details_end(f);
	if (!(report_number(doc, "measured.rtt_pairs") > 0))
		return;
	report_chart(
		f, n, "roundtrips", "The round trip of each pair, the median of its slowest GPU.");
	report_details(f, "Table of the round trips");
	table_roundtrips(f, doc);
	report_details_end(f);
}

static const struct report_column nics[] = { { "node", "node", FORM_TEXT, NULL },
	{ "NIC", "name", FORM_TEXT, NULL }, { "speed, Mb/s", "speed_mbps", FORM_INT, NULL },
	{ "up", "up", FORM_TEXT, NULL }, { "carrier", "carrier", FORM_TEXT, NULL },
	{ "receive errors", "rx_errors", FORM_INT, NULL }, { NULL, NULL, 0, NULL } };

static void section_nodes(FILE *f, const json_t *doc, unsigned n)
{
	json_t *rows = json_array();
	const json_t *node, *nic;
	size_t i, k;

	json_array_foreach(report_at(doc, "nodes"), i, node)
		json_array_foreach(report_at(node, "nics"), k, nic)
	{
		json_t *row = json_copy((json_t *)nic);

		json_object_set_new(row, "node", node_json(doc, report_at(node, "rank")));
		json_array_append_new(rows, row);
	}
	report_heading(f, n, "nodes", "Nodes and options");
	report_details(f, "NICs of the nodes");
	report_table(f, "NICs", nics, rows, NULL);
	report_details_end(f);
	report_details(f, "Options");
	report_pairs(f, "Effective options of rank 0", report_at(doc, "options"));
	report_details_end(f);
	json_decref(rows);
}

void report_sweep(FILE *f, const json_t *doc, unsigned n)
{
	static const struct report_part parts[] = { { "findings", "Findings", true },
		{ "missing", "Not measured", true }, { "figures", "Node × node", true },
		{ "nodes", "Nodes and options", true } };

	report_verdict(f, doc, report_string(doc, "verdict"));
	line(f, doc);
	tiles(f, doc);
	report_navigation(f, n, parts, DR_ARRAY_LEN(parts));
	section_findings(f, doc, n);
	section_missing(f, doc, n);
	section_figures(f, doc, n);
	section_nodes(f, doc, n);
	report_download(f, n);
}
