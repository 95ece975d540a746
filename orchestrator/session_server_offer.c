/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_server_priv.h"

#include "base/log.h"
#include "orchestrator/doctor/look.h"
#include "orchestrator/kinds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * From a client's offer to handles on both sides: a session begins here, or is refused.
 *  1. Everything of the session before is overwritten in on_offer, before anything can fail.
 *  2. What fails refuses the client with a reason and a status; the record has the same.
 *  3. doctor's question gets an answer and makes no session: no record, no line.
 */

static int refuse(struct dr_server *s, int status, const struct dr_err *e)
{
	fprintf(stderr, "client %s refused: %s\n", s->client, e->text);
	s->refused = true;
	s->last_status = status;
	dr_record_error(s->rec, status, e);
	dr_boot_server_refuse(s->boot, status, e->text);
	return -1;
}

static int match(struct dr_server *s, const json_t *params, const unsigned *gpus, unsigned n_gpus,
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

int dr_server_check_faults(struct dr_server *s, struct dr_err *e)
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

static int serve(struct dr_server *s, struct dr_err *e)
{
	struct dr_boot_handle h[DR_PLAN_HANDLES_MAX];
	unsigned n = dr_plan_n_handles(&s->plan);
	json_t *reply = dr_plan_reply(&s->plan);
	int rc = reply ? dr_boot_server_accept(s->boot, reply, n, n) : -ENOMEM;

	json_decref(reply);
	if (rc)
		return dr_err_set(e, rc, "accept: %s", strerror(-rc));
	rc = dr_node_create(&s->node, s->opt, &s->plan, DR_PLAN_SERVER,
		dr_control_token(s->control), &s->loop, s->rec, s->out, &dr_server_node_ops, s, e);
	for (unsigned k = 0; rc == 0 && k < s->plan.n_gpus; k++) {
		rc = dr_node_handles(s->node, k, h, n);
		if (rc == 0)
			rc = dr_boot_server_handles(s->boot, k, h, n);
		if (rc)
			dr_err_set(e, rc, "handles: %s", strerror(-rc));
	}
	return rc ? rc : dr_node_start(s->node, e);
}

static void begin_record(struct dr_server *s)
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
	struct dr_server *s, const json_t *params, const unsigned *gpus, unsigned n_gpus)
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

void dr_server_on_offer(void *arg, const json_t *params, const unsigned *gpus, unsigned n_gpus)
{
	struct dr_server *s = arg;
	struct dr_err e = { 0 };

	s->open = true;
	s->finished = s->aborted = s->refused = s->lost = s->told_failed = s->looked = false;
	s->failed_ns = 0;
	s->fault_client = s->fault_own = 0;
	s->then = DR_AFTER_NOTHING;
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
	if (dr_server_check_faults(s, &e) || serve(s, &e)) {
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

void dr_server_on_handles(void *arg, unsigned k, const struct dr_boot_handle *handles, unsigned n)
{
	struct dr_server *s = arg;
	struct dr_err e;

	if (s->refused || !s->node)
		return;
	/* Starting the worker may fail for reasons of our own: memory, most of all. */
	if (dr_node_connect(s->node, k, handles, n, &e))
		refuse(s, e.code == -EPROTO ? DR_EXIT_PEER : DR_EXIT_ENV, &e);
}
