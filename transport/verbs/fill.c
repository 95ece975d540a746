/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filler, which measures what a rail carries: RDMA writes into memory of the peer that nobody looks at. Invariants:
 *  1. The memory belongs to the rail, and is announced in HELLO and WELCOME. All paths of the rail write there and send
 *     from there. A connection of ours ends before it does, or it is kept (nic.c).
 *  2. Filler has the last probe queue pair, with places of its own: data, control messages and their grants are as if it
 *     were not there. The fence moves that queue pair to the error state like all others, and no user's buffer is in it.
 *  3. Each write is signalled, and the connection keeps the order: a completion is that of the oldest one.
 *  4. What is sent while nothing of it is on the way begins with a short write, whose completion is a round trip.
 *  5. When all of it is acknowledged, a frame tells the receiver how much there was, which its NIC does not. The frame
 *     waits while few messages are granted: a later one replaces it.
 */
#include "transport/verbs/path_priv.h"

#include "base/mem.h"

#include <errno.h>

enum { LONE = 64 };

/* ---- the rail's memory ---- */

int dr_verbs_scratch_open(struct vb_rail *r, struct dr_err *e)
{
	struct vb_scratch *s = &r->scratch;

	s->mem = dr_pages_alloc(VB_FILL_PIECE);
	if (!s->mem)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", r->base.index);
	return dr_verbs_reg(r, s->mem, VB_FILL_PIECE,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &s->mr, e);
}

int dr_verbs_scratch_close(struct vb_rail *r)
{
	int rc = r->scratch.mr ? dr_verbs_neg(r->ibv->dereg_mr(r->scratch.mr)) : 0;

	r->scratch.mr = NULL;
	return rc;
}

void dr_verbs_scratch_free(struct vb_rail *r)
{
	dr_pages_free(r->scratch.mem, VB_FILL_PIECE);
}

/* ---- sender ---- */

int dr_verbs_fill(struct dr_path *bp, uint32_t bytes)
{
	struct vb_path *p = vb_path(bp);
	struct vb_fill *f = &p->fill;
	int err = dr_verbs_may_post(p);

	if (!p->base.par.sender || bytes < 1 || bytes > DR_FILL_MAX)
		return -EINVAL;
	if (err)
		return err;
	if (f->queued + bytes - f->acked > VB_FILL_MAX)
		return -EAGAIN;
	f->queued += bytes;
	return 0;
}

static void post_one(struct vb_path *p)
{
	const struct vb_conn *c = p->conn;
	const struct ibv_mr *mr = vb_path_rail(p)->scratch.mr;
	struct vb_fill *f = &p->fill;
	bool lone = f->sent == f->done;
	uint32_t most = DR_MIN(c->peer.scratch_len, lone ? LONE : (uint32_t)VB_FILL_PIECE);
	uint32_t len = (uint32_t)DR_MIN(f->flushed - f->posted, (uint64_t)most);
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = len, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = (uint64_t)c->serial << 32 | VB_ID_PROBE |
						 vb_id(false, vb_fill_qp(p), VB_ID_FILL),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = c->peer.scratch, .rkey = c->peer.scratch_key } };

	f->posted += len;
	f->ring[f->sent++ % VB_FILLS] =
		(struct vb_filled){ .bytes = f->posted, .lone_ns = lone ? p->base.now_ns : 0 };
	p->base.st.fill_bytes += len;
	p->base.st.tx_wire += len;
	p->base.st.syscalls++;
	if (ibv_post_send(c->qp[vb_fill_qp(p)], &wr, &bad))
		dr_verbs_fail(p, DR_SCOPE_PATH, -EIO, "cannot post filler");
}

void dr_verbs_fill_push(struct vb_path *p)
{
	struct vb_fill *f = &p->fill;

	while (p->state == VB_UP && f->posted < f->flushed && f->sent - f->done < VB_FILLS)
		post_one(p);
}

static void tell(struct vb_path *p)
{
	struct vb_ctrl *c = &p->ctrl;
	bool all = c->flushed == c->end;
	uint8_t *at = (int32_t)(c->peer_granted - (uint32_t)c->sent) > VB_CTRL_DEPTH / 2
			      ? dr_verbs_ctrl_room(p)
			      : NULL;

	if (!at)
		return;
	c->end += dr_verbs_filled_encode(p->fill.acked, at);
	if (all)
		c->flushed = c->end;
}

void dr_verbs_filled(struct vb_path *p)
{
	struct vb_fill *f = &p->fill;
	const struct vb_filled *x = &f->ring[f->done++ % VB_FILLS];

	f->acked = p->base.st.fill_acked = x->bytes;
	p->ack_ns = p->base.now_ns;
	if (x->lone_ns != 0)
		p->base.st.fill_rtt_ns = DR_MAX(p->base.now_ns - x->lone_ns, 1);
	if (f->acked == f->queued && p->state == VB_UP)
		tell(p);
}

/* ---- receiver ---- */

void dr_verbs_fill_told(struct vb_path *p, uint64_t bytes)
{
	if (p->base.par.sender || bytes < p->base.st.fill_bytes || bytes > DR_VERBS_FILLED_MAX)
		dr_verbs_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer told of %llu bytes of filler after %llu",
			(unsigned long long)bytes, (unsigned long long)p->base.st.fill_bytes);
	else
		p->base.st.fill_bytes = bytes;
}
