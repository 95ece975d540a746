/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a path: see enum tcp_state. Invariants:
 *  1. Events leave from progress alone, in this order: what was read, SENT, FAILED, FENCED.
 *  2. Every call of the sink may change the state (fence, close, posts); code that goes on after one
 *     looks at the state again.
 *  3. In FAILING and beyond no user's buffer is read or written, nor in WAITING and before: the
 *     kernel has copies, and no system call of ours is under way between calls of the owner.
 *  4. A remembered failure is told by the next progress; with a poller, a kick brings that about.
 */
#include "transport/tcp/tcp.h"

#include "base/mem.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void path_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct tcp_path *p = dr_container_of(po, struct tcp_path, po);

	p->polled = true;
	p->revents |= revents;
	if (p->par.ready)
		p->par.ready(p->par.arg, now_ns);
}

void dr_tcp_kick(struct tcp_path *p)
{
	struct dr_poller *poller = tcp_path_rail(p)->par.poller;

	if (poller && !p->sink)
		dr_poller_kick(poller, &p->po);
}

void dr_tcp_emit(struct tcp_path *p, struct dr_event *ev)
{
	dr_dassert(p->sink);
	ev->path = &p->base;
	ev->rail = p->base.rail;
	p->n_events++;
	p->sink->event(p->sink, ev);
}

/* ---- the socket under the path ---------------------------------------------------------------- */

void dr_tcp_watch(struct tcp_path *p, uint32_t events)
{
	struct dr_poller *poller = tcp_path_rail(p)->par.poller;
	int err;

	if (!poller)
		return;
	if (p->registered)
		err = dr_poller_mod(poller, &p->po, events);
	else
		err = dr_poller_add(poller, &p->po, events);
	p->registered = true;
	if (err)
		dr_tcp_fail(p, DR_SCOPE_LOCAL, err, "cannot poll the connection: %s",
			dr_errno_name(err));
}

/* Off the poller, kicks included: a broken socket would be ready forever. */
static void unwatch(struct tcp_path *p)
{
	struct dr_poller *poller = tcp_path_rail(p)->par.poller;

	if (poller)
		dr_poller_del(poller, &p->po);
	p->registered = false;
}

static void read_kernel_stats(struct tcp_path *p)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof(ti);
	struct dr_path_stats *st = &p->st;
	int queued = 0;

	if (p->po.fd < 0 || getsockopt(p->po.fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0)
		return;
	st->acked_bytes = ti.tcpi_bytes_acked;
	st->peer_ack_age_ns = ti.tcpi_last_ack_recv * DR_NS_PER_MS;
	st->rtt_ns = ti.tcpi_rtt * DR_NS_PER_US;
	st->rto_ns = ti.tcpi_rto * DR_NS_PER_US;
	st->retransmits = ti.tcpi_total_retrans;
	if (ioctl(p->po.fd, SIOCOUTQ, &queued) == 0)
		st->unacked_bytes = (uint64_t)queued;
}

static void close_socket(struct tcp_path *p, bool abort)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };

	unwatch(p);
	if (p->po.fd < 0)
		return;
	read_kernel_stats(p);
	/* The peer gets RST, and the kernel forgets what it has not sent. */
	if (abort)
		(void)setsockopt(p->po.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(p->po.fd);
	p->po.fd = -1;
}

/* ---- failure ---------------------------------------------------------------------------------- */

void dr_tcp_fail(struct tcp_path *p, enum dr_scope scope, int err, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (p->state >= TCP_FAILING)
		return;
	n = snprintf(p->text, sizeof(p->text), "channel %u path %u (rail %u): ", p->par.channel,
		p->par.index, p->base.rail->index);
	va_start(ap, fmt);
	vsnprintf(p->text + n, sizeof(p->text) - (size_t)n, fmt, ap);
	va_end(ap);
	p->scope = scope;
	p->err = err;
	p->state = TCP_FAILING;
	unwatch(p);
	dr_tcp_kick(p);
}

void dr_tcp_fail_socket(struct tcp_path *p, int err, const char *doing)
{
	enum dr_scope scope = DR_SCOPE_PATH;

	switch (-err) {
	case ENETDOWN:
	case ENETUNREACH:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENODEV:
	case EADDRNOTAVAIL: /* our address has left the device */
		scope = DR_SCOPE_RAIL;
		break;
	case ENOMEM:
	case ENOBUFS:
	case EMFILE:
	case ENFILE:
		scope = DR_SCOPE_LOCAL;
		break;
	}
	dr_tcp_fail(p, scope, err, "%s: %s (%s)", doing, strerror(-err), dr_errno_name(err));
}

static void report_failure(struct tcp_path *p)
{
	struct dr_event ev = {
		.kind = DR_EV_FAILED, .scope = p->scope, .err = p->err, .text = p->text
	};

	p->state = TCP_FAILED;
	dr_tcp_rx_withdraw(p);
	dr_tcp_tx_drop(p);
	dr_tcp_emit(p, &ev);
}

/* ---- coming up -------------------------------------------------------------------------------- */

static int create(struct dr_rail *br, const struct dr_path_params *par, struct dr_path **out,
	struct dr_err *e)
{
	struct tcp_rail *r = tcp_rail(br);
	struct tcp_path *p;
	int err;

	p = dr_calloc(1, sizeof(*p));
	if (!p)
		return dr_err_set(
			e, -ENOMEM, "channel %u path %u: out of memory", par->channel, par->index);
	p->base = (struct dr_path){ .ops = &dr_tcp_ops, .rail = br };
	p->par = *par;
	p->po = (struct dr_pollable){ .fd = -1, .ready = path_ready };
	p->st.peer_ack_age_ns = -1;
	err = dr_tcp_tx_init(p);
	if (!err)
		err = dr_tcp_rx_init(p);
	if (err) {
		dr_tcp_tx_fini(p);
		dr_tcp_rx_fini(p);
		dr_free(p);
		return dr_err_set(
			e, err, "channel %u path %u: out of memory", par->channel, par->index);
	}
	p->next = r->paths;
	r->paths = p;
	r->n_paths++;
	*out = &p->base;
	return 0;
}

static int handle(struct dr_path *bp, void *buf, size_t cap)
{
	struct tcp_path *p = tcp_path(bp);
	struct tcp_path_handle h = { .channel = p->par.channel,
		.gen = p->par.gen,
		.index = (uint8_t)p->par.index,
		.sender = p->par.sender,
		.connector = p->par.connector };

	return dr_tcp_path_handle_encode(&h, buf, cap);
}

static int check_handle(struct tcp_path *p, const void *buf, size_t len, struct dr_err *e)
{
	struct tcp_path_handle h;
	const char *why = "?";

	if (len == 0)
		return 0; /* no news: TCP needs the rail's handle only */
	if (dr_tcp_path_handle_parse(buf, len, &h, &why) == 0) {
		if (h.channel == p->par.channel && h.index == p->par.index && h.gen == p->par.gen &&
			h.sender != p->par.sender && h.connector != p->par.connector)
			return 0;
		why = "it is of another path, or of an end that thinks it is ours";
	}
	return dr_err_set(e, -EPROTO,
		"channel %u path %u gen %u: the peer's handle makes no sense: %s", p->par.channel,
		p->par.index, p->par.gen, why);
}

static void dial(struct tcp_path *p)
{
	struct tcp_rail *r = tcp_path_rail(p);
	char doing[160], to[TCP_NAME_LEN];
	struct dr_err e;
	int err;

	dr_tcp_addr_format(&r->peer, to);
	snprintf(doing, sizeof(doing), "cannot connect to %s", to);
	p->state = TCP_DIALLING;
	err = dr_tcp_sock_open(r, SOCK_STREAM, 0, false, &p->po.fd, &e);
	if (err) {
		dr_tcp_fail_socket(p, err, e.text);
		return;
	}
	dr_tcp_sock_tune(r, p->po.fd);
	if (connect(p->po.fd, (struct sockaddr *)&r->peer, dr_tcp_addr_len(&r->peer)) < 0 &&
		errno != EINPROGRESS) {
		dr_tcp_fail_socket(p, -errno, doing);
		return;
	}
	dr_tcp_watch(p, EPOLLIN | EPOLLOUT);
}

static int path_connect(
	struct dr_path *bp, const void *peer, size_t len, int64_t now_ns, struct dr_err *e)
{
	struct tcp_path *p = tcp_path(bp);
	struct tcp_rail *r = tcp_path_rail(p);
	int err;

	if (p->state != TCP_NEW)
		return dr_err_set(e, -EINVAL, "channel %u path %u: connect was called before",
			p->par.channel, p->par.index);
	if (p->par.connector && !r->has_peer)
		return dr_err_set(e, -ENOTCONN, "channel %u path %u: rail %u has no peer yet",
			p->par.channel, p->par.index, bp->rail->index);
	err = check_handle(p, peer, len, e);
	if (err)
		return err;
	p->now_ns = now_ns;
	if (p->par.connector) {
		dial(p);
	} else {
		p->state = TCP_WAITING;
		dr_tcp_admit_claim(p);
	}
	return 0;
}

void dr_tcp_adopt(struct tcp_path *p, int fd)
{
	uint8_t ok[TCP_HELLO_OK_LEN];
	ssize_t n;

	dr_assert(p->state == TCP_WAITING && p->po.fd < 0);
	p->po.fd = fd;
	p->state = TCP_ADMITTED;
	dr_tcp_sock_tune(tcp_path_rail(p), fd);
	dr_tcp_hello_ok_encode(p->par.gen, ok);
	p->st.syscalls++;
	n = send(fd, ok, sizeof(ok), MSG_NOSIGNAL);
	if (n != (ssize_t)sizeof(ok)) { /* the first bytes of a connection always fit */
		dr_tcp_fail_socket(p, n < 0 ? -errno : -EIO, "cannot admit the peer's connection");
		return;
	}
	p->st.tx_wire += sizeof(ok);
	dr_tcp_watch(p, EPOLLIN);
	dr_tcp_kick(p);
}

static void say_hello(struct tcp_path *p)
{
	struct tcp_rail *r = tcp_path_rail(p);
	struct tcp_hello h = { .channel = p->par.channel,
		.gen = p->par.gen,
		.index = (uint8_t)p->par.index,
		.sender = p->par.sender };
	char doing[160], to[TCP_NAME_LEN];
	uint8_t hello[TCP_HELLO_LEN];
	ssize_t n;

	memcpy(h.token, r->par.token, DR_TOKEN_LEN);
	dr_tcp_hello_encode(&h, hello);
	p->st.syscalls++;
	/* While the kernel connects this is EAGAIN; when connecting failed, the reason. */
	n = send(p->po.fd, hello, sizeof(hello), MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != (ssize_t)sizeof(hello)) {
		dr_tcp_addr_format(&r->peer, to);
		snprintf(doing, sizeof(doing), "cannot connect to %s", to);
		dr_tcp_fail_socket(p, n < 0 ? -errno : -EIO, doing);
		return;
	}
	p->st.tx_wire += sizeof(hello);
	p->base.tx_last_ns = p->now_ns;
	p->state = TCP_GREETING;
	dr_tcp_watch(p, EPOLLIN);
}

/* ---- progress --------------------------------------------------------------------------------- */

static void do_nothing(struct tcp_path *p)
{
	(void)p;
}

static void do_admitted(struct tcp_path *p)
{
	struct dr_event ev = { .kind = DR_EV_READY };

	p->state = TCP_UP;
	dr_tcp_emit(p, &ev);
}

static void do_up(struct tcp_path *p)
{
	/* What the poller said nothing about needs no system call. */
	uint32_t broken = EPOLLERR | EPOLLHUP;
	bool in = !p->polled || p->revents & (EPOLLIN | EPOLLRDHUP | broken);
	bool out = !p->polled || p->revents & (EPOLLOUT | broken);

	if (in || p->tx.err)
		dr_tcp_rx_pull(p);
	if (p->state == TCP_UP && p->tx.blocked && out) {
		p->tx.blocked = false;
		dr_tcp_tx_push(p);
	}
	if (p->state == TCP_UP && !p->tx.err)
		dr_tcp_watch(p, p->tx.blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static const struct {
	const char *name;
	void (*progress)(struct tcp_path *p);
} states[TCP_N_STATES] = {
	[TCP_NEW] = { "new", do_nothing },
	[TCP_WAITING] = { "waiting", do_nothing },
	[TCP_DIALLING] = { "dialling", say_hello },
	[TCP_GREETING] = { "greeting", dr_tcp_rx_pull },
	[TCP_ADMITTED] = { "admitted", do_admitted },
	[TCP_UP] = { "up", do_up },
	[TCP_FAILING] = { "failing", do_nothing },
	[TCP_FAILED] = { "failed", do_nothing },
	[TCP_ABORTED] = { "aborted", do_nothing },
	[TCP_FENCED] = { "fenced", do_nothing },
	[TCP_CLOSED] = { "closed", do_nothing },
};

static void abort_path(struct tcp_path *p)
{
	p->state = TCP_ABORTED;
	dr_tcp_rx_withdraw(p);
	dr_tcp_tx_drop(p);
	close_socket(p, true);
	dr_tcp_kick(p);
}

static void settle_fence(struct tcp_path *p)
{
	struct dr_event ev = { .kind = DR_EV_FENCED };

	if (p->fence == TCP_FENCE_SOFT && p->state == TCP_UP && p->tx.done != p->tx.posted) {
		if (p->now_ns < p->fence_deadline_ns)
			return;
		p->fence = TCP_FENCE_HARD;
		abort_path(p);
	}
	if (p->state == TCP_ABORTED)
		p->state = TCP_FENCED;
	p->fence = TCP_FENCE_NONE;
	dr_tcp_emit(p, &ev);
}

/* The sink, called late in a progress, may leave behind what no readiness of the socket announces. */
static bool work_left(const struct tcp_path *p)
{
	if (p->state == TCP_FAILING || p->tx.told != p->tx.done)
		return true;
	if (p->fence == TCP_FENCE_HARD || (p->state == TCP_UP && p->tx.err))
		return true;
	return p->fence == TCP_FENCE_SOFT && p->tx.done == p->tx.posted;
}

static int progress(struct dr_path *bp, int64_t now_ns, struct dr_sink *sink)
{
	struct tcp_path *p = tcp_path(bp);

	dr_assert(!p->sink);
	p->sink = sink;
	p->now_ns = now_ns;
	p->n_events = 0;
	states[p->state].progress(p);
	p->polled = false;
	p->revents = 0;
	dr_tcp_tx_report(p);
	if (p->state == TCP_FAILING)
		report_failure(p);
	if (p->fence != TCP_FENCE_NONE && p->state != TCP_CLOSED)
		settle_fence(p);
	p->sink = NULL;
	if (work_left(p))
		dr_tcp_kick(p);
	return p->n_events;
}

/* ---- fence and end ---------------------------------------------------------------------------- */

static void fence(struct dr_path *bp, bool soft, int64_t deadline_ns)
{
	struct tcp_path *p = tcp_path(bp);

	if (p->state >= TCP_ABORTED)
		return; /* fenced hard before, or closed */
	p->fence_deadline_ns = deadline_ns;
	if (soft && p->state < TCP_FAILING) {
		if (p->fence == TCP_FENCE_NONE)
			p->fence = TCP_FENCE_SOFT;
		dr_tcp_rx_withdraw(p);
		if (p->state == TCP_UP)
			dr_tcp_flush(bp, p->now_ns);
		dr_tcp_kick(p);
		return;
	}
	p->fence = TCP_FENCE_HARD;
	abort_path(p);
}

static void stats(struct dr_path *bp, struct dr_path_stats *out)
{
	struct tcp_path *p = tcp_path(bp);

	if (p->state >= TCP_GREETING)
		read_kernel_stats(p);
	*out = p->st;
}

static void path_close(struct dr_path *bp)
{
	struct tcp_path *p = tcp_path(bp);
	struct tcp_path **link = &tcp_path_rail(p)->paths;

	if (p->state == TCP_CLOSED)
		return;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	/* What the kernel has taken goes out still; after a failure there is nobody to send it to. */
	close_socket(p, p->state >= TCP_FAILING);
	p->state = TCP_CLOSED;
	p->fence = TCP_FENCE_NONE;
	dr_tcp_rx_withdraw(p);
	dr_tcp_tx_drop(p);
	p->tx.told = p->tx.done;
}

static void stop(struct dr_path *bp)
{
	/* Nothing of ours runs between the owner's calls, so that close was the end of it. */
	dr_assert(tcp_path(bp)->state == TCP_CLOSED && !tcp_path(bp)->sink);
}

static void fini(struct dr_path *bp)
{
	struct tcp_path *p = tcp_path(bp);

	dr_assert(p->state == TCP_CLOSED && !p->sink);
	tcp_path_rail(p)->n_paths--;
	dr_tcp_tx_fini(p);
	dr_tcp_rx_fini(p);
	dr_free(p);
}

const struct dr_transport_ops dr_tcp_ops = {
	sizeof(struct dr_transport_ops),
	"tcp",
	DR_CAP_ORDERED | DR_CAP_SOFT_FENCE | DR_CAP_DGRAM | DR_CAP_RESET,
	dr_tcp_listen,
	dr_tcp_rail_handle,
	dr_tcp_rail_peer,
	dr_tcp_rail_dgram,
	dr_tcp_rail_progress,
	dr_tcp_rail_close,
	dr_tcp_rail_fini,
	dr_tcp_mr_reg,
	dr_tcp_mr_dereg,
	create,
	handle,
	path_connect,
	dr_tcp_post_recv,
	dr_tcp_post_send,
	dr_tcp_post_ctrl,
	dr_tcp_flush,
	dr_tcp_credit,
	progress,
	fence,
	stats,
	path_close,
	stop,
	fini,
};
