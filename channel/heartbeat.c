/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat.h"

#include "base/wire.h"

#include <errno.h>
#include <string.h>

/* docs/PROTOCOL.md, 1.3, has the layout of the datagram, big endian. */
enum { HB_MAGIC = 0x64724842, HB_VERSION = 11, HB_MAC = DR_MAC_LEN, HB_FIXED = 21, HB_REPORT = 11 };
enum { FLAG_FAST = 1, FLAG_REPORT = 2 };

void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t token[DR_TOKEN_LEN])
{
	dr_assert(n_rails >= 1 && n_rails <= DR_HB_RAILS_MAX && interval_ns > 0);
	memset(h, 0, sizeof(*h));
	dr_detect_init(&h->d, n_rails, interval_ns);
	h->n_rails = n_rails;
	h->interval_ns = interval_ns;
	h->gpu = gpu;
	h->connector = connector;
	dr_key_derive(token, connector ? DR_KEY_BEAT_CONNECTOR : DR_KEY_BEAT_ACCEPTOR, h->tx_key);
	dr_key_derive(token, connector ? DR_KEY_BEAT_ACCEPTOR : DR_KEY_BEAT_CONNECTOR, h->rx_key);
	h->next_ns = DR_NEVER;
	h->budget = DR_HB_BUDGET;
}

void dr_hb_start(struct dr_hb *h, int64_t now)
{
	h->started = true;
	dr_detect_start(&h->d, now);
	h->next_ns = h->last_tick_ns = now;
	h->tick_ns = now;
}

static bool may_be_fast(const struct dr_hb *h, int64_t now)
{
	return now < h->fast_until_ns ? h->budget > 0 : h->budget >= DR_HB_BUDGET / 2;
}

/* The next tick comes at once, if it is not a fast one already. A phase whose suspicion was cleared goes on when the peer
 * suspects the rail: where packets are lost on the way to it, its datagrams clear the rail here. */
static void begin_fast(struct dr_hb *h, int64_t now)
{
	if (!may_be_fast(h, now))
		return;
	if (now >= h->fast_until_ns)
		h->fast_until_ns = now + DR_HB_BUDGET * dr_fast_ns(h->interval_ns);
	h->next_ns = DR_MIN(h->next_ns, DR_MAX(now, h->last_tick_ns + dr_fast_ns(h->interval_ns)));
}

void dr_hb_suspect(struct dr_hb *h, unsigned rail, int64_t now)
{
	dr_assert(rail < h->n_rails);
	if (!h->started || h->n_rails == 1 || h->d.rail[rail].down || h->d.rail[rail].suspected ||
		!may_be_fast(h, now))
		return;
	dr_detect_suspect(&h->d, rail, now);
	begin_fast(h, now);
}

/* The full number whose low bits are `low`: the newest one that is not above `newest`; 0: there is none. At 4,000
 * datagrams per second, a number that was reported last looks newer after twelve days. */
static uint64_t full_number(uint64_t newest, uint32_t low)
{
	uint32_t older = (uint32_t)newest - low;

	return older > newest ? 0 : newest - older;
}

/* What the peer received on a rail. */
static void padded_report(struct dr_hb *h, unsigned rail, uint32_t newest, uint32_t padded)
{
	struct dr_hb_rail *r = &h->rail[rail];
	uint64_t passed = full_number(h->tick, padded);
	bool any = false;

	r->peer_newest = newest;
	for (unsigned i = 0; i < DR_MIN(r->n_padded, (unsigned)DR_HB_PADDED_MAX); i++) {
		if (passed < r->padded[i].number)
			continue;
		r->passed_ns = DR_MAX(r->passed_ns, r->padded[i].sent_ns);
		any = true;
	}
	if (any) {
		r->n_padded = 0;
		h->d.rail[rail].padded_only = false;
	}
}

/* What a datagram reports of one rail. */
struct report {
	uint32_t newest, padded;
	uint16_t sent;
	uint8_t miss;
};

static void read_reports(struct dr_rbuf *r, struct report rep[DR_HB_RAILS_MAX], unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		dr_rbuf_u8(r, &rep[i].miss);
		dr_rbuf_u32(r, &rep[i].newest);
		dr_rbuf_u32(r, &rep[i].padded);
		dr_rbuf_u16(r, &rep[i].sent);
	}
}

/* The report is newer than all before. */
static void take_newest(
	struct dr_hb *h, const struct report *rep, uint8_t flags, uint64_t number, int64_t now)
{
	h->told = number;
	h->asked |= (flags & FLAG_REPORT) != 0; /* else our bytes would replace the datagrams */
	for (unsigned i = 0; i < h->n_rails; i++) {
		dr_detect_report(&h->d, i, rep[i].sent, rep[i].miss, now);
		padded_report(h, i, rep[i].newest, rep[i].padded);
	}
}

int dr_hb_receive(
	struct dr_hb *h, unsigned rail, const void *data, size_t len, size_t size, int64_t now)
{
	uint8_t version, role, from, n, flags;
	struct report rep[DR_HB_RAILS_MAX] = { 0 };
	struct dr_rbuf r;
	uint16_t gpu, total;
	uint32_t magic;
	uint64_t number;
	size_t used;

	dr_assert(rail < h->n_rails);
	dr_rbuf_init(&r, data, len);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &role);
	dr_rbuf_u16(&r, &gpu);
	dr_rbuf_u8(&r, &from);
	dr_rbuf_u8(&r, &n);
	dr_rbuf_u8(&r, &flags);
	dr_rbuf_u16(&r, &total);
	dr_rbuf_u64(&r, &number);
	if (r.failed || magic != HB_MAGIC || version != HB_VERSION || role != !h->connector ||
		gpu != h->gpu || from != rail || n != h->n_rails || total != size ||
		dr_rbuf_left(&r) < (size_t)n * HB_REPORT + HB_MAC)
		goto refuse;
	read_reports(&r, rep, n);
	used = HB_FIXED + (size_t)n * HB_REPORT;
	if (size == len && len == used + HB_MAC)
		total = 0;
	if (!dr_key_tag_ok(h->rx_key, data, used, (const uint8_t *)data + used) ||
		number <= h->rail[rail].rx_tick)
		goto refuse;
	h->rail[rail].rx_tick = number;
	if (total != 0) {
		h->rail[rail].rx_padded = number;
		h->asked = true;
	}
	h->received++;
	if (number > h->told) /* else it was read after a newer one of another rail */
		take_newest(h, rep, flags, number, now);
	dr_detect_beat(&h->d, rail, now);
	for (unsigned i = 0; (flags & FLAG_FAST) && i < h->n_rails; i++)
		if (dr_detect_misses(&h->d, i, 1))
			begin_fast(h, now);
	return 0;
refuse:
	h->refused++;
	return -EPROTO;
}

static uint8_t own_flags(const struct dr_hb *h)
{
	uint8_t f = h->next_ns < h->fast_until_ns ? FLAG_FAST : 0;

	for (unsigned i = 0; i < h->n_rails; i++)
		if (h->d.rail[i].down)
			f |= FLAG_REPORT;
	return f;
}

size_t dr_hb_make(struct dr_hb *h, unsigned rail, uint32_t size, uint8_t buf[DR_DGRAM_MAX])
{
	size_t plain = HB_FIXED + (size_t)h->n_rails * HB_REPORT + HB_MAC;
	struct dr_hb_rail *to = &h->rail[rail];
	uint8_t tag[HB_MAC];
	struct dr_wbuf w;

	dr_assert(size == 0 || (size > plain && size <= UINT16_MAX));
	dr_wbuf_init(&w, buf, DR_DGRAM_MAX);
	dr_wbuf_u32(&w, HB_MAGIC);
	dr_wbuf_u8(&w, HB_VERSION);
	dr_wbuf_u8(&w, h->connector);
	dr_wbuf_u16(&w, h->gpu);
	dr_wbuf_u8(&w, (uint8_t)rail);
	dr_wbuf_u8(&w, (uint8_t)h->n_rails);
	dr_wbuf_u8(&w, own_flags(h));
	dr_wbuf_u16(&w, (uint16_t)(size != 0 ? size : plain));
	dr_wbuf_u64(&w, ++h->tick);
	if (size != 0) {
		to->padded[to->n_padded++ % DR_HB_PADDED_MAX] =
			(struct dr_hb_padded){ h->tick, h->tick_ns };
	} else {
		to->small_sent++;
	}
	for (unsigned i = 0; i < h->n_rails; i++) {
		const struct dr_hb_rail *r = &h->rail[i];

		dr_wbuf_u8(&w, dr_detect_missed(&h->d, i));
		dr_wbuf_u32(&w, (uint32_t)r->rx_tick);
		dr_wbuf_u32(&w, (uint32_t)r->rx_padded);
		dr_wbuf_u16(&w, r->small_sent);
	}
	dr_key_tag(h->tx_key, buf, w.len, tag);
	dr_wbuf_bytes(&w, tag, sizeof(tag));
	dr_assert(!w.failed);
	h->sent++;
	return w.len;
}

/* The peer has not reported of so many padded datagrams, nor of anything that was sent later. */
static bool padded_in_flight(const struct dr_hb *h, const struct dr_hb_rail *r)
{
	uint64_t seen = full_number(h->tick, r->peer_newest);
	unsigned n = 0;

	for (unsigned i = 0; i < DR_MIN(r->n_padded, (unsigned)DR_HB_PADDED_MAX); i++)
		n += r->padded[i].number > seen;
	return n >= DR_HB_PADDED_FLIGHT;
}

/* Rails that need a datagram, and the time of the next tick. Bytes do not tell the peer that a rail is
 * down, and are no evidence there; datagrams are. */
static void plan(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out)
{
	uint32_t all = (uint32_t)((1ull << h->n_rails) - 1), doubt = 0;
	bool down = false, question = false, fast = now < h->fast_until_ns && h->budget > 0;

	for (unsigned i = 0; i < h->n_rails; i++) {
		const struct dr_detect_rail *d = &h->d.rail[i];
		struct dr_hb_rail *r = &h->rail[i];

		down |= d->down;
		/* With one missing alone a fast phase goes on, but none begins. */
		doubt |= dr_detect_misses(&h->d, i, fast ? 1 : 2) ? 1u << i : 0;
		if (!d->padded_only && now >= r->asks_until_ns)
			r->padded_size = 0;
		question |= r->padded_size != 0 && !d->down;
		if (r->padded_size != 0 && !padded_in_flight(h, r))
			out->padded |= 1u << i;
	}
	out->send = down || question || doubt || h->asked ? all : all & ~busy;
	h->asked = false;
	h->next_ns = now + h->interval_ns / (question || doubt ? DR_HB_QUARTER : 1);
	if (doubt && fast) {
		h->next_ns = now + dr_fast_ns(h->interval_ns);
		h->budget--;
	} else if (out->full && h->budget < DR_HB_BUDGET && ++h->spared % DR_HB_SPARED == 0) {
		h->budget++;
	}
}

void dr_hb_tick(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out)
{
	*out = (struct dr_hb_out){ 0 };
	if (!h->started || now < h->next_ns)
		return;
	out->full = now < h->fast_until_ns || now - h->last_tick_ns >= h->interval_ns;
	if (out->full)
		h->last_tick_ns = now;
	h->tick_ns = now;
	dr_detect_tick(&h->d, now, &out->v);
	plan(h, busy, now, out);
	if (!out->full)
		h->next_ns = DR_MIN(h->next_ns, h->last_tick_ns + h->interval_ns);
}

void dr_hb_question(struct dr_hb *h, unsigned rail, uint32_t size, int64_t now)
{
	struct dr_hb_rail *r = &h->rail[rail];

	dr_assert(rail < h->n_rails);
	if (h->d.rail[rail].padded_only)
		return;
	r->asks_until_ns = now + DR_HB_ASKS * h->interval_ns;
	if (r->padded_size == 0) {
		r->n_padded = 0;
		h->next_ns = DR_MIN(h->next_ns, now);
	}
	r->padded_size = DR_MAX(r->padded_size, size);
}

/* Of those that the peer did not receive, those are lost that a later small one overtook. */
bool dr_hb_padded_lost(const struct dr_hb *h, unsigned rail, int64_t since)
{
	const struct dr_hb_rail *r = &h->rail[rail];
	uint64_t seen = full_number(h->tick, r->peer_newest);
	unsigned lost = 0;

	for (unsigned i = 0; i < DR_MIN(r->n_padded, (unsigned)DR_HB_PADDED_MAX); i++)
		lost += r->padded[i].sent_ns > since && r->padded[i].number < seen;
	return lost >= DR_PADDED_LOST;
}
