/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_priv.h"

#include "base/wire.h"
#include "channel/rate.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <string.h>

/*
 * Datagram, big endian:
 *	u32 magic | u8 version | u8 role (1 connector) | u16 gpu | u8 rail | u8 n |
 *	u8 flags (1 fast phase, 2 report, 4 stand) | u16 size | u16 held | u64 number | u64 stand, if the flag is set |
 *	n x (u8 miss | u32 newest | u32 newest padded | u16 small) | 16 B MAC | padding
 * size: of the datagram, padding included. held: bit i, datagrams for rail i have not left the sender's host. stand:
 * bit i, the worker at position i of the sender's process stands. newest: low bits of numbers received on that rail.
 * small: of the number of datagrams without padding received there.
 * number: the sender's clock in units of 2^24 ns, which are 16.8 ms and last for two years; below, 32 bits that count.
 * MAC: SipHash-2-4 of 128 bits (libsodium crypto_shorthash_siphashx24), designed for short messages,
 * over all bytes before it, with a key of its own for each direction.
 */
enum { HB_MAGIC = 0x64724842, HB_VERSION = 7, HB_MAC = 16, HB_FIXED = 23, HB_REPORT = 11 };
enum {
	FLAG_FAST = 1,
	FLAG_REPORT = 2,
	FLAG_STAND = 4,
	DOWN = UINT8_MAX,
	LONGEST_MAX = 10,
	MUTE_MISSES = 2
};
static const int64_t FAST_MIN_NS = DR_NS_PER_MS / 2;
static const int64_t FORGET_NS = 5 * DR_NS_PER_S;
static const int64_t GAPS_NS = 100 * DR_NS_PER_MS;
static const int64_t PATIENCE_MAX_NS = 200 * DR_NS_PER_MS;
static const int64_t STAND_NS =
	100 * DR_NS_PER_MS; /* a report counts so long, or for four intervals */

_Static_assert(HB_MAC == crypto_shorthash_siphashx24_BYTES &&
		       DR_KEY_LEN == crypto_shorthash_siphashx24_KEYBYTES,
	"the key's length");

void dr_hb_init(struct dr_hb *h, unsigned n_rails, int64_t interval_ns, uint16_t gpu,
	bool connector, const uint8_t token[DR_TOKEN_LEN])
{
	dr_assert(n_rails >= 1 && n_rails <= DR_HB_RAILS_MAX && interval_ns > 0);
	memset(h, 0, sizeof(*h));
	h->n_rails = n_rails;
	h->interval_ns = interval_ns;
	h->gpu = gpu;
	h->connector = connector;
	dr_key_derive(token, connector ? DR_KEY_BEAT_CONNECTOR : DR_KEY_BEAT_ACCEPTOR, h->tx_key);
	dr_key_derive(token, connector ? DR_KEY_BEAT_ACCEPTOR : DR_KEY_BEAT_CONNECTOR, h->rx_key);
	h->mark = 1;
	h->next_ns = DR_NEVER;
	h->budget = DR_HB_BUDGET;
}

void dr_hb_start(struct dr_hb *h, int64_t now)
{
	h->started = true;
	h->next_ns = h->last_tick_ns = h->alive_ns = now;
	h->start_ns = h->sent_ns = h->mark_ns = h->all_ns = now;
	h->base_ns = now - DR_HB_EARLIER_NS;
	h->forget_ns = now + FORGET_NS;
	for (unsigned i = 0; i < h->n_rails; i++)
		h->rail[i].heard_ns = now;
}

static int64_t fast_ns(const struct dr_hb *h)
{
	return DR_MIN(h->interval_ns, DR_MAX(h->interval_ns / DR_HB_FAST, FAST_MIN_NS));
}

static bool suspect(const struct dr_hb_rail *r)
{
	return !r->down && (r->miss > 0 || r->peer_miss > 0);
}

bool dr_hb_suspected(const struct dr_hb *h, unsigned rail)
{
	return suspect(&h->rail[rail]);
}

static bool may_be_fast(const struct dr_hb *h, int64_t now)
{
	return now >= h->fast_until_ns && h->budget >= DR_HB_BUDGET / 2;
}

/* The next tick comes at once, if it is not a fast one already. A phase whose suspicion was cleared goes on when the peer
 * suspects the rail: where packets are lost on the way to it, its datagrams clear the rail here. */
static void begin_fast(struct dr_hb *h, int64_t now)
{
	if (may_be_fast(h, now))
		h->fast_until_ns = now + DR_HB_BUDGET * fast_ns(h);
	else if (now >= h->fast_until_ns || h->budget == 0)
		return;
	if (now - h->last_tick_ns >= fast_ns(h))
		h->next_ns = DR_MIN(h->next_ns, now);
	else
		h->next_ns = DR_MIN(h->next_ns, h->last_tick_ns + fast_ns(h));
}

void dr_hb_gap(struct dr_hb *h, unsigned rail, int64_t bytes_gap_ns)
{
	struct dr_hb_rail *r = &h->rail[rail];
	int64_t gap =
		bytes_gap_ns < PATIENCE_MAX_NS ? bytes_gap_ns : 0; /* before, nothing was sent */

	dr_dassert(rail < h->n_rails);
	if (r->beat_gap_ns != 0)
		gap = gap != 0 ? DR_MIN(gap, r->beat_gap_ns) : r->beat_gap_ns;
	r->beat_gap_ns = 0;
	r->gap_ns[0] = DR_MAX(r->gap_ns[0], gap);
}

int64_t dr_hb_usual_gap(const struct dr_hb *h, unsigned rail)
{
	const int64_t *gap = h->rail[rail].gap_ns;

	return DR_MAX(gap[0], gap[1] != 0 ? gap[1] : h->interval_ns);
}

void dr_hb_suspect(struct dr_hb *h, unsigned rail, int64_t now)
{
	struct dr_hb_rail *r = &h->rail[rail];

	dr_assert(rail < h->n_rails);
	if (!h->started || h->n_rails == 1 || r->down || suspect(r) || !may_be_fast(h, now))
		return;
	/* what was heard since the last tick is older */
	r->heard = r->heard_elsewhere = r->heard_late = false;
	for (unsigned i = 0; i < h->n_rails; i++)
		h->rail[i].beat = false;
	r->miss = 1;
	r->suspected = true;
	r->missed_at = h->tick;
	begin_fast(h, now);
}

void dr_hb_life(struct dr_hb *h, unsigned rail)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].heard = true;
}

void dr_hb_late_life(struct dr_hb *h, unsigned rail)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].heard_late = true;
}

void dr_hb_acked(struct dr_hb *h, unsigned rail, int64_t now)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].acked_ns = now;
}

void dr_hb_heard_elsewhere(struct dr_hb *h, unsigned rail)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].heard_elsewhere = true;
}

void dr_hb_held(struct dr_hb *h, unsigned rail, bool held)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].held = held;
	h->rail[rail].looked = h->rail[rail].tried;
}

void dr_hb_no_path(struct dr_hb *h, unsigned rail, bool none)
{
	dr_dassert(rail < h->n_rails);
	h->rail[rail].no_path = none;
}

bool dr_hb_doubted(const struct dr_hb *h, unsigned rail)
{
	return suspect(&h->rail[rail]) || h->rail[rail].padded_size != 0;
}

void dr_hb_stand(struct dr_hb *h, uint64_t workers)
{
	h->stand = workers;
}

bool dr_hb_peer_stands(const struct dr_hb *h, unsigned worker, int64_t now)
{
	return (h->peer_stand >> worker & 1) != 0 &&
	       now - h->peer_stand_ns < DR_MAX(STAND_NS, 4 * h->interval_ns);
}

static bool alive(const struct dr_hb_rail *r)
{
	return r->heard || r->heard_elsewhere || r->heard_late;
}

static void mac(const uint8_t key[DR_KEY_LEN], const uint8_t *data, size_t len, uint8_t out[HB_MAC])
{
	int rc = crypto_shorthash_siphashx24(out, data, len, key);

	dr_assert(rc == 0);
}

/* The full number whose low bits are `low`: the newest one that is not above `newest`; 0: there is none. At 4,000
 * datagrams per second, a number that was reported last looks newer after twelve days. */
static uint64_t full_number(uint64_t newest, uint32_t low)
{
	uint32_t older = (uint32_t)newest - low;

	return older > newest ? 0 : newest - older;
}

/* What the peer received on a rail: of the padded datagrams that it did not, those are lost that a later
 * small one overtook. */
static void padded_report(struct dr_hb *h, struct dr_hb_rail *r, uint32_t newest, uint32_t padded)
{
	uint64_t seen = full_number(h->tick, newest), passed = full_number(h->tick, padded);

	r->peer_newest = newest;
	h->echoed = DR_MAX(h->echoed, seen);
	r->peer_padded = padded;
	r->padded_lost = 0;
	for (unsigned i = 0; i < DR_MIN(r->n_padded, (unsigned)DR_HB_PADDED_MAX); i++) {
		if (padded != r->asked_padded && passed >= r->padded[i]) {
			r->n_padded = r->padded_lost = 0;
			r->padded_only = false;
			return;
		}
		r->padded_lost += r->padded[i] < seen;
	}
}

static void beat(struct dr_hb_rail *r, int64_t now)
{
	r->heard = r->beat = true;
	r->mute = false;
	if (r->beat_ns != 0 && now - r->beat_ns < PATIENCE_MAX_NS) /* before, none were due */
		r->beat_gap_ns = DR_MAX(r->beat_gap_ns, now - r->beat_ns);
	r->beat_ns = now;
}

/* The reports of a datagram that is authentic and the newest one of the peer. */
static void take_report(
	struct dr_hb *h, struct dr_rbuf *r, uint8_t flags, uint16_t held, int64_t now)
{
	for (unsigned i = 0; i < h->n_rails; i++) {
		uint32_t newest = 0, padded = 0;
		uint8_t miss = 0;

		dr_rbuf_u8(r, &miss);
		dr_rbuf_u32(r, &newest);
		dr_rbuf_u32(r, &padded);
		dr_rbuf_u16(r, &h->rail[i].peer_small);
		h->rail[i].peer_miss = miss;
		h->rail[i].peer_held = held >> i & 1;
		padded_report(h, &h->rail[i], newest, padded);
		if ((flags & FLAG_FAST) && suspect(&h->rail[i]))
			begin_fast(h, now);
	}
}

static size_t head_len(uint8_t flags)
{
	return HB_FIXED + (flags & FLAG_STAND ? sizeof(uint64_t) : 0);
}

/* The newest of our datagrams that these reports name. */
static uint64_t newest_reported(const struct dr_hb *h, const void *reports)
{
	uint64_t newest = 0;
	struct dr_rbuf r;

	dr_rbuf_init(&r, reports, (size_t)h->n_rails * HB_REPORT);
	for (unsigned i = 0; i < h->n_rails; i++) {
		uint32_t low = 0;
		uint8_t miss;
		const void *rest;

		dr_rbuf_u8(&r, &miss);
		dr_rbuf_u32(&r, &low);
		(void)dr_rbuf_view(&r, &rest, HB_REPORT - 5);
		newest = DR_MAX(newest, full_number(h->tick, low));
	}
	return newest;
}

int dr_hb_receive(
	struct dr_hb *h, unsigned rail, const void *data, size_t len, size_t size, int64_t now)
{
	uint8_t version, role, from, n, flags, want[HB_MAC];
	struct dr_rbuf r, report;
	const void *reports;
	uint16_t gpu, total, held;
	uint32_t magic;
	uint64_t number, stand = 0;
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
	dr_rbuf_u16(&r, &held);
	dr_rbuf_u64(&r, &number);
	if (flags & FLAG_STAND)
		dr_rbuf_u64(&r, &stand);
	if (r.failed || magic != HB_MAGIC || version != HB_VERSION || role != !h->connector ||
		gpu != h->gpu || from != rail || n != h->n_rails || total != size ||
		dr_rbuf_view(&r, &reports, (size_t)n * HB_REPORT) != 0 || dr_rbuf_left(&r) < HB_MAC)
		goto refuse;
	used = head_len(flags) + (size_t)n * HB_REPORT;
	if (size == len && len == used + HB_MAC)
		total = 0;
	mac(h->rx_key, data, used, want);
	if (sodium_memcmp(want, (const uint8_t *)data + used, HB_MAC) != 0)
		goto refuse;
	if (!dr_hb_take_number(h, rail, number, newest_reported(h, reports), now))
		goto refuse;
	h->rail[rail].rx_tick = number;
	if (total != 0) {
		h->rail[rail].rx_padded = number;
		h->asked = true;
	} else
		h->rail[rail].small++;
	beat(&h->rail[rail], now);
	h->received++;
	if (number <= h->told) /* read after a newer one of another rail */
		return 0;
	h->told = number;
	h->peer_stand = stand;
	h->peer_stand_ns = now;
	/* Else our bytes would replace the datagrams that tell how a rail is heard. */
	if ((flags & FLAG_REPORT) && now >= h->report_ns) {
		h->asked = true;
		h->report_ns = now + (h->on_paths ? DR_HB_RARE * h->interval_ns : 0);
	}
	dr_rbuf_init(&report, reports, (size_t)n * HB_REPORT);
	take_report(h, &report, flags, held, now);
	return 0;
refuse:
	h->refused++;
	return -EPROTO;
}

static unsigned misses_needed(unsigned longest)
{
	return longest > 1 ? 3u * longest : DR_HB_MISSES + longest;
}

/* more: misses to come, of whole intervals. */
static bool missed_enough(const struct dr_hb_rail *r, unsigned more)
{
	return r->miss + more >= misses_needed(r->longest) ||
	       r->proved_full + more >= misses_needed(r->longest_full);
}

/* A rail that is down for want of padded datagrams is not silent, and one that is heard again is not for a tick or two. */
static uint8_t reported(const struct dr_hb_rail *r)
{
	bool silent = r->padded_only ? missed_enough(r, 0) : r->miss >= DR_HB_MISSES;

	return r->down && silent ? DOWN : DR_MIN(r->miss, DOWN - 1);
}

/* Nothing is known of a suspect rail before a datagram was sent on it, and looked after. */
static bool report_held(const struct dr_hb *h, const struct dr_hb_rail *r)
{
	return r->held || r->no_path || (h->looks && suspect(r) && !r->looked);
}

static uint8_t own_flags(const struct dr_hb *h)
{
	uint8_t f = h->next_ns < h->fast_until_ns ? FLAG_FAST : 0;

	f |= h->stand != 0 ? FLAG_STAND : 0;
	f |= h->far_ns != 0 ? FLAG_REPORT : 0;
	for (unsigned i = 0; i < h->n_rails; i++)
		if (h->rail[i].down || h->rail[i].mute)
			f |= FLAG_REPORT;
	return f;
}

size_t dr_hb_make(struct dr_hb *h, unsigned rail, uint32_t size, uint8_t buf[DR_DGRAM_MAX])
{
	uint8_t flags = own_flags(h);
	size_t plain = head_len(flags) + (size_t)h->n_rails * HB_REPORT + HB_MAC;
	struct dr_hb_rail *to = &h->rail[rail];
	uint8_t tag[HB_MAC];
	uint16_t held = 0;
	struct dr_wbuf w;

	dr_assert(size == 0 || (size > plain && size <= UINT16_MAX));

	for (unsigned i = 0; i < h->n_rails; i++)
		held |= (uint16_t)(report_held(h, &h->rail[i]) << i);
	dr_wbuf_init(&w, buf, DR_DGRAM_MAX);
	dr_wbuf_u32(&w, HB_MAGIC);
	dr_wbuf_u8(&w, HB_VERSION);
	dr_wbuf_u8(&w, h->connector);
	dr_wbuf_u16(&w, h->gpu);
	dr_wbuf_u8(&w, (uint8_t)rail);
	dr_wbuf_u8(&w, (uint8_t)h->n_rails);
	dr_wbuf_u8(&w, flags);
	dr_wbuf_u16(&w, (uint16_t)(size != 0 ? size : plain));
	dr_wbuf_u16(&w, held);
	dr_wbuf_u64(&w, dr_hb_next_number(h));
	to->tried |= suspect(to);
	if (flags & FLAG_STAND)
		dr_wbuf_u64(&w, h->stand);
	if (size != 0) {
		to->padded[to->n_padded++ % DR_HB_PADDED_MAX] = h->tick;
		to->quick -= to->quick > 0;
	} else {
		to->small_sent++;
	}
	for (unsigned i = 0; i < h->n_rails; i++) {
		const struct dr_hb_rail *r = &h->rail[i];

		dr_wbuf_u8(&w, reported(r));
		dr_wbuf_u32(&w, (uint32_t)r->rx_tick);
		dr_wbuf_u32(&w, (uint32_t)r->rx_padded);
		dr_wbuf_u16(&w, r->small);
	}
	mac(h->tx_key, buf, w.len, tag);
	dr_wbuf_bytes(&w, tag, sizeof(tag));
	dr_assert(!w.failed);
	h->sent++;
	return w.len;
}

/* Evidence against rail i, if it was not heard: the limit up to which its misses may grow. */
static uint8_t evidence(uint32_t heard, uint32_t beats, unsigned i)
{
	if ((beats & ~(1u << i)) != 0)
		return DOWN - 1;
	return (heard & ~(1u << i)) != 0;
}

static int64_t patience_ns(const struct dr_hb *h, unsigned i)
{
	int64_t ns = DR_MAX(
		DR_HB_FAST_MISSES * fast_ns(h), DR_MIN(2 * dr_hb_usual_gap(h, i), PATIENCE_MAX_NS));

	if (h->rail[i].mute)
		ns = DR_MAX(ns, DR_HB_MUTE_NS);
	return h->rail[i].peer_held ? DR_MAX(ns, DR_HB_HELD_NS) : ns;
}

/* Returns its misses, if it ended by itself. */
static uint8_t silence_ended(struct dr_hb_rail *r)
{
	uint8_t misses = r->down ? 0 : DR_MIN(r->miss - r->suspected, DR_HB_HISTOGRAM - 1);

	if (!r->down) {
		r->longest = DR_MAX(r->longest, DR_MIN(r->proved, LONGEST_MAX));
		r->longest_full = DR_MAX(r->longest_full, DR_MIN(r->proved_full, LONGEST_MAX));
	}
	r->miss = r->proved = r->proved_full = 0;
	r->suspected = false;
	return misses;
}

/* interval: the last full tick was a whole interval ago. Returns the misses of a silence that ended. */
static uint8_t count(
	struct dr_hb *h, struct dr_hb_rail *r, uint8_t miss_max, bool interval, int64_t now)
{
	uint8_t ended = 0;

	if (alive(r)) {
		r->mute |= !r->down && !r->beat && !h->on_paths && r->proved >= MUTE_MISSES;
		ended = silence_ended(r);
		r->heard_ns = now;
		if (r->good < UINT8_MAX)
			r->good++;
	} else {
		/* The peer ticks as often as this end. What it sends may arrive now before our tick, now after it. */
		if (r->miss > 0)
			r->good = 0;
		else
			r->missed_at = h->tick;
		if (r->miss < miss_max)
			r->miss++;
		if (r->proved < miss_max && miss_max > 1) {
			r->proved++;
			r->proved_full += interval;
		}
	}
	r->heard = r->beat = r->heard_elsewhere = r->heard_late = false;
	return ended;
}

/* It could not be heard, which is no silence. */
static void could_not_be_heard(struct dr_hb_rail *r, int64_t now)
{
	r->miss = r->proved = r->proved_full = 0;
	r->suspected = false;
	r->heard_ns = now;
}

/* See the header: misses, evidence that is younger than the silence, and time. */
static bool silent_too_long(const struct dr_hb *h, unsigned i, int64_t now)
{
	const struct dr_hb_rail *r = &h->rail[i];

	return missed_enough(r, 0) && h->echoed > r->missed_at &&
	       now - DR_MAX(r->heard_ns, r->acked_ns) >= patience_ns(h, i);
}

/* One rail at a full tick: counts what was heard and decides whether the rail is up. */
static void judge(struct dr_hb *h, unsigned i, uint8_t miss_max, int64_t now, struct dr_hb_out *out)
{
	struct dr_hb_rail *r = &h->rail[i];

	if (r->no_path && !r->down && !alive(r))
		could_not_be_heard(r, now);
	else
		out->ended[i] = count(h, r, miss_max, now - h->last_tick_ns >= h->interval_ns, now);
	if (!r->down && (silent_too_long(h, i, now) || r->peer_miss == DOWN)) {
		r->down = true;
		r->good = 0;
		out->fell |= 1u << i;
	} else if (r->down && !r->padded_only && r->good >= DR_HB_REVIVE && r->peer_miss == 0) {
		r->down = false;
		r->padded_size = 0;
		out->rose |= 1u << i;
	}
}

static void forget(struct dr_hb *h, int64_t now)
{
	bool longest = now >= h->forget_ns, gaps = now >= h->gaps_ns;

	if (longest)
		h->forget_ns = now + FORGET_NS;
	if (gaps)
		h->gaps_ns = now + GAPS_NS;
	for (unsigned i = 0; i < h->n_rails && (longest || gaps); i++) {
		struct dr_hb_rail *r = &h->rail[i];

		if (longest) {
			r->longest -= (r->longest + 3) / 4;
			r->longest_full -= (r->longest_full + 3) / 4;
		}
		if (gaps) {
			r->gap_ns[1] = r->gap_ns[0];
			r->gap_ns[0] = 0;
		}
	}
}

/* The peer has not reported of so many padded datagrams, nor of anything that was sent later. */
static bool padded_in_flight(const struct dr_hb *h, const struct dr_hb_rail *r)
{
	uint64_t seen = full_number(h->tick, r->peer_newest);
	unsigned n = 0;

	for (unsigned i = 0; i < DR_MIN(r->n_padded, (unsigned)DR_HB_PADDED_MAX); i++)
		n += r->padded[i] > seen;
	return n >= DR_HB_PADDED_FLIGHT;
}

/* Rails that need a padded datagram. */
static bool needs_padded(const struct dr_hb *h, const struct dr_hb_rail *r, bool full)
{
	bool due = full || r->n_padded < 2 * DR_HB_PADDED_LOST || r->quick > 0;

	return r->padded_size != 0 && due && !r->held && !padded_in_flight(h, r);
}

/* Rails that need a datagram, and the time of the next tick. Bytes do not tell the peer that a rail is
 * down, and are no evidence there; datagrams are. */
static void plan(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out)
{
	uint32_t all = (uint32_t)((1ull << h->n_rails) - 1);
	bool down = false, question = false, refresh;
	uint32_t doubt = 0, missed = 0, held = 0, waits = 0;

	for (unsigned i = 0; i < h->n_rails; i++) {
		struct dr_hb_rail *r = &h->rail[i];

		if (!suspect(r))
			r->tried = r->looked = false;
		held |= r->held ? 1u << i : 0;
		waits |= r->held && now - r->sent_ns < h->interval_ns ? 1u << i : 0;
		down |= r->down || r->mute;
		doubt |= suspect(r) ? 1u << i : 0;
		missed |= suspect(r) && DR_MAX(r->miss, r->peer_miss) > 1 ? 1u << i : 0;
		if (h->peer_runs && (r->down || (missed & (1u << i))))
			out->suspect |= 1u << i;
		question |= r->padded_size != 0 && !r->down;
		if (needs_padded(h, r, out->full))
			out->padded |= 1u << i;
	}
	refresh = h->far_ns != 0 || (out->full && now - h->all_ns >= DR_HB_REFRESH_NS);
	out->send =
		refresh || down || question || doubt || h->asked || (h->stand | h->told_stand) != 0
			? all
			: all & ~busy;
	if (out->send == all)
		h->all_ns = now;
	out->send &= ~waits;
	for (unsigned i = 0; i < h->n_rails; i++)
		if (out->send & (1u << i))
			h->rail[i].sent_ns = now;
	h->asked = false;
	h->sent_ns = now;
	if (out->full)
		h->told_stand = h->stand;
	h->next_ns = now + h->interval_ns / (question || missed ? DR_HB_QUARTER : doubt ? 2 : 1);
	if (doubt && now < h->fast_until_ns && h->budget > 0) {
		h->next_ns = now + fast_ns(h);
		out->twice = missed & ~held;
		h->budget--;
	} else if (out->full && h->budget < DR_HB_BUDGET && ++h->spared % DR_HB_SPARED == 0) {
		h->budget++;
	}
}

void dr_hb_tick(struct dr_hb *h, uint32_t busy, int64_t now, struct dr_hb_out *out)
{
	bool silent = true, fast = now < h->fast_until_ns;
	uint32_t heard = 0, beats = 0;

	*out = (struct dr_hb_out){ 0 };
	if (!h->started || now < h->next_ns)
		return;
	if (!fast && now - h->last_tick_ns < h->interval_ns) { /* a quarter tick only sends */
		plan(h, busy, now, out);
		h->next_ns = DR_MIN(h->next_ns, h->last_tick_ns + h->interval_ns);
		return;
	}
	out->full = true;
	for (unsigned i = 0; i < h->n_rails; i++) {
		const struct dr_hb_rail *r = &h->rail[i];

		heard |= r->heard ? 1u << i : 0;
		beats |= r->beat ? 1u << i : 0;
		silent = silent && !r->heard && !r->heard_elsewhere;
	}
	h->silent_ns = silent ? h->silent_ns + DR_MIN(now - h->last_tick_ns, h->interval_ns) : 0;
	h->alive_ns = silent ? h->alive_ns : now;
	h->peer_runs = beats != 0;
	for (unsigned i = 0; i < h->n_rails; i++)
		judge(h, i, evidence(heard, beats, i), now, out);
	h->last_tick_ns = now;
	forget(h, now);
	plan(h, busy, now, out);
}

void dr_hb_question(struct dr_hb *h, unsigned rail, uint32_t size, int64_t now)
{
	struct dr_hb_rail *r = &h->rail[rail];
	bool begins = r->padded_size == 0;

	dr_assert(rail < h->n_rails);
	if (r->padded_size == size || r->padded_only)
		return;
	r->padded_size = size;
	if (!begins)
		return;
	r->n_padded = r->padded_lost = 0;
	r->asked_padded = r->peer_padded;
	h->next_ns = DR_MIN(h->next_ns, now);
}

void dr_hb_doubt(struct dr_hb *h, unsigned rail, struct dr_hb_doubt *out)
{
	struct dr_hb_rail *r = &h->rail[rail];

	dr_assert(rail < h->n_rails);
	r->quick = 2 * DR_HB_PADDED_LOST;
	*out = (struct dr_hb_doubt){ .from = h->tick,
		.padded = r->peer_padded,
		.sent = r->small_sent,
		.peer = r->peer_small };
}

/* Small datagrams since the doubt began, and how many of them did not arrive. */
static unsigned sent_since(const struct dr_hb_rail *r, const struct dr_hb_doubt *d, unsigned *lost)
{
	unsigned sent = (uint16_t)(r->small_sent - d->sent);

	*lost = sent - DR_MIN((uint16_t)(r->peer_small - d->peer), sent);
	return sent;
}

/* Of each row: percent^lost <= 1e-6, and (1 - (1 - percent)^2)^silent, but for the first. Two more are taken for lost,
 * since the sample is small. */
struct need {
	unsigned percent, lost, silent;
};

/* NULL: too many are lost. */
static const struct need *need_of(unsigned sent, unsigned lost)
{
	static const struct need need[] = { { 17, DR_HB_PADDED_LOST, DR_HB_PADDED_LOST },
		{ 25, 10, 17 }, { 40, 16, 31 }, { 50, 20, 48 }, { 60, 28, 80 } };

	for (size_t i = 0; i < DR_ARRAY_LEN(need); i++)
		if ((lost + 2) * 100 <= (sent + 2) * need[i].percent)
			return &need[i];
	return NULL;
}

unsigned dr_hb_silent_needed(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d)
{
	unsigned lost, sent = sent_since(&h->rail[rail], d, &lost);
	const struct need *n = need_of(sent, lost);

	if (!n)
		return UINT_MAX;
	return lost > 0 ? n->silent : n->lost;
}

bool dr_hb_padded_lost(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d)
{
	const struct dr_hb_rail *r = &h->rail[rail];
	uint64_t seen = full_number(h->tick, r->peer_newest);
	unsigned sent, small, lost = 0;
	const struct need *need;

	for (unsigned i = 0; i < DR_MIN(r->n_padded, (unsigned)DR_HB_PADDED_MAX); i++)
		lost += r->padded[i] > d->from && r->padded[i] < seen;
	sent = sent_since(r, d, &small);
	need = need_of(sent, small);
	return need && lost >= need->lost;
}

bool dr_hb_padded_passed(const struct dr_hb *h, unsigned rail, const struct dr_hb_doubt *d)
{
	const struct dr_hb_rail *r = &h->rail[rail];

	return r->peer_padded != d->padded && full_number(h->tick, r->peer_padded) > d->from;
}

void dr_hb_padded_size(struct dr_hb *h, unsigned rail, uint32_t size)
{
	dr_assert(h->rail[rail].padded_only);
	h->rail[rail].padded_size = size;
}

void dr_hb_padded_only(struct dr_hb *h, unsigned rail)
{
	dr_hb_force_down(h, rail);
	h->rail[rail].miss = h->rail[rail].proved_full =
		0; /* it is heard, and the peer need not leave it */
	h->rail[rail].padded_only = true;
}

uint32_t dr_hb_suspects(const struct dr_hb *h)
{
	uint32_t suspects = 0;

	for (unsigned i = 0; i < h->n_rails; i++) {
		const struct dr_hb_rail *r = &h->rail[i];

		if (!r->down && !alive(r) && missed_enough(r, 1))
			suspects |= 1u << i;
	}
	return suspects;
}

void dr_hb_force_down(struct dr_hb *h, unsigned rail)
{
	struct dr_hb_rail *r = &h->rail[rail];

	dr_assert(rail < h->n_rails);
	r->down = true;
	r->heard = r->beat = r->heard_elsewhere = r->heard_late = false;
	r->good = 0;
	r->miss = DR_HB_MISSES;
	r->suspected = false;
}

void dr_hb_small(const struct dr_hb *h, unsigned rail, struct dr_rate_report *out)
{
	const struct dr_hb_rail *r = &h->rail[rail];

	*out = (struct dr_rate_report){ .number = h->told,
		.newest = full_number(h->tick, r->peer_newest),
		.got = r->peer_small,
		.last = h->tick,
		.sent = r->small_sent };
}

int64_t dr_hb_silent_ns(const struct dr_hb *h)
{
	return h->silent_ns;
}
