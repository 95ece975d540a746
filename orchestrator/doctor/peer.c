/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/peer.h"

#include <string.h>

static const struct dr_look_nic *nic_at(const struct dr_look *look, const char *address)
{
	for (unsigned i = 0; i < look->n_nics; i++)
		if (strcmp(look->nic[i].address, address) == 0)
			return &look->nic[i];
	return NULL;
}

static const struct dr_look_pair *pair_of(
	const struct dr_look *look, const struct dr_netdev_rail *r)
{
	char address[64];

	dr_netdev_addr_format((const struct sockaddr *)&r->addr, address, sizeof(address));
	for (unsigned i = 0; i < look->n_pairs; i++)
		if (strcmp(look->pair[i].client, address) == 0)
			return &look->pair[i];
	return NULL;
}

void dr_look_ends(const struct dr_look *look, const struct dr_doctor_nic *nic, unsigned n,
	struct dr_doctor_end *out)
{
	for (unsigned i = 0; i < n; i++) {
		const struct dr_look_pair *p = pair_of(look, &nic[i].rail);
		const struct dr_look_nic *s = p ? nic_at(look, p->server) : NULL;

		memset(&out[i], 0, sizeof(out[i]));
		if (p && dr_netdev_addr_parse(p->server, &out[i].addr))
			out[i].addr.ss_family = AF_UNSPEC;
		out[i].mtu = s ? s->mtu : 0;
	}
}

/* ---- checks ---- */

static void check_gpus(const struct dr_doctor_run *run, bool pair, const struct dr_look *look,
	struct dr_findings *f)
{
	struct dr_finding *x;

	if (run->gpus == look->n_gpus || pair) {
		dr_findings_add(f, DR_SEVERITY_OK, "peer-gpus", NULL,
			"%u GPUs here, %u at the server", run->gpus, look->n_gpus);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_FAIL, "peer-gpus", NULL,
		"the two ends have different numbers of GPUs: a run is refused");
	dr_finding_found(x, "%u here, %u at the server", run->gpus, look->n_gpus);
	dr_finding_needed(x, "as many at both ends");
	dr_finding_remedy(x, "choose with -g at either end, or --pair for the first of both");
}

static bool is_paired(const struct dr_look *look, const struct dr_look_nic *s)
{
	for (unsigned i = 0; i < look->n_pairs; i++)
		if (strcmp(look->pair[i].server, s->address) == 0)
			return true;
	return false;
}

/* NICs that a run leaves out because the other end has nothing in their subnet. */
static void check_alone(const struct dr_doctor_nic *nic, unsigned n, const struct dr_look *look,
	struct dr_findings *f)
{
	struct dr_finding *x;

	for (unsigned i = 0; i < n; i++) {
		if (pair_of(look, &nic[i].rail))
			continue;
		x = dr_findings_add(f, DR_SEVERITY_WARN, "peer-rails", nic[i].rail.ifname,
			"no partner at the server: runs leave it out");
		dr_finding_needed(x, "a NIC of the server in its subnet");
		dr_finding_remedy(x, "address and link of the server's NIC; then its --rails");
	}
	for (unsigned i = 0; i < look->n_nics; i++) {
		if (is_paired(look, &look->nic[i]))
			continue;
		x = dr_findings_add(f, DR_SEVERITY_WARN, "peer-rails", NULL,
			"the server's %s (%s) has no partner here: runs leave it out",
			look->nic[i].name, look->nic[i].address);
		dr_finding_needed(x, "a NIC here in its subnet");
		dr_finding_remedy(x, "address and link of the NIC here; then --rails");
	}
}

/* Returns the number of findings. */
static unsigned check_pair(
	const struct dr_netdev_rail *r, const struct dr_look_nic *s, struct dr_findings *f)
{
	struct dr_finding *x;
	unsigned n = 0;

	if (!s->running && ++n) {
		x = dr_findings_add(f, DR_SEVERITY_FAIL, "peer-link", r->ifname,
			"the server's %s is down or has no carrier", s->name);
		dr_finding_found(x, "down");
		dr_finding_needed(x, "up, with a carrier");
		dr_finding_remedy(x, "at the server: ip link set %s up; cable, switch", s->name);
	}
	if (s->mtu != r->mtu && ++n) {
		x = dr_findings_add(f, DR_SEVERITY_WARN, "peer-mtu", r->ifname,
			"the two ends of this rail have different MTUs");
		dr_finding_found(x, "%u here, %u on the server's %s", r->mtu, s->mtu, s->name);
		dr_finding_needed(x, "%u at both ends", DR_MAX(r->mtu, s->mtu));
		dr_finding_remedy(x, "%sip link set %s mtu %u (the switch must pass it)",
			r->mtu < s->mtu ? "" : "at the server: ",
			r->mtu < s->mtu ? r->ifname : s->name, DR_MAX(r->mtu, s->mtu));
	}
	if (s->speed_mbps > 0 && r->speed_mbps > 0 && s->speed_mbps != r->speed_mbps && ++n) {
		x = dr_findings_add(f, DR_SEVERITY_WARN, "peer-speed", r->ifname,
			"the two ends of this rail have different speeds: the slower one decides");
		dr_finding_found(x, "%lld Mb/s here, %lld Mb/s on the server's %s",
			(long long)r->speed_mbps, (long long)s->speed_mbps, s->name);
		dr_finding_needed(x, "one speed");
		dr_finding_remedy(x, "ethtool %s at either end; the switch's ports", r->ifname);
	}
	return n;
}

void dr_check_peer(const struct dr_doctor_run *run, bool pair, const struct dr_doctor_nic *nic,
	unsigned n, const struct dr_look *look, struct dr_findings *f)
{
	unsigned pairs = 0, bad = 0;

	if (!look->tells) {
		dr_findings_add(f, DR_SEVERITY_NOTE, "peer", NULL,
			"the server is of a version that does not tell its NICs");
		return;
	}
	check_gpus(run, pair, look, f);
	if (look->why[0]) {
		struct dr_err e = { .code = -1 };

		snprintf(e.text, sizeof(e.text), "the server would refuse a run: %s", look->why);
		dr_findings_error(f, DR_SEVERITY_FAIL, "peer", NULL, &e);
		return;
	}
	check_alone(nic, n, look, f);
	for (unsigned i = 0; i < n; i++) {
		const struct dr_look_pair *p = pair_of(look, &nic[i].rail);
		const struct dr_look_nic *s = p ? nic_at(look, p->server) : NULL;

		if (!s)
			continue;
		pairs++;
		bad += check_pair(&nic[i].rail, s, f);
	}
	if (pairs && !bad)
		dr_findings_add(f, DR_SEVERITY_OK, "peer-rails", NULL,
			"%u rail%s with alike NICs at both ends", pairs, pairs == 1 ? "" : "s");
}
