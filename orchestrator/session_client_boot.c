/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client_priv.h"

#include "base/log.h"
#include "orchestrator/affinity.h"
#include "orchestrator/kinds.h"
#include "orchestrator/session_dial.h"
#include "topology/numa.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * From the dial to handles on both sides, and what becomes of the control connection afterwards.
 *  1. The node is made when the server has accepted: until then nothing is known of its rails and GPUs.
 *  2. What fails in a callback ends the run and drops the conversation; it is never thrown on.
 *  3. lost: down now; gone: down for good; dead: the server's process is known not to be there.
 */

static void on_report(void *arg, const struct dr_report *rep)
{
	(void)arg;
	(void)rep;
}

static void on_sent(void *arg, unsigned position, const uint64_t *totals, unsigned n)
{
	struct dr_client *c = arg;
	json_t *list = json_array();

	for (unsigned i = 0; list && i < n; i++)
		json_array_append_new(list, json_integer((json_int_t)totals[i]));
	dr_client_send(c,
		json_pack("{s:s, s:i, s:o}", "t", "expect", "gpu", (int)position, "totals", list));
}

static const struct dr_node_ops node_ops = { on_report, on_sent };

static void describe_plan(struct dr_client *c)
{
	struct dr_manager_params mp;
	char line[256];

	dr_plan_manager(&c->plan, DR_PLAN_CLIENT, 0, &mp);
	dr_kind_manager(c->node->kind, &mp);
	c->rec->detection.bound_ns = dr_manager_detect_bound(&mp);
	c->rec->detection.lost_after_ns = c->plan.lost_after_ns;
	for (unsigned k = 0; k < c->plan.n_gpus; k++) {
		dr_plan_describe(&c->plan, DR_PLAN_CLIENT, k, line, sizeof(line));
		if (!c->opt->quiet)
			fprintf(dr_output_tables(c->out), "%s\n", line);
	}
	if (c->opt->quiet)
		return;
	for (unsigned i = 0; i < c->plan.n_rails; i++)
		if (dr_plan_describe_routed(&c->plan, i, line, sizeof(line)))
			fprintf(dr_output_tables(c->out), "%s\n", line);
	dr_affinity_describe(c->opt, &c->plan, DR_PLAN_CLIENT, dr_numa_nodes(), line, sizeof(line));
	fprintf(dr_output_tables(c->out), "%s\n", line);
	if (c->plan.n_rails == 1)
		fprintf(dr_output_tables(c->out),
			"one rail only: every channel is unprotected, a lost link ends the run\n");
}

static int send_handles(struct dr_client *c)
{
	struct dr_boot_handle h[DR_PLAN_HANDLES_MAX];
	unsigned n = dr_node_handle_count(c->node);

	for (unsigned k = 0; k < c->plan.n_gpus; k++) {
		int rc = dr_node_handles(c->node, k, h, n);

		if (rc == 0)
			rc = dr_boot_client_handles(c->boot, k, h, n);
		if (rc)
			return rc;
	}
	return 0;
}

static int accepted(struct dr_client *c, const json_t *reply, const unsigned *gpus, unsigned pairs,
	struct dr_err *e)
{
	const char *addresses[DR_RAILS_MAX];
	int rc = dr_plan_read_reply(&c->plan, reply, e);

	if (rc)
		return rc;
	c->plan.n_gpus = pairs;
	c->plan.n_map = DR_MIN(c->plan.n_map, pairs);
	for (unsigned k = 0; k < pairs; k++)
		c->plan.gpu[k][DR_PLAN_SERVER] = gpus[k];
	rc = dr_plan_settle(&c->plan, e);
	if (rc)
		return rc;
	for (unsigned i = 0; i < c->plan.n_rails; i++)
		addresses[i] = c->plan.rail[i][DR_PLAN_SERVER].address;
	if (dr_boot_client_alternatives(c->boot, addresses, c->plan.n_rails, e))
		dr_info("client", "control will not be resumed over the rails: %s", e->text);
	snprintf(c->rec->peer_version, sizeof(c->rec->peer_version), "%s",
		dr_control_peer_version(c->control));
	rc = dr_node_create(&c->node, c->opt, &c->plan, DR_PLAN_CLIENT,
		dr_control_token(c->control), &c->loop, c->rec, c->out, &node_ops, c, e);
	if (rc)
		return rc;
	describe_plan(c);
	rc = send_handles(c);
	return rc ? dr_err_set(e, rc, "handles: %s", strerror(-rc)) : dr_node_start(c->node, e);
}

static void on_accept(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
	unsigned handles_out, unsigned handles_in)
{
	struct dr_client *c = arg;
	struct dr_err e = { 0 };
	int rc;

	rc = pairs < 1 || pairs > c->plan.n_gpus
		     ? dr_err_set(&e, -EPROTO, "server: %u GPUs for our %u", pairs, c->plan.n_gpus)
		     : accepted(c, reply, gpus, pairs, &e);
	if (rc == 0 && (handles_out != dr_plan_n_handles(&c->plan) || handles_in != handles_out))
		rc = dr_err_set(&e, -EPROTO, "server wants %u handles, these are %u", handles_out,
			dr_plan_n_handles(&c->plan));
	if (rc) {
		dr_client_end(c, rc == -EPROTO ? DR_EXIT_PEER : DR_EXIT_ENV, "%s", e.text);
		dr_boot_client_drop(c->boot);
	}
}

static void on_handles(void *arg, unsigned k, const struct dr_boot_handle *handles, unsigned n)
{
	struct dr_client *c = arg;
	struct dr_err e;

	if (c->status || !c->node)
		return;
	/* Starting the worker may fail for reasons of our own. */
	if (dr_node_connect(c->node, k, handles, n, &e))
		dr_client_end(c, e.code == -EPROTO ? DR_EXIT_PEER : DR_EXIT_ENV, "%s", e.text);
}

static void on_ready(void *arg)
{
	struct dr_client *c = arg;

	c->ready = true;
}

static void on_lost(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct dr_client *c = arg;

	c->lost = true;
	c->lost_cause = cause;
	dr_record_eventf(c->rec, "control", "lost: %s", text);
	dr_info("client", "control connection lost: %s", text);
}

static void on_resumed(void *arg)
{
	struct dr_client *c = arg;

	c->lost = false;
	dr_record_eventf(c->rec, "control", "resumed with %s", dr_control_peer(c->control));
	dr_info("client", "control connection resumed");
}

static void on_failed(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *err)
{
	struct dr_client *c = arg;

	(void)cause;
	c->gone = true;
	dr_client_end(c, code > 0 ? code : DR_EXIT_PEER, "%s", err->text);
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct dr_client *c = arg;

	c->gone = c->lost = true;
	c->lost_cause = cause;
	if (cause != DR_BOOT_LOCAL && !c->ending)
		dr_record_eventf(c->rec, "control", "closed: %s", text);
	/* A server of 0.1.0 gives its last handles away before it finds that it cannot run. */
	if (cause == DR_BOOT_DECLINED && !c->ending)
		dr_client_end(c, DR_EXIT_ENV, "%s", text);
	if (dr_client_peer_dead(cause))
		c->dead = true;
}

static const struct dr_boot_client_ops boot_ops = { on_accept, on_handles, on_ready,
	dr_client_on_message, on_lost, on_resumed, on_failed, on_closed };

int dr_client_dial(struct dr_client *c, struct dr_err *e)
{
	struct dr_dial d = { .opt = c->opt,
		.pair = c->opt->pair,
		.patience_ns = c->opt->connect_timeout_ns,
		.ops = &boot_ops,
		.arg = c,
		.poller = c->loop.poller };
	int rc = dr_dial(&d, dr_plan_offer(&c->plan), &c->boot, e);

	if (rc == 0)
		c->control = dr_boot_client_control(c->boot);
	return rc;
}
