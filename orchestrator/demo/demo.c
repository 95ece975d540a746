/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/demo/demo.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "bootstrap/ports.h"
#include "orchestrator/demo/lab.h"
#include "orchestrator/fault/options.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The server runs in a child process, the client in this one. The child ends after its one client, and the kernel
 * kills it if this process dies. The namespaces have no name and vanish with the last descriptor and process.
 */

#define LOOPBACK_CONTROL "127.0.0.3"
enum { END_MS = 3000 };

static int server_process(void *p)
{
	struct dr_options *o = p;
	struct dr_output_options oo = { .quiet = true };
	struct dr_record *rec;
	struct dr_output *out;
	FILE *none = fopen("/dev/null", "w");

	if (!none)
		return DR_EXIT_ENV;
	dr_log_set_prefix("server");
	oo.out = oo.err = none;
	o->command = DR_CMDBIT_SERVER;
	o->one_off = o->trusted = true;
	o->quiet = o->verbose == 0;
	o->json_path = o->metrics_listen = NULL;
	/* The client reports errors of --gpus. */
	if (dr_options_resolve(o, NULL) || dr_record_create(&rec))
		return DR_EXIT_ENV;
	int rc = dr_output_open(&oo, &out, NULL);
	if (rc == 0) {
		rc = dr_server_main(o, rec, out);
		dr_output_close(out);
	}
	dr_record_destroy(rec);
	fclose(none);
	return rc;
}

static int fail(struct dr_record *rec, struct dr_output *out, const struct dr_err *e)
{
	dr_record_error(rec, DR_EXIT_ENV, e);
	return dr_output_finish(out, rec, NULL);
}

/* The server ends after its client. After the deadline it is terminated, then killed. */
static void reap(pid_t pid)
{
	struct pollfd pfd = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

	for (int i = 0; i < 2 && (pfd.fd < 0 || poll(&pfd, 1, END_MS) != 1); i++)
		kill(pid, i ? SIGKILL : SIGTERM);
	waitpid(pid, NULL, 0);
	if (pfd.fd >= 0)
		close(pfd.fd);
}

/* ---- ports and faults ---- */

/* The GPUs are resolved after the fork, so every possible number needs a free port. */
static int find_ports(struct dr_options *o, struct dr_ports *p, struct dr_err *e)
{
	struct dr_rng rng;
	int rc;

	dr_rng_seed(&rng, (uint64_t)dr_now_ns() ^ (uint64_t)getpid());
	/* Below the ports that the kernel gives to clients by default. */
	rc = dr_ports_claim(p, 20000 + (unsigned)dr_rng_below(&rng, 12000), DR_OPTIONS_GPUS_MAX, e);
	o->port = p->first;
	return rc;
}

static int add_faults(struct dr_options *o, bool lab, struct dr_err *e)
{
	static const char *const spec[2][2] = {
		{ "close:path=0,at=300ms,for=100ms,repeat=20,every=500ms", NULL },
		{ "link-down:path=0,at=300ms,for=300ms,repeat=10,every=500ms",
			"blackhole:path=0,at=300ms,for=300ms,repeat=10,every=500ms" },
	};
	struct dr_fault_list *l = &o->faults->list;
	int rc = 0;

	o->faults->allow = true;
	if (!o->test.failover || l->n || o->links < 2)
		return 0;
	for (int i = 0; i < 2 && spec[lab][i] && rc == 0; i++)
		rc = dr_fault_spec_parse(spec[lab][i], &l->v[l->n++], e);
	return rc;
}

/* Start the server, run the client in this process, end the server. lab NULL: over loopback. */
static int run_ends(
	struct dr_options *o, struct dr_lab *lab, struct dr_record *rec, struct dr_output *out)
{
	struct dr_err e;
	pid_t pid = dr_lab_run(lab, 1, server_process, o, &e);
	int rc = pid < 0 ? (int)pid : 0;

	if (rc == 0 && lab)
		rc = dr_lab_enter(lab, 0, &e);
	if (lab)
		dr_lab_destroy(lab);
	rc = rc ? fail(rec, out, &e) : dr_session_main(o, rec, out);
	if (pid > 0)
		reap(pid);
	return rc;
}

static int in_lab(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_lab lab;
	struct dr_err e;
	char host[32];

	if (dr_lab_create((unsigned)o->links, 0, &lab, &e))
		return fail(rec, out, &e);
	if (!o->quiet)
		fprintf(dr_output_tables(out),
			"demo: two network namespaces connected by %u links\n", lab.n_links);
	dr_lab_address(&lab, 1, lab.n_links, host, sizeof(host));
	o->host = host;
	return run_ends(o, &lab, rec, out);
}

int dr_demo_main(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_err e = { 0 }, why = { 0 };
	bool lab = dr_lab_supported(&why) == 0;
	struct dr_ports ports;
	int rc;

	if (add_faults(o, lab, &e))
		return fail(rec, out, &e);
	/* With what the demo has added. */
	dr_record_set_options(rec, dr_opts_to_json(o->table, o->command));
	if (lab)
		return in_lab(o, rec, out);
	if (!o->quiet)
		fprintf(dr_output_tables(out),
			"demo over loopback (%s)\nnot shown: link failures and packet loss; connections are "
			"closed instead\n",
			why.text);
	if (find_ports(o, &ports, &e))
		return fail(rec, out, &e);
	o->host = o->control = LOOPBACK_CONTROL;
	rc = run_ends(o, NULL, rec, out);
	dr_ports_release(&ports);
	return rc;
}
