/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

/* Allocations left until the one that fails; <= 0: none does. */
static _Atomic long fail_after;

void dr_mem_fail_after(long n)
{
	atomic_store(&fail_after, n);
}

static int must_fail(void)
{
	if (atomic_load_explicit(&fail_after, memory_order_relaxed) <= 0)
		return 0;
	if (atomic_fetch_sub(&fail_after, 1) != 1)
		return 0;
	errno = ENOMEM;
	return 1;
}

void *dr_calloc(size_t n, size_t size)
{
	return must_fail() ? NULL : calloc(n ? n : 1, size ? size : 1);
}

void *dr_realloc(void *p, size_t size)
{
	return must_fail() ? NULL : realloc(p, size ? size : 1);
}

char *dr_strdup(const char *s)
{
	return must_fail() ? NULL : strdup(s);
}

void *dr_grow(void *list, size_t *cap, size_t n, size_t size)
{
	size_t want = DR_MAX(DR_MAX(2 * *cap, n), (size_t)8);
	void *p = n <= *cap ? list : dr_realloc(list, want * size);

	if (p && n > *cap)
		*cap = want;
	return p;
}

void dr_free(void *p)
{
	free(p);
}

static size_t whole_pages(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (size > SIZE_MAX - page)
		return 0;
	return (DR_MAX(size, (size_t)1) + page - 1) / page * page;
}

void *dr_pages_alloc(size_t size)
{
	size_t len = whole_pages(size);

	if (!len || must_fail())
		return NULL;
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void dr_pages_free(void *p, size_t size)
{
	if (p)
		munmap(p, whole_pages(size));
}

void dr_mem_trim(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
