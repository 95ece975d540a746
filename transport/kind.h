/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_KIND_H
#define DR_TRANSPORT_KIND_H

#include "base/commands.h"
#include "base/fields.h"
#include "base/opts.h"
#include "transport/path.h"
#include "transport/gpu.h"

#include <stddef.h>

/*
 * A transport kind as the program sees it: everything beside the path ops that depends on the kind.
 * A kind is one const descriptor in its own folder and one line in transport/registry.c. Options,
 * help, man page, messages between the ends, doctor and topo are made from these descriptors.
 *
 * Params are what the options of this end say and the rails get (dr_rail_params.kind_params). They
 * are plain memory: copied freely, nothing in them is freed. Any thread may call all functions.
 */
enum {
	DR_KINDS_MAX = 8,
	DR_KIND_NAME_MAX = 16,	  /* bytes of a kind's name, the final 0 included */
	DR_KIND_FINDINGS_MAX = 4, /* of one probe */
	DR_KIND_PARAMS_MAX = 128, /* bytes */
};
union dr_kind_params {
	max_align_t align;
	unsigned char bytes[DR_KIND_PARAMS_MAX];
};

/* A fault that only this kind has. */
struct dr_kind_fault {
	const char *name; /* as in --fault: "qp-error" */
	const char *help; /* "the path's queue pairs fail" */
	const char *done; /* for the report: "queue pairs put into the error state" */
	/* Break the path, which is of this kind, so that it has to detect it. On the path's thread. */
	void (*make)(struct dr_path *p);
};

/* What a probe of a rail found, for doctor. */
enum dr_kind_level { DR_KIND_OK, DR_KIND_NOTE, DR_KIND_WARN };
struct dr_kind_finding {
	enum dr_kind_level level;
	const char *check; /* a word for machines: "rdma-mtu" */
	char text[192];
	char found[64], needed[64]; /* "" where there is none */
	char remedy[256];	    /* what to do; "" for OK */
};
struct dr_kind_probe {
	unsigned netdev_mtu; /* in: MTU of the rail's net device, bytes */
	unsigned n;
	struct dr_kind_finding v[DR_KIND_FINDINGS_MAX];
};

/* A port of a device of the kind's own. */
struct dr_kind_port {
	char device[64]; /* "mlx5_0" */
	unsigned port;	 /* of the device: 1, 2, ... */
	unsigned ports;	 /* that the device has */
	char ifname[16]; /* its net device; "": none */
	bool active;
	unsigned connections; /* paths that the device can have at a time */
};

/* A member that is NULL, 0 or false: the kind has nothing of that sort. */
struct dr_transport_kind {
	const char *name; /* as in --transport; the ops' name */
	const struct dr_transport_ops *ops;
	const char *about;   /* for --help: "RoCE and InfiniBand" */
	const char *package; /* of Debian, needed at run time */
	/* --transport NAME:ARGUMENT: what the kind loads at this end, "FILE". NULL: it is named alone. */
	const char *argument;
	/* The data does not pass through the kernel: buffers are locked in memory, counters of the net
	 * device may miss the bytes, and GPU memory may be reached without a copy. */
	bool bypass;
	bool retransmits; /* dr_path_stats.retransmits is counted */
	bool fails_over; /* it may move a path to another NIC by itself: --detect transport is allowed */

	/* ---- options and parameters; without params_size the functions are NULL ---- */

	/* Offsets count in the params; the title is a heading of help. */
	struct dr_opt_group options;
	size_t params_size;
	/* The part of the params on which both ends agree: the client's go into the offer, as an object
	 * whose key is shared->what. The table states the ranges; fields are plain members. */
	const struct dr_fields *shared;
	/* The params of a kind with an argument, which outlives them (NULL: none was given), and the version of
	 * --net-api, 0: the newest. */
	void (*file)(void *params, const char *file, unsigned version);
	/* What no single range says, of the peer's values too: -EINVAL. conservative: detection waits for
	 * the hardware alone. */
	int (*check)(const void *params, bool conservative, struct dr_err *e);
	/* The peer has proven no key: no more datagrams go to an address than came from it, until the peer has connected
	 * from there. NULL: the kind does not limit them. */
	void (*distrust)(void *params);
	/* A warning on params that are valid; NULL: none. */
	const char *(*warning)(const void *params, bool conservative);

	/* ---- detection: see dr_manager_params.hw_window_ns and hw_retry_ns; NULL: the kernel's ---- */

	void (*windows)(const void *params, int64_t *window_ns, int64_t *retry_ns);

	/* ---- NICs ---- */

	const char
		*nics_help; /* for --rails: which names are accepted too, which NICs are left out */
	/* The net device behind a name of the kind's own ("mlx5_0"); -ENODEV with those there are. */
	int (*netdev_of)(const char *name, char *ifname, size_t len, struct dr_err *e);
	/* Ports of the kind's own devices, those that this process may not open left out. Writes at most cap, returns how
	 * many there are; -ENOENT and -ENOSYS: the kind's library is missing or unsuitable, -ENOMEM. */
	int (*ports)(struct dr_kind_port *out, unsigned cap, struct dr_err *e);
	/* Open the rail as a session would, and close it again. out may be NULL, else netdev_mtu is set
	 * and n is 0. 0, or an error with its remedy: -ENODEV no device of the kind on this NIC, -ENOENT
	 * and -ENOSYS the kind's library is missing or unsuitable, -EINVAL params that this NIC cannot do,
	 * others: it has a device that does not work. */
	int (*probe)(const struct dr_rail_params *rail, const void *params,
		struct dr_kind_probe *out, struct dr_err *e);
	/* The largest IP packet that the kind sends over a rail whose NICs both have at least this MTU; NULL: the MTU. */
	unsigned (*packet_bytes)(const void *params, unsigned mtu, bool v6);
	/* With packets of this size as the largest: "--mtu 1024" into buf; false: none helps. NULL: has no option. */
	bool (*fit_packets)(unsigned bytes, bool v6, char *buf, size_t len);
	/* The host that a rail's handle names, port 0. Data and datagrams go there, so it has to be that of the NIC in offer or
	 * reply. -EPROTO: the handle is invalid; -ENOENT: with these params it names none that has to be. NULL: never. */
	int (*handle_host)(
		const void *params, const void *handle, size_t len, struct sockaddr_storage *out);
	const char *check_name; /* doctor's word for findings on whether the kind can run: "rdma" */

	/* ---- */

	const struct dr_kind_fault *faults; /* name NULL ends them */
	/* The run has GPU memory; gpu stays until the rails are gone. NULL: rails have no use of it. */
	void (*gpu)(void *params, const struct dr_rail_gpu *gpu);
	/* How a NIC reaches this GPU memory, for people; "" for host memory. Lives as long as mr. */
	const char *(*memory)(const struct dr_mr *mr);
};

/* Registered kinds, in the order of help; NULL past the last. */
const struct dr_transport_kind *dr_transport_kind_at(size_t i);
/* By name, with or without an argument; NULL: not in this build. */
const struct dr_transport_kind *dr_transport_kind(const char *name);
/* "tcp, verbs" into buf, which is returned. */
const char *dr_transport_names(char *buf, size_t len);

/* The kind's own fault of that name; NULL: none. */
const struct dr_kind_fault *dr_kind_fault(const struct dr_transport_kind *k, const char *name);
/* -EINVAL when the fault belongs to other kinds than k. Faults of no kind are every kind's: 0. */
int dr_kind_fault_check(const struct dr_transport_kind *k, const char *fault, struct dr_err *e)
	DR_MUST_CHECK;

#endif
