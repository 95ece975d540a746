/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_server_priv.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

/*
 * What both ends say once the session is open; session_client.h has the messages.
 *  1. A message that makes no sense ends the session; one that is not known is passed over.
 *  2. Rows go out with the snapshot that they need: `then` is what the next one is for.
 */

void dr_server_send(struct dr_server *s, json_t *msg)
{
	int rc = msg ? dr_control_send(s->control, msg) : -ENOMEM;

	json_decref(msg);
	if (rc && rc != -ENOTCONN)
		dr_warn("server", "control connection: %s", strerror(-rc));
}

void dr_server_send_part(struct dr_server *s, const char *t, json_t *more)
{
	json_t *part = dr_record_part(s->rec, &s->mark);
	json_t *msg = json_pack("{s:s, s:o}", "t", t, "part", part);

	if (msg && more)
		json_object_update(msg, more);
	json_decref(more);
	dr_server_send(s, msg);
}

static void send_done(struct dr_server *s)
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
	dr_server_send_part(s, "done", more);
}

static void on_report(void *arg, const struct dr_report *rep)
{
	struct dr_server *s = arg;

	if (rep->kind == DR_REP_READY && s->node->n_ready == s->plan.n_gpus)
		dr_server_send(s, json_pack("{s:s}", "t", "up"));
	if (rep->kind == DR_REP_PHASE_DONE && s->then == DR_AFTER_NOTHING && s->node->phase_open &&
		dr_node_phase_over(s->node)) {
		s->then = DR_AFTER_DONE;
		dr_node_snapshot(s->node);
	} else if (rep->kind == DR_REP_SNAPSHOT && s->node->snapshots_open == 0) {
		enum dr_after_snapshot then = s->then;

		s->then = DR_AFTER_NOTHING;
		if (then == DR_AFTER_DONE)
			send_done(s);
		if (then == DR_AFTER_FINISH) {
			dr_node_finish(s->node);
			s->finished = true;
			dr_server_send_part(s, "finish", NULL);
		}
	}
}

static void on_sent(void *arg, unsigned position, const uint64_t *totals, unsigned n)
{
	struct dr_server *s = arg;
	json_t *list = json_array();

	for (unsigned i = 0; list && i < n; i++)
		json_array_append_new(list, json_integer((json_int_t)totals[i]));
	dr_server_send(s,
		json_pack("{s:s, s:i, s:o}", "t", "expect", "gpu", (int)position, "totals", list));
}

const struct dr_node_ops dr_server_node_ops = { on_report, on_sent };

static int do_phase(struct dr_server *s, const json_t *msg)
{
	struct dr_phase p;

	if (dr_phase_from_json(json_object_get(msg, "phase"), &p) || s->node->phase_open ||
		p.chunk_bytes > s->plan.chunk_max || !dr_plan_fits_phase(&s->plan, &p))
		return -EPROTO;
	dr_node_phase(s->node, &p);
	dr_server_send(s, json_pack("{s:s, s:i}", "t", "phase-ok", "index", (int)p.index));
	return 0;
}

static int do_expect(struct dr_server *s, const json_t *msg)
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
	struct dr_server *s, bool undo, int err, int64_t before, int64_t after, const char *text)
{
	dr_server_send(s, json_pack("{s:s, s:I, s:b, s:i, s:I, s:I, s:s%}", "t", "fault", "id",
				  (json_int_t)s->fault_client, "undo", undo, "err", err,
				  "before_ns", (json_int_t)before, "after_ns", (json_int_t)after,
				  "text", text, strlen(text)));
}

void dr_server_on_fault(void *arg, const struct dr_fault_report *rep)
{
	struct dr_server *s = arg;

	if (s->open && rep->id == s->fault_own)
		send_fault(s, rep->undo, rep->err, rep->before_ns, rep->after_ns, rep->text);
}

static int do_inject(struct dr_server *s, const json_t *msg)
{
	const char *text = json_string_value(json_object_get(msg, "spec"));
	struct dr_fault_spec spec;
	struct dr_err e = { 0 };
	int rc;

	s->fault_client = (uint32_t)json_integer_value(json_object_get(msg, "id"));
	if (!text || dr_fault_spec_parse(text, &spec, &e))
		return -EPROTO;
	rc = dr_server_check_faults(s, &e);
	if (rc == 0 && !s->plan.server_faults)
		rc = dr_err_set(&e, -EACCES, "faults at the server were not announced");
	if (rc == 0)
		rc = dr_injector_inject(&s->inj, s->node, &spec, &s->route, &s->fault_own, &e);
	if (rc)
		send_fault(s, false, rc, 0, 0, e.text);
	return 0;
}

static int do_undo(struct dr_server *s, const json_t *msg)
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
static int do_abort(struct dr_server *s, const json_t *msg)
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

static int take(struct dr_server *s, const char *t, const json_t *msg)
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
		dr_server_send_part(s, "part", json_pack("{s:I}", "token", n));
	} else if (strcmp(t, "finish") == 0) {
		s->then = DR_AFTER_FINISH;
		dr_node_snapshot(s->node);
	} else {
		dr_debug("server", "unknown message \"%.32s\"", t);
	}
	return 0;
}

void dr_server_on_message(void *arg, const json_t *msg)
{
	struct dr_server *s = arg;
	const char *t = json_string_value(json_object_get(msg, "t"));

	if (!s->node || s->refused)
		return;
	if (!t || take(s, t, msg)) {
		dr_record_errorf(s->rec, DR_EXIT_PEER, "client sent a message that makes no sense");
		dr_boot_server_drop(s->boot);
	}
}
