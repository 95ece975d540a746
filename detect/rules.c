/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/rules.h"

#include <errno.h>
#include <stddef.h>

/* ---- the peer ---- */

/* Where nothing tells of the peer's kernel, a process that stands cannot be told from a host
 * that is gone. */
static const int64_t BLIND_NS = 60 * DR_NS_PER_S;

static bool peer_heard(const struct dr_peer_evidence *e)
{
	return e->silent_ns < DR_SILENT_NS && !e->stands;
}

static bool peer_says_it_stands(const struct dr_peer_evidence *e)
{
	return e->silent_ns < DR_SILENT_NS;
}

/* A kernel resets the connections of a process that ended, and refuses new ones. */
static bool peer_refuses(const struct dr_peer_evidence *e)
{
	return e->refused && !e->path_up;
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

static bool nothing_holds(const struct dr_peer_evidence *e)
{
	(void)e;
	return true;
}

static const struct dr_peer_rule peer_rules[] = {
	{ "peer-heard", peer_heard, DR_PEER_RUNS, 0, NULL },
	{ "worker-stands", peer_says_it_stands, DR_PEER_STANDS, 0, "the peer's worker stands" },
	{ "process-ended", peer_refuses, DR_PEER_GONE, -ECONNRESET,
		"the peer's process has ended: its host refuses connections" },
	{ "process-stands", peer_kernel_answers, DR_PEER_STANDS, 0,
		"the peer's process stands, its kernel answers" },
	{ "blind", peer_may_stand, DR_PEER_STANDS, 0, "nothing is heard on any rail" },
	{ "no-path", peer_cannot_be_heard, DR_PEER_RUNS, 0, NULL },
	{ "host-gone", peer_silent_for_long, DR_PEER_LOST, -ENETDOWN,
		"nothing is heard or acknowledged on any rail" },
	{ "undecided", nothing_holds, DR_PEER_UNKNOWN, 0, NULL },
};

const struct dr_peer_rule *dr_peer_rule(const struct dr_peer_evidence *e)
{
	const struct dr_peer_rule *r = peer_rules;

	while (!r->holds(e))
		r++;
	return r;
}
