/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_STATE_IO_H
#define DR_ORCHESTRATOR_FAULT_STATE_IO_H

#include "orchestrator/fault/state.h"

#include <sys/types.h>

enum { DR_STATE_BOOT_LEN = 36, DR_STATE_BYTES_MAX = 4 << 20 };

/* Which boot and network namespace a fault belongs to. */
struct dr_state_where {
	char boot[DR_STATE_BOOT_LEN + 1];
	uint64_t netns;	 /* inode */
	uint64_t cookie; /* 0: the kernel has none */
};
int dr_state_where(struct dr_state_where *w, struct dr_err *e) DR_MUST_CHECK;

/* *out is freed with dr_free. -EFBIG, -ENOMEM. */
int dr_state_encode(const struct dr_state *s, const struct dr_state_where *w, uint8_t **out,
	size_t *out_len) DR_MUST_CHECK;
/* Any bytes are safe: -EPROTO. On success s is the caller's to fini. */
int dr_state_decode(const uint8_t *p, size_t len, struct dr_state *s, struct dr_state_where *w,
	pid_t *pid) DR_MUST_CHECK;

#endif
