/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/offer.h"

#include "base/rng.h"
#include "bootstrap/net.h"
#include "orchestrator/fault/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The rails of an end, and what a client with its options offers before it has heard anything of the server. */

/* ---- names ---- */

/* The kind has a NIC of this name, which is neither a net device nor an address here. */
static bool kinds_own_name(
	const struct dr_transport_kind *kind, const char *name, char *ifname, struct dr_err *e)
{
	struct sockaddr_storage sa;
	struct dr_netdev d;

	if (!kind || !kind->netdev_of || !*name || strspn(name, "0123456789") == strlen(name) ||
		dr_netdev_addr_parse(name, &sa) == 0 || dr_netdev_by_name(name, &d, NULL) == 0)
		return false;
	return kind->netdev_of(name, ifname, IFNAMSIZ, e) == 0;
}

bool dr_rails_rename(const struct dr_transport_kind *kind, const char *text, char *buf, size_t len,
	struct dr_err *e)
{
	static const char ends[] = ",;=@";
	char name[128], ifname[IFNAMSIZ];
	size_t at = 0;

	for (buf[0] = '\0'; *text && at < len;) {
		size_t n = strcspn(text, ends);
		const char *item = name;

		if (n >= sizeof(name))
			return false;
		memcpy(name, text, n);
		name[n] = '\0';
		if (kinds_own_name(kind, name, ifname, e))
			item = ifname;
		at += (size_t)snprintf(buf + at, len - at, "%s%.1s", item, text + n);
		text += n + (text[n] != '\0');
	}
	return at < len;
}

/* ---- the control connection ---- */

int dr_rails_route(
	const struct dr_options *o, const char *host, struct dr_route *out, struct dr_err *e)
{
	struct sockaddr_storage from[DR_ADDRS_MAX];
	struct dr_addr local[DR_ADDRS_MAX];
	unsigned n = 0;
	int rc = o->control ? dr_addr_local(o->control, local, DR_ADDRS_MAX, &n, e) : 0;

	for (unsigned i = 0; i < n; i++)
		from[i] = local[i].ss;
	if (rc == 0 && host)
		rc = dr_route_to_host(host, from, n, out, e);
	else if (rc == 0 && n > 0)
		(void)dr_route_bind(out, from, n);
	return rc == -EADDRNOTAVAIL && o->control ? dr_err_prefix(e, "--control %s", o->control)
						  : rc;
}

/* ---- probing ---- */

/* Each rail as the session will open it. `choose`: NICs without a device of the kind are left out,
 * as are further addresses of a NIC that the kind cannot use. */
static int probe(const struct dr_plan *p, struct dr_netdev_rail *r, unsigned n, bool choose,
	struct dr_err *e)
{
	const struct dr_transport_kind *kind = dr_plan_kind(p);
	unsigned kept = 0;

	if (!kind || !kind->probe)
		return (int)n;
	for (unsigned i = 0; i < n; i++) {
		struct dr_rail_params rp = {
			.index = i, .ifname = r[i].ifname, .local = r[i].addr
		};
		bool further = kept && r[i].nic == r[kept - 1].nic;
		int rc = r[i].rank == DR_NIC_NONE ? 0 : kind->probe(&rp, &p->kind_params, NULL, e);

		if (rc && !further && (rc != -ENODEV || !choose))
			return dr_err_prefix(e, "rail %s", r[i].ifname);
		if (rc == 0)
			r[kept++] = r[i];
	}
	return kept && r[0].rank != DR_NIC_NONE ? (int)kept : -ENODEV;
}

int dr_rails_find(const struct dr_options *o, const struct dr_plan *p, const struct dr_route *route,
	struct dr_rails *out, struct dr_err *e)
{
	const struct dr_transport_kind *kind = dr_plan_kind(p);
	bool choose = !o->rails || strcmp(o->rails, "auto") == 0;
	struct dr_err why = { 0 };
	char list[1024] = "auto";

	out->n = 0;
	if (!choose && !dr_rails_rename(kind, o->rails, list, sizeof(list), &why))
		return dr_err_set(e, -EINVAL, "--rails: too long");
	/* "auto" and none differ where both ends are on one host, which has only lo then. */
	int n = dr_route_rails(
		choose && !(kind && kind->probe) ? o->rails : list, route, out->v, DR_NICS_MAX, e);
	/* No net device of that name either: then it was meant as one of the kind's. */
	if (n == -ENODEV && why.code)
		return dr_err_set(e, -ENODEV, "--rails: %s", why.text);
	if (n < 0)
		return n;
	n = probe(p, out->v, (unsigned)n, choose, e);
	if (n < 0)
		return n == -EINVAL ? -EMSGSIZE : n;
	out->n = (unsigned)n;
	return 0;
}

/* ---- the offer ---- */

static int parse_maps(const struct dr_options *o, struct dr_plan *p, struct dr_err *e)
{
	char text[2048];
	int rc = 0;

	if (o->map)
		rc = dr_rails_rename(dr_plan_kind(p), o->map, text, sizeof(text), NULL)
			     ? dr_plan_parse_map(p, text, e)
			     : dr_err_set(e, -EINVAL, "--map: too long");
	if (rc == 0)
		rc = dr_rails_rename(dr_plan_kind(p), o->spread, text, sizeof(text), NULL)
			     ? dr_plan_parse_spread(p, text, e)
			     : dr_err_set(e, -EINVAL, "--spread: too long");
	if (o->matrix)
		p->spread = DR_SPREAD_EACH;
	return rc ? rc : dr_plan_settle(p, e);
}

static void offer_faults(const struct dr_fault_list *l, struct dr_plan *p)
{
	char text[DR_FAULT_SPEC_MAX];

	for (unsigned i = 0; i < l->n; i++) {
		if (l->v[i].side != DR_FAULT_SERVER)
			continue;
		p->server_faults = true;
		dr_fault_spec_format(&l->v[i], text, sizeof(text));
		if (strlen(text) < DR_PLAN_FAULT_BYTES && p->n_server_fault < DR_PLAN_FAULTS_MAX)
			memcpy(p->server_fault[p->n_server_fault++], text, strlen(text) + 1);
	}
}

void dr_client_settings(const struct dr_options *o, struct dr_plan *p)
{
	memset(p, 0, sizeof(*p));
	dr_plan_set_transport(p, o);
	p->rails_auto = !o->rails || strcmp(o->rails, "auto") == 0;
	p->n_gpus = (unsigned)o->gpus.n;
	for (unsigned k = 0; k < p->n_gpus; k++)
		p->gpu[k][DR_PLAN_CLIENT] = o->gpus.v[k];
	p->n_each = (unsigned)o->channels;
	p->forward = !o->reverse;
	p->reverse = o->reverse || o->bidir;
	p->lat = o->test.lat;
	p->window = (unsigned)o->window;
	p->chunk_max = dr_options_chunk_max(o);
	p->heartbeat_ns = o->heartbeat_ns;
	p->interval_ns = o->interval_ns;
	p->hold_down_ns = o->hold_down_ns;
	p->detect = (enum dr_detect)o->detect;
	p->failback = o->failback;
	p->lost_after_ns = DR_LOST_AFTER_NS;
	p->sockbuf = (int)o->sockbuf;
	p->dscp = (int)o->dscp;
	offer_faults(&o->faults->list, p);
}

static bool is_silent(const struct dr_silent_nics *s, const struct dr_netdev_rail *r)
{
	char address[64];

	dr_netdev_addr_format((const struct sockaddr *)&r->addr, address, sizeof(address));
	for (unsigned i = 0; s && i < s->n; i++)
		if (strcmp(s->v[i].name, r->ifname) == 0 && strcmp(s->v[i].address, address) == 0)
			return true;
	return false;
}

/* The peer's ends of silent pairs make no other pair: offered as what this node has, too. */
static unsigned add_silent(const struct dr_silent_nics *s, struct dr_netdev_rail *r, unsigned n)
{
	for (unsigned i = 0; s && i < s->n && n > 0 && n < DR_NICS_MAX; i++) {
		r[n] = (struct dr_netdev_rail){ .nic = r[n - 1].nic + 1, .rank = DR_NIC_NONE };
		memcpy(r[n].ifname, s->v[i].name, sizeof(r[n].ifname));
		n += dr_netdev_addr_parse(s->v[i].peer, &r[n].addr) == 0;
	}
	return n;
}

int dr_client_plan(const struct dr_options *o, const struct dr_route *route,
	const struct dr_topo *topo, const struct dr_silent_nics *without, struct dr_plan *p,
	struct dr_err *e)
{
	unsigned kept = 0;
	struct dr_rails rails;

	dr_client_settings(o, p);
	int rc = dr_random_bytes(&p->seed, sizeof(p->seed));
	if (rc)
		return dr_err_set(e, rc, "no random numbers: %s", strerror(-rc));
	p->seed >>= 11; /* JSON carries 53 bits */
	rc = dr_rails_find(o, p, route, &rails, e);
	if (rc)
		return rc;
	for (unsigned i = 0; i < rails.n; i++)
		if (!is_silent(without, &rails.v[i]))
			rails.v[kept++] = rails.v[i];
	if (o->map)
		kept = dr_netdev_firsts(rails.v, kept);
	dr_plan_set_rails(p, rails.v, add_silent(without, rails.v, kept));
	p->topo = topo;
	dr_plan_measure(p, DR_PLAN_CLIENT);
	return parse_maps(o, p, e);
}

int dr_dial(const struct dr_dial *d, json_t *offer, struct dr_boot_client **out, struct dr_err *e)
{
	const struct dr_options *o = d->opt;
	struct dr_boot_key key = { { 0 } };
	struct dr_boot_opts bo = { .host = o->host,
		.gpus = o->gpus.v,
		.n_gpus = (unsigned)o->gpus.n,
		.port_base = (uint16_t)o->port,
		.pair = d->pair,
		.bind = o->control,
		.key = d->key	     ? d->key
		       : o->key_file ? &key
				     : NULL,
		.version = DR_VERSION,
		.params = offer,
		.connect_timeout_ns = d->patience_ns,
		.wait_busy = d->wait_busy,
		.timing = { .resume_ns = o->timeout_ns } };
	int rc = o->key_file && !d->key ? dr_boot_key_read(o->key_file, &key, e) : 0;

	if (rc == 0 && !offer)
		rc = dr_err_set(e, -ENOMEM, "out of memory");
	if (rc == 0)
		rc = dr_boot_client_create(out, &bo, d->ops, d->arg, d->poller, e);
	explicit_bzero(&key, sizeof(key));
	json_decref(offer);
	return rc;
}
