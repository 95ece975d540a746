/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_ERR_H
#define DR_BASE_ERR_H

#include "base/defs.h"

/* One complete error: code is -errno, text reads "what failed, with which value: why; what to do". */
struct dr_err {
	int code;
	char text[256];
};

/* Fill e (may be NULL) and return code, so that `return dr_err_set(e, -EINVAL, ...)` reads well. */
int dr_err_set(struct dr_err *e, int code, const char *fmt, ...) DR_PRINTF(3, 4);
/* Prepend "prefix: " to the text; keeps and returns the code. */
int dr_err_prefix(struct dr_err *e, const char *fmt, ...) DR_PRINTF(2, 3);
/* "ECONNREFUSED" for 111 or -111; "E?" when unknown. Never NULL. */
const char *dr_errno_name(int err);

#endif
