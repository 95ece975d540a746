/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/rules.h"

#include <errno.h>
#include <stddef.h>

/* ---- rails ---- */

static const int64_t PATIENCE_MAX_NS = 200 * DR_NS_PER_MS;

int64_t dr_fast_ns(int64_t interval_ns)
{
	return DR_MIN(interval_ns, DR_MAX(interval_ns / DR_FAST, DR_FAST_MIN_NS));
}

/* A rail is not left for a silence that is usual on it. */
static int64_t patience_ns(const struct dr_rail_evidence *e)
{
	return DR_MAX(DR_FAST_MISSES * dr_fast_ns(e->interval_ns),
		DR_MIN(2 * e->usual_ns, PATIENCE_MAX_NS));
}

static bool rail_down_at_peer(const struct dr_rail_evidence *e)
{
	return !e->down && e->peer_down;
}

static bool rail_silent(const struct dr_rail_evidence *e)
{
	return !e->down && e->missed >= DR_MISSES && e->silent_ns >= patience_ns(e);
}

static bool rail_never_up(const struct dr_rail_evidence *e)
{
	return e->never && (rail_down_at_peer(e) || rail_silent(e));
}

static bool rail_heard_again(const struct dr_rail_evidence *e)
{
	return e->down && !e->padded_only && e->good >= DR_REVIVE && e->peer_hears;
}

static const struct dr_rail_rule rail_rules[] = {
	{ "never-up", rail_never_up, DR_RAIL_FELL, -ETIMEDOUT,
		"it never came up: another rail is heard, this one was not" },
	{ "peer-says", rail_down_at_peer, DR_RAIL_FELL, -ETIMEDOUT,
		"the peer receives no heartbeat while another rail is heard" },
	{ "silent", rail_silent, DR_RAIL_FELL, -ETIMEDOUT,
		"no heartbeat received while another rail is heard" },
	{ "heard-again", rail_heard_again, DR_RAIL_ROSE, 0, "heard again in both directions" },
	{ "unchanged", NULL, DR_RAIL_AS_IT_WAS, 0, NULL },
};

const struct dr_rail_rule *dr_rail_rule(const struct dr_rail_evidence *e)
{
	const struct dr_rail_rule *r = rail_rules;

	while (r->holds && !r->holds(e))
		r++;
	return r;
}

/* ---- paths ---- */

/* Kernels delay an acknowledgement by up to this time. */
static const int64_t DELAYED_ACK_NS = 40 * DR_NS_PER_MS;

/* It is too early, or there is nowhere to go. */
static bool path_too_early(const struct dr_path_evidence *e)
{
	return e->stalled_ns < DR_MAX(DR_DOUBT_NS, 3 * e->rtt_ns / 2) ||
	       (e->rail_down && !e->other_rail_up);
}

static bool path_rail_down(const struct dr_path_evidence *e)
{
	return e->rail_down;
}

static bool rail_carries(const struct dr_path_evidence *e)
{
	return e->rail_idle_ns < DR_MAX(DR_CARRIED_NS, 3 * e->rtt_ns / 2);
}

/* Data that was sent after the stall began; what waited in the rail's queue then came earlier. */
static bool rail_carried_since(const struct dr_path_evidence *e)
{
	return e->stalled_ns - e->rail_idle_ns >= DR_MAX(DR_DOUBT_NS, 3 * e->rtt_ns / 2);
}

static bool path_large_lost(const struct dr_path_evidence *e)
{
	return e->padded && e->padded_lost && !rail_carries(e);
}

static bool path_no_answer(const struct dr_path_evidence *e)
{
	int64_t least = DR_MAX(DR_NO_ANSWER_NS, 3 * e->rtt_ns + DELAYED_ACK_NS);
	bool carries = rail_carries(e) || rail_carried_since(e);
	/* Losses explain it. Where the rail carries data, a lossy connection is only crowded. */
	bool losses = e->lossy || (e->rail_lossy && carries);
	unsigned enough = losses ? DR_REPEATED : carries ? DR_REPEATED_BURST : 0;

	return e->silent_segments >= DR_SILENT_SEGMENTS && e->repeated >= enough &&
	       !(e->lossy && carries) && DR_MIN(e->answer_ns, e->stalled_ns) >= least &&
	       (!e->padded || e->padded_passed);
}

static bool path_sends_little(const struct dr_path_evidence *e)
{
	return e->silent_segments < DR_SILENT_SEGMENTS && e->answer_ns >= DR_DOUBT_NS;
}

static const struct dr_path_rule path_rules[] = {
	{ "too-early", path_too_early, DR_PATH_AS_IT_WAS, 0, NULL },
	{ "rail-down", path_rail_down, DR_PATH_DEAD, -ETIMEDOUT,
		"data makes no progress on a rail that is down" },
	{ "large-lost", path_large_lost, DR_PATH_RAIL_SMALL, -EMSGSIZE,
		"do not arrive, small ones do (MTU of the path?)" },
	{ "no-answer", path_no_answer, DR_PATH_DEAD, -ETIMEDOUT,
		"the peer's kernel or NIC is silent although the rail works" },
	{ "sends-little", path_sends_little, DR_PATH_ASK, 0, NULL },
	{ "unchanged", NULL, DR_PATH_AS_IT_WAS, 0, NULL },
};

const struct dr_path_rule *dr_path_rule(const struct dr_path_evidence *e)
{
	const struct dr_path_rule *r = path_rules;

	while (r->holds && !r->holds(e))
		r++;
	return r;
}

/* ---- the peer ---- */

/* Where nothing tells of the peer's kernel, a process that stands cannot be told from a host
 * that is gone. */
static const int64_t BLIND_NS = 60 * DR_NS_PER_S;

static bool peer_heard(const struct dr_peer_evidence *e)
{
	return e->silent_ns < DR_SILENT_NS;
}

/* A kernel resets the connections of a process that ended, and refuses new ones. A path that is up
 * here may have lost its reset. */
static bool peer_refuses(const struct dr_peer_evidence *e)
{
	return e->refused;
}

static bool peer_kernel_answers(const struct dr_peer_evidence *e)
{
	return e->answered;
}

static bool peer_may_stand(const struct dr_peer_evidence *e)
{
	return e->blind && e->path_up && e->silent_ns < BLIND_NS;
}

/* Without a path nothing could be heard there; a channel without one ends by itself. */
static bool peer_cannot_be_heard(const struct dr_peer_evidence *e)
{
	return e->blind && !e->path_up;
}

static bool peer_silent_for_long(const struct dr_peer_evidence *e)
{
	return e->unanswered_ns >= e->lost_after_ns && !e->pending;
}

static const struct dr_peer_rule peer_rules[] = {
	{ "peer-heard", peer_heard, DR_PEER_RUNS, 0, NULL },
	{ "process-ended", peer_refuses, DR_PEER_GONE, -ECONNRESET,
		"the peer's process has ended: its host refuses connections" },
	{ "process-stands", peer_kernel_answers, DR_PEER_STANDS, 0,
		"the peer's process stands, its kernel answers" },
	{ "blind", peer_may_stand, DR_PEER_STANDS, 0, "nothing is heard on any rail" },
	{ "no-path", peer_cannot_be_heard, DR_PEER_RUNS, 0, NULL },
	{ "host-gone", peer_silent_for_long, DR_PEER_LOST, -ENETDOWN,
		"nothing is heard or acknowledged on any rail" },
	{ "undecided", NULL, DR_PEER_UNKNOWN, 0, NULL },
};

const struct dr_peer_rule *dr_peer_rule(const struct dr_peer_evidence *e)
{
	const struct dr_peer_rule *r = peer_rules;

	while (r->holds && !r->holds(e))
		r++;
	return r;
}
