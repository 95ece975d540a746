/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

/* Listens of a process, and the sockets that they share: one per address, all with one port. */

static const int64_t WARN_NS = 10 * DR_NS_PER_S;

/* Every listen tries again. */
static void left_out(struct dr_rdv *r, const char *why)
{
	int64_t now = dr_now_ns();
	if (r->left_out_ns && now - r->left_out_ns < WARN_NS)
		return;
	r->left_out_ns = now;
	dr_warn("rendezvous", "address left out of the handle: %s", why);
}

/* This port on every address that can have it. -EADDRINUSE: another socket has the port on one of them. */
static int listen_on_port(struct dr_rdv *r, const struct dr_rdv_addr *addrs, unsigned n,
	uint16_t *port, struct dr_err *e)
{
	unsigned before = r->acceptor.n;
	for (unsigned i = 0; i < n; i++) {
		struct dr_addr a = addrs[i].addr;
		dr_sa_set_port(&a.ss, *port);
		if (*port && dr_acceptor_has(&r->acceptor, &a))
			continue;
		int rc = dr_acceptor_listen(&r->acceptor, &a, e);
		if (rc == -EADDRINUSE && r->port == 0) {
			dr_acceptor_close(&r->acceptor, r->acceptor.n - before);
			return rc;
		}
		if (rc)
			left_out(r, e->text);
		else
			*port = dr_sa_port(&a.ss);
	}
	return 0;
}

/* The process's port is chosen once, a random one of the range; processes of a host share the range. */
static int choose_port(
	struct dr_rdv *r, const struct dr_rdv_addr *addrs, unsigned n, struct dr_err *e)
{
	enum { KERNEL_TRIES = 16 };
	unsigned size = r->port_min ? r->port_max - r->port_min + 1u : KERNEL_TRIES;
	uint32_t start = 0;
	int rc = dr_random_bytes(&start, sizeof(start));
	for (unsigned i = 0; i < size && rc == 0; i++) {
		uint16_t port = r->port_min ? (uint16_t)(r->port_min + (start + i) % size) : 0;
		rc = listen_on_port(r, addrs, n, &port, e);
		if (rc == 0) {
			r->port = r->acceptor.n ? port : 0;
			return 0;
		}
		rc = rc == -EADDRINUSE ? 0 : rc;
	}
	if (rc)
		return dr_err_set(e, rc, "rendezvous: no random numbers: %s", strerror(-rc));
	return dr_err_set(e, -EADDRINUSE,
		"rendezvous: no port of %u-%u is free on all %u addresses; choose a larger range",
		r->port_min, r->port_max, n);
}

static int open_listeners(
	struct dr_rdv *r, const struct dr_rdv_addr *addrs, unsigned n, struct dr_err *e)
{
	struct dr_err why = { .text = "no address was given" };
	int rc = r->port ? listen_on_port(r, addrs, n, &r->port, &why)
			 : choose_port(r, addrs, n, &why);
	if (rc) {
		if (e)
			*e = why;
		return rc;
	}
	return r->acceptor.n
		       ? 0
		       : dr_err_set(e, -EADDRNOTAVAIL,
				 "rendezvous: no address can be listened on: %.180s", why.text);
}

/* Addresses that have a socket. */
static void listening_addrs(
	struct dr_rdv *r, const struct dr_rdv_listen_opts *o, struct dr_rdv_handle *h)
{
	for (unsigned i = 0; i < o->n && h->n < DR_RDV_HANDLE_ADDRS_MAX; i++) {
		struct dr_addr a = o->addrs[i].addr;
		dr_sa_set_port(&a.ss, r->port);
		if (dr_acceptor_has(&r->acceptor, &a))
			h->addrs[h->n++] = o->addrs[i];
	}
}

void dr_rdv_expand_key(const struct dr_rdv_handle *h, struct dr_boot_key *out)
{
	crypto_generichash(out->bytes, sizeof(out->bytes), h->key, sizeof(h->key), NULL, 0);
}

int dr_rdv_listen(struct dr_rdv *r, const struct dr_rdv_listen_opts *o, struct dr_rdv_listen **out,
	uint8_t handle[DR_RDV_HANDLE_BYTES], struct dr_err *e)
{
	struct dr_rdv_handle h = { .flags = o->flags, .process = r->process };
	int rc = open_listeners(r, o->addrs, o->n, e);
	if (rc == 0)
		rc = dr_random_bytes(h.key, sizeof(h.key));
	if (rc)
		return rc;
	listening_addrs(r, o, &h);
	h.port = r->port;
	h.listen = r->last_listen + 1;
	if (dr_rdv_handle_encode(&h, handle) < 0)
		return dr_err_set(e, -EADDRNOTAVAIL,
			"rendezvous: none of the %u addresses can be listened on at port %u", o->n,
			r->port);
	struct dr_rdv_listen *l = dr_calloc(1, sizeof(*l));
	if (!l)
		return dr_err_set(e, -ENOMEM, "rendezvous: out of memory");
	*l = (struct dr_rdv_listen){ .rdv = r, .number = ++r->last_listen, .arg = o->arg };
	dr_rdv_expand_key(&h, &l->key);
	l->next = r->listens[l->number % DR_RDV_BUCKETS];
	r->listens[l->number % DR_RDV_BUCKETS] = l;
	*out = l;
	return 0;
}

void dr_rdv_listen_close(struct dr_rdv_listen *l)
{
	int64_t now = dr_now_ns();
	for (struct dr_rdv_comm *c = l->rdv->accepts; c; c = c->next)
		if (c->listen == l && !c->told) {
			c->told = true;
			dr_rdv_comm_refuse(c, ECONNREFUSED, "the listen comm is closed", now);
		}
	l->closed = l->rdv->reap = true;
}
