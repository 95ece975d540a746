/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbered messages of a session against a peer that sends any frames, loses the connection and comes
 * back with any claim. A byte chooses each step; see step().
 */
#include "bootstrap/control.h"
#include "tests/fuzz/lib/conv.h"

enum { STEPS_MAX = 200 };

struct world {
	struct dr_control ctl;
	struct fz_link link;
	int64_t now;
	uint64_t taken; /* messages that were handed up */
	struct fz *z;
};

static void wake(void *arg)
{
	(void)arg;
}

static void detach(struct world *w)
{
	if (w->link.open)
		dr_control_detach(&w->ctl);
	fz_link_close(&w->link);
}

static void attach(struct world *w, uint64_t claim)
{
	uint64_t acked = w->ctl.mail.acked, last = w->ctl.mail.last;

	detach(w);
	fz_link_open(&w->link, w->now);
	if (dr_control_attach(&w->ctl, &w->link.own, claim, w->now)) {
		dr_assert(claim < acked || claim > last || w->ctl.mail.unsent);
		fz_link_close(&w->link);
		return;
	}
	dr_assert(claim >= acked && claim <= last);
}

static void take(void *arg, const struct dr_conv_event *ev)
{
	struct world *w = arg;
	uint64_t next = w->ctl.mail.received + 1;
	enum dr_control_news news;

	dr_control_heard(&w->ctl, w->now);
	if (ev->kind != DR_CONV_FRAME)
		return;
	news = dr_control_frame(&w->ctl, ev, w->now);
	if (news == DR_CONTROL_MESSAGE || news == DR_CONTROL_READY || news == DR_CONTROL_GOODBYE) {
		w->taken++;
		dr_assert(ev->seq == next && w->ctl.mail.received == next);
	} else {
		dr_assert(w->ctl.mail.received == next - 1);
	}
	dr_assert((news == DR_CONTROL_BROKEN) == (w->link.own.state == DR_CONV_ENDED));
}

/* A frame of the peer's: right in most respects, so that it gets somewhere. */
static void peer_frame(struct world *w, uint8_t how)
{
	static const char json[] = "{\"t\":1}";
	enum dr_conv_frame type = how % DR_CONV_FRAME_TYPES;
	bool numbered = type == DR_CONV_FRAME_MESSAGE || type == DR_CONV_FRAME_READY ||
			type == DR_CONV_FRAME_GOODBYE;
	uint8_t body[64] = { 0 };
	struct dr_wbuf b;
	uint64_t seq;

	dr_wbuf_init(&b, body, sizeof(body));
	if (type == DR_CONV_FRAME_MESSAGE)
		dr_wbuf_bytes(&b, json, sizeof(json) - 1);
	else if (type == DR_CONV_FRAME_ACK)
		dr_wbuf_u64(&b, w->ctl.mail.acked + (uint64_t)(int8_t)fz_u8(w->z));
	else if (type == DR_CONV_FRAME_PING || type == DR_CONV_FRAME_PONG)
		for (unsigned i = 0; i < (type == DR_CONV_FRAME_PING ? 1 : 3); i++)
			dr_wbuf_u64(&b, fz_u8(w->z) & 1
						? (uint64_t)w->now + fz_u8(w->z)
						: (uint64_t)fz_u32(w->z) << 32 | fz_u32(w->z));
	seq = numbered ? w->ctl.mail.received + 1 + (how & 0x80 ? fz_u8(w->z) : 0) : 0;
	fz_link_frame(&w->link, type, seq, body, b.len, w->now, take, w);
}

static void step(struct world *w, uint8_t op)
{
	struct dr_conv_event ev;
	json_t *j;

	w->now += op >> 4;
	switch (op & 15) {
	case 0:
		j = json_pack("{s:i}", "n", op);
		(void)!dr_control_send(&w->ctl, j);
		json_decref(j);
		break;
	case 1:
		if (!w->link.server) /* the client's to send */
			dr_assert(dr_control_post(&w->ctl, DR_CONV_FRAME_READY) == 0);
		break;
	case 2:
		w->now += (int64_t)fz_u16(w->z) * DR_NS_PER_MS;
		if (w->link.open) {
			dr_conv_tick(&w->link.own, w->now, &ev);
			dr_control_tick(&w->ctl, w->now);
		}
		break;
	case 3:
		dr_control_flush(&w->ctl);
		break;
	case 4:
		detach(w);
		break;
	case 5:
		attach(w, w->ctl.mail.acked + (uint64_t)(int8_t)fz_u8(w->z));
		break;
	case 6:
		dr_control_goodbye(&w->ctl);
		break;
	case 7:
		if (w->link.open) { /* it goes nowhere */
			const uint8_t *b;

			dr_conv_sent(&w->link.own, dr_conv_output(&w->link.own, &b), w->now);
		}
		break;
	default:
		if (w->link.open && w->link.own.state == DR_CONV_OPEN)
			peer_frame(w, fz_u8(w->z));
	}
}

FUZZ(z)
{
	struct world w = { .now = DR_NS_PER_S, .z = z };
	struct dr_boot_timing t = { 0 };
	int64_t offset, error;

	w.link.server = fz_u8(z) & 1;
	dr_boot_timing_complete(&t);
	dr_control_init(&w.ctl, &t, wake, NULL);
	w.ctl.state = DR_BOOT_READY;
	w.ctl.has_ids = true;
	attach(&w, 0);
	for (unsigned i = 0; i < STEPS_MAX && z->n; i++) {
		step(&w, fz_u8(z));
		dr_mailbox_validate(&w.ctl.mail);
		if (w.link.open)
			dr_conv_validate(&w.link.own);
		dr_assert(w.taken == w.ctl.mail.received);
		if (dr_control_clock(&w.ctl, w.now, &offset, &error))
			dr_assert(error >= 0);
		dr_assert(dr_control_deadline(&w.ctl) >= 0);
	}
	detach(&w);
	dr_control_reset(&w.ctl);
}
