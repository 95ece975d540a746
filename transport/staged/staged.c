/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapper itself: rails, which pass through, and memory. Registering decides once and for all
 * whether a region is reached by the inner kind or staged.
 */
#include "transport/staged/staged_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

void dr_stage_look(struct dr_staged *f, enum dr_stage_way way)
{
	struct dr_err e = { 0 };

	if (f->broken || f->done[way] == f->last[way] ||
		!f->prm.copy->done(f->prm.arg, way, &f->done[way], &e))
		return;
	if (!f->refused)
		f->err = e;
	f->broken = true;
	/* So that a fence may take it for granted. Nothing is lost by waiting now. */
	for (int i = 0; i < STAGE_WAYS; i++)
		f->prm.copy->wait(f->prm.arg, (enum dr_stage_way)i, f->last[i]);
}

const struct dr_err *dr_staged_error(const struct dr_staged *f)
{
	return f->broken || f->refused ? &f->err : NULL;
}

/* ---- rails ---- */

static void rail_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct staged_rail *r = dr_container_of(sink, struct staged_rail, sink);
	struct dr_event out = *ev;

	out.rail = &r->base;
	r->out->event(r->out, &out);
}

static int free_slot(const struct dr_staged *f)
{
	for (int i = 0; i < DR_STAGED_RAILS_MAX; i++)
		if (!f->rail[i])
			return i;
	return -1;
}

static int listen_rail(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	const struct dr_staged_rail_params *k = p->kind_params;
	struct dr_rail_params inner = *p;
	int slot = free_slot(k->staged);

	if (slot < 0)
		return dr_err_set(e, -EINVAL, "rail %u: the maximum is %d rails", p->index,
			DR_STAGED_RAILS_MAX);
	struct staged_rail *r = dr_calloc(1, sizeof(*r));
	if (!r)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", p->index);
	inner.kind_params = k->inner;
	int rc = k->staged->prm.inner->listen(&inner, &r->inner, e);
	if (rc) {
		dr_free(r);
		return rc;
	}
	r->base = (struct dr_rail){ .ops = &k->staged->ops, .index = p->index };
	r->f = k->staged;
	r->slot = (unsigned)slot;
	r->poller = p->poller;
	r->sink.event = rail_event;
	r->f->rail[slot] = r;
	*out = &r->base;
	return 0;
}

static int rail_handle(struct dr_rail *r, void *buf, size_t cap)
{
	return staged_rail(r)->f->prm.inner->rail_handle(staged_rail(r)->inner, buf, cap);
}

static int rail_peer(struct dr_rail *r, const void *handle, size_t len, struct dr_err *e)
{
	return staged_rail(r)->f->prm.inner->rail_peer(staged_rail(r)->inner, handle, len, e);
}

static void rail_dgram(struct dr_rail *r, const void *data, size_t len)
{
	staged_rail(r)->f->prm.inner->rail_dgram(staged_rail(r)->inner, data, len);
}

static void rail_padded(struct dr_rail *r, const void *data, size_t len, uint32_t size)
{
	staged_rail(r)->f->prm.inner->rail_padded(staged_rail(r)->inner, data, len, size);
}

static void rail_ask(struct dr_rail *r, int64_t now_ns, struct dr_rail_answer *out)
{
	staged_rail(r)->f->prm.inner->rail_ask(staged_rail(r)->inner, now_ns, out);
}

static int rail_progress(struct dr_rail *br, int64_t now_ns, struct dr_sink *sink)
{
	struct staged_rail *r = staged_rail(br);

	r->out = sink;
	return r->f->prm.inner->rail_progress(r->inner, now_ns, &r->sink);
}

static void rail_close(struct dr_rail *r)
{
	staged_rail(r)->f->prm.inner->rail_close(staged_rail(r)->inner);
}

static bool only_rail(const struct dr_staged *f, unsigned slot)
{
	for (unsigned i = 0; i < DR_STAGED_RAILS_MAX; i++)
		if (f->rail[i] && i != slot)
			return false;
	return true;
}

static void rail_fini(struct dr_rail *br)
{
	struct staged_rail *r = staged_rail(br);
	struct dr_staged *f = r->f;

	dr_stage_rings_drop(f, r->slot, only_rail(f, r->slot));
	f->rail[r->slot] = NULL;
	f->prm.inner->rail_fini(r->inner);
	dr_free(r);
}

/* ---- memory ---- */

static int mr_reg(
	struct dr_rail *br, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	struct staged_rail *r = staged_rail(br);
	struct dr_staged_choice *c = &r->f->choice;
	struct dr_mr *mr = dr_calloc(1, sizeof(*mr));
	struct dr_err why = { 0 };

	if (!mr)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", br->index);
	mr->base = m->base;
	mr->len = m->len;
	int rc = r->f->prm.inner->mr_reg(r->inner, m, &mr->inner, &why);
	if (rc && !(rc == -ENOTSUP && m->kind != DR_MEMORY_HOST)) {
		dr_free(mr);
		return dr_err_set(e, rc, "%s", why.text);
	}
	if (m->kind != DR_MEMORY_HOST && rc == 0) {
		c->direct++;
		if (r->f->prm.how && c->staged == 0)
			snprintf(c->why, sizeof(c->why), "%s", r->f->prm.how(mr->inner));
	} else if (rc) {
		c->staged++;
		snprintf(c->why, sizeof(c->why), "%s", why.text);
	}
	*out = mr;
	return 0;
}

static int mr_dereg(struct dr_rail *br, struct dr_mr *mr)
{
	struct staged_rail *r = staged_rail(br);
	int rc = 0;

	if (mr && mr->inner)
		rc = r->f->prm.inner->mr_dereg(r->inner, mr->inner);
	dr_free(mr);
	return rc;
}

/* ---- the wrapper ---- */

int dr_staged_create(const struct dr_staged_params *p, struct dr_staged **out, struct dr_err *e)
{
	struct dr_staged *f = dr_calloc(1, sizeof(*f));

	dr_assert(p->inner && p->copy && p->ring_bytes > 0);
	if (!f)
		return dr_err_set(e, -ENOMEM, "staging: out of memory");
	f->prm = *p;
	snprintf(f->name, sizeof(f->name), "staged(%s)", p->inner->name);
	f->ops = (struct dr_transport_ops){ sizeof(struct dr_transport_ops), f->name,
		p->inner->caps, listen_rail, rail_handle, rail_peer, rail_dgram,
		p->inner->rail_padded ? rail_padded : NULL, p->inner->rail_ask ? rail_ask : NULL,
		rail_progress, rail_close, rail_fini, mr_reg, mr_dereg, dr_stage_create,
		dr_stage_handle, dr_stage_connect, dr_stage_post_recv, dr_stage_post_send,
		dr_stage_post_ctrl, dr_stage_flush, dr_stage_credit, dr_stage_progress,
		dr_stage_fence, dr_stage_stats, p->inner->probe ? dr_stage_probe : NULL,
		dr_stage_close, dr_stage_stop, dr_stage_fini };
	*out = f;
	return 0;
}

void dr_staged_destroy(struct dr_staged *f)
{
	dr_assert(!f || only_rail(f, DR_STAGED_RAILS_MAX));
	if (f) /* rings that were made before any rail was opened */
		dr_stage_rings_drop(f, 0, true);
	dr_free(f);
}

const struct dr_transport_ops *dr_staged_ops(struct dr_staged *f)
{
	return &f->ops;
}

void dr_staged_choice(const struct dr_staged *f, struct dr_staged_choice *out)
{
	*out = f->choice;
}

unsigned dr_staged_kept(const struct dr_staged *f)
{
	return f->kept;
}

struct dr_path *dr_staged_inner(struct dr_path *p)
{
	return p->ops->create == dr_stage_create ? staged_path(p)->inner : p;
}
