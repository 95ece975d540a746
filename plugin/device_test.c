/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device.h"

#include "base/mem.h"
#include "topology/topo_priv.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * Hosts put together from the PCI tree of a fixture, network devices as rtnetlink tells them, and a folder that stands
 * for /sys. The lines that the choice logs are kept.
 */
struct bed {
	struct dr_topo *topo;
	hwloc_topology_t hw;
	char sys[32];
	struct dr_netdev dev[HA_DEVICES_MAX + 4];
	struct ha_nics have;
	struct ha_port port[8];
	struct ha_devices list;
	char lines[8192];
};

static void keep(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	struct bed *b = arg;
	size_t at = strlen(b->lines);

	assert_string_equal(component, "devices");
	snprintf(b->lines + at, sizeof(b->lines) - at, "%s %s\n",
		level == DR_LOG_WARN ? "warn" : "info", text);
}

static struct bed *open_bed(const char *machine)
{
	struct bed *b = dr_calloc(1, sizeof(*b));
	struct dr_err e;

	assert_non_null(b);
	b->topo = dr_calloc(1, sizeof(*b->topo));
	assert_non_null(b->topo);
	assert_int_equal(dr_topo_hw_open(machine, &b->hw, &e), 0);
	snprintf(b->sys, sizeof(b->sys), "/tmp/dr-sysfs-XXXXXX");
	assert_non_null(mkdtemp(b->sys));
	b->have =
		(struct ha_nics){ .dev = b->dev, .sysfs = b->sys, .files = 65536, .ports = 28232 };
	return b;
}

static int dgx(void **state)
{
	*state = open_bed("tests/fixtures/topology/dgx.xml");
	return 0;
}

static int dual_port(void **state)
{
	*state = open_bed("tests/fixtures/topology/dual-port.xml");
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

	dr_log_set_sink(NULL, NULL);
	nftw(b->sys, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	hwloc_topology_destroy(b->hw);
	dr_topo_destroy(b->topo);
	dr_free(b);
	return 0;
}

static void give(struct dr_netdev *d, const char *addr, unsigned prefix)
{
	struct dr_netdev_addr *a = &d->addrs[d->n_addrs++];

	assert_int_equal(dr_netdev_addr_parse(addr, &a->addr), 0);
	a->prefix = prefix;
	a->global = !d->loopback;
}

/* A device that is up; pci, kind and addr may be "". */
static struct dr_netdev *add(
	struct bed *b, const char *name, const char *pci, const char *kind, const char *addr)
{
	struct dr_netdev *d = &b->dev[b->have.n++];

	assert_true(b->have.n <= DR_ARRAY_LEN(b->dev));
	snprintf(d->name, sizeof(d->name), "%s", name);
	snprintf(d->pci, sizeof(d->pci), "%s", pci);
	snprintf(d->kind, sizeof(d->kind), "%s", kind);
	d->ifindex = (int)b->have.n;
	d->mac[0] = 2;
	d->mac[5] = (uint8_t)b->have.n;
	d->up = d->running = true;
	d->loopback = strcmp(kind, "lo") == 0;
	d->speed_mbps = kind[0] ? -1 : 100000;
	d->mtu = 9000;
	if (addr[0])
		give(d, addr, d->loopback ? 8 : 24);
	return d;
}

/* vars: up to 4 variables. Returns what ha_devices_choose returns. */
static int choose(struct bed *b, struct dr_err *e, const char *const *vars)
{
	const struct ha_host host = { .cpus = 8, .name = "n" };
	struct ha_config c;
	char copy[4][128];
	char *env[5] = { NULL };

	for (unsigned i = 0; vars[i]; i++) {
		snprintf(copy[i], sizeof(copy[i]), "%s", vars[i]);
		env[i] = copy[i];
	}
	assert_int_equal(ha_config_parse(&c, env, &host, e), 0);
	b->topo->n_nics = 0;
	assert_int_equal(dr_topo_live_nics(b->topo, b->hw, b->sys, b->dev, b->have.n, e), 0);
	b->have.topo = b->topo;
	b->lines[0] = '\0';
	dr_log_set_level(DR_LOG_INFO);
	dr_log_set_sink(keep, b);
	int rc = ha_devices_choose(&b->have, &c, &b->list, e);
	dr_log_set_sink(NULL, NULL);
	return rc;
}
#define VARS(...)                                                                                  \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__ __VA_OPT__(, ) NULL                                                    \
	}

/* The names of the devices that are chosen with one variable ("": none), in their order. */
static const char *names(struct bed *b, const char *var)
{
	static char text[512];
	struct dr_err e;

	if (choose(b, &e, var[0] ? VARS(var) : VARS()) < 0)
		fail_msg("%s", e.text);
	text[0] = '\0';
	for (unsigned i = 0; i < b->list.n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
			b->list.dev[i].name);
	return text;
}

static const struct ha_device *device(const struct bed *b, const char *name)
{
	for (unsigned i = 0; i < b->list.n; i++)
		if (strcmp(b->list.dev[i].name, name) == 0)
			return &b->list.dev[i];
	fail_msg("%s is not in the list", name);
	return NULL;
}

static const char *shadow(const struct bed *b, const char *name)
{
	const struct ha_device *d = device(b, name);

	return d->shadow < 0 ? "none" : b->list.dev[d->shadow].name;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* ---- which devices ---- */

static void order_is_pci_place_then_name(void **state)
{
	struct bed *b = *state;

	add(b, "veth10", "", "veth", "10.0.10.1");
	add(b, "veth9", "", "veth", "10.0.9.1");
	add(b, "a", "0000:94:00.0", "", "10.0.4.1");
	add(b, "z", "0000:14:00.0", "", "10.0.1.1");
	assert_string_equal(names(b, ""), "z a veth9 veth10");
}

static void what_is_no_rail_is_left_out(void **state)
{
	struct bed *b = *state;

	add(b, "lo", "", "lo", "127.0.0.1");
	add(b, "eth0", "0000:14:00.0", "", "10.0.0.1");
	add(b, "eth1", "0000:15:00.0", "", "10.0.1.1");
	add(b, "eth2", "0000:24:00.0", "", "10.0.2.1")->running = false;
	add(b, "eth3", "0000:25:00.0", "", "10.0.3.1")->up = false;
	add(b, "eth4", "0000:94:00.0", "", "");
	add(b, "tun0", "", "tun", "10.1.0.1");
	add(b, "wg0", "", "wireguard", "10.1.1.1");
	add(b, "slow", "0000:00:1f.0", "", "10.1.2.1")->speed_mbps = 1000;
	add(b, "docker0", "", "bridge", "172.17.0.1");
	add(b, "veth7", "", "veth", "")->master = b->dev[9].ifindex;
	struct dr_netdev *bond = add(b, "bond0", "", "bond", "10.1.3.1");
	add(b, "slave", "0000:95:00.0", "", "10.1.4.1")->master = bond->ifindex;
	bond->speed_mbps = 100000;
	assert_string_equal(names(b, ""), "eth0 eth1 bond0");
	assert_has(b->lines, "info eth2 is not used: no carrier; name it in HA_NCCL_DEVICES");
	assert_has(b->lines, "eth3 is not used: down");
	assert_has(b->lines, "tun0 is not used: tunnel or another virtual device");
	assert_has(b->lines, "slow is not used: slower than a tenth of the fastest");
	assert_has(b->lines, "docker0 is not used: bridge without a physical port");
	assert_has(b->lines, "slave is not used: belongs to a bond or bridge");
	assert_null(strstr(b->lines, "lo is"));
	assert_null(strstr(b->lines, "eth4"));
}

static void a_bridge_over_a_nic_is_a_device(void **state)
{
	struct bed *b = *state;

	add(b, "br0", "", "bridge", "10.0.0.1");
	add(b, "eth0", "0000:14:00.0", "", "")->master = b->dev[0].ifindex;
	add(b, "vrf0", "", "vrf", "10.5.0.1");
	add(b, "eth1", "0000:15:00.0", "", "10.0.1.1")->master = b->dev[2].ifindex;
	assert_string_equal(names(b, ""), "eth1 br0");
}

static void the_default_route_tells_the_management_device(void **state)
{
	struct bed *b = *state;

	add(b, "eth0", "0000:14:00.0", "", "10.0.0.1");
	add(b, "eth1", "0000:24:00.0", "", "10.0.1.1");
	b->have.default_ifindex = b->dev[0].ifindex;
	assert_string_equal(names(b, ""), "eth0 eth1"); /* it is needed as the second rail */
	/* Another VLAN of the same port is no second rail either. */
	add(b, "eth1.7", "", "vlan", "10.7.0.1")->link = b->dev[1].ifindex;
	assert_string_equal(names(b, ""), "eth0 eth1 eth1.7");
	add(b, "eth2", "0000:94:00.0", "", "10.0.2.1");
	assert_string_equal(names(b, ""), "eth1 eth2 eth1.7");
	assert_has(b->lines, "eth0 is not used: management NIC: it has the default route");
	assert_string_equal(names(b, "NCCL_SOCKET_IFNAME=eth"), "eth0 eth1 eth2 eth1.7");
}

static void names_select_what_they_name(void **state)
{
	struct bed *b = *state;
	struct dr_err e;

	add(b, "lo", "", "lo", "127.0.0.1");
	add(b, "eth1", "0000:14:00.0", "", "10.0.1.1");
	add(b, "eth10", "0000:15:00.0", "", "10.0.10.1");
	add(b, "tun0", "", "tun", "10.1.0.1");
	add(b, "slow", "0000:00:1f.0", "", "10.1.2.1")->speed_mbps = 1000;
	assert_string_equal(names(b, "NCCL_SOCKET_IFNAME=eth1"), "eth1 eth10");
	assert_string_equal(names(b, "NCCL_SOCKET_IFNAME==eth1"), "eth1");
	assert_string_equal(names(b, "NCCL_SOCKET_IFNAME=^eth10"), "eth1");
	assert_string_equal(names(b, "HA_NCCL_DEVICES=tun,slow,eth1"), "slow eth1 eth10 tun0");
	assert_string_equal(names(b, "HA_NCCL_DEVICES=lo"), "lo");
	assert_int_equal(device(b, "lo")->n_addrs, 1);
	assert_string_equal(b->lines, "");
	assert_string_equal(names(b, "NCCL_SOCKET_IFNAME==eth1,eth,nosuch0"), "eth1");
	assert_has(b->lines,
		"warn NCCL_SOCKET_IFNAME: there is no eth, nosuch0 here; this host has lo, ");
	assert_int_equal(
		choose(b, &e, VARS("HA_NCCL_DEVICES==eth10", "NCCL_SOCKET_IFNAME=eth1")), 0);
	assert_int_equal(b->list.n, 1);
	b->dev[1].running = false;
	assert_string_equal(names(b, "NCCL_SOCKET_IFNAME=eth"), "eth10");
	assert_string_equal(b->lines, "warn eth1 is not used: no carrier\n");
}

static void without_a_device_the_error_says_what_there_is(void **state)
{
	struct bed *b = *state;
	struct dr_err e;

	add(b, "lo", "", "lo", "127.0.0.1");
	add(b, "eth1", "0000:14:00.0", "", "")->up = false;
	assert_int_equal(choose(b, &e, VARS()), -ENODEV);
	assert_string_equal(e.text, "no network device is up with a carrier and a global address; "
				    "name one in HA_NCCL_DEVICES (this host has lo, eth1)");
	assert_int_equal(choose(b, &e, VARS("NCCL_SOCKET_IFNAME=ib,eth")), -ENODEV);
	assert_string_equal(e.text,
		"NCCL_SOCKET_IFNAME=ib,eth: no such device is up with a carrier "
		"and a usable address; this host has lo, eth1");
}

static void the_family_selects_addresses(void **state)
{
	struct bed *b = *state;
	struct dr_netdev *d = add(b, "eth1", "0000:14:00.0", "", "10.0.1.1");

	give(d, "fd00::1", 64);
	give(d, "fe80::1", 64);
	d->addrs[2].global = false;
	add(b, "eth2", "0000:15:00.0", "", "10.0.2.1");
	assert_string_equal(names(b, ""), "eth1 eth2");
	assert_int_equal(device(b, "eth1")->n_addrs, 2);
	assert_int_equal(device(b, "eth1")->addr[0].prefix, 24);
	assert_int_equal(device(b, "eth1")->addr[1].prefix, 64);
	assert_int_equal(device(b, "eth2")->n_addrs, 1);
	assert_string_equal(names(b, "NCCL_SOCKET_FAMILY=AF_INET6"), "eth1");
	assert_has(b->lines, "eth2 is not used: no global address of its own");
	assert_int_equal(device(b, "eth1")->n_addrs, 1);
	assert_string_equal(names(b, "NCCL_SOCKET_FAMILY=AF_INET"), "eth1 eth2");
	assert_int_equal(device(b, "eth1")->addr[0].addr.ss_family, AF_INET);
}

static void more_than_can_be_offered(void **state)
{
	struct bed *b = *state;
	char name[16], addr[16];

	for (unsigned i = 0; i < HA_DEVICES_MAX + 2; i++) {
		snprintf(name, sizeof(name), "v%02u", HA_DEVICES_MAX + 2 - i);
		snprintf(addr, sizeof(addr), "10.0.%u.1", i);
		add(b, name, "", "veth", addr);
	}
	assert_has(names(b, ""), "v01 v02 v03 ");
	assert_int_equal(b->list.n, HA_DEVICES_MAX);
	assert_has(b->lines, "warn 66 devices can be used, 64 is the limit");
}

/* ---- places ---- */

static void put_link(const struct bed *b, const char *path, const char *to)
{
	char full[PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", b->sys, path);
	for (char *s = strchr(full + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		mkdir(full, 0755);
		*s = '/';
	}
	if (to)
		assert_int_equal(symlink(to, full), 0);
	else
		mkdir(full, 0755);
}

static void the_pci_path_is_the_real_one(void **state)
{
	struct bed *b = *state;
	char want[PATH_MAX], real[PATH_MAX];
	struct nccl_net_properties_v12 p;

	put_link(b, "devices/pci0000:10/0000:10:01.0/0000:14:00.0", NULL);
	put_link(b, "bus/pci/devices/0000:14:00.0",
		"../../../devices/pci0000:10/0000:10:01.0/0000:14:00.0");
	assert_non_null(realpath(b->sys, real));
	snprintf(want, sizeof(want), "%.4000s/devices/pci0000:10/0000:10:01.0/0000:14:00.0", real);
	add(b, "eth1", "0000:14:00.0", "", "10.0.1.1");
	add(b, "eth2", "0000:15:00.0", "", "10.0.2.1"); /* not in this sysfs */
	add(b, "veth0", "", "veth", "10.0.3.1");
	names(b, "");
	assert_string_equal(device(b, "eth1")->pci_path, want);
	assert_string_equal(device(b, "eth2")->pci_path, "");
	ha_device_properties(&b->list, 0, &p);
	assert_string_equal(p.pciPath, want);
	ha_device_properties(&b->list, 2, &p);
	assert_string_equal(p.name, "veth0");
	assert_null(p.pciPath);
}

static void one_port_has_one_guid_and_port(void **state)
{
	struct bed *b = *state;

	add(b, "p0", "0000:31:00.0", "", "10.0.0.1");
	add(b, "p1", "0000:31:00.1", "", "10.0.1.1");
	add(b, "q0", "0000:b1:00.0", "", "10.0.2.1");
	add(b, "q1", "0000:b1:00.1", "", "10.0.3.1");
	add(b, "vlan", "", "vlan", "10.7.0.1")->link = b->dev[1].ifindex;
	add(b, "va", "", "veth", "10.8.0.1");
	add(b, "vb", "", "veth", "10.9.0.1");
	add(b, "v0", "", "vlan", "10.6.0.1")->link = b->dev[0].ifindex; /* counts once with p0 */
	assert_string_equal(names(b, ""), "p0 p1 q0 q1 v0 va vb vlan");
	assert_true(device(b, "p0")->guid == device(b, "p1")->guid);
	assert_int_equal(device(b, "p0")->port, 1);
	assert_int_equal(device(b, "p1")->port, 2);
	assert_true(device(b, "q0")->guid == device(b, "q1")->guid);
	assert_true(device(b, "q0")->guid != device(b, "p0")->guid);
	assert_true(device(b, "vlan")->guid == device(b, "p1")->guid);
	assert_int_equal(device(b, "vlan")->port, 2);
	assert_true(device(b, "va")->guid != device(b, "vb")->guid);
	assert_int_equal(device(b, "va")->port, 1);

	/* They do not depend on the selection, but on the host. */
	uint64_t guid = device(b, "p1")->guid;
	names(b, "NCCL_SOCKET_IFNAME==p1");
	assert_true(device(b, "p1")->guid == guid);
	assert_int_equal(device(b, "p1")->port, 2);
	b->dev[0].mac[4] ^= 1;
	b->dev[1].mac[4] ^= 1;
	names(b, "");
	assert_true(device(b, "p1")->guid != guid);
}

/* ---- shadows ---- */

static void shadows_are_on_another_switch(void **state)
{
	struct bed *b = *state;

	add(b, "eth0", "0000:14:00.0", "", "10.0.0.1");
	add(b, "eth1", "0000:15:00.0", "", "10.0.1.1");
	add(b, "eth2", "0000:24:00.0", "", "10.0.2.1");
	add(b, "eth3", "0000:25:00.0", "", "10.0.3.1");
	add(b, "eth4", "0000:94:00.0", "", "10.0.4.1");
	add(b, "eth6", "0000:a4:00.0", "", "10.0.6.1");
	names(b, "");
	assert_string_equal(shadow(b, "eth0"), "eth2");
	assert_string_equal(shadow(b, "eth2"), "eth0");
	assert_string_equal(shadow(b, "eth1"), "eth3");
	assert_string_equal(shadow(b, "eth3"), "eth1");
	assert_string_equal(shadow(b, "eth4"), "eth6");
	assert_string_equal(shadow(b, "eth6"), "eth4");
}

static void another_card_comes_before_another_port(void **state)
{
	struct bed *b = *state;

	add(b, "p0", "0000:31:00.0", "", "10.0.0.1");
	add(b, "p1", "0000:31:00.1", "", "10.0.1.1");
	names(b, "");
	assert_string_equal(shadow(b, "p0"), "p1");
	assert_string_equal(shadow(b, "p1"), "p0");
	add(b, "q0", "0000:b1:00.0", "", "10.0.2.1");
	add(b, "q1", "0000:b1:00.1", "", "10.0.3.1");
	names(b, "");
	assert_string_equal(shadow(b, "p0"), "q0");
	assert_string_equal(shadow(b, "q0"), "p0");
	assert_string_equal(shadow(b, "p1"), "q1");
	assert_string_equal(shadow(b, "q1"), "p1");
}

static void no_shadow_on_the_same_port(void **state)
{
	struct bed *b = *state;
	struct dr_err e;

	add(b, "p0", "0000:31:00.0", "", "10.0.0.1");
	names(b, "");
	assert_string_equal(shadow(b, "p0"), "none");
	add(b, "p0.7", "", "vlan", "10.7.0.1")->link = b->dev[0].ifindex;
	names(b, "");
	assert_string_equal(shadow(b, "p0"), "none");
	assert_string_equal(shadow(b, "p0.7"), "none");
	add(b, "veth0", "", "veth", "10.8.0.1");
	names(b, "");
	assert_string_equal(shadow(b, "p0"), "veth0");
	assert_string_equal(shadow(b, "p0.7"), "veth0");
	assert_int_equal(choose(b, &e, VARS("HA_NCCL_ENABLE_BACKUP=0")), 0);
	assert_string_equal(shadow(b, "p0"), "none");
}

/* Without a PCI tree every device is a port of its own. */
static void an_unknown_topology(void **state)
{
	struct bed *b = *state;
	const struct ha_host host = { .cpus = 1, .name = "" };
	char *env[] = { NULL };
	struct ha_config c;

	add(b, "eth0", "0000:31:00.0", "", "10.0.0.1");
	add(b, "eth1", "0000:31:00.1", "", "10.0.1.1");
	add(b, "eth2", "", "veth", "10.0.2.1");
	assert_int_equal(ha_config_parse(&c, env, &host, NULL), 0);
	assert_int_equal(ha_devices_choose(&b->have, &c, &b->list, NULL), 0);
	assert_int_equal(b->list.n, 3);
	assert_string_equal(shadow(b, "eth0"), "eth1");
	assert_true(device(b, "eth0")->guid != device(b, "eth1")->guid);
}

/* ---- properties ---- */

static void speed_of_link_override_and_default(void **state)
{
	struct bed *b = *state;
	struct nccl_net_properties_v12 p;

	add(b, "eth0", "0000:14:00.0", "", "10.0.0.1")->speed_mbps = 200000;
	add(b, "veth0", "", "veth", "10.0.1.1");
	names(b, "");
	ha_device_properties(&b->list, 0, &p);
	assert_int_equal(p.speed, 200000);
	ha_device_properties(&b->list, 1, &p);
	assert_int_equal(p.speed, HA_SPEED_UNKNOWN_MBPS);
	names(b, "HA_NCCL_SPEED=400000");
	ha_device_properties(&b->list, 1, &p);
	assert_int_equal(p.speed, 400000);
}

static void comms_follow_descriptors_and_ports(void **state)
{
	struct bed *b = *state;

	add(b, "eth0", "0000:14:00.0", "", "10.0.0.1");
	add(b, "eth1", "0000:24:00.0", "", "10.0.1.1");
	b->have.files = 1024;
	names(b, "");
	assert_int_equal(b->list.max_comms, (1024 - 256) / 2 / 2);
	names(b, "HA_NCCL_DEVICES==eth0");
	assert_int_equal(b->list.max_comms, (1024 - 256) / 2);
	b->have.files = 100;
	names(b, "");
	assert_int_equal(b->list.max_comms, 1);
	b->have.files = UINT64_MAX;
	b->have.ports = 28232;
	names(b, "");
	assert_int_equal(b->list.max_comms, 14116);
}

static void fixed_properties(void **state)
{
	struct bed *b = *state;
	struct nccl_net_properties_v12 p;

	add(b, "eth0", "0000:14:00.0", "", "10.0.0.1");
	add(b, "eth1", "0000:24:00.0", "", "10.0.1.1");
	names(b, "");
	memset(&p, 0x5a, sizeof(p));
	ha_device_properties(&b->list, 1, &p);
	assert_ptr_equal(p.name, b->list.dev[1].name);
	assert_int_equal(p.ptrSupport, NCCL_PTR_HOST);
	assert_false(p.regIsGlobal || p.forceFlush);
	assert_int_equal(p.maxRecvs, 8);
	assert_int_equal(p.vProps.devs[0], 1);
	assert_true(p.maxP2pBytes > 0 && p.maxP2pBytes <= INT_MAX);
	assert_int_equal(p.maxMultiRequestSize, 1);
	assert_int_equal(p.railId, -1);
	assert_int_equal(p.planeId, -1);
}

/* ---- ports of RDMA devices ---- */

static struct ha_port *rdma(
	struct bed *b, const char *device, unsigned port, unsigned ports, const char *ifname)
{
	struct ha_port *p = &b->port[b->have.n_ports++];

	assert_true(b->have.n_ports <= DR_ARRAY_LEN(b->port));
	b->have.port = b->port;
	*p = (struct ha_port){
		.own = { .port = port, .ports = ports, .active = true, .connections = 9000 }
	};
	snprintf(p->own.device, sizeof(p->own.device), "%s", device);
	snprintf(p->own.ifname, sizeof(p->own.ifname), "%s", ifname);
	return p;
}

/* As names(), over verbs. */
static const char *ports(struct bed *b, const char *var)
{
	static char text[512];
	struct dr_err e;
	int rc = var[0] ? choose(b, &e, VARS("HA_NCCL_TRANSPORT=verbs", var))
			: choose(b, &e, VARS("HA_NCCL_TRANSPORT=verbs"));

	if (rc < 0)
		return snprintf(text, sizeof(text), "%s", e.text), text;
	text[0] = '\0';
	for (unsigned i = 0; i < b->list.n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s=%s", i ? " " : "",
			b->list.dev[i].name, b->list.dev[i].ifname);
	return text;
}

static void four_ports(struct bed *b)
{
	add(b, "mgmt", "0000:00:1f.0", "", "10.9.0.1")->speed_mbps = 1000;
	add(b, "eth1", "0000:15:00.0", "", "10.0.1.1");
	add(b, "eth0", "0000:14:00.0", "", "10.0.0.1");
	add(b, "ib0", "0000:94:00.0", "", "10.0.2.1");
	add(b, "ib1", "0000:94:00.0", "", "10.0.3.1");
	rdma(b, "mlx5_1", 1, 1, "eth1");
	rdma(b, "mlx5_0", 1, 1, "eth0");
	rdma(b, "mlx4_0", 1, 2, "ib0");
	rdma(b, "mlx4_0", 2, 2, "ib1")->own.connections = 500;
}

static void active_ports_are_devices(void **state)
{
	struct bed *b = *state;
	struct nccl_net_properties_v12 p;

	four_ports(b);
	assert_string_equal(ports(b, ""), "mlx5_0=eth0 mlx5_1=eth1 mlx4_0:1=ib0 mlx4_0:2=ib1");
	assert_int_equal(b->list.n_boot, 0);
	assert_int_equal(b->list.max_comms, 250); /* two of the connections of each device */
	ha_device_properties(&b->list, 3, &p);
	assert_string_equal(p.name, "mlx4_0:2");
	assert_int_equal(p.ptrSupport, NCCL_PTR_HOST);
	assert_int_equal(p.speed, 100000);
	assert_int_not_equal(device(b, "mlx5_0")->shadow, -1);
	assert_string_equal(ports(b, "HA_NCCL_ENABLE_BACKUP=0"),
		"mlx5_0=eth0 mlx5_1=eth1 mlx4_0:1=ib0 mlx4_0:2=ib1");
	assert_int_equal(device(b, "mlx5_0")->shadow, -1);
	/* Network devices of other transports are as before. */
	assert_string_equal(names(b, "HA_NCCL_TRANSPORT=tcp"), "eth0 eth1 ib0 ib1");
}

static void the_hca_list_admits_ports(void **state)
{
	struct bed *b = *state;

	four_ports(b);
	assert_string_equal(ports(b, "NCCL_IB_HCA=mlx5"), "mlx5_0=eth0 mlx5_1=eth1");
	assert_string_equal(ports(b, "NCCL_IB_HCA==mlx5"),
		"NCCL_IB_HCA==mlx5: no RDMA device with an active port and an address can be used; this host "
		"has mlx5_1, mlx5_0, mlx4_0:1, mlx4_0:2; use HA_NCCL_TRANSPORT=tcp, or see the reasons with "
		"NCCL_DEBUG=INFO");
	assert_string_equal(ports(b, "NCCL_IB_HCA=mlx4_0:2,=mlx5"), "mlx4_0:2=ib1");
	assert_string_equal(ports(b, "NCCL_IB_HCA==mlx4_0:2,mlx5_1:1"), "mlx5_1=eth1 mlx4_0:2=ib1");
	assert_string_equal(
		ports(b, "NCCL_IB_HCA=^mlx4_0:1"), "mlx5_0=eth0 mlx5_1=eth1 mlx4_0:2=ib1");
	assert_string_equal(
		ports(b, "NCCL_IB_HCA=^=mlx5_0,mlx5"), "mlx5_1=eth1 mlx4_0:1=ib0 mlx4_0:2=ib1");
}

static void ports_that_cannot_carry_a_rail_are_left_out(void **state)
{
	struct bed *b = *state;

	four_ports(b);
	b->port[0].own.active = false;
	rdma(b, "rxe9", 1, 1, "");
	rdma(b, "rxe8", 1, 1, "other");
	rdma(b, "rxe7", 1, 1, "eth0");
	snprintf(b->port[2].why, sizeof(b->port[2].why), "no GID");
	b->dev[4].running = false;
	assert_string_equal(ports(b, ""), "mlx5_0=eth0");
	assert_has(b->lines, "info mlx5_1 is not used: its port is not active");
	assert_has(b->lines, "info rxe9 is not used: it has no network device");
	assert_has(b->lines, "info rxe8 is not used: it has no network device");
	assert_has(
		b->lines, "info rxe7 is not used: another RDMA device has the same network device");
	assert_has(b->lines, "info mlx4_0:1 is not used: no GID");
	assert_has(b->lines, "info mlx4_0:2 is not used: no carrier");
	/* The other one of a network device steps in. */
	assert_string_equal(ports(b, "NCCL_IB_HCA=^mlx5_0"), "rxe7=eth0");
	assert_string_equal(ports(b, "NCCL_IB_HCA=mlx5_0,mlx5_1"), "mlx5_0=eth0");
	assert_has(b->lines, "warn mlx5_1 is not used");
}

static void named_network_devices_are_those_of_the_rendezvous(void **state)
{
	struct bed *b = *state;

	four_ports(b);
	assert_string_equal(ports(b, "NCCL_SOCKET_IFNAME=mgmt"),
		"mlx5_0=eth0 mlx5_1=eth1 mlx4_0:1=ib0 mlx4_0:2=ib1");
	assert_int_equal(b->list.n_boot, 1);
	assert_string_equal(b->list.boot[0].ifname, "mgmt");
	assert_int_equal(b->list.boot[0].n_addrs, 1);
	assert_has(ports(b, "NCCL_SOCKET_IFNAME=none"), "NCCL_SOCKET_IFNAME=none: no such device");
}

#define DGX(f) cmocka_unit_test_setup_teardown(f, dgx, tear_down)
#define DUAL(f) cmocka_unit_test_setup_teardown(f, dual_port, tear_down)
int main(void)
{
	const struct CMUnitTest tests[] = {
		DGX(order_is_pci_place_then_name),
		DGX(what_is_no_rail_is_left_out),
		DGX(a_bridge_over_a_nic_is_a_device),
		DGX(the_default_route_tells_the_management_device),
		DGX(names_select_what_they_name),
		DGX(without_a_device_the_error_says_what_there_is),
		DGX(the_family_selects_addresses),
		DGX(more_than_can_be_offered),
		DGX(the_pci_path_is_the_real_one),
		DUAL(one_port_has_one_guid_and_port),
		DGX(shadows_are_on_another_switch),
		DUAL(another_card_comes_before_another_port),
		DUAL(no_shadow_on_the_same_port),
		DUAL(an_unknown_topology),
		DGX(speed_of_link_override_and_default),
		DGX(comms_follow_descriptors_and_ports),
		DGX(fixed_properties),
		DGX(active_ports_are_devices),
		DGX(the_hca_list_admits_ports),
		DGX(ports_that_cannot_carry_a_rail_are_left_out),
		DGX(named_network_devices_are_those_of_the_rendezvous),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
