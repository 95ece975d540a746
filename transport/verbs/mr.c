/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a rail. Registering the same range again returns the same region, counted: channels that
 * share a buffer pay once for pinning it.
 */
#include "transport/verbs/path_priv.h"

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int dr_verbs_reg(struct vb_rail *r, void *base, size_t len, int access, struct ibv_mr **out,
	struct dr_err *e)
{
	errno = 0;
	*out = r->ibv->reg_mr(r->pd, base, len, access);
	return dr_verbs_made(&r->dev, *out, "register memory", e);
}

static int enter(struct dr_mr *mr, struct dr_err *e)
{
	struct vb_rail *r = mr->rail;

	if (mr->len == 0)
		return dr_err_set(e, -EINVAL, "rail %u: no bytes to register", r->base.index);
	if (mr->kind == DR_MEMORY_CUDA)
		return dr_verbs_gpu_enter(mr, e);
	return dr_verbs_reg(
		r, mr->base, mr->len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr->mr, e);
}

int dr_verbs_mr_need(struct dr_mr *mr, struct dr_err *e)
{
	dr_dassert(!mr->busy);
	return mr->mr ? 0 : enter(mr, e);
}

/* The copy of the descriptor is for another registration, when the device comes back. */
static int describe(
	struct vb_rail *r, const struct dr_memory *m, struct dr_mr *mr, struct dr_err *e)
{
	*mr = (struct dr_mr){ .rail = r,
		.base = m->base,
		.len = m->len,
		.kind = m->kind,
		.dmabuf_fd = -1,
		.dmabuf_off = m->dmabuf_off,
		.flush = m->kind == DR_MEMORY_CUDA && !m->ordered,
		.refs = 1 };
	if (m->kind != DR_MEMORY_CUDA || !m->dmabuf)
		return 0;
	mr->dmabuf_fd = fcntl(m->dmabuf_fd, F_DUPFD_CLOEXEC, 0);
	return mr->dmabuf_fd < 0 ? dr_err_set(e, -errno, "rail %u: dma-buf descriptor %d: %s",
					   r->base.index, m->dmabuf_fd, strerror(errno))
				 : 0;
}

static void discard(struct dr_mr *mr)
{
	if (mr->dmabuf_fd >= 0)
		close(mr->dmabuf_fd);
	dr_free(mr);
}

/* CUDA memory at once: whether the NIC can reach it is asked for here. */
static int enter_now(struct dr_mr *mr, struct dr_err *e)
{
	const struct vb_rail *r = mr->rail;

	if (r->dead)
		return mr->kind == DR_MEMORY_HOST
			       ? 0
			       : dr_err_set(
					 e, -ENODEV, "rail %u: its device is gone", r->base.index);
	return r->vp.lazy_mr && mr->kind == DR_MEMORY_HOST ? 0 : enter(mr, e);
}

int dr_verbs_mr_reg(
	struct dr_rail *br, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	struct vb_rail *r = vb_rail(br);
	struct dr_mr *mr;

	for (mr = r->mrs; mr; mr = mr->next)
		if (mr->base == m->base && mr->len == m->len && mr->kind == m->kind) {
			mr->refs++;
			*out = mr;
			return 0;
		}
	mr = dr_calloc(1, sizeof(*mr));
	if (!mr)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", br->index);
	int rc = describe(r, m, mr, e);
	if (rc == 0)
		rc = enter_now(mr, e);
	if (rc) {
		discard(mr);
		return rc;
	}
	r->flushing += mr->flush;
	mr->next = r->mrs;
	r->mrs = mr;
	*out = mr;
	return 0;
}

const char *dr_verbs_mr_choice(const struct dr_mr *mr)
{
	return mr->how;
}

static int leave(struct dr_mr *mr)
{
	int rc = mr->mr ? dr_verbs_neg(mr->rail->ibv->dereg_mr(mr->mr)) : 0;

	mr->mr = NULL;
	return rc;
}

int dr_verbs_mr_dereg(struct dr_rail *br, struct dr_mr *mr)
{
	struct vb_rail *r = vb_rail(br);

	if (!mr || --mr->refs > 0)
		return 0;
	if (mr->busy)
		dr_verbs_helper_wait(&r->helper, &mr->job);
	int rc = leave(mr);
	rc = rc ? rc : mr->left;
	DR_UNLINK(&r->mrs, mr, next);
	r->flushing -= mr->flush;
	if (mr->busy)
		mr->gone = true;
	else
		discard(mr);
	return rc;
}

/* No job is left. */
void dr_verbs_mr_fini(struct vb_rail *r)
{
	struct dr_mr *mr;

	while ((mr = r->mrs)) {
		int rc = leave(mr);
		if (rc)
			dr_error("verbs", "rail %u: cannot deregister %zu bytes: %s", r->base.index,
				mr->len, dr_errno_name(rc));
		r->mrs = mr->next;
		discard(mr);
	}
}

/* ---- the device goes and comes back: on the helper's thread ---- */

static void leave_run(struct vb_job *j)
{
	struct dr_mr *mr = dr_container_of(j, struct dr_mr, job);

	mr->left = leave(mr);
}

static void enter_run(struct vb_job *j)
{
	struct dr_mr *mr = dr_container_of(j, struct dr_mr, job);
	struct dr_err e;

	/* Whoever uses it tries again, and then says why not. */
	if (enter(mr, &e))
		dr_warn("verbs", "rail %u: memory not registered again: %s", mr->rail->base.index,
			e.text);
}

static void job_done(struct vb_job *j)
{
	struct dr_mr *mr = dr_container_of(j, struct dr_mr, job);

	mr->busy = false;
	if (mr->gone)
		discard(mr);
}

static void submit(struct dr_mr *mr, void (*run)(struct vb_job *))
{
	mr->busy = true;
	mr->job = (struct vb_job){ .run = run, .done = job_done };
	dr_verbs_helper_submit(&mr->rail->helper, &mr->job, 0);
}

void dr_verbs_mr_release(struct vb_rail *r)
{
	for (struct dr_mr *mr = r->mrs; mr; mr = mr->next)
		if (mr->mr)
			submit(mr, leave_run);
}

void dr_verbs_mr_renew(struct vb_rail *r)
{
	for (struct dr_mr *mr = r->mrs; mr; mr = mr->next)
		if (!mr->mr && !mr->busy && (!r->vp.lazy_mr || mr->kind == DR_MEMORY_CUDA))
			submit(mr, enter_run);
}

void dr_verbs_mr_closed(struct vb_rail *r)
{
	for (struct dr_mr *mr = r->mrs; mr; mr = mr->next)
		mr->left = 0;
}
