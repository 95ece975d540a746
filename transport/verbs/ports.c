/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/dev_priv.h"

#include "transport/kind.h"
#include "transport/verbs/path_priv.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

/* The ports of this host's RDMA devices. */

/* Queue pairs of a path: control, data, probes (conn.c). */
static unsigned connections(const struct ibv_device_attr *a)
{
	return (unsigned)DR_MAX(a->max_qp, 0) / (2u + DR_VERBS_PROBE_QPS);
}

static void describe(const struct dr_ibv *ibv, struct ibv_context *ctx,
	const struct ibv_device_attr *a, uint8_t number, struct dr_kind_port *out)
{
	struct ibv_port_attr pa = { 0 };

	memset(out, 0, sizeof(*out));
	snprintf(out->device, sizeof(out->device), "%s", ibv->get_device_name(ctx->device));
	out->port = number;
	out->ports = a->phys_port_cnt;
	out->active = ibv->query_port(ctx, number, &pa) == 0 && pa.state == IBV_PORT_ACTIVE;
	if (!dr_verbs_netdev_of_port(ibv, ctx, number, out->ifname))
		out->ifname[0] = '\0';
	out->connections = connections(a);
}

/* Returns n plus the number of the device's ports. */
static unsigned add_device(const struct dr_ibv *ibv, struct ibv_device *dev,
	struct dr_kind_port *out, unsigned n, unsigned cap)
{
	struct ibv_context *ctx;
	struct ibv_device_attr a;

	if (dev->transport_type != IBV_TRANSPORT_IB || !(ctx = ibv->open_device(dev)))
		return n; /* iWARP connects through rdma_cm only */
	if (ibv->query_device(ctx, &a) == 0)
		for (unsigned port = 1; port <= a.phys_port_cnt; port++, n++)
			if (n < cap)
				describe(ibv, ctx, &a, (uint8_t)port, &out[n]);
	ibv->close_device(ctx);
	return n;
}

int dr_verbs_ports_on(
	const struct dr_ibv *ibv, struct dr_kind_port *out, unsigned cap, struct dr_err *e)
{
	unsigned found = 0;
	int n = 0;

	errno = 0;
	struct ibv_device **list = ibv->get_device_list(&n);
	if (!list && errno == ENOMEM)
		return dr_err_set(e, -ENOMEM, "list the RDMA devices: out of memory");
	for (int i = 0; list && i < n; i++)
		found = add_device(ibv, list[i], out, found, cap);
	if (list)
		ibv->free_device_list(list);
	return (int)found;
}

int dr_verbs_ports(struct dr_kind_port *out, unsigned cap, struct dr_err *e)
{
	const struct dr_ibv *ibv;
	int rc = dr_ibv_load(&ibv, e);

	return rc ? rc : dr_verbs_ports_on(ibv, out, cap, e);
}
