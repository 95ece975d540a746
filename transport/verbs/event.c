/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events of the rail's device context. They are taken and acknowledged at once, so that the
 * destruction of a queue pair never waits for one. Only the end whose port it is hears of it; on rxe a port
 * error does not break its queue pairs, the retries do that half a second later.
 */
#include "transport/verbs/path_priv.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

enum { EVENTS_MAX = 16 };

static struct vb_path *path_of(const struct vb_rail *r, uint32_t qpn)
{
	for (uint32_t i = 0; i < r->n_slots; i++) {
		const struct vb_conn *c = r->slots[i].conn;

		/* One that is being made and breaks at once shows it in the next step that it is led. */
		for (unsigned k = 0; c && c->built && k < c->n; k++)
			if (c->qpn[k] == qpn)
				return c->path;
	}
	return NULL;
}

/* ---- the rail's address moved to another place in the port's table, its LID changed, or it went ---- */

static void gid_run(struct vb_job *j)
{
	struct vb_gid_job *g = dr_container_of(j, struct vb_gid_job, job);

	g->rc = dr_verbs_dev_gid(&g->dev);
}

static void look_up_gid(struct vb_rail *r);

static void gid_done(struct vb_job *j)
{
	struct vb_gid_job *g = dr_container_of(j, struct vb_gid_job, job);
	struct vb_rail *r = g->rail;

	g->busy = false;
	if (r->dead)
		return;
	if (g->rc > 0) {
		r->dev.gid_index = g->dev.gid_index;
		r->dev.lid = g->dev.lid;
	}
	/* A queue pair stays with what it was given: on rxe it then hangs without an error. */
	for (struct vb_path *p = g->rc != 0 ? r->paths : NULL; p; p = p->next)
		if (p->hs.state >= VB_HS_JOINING && p->state < VB_FAILING)
			dr_verbs_fail(p, DR_SCOPE_PATH, -EADDRNOTAVAIL,
				"the rail's address %s on %s",
				g->rc < 0     ? "is gone"
				: r->dev.roce ? "moved to another GID index"
					      : "has another LID now",
				r->dev.name);
	if (g->rc > 0 && !r->dev.roce)
		dr_verbs_where_moved(&r->where);
	if (g->rc >= 0)
		dr_verbs_ah_renew(r);
	else
		dr_warn("verbs", "rail %u: its address is no longer on %s", r->base.index,
			r->dev.name);
	if (g->again)
		look_up_gid(r);
}

static void look_up_gid(struct vb_rail *r)
{
	struct vb_gid_job *g = &r->gid;

	g->again = g->busy; /* one that is under way may have looked too early */
	if (g->busy || r->closed || r->dead)
		return;
	g->busy = true;
	g->rail = r;
	g->dev = r->dev;
	g->job = (struct vb_job){ .run = gid_run, .done = gid_done };
	dr_verbs_helper_submit(&r->helper, &g->job, 0);
}

/* ---- events ---- */

static void port_error(struct vb_rail *r, uint8_t port)
{
	if (port != r->dev.port)
		return;
	dr_verbs_rail_fail(r, DR_SCOPE_RAIL, -ENETDOWN, "%s port %u (%s) went down", r->dev.name,
		port, r->ifname);
}

static void port_active(struct vb_rail *r, uint8_t port)
{
	if (port != r->dev.port)
		return;
	dr_info("verbs", "rail %u: %s port %u is up again", r->base.index, r->dev.name, port);
	if (r->err == -ENETDOWN) {
		r->err = 0;
		r->err_due = false; /* down and up before it was told: retries cover that */
	}
	dr_verbs_ah_renew(r);
}

static void qp_failed(struct vb_rail *r, uint32_t qpn, enum ibv_event_type type)
{
	struct vb_path *p = path_of(r, qpn);

	if (p)
		dr_verbs_fail(p, DR_SCOPE_PATH, -ECONNRESET, "queue pair %u: %s", qpn,
			r->ibv->event_type_str(type));
	else if (r->ud.qp && qpn == r->ud.qp->qp_num)
		dr_verbs_ud_failed(r, r->ibv->event_type_str(type));
}

/* No alternate path is ever set here, so another party does it: the driver or the fabric's manager. */
static void path_migrated(struct vb_rail *r, uint32_t qpn)
{
	if (r->apm_told)
		return;
	r->apm_told = true;
	dr_warn("verbs",
		"rail %u: %s moved queue pair %u to an alternate path: automatic path migration (APM) is in "
		"use; its data may then cross the other rail's port, and faults of this rail are hidden "
		"from failover: turn APM off",
		r->base.index, r->dev.name, qpn);
}

static bool names_qp(enum ibv_event_type t)
{
	return t == IBV_EVENT_PATH_MIG || t == IBV_EVENT_QP_FATAL || t == IBV_EVENT_QP_REQ_ERR ||
	       t == IBV_EVENT_QP_ACCESS_ERR || t == IBV_EVENT_PATH_MIG_ERR;
}

static void on_event(struct vb_rail *r, enum ibv_event_type type, uint32_t qpn, uint8_t port)
{
	dr_debug("verbs", "rail %u: %s", r->base.index, r->ibv->event_type_str(type));
	if (type == IBV_EVENT_PATH_MIG) {
		path_migrated(r, qpn);
		return;
	}
	if (names_qp(type)) {
		qp_failed(r, qpn, type);
		return;
	}
	switch (type) {
	case IBV_EVENT_PORT_ERR:
		port_error(r, port);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		port_active(r, port);
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
		look_up_gid(r);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		dr_verbs_nic_lost(r, "failed or was removed");
		break;
	case IBV_EVENT_CQ_ERR:
		dr_verbs_nic_broke(r, "a completion queue failed");
		break;
	default:
		break;
	}
}

void dr_verbs_event_progress(struct vb_rail *r)
{
	struct ibv_async_event ev;

	for (int i = 0; i < EVENTS_MAX && !r->closed && !r->dead; i++) {
		r->syscalls++;
		if (r->ibv->get_async_event(r->dev.ctx, &ev))
			return; /* non-blocking: that was all */
		enum ibv_event_type type = ev.event_type;
		uint32_t qpn = names_qp(type) ? ev.element.qp->qp_num : 0;
		uint8_t port = (uint8_t)ev.element.port_num;
		r->ibv->ack_async_event(&ev);
		on_event(r, type, qpn, port);
	}
}
