/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/tcpx.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Listeners and connections. Connection 0 of a comm is the control connection, the others carry data. */

#define HANDLE_MAGIC UINT64_C(0x584350544b414631)
#define HELLO_MAGIC UINT64_C(0x58435054494f4c31)

enum { CONNS_MAX = 1 + TCPX_SOCKETS_MAX, PENDING_MAX = 32 };

struct endpoint {
	uint8_t addr[16];
	uint16_t port; /* network order */
	uint16_t family;
};

/* connect's progress, in the handle. */
enum { DIAL_NONE, DIAL_STARTED, DIAL_DONE, DIAL_FAILED };

struct handle {
	uint64_t magic, token;
	struct dial *dial;
	uint32_t state;
	uint32_t n_socks;
	struct endpoint ctrl, data;
};

_Static_assert(sizeof(struct handle) <= MIN_HANDLE_BYTES, "handle");

struct hello {
	uint64_t magic, token;
	uint16_t index, n_conns;
	uint32_t recv_sync;
};

struct conn {
	int fd;
	bool connected;
	size_t moved; /* of the hello */
	struct hello hello;
};

struct dial {
	LIST_ENTRY(dial) next;
	uint64_t token;
	struct conn conn[CONNS_MAX];
	unsigned n;
};

struct listener {
	int dev, ctrl_fd, data_fd;
	uint64_t token;
	bool called, ended;
	struct conn pending[PENDING_MAX];
	unsigned n_pending;
	int fd[CONNS_MAX]; /* of the comm; -1: not there yet */
};

static LIST_HEAD(dials, dial) dials = LIST_HEAD_INITIALIZER(dials);
static pthread_mutex_t dials_lock = PTHREAD_MUTEX_INITIALIZER;

static socklen_t address(const struct min_device *d, int family, struct sockaddr_storage *out)
{
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

static enum min_result ctrl_device(int dev, struct min_device *out)
{
	if (!tcpx_settings.ctrl_dev) {
		*out = *min_device(dev);
		return MIN_OK;
	}
	if (min_interface(tcpx_settings.ctrl_dev, out))
		return MIN_OK;
	min_log(MIN_LEVEL_WARN, "NCCL_GPUDIRECTTCPX_CTRL_DEV=%s has no address",
		tcpx_settings.ctrl_dev);
	return MIN_SYSTEM_ERROR;
}

static int listen_on(const struct min_device *d, struct endpoint *out)
{
	struct sockaddr_storage a;
	socklen_t len = address(d, 0, &a);
	int fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a, len) != 0 || listen(fd, PENDING_MAX) != 0 ||
		getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
		int err = errno;

		(void)close(fd);
		return -err;
	}
	out->family = a.ss_family;
	memcpy(&v4, &a, sizeof(v4));
	memcpy(&v6, &a, sizeof(v6));
	out->port = a.ss_family == AF_INET ? v4.sin_port : v6.sin6_port;
	if (a.ss_family == AF_INET)
		memcpy(out->addr, &v4.sin_addr, sizeof(v4.sin_addr));
	else
		memcpy(out->addr, &v6.sin6_addr, sizeof(v6.sin6_addr));
	return fd;
}

enum min_result tcpx_listen(int dev, void *handle, void **lcomm)
{
	struct handle h = { .magic = HANDLE_MAGIC, .n_socks = tcpx_settings.n_socks };
	struct min_device ctrl;
	struct listener *l;

	*lcomm = NULL;
	if (!min_device(dev) || ctrl_device(dev, &ctrl) != MIN_OK)
		return MIN_INTERNAL_ERROR;
	l = calloc(1, sizeof(*l));
	if (!l || getrandom(&h.token, sizeof(h.token), 0) != (ssize_t)sizeof(h.token)) {
		free(l);
		return min_failed(ENOMEM, "a listener");
	}
	l->dev = dev;
	l->token = h.token;
	l->ctrl_fd = listen_on(&ctrl, &h.ctrl);
	l->data_fd = listen_on(min_device(dev), &h.data);
	for (unsigned i = 0; i < CONNS_MAX; i++)
		l->fd[i] = -1;
	if (l->ctrl_fd < 0 || l->data_fd < 0) {
		int err = l->ctrl_fd < 0 ? -l->ctrl_fd : -l->data_fd;

		(void)tcpx_close_listen(l);
		return min_failed(err, "to listen on %s", min_device(dev)->name);
	}
	memset(handle, 0, MIN_HANDLE_BYTES);
	memcpy(handle, &h, sizeof(h));
	*lcomm = l;
	return MIN_OK;
}

enum min_result tcpx_close_listen(void *lcomm)
{
	struct listener *l = lcomm;

	if (!l)
		return MIN_OK;
	if (l->ctrl_fd >= 0)
		(void)close(l->ctrl_fd);
	if (l->data_fd >= 0)
		(void)close(l->data_fd);
	for (unsigned i = 0; i < l->n_pending; i++)
		(void)close(l->pending[i].fd);
	for (unsigned i = 0; i < CONNS_MAX; i++)
		if (l->fd[i] >= 0)
			(void)close(l->fd[i]);
	free(l);
	return MIN_OK;
}

static struct tcpx_comm *comm_of(bool is_send, const int *fd, unsigned n)
{
	struct tcpx_comm *c = tcpx_comm_new(is_send);
	int on = 1;

	for (unsigned i = 0; i < n; i++) {
		(void)setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (!c)
			(void)close(fd[i]);
		else if (i == 0)
			c->ctrl_fd = fd[i];
		else
			c->sock[c->n_socks++].fd = fd[i];
	}
	return c;
}

/* Starts one connection. Returns the socket or -errno. */
static int start(const struct min_device *d, const struct endpoint *to)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = to->port };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = to->port };
	struct sockaddr_storage own;
	socklen_t len = address(d, to->family, &own);
	int fd = socket(to->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	memcpy(&v4.sin_addr, to->addr, sizeof(v4.sin_addr));
	memcpy(&v6.sin6_addr, to->addr, sizeof(v6.sin6_addr));
	if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
		v6.sin6_scope_id = d->index;
	rc = len > 0 ? bind(fd, (struct sockaddr *)&own, len) : 0;
	if (rc == 0)
		rc = to->family == AF_INET ? connect(fd, (struct sockaddr *)&v4, sizeof(v4))
					   : connect(fd, (struct sockaddr *)&v6, sizeof(v6));
	if (rc != 0 && errno != EINPROGRESS) {
		rc = -errno;
		(void)close(fd);
		return rc;
	}
	return fd;
}

static void dial_drop(struct dial *d, bool with_sockets)
{
	(void)pthread_mutex_lock(&dials_lock);
	LIST_REMOVE(d, next);
	(void)pthread_mutex_unlock(&dials_lock);
	for (unsigned i = 0; with_sockets && i < d->n; i++)
		(void)close(d->conn[i].fd);
	free(d);
}

static int dial_start(int dev, const struct handle *h, struct dial **out)
{
	struct min_device ctrl;
	struct dial *d, *other;

	if (ctrl_device(dev, &ctrl) != MIN_OK)
		return -ENODEV;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->token = h->token;
	(void)pthread_mutex_lock(&dials_lock);
	LIST_FOREACH(other, &dials, next)
	if (other->token == h->token)
		tcpx_misuse("connect with another copy of the handle, while the first continues");
	LIST_INSERT_HEAD(&dials, d, next);
	(void)pthread_mutex_unlock(&dials_lock);
	for (unsigned i = 0; i <= h->n_socks; i++) {
		int fd = start(i == 0 ? &ctrl : min_device(dev), i == 0 ? &h->ctrl : &h->data);

		if (fd < 0) {
			dial_drop(d, true);
			return fd;
		}
		d->conn[d->n++] = (struct conn){ .fd = fd,
			.hello = { HELLO_MAGIC, h->token, (uint16_t)i, (uint16_t)(h->n_socks + 1),
				tcpx_settings.recv_sync } };
	}
	*out = d;
	return 0;
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
	return up == d->n;
}

static void check_handle(const struct handle *h)
{
	if (h->magic != HANDLE_MAGIC || h->n_socks == 0 || h->n_socks > TCPX_SOCKETS_MAX)
		tcpx_misuse("connect with a handle of another plugin");
	if (h->state == DIAL_DONE)
		tcpx_misuse("connect with a handle that has given its comm");
	if (h->state == DIAL_FAILED)
		tcpx_misuse("connect after it failed");
}

/* The sender. Its context is that of this thread, or if there is none of its first registration of GPU memory. */
static struct tcpx_comm *connected(const int *fd, unsigned n)
{
	struct tcpx_comm *c = comm_of(true, fd, n);

	if (c && tcpx_settings.cuda)
		(void)tcpx_gpu_take(&c->gpu);
	return c;
}

enum min_result tcpx_connect(int dev, void *handle, void **scomm, struct min_device_handle **device)
{
	struct handle h;
	int rc;

	(void)device;
	*scomm = NULL;
	memcpy(&h, handle, sizeof(h));
	check_handle(&h);
	if (!min_device(dev))
		return MIN_INTERNAL_ERROR;
	if (h.state == DIAL_NONE) {
		rc = dial_start(dev, &h, &h.dial);
		h.state = rc == 0 ? DIAL_STARTED : DIAL_FAILED;
	} else {
		rc = dial_go_on(h.dial);
		if (rc == 1) {
			int fd[CONNS_MAX];

			for (unsigned i = 0; i < h.dial->n; i++)
				fd[i] = h.dial->conn[i].fd;
			*scomm = connected(fd, h.dial->n);
			h.state = DIAL_DONE;
		}
		if (rc != 0)
			dial_drop(h.dial, rc < 0);
		if (rc < 0)
			h.state = DIAL_FAILED;
	}
	memcpy(handle, &h, sizeof(h));
	return rc < 0 ? min_failed(-rc, "to connect from %s", min_device(dev)->name) : MIN_OK;
}

/* 1: a connection of the comm, 0: not yet known, -1: another. */
static int pending_read(struct listener *l, struct conn *c)
{
	ssize_t n = recv(
		c->fd, (char *)&c->hello + c->moved, sizeof(c->hello) - c->moved, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	c->moved += (size_t)n;
	if (n == 0 || c->moved < sizeof(c->hello))
		return n == 0 ? -1 : 0;
	if (c->hello.magic != HELLO_MAGIC || c->hello.token != l->token ||
		c->hello.n_conns != tcpx_settings.n_socks + 1 ||
		c->hello.index >= c->hello.n_conns || l->fd[c->hello.index] >= 0)
		return -1;
	if ((c->hello.recv_sync != 0) != tcpx_settings.recv_sync)
		tcpx_misuse("NCCL_GPUDIRECTTCPX_RECV_SYNC is %u at the sender and %d here",
			c->hello.recv_sync, tcpx_settings.recv_sync);
	l->fd[c->hello.index] = c->fd;
	return 1;
}

static void take(struct listener *l, int listen_fd)
{
	while (l->n_pending < PENDING_MAX) {
		int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		l->pending[l->n_pending++] = (struct conn){ .fd = fd };
	}
}

static enum min_result accepted(struct tcpx_comm *c, struct min_device_handle **device)
{
	enum min_result result;

	if (tcpx_kind.unpack && (!device || !*device))
		return MIN_OK; /* irecv complains */
	result = tcpx_kind.init(c);
	if (result != MIN_OK || !tcpx_kind.unpack)
		return result;
	**device = (struct min_device_handle){ .type = TCPX_DEVICE_UNPACK,
		.version = TCPX_UNPACK_VERSION,
		.handle = tcpx_settings.cuda ? (void *)c->gpu.handle : c->device,
		.size = sizeof(*c->device),
		.needs_proxy_progress = 1 };
	return MIN_OK;
}

enum min_result tcpx_accept(void *lcomm, void **rcomm, struct min_device_handle **device)
{
	struct listener *l = lcomm;
	enum min_result result;
	struct tcpx_comm *c;

	*rcomm = NULL;
	if (!l || l->ended)
		tcpx_misuse("accept on a listener that has given its comm");
	if (!l->called) {
		l->called = true;
		return MIN_OK;
	}
	take(l, l->ctrl_fd);
	take(l, l->data_fd);
	for (unsigned i = 0; i < l->n_pending;) {
		int rc = pending_read(l, &l->pending[i]);

		if (rc == 0) {
			i++;
			continue;
		}
		if (rc < 0)
			(void)close(l->pending[i].fd);
		l->pending[i] = l->pending[--l->n_pending];
	}
	for (unsigned i = 0; i <= tcpx_settings.n_socks; i++)
		if (l->fd[i] < 0)
			return MIN_OK;
	l->ended = true;
	c = comm_of(false, l->fd, tcpx_settings.n_socks + 1);
	for (unsigned i = 0; i < CONNS_MAX; i++)
		l->fd[i] = -1;
	if (!c)
		return min_failed(ENOMEM, "a comm");
	result = accepted(c, device);
	if (result != MIN_OK)
		(void)tcpx_close(c);
	else
		*rcomm = c;
	return result;
}
