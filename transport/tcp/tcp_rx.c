/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes in. Bytes are read into the stage, frames are parsed there; a data frame's payload goes
 * straight from the socket into the posted buffer, except what the stage holds of it already. One
 * recvmsg asks for the rest of the payload and, behind it, the next frames into the stage, so that a
 * stream of large messages costs no extra call for headers, and small ones come many a call.
 *
 *  1. While `left` > 0, the frame at hand is a data frame; the stage is drained before the socket is
 *     read, so that bytes are never taken out of order.
 *  2. A buffer is written only while its receive is posted: withdraw clears `body` and the ring.
 *  3. A read shorter than asked for means that the socket is empty: no call just to hear EAGAIN.
 *  4. An owner that spins gets what came before the socket gives it up: the stage has a copy of the
 *     socket's first `peeked` bytes, which are discarded before the next read. The kernel acknowledges
 *     every second small segment, with a packet of its own, inside the call that takes the bytes out;
 *     so the owner's reply leaves before that packet, and not after it.
 */
#include "transport/tcp/tcp.h"

#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

enum {
	READ_CALLS = 16,       /* of one progress */
	READ_BYTES = 1 << 20,  /* of one progress; a last read may exceed it */
	BULK_BYTES = 64 << 10, /* a data frame of this size makes the next one likely large */
	BULK_AHEAD =
		8 * DR_PATH_FRAME_HDR, /* read ahead then: headers, hardly any payload to copy */
};

int dr_tcp_rx_init(struct tcp_path *p)
{
	p->rx.stage = dr_calloc(1, TCP_STAGE);
	if (!p->base.par.sender)
		p->rx.ring = dr_calloc(DR_PATH_RING, sizeof(*p->rx.ring));
	return p->rx.stage && (p->rx.ring || p->base.par.sender) ? 0 : -ENOMEM;
}

void dr_tcp_rx_fini(struct tcp_path *p)
{
	dr_free(p->rx.stage);
	dr_free(p->rx.ring);
}

/* ---- posted receives -------------------------------------------------------------------------- */

int dr_tcp_post_recv(struct dr_path *bp, uint32_t epoch, uint64_t seq, const struct dr_part *parts,
	unsigned n, uint32_t skip)
{
	struct tcp_path *p = tcp_path(bp);

	if (p->base.par.sender || n < 1 || n > DR_PARTS_MAX || skip >> n)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if (!(skip & 1u << i) && (parts[i].off > parts[i].mr->len ||
						 parts[i].len > parts[i].mr->len - parts[i].off))
			return -EINVAL;
	struct tcp_recv *v = &p->rx.ring[seq % DR_PATH_RING];
	if (v->used)
		return -EAGAIN;
	int err = dr_tcp_may_post(p);
	if (!err)
		err = dr_path_queue_credit(&p->tx.ctrl, epoch, seq, parts, n, skip);
	if (err)
		return err;
	*v = (struct tcp_recv){ .todo = (uint8_t)(((1u << n) - 1) & ~skip),
		.n = (uint8_t)n,
		.epoch = epoch,
		.seq = seq };
	v->used = v->todo != 0;
	for (unsigned i = 0; i < n; i++) {
		if (skip & 1u << i)
			continue;
		v->parts[i].data = parts[i].mr->base + parts[i].off;
		v->parts[i].cap = parts[i].len;
	}
	p->rx.epoch = DR_MAX(p->rx.epoch, epoch);
	return 0;
}

void dr_tcp_rx_withdraw(struct tcp_path *p)
{
	struct tcp_rx *x = &p->rx;

	x->body = NULL;
	x->cur_recv = NULL;
	if (!x->ring)
		return;
	for (int i = 0; i < DR_PATH_RING; i++)
		x->ring[i].used = false;
}

/* ---- frames ----------------------------------------------------------------------------------- */

static void deliver(struct tcp_path *p)
{
	struct tcp_rx *x = &p->rx;
	struct tcp_recv *v = x->cur_recv;

	x->body = NULL;
	x->cur_recv = NULL;
	if (!v)
		return; /* swallowed */
	v->todo &= (uint8_t) ~(1u << x->cur.part);
	v->used = v->todo != 0;
	dr_path_tell_part(
		&p->base, DR_EV_DELIVERED, x->cur.epoch, x->cur.seq, x->cur.part, x->cur.len);
}

/* The receive that wants this frame; NULL and *why: none may have sent it; NULL alone: swallow. */
static struct tcp_recv *match(
	const struct tcp_rx *x, const struct dr_path_frame *f, const char **why)
{
	struct tcp_recv *v = &x->ring[f->seq % DR_PATH_RING];

	*why = NULL;
	if (f->epoch < x->epoch)
		return NULL;
	if (v->used && v->epoch == f->epoch && v->seq == f->seq) {
		if (!(v->todo & 1u << f->part))
			*why = "for a part that was received already or not posted";
		else if (f->len > v->parts[f->part].cap)
			*why = "longer than the posted buffer";
		return *why ? NULL : v;
	}
	*why = "for a message that was not announced";
	return NULL;
}

static void begin_data(struct tcp_path *p, const struct dr_path_frame *f)
{
	struct tcp_rx *x = &p->rx;
	const char *why = "on the sender's side";

	x->cur_recv = x->ring ? match(x, f, &why) : NULL;
	if (why) {
		dr_tcp_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer sent data (epoch %u message %llu part %u, %u bytes) %s", f->epoch,
			(unsigned long long)f->seq, f->part, f->len, why);
		return;
	}
	x->cur = *f;
	x->left = f->len;
	x->bulk = f->len >= BULK_BYTES;
	x->body = x->cur_recv ? x->cur_recv->parts[f->part].data : NULL;
	if (x->cur_recv)
		dr_path_tell_message(&p->base, DR_EV_ARRIVING, f->epoch, f->seq);
	if (p->state == TCP_UP && x->left == 0)
		deliver(p);
}

static void control(struct tcp_path *p, const struct dr_path_frame *f, const uint8_t *payload)
{
	struct dr_event ev = { .kind = DR_EV_CTRL, .data = payload, .len = f->len };

	if (f->type == DR_PATH_CTRL)
		dr_path_emit(&p->base, &ev);
	else if (f->type == DR_PATH_CREDIT && p->base.par.sender)
		dr_tcp_tx_credited(p, f, payload);
	else
		dr_tcp_fail(p, DR_SCOPE_PATH, -EPROTO, "the peer sent a frame of type %u", f->type);
}

/* Account for n bytes of the frame at hand that are in the buffer (or swallowed) now. */
static void body_came(struct tcp_path *p, size_t n)
{
	struct tcp_rx *x = &p->rx;

	x->left -= (uint32_t)n;
	if (x->body) {
		x->body += n;
		p->base.st.rx_bytes += n;
	}
	if (x->left == 0)
		deliver(p);
}

static void body_from_stage(struct tcp_path *p)
{
	struct tcp_rx *x = &p->rx;
	size_t n = DR_MIN(x->end - x->at, (size_t)x->left);

	if (x->body)
		memcpy(x->body, x->stage + x->at, n);
	x->at += n;
	body_came(p, n);
}

/* One frame out of the stage. False: it is not whole yet, or not ours to read any more. */
static bool next_frame(struct tcp_path *p)
{
	struct tcp_rx *x = &p->rx;
	size_t have = x->end - x->at;
	const char *why = "?";
	struct dr_path_frame f;

	if (have < DR_PATH_FRAME_HDR)
		return false;
	if (dr_path_frame_parse(x->stage + x->at, DR_PATH_FRAME_HDR, &f, &why)) {
		dr_tcp_fail(p, DR_SCOPE_PATH, -EPROTO, "malformed bytes from the peer: %s", why);
		return false;
	}
	if (f.type == DR_PATH_DATA) {
		x->at += DR_PATH_FRAME_HDR;
		begin_data(p, &f);
		return true;
	}
	if (have < DR_PATH_FRAME_HDR + f.len)
		return false;
	const uint8_t *payload = x->stage + x->at + DR_PATH_FRAME_HDR;
	x->at += DR_PATH_FRAME_HDR + f.len;
	control(p, &f, payload);
	return true;
}

/* Connector: the challenge, and then the acceptor's word, come before any frame. */
static void admission(struct tcp_path *p)
{
	struct tcp_rx *x = &p->rx;
	struct dr_err e;
	size_t used;
	int rc = dr_tcp_hs_bytes(&p->hs, x->stage + x->at, x->end - x->at, &used, &e);

	x->at += used;
	if (rc < 0)
		dr_tcp_fail(p, DR_SCOPE_PATH, rc, "%s", e.text);
	if (rc <= 0)
		return;
	if (p->hs.state == TCP_HS_CHALLENGED) {
		dr_tcp_say_hello(p);
		return;
	}
	p->state = TCP_UP;
	dr_tcp_known_add(tcp_path_rail(p), p->base.po.fd);
	dr_path_tell(&p->base, DR_EV_READY);
}

static bool is_coming_up(const struct tcp_path *p)
{
	return p->hs.state == TCP_HS_DIALLING || p->hs.state == TCP_HS_GREETING;
}

static void consume(struct tcp_path *p)
{
	struct tcp_rx *x = &p->rx;

	while (is_coming_up(p) && x->at < x->end)
		admission(p);
	while (p->state == TCP_UP && x->at < x->end) {
		if (x->left > 0)
			body_from_stage(p);
		else if (!next_frame(p))
			break;
	}
	/* What is left is less than a control frame: cheap to move, and the whole stage is free again. */
	if (x->at > 0 && x->at < x->end)
		memmove(x->stage, x->stage + x->at, x->end - x->at);
	x->end -= x->at;
	x->at = 0;
}

/* ---- the socket ------------------------------------------------------------------------------- */

static void cannot_connect(struct tcp_path *p, int err)
{
	char doing[160], to[TCP_NAME_LEN];

	dr_tcp_addr_format(&tcp_path_rail(p)->peer, to);
	snprintf(doing, sizeof(doing), "cannot connect to %s", to);
	dr_tcp_fail_socket(p, err, doing);
}

static void gone(struct tcp_path *p, int err)
{
	if (err == 0 && p->tx.err)
		err = p->tx.err;
	if (err == 0)
		dr_tcp_fail(p, DR_SCOPE_PATH, -ECONNRESET, "the peer closed the connection%s",
			is_coming_up(p) ? " before it accepted this end" : "");
	else if (p->hs.state == TCP_HS_DIALLING)
		cannot_connect(p, err);
	else
		dr_tcp_fail_socket(p, err, "the connection broke");
}

/* Of TCP's bytes MSG_TRUNC drops as many as the buffer has room for, and copies none (tcp(7)). */
static ssize_t discard(struct tcp_path *p)
{
	p->base.st.syscalls++;
	return recv(p->base.po.fd, p->rx.stage, p->rx.peeked, MSG_TRUNC);
}

/* Take out of the socket what the stage has a copy of (4). The bytes are there, also after a reset. */
static bool discard_peeked(struct tcp_path *p)
{
	struct tcp_rx *x = &p->rx;

	if (x->peeked == 0)
		return true;
	ssize_t n = discard(p);
	if (n != (ssize_t)x->peeked) {
		gone(p, n < 0 ? -errno : -EIO);
		return false;
	}
	x->peeked = 0;
	return true;
}

/* One read. Returns the bytes, 0 when nothing is left to read now, and whether it came in full. */
static size_t read_once(struct tcp_path *p, bool *full)
{
	struct tcp_rx *x = &p->rx;
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };
	size_t direct = x->body ? x->left : 0;
	size_t ahead = x->bulk && x->body ? (size_t)BULK_AHEAD : TCP_STAGE - x->end;
	bool peek = !p->polled && p->state == TCP_UP && x->left == 0 && !x->bulk && !p->tx.err;
	ssize_t n;

	if (!discard_peeked(p))
		return 0;
	p->base.st.syscalls++;
	if (direct) {
		dr_dassert(x->end == 0);
		iov[0] = (struct iovec){ .iov_base = x->body, .iov_len = direct };
		iov[1] = (struct iovec){ .iov_base = x->stage, .iov_len = ahead };
		msg.msg_iovlen = 2;
		n = recvmsg(p->base.po.fd, &msg, 0);
	} else {
		n = recv(p->base.po.fd, x->stage + x->end, ahead, peek ? MSG_PEEK : 0);
	}
	if (n <= 0) {
		if (n == 0)
			gone(p, 0);
		else if (errno != EAGAIN && errno != EINTR)
			gone(p, -errno);
		else if (p->tx.err && errno == EAGAIN)
			gone(p, p->tx.err);
		return 0;
	}
	*full = (size_t)n == direct + ahead;
	x->peeked = peek ? (size_t)n : 0;
	p->base.st.rx_wire += (uint64_t)n;
	dr_path_heard(&p->base.path, p->base.now_ns);
	x->end += (size_t)n - DR_MIN((size_t)n, direct);
	if (direct)
		body_came(p, DR_MIN((size_t)n, direct));
	return (size_t)n;
}

void dr_tcp_rx_release(struct tcp_path *p)
{
	if (p->rx.peeked > 0)
		(void)discard(p);
	p->rx.peeked = 0;
}

void dr_tcp_rx_pull(struct tcp_path *p)
{
	size_t total = 0;
	bool full = true;

	for (int calls = 0; calls < READ_CALLS && total < READ_BYTES; calls++) {
		if (p->state != TCP_UP && !is_coming_up(p))
			return;
		/* A refused send: read to the very end, which then says FAILED. */
		if (!full && !p->tx.err)
			return;
		size_t n = read_once(p, &full);
		if (n == 0)
			return;
		total += n;
		consume(p);
	}
}
