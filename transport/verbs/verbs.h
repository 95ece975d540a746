/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_VERBS_H
#define DR_TRANSPORT_VERBS_VERBS_H

#include "transport/path.h"

/*
 * The verbs kind: InfiniBand and RoCE through libibverbs, which is opened at run time. What its users
 * (the program, the plugin) set; transport/verbs/internal.h has the rest.
 */
extern const struct dr_transport_ops dr_verbs_ops;

enum { DR_VERBS_QPS_MAX = 4 };

/* dr_rail_params.kind_params of every rail; copied by listen. NULL: the defaults. */
struct dr_verbs_params {
	int gid_index; /* -1: chosen by the rail's address, RoCE v2 before v1 */
	unsigned mtu;  /* bytes, 256..4096; 0: the port's active MTU. Lowered to the peer's */
	unsigned sl;   /* service level, 0..15 */
	unsigned tc;   /* traffic class (DSCP and ECN bits), 0..255 */
	unsigned
		timeout; /* 0..31: local ACK timeout 4.096 us * 2^timeout; 0: for ever (IBA 9.7.6.1.3) */
	unsigned retry;	  /* 0..7: transport retries */
	unsigned qps;	  /* data queue pairs of a path, 1..DR_VERBS_QPS_MAX */
	bool lazy_mr;	  /* register with the NIC at first use instead of in mr_reg */
	const char *root; /* tests: where /sys/module is looked for, outlives the rails; NULL: "" */
	int64_t drain_ns; /* tests: a fence's own bound before it destroys; 0: the deadline alone */
};
void dr_verbs_params_init(struct dr_verbs_params *p);

/* When the NIC gives up on its own: 4.096 us * 2^timeout * (retry + 1); DR_NEVER for timeout 0. */
int64_t dr_verbs_window_ns(const struct dr_verbs_params *p);
/* Between two of its retries: 4.096 us * 2^timeout; DR_NEVER for timeout 0. */
int64_t dr_verbs_retry_ns(const struct dr_verbs_params *p);

/* How the NIC reaches this CUDA memory, and why so, for people: "dma-buf", or "peer memory
 * (nvidia_peermem), since ..."; "" for host memory. Lives as long as mr. */
const char *dr_verbs_mr_choice(const struct dr_mr *mr);

/* Fault injection "qp-error": this end's queue pairs go to the error state, as a NIC does it. */
void dr_verbs_path_error(struct dr_path *p);

#endif
