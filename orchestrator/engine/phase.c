/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/engine/engine.h"
#include "transport/staged.h"

/*
 * Invariants:
 *  1. A phase runs from DR_CMD_PHASE to its last part's end or the GPU's first failure; its result is
 *     written once, before the report that says so, and not touched until the next DR_CMD_PHASE.
 *  2. busy streams = tx_left + rx_left; a part is reported when its count reaches 0.
 *  3. Every phase ends: by counts, by STOP and EXPECT, or by FAILED. After FAILED every later phase is refused
 *     with FAILED, so no caller waits for a failed GPU.
 *  4. Chunks are aligned with phases: all of a phase's are taken before the next one's. The last message of a phase
 *     that was stopped may be incomplete.
 */

/* --- results ---------------------------------------------------------------------------------- */

void dr_stream_record_cadence(struct dr_stream *s)
{
	int64_t from = s->cadence_start_ns, to = s->cadence_end_ns;

	s->cadence_start_ns = s->cadence_end_ns = 0;
	if (to && !(from < s->gap_end_ns && to > s->gap_start_ns))
		dr_hist_record(s->eng->cadence, to - from);
}

struct span_ns {
	int64_t from, to;
};

static void add_counted(const struct dr_stream *s, struct dr_tally *r, struct span_ns *t)
{
	const struct dr_tally *to = s->have_to ? &s->to : &s->now;

	if (!s->have_from)
		return;
	t->from = DR_MIN(t->from, s->from.ns);
	t->to = DR_MAX(t->to, to->ns);
	r->messages += to->messages - s->from.messages;
	r->bytes += to->bytes - s->from.bytes;
	r->chunks += to->chunks - s->from.chunks;
	/* Never 0 if something was counted: a few chunks may arrive in one poll. */
	r->ns = r->bytes ? DR_MAX(t->to - t->from, (int64_t)1) : 0;
}

static void add_copies(struct dr_engine *g, struct dr_phase_result *r)
{
	dr_gpu_buffers_copies(g->prm.gpu_buffers, &r->copies);
	dr_gpu_buffers_copies_add(&r->copies, &g->copies_before, -1);
	r->copies_ns = DR_MAX(dr_now_ns() - g->phase_ns, (int64_t)1);
}

static void publish(struct dr_engine *g)
{
	struct dr_phase_result *r = &g->result;
	struct span_ns tx = { DR_NEVER, 0 }, rx = { DR_NEVER, 0 };

	*r = (struct dr_phase_result){ .cadence = g->cadence };
	if (g->phase.kind == DR_PHASE_LAT && g->client)
		r->rtt = g->rtt;
	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];

		add_counted(s, s->sender ? &r->tx : &r->rx, s->sender ? &tx : &rx);
		if (s->sender)
			continue;
		dr_stream_record_cadence(s);
		r->verified_chunks += s->integrity.checked;
		r->corrupted += s->integrity.corrupted;
		r->wrong_bytes += s->integrity.wrong_bytes;
		r->lost += s->integrity.lost;
		r->duplicated += s->integrity.duplicated;
		r->reordered += s->integrity.reordered;
	}
	memcpy(r->first_wrong, g->first_wrong, sizeof(r->first_wrong));
	if (g->prm.gpu_buffers)
		add_copies(g, r);
}

/* The running phase is over at this end. */
void dr_engine_end_phase(struct dr_engine *g)
{
	g->running = false;
	g->ping.on = false;
	for (unsigned i = 0; i < g->n_streams; i++) {
		g->stream[i].busy = false;
		g->stream[i].wake_ns = DR_NEVER;
	}
	publish(g);
}

static void report_done(struct dr_engine *g, bool sending)
{
	struct dr_report r = {
		.kind = DR_REP_PHASE_DONE, .flag = sending, .value = (int64_t)g->phase.index
	};

	if (g->tx_left == 0 && g->rx_left == 0)
		dr_engine_end_phase(g);
	dr_engine_report(g, &r);
}

void dr_stream_done(struct dr_stream *s)
{
	struct dr_engine *g = s->eng;
	unsigned *left = s->sender ? &g->tx_left : &g->rx_left;

	dr_assert(s->busy && *left > 0);
	s->busy = false;
	if (--*left == 0)
		report_done(g, s->sender);
}

void dr_engine_ping_done(struct dr_engine *g)
{
	g->tx_left = g->rx_left = 0;
	report_done(g, true);
}

/* --- commands --------------------------------------------------------------------------------- */

/* How many chunks the phase is for each stream; UINT64_MAX: until stopped. */
static int phase_chunks(const struct dr_phase *p, uint64_t *out)
{
	uint64_t n, per = (p->message_bytes - 1) / p->chunk_bytes + 1;

	*out = UINT64_MAX;
	if (per > UINT32_MAX ||
		(p->iters && (__builtin_add_overflow(p->iters, p->warmup, &n) ||
				     __builtin_mul_overflow(n, per, out) || *out > UINT64_MAX / 2)))
		return -EOVERFLOW;
	return 0;
}

static bool takes_part(const struct dr_engine *g, const struct dr_phase *p, unsigned stream)
{
	if (p->kind == DR_PHASE_LAT)
		return (int)stream == g->prm.lat_tx || (int)stream == g->prm.lat_rx;
	return stream < g->prm.n_bulk && dr_phase_has_rail(p, g->prm.channel[stream].primary);
}

/* Its sizes, and that a channel takes part, are checked by the options, and by a server. */
static void begin_phase(struct dr_engine *g, const struct dr_phase *p, int64_t now)
{
	uint64_t total = 0;

	if (!dr_phase_has_gpu(p, g->prm.position))
		return;
	dr_assert(p->chunk_bytes >= 1 && p->chunk_bytes <= g->chunk_max &&
		  p->chunk_bytes <= p->message_bytes && p->rate_bits >= 0);
	if (g->state != DR_ENGINE_UP) {
		dr_engine_fail(g, g->state == DR_ENGINE_FAILED ? g->failed_channel : DR_ALL,
			g->err ? g->err : -ENOTCONN,
			"cannot start the phase: the channels of this GPU are not connected");
		return;
	}
	dr_assert(!g->running);
	int rc = phase_chunks(p, &total);
	if (rc < 0) {
		dr_engine_fail(g, DR_ALL, rc,
			"cannot start the phase: it has more chunks than can be counted");
		return;
	}
	g->phase = *p;
	g->phase.verify |= p->kind == DR_PHASE_FAILOVER;
	g->phase_ns = now;
	g->message_chunks = (p->message_bytes - 1) / p->chunk_bytes + 1;
	g->first_error_reported = false;
	g->first_wrong[0] = '\0';
	g->running = true;
	if (g->prm.gpu_buffers)
		dr_gpu_buffers_copies(g->prm.gpu_buffers, &g->copies_before);
	g->tx_left = g->rx_left = 0;
	dr_hist_reset(g->rtt);
	dr_hist_reset(g->cadence);
	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];
		bool part = takes_part(g, p, i);

		dr_stream_begin(s, total, part);
		if (part)
			*(s->sender ? &g->tx_left : &g->rx_left) += 1;
	}
	/* Otherwise the end of the phase would never be reported. */
	dr_assert(g->tx_left + g->rx_left > 0);
	if (p->kind == DR_PHASE_LAT)
		dr_ping_begin(g);
}

/* Senders post nothing more, not even the rest of a message: the next phase begins with a new one at both ends. */
static void stop(struct dr_engine *g)
{
	if (!g->running)
		return;
	if (g->ping.on) {
		g->ping.stop = true;
		return;
	}
	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];

		if (s->busy && s->sender)
			s->end = DR_MIN(s->end, dr_stream_next_post(s));
	}
}

static void expect(struct dr_engine *g, const struct dr_command *cmd)
{
	const uint64_t *chunks = cmd->expect;

	for (unsigned i = 0; i < g->n_streams && g->running; i++) {
		struct dr_stream *s = &g->stream[i];

		if (s->sender || !s->busy)
			continue;
		/* A value from the peer: an error, not an assertion. */
		if (chunks[i] < dr_stream_next_take(s)) {
			dr_stream_fail(
				s, -EPROTO, "the peer reports that it sent less than has arrived");
			return;
		}
		s->end = chunks[i];
		s->has_expected = cmd->flag;
		s->expected_bytes = cmd->expect_bytes[i];
	}
}

static void mark(struct dr_engine *g, int64_t which, int64_t now)
{
	if (!g->running || g->phase.iters)
		return;
	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];
		struct dr_tally *t = which ? &s->to : &s->from;

		if (!s->have_from) /* no part in this phase */
			continue;
		*t = s->now;
		t->ns = now;
		s->have_to |= which != 0;
	}
}

static void break_path(
	struct dr_channel *ch, unsigned path, const struct dr_command *cmd, int64_t now)
{
	struct dr_path *p = dr_channel_path(ch, path);

	if (!cmd->break_path)
		dr_channel_path_dead(
			ch, path, -ECONNABORTED, "connection closed by fault injection", now);
	else if (p)
		cmd->break_path(dr_staged_inner(p));
}

static void break_or_switch(struct dr_engine *g, const struct dr_command *cmd, int64_t now)
{
	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];

		if (s->failed || (cmd->channel != DR_ALL && cmd->channel != i))
			continue;
		if (cmd->kind == DR_CMD_SWITCH) {
			if (s->sender && dr_channel_switch_now(s->ch, now) < 0)
				dr_warn("channel",
					"gpu %u channel %u: no path is available for the switch",
					g->prm.gpu, i);
			continue;
		}
		for (unsigned path = 0; path < DR_PATHS; path++)
			if (cmd->path == DR_ALL || cmd->path == path)
				break_path(s->ch, path, cmd, now);
	}
}

void dr_engine_command(struct dr_engine *g, const struct dr_command *cmd, int64_t now_ns)
{
	g->now = now_ns;
	dr_engine_all_due(g);
	switch (cmd->kind) {
	case DR_CMD_CONNECT:
		dr_engine_connect(g, now_ns);
		break;
	case DR_CMD_PHASE:
		begin_phase(g, &cmd->phase, now_ns);
		break;
	case DR_CMD_STOP:
		stop(g);
		break;
	case DR_CMD_EXPECT:
		expect(g, cmd);
		break;
	case DR_CMD_MARK:
		mark(g, cmd->value, now_ns);
		break;
	case DR_CMD_BREAK:
	case DR_CMD_SWITCH:
		break_or_switch(g, cmd, now_ns);
		break;
	case DR_CMD_GAPS:
		dr_engine_gaps(g, cmd);
		break;
	case DR_CMD_FAIL:
		for (unsigned i = 0; i < g->n_streams; i++)
			if (!g->stream[i].failed)
				dr_channel_fail(g->stream[i].ch, cmd->err, cmd->text, now_ns);
		break;
	case DR_CMD_PAUSE_RECV:
		g->paused = cmd->flag;
		break;
	case DR_CMD_SNAPSHOT:
		break; /* the worker's */
	}
}
