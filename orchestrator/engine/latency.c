/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/clock.h"
#include "orchestrator/engine/engine.h"

/*
 * Ping-pong over two channels, lat_tx and lat_rx as seen from each end. A round is one message from
 * the client and one back.
 *
 *  1. Between the last chunk of a message and the first one of the reply only the work of the round is done:
 *     consume, post, flush. Receives are reposted and acknowledged afterwards, while the reply is in flight. The
 *     window holds credits for the next message meanwhile.
 *  2. The client starts a round only when its window has room, so that waiting for an acknowledgement
 *     of the round before is never part of a round trip.
 *     The reply implies that the message arrived, so acknowledgements are batched as long as a message always fits:
 *     they are sent when a quarter of the window is left.
 *  3. A message with more chunks than the window proceeds as receives are reposted and acknowledgements arrive;
 *     both happen in every step.
 */

static struct dr_stream *tx(struct dr_engine *g)
{
	return &g->stream[g->prm.lat_tx];
}

static struct dr_stream *rx(struct dr_engine *g)
{
	return &g->stream[g->prm.lat_rx];
}

void dr_ping_begin(struct dr_engine *g)
{
	g->ping = (struct dr_ping){ .on = true, .client = g->client };
	dr_channel_set_ack_batch(rx(g)->ch, g->message_chunks <= g->prm.manager.window / 4);
}

static bool post_due(struct dr_engine *g)
{
	bool any = false;

	while (g->ping.to_post > 0 && dr_stream_post_send(tx(g)) == 0) {
		g->ping.to_post--;
		any = true;
	}
	if (any)
		dr_channel_flush(tx(g)->ch, g->now);
	return any;
}

static bool is_last_round(const struct dr_engine *g)
{
	const struct dr_phase *p = &g->phase;

	return g->ping.stop || (p->iters && g->ping.round == p->warmup + p->iters);
}

/* Client: post the next message, if there is one and the window is not full. */
static bool start_round(struct dr_engine *g)
{
	struct dr_ping *l = &g->ping;

	if (l->in_round || is_last_round(g) || dr_window_full(&tx(g)->win))
		return false;
	l->in_round = true;
	l->to_post = g->message_chunks;
	l->start_ns = g->now = l->wait_ns = dr_now_ns();
	return post_due(g);
}

/* A message has arrived completely. */
static void message_in(struct dr_engine *g)
{
	struct dr_ping *l = &g->ping;
	int64_t now = dr_now_ns();

	g->now = now;
	if (l->wait_ns)
		l->turn_ns += (now - l->wait_ns - l->turn_ns) / (l->turn_ns ? 8 : 1);
	l->wait_ns = 0;
	if (l->client) {
		if (l->round >= g->phase.warmup)
			dr_hist_record(g->rtt, now - l->start_ns);
		l->in_round = false;
		l->round++;
		start_round(g);
	} else {
		l->round++;
		l->to_post += g->message_chunks;
		post_due(g);
		l->wait_ns = now;
	}
}

static bool finished(struct dr_engine *g)
{
	struct dr_ping *l = &g->ping;

	if (l->to_post || l->in_round || dr_stream_next_take(tx(g)) != dr_stream_next_post(tx(g)))
		return false;
	return l->client ? is_last_round(g) : dr_stream_next_take(rx(g)) == rx(g)->end;
}

int dr_ping_poll(struct dr_engine *g, int64_t now_ns)
{
	return dr_channel_poll(rx(g)->ch, now_ns);
}

bool dr_ping_step(struct dr_engine *g)
{
	unsigned taken = 0;
	bool did = false;

	while (taken < g->message_chunks && dr_stream_take(rx(g))) {
		taken++;
		if (rx(g)->take_at == 0) {
			message_in(g);
			break;
		}
	}
	/* After the reply, which needs the slots released here only if the window is full. */
	did |= dr_stream_drain(tx(g)) > 0;
	did |= post_due(g);
	if (g->ping.client)
		did |= start_round(g);
	if (rx(g)->failed || tx(g)->failed)
		return false;
	unsigned again = dr_stream_post_recv(rx(g));
	if (again)
		dr_channel_flush(rx(g)->ch, g->now);
	if (g->ping.on && finished(g))
		dr_engine_ping_done(g);
	return did || taken || again;
}
