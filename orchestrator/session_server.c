/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_server_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/affinity.h"

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

static void on_ready(void *arg)
{
	struct dr_server *s = arg;

	dr_info("server", "client %s: %u GPUs, %u channels each", s->client, s->plan.n_gpus,
		s->node->n_channels);
}

static void on_lost(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct dr_server *s = arg;

	s->lost = true;
	s->lost_cause = cause;
	dr_record_eventf(s->rec, "control", "lost: %s", text);
}

static void on_resumed(void *arg)
{
	struct dr_server *s = arg;

	s->lost = false;
	dr_record_eventf(s->rec, "control", "resumed");
}

static void judge(struct dr_server *s, enum dr_boot_cause cause, const char *text)
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

static void session_line(struct dr_server *s, int status)
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
	struct dr_server *s = arg;
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

static const struct dr_boot_server_ops boot_ops = { dr_server_on_offer, dr_server_on_handles,
	on_ready, dr_server_on_message, on_lost, on_resumed, on_closed };

/* Channels that ended: tell the client; when it cannot be told, or does not act on it, let go. */
static int64_t check_health(struct dr_server *s, int64_t now)
{
	if (!s->open || !s->node || !s->node->n_failed)
		return DR_NEVER;
	if (!s->failed_ns)
		s->failed_ns = now;
	if (!s->told_failed) {
		s->told_failed = true;
		dr_server_send(
			s, json_pack("{s:s, s:i, s:s%}", "t", "failed", "err", s->node->fail_err,
				   "text", s->node->fail_text, strlen(s->node->fail_text)));
	}
	int64_t until = s->failed_ns + (s->lost ? WHY_NS : CLIENT_ENDS_NS);
	if (now < until)
		return until;
	dr_boot_server_drop(s->boot);
	s->failed_ns = now;
	return now + WHY_NS;
}

static int listen_for_clients(struct dr_server *s, struct dr_err *e)
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

static void turn(struct dr_server *s)
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
		dr_server_send_part(s, "part", json_pack("{s:i}", "token", 0));
}

static bool unsent(const struct dr_server *s)
{
	return s->open && !s->lost && dr_control_unacked(s->control) > 0;
}

/* A signal in the middle of a session: results so far, goodbye, end. */
static void end_session(struct dr_server *s)
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
	struct dr_server *s = dr_calloc(1, sizeof(*s));
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
	s->inj.report = dr_server_on_fault;
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
