/* SPDX-License-Identifier: Apache-2.0 */
#include "base/source.h"
#include "base/text.h"
#include "orchestrator/options/options.h"
#include "orchestrator/plan/plan.h"
#include "topology/addr.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * The transport kind of a plan. The client decides on the kind and on the shared part of its
 * parameters (dr_transport_kind.shared), which travel in the offer; the rest is each end's own.
 */

const struct dr_transport_kind *dr_plan_kind(const struct dr_plan *p)
{
	return dr_transport_kind(p->transport);
}

void dr_plan_set_transport(struct dr_plan *p, const struct dr_options *o)
{
	const struct dr_transport_kind *k = dr_transport_kind(o->transport);

	snprintf(p->transport, sizeof(p->transport), "%s", k->name);
	dr_options_params(o, k, &p->kind_params);
}

int dr_plan_follow_transport(struct dr_plan *p, const struct dr_options *o, struct dr_err *e)
{
	const struct dr_transport_kind *k = dr_plan_kind(p);
	union dr_kind_params agreed = p->kind_params;
	char names[64];

	if (dr_opts_given(o->table, "transport") && dr_transport_kind(o->transport) != k)
		return dr_err_set(e, -EPROTO,
			"transports differ: client %s, server %s; give both the same --transport, or "
			"none to the server",
			p->transport, o->transport);
	if (!k)
		return dr_err_set(e, -ENOTSUP,
			"transport %s of the client is not in the server's build (built: %s)",
			p->transport, dr_transport_names(names, sizeof(names)));
	dr_options_params(o, k, &p->kind_params);
	for (size_t i = 0; k->shared && i < k->shared->n; i++) {
		const struct dr_field *f = &k->shared->f[i];

		memcpy(p->kind_params.bytes + f->off, agreed.bytes + f->off, f->len);
	}
	/* What is this end's own. */
	return k->file ? k->check(&p->kind_params, p->detect == DR_DETECT_CONSERVATIVE, e) : 0;
}

int dr_plan_put_transport(const struct dr_plan *p, json_t *offer)
{
	const struct dr_transport_kind *k = dr_plan_kind(p);

	if (json_object_set_new(offer, "transport", json_string(k->name)))
		return -1;
	return k->shared ? json_object_set_new(offer, k->shared->what,
				   dr_fields_to_json(k->shared, &p->kind_params))
			 : 0;
}

static int read_params(struct dr_plan *p, const struct dr_transport_kind *k, const json_t *params,
	struct dr_err *e)
{
	if (dr_fields_from_json(k->shared, &p->kind_params, params, e) ||
		(k->check && k->check(&p->kind_params, p->detect == DR_DETECT_CONSERVATIVE, e))) {
		e->code = -EPROTO;
		return dr_err_prefix(e, "peer");
	}
	return 0;
}

int dr_plan_read_transport(struct dr_plan *p, const json_t *offer, struct dr_err *e)
{
	const char *name = json_string_value(json_object_get(offer, "transport"));

	if (!name || !*name || strlen(name) >= sizeof(p->transport))
		return dr_err_set(e, -EPROTO, "peer: an invalid transport name");
	dr_text_copy(p->transport, sizeof(p->transport), name);
	const struct dr_transport_kind *k = dr_plan_kind(p);
	if (p->detect == DR_DETECT_TRANSPORT && k && !k->fails_over)
		return dr_err_set(e, -EPROTO,
			"peer: --detect transport over %s, which moves to no other NIC", k->name);
	return k && k->shared ? read_params(p, k, json_object_get(offer, k->shared->what), e) : 0;
}

int dr_plan_check_hosts(const struct dr_plan *p, enum dr_plan_end end,
	const struct dr_handle *handles, struct dr_err *e)
{
	const struct dr_transport_kind *k = dr_plan_kind(p);
	struct sockaddr_storage host;
	char text[80];

	for (unsigned i = 0; k->handle_host && i < p->n_rails; i++) {
		const struct dr_plan_rail *r = &p->rail[i][!end];

		if (k->handle_host(&p->kind_params, handles[i].bytes, handles[i].len, &host) != 0 ||
			dr_same_host(&host, &r->addr))
			continue;
		dr_netdev_addr_format((const struct sockaddr *)&host, text, sizeof(text));
		return dr_err_set(e, -EPROTO,
			"rail %u: the peer's handle names %s, but its NIC %s has %s%s", i, text,
			r->name, r->address,
			k->bypass ? "; leave --gid out, or give it and --key-file to both ends"
				  : "");
	}
	return 0;
}

void dr_plan_distrust(struct dr_plan *p)
{
	const struct dr_transport_kind *k = dr_plan_kind(p);

	if (k && k->distrust)
		k->distrust(&p->kind_params);
}
