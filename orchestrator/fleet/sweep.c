/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/sweep.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/units.h"
#include "orchestrator/fleet/agent.h"
#include "orchestrator/fleet/confirm.h"
#include "orchestrator/fleet/document.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/fleet/place.h"
#include "orchestrator/fleet/progress.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/output/record.h"
#include "orchestrator/session/session.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * One loop for all of a node: the agent, and either the coordinator (rank 0) or the connection to it. A signal ends the
 * sweep; rank 0 then judges and writes what is there.
 */
struct sweep {
	struct dr_options *o;
	const char *run_id;
	char *hosts; /* text of --hostfile */
	struct dr_place place;
	struct dr_loop loop;
	struct dr_boot_key key;
	struct dr_sweep_agent agent;
	struct dr_hub *hub; /* rank 0 */
	struct dr_sweep_progress progress;
	struct dr_member member;
	json_t *offer;
	bool ended; /* member: the coordinator said so */
	int64_t begin_ns, begin_wall_ns, partial_ns;
	int status;
};

static const struct dr_pattern_ops *const patterns[] = { &dr_pattern_all_pairs, &dr_pattern_ring,
	&dr_pattern_bisection, &dr_pattern_one_to_all, &dr_pattern_random };

static const int64_t END_NS = 5 * DR_NS_PER_S, PARTIAL_NS = 30 * DR_NS_PER_S,
		     TERMINAL_NS = 5 * DR_NS_PER_S;

/* ---- place ---- */

static const char *env(void *arg, const char *name)
{
	(void)arg;
	return getenv(name);
}

/* The name of this host with its domain, if that is known: of a pod, its headless service. */
static void host_name(char *buf, size_t len)
{
	struct addrinfo hints = { .ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM }, *ai;
	const char *pod = getenv("HOSTNAME");

	(void)!gethostname(buf, len - 1);
	buf[len - 1] = '\0';
	if (!getenv("JOB_COMPLETION_INDEX"))
		return;
	/* With hostNetwork the host's name is that of the node; Kubernetes still sets the pod's. */
	if (pod && *pod && strchr(buf, '.') == NULL)
		snprintf(buf, len, "%s", pod);
	if (getaddrinfo(buf, NULL, &hints, &ai) == 0) {
		if (ai->ai_canonname && strchr(ai->ai_canonname, '.'))
			snprintf(buf, len, "%s", ai->ai_canonname);
		freeaddrinfo(ai);
	}
}

static bool is_own(void *arg, const char *name)
{
	struct dr_addr a[DR_ADDRS_MAX];
	char host[256] = "";
	struct dr_err e;
	unsigned n = 0;

	(void)arg;
	(void)!gethostname(host, sizeof(host) - 1);
	if (strcmp(host, name) == 0)
		return true;
	if (dr_addr_resolve(name, a, DR_ADDRS_MAX, &n, &e))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (dr_addr_is_local(&a[i]))
			return true;
	return false;
}

static int read_hosts(const char *path, char **out, struct dr_err *e)
{
	enum { BYTES_MAX = 8 << 20 };
	size_t len = 0;
	int rc = dr_file_text(path, BYTES_MAX, out, &len, e);

	if (rc == 0 && strlen(*out) != len)
		rc = dr_err_set(e, -EINVAL, "it has a 0 byte; give a text file, one node a line");
	return rc ? dr_err_prefix(e, "--hostfile %.80s", path) : 0;
}

static int find_place(struct sweep *s, struct dr_err *e)
{
	const struct dr_options *o = s->o;
	char host[256];
	struct dr_place_inputs in = {
		.rank = dr_opts_given(o->table, "rank") ? (int64_t)o->rank : -1,
		.nodes = dr_opts_given(o->table, "nodes") ? (int64_t)o->nodes : -1,
		.coordinator = o->coordinator,
		.port = (uint16_t)o->port,
		.env = env,
		.hostname = host,
	};
	int rc;

	if (!o->hostfile) {
		host_name(host, sizeof(host));
		return dr_place_find(&in, &s->place, e);
	}
	rc = dr_place_hostfile(&in, s->hosts, is_own, &s->place, e);
	return rc ? dr_err_prefix(e, "--hostfile %.80s", o->hostfile) : 0;
}

/* ---- rank 0 ---- */

static struct dr_sweep_judge judge_of(const struct sweep *s)
{
	return (struct dr_sweep_judge){ .node = s->hub->node,
		.nodes = s->place.nodes,
		.result = s->hub->coord.result,
		.n_results = s->hub->coord.n_results,
		.least = s->o->min_pair / 100 };
}

/* What failed, or is low, is measured again before it is judged; what is low both ways, in each direction alone. */
static void look(void *arg)
{
	struct sweep *s = arg;
	struct dr_coord *c = &s->hub->coord;
	double least = s->o->min_pair / 100;
	int rc = dr_coord_way(c) == DR_SWEEP_BOTH_WAYS
			 ? dr_sweep_confirm(c->result, c->n_results, s->place.nodes, least)
			 : dr_sweep_mark_alone(c->result, c->n_results, s->place.nodes, least);

	if (rc)
		dr_warn("sweep", "no memory to measure pairs again");
}

static void order_local(void *arg, const json_t *msg)
{
	struct sweep *s = arg;

	dr_sweep_agent_order(&s->agent, msg, dr_now_ns());
}

static void report_local(void *arg, const json_t *msg)
{
	struct sweep *s = arg;

	dr_hub_local(s->hub, msg, dr_now_ns());
}

static int write_document(
	struct sweep *s, const struct dr_sweep_verdict *v, int status, const char *line)
{
	json_t *options = dr_opts_to_json(s->o->table, s->o->command), *doc = NULL;
	struct dr_sweep_summary sum = { .hub = s->hub,
		.verdict = v,
		.pattern = patterns[s->o->pattern]->name,
		.run_id = s->run_id,
		.source = s->place.source,
		.least = s->o->min_pair / 100,
		.seconds = (double)(dr_now_ns() - s->begin_ns) / 1e9,
		.start_wall_ns = s->begin_wall_ns,
		.options = options,
		.exit_code = status,
		.line = line };

	if (options)
		doc = dr_sweep_document(&sum);
	json_decref(options);
	return dr_json_output(s->o->json_path, doc, status);
}

/* Judge, print, write. */
static void conclude(struct sweep *s)
{
	const struct dr_sweep_judge j = judge_of(s);
	const char *path = s->o->json_path;
	FILE *f = path && strcmp(path, "-") == 0 ? dr_log_tables() : stdout;
	struct dr_sweep_verdict v;

	if (dr_sweep_judge(&j, &v)) {
		dr_complain("out of memory");
		s->status = DR_EXIT_ENV;
		return;
	}
	if (s->loop.signo) {
		dr_append(v.line, sizeof(v.line), "; ended by signal %d", s->loop.signo);
		v.exit_code = 128 + s->loop.signo;
	}
	s->status = v.exit_code;
	if (!s->o->quiet && dr_sweep_print(&j, &v, f))
		dr_complain("out of memory");
	if (path)
		s->status = write_document(s, &v, s->status, v.line);
	fprintf(f, "%ssweep: %s (exit status %d): %s\n", s->o->quiet ? "" : "\n",
		s->status ? "FAIL" : "PASS", s->status, v.line);
	fflush(f);
	dr_hub_say_end(s->hub, s->status, v.line);
	dr_sweep_verdict_fini(&v);
}

/* Partial results survive a coordinator that is killed. A failure is reported when the whole document is written. */
static void write_partial(struct sweep *s, int64_t now_ns)
{
	const char *path = s->o->json_path;
	const struct dr_sweep_judge j = judge_of(s);
	struct dr_sweep_verdict v;

	if (!path || strcmp(path, "-") == 0 || now_ns < s->partial_ns)
		return;
	s->partial_ns = now_ns + PARTIAL_NS;
	if (dr_sweep_judge(&j, &v))
		return;
	(void)write_document(
		s, &v, DR_EXIT_PEER, "INCOMPLETE: the sweep still runs, or was killed");
	dr_sweep_verdict_fini(&v);
}

/* Lines in a log are for who wonders whether it still runs; at a terminal somebody waits. */
static void say_progress(struct sweep *s, int64_t now_ns)
{
	char line[300];

	if (s->o->quiet || !dr_sweep_progress_due(&s->progress, &s->hub->coord, now_ns))
		return;
	dr_sweep_progress_line(
		&s->progress, &s->hub->coord, s->o->min_pair / 100, now_ns, line, sizeof(line));
	dr_say("sweep", "%s", line);
	dr_sweep_progress_done(&s->progress, dr_now_ns() - now_ns, now_ns);
}

static void name_node(void *arg, uint32_t rank, const char *name)
{
	struct sweep *s = arg;

	dr_text_copy(s->hub->node[rank].host, sizeof(s->hub->node[rank].host), name);
}

static int start_hub(struct sweep *s, struct dr_err *e)
{
	enum { OTHER_FILES = 64 };
	const struct dr_options *o = s->o;
	uint64_t need = (uint64_t)s->place.nodes + OTHER_FILES,
		 limit = dr_limit_files(need + need / 2);
	const struct dr_hub_opts ho = { .poller = s->loop.poller,
		.coord = { .nodes = s->place.nodes,
			.pattern = patterns[o->pattern],
			.join_ns = o->join_timeout_ns,
			.pair_ns = o->pair_timeout_ns,
			.reviews = (unsigned)o->reviews,
			.alone = o->bidir && o->reviews > 0 },
		.port = s->place.port,
		.control = o->control,
		.key = s->o->key_file ? &s->key : NULL,
		.allow = o->allow.n ? &o->allow : NULL,
		.local = order_local,
		.look = look,
		.arg = s };
	int rc =
		limit < need
			? dr_err_set(e, -EMFILE,
				  "rank 0 of %u nodes needs %llu open files, and its hard limit is %llu; raise it "
				  "(ulimit -Hn)",
				  s->place.nodes, (unsigned long long)need,
				  (unsigned long long)limit)
			: dr_hub_create(&s->hub, &ho, e);

	if (rc == 0 && s->hosts)
		dr_place_names(s->hosts, name_node, s);
	if (rc == 0 && o->resume)
		rc = dr_sweep_resume(s->hub, patterns[o->pattern]->name, o->resume, e);
	if (rc == 0 && !o->key_file)
		dr_say("sweep", "no --key-file: every host that reaches port %u may join",
			s->hub->port);
	return rc;
}

static void run_hub(struct sweep *s)
{
	bool told = false;
	int64_t until_ns = DR_NEVER;

	dr_hub_local(s->hub, s->offer, dr_now_ns());
	s->partial_ns = dr_now_ns() + PARTIAL_NS;
	dr_sweep_progress_init(
		&s->progress, isatty(STDERR_FILENO) ? TERMINAL_NS : PARTIAL_NS, dr_now_ns());
	for (;;) {
		int64_t now_ns = dr_now_ns(), due_ns;

		if (s->loop.signo && !s->hub->over)
			dr_hub_stop(s->hub, now_ns);
		dr_hub_tick(s->hub, now_ns);
		dr_sweep_child_tick(&s->agent.child, now_ns);
		if (s->hub->over && !told) {
			conclude(s);
			told = true;
			until_ns = now_ns + END_NS;
		}
		if (told && (dr_hub_is_idle(s->hub) || now_ns >= until_ns))
			return;
		if (!told) {
			write_partial(s, now_ns);
			say_progress(s, now_ns);
		}
		due_ns = DR_MIN(dr_hub_deadline(s->hub), s->agent.child.until_ns);
		due_ns = DR_MIN(due_ns, told ? until_ns : s->partial_ns);
		if (!told && !s->o->quiet)
			due_ns = DR_MIN(due_ns, dr_sweep_progress_deadline(&s->progress));
		dr_loop_turn(&s->loop, due_ns);
	}
}

/* ---- other ranks ---- */

static void message(void *arg, const json_t *msg, int64_t now_ns)
{
	struct sweep *s = arg;

	if (strcmp(dr_json_string(msg, "op"), "end") != 0) {
		dr_sweep_agent_order(&s->agent, msg, now_ns);
		return;
	}
	s->ended = true;
	if (s->o->verbose)
		dr_say("sweep", "rank 0: %s", dr_json_string(msg, "text"));
	dr_member_close(&s->member, now_ns);
}

static void report(void *arg, const json_t *msg)
{
	struct sweep *s = arg;

	dr_member_send(&s->member, msg);
}

static int start_member(struct sweep *s, struct dr_err *e)
{
	const struct dr_member_opts mo = { .poller = s->loop.poller,
		.host = s->place.host,
		.port = s->place.port,
		.control = s->o->control,
		.key = s->o->key_file ? &s->key : NULL,
		.offer = s->offer,
		.until_ns = dr_now_ns() + s->o->join_timeout_ns,
		.message = message,
		.arg = s };

	return dr_member_init(&s->member, &mo, e);
}

static void run_member(struct sweep *s)
{
	while (!s->loop.signo) {
		int64_t now_ns = dr_now_ns(), due_ns;

		dr_member_tick(&s->member, now_ns);
		dr_sweep_child_tick(&s->agent.child, now_ns);
		if (s->member.failed || (s->ended && dr_member_is_closed(&s->member)))
			break;
		due_ns = DR_MIN(dr_member_deadline(&s->member), s->agent.child.until_ns);
		dr_loop_turn(&s->loop, due_ns);
	}
	s->status = s->ended ? DR_EXIT_PASS : s->loop.signo ? 128 + s->loop.signo : DR_EXIT_PEER;
	if (s->member.failed && !s->ended)
		dr_complain("rank %u: %s", s->place.rank, s->member.err.text);
	dr_member_fini(&s->member);
}

/* ---- the process ---- */

static int start(struct sweep *s, struct dr_err *e)
{
	struct dr_rights r = { .opt = s->o };
	/* With the rights of who started it: what starts runs, and what only they can open. */
	int rc = dr_sweep_agent_init(&s->agent, e);
	bool first;

	if (rc == 0 && s->o->hostfile)
		rc = read_hosts(s->o->hostfile, &s->hosts, e);
	if (rc == 0 && s->o->key_file)
		rc = dr_boot_key_read(s->o->key_file, &s->key, e);
	if (rc)
		return rc;
	/* Names are resolved and bytes of others are read without rights. */
	dr_rights_restrict(&r);
	rc = find_place(s, e);
	first = s->place.rank == 0;
	rc = rc ? rc : dr_loop_init(&s->loop, e);
	/* The coordinator's port comes first: those of pairs are behind it. */
	rc = rc == 0 && first ? start_hub(s, e) : rc;
	s->agent.report = first ? report_local : report;
	rc = rc ? rc : dr_sweep_agent_claim(&s->agent, s->loop.poller, e);
	if (!first) {
		s->o->json_path = NULL; /* it writes no document */
		r.kept = 0;
	}
	rc = rc ? rc : dr_rights_become(&r, e);
	if (rc)
		return rc;
	s->offer = dr_sweep_agent_offer(&s->agent, s->place.rank, s->place.nodes);
	if (!s->offer)
		return dr_err_set(e, -ENOMEM, "out of memory");
	return first ? 0 : start_member(s, e);
}

static void finish(struct sweep *s)
{
	explicit_bzero(&s->key, sizeof(s->key));
	dr_sweep_agent_fini(&s->agent);
	dr_hub_destroy(s->hub);
	json_decref(s->offer);
	dr_free(s->hosts);
	dr_loop_fini(&s->loop);
}

int dr_sweep_main(struct dr_options *o, const char *run_id)
{
	struct sweep s = { .o = o,
		.run_id = run_id,
		.loop.sig.fd = -1,
		.agent = { .opt = o, .arg = &s },
		.begin_ns = dr_now_ns(),
		.begin_wall_ns = dr_wall_ns() };
	struct dr_err e = { 0 };
	int rc = start(&s, &e);

	if (rc) {
		dr_complain("%s", e.text);
		s.status = rc == -EINVAL || rc == -ERANGE ? DR_EXIT_USAGE : DR_EXIT_ENV;
	} else if (s.place.rank == 0) {
		run_hub(&s);
	} else {
		run_member(&s);
	}
	finish(&s);
	return s.status;
}
