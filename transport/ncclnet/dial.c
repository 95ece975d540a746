/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comms on their way out. A listener of a plugin gives one comm, so each dial first asks the peer's rail for the handle of a
 * new listener, over a TCP connection (listener.c answers), and then calls the plugin's connect until it is done.
 */
#include "transport/ncclnet/net_priv.h"

#include "transport/ncclnet/watch.h"

#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t ASK_NS = 5 * DR_NS_PER_S;
/* What a dial that was given up may take to end. */
static const int64_t DIAL_NS = 60 * DR_NS_PER_S;

static struct nn_hello_key key_of(const struct nn_rail *r)
{
	return (struct nn_hello_key){
		.key = r->key, .dialler = r->self.nonce, .listener = r->peer.nonce
	};
}

void dr_nn_dial_free(struct nn_dial *d)
{
	if (d->fd >= 0)
		close(d->fd);
	dr_free(d);
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
	struct nn_hello_key key = key_of(r);

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
	struct nn_hello_key key = key_of(r);
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

int dr_nn_dial(struct nn_rail *r, struct nn_dial *d, int64_t now_ns, void **comm)
{
	int rc = d->fd < 0 ? 1 : ask(r, d, now_ns);

	*comm = NULL;
	if (rc <= 0)
		return rc;
	rc = NN_CALL(r->n->name, "connect", dr_nccl_connect(r->n, r->dev.dev, d->handle, comm));
	if (rc != NCCL_SUCCESS)
		return rc == NCCL_REMOTE_ERROR ? -ECONNREFUSED : -EIO;
	if (*comm == DR_NCCL_UNSET)
		return -EIO;
	return *comm != NULL;
}

void dr_nn_give_up_dial(struct nn_rail *r, struct nn_dial *d)
{
	if (d->fd >= 0) {
		dr_nn_dial_free(d);
		return;
	}
	d->since_ns = 0;
	d->next = r->dials;
	r->dials = d;
}

/* True: it is over, with or without success. */
static bool is_over(struct nn_rail *r, struct nn_dial *d, int64_t now_ns)
{
	void *comm;
	int rc = dr_nn_dial(r, d, now_ns, &comm);

	if (rc > 0)
		(void)NN_CALL(r->n->name, "closeSend", r->n->close_send(comm));
	d->since_ns = d->since_ns ? d->since_ns : now_ns;
	return rc != 0 || now_ns - d->since_ns > DIAL_NS;
}

void dr_nn_dials_progress(struct nn_rail *r, int64_t now_ns)
{
	for (struct nn_dial **at = &r->dials; *at;) {
		struct nn_dial *d = *at;

		if (!is_over(r, d, now_ns)) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		dr_nn_dial_free(d);
	}
}

void dr_nn_dials_close(struct nn_rail *r)
{
	struct nn_dial *d;

	while ((d = r->dials)) { /* finalize ends what the plugin still has of them */
		r->dials = d->next;
		dr_nn_dial_free(d);
	}
}
