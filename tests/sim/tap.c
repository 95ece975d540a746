/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "channel/channel_priv.h"

#include <assert.h>
#include <string.h>

/*
 * A tap on the control frames that the channels receive. Those that are repeated until they have had
 * their effect may be lost; and every frame may be received again, later, on any path and in any state:
 * then it changes nothing.
 */
enum { REPLAYS = 8 };
static_assert((int)SIM_FRAME == (int)DR_FRAME_LEN, "a frame fits");

static struct sim_run *tapped;
static void (*channel_event)(struct dr_sink *sink, const struct dr_event *ev);

static bool repeated(enum dr_frame_type t)
{
	return t == DR_FRAME_SWITCH || t == DR_FRAME_ANSWER || t == DR_FRAME_NOTIFY ||
	       t == DR_FRAME_GONE || t == DR_FRAME_ABORT || t == DR_FRAME_CLOSE;
}

static struct sim_tap *tap_of(const struct dr_channel *ch)
{
	const struct sim_user *u = sim_user_of(ch);

	return &tapped->ch[u->channel].tap[u->end];
}

static void on_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct dr_channel_path *cp = dr_container_of(sink, struct dr_channel_path, sink);
	struct sim_tap *t = tap_of(cp->ch);
	struct dr_frame fr;

	if (ev->kind == DR_EV_CTRL && ev->len == DR_FRAME_LEN &&
		dr_frame_decode(ev->data, ev->len, &fr) == 0) {
		if (repeated(fr.type) && sim_loses(tapped, fr.type)) {
			sim_say(tapped, "channel %u: %s is lost", sim_user_of(cp->ch)->channel,
				dr_frame_type_name(fr.type));
			sim_cover.frames_lost++;
			sim_cover.notifies_lost += fr.type == DR_FRAME_NOTIFY;
			return;
		}
		memcpy(t->frame[t->n++ % SIM_TAP], ev->data, DR_FRAME_LEN);
	}
	if (ev->kind == DR_EV_DELIVERED) {
		t->epoch = ev->epoch;
		t->path = (unsigned)(cp - cp->ch->path);
	}
	channel_event(sink, ev);
}

void sim_tap_setup(struct sim_run *r)
{
	tapped = r;
	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++)
			for (unsigned i = 0; i < DR_PATHS; i++) {
				struct dr_sink *s = &sim_channel_at(r, c, end)->path[i].sink;

				if (s->event != on_event)
					channel_event = s->event;
				s->event = on_event;
			}
}

static void replay(struct dr_channel *ch, unsigned path, const uint8_t *frame, int64_t now)
{
	struct dr_channel_path *cp = &ch->path[path];
	struct dr_event ev = { .kind = DR_EV_CTRL, .data = frame, .len = DR_FRAME_LEN };
	struct dr_frame fr;

	if (dr_frame_decode(frame, DR_FRAME_LEN, &fr) != 0)
		return;
	sim_say(tapped, "channel %u %s: %s epoch %u gen %u again on path %u",
		sim_user_of(ch)->channel, ch->prm.sender ? "sender" : "receiver",
		dr_frame_type_name(fr.type), fr.epoch, fr.gen, path);
	sim_cover.replays++;
	dr_channel_datagram(ch, &fr, now); /* ignores what cannot come so */
	if (!dr_channel_path_up(ch, path))
		return;
	ev.path = cp->path;
	ev.rail = cp->path->rail;
	ch->now = now;
	channel_event(&cp->sink, &ev);
	dr_channel_turn(ch, now);
}

void sim_tap_replay(struct sim_run *r, const struct sim_fault *f)
{
	struct dr_rng g;

	dr_rng_seed(&g, f->seed);
	for (unsigned i = 0; i < REPLAYS; i++) {
		unsigned c = (unsigned)dr_rng_below(&g, r->s->n_channels);
		unsigned end = (unsigned)dr_rng_below(&g, 2), path = (unsigned)dr_rng_below(&g, 2);
		const struct sim_tap *t = &r->ch[c].tap[end];
		uint64_t kept = DR_MIN(t->n, (uint64_t)SIM_TAP);

		if (kept == 0 || !sim_runs(sim_worker_of(r, c, end)))
			continue;
		replay(sim_channel_at(r, c, end), path, t->frame[dr_rng_below(&g, kept)],
			dr_sim_world_clock(r->w, end));
	}
}
