/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/topo.h"

#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu.h"
#include "orchestrator/affinity.h"
#include "orchestrator/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOGICAL_GPUS = 8 }; /* in host memory, where there is no GPU */

/* ---- rails ---- */

static int64_t fastest(const struct dr_topo *t)
{
	int64_t mbps = -1;

	for (unsigned i = 0; i < t->n_nics; i++)
		if (!dr_topo_not_a_rail(&t->nic[i], -1))
			mbps = DR_MAX(mbps, t->nic[i].speed_mbps);
	return mbps;
}

static void rail_of(const struct dr_topo_nic *nic, struct dr_netdev_rail *out)
{
	memset(out, 0, sizeof(*out));
	snprintf(out->ifname, sizeof(out->ifname), "%.15s", nic->name);
	if (nic->n_addrs) {
		out->addr = nic->addr[0].addr;
		out->prefix = nic->addr[0].prefix;
	}
	out->mtu = nic->mtu;
	out->speed_mbps = nic->speed_mbps;
	out->running = nic->up != 0;
}

static int add_rail(
	const struct dr_topo_nic *nic, struct dr_netdev_rail *out, int n, struct dr_err *e)
{
	if (n == DR_RAILS_MAX)
		return dr_err_set(e, -E2BIG, "more than %d NICs; name those to use with --rails",
			DR_RAILS_MAX);
	rail_of(nic, &out[n]);
	return n + 1;
}

/* Of a file: as dr_netdev_rails chooses among devices that are alive. */
static int automatic_rails(const struct dr_topo *t, struct dr_netdev_rail *out, struct dr_err *e)
{
	int n = 0;

	for (unsigned i = 0; i < t->n_nics && n >= 0; i++) {
		const struct dr_topo_nic *nic = &t->nic[i];

		if (!dr_topo_not_a_rail(nic, fastest(t)))
			n = add_rail(nic, out, n, e);
	}
	if (n == 0)
		return dr_err_set(e, -ENODEV,
			"no NIC of %s can be a rail (see the table); name some with --rails",
			t->source);
	return n;
}

static int listed_rails(
	const struct dr_topo *t, const char *list, struct dr_netdev_rail *out, struct dr_err *e)
{
	char buf[1024], *save = NULL;
	int n = 0;

	if ((size_t)snprintf(buf, sizeof(buf), "%s", list) >= sizeof(buf))
		return dr_err_set(e, -EINVAL, "--rails: too long");
	for (char *s = strtok_r(buf, ",", &save); s && n >= 0; s = strtok_r(NULL, ",", &save)) {
		const struct dr_topo_nic *nic = dr_topo_find_nic(t, s);

		if (!nic)
			return dr_err_set(e, -ENODEV,
				"--rails: no NIC \"%.60s\" in %s; without --rails all are shown", s,
				t->source);
		n = add_rail(nic, out, n, e);
	}
	return n ? n : dr_err_set(e, -EINVAL, "--rails: empty list");
}

static int find_rails(struct dr_topo_view *v, struct dr_netdev_rail *out)
{
	const char *list = v->opt->rails;
	struct dr_topo *t = v->topo;
	int n;

	if (!list || !strcmp(list, "auto"))
		return t->live ? dr_netdev_rails(NULL, NULL, out, DR_RAILS_MAX, &v->err)
			       : automatic_rails(t, out, &v->err);
	n = listed_rails(t, list, out, &v->err);
	/* Addresses, and devices that are no NICs, e.g. lo@127.0.0.2: as a run takes them. */
	if (n == -ENODEV && t->live)
		n = dr_netdev_rails(list, NULL, out, DR_RAILS_MAX, &v->err);
	return n;
}

/* ---- plan ---- */

/* Numbers as a run would give them: CUDA's where it shows GPUs, else by bus id. */
static int gpu_named(struct dr_topo_view *v, unsigned i, unsigned *out)
{
	const struct dr_gpu_names *names = &v->opt->gpu_names;
	struct dr_gpu_info list[DR_PLAN_GPUS_MAX] = { 0 };
	unsigned n = DR_MIN(v->topo->n_gpus, (unsigned)DR_PLAN_GPUS_MAX);
	int found;

	*out = names->v[i].index;
	if (!n && !names->v[i].bus_id)
		return 0;
	for (unsigned g = 0; g < n; g++) {
		list[g].ordinal = g;
		memcpy(list[g].bus_id, v->topo->gpu[g].bus_id, sizeof(list[g].bus_id));
	}
	found = dr_gpu_find(list, n, names->v[i].text, &v->err);
	if (found < 0)
		return dr_err_prefix(&v->err, "--gpus: %s", v->topo->source);
	*out = (unsigned)found;
	return 0;
}

static int find_gpus(struct dr_topo_view *v)
{
	unsigned named = v->opt->gpu_names.n;
	struct dr_plan *p = &v->plan;
	int rc = 0;

	p->n_gpus = named ? named : v->topo->n_gpus ? v->topo->n_gpus : LOGICAL_GPUS;
	if (p->n_gpus > DR_PLAN_GPUS_MAX)
		return dr_err_set(&v->err, -EINVAL, "%u GPUs: name at most %d of them with --gpus",
			p->n_gpus, DR_PLAN_GPUS_MAX);
	for (unsigned k = 0; k < p->n_gpus && rc == 0; k++) {
		p->gpu[k][DR_PLAN_CLIENT] = k;
		if (named)
			rc = gpu_named(v, k, &p->gpu[k][DR_PLAN_CLIENT]);
	}
	return rc;
}

/* Names of RDMA devices in --map and --spread become those of their network devices. */
static int rename_nics(
	const struct dr_topo *t, const char *text, char *buf, size_t len, struct dr_err *e)
{
	size_t at = 0;

	for (buf[0] = '\0'; *text && at < len;) {
		size_t n = strcspn(text, ",;=");
		const struct dr_topo_nic *nic;
		char name[DR_TOPO_NAME_MAX];

		snprintf(name, sizeof(name), "%.*s", (int)DR_MIN(n, sizeof(name) - 1), text);
		nic = dr_topo_find_nic(t, name);
		at += (size_t)snprintf(
			buf + at, len - at, "%s%.1s", nic ? nic->name : name, text + n);
		text += n + (text[n] != '\0');
	}
	return at < len ? 0 : dr_err_set(e, -EINVAL, "--map or --spread: too long");
}

static int make_map(struct dr_topo_view *v)
{
	const struct dr_options *o = v->opt;
	struct dr_plan *p = &v->plan;
	char text[2048];
	int rc = 0;

	if (o->map)
		rc = rename_nics(v->topo, o->map, text, sizeof(text), &v->err);
	if (rc == 0 && o->map)
		rc = dr_plan_parse_map(p, text, &v->err);
	if (rc == 0)
		rc = rename_nics(v->topo, o->spread, text, sizeof(text), &v->err);
	if (rc == 0)
		rc = dr_plan_parse_spread(p, text, &v->err);
	return rc ? rc : dr_plan_settle(p, &v->err);
}

/* What a run needs beside the map is set to something that it accepts. */
static int make_plan(struct dr_topo_view *v)
{
	struct dr_netdev_rail rails[DR_RAILS_MAX];
	struct dr_plan *p = &v->plan;
	int n, rc = find_gpus(v);

	if (rc)
		return rc;
	n = find_rails(v, rails);
	if (n < 0)
		return n;
	dr_plan_set_rails(p, DR_PLAN_CLIENT, rails, (unsigned)n);
	p->n_each = (unsigned)v->opt->channels;
	p->forward = true;
	p->window = 1;
	p->chunk_max = 1;
	p->heartbeat_ns = 10 * DR_NS_PER_MS;
	p->topo = v->topo;
	p->near_told = true;
	dr_plan_measure(p, DR_PLAN_CLIENT);
	rc = make_map(v);
	if (rc)
		p->n_rails = 0;
	return rc;
}

/* ---- for the view ---- */

int dr_topo_view_rail(const struct dr_topo_view *v, const struct dr_topo_nic *nic)
{
	for (unsigned i = 0; i < v->plan.n_rails; i++)
		if (!strncmp(v->plan.rail[i][DR_PLAN_CLIENT].name, nic->name, IFNAMSIZ - 1))
			return (int)i;
	return -1;
}

const char *dr_topo_view_why(const struct dr_topo_view *v, const struct dr_topo_nic *nic)
{
	const char *why = dr_topo_not_a_rail(nic, fastest(v->topo));

	if (dr_topo_view_rail(v, nic) >= 0)
		return "";
	if (why)
		return why;
	if (v->topo->live && !nic->n_addrs)
		return "no address";
	return v->opt->rails ? "not in --rails" : "not used";
}

unsigned dr_topo_view_alike(const struct dr_topo_view *v, unsigned position, unsigned c)
{
	struct dr_plan_map m = dr_plan_paths(&v->plan, position, c);
	unsigned n = 0;

	for (unsigned d = 0; d < v->plan.n_each; d++) {
		struct dr_plan_map other = dr_plan_paths(&v->plan, position, d);

		if (other.primary != m.primary || other.shadow != m.shadow)
			continue;
		if (d < c)
			return 0;
		n++;
	}
	return n;
}

/* ---- the command ---- */

static int write_json(const struct dr_topo_view *v, const char *path, struct dr_err *e)
{
	json_t *doc = dr_topo_view_json(v);
	size_t len = 0;
	char *text = NULL;
	FILE *mem = open_memstream(&text, &len);
	int rc = doc && mem ? dr_json_write(doc, mem, 2) : -ENOMEM;
	struct dr_file f;

	if (mem && fclose(mem))
		rc = -ENOMEM;
	if (rc)
		dr_err_set(e, rc, "out of memory");
	else if (!strcmp(path, "-"))
		rc = dr_stream_put(stdout, text, len, "standard output", e);
	else if (!(rc = dr_file_begin(&f, "--json", path, e)))
		rc = dr_file_commit(&f, text, len, e);
	free(text); /* lint-ok: open_memstream's */
	json_decref(doc);
	return rc;
}

static int show(const struct dr_topo_view *v)
{
	const char *path = v->opt->json_path;
	struct dr_err e = { 0 };

	if (v->topo && !v->opt->quiet)
		dr_topo_view_print(v, path && !strcmp(path, "-") ? stderr : stdout);
	if (v->status)
		fprintf(stderr, "dualrail: %s\n", v->err.text);
	if (!path || write_json(v, path, &e) == 0)
		return v->status;
	fprintf(stderr, "dualrail: %s\n", e.text);
	return v->status ? v->status : DR_EXIT_ENV;
}

int dr_topo_main(const struct dr_options *o)
{
	struct dr_topo_view *v = dr_calloc(1, sizeof(*v));
	int rc;

	if (!v) {
		fprintf(stderr, "dualrail: topo: out of memory\n");
		return DR_EXIT_ENV;
	}
	v->opt = o;
	rc = dr_affinity_look(o->topology, !o->topology, &v->topo, &v->err);
	if (rc == 0)
		rc = make_plan(v);
	v->status = rc == 0 ? 0 : rc == -EINVAL ? DR_EXIT_USAGE : DR_EXIT_ENV;
	rc = show(v);
	dr_topo_destroy(v->topo);
	dr_free(v);
	return rc;
}
