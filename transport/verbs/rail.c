/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's end of a rail: its life, what wakes its owner, its peer. The device is nic.c's. Invariants:
 *  1. Events leave from rail_progress alone. Jobs of the helper are taken there too.
 *  2. With a poller: `comp` (a queue that was armed got something), `async`, `helped` and `tick` wake
 *     its owner, and the watch looks at the queues in every wait. Without one the owner calls
 *     rail_progress and each progress.
 *  3. The rail goes after all its paths; then the helper ends, having done what was asked of it.
 */
#include "transport/verbs/path_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

void dr_verbs_rail_emit(struct vb_rail *r, struct dr_event *ev)
{
	dr_dassert(r->sink);
	ev->path = NULL;
	ev->rail = &r->base;
	r->n_events++;
	r->sink->event(r->sink, ev);
}

void dr_verbs_rail_kick(struct vb_rail *r)
{
	if (r->par.poller && !r->sink && !r->closed)
		dr_poller_kick(r->par.poller, &r->self);
}

void dr_verbs_rail_fail(struct vb_rail *r, enum dr_scope scope, int err, const char *fmt, ...)
{
	va_list ap;

	if (r->err && (r->scope == DR_SCOPE_RAIL || scope != DR_SCOPE_RAIL))
		return;
	r->scope = scope;
	r->err = err;
	r->err_due = true;
	va_start(ap, fmt);
	vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
	dr_verbs_rail_kick(r);
}

/* ---- what wakes its owner ---- */

static void tell_owner(struct vb_rail *r, int64_t now_ns)
{
	if (r->par.ready)
		r->par.ready(r->par.arg, now_ns);
}

static void drain_fd(int fd)
{
	uint64_t v;
	ssize_t n = read(fd, &v, sizeof(v));

	(void)n; /* nothing there: another call took it */
}

static void comp_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct vb_rail *r = dr_container_of(po, struct vb_rail, comp);

	(void)revents;
	dr_verbs_cq_events(r);
	dr_verbs_look(&r->watch, now_ns);
}

static void async_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct vb_rail *r = dr_container_of(po, struct vb_rail, async);

	(void)revents;
	r->async_fired = true;
	tell_owner(r, now_ns);
}

static void helped_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct vb_rail *r = dr_container_of(po, struct vb_rail, helped);

	(void)revents;
	r->syscalls++;
	drain_fd(po->fd);
	tell_owner(r, now_ns);
}

static void self_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	(void)revents;
	tell_owner(dr_container_of(po, struct vb_rail, self), now_ns);
}

static void tick_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct vb_rail *r = dr_container_of(po, struct vb_rail, tick);

	(void)revents;
	r->syscalls++;
	drain_fd(po->fd);
	for (struct vb_path *p = r->paths; p; p = p->next)
		if (p->ticks && !p->is_ready) {
			p->is_ready = true;
			p->ready_next = r->ready;
			r->ready = p;
		}
	dr_verbs_run_ready(r, now_ns);
	if (r->dead || r->where.untold || r->err)
		tell_owner(r, now_ns);
}

/* While something waits for time: a path, or the device, which may take long. */
void dr_verbs_tick_update(struct vb_rail *r)
{
	int64_t ns = r->ticking > 0				 ? VB_TICK_NS
		     : r->dead || r->where.untold || r->err != 0 ? VB_SLOW_TICK_NS
								 : 0;
	struct itimerspec it = { { 0, ns }, { 0, ns } };

	if (r->tick.fd < 0 || ns == r->tick_ns || r->closed)
		return;
	r->tick_ns = ns;
	r->syscalls++;
	(void)timerfd_settime(r->tick.fd, 0, &it, NULL);
}

static int watch_all(struct vb_rail *r, struct dr_err *e)
{
	struct dr_poller *poller = r->par.poller;

	if (!poller)
		return 0;
	r->helped.fd = r->helper.efd;
	r->tick.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (r->tick.fd < 0)
		return dr_err_set(e, -errno, "rail %u: timer: %s", r->base.index, strerror(errno));
	int rc = dr_verbs_nic_watch(r);
	if (rc == 0)
		rc = dr_poller_add(poller, &r->helped, EPOLLIN);
	if (rc == 0)
		rc = dr_poller_add(poller, &r->tick, EPOLLIN);
	if (rc)
		return dr_err_set(e, rc, "rail %u: cannot poll its device: %s", r->base.index,
			dr_errno_name(rc));
	dr_poller_watch(poller, &r->watch);
	return 0;
}

static void unwatch_all(struct vb_rail *r)
{
	if (!r->par.poller)
		return;
	dr_poller_unwatch(r->par.poller, &r->watch);
	dr_verbs_nic_unwatch(r);
	dr_poller_del(r->par.poller, &r->helped);
	dr_poller_del(r->par.poller, &r->tick);
	dr_poller_del(r->par.poller, &r->self);
	if (r->tick.fd >= 0)
		close(r->tick.fd);
	r->tick.fd = -1;
}

/* ---- up ---- */

static int open_all(struct vb_rail *r, struct dr_err *e)
{
	int rc = dr_verbs_nic_open(r, e);

	dr_verbs_nic_use(r);
	if (rc == 0)
		rc = dr_verbs_helper_start(&r->helper, r->par.poller != NULL, e);
	return rc ? rc : watch_all(r, e);
}

int dr_verbs_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	struct dr_verbs_params vp;
	uint64_t seed;

	dr_verbs_params_init(&vp);
	if (p->kind_params)
		vp = *(const struct dr_verbs_params *)p->kind_params;
	dr_assert(vp.qps >= 1 && vp.qps <= DR_VERBS_QPS_MAX);
	int rc = dr_random_bytes(&seed, sizeof(seed));
	if (rc)
		return dr_err_set(
			e, rc, "rail %u: no random bytes: %s", p->index, dr_errno_name(rc));
	struct vb_rail *r = dr_calloc(1, sizeof(*r));
	if (!r)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", p->index);
	r->base = (struct dr_rail){ .ops = &dr_verbs_ops, .index = p->index };
	r->par = *p;
	r->vp = vp;
	r->where.pinned = r->limit.on = vp.distrusts;
	snprintf(r->ifname, sizeof(r->ifname), "%s", p->ifname ? p->ifname : "");
	r->par.ifname = r->ifname;
	r->par.kind_params = NULL;
	dr_rng_seed(&r->rng, seed);
	dr_verbs_admission_init(&r->admission, p->token);
	r->watch = (struct dr_watch){ .poll = dr_verbs_look, .arm = dr_verbs_arm };
	r->comp = (struct dr_pollable){ .fd = -1, .ready = comp_ready };
	r->async = (struct dr_pollable){ .fd = -1, .ready = async_ready };
	r->helped = (struct dr_pollable){ .fd = -1, .ready = helped_ready };
	r->tick = (struct dr_pollable){ .fd = -1, .ready = tick_ready };
	r->self = (struct dr_pollable){ .fd = -1, .ready = self_ready };
	rc = open_all(r, e);
	if (rc) {
		dr_verbs_rail_close(&r->base);
		dr_verbs_rail_fini(&r->base);
		return rc;
	}
	*out = &r->base;
	return 0;
}

/* ---- peer ---- */

void dr_verbs_rail_addr(const struct vb_rail *r, struct dr_verbs_addr *out)
{
	*out = (struct dr_verbs_addr){ .roce = r->dev.roce,
		.port = r->dev.port,
		.mtu = (uint16_t)r->dev.mtu,
		.lid = r->dev.lid,
		.ud_qpn = r->ud.qp->qp_num,
		.ud_qkey = r->ud.qkey };
	memcpy(out->gid, &r->dev.gid, sizeof(out->gid));
}

int dr_verbs_rail_handle(struct dr_rail *br, void *buf, size_t cap)
{
	struct vb_rail *r = vb_rail(br);
	struct dr_verbs_addr a;

	if (r->closed || r->dead)
		return r->closed ? -EBADF : -ENODEV;
	dr_verbs_rail_addr(r, &a);
	return dr_verbs_addr_encode(&a, buf, cap);
}

static bool reachable(const struct vb_rail *r, const struct dr_verbs_addr *a, const char **why)
{
	enum { PREFIX = 8 }; /* bytes of a GID that name its subnet */

	if (a->roce != r->dev.roce)
		*why = a->roce ? "it is on Ethernet, this end is on InfiniBand"
			       : "it is on InfiniBand, this end is on Ethernet";
	else if (!a->roce && memcmp(a->gid, r->dev.gid.raw, PREFIX) != 0)
		*why = "it is in another InfiniBand subnet, and LIDs are not routed; "
		       "use rails of one subnet";
	else
		return true;
	return false;
}

int dr_verbs_rail_peer(struct dr_rail *br, const void *handle, size_t len, struct dr_err *e)
{
	struct vb_rail *r = vb_rail(br);
	struct dr_verbs_addr a;
	const char *why = "?";

	if (r->closed)
		return dr_err_set(e, -EBADF, "rail %u: closed", br->index);
	int rc = dr_verbs_addr_parse(handle, len, &a, &why);
	if (rc == 0 && !reachable(r, &a, &why))
		rc = -EPROTO;
	if (rc)
		return dr_err_set(e, rc, "rail %u: the peer's handle (%zu bytes) is invalid: %s",
			br->index, len, why);
	dr_verbs_where_peer(&r->where, &a);
	dr_verbs_ah_renew(r);
	return 0;
}

/* ---- progress ---- */

static void take_jobs(struct vb_rail *r)
{
	struct vb_jobs jobs;

	dr_verbs_helper_take(&r->helper, &jobs);
	for (struct vb_job *job; (job = STAILQ_FIRST(&jobs));) {
		STAILQ_REMOVE_HEAD(&jobs, next);
		job->done(job);
	}
}

static bool async_due(struct vb_rail *r, int64_t now_ns)
{
	if (r->par.poller || now_ns - r->async_ns < DR_NS_PER_MS)
		return r->async_fired;
	r->async_ns = now_ns;
	return true;
}

static void report_failure(struct vb_rail *r)
{
	struct dr_event ev = {
		.kind = DR_EV_FAILED, .scope = r->scope, .err = r->err, .text = r->text
	};

	r->err_due = false;
	dr_verbs_rail_emit(r, &ev);
}

int dr_verbs_rail_progress(struct dr_rail *br, int64_t now_ns, struct dr_sink *sink)
{
	struct vb_rail *r = vb_rail(br);

	if (r->closed)
		return 0;
	dr_assert(!r->sink);
	r->sink = sink;
	r->now_ns = now_ns;
	r->n_events = r->n_taken = 0;
	take_jobs(r);
	if (async_due(r, now_ns)) {
		r->async_fired = false;
		dr_verbs_event_progress(r);
	}
	dr_verbs_nic_progress(r);
	if (!r->dead)
		dr_verbs_ud_progress(r);
	if (r->err_due && !r->closed)
		report_failure(r);
	r->sink = NULL;
	if (!r->dead && r->ud.at < r->ud.n)
		dr_verbs_rail_kick(r);
	return DR_MAX(r->n_events, r->n_taken);
}

/* ---- down ---- */

void dr_verbs_rail_close(struct dr_rail *br)
{
	struct vb_rail *r = vb_rail(br);

	if (r->closed)
		return;
	r->closed = true;
	unwatch_all(r);
}

void dr_verbs_rail_fini(struct dr_rail *br)
{
	struct vb_rail *r = vb_rail(br);

	dr_assert(r->n_paths == 0);
	dr_verbs_rail_close(br);
	if (r->helper.running) {
		dr_verbs_helper_stop(&r->helper);
		take_jobs(r);
		dr_verbs_helper_fini(&r->helper);
	}
	if (r->strays || r->quarantined)
		dr_debug("verbs", "rail %u: %llu completions without owner, %llu connections stuck",
			br->index, (unsigned long long)r->strays,
			(unsigned long long)r->quarantined);
	dr_verbs_mr_fini(r);
	(void)dr_verbs_nic_close(r); /* what it could not close it has logged */
	dr_free(r->slots);
	dr_free(r);
}
