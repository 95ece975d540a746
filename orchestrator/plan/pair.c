/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/plan.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Which rails of client and server make a pair: topology/nic_list.h decides, here it is applied. */

/* "10.0.0.1/24,10.0.1.1/24", cut with "..." where it does not fit. */
static void list_nics(const struct dr_nic *nic, unsigned n, char *buf, size_t len)
{
	buf[0] = '\0';
	for (unsigned i = 0; i < n; i++) {
		char one[64];

		dr_prefix_format(&nic[i].addr, one, sizeof(one));
		if (nic[i].rank == DR_NIC_NONE)
			continue;
		if (strlen(buf) + strlen(one) + 5 > len) {
			dr_append(buf, len, "...");
			return;
		}
		dr_append(buf, len, "%s%s", buf[0] ? "," : "", one);
	}
}

int dr_plan_pair_nics(struct dr_plan *p, const struct dr_netdev_rail *own, unsigned n_own,
	bool own_named, struct dr_err *e)
{
	struct dr_nic c[DR_NICS_MAX], s[DR_NICS_MAX];
	bool all = !p->rails_auto || p->n_map > 0;
	struct dr_nic_pair pair[DR_NICS_MAX];
	char client[62], server[62];
	unsigned n_nics = 0;

	for (unsigned i = 0; i < p->n_offered; i++) {
		const struct dr_plan_rail *r = &p->offered[i];

		dr_nic_set(&c[i], &r->addr, r->prefix, r->nic, r->rank);
		c[i].routes = &r->routes;
		c[i].named = all;
		n_nics += i == 0 || r->nic != r[-1].nic;
	}
	for (unsigned i = 0; i < n_own; i++) {
		dr_nic_set(&s[i], &own[i].addr, own[i].prefix, own[i].nic, own[i].rank);
		s[i].routes = &own[i].routes;
		s[i].named = own_named;
	}
	unsigned n = dr_nic_pair_up(c, p->n_offered, s, n_own, pair);
	if (n == 0 || (all && n < n_nics)) {
		list_nics(c, p->n_offered, client, sizeof(client));
		list_nics(s, n_own, server, sizeof(server));
		return dr_err_set(e, -EADDRNOTAVAIL,
			"%s: client %s, server %s; give two NICs one subnet, or both ends a route "
			"that leaves by them, or name other --rails, INTERFACE@ADDRESS",
			n == 0 ? "no rail joins the ends" : "a named rail has no partner", client,
			server);
	}
	p->n_rails = DR_MIN(n, (unsigned)DR_RAILS_MAX);
	for (unsigned i = 0; i < p->n_rails; i++) {
		p->rail[i][DR_PLAN_CLIENT] = p->offered[pair[i].a];
		dr_plan_set_rail(&p->rail[i][DR_PLAN_SERVER], &own[pair[i].b]);
		p->rail[i][DR_PLAN_CLIENT].routed = p->rail[i][DR_PLAN_SERVER].routed =
			pair[i].routed;
	}
	return 0;
}
