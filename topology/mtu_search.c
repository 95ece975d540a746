/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/mtu_search.h"

#include "base/key.h"
#include "base/wire.h"

#include <errno.h>
#include <string.h>

#define MAGIC 0x64724d54u /* "drMT" */
enum { VERSION = 1, MAC = DR_MAC_LEN };
enum { CONNECTOR = 1, ANSWER = 2, KNOWS = 4, FLAGS = 7 };
/* Between an answered round and the next one: reordering, and queues that are full for a moment. */
#define PAUSE_NS (5 * DR_NS_PER_MS)
/* A round waits for its answer for 10 ms and two round trips; doubled for each round in a row without one. */
#define WAIT_NS (10 * DR_NS_PER_MS)
enum { WAIT_DOUBLINGS = 5 };
#define TEST_NS (5 * DR_NS_PER_S)
/* Probability that losses alone explain a result. In a search an error costs some precision only. */
static const double CHANCE = 1e-6, SEARCH_CHANCE = 1e-3;

void dr_mtu_search_init(struct dr_mtu_search *s, const struct dr_mtu_params *p, int64_t now)
{
	dr_assert(p->full_bytes >= p->header_bytes + DR_MTU_DGRAM);
	dr_assert(p->full_bytes <= DR_MTU_PACKET_MAX);
	*s = (struct dr_mtu_search){ .prm = *p,
		.hi = p->full_bytes + 1,
		.n_tries = 1,
		.size = { p->full_bytes },
		.companion = p->header_bytes + DR_MTU_DGRAM,
		.begin_ns = now,
		.next_ns = now };
}

bool dr_mtu_search_over(const struct dr_mtu_search *s)
{
	return s->next_ns == DR_NEVER;
}

int64_t dr_mtu_search_deadline(const struct dr_mtu_search *s)
{
	return s->next_ns;
}

/* ---- the search ---- */

/* So many losses beside so many answered companions are no chance. */
static bool proven(const struct dr_mtu_search *s, unsigned lost, double chance)
{
	double missing = 1 - s->answered / (s->sent + 1.0), p = 1;

	for (unsigned i = 0; i < lost && p > chance; i++)
		p *= missing;
	return p <= chance;
}

static void settle(struct dr_mtu_search *s, enum dr_mtu_state state, uint32_t bytes)
{
	s->step = DR_MTU_END;
	s->own = (struct dr_mtu_result){ state, bytes };
	s->n_tries = 0;
	s->companion = s->prm.header_bytes + DR_MTU_DGRAM;
}

static void ask(struct dr_mtu_search *s, enum dr_mtu_step step)
{
	uint32_t room = s->hi - s->lo - 1;

	s->step = step;
	s->n_tries = step == DR_MTU_SEARCH ? DR_MIN(room, (uint32_t)DR_MTU_TRIES) : 1;
	for (unsigned i = 0; i < s->n_tries; i++) {
		s->size[i] = step == DR_MTU_SEARCH ? s->lo + (uint32_t)((uint64_t)(room + 1) *
									(i + 1) / (s->n_tries + 1))
						   : s->prm.full_bytes;
		s->lost[i] = 0;
	}
	if (step == DR_MTU_CONFIRM) {
		s->companion = s->lo;
		s->sent = s->answered = 0;
		memset(s->last, 0, sizeof(s->last));
	}
}

static void search(struct dr_mtu_search *s)
{
	uint32_t hi = s->hi;

	for (unsigned i = s->n_tries; i-- > 0 && s->size[i] > s->lo;) {
		if (!proven(s, s->lost[i], SEARCH_CHANCE))
			return;
		hi = s->size[i];
	}
	/* A size that was taken for lost may have passed late. */
	s->hi = hi > s->lo ? hi : s->prm.full_bytes;
	ask(s, s->hi - s->lo > 1 ? DR_MTU_SEARCH : DR_MTU_CONFIRM);
}

static void decide(struct dr_mtu_search *s)
{
	if (s->step == DR_MTU_END)
		return;
	if (s->lo >= s->prm.full_bytes) {
		settle(s, s->refused ? DR_MTU_REFUSED : DR_MTU_PASSES, s->prm.full_bytes);
		return;
	}
	s->own.state = s->lo ? DR_MTU_DOUBT : DR_MTU_OPEN;
	if (s->step == DR_MTU_SEARCH) {
		search(s);
	} else if (proven(s, s->lost[0], CHANCE)) {
		s->hi = s->prm.full_bytes;
		if (s->step == DR_MTU_FULL)
			ask(s, s->hi - s->lo > 1 ? DR_MTU_SEARCH : DR_MTU_CONFIRM);
		else
			settle(s, DR_MTU_HOLE, s->lo);
	}
}

/* Its companion is answered, and so everything before it had time to be; or the wait is over. */
static void end_round(struct dr_mtu_search *s)
{
	bool answered = s->last[s->round_n % DR_MTU_ROUNDS].answered;

	for (unsigned i = 0; i < s->n_tries && answered; i++)
		s->lost[i] += s->size[i] > s->lo;
	s->last[s->round_n % DR_MTU_ROUNDS].counted = s->lo > 0;
	s->sent += s->lo > 0;
	s->unanswered = answered ? 0 : DR_MIN(s->unanswered + 1, (unsigned)WAIT_DOUBLINGS);
	s->round = false;
}

static void begin_round(struct dr_mtu_search *s)
{
	s->round = true;
	s->round_n++;
	memset(&s->last[s->round_n % DR_MTU_ROUNDS], 0, sizeof(s->last[0]));
}

void dr_mtu_search_refused(struct dr_mtu_search *s, uint32_t bytes)
{
	if (s->step == DR_MTU_END || bytes >= s->prm.full_bytes ||
		bytes < s->prm.header_bytes + DR_MTU_DGRAM)
		return;
	s->refused = true;
	s->prm.full_bytes = bytes;
	s->hi = bytes + 1;
	s->companion = s->prm.header_bytes + DR_MTU_DGRAM;
	s->lo = DR_MIN(s->lo, bytes);
	s->round = false;
	s->at = 0;
	ask(s, DR_MTU_FULL);
}

/* ---- datagrams ---- */

static void make(const struct dr_mtu_search *s, unsigned flags, uint32_t number, uint32_t size,
	uint8_t buf[DR_MTU_DGRAM])
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, DR_MTU_DGRAM);
	dr_wbuf_u32(&w, MAGIC);
	dr_wbuf_u8(&w, VERSION);
	dr_wbuf_u8(&w, (uint8_t)(flags | (s->prm.connector ? CONNECTOR : 0) |
				 (dr_mtu_final(s->peer.state) ? KNOWS : 0)));
	dr_wbuf_u8(&w, (uint8_t)s->own.state);
	dr_wbuf_u8(&w, s->prm.rail);
	dr_wbuf_u32(&w, number);
	dr_wbuf_u32(&w, size);
	dr_wbuf_u32(&w, s->own.bytes);
	dr_assert(!w.failed && w.len + MAC == DR_MTU_DGRAM);
	dr_key_tag(s->prm.key, buf, w.len, buf + w.len);
}

void dr_mtu_search_proof(const struct dr_mtu_search *s, uint8_t buf[DR_MTU_DGRAM])
{
	make(s, 0, 0, DR_MTU_DGRAM, buf);
}

uint32_t dr_mtu_search_next(struct dr_mtu_search *s, int64_t now, uint8_t buf[DR_MTU_DGRAM])
{
	if (now < s->next_ns)
		return 0;
	if (s->at == 0) {
		if (s->round)
			end_round(s);
		decide(s);
		if (now - s->begin_ns >= TEST_NS && s->step != DR_MTU_END)
			settle(s, DR_MTU_UNKNOWN, 0);
		/* Some time longer, so that the peer learns of it. */
		if ((s->step == DR_MTU_END && dr_mtu_final(s->peer.state) && s->peer_knows) ||
			now - s->begin_ns >= TEST_NS + DR_NS_PER_S) {
			s->next_ns = DR_NEVER;
			return 0;
		}
		begin_round(s);
	}
	while (s->at < s->n_tries && s->size[s->at] <= s->lo)
		s->at++;
	uint32_t bytes = s->at < s->n_tries ? s->size[s->at++] : s->companion;
	make(s, 0, ++s->number, bytes - s->prm.header_bytes, buf);
	if (bytes == s->companion) {
		s->at = 0;
		s->last[s->round_n % DR_MTU_ROUNDS].number = s->number;
		s->last[s->round_n % DR_MTU_ROUNDS].sent_ns = now;
		s->next_ns = now + ((WAIT_NS + 2 * s->rtt_ns) << s->unanswered);
	}
	return bytes - s->prm.header_bytes;
}

/* A companion, even one of a round that is over, shows how many are lost and how long an answer takes. */
static void take_companion(struct dr_mtu_search *s, uint32_t number, int64_t now)
{
	for (unsigned i = 0; i < DR_MTU_ROUNDS; i++) {
		if (s->last[i].number != number || s->last[i].answered)
			continue;
		bool current = s->round && i == s->round_n % DR_MTU_ROUNDS;

		s->sent += !current && !s->last[i].counted;
		s->answered++;
		s->last[i].answered = true;
		s->rtt_ns = now - s->last[i].sent_ns;
		if (current)
			s->next_ns = DR_MIN(s->next_ns, now + PAUSE_NS);
	}
}

static void take_answer(struct dr_mtu_search *s, uint32_t number, uint32_t bytes, int64_t now)
{
	bool first = s->lo == 0;

	if (number == 0 || number > s->number || bytes > s->prm.full_bytes)
		return;
	s->lo = DR_MAX(s->lo, bytes);
	take_companion(s, number, now);
	/* Known at once, so that a start need not wait. */
	if (s->lo >= s->prm.full_bytes || first)
		decide(s);
}

int dr_mtu_search_receive(struct dr_mtu_search *s, const void *data, size_t len, size_t size,
	int64_t now, uint8_t answer[DR_MTU_DGRAM])
{
	uint8_t version, flags, state, rail, mac[MAC];
	uint32_t magic, number, told, bytes;
	struct dr_rbuf r;

	dr_rbuf_init(&r, data, DR_MIN(len, (size_t)DR_MTU_DGRAM));
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &flags);
	dr_rbuf_u8(&r, &state);
	dr_rbuf_u8(&r, &rail);
	dr_rbuf_u32(&r, &number);
	dr_rbuf_u32(&r, &told);
	dr_rbuf_u32(&r, &bytes);
	dr_rbuf_bytes(&r, mac, sizeof(mac));
	if (dr_rbuf_done(&r) || magic != MAGIC || version != VERSION || flags > FLAGS ||
		state >= DR_MTU_STATES || rail != s->prm.rail || told > DR_MTU_PACKET_MAX ||
		bytes > DR_MTU_PACKET_MAX || !(flags & CONNECTOR) != s->prm.connector)
		return -EPROTO;
	if (!dr_key_tag_ok(s->prm.key, data, DR_MTU_DGRAM - MAC, mac))
		return -EPROTO;
	/* Once final it stays: datagrams may arrive out of order. */
	if (!dr_mtu_final(s->peer.state))
		s->peer = (struct dr_mtu_result){ (enum dr_mtu_state)state, bytes };
	if ((flags & KNOWS) && s->step == DR_MTU_END)
		s->peer_knows = true;
	/* The peer is there: it will answer what it had no time for. */
	if (!s->heard && s->unanswered > 0 && s->next_ns != DR_NEVER) {
		s->unanswered = 0;
		s->next_ns = DR_MIN(s->next_ns, now + PAUSE_NS);
	}
	s->heard = true;
	if (flags & ANSWER) {
		take_answer(s, number, told + s->prm.header_bytes, now);
		return 0;
	}
	if (told != size)
		return -EPROTO;
	make(s, ANSWER, number, told, answer);
	return 1;
}
