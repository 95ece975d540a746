/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/topo.h"

#include "orchestrator/affinity.h"
#include "orchestrator/report/fields.h"
#include "topology/numa.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* What `dualrail topo` found, as tables and as JSON. Unknown is "-" here and null there. */

static const char *const near_word[] = { "switch", "root", "node", "system", "unknown" };

static const char *word(uint8_t distance)
{
	return near_word[DR_MIN((unsigned)distance >> 4, (unsigned)DR_NEAR_UNKNOWN)];
}

static const char *or_dash(const char *s)
{
	return s[0] ? s : "-";
}

static const char *link_word(int up)
{
	return up < 0 ? "-" : up ? "up" : "down";
}

static void number(int64_t v, bool known, char buf[24])
{
	if (known)
		snprintf(buf, 24, "%lld", (long long)v);
	else
		snprintf(buf, 24, "-");
}

/* "10.0.1.1/24", or its subnet "10.0.1.0/24". */
static void format_addr(const struct dr_netdev_addr *a, bool subnet, char *buf, size_t len)
{
	struct sockaddr_storage sa = a->addr;
	uint8_t *bytes = sa.ss_family == AF_INET ? (uint8_t *)&((struct sockaddr_in *)&sa)->sin_addr
						 : ((struct sockaddr_in6 *)&sa)->sin6_addr.s6_addr;
	unsigned bits = sa.ss_family == AF_INET ? 32 : 128;
	char text[64];

	for (unsigned i = a->prefix; subnet && i < bits; i++)
		bytes[i / 8] &= (uint8_t) ~(0x80u >> (i % 8));
	dr_netdev_addr_format((const struct sockaddr *)&sa, text, sizeof(text));
	snprintf(buf, len, "%s/%u", text, a->prefix);
}

/* ---- tables ---- */

static void print_nic(const struct dr_topo_view *v, const struct dr_topo_nic *n, FILE *f)
{
	char numa[24], mtu[24], speed[24] = "-", addr[80] = "-", index[24], rail[24];
	const char *why = dr_topo_view_why(v, n);

	number(dr_topo_nic_numa(n), dr_topo_nic_numa(n) >= 0, numa);
	number(n->mtu, n->mtu > 0, mtu);
	number(n->gid_index, n->gid_index >= 0, index);
	number(dr_topo_view_rail(v, n), !why[0], rail);
	if (n->speed_mbps > 0)
		snprintf(speed, sizeof(speed), "%g", (double)n->speed_mbps / 1000);
	if (n->n_addrs)
		format_addr(&n->addr[0], false, addr, sizeof(addr));
	fprintf(f, "%-15s %-10s %-13s %4s %-4s %6s %6s  %-22s %s\n", n->name, or_dash(n->rdma),
		or_dash(n->bus_id), numa, link_word(n->up), speed, mtu, addr, why[0] ? why : rail);
	if (n->gid[0])
		fprintf(f, "%-15s   GID %s %s\n", "", index, n->gid);
}

static void print_nics(const struct dr_topo_view *v, FILE *f)
{
	const struct dr_topo *t = v->topo;

	if (!t->n_nics)
		return;
	fprintf(f, "\n%-15s %-10s %-13s %4s %-4s %6s %6s  %-22s %s\n", "NIC", "RDMA", "bus id",
		"NUMA", "link", "Gb/s", "MTU", "address/subnet", "rail");
	for (unsigned i = 0; i < t->n_nics; i++)
		print_nic(v, &t->nic[i], f);
}

/* Of the i-th column; nothing is filled up behind the last one. */
static int width(const struct dr_topo *t, unsigned i)
{
	size_t len = DR_MAX(strlen(t->nic[i].name), sizeof("unknown") - 1);

	return i + 1 < t->n_nics ? (int)len : 0;
}

/* Rows GPUs, columns NICs. */
static void print_distances(const struct dr_topo_view *v, FILE *f)
{
	const struct dr_topo *t = v->topo;
	char numa[24];

	if (!t->n_gpus)
		return;
	fprintf(f, "\n%-4s %-13s %4s ", "GPU", "bus id", "NUMA");
	for (unsigned i = 0; i < t->n_nics; i++)
		fprintf(f, " %-*s", width(t, i), t->nic[i].name);
	fputc('\n', f);
	for (unsigned g = 0; g < t->n_gpus; g++) {
		number(t->gpu[g].place.numa, t->gpu[g].place.numa >= 0, numa);
		fprintf(f, "%-4u %-13s %4s ", g, t->gpu[g].bus_id, numa);
		for (unsigned i = 0; i < t->n_nics; i++)
			fprintf(f, " %-*s", width(t, i),
				word(dr_topo_distance(&t->gpu[g], &t->nic[i])));
		fputc('\n', f);
	}
}

static void print_map(const struct dr_topo_view *v, FILE *f)
{
	const struct dr_plan *p = &v->plan;
	char why[96], line[256];

	fputc('\n', f);
	for (unsigned k = 0; k < p->n_gpus; k++) {
		dr_plan_reason(p, k, why, sizeof(why));
		for (unsigned c = 0; c < p->n_each; c++) {
			struct dr_plan_map m = dr_plan_paths(p, k, c);
			unsigned n = dr_topo_view_alike(v, k, c);

			if (!n)
				continue;
			fprintf(f, "GPU %-3u %u channel%s: primary %s, %s%s (%s)\n",
				p->gpu[k][DR_PLAN_CLIENT], n, n == 1 ? "" : "s",
				p->rail[m.primary][DR_PLAN_CLIENT].name,
				m.primary == m.shadow ? "no shadow: unprotected" : "shadow ",
				m.primary == m.shadow ? "" : p->rail[m.shadow][DR_PLAN_CLIENT].name,
				why);
		}
	}
	dr_affinity_describe(v->opt, p, DR_PLAN_CLIENT, dr_numa_nodes(), line, sizeof(line));
	if (v->topo->live)
		fprintf(f, "%s\n", line);
}

void dr_topo_view_print(const struct dr_topo_view *v, FILE *f)
{
	const struct dr_topo *t = v->topo;

	fprintf(f, "%s: %u GPU%s, %u NIC%s, %u NUMA node%s\n", t->source, t->n_gpus,
		t->n_gpus == 1 ? "" : "s", t->n_nics, t->n_nics == 1 ? "" : "s", t->n_nodes,
		t->n_nodes == 1 ? "" : "s");
	if (!t->n_gpus)
		fprintf(f, "no GPU: the GPUs below are logical ones in host memory\n");
	print_nics(v, f);
	print_distances(v, f);
	if (v->plan.n_rails)
		print_map(v, f);
	fflush(f);
}

/* ---- JSON ---- */

static json_t *node_json(int node)
{
	return node < 0 ? json_null() : json_integer(node);
}

static json_t *gpus_json(const struct dr_topo *t, int *bad)
{
	json_t *a = json_array();

	for (unsigned g = 0; g < t->n_gpus; g++) {
		json_t *o = json_object();

		dr_json_put(o, "gpu", json_integer(g), bad);
		dr_json_put(o, "bus_id", dr_json_str(t->gpu[g].bus_id), bad);
		dr_json_put(o, "name", dr_json_str(t->gpu[g].name), bad);
		dr_json_put(o, "numa", node_json(t->gpu[g].place.numa), bad);
		*bad += !!json_array_append_new(a, o);
	}
	return a;
}

static json_t *addrs_json(const struct dr_topo_nic *n, bool subnet)
{
	json_t *a = json_array();
	char text[80];

	for (unsigned i = 0; i < n->n_addrs; i++) {
		format_addr(&n->addr[i], subnet, text, sizeof(text));
		json_array_append_new(a, json_string(text));
	}
	return a;
}

static json_t *nic_json(const struct dr_topo_view *v, const struct dr_topo_nic *n, int *bad)
{
	const char *why = dr_topo_view_why(v, n);
	json_t *o = json_object();

	dr_json_put(o, "name", dr_json_str(n->name), bad);
	dr_json_put(o, "rdma", dr_json_str(n->rdma), bad);
	dr_json_put(o, "bus_id", dr_json_str(n->bus_id), bad);
	dr_json_put(o, "numa", node_json(dr_topo_nic_numa(n)), bad);
	dr_json_put(o, "port", dr_json_str(n->port), bad);
	dr_json_put(o, "vf", json_boolean(n->vf), bad);
	dr_json_put(o, "link", n->up < 0 ? json_null() : json_string(link_word(n->up)), bad);
	dr_json_put(o, "speed_gbps",
		n->speed_mbps > 0 ? json_real((double)n->speed_mbps / 1000) : json_null(), bad);
	dr_json_put(o, "mtu_bytes", n->mtu ? json_integer(n->mtu) : json_null(), bad);
	dr_json_put(o, "addresses", addrs_json(n, false), bad);
	dr_json_put(o, "subnets", addrs_json(n, true), bad);
	dr_json_put(o, "gid", dr_json_str(n->gid), bad);
	dr_json_put(o, "gid_index", node_json(n->gid_index), bad);
	dr_json_put(o, "rail", node_json(dr_topo_view_rail(v, n)), bad);
	dr_json_put(o, "not_a_rail", dr_json_str(why), bad);
	return o;
}

static json_t *nics_json(const struct dr_topo_view *v, int *bad)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < v->topo->n_nics; i++)
		*bad += !!json_array_append_new(a, nic_json(v, &v->topo->nic[i], bad));
	return a;
}

static json_t *distances_json(const struct dr_topo *t, int *bad)
{
	json_t *a = json_array();

	for (unsigned g = 0; g < t->n_gpus; g++)
		for (unsigned i = 0; i < t->n_nics; i++) {
			uint8_t d = dr_topo_distance(&t->gpu[g], &t->nic[i]);
			json_t *o = json_pack("{s:i, s:s, s:s}", "gpu", (int)g, "nic",
				t->nic[i].name, "distance", word(d));

			if (d >> 4 == DR_NEAR_SWITCH)
				dr_json_put(o, "bridges", json_integer(d & 15), bad);
			*bad += !!json_array_append_new(a, o);
		}
	return a;
}

static json_t *pair_json(const struct dr_topo_view *v, unsigned k, unsigned c, unsigned n, int *bad)
{
	const struct dr_plan *p = &v->plan;
	struct dr_plan_map m = dr_plan_paths(p, k, c);
	json_t *o = json_object();
	char why[96];

	dr_plan_reason(p, k, why, sizeof(why));
	dr_json_put(o, "gpu", json_integer(p->gpu[k][DR_PLAN_CLIENT]), bad);
	dr_json_put(o, "primary", json_string(p->rail[m.primary][DR_PLAN_CLIENT].name), bad);
	dr_json_put(o, "shadow",
		m.primary == m.shadow ? json_null()
				      : json_string(p->rail[m.shadow][DR_PLAN_CLIENT].name),
		bad);
	dr_json_put(o, "channels", json_integer(n), bad);
	dr_json_put(o, "reason", json_string(why), bad);
	return o;
}

static json_t *map_json(const struct dr_topo_view *v, int *bad)
{
	json_t *a = json_array();

	for (unsigned k = 0; v->plan.n_rails && k < v->plan.n_gpus; k++)
		for (unsigned c = 0; c < v->plan.n_each; c++) {
			unsigned n = dr_topo_view_alike(v, k, c);

			if (n)
				*bad += !!json_array_append_new(a, pair_json(v, k, c, n, bad));
		}
	return a;
}

json_t *dr_topo_view_json(const struct dr_topo_view *v)
{
	static const struct dr_topo none = { 0 };
	const struct dr_topo *t = v->topo ? v->topo : &none;
	json_t *o = json_object(), *errors = json_array();
	int bad = 0;

	if (v->status)
		bad += !!json_array_append_new(errors, json_string(v->err.text));
	dr_json_put(o, "schema", json_string("dualrail-topo/1"), &bad);
	dr_json_put(o, "status", json_string(v->status ? "error" : "pass"), &bad);
	dr_json_put(o, "exit_code", json_integer(v->status), &bad);
	dr_json_put(o, "source", dr_json_str(t->source), &bad);
	dr_json_put(o, "numa_nodes", v->topo ? json_integer(t->n_nodes) : json_null(), &bad);
	dr_json_put(o, "gpus", gpus_json(t, &bad), &bad);
	dr_json_put(o, "nics", v->topo ? nics_json(v, &bad) : json_array(), &bad);
	dr_json_put(o, "distances", distances_json(t, &bad), &bad);
	dr_json_put(o, "map", map_json(v, &bad), &bad);
	dr_json_put(o, "errors", errors, &bad);
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}
