/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fence. Invariant:
 *  1. FENCED goes up when the inner path is fenced and no copy that this path started is running, so
 *     that nothing reads or writes the user's memory, and when everything that was delivered was
 *     reported (after FAILED: nothing is any more). Then the ring goes back to the store.
 */
#include "transport/staged/staged_priv.h"

#include <errno.h>

/* A copy cannot be called back. It gets so long beyond the deadline of a fence. */
static const int64_t COPY_GRACE_NS = 500 * DR_NS_PER_MS;

static bool too_late(const struct staged_path *p, int64_t now_ns)
{
	return p->fence_deadline_ns != DR_NEVER && now_ns - COPY_GRACE_NS >= p->fence_deadline_ns;
}

bool dr_stage_fence_due(const struct staged_path *p, int64_t now_ns)
{
	if (!p->fencing || p->fenced || p->quarantined)
		return false;
	if (dr_stage_copying(p))
		return too_late(p, now_ns);
	return p->inner_fenced && (!p->rx || p->failed || dr_stage_rx_all_told(p->rx));
}

void dr_stage_fence(struct dr_path *bp, int64_t deadline_ns)
{
	struct staged_path *p = staged_path(bp);

	if (p->closed || p->fenced)
		return;
	p->fence_deadline_ns = deadline_ns;
	if (!p->fencing)
		p->f->prm.inner->fence(p->inner, deadline_ns);
	p->fencing = true;
	dr_stage_attend(p);
}

void dr_stage_forget(struct staged_path *p)
{
	if (p->ring)
		dr_stage_ring_put(p->f, p->ring, p->quarantined);
	p->ring = NULL;
	if (p->tx)
		p->tx->retired = p->tx->handed = p->tx->started = p->tx->flushed = p->tx->posted;
	if (!p->rx)
		return;
	p->rx->told = p->rx->started = p->rx->came;
	for (unsigned i = 0; i < STAGE_RECVS; i++)
		p->rx->posted[i].todo = 0;
}

static void quarantine(struct staged_path *p)
{
	struct dr_event ev = { .kind = DR_EV_FAILED,
		.scope = DR_SCOPE_RAIL,
		.err = -ETIMEDOUT,
		.text = "copies between GPU and host memory do not finish; is the GPU hung?" };

	p->quarantined = p->failed = true;
	dr_path_emit(&p->base, &ev);
}

void dr_stage_fence_settle(struct staged_path *p)
{
	struct dr_event ev = { .kind = DR_EV_FENCED };

	if (p->quarantined)
		return;
	if (dr_stage_copying(p) || (p->rx && !p->failed && !dr_stage_rx_all_told(p->rx))) {
		if (too_late(p, p->base.now_ns))
			quarantine(p);
		return;
	}
	if (!p->inner_fenced)
		return;
	p->fenced = true;
	dr_stage_forget(p);
	dr_path_emit(&p->base, &ev);
}
