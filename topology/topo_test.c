/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo.h"

#include "base/rng.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The machines of tests/fixtures/topology, and the map of each that a person would draw. */

#define FIXTURE(name) "tests/fixtures/topology/" name ".xml"
enum { GPUS_MAX = 8, NICS_MAX = 8 };

struct expected {
	const char *xml, *nics; /* rails, by name */
	/* Of each GPU in the order of bus ids: "primary>shadow", several with commas. */
	const char *map[GPUS_MAX];
	const char *near;
	unsigned n_gpus; /* of the machine; 0: as many as there are maps */
};

static const struct expected table[] = {
	{ FIXTURE("dgx"), "rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7",
		{ "rdma0>rdma2", "rdma1>rdma3", "rdma2>rdma0", "rdma3>rdma1", "rdma4>rdma6",
			"rdma5>rdma7", "rdma6>rdma4", "rdma7>rdma5" },
		"same PCI switch", 8 },
	{ FIXTURE("a3-high"), "eth1,eth2,eth3,eth4",
		{ "eth1>eth2", "eth1>eth2", "eth2>eth1", "eth2>eth1", "eth3>eth4", "eth3>eth4",
			"eth4>eth3", "eth4>eth3" },
		"same root", 8 },
	{ FIXTURE("a3-numa"), "eth1,eth2,eth3,eth4",
		{ "eth1>eth2", "eth1>eth2", "eth2>eth1", "eth2>eth1", "eth3>eth4", "eth3>eth4",
			"eth4>eth3", "eth4>eth3" },
		"same NUMA node", 8 },
	/* Ports of one card are ports of their own... */
	{ FIXTURE("dual-port"), "c0p0,c0p1,c1p0,c1p1",
		{ "c0p0>c0p1", "c0p1>c0p0", "c1p0>c1p1", "c1p1>c1p0" }, "same root", 4 },
	/* ...a VF of a port is not. Equally near to two GPUs, equally far from the others. */
	{ FIXTURE("dual-port"), "c0p0,c0p0v0", { "c0p0>-", "c0p0>-", "c0p0v0>-", "c0p0v0>-" }, NULL,
		4 },
	{ FIXTURE("dual-port"), "c0p0,c0p0v0,c1p1",
		{ "c0p0>c1p1", "c0p0v0>c1p1", "c1p1>c0p0v0", "c1p1>c0p0" }, "same root", 4 },
	/* Nothing tells them apart: spread evenly. */
	{ FIXTURE("vm"), "eth1,eth2", { "eth1>eth2", "eth1>eth2", "eth2>eth1", "eth2>eth1" },
		"same root", 4 },
	{ FIXTURE("single"), "rdma0", { "rdma0>-", "rdma0>-" }, "same root", 2 },
	{ FIXTURE("bond"), "bond0,eth2,eth3", { "eth2>eth3", "eth3>eth2" }, "same root", 2 },
	{ FIXTURE("bond"), "bond0", { "bond0>-", "bond0>-" }, "other NUMA node", 2 },
};

/* Why the automatic choice leaves out a NIC of a file. */
static enum dr_netdev_why refused(const struct dr_topo *t, const char *name)
{
	struct dr_netdev devs[32] = { 0 };
	const struct dr_netdev_choice from = { .devs = devs, .n_devs = t->n_nics };

	dr_topo_netdevs(t, devs);
	return dr_netdev_refused(&from, &devs[dr_topo_find_nic(t, name) - t->nic]);
}

static struct dr_topo *load(const char *xml)
{
	struct dr_topo_params p = { .xml = xml };
	struct dr_topo *t = NULL;
	struct dr_err e = { 0 };

	if (dr_topo_create(&p, &t, &e))
		fail_msg("%s", e.text);
	return t;
}

static unsigned find_nics(
	const struct dr_topo *t, const char *names, const struct dr_topo_nic **out)
{
	char buf[256], *save = NULL;
	unsigned n = 0;

	snprintf(buf, sizeof(buf), "%s", names);
	for (char *s = strtok_r(buf, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		out[n] = dr_topo_find_nic(t, s);
		assert_non_null(out[n]);
		n++;
	}
	return n;
}

/* "eth1>eth2,eth3>-" */
static void write_map(const struct dr_locality_choice *c, const struct dr_topo_nic *const *nic,
	char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < c->n; i++) {
		const struct dr_locality_pair *p = &c->pair[i];

		at += (size_t)snprintf(buf + at, len - at, "%s%s>%s", i ? "," : "",
			nic[p->primary]->name,
			p->primary == p->shadow ? "-" : nic[p->shadow]->name);
	}
}

static void shuffle(struct dr_rng *rng, unsigned *v, unsigned n)
{
	for (unsigned i = n; i > 1; i--) {
		unsigned j = (unsigned)dr_rng_below(rng, i), x = v[i - 1];

		v[i - 1] = v[j];
		v[j] = x;
	}
}

static void check(const struct expected *x, const struct dr_topo *t, const unsigned *gpu,
	const struct dr_topo_nic *const *nic, unsigned n_nics, bool both_ends)
{
	struct dr_locality_choice c[GPUS_MAX];
	struct dr_locality l;
	char got[256];

	dr_topo_locality(t, gpu, t->n_gpus, nic, n_nics, &l);
	assert_true(dr_locality_choose(&l, both_ends ? &l : NULL, t->n_gpus, n_nics, c));
	for (unsigned k = 0; k < t->n_gpus; k++) {
		if (!x->map[gpu[k]])
			continue;
		write_map(&c[k], nic, got, sizeof(got));
		if (strcmp(got, x->map[gpu[k]]) != 0)
			fail_msg("%s GPU %u: %s, not %s", x->xml, gpu[k], got, x->map[gpu[k]]);
		if (x->near)
			assert_string_equal(dr_locality_text(c[k].distance), x->near);
	}
}

static void the_machines_map_as_expected(void **state)
{
	static const unsigned straight[GPUS_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(table); i++) {
		const struct dr_topo_nic *nic[NICS_MAX];
		struct dr_topo *t = load(table[i].xml);
		unsigned n = find_nics(t, table[i].nics, nic);

		assert_int_equal(t->n_gpus, table[i].n_gpus);
		check(&table[i], t, straight, nic, n, false);
		check(&table[i], t, straight, nic, n, true);
		dr_topo_destroy(t);
	}
}

static void the_order_of_the_input_does_not_matter(void **state)
{
	uint64_t seed = 20260117;
	struct dr_rng rng;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	for (size_t i = 0; i < 40 * DR_ARRAY_LEN(table); i++) {
		const struct expected *x = &table[i % DR_ARRAY_LEN(table)];
		unsigned gpu[GPUS_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };
		unsigned order[NICS_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };
		const struct dr_topo_nic *nic[NICS_MAX], *turned[NICS_MAX];
		struct dr_topo *t = load(x->xml);
		unsigned n = find_nics(t, x->nics, nic);

		shuffle(&rng, gpu, t->n_gpus);
		shuffle(&rng, order, n);
		for (unsigned k = 0; k < n; k++)
			turned[k] = nic[order[k]];
		check(x, t, gpu, turned, n, i % 2);
		dr_topo_destroy(t);
	}
}

static void nics_are_read_with_what_the_file_says(void **state)
{
	struct dr_topo *t = load(FIXTURE("dgx"));
	const struct dr_topo_nic *n = dr_topo_find_nic(t, "mlx5_3");
	struct sockaddr_storage sa;

	(void)state;
	assert_int_equal(t->n_nodes, 2);
	assert_int_equal(t->n_nics, 9);
	assert_non_null(n);
	assert_string_equal(n->name, "rdma3");
	assert_string_equal(n->bus_id, "0000:25:00.0");
	assert_int_equal(n->up, 1);
	assert_int_equal(n->speed_mbps, 200000);
	assert_int_equal(n->mtu, 9000);
	assert_int_equal(n->n_addrs, 1);
	assert_int_equal(n->addr[0].prefix, 24);
	assert_int_equal(dr_netdev_addr_parse("10.0.3.1", &sa), 0);
	assert_true(dr_netdev_addr_equal(
		(const struct sockaddr *)&sa, (const struct sockaddr *)&n->addr[0].addr));
	assert_int_equal(n->gid_index, 3); /* the address's, not the first */
	assert_int_equal(refused(t, "eno1"), DR_NETDEV_SLOW);
	assert_int_equal(refused(t, "rdma3"), DR_NETDEV_RAIL);
	assert_null(dr_topo_find_nic(t, "eth9"));
	dr_topo_destroy(t);
}

static void what_is_no_rail_says_why(void **state)
{
	struct dr_topo *vm = load(FIXTURE("vm")), *bond = load(FIXTURE("bond"));

	(void)state;
	assert_int_equal(refused(vm, "eth0"), DR_NETDEV_SLOW);
	assert_int_equal(refused(vm, "eth3"), DR_NETDEV_CARRIER);
	assert_int_equal(refused(bond, "eth0"), DR_NETDEV_PORT);
	assert_int_equal(refused(bond, "eth2"), DR_NETDEV_RAIL);
	assert_int_equal(dr_topo_nic_numa(dr_topo_find_nic(vm, "eth1")), -1);
	assert_int_equal(dr_topo_nic_numa(dr_topo_find_nic(bond, "bond0")), -1);
	assert_int_equal(dr_topo_nic_numa(dr_topo_find_nic(bond, "eth3")), 1);
	dr_topo_destroy(vm);
	dr_topo_destroy(bond);
}

static void gpus_come_in_the_callers_order(void **state)
{
	static const char *const ids[] = { "0000:93:00.0", "12:00.0", "0000:A2:00.0" };
	struct dr_topo_params p = {
		.xml = FIXTURE("dgx"), .bus_ids = ids, .n_bus_ids = DR_ARRAY_LEN(ids)
	};
	static const char *const wrong[] = { "0000:12:00.0", "0000:77:00.0" };
	struct dr_topo *t;
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_topo_create(&p, &t, &e), 0);
	assert_int_equal(t->n_gpus, 3);
	assert_string_equal(t->gpu[0].bus_id, "0000:93:00.0");
	assert_string_equal(t->gpu[1].bus_id, "0000:12:00.0");
	assert_string_equal(t->gpu[2].bus_id, "0000:a2:00.0");
	assert_int_equal(t->gpu[0].place.numa, 1);
	dr_topo_destroy(t);
	p.bus_ids = wrong;
	p.n_bus_ids = 2;
	assert_int_equal(dr_topo_create(&p, &t, &e), -ENODEV);
	assert_non_null(strstr(e.text, "0000:77:00.0"));
	assert_non_null(strstr(e.text, "0000:13:00.0"));
}

static void a_file_that_is_none_is_refused(void **state)
{
	char name[] = "/tmp/dr-topo-XXXXXX";
	static const char *const texts[] = { "", "no XML", "<?xml version=\"1.0\"?><html></html>",
		"<?xml version=\"1.0\"?><topology version=\"9.0\"></topology>",
		"<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\"" };
	struct dr_topo_params p = { .xml = "/nonexistent/machine.xml" };
	struct dr_topo *t;
	struct dr_err e;
	int fd;

	(void)state;
	assert_int_equal(dr_topo_create(&p, &t, &e), -ENOENT);
	assert_non_null(strstr(e.text, p.xml));
	fd = mkstemp(name);
	assert_true(fd >= 0);
	p.xml = name;
	for (size_t i = 0; i < DR_ARRAY_LEN(texts); i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, texts[i], strlen(texts[i]), 0), strlen(texts[i]));
		assert_int_equal(dr_topo_create(&p, &t, &e), -EBADMSG);
		assert_non_null(strstr(e.text, "lstopo"));
	}
	close(fd);
	unlink(name);
}

/* Whatever this machine is: it can be read, and every NIC that rtnetlink calls one is there. */
static void this_machine_can_be_read(void **state)
{
	struct dr_topo *t = load(NULL);
	struct dr_netdev *devs;
	struct dr_err e;
	size_t n;

	(void)state;
	assert_true(t->live);
	assert_true(t->n_nodes >= 1);
	assert_int_equal(dr_netdev_list(&devs, &n, &e), 0);
	for (size_t i = 0; i < n; i++) {
		bool global = false;

		for (unsigned k = 0; k < devs[i].n_addrs; k++)
			global = global || devs[i].addrs[k].global;
		if (devs[i].loopback)
			assert_null(dr_topo_find_nic(t, devs[i].name));
		else if (global)
			assert_non_null(dr_topo_find_nic(t, devs[i].name));
	}
	dr_netdev_list_free(devs);
	dr_topo_destroy(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_machines_map_as_expected),
		cmocka_unit_test(the_order_of_the_input_does_not_matter),
		cmocka_unit_test(nics_are_read_with_what_the_file_says),
		cmocka_unit_test(what_is_no_rail_says_why),
		cmocka_unit_test(gpus_come_in_the_callers_order),
		cmocka_unit_test(a_file_that_is_none_is_refused),
		cmocka_unit_test(this_machine_can_be_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
