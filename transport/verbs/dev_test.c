/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/dev_priv.h"

#include "base/mem.h"
#include "transport/kind.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A host made of tables. Net devices are real ones for their indices: lo is in every namespace. */

enum { DEVS = 3, PORTS = 2, GIDS = 8, NOT_OURS = 99999 };

struct fake_port {
	struct ibv_port_attr attr;
	struct ibv_gid_entry gid[GIDS];
};

static struct host {
	int n;
	struct ibv_device dev[DEVS];
	struct ibv_context ctx[DEVS];
	uint8_t ports[DEVS];
	struct fake_port port[DEVS][PORTS + 1];
	int opened, closed, lists;
	const char *fail; /* this call fails with fail_errno */
	int fail_errno;
	unsigned one_entry, tables;
} host;

static bool fails(const char *name)
{
	if (!host.fail || strcmp(host.fail, name) != 0)
		return false;
	errno = host.fail_errno;
	return true;
}

static struct ibv_device **get_device_list(int *n)
{
	static struct ibv_device *list[DEVS + 1];

	if (fails("get_device_list"))
		return NULL;
	for (int i = 0; i < host.n; i++)
		list[i] = &host.dev[i];
	*n = host.n;
	host.lists++;
	return list;
}

static void free_device_list(struct ibv_device **list)
{
	(void)list;
	host.lists--;
}

static const char *get_device_name(struct ibv_device *d)
{
	return d->name;
}

static struct ibv_context *open_device(struct ibv_device *d)
{
	struct ibv_context *c = &host.ctx[d - host.dev];

	if (fails("open_device"))
		return NULL;
	host.opened++;
	c->device = d;
	return c;
}

static int close_device(struct ibv_context *c)
{
	(void)c;
	host.closed++;
	return 0;
}

static int query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	if (fails("query_device"))
		return errno;
	memset(a, 0, sizeof(*a));
	a->phys_port_cnt = host.ports[c - host.ctx];
	a->max_qp = 64;
	return 0;
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	if (fails("query_port"))
		return errno;
	*a = host.port[c - host.ctx][port].attr;
	return 0;
}

static int query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index,
	struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	(void)flags;
	assert_int_equal(size, sizeof(*e));
	if (fails("query_gid_ex"))
		return errno;
	assert_true(index < GIDS);
	host.one_entry++;
	*e = host.port[c - host.ctx][port].gid[index];
	return e->ndev_ifindex || e->gid.raw[0] ? 0 : ENODATA;
}

/* As the kernel does it: the valid ones of all ports, and nothing when there are more than max. */
static ssize_t query_gid_table(
	struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	size_t n = 0;

	(void)flags;
	assert_int_equal(size, sizeof(*e));
	if (fails("query_gid_table"))
		return -errno;
	host.tables++;
	for (unsigned port = 1; port <= host.ports[c - host.ctx]; port++)
		for (unsigned i = 0; i < GIDS; i++) {
			const struct ibv_gid_entry *g = &host.port[c - host.ctx][port].gid[i];

			if (!g->ndev_ifindex && !g->gid.raw[0])
				continue;
			if (n == max)
				return -EINVAL;
			e[n] = *g;
			e[n].port_num = port;
			e[n++].gid_index = i;
		}
	return (ssize_t)n;
}

static const char *port_state_str(enum ibv_port_state s)
{
	return s == IBV_PORT_DOWN ? "down" : "init";
}

static struct dr_ibv fake = {
	.get_device_list = get_device_list,
	.free_device_list = free_device_list,
	.get_device_name = get_device_name,
	.open_device = open_device,
	.close_device = close_device,
	.query_device = query_device,
	.query_port = query_port,
	.query_gid_ex = query_gid_ex,
	.query_gid_table = query_gid_table,
	.port_state_str = port_state_str,
};

static unsigned lo;

static void add_device(const char *name, uint8_t ports)
{
	int i = host.n++;

	snprintf(host.dev[i].name, sizeof(host.dev[i].name), "%s", name);
	host.dev[i].transport_type = IBV_TRANSPORT_IB;
	host.ports[i] = ports;
	for (int p = 1; p <= ports; p++)
		host.port[i][p].attr = (struct ibv_port_attr){ .state = IBV_PORT_ACTIVE,
			.active_mtu = IBV_MTU_1024,
			.max_msg_sz = 1 << 23,
			.gid_tbl_len = GIDS,
			.link_layer = IBV_LINK_LAYER_ETHERNET };
}

static void set_gid(
	int dev, int port, int index, const char *address, enum ibv_gid_type type, unsigned ndev)
{
	struct ibv_gid_entry *g = &host.port[dev][port].gid[index];

	memset(g, 0, sizeof(*g));
	assert_int_equal(inet_pton(AF_INET6, address, &g->gid), 1);
	g->gid_type = type;
	g->ndev_ifindex = ndev;
}

static int reset(void **state)
{
	(void)state;
	memset(&host, 0, sizeof(host));
	lo = if_nametoindex("lo");
	assert_int_not_equal(lo, 0);
	return 0;
}

/* Every context and list that was taken was given back. */
static int all_given_back(void **state)
{
	(void)state;
	assert_int_equal(host.opened, host.closed);
	assert_int_equal(host.lists, 0);
	return 0;
}

static struct dr_rail_params rail_of(const char *ifname, const char *address)
{
	struct dr_rail_params r = { .ifname = ifname };
	struct sockaddr_in *in = (struct sockaddr_in *)&r.local;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&r.local;

	if (inet_pton(AF_INET, address, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
	} else {
		assert_int_equal(inet_pton(AF_INET6, address, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
	}
	return r;
}

static int open_on(const char *ifname, const char *address, const struct dr_verbs_params *p,
	struct dr_verbs_dev *d, struct dr_err *e)
{
	struct dr_rail_params rail = rail_of(ifname, address);
	struct dr_verbs_params def;

	dr_verbs_params_init(&def);
	return dr_verbs_dev_open_on(&fake, &rail, p ? p : &def, d, e);
}

/* rxe0 on lo as a kernel fills it: default GIDs first, then v1 and v2 of each address. */
static void one_device(void)
{
	add_device("rxe0", 1);
	set_gid(0, 1, 0, "fe80::1", IBV_GID_TYPE_ROCE_V1, lo);
	set_gid(0, 1, 1, "fe80::1", IBV_GID_TYPE_ROCE_V2, lo);
	set_gid(0, 1, 2, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1, lo);
	set_gid(0, 1, 4, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, lo);
	set_gid(0, 1, 5, "fd00::1", IBV_GID_TYPE_ROCE_V1, lo);
}

/* ---- selection ---- */

static void v2_before_v1(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), 0);
	assert_int_equal(d.gid_index, 4);
	assert_int_equal(d.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_string_equal(d.name, "rxe0");
	assert_string_equal(d.ifname, "lo");
	assert_true(d.roce);
	assert_int_equal(d.port, 1);
	assert_int_equal(d.mtu, 1024);
	assert_int_equal(d.msg_max, 1 << 23);
	assert_int_equal(d.attr.max_qp, 64);
	dr_verbs_dev_close(&d);
	dr_verbs_dev_close(&d);
}

static void v1_alone_and_families(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	assert_int_equal(open_on("lo", "fd00::1", NULL, &d, &e), 0);
	assert_int_equal(d.gid_index, 5);
	assert_int_equal(d.gid_type, IBV_GID_TYPE_ROCE_V1);
	dr_verbs_dev_close(&d);
	/* No name: the address finds the device, and the device its name. */
	assert_int_equal(open_on("", "10.0.0.1", NULL, &d, &e), 0);
	assert_int_equal(d.gid_index, 4);
	assert_string_equal(d.ifname, "lo");
	dr_verbs_dev_close(&d);
}

/* The same address stands on another device too (other network namespace, VLAN). */
static void wrong_netdev_is_passed_over(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	add_device("mlx5_0", 1);
	set_gid(0, 1, 0, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, NOT_OURS);
	add_device("mlx5_1", 2);
	set_gid(1, 1, 0, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, NOT_OURS);
	set_gid(1, 2, 3, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, lo);
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), 0);
	assert_string_equal(d.name, "mlx5_1");
	assert_int_equal(d.port, 2);
	assert_int_equal(d.gid_index, 3);
	dr_verbs_dev_close(&d);
}

static void better_port_wins(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	add_device("a", 2);
	set_gid(0, 1, 0, "fe80::1", IBV_GID_TYPE_ROCE_V2, lo);
	set_gid(0, 2, 0, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1, lo);
	add_device("b", 1);
	set_gid(1, 1, 1, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, lo);
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), 0);
	assert_string_equal(d.name, "b");
	assert_int_equal(d.gid_index, 1);
	dr_verbs_dev_close(&d);
}

static void iwarp_is_left_alone(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	host.dev[0].transport_type = IBV_TRANSPORT_IWARP;
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), -ENODEV);
	assert_int_equal(host.opened, 1); /* for the list in the message only */
}

static void moved_index(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), 0);
	assert_int_equal(dr_verbs_dev_gid(&d), 0);
	set_gid(0, 1, 7, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, lo);
	memset(&host.port[0][1].gid[4], 0, sizeof(host.port[0][1].gid[4]));
	assert_int_equal(dr_verbs_dev_gid(&d), 1);
	assert_int_equal(d.gid_index, 7);
	assert_int_equal(dr_verbs_dev_gid(&d), 0);
	/* The v1 entry of the same value is not it. */
	memset(&host.port[0][1].gid[7], 0, sizeof(host.port[0][1].gid[7]));
	assert_int_equal(dr_verbs_dev_gid(&d), -ENOENT);
	assert_int_equal(d.gid_index, 7);
	host.fail = "query_port";
	host.fail_errno = EIO;
	assert_int_equal(dr_verbs_dev_gid(&d), -ENOENT);
	dr_verbs_dev_close(&d);
}

/* A walk costs one call a device. */
static void table_in_one_call(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), 0);
	assert_int_equal(host.tables, 1);
	assert_int_equal(host.one_entry, 0);
	memset(&host.port[0][1].gid[4], 0, sizeof(host.port[0][1].gid[4]));
	host.one_entry = host.tables = 0;
	assert_int_equal(dr_verbs_dev_gid(&d), -ENOENT);
	assert_int_equal(host.tables, 1);
	assert_int_equal(host.one_entry, 1);
	dr_verbs_dev_close(&d);
}

/* ---- InfiniBand, by sysfs ---- */

static char sys_dir[] = "/tmp/dr-dev-test-XXXXXX";

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void make_sysfs(const char *dev_port)
{
	char path[128];
	static const char *const parts[] = { "device", "device/net", "device/net/lo" };

	snprintf(sys_dir, sizeof(sys_dir), "/tmp/dr-dev-test-XXXXXX");
	assert_non_null(mkdtemp(sys_dir));
	for (size_t i = 0; i < DR_ARRAY_LEN(parts); i++) {
		snprintf(path, sizeof(path), "%s/%s", sys_dir, parts[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/device/net/lo/dev_port", sys_dir);
	write_file(path, dev_port);
}

static void remove_sysfs(void)
{
	static const char *const parts[] = { "/device/net/lo/dev_port", "/device/net/lo",
		"/device/net", "/device", "/parent", "" };
	char path[128];

	for (size_t i = 0; i < DR_ARRAY_LEN(parts); i++) {
		snprintf(path, sizeof(path), "%s%s", sys_dir, parts[i]);
		(void)remove(path);
	}
}

static void infiniband_port_of_ipoib(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;
	char name[IFNAMSIZ];

	(void)state;
	make_sysfs("1\n");
	add_device("mlx4_0", 2);
	snprintf(host.dev[0].ibdev_path, sizeof(host.dev[0].ibdev_path), "%s", sys_dir);
	for (int p = 1; p <= 2; p++) {
		host.port[0][p].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
		host.port[0][p].attr.lid = (uint16_t)(40 + p);
		set_gid(0, p, 0, "fe80::2", IBV_GID_TYPE_IB, 0);
	}
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), 0);
	assert_int_equal(d.port, 2);
	assert_int_equal(d.lid, 42);
	assert_false(d.roce);
	assert_int_equal(d.gid_index, 0);
	dr_verbs_dev_close(&d);
	assert_int_equal(dr_verbs_netdev_of_on(&fake, "mlx4_0:2", name, sizeof(name), &e), 0);
	assert_string_equal(name, "lo");
	assert_int_equal(dr_verbs_netdev_of_on(&fake, "mlx4_0", name, sizeof(name), &e), -ENODEV);
	host.port[0][2].attr.state = IBV_PORT_INIT;
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), -ENETDOWN);
	assert_non_null(strstr(e.text, "subnet manager"));
	remove_sysfs();
}

/* A software device whose net device has no address at all has an empty table. */
static void software_device_by_its_parent(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;
	char path[128];

	(void)state;
	make_sysfs("0\n");
	snprintf(path, sizeof(path), "%s/parent", sys_dir);
	write_file(path, "lo\n");
	add_device("rxe0", 1);
	snprintf(host.dev[0].ibdev_path, sizeof(host.dev[0].ibdev_path), "%s", sys_dir);
	host.port[0][1].attr.state = IBV_PORT_DOWN;
	assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), -ENETDOWN);
	assert_non_null(strstr(e.text, "rxe0 port 1 (lo) is down, not active"));
	assert_non_null(strstr(e.text, "ip link set lo up"));
	remove_sysfs();
}

/* ---- errors in words ---- */

static void no_device_lists_what_is_there(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	assert_int_equal(open_on("eth7", "10.0.0.1", NULL, &d, &e), -ENODEV);
	assert_non_null(strstr(e.text, "none on this host"));
	assert_non_null(strstr(e.text, "rdma link add rxe0 type rxe netdev eth7"));
	one_device();
	add_device("mlx5_0", 2);
	set_gid(1, 2, 0, "fe80::9", IBV_GID_TYPE_ROCE_V2, lo);
	assert_int_equal(open_on("eth7", "10.0.0.1", NULL, &d, &e), -ENODEV);
	assert_non_null(strstr(e.text, "rxe0 (lo), mlx5_0 (no netdev), mlx5_0:2 (lo)"));
	assert_non_null(strstr(e.text, "rdma link add rxe0 type rxe netdev eth7"));
}

static void address_without_gid(void **state)
{
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	assert_int_equal(open_on("lo", "10.0.0.2", NULL, &d, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "rxe0 port 1 (lo) has no GID for 10.0.0.2 among 8"));
	assert_non_null(strstr(e.text, "ip address show lo"));
}

static void explicit_gid_index(void **state)
{
	struct dr_verbs_params p;
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	dr_verbs_params_init(&p);
	p.gid_index = 2;
	assert_int_equal(open_on("lo", "10.0.0.1", &p, &d, &e), 0);
	assert_int_equal(d.gid_index, 2);
	assert_int_equal(d.gid_type, IBV_GID_TYPE_ROCE_V1);
	dr_verbs_dev_close(&d);
	p.gid_index = GIDS;
	assert_int_equal(open_on("lo", "10.0.0.1", &p, &d, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "--gid 8: the GID table of rxe0 port 1 has 8 entries"));
	p.gid_index = 3;
	assert_int_equal(open_on("lo", "10.0.0.1", &p, &d, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "is empty"));
}

static void mtu_of_user_and_port(void **state)
{
	struct dr_verbs_params p;
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	dr_verbs_params_init(&p);
	p.mtu = 512;
	assert_int_equal(open_on("lo", "10.0.0.1", &p, &d, &e), 0);
	assert_int_equal(d.mtu, 512);
	dr_verbs_dev_close(&d);
	p.mtu = 4096;
	assert_int_equal(open_on("lo", "10.0.0.1", &p, &d, &e), -EINVAL);
	assert_non_null(strstr(e.text, "4096"));
	assert_non_null(strstr(e.text, "1024"));
	p.mtu = 1000;
	assert_int_equal(open_on("lo", "10.0.0.1", &p, &d, &e), -EINVAL);
	host.port[0][1].attr.active_mtu = IBV_MTU_4096;
	p.mtu = 0;
	assert_int_equal(open_on("lo", "10.0.0.1", &p, &d, &e), 0);
	assert_int_equal(d.mtu, 4096);
	dr_verbs_dev_close(&d);
}

/* Each call fails once; nothing leaks (the teardown counts) and the error has its code. */
static void each_call_fails(void **state)
{
	static const struct {
		const char *call;
		int err, code;
		const char *says;
	} row[] = {
		{ "get_device_list", ENOSYS, -ENODEV, "none on this host" },
		{ "get_device_list", ENOMEM, -ENOMEM, "out of memory" },
		{ "open_device", EACCES, -EACCES, "open rxe0: Permission denied" },
		{ "open_device", ENOENT, -EACCES, "modprobe ib_uverbs" },
		{ "open_device", ENOMEM, -ENOMEM, "out of memory" },
		{ "query_device", EIO, -ENODEV, "no RDMA device on lo" },
		{ "query_port", EIO, -ENODEV, "no RDMA device on lo" },
		{ "query_gid_table", EIO, -ENODEV, "no RDMA device on lo" },
	};
	struct dr_verbs_dev d;
	struct dr_err e;

	(void)state;
	one_device();
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		host.fail = row[i].call;
		host.fail_errno = row[i].err;
		assert_int_equal(open_on("lo", "10.0.0.1", NULL, &d, &e), row[i].code);
		assert_non_null(strstr(e.text, row[i].says));
	}
}

static void explains_the_locked_memory_limit(void **state)
{
	struct dr_verbs_dev d = { .name = "rxe0", .attr = { .max_qp = 7 } };
	struct rlimit old, low = { 65536, 65536 };
	struct dr_err e;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	low.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
	assert_int_equal(dr_verbs_explain(&d, "register 1 MiB", ENOMEM, &e), -ENOMEM);
	assert_non_null(strstr(e.text, "register 1 MiB on rxe0"));
	assert_non_null(strstr(e.text, "64 KiB"));
	assert_non_null(strstr(e.text, "ulimit -l unlimited"));
	assert_non_null(strstr(e.text, "LimitMEMLOCK=infinity"));
	assert_non_null(strstr(e.text, "IPC_LOCK"));
	if (old.rlim_max == RLIM_INFINITY) {
		low.rlim_cur = RLIM_INFINITY;
		assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
		assert_int_equal(dr_verbs_explain(&d, "create a QP", -ENOMEM, &e), -ENOMEM);
		assert_non_null(strstr(e.text, "at most 7 QPs"));
	}
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
	assert_int_equal(dr_verbs_explain(&d, "create a QP", EAGAIN, &e), -ENOSPC);
	assert_int_equal(dr_verbs_explain(&d, "create a QP", 0, &e), -EIO);
}

static void names_for_rails(void **state)
{
	char name[IFNAMSIZ] = "";
	struct dr_err e;

	(void)state;
	one_device();
	assert_int_equal(dr_verbs_netdev_of_on(&fake, "rxe0", name, sizeof(name), &e), 0);
	assert_string_equal(name, "lo");
	assert_int_equal(dr_verbs_netdev_of_on(&fake, "rxe", name, sizeof(name), &e), -ENODEV);
	assert_non_null(strstr(e.text, "no RDMA device 'rxe'; there are: rxe0 (lo)"));
	assert_int_equal(dr_verbs_netdev_of_on(&fake, "rxe0:x", name, sizeof(name), &e), -ENODEV);
	host.fail = "open_device";
	host.fail_errno = EACCES;
	assert_int_equal(dr_verbs_netdev_of_on(&fake, "rxe0", name, sizeof(name), &e), -ENODEV);
	assert_non_null(strstr(e.text, "Permission denied"));
}

/* Every port of every device that this process can open, with its net device. */
static void ports_of_the_host(void **state)
{
	struct dr_kind_port p[4];
	struct dr_err e;

	(void)state;
	one_device();
	add_device("mlx4_0", 2);
	host.port[1][1].attr.state = IBV_PORT_DOWN;
	set_gid(1, 2, 3, "::ffff:10.0.0.9", IBV_GID_TYPE_ROCE_V2, lo);
	add_device("iw0", 1);
	host.dev[2].transport_type = IBV_TRANSPORT_IWARP;
	assert_int_equal(dr_verbs_ports_on(&fake, p, DR_ARRAY_LEN(p), &e), 3);
	assert_string_equal(p[0].device, "rxe0");
	assert_string_equal(p[0].ifname, "lo");
	assert_true(p[0].active);
	assert_int_equal(p[0].port, 1);
	assert_int_equal(p[0].ports, 1);
	assert_in_range(p[0].connections, 1, 32); /* of 64 queue pairs */
	assert_string_equal(p[1].device, "mlx4_0");
	assert_false(p[1].active);
	assert_string_equal(p[1].ifname, "");
	assert_int_equal(p[2].port, 2);
	assert_int_equal(p[2].ports, 2);
	assert_string_equal(p[2].ifname, "lo");
	assert_int_equal(dr_verbs_ports_on(&fake, p, 1, &e), 3);
	host.fail = "open_device";
	assert_int_equal(dr_verbs_ports_on(&fake, p, DR_ARRAY_LEN(p), &e), 0);
	host.fail = "get_device_list";
	assert_int_equal(dr_verbs_ports_on(&fake, p, DR_ARRAY_LEN(p), &e), 0);
	host.fail_errno = ENOMEM;
	assert_int_equal(dr_verbs_ports_on(&fake, p, DR_ARRAY_LEN(p), &e), -ENOMEM);
	assert_int_equal(host.opened, host.closed);
	assert_int_equal(host.lists, 0);
}

static void defaults_and_window(void **state)
{
	struct dr_verbs_params p;

	(void)state;
	memset(&p, 0xa5, sizeof(p));
	dr_verbs_params_init(&p);
	assert_int_equal(p.gid_index, -1);
	assert_int_equal(p.mtu, 0);
	assert_int_equal(p.timeout, 14);
	assert_int_equal(p.retry, 7);
	assert_int_equal(p.qps, 1);
	assert_false(p.lazy_mr);
	assert_int_equal(dr_verbs_window_ns(&p), 536870912); /* 67.1 ms, 8 times */
	p.timeout = 0;
	assert_int_equal(dr_verbs_window_ns(&p), DR_NEVER);
	p.timeout = 31;
	assert_int_equal(dr_verbs_window_ns(&p), INT64_C(4096) * 2147483648 * 8);
}

#define T(f) cmocka_unit_test_setup_teardown(f, reset, all_given_back)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(v2_before_v1),
		T(v1_alone_and_families),
		T(wrong_netdev_is_passed_over),
		T(better_port_wins),
		T(iwarp_is_left_alone),
		T(moved_index),
		T(table_in_one_call),
		T(infiniband_port_of_ipoib),
		T(software_device_by_its_parent),
		T(no_device_lists_what_is_there),
		T(address_without_gid),
		T(explicit_gid_index),
		T(mtu_of_user_and_port),
		T(each_call_fails),
		T(explains_the_locked_memory_limit),
		T(names_for_rails),
		T(ports_of_the_host),
		T(defaults_and_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
