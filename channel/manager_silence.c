/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include <errno.h>

/*
 * Silence on all rails: the peer's process is stalled, or every rail is lost.
 *
 * Where the peer's heartbeats say that its manager stands, its process runs and the channels wait, too.
 * Silence on all rails (none heard for SILENT_NS of executed ticks): every PROBE_NS each channel sends
 * a PROBE on each path that is up. While the peer's kernel acknowledges them, or answers the probes of a
 * window that it keeps shut, only its process is stalled, and the channels wait. If nothing is
 * acknowledged for lost_after_ns and transmissions on every path that is left have no answer, both rails are lost and
 * the channels end. A kind that carries heartbeats on its paths and tells nothing of the peer's kernel (nccl) cannot
 * separate the two: while a path is up the silence counts as a stalled process, for UNKNOWN_NS.
 */
static const int64_t SILENT_NS = 100 * DR_NS_PER_MS;
static const int64_t PROBE_NS = 100 * DR_NS_PER_MS;
static const int64_t UNKNOWN_NS = 60 * DR_NS_PER_S;

/* silent_ns 0: a rail is heard. That the peer's manager alone stands is told the owner when it lasts for a second. */
static void report_silence(struct dr_manager *m, bool stalled, int64_t silent_ns)
{
	bool later = stalled && silent_ns == 0 && !m->stalled, told = m->silence_told;

	if (m->stalled != stalled)
		for (struct mgr_channel *c = m->channels; c; c = c->next)
			dr_channel_stalled(c->ch, stalled, m->now);
	if (m->stalled == stalled && m->now - m->silence_reported_ns < DR_NS_PER_S)
		return;
	m->stalled = stalled;
	m->silence_reported_ns = m->now;
	m->silence_told = stalled && !later;
	if ((m->silence_told || told) && m->prm.ops && m->prm.ops->silence)
		m->prm.ops->silence(m->prm.arg, stalled, silent_ns, m->now);
}

/* The peer's process runs, and its manager at our position does not. */
static bool peer_stands(const struct dr_manager *m)
{
	return m->peer->shared && m->prm.position < DR_POSITIONS_MAX &&
	       dr_hb_peer_stands(m->hb, m->prm.position, m->now);
}

static void tell_lost(struct dr_manager *m, bool lost, int64_t silent_ns)
{
	m->lost = lost;
	if (m->prm.ops && m->prm.ops->silence)
		m->prm.ops->silence(m->prm.arg, false, silent_ns, m->now);
}

/* Every rail is lost. A channel that was started during the silence has as much time as those before it had. */
static void fail_lost(struct dr_manager *m)
{
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		if (dr_channel_ready(c->ch) >= 0 &&
			m->now - dr_channel_started_ns(c->ch) >= m->prm.lost_after_ns)
			dr_channel_fail(c->ch, -ENETDOWN,
				"nothing is heard or acknowledged on any rail", m->now);
}

void dr_manager_watch_silence(struct dr_manager *m)
{
	enum dr_peer_answers best = DR_PEER_UNKNOWN;
	int64_t silent = dr_hb_silent_ns(m->hb);
	bool up = false;

	if (silent < SILENT_NS) {
		bool stands = peer_stands(m);

		if (m->lost)
			tell_lost(m, false, 0);
		report_silence(m, stands, 0);
		m->probe_ns = m->answered_ns = 0;
		return;
	}
	if (m->now < m->probe_ns)
		return;
	m->probe_ns = m->now + PROBE_NS;
	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		enum dr_peer_answers one = dr_channel_peer_answers(
			c->ch, 3 * PROBE_NS, m->prm.lost_after_ns - PROBE_NS);

		best = DR_MAX(best, one);
		up |= dr_channel_path_up(c->ch, 0) || dr_channel_path_up(c->ch, 1);
		dr_channel_probe(c->ch, m->now);
	}
	if (m->hb->on_paths && best == DR_PEER_UNKNOWN && (!up || silent < UNKNOWN_NS)) {
		/* Without a path nothing could be heard; a channel has its own limit of a time without one. */
		if (up)
			report_silence(m, true, silent);
		return;
	}
	if (best == DR_PEER_ANSWERS) {
		m->answered_ns = silent + PROBE_NS; /* it may go on to do so until the next look */
		report_silence(m, true, silent);
	} else if (silent - (best == DR_PEER_UNKNOWN ? m->answered_ns : 0) >=
			   m->prm.lost_after_ns &&
		   best != DR_PEER_PENDING) {
		if (!m->lost)
			tell_lost(m, true, silent);
		fail_lost(m);
	}
}
