/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Devices that the control connection needs; marks[i] belongs to devs[i]. */
struct needed {
	struct dr_netdev *devs;
	size_t n;
	bool *marks;
};

static void mark(struct needed *s, int ifindex)
{
	for (size_t i = 0; i < s->n; i++)
		s->marks[i] |= s->devs[i].ifindex == ifindex;
}

/* Mark also the device below a needed device, and the members of a bond or bridge. */
static void mark_below(struct needed *s)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < s->n; i++)
			for (size_t k = 0; s->marks[i] && k < s->n; k++) {
				bool below = s->devs[k].ifindex == s->devs[i].link ||
					     s->devs[k].master == s->devs[i].ifindex;

				more |= below && !s->marks[k];
				s->marks[k] |= below;
			}
	}
}

static int mark_control(struct needed *s, const struct dr_fault_control *c, struct dr_err *e)
{
	struct dr_netdev d;
	int rc = 0;

	if (c->ifname && c->ifname[0] && (rc = dr_netdev_by_name(c->ifname, &d, e)) == 0)
		mark(s, d.ifindex);
	if (rc == 0 && c->local && (rc = dr_netdev_by_addr(c->local, &d, e)) == 0)
		mark(s, d.ifindex);
	if (rc == 0 && c->peer && (rc = dr_netdev_toward(c->peer, c->local, &d, e)) == 0)
		mark(s, d.ifindex);
	mark_below(s);
	return rc < 0 ? dr_err_prefix(e, "device of the control connection") : 0;
}

static int check_control(
	const struct dr_netdev *nic, const struct dr_fault_control *c, struct dr_err *e)
{
	struct needed s = { 0 };
	bool refuse = false;
	int rc = dr_netdev_list(&s.devs, &s.n, e);

	if (rc < 0)
		return rc;
	s.marks = dr_calloc(s.n + 1, sizeof(*s.marks));
	rc = s.marks ? mark_control(&s, c, e) : dr_err_set(e, -ENOMEM, "out of memory");
	for (size_t i = 0; rc == 0 && i < s.n; i++)
		refuse |= s.marks[i] &&
			  (s.devs[i].ifindex == nic->ifindex || s.devs[i].master == nic->ifindex);
	dr_netdev_list_free(s.devs);
	dr_free(s.marks);
	if (rc == 0 && refuse)
		return dr_err_set(e, -EPERM,
			"%s refused: the control connection needs that device; give a HOST that is reached "
			"over another NIC (--control ADDR|IF names the NIC at this end), or another nic=",
			nic->name);
	return rc;
}

static int check_nic(const struct dr_fault_spec *s, const char *name,
	const struct dr_fault_control *c, struct dr_fault_nic *nic, struct dr_state *state,
	struct dr_err *e)
{
	if (!name || !name[0])
		return dr_err_set(e, -EINVAL, "no NIC known for path %u; give nic=NAME", s->path);
	int rc = dr_fault_nic_find(name, nic, state, e);
	if (rc == 0 && c)
		rc = check_control(&nic->dev, c, e);
	if (rc == 0)
		rc = dr_netdev_may_change(nic->dev.ifindex, e);
	return rc;
}

int dr_fault_check(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, const struct dr_fault_execs *execs, bool allow,
	struct dr_err *e)
{
	const struct dr_fault_kind *k = s->kind;
	struct dr_guard_options opt = { .execs = execs };
	struct dr_fault_action a = { .spec = s, .opt = &opt };
	struct dr_fault_nic found = { .address = "" };
	int rc = 0;

	if (!allow)
		return dr_err_set(e, -EACCES,
			"fault %s refused: start this end with --allow-faults if it may break its network",
			dr_fault_name(s));
	if (k->nic)
		rc = check_nic(s, nic, control, &found, &a.state, e);
	if (rc == 0 && k->prepare)
		rc = k->prepare(&a, k->nic ? &found : NULL, e);
	dr_state_fini(&a.state);
	return rc ? dr_err_prefix(e, "fault %s", dr_fault_name(s)) : 0;
}

void dr_fault_describe(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_execs *execs, char *buf, size_t len)
{
	struct dr_guard_options opt = { .execs = execs };
	struct dr_fault_action a = { .spec = s, .opt = &opt };
	char t[32], duration[64] = " until the end of the run";

	if (s->for_ns) {
		dr_format_duration(s->for_ns, t, sizeof(t));
		snprintf(duration, sizeof(duration), " for %s", t);
	}
	snprintf(a.state.nic, sizeof(a.state.nic), "%s", nic ? nic : "");
	snprintf(buf, len, "%s%s%s: ", dr_fault_name(s), s->value[0] ? "=" : "", s->value);
	size_t at = strlen(buf);
	s->kind->describe(&a, duration, buf + at, len - at);
}
