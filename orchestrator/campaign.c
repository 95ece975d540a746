/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/campaign_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * A trial: steady -> bandwidth before -> inject -> all affected channels switched -> bandwidth
 * during -> undo -> all came back -> bandwidth after -> both ends' records -> verdict.
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

/* ---- which faults ---- */

static int check_all(const struct dr_injector *inj, const struct dr_fault_list *l,
	const struct dr_plan *plan, const struct dr_route *route, struct dr_err *e)
{
	for (unsigned i = 0; i < l->n; i++) {
		const struct dr_fault_spec *s = &l->v[i];
		int rc = s->side == DR_FAULT_SERVER
				 ? 0
				 : dr_injector_check(inj, s, plan, DR_PLAN_CLIENT, route, e);

		if (rc)
			return dr_err_prefix(e, "--fault %s", dr_fault_kind_name(s->kind));
	}
	return 0;
}

int dr_campaign_faults(const struct dr_options *o, const struct dr_injector *inj,
	const struct dr_plan *plan, const struct dr_route *route, struct dr_fault_list *out,
	struct dr_err *e)
{
	static const char *const usual[] = { "link-down:path=0,repeat=3",
		"blackhole:path=0,repeat=3" };
	struct dr_err why;

	*out = o->faults;
	if (out->n)
		return check_all(inj, out, plan, route, e);
	for (unsigned i = 0; i < DR_ARRAY_LEN(usual); i++) {
		int rc = dr_fault_spec_parse(usual[i], &out->v[out->n++], e);
		if (rc)
			return rc;
	}
	if (plan->n_rails > 1 && check_all(inj, out, plan, route, &why) == 0)
		return 0;
	out->n = 0;
	int rc = dr_fault_spec_parse("close:path=0,repeat=3", &out->v[out->n++], e);
	if (rc == 0)
		rc = check_all(inj, out, plan, route, e);
	if (rc == 0)
		fprintf(stderr, "faults: closed connections only (%s)\n", why.text);
	return rc;
}

/* ---- steady state ---- */

static bool has_shadow(const struct dr_client *c, unsigned k, unsigned ch)
{
	struct dr_plan_map m = dr_plan_paths(&c->plan, k, ch);

	return m.primary != m.shadow;
}

/* Bulk channels that are not where they should be when nothing is broken. */
static unsigned unsteady(const struct dr_client *c)
{
	unsigned n = 0;
	struct dr_live l;

	for (unsigned k = 0; k < c->plan.n_gpus; k++) {
		for (unsigned ch = 0; ch < dr_plan_n_bulk(&c->plan); ch++) {
			dr_node_live(c->node, k, ch, &l);
			n += l.active != 0 ||
			     (has_shadow(c, k, ch) && !dr_node_channel(c->node, k, ch)->both_up);
		}
	}
	return n;
}

static int wait_steady(struct dr_client *c)
{
	int64_t need = DR_MAX(STEADY_MIN_NS, c->opt->hold_down_ns / 2 + 100 * DR_NS_PER_MS);
	int64_t deadline = dr_now_ns() + 4 * c->opt->hold_down_ns + 2 * SLACK_NS + need;
	int64_t since = 0, asked = 0;

	for (;;) {
		int64_t now = dr_now_ns();
		unsigned n = unsteady(c);
		int rc;

		if (n)
			since = 0;
		else if (!since)
			since = now;
		if (since && now - since >= need)
			return 0;
		if (n && now > deadline) {
			if (dr_client_snapshot(c) == 0)
				dr_node_stall_report(c->node, "channels are not steady");
			dr_client_end(c, DR_EXIT_FAILOVER,
				"%u channels did not return to their primary path with both paths up",
				n);
			return -ECANCELED;
		}
		if (n && !c->opt->failback && now - asked > SAMPLE_NS) {
			asked = now;
			dr_node_go_home(c->node);
			dr_client_send(c, json_pack("{s:s}", "t", "switch"));
		}
		rc = dr_client_sleep(c, POLL_NS);
		if (rc)
			return rc;
	}
}

/* Payload in both directions, in Gb/s, over a time that passes in here. */
static int sample(struct dr_client *c, int64_t ns, double *gbps)
{
	struct dr_node_flow a, b;
	int64_t t0 = dr_now_ns(), t1;
	int rc;

	dr_node_flow(c->node, &a);
	rc = dr_client_sleep(c, ns);
	dr_node_flow(c->node, &b);
	t1 = dr_now_ns();
	if (rc == 0)
		*gbps = (double)(b.tx_bytes + b.rx_bytes - a.tx_bytes - a.rx_bytes) * 8 /
			(double)(t1 - t0);
	return rc;
}

/* ---- a trial ---- */

static void mark_affected(struct dr_client *c, struct trial *t)
{
	const struct dr_fault_spec *s = t->spec;
	enum dr_plan_end side = s->side == DR_FAULT_SERVER ? DR_PLAN_SERVER : DR_PLAN_CLIENT;
	int rail = dr_inject_rail(s, &c->plan, side);
	struct dr_live l;

	t->n_affected = 0;
	for (unsigned k = 0; k < c->plan.n_gpus; k++) {
		for (unsigned ch = 0; ch < c->node->n_channels; ch++) {
			unsigned i = k * c->node->n_channels + ch;
			struct dr_plan_map m = dr_plan_paths(&c->plan, k, ch);
			bool hit = false;

			t->unplanned[i] = c->node->channel[i].unplanned;
			t->planned[i] = c->node->channel[i].planned;
			t->affected[i] = t->hit[i] = false;
			dr_node_live(c->node, k, ch, &l);
			if (l.active >= DR_PATHS)
				continue;
			if (dr_fault_by_channel(s->kind))
				hit = l.active == s->path &&
				      (s->gpu < 0 || c->plan.gpu[k][0] == (unsigned)s->gpu) &&
				      (s->channel < 0 || ch == (unsigned)s->channel);
			else
				hit = rail >= 0 &&
				      (l.active == 0 ? m.primary : m.shadow) == (unsigned)rail;
			t->hit[i] = hit;
			t->affected[i] = hit && ch < dr_plan_n_bulk(&c->plan);
			t->n_affected += t->affected[i];
		}
	}
	t->idle = t->n_affected == 0;
	t->expects_switch = !t->idle && !(s->kind == DR_FAULT_LOSS && s->loss_percent < 100) &&
			    s->kind != DR_FAULT_EXEC;
}

static uint64_t in_flight(const struct dr_client *c, const struct trial *t)
{
	uint64_t n = 0;
	struct dr_live l;

	for (unsigned k = 0; k < c->plan.n_gpus; k++) {
		for (unsigned ch = 0; ch < c->node->n_channels; ch++) {
			if (!t->affected[k * c->node->n_channels + ch])
				continue;
			dr_node_live(c->node, k, ch, &l);
			n += l.in_flight;
		}
	}
	return n;
}

static bool injected(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->fault_injected;
}

static bool undone(const struct dr_client *c, const void *arg)
{
	(void)arg;
	return c->fault_undone;
}

static bool all_switched(const struct dr_client *c, const void *arg)
{
	const struct trial *t = arg;

	for (unsigned i = 0; i < c->plan.n_gpus * c->node->n_channels; i++)
		if (t->affected[i] && c->node->channel[i].unplanned == t->unplanned[i])
			return false;
	return true;
}

static bool none_switched(const struct dr_client *c, const struct trial *t)
{
	for (unsigned i = 0; i < c->plan.n_gpus * c->node->n_channels; i++)
		if (t->affected[i] && c->node->channel[i].unplanned != t->unplanned[i])
			return false;
	return true;
}

static bool all_back(const struct dr_client *c, const void *arg)
{
	const struct trial *t = arg;
	struct dr_live l;

	for (unsigned k = 0; k < c->plan.n_gpus; k++) {
		for (unsigned ch = 0; ch < c->node->n_channels; ch++) {
			unsigned i = k * c->node->n_channels + ch;

			if (!t->affected[i])
				continue;
			dr_node_live(c->node, k, ch, &l);
			if (l.active != 0 || (c->node->channel[i].unplanned > t->unplanned[i] &&
						     c->node->channel[i].planned == t->planned[i]))
				return false;
		}
	}
	return true;
}

static int inject(struct dr_client *c, struct trial *t)
{
	struct dr_err e = { 0 };
	char spec[DR_FAULT_SPEC_MAX];
	int rc = 0;

	c->fault_injected = c->fault_undone = false;
	c->fault_id = c->server_fault_id = 0;
	t->in_flight = in_flight(c, t);
	t->inject_ns = dr_now_ns();
	if (t->spec->side == DR_FAULT_SERVER) {
		c->fault_id = c->server_fault_id = 0x80000000u + t->number;
		dr_fault_spec_format(t->spec, spec, sizeof(spec));
		dr_client_send(c, json_pack("{s:s, s:I, s:s}", "t", "inject", "id",
					  (json_int_t)c->server_fault_id, "spec", spec));
	} else {
		rc = dr_injector_inject(&c->inj, c->node, t->spec, &c->route, &c->fault_id, &e);
	}
	if (rc == 0)
		rc = dr_client_wait(c, injected, NULL, t->inject_ns + INJECT_NS,
			t->spec->side == DR_FAULT_SERVER);
	else
		dr_client_end(c, DR_EXIT_ENV, "fault: %s", e.text);
	if (rc == 0 && c->injected.err)
		dr_client_end(c, DR_EXIT_ENV, "fault: %s", c->injected.text);
	if (rc == -ETIMEDOUT)
		dr_client_end(c, DR_EXIT_ENV, "fault %s: not injected in time",
			dr_fault_kind_name(t->spec->kind));
	if (c->status)
		return -ECANCELED;
	t->fault_ns = c->injected.before_ns;
	t->row.at_ns = t->fault_ns;
	dr_record_eventf(c->rec, "fault", "trial %u: %s", t->number, c->injected.text);
	return rc;
}

static int undo(struct dr_client *c, struct trial *t)
{
	struct dr_err e = { 0 };
	int rc = 0;

	if (t->spec->side == DR_FAULT_SERVER)
		dr_client_send(c,
			json_pack("{s:s, s:I}", "t", "undo", "id", (json_int_t)c->server_fault_id));
	else
		rc = dr_injector_undo(&c->inj, c->fault_id, &e);
	if (rc == 0)
		rc = dr_client_wait(
			c, undone, NULL, dr_now_ns() + INJECT_NS, t->spec->side == DR_FAULT_SERVER);
	if (rc == -ECANCELED)
		return rc;
	if (rc || c->undone.err) {
		dr_client_end(c, DR_EXIT_ENV, "undoing the fault: %s",
			rc == -ETIMEDOUT ? "not done in time"
			: rc		 ? e.text
					 : c->undone.text);
		return -ECANCELED;
	}
	t->undone_ns = dr_now_ns();
	dr_record_eventf(c->rec, "undo", "trial %u: %s", t->number, c->undone.text);
	return 0;
}

/* From the injection to the undoing. */
static int fault_lasts(struct dr_client *c, struct trial *t)
{
	bool manual = t->spec->kind == DR_FAULT_MANUAL;
	int64_t end = t->inject_ns + t->spec->for_ns, left;
	int64_t deadline = t->inject_ns + c->rec->detection.bound_ns + SLACK_NS;
	int rc = 0;

	if (t->expects_switch)
		rc = dr_client_wait(c, all_switched, t,
			manual ? t->inject_ns + c->opt->timeout_ns : deadline, false);
	if (rc == -ETIMEDOUT && manual && none_switched(c, t)) {
		t->nobody = true;
		snprintf(t->row.note, sizeof(t->row.note), "nobody broke the path");
		return 0;
	}
	if (rc == -ETIMEDOUT) {
		t->hang = true;
		if (dr_client_snapshot(c) == 0)
			dr_node_stall_report(c->node, "a switchover did not come to its end");
		rc = 0;
	}
	left = end - dr_now_ns();
	if (rc == 0 && left >= SAMPLE_NS / 4)
		rc = sample(c, DR_MIN(left, 5 * SAMPLE_NS), &t->row.bandwidth_during_gbps);
	left = end - dr_now_ns();
	return rc == 0 && left > 0 ? dr_client_sleep(c, left) : rc;
}

static int comes_back(struct dr_client *c, struct trial *t)
{
	int64_t now = dr_now_ns();
	int rc;

	if (!c->opt->failback || t->idle || t->nobody)
		return 0;
	rc = dr_client_wait(c, all_back, t,
		now + (t->spec->kind == DR_FAULT_MANUAL ? c->opt->timeout_ns
							: 4 * c->opt->hold_down_ns + SLACK_NS),
		false);
	if (rc == -ETIMEDOUT) {
		snprintf(t->row.note, sizeof(t->row.note), "no failback in time");
		rc = 0;
	}
	return rc;
}

static int gather(struct dr_client *c, const struct trial *t)
{
	int64_t deadline = dr_now_ns() + RECORDS_NS;
	int rc;

	do {
		rc = dr_client_collect(c, deadline);
		if (rc || t->idle || !t->expects_switch || dr_trial_records_complete(c, t))
			break;
		rc = dr_client_sleep(c, POLL_NS);
	} while (rc == 0 && dr_now_ns() < deadline);
	return rc == -ETIMEDOUT ? 0 : rc;
}

static int steps(struct dr_client *c, struct trial *t, int64_t not_before_ns)
{
	int rc = wait_steady(c);

	if (rc == 0 && dr_now_ns() < not_before_ns)
		rc = dr_client_sleep(c, not_before_ns - dr_now_ns());
	if (rc == 0)
		rc = sample(c, SAMPLE_NS, &t->row.bandwidth_before_gbps);
	/* What stands in the record up to here belongs to no fault. */
	if (rc == 0)
		rc = dr_client_collect(c, dr_now_ns() + c->opt->timeout_ns);
	if (rc)
		return rc;
	t->first_switch = c->rec->switches.n;
	t->first_event = c->rec->events.n;
	mark_affected(c, t);
	rc = inject(c, t);
	if (rc == 0)
		rc = fault_lasts(c, t);
	if (rc == 0 && t->spec->for_ns)
		rc = undo(c, t);
	if (rc == 0 && t->spec->for_ns)
		rc = comes_back(c, t);
	if (rc == 0 && t->spec->for_ns)
		rc = sample(c, SAMPLE_NS, &t->row.bandwidth_after_gbps);
	if (rc == 0)
		rc = gather(c, t);
	return rc;
}

static void begin_row(struct dr_client *c, struct trial *t)
{
	enum dr_plan_end side = t->spec->side == DR_FAULT_SERVER ? DR_PLAN_SERVER : DR_PLAN_CLIENT;

	dr_fault_row_init(&t->row);
	t->row.trial = t->number;
	snprintf(t->row.kind, sizeof(t->row.kind), "%s", dr_fault_kind_name(t->spec->kind));
	t->row.path = t->spec->path;
	t->row.side = t->spec->side == DR_FAULT_SERVER ? DR_END_SERVER : DR_END_CLIENT;
	snprintf(t->row.nic, sizeof(t->row.nic), "%s", dr_inject_nic(t->spec, &c->plan, side));
}

static int one_trial(struct dr_client *c, struct trial *t, int64_t not_before_ns)
{
	int rc;

	begin_row(c, t);
	t->hang = t->error = false;
	t->in_flight = 0;
	t->fault_ns = t->inject_ns = t->undone_ns = 0;
	rc = steps(c, t, not_before_ns);
	if (rc && !t->fault_ns)
		return rc; /* never came to the fault */
	t->error = rc != 0 && (c->node->n_failed || c->peer_failed);
	dr_trial_judge(c, t);
	dr_record_fault(c->rec, &t->row);
	dr_output_fault(c->out, &t->row);
	return rc;
}

static int all_trials(struct dr_client *c, const struct dr_fault_list *l, struct trial *t)
{
	int64_t began = dr_now_ns();
	unsigned total = 0;
	int rc = 0;

	for (unsigned i = 0; i < l->n; i++)
		total += l->v[i].repeat;
	for (unsigned i = 0; i < l->n; i++) {
		int64_t next = i == 0 ? began + l->v[i].at_ns : 0;

		for (unsigned r = 0; r < l->v[i].repeat && rc == 0; r++, t->number++) {
			t->spec = &l->v[i];
			snprintf(c->progress_what, sizeof(c->progress_what), "failover %u/%u %s",
				t->number + 1, total, dr_fault_kind_name(t->spec->kind));
			rc = one_trial(c, t, next);
			next = t->inject_ns + l->v[i].every_ns;
		}
	}
	return rc;
}

/* The cadence of deliveries is known when the phase is over. */
static void add_cadence(struct dr_client *c, size_t first)
{
	int64_t p50, p99;

	dr_node_cadence(c->node, &p50, &p99);
	p50 = DR_MAX(p50, c->cadence_p50_ns);
	p99 = DR_MAX(p99, c->cadence_p99_ns);
	for (size_t i = first; i < c->rec->faults.n; i++) {
		c->rec->faults.v[i].cadence_p50_ns = p50;
		c->rec->faults.v[i].cadence_p99_ns = p99;
	}
}

int dr_campaign_run(struct dr_client *c, const struct dr_phase *phase)
{
	size_t n = (size_t)c->plan.n_gpus * c->node->n_channels, first = c->rec->faults.n;
	struct trial t = { 0 };
	int rc;

	t.affected = dr_calloc(n, sizeof(*t.affected));
	t.hit = dr_calloc(n, sizeof(*t.hit));
	t.unplanned = dr_calloc(n, sizeof(*t.unplanned));
	t.planned = dr_calloc(n, sizeof(*t.planned));
	rc = t.affected && t.hit && t.unplanned && t.planned ? 0 : -ENOMEM;
	c->cadence_p50_ns = c->cadence_p99_ns = DR_UNSET;
	if (rc == 0)
		rc = dr_client_phase_begin(c, phase);
	if (rc == 0)
		rc = dr_client_sleep(c, c->opt->warmup_ns);
	if (rc == 0) {
		dr_client_mark(c, 0);
		rc = all_trials(c, &c->faults, &t);
	}
	if (rc == 0) {
		dr_client_mark(c, 1);
		rc = dr_client_phase_end(c);
		add_cadence(c, first);
	}
	c->rec->false_failovers = dr_campaign_false_failovers(c);
	dr_free(t.affected);
	dr_free(t.hit);
	dr_free(t.unplanned);
	dr_free(t.planned);
	return rc;
}
