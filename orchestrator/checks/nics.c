/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sysfile.h"
#include "orchestrator/checks/doctor_priv.h"
#include "topology/reach.h"

#include <inttypes.h>
#include <string.h>

/* Limits: one in this many packets. A healthy link has none, except a few from when it was plugged in. */
enum { ERRORS_IN = 1000000, DROPS_IN = 10000 };

void dr_check_rail_count(struct dr_doctor *d)
{
	char names[96] = "";
	size_t at = 0;

	for (unsigned i = 0; i < d->n && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "",
			d->nic[i].rail.ifname);
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

static bool has_global(const struct dr_netdev *dev)
{
	for (unsigned i = 0; i < dev->n_addrs; i++)
		if (dev->addrs[i].global)
			return true;
	return false;
}

void dr_check_unused(struct dr_doctor *d, const struct dr_netdev *devs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct dr_netdev *dev = &devs[i];

		if (dev->running || dev->loopback || dev->master)
			continue;
		if (has_global(dev) && strcmp(dev->kind, "bridge") != 0) {
			dr_find_warn(d, "link", dev->name,
				"down: has an address but no carrier, so no rail uses it\n\n\n"
				"check the cable or port; ip link set %s up",
				dev->name);
			continue;
		}
		/* Virtual devices come and go by design; a device with a master sends through it. */
		if (dev->kind[0])
			continue;
		if (dev->up)
			dr_find_warn(d, "link", dev->name,
				"up, but without carrier: runs do not use it\n\n\n"
				"check cable, transceiver and switch port: ethtool %s",
				dev->name);
		else
			dr_find_note(d, "link", dev->name,
				"down: runs do not use it\n\n\nto use it as a rail: ip link set %s up",
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

bool dr_doctor_sysfs(const struct dr_doctor *d, const struct dr_doctor_nic *nic)
{
	int64_t index;

	return nic->hardware &&
	       dr_sysfile_number(&index, d->root, "/sys/class/net/%s/ifindex", nic->rail.ifname) &&
	       index == nic->rail.ifindex;
}

void dr_check_duplex(struct dr_doctor *d, const struct dr_doctor_nic *nic)
{
	const char *name = nic->rail.ifname;
	char text[32];

	/* If the device is down, duplex cannot be read. */
	if (!dr_doctor_sysfs(d, nic) ||
		dr_sysfile_text(text, sizeof(text), d->root, "/sys/class/net/%s/duplex", name) <= 0)
		return;
	if (strcmp(text, "full") == 0)
		dr_find_ok(d, "duplex", name, "full");
	if (strcmp(text, "half") == 0) /* not "unknown": a virtual device */
		dr_find_fail(d, "duplex", name,
			"half duplex: the two directions share the link and collide\n"
			"half\n"
			"full\n"
			"ethtool -s %s autoneg on, and the same at the switch",
			name);
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

void dr_check_counters(struct dr_doctor *d, const struct dr_doctor_nic *nic)
{
	const struct dr_netdev_counters *c = &nic->count;
	uint64_t packets = c->rx_packets + c->tx_packets, errors = c->rx_errors + c->tx_errors,
		 drops = c->rx_dropped + c->tx_dropped;
	bool bad = errors > packets / ERRORS_IN, lossy = drops > packets / DROPS_IN;
	const char *name = nic->rail.ifname;
	char remedy[128] = "";

	if (!nic->counted)
		return;
	/* The counters start with the device: only repeated readings show whether errors occur now. */
	if (bad || lossy)
		snprintf(remedy, sizeof(remedy),
			"check whether they grow: ip -s -s link show %s; ethtool -S %s; then %s",
			name, name,
			bad ? "cable and transceiver" : "the ring sizes: ethtool -g, -G");
	dr_findings_add(&d->f,
		bad	? DR_SEVERITY_WARN
		: lossy ? DR_SEVERITY_NOTE
			: DR_SEVERITY_OK,
		"counters", name,
		"%" PRIu64 " errors and %" PRIu64 " drops in %" PRIu64 " packets so far\n\n\n%s",
		errors, drops, packets, remedy);
}
