/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/process.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/offer.h"
#include "transport/kind.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/*
 * How a comm comes up: the exchange of both ends over the rendezvous (rdv.h).
 *
 *   dialling end                                     listening end
 *   OFFER {session number, new, comm number, NICs, threads, lanes, sizes}  ->  chooses rails, opens the session
 *   opens its end of the session           <-  ACCEPT {rails, threads, lanes, sizes}
 *   HANDLES: those of the session if it is new, then the comm's          <->
 *   starts the session and the comm              both, when they are done
 *
 * The first comm to a device of a process opens the session, and others wait for it. So a repeated exchange finds what it
 * opened before, and two comms never open the same session.
 */

/* Adds the addresses of v, number nic, behind the first n. */
static unsigned add_addresses(
	const struct ha_device *v, unsigned nic, struct dr_rdv_addr *out, unsigned n, unsigned cap)
{
	for (unsigned a = 0; a < v->n_addrs && n < cap; a++) {
		struct dr_rdv_addr *r = &out[n++];

		memset(r, 0, sizeof(*r));
		r->addr.ss = v->addr[a].addr;
		r->addr.len = dr_sa_len(&r->addr.ss);
		r->prefix = (uint8_t)v->addr[a].prefix;
		r->nic = (uint8_t)nic;
		r->rank = (uint8_t)v->rank;
		snprintf(r->device, sizeof(r->device), "%s", v->ifname);
	}
	return n;
}

unsigned ha_process_addresses(
	const struct ha_process *p, unsigned dev, struct dr_rdv_addr *out, unsigned cap)
{
	unsigned n = 0;
	int shadow = p->devices->dev[dev].shadow;

	for (unsigned i = 0; i < p->devices->n + p->devices->n_spare + 2; i++) {
		unsigned d = i == 0 ? dev : i == 1 ? (unsigned)DR_MAX(shadow, 0) : i - 2;

		if ((i == 1 && shadow < 0) || (i >= 2 && (d == dev || (int)d == shadow)))
			continue;
		n = add_addresses(&p->devices->dev[d], d, out, n, cap);
	}
	return n;
}

unsigned ha_process_rendezvous(
	const struct ha_process *p, unsigned dev, struct dr_rdv_addr *out, unsigned cap)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->devices->n_boot; i++)
		n = add_addresses(&p->devices->boot[i], i, out, n, cap);
	return n ? n : ha_process_addresses(p, dev, out, cap);
}

static void set_state(struct ha_endpoint *n, enum ha_endpoint_state state)
{
	pthread_mutex_lock(&n->p->lock);
	n->state = state;
	pthread_mutex_unlock(&n->p->lock);
}

void ha_endpoint_fail(struct ha_endpoint *n, int err, const char *why)
{
	pthread_mutex_lock(&n->p->lock);
	if (n->state != HA_ENDPOINT_FAILED && !n->closed)
		dr_warn("comm", "%s: %s%s", n->sender ? "connect" : "accept", why,
			err == -ETIMEDOUT ? "; firewalls have to admit TCP and UDP on the ports of "
					    "HA_NCCL_PORTS"
					  : "");
	n->state = HA_ENDPOINT_FAILED;
	n->err = err;
	if (!n->sender && !n->taken)
		n->closed = true; /* NCCL does not know it */
	pthread_mutex_unlock(&n->p->lock);
	if (n->opens && n->link)
		n->link->lost = true;
}

static void attach(struct ha_endpoint *n, struct ha_link *l)
{
	n->link = l;
	l->comms++;
	l->idle_ns = 0;
}

void ha_endpoint_detach(struct ha_endpoint *n)
{
	if (n->link && --n->link->comms == 0)
		n->link->idle_ns = dr_now_ns();
	n->link = NULL;
}

static struct ha_link *new_link(struct ha_process *p)
{
	struct ha_link *l = dr_calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->p = p;
	l->next = p->links;
	p->links = l;
	return l;
}

/* ---- session of a link ---- */

static int open_session(struct ha_link *l, const struct ha_answer *plan, const uint8_t *secret,
	const char *peer, struct dr_err *e)
{
	struct ha_process *p = l->p;
	struct ha_session_params sp = { .connector = l->connector,
		.n_threads = plan->threads,
		.lanes = plan->lanes,
		.threads = p->io,
		.chunk = plan->chunk,
		.eager = plan->eager,
		.test_max_poll = (unsigned)p->cfg.test_max_poll };
	int rc;

	_Static_assert((int)DR_RDV_SECRET_BYTES == (int)DR_TOKEN_LEN, "the secret is the token");
	memcpy(sp.token, secret, sizeof(sp.token));
	snprintf(sp.peer, sizeof(sp.peer), "%s", peer);
	ha_config_manager(&p->cfg, &sp.manager);
	sp.manager.n_rails = plan->n_rails;
	for (unsigned r = 0; r < plan->n_rails; r++) {
		const struct dr_rdv_addr *own = &plan->rail[r];
		const struct ha_device *d = &p->devices->dev[own->nic];

		sp.device[r] = own->nic;
		sp.manager.rail[r] = (struct dr_manager_rail){
			.ifname = d->ifname, .local = own->addr.ss, .ifindex = d->ifindex
		};
	}
	rc = ha_config_taken(&p->cfg, ha_session_create(&sp, &l->s, e), e);
	if (rc == 0)
		l->n_handles = ha_session_handle_count(l->s);
	return rc;
}

/* Own handles of the exchange: those of the session if it opens one, then the comm's. */
static int give(struct ha_endpoint *n, struct dr_err *e)
{
	unsigned at = n->opens ? n->link->n_handles : 0;
	struct dr_handle *h = dr_calloc(at + 1, sizeof(*h));
	int rc = 0;

	if (!h)
		return dr_err_set(e, -ENOMEM, "comm: out of memory");
	if (n->opens)
		rc = ha_session_handles(n->link->s, h);
	if (rc == 0)
		rc = ha_comm_handle(n->comm, &h[at]);
	if (rc == 0)
		rc = dr_rdv_give(n->exchange, h, at + 1);
	dr_free(h);
	return rc < 0 ? dr_err_set(
				e, rc, "comm: its handles cannot be sent (%s)", dr_errno_name(rc))
		      : 0;
}

static int start(struct ha_endpoint *n, const struct dr_rdv_done *d, struct dr_err *e)
{
	unsigned at = n->opens ? n->link->n_handles : 0;
	int rc = 0;

	if (d->n != at + 1)
		return dr_err_set(
			e, -EPROTO, "comm: the peer sent %u handles, expected %u", d->n, at + 1);
	if (n->opens)
		rc = ha_session_start(n->link->s, d->handles, e);
	return rc ? rc : ha_comm_start(n->comm, &d->handles[at], e);
}

/* ---- listening end ---- */

static struct ha_link *find_link(struct ha_process *p, uint64_t process, uint64_t number)
{
	for (struct ha_link *l = p->links; l; l = l->next)
		if (!l->connector && l->process == process && l->number == number && !l->lost)
			return l;
	return NULL;
}

struct ha_endpoint *ha_endpoint_add(struct ha_process *p, const struct ha_endpoint *like)
{
	struct ha_endpoint *n = dr_calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	*n = *like;
	n->magic = ha_endpoint_magic;
	n->generation = p->generation;
	n->p = p;
	pthread_mutex_lock(&p->lock);
	n->next = p->endpoints;
	p->endpoints = n;
	pthread_mutex_unlock(&p->lock);
	return n;
}

static int answer_new(
	struct ha_endpoint *n, const struct ha_offer *o, struct ha_answer *plan, struct dr_err *e)
{
	struct ha_process *p = n->p;
	struct dr_rdv_addr own[DR_RDV_ADDRS_MAX];
	unsigned n_own = ha_process_addresses(p, n->dev, own, DR_RDV_ADDRS_MAX);
	struct ha_link *l;
	int rc;

	if (strcmp(o->transport, p->cfg.kind->name) != 0)
		return dr_err_set(e, -EPROTONOSUPPORT,
			"the peer's transport is %s, this end's %s; set HA_NCCL_TRANSPORT alike on all hosts",
			o->transport, p->cfg.kind->name);
	rc = ha_answer_choose(o, own, n_own, p->cfg.backup, plan, e);
	if (rc != 0)
		return rc;
	plan->threads = DR_MIN(o->threads, (unsigned)p->cfg.threads);
	plan->lanes = DR_MIN(o->lanes, (unsigned)p->cfg.lanes);
	plan->chunk = DR_MIN(o->chunk, p->cfg.chunk);
	plan->eager = DR_MIN(o->eager, p->cfg.eager);
	l = new_link(p);
	if (!l)
		return dr_err_set(e, -ENOMEM, "session: out of memory");
	l->process = l->peer = o->process;
	l->number = o->session;
	n->opens = true;
	attach(n, l);
	return open_session(l, plan, dr_rdv_secret(n->exchange), o->name, e);
}

static int answer(struct ha_endpoint *n, const struct ha_offer *o, json_t **reply, struct dr_err *e)
{
	struct ha_answer plan = { .n_rails = 0 };
	int rc = 0;

	if (o->opens) {
		rc = answer_new(n, o, &plan, e);
	} else {
		struct ha_link *l = find_link(n->p, o->process, o->session);

		if (!l || !l->up)
			return dr_err_set(e, -ENOTCONN, "the session %llu is over",
				(unsigned long long)o->session);
		attach(n, l);
	}
	n->id_in_session = o->comm;
	if (rc == 0)
		rc = ha_comm_open(n->link->s, n->id_in_session, &n->comm, e);
	if (rc == 0)
		n->comm->generation = n->generation;
	if (rc == 0) {
		*reply = ha_answer_to_json(&plan);
		rc = *reply ? 0 : dr_err_set(e, -ENOMEM, "comm: out of memory");
	}
	return rc;
}

static void on_offer(void *arg, struct dr_rdv_comm *c, const json_t *json)
{
	struct ha_listen *l = arg;
	struct ha_endpoint *n = ha_endpoint_add(l->p,
		&(struct ha_endpoint){
			.listen = l, .dev = l->dev, .exchange = c, .state = HA_ENDPOINT_EXCHANGE });
	struct dr_err e = { 0 };
	struct ha_offer o;
	json_t *reply = NULL;
	int rc;

	if (!n) {
		dr_rdv_refuse(c, ENOMEM, "out of memory");
		return;
	}
	dr_rdv_set_arg(c, n);
	rc = ha_offer_from_json(json, &o, &e);
	if (rc == 0)
		rc = answer(n, &o, &reply, &e);
	if (rc == 0)
		rc = dr_rdv_accept(c, reply);
	if (rc == 0)
		rc = give(n, &e);
	json_decref(reply);
	if (rc == 0)
		return;
	n->exchange = NULL;
	dr_rdv_refuse(c, -rc, e.text[0] ? e.text : dr_errno_name(rc));
	ha_endpoint_fail(n, rc, e.text);
}

/* ---- dialling end ---- */

static struct ha_link *link_toward(struct ha_endpoint *n, const struct dr_rdv_handle *h)
{
	for (struct ha_link *l = n->p->links; l; l = l->next)
		if (l->connector && l->peer == h->process && l->dev == n->dev &&
			l->peer_dev == h->flags && !l->lost)
			return l;
	return NULL;
}

static void make_offer(
	const struct ha_endpoint *n, struct ha_offer *o, struct dr_rdv_addr own[DR_RDV_ADDRS_MAX])
{
	const struct ha_process *p = n->p;

	*o = (struct ha_offer){ .process = p->id,
		.session = n->link->number,
		.opens = n->opens,
		.comm = n->id_in_session,
		.threads = (unsigned)p->cfg.threads,
		.lanes = (unsigned)p->cfg.lanes,
		.chunk = p->cfg.chunk,
		.eager = p->cfg.eager };
	ha_offer_nics(o, own, ha_process_addresses(p, n->dev, own, DR_RDV_ADDRS_MAX));
	snprintf(o->name, sizeof(o->name), "%s", p->devices->dev[n->dev].name);
	snprintf(o->transport, sizeof(o->transport), "%s", p->cfg.kind->name);
}

static int dial(struct ha_endpoint *n, int64_t now, struct dr_err *e)
{
	struct ha_process *p = n->p;
	struct dr_rdv_addr boot[DR_RDV_ADDRS_MAX], own[DR_RDV_ADDRS_MAX];
	struct ha_offer o;
	struct dr_rdv_connect_opts co = { .handle = n->handle,
		.local = boot,
		.timeout_ns = p->cfg.connect_timeout_ns,
		.arg = n };
	json_t *json;
	int rc;

	co.n_local = ha_process_rendezvous(p, n->dev, boot, DR_RDV_ADDRS_MAX);
	make_offer(n, &o, own);
	json = ha_offer_to_json(&o);
	if (!json)
		return dr_err_set(e, -ENOMEM, "comm: out of memory");
	co.offer = json;
	rc = dr_rdv_connect(p->rdv, &co, now, &n->exchange, e);
	json_decref(json);
	return rc;
}

void ha_open_endpoint(struct ha_endpoint *n, int64_t now)
{
	struct dr_err e = { 0 };
	struct dr_rdv_handle h;
	int rc = dr_rdv_handle_decode(n->handle, &h, &e);

	if (rc == 0 && !n->link) {
		struct ha_link *l = link_toward(n, &h);

		if (!l && (l = new_link(n->p))) {
			l->connector = n->opens = true;
			l->process = n->p->id;
			l->number = ++n->p->next_link;
			l->peer = h.process;
			l->dev = n->dev;
			l->peer_dev = h.flags;
		}
		if (!l)
			rc = dr_err_set(&e, -ENOMEM, "session: out of memory");
		else
			attach(n, l);
	}
	if (rc == 0 && !n->opens && n->link->lost)
		rc = dr_err_set(&e, -ENOTCONN, "the session could not be opened");
	if (rc == 0 && !n->opens && !n->link->up) {
		set_state(n, HA_ENDPOINT_WAITING);
		return;
	}
	if (rc == 0) {
		n->id_in_session = n->link->next_id++;
		set_state(n, HA_ENDPOINT_EXCHANGE);
		rc = dial(n, now, &e);
	}
	if (rc != 0)
		ha_endpoint_fail(n, rc, e.text);
}

static void on_accept(void *arg, struct dr_rdv_comm *c, const json_t *reply)
{
	struct ha_endpoint *n = arg;
	struct dr_err e = { 0 };
	struct ha_answer plan;
	int rc = 0;

	if (n->opens) {
		struct dr_rdv_addr own[DR_RDV_ADDRS_MAX];
		struct ha_offer o;

		make_offer(n, &o, own);
		rc = ha_answer_from_json(reply, &o, own, &plan, &e);
		if (rc == 0)
			rc = open_session(n->link, &plan, dr_rdv_secret(c), "peer", &e);
	}
	if (rc == 0)
		rc = ha_comm_open(n->link->s, n->id_in_session, &n->comm, &e);
	if (rc == 0)
		n->comm->generation = n->generation;
	if (rc == 0)
		rc = give(n, &e);
	if (rc == 0)
		return;
	n->exchange = NULL;
	dr_rdv_cancel(c);
	ha_endpoint_fail(n, rc, e.text);
}

/* ---- both ---- */

static void on_done(void *arg, struct dr_rdv_comm *c, const struct dr_rdv_done *d)
{
	struct ha_endpoint *n = arg;
	struct dr_err e = { 0 };
	int rc;

	(void)c;
	n->exchange = NULL;
	if (n->opens) /* before its threads may print it */
		snprintf(n->link->s->prm.peer, sizeof(n->link->s->prm.peer), "%s", d->peer);
	rc = start(n, d, &e);
	if (rc != 0) {
		ha_endpoint_fail(n, rc, e.text);
		return;
	}
	if (n->opens) {
		n->link->up = true;
		n->p->tick_ns = 0; /* others may wait for the session */
	}
	n->start_ns = dr_now_ns();
	set_state(n, HA_ENDPOINT_STARTING);
}

/* The peer closed the session, which nobody used there, while this end chose it. */
static void dial_anew(struct ha_endpoint *n)
{
	n->link->lost = true;
	ha_endpoint_detach(n);
	set_state(n, HA_ENDPOINT_NEW);
	n->p->tick_ns = 0;
}

static void on_failed(void *arg, struct dr_rdv_comm *c, const struct dr_err *e)
{
	struct ha_endpoint *n = arg;

	(void)c;
	n->exchange = NULL;
	if (e->code == -ENOTCONN && n->sender && !n->opens && !n->comm)
		dial_anew(n);
	else
		ha_endpoint_fail(n, e->code, e->text);
}

const struct dr_rdv_ops ha_open_ops = {
	.on_offer = on_offer, .on_accept = on_accept, .on_done = on_done, .on_failed = on_failed
};
