/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a path comes up: see enum vb_state.
 *
 *	connector	NEW -> BUILDING -> GREETING (HELLO, again and again) -> JOINING (WELCOME came)
 *			-> CONFIRMING (first message sent) -> UP (one came)
 *	acceptor	NEW -> BUILDING -> WAITING -> JOINING (HELLO came) -> ADMITTED (WELCOME sent, again
 *			for each HELLO) -> ANSWERING (first message came; one is sent) -> UP (the peer's NIC
 *			acknowledged it, or another message came)
 *
 * So neither end is UP while the queue pairs carry one direction only.
 */
#include "transport/verbs/path_priv.h"

#include <errno.h>

static int check_handle(struct vb_path *p, const void *buf, size_t len, struct dr_err *e)
{
	struct dr_path_ident peer;
	const char *why = NULL;

	if (len == 0)
		return 0; /* no news: HELLO says all */
	(void)dr_verbs_path_handle_parse(buf, len, &peer, &why);
	return dr_path_check_peer(&p->base, &peer, why, e);
}

int dr_verbs_connect(
	struct dr_path *bp, const void *peer, size_t len, int64_t now_ns, struct dr_err *e)
{
	struct vb_path *p = vb_path(bp);
	struct vb_rail *r = vb_path_rail(p);
	int err = dr_path_check_connect(&p->base, p->state == VB_NEW, r->has_peer, e);

	if (!err)
		err = check_handle(p, peer, len, e);
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
	dr_verbs_set_state(p, VB_BUILDING);
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

void dr_verbs_built(struct vb_path *p)
{
	struct vb_conn *c = p->conn;

	if (p->state != VB_BUILDING)
		return;
	if (c->rc) {
		dr_verbs_fail(p, scope_of(c->rc), c->rc, "%s", c->err.text);
		return;
	}
	p->hello_ns = 0;
	dr_verbs_set_state(p, p->base.par.connector ? VB_GREETING : VB_WAITING);
	if (!p->base.par.connector)
		dr_verbs_admit_claim(p);
	dr_path_wake(&p->base);
}

void dr_verbs_greeted(struct vb_path *p, const struct dr_verbs_hello *h)
{
	dr_dassert(p->state == VB_GREETING || p->state == VB_WAITING);
	if (h->n != p->conn->n) {
		dr_verbs_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer uses %u data queue pairs, this end %u; give both the same --qps",
			h->n - 1u - DR_VERBS_PROBE_QPS, vb_path_rail(p)->vp.qps);
		return;
	}
	p->msg_max = DR_MIN(h->msg_max, dr_verbs_msg_max(vb_path_rail(p))) & ~4095u;
	p->ctrl.peer_granted = DR_MIN(h->ctrl_recvs, VB_CTRL_DEPTH);
	dr_verbs_set_state(p, VB_JOINING);
	dr_verbs_conn_join(p->conn, h);
}

void dr_verbs_joined(struct vb_path *p)
{
	struct vb_conn *c = p->conn;

	if (p->state != VB_JOINING)
		return;
	if (c->rc) {
		dr_verbs_fail(p, scope_of(c->rc), c->rc, "%s", c->err.text);
		return;
	}
	if (!p->base.par.sender && vb_path_rail(p)->flushing)
		(void)dr_verbs_flush_need(p); /* asked for before the first part that wants it */
	if (p->base.par.connector) {
		dr_verbs_set_state(p, VB_CONFIRMING);
		dr_verbs_ctrl_nudge(p);
	} else {
		dr_verbs_set_state(p, VB_ADMITTED);
		dr_verbs_greet(p, DR_VERBS_WELCOME);
	}
	dr_path_wake(&p->base);
}
