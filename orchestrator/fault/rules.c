/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/fault.h"

#include "base/units.h"
#include "orchestrator/fault/act_nic.h"
#include "orchestrator/fault/nft.h"
#include "topology/netdev.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Devices that the control connection needs; marks[i] belongs to devs[i]. */
struct needed {
	struct dr_netdev *devs;
	size_t n;
	bool marks[256];
};

static void mark(struct needed *s, int ifindex)
{
	for (size_t i = 0; i < DR_MIN(s->n, DR_ARRAY_LEN(s->marks)); i++) {
		if (s->devs[i].ifindex == ifindex)
			s->marks[i] = true;
	}
}

/* What a needed device stands on: the device below it and the members of a bond or bridge. */
static void mark_below(struct needed *s)
{
	size_t n = DR_MIN(s->n, DR_ARRAY_LEN(s->marks));

	for (size_t round = 0; round < n; round++) {
		for (size_t i = 0; i < n; i++) {
			if (!s->marks[i])
				continue;
			if (s->devs[i].link)
				mark(s, s->devs[i].link);
			for (size_t k = 0; k < n; k++)
				s->marks[k] |= s->devs[k].master == s->devs[i].ifindex;
		}
	}
}

static int mark_control(struct needed *s, const struct dr_fault_control *c, struct dr_err *e)
{
	struct dr_netdev d;
	int rc;

	if (c->ifname && c->ifname[0]) {
		rc = dr_netdev_by_name(c->ifname, &d, e);
		if (rc < 0)
			return dr_err_prefix(e, "control NIC");
		mark(s, d.ifindex);
	}
	if (c->local) {
		rc = dr_netdev_by_addr(c->local, &d, e);
		if (rc < 0)
			return dr_err_prefix(e, "control address");
		mark(s, d.ifindex);
	}
	if (c->peer) {
		rc = dr_netdev_toward(c->peer, c->local, &d, e);
		if (rc < 0)
			return dr_err_prefix(e, "control peer");
		mark(s, d.ifindex);
	}
	mark_below(s);
	return 0;
}

static int check_control(
	const struct dr_netdev *nic, const struct dr_fault_control *c, struct dr_err *e)
{
	struct needed s = { 0 };
	bool refuse = false;
	int rc = dr_netdev_list(&s.devs, &s.n, e);

	if (rc < 0)
		return rc;
	rc = mark_control(&s, c, e);
	for (size_t i = 0; i < DR_MIN(s.n, DR_ARRAY_LEN(s.marks)); i++)
		refuse |= s.marks[i] &&
			  (s.devs[i].ifindex == nic->ifindex || s.devs[i].master == nic->ifindex);
	dr_netdev_list_free(s.devs);
	if (rc == 0 && s.n > DR_ARRAY_LEN(s.marks))
		return dr_err_set(e, -EPERM,
			"more than %zu devices: cannot tell what control needs",
			DR_ARRAY_LEN(s.marks));
	if (rc == 0 && refuse)
		return dr_err_set(e, -EPERM,
			"fault on %s refused: the control connection needs that device; run control over "
			"another NIC (--control) or choose another nic=",
			nic->name);
	return rc;
}

/* What of the deed itself can be told before. */
static int check_deed(const struct dr_fault_spec *s, const struct dr_netdev *nic,
	const char *address, struct dr_err *e)
{
	struct dr_state what = { .kind = s->kind };
	int rc = 0;

	if (s->kind == DR_FAULT_BLACKHOLE || s->kind == DR_FAULT_LOSS)
		return dr_nft_probe(e);
	if (s->kind == DR_FAULT_ADDR_DEL)
		rc = dr_act_addr_look(&what, nic, address, e);
	dr_state_fini(&what);
	return rc;
}

static int check_nic(const struct dr_fault_spec *s, const char *name,
	const struct dr_fault_control *c, struct dr_err *e)
{
	char device[DR_FAULT_NIC_MAX];
	const char *address = dr_act_nic_split(name ? name : "", device, sizeof(device));
	struct dr_netdev nic;
	int rc;

	name = device;
	if (!name[0])
		return dr_err_set(e, -EINVAL, "fault %s: no NIC known for path %u; give nic=NAME",
			dr_fault_kind_name(s->kind), s->path);
	rc = dr_netdev_by_name(name, &nic, e);
	if (rc < 0)
		return rc;
	if (nic.loopback)
		return dr_err_set(e, -EPERM,
			"fault on %s refused: it would cut everything on this machine off; use close, or "
			"a demo as root",
			name);
	rc = c ? check_control(&nic, c, e) : 0;
	if (rc < 0)
		return rc;
	rc = dr_netdev_may_change(nic.ifindex, e);
	if (rc < 0)
		return dr_err_prefix(e, "fault %s on %s", dr_fault_kind_name(s->kind), name);
	return check_deed(s, &nic, address, e);
}

int dr_fault_check(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, const struct dr_fault_execs *execs, bool allow,
	struct dr_err *e)
{
	if (!allow)
		return dr_err_set(e, -EACCES,
			"fault %s refused: start this end with --allow-faults if it may break its network",
			dr_fault_kind_name(s->kind));
	if (s->kind == DR_FAULT_EXEC && !dr_fault_execs_find(execs, s->exec_name))
		return dr_err_set(e, -ENOENT,
			"fault exec=%s: not defined on this end; add --fault-exec %s=CMD,UNDO",
			s->exec_name, s->exec_name);
	if (s->kind == DR_FAULT_EXEC || !dr_fault_by_guard(s->kind))
		return 0;
	return check_nic(s, nic, control, e);
}

static void describe_link_down(const char *nic, const char *how_long, char *buf, size_t len)
{
	struct dr_netdev_snapshot snap = { 0 };
	struct dr_netdev d;

	if (dr_netdev_by_name(nic, &d, NULL) < 0 || dr_netdev_save(d.ifindex, &snap, NULL) < 0) {
		snprintf(buf, len, "link-down: no device %s here", nic);
		return;
	}
	snprintf(buf, len,
		"link-down: set %s down%s; then up again, restoring %u addresses, %u routes, %u "
		"neighbours",
		nic, how_long, snap.addresses, snap.routes, snap.neighbours);
	dr_netdev_snapshot_fini(&snap);
}

static const char *direction(enum dr_fault_dir d)
{
	static const char *const names[] = { "in both directions", "coming in", "going out" };

	return names[d];
}

void dr_fault_describe(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_execs *execs, char *buf, size_t len)
{
	const struct dr_fault_exec *x = dr_fault_execs_find(execs, s->exec_name);
	char t[32], how_long[64] = " until the end of the run";

	if (s->for_ns) {
		dr_format_duration(s->for_ns, t, sizeof(t));
		snprintf(how_long, sizeof(how_long), " for %s", t);
	}
	nic = nic ? nic : "(no NIC)";
	switch (s->kind) {
	case DR_FAULT_LINK_DOWN:
		describe_link_down(nic, how_long, buf, len);
		break;
	case DR_FAULT_BLACKHOLE:
		snprintf(buf, len, "blackhole: drop every packet %s on %s%s (nf_tables)",
			direction(s->dir), nic, how_long);
		break;
	case DR_FAULT_LOSS:
		snprintf(buf, len, "loss: drop %.9g %% of the packets %s on %s%s (nf_tables)",
			s->loss_percent, direction(s->dir), nic, how_long);
		break;
	case DR_FAULT_ADDR_DEL:
		snprintf(buf, len,
			"addr-del: take the IP address of %s away%s; then put it and its routes back",
			nic, how_long);
		break;
	case DR_FAULT_QP_ERROR:
		snprintf(buf, len, "qp-error: put the queue pairs of path %u into the error state",
			s->path);
		break;
	case DR_FAULT_CLOSE:
		snprintf(buf, len, "close: close the connection of path %u", s->path);
		break;
	case DR_FAULT_KINDS:
		break;
	case DR_FAULT_MANUAL:
		dr_fault_prompt(s, nic, buf, len);
		break;
	case DR_FAULT_EXEC:
		snprintf(buf, len, "exec=%s: run '%s'%s, then '%s'", s->exec_name,
			x ? x->cmd : "(not defined)", how_long, x ? x->undo : "(not defined)");
		break;
	}
}

void dr_fault_prompt(const struct dr_fault_spec *s, const char *nic, char *buf, size_t len)
{
	snprintf(buf, len,
		"manual: break path %u%s%s on the %s now (pull the cable, disable the switch port); "
		"waiting until it is detected",
		s->path, nic && nic[0] ? ", NIC " : "", nic ? nic : "",
		s->side == DR_FAULT_SERVER ? "server" : "client");
}
