/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * What a live machine shows in three places, put together: a PCI tree (of a fixture), network devices
 * as rtnetlink tells them, and a folder that stands for /sys.
 */
struct bed {
	struct dr_topo *topo;
	hwloc_topology_t hw;
	char sys[32];
	struct dr_netdev dev[12];
	size_t n;
};

static int set_up(void **state)
{
	struct bed *b = dr_calloc(1, sizeof(*b));
	struct dr_err e;

	assert_non_null(b);
	b->topo = dr_calloc(1, sizeof(*b->topo));
	assert_non_null(b->topo);
	assert_int_equal(dr_topo_hw_open("tests/fixtures/topology/dgx.xml", &b->hw, &e), 0);
	snprintf(b->sys, sizeof(b->sys), "/tmp/dr-sysfs-XXXXXX");
	assert_non_null(mkdtemp(b->sys));
	*state = b;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static int tear_down(void **state)
{
	struct bed *b = *state;

	nftw(b->sys, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	hwloc_topology_destroy(b->hw);
	dr_topo_destroy(b->topo);
	dr_free(b);
	return 0;
}

/* text NULL: only the folders. */
static void put(const struct bed *b, const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", b->sys, path);
	for (char *s = strchr(full + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		mkdir(full, 0755);
		*s = '/';
	}
	if (!text)
		return;
	f = fopen(full, "w");
	assert_non_null(f);
	fprintf(f, "%s\n", text);
	fclose(f);
}

static void put_link(const struct bed *b, const char *path, const char *to)
{
	char full[256];

	put(b, path, NULL);
	snprintf(full, sizeof(full), "%s/%s", b->sys, path);
	assert_int_equal(symlink(to, full), 0);
}

/* A device that is up; pci, kind and addr may be "". */
static struct dr_netdev *add(
	struct bed *b, const char *name, const char *pci, const char *kind, const char *addr)
{
	struct dr_netdev *d = &b->dev[b->n++];

	assert_true(b->n <= DR_ARRAY_LEN(b->dev));
	snprintf(d->name, sizeof(d->name), "%s", name);
	snprintf(d->pci, sizeof(d->pci), "%s", pci);
	snprintf(d->kind, sizeof(d->kind), "%s", kind);
	d->ifindex = (int)b->n;
	d->up = d->running = true;
	d->speed_mbps = 100000;
	d->mtu = 1500;
	if (addr[0]) {
		assert_int_equal(dr_netdev_addr_parse(addr, &d->addrs[0].addr), 0);
		d->addrs[0].prefix = 24;
		d->addrs[0].global = true;
		d->n_addrs = 1;
	}
	return d;
}

static void read_all(struct bed *b)
{
	struct dr_err e;

	assert_int_equal(dr_topo_live_nics(b->topo, b->hw, b->sys, b->dev, b->n, &e), 0);
	assert_int_equal(dr_topo_rdma(b->topo, b->hw, b->sys, &e), 0);
}

static const struct dr_topo_nic *nic(const struct bed *b, const char *name)
{
	const struct dr_topo_nic *n = dr_topo_find_nic(b->topo, name);

	assert_non_null(n);
	return n;
}

static void the_kernel_names_the_pci_device(void **state)
{
	struct bed *b = *state;
	struct dr_netdev *lo = add(b, "lo", "", "lo", "127.0.0.1");

	lo->loopback = true;
	add(b, "eth5", "0000:95:00.0", "", "10.0.5.1")->running = false;
	add(b, "eth6", "0000:ff:00.0", "", "10.0.6.1");
	read_all(b);
	assert_int_equal(b->topo->n_nics, 2);
	assert_string_equal(nic(b, "eth5")->bus_id, "0000:95:00.0");
	assert_int_equal(dr_topo_nic_numa(nic(b, "eth5")), 1);
	assert_int_equal(nic(b, "eth5")->up, 0);
	assert_int_equal(nic(b, "eth5")->n_addrs, 1);
	assert_int_equal(nic(b, "eth6")->n_places, 0); /* on no PCI device that there is */
}

/* Where the kernel does not say, hwloc's device of that name counts, if it is the same one. */
static void a_name_alone_is_not_enough(void **state)
{
	static const uint8_t mac[6] = { 2, 0, 0, 0, 9, 1 };
	struct bed *b = *state;

	memcpy(add(b, "eno1", "", "", "10.9.0.1")->mac, mac, 6);
	read_all(b);
	assert_string_equal(nic(b, "eno1")->bus_id, "0000:00:1f.0");
	b->topo->n_nics = 0;
	b->dev[0].mac[5]++;
	read_all(b);
	assert_string_equal(nic(b, "eno1")->bus_id, "");
	b->topo->n_nics = 0;
	b->dev[0].mac[5]--;
	snprintf(b->dev[0].kind, sizeof(b->dev[0].kind), "veth");
	read_all(b);
	assert_string_equal(nic(b, "eno1")->bus_id, "");
}

static void ports_are_told_apart(void **state)
{
	struct bed *b = *state;

	/* One function with two ports, a VF of the function, and one whose driver tells the port. */
	put(b, "bus/pci/devices/0000:14:00.0/net/p0/dev_port", "0");
	put(b, "bus/pci/devices/0000:14:00.0/net/p1/dev_port", "1");
	put_link(b, "bus/pci/devices/0000:15:00.0/physfn", "../0000:14:00.0");
	add(b, "p0", "0000:14:00.0", "", "");
	add(b, "p1", "0000:14:00.0", "", "");
	add(b, "vf", "0000:15:00.0", "", "");
	snprintf(add(b, "a", "0000:24:00.0", "", "")->port_id, 65, "b8cef603");
	snprintf(add(b, "b", "0000:25:00.0", "", "")->port_id, 65, "b8cef603");
	read_all(b);
	assert_string_not_equal(nic(b, "p0")->port, nic(b, "p1")->port);
	assert_string_equal(nic(b, "p0")->card, nic(b, "p1")->card);
	assert_string_equal(nic(b, "vf")->port, nic(b, "p0")->port);
	assert_true(nic(b, "vf")->vf);
	assert_string_equal(nic(b, "a")->port, nic(b, "b")->port);
	assert_string_not_equal(nic(b, "a")->port, nic(b, "p0")->port);
}

static void bonds_and_vlans_stand_where_their_ports_are(void **state)
{
	struct bed *b = *state;
	struct dr_netdev *bond = add(b, "bond0", "", "bond", "10.0.9.1");
	struct dr_netdev *near = add(b, "e0", "0000:14:00.0", "", "");
	struct dr_netdev *far = add(b, "e1", "0000:94:00.0", "", "");
	struct dr_netdev *vlan = add(b, "bond0.7", "", "vlan", "10.7.0.1");
	struct dr_netdev *single = add(b, "e2.7", "", "vlan", "10.7.2.1");
	struct dr_netdev *port = add(b, "e2", "0000:24:00.0", "", "");

	struct dr_netdev *vrf = add(b, "vrf0", "", "vrf", "10.8.0.1");

	near->master = far->master = bond->ifindex;
	port->master = vrf->ifindex;
	vlan->link = bond->ifindex;
	single->link = port->ifindex;
	read_all(b);
	assert_int_equal(nic(b, "bond0")->n_places, 2);
	assert_int_equal(dr_topo_nic_numa(nic(b, "bond0")), -1);
	assert_true(nic(b, "e0")->slave);
	assert_false(nic(b, "e2")->slave);
	assert_int_equal(nic(b, "bond0.7")->n_places, 2);
	assert_string_equal(nic(b, "bond0.7")->port, nic(b, "bond0")->port);
	assert_string_equal(nic(b, "e2.7")->port, nic(b, "e2")->port);
	assert_int_equal(dr_topo_nic_numa(nic(b, "e2.7")), 0);
}

static void containers_ends_are_no_nics(void **state)
{
	struct bed *b = *state;

	add(b, "veth1a2b", "", "veth", "");
	add(b, "tap0", "", "tun", "");
	add(b, "rail0", "", "veth", "10.99.0.1");
	read_all(b);
	assert_int_equal(b->topo->n_nics, 1);
	assert_string_equal(b->topo->nic[0].name, "rail0");
	assert_int_equal(b->topo->nic[0].n_places, 0);
}

#define RXE "class/infiniband/rxe0/ports/1/"
#define MLX "class/infiniband/mlx5_9/ports/1/"

static void the_gid_is_that_of_the_address(void **state)
{
	static const char mapped[] = "0000:0000:0000:0000:0000:ffff:0a00:0201";
	struct bed *b = *state;

	add(b, "eth2", "0000:24:00.0", "", "10.0.2.1");
	put(b, RXE "state", "4: ACTIVE");
	put(b, RXE "gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001");
	put(b, RXE "gid_attrs/ndevs/0", "eth2");
	put(b, RXE "gid_attrs/types/0", "RoCE v2");
	put(b, RXE "gids/1", mapped);
	put(b, RXE "gid_attrs/ndevs/1", "eth2");
	put(b, RXE "gid_attrs/types/1", "IB/RoCE v1");
	put(b, RXE "gids/2", mapped);
	put(b, RXE "gid_attrs/ndevs/2", "eth2");
	put(b, RXE "gid_attrs/types/2", "RoCE v2");
	put(b, RXE "gids/3", "0000:0000:0000:0000:0000:0000:0000:0000");
	read_all(b);
	assert_int_equal(b->topo->n_nics, 1);
	assert_string_equal(nic(b, "rxe0")->name, "eth2");
	assert_string_equal(nic(b, "eth2")->gid, mapped);
	assert_int_equal(nic(b, "eth2")->gid_index, 2);
}

/* InfiniBand: beside its IPoIB device when there is one, else a NIC of its own. */
static void an_rdma_device_without_gids_of_a_netdev(void **state)
{
	struct bed *b = *state;

	put(b, MLX "state", "4: ACTIVE");
	put(b, MLX "rate", "400 Gb/sec (4X NDR)");
	put(b, MLX "gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0009");
	put_link(b, "class/infiniband/mlx5_9/device", "../../../0000:a4:00.0");
	read_all(b);
	assert_false(nic(b, "mlx5_9")->netdev);
	assert_int_equal(nic(b, "mlx5_9")->up, 1);
	assert_int_equal(nic(b, "mlx5_9")->speed_mbps, 400000);
	assert_int_equal(dr_topo_nic_numa(nic(b, "mlx5_9")), 1);
	b->topo->n_nics = 0;
	add(b, "ib0", "0000:a4:00.0", "", "10.0.8.1")->speed_mbps = -1;
	read_all(b);
	assert_int_equal(b->topo->n_nics, 1);
	assert_string_equal(nic(b, "mlx5_9")->name, "ib0");
	assert_int_equal(nic(b, "ib0")->speed_mbps, 400000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_kernel_names_the_pci_device, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_name_alone_is_not_enough, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ports_are_told_apart, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			bonds_and_vlans_stand_where_their_ports_are, set_up, tear_down),
		cmocka_unit_test_setup_teardown(containers_ends_are_no_nics, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_gid_is_that_of_the_address, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_rdma_device_without_gids_of_a_netdev, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
