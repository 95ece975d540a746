/* SPDX-License-Identifier: Apache-2.0 */
/* How a path comes up: what the handshake (verbs_hs.c) asks for is done here. */
#include "transport/verbs/path_priv.h"

#include <errno.h>

int dr_verbs_connect(
	struct dr_path *bp, const void *peer, size_t len, int64_t now_ns, struct dr_err *e)
{
	struct vb_path *p = vb_path(bp);
	struct vb_rail *r = vb_path_rail(p);
	bool is_new = p->hs.state == VB_HS_NEW && p->state == VB_COMING;
	int err = dr_path_check_connect(&p->base, is_new, r->where.known, peer, len, e);

	if (err)
		return err;
	p->base.now_ns = now_ns;
	if (r->dead || r->closed) {
		dr_verbs_fail(p, DR_SCOPE_RAIL, -ENODEV, "the rail's device is gone");
		return 0;
	}
	if (dr_verbs_conn_create(p, &p->conn)) {
		dr_verbs_fail(p, DR_SCOPE_LOCAL, -ENOMEM, "out of memory");
		return 0;
	}
	dr_verbs_hs_start(&p->hs);
	dr_verbs_conn_build(p->conn);
	return 0;
}

/* Of a job that failed: what is broken. */
static enum dr_scope scope_of(int err)
{
	switch (-err) {
	case ENOMEM:
	case EMFILE:
	case EPERM:
	case EINVAL:
		return DR_SCOPE_LOCAL;
	case ENODEV:
	case EIO:
	case ENETDOWN:
		return DR_SCOPE_RAIL;
	default:
		return DR_SCOPE_PATH;
	}
}

/* The job is done, and the path waits for it still. */
static bool job_is_good(struct vb_path *p, enum vb_hs_state of)
{
	const struct vb_conn *c = p->conn;

	if (p->hs.state != of)
		return false;
	if (c->rc)
		dr_verbs_fail(p, scope_of(c->rc), c->rc, "%s", c->err.text);
	return c->rc == 0;
}

void dr_verbs_built(struct vb_path *p)
{
	if (!job_is_good(p, VB_HS_BUILDING))
		return;
	struct vb_verdict v = dr_verbs_hs_built(&p->hs, vb_path_rail(p)->now_ns);
	dr_verbs_obey(p, v.what, &v.who);
	dr_path_wake(&p->base);
}

static void join(struct vb_path *p, const struct dr_verbs_hello *peer)
{
	p->msg_max = DR_MIN(peer->msg_max, dr_verbs_msg_max(vb_path_rail(p))) & ~4095u;
	p->ctrl.peer_granted = DR_MIN(peer->ctrl_recvs, VB_CTRL_DEPTH);
	dr_verbs_conn_join(p->conn, peer);
}

static void come_up(struct vb_path *p)
{
	dr_verbs_set_state(p, VB_UP);
	dr_path_tell(&p->base, DR_EV_READY);
}

void dr_verbs_obey(struct vb_path *p, enum vb_hs_do what, const struct dr_verbs_hello *who)
{
	switch (what) {
	case VB_HS_GREET:
		dr_verbs_greet(p);
		break;
	case VB_HS_JOIN:
		join(p, who);
		break;
	case VB_HS_UNEQUAL:
		dr_verbs_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer uses %u data queue pairs, this end %u; give both the same --qps",
			who->n - 1u - DR_VERBS_PROBE_QPS, (unsigned)vb_path_rail(p)->vp.qps);
		break;
	case VB_HS_SAY:
		dr_verbs_ctrl_nudge(p);
		break;
	case VB_HS_READY:
		come_up(p);
		break;
	default:
		break;
	}
	dr_verbs_update_ticks(p);
}

void dr_verbs_joined(struct vb_path *p)
{
	if (!job_is_good(p, VB_HS_JOINING))
		return;
	if (!p->base.par.sender && vb_path_rail(p)->flushing)
		(void)dr_verbs_flush_need(p); /* asked for before the first part that wants it */
	dr_verbs_obey(p, dr_verbs_hs_joined(&p->hs), NULL);
	dr_path_wake(&p->base);
}
