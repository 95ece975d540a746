/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

/*
 * The receiving end of puts: the requests of the peer, and the receives that it asks for. Bytes of a request are the
 * peer's: what is malformed ends the connection, a key or a range that is not there refuses one entry.
 */

static int post_request(struct dualrail_peer *p, int64_t now)
{
	struct dr_lib_requests *q = &p->from;
	struct dr_span span = { .mem = &q->mem,
		.off = q->tail % DR_LIB_WINDOW * DR_REQUEST_BYTES,
		.len = DR_REQUEST_BYTES };
	uint64_t seq;
	int rc = dr_channel_recv(p->ch[q->channel], &span, 1, &seq, now);

	if (rc == 0)
		q->tail++;
	return rc;
}

void dr_lib_take_start(struct dualrail_peer *p, int64_t now)
{
	for (unsigned i = 0; i < DR_LIB_WINDOW; i++)
		if (post_request(p, now) != 0)
			return; /* the channel has ended; the tick finds out */
}

/* ---- requests ---- */

static void find_target(
	struct dualrail_peer *p, const struct dr_request_entry *en, struct dr_lib_chunk *k)
{
	struct dualrail_memory *m = en->key ? dr_lib_by_key(p->d, en->key) : NULL;

	if (!m || !dr_lib_mem(p, m, p->rx[en->lane].channel))
		k->refusal = ENOENT;
	else if (en->off > m->m.len || en->len > m->m.len - en->off)
		k->refusal = ERANGE;
	if (k->refusal)
		return;
	k->target = m;
	m->users++;
}

/* -ENOMEM: nothing was taken. */
static int take_put(struct dualrail_peer *p, const uint8_t *slot, unsigned n)
{
	struct dr_lib_fifo made;
	struct dr_lib_chunk *k;

	if (p->asked + n > DR_LIB_ANNOUNCED_MAX)
		return -EPROTO;
	STAILQ_INIT(&made);
	for (unsigned i = 0; i < n; i++) {
		k = dr_calloc(1, sizeof(*k));
		if (!k) {
			while ((k = STAILQ_FIRST(&made))) {
				STAILQ_REMOVE_HEAD(&made, next);
				dr_free(k);
			}
			return -ENOMEM;
		}
		STAILQ_INSERT_TAIL(&made, k, next);
	}
	for (unsigned i = 0; i < n; i++) {
		struct dr_request_entry en = dr_request_entry_at(slot, i);

		k = STAILQ_FIRST(&made);
		STAILQ_REMOVE_HEAD(&made, next);
		k->off = en.off;
		k->len = en.len;
		find_target(p, &en, k);
		STAILQ_INSERT_TAIL(&p->rx[en.lane].waiting, k, next);
	}
	p->asked += n;
	return 0;
}

static int take_note(struct dualrail_peer *p, const struct dr_request *r)
{
	struct dr_lib_event *v = dr_lib_event(p, DUALRAIL_NOTE, r->n);

	if (!v)
		return -ENOMEM;
	memcpy((uint8_t *)(v + 1), r->note, r->n);
	p->notes++;
	dr_lib_event_put(p->d, v);
	return 0;
}

static void take_requests(struct dualrail_peer *p, int64_t now)
{
	struct dr_lib_requests *q = &p->from;
	struct dr_channel *ch = p->ch[q->channel];

	while (p->notes < DR_LIB_NOTES_MAX && q->head < q->tail &&
		dr_channel_test(ch, q->head) == 1) {
		const uint8_t *slot = q->slot + q->head % DR_LIB_WINDOW * DR_REQUEST_BYTES;
		struct dr_request r;
		int rc = dr_request_read(
			slot, dr_channel_received_len(ch, q->head, 0), p->lanes, &r);

		if (rc == 0)
			rc = r.type == DR_REQUEST_NOTE ? take_note(p, &r) : take_put(p, slot, r.n);
		if (rc == -ENOMEM)
			return; /* the next turn tries again */
		if (rc != 0) {
			dr_channel_fail(ch, rc, "the peer sent a malformed request", now);
			return;
		}
		q->head++;
		if (post_request(p, now) != 0)
			return;
	}
}

/* ---- lanes ---- */

static int retire(struct dualrail_peer *p, struct dr_lib_lane *l)
{
	struct dr_channel *ch = p->ch[l->channel];

	while (l->head < l->tail && dr_channel_test(ch, l->head) == 1) {
		struct dr_lib_chunk **at = &l->flying[l->head % DR_LIB_WINDOW], *k = *at;
		uint32_t got = dr_channel_received_len(ch, l->head++, 0);
		bool right = got == (k->target ? k->len : 0);

		*at = NULL;
		if (k->target)
			dr_lib_unuse(k->target);
		dr_free(k);
		p->asked--;
		if (!right)
			return -EPROTO;
	}
	return 0;
}

static void post(struct dualrail_peer *p, struct dr_lib_lane *l, int64_t now)
{
	struct dr_lib_chunk *k;

	while ((k = STAILQ_FIRST(&l->waiting)) && l->tail - l->head < DR_LIB_WINDOW) {
		struct dr_span span = { .mem = &p->nothing[l->channel], .tag = k->refusal };
		uint64_t seq;

		if (k->target)
			span = (struct dr_span){ .mem = dr_lib_mem(p, k->target, l->channel),
				.off = k->off,
				.len = k->len };
		if (dr_channel_recv(p->ch[l->channel], &span, 1, &seq, now) != 0)
			return;
		STAILQ_REMOVE_HEAD(&l->waiting, next);
		l->flying[l->tail++ % DR_LIB_WINDOW] = k;
		dr_assert(seq == l->tail - 1);
	}
}

void dr_lib_take(struct dualrail_peer *p, int64_t now)
{
	take_requests(p, now);
	for (unsigned i = 0; i < p->lanes; i++) {
		if (retire(p, &p->rx[i]) != 0) {
			dr_channel_fail(p->ch[p->rx[i].channel], -EPROTO,
				"the peer sent another length than it announced", now);
			return;
		}
		post(p, &p->rx[i], now);
	}
}
