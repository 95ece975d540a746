/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/campaign_priv.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static bool position_of(const struct dr_plan *p, int64_t gpu, unsigned *out)
{
	for (unsigned k = 0; k < p->n_gpus; k++) {
		if ((int64_t)p->gpu[k][DR_PLAN_CLIENT] == gpu) {
			*out = k;
			return true;
		}
	}
	return false;
}

/* Index of the row's channel among all channels; -1: none of ours. */
static long index_of(const struct dr_client *c, const struct dr_switch_row *r)
{
	unsigned k;

	if (r->channel < 0 || r->channel >= c->node->n_channels ||
		!position_of(&c->plan, r->gpu, &k))
		return -1;
	return (long)k * c->node->n_channels + r->channel;
}

bool dr_trial_records_complete(const struct dr_client *c, const struct trial *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->plan.n_gpus * c->node->n_channels; i++) {
		if (!t->affected[i])
			continue;
		for (size_t s = t->first_switch; s < c->rec->switches.n; s++) {
			const struct dr_switch_row *r = &c->rec->switches.v[s];

			if (r->receiver && !r->rec.planned && index_of(c, r) == (long)i) {
				n++;
				break;
			}
		}
	}
	return n == t->n_affected;
}

/* A loss that this end noticed long after the fault was undone has another reason. */
static bool too_late(
	const struct dr_client *c, const struct trial *t, const struct dr_switch_row *r)
{
	return !r->rec.planned && t->undone_ns &&
	       r->rec.detect_ns > t->undone_ns + c->rec->detection.bound_ns;
}

/* The client's row of the same switch, whose times are on the own clock; NULL: not there. */
static const struct dr_switch_row *own_row(
	const struct dr_client *c, size_t from, const struct dr_switch_row *r)
{
	for (size_t s = from; s < c->rec->switches.n; s++) {
		const struct dr_switch_row *o = &c->rec->switches.v[s];

		if (o->side == DR_END_CLIENT && o->gpu == r->gpu && o->channel == r->channel &&
			o->rec.epoch == r->rec.epoch)
			return o;
	}
	return NULL;
}

/* The rows of the affected channels belong to this trial. */
static void claim(struct dr_client *c, const struct trial *t)
{
	for (size_t s = t->first_switch; s < c->rec->switches.n; s++) {
		struct dr_switch_row *r = &c->rec->switches.v[s];
		const struct dr_switch_row *own = own_row(c, t->first_switch, r);
		long i = index_of(c, r);

		if (i >= 0 && (t->hit[i] || !(t->expects_switch || t->idle)) &&
			!(own && too_late(c, t, own)))
			r->trial = t->number;
	}
}

/* Those that it claimed, in a copy; NULL: none, or no memory. */
static struct dr_switch_row *claimed(const struct dr_client *c, const struct trial *t, size_t *n)
{
	size_t max = c->rec->switches.n - t->first_switch;
	struct dr_switch_row *rows = max ? dr_calloc(max, sizeof(*rows)) : NULL;

	*n = 0;
	for (size_t s = t->first_switch; rows && s < c->rec->switches.n; s++)
		if (c->rec->switches.v[s].trial == t->number &&
			t->affected[index_of(c, &c->rec->switches.v[s])])
			rows[(*n)++] = c->rec->switches.v[s];
	return rows;
}

static void figures(struct dr_client *c, struct trial *t)
{
	int64_t offset = 0, error = 0, fault = t->fault_ns;
	bool known = dr_control_clock(c->control, dr_now_ns(), &offset, &error);
	struct dr_fault_row base = t->row;
	size_t n;
	struct dr_switch_row *rows = claimed(c, t, &n);

	/* The first pass finds the worst channel, whose direction says which end receives. */
	dr_fault_row_from_switches(&t->row, rows, n, DR_UNSET, DR_UNSET, DR_UNSET);
	if (t->row.channel != DR_UNSET) {
		bool at_server = dr_plan_from_client(&c->plan, (unsigned)t->row.channel);
		bool acted_at_server = t->spec->side == DR_FAULT_SERVER;

		if (at_server != acted_at_server)
			fault = known ? fault + (at_server ? offset : -offset) : DR_UNSET;
		t->row = base;
		dr_fault_row_from_switches(&t->row, rows, n,
			known ? (at_server ? offset : -offset) : DR_UNSET, known ? error : DR_UNSET,
			fault);
	}
	dr_free(rows);
}

static bool data_wrong(const struct dr_client *c, const struct trial *t)
{
	for (size_t i = t->first_event; i < c->rec->events.n; i++)
		if (strcmp(c->rec->events.v[i].kind, "integrity") == 0)
			return true;
	return false;
}

static void failback_time(struct dr_client *c, struct trial *t)
{
	int64_t last = 0;

	if (!t->undone_ns || !c->opt->failback)
		return;
	for (unsigned i = 0; i < c->plan.n_gpus * c->node->n_channels; i++) {
		if (!t->affected[i])
			continue;
		if (c->node->channel[i].planned == t->planned[i])
			return;
		last = DR_MAX(last, c->node->channel[i].last_switch_ns);
	}
	if (last)
		t->row.failback_ns = last - t->undone_ns;
}

void dr_trial_judge(struct dr_client *c, struct trial *t)
{
	claim(c, t);
	if (!t->idle)
		figures(c, t);
	failback_time(c, t);
	t->row.channels_affected = t->n_affected;
	if (t->row.in_flight_messages == DR_UNSET ||
		t->row.in_flight_messages < (int64_t)t->in_flight)
		t->row.in_flight_messages = (int64_t)t->in_flight;
	if (data_wrong(c, t))
		t->row.verdict = DR_VERDICT_WRONG;
	else if (t->error)
		t->row.verdict = DR_VERDICT_CLEAN_ERROR;
	else if (t->hang)
		t->row.verdict = DR_VERDICT_HANG;
	else if (t->nobody || (t->row.in_flight_messages == 0 && !t->idle))
		t->row.verdict = DR_VERDICT_MISSED_FAULT;
	else
		t->row.verdict = DR_VERDICT_PASS;
	if (t->idle && !t->row.note[0])
		snprintf(t->row.note, sizeof(t->row.note), "no path that carried data was hit");
}

int64_t dr_campaign_false_failovers(const struct dr_client *c)
{
	int64_t n = 0;

	/* Each switch has a row of either end: count the senders'. */
	for (size_t s = 0; s < c->rec->switches.n; s++) {
		const struct dr_switch_row *r = &c->rec->switches.v[s];

		n += !r->receiver && !r->rec.planned && r->trial == DR_UNSET;
	}
	return n;
}
