/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"
#include "orchestrator/doctor/machine.h"

#include <string.h>

/* One in so many packets. A sound link has none; a few come from the moment it was plugged in. */
enum { ERRORS_IN = 1000000, DROPS_IN = 10000 };

void dr_check_rail_count(const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f)
{
	char names[96] = "";
	size_t at = 0;
	struct dr_finding *x;

	for (unsigned i = 0; i < n && at < sizeof(names); i++)
		at += (size_t)snprintf(
			names + at, sizeof(names) - at, "%s%s", i ? ", " : "", nic[i].rail.ifname);
	if (n >= 2) {
		dr_findings_add(f, DR_SEVERITY_OK, "rails", NULL, "%u rails: %s", n, names);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_WARN, "rails", NULL,
		"one rail only, %s: every channel is unprotected, and a lost link ends the run",
		names);
	dr_finding_found(x, "1");
	dr_finding_needed(x, "2 or more NICs with an address");
	dr_finding_remedy(x, "give another NIC an address, or name the rails: --rails eth1,eth2");
}

void dr_check_link(const struct dr_doctor_nic *nic, struct dr_findings *f)
{
	struct dr_finding *x;

	if (nic->rail.running) {
		dr_findings_add(f, DR_SEVERITY_OK, "link", nic->rail.ifname, "up, with a carrier");
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_FAIL, "link", nic->rail.ifname,
		"the rail is down or has no carrier");
	dr_finding_found(x, "down");
	dr_finding_needed(x, "up, with a carrier");
	dr_finding_remedy(x, "ip link set %s up; then cable, transceiver and the switch's port",
		nic->rail.ifname);
}

void dr_check_unused(const struct dr_netdev *devs, size_t n, struct dr_findings *f)
{
	for (size_t i = 0; i < n; i++) {
		const struct dr_netdev *d = &devs[i];
		struct dr_finding *x;

		/* What is software comes and goes by design; what has a master speaks through it. */
		if (d->running || d->loopback || d->kind[0] || d->master)
			continue;
		x = dr_findings_add(f, d->up ? DR_SEVERITY_WARN : DR_SEVERITY_NOTE, "link", d->name,
			d->up ? "set up, but without a carrier: runs leave it out"
			      : "set down: runs leave it out");
		if (d->up)
			dr_finding_remedy(x,
				"check cable, transceiver and the switch's port: "
				"ethtool %s",
				d->name);
		else
			dr_finding_remedy(x, "if it is to be a rail: ip link set %s up", d->name);
	}
}

static void speed_text(int64_t mbps, char *buf, size_t len)
{
	if (mbps % 1000 == 0)
		snprintf(buf, len, "%lld Gb/s", (long long)mbps / 1000);
	else
		snprintf(buf, len, "%lld Mb/s", (long long)mbps);
}

void dr_check_speed(const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f)
{
	int64_t best = -1;
	unsigned slow = 0;
	char most[32], here[32];

	for (unsigned i = 0; i < n; i++)
		best = DR_MAX(best, nic[i].rail.speed_mbps);
	speed_text(best, most, sizeof(most));
	for (unsigned i = 0; i < n; i++) {
		int64_t s = nic[i].rail.speed_mbps;
		struct dr_finding *x;

		if (s <= 0 || s == best)
			continue;
		slow++;
		speed_text(s, here, sizeof(here));
		x = dr_findings_add(f, DR_SEVERITY_WARN, "speed", nic[i].rail.ifname,
			"slower than another rail: GPUs on it fall behind, and after a failover all do");
		dr_finding_found(x, "%s", here);
		dr_finding_needed(x, "%s", most);
		dr_finding_remedy(x,
			"ethtool %s shows what both ends offer; or leave it out: --rails",
			nic[i].rail.ifname);
	}
	if (best <= 0)
		dr_findings_add(f, DR_SEVERITY_NOTE, "speed", NULL,
			"no rail tells its speed (virtual devices do not): no line rate in reports");
	else if (!slow)
		dr_findings_add(f, DR_SEVERITY_OK, "speed", NULL, "all rails that tell: %s", most);
}

void dr_check_duplex(const char *root, const struct dr_doctor_nic *nic, struct dr_findings *f)
{
	const char *name = nic->rail.ifname;
	struct dr_finding *x;
	int64_t index;
	char text[32];

	/* The tree may be of another network namespace. Down, the file cannot be read. */
	if (!nic->hardware || !dr_machine_number(&index, root, "/sys/class/net/%s/ifindex", name) ||
		index != nic->rail.ifindex ||
		dr_machine_text(text, sizeof(text), root, "/sys/class/net/%s/duplex", name) <= 0)
		return;
	if (strcmp(text, "full") == 0)
		dr_findings_add(f, DR_SEVERITY_OK, "duplex", name, "full");
	if (strcmp(text, "half") != 0)
		return; /* "unknown": a virtual one */
	x = dr_findings_add(f, DR_SEVERITY_FAIL, "duplex", name,
		"half duplex: the two directions share the link and collide");
	dr_finding_found(x, "half");
	dr_finding_needed(x, "full");
	dr_finding_remedy(x, "ethtool -s %s autoneg on, and the same at the switch", name);
}

void dr_check_mtu(const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f)
{
	unsigned most = 0, small = 0;

	for (unsigned i = 0; i < n; i++)
		most = DR_MAX(most, nic[i].rail.mtu);
	for (unsigned i = 0; i < n; i++) {
		const struct dr_netdev_rail *r = &nic[i].rail;
		struct dr_finding *x;

		if (r->mtu == most)
			continue;
		small++;
		x = dr_findings_add(f, DR_SEVERITY_WARN, "mtu", r->ifname,
			"MTU below that of another rail: primary and shadow path are not alike");
		dr_finding_found(x, "%u", r->mtu);
		dr_finding_needed(x, "%u", most);
		dr_finding_remedy(
			x, "ip link set %s mtu %u (switch and peer too)", r->ifname, most);
	}
	if (!small && n)
		dr_findings_add(f, DR_SEVERITY_OK, "mtu", NULL, "%u on %s", most,
			n == 1 ? "the rail" : "all rails");
}

void dr_check_counters(const struct dr_doctor_nic *nic, struct dr_findings *f)
{
	const struct dr_netdev_counters *c = &nic->count;
	uint64_t packets = c->rx_packets + c->tx_packets, errors = c->rx_errors + c->tx_errors,
		 drops = c->rx_dropped + c->tx_dropped;
	bool bad = errors > packets / ERRORS_IN, lossy = drops > packets / DROPS_IN;
	struct dr_finding *x;

	if (!nic->counted)
		return;
	/* Totals since the device is there: what they say of now is a matter of looking twice. */
	x = dr_findings_add(f,
		bad	? DR_SEVERITY_WARN
		: lossy ? DR_SEVERITY_NOTE
			: DR_SEVERITY_OK,
		"counters", nic->rail.ifname, "%llu errors and %llu drops in %llu packets so far",
		(unsigned long long)errors, (unsigned long long)drops, (unsigned long long)packets);
	if (bad || lossy)
		dr_finding_remedy(x, "do they grow? ip -s -s link show %s; ethtool -S %s; %s",
			nic->rail.ifname, nic->rail.ifname,
			bad ? "cable and transceiver" : "rings: ethtool -g, -G");
}
