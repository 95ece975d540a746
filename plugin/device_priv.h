/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_DEVICE_PRIV_H
#define DR_PLUGIN_DEVICE_PRIV_H

#include "plugin/device.h"

/* device_select.c */
/* Of usable addresses; 0: any. */
sa_family_t ha_family(const struct ha_config *c);
/* The user names the devices. */
bool ha_named(const struct ha_config *c);
/* The port that the configuration gives to a network device; NULL: none. */
const struct ha_port *ha_port_of(
	const struct ha_nics *have, const struct ha_config *c, const struct dr_netdev *d);
/* "mlx5_0", or "mlx4_0:2" where the device has several ports. */
void ha_port_name(const struct dr_kind_port *p, char *buf, size_t len);
/* The same as below, of ports of RDMA devices: their network devices. */
int ha_ports_select(const struct ha_nics *have, const struct ha_config *c,
	const struct dr_netdev **out, unsigned cap, struct dr_err *e) DR_MUST_CHECK;
/* The devices to offer in their order, then the spares, at most cap in all; returns the number of
 * the former, > 0.
 * -ENODEV. */
int ha_devices_select(const struct ha_nics *have, const struct ha_config *c,
	const struct dr_netdev **out, unsigned cap, unsigned *n_spare, struct dr_err *e)
	DR_MUST_CHECK;

/* device_place.c */
/* Card and physical port of a device as text; two devices of one port have both alike. card "": on no card. */
struct ha_place {
	char card[80], port[80];
};
void ha_place_of(const struct ha_nics *have, const struct dr_netdev *d, struct ha_place *out);
/* Bus id; "": on no PCI bus. */
const char *ha_bus_id(const struct ha_nics *have, const struct dr_netdev *d);
/* guid, port, pci_path and bus_id. */
void ha_device_place(const struct ha_nics *have, const struct dr_netdev *d, struct ha_device *out);
/* The shadow of each device of the list. */
void ha_devices_pair(const struct ha_nics *have, struct ha_devices *d);

#endif
