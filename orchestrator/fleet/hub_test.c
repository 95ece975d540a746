/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "orchestrator/fleet/hub.h"

/* Strangers at the coordinator's port; source addresses are those of the loopback device. */

enum { STRANGERS = 300 };
#define BOUND_NS (20 * DR_NS_PER_S)

static struct dr_poller *poller;
static struct dr_hub *hub;
static bool opened;

static void local(void *arg, const json_t *msg)
{
	(void)arg, (void)msg;
}

static void look(void *arg)
{
	(void)arg;
}

static void log_sink(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)level, (void)component, (void)text, (void)arg;
}

static void on_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	(void)l, (void)now_ns;
	opened |= ev->kind == DR_CONV_OPENED;
}

static int silent_from(const char *host)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(inet_pton(AF_INET, host, &sa.sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	sa.sin_port = htons(hub->port);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	(void)connect(fd, (struct sockaddr *)&sa, sizeof(sa));
	return fd;
}

static unsigned links(void)
{
	unsigned n = 0;

	for (const struct dr_link *l = hub->links; l; l = l->next)
		n += l->state == DR_LINK_UP;
	return n;
}

static void turn(struct dr_link **mine)
{
	int64_t now;

	assert_true(dr_poller_wait(poller, 5 * DR_NS_PER_MS) >= 0);
	now = dr_now_ns();
	dr_hub_tick(hub, now);
	dr_links_tick(mine, now);
}

/* A node dials from 127.0.0.1, until its conversation is open. */
static struct dr_link *dial(struct dr_link **mine)
{
	static const struct dr_link_ops ops = { .event = on_event };
	struct dr_link_opts o = { .list = mine,
		.poller = poller,
		.ops = &ops,
		.silent_ns = BOUND_NS,
		.conv = { .role = DR_CONV_CLIENT, .stage_ns = BOUND_NS } };
	int64_t end = dr_now_ns() + BOUND_NS;
	struct dr_addr to;
	struct dr_link *l;

	opened = false;
	assert_int_equal(dr_addr_parse("127.0.0.1", &to), 0);
	dr_sa_set_port(&to.ss, hub->port);
	o.conv.hello.purpose = DR_CONV_NEW;
	assert_int_equal(dr_random_bytes(o.conv.ephemeral, sizeof(o.conv.ephemeral)), 0);
	assert_int_equal(dr_link_dial(&o, &to, NULL, dr_now_ns(), &l), 0);
	while (!opened) {
		assert_true(dr_now_ns() < end);
		turn(mine);
		assert_true(links() <= DR_ACCEPTOR_PENDING_MAX);
	}
	return l;
}

static void a_node_joins_beside_silent_strangers(void **state)
{
	static int fd[STRANGERS];
	struct dr_link *mine = NULL;
	int64_t end = dr_now_ns() + BOUND_NS;

	(void)state;
	for (unsigned i = 0; i < STRANGERS; i++)
		fd[i] = silent_from("127.0.0.2");
	while (links() < 48) {
		assert_true(dr_now_ns() < end);
		turn(&mine);
	}
	(void)dial(&mine);
	dr_links_free(&mine);
	for (unsigned i = 0; i < STRANGERS; i++)
		close(fd[i]);
}

/* What is freed is overwritten, so that a look at it shows. A sanitizer does that by itself. */
static void a_node_is_lost_when_memory_for_an_order_is_short(void **state)
{
	struct dr_link *mine = NULL, *l = dial(&mine);
	int64_t end = dr_now_ns() + BOUND_NS;
	json_t *offer = json_pack("{s:i,s:i,s:i,s:s,s:i,s:[]}", "sweep", DR_SWEEP_VERSION, "rank",
		1, "nodes", 2, "host", "other", "port", 20001, "nics");
	char text[4096] = "";

	(void)state;
	(void)mallopt(M_PERTURB, 0xa5);
	snprintf(hub->node[1].host, sizeof(hub->node[1].host), "192.0.2.1"); /* of a host file */
	assert_int_equal(dr_conv_send_json(&l->conv, DR_CONV_FRAME_OFFER, 0, offer), 0);
	dr_link_wake(l);
	while (!hub->end[1].link) {
		assert_true(dr_now_ns() < end);
		turn(&mine);
	}
	assert_string_equal(hub->node[1].host, "other");
	memset(text, '.', sizeof(text) - 1);
	dr_mem_fail_after(1);
	dr_hub_say_end(hub, 0, text);
	dr_mem_fail_after(-1);
	dr_hub_tick(hub, dr_now_ns());
	assert_null(hub->end[1].link);
	assert_int_equal(hub->node[1].presence, DR_SWEEP_LOST);
	(void)mallopt(M_PERTURB, 0);
	json_decref(offer);
	dr_links_free(&mine);
}

static int setup(void **state)
{
	struct dr_hub_opts o = {
		.coord = { .nodes = 2, .join_ns = 2 * BOUND_NS, .pair_ns = DR_NS_PER_S },
		.control = "127.0.0.1",
		.local = local,
		.look = look
	};
	struct dr_err e;

	(void)state;
	dr_log_set_sink(log_sink, NULL);
	if (dr_poller_create(&poller, &e))
		return -1;
	o.poller = poller;
	return dr_hub_create(&hub, &o, &e);
}

static int teardown(void **state)
{
	(void)state;
	dr_hub_destroy(hub);
	dr_poller_destroy(poller);
	dr_log_set_sink(NULL, NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_node_joins_beside_silent_strangers, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_node_is_lost_when_memory_for_an_order_is_short, setup, teardown),
	};

	return cmocka_run_group_tests_name("coordinator's port", tests, NULL, NULL);
}
