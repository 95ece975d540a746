/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/campaign_priv.h"

#include "base/log.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

/*
 * A trial: steady -> bandwidth before -> inject -> all affected channels switched -> bandwidth
 * during -> undo -> all came back -> bandwidth after -> both ends' records -> verdict.
 * Where the transport moves to another NIC instead: deliveries are watched from before the injection until data that were
 * posted after it arrive.
 *
 * Steady means: every channel on its primary path, both paths up, and that for long enough that the
 * channels' flap damping does not take the next fault for a flap of the same link (a loss within
 * half a hold-down after failback doubles the hold-down).
 */
#define STEADY_MIN_NS (200 * DR_NS_PER_MS)
#define SLACK_NS (5 * DR_NS_PER_S)
#define SAMPLE_NS (200 * DR_NS_PER_MS)
#define INJECT_NS (15 * DR_NS_PER_S)
#define RECORDS_NS (2 * DR_NS_PER_S)
#define POLL_NS (20 * DR_NS_PER_MS)
#define WENT_ON_NS (2 * DR_NS_PER_MS)

/* ---- which faults ---- */

static int add(struct dr_fault_list *l, const char *spec, struct dr_err *e)
{
	return dr_fault_spec_parse(spec, &l->v[l->n++], e);
}

int dr_campaign_faults(struct dr_client *c, struct dr_err *e)
{
	struct dr_fault_list *l = &c->faults;
	struct dr_err why = { .text = "one rail only" };

	*l = c->s.opt->faults->list;
	if (l->n)
		return dr_inject_check_all(&c->s, l, e);
	if (!c->s.opt->faults->allow)
		return dr_err_set(e, -EACCES,
			"the failover test injects faults: add --allow-faults at this end");
	int rc = add(l, "link-down:path=0,repeat=3", e);
	if (rc == 0)
		rc = add(l, "blackhole:path=0,repeat=3", e);
	if (rc || (c->s.plan.n_rails > 1 && dr_inject_check_all(&c->s, l, &why) == 0))
		return rc;
	l->n = 0;
	rc = add(l, "close:path=0,repeat=3", e);
	if (rc == 0)
		rc = dr_inject_check_all(&c->s, l, e);
	if (rc == 0)
		dr_say("faults", "faults: closed connections only (%s)", why.text);
	return rc;
}

/* ---- the verdict of a trial ---- */

static bool data_wrong(const struct dr_client *c, const struct dr_trial *t)
{
	for (size_t i = t->first_event; i < c->s.rec->events.n; i++)
		if (strcmp(c->s.rec->events.v[i].kind, "integrity") == 0)
			return true;
	return false;
}

static void failback_time(struct dr_client *c, struct dr_trial *t)
{
	int64_t last = 0;

	if (!t->undone_ns || !c->s.opt->failback)
		return;
	for (const struct dr_local_channel *ch = c->s.local->channel; ch < c->s.local->end; ch++) {
		if (!ch->trial.affected)
			continue;
		if (ch->planned == ch->trial.planned)
			return;
		last = DR_MAX(last, ch->last_switch_ns);
	}
	if (last)
		t->row.failback_ns = last - t->undone_ns;
}

static void judge(struct dr_client *c, struct dr_trial *t)
{
	dr_trial_claim(c, t);
	if (!t->idle)
		dr_trial_figures(c, t);
	failback_time(c, t);
	t->row.channels_affected = t->unused ? 0 : t->n_affected;
	t->row.in_flight_chunks = DR_MAX(t->row.in_flight_chunks, t->in_flight);
	if (data_wrong(c, t))
		t->row.verdict = DR_VERDICT_WRONG;
	else if (t->error)
		t->row.verdict = DR_VERDICT_CLEAN_ERROR;
	else if (t->hang)
		t->row.verdict = DR_VERDICT_HANG;
	else if (t->cut)
		t->row.verdict = DR_VERDICT_INCOMPLETE;
	else if (t->nobody || t->unused || (t->idle ? !t->hit_idle : t->row.in_flight_chunks == 0))
		t->row.verdict = DR_VERDICT_MISSED_FAULT;
	else if ((t->expects_switch || t->by_transport) && t->row.gap_ns == DR_UNSET)
		t->row.verdict = DR_VERDICT_INCOMPLETE;
	else if (c->s.opt->max_gap_ns && t->row.gap_ns > c->s.opt->max_gap_ns)
		t->row.verdict = DR_VERDICT_FAIL;
	else
		t->row.verdict = DR_VERDICT_PASS;
	if (t->idle && !t->row.note[0])
		snprintf(t->row.note, sizeof(t->row.note),
			t->hit_idle ? "hit idle paths (path=1), and no path that carried data"
				    : "no path of the channels was hit that carried data");
	if (t->unused && t->row.verdict == DR_VERDICT_MISSED_FAULT)
		snprintf(t->row.note, sizeof(t->row.note), DR_NOTE_UNUSED);
	if (t->row.verdict == DR_VERDICT_INCOMPLETE)
		snprintf(t->row.note, sizeof(t->row.note), "not finished: %.75s",
			!t->cut		     ? "the receiver's gap is not known"
			: c->s.rec->errors.n ? c->s.rec->errors.v[0].text
					     : "the control connection was lost");
	if (t->row.verdict == DR_VERDICT_FAIL && !t->row.note[0])
		snprintf(t->row.note, sizeof(t->row.note), "the gap is above --max-gap");
}

/* ---- steady state ---- */

/* Channels that are not where they should be when nothing is broken; of the affected ones those that have left the
 * path since the injection, those that are not on it again, those that send here, and what these have in flight. */
struct channels {
	unsigned unsteady, switched, away, senders;
	uint64_t in_flight;
};

static struct channels count(const struct dr_local *l)
{
	struct channels n = { 0 };

	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		struct dr_live live = dr_local_live(ch);
		bool unprotected = ch->rails.primary != ch->rails.shadow && !ch->both_up;
		bool left = ch->unplanned != ch->trial.unplanned;

		n.unsteady += ch->bulk && (live.active != 0 || unprotected);
		if (!ch->trial.affected)
			continue;
		n.switched += left;
		n.away += live.active != 0 || (left && ch->planned == ch->trial.planned);
		n.senders += ch->sends;
		n.in_flight += live.in_flight;
	}
	return n;
}

static int wait_steady(struct dr_client *c)
{
	const struct dr_options *o = c->s.opt;
	int64_t need = DR_MAX(STEADY_MIN_NS, o->hold_down_ns / 2 + 100 * DR_NS_PER_MS);
	int64_t deadline = dr_now_ns() + 4 * o->hold_down_ns + 2 * SLACK_NS + need;
	int64_t since = 0, asked = 0;

	for (int rc = 0; rc == 0; rc = dr_client_sleep(c, POLL_NS)) {
		int64_t now = dr_now_ns();
		unsigned n = count(c->s.local).unsteady;

		since = n ? 0 : since ? since : now;
		if (since && now - since >= need)
			return 0;
		if (n && now > deadline) {
			dr_client_stalled(c, "channels are not steady");
			dr_client_end(c, DR_EXIT_FAILOVER,
				"%u channels did not return to their primary path with both paths up",
				n);
		} else if (n && !o->failback && now - asked > SAMPLE_NS) {
			asked = now;
			dr_client_both(c, DR_MSG_SWITCH, 0);
		}
	}
	return -ECANCELED;
}

/* Payload in both directions, in Gb/s, over a time that passes in here. */
static int sample(struct dr_client *c, int64_t ns, double *gbps)
{
	struct dr_local_flow a = dr_local_flow(c->s.local);
	int64_t t0 = dr_now_ns();
	int rc = dr_client_sleep(c, ns);
	struct dr_local_flow b = dr_local_flow(c->s.local);

	if (rc == 0)
		*gbps = (double)(b.tx_bytes + b.rx_bytes - a.tx_bytes - a.rx_bytes) * 8 /
			(double)(dr_now_ns() - t0);
	return rc;
}

/* ---- a trial ---- */

/* Does the fault act on this path of the channel? rail: of a NIC's fault. */
static bool acts_on(
	const struct dr_fault_spec *f, int rail, const struct dr_local_channel *ch, unsigned path)
{
	if (dr_fault_by(f) == DR_FAULT_BY_CHANNEL)
		return path == f->path && (f->gpu < 0 || ch->gpu->number == (unsigned)f->gpu) &&
		       (f->channel < 0 || ch->number == (unsigned)f->channel);
	return rail >= 0 && (path == 0 ? ch->rails.primary : ch->rails.shadow) == (unsigned)rail;
}

/* On the path that carries its data? */
static bool hits(const struct dr_fault_spec *f, int rail, const struct dr_local_channel *ch)
{
	unsigned active = dr_local_live(ch).active;

	return active < DR_PATHS && acts_on(f, rail, ch, active);
}

/* A fault of path=1 that is meant for idle paths. */
static bool hits_idle(const struct dr_fault_spec *f, int rail, const struct dr_local_channel *ch)
{
	return f->path == 1 && ch->bulk && dr_local_live(ch).active == 0 && acts_on(f, rail, ch, 1);
}

static void mark_affected(struct dr_client *c, struct dr_trial *t)
{
	int rail = dr_inject_target(t->spec, &c->s.plan).rail;

	t->n_affected = 0;
	t->hit_idle = false;
	for (struct dr_local_channel *ch = c->s.local->channel; ch < c->s.local->end; ch++) {
		bool hit = hits(t->spec, rail, ch);

		ch->trial.hit = hit;
		ch->trial.affected = hit && ch->bulk;
		ch->trial.has_row = ch->trial.late = false;
		ch->trial.unplanned = ch->unplanned;
		ch->trial.planned = ch->planned;
		t->n_affected += ch->trial.affected;
		t->hit_idle |= hits_idle(t->spec, rail, ch);
	}
	t->idle = t->n_affected == 0;
	t->by_transport = t->watched && !t->idle;
	t->expects_switch = !t->watched && !t->idle && dr_fault_cuts(t->spec);
}

static void fault_failed(struct dr_client *c, const struct dr_trial *t, bool undo, const char *text)
{
	const char *name = dr_fault_name(t->spec);
	char option[DR_FAULT_NAME_MAX + 16];

	snprintf(option, sizeof(option), "--fault %s", name);
	bool named = strncmp(text, option, strlen(option)) == 0; /* by the rules of that end */
	dr_client_end(c, DR_EXIT_ENV, "%s%s%s%s%s%s%s",
		t->spec->side == DR_FAULT_SERVER ? "server " : "",
		t->spec->side == DR_FAULT_SERVER ? dr_control_peer(c->s.control) : "",
		t->spec->side == DR_FAULT_SERVER ? ": " : "", undo ? "undoing " : "",
		named ? "" : option, named ? "" : ": ", text);
}

/* Inject or undo the fault and wait until it is done. */
static int act(struct dr_client *c, const struct dr_trial *t, bool undo)
{
	struct dr_message m = { .kind = undo ? DR_MSG_UNDO : DR_MSG_INJECT,
		.fault.id = c->fault_id };
	const struct dr_fault_report *rep = &c->fault[undo].rep;
	bool at_server = t->spec->side == DR_FAULT_SERVER;

	dr_fault_spec_format(t->spec, m.text, sizeof(m.text));
	if (at_server)
		dr_session_send(&c->s, &m);
	else if (undo)
		dr_inject_undo(&c->s, c->fault_id);
	else
		dr_inject(&c->s, t->spec, c->fault_id);
	int rc = dr_client_wait(c, c->fault[undo].done, INJECT_NS, at_server);
	if (rc == -ECANCELED || rc == -ENOTCONN)
		return rc;
	if (rc || rep->err) {
		fault_failed(c, t, undo, rc ? "not done in time" : rep->text);
		return -ECANCELED;
	}
	dr_record_eventf(c->s.rec, undo ? "undo" : "fault", "trial %u: %s", t->number, rep->text);
	return 0;
}

/* The server asks at its own end, where nobody may look. */
static void ask_here(const struct dr_client *c, const struct dr_trial *t)
{
	char line[256];

	if (dr_fault_by(t->spec) != DR_FAULT_BY_USER || t->spec->side != DR_FAULT_SERVER)
		return;
	dr_fault_describe(
		t->spec, dr_inject_target(t->spec, &c->s.plan).nic, NULL, line, sizeof(line));
	dr_say("faults", "%s", line);
}

static int inject(struct dr_client *c, struct dr_trial *t)
{
	memset(c->fault, 0, sizeof(c->fault));
	c->fault_id = (t->spec->side == DR_FAULT_SERVER ? DR_CLIENT_SERVER_FAULT : 0) + t->number;
	struct channels n = count(c->s.local);

	t->in_flight = t->by_transport && !n.senders ? DR_UNSET : (int64_t)n.in_flight;
	t->inject_ns = dr_now_ns();
	int rc = act(c, t, false);
	if (rc)
		return rc;
	ask_here(c, t);
	t->fault_ns = c->fault[0].rep.before_ns;
	if (dr_fault_by(t->spec) != DR_FAULT_BY_USER)
		t->row.at_ns = t->fault_ns;
	const char *text = c->fault[0].rep.text;
	if (dr_output_has_tables(c->s.out) && dr_fault_by(t->spec) != DR_FAULT_BY_USER) {
		dr_output_progress(c->s.out, NULL);
		fprintf(dr_output_tables(c->s.out), "fault %u: %.*s at %.2f s\n", t->number,
			(int)strcspn(text, ";"), text,
			(double)(dr_now_ns() - c->s.local->begin_ns) / 1e9);
		fflush(dr_output_tables(c->s.out));
	}
	return 0;
}

static int undo(struct dr_client *c, struct dr_trial *t)
{
	/* When the user repairs the path is not known. */
	if (dr_fault_by(t->spec) == DR_FAULT_BY_USER)
		return 0;
	int rc = act(c, t, true);

	t->undone_ns = rc ? 0 : dr_now_ns();
	if (rc == 0 && c->fault[1].rep.after_ns > 0)
		t->row.undone_ns = c->fault[1].rep.after_ns;
	return rc;
}

static uint64_t chunks(const struct dr_local_channel *ch)
{
	struct dr_live live = dr_local_live(ch);

	return live.chunks_tx + live.chunks_rx;
}

/* More than a window on each affected channel: chunks that were posted after the fault took effect have arrived. */
static bool went_on(const struct dr_client *c)
{
	for (const struct dr_local_channel *ch = c->s.local->channel; ch < c->s.local->end; ch++)
		if (ch->trial.affected && chunks(ch) <= ch->trial.chunks + c->s.plan.window)
			return false;
	return true;
}

/* Nothing wakes this end when data arrive. */
static int wait_went_on(struct dr_client *c, int64_t ns)
{
	int64_t deadline = dr_now_ns() + ns;
	int rc = 0;

	while (rc == 0 && !went_on(c))
		rc = dr_now_ns() < deadline ? dr_client_sleep(c, WENT_ON_NS) : -ETIMEDOUT;
	return rc;
}

static bool complete(struct dr_client *c, const struct dr_trial *t)
{
	return (!t->expects_switch || dr_trial_complete(c, t)) &&
	       (!t->by_transport || dr_trial_gaps_complete(c, t));
}

static int gather(struct dr_client *c, const struct dr_trial *t)
{
	int64_t deadline = dr_now_ns() + RECORDS_NS;
	int rc;

	do {
		rc = dr_client_collect(c, deadline - dr_now_ns());
		if (rc || t->idle || complete(c, t))
			break;
		rc = dr_client_sleep(c, POLL_NS);
	} while (rc == 0 && dr_now_ns() < deadline);
	return rc == -ETIMEDOUT ? 0 : rc;
}

/* The user has broken the path, and waits to hear that it was seen. */
static int tell_repair(struct dr_client *c, struct dr_trial *t)
{
	char line[128];
	int rc = gather(c, t);

	dr_trial_claim(c, t);
	struct dr_trial so_far = *t;

	dr_trial_figures(c, &so_far);
	if (rc || so_far.row.gap_ns == DR_UNSET)
		return rc;
	snprintf(line, sizeof(line),
		"manual: detected after %.1f ms, data goes on after %.1f ms; repair the path now",
		(double)so_far.row.detect_ns / 1e6, (double)so_far.row.gap_ns / 1e6);
	dr_output_text(c->s.out, line);
	return 0;
}

/* From the injection to the undoing. */
static int fault_lasts(struct dr_client *c, struct dr_trial *t)
{
	bool manual = dr_fault_by(t->spec) == DR_FAULT_BY_USER;
	int64_t end = t->inject_ns + t->spec->for_ns, bound = c->s.rec->detection.bound_ns;
	int rc = 0;

	for (struct dr_local_channel *ch = c->s.local->channel; ch < c->s.local->end; ch++)
		ch->trial.chunks = chunks(ch);

	bound = manual ? c->s.opt->timeout_ns : (bound == DR_UNSET ? 0 : bound) + SLACK_NS;
	if (t->expects_switch)
		rc = dr_client_wait(c, count(c->s.local).switched == t->n_affected, bound, false);
	else if (t->by_transport)
		rc = wait_went_on(c, bound);
	if (rc == -ETIMEDOUT && manual && !count(c->s.local).switched) {
		t->nobody = true;
		snprintf(t->row.note, sizeof(t->row.note), DR_NOTE_NOBODY);
		return 0;
	}
	if (rc == -ETIMEDOUT) {
		t->hang = true;
		dr_trial_late(c, t);
		dr_client_stalled(c, t->by_transport ? "no data arrive after the fault"
						     : "a switchover did not finish");
		rc = 0;
	}
	if (rc == 0 && manual && t->expects_switch && !t->hang)
		rc = tell_repair(c, t);
	/* Of the others it is not known whether the path is broken already. */
	if (rc == 0 && t->by_transport && dr_fault_timed(t->spec))
		dr_trial_gaps_end(c, t);
	int64_t left = end - dr_now_ns();
	if (rc == 0 && left >= SAMPLE_NS / 4)
		rc = sample(c, DR_MIN(left, 5 * SAMPLE_NS), &t->row.bandwidth_during_gbps);
	left = end - dr_now_ns();
	return rc == 0 && left > 0 ? dr_client_sleep(c, left) : rc;
}

static int comes_back(struct dr_client *c, struct dr_trial *t)
{
	bool manual = dr_fault_by(t->spec) == DR_FAULT_BY_USER;

	if (!c->s.opt->failback || t->idle || t->nobody)
		return 0;
	int rc = dr_client_wait(c, !count(c->s.local).away,
		manual ? c->s.opt->timeout_ns : 4 * c->s.opt->hold_down_ns + SLACK_NS, false);
	if (rc != -ETIMEDOUT)
		return rc;
	snprintf(t->row.note, sizeof(t->row.note), "no failback in time");
	return 0;
}

static int steps(struct dr_client *c, struct dr_trial *t, int64_t not_before_ns)
{
	struct dr_trial_nics before, after;
	bool moves = c->s.plan.detect == DR_DETECT_TRANSPORT;
	int rail = moves ? dr_inject_target(t->spec, &c->s.plan).rail : -1;
	int rc = wait_steady(c);

	if (rc == 0 && dr_now_ns() < not_before_ns)
		rc = dr_client_sleep(c, not_before_ns - dr_now_ns());
	dr_trial_nics_read(c->s.local, rail, &before);
	if (rc == 0)
		rc = sample(c, SAMPLE_NS, &t->row.bandwidth_before_gbps);
	dr_trial_nics_read(c->s.local, rail, &after);
	if (rc == 0)
		dr_trial_gaps_begin(c, t);
	/* Rows that are in the record now belong to earlier trials or to no fault. */
	if (rc == 0)
		rc = dr_client_collect(c, c->s.opt->timeout_ns);
	if (rc)
		return rc;
	dr_trial_claim_late(c);
	t->first_switch = c->s.rec->switches.n;
	t->first_event = c->s.rec->events.n;
	t->first_gap = c->s.rec->delivery_gaps.n;
	mark_affected(c, t);
	t->unused = t->by_transport && dr_trial_nic_unused(c->s.local, &before, &after);
	dr_switch_lines_trial(c->s.local, true);
	rc = inject(c, t);
	if (rc == 0)
		rc = fault_lasts(c, t);
	if (rc == 0)
		dr_trial_gaps_end(c, t);
	if (rc == 0 && t->spec->for_ns) {
		rc = undo(c, t);
		if (rc == 0)
			rc = comes_back(c, t);
		if (rc == 0)
			rc = sample(c, SAMPLE_NS, &t->row.bandwidth_after_gbps);
	}
	return rc ? rc : gather(c, t);
}

static int one_trial(struct dr_client *c, struct dr_trial *t, int64_t not_before_ns)
{
	dr_fields_init(&dr_fault_fields, &t->row);
	t->row.trial = t->number;
	snprintf(t->row.kind, sizeof(t->row.kind), "%s", dr_fault_name(t->spec));
	t->row.path = t->spec->path;
	t->row.side = (int)t->spec->side;
	if (dr_fault_takes_dir(t->spec))
		t->row.dir = (int)t->spec->dir;
	snprintf(t->row.nic, sizeof(t->row.nic), "%s", dr_inject_target(t->spec, &c->s.plan).nic);
	int rc = steps(c, t, not_before_ns);
	if (rc && (!t->inject_ns || (!t->fault_ns && c->fault[0].done)))
		return rc; /* the fault was not asked for, or was refused */
	t->cut = rc != 0;
	t->error = rc != 0 && (c->s.local->n_failed || c->peer_failed);
	judge(c, t);
	dr_switch_lines_trial(c->s.local, false);
	dr_record_add(c->s.rec, faults, &t->row);
	dr_output_row(c->s.out, faults, &t->row);
	return rc;
}

/* A trial takes the fault, the failback, and samples of the bandwidth before and after them. */
static void announce(const struct dr_client *c, const struct dr_fault_list *l, unsigned trials)
{
	const struct dr_options *o = c->s.opt;
	int64_t end = 0;
	char at[32], all[32], line[160];

	for (unsigned i = 0; i < l->n; i++) {
		const struct dr_fault_spec *f = &l->v[i];
		int64_t back = f->for_ns && o->failback ? o->hold_down_ns : 0;
		int64_t each = f->for_ns + back + 2 * SAMPLE_NS;

		end = DR_MAX(end, f->at_ns) + (f->repeat - 1) * DR_MAX(f->every_ns, each) + each;
	}
	dr_format_duration(l->v[0].at_ns, at, sizeof(at));
	dr_format_duration(end, all, sizeof(all));
	snprintf(line, sizeof(line),
		"failover: %u trial%s, first injection after %s, about %s in all", trials,
		trials == 1 ? "" : "s", at, all);
	dr_output_text(c->s.out, line);
}

/* Which NICs are rails was guessed from HOST: a HOST that is a rail's address makes the management NIC a rail. */
static void announce_rails(const struct dr_client *c)
{
	const struct dr_session *s = &c->s;
	char line[DR_RAILS_MAX * (IFNAMSIZ + 2) + 160] = "failover: faults may cut ";

	if (!s->plan.rails_auto || !s->route.reserved || !s->route.ifname[0] ||
		s->route.same_host || strcmp(s->rec->command, "demo") == 0)
		return;
	for (unsigned i = 0; i < s->plan.n_rails; i++)
		dr_append(line, sizeof(line), "%s%s", i ? ", " : "",
			s->plan.rail[i][DR_PLAN_CLIENT].name);
	dr_append(line, sizeof(line),
		"; not %s, over which HOST is reached. If one of them is for management, give its address "
		"as HOST, or --rails",
		s->route.ifname);
	dr_output_text(s->out, line);
}

static int all_trials(struct dr_client *c)
{
	const struct dr_fault_list *l = &c->faults;
	int64_t began = dr_now_ns();
	unsigned total = 0, number = 0;
	int rc = 0;

	for (unsigned i = 0; i < l->n; i++)
		total += l->v[i].repeat;
	announce(c, l, total);
	announce_rails(c);
	for (unsigned i = 0; i < l->n; i++) {
		int64_t next = began + l->v[i].at_ns;

		for (unsigned r = 0; r < l->v[i].repeat && rc == 0; r++, number++) {
			struct dr_trial t = { .number = number, .spec = &l->v[i] };

			snprintf(c->progress_what, sizeof(c->progress_what), "failover %u/%u %s",
				number + 1, total, dr_fault_name(t.spec));
			rc = one_trial(c, &t, next);
			next = t.inject_ns + t.spec->every_ns;
		}
	}
	return rc;
}

/* The cadence of deliveries is known when the phase is over. */
static void add_cadence(struct dr_client *c, size_t first)
{
	int64_t p50, p99;

	dr_local_cadence(c->s.local, &p50, &p99);
	for (size_t i = first; i < c->s.rec->faults.n; i++) {
		c->s.rec->faults.v[i].cadence_p50_ns = DR_MAX(p50, c->cadence_p50_ns);
		c->s.rec->faults.v[i].cadence_p99_ns = DR_MAX(p99, c->cadence_p99_ns);
	}
}

int dr_campaign_run(struct dr_client *c, const struct dr_phase *phase)
{
	size_t first = c->s.rec->faults.n;
	int rc = dr_client_phase_begin(c, phase);

	c->cadence_p50_ns = c->cadence_p99_ns = DR_UNSET;
	if (rc == 0)
		rc = dr_client_sleep(c, c->s.opt->warmup_ns);
	if (rc == 0) {
		dr_client_both(c, DR_MSG_MARK, 0);
		rc = all_trials(c);
	}
	if (rc == 0) {
		dr_client_both(c, DR_MSG_MARK, 1);
		rc = dr_client_phase_end(c);
		add_cadence(c, first);
	}
	dr_trial_claim_late(c);
	c->s.rec->false_failovers = dr_trial_false_failovers(c);
	return rc;
}
