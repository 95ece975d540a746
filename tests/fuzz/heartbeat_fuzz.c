/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats: datagrams of strangers change nothing, those that carry the right code only what they
 * may. First u8: rails, u8 whether this end is the connector; then steps, see step().
 */
#include "channel/heartbeat.h"
#include "tests/fuzz/lib/fuzz.h"

#include <sodium.h>

enum { MAC = 16, STEPS_MAX = 300 };
static const int64_t TICK = 10 * DR_NS_PER_MS;

/* Refused: nothing but the count changed. */
static void receive(struct dr_hb *h, unsigned rail, const uint8_t *b, size_t len, size_t size)
{
	struct dr_hb before = *h;
	int64_t now = h->last_tick_ns;

	if (!fz_taken(dr_hb_receive(h, rail, b, len, size, now))) {
		dr_assert(h->refused == before.refused + 1);
		before.refused++;
		dr_assert(memcmp(&before, h, sizeof(*h)) == 0);
		return;
	}
	dr_assert(h->received == before.received + 1);
	/* u32 magic | version | role | u16 gpu | rail | n */
	dr_assert(b[5] == !h->connector && (b[6] << 8 | b[7]) == h->gpu && b[8] == rail &&
		  b[9] == h->n_rails);
	dr_assert(h->rail[rail].rx_tick > before.rail[rail].rx_tick && h->d.heard);
	for (unsigned i = 0; i < h->n_rails; i++)
		dr_assert(i == rail || h->rail[i].rx_tick == before.rail[i].rx_tick);
	/* The same once more is stale. */
	before = *h;
	dr_assert(dr_hb_receive(h, rail, b, len, size, now) == -EPROTO);
	before.refused++;
	dr_assert(memcmp(&before, h, sizeof(*h)) == 0);
}

/* A datagram as the peer makes it, some bytes changed, with the code of what it is then. */
static void forged(struct dr_hb *h, struct dr_hb *peer, struct fz *z)
{
	unsigned rail = fz_u8(z) % h->n_rails, changes = fz_u8(z) % 4;
	uint8_t b[DR_DGRAM_MAX];
	uint32_t size = fz_u8(z) & 1 ? 1000 : 0;
	size_t len;

	for (unsigned i = 0; i < h->n_rails; i++)
		peer->d.rail[i].sent = (uint16_t)(peer->d.rail[i].heard_at + fz_u8(z));
	if (changes & 1) { /* it has heard of this end, up to the newest datagram */
		(void)dr_hb_make(h, rail, 0, b);
		peer->rail[rail].rx_tick = h->tick;
	}
	len = dr_hb_make(peer, rail, size, b);
	for (unsigned i = 0; i < changes; i++) {
		size_t at = fz_u8(z) % (len - MAC);

		b[at] ^= fz_u8(z);
	}
	crypto_shorthash_siphashx24(b + len - MAC, b, len - MAC, h->rx_key);
	receive(h, rail, b, len, size != 0 ? size : len);
}

static void tick(struct dr_hb *h, uint32_t busy, int64_t *now)
{
	uint32_t all = (uint32_t)((1ull << h->n_rails) - 1);
	struct dr_hb before = *h;
	struct dr_hb_out out;

	dr_hb_tick(h, busy, *now, &out);
	dr_assert((out.send & ~all) == 0 && (out.v.fell & out.v.rose) == 0);
	for (unsigned i = 0; i < h->n_rails; i++) {
		bool fell = out.v.fell >> i & 1, rose = out.v.rose >> i & 1;

		dr_assert(!fell || (!before.d.rail[i].down && h->d.rail[i].down));
		dr_assert(!rose || (before.d.rail[i].down && !h->d.rail[i].down));
		dr_assert(fell || rose || before.d.rail[i].down == h->d.rail[i].down);
	}
	dr_assert(h->next_ns > *now || !h->started);
}

static void step(struct dr_hb *h, struct dr_hb *peer, struct fz *z, int64_t *now)
{
	uint8_t op = fz_u8(z), *b;
	size_t len;

	if (op < 100) {
		forged(h, peer, z);
	} else if (op < 200) {
		*now = h->next_ns + (op & 1 ? fz_u16(z) : 0);
		tick(h, fz_u16(z), now);
	} else if (op < 220) {
		dr_detect_life(&h->d, op % h->n_rails, *now);
	} else if (op < 224) {
		dr_detect_force_down(&h->d, op % h->n_rails, false);
	} else if (op < 226) {
		dr_detect_force_down(&h->d, op % h->n_rails, true);
	} else if (op < 228) {
		dr_detect_gap(&h->d, op % h->n_rails, fz_u16(z) * 1000);
	} else if (op < 232) {
		dr_hb_suspect(h, op % h->n_rails, *now);
	} else if (op < 236) {
		dr_hb_question(h, op % h->n_rails, op & 1 ? 1000 : 0, *now);
	} else {
		b = fz_bytes(z, op % 64, &len);
		receive(h, op % h->n_rails, b, len, len);
	}
}

FUZZ(z)
{
	static const uint8_t key[DR_TOKEN_LEN] = { 9 };
	unsigned n = 1 + fz_u8(z) % DR_HB_RAILS_MAX;
	bool connector = fz_u8(z) & 1;
	struct dr_hb h, peer;
	int64_t now = DR_NS_PER_S;

	dr_hb_init(&h, n, TICK, 3, connector, key);
	dr_hb_init(&peer, n, TICK, 3, !connector, key);
	dr_hb_start(&h, now);
	for (unsigned i = 0; i < STEPS_MAX && z->n; i++) {
		step(&h, &peer, z, &now);
		dr_assert(h.d.silent_ns >= 0);
	}
}
