/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_HANDLES_H
#define DR_BOOTSTRAP_HANDLES_H

#include "bootstrap/conv.h"

/* Payload of HANDLES: u16 pair, u16 n, n × (u8 len, len bytes). */

/* Copies handles, to be sent later; dr_free the copy. -EINVAL: a len above DR_HANDLE_MAX. */
int dr_handles_copy(const struct dr_handle *h, unsigned n, struct dr_handle **out) DR_MUST_CHECK;
/* Queue HANDLES on an OPEN conversation. -ENOMEM, -ENOBUFS, -EMSGSIZE. */
int dr_handles_send(struct dr_conv *c, unsigned k, const struct dr_handle *h, unsigned n)
	DR_MUST_CHECK;

size_t dr_handles_encoded_len(const struct dr_handle *h, unsigned n);
/* buf holds dr_handles_encoded_len bytes. -EINVAL: a len above DR_HANDLE_MAX. */
int dr_handles_encode(void *buf, size_t cap, unsigned k, const struct dr_handle *h, unsigned n);
/* Exactly n handles of pair k are due. *out is dr_free'd by the caller. -EPROTO, -ENOMEM. */
int dr_handles_decode(const void *data, size_t len, unsigned k, unsigned n, struct dr_handle **out,
	struct dr_err *e);
/* The pair that the payload names. -EPROTO. */
int dr_handles_pair(const void *data, size_t len, unsigned *k);
/* The number of handles that it states, for an owner that does not know it. -EPROTO: incomplete, or above
 * DR_BOOT_HANDLES_MAX. */
int dr_handles_count(const void *data, size_t len, unsigned *n);

#endif
