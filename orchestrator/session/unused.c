/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/unused.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { NAMED_MAX = 4 }; /* for each reason */

const struct dr_netdev_addr *dr_unused_address(const struct dr_netdev *d)
{
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (d->addrs[i].global || d->addrs[i].shared)
			return &d->addrs[i];
	return NULL;
}

static bool is_rail(const struct dr_plan *p, enum dr_plan_end end, const char *name)
{
	for (unsigned i = 0; i < p->n_rails; i++)
		if (strcmp(p->rail[i][end].name, name) == 0)
			return true;
	return false;
}

/* Of the device, whose peer did not answer; NULL. */
static const struct dr_silent_nic *silent_nic(
	const struct dr_silent_nics *silent, const struct dr_netdev *d)
{
	for (unsigned i = 0; silent && i < silent->n; i++)
		if (strcmp(silent->v[i].name, d->name) == 0)
			return &silent->v[i];
	return NULL;
}

/* NULL: it is a rail, or none that anybody would expect to be one. */
static const char *why_unused(
	const struct dr_session *s, const struct dr_netdev_choice *from, const struct dr_netdev *d)
{
	enum dr_netdev_why why = dr_netdev_refused(from, d);

	if (why == DR_NETDEV_LOOPBACK || why == DR_NETDEV_PORT || why == DR_NETDEV_BRIDGE ||
		!dr_unused_address(d) || is_rail(&s->plan, s->side, d->name))
		return NULL;
	if (d->running && strcmp(d->name, s->route.ifname) == 0)
		why = DR_NETDEV_CONTROL;
	if (why)
		return dr_netdev_why_text(why);
	return s->plan.n_rails == DR_RAILS_MAX ? "no partner at the other end, or beyond 16 rails"
					       : "no partner at the other end";
}

/* Links that are down come first. */
static void add_some(const struct dr_session *s, const struct dr_netdev_choice *from,
	const struct dr_silent_nics *silent, bool running)
{
	struct dr_unused_nic_row r;

	for (size_t i = 0; i < from->n_devs; i++) {
		const struct dr_netdev *d = &from->devs[i];
		const struct dr_silent_nic *nic = silent_nic(silent, d);
		const char *why = why_unused(s, from, d);

		if (!why || d->running != running)
			continue;
		dr_fields_init(&dr_unused_nic_fields, &r);
		r.side = (int)s->side;
		snprintf(r.nic, sizeof(r.nic), "%s", d->name);
		dr_netdev_addr_format((const struct sockaddr *)&dr_unused_address(d)->addr,
			r.address, sizeof(r.address));
		if (nic)
			snprintf(r.reason, sizeof(r.reason), "%s %.38s", nic->what, nic->peer);
		else
			snprintf(r.reason, sizeof(r.reason), "%s", why);
		dr_record_add(s->rec, unused_nics, &r);
	}
}

void dr_unused_find(const struct dr_session *s, const struct dr_silent_nics *silent)
{
	struct dr_netdev_choice from = dr_route_choice(&s->route);
	struct dr_netdev *devs = NULL;

	/* Who names NICs knows which ones are left out. */
	if (s->opt->rails || !s->plan.rails_auto || s->route.same_host ||
		dr_netdev_choice_read(&from, &devs, NULL))
		return;
	add_some(s, &from, silent, false);
	add_some(s, &from, silent, true);
	dr_netdev_list_free(devs);
}

void dr_unused_explain(struct dr_err *e)
{
	struct dr_netdev *devs;
	char down[100] = "", address[64];
	size_t n;

	if (dr_netdev_list(&devs, &n, NULL))
		return;
	for (size_t i = 0; i < n; i++) {
		const struct dr_netdev_addr *a = dr_unused_address(&devs[i]);

		if (devs[i].running || devs[i].loopback || !a)
			continue;
		dr_netdev_addr_format((const struct sockaddr *)&a->addr, address, sizeof(address));
		dr_append(
			down, sizeof(down), "%s%s (%s)", *down ? ", " : "", devs[i].name, address);
	}
	dr_netdev_list_free(devs);
	if (*down)
		dr_err_prefix(e, "down at the server: %s", down);
}

int dr_unused_put(const struct dr_record *rec, json_t *reply)
{
	json_t *list = json_array();

	for (size_t i = 0; i < rec->unused_nics.n; i++)
		json_array_append_new(
			list, dr_fields_to_json(&dr_unused_nic_fields, &rec->unused_nics.v[i]));
	return json_object_set_new(reply, "unused", list);
}

void dr_unused_take(struct dr_record *rec, const json_t *reply, const struct dr_silent_nics *silent)
{
	struct dr_unused_nic_row r;
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(reply, "unused"), i, v)
	{
		if (i >= DR_NICS_MAX || dr_fields_from_json(&dr_unused_nic_fields, &r, v, NULL) ||
			r.side != DR_END_SERVER)
			continue;
		for (unsigned k = 0; k < silent->n; k++)
			if (strcmp(silent->v[k].peer, r.address) == 0)
				snprintf(r.reason, sizeof(r.reason), "%s %.38s", silent->v[k].what,
					silent->v[k].address);
		dr_record_add(rec, unused_nics, &r);
	}
}

/* It carries no data on purpose. */
static bool manages(const struct dr_unused_nic_row *r)
{
	return strcmp(r->reason, DR_CONTROL_CONNECTION) == 0 ||
	       strcmp(r->reason, dr_netdev_why_text(DR_NETDEV_DEFAULT_ROUTE)) == 0;
}

/* The reason of a row that is the first one of this side with it; else NULL. */
static const char *new_reason(const struct dr_record *rec, size_t row, int side, bool all)
{
	const struct dr_unused_nic_row *v = rec->unused_nics.v;

	for (size_t i = 0; i < row; i++)
		if (v[i].side == side && strcmp(v[i].reason, v[row].reason) == 0)
			return NULL;
	return v[row].side == side && (all || !manages(&v[row])) ? v[row].reason : NULL;
}

bool dr_unused_describe(const struct dr_record *rec, int side, bool all, char *buf, size_t len)
{
	const struct dr_unused_nic_row *v = rec->unused_nics.v;

	buf[0] = '\0';
	for (size_t i = 0; i < rec->unused_nics.n; i++) {
		const char *reason = new_reason(rec, i, side, all);
		unsigned n = 0;

		if (!reason)
			continue;
		dr_append(buf, len, "%s",
			buf[0]			? "; "
			: side == DR_END_SERVER ? "not used at the server: "
						: "not used: ");
		for (size_t k = i; k < rec->unused_nics.n; k++)
			if (v[k].side == side && strcmp(v[k].reason, reason) == 0 &&
				n++ < NAMED_MAX)
				dr_append(buf, len, "%s%s (%s)", n > 1 ? ", " : "", v[k].nic,
					v[k].address);
		if (n > NAMED_MAX)
			dr_append(buf, len, " and %u more", n - NAMED_MAX);
		dr_append(buf, len, ": %s", reason);
	}
	return buf[0];
}
