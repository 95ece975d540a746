/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/* Completion channels and queues. An armed queue makes one event, for a completion that comes later. */

bool dr_fake_keep_cqes;

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	int err = dr_fake_enter(DR_FAKE_CALL_create_comp_channel);
	struct dr_fake_channel *ch = calloc(1, sizeof(*ch));

	if (!err && !ch)
		err = ENOMEM;
	if (!err)
		err = dr_fake_queue_init(&ch->events);
	if (err) {
		free(ch);
		errno = err;
		return NULL;
	}
	ch->ibv.context = c;
	ch->ibv.fd = ch->events.fd;
	dr_fake_lock();
	dr_fake_set_add(&dr_fake_channels, ch);
	dr_fake_unlock();
	return &ch->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	int err = dr_fake_enter(DR_FAKE_CALL_destroy_comp_channel);
	struct dr_fake_channel *ch = dr_container_of(ibv, struct dr_fake_channel, ibv);

	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_channels, ch)) {
		dr_fake_violation("destroy_comp_channel of no channel");
		err = EINVAL;
	} else if (!err && ibv->refcnt > 0) {
		err = EBUSY;
	} else if (!err) {
		dr_fake_set_del(&dr_fake_channels, ch);
		dr_fake_queue_fini(&ch->events);
		free(ch);
	}
	dr_fake_unlock();
	return err;
}

struct ibv_cq *ibv_create_cq(
	struct ibv_context *c, int cqe, void *ctx, struct ibv_comp_channel *ch, int vector)
{
	int err = dr_fake_enter(DR_FAKE_CALL_create_cq);
	struct dr_fake_cq *cq = calloc(1, sizeof(*cq));

	dr_fake_lock();
	if (!err && dr_fake_dev_of(c)->fatal)
		err = EIO;
	if (!err && (cqe < 1 || cqe > DR_FAKE_CQE_MAX || vector != 0))
		err = EINVAL;
	if (!err && cq)
		cq->ring = calloc((size_t)cqe, sizeof(cq->ring[0]));
	if (!err && (!cq || !cq->ring))
		err = ENOMEM;
	if (!err) {
		cq->ibv.context = c;
		cq->ibv.channel = ch;
		cq->ibv.cq_context = ctx;
		cq->ibv.cqe = cqe;
		if (ch)
			ch->refcnt++;
		dr_fake_set_add(&dr_fake_cqs, cq);
	}
	dr_fake_unlock();
	if (!err)
		return &cq->ibv;
	free(cq);
	errno = err;
	return NULL;
}

static bool cq_in_use(const struct ibv_cq *cq)
{
	for (unsigned i = 0; i < dr_fake_qps.n; i++) {
		const struct dr_fake_qp *qp = dr_fake_qps.p[i];

		if (qp->ibv.send_cq == cq || qp->ibv.recv_cq == cq)
			return true;
	}
	return false;
}

/* The real library blocks until all events are acknowledged. */
int ibv_destroy_cq(struct ibv_cq *ibv)
{
	int err = dr_fake_enter(DR_FAKE_CALL_destroy_cq);
	struct dr_fake_cq *cq = dr_container_of(ibv, struct dr_fake_cq, ibv);

	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_cqs, cq)) {
		dr_fake_violation("destroy_cq of no completion queue");
		err = EINVAL;
	} else if (!err && cq_in_use(ibv)) {
		err = EBUSY;
	} else if (!err && cq->got != ibv->comp_events_completed) {
		dr_fake_violation("destroy_cq: %u events got, %u acknowledged", cq->got,
			ibv->comp_events_completed);
		err = EBUSY;
	} else if (!err) {
		if (ibv->channel) {
			dr_fake_queue_drop(
				&dr_container_of(ibv->channel, struct dr_fake_channel, ibv)->events,
				cq);
			ibv->channel->refcnt--;
		}
		dr_fake_queue_drop(
			&dr_container_of(ibv->context, struct dr_fake_ctx, ibv)->events, ibv);
		dr_fake_set_del(&dr_fake_cqs, cq);
		free(cq->ring);
		free(cq);
	}
	dr_fake_unlock();
	return err;
}

int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **ctx)
{
	int err = dr_fake_enter(DR_FAKE_CALL_get_cq_event);
	struct dr_fake_channel *ch = dr_container_of(ibv, struct dr_fake_channel, ibv);
	struct dr_fake_item item;
	struct dr_fake_cq *from;

	if (!err)
		err = dr_fake_queue_get(&ch->events, &item);
	if (err) {
		errno = err;
		return -1;
	}
	from = item.about;
	from->got++;
	*cq = &from->ibv;
	*ctx = from->ibv.cq_context;
	dr_fake_unlock();
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned n)
{
	const struct dr_fake_cq *cq = dr_container_of(ibv, struct dr_fake_cq, ibv);

	(void)dr_fake_enter(DR_FAKE_CALL_ack_cq_events);
	dr_fake_lock();
	ibv->comp_events_completed += n;
	if (ibv->comp_events_completed > cq->got)
		dr_fake_violation("%u events of a CQ acknowledged, %u got",
			ibv->comp_events_completed, cq->got);
	dr_fake_unlock();
}

int dr_fake_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	int err = dr_fake_enter(DR_FAKE_CALL_req_notify_cq);
	struct dr_fake_cq *cq = dr_container_of(ibv, struct dr_fake_cq, ibv);

	if (err)
		return err;
	dr_fake_lock();
	if (!ibv->channel)
		dr_fake_violation("req_notify_cq of a CQ without a channel");
	/* Armed for everything stays so when it is armed for solicited ones as well. */
	cq->armed_solicited = solicited_only && (!cq->armed || cq->armed_solicited);
	cq->armed = true;
	dr_fake_unlock();
	return 0;
}

void dr_fake_cq_break(struct dr_fake_cq *cq)
{
	cq->overrun = true;
	dr_fake_emit(dr_fake_dev_of(cq->ibv.context), IBV_EVENT_CQ_ERR, &cq->ibv);
}

void dr_fake_cq_push(struct dr_fake_cq *cq, const struct dr_fake_cqe *e, bool solicited)
{
	unsigned cap = (unsigned)cq->ibv.cqe;
	struct dr_fake_item item = { .about = cq };

	if (cq->overrun)
		return;
	if (cq->n == cap) {
		dr_fake_violation("a CQ of %u overran", cap);
		dr_fake_cq_break(cq);
		return;
	}
	cq->ring[(cq->head + cq->n++) % cap] = *e;
	if (!cq->armed || !cq->ibv.channel ||
		(cq->armed_solicited && !solicited && e->wc.status == IBV_WC_SUCCESS))
		return;
	cq->armed = cq->armed_solicited = false;
	dr_fake_queue_put(
		&dr_container_of(cq->ibv.channel, struct dr_fake_channel, ibv)->events, &item);
}

void dr_fake_cq_forget(struct dr_fake_cq *cq, const struct dr_fake_qp *qp)
{
	unsigned cap = (unsigned)cq->ibv.cqe, kept = 0;

	for (unsigned i = 0; i < cq->n; i++) {
		struct dr_fake_cqe *e = &cq->ring[(cq->head + i) % cap];
		bool mine = e->qp == qp;

		if (mine)
			e->qp = NULL;
		if (!mine || dr_fake_keep_cqes)
			cq->ring[(cq->head + kept++) % cap] = *e;
	}
	cq->n = kept;
}

int dr_fake_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	int err = dr_fake_enter(DR_FAKE_CALL_poll_cq), got;
	struct dr_fake_cq *cq = dr_container_of(ibv, struct dr_fake_cq, ibv);

	if (err)
		return -err;
	dr_fake_lock();
	for (got = 0; got < n && cq->n > 0; got++) {
		const struct dr_fake_cqe *e = &cq->ring[cq->head];

		wc[got] = e->wc;
		if (e->qp && e->recv)
			e->qp->rq_used -= e->release;
		else if (e->qp)
			e->qp->sq_used -= e->release;
		cq->head = (cq->head + 1) % (unsigned)ibv->cqe;
		cq->n--;
	}
	if (got == 0 && cq->overrun)
		got = -1;
	dr_fake_unlock();
	return got;
}
