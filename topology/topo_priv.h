/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_TOPO_PRIV_H
#define DR_TOPOLOGY_TOPO_PRIV_H

#include "topology/topo.h"

#include <hwloc.h>

/* Parts of dr_topo_create; hwloc's conventions end here. */

/* topo_hwloc.c */
/* xml NULL: this machine. Destroy with hwloc_topology_destroy. */
int dr_topo_hw_open(const char *xml, hwloc_topology_t *out, struct dr_err *e) DR_MUST_CHECK;
/* GPUs and nodes into t. */
int dr_topo_hw_gpus(struct dr_topo *t, hwloc_topology_t hw, const struct dr_topo_params *p,
	struct dr_err *e) DR_MUST_CHECK;
/* The PCI device that obj is or hangs from; NULL. */
hwloc_obj_t dr_topo_hw_pci(hwloc_obj_t obj);
void dr_topo_hw_place(hwloc_topology_t hw, hwloc_obj_t pci, struct dr_topo_place *out);
void dr_topo_hw_bus_id(hwloc_obj_t pci, char buf[16]);
/* The network device of that name and hardware address, as hwloc found it; NULL. */
hwloc_obj_t dr_topo_hw_netdev(hwloc_topology_t hw, const char *name, const uint8_t mac[6]);

/* topo_live.c, topo_xml.c: the NICs, unsorted. devs: of this network namespace. */
int dr_topo_live_nics(struct dr_topo *t, hwloc_topology_t hw, const char *sysfs,
	const struct dr_netdev *devs, size_t n_devs, struct dr_err *e) DR_MUST_CHECK;
int dr_topo_xml_nics(struct dr_topo *t, hwloc_topology_t hw, struct dr_err *e) DR_MUST_CHECK;
/* topo_rdma.c: RDMA devices and GIDs of the NICs that are there, and devices without one as NICs. */
int dr_topo_rdma(struct dr_topo *t, hwloc_topology_t hw, const char *sysfs, struct dr_err *e)
	DR_MUST_CHECK;

/* topo.c */
/* A new NIC at the end of the list, everything unknown; NULL: no memory. */
struct dr_topo_nic *dr_topo_add_nic(struct dr_topo *t);
/* Place, bus id, card and port of a NIC on this PCI device. pf: its physical function, "" for itself;
 * port: what tells the ports of the device apart. */
void dr_topo_nic_at(struct dr_topo_nic *n, hwloc_topology_t hw, hwloc_obj_t pci, const char *pf,
	const char *port);
/* The first NIC on this PCI device that has no RDMA device yet; NULL: there is none. */
struct dr_topo_nic *dr_topo_nic_without_rdma(struct dr_topo *t, const char *bus_id);
/* Is that GID, as the kernel prints it ("0000:...:ffff:0a00:0001"), the one of this address? */
bool dr_topo_gid_of(const char *gid, const struct sockaddr_storage *addr);

#endif
