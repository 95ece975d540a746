/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/*
 * Work requests become entries of the queues. A call that is ordered to fail takes all of its list but
 * the last: what comes before the bad one is posted.
 */

static uint64_t length_of(const struct ibv_sge *sge, int n)
{
	uint64_t len = 0;

	for (int i = 0; i < n; i++)
		len += sge[i].length;
	return len;
}

static int check_send(const struct dr_fake_qp *qp, const struct ibv_send_wr *wr)
{
	bool write = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool read = wr->opcode == IBV_WR_RDMA_READ;
	bool send = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
	uint64_t len;

	if (qp->dev->fatal)
		return EIO;
	if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR)
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	len = length_of(wr->sg_list, wr->num_sge);
	if (len > DR_FAKE_MSG_MAX)
		return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) && len > qp->cap.max_inline_data)
		return EINVAL;
	if (qp->ibv.qp_type == IBV_QPT_RC ? !write && !send && !read : !send)
		return EINVAL;
	if (read && ((wr->send_flags & IBV_SEND_INLINE) || qp->attr.max_rd_atomic == 0))
		return EINVAL;
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		const struct dr_fake_ah *ah = (const void *)wr->wr.ud.ah;

		if (!dr_fake_set_has(&dr_fake_ahs, ah)) {
			dr_fake_violation("post_send with no address handle");
			return EINVAL;
		}
		if (ah->ibv.pd != qp->ibv.pd)
			return EINVAL;
	}
	return qp->sq_used < qp->cap.max_send_wr ? 0 : ENOMEM;
}

static void take_send(struct dr_fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct dr_fake_swqe *w = &qp->sq[qp->sq_tail % qp->cap.max_send_wr];

	w->wr = *wr;
	w->wr.next = NULL;
	w->wr.sg_list = w->sge;
	for (int i = 0; i < wr->num_sge; i++)
		w->sge[i] = wr->sg_list[i];
	w->len = (uint32_t)length_of(w->sge, wr->num_sge);
	w->landed = w->delivered = false;
	w->ready_ns = qp->dev->latency_ns ? dr_fake_now_ns() + qp->dev->latency_ns : 0;
	if (wr->send_flags & IBV_SEND_INLINE)
		dr_fake_gather(qp, w, w->inl, w->len);
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		const struct dr_fake_ah *ah = (const void *)wr->wr.ud.ah;

		w->ah = ah->attr;
		w->sgid = ah->sgid;
	}
	qp->sq_tail++;
	qp->sq_used++;
}

int dr_fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct dr_fake_qp *qp = dr_container_of(ibv, struct dr_fake_qp, ibv);
	int ordered = dr_fake_enter(DR_FAKE_CALL_post_send), err = 0;

	dr_fake_lock();
	for (; wr; wr = wr->next) {
		if (!err)
			err = check_send(qp, wr);
		if (!err && !wr->next)
			err = ordered;
		if (err) {
			*bad = wr;
			break;
		}
		take_send(qp, wr);
	}
	if (qp->state == IBV_QPS_ERR)
		dr_fake_qp_flush(qp);
	dr_fake_move(qp);
	dr_fake_unlock();
	return err;
}

int dr_fake_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct dr_fake_qp *qp = dr_container_of(ibv, struct dr_fake_qp, ibv);
	int ordered = dr_fake_enter(DR_FAKE_CALL_post_recv), err = 0;

	dr_fake_lock();
	for (; wr; wr = wr->next) {
		struct dr_fake_rwqe *r;

		if (!err && qp->dev->fatal)
			err = EIO;
		if (!err && (qp->state == IBV_QPS_RESET || wr->num_sge < 0 ||
				    (uint32_t)wr->num_sge > qp->cap.max_recv_sge))
			err = EINVAL;
		if (!err && qp->rq_used == qp->cap.max_recv_wr)
			err = ENOMEM;
		if (!err && !wr->next)
			err = ordered;
		if (err) {
			*bad = wr;
			break;
		}
		qp->rq_used++;
		if (qp->state == IBV_QPS_ERR)
			continue;
		r = &qp->rq[qp->rq_tail++ % qp->cap.max_recv_wr];
		r->wr_id = wr->wr_id;
		r->n_sge = wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			r->sge[i] = wr->sg_list[i];
	}
	dr_fake_move_all();
	dr_fake_unlock();
	return err;
}

bool dr_fake_gather_ok(const struct dr_fake_qp *qp, const struct dr_fake_swqe *w)
{
	if (w->wr.send_flags & IBV_SEND_INLINE)
		return true;
	for (int i = 0; i < w->wr.num_sge; i++)
		if (w->sge[i].length > 0 && !dr_fake_mr_find(qp->ibv.pd, w->sge[i].lkey, false,
						    w->sge[i].addr, w->sge[i].length, 0))
			return false;
	return true;
}

/* NULL: none is needed. */
static const struct dr_fake_mr *local_mr(
	const struct dr_fake_qp *qp, const struct dr_fake_swqe *w, int i)
{
	if (w->wr.send_flags & IBV_SEND_INLINE)
		return NULL;
	return dr_fake_mr_find(
		qp->ibv.pd, w->sge[i].lkey, false, w->sge[i].addr, w->sge[i].length, 0);
}

/* The first len bytes of the message; inline data from its copy once that was made. */
void dr_fake_gather(
	const struct dr_fake_qp *qp, const struct dr_fake_swqe *w, uint8_t *to, uint32_t len)
{
	bool copied = (w->wr.send_flags & IBV_SEND_INLINE) && to != w->inl;

	if (copied) {
		memcpy(to, w->inl, len);
		return;
	}
	for (int i = 0; i < w->wr.num_sge && len > 0; i++) {
		uint32_t n = DR_MIN(len, w->sge[i].length);

		if (n > 0)
			memcpy(to, dr_fake_host(local_mr(qp, w, i), w->sge[i].addr), n);
		to += n;
		len -= n;
	}
}

enum ibv_wc_status dr_fake_scatter(
	struct dr_fake_qp *qp, const struct dr_fake_rwqe *r, const uint8_t *from, uint32_t len)
{
	if (len > length_of(r->sge, r->n_sge))
		return IBV_WC_LOC_LEN_ERR;
	for (int i = 0; i < r->n_sge && len > 0; i++) {
		uint32_t n = DR_MIN(len, r->sge[i].length);

		if (n > 0 && !dr_fake_mr_find(qp->ibv.pd, r->sge[i].lkey, false, r->sge[i].addr,
				     r->sge[i].length, IBV_ACCESS_LOCAL_WRITE))
			return IBV_WC_LOC_PROT_ERR;
		if (n > 0)
			memcpy((void *)(uintptr_t)r->sge[i].addr, from, n);
		from += n;
		len -= n;
	}
	return IBV_WC_SUCCESS;
}
