/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/net/net.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Contexts, listeners, and connections until they carry messages. */

#define HANDLE_MAGIC UINT64_C(0x314c444e484e494d)
#define HELLO_MAGIC UINT64_C(0x314f4c4c48454e4d)

enum { BACKLOG = 128 };

enum min_result min_ctx_new(struct min_ctx **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return min_failed(ENOMEM, "a context");
	(void)pthread_mutex_init(&(*out)->lock, NULL);
	return MIN_OK;
}

void min_ctx_free(struct min_ctx *ctx)
{
	if (!ctx)
		return;
	while (!LIST_EMPTY(&ctx->comms))
		(void)min_close(LIST_FIRST(&ctx->comms));
	(void)pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

/* Takes over fd, also on failure. */
static struct min_comm *comm_new(struct min_ctx *ctx, enum min_kind kind, int dev, int fd)
{
	struct min_comm *c = calloc(1, sizeof(*c));

	if (!c) {
		(void)close(fd);
		return NULL;
	}
	c->ctx = ctx;
	c->kind = kind;
	c->dev = dev;
	c->fd = fd;
	(void)pthread_mutex_init(&c->lock, NULL);
	LIST_INIT(&c->mrs);
	(void)pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->comms, c, next);
	if (kind == MIN_DIAL)
		c->dial = ++ctx->dials;
	(void)pthread_mutex_unlock(&ctx->lock);
	return c;
}

enum min_result min_close(void *comm)
{
	struct min_comm *c = comm;

	if (!c)
		return MIN_OK;
	(void)pthread_mutex_lock(&c->ctx->lock);
	LIST_REMOVE(c, next);
	(void)pthread_mutex_unlock(&c->ctx->lock);
	for (unsigned i = 0; i < c->n_pending; i++)
		(void)close(c->pending[i].fd);
	while (!LIST_EMPTY(&c->mrs)) {
		struct min_mr *mr = LIST_FIRST(&c->mrs);

		LIST_REMOVE(mr, next);
		free(mr);
	}
	(void)close(c->fd);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
	return MIN_OK;
}

/* The device's address of a family (0: any), with port 0; its length, or 0 if it has none. */
static socklen_t device_address(int dev, int family, struct sockaddr_storage *out)
{
	const struct min_device *d = min_device(dev);

	memset(out, 0, sizeof(*out));
	if (d->has_v4 && family != AF_INET6) {
		memcpy(out, &d->v4, sizeof(d->v4));
		return sizeof(d->v4);
	}
	if (d->has_v6 && family != AF_INET) {
		memcpy(out, &d->v6, sizeof(d->v6));
		return sizeof(d->v6);
	}
	return 0;
}

static int open_socket(int family)
{
	return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void no_delay(int fd)
{
	int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void handle_set_address(struct min_handle *h, const struct sockaddr_storage *a)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	h->family = a->ss_family;
	if (a->ss_family == AF_INET) {
		memcpy(&v4, a, sizeof(v4));
		memcpy(h->addr, &v4.sin_addr, sizeof(v4.sin_addr));
		h->port = v4.sin_port;
	} else {
		memcpy(&v6, a, sizeof(v6));
		memcpy(h->addr, &v6.sin6_addr, sizeof(v6.sin6_addr));
		h->port = v6.sin6_port;
	}
}

/* The listener's address, as it is reached from device dev. Returns its length, 0 for an unknown family. */
static socklen_t handle_address(const struct min_handle *h, int dev, struct sockaddr_storage *out)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = h->port };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = h->port };

	memset(out, 0, sizeof(*out));
	if (h->family == AF_INET) {
		memcpy(&v4.sin_addr, h->addr, sizeof(v4.sin_addr));
		memcpy(out, &v4, sizeof(v4));
		return sizeof(v4);
	}
	if (h->family != AF_INET6)
		return 0;
	memcpy(&v6.sin6_addr, h->addr, sizeof(v6.sin6_addr));
	if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
		v6.sin6_scope_id = min_device(dev)->index;
	memcpy(out, &v6, sizeof(v6));
	return sizeof(v6);
}

enum min_result min_listen(struct min_ctx *ctx, int dev, void *handle, void **lcomm)
{
	struct min_handle h = { .magic = HANDLE_MAGIC };
	struct sockaddr_storage addr;
	struct min_comm *c;
	socklen_t len;
	int fd;

	*lcomm = NULL;
	if (!ctx || !min_device(dev)) {
		min_log(MIN_LEVEL_WARN, "listen on device %d of %d", dev, min_devices());
		return MIN_INTERNAL_ERROR;
	}
	len = device_address(dev, 0, &addr);
	fd = open_socket(addr.ss_family);
	if (fd < 0)
		return min_failed(errno, "a socket on %s", min_device(dev)->name);
	if (bind(fd, (struct sockaddr *)&addr, len) != 0 || listen(fd, BACKLOG) != 0 ||
		getsockname(fd, (struct sockaddr *)&addr, &len) != 0 ||
		getrandom(&h.token, sizeof(h.token), 0) != (ssize_t)sizeof(h.token)) {
		int err = errno;

		(void)close(fd);
		return min_failed(err, "to listen on %s", min_device(dev)->name);
	}
	c = comm_new(ctx, MIN_LISTEN, dev, fd);
	if (!c)
		return min_failed(ENOMEM, "a listener");
	c->token = h.token;
	handle_set_address(&h, &addr);
	memset(handle, 0, MIN_HANDLE_BYTES);
	memcpy(handle, &h, sizeof(h));
	*lcomm = c;
	return MIN_OK;
}

static enum min_result dial_start(
	struct min_ctx *ctx, int dev, const struct min_handle *h, struct min_comm **out)
{
	const char *name = min_device(dev)->name;
	struct sockaddr_storage peer, own;
	socklen_t len = handle_address(h, dev, &peer), own_len;
	int fd, err;

	if (len == 0) {
		min_log(MIN_LEVEL_WARN, "the handle has an address of family %d", h->family);
		return MIN_INTERNAL_ERROR;
	}
	fd = open_socket(h->family);
	if (fd < 0)
		return min_failed(errno, "a socket on %s", name);
	/* Without an address of the peer's family the kernel chooses. */
	own_len = device_address(dev, h->family, &own);
	if ((own_len > 0 && bind(fd, (struct sockaddr *)&own, own_len) != 0) ||
		(connect(fd, (struct sockaddr *)&peer, len) != 0 && errno != EINPROGRESS)) {
		err = errno;
		(void)close(fd);
		return min_failed(err, "to connect from %s", name);
	}
	no_delay(fd);
	*out = comm_new(ctx, MIN_DIAL, dev, fd);
	if (!*out)
		return min_failed(ENOMEM, "a connection");
	(*out)->hello = (struct min_hello){ .magic = HELLO_MAGIC, .token = h->token };
	return MIN_OK;
}

/* Whether the socket is connected: 1, 0 not yet, or -errno. */
static int is_connected(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int err = 0;
	socklen_t len = sizeof(err);

	if (poll(&p, 1, 0) <= 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
		return -errno;
	return err ? -err : 1;
}

/* 1: the hello is out, 0: not yet, or -errno. */
static int dial_go_on(struct min_comm *c)
{
	ssize_t n;
	int rc;

	if (!c->connected) {
		rc = is_connected(c->fd);
		if (rc <= 0)
			return rc;
		c->connected = true;
	}
	n = send(c->fd, (const char *)&c->hello + c->sent, sizeof(c->hello) - c->sent,
		MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->sent += n;
	return c->sent == sizeof(c->hello);
}

static struct min_comm *dial_find(struct min_ctx *ctx, uint64_t dial)
{
	struct min_comm *c;

	(void)pthread_mutex_lock(&ctx->lock);
	LIST_FOREACH(c, &ctx->comms, next)
	if (c->dial == dial)
		break;
	(void)pthread_mutex_unlock(&ctx->lock);
	return c;
}

enum min_result min_connect(struct min_ctx *ctx, int dev, void *handle, void **scomm)
{
	enum min_result result = MIN_OK;
	struct min_comm *c = NULL;
	struct min_handle h;
	int rc;

	*scomm = NULL;
	memcpy(&h, handle, sizeof(h));
	if (!ctx || !min_device(dev) || h.magic != HANDLE_MAGIC) {
		min_log(MIN_LEVEL_WARN, "connect on device %d of %d, handle %s", dev, min_devices(),
			h.magic == HANDLE_MAGIC ? "valid" : "of another plugin");
		return MIN_INTERNAL_ERROR;
	}
	if (h.dial != 0) {
		c = dial_find(ctx, h.dial);
		if (!c) {
			min_log(MIN_LEVEL_WARN, "the handle names a connection that is gone");
			return MIN_INTERNAL_ERROR;
		}
	} else {
		result = dial_start(ctx, dev, &h, &c);
		if (result != MIN_OK)
			return result;
	}
	rc = dial_go_on(c);
	h.dial = rc == 0 ? c->dial : 0;
	memcpy(handle, &h, sizeof(h));
	if (rc < 0) {
		(void)min_close(c);
		return min_failed(-rc, "to connect from %s", min_device(dev)->name);
	}
	if (rc == 1) {
		(void)pthread_mutex_lock(&ctx->lock);
		c->dial = 0;
		c->kind = MIN_SEND;
		(void)pthread_mutex_unlock(&ctx->lock);
		*scomm = c;
	}
	return MIN_OK;
}

static void pending_drop(struct min_comm *l, unsigned i)
{
	memmove(&l->pending[i], &l->pending[i + 1], (l->n_pending - i - 1) * sizeof(l->pending[0]));
	l->n_pending--;
}

/* The oldest one makes room. */
static void pending_add(struct min_comm *l, int fd)
{
	if (l->n_pending == MIN_PENDING_MAX) {
		(void)close(l->pending[0].fd);
		pending_drop(l, 0);
	}
	l->pending[l->n_pending++] = (struct min_pending){ .fd = fd };
}

/* 1: the hello is complete and right, 0: not yet, -1: this is no peer. */
static int pending_read(const struct min_comm *l, struct min_pending *p)
{
	ssize_t n =
		recv(p->fd, (char *)&p->hello + p->got, sizeof(p->hello) - p->got, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		return -1;
	p->got += n;
	if (p->got < sizeof(p->hello))
		return 0;
	return p->hello.magic == HELLO_MAGIC && p->hello.token == l->token ? 1 : -1;
}

enum min_result min_accept(void *lcomm, void **rcomm)
{
	struct min_comm *l = lcomm, *c;
	int fd, rc, err = 0;

	*rcomm = NULL;
	if (!l || l->kind != MIN_LISTEN) {
		min_log(MIN_LEVEL_WARN, "accept on what does not listen");
		return MIN_INTERNAL_ERROR;
	}
	/* At most as many as are kept, so that a flood does not hold the caller. */
	for (unsigned i = 0; i < MIN_PENDING_MAX && err == 0; i++) {
		fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			err = errno;
		else
			pending_add(l, fd);
	}
	if (err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS)
		return min_failed(err, "to accept on %s", min_device(l->dev)->name);
	for (unsigned i = 0; i < l->n_pending;) {
		rc = pending_read(l, &l->pending[i]);
		if (rc == 0) {
			i++;
			continue;
		}
		fd = l->pending[i].fd;
		pending_drop(l, i);
		if (rc < 0) {
			(void)close(fd);
			continue;
		}
		no_delay(fd);
		c = comm_new(l->ctx, MIN_RECV, l->dev, fd);
		if (!c)
			return min_failed(ENOMEM, "a connection");
		*rcomm = c;
		break;
	}
	return MIN_OK;
}
