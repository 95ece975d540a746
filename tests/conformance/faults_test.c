/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/harness.h"

#include "base/log.h"

/*
 * The faults that other tests rely on do what their headers say: those of the simulated world
 * (tests/sim/sim.h) and of the wrapper (tests/faulty/faulty.h). A fault that does nothing would
 * make every test above it pass.
 */

enum { STREAM, RW, PLUGIN, SIMS, WRAPPED = 3 };
static const struct cf_kind sims[SIMS] = {
	[STREAM] = { .name = "sim-stream", .personality = DR_SIM_STREAM },
	[RW] = { .name = "sim-remote-write", .personality = DR_SIM_REMOTE_WRITE },
	[PLUGIN] = { .name = "sim-plugin", .personality = DR_SIM_PLUGIN },
};
static const struct cf_kind wrapped[WRAPPED] = {
	{ .name = "faulty(sim-stream)", .personality = DR_SIM_STREAM, .faulty = true },
	{ .name = "faulty(sim-remote-write)", .personality = DR_SIM_REMOTE_WRITE, .faulty = true },
	{ .name = "faulty(tcp)+poller", .transport = "tcp", .faulty = true, .poller = true },
};

/* A test that runs on each of these kinds, with its rails up. */
struct fault_test {
	void (*run)(struct cf *f);
	const struct cf_kind *kinds;
	size_t n;
};
#define ON(kinds, n, test)                                                                         \
	((struct CMUnitTest){                                                                      \
		#test, fault_test, NULL, NULL, &(struct fault_test){ test, kinds, n } })

static void fault_test(void **state)
{
	const struct fault_test *t = *state;

	for (size_t i = 0; i < t->n; i++) {
		const char *why = NULL;
		struct cf f;

		if (!cf_kind_ops(&t->kinds[i], &why)) {
			print_message("SKIP %s: %s\n", t->kinds[i].name, why);
			continue;
		}
		cf_open(&f, &t->kinds[i]);
		t->run(&f);
		cf_shut(&f);
	}
}

enum { N = 8, LEN = 128 << 10 };

/* Path up, N messages posted and credited, in flight from here on. */
static void start(struct cf *f)
{
	cf_memory(f, (size_t)N * LEN);
	cf_up(f, 1);
	for (uint64_t seq = 0; seq < N; seq++) {
		struct dr_part part = cf_part(f, R, seq * LEN, LEN);

		cf_fill(f->end[S].mem + seq * LEN, seq, 0, LEN);
		cf_recv(f, 1, seq, &part, 1, 0);
	}
	cf_until(f, f->end[S].count[DR_EV_CREDIT] == N);
}

static void send_all(struct cf *f)
{
	for (uint64_t seq = 0; seq < N; seq++)
		cf_send(f, 1, seq, 0, seq * LEN, LEN);
}

static void all_there(struct cf *f)
{
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == N);
	for (uint64_t seq = 0; seq < N; seq++)
		cf_check(f->end[R].mem + seq * LEN, seq, 0, LEN);
}

/* The same from the beginning. */
static void again(struct cf *f, const struct cf_kind *k)
{
	cf_shut(f);
	cf_open(f, k);
	start(f);
}

static const struct dr_event *failed(struct cf *f, unsigned end)
{
	cf_until(f, f->end[end].count[DR_EV_FAILED] == 1);
	return &cf_nth(&f->end[end], DR_EV_FAILED, 0)->ev;
}

static uint64_t hash_of_run(struct cf *f, int64_t clog_ns)
{
	again(f, f->kind);
	send_all(f);
	if (clog_ns)
		dr_sim_clog(f->world, 0, DR_SIM_BOTH, clog_ns);
	all_there(f);
	return dr_sim_world_hash(f->world);
}

static void test_repeatable(struct cf *f)
{
	uint64_t first = hash_of_run(f, 0);

	assert_true(hash_of_run(f, 0) == first);
	assert_true(hash_of_run(f, DR_NS_PER_MS) != first);
}

/* A black hole shorter than the retries is survived; the data comes late and once. */
static void test_cut_heals(struct cf *f)
{
	struct dr_path_stats st;

	start(f);
	send_all(f);
	dr_sim_cut(f->world, 0, DR_SIM_BOTH, true);
	cf_run(f, 50 * DR_NS_PER_MS);
	assert_true(dr_sim_link_is_cut(f->world, 0, 1));
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	dr_sim_cut(f->world, 0, DR_SIM_BOTH, false);
	all_there(f);
	f->ops->stats(f->end[S].path, &st);
	assert_true(st.retransmits > 0 && st.acked_bytes > 0);
}

/* Data arrives, its acknowledgements do not: a NIC reports an error although all is delivered; a
 * stream waits. */
static void test_one_way_cut(struct cf *f)
{
	struct dr_path_stats st;

	start(f);
	dr_sim_cut(f->world, 0, DR_SIM_NODE1, true);
	cf_send(f, 1, 0, 0, 0, LEN);
	assert_int_equal(failed(f, S)->err, -ETIMEDOUT);
	assert_true(cf_delivered_at(&f->end[R], 0, 0) >= 0);
	assert_int_equal(f->end[S].count[DR_EV_SENT], 0);
	assert_int_equal(f->end[R].count[DR_EV_FAILED], 0);
	again(f, &sims[STREAM]);
	dr_sim_cut(f->world, 0, DR_SIM_NODE1, true);
	cf_send(f, 1, 0, 0, 0, LEN);
	cf_run(f, 10 * DR_NS_PER_S);
	assert_true(cf_delivered_at(&f->end[R], 0, 0) >= 0);
	f->ops->stats(f->end[S].path, &st);
	assert_true(st.unacked_bytes >= LEN && st.peer_ack_age_ns >= 10 * DR_NS_PER_S);
	assert_int_equal(f->end[S].count[DR_EV_FAILED], 0);
}

static size_t changed(const uint8_t *mem, size_t len, uint8_t from)
{
	size_t i, n = 0;

	for (i = 0; i < len; i++)
		n += mem[i] != from;
	return n;
}

/* Writes in flight when the sender fenced land until the receiver has fenced, and not after. */
static void test_zombies(struct cf *f)
{
	struct dr_sim_link l;
	size_t before, after;

	start(f);
	dr_sim_link_get(f->world, 0, 0, &l);
	l.bits_per_s = 0; /* all of a window leaves at once */
	dr_sim_link_set(f->world, 0, DR_SIM_BOTH, &l);
	send_all(f);
	dr_sim_fence_time(f->world, 0, 0, 0, false);
	f->ops->fence(f->end[S].path, cf_now(f) + DR_NS_PER_S);
	cf_until(f, f->end[S].count[DR_EV_FENCED] == 1);
	memset(f->end[S].mem, 0, f->end[S].mem_len);
	before = changed(f->end[R].mem, f->end[R].mem_len, 0xee);
	cf_run(f, 5 * DR_NS_PER_MS);
	after = changed(f->end[R].mem, f->end[R].mem_len, 0xee);
	assert_true(after > before);
	for (size_t k = 0; k < f->end[R].mem_len; k++)
		assert_true(f->end[R].mem[k] == 0xee ||
			    f->end[R].mem[k] == cf_byte(k / LEN, 0, k % LEN));
	f->ops->fence(f->end[R].path, cf_now(f) + DR_NS_PER_S);
	cf_until(f, f->end[R].count[DR_EV_FENCED] == 1);
}

/* The checker sees a write into, and a read from, what its user has back. */
static void test_violations(struct cf *f)
{
	struct dr_part part;

	start(f);
	f->violations_wanted = true;
	dr_sim_world_give_back(f->world, f->end[R].mem + 10, 10);
	cf_send(f, 1, 0, 0, 0, LEN);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
	assert_true(dr_sim_world_violations(f->world) > 0);
	assert_non_null(strstr(dr_sim_world_violation(f->world), "written"));
	again(f, f->kind);
	f->violations_wanted = true;
	cf_send(f, 1, 0, 0, 0, LEN);
	dr_sim_world_give_back(f->world, f->end[S].mem, LEN);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
	assert_non_null(strstr(dr_sim_world_violation(f->world), "read from"));
	/* one buffer posted twice: the first delivery gave it back */
	again(f, f->kind);
	f->violations_wanted = true;
	part = cf_part(f, R, 0, LEN);
	cf_recv(f, 1, N, &part, 1, 0);
	send_all(f);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == N);
	assert_int_equal(dr_sim_world_violations(f->world), 0);
	cf_until(f, f->end[S].count[DR_EV_CREDIT] == N + 1);
	cf_send(f, 1, N, 0, 0, LEN);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == N + 1);
	assert_non_null(strstr(dr_sim_world_violation(f->world), "written into memory"));
	again(f, &sims[STREAM]);
	f->violations_wanted = true;
	assert_int_equal(f->ops->mr_dereg(f->end[R].rail, f->end[R].mr), 0);
	f->end[R].mr = NULL;
	assert_non_null(strstr(dr_sim_world_violation(f->world), "deregisters"));
}

static void completion(struct cf *f, enum dr_sim_wc wc)
{
	again(f, f->kind);
	assert_int_equal(dr_sim_next_completion(f->end[S].path, wc, 3 * DR_NS_PER_MS), 0);
	cf_send(f, 1, 0, 0, 0, LEN);
}

static void test_completions(struct cf *f)
{
	int64_t at;

	completion(f, DR_SIM_WC_SENT_LATE);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
	at = cf_now(f);
	cf_until(f, f->end[S].count[DR_EV_SENT] == 1);
	assert_true(cf_now(f) - at > 2 * DR_NS_PER_MS);
	completion(f, DR_SIM_WC_SENT_LOST);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 1);
	assert_int_equal(f->end[S].count[DR_EV_SENT], 0);
	f->ops->fence(f->end[S].path, DR_NEVER);
	cf_until(f, f->end[S].count[DR_EV_FENCED] == 1);
	completion(f, DR_SIM_WC_RECV_LATE);
	cf_until(f, f->end[S].count[DR_EV_SENT] == 1);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
	completion(f, DR_SIM_WC_RECV_LOST);
	cf_send(f, 1, 1, 0, LEN, LEN);
	cf_quiet(f);
	assert_int_equal(f->end[S].count[DR_EV_SENT], 2);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0); /* the head is missing */
	cf_check(f->end[R].mem, 0, 0, LEN);
	completion(f, DR_SIM_WC_ERR_UNTOLD);
	assert_int_equal(failed(f, S)->err, -EIO);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	cf_check(f->end[R].mem, 0, 0, LEN);
}

static void test_errors_of_completions(struct cf *f)
{
	completion(f, DR_SIM_WC_ERR_LANDED);
	assert_int_equal(failed(f, S)->err, -EIO);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 1);
	completion(f, DR_SIM_WC_ERR_DROPPED);
	assert_int_equal(failed(f, S)->err, -EIO);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	if (f->kind == &sims[STREAM])
		assert_int_equal(
			dr_sim_next_completion(f->end[S].path, DR_SIM_WC_SENT_LOST, 0), -ENOTSUP);
}

static void test_clog(struct cf *f)
{
	start(f);
	send_all(f);
	dr_sim_clog(f->world, 0, DR_SIM_NODE0, 5 * DR_NS_PER_MS);
	cf_run(f, 4 * DR_NS_PER_MS);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	all_there(f);
}

static void test_link_down(struct cf *f)
{
	const struct dr_event *ev;

	start(f);
	dr_sim_link_down(f->world, 0, DR_SIM_NODE0, DR_NS_PER_MS, true);
	ev = failed(f, S);
	assert_int_equal(ev->scope, DR_SCOPE_RAIL);
	assert_int_equal(ev->err, -ENETDOWN);
	cf_until(f, f->end[S].rail_count[DR_EV_FAILED] == 1);
	cf_quiet(f);
	assert_int_equal(f->end[R].rail_count[DR_EV_FAILED], 0);
	cf_destroy(f, S);
	cf_destroy(f, R);
	cf_create(f, S, 2, S);
	assert_int_equal(cf_connect(f, S), 0);
	assert_int_equal(failed(f, S)->scope, DR_SCOPE_RAIL);
	cf_destroy(f, S);
	dr_sim_link_up(f->world, 0);
	cf_up(f, 3);
}

static void test_dgrams(struct cf *f)
{
	struct dr_sim_link l;

	dr_sim_mute_dgrams(f->world, 0, DR_SIM_NODE0, true);
	f->ops->rail_dgram(f->end[S].rail, "a", 1);
	f->ops->rail_dgram(f->end[R].rail, "b", 1);
	cf_quiet(f);
	assert_int_equal(f->end[R].rail_count[DR_EV_DGRAM], 0);
	assert_int_equal(f->end[S].rail_count[DR_EV_DGRAM], 1);
	start(f); /* the rest is not touched */
	dr_sim_mute_dgrams(f->world, 0, DR_SIM_NODE0, false);
	dr_sim_link_get(f->world, 0, 0, &l);
	l.dgram_dup_ppm = 1000000;
	dr_sim_link_set(f->world, 0, DR_SIM_NODE0, &l);
	f->ops->rail_dgram(f->end[S].rail, "a", 1);
	cf_quiet(f);
	assert_int_equal(f->end[R].rail_count[DR_EV_DGRAM], 2);
	l.dgram_loss_ppm = 1000000;
	dr_sim_link_set(f->world, 0, DR_SIM_NODE0, &l);
	f->ops->rail_dgram(f->end[S].rail, "a", 1);
	cf_quiet(f);
	assert_int_equal(f->end[R].rail_count[DR_EV_DGRAM], 2);
}

static void test_credit_lost(struct cf *f)
{
	struct dr_part part;

	start(f);
	send_all(f);
	all_there(f);
	assert_int_equal(dr_sim_drop_credit(f->end[R].path), 0);
	part = cf_part(f, R, 0, LEN);
	cf_recv(f, 1, N, &part, 1, 0);
	assert_int_equal(failed(f, R)->err, -EIO);
	assert_int_equal(f->end[S].count[DR_EV_CREDIT], N);
	again(f, &sims[STREAM]);
	assert_int_equal(dr_sim_drop_credit(f->end[R].path), -ENOTSUP);
}

static void test_fence_time(struct cf *f)
{
	int64_t at;

	start(f);
	at = cf_now(f);
	dr_sim_fence_time(f->world, 0, 1, DR_NS_PER_S, false);
	f->ops->fence(f->end[R].path, at + 10 * DR_NS_PER_MS);
	cf_until(f, f->end[R].count[DR_EV_FENCED] == 1);
	assert_int_equal(cf_now(f) - at, 10 * DR_NS_PER_MS);
	dr_sim_fence_time(f->world, 0, 0, 0, true);
	f->ops->fence(f->end[S].path, cf_now(f) + 10 * DR_NS_PER_MS);
	assert_int_equal(failed(f, S)->scope, DR_SCOPE_RAIL);
	assert_int_equal(f->end[S].count[DR_EV_FENCED], 0);
}

static void test_kill(struct cf *f)
{
	start(f);
	send_all(f);
	dr_sim_kill(f->world, 1);
	assert_int_equal(failed(f, S)->err, -ECONNRESET);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_FAILED], 0);
	cf_destroy(f, S);
	cf_create(f, S, 2, S);
	assert_int_equal(f->ops->connect(f->end[S].path, NULL, 0, cf_now(f), NULL), 0);
	if (f->kind->personality == DR_SIM_REMOTE_WRITE) { /* HELLO finds nobody */
		cf_run(f, 50 * DR_NS_PER_MS);
		assert_int_equal(f->end[S].count[DR_EV_FAILED], 0);
	} else {
		assert_int_equal(failed(f, S)->err, -ECONNREFUSED);
	}
}

/* A process that does not run: its NIC lands writes, its kernel takes and acknowledges bytes. */
static void test_stall(struct cf *f)
{
	struct dr_path_stats st;
	struct dr_path *r;

	start(f);
	send_all(f);
	r = f->end[R].path;
	f->end[R].path = NULL; /* cf_turn leaves it alone */
	while (dr_sim_world_next(f->world) != DR_NEVER || cf_progress(f, S) > 0)
		dr_sim_world_step(f->world, dr_sim_world_next(f->world));
	f->ops->stats(f->end[S].path, &st);
	assert_true(st.acked_bytes >= 3 * LEN);
	assert_true((changed(f->end[R].mem, LEN, 0xee) > 0) == (f->kind != &sims[STREAM]));
	f->end[R].path = r;
	all_there(f);
}

static void test_parked_expires(struct cf *f)
{
	cf_create(f, S, 1, S);
	assert_int_equal(cf_connect(f, S), 0);
	assert_int_equal(failed(f, S)->err, -ECONNRESET);
	assert_true(cf_now(f) >= 5 * DR_NS_PER_S && cf_now(f) < 6 * DR_NS_PER_S);
	assert_int_equal(f->end[R].rail_count[DR_EV_INCOMING], 1);
}

/* ---- the wrapper ------------------------------------------------------------------------------- */

static void test_wrapper_storm(struct cf *f)
{
	f->faulty->o.eagain_ppm = 500000;
	f->faulty->o.hold_ppm = 300000;
	f->faulty->o.hold_calls = 3;
	start(f);
	send_all(f);
	all_there(f);
	assert_true(f->faulty->injected > 0);
}

static void test_wrapper_fails(struct cf *f)
{
	const struct dr_event *ev;
	uint64_t posts;

	start(f);
	f->faulty->o.fail_at_event = f->faulty->events + 1;
	f->faulty->o.fail_err = -ENODEV;
	f->faulty->o.fail_scope = DR_SCOPE_RAIL;
	cf_send(f, 1, 0, 0, 0, LEN);
	cf_until(f, f->end[S].count[DR_EV_FAILED] + f->end[R].count[DR_EV_FAILED] == 1);
	ev = failed(f, f->end[S].count[DR_EV_FAILED] ? S : R);
	assert_int_equal(ev->err, -ENODEV);
	assert_int_equal(ev->scope, DR_SCOPE_RAIL);
	assert_int_equal(f->faulty->injected, 1);
	again(f, f->kind);
	posts = f->faulty->posts;
	f->faulty->o.fail_at_post = posts + 2;
	cf_ctrl(f, S, "1", 1);
	cf_ctrl(f, S, "2", 1);
	assert_int_equal(failed(f, S)->err, -EIO);
	assert_true(dr_path_post_ctrl(f->end[S].path, "3", 1) < 0);
	f->ops->fence(f->end[S].path, cf_now(f) + DR_NS_PER_S);
	cf_until(f, f->end[S].count[DR_EV_FENCED] == 1);
}

static void test_wrapper_fence(struct cf *f)
{
	int64_t deadline;

	start(f);
	f->faulty->o.withhold_fenced = true;
	f->faulty->o.dgram_loss_ppm = 1000000;
	f->ops->rail_dgram(f->end[S].rail, "x", 1);
	deadline = cf_now(f) + 20 * DR_NS_PER_MS;
	f->ops->fence(f->end[S].path, deadline);
	cf_until(f, f->end[S].count[DR_EV_FENCED] == 1);
	assert_true(cf_now(f) >= deadline);
	assert_int_equal(f->end[R].rail_count[DR_EV_DGRAM], 0);
	assert_int_equal(f->faulty->injected, 2);
}

/* A connection that cannot be destroyed, a region that cannot be deregistered: the caller must not reuse the memory. */
static void test_stop_and_mr_dereg_report(struct cf *f)
{
	struct cf_end *e;

	start(f);
	send_all(f);
	e = &f->end[R];
	f->faulty->o.stop_err = -EIO;
	f->faulty->o.dereg_err = -EBUSY;
	f->ops->close(e->path);
	e->closed = true;
	assert_int_equal(f->ops->stop(e->path), -EIO);
	assert_int_equal(f->ops->stop(e->path), -EIO);
	f->ops->fini(e->path);
	e->path = NULL;
	assert_int_equal(f->ops->mr_dereg(e->rail, e->mr), -EBUSY);
	e->mr = NULL;
	assert_int_equal(f->faulty->injected, 3);
	f->faulty->o.stop_err = f->faulty->o.dereg_err = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { ON(sims, SIMS, test_repeatable),
		ON(sims, SIMS, test_cut_heals), ON(&sims[RW], 1, test_one_way_cut),
		ON(wrapped, WRAPPED, test_stop_and_mr_dereg_report), ON(&sims[RW], 1, test_zombies),
		ON(&sims[RW], 1, test_violations), ON(&sims[RW], 2, test_completions),
		ON(sims, SIMS, test_errors_of_completions), ON(sims, SIMS, test_clog),
		ON(sims, SIMS, test_link_down), ON(sims, 1, test_dgrams),
		ON(&sims[RW], 1, test_credit_lost), ON(&sims[RW], 1, test_fence_time),
		ON(sims, SIMS, test_kill), ON(sims, SIMS, test_stall),
		ON(sims, 1, test_parked_expires), ON(wrapped, WRAPPED, test_wrapper_storm),
		ON(wrapped, WRAPPED, test_wrapper_fails),
		ON(wrapped, WRAPPED, test_wrapper_fence) };

	dr_log_set_level(DR_LOG_ERROR);
	return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
