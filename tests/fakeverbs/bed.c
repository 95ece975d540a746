/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/bed.h"

#include <arpa/inet.h>

static struct ibv_context *open_named(const struct dr_ibv *v, const char *name)
{
	struct ibv_device **list;
	struct ibv_context *c = NULL;
	int n = 0;

	list = v->get_device_list(&n);
	assert_non_null(list);
	for (int i = 0; i < n; i++)
		if (strcmp(v->get_device_name(list[i]), name) == 0)
			c = v->open_device(list[i]);
	v->free_device_list(list);
	assert_non_null(c);
	return c;
}

static void open_end(struct bed *b, unsigned i, enum ibv_qp_type type, int sig_all)
{
	struct bed_end *e = &b->e[i];
	struct ibv_gid_entry g;
	struct ibv_qp_init_attr a = { .qp_type = type, .sq_sig_all = sig_all };

	e->ctx = open_named(b->v, i ? "fake1" : "fake0");
	assert_int_equal(b->v->query_gid_ex(e->ctx, 1, 3, &g, 0, sizeof(g)), 0);
	e->gid = g.gid;
	e->pd = b->v->alloc_pd(e->ctx);
	e->ch = b->v->create_comp_channel(e->ctx);
	e->cq = b->v->create_cq(e->ctx, BED_CQE, e, e->ch, 0);
	assert_non_null(e->pd);
	assert_non_null(e->cq);
	a.send_cq = a.recv_cq = e->cq;
	a.cap = (struct ibv_qp_cap){ BED_WR, BED_WR, 2, 2, BED_INLINE };
	e->qp = b->v->create_qp(e->pd, &a);
	assert_non_null(e->qp);
	e->mem = calloc(1, BED_MEM);
	assert_non_null(e->mem);
	e->mr = b->v->reg_mr(
		e->pd, e->mem, BED_MEM, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(e->mr);
	for (unsigned k = 0; i == 0 && k < BED_MEM; k++)
		e->mem[k] = (uint8_t)(k * 7 + 1);
}

void bed_open(struct bed *b, enum ibv_qp_type type, int sig_all)
{
	struct dr_err err = { 0 };

	memset(b, 0, sizeof(*b));
	b->fake = dr_fake_attach("..");
	if (!b->fake)
		fail_msg("ibverbs_plugin.so is not built: make tests");
	if (dr_ibv_load(&b->v, &err))
		fail_msg("%s", err.text);
	b->fake->reset();
	b->timeout = 8;
	b->retry = 1;
	b->rnr_retry = 7;
	b->min_rnr = 1;
	b->psn = 0x1000;
	open_end(b, 0, type, sig_all);
	open_end(b, 1, type, sig_all);
}

static int attr_rtr(struct bed *b, unsigned end, struct ibv_qp_attr *a)
{
	if (b->e[end].qp->qp_type == IBV_QPT_UD)
		return 0;
	a->path_mtu = IBV_MTU_1024;
	a->dest_qp_num = b->e[!end].qp->qp_num;
	a->rq_psn = b->psn + (end ? b->skew : 0);
	a->min_rnr_timer = b->min_rnr;
	a->ah_attr.is_global = 1;
	a->ah_attr.port_num = 1;
	a->ah_attr.grh.dgid = b->e[!end].gid;
	a->ah_attr.grh.sgid_index = 3;
	return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

int bed_modify(struct bed *b, unsigned end, enum ibv_qp_state to)
{
	bool ud = b->e[end].qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr a = { .qp_state = to };
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT) {
		a.port_num = 1;
		a.qkey = BED_QKEY;
		a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	} else if (to == IBV_QPS_RTR) {
		mask |= attr_rtr(b, end, &a);
	} else if (to == IBV_QPS_RTS) {
		a.sq_psn = b->psn;
		a.timeout = b->timeout;
		a.retry_cnt = b->retry;
		a.rnr_retry = b->rnr_retry;
		mask |= IBV_QP_SQ_PSN;
		if (!ud)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return b->v->modify_qp(b->e[end].qp, &a, mask);
}

void bed_connect(struct bed *b)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(bed_modify(b, i, IBV_QPS_INIT), 0);
		assert_int_equal(bed_modify(b, i, IBV_QPS_RTR), 0);
		assert_int_equal(bed_modify(b, i, IBV_QPS_RTS), 0);
	}
}

void bed_shut(struct bed *b)
{
	const char *what = NULL;

	for (unsigned i = 0; i < 2; i++) {
		struct bed_end *e = &b->e[i];

		if (e->qp)
			assert_int_equal(b->v->destroy_qp(e->qp), 0);
		assert_int_equal(b->v->destroy_cq(e->cq), 0);
		assert_int_equal(b->v->destroy_comp_channel(e->ch), 0);
		if (e->mr)
			assert_int_equal(b->v->dereg_mr(e->mr), 0);
		assert_int_equal(b->v->dealloc_pd(e->pd), 0);
		assert_int_equal(b->v->close_device(e->ctx), 0);
		free(e->mem);
	}
	assert_int_equal(b->fake->alive_total(), 0);
	if (b->fake->violations(&what))
		fail_msg("misuse: %s", what);
}

int bed_recv(struct bed *b, unsigned end, uint64_t wr_id, uint32_t off, uint32_t len)
{
	struct bed_end *e = &b->e[end];
	struct ibv_sge sge = { (uintptr_t)e->mem + off, len, e->mr ? e->mr->lkey : 0 };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = len ? 1 : 0 }, *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

int bed_send(struct bed *b, uint64_t wr_id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
	unsigned flags)
{
	struct bed_end *e = &b->e[0];
	struct ibv_sge sge = { (uintptr_t)e->mem + off, len, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = op,
		.send_flags = flags,
		.imm_data = htonl(0xabcd0000u + (uint32_t)wr_id) };
	struct ibv_send_wr *bad = NULL;
	int rc;

	wr.wr.rdma.remote_addr = (uintptr_t)b->e[1].mem + off;
	wr.wr.rdma.rkey = b->e[1].mr ? b->e[1].mr->rkey : 0;
	rc = ibv_post_send(e->qp, &wr, &bad);
	assert_ptr_equal(bad, rc ? &wr : NULL);
	return rc;
}

struct ibv_wc bed_wait(struct bed *b, unsigned end)
{
	int64_t until = dr_now_ns() + 20 * DR_NS_PER_S;
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(b->e[end].cq, 1, &wc);
	while (n == 0 && dr_now_ns() < until);
	assert_int_equal(n, 1);
	return wc;
}

void bed_none(struct bed *b, unsigned end)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(b->e[end].cq, 1, &wc), 0);
}

struct ibv_wc bed_expect(struct bed *b, unsigned end, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = bed_wait(b, end);

	assert_int_equal(wc.wr_id, wr_id);
	assert_string_equal(b->v->wc_status_str(wc.status), b->v->wc_status_str(status));
	assert_int_equal(wc.qp_num, b->e[end].qp->qp_num);
	return wc;
}
