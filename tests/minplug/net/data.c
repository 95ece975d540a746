/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/net/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/*
 * Memory and messages. Requests are queued in the order of posting, and test() moves the one at the head. A
 * request that is done leaves the queue and keeps its place in `request` until it was tested, in any order.
 *
 * 1. Bytes move for the head of the queue only; `wire` and `moved` belong to it.
 * 2. With an error nothing is queued, and no buffer is touched any more.
 */

#define WIRE_MAGIC UINT32_C(0x314d534d)

/* One call of test() makes at most so many system calls. */
enum { CALLS_MAX = 16 };

enum min_result min_reg(void *comm, void *data, size_t size, int type, void **mh)
{
	struct min_comm *c = comm;
	struct min_mr *mr;

	*mh = NULL;
	if (!c || type != MIN_PTR_HOST || !data) {
		min_log(MIN_LEVEL_WARN, "regMr of memory of type %d at %p; only host memory (%d)",
			type, data, MIN_PTR_HOST);
		return MIN_INTERNAL_ERROR;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return min_failed(ENOMEM, "a registration");
	mr->comm = c;
	mr->data = data;
	mr->size = size;
	(void)pthread_mutex_lock(&c->lock);
	LIST_INSERT_HEAD(&c->mrs, mr, next);
	(void)pthread_mutex_unlock(&c->lock);
	*mh = mr;
	return MIN_OK;
}

static struct min_request *queued(struct min_comm *c, unsigned i)
{
	return c->queue[(c->head + i) % MIN_MAX_REQUESTS];
}

enum min_result min_dereg(void *comm, void *mh)
{
	struct min_comm *c = comm;
	struct min_mr *mr = mh;
	unsigned used = 0;

	if (!c || !mr || mr->comm != c) {
		min_log(MIN_LEVEL_WARN, "deregMr of memory that this comm has not registered");
		return MIN_INTERNAL_ERROR;
	}
	(void)pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->queued; i++)
		used += queued(c, i)->mr == mr;
	if (used > 0) {
		min_log(MIN_LEVEL_INFO, "deregMr with %u requests outstanding ends the comm", used);
		c->error = MIN_INTERNAL_ERROR;
		c->queued = 0;
	}
	LIST_REMOVE(mr, next);
	(void)pthread_mutex_unlock(&c->lock);
	free(mr);
	return MIN_OK;
}

static struct min_request *free_request(struct min_comm *c)
{
	for (unsigned i = 0; i < MIN_MAX_REQUESTS; i++)
		if (c->request[i].state == MIN_FREE)
			return &c->request[i];
	return NULL;
}

/* Bytes without a registration are misuse; no bytes need none. */
static bool is_registered(const struct min_comm *c, const struct min_request *want)
{
	const struct min_mr *mr = want->mr;

	if (want->size == 0)
		return true;
	return mr && mr->comm == c && want->data >= mr->data && want->size <= mr->size &&
	       (size_t)(want->data - mr->data) <= mr->size - want->size;
}

/* MINNET_BUSY: no request for every other call, as of a plugin whose lock is taken. */
static bool is_busy(struct min_comm *c)
{
	c->busy = getenv("MINNET_BUSY") && !c->busy;
	return c->busy;
}

static enum min_result post(
	void *comm, enum min_kind kind, const struct min_request *want, void **request)
{
	struct min_comm *c = comm;
	struct min_request *r = NULL;
	enum min_result result;

	*request = NULL;
	if (!c || c->kind != kind || want->size > MIN_NET_BYTES_MAX || !is_registered(c, want)) {
		min_log(MIN_LEVEL_WARN,
			"a %s of %zu bytes at %p: wrong comm, too long or not registered",
			kind == MIN_SEND ? "send" : "receive", want->size, (void *)want->data);
		return MIN_INTERNAL_ERROR;
	}
	(void)pthread_mutex_lock(&c->lock);
	result = c->error;
	if (result == MIN_OK && !is_busy(c))
		r = free_request(c);
	if (r) {
		*r = *want;
		r->state = MIN_QUEUED;
		r->comm = c;
		c->queue[(c->head + c->queued++) % MIN_MAX_REQUESTS] = r;
	}
	(void)pthread_mutex_unlock(&c->lock);
	*request = r;
	return result;
}

enum min_result min_isend(void *scomm, void *data, size_t size, int tag, void *mh, void **request)
{
	struct min_request want = { .mr = mh, .data = data, .size = size, .tag = tag };

	return post(scomm, MIN_SEND, &want, request);
}

enum min_result min_irecv(void *rcomm, void *data, size_t size, int tag, void *mh, void **request)
{
	struct min_request want = { .mr = mh, .data = data, .size = size, .tag = tag };

	return post(rcomm, MIN_RECV, &want, request);
}

/* Bytes moved, 0: none now, or -errno. */
static ssize_t send_some(struct min_comm *c, struct min_request *r)
{
	size_t in_wire = c->moved < sizeof(c->wire) ? sizeof(c->wire) - c->moved : 0;
	size_t in_data = in_wire > 0 ? 0 : c->moved - sizeof(c->wire);
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };
	ssize_t n;

	if (c->moved == 0)
		c->wire = (struct min_wire){ .magic = WIRE_MAGIC, .tag = r->tag, .size = r->size };
	if (in_wire > 0)
		iov[msg.msg_iovlen++] = (struct iovec){ (char *)&c->wire + c->moved, in_wire };
	if (r->size > in_data)
		iov[msg.msg_iovlen++] = (struct iovec){ r->data + in_data, r->size - in_data };
	n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return n;
}

static ssize_t receive_some(struct min_comm *c, struct min_request *r)
{
	size_t in_data = c->moved - sizeof(c->wire);
	ssize_t n;

	if (c->moved < sizeof(c->wire))
		n = recv(c->fd, (char *)&c->wire + c->moved, sizeof(c->wire) - c->moved,
			MSG_DONTWAIT);
	else
		n = recv(c->fd, r->data + in_data, c->wire.size - in_data, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return n == 0 ? -ECONNRESET : n;
}

/* Whether the message that has begun to arrive belongs to the receive at the head. */
static enum min_result check_wire(const struct min_comm *c, const struct min_request *r)
{
	const struct min_wire *w = &c->wire;

	if (w->magic != WIRE_MAGIC) {
		min_log(MIN_LEVEL_WARN, "the peer sent no message");
		return MIN_REMOTE_ERROR;
	}
	if (w->tag != r->tag) {
		min_log(MIN_LEVEL_WARN, "a message with tag %d, tag %d expected", w->tag, r->tag);
		return MIN_INTERNAL_ERROR;
	}
	if (w->size > r->size) {
		min_log(MIN_LEVEL_WARN, "a message of %llu bytes for a receive of %zu",
			(unsigned long long)w->size, r->size);
		return MIN_INVALID_USAGE;
	}
	return MIN_OK;
}

/* Moves bytes of the head. Returns whether it is worth going on. */
static bool head_go_on(struct min_comm *c)
{
	struct min_request *r = queued(c, 0);
	ssize_t n = c->kind == MIN_SEND ? send_some(c, r) : receive_some(c, r);

	if (n < 0)
		c->error = min_failed((int)-n, c->kind == MIN_SEND ? "to send" : "to receive");
	if (n <= 0)
		return false;
	c->moved += (size_t)n;
	if (c->moved < sizeof(c->wire))
		return true;
	if (c->kind == MIN_RECV && c->moved == sizeof(c->wire))
		c->error = check_wire(c, r);
	if (c->error != MIN_OK)
		return false;
	if (c->moved == sizeof(c->wire) + c->wire.size) {
		r->size = c->wire.size;
		r->state = MIN_DONE;
		c->moved = 0;
		c->head = (c->head + 1) % MIN_MAX_REQUESTS;
		c->queued--;
	}
	return true;
}

static void go_on(struct min_comm *c)
{
	for (unsigned i = 0; i < CALLS_MAX && c->queued > 0 && c->error == MIN_OK; i++)
		if (!head_go_on(c))
			break;
	if (c->error != MIN_OK)
		c->queued = 0;
}

enum min_result min_test(void *request, int *done, int *sizes)
{
	struct min_request *r = request;
	enum min_result result = MIN_OK;
	struct min_comm *c;

	*done = 0;
	if (!r || !r->comm) {
		min_log(MIN_LEVEL_WARN, "test of no request");
		return MIN_INTERNAL_ERROR;
	}
	c = r->comm;
	(void)pthread_mutex_lock(&c->lock);
	go_on(c);
	if (r->state == MIN_DONE) {
		*done = 1;
		if (sizes)
			*sizes = (int)r->size;
		r->state = MIN_FREE;
	} else if (r->state == MIN_FREE) {
		min_log(MIN_LEVEL_WARN, "test of a request that is complete already");
		result = MIN_INTERNAL_ERROR;
	} else {
		result = c->error;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}
