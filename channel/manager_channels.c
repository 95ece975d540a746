/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_priv.h"

#include "base/list.h"
#include "base/mem.h"
#include "channel/frame.h"

#include <errno.h>

/*
 * The channels of a ChannelManager. They are opened and removed while others carry data. What
 * arrives for a number that nobody has is ignored: the peer repeats a dial, and ends a channel
 * whose paths are gone. A channel's due_ns may be earlier than dr_channel_deadline(), never later;
 * the manager's is the earliest of all.
 */

/* ---- what a channel sends beside its paths ---- */

static void on_datagram(void *arg, const struct dr_frame *frame)
{
	const struct mgr_channel *c = arg;
	const struct dr_manager *m = c->m;
	uint8_t buf[DR_DGRAM_CTRL_LEN];

	if (!(m->prm.transport->caps & DR_CAP_DGRAM))
		return;
	dr_dgram_encode(&m->dgram, dr_channel_id(c->ch), frame, buf);
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (c->rail[i] != DR_NO_RAIL)
			m->prm.transport->rail_dgram(m->rail[c->rail[i]].rail, buf, sizeof(buf));
}

/* ---- deadlines ---- */

static void on_sooner(void *arg)
{
	struct mgr_channel *c = arg;

	c->m->due_ns = DR_MIN(c->m->due_ns, c->due_ns);
}

/* A deadline that a tick leaves in the past is due again in the next call. */
void dr_manager_tick_channels(struct dr_manager *m)
{
	if (m->now < m->due_ns)
		return;
	m->due_ns = DR_NEVER; /* a tick may lower it */
	for (struct mgr_channel *c = m->channels; c; c = c->next) {
		if (m->now >= c->due_ns) {
			if (m->now >= dr_channel_deadline(c->ch))
				dr_channel_tick(c->ch, m->now);
			c->due_ns = DR_MAX(dr_channel_deadline(c->ch), m->now + 1);
		}
		m->due_ns = DR_MIN(m->due_ns, c->due_ns);
	}
}

bool dr_manager_idle(struct dr_manager *m, int64_t now)
{
	int64_t until = now + DR_CHANNEL_HELD_NS;
	bool any = false;

	m->now = now;
	if (m->due_ns > until)
		return false;
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		if (c->due_ns <= until)
			any |= dr_channel_idle(c->ch, now);
	return any;
}

struct dr_channel *dr_manager_channel_at(struct dr_manager *m, uint32_t id)
{
	for (struct mgr_channel *c = m->channels; c; c = c->next)
		if (dr_channel_id(c->ch) == id)
			return c->ch;
	return NULL;
}

/* ---- open and remove ---- */

static const struct dr_channel_host host = { on_datagram, on_sooner };

static int make_channel(struct mgr_channel *c, uint32_t id, bool sender, struct dr_err *e)
{
	const struct dr_manager_params *p = &c->m->prm;
	struct dr_channel_params cp = {
		.id = id,
		.sender = sender,
		.connector = p->connector,
		.window = p->window,
		.failback = p->failback,
		.hold_down_ns = p->hold_down_ns,
		.lost_after_ns = p->lost_after_ns,
		.stuck_after_ns = dr_manager_stuck_ns(p),
		.due_ns = &c->due_ns,
		.ops = p->ops ? &p->ops->channel : NULL,
		.arg = p->arg,
		.host = &host,
		.host_arg = c,
	};

	for (unsigned i = 0; i < DR_PATHS; i++)
		cp.rail[i] = c->rail[i] != DR_NO_RAIL ? c->m->rail[c->rail[i]].rail : NULL;
	return dr_channel_create(&cp, &c->ch, e);
}

/* What was decided before it was opened. */
static void tell_state(const struct mgr_channel *c)
{
	const struct dr_manager *m = c->m;

	for (unsigned i = 0; i < DR_PATHS; i++)
		if (c->rail[i] != DR_NO_RAIL && m->rail[c->rail[i]].state == DR_RAIL_DOWN)
			dr_channel_rail_down(c->ch, i, -ENETDOWN, "the rail is down", m->now);
	if (m->stalled)
		dr_channel_stalled(c->ch, true, m->now);
}

static int check(
	struct dr_manager *m, uint32_t id, const struct dr_manager_channel *spec, struct dr_err *e)
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
	if (dr_manager_channel_at(m, id))
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
	c = dr_calloc(1, sizeof(*c));
	if (!c)
		return dr_err_set(e, -ENOMEM, "channel %u: out of memory", id);
	c->m = m;
	c->rail[0] = spec->primary;
	c->rail[1] = spec->shadow != spec->primary ? spec->shadow : DR_NO_RAIL;
	c->due_ns = DR_NEVER;
	rc = make_channel(c, id, spec->sender, e);
	if (rc != 0) {
		dr_free(c);
		return rc;
	}
	c->next = m->channels;
	m->channels = c;
	m->n_channels++;
	tell_state(c);
	*out = c->ch;
	return 0;
}

static int drop(struct dr_manager *m, struct mgr_channel *c, struct dr_err *e)
{
	int rc = dr_channel_stop(c->ch, e);

	DR_UNLINK(&m->channels, c, next);
	m->n_channels--;
	dr_channel_fini(c->ch);
	dr_free(c);
	return rc;
}

int dr_manager_remove_channel(struct dr_manager *m, struct dr_channel *ch, struct dr_err *e)
{
	struct mgr_channel *c = m->channels;

	while (c && c->ch != ch)
		c = c->next;
	dr_assert(c);
	if (!dr_channel_closed(ch))
		return dr_err_set(e, -EBUSY,
			"channel %u is not closed; call dr_channel_close and drive it until it is",
			dr_channel_id(ch));
	return drop(m, c, e);
}

int dr_manager_free_channels(struct dr_manager *m)
{
	int rc = 0;

	while (m->channels) {
		int err = drop(m, m->channels, NULL);

		rc = rc ? rc : err;
	}
	return rc;
}
