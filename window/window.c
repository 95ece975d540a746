/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "window/window.h"

/*
 * Invariants, asserted by dr_window_validate:
 *  1. 0 <= tail - head <= cap: never more than cap requests in flight.
 *  2. head moves in one place, after test said done and consume succeeded for that very entry.
 *  3. Once err is set, head and tail never change.
 * head and tail only grow. 64-bit counters never wrap in practice, so the ring needs no wrap logic.
 */

int dr_window_init(struct dr_window *w, unsigned cap, const struct dr_window_ops *ops, void *ctx)
{
	dr_assert(ops && ops->test && ops->consume);
	if (cap < 1 || cap > DR_WINDOW_MAX)
		return -EINVAL;
	*w = (struct dr_window){ .cap = cap, .ops = ops, .ctx = ctx };
	return 0;
}

void dr_window_validate(const struct dr_window *w)
{
	dr_assert(w->ops && w->ops->test && w->ops->consume);
	dr_assert(w->cap >= 1 && w->cap <= DR_WINDOW_MAX);
	dr_assert(w->head <= w->tail && w->tail - w->head <= w->cap);
	dr_assert(w->err <= 0);
}

unsigned dr_window_in_flight(const struct dr_window *w)
{
	return (unsigned)(w->tail - w->head);
}

int dr_window_full(const struct dr_window *w)
{
	return dr_window_in_flight(w) == w->cap;
}

int dr_window_error(const struct dr_window *w)
{
	return w->err;
}

int dr_window_push(struct dr_window *w, uint64_t request)
{
	dr_dassert((dr_window_validate(w), 1));
	if (w->err)
		return w->err;
	if (dr_window_full(w))
		return -EAGAIN;
	w->request[w->tail % w->cap] = request;
	w->tail++;
	return 0;
}

static int die(struct dr_window *w, int err)
{
	w->err = err;
	return -1;
}

int dr_window_try_release_oldest(struct dr_window *w)
{
	uint64_t request, head = w->head;
	int rc;

	dr_dassert((dr_window_validate(w), 1));
	if (w->err)
		return -1;
	if (head == w->tail)
		return 1;
	request = w->request[head % w->cap];
	rc = w->ops->test(w->ctx, request);
	if (rc < 0)
		return die(w, rc);
	if (rc == 0)
		return 1;
	rc = w->ops->consume(w->ctx, request);
	/* consume may push but not release: this entry would be consumed twice. */
	dr_assert(w->head == head);
	if (rc < 0)
		return die(w, rc);
	w->head++;
	return 0;
}

int dr_window_drain(struct dr_window *w)
{
	int released = 0, rc;

	while ((rc = dr_window_try_release_oldest(w)) == 0)
		released++;
	return rc < 0 ? -1 : released;
}
