/* SPDX-License-Identifier: Apache-2.0 */
/* A queue pair of a connection, step by step; what is done to it is the helper's business (conn.c). */
#include "transport/verbs/path_priv.h"

#include <errno.h>
#include <string.h>

static int create(struct vb_conn *c, unsigned i, const struct ibv_qp_cap *cap)
{
	struct vb_rail *r = c->rail;
	struct ibv_qp_init_attr a = {
		.send_cq = c->cq->cq, .recv_cq = c->cq->cq, .qp_type = IBV_QPT_RC, .cap = *cap
	};

	errno = 0;
	c->qp[i] = r->ibv->create_qp(r->pd, &a);
	if (!c->qp[i] && cap->max_inline_data > 0 && errno == EINVAL) {
		a.cap.max_inline_data =
			0; /* what the device has is not asked for in a better way */
		c->qp[i] = r->ibv->create_qp(r->pd, &a);
	}
	int rc = dr_verbs_made(&r->dev, c->qp[i], "create a queue pair", &c->err);
	if (rc)
		return rc;
	c->qpn[i] = c->qp[i]->qp_num;
	c->inline_max[i] = a.cap.max_inline_data;
	return 0;
}

static int to_state(
	struct vb_conn *c, unsigned i, struct ibv_qp_attr *a, int mask, const char *state)
{
	int rc = dr_verbs_neg(c->rail->ibv->modify_qp(c->qp[i], a, IBV_QP_STATE | mask));

	return rc ? dr_err_set(&c->err, rc, "queue pair to %s: %s", state, dr_errno_name(rc)) : 0;
}

static int to_init(struct vb_conn *c, unsigned i, int access)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
		.port_num = c->rail->dev.port,
		.qp_access_flags = (unsigned)access };

	return to_state(c, i, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

int dr_verbs_qp_make(struct vb_conn *c, unsigned i, struct ibv_qp_cap cap, int access)
{
	int rc = create(c, i, &cap);

	return rc ? rc : to_init(c, i, access);
}

static enum ibv_mtu mtu_of(unsigned bytes)
{
	enum ibv_mtu m = IBV_MTU_256;

	while (m < IBV_MTU_4096 && 128u << (m + 1) <= bytes)
		m++;
	return m;
}

struct ibv_ah_attr dr_verbs_route(const struct vb_rail *r, const struct dr_verbs_dev *dev,
	uint16_t lid, const uint8_t gid[16])
{
	struct ibv_ah_attr a = { .port_num = dev->port, .sl = (uint8_t)r->vp.sl, .dlid = lid };

	/* RoCE knows nothing but GIDs; within one InfiniBand subnet the LID is enough. */
	a.is_global = dev->roce || dev->grh;
	if (dev->roce)
		a.dlid = 0;
	if (a.is_global) {
		memcpy(&a.grh.dgid, gid, 16);
		a.grh.sgid_index = (uint8_t)dev->gid_index;
		a.grh.hop_limit = 64;
		a.grh.traffic_class = (uint8_t)(r->vp.tc ? r->vp.tc : (unsigned)r->par.dscp << 2);
	}
	return a;
}

static int to_rtr(struct vb_conn *c, unsigned i, const struct vb_target *to)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_of(to->mtu),
		.dest_qp_num = to->qpn,
		.rq_psn = to->rq_psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = dr_verbs_route(c->rail, &c->dev, to->lid, to->gid) };

	return to_state(c, i, &a,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		"RTR");
}

static int to_rts(struct vb_conn *c, unsigned i, uint32_t psn)
{
	const struct dr_verbs_params *vp = &c->rail->vp;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)vp->timeout,
		.retry_cnt = (uint8_t)vp->retry,
		.rnr_retry = 6, /* never needed: receives are granted; 7 would be infinite */
		.sq_psn = psn,
		.max_rd_atomic = 1 };

	return to_state(c, i, &a,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
		"RTS");
}

int dr_verbs_qp_lead(struct vb_conn *c, unsigned i, const struct vb_target *to)
{
	int rc = to_rtr(c, i, to);

	return rc ? rc : to_rts(c, i, to->sq_psn);
}

int dr_verbs_qp_destroy(struct vb_conn *c, unsigned i)
{
	if (!c->qp[i])
		return 0;
	int rc = dr_verbs_neg(c->rail->ibv->destroy_qp(c->qp[i]));
	if (rc == 0)
		c->qp[i] = NULL;
	return rc;
}
