/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/server_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * The server's doors: listening sockets, and the peers that nobody knows yet. A stranger costs one
 * file descriptor and a few hundred bytes until it has identified itself, for stage_ns at most;
 * above DR_SERVER_PENDING_MAX of them, or when descriptors run out, the oldest gives way.
 */
enum { WARN_BURST = 10 };
#define ACCEPT_PAUSE_NS (100 * DR_NS_PER_MS)
#define ACCEPT_WARN_NS (10 * DR_NS_PER_S)

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
		snprintf(more, sizeof(more), " (and %u more like this)", w->left_out);
	w->left_out = 0;
	dr_warn("bootstrap", "turned away %s on port %u: %s%s", l->peer, l->local_port, text, more);
}

static bool pending(const struct dr_link *l)
{
	return l->state == DR_LINK_UP &&
	       (l->role == DR_SERVER_STRANGER || l->role == DR_SERVER_GUEST);
}

/* true when there was one to drop. */
static bool drop_oldest_pending(struct dr_boot_server *s, int64_t now_ns, const char *why)
{
	for (struct dr_link *l = s->links; l; l = l->next) {
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
	for (const struct dr_link *l = s->links; l; l = l->next)
		n += pending(l);
	return n;
}

static void greet(struct dr_boot_server *s, int fd, const struct dr_addr *from, int64_t now_ns)
{
	struct dr_conv_opts o = { .role = DR_CONV_SERVER, .stage_ns = s->timing.stage_ns };
	o.key = s->has_key ? &s->key : NULL;
	memcpy(o.hello.build, s->version, sizeof(o.hello.build));
	struct dr_link *l;
	if (count_pending(s) >= DR_SERVER_PENDING_MAX)
		drop_oldest_pending(s, now_ns, "too many connections wait without a hello");
	if (dr_random_bytes(o.hello.nonce, sizeof(o.hello.nonce)) ||
		dr_link_accept(&s->links, s->poller, fd, from, &o, now_ns, &l)) {
		close(fd);
		return;
	}
	l->owner = s;
	l->role = DR_SERVER_STRANGER;
	l->event = dr_server_event;
	l->batch = dr_server_batch;
}

static void pause_accept(struct dr_boot_server *s, int64_t now_ns, bool pause)
{
	s->accept_paused_until_ns = pause ? now_ns + ACCEPT_PAUSE_NS : DR_NEVER;
	for (unsigned i = 0; i < s->n_listeners; i++)
		dr_poller_mod(s->poller, &s->listeners[i]->po, pause ? 0 : (uint32_t)EPOLLIN);
}

static void door_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_listener *d = dr_container_of(po, struct dr_listener, po);
	struct dr_boot_server *s = d->server;
	(void)revents;
	for (int i = 0; i < DR_SERVER_PENDING_MAX; i++) {
		struct dr_addr from = { .len = sizeof(from.ss) };
		int fd = accept4(po->fd, (struct sockaddr *)&from.ss, &from.len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			greet(s, fd, &from, now_ns);
			continue;
		}
		/* Out of descriptors, epoll would come back at once for ever: make room, or wait. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			int err = errno;
			if (drop_oldest_pending(s, now_ns, strerror(err)))
				continue;
			if (now_ns >= s->accept_warn_ns)
				dr_warn("bootstrap",
					"cannot accept connections for now: %s; see ulimit -n",
					strerror(err));
			s->accept_warn_ns = now_ns + ACCEPT_WARN_NS;
			pause_accept(s, now_ns, true);
			return;
		}
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static int open_door(struct dr_boot_server *s, struct dr_addr *addr, struct dr_err *e)
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
	d->po.ready = door_ready;
	d->server = s;
	d->addr = *addr;
	d->port = dr_addr_port(addr);
	rc = dr_poller_add(s->poller, &d->po, EPOLLIN);
	if (rc) {
		close(fd);
		dr_free(d);
		return dr_err_set(e, rc, "listen: cannot watch the socket: %s", strerror(-rc));
	}
	s->listeners[s->n_listeners++] = d;
	return 0;
}

/* The same port on every local address; port 0 becomes what the first one got. */
static int open_port(struct dr_boot_server *s, const struct dr_addr *local, unsigned n,
	uint16_t *port, struct dr_err *e)
{
	for (unsigned i = 0; i < n; i++) {
		struct dr_addr a = local[i];
		dr_addr_set_port(&a, *port);
		int rc = open_door(s, &a, e);
		if (rc)
			return rc;
		*port = dr_addr_port(&a);
	}
	return 0;
}

int dr_server_open_doors(
	struct dr_boot_server *s, const struct dr_boot_server_opts *o, struct dr_err *e)
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
				"port %u + GPU %u is above 65535; choose a "
				"lower --port",
				o->port_base, o->gpus[k]);
		s->ports[k] = (uint16_t)port;
		rc = open_port(s, local, n, &s->ports[k], e);
		if (rc)
			return rc;
		base_open = base_open || s->ports[k] == o->port_base;
	}
	if (o->listen_base && o->port_base && !base_open) {
		struct dr_err why;
		uint16_t base = o->port_base;
		if (open_port(s, local, n, &base, &why))
			dr_debug("bootstrap", "not listening on the base port: %s", why.text);
	}
	return 0;
}

void dr_server_close_doors(struct dr_boot_server *s)
{
	for (unsigned i = 0; i < s->n_listeners; i++) {
		dr_poller_del(s->poller, &s->listeners[i]->po);
		close(s->listeners[i]->po.fd);
		dr_free(s->listeners[i]);
	}
	dr_free(s->listeners);
	s->listeners = NULL;
	s->n_listeners = 0;
}

void dr_server_tick_doors(struct dr_boot_server *s, int64_t now_ns)
{
	if (now_ns >= s->accept_paused_until_ns)
		pause_accept(s, now_ns, false);
}

int dr_boot_server_listen_also(struct dr_boot_server *s, const char *address, struct dr_err *e)
{
	struct dr_addr a;
	if (dr_addr_parse(address, &a))
		return dr_err_set(e, -EINVAL, "listen on %s: not a numeric IP address", address);
	if (s->wildcard)
		return 0;
	dr_addr_set_port(&a, s->ports[0]);
	char want[DR_ADDR_TEXT], have[DR_ADDR_TEXT];
	dr_addr_format(&a, want, sizeof(want));
	for (unsigned i = 0; i < s->n_listeners; i++) {
		dr_addr_format(&s->listeners[i]->addr, have, sizeof(have));
		if (strcmp(want, have) == 0)
			return 0;
	}
	return open_door(s, &a, e);
}
