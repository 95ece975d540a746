/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/topo.h"

#include "orchestrator/output/fields.h"
#include "orchestrator/plan/affinity.h"
#include "topology/numa.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The output of `dualrail topo`: the document, and the tables, which are printed from it. Unknown values are null and
 * "-". */

static const char *const locality_word[] = { "switch", "root", "node", "system", "unknown" };

static const char *word(uint8_t distance)
{
	return locality_word[DR_MIN((unsigned)distance >> 4, (unsigned)DR_LOCALITY_UNKNOWN)];
}

/* Rail number of a NIC; -1. */
static int rail_of(const struct dr_topo_view *v, const struct dr_topo_nic *nic)
{
	for (unsigned i = 0; i < v->plan.n_rails; i++)
		if (!strncmp(v->plan.rail[i][DR_PLAN_CLIENT].name, nic->name, IFNAMSIZ - 1))
			return (int)i;
	return -1;
}

/* Why a NIC is not a rail; "" if it is one. */
static const char *not_a_rail(const struct dr_topo_view *v, const struct dr_topo_nic *nic)
{
	if (rail_of(v, nic) >= 0)
		return "";
	for (size_t i = 0; i < v->from.n_devs; i++) {
		if (strncmp(v->devs[i].name, nic->name, IFNAMSIZ - 1) != 0)
			continue;
		enum dr_netdev_why why = dr_netdev_refused(&v->from, &v->devs[i]);
		if (why)
			return dr_netdev_why_text(why);
	}
	if (!nic->netdev)
		return "no network device";
	return v->opt->rails ? "not in --rails" : "not used";
}

/* Number of channels of the k-th GPU with the same rails as channel c; 0 if an earlier channel has them. */
static unsigned alike(const struct dr_topo_view *v, unsigned k, unsigned c)
{
	struct dr_plan_map m = dr_plan_paths(&v->plan, k, c);
	unsigned n = 0;

	for (unsigned d = 0; d < v->plan.n_each; d++) {
		struct dr_plan_map other = dr_plan_paths(&v->plan, k, d);

		if (other.primary != m.primary || other.shadow != m.shadow)
			continue;
		if (d < c)
			return 0;
		n++;
	}
	return n;
}

/* ---- JSON ---- */

static const char *const link_names[] = { "down", "up", NULL };
static const char *const status_names[] = { "pass", "error", NULL };

#define F(kind_, member, text_, ...)                                                               \
	DR_FIELD(#member, DR_F_##kind_, T, member, .text = (text_), __VA_ARGS__)
/* A negative value is unknown. */
#define KNOWN .min = 0, .max = INT_MAX
#define STRINGS .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"

struct gpu {
	unsigned gpu;
	const char *bus_id, *name;
	int numa;
};
#define T struct gpu
static const struct dr_field gpu_rows[] = {
	F(UINT, gpu, "number of the GPU"),
	F(TEXT, bus_id, "PCI address"),
	F(TEXT, name, "name of the device"),
	F(SINT, numa, "NUMA node", KNOWN),
};
static DR_FIELDS(gpu_fields, "gpus", gpu_rows, T, .text = "a GPU");
#undef T

struct nic {
	const char *name, *rdma, *bus_id, *port, *gid, *not_a_rail;
	int numa, link, gid_index, rail;
	bool vf;
	double speed_gbps;
	int64_t mtu_bytes;
	json_t *addresses, *subnets;
};
#define T struct nic
static const struct dr_field nic_rows[] = {
	F(TEXT, name, "network interface or RDMA device"),
	F(TEXT, rdma, "its RDMA device"),
	F(TEXT, bus_id, "PCI address"),
	F(SINT, numa, "NUMA node", KNOWN),
	F(TEXT, port, "physical port, the same for its virtual functions"),
	F(BOOL, vf, "a virtual function"),
	DR_FIELD_ENUM("link", T, link, link_names, .text = "state of the link"),
	F(NUM, speed_gbps, "speed that the NIC reports"),
	F(INT, mtu_bytes, "MTU"),
	F(JSON, addresses, "addresses with their prefix lengths", STRINGS),
	F(JSON, subnets, "their subnets", STRINGS),
	F(TEXT, gid, "GID that a run would use"),
	F(SINT, gid_index, "its index", KNOWN),
	F(SINT, rail, "number of the rail", KNOWN),
	F(TEXT, not_a_rail, "why it is not a rail"),
};
static DR_FIELDS(nic_fields, "nics", nic_rows, T, .text = "a NIC");
#undef T

struct distance {
	unsigned gpu, bridges;
	const char *nic, *distance;
};
#define T struct distance
static const struct dr_field distance_rows[] = {
	F(UINT, gpu, "number of the GPU"),
	F(TEXT, nic, "name of the NIC"),
	F(TEXT, distance, "closest thing that both share: switch, root, node, system; or unknown"),
	F(UINT, bridges, "PCI bridges between them, with a common switch", .flags = DR_F_OMIT),
};
static DR_FIELDS(distance_fields, "distances", distance_rows, T, .text = "a GPU and a NIC");
#undef T

struct pair {
	unsigned gpu, channels;
	const char *primary, *shadow;
	char reason[96];
};
#define T struct pair
static const struct dr_field pair_rows[] = {
	F(UINT, gpu, "number of the GPU"),
	F(TEXT, primary, "NIC of the primary rail"),
	F(TEXT, shadow, "NIC of the shadow rail; null: none"),
	F(UINT, channels, "channels with these rails"),
	F(STR, reason, "why these rails"),
};
static DR_FIELDS(pair_fields, "map", pair_rows, T, .text = "rails of channels of a GPU");
#undef T

struct transport {
	const char *name, *error;
	json_t *rails;
};
#define T struct transport
static const struct dr_field transport_rows[] = {
	F(TEXT, name, "name of the kind, as in --transport"),
	F(JSON, rails, "NICs that it can use; null: not probed, the machine is not this one",
		.schema = "{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"string\"}}"),
	F(TEXT, error, "why it cannot be used"),
};
static DR_FIELDS(transport_fields, "transports", transport_rows, T, .text = "a transport kind");
#undef T

enum { GPUS, NICS, DISTANCES, TRANSPORTS, MAP, ERRORS, LISTS };
struct document {
	int status, exit_code;
	const char *source;
	int64_t numa_nodes;
	json_t *list[LISTS];
};
#define T struct document
#define LIST(name_, i, text_, ...)                                                                 \
	DR_FIELD(name_, DR_F_JSON, T, list[i], .text = (text_), __VA_ARGS__)
static const struct dr_field document_rows[] = {
	DR_FIELD_CONST("schema", "dualrail-topo/1", .text = "format of this document"),
	DR_FIELD_ENUM("status", T, status, status_names, .text = "outcome", .flags = DR_F_REQUIRED),
	F(SINT, exit_code, "exit status of the program"),
	F(TEXT, source, "this machine, or the file of --topology"),
	F(INT, numa_nodes, "number of NUMA nodes"),
	LIST("gpus", GPUS, "the GPUs", .row = &gpu_fields),
	LIST("nics", NICS, "the NICs", .row = &nic_fields),
	LIST("distances", DISTANCES, "distance of each GPU to each NIC", .row = &distance_fields),
	LIST("transports", TRANSPORTS, "the transport kinds of this build",
		.row = &transport_fields),
	LIST("map", MAP, "rails that each GPU would use", .row = &pair_fields),
	LIST("errors", ERRORS, "what is wrong", STRINGS),
};
DR_FIELDS(dr_topo_fields, "topo", document_rows, T, .text = "what `dualrail topo` found");
#undef T

/* Without memory the list becomes NULL, which fails the document. */
static void add(json_t **list, const struct dr_fields *t, const void *row)
{
	dr_json_append(list, dr_fields_to_json(t, row));
}

/* "10.0.1.1/24", or its subnet "10.0.1.0/24". */
static json_t *addrs_json(const struct dr_topo_nic *n, bool subnet)
{
	json_t *a = json_array();
	struct dr_prefix p;
	char text[80];

	for (unsigned i = 0; i < n->n_addrs; i++) {
		const struct dr_netdev_addr *addr = &n->addr[i];

		if (dr_prefix_of((const struct sockaddr *)&addr->addr, addr->prefix, &p))
			continue;
		if (subnet)
			dr_prefix_mask(&p);
		dr_prefix_format(&p, text, sizeof(text));
		json_array_append_new(a, json_string(text));
	}
	return a;
}

static void add_nic(json_t **list, const struct dr_topo_view *v, const struct dr_topo_nic *n)
{
	struct nic row = { .name = n->name,
		.rdma = n->rdma,
		.bus_id = n->bus_id,
		.port = n->port,
		.gid = n->gid,
		.not_a_rail = not_a_rail(v, n),
		.numa = dr_topo_nic_numa(n),
		.link = n->up,
		.gid_index = n->gid_index,
		.rail = rail_of(v, n),
		.vf = n->vf,
		.speed_gbps = n->speed_mbps > 0 ? (double)n->speed_mbps / 1000 : NAN,
		.mtu_bytes = n->mtu ? (int64_t)n->mtu : DR_UNSET,
		.addresses = addrs_json(n, false),
		.subnets = addrs_json(n, true) };

	add(list, &nic_fields, &row);
	json_decref(row.addresses);
	json_decref(row.subnets);
}

static void add_distances(json_t **list, const struct dr_topo *t, unsigned g)
{
	for (unsigned i = 0; i < t->n_nics; i++) {
		uint8_t d = dr_topo_distance(&t->gpu[g], &t->nic[i]);

		add(list, &distance_fields,
			&(struct distance){ .gpu = g,
				.nic = t->nic[i].name,
				.distance = word(d),
				.bridges = d >> 4 == DR_LOCALITY_SWITCH ? d & 15u : 0 });
	}
}

static void add_pairs(json_t **list, const struct dr_topo_view *v, unsigned k)
{
	const struct dr_plan *p = &v->plan;

	for (unsigned c = 0; c < p->n_each; c++) {
		struct dr_plan_map m = dr_plan_paths(p, k, c);
		struct pair row = { .gpu = p->gpu[k][DR_PLAN_CLIENT],
			.channels = alike(v, k, c),
			.primary = p->rail[m.primary][DR_PLAN_CLIENT].name,
			.shadow = m.primary == m.shadow ? NULL
							: p->rail[m.shadow][DR_PLAN_CLIENT].name };

		dr_plan_reason(p, k, row.reason, sizeof(row.reason));
		if (row.channels)
			add(list, &pair_fields, &row);
	}
}

static void add_transports(json_t **list, const struct dr_topo_view *v)
{
	const struct dr_transport_kind *k;

	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++) {
		struct transport row = { .name = k->name, .error = v->transport[i].err.text };

		row.rails = v->topo && v->topo->live ? json_array() : NULL;
		for (unsigned r = 0; row.rails && r < v->plan.n_rails; r++)
			if (v->transport[i].usable[r])
				json_array_append_new(row.rails,
					json_string(v->plan.rail[r][DR_PLAN_CLIENT].name));
		add(list, &transport_fields, &row);
		json_decref(row.rails);
	}
}

json_t *dr_topo_view_json(const struct dr_topo_view *v)
{
	static const struct dr_topo none = { 0 };
	const struct dr_topo *t = v->topo ? v->topo : &none;
	struct document d = { .status = v->status != 0,
		.exit_code = v->status,
		.source = t->source,
		.numa_nodes = v->topo ? (int64_t)t->n_nodes : DR_UNSET };
	bool complete = true;
	json_t *o = NULL;

	for (unsigned i = 0; i < LISTS; i++)
		d.list[i] = json_array();
	for (unsigned g = 0; g < t->n_gpus; g++) {
		add(&d.list[GPUS], &gpu_fields,
			&(struct gpu){ g, t->gpu[g].bus_id, t->gpu[g].name, t->gpu[g].place.numa });
		add_distances(&d.list[DISTANCES], t, g);
	}
	for (unsigned i = 0; i < t->n_nics; i++)
		add_nic(&d.list[NICS], v, &t->nic[i]);
	add_transports(&d.list[TRANSPORTS], v);
	for (unsigned k = 0; v->plan.n_rails && k < v->plan.n_gpus; k++)
		add_pairs(&d.list[MAP], v, k);
	if (v->status)
		json_array_append_new(d.list[ERRORS], json_string(v->err.text));
	for (unsigned i = 0; i < LISTS; i++)
		complete = complete && d.list[i];
	if (complete)
		o = dr_fields_to_json(&dr_topo_fields, &d);
	for (unsigned i = 0; i < LISTS; i++)
		json_decref(d.list[i]);
	return o;
}

/* ---- tables ---- */

static const char *str(const json_t *row, const char *key)
{
	const json_t *v = json_object_get(row, key);

	return json_is_string(v) ? json_string_value(v) : "-";
}

static const char *number(const json_t *row, const char *key, char buf[24])
{
	const json_t *v = json_object_get(row, key);

	snprintf(buf, 24, json_is_number(v) ? "%g" : "-", json_number_value(v));
	return buf;
}

static void print_nics(const json_t *nics, FILE *f)
{
	static const char form[] = "%-15s %-10s %-13s %4s %-4s %6s %6s  %-22s %s\n";
	char numa[24], speed[24], mtu[24], rail[24], index[24];
	const json_t *n;
	size_t i;

	if (json_array_size(nics)) {
		fputc('\n', f);
		fprintf(f, form, "NIC", "RDMA", "bus id", "NUMA", "link", "Gb/s", "MTU",
			"address/subnet", "rail");
	}
	json_array_foreach(nics, i, n)
	{
		const json_t *addr = json_array_get(json_object_get(n, "addresses"), 0);
		fprintf(f, form, str(n, "name"), str(n, "rdma"), str(n, "bus_id"),
			number(n, "numa", numa), str(n, "link"), number(n, "speed_gbps", speed),
			number(n, "mtu_bytes", mtu), addr ? json_string_value(addr) : "-",
			json_is_null(json_object_get(n, "rail")) ? str(n, "not_a_rail")
								 : number(n, "rail", rail));
		if (json_is_string(json_object_get(n, "gid")))
			fprintf(f, "%-15s   GID %s %s\n", "", number(n, "gid_index", index),
				str(n, "gid"));
	}
}

/* Rows GPUs, columns NICs; the last one is not padded. */
static void print_distances(const json_t *doc, FILE *f)
{
	const json_t *gpus = json_object_get(doc, "gpus"), *nics = json_object_get(doc, "nics");
	const json_t *all = json_object_get(doc, "distances");
	size_t n = json_array_size(nics);
	char numa[24];

	/* Row 0 is the header. */
	for (size_t g = 0; g <= json_array_size(gpus) && json_array_size(gpus); g++) {
		const json_t *gpu = json_array_get(gpus, g - 1);

		if (g)
			fprintf(f, "%-4zu %-13s %4s ", g - 1, str(gpu, "bus_id"),
				number(gpu, "numa", numa));
		else
			fprintf(f, "\n%-4s %-13s %4s ", "GPU", "bus id", "NUMA");
		for (size_t i = 0; i < n; i++) {
			const char *name = str(json_array_get(nics, i), "name");
			const json_t *d = json_array_get(all, (g - 1) * n + i);
			size_t width = DR_MAX(strlen(name), sizeof("unknown") - 1);

			fprintf(f, " %-*s", i + 1 < n ? (int)width : 0,
				g ? str(d, "distance") : name);
		}
		fputc('\n', f);
	}
}

static void print_map(const json_t *doc, FILE *f)
{
	const json_t *row;
	size_t i;

	fputc('\n', f);
	json_array_foreach(json_object_get(doc, "map"), i, row)
	{
		json_int_t channels = json_integer_value(json_object_get(row, "channels"));
		bool shadow = json_is_string(json_object_get(row, "shadow"));
		char gpu[24];

		fprintf(f, "GPU %-3s %d channel%s: primary %s, %s%s (%s)\n",
			number(row, "gpu", gpu), (int)channels, channels == 1 ? "" : "s",
			str(row, "primary"), shadow ? "shadow " : "no shadow: unprotected",
			shadow ? str(row, "shadow") : "", str(row, "reason"));
	}
}

/* "transport tcp     eth1 eth2": the rails that each kind can use, as probed on this machine. */
static void print_transports(const struct dr_topo_view *v, const json_t *doc, FILE *f)
{
	const json_t *row, *rail;
	size_t i, r;

	fputc('\n', f);
	json_array_foreach(json_object_get(doc, "transports"), i, row)
	{
		const json_t *rails = json_object_get(row, "rails");
		size_t n = json_array_size(rails);

		fprintf(f, "transport %-7s", str(row, "name"));
		json_array_foreach(rails, r, rail) fprintf(f, " %s", json_string_value(rail));
		if (n < v->plan.n_rails)
			fprintf(f, "%s: %s", n ? "; not all rails" : " none", str(row, "error"));
		fputc('\n', f);
	}
}

void dr_topo_view_print(const struct dr_topo_view *v, const json_t *doc, FILE *f)
{
	const struct dr_topo *t = v->topo;
	char line[256];

	fprintf(f, "%s: %u GPU%s, %u NIC%s, %u NUMA node%s\n", t->source, t->n_gpus,
		t->n_gpus == 1 ? "" : "s", t->n_nics, t->n_nics == 1 ? "" : "s", t->n_nodes,
		t->n_nodes == 1 ? "" : "s");
	if (!t->n_gpus)
		fprintf(f, "no GPU found: the GPUs below are logical GPUs with host memory\n");
	print_nics(json_object_get(doc, "nics"), f);
	print_distances(doc, f);
	if (v->plan.n_rails && t->live)
		print_transports(v, doc, f);
	if (v->plan.n_rails) {
		dr_affinity_describe(
			v->opt, &v->plan, DR_PLAN_CLIENT, dr_numa_nodes(), line, sizeof(line));
		print_map(doc, f);
		if (t->live)
			fprintf(f, "%s\n", line);
	}
	fflush(f);
}
