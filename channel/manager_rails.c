/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

/*
 * Gathers what is known of the rails and of the paths on which data waits, and obeys the rules of
 * detect/. Silence on all rails: manager_silence.c. Data waits for an acknowledgement, and
 *  1. nothing arrived on its rail for OWED_NS, and for 1.5 times the usual time: the rail is
 *     suspect, and a fast phase of heartbeats decides;
 *  2. heartbeats pass, but nothing was acknowledged for DR_DOUBT_NS: padded heartbeats find out
 *     whether packets of full size pass, and probes whether the connection carries anything.
 */
static const int64_t OWED_NS = 2 * DR_NS_PER_MS;
enum { READS_MAX = 1024, SUSPECTS_MAX = 64 };	    /* of a rail in one tick */
static const int64_t RETRY_NS = 100 * DR_NS_PER_US; /* after another manager held the lock */
static const int64_t RAILS_NS = 500 * DR_NS_PER_MS; /* between looks after a manager's own rails */

void dr_manager_rail(
	struct dr_manager *m, unsigned r, enum dr_rail_state st, int err, const char *why)
{
	enum dr_rail_state was = m->rail[r].state;

	m->rail[r].state = st;
	if (st != was && m->prm.ops && m->prm.ops->rail)
		m->prm.ops->rail(m->prm.arg, r, st, why, m->now);
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		for (unsigned i = 0; i < DR_PATHS; i++) {
			if (c->rail[i] == r && st == DR_RAIL_DOWN)
				dr_channel_rail_down(c->ch, i, err, why, m->now);
			else if (c->rail[i] == r)
				dr_channel_rail_up(c->ch, i, m->now);
		}
}

void dr_manager_take_verdicts(struct dr_manager *m)
{
	struct dr_peer *p = m->peer;

	m->verdicts_seen = atomic_load_explicit(&p->verdicts, memory_order_relaxed);
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		const struct peer_rail *pr = &p->rail[r];
		uint32_t n = pr->verdicts - m->seen[r].verdicts;

		m->seen[r].verdicts = pr->verdicts;
		if (n > 1 || (n > 0 && pr->down)) /* it was down meanwhile, or is */
			dr_manager_rail(m, r, DR_RAIL_DOWN, pr->err, pr->why);
		if (n == 0 || pr->down)
			continue;
		dr_manager_rail(m, r, DR_RAIL_ALIVE, 0, "heard again in both directions");
		m->rails_ns = 0;
	}
}

void dr_manager_rail_fell(struct dr_manager *m, unsigned r, bool padded, int err, const char *why)
{
	dr_detect_force_down(&m->hb->d, r, padded);
	dr_peer_fell(m->peer, r, err, why);
	dr_manager_take_verdicts(m);
}

/* Any byte that a manager read on a path is a sign of life of the rail, once: in the first look
 * after it was read, whichever manager looks. A rail on
 * which a manager sent bytes needs no heartbeat. Returns these rails. */
static uint32_t collect_life(struct dr_manager *m)
{
	uint32_t busy = 0;

	for (struct dr_manager *o = m->peer->managers; o; o = o->next)
		for (unsigned r = 0; r < m->prm.n_rails; r++) {
			int64_t rx = dr_peer_heard_ns(o, r);

			if (rx != o->seen[r].rx_ns)
				dr_detect_life(&m->hb->d, r, rx);
			o->seen[r].rx_ns = rx;
			if (dr_peer_sent_ns(o, r) > m->now - m->prm.heartbeat_ns)
				busy |= 1u << r;
		}
	return busy;
}

/* A path of rail r that is up; NULL: none is. */
static struct dr_path *path_on(const struct dr_manager *m, unsigned r)
{
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		for (unsigned i = 0; i < DR_PATHS; i++)
			if (c->rail[i] == r && dr_channel_path_up(c->ch, i))
				return dr_channel_path(c->ch, i);
	return NULL;
}

/* After a loss the kernel holds back what arrives until the gap is filled. So the data segments
 * that it received count, too. What the peer's kernel or NIC acknowledges shows that the rail
 * works, but not that the peer runs. */
static void ask_kernel(struct dr_manager *m, unsigned r)
{
	struct mgr_rail *mr = &m->rail[r];
	uint64_t segments = 0, acked = 0;

	for (struct mgr_channel *c = m->channels; c; c = c->next)
		for (unsigned i = 0; i < DR_PATHS; i++) {
			struct dr_path_stats s = { 0 };
			struct dr_path *p = dr_channel_path(c->ch, i);

			if (!p || p->rail->index != r || !dr_channel_path_up(c->ch, i))
				continue;
			p->ops->stats(p, &s);
			segments += s.rx_segments;
			acked += s.acked_wire;
		}
	if (mr->asked && segments > mr->rx_segments)
		dr_detect_life(&m->hb->d, r, m->now);
	if (mr->asked && acked > mr->acked_wire)
		dr_detect_acked(&m->hb->d, r, m->now);
	mr->asked = true;
	mr->rx_segments = segments;
	mr->acked_wire = acked;
}

/* Where heartbeats use the paths. */
static void look_for_paths(struct dr_manager *m)
{
	bool paths = !(m->prm.transport->caps & DR_CAP_DGRAM);

	for (unsigned r = 0; paths && r < m->prm.n_rails; r++)
		dr_detect_no_path(&m->hb->d, r, !path_on(m, r));
}

/* Reads what has arrived on these rails and is still unread because a loop was stalled or is
 * long. Returns the number of events. */
static int read_rails(struct dr_manager *m, uint32_t rails)
{
	int n = dr_peer_read(m, rails);

	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		struct mgr_rail *mr = &m->rail[r];

		if (!(rails & (1u << r)))
			continue;
		n += mr->rail->ops->rail_progress(mr->rail, m->now, &mr->sink);
		for (struct mgr_channel *c = m->channels; c; c = c->next)
			if (c->rail[0] == r || c->rail[1] == r)
				n += dr_channel_progress(c->ch, m->now);
	}
	return n;
}

/* The driver reads the heartbeats when its poller is told. It may stand, or be late: if a rail has
 * not been heard, all is read before the tick judges. What is left would count in later ticks. */
static uint32_t unread(const struct dr_manager *m)
{
	const struct dr_detector *d = &m->hb->d;
	bool unheard = false;
	uint32_t rails = 0;

	for (unsigned r = 0; m->peer->shared && r < m->prm.n_rails; r++) {
		unheard |= d->rail[r].heard_ns <= d->tick_ns;
		rails |= d->rail[r].beat_ns > d->tick_ns ? 0 : 1u << r;
	}
	return unheard ? rails : 0;
}

/* Before rails are judged. What is read on one may speak against another, which is read again. */
static int read_before(struct dr_manager *m, uint32_t rails)
{
	int n = 0, one = 1;

	for (int i = 0; one > 0 && i < READS_MAX; i++) {
		one = read_rails(m, rails | dr_detect_suspects(&m->hb->d));
		n += one;
	}
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		if (dr_detect_misses(&m->hb->d, r, 2))
			ask_kernel(m, r);
		else
			m->rail[r].asked = false;
	}
	return n;
}

static void send_heartbeat(struct dr_manager *m, unsigned r, const struct dr_hb_out *out)
{
	struct dr_rail *rail = m->peer->rail[r].rail;
	const struct dr_transport_ops *ops = rail->ops;
	uint8_t buf[DR_DGRAM_MAX];
	size_t len;

	if (out->padded & (1u << r)) {
		len = dr_hb_make(m->hb, r, m->hb->rail[r].padded_size, buf);
		ops->rail_padded(rail, buf, len, m->hb->rail[r].padded_size);
	}
	len = dr_hb_make(m->hb, r, 0, buf);
	ops->rail_dgram(rail, buf, len);
}

/* Nothing that is not sent may count as sent. */
static void send_heartbeats(struct dr_manager *m, const struct dr_hb_out *out)
{
	for (unsigned r = 0; r < m->prm.n_rails; r++)
		if ((out->send & (1u << r)) && !m->hb->d.rail[r].no_path)
			send_heartbeat(m, r, out);
}

/* The last sign of life on rail r that was read. */
static int64_t heard_ns(const struct dr_manager *m, unsigned r)
{
	int64_t last = m->hb->d.rail[r].beat_ns;

	for (const struct dr_manager *o = m->peer->managers; o; o = o->next)
		last = DR_MAX(last, dr_peer_heard_ns(o, r));
	return last;
}

/* Rule 1. */
static void watch_owed(struct dr_manager *m)
{
	bool any = false;

	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		int64_t since, wait;
		unsigned i, r;

		if (!dr_channel_owed(c->ch, &i, &since))
			continue;
		any = true;
		r = dr_channel_path(c->ch, i)->rail->index;
		wait = DR_MAX(OWED_NS, dr_detect_usual_gap(&m->hb->d, r) * 3 / 2);
		if (m->now - since >= wait && m->now - heard_ns(m, r) >= wait)
			dr_hb_suspect(m->hb, r, m->now);
	}
	m->owed_ns = any ? m->now + OWED_NS : DR_NEVER;
}

/* Data of channels of the same direction was acknowledged on the rail last at this time. */
static int64_t carried_ns(struct dr_manager *m, unsigned r, bool sender)
{
	int64_t last = 0;

	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		int active = dr_channel_active(c->ch);

		if (active >= 0 && c->rail[active] == r && dr_channel_is_sender(c->ch) == sender)
			last = DR_MAX(last, dr_channel_carried_ns(c->ch));
	}
	return last;
}

/* Another connection of the rail lost segments lately. */
static bool others_lose(struct dr_manager *m, unsigned r, const struct dr_channel *but)
{
	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		int active = dr_channel_active(c->ch);
		struct dr_path_stats s = { 0 };
		struct dr_path *p;

		if (c->ch == but || active < 0 || c->rail[active] != r)
			continue;
		p = dr_channel_path(c->ch, (unsigned)active);
		p->ops->stats(p, &s);
		if (dr_path_loses(&s, DR_OTHERS_LOSS))
			return true;
	}
	return false;
}

/* Rule 2 for one channel. Only padded heartbeats that were sent since its doubt began are evidence,
 * whoever had them sent. */
static void doubt(struct dr_manager *m, struct dr_channel *ch)
{
	struct dr_channel_stall stall;
	const struct dr_path_stats *s = &stall.st;
	struct dr_path_evidence e = { 0 };
	const struct dr_path_rule *rule;
	unsigned i, r;
	char why[96];

	if (!dr_channel_stalled_path(ch, DR_DOUBT_NS, &stall, m->now) || s->window_shut ||
		!dr_channel_path_up(ch, !stall.path) || m->prm.detect != DR_DETECT_FAST)
		return;
	i = stall.path;
	r = dr_channel_path(ch, i)->rail->index;
	e = (struct dr_path_evidence){ .stalled_ns = m->now - stall.since_ns,
		.answer_ns = s->peer_ack_age_ns,
		.rtt_ns = s->rtt_ns,
		.silent_segments = s->silent_segments,
		.rail_down = m->rail[r].state != DR_RAIL_ALIVE,
		.other_rail_up =
			m->rail[dr_channel_path(ch, !i)->rail->index].state == DR_RAIL_ALIVE,
		.rail_idle_ns = m->now - carried_ns(m, r, dr_channel_is_sender(ch)),
		.lossy = dr_path_loses(s, DR_OWN_LOSS),
		.repeated = s->repeats ? s->unanswered : DR_REPEATED,
		.padded = m->prm.transport->rail_padded && s->segment_bytes > DR_DGRAM_MAX };
	/* A system call for each connection: only where it may decide. */
	e.rail_lossy = !e.lossy && e.stalled_ns >= DR_NO_ANSWER_NS && others_lose(m, r, ch);
	if (e.padded && !e.rail_down && e.stalled_ns >= s->rtt_ns * 3 / 2) {
		int64_t since = stall.since_ns + DR_DOUBT_NS;

		dr_hb_question(m->hb, r, s->segment_bytes, m->now);
		e.padded_lost = dr_hb_padded_lost(m->hb, r, since);
		e.padded_passed = m->hb->rail[r].passed_ns > since;
	}
	rule = dr_path_rule(&e);
	if (rule->verdict == DR_PATH_RAIL_SMALL) {
		snprintf(why, sizeof(why), "datagrams of %u bytes %s", m->hb->rail[r].padded_size,
			rule->says);
		dr_manager_rail_fell(m, r, true, rule->err, why);
	} else if (rule->verdict == DR_PATH_DEAD) {
		dr_channel_path_dead(ch, i, rule->err, rule->says, m->now);
	} else if (rule->verdict == DR_PATH_ASK) {
		dr_channel_probe_path(ch, i, true, m->now);
	}
}

/* The rail may be repaired by a smaller MTU: new connections show it. */
static void resize(struct dr_manager *m, unsigned r)
{
	struct dr_path_stats s = { 0 };
	struct dr_path *p = path_on(m, r);

	if (!p)
		return;
	p->ops->stats(p, &s);
	if (s.segment_bytes > DR_DGRAM_MAX)
		m->hb->rail[r].padded_size = s.segment_bytes;
}

/* Rule 2. */
static void watch_doubts(struct dr_manager *m)
{
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		doubt(m, c->ch);
	for (unsigned r = 0; r < m->prm.n_rails; r++)
		if (m->hb->d.rail[r].padded_only)
			resize(m, r);
}

/* The gaps of all managers since the last full tick; the manager that executes the next one passes them on. */
static void pass_gaps(struct dr_manager *m, bool ticked)
{
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		int64_t *all = &m->peer->rail[r].gap_ns, gap = m->rail[r].rail->rx_gap_ns;

		m->rail[r].rail->rx_gap_ns = 0;
		*all = *all != 0 && gap != 0 ? DR_MIN(*all, gap) : DR_MAX(*all, gap);
		if (!ticked)
			continue;
		dr_detect_gap(&m->hb->d, r, *all);
		*all = 0;
	}
}

static void judge(struct dr_manager *m, const struct dr_hb_out *out)
{
	for (unsigned r = 0; r < m->prm.n_rails; r++) {
		const struct dr_rail_rule *rule = out->v.rule[r];

		if ((out->v.fell & (1u << r)) && m->prm.detect == DR_DETECT_FAST)
			dr_peer_fell(m->peer, r, rule->err, rule->says);
		if (out->v.rose & (1u << r))
			dr_peer_rose(m->peer, r);
	}
	dr_manager_take_verdicts(m);
}

/* No heartbeats come to the rails of a manager that shares a peer, but datagrams of channels do, and the kind may have
 * to look after its device. */
static int look_after_rails(struct dr_manager *m)
{
	int n = 0;

	if (!m->peer->shared || m->now < m->rails_ns)
		return 0;
	m->rails_ns = m->now + RAILS_NS;
	for (unsigned r = 0; r < m->prm.n_rails; r++)
		n += m->rail[r].rail->ops->rail_progress(m->rail[r].rail, m->now, &m->rail[r].sink);
	return n;
}

/* Executes the tick if it is due, and passes what the peer needs of this manager alone. Returns the number of events. */
static int look(struct dr_manager *m)
{
	bool due = m->now >= m->hb->next_ns, full;
	int n = look_after_rails(m);
	struct dr_hb_out out;
	uint32_t busy;

	n += read_before(m, due ? unread(m) : 0);
	busy = collect_life(m);
	look_for_paths(m);
	dr_hb_tick(m->hb, busy, m->now, &out);
	send_heartbeats(m, &out);
	full = dr_peer_looked(m, &out);
	if (full) {
		pass_gaps(m, out.full);
		if (m->owed_ns == DR_NEVER && m->prm.detect == DR_DETECT_FAST)
			watch_owed(m);
		watch_doubts(m);
	}
	judge(m, &out);
	if (full)
		dr_manager_watch_silence(m);
	return n;
}

int dr_manager_beat(struct dr_manager *m)
{
	int n = 0;

	if (m->now < m->owed_ns && m->now < dr_peer_due(m) && !dr_peer_news(m))
		return 0;
	if (!dr_peer_try_lock(m)) {
		m->retry_ns = m->now + RETRY_NS;
		return 0;
	}
	dr_manager_take_verdicts(m);
	if (m->now >= m->owed_ns)
		watch_owed(m);
	if (m->now >= dr_peer_due(m) || dr_peer_news(m))
		n = look(m);
	dr_peer_unlock(m);
	return n;
}
