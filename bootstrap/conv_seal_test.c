/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bootstrap/conv_testkit.h"

/* What the handshake protects, and what follows from it. */

/* One end hears this tape of the other, and then nothing more. */
static void replay(struct end *e, bool to_server, const struct dr_boot_key *key,
	const uint8_t *bytes, size_t len)
{
	struct dr_conv_event ev;
	const uint8_t *out;
	end_init(e, to_server ? DR_CONV_SERVER : DR_CONV_CLIENT, key, to_server ? 0 : DR_CONV_NEW,
		to_server ? 22 : 11);
	feed(e, bytes, len);
	dr_conv_sent(&e->conv, dr_conv_output(&e->conv, &out), T0);
	if (dr_conv_deadline(&e->conv) == DR_NEVER)
		return;
	dr_conv_tick(&e->conv, T0 + STAGE, &ev);
	on_event(e, &ev);
}

/* Every bit of the conversation, both ways, with and without a key: none is changed without an error, and no frame from
 * there on is heard. */
static void flipped_bits(void **state)
{
	(void)state;
	const struct dr_boot_key *keys[] = { NULL, &key_a };
	for (unsigned i = 0; i < 4; i++) {
		struct tape t;
		bool to_server = i < 2;
		size_t ends[8];
		record(&t, keys[i % 2]);
		uint8_t *bytes = to_server ? t.client : t.server;
		size_t len = to_server ? t.client_len : t.server_len;
		unsigned n = frames_of(bytes, to_server, ends);
		assert_int_equal(ends[n], len);
		for (size_t bit = 0; bit < len * 8; bit++) {
			struct end e;
			unsigned before = 0; /* complete frames before the bit */
			while (before < n && ends[before + 1] <= bit / 8)
				before++;
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			replay(&e, to_server, keys[i % 2], bytes, len);
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(e.failed, 1);
			assert_int_equal(e.identified + e.opened + e.frames,
				bit / 8 < ends[0] ? 0 : before + to_server);
			if (bit / 8 >= ends[0])
				assert_non_null(strstr(e.conv.err.text, "failed authentication"));
			fini(&e, NULL);
		}
	}
}

/* A frame that is dropped, repeated, or changes place with the next one. */
static void moved_frames(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct tape t;
		bool to_server = i < 4;
		size_t ends[8];
		record(&t, &key_a);
		const uint8_t *bytes = to_server ? t.client : t.server;
		size_t len = to_server ? t.client_len : t.server_len;
		unsigned n = frames_of(bytes, to_server, ends), f = i % 4;
		for (unsigned how = 0; how < 3; how++) {
			uint8_t copy[2048];
			size_t at = ends[f], own = ends[f + 1] - at, rest = len - ends[f + 1];
			struct end e;
			memcpy(copy, bytes, at);
			if (how == 1) {
				memcpy(copy + at, bytes + at, own);
				memcpy(copy + at + own, bytes + at, own);
				at += 2 * own;
			} else if (how == 2 && f + 1 < n) {
				size_t next = ends[f + 2] - ends[f + 1];
				memcpy(copy + at, bytes + ends[f + 1], next);
				memcpy(copy + at + next, bytes + at, own);
				at += own + next;
				rest -= next;
			} else if (f + 1 == n) {
				continue; /* the last one: that is silence, which others notice */
			}
			memcpy(copy + at, bytes + len - rest, rest);
			replay(&e, to_server, &key_a, copy, at + rest);
			assert_int_equal(e.failed, 1);
			assert_int_equal(e.identified + e.opened + e.frames,
				f + to_server + (how == 1 ? 1 : 0));
			assert_non_null(strstr(e.conv.err.text, "failed authentication"));
			fini(&e, NULL);
		}
	}
}

static void old_proofs(void **state)
{
	(void)state;
	struct tape t;
	struct end s, c;
	uint8_t mirror[256];
	const uint8_t *out;
	record(&t, &key_a);
	/* The same bytes to ends with new nonces. */
	end_init(&s, DR_CONV_SERVER, &key_a, 0, 23);
	feed(&s, t.client, t.client_len);
	assert_int_equal(s.identified, 0);
	assert_int_equal(s.conv.cause, DR_BOOT_KEY);
	fini(&s, NULL);
	end_init(&c, DR_CONV_CLIENT, &key_a, DR_CONV_NEW, 12);
	feed(&c, t.server, t.server_len);
	assert_int_equal(c.opened, 0);
	assert_int_equal(c.conv.cause, DR_BOOT_KEY);
	fini(&c, NULL);
	/* A client without the key that hands the server's own proof back. */
	end_init(&s, DR_CONV_SERVER, &key_a, 0, 22);
	feed(&s, t.client, hello_bytes(t.client));
	size_t n = dr_conv_output(&s.conv, &out), hello = s.conv.own_hello_len;
	memcpy(mirror, out + hello, n - hello);
	feed(&s, mirror, n - hello);
	assert_int_equal(s.identified, 0);
	assert_int_equal(s.conv.cause, DR_BOOT_KEY);
	fini(&s, NULL);
}

static bool contains(const struct end *e, const void *bytes, size_t n)
{
	char hex[2 * DR_CONV_SECRET_BYTES + 1];
	sodium_bin2hex(hex, sizeof(hex), bytes, n);
	for (size_t i = 0; i + 2 * n <= e->sent_len; i++)
		if (memcmp(e->sent + i, bytes, n) == 0 || memcmp(e->sent + i, hex, 2 * n) == 0)
			return true;
	return false;
}

/* The same at both ends, other ones in each handshake, and not among the bytes sent. */
static void ids_of_a_session(void **state)
{
	(void)state;
	struct dr_conv_ids last = { .session = { 0 } };
	for (unsigned i = 0; i < 3; i++) {
		struct end c, s;
		struct dr_conv_ids a, b;
		end_init(&c, DR_CONV_CLIENT, i == 1 ? &key_a : NULL, DR_CONV_NEW, 11);
		end_init(&s, DR_CONV_SERVER, i == 1 ? &key_a : NULL, 0, i == 2 ? 23 : 22);
		talk(&c, &s);
		dr_conv_ids(&c.conv, &a);
		dr_conv_ids(&s.conv, &b);
		assert_memory_equal(&a, &b, sizeof(a));
		assert_memory_not_equal(a.session, last.session, sizeof(a.session));
		assert_memory_not_equal(a.token, last.token, sizeof(a.token));
		assert_memory_not_equal(a.secret, last.secret, sizeof(a.secret));
		assert_memory_not_equal(a.token, a.session, sizeof(a.token));
		assert_memory_not_equal(a.token, a.secret, sizeof(a.token));
		for (struct end *e = &c; e; e = e == &c ? &s : NULL) {
			assert_false(contains(e, a.token, sizeof(a.token)));
			assert_false(contains(e, a.secret, sizeof(a.secret)));
			assert_false(contains(e, "gpus", 4));
			assert_false(contains(e, "abcdefgh", 8));
			assert_true(contains(e, e->conv.own_hello, 16)); /* the search works */
		}
		last = a;
		fini(&c, &s);
	}
}

struct sessions {
	uint8_t name, secret;
};

static bool secret_of(
	void *arg, const struct dr_conv_hello *peer, uint8_t out[DR_CONV_SECRET_BYTES])
{
	const struct sessions *known = arg;
	memset(out, known->secret, DR_CONV_SECRET_BYTES);
	return peer->session[0] == known->name;
}

/* Only who has the session's secret attaches to it, with and without a key; a new session needs none. */
static void bound_connections(void **state)
{
	(void)state;
	static const struct {
		unsigned purpose;
		uint8_t name, secret;
		bool bound;
		enum dr_boot_cause cause;
	} row[] = {
		{ DR_CONV_GPU, 5, 6, true, DR_BOOT_OK },
		{ DR_CONV_RESUME, 5, 6, true, DR_BOOT_OK },
		{ DR_CONV_GPU, 5, 7, true, DR_BOOT_KEY },
		{ DR_CONV_RESUME, 5, 7, true, DR_BOOT_KEY },
		{ DR_CONV_GPU, 5, 0, false, DR_BOOT_KEY },
		{ DR_CONV_RESUME, 5, 0, false, DR_BOOT_KEY },
		{ DR_CONV_RESUME, 4, 6, true, DR_BOOT_GONE },
		{ DR_CONV_NEW, 5, 0, false, DR_BOOT_OK },
		{ DR_CONV_NEW, 5, 6, true, DR_BOOT_KEY },
	};
	struct sessions known = { 5, 6 };
	for (size_t i = 0; i < 2 * DR_ARRAY_LEN(row); i++) {
		const struct dr_boot_key *key = i % 2 ? &key_a : NULL;
		struct end c, s;
		end_init(&c, DR_CONV_CLIENT, key, row[i / 2].purpose, 11);
		end_init(&s, DR_CONV_SERVER, key, 0, 22);
		dr_conv_fini(&c.conv);
		struct dr_conv_opts o = c.conv.o;
		o.ephemeral[0] = 11;
		o.hello.session[0] = row[i / 2].name;
		o.bound = row[i / 2].bound;
		memset(o.secret, row[i / 2].secret, sizeof(o.secret));
		assert_int_equal(dr_conv_init(&c.conv, &o, T0), 0);
		s.conv.o.secret_of = secret_of;
		s.conv.o.of_arg = &known;
		settle(&c, &s, SIZE_MAX);
		bool opens = row[i / 2].cause == DR_BOOT_OK;
		assert_int_equal(c.opened, opens);
		assert_int_equal(s.identified, opens);
		assert_int_equal(c.conv.cause, row[i / 2].cause);
		assert_int_equal(s.conv.cause, row[i / 2].cause);
		if (row[i / 2].cause == DR_BOOT_GONE)
			assert_string_equal(c.conv.err.text, s.conv.err.text);
		fini(&c, &s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flipped_bits),
		cmocka_unit_test(moved_frames),
		cmocka_unit_test(old_proofs),
		cmocka_unit_test(ids_of_a_session),
		cmocka_unit_test(bound_connections),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
