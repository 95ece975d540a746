/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include <errno.h>
#include <stdatomic.h>

/*
 * The ChannelManager judges its rails; channels are only told about their paths.
 *
 * Silence on all rails (none heard for SILENT_NS of executed ticks): every PROBE_NS each channel sends
 * a PROBE on each path that is up. While the peer's kernel acknowledges them, or answers the probes of a
 * window that it keeps shut, only its process is stalled, and the channels wait. If nothing is
 * acknowledged for lost_after_ns and transmissions on every path have no answer, both rails are lost and
 * the channels end.
 */
static const int64_t SILENT_NS = 100 * DR_NS_PER_MS;
static const int64_t PROBE_NS = 100 * DR_NS_PER_MS;

static bool uses(const struct dr_manager *m, unsigned c, unsigned path, unsigned rail)
{
	const struct dr_manager_channel *mc = &m->prm.channel[c];

	if (path == 0)
		return mc->primary == rail;
	return mc->shadow == rail && mc->shadow != mc->primary;
}

static void set_rail(struct dr_manager *m, unsigned r, enum dr_rail_state st, const char *why)
{
	if (m->rail[r].state == st)
		return;
	m->rail[r].state = st;
	if (m->prm.ops && m->prm.ops->rail)
		m->prm.ops->rail(m->prm.arg, r, st, why, m->now);
}

void dr_manager_rail_down(struct dr_manager *m, unsigned r, int err, const char *why)
{
	set_rail(m, r, DR_RAIL_DOWN, why);
	for (unsigned c = 0; c < m->prm.n_channels; c++)
		for (unsigned i = 0; i < DR_PATHS; i++)
			if (uses(m, c, i, r))
				dr_channel_rail_down(m->channel[c], i, err, why, m->now);
}

void dr_manager_rail_up(struct dr_manager *m, unsigned r, const char *why)
{
	set_rail(m, r, DR_RAIL_ALIVE, why);
	for (unsigned c = 0; c < m->prm.n_channels; c++)
		for (unsigned i = 0; i < DR_PATHS; i++)
			if (uses(m, c, i, r))
				dr_channel_rail_up(m->channel[c], i, m->now);
}

/* Any byte received on a path is a sign of life of its rail; a rail on which we sent bytes needs no
 * heartbeat. */
static uint32_t collect_life(struct dr_manager *m)
{
	uint32_t busy = 0;

	for (unsigned c = 0; c < m->prm.n_channels; c++) {
		for (unsigned i = 0; i < DR_PATHS; i++) {
			const struct dr_path *p = dr_channel_path(m->channel[c], i);

			if (!p)
				continue;
			if (p->rx_last_ns > m->life_ns)
				dr_hb_life(&m->hb, p->rail->index);
			if (p->tx_last_ns > m->now - m->prm.heartbeat_ns)
				busy |= 1u << p->rail->index;
		}
	}
	m->life_ns = m->now;
	return busy;
}

/* Before a rail is declared down: reads what has arrived on it and is still unread because our loop was
 * stalled or is long. Returns the number of events. */
static int read_suspects(struct dr_manager *m)
{
	uint32_t suspects = dr_hb_suspects(&m->hb);
	int n = 0;

	for (unsigned r = 0; suspects != 0 && r < m->prm.n_rails; r++) {
		struct mgr_rail *mr = &m->rail[r];

		if (!(suspects & (1u << r)))
			continue;
		n += mr->rail->ops->rail_progress(mr->rail, m->now, &mr->sink);
		for (unsigned c = 0; c < m->prm.n_channels; c++)
			if (uses(m, c, 0, r) || uses(m, c, 1, r))
				n += dr_channel_progress(m->channel[c], m->now);
	}
	return n;
}

/* Shares with the other workers which rails are heard. */
static void share_life(struct dr_manager *m)
{
	struct dr_rail_life *l = m->prm.life;

	for (unsigned r = 0; l && r < m->prm.n_rails; r++) {
		if (m->hb.rail[r].heard)
			atomic_store_explicit(&l->heard_ns[r], m->now, memory_order_relaxed);
		else if (atomic_load_explicit(&l->heard_ns[r], memory_order_relaxed) >
			 m->hb.last_tick_ns)
			dr_hb_heard_elsewhere(&m->hb, r);
	}
}

/* Adds to out->fell the rails that another worker declared down since the last tick, and shares our
 * own. */
static void share_falls(struct dr_manager *m, struct dr_hb_out *out)
{
	struct dr_rail_life *l = m->prm.life;

	for (unsigned r = 0; l && r < m->prm.n_rails; r++) {
		uint32_t falls = atomic_load_explicit(&l->falls[r], memory_order_relaxed);

		if (falls != m->falls_seen[r] && !m->hb.rail[r].down) {
			dr_hb_force_down(&m->hb, r);
			out->fell |= 1u << r;
		} else if (out->fell & (1u << r)) {
			falls = 1 +
				atomic_fetch_add_explicit(&l->falls[r], 1, memory_order_relaxed);
		}
		m->falls_seen[r] = falls;
	}
}

static void report_silence(struct dr_manager *m, bool stalled, int64_t silent_ns)
{
	if (m->stalled != stalled)
		for (unsigned c = 0; c < m->prm.n_channels; c++)
			dr_channel_stalled(m->channel[c], stalled, m->now);
	if (m->stalled == stalled && m->now - m->silence_reported_ns < DR_NS_PER_S)
		return;
	m->stalled = stalled;
	m->silence_reported_ns = m->now;
	if (m->prm.ops && m->prm.ops->silence)
		m->prm.ops->silence(m->prm.arg, stalled, silent_ns, m->now);
}

static void watch_silence(struct dr_manager *m)
{
	enum dr_peer_answers best = DR_PEER_UNKNOWN;
	int64_t silent = dr_hb_silent_ns(&m->hb);

	if (silent < SILENT_NS) {
		if (m->stalled)
			report_silence(m, false, 0);
		m->probe_ns = 0;
		return;
	}
	if (m->lost || m->now < m->probe_ns)
		return;
	m->probe_ns = m->now + PROBE_NS;
	for (unsigned c = 0; c < m->prm.n_channels; c++) {
		enum dr_peer_answers one = dr_channel_peer_answers(
			m->channel[c], 3 * PROBE_NS, m->prm.lost_after_ns - PROBE_NS);

		best = DR_MAX(best, one);
		dr_channel_probe(m->channel[c], m->now);
	}
	if (best == DR_PEER_ANSWERS) {
		report_silence(m, true, silent);
	} else if (silent >= m->prm.lost_after_ns && best != DR_PEER_PENDING) {
		m->lost = true;
		if (m->prm.ops && m->prm.ops->silence)
			m->prm.ops->silence(m->prm.arg, false, silent, m->now);
		for (unsigned c = 0; c < m->prm.n_channels; c++)
			dr_channel_fail(m->channel[c], -ENETDOWN,
				"nothing is heard or acknowledged on any rail", m->now);
	}
}

/* The channel and path that carry rail r's heartbeat: the path that was heard last, since a path that
 * the peer has fenced looks ready here until it fails. -1: none is up. */
static int heartbeat_path(struct dr_manager *m, unsigned r, unsigned *path)
{
	int64_t heard = -1;
	int best = -1;

	for (unsigned c = 0; c < m->prm.n_channels; c++)
		for (unsigned i = 0; i < DR_PATHS; i++) {
			const struct dr_path *p;

			if (!uses(m, c, i, r) || !dr_channel_path_up(m->channel[c], i))
				continue;
			p = dr_channel_path(m->channel[c], i);
			if (p->rx_last_ns > heard) {
				heard = p->rx_last_ns;
				best = (int)c;
				*path = i;
			}
		}
	return best;
}

/* The peer may have fenced the path that was heard last, and nothing tells so here. While either end misses
 * heartbeats of the rail, every path of it carries them; of the copies one counts. */
static void send_as_control(struct dr_manager *m, unsigned r, const void *buf, size_t len)
{
	bool missed = m->hb.rail[r].miss > 0 || m->hb.rail[r].peer_miss > 0;
	unsigned path = 0;
	int best = heartbeat_path(m, r, &path);

	for (unsigned c = 0; best >= 0 && c < m->prm.n_channels; c++)
		for (unsigned i = 0; i < DR_PATHS; i++)
			if (missed ? uses(m, c, i, r) : (int)c == best && i == path)
				(void)dr_channel_send_user_control(
					m->channel[c], i, buf, len, m->now);
}

/* As a datagram outside the bulk queues or, if the kind has none, as a user control frame. */
static void send_heartbeat(struct dr_manager *m, unsigned r)
{
	uint8_t buf[DR_DGRAM_MAX];
	size_t len = dr_hb_make(&m->hb, r, buf);

	if (m->prm.transport->caps & DR_CAP_DGRAM)
		m->rail[r].rail->ops->rail_dgram(m->rail[r].rail, buf, len);
	else
		send_as_control(m, r, buf, len);
}

int dr_manager_beat(struct dr_manager *m)
{
	struct dr_hb_out out;
	uint32_t busy;
	int n;

	if (m->now < m->hb.next_ns)
		return 0;
	n = read_suspects(m);
	busy = collect_life(m);
	share_life(m);
	dr_hb_tick(&m->hb, busy, m->now, &out);
	for (unsigned r = 0; r < m->prm.n_rails; r++)
		if (out.send & (1u << r))
			send_heartbeat(m, r);
	if (!out.full)
		return n;
	share_falls(m, &out);
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		if ((out.fell & (1u << r)) && m->prm.detect == DR_DETECT_FAST)
			dr_manager_rail_down(m, r, -ETIMEDOUT,
				"no heartbeat received while another rail is heard");
		if (out.rose & (1u << r))
			dr_manager_rail_up(m, r, "heard again in both directions");
	}
	watch_silence(m);
	return n;
}
