/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes out: a part's copy is started when it is posted, and the part is posted to the inner path,
 * in order, when it is copied and flushed. Invariants:
 *  1. The inner path is given a part only after its copy is done.
 *  2. What post_send answers it answers at once, by the inner path's credit: nothing that it took is
 *     refused later.
 *  3. A span is freed when its part was SENT, and at a fence.
 */
#include "transport/staged/staged_priv.h"

#include <errno.h>

static struct stage_send *at(struct stage_tx *t, uint64_t count)
{
	return &t->queue[count % STAGE_SENDS];
}

/* ---- posting ---- */

/* The inner path's, without the parts that it has not been given yet. */
int dr_stage_credit(struct dr_path *bp, uint32_t epoch, uint64_t seq, struct dr_credit *out)
{
	struct staged_path *p = staged_path(bp);
	struct stage_tx *t = p->tx;

	dr_dassert(t != NULL);
	int rc = p->f->prm.inner->credit(p->inner, epoch, seq, out);
	for (uint64_t i = t->handed; rc == 0 && i < t->posted; i++)
		if (at(t, i)->epoch == epoch && at(t, i)->seq == seq)
			out->todo &= ~(1u << at(t, i)->part);
	return rc;
}

/* What the inner path would say, and what our queue adds. */
static int check(struct staged_path *p, uint32_t epoch, uint64_t seq, unsigned part,
	const struct dr_part *what)
{
	struct dr_credit c;
	int rc = dr_stage_may_post(p);

	if (rc)
		return rc;
	if (!p->tx || what->off > what->mr->len || what->len > what->mr->len - what->off)
		return -EINVAL;
	rc = dr_stage_credit(&p->base.path, epoch, seq, &c);
	if (rc)
		return rc;
	if (part >= c.n || !(c.todo & 1u << part))
		return -EINVAL;
	if (what->len > c.cap[part] || (!what->mr->inner && what->len > p->f->prm.ring_bytes))
		return -EMSGSIZE;
	return p->tx->posted - p->tx->retired == STAGE_SENDS ? -EAGAIN : 0;
}

static void start_copies(struct staged_path *p)
{
	struct stage_tx *t = p->tx;

	for (; t->started < t->posted; t->started++) {
		struct stage_send *s = at(t, t->started);

		if (s->span != STAGE_NO_SPAN &&
			!dr_stage_copy(p, DR_STAGE_OUT, &s->what, s->what.len, s->span, &s->ticket))
			return;
	}
}

int dr_stage_post_send(
	struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	struct staged_path *p = staged_path(bp);
	uint64_t span = STAGE_NO_SPAN;
	int rc = check(p, epoch, seq, part, what);

	if (rc)
		return rc;
	if (!what->mr->inner && !dr_stage_need_ring(p))
		return -EAGAIN;
	if (!what->mr->inner && what->len > 0)
		rc = dr_stage_span(p->ring, what->len, &span);
	if (rc)
		return rc;
	*at(p->tx, p->tx->posted++) = (struct stage_send){
		.epoch = epoch, .seq = seq, .part = part, .what = *what, .span = span
	};
	start_copies(p);
	dr_stage_attend(p);
	return 0;
}

/* ---- on to the inner path ---- */

/* The next part that may be handed over; NULL: none now. */
static struct stage_send *next_ready(const struct staged_path *p)
{
	struct stage_tx *t = p->tx;
	struct stage_send *s = at(t, t->handed);

	if (t->handed == DR_MIN(t->started, t->flushed))
		return NULL;
	return dr_stage_done(p->f, DR_STAGE_OUT, s->ticket) ? s : NULL;
}

unsigned dr_stage_tx_push(struct staged_path *p)
{
	struct stage_tx *t = p->tx;
	struct stage_send *s;
	unsigned n = 0;

	if (!p->ready || p->failed || p->fail_due || p->closed || p->fencing)
		return 0;
	start_copies(p);
	while (!p->fail_due && (s = next_ready(p))) {
		struct dr_part what = dr_stage_inner_part(p, &s->what, s->span);
		int rc = p->f->prm.inner->post_send(p->inner, s->epoch, s->seq, s->part, &what);

		t->blocked = rc == -EAGAIN;
		if (rc == -EAGAIN)
			break;
		if (rc) { /* its failure is on the way, or the credit was no promise */
			dr_stage_fail(p, DR_SCOPE_PATH, rc, "a copied part could not be posted");
			break;
		}
		t->handed++;
		n++;
	}
	return n;
}

bool dr_stage_tx_due(const struct staged_path *p)
{
	const struct stage_tx *t = p->tx;

	if (p->fencing)
		return false;
	if (t->started < t->posted && p->seen[DR_STAGE_OUT] != p->f->done[DR_STAGE_OUT])
		return true;
	return !t->blocked && next_ready(p);
}

void dr_stage_tx_sent(struct staged_path *p, const struct dr_event *ev)
{
	struct stage_tx *t = p->tx;

	t->blocked = false;
	for (uint64_t i = t->retired; i < t->handed; i++) {
		struct stage_send *s = at(t, i);

		if (s->sent || s->epoch != ev->epoch || s->seq != ev->seq || s->part != ev->part)
			continue;
		s->sent = true;
		if (s->span != STAGE_NO_SPAN)
			dr_stage_span_free(p->ring, s->span);
		break;
	}
	while (t->retired < t->handed && at(t, t->retired)->sent)
		t->retired++;
}
