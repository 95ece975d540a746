/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "base/mem.h"
#include "bootstrap/control.h"
#include "bootstrap/handles.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * The control conversation of the two processes, over a stream of bytes that comes in pieces,
 * late, and is lost as a whole when the connection breaks. It carries the handles that start the
 * managers, then numbered messages: each arrives once and in order, however often the connection is
 * lost.
 * End 1 is the client: it dials, and comes back with RESUME.
 */
enum {
	PIPE_MAX = 512,
	BOOT_HANDLES_MAX =
		SIM_CHANNELS_MAX + 2 * (SIM_MANAGERS_MAX + 1), /* of managers, and the peer's */
};
static const int64_t REDIAL_NS = 3 * DR_NS_PER_MS;
/* Of PINGs every 250 ms. A server whose other clients wait takes longer silence for a reason to end a set-up. */
static const int64_t QUIET_NS = 600 * DR_NS_PER_MS;

struct boot_end {
	struct sim_boot *b;
	unsigned end;
	struct dr_conv conv;
	struct dr_control ctl;
	bool has_conv, attached;
	uint8_t wire[PIPE_MAX]; /* on its way from here */
	size_t wire_len;
	int64_t arrives_ns;
	int64_t runs_ns; /* it has run since, and has been connected */
	uint64_t said, heard;
	unsigned resumes;
};

struct sim_boot {
	struct sim_run *r;
	struct dr_rng rng;
	struct dr_boot_key key;
	struct boot_end e[2];
	bool up, told[2];			       /* the end has the other one's handles */
	struct dr_handle handles[2][BOOT_HANDLES_MAX]; /* that the end got */
	int64_t dial_ns, say_ns;
	int64_t due_ns; /* nothing is to do before */
};

static void wake(void *arg)
{
	(void)arg; /* output is looked for at every step */
}

static void hang_up(struct sim_boot *b, int64_t dial_ns)
{
	for (unsigned end = 0; end < 2; end++) {
		struct boot_end *e = &b->e[end];

		dr_control_detach(&e->ctl);
		if (e->has_conv)
			dr_conv_fini(&e->conv);
		e->has_conv = e->attached = false;
		e->wire_len = 0;
		if (e->ctl.state == DR_BOOT_READY)
			e->ctl.state = DR_BOOT_LOST;
	}
	b->up = false;
	b->dial_ns = dial_ns;
}

static bool secret_of(
	void *arg, const struct dr_conv_hello *peer, uint8_t out[DR_CONV_SECRET_BYTES])
{
	return dr_control_secret_of(arg, peer, out);
}

static void dial(struct sim_boot *b, int64_t now)
{
	for (unsigned end = 0; end < 2; end++) {
		struct boot_end *e = &b->e[end];
		struct dr_conv_opts o = { .role = end == 1 ? DR_CONV_CLIENT : DR_CONV_SERVER,
			.key = b->r->s->key ? &b->key : NULL,
			.secret_of = end == 0 ? secret_of : NULL,
			.of_arg = &e->ctl,
			.stage_ns = 5 * DR_NS_PER_S };
		int rc;

		snprintf(o.hello.build, sizeof(o.hello.build), "sim-%u", end);
		for (size_t i = 0; i < sizeof(o.hello.nonce); i++)
			o.hello.nonce[i] = (uint8_t)dr_rng_u64(&b->rng);
		for (size_t i = 0; i < sizeof(o.ephemeral); i++)
			o.ephemeral[i] = (uint8_t)dr_rng_u64(&b->rng);
		if (end == 1) {
			o.hello.purpose = e->ctl.has_ids ? DR_CONV_RESUME : DR_CONV_NEW;
			o.hello.last_seq = e->ctl.mail.received;
			memcpy(o.hello.session, e->ctl.ids.session, sizeof(o.hello.session));
			memcpy(o.secret, e->ctl.ids.secret, sizeof(o.secret));
			o.bound = e->ctl.has_ids;
		}
		rc = dr_conv_init(&e->conv, &o, now);
		dr_assert(rc == 0);
		e->has_conv = true;
	}
	b->up = true;
	b->dial_ns = DR_NEVER;
}

/* Of a manager: its rails', then its channels'. */
static unsigned n_dealt(const struct dr_manager *m)
{
	const struct sim_worker *wk = m->prm.arg;
	const struct sim_schedule *s = wk->r->s;

	return (s->n_channels - wk->k + s->n_managers - 1) / s->n_managers;
}

static unsigned count_own(const struct dr_manager *m)
{
	return dr_manager_handle_count(m) + n_dealt(m);
}

static int write_own(struct dr_manager *m, unsigned i, struct dr_handle *out)
{
	unsigned rails = dr_manager_handle_count(m);

	if (i < rails)
		return dr_manager_handle(m, i, out);
	return dr_channel_handle(dr_manager_channel_at(m, i - rails), out);
}

/* Of all managers, then the peer's. */
static unsigned count_handles(const struct sim_run *r, unsigned end)
{
	unsigned n = r->peer[end] ? 2 : 0;

	for (unsigned k = 0; k < r->s->n_managers; k++)
		n += count_own(r->wk[end][k].m);
	return n;
}

static void send_handles(struct boot_end *e)
{
	struct sim_run *r = e->b->r;
	struct dr_handle h[BOOT_HANDLES_MAX];
	uint8_t buf[BOOT_HANDLES_MAX * (DR_HANDLE_MAX + 1) + 4];
	unsigned n = 0;
	size_t len;
	int rc = 0;

	for (unsigned k = 0; k < r->s->n_managers; k++) {
		struct dr_manager *m = r->wk[e->end][k].m;

		for (unsigned i = 0; i < count_own(m); i++, n++)
			rc |= write_own(m, i, &h[n]);
	}
	for (unsigned i = 0; r->peer[e->end] && i < 2; i++, n++)
		rc |= dr_peer_handle(r->peer[e->end], i, &h[n]);
	dr_assert(rc == 0);
	len = dr_handles_encoded_len(h, n);
	dr_assert(len <= sizeof(buf) && dr_handles_encode(buf, len, 0, h, n) == 0);
	rc = dr_conv_send(&e->conv, DR_CONV_FRAME_HANDLES, 0, buf, len);
	dr_assert(rc == 0);
}

/* The peer's heartbeats start at once, each manager's thread when it comes to it. */
static void start_end(struct boot_end *e, unsigned n, int64_t now)
{
	struct sim_run *r = e->b->r;
	struct dr_err err;

	e->b->told[e->end] = true;
	for (unsigned k = 0; k < r->s->n_managers; k++)
		r->wk[e->end][k].start_at = dr_sim_world_now(r->w) + r->s->start_ns[e->end][k];
	if (!r->peer[e->end])
		return;
	n -= 2;
	if (dr_peer_start(r->peer[e->end], e->b->handles[e->end] + n, 2, now, &err) != 0)
		sim_fail(r, "control: end %u start: %s", e->end, err.text);
}

static int start_channels(struct sim_worker *wk, unsigned at, struct dr_err *err)
{
	struct sim_boot *b = wk->r->boot;
	int rc = 0;

	for (unsigned c = 0; c < n_dealt(wk->m) && rc == 0; c++, at++)
		rc = dr_channel_start(dr_manager_channel_at(wk->m, c), &b->handles[wk->end][at],
			wk->start_ns, err);
	return rc;
}

static void start_manager(struct sim_worker *wk)
{
	struct sim_run *r = wk->r;
	unsigned at = 0, all = 0;
	struct dr_err err;

	for (unsigned k = 0; k < wk->k; k++)
		at += count_own(r->wk[wk->end][k].m);
	sim_touch(wk);
	wk->started = true;
	sim_cover.late_starts += r->s->start_ns[wk->end][wk->k] > 0;
	wk->start_at = DR_NEVER;
	wk->start_ns = dr_sim_world_clock(r->w, wk->end);
	wk->running_ns = dr_sim_world_now(r->w);
	if (dr_manager_start(wk->m, r->boot->handles[wk->end] + at, dr_manager_handle_count(wk->m),
		    wk->start_ns, &err) != 0 ||
		start_channels(wk, at + dr_manager_handle_count(wk->m), &err) != 0)
		sim_fail(r, "control: end %u manager %u start: %s", wk->end, wk->k, err.text);
	for (unsigned k = 0; k < r->s->n_managers; k++)
		all += r->wk[wk->end][k].started;
	if (all == r->s->n_managers)
		r->started |= 1u << wk->end;
}

static int64_t start_due(const struct sim_worker *wk)
{
	return wk->start_at == DR_NEVER ? DR_NEVER : DR_MAX(wk->start_at, sim_stalled_until(wk));
}

static void on_handles(struct boot_end *e, const struct dr_conv_event *ev)
{
	struct sim_run *r = e->b->r;
	unsigned n = count_handles(r, e->end);
	struct dr_handle *h = NULL;
	struct dr_err err;

	if (dr_handles_decode(ev->data, ev->len, 0, n, &h, &err) != 0) {
		sim_fail(r, "control: end %u: %s", e->end, err.text);
		return;
	}
	memcpy(e->b->handles[e->end], h, n * sizeof(*h));
	dr_free(h);
	if (e->end == 0)
		send_handles(e);
	dr_control_take_ids(&e->ctl, &e->conv);
	e->ctl.state = DR_BOOT_READY;
	if (!e->b->told[e->end]) /* else the first connection was lost on the way: asked and answered again */
		start_end(e, n, dr_sim_world_clock(r->w, e->end));
}

static void on_message(struct boot_end *e, const json_t *json)
{
	uint64_t n = (uint64_t)json_integer_value(json_object_get(json, "n"));

	if (n != e->heard)
		sim_fail(e->b->r, "control: end %u heard message %" PRIu64 " for %" PRIu64, e->end,
			n, e->heard);
	e->heard = n + 1;
	sim_cover.control_messages++;
}

static void opened(struct boot_end *e, uint64_t peer_last, int64_t now)
{
	if (dr_control_attach(&e->ctl, &e->conv, peer_last, now) != 0) {
		sim_fail(e->b->r, "control: end %u cannot resume at %" PRIu64, e->end, peer_last);
		return;
	}
	e->attached = true;
	if (e->ctl.has_ids) {
		e->ctl.state = DR_BOOT_READY;
		sim_cover.resumes++;
	}
}

static void on_event(struct boot_end *e, const struct dr_conv_event *ev, int64_t now)
{
	struct sim_run *r = e->b->r;
	int rc;

	switch (ev->kind) {
	case DR_CONV_IDENTIFIED:
		rc = dr_conv_welcome(&e->conv, e->ctl.mail.received, now);
		dr_assert(rc == 0);
		opened(e, e->conv.peer.last_seq, now);
		break;
	case DR_CONV_OPENED:
		opened(e, ev->seq, now);
		if (!e->ctl.has_ids)
			send_handles(e);
		break;
	case DR_CONV_FRAME:
		switch (dr_control_frame(&e->ctl, ev, now)) {
		case DR_CONTROL_MESSAGE:
			on_message(e, ev->json);
			break;
		case DR_CONTROL_OTHER:
			if (ev->type == DR_CONV_FRAME_HANDLES)
				on_handles(e, ev);
			break;
		case DR_CONTROL_BROKEN:
			sim_fail(r, "control: end %u: %s", e->end, e->conv.err.text);
			break;
		default:
			break;
		}
		break;
	case DR_CONV_REFUSED:
	case DR_CONV_FAILED:
		sim_fail(r, "control: end %u: %s", e->end, e->conv.err.text);
		break;
	case DR_CONV_NOTHING:
		break;
	}
}

static void feed(struct boot_end *e, const uint8_t *data, size_t len, int64_t now)
{
	struct dr_conv_event ev;

	if (e->attached)
		dr_control_heard(&e->ctl, now);
	do {
		size_t n = dr_conv_feed(&e->conv, data, len, now, &ev);

		on_event(e, &ev, now);
		data += n;
		len -= n;
	} while ((len > 0 || ev.kind != DR_CONV_NOTHING) && e->b->r->fail[0] == '\0');
	if (e->attached)
		dr_control_flush(&e->ctl);
}

static bool stands(const struct sim_run *r, unsigned end, int64_t now)
{
	return now < r->stalled_until[end];
}

/* Bytes leave an end in pieces of any size, and arrive later. */
static void put_on_wire(struct sim_boot *b, struct boot_end *e, int64_t now)
{
	const uint8_t *data;
	size_t n;

	if (!e->has_conv || e->wire_len > 0 || stands(b->r, e->end, now))
		return;
	n = dr_conv_output(&e->conv, &data);
	if (n == 0)
		return;
	n = 1 + dr_rng_below(&b->rng, DR_MIN(n, (size_t)PIPE_MAX));
	memcpy(e->wire, data, n);
	e->wire_len = n;
	dr_conv_sent(&e->conv, n, dr_sim_world_clock(b->r->w, e->end));
	e->arrives_ns = now + 20000 + (int64_t)dr_rng_below(&b->rng, 100 * DR_NS_PER_US);
}

static void say(struct sim_boot *b, int64_t now)
{
	if (now < b->say_ns || b->r->started != 3)
		return;
	b->say_ns = b->r->faults_over
			    ? DR_NEVER
			    : now + (int64_t)dr_rng_below(&b->rng, 100 * DR_NS_PER_MS) + 1;
	for (unsigned end = 0; end < 2; end++) {
		json_t *j;
		int rc;

		if (stands(b->r, end, now) || !b->e[end].ctl.has_ids)
			continue;
		j = json_pack("{s:I}", "n", (json_int_t)b->e[end].said);
		rc = dr_control_send(&b->e[end].ctl, j);
		json_decref(j);
		if (rc != 0)
			sim_fail(b->r, "control: end %u cannot say: %d", end, rc);
		b->e[end].said++;
	}
}

/* An end that runs never looks silent, whatever it does. */
static void check_quiet(struct sim_boot *b, int64_t now)
{
	for (unsigned end = 0; end < 2; end++) {
		struct boot_end *e = &b->e[end], *peer = &b->e[!end];
		int64_t quiet = dr_sim_world_clock(b->r->w, end) - dr_control_quiet_since(&e->ctl);

		if (stands(b->r, end, now) || !e->attached)
			e->runs_ns = DR_MAX(now, b->r->stalled_until[end]);
		if (e->attached && now - DR_MAX(e->runs_ns, peer->runs_ns) > QUIET_NS &&
			quiet > QUIET_NS)
			sim_fail(b->r, "control: end %u runs and was quiet for %" PRId64 " ns",
				!end, quiet);
	}
}

static void step_boot(struct sim_run *r, int64_t now)
{
	struct sim_boot *b = r->boot;

	for (unsigned i = 0; i < 2 * r->s->n_managers; i++)
		if (now >= start_due(&r->wk[i % 2][i / 2]))
			start_manager(&r->wk[i % 2][i / 2]);
	if (now >= b->dial_ns && !stands(r, 1, now))
		dial(b, now);
	say(b, now);
	for (unsigned end = 0; end < 2 && b->up; end++) {
		struct boot_end *e = &b->e[end], *to = &b->e[!end];

		if (e->wire_len > 0 && now >= e->arrives_ns && !stands(r, !end, now)) {
			size_t n = e->wire_len;

			e->wire_len = 0;
			feed(to, e->wire, n, dr_sim_world_clock(r->w, !end));
		}
	}
	for (unsigned end = 0; end < 2 && b->up; end++) {
		struct boot_end *e = &b->e[end];
		int64_t clock = dr_sim_world_clock(r->w, end);

		if (!stands(r, end, now) && e->attached && clock >= dr_control_deadline(&e->ctl) &&
			dr_control_tick(&e->ctl, clock)) {
			hang_up(b, now + REDIAL_NS); /* silent for too long */
			return;
		}
		put_on_wire(b, e, now);
	}
}

static int64_t next_due(const struct sim_run *r)
{
	const struct sim_boot *b = r->boot;
	int64_t next = DR_MIN(b->dial_ns, r->started == 3 ? b->say_ns : DR_NEVER);

	if (b->dial_ns != DR_NEVER)
		next = DR_MAX(next, r->stalled_until[1]);
	for (unsigned i = 0; i < 2 * r->s->n_managers; i++)
		next = DR_MIN(next, start_due(&r->wk[i % 2][i / 2]));
	for (unsigned end = 0; end < 2; end++)
		if (r->stalled_until[end] > dr_sim_world_now(r->w))
			next = DR_MIN(next, r->stalled_until[end]);
	for (unsigned end = 0; end < 2 && b->up; end++) {
		const struct boot_end *e = &b->e[end];
		int64_t d;

		if (e->wire_len > 0)
			next = DR_MIN(next, DR_MAX(e->arrives_ns, r->stalled_until[!end]));
		d = e->attached ? dr_control_deadline(&e->ctl) : DR_NEVER;
		if (d != DR_NEVER)
			next = DR_MIN(next,
				DR_MAX(d + dr_sim_world_now(r->w) - dr_sim_world_clock(r->w, end),
					r->stalled_until[end]));
	}
	return next;
}

void sim_boot_step(struct sim_run *r, int64_t now)
{
	struct sim_boot *b = r->boot;

	if (r->dead[0] || r->dead[1] || now < b->due_ns)
		return;
	step_boot(r, now);
	check_quiet(b, now);
	b->due_ns = next_due(r);
}

int64_t sim_boot_next(const struct sim_run *r)
{
	return r->dead[0] || r->dead[1] ? DR_NEVER : r->boot->due_ns;
}

void sim_boot_touch(struct sim_run *r)
{
	r->boot->due_ns = 0;
}

void sim_boot_break(struct sim_run *r)
{
	sim_boot_touch(r);
	if (r->boot->up && r->started == 3)
		hang_up(r->boot, dr_sim_world_now(r->w) + REDIAL_NS);
}

bool sim_boot_done(const struct sim_run *r)
{
	const struct boot_end *e = r->boot->e;

	if (r->dead[0] || r->dead[1])
		return true;
	return r->started == 3 && e[0].heard == e[1].said && e[1].heard == e[0].said;
}

void sim_boot_create(struct sim_run *r)
{
	struct sim_boot *b = dr_calloc(1, sizeof(*b));

	dr_assert(b != NULL);
	r->boot = b;
	b->r = r;
	dr_rng_seed(&b->rng, dr_mix64(r->s->seed + 3));
	for (unsigned end = 0; end < 2; end++) {
		struct dr_boot_timing t = { 0 };

		dr_boot_timing_complete(&t);
		b->e[end].b = b;
		b->e[end].end = end;
		dr_control_init(&b->e[end].ctl, &t, wake, b);
		b->e[end].ctl.state = DR_BOOT_EXCHANGING;
	}
	b->dial_ns = 0;
}

void sim_boot_destroy(struct sim_run *r)
{
	if (r->boot == NULL)
		return;
	hang_up(r->boot, DR_NEVER);
	for (unsigned end = 0; end < 2; end++)
		dr_control_reset(&r->boot->e[end].ctl);
	dr_free(r->boot);
}
