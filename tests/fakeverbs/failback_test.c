/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "channel/manager.h"
#include "tests/fakeverbs/fakeverbs.h"
#include "transport/verbs/verbs.h"

/*
 * Two ChannelManagers over two rails of fake NICs while data goes over: the primary's device is taken away at
 * either end. The channel goes on over the other rail, and back when the device is there again.
 */
enum { SENDER, RECEIVER, WINDOW = 4, LEN = 4096 };
static const char *const nic[2][2] = { { "a0", "a1" }, { "b0", "b1" } }; /* by end and rail */

struct run {
	const struct dr_fake_ctl *fake;
	struct dr_manager *m[2];
	struct dr_channel *ch[2];
	struct dr_mem mem[2];
	uint64_t buf[2][WINDOW][LEN / 8];
	uint64_t sent, acked, posted, taken; /* messages; taken: looked at, in order */
	int64_t began_ns;
};

static void open_end(struct run *r, unsigned end)
{
	struct dr_verbs_params vp;
	struct dr_manager_params mp = { .transport = dr_transport_find("verbs"),
		.n_rails = 2,
		.n_channels = 1,
		.connector = end ==
			     RECEIVER, /* the end whose device goes must tell, in one of two runs */
		.window = WINDOW,
		.heartbeat_ns = 20 * DR_NS_PER_MS,
		.detect = DR_DETECT_FAST,
		.failback = true,
		.hold_down_ns = 50 * DR_NS_PER_MS,
		.kind_params = &vp };
	struct dr_memory m = { .base = r->buf[end], .len = sizeof(r->buf[end]) };
	struct dr_err e = { 0 };

	dr_verbs_params_init(&vp);
	memset(mp.token, 3, sizeof(mp.token));
	mp.channel[0] = (struct dr_manager_channel){ 0, 1, end == SENDER };
	for (unsigned rail = 0; rail < 2; rail++) {
		struct sockaddr_in *a = (struct sockaddr_in *)&mp.rail[rail].local;

		mp.rail[rail].ifname = "lo";
		a->sin_family = AF_INET;
		a->sin_addr.s_addr = htonl(INADDR_LOOPBACK + 2 * rail + end);
	}
	if (dr_manager_create(&mp, &r->m[end], &e))
		fail_msg("create: %s", e.text);
	r->ch[end] = dr_manager_channel_at(r->m[end], 0);
	if (dr_channel_mem_reg(r->ch[end], &m, &r->mem[end], &e))
		fail_msg("register: %s", e.text);
}

static void introduce(struct run *r, unsigned end)
{
	uint8_t h[3][DR_HANDLE_MAX];
	struct dr_err e = { 0 };
	uint16_t len[3];

	for (unsigned i = 0; i < 3; i++)
		len[i] = (uint16_t)dr_manager_handle(r->m[!end], i, h[i], sizeof(h[i]));
	if (dr_manager_start(r->m[end], h, len, 3, dr_now_ns(), &e))
		fail_msg("start: %s", e.text);
}

static void receive(struct run *r)
{
	struct dr_span s = { .mem = &r->mem[RECEIVER], .len = LEN };
	uint64_t seq;

	for (; r->posted < r->taken + WINDOW; r->posted++) {
		s.off = r->posted % WINDOW * LEN;
		if (dr_channel_recv(r->ch[RECEIVER], &s, 1, &seq, dr_now_ns()))
			break;
	}
	while (r->taken < r->posted && dr_channel_test(r->ch[RECEIVER], r->taken) == 1) {
		const uint64_t *b = r->buf[RECEIVER][r->taken % WINDOW];

		assert_int_equal(b[0], r->taken);
		assert_int_equal(b[LEN / 8 - 1], ~r->taken);
		r->taken++;
	}
}

static void transmit(struct run *r)
{
	struct dr_span s = { .mem = &r->mem[SENDER], .len = LEN };
	uint64_t seq;

	while (r->acked < r->sent && dr_channel_test(r->ch[SENDER], r->acked) == 1)
		r->acked++;
	for (; r->sent < r->acked + WINDOW; r->sent++) {
		uint64_t *b = r->buf[SENDER][r->sent % WINDOW];

		b[0] = r->sent;
		b[LEN / 8 - 1] = ~r->sent;
		s.off = r->sent % WINDOW * LEN;
		if (dr_channel_send(r->ch[SENDER], &s, 1, &seq, dr_now_ns()))
			break;
	}
}

static void turn(struct run *r, const char *what)
{
	if (dr_now_ns() - r->began_ns > 20 * DR_NS_PER_S)
		fail_msg("waited in vain for %s", what);
	for (unsigned end = 0; end < 2; end++) {
		assert_true(dr_manager_ready(r->m[end]) >= 0);
		dr_manager_tick(r->m[end], dr_now_ns());
	}
	receive(r);
	transmit(r);
	for (unsigned end = 0; end < 2; end++)
		dr_channel_flush(r->ch[end], dr_now_ns());
}

#define until(r, cond)                                                                             \
	do {                                                                                       \
		(r)->began_ns = dr_now_ns();                                                       \
		while (!(cond))                                                                    \
			turn(r, #cond);                                                            \
	} while (0)

static bool on_path(struct run *r, unsigned path)
{
	struct dr_channel_stats s[2];

	for (unsigned end = 0; end < 2; end++)
		dr_channel_stats(r->ch[end], &s[end]);
	return s[0].active == path && s[1].active == path && s[0].path_up[path] &&
	       s[1].path_up[path];
}

static bool protected(struct run *r)
{
	return dr_channel_path_up(r->ch[0], 0) && dr_channel_path_up(r->ch[0], 1) &&
	       dr_channel_path_up(r->ch[1], 0) && dr_channel_path_up(r->ch[1], 1);
}

static void run_open(struct run *r)
{
	memset(r, 0, sizeof(*r));
	assert_int_equal(
		setenv("DR_FAKE_IBV",
			"a0:lo:127.0.0.1,b0:lo:127.0.0.2,a1:lo:127.0.0.3,b1:lo:127.0.0.4", 1),
		0);
	r->fake = dr_fake_attach("..");
	if (!r->fake)
		fail_msg("ibverbs_plugin.so is not built: make tests");
	r->fake->reset();
	open_end(r, SENDER);
	open_end(r, RECEIVER);
	introduce(r, SENDER);
	introduce(r, RECEIVER);
}

static void run_close(struct run *r)
{
	const char *what = NULL;

	for (unsigned end = 0; end < 2; end++)
		dr_channel_mem_dereg(r->ch[end], &r->mem[end], dr_now_ns());
	for (unsigned end = 0; end < 2; end++)
		dr_manager_close(r->m[end], dr_now_ns());
	for (unsigned end = 0; end < 2; end++)
		dr_manager_destroy(r->m[end]);
	assert_int_equal(r->fake->alive_total(), 0);
	if (r->fake->violations(&what))
		fail_msg("misuse: %s", what);
	r->fake->reset();
}

static void device_of_the_primary_goes_and_comes(unsigned end, bool waits)
{
	struct dr_channel_stats st;
	static struct run r;
	uint64_t before;

	run_open(&r);
	until(&r, on_path(&r, 0) && protected(&r) && r.taken > 50);
	for (unsigned k = 0; k < 2; k++) {
		r.fake->unplug(nic[end][0], waits);
		until(&r, on_path(&r, 1));
		before = r.taken;
		until(&r, r.taken > before + 50);
		until(&r, r.fake->plug(nic[end][0], 5 + 2 * k) == 0);
		until(&r, on_path(&r, 0) && protected(&r));
		before = r.taken;
		until(&r, r.taken > before + 50);
	}
	dr_channel_stats(r.ch[SENDER], &st);
	assert_int_equal(st.failbacks, 2);
	assert_true(st.path_bytes[0] > 0 && st.path_bytes[1] > 0);
	run_close(&r);
}

static void gone_at_the_sender(void **state)
{
	(void)state;
	device_of_the_primary_goes_and_comes(SENDER, false);
}

static void gone_at_the_receiver(void **state)
{
	(void)state;
	device_of_the_primary_goes_and_comes(RECEIVER, false);
}

static void gone_without_an_event(void **state)
{
	(void)state;
	device_of_the_primary_goes_and_comes(SENDER, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(gone_at_the_sender),
		cmocka_unit_test(gone_at_the_receiver), cmocka_unit_test(gone_without_an_event) };

	dr_log_set_level(DR_LOG_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
