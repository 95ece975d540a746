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
 * acknowledged between r->before_ns and r->after_ns. percent counts packets as the stack hands them to
 * the device: up to 64 KiB each with segmentation offload.
 *
 * Ingress drops at the device's ingress hook. On egress, packets are
 * forwarded to a device that does not exist: a drop verdict would be reported to TCP and to sendto() as
 * local congestion, unlike a packet lost on a wire.
 *
 * Errors: -EPERM, -EOPNOTSUPP without nf_tables, -ENODEV.
 */
int dr_nft_open(const char *ifname, enum dr_fault_dir dir, double percent, struct dr_nft **out,
	struct dr_fault_report *r, struct dr_err *e) DR_MUST_CHECK;
/* Remove the table, between r->before_ns and r->after_ns, and free. */
void dr_nft_close(struct dr_nft *n, struct dr_fault_report *r);
/* "netdev hooks" or "inet hooks, egress only seen by IP": how it was done. */
const char *dr_nft_how(const struct dr_nft *n);
/* Can this kernel do that here? Makes and removes an empty table. */
int dr_nft_probe(struct dr_err *e);

#endif
