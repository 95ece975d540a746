/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_TOPO_H
#define DR_TOPOLOGY_TOPO_H

#include "topology/locality.h"
#include "topology/netdev.h"

/*
 * GPUs and NICs of a machine and their places: the live machine (hwloc for PCI and NUMA, rtnetlink for the network
 * devices of the caller's namespace, sysfs for RDMA), or one exported as hwloc XML (`lstopo --of xml --whole-io
 * FILE.xml`). Read once; constant afterwards.
 */
enum {
	DR_TOPO_DEPTH_MAX = 12, /* bridges above a device */
	DR_TOPO_PLACES_MAX = 8, /* ports of a bond */
	DR_TOPO_ADDRS_MAX = 4,
	DR_TOPO_NAME_MAX = 64,
};

/* A place in the PCI tree, with its NUMA node. */
struct dr_topo_place {
	int numa;			/* node (os index); -1: unknown, or not one alone */
	unsigned n_up;			/* 0: not on PCI */
	uint32_t up[DR_TOPO_DEPTH_MAX]; /* bridges from the host bridge down; equal: the same one */
};

struct dr_topo_gpu {
	char bus_id[16]; /* "0000:1b:00.0" */
	char name[DR_TOPO_NAME_MAX];
	struct dr_topo_place place;
};

struct dr_topo_nic {
	char name[DR_TOPO_NAME_MAX]; /* network device, or the RDMA device where it has none */
	char rdma[DR_TOPO_NAME_MAX]; /* RDMA device; "": none */
	char bus_id[16];	     /* "": not on PCI */
	char port[80];		     /* equal: one physical port */
	char card[16];		     /* bus id of the physical device without function; "" */
	char kind[16];		     /* as of struct dr_netdev */
	bool netdev;		     /* has a network device */
	bool vf;
	bool slave; /* belongs to a bond, which stands for it */
	/* Its own; of a bond those of its slaves. 0: virtual. */
	unsigned n_places;
	struct dr_topo_place place[DR_TOPO_PLACES_MAX];
	int up;		    /* link: 1, 0, -1 unknown */
	int64_t speed_mbps; /* -1 unknown */
	unsigned mtu;	    /* 0 unknown */
	unsigned n_addrs;
	struct dr_netdev_addr addr[DR_TOPO_ADDRS_MAX];
	char gid[48];  /* that RDMA connections from addr[0] use, else the port's first; "": none */
	int gid_index; /* -1 */
};

struct dr_topo {
	bool live;
	char source[DR_TOPO_NAME_MAX]; /* "this machine", or the file's name */
	unsigned n_nodes;	       /* NUMA nodes, >= 1 */
	struct dr_topo_gpu *gpu;       /* as asked for, else in the order of their bus ids */
	unsigned n_gpus;
	struct dr_topo_nic *nic; /* by bus id, then name; those without a bus id at the end */
	unsigned n_nics;
};

struct dr_topo_params {
	const char *xml; /* file; NULL: this machine */
	/* GPUs in the caller's numbering, e.g. the CUDA driver's; NULL: the PCI tree's GPUs, which are
	 * NVIDIA's of the classes VGA (0300) and 3D controller (0302). */
	const char *const *bus_ids;
	unsigned n_bus_ids;
	const char *sysfs; /* NULL: "/sys"; tests have their own */
};

/* Errors: those of dr_file_text (xml), -EBADMSG (no hwloc XML, or of another version), -ENODEV (a
 * bus id that is not there), -EIO, -ENOMEM. Takes some ten milliseconds on a live machine. */
int dr_topo_create(const struct dr_topo_params *p, struct dr_topo **out, struct dr_err *e)
	DR_MUST_CHECK;
void dr_topo_destroy(struct dr_topo *t);

/* NIC of that network or RDMA device; NULL. t may be NULL. */
const struct dr_topo_nic *dr_topo_find_nic(const struct dr_topo *t, const char *name);
/* Distance of two places, and of a GPU and a NIC (for a bond, of its farthest port). */
uint8_t dr_topo_place_distance(const struct dr_topo_place *a, const struct dr_topo_place *b);
uint8_t dr_topo_distance(const struct dr_topo_gpu *gpu, const struct dr_topo_nic *nic);
/* -1: unknown, or a bond's ports differ. */
int dr_topo_nic_numa(const struct dr_topo_nic *nic);

/*
 * Input of dr_locality_choose for the GPUs gpu[0..n_gpus) (indexes into t->gpu; others have an unknown place) and
 * the NICs (entries of t->nic; NULL: unknown place).
 */
void dr_topo_locality(const struct dr_topo *t, const unsigned *gpu, unsigned n_gpus,
	const struct dr_topo_nic *const *nic, unsigned n_nics, struct dr_locality *out);

/* Link speed, Mb/s; of the RDMA device if the kernel has none. -1: unknown. t may be NULL. */
int64_t dr_topo_link_mbps(const struct dr_topo *t, const struct dr_netdev *d);
/* The NICs of a file as devices: out[t->n_nics]. A file need not tell addresses: empty ones. */
void dr_topo_netdevs(const struct dr_topo *t, struct dr_netdev *out);
#endif
