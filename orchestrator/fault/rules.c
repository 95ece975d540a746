/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

static bool marked(const struct needed *s, const struct dr_netdev *nic)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->marks[i] &&
			(s->devs[i].ifindex == nic->ifindex || s->devs[i].master == nic->ifindex))
			return true;
	return false;
}

/* "CLIENT PORT SERVER PORT": the device of the server's address, which is this host. */
static void mark_ssh(struct needed *s, const char *ssh)
{
	char copy[256], *rest = copy, *address = NULL;
	struct sockaddr_storage sa;
	struct dr_netdev d;

	snprintf(copy, sizeof(copy), "%s", ssh ? ssh : "");
	for (int i = 0; i < 3; i++)
		address = strsep(&rest, " ");
	if (address && dr_netdev_addr_parse(address, &sa) == 0 &&
		dr_netdev_by_addr((const struct sockaddr *)&sa, &d, NULL) == 0)
		mark(s, d.ifindex);
	mark_below(s);
}

/* Without it the host may be out of reach. NULL: what for is not known. */
static const char *management_use(
	struct needed *s, const struct dr_netdev *nic, const struct dr_fault_control *c)
{
	static const int families[] = { AF_INET, AF_INET6 };

	memset(s->marks, 0, s->n * sizeof(*s->marks));
	for (size_t i = 0; i < DR_ARRAY_LEN(families); i++)
		mark(s, dr_netdev_default(families[i]));
	mark_below(s);
	if (marked(s, nic))
		return "has this node's default route";
	memset(s->marks, 0, s->n * sizeof(*s->marks));
	mark_ssh(s, c->ssh);
	return marked(s, nic) ? "carries the ssh session" : NULL;
}

/* The NIC was chosen by its path, not by the user; opt: nor by the options of this end. */
static int check_management(struct needed *s, const struct dr_netdev *nic,
	const struct dr_fault_control *c, const struct dr_guard_options *opt, struct dr_err *e)
{
	const char *use = management_use(s, nic, c), *rails = c->rails ? c->rails : "";

	if (!use)
		return 0;
	if (opt)
		return dr_err_set(e, -EPERM,
			"refused: %s %s; start this end with --fault-nics %s if it may be cut",
			nic->name, use, nic->name);
	return dr_err_set(e, -EPERM,
		"refused: %s %s; give HOST's management address%s%s%s, or name it: nic=%s",
		nic->name, use, *rails ? ", so that " : "", rails, *rails ? " are rails" : "",
		nic->name);
}

/* What is never a rail by itself is one only where --rails names it. */
static int check_automatic(const struct needed *s, const struct dr_netdev *nic, struct dr_err *e)
{
	struct dr_netdev_choice choice = { .devs = s->devs, .n_devs = s->n };
	enum dr_netdev_why why = dr_netdev_refused(&choice, nic);

	if (why != DR_NETDEV_PORT && why != DR_NETDEV_VIRTUAL && why != DR_NETDEV_BRIDGE)
		return 0;
	return dr_err_set(e, -EPERM, "refused: %s is no rail: %s; name it with --rails at this end",
		nic->name, dr_netdev_why_text(why));
}

/* opt: of the guard; NULL: the rules without it. */
static int check_control(const struct dr_netdev *nic, bool named, const struct dr_fault_control *c,
	const struct dr_guard_options *opt, struct dr_err *e)
{
	struct needed s = { 0 };
	int rc = dr_netdev_list(&s.devs, &s.n, e);

	if (rc < 0)
		return rc;
	s.marks = dr_calloc(s.n + 1, sizeof(*s.marks));
	rc = s.marks ? mark_control(&s, c, e) : dr_err_set(e, -ENOMEM, "out of memory");
	if (rc == 0 && opt)
		rc = mark_control(&s, &opt->control, e);
	if (rc == 0 && marked(&s, nic))
		rc = dr_err_set(e, -EPERM,
			"%s refused: the control connection needs that device; give a HOST that is reached "
			"over another NIC (--control ADDR|IF names the NIC at this end), or another nic=",
			nic->name);
	if (rc == 0 && !named)
		rc = check_management(&s, nic, c, opt, e);
	if (rc == 0 && opt && !opt->rails)
		rc = check_automatic(&s, nic, e);
	dr_netdev_list_free(s.devs);
	dr_free(s.marks);
	return rc;
}

static int check_rights(const struct dr_fault_spec *s, const struct dr_netdev *nic,
	const struct dr_guard *guard, struct dr_err *e)
{
	const char *end = s->side == DR_FAULT_SERVER ? "server" : "client";
	int rc = guard ? dr_guard_rights(guard) : dr_netdev_may_change(nic->ifindex, e);

	return rc == -EPERM
		       ? dr_err_set(e, rc,
				 "needs CAP_NET_ADMIN at the %s (%s: %s); start the %s as root",
				 end, nic->name, strerror(-rc), end)
		       : rc;
}

static int check_nic(const struct dr_fault_spec *s, const char *name,
	const struct dr_fault_control *c, struct dr_fault_nic *nic, struct dr_state *state,
	struct dr_err *e)
{
	if (!name || !name[0])
		return dr_err_set(e, -EINVAL, "no NIC known for path %u; give nic=NAME", s->path);
	int rc = dr_fault_nic_find(name, nic, state, e);
	if (rc == 0 && c)
		rc = check_control(&nic->dev, s->nic[0], c, NULL, e);
	return rc ? rc : check_rights(s, &nic->dev, c ? c->guard : NULL, e);
}

static int device(const char *name, struct dr_netdev *out, struct dr_err *e)
{
	char ifname[DR_FAULT_NIC_MAX];

	snprintf(ifname, sizeof(ifname), "%.*s", (int)strcspn(name, "@"), name);
	return dr_netdev_by_name(ifname, out, e);
}

/* The NIC that a command is told: it may be lo, or none at all. */
static int check_told(const struct dr_fault_spec *s, const char *name,
	const struct dr_fault_control *c, struct dr_err *e)
{
	struct dr_netdev dev;

	if (!name || !name[0] || !c)
		return 0;
	int rc = device(name, &dev, e);
	return rc || dev.loopback ? rc : check_control(&dev, s->nic[0], c, NULL, e);
}

/* Does the list, "eth1,eth2@10.0.0.1,10.0.1.1", have the device, by its name or an address? */
static bool listed(const char *list, const struct dr_netdev *d)
{
	for (; *list; list += strcspn(list, ","), list += *list == ',') {
		struct sockaddr_storage sa;
		struct dr_netdev by;
		char item[128];

		snprintf(item, sizeof(item), "%.*s", (int)strcspn(list, ",@"), list);
		if (strcmp(item, d->name) == 0 ||
			(dr_netdev_addr_parse(item, &sa) == 0 &&
				dr_netdev_by_addr((struct sockaddr *)&sa, &by, NULL) == 0 &&
				by.ifindex == d->ifindex))
			return true;
	}
	return false;
}

static int check_limits(
	const struct dr_fault_spec *s, const struct dr_guard_options *opt, struct dr_err *e)
{
	char asked[32], max[32];

	if (!opt->for_max_ns || s->for_ns <= opt->for_max_ns)
		return 0;
	dr_format_duration(s->for_ns, asked, sizeof(asked));
	dr_format_duration(opt->for_max_ns, max, sizeof(max));
	return dr_err_set(e, -EPERM, "refused: it lasts %s (for=), and the longest fault lasts %s",
		asked, max);
}

int dr_fault_scope_check(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, const struct dr_guard_options *opt,
	struct dr_err *e)
{
	int rc = check_limits(s, opt, e);
	bool named = opt->nics != NULL;
	struct dr_netdev d;

	if (rc || (!nic[0] && !s->kind->nic) || (rc = device(nic, &d, e)) != 0)
		return rc;
	if (opt->nics && !listed(opt->nics, &d))
		return dr_err_set(e, -EPERM, "refused: %s is not in --fault-nics %s of this end",
			d.name, opt->nics);
	if (opt->rails && !listed(opt->rails, &d))
		return dr_err_set(e, -EPERM, "refused: %s is not in --rails %s of this end", d.name,
			opt->rails);
	for (unsigned i = 0; i < opt->n_own; i++)
		named |=
			opt->own[i].side == DR_FAULT_CLIENT && strcmp(opt->own[i].nic, d.name) == 0;
	return d.loopback ? 0 : check_control(&d, named, control, opt, e);
}

int dr_fault_check(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, const struct dr_guard_options *opt, bool allow,
	struct dr_err *e)
{
	const struct dr_fault_kind *k = s->kind;
	struct dr_fault_action a = {
		.spec = s, .opt = opt, .guard = control ? control->guard : NULL
	};
	struct dr_fault_nic found = { .address = "" };
	int rc = 0;

	if (!allow)
		return dr_err_set(e, -EACCES,
			"refused: start this end with --allow-faults if it may break its network");
	if (k->nic)
		rc = check_nic(s, nic, control, &found, &a.state, e);
	else if (k->by == DR_FAULT_BY_GUARD)
		rc = check_told(s, nic, control, e);
	if (rc == 0 && k->prepare)
		rc = k->prepare(&a, k->nic ? &found : NULL, e);
	if (rc == 0 && opt && k->by == DR_FAULT_BY_GUARD)
		rc = dr_fault_scope_check(s, nic ? nic : "", control, opt, e);
	dr_state_fini(&a.state);
	return rc;
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
