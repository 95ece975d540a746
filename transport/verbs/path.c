/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a path: see enum vb_state; up.c brings it up. Invariants:
 *  1. Events leave from progress alone, in this order: what the completions say, SENT, FAILED, FENCED.
 *  2. Every call of the sink may change the state, and take the connection away; code that goes on
 *     after one looks at the state again.
 *  3. Buffers are posted in UP only. They are the NIC's until FENCED, also after FAILED.
 *  4. A remembered failure is told by the next progress; with a poller, a kick brings that about.
 */
#include "transport/verbs/path_priv.h"

#include "base/list.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum { EVENTS_MAX = 64 }; /* of one progress, roughly: a message is not interrupted */

void dr_verbs_set_state(struct vb_path *p, enum vb_state s)
{
	p->state = s;
	if (s > VB_UP)
		dr_verbs_hs_end(&p->hs);
	dr_verbs_update_ticks(p);
}

void dr_verbs_update_ticks(struct vb_path *p)
{
	struct vb_rail *r = vb_path_rail(p);
	bool ticks = dr_verbs_hs_deadline(&p->hs) != DR_NEVER || p->state == VB_FENCING;

	if (ticks == p->ticks)
		return;
	p->ticks = ticks;
	r->ticking += ticks ? 1 : -1u;
	dr_verbs_tick_update(r);
}

void dr_verbs_fail(struct vb_path *p, enum dr_scope scope, int err, const char *fmt, ...)
{
	va_list ap;

	if (p->state >= VB_FAILING)
		return;
	va_start(ap, fmt);
	dr_path_keep_failure(&p->base, scope, err, fmt, ap);
	va_end(ap);
	dr_verbs_set_state(p, VB_FAILING);
	dr_path_wake(&p->base);
}

int dr_verbs_may_post(const struct vb_path *p)
{
	return p->state == VB_UP ? 0 : p->state == VB_FAILING ? -EAGAIN : -ENOTCONN;
}

/* ---- made ------------------------------------------------------------------------------------- */

static int wcs_init(struct vb_wcs *q, unsigned n)
{
	unsigned size = 1;

	while (size < n)
		size *= 2;
	q->ring = dr_calloc(size, sizeof(*q->ring));
	q->mask = size - 1;
	return q->ring ? 0 : -ENOMEM;
}

static void path_free(struct vb_path *p)
{
	dr_free(p->ctrl_wcs.ring);
	dr_free(p->data_wcs.ring);
	dr_free(p->ctrl.q.buf);
	dr_free(p->sendq);
	dr_free(p->targets);
	dr_free(p->base.credits);
	dr_free(p->rx.ring);
	dr_free(p->rx.flush);
	dr_free(p);
}

static int path_alloc(struct vb_path *p)
{
	struct vb_rail *r = vb_path_rail(p);
	int rc = wcs_init(
		&p->ctrl_wcs, VB_CTRL_DEPTH + VB_CTRL_SENDS + DR_VERBS_PROBE_QPS * VB_PROBES);

	rc = rc ? rc
		: wcs_init(&p->data_wcs,
			  p->base.par.sender ? r->vp.qps * r->sq : r->vp.qps * r->rq + VB_FLUSH);
	p->ctrl.q.buf = dr_calloc(1, DR_PATH_QUEUE);
	if (p->base.par.sender) {
		p->sendq = dr_calloc(r->vp.qps, sizeof(*p->sendq));
		p->targets = dr_calloc(DR_PATH_RING, sizeof(*p->targets));
		rc = rc ? rc : dr_path_credits_init(&p->base);
		return rc || !p->ctrl.q.buf || !p->sendq || !p->targets ? -ENOMEM : 0;
	}
	p->rx.ring = dr_calloc(DR_PATH_RING, sizeof(*p->rx.ring));
	return rc || !p->ctrl.q.buf || !p->rx.ring ? -ENOMEM : 0;
}

static int create(struct dr_rail *br, const struct dr_path_params *par, struct dr_path **out,
	struct dr_err *e)
{
	struct vb_rail *r = vb_rail(br);
	struct vb_path *p = dr_calloc(1, sizeof(*p));

	if (!p)
		return dr_path_no_memory(par, e);
	dr_path_init(&p->base, br, par, r->par.poller, NULL);
	if (path_alloc(p)) {
		path_free(p);
		return dr_path_no_memory(par, e);
	}
	p->ctrl.granted = p->ctrl.told = VB_CTRL_DEPTH;
	const struct dr_path_ident id = dr_path_ident(&p->base.par);
	dr_verbs_hs_init(&p->hs, &r->admission, &id, vb_shared_qps(p));
	p->next = r->paths;
	r->paths = p;
	r->n_paths++;
	*out = &p->base.path;
	return 0;
}

/* ---- progress --------------------------------------------------------------------------------- */

static bool pop(struct vb_wcs *q, struct vb_wc *out)
{
	if (q->head == q->tail)
		return false;
	*out = q->ring[q->head++ & q->mask];
	return true;
}

static bool waiting(const struct vb_path *p)
{
	return p->ctrl_wcs.head != p->ctrl_wcs.tail || p->data_wcs.head != p->data_wcs.tail;
}

/* Control first: it is not to wait behind bulk data. */
static void work_off(struct vb_path *p)
{
	unsigned left = VB_POLL;
	struct vb_wc wc;

	if (!waiting(p))
		dr_verbs_cq_poll(vb_path_rail(p), p->conn->cq);
	while (left-- > 0 && p->conn && p->base.n_events < EVENTS_MAX) {
		if (pop(&p->ctrl_wcs, &wc))
			dr_verbs_ctrl_wc(p, &wc);
		else if (!pop(&p->data_wcs, &wc))
			break;
		else if (p->base.par.sender)
			dr_verbs_tx_wc(p, &wc);
		else
			dr_verbs_rx_wc(p, &wc);
	}
}

static void report_failure(struct vb_path *p)
{
	dr_verbs_set_state(p, VB_FAILED);
	p->mute = true;
	dr_path_emit_failure(&p->base);
}

/* Flushed work without a reason: when nothing is left that may name one. */
static void judge_flush(struct vb_path *p)
{
	if (!p->flushed_seen || p->state >= VB_FAILING || waiting(p) ||
		dr_verbs_cq_poll(vb_path_rail(p), p->conn->cq) > 0)
		return;
	dr_verbs_fail(p, DR_SCOPE_PATH, -ECONNRESET, "%s (vendor error 0x%x)",
		dr_verbs_status(IBV_WC_WR_FLUSH_ERR)->what, p->flush_vendor);
}

static void finish(struct vb_path *p)
{
	if (p->conn)
		judge_flush(p);
	if (p->state == VB_FAILING)
		report_failure(p);
	if (p->state == VB_FENCING)
		dr_verbs_fence_settle(p);
	if (!p->fenced_due || p->state == VB_CLOSED)
		return;
	p->fenced_due = false;
	dr_path_tell(&p->base, DR_EV_FENCED);
}

static void push(struct vb_path *p)
{
	if (p->state == VB_UP)
		dr_verbs_ctrl_push(p);
	if (p->state == VB_UP)
		dr_verbs_tx_push(p);
}

static bool work_left(const struct vb_path *p)
{
	if (p->state == VB_CLOSED)
		return false;
	if (p->state == VB_FAILING || p->fenced_due)
		return true;
	return p->conn && !p->conn->busy &&
	       (waiting(p) || dr_verbs_rx_due(p) || (p->flushed_seen && !p->mute));
}

/* Whoever spins on a path comes here most of the time: what is in UP waits for a completion alone. */
static bool nothing_came(struct vb_path *p)
{
	return p->state == VB_UP && !p->fenced_due && !p->flushed_seen && !waiting(p) &&
	       !dr_verbs_rx_due(p) && dr_verbs_cq_poll(vb_path_rail(p), p->conn->cq) == 0;
}

static int progress(struct dr_path *bp, int64_t now_ns, struct dr_sink *sink)
{
	struct vb_path *p = vb_path(bp);
	enum vb_state before = p->state;

	/* Before completions are looked for: this path's own do not make it ready then. */
	dr_path_begin(&p->base, now_ns, sink);
	if (nothing_came(p))
		return dr_path_end(&p->base);
	if (p->state == VB_COMING)
		dr_verbs_obey(p, dr_verbs_hs_tick(&p->hs, now_ns), NULL);
	if (p->conn && p->hs.state >= VB_HS_ADMITTED)
		work_off(p);
	if (p->conn && p->state >= VB_UP) {
		dr_verbs_rx_report(p);
		dr_verbs_tx_report(p);
		push(p);
	}
	finish(p);
	int n = dr_path_end(&p->base);
	if (work_left(p) || (p->state == VB_FENCING && before != VB_FENCING))
		dr_path_wake(&p->base);
	return n;
}

static void flush(struct dr_path *bp, int64_t now_ns)
{
	struct vb_path *p = vb_path(bp);

	if (p->state != VB_UP)
		return;
	p->base.now_ns = now_ns;
	p->ctrl.q.flushed = p->ctrl.q.end;
	for (unsigned i = 0; p->sendq && i < vb_path_rail(p)->vp.qps; i++)
		p->sendq[i].flushed = p->sendq[i].queued;
	if (!p->base.par.sender)
		dr_verbs_rx_push(p);
	push(p);
}

/* ---- the rest --------------------------------------------------------------------------------- */

static void stats(struct dr_path *bp, struct dr_path_stats *out)
{
	struct vb_path *p = vb_path(bp);
	const struct dr_verbs_params *vp = &vb_path_rail(p)->vp;
	int64_t now = DR_MAX(p->base.now_ns, vb_path_rail(p)->now_ns);
	int64_t probe_ns = dr_verbs_probe_ns(p);
	const struct vb_silence silence = { .probes = p->probes,
		.ack_ns = p->ack_ns,
		.rtt_ns = p->rtt_ns,
		.retry_ns = dr_verbs_retry_ns(vp) };

	*out = p->base.st;
	out->acked_bytes = p->acked_data;
	out->acked_wire = p->acked_bytes;
	out->unacked_bytes = p->posted_bytes - p->acked_bytes;
	out->peer_ack_age_ns = p->ack_ns ? now - p->ack_ns : -1;
	out->unanswered = probe_ns ? (unsigned)((now - probe_ns) / dr_verbs_answer_ns(vp)) : 0;
	out->silent_segments = dr_verbs_silent(&silence, now);
	if (p->state == VB_UP) /* less the type of a datagram */
		out->segment_bytes = DR_MIN((unsigned)p->conn->peer.mtu, p->conn->dev.mtu) - 1;
	out->rtt_ns = p->rtt_ns;
}

static void unlink_ready(struct vb_path *p)
{
	if (!p->is_ready)
		return;
	DR_UNLINK(&vb_path_rail(p)->ready, p, ready_next);
	p->is_ready = false;
}

static void path_close(struct dr_path *bp)
{
	struct vb_path *p = vb_path(bp);
	struct vb_rail *r = vb_path_rail(p);
	bool posted = p->state >= VB_UP && p->state <= VB_FENCING && p->conn && !p->conn->busy;

	if (p->state == VB_CLOSED)
		return;
	if (posted && p->state < VB_FENCING)
		dr_verbs_conn_error(p->conn);
	DR_UNLINK(&r->paths, p, next);
	unlink_ready(p);
	if (r->par.poller)
		dr_poller_del(r->par.poller, &p->base.po);
	dr_verbs_set_state(p, VB_CLOSED);
	dr_verbs_hs_fini(&p->hs);
	p->fenced_due = false;
	if (posted || !p->conn)
		return; /* stop sees to it that no buffer is touched */
	dr_verbs_conn_release(p->conn, 0);
	p->conn = NULL;
}

static int stop(struct dr_path *bp)
{
	struct vb_path *p = vb_path(bp);

	dr_assert(p->state == VB_CLOSED && !p->base.sink);
	if (!p->conn)
		return p->stop_err;
	p->stop_err = dr_verbs_conn_kill(p->conn);
	dr_verbs_conn_release(p->conn, 0);
	p->conn = NULL;
	return p->stop_err;
}

static void fini(struct dr_path *bp)
{
	struct vb_path *p = vb_path(bp);

	dr_assert(p->state == VB_CLOSED && !p->base.sink && !p->conn);
	vb_path_rail(p)->n_paths--;
	path_free(p);
}

void dr_verbs_path_error(struct dr_path *bp)
{
	struct vb_path *p = vb_path(bp);

	if (p->conn && !p->conn->busy && p->state == VB_UP)
		dr_verbs_conn_error(p->conn);
}

const struct dr_transport_ops dr_verbs_ops = {
	sizeof(struct dr_transport_ops),
	"verbs",
	DR_CAP_REMOTE_WRITE | DR_CAP_DGRAM,
	dr_verbs_listen,
	dr_verbs_rail_handle,
	dr_verbs_rail_peer,
	dr_verbs_rail_dgram,
	dr_verbs_rail_padded,
	NULL,
	dr_verbs_rail_progress,
	dr_verbs_rail_close,
	dr_verbs_rail_fini,
	dr_verbs_mr_reg,
	dr_verbs_mr_dereg,
	create,
	dr_path_handle,
	dr_verbs_connect,
	dr_verbs_post_recv,
	dr_verbs_post_send,
	dr_verbs_post_ctrl,
	flush,
	dr_path_credit,
	progress,
	dr_verbs_fence,
	stats,
	dr_verbs_probe,
	path_close,
	stop,
	fini,
};
