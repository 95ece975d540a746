/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_MEM_H
#define DR_BASE_MEM_H

#include "base/defs.h"

/* The only place that allocates, so that a torture run can fail the k-th allocation. */
void *dr_calloc(size_t n, size_t size);
void *dr_realloc(void *p, size_t size);
char *dr_strdup(const char *s);
void dr_free(void *p);
/* Page-aligned and zeroed (mmap), for data buffers; size is rounded up to whole pages. NULL:
 * -ENOMEM, as for all of these. */
void *dr_pages_alloc(size_t size);
void dr_pages_free(void *p, size_t size);

/* Give back to the system what was freed: after a large piece of work, in a process that lives on. */
void dr_mem_trim(void);

/* For tests: the n-th allocation from now (1: the next one) fails, once. -1: none does. */
void dr_mem_fail_after(long n);

#endif
