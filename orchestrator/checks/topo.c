/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/topo.h"

#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/plan/affinity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LOGICAL_GPUS = 8 }; /* in host memory, where there is no GPU */

/* ---- rails ---- */

/* Replace names of RDMA devices in --rails, --map and --spread by those of their network devices.
 * */
static int rename_nics(
	const struct dr_topo *t, const char *text, char *buf, size_t len, struct dr_err *e)
{
	size_t at = 0;

	for (buf[0] = '\0'; *text && at < len;) {
		size_t n = strcspn(text, ",;=");
		char name[DR_TOPO_NAME_MAX];

		snprintf(name, sizeof(name), "%.*s", (int)DR_MIN(n, sizeof(name) - 1), text);
		const struct dr_topo_nic *nic = dr_topo_find_nic(t, name);
		at += (size_t)snprintf(
			buf + at, len - at, "%s%.1s", nic ? nic->name : name, text + n);
		text += n + (text[n] != '\0');
	}
	return at < len ? 0 : dr_err_set(e, -EINVAL, "--rails, --map or --spread: too long");
}

static int read_devices(struct dr_topo_view *v)
{
	if (v->topo->live)
		return dr_netdev_choice_read(&v->from, &v->devs, &v->err);
	v->devs = dr_calloc(v->topo->n_nics + 1, sizeof(*v->devs));
	if (!v->devs)
		return dr_err_set(&v->err, -ENOMEM, "topology: out of memory");
	dr_topo_netdevs(v->topo, v->devs);
	v->from.devs = v->devs;
	v->from.n_devs = v->topo->n_nics;
	return 0;
}

/* Names of RDMA devices are those of their network devices. A run also accepts addresses. */
static int find_rails(struct dr_topo_view *v, struct dr_netdev_rail *out)
{
	char list[1024];
	int rc = v->opt->rails ? rename_nics(v->topo, v->opt->rails, list, sizeof(list), &v->err)
			       : 0;

	if (rc)
		return rc;
	v->from.list = v->opt->rails ? list : NULL;
	rc = dr_netdev_choose(&v->from, out, DR_NICS_MAX, &v->err);
	v->from.list = NULL;
	if (rc == -ENODEV && !v->topo->live && !v->opt->rails)
		return dr_err_set(&v->err, -ENODEV,
			"no NIC of %s can be used as a rail (see the table); select NICs with --rails",
			v->topo->source);
	return rc;
}

/* ---- plan ---- */

/* Numbers as in a run: CUDA ordinals if CUDA reports GPUs, else the order of bus ids. */
static int gpu_named(struct dr_topo_view *v, unsigned i, unsigned *out)
{
	const struct dr_gpu_names *names = &v->opt->gpu_names;
	struct dr_gpu_info list[DR_PLAN_GPUS_MAX] = { 0 };
	unsigned n = DR_MIN(v->topo->n_gpus, (unsigned)DR_PLAN_GPUS_MAX);

	if (dr_gpu_name_number(names->v[i], out) && !n)
		return dr_gpu_emulated(*out, "without a GPU in the topology", &v->err);
	for (unsigned g = 0; g < n; g++) {
		list[g].ordinal = g;
		memcpy(list[g].bus_id, v->topo->gpu[g].bus_id, sizeof(list[g].bus_id));
	}
	int found = dr_gpu_find(list, n, names->v[i], &v->err);
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
		return dr_err_set(&v->err, -EINVAL,
			"%u GPUs: select at most %d of them with --gpus", p->n_gpus,
			DR_PLAN_GPUS_MAX);
	for (unsigned k = 0; k < p->n_gpus && rc == 0; k++) {
		p->gpu[k][DR_PLAN_CLIENT] = k;
		if (named)
			rc = gpu_named(v, k, &p->gpu[k][DR_PLAN_CLIENT]);
	}
	return rc;
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

/* As a run with this transport and these rails would open them. */
static void probe_transports(struct dr_topo_view *v, const struct dr_netdev_rail *rails, unsigned n)
{
	const struct dr_transport_kind *k;

	for (size_t i = 0; v->topo->live && (k = dr_transport_kind_at(i)) != NULL; i++) {
		struct dr_topo_transport *t = &v->transport[i];
		union dr_kind_params params;

		dr_options_params(v->opt, k, &params);
		for (unsigned r = 0; r < n; r++) {
			struct dr_rail_params rp = {
				.index = r, .ifname = rails[r].ifname, .local = rails[r].addr
			};
			struct dr_err e = { 0 };

			t->usable[r] = !k->probe || k->probe(&rp, &params, NULL, &e) == 0;
			if (!t->usable[r] && !t->err.code)
				t->err = e;
		}
	}
}

/* Parameters that do not affect the map get valid values. */
static int make_plan(struct dr_topo_view *v)
{
	struct dr_netdev_rail rails[DR_NICS_MAX];
	struct dr_plan *p = &v->plan;
	int rc = find_gpus(v);

	if (rc)
		return rc;
	int n = find_rails(v, rails);
	if (n < 0)
		return n;
	n = DR_MIN((int)dr_netdev_firsts(rails, (unsigned)n), (int)DR_RAILS_MAX);
	dr_plan_set_rails(p, rails, (unsigned)n);
	probe_transports(v, rails, (unsigned)n);
	p->n_each = (unsigned)v->opt->channels;
	p->forward = true;
	p->window = 1;
	p->chunk_max = 1;
	p->heartbeat_ns = 10 * DR_NS_PER_MS;
	p->topo = v->topo;
	dr_plan_measure(p, DR_PLAN_CLIENT);
	rc = make_map(v);
	if (rc)
		p->n_rails = 0;
	return rc;
}

/* ---- the command ---- */

int dr_topo_main(const struct dr_options *o)
{
	FILE *tables = o->json_path && !strcmp(o->json_path, "-") ? dr_log_tables() : stdout;
	struct dr_topo_view v = { .opt = o };
	int rc = dr_affinity_look(o->topology, !o->topology, &v.topo, &v.err);

	if (rc == 0)
		rc = read_devices(&v);
	if (rc == 0)
		rc = make_plan(&v);
	v.status = rc == 0 ? 0 : rc == -EINVAL ? DR_EXIT_USAGE : DR_EXIT_ENV;
	json_t *doc = dr_topo_view_json(&v);
	if (v.topo && !o->quiet)
		dr_topo_view_print(&v, doc, tables);
	if (v.status)
		dr_complain("%s", v.err.text);
	rc = dr_json_output(o->json_path, doc, v.status);
	dr_topo_destroy(v.topo);
	dr_netdev_list_free(v.devs);
	return rc;
}
