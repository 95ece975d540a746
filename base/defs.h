/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_DEFS_H
#define DR_BASE_DEFS_H

/*
 * Conventions of every header in this tree, stated once.
 *
 * - A function returns int: 0 (or a count >= 0), or -errno. Pointers come back through
 *   out-parameters, which are written on success only.
 * - -EAGAIN means back-pressure only: nothing was taken, call again after progress.
 * - A function that takes a last `struct dr_err *` writes there what was tried, with which value,
 *   why it failed and what to do next. The pointer may be NULL.
 * - init/fini work on the caller's memory, create/destroy allocate; if init or create fails, nothing
 *   is owed. destroy(NULL) is allowed.
 * - Unless a header says otherwise an object belongs to one thread at a time.
 */

#include <stddef.h>
#include <stdint.h>

#define DR_MUST_CHECK __attribute__((warn_unused_result))
#define DR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define DR_EXPORT __attribute__((visibility("default")))

#define dr_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define DR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define DR_MIN(a, b) ((a) < (b) ? (a) : (b))
#define DR_MAX(a, b) ((a) > (b) ? (a) : (b))

#define DR_NS_PER_US 1000LL
#define DR_NS_PER_MS 1000000LL
#define DR_NS_PER_S 1000000000LL
/* "No deadline": later than every time that occurs. */
#define DR_NEVER INT64_MAX

/*
 * dr_assert is for our own bugs and is always on; bytes from a peer, a file or the environment are
 * errors, never asserts. dr_dassert guards the data path and is on in builds with DR_DEBUG.
 */
_Noreturn void dr_assert_fail(const char *expr, const char *file, int line);
#define dr_assert(expr) ((expr) ? (void)0 : dr_assert_fail(#expr, __FILE__, __LINE__))
#ifdef DR_DEBUG
#define dr_dassert(expr) dr_assert(expr)
#else
#define dr_dassert(expr) ((void)sizeof(expr))
#endif

#endif
