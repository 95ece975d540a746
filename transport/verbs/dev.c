/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/dev_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* enum ibv_mtu counts from 1 for 256 bytes. */
static unsigned mtu_bytes(enum ibv_mtu m)
{
	return m >= IBV_MTU_256 && m <= IBV_MTU_4096 ? 128u << m : 256;
}

/* ---- checks of what was found; each message names the port and what to do ---- */

static int check_state(const struct dr_ibv *ibv, const struct dr_verbs_dev *d,
	const struct ibv_port_attr *a, struct dr_err *e)
{
	if (a->state == IBV_PORT_ACTIVE && !d->roce && a->lid == 0)
		return dr_err_set(e, -ENETDOWN,
			"%s port %u (%s) has no LID yet; check that a subnet manager (opensm) runs",
			d->name, d->port, d->ifname);
	if (a->state == IBV_PORT_ACTIVE)
		return 0;
	return dr_err_set(e, -ENETDOWN,
		"%s port %u (%s) is %s, not active; %sbring it up: ip link set %s up", d->name,
		d->port, d->ifname, ibv->port_state_str(a->state),
		d->roce ? "" : "check the cable and that a subnet manager (opensm) runs, and ",
		d->ifname);
}

static int choose_mtu(struct dr_verbs_dev *d, const struct dr_verbs_params *p,
	const struct ibv_port_attr *a, struct dr_err *e)
{
	unsigned active = mtu_bytes(a->active_mtu);

	if (p->mtu && (p->mtu < 256 || p->mtu > 4096 || (p->mtu & (p->mtu - 1))))
		return dr_err_set(e, -EINVAL, "--mtu %u: use 256, 512, 1024, 2048 or 4096", p->mtu);
	if (p->mtu > active)
		return dr_err_set(e, -EINVAL,
			"--mtu %u is above the active MTU of %s port %u (%s), which is %u; lower it, or "
			"raise the link's: ip link set %s mtu %u",
			p->mtu, d->name, d->port, d->ifname, active, d->ifname, p->mtu + 104);
	d->mtu = p->mtu ? p->mtu : active;
	return 0;
}

static int take_gid(struct dr_verbs_dev *d, const struct ibv_gid_entry *g, uint32_t index)
{
	d->gid = g->gid;
	d->gid_type = g->gid_type;
	d->gid_index = index;
	return 0;
}

static int explicit_gid(
	struct dr_verbs_dev *d, int index, const struct ibv_port_attr *a, struct dr_err *e)
{
	struct ibv_gid_entry g;

	if (index >= a->gid_tbl_len)
		return dr_err_set(e, -EADDRNOTAVAIL,
			"--gid %d: the GID table of %s port %u has %d entries, 0 to %d; leave --gid out "
			"to choose by the rail's address",
			index, d->name, d->port, a->gid_tbl_len, a->gid_tbl_len - 1);
	if (dr_verbs_gid_at(d->ibv, d->ctx, d->port, (uint32_t)index, &g))
		return dr_err_set(e, -EADDRNOTAVAIL,
			"--gid %d: that entry of %s port %u is empty (its table has %d); leave --gid out "
			"to choose by the rail's address",
			index, d->name, d->port, a->gid_tbl_len);
	return take_gid(d, &g, (uint32_t)index);
}

static void format_address(const struct sockaddr_storage *sa, char *buf, socklen_t len)
{
	const void *at = sa->ss_family == AF_INET6
				 ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr
				 : &((const struct sockaddr_in *)sa)->sin_addr;

	if (!inet_ntop(sa->ss_family, at, buf, len))
		snprintf(buf, len, "the rail's address");
}

static int choose_gid(struct dr_verbs_dev *d, const struct dr_verbs_port *found,
	const struct dr_rail_params *rail, const struct dr_verbs_params *p, struct dr_err *e)
{
	char address[INET6_ADDRSTRLEN];

	if (p->gid_index >= 0)
		return explicit_gid(d, p->gid_index, &found->pattr, e);
	format_address(&rail->local, address, sizeof(address));
	if (!found->has_gid)
		return dr_err_set(e, -EADDRNOTAVAIL,
			"%s port %u (%s) has no GID for %s among %d entries; check `ip address show %s`, or "
			"name one with --gid",
			d->name, d->port, d->ifname, address, found->pattr.gid_tbl_len, d->ifname);
	return take_gid(d, &found->gid, found->gid.gid_index);
}

/* ---- open and close ---- */

static void name_netdev(struct dr_verbs_dev *d, const struct dr_rail_params *rail,
	const struct dr_verbs_port *found)
{
	char name[IFNAMSIZ] = "";

	if (rail->ifname && rail->ifname[0])
		snprintf(d->ifname, sizeof(d->ifname), "%s", rail->ifname);
	else if (found->has_gid && if_indextoname(found->gid.ndev_ifindex, name))
		snprintf(d->ifname, sizeof(d->ifname), "%s", name);
}

int dr_verbs_dev_open_on(const struct dr_ibv *ibv, const struct dr_rail_params *rail,
	const struct dr_verbs_params *p, struct dr_verbs_dev *out, struct dr_err *e)
{
	struct dr_verbs_port found;
	struct dr_verbs_dev d = { .ibv = ibv };
	int rc = dr_verbs_find(ibv, rail, &found, e);

	if (rc)
		return rc;
	d.ctx = found.ctx;
	d.port = found.port;
	d.attr = found.attr;
	d.roce = found.pattr.link_layer == IBV_LINK_LAYER_ETHERNET;
	d.lid = found.pattr.lid;
	d.grh = !d.roce && (found.pattr.flags & IBV_QPF_GRH_REQUIRED);
	d.msg_max = found.pattr.max_msg_sz;
	memcpy(d.name, found.name, sizeof(d.name));
	name_netdev(&d, rail, &found);
	rc = check_state(ibv, &d, &found.pattr, e);
	if (rc == 0)
		rc = choose_mtu(&d, p, &found.pattr, e);
	if (rc == 0)
		rc = choose_gid(&d, &found, rail, p, e);
	if (rc) {
		ibv->close_device(d.ctx);
		return rc;
	}
	*out = d;
	return 0;
}

int dr_verbs_dev_open(const struct dr_rail_params *rail, const struct dr_verbs_params *p,
	struct dr_verbs_dev *out, struct dr_err *e)
{
	const struct dr_ibv *ibv;
	int rc = dr_ibv_load(&ibv, e);

	return rc ? rc : dr_verbs_dev_open_on(ibv, rail, p, out, e);
}

int dr_verbs_dev_close(struct dr_verbs_dev *d)
{
	int rc = d->ctx ? dr_verbs_neg(d->ibv->close_device(d->ctx)) : 0;

	d->ctx = NULL;
	return rc;
}

int dr_verbs_netdev_of(const char *rdma, char *ifname, size_t len, struct dr_err *e)
{
	const struct dr_ibv *ibv;
	int rc = dr_ibv_load(&ibv, e);

	return rc ? -ENODEV : dr_verbs_netdev_of_on(ibv, rdma, ifname, len, e);
}

/* ---- later looks ---- */

static bool is_ours(const struct dr_verbs_dev *d, const struct ibv_gid_entry *g)
{
	return g->gid_type == (uint32_t)d->gid_type &&
	       memcmp(&g->gid, &d->gid, sizeof(g->gid)) == 0;
}

static int look_up_lid(struct dr_verbs_dev *d)
{
	struct ibv_port_attr a = { 0 };

	if (d->ibv->query_port(d->ctx, d->port, &a) || a.lid == 0)
		return -ENOENT;
	if (a.lid == d->lid)
		return 0;
	d->lid = a.lid;
	return 1;
}

int dr_verbs_dev_gid(struct dr_verbs_dev *d)
{
	uint32_t was = d->gid_index;
	struct dr_verbs_gids gids;
	struct ibv_gid_entry g;
	bool found = false;

	if (!d->roce)
		return look_up_lid(d);
	if (dr_verbs_gid_at(d->ibv, d->ctx, d->port, was, &g) == 0 && is_ours(d, &g))
		return 0;
	dr_verbs_gids_begin(&gids, d->ibv, d->ctx, d->port);
	while (!found && dr_verbs_gids_next(&gids, &g))
		found = is_ours(d, &g);
	dr_verbs_gids_end(&gids);
	if (!found)
		return -ENOENT;
	d->gid_index = g.gid_index;
	return d->gid_index != was;
}

/* ---- errors in words ---- */

static int explain_memory(const struct dr_verbs_dev *d, const char *doing, struct dr_err *e)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY)
		return dr_err_set(e, -ENOMEM,
			"%s on %s: locked memory is limited to %llu KiB; set `ulimit -l "
			"unlimited`, LimitMEMLOCK=infinity (systemd) or give the capability IPC_LOCK",
			doing, d->name, (unsigned long long)lim.rlim_cur / 1024);
	return dr_err_set(e, -ENOMEM,
		"%s on %s: out of memory or of the device's resources (at most %d QPs, %d CQs, %d "
		"regions); use fewer GPUs, --channels or --qps",
		doing, d->name, d->attr.max_qp, d->attr.max_cq, d->attr.max_mr);
}

int dr_verbs_explain(const struct dr_verbs_dev *d, const char *doing, int err, struct dr_err *e)
{
	err = err < 0 ? -err : err;
	switch (err) {
	case ENOMEM:
		return explain_memory(d, doing, e);
	case EAGAIN: /* the RDMA cgroup; not back-pressure, so not this code */
	case ENOSPC:
		return dr_err_set(e, -ENOSPC,
			"%s on %s: the quota is exhausted; see rdma.max of the cgroup and `rdma resource`",
			doing, d->name);
	case EPERM:
	case EACCES:
		return dr_err_set(e, -EACCES,
			"%s on %s: not permitted; memory must be writable, /dev/infiniband accessible, and "
			"the cgroup must allow the device",
			doing, d->name);
	case EINVAL:
		return dr_err_set(e, -EINVAL,
			"%s on %s: refused; the device allows %d work requests a queue, %d completions a "
			"CQ, %d SGEs",
			doing, d->name, d->attr.max_qp_wr, d->attr.max_cqe, d->attr.max_sge);
	case EOPNOTSUPP:
		return dr_err_set(
			e, -EOPNOTSUPP, "%s on %s: not supported by this device", doing, d->name);
	default:
		return dr_err_set(e, err ? -err : -EIO, "%s on %s: %s", doing, d->name,
			strerror(err ? err : EIO));
	}
}

int dr_verbs_made(
	const struct dr_verbs_dev *d, const void *made, const char *doing, struct dr_err *e)
{
	return made ? 0 : dr_verbs_explain(d, doing, errno ? errno : ENOMEM, e);
}

int dr_verbs_neg(int rc)
{
	if (rc > 0)
		return -rc;
	if (rc == 0)
		return 0;
	return errno ? -errno : -EIO;
}
