/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/doctor.h"

#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/doctor/ask.h"
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/peer.h"
#include "orchestrator/doctor/rdma.h"
#include "orchestrator/report/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The order of a visit: this process, this node, its NICs, then the other end. */
struct visit {
	const struct dr_options *opt;
	const char *root;
	struct dr_doctor_run run;
	struct dr_route route; /* to HOST; without one only `local` means something */
	bool named;	       /* --rails names them */
	unsigned n;
	struct dr_doctor_nic nic[DR_RAILS_MAX];
	struct dr_findings f;
	int status; /* what ended the visit early; 0 */
};

static void describe_run(const struct dr_options *o, struct dr_doctor_run *run)
{
	*run = (struct dr_doctor_run){ .verbs = strcmp(o->transport, "verbs") == 0,
		.server = !o->host,
		.gpus = DR_MAX((unsigned)o->gpus.n, 1u),
		.channels = (unsigned)o->channels,
		.window = (unsigned)o->window,
		.chunk_bytes = o->chunk,
		.sockbuf = o->sockbuf,
		.port = (unsigned)o->port,
		.gpu_top = dr_options_gpu_top(o) };
}

/* ---- rails ---- */

/* Returns false. An error that names no remedy gets this one. */
static bool stop(
	struct visit *v, int status, const char *check, const struct dr_err *e, const char *remedy)
{
	struct dr_finding *x = dr_findings_error(&v->f, DR_SEVERITY_FAIL, check, NULL, e);

	if (!x->remedy[0])
		dr_finding_remedy(x, "%s", remedy);
	v->status = status;
	return false;
}

/* --control ADDR or IF as the address that it stands for. */
static int control_address(const char *text, struct sockaddr_storage *out, struct dr_err *e)
{
	struct dr_netdev_rail one;
	int rc;

	if (dr_netdev_addr_parse(text, out) == 0)
		return 0;
	rc = dr_netdev_rails(text, NULL, &one, 1, e);
	if (rc < 0)
		return dr_err_set(e, rc,
			"--control: no device and no address \"%.60s\" here; see "
			"`ip address`",
			text);
	*out = one.addr;
	return 0;
}

/* Without HOST: the control connection is assumed where the default route leads. */
static void assume_control(struct visit *v)
{
	struct sockaddr_storage far;
	struct dr_netdev d;

	/* TEST-NET-1: no packet is sent. */
	if (dr_netdev_addr_parse("192.0.2.1", &far) ||
		dr_netdev_toward((const struct sockaddr *)&far, NULL, &d, NULL))
		return;
	for (unsigned i = 0; i < d.n_addrs; i++)
		if (d.addrs[i].addr.ss_family == AF_INET && d.addrs[i].global) {
			v->route.local = d.addrs[i].addr;
			dr_findings_add(&v->f, DR_SEVERITY_NOTE, "control", d.name,
				"taken for the control NIC, since the default route leaves there; HOST "
				"or --control says better");
			return;
		}
}

static bool find_route(struct visit *v)
{
	const struct dr_options *o = v->opt;
	struct dr_err e = { 0 };
	int rc = 0;

	if (o->host)
		rc = dr_route_to_host(o->host, &v->route, &e);
	if (rc)
		return stop(v,
			rc == -ENXIO || rc == -ENETUNREACH || rc == -EHOSTUNREACH ? DR_EXIT_PEER
										  : DR_EXIT_ENV,
			"peer", &e, "check the name, or use an address; ip route get ADDRESS");
	/* With HOST the control NIC is the one toward it, as for a client. */
	if (!o->host && o->control && control_address(o->control, &v->route.local, &e))
		return stop(v, DR_EXIT_ENV, "control", &e, "ip address");
	if (!o->host && !o->control && !v->named)
		assume_control(v);
	return true;
}

static bool find_rails(struct visit *v)
{
	const struct dr_options *o = v->opt;
	struct dr_netdev_rail rails[DR_RAILS_MAX];
	struct dr_plan names = { .n_gpus = 0 };
	struct dr_netdev d;
	struct dr_err e = { 0 };
	char list[1024];
	int n;

	snprintf(names.transport, sizeof(names.transport), "%s", o->transport);
	if (o->rails && !dr_kind_rename(&names, o->rails, list, sizeof(list)))
		return dr_err_set(&e, -EINVAL, "--rails: too long"),
		       stop(v, DR_EXIT_USAGE, "rails", &e, "name fewer");
	if (v->route.local.ss_family == AF_UNSPEC)
		n = dr_netdev_rails(o->rails ? list : NULL, NULL, rails, DR_RAILS_MAX, &e);
	else
		n = dr_route_rails(o->rails ? list : NULL, &v->route, rails, DR_RAILS_MAX, &e);
	if (n < 0)
		return stop(
			v, n == -EINVAL ? DR_EXIT_USAGE : DR_EXIT_ENV, "rails", &e, "ip address");
	v->n = (unsigned)n;
	for (unsigned i = 0; i < v->n; i++) {
		struct dr_doctor_nic *nic = &v->nic[i];

		nic->rail = rails[i];
		nic->hardware = dr_netdev_by_name(rails[i].ifname, &d, NULL) == 0 && !d.kind[0];
		nic->counted =
			!d.loopback && dr_netdev_counters(rails[i].ifindex, &nic->count, NULL) == 0;
	}
	return true;
}

/* ---- GPUs ---- */

static void find_gpus(struct visit *v, struct dr_options *o)
{
	struct dr_err e = { 0 };
	int rc = dr_options_resolve(o, &e);

	if (rc)
		stop(v, dr_options_exit(rc), "gpus", &e, "nvidia-smi -L shows what is there");
	else
		dr_findings_add(&v->f, DR_SEVERITY_OK, "gpus", NULL, "%zu GPU%s in %s memory",
			o->gpus.n, o->gpus.n == 1 ? "" : "s", o->cuda ? "CUDA" : "host");
	describe_run(o, &v->run);
}

/* ---- the checks, by subject ---- */

static void check_process(struct visit *v)
{
	dr_check_leftovers(NULL, v->opt->dry_run, &v->f);
	dr_check_memlock(v->root, &v->run, &v->f);
	dr_check_open_files(v->root, &v->run, v->n, &v->f);
	dr_check_processes(v->root, &v->run, &v->f);
	dr_check_capabilities(v->root, &v->f);
	dr_check_ports(v->root, &v->run, &v->f);
}

static void check_nics(struct visit *v)
{
	struct dr_netdev *devs;
	size_t n;

	dr_check_rail_count(v->nic, v->n, &v->f);
	for (unsigned i = 0; i < v->n; i++) {
		dr_check_link(&v->nic[i], &v->f);
		dr_check_duplex(v->root, &v->nic[i], &v->f);
		dr_check_counters(&v->nic[i], &v->f);
		dr_check_pci_nic(v->root, &v->nic[i], &v->f);
	}
	dr_check_speed(v->nic, v->n, &v->f);
	dr_check_mtu(v->nic, v->n, &v->f);
	dr_check_arp(v->root, v->nic, v->n, &v->f);
	if (!v->named && dr_netdev_list(&devs, &n, NULL) == 0) {
		dr_check_unused(devs, n, &v->f);
		dr_netdev_list_free(devs);
	}
}

static void check_node(struct visit *v)
{
	unsigned gpus = dr_check_pci_gpus(v->root, &v->f);
	bool rdma =
		dr_check_rdma(v->opt, v->run.verbs, v->named, v->nic, v->n, dr_kind_rdma, &v->f);

	dr_check_gpu_driver(v->root, gpus, &v->f);
	dr_check_gpu_rdma(v->root, &v->run, rdma, &v->f);
	dr_check_buffers(v->root, &v->run, v->nic, v->n, &v->f);
	dr_check_clock(v->root, &v->f);
	dr_check_governor(v->root, &v->f);
}

static void check_paths(struct visit *v, const struct dr_look *look)
{
	struct sockaddr_storage to[DR_RAILS_MAX];
	struct dr_doctor_end end[DR_RAILS_MAX];
	struct dr_pmtu got;

	dr_look_ends(look, v->nic, v->n, end);
	for (unsigned i = 0; i < v->n; i++)
		to[i] = end[i].addr;
	dr_check_routes(v->root, v->nic, v->n, to, dr_netdev_toward, &v->f);
	for (unsigned i = 0; i < v->n; i++) {
		if (to[i].ss_family == AF_UNSPEC || !v->nic[i].rail.running)
			continue;
		dr_pmtu_probe(&v->nic[i].rail, &end[i], &got);
		dr_check_pmtu(&v->nic[i], &end[i], &got, &v->f);
	}
}

static void check_other_end(struct visit *v)
{
	struct dr_look *look = dr_calloc(1, sizeof(*look));
	struct dr_err e = { 0 };
	char version[64] = "";
	int status;

	if (!look) {
		v->f.no_memory = true;
		return;
	}
	if (dr_doctor_ask(v->opt, &v->route, look, version, &status, &e)) {
		stop(v, status, "peer", &e, "dualrail server at the other end, -v for its log");
	} else {
		dr_findings_add(&v->f, DR_SEVERITY_OK, "peer", NULL,
			"server %s answers, version %s", v->opt->host, version);
		dr_check_peer(&v->run, v->opt->pair, v->nic, v->n, look, &v->f);
		if (!v->route.same_host)
			check_paths(v, look);
	}
	dr_free(look);
}

/* ---- result ---- */

static int status_of(const struct visit *v)
{
	if (v->status)
		return v->status;
	return v->f.no_memory || dr_findings_count(&v->f, DR_SEVERITY_FAIL) ? DR_EXIT_ENV : 0;
}

/* The document as text of open_memstream. */
static int render(const struct visit *v, int status, char **text, size_t *len)
{
	FILE *f = open_memstream(text, len);
	json_t *doc = dr_findings_json(&v->f, v->opt->host, status);
	int rc = f ? dr_json_write(doc, f, 2) : -ENOMEM;

	json_decref(doc);
	if (f && fclose(f) && rc == 0)
		rc = -ENOMEM;
	if (f && rc)
		free(*text); /* lint-ok: of open_memstream */
	return rc;
}

static int write_document(const struct visit *v, int status, struct dr_err *e)
{
	const char *path = v->opt->json_path;
	struct dr_file file;
	size_t len = 0;
	char *text;
	int rc = render(v, status, &text, &len);

	if (rc)
		return dr_err_set(e, rc, "cannot write --json: out of memory");
	if (strcmp(path, "-") == 0) {
		rc = dr_stream_put(stdout, text, len, "standard output", e);
	} else {
		rc = dr_file_begin(&file, "--json", path, e);
		if (rc == 0)
			rc = dr_file_commit(&file, text, len, e);
	}
	free(text); /* lint-ok: of open_memstream */
	return rc;
}

static int report(struct visit *v)
{
	const char *path = v->opt->json_path;
	int status = status_of(v);
	struct dr_err e = { 0 };
	FILE *people = path && strcmp(path, "-") == 0 ? stderr : stdout;

	dr_findings_print(&v->f, status, v->opt->quiet, people);
	if (path && write_document(v, status, &e)) {
		fprintf(stderr, "dualrail: %s\n", e.text);
		return status ? status : DR_EXIT_ENV;
	}
	return status;
}

int dr_doctor_main(struct dr_options *o)
{
	struct visit *v;
	struct dr_err e = { 0 };
	int rc;

	if (o->json_path && strcmp(o->json_path, "-") != 0 &&
		dr_file_probe("--json", o->json_path, &e)) {
		fprintf(stderr, "dualrail: %s\n", e.text);
		return DR_EXIT_ENV;
	}
	v = dr_calloc(1, sizeof(*v));
	if (!v) {
		fprintf(stderr, "dualrail: doctor: out of memory\n");
		return DR_EXIT_ENV;
	}
	v->opt = o;
	v->root = "";
	v->named = o->rails && strcmp(o->rails, "auto") != 0;
	find_gpus(v, o);
	if (find_route(v) && find_rails(v))
		check_nics(v);
	check_process(v);
	check_node(v);
	if (!o->host)
		dr_check_routes(v->root, v->nic, v->n, NULL, dr_netdev_toward, &v->f);
	else if (!v->status)
		check_other_end(v);
	rc = report(v);
	dr_findings_fini(&v->f);
	dr_free(v);
	return rc;
}
