/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/io_testkit.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- exchange ----------------------------------------------------------------------------- */

static void exchange_of_eight_gpus(void **state)
{
	(void)state;
	start_server(8, 8, &key_a);
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 8, &key_a);
	until(w.srv.readies == 1 && w.cli[0].readies == 1);
	assert_int_equal(w.srv.handles, 8);
	assert_int_equal(w.cli[0].handles, 8);
	for (unsigned k = 0; k < 8; k++)
		assert_int_equal(w.cli[0].server_gpus[k], 8 + k);
	assert_memory_equal(dr_control_token(server_control()), dr_control_token(client_control(0)),
		DR_BOOT_TOKEN_BYTES);
	assert_string_equal(dr_control_peer_version(server_control()), "1.0-client");
	assert_string_equal(dr_control_peer_version(client_control(0)), "1.0-server");
	assert_non_null(strstr(dr_control_peer(server_control()), "127.0.0.1:"));
	for (int i = 0; i < 100; i++) {
		say(server_control(), &w.srv.said);
		say(client_control(0), &w.cli[0].said);
	}
	until(w.srv.messages == 100 && w.cli[0].messages == 100);
	until(dr_control_unacked(server_control()) == 0 &&
		dr_control_unacked(client_control(0)) == 0);
	/* Both clocks are the same one: the offset is 0 within its bound. */
	int64_t off, err;
	until(dr_control_clock(server_control(), dr_now_ns(), &off, &err));
	assert_true(llabs(off) <= err);
	until(dr_control_clock(client_control(0), dr_now_ns(), &off, &err));
	assert_true(llabs(off) <= err);
	dr_control_goodbye(client_control(0));
	until(w.cli[0].closes == 1 && w.srv.closes == 1);
	assert_int_equal(w.cli[0].closed_cause, DR_BOOT_LOCAL);
	assert_int_equal(w.srv.closed_cause, DR_BOOT_GOODBYE);
	assert_null(dr_control_token(server_control()));
	assert_int_equal(w.log_len, 0);
	assert_int_equal(w.cli[0].losts + w.srv.losts + w.cli[0].fails, 0);
}

static void one_session_after_another(void **state)
{
	(void)state;
	w.srv.late_handles = true;
	start_server(2, 0, NULL);
	for (unsigned i = 1; i <= 3; i++) {
		start_client(
			0, i == 2 ? "::1" : "localhost", dr_boot_server_port(w.srv.s, 0), 2, NULL);
		until(w.srv.readies == i && w.cli[0].readies == 1);
		check_alive();
		dr_control_goodbye(server_control());
		until(w.cli[0].closes == 1 && w.srv.closes == i);
		assert_int_equal(w.cli[0].closed_cause, DR_BOOT_GOODBYE);
		assert_int_equal(w.srv.closed_cause, DR_BOOT_LOCAL);
		dr_boot_client_destroy(w.cli[0].c);
		memset(&w.cli[0], 0, sizeof(w.cli[0]));
	}
	assert_int_equal(w.log_len, 0);
}

static void decline_and_counts(void **state)
{
	(void)state;
	start_server(3, 4, NULL);
	uint16_t port = dr_boot_server_port(w.srv.s, 1);
	w.srv.decline = true;
	start_client(0, "127.0.0.1", port, 3, NULL);
	until(w.cli[0].fails == 1 && w.srv.closes == 1);
	assert_int_equal(w.cli[0].failed_cause, DR_BOOT_DECLINED);
	assert_int_equal(w.cli[0].code, 2);
	assert_non_null(strstr(w.cli[0].text, "verbs is not in this build"));
	assert_int_equal(w.srv.closed_cause, DR_BOOT_LOCAL);
	w.srv.decline = false;
	start_client(1, "127.0.0.1", port, 4, NULL);
	until(w.cli[1].fails == 1);
	assert_int_equal(w.cli[1].failed_cause, DR_BOOT_DECLINED);
	assert_int_equal(w.cli[1].code, 3);
	assert_non_null(strstr(w.cli[1].text, "client has 4 (0-3), server 3 (4-6)"));
	assert_int_equal(w.srv.offers, 1);
	dr_boot_client_destroy(w.cli[1].c);
	memset(&w.cli[1], 0, sizeof(w.cli[1]));
	start_client_opts(
		1, (struct dr_boot_opts){ .host = "127.0.0.1", .port = port, .pair = true }, 4);
	until(w.cli[1].readies == 1 && w.srv.readies == 1);
	assert_int_equal(w.srv.handles, 3);
	assert_int_equal(w.cli[1].handles, 3);
}

/* A server that finds with any of the handles that it cannot run: its client is not READY then, and has
 * its words and its status. */
static void declined_with_handles(void **state)
{
	(void)state;
	start_server(3, 0, NULL);
	for (unsigned k = 1; k <= 3; k++) {
		w.srv.refuse_at = k;
		start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 3, NULL);
		until(w.cli[0].fails == 1 && w.srv.closes == k);
		assert_int_equal(w.cli[0].failed_cause, DR_BOOT_DECLINED);
		assert_int_equal(w.cli[0].code, 2);
		assert_non_null(strstr(w.cli[0].text, "out of memory for this GPU"));
		assert_int_equal(w.cli[0].readies, 0);
		assert_int_equal(w.srv.closed_cause, DR_BOOT_LOCAL);
		dr_boot_client_destroy(w.cli[0].c);
		memset(&w.cli[0], 0, sizeof(w.cli[0]));
	}
}

/* Until it is READY an end may say nothing for long: it makes its buffers. */
static void slow_preparation(void **state)
{
	(void)state;
	int64_t end;
	w.srv.no_handles = true;
	start_server(2, 0, NULL);
	relay_start(dr_boot_server_port(w.srv.s, 0));
	start_client(0, "127.0.0.1", w.relay_port, 2, NULL);
	until(w.cli[0].accepts == 1 && w.srv.handles == 2);
	relay_freeze_all();
	end = dr_now_ns() + 3 * quick.silent_ns;
	until(dr_now_ns() >= end);
	relay_thaw_all();
	give_server_handles(0);
	give_server_handles(1);
	until(w.srv.readies == 1 && w.cli[0].readies == 1);
	assert_int_equal(w.cli[0].losts + w.srv.losts + w.cli[0].fails + w.srv.closes, 0);
	check_alive();
}

/* ... and no longer than exchange_ns; the message tells a peer that runs */
static void preparation_without_end(void **state)
{
	(void)state;
	struct dr_boot_timing t = quick;
	w.srv.mute = true;
	start_server(1, 0, NULL);
	t.exchange_ns = 200 * MS;
	start_client_opts(0,
		(struct dr_boot_opts){
			.host = "127.0.0.1", .port = dr_boot_server_port(w.srv.s, 0), .timing = t },
		1);
	until(w.cli[0].fails == 1);
	assert_int_equal(w.cli[0].failed_cause, DR_BOOT_TIMEOUT);
	assert_non_null(strstr(w.cli[0].text, "did not answer the parameters"));
	assert_non_null(strstr(w.cli[0].text, "its process runs"));
	until(w.srv.closes == 1);
}

/* ... from one whose process is stopped, at either end. */
static void stopped_before_ready(void **state)
{
	(void)state;
	struct dr_boot_timing t = quick;
	t.exchange_ns = 3 * quick.silent_ns;
	w.srv.no_handles = true;
	start_server_opts((struct dr_boot_opts){ .timing = t }, 1, 0);
	relay_start(dr_boot_server_port(w.srv.s, 0));
	start_client_opts(0,
		(struct dr_boot_opts){ .host = "127.0.0.1", .port = w.relay_port, .timing = t }, 1);
	until(w.cli[0].accepts == 1 && w.srv.handles == 1);
	relay_freeze_all();
	until(w.cli[0].fails == 1 && w.srv.closes == 1);
	assert_int_equal(w.cli[0].failed_cause, DR_BOOT_TIMEOUT);
	assert_int_equal(w.srv.closed_cause, DR_BOOT_TIMEOUT);
	assert_non_null(strstr(w.cli[0].text, "its kernel answers, its process has sent nothing"));
	assert_non_null(strstr(w.srv.text, "its kernel answers, its process has sent nothing"));
}

/* A host that vanishes before READY is noticed by both ends after silent_ns, whatever they wait for: the answer to the
 * parameters (0), handles (1), READY (2). */
static void vanishes_before_ready(void **state)
{
	(void)state;
	struct dr_boot_timing t = quick;
	t.resume_ns = 60 * DR_NS_PER_S;
	start_server_opts((struct dr_boot_opts){ .timing = t }, 1, 0);
	relay_start(dr_boot_server_port(w.srv.s, 0));
	for (unsigned i = 0; i < 3; i++) {
		w.srv.mute = i == 0;
		w.srv.no_handles = true;
		w.srv.handles = 0;
		start_client(0, "127.0.0.1", w.relay_port, 1, NULL);
		until(i == 0 ? w.srv.offers == 1 : w.srv.handles == 1);
		relay_vanish_all();
		if (i == 2)
			give_server_handles(0);
		until(w.cli[0].fails == 1 && w.srv.closes == i + 1);
		assert_int_equal(w.cli[0].failed_cause, DR_BOOT_SILENT);
		assert_int_equal(w.srv.closed_cause, DR_BOOT_SILENT);
		assert_non_null(strstr(w.cli[0].text, "host has acknowledged nothing for 0.4 s"));
		assert_non_null(strstr(w.srv.text, "host has acknowledged nothing for 0.4 s"));
		assert_int_equal(w.srv.losts, i == 2);
		dr_boot_client_destroy(w.cli[0].c);
		memset(&w.cli[0], 0, sizeof(w.cli[0]));
	}
	w.srv.no_handles = false;
	start_client(1, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.cli[1].readies == 1);
}

/* A client whose hello is not answered in time gives the connection of a pair up and dials again. The server, busy
 * meanwhile, sees the one that was given up first. */
static void a_pair_is_dialled_again(void **state)
{
	(void)state;
	struct dr_conv c;
	struct dr_conv_event ev;
	start_server(2, 0, NULL);
	w.cli[0].no_handles = true;
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 2, NULL);
	until(w.cli[0].accepts == 1);
	for (int i = 0; i < 20; i++) /* its own connection comes first */
		turn();
	struct dr_boot_client *client = w.cli[0].c;
	w.cli[0].c = NULL; /* it does not dial now */
	int fd = raw_connect(dr_boot_server_port(w.srv.s, 1));
	raw_hello(fd, &c, DR_CONV_GPU, 1, &server_control()->ids, 0, &ev);
	assert_int_equal(ev.kind, DR_CONV_OPENED);
	dr_conv_fini(&c);
	close(fd);
	for (int i = 0; i < 5; i++)
		turn();
	w.cli[0].c = client;
	give_client_handles(&w.cli[0], 0);
	give_client_handles(&w.cli[0], 1);
	until(w.srv.readies == 1 && w.cli[0].readies == 1);
	assert_int_equal(w.srv.closes, 0);
}

/* ... but one that stops in mid-message has sent handles that it does not send again. */
static void a_pair_that_stops_in_mid_message(void **state)
{
	(void)state;
	struct dr_conv c;
	struct dr_conv_event ev;
	struct dr_boot_opts o = { .timing = quick };
	o.timing.stage_ns = 60 * DR_NS_PER_S; /* a message has silent_ns */
	start_server_opts(o, 2, 0);
	w.cli[0].no_handles = true;
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 2, NULL);
	until(w.cli[0].accepts == 1);
	for (int i = 0; i < 20; i++) /* its own connection comes first */
		turn();
	struct dr_boot_client *client = w.cli[0].c;
	w.cli[0].c = NULL;
	int fd = raw_connect(dr_boot_server_port(w.srv.s, 1));
	raw_hello(fd, &c, DR_CONV_GPU, 1, &server_control()->ids, 0, &ev);
	raw_send(fd, "\0\0", 2);
	until(w.srv.closes == 1);
	assert_int_equal(w.srv.closed_cause, DR_BOOT_TIMEOUT);
	assert_non_null(strstr(w.srv.text, "pair 1: message incomplete"));
	dr_conv_fini(&c);
	close(fd);
	w.cli[0].c = client;
	until(w.cli[0].fails == 1);
}

static void keys_that_differ(void **state)
{
	(void)state;
	start_server(1, 0, &key_a);
	uint16_t port = dr_boot_server_port(w.srv.s, 0);
	start_client(0, "127.0.0.1", port, 1, &key_b);
	start_client(1, "127.0.0.1", port, 1, NULL);
	until(w.cli[0].fails == 1 && w.cli[1].fails == 1 &&
		log_count("rejected connection from 127.0.0.1") == 2);
	assert_int_equal(w.cli[0].failed_cause, DR_BOOT_KEY);
	assert_int_equal(w.cli[1].failed_cause, DR_BOOT_KEY);
	assert_non_null(strstr(w.cli[0].text, "key files differ"));
	assert_non_null(strstr(w.cli[1].text, "this end has none"));
	assert_int_equal(w.srv.offers, 0);
}

/* One that may wait is served when the other client is done. */
static void busy(void **state)
{
	struct dr_boot_opts o = { .host = "127.0.0.1", .wait_busy = true };
	(void)state;
	ready_session(1, NULL);
	o.port = dr_boot_server_port(w.srv.s, 0);
	start_client(1, "127.0.0.1", o.port, 1, NULL);
	for (int i = 0; i < 2; i++) {
		until(w.cli[1].fails == 1);
		assert_int_equal(w.cli[1].failed_cause, DR_BOOT_BUSY);
		assert_int_equal(w.cli[1].code, 3);
		assert_non_null(strstr(w.cli[1].text, dr_control_peer(server_control())));
		assert_true(i == (strstr(w.cli[1].text, "raise --connect-timeout") != NULL));
		check_alive();
		assert_int_equal(w.srv.losts + w.srv.closes, 0);
		dr_boot_client_destroy(w.cli[1].c);
		memset(&w.cli[1], 0, sizeof(w.cli[1]));
		o.connect_timeout_ns = i ? 0 : 300 * MS;
		start_client_opts(1, o, 1);
		until(dr_boot_client_busy(w.cli[1].c) != NULL);
	}
	dr_control_goodbye(dr_boot_client_control(w.cli[0].c));
	until(w.cli[1].readies == 1);
}

/* One that waits is served before the other's time is over, wherever that stopped. */
static void a_silent_client_gives_way(void **state)
{
	(void)state;
	struct dr_boot_opts o = { .timing = quick };
	o.timing.resume_ns = 600 * DR_NS_PER_S;
	start_server_opts(o, 1, 0);
	for (unsigned i = 0; i < 4; i++) {
		first_client_stops(i);
		w.srv.closes = 0;
		second_client();
		until(w.srv.closes == 1);
		assert_int_equal(w.srv.closed_cause, DR_BOOT_EVICTED);
		assert_non_null(strstr(w.srv.text, "another client waits"));
		until(w.cli[1].readies == 1);
		relay_thaw_all();
		until(w.cli[0].fails + w.cli[0].closes == 1);
		assert_true(i == 3 || strstr(w.cli[0].text, "another client waits"));
		dr_control_goodbye(client_control(1));
		until(w.cli[1].closes == 1 && w.srv.closes == 2);
	}
}

/* ... but not while it shows that it is alive, by itself (0) or with its pulse while its owner is in a callback (1), nor
 * when nobody waits (2), nor after its run has begun (3). */
static void a_client_that_keeps_its_place(void **state)
{
	(void)state;
	start_server(1, 0, NULL);
	for (unsigned i = 0; i < 4; i++) {
		int64_t end = dr_now_ns() + 3 * quick.silent_ns;
		w.srv.messages = w.srv.said = w.srv.closes = 0;
		first_client();
		until(w.cli[0].accepts == 1);
		struct dr_boot_client *c = w.cli[0].c;
		if (i == 3) {
			give_client_handles(&w.cli[0], 0);
			until(w.cli[0].readies == 1 && server_control()->state == DR_BOOT_READY);
			say(client_control(0), &w.cli[0].said);
			until(w.srv.messages == 1);
		}
		if (i >= 2)
			relay_freeze_all();
		if (i != 2)
			second_client();
		int64_t due = client_control(0)->ping_due_ns;
		if (i == 1)
			w.cli[0].c = NULL; /* no turn of its own */
		while (dr_now_ns() < end) {
			turn();
			if (i == 1)
				dr_boot_client_pulse(c, dr_now_ns());
		}
		assert_int_equal(w.srv.closes, 0);
		w.cli[0].c = c;
		/* Here the poller answers PING even without a turn, so the server alone would not notice. */
		assert_true(i != 1 || client_control(0)->ping_due_ns > due);
		relay_thaw_all();
		if (i < 3)
			give_client_handles(&w.cli[0], 0);
		until(w.cli[0].readies == 1);
		until(i < 3 || w.cli[0].resumes == 1);
		dr_control_goodbye(client_control(0));
		until(w.srv.closes == 1 && w.srv.closed_cause == DR_BOOT_GOODBYE);
		if (i != 2) {
			until(w.cli[1].readies == 1);
			dr_control_goodbye(client_control(1));
			until(w.srv.closes == 2);
		}
	}
}

/* ---- nobody there, port taken ------------------------------------------------------------- */

static void nobody_listens(void **state)
{
	(void)state;
	start_client_opts(0,
		(struct dr_boot_opts){
			.host = "127.0.0.1", .port = free_port(), .connect_timeout_ns = 500 * MS },
		1);
	until(w.cli[0].fails == 1);
	assert_int_equal(w.cli[0].failed_cause, DR_BOOT_REFUSED);
	assert_int_equal(w.cli[0].code, 3);
	assert_non_null(
		strstr(w.cli[0].text, "Connection refused; this is an address of this machine"));
	unsigned attempts = 0;
	assert_int_equal(
		sscanf(w.cli[0].text, "cannot connect to 127.0.0.1: %u attempts", &attempts), 1);
	assert_true(attempts >= 2);
	turn();
	assert_int_equal(w.cli[0].fails, 1);
}

static void server_starts_later(void **state)
{
	(void)state;
	uint16_t port = free_port();
	start_client(0, "127.0.0.1", port, 1, NULL);
	until(w.cli[0].c && dr_boot_client_deadline(w.cli[0].c) > dr_now_ns());
	start_server_opts((struct dr_boot_opts){ .port_base = port }, 1, 0);
	until(w.cli[0].readies == 1);
}

/* GPU ids that differ: the client's own port is nobody's, the base port is the server's. */
static void fallback_to_the_base_port(void **state)
{
	(void)state;
	uint16_t base = free_port();
	start_server_opts((struct dr_boot_opts){ .port_base = base, .listen_base = true }, 1, 3);
	const unsigned gpu = 5;
	json_t *params = json_pack("{s:s}", "test", "bw");
	struct dr_boot_opts o = { .host = "127.0.0.1",
		.port_base = base,
		.gpus = &gpu,
		.n_gpus = 1,
		.params = params,
		.timing = quick };
	w.srv.mute = true; /* the harness' offer check wants id 0 */
	assert_int_equal(
		dr_boot_client_create(&w.cli[0].c, &o, &client_ops, &w.cli[0], w.poller, NULL), 0);
	json_decref(params);
	until(client_control(0)->state == DR_BOOT_OFFERED);
	dr_boot_client_drop(w.cli[0].c);
	until(w.cli[0].fails == 1);
	assert_int_equal(w.cli[0].failed_cause, DR_BOOT_LOCAL);
}

static void port_in_use(void **state)
{
	(void)state;
	start_server(1, 0, NULL);
	uint16_t port = dr_boot_server_port(w.srv.s, 0);
	struct dr_boot_server *other = NULL;
	struct dr_err e;
	const unsigned gpu = 0;
	struct dr_boot_opts o = { .gpus = &gpu, .n_gpus = 1, .port_base = port };
	char want[64];
	snprintf(want, sizeof(want), "TCP port %u: in use", port);
	assert_int_equal(
		dr_boot_server_create(&other, &o, &server_ops, NULL, w.poller, &e), -EADDRINUSE);
	assert_non_null(strstr(e.text, want));
	assert_non_null(strstr(e.text, "ss -ltnp"));
	assert_non_null(strstr(e.text, "--port"));
	o.bind = "no-such-if0";
	assert_int_equal(
		dr_boot_server_create(&other, &o, &server_ops, NULL, w.poller, &e), -ENODEV);
	assert_non_null(strstr(e.text, "no-such-if0"));
	o.bind = "192.0.2.77";
	assert_int_equal(
		dr_boot_server_create(&other, &o, &server_ops, NULL, w.poller, &e), -ENODEV);
	o.bind = NULL;
	o.port_base = 65535;
	o.gpus = &(const unsigned){ 1 };
	assert_int_equal(
		dr_boot_server_create(&other, &o, &server_ops, NULL, w.poller, &e), -EINVAL);
	assert_null(other);
}

/* ---- unidentified peers -------------------------------------------------------------------- */

static void unidentified_on_every_port(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		size_t len;
		const char *text;
	} what[] = {
		{ "GET / HTTP/1.0\r\n\r\n", 18, "speaks HTTP" },
		{ "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, "speaks TLS" },
		{ "\xde\xad\xbe\xef", 4, "first bytes: de ad be ef" },
		{ "DUALRAIL\x00\x09\x00\x04\x03"
		  "9.9",
			16, "protocol versions differ" },
		{ "", 0, "connection closed by the peer" },
		{ "DUAL", 4, "message incomplete after 0.3 s: 4 of 12 bytes received" },
		{ NULL, 0, "no hello received within 0.3 s" },
	};
	enum { N = 7, PORTS = 4 };
	ready_session(PORTS, NULL);
	for (unsigned i = 0; i < N; i++) { /* few enough that each has its line */
		int fd = raw_connect(dr_boot_server_port(w.srv.s, i % PORTS));
		send_first_bytes(fd, what[i].bytes, what[i].len);
		until(raw_closed(fd));
		close(fd);
		assert_non_null(strstr(w.log, what[i].text));
		assert_int_equal(log_count("rejected connection from 127.0.0.1:"), i + 1);
	}
	for (unsigned i = 0; i < N; i++) {
		int fd[PORTS];
		for (unsigned k = 0; k < PORTS; k++) {
			fd[k] = raw_connect(dr_boot_server_port(w.srv.s, k));
			send_first_bytes(fd[k], what[i].bytes, what[i].len);
		}
		check_alive();
		for (unsigned k = 0; k < PORTS; k++) {
			until(raw_closed(fd[k]));
			close(fd[k]);
		}
	}
	check_alive();
	assert_int_equal(w.srv.losts + w.srv.closes + w.srv.resumes, 0);
	assert_true(log_count("\n") < N + N * PORTS); /* held back */
}

static void too_many_unidentified(void **state)
{
	(void)state;
	enum { N = 70 };
	int fd[N];
	ready_session(1, NULL);
	for (int i = 0; i < N; i++)
		fd[i] = raw_connect(dr_boot_server_port(w.srv.s, 0));
	until(log_count("too many pending connections") == N - 64);
	for (int i = 0; i < N - 64; i++)
		assert_true(raw_closed(fd[i])); /* the oldest */
	assert_false(raw_closed(fd[N - 1]));
	check_alive();
	for (int i = 0; i < N; i++)
		close(fd[i]);
}

static void out_of_descriptors(void **state)
{
	(void)state;
	struct rlimit before, tight;
	ready_session(1, NULL);
	int fd[3];
	for (int i = 0; i < 3; i++)
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_port = htons(dr_boot_server_port(w.srv.s, 0)) };
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	getrlimit(RLIMIT_NOFILE, &before);
	tight = before;
	tight.rlim_cur = (rlim_t)fd[2] + 1;
	setrlimit(RLIMIT_NOFILE, &tight);
	for (int i = 0; i < 3; i++)
		connect(fd[i], (struct sockaddr *)&sa, sizeof(sa));
	check_alive();
	until(log_count("Too many open files") > 0);
	/* It sleeps meanwhile: turns are counted, not timed; spinning makes many thousands. */
	unsigned turns = 0;
	for (int64_t end = dr_now_ns() + 80 * MS; dr_now_ns() < end; turns++)
		turn();
	assert_true(turns < 500);
	assert_int_equal(log_count("Too many open files"), 1);
	check_alive();
	setrlimit(RLIMIT_NOFILE, &before);
	start_client(1, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.cli[1].fails == 1); /* accepts again: BUSY */
	assert_int_equal(w.cli[1].failed_cause, DR_BOOT_BUSY);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}

static void wrong_sessions(void **state)
{
	(void)state;
	struct dr_conv c;
	struct dr_conv_event ev;
	static const struct dr_conv_ids wrong = { .session = { 1 } };
	ready_session(2, NULL);
	struct dr_conv_ids right = server_control()->ids, stranger = right;
	stranger.secret[0] ^= 1; /* saw the hello of a connection of the session */
	const struct {
		unsigned purpose, k;
		const struct dr_conv_ids *ids;
		uint64_t last;
		enum dr_boot_cause cause;
		bool denied;
	} row[] = {
		{ DR_CONV_RESUME, 0, &wrong, 0, DR_BOOT_GONE, true },
		{ DR_CONV_GPU, 1, &wrong, 0, DR_BOOT_GONE, true },
		{ DR_CONV_RESUME, 0, &stranger, 0, DR_BOOT_KEY, true },
		{ DR_CONV_GPU, 1, &stranger, 0, DR_BOOT_KEY, true },
		{ DR_CONV_GPU, 1, &right, 0, DR_BOOT_GONE, false }, /* exchange is over */
		{ DR_CONV_RESUME, 0, &right, 99, DR_BOOT_PROTOCOL, false },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		int fd = raw_connect(dr_boot_server_port(w.srv.s, 0));
		raw_hello(fd, &c, row[i].purpose, row[i].k, row[i].ids, row[i].last, &ev);
		assert_int_equal(ev.kind, row[i].denied ? DR_CONV_FAILED : DR_CONV_REFUSED);
		assert_int_equal(ev.cause, row[i].cause);
		dr_conv_fini(&c);
		close(fd);
		check_alive();
	}
	assert_int_equal(w.srv.losts + w.srv.closes, 0);
}

/* Half an offer, then nothing; then no offer at all. */
static void stops_in_mid_message(void **state)
{
	(void)state;
	struct dr_conv c;
	struct dr_conv_event ev;
	start_server(1, 0, NULL);
	for (int i = 0; i < 2; i++) {
		int fd = raw_connect(dr_boot_server_port(w.srv.s, 0));
		raw_hello(fd, &c, DR_CONV_NEW, 0, NULL, 0, &ev);
		assert_int_equal(ev.kind, DR_CONV_OPENED);
		if (i == 0) {
			const uint8_t *out;
			assert_int_equal(
				dr_conv_send(&c, DR_CONV_FRAME_OFFER, 0, "{\"gpus\":[0]}", 12), 0);
			assert_int_equal(dr_conv_output(&c, &out), 60);
			raw_send(fd, out, 40);
		}
		until(raw_closed(fd));
		assert_int_equal(log_count(i ? "no OFFER received" : "message incomplete"), 1);
		dr_conv_fini(&c);
		close(fd);
	}
	assert_int_equal(log_count("\n"), 2);
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.cli[0].readies == 1);
}

/* ---- loss and resume ---------------------------------------------------------------------- */

static void resume_after_resets(void **state)
{
	(void)state;
	ready_through_relay();
	for (unsigned i = 1; i <= 30; i++) {
		for (unsigned m = 0; m < i; m++) {
			say(server_control(), &w.srv.said);
			say(client_control(0), &w.cli[0].said);
			if (m % 3 == 0)
				turn();
		}
		relay_reset_all();
		until(w.cli[0].losts == i);
		say(client_control(0), &w.cli[0].said); /* while it is lost */
		until(w.cli[0].resumes == i && w.srv.resumes == i);
	}
	until(w.srv.messages == w.cli[0].said && w.cli[0].messages == w.srv.said);
	check_alive();
	assert_int_equal(w.srv.losts, 30);
	assert_true(w.cli[0].lost_cause == DR_BOOT_RESET || w.cli[0].lost_cause == DR_BOOT_EOF);
	assert_int_equal(w.srv.closes + w.cli[0].closes + w.cli[0].fails, 0);
	dr_control_goodbye(client_control(0));
	until(w.cli[0].closes == 1 && w.srv.closes == 1);
	assert_int_equal(w.srv.closed_cause, DR_BOOT_GOODBYE);
}

static void silent_loss(void **state)
{
	(void)state;
	ready_through_relay();
	check_alive();
	relay_freeze_all();
	say(server_control(), &w.srv.said);
	until(w.cli[0].losts == 1);
	assert_int_equal(w.cli[0].lost_cause, DR_BOOT_SILENT);
	until(w.srv.losts == 1 && w.cli[0].resumes == 1 && w.srv.resumes == 1);
	check_alive();
}

static void over_a_rail(void **state)
{
	(void)state;
	/* The port has to be free at both addresses; one that the kernel chose for 127.0.0.1 need not be. */
	start_server_opts(
		(struct dr_boot_opts){ .bind = "127.0.0.1", .port_base = free_port() }, 1, 0);
	assert_int_equal(dr_boot_server_listen_also(w.srv.s, "127.0.0.1", NULL), 0);
	assert_int_equal(dr_boot_server_listen_also(w.srv.s, "127.0.0.2", NULL), 0);
	assert_int_equal(dr_boot_server_listen_also(w.srv.s, "rail0", NULL), -EINVAL);
	relay_start(dr_boot_server_port(w.srv.s, 0));
	start_client(0, "127.0.0.1", w.relay_port, 1, NULL);
	until(w.cli[0].readies == 1 && w.srv.readies == 1);
	const char *bad[] = { "127.0.0.2", "mlx5_0" }, *rails[] = { "127.0.0.3", "127.0.0.2" };
	assert_int_equal(dr_boot_client_alternatives(w.cli[0].c, bad, 2, NULL), -EINVAL);
	assert_int_equal(dr_boot_client_alternatives(w.cli[0].c, rails, 2, NULL), 0);
	relay_close_listener();
	relay_reset_all();
	until(w.cli[0].resumes == 1 && w.srv.resumes == 1);
	assert_non_null(strstr(dr_control_peer(client_control(0)), "127.0.0.2:"));
	check_alive();
}

/* --control by interface, on both ends. */
static void bound_to_an_interface(void **state)
{
	(void)state;
	start_server_opts((struct dr_boot_opts){ .bind = "lo" }, 2, 0);
	start_client_opts(0,
		(struct dr_boot_opts){ .host = "127.0.0.1",
			.bind = "lo",
			.port = dr_boot_server_port(w.srv.s, 0) },
		2);
	until(w.cli[0].readies == 1 && w.srv.readies == 1);
	check_alive();
}

static void server_process_gone(void **state)
{
	(void)state;
	ready_session(1, NULL);
	uint16_t port = dr_boot_server_port(w.srv.s, 0);
	dr_boot_server_destroy(w.srv.s);
	w.srv.s = NULL;
	until(w.cli[0].closes == 1);
	assert_int_equal(w.cli[0].losts, 1);
	assert_true(w.cli[0].lost_cause == DR_BOOT_EOF || w.cli[0].lost_cause == DR_BOOT_RESET);
	assert_int_equal(w.cli[0].closed_cause, DR_BOOT_REFUSED);
	assert_non_null(strstr(w.cli[0].text, "the server process has ended"));
	/* Restarted: it knows nothing of the session. */
	start_server_opts((struct dr_boot_opts){ .port_base = port }, 1, 0);
	start_client(1, "127.0.0.1", port, 1, NULL);
	until(w.cli[1].readies == 1 && w.srv.readies == 2);
	dr_boot_server_destroy(w.srv.s);
	start_server_opts((struct dr_boot_opts){ .port_base = port }, 1, 0);
	until(w.cli[1].closes == 1);
	assert_int_equal(w.cli[1].closed_cause, DR_BOOT_GONE);
}

static void client_process_gone(void **state)
{
	(void)state;
	ready_session(1, NULL);
	dr_boot_client_destroy(w.cli[0].c);
	w.cli[0].c = NULL;
	until(w.srv.losts == 1);
	start_client(1, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.cli[1].fails == 1);
	assert_int_equal(w.cli[1].failed_cause, DR_BOOT_BUSY);
	assert_non_null(strstr(w.cli[1].text, "to reconnect, lost"));
	dr_boot_server_drop(w.srv.s);
	assert_int_equal(w.srv.closes, 0); /* not from inside the call */
	until(w.srv.closes == 1);
	assert_int_equal(w.srv.closed_cause, DR_BOOT_LOCAL);
}

/* A client that dies before its offer is answered frees the server at once. */
static void client_gone_early(void **state)
{
	(void)state;
	w.srv.mute = true;
	start_server(1, 0, NULL);
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), 1, NULL);
	until(w.srv.offers == 1);
	json_t *msg = json_object();
	assert_int_equal(dr_control_send(server_control(), msg), -ENOTCONN);
	json_decref(msg);
	dr_boot_client_destroy(w.cli[0].c);
	w.cli[0].c = NULL;
	until(w.srv.closes == 1);
	assert_int_equal(w.srv.losts, 0);
	assert_int_equal(server_control()->state, DR_BOOT_IDLE);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(exchange_of_eight_gpus),
		TEST(one_session_after_another),
		TEST(decline_and_counts),
		TEST(declined_with_handles),
		TEST(slow_preparation),
		TEST(preparation_without_end),
		TEST(stopped_before_ready),
		TEST(vanishes_before_ready),
		TEST(a_pair_is_dialled_again),
		TEST(a_pair_that_stops_in_mid_message),
		TEST(keys_that_differ),
		TEST(busy),
		TEST(a_silent_client_gives_way),
		TEST(a_client_that_keeps_its_place),
		TEST(nobody_listens),
		TEST(server_starts_later),
		TEST(fallback_to_the_base_port),
		TEST(port_in_use),
		TEST(unidentified_on_every_port),
		TEST(too_many_unidentified),
		TEST(out_of_descriptors),
		TEST(wrong_sessions),
		TEST(stops_in_mid_message),
		TEST(resume_after_resets),
		TEST(silent_loss),
		TEST(over_a_rail),
		TEST(bound_to_an_interface),
		TEST(server_process_gone),
		TEST(client_process_gone),
		TEST(client_gone_early),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
