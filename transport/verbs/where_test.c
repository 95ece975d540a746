/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "transport/verbs/where.h"

/* Two ends that know each other, at lid. */
static const struct dr_verbs_addr first = { .mtu = 1024, .lid = 1, .ud_qpn = 1 };

static struct vb_where end(void)
{
	struct vb_where w = { 0 };

	dr_verbs_where_peer(&w, &first);
	return w;
}

/* What w says, from this place. */
static struct dr_verbs_news says(const struct vb_where *w, uint16_t lid, bool answer)
{
	struct dr_verbs_news n = dr_verbs_where_tell(w, answer);

	n.addr = first;
	n.addr.lid = lid;
	n.addr.ud_qpn = 100u + lid;
	return n;
}

static void an_address_is_told_until_it_is_known(void **state)
{
	struct vb_where a = end(), b = end();
	struct dr_verbs_news n;
	int64_t now = 5;

	(void)state;
	assert_false(dr_verbs_where_tick(&a, now));
	dr_verbs_where_moved(&a);
	for (unsigned i = 0; i < 50; i++) { /* all lost */
		assert_true(dr_verbs_where_tick(&a, now));
		assert_false(dr_verbs_where_tick(&a, now + VB_NEWS_NS - 1));
		now += VB_NEWS_NS;
	}
	n = says(&a, 2, false);
	assert_int_equal(dr_verbs_where_news(&b, &n), VB_WHERE_MOVED | VB_WHERE_ANSWER);
	assert_int_equal(b.peer.lid, 2);
	assert_int_equal(b.peer.ud_qpn, 102);
	assert_int_equal(dr_verbs_where_news(&b, &n), VB_WHERE_ANSWER); /* it came twice */
	assert_true(dr_verbs_where_tick(&a, now));
	n = says(&b, 1, true);
	assert_int_equal(dr_verbs_where_news(&a, &n), 0); /* an answer is not answered */
	assert_false(dr_verbs_where_tick(&a, now + VB_NEWS_NS));
	assert_int_equal(a.peer.lid, 1);
}

static void a_late_answer_tells_nothing_of_the_next_address(void **state)
{
	struct vb_where a = end(), b = end();
	struct dr_verbs_news n, late;

	(void)state;
	dr_verbs_where_moved(&a);
	n = says(&a, 2, false);
	dr_verbs_where_news(&b, &n);
	late = says(&b, 1, true);
	dr_verbs_where_moved(&a);
	assert_int_equal(dr_verbs_where_news(&a, &late), 0);
	assert_true(dr_verbs_where_tick(&a, 5));
	n = says(&a, 3, false);
	assert_int_equal(dr_verbs_where_news(&b, &n), VB_WHERE_MOVED | VB_WHERE_ANSWER);
	n = says(&b, 1, true);
	dr_verbs_where_news(&a, &n);
	assert_false(dr_verbs_where_tick(&a, 5 + VB_NEWS_NS));
}

static void an_older_address_changes_nothing(void **state)
{
	struct vb_where a = end(), b = end();
	struct dr_verbs_news old, n;

	(void)state;
	dr_verbs_where_moved(&a);
	old = says(&a, 2, false);
	dr_verbs_where_moved(&a);
	n = says(&a, 3, false);
	dr_verbs_where_news(&b, &n);
	assert_int_equal(dr_verbs_where_news(&b, &old), 0);
	assert_int_equal(b.peer.lid, 3);
}

static void both_ends_may_move_at_once(void **state)
{
	struct vb_where a = end(), b = end();
	struct dr_verbs_news of_a, of_b;

	(void)state;
	dr_verbs_where_moved(&a);
	dr_verbs_where_moved(&b);
	of_a = says(&a, 2, false);
	of_b = says(&b, 3, false);
	dr_verbs_where_news(&b, &of_a);
	dr_verbs_where_news(&a, &of_b);
	assert_int_equal(a.peer.lid, 3);
	assert_int_equal(b.peer.lid, 2);
	assert_true(dr_verbs_where_tick(&a, 5) && dr_verbs_where_tick(&b, 5));
	of_a = says(&a, 2, true);
	of_b = says(&b, 3, true);
	assert_int_equal(dr_verbs_where_news(&b, &of_a) | dr_verbs_where_news(&a, &of_b), 0);
	assert_false(dr_verbs_where_tick(&a, 5 + VB_NEWS_NS));
	assert_false(dr_verbs_where_tick(&b, 5 + VB_NEWS_NS));
}

static void nothing_is_told_to_nobody(void **state)
{
	struct vb_where a = { 0 }, b = end();
	struct dr_verbs_news n = says(&b, 2, false);

	(void)state;
	dr_verbs_where_moved(&a);
	assert_false(dr_verbs_where_tick(&a, 5));
	assert_int_equal(dr_verbs_where_news(&a, &n), 0);
	n.addr.roce = true; /* another link layer */
	n.life = 7;
	assert_int_equal(dr_verbs_where_news(&b, &n), 0);
	assert_int_equal(b.peer.lid, 1);
}

static void a_greeting_tells_an_address_too(void **state)
{
	struct dr_verbs_hello h = { .lid = 4, .ud_qpn = 44, .gid = { 1 } };
	struct vb_where a = end();

	(void)state;
	assert_int_equal(dr_verbs_where_greeted(&a, &h), VB_WHERE_MOVED);
	assert_int_equal(a.peer.lid, 4);
	assert_int_equal(a.peer.gid[0], 1);
	h.ud_qpn = 45; /* the same place, with a new queue pair */
	assert_int_equal(dr_verbs_where_greeted(&a, &h), 0);
	assert_int_equal(a.peer.ud_qpn, 45);
}

static void a_peer_without_key_stays_where_its_handle_was(void **state)
{
	static const uint8_t here[16] = { 0 }, other[16] = { [15] = 1 };
	struct vb_where w = { .pinned = true };
	struct dr_verbs_addr roce = first;

	(void)state;
	assert_false(dr_verbs_where_allows(&w, here)); /* not known yet */
	dr_verbs_where_peer(&w, &first);
	assert_true(dr_verbs_where_allows(&w, here));
	assert_true(dr_verbs_where_allows(&w, other)); /* no IP address */
	roce.roce = true;
	dr_verbs_where_peer(&w, &roce);
	assert_true(dr_verbs_where_allows(&w, here));
	assert_false(dr_verbs_where_allows(&w, other));
	w.pinned = false;
	assert_true(dr_verbs_where_allows(&w, other));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_address_is_told_until_it_is_known),
		cmocka_unit_test(a_late_answer_tells_nothing_of_the_next_address),
		cmocka_unit_test(an_older_address_changes_nothing),
		cmocka_unit_test(both_ends_may_move_at_once),
		cmocka_unit_test(nothing_is_told_to_nobody),
		cmocka_unit_test(a_greeting_tells_an_address_too),
		cmocka_unit_test(a_peer_without_key_stays_where_its_handle_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
