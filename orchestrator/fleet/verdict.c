/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/units.h"
#include "orchestrator/figures/shift.h"
#include "orchestrator/fleet/verdict_priv.h"
#include "orchestrator/output/record.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A figure is low if it is below `least` of the median, see dr_sweep_median; a pair without data
 * over a NIC counts as 0. The figure of a pair that was measured several times is the best of them.
 * Low figures are explained in this order:
 *   corrupts     a NIC with wrong bytes towards most of its partners, or a pair with wrong bytes
 *   bad-node     most pairs of the node failed, or all its NICs (two or more) are bad
 *   fabric-link  two groups of two nodes or more: every figure between them is low, those within
 *                each are good
 *   bad-cable    a NIC without carrier, or one whose link is slower than those of most others, and
 *                its figures are low
 *   bad-nic      a NIC that is low towards most of its partners, both ways, or one that is set down
 *   asymmetric   the same in one direction: the NIC sends or receives slowly. Also a pair that is
 *                low in one direction. If both directions are low, figures of each direction alone
 *                (results.h) decide; without them it is not found
 *   slow-pair    a pair that is low and shares no cause with others
 *   failed-pair  its run failed, and most runs of both nodes did not
 *   node-missing a node that never joined, or was lost. It explains failures, low figures and
 *                unused NICs of its pairs
 * "Most" is more than half, of two partners or more.
 */
const char *const dr_sweep_kind_names[] = { "corrupts", "bad-node", "bad-cable", "bad-nic",
	"asymmetric", "fabric-link", "slow-pair", "failed-pair", "node-missing", NULL };

/* ---- findings ---- */

struct dr_sweep_finding *verdict_add(
	struct verdict_search *s, enum dr_sweep_kind kind, int64_t rank, int64_t peer_rank)
{
	static struct dr_sweep_finding lost;
	struct dr_sweep_verdict *o = s->out;
	struct dr_sweep_finding *grown = dr_grow(o->v, &o->cap, o->n + 1, sizeof(*grown));
	struct dr_sweep_finding *x = grown ? &grown[o->n++] : &lost;

	s->failed |= !grown;
	o->v = grown ? grown : o->v;
	*x = (struct dr_sweep_finding){ .kind = (int)kind,
		.rank = rank,
		.peer_rank = peer_rank,
		.gbps = NAN,
		.median_gbps = s->median,
		.percent = NAN };
	return x;
}

void verdict_figure(const struct verdict_search *s, struct dr_sweep_finding *x, float gbps)
{
	if (x->gbps <= (double)gbps)
		return;
	x->gbps = (double)gbps;
	x->percent = s->median > 0 ? 100 * (double)gbps / s->median : NAN;
}

struct node_name verdict_node(const struct verdict_search *s, int64_t rank)
{
	const char *host = s->j->node[rank].host;
	struct node_name n;

	snprintf(n.s, sizeof(n.s), "rank %lld%s%.40s%s", (long long)rank, *host ? " (" : "", host,
		*host ? ")" : "");
	return n;
}

const char *verdict_nic(const struct verdict_search *s, uint32_t port)
{
	const struct dr_sweep_node *n = &s->j->node[rank_of(port)];
	uint32_t nic = port % DR_SWEEP_NICS_MAX;

	return nic < n->n_nics ? n->nic[nic].name : "?";
}

/* With the name of the NIC. */
static struct dr_sweep_finding *add_port(
	struct verdict_search *s, enum dr_sweep_kind kind, uint32_t port)
{
	struct dr_sweep_finding *x = verdict_add(s, kind, rank_of(port), DR_UNSET);

	snprintf(x->nic, sizeof(x->nic), "%s", verdict_nic(s, port));
	return x;
}

struct dr_sweep_finding *verdict_add_pair(
	struct verdict_search *s, enum dr_sweep_kind kind, const struct figure *f)
{
	struct dr_sweep_finding *x = add_port(s, kind, f->port[0]);

	x->peer_rank = rank_of(f->port[1]);
	snprintf(x->peer_nic, sizeof(x->peer_nic), "%s", verdict_nic(s, f->port[1]));
	return x;
}

/* ---- figures ---- */

int dr_sweep_median(const struct dr_sweep_result *r, size_t n, double *out)
{
	size_t all = 0, k = 0;
	double *v;

	*out = NAN;
	for (size_t i = 0; i < n; i++)
		all += r[i].n_lanes;
	v = all ? dr_calloc(all, sizeof(*v)) : NULL;
	if (!v)
		return all ? -ENOMEM : 0;
	for (size_t i = 0; i < n; i++)
		for (unsigned l = 0; l < r[i].n_lanes; l++) {
			const struct dr_sweep_lane *x = &r[i].lane[l];
			float gbps = x->n_runs ? x->run[0] : x->gbps;

			if (isfinite(gbps))
				v[k++] = (double)gbps;
		}
	*out = dr_median(v, k);
	dr_free(v);
	return 0;
}

/* Reported, not judged. */
static int round_trips(const struct dr_sweep_judge *j, struct dr_sweep_verdict *out)
{
	double *v = j->n_results ? dr_calloc(j->n_results, sizeof(*v)) : NULL;
	size_t n = 0;

	out->rtt_us = out->rtt_max_us = out->rtt_max_p99_us = NAN;
	if (j->n_results && !v)
		return -ENOMEM;
	for (size_t i = 0; i < j->n_results; i++) {
		const struct dr_sweep_result *r = &j->result[i];

		if (!(r->rtt_us > 0))
			continue;
		v[n++] = (double)r->rtt_us;
		if (out->rtt_max_us >= (double)r->rtt_us)
			continue;
		out->rtt_max_us = (double)r->rtt_us;
		out->rtt_max_p99_us = (double)r->rtt_p99_us;
		out->rtt_max_pair = r->pair;
	}
	out->rtt_pairs = n;
	out->rtt_us = dr_median(v, n);
	dr_free(v);
	return 0;
}

static void add_figure(
	struct verdict_search *s, const struct dr_sweep_result *r, const struct dr_sweep_lane *l)
{
	struct figure *f = &s->f[s->n++];
	bool back = l->to_client;

	*f = (struct figure){ .gbps = isfinite(l->gbps) ? l->gbps : 0,
		.runs = l->n_runs,
		.has_alone = l->has_alone,
		.alone = isfinite(l->alone) ? l->alone : 0,
		.wrong = l->wrong };
	f->port[back] = r->pair.client * DR_SWEEP_NICS_MAX + l->client_nic;
	f->port[!back] = r->pair.server * DR_SWEEP_NICS_MAX + l->server_nic;
	f->low = dr_sweep_is_low(f->gbps, s->bound);
	f->explained = f->low && is_of_lost(s, r);
	s->out->low += f->low;
	s->out->lowest_percent = fmin(s->out->lowest_percent, 100 * (double)f->gbps / s->median);
}

/* A pair is low if one of its figures is. */
static void count_pair(struct verdict_search *s, const struct dr_sweep_result *r)
{
	bool low = false, was = false;

	for (unsigned i = 0; i < r->n_lanes; i++) {
		const struct dr_sweep_lane *l = &r->lane[i];

		low = low || dr_sweep_is_low(l->gbps, s->bound);
		for (unsigned k = 0; k < l->n_runs; k++)
			was = was || dr_sweep_is_low(l->run[k], s->bound);
	}
	s->out->low_pairs += low;
	s->out->cleared += was && !low;
}

static int collect(struct verdict_search *s)
{
	const struct dr_sweep_judge *j = s->j;
	size_t all = 0;
	int rc = dr_sweep_median(j->result, j->n_results, &s->median);

	s->out->median_gbps = s->median;
	s->bound = j->least * s->median;
	s->out->lowest_percent = NAN;
	for (size_t i = 0; i < j->n_results; i++) {
		all += j->result[i].n_lanes;
		s->out->pairs++;
		s->out->ok += j->result[i].state == DR_SWEEP_OK;
		s->out->failed += j->result[i].state == DR_SWEEP_FAILED;
		s->out->missing += j->result[i].state == DR_SWEEP_MISSING;
	}
	s->f = rc == 0 && all ? dr_calloc(all, sizeof(*s->f)) : NULL;
	if (rc || (all && !s->f))
		return -ENOMEM;
	for (size_t i = 0; i < j->n_results; i++) {
		for (unsigned l = 0; l < j->result[i].n_lanes; l++)
			add_figure(s, &j->result[i], &j->result[i].lane[l]);
		count_pair(s, &j->result[i]);
	}
	s->out->figures = all;
	s->out->in_doubt = 2 * s->out->low_pairs > s->out->ok;
	return 0;
}

/* ---- ports: a NIC of a node ---- */

/* Of a NIC, sending and receiving: figures that nothing explains yet, and those of them that are low (or wrong). */
struct port {
	uint32_t of[2], bad[2];
	float lowest;
	uint64_t wrong;
};

static void count_ports(const struct verdict_search *s, struct port *p, bool wrong)
{
	memset(p, 0, (size_t)s->j->nodes * DR_SWEEP_NICS_MAX * sizeof(*p));
	for (size_t i = 0; i < s->n; i++) {
		const struct figure *f = &s->f[i];
		bool bad = wrong ? f->wrong > 0 : f->low;

		for (int e = 0; e < 2 && !f->explained; e++) {
			struct port *end = &p[f->port[e]];

			end->of[e]++;
			if (!bad)
				continue;
			end->lowest =
				end->bad[0] + end->bad[1] ? DR_MIN(end->lowest, f->gbps) : f->gbps;
			end->bad[e]++;
			end->wrong += f->wrong;
		}
	}
}

static bool is_most(uint32_t bad, uint32_t of)
{
	return bad >= 2 && 2 * (uint64_t)bad > of;
}

/* Share of bad figures, in the directions in which most are. */
static double share(const struct port *p)
{
	uint32_t bad = 0, of = 0;

	for (int e = 0; e < 2; e++)
		if (is_most(p->bad[e], p->of[e])) {
			bad += p->bad[e];
			of += p->of[e];
		}
	return of ? (double)bad / of + 1e-9 * bad : 0;
}

/* Finds the port with the largest share, and the directions of most figures; false: none has. */
static bool worst_port(
	struct verdict_search *s, struct port *p, bool wrong, uint32_t *port, bool dir[2])
{
	double most = 0;

	count_ports(s, p, wrong);
	for (uint32_t i = 0; i < s->j->nodes * DR_SWEEP_NICS_MAX; i++)
		if (share(&p[i]) > most) {
			most = share(&p[i]);
			*port = i;
		}
	for (int e = 0; e < 2 && most > 0; e++)
		dir[e] = is_most(p[*port].bad[e], p[*port].of[e]);
	return most > 0 && !s->failed;
}

/* Its figures in these directions. What a NIC did to data says nothing about rates. */
static void explain_port(struct verdict_search *s, uint32_t port, const bool dir[2], bool wrong)
{
	for (size_t i = 0; i < s->n; i++) {
		struct figure *f = &s->f[i];

		if (!((dir[0] && f->port[0] == port) || (dir[1] && f->port[1] == port)))
			continue;
		if (wrong)
			f->wrong = 0;
		else
			f->explained = true;
	}
}

static struct dr_sweep_finding *add_bad_port(struct verdict_search *s, enum dr_sweep_kind kind,
	uint32_t port, const struct port *p, const bool dir[2])
{
	struct dr_sweep_finding *x = add_port(s, kind, port);

	for (int e = 0; e < 2; e++) {
		x->low += dir[e] ? p->bad[e] : 0;
		x->of += dir[e] ? p->of[e] : 0;
	}
	return x;
}

/* Directions of a port that is low in both. */
enum alone {
	ALONE_UNKNOWN,
	ALONE_BOTH_LOW,
	ALONE_BOTH_GOOD,
	ALONE_SENDS_SLOWLY,
	ALONE_RECEIVES_SLOWLY
};

/*
 * What runs in one direction tell of a port that is low in both: acknowledgements of one direction wait behind the data of
 * the other, so one slow direction makes both low.
 */
static enum alone alone_port(const struct verdict_search *s, uint32_t port)
{
	uint32_t of[2] = { 0 }, low[2] = { 0 };

	for (size_t i = 0; i < s->n; i++) {
		const struct figure *f = &s->f[i];

		for (int e = 0; e < 2; e++)
			if (f->has_alone && f->port[e] == port) {
				of[e]++;
				low[e] += dr_sweep_is_low(f->alone, s->bound);
			}
	}
	if (!of[0] || !of[1])
		return ALONE_UNKNOWN;
	bool slow[2] = { 2 * low[0] > of[0], 2 * low[1] > of[1] };

	return slow[0] && slow[1] ? ALONE_BOTH_LOW
	       : slow[0]	  ? ALONE_SENDS_SLOWLY
	       : slow[1]	  ? ALONE_RECEIVES_SLOWLY
				  : ALONE_BOTH_GOOD;
}

/* The speed of most NICs; 0: unknown. */
static int64_t usual_speed(const struct verdict_search *s)
{
	int64_t speed = 0, votes = 0;

	/* Boyer and Moore's majority vote. */
	for (uint32_t r = 0; r < s->j->nodes; r++)
		for (unsigned k = 0; k < s->j->node[r].n_nics; k++) {
			int64_t v = s->j->node[r].nic[k].speed_mbps;

			if (v <= 0)
				continue;
			if (!votes)
				speed = v;
			votes += v == speed ? 1 : -1;
		}
	return votes > 0 ? speed : 0;
}

static unsigned measured_nics(const struct verdict_search *s, uint32_t rank)
{
	uint32_t mask = 0;

	for (size_t i = 0; i < s->n; i++)
		for (int e = 0; e < 2; e++)
			if (rank_of(s->f[i].port[e]) == rank)
				mask |= 1u << s->f[i].port[e] % DR_SWEEP_NICS_MAX;
	return (unsigned)__builtin_popcount(mask);
}

/* Those of the NIC that grew during a run, of the first one of them. */
static void add_counters(const struct verdict_search *s, struct dr_sweep_finding *x)
{
	for (size_t i = 0; i < s->j->n_results; i++) {
		const struct dr_sweep_result *r = &s->j->result[i];
		const char *at = r->counters;
		char end[48];

		snprintf(end, sizeof(end),
			"%s %s: ", r->pair.client == x->rank ? "client" : "server", x->nic);
		if (!at || (r->pair.client != x->rank && r->pair.server != x->rank) ||
			!(at = strstr(at, end)))
			continue;
		at += strlen(end);
		dr_append(x->text, sizeof(x->text), "; %.*s", (int)strcspn(at, ";"), at);
		return;
	}
}

/* dir: in which the figures are low; alone: in which they are without data the other way. */
static void describe_port(const struct verdict_search *s, struct dr_sweep_finding *x,
	const struct dr_sweep_nic *nic, const bool dir[2], enum alone alone)
{
	static const char *const notes[] = { [ALONE_UNKNOWN] = "",
		[ALONE_BOTH_LOW] = "; each direction alone is low as well",
		[ALONE_BOTH_GOOD] = "; each direction alone is good",
		[ALONE_SENDS_SLOWLY] = "; alone, receiving is good",
		[ALONE_RECEIVES_SLOWLY] = "; alone, sending is good" };
	bool sends = dir[1] ? alone == ALONE_SENDS_SLOWLY : dir[0];
	bool receives = dir[0] ? alone == ALONE_RECEIVES_SLOWLY : dir[1];

	snprintf(x->text, sizeof(x->text),
		"%s NIC %s%s: lowest %.3g Gb/s is %.0f %% of the median %.3g, %lld of %lld figures low",
		verdict_node(s, x->rank).s, x->nic,
		sends	   ? " sends slowly"
		: receives ? " receives slowly"
			   : "",
		x->gbps, floor(x->percent), s->median, (long long)x->low, (long long)x->of);
	if (x->kind == DR_SWEEP_BAD_CABLE)
		dr_append(x->text, sizeof(x->text),
			"; its link is at %lld Mb/s, most others at %lld",
			(long long)nic->speed_mbps, (long long)usual_speed(s));
	add_counters(s, x);
	dr_append(x->text, sizeof(x->text), "%s", notes[alone]);
	if (measured_nics(s, (uint32_t)x->rank) == 1)
		dr_append(x->text, sizeof(x->text),
			"; its only NIC, so node and NIC are not told apart");
}

static void slow_port(
	struct verdict_search *s, const struct port *p, uint32_t port, const bool dir[2])
{
	const struct dr_sweep_nic *n = &s->j->node[rank_of(port)].nic[port % DR_SWEEP_NICS_MAX];
	int64_t usual = usual_speed(s);
	bool trained = n->speed_mbps > 0 && n->speed_mbps < usual;
	enum alone alone = dir[0] && dir[1] ? alone_port(s, port) : ALONE_UNKNOWN;
	bool one_way =
		!dir[0] || !dir[1] || alone == ALONE_SENDS_SLOWLY || alone == ALONE_RECEIVES_SLOWLY;
	struct dr_sweep_finding *x = add_bad_port(s,
		trained	  ? DR_SWEEP_BAD_CABLE
		: one_way ? DR_SWEEP_ASYMMETRIC
			  : DR_SWEEP_BAD_NIC,
		port, p, dir);

	verdict_figure(s, x, p->lowest);
	describe_port(s, x, n, dir, alone);
	explain_port(s, port, dir, false);
}

static void slow_ports(struct verdict_search *s, struct port *p)
{
	uint32_t port;
	bool dir[2];

	while (worst_port(s, p, false, &port, dir))
		slow_port(s, &p[port], port, dir);
}

/* ---- wrong bytes ---- */

static void wrong_port(
	struct verdict_search *s, const struct port *p, uint32_t port, const bool dir[2])
{
	struct dr_sweep_finding *x = add_bad_port(s, DR_SWEEP_CORRUPTS, port, p, dir);

	x->wrong_chunks = (int64_t)p->wrong;
	snprintf(x->text, sizeof(x->text),
		"%s NIC %s corrupts data that it %s: %lld chunks with wrong bytes, in %lld of %lld "
		"measurements",
		verdict_node(s, x->rank).s, x->nic,
		dir[0] && dir[1] ? "sends and receives"
		: dir[0]	 ? "sends"
				 : "receives",
		(long long)x->wrong_chunks, (long long)x->low, (long long)x->of);
	explain_port(s, port, dir, true);
}

static void wrong_figure(struct verdict_search *s, const struct figure *f)
{
	struct dr_sweep_finding *x = verdict_add_pair(s, DR_SWEEP_CORRUPTS, f);

	x->wrong_chunks = f->wrong;
	x->low = x->of = 1;
	snprintf(x->text, sizeof(x->text),
		"data from %s NIC %s to %s NIC %s is corrupted: %lld chunks with wrong bytes",
		verdict_node(s, x->rank).s, x->nic, verdict_node(s, x->peer_rank).s, x->peer_nic,
		(long long)x->wrong_chunks);
}

static void wrong_ports(struct verdict_search *s, struct port *p)
{
	uint32_t port;
	bool dir[2];

	while (worst_port(s, p, true, &port, dir))
		wrong_port(s, &p[port], port, dir);
	for (size_t i = 0; i < s->n; i++)
		if (s->f[i].wrong)
			wrong_figure(s, &s->f[i]);
}

/* ---- nodes ---- */

/* Runs of a node that were made, and those that failed; `skip`: nodes that explain theirs. */
static void count_runs(const struct verdict_search *s, uint32_t (*runs)[2], const uint8_t *skip)
{
	for (size_t i = 0; i < s->j->n_results; i++) {
		const struct dr_sweep_result *r = &s->j->result[i];
		uint32_t a = r->pair.client, b = r->pair.server;

		if ((r->state != DR_SWEEP_OK && r->state != DR_SWEEP_FAILED) || skip[a] || skip[b])
			continue;
		runs[a][0]++;
		runs[b][0]++;
		runs[a][1] += r->state == DR_SWEEP_FAILED;
		runs[b][1] += r->state == DR_SWEEP_FAILED;
	}
}

static const char *failure_text(const struct verdict_search *s, uint32_t rank)
{
	for (size_t i = 0; i < s->j->n_results; i++) {
		const struct dr_sweep_result *r = &s->j->result[i];

		if (r->state == DR_SWEEP_FAILED && r->text &&
			(r->pair.client == rank || r->pair.server == rank))
			return r->text;
	}
	return "no reason known";
}

static void failed_node(struct verdict_search *s, uint32_t rank, const uint32_t runs[2])
{
	struct dr_sweep_finding *x = verdict_add(s, DR_SWEEP_BAD_NODE, rank, DR_UNSET);

	x->low = runs[1];
	x->of = runs[0];
	snprintf(x->reason, sizeof(x->reason), "%s", failure_text(s, rank));
	snprintf(x->text, sizeof(x->text), "%s: %u of %u pairs failed: %s", verdict_node(s, rank).s,
		runs[1], runs[0], x->reason);
}

static void failed_pairs(struct verdict_search *s, const uint8_t *skip)
{
	for (size_t i = 0; i < s->j->n_results; i++) {
		const struct dr_sweep_result *r = &s->j->result[i];

		if (r->state != DR_SWEEP_FAILED || skip[r->pair.client] || skip[r->pair.server])
			continue;
		struct dr_sweep_finding *x =
			verdict_add(s, DR_SWEEP_FAILED_PAIR, r->pair.client, r->pair.server);

		x->low = x->of = 1;
		snprintf(x->reason, sizeof(x->reason), "%s", r->text ? r->text : "no reason known");
		snprintf(x->text, sizeof(x->text), "%s with %s: the run failed: %s",
			verdict_node(s, x->rank).s, verdict_node(s, x->peer_rank).s, x->reason);
	}
}

static void failed_nodes(struct verdict_search *s)
{
	uint8_t *skip = dr_calloc(s->j->nodes, 1);
	uint32_t(*runs)[2] = dr_calloc(s->j->nodes, sizeof(*runs));

	s->failed = s->failed || !skip || !runs;
	for (uint32_t r = 0; r < s->j->nodes && !s->failed; r++)
		skip[r] = is_lost(s, r);
	while (!s->failed) {
		uint32_t worst = s->j->nodes;

		memset(runs, 0, s->j->nodes * sizeof(*runs));
		count_runs(s, runs, skip);
		for (uint32_t r = 0; r < s->j->nodes; r++)
			if (is_most(runs[r][1], runs[r][0]) &&
				(worst == s->j->nodes ||
					(uint64_t)runs[r][1] * runs[worst][0] >
						(uint64_t)runs[worst][1] * runs[r][0]))
				worst = r;
		if (worst == s->j->nodes)
			break;
		failed_node(s, worst, runs[worst]);
		skip[worst] = 1;
	}
	if (!s->failed)
		failed_pairs(s, skip);
	dr_free(runs);
	dr_free(skip);
}

static void missing_nodes(struct verdict_search *s)
{
	for (uint32_t r = 0; r < s->j->nodes; r++) {
		const struct dr_sweep_node *n = &s->j->node[r];

		if (!is_lost(s, r))
			continue;
		struct dr_sweep_finding *x = verdict_add(s, DR_SWEEP_NODE_MISSING, r, DR_UNSET);

		s->out->missing_nodes++;
		snprintf(x->reason, sizeof(x->reason), "%s", n->reason);
		snprintf(x->text, sizeof(x->text), "%s %s%s%s", verdict_node(s, r).s,
			n->presence == DR_SWEEP_LOST ? "was lost" : "never joined",
			*n->reason ? ": " : "", n->reason);
	}
}

/* A pair that had no answer over a NIC over which its node has measured others. */
static void count_partial(
	struct verdict_search *s, const struct dr_sweep_result *r, const uint32_t *used)
{
	const uint32_t rank[2] = { r->pair.client, r->pair.server };
	uint32_t lacks[2] = { r->unused[0] & used[rank[0]], r->unused[1] & used[rank[1]] };
	int e;

	for (unsigned l = 0; l < r->n_lanes; l++) { /* of another run of the pair */
		lacks[0] &= ~(1u << r->lane[l].client_nic);
		lacks[1] &= ~(1u << r->lane[l].server_nic);
	}
	e = lacks[0] ? 0 : 1;
	if (!lacks[e] || r->state != DR_SWEEP_OK || s->out->partial++ > 0)
		return;
	snprintf(s->out->first_partial, sizeof(s->out->first_partial), "rank %u %s with rank %u",
		rank[e], s->j->node[rank[e]].nic[__builtin_ctz(lacks[e])].name, rank[!e]);
}

/* A NIC that no pair of its node could use: no link, or no answer over it. Whether it should be in
 * use, only other nodes tell: they have one. */
static void unused_nics(struct verdict_search *s)
{
	uint32_t *used = dr_calloc(s->j->nodes, sizeof(*used)),
		 *unused = dr_calloc(s->j->nodes, sizeof(*unused));

	s->failed = s->failed || !used || !unused;
	for (size_t i = 0; i < s->n && !s->failed; i++)
		for (int e = 0; e < 2; e++)
			used[rank_of(s->f[i].port[e])] |= 1u << s->f[i].port[e] % DR_SWEEP_NICS_MAX;
	for (size_t i = 0; i < s->j->n_results && !s->failed; i++) {
		const struct dr_sweep_result *r = &s->j->result[i];

		if (is_of_lost(s, r))
			continue;
		unused[r->pair.client] |= r->unused[0];
		unused[r->pair.server] |= r->unused[1];
		count_partial(s, r, used);
	}
	for (uint32_t r = 0; r < s->j->nodes && !s->failed; r++)
		for (unsigned k = 0; k < s->j->node[r].n_nics; k++) {
			const struct dr_sweep_nic *nic = &s->j->node[r].nic[k];

			if (!(unused[r] & ~used[r] & 1u << k))
				continue;
			bool cable = nic->told && nic->up && !nic->carrier;
			struct dr_sweep_finding *x =
				add_port(s, cable ? DR_SWEEP_BAD_CABLE : DR_SWEEP_BAD_NIC,
					r * DR_SWEEP_NICS_MAX + k);

			snprintf(x->text, sizeof(x->text), "%s NIC %s carries nothing: %s",
				verdict_node(s, r).s, nic->name,
				cable ? "no carrier: cable, transceiver or port of the switch"
				: nic->told && nic->up
					? "its peers do not answer over it; dualrail doctor HOST tells why"
					: "it is set down");
		}
	dr_free(used);
	dr_free(unused);
}

/* Two or more NICs of a node, all bad both ways: it is the node. */
static void whole_nodes(struct verdict_search *s)
{
	struct dr_sweep_verdict *o = s->out;

	for (uint32_t r = 0; r < s->j->nodes; r++) {
		struct dr_sweep_finding *first = NULL;
		unsigned bad = 0;

		for (size_t i = 0; i < o->n; i++)
			if (o->v[i].kind == DR_SWEEP_BAD_NIC && o->v[i].rank == r) {
				first = first ? first : &o->v[i];
				bad++;
			}
		if (bad < 2 || bad < measured_nics(s, r))
			continue;
		for (struct dr_sweep_finding *x = &o->v[o->n]; --x > first;) {
			if (x->kind != DR_SWEEP_BAD_NIC || x->rank != r)
				continue;
			first->low += x->low;
			first->of += x->of;
			if (x->gbps < first->gbps) {
				first->gbps = x->gbps;
				first->percent = x->percent;
			}
			memmove(x, x + 1, (size_t)(&o->v[o->n--] - x - 1) * sizeof(*x));
		}
		first->kind = DR_SWEEP_BAD_NODE;
		first->nic[0] = '\0';
		snprintf(first->text, sizeof(first->text),
			"%s: all %u NICs are low: lowest %.3g Gb/s is %.0f %% of the median %.3g, %lld of %lld "
			"figures low",
			verdict_node(s, r).s, bad, first->gbps, floor(first->percent), s->median,
			(long long)first->low, (long long)first->of);
	}
}

/* ---- the line ---- */

enum { NAMED_MAX = 4 };

static void conclude(const struct verdict_search *s)
{
	struct dr_sweep_verdict *o = s->out;
	size_t missing = o->missing_nodes, bad = o->n - missing; /* the missing ones come last */
	bool wrong = false;

	for (size_t i = 0; i < o->n; i++)
		wrong = wrong || o->v[i].kind == DR_SWEEP_CORRUPTS;
	o->exit_code = wrong				      ? DR_EXIT_DATA
		       : bad				      ? DR_EXIT_THRESHOLD
		       : missing || o->missing || !o->figures ? DR_EXIT_PEER
							      : DR_EXIT_PASS;
	o->line[0] = '\0';
	if (bad)
		dr_append(
			o->line, sizeof(o->line), "BAD: %zu finding%s: ", bad, bad == 1 ? "" : "s");
	for (size_t i = 0; i < bad && i < NAMED_MAX; i++) {
		const struct dr_sweep_finding *x = &o->v[i];

		dr_append(o->line, sizeof(o->line), "%s%s", i ? ", " : "",
			dr_sweep_kind_names[x->kind]);
		if (x->rank != DR_UNSET)
			dr_append(o->line, sizeof(o->line), " rank %lld%s%s", (long long)x->rank,
				*x->nic ? " " : "", x->nic);
		if (x->peer_rank != DR_UNSET)
			dr_append(o->line, sizeof(o->line), " with %lld", (long long)x->peer_rank);
	}
	if (bad > NAMED_MAX)
		dr_append(o->line, sizeof(o->line), " and %zu more", bad - NAMED_MAX);
	if (!bad && !missing && !o->missing && o->figures)
		dr_append(o->line, sizeof(o->line),
			"network exonerated: %llu of %llu pairs of %u nodes, %llu figures, the lowest %.0f %% of the "
			"median %.3g Gb/s (bound %.0f %%)",
			(unsigned long long)o->ok, (unsigned long long)o->pairs, s->j->nodes,
			(unsigned long long)o->figures, o->lowest_percent, o->median_gbps,
			100 * s->j->least);
	else
		dr_append(o->line, sizeof(o->line), "%s%llu of %llu pairs measured",
			bad ? "; " : "INCOMPLETE: ", (unsigned long long)o->ok,
			(unsigned long long)o->pairs);
	if (missing)
		dr_append(o->line, sizeof(o->line), "; %zu node%s missing: ", missing,
			missing == 1 ? "" : "s");
	for (size_t i = 0; i < missing && i < NAMED_MAX; i++)
		dr_append(o->line, sizeof(o->line), "%s%s", i ? ", " : "",
			verdict_node(s, o->v[bad + i].rank).s);
	if (missing > NAMED_MAX)
		dr_append(o->line, sizeof(o->line), " and %zu more", missing - NAMED_MAX);
	if (o->cleared && o->exit_code == DR_EXIT_PASS)
		dr_append(o->line, sizeof(o->line),
			"; %llu pair%s low in a run, not when measured again",
			(unsigned long long)o->cleared, o->cleared == 1 ? " was" : "s were");
	if (o->partial)
		dr_append(o->line, sizeof(o->line),
			"; %llu pair%s no answer over a NIC that is used with others: %s",
			(unsigned long long)o->partial, o->partial == 1 ? " had" : "s had",
			o->first_partial);
	if (o->in_doubt)
		dr_append(o->line, sizeof(o->line),
			"; %llu of %llu pairs are low, so the median is in doubt as the reference",
			(unsigned long long)o->low_pairs, (unsigned long long)o->ok);
}

int dr_sweep_judge(const struct dr_sweep_judge *j, struct dr_sweep_verdict *out)
{
	struct verdict_search s = { .j = j, .out = out, .median = NAN };
	struct port *ports = dr_calloc((size_t)j->nodes * DR_SWEEP_NICS_MAX, sizeof(*ports));

	*out = (struct dr_sweep_verdict){ .median_gbps = NAN, .lowest_percent = NAN };
	s.failed = !ports || collect(&s) || round_trips(j, out);
	if (!s.failed) {
		wrong_ports(&s, ports);
		failed_nodes(&s);
		unused_nics(&s);
		verdict_fabric(&s);
		slow_ports(&s, ports);
		whole_nodes(&s);
		verdict_pairs(&s);
		missing_nodes(&s);
		conclude(&s);
	}
	dr_free(s.f);
	dr_free(ports);
	if (s.failed)
		dr_sweep_verdict_fini(out);
	return s.failed ? -ENOMEM : 0;
}

void dr_sweep_verdict_fini(struct dr_sweep_verdict *v)
{
	dr_free(v->v);
	v->v = NULL;
	v->n = v->cap = 0;
}
