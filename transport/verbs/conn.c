/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue pairs of one path. Invariants:
 *  1. While a job of a connection is under way (BUILD or JOIN: path state BUILDING or JOINING) its queue
 *     pairs are the helper's. After it, and until DESTROY, they are the owner's.
 *  2. release() takes the connection out of the rail's table, so that no completion finds the path, and
 *     submits DESTROY, which comes after every other job of it (the helper does what is for later when
 *     nothing else waits); memory is freed when that is done.
 *  3. A user's buffer is posted only between JOIN and the fence. Who releases a connection has fenced
 *     it, or killed its data queue pairs.
 */
#include "transport/verbs/path_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

enum { SLAB_LEN = 2 * VB_CTRL_DEPTH * VB_CTRL_MSG + VB_SLAB_SPARE };

static struct vb_conn *of_work(struct vb_job *j)
{
	return dr_container_of(j, struct vb_conn, work);
}

/* ---- the table of connections that completions are looked up in ---- */

static int grow(struct vb_rail *r)
{
	uint32_t n = r->n_slots ? 2 * r->n_slots : 16;

	if (n > VB_SLOTS_MAX)
		return -ENOMEM;
	struct vb_slot *slots = dr_realloc(r->slots, n * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	memset(slots + r->n_slots, 0, (n - r->n_slots) * sizeof(*slots));
	r->slots = slots;
	r->n_slots = n;
	return 0;
}

static int take_slot(struct vb_conn *c)
{
	struct vb_rail *r = c->rail;
	uint32_t i = 0;

	while (i < r->n_slots && r->slots[i].conn)
		i++;
	if (i == r->n_slots && grow(r))
		return -ENOMEM;
	r->slots[i].conn = c;
	c->serial = (uint32_t)++r->slots[i].gen << 16 | i;
	return 0;
}

/* ---- BUILD: on the helper's thread ---- */

static int build_qp(struct vb_conn *c, unsigned i)
{
	const struct vb_rail *r = c->rail;
	struct ibv_qp_cap cap = { .max_send_sge = 1, .max_recv_sge = 1 };

	if (i > r->vp.qps) {
		cap.max_send_wr = VB_PROBES;
		cap.max_recv_wr = 1;
	} else {
		cap.max_send_wr = i == 0 ? VB_CTRL_SENDS : c->sender ? r->sq : 1;
		cap.max_recv_wr = i == 0 ? VB_CTRL_DEPTH : c->sender ? 1 : r->rq;
		cap.max_inline_data = i == 0 ? VB_INLINE : c->sender ? VB_INLINE_DATA : 0;
	}
	return dr_verbs_qp_make(c, i, cap, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
}

static void build_run(struct vb_job *j)
{
	struct vb_conn *c = of_work(j);
	struct vb_rail *r = c->rail;

	c->rc = dr_verbs_cq_make(r, c->cq, r->conn_cqes * r->cq_conns, &c->err);
	if (c->rc == 0)
		c->rc = dr_verbs_reg(
			r, c->slab, SLAB_LEN, IBV_ACCESS_LOCAL_WRITE, &c->slab_mr, &c->err);
	for (unsigned i = 0; i < c->n && c->rc == 0; i++)
		c->rc = build_qp(c, i);
	if (c->rc == 0)
		c->rc = dr_verbs_post_ctrl_recvs(c, 0, VB_CTRL_DEPTH);
}

static void build_done(struct vb_job *j)
{
	struct vb_conn *c = of_work(j);

	c->busy = false;
	c->built = c->rc == 0;
	if (c->built)
		c->cq->live = true;
	if (c->path)
		dr_verbs_built(c->path);
}

/* ---- JOIN: on the helper's thread ---- */

/* Queue pair i to the peer's. */
static int join_qp(struct vb_conn *c, unsigned i)
{
	const struct dr_verbs_hello *h = &c->peer;
	const struct vb_target to = { .qpn = h->qpn[i],
		.rq_psn = (h->psn + i * DR_VERBS_PSN_STEP) & DR_VERBS_PSN_MASK,
		.sq_psn = (c->psn + i * DR_VERBS_PSN_STEP) & DR_VERBS_PSN_MASK,
		.mtu = DR_MIN((unsigned)h->mtu, c->dev.mtu),
		.lid = h->lid,
		.gid = h->gid };

	return dr_verbs_qp_lead(c, i, &to);
}

static void join_run(struct vb_job *j)
{
	struct vb_conn *c = of_work(j);

	c->rc = c->dev.roce ? dr_verbs_dev_gid(&c->dev) : 0;
	if (c->rc < 0) {
		dr_err_set(&c->err, c->rc, "the rail's address is no longer on %s: %s", c->dev.name,
			dr_errno_name(c->rc));
		return;
	}
	c->rc = 0;
	for (unsigned i = 0; i < c->n && c->rc == 0; i++)
		c->rc = join_qp(c, i);
}

static void join_done(struct vb_job *j)
{
	struct vb_conn *c = of_work(j);

	c->busy = false;
	if (c->path)
		dr_verbs_joined(c->path);
}

/* ---- DESTROY: on the helper's thread, or the owner's for kill ---- */

static void destroy_run(struct vb_job *j)
{
	struct vb_conn *c = dr_container_of(j, struct vb_conn, end);

	const char *what = "destroy a queue pair";
	int rc = 0;

	for (unsigned i = 0; i < VB_CONN_QPS;
		i++) { /* one that its owner did not hear of included */
		int err = dr_verbs_qp_destroy(c, i);
		rc = rc ? rc : err;
	}
	if (rc == 0 && c->slab_mr) {
		what = "deregister control messages";
		rc = dr_verbs_neg(c->rail->ibv->dereg_mr(c->slab_mr));
	}
	c->stuck = rc != 0;
	if (rc)
		dr_error("verbs",
			"rail %u: cannot %s of a connection: %s; its own memory is kept until the "
			"device is closed",
			c->rail->base.index, what, dr_errno_name(rc));
}

static void destroy_done(struct vb_job *j)
{
	struct vb_conn *c = dr_container_of(j, struct vb_conn, end);

	c->rail->n_conns--;
	if (c->stuck) { /* the NIC may use it still, and its place in the queue */
		c->next = c->rail->stuck;
		c->rail->stuck = c;
		c->rail->quarantined++;
		return;
	}
	c->cq->conns--;
	dr_pages_free(c->slab, SLAB_LEN);
	dr_free(c);
}

void dr_verbs_conn_free_stuck(struct vb_rail *r, bool closed)
{
	struct vb_conn *c;

	while ((c = r->stuck)) {
		r->stuck = c->next;
		if (closed)
			dr_pages_free(c->slab, SLAB_LEN);
		dr_free(c);
	}
}

/* ---- for the path ---- */

int dr_verbs_conn_create(struct vb_path *p, struct vb_conn **out)
{
	struct vb_rail *r = vb_path_rail(p);
	struct vb_conn *c = dr_calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->rail = r;
	c->path = p;
	c->sender = p->base.par.sender;
	c->n = 1 + r->vp.qps + DR_VERBS_PROBE_QPS;
	c->psn = (uint32_t)dr_rng_u64(&r->rng) & DR_VERBS_PSN_MASK;
	c->slab = dr_pages_alloc(SLAB_LEN);
	c->cq = c->slab ? dr_verbs_cq_take(r) : NULL;
	if (!c->cq || take_slot(c)) {
		if (c->cq)
			c->cq->conns--;
		dr_pages_free(c->slab, SLAB_LEN);
		dr_free(c);
		return -ENOMEM;
	}
	r->n_conns++;
	*out = c;
	return 0;
}

void dr_verbs_conn_build(struct vb_conn *c)
{
	c->work = (struct vb_job){ .run = build_run, .done = build_done };
	c->busy = true;
	dr_verbs_helper_submit(&c->rail->helper, &c->work, 0);
}

void dr_verbs_conn_join(struct vb_conn *c, const struct dr_verbs_hello *peer)
{
	c->peer = *peer;
	c->dev = c->rail->dev;
	c->work = (struct vb_job){ .run = join_run, .done = join_done };
	c->busy = true;
	dr_verbs_helper_submit(&c->rail->helper, &c->work, 0);
}

int dr_verbs_conn_error(struct vb_conn *c)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	int rc = 0;

	for (unsigned i = c->n; i-- > 0;) { /* data first: it is what touches buffers */
		if (!c->qp[i])
			continue;
		c->rail->syscalls++;
		int err = dr_verbs_neg(c->rail->ibv->modify_qp(c->qp[i], &a, IBV_QP_STATE));
		rc = rc ? rc : err;
	}
	return rc;
}

int dr_verbs_conn_kill(struct vb_conn *c)
{
	int rc = 0;

	for (unsigned i = 1; i < c->n; i++) {
		int err = dr_verbs_qp_destroy(c, i);
		rc = rc ? rc : err;
	}
	return rc;
}

void dr_verbs_conn_release(struct vb_conn *c, int64_t due_ns)
{
	c->path = NULL;
	c->rail->slots[c->serial & 0xffff].conn = NULL;
	c->end = (struct vb_job){ .run = destroy_run, .done = destroy_done };
	dr_verbs_helper_submit(&c->rail->helper, &c->end, due_ns);
}

/* ---- receives ---- */

int dr_verbs_post_ctrl_recvs(struct vb_conn *c, unsigned first, unsigned n)
{
	struct ibv_recv_wr wr[VB_CTRL_DEPTH], *bad;
	struct ibv_sge sge[VB_CTRL_DEPTH];

	dr_assert(n >= 1 && n <= VB_CTRL_DEPTH);
	for (unsigned i = 0; i < n; i++) {
		unsigned slot = (first + i) % VB_CTRL_DEPTH;
		sge[i] = (struct ibv_sge){ .addr = (uintptr_t)(c->slab + slot * VB_CTRL_MSG),
			.length = VB_CTRL_MSG,
			.lkey = c->slab_mr->lkey };
		wr[i] = (struct ibv_recv_wr){ .wr_id = (uint64_t)c->serial << 32 |
						       vb_id(true, 0, slot),
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1 };
	}
	return dr_verbs_neg(ibv_post_recv(c->qp[0], wr, &bad));
}

/* They take an immediate value and nothing else, so that they are all alike. */
int dr_verbs_post_data_recvs(struct vb_conn *c, unsigned qp, unsigned n)
{
	struct ibv_recv_wr wr[VB_CHAIN] = { { 0 } }, *bad;
	unsigned now;

	for (unsigned i = 0; i < VB_CHAIN; i++)
		wr[i].wr_id = (uint64_t)c->serial << 32 | vb_id(true, qp, 0);
	for (; n > 0; n -= now) {
		now = DR_MIN(n, (unsigned)VB_CHAIN);
		for (unsigned i = 0; i < now; i++)
			wr[i].next = i + 1 < now ? &wr[i + 1] : NULL;
		int rc = dr_verbs_neg(ibv_post_recv(c->qp[qp], wr, &bad));
		if (rc)
			return rc;
	}
	return 0;
}
