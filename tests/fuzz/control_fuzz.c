/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbered messages of a session against a peer that sends any frames, loses the connection and comes
 * back with any claim. A byte chooses each step; see step().
 */
#include "base/wire.h"
#include "bootstrap/control.h"
#include "tests/fuzz/lib/conv.h"
#include "tests/fuzz/lib/fuzz.h"

#include <stdio.h>

enum { STEPS_MAX = 200 };

struct world {
	struct dr_control ctl;
	struct dr_conv conv, peer; /* the peer: it seals what the input chooses */
	bool server, attached;
	int64_t now;
	uint64_t taken; /* messages that were handed up */
	struct fz *z;
};

static void wake(void *arg)
{
	(void)arg;
}

static void open_conv(struct world *w)
{
	struct dr_conv_opts own = { .role = w->server ? DR_CONV_SERVER : DR_CONV_CLIENT,
		.stage_ns = 5 * DR_NS_PER_S,
		.ephemeral = { 1 } },
			    peer = own;

	peer.role = w->server ? DR_CONV_CLIENT : DR_CONV_SERVER;
	(w->server ? &peer : &own)->hello.purpose = DR_CONV_NEW;
	dr_assert(dr_conv_init(&w->conv, &own, w->now) == 0);
	dr_assert(dr_conv_init(&w->peer, &peer, w->now) == 0);
	fz_conv_open(w->server ? &w->peer : &w->conv, w->server ? &w->conv : &w->peer, w->now);
}

static void drain(struct world *w)
{
	const uint8_t *b;
	size_t n = dr_conv_output(&w->conv, &b);

	dr_conv_sent(&w->conv, n, w->now);
}

static void detach(struct world *w)
{
	if (!w->attached)
		return;
	dr_control_detach(&w->ctl);
	dr_conv_fini(&w->conv);
	dr_conv_fini(&w->peer);
	w->attached = false;
}

static void attach(struct world *w, uint64_t claim)
{
	uint64_t acked = w->ctl.mail.acked, last = w->ctl.mail.last;

	detach(w);
	open_conv(w);
	if (dr_control_attach(&w->ctl, &w->conv, claim, w->now)) {
		dr_assert(claim < acked || claim > last || w->ctl.mail.unsent);
		dr_conv_fini(&w->conv);
		dr_conv_fini(&w->peer);
		return;
	}
	dr_assert(claim >= acked && claim <= last);
	w->attached = true;
}

static void take(struct world *w, const struct dr_conv_event *ev)
{
	uint64_t next = w->ctl.mail.received + 1;
	enum dr_control_news news;

	if (ev->kind != DR_CONV_FRAME)
		return;
	news = dr_control_frame(&w->ctl, ev, w->now);
	if (news == DR_CONTROL_MESSAGE || news == DR_CONTROL_READY || news == DR_CONTROL_GOODBYE) {
		w->taken++;
		dr_assert(ev->seq == next && w->ctl.mail.received == next);
	} else {
		dr_assert(w->ctl.mail.received == next - 1);
	}
	dr_assert((news == DR_CONTROL_BROKEN) == (w->conv.state == DR_CONV_ENDED));
}

/* A frame of the peer's: right in most respects, so that it gets somewhere. */
static void peer_frame(struct world *w, uint8_t how)
{
	static const char json[] = "{\"t\":1}";
	enum dr_frame_type type = how % DR_FRAME_TYPES;
	bool numbered =
		type == DR_FRAME_MESSAGE || type == DR_FRAME_READY || type == DR_FRAME_GOODBYE;
	uint8_t head[DR_CONV_HEADER_BYTES], body[64] = { 0 };
	const uint8_t *buf;
	struct dr_conv_event ev;
	struct dr_wbuf m, b;
	size_t at = 0, n;

	dr_wbuf_init(&b, body, sizeof(body));
	if (type == DR_FRAME_MESSAGE)
		dr_wbuf_bytes(&b, json, sizeof(json) - 1);
	else if (type == DR_FRAME_ACK)
		dr_wbuf_u64(&b, w->ctl.mail.acked + (uint64_t)(int8_t)fz_u8(w->z));
	else if (type == DR_FRAME_PING || type == DR_FRAME_PONG)
		for (unsigned i = 0; i < (type == DR_FRAME_PING ? 1 : 3); i++)
			dr_wbuf_u64(&b, fz_u8(w->z) & 1
						? (uint64_t)w->now + fz_u8(w->z)
						: (uint64_t)fz_u32(w->z) << 32 | fz_u32(w->z));
	dr_wbuf_init(&m, head, sizeof(head));
	dr_wbuf_u32(&m, (uint32_t)b.len);
	dr_wbuf_u32(&m, (uint32_t)type << 24);
	dr_wbuf_u64(&m, numbered ? w->ctl.mail.received + 1 + (how & 0x80 ? fz_u8(w->z) : 0) : 0);
	n = fz_conv_seal(&w->peer, head, body, b.len, &buf);
	while (at < n) {
		at += dr_conv_feed(&w->conv, buf + at, n - at, w->now, &ev);
		dr_control_heard(&w->ctl, w->now);
		take(w, &ev);
	}
	dr_conv_sent(&w->peer, n, w->now);
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
		if (!w->server) /* the client's to send */
			dr_assert(dr_control_post(&w->ctl, DR_FRAME_READY) == 0);
		break;
	case 2:
		w->now += (int64_t)fz_u16(w->z) * DR_NS_PER_MS;
		if (w->attached) {
			dr_conv_tick(&w->conv, w->now, &ev);
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
		if (w->attached)
			drain(w);
		break;
	default:
		if (w->attached && w->conv.state == DR_CONV_OPEN)
			peer_frame(w, fz_u8(w->z));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	struct world w = { .now = DR_NS_PER_S, .z = &z };
	struct dr_boot_timing t = { 0 };
	int64_t offset, error;

	w.server = fz_u8(&z) & 1;
	dr_boot_timing_complete(&t);
	dr_control_init(&w.ctl, &t, wake, NULL);
	w.ctl.state = DR_BOOT_READY;
	w.ctl.has_ids = true;
	attach(&w, 0);
	for (unsigned i = 0; i < STEPS_MAX && z.n; i++) {
		step(&w, fz_u8(&z));
		dr_mailbox_validate(&w.ctl.mail);
		if (w.attached)
			dr_conv_validate(&w.conv);
		dr_assert(w.taken == w.ctl.mail.received);
		if (dr_control_clock(&w.ctl, w.now, &offset, &error))
			dr_assert(error >= 0);
		dr_assert(dr_control_deadline(&w.ctl) >= 0);
	}
	detach(&w);
	dr_control_reset(&w.ctl);
	return 0;
}
