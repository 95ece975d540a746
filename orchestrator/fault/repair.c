/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/fault.h"

#include "base/log.h"
#include "orchestrator/fault/act.h"
#include "orchestrator/fault/guard_priv.h"
#include "orchestrator/fault/state.h"

#include <string.h>

static int repair_one(const struct dr_state *s, const char *path, void *arg)
{
	struct dr_fault_report report = { .undo = true };
	struct dr_err *e = arg;
	int rc = dr_act_reverse(s, DR_GUARD_EXEC_TIMEOUT_NS, &report);

	if (rc < 0)
		return dr_err_set(e, rc, "repair of %.120s: %.100s", path, report.text);
	dr_warn("fault", "repaired what a killed run left: %s", report.text);
	return 0;
}

int dr_fault_repair(const char *state_dir, struct dr_err *e)
{
	if (e)
		memset(e, 0, sizeof(*e));
	return dr_state_each(state_dir, repair_one, e);
}
