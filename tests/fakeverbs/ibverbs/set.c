/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

#include <poll.h>
#include <sys/eventfd.h>

/* Which objects are alive, and queues that a descriptor stands for. */

struct dr_fake_set dr_fake_ctxs, dr_fake_pds, dr_fake_mrs, dr_fake_channels, dr_fake_cqs,
	dr_fake_qps, dr_fake_ahs, dr_fake_lists;

void dr_fake_set_add(struct dr_fake_set *s, void *p)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 16;
		s->p = realloc(s->p, s->cap * sizeof(s->p[0]));
		dr_assert(s->p != NULL);
	}
	s->p[s->n++] = p;
}

void dr_fake_set_del(struct dr_fake_set *s, const void *p)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->p[i] == p) {
			s->n--;
			memmove(&s->p[i], &s->p[i + 1], (s->n - i) * sizeof(s->p[0]));
			break;
		}
	if (s->n == 0) {
		free(s->p);
		s->p = NULL;
		s->cap = 0;
	}
}

bool dr_fake_set_has(const struct dr_fake_set *s, const void *p)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->p[i] == p)
			return true;
	return false;
}

int dr_fake_queue_init(struct dr_fake_queue *q)
{
	memset(q, 0, sizeof(*q));
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	return q->fd < 0 ? errno : 0;
}

void dr_fake_queue_fini(struct dr_fake_queue *q)
{
	(void)close(q->fd);
	free(q->item);
}

void dr_fake_queue_put(struct dr_fake_queue *q, const struct dr_fake_item *i)
{
	uint64_t one = 1;
	ssize_t n;

	if (q->n == q->cap) {
		q->cap = q->cap ? 2 * q->cap : 16;
		q->item = realloc(q->item, q->cap * sizeof(q->item[0]));
		dr_assert(q->item != NULL);
	}
	q->item[q->n++] = *i;
	n = write(q->fd, &one, sizeof(one));
	dr_assert(n == sizeof(one));
}

static void take(struct dr_fake_queue *q, unsigned at)
{
	q->n--;
	memmove(&q->item[at], &q->item[at + 1], (q->n - at) * sizeof(q->item[0]));
}

/* A token of the descriptor was read for each item, but drop() may have been faster with the item. */
int dr_fake_queue_get(struct dr_fake_queue *q, struct dr_fake_item *i)
{
	uint64_t one;

	for (;;) {
		if (read(q->fd, &one, sizeof(one)) != sizeof(one))
			return errno;
		dr_fake_lock();
		if (q->n > 0)
			break;
		dr_fake_unlock();
	}
	*i = q->item[0];
	take(q, 0);
	return 0;
}

void dr_fake_queue_drop(struct dr_fake_queue *q, const void *about)
{
	struct pollfd pfd = { .fd = q->fd, .events = POLLIN };
	uint64_t one;

	for (unsigned i = q->n; i-- > 0;) {
		if (q->item[i].about != about)
			continue;
		take(q, i);
		if (poll(&pfd, 1, 0) == 1 && read(q->fd, &one, sizeof(one)) != sizeof(one))
			dr_fake_violation("the descriptor of an event queue was read by hand");
	}
}
