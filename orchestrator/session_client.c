/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "orchestrator/affinity.h"
#include "orchestrator/campaign.h"

#include <errno.h>
#include <stdio.h>

/*
 * The client's run in a straight line: look at this machine, dial, wait for data paths, measure, wind up.
 *  1. Once dialled, every way out leads through wind_up: faults undone, what was measured kept, the
 *     server told. Then the record is written.
 *  2. Errors are said once, at the end, from the record.
 */

#define GOODBYE_NS (500 * DR_NS_PER_MS)

static int check_faults(struct dr_client *c, struct dr_err *e)
{
	const struct dr_fault_list *l = &c->faults;
	char line[256];
	int rc;

	if (!c->opt->test.failover)
		return 0;
	rc = dr_campaign_faults(c->opt, &c->inj, &c->plan, &c->route, &c->faults, e);
	for (unsigned i = 0; rc == 0 && c->opt->dry_run && i < l->n; i++) {
		if (l->v[i].side == DR_FAULT_SERVER) {
			dr_fault_spec_format(&l->v[i], line, sizeof(line));
			printf("server: %s\n", line);
			continue;
		}
		dr_fault_describe(&l->v[i], dr_inject_nic(&l->v[i], &c->plan, DR_PLAN_CLIENT),
			&c->opt->execs, line, sizeof(line));
		printf("client: %s\n", line);
	}
	return rc;
}

/* --dry-run: which rails each GPU would use; the server's answer may leave some out. */
static void print_plan(struct dr_client *c)
{
	char line[256];

	for (unsigned k = 0; k < c->plan.n_gpus; k++) {
		c->plan.gpu[k][DR_PLAN_SERVER] = c->plan.gpu[k][DR_PLAN_CLIENT];
		dr_plan_describe(&c->plan, DR_PLAN_CLIENT, k, line, sizeof(line));
		printf("%s\n", line);
	}
	if (c->opt->matrix)
		dr_client_matrix_announce(c, stdout);
}

static int prepare(struct dr_client *c, struct dr_err *e)
{
	int rc = dr_loop_init(&c->loop, e);

	if (rc == 0)
		rc = dr_injector_init(&c->inj, c->opt, c->loop.poller, e);
	if (rc)
		return rc;
	c->inj.report = dr_client_on_fault;
	c->inj.arg = c;
	rc = dr_route_to_host(c->opt->host, &c->route, e);
	if (rc == -ENXIO || rc == -ENETUNREACH || rc == -EHOSTUNREACH)
		dr_client_end(c, DR_EXIT_PEER, "%s", e->text);
	if (rc == 0)
		rc = dr_affinity_load(c->opt, &c->topo, e);
	if (rc == 0)
		rc = dr_client_plan(c->opt, &c->route, c->topo, &c->plan, e);
	if (rc == -EINVAL)
		dr_client_end(c, DR_EXIT_USAGE, "%s", e->text);
	if (rc == 0 && c->opt->dry_run)
		print_plan(c);
	return rc ? rc : check_faults(c, e);
}

static bool connected(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->ready;
}

static bool data_ready(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->node->n_ready == c->plan.n_gpus && c->peer_up;
}

static bool finished(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->finished;
}

static bool over(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->gone;
}

static void describe_memory(struct dr_client *c)
{
	char line[320];

	dr_node_memory(c->node);
	if (!c->opt->quiet && dr_node_describe_memory(c->node, line, sizeof(line)))
		fprintf(dr_output_tables(c->out), "%s\n", line);
}

static void connect_and_measure(struct dr_client *c)
{
	int rc = dr_client_wait(c, connected, NULL,
		dr_now_ns() + c->opt->connect_timeout_ns + c->opt->timeout_ns, false);

	if (rc == 0)
		rc = dr_client_wait(
			c, data_ready, NULL, dr_now_ns() + c->opt->connect_timeout_ns, false);
	if (rc == -ETIMEDOUT && c->node) {
		if (dr_client_snapshot(c) == 0)
			dr_node_stall_report(c->node, "data paths");
		dr_client_end(c, DR_EXIT_PEER,
			"the data paths of %u of %u GPUs here%s did not come up; check --rails and "
			"firewalls (--data-ports)",
			c->plan.n_gpus - c->node->n_ready, c->plan.n_gpus,
			c->peer_up ? "" : ", and some at the server,");
	} else if (rc == -ETIMEDOUT) {
		dr_client_end(
			c, DR_EXIT_PEER, "server %s did not complete the exchange", c->opt->host);
	}
	if (rc)
		return;
	describe_memory(c);
	dr_client_phases(c);
	if (c->status)
		return;
	dr_client_send(c, json_pack("{s:s}", "t", "finish"));
	rc = dr_client_wait(c, finished, NULL, dr_now_ns() + c->opt->timeout_ns, true);
	if (rc)
		dr_client_end(c, DR_EXIT_PEER, "the server's results did not come");
}

/* Everything undone, what was measured kept, the server told. */
static void wind_up(struct dr_client *c)
{
	int rc = 0;

	c->ending = true;
	dr_output_progress(c->out, NULL);
	c->progress_what[0] = 0;
	if (c->fault_injected && !c->fault_undone && c->server_fault_id)
		dr_client_send(c,
			json_pack("{s:s, s:I}", "t", "undo", "id", (json_int_t)c->server_fault_id));
	if (c->node && c->status && !c->gone)
		dr_client_send(
			c, json_pack("{s:s, s:i, s:s}", "t", "abort", "status", c->status, "text",
				   c->rec->errors.n ? c->rec->errors.v[0].text : ""));
	dr_injector_fini(&c->inj);
	if (c->node) {
		dr_client_salvage(c);
		dr_client_last_snapshot(c);
		dr_node_finish(c->node);
	}
	if (c->boot && !c->gone) {
		dr_control_goodbye(c->control);
		rc = dr_client_wait(c, over, NULL, dr_now_ns() + GOODBYE_NS, false);
	}
	(void)rc;
}

static void fill_record(struct dr_client *c)
{
	struct dr_record *r = c->rec;

	r->side = DR_END_CLIENT;
	snprintf(r->detection.mode, sizeof(r->detection.mode), "%s",
		c->opt->detect == DR_DETECT_FAST ? "fast" : "conservative");
	snprintf(r->detection.transport, sizeof(r->detection.transport), "%s", c->opt->transport);
	r->detection.heartbeat_ns = c->opt->heartbeat_ns;
	r->detection.hold_down_ns = c->opt->hold_down_ns;
	r->detection.failback = c->opt->failback;
}

static int thresholds(struct dr_client *c, struct dr_thresholds *t, struct dr_err *e)
{
	dr_thresholds_init(t);
	t->baseline = dr_output_baseline(c->out);
	if (c->opt->max_gap_ns)
		t->max_gap_ns = c->opt->max_gap_ns;
	return c->opt->min_bw ? dr_thresholds_parse_min_bw(t, c->opt->min_bw, e) : 0;
}

int dr_client_main(const struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_client *c = dr_calloc(1, sizeof(*c));
	struct dr_thresholds t;
	struct dr_err e = { 0 };
	int rc;

	if (!c) {
		fprintf(stderr, "dualrail: client: out of memory\n");
		return DR_EXIT_ENV;
	}
	c->opt = o;
	c->rec = rec;
	c->out = out;
	c->inj.po.fd = c->loop.sig.fd = -1;
	fill_record(c);
	rc = thresholds(c, &t, &e);
	if (rc)
		dr_client_end(c, DR_EXIT_USAGE, "%s", e.text);
	if (rc == 0)
		rc = prepare(c, &e);
	if (rc == 0 && !o->dry_run) {
		dr_output_start(out, rec);
		rc = dr_client_dial(c, &e);
		if (rc == -ENXIO)
			dr_client_end(c, DR_EXIT_PEER, "%s", e.text);
	}
	if (rc)
		dr_client_end(c, DR_EXIT_ENV, "%s", e.text);
	if (rc == 0 && !o->dry_run)
		connect_and_measure(c);
	if (c->boot)
		wind_up(c);
	else if (c->loop.poller)
		dr_injector_fini(&c->inj);
	for (size_t i = 0; i < rec->errors.n && rec->errors.v[i].text[0]; i++)
		fprintf(stderr, "dualrail: %s\n", rec->errors.v[i].text);
	/* A dry run that found no mistake has no result to write. */
	rc = o->dry_run && !rec->errors.n ? 0 : dr_output_finish(out, rec, &t);
	dr_node_destroy(c->node);
	dr_boot_client_destroy(c->boot);
	if (c->loop.poller)
		dr_loop_fini(&c->loop);
	dr_topo_destroy(c->topo);
	dr_free(c);
	return rc;
}
