/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/client_priv.h"

#include "base/log.h"
#include "base/units.h"
#include "orchestrator/session/probe.h"
#include "orchestrator/session/unused.h"
#include "topology/numa.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/*
 * The client's run in a straight line: probe this machine, prove the rails, connect, wait for data
 * paths, measure, wind up.
 *  1. After the connection was started, every exit passes wind_up: faults are undone, results kept, the
 *     server is informed. Then the record is written.
 *  2. Errors are printed once, at the end, from the record.
 *  3. The local end is made when the server has accepted: until then nothing is known of its rails and GPUs.
 *  4. What fails in a callback ends the run and drops the conversation; it returns no error.
 *  5. s.lost: the connection is down now; gone: down for good; dead: the server's process is known not to be there.
 */

#define GOODBYE_NS (500 * DR_NS_PER_MS)
/* preflight without a baseline: a NIC below this share of the others is bad. Short cells vary. */
enum { PREFLIGHT_NIC_PERCENT = 50 };
#define RESOLVE_NS (500 * DR_NS_PER_MS)
/* Then the user is told what it waits for. */
#define SILENT_NS DR_NS_PER_S

_Static_assert((int)DR_OPTIONS_PHASES_MAX == (int)DR_RECORD_PHASES_MAX, "rows of every phase");

/* ---- before the connection ---- */

static void put_time(FILE *f, const char *what, int64_t ns)
{
	char t[32];

	dr_format_duration_exact(ns, t, sizeof(t));
	fprintf(f, "%s%s", what, t);
}

/* --dry-run: what the fault does, where and when. */
static void print_fault(const struct dr_client *c, const struct dr_fault_spec *fault)
{
	FILE *f = dr_output_tables(c->s.out);
	char line[DR_FAULT_SPEC_MAX];

	if (fault->side == DR_FAULT_SERVER) {
		snprintf(line, sizeof(line), "%s (checked by the server when the run starts)",
			dr_fault_name(fault));
	} else {
		dr_fault_describe(fault, dr_inject_target(fault, &c->s.plan).nic,
			&c->s.opt->faults->execs, line, sizeof(line));
	}
	fprintf(f, "%s: %s\n", fault->side == DR_FAULT_SERVER ? "server" : "client", line);
	put_time(f, "  at ", fault->at_ns);
	put_time(f, ", for ", fault->for_ns);
	if (fault->repeat > 1)
		put_time(f, ", every ", fault->every_ns);
	fprintf(f, ", repeat %u\n", fault->repeat);
}

static int check_faults(struct dr_client *c, struct dr_err *e)
{
	const struct dr_options *o = c->s.opt;

	if (!o->test.failover)
		return 0;
	int rc = dr_campaign_faults(c, e);
	for (unsigned i = 0; rc == 0 && o->dry_run && i < c->faults.n; i++)
		print_fault(c, &c->faults.v[i]);
	return rc;
}

/* Which rails each GPU uses: a line for GPUs with the same ones. */
static void print_plan(const struct dr_session *s)
{
	const struct dr_plan *p = &s->plan;
	char line[600];

	for (unsigned k = 0; k < p->n_gpus; k++)
		if (dr_plan_describe(
			    p, DR_PLAN_CLIENT, k, dr_output_has_tables(s->out), line, sizeof(line)))
			dr_output_text(s->out, line);
}

/* --dry-run: the server's answer may leave some rails out. */
static void announce(struct dr_client *c)
{
	struct dr_plan *p = &c->s.plan;

	for (unsigned k = 0; k < p->n_gpus; k++)
		p->gpu[k][DR_PLAN_SERVER] = p->gpu[k][DR_PLAN_CLIENT];
	print_plan(&c->s);
	if (c->s.opt->matrix)
		dr_client_matrix_announce(c);
}

/* Faults of a path act on the NIC that carries it, and never on the control NIC. */
static bool cuts_paths(const struct dr_options *o)
{
	const struct dr_fault_list *l = &o->faults->list;
	bool cuts = l->n == 0;

	for (unsigned i = 0; i < l->n; i++)
		cuts |= !l->v[i].nic[0] && dr_fault_by(&l->v[i]) != DR_FAULT_BY_CHANNEL;
	return o->test.failover && cuts;
}

static void tell_unresolved(const struct dr_session *s, const struct dr_err *e)
{
	char time[32];

	dr_format_duration_exact(s->opt->connect_timeout_ns, time, sizeof(time));
	if (!s->opt->quiet)
		dr_say("client", "%s; trying again for up to %s (--connect-timeout)", e->text,
			time);
}

/* A name server that does not answer now counts as a server that does not. */
static int find_route(struct dr_client *c, struct dr_err *e)
{
	struct dr_session *s = &c->s;
	int64_t begin = dr_now_ns();

	c->connect_until_ns = begin + s->opt->connect_timeout_ns;
	for (bool told = false;; told = true) {
		int rc = dr_rails_route(s->opt, s->opt->host, &s->route, e);
		int64_t now = dr_now_ns(), again = now + RESOLVE_NS;

		if (rc != -EHOSTDOWN || now >= c->connect_until_ns)
			return rc;
		if (!told)
			tell_unresolved(s, e);
		while (dr_now_ns() < DR_MIN(again, c->connect_until_ns) && !s->loop.signo)
			dr_loop_turn(&s->loop, DR_MIN(again, c->connect_until_ns));
		if (dr_client_check(c))
			return -ECANCELED;
	}
}

static int prepare(struct dr_client *c, struct dr_err *e)
{
	struct dr_session *s = &c->s;
	int rc = dr_session_open(s, e);

	if (rc)
		return rc;
	rc = find_route(c, e);
	s->route.reserved = cuts_paths(s->opt);
	if (rc == -ENXIO || rc == -EHOSTDOWN || rc == -ENETUNREACH || rc == -EHOSTUNREACH)
		dr_client_end_for(c, DR_EXIT_PEER, DR_REASON_UNREACHABLE, "%s", e->text);
	if (rc == 0)
		rc = dr_client_plan(s->opt, &s->route, s->topo, NULL, &s->plan, e);
	if (rc == -EINVAL)
		dr_client_end(c, DR_EXIT_USAGE, "%s", e->text);
	if (rc == 0 && s->opt->dry_run)
		announce(c);
	return rc ? rc : check_faults(c, e);
}

/* ---- which rails answer ---- */

/* The run ends: a NIC that somebody named, or all NICs, do not answer. */
static int end_silent(struct dr_client *c, const struct dr_probe *p, unsigned rail, unsigned n)
{
	const struct dr_plan_rail *own = &p->plan.rail[rail][DR_PLAN_CLIENT],
				  *there = &p->plan.rail[rail][DR_PLAN_SERVER];
	char why[400], more[40] = "";

	dr_probe_why(&p->plan, &p->mtu, rail, why, sizeof(why));
	if (n > 1)
		snprintf(more, sizeof(more), " (and %u more)", n - 1);
	dr_client_end_for(c, DR_EXIT_PEER, DR_REASON_PATHS,
		"rail %s %s -> the server's %s %s%s never came up: %s", own->name, own->address,
		there->name, there->address, more, why);
	return -ECANCELED;
}

static void leave_out(struct dr_client *c, const struct dr_probe *p, unsigned rail)
{
	const struct dr_plan_rail *own = &p->plan.rail[rail][DR_PLAN_CLIENT],
				  *there = &p->plan.rail[rail][DR_PLAN_SERVER];
	struct dr_silent_nic *nic = &c->silent.v[c->silent.n++];
	char why[400];

	dr_probe_why(&p->plan, &p->mtu, rail, why, sizeof(why));
	snprintf(nic->name, sizeof(nic->name), "%s", own->name);
	snprintf(nic->address, sizeof(nic->address), "%s", own->address);
	snprintf(nic->peer, sizeof(nic->peer), "%s", there->address);
	nic->what = p->mtu.rail[rail]->proven ? DR_LOSES_LARGE : DR_NO_ANSWER;
	dr_warn("rails", "%s %s -> the server's %s %s never came up and is not used: %s", own->name,
		own->address, there->name, there->address, why);
	dr_record_eventf(c->s.rec, "rail", "%s -> %s never came up and is not used: %s",
		own->address, there->address, why);
}

/* What works, and not as well as it could. */
static void warn_of_pair(const struct dr_probe *p, unsigned rail)
{
	const struct dr_plan_rail *own = &p->plan.rail[rail][DR_PLAN_CLIENT],
				  *there = &p->plan.rail[rail][DR_PLAN_SERVER];
	const struct dr_mtu_rail *r = p->mtu.rail[rail];
	struct dr_err text;
	char pair[200];

	snprintf(pair, sizeof(pair), "%s %s -> the server's %s %s", own->name, own->address,
		there->name, there->address);
	if (own->mtu && there->mtu && own->mtu != there->mtu)
		dr_warn("rails",
			"%s: the MTU is %u at the client and %u at the server: packets have %u bytes; "
			"set both to one MTU",
			pair, own->mtu, there->mtu, DR_MIN(own->mtu, there->mtu));
	if (r && r->proven &&
		(r->search.own.state == DR_MTU_OPEN || r->search.peer.state == DR_MTU_OPEN))
		dr_warn("rails",
			"%s passes TCP, but UDP is lost: heartbeats are, too, so that the rail is left "
			"in the first pause of its data; admit UDP on the ports of --data-ports",
			pair);
	for (unsigned receiver = 0; receiver < 2; receiver++)
		if (dr_mtu_describe(&p->plan, &p->mtu, rail, receiver, &text) == DR_MTU_REFUSED)
			dr_warn("rails", "%s: %s", pair, text.text);
}

/* How many were left out, or -ECANCELED. */
static int judge(struct dr_client *c, const struct dr_probe *p)
{
	const struct dr_plan *plan = &c->s.plan;
	bool named = !plan->rails_auto || plan->n_map || plan->n_spread || p->peer.named;
	unsigned silent = 0, first = 0;

	for (unsigned i = p->plan.n_rails; i-- > 0;)
		if (!dr_probe_answers(&p->plan, &p->mtu, i)) {
			silent++;
			first = i;
		}
	if (silent > 0 &&
		(named || silent == p->plan.n_rails || c->silent.n + silent > DR_RAILS_MAX))
		return end_silent(c, p, first, silent);
	for (unsigned i = 0; i < p->plan.n_rails; i++) {
		if (!dr_probe_answers(&p->plan, &p->mtu, i))
			leave_out(c, p, i);
		else if (silent == 0)
			warn_of_pair(p, i);
	}
	return (int)silent;
}

static int prove_once(struct dr_client *c, const struct dr_rights *rights, struct dr_err *e)
{
	struct dr_session *s = &c->s;
	struct dr_probe p = { .opt = s->opt,
		.rights = rights,
		.key = s->opt->key_file ? &c->key : NULL,
		.loop = &s->loop,
		/* The time that the name took is part of it. */
		.patience_ns = DR_MAX(c->connect_until_ns - dr_now_ns(),
			DR_MIN(s->opt->connect_timeout_ns, DR_NS_PER_S)),
		.wait_busy = true,
		.brief = true,
		.plan = s->plan };
	int rc = dr_probe_run(&p, e);

	if (rc)
		dr_client_end_for(c, p.status, p.reason, "%s", e->text);
	else
		rc = judge(c, &p);
	dr_probe_close(&p);
	return rc;
}

/* Each NIC carries packets of the peer's before the first figure. Pairs may change where one is
 * left out, so that the others are proven again. */
static int prove_rails(struct dr_client *c, struct dr_err *e)
{
	struct dr_session *s = &c->s;
	int rc = s->opt->key_file ? dr_boot_key_read(s->opt->key_file, &c->key, e) : 0;

	if (rc)
		return rc;
	rc = prove_once(c, &s->rights, e);
	while (rc > 0) {
		rc = dr_client_plan(s->opt, &s->route, s->topo, &c->silent, &s->plan, e);
		if (rc == 0)
			rc = prove_once(c, NULL, e);
	}
	return rc;
}

/* ---- from the dial to handles on both sides ---- */

static void print_unused(const struct dr_session *s)
{
	char line[4096];

	for (int side = DR_END_CLIENT; side <= DR_END_SERVER; side++)
		if (dr_unused_describe(
			    s->rec, side, dr_output_has_tables(s->out), line, sizeof(line)))
			dr_output_text(s->out, line);
}

static void describe_plan(const struct dr_session *s)
{
	const struct dr_plan *p = &s->plan;
	char line[256];

	dr_session_warn_rails(s);
	/* Where the hosts have others. */
	if (dr_plan_on_spare(p) && s->rec->unused_nics.n > 0)
		dr_warn("rails",
			"%s carries control and data: no other NICs of both ends make a pair that the "
			"ends may use",
			s->route.ifname);
	if (s->opt->max_gap_ns && !s->opt->test.failover)
		dr_warn("max-gap",
			"--max-gap judges unexpected switches only, as the failover test does not run; add "
			"--test failover --allow-faults");
	if (s->opt->quiet)
		return;
	print_plan(s);
	print_unused(s);
	for (unsigned i = 0; i < p->n_rails; i++)
		if (dr_plan_describe_routed(p, i, line, sizeof(line)))
			dr_output_text(s->out, line);
	if (!dr_output_has_tables(s->out))
		return;
	dr_affinity_describe(s->opt, p, DR_PLAN_CLIENT, dr_numa_nodes(), line, sizeof(line));
	dr_output_text(s->out, line);
}

/* Control is resumed over the server's rails, too. */
static void set_alternatives(struct dr_client *c)
{
	const char *addresses[DR_RAILS_MAX];
	struct dr_err e;

	for (unsigned i = 0; i < c->s.plan.n_rails; i++)
		addresses[i] = c->s.plan.rail[i][DR_PLAN_SERVER].address;
	if (dr_boot_client_alternatives(c->boot, addresses, c->s.plan.n_rails, &e))
		dr_info("client", "control will not be resumed over the rails: %s", e.text);
}

static int accepted(struct dr_client *c, const json_t *reply, const unsigned *gpus, unsigned pairs,
	struct dr_err *e)
{
	struct dr_session *s = &c->s;
	struct dr_manager_params mp;
	int rc = dr_plan_read_reply(&s->plan, reply, e);

	if (rc)
		return rc;
	s->plan.n_gpus = pairs;
	s->plan.n_map = DR_MIN(s->plan.n_map, pairs);
	for (unsigned k = 0; k < pairs; k++)
		s->plan.gpu[k][DR_PLAN_SERVER] = gpus[k];
	rc = dr_plan_settle(&s->plan, e);
	s->rec->bounds =
		(struct dr_row_bounds){ pairs, s->plan.n_rails, dr_plan_n_channels(&s->plan) };
	/* Rails without a partner are left out now, so that a fault may meet another NIC. */
	if (rc == 0)
		rc = dr_inject_check_all(s, &c->faults, e);
	if (rc == 0)
		rc = dr_session_check_limits(s, e);
	if (rc)
		return rc;
	dr_unused_find(s, &c->silent);
	dr_unused_take(s->rec, reply, &c->silent);
	set_alternatives(c);
	snprintf(s->rec->peer_version, sizeof(s->rec->peer_version), "%s",
		dr_control_peer_version(s->control));
	rc = dr_local_create(s, e);
	if (c->thresholds.save_baseline && !c->thresholds.baseline &&
		isfinite(c->thresholds.min_bw_percent) &&
		!(s->rec->rails.n && s->rec->rails.v[0].speed_gbps > 0))
		dr_output_text(s->out,
			"--min-bw: NICs report no speed, so the next run is the first that is "
			"judged, against this baseline");
	if (rc == 0 && s->opt->test.bw)
		rc = dr_thresholds_check(&c->thresholds, s->rec, e);
	if (rc == 0)
		rc = dr_output_check_baselines(s->out, s->rec, NULL, 0, e);
	if (rc)
		return rc;
	dr_plan_manager(&s->plan, DR_PLAN_CLIENT, &mp);
	s->rec->detection.bound_ns = dr_manager_detect_bound(&mp);
	if (s->rec->detection.bound_ns == DR_NEVER)
		s->rec->detection.bound_ns = DR_UNSET;
	s->rec->detection.lost_after_ns = s->plan.lost_after_ns;
	describe_plan(s);
	return dr_local_start(s->local, e);
}

static void on_accept(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
	unsigned handles_out, unsigned handles_in)
{
	struct dr_client *c = dr_client_of(arg);
	const struct dr_plan *p = &c->s.plan;
	struct dr_err e = { 0 };
	int rc = pairs < 1 || pairs > p->n_gpus
			 ? dr_err_set(&e, -EPROTO, "server: %u GPUs for our %u", pairs, p->n_gpus)
			 : accepted(c, reply, gpus, pairs, &e);

	if (rc == 0 && (handles_out != dr_plan_n_handles(p) || handles_in != handles_out))
		rc = dr_err_set(&e, -EPROTO, "server: %u handles, expected %u", handles_out,
			dr_plan_n_handles(p));
	if (rc) {
		dr_client_end_for(c, dr_session_exit(rc),
			rc == -EPROTO ? DR_REASON_PROTOCOL : DR_REASON_NONE, "%s", e.text);
		dr_boot_client_drop(c->boot);
	}
}

static void on_ready(void *arg)
{
	dr_client_of(arg)->ready = true;
}

static void on_failed(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *err)
{
	struct dr_client *c = dr_client_of(arg);

	c->gone = true;
	c->s.lost = c->ready;
	c->s.lost_cause = cause;
	dr_client_end_for(
		c, code > 0 ? code : DR_EXIT_PEER, dr_session_reason(cause), "%s", err->text);
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct dr_client *c = dr_client_of(arg);

	c->gone = c->s.lost = true;
	c->s.lost_cause = cause;
	if (cause != DR_BOOT_LOCAL && !c->ending)
		dr_record_eventf(c->s.rec, "control", "closed: %s", text);
	if (dr_client_peer_dead(cause))
		c->dead = true;
}

static int dial(struct dr_client *c, struct dr_err *e)
{
	static const struct dr_boot_ops ops = { .on_accept = on_accept,
		.on_handles = dr_session_on_handles,
		.on_ready = on_ready,
		.on_message = dr_session_on_message,
		.on_lost = dr_session_on_lost,
		.on_resumed = dr_session_on_resumed,
		.on_failed = on_failed,
		.on_closed = on_closed };
	struct dr_dial d = { .opt = c->s.opt,
		.key = c->s.opt->key_file ? &c->key : NULL,
		/* Without a list of its own it takes what the server has. */
		.pair = c->s.opt->gpu_names.n == 0,
		.patience_ns = DR_MAX(c->connect_until_ns - dr_now_ns(),
			DR_MIN(c->s.opt->connect_timeout_ns, DR_NS_PER_S)),
		.wait_busy = true,
		.ops = &ops,
		.arg = &c->s,
		.poller = c->s.loop.poller };

	json_t *offer = dr_plan_offer(&c->s.plan);

	/* The server's record and log have the same. */
	if (json_object_set_new(offer, "run_id", json_string(c->s.rec->run_id)))
		dr_debug("client", "no memory for the id of the run");
	int rc = dr_dial(&d, offer, &c->boot, e);

	if (rc == 0)
		c->s.control = dr_boot_client_control(c->boot);
	return rc;
}

/* ---- the run ---- */

/* Another client may have come first. */
static int wait_for_server(struct dr_client *c)
{
	const struct dr_options *o = c->s.opt;
	int rc = dr_client_wait(c, c->s.local, DR_MIN(SILENT_NS, o->connect_timeout_ns), false);

	if (rc != -ETIMEDOUT)
		return rc;
	if (!o->quiet)
		dr_dial_tell(o, c->boot);
	return 0;
}

static int wait_for_data_paths(struct dr_client *c)
{
	struct dr_session *s = &c->s;
	int64_t ns = s->opt->connect_timeout_ns;
	char why[400];
	int rc = wait_for_server(c);

	if (rc == 0)
		rc = dr_client_wait(c, c->ready, ns + s->opt->timeout_ns, false);
	if (rc == 0)
		rc = dr_client_wait(
			c, s->local->n_ready == s->plan.n_gpus && c->peer_up, ns, false);
	if (rc == -ETIMEDOUT && s->local) {
		dr_rails_why(
			&s->plan, DR_PLAN_CLIENT, dr_local_waiting(s->local), why, sizeof(why));
		dr_client_stalled(c, "data paths");
		dr_client_end_for(c, DR_EXIT_PEER, DR_REASON_PATHS,
			"the data paths of %u of %u GPUs here%s did not come up: %s",
			s->plan.n_gpus - s->local->n_ready, s->plan.n_gpus,
			c->peer_up ? "" : ", and some at the server,", why);
	} else if (rc == -ETIMEDOUT) {
		dr_client_end_for(c, DR_EXIT_PEER, DR_REASON_TIMEOUT,
			"server %s did not complete the exchange", s->opt->host);
	}
	return rc;
}

static void describe_memory(const struct dr_session *s)
{
	char line[320];

	dr_local_memory(s->local);
	if (dr_local_describe_memory(s->local, line, sizeof(line)))
		dr_output_text(s->out, line);
}

static void connect_and_measure(struct dr_client *c)
{
	if (wait_for_data_paths(c))
		return;
	describe_memory(&c->s);
	dr_client_phases(c);
	if (c->s.status)
		return;
	dr_session_send(&c->s, &(struct dr_message){ .kind = DR_MSG_FINISH });
	if (dr_client_wait(c, c->finished, c->s.opt->timeout_ns, true))
		dr_client_end_for(
			c, DR_EXIT_PEER, DR_REASON_LOST, "the server's results did not arrive");
}

static void send_abort(struct dr_session *s)
{
	struct dr_message m = { .kind = DR_MSG_ABORT, .status = s->status };

	if (s->rec->errors.n)
		snprintf(m.text, sizeof(m.text), "%s", s->rec->errors.v[0].text);
	dr_session_send(s, &m);
}

/* Undo faults, keep results, inform the server. */
static void wind_up(struct dr_client *c)
{
	struct dr_message undo = { .kind = DR_MSG_UNDO, .fault.id = c->fault_id };

	c->ending = true;
	dr_output_progress(c->s.out, NULL);
	c->progress_what[0] = 0;
	if (c->fault[0].done && !c->fault[1].done && c->fault_id >= DR_CLIENT_SERVER_FAULT)
		dr_session_send(&c->s, &undo);
	if (c->s.local && c->s.status && !c->gone)
		send_abort(&c->s);
	dr_inject_fini(&c->s);
	if (c->s.local)
		dr_client_salvage(c);
	if (!c->gone) {
		dr_control_goodbye(c->s.control);
		(void)dr_client_wait(c, c->gone, GOODBYE_NS, false);
	}
}

static int thresholds(const struct dr_session *s, struct dr_thresholds *t, struct dr_err *e)
{
	dr_thresholds_init(t);
	t->baseline = dr_output_baseline(s->out);
	t->save_baseline = dr_output_saves_baseline(s->out);
	if (s->opt->max_gap_ns)
		t->max_gap_ns = s->opt->max_gap_ns;
	int rc = s->opt->min_nic ? dr_thresholds_parse_min_nic(t, s->opt->min_nic, e) : 0;

	if (s->opt->command == DR_CMDBIT_PREFLIGHT && !s->opt->min_nic && !s->opt->baseline) {
		t->min_nic_percent = PREFLIGHT_NIC_PERCENT;
		t->min_nic_implied = true;
	}
	if (rc == 0 && s->opt->min_nic)
		s->rec->min_nic_percent = t->min_nic_percent;
	if (rc == 0 && s->opt->min_bw)
		rc = dr_thresholds_parse_min_bw(t, s->opt->min_bw, e);
	return rc == 0 && s->opt->max_lat ? dr_thresholds_parse_max_lat(t, s->opt->max_lat, e) : rc;
}

/* Which GPUs take part is known now only where this end names them; else when the server has replied. */
static int check_baselines(const struct dr_session *s, struct dr_err *e)
{
	const struct dr_options *o = s->opt;
	return dr_output_check_baselines(
		s->out, s->rec, o->gpus.v, o->gpu_names.n > 0 ? o->gpus.n : 0, e);
}

static void run(struct dr_client *c)
{
	struct dr_session *s = &c->s;
	struct dr_err e = { 0 };
	int rc = thresholds(s, &c->thresholds, &e);

	if (rc)
		dr_client_end(c, DR_EXIT_USAGE, "%s", e.text);
	if (rc == 0)
		rc = check_baselines(s, &e);
	if (rc == 0)
		rc = prepare(c, &e);
	if (rc == 0 && !s->opt->dry_run) {
		dr_output_start(s->out, s->rec);
		rc = prove_rails(c, &e);
		if (rc == 0)
			rc = dial(c, &e);
		explicit_bzero(&c->key, sizeof(c->key));
		if (rc == -ENXIO)
			dr_client_end_for(c, DR_EXIT_PEER, DR_REASON_UNREACHABLE, "%s", e.text);
	}
	if (rc)
		dr_client_end(c, DR_EXIT_ENV, "%s", e.text);
	if (rc || !c->boot)
		return;
	connect_and_measure(c);
	wind_up(c);
}

int dr_client_main(const struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_client c = { .s = { .opt = o,
				       .rec = rec,
				       .out = out,
				       .side = DR_PLAN_CLIENT,
				       .ops = &dr_client_ops } };

	rec->side = DR_END_CLIENT;
	dr_client_settings(o, &c.s.plan);
	dr_session_record_detection(&c.s);
	run(&c);
	for (size_t i = 0; i < rec->errors.n && rec->errors.v[i].text[0]; i++)
		dr_output_complain(out, rec->errors.v[i].text);
	/* A dry run has the plan to write, and no measurement to judge. */
	if (o->dry_run)
		dr_thresholds_init(&c.thresholds);
	int rc = o->dry_run && !rec->errors.n && !dr_output_is_json(out)
			 ? 0
			 : dr_output_finish(out, rec, &c.thresholds);
	dr_boot_client_destroy(c.boot);
	dr_session_close(&c.s);
	return rc;
}
