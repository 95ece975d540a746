/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_SHARED_H
#define DR_BASE_SHARED_H

#include "base/defs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Data buffers that another process can map: pages of a memfd, page-aligned and zeroed. Any thread may call these.
 */

/* A memfd of len zeros, whose size no process can change: a mapping of it stays valid. The descriptor, which the caller
 * closes, or -errno. */
int dr_shared_memfd(const char *name, size_t len) DR_MUST_CHECK;
/* NULL: out of memory or descriptors. size is rounded up to whole pages. */
void *dr_shared_alloc(size_t size);
/* p: what dr_shared_alloc returned, or NULL. Processes that have mapped it keep the pages. */
void dr_shared_free(void *p);

struct dr_shared {
	uint64_t id; /* unique in this process, never used again */
	int fd;	     /* valid until dr_shared_free; not the caller's to close */
	void *base;
	size_t len; /* whole pages */
};
/* The buffer that has all of [p, p+len). False: none has. */
bool dr_shared_find(const void *p, size_t len, struct dr_shared *out);

#endif
