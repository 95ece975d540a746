/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include <errno.h>
#include <stdatomic.h>

/*
 * The ChannelManager's verdicts about its rails; channels only hear of their paths.
 *
 * Silence on everything (no rail heard for SILENT_NS of executed ticks) is split by what the peer's
 * kernel still does: each PROBE_NS every channel sends a few bytes on each live path, and while the
 * peer's kernel acknowledges them its process merely stands still and the channels wait. Where
 * nothing is acknowledged for lost_after_ns, both rails are lost and the channels end.
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
	if (m->prm.ops != NULL && m->prm.ops->rail != NULL)
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

/* Any byte on a path is a sign of life of its rail, and what we sent spares a heartbeat. */
static uint32_t look_at_paths(struct dr_manager *m)
{
	uint32_t busy = 0;

	for (unsigned c = 0; c < m->prm.n_channels; c++) {
		for (unsigned i = 0; i < DR_PATHS; i++) {
			const struct dr_path *p = dr_channel_path(m->channel[c], i);

			if (p == NULL)
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

/* Before a rail falls: what of it has arrived and was not read yet, for our loop stood still or is long,
 * is read now. Returns the number of events. */
static int look_once_more(struct dr_manager *m)
{
	uint32_t accused = dr_hb_accused(&m->hb);
	int n = 0;

	for (unsigned r = 0; accused != 0 && r < m->prm.n_rails; r++) {
		struct mgr_rail *mr = &m->rail[r];

		if (!(accused & (1u << r)))
			continue;
		n += mr->rail->ops->rail_progress(mr->rail, m->now, &mr->sink);
		for (unsigned c = 0; c < m->prm.n_channels; c++)
			if (uses(m, c, 0, r) || uses(m, c, 1, r))
				n += dr_channel_progress(m->channel[c], m->now);
	}
	return n;
}

/* Tell the other workers what this one heard, and take what they did. */
static void share_life(struct dr_manager *m)
{
	struct dr_rail_life *l = m->prm.life;

	for (unsigned r = 0; l != NULL && r < m->prm.n_rails; r++) {
		if (m->hb.rail[r].heard)
			atomic_store_explicit(&l->heard_ns[r], m->now, memory_order_relaxed);
		else if (atomic_load_explicit(&l->heard_ns[r], memory_order_relaxed) >
			 m->hb.last_tick_ns)
			dr_hb_vouch(&m->hb, r);
	}
}

/* Adds to out->fell what another worker found since the last tick. */
static void share_falls(struct dr_manager *m, struct dr_hb_out *out)
{
	struct dr_rail_life *l = m->prm.life;

	for (unsigned r = 0; l != NULL && r < m->prm.n_rails; r++) {
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

static void tell_silence(struct dr_manager *m, bool stalled, int64_t silent_ns)
{
	if (m->stalled != stalled)
		for (unsigned c = 0; c < m->prm.n_channels; c++)
			dr_channel_stalled(m->channel[c], stalled, m->now);
	if (m->stalled == stalled && m->now - m->silence_told_ns < DR_NS_PER_S)
		return;
	m->stalled = stalled;
	m->silence_told_ns = m->now;
	if (m->prm.ops != NULL && m->prm.ops->silence != NULL)
		m->prm.ops->silence(m->prm.arg, stalled, silent_ns, m->now);
}

static void watch_silence(struct dr_manager *m)
{
	int64_t silent = dr_hb_silent_ns(&m->hb), age = -1;

	if (silent < SILENT_NS) {
		if (m->stalled)
			tell_silence(m, false, 0);
		m->probe_ns = 0;
		return;
	}
	if (m->lost || m->now < m->probe_ns)
		return;
	m->probe_ns = m->now + PROBE_NS;
	for (unsigned c = 0; c < m->prm.n_channels; c++) {
		int64_t a = dr_channel_peer_kernel_age(m->channel[c]);

		if (a >= 0 && (age < 0 || a < age))
			age = a;
		dr_channel_probe(m->channel[c], m->now);
	}
	if (age >= 0 && age < 3 * PROBE_NS) {
		tell_silence(m, true, silent);
	} else if (silent >= m->prm.lost_after_ns &&
		   (age < 0 || age >= m->prm.lost_after_ns - PROBE_NS)) {
		m->lost = true;
		if (m->prm.ops != NULL && m->prm.ops->silence != NULL)
			m->prm.ops->silence(m->prm.arg, false, silent, m->now);
		for (unsigned c = 0; c < m->prm.n_channels; c++)
			dr_channel_fail(m->channel[c], -ENETDOWN,
				"nothing is heard or acknowledged on any rail", m->now);
	}
}

/* The channel to send rail r's heartbeat on, by its path: the one that was heard last, for a path that
 * the peer has fenced already looks up here until it fails. -1: none is up. */
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

/* As a datagram beside the bulk queues, or, where the kind has none, as a control frame. */
static void send_heartbeat(struct dr_manager *m, unsigned r)
{
	uint8_t buf[DR_DGRAM_MAX];
	size_t len = dr_hb_make(&m->hb, r, buf);
	unsigned path = 0;
	int c;

	if (m->prm.transport->caps & DR_CAP_DGRAM) {
		m->rail[r].rail->ops->rail_dgram(m->rail[r].rail, buf, len);
		return;
	}
	c = heartbeat_path(m, r, &path);
	if (c >= 0)
		(void)dr_channel_send_foreign(m->channel[c], path, buf, len, m->now);
}

int dr_manager_beat(struct dr_manager *m)
{
	struct dr_hb_out out;
	uint32_t busy;
	int n;

	if (m->now < m->hb.next_ns)
		return 0;
	n = look_once_more(m);
	busy = look_at_paths(m);
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
				"silent while another rail is heard (heartbeats)");
		if (out.rose & (1u << r))
			dr_manager_rail_up(m, r, "heard again both ways");
	}
	watch_silence(m);
	return n;
}
