/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a rail. Registering the same range again returns the same region, counted: channels that
 * share a buffer pay once for pinning it.
 */
#include "transport/verbs/internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>

static int enter(struct dr_mr *mr, struct dr_err *e)
{
	struct vb_rail *r = mr->rail;

	if (mr->len == 0)
		return dr_err_set(e, -EINVAL, "rail %u: no bytes to register", r->base.index);
	errno = 0;
	mr->mr = r->ibv->reg_mr(
		r->pd, mr->base, mr->len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (mr->mr)
		return 0;
	return dr_verbs_explain(&r->dev, "register memory", errno ? -errno : -ENOMEM, e);
}

int dr_verbs_mr_need(struct dr_mr *mr, struct dr_err *e)
{
	dr_dassert(!mr->busy);
	return mr->mr ? 0 : enter(mr, e);
}

int dr_verbs_mr_reg(
	struct dr_rail *br, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	struct vb_rail *r = vb_rail(br);
	struct dr_mr *mr;
	int rc = dr_memory_host_only(br, m, e);

	if (rc)
		return rc;
	for (mr = r->mrs; mr; mr = mr->next)
		if (mr->base == m->base && mr->len == m->len) {
			mr->refs++;
			*out = mr;
			return 0;
		}
	mr = dr_calloc(1, sizeof(*mr));
	if (!mr)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", br->index);
	*mr = (struct dr_mr){ .rail = r, .base = m->base, .len = m->len, .refs = 1 };
	if (!r->vp.lazy_mr && !r->dead)
		rc = dr_verbs_mr_need(mr, e);
	if (rc) {
		dr_free(mr);
		return rc;
	}
	mr->next = r->mrs;
	r->mrs = mr;
	*out = mr;
	return 0;
}

/* A region that cannot be deregistered stays pinned: its memory may then be freed, the NIC keeps the
 * pages. */
static void leave(struct dr_mr *mr)
{
	struct vb_rail *r = mr->rail;
	int rc = mr->mr ? r->ibv->dereg_mr(mr->mr) : 0;

	mr->mr = NULL;
	if (rc)
		dr_error("verbs", "rail %u: cannot deregister %zu bytes: %s; they stay pinned",
			r->base.index, mr->len, dr_errno_name(rc));
}

static void forget(struct dr_mr *mr)
{
	if (mr->busy) {
		mr->gone = true;
		return;
	}
	leave(mr);
	dr_free(mr);
}

void dr_verbs_mr_dereg(struct dr_rail *br, struct dr_mr *mr)
{
	struct vb_rail *r = vb_rail(br);
	struct dr_mr **at;

	if (!mr || --mr->refs > 0)
		return;
	for (at = &r->mrs; *at != mr; at = &(*at)->next)
		;
	*at = mr->next;
	forget(mr);
}

void dr_verbs_mr_fini(struct vb_rail *r)
{
	struct dr_mr *mr;

	while ((mr = r->mrs)) {
		r->mrs = mr->next;
		forget(mr);
	}
}

/* ---- the device goes and comes back: on the helper's thread ---- */

static void leave_run(struct vb_job *j)
{
	leave(dr_container_of(j, struct dr_mr, job));
}

static void enter_run(struct vb_job *j)
{
	struct dr_mr *mr = dr_container_of(j, struct dr_mr, job);
	struct dr_err e;

	/* Whoever uses it tries again, and then says why not. */
	if (enter(mr, &e))
		dr_warn("verbs", "rail %u: not registered again: %s", mr->rail->base.index, e.text);
}

static void job_done(struct vb_job *j)
{
	struct dr_mr *mr = dr_container_of(j, struct dr_mr, job);

	mr->busy = false;
	if (mr->gone)
		forget(mr);
}

static void submit(struct dr_mr *mr, void (*run)(struct vb_job *))
{
	mr->busy = true;
	mr->job.run = run;
	mr->job.done = job_done;
	dr_verbs_helper_submit(&mr->rail->helper, &mr->job);
}

void dr_verbs_mr_release(struct vb_rail *r)
{
	struct dr_mr *mr;

	for (mr = r->mrs; mr; mr = mr->next)
		if (mr->mr)
			submit(mr, leave_run);
}

void dr_verbs_mr_renew(struct vb_rail *r)
{
	struct dr_mr *mr;

	for (mr = r->mrs; mr && !r->vp.lazy_mr; mr = mr->next)
		if (!mr->mr && !mr->busy)
			submit(mr, enter_run);
}
