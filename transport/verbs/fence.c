/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fence. Invariants:
 *  1. No work request is posted after the queue pairs went to the error state: rxe gives back no receive
 *     that was posted later. What is out then is counted back: sends by wr_retired, receives one by one.
 *  2. FENCED is told when both counts are zero, or the data queue pairs are destroyed. Control messages
 *     are in memory of our own and are not waited for.
 *  3. What a good completion says that came before is told first, unless FAILED was told.
 *  4. When even destroying fails the buffers stay with the NIC: FAILED{RAIL}, no FENCED, and what
 *     belongs to the connection is kept until the rail closes its device.
 */
#include "transport/verbs/path_priv.h"

#include <stdio.h>

void dr_verbs_fence(struct dr_path *bp, int64_t deadline_ns)
{
	struct vb_path *p = vb_path(bp);

	if (p->state >= VB_FENCING)
		return;
	p->fence_deadline_ns = deadline_ns;
	p->fence_from_ns = 0;
	if (p->state < VB_UP || (p->conn && p->conn->busy) || !p->conn) {
		/* No user's buffer was ever posted. */
		if (p->conn)
			dr_verbs_conn_release(p->conn, 0);
		p->conn = NULL;
		p->fenced_due = true;
		dr_verbs_set_state(p, VB_FENCED);
	} else {
		/* Else nothing comes back, and only destroying helps. */
		if (dr_verbs_conn_error(p->conn))
			p->uncounted = true;
		dr_verbs_set_state(p, VB_FENCING);
	}
	dr_path_wake(&p->base);
}

static bool overdue(struct vb_path *p)
{
	int64_t drain = vb_path_rail(p)->vp.drain_ns;

	if (p->fence_from_ns == 0)
		p->fence_from_ns = p->base.now_ns;
	return p->uncounted || p->base.now_ns >= p->fence_deadline_ns ||
	       (drain > 0 && p->base.now_ns - p->fence_from_ns >= drain);
}

static void quarantine(struct vb_path *p, int rc)
{
	struct dr_event ev = { .kind = DR_EV_FAILED, .scope = DR_SCOPE_RAIL, .err = rc };

	p->fence_bad = true;
	p->mute = true;
	snprintf(p->base.text, sizeof(p->base.text),
		"channel %u path %u (rail %u): a queue pair could be neither drained nor "
		"destroyed (%s); its buffers are not handed back",
		p->base.par.channel, p->base.par.index, p->base.path.rail->index,
		dr_errno_name(rc));
	ev.text = p->base.text;
	dr_path_emit(&p->base, &ev);
}

/* In FENCING, at the end of each progress. */
void dr_verbs_fence_settle(struct vb_path *p)
{
	if (p->fence_bad || dr_verbs_rx_due(p))
		return;
	if (p->uncounted || !dr_verbs_tx_idle(p) || !dr_verbs_rx_idle(p)) {
		if (!overdue(p))
			return;
		int rc = dr_verbs_conn_kill(p->conn);
		if (rc) {
			quarantine(p, rc);
			return;
		}
	}
	dr_verbs_conn_release(p->conn, p->base.now_ns + VB_DESTROY_DELAY_NS);
	p->conn = NULL;
	p->fenced_due = true;
	dr_verbs_set_state(p, VB_FENCED);
}
