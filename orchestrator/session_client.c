/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/affinity.h"
#include "orchestrator/campaign.h"
#include "orchestrator/kinds.h"
#include "topology/numa.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* From the first channel that ended until it is clear why: a dead peer's FIN on the control
 * connection may come a little later than those on the data paths. */
#define WHY_NS (400 * DR_NS_PER_MS)
#define PROGRESS_NS (250 * DR_NS_PER_MS)
/* Nothing acknowledged on any rail for so long: both are lost. */
#define LOST_AFTER_NS (1500 * DR_NS_PER_MS)
#define GOODBYE_NS (500 * DR_NS_PER_MS)

void dr_client_end(struct dr_client *c, int status, const char *fmt, ...)
{
	struct dr_err e = { 0 };
	va_list ap;

	if (c->status)
		return;
	va_start(ap, fmt);
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	c->status = status;
	dr_record_error(c->rec, status, &e);
}

void dr_client_send(struct dr_client *c, json_t *msg)
{
	int rc = msg ? dr_control_send(c->control, msg) : -ENOMEM;

	json_decref(msg);
	if (rc && rc != -ENOTCONN)
		dr_client_end(c, DR_EXIT_PEER, "control connection: %s", strerror(-rc));
}

/* ---- health ---- */

static bool peer_is_dead(enum dr_boot_cause cause)
{
	return cause == DR_BOOT_REFUSED || cause == DR_BOOT_GONE || cause == DR_BOOT_EOF ||
	       cause == DR_BOOT_RESET || cause == DR_BOOT_GOODBYE;
}

static void channels_ended(struct dr_client *c, int64_t now)
{
	const char *text = c->node->n_failed ? c->node->fail_text : c->peer_text;
	int err = c->node->n_failed ? c->node->fail_err : c->peer_err;
	bool both = c->node->n_failed && c->peer_failed;

	if (!c->failed_ns)
		c->failed_ns = now;
	if (c->dead || (c->lost && peer_is_dead(c->lost_cause)))
		dr_client_end(c, DR_EXIT_PEER, "server %s died: %s; %s",
			dr_control_peer(c->control), dr_boot_cause_text(c->lost_cause), text);
	else if (now - c->failed_ns >= WHY_NS)
		dr_client_end(c, DR_EXIT_TRANSPORT, "%s: %s%s%s",
			err == -ENETDOWN ? "both paths lost" : "channel ended", text,
			both ? "; " : "", both ? c->peer_text : "");
}

static void check_health(struct dr_client *c, int64_t now)
{
	if (c->loop.signo)
		dr_client_end(c, 128 + c->loop.signo, "ended by %s", strsignal(c->loop.signo));
	else if (c->node && (c->node->n_failed || c->peer_failed))
		channels_ended(c, now);
	else if (c->dead)
		dr_client_end(c, DR_EXIT_PEER, "server died or ended the session: %s",
			dr_boot_cause_text(c->lost_cause));
}

static void progress(struct dr_client *c, int64_t now)
{
	struct dr_node_flow f;
	char line[160];

	if (!c->node || !c->progress_what[0] || c->opt->quiet || now - c->progress_ns < PROGRESS_NS)
		return;
	dr_node_flow(c->node, &f);
	if (c->progress_ns && f.tx_bytes + f.rx_bytes >= c->progress_bytes) {
		snprintf(line, sizeof(line), "%s: %.2f Gb/s", c->progress_what,
			(double)(f.tx_bytes + f.rx_bytes - c->progress_bytes) * 8 /
				(double)(now - c->progress_ns));
		dr_output_progress(c->out, line);
	}
	c->progress_ns = now;
	c->progress_bytes = f.tx_bytes + f.rx_bytes;
}

int dr_client_wait(struct dr_client *c, dr_client_until until, const void *arg, int64_t deadline_ns,
	bool needs_server)
{
	for (;;) {
		int64_t now = dr_now_ns(), next = deadline_ns;

		if (!c->ending)
			check_health(c, now);
		if (c->status && !c->ending)
			return -ECANCELED;
		if (until && until(c, arg))
			return 0;
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (needs_server && c->gone && !c->ending)
			return -ENOTCONN;
		next = DR_MIN(next, dr_boot_client_deadline(c->boot));
		if (c->node)
			next = DR_MIN(next, dr_node_deadline(c->node));
		if (c->failed_ns && !c->ending)
			next = DR_MIN(next, c->failed_ns + WHY_NS);
		if (c->progress_what[0])
			next = DR_MIN(next, now + PROGRESS_NS);
		dr_loop_turn(&c->loop, next);
		now = dr_now_ns();
		dr_boot_client_tick(c->boot, now);
		if (c->node)
			dr_node_tick(c->node, now);
		progress(c, now);
	}
}

int dr_client_sleep(struct dr_client *c, int64_t ns)
{
	int rc = dr_client_wait(c, NULL, NULL, dr_now_ns() + ns, false);

	return rc == -ETIMEDOUT ? 0 : rc;
}

/* ---- what the server says ---- */

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

static void on_own_fault(void *arg, const struct dr_fault_report *rep)
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
		on_own_fault(c, &rep);
	}
}

static void on_message(void *arg, const json_t *msg)
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

/* ---- the node's operations ---- */

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

/* ---- bootstrap ---- */

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

static void describe_memory(struct dr_client *c)
{
	char line[320];

	dr_node_memory(c->node);
	if (!c->opt->quiet && dr_node_describe_memory(c->node, line, sizeof(line)))
		fprintf(dr_output_tables(c->out), "%s\n", line);
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
	if (peer_is_dead(cause))
		c->dead = true;
}

static const struct dr_boot_client_ops boot_ops = { on_accept, on_handles, on_ready, on_message,
	on_lost, on_resumed, on_failed, on_closed };

/* ---- the run ---- */

static int parse_maps(const struct dr_options *o, struct dr_plan *p, struct dr_err *e)
{
	char text[2048];
	int rc = 0;

	if (o->map)
		rc = dr_kind_rename(p, o->map, text, sizeof(text))
			     ? dr_plan_parse_map(p, text, e)
			     : dr_err_set(e, -EINVAL, "--map: too long");
	if (rc == 0)
		rc = dr_kind_rename(p, o->spread, text, sizeof(text))
			     ? dr_plan_parse_spread(p, text, e)
			     : dr_err_set(e, -EINVAL, "--spread: too long");
	if (o->matrix)
		p->spread = DR_SPREAD_EACH;
	return rc ? rc : dr_plan_settle(p, e);
}

int dr_client_plan(const struct dr_options *o, const struct dr_route *route,
	const struct dr_topo *topo, struct dr_plan *p, struct dr_err *e)
{
	struct dr_netdev_rail rails[DR_RAILS_MAX], spare;
	int n;

	dr_kind_plan(o, p);
	n = dr_kind_rails(o, p, route, rails, DR_RAILS_MAX, e);
	if (n < 0)
		return n;
	dr_plan_set_rails(p, DR_PLAN_CLIENT, rails, (unsigned)n);
	if (dr_kind_spare(o, p, route, rails, (unsigned)n, &spare))
		dr_plan_set_spare(p, &spare);
	p->rails_auto = !o->rails || strcmp(o->rails, "auto") == 0;
	p->n_gpus = (unsigned)o->gpus.n;
	for (unsigned k = 0; k < p->n_gpus; k++)
		p->gpu[k][DR_PLAN_CLIENT] = o->gpus.v[k];
	p->n_each = (unsigned)o->channels;
	p->forward = !o->reverse;
	p->reverse = o->reverse || o->bidir;
	p->lat = o->test.lat;
	p->window = (unsigned)o->window;
	p->chunk_max = dr_options_chunk_max(o);
	p->heartbeat_ns = o->heartbeat_ns;
	p->interval_ns = o->interval_ns;
	p->hold_down_ns = o->hold_down_ns;
	p->detect = (enum dr_detect)o->detect;
	p->failback = o->failback;
	p->lost_after_ns = LOST_AFTER_NS;
	p->seed = o->seed;
	p->sockbuf = (int)o->sockbuf;
	p->dscp = (int)o->dscp;
	for (unsigned i = 0; i < o->faults.n; i++)
		p->server_faults |= o->faults.v[i].side == DR_FAULT_SERVER;
	p->topo = topo;
	p->near_told = true;
	dr_plan_measure(p, DR_PLAN_CLIENT);
	return parse_maps(o, p, e);
}

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

static int dial(struct dr_client *c, struct dr_err *e)
{
	const struct dr_options *o = c->opt;
	struct dr_boot_client_opts bo = { .host = o->host,
		.gpus = o->gpus.v,
		.n_gpus = (unsigned)o->gpus.n,
		.port_base = (uint16_t)o->port,
		.pair = o->pair,
		.bind = o->control,
		.version = c->rec->version,
		.connect_timeout_ns = o->connect_timeout_ns,
		.timing = { .resume_ns = o->timeout_ns } };
	struct dr_boot_key key = { { 0 } };
	json_t *offer;
	int rc = 0;

	if (o->key_file)
		rc = dr_boot_key_read(o->key_file, &key, e);
	if (rc)
		return rc;
	bo.key = o->key_file ? &key : NULL;
	offer = dr_plan_offer(&c->plan);
	rc = offer ? dr_boot_client_create(&c->boot, &bo, offer, &boot_ops, c, c->loop.poller, e)
		   : dr_err_set(e, -ENOMEM, "out of memory");
	json_decref(offer);
	if (rc == 0)
		c->control = dr_boot_client_control(c->boot);
	return rc;
}

static int prepare(struct dr_client *c, struct dr_err *e)
{
	int rc = dr_loop_init(&c->loop, e);

	if (rc == 0)
		rc = dr_injector_init(&c->inj, c->opt, c->loop.poller, e);
	if (rc)
		return rc;
	c->inj.report = on_own_fault;
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
		rc = dial(c, &e);
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
