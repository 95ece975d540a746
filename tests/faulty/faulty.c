/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faulty/faulty.h"

#include "base/mem.h"
#include "transport/path_base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

/*
 * Each op calls the inner one; events of the inner path pass through a queue (held), which is empty
 * except while an event is held back, so that order never changes. A failure that is injected is
 * only said here: the inner path lives on, as one whose completion was an error although the data
 * arrived, and a fence then ends it. After it nothing but FENCED comes out.
 */

struct held {
	STAILQ_ENTRY(held) next;
	struct dr_event ev;
	uint64_t due_call;
	int64_t due_ns; /* FENCED that is withheld: not before */
	uint8_t data[DR_DGRAM_MAX];
	char text[256];
};

struct faulty_rail {
	struct dr_rail base;
	struct dr_faulty *f;
	struct dr_rail *inner;
	struct dr_poller *poller;
	struct dr_sink sink, *out;
};

struct faulty_path {
	struct dr_path_base base; /* kicked while something is held */
	struct dr_faulty *f;
	struct dr_path *inner;
	struct dr_sink sink;
	STAILQ_HEAD(, held) held;
	uint64_t calls;
	int64_t fence_deadline_ns;
	bool failed, closed; /* failed: FAILED was reported */
	bool fail_due;
};

static struct faulty_path *path_of(struct dr_path *p)
{
	return dr_container_of(p, struct faulty_path, base.path);
}

static struct faulty_rail *rail_of(struct dr_rail *r)
{
	return dr_container_of(r, struct faulty_rail, base);
}

static void trace(struct dr_faulty *f, const char *fmt, ...) DR_PRINTF(2, 3);
static void trace(struct dr_faulty *f, const char *fmt, ...)
{
	char line[160];
	va_list ap;

	if (!f->o.trace)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	f->o.trace(f->o.trace_arg, line);
}

static bool drawn(struct dr_faulty *f, uint32_t ppm)
{
	bool hit = ppm > 0 && dr_rng_chance(&f->rng, ppm, 1000000);

	f->injected += hit;
	return hit;
}

/* ---- rails ------------------------------------------------------------------------------------- */

static void rail_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct faulty_rail *r = dr_container_of(sink, struct faulty_rail, sink);
	struct dr_event out = *ev;

	out.rail = &r->base;
	r->f->events++;
	trace(r->f, "rail %u event %d err %d", r->base.index, ev->kind, ev->err);
	r->out->event(r->out, &out);
}

static int f_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	const struct dr_faulty_rail_params *k = p->kind_params;
	struct dr_rail_params inner = *p;
	struct faulty_rail *r = dr_calloc(1, sizeof(*r));

	if (!r)
		return dr_err_set(e, -ENOMEM, "wrap rail %u: out of memory", p->index);
	inner.kind_params = k->inner;
	int rc = k->faulty->inner->listen(&inner, &r->inner, e);
	if (rc) {
		dr_free(r);
		return rc;
	}
	r->base = (struct dr_rail){ .ops = &k->faulty->ops, .index = p->index };
	r->f = k->faulty;
	r->poller = p->poller;
	r->sink.event = rail_event;
	*out = &r->base;
	return 0;
}

static int f_rail_handle(struct dr_rail *r, void *buf, size_t cap)
{
	return rail_of(r)->f->inner->rail_handle(rail_of(r)->inner, buf, cap);
}

static int f_rail_peer(struct dr_rail *r, const void *handle, size_t len, struct dr_err *e)
{
	return rail_of(r)->f->inner->rail_peer(rail_of(r)->inner, handle, len, e);
}

static void f_rail_dgram(struct dr_rail *dr, const void *data, size_t len)
{
	struct faulty_rail *r = rail_of(dr);

	if (!drawn(r->f, r->f->o.dgram_loss_ppm))
		r->f->inner->rail_dgram(r->inner, data, len);
}

static void f_rail_padded(struct dr_rail *dr, const void *data, size_t len, uint32_t size)
{
	struct faulty_rail *r = rail_of(dr);

	if (!drawn(r->f, r->f->o.dgram_loss_ppm))
		r->f->inner->rail_padded(r->inner, data, len, size);
}

static void f_rail_ask(struct dr_rail *dr, int64_t now_ns, struct dr_rail_answer *out)
{
	rail_of(dr)->f->inner->rail_ask(rail_of(dr)->inner, now_ns, out);
}

static int f_rail_progress(struct dr_rail *dr, int64_t now_ns, struct dr_sink *sink)
{
	struct faulty_rail *r = rail_of(dr);

	r->out = sink;
	return r->f->inner->rail_progress(r->inner, now_ns, &r->sink);
}

static void f_rail_close(struct dr_rail *r)
{
	rail_of(r)->f->inner->rail_close(rail_of(r)->inner);
}

static void f_rail_fini(struct dr_rail *dr)
{
	struct faulty_rail *r = rail_of(dr);

	r->f->inner->rail_fini(r->inner);
	dr_free(r);
}

static int f_mr_reg(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	return rail_of(r)->f->inner->mr_reg(rail_of(r)->inner, m, out, e);
}

/* The inner kind's result, or the fault. */
static int result(struct dr_faulty *f, int rc, int fault)
{
	f->injected += fault != 0;
	return fault ? fault : rc;
}

static int f_mr_dereg(struct dr_rail *r, struct dr_mr *mr)
{
	struct dr_faulty *f = rail_of(r)->f;

	return result(f, f->inner->mr_dereg(rail_of(r)->inner, mr), f->o.dereg_err);
}

/* ---- events ------------------------------------------------------------------------------------ */

static void kick(struct faulty_path *p)
{
	if (!p->closed)
		dr_path_wake(&p->base);
}

static void tell(struct faulty_path *p, const struct dr_event *ev)
{
	struct dr_event out = *ev;

	if (p->closed || (p->failed && ev->kind != DR_EV_FENCED))
		return;
	p->failed |= ev->kind == DR_EV_FAILED;
	trace(p->f, "path %u event %d epoch %u seq %llu part %u err %d", p->base.path.rail->index,
		ev->kind, ev->epoch, (unsigned long long)ev->seq, ev->part, ev->err);
	dr_path_emit(&p->base, &out);
}

static void hold(
	struct faulty_path *p, const struct dr_event *ev, uint64_t due_call, int64_t due_ns)
{
	struct held *h = dr_calloc(1, sizeof(*h));

	dr_assert(h != NULL); /* a test's tool */
	h->ev = *ev;
	h->due_call = due_call;
	h->due_ns = due_ns;
	if (ev->data) {
		memcpy(h->data, ev->data, ev->len);
		h->ev.data = h->data;
	}
	if (ev->text) {
		(void)snprintf(h->text, sizeof(h->text), "%s", ev->text);
		h->ev.text = h->text;
	}
	STAILQ_INSERT_TAIL(&p->held, h, next);
}

static void tell_fault(struct faulty_path *p)
{
	struct dr_event ev = { .kind = DR_EV_FAILED,
		.scope = p->base.scope,
		.err = p->base.err,
		.text = "injected by the fault wrapper" };

	p->fail_due = false;
	tell(p, &ev);
}

static void fail_with_opts(struct faulty_path *p)
{
	p->f->injected++;
	p->fail_due = true;
	p->base.err = p->f->o.fail_err ? p->f->o.fail_err : -EIO;
	p->base.scope = p->f->o.fail_scope;
}

static void path_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct faulty_path *p = dr_container_of(sink, struct faulty_path, sink);
	struct dr_faulty *f = p->f;
	uint64_t due_call = 0;
	int64_t due_ns = 0;

	f->events++;
	if (f->o.fail_at_event == f->events && !p->failed && ev->kind != DR_EV_FENCED) {
		fail_with_opts(p);
		return; /* FAILED instead, after what is held */
	}
	if (ev->kind == DR_EV_FENCED && f->o.withhold_fenced && p->fence_deadline_ns != DR_NEVER) {
		f->injected++;
		due_ns = p->fence_deadline_ns;
	}
	if (drawn(f, f->o.hold_ppm))
		due_call = p->calls + f->o.hold_calls;
	if (!STAILQ_EMPTY(&p->held) || due_call > p->calls || due_ns > p->base.now_ns)
		hold(p, ev, due_call, due_ns);
	else
		tell(p, ev);
}

static void release(struct faulty_path *p)
{
	struct held *h;

	while ((h = STAILQ_FIRST(&p->held)) && h->due_call <= p->calls &&
		h->due_ns <= p->base.now_ns) {
		STAILQ_REMOVE_HEAD(&p->held, next);
		tell(p, &h->ev);
		dr_free(h);
	}
}

static int f_progress(struct dr_path *dp, int64_t now_ns, struct dr_sink *sink)
{
	struct faulty_path *p = path_of(dp);

	if (p->closed)
		return 0;
	dr_path_begin(&p->base, now_ns, sink);
	p->calls++;
	release(p);
	p->f->inner->progress(p->inner, now_ns, &p->sink);
	if (p->inner->rx_last_ns != dp->rx_last_ns)
		dr_path_heard(dp, p->inner->rx_last_ns);
	if (p->inner->tx_last_ns != dp->tx_last_ns)
		dr_path_sent(dp, p->inner->tx_last_ns);
	if (p->fail_due && STAILQ_EMPTY(&p->held))
		tell_fault(p);
	int n = dr_path_end(&p->base);
	if (!STAILQ_EMPTY(&p->held) || p->fail_due)
		kick(p);
	return n;
}

/* ---- paths ------------------------------------------------------------------------------------- */

static int f_create(
	struct dr_rail *r, const struct dr_path_params *par, struct dr_path **out, struct dr_err *e)
{
	struct dr_faulty *f = rail_of(r)->f;
	struct faulty_path *p = dr_calloc(1, sizeof(*p));

	if (!p)
		return dr_path_no_memory(par, e);
	int rc = f->inner->create(rail_of(r)->inner, par, &p->inner, e);
	if (rc) {
		dr_free(p);
		return rc;
	}
	dr_path_init(&p->base, r, par, rail_of(r)->poller, NULL);
	p->f = f;
	p->sink.event = path_event;
	STAILQ_INIT(&p->held);
	p->fence_deadline_ns = DR_NEVER;
	*out = &p->base.path;
	return 0;
}

static int f_handle(struct dr_path *p, void *buf, size_t cap)
{
	return path_of(p)->f->inner->handle(path_of(p)->inner, buf, cap);
}

static int f_connect(
	struct dr_path *p, const void *handle, size_t len, int64_t now_ns, struct dr_err *e)
{
	return path_of(p)->f->inner->connect(path_of(p)->inner, handle, len, now_ns, e);
}

/* 0: go on with the post; else what to answer. */
static int before_post(struct faulty_path *p, const char *what)
{
	struct dr_faulty *f = p->f;

	if (p->failed)
		return -ENOTCONN;
	if (p->fail_due || drawn(f, f->o.eagain_ppm))
		return -EAGAIN;
	if (++f->posts == f->o.fail_at_post) {
		fail_with_opts(p);
		kick(p);
	}
	trace(f, "path %u %s", p->base.path.rail->index, what);
	return 0;
}

static int f_post_recv(struct dr_path *dp, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	struct faulty_path *p = path_of(dp);
	int rc = before_post(p, "post_recv");

	return rc ? rc : p->f->inner->post_recv(p->inner, epoch, seq, parts, n, skip);
}

static int f_post_send(
	struct dr_path *dp, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	struct faulty_path *p = path_of(dp);
	int rc = before_post(p, "post_send");

	return rc ? rc : p->f->inner->post_send(p->inner, epoch, seq, part, what);
}

static int f_post_ctrl(struct dr_path *dp, const void *frame, size_t len)
{
	struct faulty_path *p = path_of(dp);
	int rc = before_post(p, "post_ctrl");

	return rc ? rc : p->f->inner->post_ctrl(p->inner, frame, len);
}

static void f_flush(struct dr_path *dp, int64_t now_ns)
{
	struct faulty_path *p = path_of(dp);

	p->f->inner->flush(p->inner, now_ns);
	if (p->inner->tx_last_ns != dp->tx_last_ns)
		dr_path_sent(dp, p->inner->tx_last_ns);
}

static int f_credit(struct dr_path *dp, uint32_t epoch, uint64_t seq, struct dr_credit *out)
{
	return path_of(dp)->f->inner->credit(path_of(dp)->inner, epoch, seq, out);
}

static void f_fence(struct dr_path *dp, int64_t deadline_ns)
{
	struct faulty_path *p = path_of(dp);

	trace(p->f, "path %u fence", dp->rail->index);
	p->fence_deadline_ns = deadline_ns;
	p->f->inner->fence(p->inner, deadline_ns);
}

static void f_probe(struct dr_path *dp, bool all, int64_t now_ns)
{
	path_of(dp)->f->inner->probe(path_of(dp)->inner, all, now_ns);
}

static void f_stats(struct dr_path *dp, struct dr_path_stats *out)
{
	path_of(dp)->f->inner->stats(path_of(dp)->inner, out);
}

static void f_close(struct dr_path *dp)
{
	struct faulty_path *p = path_of(dp);

	p->closed = true;
	if (p->base.poller)
		dr_poller_del(p->base.poller, &p->base.po);
	p->f->inner->close(p->inner);
}

static int f_stop(struct dr_path *dp)
{
	struct dr_faulty *f = path_of(dp)->f;

	return result(f, f->inner->stop(path_of(dp)->inner), f->o.stop_err);
}

static void f_fini(struct dr_path *dp)
{
	struct faulty_path *p = path_of(dp);

	p->f->inner->fini(p->inner);
	for (struct held *h; (h = STAILQ_FIRST(&p->held));) {
		STAILQ_REMOVE_HEAD(&p->held, next);
		dr_free(h);
	}
	dr_free(p);
}

/* ---- the wrapper ------------------------------------------------------------------------------- */

int dr_faulty_create(const struct dr_transport_ops *inner, const struct dr_faulty_opts *opts,
	struct dr_faulty **out)
{
	struct dr_faulty *f = dr_calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->inner = inner;
	f->o = *opts;
	dr_rng_seed(&f->rng, opts->seed);
	(void)snprintf(f->name, sizeof(f->name), "faulty(%s)", inner->name);
	f->ops = (struct dr_transport_ops){ sizeof(struct dr_transport_ops), f->name, inner->caps,
		f_listen, f_rail_handle, f_rail_peer, f_rail_dgram,
		inner->rail_padded ? f_rail_padded : NULL, inner->rail_ask ? f_rail_ask : NULL,
		f_rail_progress, f_rail_close, f_rail_fini, f_mr_reg, f_mr_dereg, f_create,
		f_handle, f_connect, f_post_recv, f_post_send, f_post_ctrl, f_flush, f_credit,
		f_progress, f_fence, f_stats, inner->probe ? f_probe : NULL, f_close, f_stop,
		f_fini };
	*out = f;
	return 0;
}

void dr_faulty_destroy(struct dr_faulty *f)
{
	dr_free(f);
}

struct dr_path *dr_faulty_inner(struct dr_path *p)
{
	return path_of(p)->inner;
}
