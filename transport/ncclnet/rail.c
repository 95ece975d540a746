/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's end of a rail: one device of the plugin. A plugin has nothing to sleep on, so
 * the poller looks at the rail in every wait. When nothing has moved for SPIN_NS, the wait may sleep, and a timer ends
 * the sleep: soon at first, later after TIMER_MAX_NS.
 */
#include "transport/ncclnet/net_priv.h"

#include "transport/ncclnet/watch.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const int64_t SPIN_NS = 100 * DR_NS_PER_US, TIMER_MIN_NS = 20 * DR_NS_PER_US,
		     TIMER_MAX_NS = DR_NS_PER_MS;
/* Between two looks at the listener while no comm is on its way. */
static const int64_t ACCEPT_NS = 500 * DR_NS_PER_US;

void dr_nn_rail_event(struct nn_rail *r, struct dr_event *ev)
{
	ev->rail = &r->base;
	r->n_events++;
	r->sink->event(r->sink, ev);
}

/* ---- the poller ---- */

static bool opening(const struct nn_rail *r)
{
	for (const struct nn_path *p = r->paths; p; p = p->next)
		if (p->state == NN_OPENING)
			return true;
	return r->n_pending > 0 || r->n_askers > 0 || r->n_listeners > 0;
}

/* Paths may come and go in the calls; a new one stands in front of the cursor. */
static int look(struct dr_watch *w, int64_t now_ns)
{
	struct nn_rail *r = dr_container_of(w, struct nn_rail, watch);
	int64_t before = r->moved_ns;

	if (r->par.ready && (now_ns - r->looked_ns >= ACCEPT_NS || r->asked || opening(r)))
		r->par.ready(r->par.arg, now_ns);
	for (struct nn_path *p = r->paths; p; p = r->cursor) {
		r->cursor = p->next;
		if (p->base.par.ready)
			p->base.par.ready(p->base.par.arg, now_ns);
	}
	return r->moved_ns != before;
}

static bool arm(struct dr_watch *w, int64_t now_ns)
{
	struct nn_rail *r = dr_container_of(w, struct nn_rail, watch);
	int64_t idle = now_ns - r->moved_ns, delay = DR_MIN(idle / 8, TIMER_MAX_NS);
	struct itimerspec at = { .it_value.tv_nsec = DR_MAX(delay, TIMER_MIN_NS) };

	if (idle < SPIN_NS)
		return true;
	return timerfd_settime(r->timer.fd, 0, &at, NULL) != 0;
}

static void timer_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	uint64_t n;

	(void)revents;
	(void)now_ns;
	if (read(po->fd, &n, sizeof(n)) < 0)
		return; /* not due yet */
}

/* A dialler asks for a handle: look() sees to it. */
static void ask_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct nn_rail *r = dr_container_of(po, struct nn_rail, ask);

	(void)revents;
	(void)now_ns;
	r->asked = true;
}

static int start_timer(struct nn_rail *r, struct dr_err *e)
{
	int rc;

	if (!r->par.poller)
		return 0;
	r->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	rc = r->timer.fd < 0 ? -errno : dr_poller_add(r->par.poller, &r->timer, EPOLLIN);
	if (rc)
		return dr_err_set(e, rc, "rail %u: no timer: %s", r->base.index, dr_errno_name(rc));
	dr_poller_watch(r->par.poller, &r->watch);
	return 0;
}

static void stop_timer(struct nn_rail *r)
{
	if (!r->par.poller || r->timer.fd < 0)
		return;
	dr_poller_unwatch(r->par.poller, &r->watch);
	dr_poller_del(r->par.poller, &r->timer);
	close(r->timer.fd);
	r->timer.fd = -1;
}

/* ---- listening ---- */

static uint16_t hash(const char *name)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return (uint16_t)(h ^ h >> 16);
}

static int open_listener(struct nn_rail *r, struct dr_err *e)
{
	int err = dr_random_bytes(r->self.nonce, sizeof(r->self.nonce));

	if (err)
		return dr_err_set(e, err, "rail %u: no random bytes from the kernel: %s",
			r->base.index, dr_errno_name(err));
	r->self.plugin = hash(r->n->name);
	return dr_nn_listener_open(r, e);
}

/* The project's own plugin hides failures from the channels above it, which then have none to measure. */
static void tell_backup(const char *name)
{
	static atomic_bool told;
	const char *backup = getenv("HA_NCCL_ENABLE_BACKUP");

	if (strcmp(name, "HA") == 0 && (!backup || strcmp(backup, "0") != 0) &&
		!atomic_exchange(&told, true))
		dr_warn("nccl",
			"plugin HA moves to another NIC by itself, and so would this program: give --detect "
			"transport to leave that to the plugin, or set HA_NCCL_ENABLE_BACKUP=0 at both "
			"ends to leave it to this program");
}

static int use_unpack(struct nn_rail *r, const struct dr_nccl_params *k, struct dr_err *e)
{
	enum nn_unpack_mode mode = k ? (enum nn_unpack_mode)k->unpack : NN_UNPACK_AUTO;

	if (!r->dev.unpack && mode != NN_UNPACK_AUTO)
		return dr_err_set(e, -EINVAL,
			"--unpack %s means nothing with plugin %.40s, which leaves no data in pieces; omit it",
			dr_nn_unpack_names[mode], r->n->name);
	if (!r->dev.unpack)
		return 0;
	dr_nn_unpack_settings(r->self.setting, NN_SETTINGS);
	if (!r->gpu.ops && (mode == NN_UNPACK_KERNEL || mode == NN_UNPACK_D2D))
		return dr_err_set(e, -EINVAL,
			"--unpack %s needs data buffers in GPU memory; use --memory cuda, or --unpack host",
			dr_nn_unpack_names[mode]);
	if (mode == NN_UNPACK_AUTO)
		mode = r->gpu.ops ? NN_UNPACK_KERNEL : NN_UNPACK_HOST;
	r->unpack = mode;
	return r->gpu.ops ? r->gpu.ops->prepare(r->gpu.arg, e) : 0;
}

static int open_rail(struct nn_rail *r, const struct dr_rail_params *p, struct dr_err *e)
{
	const struct dr_nccl_params *k = p->kind_params;
	int rc = dr_nccl_host_get(k ? k->file : NULL, k ? k->version : 0, &r->host, e);

	if (rc)
		return rc;
	r->n = dr_nccl_host_plugin(r->host);
	rc = dr_nccl_host_device(r->host, p->ifname ? p->ifname : "", &r->dev, e);
	if (!rc && !p->alone)
		tell_backup(r->n->name);
	if (!rc && k && r->dev.cuda)
		r->gpu = k->gpu;
	if (!rc)
		rc = use_unpack(r, k, e);
	if (!rc && dr_nn_service_open(r->host, r->dev.dev, &r->gpu, &r->service))
		rc = dr_err_set(e, -ENOMEM, "rail %u: out of memory", r->base.index);
	nn_rail_enter(r);
	if (!rc)
		rc = open_listener(r, e);
	return rc ? rc : start_timer(r, e);
}

int dr_nn_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	struct nn_rail *r = dr_calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", p->index);
	r->base = (struct dr_rail){ .ops = &dr_nccl_ops, .index = p->index };
	r->par = *p;
	r->par.kind_params = NULL;
	r->par.ifname = NULL;
	r->scope_id = p->ifname && *p->ifname ? if_nametoindex(p->ifname) : 0;
	r->ask = (struct dr_pollable){ .fd = -1, .ready = ask_ready };
	r->timer = (struct dr_pollable){ .fd = -1, .ready = timer_ready };
	r->watch = (struct dr_watch){ .poll = look, .arm = arm, .with_fds = true };
	dr_key_derive(p->token, DR_KEY_NCCL_HELLO, r->key);
	rc = open_rail(r, p, e);
	if (rc) {
		dr_nn_rail_fini(&r->base);
		return rc;
	}
	*out = &r->base;
	return 0;
}

int dr_nn_rail_handle(struct dr_rail *br, void *buf, size_t cap)
{
	struct nn_rail *r = nn_rail(br);

	return r->closed ? -EBADF : dr_nn_rail_handle_encode(&r->self, buf, cap);
}

int dr_nn_rail_peer(struct dr_rail *br, const void *handle, size_t len, struct dr_err *e)
{
	struct nn_rail *r = nn_rail(br);
	struct nn_rail_handle h;
	const char *why = "?";

	if (r->closed)
		return dr_err_set(e, -EBADF, "rail %u: closed", br->index);
	int err = dr_nn_rail_handle_parse(handle, len, &h, &why);
	if (!err && h.plugin != r->self.plugin) {
		why = "it is of another plugin; use the same one at both ends";
		err = -EPROTO;
	}
	if (err)
		return dr_err_set(e, err, "rail %u: the peer's handle (%zu bytes) is invalid: %s",
			br->index, len, why);
	for (unsigned i = 0; !err && i < NN_SETTINGS; i++)
		if (h.setting[i] != r->self.setting[i])
			return dr_err_set(e, -EPROTO,
				"rail %u: %s is %u here and %u at the peer (0: not set); plugin %.40s needs the same at "
				"both ends",
				br->index, dr_nn_unpack_setting(i), r->self.setting[i],
				h.setting[i], r->n->name);
	r->peer = h;
	r->has_peer = true;
	return 0;
}

/* ---- datagrams: on the control comms of the paths ---- */

static void send_dgram(struct nn_path *p, const void *data, size_t len)
{
	if (dr_nn_may_post(p) == 0 && dr_path_queue_bytes(&p->ctrl, DR_PATH_DGRAM, data, len) == 0)
		dr_path_flush(&p->base.path, p->base.now_ns);
}

/* On the path that was heard last. The peer may have fenced it, and nothing tells so here: if none
 * was heard since the last datagram, or the plugin still has what was sent there, every path
 * carries a copy. */
void dr_nn_rail_dgram(struct dr_rail *br, const void *data, size_t len)
{
	struct nn_rail *r = nn_rail(br);
	int64_t heard = atomic_load_explicit(&br->rx_last_ns, memory_order_relaxed);
	bool news = heard != r->heard_ns;

	r->heard_ns = heard;
	for (struct nn_path *p = r->paths; p && news; p = p->next)
		if (p->state == NN_UP && p->base.path.rx_last_ns == heard &&
			nn_queue_used(&p->out) == 0) {
			send_dgram(p, data, len);
			return;
		}
	for (struct nn_path *p = r->paths; p; p = p->next)
		send_dgram(p, data, len);
}

void dr_nn_rail_dgram_came(struct nn_rail *r, const void *data, uint32_t len, int64_t now_ns)
{
	struct dr_event ev = { .kind = DR_EV_DGRAM, .data = data, .len = len, .size = len };

	r->came = &ev;
	if (r->par.ready)
		r->par.ready(r->par.arg, now_ns);
	r->came = NULL;
}

/* ---- progress and end ---- */

int dr_nn_rail_progress(struct dr_rail *br, int64_t now_ns, struct dr_sink *sink)
{
	struct nn_rail *r = nn_rail(br);

	if (r->closed)
		return 0;
	r->sink = sink;
	r->n_events = 0;
	r->looked_ns = now_ns;
	nn_rail_enter(r);
	if (r->came) {
		dr_nn_rail_event(r, r->came);
	} else {
		dr_nn_dials_progress(r, now_ns);
		dr_nn_listener_progress(r, now_ns);
		dr_nn_pending_progress(r, now_ns);
	}
	r->sink = NULL;
	return r->n_events;
}

void dr_nn_rail_close(struct dr_rail *br)
{
	struct nn_rail *r = nn_rail(br);

	r->closed = true;
	nn_rail_enter(r);
	stop_timer(r);
	dr_nn_listener_close(r);
	dr_nn_pending_close(r);
	dr_nn_dials_progress(r, 0);
}

void dr_nn_rail_fini(struct dr_rail *br)
{
	struct nn_rail *r = nn_rail(br);

	dr_assert(r->n_paths == 0);
	dr_nn_rail_close(br);
	dr_nn_service_close(r->service);
	if (r->host)
		dr_nccl_host_put(r->host);
	dr_free(r);
}

/* ---- memory ---- */

/* The GPU puts pieces together itself, and sees what it has copied. */
static bool needs_flush(const struct nn_rail *r, const struct dr_memory *m)
{
	return !r->dev.unpack && (r->dev.force_flush || !m->ordered);
}

/* Why the plugin is not given GPU memory; NULL: it is. */
static const char *why_not_cuda(const struct nn_rail *r, const struct dr_memory *m)
{
	if (!r->gpu.ops)
		return "host memory only";
	if (needs_flush(r, m) && !r->dev.can_flush)
		return "GPU memory, but has no iflush, which the GPU or its own forceFlush requires";
	return NULL;
}

static int reg_cuda(
	struct nn_rail *r, const struct dr_memory *m, struct dr_mr *mr, struct dr_err *e)
{
	const char *why = why_not_cuda(r, m);

	if (why)
		return dr_err_set(e, -ENOTSUP, "plugin %.40s supports %s", r->n->name, why);
	mr->cuda = true;
	mr->flush = needs_flush(r, m);
	mr->dmabuf = m->dmabuf && r->dev.dmabuf;
	mr->dmabuf_off = m->dmabuf_off;
	mr->dmabuf_fd = mr->dmabuf ? fcntl(m->dmabuf_fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (mr->dmabuf && mr->dmabuf_fd < 0)
		return dr_err_set(e, -errno, "rail %u: the dma-buf's descriptor: %s", r->base.index,
			strerror(errno));
	if (r->dev.unpack)
		(void)snprintf(mr->how, sizeof(mr->how), "plugin %.40s, pieces: %s", r->n->name,
			dr_nn_unpack_names[r->unpack]);
	else
		(void)snprintf(mr->how, sizeof(mr->how), "plugin %.40s%s", r->n->name,
			mr->dmabuf ? ", by a dma-buf" : "");
	return 0;
}

static void free_mr(struct dr_mr *mr)
{
	if (mr->dmabuf && mr->dmabuf_fd >= 0)
		close(mr->dmabuf_fd);
	dr_free(mr);
}

int dr_nn_mr_reg(struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	struct dr_mr *mr = dr_calloc(1, sizeof(*mr));
	int rc = 0;

	if (!mr)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", r->index);
	*mr = (struct dr_mr){ .base = m->base, .len = m->len, .dmabuf_fd = -1 };
	if (m->kind == DR_MEMORY_CUDA)
		rc = reg_cuda(nn_rail(r), m, mr, e);
	if (rc) {
		free_mr(mr);
		return rc;
	}
	*out = mr;
	return 0;
}

const char *dr_nn_memory(const struct dr_mr *mr)
{
	return mr->how;
}

/* Comms register it when they first use it. */
int dr_nn_mr_dereg(struct dr_rail *br, struct dr_mr *mr)
{
	struct nn_mem mem = { .base = mr->base, .len = mr->len, .mr = mr };
	struct nn_rail *r = nn_rail(br);
	int rc = 0, err;

	nn_rail_enter(r);
	for (struct nn_path *p = r->paths; p; p = p->next) {
		err = dr_nn_queue_forget(&p->data, &mem);
		rc = rc ? rc : err;
	}
	free_mr(mr);
	return rc;
}
