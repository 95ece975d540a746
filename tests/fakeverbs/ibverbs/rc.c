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
	       !((from->cut | from->cut_rc) & DR_FAKE_TX) && !((to->cut | to->cut_rc) & DR_FAKE_RX);
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

/* The region at the peer that this work names, where the peer lets it in. */
static struct dr_fake_mr *remote_mr(
	const struct dr_fake_qp *peer, const struct dr_fake_swqe *w, unsigned access)
{
	if (!(peer->attr.qp_access_flags & access))
		return NULL;
	return dr_fake_mr_find(peer->ibv.pd, w->wr.wr.rdma.rkey, true, w->wr.wr.rdma.remote_addr,
		w->len, (int)access);
}

static unsigned mtu_bytes(enum ibv_mtu m)
{
	return 128u << m;
}

/* The front of the message to where it belongs. */
static void land(const struct dr_fake_qp *qp, const struct dr_fake_swqe *w, struct dr_fake_mr *mr,
	uint32_t len)
{
	uint8_t *bytes = malloc((size_t)len + 1);

	dr_assert(bytes != NULL);
	dr_fake_gather(qp, w, bytes, len);
	dr_fake_land(mr, w->wr.wr.rdma.remote_addr, bytes, len);
	free(bytes);
}

static int write_data(struct dr_fake_qp *qp, struct dr_fake_qp *peer, struct dr_fake_swqe *w)
{
	struct dr_fake_mr *mr = remote_mr(peer, w, IBV_ACCESS_REMOTE_WRITE);
	unsigned mtu = mtu_bytes(qp->attr.path_mtu);

	if (!mr && w->len > 0)
		return refuse(peer, IBV_WC_REM_ACCESS_ERR);
	if (w->wr.opcode == IBV_WR_RDMA_WRITE || peer->rq_head != peer->rq_tail) {
		if (w->len > 0)
			land(qp, w, mr, w->len);
		return DR_FAKE_DONE;
	}
	/* The receive is asked for by the last packet; those before it have landed. */
	if (w->len > mtu && !w->landed)
		land(qp, w, mr, (w->len - 1) / mtu * mtu);
	w->landed = true;
	return DR_FAKE_RNR;
}

/* What the NIC wrote there is seen when its read comes back. */
static int read_data(struct dr_fake_qp *qp, struct dr_fake_qp *peer, struct dr_fake_swqe *w)
{
	struct dr_fake_mr *mr = remote_mr(peer, w, IBV_ACCESS_REMOTE_READ);
	struct dr_fake_rwqe to = { .n_sge = w->wr.num_sge };

	if (!mr || peer->attr.max_dest_rd_atomic == 0)
		return refuse(peer, IBV_WC_REM_ACCESS_ERR);
	if (mr->view)
		dr_fake_gpu_show(mr);
	memcpy(to.sge, w->sge, sizeof(to.sge));
	return dr_fake_scatter(qp, &to, dr_fake_host(mr, w->wr.wr.rdma.remote_addr), w->len) ==
			       IBV_WC_SUCCESS
		       ? DR_FAKE_DONE
		       : IBV_WC_LOC_PROT_ERR;
}

static int send_data(const struct dr_fake_qp *qp, struct dr_fake_qp *peer, struct dr_fake_swqe *w)
{
	enum ibv_wc_status s;
	uint8_t *bytes;

	if (peer->rq_head == peer->rq_tail)
		return DR_FAKE_RNR;
	bytes = malloc((size_t)w->len + 1);
	dr_assert(bytes != NULL);
	dr_fake_gather(qp, w, bytes, w->len);
	s = dr_fake_scatter(peer, &peer->rq[peer->rq_head % peer->cap.max_recv_wr], bytes, w->len);
	free(bytes);
	return s == IBV_WC_SUCCESS ? DR_FAKE_DONE : spoil(peer, s);
}

static int deliver(struct dr_fake_qp *qp, struct dr_fake_qp *peer, struct dr_fake_swqe *w)
{
	enum ibv_wr_opcode o = w->wr.opcode;
	bool write = o == IBV_WR_RDMA_WRITE || o == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool read = o == IBV_WR_RDMA_READ;
	bool imm = o == IBV_WR_SEND_WITH_IMM || o == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_wc wc = { .opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = w->len,
		.imm_data = imm ? w->wr.imm_data : 0xdeadbeef,
		.wc_flags = imm ? IBV_WC_WITH_IMM : 0 };
	enum ibv_wc_status ordered;
	int r;

	if (!read && peer->attr.path_mtu < qp->attr.path_mtu &&
		w->len > mtu_bytes(peer->attr.path_mtu))
		return refuse(peer, IBV_WC_REM_INV_REQ_ERR);
	r = read    ? read_data(qp, peer, w)
	    : write ? write_data(qp, peer, w)
		    : send_data(qp, peer, w);
	if (r != DR_FAKE_DONE)
		return r;
	if ((!write && !read) || imm) {
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
	if (d->hole != 0 && DR_MIN(w->len, mtu_bytes(qp->attr.path_mtu)) > d->hole)
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
