/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance cases cannot reach: pieces, hostile peers, windows, memory. On the fake NICs. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/fakeverbs/fakeverbs.h"
#include "transport/verbs/path_priv.h"

enum { S, R, MEM = 8 << 20 };

struct side {
	struct dr_sink sink;
	struct dr_rail *rail;
	struct dr_path *path;
	struct dr_mr *mr;
	uint8_t *mem;
	unsigned count[DR_EV_INCOMING + 1];
	uint32_t last_len;
	unsigned ctrl_next; /* number in the next control frame */
	int err;
	enum dr_scope scope;
	char text[256];
};

struct bench {
	const struct dr_fake_ctl *fake;
	struct dr_verbs_params vp;
	uint32_t msg_max; /* 0: the port's */
	struct side side[2];
};

static void on_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct side *x = dr_container_of(sink, struct side, sink);

	x->count[ev->kind]++;
	if (ev->kind == DR_EV_DELIVERED)
		x->last_len = ev->len;
	if (ev->kind == DR_EV_CTRL && ev->len == sizeof(unsigned)) {
		assert_memory_equal(ev->data, &x->ctrl_next, sizeof(unsigned));
		x->ctrl_next++;
	}
	if (ev->kind == DR_EV_FAILED) {
		x->err = ev->err;
		x->scope = ev->scope;
		(void)snprintf(x->text, sizeof(x->text), "%s", ev->text);
	}
}

static void turn_one(struct bench *b, unsigned i)
{
	struct side *x = &b->side[i];

	dr_verbs_ops.rail_progress(x->rail, dr_now_ns(), &x->sink);
	if (x->path)
		dr_verbs_ops.progress(x->path, dr_now_ns(), &x->sink);
}

static void turn(struct bench *b)
{
	unsigned i;

	for (i = 0; i < 2; i++)
		if (b->side[i].rail)
			turn_one(b, i);
}

#define until(b, cond)                                                                             \
	do {                                                                                       \
		int64_t until_deadline = dr_now_ns() + 10 * DR_NS_PER_S;                           \
		while (!(cond)) {                                                                  \
			turn(b);                                                                   \
			if (dr_now_ns() > until_deadline)                                          \
				fail_msg("%s:%d: waited in vain for %s (%s %s)", __FILE__,         \
					__LINE__, #cond, (b)->side[S].text, (b)->side[R].text);    \
		}                                                                                  \
	} while (0)

static void open_side(struct bench *b, unsigned i)
{
	struct dr_rail_params rp = { .ifname = "lo", .kind_params = &b->vp };
	struct sockaddr_in *a = (struct sockaddr_in *)&rp.local;
	struct dr_path_params pp = {
		.channel = 3, .gen = 1, .sender = i == S, .connector = i == S
	};
	struct side *x = &b->side[i];
	struct dr_err e;

	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK + i);
	x->sink.event = on_event;
	if (dr_verbs_ops.listen(&rp, &x->rail, &e))
		fail_msg("%s", e.text);
	if (b->msg_max)
		vb_rail(x->rail)->dev.msg_max = b->msg_max;
	x->mem = dr_pages_alloc(MEM);
	assert_non_null(x->mem);
	assert_int_equal(dr_verbs_ops.mr_reg(x->rail,
				 &(struct dr_memory){ .base = x->mem, .len = MEM }, &x->mr, &e),
		0);
	assert_int_equal(dr_verbs_ops.create(x->rail, &pp, &x->path, &e), 0);
}

static int setup(void **state)
{
	static struct bench bench;
	struct bench *b = &bench;

	memset(b, 0, sizeof(*b));
	b->fake = dr_fake_attach("../../tests");
	dr_verbs_params_init(&b->vp);
	b->vp.timeout = 10;
	b->vp.retry = 2;
	*state = b;
	if (b->fake)
		b->fake->reset();
	return 0;
}

/* The rails know each other. */
static void meet(struct bench *b)
{
	uint8_t handle[DR_HANDLE_MAX];
	unsigned i;
	int n;

	if (!b->fake)
		skip();
	for (i = 0; i < 2; i++)
		open_side(b, i);
	for (i = 0; i < 2; i++) {
		n = dr_verbs_ops.rail_handle(b->side[!i].rail, handle, sizeof(handle));
		assert_true(n > 0);
		assert_int_equal(
			dr_verbs_ops.rail_peer(b->side[i].rail, handle, (size_t)n, NULL), 0);
	}
}

static void connect_both(struct bench *b)
{
	unsigned i;

	for (i = 0; i < 2; i++)
		assert_int_equal(
			dr_verbs_ops.connect(b->side[i].path, NULL, 0, dr_now_ns(), NULL), 0);
	until(b, b->side[S].count[DR_EV_READY] && b->side[R].count[DR_EV_READY]);
}

static void up(struct bench *b)
{
	meet(b);
	connect_both(b);
}

static int teardown(void **state)
{
	struct bench *b = *state;
	const char *first = "";
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct side *x = &b->side[i];

		if (x->path) {
			dr_verbs_ops.close(x->path);
			assert_int_equal(dr_verbs_ops.stop(x->path), 0);
			dr_verbs_ops.fini(x->path);
		}
		if (x->rail) {
			assert_int_equal(dr_verbs_ops.mr_dereg(x->rail, x->mr), 0);
			dr_verbs_ops.rail_close(x->rail);
			dr_verbs_ops.rail_fini(x->rail);
		}
		dr_pages_free(x->mem, MEM);
	}
	if (b->fake && b->fake->violations(&first) > 0)
		print_error("fake NICs: %s\n", first);
	return b->fake && (b->fake->violations(&first) > 0 || b->fake->alive_total() > 0);
}

static void transfer(struct bench *b, uint64_t seq, uint32_t len)
{
	struct dr_part part = { .mr = b->side[R].mr, .off = 5, .len = len };
	struct dr_part what = { .mr = b->side[S].mr, .off = 3, .len = len };
	unsigned before = b->side[R].count[DR_EV_DELIVERED];
	struct dr_credit credit;
	uint32_t i;

	for (i = 0; i < len; i++)
		b->side[S].mem[3 + i] = (uint8_t)(i * 7 + i / 251 + seq);
	memset(b->side[R].mem, 0xee, len + 16);
	assert_int_equal(dr_path_post_recv(b->side[R].path, 1, seq, &part, 1, 0), 0);
	dr_path_flush(b->side[R].path, dr_now_ns());
	until(b, dr_verbs_ops.credit(b->side[S].path, 1, seq, &credit) == 0);
	assert_int_equal(dr_path_post_send(b->side[S].path, 1, seq, 0, &what), 0);
	dr_path_flush(b->side[S].path, dr_now_ns());
	until(b, b->side[R].count[DR_EV_DELIVERED] == before + 1 &&
			 b->side[S].count[DR_EV_SENT] == before + 1);
	assert_int_equal(b->side[R].last_len, len);
	assert_memory_equal(b->side[R].mem + 5, b->side[S].mem + 3, len);
	assert_int_equal(b->side[R].mem[4], 0xee);
	assert_int_equal(b->side[R].mem[5 + len], 0xee);
}

/* More pieces than the send queue holds, and than a chain; sizes around the limit. */
static void a_part_above_the_ports_limit_goes_in_pieces(void **state)
{
	static const uint32_t len[] = { 8191, 8192, 8193, 16384, 20001, 300 * 8192 + 17, 0, 1 };
	struct bench *b = *state;
	uint64_t seq;

	b->msg_max = 8192;
	b->vp.qps = 2;
	up(b);
	for (seq = 0; seq < DR_ARRAY_LEN(len); seq++)
		transfer(b, seq, len[seq]);
	assert_int_equal(vb_path(b->side[R].path)->rx.promised[1], 0);
	assert_int_equal(vb_path(b->side[R].path)->rx.promised[2], 0);
}

static void a_part_of_more_pieces_than_receives_is_refused(void **state)
{
	struct bench *b = *state;
	struct dr_part part;

	b->msg_max = 4096;
	up(b);
	part = (struct dr_part){ .mr = b->side[R].mr, .len = (VB_RQ + 1) * 4096 };
	assert_int_equal(dr_path_post_recv(b->side[R].path, 1, 0, &part, 1, 0), -EMSGSIZE);
	transfer(b, 0, 100);
}

static void a_part_outside_its_memory_is_refused(void **state)
{
	static const struct dr_part bad[] = { { .off = MEM + 1 }, { .off = MEM, .len = 1 },
		{ .off = 1, .len = MEM }, { .len = MEM + 1 } };
	struct bench *b = *state;

	up(b);
	for (size_t k = 0; k < 2 * DR_ARRAY_LEN(bad); k++) {
		struct dr_part part[2] = { { .len = 8 }, { .len = 8 } };

		part[k % 2] = bad[k / 2];
		part[0].mr = part[1].mr = b->side[R].mr;
		assert_int_equal(dr_path_post_recv(b->side[R].path, 1, 0, part, 2, 0), -EINVAL);
	}
	transfer(b, 0, 100);
}

/* Shorter than granted: what was not used up serves the next credits, and the queue never overflows. */
static void receives_that_were_not_used_up_serve_again(void **state)
{
	struct bench *b = *state;
	struct dr_part part, what;
	uint64_t seq;
	struct dr_credit credit;

	b->msg_max = 4096;
	up(b);
	for (seq = 0; seq < 50; seq++) {
		part = (struct dr_part){ .mr = b->side[R].mr, .len = 1000 * 4096 };
		what = (struct dr_part){ .mr = b->side[S].mr, .len = 4096 * (uint32_t)(seq % 7) };
		assert_int_equal(dr_path_post_recv(b->side[R].path, 1, seq, &part, 1, 0), 0);
		dr_path_flush(b->side[R].path, dr_now_ns());
		assert_true(vb_path(b->side[R].path)->rx.posted[1] <= VB_RQ);
		until(b, dr_verbs_ops.credit(b->side[S].path, 1, seq, &credit) == 0);
		assert_int_equal(dr_path_post_send(b->side[S].path, 1, seq, 0, &what), 0);
		dr_path_flush(b->side[S].path, dr_now_ns());
		until(b, b->side[R].count[DR_EV_DELIVERED] == seq + 1);
	}
}

/* ---- a peer that does not keep to the rules ---- */

static void write_raw(struct bench *b, uint32_t imm, uint64_t addr, uint32_t rkey, uint32_t len)
{
	struct vb_path *p = vb_path(b->side[S].path);
	struct ibv_sge sge = { (uintptr_t)b->side[S].mem, len, b->side[S].mr->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)p->conn->serial << 32 |
					   vb_id(false, 1, p->sendq[0].wr_posted),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(imm),
		.wr.rdma = { .remote_addr = addr, .rkey = rkey } };
	struct ibv_send_wr *bad;

	p->sendq[0].wr_posted++;
	assert_int_equal(ibv_post_send(p->conn->qp[1], &wr, &bad), 0);
}

static void an_untrue_immediate_value_breaks_the_path(void **state)
{
	const uint32_t imm[] = {
		dr_verbs_imm_encode(1, 1, 0, false),	 /* not posted */
		dr_verbs_imm_encode(2, 0, 0, false),	 /* of another epoch */
		dr_verbs_imm_encode(1, 128, 0, false),	 /* of another seq in the same slot */
		dr_verbs_imm_encode(1, 0, 1, false),	 /* a part more */
		dr_verbs_imm_encode(1, 0, 0, false) | 1, /* spare bits */
		dr_verbs_imm_encode(1, 0, 0, false),	 /* longer than posted */
	};
	struct bench *b = *state;
	struct dr_part part;
	size_t k;

	for (k = 0; k < DR_ARRAY_LEN(imm); k++) {
		setup(state);
		up(b);
		part = (struct dr_part){ .mr = b->side[R].mr, .len = 100 };
		assert_int_equal(dr_path_post_recv(b->side[R].path, 1, 0, &part, 1, 0), 0);
		dr_path_flush(b->side[R].path, dr_now_ns());
		until(b, b->side[S].count[DR_EV_CREDIT] == 1);
		write_raw(b, imm[k], (uintptr_t)b->side[R].mem, b->side[R].mr->mr->rkey, 101);
		until(b, b->side[R].count[DR_EV_FAILED] == 1);
		assert_int_equal(b->side[R].err, -EPROTO);
		assert_int_equal(b->side[R].count[DR_EV_DELIVERED], 0);
		dr_verbs_ops.fence(b->side[R].path, dr_now_ns() + DR_NS_PER_S);
		until(b, b->side[R].count[DR_EV_FENCED] == 1);
		if (k + 1 < DR_ARRAY_LEN(imm))
			assert_int_equal(teardown(state), 0);
	}
}

static void say_raw(struct bench *b, unsigned from, const uint8_t *frames, size_t len, int granted)
{
	struct vb_path *p = vb_path(b->side[from].path);

	memcpy(p->ctrl.q.buf, frames, len);
	p->ctrl.q.end = p->ctrl.q.flushed = len;
	p->ctrl.granted += (uint32_t)granted;
	p->base.now_ns = dr_now_ns();
	dr_verbs_ctrl_nudge(p);
}

static void an_untrue_control_message_breaks_the_path(void **state)
{
	struct dr_verbs_credit c = { .n = 1, .epoch = 1, .seq = 7 };
	struct bench *b = *state;
	uint8_t buf[2 * DR_VERBS_FRAME_MAX];
	unsigned k, to;
	size_t len;

	for (k = 0; k < 4; k++) {
		setup(state);
		up(b);
		len = dr_verbs_credit_encode(&c, buf);
		len += dr_verbs_credit_encode(&c, buf + len);
		to = k == 3 ? R : S;
		switch (k) {
		case 0: /* one credit twice */
			say_raw(b, R, buf, len, 0);
			break;
		case 1: /* grants more than there is */
			say_raw(b, R, buf, 0, 1000);
			break;
		case 2: /* takes grants back */
			say_raw(b, R, buf, 0, -5);
			break;
		default: /* the sender grants */
			say_raw(b, S, buf, len, 0);
			break;
		}
		until(b, b->side[to].count[DR_EV_FAILED] == 1);
		assert_int_equal(b->side[to].err, -EPROTO);
		assert_int_equal(b->side[to].scope, DR_SCOPE_PATH);
		if (k < 3)
			assert_int_equal(teardown(state), 0);
	}
}

/* ---- the window of control messages ---- */

static unsigned fill(struct bench *b, unsigned from, unsigned n)
{
	unsigned flushes;

	/* one frame a message: the window is used up, then the buffer */
	for (flushes = 0; flushes < 100000; flushes++) {
		if (dr_path_post_ctrl(b->side[from].path, &n, sizeof(n)))
			return n;
		n++;
		dr_path_flush(b->side[from].path, dr_now_ns());
	}
	return n;
}

static void two_full_windows_open_again(void **state)
{
	struct bench *b = *state;
	unsigned n[2] = { 0, 0 }, round;

	up(b);
	for (round = 0; round < 5; round++) {
		n[S] = fill(b, S, n[S]);
		n[R] = fill(b, R, n[R]);
		until(b, b->side[R].ctrl_next == n[S] && b->side[S].ctrl_next == n[R]);
	}
	assert_int_equal(b->side[S].count[DR_EV_FAILED] + b->side[R].count[DR_EV_FAILED], 0);
}

/* One way only: the other end returns what it took without having anything to say. */
static void a_silent_end_returns_receives(void **state)
{
	struct bench *b = *state;
	unsigned n = 0;

	up(b);
	while (n < 20 * VB_CTRL_DEPTH) {
		if (dr_path_post_ctrl(b->side[S].path, &n, sizeof(n)) == 0)
			n++;
		dr_path_flush(b->side[S].path, dr_now_ns());
		turn(b);
	}
	until(b, b->side[R].ctrl_next == n);
	assert_true(vb_path(b->side[R].path)->ctrl.sent <= n / (VB_CTRL_DEPTH / 2) + 2);
}

/* ---- the rest ---- */

static void an_injected_error_fails_the_path_once(void **state)
{
	struct bench *b = *state;

	up(b);
	dr_verbs_path_error(b->side[S].path);
	until(b, b->side[S].count[DR_EV_FAILED] == 1);
	assert_int_equal(b->side[S].err, -ECONNRESET);
	assert_int_equal(b->side[S].scope, DR_SCOPE_PATH);
	dr_verbs_path_error(b->side[S].path);
	dr_verbs_ops.fence(b->side[S].path, dr_now_ns() + DR_NS_PER_S);
	until(b, b->side[S].count[DR_EV_FENCED] == 1);
	assert_int_equal(b->side[S].count[DR_EV_FAILED], 1);
}

/* Seen from an hour ahead, so that the time for it does not come while this looks. */
static void fenced_queue_pairs_are_destroyed_later(void **state)
{
	struct bench *b = *state;
	struct side *x = &b->side[S];
	int64_t ahead = dr_now_ns() + 3600 * DR_NS_PER_S;
	const struct dr_path_params again = {
		.channel = 3, .gen = 2, .sender = true, .connector = true
	};
	unsigned made, gone;
	struct dr_err e;

	up(b);
	made = b->fake->count("create_qp");
	gone = b->fake->count("destroy_qp");
	dr_verbs_ops.fence(x->path, ahead + DR_NS_PER_S);
	while (!x->count[DR_EV_FENCED] && dr_now_ns() < ahead)
		dr_verbs_ops.progress(x->path, ahead, &x->sink);
	dr_verbs_ops.close(x->path);
	assert_int_equal(dr_verbs_ops.stop(x->path), 0);
	dr_verbs_ops.fini(x->path);
	assert_int_equal(dr_verbs_ops.create(x->rail, &again, &x->path, &e), 0);
	assert_int_equal(dr_verbs_ops.connect(x->path, NULL, 0, dr_now_ns(), &e), 0);
	until(b, b->fake->count("create_qp") > made + 1); /* what came after it need not wait */
	assert_int_equal(b->fake->count("destroy_qp"), gone);
}

static void memory_is_registered_once_and_late_when_asked(void **state)
{
	struct bench *b = *state;
	struct dr_mr *again;
	struct dr_err e;

	b->vp.lazy_mr = true;
	up(b);
	assert_null(b->side[R].mr->mr);
	assert_int_equal(
		dr_verbs_ops.mr_reg(b->side[R].rail,
			&(struct dr_memory){ .base = b->side[R].mem, .len = MEM }, &again, &e),
		0);
	assert_ptr_equal(again, b->side[R].mr);
	transfer(b, 0, 1000);
	assert_non_null(b->side[R].mr->mr);
	assert_int_equal(dr_verbs_ops.mr_dereg(b->side[R].rail, again), 0);
	transfer(b, 1, 1000);
}

/* The peer's process stands still; its NIC acknowledges. */
static void the_nics_acknowledgments_are_seen(void **state)
{
	struct dr_path_stats st;
	struct bench *b = *state;
	uint64_t before;

	up(b);
	dr_verbs_ops.stats(b->side[S].path, &st);
	before = st.acked_bytes;
	assert_int_equal(dr_path_post_ctrl(b->side[S].path, "probe", 5), 0);
	dr_path_flush(b->side[S].path, dr_now_ns());
	dr_verbs_ops.stats(b->side[S].path, &st);
	assert_true(st.unacked_bytes > 0);
	do {
		turn_one(b, S);
		dr_verbs_ops.stats(b->side[S].path, &st);
	} while (st.unacked_bytes > 0);
	assert_int_equal(st.acked_bytes, before); /* it is no data */
	assert_true(st.rtt_ns > 0);
	assert_true(st.peer_ack_age_ns >= 0 && st.peer_ack_age_ns < DR_NS_PER_S);
	assert_int_equal(b->side[R].count[DR_EV_CTRL], 0);
}

/* The peer's process is stopped and takes no control message: its NIC answers every probe. */
static void probes_need_no_receive(void **state)
{
	struct dr_path_stats st;
	struct bench *b = *state;
	unsigned n = 0;

	up(b);
	while (dr_path_post_ctrl(b->side[S].path, &n, sizeof(n)) == 0 && n < 2 * VB_CTRL_DEPTH)
		n++;
	dr_path_flush(b->side[S].path, dr_now_ns());
	for (n = 0; n < 4 * VB_CTRL_DEPTH; n++) {
		int64_t posted_ns = dr_now_ns();

		dr_verbs_ops.probe(b->side[S].path, false, posted_ns);
		do
			turn_one(b, S);
		while (dr_verbs_probe_ns(vb_path(b->side[S].path)) != 0 &&
			dr_now_ns() < posted_ns + DR_NS_PER_S);
		dr_verbs_ops.stats(b->side[S].path, &st);
		assert_int_equal(st.unanswered, 0);
		assert_true(st.peer_ack_age_ns <= dr_now_ns() - posted_ns);
	}
	assert_int_equal(b->side[S].count[DR_EV_FAILED], 0);
}

/* Probes of a NIC that is gone are counted, and do not pile up. */
static void a_probe_without_an_answer_counts(void **state)
{
	struct dr_path_stats st;
	struct bench *b = *state;
	struct vb_path *p;

	up(b);
	p = vb_path(b->side[S].path);
	dr_verbs_ops.probe(&p->base.path, false, dr_now_ns() - 7 * VB_ANSWER_NS / 2);
	dr_verbs_ops.probe(&p->base.path, false, dr_now_ns());
	dr_verbs_ops.stats(&p->base.path, &st);
	assert_int_equal(st.unanswered, 3);
	until(b, dr_verbs_probe_ns(p) == 0);
	dr_verbs_ops.stats(&p->base.path, &st);
	assert_int_equal(st.unanswered, 0);
}

/* A NIC that repeats late has not repeated a probe yet when it is half a second old. */
static void a_probe_counts_when_the_nic_could_have_repeated_it(void **state)
{
	static const struct {
		unsigned timeout;
		int64_t per_ns;
	} c[] = { { 0, VB_ANSWER_NS }, { 14, VB_ANSWER_NS }, { 17, 4 * (INT64_C(4096) << 17) },
		{ 20, 4 * (INT64_C(4096) << 20) }, { 31, 4 * (INT64_C(4096) << 31) } };
	struct dr_path_stats st;
	struct bench *b = *state;

	up(b);
	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct vb_path *p = vb_path(b->side[S].path);

		vb_path_rail(p)->vp.timeout = c[i].timeout;
		for (unsigned k = 0; k < 4; k++) {
			p->probes[0] = (struct vb_probes){ .sent = 1,
				.at_ns = { dr_now_ns() - (int64_t)k * c[i].per_ns -
					   c[i].per_ns / 2 } };
			dr_verbs_ops.stats(&p->base.path, &st);
			assert_int_equal(st.unanswered, k);
		}
		p->probes[0].done = 1;
	}
}

/* Calls of rail_progress that are 500 ms apart are enough, with a path that is up and with none. */
static void a_removed_device_is_missed_without_an_event(void **state)
{
	struct bench *b = *state;

	for (unsigned paths = 0; paths < 2; paths++) {
		struct side *x = &b->side[S];
		int64_t at_ns;

		setup(state);
		up(b);
		if (paths == 0) {
			dr_verbs_ops.close(x->path);
			assert_int_equal(dr_verbs_ops.stop(x->path), 0);
			dr_verbs_ops.fini(x->path);
			x->path = NULL;
		}
		at_ns = dr_now_ns() + 500 * DR_NS_PER_MS;
		dr_verbs_ops.rail_progress(x->rail, at_ns, &x->sink);
		assert_int_equal(x->count[DR_EV_FAILED], 0);
		b->fake->unplug("fake0", true);
		dr_verbs_ops.rail_progress(x->rail, at_ns + 500 * DR_NS_PER_MS, &x->sink);
		assert_int_equal(x->count[DR_EV_FAILED], 1);
		assert_int_equal(x->scope, DR_SCOPE_RAIL);
		assert_int_equal(x->err, -ENODEV);
		if (paths == 0)
			assert_int_equal(teardown(state), 0);
	}
}

/* Nothing that fails for want of memory leaves anything behind, or takes the process along. */
/* A HELLO that somebody recorded earlier: heartbeats go where the peer is, and not where it was. */
static void an_outdated_hello_moves_no_address(void **state)
{
	struct dr_verbs_hello old = {
		.mtu = 1024, .lid = 9, .gid = { 9 }, .ud_qpn = 99, .msg_max = 4096, .ctrl_recvs = 4
	};
	uint8_t buf[DR_VERBS_HELLO_MAX];
	const char *why = "";
	size_t len;
	struct bench *b = *state;
	struct vb_admission recorded;
	struct dr_verbs_addr peer;
	struct vb_hs hs;

	up(b);
	struct vb_rail *r = vb_rail(b->side[R].rail);
	const struct vb_path *from = vb_path(b->side[S].path);
	dr_verbs_admission_init(&recorded, r->admission.token);
	dr_verbs_hs_init(&hs, &recorded, &from->hs.id, from->hs.n);
	for (unsigned i = 0; i < hs.n; i++)
		old.qpn[i] = 1;
	peer = r->where.peer;
	dr_verbs_admit(r, buf, dr_verbs_hs_greeting(&hs, &old, buf));
	hs.id.gen--;
	len = dr_verbs_hs_greeting(&hs, &old, buf);
	assert_int_equal(dr_verbs_hello_parse(buf, len, r->admission.token, &old, &why), 0);
	dr_verbs_admit(r, buf, len);
	assert_int_equal(r->where.peer.lid, peer.lid);
	assert_int_equal(r->where.peer.ud_qpn, peer.ud_qpn);
	assert_memory_equal(r->where.peer.gid, peer.gid, sizeof(peer.gid));
}

static void every_allocation_may_fail(void **state)
{
	struct dr_rail_params rp = { .ifname = "lo" };
	struct sockaddr_in *a = (struct sockaddr_in *)&rp.local;
	struct dr_path_params pp = { .channel = 3, .gen = 1, .sender = true };
	struct bench *b = *state;
	struct side *x = &b->side[S];
	struct dr_err e;
	unsigned k, ok = 0;

	if (!b->fake)
		skip();
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	x->mem = dr_pages_alloc(MEM);
	x->sink.event = on_event;
	/* GID tables can be read without memory, one of each device: a few in a row are the end. */
	for (k = 1; k < 60 && ok < 4; k++) {
		memset(x->count, 0, sizeof(x->count));
		dr_mem_fail_after((long)k);
		if (dr_verbs_ops.listen(&rp, &x->rail, &e) == 0) {
			if (dr_verbs_ops.mr_reg(x->rail,
				    &(struct dr_memory){ .base = x->mem, .len = MEM }, &x->mr,
				    &e) == 0) {
				if (dr_verbs_ops.create(x->rail, &pp, &x->path, &e) == 0) {
					assert_int_equal(dr_verbs_ops.connect(
								 x->path, NULL, 0, dr_now_ns(), &e),
						0);
					until(b, x->count[DR_EV_FAILED] ||
							 vb_path(x->path)->hs.state ==
								 VB_HS_WAITING);
					ok = x->count[DR_EV_FAILED] ? 0 : ok + 1;
					dr_verbs_ops.close(x->path);
					assert_int_equal(dr_verbs_ops.stop(x->path), 0);
					dr_verbs_ops.fini(x->path);
					x->path = NULL;
				}
				assert_int_equal(dr_verbs_ops.mr_dereg(x->rail, x->mr), 0);
			}
			dr_verbs_ops.rail_close(x->rail);
			dr_verbs_ops.rail_fini(x->rail);
			x->rail = NULL;
		}
		dr_mem_fail_after(-1);
		assert_int_equal(b->fake->alive_total(), 0);
	}
	assert_true(ok == 4 && k > 12);
}

/* ---- a peer without key ---- */

/* How many of n datagrams leave. */
static unsigned sent_by(struct bench *b, unsigned i, unsigned n)
{
	struct vb_rail *r = vb_rail(b->side[i].rail);
	uint64_t before = r->ud.posted;

	for (unsigned k = 0; k < n; k++)
		dr_verbs_ops.rail_dgram(b->side[i].rail, "beat", 4);
	return (unsigned)(r->ud.posted - before);
}

/* R distrusts its peer: it answers datagrams, one for each, until the peer's NIC has acknowledged something. */
static void without_key_datagrams_wait_for_an_acknowledgement(void **state)
{
	struct bench *b = *state;
	struct vb_rail *r, other;

	b->vp.distrusts = true;
	meet(b);
	r = vb_rail(b->side[R].rail);
	vb_rail(b->side[S].rail)->vp.distrusts = vb_rail(b->side[S].rail)->limit.on = false;
	until(b, r->ud.ah && !r->ud.job.busy && vb_rail(b->side[S].rail)->ud.ah);
	assert_int_equal(sent_by(b, R, 10), 0);
	assert_int_equal(sent_by(b, S, 3), 3);
	until(b, b->side[R].count[DR_EV_DGRAM] == 3);
	dr_verbs_ops.rail_padded(b->side[R].rail, "beat", 4, 500);
	assert_int_equal(sent_by(b, R, 10), 3);
	assert_int_equal(sent_by(b, R, 10), 0);

	connect_both(b);
	until(b, dr_known_may_send(&r->limit, 1, true));
	assert_false(r->limit.on);
	assert_int_equal(sent_by(b, R, 10), 10);

	/* Another end of this session knows; not for another host, not for another session, not after it moved. */
	other = *r;
	other.limit.on = true;
	assert_true(dr_known_may_send(&other.limit, 1, true));
	other.limit.on = true;
	other.limit.peer.at[17] ^= 1;
	assert_false(dr_known_may_send(&other.limit, 1, true));
	other.limit.peer.at[17] ^= 1;
	other.limit.peer.at[0] ^= 1;
	assert_false(dr_known_may_send(&other.limit, 1, true));
	other.limit.peer.at[0] ^= 1;
	other.limit.peer.token[0] ^= 1;
	assert_false(dr_known_may_send(&other.limit, 1, true));
	dr_verbs_ah_renew(r);
	assert_true(r->limit.on);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_part_above_the_ports_limit_goes_in_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_part_of_more_pieces_than_receives_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_part_outside_its_memory_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			receives_that_were_not_used_up_serve_again, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_untrue_immediate_value_breaks_the_path, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_untrue_control_message_breaks_the_path, setup, teardown),
		cmocka_unit_test_setup_teardown(two_full_windows_open_again, setup, teardown),
		cmocka_unit_test_setup_teardown(a_silent_end_returns_receives, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_injected_error_fails_the_path_once, setup, teardown),
		cmocka_unit_test_setup_teardown(
			fenced_queue_pairs_are_destroyed_later, setup, teardown),
		cmocka_unit_test_setup_teardown(
			memory_is_registered_once_and_late_when_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(the_nics_acknowledgments_are_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(probes_need_no_receive, setup, teardown),
		cmocka_unit_test_setup_teardown(a_probe_without_an_answer_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_probe_counts_when_the_nic_could_have_repeated_it, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_outdated_hello_moves_no_address, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_removed_device_is_missed_without_an_event, setup, teardown),
		cmocka_unit_test_setup_teardown(every_allocation_may_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(
			without_key_datagrams_wait_for_an_acknowledgement, setup, teardown),
	};

	return cmocka_run_group_tests_name("verbs_path", tests, NULL, NULL);
}
