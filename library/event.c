/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Events wait in a list; the eventfd is readable while there is one. The one that the user reads is copied, so that its
 * peer or put may be freed meanwhile.
 */

struct dr_lib_event *dr_lib_event(struct dualrail_peer *p, int kind, size_t len)
{
	struct dr_lib_event *v = dr_calloc(1, sizeof(*v) + len);

	if (!v)
		return NULL;
	v->owned = true;
	v->data = (const uint8_t *)(v + 1);
	v->e.kind = kind;
	v->e.peer = p;
	v->e.len = len;
	v->e.gap_ns = -1;
	return v;
}

void dr_lib_event_put(struct dualrail *d, struct dr_lib_event *v)
{
	uint64_t one = 1;

	if (v->queued)
		return;
	if (STAILQ_EMPTY(&d->events) && write(d->event_fd, &one, sizeof(one)) < 0)
		dr_assert(errno == EAGAIN); /* readable already */
	v->queued = true;
	STAILQ_INSERT_TAIL(&d->events, v, next);
}

static void take(struct dualrail *d, struct dr_lib_event *v)
{
	uint64_t n;

	STAILQ_REMOVE(&d->events, v, dr_lib_event, next);
	if (STAILQ_EMPTY(&d->events) && read(d->event_fd, &n, sizeof(n)) < 0)
		dr_assert(errno == EAGAIN);
	v->queued = false;
}

static void forget(struct dr_lib_event *v)
{
	if (v->put)
		dr_lib_put_unref(v->put);
	else if (v->owned)
		dr_free(v);
}

void dr_lib_events_drop(struct dualrail_peer *p)
{
	struct dr_lib_event *next;

	for (struct dr_lib_event *v = STAILQ_FIRST(&p->d->events); v; v = next) {
		next = STAILQ_NEXT(v, next);
		if (v->e.peer == p) {
			take(p->d, v);
			forget(v);
		}
	}
}

int dualrail_fd(const struct dualrail *d)
{
	return d->event_fd;
}

const struct dualrail_event *dualrail_next(struct dualrail *d)
{
	struct dr_lib_event *v;

	dr_lib_lock(d);
	v = STAILQ_FIRST(&d->events);
	if (!v) {
		dr_lib_unlock(d);
		return NULL;
	}
	take(d, v);
	d->shown.e = v->e;
	memcpy(d->shown.text, v->text, sizeof(v->text));
	d->shown.e.text = d->shown.text;
	if (v->e.kind == DUALRAIL_NOTE) {
		memcpy(d->shown.data, v->data, v->e.len);
		d->shown.e.data = d->shown.data;
		v->e.peer->notes--;
	}
	forget(v);
	dr_lib_unlock(d);
	return &d->shown.e;
}
