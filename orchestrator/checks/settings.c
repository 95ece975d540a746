/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/peer.h"

#include <inttypes.h>
#include <string.h>

/*
 * Settings of both ends. What the peer tells is no part of a command, apart from the names of its
 * NICs.
 */

static void check_congestion(struct dr_doctor *d, const char *here, const char *there)
{
	if (!*here || !*there)
		return;
	if (strcmp(here, there) != 0)
		dr_find_warn(d, "congestion-control", NULL,
			"the two ends use different congestion control: the directions are not comparable\n"
			"%s here, %s at the server\n"
			"the same at both ends\n"
			"at the server: sysctl -w net.ipv4.tcp_congestion_control=%s (or --cc %s for one run)",
			here, there, here, here);
}

/* The smaller buffer grows to the larger one. The first two numbers are the kernel's defaults. */
static void check_buffer(struct dr_doctor *d, const char *name, uint64_t here, uint64_t there)
{
	bool ours = here < there;

	if (!here || !there || here == there)
		return;
	dr_find_warn(d, "tcp-buffers", name,
		"the buffers of a connection can grow to different sizes at the two ends\n"
		"%" PRIu64 " here, %" PRIu64 " at the server\n"
		"%" PRIu64 " at both ends\n"
		"%ssysctl -w net.ipv4.%s='4096 131072 %" PRIu64 "'",
		here, there, DR_MAX(here, there), ours ? "" : "at the server: ", name,
		DR_MAX(here, there));
}

/* server: the NIC there; NULL: at this end. */
static void check_offload(
	struct dr_doctor *d, const char *where, const char *server, const char *name)
{
	dr_find_warn(d, "offload", where,
		"%s is off at %s: the kernel handles packets of MTU size one by one\n"
		"off\n"
		"on\n"
		"%sethtool -K %s %s on",
		name, server ? "the server" : "this end", server ? "at the server: " : "",
		server ? server : where, name);
}

static void check_nic(struct dr_doctor *d, unsigned i, const struct dr_settings_nic *own,
	const struct dr_plan_probe_nic *s)
{
	static const char *const names[] = { "tso", "gso", "gro" };
	const int here[] = { own->tso, own->gso, own->gro },
		  there[] = { s->tso - 1, s->gso - 1, s->gro - 1 };
	const char *nic = d->nic[i].rail.ifname;

	for (unsigned k = 0; k < DR_ARRAY_LEN(names); k++) {
		/* Virtual devices do without, as packets that never were on a wire need no merging. */
		if (!d->nic[i].hardware && here[k] == there[k])
			continue;
		if (here[k] == 0)
			check_offload(d, nic, NULL, names[k]);
		if (there[k] == 0)
			check_offload(d, nic, s->name, names[k]);
	}
}

void dr_check_peer_settings(
	struct dr_doctor *d, const struct dr_settings *own, const struct dr_probe *probe)
{
	const struct dr_settings *peer = &probe->peer.settings;
	size_t before = d->f.n;

	if (!*peer->congestion_control && !peer->rmem_max && !peer->wmem_max) {
		dr_find_note(d, "settings", NULL, "the server does not report its settings");
		return;
	}
	check_congestion(d, own->congestion_control, peer->congestion_control);
	check_buffer(d, "tcp_rmem", own->rmem_max, peer->rmem_max);
	check_buffer(d, "tcp_wmem", own->wmem_max, peer->wmem_max);
	for (unsigned i = 0; i < d->n; i++) {
		const struct dr_plan_probe_nic *s = dr_doctor_partner(probe, d->nic[i].rail.ifname);

		if (s)
			check_nic(d, i, &own->nic[i], s);
	}
	if (d->f.n == before)
		dr_find_ok(d, "settings", NULL,
			"congestion control (%s), TCP buffers and offloads are the same at both ends",
			own->congestion_control);
}
