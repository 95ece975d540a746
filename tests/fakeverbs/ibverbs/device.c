/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/mman.h>

/* Devices, ports, GID tables, asynchronous events. */

#define DEFAULT "fake0:lo:127.0.0.1,fake1:lo:127.0.0.2"

struct dr_fake_dev dr_fake_dev[DR_FAKE_DEVS];
unsigned dr_fake_n_devs;

void dr_fake_gid_of(const char *ipv4, union ibv_gid *out)
{
	memset(out, 0, sizeof(*out));
	out->raw[10] = out->raw[11] = 0xff;
	if (inet_pton(AF_INET, ipv4, &out->raw[12]) != 1)
		dr_fake_violation("not an IPv4 address: %s", ipv4);
}

/* Link-local at 0 and 1, the address at index at. */
static void set_gids(struct dr_fake_dev *d, unsigned i, unsigned at_addr)
{
	struct dr_fake_gid g = { .used = true };

	memcpy(g.gid.raw, (const uint8_t[]){ 0xfe, 0x80 }, 2);
	memcpy(g.gid.raw + 8, (const uint8_t[]){ 2, 0, 0, 0xff, 0xfe, 0, 0, (uint8_t)(i + 1) }, 8);
	for (unsigned k = 0; k < 4; k++) {
		if (k == 2)
			dr_fake_gid_of(d->addr, &g.gid);
		g.type = k % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
		d->gid[k < 2 ? k : at_addr + k - 2] = g;
	}
}

/* A file that is there as long as its descriptor is open, and is another one each time. */
static void make_node(struct dr_fake_dev *d)
{
	d->node_fd = memfd_create("fakeverbs", MFD_CLOEXEC);
	dr_assert(d->node_fd > 0);
	(void)snprintf(d->ibv.dev_path, sizeof(d->ibv.dev_path), "/proc/self/fd/%d", d->node_fd);
}

void dr_fake_dev_unlist(struct dr_fake_dev *d)
{
	d->gone = true;
	if (d->node_fd > 0)
		(void)close(d->node_fd);
	d->node_fd = 0;
}

int dr_fake_dev_again(struct dr_fake_dev *old, unsigned at)
{
	struct dr_fake_dev *d = &dr_fake_dev[dr_fake_n_devs];
	unsigned i = dr_fake_n_devs;

	if (i == DR_FAKE_DEVS || !old->gone || at + 1 >= DR_FAKE_GIDS)
		return -1;
	memset(d, 0, sizeof(*d));
	d->ibv = old->ibv;
	(void)snprintf(d->ibv.dev_name, sizeof(d->ibv.dev_name), "uverbs%u", i);
	memcpy(d->ifname, old->ifname, sizeof(d->ifname));
	memcpy(d->addr, old->addr, sizeof(d->addr));
	set_gids(d, i, at);
	make_node(d);
	memset(old->gid, 0, sizeof(old->gid));
	dr_fake_n_devs++;
	return 0;
}

static void read_one(char *spec, unsigned i)
{
	struct dr_fake_dev *d = &dr_fake_dev[i];
	const char *name = strsep(&spec, ":"), *ifname = strsep(&spec, ":");

	memset(d, 0, sizeof(*d));
	if (!ifname || !spec) {
		dr_fake_violation("DR_FAKE_IBV: %s is not NAME:IFNAME:IPV4", name);
		return;
	}
	d->ibv.node_type = IBV_NODE_CA;
	d->ibv.transport_type = IBV_TRANSPORT_IB;
	(void)snprintf(d->ibv.name, sizeof(d->ibv.name), "%s", name);
	(void)snprintf(d->ibv.dev_name, sizeof(d->ibv.dev_name), "uverbs%u", i);
	(void)snprintf(d->ifname, sizeof(d->ifname), "%s", ifname);
	(void)snprintf(d->addr, sizeof(d->addr), "%s", spec);
	set_gids(d, i, 2);
	make_node(d);
	dr_fake_n_devs = i + 1;
}

void dr_fake_devs_read(void)
{
	const char *env = getenv("DR_FAKE_IBV");
	char spec[512], *rest = spec, *one;

	if (dr_fake_n_devs > 0)
		return;
	(void)snprintf(spec, sizeof(spec), "%s", env ? env : DEFAULT);
	for (unsigned i = 0; i < DR_FAKE_DEVS && (one = strsep(&rest, ",")) != NULL; i++)
		if (*one)
			read_one(one, i);
}

void dr_fake_devs_reset(void)
{
	for (unsigned i = 0; i < dr_fake_n_devs; i++)
		dr_fake_dev_unlist(&dr_fake_dev[i]);
	memset(dr_fake_routes, 0, sizeof(dr_fake_routes));
	dr_fake_n_devs = 0;
	memset(dr_fake_dev, 0, sizeof(dr_fake_dev));
}

static enum ibv_event_type kind_of(enum ibv_event_type t)
{
	return t == IBV_EVENT_CQ_ERR ? IBV_EVENT_CQ_ERR
	       : t == IBV_EVENT_QP_FATAL || t == IBV_EVENT_QP_REQ_ERR ||
			       t == IBV_EVENT_QP_ACCESS_ERR || t == IBV_EVENT_COMM_EST ||
			       t == IBV_EVENT_SQ_DRAINED || t == IBV_EVENT_PATH_MIG ||
			       t == IBV_EVENT_PATH_MIG_ERR || t == IBV_EVENT_QP_LAST_WQE_REACHED
		       ? IBV_EVENT_QP_FATAL
		       : IBV_EVENT_PORT_ERR;
}

/* Affiliated events go to the context of their object alone. */
void dr_fake_emit(struct dr_fake_dev *d, enum ibv_event_type type, void *about)
{
	struct dr_fake_item item = { .about = about, .ev = { .event_type = type } };
	const struct ibv_context *only = NULL;

	if (about && kind_of(type) == IBV_EVENT_CQ_ERR) {
		item.ev.element.cq = about;
		only = item.ev.element.cq->context;
	} else if (about) {
		item.ev.element.qp = about;
		only = item.ev.element.qp->context;
	} else {
		item.ev.element.port_num = 1;
	}
	for (unsigned i = 0; i < dr_fake_ctxs.n; i++) {
		struct dr_fake_ctx *c = dr_fake_ctxs.p[i];

		if (c->dev == d && (!only || only == &c->ibv))
			dr_fake_queue_put(&c->events, &item);
	}
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *ev)
{
	struct dr_fake_ctx *ctx = dr_container_of(c, struct dr_fake_ctx, ibv);
	int err = dr_fake_enter(DR_FAKE_CALL_get_async_event);
	struct dr_fake_item item;

	if (!err)
		err = dr_fake_queue_get(&ctx->events, &item);
	if (err) {
		errno = err;
		return -1;
	}
	*ev = item.ev;
	if (item.about && kind_of(ev->event_type) == IBV_EVENT_QP_FATAL)
		dr_container_of(ev->element.qp, struct dr_fake_qp, ibv)->events_got++;
	dr_fake_unlock();
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	(void)dr_fake_enter(DR_FAKE_CALL_ack_async_event);
	dr_fake_lock();
	if (kind_of(ev->event_type) == IBV_EVENT_QP_FATAL) {
		if (dr_fake_set_has(&dr_fake_qps, ev->element.qp))
			dr_container_of(ev->element.qp, struct dr_fake_qp, ibv)->events_acked++;
		else
			dr_fake_violation("an event of a destroyed queue pair is acknowledged");
	}
	dr_fake_unlock();
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	int err = dr_fake_enter(DR_FAKE_CALL_query_device);

	if (err)
		return err;
	if (dr_fake_dev_of(c)->fatal)
		return EIO;
	memset(a, 0, sizeof(*a));
	(void)snprintf(a->fw_ver, sizeof(a->fw_ver), "fake");
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 0xfffff000;
	a->max_qp = 4096;
	a->max_qp_wr = DR_FAKE_WR_MAX;
	a->max_sge = DR_FAKE_SGES;
	a->max_cq = 4096;
	a->max_cqe = DR_FAKE_CQE_MAX;
	a->max_mr = 1 << 20;
	a->max_pd = a->max_ah = 4096;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = 128;
	a->max_pkeys = 1;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = 1;
	return 0;
}

/* As the library's symbol: fields from port_cap_flags2 on are not written. */
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	const struct dr_fake_dev *d = dr_fake_dev_of(c);
	int err = dr_fake_enter(DR_FAKE_CALL_query_port);
	struct ibv_port_attr a = { .max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = DR_FAKE_GIDS,
		.max_msg_sz = DR_FAKE_MSG_MAX,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 1,
		.active_speed = 1,
		.link_layer = IBV_LINK_LAYER_ETHERNET };

	if (err)
		return err;
	if (port != 1)
		return EINVAL;
	dr_fake_lock();
	err = d->fatal ? EIO : 0;
	if (d->ib) {
		a.link_layer = IBV_LINK_LAYER_INFINIBAND;
		a.lid = d->lid;
		a.sm_lid = 1;
		a.flags = d->grh_required ? IBV_QPF_GRH_REQUIRED : 0;
	}
	a.state = d->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	a.phys_state = d->down ? 3 : 5;
	dr_fake_unlock();
	if (!err)
		memcpy(compat, &a, offsetof(struct ibv_port_attr, port_cap_flags2));
	return err;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e,
	uint32_t flags, size_t size)
{
	const struct dr_fake_dev *d = dr_fake_dev_of(c);
	int err = dr_fake_enter(DR_FAKE_CALL_query_gid_ex);
	struct ibv_gid_entry out = { .gid_index = index, .port_num = port };

	if (err)
		return err;
	if (port != 1 || index >= DR_FAKE_GIDS || flags || size < sizeof(out))
		return EINVAL;
	dr_fake_lock();
	err = d->fatal ? EIO : d->gid[index].used ? 0 : ENODATA;
	out.gid = d->gid[index].gid;
	out.gid_type = d->gid[index].type;
	dr_fake_unlock();
	out.ndev_ifindex = d->ib ? 0 : if_nametoindex(d->ifname);
	if (!err)
		*e = out;
	return err;
}

/* As the kernel does it: with less room than there are entries nothing comes. */
ssize_t _ibv_query_gid_table(
	struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	const struct dr_fake_dev *d = dr_fake_dev_of(c);
	int err = dr_fake_enter(DR_FAKE_CALL_query_gid_table);
	size_t n = 0;

	if (err || flags || size != sizeof(*e))
		return err ? -err : -EINVAL;
	dr_fake_lock();
	err = d->fatal ? EIO : 0;
	for (unsigned i = 0; i < DR_FAKE_GIDS && !err; i++) {
		if (!d->gid[i].used)
			continue;
		err = n == max ? EINVAL : 0;
		if (!err)
			e[n++] = (struct ibv_gid_entry){ .gid = d->gid[i].gid,
				.gid_index = i,
				.port_num = 1,
				.gid_type = d->gid[i].type,
				.ndev_ifindex = d->ib ? 0 : if_nametoindex(d->ifname) };
	}
	dr_fake_unlock();
	return err ? -err : (ssize_t)n;
}
