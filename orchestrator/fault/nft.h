/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_NFT_H
#define DR_ORCHESTRATOR_FAULT_NFT_H

#include "base/defs.h"
#include "base/err.h"
#include "orchestrator/fault/fault.h"

/*
 * One packet filter that drops on a device, through nf_tables over netlink. It lives as long as its
 * socket: the table carries the OWNER flag, so the kernel removes it when the process dies.
 */
struct dr_nft;

/*
 * percent 100: everything, ARP and neighbour discovery included. The one transaction is sent and
 * acknowledged between *before_ns and *after_ns. percent counts packets as the stack hands them to
 * the device: up to 64 KiB each with segmentation offload.
 *
 * Ingress drops at the device's ingress hook. Egress drops behind the sender's back: packets are
 * forwarded to a device that does not exist, for a plain drop verdict would come back to TCP and to
 * sendto() as local congestion, which no lost packet on a wire does.
 *
 * Errors: -EPERM, -EOPNOTSUPP without nf_tables, -ENODEV.
 */
int dr_nft_open(const char *ifname, enum dr_fault_dir dir, double percent, struct dr_nft **out,
	int64_t *before_ns, int64_t *after_ns, struct dr_err *e) DR_MUST_CHECK;
/* Remove the table and free; NULL is allowed. before_ns and after_ns may be NULL. */
int dr_nft_close(struct dr_nft *n, int64_t *before_ns, int64_t *after_ns, struct dr_err *e);
/* "netdev hooks" or "inet hooks, egress only seen by IP": how it was done. */
const char *dr_nft_how(const struct dr_nft *n);
/* Can this kernel do that here? Makes and removes an empty table. */
int dr_nft_probe(struct dr_err *e);

#endif
