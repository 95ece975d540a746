/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/dev_priv.h"

#include "base/source.h"
#include "base/sysfile.h"
#include "base/units.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * From a rail (net device and address) to a port, and back. What ties a RoCE port to its net device
 * is the GID table: every entry names the device whose address it is, VLANs and bonds included.
 * Only a port whose table says nothing (InfiniBand, or a device without any address) is looked up in
 * sysfs: ports of a PCI function and its net devices share a parent and count alike (dev_port), and
 * a software device names its net device in "parent". sysfs shows the network namespace it was
 * mounted in, which is the right one wherever RDMA devices are not moved between namespaces.
 */

/* ---- sysfs ---- */

static bool sysfs_has(const struct ibv_device *dev, uint8_t port, const char *ifname)
{
	char parent[32];
	int64_t n;

	if (dr_sysfile_text(parent, sizeof(parent), dev->ibdev_path, "/parent") > 0)
		return strcmp(parent, ifname) == 0;
	return dr_sysfile_number(&n, dev->ibdev_path, "/device/net/%s/dev_port", ifname) &&
	       n + 1 == port;
}

bool dr_verbs_netdev_of_port(
	const struct dr_ibv *ibv, struct ibv_context *ctx, uint8_t port, char *ifname)
{
	struct dr_verbs_gids gids;
	struct ibv_gid_entry g;
	bool found = false;

	dr_verbs_gids_begin(&gids, ibv, ctx, port);
	while (!found && dr_verbs_gids_next(&gids, &g))
		found = g.ndev_ifindex && if_indextoname(g.ndev_ifindex, ifname);
	dr_verbs_gids_end(&gids);
	if (found)
		return true;
	struct if_nameindex *all = if_nameindex();
	for (struct if_nameindex *n = all; n && n->if_index && !found; n++) {
		found = sysfs_has(ctx->device, port, n->if_name);
		if (found)
			snprintf(ifname, IFNAMSIZ, "%s", n->if_name);
	}
	if (all)
		if_freenameindex(all);
	return found;
}

/* ---- what is there ---- */

/* "rxe0 (eth1), mlx5_0:2 (ib0)" into buf; the number of devices. */
static int describe_all(const struct dr_ibv *ibv, char *buf, size_t len)
{
	int n = 0;
	struct ibv_device **list = ibv->get_device_list(&n);
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; list && i < n; i++) {
		struct ibv_context *ctx = ibv->open_device(list[i]);
		struct ibv_device_attr a = { .phys_port_cnt = 1 };

		if (ctx)
			(void)ibv->query_device(ctx, &a);
		for (unsigned port = 1; port <= a.phys_port_cnt && at < len; port++) {
			char ifname[IFNAMSIZ] = "no netdev", number[8] = "";

			if (!ctx || !dr_verbs_netdev_of_port(ibv, ctx, (uint8_t)port, ifname))
				snprintf(ifname, sizeof(ifname), ctx ? "no netdev" : "no access");
			if (port > 1)
				snprintf(number, sizeof(number), ":%u", port);
			at += (size_t)snprintf(buf + at, len - at, "%s%s%s (%s)", at ? ", " : "",
				ibv->get_device_name(list[i]), number, ifname);
		}
		if (ctx)
			ibv->close_device(ctx);
	}
	if (list)
		ibv->free_device_list(list);
	return list ? n : 0;
}

static int no_device(
	const struct dr_ibv *ibv, const char *what, const char *netdev, struct dr_err *e)
{
	char all[96];

	if (describe_all(ibv, all, sizeof(all)) == 0)
		return dr_err_set(e, -ENODEV,
			"no RDMA device on %s, and none on this host: load the NIC's RDMA driver, or for "
			"software RoCE: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev %s",
			what, netdev);
	return dr_err_set(e, -ENODEV,
		"no RDMA device on %s; there are: %s; use one of these with --rails, or for software "
		"RoCE: rdma link add rxe0 type rxe netdev %s",
		what, all, netdev);
}

/* ---- the search ---- */

struct wanted {
	const char *ifname; /* NULL: by address only */
	uint32_t ifindex;   /* 0: not known */
	union ibv_gid gid;
	bool has_gid;
};

static void want(const struct dr_rail_params *rail, struct wanted *w)
{
	uint8_t host[16];
	unsigned n;

	memset(w, 0, sizeof(*w));
	if (rail->ifname && rail->ifname[0]) {
		w->ifname = rail->ifname;
		w->ifindex = if_nametoindex(rail->ifname);
	}
	n = dr_host_bytes(&rail->local, host);
	w->has_gid = n > 0;
	if (n == 4)
		w->gid.raw[10] = w->gid.raw[11] = 0xff;
	memcpy(w->gid.raw + sizeof(w->gid.raw) - n, host, n);
}

/* 0: not this port; 1: its net device, but no GID of the address; 2: RoCE v1; 3: RoCE v2. */
enum { RANK_NONE, RANK_NETDEV, RANK_V1, RANK_V2 };

static int rank_roce(const struct dr_ibv *ibv, const struct wanted *w, struct dr_verbs_port *p)
{
	int best = RANK_NONE;
	struct dr_verbs_gids gids;
	struct ibv_gid_entry g;

	dr_verbs_gids_begin(&gids, ibv, p->ctx, p->port);
	while (best < RANK_V2 && dr_verbs_gids_next(&gids, &g)) {
		int rank = RANK_NETDEV;

		if (w->ifname && g.ndev_ifindex != w->ifindex)
			continue;
		if (w->has_gid && memcmp(&g.gid, &w->gid, sizeof(g.gid)) == 0)
			rank = g.gid_type == IBV_GID_TYPE_ROCE_V2 ? RANK_V2 : RANK_V1;
		else if (!w->ifname)
			continue;
		if (rank <= best)
			continue;
		best = rank;
		p->has_gid = rank >= RANK_V1;
		p->gid = g;
	}
	dr_verbs_gids_end(&gids);
	if (best == RANK_NONE && w->ifname && sysfs_has(p->ctx->device, p->port, w->ifname))
		best = RANK_NETDEV;
	return best;
}

static int rank_port(const struct dr_ibv *ibv, const struct wanted *w, struct dr_verbs_port *p)
{
	memset(&p->pattr, 0, sizeof(p->pattr));
	if (ibv->query_port(p->ctx, p->port, &p->pattr))
		return RANK_NONE;
	p->has_gid = false;
	if (p->pattr.link_layer == IBV_LINK_LAYER_ETHERNET)
		return rank_roce(ibv, w, p);
	if (!w->ifname || !sysfs_has(p->ctx->device, p->port, w->ifname))
		return RANK_NONE;
	p->has_gid = dr_verbs_gid_at(ibv, p->ctx, p->port, 0, &p->gid) == 0;
	p->gid.gid_index = 0;
	return RANK_V2;
}

/* The best port of one device into *best; takes over ctx when it won. */
static int rank_device(const struct dr_ibv *ibv, const struct wanted *w, struct ibv_device *dev,
	struct ibv_context *ctx, int best_rank, struct dr_verbs_port *best)
{
	struct dr_verbs_port p = { .ctx = ctx };
	struct ibv_context *old = best->ctx;
	int had = best_rank;

	if (ibv->query_device(ctx, &p.attr)) {
		ibv->close_device(ctx);
		return best_rank;
	}
	snprintf(p.name, sizeof(p.name), "%s", ibv->get_device_name(dev));
	for (unsigned port = 1; port <= p.attr.phys_port_cnt; port++) {
		p.port = (uint8_t)port;
		int rank = rank_port(ibv, w, &p);
		if (rank > best_rank) {
			best_rank = rank;
			*best = p;
		}
	}
	if (best_rank == had)
		ibv->close_device(ctx);
	else if (old)
		ibv->close_device(old);
	return best_rank;
}

static int no_access(const char *name, int err, struct dr_err *e)
{
	if (err == ENOMEM)
		return dr_err_set(e, -ENOMEM, "open %s: out of memory", name);
	return dr_err_set(e, -EACCES,
		"open %s: %s; its /dev/infiniband/uverbs* must exist (modprobe ib_uverbs) and be "
		"readable and writable (group rdma, or root; in a container: --device)",
		name, strerror(err));
}

int dr_verbs_find(const struct dr_ibv *ibv, const struct dr_rail_params *rail,
	struct dr_verbs_port *out, struct dr_err *e)
{
	char closed[64] = "";
	int n = 0, rank = RANK_NONE, why = 0;
	struct wanted w;

	want(rail, &w);
	memset(out, 0, sizeof(*out));
	errno = 0;
	struct ibv_device **list = ibv->get_device_list(&n);
	if (!list && errno == ENOMEM)
		return dr_err_set(e, -ENOMEM, "list the RDMA devices: out of memory");
	for (int i = 0; list && i < n; i++) {
		if (list[i]->transport_type != IBV_TRANSPORT_IB)
			continue; /* iWARP connects through rdma_cm only */
		errno = 0;
		struct ibv_context *ctx = ibv->open_device(list[i]);
		if (ctx) {
			rank = rank_device(ibv, &w, list[i], ctx, rank, out);
			continue;
		}
		why = errno ? errno : EIO;
		snprintf(closed, sizeof(closed), "%s", ibv->get_device_name(list[i]));
	}
	if (list)
		ibv->free_device_list(list);
	if (rank != RANK_NONE)
		return 0;
	/* Which device a rail is on cannot be told of one that does not open. */
	if (closed[0])
		return no_access(closed, why, e);
	return no_device(
		ibv, w.ifname ? w.ifname : "the rail's address", w.ifname ? w.ifname : "DEVICE", e);
}

/* ---- --rails by RDMA name ---- */

static int netdev_of_device(const struct dr_ibv *ibv, struct ibv_device *dev, const char *rdma,
	uint8_t port, char *ifname, struct dr_err *e)
{
	struct ibv_context *ctx = ibv->open_device(dev);

	if (!ctx)
		return no_access(rdma, errno, e);
	bool found = dr_verbs_netdev_of_port(ibv, ctx, port, ifname);
	ibv->close_device(ctx);
	return found ? 0
		     : dr_err_set(e, -ENODEV,
			       "port %u of %s has no network device (IPoIB: modprobe ib_ipoib)",
			       port, rdma);
}

int dr_verbs_netdev_of_on(
	const struct dr_ibv *ibv, const char *rdma, char *ifname, size_t len, struct dr_err *e)
{
	const char *colon = strchr(rdma, ':');
	size_t name_len = colon ? (size_t)(colon - rdma) : strlen(rdma);
	char all[128], found[IFNAMSIZ];
	uint64_t port = 1;
	int n = 0, rc = -ENXIO;

	if (colon && dr_parse_u64(colon + 1, 1, UINT8_MAX, &port, NULL))
		return dr_err_set(e, -ENODEV, "RDMA port \"%s\": use DEVICE:PORT", rdma);
	struct ibv_device **list = ibv->get_device_list(&n);
	for (int i = 0; list && i < n && rc == -ENXIO; i++) {
		const char *name = ibv->get_device_name(list[i]);

		if (strlen(name) == name_len && memcmp(name, rdma, name_len) == 0)
			rc = netdev_of_device(ibv, list[i], rdma, (uint8_t)port, found, e);
	}
	if (list)
		ibv->free_device_list(list);
	if (rc == 0)
		snprintf(ifname, len, "%s", found);
	if (rc != -ENXIO)
		return rc == 0 ? 0 : -ENODEV;
	n = describe_all(ibv, all, sizeof(all));
	return dr_err_set(
		e, -ENODEV, "no RDMA device '%s'; there %s%s", rdma, n ? "are: " : "are none", all);
}
