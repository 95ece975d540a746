/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "orchestrator/session/offer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Faults at this end. Results come as reports: the guard's from inside the loop, others from inside the call. Invariant:
 * what the guard holds has an entry in held[] until the guard reports that it was undone. */

/* Requests that the guard had no room for wait for its next report. */
static void send_undo(struct dr_injector *inj)
{
	for (size_t i = 0; i < DR_INJECTED_MAX; i++) {
		struct dr_injected *h = &inj->held[i];

		if (h->guard_id && h->undo && !h->sent)
			h->sent = dr_guard_undo(inj->guard, h->guard_id, NULL) == 0;
	}
}

/* guard_id 0: a free entry. */
static struct dr_injected *held_by_guard(struct dr_injector *inj, uint32_t guard_id)
{
	for (size_t i = 0; i < DR_INJECTED_MAX; i++)
		if (inj->held[i].guard_id == guard_id)
			return &inj->held[i];
	return NULL;
}

/* What this session holds under its id. */
static struct dr_injected *held(struct dr_injector *inj, uint32_t id)
{
	for (size_t i = 0; i < DR_INJECTED_MAX; i++)
		if (inj->held[i].guard_id && !inj->held[i].over && inj->held[i].id == id)
			return &inj->held[i];
	return NULL;
}

/* A fault that could not be undone keeps its entry: the guard tries again. */
static void take_report(struct dr_session *s, const struct dr_fault_report *of_guard)
{
	struct dr_injected *h = held_by_guard(&s->inj, of_guard->id), was;
	struct dr_fault_report rep = *of_guard;

	if (!h)
		return; /* undone before: an answer to a second request */
	was = *h;
	if (rep.undo ? !rep.err : rep.err != 0)
		memset(h, 0, sizeof(*h));
	rep.id = was.id;
	if (!was.over)
		s->ops->fault(s, &rep);
	else if (rep.err)
		dr_warn("fault", "%s%s", rep.undo ? "could not undo: " : "", rep.text);
}

void dr_inject_fini(struct dr_session *s)
{
	if (s->inj.po.fd >= 0)
		dr_poller_del(s->loop.poller, &s->inj.po);
	s->inj.po.fd = -1;
	dr_guard_stop(s->inj.guard);
	s->inj.guard = NULL;
}

static int watch_guard(struct dr_session *s, struct dr_err *e)
{
	struct dr_injector *inj = &s->inj;

	inj->po.fd = dr_guard_fd(inj->guard);
	int rc = dr_poller_add(s->loop.poller, &inj->po, EPOLLIN);
	return rc ? dr_err_set(e, rc, "epoll: %s", strerror(-rc)) : 0;
}

void dr_inject_renew(struct dr_session *s)
{
	struct dr_err e = { 0 };

	if (!s->inj.guard || s->inj.po.fd >= 0 || s->inj.left)
		return;
	int rc = dr_guard_renew(s->inj.guard, &e);
	if (rc == 0)
		rc = watch_guard(s, &e);
	if (rc == 0)
		return;
	dr_error("fault", "%s; this server injects no faults until it is started again", e.text);
	dr_inject_fini(s);
}

/* What it held is undone. A run that injects faults here ends. */
static void guard_died(struct dr_session *s)
{
	struct dr_err e;

	dr_poller_del(s->loop.poller, &s->inj.po);
	s->inj.po.fd = -1;
	memset(s->inj.held, 0, sizeof(s->inj.held));
	s->inj.left = dr_guard_gone(s->inj.guard, &e) == -EIO;
	dr_error("fault", "%s", e.text);
	if (s->side == DR_PLAN_CLIENT || (s->local && !s->status && s->plan.server_faults))
		s->ops->failed(s, DR_EXIT_ENV, &e);
	else if (!s->local)
		dr_inject_renew(s);
}

static void on_guard(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_session *s = dr_container_of(po, struct dr_session, inj.po);
	struct dr_fault_report rep;
	int rc;

	(void)revents;
	(void)now_ns;
	while ((rc = dr_guard_poll(s->inj.guard, &rep)) == 1)
		take_report(s, &rep);
	if (rc == 0)
		send_undo(&s->inj);
	if (rc < 0)
		guard_died(s);
}

static struct dr_fault_control control_of(const struct dr_route *r)
{
	return (struct dr_fault_control){ .ifname = r->ifname,
		.local = r->local.ss_family ? (const struct sockaddr *)&r->local : NULL,
		.peer = r->peer.ss_family ? (const struct sockaddr *)&r->peer : NULL,
		.ssh = getenv("SSH_CONNECTION") };
}

/* What the options say of rails and control, before anything comes from outside. */
static void read_options(struct dr_injector *inj, const struct dr_options *o, const char *host)
{
	const struct dr_transport_kind *t;
	struct sockaddr_storage sa;
	char text[sizeof(inj->rails)];

	if (o->rails && strcmp(o->rails, "auto") != 0) {
		snprintf(inj->rails, sizeof(inj->rails), "%s", o->rails);
		inj->go.rails = inj->rails;
	}
	/* A transport's own names; which one a client will ask for is not known. */
	for (size_t i = 0; (t = dr_transport_kind_at(i)) != NULL; i++)
		if (dr_rails_rename(t, inj->rails, text, sizeof(text), NULL))
			memcpy(inj->rails, text, sizeof(text));
	bool numeric = host && dr_netdev_addr_parse(host, &sa) == 0; /* no name server is asked */
	if (dr_rails_route(o, numeric ? host : NULL, &inj->told, NULL) == 0)
		inj->go.control = control_of(&inj->told);
}

int dr_inject_init(struct dr_session *s, struct dr_err *e)
{
	struct dr_injector *inj = &s->inj;

	inj->go = dr_fault_options_guard(s->opt->faults);
	inj->po.ready = on_guard;
	if (!s->opt->faults->allow)
		return 0;
	read_options(inj, s->opt, s->side == DR_PLAN_CLIENT ? s->opt->host : NULL);
	int rc = dr_guard_start(&inj->go, &inj->guard, e);
	return rc ? rc : watch_guard(s, e);
}

struct dr_inject_target dr_inject_target(const struct dr_fault_spec *f, const struct dr_plan *plan)
{
	struct dr_inject_target t = { .rail = -1, .nic = f->nic };

	for (unsigned k = 0; f->gpu >= 0 && k < plan->n_gpus; k++)
		if (plan->gpu[k][DR_PLAN_CLIENT] == (unsigned)f->gpu)
			t.position = k;
	if (f->channel >= 0 && (unsigned)f->channel < dr_plan_n_channels(plan))
		t.channel = (unsigned)f->channel;
	if (dr_fault_by(f) == DR_FAULT_BY_CHANNEL) {
		t.nic = "";
		return t;
	}
	struct dr_plan_map m = dr_plan_paths(plan, t.position, t.channel);
	if (!f->nic[0])
		t.rail = (int)(f->path == 0 ? m.primary : m.shadow);
	for (unsigned i = plan->n_rails; f->nic[0] && i-- > 0;)
		if (strcmp(plan->rail[i][f->side].name, f->nic) == 0)
			t.rail = (int)i;
	if (t.rail >= 0)
		t.nic = plan->rail[t.rail][f->side].name;
	return t;
}

/* For the guard: the NIC, with the rail's address if it is known. */
static const char *nic_address(
	const struct dr_fault_spec *f, const struct dr_plan *plan, char *buf, size_t len)
{
	struct dr_inject_target t = dr_inject_target(f, plan);

	if (dr_fault_by(f) != DR_FAULT_BY_GUARD || t.rail < 0)
		return t.nic;
	snprintf(buf, len, "%.15s@%.47s", t.nic, plan->rail[t.rail][f->side].address);
	return buf;
}

int dr_inject_allowed(const struct dr_session *s, struct dr_err *e)
{
	if (s->side == DR_PLAN_CLIENT || !s->plan.server_faults)
		return 0;
	/* All that is missing or may be, in one message. */
	if (!s->opt->faults->allow || (!s->opt->key_file && !s->opt->trusted))
		return dr_err_set(e, -EACCES,
			"faults at the server are not allowed; start it as root with --allow-faults "
			"--key-file FILE, and this end with the same key");
	return 0;
}

/* This end's rails if the control connection ran over `management`: the others, and its present NIC. */
static void rails_without(const struct dr_session *s, const char *management, char *buf, size_t len)
{
	const char *name[DR_RAILS_MAX + 1];
	unsigned n = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < s->plan.n_rails; i++)
		name[n++] = s->plan.rail[i][s->side].name;
	name[n++] = s->route.ifname;
	unsigned kept = 0;
	for (unsigned i = 0; i < n; i++) {
		bool again = strcmp(name[i], management) == 0 || !name[i][0];

		for (unsigned k = 0; k < kept; k++)
			again |= strcmp(name[i], name[k]) == 0;
		if (!again)
			name[kept++] = name[i];
	}
	for (unsigned i = 0; kept > 1 && i < kept; i++)
		dr_append(buf, len, "%s%s", !i ? "" : i + 1 < kept ? ", " : " and ", name[i]);
}

/* Does a path of the run use the rail? */
static bool rail_in_use(const struct dr_plan *p, unsigned rail)
{
	for (unsigned k = 0; k < p->n_gpus; k++)
		for (unsigned c = 0; c < dr_plan_n_channels(p); c++) {
			struct dr_plan_map m = dr_plan_paths(p, k, c);

			if (m.primary == rail || m.shadow == rail)
				return true;
		}
	return false;
}

/* A NIC that carries nothing would be cut, and the trial would show nothing. */
static int check_named(const struct dr_session *s, const struct dr_fault_spec *f, struct dr_err *e)
{
	const struct dr_plan *p = &s->plan;
	struct dr_inject_target t = dr_inject_target(f, p);
	char rails[DR_RAILS_MAX * (IFNAMSIZ + 2)] = "";

	if (!f->nic[0] || dr_fault_by(f) == DR_FAULT_BY_CHANNEL ||
		(t.rail >= 0 && rail_in_use(p, (unsigned)t.rail)))
		return 0;
	for (unsigned i = 0; i < p->n_rails; i++)
		dr_append(rails, sizeof(rails), "%s%s", i ? ", " : "", p->rail[i][s->side].name);
	return dr_err_set(
		e, -EINVAL, "refused: %s carries no path of this run; rails are %s", f->nic, rails);
}

int dr_inject_check(const struct dr_session *s, const struct dr_fault_spec *f, struct dr_err *e)
{
	char buf[DR_FAULT_NIC_MAX], rails[(DR_RAILS_MAX + 1) * (IFNAMSIZ + 5)];
	struct dr_fault_control control = control_of(&s->route);
	int rc = dr_inject_allowed(s, e);

	control.guard = s->inj.guard;
	control.rails = rails;
	rails_without(s, dr_inject_target(f, &s->plan).nic, rails, sizeof(rails));
	if (rc == 0 && s->side == DR_PLAN_SERVER && !s->plan.server_faults)
		rc = dr_err_set(e, -EACCES, "faults at the server were not announced");
	if (rc == 0)
		rc = dr_kind_fault_check(dr_plan_kind(&s->plan), dr_fault_name(f), e);
	if (rc == 0)
		rc = dr_fault_check(f, nic_address(f, &s->plan, buf, sizeof(buf)), &control,
			&s->inj.go, s->opt->faults->allow, e);
	if (rc == 0)
		rc = check_named(s, f, e);
	return rc ? dr_err_prefix(e, "--fault %s", dr_fault_name(f)) : 0;
}

int dr_inject_check_all(const struct dr_session *s, const struct dr_fault_list *l, struct dr_err *e)
{
	int rc = 0;

	for (unsigned i = 0; i < l->n && rc == 0; i++)
		if ((int)l->v[i].side == (int)s->side)
			rc = dr_inject_check(s, &l->v[i], e);
	return rc;
}

int dr_inject_check_offered(const struct dr_session *s, struct dr_err *e)
{
	struct dr_fault_list l = { .n = 0 };

	for (unsigned i = 0; i < s->plan.n_server_fault && l.n < DR_FAULTS_MAX; i++) {
		if (dr_fault_spec_parse(s->plan.server_fault[i], &l.v[l.n], e))
			return dr_err_prefix(e, "--fault %.60s", s->plan.server_fault[i]);
		l.v[l.n++].side = DR_FAULT_SERVER;
	}
	return dr_inject_check_all(s, &l, e);
}

static void report(struct dr_session *s, const struct dr_fault_report *what, const char *text)
{
	struct dr_fault_report rep = *what;

	rep.before_ns = rep.after_ns = dr_now_ns();
	snprintf(rep.text, sizeof(rep.text), "%s", text);
	s->ops->fault(s, &rep);
}

/* The path of every channel meant is broken at this end. */
static void break_paths(struct dr_session *s, const struct dr_fault_spec *f, uint32_t id)
{
	const struct dr_kind_fault *own = dr_kind_fault(dr_plan_kind(&s->plan), dr_fault_name(f));
	const struct dr_kind_fault *kind = own ? own : f->on_path;
	struct dr_inject_target t = dr_inject_target(f, &s->plan);
	struct dr_command cmd = { .kind = DR_CMD_BREAK,
		.position = f->gpu >= 0 ? t.position : DR_ALL,
		.channel = f->channel >= 0 ? t.channel : DR_ALL,
		.path = f->path,
		.break_path = kind->make };

	report(s, &(struct dr_fault_report){ .id = id }, kind->done);
	dr_local_post(s->local, cmd.position, &cmd);
}

static void ask_user(struct dr_session *s, const struct dr_fault_spec *f, uint32_t id)
{
	char line[256];

	dr_fault_describe(f, dr_inject_target(f, &s->plan).nic, NULL, line, sizeof(line));
	if (s->opt->quiet || s->opt->command == DR_CMDBIT_SERVER)
		dr_say("faults", "%s", line);
	else
		dr_output_text(s->out, line);
	report(s, &(struct dr_fault_report){ .id = id }, "asked the user");
}

static int by_guard(
	struct dr_session *s, const struct dr_fault_spec *f, uint32_t id, struct dr_err *e)
{
	struct dr_injected *h = held_by_guard(&s->inj, 0);
	struct dr_fault_control control = control_of(&s->route);
	char buf[DR_FAULT_NIC_MAX];

	if (!s->inj.guard)
		return dr_err_set(e, -EPIPE, "no fault guard; start this end again");
	if (held(&s->inj, id))
		return dr_err_set(e, -EEXIST, "fault %u is active already", id);
	if (!h)
		return dr_err_set(e, -ENOSPC, "%d faults are active already", DR_INJECTED_MAX);
	int rc = dr_guard_inject(s->inj.guard, f, nic_address(f, &s->plan, buf, sizeof(buf)),
		&control, &h->guard_id, e);
	if (rc == 0)
		h->id = id;
	return rc;
}

void dr_inject(struct dr_session *s, const struct dr_fault_spec *f, uint32_t id)
{
	bool guarded = dr_fault_by(f) == DR_FAULT_BY_GUARD;
	struct dr_err e;
	int rc = dr_inject_check(s, f, &e);

	if (rc == 0 && guarded)
		rc = by_guard(s, f, id, &e);
	if (rc)
		report(s, &(struct dr_fault_report){ .id = id, .err = rc }, e.text);
	else if (dr_fault_by(f) == DR_FAULT_BY_CHANNEL)
		break_paths(s, f, id);
	else if (!guarded)
		ask_user(s, f, id);
}

void dr_inject_undo(struct dr_session *s, uint32_t id)
{
	struct dr_injected *h = held(&s->inj, id);

	if (!h) {
		report(s, &(struct dr_fault_report){ .id = id, .undo = true }, "nothing to undo");
		return;
	}
	h->undo = true;
	h->sent = false; /* asked again: it is answered again */
	send_undo(&s->inj);
}

void dr_inject_end(struct dr_session *s)
{
	for (size_t i = 0; i < DR_INJECTED_MAX; i++)
		s->inj.held[i].over = s->inj.held[i].undo = s->inj.held[i].guard_id != 0;
	send_undo(&s->inj);
}
