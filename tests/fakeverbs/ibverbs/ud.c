/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/* Datagrams: sent is done; what finds no way, no queue pair with that key or no receive is lost. */

static void lay_grh(uint8_t *to, const struct dr_fake_swqe *w)
{
	/* RoCE v2 over IPv4: 20 bytes that say nothing, then the IPv4 header (IBA annex A17). */
	memset(to, 0xdd, DR_FAKE_GRH);
	if (!w->ah.is_global)
		return; /* room for it, and nothing in it */
	to[20] = 0x45;
	memcpy(to + 32, w->sgid.raw + 12, 4);
	memcpy(to + 36, w->ah.grh.dgid.raw + 12, 4);
}

static void arrive(struct dr_fake_qp *qp, struct dr_fake_qp *to, struct dr_fake_swqe *w)
{
	const struct dr_fake_rwqe *r = &to->rq[to->rq_head % to->cap.max_recv_wr];
	bool imm = w->wr.opcode == IBV_WR_SEND_WITH_IMM;
	struct ibv_wc wc = { .opcode = IBV_WC_RECV,
		.byte_len = w->len + DR_FAKE_GRH,
		.src_qp = qp->ibv.qp_num,
		.imm_data = imm ? w->wr.imm_data : 0xdeadbeef,
		.wc_flags = (w->ah.is_global ? IBV_WC_GRH : 0) | (imm ? IBV_WC_WITH_IMM : 0) };
	uint8_t bytes[DR_FAKE_GRH + 4096];

	lay_grh(bytes, w);
	dr_fake_gather(qp, w, bytes + DR_FAKE_GRH, w->len);
	wc.status = dr_fake_scatter(to, r, bytes, w->len + DR_FAKE_GRH);
	if (wc.status == IBV_WC_LOC_LEN_ERR)
		return; /* class E: dropped (rxe_resp.c) */
	if (wc.status == IBV_WC_SUCCESS)
		wc.status = dr_fake_ordered(to, true);
	dr_fake_done_recv(to, &wc, w->wr.send_flags & IBV_SEND_SOLICITED);
	if (wc.status != IBV_WC_SUCCESS)
		dr_fake_qp_err(to);
}

int dr_fake_try_ud(struct dr_fake_qp *qp, struct dr_fake_swqe *w)
{
	enum ibv_wc_status ordered;
	struct dr_fake_dev *d;
	struct dr_fake_qp *to;

	if (qp->dev->fatal || qp->dev->held)
		return DR_FAKE_IDLE;
	ordered = dr_fake_ordered(qp, false);
	if (ordered != IBV_WC_SUCCESS)
		return (int)ordered;
	if (w->len > 4096)
		return IBV_WC_LOC_LEN_ERR;
	if (!dr_fake_gather_ok(qp, w))
		return IBV_WC_LOC_PROT_ERR;
	if (qp->dev->drop > 0) {
		qp->dev->drop--;
		return DR_FAKE_DONE;
	}
	if (!dr_fake_source_ok(qp->dev, &w->ah, &w->sgid))
		return DR_FAKE_DONE;
	d = dr_fake_route(qp->dev, &w->ah);
	if (!d || d->fatal || d->held || d->down || qp->dev->down ||
		((d->cut | d->cut_ud) & DR_FAKE_RX) ||
		((qp->dev->cut | qp->dev->cut_ud) & DR_FAKE_TX))
		return DR_FAKE_DONE;
	if (d->hole != 0 && w->len > d->hole)
		return DR_FAKE_DONE;
	to = dr_fake_find_qp(d, w->wr.wr.ud.remote_qpn);
	if (to && to->ibv.qp_type == IBV_QPT_UD &&
		(to->state == IBV_QPS_RTR || to->state == IBV_QPS_RTS) &&
		to->attr.qkey == w->wr.wr.ud.remote_qkey && to->rq_head != to->rq_tail)
		arrive(qp, to, w);
	return DR_FAKE_DONE;
}
