/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_QUEUE_H
#define DR_BASE_QUEUE_H

#include "base/defs.h"

/*
 * Queue of fixed-size items between threads: any number of producers, one consumer, with an eventfd
 * that is readable exactly while items wait. Grows as needed; for control, not for the data path
 * (a mutex inside). What the producer wrote before a push the consumer may read after the pop.
 */
struct dr_queue;

int dr_queue_create(struct dr_queue **out, size_t item_size) DR_MUST_CHECK;
void dr_queue_destroy(struct dr_queue *q);
/* Any thread. Copies the item. -ENOMEM: not taken, and counted as lost. */
int dr_queue_push(struct dr_queue *q, const void *item);
/* Consumer: 1 and the oldest item, or 0. */
int dr_queue_pop(struct dr_queue *q, void *item);
/* Consumer: is there possibly an item? One relaxed load, no system call. */
int dr_queue_pending(const struct dr_queue *q);
/* Number of items lost since the last call because memory ran out. */
unsigned dr_queue_take_lost(struct dr_queue *q);
/* To sleep on (EPOLLIN); pop clears it. */
int dr_queue_fd(const struct dr_queue *q);

#endif
