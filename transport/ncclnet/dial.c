/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comms on their way out. A listener of a plugin gives one comm, so each dial first asks the peer's
 * rail for the handle of a new listener, over a TCP connection (listener.c answers). Then it calls
 * the plugin's connect (service.c), and sends HELLO as the first message. A comm that was given up
 * before HELLO had left is closed later: threads of the plugin may connect it still.
 */
#include "transport/ncclnet/net_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t ASK_NS = 5 * DR_NS_PER_S, LEFT_NS = 10 * DR_NS_PER_S;

static struct nn_mem hello_of(struct nn_dial *d)
{
	return (struct nn_mem){ .base = d->hello, .len = sizeof(d->hello) };
}

static void dial_free(struct nn_dial *d)
{
	dr_nn_call_drop(&d->call);
	if (d->fd >= 0)
		close(d->fd);
	if (dr_nn_queue_close(&d->queue) == 0)
		dr_free(d);
	else /* the plugin may read HELLO until the process ends */
		dr_warn("nccl", "the plugin could not close a comm");
}

void dr_nn_dial_drop(struct nn_rail *r, struct nn_dial *d)
{
	if (!d->queue.comm) {
		dial_free(d);
		return;
	}
	d->since_ns = 0;
	d->next = r->dials;
	r->dials = d;
}

void dr_nn_dials_progress(struct nn_rail *r, int64_t now_ns)
{
	for (struct nn_dial **at = &r->dials; *at;) {
		struct nn_dial *d = *at;

		d->since_ns = d->since_ns ? d->since_ns : now_ns;
		if (!r->closed && now_ns - d->since_ns < LEFT_NS) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		dial_free(d);
	}
}

static int open_socket(const struct nn_rail *r)
{
	struct sockaddr_storage from = r->par.local, to = r->peer.at;
	int fd = socket(from.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -errno;
	dr_nn_set_port(r, &from, 0);
	if (to.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&to)->sin6_scope_id =
			((struct sockaddr_in6 *)&from)->sin6_scope_id;
	(void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&from, dr_sa_len(&from)) != 0 ||
		(connect(fd, (struct sockaddr *)&to, dr_sa_len(&to)) != 0 &&
			errno != EINPROGRESS)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

int dr_nn_dial_start(
	struct nn_rail *r, const struct nn_hello *hello, int64_t now_ns, struct nn_dial **out)
{
	struct nn_dial *d = dr_calloc(1, sizeof(*d));
	struct nn_hello_key key = nn_rail_key(r, true);

	if (!d)
		return -ENOMEM;
	d->since_ns = now_ns;
	d->fd = open_socket(r);
	if (d->fd < 0) {
		int err = d->fd;

		dr_free(d);
		return err;
	}
	dr_nn_hello_encode(hello, &key, d->hello);
	*out = d;
	return 0;
}

/* 1: the handle has come; 0: not yet; -errno. */
static int ask(struct nn_rail *r, struct nn_dial *d, int64_t now_ns)
{
	struct nn_hello_key key = nn_rail_key(r, true);
	ssize_t n = 0;

	if (now_ns - d->since_ns > ASK_NS)
		return -ETIMEDOUT;
	if (d->sent < sizeof(d->hello))
		n = send(d->fd, d->hello + d->sent, sizeof(d->hello) - d->sent, MSG_NOSIGNAL);
	if (n > 0)
		d->sent += (size_t)n;
	if (n >= 0 && d->sent == sizeof(d->hello)) {
		n = recv(d->fd, d->reply + d->got, sizeof(d->reply) - d->got, 0);
		if (n == 0)
			return -ECONNRESET;
		if (n > 0)
			d->got += (size_t)n;
	}
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (d->got < sizeof(d->reply))
		return 0;
	if (dr_nn_reply_parse(d->reply, d->hello, &key, d->handle))
		return -EPROTO;
	close(d->fd);
	d->fd = -1;
	return 1;
}

static int connect_comm(struct nn_rail *r, struct nn_dial *d, int64_t now_ns)
{
	struct nn_comm got = { .comm = NULL };
	int rc;

	d->failed = d->call ? "the plugin's connect failed" : "the peer's rail gave no handle";
	rc = d->call ? dr_nn_call_take(&d->call, &got) : ask(r, d, now_ns);
	if (rc > 0 && got.comm)
		dr_nn_queue_open(&d->queue, r->n, got.comm, true, r->dev.requests);
	else if (rc > 0)
		rc = dr_nn_call_connect(r->service, d->handle, &d->call);
	return rc;
}

/* 1: HELLO has left. */
static int greet(struct nn_dial *d, int64_t now_ns)
{
	struct nn_mem mem = hello_of(d);
	size_t size;
	int rc = 0;

	d->failed = "the plugin did not send the first message";
	if (!d->said)
		rc = dr_nn_queue_post(&d->queue, &mem, d->hello, sizeof(d->hello), now_ns);
	d->said = d->said || rc == 0;
	if (rc == 0)
		rc = dr_nn_queue_test(&d->queue, &size);
	if (rc > 0)
		rc = dr_nn_queue_forget(&d->queue, &mem);
	else
		return rc == -EAGAIN ? 0 : rc;
	return rc ? rc : 1;
}

int dr_nn_dial(struct nn_rail *r, struct nn_dial *d, int64_t now_ns, struct nn_queue *out,
	const char **failed)
{
	int rc = d->queue.comm ? 1 : connect_comm(r, d, now_ns);

	if (rc > 0)
		rc = greet(d, now_ns);
	*failed = d->failed;
	if (rc == 0)
		return 0;
	if (rc > 0) {
		*out = d->queue;
		d->queue.comm = NULL;
	}
	dial_free(d);
	return rc;
}
