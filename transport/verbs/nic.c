/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rail has open on its device: context, protection domain, completion channel, datagrams. A device
 * may go during a run, by a fatal event, or without a word (a software device whose removal waits for us),
 * and come back as another one. Invariants:
 *
 *	OPEN --lost(), broke()--> DYING (connections and jobs are still to end) -> CLOSING (the helper closes it)
 *		-> GONE (waits for the next try) -> OPENING (the helper looks for it) -> OPEN, or GONE
 *
 *  1. r->dead is true in every state but OPEN. Then the owner uses nothing of the device; no job is
 *     submitted that would, and no path comes up.
 *  2. CLOSING begins when no connection is left and no job is under way. A buffer is free as the fence
 *     of its path says; closing does not block.
 *  3. Memory stays registered with the rail: its regions go with the device and are made anew on the
 *     next one, before any path can be built there, since the helper does things in their order.
 *  4. The peer is told the new address until it knows it (where.c).
 */
#include "transport/verbs/path_priv.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const int64_t SEEN_NS =
	500 * DR_NS_PER_MS; /* between two looks whether the device is there */
static const int64_t AGAIN_NS = 50 * DR_NS_PER_MS;
static const int64_t AGAIN_MAX_NS = DR_NS_PER_S;

/* ---- open and close: in listen, or on the helper's thread while r->dead ---- */

/* How deep queues may be so that a connection fits into a completion queue; halved until it does. Paths
 * have allocated what an earlier device allowed, so it never becomes more. */
static int plan_depths(struct vb_rail *r, struct dr_err *e)
{
	unsigned max_cqe = (unsigned)DR_MAX(r->dev.attr.max_cqe, 0);
	unsigned max_wr = (unsigned)DR_MAX(r->dev.attr.max_qp_wr, 0);
	unsigned sq = DR_MIN(r->sq ? r->sq : (unsigned)VB_SQ, max_wr);
	unsigned rq = DR_MIN(r->rq ? r->rq : VB_RQ / r->vp.qps, max_wr);

	for (;;) {
		r->conn_cqes = VB_CTRL_DEPTH + VB_CTRL_SENDS + DR_VERBS_PROBE_QPS * VB_PROBES +
			       VB_FLUSH + r->vp.qps * DR_MAX(sq, rq);
		if (r->conn_cqes <= max_cqe || sq == 0)
			break;
		sq /= 2;
		rq /= 2;
	}
	r->cq_conns = DR_MIN((unsigned)VB_CQ_CONNS, max_cqe / r->conn_cqes);
	r->nic.sq = sq;
	r->nic.rq = rq;
	if (sq >= 1 && rq >= DR_PARTS_MAX && max_wr >= VB_PROBES)
		return 0;
	return dr_err_set(e, -ENODEV,
		"%s: queues of %u work requests and %u completions are too small", r->dev.name,
		max_wr, max_cqe);
}

static int no_blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* The kernel takes the device's node away before it waits for its users; 0: there is none to look at. */
static ino_t node_of(const struct vb_rail *r)
{
	const char *path = r->dev.ctx->device->dev_path;
	struct stat st;

	return path[0] && stat(path, &st) == 0 ? st.st_ino : 0;
}

int dr_verbs_nic_open(struct vb_rail *r, struct dr_err *e)
{
	int rc = dr_verbs_dev_open(&r->par, &r->vp, &r->dev, e);

	if (rc) {
		r->dev.ctx = NULL;
		return rc;
	}
	if (!r->ibv)
		r->ibv = r->dev.ibv;
	r->node = node_of(r);
	rc = plan_depths(r, e);
	if (rc)
		return rc;
	errno = 0;
	r->pd = r->ibv->alloc_pd(r->dev.ctx);
	rc = dr_verbs_made(&r->dev, r->pd, "allocate a protection domain", e);
	if (rc)
		return rc;
	errno = 0;
	r->channel = r->ibv->create_comp_channel(r->dev.ctx);
	rc = dr_verbs_made(&r->dev, r->channel, "create a completion channel", e);
	if (rc)
		return rc;
	rc = no_blocking(r->channel->fd);
	if (rc == 0)
		rc = no_blocking(r->dev.ctx->async_fd);
	if (rc)
		return dr_err_set(e, rc, "%s: fcntl: %s", r->dev.name, dr_errno_name(rc));
	return dr_verbs_ud_open(r, e);
}

int dr_verbs_nic_close(struct vb_rail *r)
{
	if (!r->ibv)
		return 0;
	int ud = dr_verbs_ud_close(r);
	dr_verbs_cq_fini(r);
	if (r->channel)
		r->ibv->destroy_comp_channel(r->channel);
	r->channel = NULL;
	if (r->pd)
		(void)r->ibv->dealloc_pd(r->pd); /* busy when something is stuck: goes with ctx */
	r->pd = NULL;
	int rc = dr_verbs_dev_close(&r->dev);
	if (rc && (ud || r->stuck))
		dr_error("verbs",
			"rail %u: cannot close %s: %s; memory of its connections stays allocated until "
			"the process ends",
			r->base.index, r->dev.name, dr_errno_name(rc));
	if (rc == 0 || ud == 0)
		dr_verbs_ud_free(r);
	r->ud = (struct vb_ud){ 0 };
	dr_verbs_conn_free_stuck(r, rc == 0);
	return rc;
}

/* ---- what the poller watches of it ---- */

int dr_verbs_nic_watch(struct vb_rail *r)
{
	if (!r->par.poller)
		return 0;
	r->comp.fd = r->channel->fd;
	r->async.fd = r->dev.ctx->async_fd;
	int rc = dr_poller_add(r->par.poller, &r->comp, EPOLLIN);
	return rc ? rc : dr_poller_add(r->par.poller, &r->async, EPOLLIN);
}

void dr_verbs_nic_unwatch(struct vb_rail *r)
{
	if (!r->par.poller)
		return;
	dr_poller_del(r->par.poller, &r->comp);
	dr_poller_del(r->par.poller, &r->async);
	r->comp.fd = r->async.fd = -1;
}

/* ---- lost ---- */

static void let_go(struct vb_rail *r, enum dr_scope paths, int err, const char *why)
{
	r->dead = true;
	r->nic.state = VB_NIC_DYING;
	r->where.untold = false;
	dr_verbs_nic_unwatch(r);
	for (struct vb_path *p = r->paths; p; p = p->next)
		if (p->hs.state > VB_HS_NEW)
			dr_verbs_fail(p, paths, err, "%s %s", r->dev.name, why);
	dr_verbs_tick_update(r);
}

void dr_verbs_nic_lost(struct vb_rail *r, const char *why)
{
	if (r->dead)
		return;
	dr_verbs_rail_fail(r, DR_SCOPE_RAIL, -ENODEV, "%s %s", r->dev.name, why);
	let_go(r, DR_SCOPE_RAIL, -ENODEV, why);
}

void dr_verbs_nic_broke(struct vb_rail *r, const char *what)
{
	if (r->dead || r->nic.broke)
		return;
	r->nic.broke = what;
	dr_verbs_rail_kick(r);
}

/* The connections of a completion queue that failed cannot be moved to another one, and those that are made later
 * would use it. Others have their own. */
static void replace_broken(struct vb_rail *r)
{
	dr_verbs_rail_fail(
		r, DR_SCOPE_LOCAL, -EIO, "%s: %s; opening it again", r->dev.name, r->nic.broke);
	let_go(r, DR_SCOPE_PATH, -EIO, r->nic.broke);
}

static void look_for_it(struct vb_rail *r)
{
	if (!r->node || r->now_ns - r->nic.seen_ns < SEEN_NS)
		return;
	r->nic.seen_ns = r->now_ns;
	r->syscalls++;
	if (node_of(r) != r->node)
		dr_verbs_nic_lost(r, "was removed");
}

/* ---- closed and opened again ---- */

static void submit(struct vb_rail *r, enum vb_nic_state s, void (*run)(struct vb_job *),
	void (*done)(struct vb_job *))
{
	r->nic.state = s;
	r->nic.job = (struct vb_job){ .run = run, .done = done };
	dr_verbs_helper_submit(&r->helper, &r->nic.job, 0);
}

static struct vb_rail *of_job(struct vb_job *j)
{
	return dr_container_of(dr_container_of(j, struct vb_nic, job), struct vb_rail, nic);
}

static void close_run(struct vb_job *j)
{
	of_job(j)->nic.rc = dr_verbs_nic_close(of_job(j));
}

static void close_done(struct vb_job *j)
{
	struct vb_rail *r = of_job(j);

	if (r->nic.rc == 0)
		dr_verbs_mr_closed(r);
	r->nic.state = VB_NIC_GONE;
	r->nic.wait_ns = AGAIN_NS;
	r->nic.try_ns = r->now_ns;
}

static void open_run(struct vb_job *j)
{
	struct vb_rail *r = of_job(j);
	bool roce = r->dev.roce;

	r->nic.rc = dr_verbs_nic_open(r, &r->nic.err);
	if (r->nic.rc == 0 && r->dev.roce != roce)
		r->nic.rc = dr_err_set(&r->nic.err, -EPROTO,
			"%s came back with a link layer that differs from the peer's", r->dev.name);
	if (r->nic.rc)
		(void)dr_verbs_nic_close(r);
	r->dev.roce = roce;
}

void dr_verbs_nic_use(struct vb_rail *r)
{
	r->sq = r->nic.sq;
	r->rq = r->nic.rq;
	r->dead = false;
	r->nic.broke = NULL;
	r->nic.state = VB_NIC_OPEN;
}

static void is_back(struct vb_rail *r)
{
	dr_verbs_nic_use(r);
	dr_verbs_where_moved(&r->where);
	r->nic.seen_ns = r->now_ns;
	r->err = 0;
	dr_info("verbs", "rail %u: %s (%s) is available again", r->base.index, r->dev.name,
		r->ifname);
	dr_verbs_mr_renew(r);
	dr_verbs_ah_renew(r);
}

static void open_done(struct vb_job *j)
{
	struct vb_rail *r = of_job(j);
	int rc = r->nic.rc;

	if (r->closed)
		return;
	if (rc == 0)
		rc = dr_verbs_nic_watch(r);
	if (rc == 0) {
		is_back(r);
		return;
	}
	dr_debug("verbs", "rail %u: its device is not there yet: %s", r->base.index,
		r->nic.rc ? r->nic.err.text : dr_errno_name(rc));
	r->nic.state = r->nic.rc ? VB_NIC_GONE : VB_NIC_DYING; /* opened, but it cannot be polled */
	r->nic.wait_ns = DR_MIN(2 * r->nic.wait_ns, AGAIN_MAX_NS);
	r->nic.try_ns = r->now_ns + r->nic.wait_ns;
}

static bool all_ended(const struct vb_rail *r)
{
	return r->n_conns == 0 && !r->ud.job.busy && !r->gid.busy;
}

void dr_verbs_nic_progress(struct vb_rail *r)
{
	switch (r->nic.state) {
	case VB_NIC_OPEN:
		look_for_it(r);
		if (r->nic.broke && !r->dead)
			replace_broken(r);
		if (dr_verbs_where_tick(&r->where, r->now_ns))
			dr_verbs_tell_news(r, false);
		break;
	case VB_NIC_DYING:
		if (!all_ended(r))
			break;
		dr_verbs_mr_release(r);
		submit(r, VB_NIC_CLOSING, close_run, close_done);
		break;
	case VB_NIC_GONE:
		if (r->now_ns >= r->nic.try_ns)
			submit(r, VB_NIC_OPENING, open_run, open_done);
		break;
	default:
		break;
	}
	dr_verbs_tick_update(r);
}
