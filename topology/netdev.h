/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NETDEV_H
#define DR_TOPOLOGY_NETDEV_H

#include "base/err.h"
#include "topology/addr.h"

#include <net/if.h>

/*
 * Network devices of the calling thread's network namespace, through rtnetlink. Every call opens its
 * own socket and blocks only for the kernel's answer, so all of them are thread safe. Nothing here
 * reads /sys/class/net: that mount shows the namespace it was mounted in, not the caller's.
 */

struct dr_topo;

enum { DR_NETDEV_ADDRS_MAX = 16 };

struct dr_netdev_addr {
	struct sockaddr_storage
		addr;	 /* AF_INET or AF_INET6, port 0; scope id set when link-local */
	unsigned prefix; /* bits */
	/* Names this device to other hosts: not link-local (169.254/16, fe80::/10), not
	 * host-local, and on no other device that is up. */
	bool global;
	bool shared; /* of global scope, and on another device that is up */
};

struct dr_netdev {
	char name[IFNAMSIZ];
	int ifindex;
	bool up;      /* set up by the administrator (IFF_UP) */
	bool running; /* up and has a carrier (IFF_UP && IFF_LOWER_UP) */
	bool loopback;
	unsigned mtu;
	unsigned gso_max,
		gro_max; /* largest aggregated packet, bytes; above 65536: BIG TCP; 0: not told */
	char qdisc[16];	 /* root queueing discipline: "mq"; "": not told */
	int64_t speed_mbps; /* -1: unknown, impossible, or virtual (a veth's 10000 means nothing) */
	char kind[16];	    /* "veth", "bond", "vlan"...; "" for hardware; "lo" for the loopback */
	int master;	    /* ifindex of the bond or bridge it belongs to; 0: none */
	int link;	    /* ifindex of the device below or, veth, beside it here; 0: none here */
	uint8_t mac[6];	    /* zeros when the device has none of 6 bytes */
	char pci[16];	    /* "0000:81:00.0"; "": on no PCI bus, or the kernel does not say */
	char port_id[65];   /* of the physical port, alike for its functions; "": not told */
	struct dr_netdev_addr addrs[DR_NETDEV_ADDRS_MAX];
	unsigned n_addrs; /* addresses past DR_NETDEV_ADDRS_MAX are left out */
};

struct dr_netdev_counters {
	uint64_t rx_bytes, tx_bytes, rx_packets, tx_packets;
	uint64_t rx_dropped, tx_dropped, rx_missed, rx_errors, tx_errors;
	uint64_t carrier_changes; /* up or down */
};

/* A link speed as a driver tells it, Mb/s: -1 where it cannot be one (0, 65535, 4294967295...). */
int64_t dr_netdev_mbps(int64_t told);
/* All devices, in ascending ifindex. Free with dr_netdev_list_free. Errors: -ENOMEM, the socket's. */
int dr_netdev_list(struct dr_netdev **out, size_t *out_n, struct dr_err *e) DR_MUST_CHECK;
void dr_netdev_list_free(struct dr_netdev *list);

/* -ENODEV with the devices that are there. */
int dr_netdev_by_name(const char *name, struct dr_netdev *out, struct dr_err *e) DR_MUST_CHECK;
/* -ENODEV: it was removed. */
int dr_netdev_by_index(int ifindex, struct dr_netdev *out, struct dr_err *e) DR_MUST_CHECK;
/* "lo, eth0, eth1" for messages, as many as fit. */
void dr_netdev_names(const struct dr_netdev *devs, size_t n, char *buf, size_t len);
/* The device that holds this local address (127.0.0.0/8 is all lo's). -EADDRNOTAVAIL. */
int dr_netdev_by_addr(const struct sockaddr *sa, struct dr_netdev *out, struct dr_err *e)
	DR_MUST_CHECK;
/* The device that the kernel sends through to reach dst from src (src may be NULL), e.g. the one
 * that carries the control connection. -ENETUNREACH. */
int dr_netdev_toward(const struct sockaddr *dst, const struct sockaddr *src, struct dr_netdev *out,
	struct dr_err *e) DR_MUST_CHECK;
int dr_netdev_counters(int ifindex, struct dr_netdev_counters *out, struct dr_err *e) DR_MUST_CHECK;

/* Changes; all need CAP_NET_ADMIN over the namespace, else -EPERM with a text that says so. */
/* May this process change the device? Sends a change of nothing: 0, -EPERM or -ENODEV. */
int dr_netdev_may_change(int ifindex, struct dr_err *e) DR_MUST_CHECK;
int dr_netdev_set_up(int ifindex, bool up, struct dr_err *e) DR_MUST_CHECK;
/* IPv6 addresses are added without duplicate address detection. -EEXIST when it is there. */
int dr_netdev_add_addr(int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e)
	DR_MUST_CHECK;
int dr_netdev_del_addr(int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e)
	DR_MUST_CHECK;
/* name here, peer in the namespace of peer_netns_fd (-1: here); mtu 0: the kernel's 1500. */
int dr_netdev_create_veth(const char *name, const char *peer, int peer_netns_fd, unsigned mtu,
	struct dr_err *e) DR_MUST_CHECK;

/*
 * What setting a device down flushes and setting it up does not bring back: its IPv6 addresses, its
 * routes of every table (not those that the kernel makes from addresses) and its permanent
 * neighbours. Kept as the kernel's own netlink messages, so that the bytes can go into a file.
 * Routes through nexthop objects come back as plain routes.
 */
struct dr_netdev_snapshot {
	uint8_t *bytes; /* netlink messages in the order to replay */
	size_t len;
	unsigned addresses, routes, neighbours;
};
int dr_netdev_save(int ifindex, struct dr_netdev_snapshot *out, struct dr_err *e) DR_MUST_CHECK;
/* The device must be up. What is there already is no error, so it may be repeated. Any bytes are
 * safe: messages of other types, other devices or bad lengths are -EPROTO before anything is sent. */
int dr_netdev_restore(int ifindex, const struct dr_netdev_snapshot *s, struct dr_err *e)
	DR_MUST_CHECK;
void dr_netdev_snapshot_fini(struct dr_netdev_snapshot *s);

/* Where the kernel's routes lead by one NIC, over all tables; blocks of link-local addresses apart. */
enum { DR_ROUTES_MAX = 32 };
struct dr_routes {
	bool known; /* false: could not be read, are more than fit, or the peer did not say */
	unsigned n;
	struct dr_prefix to[DR_ROUTES_MAX];
};

/* What an address of a node may be used for, best first. */
enum dr_nic_rank {
	DR_NIC_RAIL,
	DR_NIC_MANAGEMENT, /* of the management NIC: where no RAIL makes a pair */
	DR_NIC_SLOW,	   /* below a tenth of the fastest NIC's speed: the same */
	DR_NIC_NONE,	   /* no end of a rail; the peer must not take it for its own */
	DR_NIC_RANKS
};

/* An address of a local NIC, which may be the end of a rail. */
struct dr_netdev_rail {
	char ifname[IFNAMSIZ];
	int ifindex;
	unsigned nic; /* number of the NIC in the list: its addresses have the same */
	enum dr_nic_rank rank;
	struct sockaddr_storage addr; /* port 0 */
	unsigned prefix;
	unsigned mtu;
	int64_t speed_mbps; /* -1 unknown */
	bool running;
	struct dr_routes routes; /* see dr_netdev_rail_routes */
};
/*
 * The addresses to offer, at most cap, those of a NIC in a row. list is --rails: device names,
 * addresses and NAME@ADDRESS, separated by commas ("eth1,eth2", "127.0.0.2,127.0.0.3",
 * "lo@127.0.0.2"), each a NIC. A device that is down is accepted when it has an address. A name
 * stands for all its usable addresses, those of the control address's family first. NULL or "auto":
 * the addresses of all devices, by rank (dr_netdev_refused), hardware first. Returns the count
 * (> 0). Errors: -EINVAL for a malformed or repeated item, -ENODEV, -EADDRNOTAVAIL, -E2BIG: more
 * than DR_NETDEV_NAMED_MAX items.
 */
enum { DR_NETDEV_NAMED_MAX = 16 };
int dr_netdev_rails(const char *list, const struct sockaddr *control, struct dr_netdev_rail *out,
	size_t cap, struct dr_err *e) DR_MUST_CHECK;
/* The NICs that are rails whatever the peer has: in place, keeps the first address of each NIC of
 * the best rank. Returns the count. */
unsigned dr_netdev_firsts(struct dr_netdev_rail *rails, unsigned n);
/* dr_netdev_rails from the given devices. An address in the list is looked up on this machine. */
struct dr_netdev_choice {
	const struct dr_netdev *devs;
	size_t n_devs;
	const char *list;
	const struct sockaddr *control; /* local address of the control connection; NULL: none */
	int default_ifindex;		/* as dr_netdev_default; 0: tells nothing */
	bool reserve_control;		/* the control NIC is the management NIC in any case */
	sa_family_t family;		/* of usable addresses; 0: any */
	const struct dr_topo *topo;	/* tells speeds and ports; NULL: the devices do */
	/* False: the device counts for nothing. NULL: all count. */
	bool (*admits)(const void *arg, const struct dr_netdev *d);
	const void *arg;
};
int dr_netdev_choose(const struct dr_netdev_choice *from, struct dr_netdev_rail *out, size_t cap,
	struct dr_err *e) DR_MUST_CHECK;

/* ---- candidate.c: which NICs the automatic choice takes ---- */

enum dr_netdev_why {
	DR_NETDEV_RAIL, /* it is taken */
	DR_NETDEV_LOOPBACK,
	DR_NETDEV_PORT,	   /* of a bond or bridge, which stands for it */
	DR_NETDEV_VIRTUAL, /* a tunnel or the like, or a veth with both ends here */
	DR_NETDEV_BRIDGE,  /* without a physical port */
	DR_NETDEV_DOWN,
	DR_NETDEV_CARRIER,
	DR_NETDEV_ADDRESS,
	DR_NETDEV_SLOW,		/* below a tenth of the fastest candidate's speed, both known */
	DR_NETDEV_CONTROL,	/* the management NIC, which carries the control connection */
	DR_NETDEV_DEFAULT_ROUTE /* the management NIC, another one */
};
/* Why the automatic choice leaves out this one of from->devs. */
enum dr_netdev_why dr_netdev_refused(
	const struct dr_netdev_choice *from, const struct dr_netdev *d);
/* The same by link and addresses alone. */
enum dr_netdev_why dr_netdev_link_refused(
	const struct dr_netdev *d, sa_family_t family, bool named);
enum dr_nic_rank dr_netdev_rank(enum dr_netdev_why why);
/* Does it belong to a bond or bridge? A VRF only gives its members a routing table. */
bool dr_netdev_is_port(const struct dr_netdev *devs, size_t n, const struct dr_netdev *d);
/* "no carrier" */
const char *dr_netdev_why_text(enum dr_netdev_why why);
/* The text of a NIC that may have been meant as a rail: the one with the default route is not. */
#define DR_CONTROL_CONNECTION "control connection"
/* Global, or of the loopback; of that family, 0: any. Where a device has no global address its IPv4
 * ones are usable if the user names it. */
bool dr_netdev_addr_usable(
	const struct dr_netdev *d, const struct dr_netdev_addr *a, sa_family_t family, bool named);
/*
 * The management NIC: a candidate that the automatic choice leaves out although it may be fast.
 * NULL: there is none. It is the control NIC, except where another NIC is known to be for
 * management:
 *  1. The control NIC is fast, and a slower NIC is left out: none, so it is a rail.
 *  2. Another NIC has the only preferred default route: that one.
 *  3. The control NIC is as fast as the others, and no NIC has the only default route: none.
 * Without a control connection, or over no candidate: the NIC with the only preferred default
 * route, where candidates on two other ports remain. An unknown speed is neither fast nor slow.
 */
const struct dr_netdev *dr_netdev_management(const struct dr_netdev_choice *from);

/* Reads devices and default route of this host into `from`. Free *devs with dr_netdev_list_free. */
int dr_netdev_choice_read(struct dr_netdev_choice *from, struct dr_netdev **devs, struct dr_err *e)
	DR_MUST_CHECK;
/* dr_netdev_rails for a choice without devices and default route: these are read here. */
int dr_netdev_find_rails(const struct dr_netdev_choice *want, struct dr_netdev_rail *out,
	size_t cap, struct dr_err *e) DR_MUST_CHECK;
/* The device that alone has the default route with the lowest metric of the main table. 0: none, or several share
 * it (ECMP), or its next hops are not told. family: AF_INET or AF_INET6. */
int dr_netdev_default(int family);

/* Fill in `routes` of these rails, those of the address's family, from one dump of the kernel's. A
 * failure leaves them unknown. */
void dr_netdev_rail_routes(struct dr_netdev_rail *rails, unsigned n);

#endif
