/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "topology/topo.h"

#include <string.h>

/*
 * Which NICs become rails by themselves, for client and server, plugin, library, doctor, topo and
 * sweep. Every rule that leaves a NIC out stands here.
 */

const char *dr_netdev_why_text(enum dr_netdev_why why)
{
	static const char *const text[] = {
		[DR_NETDEV_RAIL] = "rail",
		[DR_NETDEV_LOOPBACK] = "loopback",
		[DR_NETDEV_PORT] = "belongs to a bond or bridge",
		[DR_NETDEV_VIRTUAL] = "tunnel or another virtual device",
		[DR_NETDEV_BRIDGE] = "bridge without a physical port",
		[DR_NETDEV_DOWN] = "down",
		[DR_NETDEV_CARRIER] = "no carrier",
		[DR_NETDEV_ADDRESS] = "no global address of its own",
		[DR_NETDEV_SLOW] = "slower than a tenth of the fastest",
		[DR_NETDEV_CONTROL] = DR_CONTROL_CONNECTION,
		[DR_NETDEV_DEFAULT_ROUTE] = "management NIC: it has the default route",
	};

	return text[why];
}

/* ---- kinds of devices ---- */

static const struct dr_netdev *by_index(const struct dr_netdev *devs, size_t n, int ifindex)
{
	for (size_t i = 0; ifindex && i < n; i++)
		if (devs[i].ifindex == ifindex)
			return &devs[i];
	return NULL;
}

bool dr_netdev_is_port(const struct dr_netdev *devs, size_t n, const struct dr_netdev *d)
{
	const struct dr_netdev *master = by_index(devs, n, d->master);

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

/* Its packets come back to this host, unless a bridge has the other end. */
static bool is_inner_veth(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	const struct dr_netdev *end =
		strcmp(d->kind, "veth") == 0 ? by_index(c->devs, c->n_devs, d->link) : NULL;

	return end && !end->master;
}

/* docker0, virbr0, cni0: their ports are links to containers and virtual machines. */
static bool is_inner_bridge(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	if (strcmp(d->kind, "bridge") != 0)
		return false;
	for (size_t i = 0; i < c->n_devs; i++) {
		const struct dr_netdev *port = &c->devs[i];

		if (port->master == d->ifindex && (!port->kind[0] || !strcmp(port->kind, "bond") ||
							  !strcmp(port->kind, "vlan")))
			return false;
	}
	return true;
}

enum dr_nic_rank dr_netdev_rank(enum dr_netdev_why why)
{
	if (why == DR_NETDEV_RAIL)
		return DR_NIC_RAIL;
	if (why == DR_NETDEV_SLOW)
		return DR_NIC_SLOW;
	return why == DR_NETDEV_CONTROL || why == DR_NETDEV_DEFAULT_ROUTE ? DR_NIC_MANAGEMENT
									  : DR_NIC_NONE;
}

/* ---- link and addresses ---- */

bool dr_netdev_addr_usable(
	const struct dr_netdev *d, const struct dr_netdev_addr *a, sa_family_t family, bool named)
{
	bool others = !named || a->addr.ss_family != AF_INET;

	for (unsigned i = 0; i < d->n_addrs; i++)
		others |= d->addrs[i].global;
	return (a->global || d->loopback || !others) && (!family || family == a->addr.ss_family);
}

enum dr_netdev_why dr_netdev_link_refused(const struct dr_netdev *d, sa_family_t family, bool named)
{
	if (!d->up)
		return DR_NETDEV_DOWN;
	if (!d->running)
		return DR_NETDEV_CARRIER;
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (dr_netdev_addr_usable(d, &d->addrs[i], family, named))
			return DR_NETDEV_RAIL;
	return DR_NETDEV_ADDRESS;
}

static enum dr_netdev_why refused_alone(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	if (d->loopback)
		return DR_NETDEV_LOOPBACK;
	if (dr_netdev_is_port(c->devs, c->n_devs, d))
		return DR_NETDEV_PORT;
	if (is_tunnel(d->kind) || is_inner_veth(c, d))
		return DR_NETDEV_VIRTUAL;
	if (is_inner_bridge(c, d))
		return DR_NETDEV_BRIDGE;
	return dr_netdev_link_refused(d, c->family, false);
}

static bool is_candidate(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	return (!c->admits || c->admits(c->arg, d)) && !refused_alone(c, d);
}

/* ---- beside the others ---- */

static int64_t speed(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	return dr_topo_link_mbps(c->topo, d);
}

static bool too_slow(int64_t mbps, int64_t fastest_mbps)
{
	return mbps > 0 && mbps < fastest_mbps / 10;
}

/* Of the candidates without this one. */
static int64_t fastest(const struct dr_netdev_choice *c, const struct dr_netdev *but)
{
	int64_t mbps = -1;

	for (size_t i = 0; i < c->n_devs; i++)
		if (&c->devs[i] != but && is_candidate(c, &c->devs[i]))
			mbps = DR_MAX(mbps, speed(c, &c->devs[i]));
	return mbps;
}

static bool one_is_slower(const struct dr_netdev_choice *c, int64_t mbps)
{
	for (size_t i = 0; i < c->n_devs; i++)
		if (is_candidate(c, &c->devs[i]) && too_slow(speed(c, &c->devs[i]), mbps))
			return true;
	return false;
}

static bool has_control(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	for (unsigned i = 0; c->control && i < d->n_addrs; i++)
		if (dr_netdev_addr_equal((const struct sockaddr *)&d->addrs[i].addr, c->control))
			return true;
	return false;
}

static const struct dr_netdev *with_default_route(const struct dr_netdev_choice *c)
{
	for (size_t i = 0; i < c->n_devs; i++)
		if (c->devs[i].ifindex == c->default_ifindex && is_candidate(c, &c->devs[i]))
			return &c->devs[i];
	return NULL;
}

/* Without the topology each device is a port; a VLAN has that of the device below. */
static const char *port_of(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	const struct dr_topo_nic *nic = dr_topo_find_nic(c->topo, d->name);
	const struct dr_netdev *below =
		strstr(d->kind, "vlan") ? by_index(c->devs, c->n_devs, d->link) : NULL;

	if (nic && nic->port[0])
		return nic->port;
	return below ? below->name : d->name;
}

/* Are other candidates on two physical ports? */
static bool two_ports_without(const struct dr_netdev_choice *c, const struct dr_netdev *but)
{
	int64_t mbps = fastest(c, NULL);
	const char *first = NULL;

	for (size_t i = 0; i < c->n_devs; i++) {
		const struct dr_netdev *d = &c->devs[i];

		if (d == but || !is_candidate(c, d) || too_slow(speed(c, d), mbps))
			continue;
		if (first && strcmp(first, port_of(c, d)) != 0)
			return true;
		first = port_of(c, d);
	}
	return false;
}

const struct dr_netdev *dr_netdev_management(const struct dr_netdev_choice *c)
{
	const struct dr_netdev *control = NULL, *route = with_default_route(c);

	for (size_t i = 0; i < c->n_devs && !control; i++)
		if (is_candidate(c, &c->devs[i]) && has_control(c, &c->devs[i]))
			control = &c->devs[i];
	if (!control)
		return route && two_ports_without(c, route) ? route : NULL;
	if (c->reserve_control)
		return control;
	int64_t own = speed(c, control), others = fastest(c, control);
	bool known = own > 0 && others > 0;
	if (too_slow(own, others))
		return control;
	if (known && one_is_slower(c, DR_MAX(own, others)))
		return NULL;
	return route ? route : known ? NULL : control;
}

enum dr_netdev_why dr_netdev_refused(const struct dr_netdev_choice *c, const struct dr_netdev *d)
{
	enum dr_netdev_why why = refused_alone(c, d);
	const struct dr_netdev *management;

	if (why)
		return why;
	management = dr_netdev_management(c);
	if (d == management)
		return d == with_default_route(c) ? DR_NETDEV_DEFAULT_ROUTE : DR_NETDEV_CONTROL;
	return too_slow(speed(c, d), fastest(c, management)) ? DR_NETDEV_SLOW : DR_NETDEV_RAIL;
}
