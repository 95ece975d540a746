/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/*
 * How work ends. At an error only wr_id, status, qp_num and vendor_err of a completion are valid
 * (verbs.h); the other fields get values that lead astray whoever believes them.
 */

static void mislead(struct ibv_wc *wc, bool recv)
{
	if (wc->status == IBV_WC_SUCCESS)
		return;
	wc->opcode = recv ? IBV_WC_SEND : IBV_WC_RECV_RDMA_WITH_IMM;
	wc->byte_len = 0xdeadbeef;
	wc->imm_data = 0xdeadbeef;
	wc->wc_flags = IBV_WC_WITH_IMM | IBV_WC_GRH;
	wc->src_qp = 0xdead;
	wc->vendor_err = 0x77;
}

static enum ibv_wc_opcode opcode_of(enum ibv_wr_opcode o)
{
	if (o == IBV_WR_RDMA_READ)
		return IBV_WC_RDMA_READ;
	return o == IBV_WR_RDMA_WRITE || o == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RDMA_WRITE
									 : IBV_WC_SEND;
}

/* The head of the send queue. Unsignalled work completes silently unless it failed. */
void dr_fake_done_send(struct dr_fake_qp *qp, enum ibv_wc_status s)
{
	const struct dr_fake_swqe *w = &qp->sq[qp->sq_head % qp->cap.max_send_wr];
	struct dr_fake_cqe e = { .qp = qp };

	e.wc.wr_id = w->wr.wr_id;
	e.wc.status = s;
	e.wc.opcode = opcode_of(w->wr.opcode);
	e.wc.qp_num = qp->ibv.qp_num;
	e.wc.byte_len = w->len;
	qp->sq_head++;
	qp->sq_silent++;
	qp->retry_ns = qp->rnr_ns = 0;
	if (s == IBV_WC_SUCCESS && !qp->sq_sig_all && !(w->wr.send_flags & IBV_SEND_SIGNALED))
		return;
	e.release = qp->sq_silent;
	qp->sq_silent = 0;
	mislead(&e.wc, false);
	dr_fake_cq_push(dr_container_of(qp->ibv.send_cq, struct dr_fake_cq, ibv), &e, false);
}

/* The head of the receive queue; wc has status and what came. */
void dr_fake_done_recv(struct dr_fake_qp *qp, const struct ibv_wc *wc, bool solicited)
{
	struct dr_fake_cqe e = { .qp = qp, .recv = true, .release = 1, .wc = *wc };

	e.wc.wr_id = qp->rq[qp->rq_head % qp->cap.max_recv_wr].wr_id;
	e.wc.qp_num = qp->ibv.qp_num;
	qp->rq_head++;
	mislead(&e.wc, true);
	dr_fake_cq_push(dr_container_of(qp->ibv.recv_cq, struct dr_fake_cq, ibv), &e, solicited);
}

void dr_fake_qp_flush(struct dr_fake_qp *qp)
{
	const struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR };

	if (qp->dev->no_flush)
		return;
	while (qp->sq_head != qp->sq_tail)
		dr_fake_done_send(qp, IBV_WC_WR_FLUSH_ERR);
	while (qp->rq_head != qp->rq_tail)
		dr_fake_done_recv(qp, &wc, false);
}

void dr_fake_qp_err(struct dr_fake_qp *qp)
{
	qp->state = IBV_QPS_ERR;
	qp->retry_ns = qp->rnr_ns = 0;
	dr_fake_qp_flush(qp);
}

enum ibv_wc_status dr_fake_ordered(struct dr_fake_qp *qp, bool recv)
{
	struct dr_fake_rule *r = &qp->dev->rule[recv];

	if (!r->on || (r->qpn ? r->qpn != qp->ibv.qp_num : qp->ibv.qp_type != IBV_QPT_RC))
		return IBV_WC_SUCCESS;
	if (r->skip > 0) {
		r->skip--;
		return IBV_WC_SUCCESS;
	}
	r->on = false;
	r->done = true;
	return r->status;
}
