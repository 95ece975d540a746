/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a rail. Registering the same range again returns the same region, counted: channels that
 * share a buffer pay once for pinning it.
 */
#include "transport/verbs/internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>

int dr_verbs_mr_need(struct dr_mr *mr, struct dr_err *e)
{
	struct vb_rail *r = mr->rail;

	if (mr->mr)
		return 0;
	if (mr->len == 0)
		return dr_err_set(e, -EINVAL, "rail %u: no bytes to register", r->base.index);
	errno = 0;
	mr->mr = r->ibv->reg_mr(
		r->pd, mr->base, mr->len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (mr->mr)
		return 0;
	return dr_verbs_explain(&r->dev, "register memory", errno ? -errno : -ENOMEM, e);
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
	if (!r->vp.lazy_mr)
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
static void forget(struct vb_rail *r, struct dr_mr *mr)
{
	int rc = mr->mr ? r->ibv->dereg_mr(mr->mr) : 0;

	if (rc)
		dr_error("verbs", "rail %u: cannot deregister %zu bytes: %s; they stay pinned",
			r->base.index, mr->len, dr_errno_name(rc));
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
	forget(r, mr);
}

void dr_verbs_mr_fini(struct vb_rail *r)
{
	struct dr_mr *mr;

	while ((mr = r->mrs)) {
		r->mrs = mr->next;
		forget(r, mr);
	}
}
