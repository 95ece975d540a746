/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "transport/kind.h"

#include <stdio.h>

/* Faults without the guard: those of a path, which its workers make, and those that the user makes.
 * The paths' switch records, and their absence, show whether they acted. */

static int parse_close(struct dr_fault_spec *s, struct dr_err *e)
{
	static const struct dr_kind_fault close = {
		.name = "close", .help = "its connection is closed", .done = "connections closed"
	};

	(void)e;
	if (!s->on_path)
		s->on_path = &close;
	return 0;
}

static void describe_close(
	const struct dr_fault_action *a, const char *duration, char *buf, size_t len)
{
	(void)duration;
	snprintf(buf, len, "path %u: %s", a->spec->path, a->spec->on_path->help);
}

const struct dr_fault_kind dr_fault_kind_close = {
	.name = "close",
	.help = "the connection of the path is closed",
	.by = DR_FAULT_BY_CHANNEL,
	.parse = parse_close,
	.describe = describe_close,
};

static void describe_manual(
	const struct dr_fault_action *a, const char *duration, char *buf, size_t len)
{
	(void)duration;
	snprintf(buf, len,
		"break path %u%s%s on the %s now (pull the cable, disable the switch port); "
		"waiting until it is detected",
		a->spec->path, a->state.nic[0] ? ", NIC " : "", a->state.nic,
		a->spec->side == DR_FAULT_SERVER ? "server" : "client");
}

const struct dr_fault_kind dr_fault_kind_manual = {
	.name = "manual",
	.help = "you break the path when asked",
	.by = DR_FAULT_BY_USER,
	.untimed = true,
	.describe = describe_manual,
};
