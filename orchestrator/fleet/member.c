/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/member.h"

#include "base/log.h"
#include "base/rng.h"
#include "base/wire.h"
#include "orchestrator/fleet/hub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A refusal is final only if trying again cannot help: the key, the version, the numbers. A rank that is still there may
 * belong to a process that was just replaced, so that one is tried again, like a coordinator that has not started. */

static const int64_t STAGE_NS = 10 * DR_NS_PER_S, KERNEL_SILENT_NS = 10 * DR_NS_PER_S,
		     DIAL_NS = 3 * DR_NS_PER_S, BACKOFF_MIN_NS = 50 * DR_NS_PER_MS,
		     BACKOFF_MAX_NS = DR_NS_PER_S;

static void fail(struct dr_member *m, const char *what)
{
	if (m->failed)
		return;
	m->failed = true;
	dr_err_set(&m->err, -ECONNABORTED, "%s %.100s port %u: %.120s%s", what, m->o.host,
		m->o.port, m->why,
		m->own ? "; this is an address of this node itself, which is not rank 0: look for "
			 "the name in /etc/hosts, or give --coordinator the address of rank 0"
		       : "");
}

static void send_frame(struct dr_member *m, enum dr_conv_frame type, const json_t *msg)
{
	uint64_t seq = type == DR_CONV_FRAME_MESSAGE ? ++m->seq : 0;

	if (!m->link || m->link->conv.state != DR_CONV_OPEN)
		return;
	if (dr_conv_send_json(&m->link->conv, type, seq, msg))
		dr_link_abort(m->link);
	else
		dr_link_wake(m->link);
}

void dr_member_send(struct dr_member *m, const json_t *msg)
{
	send_frame(m, DR_CONV_FRAME_MESSAGE, msg);
}

static void answer_ping(struct dr_member *m, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_wbuf w;
	uint8_t buf[24];

	dr_wbuf_init(&w, buf, sizeof(buf));
	dr_wbuf_bytes(&w, ev->data, 8);
	dr_wbuf_u64(&w, (uint64_t)now_ns);
	dr_wbuf_u64(&w, (uint64_t)now_ns);
	if (dr_conv_send(&m->link->conv, DR_CONV_FRAME_PONG, 0, buf, sizeof(buf)) == 0)
		dr_link_wake(m->link);
}

static bool is_final(enum dr_boot_cause cause, const char *why)
{
	return cause == DR_BOOT_KEY || cause == DR_BOOT_VERSION ||
	       (cause == DR_BOOT_DECLINED && !strstr(why, "has joined already"));
}

static void ended(struct dr_member *m, enum dr_boot_cause cause, int64_t now_ns)
{
	snprintf(m->why, sizeof(m->why), "%.150s", m->link->conv.err.text);
	m->link = NULL;
	if (m->joined)
		fail(m, "lost the coordinator at");
	else if (is_final(cause, m->why))
		fail(m, "refused by the coordinator at");
	m->backoff_ns = DR_MIN(2 * m->backoff_ns, BACKOFF_MAX_NS);
	m->dial_ns = now_ns + m->backoff_ns / 2 +
		     (int64_t)(dr_mix64((uint64_t)now_ns) % (uint64_t)m->backoff_ns);
}

static void on_event(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	struct dr_member *m = l->owner;

	if (l != m->link)
		return;
	m->heard_ns = now_ns;
	switch (ev->kind) {
	case DR_CONV_OPENED:
		l->due_ns = now_ns + STAGE_NS;
		l->due_text = "no answer to the OFFER";
		send_frame(m, DR_CONV_FRAME_OFFER, m->o.offer);
		return;
	case DR_CONV_FRAME:
		if (ev->type == DR_CONV_FRAME_ACCEPT) {
			m->joined = true;
			l->due_ns = DR_NEVER;
			dr_info("sweep", "joined the sweep at %s", l->peer);
		} else if (ev->type == DR_CONV_FRAME_PING) {
			answer_ping(m, ev, now_ns);
		} else if (ev->type == DR_CONV_FRAME_MESSAGE) {
			m->o.message(m->o.arg, ev->json, now_ns);
		}
		return;
	case DR_CONV_REFUSED:
	case DR_CONV_FAILED:
		ended(m, l->conv.cause, now_ns);
		return;
	default:
		return;
	}
}

static const struct dr_link_ops link_ops = { .event = on_event };

static void dial(struct dr_member *m, int64_t now_ns)
{
	struct dr_net_from from = { .addr = m->local, .n = m->n_local };
	struct dr_addr to[DR_ADDRS_MAX];
	struct dr_link_opts o = { .list = &m->links,
		.poller = m->o.poller,
		.ops = &link_ops,
		.owner = m,
		.silent_ns = KERNEL_SILENT_NS,
		.conv = { .role = DR_CONV_CLIENT, .stage_ns = STAGE_NS, .key = m->o.key } };
	struct dr_err e = { .text = "" };
	unsigned n = 0;
	int rc = dr_addr_resolve(m->o.host, to, DR_ADDRS_MAX, &n, &e);

	m->dial_ns = now_ns + BACKOFF_MAX_NS;
	o.conv.hello.purpose = DR_CONV_NEW;
	snprintf(o.conv.hello.build, sizeof(o.conv.hello.build), "%s", DR_VERSION);
	rc = rc ? rc : dr_random_bytes(o.conv.hello.nonce, sizeof(o.conv.hello.nonce));
	rc = rc ? rc : dr_random_bytes(o.conv.ephemeral, sizeof(o.conv.ephemeral));
	if (rc == 0) {
		struct dr_addr *a = &to[m->next_addr++ % n];

		m->own = dr_addr_is_local(a);
		dr_sa_set_port(&a->ss, m->o.port);
		rc = dr_link_dial(&o, a, &from, now_ns, &m->link);
	}
	if (rc) {
		m->link = NULL;
		snprintf(m->why, sizeof(m->why), "%.150s", e.text[0] ? e.text : strerror(-rc));
		return;
	}
	m->link->due_ns = now_ns + DIAL_NS;
	m->link->due_text = "no answer";
}

int dr_member_init(struct dr_member *m, const struct dr_member_opts *o, struct dr_err *e)
{
	*m = (struct dr_member){ .o = *o, .backoff_ns = BACKOFF_MIN_NS };
	snprintf(m->why, sizeof(m->why), "no answer");
	return o->control ? dr_addr_local(o->control, m->local, DR_ADDRS_MAX, &m->n_local, e) : 0;
}

void dr_member_fini(struct dr_member *m)
{
	dr_links_free(&m->links);
	m->link = NULL;
}

void dr_member_close(struct dr_member *m, int64_t now_ns)
{
	struct dr_link *l = m->link;

	m->link = NULL;
	if (l)
		dr_link_close(l, now_ns);
}

bool dr_member_is_closed(const struct dr_member *m)
{
	return !m->links;
}

void dr_member_tick(struct dr_member *m, int64_t now_ns)
{
	/* A send that failed ended the link without an event. Dead links are freed below. */
	if (m->link && m->link->state == DR_LINK_DEAD) {
		snprintf(m->why, sizeof(m->why), "a message could not be sent");
		m->link = NULL;
		if (m->joined)
			fail(m, "lost the coordinator at");
	}
	dr_links_tick(&m->links, now_ns);
	if (m->failed)
		return;
	if (m->joined && m->link && now_ns - m->heard_ns > DR_SWEEP_SILENT_NS) {
		snprintf(m->why, sizeof(m->why), "its host answers, its process does not");
		dr_link_abort(m->link);
		m->link = NULL;
		fail(m, "lost the coordinator at");
	}
	if (m->joined)
		return;
	if (now_ns >= m->o.until_ns) {
		if (m->link)
			dr_link_abort(m->link);
		m->link = NULL;
		fail(m, "cannot join the coordinator at");
	} else if (!m->link && now_ns >= m->dial_ns) {
		dial(m, now_ns);
	}
}

int64_t dr_member_deadline(const struct dr_member *m)
{
	int64_t d = dr_links_deadline(m->links);

	if (m->failed)
		return d;
	if (m->joined)
		return DR_MIN(d, m->heard_ns + DR_SWEEP_SILENT_NS + 1);
	return DR_MIN(d, m->link ? m->o.until_ns : DR_MIN(m->dial_ns, m->o.until_ns));
}
