/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/rdma.h"

#include <errno.h>

/* drivers/infiniband: iboe_get_mtu() takes the headers of RoCE from the net device's MTU: GRH 40, UDP 8,
 * BTH 12, extended headers 32, ICRC 4. */
enum { ROCE_HEADERS = 96, IB_MTU_MAX = 4096, IB_MTU_MIN = 256 };

static unsigned ib_mtu_within(unsigned netdev_mtu)
{
	unsigned mtu = IB_MTU_MAX;

	while (mtu > IB_MTU_MIN && mtu + ROCE_HEADERS > netdev_mtu)
		mtu /= 2;
	return mtu;
}

static void check_mtu(
	const struct dr_netdev_rail *r, const struct dr_kind_rdma *d, struct dr_findings *f)
{
	unsigned possible = ib_mtu_within(r->mtu);
	struct dr_finding *x;

	if (!d->roce)
		return;
	if (d->mtu < possible) {
		x = dr_findings_add(f, DR_SEVERITY_WARN, "rdma-mtu", r->ifname,
			"%s uses less than the net device's MTU of %u allows", d->device, r->mtu);
		dr_finding_found(x, "%u", d->mtu);
		dr_finding_needed(x, "%u", possible);
		dr_finding_remedy(x,
			"set the MTU again so that the driver follows: ip link set %s mtu "
			"1500; ip link set %s mtu %u",
			r->ifname, r->ifname, r->mtu);
	} else if (d->mtu < IB_MTU_MAX) {
		x = dr_findings_add(f, DR_SEVERITY_NOTE, "rdma-mtu", r->ifname,
			"%s has small packets because the net device's MTU is %u", d->device,
			r->mtu);
		dr_finding_found(x, "%u", d->mtu);
		dr_finding_needed(x, "%d", IB_MTU_MAX);
		dr_finding_remedy(x, "ip link set %s mtu 9000 (switch and peer too)", r->ifname);
	}
}

static void check_gid(
	const struct dr_netdev_rail *r, const struct dr_kind_rdma *d, struct dr_findings *f)
{
	struct dr_finding *x;

	if (!d->roce || d->v2) {
		dr_findings_add(f, DR_SEVERITY_OK, "rdma", r->ifname,
			"%s port %u is active, GID %u%s, MTU %u", d->device, d->port, d->gid_index,
			d->roce ? " (RoCE v2)" : "", d->mtu);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_WARN, "rdma-gid", r->ifname,
		"%s has the rail's address as RoCE v1 only: no router and no DSCP", d->device);
	dr_finding_found(x, "GID %u, RoCE v1", d->gid_index);
	dr_finding_needed(x, "a RoCE v2 entry of the same address");
	dr_finding_remedy(x,
		"rdma link show %s/%u; without --gid v2 is taken where it is; else the "
		"driver's setting (mlx: cma_roce_mode)",
		d->device, d->port);
}

static enum dr_severity severity_of(int rc, bool verbs, bool named)
{
	if (!verbs)
		return rc == -ENODEV || rc == -ENOENT ? DR_SEVERITY_NOTE : DR_SEVERITY_WARN;
	return rc == -ENODEV && !named ? DR_SEVERITY_NOTE : DR_SEVERITY_FAIL;
}

/* No library, or no device at all, is said once, not for every rail. */
static void say_none(const struct dr_err *e, bool verbs, struct dr_findings *f)
{
	struct dr_finding *x;

	if (verbs) {
		dr_findings_error(f, DR_SEVERITY_FAIL, "rdma", NULL, e);
		return;
	}
	x = dr_findings_add(f, DR_SEVERITY_NOTE, "rdma", NULL, "%s",
		e->code == -ENODEV ? "no RDMA device on any rail: --transport verbs will not run"
				   : "no libibverbs here: --transport verbs will not run");
	dr_finding_remedy(x, "%s",
		e->code == -ENODEV ? "load the NIC's RDMA driver; rdma link shows what is there"
				   : "apt-get install libibverbs1 ibverbs-providers");
}

bool dr_check_rdma(const struct dr_options *o, bool verbs, bool named,
	const struct dr_doctor_nic *nic, unsigned n, dr_doctor_rdma_fn probe, struct dr_findings *f)
{
	struct dr_err first = { 0 };
	unsigned none = 0;
	bool found = false;

	for (unsigned i = 0; i < n; i++) {
		struct dr_kind_rdma d;
		struct dr_err e = { 0 };
		int rc = probe(o, &nic[i].rail, &d, &e);

		if (rc == 0) {
			found = true;
			check_gid(&nic[i].rail, &d, f);
			check_mtu(&nic[i].rail, &d, f);
		} else if (rc == -ENODEV || rc == -ENOENT || rc == -ENOSYS) {
			none++;
			first = first.code ? first : e;
		} else {
			found = true;
			dr_findings_error(
				f, severity_of(rc, verbs, named), "rdma", nic[i].rail.ifname, &e);
		}
	}
	if (none && none == n)
		say_none(&first, verbs, f);
	else if (none)
		dr_findings_error(f, severity_of(first.code, verbs, named), "rdma", NULL, &first);
	return found;
}
