/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two conversations with somebody in between who changes bytes. The end that received a changed byte of a hello, a proof or
 * WELCOME does not open, and no client opens to a server that does not. Without a change both open.
 *
 *	u8: 1 with key, 2 another key at the server, 4.. purpose | n x (u8 direction, u16 offset, u8 xor)
 */
#include "bootstrap/conv.h"
#include "tests/fuzz/lib/fuzz.h"

enum {
	HANDSHAKE_BYTES = 12 + 1 + 4 + 60 + 16 + DR_CONV_PROOF_BYTES,
	WELCOME_BYTES = DR_CONV_SEALED_HEADER_BYTES + 8 + DR_CONV_TAG_BYTES,
	CHANGES_MAX = 16,
};

struct side {
	struct dr_conv c;
	size_t received;
	bool opened, changed;
};

static const struct dr_boot_key keys[2] = { { .bytes = { 1 } }, { .bytes = { 2 } } };

static void start(
	struct side *s, enum dr_conv_role role, uint8_t purpose, const struct dr_boot_key *key)
{
	struct dr_conv_opts o = { .role = role, .key = key, .stage_ns = DR_NS_PER_S };

	memset(s, 0, sizeof(*s));
	o.hello.purpose = purpose;
	memset(o.hello.nonce, role + 1, sizeof(o.hello.nonce));
	memset(o.ephemeral, role + 1, sizeof(o.ephemeral));
	memcpy(o.hello.build, "fuzz", 5);
	dr_assert(dr_conv_init(&s->c, &o, 0) == 0);
}

static void event(struct side *s, const struct dr_conv_event *ev)
{
	if (ev->kind == DR_CONV_IDENTIFIED)
		dr_assert(dr_conv_welcome(&s->c, 0, 0) == 0);
	if (ev->kind == DR_CONV_IDENTIFIED || ev->kind == DR_CONV_OPENED)
		s->opened = true;
}

/* One byte of from's output to `to`; false: there is none. */
static bool carry(struct side *from, struct side *to, const uint8_t (*change)[4], unsigned n,
	unsigned direction, size_t handshake)
{
	struct dr_conv_event ev;
	const uint8_t *p;
	uint8_t b;

	if (dr_conv_output(&from->c, &p) == 0)
		return false;
	b = *p;
	for (unsigned i = 0; i < n; i++)
		if ((change[i][0] & 1) == direction &&
			(size_t)(change[i][1] << 8 | change[i][2]) == to->received)
			b ^= change[i][3];
	if (b != *p && to->received < handshake)
		to->changed = true;
	to->received++;
	dr_conv_sent(&from->c, 1, 0);
	dr_conv_feed(&to->c, &b, 1, 0, &ev);
	dr_conv_validate(&to->c);
	event(to, &ev);
	return true;
}

FUZZ(z)
{
	uint8_t flags = fz_u8(z), change[CHANGES_MAX][4];
	bool keyed = flags & 1, other = keyed && (flags & 2);
	struct side c, s;
	unsigned n = 0;

	while (n < CHANGES_MAX && z->n >= 4) {
		for (unsigned i = 0; i < 4; i++)
			change[n][i] = fz_u8(z);
		n++;
	}
	start(&c, DR_CONV_CLIENT, (uint8_t)(DR_CONV_NEW + (flags >> 2) % 3),
		keyed ? &keys[0] : NULL);
	start(&s, DR_CONV_SERVER, 0, keyed ? &keys[other] : NULL);
	for (bool more = true; more;) {
		more = carry(&c, &s, change, n, 0, HANDSHAKE_BYTES);
		more = carry(&s, &c, change, n, 1, HANDSHAKE_BYTES + WELCOME_BYTES) || more;
	}
	dr_assert(!(s.opened && (s.changed || other)));
	dr_assert(!(c.opened && (c.changed || other)));
	/* What one end trusts of the other, the other has proved. */
	dr_assert(!c.opened || s.opened);
	if (n == 0)
		dr_assert(c.opened == !other && s.opened == !other);
	dr_conv_fini(&c.c);
	dr_conv_fini(&s.c);
}
