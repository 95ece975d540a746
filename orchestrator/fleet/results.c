/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/results.h"

#include "base/mem.h"
#include "base/text.h"
#include "base/units.h"
#include "orchestrator/output/values.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int dr_sweep_nic_index(struct dr_sweep_node *n, const char *name)
{
	struct dr_sweep_nic *grown;

	for (unsigned i = 0; i < n->n_nics; i++)
		if (strncmp(n->nic[i].name, name, sizeof(n->nic[i].name) - 1) == 0)
			return (int)i;
	if (n->n_nics == DR_SWEEP_NICS_MAX || !*name)
		return -1;
	grown = dr_realloc(n->nic, (n->n_nics + 1) * sizeof(*grown));
	if (!grown)
		return -1;
	n->nic = grown;
	n->nic[n->n_nics] = (struct dr_sweep_nic){ .speed_mbps = DR_UNSET };
	dr_text_copy(n->nic[n->n_nics].name, sizeof(n->nic->name), name);
	return (int)n->n_nics++;
}

void dr_sweep_node_fini(struct dr_sweep_node *n)
{
	dr_free(n->nic);
	n->nic = NULL;
	n->n_nics = 0;
}

void dr_sweep_result_fini(struct dr_sweep_result *r)
{
	dr_free(r->lane);
	dr_free(r->text);
	dr_free(r->counters);
	r->lane = NULL;
	r->text = r->counters = NULL;
	r->n_lanes = 0;
}

/* ---- from the document of a run ---- */

struct lane_sum {
	const char *nic, *peer;
	int to_client;
	double all, sum; /* all GPUs at once; of each alone */
	unsigned n;
	json_int_t wrong;
	bool switched;
};

struct lane_sums {
	struct lane_sum v[DR_SWEEP_LANES_MAX];
	unsigned n;
};

static struct lane_sum *lane_of(
	struct lane_sums *s, const char *nic, const char *peer, int to_client)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->v[i].to_client == to_client && strcmp(s->v[i].nic, nic) == 0 &&
			strcmp(s->v[i].peer, peer) == 0)
			return &s->v[i];
	if (s->n == DR_SWEEP_LANES_MAX)
		return NULL;
	s->v[s->n] =
		(struct lane_sum){ .nic = nic, .peer = peer, .to_client = to_client, .all = NAN };
	return &s->v[s->n++];
}

static bool is_to_client(const json_t *row)
{
	return strcmp(dr_json_string(row, "direction"), "to-client") == 0;
}

/* The cells of --matrix. A cell whose channels left the NIC has no figure of it. */
static void sum_cells(struct lane_sums *s, const json_t *cells)
{
	const json_t *c;
	size_t i;

	json_array_foreach(cells, i, c)
	{
		const json_t *gbps = json_object_get(c, "gbps");
		struct lane_sum *l = lane_of(s, dr_json_string(c, "nic"),
			dr_json_string(c, "peer_nic"), is_to_client(c));

		if (!l)
			continue;
		l->wrong += json_integer_value(json_object_get(c, "wrong_chunks"));
		l->wrong = DR_MIN(l->wrong, (json_int_t)UINT32_MAX); /* most of a lane */
		if (json_integer_value(json_object_get(c, "switched")) > 0)
			l->switched = true;
		if (!json_is_number(gbps))
			continue;
		if (json_is_null(json_object_get(c, "gpu"))) {
			l->all = json_number_value(gbps);
		} else {
			l->sum += json_number_value(gbps);
			l->n++;
		}
	}
}

/* Without --matrix: a direction, over whatever NICs the GPUs have. */
static void sum_total(struct lane_sums *s, const json_t *doc)
{
	static const char *const keys[] = { "to_server_gbps", "to_client_gbps" };
	const json_t *total = json_object_get(doc, "total");
	const json_t *corrupted = json_object_get(json_object_get(doc, "integrity"), "corrupted");

	for (int d = 0; d < 2; d++) {
		const json_t *gbps = json_object_get(total, keys[d]);
		struct lane_sum *l = json_is_number(gbps) ? lane_of(s, "all", "all", d) : NULL;

		if (!l)
			continue;
		l->all = json_number_value(gbps);
		l->wrong = json_integer_value(corrupted);
	}
}

static json_t *lanes_json(const struct lane_sums *s)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < s->n; i++) {
		const struct lane_sum *l = &s->v[i];
		double gbps = isfinite(l->all) ? l->all : l->n ? l->sum / l->n : NAN;
		json_t *figure = isfinite(gbps) && !l->switched ? json_real(gbps) : json_null();

		dr_json_append(&a,
			json_pack("[s,s,b,o,I]", l->nic, l->peer, l->to_client, figure, l->wrong));
	}
	return a;
}

/* NICs that are no rail for another reason than that they are for control or have no partner:
 * without a link, or without an answer of the peer's. */
static json_t *unused_json(const json_t *doc)
{
	const json_t *rows = json_object_get(json_object_get(doc, "topology"), "unused_nics");
	const json_t *row;
	json_t *a = json_array();
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *why = dr_json_string(row, "reason");

		if (a && (strcmp(why, "no carrier") == 0 || strcmp(why, "down") == 0 ||
				 dr_reason_unproven(why)))
			json_array_append_new(
				a, json_pack("[b,s]",
					   strcmp(dr_json_string(row, "side"), "client") == 0,
					   dr_json_string(row, "nic")));
	}
	return a;
}

/* "client eth1: rx_missed +12; server eth1: symbol_error +3". */
static void name_counters(const json_t *doc, char *buf, size_t len)
{
	const json_t *row;
	size_t i;

	buf[0] = '\0';
	json_array_foreach(json_object_get(doc, "nics"), i, row)
	{
		const char *grown = dr_json_string(row, "grown");

		if (*grown)
			dr_append(buf, len, "%s%s %s: %s", buf[0] ? "; " : "",
				dr_json_string(row, "side"), dr_json_string(row, "name"), grown);
	}
}

/* The largest of all GPUs. */
static double worst_rtt(const json_t *doc, const char *percentile)
{
	const json_t *row;
	double worst = NAN;
	size_t i;

	json_array_foreach(json_object_get(doc, "latency"), i, row)
	{
		const json_t *v = json_object_get(json_object_get(row, "rtt_us"), percentile);

		if (json_is_number(v) && !(worst >= json_number_value(v)))
			worst = json_number_value(v);
	}
	return worst;
}

json_t *dr_sweep_figures(const json_t *doc, int exit_code, const char *text)
{
	struct lane_sums s = { .n = 0 };
	const json_t *cells = json_object_get(json_object_get(doc, "matrix"), "cells");
	const char *why = dr_json_string(json_array_get(json_object_get(doc, "errors"), 0), "text");
	double p50 = worst_rtt(doc, "p50"), p99 = worst_rtt(doc, "p99");
	char counters[400];

	name_counters(doc, counters, sizeof(counters));
	sum_cells(&s, cells);
	if (!s.n)
		sum_total(&s, doc);
	return json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o}", "exit_code", exit_code, "text",
		*why ? why : text, "counters", counters, "rtt_us",
		isfinite(p50) ? json_real(p50) : json_null(), "rtt_p99_us",
		isfinite(p99) ? json_real(p99) : json_null(), "lanes", lanes_json(&s), "unused",
		unused_json(doc));
}

/* ---- at the coordinator ---- */

float dr_sweep_lowest(const struct dr_sweep_result *r, enum dr_sweep_way way)
{
	float lowest = NAN;

	for (unsigned i = 0; i < r->n_lanes; i++) {
		float g = isfinite(r->lane[i].gbps) ? r->lane[i].gbps : 0;

		if (!(lowest <= g) &&
			way != (r->lane[i].to_client ? DR_SWEEP_TO_SERVER : DR_SWEEP_TO_CLIENT))
			lowest = g;
	}
	return lowest;
}

void dr_sweep_fail(struct dr_sweep_result *r, const char *text)
{
	if (r->n_lanes) {
		r->state = DR_SWEEP_OK;
		return;
	}
	r->state = DR_SWEEP_FAILED;
	dr_free(r->text);
	r->text = dr_strdup(text);
}

static int read_lane(const json_t *row, struct dr_sweep_node *client, struct dr_sweep_node *server,
	struct dr_sweep_lane *out)
{
	const char *nic = json_string_value(json_array_get(row, 0));
	const char *peer = json_string_value(json_array_get(row, 1));
	const json_t *gbps = json_array_get(row, 3);
	json_int_t wrong = json_integer_value(json_array_get(row, 4));
	int c, s;

	if (json_array_size(row) != 5 || !nic || !peer || wrong < 0)
		return -EPROTO;
	c = dr_sweep_nic_index(client, nic);
	s = dr_sweep_nic_index(server, peer);
	if (c < 0 || s < 0 || !(json_is_null(gbps) || json_number_value(gbps) >= 0))
		return -EPROTO;
	*out = (struct dr_sweep_lane){ .client_nic = (uint8_t)c,
		.server_nic = (uint8_t)s,
		.to_client = json_is_true(json_array_get(row, 2)),
		.gbps = json_is_null(gbps) ? NAN : (float)json_number_value(gbps),
		.n_runs = 1,
		.wrong = (uint32_t)DR_MIN(wrong, (json_int_t)UINT32_MAX) };
	out->run[0] = out->gbps;
	return 0;
}

/* Reads all lanes, or none. */
static int read_lanes(const json_t *rows, struct dr_sweep_node *client,
	struct dr_sweep_node *server, struct dr_sweep_result *into)
{
	size_t n = json_array_size(rows);
	struct dr_sweep_lane *lane;
	int rc = 0;

	if (!json_is_array(rows) || n > DR_SWEEP_LANES_MAX)
		return -EPROTO;
	lane = n ? dr_calloc(n, sizeof(*lane)) : NULL;
	if (n && !lane)
		return -ENOMEM;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = read_lane(json_array_get(rows, i), client, server, &lane[i]);
	if (rc) {
		dr_free(lane);
		return rc;
	}
	into->lane = lane;
	into->n_lanes = (uint16_t)n;
	return 0;
}

static void read_unused(const json_t *rows, struct dr_sweep_node *client,
	struct dr_sweep_node *server, uint32_t unused[2])
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *nic = json_string_value(json_array_get(row, 1));
		bool own = json_is_true(json_array_get(row, 0));
		int k = nic ? dr_sweep_nic_index(own ? client : server, nic) : -1;

		if (k >= 0)
			unused[own ? 0 : 1] |= 1u << k;
	}
}

static struct dr_sweep_lane *same_lane(struct dr_sweep_result *r, const struct dr_sweep_lane *like)
{
	for (unsigned i = 0; i < r->n_lanes; i++)
		if (r->lane[i].client_nic == like->client_nic &&
			r->lane[i].server_nic == like->server_nic &&
			r->lane[i].to_client == like->to_client)
			return &r->lane[i];
	return NULL;
}

static void merge_lane(struct dr_sweep_lane *l, const struct dr_sweep_lane *now)
{
	if (l->n_runs < DR_SWEEP_RUNS_MAX)
		l->run[l->n_runs++] = now->gbps;
	l->gbps = fmaxf(l->gbps, now->gbps); /* NAN loses */
	l->wrong = DR_MAX(l->wrong, now->wrong);
}

/* A run in one direction explains a low pair; it is no further run of it. */
static void take_alone(struct dr_sweep_result *r, const struct dr_sweep_result *now)
{
	for (unsigned i = 0; i < now->n_lanes; i++) {
		struct dr_sweep_lane *l = same_lane(r, &now->lane[i]);

		if (!l)
			continue;
		l->alone = now->lane[i].gbps;
		l->has_alone = true;
		l->wrong = DR_MAX(l->wrong, now->lane[i].wrong);
	}
	r->state = DR_SWEEP_OK;
}

/* Adds a run to those before it. A NIC that it did not use was not usable, or is another one: see unused_nics of verdict.c. */
static int merge(struct dr_sweep_result *r, const struct dr_sweep_result *now)
{
	struct dr_sweep_lane *grown =
		dr_realloc(r->lane, ((size_t)r->n_lanes + now->n_lanes) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	r->lane = grown;
	for (unsigned i = 0; i < now->n_lanes; i++) {
		struct dr_sweep_lane *l = same_lane(r, &now->lane[i]);

		if (l)
			merge_lane(l, &now->lane[i]);
		else if (r->n_lanes < DR_SWEEP_LANES_MAX)
			r->lane[r->n_lanes++] = now->lane[i];
	}
	r->rtt_us = fminf(r->rtt_us, now->rtt_us);
	r->rtt_p99_us = fminf(r->rtt_p99_us, now->rtt_p99_us);
	r->unused[0] |= now->unused[0];
	r->unused[1] |= now->unused[1];
	r->state = DR_SWEEP_OK;
	return 0;
}

static float rtt_of(const json_t *figures, const char *key)
{
	const json_t *v = json_object_get(figures, key);

	return json_is_number(v) && json_number_value(v) >= 0 ? (float)json_number_value(v) : NAN;
}

int dr_sweep_take(struct dr_sweep_result *r, struct dr_sweep_node *client,
	struct dr_sweep_node *server, const json_t *figures)
{
	const json_t *code = json_object_get(figures, "exit_code");
	struct dr_sweep_result now = { .rtt_us = rtt_of(figures, "rtt_us"),
		.rtt_p99_us = rtt_of(figures, "rtt_p99_us") };
	int rc = json_is_integer(code)
			 ? read_lanes(json_object_get(figures, "lanes"), client, server, &now)
			 : -EPROTO;

	if (rc == -ENOMEM)
		return rc;
	if (rc) {
		dr_sweep_fail(r, "the node sent figures that cannot be read");
		return rc;
	}
	r->exit_code = (int16_t)json_integer_value(code);
	read_unused(json_object_get(figures, "unused"), client, server, now.unused);
	dr_free(r->counters);
	r->counters = dr_strdup(dr_json_string(figures, "counters"));
	/* Wrong data and thresholds end a run that has its figures. */
	bool measured =
		now.n_lanes && (r->exit_code == 0 || r->exit_code == 6 || r->exit_code == 7);

	if (measured && r->way == DR_SWEEP_BOTH_WAYS)
		rc = merge(r, &now);
	else if (measured)
		take_alone(r, &now);
	else
		dr_sweep_fail(r, dr_json_string(figures, "text"));
	dr_free(now.lane);
	return rc;
}
