/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_inject.h"

#include "base/clock.h"
#include "orchestrator/kinds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OWN_IDS = 0x40000000 };

/* The guard undoes by itself what this process forgot: a fault may last `for` and that much more. */
#define HOLD_EXTRA_NS (10 * DR_NS_PER_S)
#define HOLD_FOREVER_NS (3600 * DR_NS_PER_S)

static void on_guard(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_injector *inj = dr_container_of(po, struct dr_injector, po);
	struct dr_fault_report rep;
	int rc;

	(void)revents;
	(void)now_ns;
	while ((rc = dr_guard_poll(inj->guard, &rep)) == 1) {
		if (rep.undo && inj->active)
			inj->active--;
		if (inj->report)
			inj->report(inj->arg, &rep);
	}
	if (rc < 0) {
		dr_poller_del(inj->poller, po);
		po->fd = -1;
	}
}

int dr_injector_init(struct dr_injector *inj, const struct dr_options *opt,
	struct dr_poller *poller, struct dr_err *e)
{
	struct dr_guard_options go = { .execs = &opt->execs };
	int rc;

	memset(inj, 0, sizeof(*inj));
	inj->opt = opt;
	inj->poller = poller;
	inj->po.fd = -1;
	inj->po.ready = on_guard;
	inj->next_own = OWN_IDS;
	if (!opt->allow_faults)
		return 0;
	rc = dr_guard_start(&go, &inj->guard, e);
	if (rc)
		return rc;
	inj->po.fd = dr_guard_fd(inj->guard);
	rc = dr_poller_add(poller, &inj->po, EPOLLIN);
	if (rc) {
		dr_injector_fini(inj);
		return dr_err_set(e, rc, "epoll: %s", strerror(-rc));
	}
	return 0;
}

void dr_injector_fini(struct dr_injector *inj)
{
	if (inj->po.fd >= 0)
		dr_poller_del(inj->poller, &inj->po);
	dr_guard_stop(inj->guard);
	inj->guard = NULL;
	inj->po.fd = -1;
}

/* Position of the GPU and channel that a fault means; the first when it does not say. */
static void target(const struct dr_fault_spec *s, const struct dr_plan *plan, unsigned *position,
	unsigned *channel)
{
	*position = 0;
	for (unsigned k = 0; s->gpu >= 0 && k < plan->n_gpus; k++)
		if (plan->gpu[k][DR_PLAN_CLIENT] == (unsigned)s->gpu)
			*position = k;
	*channel = s->channel >= 0 && (unsigned)s->channel < dr_plan_n_channels(plan)
			   ? (unsigned)s->channel
			   : 0;
}

int dr_inject_rail(const struct dr_fault_spec *s, const struct dr_plan *plan, enum dr_plan_end side)
{
	unsigned position, channel;
	struct dr_plan_map m;

	if (dr_fault_by_channel(s->kind))
		return -1;
	for (unsigned i = 0; s->nic[0] && i < plan->n_rails; i++)
		if (strcmp(plan->rail[i][side].name, s->nic) == 0)
			return (int)i;
	if (s->nic[0])
		return -1;
	target(s, plan, &position, &channel);
	m = dr_plan_paths(plan, position, channel);
	return (int)(s->path == 0 ? m.primary : m.shadow);
}

const char *dr_inject_nic(
	const struct dr_fault_spec *s, const struct dr_plan *plan, enum dr_plan_end side)
{
	int rail = dr_inject_rail(s, plan, side);

	if (dr_fault_by_channel(s->kind))
		return "";
	if (s->nic[0])
		return s->nic;
	return rail < 0 ? "" : plan->rail[rail][side].name;
}

/* addr-del means the rail's address: "NAME@ADDRESS", where it fits the name otherwise. */
static const char *address_too(const struct dr_fault_spec *s, const struct dr_plan *plan,
	enum dr_plan_end side, char *buf, size_t len)
{
	const char *nic = dr_inject_nic(s, plan, side);
	int rail = dr_inject_rail(s, plan, side);

	if (s->kind != DR_FAULT_ADDR_DEL || rail < 0)
		return nic;
	snprintf(buf, len, "%.15s@%.47s", nic, plan->rail[rail][side].address);
	return buf;
}

int dr_injector_check(const struct dr_injector *inj, const struct dr_fault_spec *s,
	const struct dr_plan *plan, enum dr_plan_end side, const struct dr_route *route,
	struct dr_err *e)
{
	struct dr_fault_control control = dr_route_control(route);
	bool nic = dr_fault_by_guard(s->kind) && s->kind != DR_FAULT_EXEC;
	char buf[DR_FAULT_NIC_MAX];
	int rc = dr_kind_fault(plan->transport, s, e);

	return rc ? rc
		  : dr_fault_check(s, nic ? address_too(s, plan, side, buf, sizeof(buf)) : NULL,
			    &control, &inj->opt->execs, inj->opt->allow_faults, e);
}

static void own_report(struct dr_injector *inj, uint32_t id, bool undo, const char *text)
{
	struct dr_fault_report rep = { .id = id, .undo = undo };

	rep.before_ns = rep.after_ns = dr_now_ns();
	snprintf(rep.text, sizeof(rep.text), "%s", text);
	if (inj->report)
		inj->report(inj->arg, &rep);
}

/* close: the connection of the path of every channel meant is aborted at this end; qp-error: it is
 * broken below the path, which has to find out. */
static void break_paths(struct dr_node *node, const struct dr_fault_spec *s)
{
	struct dr_command cmd = {
		.kind = DR_CMD_BREAK, .position = DR_ALL, .channel = DR_ALL, .path = s->path
	};
	unsigned position, channel;

	if (s->kind == DR_FAULT_QP_ERROR)
		cmd.break_path = dr_kind_qp_error;
	target(s, node->plan, &position, &channel);
	if (s->gpu >= 0)
		cmd.position = position;
	if (s->channel >= 0)
		cmd.channel = channel;
	dr_node_post(node, cmd.position, &cmd);
}

int dr_injector_inject(struct dr_injector *inj, struct dr_node *node, const struct dr_fault_spec *s,
	const struct dr_route *route, uint32_t *id, struct dr_err *e)
{
	char buf[DR_FAULT_NIC_MAX];
	const char *nic = address_too(s, node->plan, node->side, buf, sizeof(buf));
	int64_t hold = s->for_ns ? s->for_ns + HOLD_EXTRA_NS : HOLD_FOREVER_NS;
	int rc = dr_injector_check(inj, s, node->plan, node->side, route, e);

	if (rc)
		return rc;
	if (dr_fault_by_guard(s->kind)) {
		rc = dr_fault_inject_start(inj->guard, s, nic, hold, id, e);
		inj->active += rc == 0;
		return rc;
	}
	*id = inj->next_own++;
	if (dr_fault_by_channel(s->kind)) {
		own_report(inj, *id, false,
			s->kind == DR_FAULT_CLOSE ? "connections closed"
						  : "queue pairs put into the error state");
		break_paths(node, s);
		return 0;
	}
	char line[256];
	dr_fault_prompt(s, nic, line, sizeof(line));
	fprintf(stderr, "%s\n", line);
	own_report(inj, *id, false, "asked the operator");
	return 0;
}

int dr_injector_undo(struct dr_injector *inj, uint32_t id, struct dr_err *e)
{
	if (id < OWN_IDS)
		return dr_fault_undo_start(inj->guard, id, e);
	own_report(inj, id, true, "nothing to undo");
	return 0;
}
