/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/peer.h"

#include <errno.h>

void dr_check_path_mtu(struct dr_doctor *d, const struct dr_probe *probe, unsigned rail)
{
	static const enum dr_severity severity[] = { [DR_MTU_HOLE] = DR_SEVERITY_FAIL,
		[DR_MTU_REFUSED] = DR_SEVERITY_WARN,
		[DR_MTU_PASSES] = DR_SEVERITY_OK };
	const struct dr_mtu_rail *r = probe->mtu.rail[rail];
	const char *nic = probe->plan.rail[rail][DR_PLAN_CLIENT].name;
	struct dr_err e = { 0 };
	char why[400];

	if (r && !r->proven) {
		dr_probe_why(&probe->plan, &probe->mtu, rail, why, sizeof(why));
		dr_err_set(&e, -ETIMEDOUT, "%s", why);
		dr_findings_error(&d->f,
			dr_probe_answers(&probe->plan, &probe->mtu, rail) ? DR_SEVERITY_NOTE
									  : DR_SEVERITY_FAIL,
			"peer-address", nic, &e);
		return;
	}
	for (unsigned receiver = DR_PLAN_SERVER + 1; receiver-- > 0;) {
		enum dr_mtu_state st =
			dr_mtu_describe(&probe->plan, &probe->mtu, rail, receiver, &e);
		bool known = st == DR_MTU_HOLE || st == DR_MTU_REFUSED || st == DR_MTU_PASSES;

		dr_findings_error(
			&d->f, known ? severity[st] : DR_SEVERITY_NOTE, "path-mtu", nic, &e);
	}
}
