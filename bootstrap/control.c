/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/control.h"

#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PING_BACKLOG_MAX = 64 << 10 };

const char *dr_boot_cause_text(enum dr_boot_cause cause)
{
	static const char *const text[] = {
		[DR_BOOT_OK] = "no error",
		[DR_BOOT_EOF] = "connection closed",
		[DR_BOOT_RESET] = "connection reset",
		[DR_BOOT_SILENT] = "no answer",
		[DR_BOOT_REFUSED] = "connection refused",
		[DR_BOOT_UNREACHABLE] = "unreachable",
		[DR_BOOT_TIMEOUT] = "timed out",
		[DR_BOOT_PROTOCOL] = "protocol error",
		[DR_BOOT_VERSION] = "protocol versions differ",
		[DR_BOOT_KEY] = "keys differ",
		[DR_BOOT_BUSY] = "server busy",
		[DR_BOOT_DECLINED] = "declined by the server",
		[DR_BOOT_GONE] = "session unknown to the server",
		[DR_BOOT_GOODBYE] = "ended by the peer",
		[DR_BOOT_LOCAL] = "ended by this end",
		[DR_BOOT_EVICTED] = "silent while another client waits",
	};
	return (size_t)cause < DR_ARRAY_LEN(text) ? text[cause] : "unknown cause";
}

json_t *dr_boot_list(const unsigned *v, unsigned n)
{
	json_t *list = json_array();
	for (unsigned i = 0; list && i < n; i++)
		json_array_append_new(list, json_integer(v[i]));
	return list;
}

bool dr_boot_list_read(const json_t *list, unsigned min, unsigned *out, unsigned *n)
{
	size_t len = json_array_size(list);
	if (len == 0 || len > DR_BOOT_GPUS_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		const json_t *v = json_array_get(list, i);
		json_int_t id = json_integer_value(v);
		if (!json_is_integer(v) || id < min || id > UINT16_MAX)
			return false;
		out[i] = (unsigned)id;
	}
	*n = (unsigned)len;
	return true;
}

static void or_default(int64_t *v, int64_t ns)
{
	if (*v == 0)
		*v = ns;
}

void dr_boot_timing_complete(struct dr_boot_timing *t)
{
	or_default(&t->stage_ns, 5 * DR_NS_PER_S);
	or_default(&t->ping_ns, 250 * DR_NS_PER_MS);
	or_default(&t->silent_ns, 2 * DR_NS_PER_S);
	or_default(&t->resume_ns, 30 * DR_NS_PER_S);
	or_default(&t->last_ns, 5 * DR_NS_PER_S);
	t->last_ns = DR_MIN(t->last_ns, t->resume_ns);
	or_default(&t->retry_min_ns, 50 * DR_NS_PER_MS);
	or_default(&t->retry_max_ns, 500 * DR_NS_PER_MS);
	or_default(&t->fallback_ns, 2 * DR_NS_PER_S);
	or_default(&t->exchange_ns, 60 * DR_NS_PER_S);
}

void dr_control_init(struct dr_control *c, const struct dr_boot_timing *timing,
	void (*wake)(void *arg), void *arg)
{
	memset(c, 0, sizeof(*c));
	c->wake = wake;
	c->arg = arg;
	c->timing = *timing;
	dr_mailbox_init(&c->mail);
}

void dr_control_reset(struct dr_control *c)
{
	struct dr_boot_timing timing = c->timing;
	dr_mailbox_fini(&c->mail);
	sodium_memzero(&c->ids, sizeof(c->ids));
	dr_control_init(c, &timing, c->wake, c->arg);
}

void dr_control_take_ids(struct dr_control *c, const struct dr_conv *conv)
{
	dr_conv_ids(conv, &c->ids);
	c->has_ids = true;
}

bool dr_control_secret_of(const struct dr_control *c, const struct dr_conv_hello *peer,
	uint8_t out[DR_CONV_SECRET_BYTES])
{
	if (!c->has_ids ||
		sodium_memcmp(c->ids.session, peer->session, sizeof(c->ids.session)) != 0)
		return false;
	memcpy(out, c->ids.secret, sizeof(c->ids.secret));
	return true;
}

/* ---- sending ------------------------------------------------------------------------------ */

static void send_u64(struct dr_control *c, enum dr_conv_frame type, const uint64_t *v, size_t n)
{
	uint8_t buf[24];
	struct dr_wbuf w;
	dr_wbuf_init(&w, buf, sizeof(buf));
	for (size_t i = 0; i < n; i++)
		dr_wbuf_u64(&w, v[i]);
	dr_assert(!w.failed);
	/* A failure (-ENOMEM) is harmless: PING is repeated, ACK follows the next message or resume. */
	if (dr_conv_send(c->conv, type, 0, buf, w.len) == 0)
		c->wake(c->arg);
}

static bool open_now(const struct dr_control *c)
{
	return c->conv && c->conv->state == DR_CONV_OPEN;
}

static size_t backlog(const struct dr_control *c)
{
	const uint8_t *p;
	return dr_conv_output(c->conv, &p);
}

/* Queue unsent messages on the connection. What does not fit is sent at the next tick. */
static void pump(struct dr_control *c)
{
	const struct dr_mail *m;
	if (!open_now(c))
		return;
	while ((m = dr_mailbox_unsent(&c->mail)) != NULL) {
		if (dr_conv_send(c->conv, m->type, m->seq, m->data, m->len))
			return;
		dr_mailbox_sent(&c->mail);
		c->wake(c->arg);
	}
}

static bool in_session(const struct dr_control *c)
{
	return c->has_ids && !c->goodbye && !c->goodbye_heard &&
	       (c->state == DR_BOOT_EXCHANGING || c->state == DR_BOOT_READY ||
		       c->state == DR_BOOT_LOST);
}

int dr_control_send(struct dr_control *c, const json_t *msg)
{
	if (!json_is_object(msg))
		return -EINVAL;
	if (!in_session(c))
		return -ENOTCONN;
	char *text = json_dumps(msg, JSON_COMPACT);
	if (!text)
		return -ENOMEM;
	size_t len = strlen(text);
	int rc = len > DR_BOOT_MESSAGE_BYTES_MAX
			 ? -EMSGSIZE
			 : dr_mailbox_post(&c->mail, DR_CONV_FRAME_MESSAGE, text, len, false);
	free(text); /* lint-ok: of jansson */
	if (rc == 0)
		pump(c);
	return rc;
}

int dr_control_post(struct dr_control *c, enum dr_conv_frame type)
{
	int rc = dr_mailbox_post(&c->mail, (uint8_t)type, NULL, 0, true);
	if (rc == 0)
		pump(c);
	return rc;
}

void dr_control_goodbye(struct dr_control *c)
{
	if (!in_session(c))
		return;
	c->goodbye = true;
	/* Without memory the peer sees EOF; the deadline below ends this end. */
	c->goodbye_seq = dr_control_post(c, DR_CONV_FRAME_GOODBYE) ? UINT64_MAX : c->mail.last;
	c->goodbye_until_ns = 0; /* set by the next tick, which knows the time */
	c->wake(c->arg);
}

bool dr_control_goodbye_done(const struct dr_control *c)
{
	return c->goodbye && c->mail.acked >= c->goodbye_seq;
}

bool dr_control_only_goodbye_left(const struct dr_control *c)
{
	return c->goodbye && c->mail.acked + 1 >= c->goodbye_seq;
}

/* ---- connection --------------------------------------------------------------------------- */

int dr_control_attach(
	struct dr_control *c, struct dr_conv *conv, uint64_t peer_last, int64_t now_ns)
{
	int rc = dr_mailbox_resume(&c->mail, peer_last);
	if (rc)
		return rc;
	c->conv = conv;
	c->heard_ns = c->silent_from_ns = c->ticked_ns = c->ping_due_ns = c->late_ns = now_ns;
	memcpy(c->peer_version, conv->peer.build, sizeof(c->peer_version));
	pump(c);
	return 0;
}

void dr_control_detach(struct dr_control *c)
{
	c->conv = NULL;
}

static enum dr_control_news numbered(struct dr_control *c, const struct dr_conv_event *ev)
{
	if (dr_mailbox_receive(&c->mail, ev->seq)) {
		dr_conv_fail(c->conv, DR_BOOT_PROTOCOL, "%s message has number %llu, expected %llu",
			dr_frame_name(ev->type), (unsigned long long)ev->seq,
			(unsigned long long)c->mail.received + 1);
		return DR_CONTROL_BROKEN;
	}
	if (ev->type == DR_CONV_FRAME_MESSAGE)
		return DR_CONTROL_MESSAGE;
	if (ev->type == DR_CONV_FRAME_READY)
		return DR_CONTROL_READY;
	c->goodbye_heard = true;
	return DR_CONTROL_GOODBYE;
}

static enum dr_control_news acked(struct dr_control *c, uint64_t seq)
{
	if (dr_mailbox_ack(&c->mail, seq)) {
		dr_conv_fail(c->conv, DR_BOOT_PROTOCOL,
			"ACK of message %llu, unacknowledged are %llu to %llu",
			(unsigned long long)seq, (unsigned long long)c->mail.acked + 1,
			(unsigned long long)c->mail.last);
		return DR_CONTROL_BROKEN;
	}
	pump(c);
	return dr_control_goodbye_done(c) ? DR_CONTROL_GOODBYE_ACKED : DR_CONTROL_NOTHING;
}

enum dr_control_news dr_control_frame(
	struct dr_control *c, const struct dr_conv_event *ev, int64_t now_ns)
{
	uint64_t v[3] = { 0 };
	struct dr_rbuf r;
	dr_rbuf_init(&r, ev->data, ev->len);
	switch (ev->type) {
	case DR_CONV_FRAME_MESSAGE:
	case DR_CONV_FRAME_READY:
	case DR_CONV_FRAME_GOODBYE:
		return numbered(c, ev);
	case DR_CONV_FRAME_ACK:
		dr_rbuf_u64(&r, &v[0]);
		return acked(c, v[0]);
	case DR_CONV_FRAME_PING:
		dr_rbuf_u64(&r, &v[0]);
		v[1] = v[2] = (uint64_t)now_ns;
		/* A peer that sends PINGs without reading must not fill our memory. */
		if (backlog(c) < PING_BACKLOG_MAX)
			send_u64(c, DR_CONV_FRAME_PONG, v, 3);
		return DR_CONTROL_NOTHING;
	case DR_CONV_FRAME_PONG:
		for (int i = 0; i < 3; i++)
			dr_rbuf_u64(&r, &v[i]);
		dr_clocksync_sample(&c->clock, (int64_t)v[0], (int64_t)v[1], (int64_t)v[2], now_ns);
		return DR_CONTROL_NOTHING;
	default:
		return DR_CONTROL_OTHER;
	}
}

void dr_control_heard(struct dr_control *c, int64_t now_ns)
{
	c->heard_ns = c->silent_from_ns = now_ns;
}

void dr_control_observed(const struct dr_control *c, int64_t now_ns, char *text, size_t cap)
{
	int64_t silent = now_ns - c->heard_ns;
	if (!open_now(c))
		snprintf(text, cap, "the control connection is lost");
	else if (silent < c->timing.silent_ns)
		snprintf(text, cap, "its process runs and answers pings");
	else
		snprintf(text, cap,
			"its kernel answers, its process has sent nothing for %.3g s: it is stopped, or it opens "
			"GPUs or registers memory",
			(double)silent / 1e9);
}

void dr_control_flush(struct dr_control *c)
{
	pump(c);
	if (!open_now(c) || c->mail.told == c->mail.received)
		return;
	send_u64(c, DR_CONV_FRAME_ACK, &c->mail.received, 1);
	c->mail.told = c->mail.received;
}

int64_t dr_control_quiet_since(const struct dr_control *c)
{
	return DR_MAX(c->heard_ns, c->late_ns);
}

void dr_control_ping(struct dr_control *c, int64_t now_ns)
{
	uint64_t t1 = (uint64_t)now_ns;
	if (!open_now(c) || now_ns < c->ping_due_ns)
		return;
	if (backlog(c) < PING_BACKLOG_MAX)
		send_u64(c, DR_CONV_FRAME_PING, &t1, 1);
	c->ping_due_ns = now_ns + c->timing.ping_ns;
}

bool dr_control_tick(struct dr_control *c, int64_t now_ns)
{
	if (c->goodbye && c->goodbye_until_ns == 0)
		c->goodbye_until_ns = now_ns + c->timing.stage_ns;
	/* While there is a connection PING is due after ping_ns, and so is a tick. */
	if (open_now(c) && now_ns - c->ticked_ns > 2 * c->timing.ping_ns)
		c->late_ns = now_ns;
	if (!open_now(c))
		return false;
	/*
	 * Silence counts for a READY peer only. Before READY the peer opens GPUs and pins memory on the thread
	 * that would answer, which takes seconds: then its kernel answers for it, and the PINGs make this end's
	 * kernel notice when it no longer does (link.h). Silence does not count either when this end was stopped
	 * or starved.
	 */
	if (c->state != DR_BOOT_READY ||
		now_ns - c->ticked_ns > c->timing.ping_ns + c->timing.silent_ns / 2)
		c->silent_from_ns = now_ns;
	c->ticked_ns = now_ns;
	pump(c);
	dr_control_ping(c, now_ns);
	return now_ns - c->silent_from_ns >= c->timing.silent_ns;
}

int64_t dr_control_deadline(const struct dr_control *c)
{
	int64_t at = c->goodbye ? c->goodbye_until_ns : DR_NEVER;
	if (open_now(c)) {
		at = DR_MIN(at, c->ping_due_ns);
		at = DR_MIN(at, c->silent_from_ns + c->timing.silent_ns);
	}
	return at;
}

/* ---- clock of the peer ---------------------------------------------------- */

/* CLOCK_MONOTONIC stays far below this; larger values are nonsense and could overflow. */
static const int64_t TIME_MAX = INT64_MAX / 8;

static int64_t drift_ns(const struct dr_clocksync *cs, int64_t now_ns)
{
	int64_t age = DR_MAX(now_ns - cs->at_ns, 0);
	return age / (1000000 / DR_CLOCK_DRIFT_PPM) + 1;
}

void dr_clocksync_sample(struct dr_clocksync *cs, int64_t t1, int64_t t2, int64_t t3, int64_t t4)
{
	if (t1 < 0 || t2 < 0 || t3 < t2 || t4 < t1 || t3 > TIME_MAX || t4 > TIME_MAX)
		return;
	int64_t low = t3 - t4, high = t2 - t1;
	if (low > high)
		return;
	if (cs->valid) {
		int64_t drift = drift_ns(cs, t4);
		int64_t old_low = cs->low_ns - drift, old_high = cs->high_ns + drift;
		if (old_low <= high && low <= old_high) {
			low = DR_MAX(low, old_low);
			high = DR_MIN(high, old_high);
		}
	}
	cs->low_ns = low;
	cs->high_ns = high;
	cs->at_ns = t4;
	cs->valid = true;
}

bool dr_control_clock(
	const struct dr_control *c, int64_t now_ns, int64_t *offset_ns, int64_t *error_ns)
{
	const struct dr_clocksync *cs = &c->clock;
	if (!cs->valid)
		return false;
	*offset_ns = cs->low_ns + (cs->high_ns - cs->low_ns) / 2;
	*error_ns = (cs->high_ns - cs->low_ns + 1) / 2 + drift_ns(cs, now_ns);
	return true;
}

/* ---- queries ------------------------------------------------------------- */

unsigned dr_control_unacked(const struct dr_control *c)
{
	return c->mail.count;
}

const char *dr_control_peer(const struct dr_control *c)
{
	return c->peer;
}

const char *dr_control_peer_version(const struct dr_control *c)
{
	return c->peer_version;
}

const uint8_t *dr_control_token(const struct dr_control *c)
{
	return c->has_ids ? c->ids.token : NULL;
}
