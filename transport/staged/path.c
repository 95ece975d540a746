/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a path. Invariants:
 *  1. Events leave from progress alone: first what the inner path reports, then what copies completed,
 *     then FAILED, then FENCED.
 *  2. A failure of the copier is final for its GPU, and its copies are over then: no fence waits for them.
 *  3. While copies are outstanding, or done and not acted upon, a watch keeps the poller from sleeping:
 *     copies signal no file descriptor. Else nothing is watched. What the watch finds done needs no look at the inner
 *     path, which has its own descriptors.
 */
#include "transport/staged/staged_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <sched.h>

static const struct dr_transport_ops *inner_ops(const struct staged_path *p)
{
	return p->f->prm.inner;
}

bool dr_stage_copying(const struct staged_path *p)
{
	const struct dr_staged *f = p->f;

	return !f->broken && (!dr_stage_done(f, DR_STAGE_OUT, p->ticket[DR_STAGE_OUT]) ||
				     !dr_stage_done(f, DR_STAGE_IN, p->ticket[DR_STAGE_IN]));
}

/* Are there parts that wait for the copier to take them? */
static bool waiting(const struct staged_path *p)
{
	if (p->failed || p->fail_due)
		return false;
	if (p->rx)
		return p->rx->started < p->rx->came;
	return !p->fencing && p->tx->started < p->tx->posted;
}

/* ---- waiting ---- */

/* Is there something that progress would do now, of which no descriptor tells? Whoever looks at the
 * copier looks for all paths of the GPU, so a copy may be known to be done before its own path was asked. */
static bool due(const struct staged_path *p, int64_t now_ns)
{
	if (dr_stage_fence_due(p, now_ns))
		return true;
	if (p->failed || p->fail_due)
		return false;
	return (p->f->broken && p->ring) || (p->tx ? dr_stage_tx_due(p) : dr_stage_rx_due(p));
}

static int look(struct dr_watch *w, int64_t now_ns)
{
	struct staged_path *p = dr_container_of(w, struct staged_path, watch);

	if (p->f->looked_ns != now_ns) {
		dr_stage_look(p->f, DR_STAGE_OUT);
		dr_stage_look(p->f, DR_STAGE_IN);
		p->f->looked_ns = now_ns;
	}
	if (!due(p, now_ns))
		return 0;
	p->by_watch = true;
	p->base.par.ready(p->base.par.arg, now_ns); /* p may be gone afterwards */
	return 1;
}

/* A copy takes microseconds: less than going to sleep. Whoever waits for this CPU may have it. */
static bool arm(struct dr_watch *w, int64_t now_ns)
{
	(void)w;
	(void)now_ns;
	sched_yield();
	return true;
}

void dr_stage_attend(struct staged_path *p)
{
	struct dr_poller *poller = p->base.poller;
	bool want = !p->closed && (dr_stage_copying(p) || waiting(p) || due(p, p->base.now_ns));

	if (!poller)
		return;
	if (want && !p->watching)
		dr_poller_watch(poller, &p->watch);
	else if (!want && p->watching)
		dr_poller_unwatch(poller, &p->watch);
	p->watching = want;
	if (p->fail_due && !p->closed)
		dr_path_wake(&p->base);
}

/* ---- events ---- */

/* An event of the inner path as one of this path. */
static void pass_on(struct staged_path *p, const struct dr_event *ev)
{
	struct dr_event out = *ev;

	dr_path_emit(&p->base, &out);
}

void dr_stage_fail(struct staged_path *p, enum dr_scope scope, int err, const char *fmt, ...)
{
	va_list ap;

	if (p->failed || p->fail_due)
		return;
	p->fail_due = true;
	va_start(ap, fmt);
	dr_path_keep_failure(&p->base, scope, err, fmt, ap);
	va_end(ap);
	dr_stage_attend(p);
}

static void tell_failure(struct staged_path *p)
{
	p->fail_due = false;
	p->failed = true;
	dr_path_emit_failure(&p->base);
}

/* After FAILED only the fence is reported, its own failure included. */
static void inner_failed(struct staged_path *p, const struct dr_event *ev)
{
	if (p->failed && !p->fencing)
		return;
	p->quarantined |= p->failed;
	p->failed = true;
	p->fail_due = false;
	pass_on(p, ev);
}

static void path_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct staged_path *p = dr_container_of(sink, struct staged_path, sink);

	if (p->closed)
		return;
	if (ev->kind == DR_EV_FENCED) {
		p->inner_fenced = true;
		return;
	}
	if (ev->kind == DR_EV_FAILED) {
		inner_failed(p, ev);
		return;
	}
	if (p->failed)
		return;
	if (ev->kind == DR_EV_DELIVERED) {
		dr_stage_rx_came(p, ev);
		return;
	}
	if (ev->kind == DR_EV_SENT)
		dr_stage_tx_sent(p, ev);
	p->ready |= ev->kind == DR_EV_READY;
	pass_on(p, ev);
}

/* ---- copies ---- */

bool dr_stage_need_ring(struct staged_path *p)
{
	struct dr_err e = { 0 };

	if (p->ring)
		return true;
	int rc = dr_stage_ring_take(p->f, staged_rail(p->base.path.rail)->slot, &p->ring, &e);
	if (rc)
		dr_stage_fail(p, DR_SCOPE_LOCAL, rc, "%s", e.text);
	return rc == 0;
}

struct dr_part dr_stage_inner_part(
	const struct staged_path *p, const struct dr_part *what, uint64_t span)
{
	struct dr_part in = *what;

	in.mr = what->mr->inner;
	if (in.mr)
		return in;
	in.mr = p->ring->mr[staged_rail(p->base.path.rail)->slot];
	in.off = span == STAGE_NO_SPAN ? 0 : dr_stage_span_off(p->ring, span);
	return in;
}

bool dr_stage_copy(struct staged_path *p, enum dr_stage_way way, const struct dr_part *what,
	uint32_t len, uint64_t span, uint64_t *ticket)
{
	struct dr_staged *f = p->f;
	struct dr_stage_span copy = { .way = way,
		.dev = what->mr->base + what->off,
		.host = p->ring->mem + dr_stage_span_off(p->ring, span),
		.len = len };
	struct dr_err e = { 0 };
	int rc = f->prm.copy->start(f->prm.arg, &copy, ticket, &e);

	if (rc == 0)
		p->ticket[way] = f->last[way] = *ticket;
	else if (rc != -EAGAIN) {
		if (!dr_staged_error(f))
			f->err = e;
		f->refused = true;
		dr_stage_fail(p, DR_SCOPE_LOCAL, rc, "%s", e.text);
	}
	return rc == 0;
}

/* ---- progress ---- */

static void sync_times(struct staged_path *p)
{
	if (p->inner->rx_last_ns != p->base.path.rx_last_ns)
		dr_path_heard(&p->base.path, p->inner->rx_last_ns);
	if (p->inner->tx_last_ns != p->base.path.tx_last_ns)
		dr_path_sent(&p->base.path, p->inner->tx_last_ns);
}

static void move_copies(struct staged_path *p)
{
	for (int way = 0; way < STAGE_WAYS; way++) {
		if (!dr_stage_done(p->f, (enum dr_stage_way)way, p->ticket[way]))
			dr_stage_look(p->f, (enum dr_stage_way)way);
		p->seen[way] = p->f->done[way];
	}
	if (p->f->broken && p->ring)
		dr_stage_fail(p, DR_SCOPE_LOCAL, p->f->err.code, "%s", p->f->err.text);
	if (p->rx)
		dr_stage_rx_push(p);
	else if (dr_stage_tx_push(p) > 0)
		inner_ops(p)->flush(p->inner, p->base.now_ns);
}

int dr_stage_progress(struct dr_path *bp, int64_t now_ns, struct dr_sink *sink)
{
	struct staged_path *p = staged_path(bp);

	if (p->closed)
		return 0;
	dr_path_begin(&p->base, now_ns, sink);
	if (!p->by_watch)
		inner_ops(p)->progress(p->inner, now_ns, &p->sink);
	p->by_watch = false;
	if (!p->closed)
		move_copies(p);
	if (p->fail_due && !p->closed)
		tell_failure(p);
	if (p->fencing && !p->fenced && !p->closed)
		dr_stage_fence_settle(p);
	int n = dr_path_end(&p->base);
	sync_times(p);
	dr_stage_attend(p);
	return n;
}

void dr_stage_flush(struct dr_path *bp, int64_t now_ns)
{
	struct staged_path *p = staged_path(bp);

	if (p->closed)
		return;
	p->base.now_ns = now_ns;
	if (p->tx) {
		p->tx->flushed = p->tx->posted;
		if (p->tx->handed < p->tx->posted)
			dr_stage_look(p->f, DR_STAGE_OUT);
		dr_stage_tx_push(p);
	}
	inner_ops(p)->flush(p->inner, now_ns);
	sync_times(p);
	dr_stage_attend(p);
}

/* ---- the rest ---- */

int dr_stage_may_post(const struct staged_path *p)
{
	if (!p->ready || p->failed || p->closed)
		return -ENOTCONN;
	return p->fail_due ? -EAGAIN : 0;
}

int dr_stage_create(struct dr_rail *br, const struct dr_path_params *par, struct dr_path **out,
	struct dr_err *e)
{
	struct staged_rail *r = staged_rail(br);
	struct staged_path *p = dr_calloc(1, sizeof(*p));
	int rc = -ENOMEM;

	if (p && par->sender)
		p->tx = dr_calloc(1, sizeof(*p->tx));
	else if (p)
		p->rx = dr_calloc(1, sizeof(*p->rx));
	if (p && (p->tx || p->rx))
		rc = r->f->prm.inner->create(r->inner, par, &p->inner, e);
	else
		dr_path_no_memory(par, e);
	if (rc) {
		if (p) {
			dr_free(p->tx);
			dr_free(p->rx);
		}
		dr_free(p);
		return rc;
	}
	dr_path_init(&p->base, br, par, r->poller, NULL);
	p->f = r->f;
	p->watch = (struct dr_watch){ .poll = look, .arm = arm, .with_fds = true };
	p->sink.event = path_event;
	p->fence_deadline_ns = DR_NEVER;
	*out = &p->base.path;
	return 0;
}

int dr_stage_handle(struct dr_path *bp, void *buf, size_t cap)
{
	struct staged_path *p = staged_path(bp);

	return inner_ops(p)->handle(p->inner, buf, cap);
}

int dr_stage_connect(
	struct dr_path *bp, const void *handle, size_t len, int64_t now_ns, struct dr_err *e)
{
	struct staged_path *p = staged_path(bp);

	p->base.now_ns = now_ns;
	return inner_ops(p)->connect(p->inner, handle, len, now_ns, e);
}

int dr_stage_post_ctrl(struct dr_path *bp, const void *frame, size_t len)
{
	struct staged_path *p = staged_path(bp);
	int rc = dr_stage_may_post(p);

	return rc ? rc : inner_ops(p)->post_ctrl(p->inner, frame, len);
}

void dr_stage_stats(struct dr_path *bp, struct dr_path_stats *out)
{
	struct staged_path *p = staged_path(bp);

	inner_ops(p)->stats(p->inner, out);
}

void dr_stage_probe(struct dr_path *bp, bool all, int64_t now_ns)
{
	struct staged_path *p = staged_path(bp);

	inner_ops(p)->probe(p->inner, all, now_ns);
}

void dr_stage_close(struct dr_path *bp)
{
	struct staged_path *p = staged_path(bp);

	p->closed = true;
	dr_stage_attend(p);
	if (p->base.poller)
		dr_poller_del(p->base.poller, &p->base.po);
	inner_ops(p)->close(p->inner);
}

int dr_stage_stop(struct dr_path *bp)
{
	struct staged_path *p = staged_path(bp);
	int rc = inner_ops(p)->stop(p->inner);

	p->quarantined |= rc != 0;
	for (int way = 0; way < STAGE_WAYS; way++) {
		if (!p->f->broken && !dr_stage_done(p->f, (enum dr_stage_way)way, p->ticket[way]))
			p->f->prm.copy->wait(p->f->prm.arg, (enum dr_stage_way)way, p->ticket[way]);
	}
	return rc;
}

void dr_stage_fini(struct dr_path *bp)
{
	struct staged_path *p = staged_path(bp);

	dr_assert(p->closed && !p->base.sink);
	dr_stage_forget(p);
	inner_ops(p)->fini(p->inner);
	dr_free(p->tx);
	dr_free(p->rx);
	dr_free(p);
}
