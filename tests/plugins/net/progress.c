/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <errno.h>
#include <sys/socket.h>

#include "tests/plugins/net/bugs.h"

/*
 * What a call of test() moves: first the data connections, then at most one request is started, then pieces of
 * one request are handed out to connections that have room. On a single connection the data of a piece follow it at once.
 */

enum { CTRL_MAGIC = 0x4b46 };

static void ctrl_failed(struct fn_comm *c, int err)
{
	(void)fn_failed(err, "the control connection");
	c->error = fn_kind->single ? FN_REMOTE_ERROR : FN_SYSTEM_ERROR;
}

/* The control connection: bytes moved, 0 for none now; its end is an error. */
static size_t ctrl_io(struct fn_comm *c, bool out, void *data, size_t len)
{
	ssize_t n = out ? send(c->ctrl_fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT)
			: recv(c->ctrl_fd, data, len, MSG_DONTWAIT);

	if (n > 0)
		return (size_t)n;
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		ctrl_failed(c, n == 0 ? ECONNRESET : errno);
	return 0;
}

uint8_t *fn_stage(const struct fn_comm *c, const struct fn_sock *s)
{
	return c->gpu.stage + (size_t)(s - c->sock) * FN_STAGE;
}

/*
 * The bytes of a send that go next, in host memory, and how many. Those of GPU memory are copied out in parts of
 * FN_STAGE. NULL after an error.
 */
static const uint8_t *outgoing(struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t *len)
{
	const uint8_t *from = t->p->data + t->offset + t->moved;
	uint8_t *stage;

	if (!t->p->in_gpu)
		return from;
	stage = fn_stage(c, s);
	if (t->moved == t->staged) {
		size_t part = *len < FN_STAGE ? *len : FN_STAGE;

		c->error = fn_gpu_read(&c->gpu, stage, from, part);
		if (c->error != FN_OK)
			return NULL;
		t->staged += (uint32_t)part;
	}
	*len = t->staged - t->moved;
	return stage + t->moved % FN_STAGE;
}

/* Sends or receives once: the bytes moved, -1 with EAGAIN for none now. */
static ssize_t sock_io(struct fn_comm *c, struct fn_sock *s, struct fn_task *t)
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
	to = (fn_kind->pieces ? fn_bounce_place : fn_direct_place)(c, s, t, &len);
	n = to ? recv(s->fd, to, len, MSG_DONTWAIT) : -1;
	if (n > 0)
		c->error =
			(fn_kind->pieces ? fn_bounce_filled : fn_direct_filled)(c, s, t, (size_t)n);
	return n;
}

static void sock_go_on(struct fn_comm *c, struct fn_sock *s)
{
	while (s->count > 0 && !s->dead && c->error == FN_OK) {
		struct fn_task *t = &s->task[s->head];
		ssize_t n = sock_io(c, s, t);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			s->dead = true;
			if (!fn_kind->pieces)
				c->error =
					fn_failed(n == 0 ? ECONNRESET : errno, "a data connection");
			return;
		}
		t->moved += (uint32_t)n;
		t->r->moved += (uint64_t)n;
		if (t->moved == t->size) {
			s->head = (s->head + 1) % FN_TASKS_MAX;
			s->count--;
		}
	}
}

/* With RECV_SYNC the receiver says the number of each request that it starts. */
static bool may_start(struct fn_comm *c)
{
	uint32_t no = (uint32_t)c->started;
	size_t n;

	if (!fn_settings.recv_sync)
		return true;
	n = ctrl_io(c, !c->is_send, &no, sizeof(no));
	if (n == sizeof(no) && no == (uint32_t)c->started)
		return true;
	if (n != 0)
		c->error = FN_SYSTEM_ERROR;
	return false;
}

static bool has_room(const struct fn_sock *s)
{
	return s->count < (fn_kind->single ? 1 : FN_TASKS_MAX);
}

static void hand_to(struct fn_comm *c, struct fn_request *r, struct fn_part *p)
{
	struct fn_sock *s = &c->sock[c->ctrl.index];

	c->ctrl_moved = 0;
	if (c->ctrl.size > 0)
		s->task[(s->head + s->count++) % FN_TASKS_MAX] = (struct fn_task){
			.r = r, .p = p, .offset = c->ctrl.offset, .size = c->ctrl.size
		};
	p->offset += c->ctrl.size;
	r->handed += p->offset == p->size;
	c->handed += r->handed == r->n;
}

static bool pick(struct fn_comm *c, unsigned *index)
{
	for (unsigned i = 0; i < c->n_socks; i++) {
		*index = (c->next_sock + i) % c->n_socks;
		if (has_room(&c->sock[*index])) {
			c->next_sock = *index + 1;
			return true;
		}
	}
	return false;
}

/* Says the next piece, then gives it to its connection. Returns false when nothing more can be done now. */
static bool send_piece(struct fn_comm *c, struct fn_request *r)
{
	struct fn_part *p = &r->part[0];
	uint32_t left = p->size - p->offset;
	unsigned index;

	if (c->ctrl_moved == 0) {
		if (!pick(c, &index))
			return false;
		c->ctrl = (struct fn_ctrl){
			.magic = CTRL_MAGIC,
			.index = (uint16_t)index,
			.tag = p->tag,
			.size = left < fn_settings.chunk ? left : fn_settings.chunk,
			.offset = p->offset,
			.total = p->size,
		};
	}
	c->ctrl_moved +=
		ctrl_io(c, true, (char *)&c->ctrl + c->ctrl_moved, sizeof(c->ctrl) - c->ctrl_moved);
	if (c->ctrl_moved < sizeof(c->ctrl))
		return false;
	hand_to(c, r, p);
	return true;
}

/* The buffer of the message whose piece has come. */
static struct fn_part *part_of(struct fn_comm *c, struct fn_request *r)
{
	const struct fn_ctrl *ctrl = &c->ctrl;
	struct fn_part *p = NULL;

	if (ctrl->magic != CTRL_MAGIC || ctrl->index >= c->n_socks)
		return NULL;
	for (unsigned i = 0; i < r->n && !p; i++)
		if (r->part[i].offset == ctrl->offset && r->part[i].known == (ctrl->offset > 0) &&
			(!fn_kind->single || fn_bug(FN_BUG_TAGS) || r->part[i].tag == ctrl->tag))
			p = &r->part[i];
	if (!p && fn_kind->single)
		fn_misuse("a message with tag %d, and receive %llu has none with it, but %d",
			ctrl->tag, (unsigned long long)r->no, r->part[0].tag);
	if (!p || ctrl->size > ctrl->total - p->offset || (p->known && ctrl->total != p->size))
		return NULL;
	if (ctrl->total > p->room && !fn_bug(FN_BUG_TAGS))
		fn_misuse("receive %llu has room for %u bytes, its message has %u",
			(unsigned long long)r->no, p->room, ctrl->total);
	return p;
}

static bool receive_piece(struct fn_comm *c, struct fn_request *r)
{
	struct fn_part *p;

	if (fn_kind->single && !has_room(&c->sock[0]))
		return false;
	if (c->ctrl_moved < sizeof(c->ctrl))
		c->ctrl_moved += ctrl_io(c, false, (char *)&c->ctrl + c->ctrl_moved,
			sizeof(c->ctrl) - c->ctrl_moved);
	if (c->ctrl_moved < sizeof(c->ctrl))
		return false;
	p = part_of(c, r);
	if (!p) {
		ctrl_failed(c, EPROTO);
		return false;
	}
	if (c->ctrl.size > 0 && !has_room(&c->sock[c->ctrl.index]))
		return false;
	p->size = c->ctrl.total;
	p->known = true;
	hand_to(c, r, p);
	return true;
}

enum fn_result fn_progress(struct fn_comm *c)
{
	struct fn_request *r;
	uint64_t no;

	if (c->ended || c->error != FN_OK)
		return c->error;
	for (unsigned i = 0; i < c->n_socks; i++)
		sock_go_on(c, &c->sock[i]);
	if (c->error != FN_OK)
		return c->error;
	if (c->started < c->posted && may_start(c))
		c->started++;
	no = c->handed;
	if (no == c->started)
		return c->error;
	r = fn_request(c, no);
	while (c->handed == no && c->error == FN_OK)
		if (!(c->is_send ? send_piece(c, r) : receive_piece(c, r)))
			break;
	return c->error;
}
