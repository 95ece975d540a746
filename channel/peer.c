/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * A peer process: one stream of heartbeats per rail for all managers of this process.
 *
 *  1. One manager is the driver: its poller watches the endpoints, and it comes at the time of a
 *     tick. The others come when they are awake, or an eighth to a quarter of an interval late. Who
 *     finds a tick due executes it, under the lock, for which none waits, except for rare events
 *     (a rail failed). So heartbeats go on while any manager runs. A late tick is one tick.
 *  2. Bytes that a manager read count in the first tick after they were read, in no other, and not
 *     against a suspicion that is younger.
 *  3. A verdict is a number that grows; each manager compares it with the last one that it took.
 *
 * A manager that has no common peer has its own, whose endpoints are its rails.
 */
enum { LAG_PART = 8, LAG_STEPS = 16, PROCESS = UINT16_MAX };

/* When the manager comes for a tick that is due at next_ns. */
static int64_t comes_ns(const struct dr_manager *m, int64_t next_ns)
{
	return next_ns == DR_NEVER ? DR_NEVER : next_ns + m->lag_ns;
}

/* ---- lock ---- */

static void publish(struct dr_peer *p)
{
	atomic_store_explicit(&p->next_ns, p->hb.next_ns, memory_order_relaxed);
}

static void lock(struct dr_peer *p)
{
	int rc = p->shared ? pthread_mutex_lock(&p->lock) : 0;

	dr_assert(rc == 0);
}

static void unlock(struct dr_peer *p)
{
	if (!p->shared)
		return;
	if (p->poller) /* may read, too */
		dr_poller_rest(p->poller);
	publish(p);
	int rc = pthread_mutex_unlock(&p->lock);

	dr_assert(rc == 0);
}

void dr_peer_lock(struct dr_manager *m)
{
	if (m->locks++ == 0)
		lock(m->peer);
	m->peer->now = m->now;
}

bool dr_peer_try_lock(struct dr_manager *m)
{
	if (m->locks == 0 && m->peer->shared && pthread_mutex_trylock(&m->peer->lock) != 0)
		return false;
	m->locks++;
	m->peer->now = m->now;
	return true;
}

void dr_peer_unlock(struct dr_manager *m)
{
	dr_assert(m->locks > 0);
	if (--m->locks == 0)
		unlock(m->peer);
}

/* ---- endpoints ---- */

static void on_rail_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct peer_rail *pr = dr_container_of(sink, struct peer_rail, sink);
	struct dr_peer *p = pr->peer;

	if (ev->kind == DR_EV_DGRAM) {
		(void)dr_hb_receive(&p->hb, pr->index, ev->data, ev->len, ev->size, p->now);
	} else if (ev->kind == DR_EV_FAILED) { /* without heartbeats no rail is trusted */
		dr_warn("rail", "heartbeats of rail %u: %s", pr->index, ev->text);
		dr_detect_force_down(&p->hb.d, pr->index, false);
		dr_peer_fell(p, pr->index, ev->err, ev->text);
	}
}

static void rail_ready(void *arg, int64_t now)
{
	struct peer_rail *pr = arg;

	pr->peer->now = now;
	pr->rail->ops->rail_progress(pr->rail, now, &pr->sink);
}

/* Of the poller that nobody waits on. If another manager has the lock, it reads now or in its tick. */
static void poller_ready(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	struct dr_peer *p = dr_container_of(po, struct dr_peer, po);

	(void)revents, (void)now;
	if (pthread_mutex_trylock(&p->lock) != 0)
		return;
	(void)dr_poller_wait(p->poller, 0);
	unlock(p);
}

int dr_peer_read(struct dr_manager *m, uint32_t rails)
{
	struct dr_peer *p = m->peer;
	int n = 0;

	for (unsigned r = 0; r < p->n_open; r++)
		if (rails & (1u << r))
			n += p->rail[r].rail->ops->rail_progress(
				p->rail[r].rail, m->now, &p->rail[r].sink);
	return n;
}

int dr_peer_listen(const struct dr_manager_params *m, struct dr_rail_params *p,
	struct dr_rail **out, struct dr_err *e)
{
	p->ifname = m->rail[p->index].ifname;
	p->local = m->rail[p->index].local;
	p->port_min = m->port_min;
	p->port_max = m->port_max;
	p->dscp = m->dscp;
	p->kind_params = m->kind_params;
	memcpy(p->token, m->token, DR_TOKEN_LEN);
	return m->transport->listen(p, out, e);
}

static int open_rail(
	struct dr_peer *p, unsigned r, const struct dr_manager_params *m, struct dr_err *e)
{
	struct dr_rail_params rp = {
		.index = r,
		.poller = p->poller,
		.ready = rail_ready,
		.arg = &p->rail[r],
	};
	int rc;

	p->rail[r].sink.event = on_rail_event;
	rc = dr_peer_listen(m, &rp, &p->rail[r].rail, e);
	p->n_open += rc == 0;
	return rc;
}

/* ---- life ---- */

void dr_peer_init(struct dr_peer *p, const struct dr_manager_params *m, unsigned gpu)
{
	dr_hb_init(&p->hb, m->n_rails, m->heartbeat_ns, (uint16_t)gpu, m->connector, m->token);
	for (unsigned r = 0; r < m->n_rails; r++) {
		p->rail[r].peer = p;
		p->rail[r].index = r;
	}
}

static int open_all(struct dr_peer *p, const struct dr_manager_params *m, struct dr_poller *apart,
	struct dr_err *e)
{
	int rc = 0;

	p->po.fd = -1;
	p->po.ready = poller_ready;
	p->poller = apart;
	if (apart)
		p->po.fd = dr_poller_fd(apart);
	for (unsigned r = 0; r < m->n_rails && rc == 0; r++)
		rc = open_rail(p, r, m, e);
	return rc;
}

int dr_peer_create(const struct dr_manager_params *m, struct dr_poller *apart, struct dr_peer **out,
	struct dr_err *e)
{
	struct dr_peer *p;
	int rc;

	if (!(m->transport->caps & DR_CAP_DGRAM))
		return dr_err_set(e, -ENOTSUP, "peer: %s has no datagrams", m->transport->name);
	p = dr_calloc(1, sizeof(*p));
	if (!p)
		return dr_err_set(e, -ENOMEM, "peer: out of memory");
	dr_peer_init(p, m, PROCESS);
	rc = pthread_mutex_init(&p->lock, NULL);
	dr_assert(rc == 0);
	p->shared = true;
	publish(p);
	rc = open_all(p, m, apart, e);
	if (rc != 0) {
		dr_peer_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

int dr_peer_handle(struct dr_peer *p, unsigned i, struct dr_handle *out)
{
	int rc;

	dr_assert(i < p->n_open);
	lock(p);
	rc = dr_rail_handle(p->rail[i].rail, out);
	unlock(p);
	return rc;
}

int dr_peer_start(
	struct dr_peer *p, const struct dr_handle *h, unsigned n, int64_t now, struct dr_err *e)
{
	int rc = 0;

	if (n != p->n_open)
		return dr_err_set(
			e, -EPROTO, "peer: it sent %u handles, expected %u", n, p->n_open);
	lock(p);
	p->now = now;
	for (unsigned r = 0; r < n && rc == 0; r++)
		rc = p->rail[r].rail->ops->rail_peer(p->rail[r].rail, h[r].bytes, h[r].len, e);
	if (rc == 0)
		dr_hb_start(&p->hb, now);
	unlock(p);
	return rc;
}

void dr_peer_destroy(struct dr_peer *p)
{
	if (!p)
		return;
	dr_assert(!p->managers);
	for (unsigned r = 0; r < p->n_open; r++) {
		p->rail[r].rail->ops->rail_close(p->rail[r].rail);
		p->rail[r].rail->ops->rail_fini(p->rail[r].rail);
	}
	int rc = pthread_mutex_destroy(&p->lock);

	dr_assert(rc == 0);
	dr_free(p);
}

/* ---- managers ---- */

static void drive(struct dr_manager *m)
{
	struct dr_peer *p = m->peer;

	if (p->poller && m->prm.poller) {
		int rc = dr_poller_add(m->prm.poller, &p->po, EPOLLIN);

		if (rc != 0) /* then it is read in the ticks alone */
			dr_warn("rail", "heartbeats cannot be polled: %s", strerror(-rc));
	}
	p->driver = m;
	m->lag_ns = 0;
}

void dr_peer_join(struct dr_manager *m)
{
	struct dr_peer *p = m->peer;

	dr_peer_lock(m);
	m->next = p->managers;
	p->managers = m;
	m->look_ns = m->now;
	/* They do not all come at once: the lock would be taken. */
	m->lag_ns =
		m->prm.heartbeat_ns * (LAG_STEPS + m->prm.gpu % LAG_STEPS) / (LAG_PART * LAG_STEPS);
	m->ticks_seen = atomic_load_explicit(&p->ticks, memory_order_relaxed);
	m->verdicts_seen = atomic_load_explicit(&p->verdicts, memory_order_relaxed);
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		m->seen[r].verdicts = p->rail[r].verdicts;
		m->seen[r].rx_ns = dr_peer_heard_ns(m, r);
		if (p->shared && p->rail[r].down)
			dr_manager_rail(m, r, DR_RAIL_DOWN, p->rail[r].err, p->rail[r].why);
	}
	if (!p->driver)
		drive(m);
	dr_peer_unlock(m);
}

void dr_peer_leave(struct dr_manager *m)
{
	struct dr_peer *p = m->peer;

	dr_peer_lock(m);
	DR_UNLINK(&p->managers, m, next);
	if (p->driver == m) {
		if (p->poller && m->prm.poller)
			dr_poller_del(m->prm.poller, &p->po);
		p->driver = NULL;
	}
	dr_peer_unlock(m);
}

int64_t dr_peer_due(const struct dr_manager *m)
{
	const struct dr_peer *p = m->peer;
	int64_t comes;

	if (!p->shared)
		return p->hb.next_ns;
	comes = comes_ns(m, m->locks > 0 ? p->hb.next_ns
					 : atomic_load_explicit(&p->next_ns, memory_order_relaxed));
	return DR_MIN(m->look_ns, comes);
}

static bool ticked(const struct dr_manager *m)
{
	return m->ticks_seen != atomic_load_explicit(&m->peer->ticks, memory_order_relaxed);
}

bool dr_peer_news(const struct dr_manager *m)
{
	return ticked(m) ||
	       m->verdicts_seen != atomic_load_explicit(&m->peer->verdicts, memory_order_relaxed);
}

bool dr_peer_looked(struct dr_manager *m, const struct dr_hb_out *out)
{
	struct dr_peer *p = m->peer;
	bool full;

	if (out->full)
		atomic_fetch_add_explicit(&p->ticks, 1, memory_order_relaxed);
	full = ticked(m);
	m->ticks_seen = atomic_load_explicit(&p->ticks, memory_order_relaxed);
	if (!p->driver)
		drive(m);
	m->look_ns =
		p->hb.next_ns == DR_NEVER ? m->now + p->hb.interval_ns : comes_ns(m, p->hb.next_ns);
	return full;
}

/* ---- verdicts ---- */

static void count_verdict(struct dr_peer *p, unsigned r, bool down)
{
	p->rail[r].verdicts++;
	p->rail[r].down = down;
	atomic_fetch_add_explicit(&p->verdicts, 1, memory_order_relaxed);
	if (!p->poller)
		return;
	for (struct dr_manager *m = p->managers; m; m = m->next)
		if (m->prm.poller)
			dr_poller_wake(m->prm.poller);
}

void dr_peer_fell(struct dr_peer *p, unsigned r, int err, const char *why)
{
	p->rail[r].err = err;
	snprintf(p->rail[r].why, sizeof(p->rail[r].why), "%s", why);
	count_verdict(p, r, true);
}

void dr_peer_rose(struct dr_peer *p, unsigned r)
{
	if (p->rail[r].down)
		count_verdict(p, r, false);
}
