/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/*
 * The heads of the send queues are tried, in order within a queue, whenever something may have
 * changed: work posted, a fault made or healed, time passed. A try that gets no answer starts the
 * queue pair's patience, (retry_cnt + 1) * 4.096 us * 2^timeout (IBA 9.7.6.1.3), a receiver without a
 * receive that of rnr_retry times the receiver's timer; the error comes when it ends.
 */

unsigned dr_fake_routes[2];

static struct dr_fake_dev *find_gid(const union ibv_gid *gid, uint32_t type)
{
	for (unsigned i = 0; i < dr_fake_n_devs; i++)
		for (unsigned j = 0; j < DR_FAKE_GIDS; j++) {
			const struct dr_fake_gid *g = &dr_fake_dev[i].gid[j];

			if (g->used && g->type == type && memcmp(&g->gid, gid, sizeof(*gid)) == 0)
				return &dr_fake_dev[i];
		}
	return NULL;
}

/* One subnet; its switches look at LIDs alone. */
static struct dr_fake_dev *find_lid(uint16_t lid)
{
	for (unsigned i = 0; i < dr_fake_n_devs; i++)
		if (dr_fake_dev[i].ib && dr_fake_dev[i].lid == lid)
			return &dr_fake_dev[i];
	return NULL;
}

struct dr_fake_dev *dr_fake_route(const struct dr_fake_dev *d, const struct ibv_ah_attr *ah)
{
	return d->ib ? find_lid(ah->dlid)
		     : find_gid(&ah->grh.dgid, d->gid[ah->grh.sgid_index].type);
}

bool dr_fake_source_ok(
	const struct dr_fake_dev *d, const struct ibv_ah_attr *ah, const union ibv_gid *sgid)
{
	const struct dr_fake_gid *g = &d->gid[ah->grh.sgid_index];

	return !ah->is_global || (g->used && memcmp(&g->gid, sgid, sizeof(*sgid)) == 0);
}

bool dr_fake_route_ok(struct dr_fake_dev *d, const struct ibv_ah_attr *ah)
{
	if (ah->port_num != 1 || ah->sl > 15 || (d->ib ? ah->dlid == 0 : !ah->is_global) ||
		(d->grh_required && !ah->is_global))
		return false;
	if (ah->is_global &&
		(ah->grh.sgid_index >= DR_FAKE_GIDS || !d->gid[ah->grh.sgid_index].used))
		return false;
	dr_fake_routes[ah->is_global]++;
	return true;
}

struct dr_fake_qp *dr_fake_find_qp(const struct dr_fake_dev *d, uint32_t qpn)
{
	for (unsigned i = 0; i < dr_fake_qps.n; i++) {
		struct dr_fake_qp *qp = dr_fake_qps.p[i];

		if (qp->ibv.qp_num == qpn && (!d || qp->dev == d))
			return qp;
	}
	return NULL;
}

int64_t dr_fake_patience_ns(const struct dr_fake_qp *qp)
{
	if (qp->attr.timeout == 0 || (qp->attr.retry_cnt == 7 && qp->dev->retry7_for_ever))
		return DR_NEVER;
	return (int64_t)(qp->attr.retry_cnt + 1) * (4096LL << qp->attr.timeout);
}

/* IBA table 45, in units of 10 us. */
static int64_t rnr_timer_ns(const struct dr_fake_qp *qp)
{
	static const int units[32] = { 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128,
		192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
		24576, 32768, 49152 };
	struct dr_fake_dev *d = dr_fake_route(qp->dev, &qp->attr.ah_attr);
	const struct dr_fake_qp *peer = d ? dr_fake_find_qp(d, qp->attr.dest_qp_num) : NULL;

	return units[peer ? peer->attr.min_rnr_timer : 0] * 10000LL;
}

/* Whether patience has ended; it begins with the first call. */
static bool ended(int64_t *until_ns, int64_t span_ns, int64_t now_ns)
{
	if (*until_ns == 0)
		*until_ns = span_ns == DR_NEVER ? DR_NEVER : now_ns + span_ns;
	return now_ns >= *until_ns;
}

static void fail(struct dr_fake_qp *qp, enum ibv_wc_status s)
{
	dr_fake_done_send(qp, s);
	dr_fake_qp_err(qp);
}

static void move_at(struct dr_fake_qp *qp, int64_t now_ns)
{
	while (qp->state == IBV_QPS_RTS && qp->sq_head != qp->sq_tail) {
		struct dr_fake_swqe *w = &qp->sq[qp->sq_head % qp->cap.max_send_wr];
		int r;

		if (w->ready_ns > now_ns)
			break;
		w->ready_ns = 0;
		r = qp->ibv.qp_type == IBV_QPT_RC ? dr_fake_try_rc(qp, w) : dr_fake_try_ud(qp, w);
		if (r == DR_FAKE_DONE) {
			dr_fake_done_send(qp, IBV_WC_SUCCESS);
			continue;
		}
		if (r == DR_FAKE_LOST && ended(&qp->retry_ns, dr_fake_patience_ns(qp), now_ns))
			r = IBV_WC_RETRY_EXC_ERR;
		if (r == DR_FAKE_RNR &&
			ended(&qp->rnr_ns,
				qp->attr.rnr_retry == 7 ? DR_NEVER
							: qp->attr.rnr_retry * rnr_timer_ns(qp),
				now_ns))
			r = IBV_WC_RNR_RETRY_EXC_ERR;
		if (r == DR_FAKE_IDLE)
			qp->retry_ns = qp->rnr_ns = 0;
		if (r < 0)
			break;
		fail(qp, (enum ibv_wc_status)r);
	}
}

void dr_fake_move(struct dr_fake_qp *qp)
{
	if (qp->sq_head == qp->sq_tail)
		return;
	move_at(qp, dr_fake_now_ns());
	if (qp->sq_head != qp->sq_tail)
		dr_fake_timer_kick();
}

void dr_fake_move_due(int64_t now_ns)
{
	for (unsigned i = 0; i < dr_fake_qps.n; i++)
		move_at(dr_fake_qps.p[i], now_ns);
}

void dr_fake_move_all(void)
{
	for (unsigned i = 0; i < dr_fake_qps.n; i++)
		dr_fake_move(dr_fake_qps.p[i]);
}

int64_t dr_fake_next_ns(void)
{
	int64_t next = DR_NEVER;

	for (unsigned i = 0; i < dr_fake_qps.n; i++) {
		const struct dr_fake_qp *qp = dr_fake_qps.p[i];
		const struct dr_fake_swqe *w;

		if (qp->state != IBV_QPS_RTS || qp->sq_head == qp->sq_tail)
			continue;
		w = &qp->sq[qp->sq_head % qp->cap.max_send_wr];
		if (qp->retry_ns)
			next = DR_MIN(next, qp->retry_ns);
		if (qp->rnr_ns)
			next = DR_MIN(next, qp->rnr_ns);
		if (!qp->retry_ns && !qp->rnr_ns && w->ready_ns > 0)
			next = DR_MIN(next, w->ready_ns);
	}
	return next;
}
