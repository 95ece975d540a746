/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/client_priv.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * Addresses that the client dials for connection 0, one at a time:
 *   first connection   every address of the host at the first port; after fallback_ns at port_base too (for a
 *                      server whose GPU ids differ from the client's)
 *   RESUME             the last control address, then the alternatives (rails) at the server's first port
 * The delay after each round doubles from retry_min to retry_max. RESUME ends when the last control address and
 * port refused three times in a row: the host is up and the process has ended.
 */
enum { REFUSED_MEANS_GONE = 3 };
static const int64_t DIAL_NS = DR_NS_PER_S, RESOLVE_NS = 2 * DR_NS_PER_S;

static bool resuming(const struct dr_boot_client *c)
{
	return c->e.control.state == DR_BOOT_LOST;
}

static unsigned candidates(const struct dr_boot_client *c, int64_t now_ns)
{
	if (resuming(c))
		return 1 + c->n_alternatives;
	bool fallback = c->port_first != c->port_base &&
			now_ns - c->dial.began_ns >= c->e.timing.fallback_ns;
	return fallback ? 2 * c->n_addrs : c->n_addrs;
}

static struct dr_addr candidate(const struct dr_boot_client *c, unsigned i)
{
	struct dr_addr a;
	if (resuming(c)) {
		if (i == 0)
			return c->server;
		a = c->alternatives[i - 1];
		dr_sa_set_port(&a.ss, c->e.ports[0]);
		return a;
	}
	a = c->addrs[i % c->n_addrs];
	dr_sa_set_port(&a.ss, i < c->n_addrs ? c->port_first : c->port_base);
	return a;
}

/* 0 with *out, or -errno when it failed at once. */
static int dial(struct dr_boot_client *c, const struct dr_addr *to, enum dr_conv_purpose purpose,
	unsigned k, int64_t now_ns, struct dr_link **out)
{
	struct dr_link_opts o;
	int rc = dr_boot_link_opts(&c->e, &o);
	o.conv.hello.purpose = (uint8_t)purpose;
	o.conv.hello.k = (uint16_t)k;
	if (purpose != DR_CONV_NEW) {
		const struct dr_conv_ids *ids = &c->e.control.ids;
		memcpy(o.conv.hello.session, ids->session, sizeof(ids->session));
		memcpy(o.conv.secret, ids->secret, sizeof(ids->secret));
		o.conv.bound = true;
	}
	if (purpose == DR_CONV_RESUME)
		o.conv.hello.last_seq = c->e.control.mail.received;
	/* The alternatives are on other networks than --control; the kernel picks the source. */
	bool bound = !(resuming(c) && c->dial.index > 0);
	struct dr_net_from from = { .addr = c->local, .n = bound ? c->n_local : 0 };
	if (rc == 0)
		rc = dr_link_dial(&o, to, &from, now_ns, out);
	sodium_memzero(&o, sizeof(o));
	if (rc)
		return rc;
	(*out)->role = (int)purpose;
	(*out)->k = k;
	(*out)->due_ns = now_ns + DIAL_NS;
	return 0;
}

void dr_client_dial_start(struct dr_boot_client *c, int64_t now_ns, int64_t until_ns)
{
	memset(&c->dial, 0, sizeof(c->dial));
	c->dial.active = true;
	c->dial.began_ns = c->dial.next_ns = now_ns;
	c->dial.until_ns = until_ns;
	c->dial.backoff_ns = c->e.timing.retry_min_ns;
}

void dr_client_dial_failed(
	struct dr_boot_client *c, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	struct dr_client_dialer *d = &c->dial;
	d->link = NULL;
	d->cause = cause;
	snprintf(d->text, sizeof(d->text), "%s", text);
	if (resuming(c) && d->index == 0)
		d->refused_in_row = cause == DR_BOOT_REFUSED ? d->refused_in_row + 1 : 0;
	d->next_ns = now_ns;
	if (++d->index < candidates(c, now_ns))
		return;
	d->index = 0;
	if (cause == DR_BOOT_BUSY) /* sessions take seconds */
		d->backoff_ns = c->e.timing.retry_max_ns;
	d->next_ns = now_ns + d->backoff_ns;
	d->backoff_ns = DR_MIN(2 * d->backoff_ns, c->e.timing.retry_max_ns);
}

static void resolve(struct dr_boot_client *c, int64_t now_ns)
{
	if (resuming(c) || (c->n_addrs > 0 && (c->numeric || now_ns - c->resolved_ns < RESOLVE_NS)))
		return;
	struct dr_addr found[DR_ADDRS_MAX];
	unsigned n = 0;
	c->resolved_ns = now_ns;
	if (dr_addr_resolve(c->host, found, DR_ADDRS_MAX, &n, &c->resolve_err))
		return; /* keep the addresses of last time, if any */
	memcpy(c->addrs, found, n * sizeof(found[0]));
	c->n_addrs = n;
}

static void dial_next(struct dr_boot_client *c, int64_t now_ns)
{
	struct dr_client_dialer *d = &c->dial;
	if (d->index == 0)
		resolve(c, now_ns);
	d->attempts++;
	if (!resuming(c) && c->n_addrs == 0) {
		d->index = 0;
		dr_client_dial_failed(c, DR_BOOT_UNREACHABLE, c->resolve_err.text, now_ns);
		d->next_ns = DR_MAX(d->next_ns, now_ns + c->e.timing.retry_max_ns);
		return;
	}
	if (d->index >= candidates(c, now_ns)) /* the name has fewer addresses than last time */
		d->index = 0;
	d->last = candidate(c, d->index);
	struct dr_link *l;
	int rc = dial(c, &d->last, resuming(c) ? DR_CONV_RESUME : DR_CONV_NEW, 0, now_ns, &l);
	if (rc)
		dr_client_dial_failed(c, dr_net_cause(-rc, true), strerror(-rc), now_ns);
	else
		d->link = l;
}

static const char *advice(const struct dr_boot_client *c, enum dr_boot_cause cause)
{
	if (cause == DR_BOOT_REFUSED && !resuming(c) && dr_addr_is_local(&c->dial.last))
		return "this is an address of this machine: start 'dualrail server' here with the same --port, "
		       "or name the other node";
	switch (cause) {
	case DR_BOOT_REFUSED:
		return "check that 'dualrail server' runs there with the same --port";
	case DR_BOOT_BUSY:
		return "raise --connect-timeout";
	case DR_BOOT_UNREACHABLE:
		return "check the name, the route and the firewall";
	case DR_BOOT_TIMEOUT:
		return "its kernel answers, no process does: it is stopped or busy, or it is not dualrail";
	case DR_BOOT_LOCAL:
		return DR_CLIENT_LOCAL_ADVICE;
	default:
		return "check which program listens on that port";
	}
}

bool dr_client_dial_tick(
	struct dr_boot_client *c, int64_t now_ns, enum dr_boot_cause *cause, struct dr_err *e)
{
	struct dr_client_dialer *d = &c->dial;
	if (!d->active)
		return false;
	bool gone = d->refused_in_row >= REFUSED_MEANS_GONE;
	char last[DR_ADDR_TEXT] = "no address";
	if (now_ns >= d->until_ns && d->link) {
		bool mute = d->link->state == DR_LINK_UP;
		dr_link_abort(d->link);
		d->link = NULL;
		/* What the server said last is the reason, not the attempt that the time cut. */
		if (d->cause != DR_BOOT_BUSY)
			dr_client_dial_failed(c, mute ? DR_BOOT_TIMEOUT : DR_BOOT_UNREACHABLE,
				mute ? "connected, but no hello received" : "no answer", now_ns);
	}
	if (now_ns >= d->until_ns || gone) {
		*cause = d->cause ? d->cause : DR_BOOT_UNREACHABLE;
		d->active = false;
		if (d->last.len)
			dr_addr_format(&d->last, last, sizeof(last));
		dr_err_set(e, -ETIMEDOUT,
			"cannot %s %s: %u attempt%s in %.1f s, the last one to %s: %.90s; %s",
			resuming(c) ? "reconnect to" : "connect to", c->host, d->attempts,
			d->attempts == 1 ? "" : "s", (double)(now_ns - d->began_ns) / 1e9, last,
			d->text, gone ? "the server process has ended" : advice(c, *cause));
		return true;
	}
	if (!d->link && now_ns >= d->next_ns)
		dial_next(c, now_ns);
	return false;
}

int64_t dr_client_dial_deadline(const struct dr_boot_client *c)
{
	const struct dr_client_dialer *d = &c->dial;
	if (!d->active)
		return DR_NEVER;
	return d->link ? d->until_ns : DR_MIN(d->next_ns, d->until_ns);
}

/* ---- connections of pairs ----------------------------------------------------------------- */

static bool wants_dial(const struct dr_boot_client *c, unsigned k)
{
	const struct dr_boot_pair *p = &c->e.pair[k];
	return !p->in_done && !p->link;
}

int dr_client_pairs_tick(struct dr_boot_client *c, int64_t now_ns)
{
	if (c->e.control.state != DR_BOOT_EXCHANGING)
		return 0;
	for (unsigned k = 1; k < c->e.pairs; k++) {
		struct dr_boot_pair *p = &c->e.pair[k];
		if (!wants_dial(c, k) || now_ns < p->next_dial_ns)
			continue;
		if (p->backoff_ns == 0)
			p->backoff_ns = c->e.timing.retry_min_ns;
		p->next_dial_ns = now_ns + p->backoff_ns;
		p->backoff_ns = DR_MIN(2 * p->backoff_ns, c->e.timing.retry_max_ns);
		struct dr_addr to = c->server;
		dr_sa_set_port(&to.ss, c->e.ports[k]);
		struct dr_link *l;
		int rc = dial(c, &to, DR_CONV_GPU, k, now_ns, &l);
		if (rc == 0)
			p->link = l;
		else if (dr_net_cause(-rc, true) == DR_BOOT_LOCAL)
			return rc;
	}
	return 0;
}

int64_t dr_client_pairs_deadline(const struct dr_boot_client *c)
{
	int64_t at = DR_NEVER;
	if (c->e.control.state != DR_BOOT_EXCHANGING)
		return at;
	for (unsigned k = 1; k < c->e.pairs; k++)
		if (wants_dial(c, k))
			at = DR_MIN(at, c->e.pair[k].next_dial_ns);
	return at;
}
