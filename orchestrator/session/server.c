/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "orchestrator/engine/engine.h"
#include "orchestrator/plan/probe.h"
#include "orchestrator/session/offer.h"
#include "orchestrator/session/probe.h"
#include "orchestrator/session/unused.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * The server: one client after the other, each a session that the client leads. Whatever a client does or fails to
 * do ends its session only; every session that began ends in on_closed, which writes its record and makes room for
 * the next.
 *  1. Everything of the session before is overwritten in on_offer, before anything can fail.
 *  2. What fails there refuses the client with a reason and a status; the record has the same.
 *     With --one-off it does not count: the server waits for the next client, as after a refusal by the bootstrap
 *     (version, key, GPUs), and writes no document. What fails after the server has accepted the offer ends it, unless the
 *     client gave way to one that waits.
 *  3. doctor's probe gets an answer and starts no session: no record, no line.
 *  4. A message with a bad value ends the session; one of an unknown kind is ignored.
 *  5. Lines on standard error have the time and the id of the client's run, since a server serves many. The record has
 *     the same id.
 *  6. Rows go out with the snapshot that they need: `then` is what the next one is for.
 */

/* A client that is informed of failed channels ends the session; otherwise it is dropped after this. */
#define CLIENT_ENDS_NS (10 * DR_NS_PER_S)
#define LOOK_NS (500 * DR_NS_PER_MS)

enum after_snapshot { AFTER_NOTHING, AFTER_DONE, AFTER_FINISH };

struct server {
	struct dr_session s; /* status not 0: it refused this client */
	struct dr_boot_server *boot;

	/* This session. */
	bool open, accepted, ready; /* ready: both ends have all handles */
	char client[80];
	char run[40], run_short[12]; /* the client's run_id, and its last part; "": it names none */
	struct dr_record_mark mark;
	enum after_snapshot then;
	bool finished, aborted, told_failed;
	int64_t opened_ns;
	bool left; /* the client's process is not expected back */
	int64_t look_ns;
	bool probed;		 /* doctor's, or before a run: no record */
	struct dr_mtu_check mtu; /* of a probe */

	unsigned served;
	int last_status;
	bool quit;
};

/* The server of a callback's argument. */
static struct server *server_of(void *session)
{
	return dr_container_of(session, struct server, s);
}

/* ---- lines ---- */

/* The run_id of both ends' documents and logs; bytes of the client: letters, digits and dashes only. */
static void name_run(struct server *v, const json_t *params)
{
	const char *id = json_string_value(json_object_get(params, "run_id"));
	size_t len = id ? strlen(id) : 0;

	v->run[0] = v->run_short[0] = '\0';
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)id[i]) && id[i] != '-')
			return;
	if (!len || len >= sizeof(v->run))
		return;
	const char *last = strrchr(id, '-');
	last = last ? last + 1 : id;
	memcpy(v->run, id, len + 1);
	snprintf(v->run_short, sizeof(v->run_short), "%.8s", last);
}

/* A line for people, with the time and, of a session, the id of its run. What dr_log writes in a session has the id as
 * prefix. */
static void say(const struct server *v, bool session, const char *fmt, ...) DR_PRINTF(3, 4);
static void say(const struct server *v, bool session, const char *fmt, ...)
{
	const char *run = session && v->run[0] ? v->run : NULL;
	char text[500], when[32];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dr_wall_format(dr_wall_ns(), when, sizeof(when));
	dr_log_set_thread_run(run ? run : "");
	if (dr_log_is_json())
		dr_say("server", "%s", text);
	else
		dr_say("server", "%.23sZ %s%s%s", when, run ? v->run_short : "", run ? " " : "",
			text);
	dr_log_set_thread_run(NULL);
}

static void log_prefix(const struct server *v, bool on)
{
	dr_log_set_run(on && v->run[0] ? v->run : NULL);
	/* The demo's server has one of its own. */
	if (v->s.opt->command == DR_CMDBIT_SERVER && !dr_log_is_json())
		dr_log_set_prefix(on && v->run[0] ? v->run_short : NULL);
}

/* ---- the offer ---- */

/* Before both ends have all handles the client is refused, later its run is ended. */
static void refuse(struct dr_session *s, int status, const struct dr_err *e)
{
	struct dr_message m = { .kind = DR_MSG_ABORT, .status = status };
	struct server *v = server_of(s);

	say(v, true, "client %s%s: %s%s", v->client, v->ready ? "" : " refused", e->text,
		s->opt->one_off && !v->accepted ? "; waiting for another client (--one-off)" : "");
	s->status = v->last_status = status;
	dr_record_reason(dr_record_error(s->rec, status, e),
		status == DR_EXIT_PEER ? DR_REASON_DECLINED : DR_REASON_NONE);
	snprintf(m.text, sizeof(m.text), "%s", e->text);
	if (v->ready)
		dr_session_send(s, &m);
	else
		dr_boot_server_refuse(v->boot, status, e->text);
}

static int match(struct server *v, const json_t *params, const unsigned *gpus, unsigned n_gpus,
	struct dr_err *e)
{
	struct dr_session *s = &v->s;
	struct dr_rails rails;
	int rc = dr_plan_read_offer(&s->plan, params, e);

	if (rc == 0)
		rc = dr_plan_follow_transport(&s->plan, s->opt, e);
	if (rc == 0 && !s->opt->key_file && !s->opt->trusted)
		dr_plan_distrust(&s->plan);
	if (rc == 0)
		rc = dr_route_to(v->client, &s->route, e);
	if (rc == 0)
		rc = dr_rails_route(s->opt, NULL, &s->route, e);
	if (rc == 0)
		rc = dr_rails_find(s->opt, &s->plan, &s->route, &rails, e);
	if (rc == 0)
		rc = dr_plan_pair_nics(&s->plan, rails.v, rails.n,
			s->opt->rails && strcmp(s->opt->rails, "auto") != 0, e);
	if (rc == -EADDRNOTAVAIL)
		dr_unused_explain(e);
	if (rc)
		return rc;
	s->plan.n_gpus = (unsigned)DR_MIN((size_t)n_gpus, s->opt->gpus.n);
	s->plan.n_map = DR_MIN(s->plan.n_map, s->plan.n_gpus);
	for (unsigned k = 0; k < s->plan.n_gpus; k++) {
		s->plan.gpu[k][DR_PLAN_CLIENT] = gpus[k];
		s->plan.gpu[k][DR_PLAN_SERVER] = s->opt->gpus.v[k];
	}
	s->plan.topo = s->topo;
	dr_plan_measure(&s->plan, DR_PLAN_SERVER);
	return dr_plan_settle(&s->plan, e);
}

static int serve(struct server *v, struct dr_err *e)
{
	struct dr_session *s = &v->s;
	unsigned n = dr_plan_n_handles(&s->plan);
	json_t *reply = dr_plan_reply(&s->plan);

	dr_unused_find(s, NULL);
	int rc = reply && !dr_unused_put(s->rec, reply)
			 ? dr_boot_server_accept(v->boot, reply, n, n)
			 : -ENOMEM;

	json_decref(reply);
	if (rc)
		return dr_err_set(e, rc, "accept: %s", strerror(-rc));
	rc = dr_local_create(s, e);
	return rc ? rc : dr_local_start(s->local, e);
}

/* doctor probes what a run would get here; no session follows. */
static void answer_probe(
	struct server *v, const json_t *params, const unsigned *gpus, unsigned n_gpus)
{
	struct dr_session *s = &v->s;
	struct dr_settings settings;
	struct dr_rails nics;
	struct dr_err why = { 0 };
	int rc = match(v, params, gpus, n_gpus, &why);

	v->probed = true;
	if (rc == -EPROTO) {
		dr_boot_server_refuse(v->boot, DR_EXIT_PEER, why.text);
		return;
	}
	if (dr_rails_find(s->opt, &s->plan, &s->route, &nics, rc ? NULL : &why))
		nics.n = 0;
	if (rc == 0)
		dr_mtu_check_open(&v->mtu, &s->plan, DR_PLAN_SERVER, s->opt->data_port_min,
			s->opt->data_port_max);
	json_t *pairs = rc ? json_pack("{s:[]}", "rails") : dr_plan_reply(&s->plan);
	dr_settings_read("", &settings);
	nics.n = DR_MIN(dr_netdev_firsts(nics.v, nics.n), (unsigned)DR_RAILS_MAX);
	for (unsigned i = 0; i < nics.n; i++)
		dr_settings_read_nic(nics.v[i].ifname, &settings.nic[i]);
	json_t *reply = dr_plan_probe_reply(
		pairs, &(struct dr_plan_probe_own){ .nic = nics.v,
			       .n = nics.n,
			       .settings = &settings,
			       .gpus = s->opt->gpus.n,
			       .named = s->opt->rails && strcmp(s->opt->rails, "auto") != 0,
			       .why = why.code ? why.text : NULL });
	if (!reply || dr_boot_server_accept(v->boot, reply, 1, 1))
		dr_boot_server_refuse(v->boot, DR_EXIT_ENV, "the server is out of memory");
	else if (rc == 0)
		dr_mtu_check_start(&v->mtu, &s->plan, dr_control_token(s->control), s->loop.poller,
			dr_now_ns());
	json_decref(reply);
	dr_info("server", "probed by doctor at %s", v->client);
}

static void on_offer(void *arg, const json_t *params, const unsigned *gpus, unsigned n_gpus)
{
	struct server *v = server_of(arg);
	struct dr_session *s = &v->s;
	struct dr_err e = { 0 };
	uint16_t port = 0;

	v->open = true;
	v->left = v->finished = v->aborted = v->told_failed = v->probed = v->accepted = s->lost =
		false;
	v->ready = false;
	v->opened_ns = dr_now_ns();
	s->status = 0;
	s->failed_ns = 0;
	v->then = AFTER_NOTHING;
	memset(&v->mark, 0, sizeof(v->mark));
	snprintf(v->client, sizeof(v->client), "%s", dr_control_peer(s->control));
	name_run(v, params);
	log_prefix(v, true);
	if (dr_plan_probe_marked(params)) {
		answer_probe(v, params, gpus, n_gpus);
		return;
	}
	dr_record_reset(s->rec);
	/* The label `host` of the metrics: the client's address without its port. */
	if (dr_split_host(v->client, s->rec->target, sizeof(s->rec->target), &port, NULL))
		s->rec->target[0] = '\0';
	s->rec->run_of_peer = v->run[0] != '\0';
	if (v->run[0])
		snprintf(s->rec->run_id, sizeof(s->rec->run_id), "%s", v->run);
	s->rec->side = DR_END_SERVER;
	snprintf(s->rec->peer_version, sizeof(s->rec->peer_version), "%s",
		dr_control_peer_version(s->control));
	if (match(v, params, gpus, n_gpus, &e)) {
		refuse(s, dr_session_exit(e.code), &e);
		return;
	}
	v->accepted = dr_session_check_limits(s, &e) == 0 && dr_inject_allowed(s, &e) == 0 &&
		      dr_inject_check_offered(s, &e) == 0;
	if (!v->accepted || serve(v, &e)) {
		refuse(s, DR_EXIT_ENV, &e);
		return;
	}
	for (unsigned i = 0; s->opt->control && i < s->plan.n_rails; i++)
		if (dr_boot_server_listen_also(
			    v->boot, s->plan.rail[i][DR_PLAN_SERVER].address, &e))
			dr_info("server", "no resume over %s: %s",
				s->plan.rail[i][DR_PLAN_SERVER].address, e.text);
	dr_session_warn_rails(s);
	dr_session_record_detection(s);
	dr_output_start(s->out, s->rec);
}

/* ---- messages ---- */

static void send_part(struct server *v, struct dr_message *m)
{
	m->part = dr_record_part(v->s.rec, &v->mark);
	if (m->part)
		dr_session_send(&v->s, m);
	else
		dr_warn("server", "no memory for the results");
	json_decref(m->part);
}

static void send_done(struct server *v)
{
	struct dr_local *l = v->s.local;
	struct dr_message m = { .kind = DR_MSG_DONE, .index = l->phase.index };

	dr_local_results(l);
	dr_local_cadence(l, &m.cadence_p50_ns, &m.cadence_p99_ns);
	dr_output_result(v->s.out, v->s.rec);
	send_part(v, &m);
}

static void on_report(struct dr_session *s, const struct dr_report *rep)
{
	struct server *v = server_of(s);
	struct dr_local *l = s->local;

	if (rep->kind == DR_REP_READY && l->n_ready == s->plan.n_gpus)
		dr_session_send(s, &(struct dr_message){ .kind = DR_MSG_UP });
	if (rep->kind == DR_REP_PHASE_DONE && v->then == AFTER_NOTHING && l->phase_open &&
		dr_local_phase_over(l)) {
		v->then = AFTER_DONE;
		dr_local_snapshot(l);
	} else if (rep->kind == DR_REP_SNAPSHOT && l->snapshots_open == 0) {
		enum after_snapshot then = v->then;

		v->then = AFTER_NOTHING;
		if (then == AFTER_DONE)
			send_done(v);
		if (then == AFTER_FINISH) {
			dr_local_finish(l);
			v->finished = true;
			send_part(v, &(struct dr_message){ .kind = DR_MSG_FINISH });
			dr_boot_server_last(v->boot);
		}
	}
}

static int give_handles(
	struct dr_session *s, unsigned position, const struct dr_handle *h, unsigned n)
{
	return dr_boot_server_handles(server_of(s)->boot, position, h, n);
}

static int do_phase(struct dr_session *s, const struct dr_phase *p, struct dr_err *e)
{
	if (s->local->phase_open || p->chunk_bytes > s->plan.chunk_max ||
		!dr_plan_fits_phase(&s->plan, p))
		return dr_err_set(e, -EPROTO, "phase %u does not fit the plan", p->index);
	dr_local_phase(s->local, p);
	dr_session_send(s, &(struct dr_message){ .kind = DR_MSG_PHASE_OK, .index = p->index });
	return 0;
}

static void on_fault(struct dr_session *s, const struct dr_fault_report *rep)
{
	struct server *v = server_of(s);
	struct dr_message m = { .kind = DR_MSG_FAULT, .fault = *rep };

	if (v->open)
		dr_session_send(s, &m);
	else if (rep->err)
		dr_warn("server", "fault: %s", rep->text);
}

static int do_inject(struct server *v, const struct dr_message *m, struct dr_err *e)
{
	struct dr_fault_spec spec;

	if (dr_fault_spec_parse(m->text, &spec, e))
		return -EPROTO;
	spec.side = DR_FAULT_SERVER;
	dr_inject(&v->s, &spec, m->fault.id);
	return 0;
}

/* Paths that were lost are lost at both ends, whoever notices first. */
static void do_abort(struct server *v, const struct dr_message *m)
{
	v->aborted = true;
	if (v->s.local->n_failed)
		return;
	bool own = m->status == DR_EXIT_TRANSPORT;
	dr_record_reason(dr_record_errorf(v->s.rec, own ? m->status : DR_EXIT_PEER,
				 "client ended early with status %d: %s", m->status, m->text),
		own ? DR_REASON_NONE : DR_REASON_ENDED);
}

static int take(struct dr_session *s, const struct dr_message *m, struct dr_err *e)
{
	struct server *v = server_of(s);

	if (s->status)
		return 0;
	switch (m->kind) {
	case DR_MSG_PHASE:
		return do_phase(s, &m->phase, e);
	case DR_MSG_INJECT:
		return do_inject(v, m, e);
	case DR_MSG_UNDO:
		dr_inject_undo(s, m->fault.id);
		break;
	case DR_MSG_ABORT:
		do_abort(v, m);
		break;
	case DR_MSG_COLLECT:
		send_part(v, &(struct dr_message){ .kind = DR_MSG_PART, .token = m->token });
		break;
	case DR_MSG_FINISH:
		v->then = AFTER_FINISH;
		dr_local_snapshot(s->local);
		break;
	default:
		return dr_local_take(s->local, m, e); /* a server's own are ignored there */
	}
	return 0;
}

static void bad_message(struct dr_session *s, const struct dr_err *e)
{
	if (s->status)
		return;
	if (e->code == -ENOENT) {
		dr_debug("server", "%s", e->text);
		return;
	}
	dr_record_reason(
		dr_record_errorf(s->rec, DR_EXIT_PEER, "message of the client: %s", e->text),
		DR_REASON_PROTOCOL);
	dr_boot_server_drop(server_of(s)->boot);
}

static const struct dr_session_ops session_ops = { on_report, give_handles, take, bad_message,
	refuse, on_fault, NULL };

/* ---- the session and its end ---- */

static void on_ready(void *arg)
{
	struct server *v = server_of(arg);

	v->ready = true;
	dr_info("server", "client %s: %u GPUs, %u channels each", v->client, v->s.plan.n_gpus,
		v->s.local->n_channels);
}

static bool says_gone(enum dr_boot_cause cause)
{
	return cause == DR_BOOT_EOF || cause == DR_BOOT_RESET;
}

static void judge(struct server *v, enum dr_boot_cause cause, const char *text)
{
	const struct dr_session *s = &v->s;
	bool peer_gone = says_gone(cause) || (s->lost && says_gone(s->lost_cause));
	bool failed = s->local && s->local->n_failed;
	const char *what;
	int status;

	if (s->loop.signo)
		dr_record_errorf(s->rec, 128 + s->loop.signo, "%s", dr_loop_interrupted(&s->loop));
	else if (v->finished || v->aborted || s->status)
		; /* recorded already */
	else if (peer_gone)
		dr_record_reason(dr_record_errorf(s->rec, DR_EXIT_PEER, "client died: %s", text),
			DR_REASON_DIED);
	else if (!failed)
		dr_record_reason(dr_record_errorf(s->rec, DR_EXIT_PEER, "client: %s (%s)",
					 dr_boot_cause_text(cause), text),
			dr_session_reason(cause));
	if (peer_gone || !failed)
		return;
	status = dr_session_loss(s, s->local->fail_err, &what);
	dr_record_reason(dr_record_errorf(s->rec, status, "%s: %s", what, s->local->fail_text),
		status == DR_EXIT_PEER ? DR_REASON_PATHS : DR_REASON_NONE);
}

static void session_line(const struct server *v, int status)
{
	const struct dr_record *rec = v->s.rec;

	char gbps[32] = "", switches[40] = "";

	if (isfinite(rec->total.gbps))
		snprintf(gbps, sizeof(gbps), ", %.2f Gb/s", rec->total.gbps);
	if (rec->switches.n)
		snprintf(switches, sizeof(switches), ", %zu path switches", rec->switches.n);
	say(v, true, "client %s: %s, status %d%s%s", v->client,
		status == 0	? "done"
		: rec->errors.n ? rec->errors.v[0].text
				: "failed",
		status, gbps, switches);
}

/* A probe is over, and these NICs have not heard the client. */
static void tell_silent(const struct server *v)
{
	const struct dr_mtu_check *m = &v->mtu;

	for (unsigned i = 0; i < m->n_rails; i++) {
		const struct dr_plan_rail *own = &v->s.plan.rail[i][DR_PLAN_SERVER],
					  *there = &v->s.plan.rail[i][DR_PLAN_CLIENT];
		char why[300];

		if (dr_probe_answers(&v->s.plan, m, i))
			continue;
		dr_probe_why(&v->s.plan, m, i, why, sizeof(why));
		say(v, true, "client %s: %s %s, port %u: %s %s: %s", v->client, own->name,
			own->address, own->mtu_port,
			m->rail[i]->proven ? DR_LOSES_LARGE : "no connection from", there->address,
			why);
	}
}

static void close_session(struct server *v, enum dr_boot_cause cause, const char *text)
{
	struct dr_session *s = &v->s;

	v->open = false;
	if (!v->probed)
		judge(v, cause, text);
	else
		tell_silent(v);
	dr_mtu_check_close(&v->mtu);
	if (v->probed)
		return;
	dr_inject_end(s);
	if (s->local && !v->finished) {
		dr_local_results(s->local);
		dr_local_finish(s->local);
	}
	dr_local_destroy(s->local);
	s->local = NULL;
	dr_mem_trim();
	dr_inject_renew(s);
	if (s->opt->one_off && (!v->accepted || cause == DR_BOOT_EVICTED)) {
		if (v->accepted)
			say(v, true, "client %s: %s; waiting for another client (--one-off)",
				v->client, text);
		dr_record_reset(s->rec);
		return;
	}
	v->last_status = dr_output_finish(s->out, s->rec, NULL);
	if (!s->status && !s->opt->quiet)
		session_line(v, v->last_status);
	v->served++;
	v->quit = s->opt->one_off;
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct server *v = server_of(arg);

	if (v->open) {
		close_session(v, cause, text);
		log_prefix(v, false);
	}
}

/* Channels that ended: inform the client; drop it when it is unreachable or does not end the session. Likewise a client
 * that was told that the server gives up. */
static int64_t check_health(struct server *v, int64_t now)
{
	struct dr_session *s = &v->s;
	struct dr_message m = { .kind = DR_MSG_FAILED };
	bool gave_up = v->ready && s->status;

	if (!v->open || !s->local || (!s->local->n_failed && !gave_up))
		return DR_NEVER;
	if (!s->failed_ns)
		s->failed_ns = now;
	if (!v->told_failed && !gave_up) {
		v->told_failed = true;
		m.err = s->local->fail_err;
		snprintf(m.text, sizeof(m.text), "%s", s->local->fail_text);
		dr_session_send(s, &m);
	}
	int64_t until = s->failed_ns + (s->lost ? DR_SESSION_WHY_NS : CLIENT_ENDS_NS);
	if (now < until)
		return until;
	dr_boot_server_drop(v->boot);
	s->failed_ns = now;
	return now + DR_SESSION_WHY_NS;
}

/* A client that gives its control connection up closes its channels in order and cannot tell why: it will not come back,
 * unless it is about to lose its last message. */
static int64_t check_left(struct server *v, int64_t now)
{
	struct dr_session *s = &v->s;

	if (!v->open || !s->local || !s->lost || v->left)
		return DR_NEVER;
	if (now < v->look_ns)
		return v->look_ns;
	v->look_ns = now + LOOK_NS;
	if (s->local->snapshots_open == 0 && dr_local_all_closed(s->local)) {
		v->left = true;
		dr_boot_server_last(v->boot);
		return DR_NEVER;
	}
	dr_local_snapshot_live(s->local);
	return v->look_ns;
}

/* --max-session: the client is told, and dropped when it does not end the session (check_health). */
static int64_t check_time(struct server *v, int64_t now)
{
	struct dr_session *s = &v->s;
	struct dr_err e;

	if (!v->open || s->status || s->opt->max_session_ns == 0)
		return DR_NEVER;
	int64_t end = v->opened_ns + s->opt->max_session_ns;
	if (now < end)
		return end;
	if (v->probed) {
		dr_boot_server_drop(v->boot);
		return now + DR_SESSION_WHY_NS;
	}
	dr_err_set(&e, -ETIMEDOUT,
		"the session has taken %.3g s, the limit of the server (--max-session)",
		(double)s->opt->max_session_ns / 1e9);
	refuse(s, DR_EXIT_TIMEOUT, &e);
	return now;
}

/* --rails needs no client to be found wrong. */
static int check_rails(const struct dr_options *o, struct dr_err *e)
{
	struct dr_netdev_rail rails[DR_RAILS_MAX];
	char list[1024];

	if (!o->rails ||
		!dr_rails_rename(dr_transport_kind("verbs"), o->rails, list, sizeof(list), e))
		return 0;
	int rc = strcmp(list, "auto") ? dr_netdev_rails(list, NULL, rails, DR_RAILS_MAX, e) : 0;
	return DR_MIN(rc, 0);
}

static int listen_for_clients(struct server *v, struct dr_err *e)
{
	static const struct dr_boot_ops ops = { .on_offer = on_offer,
		.on_handles = dr_session_on_handles,
		.on_ready = on_ready,
		.on_message = dr_session_on_message,
		.on_lost = dr_session_on_lost,
		.on_resumed = dr_session_on_resumed,
		.on_closed = on_closed };
	const struct dr_options *o = v->s.opt;
	struct dr_boot_key key = { { 0 } };
	struct dr_boot_opts bo = { .gpus = o->gpus.v,
		.n_gpus = (unsigned)o->gpus.n,
		.port_base = (uint16_t)o->port,
		.bind = o->control,
		.key = o->key_file ? &key : NULL,
		.allow = o->allow.n ? &o->allow : NULL,
		.version = v->s.rec->version,
		.timing = { .resume_ns = o->timeout_ns } };
	int rc = o->key_file ? dr_boot_key_read(o->key_file, &key, e) : 0;

	if (rc == 0)
		rc = dr_boot_server_create(&v->boot, &bo, &ops, &v->s, v->s.loop.poller, e);
	explicit_bzero(&key, sizeof(key));
	if (rc == 0)
		v->s.control = dr_boot_server_control(v->boot);
	return rc;
}

static void turn(struct server *v)
{
	struct dr_session *s = &v->s;
	int64_t now = dr_now_ns();
	int64_t next = DR_MIN(dr_boot_server_deadline(v->boot), check_health(v, now));

	next = DR_MIN(next, check_left(v, now));
	next = DR_MIN(next, check_time(v, now));
	next = DR_MIN(next, dr_mtu_check_deadline(&v->mtu));
	size_t intervals = s->rec->intervals.n;

	if (s->local)
		next = DR_MIN(next, dr_local_deadline(s->local));
	dr_loop_turn(&s->loop, next);
	now = dr_now_ns();
	dr_boot_server_tick(v->boot, now);
	dr_mtu_check_tick(&v->mtu, now);
	if (!s->local)
		return;
	bool rows = dr_local_tick(s->local, now);
	if ((rows || s->rec->intervals.n > intervals) && !s->lost)
		send_part(v, &(struct dr_message){ .kind = DR_MSG_PART });
}

static bool unsent(const struct server *v)
{
	return v->open && !v->s.lost && dr_control_unacked(v->s.control) > 0;
}

/* A signal in the middle of a session: results so far, goodbye, end. */
static void end_session(struct server *v)
{
	int64_t deadline = dr_now_ns() + 500 * DR_NS_PER_MS;

	if (!v->open)
		return;
	dr_control_goodbye(v->s.control);
	while (v->open && dr_now_ns() < deadline) {
		dr_loop_turn(&v->s.loop, DR_MIN(dr_boot_server_deadline(v->boot), deadline));
		dr_boot_server_tick(v->boot, dr_now_ns());
	}
	if (v->open)
		on_closed(&v->s, DR_BOOT_LOCAL, "server ended");
}

static void serve_clients(struct server *v)
{
	const struct dr_options *o = v->s.opt;

	if (!o->quiet)
		say(v, false, "listening on port %u, %zu GPU%s, dualrail %s",
			dr_boot_server_port(v->boot, 0), o->gpus.n, o->gpus.n == 1 ? "" : "s",
			v->s.rec->version);
	if (!o->quiet && !o->key_file && !o->trusted)
		say(v, false,
			"no --key-file: serves any host that reaches this port, and who can alter packets "
			"controls the run; use it on a trusted network. Clients cannot request faults here");
	while (!v->quit && !v->s.loop.signo && (v->open || !v->s.inj.left))
		turn(v);
	for (int64_t until = dr_now_ns() + DR_NS_PER_S; unsent(v) && dr_now_ns() < until;)
		turn(v);
}

static void interrupted(struct server *v)
{
	int status = 128 + v->s.loop.signo;

	end_session(v);
	if (!v->served) {
		dr_record_errorf(v->s.rec, status, "%s", dr_loop_interrupted(&v->s.loop));
		dr_output_finish(v->s.out, v->s.rec, NULL);
	}
	v->last_status = status;
	if (!v->s.opt->quiet)
		say(v, false, "%s after %u run%s, status %d", dr_loop_interrupted(&v->s.loop),
			v->served, v->served == 1 ? "" : "s", status);
}

int dr_server_main(const struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct server v = { .s = { .opt = o,
				    .rec = rec,
				    .out = out,
				    .side = DR_PLAN_SERVER,
				    .ops = &session_ops } };
	struct dr_err e = { 0 };
	int rc = dr_session_open(&v.s, &e);

	rec->side = DR_END_SERVER;
	rc = rc ? rc : check_rails(o, &e);
	if (rc == 0)
		rc = listen_for_clients(&v, &e);
	if (rc == 0)
		rc = dr_rights_become(&v.s.rights, &e);
	if (rc) {
		dr_output_complain(out, e.text);
		dr_record_error(rec, DR_EXIT_ENV, &e);
		v.last_status = dr_output_finish(out, rec, NULL);
	} else {
		serve_clients(&v);
		/* Whoever watches over it shall undo the fault: doctor, or another start. */
		if (v.s.inj.left)
			v.last_status = DR_EXIT_ENV;
	}
	if (v.s.loop.signo)
		interrupted(&v);
	dr_boot_server_destroy(v.boot);
	dr_session_close(&v.s);
	return v.last_status;
}
