/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/sockets.h"

#include "base/defs.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * Requests of a comm are served in their order: request k + 1 does not use the control connection before request k has its
 * size there. A data connection carries its pieces in the order of the requests.
 */
enum { PIECES_MAX = SOCK_REQUESTS };

struct piece {
	uint8_t *data;
	size_t len;
	atomic_uint *left;
};

struct conn {
	int fd;
	atomic_uint put, taken; /* pieces, by the caller and by the thread */
	struct piece piece[PIECES_MAX];
};

struct helper {
	struct sock_comm *c;
	unsigned first, n; /* of its connections */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	bool stop;
};

struct sock_request {
	struct sock_comm *c;
	uint64_t number;
	uint8_t *data;
	size_t cap, len, at; /* at: bytes of header and data done on the control connection */
	uint32_t header;
	bool sized;
	atomic_uint left; /* pieces */
};

struct sock_comm {
	bool sends;
	int ctrl;
	unsigned n, threads, next;
	uint64_t posted, sized, done;
	struct conn conn[SOCK_CONNS_MAX];
	struct helper helper[SOCK_CONNS_MAX];
	atomic_int err;
	struct sock_request request[SOCK_REQUESTS];
};

/* Bytes moved; 0: none now; -errno. */
static ssize_t move(bool sends, int fd, struct iovec *iov, int n)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	ssize_t rc = sends ? sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL)
			   : recvmsg(fd, &m, MSG_DONTWAIT);

	if (rc < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return rc == 0 && !sends ? -ECONNRESET : rc;
}

/* ---- helpers ---- */

/* One turn over the helper's connections. Returns whether there is work left. */
static bool turn(struct helper *h)
{
	struct sock_comm *c = h->c;
	bool more = false;

	for (unsigned i = h->first; i < h->first + h->n; i++) {
		struct conn *k = &c->conn[i];
		unsigned at = atomic_load_explicit(&k->taken, memory_order_relaxed);
		struct piece *p = &k->piece[at % PIECES_MAX];

		if (at == atomic_load_explicit(&k->put, memory_order_acquire))
			continue;
		more = true;
		struct iovec iov = { p->data, p->len };
		ssize_t n = move(c->sends, k->fd, &iov, 1);

		if (n < 0) {
			atomic_store(&c->err, (int)n);
			return false;
		}
		p->data += n;
		p->len -= (size_t)n;
		if (p->len > 0)
			continue;
		atomic_fetch_sub_explicit(p->left, 1, memory_order_release);
		atomic_store_explicit(&k->taken, at + 1, memory_order_release);
	}
	return more;
}

static bool idle(const struct helper *h)
{
	for (unsigned i = h->first; i < h->first + h->n; i++)
		if (atomic_load(&h->c->conn[i].put) != atomic_load(&h->c->conn[i].taken))
			return false;
	return true;
}

static void *helper_main(void *arg)
{
	struct helper *h = arg;
	bool stop = false;

	while (!stop) {
		while (turn(h))
			sched_yield();
		pthread_mutex_lock(&h->lock);
		while (idle(h) && !h->stop)
			pthread_cond_wait(&h->work, &h->lock);
		stop = h->stop || atomic_load(&h->c->err) != 0;
		pthread_mutex_unlock(&h->lock);
	}
	return NULL;
}

static void give(struct sock_comm *c, uint8_t *data, size_t len, atomic_uint *left)
{
	struct conn *k = &c->conn[c->next];
	struct helper *h = &c->helper[c->next / (c->n / c->threads)];
	unsigned at = atomic_load_explicit(&k->put, memory_order_relaxed);

	c->next = (c->next + 1) % c->n;
	k->piece[at % PIECES_MAX] = (struct piece){ data, len, left };
	pthread_mutex_lock(&h->lock);
	atomic_store_explicit(&k->put, at + 1, memory_order_release);
	pthread_cond_signal(&h->work);
	pthread_mutex_unlock(&h->lock);
}

/* ---- requests ---- */

static size_t inline_bytes(const struct sock_comm *c, size_t len)
{
	return c->threads > 0 ? DR_MIN(len, (size_t)SOCK_INLINE) : len;
}

static void divide(struct sock_request *r)
{
	size_t at = inline_bytes(r->c, r->len), rest = r->len - at, each;

	if (rest == 0)
		return;
	each = DR_MAX((rest + r->c->n - 1) / r->c->n, (size_t)SOCK_PIECE_MIN);
	atomic_store(&r->left, (unsigned)((rest + each - 1) / each));
	for (; at < r->len; at += each)
		give(r->c, r->data + at, DR_MIN(each, r->len - at), &r->left);
}

/* The part of a request that its control connection carries. 0 or -errno. */
static int progress(struct sock_request *r)
{
	size_t head = sizeof(r->header), n_inline;

	while (!r->sized || r->at < head + inline_bytes(r->c, r->len)) {
		struct iovec iov[2];
		int n = 0;

		n_inline = inline_bytes(r->c, r->len);
		if (r->at < head)
			iov[n++] = (struct iovec){ (uint8_t *)&r->header + r->at, head - r->at };
		if ((r->c->sends || r->sized) && n_inline > 0) {
			size_t off = r->at > head ? r->at - head : 0;

			iov[n++] = (struct iovec){ r->data + off, n_inline - off };
		}
		ssize_t rc = move(r->c->sends, r->c->ctrl, iov, n);

		if (rc <= 0)
			return (int)rc;
		r->at += (size_t)rc;
		if (r->at < head || r->sized)
			continue;
		if (!r->c->sends)
			r->len = r->header;
		if (r->len > r->cap)
			return -EMSGSIZE;
		r->sized = true;
	}
	r->c->sized++;
	divide(r);
	return 0;
}

struct sock_request *sock_post(struct sock_comm *c, void *data, size_t len)
{
	struct sock_request *r = &c->request[c->posted % SOCK_REQUESTS];

	if (c->posted - c->done == SOCK_REQUESTS)
		return NULL;
	r->c = c;
	r->number = c->posted++;
	r->data = data;
	r->cap = len;
	r->len = c->sends ? len : 0;
	r->header = (uint32_t)len;
	r->at = 0;
	r->sized = false;
	atomic_store(&r->left, 0);
	return r;
}

int sock_test(struct sock_request *r, size_t *size)
{
	struct sock_comm *c = r->c;
	int rc = atomic_load(&c->err);

	if (rc == 0 && c->sized == r->number)
		rc = progress(r);
	if (rc != 0)
		return rc;
	if (c->sized <= r->number || atomic_load_explicit(&r->left, memory_order_acquire) > 0)
		return 0;
	*size = r->len;
	c->done++;
	return 1;
}

/* ---- life ---- */

struct sock_comm *sock_open(bool sends, const int *fds, unsigned n, unsigned threads)
{
	struct sock_comm *c = dr_calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->sends = sends;
	c->ctrl = fds[0];
	c->n = n;
	for (unsigned i = 0; i < n; i++)
		c->conn[i].fd = fds[1 + i];
	for (; c->threads < threads; c->threads++) {
		struct helper *h = &c->helper[c->threads];

		*h = (struct helper){
			.c = c, .first = c->threads * (n / threads), .n = n / threads
		};
		pthread_mutex_init(&h->lock, NULL);
		pthread_cond_init(&h->work, NULL);
		if (pthread_create(&h->thread, NULL, helper_main, h) != 0) {
			sock_close(c);
			return NULL;
		}
	}
	return c;
}

void sock_close(struct sock_comm *c)
{
	for (unsigned i = 0; i < c->threads; i++) {
		struct helper *h = &c->helper[i];

		pthread_mutex_lock(&h->lock);
		h->stop = true;
		pthread_cond_signal(&h->work);
		pthread_mutex_unlock(&h->lock);
		pthread_join(h->thread, NULL);
	}
	close(c->ctrl);
	for (unsigned i = 0; i < c->n; i++)
		close(c->conn[i].fd);
	dr_free(c);
}
