/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

#include "base/mem.h"

/*
 * The verbs path kind on the fake NICs, one fault at a time. Each must end in the call's error with words
 * or in FAILED, and then in a fence that ends; never in a hang, a crash, a leak or misuse of verbs.
 */

/* ---- one call fails --------------------------------------------------------------------------- */

static bool destroys(const char *call)
{
	return strncmp(call, "de", 2) == 0 || strcmp(call, "close_device") == 0;
}

static unsigned reported; /* times that stop or mr_dereg returned an error */

/* One life with the k-th such call failing; false: there is no k-th. */
static bool life_with(const char *call, unsigned k, bool poller)
{
	const char *failed;
	struct pair p;

	pair_init(&p, poller);
	p.vp.lazy_mr = poller;
	p.fake->fail_call(call, k, 0);
	pair_life(&p);
	pair_shut(&p);
	failed = p.fake->failed();
	for (unsigned i = 0; i < 2; i++)
		reported += (p.e[i].stop_rc != 0) + (p.e[i].dereg_rc != 0);
	pair_clean(&p, failed && destroys(failed));
	return failed != NULL;
}

static void each_call(bool poller)
{
	static const char *const calls[] = { "get_device_list", "open_device", "query_device",
		"query_port", "query_gid_ex", "query_gid_table", "get_async_event", "alloc_pd",
		"dealloc_pd", "reg_mr", "dereg_mr", "create_comp_channel", "destroy_comp_channel",
		"create_cq", "destroy_cq", "get_cq_event", "create_qp", "modify_qp", "query_qp",
		"destroy_qp", "create_ah", "destroy_ah", "close_device", "post_send", "post_recv",
		"poll_cq", "req_notify_cq" };
	unsigned runs = 0, i, k;

	for (i = 0; i < DR_ARRAY_LEN(calls); i++) {
		reported = 0;
		/* What is called in each round has no last call; the first ones are enough. */
		for (k = 1; k <= 40 && life_with(calls[i], k, poller); k += k < 16 ? 1 : 5)
			runs++;
		print_message("%s: %u\n", calls[i], k - 1);
		/* Of regions alone, since the queue pairs are fenced. How often: the helpers take part in the order. */
		assert_true(reported == 0 || strcmp(calls[i], "dereg_mr") == 0);
	}
	assert_true(runs > 60);
}

static void each_call_failing(void **state)
{
	(void)state;
	each_call(false);
}

static void each_call_failing_poller(void **state)
{
	(void)state;
	each_call(true);
}

/* Memory runs out at the n-th allocation. */
static void each_allocation_failing(void **state)
{
	(void)state;
	for (unsigned poller = 0; poller < 2; poller++)
		for (long n = 1; n <= 60; n++) {
			struct pair p;

			pair_init(&p, poller);
			dr_mem_fail_after(n);
			pair_life(&p);
			dr_mem_fail_after(-1);
			pair_clean(&p, false);
		}
}

static void no_fault(void **state)
{
	struct pair p;

	(void)state;
	for (unsigned poller = 0; poller < 2; poller++) {
		pair_init(&p, poller);
		pair_life(&p);
		assert_false(pair_any_failed(&p));
		assert_int_equal(p.e[R].count[DR_EV_CTRL], 1);
		pair_clean(&p, false);
	}
}

/* ---- completion statuses ---------------------------------------------------------------------- */

struct meaning {
	enum dr_scope scope;
	int err; /* 0: any */
};

/* Only a fatal error of the NIC takes the rail along. */
static struct meaning meaning_of(enum ibv_wc_status s)
{
	switch (s) {
	case IBV_WC_FATAL_ERR:
		return (struct meaning){ DR_SCOPE_RAIL, 0 };
	case IBV_WC_RETRY_EXC_ERR:
		return (struct meaning){ DR_SCOPE_PATH, -ETIMEDOUT };
	case IBV_WC_WR_FLUSH_ERR:
		return (struct meaning){ DR_SCOPE_PATH, -ECONNRESET };
	default:
		return (struct meaning){ DR_SCOPE_PATH, 0 };
	}
}

static void one_status(enum ibv_wc_status s, bool recv, unsigned skip)
{
	unsigned end = recv ? R : S;
	struct meaning m = meaning_of(s);
	struct pair p;

	pair_init(&p, false);
	pair_up(&p);
	p.fake->status(recv ? "fake1" : "fake0", 0, recv, s, skip);
	pair_transfer(&p);
	p.doing = "status";
	pair_until(&p, p.e[end].failed || p.e[end].count[DR_EV_FAILED]);
	assert_true(p.fake->status_done(NULL, recv));
	if (p.e[end].scope != m.scope)
		fail_msg("status %d at a %s: scope %s: %s", (int)s, recv ? "receive" : "send",
			dr_scope_name(p.e[end].scope), p.e[end].text);
	if (m.err)
		assert_int_equal(p.e[end].err, m.err);
	pair_end(&p);
}

static void each_status(void **state)
{
	(void)state;
	for (int s = IBV_WC_LOC_LEN_ERR; s <= IBV_WC_TM_RNDV_INCOMPLETE; s++)
		for (unsigned recv = 0; recv < 2; recv++)
			for (unsigned skip = 0; skip < 3; skip++)
				one_status((enum ibv_wc_status)s, recv, skip);
}

/* The datagrams' queue pair: whatever it says, paths work on or fail cleanly. */
static void each_status_of_datagrams(void **state)
{
	uint32_t qpn;

	(void)state;
	for (int s = IBV_WC_LOC_LEN_ERR; s <= IBV_WC_TM_RNDV_INCOMPLETE; s++)
		for (unsigned recv = 0; recv < 2; recv++) {
			struct pair p;

			pair_init(&p, false);
			pair_up(&p);
			assert_int_equal(
				p.fake->qp_list(recv ? "fake1" : "fake0", IBV_QPT_UD, &qpn, 1), 1);
			p.fake->status(
				recv ? "fake1" : "fake0", qpn, recv, (enum ibv_wc_status)s, 0);
			dr_verbs_ops.rail_dgram(p.e[S].rail, "beat", 4);
			pair_transfer(&p);
			pair_fence_both(&p);
			pair_clean(&p, false);
		}
}

/* ---- faults at any time ----------------------------------------------------------------------- */

static void cut_all(struct pair *p, bool heal)
{
	p->fake->cut("fake1", heal ? 0 : DR_FAKE_BOTH);
}

static void cut_acks(struct pair *p, bool heal)
{
	p->fake->cut("fake0", heal ? 0 : DR_FAKE_RX);
}

static const char *nic(const struct pair *p)
{
	return p->nth ? "fake1" : "fake0";
}

static void pull(struct pair *p, bool heal)
{
	p->fake->port(nic(p), heal);
}

static void kill_nic(struct pair *p, bool heal)
{
	if (!heal)
		p->fake->fatal(nic(p));
}

static void unplug(struct pair *p, bool heal)
{
	if (heal)
		(void)p->fake->plug(nic(p), 6);
	else
		p->fake->unplug(nic(p), p->nth && p->fault_after % 2);
}

static void move_gid(struct pair *p, bool heal)
{
	(void)p->fake->gid_move("fake1", heal ? 9 : 3, heal ? 3 : 9);
}

static void lose_address(struct pair *p, bool heal)
{
	if (heal)
		(void)p->fake->addr_add("fake0", "127.0.0.1");
	else
		(void)p->fake->addr_del("fake0", "127.0.0.1");
}

static void break_qps(struct pair *p, bool heal)
{
	uint32_t qpn[8];
	unsigned n = heal ? 0 : p->fake->qp_list("fake1", IBV_QPT_RC, qpn, 8);

	if (n > 0)
		(void)p->fake->qp_error(qpn[p->fault_after % n], p->fault_after % 2);
}

static void break_datagrams(struct pair *p, bool heal)
{
	uint32_t qpn;

	if (!heal && p->fake->qp_list("fake0", IBV_QPT_UD, &qpn, 1) == 1)
		(void)p->fake->qp_error(qpn, p->fault_after % 2);
}

/* The same faults at every point of a life, for 30 ms or for good. */
static void faults_at_any_time(void **state)
{
	static void (*const faults[])(struct pair *, bool) = { cut_all, cut_acks, pull, pull,
		kill_nic, kill_nic, unplug, unplug, move_gid, lose_address, break_qps,
		break_datagrams };
	unsigned i, after;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(faults); i++)
		for (after = 0; after<190; after += after> 130 ? 3 : 17) {
			struct pair p;

			pair_init(&p, (i + after) % 2);
			p.fault = faults[i];
			p.nth = i % 2; /* of a fault that is listed twice: the NIC */
			p.fault_after = after;
			p.vp.lazy_mr = after % 2;
			p.vp.qps = 1 + after % DR_VERBS_QPS_MAX;
			p.fake->latency(NULL, after % 3 ? 300 * DR_NS_PER_US : 0);
			pair_life(&p);
			pair_clean(&p, false);
		}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(no_fault),
		cmocka_unit_test(each_call_failing), cmocka_unit_test(each_call_failing_poller),
		cmocka_unit_test(each_allocation_failing), cmocka_unit_test(each_status),
		cmocka_unit_test(each_status_of_datagrams), cmocka_unit_test(faults_at_any_time) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
