/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_DEVICE_H
#define DR_PLUGIN_DEVICE_H

#include "base/nccl_net_abi.h"
#include "plugin/config.h"
#include "topology/netdev.h"
#include "topology/topo.h"
#include "transport/kind.h"

/*
 * The devices that this host offers to NCCL: over TCP network devices of the calling thread's network namespace, over
 * verbs ports of RDMA devices, each with its network device, whose addresses name the ends of rails. The list is made
 * once per process and constant afterwards, so any thread may read it. NCCL keeps pointers into it (names), so it lives
 * until the plugin's last communicator is gone.
 */
enum {
	HA_DEVICES_MAX = DR_LOCALITY_NICS_MAX,
	HA_SPEED_UNKNOWN_MBPS =
		10000,	  /* reported where the link has no speed; NCCL's own value for that */
	HA_RECVS_MAX = 8, /* buffers of one irecv */
	HA_PCI_PATH_BYTES = 512,
	HA_DEVICE_NAME_BYTES = 72,
};

struct ha_device {
	char name[HA_DEVICE_NAME_BYTES];  /* that NCCL is told: "eth0", "mlx5_0", "mlx4_0:2" */
	char ifname[IFNAMSIZ];		  /* its network device */
	char bus_id[16];		  /* "": on no PCI bus */
	char pci_path[HA_PCI_PATH_BYTES]; /* real path in /sys; "": on no PCI bus */
	int ifindex;
	enum dr_nic_rank rank;
	/* The physical port: guid of the card (for NCCL the chip), port of it. Functions, VFs and VLANs of one port
	 * have both alike; two ports of one card have the guid alike. Virtual devices have a guid of their own. */
	uint64_t guid;
	int port;	     /* 1, 2, ... */
	int64_t link_mbps;   /* -1: unknown */
	unsigned speed_mbps; /* that NCCL is told */
	unsigned n_addrs;    /* >= 1 */
	struct dr_netdev_addr
		addr[DR_NETDEV_ADDRS_MAX]; /* usable: of the family wanted, global or loopback */
	/* Index of the device that carries the data when this one fails, for comms that use this one: never one on the
	 * same physical port, if possible on another card. -1: there is none, or HA_NCCL_ENABLE_BACKUP is 0. */
	int shadow;
};

struct ha_devices {
	unsigned n; /* >= 1 */
	/* Behind them, unknown to NCCL: rails use these where no others join the ends. */
	unsigned n_spare;
	struct ha_device
		dev[HA_DEVICES_MAX]; /* by PCI place, then name; those on no PCI bus at the end */
	int max_comms;		     /* of one device */
	/* Network devices of the rendezvous, of which name, ifname and addresses are set; 0: those of dev. */
	unsigned n_boot;
	struct ha_device boot[HA_DEVICES_MAX];
};

/* A port of an RDMA device. */
struct ha_port {
	struct dr_kind_port own;
	char why[200]; /* a rail cannot be opened on it; "": it can */
};

/* What the host has: input of ha_devices_choose. */
struct ha_nics {
	const struct dr_netdev *dev;
	size_t n;
	const struct dr_topo *topo; /* NULL: unknown */
	int default_ifindex; /* has the only preferred default route, see dr_netdev_default; 0: none has */
	const char *sysfs;	    /* "/sys" */
	uint64_t files;		    /* descriptors that the process may have (RLIMIT_NOFILE) */
	unsigned ports;		    /* ephemeral ports of an address */
	const struct ha_port *port; /* verbs */
	unsigned n_ports;
};

/*
 * The devices that the configuration selects. They are up, have a carrier and a usable address. Over TCP, with a list of
 * names: those that match. Without one, or with a list of excluded names ("^"), the rules of automatic rails: no loopback,
 * no port of a bond or bridge, no tunnel, no bridge without a physical port, none that is slow beside the fastest, and
 * not the device with the default route where two other ports remain; these two kinds are spares.
 * Over verbs: every active port that NCCL_IB_HCA admits, one for each network device. What is left
 * out is logged with the reason. More than HA_DEVICES_MAX: the first ones. -ENODEV: none is left.
 * No system call but readlink below sysfs.
 */
int ha_devices_choose(const struct ha_nics *have, const struct ha_config *c, struct ha_devices *out,
	struct dr_err *e) DR_MUST_CHECK;
/* The same for this host; logs the result at level INFO. Takes some ten milliseconds. Free with ha_devices_free. */
int ha_devices_create(const struct ha_config *c, struct ha_devices **out, struct dr_err *e)
	DR_MUST_CHECK;
void ha_devices_free(struct ha_devices *d); /* NULL is allowed */

/* The properties of a device. Pointers are valid as long as the list. */
void ha_device_properties(
	const struct ha_devices *d, unsigned i, struct nccl_net_properties_v12 *out);

#endif
