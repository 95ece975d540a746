/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_PREFLIGHT_PRIV_H
#define DR_ORCHESTRATOR_CHECKS_PREFLIGHT_PRIV_H

#include "orchestrator/output/record.h"

/* preflight_bad.c: which GPUs and NICs of a run are bad, from its comparison with a baseline. */
enum { PREFLIGHT_BAD_MAX = 64 };

struct preflight_bad {
	int kind;			 /* enum dr_figure_kind: GPU, NIC, or a pair of them */
	int64_t gpu;			 /* DR_UNSET: of a NIC */
	char nic[64];			 /* "": of a GPU */
	int direction;			 /* -1: both, the NIC is not in the run */
	double gbps, mean_gbps, percent; /* of the lowest figure behind it */
	char reason[96];
	bool beside_others; /* not a baseline */
};
extern const struct dr_fields preflight_bad_fields;

/*
 * A figure that is below the baseline is put down to as few parts as explain it, in this order: a NIC that the run does
 * not use, or over which every GPU is below; a GPU that is below over every other NIC; a pair of GPU and NIC; what is
 * below only while several share it. Without a baseline: a NIC that is slow or idle beside others.
 * Returns how many there are, at most PREFLIGHT_BAD_MAX.
 */
size_t preflight_find_bad(const struct dr_record *rec, struct preflight_bad *out);
/* "NIC eth1, to-server: 19 Gb/s is 20 % of the baseline's 95"; at most four of them, and how many more. */
void preflight_describe_bad(const struct preflight_bad *bad, size_t n, char *buf, size_t len);

#endif
