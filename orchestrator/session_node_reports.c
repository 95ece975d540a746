/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_node_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>

/*
 * What the workers report: noted in the node and its channels, put down as events and switches, and only
 * then passed on to the client or the server.
 */

static void event(
	struct dr_node *node, const struct dr_report *rep, const char *kind, const char *text)
{
	struct dr_event_row row;

	dr_event_row_init(&row);
	row.monotonic_ns = rep->now_ns;
	row.wall_ns = dr_wall_ns() - (dr_now_ns() - rep->now_ns);
	row.side = (int)node->side;
	snprintf(row.kind, sizeof(row.kind), "%s", kind);
	if (rep->position < node->plan->n_gpus)
		row.gpu = dr_node_gpu(node, rep->position);
	if (rep->kind == DR_REP_SWITCH || rep->kind == DR_REP_PROTECTION ||
		(rep->kind == DR_REP_FAILED && rep->channel != DR_ALL))
		row.channel = rep->channel;
	if (rep->kind == DR_REP_RAIL && rep->rail < node->plan->n_rails)
		snprintf(row.nic, sizeof(row.nic), "%s",
			node->plan->rail[rep->rail][node->side].name);
	snprintf(row.text, sizeof(row.text), "%s", text);
	dr_record_event(node->rec, &row);
	dr_output_event(node->out, &row);
}

static void on_switch(struct dr_node *node, const struct dr_report *rep)
{
	struct dr_node_channel *c = dr_node_channel(node, rep->position, rep->channel);
	struct dr_switch_row row;

	c->active = rep->rec.to;
	c->last_switch_ns = rep->now_ns;
	if (rep->rec.planned)
		c->planned++;
	else
		c->unplanned++;
	dr_switch_row_init(&row);
	row.side = (int)node->side;
	row.gpu = dr_node_gpu(node, rep->position);
	row.channel = rep->channel;
	row.receiver = !dr_node_sends(node, rep->channel);
	row.rec = rep->rec;
	dr_record_switch(node->rec, &row);
	dr_output_switch(node->out, &row);
}

static void on_failed(struct dr_node *node, const struct dr_report *rep)
{
	if (rep->position < node->plan->n_gpus) {
		for (unsigned c = 0; c < node->n_channels; c++)
			if (rep->channel == DR_ALL || rep->channel == c)
				dr_node_channel(node, rep->position, c)->failed = true;
		node->part_done[rep->position][0] = node->part_done[rep->position][1] = true;
	}
	if (node->n_failed++ == 0) {
		node->fail_err = rep->err;
		if (rep->position < node->plan->n_gpus)
			snprintf(node->fail_text, sizeof(node->fail_text), "GPU %u: %s",
				dr_node_gpu(node, rep->position), rep->text);
		else
			snprintf(node->fail_text, sizeof(node->fail_text), "%s", rep->text);
	}
	event(node, rep, "failed", rep->text);
}

static void on_protection(struct dr_node *node, const struct dr_report *rep)
{
	struct dr_node_channel *c = dr_node_channel(node, rep->position, rep->channel);
	unsigned before = node->unprotected;

	if (c->both_up == rep->flag)
		return;
	c->both_up = rep->flag;
	node->unprotected = 0;
	for (unsigned i = 0; i < node->plan->n_gpus * node->n_channels; i++)
		node->unprotected += !node->channel[i].both_up;
	if (!before != !node->unprotected)
		event(node, rep, "protection",
			node->unprotected ? "unprotected: a path is down"
					  : "both paths of all channels are up");
}

static void on_part_done(struct dr_node *node, const struct dr_report *rep)
{
	uint64_t totals[DR_CHANNELS_MAX] = { 0 };
	struct dr_live live;

	if (rep->value != (int64_t)node->phase.index)
		return;
	node->part_done[rep->position][rep->flag] = true;
	if (node->phase.kind == DR_PHASE_LAT)
		node->part_done[rep->position][0] = true;
	if (!rep->flag)
		return;
	for (unsigned c = 0; c < node->n_channels; c++) {
		if (!dr_node_sends(node, c))
			continue;
		dr_worker_live(dr_node_worker_of(node, rep->position), rep->position, c, &live);
		totals[c] = live.posted;
	}
	node->ops->sent(node->arg, rep->position, totals, node->n_channels);
}

static void take(struct dr_node *node, const struct dr_report *rep)
{
	static const char *const rail_state[] = { "alive", "suspect", "down" };
	char text[200];

	switch (rep->kind) {
	case DR_REP_READY:
		if (!node->ready[rep->position]) {
			node->ready[rep->position] = true;
			node->n_ready++;
		}
		break;
	case DR_REP_PHASE_DONE:
		on_part_done(node, rep);
		break;
	case DR_REP_SWITCH:
		on_switch(node, rep);
		break;
	case DR_REP_PROTECTION:
		on_protection(node, rep);
		break;
	case DR_REP_RAIL:
		snprintf(text, sizeof(text), "%s: %s", rail_state[rep->rail_state % 3], rep->text);
		event(node, rep, "rail", text);
		break;
	case DR_REP_SILENCE:
		event(node, rep, "silence",
			rep->flag ? "every rail is silent; the peer's kernel answers: it is stopped"
				  : "every rail is silent and nothing answers");
		break;
	case DR_REP_FAILED:
		on_failed(node, rep);
		break;
	case DR_REP_SNAPSHOT:
		if ((uint64_t)rep->value == node->token && node->snapshots_open)
			node->snapshot_last = --node->snapshots_open == 0;
		break;
	case DR_REP_FIRST_ERROR:
		node->integrity_error = true;
		dr_error("data", "%s", rep->text);
		event(node, rep, "integrity", rep->text);
		break;
	}
	node->ops->report(node->arg, rep);
}

void dr_node_on_reports(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_node_worker *w = dr_container_of(po, struct dr_node_worker, po);
	struct dr_report rep;

	(void)revents;
	(void)now_ns;
	while (dr_worker_next_report(w->w, &rep) == 1)
		take(w->node, &rep);
}
