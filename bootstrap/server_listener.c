/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/server_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Listening sockets, and the connections that have not identified themselves. Each costs one file
 * descriptor and a few hundred bytes, for stage_ns at most. Above DR_SERVER_PENDING_MAX pending
 * connections, or when descriptors run out, the oldest is closed.
 */
enum { WARN_BURST = 10 };
static const int64_t ACCEPT_PAUSE_NS = 100 * DR_NS_PER_MS, ACCEPT_WARN_NS = 10 * DR_NS_PER_S;

void dr_server_warn(
	struct dr_boot_server *s, const struct dr_link *l, int64_t now_ns, const char *text)
{
	struct dr_warn_limit *w = &s->warn;
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
	dr_warn("bootstrap", "rejected connection from %s on port %u: %s%s", l->peer, l->local_port,
		text, more);
}

static bool pending(const struct dr_link *l)
{
	return l->state == DR_LINK_UP &&
	       (l->role == DR_SERVER_UNIDENTIFIED || l->role == DR_SERVER_IDENTIFIED);
}

/* False: there is none. */
static bool drop_oldest_pending(struct dr_boot_server *s, int64_t now_ns, const char *why)
{
	for (struct dr_link *l = s->e.links; l; l = l->next) {
		if (!pending(l))
			continue;
		dr_server_warn(s, l, now_ns, why);
		dr_link_abort(l);
		return true;
	}
	return false;
}

static unsigned count_pending(const struct dr_boot_server *s)
{
	unsigned n = 0;
	for (const struct dr_link *l = s->e.links; l; l = l->next)
		n += pending(l);
	return n;
}

static void add_link(struct dr_boot_server *s, int fd, const struct dr_addr *from, int64_t now_ns)
{
	struct dr_link_opts o;
	struct dr_link *l;
	if (count_pending(s) >= DR_SERVER_PENDING_MAX)
		drop_oldest_pending(
			s, now_ns, "too many pending connections; the oldest is closed");
	if (dr_boot_link_opts(&s->e, &o) || dr_link_accept(&o, fd, from, now_ns, &l)) {
		close(fd);
		return;
	}
	l->role = DR_SERVER_UNIDENTIFIED;
}

static void pause_accept(struct dr_boot_server *s, int64_t now_ns, bool pause)
{
	s->accept_paused_until_ns = pause ? now_ns + ACCEPT_PAUSE_NS : DR_NEVER;
	for (unsigned i = 0; i < s->n_listeners; i++)
		dr_poller_mod(s->e.poller, &s->listeners[i]->po, pause ? 0 : (uint32_t)EPOLLIN);
}

static void listener_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_listener *d = dr_container_of(po, struct dr_listener, po);
	struct dr_boot_server *s = d->server;
	(void)revents;
	for (int i = 0; i < DR_SERVER_PENDING_MAX; i++) {
		struct dr_addr from = { .len = sizeof(from.ss) };
		int fd = accept4(po->fd, (struct sockaddr *)&from.ss, &from.len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			add_link(s, fd, &from, now_ns);
			continue;
		}
		/* Out of descriptors epoll would report this socket at once again: close one, or pause. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			int err = errno;
			if (drop_oldest_pending(s, now_ns, strerror(err)))
				continue;
			if (now_ns >= s->accept_warn_ns)
				dr_warn("bootstrap",
					"cannot accept connections: %s; raise the limit of open files (ulimit -n)",
					strerror(err));
			s->accept_warn_ns = now_ns + ACCEPT_WARN_NS;
			pause_accept(s, now_ns, true);
			return;
		}
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static int open_listener(struct dr_boot_server *s, struct dr_addr *addr, struct dr_err *e)
{
	int fd;
	struct dr_listener **grown =
		dr_realloc(s->listeners, (s->n_listeners + 1) * sizeof(struct dr_listener *));
	if (!grown)
		return dr_err_set(e, -ENOMEM, "listen: out of memory");
	s->listeners = grown;
	struct dr_listener *d = dr_calloc(1, sizeof(*d));
	if (!d)
		return dr_err_set(e, -ENOMEM, "listen: out of memory");
	int rc = dr_net_listen(addr, &fd, e);
	if (rc) {
		dr_free(d);
		return rc;
	}
	d->po.fd = fd;
	d->po.ready = listener_ready;
	d->server = s;
	d->addr = *addr;
	d->port = dr_addr_port(addr);
	rc = dr_poller_add(s->e.poller, &d->po, EPOLLIN);
	if (rc) {
		close(fd);
		dr_free(d);
		return dr_err_set(
			e, rc, "listen: cannot register the socket with epoll: %s", strerror(-rc));
	}
	s->listeners[s->n_listeners++] = d;
	return 0;
}

/* The same port on every local address; port 0 is replaced by the first one's port. */
static int open_port(struct dr_boot_server *s, const struct dr_addr *local, unsigned n,
	uint16_t *port, struct dr_err *e)
{
	for (unsigned i = 0; i < n; i++) {
		struct dr_addr a = local[i];
		dr_addr_set_port(&a, *port);
		int rc = open_listener(s, &a, e);
		if (rc)
			return rc;
		*port = dr_addr_port(&a);
	}
	return 0;
}

int dr_server_open_listeners(
	struct dr_boot_server *s, const struct dr_boot_opts *o, struct dr_err *e)
{
	/* len 0 is the wildcard of dr_net_listen. */
	struct dr_addr local[DR_ADDRS_MAX] = { { .len = 0 } };
	unsigned n = 1;
	int rc = o->bind ? dr_addr_local(o->bind, local, DR_ADDRS_MAX, &n, e) : 0;
	if (rc)
		return rc;
	s->wildcard = !o->bind;
	s->accept_paused_until_ns = DR_NEVER;
	bool base_open = false;
	for (unsigned k = 0; k < o->n_gpus; k++) {
		unsigned port = o->port_base ? o->port_base + o->gpus[k] : 0;
		if (port > UINT16_MAX)
			return dr_err_set(e, -EINVAL,
				"port %u + GPU %u exceeds 65535; choose a lower --port",
				o->port_base, o->gpus[k]);
		s->e.ports[k] = (uint16_t)port;
		rc = open_port(s, local, n, &s->e.ports[k], e);
		if (rc)
			return rc;
		base_open = base_open || s->e.ports[k] == o->port_base;
	}
	if (o->listen_base && o->port_base && !base_open) {
		struct dr_err why;
		uint16_t base = o->port_base;
		if (open_port(s, local, n, &base, &why))
			dr_debug("bootstrap", "not listening on the base port: %s", why.text);
	}
	return 0;
}

void dr_server_close_listeners(struct dr_boot_server *s)
{
	for (unsigned i = 0; i < s->n_listeners; i++) {
		dr_poller_del(s->e.poller, &s->listeners[i]->po);
		close(s->listeners[i]->po.fd);
		dr_free(s->listeners[i]);
	}
	dr_free(s->listeners);
	s->listeners = NULL;
	s->n_listeners = 0;
}

void dr_server_tick_listeners(struct dr_boot_server *s, int64_t now_ns)
{
	if (now_ns >= s->accept_paused_until_ns)
		pause_accept(s, now_ns, false);
}

int dr_boot_server_listen_also(struct dr_boot_server *s, const char *address, struct dr_err *e)
{
	struct dr_addr a;
	if (dr_addr_parse(address, &a))
		return dr_err_set(
			e, -EINVAL, "cannot listen on %s: not a numeric IP address", address);
	if (s->wildcard)
		return 0;
	dr_addr_set_port(&a, s->e.ports[0]);
	char want[DR_ADDR_TEXT], have[DR_ADDR_TEXT];
	dr_addr_format(&a, want, sizeof(want));
	for (unsigned i = 0; i < s->n_listeners; i++) {
		dr_addr_format(&s->listeners[i]->addr, have, sizeof(have));
		if (strcmp(want, have) == 0)
			return 0;
	}
	return open_listener(s, &a, e);
}
