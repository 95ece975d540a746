/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/plugins/net/bugs.h"

/* Contexts, listeners and connections. Connection 0 of a comm is the control connection, the others carry data. */

#define HANDLE_MAGIC UINT64_C(0x31454b4146454b41)
#define HELLO_MAGIC UINT64_C(0x314f4c4c45484b46)

enum { CONNS_MAX = 1 + FN_SOCKETS_MAX, PENDING_MAX = 16, BACKLOG = 128, CONNECT_MS = 200 };

/* Of connect in the handle, where a listener gives one comm. */
enum { STATE_NEW, STATE_DONE, STATE_FAILED };

struct handle {
	uint64_t magic, token;
	uint64_t dial; /* connect's; 0: nothing started */
	uint32_t state, n_conns;
	union fn_address at;
};

_Static_assert(sizeof(struct handle) <= FN_HANDLE_BYTES, "handle");

struct conn {
	int fd;
	bool connected;
	size_t moved; /* of the hello */
	struct fn_hello hello;
};

struct dial {
	struct fn_object object;
	uint64_t token;
	struct conn conn[CONNS_MAX];
	unsigned n;
};

struct listener {
	struct fn_object object;
	int dev, fd;
	uint64_t token;
	bool called, ended;
	struct conn pending[PENDING_MAX]; /* in the order of their coming */
	unsigned n_pending;
	int conn[CONNS_MAX]; /* of the next comm; 0: not there yet */
	unsigned n_conns;
};

static unsigned n_conns(void)
{
	return fn_kind->single ? 1 : 1 + fn_settings.n_socks;
}

/* ---- objects of a context ---- */

enum fn_result fn_ctx_new(struct fn_ctx **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return fn_failed(ENOMEM, "a context");
	(void)pthread_mutex_init(&(*out)->lock, NULL);
	return FN_OK;
}

void fn_object_add(struct fn_object *o, struct fn_ctx *ctx, enum fn_object_kind kind)
{
	o->ctx = ctx;
	o->kind = kind;
	(void)pthread_mutex_lock(&ctx->lock);
	o->id = ++ctx->ids;
	LIST_INSERT_HEAD(&ctx->objects, o, next);
	(void)pthread_mutex_unlock(&ctx->lock);
}

static void close_conns(const struct conn *c, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		(void)close(c[i].fd);
}

static enum fn_result object_free(struct fn_object *o)
{
	struct listener *l = (struct listener *)o;

	(void)pthread_mutex_lock(&o->ctx->lock);
	LIST_REMOVE(o, next);
	(void)pthread_mutex_unlock(&o->ctx->lock);
	if (o->kind == FN_COMM)
		return fn_comm_free((struct fn_comm *)o);
	if (o->kind == FN_DIAL) {
		close_conns(((struct dial *)o)->conn, ((struct dial *)o)->n);
	} else {
		close_conns(l->pending, l->n_pending);
		for (unsigned i = 0; i < CONNS_MAX; i++)
			if (l->conn[i])
				(void)close(l->conn[i]);
		(void)close(l->fd);
	}
	free(o);
	return FN_OK;
}

enum fn_result fn_close(void *object, enum fn_object_kind kind)
{
	struct fn_object *o = object;

	if (o && o->kind != kind)
		fn_misuse("close of a %s as a %s", o->kind == FN_COMM ? "comm" : "listener",
			kind == FN_COMM ? "comm" : "listener");
	return o ? object_free(o) : FN_OK;
}

void fn_ctx_free(struct fn_ctx *ctx)
{
	if (!ctx)
		return;
	while (!LIST_EMPTY(&ctx->objects))
		(void)object_free(LIST_FIRST(&ctx->objects));
	(void)pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

/* ---- addresses ---- */

/* The device's address of a family (0: any), with port 0. */
static union fn_address address(const struct fn_device *d, int family)
{
	if (d->v4.any.sa_family && family != AF_INET6)
		return d->v4;
	return family == AF_INET ? d->v4 : d->v6;
}

static socklen_t length(const union fn_address *a)
{
	return a->any.sa_family == AF_INET ? sizeof(a->v4) : sizeof(a->v6);
}

/* A socket at an address of the device: listens, and `at` gets it with the port, or connects to `at`. Returns it or -errno. */
static int open_socket(const struct fn_device *d, bool listens, union fn_address *at)
{
	union fn_address own = address(d, listens ? 0 : at->any.sa_family);
	int family = listens ? own.any.sa_family : at->any.sa_family, rc = 0;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*at);

	if (fd < 0)
		return -errno;
	if (!listens && family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&at->v6.sin6_addr))
		at->v6.sin6_scope_id = d->index;
	/* Without an address of the peer's family the kernel chooses. */
	if (own.any.sa_family)
		rc = bind(fd, &own.any, length(&own));
	if (rc == 0 && listens)
		rc = listen(fd, BACKLOG) ? -1 : getsockname(fd, &at->any, &len);
	else if (rc == 0)
		rc = connect(fd, &at->any, length(at));
	if (rc != 0 && (listens || errno != EINPROGRESS)) {
		rc = -errno;
		(void)close(fd);
		return rc;
	}
	return fd;
}

enum fn_result fn_listen(struct fn_ctx *ctx, int dev, void *handle, void **lcomm)
{
	struct handle h = { .magic = HANDLE_MAGIC, .n_conns = n_conns() };
	struct listener *l;
	int fd;

	FN_ENTER("listen");
	*lcomm = NULL;
	if (!ctx || !fn_device(dev)) {
		fn_log(FN_LEVEL_WARN, "listen on device %d of %d", dev, fn_devices());
		return FN_INTERNAL_ERROR;
	}
	fd = open_socket(fn_device(dev), true, &h.at);
	if (fd < 0)
		return fn_failed(-fd, "to listen on %s", fn_device(dev)->name);
	l = calloc(1, sizeof(*l));
	if (!l || getrandom(&h.token, sizeof(h.token), 0) != (ssize_t)sizeof(h.token)) {
		(void)close(fd);
		free(l);
		return fn_failed(ENOMEM, "a listener");
	}
	l->dev = dev;
	l->fd = fd;
	l->token = h.token;
	fn_object_add(&l->object, ctx, FN_LISTENER);
	memset(handle, 0, FN_HANDLE_BYTES);
	memcpy(handle, &h, sizeof(h));
	*lcomm = l;
	return FN_OK;
}

/* ---- connect ---- */

/* The one that started with this id, or that dials this token. */
static struct dial *find(struct fn_ctx *ctx, uint64_t id, uint64_t token)
{
	struct dial *found = NULL;
	struct fn_object *o;

	(void)pthread_mutex_lock(&ctx->lock);
	LIST_FOREACH(o, &ctx->objects, next)
	{
		struct dial *d = (struct dial *)o;

		if (o->kind == FN_DIAL && (o->id == id || d->token == token))
			found = d;
	}
	(void)pthread_mutex_unlock(&ctx->lock);
	return found;
}

static int dial_start(struct fn_ctx *ctx, int dev, struct handle *h, struct dial **out)
{
	struct dial *d;
	int fd = 0;

	if (!fn_kind->single && find(ctx, 0, h->token))
		fn_misuse("connect with another copy of the handle, while the first continues");
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->token = h->token;
	fn_object_add(&d->object, ctx, FN_DIAL);
	while (d->n < h->n_conns && fd >= 0) {
		fd = open_socket(fn_device(dev), false, &h->at);
		if (fd < 0)
			break;
		d->conn[d->n] = (struct conn){ .fd = fd,
			.hello = { HELLO_MAGIC, h->token, (uint16_t)d->n, (uint16_t)h->n_conns,
				fn_settings.recv_sync } };
		d->n++;
	}
	*out = d;
	return fd < 0 ? fd : 0;
}

/* 1: connected and the hello is out, 0: not yet, or -errno. */
static int conn_go_on(struct conn *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;
	ssize_t n;

	if (!c->connected) {
		if (poll(&p, 1, 0) <= 0)
			return 0;
		if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0)
			return err ? -err : -errno;
		c->connected = true;
	}
	if (c->moved == sizeof(c->hello))
		return 1;
	n = send(c->fd, (char *)&c->hello + c->moved, sizeof(c->hello) - c->moved,
		MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->moved += (size_t)n;
	return c->moved == sizeof(c->hello);
}

static int dial_go_on(struct dial *d)
{
	unsigned up = 0;

	for (unsigned i = 0; i < d->n; i++) {
		int rc = conn_go_on(&d->conn[i]);

		if (rc < 0)
			return rc;
		up += (unsigned)rc;
	}
	return up == d->n && !fn_bug(FN_BUG_CONNECT_NEVER);
}

/* Takes the connections over, also on failure. */
static struct fn_comm *comm_of(struct fn_ctx *ctx, bool is_send, const int *fd, unsigned n)
{
	struct fn_comm *c = fn_comm_new(ctx, is_send);
	int on = 1;

	for (unsigned i = 0; i < n; i++) {
		(void)setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (!c)
			(void)close(fd[i]);
		else if (i == 0)
			c->ctrl_fd = fd[i];
		if (c && (i > 0 || n == 1))
			c->sock[c->n_socks++].fd = fd[i];
	}
	return c;
}

/* The sender. Its context is that of this thread, or if there is none of its first registration of GPU memory. */
static struct fn_comm *connected(struct dial *d)
{
	int fd[CONNS_MAX];
	struct fn_comm *c;

	for (unsigned i = 0; i < d->n; i++)
		fd[i] = d->conn[i].fd;
	c = comm_of(d->object.ctx, true, fd, d->n);
	d->n = 0;
	if (c && fn_settings.cuda)
		(void)fn_gpu_take(&c->gpu, false);
	return c;
}

static struct dial *dial_of(struct fn_ctx *ctx, const struct handle *h)
{
	struct dial *d;

	if (h->magic != HANDLE_MAGIC || h->n_conns == 0 || h->n_conns > CONNS_MAX)
		fn_misuse("connect with a handle of another plugin");
	if (h->state == STATE_DONE)
		fn_misuse("connect with a handle that has given its comm");
	if (h->state == STATE_FAILED)
		fn_misuse("connect after it failed");
	d = h->dial ? find(ctx, h->dial, 0) : NULL;
	if (h->dial && !d)
		fn_misuse("connect with a handle whose connection is gone");
	return d;
}

enum fn_result fn_connect(struct fn_ctx *ctx, int dev, void *handle, void **scomm)
{
	struct handle h;
	struct dial *d;
	int rc = 0;

	FN_ENTER("connect");
	if (fn_bug(FN_BUG_CONNECT_UNSET))
		return FN_OK;
	*scomm = NULL;
	memcpy(&h, handle, sizeof(h));
	if (!ctx || !fn_device(dev)) {
		fn_log(FN_LEVEL_WARN, "connect on device %d of %d", dev, fn_devices());
		return FN_INTERNAL_ERROR;
	}
	d = dial_of(ctx, &h);
	if (!d)
		rc = dial_start(ctx, dev, &h, &d);
	if (fn_kind->waits)
		(void)poll(NULL, 0, CONNECT_MS);
	if (rc == 0 && (h.dial || fn_kind->single || fn_kind->waits))
		rc = dial_go_on(d);
	while (fn_kind->waits && rc == 0 && poll(NULL, 0, 1) == 0)
		rc = dial_go_on(d);
	if (rc == 1) {
		*scomm = connected(d);
		rc = *scomm ? 1 : -ENOMEM;
	}
	h.dial = rc == 0 ? d->object.id : 0;
	if (rc != 0 && !fn_kind->single)
		h.state = rc == 1 ? STATE_DONE : STATE_FAILED;
	memcpy(handle, &h, sizeof(h));
	if (rc != 0 && d)
		(void)object_free(&d->object);
	return rc < 0 ? fn_failed(-rc, "to connect from %s", fn_device(dev)->name) : FN_OK;
}

/* ---- accept ---- */

static void pending_drop(struct listener *l, unsigned i)
{
	memmove(&l->pending[i], &l->pending[i + 1], (l->n_pending - i - 1) * sizeof(l->pending[0]));
	l->n_pending--;
}

/* At most as many as are kept, so that a flood does not hold the caller. The oldest one makes room. Returns an errno. */
static int take(struct listener *l)
{
	for (unsigned i = 0; i < PENDING_MAX; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
					       errno == ENOBUFS
				       ? errno
				       : 0;
		if (l->n_pending == PENDING_MAX) {
			(void)close(l->pending[0].fd);
			pending_drop(l, 0);
		}
		l->pending[l->n_pending++] = (struct conn){ .fd = fd };
	}
	return 0;
}

/* 1: the hello is complete and right, 0: not yet, -1: this is no peer. */
static int pending_read(const struct listener *l, struct conn *c)
{
	ssize_t n = recv(
		c->fd, (char *)&c->hello + c->moved, sizeof(c->hello) - c->moved, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	c->moved += (size_t)n;
	if (n == 0 || c->moved < sizeof(c->hello))
		return n == 0 ? -1 : 0;
	if (c->hello.magic != HELLO_MAGIC || c->hello.token != l->token ||
		c->hello.n_conns != n_conns() || c->hello.index >= c->hello.n_conns ||
		l->conn[c->hello.index])
		return -1;
	if ((c->hello.recv_sync != 0) != fn_settings.recv_sync)
		fn_misuse("NCCL_GPUDIRECTTCPX_RECV_SYNC is %u at the sender and %d here",
			c->hello.recv_sync, fn_settings.recv_sync);
	return 1;
}

/* Whether all connections of the next comm are there. */
static bool gather(struct listener *l)
{
	for (unsigned i = 0; i < l->n_pending && l->n_conns < n_conns();) {
		struct conn *c = &l->pending[i];
		int rc = pending_read(l, c);

		if (rc == 0) {
			i++;
			continue;
		}
		if (rc < 0)
			(void)close(c->fd);
		else
			l->conn[c->hello.index] = c->fd;
		l->n_conns += rc > 0;
		pending_drop(l, i);
	}
	return l->n_conns == n_conns();
}

static enum fn_result accepted(struct fn_comm *c, struct fn_device_handle **device)
{
	enum fn_result result;

	if (fn_kind->pieces && (!device || !*device))
		return FN_OK; /* irecv complains */
	result = fn_kind->pieces ? fn_bounce_init(c) : fn_direct_init(c);
	if (result != FN_OK || !fn_kind->pieces)
		return result;
	**device = (struct fn_device_handle){ .type = FN_DEVICE_UNPACK,
		.version = FN_UNPACK_VERSION,
		.handle = fn_settings.cuda ? (void *)c->gpu.handle : c->device,
		.size = sizeof(*c->device),
		.needs_proxy_progress = 1 };
	return FN_OK;
}

static enum fn_result comm_new(struct listener *l, void **rcomm, struct fn_device_handle **device)
{
	struct fn_comm *c = comm_of(l->object.ctx, false, l->conn, n_conns());
	enum fn_result result;

	memset(l->conn, 0, sizeof(l->conn));
	l->n_conns = 0;
	if (!c)
		return fn_failed(ENOMEM, "a comm");
	if (fn_bug(FN_BUG_DESCRIPTORS) && dup(STDIN_FILENO) < 0)
		return fn_failed(errno, "a descriptor");
	result = accepted(c, device);
	if (result != FN_OK)
		(void)object_free(&c->object);
	else
		*rcomm = c;
	return result;
}

enum fn_result fn_accept(void *lcomm, void **rcomm, struct fn_device_handle **device)
{
	struct listener *l = lcomm;
	int err;

	FN_ENTER("accept");
	if (fn_bug(FN_BUG_ACCEPT_UNSET))
		return FN_OK;
	*rcomm = NULL;
	if (!l || l->object.kind != FN_LISTENER)
		fn_misuse("accept on what does not listen");
	if (l->ended)
		fn_misuse("accept on a listener that has given its comm");
	if (fn_bug(FN_BUG_ACCEPT_EARLY))
		*rcomm = fn_comm_new(l->object.ctx, false);
	if (fn_bug(FN_BUG_ACCEPT_EARLY) || (!l->called && !fn_kind->single && !fn_kind->waits)) {
		l->called = true;
		return FN_OK;
	}
	do {
		err = take(l);
		if (err != 0)
			return fn_failed(err, "to accept on %s", fn_device(l->dev)->name);
		if (gather(l))
			break;
		if (!fn_kind->waits)
			return FN_OK;
	} while (poll(NULL, 0, 1) == 0);
	l->ended = !fn_kind->single;
	return comm_new(l, rcomm, device);
}
