/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* What the peer's bytes may be: each single byte changed, each length. */

static const uint8_t key[DR_KEY_LEN] = "0123456789abcde", one[NN_NONCE_LEN] = "one",
		     two[NN_NONCE_LEN] = "two";
static const struct nn_hello_key there = { key, one, two };

static void hello_is_bound(void **state)
{
	struct nn_hello h = { .id = { .channel = 7, .gen = 3, .index = 1, .sender = true },
		.role = NN_DATA },
			got;
	struct nn_hello_key back = { key, two, one }, other = { one, one, two },
			    elsewhere = { key, one, one };
	uint8_t buf[NN_HELLO_LEN + 1] = { 0 };
	uint8_t wrong_key[DR_KEY_LEN] = { 0 };
	const char *why;

	(void)state;
	other.key = wrong_key;
	dr_nn_hello_encode(&h, &there, buf);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why), 0);
	assert_int_equal(got.id.channel, 7);
	assert_int_equal(got.id.gen, 3);
	assert_int_equal(got.id.index, 1);
	assert_true(got.id.sender && !got.id.connector);
	assert_int_equal(got.role, NN_DATA);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &back, &got, &why), -EPERM);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &other, &got, &why), -EPERM);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &elsewhere, &got, &why), -EPERM);
	for (size_t n = 0; n <= sizeof(buf); n++)
		if (n != NN_HELLO_LEN)
			assert_int_equal(dr_nn_hello_parse(buf, n, &there, &got, &why), -EPROTO);
	for (size_t i = 0; i < NN_HELLO_LEN; i++) {
		buf[i] ^= 1;
		assert_true(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why) < 0);
		buf[i] ^= 1;
	}
	/* A MAC that is right does not make it sensible. */
	h.id.index = DR_PATHS;
	dr_nn_hello_encode(&h, &there, buf);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why), -EPROTO);
	h.id.index = 0;
	h.id.sender = false;
	dr_nn_hello_encode(&h, &there, buf);
	assert_int_equal(dr_nn_hello_parse(buf, NN_HELLO_LEN, &there, &got, &why), -EPROTO);
}

static void same(const struct nn_rail_handle *a, const struct nn_rail_handle *b)
{
	assert_int_equal(a->plugin, b->plugin);
	assert_memory_equal(a->nonce, b->nonce, sizeof(a->nonce));
	assert_memory_equal(&a->at, &b->at, sizeof(a->at));
	assert_memory_equal(a->setting, b->setting, sizeof(a->setting));
}

static void rail_handle(void **state)
{
	struct nn_rail_handle h = { .plugin = 0x1234, .nonce = "nonce", .setting = { 1, 2, 3, 4 } },
			      got;
	uint8_t buf[DR_HANDLE_MAX + 1] = { 0 };
	const char *why = NULL;

	(void)state;
	struct sockaddr_in *at = (struct sockaddr_in *)&h.at;
	at->sin_family = AF_INET;
	at->sin_port = htons(7);
	at->sin_addr.s_addr = htonl(0x0a000001);
	assert_int_equal(dr_nn_rail_handle_encode(&h, buf, sizeof(buf)), NN_RAIL_HANDLE_LEN);
	assert_in_range(NN_RAIL_HANDLE_LEN, 1, DR_HANDLE_MAX);
	assert_int_equal(dr_nn_rail_handle_encode(&h, buf, NN_RAIL_HANDLE_LEN - 1), -EMSGSIZE);
	assert_int_equal(dr_nn_rail_handle_parse(buf, NN_RAIL_HANDLE_LEN, &got, &why), 0);
	same(&got, &h);
	for (size_t n = 0; n <= sizeof(buf); n++)
		if (n != NN_RAIL_HANDLE_LEN)
			assert_int_equal(dr_nn_rail_handle_parse(buf, n, &got, &why), -EPROTO);
	for (size_t i = 0; i < 6; i++) {
		buf[i] ^= 0x80;
		why = NULL;
		assert_int_equal(
			dr_nn_rail_handle_parse(buf, NN_RAIL_HANDLE_LEN, &got, &why), -EPROTO);
		assert_non_null(why);
		buf[i] ^= 0x80;
	}
}

static void rail_address(void **state)
{
	struct nn_rail_handle h = { .plugin = 1 }, got;
	struct sockaddr_in6 *at = (struct sockaddr_in6 *)&h.at;
	uint8_t buf[NN_RAIL_HANDLE_LEN];
	const char *why = NULL;

	(void)state;
	at->sin6_family = AF_INET6;
	at->sin6_port = htons(9);
	at->sin6_addr.s6_addr[0] = 0xfd;
	at->sin6_addr.s6_addr[15] = 3;
	assert_int_equal(dr_nn_rail_handle_encode(&h, buf, sizeof(buf)), sizeof(buf));
	assert_int_equal(dr_nn_rail_handle_parse(buf, sizeof(buf), &got, &why), 0);
	same(&got, &h);
	buf[17] = 4; /* IPv4 with the bytes of an IPv6 address */
	assert_int_equal(dr_nn_rail_handle_parse(buf, sizeof(buf), &got, &why), -EPROTO);
	buf[17] = 6;
	buf[18] = buf[19] = 0; /* no port */
	assert_int_equal(dr_nn_rail_handle_parse(buf, sizeof(buf), &got, &why), -EPROTO);
}

/* A reply belongs to one HELLO. */
static void reply_is_bound(void **state)
{
	struct nn_hello h = { .id = { .channel = 7, .gen = 3, .sender = true }, .role = NN_DATA };
	struct nn_hello_key back = { key, two, one };
	uint8_t hello[NN_HELLO_LEN], reply[NN_REPLY_LEN], handle[NCCL_NET_HANDLE_BYTES],
		got[NCCL_NET_HANDLE_BYTES];

	(void)state;
	memset(handle, 0x5a, sizeof(handle));
	dr_nn_hello_encode(&h, &there, hello);
	dr_nn_reply_encode(hello, handle, &there, reply);
	assert_int_equal(dr_nn_reply_parse(reply, hello, &there, got), 0);
	assert_memory_equal(got, handle, sizeof(got));
	assert_int_equal(dr_nn_reply_parse(reply, hello, &back, got), -EPERM);
	for (size_t i = 0; i < sizeof(reply); i++) {
		reply[i] ^= 1;
		assert_int_equal(dr_nn_reply_parse(reply, hello, &there, got), -EPERM);
		reply[i] ^= 1;
	}
	for (size_t i = 0; i < sizeof(hello); i++) {
		hello[i] ^= 1;
		assert_int_equal(dr_nn_reply_parse(reply, hello, &there, got), -EPERM);
		hello[i] ^= 1;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_is_bound),
		cmocka_unit_test(rail_handle),
		cmocka_unit_test(rail_address),
		cmocka_unit_test(reply_is_bound),
	};
	return cmocka_run_group_tests_name("ncclnet wire", tests, NULL, NULL);
}
