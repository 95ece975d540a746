/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/peer.h"

#include <inttypes.h>
#include <string.h>

int dr_doctor_rail(const struct dr_plan *plan, enum dr_plan_end end, const char *nic)
{
	for (unsigned i = 0; i < plan->n_rails; i++)
		if (strcmp(plan->rail[i][end].name, nic) == 0)
			return (int)i;
	return -1;
}

const struct dr_plan_probe_nic *dr_doctor_partner(const struct dr_probe *p, const char *nic)
{
	int rail = dr_doctor_rail(&p->plan, DR_PLAN_CLIENT, nic);

	for (unsigned i = 0; rail >= 0 && i < p->peer.n_nics; i++)
		if (strcmp(p->peer.nic[i].name, p->plan.rail[rail][DR_PLAN_SERVER].name) == 0)
			return &p->peer.nic[i];
	return NULL;
}

/* ---- checks ---- */

static void check_gpus(struct dr_doctor *d, const struct dr_plan_probe *probe)
{
	if (d->run.gpus <= probe->n_gpus || d->run.pair)
		dr_find_ok(d, "peer-gpus", NULL, "%u GPUs here, %u at the server", d->run.gpus,
			probe->n_gpus);
	else
		dr_find_fail(d, "peer-gpus", NULL,
			"the server has fewer GPUs: a run is refused\n"
			"%u here, %u at the server\n"
			"no more than the server has\n"
			"name fewer GPUs with -g, or none",
			d->run.gpus, probe->n_gpus);
}

/* NICs that a run does not use because the other end has none in their subnet. */
static void check_alone(struct dr_doctor *d, const struct dr_probe *p)
{
	const struct dr_plan_probe *probe = &p->peer;

	for (unsigned i = 0; i < d->n; i++)
		if (dr_doctor_rail(&p->plan, DR_PLAN_CLIENT, d->nic[i].rail.ifname) < 0)
			dr_find_warn(d, "peer-rails", d->nic[i].rail.ifname,
				"no partner at the server: runs do not use it\n\n"
				"a NIC of the server in its subnet\n"
				"check address and link of the server's NIC, then the server's --rails");
	for (unsigned i = 0; i < probe->n_nics; i++)
		if (dr_doctor_rail(&p->plan, DR_PLAN_SERVER, probe->nic[i].name) < 0)
			dr_find_warn(d, "peer-rails", NULL,
				"the server's %s (%s) has no partner here: runs do not use it\n\n"
				"a NIC here in its subnet\n"
				"check address and link of the NIC here, then --rails",
				probe->nic[i].name, probe->nic[i].address);
}

/* True if there is a finding. */
static bool check_pair(
	struct dr_doctor *d, const struct dr_netdev_rail *r, const struct dr_plan_probe_nic *s)
{
	size_t before = d->f.n;

	if (!s->running)
		dr_find_fail(d, "peer-link", r->ifname,
			"the server's %s is down or has no carrier\n"
			"down\n"
			"up, with carrier\n"
			"at the server: ip link set %s up; then check cable and switch",
			s->name, s->name);
	if (s->mtu != r->mtu)
		dr_find_warn(d, "peer-mtu", r->ifname,
			"the two ends of this rail have different MTUs\n"
			"%u here, %u on the server's %s\n"
			"%u at both ends\n"
			"%sip link set %s mtu %u (the switch must support it)",
			r->mtu, s->mtu, s->name, DR_MAX(r->mtu, s->mtu),
			r->mtu < s->mtu ? "" : "at the server: ",
			r->mtu < s->mtu ? r->ifname : s->name, DR_MAX(r->mtu, s->mtu));
	if (s->speed_mbps > 0 && r->speed_mbps > 0 && s->speed_mbps != r->speed_mbps)
		dr_find_warn(d, "peer-speed", r->ifname,
			"the two ends of this rail have different speeds: the slower one is the limit\n"
			"%" PRId64 " Mb/s here, %" PRId64 " Mb/s on the server's %s\n"
			"the same speed\n"
			"ethtool %s at either end; check the switch ports",
			r->speed_mbps, s->speed_mbps, s->name, r->ifname);
	return d->f.n > before;
}

void dr_check_peer(struct dr_doctor *d, const struct dr_probe *p)
{
	const struct dr_plan_probe *probe = &p->peer;
	unsigned pairs = 0;
	bool bad = false;

	check_gpus(d, probe);
	if (probe->why[0]) {
		struct dr_err e;

		dr_err_set(&e, -1, "the server would refuse a run: %s", probe->why);
		dr_findings_error(&d->f, DR_SEVERITY_FAIL, "peer", NULL, &e);
		return;
	}
	check_alone(d, p);
	for (unsigned i = 0; i < d->n; i++) {
		const struct dr_plan_probe_nic *s = dr_doctor_partner(p, d->nic[i].rail.ifname);

		if (!s)
			continue;
		pairs++;
		bad |= check_pair(d, &d->nic[i].rail, s);
	}
	if (pairs && !bad)
		dr_find_ok(d, "peer-rails", NULL, "%u rail%s with equal NICs at both ends", pairs,
			pairs == 1 ? "" : "s");
}
