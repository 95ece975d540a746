/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

#include "base/poller.h"

#include <arpa/inet.h>

static void on_path(struct dr_sink *sink, const struct dr_event *ev)
{
	struct pair_end *e = dr_container_of(sink, struct pair_end, sink);

	if (!e->inside)
		fail_msg("event %d outside progress", (int)ev->kind);
	if (e->fenced)
		fail_msg("event %d after FENCED", (int)ev->kind);
	if (e->failed && ev->kind != DR_EV_FENCED && ev->kind != DR_EV_FAILED)
		fail_msg("event %d after FAILED", (int)ev->kind);
	e->count[ev->kind]++;
	if (e->node == R && e->p->seen)
		e->p->seen(e->p, ev);
	if (ev->kind == DR_EV_FENCED)
		e->fenced = true;
	if (ev->kind != DR_EV_FAILED)
		return;
	assert_true(ev->err < 0);
	assert_non_null(ev->text);
	assert_true(strlen(ev->text) > 10);
	if (e->failed)
		e->fence_failed++;
	if (e->failed && e->fence_failed > 1)
		fail_msg("FAILED again: %s", ev->text);
	e->failed = true;
	e->scope = ev->scope;
	e->err = ev->err;
	(void)snprintf(e->text, sizeof(e->text), "%s", ev->text);
}

static void on_rail(struct dr_sink *sink, const struct dr_event *ev)
{
	struct pair_end *e = dr_container_of(sink, struct pair_end, rail_sink);

	if (!e->inside)
		fail_msg("event %d of the rail outside rail_progress", (int)ev->kind);
	if (ev->kind != DR_EV_FAILED) {
		e->count[ev->kind]++;
		return;
	}
	if (e->rail_failed++)
		fail_msg("FAILED of the rail twice: %s", ev->text);
	if (ev->err >= 0)
		fail_msg("FAILED of the rail with error %d: %s", ev->err, ev->text);
	e->rail_scope = ev->scope;
	(void)snprintf(e->rail_text, sizeof(e->rail_text), "%s", ev->text);
}

static void drive_path(void *arg, int64_t now_ns)
{
	struct pair_end *e = arg;

	if (!e->path)
		return;
	e->inside = true;
	(void)dr_verbs_ops.progress(e->path, now_ns, &e->sink);
	e->inside = false;
}

static void drive_rail(void *arg, int64_t now_ns)
{
	struct pair_end *e = arg;

	if (!e->rail)
		return;
	e->inside = true;
	(void)dr_verbs_ops.rail_progress(e->rail, now_ns, &e->rail_sink);
	e->inside = false;
}

static void maybe_fault(struct pair *p)
{
	if (!p->fault || p->heal_ns == INT64_MAX)
		return;
	if (p->heal_ns > 0) {
		if (dr_now_ns() < p->heal_ns)
			return;
		p->heal_ns = INT64_MAX;
		p->fault(p, true);
	} else if (p->fake->count("modify_qp") + p->fake->count("post_send") +
			   p->fake->count("post_recv") >=
		   p->fault_after) {
		p->heal_ns = dr_now_ns() + 30 * DR_NS_PER_MS;
		p->fault(p, false);
	}
}

void pair_turn_one(struct pair *p, unsigned end)
{
	assert_null(p->poller);
	drive_rail(&p->e[end], dr_now_ns());
	drive_path(&p->e[end], dr_now_ns());
}

void pair_turn(struct pair *p)
{
	p->turns++;
	maybe_fault(p);
	if (p->poller) {
		assert_true(dr_poller_wait(p->poller, 5 * DR_NS_PER_MS) >= 0);
		return;
	}
	for (unsigned i = 0; i < 2; i++)
		pair_turn_one(p, i);
}

void pair_stuck(struct pair *p, const char *what)
{
	const struct pair_end *s = &p->e[S], *r = &p->e[R];

	fail_msg("%s: hangs, waited in vain for: %s (call failed: %s; S: failed %d '%s' rail %u; "
		 "R: failed %d '%s' rail %u)",
		p->doing, what, p->fake->failed() ? p->fake->failed() : "none", s->failed, s->text,
		s->rail_failed, r->failed, r->text, r->rail_failed);
	/* fail_msg() does not come back, which its declaration does not say. */
	for (;;)
		;
}

void pair_init(struct pair *p, bool poller)
{
	memset(p, 0, sizeof(*p));
	dr_log_set_level(DR_LOG_ERROR);
	p->fake = dr_fake_attach("..");
	if (!p->fake)
		fail_msg("ibverbs_plugin.so is not built: make tests");
	p->fake->reset();
	p->doing = "";
	dr_verbs_params_init(&p->vp);
	p->vp.timeout = 9;
	p->vp.retry = 3;
	p->vp.qps = 2;
	if (poller)
		assert_int_equal(dr_poller_create(&p->poller, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct pair_end *e = &p->e[i];

		e->p = p;
		e->node = i;
		e->sink.event = on_path;
		e->rail_sink.event = on_rail;
		e->mem = calloc(1, PAIR_MEM);
		assert_non_null(e->mem);
		for (unsigned k = 0; i == S && k < PAIR_MEM; k++)
			e->mem[k] = (uint8_t)(1 + k % 251);
	}
}

static int returned(struct pair *p, int rc, const struct dr_err *err)
{
	if (rc >= 0)
		return 0;
	if (!err->text[0])
		fail_msg("%s: %d without words", p->doing, rc);
	(void)snprintf(p->error, sizeof(p->error), "%s", err->text);
	return rc;
}

int pair_listen_one(struct pair *p, unsigned i)
{
	struct dr_rail_params par = { .index = 0,
		.ifname = "lo",
		.poller = p->poller,
		.ready = drive_rail,
		.arg = &p->e[i],
		.kind_params = &p->vp };
	struct sockaddr_in *a = (struct sockaddr_in *)&par.local;
	struct dr_err err = { 0 };

	p->doing = "listen";
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK + i);
	memset(par.token, 0x5a, sizeof(par.token));
	return returned(p, dr_verbs_ops.listen(&par, &p->e[i].rail, &err), &err);
}

int pair_introduce(struct pair *p)
{
	uint8_t handle[DR_HANDLE_MAX];
	struct dr_err err = { 0 };
	int rc = 0, n;

	p->doing = "rail_peer";
	for (unsigned i = 0; i < 2 && rc == 0; i++) {
		n = dr_verbs_ops.rail_handle(p->e[i].rail, handle, sizeof(handle));
		assert_in_range(n, 1, DR_HANDLE_MAX);
		rc = returned(
			p, dr_verbs_ops.rail_peer(p->e[!i].rail, handle, (size_t)n, &err), &err);
	}
	return rc;
}

int pair_listen(struct pair *p)
{
	int rc = pair_listen_one(p, S);

	rc = rc ? rc : pair_listen_one(p, R);
	return rc ? rc : pair_introduce(p);
}

int pair_register(struct pair *p)
{
	struct dr_err err = { 0 };
	int rc = 0;

	p->doing = "mr_reg";
	for (unsigned i = 0; i < 2 && rc == 0; i++) {
		struct dr_memory m = { .base = p->e[i].mem, .len = PAIR_MEM };

		rc = returned(p, dr_verbs_ops.mr_reg(p->e[i].rail, &m, &p->e[i].mr, &err), &err);
	}
	return rc;
}

int pair_create(struct pair *p)
{
	p->doing = "create";
	p->gen++;
	for (unsigned i = 0; i < 2; i++) {
		struct dr_path_params par = { .channel = 7,
			.index = 1,
			.gen = p->gen,
			.sender = i == S,
			.connector = i == S,
			.ready = drive_path,
			.arg = &p->e[i] };
		struct pair_end *e = &p->e[i];
		struct dr_err err = { 0 };
		int rc;

		rc = returned(p, dr_verbs_ops.create(e->rail, &par, &e->path, &err), &err);
		if (rc)
			return rc;
		memset(e->count, 0, sizeof(e->count));
		e->failed = e->fenced = false;
		e->fence_failed = 0;
		e->text[0] = '\0';
	}
	return 0;
}

int pair_connect(struct pair *p)
{
	uint8_t handle[DR_HANDLE_MAX];
	struct dr_err err = { 0 };
	int rc = 0, n;

	p->doing = "connect";
	for (unsigned i = 0; i < 2 && rc == 0; i++) {
		n = dr_verbs_ops.handle(p->e[!i].path, handle, sizeof(handle));
		assert_in_range(n, 1, DR_HANDLE_MAX);
		rc = returned(p,
			dr_verbs_ops.connect(p->e[i].path, handle, p->gen > 1 ? 0 : (size_t)n,
				dr_now_ns(), &err),
			&err);
	}
	return rc;
}

bool pair_ready(struct pair *p)
{
	pair_until(p,
		(p->e[S].count[DR_EV_READY] && p->e[R].count[DR_EV_READY]) || pair_any_failed(p));
	return !pair_any_failed(p);
}

void pair_dial(struct pair *p)
{
	if (pair_listen(p) || pair_register(p) || pair_create(p) || pair_connect(p))
		fail_msg("%s: %s", p->doing, p->error);
}

void pair_dial_again(struct pair *p)
{
	if (pair_create(p) || pair_connect(p))
		fail_msg("%s: %s", p->doing, p->error);
}

void pair_expect_ready(struct pair *p)
{
	if (!pair_ready(p))
		fail_msg("%s: %s%s%s%s", p->doing, p->e[S].text, p->e[R].text, p->e[S].rail_text,
			p->e[R].rail_text);
}

void pair_up(struct pair *p)
{
	pair_dial(p);
	pair_expect_ready(p);
}

static uint64_t off_of(uint64_t seq, unsigned part)
{
	return (seq * PAIR_PARTS + part) * PAIR_LEN;
}

int pair_post_recv(struct pair *p, uint64_t seq)
{
	struct dr_part parts[PAIR_PARTS];
	int rc;

	p->doing = "post_recv";
	for (unsigned i = 0; i < PAIR_PARTS; i++)
		parts[i] = (struct dr_part){ p->e[R].mr, off_of(seq, i), PAIR_LEN, i };
	rc = dr_verbs_ops.post_recv(p->e[R].path, 1, seq, parts, PAIR_PARTS, 0);
	dr_verbs_ops.flush(p->e[R].path, dr_now_ns());
	return rc;
}

int pair_post_send(struct pair *p, uint64_t seq)
{
	struct dr_credit credit;
	int rc = 0;

	p->doing = "post_send";
	pair_until(
		p, dr_verbs_ops.credit(p->e[S].path, 1, seq, &credit) == 0 || pair_any_failed(p));
	for (unsigned i = 0; i < PAIR_PARTS && rc == 0 && !pair_any_failed(p); i++) {
		struct dr_part part = { p->e[S].mr, off_of(seq, i), PAIR_LEN, i };

		rc = dr_verbs_ops.post_send(p->e[S].path, 1, seq, i, &part);
	}
	dr_verbs_ops.flush(p->e[S].path, dr_now_ns());
	return rc;
}

void pair_check(struct pair *p, uint64_t seq)
{
	assert_memory_equal(p->e[R].mem + off_of(seq, 0), p->e[S].mem + off_of(seq, 0),
		(size_t)PAIR_PARTS * PAIR_LEN);
}

bool pair_untouched(struct pair *p, uint8_t b)
{
	for (unsigned i = 0; i < PAIR_MEM; i++)
		if (p->e[R].mem[i] != b)
			return false;
	return true;
}

void pair_fence(struct pair *p, unsigned end, int64_t deadline_ns)
{
	p->doing = "fence";
	dr_verbs_ops.fence(p->e[end].path, deadline_ns);
}

void pair_end_path(struct pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair_end *e = &p->e[i];

		if (!e->path)
			continue;
		dr_verbs_ops.close(e->path);
		e->stop_rc = dr_verbs_ops.stop(e->path);
		assert_int_equal(dr_verbs_ops.stop(e->path), e->stop_rc);
		dr_verbs_ops.fini(e->path);
		e->path = NULL;
	}
}

void pair_shut(struct pair *p)
{
	p->doing = "shut";
	pair_end_path(p);
	for (unsigned i = 0; i < 2; i++) {
		struct pair_end *e = &p->e[i];

		if (!e->rail)
			continue;
		if (e->mr)
			e->dereg_rc = dr_verbs_ops.mr_dereg(e->rail, e->mr);
		dr_verbs_ops.rail_close(e->rail);
		dr_verbs_ops.rail_fini(e->rail);
		e->rail = NULL;
		e->mr = NULL;
	}
	dr_poller_destroy(p->poller);
	p->poller = NULL;
}

void pair_clean(struct pair *p, bool leaky)
{
	struct dr_fake_alive a;
	const char *what = NULL;

	pair_shut(p);
	p->fake->alive(&a);
	if (!leaky && p->fake->alive_total() > 0)
		fail_msg(
			"leak (call failed: %s): %u lists %u contexts %u pds %u mrs %u channels %u "
			"cqs %u qps %u ahs",
			p->fake->failed() ? p->fake->failed() : "none", a.lists, a.contexts, a.pds,
			a.mrs, a.channels, a.cqs, a.qps, a.ahs);
	if (!leaky && p->fake->violations(&what))
		fail_msg("misuse (call failed: %s): %s",
			p->fake->failed() ? p->fake->failed() : "none", what);
	p->fake->reset();
	for (unsigned i = 0; i < 2; i++)
		free(p->e[i].mem);
	p->fake = NULL;
}
