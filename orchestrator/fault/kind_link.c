/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>

/* link-down: the state holds what the kernel forgets of a device that is set down. */

static void describe(const struct dr_fault_action *a, const char *duration, char *buf, size_t len)
{
	struct dr_netdev_snapshot snap = { 0 };
	struct dr_netdev d;

	if (dr_netdev_by_name(a->state.nic, &d, NULL) < 0 ||
		dr_netdev_save(d.ifindex, &snap, NULL) < 0) {
		snprintf(buf, len, "no device %s here", a->state.nic);
		return;
	}
	snprintf(buf, len,
		"set %s down%s; then up again, restoring %u addresses, %u routes, %u neighbours",
		a->state.nic, duration, snap.addresses, snap.routes, snap.neighbours);
	dr_netdev_snapshot_fini(&snap);
}

static int prepare(struct dr_fault_action *a, const struct dr_fault_nic *nic, struct dr_err *e)
{
	return dr_netdev_save(nic->dev.ifindex, &a->state.snap, e);
}

static int inject(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	const struct dr_netdev_snapshot *snap = &a->state.snap;

	snprintf(r->text, sizeof(r->text),
		"%s set down; saved %u addresses, %u routes, %u neighbours", a->state.nic,
		snap->addresses, snap->routes, snap->neighbours);
	return dr_netdev_set_up(a->state.ifindex, false, e);
}

static int prove(const struct dr_fault_action *a, struct dr_err *e)
{
	struct dr_netdev d;
	int rc = dr_netdev_by_name(a->state.nic, &d, e);

	return rc == 0 && d.up
		       ? dr_err_set(e, -EIO, "%s was set up again by another program", a->state.nic)
		       : rc;
}

static int undo(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	r->before_ns = dr_now_ns();
	int rc = dr_netdev_set_up(a->state.ifindex, true, e);
	r->after_ns = dr_now_ns();
	snprintf(r->text, sizeof(r->text), "set %s up, restored its addresses and routes",
		a->state.nic);
	return rc ? rc : dr_netdev_restore(a->state.ifindex, &a->state.snap, e);
}

const struct dr_fault_kind dr_fault_kind_link_down = {
	.name = "link-down",
	.help = "the NIC is set down at its own end",
	.by = DR_FAULT_BY_GUARD,
	.nic = true,
	.describe = describe,
	.prepare = prepare,
	.inject = inject,
	.prove = prove,
	.undo = undo,
};
