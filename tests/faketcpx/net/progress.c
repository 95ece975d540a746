/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/tcpx.h"

#include <errno.h>
#include <sys/socket.h>

/*
 * What a call of test() moves: first the data connections, then at most one request is started, then pieces of
 * one request are handed out to connections that have room.
 */

static struct tcpx_request *request(struct tcpx_comm *c, uint64_t no)
{
	return &c->request[no % TCPX_REQUESTS_MAX];
}

/* The control connection: bytes moved, 0 for none now; its end is an error. */
static size_t ctrl_io(struct tcpx_comm *c, bool out, void *data, size_t len)
{
	ssize_t n = out ? send(c->ctrl_fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT)
			: recv(c->ctrl_fd, data, len, MSG_DONTWAIT);

	if (n > 0)
		return (size_t)n;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	(void)min_failed(n == 0 ? ECONNRESET : errno, "the control connection");
	c->error = MIN_SYSTEM_ERROR;
	return 0;
}

uint8_t *tcpx_stage(const struct tcpx_comm *c, const struct tcpx_sock *s)
{
	return c->gpu.stage + (size_t)(s - c->sock) * TCPX_STAGE;
}

/*
 * The bytes of a send that go next, in host memory, and how many. Those of GPU memory are copied out in parts of
 * TCPX_STAGE. NULL after an error.
 */
static const uint8_t *outgoing(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t *len)
{
	const uint8_t *from = t->r->data + t->offset + t->moved;
	uint8_t *stage;

	if (!t->r->in_gpu)
		return from;
	stage = tcpx_stage(c, s);
	if (t->moved == t->staged) {
		size_t part = *len < TCPX_STAGE ? *len : TCPX_STAGE;

		c->error = tcpx_gpu_read(&c->gpu, stage, from, part);
		if (c->error != MIN_OK)
			return NULL;
		t->staged += (uint32_t)part;
	}
	*len = t->staged - t->moved;
	return stage + t->moved % TCPX_STAGE;
}

/* Sends or receives once: the bytes moved, -1 with EAGAIN for none now. */
static ssize_t sock_io(struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t)
{
	size_t len = t->size - t->moved;
	const uint8_t *from;
	uint8_t *to;
	ssize_t n;

	errno = EAGAIN;
	if (c->is_send) {
		from = outgoing(c, s, t, &len);
		return from ? send(s->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
	}
	to = tcpx_kind.place(c, s, t, &len);
	n = to ? recv(s->fd, to, len, MSG_DONTWAIT) : -1;
	if (n > 0)
		c->error = tcpx_kind.filled(c, s, t, (size_t)n);
	return n;
}

static void sock_go_on(struct tcpx_comm *c, struct tcpx_sock *s)
{
	while (s->count > 0 && !s->dead && c->error == MIN_OK) {
		struct tcpx_task *t = &s->task[s->head];
		ssize_t n = sock_io(c, s, t);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			s->dead = true;
			if (!tcpx_kind.unpack)
				c->error = min_failed(
					n == 0 ? ECONNRESET : errno, "a data connection");
			return;
		}
		t->moved += (uint32_t)n;
		t->r->moved += (uint32_t)n;
		if (t->moved == t->size) {
			s->head = (s->head + 1) % TCPX_TASKS_MAX;
			s->count--;
		}
	}
}

/* With RECV_SYNC the receiver says the number of each request that it starts. */
static bool may_start(struct tcpx_comm *c)
{
	uint32_t no = (uint32_t)c->started;
	size_t n;

	if (!c->recv_sync)
		return true;
	n = ctrl_io(c, !c->is_send, &no, sizeof(no));
	if (n == sizeof(no) && no == (uint32_t)c->started)
		return true;
	if (n != 0)
		c->error = MIN_SYSTEM_ERROR;
	return false;
}

static void hand_to(struct tcpx_comm *c, struct tcpx_request *r, const struct tcpx_ctrl *ctrl)
{
	struct tcpx_sock *s = &c->sock[ctrl->index];

	if (ctrl->size > 0) {
		s->task[(s->head + s->count++) % TCPX_TASKS_MAX] =
			(struct tcpx_task){ .r = r, .offset = ctrl->offset, .size = ctrl->size };
	}
	r->offset += ctrl->size;
	if (r->offset == r->size)
		c->handed++;
}

static bool pick(struct tcpx_comm *c, unsigned *index)
{
	for (unsigned i = 0; i < c->n_socks; i++) {
		*index = (c->next_sock + i) % c->n_socks;
		if (c->sock[*index].count < TCPX_TASKS_MAX) {
			c->next_sock = *index + 1;
			return true;
		}
	}
	return false;
}

/* Says the next piece, then gives it to its connection. Returns false when nothing more can be done now. */
static bool send_piece(struct tcpx_comm *c, struct tcpx_request *r)
{
	uint32_t left = r->size - r->offset;
	unsigned index;

	if (c->ctrl_moved == 0) {
		if (!pick(c, &index))
			return false;
		c->ctrl = (struct tcpx_ctrl){
			.index = (uint16_t)index,
			.size = left < tcpx_settings.chunk ? left : tcpx_settings.chunk,
			.offset = r->offset,
			.total = r->size,
		};
	}
	c->ctrl_moved +=
		ctrl_io(c, true, (char *)&c->ctrl + c->ctrl_moved, sizeof(c->ctrl) - c->ctrl_moved);
	if (c->ctrl_moved < sizeof(c->ctrl))
		return false;
	c->ctrl_moved = 0;
	hand_to(c, r, &c->ctrl);
	return true;
}

static bool receive_piece(struct tcpx_comm *c, struct tcpx_request *r)
{
	const struct tcpx_ctrl *ctrl = &c->ctrl;

	if (c->ctrl_moved < sizeof(c->ctrl))
		c->ctrl_moved += ctrl_io(c, false, (char *)&c->ctrl + c->ctrl_moved,
			sizeof(c->ctrl) - c->ctrl_moved);
	if (c->ctrl_moved < sizeof(c->ctrl))
		return false;
	if (ctrl->type != 0 || ctrl->index >= c->n_socks || ctrl->offset != r->offset ||
		ctrl->size > ctrl->total - r->offset || (r->known && ctrl->total != r->size)) {
		c->error = MIN_SYSTEM_ERROR;
		return false;
	}
	if (ctrl->total > r->room)
		tcpx_misuse("receive %llu has room for %u bytes, its message has %u",
			(unsigned long long)r->no, r->room, ctrl->total);
	if (ctrl->size > 0 && c->sock[ctrl->index].count == TCPX_TASKS_MAX)
		return false;
	r->size = ctrl->total;
	r->known = true;
	c->ctrl_moved = 0;
	hand_to(c, r, ctrl);
	return true;
}

enum min_result tcpx_progress(struct tcpx_comm *c)
{
	struct tcpx_request *r;
	uint64_t no;

	if (c->ended || c->error != MIN_OK)
		return c->error;
	for (unsigned i = 0; i < c->n_socks; i++)
		sock_go_on(c, &c->sock[i]);
	if (c->error != MIN_OK)
		return c->error;
	if (c->started < c->posted && may_start(c))
		c->started++;
	no = c->handed;
	if (no == c->started)
		return c->error;
	r = request(c, no);
	while (c->handed == no && c->error == MIN_OK)
		if (!(c->is_send ? send_piece(c, r) : receive_piece(c, r)))
			break;
	return c->error;
}
