/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes out. Two queues: parts (header of ours, memory of the user's) and control bytes (control
 * frames and credits, copied). One sendmsg takes from both:
 *
 *   [rest of the part that is partly on the wire] [control bytes] [parts ...]
 *
 * so that control frames overtake data that is not on the wire yet and never split a frame. At most
 * one of the two queues has a frame partly sent: the socket takes a prefix of the above.
 * Posting never touches the socket; flush moves the marks up to which things may go and offers them.
 */
#include "transport/tcp/tcp.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

enum { IOV_MAX_OURS = 2 * TCP_SENDS + 2 };

int dr_tcp_tx_init(struct tcp_path *p)
{
	p->tx.ctrl.buf = dr_calloc(1, DR_PATH_QUEUE);
	return p->tx.ctrl.buf ? dr_path_credits_init(&p->base) : -ENOMEM;
}

void dr_tcp_tx_fini(struct tcp_path *p)
{
	dr_free(p->tx.ctrl.buf);
	dr_free(p->base.credits);
}

int dr_tcp_may_post(const struct tcp_path *p)
{
	if (p->state == TCP_UP && !p->tx.err)
		return 0;
	return p->state == TCP_UP || p->state == TCP_FAILING ? -EAGAIN : -ENOTCONN;
}

/* ---- credits ---------------------------------------------------------------------------------- */

void dr_tcp_tx_credited(struct tcp_path *p, const struct dr_path_frame *f, const uint8_t *payload)
{
	const struct dr_credit c = dr_path_credit_read(f, payload);

	if (f->epoch < p->base.credit_epoch)
		return; /* of an epoch that is over */
	if (dr_path_grant(&p->base, f->epoch, f->seq, f->skip, &c))
		dr_path_tell_message(&p->base, DR_EV_CREDIT, f->epoch, f->seq);
	else
		dr_tcp_fail(p, DR_SCOPE_PATH, -EPROTO,
			"the peer granted epoch %u message %llu in place of message %llu", f->epoch,
			(unsigned long long)f->seq,
			(unsigned long long)p->base.credits[f->seq % DR_PATH_RING].seq);
}

/* ---- posting ---------------------------------------------------------------------------------- */

int dr_tcp_post_send(
	struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	struct tcp_path *p = tcp_path(bp);
	struct tcp_tx *t = &p->tx;
	struct dr_path_credit *c;
	int err = dr_tcp_may_post(p);

	if (err)
		return err;
	if (!p->base.par.sender || what->off > what->mr->len ||
		what->len > what->mr->len - what->off)
		return -EINVAL;
	if (t->posted - t->told == TCP_SENDS)
		return -EAGAIN;
	err = dr_path_claim(&p->base, epoch, seq, part, what->len, &c);
	if (err)
		return err;
	c->c.todo &= ~(1u << part);
	struct tcp_send *s = &t->queue[t->posted++ % TCP_SENDS];
	*s = (struct tcp_send){ .epoch = epoch,
		.seq = seq,
		.part = part,
		.data = what->mr->base + what->off,
		.len = what->len };
	struct dr_path_frame f = { .type = DR_PATH_DATA,
		.part = (uint8_t)part,
		.len = what->len,
		.epoch = epoch,
		.seq = seq };
	dr_path_frame_encode(&f, s->hdr);
	return 0;
}

int dr_tcp_post_ctrl(struct dr_path *bp, const void *frame, size_t len)
{
	struct tcp_path *p = tcp_path(bp);
	int err = dr_tcp_may_post(p);

	return err ? err : dr_path_queue_bytes(&p->tx.ctrl, DR_PATH_CTRL, frame, len);
}

/* ---- the socket ------------------------------------------------------------------------------- */

static void add_iov(struct iovec *iov, int *n, void *base, size_t len)
{
	if (len)
		iov[(*n)++] = (struct iovec){ .iov_base = base, .iov_len = len };
}

/* The part's bytes from offset off on, counted over header and payload. */
static void add_send(struct iovec *iov, int *n, struct tcp_send *s, uint32_t off)
{
	if (off < DR_PATH_FRAME_HDR) {
		add_iov(iov, n, s->hdr + off, DR_PATH_FRAME_HDR - off);
		add_iov(iov, n, s->data, s->len);
	} else {
		off -= DR_PATH_FRAME_HDR;
		add_iov(iov, n, s->data + off, s->len - off);
	}
}

static int gather(struct tcp_tx *t, struct iovec *iov)
{
	uint64_t i = t->done;
	int n = 0;

	if (t->head_off > 0)
		add_send(iov, &n, &t->queue[i++ % TCP_SENDS], t->head_off);
	add_iov(iov, &n, t->ctrl.buf + t->ctrl.at, t->ctrl.flushed - t->ctrl.at);
	for (; i < t->flushed; i++)
		add_send(iov, &n, &t->queue[i % TCP_SENDS], 0);
	return n;
}

/* The socket took up to len of the bytes of send `done`; returns how many. */
static size_t take_send(struct tcp_path *p, size_t len)
{
	struct tcp_tx *t = &p->tx;
	struct tcp_send *s = &t->queue[t->done % TCP_SENDS];
	uint32_t total = DR_PATH_FRAME_HDR + s->len;
	uint32_t before = t->head_off;
	size_t taken = DR_MIN(len, (size_t)(total - before));

	uint32_t payload;

	t->head_off += (uint32_t)taken;
	payload = DR_MAX(t->head_off, (uint32_t)DR_PATH_FRAME_HDR) -
		  DR_MAX(before, (uint32_t)DR_PATH_FRAME_HDR);
	p->base.st.tx_bytes += payload;
	p->base.st.tx_wire += taken;
	t->data_end = p->base.st.tx_wire;
	if (t->head_off == total) {
		t->done++;
		t->head_off = 0;
	}
	return taken;
}

/* Account for len bytes taken by the socket, in the order of gather(). */
static void advance(struct tcp_path *p, size_t len)
{
	struct tcp_tx *t = &p->tx;

	if (t->head_off > 0)
		len -= take_send(p, len);
	size_t n = DR_MIN(len, t->ctrl.flushed - t->ctrl.at);
	dr_path_queue_took(&t->ctrl, n);
	p->base.st.tx_wire += n;
	len -= n;
	while (len > 0)
		len -= take_send(p, len);
}

void dr_tcp_tx_push(struct tcp_path *p)
{
	struct iovec iov[IOV_MAX_OURS];
	struct msghdr msg = { .msg_iov = iov };
	size_t offered = 0;

	if (!dr_tcp_tx_pending(&p->tx) || p->tx.err)
		return;
	int n_iov = gather(&p->tx, iov);
	for (int i = 0; i < n_iov; i++)
		offered += iov[i].iov_len;
	msg.msg_iovlen = (size_t)n_iov;
	p->base.st.syscalls++;
	ssize_t n = sendmsg(p->base.po.fd, &msg, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		/* What the peer sent before it went away is read first. */
		p->tx.err = -errno;
		dr_path_wake(&p->base);
		return;
	}
	if (n > 0) {
		dr_path_sent(&p->base.path, p->base.now_ns);
		advance(p, (size_t)n);
	}
	if (n < 0 || (size_t)n < offered) {
		p->tx.blocked = true;
		dr_tcp_watch(p, EPOLLIN | EPOLLOUT);
	}
}

void dr_tcp_flush(struct dr_path *bp, int64_t now_ns)
{
	struct tcp_path *p = tcp_path(bp);

	if (p->state != TCP_UP)
		return;
	p->base.now_ns = now_ns;
	p->tx.flushed = p->tx.posted;
	p->tx.ctrl.flushed = p->tx.ctrl.end;
	if (!p->tx.blocked)
		dr_tcp_tx_push(p);
	if (p->tx.told != p->tx.done)
		dr_path_wake(&p->base);
}

void dr_tcp_tx_report(struct tcp_path *p)
{
	/* Up to here only, though the sink may post and flush more: bounded work. */
	uint64_t end = p->tx.done;

	while (p->tx.told < end) {
		struct tcp_send *s = &p->tx.queue[p->tx.told++ % TCP_SENDS];
		dr_path_tell_part(&p->base, DR_EV_SENT, s->epoch, s->seq, s->part, 0);
	}
}

void dr_tcp_tx_drop(struct tcp_path *p)
{
	p->tx.posted = p->tx.flushed = p->tx.done;
	p->tx.head_off = 0;
	p->tx.ctrl.at = p->tx.ctrl.flushed = p->tx.ctrl.end = 0;
	p->tx.blocked = false;
}
