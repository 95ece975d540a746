/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/*
 * How a peer comes up, over the rendezvous (bootstrap/rdv.h):
 *
 *   connecting end                                   listening end
 *   OFFER {transport, lanes, NICs}               ->  pairs NICs, opens its rails and channels
 *   opens its own                                <-  ACCEPT {lanes, numbers of the offer's NICs}
 *   HANDLES: of the rails, then of the channels  <->
 *   both start; UP when all channels carry data
 *
 * Channels 0 and 1 carry requests: of the connecting and of the listening end. Lane i has channel 2 + 2i and 3 + 2i, for
 * data of the connecting and of the listening end.
 */
enum { HANDLES_MAX = DR_LIB_RAILS_MAX + DR_LIB_CHANNELS_MAX };

struct rails {
	unsigned n, lanes;
	unsigned own[DR_LIB_RAILS_MAX],
		peer[DR_LIB_RAILS_MAX]; /* NICs, positions in the two lists */
};

/* ---- offer and reply ---- */

static void own_nics(const struct dualrail *d, struct dr_nic *out)
{
	for (unsigned i = 0; i < d->n_nics; i++) {
		const struct dr_netdev_rail *r = &d->nic[i];

		dr_nic_set(&out[i], &r->addr, r->prefix, r->nic, r->rank);
		out[i].routes = &r->routes;
	}
}

static json_t *offer_json(const struct dualrail *d)
{
	struct dr_nic own[DR_NICS_MAX];

	own_nics(d, own);
	return json_pack("{s:s, s:i, s:o}", "transport", d->kind->name, "lanes", (int)d->o.lanes,
		"nics", dr_nics_to_json(own, d->n_nics));
}

static bool get_uint(const json_t *j, unsigned max, unsigned *out)
{
	if (!json_is_integer(j) || json_integer_value(j) < 0 || json_integer_value(j) > max)
		return false;
	*out = (unsigned)json_integer_value(j);
	return true;
}

/* At the listening end. */
static int choose(
	const struct dualrail *d, const json_t *offer, struct rails *out, struct dr_err *e)
{
	const char *transport = json_string_value(json_object_get(offer, "transport"));
	struct dr_nic peer[DR_NICS_MAX], own[DR_NICS_MAX];
	struct dr_nic_pair pair[DR_NICS_MAX];
	unsigned lanes;

	if (!transport || !get_uint(json_object_get(offer, "lanes"), DUALRAIL_LANES_MAX, &lanes))
		return dr_err_set(e, -EPROTO, "the peer's offer is malformed");
	if (strcmp(transport, d->kind->name) != 0)
		return dr_err_set(e, -EPROTONOSUPPORT,
			"the transport of this end is %s, the peer's is another one; open both "
			"endpoints with the same",
			d->kind->name);
	int n_peer = dr_nics_from_json(json_object_get(offer, "nics"), peer, e);
	if (n_peer < 0)
		return n_peer;
	own_nics(d, own);
	out->n = dr_nic_pair_up(peer, (unsigned)n_peer, own, d->n_nics, pair);
	out->n = DR_MIN(out->n, (unsigned)DR_LIB_RAILS_MAX);
	if (out->n == 0)
		return dr_err_set(e, -EADDRNOTAVAIL,
			"no NIC of this end reaches one of the peer's: give two NICs one subnet, or "
			"both ends a route");
	for (unsigned i = 0; i < out->n; i++) {
		out->peer[i] = pair[i].a;
		out->own[i] = pair[i].b;
	}
	lanes = lanes ? lanes : out->n;
	out->lanes = DR_MIN(lanes, d->o.lanes ? d->o.lanes : out->n);
	return 0;
}

static json_t *reply_json(const struct rails *r)
{
	json_t *nics = json_array();
	int bad = 0;

	for (unsigned i = 0; i < r->n; i++)
		bad |= json_array_append_new(nics, json_integer(r->peer[i]));
	if (!bad)
		return json_pack("{s:i, s:o}", "lanes", (int)r->lanes, "nics", nics);
	json_decref(nics);
	return NULL;
}

/* At the connecting end. */
static int reply_read(
	const struct dualrail *d, const json_t *reply, struct rails *out, struct dr_err *e)
{
	const json_t *nics = json_object_get(reply, "nics");
	size_t n = json_array_size(nics);
	bool ok = n >= 1 && n <= DR_LIB_RAILS_MAX &&
		  get_uint(json_object_get(reply, "lanes"), DUALRAIL_LANES_MAX, &out->lanes) &&
		  out->lanes >= 1 && (d->o.lanes == 0 || out->lanes <= d->o.lanes);

	for (size_t i = 0; i < n && ok; i++) {
		ok = get_uint(json_array_get(nics, i), d->n_nics - 1, &out->own[i]);
		for (size_t k = 0; k < i && ok; k++)
			ok = d->nic[out->own[k]].nic != d->nic[out->own[i]].nic;
	}
	out->n = (unsigned)n;
	return ok ? 0 : dr_err_set(e, -EPROTO, "the peer's answer is malformed");
}

/* ---- rails and channels ---- */

static void manager_params(const struct dualrail_peer *p, const struct rails *r,
	const uint8_t *secret, struct dr_manager_params *mp)
{
	struct dualrail *d = p->d;

	*mp = (struct dr_manager_params){ .transport = d->kind->ops,
		.n_rails = r->n,
		.connector = p->connector,
		.window = DR_LIB_WINDOW,
		.heartbeat_ns = d->o.heartbeat_us * DR_NS_PER_US,
		.detect = d->o.flags & DUALRAIL_CONSERVATIVE ? DR_DETECT_CONSERVATIVE
							     : DR_DETECT_FAST,
		.failback = !(d->o.flags & DUALRAIL_NO_FAILBACK),
		.hold_down_ns = d->o.hold_down_ms * DR_NS_PER_MS,
		.lost_after_ns = DR_LOST_AFTER_JOB_NS,
		.poller = d->poller,
		.ops = &dr_lib_manager_ops,
		.arg = (void *)p };
	_Static_assert((int)DR_RDV_SECRET_BYTES == (int)DR_TOKEN_LEN, "the secret is the token");
	memcpy(mp->token, secret, DR_TOKEN_LEN);
	if (d->kind->params_size)
		mp->kind_params = &d->params;
	if (d->kind->windows)
		d->kind->windows(&d->params, &mp->hw_window_ns, &mp->hw_retry_ns);
	for (unsigned i = 0; i < r->n; i++) {
		const struct dr_netdev_rail *nic = &d->nic[r->own[i]];

		mp->rail[i] = (struct dr_manager_rail){
			.ifname = nic->ifname, .local = nic->addr, .ifindex = nic->ifindex
		};
	}
}

static int open_channel(struct dualrail_peer *p, unsigned i, struct dr_err *e)
{
	struct dr_manager_channel spec = { .primary = dr_lib_rail(p, i, 0),
		.shadow = dr_lib_rail(p, i, 1),
		.sender = (i % 2 == 0) == p->connector };
	static uint8_t nothing[8];
	const struct dr_memory m = { .base = nothing, .len = sizeof(nothing) };
	int rc = dr_manager_open_channel(p->m, i, &spec, &p->ch[i], e);

	return rc ? rc : dr_channel_mem_reg(p->ch[i], &m, &p->nothing[i], e);
}

static int open_requests(struct dualrail_peer *p, struct dr_lib_requests *q, struct dr_err *e)
{
	struct dr_memory m = { .len = (size_t)DR_LIB_WINDOW * DR_REQUEST_BYTES };

	q->slot = dr_pages_alloc(m.len);
	if (!q->slot)
		return dr_err_set(e, -ENOMEM, "requests: out of memory");
	m.base = q->slot;
	return dr_channel_mem_reg(p->ch[q->channel], &m, &q->mem, e);
}

static int open_rails(
	struct dualrail_peer *p, const struct rails *r, const uint8_t *secret, struct dr_err *e)
{
	struct dr_manager_params mp;
	int rc;

	manager_params(p, r, secret, &mp);
	memcpy(p->rail, mp.rail, sizeof(p->rail));
	p->n_rails = r->n;
	p->lanes = r->lanes;
	rc = dr_manager_create(&mp, &p->m, e);
	for (unsigned i = 0; i < 2 + 2 * p->lanes && rc == 0; i++)
		rc = open_channel(p, i, e);
	p->to.channel = p->connector ? 0 : 1;
	p->from.channel = 1 - p->to.channel;
	for (unsigned i = 0; i < p->lanes; i++) {
		p->tx[i].channel = 2 + 2 * i + p->to.channel;
		p->rx[i].channel = 2 + 2 * i + p->from.channel;
	}
	if (rc == 0)
		rc = open_requests(p, &p->to, e);
	if (rc == 0)
		rc = open_requests(p, &p->from, e);
	return rc == 0 ? dr_lib_regs_add(p, e) : rc;
}

static int give(struct dualrail_peer *p, struct dr_err *e)
{
	struct dr_handle h[HANDLES_MAX];
	unsigned rails = dr_manager_handle_count(p->m), n = rails + 2 + 2 * p->lanes;
	int rc = 0;

	dr_assert(n <= HANDLES_MAX);
	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = i < rails ? dr_manager_handle(p->m, i, &h[i])
			       : dr_channel_handle(p->ch[i - rails], &h[i]);
	if (rc == 0)
		rc = dr_rdv_give(p->exchange, h, n);
	return rc < 0 ? dr_err_set(e, rc, "connection: its handles cannot be sent (%s)",
				dr_errno_name(rc))
		      : 0;
}

static int start(struct dualrail_peer *p, const struct dr_rdv_done *done, struct dr_err *e)
{
	unsigned rails = dr_manager_handle_count(p->m), n = rails + 2 + 2 * p->lanes;
	const struct dr_transport_kind *k = p->d->kind;
	int64_t now = dr_now_ns();
	int rc;

	if (done->n != n)
		return dr_err_set(e, -EPROTO, "the peer sent %u handles, expected %u", done->n, n);
	rc = dr_manager_start(p->m, done->handles, rails, now, e);
	for (unsigned i = rails; i < n && rc == 0; i++)
		rc = dr_channel_start(p->ch[i - rails], &done->handles[i], now, e);
	for (unsigned i = 0; k->handle_host && i < p->n_rails; i++)
		(void)k->handle_host(&p->d->params, done->handles[i].bytes, done->handles[i].len,
			&p->rail_peer[i]);
	if (rc == 0)
		dr_lib_take_start(p, now);
	return rc;
}

/* ---- callbacks of the rendezvous ---- */

static void on_offer(void *arg, struct dr_rdv_comm *c, const json_t *offer)
{
	struct dualrail_peer *p = dr_lib_peer(arg, false);
	struct rails r = { .n = 0 };
	struct dr_err e = { 0 };
	json_t *reply = NULL;
	int rc;

	if (!p) {
		dr_rdv_refuse(c, ENOMEM, "out of memory");
		return;
	}
	p->exchange = c;
	dr_rdv_set_arg(c, p);
	rc = choose(p->d, offer, &r, &e);
	if (rc == 0)
		rc = open_rails(p, &r, dr_rdv_secret(c), &e);
	if (rc == 0)
		reply = reply_json(&r);
	if (rc == 0)
		rc = reply ? dr_rdv_accept(c, reply) : -ENOMEM;
	if (rc == 0)
		rc = give(p, &e);
	json_decref(reply);
	if (rc == 0)
		return;
	dr_warn("library", "a peer was refused: %s", e.text);
	dr_rdv_refuse(c, -rc, e.text[0] ? e.text : dr_errno_name(rc));
	p->exchange = NULL;
	(void)dr_lib_peer_free(p, NULL); /* nothing was posted */
}

static void on_accept(void *arg, struct dr_rdv_comm *c, const json_t *reply)
{
	struct dualrail_peer *p = arg;
	struct rails r = { .n = 0 };
	struct dr_err e = { 0 };
	int rc = reply_read(p->d, reply, &r, &e);

	if (rc == 0)
		rc = open_rails(p, &r, dr_rdv_secret(c), &e);
	if (rc == 0)
		rc = give(p, &e);
	if (rc == 0)
		return;
	dr_rdv_cancel(c);
	p->exchange = NULL;
	dr_lib_end(p, rc, e.text);
}

static void on_done(void *arg, struct dr_rdv_comm *c, const struct dr_rdv_done *done)
{
	struct dualrail_peer *p = arg;
	struct dr_err e = { 0 };
	int rc;

	(void)c;
	p->exchange = NULL;
	rc = start(p, done, &e);
	if (rc != 0) {
		dr_lib_end(p, rc, e.text);
		return;
	}
	p->state = DR_LIB_STARTING;
	p->until_ns = dr_now_ns() + p->d->o.connect_timeout_ms * DR_NS_PER_MS;
}

static void on_failed(void *arg, struct dr_rdv_comm *c, const struct dr_err *e)
{
	struct dualrail_peer *p = arg;

	(void)c;
	p->exchange = NULL;
	if (p->connector)
		dr_lib_end(p, e->code, e->text);
	else /* its user does not know it */
		(void)dr_lib_peer_free(p, NULL);
}

const struct dr_rdv_ops dr_lib_rdv_ops = {
	.on_offer = on_offer, .on_accept = on_accept, .on_done = on_done, .on_failed = on_failed
};

/* ---- calls of the user ---- */

int dualrail_listen(
	struct dualrail *d, uint8_t handle[DUALRAIL_HANDLE_BYTES], struct dualrail_error *error)
{
	const struct dr_rdv_listen_opts o = { .addrs = d->addr, .n = d->n_addrs, .arg = d };
	struct dr_err e = { 0 };
	int rc = 0;

	_Static_assert(
		(int)DUALRAIL_HANDLE_BYTES == (int)DR_RDV_HANDLE_BYTES, "as the header says");
	dr_lib_lock(d);
	if (!d->listen)
		rc = dr_rdv_listen(d->rdv, &o, &d->listen, d->handle, &e);
	if (rc == 0)
		memcpy(handle, d->handle, DUALRAIL_HANDLE_BYTES);
	dr_lib_unlock(d);
	return rc ? dr_lib_error(error, &e) : 0;
}

static int dial(struct dualrail_peer *p, const uint8_t *handle, struct dr_err *e)
{
	struct dualrail *d = p->d;
	json_t *offer = offer_json(d);
	const struct dr_rdv_connect_opts o = { .handle = handle,
		.local = d->addr,
		.n_local = d->n_addrs,
		.offer = offer,
		.timeout_ns = d->o.connect_timeout_ms * DR_NS_PER_MS,
		.arg = p };
	int rc;

	if (!offer)
		return dr_err_set(e, -ENOMEM, "connect: out of memory");
	rc = dr_rdv_connect(d->rdv, &o, dr_now_ns(), &p->exchange, e);
	json_decref(offer);
	return rc;
}

int dualrail_connect(struct dualrail *d, const uint8_t handle[DUALRAIL_HANDLE_BYTES],
	struct dualrail_peer **out, struct dualrail_error *error)
{
	struct dr_err e = { 0 };
	struct dualrail_peer *p;
	int rc;

	dr_lib_lock(d);
	p = dr_lib_peer(d, true);
	rc = p ? dial(p, handle, &e) : dr_err_set(&e, -ENOMEM, "connect: out of memory");
	if (rc == 0)
		*out = p;
	else if (p)
		(void)dr_lib_peer_free(p, NULL);
	dr_lib_unlock(d);
	return rc ? dr_lib_error(error, &e) : 0;
}
