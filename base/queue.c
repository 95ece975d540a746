/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/queue.h"

/*
 * Under the lock: the eventfd's counter is 1 while head != tail, else 0; both change together, so the
 * descriptor can be neither readable over an empty queue nor silent over a full one. `pending` is a
 * copy of the count that is read without the lock; the eventfd compensates for a stale 0.
 */
struct dr_queue {
	pthread_mutex_t lock;
	uint8_t *ring;
	size_t item_size, cap; /* cap is a power of two */
	size_t head, tail;
	atomic_size_t pending;
	atomic_uint lost;
	int fd;
};
enum { CAP_FIRST = 64 };

int dr_queue_create(struct dr_queue **out, size_t item_size)
{
	dr_assert(item_size > 0);
	struct dr_queue *q = dr_calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->item_size = item_size;
	q->cap = CAP_FIRST;
	q->ring = dr_calloc(q->cap, item_size);
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!q->ring || q->fd < 0) {
		int rc = q->ring ? -errno : -ENOMEM;
		if (q->fd >= 0)
			close(q->fd);
		dr_free(q->ring);
		dr_free(q);
		return rc;
	}
	pthread_mutex_init(&q->lock, NULL);
	*out = q;
	return 0;
}

void dr_queue_destroy(struct dr_queue *q)
{
	if (!q)
		return;
	pthread_mutex_destroy(&q->lock);
	close(q->fd);
	dr_free(q->ring);
	dr_free(q);
}

static uint8_t *slot(struct dr_queue *q, size_t at)
{
	return q->ring + (at & (q->cap - 1)) * q->item_size;
}

static int grow(struct dr_queue *q)
{
	size_t n = q->tail - q->head;
	uint8_t *ring = dr_calloc(q->cap * 2, q->item_size);

	if (!ring)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		memcpy(ring + i * q->item_size, slot(q, q->head + i), q->item_size);
	dr_free(q->ring);
	q->ring = ring;
	q->cap *= 2;
	q->head = 0;
	q->tail = n;
	return 0;
}

/* The counter stands at 0 or 1, so that neither call can block or fail. */
static void signal_set(struct dr_queue *q, int on)
{
	uint64_t v = 1;
	ssize_t n = on ? write(q->fd, &v, sizeof(v)) : read(q->fd, &v, sizeof(v));

	dr_assert(n == (ssize_t)sizeof(v));
}

int dr_queue_push(struct dr_queue *q, const void *item)
{
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	if (q->tail - q->head == q->cap)
		rc = grow(q);
	if (rc == 0) {
		memcpy(slot(q, q->tail), item, q->item_size);
		if (q->tail++ == q->head)
			signal_set(q, 1);
		atomic_store_explicit(&q->pending, q->tail - q->head, memory_order_relaxed);
	} else {
		atomic_fetch_add(&q->lost, 1);
	}
	pthread_mutex_unlock(&q->lock);
	return rc;
}

int dr_queue_pop(struct dr_queue *q, void *item)
{
	int got = 0;

	pthread_mutex_lock(&q->lock);
	if (q->head != q->tail) {
		memcpy(item, slot(q, q->head), q->item_size);
		if (++q->head == q->tail)
			signal_set(q, 0);
		atomic_store_explicit(&q->pending, q->tail - q->head, memory_order_relaxed);
		got = 1;
	}
	pthread_mutex_unlock(&q->lock);
	return got;
}

int dr_queue_pending(const struct dr_queue *q)
{
	return atomic_load_explicit(&q->pending, memory_order_relaxed) != 0;
}

unsigned dr_queue_take_lost(struct dr_queue *q)
{
	return atomic_exchange(&q->lost, 0);
}

int dr_queue_fd(const struct dr_queue *q)
{
	return q->fd;
}
