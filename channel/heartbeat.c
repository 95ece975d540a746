/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat.h"

#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

/*
 * Datagram, big endian:
 *	u32 magic | u8 version | u8 role (1 connector) | u16 gpu | u8 rail | u8 n | u64 number |
 *	n x u8 miss | 16 B MAC
 * MAC: SipHash-2-4 of 128 bits (libsodium crypto_shorthash_siphashx24), designed for short messages,
 * over all bytes before it, keyed with the session's token.
 */
enum { HB_MAGIC = 0x64724842, HB_VERSION = 2, HB_MAC = 16, HB_FIXED = 18 };

_Static_assert(HB_MAC == crypto_shorthash_siphashx24_BYTES &&
		       DR_TOKEN_LEN == crypto_shorthash_siphashx24_KEYBYTES,
	"the token is the key");

void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t key[DR_TOKEN_LEN])
{
	dr_assert(n_rails >= 1 && n_rails <= DR_HB_RAILS_MAX && interval_ns > 0);
	memset(h, 0, sizeof(*h));
	h->n_rails = n_rails;
	h->interval_ns = interval_ns;
	h->gpu = gpu;
	h->connector = connector;
	memcpy(h->key, key, DR_TOKEN_LEN);
	h->next_ns = DR_NEVER;
}

void dr_hb_start(struct dr_hb *h, int64_t now)
{
	h->started = true;
	h->next_ns = h->last_tick_ns = now;
}

void dr_hb_life(struct dr_hb *h, unsigned rail)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].heard = true;
}

void dr_hb_heard_elsewhere(struct dr_hb *h, unsigned rail)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].heard_elsewhere = true;
}

static bool alive(const struct dr_hb_rail *r)
{
	return r->heard || r->heard_elsewhere;
}

static void mac(const struct dr_hb *h, const uint8_t *data, size_t len, uint8_t out[HB_MAC])
{
	int rc = crypto_shorthash_siphashx24(out, data, len, h->key);

	dr_assert(rc == 0);
}

int dr_hb_receive(struct dr_hb *h, unsigned rail, const void *data, size_t len)
{
	uint8_t version, role, from, n, want[HB_MAC];
	const void *miss;
	struct dr_rbuf r;
	uint32_t magic;
	uint16_t gpu;
	uint64_t number;

	dr_assert(rail < h->n_rails);
	dr_rbuf_init(&r, data, len);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &role);
	dr_rbuf_u16(&r, &gpu);
	dr_rbuf_u8(&r, &from);
	dr_rbuf_u8(&r, &n);
	if (dr_rbuf_u64(&r, &number) != 0 || magic != HB_MAGIC || version != HB_VERSION ||
		role != !h->connector || gpu != h->gpu || from != rail || n != h->n_rails ||
		dr_rbuf_view(&r, &miss, n) != 0 || dr_rbuf_left(&r) != HB_MAC)
		goto refuse;
	mac(h, data, len - HB_MAC, want);
	if (sodium_memcmp(want, (const uint8_t *)data + len - HB_MAC, HB_MAC) != 0)
		goto refuse;
	if (number <= h->rail[rail].rx_tick)
		goto refuse;
	h->rail[rail].rx_tick = number;
	h->rail[rail].heard = h->rail[rail].beat = true;
	h->received++;
	if (number <= h->told) /* read after a newer one of another rail */
		return 0;
	h->told = number;
	for (unsigned i = 0; i < n; i++)
		h->rail[i].peer_miss = ((const uint8_t *)miss)[i];
	return 0;
refuse:
	h->refused++;
	return -EPROTO;
}

size_t dr_hb_make(struct dr_hb *h, unsigned rail, uint8_t buf[DR_DGRAM_MAX])
{
	uint8_t tag[HB_MAC];
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, DR_DGRAM_MAX);
	dr_wbuf_u32(&w, HB_MAGIC);
	dr_wbuf_u8(&w, HB_VERSION);
	dr_wbuf_u8(&w, h->connector);
	dr_wbuf_u16(&w, h->gpu);
	dr_wbuf_u8(&w, (uint8_t)rail);
	dr_wbuf_u8(&w, (uint8_t)h->n_rails);
	dr_wbuf_u64(&w, ++h->tick);
	for (unsigned i = 0; i < h->n_rails; i++)
		dr_wbuf_u8(&w, h->rail[i].miss);
	mac(h, buf, w.len, tag);
	dr_wbuf_bytes(&w, tag, sizeof(tag));
	dr_assert(!w.failed);
	h->sent++;
	return w.len;
}

/* Evidence against rail i, if it was not heard: the limit up to which its misses may grow. */
static uint8_t evidence(uint32_t heard, uint32_t beats, unsigned i)
{
	if ((beats & ~(1u << i)) != 0)
		return UINT8_MAX;
	return (heard & ~(1u << i)) != 0;
}

/* One rail at a full tick: counts what was heard and decides whether the rail is up. */
static void judge(struct dr_hb *h, unsigned i, uint8_t miss_max, struct dr_hb_out *out)
{
	struct dr_hb_rail *r = &h->rail[i];

	if (alive(r)) {
		r->miss = 0;
		if (r->good < UINT8_MAX)
			r->good++;
	} else {
		r->good = 0;
		if (r->miss < miss_max)
			r->miss++;
	}
	r->heard = r->beat = r->heard_elsewhere = false;
	if (!r->down && (r->miss >= DR_HB_MISSES || r->peer_miss >= DR_HB_MISSES)) {
		r->down = true;
		r->good = 0;
		out->fell |= 1u << i;
	} else if (r->down && r->good >= DR_HB_REVIVE && r->peer_miss == 0) {
		r->down = false;
		out->rose |= 1u << i;
	}
}

static bool suspicious(const struct dr_hb *h)
{
	for (unsigned i = 0; i < h->n_rails; i++)
		if (!h->rail[i].down && (h->rail[i].miss > 0 || h->rail[i].peer_miss > 0))
			return true;
	return false;
}

static bool any_down(const struct dr_hb *h)
{
	for (unsigned i = 0; i < h->n_rails; i++)
		if (h->rail[i].down)
			return true;
	return false;
}

void dr_hb_tick(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out)
{
	uint32_t all = (uint32_t)((1ull << h->n_rails) - 1), heard = 0, beats = 0;
	bool silent = true;

	*out = (struct dr_hb_out){ 0 };
	if (!h->started || now < h->next_ns)
		return;
	if (now - h->last_tick_ns < h->interval_ns) { /* a half tick only sends */
		out->send = all;
		h->next_ns = h->last_tick_ns + h->interval_ns;
		return;
	}
	out->full = true;
	for (unsigned i = 0; i < h->n_rails; i++) {
		const struct dr_hb_rail *r = &h->rail[i];

		heard |= r->heard ? 1u << i : 0;
		beats |= r->beat ? 1u << i : 0;
		silent = silent && !alive(r);
	}
	h->silent = silent ? h->silent + 1 : 0;
	for (unsigned i = 0; i < h->n_rails; i++)
		judge(h, i, evidence(heard, beats, i), out);
	out->send = all & ~busy;
	h->last_tick_ns = now;
	h->next_ns = now + h->interval_ns;
	/* Bytes do not tell the peer that a rail is down, and are no evidence there; datagrams are. */
	if (any_down(h))
		out->send = all;
	if (suspicious(h)) {
		out->send = all;
		h->next_ns = now + h->interval_ns / 2;
	}
}

uint32_t dr_hb_suspects(const struct dr_hb *h)
{
	uint32_t suspects = 0;

	for (unsigned i = 0; i < h->n_rails; i++) {
		const struct dr_hb_rail *r = &h->rail[i];

		if (!r->down && !alive(r) && r->miss + 1 >= DR_HB_MISSES)
			suspects |= 1u << i;
	}
	return suspects;
}

void dr_hb_force_down(struct dr_hb *h, unsigned rail)
{
	struct dr_hb_rail *r = &h->rail[rail];

	dr_assert(rail < h->n_rails);
	r->down = true;
	r->heard = r->beat = r->heard_elsewhere = false;
	r->good = 0;
	r->miss = DR_HB_MISSES;
}

int64_t dr_hb_silent_ns(const struct dr_hb *h)
{
	return (int64_t)h->silent * h->interval_ns;
}
