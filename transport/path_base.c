/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/path_base.h"

#include <errno.h>
#include <stdio.h>

static void kicked(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_path_base *b = dr_container_of(po, struct dr_path_base, po);

	(void)revents;
	if (b->par.ready)
		b->par.ready(b->par.arg, now_ns);
}

void dr_path_init(struct dr_path_base *b, struct dr_rail *r, const struct dr_path_params *par,
	struct dr_poller *poller, void (*ready)(struct dr_pollable *, uint32_t, int64_t))
{
	b->path = (struct dr_path){ .ops = r->ops, .rail = r };
	b->par = *par;
	b->poller = poller;
	b->po = (struct dr_pollable){ .fd = -1, .ready = ready ? ready : kicked };
}

int dr_path_no_memory(const struct dr_path_params *par, struct dr_err *e)
{
	return dr_err_set(
		e, -ENOMEM, "channel %u path %u: out of memory", par->channel, par->index);
}

/* ---- progress ---- */

void dr_path_begin(struct dr_path_base *b, int64_t now_ns, struct dr_sink *sink)
{
	dr_assert(!b->sink);
	b->sink = sink;
	b->now_ns = now_ns;
	b->n_events = 0;
}

int dr_path_end(struct dr_path_base *b)
{
	b->sink = NULL;
	return b->n_events;
}

void dr_path_emit(struct dr_path_base *b, struct dr_event *ev)
{
	dr_dassert(b->sink);
	ev->path = &b->path;
	ev->rail = b->path.rail;
	b->n_events++;
	b->sink->event(b->sink, ev);
}

void dr_path_wake(struct dr_path_base *b)
{
	if (b->poller && !b->sink)
		dr_poller_kick(b->poller, &b->po);
}

void dr_path_keep_failure(
	struct dr_path_base *b, enum dr_scope scope, int err, const char *fmt, va_list ap)
{
	int n = snprintf(b->text, sizeof(b->text), "channel %u path %u (rail %u): ", b->par.channel,
		b->par.index, b->path.rail->index);

	vsnprintf(b->text + n, sizeof(b->text) - (size_t)n, fmt, ap);
	b->scope = scope;
	b->err = err;
}

void dr_path_emit_failure(struct dr_path_base *b)
{
	struct dr_event ev = {
		.kind = DR_EV_FAILED, .scope = b->scope, .err = b->err, .text = b->text
	};

	dr_path_emit(b, &ev);
}

/* ---- the other end ---- */

struct dr_path_ident dr_path_ident(const struct dr_path_base *b)
{
	return (struct dr_path_ident){ .channel = b->par.channel,
		.gen = b->par.gen,
		.index = (uint8_t)b->par.index,
		.sender = b->par.sender,
		.connector = b->par.connector };
}

int dr_path_check_connect(
	const struct dr_path_base *b, bool is_new, bool has_peer, struct dr_err *e)
{
	if (!is_new)
		return dr_err_set(e, -EINVAL, "channel %u path %u: connect was called before",
			b->par.channel, b->par.index);
	if (b->par.connector && !has_peer)
		return dr_err_set(e, -ENOTCONN, "channel %u path %u: rail %u has no peer yet",
			b->par.channel, b->par.index, b->path.rail->index);
	return 0;
}

int dr_path_check_peer(const struct dr_path_base *b, const struct dr_path_ident *peer,
	const char *why, struct dr_err *e)
{
	if (!why && peer->channel == b->par.channel && peer->index == b->par.index &&
		peer->gen == b->par.gen && peer->sender != b->par.sender &&
		peer->connector != b->par.connector)
		return 0;
	return dr_err_set(e, -EPROTO, "channel %u path %u gen %u: the peer's handle is invalid: %s",
		b->par.channel, b->par.index, b->par.gen,
		why ? why : "it is of another path or generation, or of the same end");
}
