/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"
#include "transport/verbs/hello.h"

#include "transport/staged.h"
#include "transport/verbs/mem.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

/*
 * GPU memory under the verbs kind: device addresses that point nowhere, a file that stands for the GPU, and
 * NICs whose writes there are seen only after they read from it.
 */
#define DEVICE_PTR(i) ((uint8_t *)(UINT64_C(0x700000000000) + ((uint64_t)(i) << 32)))
enum { OFF = 5000 }; /* of the memory in its dma-buf */

struct gpu_pair {
	struct pair p;
	int fd[2];
	struct dr_memory m[2];
	uint8_t *host[2]; /* what pair_init() allocated */
	char text[256];
};

static void gpu_init(struct gpu_pair *g, bool poller)
{
	memset(g, 0, sizeof(*g));
	pair_init(&g->p, poller);
	for (unsigned i = 0; i < 2; i++) {
		uint8_t *at;

		g->host[i] = g->p.e[i].mem;
		g->fd[i] = memfd_create("gpu", MFD_CLOEXEC);
		assert_true(g->fd[i] >= 0);
		assert_int_equal(ftruncate(g->fd[i], OFF + PAIR_MEM), 0);
		at = mmap(NULL, OFF + PAIR_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd[i], 0);
		assert_true(at != MAP_FAILED);
		memcpy(at + OFF, g->host[i], PAIR_MEM);
		g->p.e[i].mem = at + OFF;
		g->m[i] = (struct dr_memory){ .base = DEVICE_PTR(i),
			.len = PAIR_MEM,
			.kind = DR_MEMORY_CUDA,
			.dmabuf = true,
			.dmabuf_fd = g->fd[i],
			.dmabuf_off = OFF };
	}
}

static int gpu_register(struct gpu_pair *g)
{
	struct dr_err err = { 0 };
	int rc = 0;

	g->p.doing = "mr_reg";
	for (unsigned i = 0; i < 2 && rc == 0; i++) {
		struct pair_end *e = &g->p.e[i];

		rc = dr_verbs_ops.mr_reg(e->rail, &g->m[i], &e->mr, &err);
	}
	(void)snprintf(g->text, sizeof(g->text), "%s", err.text);
	return rc;
}

static bool gpu_connect(struct gpu_pair *g)
{
	return pair_create(&g->p) == 0 && pair_connect(&g->p) == 0 && pair_ready(&g->p);
}

static void gpu_up(struct gpu_pair *g)
{
	if (pair_listen(&g->p) || gpu_register(g))
		fail_msg("%s: %s%s", g->p.doing, g->p.error, g->text);
	if (!gpu_connect(g))
		fail_msg("%s: %s%s", g->p.doing, g->p.e[S].text, g->p.e[R].text);
}

static void gpu_clean(struct gpu_pair *g)
{
	pair_shut(&g->p);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(munmap(g->p.e[i].mem - OFF, OFF + PAIR_MEM), 0);
		assert_int_equal(close(g->fd[i]), 0);
		g->p.e[i].mem = g->host[i];
	}
	pair_clean(&g->p, false);
}

static void gpu_end(struct gpu_pair *g)
{
	pair_fence_both(&g->p);
	assert_true(g->p.e[S].fenced && g->p.e[R].fenced);
	gpu_clean(g);
}

/* The user may look at a part as soon as it hears of it. */
static void check_seen(struct pair *p, const struct dr_event *ev)
{
	uint64_t at = (ev->seq * PAIR_PARTS + ev->part) * PAIR_LEN;

	if (ev->kind == DR_EV_DELIVERED)
		assert_memory_equal(p->e[R].mem + at, p->e[S].mem + at, PAIR_LEN);
}

/* A test that runs so many times, each with a pair that is not up, and is ended unless the test has cleaned it. */
struct gpu_test {
	void (*run)(struct gpu_pair *g);
	enum pair_how how;
	unsigned times;
};
#define GPU(f, how, times)                                                                         \
	((struct CMUnitTest){ #f, gpu_test, NULL, NULL, &(struct gpu_test){ f, how, times } })

static void gpu_test(void **state)
{
	const struct gpu_test *t = *state;

	for (unsigned nth = 0; nth < t->times; nth++) {
		struct gpu_pair g;

		gpu_init(&g, pair_polls(t->how, nth));
		g.p.nth = nth;
		g.p.seen = check_seen;
		t->run(&g);
		if (g.p.fake)
			gpu_end(&g);
	}
}

/* A posted receive may have to wait for the flushing queue pair, as for any other room. */
static void post_recv(struct gpu_pair *g, uint64_t seq)
{
	pair_until(&g->p, pair_post_recv(&g->p, seq) == 0 || pair_any_failed(&g->p));
}

static void transfer(struct gpu_pair *g)
{
	struct pair *p = &g->p;

	for (uint64_t seq = 0; seq < PAIR_MSGS && !pair_any_failed(p); seq++) {
		post_recv(g, seq);
		if (!pair_any_failed(p))
			(void)pair_post_send(p, seq);
	}
	p->doing = "transfer";
	pair_until(
		p, p->e[R].count[DR_EV_DELIVERED] == PAIR_MSGS * PAIR_PARTS || pair_any_failed(p));
}

static void all_over(struct gpu_pair *g)
{
	transfer(g);
	assert_false(pair_any_failed(&g->p));
}

static void flushed_before_it_is_told(struct gpu_pair *g)
{
	unsigned k = g->p.nth;

	g->p.vp.lazy_mr = k & 2;
	gpu_up(g);
	g->p.fake->latency("fake1", k & 2 ? 2 * DR_NS_PER_MS : 0);
	all_over(g);
	assert_string_equal(dr_verbs_mr_choice(g->p.e[R].mr), "dma-buf");
}

/* A few bytes: no processor may copy them into the work request. */
static void small_from_gpu_memory(struct gpu_pair *g)
{
	struct dr_part part = { .len = 8 };

	g->p.seen = NULL;
	gpu_up(g);
	pair_until(&g->p, pair_post_recv(&g->p, 0) == 0);
	pair_until(&g->p, g->p.e[S].count[DR_EV_CREDIT]);
	part.mr = g->p.e[S].mr;
	assert_int_equal(dr_verbs_ops.post_send(g->p.e[S].path, 1, 0, 0, &part), 0);
	dr_verbs_ops.flush(g->p.e[S].path, dr_now_ns());
	pair_until(&g->p, g->p.e[R].count[DR_EV_DELIVERED]);
	assert_memory_equal(g->p.e[R].mem, g->p.e[S].mem, 8);
}

/* Registered when the path was up already. */
static void registered_late(struct gpu_pair *g)
{
	if (pair_listen(&g->p) || !gpu_connect(g) || gpu_register(g))
		fail_msg("%s: %s%s", g->p.doing, g->p.error, g->text);
	all_over(g);
}

/* A GPU that keeps the order by itself costs no queue pair and no read. */
static void not_flushed_where_ordered(struct gpu_pair *g)
{
	g->m[R].ordered = true;
	g->p.seen = NULL;
	gpu_up(g);
	all_over(g);
	assert_int_equal(g->p.fake->qp_list("fake1", IBV_QPT_RC, NULL, 0),
		1 + g->p.vp.qps + DR_VERBS_PROBE_QPS);
	assert_true(pair_untouched(&g->p, 0)); /* the fake's GPUs keep no order */
}

/* The queue pair that flushes leads to itself: its own number comes last. */
static uint32_t flushing_qp(struct gpu_pair *g)
{
	uint32_t qpn[8];
	unsigned n = g->p.fake->qp_list("fake1", IBV_QPT_RC, qpn, 8);

	assert_int_equal(n, 2 + g->p.vp.qps + DR_VERBS_PROBE_QPS);
	return qpn[n - 1];
}

static void one_message(struct gpu_pair *g)
{
	post_recv(g, 0);
	pair_until(&g->p, g->p.e[S].count[DR_EV_CREDIT]);
}

/* Whatever happens to the read, the part is not told, and the path fails. */
static void flush_fails(struct gpu_pair *g)
{
	static const enum ibv_wc_status how[] = { IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR,
		IBV_WC_LOC_PROT_ERR };
	unsigned i = g->p.nth;

	gpu_up(g);
	one_message(g);
	if (i < DR_ARRAY_LEN(how))
		g->p.fake->status("fake1", flushing_qp(g), false, how[i], 0);
	else
		assert_int_equal(g->p.fake->qp_error(flushing_qp(g), true), 0);
	assert_int_equal(pair_post_send(&g->p, 0), 0);
	g->p.doing = "flush fails";
	pair_until(&g->p, g->p.e[R].failed);
	assert_int_equal(g->p.e[R].scope, DR_SCOPE_PATH);
	assert_int_equal(g->p.e[R].count[DR_EV_DELIVERED], 0);
}

/* Reads that are out are the fence's to count, and its deadline destroys their queue pair too. */
static void fence_with_flushes_out(struct gpu_pair *g)
{
	bool by_deadline = g->p.nth & 2;
	uint32_t qpn;

	gpu_up(g);
	one_message(g);
	qpn = flushing_qp(g);
	g->p.fake->latency("fake1", 3600 * DR_NS_PER_S);
	assert_int_equal(pair_post_send(&g->p, 0), 0);
	pair_until(&g->p, g->p.e[R].count[DR_EV_ARRIVING]);
	g->p.doing = "flushes out";
	for (unsigned i = 0; i < 20; i++)
		pair_turn(&g->p);
	g->p.fake->no_flush("fake1", true);
	pair_fence(&g->p, R, by_deadline ? dr_now_ns() + 20 * DR_NS_PER_MS : DR_NEVER);
	for (unsigned i = 0; i < 20 && !by_deadline; i++)
		pair_turn(&g->p);
	assert_true(by_deadline || !g->p.e[R].fenced);
	g->p.fake->no_flush("fake1", by_deadline);
	pair_until(&g->p, g->p.e[R].fenced);
	if (by_deadline)
		assert_int_equal(g->p.fake->qp_state(qpn), -1);
	assert_int_equal(g->p.e[R].count[DR_EV_DELIVERED], 0);
}

enum { NOT_SEEN, FLUSHED, POST_FAILS, CASES };

/* Parts that landed and whose flush was not posted hold no fence up, and are not told. Those that were flushed are. */
static void fence_after_parts_landed(struct gpu_pair *g)
{
	unsigned k = g->p.nth;

	gpu_up(g);
	one_message(g);
	assert_int_equal(pair_post_send(&g->p, 0), 0);
	if (k == POST_FAILS)
		g->p.fake->fail_call("post_send", 1, 0);
	if (k != NOT_SEEN)
		pair_turn_one(&g->p, R);
	assert_int_equal(g->p.e[R].failed, k == POST_FAILS);
	pair_fence(&g->p, R, DR_NEVER);
	pair_until(&g->p, g->p.e[R].fenced);
	assert_int_equal(g->p.e[R].count[DR_EV_DELIVERED], k == FLUSHED ? PAIR_PARTS : 0);
}

/* One life with the k-th such call failing: an error in words, or FAILED, and nothing stays. */
static bool life_with(const char *call, unsigned k)
{
	struct gpu_pair g;
	bool failed;

	gpu_init(&g, k % 2);
	g.p.seen = check_seen;
	g.p.fake->fail_call(call, k, 0);
	if (pair_listen(&g.p) == 0 && gpu_register(&g) == 0 && gpu_connect(&g))
		transfer(&g);
	for (unsigned i = 0; i < 2; i++)
		if (g.p.e[i].path)
			pair_fence(&g.p, i, dr_now_ns() + 60 * DR_NS_PER_MS);
	for (unsigned i = 0; i < 2; i++)
		pair_until(&g.p, !g.p.e[i].path || g.p.e[i].fenced);
	failed = g.p.fake->failed() != NULL;
	gpu_clean(&g);
	return failed;
}

static void each_call_failing(void **state)
{
	static const char *const calls[] = { "reg_mr", "reg_dmabuf_mr", "create_qp", "modify_qp",
		"post_send", "post_recv", "query_gid_ex" };

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(calls); i++)
		for (unsigned k = 1; k <= 40 && life_with(calls[i], k);)
			k += k < 24 ? 1 : 5;
}

/* ---- the choice ------------------------------------------------------------------------------- */

static char root[64];

static int make_root(void **state)
{
	static const char *const parts[] = { "/sys", "/sys/module", "/sys/module/nv_peer_mem" };
	char path[128];

	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/dualrail-gpu-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	for (size_t i = 0; i < DR_ARRAY_LEN(parts); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", root, parts[i]);
		if (mkdir(path, 0700))
			return -1;
	}
	return 0;
}

static int remove_root(void **state)
{
	static const char *const parts[] = { "/sys/module/nv_peer_mem", "/sys/module", "/sys", "" };
	char path[128];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(parts); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", root, parts[i]);
		(void)rmdir(path);
	}
	return 0;
}

/* The second choice, with the reason for it. */
static void by_peer_memory(struct gpu_pair *g)
{
	unsigned exported = g->p.nth;

	g->p.vp.root = root;
	g->p.fake->dmabuf(NULL, EOPNOTSUPP);
	for (unsigned i = 0; i < 2; i++) {
		g->m[i].dmabuf = exported;
		/* The fake's ranges begin where their files do. */
		assert_int_equal(g->p.fake->peer_memory(
					 (uintptr_t)DEVICE_PTR(i) - OFF, OFF + PAIR_MEM, g->fd[i]),
			0);
	}
	gpu_up(g);
	all_over(g);
	assert_non_null(strstr(dr_verbs_mr_choice(g->p.e[R].mr), "nv_peer_mem"));
	assert_non_null(strstr(dr_verbs_mr_choice(g->p.e[R].mr),
		exported ? "takes no dma-buf (EOPNOTSUPP)" : "exported no dma-buf"));
}

static void out_of_reach(struct gpu_pair *g)
{
	unsigned loaded = g->p.nth;

	g->p.vp.root = loaded ? root : "/nonexistent";
	g->p.fake->dmabuf(NULL, EINVAL);
	if (pair_listen(&g->p))
		fail_msg("%s", g->p.error);
	g->p.fake->fail_always("reg_mr", EFAULT);
	assert_int_equal(gpu_register(g), -ENOTSUP);
	assert_non_null(strstr(g->text, "takes no dma-buf (EINVAL)"));
	assert_non_null(strstr(g->text, loaded ? "EFAULT" : "modprobe nvidia-peermem"));
	gpu_clean(g);
}

/* The wrapper that stages hears which it is, and why. */
static void told_to_the_wrapper(void **state)
{
	static const struct dr_stage_ops no_copies;
	const struct dr_staged_params sp = { .inner = &dr_verbs_ops,
		.copy = &no_copies,
		.how = dr_verbs_mr_choice,
		.ring_bytes = 1 << 16 };

	(void)state;
	for (unsigned takes = 0; takes < 2; takes++) {
		struct dr_staged_rail_params rp = { 0 };
		struct dr_rail_params par = { .ifname = "lo", .kind_params = &rp };
		struct sockaddr_in *a = (struct sockaddr_in *)&par.local;
		struct dr_staged_choice c;
		struct dr_rail *rail;
		struct gpu_pair g;
		struct dr_mr *mr;
		struct dr_err e;

		gpu_init(&g, false);
		g.p.vp.root = "/nonexistent";
		rp.inner = &g.p.vp;
		a->sin_family = AF_INET;
		a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		g.p.fake->dmabuf(NULL, takes ? 0 : EOPNOTSUPP);
		assert_int_equal(dr_staged_create(&sp, &rp.staged, &e), 0);
		assert_int_equal(dr_staged_ops(rp.staged)->listen(&par, &rail, &e), 0);
		assert_int_equal(rail->ops->mr_reg(rail, &g.m[S], &mr, &e), 0);
		dr_staged_choice(rp.staged, &c);
		assert_int_equal(c.direct, takes);
		assert_int_equal(c.staged, !takes);
		assert_non_null(strstr(c.why, takes ? "dma-buf" : "takes no dma-buf (EOPNOTSUPP)"));
		assert_int_equal(rail->ops->mr_dereg(rail, mr), 0);
		rail->ops->rail_close(rail);
		rail->ops->rail_fini(rail);
		dr_staged_destroy(rp.staged);
		gpu_clean(&g);
	}
}

/* The caller may close its descriptor, and the device may go and come back. */
static void registered_again(struct gpu_pair *g)
{
	gpu_up(g);
	assert_int_equal(close(g->fd[R]), 0);
	g->fd[R] = open("/dev/null", O_RDONLY | O_CLOEXEC); /* to be closed in the end */
	g->p.fake->unplug("fake1", false);
	pair_until(&g->p, g->p.e[R].failed && g->p.e[R].rail_failed);
	pair_fence_both(&g->p);
	pair_end_path(&g->p);
	assert_int_equal(g->p.fake->plug("fake1", 7), 0);
	g->p.e[S].rail_failed = g->p.e[R].rail_failed = 0;
	g->p.e[R].count[DR_EV_DGRAM] = 0;
	g->p.e[R].failed = g->p.e[S].failed = false;
	g->p.doing = "device back";
	pair_until(&g->p, g->p.fake->count("reg_dmabuf_mr") == 3);
	if (!gpu_connect(g))
		fail_msg("%s%s", g->p.e[S].text, g->p.e[R].text);
	all_over(g);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { GPU(flushed_before_it_is_told, PAIR_BOTH, 4),
		GPU(small_from_gpu_memory, PAIR_ALONE, 1), GPU(registered_late, PAIR_BOTH, 2),
		GPU(not_flushed_where_ordered, PAIR_ALONE, 1), GPU(flush_fails, PAIR_BOTH, 4),
		GPU(fence_with_flushes_out, PAIR_BOTH, 4),
		GPU(fence_after_parts_landed, PAIR_ALONE, CASES),
		cmocka_unit_test(each_call_failing), GPU(by_peer_memory, PAIR_ALONE, 2),
		GPU(out_of_reach, PAIR_ALONE, 2), cmocka_unit_test(told_to_the_wrapper),
		GPU(registered_again, PAIR_POLLED, 1) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), make_root, remove_root);
}
