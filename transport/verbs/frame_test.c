/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "transport/verbs/path_priv.h"

static struct dr_verbs_credit sample(unsigned n)
{
	struct dr_verbs_credit c = {
		.n = (uint8_t)n, .skip = n > 1, .epoch = 7, .seq = 1ull << 40 | 5
	};
	unsigned i;

	for (i = 0; i < n; i++)
		c.part[i] = (struct dr_verbs_target){
			.addr = 0x7f0000000000 + i, .rkey = 100 + i, .cap = 1000 * i, .tag = i
		};
	return c;
}

static void packed_frames_are_read_one_by_one(void **state)
{
	struct dr_verbs_credit c = sample(8);
	struct dr_verbs_frame f;
	uint8_t buf[VB_CTRL_MSG];
	size_t len, at;
	struct dr_rbuf r;
	unsigned i;

	(void)state;
	len = dr_verbs_ctrl_encode("hello", 5, buf);
	assert_int_equal(len, dr_verbs_frame_len(buf));
	at = dr_verbs_credit_encode(&c, buf + len);
	assert_int_equal(at, dr_verbs_frame_len(buf + len));
	assert_int_equal(at, DR_VERBS_FRAME_MAX);
	len += at;
	len += dr_verbs_ctrl_encode("x", 1, buf + len);
	dr_rbuf_init(&r, buf, len);
	assert_int_equal(dr_verbs_frame_next(&r, &f), 1);
	assert_int_equal(f.type, DR_VERBS_FRAME_CTRL);
	assert_int_equal(f.len, 5);
	assert_memory_equal(f.data, "hello", 5);
	assert_int_equal(dr_verbs_frame_next(&r, &f), 1);
	assert_int_equal(f.type, DR_VERBS_FRAME_CREDIT);
	assert_int_equal(f.credit.n, 8);
	assert_int_equal(f.credit.skip, 1);
	assert_int_equal(f.credit.epoch, 7);
	assert_true(f.credit.seq == c.seq);
	for (i = 0; i < 8; i++)
		assert_true(f.credit.part[i].addr == c.part[i].addr &&
			    f.credit.part[i].rkey == c.part[i].rkey &&
			    f.credit.part[i].cap == c.part[i].cap &&
			    f.credit.part[i].tag == c.part[i].tag);
	assert_int_equal(dr_verbs_frame_next(&r, &f), 1);
	assert_int_equal(dr_verbs_frame_next(&r, &f), 0);
}

static void cut_frames_are_refused(void **state)
{
	struct dr_verbs_credit c = sample(3);
	uint8_t buf[DR_VERBS_FRAME_MAX];
	struct dr_verbs_frame f;
	size_t len = dr_verbs_credit_encode(&c, buf), i;
	struct dr_rbuf r;

	(void)state;
	for (i = 1; i < len; i++) {
		dr_rbuf_init(&r, buf, i);
		assert_int_equal(dr_verbs_frame_next(&r, &f), -EPROTO);
	}
	buf[2] = 8; /* skips a part that it has not */
	dr_rbuf_init(&r, buf, len);
	assert_int_equal(dr_verbs_frame_next(&r, &f), -EPROTO);
	buf[0] = 9;
	dr_rbuf_init(&r, buf, len);
	assert_int_equal(dr_verbs_frame_next(&r, &f), -EPROTO);
}

static void random_messages_end(void **state)
{
	uint8_t buf[VB_CTRL_MSG];
	struct dr_verbs_frame f;
	struct dr_rng rng;
	struct dr_rbuf r;
	unsigned n, i;
	int rc;

	(void)state;
	dr_rng_seed(&rng, 2);
	for (n = 0; n < 5000; n++) {
		for (i = 0; i < sizeof(buf); i++)
			buf[i] = (uint8_t)dr_rng_below(&rng, 4);
		dr_rbuf_init(&r, buf, dr_rng_below(&rng, sizeof(buf)));
		for (i = 0; (rc = dr_verbs_frame_next(&r, &f)) > 0; i++)
			assert_true(i < sizeof(buf));
		assert_true(rc == 0 || rc == -EPROTO);
	}
}

static void the_immediate_value_names_a_part(void **state)
{
	struct dr_verbs_imm m;

	(void)state;
	assert_int_equal(dr_verbs_imm_parse(dr_verbs_imm_encode(0x1ff, 0x12345, 6, true), &m), 0);
	assert_true(m.epoch == 0xff && m.seq == 0x2345 && m.part == 6 && m.more);
	assert_int_equal(dr_verbs_imm_parse(dr_verbs_imm_encode(1, 2, 7, false), &m), 0);
	assert_true(m.epoch == 1 && m.seq == 2 && m.part == 7 && !m.more);
	assert_int_equal(dr_verbs_imm_parse(1, &m), -EPROTO);
}

static void counts_survive_their_28_bits(void **state)
{
	static const uint64_t count[] = { 0, 1, VB_ID_COUNT - 1, VB_ID_COUNT,
		(uint64_t)VB_ID_COUNT + 1, 1ull << 40 };
	size_t i;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(count); i++) {
		uint32_t id = vb_id(true, 4, count[i] + 100);

		assert_int_equal(vb_id_qp(id), 4);
		assert_true(id & VB_ID_RECV);
		assert_true(vb_id_count(id, count[i]) == count[i] + 100);
		assert_true(vb_id_count(id, count[i] + 200) == count[i] + 100);
	}
}

static void every_status_has_a_meaning(void **state)
{
	unsigned s;

	(void)state;
	for (s = 1; s < 64; s++) {
		const struct vb_status *x = dr_verbs_status((enum ibv_wc_status)s);

		assert_true(x->err < 0 && x->what && x->what[0]);
		assert_true(x->scope == DR_SCOPE_PATH || x->scope == DR_SCOPE_RAIL);
	}
	assert_int_equal(dr_verbs_status(IBV_WC_RETRY_EXC_ERR)->err, -ETIMEDOUT);
	assert_int_equal(dr_verbs_status(IBV_WC_WR_FLUSH_ERR)->err, -ECONNRESET);
	assert_int_equal(dr_verbs_status(IBV_WC_LOC_PROT_ERR)->err, -EFAULT);
	assert_int_equal(dr_verbs_status(IBV_WC_FATAL_ERR)->scope, DR_SCOPE_RAIL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packed_frames_are_read_one_by_one),
		cmocka_unit_test(cut_frames_are_refused),
		cmocka_unit_test(random_messages_end),
		cmocka_unit_test(the_immediate_value_names_a_part),
		cmocka_unit_test(counts_survive_their_28_bits),
		cmocka_unit_test(every_status_has_a_meaning),
	};

	return cmocka_run_group_tests_name("verbs_frame", tests, NULL, NULL);
}
