/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device_priv.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Which network devices are offered. Each rule is a function that says why a device is left out; the first reason
 * counts. Names that the user has written select devices whatever they are, so only the link and the address count
 * then.
 */
enum { CANDIDATES_MAX = 256 };

struct pick {
	const struct ha_nics *have;
	const struct ha_config *c;
	const struct dr_netdev *out[CANDIDATES_MAX]; /* by PCI place, then name */
	unsigned n;
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

const struct dr_topo_nic *ha_nic_of(const struct ha_nics *have, const struct dr_netdev *d)
{
	return have->topo ? dr_topo_find_nic(have->topo, d->name) : NULL;
}

bool ha_addr_usable(
	const struct ha_config *c, const struct dr_netdev *d, const struct dr_netdev_addr *a)
{
	int family = a->addr.ss_family;

	if ((c->family == HA_FAMILY_INET && family != AF_INET) ||
		(c->family == HA_FAMILY_INET6 && family != AF_INET6))
		return false;
	return a->global || d->loopback;
}

static const char *no_link_or_address(const struct ha_config *c, const struct dr_netdev *d)
{
	if (!d->up)
		return "it is down";
	if (!d->running)
		return "it has no carrier";
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (ha_addr_usable(c, d, &d->addrs[i]))
			return NULL;
	if (c->family == HA_FAMILY_INET)
		return "it has no global IPv4 address";
	return c->family == HA_FAMILY_INET6 ? "it has no global IPv6 address"
					    : "it has no global address";
}

/* ---- automatic selection ---- */

static const struct dr_netdev *by_index(const struct ha_nics *h, int ifindex)
{
	for (size_t i = 0; ifindex && i < h->n; i++)
		if (h->dev[i].ifindex == ifindex)
			return &h->dev[i];
	return NULL;
}

/* A VRF only gives its members a routing table. */
static bool is_slave(const struct ha_nics *h, const struct dr_netdev *d)
{
	const struct dr_netdev *master = by_index(h, d->master);

	return d->master && !(master && strcmp(master->kind, "vrf") == 0);
}

static bool is_tunnel(const char *kind)
{
	static const char *const kinds[] = { "tun", "wireguard", "vxlan", "geneve", "gre", "gretap",
		"ip6gre", "ip6gretap", "erspan", "ipip", "sit", "ip6tnl", "vti", "vti6", "xfrm",
		"dummy", "ifb", "bareudp", "gtp", "ppp", "vrf" };

	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i], kind) == 0)
			return true;
	return false;
}

/* docker0, virbr0, cni0: their ports are links to containers and virtual machines. */
static bool is_inner_bridge(const struct ha_nics *h, const struct dr_netdev *d)
{
	if (strcmp(d->kind, "bridge") != 0)
		return false;
	for (size_t i = 0; i < h->n; i++) {
		const struct dr_netdev *port = &h->dev[i];

		if (port->master == d->ifindex && (!port->kind[0] || !strcmp(port->kind, "bond") ||
							  !strcmp(port->kind, "vlan")))
			return false;
	}
	return true;
}

static const char *not_a_rail(const struct ha_nics *h, const struct dr_netdev *d)
{
	if (d->loopback)
		return "it is the loopback";
	if (is_slave(h, d))
		return "it belongs to a bond or bridge";
	if (is_tunnel(d->kind))
		return "it is a tunnel or another virtual device";
	if (is_inner_bridge(h, d))
		return "it is a bridge without a physical port";
	return NULL;
}

/* Of no use for anybody: not worth a line. */
static bool is_trivial(const struct dr_netdev *d)
{
	return d->loopback || d->n_addrs == 0;
}

static void report(const struct dr_netdev *d, const char *why)
{
	if (!is_trivial(d))
		dr_info("devices", "%s is not used: %s; name it in HA_NCCL_DEVICES to use it",
			d->name, why);
}

static void drop(struct pick *p, unsigned i, const char *why)
{
	report(p->out[i], why);
	memmove(&p->out[i], &p->out[i + 1], (--p->n - i) * sizeof(p->out[0]));
}

/* The kernel does not tell the speed of IPoIB devices; their RDMA device does. */
int64_t ha_link_mbps(const struct ha_nics *have, const struct dr_netdev *d)
{
	const struct dr_topo_nic *nic = ha_nic_of(have, d);

	if (d->speed_mbps > 0)
		return d->speed_mbps;
	return nic && nic->speed_mbps > 0 ? nic->speed_mbps : -1;
}

static void drop_slow(struct pick *p)
{
	int64_t fastest = -1;
	char why[80];

	for (unsigned i = 0; i < p->n; i++)
		fastest = DR_MAX(fastest, ha_link_mbps(p->have, p->out[i]));
	for (unsigned i = p->n; i-- > 0;) {
		int64_t mbps = ha_link_mbps(p->have, p->out[i]);

		if (!dr_netdev_too_slow(mbps, fastest))
			continue;
		snprintf(why, sizeof(why), "it has %lld Mb/s, the fastest one has %lld",
			(long long)mbps, (long long)fastest);
		drop(p, i, why);
	}
}

/* Do the devices other than `but` have two physical ports? */
static bool two_ports_without(const struct pick *p, unsigned but)
{
	struct ha_place first, other;
	bool any = false;

	for (unsigned i = 0; i < p->n; i++) {
		if (i == but)
			continue;
		ha_place_of(p->have, p->out[i], any ? &other : &first);
		if (any && strcmp(other.port, first.port) != 0)
			return true;
		any = true;
	}
	return false;
}

/* The default route leads to the management network, unless its NIC is needed as the second rail. */
static void drop_management(struct pick *p)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->out[i]->ifindex == p->have->default_ifindex && two_ports_without(p, i)) {
			drop(p, i,
				"it has the default route, so it is taken for the management "
				"device");
			return;
		}
}

static void select_automatic(struct pick *p)
{
	for (size_t i = 0; i < p->have->n; i++) {
		const struct dr_netdev *d = &p->have->dev[i];
		const char *why = not_a_rail(p->have, d);

		if (!ha_names_match(&p->c->devices, d->name, -1))
			continue;
		if (!why)
			why = no_link_or_address(p->c, d);
		if (why)
			report(d, why);
		else
			take(p, d);
	}
	drop_slow(p);
	drop_management(p);
}

/* ---- selection by name ---- */

static void select_listed(struct pick *p)
{
	for (size_t i = 0; i < p->have->n; i++) {
		const struct dr_netdev *d = &p->have->dev[i];
		const char *why = no_link_or_address(p->c, d);

		if (!ha_names_match(&p->c->devices, d->name, -1))
			continue;
		if (why)
			dr_warn("devices", "%s is not used: %s", d->name, why);
		else
			take(p, d);
	}
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
	else
		*why = no_link_or_address(p->c, d);
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
	bool named = c->rdma_devices.n && !c->rdma_devices.exclude;
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

	for (size_t i = 0; i < p->have->n; i++)
		dr_append(names, sizeof(names), "%s%s", i ? ", " : "", p->have->dev[i].name);
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
	const struct dr_netdev **out, unsigned cap, struct dr_err *e)
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
	memcpy(out, p.out, p.n * sizeof(out[0]));
	return (int)p.n;
}
