/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_priv.h"

#include <errno.h>

/* What a channel tells the judge of the rails' rates (channel/rate.h). */

uint64_t dr_channel_bytes_done(const struct dr_channel *ch)
{
	return ch->bytes_done;
}

int dr_channel_active(const struct dr_channel *ch)
{
	return ch->fo.active == DR_FO_NONE ? -1 : (int)ch->fo.active;
}

bool dr_channel_sending(
	struct dr_channel *ch, unsigned *path, uint32_t *gen, struct dr_path_stats *out)
{
	int64_t since;

	if (!dr_channel_owed(ch, path, &since))
		return false;
	*gen = ch->path[*path].gen;
	*out = (struct dr_path_stats){ 0 };
	ch->path[*path].path->ops->stats(ch->path[*path].path, out);
	return true;
}

bool dr_channel_asks(const struct dr_channel *ch, int64_t *since_ns)
{
	*since_ns = ch->fo.asked_ns;
	return ch->fo.asked && ch->fo.state == DR_FO_RUN;
}

bool dr_channel_answer(struct dr_channel *ch, enum dr_channel_answer answer, int64_t now)
{
	static const enum dr_fo_gate gate[] = { [DR_CHANNEL_FAIL_BACK] = DR_FO_GATE_OPEN,
		[DR_CHANNEL_NOT_NOW] = DR_FO_GATE_SHUT,
		[DR_CHANNEL_UNKNOWN] = DR_FO_GATE_LOST };

	bool back;

	dr_fo_gate(&ch->fo, gate[answer], now);
	back = ch->fo.state == DR_FO_DRAIN && ch->fo.target == 0;
	dr_channel_tick(ch, now);
	return back;
}

int dr_channel_fill(struct dr_channel *ch, unsigned i, uint32_t bytes, uint32_t *gen, int64_t now)
{
	int rc = 0;

	if (!dr_channel_path_up(ch, i))
		return -EAGAIN;
	*gen = ch->path[i].gen;
	for (uint32_t left = bytes; left > 0 && rc == 0;) {
		uint32_t n = DR_MIN(left, (uint32_t)DR_FILL_MAX);

		rc = ch->path[i].path->ops->fill(ch->path[i].path, n);
		left -= n;
	}
	dr_path_flush(ch->path[i].path, now);
	return rc;
}

bool dr_channel_path_stats(
	struct dr_channel *ch, unsigned i, uint32_t gen, struct dr_path_stats *out)
{
	if (!dr_channel_path_up(ch, i) || ch->path[i].gen != gen)
		return false;
	*out = (struct dr_path_stats){ .peer_ack_age_ns = -1 };
	ch->path[i].path->ops->stats(ch->path[i].path, out);
	return true;
}

uint32_t dr_channel_generation(const struct dr_channel *ch, unsigned i)
{
	return ch->path[i].gen;
}
