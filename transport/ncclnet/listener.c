/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners. One of the plugin gives one comm, as NCCL uses it, so a rail has a TCP socket on which a dialler asks for the
 * handle of a new one (dial.c). Who sends no right HELLO gets none, and makes room for others. A listener whose comm does
 * not come is closed after a while.
 */
#include "transport/ncclnet/net_priv.h"

#include "transport/ncclnet/watch.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 64, BATCH = 16 };
static const int64_t HELLO_NS = 5 * DR_NS_PER_S, COMM_NS = 10 * DR_NS_PER_S;
static const int64_t PAUSE_NS = 100 * DR_NS_PER_MS;

/* ---- the socket ---- */

void dr_nn_set_port(const struct nn_rail *r, struct sockaddr_storage *ss, uint16_t port)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	dr_sa_set_port(ss, port);
	if (ss->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = r->scope_id;
}

static int listen_on(const struct nn_rail *r, uint16_t port)
{
	struct sockaddr_storage ss = r->par.local;
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), err, on = 1;

	if (fd < 0)
		return -errno;
	if (ss.ss_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	dr_nn_set_port(r, &ss, port);
	if (bind(fd, (struct sockaddr *)&ss, dr_sa_len(&ss)) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* ---- handles ---- */

static void close_listener(struct nn_rail *r, struct nn_listener **at)
{
	struct nn_listener *l = *at;

	*at = l->next;
	r->n_listeners--;
	dr_nn_call_drop(&l->call);
	dr_free(l);
}

static void complain(struct nn_rail *r, const char *what, const char *why)
{
	if (!r->warned)
		dr_warn("nccl", "rail %u: %s: %s", r->base.index, what, why);
	r->warned = true;
}

/* -EIO: the plugin cannot listen, *why; -EAGAIN: not yet. */
static int plugin_listen(
	struct nn_rail *r, uint8_t handle[NCCL_NET_HANDLE_BYTES], void **comm, const char **why)
{
	enum nccl_result rc = (enum nccl_result)NN_CALL(
		r->n->name, "listen", dr_nccl_listen(r->n, r->dev.dev, handle, comm));

	if (rc == NCCL_SUCCESS && *comm && *comm != DR_NCCL_UNSET)
		return 0;
	*why = rc == NCCL_SUCCESS ? "it gives no comm" : dr_nccl_result_name(rc);
	return rc == NCCL_IN_PROGRESS ? -EAGAIN : -EIO;
}

static void plugin_close(struct nn_rail *r, void *listener)
{
	if (NN_CALL(r->n->name, "closeListen", r->n->close_listen(listener)))
		dr_warn("nccl", "rail %u: the plugin could not close a listener", r->base.index);
}

/* A listener that accepts, the first one in r->listeners, and its handle. As plugin_listen. */
static int make_listener(
	struct nn_rail *r, uint8_t handle[NCCL_NET_HANDLE_BYTES], int64_t now_ns, const char **why)
{
	struct nn_listener *l = dr_calloc(1, sizeof(*l));
	void *comm;
	int rc;

	*why = "out of memory";
	if (!l)
		return -ENOMEM;
	rc = plugin_listen(r, handle, &comm, why);
	if (rc == 0) {
		rc = dr_nn_call_accept(r->service, comm, handle, &l->call);
		if (rc)
			plugin_close(r, comm);
		*why = "no thread for accept";
	}
	if (rc) {
		dr_free(l);
		return rc;
	}
	l->until_ns = now_ns + COMM_NS;
	l->next = r->listeners;
	r->listeners = l;
	r->n_listeners++;
	return 0;
}

/* -EAGAIN: there is no listener yet. */
static int answer(struct nn_rail *r, struct nn_asker *a, int64_t now_ns)
{
	struct nn_hello_key key = nn_rail_key(r, false);
	uint8_t handle[NCCL_NET_HANDLE_BYTES] = { 0 }, reply[NN_REPLY_LEN];
	const char *why = "?";
	struct nn_hello hello;

	if (dr_nn_hello_parse(a->hello, sizeof(a->hello), &key, &hello, &why)) {
		complain(r, "a request for a listen handle was refused", why);
		return -EPROTO;
	}
	if (r->n_listeners == NN_PENDING_MAX)
		return -ENOBUFS;
	int rc = make_listener(r, handle, now_ns, &why);
	if (rc && rc != -EAGAIN)
		complain(r, "the plugin cannot listen", why);
	if (rc)
		return rc;
	dr_nn_reply_encode(a->hello, handle, &key, reply);
	/* It fits into the empty buffer of a new connection; else the dialler asks again. */
	if (send(a->fd, reply, sizeof(reply), MSG_NOSIGNAL) != (ssize_t)sizeof(reply))
		close_listener(r, &r->listeners);
	return 0;
}

/* ---- diallers ---- */

static void drop(struct nn_rail *r, struct nn_asker **at)
{
	struct nn_asker *a = *at;

	*at = a->next;
	r->n_askers--;
	close(a->fd);
	dr_free(a);
}

static void add_askers(struct nn_rail *r, int64_t now_ns)
{
	for (int i = 0; i < BATCH && now_ns >= r->pause_ns; i++) {
		/* cppcheck-suppress nullPointer ; accept(2): NULL when no address is wanted */
		int fd = accept4(r->ask.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct nn_asker *a, **at = &r->askers;

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
				errno == ENOBUFS)
				r->pause_ns = now_ns + PAUSE_NS;
			return;
		}
		if (r->askers && r->n_askers == NN_PENDING_MAX)
			drop(r, &r->askers);
		a = dr_calloc(1, sizeof(*a));
		if (!a) {
			close(fd);
			return;
		}
		a->fd = fd;
		a->until_ns = now_ns + HELLO_NS;
		while (*at) /* the oldest stands in front */
			at = &(*at)->next;
		*at = a;
		r->n_askers++;
	}
}

/* False: it goes. */
static bool read_asker(struct nn_rail *r, struct nn_asker *a, int64_t now_ns)
{
	size_t left = sizeof(a->hello) - a->got;
	ssize_t n = left ? recv(a->fd, a->hello + a->got, left, 0) : 0;

	if (n < 0)
		return (errno == EAGAIN || errno == EINTR) && now_ns < a->until_ns;
	a->got += (size_t)n;
	if (a->got < sizeof(a->hello))
		return n > 0;
	if (left)
		r->moved_ns = now_ns;
	return answer(r, a, now_ns) == -EAGAIN && now_ns < a->until_ns;
}

/* ---- comms ---- */

/* The one comm of the listener. False: it is over. */
static bool accept_from(struct nn_rail *r, struct nn_listener *l, int64_t now_ns)
{
	struct nn_comm got;
	int rc = dr_nn_call_take(&l->call, &got);

	if (rc == 0)
		return now_ns < l->until_ns;
	if (rc < 0) {
		complain(r, "the plugin's accept failed", dr_errno_name(rc));
		return false;
	}
	rc = dr_nn_pending_add(r, got.comm, got.room, got.device, now_ns);
	if (rc == 0)
		r->moved_ns = now_ns;
	else
		complain(r, "a comm that the plugin accepted was closed", dr_errno_name(rc));
	return false;
}

/* ---- begin, progress, end ---- */

int dr_nn_listener_open(struct nn_rail *r, struct dr_err *e)
{
	socklen_t len = sizeof(r->self.at);
	uint8_t handle[NCCL_NET_HANDLE_BYTES] = { 0 };
	unsigned port = r->par.port_min;
	const char *why = "?";
	void *comm;
	int rc = plugin_listen(r, handle, &comm, &why);

	if (rc)
		return dr_err_set(e, rc, "rail %u: plugin %.40s cannot listen on device %d: %s",
			r->base.index, r->n->name, r->dev.dev, why);
	plugin_close(r, comm); /* it can listen; nobody has this handle */
	do
		rc = listen_on(r, (uint16_t)port);
	while (rc == -EADDRINUSE && port && ++port <= r->par.port_max);
	if (rc < 0)
		return dr_err_set(e, rc,
			"rail %u: cannot listen for the peer's connections: %s; check the rail's address "
			"(`ip addr`) and --data-ports",
			r->base.index, dr_errno_name(rc));
	r->ask.fd = rc;
	memset(&r->self.at, 0, sizeof(r->self.at));
	if (getsockname(r->ask.fd, (struct sockaddr *)&r->self.at, &len) != 0)
		return dr_err_set(e, -errno, "rail %u: getsockname: %s", r->base.index,
			dr_errno_name(-errno));
	if (!r->par.poller)
		return 0;
	rc = dr_poller_add(r->par.poller, &r->ask, EPOLLIN);
	return rc ? dr_err_set(e, rc, "rail %u: %s", r->base.index, dr_errno_name(rc)) : 0;
}

void dr_nn_listener_progress(struct nn_rail *r, int64_t now_ns)
{
	bool asked = r->asked;

	if (!r->has_peer)
		return;
	r->asked = false;
	if (asked || !r->par.poller)
		add_askers(r, now_ns);
	for (struct nn_asker **at = &r->askers; *at;) {
		if (read_asker(r, *at, now_ns))
			at = &(*at)->next;
		else
			drop(r, at);
	}
	for (struct nn_listener **at = &r->listeners; *at;) {
		if (accept_from(r, *at, now_ns))
			at = &(*at)->next;
		else
			close_listener(r, at);
	}
}

void dr_nn_listener_close(struct nn_rail *r)
{
	while (r->askers)
		drop(r, &r->askers);
	while (r->listeners)
		close_listener(r, &r->listeners);
	if (r->ask.fd < 0)
		return;
	if (r->par.poller)
		dr_poller_del(r->par.poller, &r->ask);
	close(r->ask.fd);
	r->ask.fd = -1;
}
