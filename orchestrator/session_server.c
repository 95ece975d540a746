/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/affinity.h"
#include "orchestrator/doctor/look.h"
#include "orchestrator/kinds.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/*
 * The server: one client after the other, each a session that the client leads (the messages stand
 * in session_client.h). Whatever a client does or fails to do ends its session only; every session
 * that began ends in on_closed, which writes its record and makes room for the next.
 */

#define WHY_NS (400 * DR_NS_PER_MS)
/* A client that knows of failed channels ends the session; one that does not is dropped. */
#define CLIENT_ENDS_NS (10 * DR_NS_PER_S)

enum after_snapshot { NOTHING, SEND_DONE, SEND_FINISH };

struct server {
	const struct dr_options *opt;
	struct dr_record *rec;
	struct dr_output *out;
	struct dr_loop loop;
	struct dr_injector inj;
	bool have_key;
	struct dr_boot_server *boot;
	struct dr_control *control;
	struct dr_topo *topo; /* this machine; NULL: unknown */

	/* This session. */
	bool open;
	char client[80];
	struct dr_plan plan;
	struct dr_route route;
	struct dr_node *node;
	struct dr_record_mark mark;
	enum after_snapshot then;
	bool finished, aborted, refused, lost, told_failed;
	bool looked; /* doctor's: no run, no record */
	enum dr_boot_cause lost_cause;
	int64_t failed_ns;
	uint32_t fault_client, fault_own; /* id of the client, of the injector */

	unsigned served;
	int last_status;
	bool quit;
};

static void send_msg(struct server *s, json_t *msg)
{
	int rc = msg ? dr_control_send(s->control, msg) : -ENOMEM;

	json_decref(msg);
	if (rc && rc != -ENOTCONN)
		dr_warn("server", "control connection: %s", strerror(-rc));
}

/* ---- offer ---- */

static int refuse(struct server *s, int status, const struct dr_err *e)
{
	fprintf(stderr, "client %s refused: %s\n", s->client, e->text);
	s->refused = true;
	s->last_status = status;
	dr_record_error(s->rec, status, e);
	dr_boot_server_refuse(s->boot, status, e->text);
	return -1;
}

static int match(struct server *s, const json_t *params, const unsigned *gpus, unsigned n_gpus,
	struct dr_err *e)
{
	struct dr_netdev_rail rails[DR_RAILS_MAX], spare;
	bool has_spare;
	int n, rc = dr_plan_read_offer(&s->plan, params, e);

	if (rc == 0)
		rc = dr_kind_follow(s->opt, &s->plan, e);
	if (rc == 0)
		rc = dr_route_to(s->client, &s->route, e);
	if (rc)
		return rc;
	n = dr_kind_rails(s->opt, &s->plan, &s->route, rails, DR_RAILS_MAX, e);
	if (n < 0)
		return n;
	has_spare = dr_kind_spare(s->opt, &s->plan, &s->route, rails, (unsigned)n, &spare);
	rc = dr_plan_match(&s->plan, rails, (unsigned)n, has_spare ? &spare : NULL, e);
	if (rc)
		return rc;
	s->plan.n_gpus = (unsigned)DR_MIN((size_t)n_gpus, s->opt->gpus.n);
	s->plan.n_map = DR_MIN(s->plan.n_map, s->plan.n_gpus);
	for (unsigned k = 0; k < s->plan.n_gpus; k++) {
		s->plan.gpu[k][DR_PLAN_CLIENT] = gpus[k];
		s->plan.gpu[k][DR_PLAN_SERVER] = s->opt->gpus.v[k];
	}
	s->plan.topo = s->topo;
	if (s->plan.near_told)
		dr_plan_measure(&s->plan, DR_PLAN_SERVER);
	return dr_plan_settle(&s->plan, e);
}

/* A fault at this end needs this end's leave, and a client that proved who it is. */
static int check_faults(struct server *s, struct dr_err *e)
{
	if (!s->plan.server_faults)
		return 0;
	if (!s->opt->allow_faults)
		return dr_err_set(e, -EACCES,
			"faults at the server are not allowed; start it with --allow-faults");
	if (!s->have_key && !s->opt->trusted)
		return dr_err_set(e, -EACCES,
			"faults at the server need a shared secret; start both ends with "
			"--key-file FILE");
	return 0;
}

static const struct dr_node_ops node_ops;

static int serve(struct server *s, struct dr_err *e)
{
	struct dr_boot_handle h[DR_PLAN_HANDLES_MAX];
	unsigned n = dr_plan_n_handles(&s->plan);
	json_t *reply = dr_plan_reply(&s->plan);
	int rc = reply ? dr_boot_server_accept(s->boot, reply, n, n) : -ENOMEM;

	json_decref(reply);
	if (rc)
		return dr_err_set(e, rc, "accept: %s", strerror(-rc));
	rc = dr_node_create(&s->node, s->opt, &s->plan, DR_PLAN_SERVER,
		dr_control_token(s->control), &s->loop, s->rec, s->out, &node_ops, s, e);
	for (unsigned k = 0; rc == 0 && k < s->plan.n_gpus; k++) {
		rc = dr_node_handles(s->node, k, h, n);
		if (rc == 0)
			rc = dr_boot_server_handles(s->boot, k, h, n);
		if (rc)
			dr_err_set(e, rc, "handles: %s", strerror(-rc));
	}
	return rc ? rc : dr_node_start(s->node, e);
}

static void begin_record(struct server *s)
{
	struct dr_record *r = s->rec;

	dr_record_reset(r);
	r->side = DR_END_SERVER;
	memset(&s->mark, 0, sizeof(s->mark));
	snprintf(r->peer_version, sizeof(r->peer_version), "%s",
		dr_control_peer_version(s->control));
}

/* doctor asks what a run would get here; no session follows. */
static void answer_look(
	struct server *s, const json_t *params, const unsigned *gpus, unsigned n_gpus)
{
	struct dr_netdev_rail nics[DR_RAILS_MAX];
	struct dr_err why = { 0 };
	json_t *pairs, *reply;
	int n, rc = match(s, params, gpus, n_gpus, &why);

	s->looked = true;
	if (rc == -EPROTO) {
		dr_boot_server_refuse(s->boot, DR_EXIT_PEER, why.text);
		return;
	}
	n = dr_kind_rails(s->opt, &s->plan, &s->route, nics, DR_RAILS_MAX, rc ? NULL : &why);
	pairs = rc ? json_pack("{s:[]}", "rails") : dr_plan_reply(&s->plan);
	reply = dr_look_reply(
		pairs, nics, n > 0 ? (unsigned)n : 0, s->opt->gpus.n, why.code ? why.text : NULL);
	if (!reply || dr_boot_server_accept(s->boot, reply, 1, 1))
		dr_boot_server_refuse(s->boot, DR_EXIT_ENV, "the server is out of memory");
	json_decref(reply);
	dr_info("server", "doctor at %s looked", s->client);
}

static void on_offer(void *arg, const json_t *params, const unsigned *gpus, unsigned n_gpus)
{
	struct server *s = arg;
	struct dr_err e = { 0 };

	s->open = true;
	s->finished = s->aborted = s->refused = s->lost = s->told_failed = s->looked = false;
	s->failed_ns = 0;
	s->fault_client = s->fault_own = 0;
	s->then = NOTHING;
	snprintf(s->client, sizeof(s->client), "%s", dr_control_peer(s->control));
	if (dr_look_marked(params)) {
		answer_look(s, params, gpus, n_gpus);
		return;
	}
	begin_record(s);
	if (match(s, params, gpus, n_gpus, &e)) {
		refuse(s, e.code == -EPROTO ? DR_EXIT_PEER : DR_EXIT_ENV, &e);
		return;
	}
	if (check_faults(s, &e) || serve(s, &e)) {
		refuse(s, DR_EXIT_ENV, &e);
		return;
	}
	for (unsigned i = 0; s->opt->control && i < s->plan.n_rails; i++)
		if (dr_boot_server_listen_also(
			    s->boot, s->plan.rail[i][DR_PLAN_SERVER].address, &e))
			dr_info("server", "no resume over %s: %s",
				s->plan.rail[i][DR_PLAN_SERVER].address, e.text);
	snprintf(s->rec->detection.transport, sizeof(s->rec->detection.transport), "%s",
		s->plan.transport);
	snprintf(s->rec->detection.mode, sizeof(s->rec->detection.mode), "%s",
		s->plan.detect == DR_DETECT_FAST ? "fast" : "conservative");
	s->rec->detection.heartbeat_ns = s->plan.heartbeat_ns;
	s->rec->detection.hold_down_ns = s->plan.hold_down_ns;
	s->rec->detection.failback = s->plan.failback;
	dr_output_start(s->out, s->rec);
}

static void on_handles(void *arg, unsigned k, const struct dr_boot_handle *handles, unsigned n)
{
	struct server *s = arg;
	struct dr_err e;

	if (s->refused || !s->node)
		return;
	/* Starting the worker may fail for reasons of our own: memory, most of all. */
	if (dr_node_connect(s->node, k, handles, n, &e))
		refuse(s, e.code == -EPROTO ? DR_EXIT_PEER : DR_EXIT_ENV, &e);
}

static void on_ready(void *arg)
{
	struct server *s = arg;

	dr_info("server", "client %s: %u GPUs, %u channels each", s->client, s->plan.n_gpus,
		s->node->n_channels);
}

/* ---- the node's operations ---- */

static void send_part(struct server *s, const char *t, json_t *more)
{
	json_t *part = dr_record_part(s->rec, &s->mark);
	json_t *msg = json_pack("{s:s, s:o}", "t", t, "part", part);

	if (msg && more)
		json_object_update(msg, more);
	json_decref(more);
	send_msg(s, msg);
}

static void send_done(struct server *s)
{
	json_t *more = json_pack("{s:i}", "index", (int)s->node->phase.index);
	int64_t p50, p99;

	dr_node_results(s->node);
	dr_node_cadence(s->node, &p50, &p99);
	if (more && p50 != DR_UNSET) {
		json_object_set_new(more, "cadence_p50_ns", json_integer(p50));
		json_object_set_new(more, "cadence_p99_ns", json_integer(p99));
	}
	dr_output_result(s->out, s->rec);
	send_part(s, "done", more);
}

static void on_report(void *arg, const struct dr_report *rep)
{
	struct server *s = arg;

	if (rep->kind == DR_REP_READY && s->node->n_ready == s->plan.n_gpus)
		send_msg(s, json_pack("{s:s}", "t", "up"));
	if (rep->kind == DR_REP_PHASE_DONE && s->then == NOTHING && s->node->phase_open &&
		dr_node_phase_over(s->node)) {
		s->then = SEND_DONE;
		dr_node_snapshot(s->node);
	} else if (rep->kind == DR_REP_SNAPSHOT && s->node->snapshots_open == 0) {
		enum after_snapshot then = s->then;

		s->then = NOTHING;
		if (then == SEND_DONE)
			send_done(s);
		if (then == SEND_FINISH) {
			dr_node_finish(s->node);
			s->finished = true;
			send_part(s, "finish", NULL);
		}
	}
}

static void on_sent(void *arg, unsigned position, const uint64_t *totals, unsigned n)
{
	struct server *s = arg;
	json_t *list = json_array();

	for (unsigned i = 0; list && i < n; i++)
		json_array_append_new(list, json_integer((json_int_t)totals[i]));
	send_msg(s,
		json_pack("{s:s, s:i, s:o}", "t", "expect", "gpu", (int)position, "totals", list));
}

static const struct dr_node_ops node_ops = { on_report, on_sent };

/* ---- what the client says ---- */

static int do_phase(struct server *s, const json_t *msg)
{
	struct dr_phase p;

	if (dr_phase_from_json(json_object_get(msg, "phase"), &p) || s->node->phase_open ||
		p.chunk_bytes > s->plan.chunk_max || !dr_plan_fits_phase(&s->plan, &p))
		return -EPROTO;
	dr_node_phase(s->node, &p);
	send_msg(s, json_pack("{s:s, s:i}", "t", "phase-ok", "index", (int)p.index));
	return 0;
}

static int do_expect(struct server *s, const json_t *msg)
{
	const json_t *list = json_object_get(msg, "totals");
	json_int_t position = json_integer_value(json_object_get(msg, "gpu"));
	uint64_t totals[DR_CHANNELS_MAX] = { 0 };
	size_t n = json_array_size(list);

	if (position < 0 || position >= s->plan.n_gpus || n != s->node->n_channels)
		return -EPROTO;
	for (size_t i = 0; i < n; i++)
		totals[i] = (uint64_t)json_integer_value(json_array_get(list, i));
	dr_node_expect(s->node, (unsigned)position, totals, (unsigned)n);
	return 0;
}

static void send_fault(
	struct server *s, bool undo, int err, int64_t before, int64_t after, const char *text)
{
	send_msg(s, json_pack("{s:s, s:I, s:b, s:i, s:I, s:I, s:s%}", "t", "fault", "id",
			    (json_int_t)s->fault_client, "undo", undo, "err", err, "before_ns",
			    (json_int_t)before, "after_ns", (json_int_t)after, "text", text,
			    strlen(text)));
}

static void on_fault(void *arg, const struct dr_fault_report *rep)
{
	struct server *s = arg;

	if (s->open && rep->id == s->fault_own)
		send_fault(s, rep->undo, rep->err, rep->before_ns, rep->after_ns, rep->text);
}

static int do_inject(struct server *s, const json_t *msg)
{
	const char *text = json_string_value(json_object_get(msg, "spec"));
	struct dr_fault_spec spec;
	struct dr_err e = { 0 };
	int rc;

	s->fault_client = (uint32_t)json_integer_value(json_object_get(msg, "id"));
	if (!text || dr_fault_spec_parse(text, &spec, &e))
		return -EPROTO;
	rc = check_faults(s, &e);
	if (rc == 0 && !s->plan.server_faults)
		rc = dr_err_set(&e, -EACCES, "faults at the server were not announced");
	if (rc == 0)
		rc = dr_injector_inject(&s->inj, s->node, &spec, &s->route, &s->fault_own, &e);
	if (rc)
		send_fault(s, false, rc, 0, 0, e.text);
	return 0;
}

static int do_undo(struct server *s, const json_t *msg)
{
	struct dr_err e = { 0 };
	int rc;

	if (json_integer_value(json_object_get(msg, "id")) != s->fault_client || !s->fault_own)
		return 0;
	rc = dr_injector_undo(&s->inj, s->fault_own, &e);
	if (rc)
		send_fault(s, true, rc, 0, 0, e.text);
	return 0;
}

/* Paths that were lost are lost at both ends, whoever notices first. */
static int do_abort(struct server *s, const json_t *msg)
{
	const char *text = json_string_value(json_object_get(msg, "text"));
	json_int_t status = json_integer_value(json_object_get(msg, "status"));

	s->aborted = true;
	if (!s->node->n_failed)
		dr_record_errorf(s->rec,
			status == DR_EXIT_TRANSPORT ? DR_EXIT_TRANSPORT : DR_EXIT_PEER,
			"client ended early with status %d: %s", (int)status, text ? text : "");
	return 0;
}

static int take(struct server *s, const char *t, const json_t *msg)
{
	json_int_t n;

	if (strcmp(t, "phase") == 0)
		return do_phase(s, msg);
	if (strcmp(t, "expect") == 0)
		return do_expect(s, msg);
	if (strcmp(t, "inject") == 0)
		return do_inject(s, msg);
	if (strcmp(t, "undo") == 0)
		return do_undo(s, msg);
	if (strcmp(t, "abort") == 0)
		return do_abort(s, msg);
	if (strcmp(t, "mark") == 0) {
		n = json_integer_value(json_object_get(msg, "which"));
		if (n != 0 && n != 1)
			return -EPROTO;
		dr_node_mark(s->node, (int)n);
	} else if (strcmp(t, "stop") == 0) {
		dr_node_stop(s->node);
	} else if (strcmp(t, "switch") == 0) {
		dr_node_go_home(s->node);
	} else if (strcmp(t, "collect") == 0) {
		n = json_integer_value(json_object_get(msg, "token"));
		send_part(s, "part", json_pack("{s:I}", "token", n));
	} else if (strcmp(t, "finish") == 0) {
		s->then = SEND_FINISH;
		dr_node_snapshot(s->node);
	} else {
		dr_debug("server", "unknown message \"%.32s\"", t);
	}
	return 0;
}

static void on_message(void *arg, const json_t *msg)
{
	struct server *s = arg;
	const char *t = json_string_value(json_object_get(msg, "t"));

	if (!s->node || s->refused)
		return;
	if (!t || take(s, t, msg)) {
		dr_record_errorf(s->rec, DR_EXIT_PEER, "client sent a message that makes no sense");
		dr_boot_server_drop(s->boot);
	}
}

/* ---- the end of a session ---- */

static void on_lost(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct server *s = arg;

	s->lost = true;
	s->lost_cause = cause;
	dr_record_eventf(s->rec, "control", "lost: %s", text);
}

static void on_resumed(void *arg)
{
	struct server *s = arg;

	s->lost = false;
	dr_record_eventf(s->rec, "control", "resumed");
}

static void judge(struct server *s, enum dr_boot_cause cause, const char *text)
{
	bool peer_gone =
		cause == DR_BOOT_EOF || cause == DR_BOOT_RESET ||
		(s->lost && (s->lost_cause == DR_BOOT_EOF || s->lost_cause == DR_BOOT_RESET));

	if (s->loop.signo)
		dr_record_errorf(
			s->rec, 128 + s->loop.signo, "ended by %s", strsignal(s->loop.signo));
	else if (s->finished || s->aborted || s->refused)
		; /* said already */
	else if (peer_gone)
		dr_record_errorf(s->rec, DR_EXIT_PEER, "client died: %s", text);
	else if (!s->node || !s->node->n_failed)
		dr_record_errorf(
			s->rec, DR_EXIT_PEER, "client: %s (%s)", dr_boot_cause_text(cause), text);
	if (!peer_gone && s->node && s->node->n_failed)
		dr_record_errorf(s->rec, DR_EXIT_TRANSPORT, "%s: %s",
			s->node->fail_err == -ENETDOWN ? "both paths lost" : "channel ended",
			s->node->fail_text);
}

static void session_line(struct server *s, int status)
{
	struct dr_total t;

	dr_record_total(s->rec, &t);
	fprintf(stderr, "client %s: %s, status %d", s->client,
		status == 0	   ? "done"
		: s->rec->errors.n ? s->rec->errors.v[0].text
				   : "failed",
		status);
	if (t.gbps == t.gbps)
		fprintf(stderr, ", %.2f Gb/s", t.gbps);
	if (s->rec->switches.n)
		fprintf(stderr, ", %zu path switches", s->rec->switches.n);
	fprintf(stderr, "\n");
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct server *s = arg;
	int status;

	if (!s->open)
		return;
	s->open = false;
	if (s->looked)
		return;
	judge(s, cause, text);
	if (s->fault_own) {
		struct dr_err e;

		if (s->inj.active && dr_injector_undo(&s->inj, s->fault_own, &e))
			dr_warn("server", "undo: %s", e.text);
		s->fault_own = 0;
	}
	if (s->node && !s->finished) {
		dr_node_results(s->node);
		dr_node_finish(s->node);
	}
	dr_node_destroy(s->node);
	s->node = NULL;
	status = dr_output_finish(s->out, s->rec, NULL);
	dr_mem_trim();
	if (!s->refused && !s->opt->quiet)
		session_line(s, status);
	s->last_status = status;
	s->served++;
	if (s->opt->one_off)
		s->quit = true;
}

static const struct dr_boot_server_ops boot_ops = { on_offer, on_handles, on_ready, on_message,
	on_lost, on_resumed, on_closed };

/* Channels that ended: tell the client; when it cannot be told, or does not act on it, let go. */
static int64_t check_health(struct server *s, int64_t now)
{
	if (!s->open || !s->node || !s->node->n_failed)
		return DR_NEVER;
	if (!s->failed_ns)
		s->failed_ns = now;
	if (!s->told_failed) {
		s->told_failed = true;
		send_msg(s, json_pack("{s:s, s:i, s:s%}", "t", "failed", "err", s->node->fail_err,
				    "text", s->node->fail_text, strlen(s->node->fail_text)));
	}
	int64_t until = s->failed_ns + (s->lost ? WHY_NS : CLIENT_ENDS_NS);
	if (now < until)
		return until;
	dr_boot_server_drop(s->boot);
	s->failed_ns = now;
	return now + WHY_NS;
}

/* ---- process ---- */

static int listen_for_clients(struct server *s, struct dr_err *e)
{
	const struct dr_options *o = s->opt;
	struct dr_boot_server_opts bo = { .gpus = o->gpus.v,
		.n_gpus = (unsigned)o->gpus.n,
		.port_base = (uint16_t)o->port,
		.pair = o->pair,
		.bind = o->control,
		.version = s->rec->version,
		.timing = { .resume_ns = o->timeout_ns } };
	struct dr_boot_key key = { { 0 } };
	int rc = 0;

	if (o->key_file)
		rc = dr_boot_key_read(o->key_file, &key, e);
	if (rc)
		return rc;
	s->have_key = o->key_file != NULL;
	bo.key = o->key_file ? &key : NULL;
	rc = dr_boot_server_create(&s->boot, &bo, &boot_ops, s, s->loop.poller, e);
	if (rc == 0)
		s->control = dr_boot_server_control(s->boot);
	return rc;
}

static void turn(struct server *s)
{
	int64_t now = dr_now_ns();
	int64_t next = DR_MIN(dr_boot_server_deadline(s->boot), check_health(s, now));
	size_t intervals = s->rec->intervals.n;

	if (s->node)
		next = DR_MIN(next, dr_node_deadline(s->node));
	dr_loop_turn(&s->loop, next);
	now = dr_now_ns();
	dr_boot_server_tick(s->boot, now);
	if (!s->node)
		return;
	dr_node_tick(s->node, now);
	if (s->rec->intervals.n > intervals && !s->lost)
		send_part(s, "part", json_pack("{s:i}", "token", 0));
}

static bool unsent(const struct server *s)
{
	return s->open && !s->lost && dr_control_unacked(s->control) > 0;
}

/* A signal in the middle of a session: results so far, goodbye, end. */
static void end_session(struct server *s)
{
	int64_t deadline = dr_now_ns() + 500 * DR_NS_PER_MS;

	if (!s->open)
		return;
	dr_control_goodbye(s->control);
	while (s->open && dr_now_ns() < deadline) {
		dr_loop_turn(&s->loop, DR_MIN(dr_boot_server_deadline(s->boot), deadline));
		dr_boot_server_tick(s->boot, dr_now_ns());
	}
	if (s->open)
		on_closed(s, DR_BOOT_LOCAL, "server ended");
}

int dr_server_main(const struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct server *s = dr_calloc(1, sizeof(*s));
	struct dr_err e = { 0 };
	int rc;

	if (!s) {
		fprintf(stderr, "dualrail: server: out of memory\n");
		return DR_EXIT_ENV;
	}
	s->opt = o;
	s->rec = rec;
	s->out = out;
	s->inj.po.fd = s->loop.sig.fd = -1;
	rec->side = DR_END_SERVER;
	rc = dr_loop_init(&s->loop, &e);
	if (rc == 0)
		rc = dr_injector_init(&s->inj, o, s->loop.poller, &e);
	s->inj.report = on_fault;
	s->inj.arg = s;
	if (rc == 0)
		rc = dr_affinity_load(o, &s->topo, &e);
	if (rc == 0)
		rc = listen_for_clients(s, &e);
	if (rc) {
		fprintf(stderr, "dualrail: %s\n", e.text);
		dr_record_error(rec, DR_EXIT_ENV, &e);
		s->last_status = dr_output_finish(out, rec, NULL);
	} else {
		if (!o->quiet)
			fprintf(stderr, "listening on port %u, %zu GPU%s\n",
				dr_boot_server_port(s->boot, 0), o->gpus.n,
				o->gpus.n == 1 ? "" : "s");
		while (!s->quit && !s->loop.signo)
			turn(s);
		for (int64_t until = dr_now_ns() + DR_NS_PER_S; unsent(s) && dr_now_ns() < until;)
			turn(s);
	}
	if (s->loop.signo) {
		end_session(s);
		if (!s->served) {
			dr_record_errorf(
				rec, 128 + s->loop.signo, "ended by %s", strsignal(s->loop.signo));
			dr_output_finish(out, rec, NULL);
		}
		s->last_status = 128 + s->loop.signo;
	}
	rc = s->last_status;
	dr_boot_server_destroy(s->boot);
	dr_injector_fini(&s->inj);
	if (s->loop.poller)
		dr_loop_fini(&s->loop);
	dr_topo_destroy(s->topo);
	dr_free(s);
	return rc;
}
