/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_DEV_PRIV_H
#define DR_TRANSPORT_VERBS_DEV_PRIV_H

#include "transport/verbs/dev.h"

/* Between dev.c, dev_find.c and dev_gid.c; the _on forms are for tests that bring their own table. */

/* One port that could serve a rail; ctx is open and its owner closes it. */
struct dr_verbs_port {
	struct ibv_context *ctx;
	char name[64];
	struct ibv_device_attr attr;
	uint8_t port;
	struct ibv_port_attr pattr;
	bool has_gid; /* gid is the rail's address, or, InfiniBand, the port's own */
	struct ibv_gid_entry gid;
};

/* The best port for the rail: one with a GID for its address before one with only its net device.
 * -ENODEV with the devices that are there, -EACCES, -ENOMEM. */
int dr_verbs_find(const struct dr_ibv *ibv, const struct dr_rail_params *rail,
	struct dr_verbs_port *out, struct dr_err *e) DR_MUST_CHECK;
/* Entry `index` of a port's GID table: 0, -ENODATA when it is empty, or -errno. */
int dr_verbs_gid_at(const struct dr_ibv *ibv, struct ibv_context *ctx, uint8_t port, uint32_t index,
	struct ibv_gid_entry *out);

/* A walk over the valid entries of a port's GID table, by rising index. A port that does not answer
 * has no entries; begin..end own the memory. */
struct dr_verbs_gids {
	uint8_t port;
	struct ibv_gid_entry *all; /* of all ports */
	size_t at, end;		   /* in `all` */
};
void dr_verbs_gids_begin(
	struct dr_verbs_gids *g, const struct dr_ibv *ibv, struct ibv_context *ctx, uint8_t port);
bool dr_verbs_gids_next(struct dr_verbs_gids *g, struct ibv_gid_entry *out);
void dr_verbs_gids_end(struct dr_verbs_gids *g);

/* The net device of a port, into IFNAMSIZ bytes. */
bool dr_verbs_netdev_of_port(
	const struct dr_ibv *ibv, struct ibv_context *ctx, uint8_t port, char *ifname);

int dr_verbs_ports_on(const struct dr_ibv *ibv, struct dr_kind_port *out, unsigned cap,
	struct dr_err *e) DR_MUST_CHECK;
int dr_verbs_dev_open_on(const struct dr_ibv *ibv, const struct dr_rail_params *rail,
	const struct dr_verbs_params *p, struct dr_verbs_dev *out, struct dr_err *e) DR_MUST_CHECK;
int dr_verbs_netdev_of_on(const struct dr_ibv *ibv, const char *rdma, char *ifname, size_t len,
	struct dr_err *e) DR_MUST_CHECK;

#endif
