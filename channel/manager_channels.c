/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include "base/list.h"
#include "base/mem.h"
#include "base/rng.h"
#include "channel/dgram.h"
#include "channel/frame.h"

#include <errno.h>

/*
 * The channels of a ChannelManager. They are opened and removed at any time, also while others carry data.
 *
 *  1. All that a manager knows of a channel is one struct mgr_channel. It is on the list, in the table of numbers and
 *     among the deadlines from dr_manager_open_channel to dr_manager_remove_channel.
 *  2. What arrives for a number that is not in the table is ignored: the peer repeats a dial, and ends a channel
 *     whose paths are gone. A dial that comes before the channel is started here gets through as
 *     soon as it is started if that is within 1 s; the peer dials again after 1 s and a pause of 10
 *     to 500 ms. Over verbs it repeats its HELLO every 12 ms.
 *  3. The channel with the earliest deadline is on top of a heap. The deadline there may be earlier than the channel's
 *     is now, never later.
 */
enum { BUCKETS_MIN = 16 };

/* ---- what a channel sends beside its paths ---- */

static void on_user_control(void *arg, unsigned path, const void *data, size_t len, int64_t now)
{
	const struct mgr_channel *c = arg;
	struct dr_manager *m = c->m;
	const struct dr_path *p = dr_channel_path(c->ch, path);

	if (m->started && p && !m->peer->shared)
		(void)dr_hb_receive(m->hb, p->rail->index, data, len, len, now);
}

static void on_datagram(void *arg, const struct dr_frame *frame)
{
	const struct mgr_channel *c = arg;
	const struct dr_manager *m = c->m;
	uint8_t buf[DR_DGRAM_CTRL_LEN];

	if (!(m->prm.transport->caps & DR_CAP_DGRAM))
		return;
	dr_dgram_encode(&m->dgram, dr_channel_id(c->ch), frame, buf);
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (i == 0 || c->spec.shadow != c->spec.primary)
			m->prm.transport->rail_dgram(
				m->rail[i == 0 ? c->spec.primary : c->spec.shadow].rail, buf,
				sizeof(buf));
}

/* ---- deadlines ---- */

static void put(struct dr_manager *m, struct mgr_channel *c, unsigned at)
{
	m->heap[at] = c;
	c->at = at;
}

static void sift_up(struct dr_manager *m, struct mgr_channel *c)
{
	unsigned at = c->at;

	for (; at > 0 && m->heap[(at - 1) / 2]->due_ns > c->due_ns; at = (at - 1) / 2)
		put(m, m->heap[(at - 1) / 2], at);
	put(m, c, at);
}

static void sift_down(struct dr_manager *m, struct mgr_channel *c)
{
	unsigned at = c->at;

	for (;;) {
		unsigned k = 2 * at + 1;

		if (k + 1 < m->n_channels && m->heap[k + 1]->due_ns < m->heap[k]->due_ns)
			k++;
		if (k >= m->n_channels || m->heap[k]->due_ns >= c->due_ns)
			break;
		put(m, m->heap[k], at);
		at = k;
	}
	put(m, c, at);
}

static void on_sooner(void *arg)
{
	struct mgr_channel *c = arg;

	sift_up(c->m, c);
}

int64_t dr_manager_channels_due(const struct dr_manager *m)
{
	return m->n_channels > 0 ? m->heap[0]->due_ns : DR_NEVER;
}

/* A deadline that a tick leaves in the past is due again in the next call. */
void dr_manager_tick_channels(struct dr_manager *m)
{
	while (dr_manager_channels_due(m) <= m->now) {
		struct mgr_channel *c = m->heap[0];

		if (m->now >= dr_channel_deadline(c->ch))
			dr_channel_tick(c->ch, m->now);
		c->due_ns = DR_MAX(dr_channel_deadline(c->ch), m->now + 1);
		sift_down(m, c);
	}
}

bool dr_manager_idle(struct dr_manager *m, int64_t now)
{
	int64_t until = now + DR_CHANNEL_HELD_NS;
	unsigned n = 0;
	bool any = false;

	m->now = now;
	if (dr_manager_channels_due(m) <= until)
		m->soon[n++] = m->heap[0];
	/* Gathered first, since a call may change the heap. A deadline is never earlier than its parent's. */
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 2 * m->soon[i]->at + 1;
			k <= 2 * m->soon[i]->at + 2 && k < m->n_channels; k++)
			if (m->heap[k]->due_ns <= until)
				m->soon[n++] = m->heap[k];
	for (unsigned i = 0; i < n; i++)
		any |= dr_channel_idle(m->soon[i]->ch, now);
	return any;
}

/* ---- numbers ---- */

static struct mgr_channel **bucket_of(const struct dr_manager *m, uint32_t id)
{
	return &m->bucket[dr_mix64(id) & (m->n_buckets - 1)];
}

struct mgr_channel *dr_manager_lookup(const struct dr_manager *m, uint32_t id)
{
	struct mgr_channel *c = m->bucket ? *bucket_of(m, id) : NULL;

	while (c && dr_channel_id(c->ch) != id)
		c = c->chain;
	return c;
}

struct dr_channel *dr_manager_channel_at(struct dr_manager *m, uint32_t id)
{
	struct mgr_channel *c = dr_manager_lookup(m, id);

	return c ? c->ch : NULL;
}

/* Room for one more in the table, the heap and `soon`. What could be had of it stays when there is not enough. */
static int make_room(struct dr_manager *m)
{
	unsigned n = DR_MAX(2 * m->n_buckets, (unsigned)BUCKETS_MIN);
	struct mgr_channel **bucket, **heap, **soon;

	if (m->n_channels < m->n_buckets)
		return 0;
	bucket = dr_calloc(n, sizeof(struct mgr_channel *));
	heap = dr_calloc(n, sizeof(struct mgr_channel *));
	soon = dr_calloc(n, sizeof(struct mgr_channel *));
	if (!bucket || !heap || !soon) {
		dr_free(bucket);
		dr_free(heap);
		dr_free(soon);
		return -ENOMEM;
	}
	dr_free(m->bucket);
	dr_free(m->soon);
	m->bucket = bucket;
	m->soon = soon;
	m->n_buckets = n;
	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		struct mgr_channel **at = bucket_of(m, dr_channel_id(c->ch));

		c->chain = *at;
		*at = c;
		heap[c->at] = c;
	}
	dr_free(m->heap);
	m->heap = heap;
	return 0;
}

static void insert(struct dr_manager *m, struct mgr_channel *c)
{
	struct mgr_channel **at = bucket_of(m, dr_channel_id(c->ch));

	c->chain = *at;
	*at = c;
	c->prev = m->last;
	*(m->last ? &m->last->next : &m->channels) = c;
	m->last = c;
	c->at = m->n_channels++;
	sift_up(m, c);
}

static void take_out(struct dr_manager *m, struct mgr_channel *c)
{
	struct mgr_channel *moved = m->heap[m->n_channels - 1];

	DR_UNLINK(bucket_of(m, dr_channel_id(c->ch)), c, chain);
	*(c->prev ? &c->prev->next : &m->channels) = c->next;
	*(c->next ? &c->next->prev : &m->last) = c->prev;
	m->n_channels--;
	if (moved == c)
		return;
	moved->at = c->at;
	sift_up(m, moved);
	sift_down(m, moved);
}

/* ---- open and remove ---- */

static const struct dr_channel_host host = { on_user_control, on_datagram, on_sooner };

static int make_channel(struct mgr_channel *c, uint32_t id, struct dr_err *e)
{
	const struct dr_manager_params *p = &c->m->prm;
	struct dr_channel_params cp = {
		.id = id,
		.sender = c->spec.sender,
		.connector = p->connector,
		.window = p->window,
		.failback = p->failback,
		.hold_down_ns = p->hold_down_ns,
		.lost_after_ns = p->lost_after_ns,
		.stuck_after_ns = dr_manager_stuck_ns(p),
		.poller = p->poller,
		.due_ns = &c->due_ns,
		.ops = p->ops ? &p->ops->channel : NULL,
		.arg = p->arg,
		.host = &host,
		.host_arg = c,
	};

	cp.rail[0] = c->m->rail[c->spec.primary].rail;
	cp.rail[1] = c->spec.shadow != c->spec.primary ? c->m->rail[c->spec.shadow].rail : NULL;
	return dr_channel_create(&cp, &c->ch, e);
}

/* What was decided before it was opened. */
static void tell_state(const struct mgr_channel *c)
{
	const struct dr_manager *m = c->m;

	if (m->rail[c->spec.primary].state == DR_RAIL_DOWN)
		dr_channel_rail_down(c->ch, 0, -ENETDOWN, "the rail is down", m->now);
	if (c->spec.shadow != c->spec.primary && m->rail[c->spec.shadow].state == DR_RAIL_DOWN)
		dr_channel_rail_down(c->ch, 1, -ENETDOWN, "the rail is down", m->now);
	if (m->stalled)
		dr_channel_stalled(c->ch, true, m->now);
}

static int check(const struct dr_manager *m, uint32_t id, const struct dr_manager_channel *spec,
	struct dr_err *e)
{
	if (spec->primary >= m->prm.n_rails || spec->shadow >= m->prm.n_rails)
		return dr_err_set(e, -EINVAL,
			"channel %u: rails %u and %u, but there are %u: 0 is the first", id,
			spec->primary, spec->shadow, m->prm.n_rails);
	if (m->closing)
		return dr_err_set(e, -ESHUTDOWN, "channel %u: the manager is closed", id);
	if (m->n_channels == DR_MANAGER_CHANNELS_MAX)
		return dr_err_set(e, -ENOSPC,
			"channel %u: there are %u channels, the most of a GPU", id, m->n_channels);
	if (dr_manager_lookup(m, id))
		return dr_err_set(e, -EEXIST, "channel %u exists; choose another number", id);
	return 0;
}

int dr_manager_open_channel(struct dr_manager *m, uint32_t id,
	const struct dr_manager_channel *spec, struct dr_channel **out, struct dr_err *e)
{
	struct mgr_channel *c;
	int rc = check(m, id, spec, e);

	if (rc != 0)
		return rc;
	rc = make_room(m);
	c = rc == 0 ? dr_calloc(1, sizeof(*c)) : NULL;
	if (!c)
		return dr_err_set(e, -ENOMEM, "channel %u: out of memory", id);
	c->m = m;
	c->spec = *spec;
	c->due_ns = DR_NEVER;
	rc = make_channel(c, id, e);
	if (rc != 0) {
		dr_free(c);
		return rc;
	}
	insert(m, c);
	tell_state(c);
	*out = c->ch;
	return 0;
}

static int drop(struct dr_manager *m, struct mgr_channel *c, struct dr_err *e)
{
	int rc = dr_channel_stop(c->ch, e);

	take_out(m, c);
	dr_channel_fini(c->ch);
	dr_free(c);
	return rc;
}

int dr_manager_remove_channel(struct dr_manager *m, struct dr_channel *ch, struct dr_err *e)
{
	struct mgr_channel *c = dr_manager_lookup(m, dr_channel_id(ch));

	dr_assert(c && c->ch == ch);
	if (!dr_channel_closed(ch))
		return dr_err_set(e, -EBUSY,
			"channel %u is not closed; call dr_channel_close and drive it until it is",
			dr_channel_id(ch));
	return drop(m, c, e);
}

int dr_manager_free_channels(struct dr_manager *m)
{
	int rc = 0;

	while (m->last) {
		int err = drop(m, m->last, NULL);

		rc = rc ? rc : err;
	}
	dr_free(m->bucket);
	dr_free(m->heap);
	dr_free(m->soon);
	return rc;
}
