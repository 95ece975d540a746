/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

#include <endian.h>

/* The tests' side: struct dr_fake_ctl. Each change is followed by a look at what can move now. */

#define EACH(d, only)                                                                              \
	for (struct dr_fake_dev *d = dr_fake_dev; d < dr_fake_dev + dr_fake_n_devs; d++)           \
		if (!d->gone && (!(only) || strcmp(d->ibv.name, only) == 0))

static void begin(void)
{
	dr_fake_lock();
	dr_fake_devs_read();
}

static void end(const bool *begun)
{
	(void)begun;
	dr_fake_move_all();
	dr_fake_unlock();
}

/* To the end of the block, also when it returns a value. */
#define CHANGE()                                                                                   \
	__attribute__((cleanup(end), unused)) bool begun = true;                                   \
	begin()
/* A function that sets this of a device, or of all. */
#define SETS(name, type, field)                                                                    \
	static void name(const char *dev, type to)                                                 \
	{                                                                                          \
		CHANGE();                                                                          \
		EACH(d, dev) d->field = to;                                                        \
	}
SETS(cut, unsigned, cut)
SETS(hole, unsigned, hole)
SETS(dmabuf, int, dmabuf_err)
SETS(hold, bool, held)
SETS(latency, int64_t, latency_ns)
SETS(drop, unsigned, drop)
SETS(retry7_for_ever, bool, retry7_for_ever)
SETS(loop, int, loop_err)

static void reset(void)
{
	dr_fake_lock();
	(void)dr_fake_reap(NULL);
	dr_fake_set_time(DR_NEVER);
	dr_fake_calls_reset();
	dr_fake_keep_cqes = false;
	dr_fake_mr_refuse(NULL, 0, 0);
	dr_fake_gpu_forget();
	dr_fake_devs_reset();
	dr_fake_devs_read();
	dr_fake_unlock();
}

static void set_time(int64_t now_ns)
{
	begin();
	dr_fake_set_time(now_ns);
	if (now_ns == DR_NEVER)
		dr_fake_timer_kick();
	else
		dr_fake_move_due(now_ns);
	dr_fake_unlock();
}

static void fail_call(const char *call, unsigned k, int err)
{
	CHANGE();
	dr_fake_call_fail(call, k, err);
}

static const char *failed(void)
{
	CHANGE();
	return dr_fake_call_failed();
}

static void fail_always(const char *call, int err)
{
	CHANGE();
	dr_fake_call_fail_always(call, err);
}

static void delay(const char *call, int ms)
{
	CHANGE();
	dr_fake_call_delay(call, ms);
}

static void before(const char *call, void (*fn)(void *arg), void *arg)
{
	CHANGE();
	dr_fake_call_before(call, fn, arg);
}

static unsigned count(const char *call)
{
	CHANGE();
	return dr_fake_call_count(call);
}

static void alive(struct dr_fake_alive *out)
{
	CHANGE();
	*out = (struct dr_fake_alive){ .lists = dr_fake_lists.n,
		.contexts = dr_fake_ctxs.n,
		.pds = dr_fake_pds.n,
		.mrs = dr_fake_mrs.n,
		.channels = dr_fake_channels.n,
		.cqs = dr_fake_cqs.n,
		.qps = dr_fake_qps.n,
		.ahs = dr_fake_ahs.n };
}

static unsigned alive_total(void)
{
	struct dr_fake_alive a;

	alive(&a);
	return a.lists + a.contexts + a.pds + a.mrs + a.channels + a.cqs + a.qps + a.ahs;
}

static unsigned violations(const char **first)
{
	CHANGE();
	return dr_fake_violations(first);
}

static void cut_type(const char *dev, enum ibv_qp_type type, unsigned dirs)
{
	CHANGE();
	EACH(d, dev) * (type == IBV_QPT_UD ? &d->cut_ud : &d->cut_rc) = dirs;
}

static void port(const char *dev, bool up)
{
	CHANGE();
	EACH(d, dev)
	{
		if (d->down == !up)
			continue;
		d->down = !up;
		dr_fake_emit(d, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, NULL);
	}
}

static void make_fatal(struct dr_fake_dev *d)
{
	d->fatal = true;
	for (unsigned i = 0; i < dr_fake_qps.n; i++)
		if (((struct dr_fake_qp *)dr_fake_qps.p[i])->dev == d)
			dr_fake_qp_err(dr_fake_qps.p[i]);
	dr_fake_emit(d, IBV_EVENT_DEVICE_FATAL, NULL);
}

static void fatal(const char *dev)
{
	CHANGE();
	EACH(d, dev) make_fatal(d);
}

static void unplug(const char *dev, bool waits)
{
	CHANGE();
	EACH(d, dev)
	{
		if (!waits)
			make_fatal(d);
		dr_fake_dev_unlist(d);
	}
}

static void infiniband(const char *dev, const struct dr_fake_ib *how)
{
	CHANGE();
	EACH(d, dev)
	{
		bool new_lid = d->ib && d->lid != how->lid;

		d->ib = true;
		d->lid = how->lid;
		d->grh_required = how->grh_required;
		(void)snprintf(d->ibv.ibdev_path, sizeof(d->ibv.ibdev_path), "%s", how->ibdev_path);
		memset(&d->gid[1], 0, sizeof(d->gid) - sizeof(d->gid[0]));
		d->gid[0].type = IBV_GID_TYPE_IB;
		if (how->prefix)
			d->gid[0].gid.global.subnet_prefix = htobe64(how->prefix);
		if (new_lid)
			dr_fake_emit(d, IBV_EVENT_LID_CHANGE, NULL);
	}
}

static unsigned routes(bool grh)
{
	CHANGE();
	return dr_fake_routes[grh];
}

/* Of the devices that had the name, the last one. */
static int plug(const char *dev, unsigned at)
{
	struct dr_fake_dev *old = NULL;
	int rc = -1;

	CHANGE();
	for (unsigned i = 0; i < dr_fake_n_devs; i++)
		if (strcmp(dr_fake_dev[i].ibv.name, dev) == 0)
			old = &dr_fake_dev[i];
	for (unsigned i = 0; old && i < dr_fake_ctxs.n; i++)
		if (!old->fatal && ((struct dr_fake_ctx *)dr_fake_ctxs.p[i])->dev == old)
			old = NULL; /* it cannot go before its users close it */
	if (old)
		rc = dr_fake_dev_again(old, at);
	return rc;
}

static void no_flush(const char *dev, bool on)
{
	CHANGE();
	EACH(d, dev) d->no_flush = on;
	for (unsigned i = 0; i < dr_fake_qps.n; i++)
		if (((struct dr_fake_qp *)dr_fake_qps.p[i])->state == IBV_QPS_ERR)
			dr_fake_qp_flush(dr_fake_qps.p[i]);
}

static void keep_cqes(bool on)
{
	CHANGE();
	dr_fake_keep_cqes = on;
}

static void refuse(const void *base, size_t len, int err)
{
	CHANGE();
	dr_fake_mr_refuse(base, len, err);
}

static void loop_hold(const char *dev, bool on)
{
	CHANGE();
	EACH(d, dev) d->loop_held = on;
	dr_fake_wake();
}

static void rtr(const char *dev, int ms, int err)
{
	CHANGE();
	EACH(d, dev)
	{
		d->rtr_ms = ms;
		d->rtr_err = err;
	}
}

static void status(const char *dev, uint32_t qpn, bool recv, enum ibv_wc_status s, unsigned skip)
{
	CHANGE();
	EACH(d, dev)
	d->rule[recv] = (struct dr_fake_rule){
		.on = s != IBV_WC_SUCCESS, .qpn = qpn, .skip = skip, .status = s
	};
}

static bool status_done(const char *dev, bool recv)
{
	bool done = false;

	CHANGE();
	EACH(d, dev) done = done || d->rule[recv].done;
	return done;
}

static int find_gid(const struct dr_fake_dev *d, const char *ipv4, unsigned type)
{
	union ibv_gid gid;

	dr_fake_gid_of(ipv4, &gid);
	for (int i = 0; i < DR_FAKE_GIDS; i++)
		if (d->gid[i].used && d->gid[i].type == type &&
			memcmp(&d->gid[i].gid, &gid, sizeof(gid)) == 0)
			return i;
	return -1;
}

static int gid_index(const char *dev, const char *ipv4, unsigned type)
{
	int at = -1;

	CHANGE();
	EACH(d, dev) at = at < 0 ? find_gid(d, ipv4, type) : at;
	return at;
}

static int gid_move(const char *dev, int from, int to)
{
	int rc = -1;

	CHANGE();
	EACH(d, dev)
	{
		if (from < 0 || from >= DR_FAKE_GIDS || to < 0 || to >= DR_FAKE_GIDS ||
			!d->gid[from].used || d->gid[to].used)
			continue;
		d->gid[to] = d->gid[from];
		d->gid[from].used = false;
		dr_fake_emit(d, IBV_EVENT_GID_CHANGE, NULL);
		rc = 0;
	}
	return rc;
}

static int addr_del(const char *dev, const char *ipv4)
{
	int rc = -1;

	CHANGE();
	EACH(d, dev)
	{
		for (unsigned t = IBV_GID_TYPE_ROCE_V1; t <= IBV_GID_TYPE_ROCE_V2; t++) {
			int at = find_gid(d, ipv4, t);

			if (at < 0)
				continue;
			d->gid[at].used = false;
			dr_fake_emit(d, IBV_EVENT_GID_CHANGE, NULL);
			rc = 0;
		}
	}
	return rc;
}

static int addr_add(const char *dev, const char *ipv4)
{
	int rc = -1;

	CHANGE();
	EACH(d, dev)
	{
		unsigned type = IBV_GID_TYPE_ROCE_V1;

		for (int i = 0; i < DR_FAKE_GIDS && type <= IBV_GID_TYPE_ROCE_V2; i++) {
			if (d->gid[i].used)
				continue;
			d->gid[i].used = true;
			d->gid[i].type = type++;
			dr_fake_gid_of(ipv4, &d->gid[i].gid);
			dr_fake_emit(d, IBV_EVENT_GID_CHANGE, NULL);
			rc = 0;
		}
	}
	return rc;
}

static void event(const char *dev, uint32_t qpn, enum ibv_event_type type)
{
	CHANGE();
	EACH(d, dev)
	{
		struct dr_fake_qp *qp = qpn ? dr_fake_find_qp(d, qpn) : NULL;

		if (qp && type == IBV_EVENT_CQ_ERR)
			dr_fake_cq_break(dr_container_of(qp->ibv.send_cq, struct dr_fake_cq, ibv));
		else if (!qpn || qp)
			dr_fake_emit(d, type, qp);
	}
}

static int qp_error(uint32_t qpn, bool with_event)
{
	struct dr_fake_qp *qp;

	CHANGE();
	qp = dr_fake_find_qp(NULL, qpn);
	if (qp) {
		dr_fake_qp_err(qp);
		if (with_event)
			dr_fake_emit(qp->dev, IBV_EVENT_QP_FATAL, qp);
	}
	return qp ? 0 : -1;
}

static int qp_state(uint32_t qpn)
{
	const struct dr_fake_qp *qp;
	int s;

	CHANGE();
	qp = dr_fake_find_qp(NULL, qpn);
	s = qp ? (int)qp->state : -1;
	return s;
}

static unsigned qp_list(const char *dev, enum ibv_qp_type type, uint32_t *qpns, unsigned max)
{
	unsigned n = 0;

	CHANGE();
	for (unsigned i = 0; i < dr_fake_qps.n; i++) {
		const struct dr_fake_qp *qp = dr_fake_qps.p[i];

		if (qp->ibv.qp_type != type || (dev && strcmp(qp->dev->ibv.name, dev) != 0))
			continue;
		if (n < max)
			qpns[n] = qp->ibv.qp_num;
		n++;
	}
	return n;
}

extern const struct dr_fake_ctl dr_fake_ctl;
const struct dr_fake_ctl dr_fake_ctl = {
	.reset = reset,
	.time = set_time,
	.fail_call = fail_call,
	.failed = failed,
	.fail_always = fail_always,
	.delay = delay,
	.before = before,
	.count = count,
	.alive = alive,
	.alive_total = alive_total,
	.violations = violations,
	.cut = cut,
	.cut_type = cut_type,
	.hole = hole,
	.port = port,
	.fatal = fatal,
	.unplug = unplug,
	.plug = plug,
	.infiniband = infiniband,
	.routes = routes,
	.dmabuf = dmabuf,
	.peer_memory = dr_fake_peer_memory,
	.refuse = refuse,
	.hold = hold,
	.latency = latency,
	.drop = drop,
	.retry7_for_ever = retry7_for_ever,
	.no_flush = no_flush,
	.keep_cqes = keep_cqes,
	.rtr = rtr,
	.loop = loop,
	.loop_hold = loop_hold,
	.status = status,
	.status_done = status_done,
	.gid_index = gid_index,
	.gid_move = gid_move,
	.addr_del = addr_del,
	.addr_add = addr_add,
	.event = event,
	.qp_error = qp_error,
	.qp_state = qp_state,
	.qp_list = qp_list,
};
