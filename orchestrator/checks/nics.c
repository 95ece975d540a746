/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"
#include "orchestrator/checks/doctor_priv.h"
#include "orchestrator/session/unused.h"
#include "topology/reach.h"

#include <inttypes.h>
#include <string.h>

void dr_check_rail_count(struct dr_doctor *d)
{
	char names[96] = "";

	for (unsigned i = 0; i < d->n; i++)
		dr_append(names, sizeof(names), "%s%s", i ? ", " : "", d->nic[i].rail.ifname);
	if (d->n >= 2)
		dr_find_ok(d, "rails", NULL, "%u rails: %s", d->n, names);
	else
		dr_find_warn(d, "rails", NULL,
			"only one rail, %s: every channel is unprotected, and a lost link ends the run\n"
			"1\n"
			"2 or more NICs with an address\n"
			"assign an address to another NIC, or name the rails: --rails eth1,eth2",
			names);
}

void dr_check_link(struct dr_doctor *d, const struct dr_doctor_nic *nic)
{
	if (nic->rail.running)
		dr_find_ok(d, "link", nic->rail.ifname, "up, with carrier");
	else
		dr_find_fail(d, "link", nic->rail.ifname,
			"the rail is down or has no carrier\n"
			"down\n"
			"up, with carrier\n"
			"ip link set %s up; then check cable, transceiver and switch port",
			nic->rail.ifname);
}

void dr_check_unused(struct dr_doctor *d, const struct dr_netdev *devs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct dr_netdev *dev = &devs[i];

		bool address = dr_unused_address(dev) != NULL;

		/* Virtual devices come and go by design; a device with a master sends through it. */
		if (dev->running || dev->loopback || dev->master ||
			strcmp(dev->kind, "bridge") == 0 || (dev->kind[0] && !address))
			continue;
		dr_find_warn(d, "link", dev->name,
			"%s: no rail uses it\n\n\ncheck the cable or port; ip link set %s up",
			address ? "down: has an address but no carrier"
				: "down, and without an address",
			dev->name);
	}
}

static void speed_text(int64_t mbps, char *buf, size_t len)
{
	if (mbps % 1000 == 0)
		snprintf(buf, len, "%lld Gb/s", (long long)mbps / 1000);
	else
		snprintf(buf, len, "%lld Mb/s", (long long)mbps);
}

void dr_check_speed(struct dr_doctor *d)
{
	int64_t best = -1;
	unsigned slow = 0;
	char most[32], here[32];

	for (unsigned i = 0; i < d->n; i++)
		best = DR_MAX(best, d->nic[i].rail.speed_mbps);
	speed_text(best, most, sizeof(most));
	for (unsigned i = 0; i < d->n; i++) {
		int64_t s = d->nic[i].rail.speed_mbps;

		if (s <= 0 || s == best)
			continue;
		slow++;
		speed_text(s, here, sizeof(here));
		dr_find_warn(d, "speed", d->nic[i].rail.ifname,
			"slower than another rail: it limits the GPUs on it, and after a failover all GPUs\n"
			"%s\n"
			"%s\n"
			"ethtool %s shows the speeds that both ends offer; or exclude the NIC with --rails",
			here, most, d->nic[i].rail.ifname);
	}
	if (best <= 0)
		dr_find_note(d, "speed", NULL,
			"no rail reports its speed (virtual devices do not): reports have no line rate");
	else if (!slow)
		dr_find_ok(d, "speed", NULL, "all rails that report a speed: %s", most);
}

void dr_check_mtu(struct dr_doctor *d)
{
	unsigned most = 0, small = 0;

	for (unsigned i = 0; i < d->n; i++)
		most = DR_MAX(most, d->nic[i].rail.mtu);
	for (unsigned i = 0; i < d->n; i++) {
		const struct dr_netdev_rail *r = &d->nic[i].rail;

		if (r->mtu == most)
			continue;
		small++;
		dr_find_warn(d, "mtu", r->ifname,
			"the MTU is lower than that of another rail: primary and shadow path differ\n"
			"%u\n"
			"%u\n"
			"ip link set %s mtu %u (also at the switch and the peer)",
			r->mtu, most, r->ifname, most);
	}
	if (!small && d->n)
		dr_find_ok(d, "mtu", NULL, "%u on %s", most, d->n == 1 ? "the rail" : "all rails");
}

/* Another rail whose ARP requests this one answers; NULL. */
static const struct dr_netdev_rail *answers_for(
	const struct dr_doctor *d, const struct dr_netdev_rail *r)
{
	for (unsigned i = 0; i < d->n; i++) {
		const struct dr_netdev_rail *o = &d->nic[i].rail;

		if (o->ifindex != r->ifindex && dr_reach_flux(d->root, r->ifname, &r->addr,
							&o->addr, DR_MAX(r->prefix, o->prefix)))
			return o;
	}
	return NULL;
}

void dr_check_arp(struct dr_doctor *d)
{
	bool bad = false;

	for (unsigned i = 0; i < d->n; i++) {
		const struct dr_netdev_rail *r = &d->nic[i].rail, *other = answers_for(d, r);

		if (!other)
			continue;
		bad = true;
		dr_find_warn(d, "arp", r->ifname,
			"shares its subnet with %s and answers ARP requests for its address: data may "
			"arrive at the wrong NIC, where it is dropped\n"
			"\n"
			"arp_ignore=1 arp_announce=2\n"
			"sysctl -w net/ipv4/conf/%s/arp_ignore=1 net/ipv4/conf/%s/arp_announce=2; ip "
			"neigh flush dev %s (at both ends; or use one subnet per rail)",
			other->ifname, r->ifname, r->ifname, r->ifname);
	}
	if (!bad && d->n > 1)
		dr_find_ok(
			d, "arp", NULL, "each rail answers ARP requests for its own address only");
}
