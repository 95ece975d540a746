/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/*
 * One try of a reliable connection's work. Request and acknowledgment are two passages: each needs the
 * source GID at its index and neither device cut in its direction. A request that was executed is not
 * executed again; only its acknowledgment is waited for. PSNs: both ends' starting numbers agree and
 * as many messages were sent as received, else the request is not answered.
 */

static bool passes(const struct dr_fake_dev *from, const struct dr_fake_dev *to)
{
	return !from->down && !to->down && !from->fatal && !to->fatal &&
	       !(from->cut & DR_FAKE_TX) && !(to->cut & DR_FAKE_RX);
}

static bool same_gid(const union ibv_gid *a, const union ibv_gid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* The queue pair at the other end that would answer this one; NULL: nobody does. */
static struct dr_fake_qp *answerer(const struct dr_fake_qp *qp, const struct dr_fake_dev *d)
{
	struct dr_fake_qp *peer = dr_fake_find_qp(d, qp->attr.dest_qp_num);

	if (!peer || peer->ibv.qp_type != IBV_QPT_RC || peer->state < IBV_QPS_RTR ||
		peer->state > IBV_QPS_SQD)
		return NULL;
	if (peer->attr.dest_qp_num != qp->ibv.qp_num ||
		dr_fake_route(d, &peer->attr.ah_attr) != qp->dev)
		return NULL;
	if (!qp->dev->ib && !same_gid(&peer->attr.ah_attr.grh.dgid, &qp->sgid))
		return NULL;
	return peer->attr.rq_psn == qp->attr.sq_psn && peer->received == qp->sent ? peer : NULL;
}

static int refuse(struct dr_fake_qp *peer, enum ibv_wc_status s)
{
	dr_fake_qp_err(peer);
	return (int)s;
}

/* A receive at the peer ends with an error, so its queue pair does. */
static int spoil(struct dr_fake_qp *peer, enum ibv_wc_status s)
{
	const struct ibv_wc wc = { .status = s };

	dr_fake_done_recv(peer, &wc, false);
	return refuse(peer, s == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
}

static bool may_write(const struct dr_fake_qp *peer, const struct dr_fake_swqe *w)
{
	return w->len == 0 ||
	       ((peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) &&
		       dr_fake_mr_find(peer->ibv.pd, w->wr.wr.rdma.rkey, true,
			       w->wr.wr.rdma.remote_addr, w->len, IBV_ACCESS_REMOTE_WRITE));
}

static unsigned mtu_bytes(enum ibv_mtu m)
{
	return 128u << m;
}

static int write_data(struct dr_fake_qp *qp, struct dr_fake_qp *peer, struct dr_fake_swqe *w)
{
	uint8_t *to = (uint8_t *)(uintptr_t)w->wr.wr.rdma.remote_addr;
	unsigned mtu = mtu_bytes(qp->attr.path_mtu);

	if (!may_write(peer, w))
		return refuse(peer, IBV_WC_REM_ACCESS_ERR);
	if (w->wr.opcode == IBV_WR_RDMA_WRITE || peer->rq_head != peer->rq_tail) {
		if (w->len > 0)
			dr_fake_gather(w, to, w->len);
		return DR_FAKE_DONE;
	}
	/* The receive is asked for by the last packet; those before it have landed. */
	if (w->len > mtu && !w->landed)
		dr_fake_gather(w, to, (w->len - 1) / mtu * mtu);
	w->landed = true;
	return DR_FAKE_RNR;
}

static int send_data(struct dr_fake_qp *peer, struct dr_fake_swqe *w)
{
	enum ibv_wc_status s;
	uint8_t *bytes;

	if (peer->rq_head == peer->rq_tail)
		return DR_FAKE_RNR;
	bytes = malloc((size_t)w->len + 1);
	dr_assert(bytes != NULL);
	dr_fake_gather(w, bytes, w->len);
	s = dr_fake_scatter(peer, &peer->rq[peer->rq_head % peer->cap.max_recv_wr], bytes, w->len);
	free(bytes);
	return s == IBV_WC_SUCCESS ? DR_FAKE_DONE : spoil(peer, s);
}

static int deliver(struct dr_fake_qp *qp, struct dr_fake_qp *peer, struct dr_fake_swqe *w)
{
	enum ibv_wr_opcode o = w->wr.opcode;
	bool write = o == IBV_WR_RDMA_WRITE || o == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = o == IBV_WR_SEND_WITH_IMM || o == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_wc wc = { .opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = w->len,
		.imm_data = imm ? w->wr.imm_data : 0xdeadbeef,
		.wc_flags = imm ? IBV_WC_WITH_IMM : 0 };
	enum ibv_wc_status ordered;
	int r;

	if (peer->attr.path_mtu < qp->attr.path_mtu && w->len > mtu_bytes(peer->attr.path_mtu))
		return refuse(peer, IBV_WC_REM_INV_REQ_ERR);
	r = write ? write_data(qp, peer, w) : send_data(peer, w);
	if (r != DR_FAKE_DONE)
		return r;
	if (!write || imm) {
		ordered = dr_fake_ordered(peer, true);
		if (ordered != IBV_WC_SUCCESS)
			return spoil(peer, ordered);
		dr_fake_done_recv(peer, &wc, w->wr.send_flags & IBV_SEND_SOLICITED);
	}
	w->delivered = true;
	qp->sent++;
	peer->received++;
	return DR_FAKE_DONE;
}

int dr_fake_try_rc(struct dr_fake_qp *qp, struct dr_fake_swqe *w)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	struct dr_fake_dev *d;
	struct dr_fake_qp *peer;
	enum ibv_wc_status ordered;
	int r = DR_FAKE_DONE;

	if (qp->dev->fatal || qp->dev->held || !dr_fake_source_ok(qp->dev, ah, &qp->sgid))
		return DR_FAKE_IDLE;
	if (!w->delivered) {
		ordered = dr_fake_ordered(qp, false);
		if (ordered != IBV_WC_SUCCESS)
			return (int)ordered;
		if (!dr_fake_gather_ok(qp, w))
			return IBV_WC_LOC_PROT_ERR;
	}
	d = dr_fake_route(qp->dev, ah);
	if (d && d->held)
		return DR_FAKE_IDLE;
	if (!d || !passes(qp->dev, d))
		return DR_FAKE_LOST;
	if (!w->delivered) {
		peer = answerer(qp, d);
		r = peer ? deliver(qp, peer, w) : DR_FAKE_LOST;
	} else {
		peer = dr_fake_find_qp(d, qp->attr.dest_qp_num);
	}
	/* What the peer says comes back, or does not. */
	if (r == DR_FAKE_LOST || !peer || !passes(d, qp->dev) ||
		!dr_fake_source_ok(d, &peer->attr.ah_attr, &peer->sgid))
		return DR_FAKE_LOST;
	if (w->delivered && (peer->state < IBV_QPS_RTR || peer->state > IBV_QPS_SQD))
		return DR_FAKE_LOST;
	return r;
}
