/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "channel/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * ChannelManager: lifecycle of its rails, and timers. manager_channels.c has its channels, manager_rails.c judges the rails.
 */
static const int64_t STUCK_FAST_NS = 2 * DR_NS_PER_S; /* above several RTOs of 200 ms and more */
/* Conservative detection waits twice the time after which the NIC gives up (hw_window_ns), or
 * three repetitions of a kernel, 200, 400 and 600 ms or more apart. */
static const int64_t KERNEL_WINDOW_NS = 1200 * DR_NS_PER_MS;

static int64_t conservative_ns(const struct dr_manager_params *p)
{
	int64_t window = p->hw_window_ns ? p->hw_window_ns : KERNEL_WINDOW_NS;

	return p->detect == DR_DETECT_TRANSPORT || window > DR_NEVER / 2 ? DR_NEVER : 2 * window;
}

const char *const dr_detect_names[] = { "fast", "conservative", "transport", NULL };

/* While heartbeats arrive, the NIC gets the time of three retries to repair a lost last packet. */
int64_t dr_manager_stuck_ns(const struct dr_manager_params *p)
{
	if (p->detect != DR_DETECT_FAST)
		return conservative_ns(p);
	return p->hw_retry_ns > DR_NEVER / 3 ? DR_NEVER : DR_MAX(STUCK_FAST_NS, 3 * p->hw_retry_ns);
}

static void on_dgram(struct dr_manager *m, unsigned rail, const struct dr_event *ev)
{
	struct dr_channel *ch;
	struct dr_frame fr;
	uint32_t id;

	if ((m->prm.transport->caps & DR_CAP_DGRAM) &&
		dr_dgram_decode(&m->dgram, ev->data, ev->len, &id, &fr) == 0) {
		ch = dr_manager_channel_at(m, id);
		if (ch)
			dr_channel_datagram(ch, &fr, m->now);
	} else if (!m->peer->shared) {
		(void)dr_hb_receive(m->hb, rail, ev->data, ev->len, ev->size, m->now);
	}
}

/* The first manager that sees what is wrong with the NIC or its link decides for all. Of a rail
 * that is down already the paths may be up again, before it is heard. */
static void rail_failed(struct dr_manager *m, unsigned r, int err, const char *why)
{
	dr_peer_lock(m);
	dr_manager_take_verdicts(m);
	if (m->rail[r].state == DR_RAIL_DOWN)
		dr_manager_rail(m, r, DR_RAIL_DOWN, err, why);
	else
		dr_manager_rail_fell(m, r, false, err, why);
	dr_peer_unlock(m);
}

static void on_rail_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct mgr_rail *mr = dr_container_of(sink, struct mgr_rail, sink);
	struct dr_manager *m = mr->m;
	struct dr_channel *ch;

	switch (ev->kind) {
	case DR_EV_DGRAM:
		if (m->started)
			on_dgram(m, mr->index, ev);
		break;
	case DR_EV_INCOMING:
		ch = dr_manager_channel_at(m, ev->channel);
		if (ch)
			dr_channel_incoming(ch, ev->index, ev->gen, m->now);
		break;
	case DR_EV_FAILED:
		dr_warn("rail", "gpu %u rail %u: %s", m->prm.gpu, mr->index, ev->text);
		/* What is wrong with the objects of this manager alone says nothing about the
		 * rail: its paths report what they cannot carry any more, and common heartbeats
		 * have endpoints of their own. */
		if (!m->peer->shared || ev->scope != DR_SCOPE_LOCAL)
			rail_failed(m, mr->index, ev->err, ev->text);
		break;
	default:
		break;
	}
}

static void rail_ready(void *arg, int64_t now)
{
	struct mgr_rail *mr = arg;

	mr->m->now = now;
	mr->rail->ops->rail_progress(mr->rail, now, &mr->sink);
}

static int open_rail(struct dr_manager *m, unsigned r, struct dr_err *e)
{
	struct mgr_rail *mr = &m->rail[r];
	struct dr_rail_params rp = {
		.index = r,
		.sockbuf = m->prm.sockbuf,
		.alone = m->prm.detect == DR_DETECT_TRANSPORT,
		.poller = m->prm.poller,
		.ready = rail_ready,
		.arg = mr,
	};
	int rc;

	mr->m = m;
	mr->index = r;
	mr->ifindex = m->prm.rail[r].ifindex;
	mr->sink.event = on_rail_event;
	rc = dr_peer_listen(&m->prm, &rp, &mr->rail, e);
	if (rc != 0)
		return rc;
	m->n_open++;
	m->own_peer.rail[r].rail = mr->rail;
	return 0;
}

int dr_manager_destroy(struct dr_manager *m)
{
	int rc;

	if (!m)
		return 0;
	rc = dr_manager_free_channels(m);
	if (m->started)
		dr_peer_leave(m);
	for (unsigned r = 0; r < m->n_open; r++) {
		m->rail[r].rail->ops->rail_close(m->rail[r].rail);
		m->rail[r].rail->ops->rail_fini(m->rail[r].rail);
	}
	dr_free(m);
	return rc;
}

int dr_manager_create(const struct dr_manager_params *p, struct dr_manager **out, struct dr_err *e)
{
	struct dr_manager *m;
	int rc = 0;

	if (p->n_rails < 1 || p->n_rails > DR_RAILS_MAX || p->heartbeat_ns <= 0)
		return dr_err_set(e, -EINVAL, "gpu %u: %u rails (1..%d), a heartbeat in %lld ns",
			p->gpu, p->n_rails, DR_RAILS_MAX, (long long)p->heartbeat_ns);
	m = dr_calloc(1, sizeof(*m));
	if (!m)
		return dr_err_set(e, -ENOMEM, "gpu %u: out of memory", p->gpu);
	m->prm = *p;
	dr_dgram_end_init(&m->dgram, (uint16_t)p->gpu, p->connector, p->token);
	m->owed_ns = m->due_ns = DR_NEVER;
	if (m->prm.lost_after_ns == 0)
		m->prm.lost_after_ns = DR_LOST_AFTER_NS;
	dr_peer_init(&m->own_peer, p, p->gpu);
	m->peer = p->peer ? p->peer : &m->own_peer;
	m->hb = &m->peer->hb;
	for (unsigned r = 0; r < p->n_rails && rc == 0; r++)
		rc = open_rail(m, r, e);
	if (rc != 0) {
		(void)dr_manager_destroy(m); /* nothing was posted */
		return rc;
	}
	*out = m;
	return 0;
}

unsigned dr_manager_handle_count(const struct dr_manager *m)
{
	return m->n_open;
}

int dr_manager_handle(struct dr_manager *m, unsigned i, struct dr_handle *out)
{
	dr_assert(i < dr_manager_handle_count(m));
	return dr_rail_handle(m->rail[i].rail, out);
}

int dr_manager_start(
	struct dr_manager *m, const struct dr_handle *h, unsigned n, int64_t now, struct dr_err *e)
{
	if (n != dr_manager_handle_count(m))
		return dr_err_set(e, -EPROTO, "gpu %u: the peer sent %u handles, expected %u",
			m->prm.gpu, n, dr_manager_handle_count(m));
	m->now = now;
	m->owed_ns = DR_NEVER;
	for (unsigned i = 0; i < n; i++) {
		int rc = m->rail[i].rail->ops->rail_peer(m->rail[i].rail, h[i].bytes, h[i].len, e);

		if (rc != 0)
			return rc;
	}
	if (!m->peer->shared)
		dr_hb_start(m->hb, now);
	m->started = true;
	dr_peer_join(m);
	return 0;
}

bool dr_manager_heard(const struct dr_manager *m, unsigned rail)
{
	return m->hb->d.rail[rail].ever;
}

int dr_manager_ready(const struct dr_manager *m)
{
	int all = 1;

	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		int rc = dr_channel_ready(c->ch);

		if (rc < 0)
			return rc;
		all &= rc;
	}
	return all;
}

/* How late the heartbeat tick is called shows how long this process was stalled. */
static void watch_self(struct dr_manager *m)
{
	int64_t late = m->started ? m->now - DR_MAX(dr_peer_due(m), m->ticked_ns) : 0;

	m->ticked_ns = m->now;
	m->late_ns = DR_MAX(m->late_ns, late);
	if (late < DR_MIN(m->prm.heartbeat_ns, DR_CHANNEL_STALL_NS))
		return;
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		dr_channel_late(c->ch, late, m->now);
}

/* A peer of this manager alone has no endpoints of its own. */
static int read_peer(struct dr_manager *m)
{
	int n;

	if (!m->peer->shared || m->peer->poller || !dr_peer_try_lock(m))
		return 0;
	n = dr_peer_read(m, UINT32_MAX);
	dr_peer_unlock(m);
	return n;
}

int dr_manager_tick(struct dr_manager *m, int64_t now)
{
	int n = 0;

	m->now = now;
	watch_self(m);
	if (!m->prm.poller) {
		for (unsigned r = 0; r < m->prm.n_rails; r++)
			n += m->rail[r].rail->ops->rail_progress(
				m->rail[r].rail, now, &m->rail[r].sink);
		for (struct mgr_channel *c = m->channels; c; c = c->next)
			n += dr_channel_progress(c->ch, now);
	}
	n += read_peer(m);
	dr_manager_tick_channels(m);
	if (m->started)
		n += dr_manager_beat(m);
	return n;
}

int64_t dr_manager_late_ns(const struct dr_manager *m)
{
	return m->late_ns;
}

int64_t dr_manager_deadline(const struct dr_manager *m)
{
	int64_t beat;

	if (!m->started)
		return m->due_ns;
	beat = dr_peer_news(m) ? m->now : DR_MIN(dr_peer_due(m), m->owed_ns);
	return DR_MIN(DR_MAX(beat, m->retry_ns), m->due_ns);
}

void dr_manager_link(struct dr_manager *m, int ifindex, bool up, int64_t now)
{
	m->now = now;
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		if (m->rail[r].ifindex != ifindex || ifindex == 0)
			continue;
		if (!up && m->prm.detect != DR_DETECT_TRANSPORT)
			rail_failed(m, r, -ENETDOWN, "link down");
		else if (up && m->prm.detect != DR_DETECT_FAST)
			dr_manager_rail(m, r, DR_RAIL_ALIVE, 0, "link up");
	}
}

int64_t dr_manager_detect_bound(const struct dr_manager_params *p)
{
	return p->detect == DR_DETECT_FAST ? DR_BOUND_BEATS * p->heartbeat_ns : conservative_ns(p);
}

void dr_manager_close(struct dr_manager *m, int64_t now)
{
	m->now = now;
	m->closing = true;
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		dr_channel_close(c->ch, now);
}

bool dr_manager_closed(const struct dr_manager *m)
{
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		if (!dr_channel_closed(c->ch))
			return false;
	return true;
}
