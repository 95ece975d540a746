/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/demo.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "orchestrator/lab/lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The server runs in a child, the client in this process, so that the child is what has to be
 * cleaned up: it ends after its one client, and dies with this process in any case. The namespaces
 * have no name; they go with the last descriptor and process.
 */

#define LOOPBACK_CONTROL "127.0.0.3"
#define END_NS (3 * DR_NS_PER_S)

struct server_arg {
	struct dr_options opt;
	pid_t parent;
};

/* ---- the server's process ---- */

static int server_process(void *p)
{
	struct server_arg *a = p;
	struct dr_output_options oo = { .quiet = true };
	struct dr_record *rec;
	struct dr_output *out;
	FILE *none = fopen("/dev/null", "w");
	int rc;

	/* The parent may have gone before the death signal was asked for. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != a->parent || !none)
		return DR_EXIT_ENV;
	dr_log_set_prefix("server");
	oo.out = oo.err = none;
	/* What is wrong with the GPUs the client says. */
	if (dr_options_resolve(&a->opt, NULL) || dr_record_create(&rec))
		return DR_EXIT_ENV;
	rc = dr_output_open(&oo, &out, NULL);
	if (rc == 0) {
		rc = dr_server_main(&a->opt, rec, out);
		dr_output_close(out);
	}
	dr_record_destroy(rec);
	fclose(none);
	return rc;
}

static void server_options(const struct dr_options *o, struct dr_options *s)
{
	*s = *o;
	s->command = DR_CMDBIT_SERVER;
	s->one_off = true;
	s->trusted = true;
	s->quiet = o->verbose == 0;
	s->json_path = s->csv_path = s->prom_path = s->metrics_listen = NULL;
}

/* In this process, once the server has one of its own. */
static int client(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_err e = { 0 };
	int rc = dr_options_resolve(o, &e);

	if (rc == 0)
		return dr_client_main(o, rec, out);
	fprintf(stderr, "dualrail: %s\n", e.text);
	dr_record_error(rec, dr_options_exit(rc), &e);
	return dr_output_finish(out, rec, NULL);
}

static pid_t fork_server(struct server_arg *a, struct dr_err *e)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(server_process(a));
	if (pid < 0)
		return dr_err_set(e, -errno, "fork: %s", strerror(errno));
	return pid;
}

/* The server ends by itself when its client is done; past the deadline it is made to. */
static void reap(pid_t pid)
{
	int64_t deadline = dr_now_ns() + END_NS;
	struct pollfd pfd = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	bool asked = false;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		int64_t left = deadline - dr_now_ns();

		if (left <= 0 || pfd.fd < 0) {
			kill(pid, asked || pfd.fd < 0 ? SIGKILL : SIGTERM);
			deadline = dr_now_ns() + END_NS;
			asked = true;
			continue;
		}
		poll(&pfd, 1, (int)(left / DR_NS_PER_MS) + 1);
	}
	if (pfd.fd >= 0)
		close(pfd.fd);
}

/* ---- where ---- */

static bool port_is_free(unsigned port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool is_free;

	inet_pton(AF_INET, LOOPBACK_CONTROL, &sa.sin_addr);
	is_free = fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0;
	if (fd >= 0)
		close(fd);
	return is_free;
}

/* What --gpus comes to is found out after the fork: a port for each number that it may be. */
static bool block_is_free(unsigned base, const struct dr_opt_list *gpus)
{
	bool is_free = true;

	for (unsigned i = 0; i < DR_OPTIONS_GPUS_MAX && is_free; i++)
		is_free = port_is_free(base + i);
	for (size_t i = 0; i < gpus->n && is_free; i++)
		is_free = gpus->v[i] < DR_OPTIONS_GPUS_MAX || port_is_free(base + gpus->v[i]);
	return is_free;
}

static int find_ports(struct dr_options *o, struct dr_err *e)
{
	unsigned top = DR_MAX(dr_options_gpu_top(o), (unsigned)DR_OPTIONS_GPUS_MAX);
	struct dr_rng rng;

	dr_rng_seed(&rng, (uint64_t)dr_now_ns() ^ (uint64_t)getpid());
	for (int i = 0; i < 100 && top < 10000; i++) {
		unsigned base = 20000 + (unsigned)dr_rng_below(&rng, 30000);

		if (base + top <= 65535 && block_is_free(base, &o->gpus)) {
			o->port = base;
			return 0;
		}
	}
	return dr_err_set(e, -EADDRINUSE, "no free ports on %s", LOOPBACK_CONTROL);
}

static int add_faults(struct dr_options *o, bool lab, struct dr_err *e)
{
	static const char *const spec[2][2] = {
		{ "close:path=0,at=300ms,for=100ms,repeat=20,every=500ms", NULL },
		{ "link-down:path=0,at=300ms,for=300ms,repeat=10,every=500ms",
			"blackhole:path=0,at=300ms,for=300ms,repeat=10,every=500ms" },
	};
	int rc = 0;

	o->allow_faults = true;
	if (!o->test.failover || o->faults.n || o->links < 2)
		return 0;
	for (int i = 0; i < 2 && spec[lab][i] && rc == 0; i++)
		rc = dr_fault_spec_parse(spec[lab][i], &o->faults.v[o->faults.n++], e);
	return rc;
}

static int in_lab(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct server_arg a;
	struct dr_lab lab;
	struct dr_err e;
	char host[32];
	pid_t pid;
	int rc = dr_lab_create((unsigned)o->links, 0, &lab, &e);

	if (rc) {
		dr_record_error(rec, DR_EXIT_ENV, &e);
		return dr_output_finish(out, rec, NULL);
	}
	fprintf(dr_output_tables(out), "demo: two network namespaces, %u links between them\n",
		(unsigned)o->links);
	dr_lab_address(&lab, 1, lab.n_links, host, sizeof(host));
	o->host = host;
	a.parent = getpid();
	server_options(o, &a.opt);
	pid = dr_lab_run(&lab, 1, server_process, &a, &e);
	rc = pid < 0 ? (int)pid : dr_lab_enter(&lab, 0, &e);
	dr_lab_destroy(&lab);
	if (rc == 0) {
		rc = client(o, rec, out);
	} else {
		dr_record_error(rec, DR_EXIT_ENV, &e);
		rc = dr_output_finish(out, rec, NULL);
	}
	if (pid > 0)
		reap(pid);
	return rc;
}

static int on_loopback(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct server_arg a;
	struct dr_err e;
	pid_t pid = -1;
	int rc = find_ports(o, &e);

	if (rc == 0) {
		o->host = o->control = LOOPBACK_CONTROL;
		a.parent = getpid();
		server_options(o, &a.opt);
		pid = fork_server(&a, &e);
		rc = pid < 0 ? (int)pid : 0;
	}
	if (rc == 0) {
		rc = client(o, rec, out);
	} else {
		dr_record_error(rec, DR_EXIT_ENV, &e);
		rc = dr_output_finish(out, rec, NULL);
	}
	if (pid > 0)
		reap(pid);
	return rc;
}

int dr_demo_main(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_err e = { 0 }, why = { 0 };
	bool lab = dr_lab_supported(&why) == 0;
	int rc = add_faults(o, lab, &e);

	if (rc) {
		dr_record_error(rec, DR_EXIT_ENV, &e);
		return dr_output_finish(out, rec, NULL);
	}
	if (lab)
		return in_lab(o, rec, out);
	fprintf(dr_output_tables(out),
		"demo over the loopback (%s)\nleft out: links that are cut, packets that vanish; "
		"connections are closed instead\n",
		why.text);
	return on_loopback(o, rec, out);
}
