/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * What both ends say once the session is open; session_client.h has the messages. A message only notes
 * what it says in the struct dr_client, where a wait looks for it; none of them ends the run by itself
 * but "failed", by way of the health that each wait looks at.
 */

void dr_client_send(struct dr_client *c, json_t *msg)
{
	int rc = msg ? dr_control_send(c->control, msg) : -ENOMEM;

	json_decref(msg);
	if (rc && rc != -ENOTCONN)
		dr_client_end(c, DR_EXIT_PEER, "control connection: %s", strerror(-rc));
}

/* Rows that came are shown as they come. */
static void merge(struct dr_client *c, const json_t *part)
{
	size_t i = c->rec->intervals.n, s = c->rec->switches.n;
	struct dr_err e;

	if (!part)
		return;
	if (dr_record_merge(c->rec, part, &e))
		dr_warn("client", "results of the server: %s", e.text);
	for (; i < c->rec->intervals.n; i++)
		dr_output_interval(c->out, &c->rec->intervals.v[i]);
	for (; s < c->rec->switches.n; s++)
		dr_output_switch(c->out, &c->rec->switches.v[s]);
}

static void on_expect(struct dr_client *c, const json_t *msg)
{
	const json_t *list = json_object_get(msg, "totals");
	json_int_t position = json_integer_value(json_object_get(msg, "gpu"));
	uint64_t totals[DR_CHANNELS_MAX] = { 0 };
	size_t n = json_array_size(list);

	if (position < 0 || position >= c->plan.n_gpus || n != c->node->n_channels)
		return;
	for (size_t i = 0; i < n; i++)
		totals[i] = (uint64_t)json_integer_value(json_array_get(list, i));
	dr_node_expect(c->node, (unsigned)position, totals, (unsigned)n);
}

static void on_done(struct dr_client *c, const json_t *msg)
{
	json_int_t p50 = DR_UNSET, p99 = DR_UNSET, index = -1;

	json_unpack((json_t *)msg, "{s:I, s?I, s?I}", "index", &index, "cadence_p50_ns", &p50,
		"cadence_p99_ns", &p99);
	merge(c, json_object_get(msg, "part"));
	c->phase_done = (unsigned)index + 1;
	c->cadence_p50_ns = p50;
	c->cadence_p99_ns = p99;
}

void dr_client_on_fault(void *arg, const struct dr_fault_report *rep)
{
	struct dr_client *c = arg;

	if (rep->id != c->fault_id)
		return;
	if (rep->undo) {
		c->undone = *rep;
		c->fault_undone = true;
	} else {
		c->injected = *rep;
		c->fault_injected = true;
	}
}

static void on_server_fault(struct dr_client *c, const json_t *msg)
{
	struct dr_fault_report rep = { 0 };
	json_int_t id = 0, before = 0, after = 0;
	const char *text = "";
	int undo = 0;

	if (json_unpack((json_t *)msg, "{s:I, s:b, s:i, s:I, s:I, s:s}", "id", &id, "undo", &undo,
		    "err", &rep.err, "before_ns", &before, "after_ns", &after, "text", &text))
		return;
	rep.id = (uint32_t)id;
	rep.undo = undo;
	rep.before_ns = before;
	rep.after_ns = after;
	snprintf(rep.text, sizeof(rep.text), "%s", text);
	if (rep.id == c->server_fault_id) {
		rep.id = c->fault_id;
		dr_client_on_fault(c, &rep);
	}
}

void dr_client_on_message(void *arg, const json_t *msg)
{
	struct dr_client *c = arg;
	const char *t = json_string_value(json_object_get(msg, "t"));

	if (!t || !c->node)
		return;
	if (strcmp(t, "up") == 0) {
		c->peer_up = true;
	} else if (strcmp(t, "phase-ok") == 0) {
		c->phase_ok = (unsigned)json_integer_value(json_object_get(msg, "index")) + 1;
	} else if (strcmp(t, "expect") == 0) {
		on_expect(c, msg);
	} else if (strcmp(t, "done") == 0) {
		on_done(c, msg);
	} else if (strcmp(t, "fault") == 0) {
		on_server_fault(c, msg);
	} else if (strcmp(t, "part") == 0 || strcmp(t, "finish") == 0) {
		merge(c, json_object_get(msg, "part"));
		if (t[0] == 'f')
			c->finished = true;
		else
			c->collected = DR_MAX(c->collected,
				(uint64_t)json_integer_value(json_object_get(msg, "token")));
	} else if (strcmp(t, "failed") == 0) {
		const char *text = json_string_value(json_object_get(msg, "text"));

		c->peer_err = (int)json_integer_value(json_object_get(msg, "err"));
		snprintf(c->peer_text, sizeof(c->peer_text), "server: %s", text ? text : "?");
		c->peer_failed = true;
	} else {
		dr_debug("client", "unknown message \"%.32s\"", t);
	}
}

static bool collected(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->collected >= c->collect_token;
}

int dr_client_collect(struct dr_client *c, int64_t deadline_ns)
{
	dr_client_send(c,
		json_pack("{s:s, s:I}", "t", "collect", "token", (json_int_t)++c->collect_token));
	return dr_client_wait(c, collected, NULL, deadline_ns, true);
}
