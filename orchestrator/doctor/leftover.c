/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/checks.h"

#include "orchestrator/fault/act.h"
#include "orchestrator/fault/guard_priv.h"
#include "orchestrator/fault/state.h"

#include <errno.h>
#include <string.h>

struct visit {
	bool dry_run;
	unsigned n;
	struct dr_findings *f;
};

/* Returns 0 when it was undone: then the file goes. */
static int one(const struct dr_state *s, const char *path, void *arg)
{
	struct dr_fault_report report = { .undo = true };
	const char *kind = dr_fault_kind_name(s->kind);
	struct visit *v = arg;
	struct dr_finding *x;
	int rc;

	v->n++;
	if (v->dry_run) {
		x = dr_findings_add(v->f, DR_SEVERITY_FAIL, "leftover", s->nic,
			"a killed run left its fault %s in place", kind);
		dr_finding_found(x, "%s", path);
		dr_finding_remedy(x, "dualrail doctor (without --dry-run) undoes it");
		return -ECANCELED;
	}
	rc = dr_act_reverse(s, DR_GUARD_EXEC_TIMEOUT_NS, &report);
	if (rc == 0) {
		x = dr_findings_add(v->f, DR_SEVERITY_NOTE, "leftover", s->nic,
			"undid the fault %s that a killed run left", kind);
		dr_finding_found(x, "%s", report.text);
		return 0;
	}
	x = dr_findings_add(v->f, DR_SEVERITY_FAIL, "leftover", s->nic,
		"the fault %s that a killed run left cannot be undone: %.100s", kind, report.text);
	dr_finding_found(x, "%s", path);
	dr_finding_remedy(x, "run doctor as root; or put it right by hand and remove the file");
	return rc;
}

void dr_check_leftovers(const char *dir, bool dry_run, struct dr_findings *f)
{
	struct visit v = { .dry_run = dry_run, .f = f };

	(void)dr_state_each(dir, one, &v);
	if (!v.n)
		dr_findings_add(f, DR_SEVERITY_OK, "leftover", NULL,
			"no fault of a killed run is left in this network namespace");
}
