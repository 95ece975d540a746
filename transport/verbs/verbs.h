/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_VERBS_H
#define DR_TRANSPORT_VERBS_VERBS_H

#include "transport/path.h"

/*
 * The verbs kind: InfiniBand and RoCE through libibverbs, which is opened at run time. This header has
 * what its users (the program, the plugin) set; transport/verbs/path_priv.h has the rest.
 */
extern const struct dr_transport_ops dr_verbs_ops;

enum { DR_VERBS_QPS_MAX = 4 };

/* dr_rail_params.kind_params of every rail; copied by listen. NULL: the defaults. */
struct dr_verbs_params {
	int gid_index; /* -1: chosen by the rail's address, RoCE v2 before v1 */
	unsigned mtu;  /* bytes, 256..4096; 0: the port's active MTU. Lowered to the peer's */
	uint64_t sl;   /* service level, 0..15 */
	uint64_t tc;   /* traffic class (DSCP and ECN bits), 0..255 */
	uint64_t
		timeout; /* 0..31: local ACK timeout 4.096 us * 2^timeout; 0: infinite (IBA 9.7.6.1.3) */
	uint64_t retry; /* 0..7: transport retries */
	uint64_t qps;	/* data queue pairs of a path, 1..DR_VERBS_QPS_MAX */
	int lazy_mr;	/* 1: register with the NIC at first use instead of in mr_reg */
	bool distrusts; /* the peer has no key: on RoCE its address is that of its NIC, and stays so */
	const char *root; /* tests: prefix of /sys/module, outlives the rails; NULL: "" */
	int64_t drain_ns; /* tests: how long a fence drains before it destroys; 0: until the deadline */
};
void dr_verbs_params_init(struct dr_verbs_params *p);

/* When the NIC gives up on its own: 4.096 us * 2^timeout * (retry + 1); DR_NEVER for timeout 0. */
int64_t dr_verbs_window_ns(const struct dr_verbs_params *p);
/* Between two of its retries: 4.096 us * 2^timeout; DR_NEVER for timeout 0. */
int64_t dr_verbs_retry_ns(const struct dr_verbs_params *p);
/* A probe without an answer counts once per such time (dr_path_stats.unanswered): 500 ms, or the longest
 * time that a NIC may take to repeat it, four times the interval above (IBA 9.7.6.1.3), if that is more.
 * Timeout 0: 500 ms, since the NIC repeats nothing. */
int64_t dr_verbs_answer_ns(const struct dr_verbs_params *p);

#endif
