/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "transport/verbs/verbs_hs_testkit.h"

enum { CHANNEL = 7, INDEX = 1, QPS = 4 };
static const uint8_t token[DR_TOKEN_LEN] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16 };
static const int64_t T0 = 1000;

/* Two rails that exchange greetings, at a time. */
struct fix {
	struct vb_admission a, peer;
	int64_t now;
	uint8_t bytes[DR_VERBS_HELLO_MAX];
	size_t len;
};

static void begin(struct fix *f)
{
	dr_verbs_admission_init(&f->a, token);
	dr_verbs_admission_init(&f->peer, token);
	f->now = T0;
}

static struct dr_path_ident ident(uint32_t gen, bool connector)
{
	return (struct dr_path_ident){ .channel = CHANNEL,
		.gen = gen,
		.index = INDEX,
		.sender = connector,
		.connector = connector };
}

/* A path of f->a, started. */
static void acceptor(struct fix *f, struct vb_hs *h, uint32_t gen)
{
	struct dr_path_ident id = ident(gen, false);

	dr_verbs_hs_init(h, &f->a, &id, QPS);
	dr_verbs_hs_start(h);
}

static void waits(struct fix *f, struct vb_hs *h, uint32_t gen)
{
	acceptor(f, h, gen);
	assert_int_equal(dr_verbs_hs_built(h, f->now).what, VB_HS_NOTHING);
	assert_int_equal(h->state, VB_HS_WAITING);
}

/* A path of f->peer that sends HELLOs. */
static void connector(struct fix *f, struct vb_hs *h, uint32_t gen)
{
	struct dr_path_ident id = ident(gen, true);

	dr_verbs_hs_init(h, &f->peer, &id, QPS);
	dr_verbs_hs_start(h);
	assert_int_equal(dr_verbs_hs_tick(h, f->now), VB_HS_NOTHING);
	assert_int_equal(dr_verbs_hs_built(h, f->now).what, VB_HS_NOTHING);
	assert_int_equal(dr_verbs_hs_tick(h, f->now), VB_HS_GREET);
}

/* What this path says of itself stays in f. */
static void greets(struct fix *f, const struct vb_hs *h)
{
	struct dr_verbs_hello mine = { .mtu = 4096,
		.ud_qpn = 5,
		.psn = 77,
		.msg_max = 4096,
		.ctrl_recvs = 32,
		.qpn = { 11, 12, 13, 14, 15, 16, 17 } };

	f->len = dr_verbs_hs_greeting(h, &mine, f->bytes);
}

static struct vb_verdict hears(struct fix *f, struct vb_admission *a)
{
	struct vb_verdict v = dr_verbs_admission_bytes(a, f->bytes, f->len, f->now);

	assert_true(dr_verbs_admission_validate(a));
	return v;
}

/* The HELLO of some connector arrives at f->a. */
static struct vb_verdict hello(struct fix *f, struct dr_path_ident id, unsigned qps)
{
	struct vb_admission other;
	struct vb_hs h;

	dr_verbs_admission_init(&other, token);
	dr_verbs_hs_init(&h, &other, &id, qps);
	greets(f, &h);
	return hears(f, &f->a);
}

static struct vb_verdict hello_of(struct fix *f, uint32_t gen)
{
	return hello(f, ident(gen, true), QPS);
}

static unsigned kept(const struct vb_admission *a)
{
	unsigned n = 0;

	for (unsigned i = 0; i < VB_PARKED; i++)
		n += a->parked[i].used;
	return n;
}

static void both_ends_come_up(void **state)
{
	struct vb_hs con, acc;
	struct vb_verdict v;
	struct fix f;

	(void)state;
	begin(&f);
	connector(&f, &con, 3);
	waits(&f, &acc, 3);
	greets(&f, &con);
	v = hears(&f, &f.a);
	assert_int_equal(v.what, VB_HS_JOIN);
	assert_ptr_equal(v.to, &acc);
	assert_int_equal(v.who.qpn[1], 12);
	assert_int_equal(v.who.psn, 77);
	assert_int_equal(hears(&f, &f.a).what, VB_HS_NOTHING); /* again, while it joins */
	assert_int_equal(dr_verbs_hs_joined(&acc), VB_HS_GREET);
	greets(&f, &acc);
	v = hears(&f, &f.peer);
	assert_int_equal(v.what, VB_HS_JOIN);
	assert_ptr_equal(v.to, &con);
	assert_int_equal(hears(&f, &f.peer).what, VB_HS_DROP);
	assert_int_equal(dr_verbs_hs_deadline(&con), DR_NEVER); /* no HELLO any more */
	assert_int_equal(dr_verbs_hs_joined(&con), VB_HS_SAY);
	assert_int_equal(dr_verbs_hs_acked(&con), VB_HS_NOTHING); /* shows one direction */
	assert_int_equal(con.state, VB_HS_CONFIRMING);
	assert_int_equal(dr_verbs_hs_acked(&acc), VB_HS_NOTHING);
	assert_int_equal(dr_verbs_hs_message(&acc), VB_HS_SAY);
	assert_int_equal(acc.state, VB_HS_ANSWERING);
	assert_int_equal(dr_verbs_hs_message(&con), VB_HS_READY);
	assert_int_equal(dr_verbs_hs_acked(&acc), VB_HS_READY);
	assert_int_equal(con.state, VB_HS_UP);
	assert_int_equal(acc.state, VB_HS_UP);
	assert_int_equal(dr_verbs_hs_message(&acc), VB_HS_NOTHING);
	assert_int_equal(dr_verbs_hs_acked(&acc), VB_HS_NOTHING);
	dr_verbs_hs_fini(&con);
	dr_verbs_hs_fini(&acc);
	assert_null(f.a.paths);
}

static void a_second_message_shows_that_the_first_arrived(void **state)
{
	struct vb_hs acc;
	struct fix f;

	(void)state;
	begin(&f);
	waits(&f, &acc, 3);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_JOIN);
	assert_int_equal(dr_verbs_hs_joined(&acc), VB_HS_GREET);
	assert_int_equal(dr_verbs_hs_message(&acc), VB_HS_SAY);
	assert_int_equal(dr_verbs_hs_message(&acc), VB_HS_READY);
}

static void hello_is_repeated_until_welcome_comes(void **state)
{
	struct vb_hs con, acc;
	struct fix f;

	(void)state;
	begin(&f);
	connector(&f, &con, 3);
	for (unsigned i = 0; i < 100; i++) { /* all of them lost */
		assert_int_equal(dr_verbs_hs_deadline(&con), f.now + VB_HELLO_NS);
		f.now += VB_HELLO_NS - 1;
		assert_int_equal(dr_verbs_hs_tick(&con, f.now), VB_HS_NOTHING);
		f.now++;
		assert_int_equal(dr_verbs_hs_tick(&con, f.now), VB_HS_GREET);
	}
	waits(&f, &acc, 3);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_JOIN);
	assert_int_equal(dr_verbs_hs_joined(&acc), VB_HS_GREET);
	for (unsigned i = 0; i < 5; i++) { /* our WELCOMEs are lost */
		struct vb_verdict v = hello_of(&f, 3);

		assert_int_equal(v.what, VB_HS_GREET);
		assert_ptr_equal(v.to, &acc);
		assert_int_equal(acc.state, VB_HS_ADMITTED);
	}
	assert_int_equal(dr_verbs_hs_message(&acc), VB_HS_SAY);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_DROP); /* late: it has the WELCOME */
	assert_int_equal(acc.state, VB_HS_ANSWERING);
}

static void whoever_has_no_token_changes_nothing(void **state)
{
	uint8_t good[DR_VERBS_HELLO_MAX];
	struct vb_hs acc;
	struct fix f;

	(void)state;
	begin(&f);
	waits(&f, &acc, 3);
	struct dr_path_ident id = ident(3, true);
	struct vb_admission other;
	struct vb_hs h;
	dr_verbs_admission_init(&other, token);
	dr_verbs_hs_init(&h, &other, &id, QPS);
	greets(&f, &h);
	memcpy(good, f.bytes, f.len);
	for (size_t i = 0; i < f.len; i++) { /* each byte counts */
		struct vb_verdict v;

		memcpy(f.bytes, good, f.len);
		f.bytes[i] ^= 1;
		v = hears(&f, &f.a);
		assert_int_equal(v.what, VB_HS_REJECT);
		assert_non_null(v.why);
		assert_null(v.to);
	}
	for (f.len--; f.len > 0; f.len--)
		assert_int_equal(hears(&f, &f.a).what, VB_HS_REJECT);
	assert_int_equal(hears(&f, &f.a).what, VB_HS_REJECT);
	assert_int_equal(kept(&f.a), 0);
	assert_int_equal(acc.state, VB_HS_WAITING);
}

static void a_greeting_goes_to_its_own_path_alone(void **state)
{
	struct dr_path_ident others[] = {
		{ CHANNEL + 1, 3, INDEX, true, true },
		{ CHANNEL, 3, !INDEX, true, true },
		{ CHANNEL, 3, INDEX, false, true },
		{ CHANNEL, 4, INDEX, true, true },
	};
	struct vb_hs acc;
	struct fix f;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(others); i++) {
		begin(&f);
		waits(&f, &acc, 3);
		assert_int_equal(hello(&f, others[i], QPS).what, VB_HS_INCOMING);
		assert_int_equal(acc.state, VB_HS_WAITING);
		assert_int_equal(kept(&f.a), 1);
	}
	begin(&f);
	waits(&f, &acc, 3);
	assert_int_equal(hello_of(&f, 2).what, VB_HS_DROP); /* outdated: not kept */
	assert_int_equal(acc.state, VB_HS_WAITING);
	assert_int_equal(kept(&f.a), 0);
}

static void a_welcome_of_another_generation_is_no_answer(void **state)
{
	struct vb_hs con, old;
	struct fix f;

	(void)state;
	begin(&f);
	connector(&f, &con, 3);
	for (uint32_t gen = 2; gen <= 4; gen += 2) {
		struct dr_path_ident id = ident(gen, false);

		dr_verbs_hs_init(&old, &f.a, &id, QPS);
		greets(&f, &old);
		assert_int_equal(hears(&f, &f.peer).what, VB_HS_DROP);
		assert_int_equal(con.state, VB_HS_GREETING);
		dr_verbs_hs_fini(&old);
	}
}

/* A path that has ended, and one that was replaced, take nothing. */
static void old_paths_take_nothing(void **state)
{
	struct vb_hs old, acc;
	struct fix f;

	(void)state;
	begin(&f);
	waits(&f, &old, 3);
	dr_verbs_hs_end(&old);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_DROP);
	assert_int_equal(old.state, VB_HS_ENDED);
	waits(&f, &acc, 5);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_DROP);
	assert_int_equal(hello_of(&f, 4).what, VB_HS_DROP);
	assert_int_equal(hello_of(&f, 5).what, VB_HS_JOIN);
	assert_int_equal(acc.state, VB_HS_JOINING);
	assert_int_equal(kept(&f.a), 0);
}

static void an_early_hello_waits_for_its_path(void **state)
{
	struct vb_verdict v;
	struct vb_hs acc;
	struct fix f;

	(void)state;
	begin(&f);
	v = hello_of(&f, 3);
	assert_int_equal(v.what, VB_HS_INCOMING);
	assert_int_equal(v.who.gen, 3);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_NOTHING); /* told once */
	acceptor(&f, &acc, 3);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_NOTHING);
	v = dr_verbs_hs_built(&acc, f.now);
	assert_int_equal(v.what, VB_HS_JOIN);
	assert_ptr_equal(v.to, &acc);
	assert_int_equal(v.who.gen, 3);
	assert_int_equal(kept(&f.a), 0);
}

static void a_path_takes_no_hello_that_is_not_repeated_or_not_its_own(void **state)
{
	struct vb_hs acc;
	struct fix f;

	(void)state;
	begin(&f);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_INCOMING);
	f.now += 2 * VB_HELLO_NS + 1; /* whoever sent it may have gone */
	waits(&f, &acc, 3);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_JOIN);
	begin(&f);
	assert_int_equal(hello_of(&f, 4).what, VB_HS_INCOMING);
	waits(&f, &acc, 3);
	dr_verbs_hs_fini(&acc);
	assert_int_equal(
		hello(&f, (struct dr_path_ident){ CHANNEL, 5, INDEX, false, true }, QPS).what,
		VB_HS_INCOMING);
	waits(&f, &acc, 5); /* kept is one of the same direction as its own */
	assert_int_equal(kept(&f.a), 1);
}

static void of_two_generations_the_newer_is_kept(void **state)
{
	struct fix f;

	(void)state;
	begin(&f);
	assert_int_equal(hello_of(&f, 4).what, VB_HS_INCOMING);
	assert_int_equal(hello_of(&f, 3).what, VB_HS_DROP); /* late: its successor is here */
	assert_int_equal(f.a.parked[0].hello.gen, 4);
	assert_int_equal(hello_of(&f, 6).what, VB_HS_INCOMING);
	assert_int_equal(f.a.parked[0].hello.gen, 6);
	assert_int_equal(kept(&f.a), 1);
	f.now += VB_PARK_NS; /* that end restarted, or gave it up */
	assert_int_equal(hello_of(&f, 6).what, VB_HS_INCOMING);
	f.now += VB_PARK_NS;
	assert_int_equal(hello_of(&f, 5).what, VB_HS_INCOMING);
	assert_int_equal(f.a.parked[0].hello.gen, 5);
}

static void places_are_bounded(void **state)
{
	struct dr_path_ident id = ident(3, true);
	struct fix f;

	(void)state;
	begin(&f);
	for (unsigned i = 0; i < VB_PARKED; i++) {
		id.channel = i;
		assert_int_equal(hello(&f, id, QPS).what, VB_HS_INCOMING);
		f.now++;
	}
	id.channel = 0;
	assert_int_equal(hello(&f, id, QPS).what, VB_HS_NOTHING); /* the first one is repeated */
	id.channel = VB_PARKED;
	assert_int_equal(hello(&f, id, QPS).what, VB_HS_INCOMING);
	assert_int_equal(kept(&f.a), VB_PARKED);
	for (unsigned i = 0; i < VB_PARKED; i++) /* the second one made room */
		assert_int_not_equal(f.a.parked[i].hello.channel, 1);
	assert_int_equal(f.a.parked[0].hello.channel, 0);
}

static void another_number_of_queue_pairs_is_refused(void **state)
{
	struct vb_hs acc;
	struct vb_verdict v;
	struct fix f;

	(void)state;
	begin(&f);
	waits(&f, &acc, 3);
	v = hello(&f, ident(3, true), QPS + 1);
	assert_int_equal(v.what, VB_HS_UNEQUAL);
	assert_ptr_equal(v.to, &acc);
	assert_int_equal(v.who.n, QPS + 1);
	assert_int_equal(acc.state, VB_HS_ENDED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_come_up),
		cmocka_unit_test(a_second_message_shows_that_the_first_arrived),
		cmocka_unit_test(hello_is_repeated_until_welcome_comes),
		cmocka_unit_test(whoever_has_no_token_changes_nothing),
		cmocka_unit_test(a_greeting_goes_to_its_own_path_alone),
		cmocka_unit_test(a_welcome_of_another_generation_is_no_answer),
		cmocka_unit_test(old_paths_take_nothing),
		cmocka_unit_test(an_early_hello_waits_for_its_path),
		cmocka_unit_test(a_path_takes_no_hello_that_is_not_repeated_or_not_its_own),
		cmocka_unit_test(of_two_generations_the_newer_is_kept),
		cmocka_unit_test(places_are_bounded),
		cmocka_unit_test(another_number_of_queue_pairs_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
