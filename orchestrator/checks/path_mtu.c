/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Do packets of full size pass: each rail to and from a server, and the devices that carry a rail here. */

void dr_doctor_path_mtu(const struct dr_probe *probe, unsigned rail, struct dr_doctor_path *out)
{
	const struct dr_plan *p = &probe->plan;
	const struct dr_mtu_check *m = &probe->mtu;
	const struct dr_plan_rail *r = p->rail[rail];
	const struct dr_transport_kind *k = dr_plan_kind(p);
	uint32_t least = UINT32_MAX;

	memset(out, 0, sizeof(*out));
	memcpy(out->nic, r[DR_PLAN_CLIENT].name, sizeof(out->nic));
	memcpy(out->peer_nic, r[DR_PLAN_SERVER].name, sizeof(out->peer_nic));
	memcpy(out->address, r[DR_PLAN_CLIENT].address, sizeof(out->address));
	if (m->rail[rail] && !m->rail[rail]->proven)
		dr_probe_why(p, m, rail, out->why, sizeof(out->why));
	out->needed = out->why[0] && !(k && k->bypass);
	out->nic_mtu = DR_MIN(r[DR_PLAN_CLIENT].mtu, r[DR_PLAN_SERVER].mtu);
	for (unsigned receiver = 0; receiver < 2; receiver++) {
		out->way[receiver] = dr_mtu_check_way(m, rail, receiver);
		out->hole[receiver] = dr_mtu_way_hole(p, &out->way[receiver]);
		if (out->hole[receiver])
			least = DR_MIN(least, out->way[receiver].bytes);
	}
	if (least == UINT32_MAX || !k || !k->fit_packets ||
		!k->fit_packets(least, r[DR_PLAN_CLIENT].addr.ss_family == AF_INET6, out->option,
			sizeof(out->option)))
		out->option[0] = '\0';
}

static void check_way(
	struct dr_doctor *d, const struct dr_doctor_path *p, enum dr_plan_end receiver)
{
	const struct dr_mtu_way *w = &p->way[receiver];
	const char *to = receiver == DR_PLAN_SERVER ? "to" : "from";
	char fix[128];

	if (p->option[0])
		snprintf(fix, sizeof(fix), "in each run: %s", p->option);
	else
		snprintf(fix, sizeof(fix),
			"at both ends: ip link set %s mtu %u (at the server: %s)", p->nic, w->bytes,
			p->peer_nic);
	if (p->hole[receiver])
		dr_find_fail(d, "path-mtu", p->nic,
			"packets above %u bytes %s the server's %s are lost%s: data stalls while small "
			"packets pass\n"
			"%u\n"
			"%u\n"
			"set the MTU of the switch ports between them to %u or more; or %s",
			w->bytes, to, p->peer_nic,
			w->state == DR_MTU_HOLE ? " without an error" : "", w->bytes, w->full_bytes,
			p->nic_mtu, fix);
	else if (w->state == DR_MTU_REFUSED)
		dr_find_warn(d, "path-mtu", p->nic,
			"a device on the path %s the server's %s reports a smaller MTU: packets are "
			"smaller than the NICs allow\n"
			"%u\n"
			"%u\n"
			"raise it there; ip route get ADDRESS shows what the kernel has learnt",
			to, p->peer_nic, w->bytes, w->full_bytes);
	else if (w->state == DR_MTU_PASSES)
		dr_find_ok(d, "path-mtu", p->nic, "packets of %u bytes %s the server's %s arrive",
			w->bytes, to, p->peer_nic);
	else
		dr_find_note(d, "path-mtu", p->nic,
			"packets %s the server's %s: too few answers to tell\n\n\n"
			"check for losses: ip -s link show %s; ping -f -c 1000 -I %s",
			to, p->peer_nic, p->nic, p->nic);
}

void dr_check_path_mtu(struct dr_doctor *d, const struct dr_doctor_path *p)
{
	struct dr_err e = { 0 };

	if (p->why[0]) {
		dr_err_set(&e, -ETIMEDOUT, "%s", p->why);
		dr_findings_error(&d->f, p->needed ? DR_SEVERITY_FAIL : DR_SEVERITY_NOTE,
			"peer-address", p->nic, &e);
	} else {
		check_way(d, p, DR_PLAN_SERVER);
		check_way(d, p, DR_PLAN_CLIENT);
	}
}

/* ---- on this node ---- */

static const struct dr_netdev *by_index(const struct dr_netdev *devs, size_t n, int ifindex)
{
	for (size_t i = 0; i < n; i++)
		if (devs[i].ifindex == ifindex)
			return &devs[i];
	return NULL;
}

void dr_check_mtu_carriers(struct dr_doctor *d, const struct dr_netdev *devs, size_t n)
{
	for (unsigned i = 0; i < d->n; i++) {
		const struct dr_netdev_rail *r = &d->nic[i].rail;
		const struct dr_netdev *own = by_index(devs, n, r->ifindex);

		for (size_t k = 0; own && k < n; k++) {
			const struct dr_netdev *x = &devs[k];

			if ((x->master != own->ifindex && x->ifindex != own->link) || x == own ||
				x->mtu >= r->mtu)
				continue;
			dr_find_fail(d, "mtu", r->ifname,
				"its packets pass %s, which has a smaller MTU: larger ones are lost\n"
				"%u\n"
				"%u\n"
				"ip link set %s mtu %u (also at the switch and the peer)",
				x->name, x->mtu, r->mtu, x->name, r->mtu);
		}
	}
}
