/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/* Which modify_qp is allowed with which attributes: Linux, drivers/infiniband/core/verbs.c,
 * qp_state_table. */
struct step {
	enum ibv_qp_state from, to;
	int rc_needs, rc_may, ud_needs, ud_may;
};
static const struct step steps[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0,
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0,
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX, 0,
		IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
			IBV_QP_PATH_MIG_STATE,
		IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0,
		IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
			IBV_QP_MIN_RNR_TIMER,
		0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0,
		IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
			IBV_QP_PATH_MIG_STATE,
		0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
};

static bool values_ok(const struct dr_fake_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return false;
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index != 0)
		return false;
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return false;
	if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31)
		return false;
	if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7)
		return false;
	if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7)
		return false;
	if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31)
		return false;
	if ((mask & IBV_QP_RQ_PSN) && a->rq_psn > 0xffffff)
		return false;
	if ((mask & IBV_QP_SQ_PSN) && a->sq_psn > 0xffffff)
		return false;
	if (mask & IBV_QP_AV)
		return dr_fake_route_ok(qp->dev, &a->ah_attr);
	return true;
}

int dr_fake_qp_check(
	const struct dr_fake_qp *qp, const struct ibv_qp_attr *a, int mask, enum ibv_qp_state *next)
{
	enum ibv_qp_state from = qp->state, to = mask & IBV_QP_STATE ? a->qp_state : from;
	int rest = mask & ~IBV_QP_STATE;

	if ((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != from)
		return EINVAL;
	*next = to;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return rest ? EINVAL : 0;
	for (size_t i = 0; i < DR_ARRAY_LEN(steps); i++) {
		const struct step *s = &steps[i];
		bool rc = qp->ibv.qp_type == IBV_QPT_RC;
		int needs = rc ? s->rc_needs : s->ud_needs, may = rc ? s->rc_may : s->ud_may;

		if (s->from != from || s->to != to)
			continue;
		if ((rest & needs) != needs || (rest & ~(needs | may)))
			return EINVAL;
		return values_ok(qp, a, mask) ? 0 : EINVAL;
	}
	return EINVAL;
}

void dr_fake_qp_apply(struct dr_fake_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

#define TAKE(bit, field)                                                                           \
	if (mask & (bit))                                                                          \
	to->field = a->field
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
#undef TAKE
	if (mask & IBV_QP_AV)
		qp->sgid = qp->dev->gid[a->ah_attr.grh.sgid_index].gid;
	if (mask & IBV_QP_RQ_PSN)
		qp->received = 0;
	if (mask & IBV_QP_SQ_PSN)
		qp->sent = 0;
}
