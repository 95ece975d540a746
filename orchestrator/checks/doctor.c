/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "orchestrator/checks/peer.h"
#include "orchestrator/fault/options.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/session/offer.h"
#include "orchestrator/session/session.h"

#include <errno.h>
#include <string.h>

/* One run of doctor: this process, this machine, its NICs, then the other end. */
struct visit {
	struct dr_doctor d;
	const struct dr_options *opt;
	struct dr_route route; /* to HOST; without HOST only `local` is valid */
	int status;	       /* exit status if it ended early; 0: it did not */
};

/* ---- rails ---- */

/* Returns false. remedy: for errors that name none. */
static bool stop(
	struct visit *v, int status, const char *check, const struct dr_err *e, const char *remedy)
{
	struct dr_finding *x = dr_findings_error(&v->d.f, DR_SEVERITY_FAIL, check, NULL, e);

	if (!x->remedy[0])
		dr_text_copy(x->remedy, sizeof(x->remedy), remedy);
	v->status = status;
	return false;
}

/* The control NIC is the one on the route to HOST, as for a client, or of --control. */
static bool find_route(struct visit *v)
{
	const struct dr_options *o = v->opt;
	struct dr_err e = { 0 };
	int rc = o->host || o->control ? dr_rails_route(o, o->host, &v->route, &e) : 0;

	if (rc && !o->host)
		return stop(v, DR_EXIT_ENV, "control", &e, "ip address");
	if (rc)
		return stop(v,
			rc == -ENXIO || rc == -ENETUNREACH || rc == -EHOSTUNREACH ? DR_EXIT_PEER
										  : DR_EXIT_ENV,
			"peer", &e, "check the name, or use an address; ip route get ADDRESS");
	return true;
}

static bool find_rails(struct visit *v)
{
	const struct dr_options *o = v->opt;
	struct dr_netdev_rail rails[DR_NICS_MAX];
	struct dr_netdev d;
	struct dr_err e = { 0 };
	char list[1024];

	if (o->rails && !dr_rails_rename(v->d.run.kind, o->rails, list, sizeof(list), NULL))
		return dr_err_set(&e, -EINVAL, "--rails: too long"),
		       stop(v, DR_EXIT_USAGE, "rails", &e, "name fewer NICs");
	int n = dr_route_rails(o->rails ? list : NULL, &v->route, rails, DR_NICS_MAX, &e);
	if (n < 0)
		return stop(
			v, n == -EINVAL ? DR_EXIT_USAGE : DR_EXIT_ENV, "rails", &e, "ip address");
	v->d.n = DR_MIN(dr_netdev_firsts(rails, (unsigned)n), (unsigned)DR_RAILS_MAX);
	for (unsigned i = 0; i < v->d.n; i++) {
		struct dr_doctor_nic *nic = &v->d.nic[i];

		nic->rail = rails[i];
		nic->hardware = dr_netdev_by_name(rails[i].ifname, &d, NULL) == 0 && !d.kind[0];
	}
	return true;
}

/* ---- GPUs ---- */

static void find_gpus(struct visit *v, struct dr_options *o)
{
	struct dr_err e = { 0 };
	int rc = dr_options_resolve(o, &e);

	if (rc)
		stop(v, dr_options_exit(rc), "gpus", &e, "nvidia-smi -L lists the GPUs");
	else
		dr_find_ok(&v->d, "gpus", NULL, "%zu GPU%s with %s memory", o->gpus.n,
			o->gpus.n == 1 ? "" : "s", o->cuda ? "GPU" : "host");
	v->d.run = (struct dr_doctor_run){ .kind = dr_transport_kind(o->transport),
		.server = !o->host,
		.pair = o->gpu_names.n == 0,
		.gpus = DR_MAX((unsigned)o->gpus.n, 1u),
		.channels = (unsigned)o->channels,
		.window = (unsigned)o->window,
		.chunk_bytes = o->chunk,
		.sockbuf = o->sockbuf,
		.port = (unsigned)o->port,
		.gpu_top = dr_options_gpu_top(o) };
}

/* ---- checks by subject ---- */

static void check_nics(struct dr_doctor *d)
{
	struct dr_netdev *devs;
	size_t n;

	dr_check_rail_count(d);
	for (unsigned i = 0; i < d->n; i++) {
		dr_check_link(d, &d->nic[i]);
		dr_check_pci_nic(d, &d->nic[i]);
	}
	dr_check_speed(d);
	dr_check_mtu(d);
	dr_check_arp(d);
	if (!d->named && dr_netdev_list(&devs, &n, NULL) == 0) {
		dr_check_unused(d, devs, n);
		dr_netdev_list_free(devs);
	}
}

static void check_transports(struct visit *v)
{
	const struct dr_transport_kind *k;

	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++) {
		union dr_kind_params params;

		if (k->argument && k != v->d.run.kind)
			continue; /* nothing was named that could be checked */
		dr_options_params(v->opt, k, &params);
		v->d.bypass |= dr_check_transport(&v->d, k, &params) && k->bypass;
	}
}

static void check_machine(struct visit *v)
{
	static void (*const before[])(struct dr_doctor * d) = { dr_check_leftovers,
		dr_check_memlock, dr_check_open_files, dr_check_cpu_quota, dr_check_capabilities,
		dr_check_ports, dr_check_pci_gpus };
	static void (*const after[])(struct dr_doctor * d) = { dr_check_gpu_driver,
		dr_check_gpu_rdma, dr_check_buffers, dr_check_clock, dr_check_governor };

	for (size_t i = 0; i < DR_ARRAY_LEN(before); i++)
		before[i](&v->d);
	check_transports(v);
	for (size_t i = 0; i < DR_ARRAY_LEN(after); i++)
		after[i](&v->d);
}

static void check_paths(struct dr_doctor *d, const struct dr_probe *probe)
{
	for (unsigned i = 0; i < d->n; i++) {
		int rail = dr_doctor_rail(&probe->plan, DR_PLAN_CLIENT, d->nic[i].rail.ifname);

		if (rail < 0 || !d->nic[i].rail.running)
			continue;
		dr_check_path_mtu(d, probe, (unsigned)rail);
	}
}

static void check_settings(struct dr_doctor *d, const struct dr_probe *probe)
{
	struct dr_settings own;

	dr_settings_read(d->root, &own);
	for (unsigned i = 0; i < d->n; i++)
		dr_settings_read_nic(d->nic[i].rail.ifname, &own.nic[i]);
	dr_check_peer_settings(d, &own, probe);
}

static void check_answers(struct visit *v, const struct dr_probe *probe)
{
	dr_find_ok(
		&v->d, "peer", NULL, "server %s answers, version %s", v->opt->host, probe->version);
	dr_check_peer(&v->d, probe);
	check_settings(&v->d, probe);
	if (!v->route.same_host)
		check_paths(&v->d, probe);
}

static void check_other_end(struct visit *v, const struct dr_rights *r)
{
	const struct dr_options *o = v->opt;
	struct dr_loop loop;
	struct dr_probe probe = { .opt = o,
		.rights = o->run_as.name[0] ? r : NULL,
		.loop = &loop,
		.patience_ns = o->connect_timeout_ns,
		.wait_busy = o->command == DR_CMDBIT_PREFLIGHT, /* as the client after it */
		.status = DR_EXIT_ENV };
	struct dr_err e = { 0 };
	int rc = dr_loop_init(&loop, &e);

	if (rc == 0) {
		rc = dr_client_plan(o, &v->route, NULL, NULL, &probe.plan, &e);
		if (rc == 0)
			rc = dr_probe_run(&probe, &e);
		else if (rc == -EINVAL)
			probe.status = DR_EXIT_USAGE;
	}
	if (rc)
		stop(v, probe.status, "peer", &e,
			"start dualrail server at the other end; -v prints its log");
	else
		check_answers(v, &probe);
	dr_probe_close(&probe);
	dr_loop_fini(&loop);
}

/* ---- result ---- */

static int status_of(const struct visit *v)
{
	if (v->status)
		return v->status;
	return v->d.f.no_memory || dr_findings_count(&v->d.f, DR_SEVERITY_FAIL) ? DR_EXIT_ENV : 0;
}

static int report(const struct visit *v)
{
	const char *path = v->opt->json_path;
	int status = status_of(v);

	dr_findings_print(&v->d.f, status, v->opt->quiet,
		path && strcmp(path, "-") == 0 ? dr_log_tables() : stdout);
	return dr_json_output(path, dr_findings_json(&v->d.f, v->opt->host, status), status);
}

static void check_all(struct visit *v, struct dr_options *o, struct dr_output *out)
{
	struct dr_rights r = { .opt = o, .out = out };
	/* The run of preflight is --user by then, so it reads the key by a descriptor. */
	static char key[32];

	find_gpus(v, o);
	if (find_route(v) && find_rails(v))
		check_nics(&v->d);
	check_machine(v);
	if (!o->host || v->status)
		return;
	int fd = o->run_as.name[0] && o->key_file ? dr_file_open(o->key_file, NULL) : -1;
	dr_rights_restrict(&r);
	check_other_end(v, &r);
	snprintf(key, sizeof(key), "/dev/fd/%d", fd);
	o->key_file = fd >= 0 ? key : o->key_file;
}

static struct visit visit(const struct dr_options *o)
{
	return (struct visit){ .opt = o,
		.d = { .root = "",
			.dry_run = o->dry_run,
			.faults = { .execs = o->faults ? &o->faults->execs : NULL },
			.named = o->rails && strcmp(o->rails, "auto") != 0 } };
}

int dr_doctor_check(
	struct dr_options *o, struct dr_output *out, struct dr_findings *found, bool *stops)
{
	struct visit v = visit(o);

	check_all(&v, o, out);
	*found = v.d.f;
	*stops = v.status != 0;
	return status_of(&v);
}

int dr_doctor_main(struct dr_options *o)
{
	struct visit v = visit(o);
	struct dr_err e;

	if (o->json_path && strcmp(o->json_path, "-") != 0 &&
		dr_file_probe("--json", o->json_path, &e)) {
		dr_complain("%s", e.text);
		return DR_EXIT_ENV;
	}
	if (o->repair && o->host) {
		dr_complain("--repair acts on this machine; give no HOST");
		return DR_EXIT_USAGE;
	}
	if (o->repair)
		dr_check_leftovers(&v.d);
	else
		check_all(&v, o, NULL);
	int rc = report(&v);
	dr_findings_fini(&v.d.f);
	return rc;
}
