/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_DOCTOR_PRIV_H
#define DR_ORCHESTRATOR_CHECKS_DOCTOR_PRIV_H

#include "channel/manager.h"
#include "orchestrator/checks/finding.h"
#include "orchestrator/fault/fault.h"
#include "topology/netdev.h"
#include "transport/kind.h"

/*
 * The checks. Each examines one subject and adds at least one finding, even if there is no problem, so that the
 * user sees what was checked. A value that cannot be read on this machine is a note, never a failure.
 */

/* Parameters of the run that doctor is asked about. */
struct dr_doctor_run {
	const struct dr_transport_kind *kind; /* of --transport */
	bool server;			      /* this end may become the server: check its ports */
	bool pair;			      /* no list of GPUs here: the server may have fewer */
	unsigned gpus, channels, window;
	uint64_t chunk_bytes;
	uint64_t sockbuf; /* --sockbuf, 0: not given */
	unsigned port, gpu_top;
};

/* A NIC that is or could be a rail. */
struct dr_doctor_nic {
	struct dr_netdev_rail rail;
	bool hardware; /* not veth, bond, tunnel...: PCI is valid */
};

/* What is checked, and what was found. */
struct dr_doctor {
	const char *root; /* directory that contains /proc, /sys and /boot; "": this machine */
	struct dr_doctor_run run;
	bool named;			/* the user named the rails */
	bool dry_run;			/* do not undo faults of killed runs */
	struct dr_guard_options faults; /* where they are recorded, and their commands */
	unsigned n;
	struct dr_doctor_nic nic[DR_RAILS_MAX];
	unsigned pci_gpus; /* found by dr_check_pci_gpus */
	bool bypass;	   /* a transport that bypasses the kernel has a device here */
	struct dr_findings f;
};

#define dr_find_ok(d, ...) dr_findings_add(&(d)->f, DR_SEVERITY_OK, __VA_ARGS__)
#define dr_find_note(d, ...) dr_findings_add(&(d)->f, DR_SEVERITY_NOTE, __VA_ARGS__)
#define dr_find_warn(d, ...) dr_findings_add(&(d)->f, DR_SEVERITY_WARN, __VA_ARGS__)
#define dr_find_fail(d, ...) dr_findings_add(&(d)->f, DR_SEVERITY_FAIL, __VA_ARGS__)

/* ---- limits.c: of this process ---- */

/* Locked memory against what a transport that bypasses the kernel registers: the buffers of every
 * channel with both rails. */
void dr_check_memlock(struct dr_doctor *d);
/* The hard limit. */
void dr_check_open_files(struct dr_doctor *d);
void dr_check_cpu_quota(struct dr_doctor *d);
/* NET_ADMIN (faults). */
void dr_check_capabilities(struct dr_doctor *d);

/* ---- nics.c: the rails of this machine ---- */

void dr_check_rail_count(struct dr_doctor *d);
void dr_check_link(struct dr_doctor *d, const struct dr_doctor_nic *nic);
/* NICs that a run does not use because they are down. devs: all devices of the machine. */
void dr_check_unused(struct dr_doctor *d, const struct dr_netdev *devs, size_t n);
void dr_check_speed(struct dr_doctor *d);
void dr_check_mtu(struct dr_doctor *d);
/* Several rails in one subnet: by default each NIC answers ARP requests for all addresses of the
 * machine. */
void dr_check_arp(struct dr_doctor *d);

/* ---- pci.c: PCI links of NICs and GPUs ---- */

/* Link width and speed below the maximum of the card; NUMA node -1 on a machine with several nodes; address
 * translation by an IOMMU, which slows down transfers between GPU and RDMA NIC. */
void dr_check_pci_nic(struct dr_doctor *d, const struct dr_doctor_nic *nic);
/* Every NVIDIA GPU on the PCI bus; sets pci_gpus. */
void dr_check_pci_gpus(struct dr_doctor *d);

/* ---- gpu.c; after dr_check_pci_gpus and dr_check_transport ---- */

/* Presence and version of the driver. */
void dr_check_gpu_driver(struct dr_doctor *d);
/* Access of an RDMA NIC to GPU memory: dma-buf (Linux 5.12, open kernel modules, driver 515) or
 * nvidia_peermem. */
void dr_check_gpu_rdma(struct dr_doctor *d);

/* ---- kernel.c ---- */

/* Compares the largest socket buffer with what the channels of one GPU need to fill the fastest rail at a round
 * trip of 1 ms. */
void dr_check_buffers(struct dr_doctor *d);
void dr_check_clock(struct dr_doctor *d);
void dr_check_governor(struct dr_doctor *d);

/* ---- runs.c: other runs ---- */

/* Processes that listen on the ports that a server would need here. */
void dr_check_ports(struct dr_doctor *d);
/* Faults of killed runs: undone, or with dry_run only listed. A row for each that a living run holds. */
void dr_check_leftovers(struct dr_doctor *d);

/* ---- transport.c ---- */

/*
 * Can a transport kind use the rails? Calls the kind's probe for each and adds what it found. What is missing stops
 * a run over --transport and is a note for others. If the rails are named, each must work; else NICs without a
 * device of the kind are left out. Returns true when the kind has a device on any of them. A kind without a probe
 * has nothing to check: false.
 */
bool dr_check_transport(
	struct dr_doctor *d, const struct dr_transport_kind *k, const union dr_kind_params *params);

#endif
