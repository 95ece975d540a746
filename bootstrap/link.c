/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/link.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, READS_MAX = 8 };
static const int64_t CLOSING_NS = DR_NS_PER_S;

static void link_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns);

void dr_link_abort(struct dr_link *l)
{
	if (l->state == DR_LINK_DEAD)
		return;
	dr_poller_del(l->poller, &l->po);
	close(l->po.fd);
	l->po.fd = -1;
	l->state = DR_LINK_DEAD;
}

static int link_create(
	const struct dr_link_opts *o, int fd, uint32_t events, int64_t now_ns, struct dr_link **out)
{
	struct dr_link *l = dr_calloc(1, sizeof(*l)), **end = o->list;
	if (!l)
		return -ENOMEM;
	l->po.fd = fd;
	l->po.ready = link_ready;
	l->poller = o->poller;
	l->ops = o->ops;
	l->owner = o->owner;
	l->silent_ns = o->silent_ns;
	l->due_ns = DR_NEVER;
	int rc = dr_conv_init(&l->conv, &o->conv, now_ns);
	if (rc == 0)
		rc = dr_poller_add(o->poller, &l->po, events);
	if (rc) {
		dr_conv_fini(&l->conv);
		dr_free(l);
		return rc;
	}
	dr_net_watch(fd, o->silent_ns);
	while (*end)
		end = &(*end)->next;
	*end = l;
	*out = l;
	return 0;
}

int dr_link_accept(const struct dr_link_opts *o, int fd, const struct dr_addr *from, int64_t now_ns,
	struct dr_link **out)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	int rc = link_create(o, fd, EPOLLIN, now_ns, out);
	if (rc)
		return rc;
	struct dr_link *l = *out;
	l->state = DR_LINK_UP;
	l->addr = *from;
	l->since_ns = now_ns;
	dr_addr_format(from, l->peer, sizeof(l->peer));
	struct dr_addr own = { .len = sizeof(own.ss) };
	if (getsockname(fd, (struct sockaddr *)&own.ss, &own.len) == 0)
		l->local_port = dr_sa_port(&own.ss);
	return 0;
}

int dr_link_dial(const struct dr_link_opts *o, const struct dr_addr *to,
	const struct dr_net_from *from, int64_t now_ns, struct dr_link **out)
{
	int fd;
	int rc = dr_net_connect(to, from, &fd);
	if (rc)
		return rc;
	rc = link_create(o, fd, EPOLLOUT, now_ns, out);
	if (rc) {
		close(fd);
		return rc;
	}
	(*out)->state = DR_LINK_DIALLING;
	(*out)->addr = *to;
	dr_addr_format(to, (*out)->peer, sizeof((*out)->peer));
	return 0;
}

void dr_link_wake(struct dr_link *l)
{
	if (l->state == DR_LINK_UP || l->state == DR_LINK_CLOSING)
		dr_poller_kick(l->poller, &l->po);
}

/* ---- events ------------------------------------------------------------------------------- */

static void deliver(struct dr_link *l, const struct dr_conv_event *ev, int64_t now_ns)
{
	l->ops->event(l, ev, now_ns);
	bool last = ev->kind == DR_CONV_FAILED || ev->kind == DR_CONV_REFUSED;
	if (last && (l->state == DR_LINK_UP || l->state == DR_LINK_DIALLING))
		dr_link_close(l, now_ns);
	/* JSON takes many times its bytes, and the peer decides how long this end waits for it. */
	if (l->state == DR_LINK_CLOSING)
		dr_conv_drop_input(&l->conv);
}

static void link_fail(struct dr_link *l, enum dr_boot_cause cause, const char *text, int64_t now_ns)
{
	if (l->conv.state == DR_CONV_ENDED) { /* the owner knows already */
		dr_link_abort(l);
		return;
	}
	dr_conv_fail(&l->conv, cause, "%s", text);
	struct dr_conv_event ev = { .kind = DR_CONV_FAILED, .cause = cause };
	l->ops->event(l, &ev, now_ns);
	dr_link_abort(l);
}

/* A read or a write failed. */
static void socket_failed(struct dr_link *l, int err, int64_t now_ns)
{
	enum dr_boot_cause cause = dr_net_cause(err, false);
	char text[160];
	if (cause == DR_BOOT_SILENT)
		snprintf(text, sizeof(text),
			"the peer's host has acknowledged nothing for %.3g s (%s): it is down, or the network "
			"between is cut",
			(double)l->silent_ns / 1e9, strerror(err));
	else
		snprintf(text, sizeof(text), "%s", strerror(err));
	link_fail(l, cause, text, now_ns);
}

static void feed(struct dr_link *l, const uint8_t *data, size_t len, int64_t now_ns)
{
	struct dr_conv_event ev;
	do {
		size_t n = dr_conv_feed(&l->conv, data, len, now_ns, &ev);
		data += n;
		len -= n;
		if (ev.kind != DR_CONV_NOTHING)
			deliver(l, &ev, now_ns);
	} while (l->state == DR_LINK_UP && (len > 0 || ev.kind != DR_CONV_NOTHING));
}

/* Bounded, so that one peer cannot occupy the thread; epoll is level-triggered. */
static void link_read(struct dr_link *l)
{
	static _Thread_local uint8_t buf[READ_BYTES];
	for (int i = 0; i < READS_MAX; i++) {
		ssize_t n = recv(l->po.fd, buf, sizeof(buf), 0);
		int err = errno;
		/* The bound of the clock offset requires a time after the read. */
		int64_t now = dr_now_ns();
		if (n < 0 && (err == EAGAIN || err == EINTR))
			return;
		if (l->state == DR_LINK_CLOSING) {
			if (n <= 0)
				dr_link_abort(l);
		} else if (n == 0 && l->write_err && l->write_err != EPIPE) {
			socket_failed(l, l->write_err, now);
		} else if (n == 0) {
			link_fail(l, DR_BOOT_EOF, "connection closed by the peer", now);
		} else if (n < 0) {
			socket_failed(l, err, now);
		} else {
			feed(l, buf, (size_t)n, now);
			if (l->state == DR_LINK_UP && l->ops->batch)
				l->ops->batch(l, now);
		}
		if (l->state == DR_LINK_DEAD || (size_t)DR_MAX(n, 0) < sizeof(buf))
			return;
	}
}

static void watch(struct dr_link *l, bool output)
{
	if (l->state == DR_LINK_UP || l->state == DR_LINK_CLOSING)
		dr_poller_mod(l->poller, &l->po, EPOLLIN | (output ? (uint32_t)EPOLLOUT : 0u));
}

/* Write pending output. Reports FAILED if `may_tell`, else the next read does. */
static void link_write(struct dr_link *l, int64_t now_ns, bool may_tell)
{
	const uint8_t *data;
	size_t left;
	while ((left = dr_conv_output(&l->conv, &data)) > 0) {
		ssize_t n = send(l->po.fd, data, left, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		dr_conv_sent(&l->conv, n > 0 ? (size_t)n : 0, now_ns);
		if (n < 0 && errno == EAGAIN) {
			watch(l, true);
			return;
		}
		if (n < 0) {
			l->write_err = errno;
			if (l->state == DR_LINK_CLOSING)
				dr_link_abort(l);
			else if (may_tell) /* what the peer said before it closed is the reason */
				link_read(l);
			if (may_tell && l->state == DR_LINK_UP)
				socket_failed(l, l->write_err, now_ns);
			return;
		}
	}
	watch(l, false);
	if (l->state == DR_LINK_CLOSING && !l->fin_sent) {
		shutdown(l->po.fd, SHUT_WR);
		l->fin_sent = true;
	}
}

static void dialled(struct dr_link *l, int64_t now_ns)
{
	int err = 0;
	socklen_t len = sizeof(err);
	if (getsockopt(l->po.fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (err) {
		link_fail(l, dr_net_cause(err, true), strerror(err), now_ns);
		return;
	}
	l->state = DR_LINK_UP;
	l->due_ns = DR_NEVER;
	l->conv.stage_at_ns = now_ns;
}

static void link_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_link *l = dr_container_of(po, struct dr_link, po);
	if (l->state == DR_LINK_DIALLING) {
		if (!revents)
			return;
		dialled(l, now_ns);
	}
	if ((l->state == DR_LINK_UP || l->state == DR_LINK_CLOSING) &&
		(revents & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		link_read(l);
	if (l->state == DR_LINK_UP || l->state == DR_LINK_CLOSING)
		link_write(l, now_ns, true);
}

/* ---- owner's calls ------------------------------------------------------------------------ */

void dr_link_write(struct dr_link *l, int64_t now_ns)
{
	link_write(l, now_ns, false);
}

void dr_link_close(struct dr_link *l, int64_t now_ns)
{
	if (l->state == DR_LINK_DIALLING)
		dr_link_abort(l);
	if (l->state != DR_LINK_UP)
		return;
	l->state = DR_LINK_CLOSING;
	l->closing_until_ns = now_ns + CLOSING_NS;
	link_write(l, now_ns, false);
}

static void link_tick(struct dr_link *l, int64_t now_ns)
{
	if (l->state == DR_LINK_CLOSING) {
		if (now_ns >= l->closing_until_ns)
			dr_link_abort(l);
		return;
	}
	if (l->state != DR_LINK_DEAD && now_ns >= l->due_ns) {
		bool dialling = l->state == DR_LINK_DIALLING;
		link_fail(l, dialling ? DR_BOOT_UNREACHABLE : DR_BOOT_TIMEOUT,
			dialling      ? "no answer to the connection request"
			: l->due_text ? l->due_text
				      : "timed out",
			now_ns);
		return;
	}
	if (l->state == DR_LINK_UP) {
		struct dr_conv_event ev;
		dr_conv_tick(&l->conv, now_ns, &ev);
		if (ev.kind != DR_CONV_NOTHING)
			deliver(l, &ev, now_ns);
	}
}

static int64_t link_deadline(const struct dr_link *l)
{
	switch (l->state) {
	case DR_LINK_CLOSING:
		return l->closing_until_ns;
	case DR_LINK_DIALLING:
		return l->due_ns;
	case DR_LINK_UP:
		return DR_MIN(l->due_ns, dr_conv_deadline(&l->conv));
	default:
		return 0; /* dead: reap it now */
	}
}

void dr_links_reap(struct dr_link **list)
{
	while (*list) {
		struct dr_link *l = *list;
		if (l->state != DR_LINK_DEAD) {
			list = &l->next;
			continue;
		}
		*list = l->next;
		dr_conv_fini(&l->conv);
		dr_free(l);
	}
}

void dr_links_tick(struct dr_link **list, int64_t now_ns)
{
	dr_links_reap(list);
	for (struct dr_link *l = *list; l; l = l->next)
		link_tick(l, now_ns);
}

int64_t dr_links_deadline(const struct dr_link *l)
{
	int64_t at = DR_NEVER;
	for (; l; l = l->next)
		at = DR_MIN(at, link_deadline(l));
	return at;
}

void dr_links_free(struct dr_link **list)
{
	for (struct dr_link *l = *list; l; l = l->next)
		dr_link_abort(l);
	dr_links_reap(list);
}
