/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages: frames and credits, packed, over queue pair 0. Invariants:
 *  1. A message is sent only into a receive that the peer has granted: there is no "receiver not ready".
 *     Each message says how many receives its sender has posted in all.
 *  2. The last receive granted is kept for a message without frames. So two ends that have both used up
 *     the rest can still return what they have taken; whoever hears that may send again.
 *  3. A send slot is written again only after a completion at or behind its message.
 *  4. Frames leave in the order queued, whole, and only as far as they were flushed.
 */
#include "transport/verbs/path_priv.h"

#include <errno.h>
#include <string.h>

enum { CTRL_CHAIN = 8 };

struct chain {
	struct ibv_send_wr wr[CTRL_CHAIN];
	struct ibv_sge sge[CTRL_CHAIN];
	unsigned n;
};

int dr_verbs_post_ctrl(struct dr_path *bp, const void *frame, size_t len)
{
	struct vb_path *p = vb_path(bp);
	int err = dr_verbs_may_post(p);

	if (len < 1 || len > DR_CTRL_MAX)
		return -EINVAL;
	if (err)
		return err;
	uint8_t *at = dr_path_queue_room(&p->ctrl.q, DR_VERBS_FRAME_MAX);
	if (!at)
		return -EAGAIN;
	p->ctrl.q.end += dr_verbs_ctrl_encode(frame, len, at);
	return 0;
}

/* Messages that may be sent now, the last one granted included. */
static unsigned may_send(const struct vb_ctrl *c)
{
	int32_t granted = (int32_t)(c->peer_granted - (uint32_t)c->sent);
	unsigned slots = VB_CTRL_DEPTH - (unsigned)(c->sent - c->done);

	return granted <= 0 ? 0 : DR_MIN((unsigned)granted, slots);
}

static void post(struct vb_path *p, struct chain *ch)
{
	struct ibv_send_wr *bad;

	if (ch->n == 0)
		return;
	ch->wr[ch->n - 1].send_flags |= IBV_SEND_SIGNALED;
	ch->wr[ch->n - 1].next = NULL;
	p->base.st.syscalls++;
	dr_path_sent(&p->base.path, p->base.now_ns);
	if (p->ctrl.timed == 0) {
		p->ctrl.timed = p->ctrl.sent;
		p->ctrl.timed_ns = p->base.now_ns;
	}
	if (ibv_post_send(p->conn->qp[0], ch->wr, &bad))
		dr_verbs_fail(p, DR_SCOPE_PATH, -EIO, "cannot post a control message");
	ch->n = 0;
}

/* One message of the frames in [at, flushed) that fit; none when only grants are to be told. */
static void add_message(struct vb_path *p, struct chain *ch)
{
	unsigned slot = (unsigned)(p->ctrl.sent % VB_CTRL_DEPTH), i = ch->n++;
	uint8_t *to = p->conn->slab + (VB_CTRL_DEPTH + slot) * VB_CTRL_MSG;
	struct vb_ctrl *c = &p->ctrl;
	struct dr_wbuf w;

	dr_wbuf_init(&w, to, VB_CTRL_MSG);
	dr_wbuf_u32(&w, c->granted);
	c->told = c->granted;
	while (c->q.at < c->q.flushed) {
		size_t len = dr_verbs_frame_len(c->q.buf + c->q.at);

		if (w.len + len > VB_CTRL_MSG)
			break;
		dr_wbuf_bytes(&w, c->q.buf + c->q.at, len);
		c->q.at += len;
	}
	ch->sge[i] = (struct ibv_sge){
		.addr = (uintptr_t)to, .length = (uint32_t)w.len, .lkey = p->conn->slab_mr->lkey
	};
	ch->wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)p->conn->serial << 32 |
						   vb_id(false, 0, c->sent),
		.next = i + 1 < CTRL_CHAIN ? &ch->wr[i + 1] : NULL,
		.sg_list = &ch->sge[i],
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = w.len <= p->conn->inline_max[0] ? IBV_SEND_INLINE : 0 };
	c->len[slot] = (uint16_t)w.len;
	c->sent++;
	p->posted_bytes += w.len;
	p->base.st.tx_wire += w.len;
	if (ch->n == CTRL_CHAIN)
		post(p, ch);
}

void dr_verbs_ctrl_push(struct vb_path *p)
{
	struct chain ch; /* as large as a page: not cleared */

	ch.n = 0;
	while (p->state == VB_UP && p->ctrl.q.at < p->ctrl.q.flushed && may_send(&p->ctrl) > 1)
		add_message(p, &ch);
	if (p->state == VB_UP && p->ctrl.granted - p->ctrl.told >= VB_CTRL_DEPTH / 2 &&
		may_send(&p->ctrl) > 0)
		add_message(p, &ch);
	post(p, &ch);
	dr_path_queue_took(&p->ctrl.q, 0);
}

void dr_verbs_ctrl_nudge(struct vb_path *p)
{
	struct chain ch;

	ch.n = 0;
	if (may_send(&p->ctrl) == 0)
		return;
	add_message(p, &ch);
	post(p, &ch);
}

static void on_sent(struct vb_path *p, const struct vb_wc *wc)
{
	uint64_t done = vb_id_count(wc->id, p->ctrl.done) + 1;

	for (; p->ctrl.done < done; p->ctrl.done++)
		p->acked_bytes += p->ctrl.len[p->ctrl.done % VB_CTRL_DEPTH];
	p->ack_ns = p->base.now_ns;
	dr_verbs_known_add(vb_path_rail(p), &p->conn->peer);
	if (p->ctrl.timed != 0 && done >= p->ctrl.timed) {
		dr_verbs_rtt(p, p->base.now_ns - p->ctrl.timed_ns);
		p->ctrl.timed = 0;
	}
	if (p->state == VB_COMING)
		dr_verbs_obey(p, dr_verbs_hs_acked(&p->hs), NULL);
}

static bool take_grant(struct vb_path *p, uint32_t granted)
{
	struct vb_ctrl *c = &p->ctrl;

	if ((int32_t)(granted - c->peer_granted) < 0 ||
		granted - (uint32_t)c->sent > 2 * VB_CTRL_DEPTH)
		return false;
	c->peer_granted = granted;
	return true;
}

static void on_frame(struct vb_path *p, const struct dr_verbs_frame *f)
{
	struct dr_event ev = { .kind = DR_EV_CTRL, .data = f->data, .len = f->len };

	if (f->type == DR_VERBS_FRAME_CTRL)
		dr_path_emit(&p->base, &ev);
	else if (p->base.par.sender)
		dr_verbs_credited(p, &f->credit);
	else
		dr_verbs_fail(p, DR_SCOPE_PATH, -EPROTO, "the sender sent a credit");
}

static void on_message(struct vb_path *p, const uint8_t *data, uint32_t len)
{
	struct dr_verbs_frame f;
	uint32_t granted = 0;
	struct dr_rbuf r;
	int rc = 0;

	dr_rbuf_init(&r, data, len);
	dr_rbuf_u32(&r, &granted);
	if (r.failed || !take_grant(p, granted))
		rc = -EPROTO;
	while (rc >= 0 && p->state == VB_UP && (rc = dr_verbs_frame_next(&r, &f)) > 0)
		on_frame(p, &f);
	if (rc < 0 && p->state <= VB_UP)
		dr_verbs_fail(p, DR_SCOPE_PATH, -EPROTO,
			"malformed control message of %u bytes from the peer", len);
}

static bool takes_messages(const struct vb_path *p)
{
	return p->state == VB_UP || p->hs.state == VB_HS_ANSWERING;
}

static void on_received(struct vb_path *p, const struct vb_wc *wc)
{
	unsigned slot = (wc->id & VB_ID_COUNT) % VB_CTRL_DEPTH;
	struct vb_conn *c = p->conn;

	dr_path_heard(&p->base.path, p->base.now_ns);
	p->base.st.rx_wire += wc->byte_len;
	if (p->state == VB_COMING)
		dr_verbs_obey(p, dr_verbs_hs_message(&p->hs), NULL);
	if (takes_messages(p))
		on_message(p, c->slab + slot * VB_CTRL_MSG,
			DR_MIN(wc->byte_len, (uint32_t)VB_CTRL_MSG));
	/* A receive posted in the error state might never come back. */
	if (!takes_messages(p))
		return;
	if (dr_verbs_post_ctrl_recvs(c, slot, 1))
		dr_verbs_fail(p, DR_SCOPE_LOCAL, -ENOMEM, "cannot post a control receive");
	else
		p->ctrl.granted++;
}

void dr_verbs_ctrl_wc(struct vb_path *p, const struct vb_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		dr_verbs_wc_failed(p, wc);
	else if (wc->id & VB_ID_RECV)
		on_received(p, wc);
	else if (!(wc->id & VB_ID_PROBE))
		on_sent(p, wc);
	else
		dr_verbs_probed(p, wc);
}
