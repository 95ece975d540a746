/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan.h"

#include "topology/nic_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Which rails of client and server make a pair: topology/nic_list.h decides, here it is applied. */

_Static_assert((int)DR_RAILS_MAX == (int)DR_NICS_MAX, "a list of NICs has room for all rails");

/* Both ends' NICs, the spares last. Points into the plan and the server's rails. */
struct ends {
	const struct dr_plan_rail *client[DR_RAILS_MAX];
	const struct dr_netdev_rail *server[DR_RAILS_MAX];
	struct dr_nic c[DR_RAILS_MAX], s[DR_RAILS_MAX];
	unsigned n_c, n_s;
};

static void add_client(struct ends *t, const struct dr_plan_rail *r, bool spare)
{
	struct dr_nic *n = &t->c[t->n_c];

	if (t->n_c == DR_RAILS_MAX || !r->name[0] ||
		dr_prefix_of((const struct sockaddr *)&r->addr, r->prefix, &n->addr))
		return;
	n->number = (uint16_t)t->n_c;
	n->spare = spare;
	n->routes = &r->routes;
	t->client[t->n_c++] = r;
}

static void add_server(struct ends *t, const struct dr_netdev_rail *r, bool spare)
{
	struct dr_nic *n = &t->s[t->n_s];

	if (t->n_s == DR_RAILS_MAX ||
		dr_prefix_of((const struct sockaddr *)&r->addr, r->prefix, &n->addr))
		return;
	n->number = (uint16_t)t->n_s;
	n->spare = spare;
	n->routes = &r->routes;
	t->server[t->n_s++] = r;
}

/* "10.0.0.1/24,10.0.1.1/24", cut with "..." where it does not fit. */
static void list_nics(const struct dr_nic *nics, unsigned n, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < n; i++) {
		char one[64];

		dr_prefix_format(&nics[i].addr, one, sizeof(one));
		if (at + strlen(one) + 5 > len) {
			snprintf(buf + at, len - at, "...");
			return;
		}
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? "," : "", one);
	}
}

static int no_match(const struct ends *t, bool none, struct dr_err *e)
{
	char client[62], server[62];

	list_nics(t->c, t->n_c, client, sizeof(client));
	list_nics(t->s, t->n_s, server, sizeof(server));
	return dr_err_set(e, -EADDRNOTAVAIL,
		"%s: client %s, server %s; give two NICs one subnet, or both ends a route that "
		"leaves by them, or name other --rails",
		none ? "no rail joins the ends" : "a named rail has no partner", client, server);
}

static void apply(
	struct dr_plan *p, const struct ends *t, const struct dr_nic_pair *pair, unsigned n)
{
	struct dr_plan_rail client[DR_RAILS_MAX];

	for (unsigned i = 0; i < n; i++)
		client[i] = *t->client[pair[i].a];
	for (unsigned i = 0; i < n; i++) {
		p->rail[i][DR_PLAN_CLIENT] = client[i];
		dr_plan_set_rail(&p->rail[i][DR_PLAN_SERVER], t->server[pair[i].b]);
		p->rail[i][DR_PLAN_CLIENT].routed = pair[i].routed;
		p->rail[i][DR_PLAN_SERVER].routed = pair[i].routed;
	}
	p->n_rails = n;
}

int dr_plan_match(struct dr_plan *p, const struct dr_netdev_rail *own, unsigned n_own,
	const struct dr_netdev_rail *spare, struct dr_err *e)
{
	bool all = !p->rails_auto || p->n_map > 0;
	struct dr_nic_pair pair[DR_RAILS_MAX];
	struct ends t = { .n_c = 0 };
	unsigned n;

	for (unsigned i = 0; i < p->n_rails; i++)
		add_client(&t, &p->rail[i][DR_PLAN_CLIENT], false);
	for (unsigned i = 0; i < n_own; i++)
		add_server(&t, &own[i], false);
	if (!all)
		add_client(&t, &p->spare, true);
	if (spare)
		add_server(&t, spare, true);
	n = dr_nic_pair_up(t.c, t.n_c, t.s, t.n_s, all ? DR_NIC_WANT_ALL : DR_NIC_WANT_AUTO, pair);
	if (n == 0 || (all && n < p->n_rails))
		return no_match(&t, n == 0, e);
	apply(p, &t, pair, n);
	return 0;
}
