/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rail's datagrams: heartbeats, and the greetings of paths, over one UD queue pair. Invariants:
 *  1. Every datagram may be lost: without an address handle, without a free buffer, or when posting
 *     fails it is dropped. Receives are posted again as soon as they were handled.
 *  2. The address handle is made by the helper, which may wait a second for the neighbour; the old one
 *     is used until the new one is there, and destroyed by the next job, after the sends that use it.
 *  3. Padding is sent from, and received into, one area that all datagrams share: nobody reads it.
 *  4. A queue pair in the error state (rxe: a datagram sent while the link is down) is brought up again
 *     under its old number. What it did in an earlier life is told by the wr_id, and dropped. rail_progress
 *     does so in the call that sees the error, since the owner may have nothing to send. What an
 *     asynchronous event says fails the rail only if the queue pair cannot be reset.
 */
#include "transport/verbs/path_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

enum {
	PAD_TX = (VB_UD_RECVS + VB_UD_SENDS) * VB_UD_BUF, /* zeros */
	PAD_RX = PAD_TX + VB_UD_PAD,
	SLAB_LEN = PAD_RX + VB_UD_PAD,
	SIGNAL_EVERY = 8,
	BATCHES = 4, /* of VB_POLL completions, in one rail_progress */
};

static struct ibv_sge span(const struct vb_rail *r, unsigned off, size_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)(r->ud.slab + off),
		.length = (uint32_t)len,
		.lkey = r->ud.mr->lkey };
}

static int post_recvs(struct vb_rail *r, unsigned first, unsigned n)
{
	struct ibv_recv_wr *bad;
	int rc = 0;

	for (unsigned i = first; i < first + n && rc == 0; i++) {
		struct ibv_sge sge[2] = { span(r, i * VB_UD_BUF, VB_UD_BUF),
			span(r, PAD_RX, VB_UD_PAD) };
		struct ibv_recv_wr wr = { .wr_id = (uint64_t)r->ud.life << 32 | VB_ID_RECV | i,
			.sg_list = sge,
			.num_sge = 2 };
		rc = ibv_post_recv(r->ud.qp, &wr, &bad);
	}
	return dr_verbs_neg(rc);
}

static int bring_up(struct vb_rail *r)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = r->dev.port, .qkey = r->ud.qkey
	};
	int rc = r->ibv->modify_qp(
		r->ud.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

	if (rc == 0)
		rc = post_recvs(r, 0, VB_UD_RECVS);
	a.qp_state = IBV_QPS_RTR;
	if (rc == 0)
		rc = r->ibv->modify_qp(r->ud.qp, &a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = (uint32_t)dr_rng_u64(&r->rng) & DR_VERBS_PSN_MASK;
	if (rc == 0)
		rc = r->ibv->modify_qp(r->ud.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return dr_verbs_neg(rc);
}

int dr_verbs_ud_open(struct vb_rail *r, struct dr_err *e)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = VB_UD_SENDS,
			.max_recv_wr = VB_UD_RECVS,
			.max_send_sge = 2,
			.max_recv_sge = 2 } };
	struct vb_ud *u = &r->ud;

	u->slab = dr_pages_alloc(SLAB_LEN);
	if (!u->slab)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", r->base.index);
	int rc = dr_verbs_reg(r, u->slab, SLAB_LEN, IBV_ACCESS_LOCAL_WRITE, &u->mr, e);
	if (rc == 0)
		rc = dr_verbs_cq_make(r, &u->cq, VB_UD_RECVS + VB_UD_SENDS, e);
	if (rc)
		return rc;
	u->cq.live = true;
	a.send_cq = a.recv_cq = u->cq.cq;
	errno = 0;
	u->qp = r->ibv->create_qp(r->pd, &a);
	rc = dr_verbs_made(&r->dev, u->qp, "create a datagram queue pair", e);
	if (rc)
		return rc;
	/* A key with the highest bit set would be a privileged one. */
	u->qkey = (uint32_t)dr_rng_u64(&r->rng) & 0x7fffffff;
	rc = bring_up(r);
	return rc ? dr_err_set(e, rc, "%s port %u: cannot bring a datagram queue pair up: %s",
			    r->dev.name, r->dev.port, dr_errno_name(rc))
		  : 0;
}

/* After a reset; rc: what it returned. */
static void report_reset(struct vb_rail *r, int rc)
{
	struct vb_ud *u = &r->ud;

	if (rc && u->event && !r->err) {
		dr_verbs_rail_fail(
			r, DR_SCOPE_LOCAL, -EIO, "the datagram queue pair: %s", u->event);
		u->reported = true;
	} else if (rc == 0 && u->reported && r->scope == DR_SCOPE_LOCAL) {
		r->err = 0;
		r->err_due = false;
	}
	if (rc == 0) {
		u->event = NULL;
		u->reported = false;
	}
}

/* None of these steps blocks. */
static void reset_qp(struct vb_rail *r)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct vb_ud *u = &r->ud;
	int64_t now_ns = dr_now_ns();

	if (now_ns - u->reset_ns < VB_UD_RESET_NS)
		return;
	u->reset_ns = now_ns;
	u->life++;
	u->posted = u->done = 0;
	int rc = r->ibv->modify_qp(u->qp, &a, IBV_QP_STATE);
	if (rc == 0)
		rc = bring_up(r);
	u->broken = rc != 0;
	dr_debug("verbs", "rail %u: the queue pair of datagrams was reset: %s", r->base.index,
		rc ? dr_errno_name(rc) : "works again");
	report_reset(r, rc);
}

void dr_verbs_ud_failed(struct vb_rail *r, const char *event)
{
	r->ud.broken = true;
	r->ud.event = event;
}

/* The helper has ended. */
int dr_verbs_ud_close(struct vb_rail *r)
{
	struct vb_ud *u = &r->ud;
	int rc = u->qp ? dr_verbs_neg(r->ibv->destroy_qp(u->qp)) : 0;

	if (u->ah)
		(void)r->ibv->destroy_ah(u->ah);
	if (u->job.old)
		(void)r->ibv->destroy_ah(u->job.old);
	if (u->mr && rc == 0)
		rc = dr_verbs_neg(r->ibv->dereg_mr(u->mr));
	*u = (struct vb_ud){ .cq = u->cq, .slab = u->slab }; /* the queue goes with the others */
	return rc;
}

void dr_verbs_ud_free(struct vb_rail *r)
{
	dr_pages_free(r->ud.slab, SLAB_LEN);
}

/* ---- address handle ---- */

static void ah_run(struct vb_job *j)
{
	struct vb_ah_job *a = dr_container_of(j, struct vb_ah_job, job);

	if (a->old)
		(void)a->rail->ibv->destroy_ah(a->old);
	a->old = NULL;
	errno = EIO;
	a->ah = a->rail->ibv->create_ah(a->rail->pd, &a->attr);
	a->rc = a->ah ? 0 : -errno;
}

static void ah_done(struct vb_job *j)
{
	struct vb_ah_job *a = dr_container_of(j, struct vb_ah_job, job);
	struct vb_rail *r = a->rail;

	a->busy = false;
	r->ud.ah_stale = a->rc != 0 || a->again;
	if (a->rc) {
		dr_debug("verbs", "rail %u: no route to the peer for datagrams yet: %s",
			r->base.index, dr_errno_name(a->rc));
		return;
	}
	a->old = r->ud.ah;
	r->ud.ah = a->ah;
}

static struct dr_known known_of(const struct vb_rail *r, uint16_t lid, const uint8_t gid[16])
{
	struct dr_known k = { .len = 18, .at = { (uint8_t)(lid >> 8), (uint8_t)lid } };

	memcpy(k.token, r->par.token, DR_TOKEN_LEN);
	memcpy(k.at + 2, gid, 16);
	return k;
}

void dr_verbs_known_add(const struct vb_rail *r, const struct dr_verbs_hello *peer)
{
	if (!r->limit.on)
		return;
	const struct dr_known k = known_of(r, peer->lid, peer->gid);
	dr_known_add(&k);
}

void dr_verbs_ah_renew(struct vb_rail *r)
{
	struct vb_ah_job *a = &r->ud.job;

	if (!r->where.known || r->closed || r->dead)
		return;
	r->ud.ah_stale = true;
	r->limit.on = r->vp.distrusts; /* the address may be a new one */
	r->limit.peer = known_of(r, r->where.peer.lid, r->where.peer.gid);
	a->again = a->busy; /* what is under way may be of an old address */
	if (a->busy)
		return;
	a->busy = true;
	a->rail = r;
	a->attr = dr_verbs_route(r, &r->dev, r->where.peer.lid, r->where.peer.gid);
	a->job = (struct vb_job){ .run = ah_run, .done = ah_done };
	r->ud.ah_tried_ns = dr_now_ns();
	dr_verbs_helper_submit(&r->helper, &a->job, 0);
}

/* ---- sending ---- */

static bool may_send(struct vb_rail *r)
{
	struct vb_ud *u = &r->ud;

	if (r->closed || r->dead || !r->where.known)
		return false;
	if (u->broken)
		reset_qp(r);
	if (u->broken)
		return false;
	if ((!u->ah || u->ah_stale) && dr_now_ns() - u->ah_tried_ns >= VB_AH_AGAIN_NS)
		dr_verbs_ah_renew(r);
	return u->ah && u->posted - u->done < VB_UD_SENDS;
}

/* Followed by `padding` zeros. */
static void send_padded(struct vb_rail *r, const void *head, size_t head_len, const void *data,
	size_t len, size_t padding)
{
	struct vb_ud *u = &r->ud;
	struct ibv_send_wr *bad;

	if (head_len + len > VB_UD_BUF || padding > VB_UD_PAD || !may_send(r) ||
		!dr_known_may_send(&r->limit, 1, padding > 0))
		return;
	unsigned slot = VB_UD_RECVS + (unsigned)(u->posted % VB_UD_SENDS);
	memcpy(u->slab + slot * VB_UD_BUF, head, head_len);
	if (len)
		memcpy(u->slab + slot * VB_UD_BUF + head_len, data, len);
	struct ibv_sge sge[2] = { span(r, slot * VB_UD_BUF, head_len + len),
		span(r, PAD_TX, padding) };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)u->life << 32 | vb_id(false, 0, u->posted),
		.sg_list = sge,
		.num_sge = padding > 0 ? 2 : 1,
		.opcode = IBV_WR_SEND,
		.send_flags = u->posted % SIGNAL_EVERY == SIGNAL_EVERY - 1 ? IBV_SEND_SIGNALED : 0,
		.wr.ud = { .ah = u->ah,
			.remote_qpn = r->where.peer.ud_qpn,
			.remote_qkey = r->where.peer.ud_qkey } };
	r->syscalls++;
	if (ibv_post_send(u->qp, &wr, &bad) == 0) {
		u->posted++;
		r->limit.answered++;
	}
}

void dr_verbs_ud_send(
	struct vb_rail *r, const void *head, size_t head_len, const void *data, size_t len)
{
	send_padded(r, head, head_len, data, len, 0);
}

void dr_verbs_rail_dgram(struct dr_rail *br, const void *data, size_t len)
{
	uint8_t type = DR_VERBS_DGRAM;

	dr_dassert(len <= DR_DGRAM_MAX);
	dr_verbs_ud_send(vb_rail(br), &type, 1, data, len);
}

/* The device that came back may have a smaller MTU than the one that the owner asked for. */
void dr_verbs_rail_padded(struct dr_rail *br, const void *data, size_t len, uint32_t size)
{
	struct vb_rail *r = vb_rail(br);
	uint8_t type = DR_VERBS_DGRAM;

	dr_dassert(len <= DR_DGRAM_MAX && size > len);
	if (r->where.known && 1 + size <= DR_MIN(r->dev.mtu, (unsigned)r->where.peer.mtu))
		send_padded(r, &type, 1, data, len, size - len);
}

/* ---- receiving ---- */

int dr_verbs_ud_poll(struct vb_rail *r)
{
	struct vb_ud *u = &r->ud;

	if (u->at < u->n || !u->cq.live)
		return u->n - u->at;
	u->at = u->n = 0;
	int n = ibv_poll_cq(u->cq.cq, VB_POLL, u->wc);
	if (n < 0)
		dr_verbs_nic_broke(r, "the completion queue of datagrams cannot be polled");
	else
		u->n = n;
	return u->n;
}

static void received(struct vb_rail *r, const struct ibv_wc *wc)
{
	unsigned slot = (uint32_t)wc->wr_id & VB_ID_COUNT;
	const uint8_t *data = r->ud.slab + slot * VB_UD_BUF + VB_GRH;
	struct dr_event ev = { .kind = DR_EV_DGRAM, .data = data + 1 };

	r->limit.heard++;
	r->n_taken++;
	if (wc->byte_len >= VB_GRH + 2) {
		ev.size = wc->byte_len - VB_GRH - 1;
		ev.len = DR_MIN(ev.size, (uint32_t)DR_DGRAM_MAX);
		if (data[0] == DR_VERBS_DGRAM && r->where.known)
			dr_verbs_rail_emit(r, &ev);
		else if (data[0] != DR_VERBS_DGRAM && wc->byte_len <= VB_UD_BUF)
			dr_verbs_admit(r, data, wc->byte_len - VB_GRH);
	}
	if (!r->closed && post_recvs(r, slot, 1))
		r->ud.broken = true;
}

static void broke(struct vb_rail *r, const struct ibv_wc *wc)
{
	if (!r->ud.broken)
		dr_debug("verbs", "rail %u: the queue pair of datagrams failed: %s", r->base.index,
			r->ibv->wc_status_str(wc->status));
	r->ud.broken = true;
}

static void handle(struct vb_rail *r, const struct ibv_wc *wc)
{
	if ((uint32_t)(wc->wr_id >> 32) != r->ud.life)
		return;
	if (wc->status != IBV_WC_SUCCESS)
		broke(r, wc);
	else if ((uint32_t)wc->wr_id & VB_ID_RECV)
		received(r, wc);
	else
		r->ud.done = vb_id_count((uint32_t)wc->wr_id, r->ud.done) + 1;
}

void dr_verbs_ud_progress(struct vb_rail *r)
{
	for (unsigned batch = 0; batch < BATCHES && !r->closed && dr_verbs_ud_poll(r) > 0; batch++)
		while (!r->closed && r->ud.at < r->ud.n)
			handle(r, &r->ud.wc[r->ud.at++]);
	if (r->ud.broken && !r->closed && !r->dead)
		reset_qp(r);
}
