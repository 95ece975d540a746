/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_CHECKS_H
#define DR_ORCHESTRATOR_DOCTOR_CHECKS_H

#include "orchestrator/doctor/finding.h"
#include "topology/netdev.h"

/*
 * The checks. Each looks at one thing and adds its findings: at least one row, also when all is well,
 * so that a reader sees what was looked at. `root` is where /proc, /sys and /boot are found (machine.h).
 * What cannot be read on this machine is a note, never a failure.
 */

/* What the run to come will ask for. */
struct dr_doctor_run {
	bool verbs; /* --transport verbs: what only verbs needs stops this run; else it is a note */
	bool server; /* this end may become the server: its ports matter */
	unsigned gpus, channels, window;
	uint64_t chunk_bytes;
	uint64_t sockbuf; /* --sockbuf, 0: not given */
	unsigned port, gpu_top;
};

/* A NIC that takes part, or that could. */
struct dr_doctor_nic {
	struct dr_netdev_rail rail;
	bool hardware; /* no veth, bond, tunnel...: PCI and duplex mean something */
	bool counted;
	struct dr_netdev_counters count;
};

/* ---- limits.c: of this process ---- */

/* Locked memory against what verbs registers: buffers of every channel with both rails. */
void dr_check_memlock(const char *root, const struct dr_doctor_run *run, struct dr_findings *f);
void dr_check_open_files(
	const char *root, const struct dr_doctor_run *run, unsigned rails, struct dr_findings *f);
void dr_check_processes(const char *root, const struct dr_doctor_run *run, struct dr_findings *f);
/* NET_ADMIN (faults) and, on kernels before 5.7, NET_RAW (binding to a device). */
void dr_check_capabilities(const char *root, struct dr_findings *f);

/* ---- nics.c: the rails of this node ---- */

void dr_check_rail_count(const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f);
void dr_check_link(const struct dr_doctor_nic *nic, struct dr_findings *f);
/* NICs that a run leaves out because they are down; all devices of the node. */
void dr_check_unused(const struct dr_netdev *devs, size_t n, struct dr_findings *f);
void dr_check_speed(const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f);
void dr_check_duplex(const char *root, const struct dr_doctor_nic *nic, struct dr_findings *f);
void dr_check_mtu(const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f);
/* Errors above one in a million packets, drops above one in ten thousand, since the device is there. */
void dr_check_counters(const struct dr_doctor_nic *nic, struct dr_findings *f);

/* ---- pci.c: where NICs and GPUs are plugged in ---- */

/* Link width and speed below what card and slot can do; NUMA node -1 where there are several;
 * translation by an IOMMU in the way of direct transfers between GPU and RDMA NIC. */
void dr_check_pci_nic(const char *root, const struct dr_doctor_nic *nic, struct dr_findings *f);
/* Every NVIDIA GPU on the PCI bus; returns their number. */
unsigned dr_check_pci_gpus(const char *root, struct dr_findings *f);

/* ---- gpu.c ---- */

/* Driver there, its version. gpus: as dr_check_pci_gpus returned. */
void dr_check_gpu_driver(const char *root, unsigned gpus, struct dr_findings *f);
/* Ways for an RDMA NIC into GPU memory: dma-buf (Linux 5.12, open kernel modules, driver 515) or
 * nvidia_peermem. */
void dr_check_gpu_rdma(
	const char *root, const struct dr_doctor_run *run, bool rdma, struct dr_findings *f);

/* ---- routes.c: does a rail's traffic stay on its NIC? ---- */

/* As dr_netdev_toward. */
typedef int (*dr_doctor_route_fn)(const struct sockaddr *dst, const struct sockaddr *src,
	struct dr_netdev *out, struct dr_err *e);
/* An address that the rail's peer may have: in its subnet, of no rail here. false: none there. */
bool dr_doctor_neighbour(
	const struct dr_doctor_nic *nic, unsigned n, unsigned which, struct sockaddr_storage *out);
/*
 * peers: an address per rail to send to; NULL: neighbours. A packet that comes in on a NIC which the
 * kernel would not use to answer is dropped by a strict rp_filter.
 */
void dr_check_routes(const char *root, const struct dr_doctor_nic *nic, unsigned n,
	const struct sockaddr_storage *peers, dr_doctor_route_fn route, struct dr_findings *f);
/* Several rails in one subnet: each NIC answers ARP requests for all addresses of the host. */
void dr_check_arp(
	const char *root, const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f);

/* ---- kernel.c ---- */

/* The largest socket buffer against what one GPU's channels need to fill the fastest rail in 1 ms. */
void dr_check_buffers(const char *root, const struct dr_doctor_run *run,
	const struct dr_doctor_nic *nic, unsigned n, struct dr_findings *f);
void dr_check_clock(const char *root, struct dr_findings *f);
void dr_check_governor(const char *root, struct dr_findings *f);
/* Who listens on the ports that a server here would need. */
void dr_check_ports(const char *root, const struct dr_doctor_run *run, struct dr_findings *f);

/* ---- leftover.c ---- */

/* Faults of runs that were killed: repaired, or with dry_run named. dir NULL: the standard places. */
void dr_check_leftovers(const char *dir, bool dry_run, struct dr_findings *f);

#endif
