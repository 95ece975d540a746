/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/bed.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

/* The fake NICs themselves: what the tests of transport/verbs stand on. */

/* A test with two ends that are there, and connected before unless it is bare. */
struct bed_test {
	void (*run)(struct bed *b);
	enum ibv_qp_type type;
	bool bare;
};

static void bed_test(void **state)
{
	const struct bed_test *t = *state;
	struct bed b;

	bed_open(&b, t->type, t->bare);
	if (!t->bare)
		bed_connect(&b);
	t->run(&b);
	bed_shut(&b);
}

static void write_with_imm(struct bed *b)
{
	struct ibv_wc wc;

	assert_int_equal(bed_recv(b, 1, 9, 0, 0), 0);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 5000, 0), 0);
	assert_int_equal(
		bed_send(b, 2, IBV_WR_RDMA_WRITE_WITH_IMM, 5000, 3000, IBV_SEND_SIGNALED), 0);
	wc = bed_expect(b, 0, 2, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	wc = bed_expect(b, 1, 9, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 3000);
	assert_int_equal(ntohl(wc.imm_data), 0xabcd0002u);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_memory_equal(b->e[0].mem, b->e[1].mem, 8000);
	assert_int_equal(b->e[1].mem[8000], 0);
	bed_none(b, 0);
	bed_none(b, 1);
}

static void send_inline(struct bed *b)
{
	uint8_t was = b->e[0].mem[0];
	struct ibv_wc wc;

	b->fake->hold("fake0", true);
	assert_int_equal(bed_recv(b, 1, 9, 100, 64), 0);
	assert_int_equal(
		bed_send(b, 1, IBV_WR_SEND, 0, 40, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
	b->e[0].mem[0]++; /* the copy was made */
	assert_int_equal(bed_send(b, 2, IBV_WR_SEND, 0, BED_INLINE + 1, IBV_SEND_INLINE), EINVAL);
	bed_none(b, 0);
	b->fake->hold("fake0", false);
	(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
	wc = bed_expect(b, 1, 9, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 40);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wc_flags, 0);
	assert_int_equal(b->e[1].mem[100], was);
}

static void queue_limits(struct bed *b)
{
	for (unsigned i = 0; i < BED_WR; i++) {
		assert_int_equal(bed_recv(b, 1, i, 0, 16), 0);
		assert_int_equal(
			bed_send(b, i, IBV_WR_RDMA_WRITE, 0, 16, i == 3 ? IBV_SEND_SIGNALED : 0),
			0);
	}
	assert_int_equal(bed_recv(b, 1, 8, 0, 16), ENOMEM);
	assert_int_equal(bed_send(b, 8, IBV_WR_RDMA_WRITE, 0, 16, 0), ENOMEM);
	(void)bed_expect(b, 0, 3, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(bed_send(b, i, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	assert_int_equal(bed_send(b, 8, IBV_WR_RDMA_WRITE, 0, 16, 0), ENOMEM);
}

static void modify_rules(struct bed *b)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_init_attr ia;

	assert_int_equal(bed_recv(b, 0, 1, 0, 16), EINVAL);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_RTR), EINVAL);
	assert_int_equal(b->v->modify_qp(b->e[0].qp, &a, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_INIT), 0);
	assert_int_equal(bed_recv(b, 0, 1, 0, 16), 0);
	assert_int_equal(bed_send(b, 1, IBV_WR_SEND, 0, 16, 0), EINVAL);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_RTS), EINVAL);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_RTR), 0);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_RTR), EINVAL);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_RTS), 0);
	assert_int_equal(b->v->query_qp(b->e[0].qp, &a, IBV_QP_STATE, &ia), 0);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	/* RESET forgets the receive without a completion, and the way up is open again. */
	assert_int_equal(bed_modify(b, 0, IBV_QPS_RESET), 0);
	bed_none(b, 0);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_INIT), 0);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_ERR), 0);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_INIT), EINVAL);
}

static void flush_rules(struct bed *b)
{
	assert_int_equal(bed_recv(b, 0, 1, 0, 16), 0);
	assert_int_equal(bed_recv(b, 0, 2, 0, 16), 0);
	b->fake->hold("fake0", true);
	assert_int_equal(bed_send(b, 3, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_ERR), 0);
	(void)bed_expect(b, 0, 3, IBV_WC_WR_FLUSH_ERR);
	(void)bed_expect(b, 0, 1, IBV_WC_WR_FLUSH_ERR);
	(void)bed_expect(b, 0, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(bed_recv(b, 0, 4, 0, 16), 0);
	bed_none(b, 0);
	assert_int_equal(bed_send(b, 5, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 5, IBV_WC_WR_FLUSH_ERR);
	b->fake->no_flush("fake0", true);
	assert_int_equal(bed_send(b, 6, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	bed_none(b, 0);
	b->fake->no_flush("fake0", false);
	(void)bed_expect(b, 0, 6, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(b->e[1].mem[0], 0);
}

static void receiver_not_ready(struct bed *b)
{
	/* rnr_retry 7: until the receive comes; the front of a long write lands before. */
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1025, IBV_SEND_SIGNALED), 0);
	bed_none(b, 0);
	assert_int_equal(b->e[1].mem[1023], b->e[0].mem[1023]);
	assert_int_equal(b->e[1].mem[1024], 0);
	assert_int_equal(bed_recv(b, 1, 2, 0, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
	(void)bed_expect(b, 1, 2, IBV_WC_SUCCESS);
	assert_int_equal(b->e[1].mem[1024], b->e[0].mem[1024]);
}

static void rnr_retry_ends(struct bed *b)
{
	b->rnr_retry = 2;
	bed_connect(b);
	assert_int_equal(bed_send(b, 1, IBV_WR_SEND, 0, 16, 0), 0);
	assert_int_equal(bed_send(b, 2, IBV_WR_SEND, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	(void)bed_expect(b, 0, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(b->fake->qp_state(b->e[0].qp->qp_num), IBV_QPS_ERR);
	assert_int_equal(b->fake->qp_state(b->e[1].qp->qp_num), IBV_QPS_RTS);
}

static void retries_end(struct bed *b)
{
	int64_t began = dr_now_ns();

	b->fake->cut("fake1", DR_FAKE_BOTH);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_RETRY_EXC_ERR);
	assert_true(dr_now_ns() - began >= (b->retry + 1) * (4096LL << b->timeout));
	assert_int_equal(b->e[1].mem[0], 0);
}

static void healed_in_time(struct bed *b)
{
	b->timeout = 20;
	bed_connect(b);
	b->fake->cut("fake0", DR_FAKE_TX);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	bed_none(b, 0);
	b->fake->cut("fake0", 0);
	(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(b->e[1].mem[0], b->e[0].mem[0]);
}

/* What was delivered is not known to the sender: why replay needs dedupe. */
static void acknowledgment_lost(struct bed *b)
{
	assert_int_equal(bed_recv(b, 1, 9, 0, 0), 0);
	b->fake->cut("fake0", DR_FAKE_RX);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 16, 0), 0);
	(void)bed_expect(b, 1, 9, IBV_WC_SUCCESS);
	(void)bed_expect(b, 0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void peer_gone(struct bed *b)
{
	assert_int_equal(b->v->destroy_qp(b->e[1].qp), 0);
	b->e[1].qp = NULL;
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void peer_fenced(struct bed *b)
{
	assert_int_equal(bed_modify(b, 1, IBV_QPS_ERR), 0);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(b->e[1].mem[0], 0);
}

static void psn_mismatch(struct bed *b)
{
	b->skew = 1;
	bed_connect(b);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void remote_key_gone(struct bed *b)
{
	assert_int_equal(bed_recv(b, 1, 9, 0, 0), 0);
	assert_int_equal(b->v->dereg_mr(b->e[1].mr), 0);
	b->e[1].mr = b->v->reg_mr(b->e[1].pd, b->e[1].mem, BED_MEM, IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	assert_int_equal(bed_send(b, 2, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_REM_ACCESS_ERR);
	(void)bed_expect(b, 0, 2, IBV_WC_WR_FLUSH_ERR);
	(void)bed_expect(b, 1, 9, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(b->fake->qp_state(b->e[1].qp->qp_num), IBV_QPS_ERR);
	assert_int_equal(b->e[1].mem[0], 0);
}

static void receive_too_short(struct bed *b)
{
	assert_int_equal(bed_recv(b, 1, 9, 0, 15), 0);
	assert_int_equal(bed_send(b, 1, IBV_WR_SEND, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_REM_INV_REQ_ERR);
	(void)bed_expect(b, 1, 9, IBV_WC_LOC_LEN_ERR);
}

static void local_key_wrong(struct bed *b)
{
	b->e[0].mr->lkey ^= 1;
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, 0), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_LOC_PROT_ERR);
}

static void datagrams(struct bed *b)
{
	struct bed_end *e = &b->e[0];
	struct ibv_ah_attr aa = { .is_global = 1, .port_num = 1 };
	struct ibv_sge sge = { (uintptr_t)e->mem, 20, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	aa.grh.dgid = b->e[1].gid;
	aa.grh.sgid_index = 3;
	wr.wr.ud.ah = b->v->create_ah(e->pd, &aa);
	assert_non_null(wr.wr.ud.ah);
	wr.wr.ud.remote_qpn = b->e[1].qp->qp_num;
	wr.wr.ud.remote_qkey = BED_QKEY;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	/* Without a receive it is lost and all the same sent; so it is when dropped or cut off. */
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(bed_recv(b, 1, 9, 0, 256), 0);
	b->fake->drop("fake0", 1);
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	b->fake->cut(NULL, DR_FAKE_RX);
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	b->fake->cut(NULL, 0);
	wr.wr.ud.remote_qkey++;
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	wr.wr.ud.remote_qkey--;
	bed_none(b, 1);
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	wc = bed_expect(b, 1, 9, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 60);
	assert_true(wc.wc_flags & IBV_WC_GRH);
	assert_int_equal(wc.src_qp, e->qp->qp_num);
	assert_memory_equal(b->e[1].mem + 40, e->mem, 20);
	for (unsigned i = 0; i < 4; i++)
		(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(b->v->destroy_ah(wr.wr.ud.ah), 0);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void completion_channel(struct bed *b)
{
	struct bed_end *e = &b->e[1];
	struct ibv_cq *cq;
	void *ctx;

	assert_int_equal(fcntl(e->ch->fd, F_SETFL, O_NONBLOCK), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(bed_recv(b, 1, i, 0, 16), 0);
	/* Not armed: no event; armed: for the next, not for what is there; once. */
	assert_int_equal(bed_send(b, 1, IBV_WR_SEND, 0, 16, 0), 0);
	assert_false(readable(e->ch->fd));
	assert_int_equal(ibv_req_notify_cq(e->cq, 0), 0);
	assert_false(readable(e->ch->fd));
	assert_int_equal(b->v->get_cq_event(e->ch, &cq, &ctx), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(bed_send(b, 2, IBV_WR_SEND, 0, 16, 0), 0);
	assert_int_equal(bed_send(b, 3, IBV_WR_SEND, 0, 16, 0), 0);
	assert_true(readable(e->ch->fd));
	assert_int_equal(b->v->get_cq_event(e->ch, &cq, &ctx), 0);
	assert_ptr_equal(cq, e->cq);
	assert_ptr_equal(ctx, e);
	assert_false(readable(e->ch->fd));
	b->v->ack_cq_events(cq, 1);
}

static void events(struct bed *b)
{
	struct ibv_context *c = b->e[0].ctx;
	struct ibv_port_attr p = { 0 };
	struct ibv_async_event ev;
	static const enum ibv_event_type want[] = { IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE,
		IBV_EVENT_GID_CHANGE, IBV_EVENT_QP_FATAL, IBV_EVENT_DEVICE_FATAL };

	b->fake->port("fake0", false);
	assert_int_equal(b->v->query_port(c, 1, &p), 0);
	assert_int_equal(p.state, IBV_PORT_DOWN);
	b->fake->port("fake0", true);
	assert_int_equal(b->fake->gid_move("fake0", 3, 7), 0);
	assert_int_equal(b->fake->gid_index("fake0", "127.0.0.1", IBV_GID_TYPE_ROCE_V2), 7);
	assert_int_equal(b->fake->qp_error(b->e[0].qp->qp_num, true), 0);
	b->fake->fatal("fake0");
	assert_int_equal(b->v->query_port(c, 1, &p), EIO);
	for (unsigned i = 0; i < DR_ARRAY_LEN(want); i++) {
		assert_true(readable(c->async_fd));
		assert_int_equal(b->v->get_async_event(c, &ev), 0);
		assert_int_equal(ev.event_type, want[i]);
		if (want[i] == IBV_EVENT_QP_FATAL)
			assert_ptr_equal(ev.element.qp, b->e[0].qp);
		b->v->ack_async_event(&ev);
	}
	assert_false(readable(c->async_fd));
	assert_false(readable(b->e[1].ctx->async_fd));
}

/* rxe: nothing is sent and nothing is given up. */
static void source_gid_gone(struct bed *b)
{
	assert_int_equal(b->fake->addr_del("fake0", "127.0.0.1"), 0);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, IBV_SEND_SIGNALED), 0);
	bed_none(b, 0);
	assert_int_equal(b->fake->addr_add("fake0", "127.0.0.1"), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
}

static void ordered_status(struct bed *b)
{
	for (int s = IBV_WC_LOC_LEN_ERR; s <= IBV_WC_TM_RNDV_INCOMPLETE; s++) {
		bool recv = s % 2;

		bed_connect(b);
		assert_int_equal(bed_recv(b, 1, 9, 0, 16), 0);
		assert_int_equal(bed_recv(b, 1, 10, 0, 16), 0);
		b->fake->status(recv ? "fake1" : "fake0", 0, recv, (enum ibv_wc_status)s, 1);
		assert_int_equal(bed_send(b, 1, IBV_WR_SEND, 0, 16, 0), 0);
		assert_int_equal(bed_send(b, 2, IBV_WR_SEND, 0, 16, 0), 0);
		(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
		(void)bed_expect(b, 1, 9, IBV_WC_SUCCESS);
		if (recv)
			(void)bed_expect(b, 1, 10, (enum ibv_wc_status)s);
		else
			(void)bed_expect(b, 0, 2, (enum ibv_wc_status)s);
		assert_true(b->fake->status_done(NULL, recv));
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(bed_modify(b, i, IBV_QPS_RESET), 0);
		bed_none(b, 0);
		bed_none(b, 1);
	}
}

static void ordered_failure(struct bed *b)
{
	struct ibv_pd *pd;

	b->fake->fail_call("alloc_pd", 2, EMFILE);
	pd = b->v->alloc_pd(b->e[0].ctx);
	assert_non_null(pd);
	assert_null(b->fake->failed());
	assert_null(b->v->alloc_pd(b->e[0].ctx));
	assert_int_equal(errno, EMFILE);
	assert_string_equal(b->fake->failed(), "alloc_pd");
	b->fake->fail_call("*", 1, 0);
	assert_int_equal(bed_send(b, 1, IBV_WR_SEND, 0, 16, 0), EIO);
	b->fake->fail_always("dealloc_pd", EBUSY);
	assert_int_equal(b->v->dealloc_pd(pd), EBUSY);
	assert_int_equal(b->v->dealloc_pd(pd), EBUSY);
	b->fake->fail_always("dealloc_pd", 0);
	assert_int_equal(b->v->dealloc_pd(pd), 0);
	assert_int_equal(b->fake->count("dealloc_pd"), 3);
}

/* What stands before the bad work request is posted. */
static void list_that_fails(struct bed *b)
{
	struct ibv_recv_wr wr[3] = { { .wr_id = 1 }, { .wr_id = 2 }, { .wr_id = 3 } }, *bad = NULL;

	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	b->fake->fail_call("post_recv", 1, ENOMEM);
	assert_int_equal(ibv_post_recv(b->e[0].qp, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[2]);
	assert_int_equal(bed_modify(b, 0, IBV_QPS_ERR), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_WR_FLUSH_ERR);
	(void)bed_expect(b, 0, 2, IBV_WC_WR_FLUSH_ERR);
	bed_none(b, 0);
}

static void latency(struct bed *b)
{
	b->fake->latency("fake0", 3 * DR_NS_PER_MS);
	assert_int_equal(bed_send(b, 1, IBV_WR_RDMA_WRITE, 0, 16, IBV_SEND_SIGNALED), 0);
	(void)bed_expect(b, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(b->e[1].mem[3], b->e[0].mem[3]);
}

int main(int argc, char **argv)
{
#define BED(f, ...)                                                                                \
	((struct CMUnitTest){ #f, bed_test, NULL, NULL, &(struct bed_test){ f, __VA_ARGS__ } })
#define RC(f) BED(f, IBV_QPT_RC, false)
#define BARE(f) BED(f, IBV_QPT_RC, true)
	const struct CMUnitTest tests[] = { RC(write_with_imm), RC(send_inline), RC(queue_limits),
		BARE(modify_rules), RC(flush_rules), RC(receiver_not_ready), BARE(rnr_retry_ends),
		RC(retries_end), BARE(healed_in_time), RC(acknowledgment_lost), RC(peer_gone),
		RC(peer_fenced), BARE(psn_mismatch), RC(remote_key_gone), RC(receive_too_short),
		RC(local_key_wrong), BED(datagrams, IBV_QPT_UD, false), RC(completion_channel),
		RC(events), RC(source_gid_gone), BARE(ordered_status), RC(ordered_failure),
		RC(list_that_fails), RC(latency) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
