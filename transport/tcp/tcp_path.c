/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a path: see enum tcp_state. Invariants:
 *  1. Events leave from progress alone, in this order: what was read, SENT, FAILED, FENCED.
 *  2. Every call of the sink may change the state (fence, close, posts); code that goes on after one
 *     looks at the state again.
 *  3. In FAILING and beyond no user's buffer is read or written, nor in WAITING and before: the
 *     kernel has copies, and no system call of ours is under way between calls of the owner.
 *  4. A kept failure is reported by the next progress; with a poller, a kick causes it.
 */
#include "transport/tcp/tcp.h"

#include "base/clock.h"
#include "base/failure.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <stdatomic.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void path_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct tcp_path *p = dr_container_of(po, struct tcp_path, base.po);

	p->polled = true;
	p->revents |= revents;
	if (p->base.par.ready)
		p->base.par.ready(p->base.par.arg, now_ns);
}

/* ---- the socket under the path ---------------------------------------------------------------- */

void dr_tcp_watch(struct tcp_path *p, uint32_t events)
{
	struct dr_poller *poller = p->base.poller;
	int err;

	if (!poller)
		return;
	if (p->registered)
		err = dr_poller_mod(poller, &p->base.po, events);
	else
		err = dr_poller_add(poller, &p->base.po, events);
	p->registered = true;
	if (err)
		dr_tcp_fail(p, DR_SCOPE_LOCAL, err, "cannot poll the connection: %s",
			dr_errno_name(err));
}

/* Off the poller, kicks included: a broken socket would be ready forever. */
static void unwatch(struct tcp_path *p)
{
	struct dr_poller *poller = p->base.poller;

	if (poller)
		dr_poller_del(poller, &p->base.po);
	p->registered = false;
}

/* Transmissions in a row that the peer's kernel did not answer. tcpi_probes and tcpi_retransmits count
 * them from the last answer on. If the peer has withdrawn its window with data in flight, the kernel
 * counts neither; then it sends one retransmission per tcpi_rto. The answer to the last repetition may be under way. */
enum { OVERDUE_US = 4000 }; /* the kernel's clock has steps of 1 to 4 ms */

unsigned dr_tcp_unanswered(const struct tcp_info *ti, bool withdrawn)
{
	uint64_t sent_us = (uint64_t)ti->tcpi_last_data_sent * 1000;

	if (ti->tcpi_unacked == 0)
		return ti->tcpi_probes;
	if (withdrawn && ti->tcpi_retransmits == 0 && ti->tcpi_rto > 0)
		return (unsigned)((uint64_t)ti->tcpi_last_ack_recv * 1000 / ti->tcpi_rto);
	if (ti->tcpi_retransmits > 0 && sent_us < OVERDUE_US + ti->tcpi_rtt * 3ull / 2)
		return ti->tcpi_retransmits - 1u;
	return ti->tcpi_retransmits;
}

/* Few segments show no losses: a window of them ends later. */
enum { RECENT_SEGMENTS = 2000 };
static const int64_t RECENT_NS = DR_NS_PER_S, RECENT_MAX_NS = 30 * DR_NS_PER_S;

/* The kernel's counts have 32 bits: at 400 Gb/s they wrap after two minutes. A path has one
 * connection. */
void dr_tcp_count_recent(struct tcp_path *p, uint32_t segments, uint32_t retransmits, int64_t now)
{
	struct tcp_counts *c = p->counts;

	if (now - c[1].ns >= RECENT_MAX_NS ||
		(now - c[1].ns >= RECENT_NS && segments - c[1].segments >= RECENT_SEGMENTS)) {
		c[0] = c[1];
		c[1] = (struct tcp_counts){ now, segments, retransmits };
	}
	p->base.st.recent_segments = segments - c[0].segments;
	p->base.st.recent_retransmits = retransmits - c[0].retransmits;
}

/* See dr_path_stats. A segment that is marked lost or was repeated is not in flight. */
static unsigned silent_segments(struct tcp_path *p, const struct tcp_info *ti, int64_t now)
{
	int64_t answer = now - (ti->tcpi_last_ack_recv + 1) * DR_NS_PER_MS;
	unsigned gone = ti->tcpi_sacked + ti->tcpi_lost;

	/* The age of the answer is in ms; the bytes tell of one that is younger. */
	if (answer > p->answer_ns || ti->tcpi_unacked == 0 ||
		ti->tcpi_bytes_acked != p->answer_bytes) {
		p->answer_ns = now;
		p->answer_bytes = ti->tcpi_bytes_acked;
		if (ti->tcpi_unacked > 0 || ti->tcpi_notsent_bytes == 0)
			p->nudges = 0;
		p->answer_segments = ti->tcpi_data_segs_out;
		p->answer_flight = ti->tcpi_unacked - DR_MIN(gone, ti->tcpi_unacked);
		dr_tcp_count_recent(p, ti->tcpi_data_segs_out, ti->tcpi_total_retrans, now);
	}
	unsigned n = p->answer_flight + (ti->tcpi_data_segs_out - p->answer_segments);

	return n == 0 && ti->tcpi_unacked > 0 ? 1
					      : n; /* all are marked lost, none is repeated yet */
}

static const int64_t NUDGE_NS = 8 * DR_NS_PER_MS;

/* With room at the peer and nothing in flight, each segment is refused on its way out of this host (by an
 * output filter), and not counted. The kernel tries again after an RTO only, or when it is told to. */
static unsigned nudge(struct tcp_path *p, int64_t now)
{
	int on = 1;

	if (now - p->nudged_ns < NUDGE_NS)
		return p->nudges;
	p->nudged_ns = now;
	(void)setsockopt(p->base.po.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	p->base.st.syscalls++;
	return ++p->nudges;
}

/* A UDP datagram that makes an IP packet as long as a full segment: MSS and TCP's header (20 bytes, 12 of
 * timestamps) instead of UDP's 8 bytes. */
static uint32_t segment_bytes(const struct tcp_info *ti)
{
	uint32_t size = ti->tcpi_snd_mss + 20 - 8;

	if (ti->tcpi_options & TCPI_OPT_TIMESTAMPS)
		size += 12;
	return DR_MIN(size, 65507u);
}

/* Adds to *total what a count of 32 bits has grown by since the last call. */
static void widen(uint64_t *total, uint32_t count)
{
	*total += (uint32_t)(count - (uint32_t)*total);
}

static void read_kernel_stats(struct tcp_path *p)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof(ti);
	struct dr_path_stats *st = &p->base.st;
	int queued = 0;

	if (p->base.po.fd < 0 || getsockopt(p->base.po.fd, IPPROTO_TCP, TCP_INFO, &ti, &len) < 0)
		return;
	bool known = len >= offsetof(struct tcp_info, tcpi_snd_wnd) + sizeof(ti.tcpi_snd_wnd);
	bool withdrawn = known && ti.tcpi_snd_wnd == 0;
	bool waits = ti.tcpi_unacked == 0 && ti.tcpi_notsent_bytes > 0;
	bool room = known && ti.tcpi_snd_wnd >= ti.tcpi_snd_mss;
	st->peer_ack_age_ns = ti.tcpi_last_ack_recv * DR_NS_PER_MS;
	st->unanswered = dr_tcp_unanswered(&ti, withdrawn);
	st->window_shut = withdrawn || (waits && !room);
	st->silent_segments = silent_segments(p, &ti, dr_now_ns());
	st->repeats = true;
	if (waits && room)
		st->silent_segments += nudge(p, dr_now_ns());
	st->segment_bytes = segment_bytes(&ti);
	widen(&st->rx_segments, ti.tcpi_data_segs_in);
	st->held_ns = (int64_t)ti.tcpi_rwnd_limited * DR_NS_PER_US;
	st->busy_ns = (int64_t)ti.tcpi_busy_time * DR_NS_PER_US;
	st->rtt_ns = ti.tcpi_rtt * DR_NS_PER_US;
	st->rtt_min_ns = (int64_t)ti.tcpi_min_rtt * DR_NS_PER_US;
	widen(&st->retransmits, ti.tcpi_total_retrans);
	if (ioctl(p->base.po.fd, SIOCOUTQ, &queued) == 0)
		st->unacked_bytes = (uint64_t)queued;
	st->acked_wire = st->tx_wire - DR_MIN(st->tx_wire, st->unacked_bytes);
	st->acked_bytes = DR_MIN(st->acked_wire, p->tx.data_end);
}

static void close_socket(struct tcp_path *p, bool abort)
{
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };

	unwatch(p);
	if (p->base.po.fd < 0)
		return;
	read_kernel_stats(p);
	/* The peer gets RST, and the kernel forgets what it has not sent. */
	if (abort)
		(void)setsockopt(p->base.po.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	else
		dr_tcp_rx_release(p);
	close(p->base.po.fd);
	p->base.po.fd = -1;
}

/* ---- failure ---------------------------------------------------------------------------------- */

void dr_tcp_fail(struct tcp_path *p, enum dr_scope scope, int err, const char *fmt, ...)
{
	va_list ap;

	if (p->state >= TCP_FAILING)
		return;
	va_start(ap, fmt);
	dr_path_keep_failure(&p->base, scope, err, fmt, ap);
	va_end(ap);
	p->state = TCP_FAILING;
	dr_tcp_hs_end(&p->hs);
	unwatch(p);
	dr_path_wake(&p->base);
}

void dr_tcp_fail_socket(struct tcp_path *p, int err, const char *doing)
{
	const struct tcp_rail *r = tcp_path_rail(p);
	enum dr_scope scope = DR_SCOPE_PATH;

	if (p->state == TCP_OPENING)
		dr_failure_keep(&r->par.local, &r->peer, err);
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
	p->state = TCP_FAILED;
	dr_tcp_rx_withdraw(p);
	dr_tcp_tx_drop(p);
	dr_path_emit_failure(&p->base);
}

/* ---- coming up -------------------------------------------------------------------------------- */

static int create(struct dr_rail *br, const struct dr_path_params *par, struct dr_path **out,
	struct dr_err *e)
{
	struct tcp_rail *r = tcp_rail(br);
	struct tcp_path *p = dr_calloc(1, sizeof(*p));

	if (!p)
		return dr_path_no_memory(par, e);
	dr_path_init(&p->base, br, par, r->par.poller, path_ready);
	p->base.st.peer_ack_age_ns = -1;
	if (dr_tcp_tx_init(p) || dr_tcp_rx_init(p)) {
		dr_tcp_tx_fini(p);
		dr_tcp_rx_fini(p);
		dr_free(p);
		return dr_path_no_memory(par, e);
	}
	struct dr_path_ident id = dr_path_ident(&p->base.par);
	dr_tcp_hs_init(&p->hs, &r->admission, &id);
	p->next = r->paths;
	r->paths = p;
	r->n_paths++;
	*out = &p->base.path;
	return 0;
}

static void dial(struct tcp_path *p)
{
	struct tcp_rail *r = tcp_path_rail(p);
	static atomic_flag told = ATOMIC_FLAG_INIT;
	char doing[160], to[TCP_NAME_LEN];
	struct dr_err e;

	dr_tcp_addr_format(&r->peer, to);
	snprintf(doing, sizeof(doing), "cannot connect to %s", to);
	int err = dr_tcp_sock_open(r, SOCK_STREAM, 0, false, &p->base.po.fd, &e);
	if (err) {
		dr_tcp_fail_socket(p, err, e.text);
		return;
	}
	dr_tcp_sock_tune(r, p->base.po.fd);
	if (connect(p->base.po.fd, (struct sockaddr *)&r->peer, dr_sa_len(&r->peer)) < 0 &&
		errno != EINPROGRESS) {
		err = -errno;
		/* The address was bound before, so what lacks is a port. */
		if (err == -EADDRNOTAVAIL)
			dr_append(doing, sizeof(doing), ": no free local port; %s",
				dr_tcp_port_advice(0));
		dr_tcp_fail_socket(p, err, doing);
		if (err == -EADDRNOTAVAIL && !atomic_flag_test_and_set(&told))
			dr_warn("tcp", "%s", p->base.text);
		return;
	}
	dr_tcp_watch(p, EPOLLIN); /* the peer speaks first */
}

static int path_connect(
	struct dr_path *bp, const void *peer, size_t len, int64_t now_ns, struct dr_err *e)
{
	struct tcp_path *p = tcp_path(bp);
	struct tcp_rail *r = tcp_path_rail(p);
	int err = dr_path_check_connect(
		&p->base, p->hs.state == TCP_HS_NEW, r->has_peer, peer, len, e);

	if (err)
		return err;
	p->base.now_ns = now_ns;
	dr_tcp_hs_start(&p->hs);
	if (p->base.par.connector)
		dial(p);
	else
		dr_tcp_admit_claim(p);
	return 0;
}

void dr_tcp_adopt(struct tcp_path *p, int fd)
{
	uint8_t ok[TCP_HELLO_OK_LEN];

	dr_assert(p->hs.state == TCP_HS_ADMITTED && p->base.po.fd < 0);
	p->base.po.fd = fd;
	dr_tcp_sock_tune(tcp_path_rail(p), fd);
	dr_tcp_hs_welcome(&p->hs, ok);
	p->base.st.syscalls++;
	ssize_t n = send(fd, ok, sizeof(ok), MSG_NOSIGNAL);
	if (n != (ssize_t)sizeof(ok)) { /* the first bytes of a connection always fit */
		dr_tcp_fail_socket(p, n < 0 ? -errno : -EIO, "cannot admit the peer's connection");
		return;
	}
	p->base.st.tx_wire += sizeof(ok);
	dr_tcp_watch(p, EPOLLIN);
	dr_path_wake(&p->base);
}

void dr_tcp_say_hello(struct tcp_path *p)
{
	uint8_t hello[TCP_HELLO_LEN];

	dr_tcp_hs_hello(&p->hs, hello);
	p->base.st.syscalls++;
	ssize_t n = send(p->base.po.fd, hello, sizeof(hello), MSG_NOSIGNAL);
	if (n != (ssize_t)sizeof(hello)) { /* the first bytes of a connection always fit */
		dr_tcp_fail_socket(p, n < 0 ? -errno : -EIO, "cannot answer the peer's challenge");
		return;
	}
	p->base.st.tx_wire += sizeof(hello); /* but not tx_last_ns: see path.h */
	dr_tcp_hs_greeted(&p->hs);
}

/* ---- progress --------------------------------------------------------------------------------- */

static void do_opening(struct tcp_path *p)
{
	if (p->hs.state == TCP_HS_DIALLING || p->hs.state == TCP_HS_GREETING) {
		dr_tcp_rx_pull(p);
	} else if (p->hs.state == TCP_HS_ADMITTED) {
		dr_tcp_hs_admitted(&p->hs);
		p->state = TCP_UP;
		dr_path_tell(&p->base, DR_EV_READY);
	}
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

/* The sink, called late in a progress, may leave work that no readiness of the socket announces. */
static bool work_left(const struct tcp_path *p)
{
	return p->state == TCP_FAILING || p->state == TCP_ABORTED || p->tx.told != p->tx.done ||
	       (p->state == TCP_UP && p->tx.err);
}

static int progress(struct dr_path *bp, int64_t now_ns, struct dr_sink *sink)
{
	struct tcp_path *p = tcp_path(bp);

	dr_path_begin(&p->base, now_ns, sink);
	if (p->state == TCP_OPENING)
		do_opening(p);
	else if (p->state == TCP_UP)
		do_up(p);
	p->polled = false;
	p->revents = 0;
	dr_tcp_tx_report(p);
	if (p->state == TCP_FAILING)
		report_failure(p);
	if (p->state == TCP_ABORTED) {
		p->state = TCP_FENCED;
		dr_path_tell(&p->base, DR_EV_FENCED);
	}
	int n = dr_path_end(&p->base);
	if (work_left(p))
		dr_path_wake(&p->base);
	return n;
}

/* ---- fence and end ---------------------------------------------------------------------------- */

static void fence(struct dr_path *bp, int64_t deadline_ns)
{
	struct tcp_path *p = tcp_path(bp);

	(void)deadline_ns; /* nothing accesses a buffer when this returns */
	if (p->state >= TCP_ABORTED)
		return; /* fenced before, or closed */
	p->state = TCP_ABORTED;
	dr_tcp_hs_end(&p->hs);
	dr_tcp_rx_withdraw(p);
	dr_tcp_tx_drop(p);
	close_socket(p, true);
	dr_path_wake(&p->base);
}

static void stats(struct dr_path *bp, struct dr_path_stats *out)
{
	struct tcp_path *p = tcp_path(bp);

	if (p->hs.state >= TCP_HS_GREETING)
		read_kernel_stats(p);
	*out = p->base.st;
}

static void path_close(struct dr_path *bp)
{
	struct tcp_path *p = tcp_path(bp);

	if (p->state == TCP_CLOSED)
		return;
	DR_UNLINK(&tcp_path_rail(p)->paths, p, next);
	/* What the kernel has taken goes out still; after a failure it is dropped. */
	close_socket(p, p->state >= TCP_FAILING);
	p->state = TCP_CLOSED;
	dr_tcp_hs_fini(&p->hs);
	dr_tcp_rx_withdraw(p);
	dr_tcp_tx_drop(p);
	p->tx.told = p->tx.done;
}

static int stop(struct dr_path *bp)
{
	/* Nothing of ours runs between the owner's calls, so that close was the end of it. */
	dr_assert(tcp_path(bp)->state == TCP_CLOSED && !tcp_path(bp)->base.sink);
	return 0;
}

static void fini(struct dr_path *bp)
{
	struct tcp_path *p = tcp_path(bp);

	dr_assert(p->state == TCP_CLOSED && !p->base.sink);
	tcp_path_rail(p)->n_paths--;
	dr_tcp_tx_fini(p);
	dr_tcp_rx_fini(p);
	dr_free(p);
}

const struct dr_transport_ops dr_tcp_ops = {
	sizeof(struct dr_transport_ops),
	"tcp",
	DR_CAP_ORDERED | DR_CAP_DGRAM | DR_CAP_RESET,
	dr_tcp_listen,
	dr_tcp_rail_handle,
	dr_tcp_rail_peer,
	dr_tcp_rail_dgram,
	dr_tcp_rail_padded,
	dr_tcp_rail_ask,
	dr_tcp_rail_progress,
	dr_tcp_rail_close,
	dr_tcp_rail_fini,
	dr_tcp_mr_reg,
	dr_tcp_mr_dereg,
	create,
	dr_path_handle,
	path_connect,
	dr_tcp_post_recv,
	dr_tcp_post_send,
	dr_tcp_post_ctrl,
	dr_tcp_flush,
	dr_path_credit,
	progress,
	fence,
	stats,
	NULL,
	path_close,
	stop,
	fini,
};
