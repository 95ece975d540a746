/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sodium.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/key.h"
#include "base/rng.h"
#include "transport/verbs/hello.h"

static const uint8_t key[DR_TOKEN_LEN] = "0123456789abcde";

static struct dr_verbs_hello sample(void)
{
	struct dr_verbs_hello h = { .type = DR_VERBS_HELLO,
		.sender = true,
		.index = 1,
		.n = DR_VERBS_QPS,
		.channel = 70000,
		.gen = 9,
		.mtu = 4096,
		.lid = 3,
		.gid = { 0xfe, 0x80, [15] = 7 },
		.ud_qpn = 0xabcdef,
		.ud_qkey = 0x11223344,
		.psn = 0xfffffe,
		.msg_max = 1u << 31,
		.ctrl_recvs = 32,
		.qpn = { 1, 2, 3, 4, 0xffffff } };

	return h;
}

static void a_greeting_is_read_as_written(void **state)
{
	struct dr_verbs_hello h = sample(), got;
	uint8_t buf[DR_VERBS_HELLO_MAX];
	const char *why;
	size_t len;

	(void)state;
	memset(&got, 0, sizeof(got));
	len = dr_verbs_hello_encode(&h, key, buf);
	assert_int_equal(dr_verbs_hello_parse(buf, len, key, &got, &why), 0);
	assert_int_equal(got.type, h.type);
	assert_true(got.sender);
	assert_int_equal(got.channel, h.channel);
	assert_int_equal(got.index, h.index);
	assert_int_equal(got.gen, h.gen);
	assert_int_equal(got.mtu, h.mtu);
	assert_int_equal(got.lid, h.lid);
	assert_memory_equal(got.gid, h.gid, 16);
	assert_int_equal(got.ud_qpn, h.ud_qpn);
	assert_int_equal(got.ud_qkey, h.ud_qkey);
	assert_int_equal(got.psn, h.psn);
	assert_int_equal(got.msg_max, h.msg_max);
	assert_int_equal(got.ctrl_recvs, h.ctrl_recvs);
	assert_int_equal(got.n, h.n);
	assert_memory_equal(got.qpn, h.qpn, sizeof(h.qpn));
}

static void a_changed_or_cut_greeting_is_refused(void **state)
{
	struct dr_verbs_hello h = sample(), got;
	uint8_t buf[DR_VERBS_HELLO_MAX + 1] = { 0 }, other[DR_TOKEN_LEN] = "x";
	const char *why;
	size_t len, i;

	(void)state;
	len = dr_verbs_hello_encode(&h, key, buf);
	assert_int_equal(dr_verbs_hello_parse(buf, len, other, &got, &why), -EACCES);
	assert_non_null(strstr(why, "token"));
	for (i = 0; i < len; i++) {
		buf[i] ^= 0x40;
		assert_true(dr_verbs_hello_parse(buf, len, key, &got, &why) < 0);
		assert_non_null(why);
		buf[i] ^= 0x40;
	}
	for (i = 0; i < len; i++)
		assert_true(dr_verbs_hello_parse(buf, i, key, &got, &why) < 0);
	assert_true(dr_verbs_hello_parse(buf, len + 1, key, &got, &why) < 0);
	assert_int_equal(dr_verbs_hello_parse(buf, len, key, &got, &why), 0);
}

/* A peer of ours with a right MAC and fields that no queue pair can have. */
static void invalid_fields_are_refused(void **state)
{
	struct dr_verbs_hello h, got;
	uint8_t buf[DR_VERBS_HELLO_MAX];
	const char *why;
	unsigned k;

	(void)state;
	for (k = 0; k < 8; k++) {
		h = sample();
		h.mtu = k == 0 ? 1500 : k == 1 ? 128 : h.mtu;
		h.ud_qpn = k == 2 ? 0 : k == 3 ? 1u << 24 : h.ud_qpn;
		h.psn = k == 4 ? 1u << 24 : h.psn;
		h.msg_max = k == 5 ? 100 : h.msg_max;
		h.ctrl_recvs = k == 6 ? 1 : h.ctrl_recvs;
		h.qpn[2] = k == 7 ? 0 : h.qpn[2];
		assert_int_equal(dr_verbs_hello_parse(
					 buf, dr_verbs_hello_encode(&h, key, buf), key, &got, &why),
			-EPROTO);
	}
}

static void random_bytes_are_refused(void **state)
{
	uint8_t buf[DR_VERBS_HELLO_MAX];
	struct dr_verbs_hello h;
	struct dr_verbs_addr a;
	struct dr_rng rng;
	const char *why;
	unsigned n, i;

	(void)state;
	dr_rng_seed(&rng, 1);
	for (n = 0; n < 20000; n++) {
		size_t len = dr_rng_below(&rng, sizeof(buf) + 1);

		for (i = 0; i < len; i++)
			buf[i] = (uint8_t)dr_rng_u64(&rng);
		assert_true(dr_verbs_hello_parse(buf, len, key, &h, &why) < 0);
		assert_true(dr_verbs_addr_parse(buf, len, &a, &why) < 0);
	}
}

static void handles_are_read_as_written(void **state)
{
	struct dr_verbs_addr a = { .roce = true,
		.port = 1,
		.mtu = 1024,
		.lid = 5,
		.gid = { 1, 2, 3 },
		.ud_qpn = 17,
		.ud_qkey = 18 },
			     b;
	uint8_t buf[DR_HANDLE_MAX];
	const char *why;
	int len, i;

	(void)state;
	assert_int_equal(dr_verbs_addr_encode(&a, buf, 5), -EMSGSIZE);
	len = dr_verbs_addr_encode(&a, buf, sizeof(buf));
	assert_true(len > 0);
	assert_int_equal(dr_verbs_addr_parse(buf, (size_t)len, &b, &why), 0);
	assert_true(b.roce && b.port == 1 && b.mtu == 1024 && b.lid == 5 && b.ud_qpn == 17 &&
		    b.ud_qkey == 18);
	assert_memory_equal(a.gid, b.gid, 16);
	for (i = 0; i < len; i++)
		assert_int_equal(dr_verbs_addr_parse(buf, (size_t)i, &b, &why), -EPROTO);
}

static struct dr_verbs_news some_news(void)
{
	return (struct dr_verbs_news){ .answer = true,
		.life = UINT64_C(0x100000002),
		.knows = 0x2122232425262728,
		.addr = { .roce = true,
			.port = 1,
			.mtu = 1024,
			.lid = 9,
			.gid = { 1, [15] = 2 },
			.ud_qpn = 77,
			.ud_qkey = 88 } };
}

static void news_are_read_as_written(void **state)
{
	struct dr_verbs_news n = some_news(), got = { 0 };
	uint8_t buf[DR_VERBS_NEWS_MAX];
	const char *why = "?";
	size_t len = dr_verbs_news_encode(&n, key, buf);

	(void)state;
	assert_int_equal(dr_verbs_news_parse(buf, len, key, &got, &why), 0);
	assert_true(got.answer && got.addr.roce);
	assert_int_equal(got.life, n.life);
	assert_int_equal(got.knows, n.knows);
	assert_int_equal(got.addr.mtu, 1024);
	assert_int_equal(got.addr.lid, 9);
	assert_memory_equal(got.addr.gid, n.addr.gid, 16);
	assert_int_equal(got.addr.ud_qpn, 77);
	assert_int_equal(got.addr.ud_qkey, 88);
}

/* Every byte counts, and so does each one that is missing or too many. */
static void news_of_others_are_refused(void **state)
{
	static const uint8_t other[DR_TOKEN_LEN] = "another session";
	struct dr_verbs_news n = some_news(), got;
	uint8_t buf[DR_VERBS_NEWS_MAX + 1] = { 0 };
	size_t len = dr_verbs_news_encode(&n, key, buf), i;
	const char *why = NULL;

	(void)state;
	assert_int_equal(dr_verbs_news_parse(buf, len, other, &got, &why), -EACCES);
	assert_non_null(why);
	for (i = 0; i < len; i++) {
		buf[i] ^= 0x40;
		assert_true(dr_verbs_news_parse(buf, len, key, &got, &why) < 0);
		buf[i] ^= 0x40;
		assert_true(dr_verbs_news_parse(buf, i, key, &got, &why) < 0);
	}
	assert_true(dr_verbs_news_parse(buf, len + 1, key, &got, &why) < 0);
}

/* The MAC of one type, or one made with the token itself, is not that of another. */
static void each_type_has_a_key_of_its_own(void **state)
{
	uint8_t buf[3][DR_VERBS_HELLO_MAX], got[16], derived[DR_KEY_LEN];
	struct dr_verbs_hello h = sample(), out;
	struct dr_verbs_news n = { .life = 1 }, news;
	const char *why;
	size_t len[3];

	(void)state;
	h.type = DR_VERBS_HELLO;
	len[0] = dr_verbs_hello_encode(&h, key, buf[0]);
	h.type = DR_VERBS_WELCOME;
	len[1] = dr_verbs_hello_encode(&h, key, buf[1]);
	n.addr = (struct dr_verbs_addr){ .roce = true, .port = 1, .mtu = 1024, .ud_qpn = 5 };
	len[2] = dr_verbs_news_encode(&n, key, buf[2]);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned use = 0; use <= DR_KEY_USES; use++) {
			uint8_t *mac = buf[i] + len[i] - sizeof(got);
			bool own = use == DR_KEY_VERBS_HELLO + i;

			if (use < DR_KEY_USES)
				dr_key_derive(key, (enum dr_key_use)use, derived);
			else
				memcpy(derived, key, sizeof(derived));
			crypto_generichash(mac, sizeof(got), buf[i], len[i] - sizeof(got), derived,
				sizeof(derived));
			int rc = i < 2 ? dr_verbs_hello_parse(buf[i], len[i], key, &out, &why)
				       : dr_verbs_news_parse(buf[i], len[i], key, &news, &why);
			assert_int_equal(rc, own ? 0 : -EACCES);
			if (own)
				memcpy(got, mac, sizeof(got));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_type_has_a_key_of_its_own),
		cmocka_unit_test(a_greeting_is_read_as_written),
		cmocka_unit_test(a_changed_or_cut_greeting_is_refused),
		cmocka_unit_test(invalid_fields_are_refused),
		cmocka_unit_test(random_bytes_are_refused),
		cmocka_unit_test(handles_are_read_as_written),
		cmocka_unit_test(news_are_read_as_written),
		cmocka_unit_test(news_of_others_are_refused),
	};

	return cmocka_run_group_tests_name("verbs_hello", tests, NULL, NULL);
}
