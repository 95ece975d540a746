/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/acceptor.h"

#include "base/log.h"
#include "base/mem.h"
#include "bootstrap/conv.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WARN_BURST = 10, ACCEPTS_MAX = 64 };
static const int64_t PAUSE_NS = 100 * DR_NS_PER_MS, WARN_NS = 10 * DR_NS_PER_S,
		     REJECT_PAUSE_NS = 10 * DR_NS_PER_MS, FLOOD_NS = DR_NS_PER_S;

struct dr_listener {
	struct dr_pollable po;
	struct dr_acceptor *owner;
	struct dr_addr addr;
};

static double refill(struct dr_acceptor *a, int64_t now_ns)
{
	struct dr_reject_limit *r = &a->rejects;
	double since_s = r->at_ns ? (double)(now_ns - r->at_ns) / 1e9 : 1;
	r->tokens = DR_MIN(
		r->tokens + since_s * DR_ACCEPTOR_REJECTS_PER_S, (double)DR_ACCEPTOR_REJECTS);
	r->at_ns = now_ns;
	return r->tokens;
}

static void warn_rejected(
	struct dr_acceptor *a, const char *peer, uint16_t port, const char *text, int64_t now_ns)
{
	struct dr_warn_limit *w = &a->warn;
	refill(a, now_ns);
	a->rejects.tokens -= 1;
	double since_s = w->at_ns ? (double)(now_ns - w->at_ns) / 1e9 : WARN_BURST;
	w->tokens = DR_MIN(w->tokens + since_s, (double)WARN_BURST);
	w->at_ns = now_ns;
	if (w->tokens < 1) {
		w->left_out++;
		return;
	}
	w->tokens -= 1;
	char more[64] = "";
	if (w->left_out)
		snprintf(more, sizeof(more), " (%u similar messages suppressed)", w->left_out);
	w->left_out = 0;
	dr_warn(a->component, "rejected connection from %s on port %u: %s%s", peer, port, text,
		more);
}

void dr_acceptor_warn(
	struct dr_acceptor *a, const struct dr_link *l, const char *text, int64_t now_ns)
{
	warn_rejected(a, l->peer, l->local_port, text, now_ns);
}

/* ---- pending connections ------------------------------------------------------------------ */

static bool pending(const struct dr_acceptor *a, const struct dr_link *l, const struct dr_addr *of)
{
	return (l->state == DR_LINK_UP || l->state == DR_LINK_CLOSING) && a->ops->pending(l) &&
	       (!of || dr_same_host(&l->addr.ss, &of->ss));
}

/* of: only those of this address; NULL: all. */
static unsigned count_pending(const struct dr_acceptor *a, const struct dr_addr *of)
{
	unsigned n = 0;
	for (const struct dr_link *l = *a->links; l; l = l->next)
		n += pending(a, l, of);
	return n;
}

/* The address with the most. One host may have all addresses of an IPv6 /64, so it is one of the
 * /64 with the most. Called for each connection of a flood: addresses are compared as words. */
static const struct dr_addr *most_of(const struct dr_acceptor *a)
{
	struct {
		uint64_t host[2];
		const struct dr_addr *addr;
	} v[DR_ACCEPTOR_PENDING_MAX];
	const struct dr_addr *most = NULL;
	unsigned n = 0, n_most = 0;
	for (const struct dr_link *l = *a->links; l && n < DR_ARRAY_LEN(v); l = l->next)
		if (pending(a, l, NULL)) {
			memset(v[n].host, 0, sizeof(v[n].host));
			dr_host_bytes(&l->addr.ss, (uint8_t *)v[n].host);
			v[n++].addr = &l->addr;
		}
	for (unsigned i = 0; i < n; i++) {
		unsigned same = 0; /* of the /64; low bits: of the address */
		for (unsigned k = 0; k < n; k++)
			if (v[k].host[0] == v[i].host[0])
				same += 2 * DR_ACCEPTOR_PENDING_MAX +
					(v[k].host[1] == v[i].host[1]);
		most = same > n_most ? v[i].addr : most;
		n_most = DR_MAX(n_most, same);
	}
	return most;
}

/* Closes one: the oldest of those that close anyway, else the oldest. False: there is none. */
static bool shed(struct dr_acceptor *a, const struct dr_addr *of, const char *why, int64_t now_ns)
{
	struct dr_link *oldest = NULL;
	for (struct dr_link *l = *a->links; l; l = l->next) {
		if (!pending(a, l, of))
			continue;
		if (l->state == DR_LINK_CLOSING) {
			dr_link_abort(l);
			return true;
		}
		oldest = oldest ? oldest : l;
	}
	if (!oldest)
		return false;
	dr_acceptor_warn(a, oldest, why, now_ns);
	dr_link_abort(oldest);
	a->shed_ns = now_ns;
	return true;
}

static void make_room(struct dr_acceptor *a, int fd, const struct dr_addr *from, int64_t now_ns)
{
	unsigned n = count_pending(a, NULL);
	if (count_pending(a, from) >= DR_ACCEPTOR_SOURCE_MAX)
		n -= shed(a, from,
			"too many pending connections of this address; the oldest is closed",
			now_ns);
	if (n >= DR_ACCEPTOR_PENDING_MAX)
		n -= shed(a, most_of(a), "too many pending connections; the oldest is closed",
			now_ns);
	if (!dr_files_scarce(fd))
		return;
	for (; n >= DR_ACCEPTOR_SCARCE_MAX; n--)
		shed(a, most_of(a),
			"few descriptors are free; the oldest pending connection is closed; raise "
			"the limit of open files (ulimit -n)",
			now_ns);
}

/* 0: there is a place; else until then they are left to those that have them. */
static int64_t full_until(struct dr_acceptor *a, int64_t now_ns)
{
	const struct dr_link *oldest = NULL;
	unsigned n = 0;
	for (const struct dr_link *l = *a->links; l; l = l->next)
		if (l->state == DR_LINK_UP && pending(a, l, NULL) && ++n == 1)
			oldest = l;
	if (n == 0 || n < a->places || a->places == 0) {
		a->full_since_ns = 0;
		return 0;
	}
	/* After a stall of this thread, what the peers sent meanwhile is read first. */
	if (a->full_since_ns == 0)
		a->full_since_ns = now_ns;
	int64_t place_ns = now_ns - a->shed_ns < FLOOD_NS ? a->place_ns / 4 : a->place_ns;
	int64_t until = DR_MAX(oldest->since_ns, a->full_since_ns) + place_ns;
	return now_ns < until ? until : 0;
}

static bool allowed(struct dr_acceptor *a, const struct dr_listener *d, const struct dr_addr *from,
	int64_t now_ns)
{
	char peer[DR_ADDR_TEXT], text[96];
	if (!a->allow || dr_networks_have(a->allow, &from->ss))
		return true;
	dr_addr_format(from, peer, sizeof(peer));
	snprintf(text, sizeof(text), "not in the networks of --allow-from (%llu so far)",
		(unsigned long long)++a->refused);
	warn_rejected(a, peer, dr_sa_port(&d->addr.ss), text, now_ns);
	return false;
}

/* False: closed. Bytes that arrived with the connection, as those of a flood do, cost no conversation. */
static bool speaks(struct dr_acceptor *a, const struct dr_listener *d, int fd,
	const struct dr_addr *from, int64_t now_ns)
{
	char peer[DR_ADDR_TEXT], text[96];
	uint8_t first[DR_CONV_MAGIC_BYTES];
	ssize_t n = recv(fd, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
	if (n <= 0 || dr_conv_begins(first, (size_t)n, text, sizeof(text)))
		return true;
	dr_addr_format(from, peer, sizeof(peer));
	warn_rejected(a, peer, dr_sa_port(&d->addr.ss), text, now_ns);
	return false;
}

/* ---- listening sockets -------------------------------------------------------------------- */

static void set_queues(struct dr_acceptor *a, bool flooded)
{
	if (flooded == a->rejects.flooded)
		return;
	a->rejects.flooded = flooded;
	for (unsigned i = 0; i < a->n; i++)
		(void)listen(a->listeners[i]->po.fd, flooded ? DR_ACCEPTOR_FLOODED : SOMAXCONN);
}

/* 0: accept; else until then too many were rejected. */
static int64_t rejects_until(struct dr_acceptor *a, int64_t now_ns)
{
	double tokens = refill(a, now_ns);
	if (tokens < 1 || tokens >= DR_ACCEPTOR_REJECTS)
		set_queues(a, tokens < 1);
	return tokens < 1 ? now_ns + REJECT_PAUSE_NS : 0;
}

/* DR_NEVER: accept again. */
static void pause_until(struct dr_acceptor *a, int64_t until_ns)
{
	a->paused_until_ns = until_ns;
	for (unsigned i = 0; i < a->n; i++)
		dr_poller_mod(a->poller, &a->listeners[i]->po,
			until_ns == DR_NEVER ? (uint32_t)EPOLLIN : 0);
}

/* Errors other than those two are of one connection, or EAGAIN. */
static bool again(struct dr_acceptor *a, int err, int64_t now_ns)
{
	if (err != EMFILE && err != ENFILE && err != ENOMEM && err != ENOBUFS)
		return err == EINTR || err == ECONNABORTED;
	if (shed(a, most_of(a), strerror(err), now_ns))
		return true;
	if (now_ns >= a->warn_at_ns)
		dr_warn(a->component,
			"cannot accept connections: %s; raise the limit of open files (ulimit -n)",
			strerror(err));
	a->warn_at_ns = now_ns + WARN_NS;
	pause_until(a, now_ns + PAUSE_NS);
	return false;
}

static void listener_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_listener *d = dr_container_of(po, struct dr_listener, po);
	struct dr_acceptor *a = d->owner;
	(void)revents;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		int64_t full = full_until(a, now_ns);
		full = full ? full : rejects_until(a, now_ns);
		if (full) {
			pause_until(a, full);
			return;
		}
		struct dr_addr from = { .len = sizeof(from.ss) };
		int fd = accept4(po->fd, (struct sockaddr *)&from.ss, &from.len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (!again(a, errno, now_ns))
				return;
			continue;
		}
		if (!allowed(a, d, &from, now_ns) || !speaks(a, d, fd, &from, now_ns)) {
			close(fd);
			continue;
		}
		make_room(a, fd, &from, now_ns);
		a->ops->accepted(a, fd, &from, now_ns);
	}
}

void dr_acceptor_init(struct dr_acceptor *a, const struct dr_acceptor_ops *ops,
	struct dr_poller *poller, struct dr_link **links, const char *component)
{
	*a = (struct dr_acceptor){ .shed_ns = -FLOOD_NS,
		.ops = ops,
		.poller = poller,
		.links = links,
		.component = component,
		.paused_until_ns = DR_NEVER };
}

void dr_acceptor_close(struct dr_acceptor *a, unsigned n)
{
	dr_assert(n <= a->n);
	while (n-- > 0) {
		struct dr_listener *d = a->listeners[--a->n];
		dr_poller_del(a->poller, &d->po);
		close(d->po.fd);
		dr_free(d);
	}
}

void dr_acceptor_fini(struct dr_acceptor *a)
{
	dr_acceptor_close(a, a->n);
	dr_free(a->listeners);
	a->listeners = NULL;
}

int dr_acceptor_listen(struct dr_acceptor *a, struct dr_addr *addr, struct dr_err *e)
{
	int fd;
	struct dr_listener **grown =
		dr_realloc(a->listeners, (a->n + 1) * sizeof(struct dr_listener *));
	if (!grown)
		return dr_err_set(e, -ENOMEM, "listen: out of memory");
	a->listeners = grown;
	struct dr_listener *d = dr_calloc(1, sizeof(*d));
	if (!d)
		return dr_err_set(e, -ENOMEM, "listen: out of memory");
	int rc = dr_net_listen(addr, &fd, e);
	if (rc) {
		dr_free(d);
		return rc;
	}
	*d = (struct dr_listener){ .owner = a, .addr = *addr };
	d->po.fd = fd;
	d->po.ready = listener_ready;
	rc = dr_poller_add(a->poller, &d->po, a->paused_until_ns == DR_NEVER ? EPOLLIN : 0);
	if (rc) {
		close(fd);
		dr_free(d);
		return dr_err_set(
			e, rc, "listen: cannot register the socket with epoll: %s", strerror(-rc));
	}
	a->listeners[a->n++] = d;
	return 0;
}

static bool same_addr(const struct dr_addr *a, const struct dr_addr *b)
{
	const struct sockaddr_in6 *x = (const struct sockaddr_in6 *)&a->ss,
				  *y = (const struct sockaddr_in6 *)&b->ss;
	return x->sin6_family == y->sin6_family && dr_sa_port(&a->ss) == dr_sa_port(&b->ss) &&
	       dr_same_host(&a->ss, &b->ss) &&
	       (x->sin6_family == AF_INET || x->sin6_scope_id == y->sin6_scope_id);
}

bool dr_acceptor_has(const struct dr_acceptor *a, const struct dr_addr *addr)
{
	for (unsigned i = 0; i < a->n; i++)
		if (same_addr(&a->listeners[i]->addr, addr))
			return true;
	return false;
}

void dr_acceptor_resume(struct dr_acceptor *a)
{
	if (a->paused_until_ns != DR_NEVER)
		pause_until(a, DR_NEVER);
}

void dr_acceptor_tick(struct dr_acceptor *a, int64_t now_ns)
{
	if (now_ns >= a->paused_until_ns)
		pause_until(a, DR_NEVER);
}

int64_t dr_acceptor_deadline(const struct dr_acceptor *a)
{
	return a->paused_until_ns;
}
