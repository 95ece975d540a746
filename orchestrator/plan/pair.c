/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/plan.h"

#include "topology/nic_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Which rails of client and server make a pair: topology/nic_list.h decides, here it is applied. */

_Static_assert((int)DR_RAILS_MAX == (int)DR_NICS_MAX, "a list of NICs has room for all rails");

/* One end's NICs, the spare last. */
struct end {
	struct dr_plan_rail rail[DR_RAILS_MAX];
	struct dr_nic nic[DR_RAILS_MAX];
	unsigned n;
};

static void add(struct end *t, const struct dr_plan_rail *rail, bool spare)
{
	struct dr_nic *nic = &t->nic[t->n];
	struct dr_plan_rail *r = &t->rail[t->n];

	if (t->n == DR_RAILS_MAX || !rail->name[0] ||
		dr_prefix_of((const struct sockaddr *)&rail->addr, rail->prefix, &nic->addr))
		return;
	*r = *rail;
	nic->number = (uint16_t)t->n++;
	nic->spare = spare;
	nic->routes = &r->routes;
}

static void add_own(struct end *t, const struct dr_netdev_rail *own, bool spare)
{
	struct dr_plan_rail r;

	dr_plan_set_rail(&r, own);
	add(t, &r, spare);
}

/* "10.0.0.1/24,10.0.1.1/24", cut with "..." where it does not fit. */
static void list_nics(const struct end *t, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < t->n; i++) {
		char one[64];

		dr_prefix_format(&t->nic[i].addr, one, sizeof(one));
		if (at + strlen(one) + 5 > len) {
			snprintf(buf + at, len - at, "...");
			return;
		}
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? "," : "", one);
	}
}

static int no_match(const struct end *c, const struct end *s, bool none, struct dr_err *e)
{
	char client[62], server[62];

	list_nics(c, client, sizeof(client));
	list_nics(s, server, sizeof(server));
	return dr_err_set(e, -EADDRNOTAVAIL,
		"%s: client %s, server %s; give two NICs one subnet, or both ends a route that "
		"leaves by them, or name other --rails",
		none ? "no rail joins the ends" : "a named rail has no partner", client, server);
}

static bool has_partner(const struct end *t, const struct dr_nic *nic)
{
	for (unsigned i = 0; i < t->n; i++)
		if (!t->nic[i].spare && dr_nic_same_subnet(&t->nic[i], nic))
			return true;
	return false;
}

/* The spare of `t` is a rail if a rail of the other end would have no direct partner otherwise. */
static void follow(struct end *t, const struct end *other)
{
	struct dr_nic *spare = t->n ? &t->nic[t->n - 1] : NULL;

	if (!spare || !spare->spare)
		return;
	for (unsigned i = 0; i < other->n && spare->spare; i++)
		spare->spare = other->nic[i].spare || !dr_nic_same_subnet(spare, &other->nic[i]) ||
			       has_partner(t, &other->nic[i]);
}

int dr_plan_pair_nics(struct dr_plan *p, const struct dr_netdev_rail *own, unsigned n_own,
	const struct dr_netdev_rail *spare, struct dr_err *e)
{
	bool all = !p->rails_auto || p->n_map > 0;
	struct dr_nic_pair pair[DR_RAILS_MAX];
	struct end c = { .n = 0 }, s = { .n = 0 };

	for (unsigned i = 0; i < p->n_rails; i++)
		add(&c, &p->rail[i][DR_PLAN_CLIENT], false);
	for (unsigned i = 0; i < n_own; i++)
		add_own(&s, &own[i], false);
	if (!all)
		add(&c, &p->spare, true);
	if (spare)
		add_own(&s, spare, true);
	follow(&s, &c);
	if (p->own_named)
		follow(&c, &s);
	unsigned n = dr_nic_pair_up(
		c.nic, c.n, s.nic, s.n, all ? DR_NIC_WANT_ALL : DR_NIC_WANT_AUTO, pair);
	if (n == 0 || (all && n < p->n_rails))
		return no_match(&c, &s, n == 0, e);
	for (unsigned i = 0; i < n; i++) {
		c.rail[pair[i].a].routed = s.rail[pair[i].b].routed = pair[i].routed;
		p->rail[i][DR_PLAN_CLIENT] = c.rail[pair[i].a];
		p->rail[i][DR_PLAN_SERVER] = s.rail[pair[i].b];
	}
	p->n_rails = n;
	return 0;
}
