/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/io_testkit.h"
#include "bootstrap/server_priv.h"

#include <sodium.h>

/* The client vanishes, so that only time ends its session. lost: the connection is lost before the run is over. */
static void client_vanishes(bool lost)
{
	struct dr_boot_opts o = { .timing = quick };
	o.timing.resume_ns = 600 * DR_NS_PER_S;
	o.timing.last_ns = 2 * quick.silent_ns;
	start_server_opts(o, 1, 0);
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.cli[0].readies == 1 && w.srv.readies == 1);
	if (!lost)
		dr_boot_server_last(w.srv.s);
	dr_boot_client_destroy(w.cli[0].c);
	w.cli[0].c = NULL;
	until(w.srv.losts == 1);
	if (lost)
		dr_boot_server_last(w.srv.s);
}

static void last_message_unconfirmed(void **state)
{
	(void)state;
	for (int lost = 0; lost < 2; lost++) {
		w.srv.readies = w.srv.losts = w.srv.closes = 0;
		memset(&w.cli[0], 0, sizeof(w.cli[0]));
		client_vanishes(lost);
		until(w.srv.closes == 1);
		assert_true(
			w.srv.closed_cause == DR_BOOT_EOF || w.srv.closed_cause == DR_BOOT_RESET);
		dr_boot_server_destroy(w.srv.s);
		w.srv.s = NULL;
	}
}

/* What is said last does not shorten a session that keeps its connection, nor a loss that ends in time, nor the next session. */
static void last_message_confirmed(void **state)
{
	(void)state;
	int64_t end = dr_now_ns() + 3 * quick.silent_ns;
	struct dr_boot_opts o = { .timing = quick };
	o.timing.last_ns = 2 * quick.silent_ns;
	start_server_opts(o, 1, 0);
	relay_start(dr_boot_server_port(w.srv.s, 0));
	start_client(0, "127.0.0.1", w.relay_port, 1, NULL);
	until(w.cli[0].readies == 1 && w.srv.readies == 1);
	dr_boot_server_last(w.srv.s);
	until(dr_now_ns() >= end);
	relay_reset_all();
	until(w.cli[0].resumes == 1 && w.srv.resumes == 1);
	assert_int_equal(w.srv.closes, 0);
	dr_control_goodbye(client_control(0));
	until(w.cli[0].closes == 1 && w.srv.closes == 1);
	assert_int_equal(w.srv.closed_cause, DR_BOOT_GOODBYE);
	start_client(1, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.cli[1].readies == 1 && w.srv.readies == 2);
	dr_boot_client_destroy(w.cli[1].c);
	w.cli[1].c = NULL;
	until(w.srv.losts == 2);
	for (end = dr_now_ns() + 3 * quick.silent_ns; dr_now_ns() < end;)
		turn();
	assert_int_equal(w.srv.closes, 1);
}

/* A stranger whose offer is refused reads the reason when he likes. What he said is not kept. */
static void refused_offer_is_freed(void **state)
{
	enum { BYTES = 60 << 10 };
	static char offer[BYTES + 1];
	struct dr_conv c;
	struct dr_conv_event ev;
	const uint8_t *out;
	uint8_t byte;
	(void)state;
	memset(offer, ' ', BYTES);
	memcpy(offer, "{\"a\":[0", 7);
	for (size_t i = 7; i + 18 < BYTES; i += 18)
		memcpy(offer + i, ",{}", 3);
	memcpy(offer + BYTES - 2, "]}", 2);
	start_server(1, 0, NULL);
	int fd = raw_connect(dr_boot_server_port(w.srv.s, 0));
	raw_hello(fd, &c, DR_CONV_NEW, 0, NULL, 0, &ev);
	assert_int_equal(dr_conv_send(&c, DR_CONV_FRAME_OFFER, 0, offer, BYTES), 0);
	size_t len = dr_conv_output(&c, &out);
	raw_send(fd, out, len);
	const struct dr_link *l = w.srv.s->e.links;
	until(l->state == DR_LINK_CLOSING);
	assert_null(l->conv.json);
	assert_int_equal(l->conv.in_cap, 0);
	while (ev.kind != DR_CONV_REFUSED) {
		assert_int_equal(recv(fd, &byte, 1, 0), 1);
		dr_conv_feed(&c, &byte, 1, dr_now_ns(), &ev);
	}
	assert_int_equal(ev.cause, DR_BOOT_PROTOCOL);
	dr_conv_fini(&c);
	close(fd);
}

/* A server that declines when the client is READY and it is not, yet. */
static void declined_when_the_client_is_ready(void **state)
{
	(void)state;
	start_server(1, 0, NULL);
	w.declines_ready = true;
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.cli[0].fails == 1 && w.srv.closes == 1);
	assert_int_equal(w.cli[0].readies, 1);
	assert_int_equal(w.srv.readies, 0);
	assert_int_equal(w.cli[0].failed_cause, DR_BOOT_DECLINED);
	assert_int_equal(w.cli[0].code, 5);
	assert_int_equal(w.cli[0].closes, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(last_message_unconfirmed),
		TEST(last_message_confirmed),
		TEST(refused_offer_is_freed),
		TEST(declined_when_the_client_is_ready),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
