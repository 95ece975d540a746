/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion queues belong to the rail, so that one poll serves several paths. Invariants:
 *  1. A queue is never destroyed before its rail; connections come and go on it. A connection takes
 *     conn_cqes of its room until it is destroyed, so a queue cannot overflow.
 *  2. A completion is handed to the path whose connection its wr_id names. The name holds a generation:
 *     what an earlier connection left behind in the queue is counted and dropped.
 *  3. A path's own rings hold one entry for each work request that it can have posted: no completion
 *     waits in the queue for a path that is not driven.
 *  4. armed means that the next completion makes the channel's file descriptor readable. It is cleared
 *     only by taking the event, so that a queue is armed once per event.
 */
#include "transport/verbs/path_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <endian.h>
#include <errno.h>

enum { ACK_BATCH = 64 };

struct vb_cq *dr_verbs_cq_take(struct vb_rail *r)
{
	struct vb_cq *cq;

	for (cq = r->cqs; cq; cq = cq->next)
		if (cq->conns < r->cq_conns)
			break;
	if (!cq) {
		cq = dr_calloc(1, sizeof(*cq));
		if (!cq)
			return NULL;
		cq->next = r->cqs;
		r->cqs = cq;
	}
	cq->conns++;
	return cq;
}

int dr_verbs_cq_make(struct vb_rail *r, struct vb_cq *cq, unsigned cqes, struct dr_err *e)
{
	if (cq->cq)
		return 0;
	errno = 0;
	cq->cq = r->ibv->create_cq(r->dev.ctx, (int)cqes, cq, r->channel, 0);
	return dr_verbs_made(&r->dev, cq->cq, "create a completion queue", e);
}

static void destroy(struct vb_rail *r, struct vb_cq *cq)
{
	if (!cq->cq)
		return;
	if (cq->unacked)
		r->ibv->ack_cq_events(cq->cq, cq->unacked);
	int rc = dr_verbs_neg(r->ibv->destroy_cq(cq->cq));
	if (rc) /* only the driver's own memory is in it */
		dr_warn("verbs", "rail %u: cannot destroy a completion queue: %s", r->base.index,
			dr_errno_name(rc));
	cq->cq = NULL;
}

void dr_verbs_cq_fini(struct vb_rail *r)
{
	struct vb_cq *cq;

	while ((cq = r->cqs)) {
		r->cqs = cq->next;
		destroy(r, cq);
		dr_free(cq);
	}
	destroy(r, &r->ud.cq);
}

/* The path that this completion is for; NULL: gone. */
static struct vb_path *owner_of(const struct vb_rail *r, const struct ibv_wc *wc)
{
	uint32_t serial = (uint32_t)(wc->wr_id >> 32), slot = serial & 0xffff;
	unsigned qp = vb_id_qp((uint32_t)wc->wr_id);

	if (slot >= r->n_slots || !r->slots[slot].conn)
		return NULL;
	const struct vb_conn *c = r->slots[slot].conn;
	if (c->serial != serial || qp >= c->n || c->qpn[qp] != wc->qp_num)
		return NULL;
	return c->path;
}

static void queue(struct vb_wcs *q, const struct ibv_wc *wc)
{
	dr_assert(q->tail - q->head <= q->mask);
	q->ring[q->tail++ & q->mask] = (struct vb_wc){ .status = wc->status,
		.vendor_err = wc->vendor_err,
		.byte_len = wc->byte_len,
		.imm = wc->status == IBV_WC_SUCCESS && wc->wc_flags & IBV_WC_WITH_IMM
			       ? be32toh(wc->imm_data)
			       : 0xf, /* no immediate of ours */
		.id = (uint32_t)wc->wr_id };
}

static bool is_control(uint32_t id)
{
	return vb_id_qp(id) == 0 || (!(id & VB_ID_RECV) && (id & VB_ID_PROBE));
}

/* To be driven by run_ready: only where a poller drives. Completions of a path come until it is
 * stopped. */
static void make_ready(struct vb_rail *r, struct vb_path *p)
{
	if (p->is_ready || !r->par.poller || p->base.sink || p->state == VB_CLOSED)
		return;
	p->is_ready = true;
	p->ready_next = r->ready;
	r->ready = p;
}

int dr_verbs_cq_poll(struct vb_rail *r, struct vb_cq *cq)
{
	struct ibv_wc wc[VB_POLL];

	if (!cq->live)
		return 0;
	int n = ibv_poll_cq(cq->cq, VB_POLL, wc);
	if (n < 0) {
		dr_verbs_nic_broke(r, "a completion queue cannot be polled");
		return 0;
	}
	for (int i = 0; i < n; i++) {
		struct vb_path *p = owner_of(r, &wc[i]);
		if (!p) {
			r->strays++;
			continue;
		}
		queue(is_control((uint32_t)wc[i].wr_id) ? &p->ctrl_wcs : &p->data_wcs, &wc[i]);
		make_ready(r, p);
	}
	return n;
}

/* A turn for each path at most: a path that polls makes others ready, so this might not end. Who has
 * work left in its rings asks for more by a kick. Returns the number of turns. */
int dr_verbs_run_ready(struct vb_rail *r, int64_t now_ns)
{
	unsigned left = r->n_paths;
	struct vb_path *p;
	int turns = 0;

	while (left-- > 0 && (p = r->ready)) {
		r->ready = p->ready_next;
		p->is_ready = false;
		turns++;
		if (p->base.par.ready)
			p->base.par.ready(p->base.par.arg, now_ns);
	}
	return turns;
}

int dr_verbs_look(struct dr_watch *w, int64_t now_ns)
{
	struct vb_rail *r = dr_container_of(w, struct vb_rail, watch);
	int found = 0;

	if (r->closed || r->dead)
		return 0;
	for (struct vb_cq *cq = r->cqs; cq; cq = cq->next)
		found += dr_verbs_cq_poll(r, cq);
	found += dr_verbs_run_ready(r, now_ns);
	int n = r->closed ? 0 : dr_verbs_ud_poll(r);
	if ((n > 0 || r->err_due || r->nic.broke) && r->par.ready)
		r->par.ready(r->par.arg, now_ns);
	return found + n;
}

static bool arm(struct vb_rail *r, struct vb_cq *cq)
{
	if (cq->armed || !cq->live)
		return false;
	r->syscalls++;
	cq->armed = true;
	if (ibv_req_notify_cq(cq->cq, 0))
		dr_verbs_nic_broke(r, "a completion queue cannot be armed");
	return true;
}

/* What came before a queue was armed makes no event, so it is looked at once more. */
bool dr_verbs_arm(struct dr_watch *w, int64_t now_ns)
{
	struct vb_rail *r = dr_container_of(w, struct vb_rail, watch);
	bool armed = false;

	if (r->closed || r->dead)
		return false;
	for (struct vb_cq *cq = r->cqs; cq; cq = cq->next)
		armed |= arm(r, cq);
	armed |= arm(r, &r->ud.cq);
	return armed && dr_verbs_look(w, now_ns) > 0;
}

void dr_verbs_cq_events(struct vb_rail *r)
{
	struct ibv_cq *ibcq;
	void *ctx;

	for (;;) {
		r->syscalls++;
		if (r->ibv->get_cq_event(r->channel, &ibcq, &ctx))
			return; /* non-blocking: that was all */
		struct vb_cq *cq = ctx;
		cq->armed = false;
		if (++cq->unacked >= ACK_BATCH) {
			r->ibv->ack_cq_events(cq->cq, cq->unacked);
			cq->unacked = 0;
		}
	}
}
