/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes in: the peer writes into posted memory; each write uses up a receive and says by its
 * immediate value which part it was. Invariants:
 *  1. On each data queue pair posted >= promised: what the credits that left can use up is there, so
 *     that a write never finds no receive. Receives that were not used up count for the next credit.
 *  2. Every receive posted is counted back, by a completion good or bad. None is posted in the error
 *     state.
 *  3. DELIVERED is told for the head message only: the oldest that is not told in full.
 *  4. A part is told when its user can see it: of GPU memory, when it was flushed.
 *  5. What the immediate value claims is believed only as far as a posted part, on the queue pair that
 *     carries it, has room for it.
 */
#include "transport/verbs/path_priv.h"

#include <errno.h>
#include <string.h>

/* What a message takes on each data queue pair; false: more than there is room for now. */
static bool plan(const struct vb_path *p, const struct vb_recv *v, unsigned need[DR_VERBS_QPS])
{
	uint64_t sum[DR_VERBS_QPS] = { 0 };

	for (unsigned i = 0; i < v->n; i++)
		if (v->todo & 1u << i)
			sum[vb_qp_of(p, v->seq, i)] += v->part[i].pieces;
	for (unsigned i = 1; i < DR_VERBS_QPS; i++) {
		if (sum[i] + p->rx.promised[i] > vb_path_rail(p)->rq)
			return false;
		need[i] = (unsigned)sum[i];
	}
	return true;
}

static int check_parts(const struct dr_part *parts, unsigned n, uint32_t skip)
{
	for (unsigned i = 0; i < n; i++)
		if (!(skip & 1u << i) && (parts[i].off > parts[i].mr->len ||
						 parts[i].len > parts[i].mr->len - parts[i].off))
			return -EINVAL;
	return 0;
}

static struct vb_recv describe(const struct vb_path *p, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	struct vb_recv v = { .n = (uint8_t)n,
		.todo = (uint8_t)(((1u << n) - 1) & ~skip),
		.told = (uint8_t)skip,
		.epoch = epoch,
		.seq = seq };

	v.used = v.todo != 0;
	for (unsigned i = 0; i < n; i++) {
		v.part[i].cap = parts[i].len;
		if (!(skip & 1u << i) && parts[i].mr->flush) {
			v.part[i].flush = parts[i].mr;
			v.part[i].addr = (uintptr_t)(parts[i].mr->base + parts[i].off);
		}
		v.part[i].pieces = vb_pieces(p, parts[i].len);
	}
	return v;
}

static bool wants_flush(const struct vb_recv *v)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->part[i].flush)
			return true;
	return false;
}

/* The credit's bytes; lazily registered memory is registered here. */
static int announce(struct vb_path *p, const struct vb_recv *v, const struct dr_part *parts)
{
	struct dr_verbs_credit c = { .n = v->n, .skip = v->told, .epoch = v->epoch, .seq = v->seq };
	uint8_t *at = dr_path_queue_room(&p->ctrl.q, DR_VERBS_FRAME_MAX);
	struct dr_err e;

	if (!at)
		return -EAGAIN;
	for (unsigned i = 0; i < v->n; i++) {
		c.part[i].cap = parts[i].len;
		c.part[i].tag = parts[i].tag;
		if (!(v->todo & 1u << i))
			continue;
		int rc = dr_verbs_mr_need(parts[i].mr, &e);
		if (rc) {
			dr_verbs_fail(p, DR_SCOPE_LOCAL, rc, "%s", e.text);
			return 0;
		}
		c.part[i].addr = (uintptr_t)(parts[i].mr->base + parts[i].off);
		c.part[i].rkey = parts[i].mr->mr->rkey;
	}
	p->ctrl.q.end += dr_verbs_credit_encode(&c, at);
	return 0;
}

int dr_verbs_post_recv(struct dr_path *bp, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	struct vb_path *p = vb_path(bp);
	unsigned need[DR_VERBS_QPS] = { 0 }, slot = (unsigned)(seq % DR_PATH_RING);
	struct vb_rx *x = &p->rx;
	int err = dr_verbs_may_post(p);

	if (p->base.par.sender || n < 1 || n > DR_PARTS_MAX || skip >> n ||
		check_parts(parts, n, skip))
		return -EINVAL;
	if (err)
		return err;
	if (x->ring[slot].used || x->n == DR_PATH_RING)
		return -EAGAIN;
	struct vb_recv v = describe(p, epoch, seq, parts, n, skip);
	if (!plan(p, &v, need))
		return x->n > 0 ? -EAGAIN : -EMSGSIZE;
	err = wants_flush(&v) ? dr_verbs_flush_need(p) : 0;
	if (err)
		return err;
	err = announce(p, &v, parts);
	if (err)
		return err;
	for (unsigned i = 1; i < DR_VERBS_QPS; i++)
		x->promised[i] += need[i];
	x->ring[slot] = v;
	if (v.used)
		x->fifo[(x->head + x->n++) % DR_PATH_RING] = (uint8_t)slot;
	return 0;
}

void dr_verbs_rx_push(struct vb_path *p)
{
	struct vb_rx *x = &p->rx;

	for (unsigned i = 1; i < vb_data_end(p); i++) {
		if (x->posted[i] >= x->promised[i])
			continue;
		if (dr_verbs_post_data_recvs(p->conn, i, x->promised[i] - x->posted[i])) {
			p->uncounted = true;
			dr_verbs_fail(p, DR_SCOPE_LOCAL, -ENOMEM, "cannot post receives");
			return;
		}
		x->posted[i] = x->promised[i];
	}
}

/* The posted message that an immediate value names; NULL: none. */
static struct vb_recv *match(
	const struct vb_path *p, const struct dr_verbs_imm *imm, unsigned qp, uint32_t len)
{
	struct vb_recv *v = &p->rx.ring[imm->seq % DR_PATH_RING];

	if (!v->used || (uint16_t)v->seq != imm->seq || (uint8_t)v->epoch != imm->epoch ||
		imm->part >= v->n || !(v->todo & 1u << imm->part) ||
		vb_qp_of(p, v->seq, imm->part) != qp)
		return NULL;
	if (v->part[imm->part].got + len > v->part[imm->part].cap ||
		v->part[imm->part].used >= v->part[imm->part].pieces)
		return NULL;
	return v;
}

static void landed(struct vb_path *p, const struct vb_wc *wc)
{
	unsigned qp = vb_id_qp(wc->id);
	struct dr_verbs_imm imm;
	struct vb_recv *v = NULL;

	dr_path_heard(&p->base.path, p->base.now_ns);
	p->base.st.rx_wire += wc->byte_len;
	if (dr_verbs_imm_parse(wc->imm, &imm) == 0)
		v = match(p, &imm, qp, wc->byte_len);
	if (!v) {
		dr_verbs_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer wrote %u bytes (immediate 0x%08x) that no posted receive matches",
			wc->byte_len, wc->imm);
		return;
	}
	p->base.st.rx_bytes += wc->byte_len;
	v->part[imm.part].got += wc->byte_len;
	v->part[imm.part].used++;
	if (!imm.more) {
		v->todo &= (uint8_t) ~(1u << imm.part);
		v->order[v->n_whole++] = imm.part;
		if (v->part[imm.part].flush && v->part[imm.part].got > 0)
			dr_verbs_flush_queue(p, (unsigned)(v->seq % DR_PATH_RING));
		else if (v->n_clear + 1 == v->n_whole)
			v->n_clear++;
		p->rx.promised[qp] -= v->part[imm.part].pieces;
	}
	dr_path_tell_message(&p->base, DR_EV_ARRIVING, v->epoch, v->seq);
}

void dr_verbs_rx_clear(struct vb_recv *v, unsigned n)
{
	v->n_clear = (uint8_t)n;
	while (v->n_clear < v->n_whole) {
		unsigned part = v->order[v->n_clear];

		if (v->part[part].flush && v->part[part].got > 0)
			break;
		v->n_clear++;
	}
}

void dr_verbs_rx_wc(struct vb_path *p, const struct vb_wc *wc)
{
	unsigned qp = vb_id_qp(wc->id);

	if (qp == p->conn->flush) {
		dr_verbs_flush_wc(p, wc);
		return;
	}
	if (p->rx.posted[qp] > 0)
		p->rx.posted[qp]--;
	if (wc->status != IBV_WC_SUCCESS)
		dr_verbs_wc_failed(p, wc);
	else if (p->state == VB_UP || (p->state == VB_FENCING && !p->mute))
		landed(p, wc);
}

bool dr_verbs_rx_due(const struct vb_path *p)
{
	if (p->rx.n == 0 || p->mute)
		return false;
	const struct vb_recv *v = &p->rx.ring[p->rx.fifo[p->rx.head]];
	return v->n_told < v->n_clear;
}

void dr_verbs_rx_report(struct vb_path *p)
{
	struct vb_rx *x = &p->rx;
	unsigned left = VB_POLL;

	dr_verbs_flush_push(p);
	while (left-- > 0 && p->state != VB_CLOSED && dr_verbs_rx_due(p)) {
		struct vb_recv *v = &x->ring[x->fifo[x->head]];
		unsigned part = v->order[v->n_told++];

		v->told |= (uint8_t)(1u << part);
		if (v->todo == 0 && v->n_told == v->n_whole) {
			v->used = false;
			x->head = (x->head + 1) % DR_PATH_RING;
			x->n--;
		}
		dr_path_tell_part(&p->base, DR_EV_DELIVERED, v->epoch, v->seq, part,
			(uint32_t)v->part[part].got);
	}
}

bool dr_verbs_rx_idle(const struct vb_path *p)
{
	for (unsigned i = 1; i < DR_VERBS_QPS; i++)
		if (p->rx.posted[i] > 0)
			return false;
	return dr_verbs_flush_idle(p);
}
