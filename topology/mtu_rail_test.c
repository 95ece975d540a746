/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "topology/mtu_rail.h"

/* Ends on addresses of the loopback. A third host, 127.0.0.3, has asked for nothing. */

#define SERVER "127.0.0.1"
#define CLIENT "127.0.0.2"
#define THIRD "127.0.0.3"
#define OTHER "127.0.0.4"
#define BOUND_NS (20 * DR_NS_PER_S)

static struct dr_poller *poller;
static struct dr_mtu_rail server, client;
static int third = -1; /* its UDP socket */

static struct sockaddr_storage at(const char *host, uint16_t port)
{
	struct sockaddr_storage sa = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&sa;

	in->sin_family = AF_INET;
	in->sin_port = htons(port);
	assert_int_equal(inet_pton(AF_INET, host, &in->sin_addr), 1);
	return sa;
}

static struct dr_mtu_params params(bool connector)
{
	return (struct dr_mtu_params){ .full_bytes = 9000, .connector = connector, .key = "key" };
}

static uint16_t open_end(struct dr_mtu_rail *r, const char *host)
{
	struct sockaddr_storage sa = at(host, 0);
	int port = dr_mtu_rail_open(r, "lo", &sa, 0, 0, r == &server);

	assert_true(port > 0);
	return (uint16_t)port;
}

static void start(struct dr_mtu_rail *r, const char *peer, uint16_t port, int64_t now)
{
	struct sockaddr_storage sa = at(peer, port);
	struct dr_mtu_params p = params(r == &client);

	assert_int_equal(dr_mtu_rail_start(r, poller, &sa, port, &p, now), 0);
}

static int bound(int type, const char *host, uint16_t *port)
{
	struct sockaddr_storage sa = at(host, *port);
	socklen_t len = sizeof(struct sockaddr_in);
	int fd = socket(AF_INET, type, 0), room = 4 << 20;

	assert_true(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	*port = ntohs(((struct sockaddr_in *)&sa)->sin_port);
	return fd;
}

static void send_to_server(int fd, uint16_t port, const void *data, size_t len)
{
	struct sockaddr_storage sa = at(SERVER, port);

	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(struct sockaddr_in)), 0);
	assert_int_equal(send(fd, data, len, 0), len);
}

/* Bytes that came to the third host. */
static size_t left(void)
{
	char buf[1 << 16];
	size_t bytes = 0;
	ssize_t n;

	while ((n = recv(third, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		bytes += (size_t)n;
	return bytes;
}

static void turn(int64_t now)
{
	assert_true(dr_poller_wait(poller, 0) >= 0);
	dr_mtu_rail_tick(&server, now);
	dr_mtu_rail_tick(&client, now);
}

/* In virtual time, so that everything that would be sent is. */
static size_t left_within(int64_t from, int64_t ns)
{
	size_t bytes = 0;

	for (int64_t now = from; now < from + ns; now += 10 * DR_NS_PER_MS) {
		turn(now);
		bytes += left();
	}
	return bytes;
}

/* What the client would send: first to the connection, then as a datagram. */
static void of_client(uint8_t proof[DR_MTU_DGRAM], uint8_t dgram[DR_MTU_DGRAM])
{
	struct dr_mtu_params p = params(true);
	struct dr_mtu_search s;

	p.header_bytes = DR_MTU_HEADERS4;
	dr_mtu_search_init(&s, &p, 0);
	dr_mtu_search_proof(&s, proof);
	while (dr_mtu_search_next(&s, 0, dgram) != DR_MTU_DGRAM)
		;
}

static void ends_prove_themselves(void **state)
{
	uint16_t at_server = open_end(&server, SERVER), at_client = open_end(&client, CLIENT);
	int64_t begin = dr_now_ns(), now = begin;

	(void)state;
	start(&client, SERVER, at_server, now);
	start(&server, CLIENT, at_client, now);
	while (!dr_mtu_search_over(&server.search) || !dr_mtu_search_over(&client.search)) {
		assert_true(now < begin + BOUND_NS);
		assert_true(dr_poller_wait(poller, DR_NS_PER_MS) >= 0);
		now = dr_now_ns();
		turn(now);
	}
	assert_int_equal(server.search.own.state, DR_MTU_PASSES);
	assert_int_equal(client.search.own.state, DR_MTU_PASSES);
	assert_int_equal(server.search.own.bytes, 9000);
}

/* Strangers who connect and say nothing, more than wait in the kernel. */
static void silent_strangers_wait(void **state)
{
	enum { N = 40 };
	uint16_t at_server = open_end(&server, SERVER), at_client = open_end(&client, CLIENT), none;
	int64_t begin = dr_now_ns(), now = begin;
	struct dr_poller *servers = poller, *clients;
	int fd[N];

	(void)state;
	assert_int_equal(dr_poller_create(&clients, NULL), 0);
	for (int i = 0; i < N; i++) {
		struct sockaddr_storage sa = at(SERVER, at_server);

		none = 0;
		fd[i] = bound(SOCK_STREAM | SOCK_NONBLOCK, OTHER, &none);
		(void)connect(fd[i], (struct sockaddr *)&sa, sizeof(struct sockaddr_in));
	}
	start(&server, CLIENT, at_client, now);
	/* The server looks before the client has said anything. */
	poller = clients;
	start(&client, SERVER, at_server, now);
	poller = servers;
	while (!dr_mtu_search_over(&server.search) || !dr_mtu_search_over(&client.search)) {
		assert_true(now < begin + BOUND_NS);
		assert_true(dr_poller_wait(poller, DR_NS_PER_MS) >= 0);
		assert_true(dr_poller_wait(clients, 0) >= 0);
		now = dr_now_ns();
		turn(now);
	}
	for (int i = 0; i < N; i++)
		close(fd[i]);
	dr_mtu_rail_close(&client);
	dr_poller_destroy(clients);
	assert_int_equal(client.err, 0);
	assert_int_equal(server.search.own.state, DR_MTU_PASSES);
	assert_int_equal(client.search.own.state, DR_MTU_PASSES);
}

/* What left for the third host after a connection from that address with these bytes. */
static size_t left_after(const char *from, uint16_t port, const uint8_t *bytes, int64_t begin)
{
	uint16_t none = 0;
	int tcp = bound(SOCK_STREAM, from, &none);

	send_to_server(tcp, port, bytes, DR_MTU_DGRAM);
	size_t left = left_within(begin, DR_NS_PER_S);
	close(tcp);
	return left;
}

/* A client that names the third host forges its datagrams, which have a valid MAC. */
static void server_asks_for_a_connection(void **state)
{
	uint8_t proof[DR_MTU_DGRAM], dgram[DR_MTU_DGRAM];
	uint16_t port = 0, at_server = open_end(&server, SERVER);
	int64_t begin = dr_now_ns();

	(void)state;
	of_client(proof, dgram);
	third = bound(SOCK_DGRAM, THIRD, &port);
	start(&server, THIRD, port, begin);
	send_to_server(third, at_server, dgram, sizeof(dgram));
	assert_int_equal(left_within(begin, DR_NS_PER_S), 0);
	/* The right bytes of another address, wrong ones of this one, and the right ones. */
	assert_int_equal(left_after(OTHER, at_server, proof, begin), 0);
	proof[DR_MTU_DGRAM - 1] ^= 1;
	assert_int_equal(left_after(THIRD, at_server, proof, begin), 0);
	proof[DR_MTU_DGRAM - 1] ^= 1;
	assert_true(left_after(THIRD, at_server, proof, begin) > 9000 - DR_MTU_HEADERS4);
}

/* A server that names the third host, which accepts connections there. */
static void client_asks_for_an_answer(void **state)
{
	uint16_t port = 0;
	uint8_t said[DR_MTU_DGRAM];
	int64_t begin = dr_now_ns();
	int listener, tcp;

	(void)state;
	third = bound(SOCK_DGRAM, THIRD, &port);
	listener = bound(SOCK_STREAM, THIRD, &port);
	assert_int_equal(listen(listener, 1), 0);
	(void)open_end(&client, CLIENT);
	start(&client, THIRD, port, begin);
	assert_int_equal(left_within(begin, DR_NS_PER_S), 0);
	tcp = accept(listener, NULL, NULL);
	assert_int_equal(recv(tcp, said, sizeof(said), MSG_WAITALL), sizeof(said));
	/* What it said itself is no answer. */
	assert_int_equal(send(tcp, said, sizeof(said), 0), sizeof(said));
	assert_int_equal(left_within(begin, 10 * DR_NS_PER_S), 0);
	assert_true(dr_mtu_search_over(&client.search));
	close(tcp);
	close(listener);
}

/* Nobody connects, or nobody listens: over, and unknown. */
static void silence_ends(void **state)
{
	uint16_t port = 0;
	int64_t begin = dr_now_ns();
	int listener = bound(SOCK_STREAM, THIRD, &port);

	(void)state;
	(void)open_end(&server, SERVER);
	(void)open_end(&client, CLIENT);
	start(&server, THIRD, port, begin);
	start(&client, THIRD, port, begin);
	turn(begin);
	assert_false(dr_mtu_search_over(&server.search));
	for (int64_t now = begin; now < begin + 6 * DR_NS_PER_S; now += DR_NS_PER_S)
		turn(now);
	assert_true(dr_mtu_search_over(&server.search));
	assert_true(dr_mtu_search_over(&client.search));
	assert_int_equal(client.search.own.state, DR_MTU_OPEN);
	assert_int_not_equal(client.err, 0);
	close(listener);
}

static int setup(void **state)
{
	struct dr_err e;

	(void)state;
	server.po.fd = client.po.fd = server.link.fd = client.link.fd = -1;
	return dr_poller_create(&poller, &e);
}

static int teardown(void **state)
{
	(void)state;
	dr_mtu_rail_close(&server);
	dr_mtu_rail_close(&client);
	if (third >= 0)
		close(third);
	third = -1;
	dr_poller_destroy(poller);
	return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(ends_prove_themselves),
		CASE(silent_strangers_wait),
		CASE(server_asks_for_a_connection),
		CASE(client_asks_for_an_answer),
		CASE(silence_ends),
	};

	return cmocka_run_group_tests_name("rail of the MTU test", tests, NULL, NULL);
}
