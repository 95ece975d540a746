/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/server_priv.h"

#include "base/log.h"

#include <errno.h>
#include <unistd.h>

/*
 * Listening sockets, and the connections that are no session's: those that have not identified themselves, and those that
 * were refused or are finished. Each costs one file descriptor and a few hundred bytes, for twice stage_ns at most.
 */
static bool pending(const struct dr_link *l)
{
	return l->role != DR_SERVER_CONTROL && l->role != DR_SERVER_PAIR;
}

static void accepted(struct dr_acceptor *a, int fd, const struct dr_addr *from, int64_t now_ns)
{
	struct dr_boot_server *s = dr_container_of(a, struct dr_boot_server, acceptor);
	struct dr_link_opts o;
	struct dr_link *l;
	if (dr_boot_link_opts(&s->e, &o) || dr_link_accept(&o, fd, from, now_ns, &l)) {
		close(fd);
		return;
	}
	l->role = DR_SERVER_UNIDENTIFIED;
}

static const struct dr_acceptor_ops acceptor_ops = { .accepted = accepted, .pending = pending };

/* The same port on every local address; port 0 is replaced by the first one's port. */
static int open_port(struct dr_boot_server *s, const struct dr_addr *local, unsigned n,
	uint16_t *port, struct dr_err *e)
{
	for (unsigned i = 0; i < n; i++) {
		struct dr_addr a = local[i];
		dr_sa_set_port(&a.ss, *port);
		int rc = dr_acceptor_listen(&s->acceptor, &a, e);
		if (rc)
			return rc;
		*port = dr_sa_port(&a.ss);
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
	dr_acceptor_init(&s->acceptor, &acceptor_ops, s->e.poller, &s->e.links, "bootstrap");
	if (o->allow) {
		s->allow = *o->allow;
		s->acceptor.allow = &s->allow;
	}
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

int dr_boot_server_listen_also(struct dr_boot_server *s, const char *address, struct dr_err *e)
{
	struct dr_addr a;
	if (dr_addr_parse(address, &a))
		return dr_err_set(
			e, -EINVAL, "cannot listen on %s: not a numeric IP address", address);
	if (s->wildcard)
		return 0;
	dr_sa_set_port(&a.ss, s->e.ports[0]);
	if (dr_acceptor_has(&s->acceptor, &a))
		return 0;
	return dr_acceptor_listen(&s->acceptor, &a, e);
}
