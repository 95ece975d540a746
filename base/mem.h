/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_MEM_H
#define DR_BASE_MEM_H

#include "base/defs.h"

/* All allocations go through these, so that a torture test can fail the k-th one. NULL: out of memory. */
void *dr_calloc(size_t n, size_t size);
void *dr_realloc(void *p, size_t size);
char *dr_strdup(const char *s);
void dr_free(void *p);
/* Room for n elements in a list of *cap: the list, moved when it was too small. NULL: no memory, and the list is as
 * before. */
void *dr_grow(void *list, size_t *cap, size_t n, size_t size);
/* Page-aligned and zeroed (mmap), for data buffers; size is rounded up to whole pages. */
void *dr_pages_alloc(size_t size);
void dr_pages_free(void *p, size_t size);

/* Return freed memory to the system, after a large task in a process that continues. */
void dr_mem_trim(void);

/* For tests: the n-th allocation from now (1: the next one) fails, once. -1: none does. */
void dr_mem_fail_after(long n);

#endif
