/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_testkit.h"

/* Connections that break or stand still in every stage, and every way in which an exchange ends. */

/* ---- broken connections ------------------------------------------------------------------- */

/* Of what a run at every byte needs. */
struct run {
	unsigned side, marks;
	size_t at, step;
	bool reset, close_on_done, refuse;
};

static void run_broken(void **state, const struct run *r)
{
	setup(state);
	one_listen();
	relay_start(w.handle, 0);
	w.mark_side = r->side;
	w.marks = r->marks;
	w.mark_at = r->at;
	w.mark_reset = r->reset;
	w.close_on_done = r->close_on_done;
	w.refuse = r->refuse;
	struct end *d = connect_to(w.handle, 0);
	until(d->dones + d->fails > 0);
}

/* The first connections break after so many bytes of one end; from 0 to more than there are. */
static void break_at_every_byte(void **state)
{
	static const struct run runs[] = {
		{ .side = 0, .marks = 1, .step = 1 },
		{ .side = 1, .marks = 1, .step = 1, .close_on_done = true },
		{ .side = 0, .marks = 1, .step = 3, .reset = true, .close_on_done = true },
		{ .side = 1, .marks = 1, .step = 3, .reset = true },
		{ .side = 0, .marks = 3, .step = 3, .close_on_done = true },
		{ .side = 1, .marks = 3, .step = 3 },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(runs); i++)
		for (size_t at = 0;; at += runs[i].step) {
			struct run r = runs[i];
			r.at = at;
			run_broken(state, &r);
			check_done();
			bool hit = w.mark_hit;
			assert_true(!hit || w.relayed > 1 || at > 300);
			teardown(state);
			if (!hit) {
				assert_true(at > 300);
				break;
			}
		}
}

static void refusal_at_every_byte(void **state)
{
	for (unsigned side = 0; side < 2; side++)
		for (size_t at = 0;; at++) {
			struct run r = { .side = side, .marks = 1, .at = at, .refuse = true };
			run_broken(state, &r);
			assert_int_equal(w.comm[0].a.asked, 1);
			assert_int_equal(w.comm[0].a.dones + w.comm[0].a.fails, 0);
			assert_int_equal(w.comm[0].d.asked + w.comm[0].d.dones, 0);
			assert_int_equal(w.comm[0].d.fails, 1);
			assert_int_equal(w.comm[0].d.code, -EPERM);
			assert_non_null(strstr(w.comm[0].d.text, "this device has no rails?"));
			bool hit = w.mark_hit;
			teardown(state);
			if (!hit) {
				assert_true(at > 200);
				break;
			}
		}
}

/* The path to the first address breaks in the middle; the exchange continues over the second. */
static void continues_over_another_address(void **state)
{
	(void)state;
	struct dr_rdv_handle h;
	struct dr_addr a = { .len = 0 };
	int fd;
	one_listen();
	assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
	/* The relay listens on another address with the listen's own port. */
	uint8_t first[DR_RDV_HANDLE_BYTES];
	memcpy(first, w.handle, sizeof(first));
	assert_int_equal(dr_addr_parse("127.0.0.55", &a), 0);
	dr_sa_set_port(&a.ss, h.port);
	assert_int_equal(dr_net_listen(&a, &fd, NULL), 0);
	w.relay_listener.fd = fd;
	w.relay_listener.ready = relay_accept;
	w.target_port = h.port;
	assert_int_equal(dr_poller_add(w.poller, &w.relay_listener, EPOLLIN), 0);
	w.hold = true;
	h.addrs[1] = h.addrs[0];
	h.addrs[0].addr = a;
	h.n = 2;
	assert_int_equal(dr_rdv_handle_encode(&h, first), 2);
	struct end *d = connect_to(first, 0);
	until(w.comm[0].a.asked == 1);
	assert_int_equal(w.relayed, 1);
	relay_stop();
	/* It comes back by the other address, with the same offer. */
	until(w.comm[0].a.c->link && w.comm[0].a.c->link->state == DR_LINK_UP && d->c->link &&
		d->c->link->conv.state == DR_CONV_OPEN);
	assert_int_equal(w.comm[0].a.asked, 1);
	answer(&w.comm[0].a);
	until(d->dones == 1);
	check_done();
}

/* The dialler comes again while the acceptor takes its earlier connection for alive. */
static void replaces_a_stale_connection(void **state)
{
	(void)state;
	char byte;
	w.hold = true;
	one_listen();
	relay_start(w.handle, 0);
	struct end *d = connect_to(w.handle, 0), *a = &w.comm[0].a;
	until(a->asked == 1);
	struct relay *old = &w.relay[0];
	dr_poller_del(w.poller, &old->side[0]);
	dr_poller_del(w.poller, &old->side[1]);
	shutdown(old->side[0].fd, SHUT_RDWR);
	struct dr_link *first = a->c->link;
	until(a->c->link && a->c->link != first);
	/* The acceptor has closed the old one. */
	until(recv(old->side[1].fd, &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN);
	answer(a);
	until(d->dones == 1);
	check_done();
}

/* Nothing is acknowledged or sent by one end any more: not even a closed connection tells the other one. */
static void freeze_at_every_stage(void **state)
{
	for (unsigned side = 0; side < 2; side++)
		for (size_t at = 0;; at += 97) {
			setup(state);
			w.timing.stage_ns = 300 * MS;
			one_listen();
			relay_start(w.handle, 0);
			w.mark_side = side;
			w.marks = 1;
			w.mark_at = at;
			w.mark_freeze = true;
			struct end *d = connect_to(w.handle, 700 * MS);
			until(d->dones + d->fails > 0);
			bool hit = w.mark_hit;
			/* Before OPEN the stage ends it, and it is dialled again. After that only the end of time
			 * tells a frozen network from owners that take long. */
			if (d->fails) {
				assert_int_equal(d->code, -ETIMEDOUT);
				until(w.comm[0].a.asked == w.comm[0].a.fails + w.comm[0].a.dones);
			} else {
				check_done();
			}
			until(w.node[0]->accepts == NULL && w.node[1]->dials == NULL);
			teardown(state);
			if (!hit)
				break;
		}
}

/* ---- ends --------------------------------------------------------------------------------- */

static void refusal(void **state)
{
	(void)state;
	w.refuse = true;
	one_listen();
	struct end *d = connect_to(w.handle, 0);
	until(d->fails == 1);
	assert_int_equal(d->code, -EPERM);
	assert_non_null(strstr(d->text, "refused the comm: this device has no rails?"));
	assert_int_equal(w.comm[0].a.asked, 1);
	assert_int_equal(w.comm[0].a.fails, 0);
	/* Also after it had accepted. */
	w.refuse = false;
	w.hold = true;
	d = connect_to(w.handle, 0);
	struct end *a = &w.comm[1].a;
	until(a->asked == 1);
	json_t *reply = json_pack("{s:i}", "re", 1);
	assert_int_equal(dr_rdv_accept(a->c, json_null()), -EINVAL);
	assert_int_equal(dr_rdv_accept(a->c, reply), 0);
	assert_int_equal(dr_rdv_accept(a->c, reply), -EINVAL);
	json_decref(reply);
	until(d->asked == 1);
	dr_rdv_refuse(a->c, 1000, "too late");
	dr_rdv_refuse(a->c, 1000, "too late");
	a->c = NULL;
	until(d->fails == 1);
	assert_int_equal(d->code, -ECONNREFUSED);
	assert_non_null(strstr(d->text, "too late"));
}

static void nobody_there(void **state)
{
	(void)state;
	one_listen();
	dr_rdv_destroy(w.node[0]);
	w.node[0] = NULL;
	int64_t began = dr_now_ns();
	struct end *d = connect_to(w.handle, 300 * MS);
	until(d->fails == 1);
	assert_true(dr_now_ns() - began >= 300 * MS);
	assert_int_equal(d->code, -ETIMEDOUT);
	assert_non_null(strstr(d->text, ", the last one to 127.0.0.1:"));
	assert_non_null(strstr(d->text, "Connection refused"));
	until(idle());
}

/* Time is over at both ends, whatever they wait for. */
static void time_is_over(void **state)
{
	static const char *const words[2][2] = {
		{ "the peer has not answered the offer", "was not answered" },
		{ "this end has not given its handles", "the connecting end at 127.0.0.1:" },
	};
	for (int i = 0; i < 2; i++) {
		setup(state);
		w.hold = i == 0;
		w.cancel_d = i == 1 ? AFTER_ACCEPT : NOWHERE;
		one_listen();
		struct end *d = connect_to(w.handle, DR_NS_PER_S);
		until(d->fails == 1 && w.comm[0].a.fails == 1);
		assert_int_equal(d->code, -ETIMEDOUT);
		assert_non_null(strstr(d->text, words[i][0]));
		/* The dialler's goodbye arrives first, or the acceptor's time is over as well. */
		assert_true(w.comm[0].a.code == -ECANCELED || w.comm[0].a.code == -ETIMEDOUT);
		until(idle());
		teardown(state);
	}
}

/* A dialler whose process ends half-way does not keep anything at the acceptor. */
static void dialler_dies(void **state)
{
	(void)state;
	w.hold = true;
	one_listen();
	connect_to(w.handle, DR_NS_PER_S);
	until(w.comm[0].a.asked == 1);
	dr_rdv_destroy(w.node[1]);
	w.node[1] = NULL;
	w.comm[0].d.c = NULL;
	until(w.comm[0].a.fails == 1);
	assert_int_equal(w.comm[0].a.code, -ETIMEDOUT);
	until(idle());
}

static void cancel_by_the_dialler(void **state)
{
	static const enum stage stages[] = { NOWHERE, IN_ACCEPT, AFTER_ACCEPT, AFTER_GIVE };
	for (size_t i = 0; i < DR_ARRAY_LEN(stages); i++)
		for (int turns = 0; turns < (stages[i] == NOWHERE ? 12 : 1); turns++) {
			setup(state);
			w.cancel_d = stages[i];
			w.hold = stages[i] == NOWHERE;
			one_listen();
			struct end *d = connect_to(w.handle, 0);
			struct end *a = &w.comm[0].a;
			if (stages[i] == AFTER_ACCEPT)
				until(d->asked == 1);
			for (int t = 0; t < turns; t++)
				turn();
			if (stages[i] == NOWHERE || stages[i] == AFTER_ACCEPT)
				cancel(d);
			else
				until(d->cancelled);
			until(w.node[1]->dials == NULL && w.node[0]->accepts == NULL &&
				a->asked == a->fails);
			assert_int_equal(d->dones + d->fails + a->dones, 0);
			assert_int_equal(d->asked, stages[i] != NOWHERE);
			if (a->fails)
				assert_int_equal(a->code, -ECANCELED);
			until(idle());
			teardown(state);
		}
}

static void cancel_by_the_acceptor(void **state)
{
	static const enum stage stages[] = { IN_OFFER, AFTER_OFFER, AFTER_REPLY, AFTER_GIVE };
	for (size_t i = 0; i < DR_ARRAY_LEN(stages); i++)
		for (int by_close = 0; by_close < 2; by_close++) {
			setup(state);
			w.cancel_a = stages[i];
			w.hold = stages[i] == AFTER_OFFER;
			one_listen();
			struct end *d = connect_to(w.handle, 0), *a = &w.comm[0].a;
			until(a->asked == 1);
			if (stages[i] == AFTER_OFFER && by_close) {
				dr_rdv_listen_close(w.listen);
				a->c = NULL;
			} else if (stages[i] == AFTER_OFFER) {
				cancel(a);
			}
			until(d->fails == 1);
			assert_int_equal(d->code, a->cancelled ? -ECANCELED : -ECONNREFUSED);
			assert_non_null(
				strstr(d->text, a->cancelled ? "the listening end gave the comm up"
							     : "the listen comm is closed"));
			assert_int_equal(d->dones + a->dones + a->fails, 0);
			teardown(state);
		}
}

/* Cancelled when a connection stands still after so many bytes: nothing is called afterwards. */
static void cancel_at_every_byte(void **state)
{
	for (unsigned side = 0; side < 2; side++)
		for (size_t at = 0;; at += 7) {
			setup(state);
			one_listen();
			relay_start(w.handle, 0);
			w.mark_side = side;
			w.marks = 1;
			w.mark_at = at;
			w.mark_freeze = true;
			struct end *d = connect_to(w.handle, 0), *a = &w.comm[0].a;
			until(w.mark_hit || d->dones == 1);
			if (d->dones == 1) {
				teardown(state);
				break;
			}
			cancel(d);
			if (a->c)
				cancel(a);
			int64_t end = dr_now_ns() + 5 * MS;
			until(dr_now_ns() > end && w.node[1]->dials == NULL);
			assert_int_equal(d->dones + d->fails + a->fails, 0);
			assert_true(a->dones == 0 || side == 1 || at > 300);
			teardown(state);
		}
}

/* Destroyed at any moment, with everything under way. */
static void destroyed_under_way(void **state)
{
	for (int turns = 0; turns < 14; turns++) {
		setup(state);
		one_listen();
		for (int i = 0; i < 5; i++)
			connect_to(w.handle, 0);
		for (int t = 0; t < turns; t++)
			turn();
		w.comms = 0;
		teardown(state);
		memset(w.node, 0, sizeof(w.node));
	}
}

/* Any allocation may fail: a call says so, or a connection breaks and is made again. */
static void memory_runs_out(void **state)
{
	bool over = false;
	for (long k = 1; !over; k++) {
		struct dr_err e;
		setup(state);
		one_listen();
		struct end *d = &w.comm[0].d;
		json_t *offer = json_pack("{s:i}", "id", 0);
		struct dr_rdv_connect_opts o = {
			.handle = w.handle, .offer = offer, .arg = d, .timeout_ns = 2 * DR_NS_PER_S
		};
		w.comms = 1;
		w.hold = true;
		dr_mem_fail_after(k);
		int rc = dr_rdv_connect(w.node[1], &o, dr_now_ns(), &d->c, &e);
		assert_true(rc == 0 || rc == -ENOMEM);
		if (rc == 0) {
			until(w.comm[0].a.asked == 1);
			/* The owner's own calls do not fail here. */
			dr_mem_fail_after(-1);
			w.hold = false;
			w.cancel_d = NOWHERE;
			answer(&w.comm[0].a);
			until(d->dones == 1);
			check_done();
		}
		over = k > 60;
		json_decref(offer);
		teardown(state);
	}
}

static void bad_arguments(void **state)
{
	(void)state;
	struct dr_rdv *r;
	struct dr_rdv_comm *c;
	struct dr_err e;
	struct dr_rdv_opts o = { .port_min = 20, .port_max = 10 };
	assert_int_equal(dr_rdv_create(&r, &o, &ops, w.poller, &e), -EINVAL);
	o = (struct dr_rdv_opts){ .port_max = 10 };
	assert_int_equal(dr_rdv_create(&r, &o, &ops, w.poller, &e), -EINVAL);
	one_listen();
	json_t *offer = json_object(), *big = json_object();
	char *text = calloc(1, (1 << 20) + 1);
	assert_non_null(text);
	memset(text, 'x', 1 << 20);
	json_object_set_new(big, "x", json_string(text));
	struct dr_rdv_connect_opts co = { .handle = w.handle, .offer = json_null() };
	assert_int_equal(dr_rdv_connect(w.node[1], &co, 0, &c, &e), -EINVAL);
	co.offer = big;
	assert_int_equal(dr_rdv_connect(w.node[1], &co, 0, &c, &e), -EMSGSIZE);
	co.offer = offer;
	co.timeout_ns = 3601 * DR_NS_PER_S;
	assert_int_equal(dr_rdv_connect(w.node[1], &co, 0, &c, &e), -EINVAL);
	co.timeout_ns = 0;
	co.n_local = DR_RDV_ADDRS_MAX + 1;
	assert_int_equal(dr_rdv_connect(w.node[1], &co, 0, &c, &e), -EINVAL);
	co.n_local = 0;
	w.handle[0] ^= 1;
	assert_int_equal(dr_rdv_connect(w.node[1], &co, 0, &c, &e), -EPROTO);
	assert_true(idle());
	json_decref(offer);
	json_decref(big);
	free(text);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
/* Sets the world up and tears it down itself, once per case. */
#define CASES(f) cmocka_unit_test(f)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASES(break_at_every_byte),
		CASES(refusal_at_every_byte),
		TEST(continues_over_another_address),
		TEST(replaces_a_stale_connection),
		CASES(freeze_at_every_stage),
		TEST(refusal),
		TEST(nobody_there),
		CASES(time_is_over),
		TEST(dialler_dies),
		CASES(cancel_by_the_dialler),
		CASES(cancel_by_the_acceptor),
		CASES(cancel_at_every_byte),
		CASES(destroyed_under_way),
		CASES(memory_runs_out),
		TEST(bad_arguments),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
