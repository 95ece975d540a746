/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/affinity.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Workers on machines of the fixtures, as if this one had as many NUMA nodes. */

struct bed {
	struct dr_options opt;
	struct dr_plan plan;
	struct dr_topo *topo;
};

static void set_up(struct bed *b, const char *xml, const char *const *nics, unsigned n_gpus)
{
	struct dr_netdev_rail r[DR_RAILS_MAX];
	struct dr_err e;
	unsigned n = 0;

	memset(b, 0, sizeof(*b));
	memset(r, 0, sizeof(r));
	b->opt.topology = xml;
	assert_int_equal(dr_affinity_load(&b->opt, &b->topo, &e), 0);
	for (; nics[n]; r[n].nic = n, n++)
		snprintf(r[n].ifname, sizeof(r[n].ifname), "%s", nics[n]);
	b->plan.topo = b->topo;
	dr_plan_set_rails(&b->plan, r, n);
	b->plan.n_gpus = n_gpus;
	for (unsigned k = 0; k < n_gpus; k++)
		b->plan.gpu[k][DR_PLAN_CLIENT] = k;
	b->plan.n_each = b->plan.window = b->plan.chunk_max = 1;
	b->plan.forward = true;
	b->plan.heartbeat_ns = 10 * DR_NS_PER_MS;
	dr_plan_measure(&b->plan, DR_PLAN_CLIENT);
	assert_int_equal(dr_plan_settle(&b->plan, &e), 0);
}

/* gpus: bits of those that the worker serves. */
static int node_of(const struct bed *b, unsigned nodes, unsigned gpus)
{
	bool mine[DR_PLAN_GPUS_MAX];

	for (unsigned k = 0; k < DR_PLAN_GPUS_MAX; k++)
		mine[k] = k < 32 && (gpus >> k & 1);
	return dr_affinity_worker(&b->opt, &b->plan, DR_PLAN_CLIENT, nodes, 0, mine).node;
}

static void workers_go_where_their_nics_are(void **state)
{
	static const char *const all[] = { "eth1", "eth2", "eth3", "eth4", NULL };
	static const char *const far[] = { "eth3", "eth4", NULL };
	struct bed b;
	char text[160];

	(void)state;
	set_up(&b, "tests/fixtures/topology/a3-high.xml", all, 8);
	assert_int_equal(node_of(&b, 2, 1 << 0), 0);
	assert_int_equal(node_of(&b, 2, 1 << 7), 1);
	assert_int_equal(node_of(&b, 2, 1 << 4 | 1 << 6), 1);
	assert_int_equal(node_of(&b, 2, 1 << 0 | 1 << 6), -1); /* of two nodes */
	assert_int_equal(node_of(&b, 1, 1 << 0), -1);	       /* one node here */
	assert_int_equal(node_of(&b, 4, 1 << 0), -1);	       /* another machine's file */
	dr_affinity_describe(&b.opt, &b.plan, DR_PLAN_CLIENT, 2, text, sizeof(text));
	assert_string_equal(text, "NUMA: 2 nodes; GPU 0,1,2,3 on node 0; GPU 4,5,6,7 on node 1");
	dr_affinity_describe(&b.opt, &b.plan, DR_PLAN_CLIENT, 1, text, sizeof(text));
	assert_string_equal(text, "NUMA: one node, nothing is bound");
	dr_topo_destroy(b.topo);
	/* The NIC counts, not the GPU. */
	set_up(&b, "tests/fixtures/topology/a3-high.xml", far, 8);
	assert_int_equal(node_of(&b, 2, 1 << 0), 1);
	dr_topo_destroy(b.topo);
}

static void an_unknown_place_binds_nothing(void **state)
{
	static const char *const nics[] = { "eth1", "eth2", NULL };
	static const char *const veths[] = { "veth0", "veth1", NULL };
	struct bed b;

	(void)state;
	set_up(&b, "tests/fixtures/topology/vm.xml", nics, 4);
	assert_int_equal(node_of(&b, 2, 1), -1);
	dr_topo_destroy(b.topo);
	/* Of the NICs only: then the GPU's node. */
	set_up(&b, "tests/fixtures/topology/a3-high.xml", veths, 8);
	assert_int_equal(node_of(&b, 2, 1 << 5), 1);
	dr_topo_destroy(b.topo);
}

static void pinned_workers_stay_where_they_are(void **state)
{
	static const char *const all[] = { "eth1", "eth2", "eth3", "eth4", NULL };
	bool mine[DR_PLAN_GPUS_MAX] = { true };
	struct dr_affinity_place at;
	struct bed b;

	(void)state;
	set_up(&b, "tests/fixtures/topology/a3-high.xml", all, 8);
	b.opt.pin.n = 2;
	b.opt.pin.v[1] = 1;
	at = dr_affinity_worker(&b.opt, &b.plan, DR_PLAN_CLIENT, 1, 3, mine);
	assert_int_equal(at.cpu, 1);
	assert_int_equal(at.node, -1);
	dr_topo_destroy(b.topo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_go_where_their_nics_are),
		cmocka_unit_test(an_unknown_place_binds_nothing),
		cmocka_unit_test(pinned_workers_stay_where_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
