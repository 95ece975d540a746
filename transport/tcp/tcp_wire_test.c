/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "transport/tcp/tcp_wire.h"

static void greetings_come_back_as_sent(void **state)
{
	struct tcp_hello h = { .channel = 5, .gen = 6, .index = 1, .sender = true }, got;
	uint8_t buf[TCP_HELLO_LEN], ok[TCP_HELLO_OK_LEN];
	struct tcp_hello_ok answer = { .gen = 7 }, got_ok;
	const char *why;
	size_t i;

	(void)state;
	memset(h.nonce, 0xab, sizeof(h.nonce));
	memset(h.mac, 0xcd, sizeof(h.mac));
	dr_tcp_hello_encode(&h, buf);
	memset(&got, 0, sizeof(got));
	assert_int_equal(dr_tcp_hello_parse(buf, sizeof(buf), &got, &why), 0);
	assert_memory_equal(got.nonce, h.nonce, sizeof(h.nonce));
	assert_memory_equal(got.mac, h.mac, sizeof(h.mac));
	assert_int_equal(got.channel, 5);
	assert_int_equal(got.gen, 6);
	assert_int_equal(got.index, 1);
	assert_true(got.sender);
	for (i = 0; i < sizeof(buf); i++)
		assert_int_equal(dr_tcp_hello_parse(buf, i, &got, &why), -EPROTO);
	for (i = 0; i < 8; i++) { /* magic, version, index, flags */
		buf[i] ^= 0x80;
		assert_int_equal(dr_tcp_hello_parse(buf, sizeof(buf), &got, &why), -EPROTO);
		buf[i] ^= 0x80;
	}
	memset(answer.mac, 0xef, sizeof(answer.mac));
	dr_tcp_hello_ok_encode(&answer, ok);
	assert_int_equal(dr_tcp_hello_ok_parse(ok, sizeof(ok), &got_ok, &why), 0);
	assert_int_equal(got_ok.gen, 7);
	assert_memory_equal(got_ok.mac, answer.mac, sizeof(answer.mac));
	assert_int_equal(dr_tcp_hello_ok_parse(buf, sizeof(ok), &got_ok, &why), -EPROTO);
	assert_int_equal(dr_tcp_hello_ok_parse(ok, sizeof(ok) - 1, &got_ok, &why), -EPROTO);
	for (i = 0; i < 8; i++) { /* magic, version, zero */
		ok[i] ^= 0x80;
		assert_int_equal(dr_tcp_hello_ok_parse(ok, sizeof(ok), &got_ok, &why), -EPROTO);
		ok[i] ^= 0x80;
	}
}

static void challenges_come_back_as_sent(void **state)
{
	uint8_t nonce[TCP_NONCE_LEN], got[TCP_NONCE_LEN], buf[TCP_CHALLENGE_LEN];
	const char *why;

	(void)state;
	for (unsigned i = 0; i < sizeof(nonce); i++)
		nonce[i] = (uint8_t)(i + 1);
	dr_tcp_challenge_encode(nonce, buf);
	assert_int_equal(dr_tcp_challenge_parse(buf, sizeof(buf), got, &why), 0);
	assert_memory_equal(got, nonce, sizeof(nonce));
	for (size_t i = 0; i < sizeof(buf); i++)
		assert_int_equal(dr_tcp_challenge_parse(buf, i, got, &why), -EPROTO);
	for (size_t i = 0; i < 8; i++) { /* magic, version, zero */
		buf[i] ^= 0x80;
		assert_int_equal(dr_tcp_challenge_parse(buf, sizeof(buf), got, &why), -EPROTO);
		buf[i] ^= 0x80;
	}
}

static void rail_handles_are_checked(void **state)
{
	static const struct {
		const char *what;
		struct tcp_rail_handle h;
		int err;
	} table[] = {
		{ "IPv4", { AF_INET, { 10, 0, 0, 1 }, 20000, 20001 }, 0 },
		{ "IPv6", { AF_INET6, { 0xfe, 0x80, [15] = 1 }, 1, 65535 }, 0 },
		{ "no address", { AF_INET, { 0 }, 1, 1 }, -EPROTO },
		{ "no IPv6 address", { AF_INET6, { 0 }, 1, 1 }, -EPROTO },
		{ "IPv4 multicast", { AF_INET, { 224, 0, 0, 1 }, 1, 1 }, -EPROTO },
		{ "IPv4 broadcast", { AF_INET, { 255, 255, 255, 255 }, 1, 1 }, -EPROTO },
		{ "IPv6 multicast", { AF_INET6, { 0xff, 2, [15] = 1 }, 1, 1 }, -EPROTO },
		{ "no TCP port", { AF_INET, { 10, 0, 0, 1 }, 0, 1 }, -EPROTO },
		{ "no UDP port", { AF_INET, { 10, 0, 0, 1 }, 1, 0 }, -EPROTO },
	};
	uint8_t buf[DR_HANDLE_MAX];
	struct tcp_rail_handle got;
	const char *why;
	size_t i;
	int n, cut;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(table); i++) {
		n = dr_tcp_rail_handle_encode(&table[i].h, buf, sizeof(buf));
		assert_true(n > 0);
		memset(&got, 0, sizeof(got));
		if (dr_tcp_rail_handle_parse(buf, (size_t)n, &got, &why) != table[i].err)
			fail_msg("%s", table[i].what);
		if (!table[i].err)
			assert_memory_equal(&got, &table[i].h, sizeof(got));
		for (cut = 0; cut < n; cut++)
			assert_int_equal(
				dr_tcp_rail_handle_parse(buf, (size_t)cut, &got, &why), -EPROTO);
		assert_int_equal(dr_tcp_rail_handle_parse(buf, (size_t)n + 1, &got, &why), -EPROTO);
		buf[6] = 5;
		assert_int_equal(dr_tcp_rail_handle_parse(buf, (size_t)n, &got, &why), -EPROTO);
	}
	assert_int_equal(dr_tcp_rail_handle_encode(&table[0].h, buf, 8), -EMSGSIZE);
}

/* Parsers return on every input. */
static void random_bytes_do_no_harm(void **state)
{
	uint8_t buf[64];
	struct tcp_rail_handle rh;
	struct tcp_hello hello;
	const char *why;
	struct dr_rng rng;
	struct tcp_hello_ok ok;
	size_t i, len;
	int round;

	(void)state;
	dr_rng_seed(&rng, 1);
	for (round = 0; round < 200000; round++) {
		len = dr_rng_below(&rng, sizeof(buf));
		for (i = 0; i < len; i++)
			buf[i] = (uint8_t)(dr_rng_u64(&rng) & (round & 1 ? 0xff : 0x03));
		dr_tcp_hello_parse(buf, len, &hello, &why);
		dr_tcp_hello_ok_parse(buf, len, &ok, &why);
		dr_tcp_rail_handle_parse(buf, len, &rh, &why);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greetings_come_back_as_sent),
		cmocka_unit_test(challenges_come_back_as_sent),
		cmocka_unit_test(rail_handles_are_checked),
		cmocka_unit_test(random_bytes_do_no_harm),
	};

	return cmocka_run_group_tests_name("tcp_wire", tests, NULL, NULL);
}
