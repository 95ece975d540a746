/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_THREAD_H
#define DR_BASE_THREAD_H

#include "base/defs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Start a thread that no signal is delivered to: signals are the main thread's.
 * name: at most 15 bytes. -errno of pthread_create(3). */
int dr_thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg) DR_MUST_CHECK;

/* A condition variable whose deadlines are times of dr_now_ns(). */
void dr_cond_init(pthread_cond_t *c);
/* False: the deadline has passed. */
bool dr_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t until_ns);

#endif
