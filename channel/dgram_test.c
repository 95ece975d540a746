/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/frame.h"

#include <errno.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t key[DR_TOKEN_LEN] = { 7, 8, 9 }, other_key[DR_TOKEN_LEN] = { 7, 8 };
static struct dr_dgram_end dialling, accepting;
static const struct dr_frame gone = { .type = DR_FRAME_GONE, .path = 1, .epoch = 4, .gen = 5 };

static void what_the_peer_sends_arrives(void **state)
{
	uint8_t buf[DR_DGRAM_CTRL_LEN];
	struct dr_frame fr;
	uint32_t channel;

	(void)state;
	dr_dgram_encode(&accepting, 0x01020304, &gone, buf);
	assert_int_equal(buf[8], 1); /* big endian */
	assert_int_equal(dr_dgram_decode(&dialling, buf, sizeof(buf), &channel, &fr), 0);
	assert_int_equal(channel, 0x01020304);
	assert_int_equal(fr.type, DR_FRAME_GONE);
	assert_int_equal(fr.path, 1);
	assert_int_equal(fr.epoch, 4);
	assert_int_equal(fr.gen, 5);
}

static int setup(void **state)
{
	(void)state;
	dr_dgram_end_init(&dialling, 3, true, key);
	dr_dgram_end_init(&accepting, 3, false, key);
	return 0;
}

/* Reflected, of another pair of workers, of another session, too short, or changed anywhere. */
static void everything_else_is_refused(void **state)
{
	struct dr_dgram_end not_his[3] = { accepting };
	uint8_t buf[DR_DGRAM_CTRL_LEN + 1] = { 0 };
	struct dr_frame fr;
	uint32_t channel;

	(void)state;
	dr_dgram_end_init(&not_his[1], 4, true, key);
	dr_dgram_end_init(&not_his[2], 3, true, other_key);
	dr_dgram_encode(&accepting, 9, &gone, buf);
	for (size_t i = 0; i < DR_ARRAY_LEN(not_his); i++)
		assert_int_equal(
			dr_dgram_decode(&not_his[i], buf, DR_DGRAM_CTRL_LEN, &channel, &fr),
			-EPROTO);
	for (size_t n = 0; n <= sizeof(buf); n++)
		if (n != DR_DGRAM_CTRL_LEN)
			assert_int_equal(
				dr_dgram_decode(&dialling, buf, n, &channel, &fr), -EPROTO);
	for (size_t at = 0; at < DR_DGRAM_CTRL_LEN; at++) {
		buf[at] ^= 1;
		assert_int_equal(
			dr_dgram_decode(&dialling, buf, DR_DGRAM_CTRL_LEN, &channel, &fr), -EPROTO);
		buf[at] ^= 1;
	}
}

/* Authentic, but of another protocol, version, role or pair of workers: magic, version, role and gpu, each alone. */
static void what_is_foreign_is_refused_although_authentic(void **state)
{
	enum { HEAD = 8, BODY = 36 };
	uint8_t buf[DR_DGRAM_CTRL_LEN];
	struct dr_frame fr;
	uint32_t channel;

	(void)state;
	for (size_t at = 0; at <= HEAD; at++) {
		dr_dgram_encode(&accepting, 9, &gone, buf);
		buf[at] ^= 1;
		crypto_shorthash_siphashx24(buf + BODY, buf, BODY, accepting.tx_key);
		assert_int_equal(dr_dgram_decode(&dialling, buf, sizeof(buf), &channel, &fr),
			at < HEAD ? -EPROTO : 0); /* behind them is the channel's number */
	}
}

/* The keys are of this use and this direction: not the token, nor those of heartbeats, nor those of the peer. */
static void keys_are_of_this_use_alone(void **state)
{
	uint8_t beat[DR_KEY_LEN];

	(void)state;
	assert_memory_equal(dialling.tx_key, accepting.rx_key, DR_KEY_LEN);
	assert_memory_equal(dialling.rx_key, accepting.tx_key, DR_KEY_LEN);
	assert_memory_not_equal(dialling.tx_key, dialling.rx_key, DR_KEY_LEN);
	for (unsigned use = DR_KEY_BEAT_CONNECTOR; use <= DR_KEY_BEAT_ACCEPTOR; use++) {
		dr_key_derive(key, (enum dr_key_use)use, beat);
		assert_memory_not_equal(dialling.tx_key, beat, DR_KEY_LEN);
		assert_memory_not_equal(dialling.rx_key, beat, DR_KEY_LEN);
	}
	assert_memory_not_equal(dialling.tx_key, key, DR_KEY_LEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_peer_sends_arrives),
		cmocka_unit_test(everything_else_is_refused),
		cmocka_unit_test(what_is_foreign_is_refused_although_authentic),
		cmocka_unit_test(keys_are_of_this_use_alone),
	};

	return cmocka_run_group_tests_name("dgram", tests, setup, NULL);
}
