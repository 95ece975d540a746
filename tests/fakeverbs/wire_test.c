/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"
#include "transport/verbs/hello.h"

#include "base/poller.h"

#include <poll.h>

/* The verbs path kind while the NICs and the wire do what they do: ports, GIDs, fences, slow calls. */

/* ---- the NIC and the wire --------------------------------------------------------------------- */

static void link_cut(struct pair *p)
{
	pair_credited(p);
	p->fake->cut("fake1", DR_FAKE_BOTH);
	assert_int_equal(pair_post_send(p, 0), 0);
	pair_until(p, p->e[S].failed);
	assert_int_equal(p->e[S].scope, DR_SCOPE_PATH);
	assert_int_equal(p->e[S].err, -ETIMEDOUT);
	assert_int_equal(p->e[S].count[DR_EV_SENT], 0);
	assert_true(pair_untouched(p, 0));
}

/* What was delivered while the acknowledgment got lost is told at R and never at S. */
static void acknowledgment_lost(struct pair *p)
{
	pair_credited(p);
	p->fake->cut("fake0", DR_FAKE_RX);
	assert_int_equal(pair_post_send(p, 0), 0);
	pair_until(p, p->e[S].failed);
	assert_int_equal(p->e[S].count[DR_EV_SENT], 0);
}

static void port_down(struct pair *p)
{
	unsigned node = p->nth / 2;

	p->doing = "port down";
	p->fake->port(node ? "fake1" : "fake0", false);
	pair_until(p, pair_any_failed(p));
	assert_true(p->e[node].failed || p->e[node].rail_failed);
	if (p->e[node].failed)
		assert_int_equal(p->e[node].scope, DR_SCOPE_RAIL);
}

/* Down and up again between two turns: FAILED is told with an error or not at all. */
static void port_flaps(struct pair *p)
{
	p->doing = "port flaps";
	p->fake->port("fake0", false);
	p->fake->port("fake0", true);
	pair_until(p, p->fake->count("ack_async_event") == 2);
	for (unsigned i = 0; i < 10; i++)
		pair_turn(p);
	p->e[S].rail_failed = 0;
	pair_transfer(p);
	if (!p->e[S].failed && !p->e[R].failed)
		pair_chatter(p);
}

/* The neighbour does not answer just when the address has moved: datagrams must find their way later. */
static void gid_moved_and_no_route(struct pair *p)
{
	int at;

	p->doing = "gid moved, create_ah fails";
	at = p->fake->gid_index("fake0", "127.0.0.1", IBV_GID_TYPE_ROCE_V2);
	p->fake->fail_call("create_ah", 1, ETIMEDOUT);
	assert_int_equal(p->fake->gid_move("fake0", at, at + 5), 0);
	pair_until(p, p->e[S].failed && p->fake->failed());
	pair_fence_both(p);
	pair_again(p);
}

/* The index of the address moves under a path that is up; the next generation uses the new one. */
static void gid_moved(struct pair *p)
{
	unsigned node = p->nth / 2;
	const char *dev = node ? "fake1" : "fake0";
	int at;

	p->doing = "gid moved";
	at = p->fake->gid_index(dev, node ? "127.0.0.2" : "127.0.0.1", IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(p->fake->gid_move(dev, at, at + 5), 0);
	pair_until(p, p->e[node].failed);
	pair_fence_both(p);
	assert_true(p->e[S].fenced && p->e[R].fenced);
	pair_again(p);
}

/* It moves after HELLO went out, and no event says so: the connector looks it up before it joins. */
static void gid_moved_while_greeting(struct pair *p)
{
	int at;

	pair_dial(p);
	p->doing = "HELLO";
	p->fake->fail_always("get_async_event", EAGAIN);
	p->began_ns = dr_now_ns();
	while (p->fake->count("post_send") == 0) {
		if (dr_now_ns() - p->began_ns > 15 * DR_NS_PER_S)
			pair_stuck(p, "HELLO");
		pair_turn_one(p, S);
	}
	at = p->fake->gid_index("fake0", "127.0.0.1", IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(p->fake->gid_move("fake0", at, at + 5), 0);
	p->doing = "gid moved";
	pair_expect_ready(p);
	pair_transfer(p);
	assert_false(pair_any_failed(p));
}

static void address_gone_and_back(struct pair *p)
{
	p->doing = "address gone";
	assert_int_equal(p->fake->addr_del("fake1", "127.0.0.2"), 0);
	pair_until(p, p->e[R].failed);
	pair_fence_both(p);
	assert_int_equal(p->fake->addr_add("fake1", "127.0.0.2"), 0);
	pair_again(p);
}

static void device_fatal(struct pair *p)
{
	assert_int_equal(pair_post_recv(p, 0), 0);
	p->doing = "device fatal";
	p->fake->no_flush("fake1", p->nth < 2);
	p->fake->fatal("fake1");
	pair_until(p, p->e[R].failed && p->e[R].rail_failed);
	assert_int_equal(p->e[R].rail_scope, DR_SCOPE_RAIL);
}

static void qp_fatal(struct pair *p)
{
	uint32_t qpn[8];

	assert_int_equal(p->fake->qp_list("fake1", IBV_QPT_RC, qpn, 8), 3 + DR_VERBS_PROBE_QPS);
	p->doing = "queue pair fatal";
	assert_int_equal(pair_post_recv(p, 0), 0);
	p->fake->no_flush("fake1", true);
	assert_int_equal(p->fake->qp_error(qpn[p->nth], true), 0);
	pair_until(p, p->e[R].failed);
}

/* ---- the queue pair of datagrams -------------------------------------------------------------- */

static uint32_t ud_of(struct pair *p, const char *dev)
{
	uint32_t qpn = 0;

	assert_int_equal(p->fake->qp_list(dev, IBV_QPT_UD, &qpn, 1), 1);
	return qpn;
}

static void count_apm(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	unsigned *n = arg;

	(void)component;
	*n += level == DR_LOG_WARN && strstr(text, "APM") && strstr(text, "fake0");
}

/* Migration by the NIC breaks nothing, and is reported once. */
static void path_migrated(struct pair *p)
{
	enum dr_log_level before = dr_log_level();
	unsigned told = 0;
	uint32_t qpn;

	p->doing = "path migrated";
	assert_int_not_equal(p->fake->qp_list("fake0", IBV_QPT_RC, &qpn, 1), 0);
	dr_log_set_level(DR_LOG_WARN);
	dr_log_set_sink(count_apm, &told);
	for (unsigned i = 0; i < 2; i++)
		p->fake->event("fake0", qpn, IBV_EVENT_PATH_MIG);
	pair_until(p, p->fake->count("ack_async_event") == 2);
	for (unsigned i = 0; i < 10; i++)
		pair_turn(p);
	dr_log_set_sink(NULL, NULL);
	dr_log_set_level(before);
	assert_int_equal(told, 1);
	pair_transfer(p);
	assert_false(pair_any_failed(p));
}

/* It breaks at an end that sends nothing, and still hears the peer. Told by completions, by an event, or by
 * both: the rail does not fail. */
static void broken_datagrams_work_again(struct pair *p)
{
	bool event = p->nth % 3 > 0, flushes = p->nth % 3 < 2;
	uint32_t qpn = ud_of(p, "fake1");

	p->fake->no_flush("fake1", !flushes);
	assert_int_equal(p->fake->qp_error(qpn, event), 0);
	p->doing = "datagrams broken";
	pair_until(p, p->fake->qp_state(qpn) == IBV_QPS_RTS);
	dr_verbs_ops.rail_dgram(p->e[S].rail, "gone", 4);
	pair_until(p, p->e[R].count[DR_EV_DGRAM] > 0);
	pair_transfer(p);
	assert_false(pair_any_failed(p));
}

/* FAILED of the rail is told when the reset fails, once, and what fails later is told again. */
static void broken_datagrams_that_stay_broken(struct pair *p)
{
	uint32_t qpn = ud_of(p, "fake1");

	p->fake->fail_always("modify_qp", EIO);
	assert_int_equal(p->fake->qp_error(qpn, true), 0);
	p->doing = "datagrams broken";
	pair_until(p, p->e[R].rail_failed == 1);
	assert_non_null(strstr(p->e[R].rail_text, "the datagram queue pair"));
	p->fake->fail_always("modify_qp", 0);
	pair_until(p, p->fake->qp_state(qpn) == IBV_QPS_RTS);
	p->e[R].rail_failed = 0;
	p->fake->port("fake1", false);
	pair_until(p, p->e[R].rail_failed == 1);
	assert_non_null(strstr(p->e[R].rail_text, "went down"));
}

/* ---- fences ----------------------------------------------------------------------------------- */

/* Completions that never come: the deadline has the queue pairs destroyed. */
static void fence_past_its_deadline(struct pair *p)
{
	int64_t deadline, fenced_ns;

	assert_int_equal(pair_post_recv(p, 0), 0);
	p->fake->no_flush(NULL, true);
	deadline = dr_now_ns() + 40 * DR_NS_PER_MS;
	pair_fence(p, R, deadline);
	pair_until(p, p->e[R].fenced);
	fenced_ns = dr_now_ns();
	assert_true(fenced_ns >= deadline);
	assert_true(p->fake->qp_list("fake1", IBV_QPT_RC, NULL, 0) <= 1); /* control */
}

/* What is out is counted back first, at both ends, however long that takes. */
static void fence_waits_for_the_count(struct pair *p)
{
	pair_credited(p);
	p->fake->hold("fake0", true);
	assert_int_equal(pair_post_send(p, 0), 0);
	p->fake->no_flush(NULL, true);
	pair_fence(p, R, DR_NEVER);
	pair_fence(p, S, DR_NEVER);
	for (unsigned i = 0; i < 50; i++)
		pair_turn(p);
	assert_false(p->e[S].fenced || p->e[R].fenced);
	p->fake->no_flush("fake0", false);
	pair_until(p, p->e[S].fenced);
	for (unsigned i = 0; i < 50; i++)
		pair_turn(p);
	assert_false(p->e[R].fenced);
	p->fake->no_flush("fake1", false);
	pair_until(p, p->e[R].fenced);
	p->fake->hold("fake0", false);
}

/* Also of a path that has failed: then it is told a second time, as the one exception. */
static void fence_that_cannot_destroy(struct pair *p)
{
	unsigned broken = p->nth;

	assert_int_equal(pair_post_recv(p, 0), 0);
	assert_int_equal(pair_post_recv(p, 1), 0); /* stays out */
	pair_until(p, p->e[S].count[DR_EV_CREDIT]);
	p->fake->no_flush(NULL, true);
	p->fake->fail_always("destroy_qp", EBUSY);
	p->doing = "break";
	if (broken) {
		p->fake->status("fake1", 0, true, IBV_WC_LOC_PROT_ERR, 0);
		(void)pair_post_send(p, 0);
		pair_until(p, p->e[R].failed);
	}
	pair_fence(p, R, dr_now_ns() + 20 * DR_NS_PER_MS);
	pair_until(p, broken ? p->e[R].fence_failed > 0 : p->e[R].failed);
	assert_int_equal(p->e[R].scope, DR_SCOPE_RAIL);
	for (unsigned i = 0; i < 20; i++)
		pair_turn(p);
	assert_false(p->e[R].fenced);
	pair_clean(p, true);
}

/* Whatever broke the path, work that the NICs can give back needs no deadline. */
static void fence_without_deadline(struct pair *p)
{
	static const char *const calls[] = { "", "modify_qp", "post_recv", "post_send" };
	unsigned i = p->nth;

	if (i >= 2)
		p->fake->fail_call(calls[i], 3, 0);
	pair_transfer(p);
	if (i <= 1)
		assert_int_equal(pair_post_recv(p, PAIR_MSGS), 0);
	if (i == 1) /* the receiver's data queue pair, with receives out, stays as it is */
		p->fake->fail_call(calls[i], 1, 0);
	pair_fence(p, R, DR_NEVER);
	pair_fence(p, S, DR_NEVER);
	p->doing = i ? calls[i] : "fence";
	pair_until(p, p->e[S].fenced && p->e[R].fenced);
}

enum { MANY_MSGS = 8, MANY = MANY_MSGS * DR_PARTS_MAX, MANY_LEN = 64 };

static struct dr_part many(struct pair *p, unsigned end, uint64_t seq, unsigned i)
{
	return (struct dr_part){ p->e[end].mr, (seq * DR_PARTS_MAX + i) * MANY_LEN, MANY_LEN, i };
}

/* More parts than one look takes, for S to flush. The first message goes last, and the others are told after it. */
static void post_many(struct pair *p)
{
	struct dr_part parts[DR_PARTS_MAX];
	struct dr_credit c;

	for (uint64_t seq = 0; seq < MANY_MSGS; seq++) {
		for (unsigned i = 0; i < DR_PARTS_MAX; i++)
			parts[i] = many(p, R, seq, i);
		assert_int_equal(
			dr_verbs_ops.post_recv(p->e[R].path, 1, seq, parts, DR_PARTS_MAX, 0), 0);
	}
	dr_verbs_ops.flush(p->e[R].path, dr_now_ns());
	for (uint64_t seq = MANY_MSGS; seq-- > 0;) {
		while (dr_verbs_ops.credit(p->e[S].path, 1, seq, &c) != 0)
			pair_turn_one(p, S);
		for (unsigned i = 0; i < DR_PARTS_MAX; i++) {
			parts[i] = many(p, S, seq, i);
			assert_int_equal(
				dr_verbs_ops.post_send(p->e[S].path, 1, seq, i, &parts[i]), 0);
		}
	}
}

/* It is all told first, whether the receiver has looked at some of it or at nothing. */
static void fence_after_parts_landed(struct pair *p)
{
	post_many(p);
	dr_verbs_ops.flush(p->e[S].path, dr_now_ns());
	for (unsigned i = 0; i < p->nth; i++)
		pair_turn_one(p, R);
	assert_true(p->e[R].count[DR_EV_DELIVERED] < MANY);
	pair_fence(p, R, DR_NEVER);
	pair_until(p, p->e[R].fenced);
	assert_int_equal(p->e[R].count[DR_EV_DELIVERED], MANY);
	assert_memory_equal(p->e[R].mem, p->e[S].mem, MANY * MANY_LEN);
}

/* A write that waits in the sender's NIC while the receiver fences finds nobody. */
static void late_write(struct pair *p)
{
	unsigned by_deadline = p->nth;

	pair_credited(p);
	p->fake->hold("fake0", true);
	assert_int_equal(pair_post_send(p, 0), 0);
	p->fake->no_flush("fake1", by_deadline);
	pair_fence(p, R, dr_now_ns() + (by_deadline ? 20 : 5000) * DR_NS_PER_MS);
	pair_until(p, p->e[R].fenced);
	memset(p->e[R].mem, 0x11, PAIR_MEM);
	p->fake->no_flush("fake1", false);
	p->fake->hold("fake0", false);
	pair_until(p, p->e[S].failed);
	assert_true(pair_untouched(p, 0x11));
	assert_int_equal(p->e[S].count[DR_EV_SENT], 0);
}

/* What earlier generations left in the completion queues is nobody's (rxe keeps it there). */
static void stale_completions(struct pair *p)
{
	p->fake->keep_cqes(true);
	pair_up(p);
	for (unsigned i = 0; i < 20; i++) {
		pair_transfer(p);
		assert_false(pair_any_failed(p));
		assert_int_equal(pair_post_recv(p, PAIR_MSGS), 0);
		assert_int_equal(pair_post_send(p, PAIR_MSGS), 0);
		if (i % 2)
			pair_fence_both(p);
		pair_again(p);
		pair_fence_both(p);
		pair_end_path(p);
		pair_dial_again(p);
		(void)pair_ready(p);
	}
}

/* ---- sleep ------------------------------------------------------------------------------------ */

static void empty(struct dr_poller *poller)
{
	while (dr_poller_wait(poller, 0) > 0)
		continue;
}

static void release(void *arg)
{
	((struct pair *)arg)->fake->hold("fake0", false);
}

/* What comes after the receiver's last look, before its queue is armed, makes no event. Each queue is armed alone: the others
 * are armed already. */
static void come_before_armed(struct pair *p)
{
	struct dr_poller *poller = p->poller; /* of the receiver alone */

	assert_int_equal(pair_listen_one(p, R), 0);
	p->poller = NULL;
	if (pair_listen_one(p, S) || pair_introduce(p) || pair_register(p) || pair_create(p) ||
		pair_connect(p))
		fail_msg("%s: %s", p->doing, p->error);
	pair_until(p, p->e[S].count[DR_EV_READY] && p->e[R].count[DR_EV_READY]);
	for (unsigned dgram = 0; dgram < 2; dgram++) {
		unsigned *n = &p->e[R].count[dgram ? DR_EV_DGRAM : DR_EV_DELIVERED];
		unsigned all = dgram ? 2 : MANY, armed;
		struct pollfd fd = { .fd = dr_poller_fd(poller), .events = POLLIN };

		empty(poller);
		dr_poller_rest(poller);
		if (dgram)
			dr_verbs_ops.rail_dgram(p->e[S].rail, "beat", 4);
		else
			post_many(p); /* its credits are sent: that is an event */
		empty(poller);
		p->fake->hold("fake0", true);
		if (dgram)
			dr_verbs_ops.rail_dgram(p->e[S].rail, "beat", 4);
		else
			dr_verbs_ops.flush(p->e[S].path, dr_now_ns());
		p->fake->before("req_notify_cq", release, p);
		armed = p->fake->count("req_notify_cq");
		dr_poller_rest(poller);
		assert_int_equal(p->fake->count("req_notify_cq"), armed + 1);
		assert_true(*n == all || poll(&fd, 1, 0) == 1);
		empty(poller);
		assert_int_equal(*n, all);
	}
	pair_fence_both(p);
	p->poller = poller;
	pair_clean(p, false);
}

/* ---- what blocks in the kernel ---------------------------------------------------------------- */

static void slow_neighbour(struct pair *p)
{
	unsigned before;

	p->fake->rtr(NULL, 300, 0);
	pair_dial(p);
	p->doing = "slow neighbour";
	/* Datagrams 2 x 3, INIT 2 x 3: the first RTR was begun. */
	pair_until(p, p->fake->count("modify_qp") > 12);
	before = p->turns;
	assert_true(pair_ready(p));
	/* Turns that wait for RTR are a handful. */
	assert_true(p->turns - before > 40);
}

static void no_neighbour(struct pair *p)
{
	p->fake->rtr("fake1", 50, ETIMEDOUT);
	pair_dial(p);
	p->doing = "no neighbour";
	pair_until(p, p->e[R].failed);
	assert_int_equal(p->e[R].scope, DR_SCOPE_PATH);
}

/* A path that is given up while its queue pairs are being led to the peer's. */
static void closed_while_joining(struct pair *p)
{
	unsigned turns = 3 * p->nth;

	p->fake->rtr(NULL, 5, 0);
	pair_dial(p);
	for (unsigned i = 0; i < turns * turns; i++)
		pair_turn(p);
	pair_clean(p, false);
}

static void datagrams_lost(struct pair *p)
{
	p->fake->drop(NULL, 5);
	pair_up(p);
	pair_transfer(p);
	assert_false(pair_any_failed(p));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { PAIR(link_cut, PAIR_ALONE, 1),
		PAIR(acknowledgment_lost, PAIR_ALONE, 1), PAIR(port_down, PAIR_BOTH, 4),
		PAIR(port_flaps, PAIR_BOTH, 2), PAIR(gid_moved_and_no_route, PAIR_POLLED, 1),
		PAIR(gid_moved, PAIR_BOTH, 4), PAIR(gid_moved_while_greeting, PAIR_BARE, 1),
		PAIR(address_gone_and_back, PAIR_POLLED, 1), PAIR(device_fatal, PAIR_BOTH, 4),
		PAIR(qp_fatal, PAIR_POLLED, 3 + DR_VERBS_PROBE_QPS),
		PAIR(path_migrated, PAIR_ALONE, 1), PAIR(broken_datagrams_work_again, PAIR_BOTH, 6),
		PAIR(broken_datagrams_that_stay_broken, PAIR_ALONE, 1),
		PAIR(fence_past_its_deadline, PAIR_BOTH, 2),
		PAIR(fence_waits_for_the_count, PAIR_BOTH, 2),
		PAIR(fence_that_cannot_destroy, PAIR_BOTH, 2),
		PAIR(fence_without_deadline, PAIR_ALONE, 4),
		PAIR(fence_after_parts_landed, PAIR_ALONE, 3), PAIR(late_write, PAIR_ALONE, 2),
		PAIR(come_before_armed, PAIR_POLLED | PAIR_BARE, 1),
		PAIR(stale_completions, PAIR_BOTH | PAIR_BARE, 2),
		PAIR(slow_neighbour, PAIR_BOTH | PAIR_BARE, 2), PAIR(no_neighbour, PAIR_BARE, 1),
		PAIR(closed_while_joining, PAIR_BARE, 20), PAIR(datagrams_lost, PAIR_BARE, 1) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
