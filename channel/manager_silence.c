/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include "detect/rules.h"

/*
 * Silence on all rails: gathers what the peer's kernel (or NIC) answers, and obeys the rules of
 * detect/. While no rail is heard, each path that is up gets a PROBE, and each rail is asked
 * (rail_ask), so that a peer is known to stand although no path is left.
 */
/* Of the kernels' clocks that tell the age of an answer. */
static const int64_t ANSWER_STEP_NS = 5 * DR_NS_PER_MS;

static void tell(const struct dr_manager *m, bool stalled, int64_t silent_ns)
{
	if (m->prm.ops && m->prm.ops->silence)
		m->prm.ops->silence(m->prm.arg, stalled, silent_ns, m->now);
}

/* silent_ns 0: a rail is heard. That nobody knows any more whether it stands is not told. */
static void report_silence(struct dr_manager *m, bool stalled, int64_t silent_ns)
{
	if (m->stalled != stalled)
		for (struct mgr_channel *c = m->channels; c; c = c->next)
			dr_channel_stalled(c->ch, stalled, m->now);
	else if (!stalled || m->now - m->silence_reported_ns < DR_NS_PER_S)
		return;
	m->stalled = stalled;
	m->silence_reported_ns = m->now;
	if (stalled || silent_ns == 0)
		tell(m, stalled, silent_ns);
}

static void end_channels(struct dr_manager *m, const struct dr_peer_rule *rule, int64_t silent_ns)
{
	if (!m->lost)
		tell(m, false, silent_ns);
	m->lost = true;
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		if (dr_channel_ready(c->ch) >= 0)
			dr_channel_fail(c->ch, rule->err, rule->says, m->now);
}

/* The endpoint of the heartbeats is asked: its kind need not be that of the manager's own rails. */
static bool can_ask(const struct dr_manager *m, unsigned r)
{
	return m->peer->rail[r].rail->ops->rail_ask != NULL;
}

/* Ends the questions. */
static void heard(struct dr_manager *m)
{
	if (m->lost)
		tell(m, false, 0);
	m->lost = false;
	for (unsigned r = 0; m->ask_ns != 0 && r < m->prm.n_rails; r++)
		if (can_ask(m, r))
			m->peer->rail[r].rail->ops->rail_ask(m->peer->rail[r].rail, m->now, NULL);
	m->ask_ns = 0;
}

/* Returns the time of the newest answer on a rail. */
static int64_t ask_rails(struct dr_manager *m, struct dr_peer_evidence *e)
{
	unsigned answer = 0, refuse = 0;
	int64_t at = 0;

	for (unsigned r = 0; r < m->prm.n_rails && can_ask(m, r); r++) {
		struct dr_rail *rail = m->peer->rail[r].rail;
		struct dr_rail_answer a;

		rail->ops->rail_ask(rail, m->now, &a);
		refuse += a.refused;
		answer += !a.refused && a.at_ns != 0;
		at = DR_MAX(at, a.at_ns);
	}
	e->refused = refuse > 0 && answer == 0;
	return at;
}

static int64_t ask_paths(struct dr_manager *m, struct dr_peer_evidence *e)
{
	bool probe = m->now >= m->probe_ns, asks = can_ask(m, 0), known = asks;
	int64_t at = 0;

	if (probe)
		m->probe_ns = m->now + (m->stalled ? DR_ASK_STANDS_NS : DR_ASK_NS);
	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		struct dr_channel_answers a;

		dr_channel_answers(c->ch, &a, m->now);
		at = DR_MAX(at, a.at_ns);
		e->path_up |= a.up;
		e->pending |= a.pending && !asks;
		known |= a.at_ns != 0;
		if (probe)
			dr_channel_probe(c->ch, m->now);
	}
	e->blind = !(m->prm.transport->caps & DR_CAP_DGRAM) && !known;
	return at;
}

static void look(struct dr_manager *m, struct dr_peer_evidence *e)
{
	int64_t rails, paths;

	if (m->ask_ns == 0) { /* the first question */
		m->answer_at_ns = m->now - ANSWER_STEP_NS;
		m->answered_ns = e->silent_ns;
		m->probe_ns = m->now;
	}
	m->ask_ns = m->now + DR_ASK_NS;
	rails = ask_rails(m, e);
	paths = ask_paths(m, e);
	if (DR_MAX(rails, paths) > m->answer_at_ns + ANSWER_STEP_NS) {
		m->answer_at_ns = DR_MAX(rails, paths);
		m->answered_ns = e->silent_ns;
		e->answered = true;
	}
	e->unanswered_ns = e->silent_ns - m->answered_ns;
}

void dr_manager_watch_silence(struct dr_manager *m)
{
	struct dr_peer_evidence e = { .silent_ns = m->hb->d.silent_ns,
		.lost_after_ns = m->prm.lost_after_ns };
	const struct dr_peer_rule *rule;

	if (e.silent_ns < DR_SILENT_NS) {
		heard(m);
	} else if (m->now < m->ask_ns) {
		return;
	} else {
		look(m, &e);
	}
	rule = dr_peer_rule(&e);
	if (rule->verdict == DR_PEER_RUNS || rule->verdict == DR_PEER_STANDS)
		report_silence(m, rule->verdict == DR_PEER_STANDS,
			e.silent_ns < DR_SILENT_NS ? 0 : e.silent_ns);
	else if (rule->verdict != DR_PEER_UNKNOWN)
		end_channels(m, rule, e.silent_ns);
}
