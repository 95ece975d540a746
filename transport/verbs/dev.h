/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_DEV_H
#define DR_TRANSPORT_VERBS_DEV_H

#include "transport/verbs/ibv.h"
#include "transport/verbs/verbs.h"

/*
 * Which RDMA device and port serves a rail, and how the peer addresses it.
 *
 * RoCE: the port whose GID table holds the rail's IP address (v4 as ::ffff:a.b.c.d) on the rail's net
 * device; InfiniBand: the port under the rail's IPoIB device, addressed by LID. GIDs move between
 * indices when addresses come and go, so the index is looked up again by value before it is used.
 */
struct dr_verbs_dev {
	const struct dr_ibv *ibv;
	struct ibv_context *ctx;
	char name[64];
	char ifname[64];
	uint8_t port;
	bool roce;
	union ibv_gid gid;
	enum ibv_gid_type gid_type; /* value of ibv_gid_entry.gid_type */
	uint32_t gid_index;	    /* when it was looked up last */
	uint16_t lid;		    /* InfiniBand: given by the subnet manager, never 0 */
	bool grh;		    /* InfiniBand: the port wants a global route header */
	unsigned mtu;		    /* bytes: what this end would use */
	uint32_t msg_max;	    /* port: bytes of one work request at most */
	struct ibv_device_attr attr;
};

/* Opens a context of its own. Errors, each with the remedy in e: -ENODEV no RDMA device on ifname,
 * -ENETDOWN port not active, -EADDRNOTAVAIL no GID for the address or gid_index out of range, -ENOENT no
 * libibverbs, -EINVAL MTU above the port's, -EACCES /dev/infiniband, -ENOMEM. */
int dr_verbs_dev_open(const struct dr_rail_params *rail, const struct dr_verbs_params *p,
	struct dr_verbs_dev *out, struct dr_err *e) DR_MUST_CHECK;
/* 0 or -errno: then the driver may keep what was made on it. */
int dr_verbs_dev_close(struct dr_verbs_dev *d);
/* Look the port's address up again: RoCE: the GID by its value, InfiniBand: the LID. 1: its index, or the
 * LID, is another now; 0: as it was; -ENOENT: it is gone. */
int dr_verbs_dev_gid(struct dr_verbs_dev *d);
/* A verbs return value (0, errno, or -1 and errno) as 0 or -errno. */
int dr_verbs_neg(int rc);
/* What a verbs call returned that makes something: 0, or if NULL the code for errno, which was 0 before the call
 * (then: -ENOMEM), in words as below. */
int dr_verbs_made(
	const struct dr_verbs_dev *d, const void *made, const char *doing, struct dr_err *e);
/* -ENOMEM and the like of reg_mr, create_qp, create_cq in words with the remedy (memlock limit, quota). */
int dr_verbs_explain(const struct dr_verbs_dev *d, const char *doing, int err, struct dr_err *e);

/* The netdev behind an RDMA device name ("mlx5_0", "rxe0", "mlx5_0:2"), for --rails: 0 or -ENODEV. */
int dr_verbs_netdev_of(const char *rdma, char *ifname, size_t len, struct dr_err *e);
/* dr_transport_kind.ports */
struct dr_kind_port;
int dr_verbs_ports(struct dr_kind_port *out, unsigned cap, struct dr_err *e);

#endif
