/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes out: parts as RDMA writes, each with an immediate value that says which part it is.
 * Invariants:
 *  1. A part goes to the address, and under the key, of a credit of its epoch and seq, once.
 *  2. The last work request of each chain is signalled, so that every one posted is followed by a
 *     completion of its queue pair: a good one retires all before it, and in the error state each comes
 *     back by itself. wr_retired reaches wr_posted without a marker.
 *     One is also signalled per VB_SIGNAL bytes, so that progress on a slow port can be seen.
 *  3. SENT is told for work below the first error only.
 *  4. At most rail.sq work requests are out on a queue pair.
 */
#include "transport/verbs/path_priv.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

struct chain {
	struct ibv_send_wr wr[VB_CHAIN];
	struct ibv_sge sge[VB_CHAIN];
	unsigned n;
};

void dr_verbs_credited(struct vb_path *p, const struct dr_verbs_credit *c)
{
	struct dr_credit grant = { .n = c->n, .todo = ((1u << c->n) - 1) & ~(uint32_t)c->skip };

	if (c->epoch < p->base.credit_epoch)
		return;
	for (unsigned i = 0; i < c->n; i++) {
		grant.cap[i] = c->part[i].cap;
		grant.tag[i] = c->part[i].tag;
	}
	if (!dr_path_grant(&p->base, c->epoch, c->seq, c->skip, &grant)) {
		dr_verbs_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer granted message %llu twice, or more than %d ahead",
			(unsigned long long)c->seq, DR_PATH_RING);
		return;
	}
	memcpy(p->targets[c->seq % DR_PATH_RING], c->part, sizeof(c->part));
	dr_path_tell_message(&p->base, DR_EV_CREDIT, c->epoch, c->seq);
}

int dr_verbs_post_send(
	struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	struct vb_path *p = vb_path(bp);
	struct dr_path_credit *c;
	int err = dr_verbs_may_post(p);

	if (!p->base.par.sender || what->off > what->mr->len ||
		what->len > what->mr->len - what->off)
		return -EINVAL;
	if (!err)
		err = dr_path_claim(&p->base, epoch, seq, part, what->len, &c);
	if (err)
		return err;
	struct vb_sendq *l = &p->sendq[vb_qp_of(p, seq, part) - 1];
	if (l->queued - l->told == VB_SENDS)
		return -EAGAIN;
	const struct dr_verbs_target *to = &p->targets[seq % DR_PATH_RING][part];
	c->c.todo &= ~(1u << part);
	l->queue[l->queued++ % VB_SENDS] = (struct vb_send){ .epoch = epoch,
		.seq = seq,
		.part = part,
		.len = what->len,
		.mr = what->mr,
		.addr = (uintptr_t)(what->mr->base + what->off),
		.raddr = to->addr,
		.rkey = to->rkey };
	return 0;
}

static void post(struct vb_path *p, unsigned qp, struct chain *ch)
{
	struct ibv_send_wr *bad;

	if (ch->n == 0)
		return;
	ch->wr[ch->n - 1].send_flags |= IBV_SEND_SIGNALED;
	p->sendq[qp - 1].unsignalled = 0;
	ch->wr[ch->n - 1].next = NULL;
	p->base.st.syscalls++; /* but not tx_last_ns: see path.h */
	if (ibv_post_send(p->conn->qp[qp], ch->wr, &bad)) {
		p->uncounted = true;
		dr_verbs_fail(p, DR_SCOPE_PATH, -EIO, "cannot post data");
	}
	ch->n = 0;
}

/* The processor copies what is inline, and cannot follow a device pointer. */
static bool may_inline(const struct vb_conn *c, unsigned qp, const struct dr_mr *mr, uint32_t len)
{
	return len <= c->inline_max[qp] && mr->kind == DR_MEMORY_HOST;
}

/* The next piece of the part at the head of what is flushed. */
static void add_piece(struct vb_path *p, unsigned qp, struct vb_sendq *l, struct chain *ch)
{
	struct vb_send *s = &l->queue[l->posted % VB_SENDS];
	uint32_t len = DR_MIN(s->len - s->off, p->msg_max);
	bool more = s->off + len < s->len;
	unsigned i = ch->n++;

	ch->sge[i] = (struct ibv_sge){
		.addr = s->addr + s->off, .length = len, .lkey = s->mr->mr->lkey
	};
	ch->wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)p->conn->serial << 32 |
						   vb_id(false, qp, l->wr_posted),
		.next = i + 1 < VB_CHAIN ? &ch->wr[i + 1] : NULL,
		.sg_list = &ch->sge[i],
		.num_sge = len > 0,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = may_inline(p->conn, qp, s->mr, len) ? IBV_SEND_INLINE : 0,
		.imm_data = htobe32(dr_verbs_imm_encode(s->epoch, s->seq, s->part, more)),
		.wr.rdma = { .remote_addr = s->raddr + s->off, .rkey = s->rkey } };
	s->off += len;
	l->bytes += len;
	l->wr_bytes[l->wr_posted++ % VB_SQ] = l->bytes;
	l->unsignalled += len;
	if (l->unsignalled >= VB_SIGNAL) {
		ch->wr[i].send_flags |= IBV_SEND_SIGNALED;
		l->unsignalled = 0;
	}
	p->posted_bytes += len;
	p->base.st.tx_bytes += len;
	p->base.st.tx_wire += len;
	if (!more) {
		s->wr_end = l->wr_posted;
		l->posted++;
	}
	if (ch->n == VB_CHAIN)
		post(p, qp, ch);
}

static void push_sendq(struct vb_path *p, unsigned qp)
{
	struct vb_sendq *l = &p->sendq[qp - 1];
	struct chain ch;
	struct dr_err e;

	ch.n = 0;
	while (p->state == VB_UP && l->posted < l->flushed &&
		l->wr_posted - l->wr_retired < vb_path_rail(p)->sq) {
		int rc = dr_verbs_mr_need(l->queue[l->posted % VB_SENDS].mr, &e);
		if (rc) {
			dr_verbs_fail(p, DR_SCOPE_LOCAL, rc, "%s", e.text);
			break;
		}
		add_piece(p, qp, l, &ch);
	}
	post(p, qp, &ch);
}

void dr_verbs_tx_push(struct vb_path *p)
{
	for (unsigned qp = 1; p->sendq && qp < vb_data_end(p); qp++)
		push_sendq(p, qp);
}

static void acknowledged(struct vb_path *p, struct vb_sendq *l, uint64_t bytes)
{
	p->acked_bytes += bytes - l->acked;
	p->acked_data += bytes - l->acked;
	l->acked = bytes;
}

void dr_verbs_tx_wc(struct vb_path *p, const struct vb_wc *wc)
{
	struct vb_sendq *l = &p->sendq[vb_id_qp(wc->id) - 1];
	uint64_t at = vb_id_count(wc->id, l->wr_retired);

	if (!l->broken)
		l->wr_done = wc->status == IBV_WC_SUCCESS ? at + 1 : at;
	l->wr_retired = at + 1;
	if (wc->status == IBV_WC_SUCCESS) {
		p->ack_ns = p->base.now_ns;
		acknowledged(p, l, l->wr_bytes[at % VB_SQ]);
	} else {
		l->broken = true;
		dr_verbs_wc_failed(p, wc);
	}
}

void dr_verbs_tx_report(struct vb_path *p)
{
	for (unsigned i = 0; p->sendq && i < vb_path_rail(p)->vp.qps; i++) {
		struct vb_sendq *l = &p->sendq[i];

		while (!p->mute && p->state != VB_CLOSED && l->told < l->posted) {
			const struct vb_send *s = &l->queue[l->told % VB_SENDS];

			if (s->wr_end > l->wr_done)
				break;
			l->told++;
			dr_path_tell_part(&p->base, DR_EV_SENT, s->epoch, s->seq, s->part, 0);
		}
	}
}

bool dr_verbs_tx_idle(const struct vb_path *p)
{
	for (unsigned i = 0; p->sendq && i < vb_path_rail(p)->vp.qps; i++)
		if (p->sendq[i].wr_retired != p->sendq[i].wr_posted)
			return false;
	return true;
}
