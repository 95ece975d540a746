/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEVERBS_BED_H
#define DR_TESTS_FAKEVERBS_BED_H

#include "base/err.h"
#include "tests/fakeverbs/kit.h"
#include "transport/verbs/ibv.h"

/* Two ends on the fake NICs with nothing of dualrail but the loader's table: end 0 on fake0, 1 on fake1. */
enum { BED_MEM = 64 << 10, BED_WR = 8, BED_CQE = 64, BED_QKEY = 0x1234, BED_INLINE = 64 };
struct bed_end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	union ibv_gid gid;
};
struct bed {
	const struct dr_ibv *v;
	const struct dr_fake_ctl *fake;
	struct bed_end e[2];
	uint8_t timeout, retry, rnr_retry, min_rnr;
	uint32_t psn; /* of both directions; end 1 expects psn + skew */
	uint32_t skew;
};

/* Everything but connected queue pairs. */
void bed_open(struct bed *b, enum ibv_qp_type type, int sig_all);
/* Queue pairs to RTS, RC: with each other. */
void bed_connect(struct bed *b);
int bed_modify(struct bed *b, unsigned end, enum ibv_qp_state to);
/* Everything down; no object may be alive and nothing misused. */
void bed_shut(struct bed *b);

int bed_recv(struct bed *b, unsigned end, uint64_t wr_id, uint32_t off, uint32_t len);
/* len bytes at off of end 0's memory, to off of end 1's for writes. */
int bed_send(struct bed *b, uint64_t wr_id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
	unsigned flags);
/* Until a completion is there. */
struct ibv_wc bed_wait(struct bed *b, unsigned end);
/* Nothing may be there. */
void bed_none(struct bed *b, unsigned end);
/* A completion with this wr_id and status. */
struct ibv_wc bed_expect(struct bed *b, unsigned end, uint64_t wr_id, enum ibv_wc_status status);

#endif
