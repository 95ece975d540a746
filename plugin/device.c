/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device_priv.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CONNECTIONS_PER_COMM = 2, /* one on the device, one on its shadow */
	FILES_RESERVED = 256, /* for the application, NCCL and the connections that comms share */
	COMMS_MAX = 1 << 16,
};

/* The largest message. NCCL's test returns sizes as int. */
static const size_t P2P_BYTES_MAX = (size_t)1 << 30;

static const struct sockaddr *sa_of(const struct dr_netdev_addr *a)
{
	return (const struct sockaddr *)&a->addr;
}

/* ---- the list ---- */

static unsigned speed_of(const struct ha_config *c, int64_t link_mbps)
{
	if (c->speed_mbps)
		return (unsigned)c->speed_mbps;
	return link_mbps > 0 ? (unsigned)DR_MIN(link_mbps, (int64_t)INT_MAX)
			     : HA_SPEED_UNKNOWN_MBPS;
}

static void fill(const struct ha_nics *have, const struct ha_config *c, const struct dr_netdev *d,
	struct ha_device *out)
{
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", d->name);
	memcpy(out->ifname, d->name, sizeof(out->ifname));
	out->ifindex = d->ifindex;
	out->link_mbps = dr_topo_link_mbps(have->topo, d);
	out->speed_mbps = speed_of(c, out->link_mbps);
	out->shadow = -1;
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (dr_netdev_addr_usable(d, &d->addrs[i], ha_family(c), ha_named(c)))
			out->addr[out->n_addrs++] = d->addrs[i];
	ha_device_place(have, d, out);
}

/* The descriptors are shared by all devices. */
static uint64_t sockets_of(const struct ha_nics *have, unsigned n_devices)
{
	uint64_t files = have->files > FILES_RESERVED ? have->files - FILES_RESERVED : 0;

	return DR_MIN(files / n_devices, (uint64_t)have->ports);
}

/* Each comm has a connection on its device and one on the shadow, so with the comms of others for which it is the
 * shadow a device carries two for each of its own. */
static int comms_of(uint64_t connections)
{
	uint64_t comms = connections / CONNECTIONS_PER_COMM;

	return (int)DR_MAX(DR_MIN(comms, (uint64_t)COMMS_MAX), UINT64_C(1));
}

static int choose_netdevs(const struct ha_nics *have, const struct ha_config *c,
	struct ha_device *out, unsigned *n_spare, struct dr_err *e)
{
	const struct dr_netdev *dev[HA_DEVICES_MAX];
	int n = ha_devices_select(have, c, dev, HA_DEVICES_MAX, n_spare, e);

	for (int i = 0; n > 0 && i < n + (int)*n_spare; i++) {
		fill(have, c, dev[i], &out[i]);
		out[i].rank = i < n ? DR_NIC_RAIL : DR_NIC_SLOW;
	}
	return n;
}

/* The network devices that the user names, if any, are those of the rendezvous. */
static int choose_ports(const struct ha_nics *have, const struct ha_config *c,
	struct ha_devices *out, uint64_t *connections, struct dr_err *e)
{
	const struct dr_netdev *dev[HA_DEVICES_MAX];
	int n = ha_ports_select(have, c, dev, HA_DEVICES_MAX, e);

	for (int i = 0; i < n; i++) {
		const struct dr_kind_port *port = &ha_port_of(have, c, dev[i])->own;

		fill(have, c, dev[i], &out->dev[i]);
		ha_port_name(port, out->dev[i].name, sizeof(out->dev[i].name));
		*connections = DR_MIN(*connections, (uint64_t)port->connections);
	}
	if (n < 0 || c->devices.n == 0)
		return n;
	unsigned spare;
	int boot = choose_netdevs(have, c, out->boot, &spare, e);
	out->n_boot = (unsigned)DR_MAX(boot, 0);
	return boot < 0 ? boot : n;
}

int ha_devices_choose(const struct ha_nics *have, const struct ha_config *c, struct ha_devices *out,
	struct dr_err *e)
{
	uint64_t connections = UINT64_MAX;

	memset(out, 0, sizeof(*out));
	int n = ha_config_is_verbs(c) ? choose_ports(have, c, out, &connections, e)
				      : choose_netdevs(have, c, out->dev, &out->n_spare, e);
	if (n < 0)
		return n;
	out->n = (unsigned)n;
	if (c->backup)
		ha_devices_pair(have, out);
	if (!ha_config_is_verbs(c))
		connections = sockets_of(have, out->n);
	out->max_comms = comms_of(connections);
	return 0;
}

/* ---- this host ---- */

static int read_host(
	struct ha_nics *h, struct dr_netdev **devs, struct dr_topo **topo, struct dr_err *e)
{
	const struct dr_topo_params params = { .xml = NULL };
	struct dr_err why;
	int rc = dr_netdev_list(devs, &h->n, e);

	if (rc < 0)
		return rc;
	h->dev = *devs;
	if (dr_topo_create(&params, topo, &why) < 0)
		dr_warn("devices",
			"%s; cards and ports are unknown, so a device and its shadow may share one",
			why.text);
	h->topo = *topo;
	h->sysfs = "/sys";
	h->default_ifindex = dr_netdev_default(AF_INET);
	if (!h->default_ifindex)
		h->default_ifindex = dr_netdev_default(AF_INET6);
	h->files = dr_limit_files(0); /* the application's, which is left as it is */
	h->ports = dr_limit_ports("");
	return 0;
}

static bool first_address(
	const struct ha_config *c, const struct ha_nics *h, struct dr_rail_params *out)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct dr_netdev *d = &h->dev[i];

		for (unsigned k = 0; strcmp(d->name, out->ifname) == 0 && k < d->n_addrs; k++)
			if (dr_netdev_addr_usable(d, &d->addrs[k], ha_family(c), ha_named(c))) {
				out->local = d->addrs[k].addr;
				return true;
			}
	}
	return false;
}

/* Opens a rail on each port that may be one, as a session would. */
static int read_ports(
	const struct ha_config *c, struct ha_nics *h, struct ha_port *ports, struct dr_err *e)
{
	struct dr_kind_port own[HA_DEVICES_MAX];
	int n = c->kind->ports(own, HA_DEVICES_MAX, e);

	if (n < 0)
		return n;
	h->port = ports;
	h->n_ports = (unsigned)DR_MIN(n, (int)HA_DEVICES_MAX);
	for (unsigned i = 0; i < h->n_ports; i++) {
		struct dr_rail_params rail = { .ifname = own[i].ifname };
		struct dr_err why;

		ports[i] = (struct ha_port){ .own = own[i] };
		if (own[i].active && own[i].ifname[0] && first_address(c, h, &rail) &&
			c->kind->probe(&rail, &c->params, NULL, &why) < 0)
			snprintf(ports[i].why, sizeof(ports[i].why), "%.199s", why.text);
	}
	return 0;
}

static void describe_speed(
	const struct ha_config *c, const struct ha_device *d, char *buf, size_t len)
{
	if (c->speed_mbps)
		snprintf(buf, len, "%u Mb/s (HA_NCCL_SPEED)", d->speed_mbps);
	else if (d->link_mbps < 0)
		snprintf(buf, len, "%u Mb/s (assumed: the link has no speed)", d->speed_mbps);
	else
		snprintf(buf, len, "%u Mb/s", d->speed_mbps);
}

static void log_device(const struct ha_config *c, const struct ha_devices *list, unsigned i)
{
	const struct ha_device *d = &list->dev[i];
	char addrs[200] = "", speed[64], one[64];

	for (unsigned k = 0; k < d->n_addrs; k++) {
		dr_netdev_addr_format(sa_of(&d->addr[k]), one, sizeof(one));
		dr_append(addrs, sizeof(addrs), "%s%s/%u", k ? ", " : "", one, d->addr[k].prefix);
	}
	describe_speed(c, d, speed, sizeof(speed));
	bool own = strcmp(d->name, d->ifname) != 0;

	dr_info("devices", "device %u: %s%s%s, %s, %s, PCI %s, port %d of card %016llx, shadow %s",
		i, d->name, own ? " on " : "", own ? d->ifname : "", addrs, speed,
		d->bus_id[0] ? d->bus_id : "none", d->port, (unsigned long long)d->guid,
		d->shadow < 0 ? "none" : list->dev[d->shadow].name);
}

static void log_list(const struct ha_config *c, const struct ha_nics *h, const struct ha_devices *d)
{
	for (unsigned i = 0; i < d->n; i++)
		log_device(c, d, i);
	if (ha_config_is_verbs(c))
		dr_info("devices",
			"at most %d comms for each device, with two connections each: queue pairs",
			d->max_comms);
	else
		dr_info("devices",
			"at most %d comms for each device, with two connections each: %llu descriptors "
			"(ulimit -n), %u ports",
			d->max_comms, (unsigned long long)h->files, h->ports);
	for (unsigned i = 0; c->backup && i < d->n; i++)
		if (d->dev[i].shadow < 0)
			dr_warn("devices",
				"%s has no shadow: no other device is on another physical port; a "
				"failure of its link ends its connections",
				d->dev[i].name);
}

int ha_devices_create(const struct ha_config *c, struct ha_devices **out, struct dr_err *e)
{
	struct ha_devices *d = dr_calloc(1, sizeof(*d));
	struct ha_port ports[HA_DEVICES_MAX];
	struct ha_nics have = { .n = 0 };
	struct dr_netdev *devs = NULL;
	struct dr_topo *topo = NULL;

	if (!d)
		return dr_err_set(e, -ENOMEM, "list of devices: out of memory");
	int rc = read_host(&have, &devs, &topo, e);
	if (rc == 0 && ha_config_is_verbs(c))
		rc = read_ports(c, &have, ports, e);
	if (rc == 0)
		rc = ha_devices_choose(&have, c, d, e);
	dr_topo_destroy(topo);
	dr_netdev_list_free(devs);
	if (rc < 0) {
		ha_devices_free(d);
		return rc;
	}
	log_list(c, &have, d);
	*out = d;
	return 0;
}

void ha_devices_free(struct ha_devices *d)
{
	dr_free(d);
}

/* ---- properties ---- */

void ha_device_properties(
	const struct ha_devices *list, unsigned i, struct nccl_net_properties_v12 *out)
{
	const struct ha_device *d = &list->dev[i];

	dr_assert(i < list->n);
	*out = (struct nccl_net_properties_v12){
		.name = (char *)(uintptr_t)d->name,
		.pciPath = d->pci_path[0] ? (char *)(uintptr_t)d->pci_path : NULL,
		.guid = d->guid,
		.ptrSupport = NCCL_PTR_HOST,
		/* NCCL registers users' buffers globally only to access GPU memory directly, which TCP does
		 * not. It also takes it as a promise that a send larger than the receive is truncated, which is
		 * an error here. */
		.regIsGlobal = 0,
		.forceFlush = 0,
		.speed = (int)d->speed_mbps,
		.port = d->port,
		/* As NCCL's socket transport, so that both get the same algorithms and protocols. */
		.latency = 0,
		.maxComms = list->max_comms,
		.maxRecvs = HA_RECVS_MAX,
		.netDeviceType = NCCL_NET_DEVICE_HOST,
		.netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION,
		.vProps = { .ndevs = 1, .devs = { (int)i } },
		.maxP2pBytes = P2P_BYTES_MAX,
		.maxCollBytes = P2P_BYTES_MAX,
		.maxMultiRequestSize = 1,
		.railId = NCCL_NET_UNDEFINED,
		.planeId = NCCL_NET_UNDEFINED,
	};
}
