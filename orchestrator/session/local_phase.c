/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/session/probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * A phase as this end's workers see it: begun, marked, stopped, over; what they report; and what of them may be
 * read when.
 *  1. A part that this end does not have is done from the beginning.
 *  2. Live counters may be read at any time, statistics after the snapshot that was asked for.
 *  3. A report is noted in the local end and its channels, put down as events and switches, and only then passed
 *     on to the client or the server.
 */

bool dr_local_has_bulk(const struct dr_local *l, bool sending)
{
	return (l->side == DR_PLAN_CLIENT) == sending ? l->plan->forward : l->plan->reverse;
}

int dr_local_direction(const struct dr_local *l, bool sending)
{
	return (l->side == DR_PLAN_CLIENT) == sending ? DR_TO_SERVER : DR_TO_CLIENT;
}

/* ---- commands ---- */

void dr_local_post(struct dr_local *l, unsigned position, const struct dr_command *cmd)
{
	for (unsigned i = 0; i < l->n_workers; i++)
		if (l->worker[i].po.fd >= 0 &&
			(position == DR_ALL || l->gpu[position].on == &l->worker[i]))
			dr_worker_post(l->worker[i].w, cmd);
}

/* The measured part begins, or ends: failback is a new epoch too. */
static void mark_rails(struct dr_local *l, unsigned which)
{
	for (struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		struct dr_live live = dr_local_live(ch);

		ch->away =
			live.active != 0 || (which && (ch->away || live.epoch != ch->mark_epoch));
		if (!which)
			ch->mark_epoch = live.epoch;
	}
	l->marked_away = which != 0;
}

unsigned dr_local_away(const struct dr_local *l, const struct dr_local_gpu *g, bool sending)
{
	unsigned n = 0;

	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		n += ch->gpu == g && ch->sends == sending && ch->away &&
		     ch->bulk == (l->phase.kind != DR_PHASE_LAT);
	return n;
}

void dr_local_phase(struct dr_local *l, const struct dr_phase *phase)
{
	struct dr_command cmd = { .kind = DR_CMD_PHASE, .position = DR_ALL, .phase = *phase };
	bool lat = phase->kind == DR_PHASE_LAT;

	l->phase = *phase;
	l->snapshot_last = l->snapshot_was = false;
	l->phase_open = true;
	for (struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++) {
		for (int part = 0; part < 2; part++)
			g->done[part] = !dr_phase_has_gpu(phase, g->position) ||
					(!lat && !dr_local_has_bulk(l, part));
		g->retransmits = dr_local_retransmits(l, g);
	}
	l->mark_ns[0] = l->mark_ns[1] = 0;
	l->phase_ns = dr_now_ns();
	dr_local_phase_row(l, false);
	l->mark_cpu_ns[0] = dr_cpu_ns();
	for (struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		ch->chunks_before = dr_local_live(ch).chunks_rx;
	l->interval_at_ns = 0;
	if (!lat && l->plan->interval_ns && dr_local_has_bulk(l, false)) {
		dr_local_interval_begin(l, l->phase_ns);
		l->interval_due_ns = l->phase_ns + l->plan->interval_ns;
	}
	memset(l->matrix, 0, sizeof(l->matrix));
	mark_rails(l, 0);
	dr_matrix_mark(l, 0);
	dr_local_post(l, DR_ALL, &cmd);
}

static void mark(struct dr_local *l, unsigned which)
{
	struct dr_command cmd = { .kind = DR_CMD_MARK, .position = DR_ALL, .value = which };

	l->mark_ns[which] = dr_now_ns();
	l->mark_cpu_ns[which] = dr_cpu_ns();
	dr_local_post(l, DR_ALL, &cmd);
	mark_rails(l, which);
	dr_matrix_mark(l, (int)which);
	if (l->interval_at_ns) {
		dr_local_interval_end(l, l->mark_ns[which]);
		if (which == 0)
			dr_local_interval_begin(l, l->mark_ns[0]);
		l->interval_due_ns = l->mark_ns[0] + l->plan->interval_ns;
	}
	if (which == 1 && l->mark_ns[0] && l->phase.kind == DR_PHASE_BW &&
		!dr_matrix_cell_running(l)) {
		l->cpu_ns += l->mark_cpu_ns[1] - l->mark_cpu_ns[0];
		l->cpu_wall_ns += l->mark_ns[1] - l->mark_ns[0];
	}
}

/* Planned switch of every channel that sends here and is not on its primary path. */
static void failback(struct dr_local *l)
{
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		struct dr_command cmd = {
			.kind = DR_CMD_SWITCH, .position = ch->gpu->position, .channel = ch->number
		};

		if (ch->sends && dr_local_live(ch).active != 0)
			dr_local_post(l, cmd.position, &cmd);
	}
}

static void gaps(struct dr_local *l, const struct dr_message *m)
{
	struct dr_command cmd = { .kind = DR_CMD_GAPS,
		.position = DR_ALL,
		.path = m->index,
		.flag = m->which,
		.value = m->since_ns };

	dr_local_post(l, DR_ALL, &cmd);
}

static int expect(struct dr_local *l, const struct dr_message *m, struct dr_err *e)
{
	struct dr_command cmd = { .kind = DR_CMD_EXPECT, .position = m->gpu };

	if (m->gpu >= l->plan->n_gpus || m->n_totals != l->n_channels)
		return dr_err_set(e, -EPROTO,
			"expect: GPU %u, %u totals; there are %u GPUs, %u channels", m->gpu,
			m->n_totals, l->plan->n_gpus, l->n_channels);
	memcpy(cmd.expect, m->totals, m->n_totals * sizeof(*m->totals));
	cmd.flag = m->n_bytes == m->n_totals;
	memcpy(cmd.expect_bytes, m->bytes, sizeof(cmd.expect_bytes));
	dr_local_post(l, m->gpu, &cmd);
	return 0;
}

int dr_local_take(struct dr_local *l, const struct dr_message *m, struct dr_err *e)
{
	switch (m->kind) {
	case DR_MSG_MARK:
		mark(l, m->which);
		break;
	case DR_MSG_STOP:
		dr_local_post(
			l, DR_ALL, &(struct dr_command){ .kind = DR_CMD_STOP, .position = DR_ALL });
		break;
	case DR_MSG_SWITCH:
		failback(l);
		break;
	case DR_MSG_GAPS:
		gaps(l, m);
		break;
	case DR_MSG_EXPECT:
		return expect(l, m, e);
	default:
		break; /* of the client or the server */
	}
	return 0;
}

void dr_local_snapshot(struct dr_local *l)
{
	struct dr_command cmd = { .kind = DR_CMD_SNAPSHOT, .position = DR_ALL };

	cmd.value = (int64_t)++l->token;
	l->snapshots_open = 0;
	l->snapshot_last = l->snapshot_live = false;
	for (unsigned i = 0; i < l->n_workers; i++)
		l->snapshots_open += l->worker[i].po.fd >= 0;
	dr_local_post(l, DR_ALL, &cmd);
}

void dr_local_snapshot_live(struct dr_local *l)
{
	bool was = l->snapshot_last;

	if (l->snapshots_open)
		return;
	dr_local_snapshot(l);
	l->snapshot_live = l->snapshots_open > 0;
	l->snapshot_was = was;
}

/* ---- reading ---- */

void dr_local_measured(struct dr_local *l)
{
	if (!l->marked_away)
		mark_rails(l, 1);
}

bool dr_local_gpu_over(const struct dr_local_gpu *g)
{
	return g->done[0] && g->done[1];
}

bool dr_local_phase_over(const struct dr_local *l)
{
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++)
		if (!dr_local_gpu_over(g))
			return false;
	return true;
}

bool dr_local_all_sent(const struct dr_local *l)
{
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++)
		if (!g->done[1])
			return false;
	return true;
}

static struct dr_worker_snap last_snapshot(const struct dr_local_channel *ch)
{
	struct dr_worker_snap snap;

	dr_worker_snapshot(ch->gpu->on->w, ch->gpu->position, ch->number, &snap);
	return snap;
}

struct dr_channel_stats dr_local_stats(const struct dr_local_channel *ch)
{
	return last_snapshot(ch).stats;
}

struct dr_live dr_local_live(const struct dr_local_channel *ch)
{
	struct dr_live live;

	dr_worker_live(ch->gpu->on->w, ch->gpu->position, ch->number, &live);
	return live;
}

uint64_t dr_local_retransmits(const struct dr_local *l, const struct dr_local_gpu *g)
{
	uint64_t sum = 0;

	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		if (ch->gpu == g && ch->bulk && ch->sends)
			sum += dr_local_stats(ch).retransmits;
	return sum;
}

bool dr_local_all_closed(const struct dr_local *l)
{
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		if (!dr_local_stats(ch).closed)
			return false;
	return true;
}

void dr_local_stall_report(struct dr_local *l, const char *why)
{
	dr_warn("stall", "%s; what each channel waits for:", why);
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		if (!dr_local_gpu_over(ch->gpu)) {
			dr_log_set_gpu((int)ch->gpu->number);
			dr_warn("stall", "GPU %u channel %u: %s", ch->gpu->number, ch->number,
				last_snapshot(ch).text);
		}
	dr_log_set_gpu(-1);
}

struct dr_local_channel *dr_local_channel_of(const struct dr_local *l, int64_t gpu, int64_t channel)
{
	for (const struct dr_local_gpu *g = l->gpu; g < l->gpu_end; g++)
		if (g->number == gpu && channel >= 0 && channel < l->n_channels)
			return &l->channel[g->position * l->n_channels + channel];
	return NULL;
}

struct dr_local_flow dr_local_flow(const struct dr_local *l)
{
	struct dr_local_flow sum = { 0 };

	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++) {
		struct dr_live live = dr_local_live(ch);

		if (!ch->bulk)
			continue;
		sum.tx_bytes += live.bytes_tx;
		sum.rx_bytes += live.bytes_rx;
		sum.tx_chunks += live.chunks_tx;
		sum.rx_chunks += live.chunks_rx;
	}
	return sum;
}

/* ---- reports ---- */

/* The GPU that a report is of; NULL: the whole worker. */
static struct dr_local_gpu *gpu_of(struct dr_local *l, const struct dr_report *rep)
{
	return rep->position < l->plan->n_gpus ? &l->gpu[rep->position] : NULL;
}

static struct dr_local_channel *channel_of(struct dr_local *l, const struct dr_report *rep)
{
	return &l->channel[rep->position * l->n_channels + rep->channel];
}

static bool names_rail(const struct dr_report *rep)
{
	return rep->kind == DR_REP_RAIL || rep->kind == DR_REP_DEGRADED;
}

static void event(
	struct dr_local *l, const struct dr_report *rep, const char *kind, const char *text)
{
	const struct dr_local_gpu *g = gpu_of(l, rep);
	struct dr_event_row row;

	dr_fields_init(&dr_event_fields, &row);
	row.monotonic_ns = rep->now_ns;
	row.wall_ns = dr_wall_ns() - (dr_now_ns() - rep->now_ns);
	row.side = (int)l->side;
	snprintf(row.kind, sizeof(row.kind), "%s", kind);
	if (g && rep->kind != DR_REP_DEGRADED) /* that concerns the process */
		row.gpu = g->number;
	if (rep->kind == DR_REP_PROTECTION ||
		(rep->kind == DR_REP_FAILED && rep->channel != DR_ALL))
		row.channel = rep->channel;
	if (names_rail(rep) && rep->rail < l->plan->n_rails)
		snprintf(row.nic, sizeof(row.nic), "%s", l->plan->rail[rep->rail][l->side].name);
	snprintf(row.text, sizeof(row.text), "%s", text);
	dr_record_add(l->rec, events, &row);
	dr_output_row(l->out, events, &row);
}

static int64_t gap_of(const struct dr_report *rep)
{
	int64_t gap = dr_switch_gap(&rep->rec);

	return gap < 0 ? DR_UNSET : gap;
}

static void on_switch(struct dr_local *l, const struct dr_report *rep)
{
	struct dr_local_channel *ch = channel_of(l, rep);
	struct dr_switch_row row;

	ch->last_switch_ns = rep->now_ns;
	dr_live_switch(ch->gpu, rep, !ch->sends);
	if (!rep->rec.planned)
		ch->unplanned++;
	else if (rep->rec.to == 0)
		ch->planned++;
	dr_fields_init(&dr_switch_fields, &row);
	row.side = (int)l->side;
	row.gpu = ch->gpu->number;
	row.channel = ch->number;
	row.receiver = !ch->sends;
	row.unexpected =
		!rep->rec.planned && !(l->phase_open && l->phase.kind == DR_PHASE_FAILOVER);
	row.rec = rep->rec;
	if (!ch->sends)
		row.gap_ns = gap_of(rep);
	dr_record_add(l->rec, switches, &row);
	dr_output_row(l->out, switches, &row);
}

static void on_gap(struct dr_local *l, const struct dr_report *rep)
{
	const struct dr_local_channel *ch = channel_of(l, rep);
	struct dr_delivery_gap_row row;

	dr_fields_init(&dr_delivery_gap_fields, &row);
	row.side = (int)l->side;
	row.gpu = ch->gpu->number;
	row.channel = ch->number;
	row.trial = rep->value;
	row.last_delivery_ns = rep->rec.last_delivery_ns;
	row.first_delivery_ns = rep->rec.first_delivery_ns;
	row.gap_ns = gap_of(rep);
	dr_record_add(l->rec, delivery_gaps, &row);
	dr_output_row(l->out, delivery_gaps, &row);
}

uint32_t dr_local_waiting(const struct dr_local *l)
{
	uint32_t rails = 0;

	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		if (!ch->gpu->ready)
			rails |= 1u << ch->rails.primary | 1u << ch->rails.shadow;
	return rails;
}

static void on_failed(struct dr_local *l, const struct dr_report *rep)
{
	struct dr_local_gpu *g = gpu_of(l, rep);
	const struct dr_local_channel *ch = NULL; /* a GPU may fail before it has channels */
	char where[24] = "";

	if (g && l->channel && rep->channel < l->n_channels)
		ch = channel_of(l, rep);
	if (l->n_failed == 0)
		l->fail_silent_ns = DR_UNSET;
	if (ch && ch->bulk && rep->value)
		l->fail_silent_ns = DR_MAX(l->fail_silent_ns, rep->now_ns - rep->value);
	if (g) {
		g->done[0] = g->done[1] = true;
		snprintf(where, sizeof(where), "GPU %u: ", g->number);
	}
	if (l->n_failed++ == 0) {
		l->fail_err = rep->err;
		if (rep->err == -ENETDOWN && l->n_ready < l->plan->n_gpus)
			dr_rails_why(l->plan, l->side, dr_local_waiting(l), l->fail_text,
				sizeof(l->fail_text));
		else
			snprintf(l->fail_text, sizeof(l->fail_text), "%s%s", where, rep->text);
	}
	event(l, rep, "failed", rep->text);
}

static void on_protection(struct dr_local *l, const struct dr_report *rep)
{
	struct dr_local_channel *c = channel_of(l, rep);
	unsigned before = l->unprotected;

	if (c->both_up == rep->flag)
		return;
	c->both_up = rep->flag;
	l->unprotected = 0;
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		l->unprotected += !ch->both_up;
	if (!before != !l->unprotected)
		event(l, rep, "protection",
			l->unprotected ? "unprotected: a path is down"
				       : "both paths of all channels are up");
}

static void on_part_done(struct dr_local *l, const struct dr_report *rep)
{
	struct dr_message m = { .kind = DR_MSG_EXPECT,
		.gpu = rep->position,
		.n_totals = l->n_channels,
		.n_bytes = l->n_channels };
	struct dr_local_gpu *g = gpu_of(l, rep);

	if (rep->value != (int64_t)l->phase.index)
		return;
	g->done[rep->flag] = true;
	if (l->phase.kind == DR_PHASE_LAT)
		g->done[0] = true;
	if (!rep->flag)
		return;
	for (const struct dr_local_channel *ch = l->channel; ch < l->end; ch++)
		if (ch->gpu == g && ch->sends) {
			m.totals[ch->number] = dr_local_live(ch).posted;
			m.bytes[ch->number] = dr_local_live(ch).bytes_tx;
		}
	dr_session_send(l->s, &m);
}

static void on_degraded(struct dr_local *l, const struct dr_report *rep)
{
	const struct dr_plan_rail *r = l->plan->rail[rep->rail];
	char text[240]; /* as an event it is cut */

	snprintf(text, sizeof(text), "rail %u (%s -> %s) is %s", rep->rail, r[l->side].name,
		r[!l->side].name, rep->text);
	if (rep->flag)
		dr_warn("rail", "%s", text);
	else
		dr_info("rail", "%s", text);
	event(l, rep, "degraded", text);
}

/* Kinds with datagrams tell what the peer's kernel does. */
static const char *stopped(const struct dr_local *l)
{
	return dr_plan_kind(l->plan)->ops->caps & DR_CAP_DGRAM
		       ? "every rail is silent; the peer's kernel answers: it is stopped"
		       : "every rail is silent and no path has failed: the peer is taken to be stopped";
}

static void on_report(struct dr_local *l, const struct dr_report *rep)
{
	static const char *const rail_state[] = { "alive", "suspect", "down" };
	struct dr_local_gpu *g = gpu_of(l, rep);
	char text[200];

	switch (rep->kind) {
	case DR_REP_READY:
		if (!g->ready)
			dr_local_channel_rows(l, g, rep->now_ns);
		l->n_ready += !g->ready;
		g->ready = true;
		break;
	case DR_REP_PHASE_DONE:
		on_part_done(l, rep);
		break;
	case DR_REP_SWITCH:
		on_switch(l, rep);
		break;
	case DR_REP_GAP:
		on_gap(l, rep);
		break;
	case DR_REP_PROTECTION:
		on_protection(l, rep);
		break;
	case DR_REP_RAIL:
		if (rep->rail < l->plan->n_rails)
			dr_live_rail(l, rep->rail, rep->rail_state);
		snprintf(text, sizeof(text), "%s: %s", rail_state[rep->rail_state % 3], rep->text);
		event(l, rep, "rail", text);
		break;
	case DR_REP_DEGRADED:
		if (rep->rail < l->plan->n_rails)
			on_degraded(l, rep);
		break;
	case DR_REP_SILENCE:
		event(l, rep, "silence",
			rep->flag	 ? stopped(l)
			: rep->value > 0 ? "every rail is silent and nothing answers"
					 : "a rail is heard again");
		break;
	case DR_REP_FAILED:
		on_failed(l, rep);
		break;
	case DR_REP_SNAPSHOT:
		if ((uint64_t)rep->value == l->token && l->snapshots_open)
			l->snapshot_last =
				--l->snapshots_open == 0 && (!l->snapshot_live || l->snapshot_was);
		break;
	case DR_REP_FIRST_ERROR:
		dr_error("data", "%s", rep->text);
		event(l, rep, "integrity", rep->text);
		break;
	}
	if (l->s->ops->report)
		l->s->ops->report(l->s, rep);
}

void dr_local_on_reports(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_local_worker *w = dr_container_of(po, struct dr_local_worker, po);
	struct dr_report rep;

	(void)revents;
	(void)now_ns;
	while (dr_worker_next_report(w->w, &rep) == 1)
		on_report(w->local, &rep);
}
