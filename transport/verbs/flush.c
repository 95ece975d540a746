/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory at the receiver. A completion says that the NIC sent its writes off; on their way to the GPU
 * they may still stand in a queue of the PCIe fabric when the processor, by another way, starts work on
 * the GPU that reads them. A read of that memory by the same NIC comes back after them, since on PCIe the
 * answer to a read pushes writes of its way ahead of it. So each part is read at its last byte, over a
 * queue pair that leads to itself (as NCCL's network plugin does it), before it is told. Invariants:
 *
 *  1. done <= posted <= queued; posted - done <= VB_FLUSH. One queue pair does them in order.
 *  2. What is queued names a part that is whole; it keeps its message's slot in use until it was told.
 *  3. None is posted in the error state. Posted ones are counted back by the fence, as all work is, and
 *     its queue pair is destroyed with those of the data.
 *  4. A part whose flush did not complete well is never told: the sender sends it again.
 */
#include "transport/verbs/path_priv.h"

#include "base/mem.h"

#include <errno.h>

enum { RING = DR_PATH_RING * DR_PARTS_MAX };

struct vb_flush {
	struct {
		uint8_t slot, upto; /* then so many parts of the message there can be seen */
		uint64_t addr;
		uint32_t rkey;
	} ring[RING];
	uint64_t done, posted, queued;
};

/* ---- its queue pair, made by the helper ---- */

static void more_run(struct vb_job *j)
{
	struct vb_conn *c = dr_container_of(j, struct vb_conn, more);
	const struct ibv_qp_cap cap = {
		.max_send_wr = VB_FLUSH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1
	};
	struct vb_target self = { .rq_psn = c->psn, .sq_psn = c->psn, .mtu = c->dev.mtu };
	unsigned i = c->n;

	self.lid = c->dev.lid;
	self.gid = c->dev.gid.raw;
	c->rc = c->dev.roce ? DR_MIN(dr_verbs_dev_gid(&c->dev), 0) : 0;
	if (c->rc)
		dr_err_set(&c->err, c->rc, "the rail's address is no longer on %s: %s", c->dev.name,
			dr_errno_name(c->rc));
	if (c->rc == 0)
		c->rc = dr_verbs_qp_make(c, i, cap, IBV_ACCESS_REMOTE_READ);
	self.qpn = c->qpn[i];
	if (c->rc == 0)
		c->rc = dr_verbs_qp_lead(c, i, &self);
}

static void more_done(struct vb_job *j)
{
	struct vb_conn *c = dr_container_of(j, struct vb_conn, more);
	struct vb_path *p = c->path;

	c->flush_asked = false;
	if (!p)
		return;
	if (c->rc) { /* it leads to itself: nothing of the peer or of the way to it takes part */
		dr_verbs_fail(p, DR_SCOPE_LOCAL, c->rc, "no queue pair to flush GPU memory: %s",
			c->err.text);
		return;
	}
	c->flush = c->n++;
	dr_path_wake(&p->base);
}

int dr_verbs_flush_need(struct vb_path *p)
{
	struct vb_conn *c = p->conn;

	if (!p->rx.flush)
		p->rx.flush = dr_calloc(1, sizeof(*p->rx.flush));
	if (!p->rx.flush)
		return -ENOMEM;
	if (c->flush > 0)
		return 0;
	if (!c->flush_asked) {
		c->flush_asked = true;
		c->dev = c->rail->dev;
		c->more = (struct vb_job){ .run = more_run, .done = more_done };
		dr_verbs_helper_submit(&c->rail->helper, &c->more, 0);
	}
	return -EAGAIN;
}

/* ---- flushes ---- */

void dr_verbs_flush_queue(struct vb_path *p, unsigned slot)
{
	const struct vb_recv *v = &p->rx.ring[slot];
	unsigned part = v->order[v->n_whole - 1];
	struct vb_flush *f = p->rx.flush;
	unsigned at = (unsigned)(f->queued % RING);

	dr_assert(f->queued - f->done < RING);
	f->ring[at].slot = (uint8_t)slot;
	f->ring[at].upto = v->n_whole;
	f->ring[at].addr = v->part[part].addr + v->part[part].got - 1;
	f->ring[at].rkey = v->part[part].flush->mr->rkey;
	f->queued++;
}

static int post(struct vb_path *p, const struct vb_flush *f)
{
	const struct vb_conn *c = p->conn;
	unsigned at = (unsigned)(f->posted % RING);
	struct ibv_sge sge = { .addr = (uintptr_t)(c->slab + 2 * VB_CTRL_DEPTH * VB_CTRL_MSG),
		.length = 1,
		.lkey = c->slab_mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .wr_id = (uint64_t)c->serial << 32 | vb_id(false, c->flush, f->posted),
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = f->ring[at].addr, .rkey = f->ring[at].rkey } };

	p->base.st.syscalls++;
	return ibv_post_send(c->qp[c->flush], &wr, &bad);
}

void dr_verbs_flush_push(struct vb_path *p)
{
	struct vb_flush *f = p->rx.flush;

	while (f && p->state == VB_UP && f->posted < f->queued && f->posted - f->done < VB_FLUSH) {
		if (post(p, f)) { /* one work request: nothing of it was taken */
			dr_verbs_fail(p, DR_SCOPE_PATH, -EIO, "cannot post a flush of GPU memory");
			return;
		}
		f->posted++;
	}
}

void dr_verbs_flush_wc(struct vb_path *p, const struct vb_wc *wc)
{
	struct vb_flush *f = p->rx.flush;
	unsigned at = (unsigned)(f->done % RING);

	f->done++;
	if (wc->status != IBV_WC_SUCCESS)
		dr_verbs_wc_failed(p, wc);
	else if (p->state == VB_UP || (p->state == VB_FENCING && !p->mute))
		dr_verbs_rx_clear(&p->rx.ring[f->ring[at].slot], f->ring[at].upto);
}

bool dr_verbs_flush_idle(const struct vb_path *p)
{
	return !p->rx.flush || p->rx.flush->done == p->rx.flush->posted;
}
