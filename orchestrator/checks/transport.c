/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_priv.h"

#include <errno.h>

static enum dr_severity severity_of(const struct dr_doctor *d, bool chosen, int rc)
{
	if (!chosen)
		return rc == -ENODEV || rc == -ENOENT ? DR_SEVERITY_NOTE : DR_SEVERITY_WARN;
	return rc == -ENODEV && !d->named ? DR_SEVERITY_NOTE : DR_SEVERITY_FAIL;
}

static void add_findings(struct dr_doctor *d, const struct dr_kind_probe *p, const char *ifname)
{
	static const enum dr_severity severity[] = {
		[DR_KIND_OK] = DR_SEVERITY_OK,
		[DR_KIND_NOTE] = DR_SEVERITY_NOTE,
		[DR_KIND_WARN] = DR_SEVERITY_WARN,
	};

	for (unsigned i = 0; i < p->n; i++) {
		const struct dr_kind_finding *v = &p->v[i];

		dr_findings_add(&d->f, severity[v->level], v->check, ifname, "%s\n%s\n%s\n%s",
			v->text, v->found, v->needed, v->remedy);
	}
}

bool dr_check_transport(
	struct dr_doctor *d, const struct dr_transport_kind *k, const union dr_kind_params *params)
{
	bool chosen = k == d->run.kind;
	struct dr_err first = { 0 };
	unsigned none = 0;

	for (unsigned i = 0; k->probe && i < d->n; i++) {
		const struct dr_netdev_rail *r = &d->nic[i].rail;
		struct dr_rail_params rp = { .ifname = r->ifname, .local = r->addr };
		struct dr_kind_probe p = { .netdev_mtu = r->mtu };
		struct dr_err e = { 0 };
		int rc = k->probe(&rp, params, &p, &e);

		if (rc == 0)
			add_findings(d, &p, r->ifname);
		else if (rc == -ENODEV || rc == -ENOENT || rc == -ENOSYS)
			first = none++ ? first : e;
		else
			dr_findings_error(
				&d->f, severity_of(d, chosen, rc), k->check_name, r->ifname, &e);
	}
	if (!none)
		return k->probe && d->n;
	/* Neither library nor device on any rail: reported once, not for every rail. */
	enum dr_severity severity = none < d->n ? severity_of(d, chosen, first.code)
				    : chosen	? DR_SEVERITY_FAIL
						: DR_SEVERITY_NOTE;
	if (none == d->n && !chosen)
		dr_err_prefix(&first, "--transport %s will not run", k->name);
	dr_findings_error(&d->f, severity, k->check_name, NULL, &first);
	return none < d->n;
}
