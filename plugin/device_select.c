/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device_priv.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Which devices are offered: those of the automatic choice (topology/candidate.c), or those that
 * the user names, of which only the link and the addresses count; their order.
 */
enum { CANDIDATES_MAX = 256 };

struct pick {
	const struct ha_nics *have;
	const struct ha_config *c;
	const struct dr_netdev *out[CANDIDATES_MAX]; /* by PCI place, then name */
	unsigned n, n_spare;
	const struct dr_netdev *spare[HA_DEVICES_MAX];
};

static bool is_before(const struct ha_nics *h, const struct dr_netdev *a, const struct dr_netdev *b)
{
	const char *x = ha_bus_id(h, a), *y = ha_bus_id(h, b);
	int order = strcmp(x, y);

	if (!x[0] != !y[0])
		return x[0];
	return order ? order < 0 : strverscmp(a->name, b->name) < 0;
}

static void take(struct pick *p, const struct dr_netdev *d)
{
	unsigned at = p->n;

	if (p->n == CANDIDATES_MAX)
		return;
	for (; at > 0 && is_before(p->have, d, p->out[at - 1]); at--)
		p->out[at] = p->out[at - 1];
	p->out[at] = d;
	p->n++;
}

sa_family_t ha_family(const struct ha_config *c)
{
	static const sa_family_t family[] = {
		[HA_FAMILY_INET] = AF_INET, [HA_FAMILY_INET6] = AF_INET6
	};

	return family[c->family];
}

bool ha_named(const struct ha_config *c)
{
	const struct ha_names *n = ha_config_is_verbs(c) ? &c->rdma_devices : &c->devices;

	return n->n && !n->exclude;
}

/* Of no use for anybody: not worth a line. */
static bool is_trivial(const struct dr_netdev *d)
{
	return d->loopback || d->n_addrs == 0;
}

static bool admits(const void *arg, const struct dr_netdev *d)
{
	const struct ha_config *c = arg;

	return ha_names_match(&c->devices, d->name, -1);
}

static void select_automatic(struct pick *p)
{
	const struct dr_netdev_choice from = { .devs = p->have->dev,
		.n_devs = p->have->n,
		.default_ifindex = p->have->default_ifindex,
		.family = ha_family(p->c),
		.topo = p->have->topo,
		.admits = admits,
		.arg = p->c };

	for (size_t i = 0; i < p->have->n; i++) {
		const struct dr_netdev *d = &p->have->dev[i];
		enum dr_netdev_why why = dr_netdev_refused(&from, d);

		if (!admits(p->c, d))
			continue;
		if (!why)
			take(p, d);
		else if (dr_netdev_rank(why) != DR_NIC_NONE && p->n_spare < HA_DEVICES_MAX)
			p->spare[p->n_spare++] = d;
		if (why && !is_trivial(d))
			dr_info("devices",
				"%s is not used: %s; name it in HA_NCCL_DEVICES to use it", d->name,
				dr_netdev_why_text(why));
	}
}

/* ---- selection by name ---- */

static void report_unknown(const struct pick *p)
{
	struct ha_names one = p->c->devices;
	char unknown[200] = "", names[300];

	one.n = 1;
	for (unsigned k = 0; k < p->c->devices.n; k++) {
		size_t i = 0;

		one.v[0] = p->c->devices.v[k];
		while (i < p->have->n && !ha_names_listed(&one, p->have->dev[i].name, -1))
			i++;
		if (i == p->have->n)
			dr_append(unknown, sizeof(unknown), "%s%s", *unknown ? ", " : "",
				one.v[0].text);
	}
	dr_netdev_names(p->have->dev, p->have->n, names, sizeof(names));
	if (*unknown)
		dr_warn("devices", "%s: there is no %s here; this host has %s",
			p->c->devices_variable, unknown, names);
}

static void select_listed(struct pick *p)
{
	for (size_t i = 0; i < p->have->n; i++) {
		const struct dr_netdev *d = &p->have->dev[i];
		enum dr_netdev_why why = dr_netdev_link_refused(d, ha_family(p->c), ha_named(p->c));

		if (!admits(p->c, d))
			continue;
		if (why)
			dr_warn("devices", "%s is not used: %s", d->name, dr_netdev_why_text(why));
		else
			take(p, d);
	}
	if (p->n) /* else none_is_left tells */
		report_unknown(p);
}

/* ---- ports of RDMA devices ---- */

void ha_port_name(const struct dr_kind_port *p, char *buf, size_t len)
{
	snprintf(buf, len, "%s", p->device);
	if (p->ports > 1)
		dr_append(buf, len, ":%u", p->port);
}

static bool admitted(const struct ha_config *c, const struct dr_kind_port *p)
{
	return ha_names_match(&c->rdma_devices, p->device, (int)p->port);
}

static bool is_on(const struct ha_port *p, const struct dr_netdev *d)
{
	return p->own.active && !p->why[0] && strcmp(p->own.ifname, d->name) == 0;
}

const struct ha_port *ha_port_of(
	const struct ha_nics *have, const struct ha_config *c, const struct dr_netdev *d)
{
	for (unsigned i = 0; i < have->n_ports; i++)
		if (admitted(c, &have->port[i].own) && is_on(&have->port[i], d))
			return &have->port[i];
	return NULL;
}

/* The network device of a port; NULL: none can be used, and *why tells why the port is left out. */
static const struct dr_netdev *netdev_of(
	const struct pick *p, const struct ha_port *port, const char **why)
{
	const struct dr_netdev *d = NULL;

	*why = NULL;
	for (size_t i = 0; i < p->have->n && !d; i++)
		if (strcmp(p->have->dev[i].name, port->own.ifname) == 0)
			d = &p->have->dev[i];
	if (!port->own.active)
		*why = "its port is not active";
	else if (!d)
		*why = "it has no network device, whose address its connections need";
	else if (port->why[0])
		*why = port->why;
	else if (ha_port_of(p->have, p->c, d) != port)
		*why = "another RDMA device has the same network device";
	else if (dr_netdev_link_refused(d, ha_family(p->c), ha_named(p->c)))
		*why = dr_netdev_why_text(
			dr_netdev_link_refused(d, ha_family(p->c), ha_named(p->c)));
	return *why ? NULL : d;
}

static int no_port_is_left(const struct pick *p, struct dr_err *e)
{
	char list[100] = "", names[100] = "", name[HA_DEVICE_NAME_BYTES];

	for (unsigned i = 0; i < p->have->n_ports; i++) {
		ha_port_name(&p->have->port[i].own, name, sizeof(name));
		dr_append(names, sizeof(names), "%s%s", i ? ", " : "", name);
	}
	ha_names_format(&p->c->rdma_devices, list, sizeof(list));
	return dr_err_set(e, -ENODEV,
		"NCCL_IB_HCA=%s: no RDMA device with an active port and an address can be used; this host "
		"has %s; use HA_NCCL_TRANSPORT=tcp, or see the reasons with NCCL_DEBUG=INFO",
		list, names[0] ? names : "none");
}

int ha_ports_select(const struct ha_nics *have, const struct ha_config *c,
	const struct dr_netdev **out, unsigned cap, struct dr_err *e)
{
	struct pick p = { .have = have, .c = c };
	bool named = ha_named(c);
	char name[HA_DEVICE_NAME_BYTES];
	const char *why;

	for (unsigned i = 0; i < have->n_ports; i++) {
		const struct ha_port *port = &have->port[i];

		if (!admitted(c, &port->own))
			continue;
		const struct dr_netdev *d = netdev_of(&p, port, &why);
		ha_port_name(&port->own, name, sizeof(name));
		if (d)
			take(&p, d);
		else
			dr_log(named ? DR_LOG_WARN : DR_LOG_INFO, "devices", "%s is not used: %s",
				name, why);
	}
	p.n = DR_MIN(p.n, cap);
	memcpy(out, p.out, p.n * sizeof(out[0]));
	return p.n ? (int)p.n : no_port_is_left(&p, e);
}

/* ---- what is left ---- */

static int none_is_left(const struct pick *p, struct dr_err *e)
{
	char list[100] = "", names[100] = "";

	dr_netdev_names(p->have->dev, p->have->n, names, sizeof(names));
	if (p->c->devices.n == 0)
		return dr_err_set(e, -ENODEV,
			"no network device is up with a carrier and a global address; name one in "
			"HA_NCCL_DEVICES (this host has %s)",
			names);
	ha_names_format(&p->c->devices, list, sizeof(list));
	return dr_err_set(e, -ENODEV,
		"%s=%s: no such device is up with a carrier and a usable address; this host has %s",
		p->c->devices_variable, list, names);
}

int ha_devices_select(const struct ha_nics *have, const struct ha_config *c,
	const struct dr_netdev **out, unsigned cap, unsigned *n_spare, struct dr_err *e)
{
	struct pick p = { .have = have, .c = c };

	if (c->devices.n && !c->devices.exclude)
		select_listed(&p);
	else
		select_automatic(&p);
	if (p.n == 0)
		return none_is_left(&p, e);
	if (p.n > cap)
		dr_warn("devices",
			"%u devices can be used, %u is the limit: the first ones by PCI bus id are; list "
			"others in HA_NCCL_DEVICES",
			p.n, cap);
	p.n = DR_MIN(p.n, cap);
	*n_spare = DR_MIN(p.n_spare, cap - p.n);
	memcpy(out, p.out, p.n * sizeof(out[0]));
	memcpy(out + p.n, p.spare, *n_spare * sizeof(out[0]));
	return (int)p.n;
}
