/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

/* What the tests of the verbs kind do with a pair, in whole pieces. */

void pair_transfer(struct pair *p)
{
	for (uint64_t seq = 0; seq < PAIR_MSGS && !pair_any_failed(p); seq++) {
		int rc = pair_post_recv(p, seq);

		assert_true(rc == 0 || rc == -EAGAIN || rc == -ENOTCONN);
		if (rc == 0)
			rc = pair_post_send(p, seq);
		assert_true(rc == 0 || rc == -EAGAIN || rc == -ENOTCONN);
		if (rc)
			pair_until(p, pair_any_failed(p));
	}
	p->doing = "transfer";
	pair_until(p, (p->e[R].count[DR_EV_DELIVERED] == PAIR_MSGS * PAIR_PARTS &&
			      p->e[S].count[DR_EV_SENT] == PAIR_MSGS * PAIR_PARTS) ||
			      pair_any_failed(p));
	for (uint64_t seq = 0; seq < PAIR_MSGS && !pair_any_failed(p); seq++)
		pair_check(p, seq);
}

void pair_chatter(struct pair *p)
{
	unsigned before = p->e[R].count[DR_EV_CTRL];

	p->doing = "chatter";
	dr_verbs_ops.rail_dgram(p->e[S].rail, "beat", 4);
	dr_verbs_ops.rail_dgram(p->e[R].rail, "beat", 4);
	if (dr_verbs_ops.post_ctrl(p->e[S].path, "frame", 5))
		return;
	dr_verbs_ops.flush(p->e[S].path, dr_now_ns());
	pair_until(p, p->e[R].count[DR_EV_CTRL] > before || pair_any_failed(p));
}

void pair_fence_both(struct pair *p)
{
	int64_t deadline = dr_now_ns() + 60 * DR_NS_PER_MS;

	pair_fence(p, S, deadline);
	pair_fence(p, R, deadline);
	for (unsigned i = 0; i < 2; i++)
		pair_until(p, p->e[i].fenced || p->e[i].fence_failed ||
				      (p->e[i].failed && p->e[i].scope == DR_SCOPE_RAIL &&
					      strstr(p->e[i].text, "destroyed")));
}

void pair_life(struct pair *p)
{
	if (pair_listen(p) || pair_register(p) || pair_create(p) || pair_connect(p))
		return;
	if (pair_ready(p))
		pair_transfer(p);
	if (!pair_any_failed(p))
		pair_chatter(p);
	pair_fence_both(p);
}

void pair_again(struct pair *p)
{
	pair_end_path(p);
	p->e[S].rail_failed = p->e[R].rail_failed = 0;
	pair_dial_again(p);
	p->doing = "rebuild";
	pair_until(p, (p->e[S].count[DR_EV_READY] && p->e[R].count[DR_EV_READY]) ||
			      p->e[S].failed || p->e[R].failed);
	if (p->e[S].failed || p->e[R].failed)
		fail_msg("rebuild: %s%s", p->e[S].text, p->e[R].text);
	pair_transfer(p);
	assert_false(p->e[S].failed || p->e[R].failed);
}

void pair_end(struct pair *p)
{
	pair_fence_both(p);
	assert_true(p->e[S].fenced && p->e[R].fenced);
	pair_clean(p, false);
}

void pair_credited(struct pair *p)
{
	assert_int_equal(pair_post_recv(p, 0), 0);
	pair_until(p, p->e[S].count[DR_EV_CREDIT]);
}

void pair_test(void **state)
{
	const struct pair_test *t = *state;

	for (unsigned nth = 0; nth < t->times; nth++) {
		struct pair p;

		pair_init(&p, pair_polls(t->how, nth));
		p.nth = nth;
		if (!(t->how & PAIR_BARE))
			pair_up(&p);
		t->run(&p);
		if (p.fake)
			pair_end(&p);
	}
}
