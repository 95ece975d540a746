/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The map by distance, from the client's offer to what both ends make of it. */

static unsigned rails(struct dr_netdev_rail *r, const char *subnets, unsigned host)
{
	unsigned n = (unsigned)strlen(subnets);

	memset(r, 0, n * sizeof(*r));
	for (unsigned i = 0; i < n; i++) {
		char addr[32];

		snprintf(addr, sizeof(addr), "10.0.%c.%u", subnets[i], host);
		snprintf(r[i].ifname, sizeof(r[i].ifname), "eth%c", subnets[i]);
		assert_int_equal(dr_netdev_addr_parse(addr, &r[i].addr), 0);
		r[i].prefix = 24;
		r[i].nic = i;
	}
	return n;
}

/* Two GPUs, three rails: rails 0 and 1 are near GPU 1, rail 2 near GPU 0. */
static void set_locality(struct dr_locality *l)
{
	static const enum dr_locality_level near[2][3] = { { DR_LOCALITY_SYSTEM, DR_LOCALITY_SYSTEM,
								   DR_LOCALITY_NODE },
		{ DR_LOCALITY_NODE, DR_LOCALITY_NODE, DR_LOCALITY_SYSTEM } };

	memset(l, 0, sizeof(*l));
	l->n_gpus = 2;
	l->n_nics = 3;
	for (unsigned r = 0; r < 3; r++) {
		l->nic[r].order = l->nic[r].port = (uint16_t)(r + 1);
		for (unsigned g = 0; g < 2; g++)
			l->gpu[g].distance[r] = DR_DISTANCE(near[g][r], 0u);
	}
	l->gpu[1].order = 1;
}

/* A client's plan with GPUs 10 and 11, rails eth0 to eth2, three channels. */
static void make(struct dr_plan *p)
{
	struct dr_netdev_rail r[DR_RAILS_MAX];

	memset(p, 0, sizeof(*p));
	dr_plan_set_rails(p, r, rails(r, "012", 1));
	p->rails_auto = true;
	p->n_gpus = 2;
	for (unsigned k = 0; k < 2; k++)
		p->gpu[k][0] = p->gpu[k][1] = 10 + k;
	p->n_each = 3;
	p->forward = true;
	p->window = 16;
	p->chunk_max = 4096;
	p->heartbeat_ns = 10 * DR_NS_PER_MS;
	snprintf(p->transport, sizeof(p->transport), "tcp");
	set_locality(&p->locality[DR_PLAN_CLIENT]);
}

/* "21 01 01": primary and shadow of each channel of the GPU. */
static void paths_are(const struct dr_plan *p, unsigned position, const char *want)
{
	char got[64] = "";
	size_t at = 0;

	for (unsigned c = 0; c < p->n_each; c++) {
		struct dr_plan_map m = dr_plan_paths(p, position, c);

		at += (size_t)snprintf(
			got + at, sizeof(got) - at, "%s%u%u", c ? " " : "", m.primary, m.shadow);
	}
	assert_string_equal(got, want);
}

/* The plan as the server has it, its rails in the subnets given. */
static void to_server(const struct dr_plan *c, struct dr_plan *s, const char *subnets)
{
	struct dr_netdev_rail r[DR_RAILS_MAX];
	json_t *offer = dr_plan_offer(c);
	struct dr_err e;

	assert_non_null(offer);
	assert_int_equal(dr_plan_read_offer(s, offer, &e), 0);
	json_decref(offer);
	assert_int_equal(dr_plan_pair_nics(s, r, rails(r, subnets, 2), false, &e), 0);
	s->n_gpus = c->n_gpus;
	memcpy(s->gpu, c->gpu, sizeof(s->gpu));
}

static void to_client(struct dr_plan *s, struct dr_plan *c)
{
	json_t *reply = dr_plan_reply(s);
	struct dr_err e;

	assert_non_null(reply);
	assert_int_equal(dr_plan_read_reply(c, reply, &e), 0);
	json_decref(reply);
	assert_int_equal(dr_plan_settle(s, &e), 0);
	assert_int_equal(dr_plan_settle(c, &e), 0);
}

static void near_rails_are_primaries_at_both_ends(void **state)
{
	struct dr_plan c, s;
	struct dr_err e;
	char why[96];

	(void)state;
	make(&c);
	assert_int_equal(dr_plan_settle(&c, &e), 0);
	paths_are(&c, 0, "21 21 21");
	paths_are(&c, 1, "01 10 01"); /* its channels take turns */
	dr_plan_reason(&c, 1, why, sizeof(why));
	assert_string_equal(why, "nearest: same NUMA node");
	to_server(&c, &s, "210");
	to_client(&s, &c);
	paths_are(&c, 0, "21 21 21");
	paths_are(&s, 0, "21 21 21");
	paths_are(&c, 1, "01 10 01");
	paths_are(&s, 1, "01 10 01");
}

/* Rail 2 is a cable, eth0 and the server's eth9 a way round: however near, that is a shadow. */
static void a_routed_rail_is_no_primary_for_being_near(void **state)
{
	struct dr_plan c, s;
	struct dr_err e;

	(void)state;
	make(&c);
	to_server(&c, &s, "29");
	to_client(&s, &c);
	assert_int_equal(c.n_rails, 2);
	assert_true(c.rail[0][DR_PLAN_CLIENT].routed && !c.rail[1][DR_PLAN_CLIENT].routed);
	for (unsigned k = 0; k < 2; k++) {
		paths_are(&c, k, "10 10 10");
		paths_are(&s, k, "10 10 10");
	}
	assert_int_equal(dr_plan_parse_spread(&c, "all", &e), 0);
	paths_are(&c, 1, "10 10 10");
}

static void a_rail_without_partner_is_left_out_of_the_map(void **state)
{
	struct dr_plan c, s;

	(void)state;
	make(&c);
	to_server(&c, &s, "12");
	to_client(&s, &c);
	assert_int_equal(c.n_rails, 2);
	paths_are(&c, 0, "10 10 10"); /* what was rail 2 */
	paths_are(&s, 0, "10 10 10");
	paths_are(&c, 1, "01 01 01");
	paths_are(&s, 1, "01 01 01");
}

static void the_servers_distances_count_too(void **state)
{
	struct dr_plan c, s;

	(void)state;
	make(&c);
	to_server(&c, &s, "012");
	set_locality(&s.locality[DR_PLAN_SERVER]);
	s.locality[DR_PLAN_SERVER].gpu[1].distance[0] = DR_DISTANCE(DR_LOCALITY_SYSTEM, 0u);
	to_client(&s, &c);
	paths_are(&c, 1, "12 12 12");
	paths_are(&s, 1, "12 12 12");
}

static void map_and_spread_go_before_distance(void **state)
{
	struct dr_plan p;
	struct dr_err e;

	(void)state;
	make(&p);
	assert_int_equal(dr_plan_parse_map(&p, "10=eth1,eth0", &e), 0);
	assert_int_equal(dr_plan_settle(&p, &e), 0);
	paths_are(&p, 0, "10 10 10");
	paths_are(&p, 1, "01 10 01"); /* not named: as before */
	p.n_map = 0;
	p.locality[DR_PLAN_CLIENT].nic[1].port = p.locality[DR_PLAN_CLIENT].nic[2].port;
	assert_int_equal(dr_plan_parse_spread(&p, "all", &e), 0);
	assert_int_equal(dr_plan_settle(&p, &e), 0);
	paths_are(&p, 0, "20 02 10"); /* rails 1 and 2 are one port */
	assert_int_equal(dr_plan_parse_spread(&p, "eth1,eth0", &e), 0);
	paths_are(&p, 0, "10 01 10");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(near_rails_are_primaries_at_both_ends),
		cmocka_unit_test(a_routed_rail_is_no_primary_for_being_near),
		cmocka_unit_test(a_rail_without_partner_is_left_out_of_the_map),
		cmocka_unit_test(the_servers_distances_count_too),
		cmocka_unit_test(map_and_spread_go_before_distance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
