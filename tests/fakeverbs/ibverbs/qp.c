/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

enum { LOOP_HOLD_MS = 300 };

/* Queue pairs: made, modified, asked, destroyed. */

static uint32_t next_qpn = 0x100;

static int check_init(const struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *c = &a->cap;

	if (dr_fake_dev_of(pd->context)->fatal)
		return EIO;
	if (a->qp_type != IBV_QPT_RC && a->qp_type != IBV_QPT_UD)
		return EOPNOTSUPP;
	if (!a->send_cq || !a->recv_cq || a->srq || c->max_send_wr > DR_FAKE_WR_MAX ||
		c->max_recv_wr > DR_FAKE_WR_MAX || c->max_send_sge > DR_FAKE_SGES ||
		c->max_recv_sge > DR_FAKE_SGES || c->max_inline_data > DR_FAKE_INLINE_MAX)
		return EINVAL;
	return 0;
}

static struct dr_fake_qp *make(const struct ibv_qp_cap *cap)
{
	struct dr_fake_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->sq = calloc(cap->max_send_wr + 1, sizeof(qp->sq[0]));
	qp->rq = calloc(cap->max_recv_wr + 1, sizeof(qp->rq[0]));
	qp->inl = calloc(cap->max_send_wr + 1, (size_t)cap->max_inline_data + 1);
	if (qp->sq && qp->rq && qp->inl)
		return qp;
	dr_fake_qp_free(qp);
	return NULL;
}

void dr_fake_qp_free(struct dr_fake_qp *qp)
{
	free(qp->sq);
	free(qp->rq);
	free(qp->inl);
	free(qp);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	int err = dr_fake_enter(DR_FAKE_CALL_create_qp);
	struct dr_fake_qp *qp = NULL;

	dr_fake_lock();
	if (!err)
		err = check_init(pd, a);
	if (!err)
		qp = make(&a->cap);
	if (qp) {
		qp->dev = dr_fake_dev_of(pd->context);
		qp->cap = a->cap;
		qp->sq_sig_all = a->sq_sig_all;
		for (unsigned i = 0; i < a->cap.max_send_wr; i++)
			qp->sq[i].inl = qp->inl + (size_t)i * a->cap.max_inline_data;
		qp->ibv.context = pd->context;
		qp->ibv.qp_context = a->qp_context;
		qp->ibv.pd = pd;
		qp->ibv.send_cq = a->send_cq;
		qp->ibv.recv_cq = a->recv_cq;
		qp->ibv.qp_num = next_qpn++ & 0xffffff;
		qp->ibv.qp_type = a->qp_type;
		dr_fake_set_add(&dr_fake_qps, qp);
	}
	dr_fake_unlock();
	if (qp)
		return &qp->ibv;
	errno = err ? err : ENOMEM;
	return NULL;
}

/* All work is forgotten without completions. */
void dr_fake_qp_clear(struct dr_fake_qp *qp)
{
	qp->sq_head = qp->sq_tail = qp->sq_used = qp->sq_silent = 0;
	qp->rq_head = qp->rq_tail = qp->rq_used = 0;
	qp->retry_ns = qp->rnr_ns = 0;
	dr_fake_cq_forget(dr_container_of(qp->ibv.send_cq, struct dr_fake_cq, ibv), qp);
	dr_fake_cq_forget(dr_container_of(qp->ibv.recv_cq, struct dr_fake_cq, ibv), qp);
}

/* As in the kernel: to RTR the neighbour is resolved, which may take its time and fail. */
static int resolve(struct dr_fake_qp *qp)
{
	int ms = qp->dev->rtr_ms;

	if (ms > 0) {
		dr_fake_unlock();
		dr_fake_block_ms(ms);
		dr_fake_lock();
		if (!dr_fake_set_has(&dr_fake_qps, qp)) {
			dr_fake_violation("a queue pair was destroyed during its modify");
			return EINVAL;
		}
	}
	return qp->dev->rtr_err;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask)
{
	int err = dr_fake_enter(DR_FAKE_CALL_modify_qp);
	struct dr_fake_qp *qp = dr_container_of(ibv, struct dr_fake_qp, ibv);
	enum ibv_qp_state next;

	if (err)
		return err;
	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_qps, qp)) {
		dr_fake_violation("modify_qp of no queue pair");
		err = EINVAL;
	}
	if (!err && qp->dev->fatal)
		err = EIO;
	if (!err)
		err = dr_fake_qp_check(qp, a, mask, &next);
	if (!err && next == IBV_QPS_RTR && qp->state == IBV_QPS_INIT && ibv->qp_type == IBV_QPT_RC)
		err = resolve(qp);
	if (!err && mask & IBV_QP_DEST_QPN && a->dest_qp_num == ibv->qp_num) {
		dr_fake_wait_while(&qp->dev->loop_held, LOOP_HOLD_MS);
		err = qp->dev->loop_err;
	}
	if (!err) {
		dr_fake_qp_apply(qp, a, mask);
		if (next == IBV_QPS_RESET)
			dr_fake_qp_clear(qp);
		if (next == IBV_QPS_ERR)
			dr_fake_qp_err(qp);
		qp->state = next;
		if (mask & IBV_QP_STATE)
			ibv->state = next;
		dr_fake_move_all();
	}
	dr_fake_unlock();
	return err;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *ia)
{
	int err = dr_fake_enter(DR_FAKE_CALL_query_qp);
	const struct dr_fake_qp *qp = dr_container_of(ibv, struct dr_fake_qp, ibv);

	(void)mask;
	dr_fake_lock();
	if (!err && qp->dev->fatal)
		err = EIO;
	if (!err) {
		memset(ia, 0, sizeof(*ia));
		*a = qp->attr;
		a->qp_state = a->cur_qp_state = qp->state;
		a->cap = ia->cap = qp->cap;
		ia->qp_context = ibv->qp_context;
		ia->send_cq = ibv->send_cq;
		ia->recv_cq = ibv->recv_cq;
		ia->qp_type = ibv->qp_type;
		ia->sq_sig_all = qp->sq_sig_all;
		ibv->state = qp->state;
	}
	dr_fake_unlock();
	return err;
}

/* The real library blocks until all events are acknowledged. */
int ibv_destroy_qp(struct ibv_qp *ibv)
{
	int err = dr_fake_enter(DR_FAKE_CALL_destroy_qp);
	struct dr_fake_qp *qp = dr_container_of(ibv, struct dr_fake_qp, ibv);

	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_qps, qp)) {
		dr_fake_violation("destroy_qp of no queue pair");
		err = EINVAL;
	} else if (!err && qp->events_got != qp->events_acked) {
		dr_fake_violation("destroy_qp: %u events got, %u acknowledged", qp->events_got,
			qp->events_acked);
		err = EBUSY;
	} else if (!err) {
		dr_fake_queue_drop(
			&dr_container_of(ibv->context, struct dr_fake_ctx, ibv)->events, ibv);
		dr_fake_qp_clear(qp);
		dr_fake_set_del(&dr_fake_qps, qp);
		dr_fake_qp_free(qp);
		dr_fake_move_all();
	}
	dr_fake_unlock();
	return err;
}
