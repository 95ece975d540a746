/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/path_base.h"

#include "base/mem.h"
#include "base/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

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

void dr_path_tell(struct dr_path_base *b, enum dr_event_kind kind)
{
	dr_path_emit(b, &(struct dr_event){ .kind = kind });
}

void dr_path_tell_message(
	struct dr_path_base *b, enum dr_event_kind kind, uint32_t epoch, uint64_t seq)
{
	if (kind == DR_EV_ARRIVING) {
		if (b->arrived && b->arrived_epoch == epoch)
			return;
		b->arrived = true;
		b->arrived_epoch = epoch;
	}
	dr_path_emit(b, &(struct dr_event){ .kind = kind, .epoch = epoch, .seq = seq });
}

void dr_path_tell_part(struct dr_path_base *b, enum dr_event_kind kind, uint32_t epoch,
	uint64_t seq, unsigned part, uint32_t len)
{
	struct dr_event ev = { .kind = kind, .epoch = epoch, .seq = seq, .part = part, .len = len };

	dr_path_emit(b, &ev);
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

/* ---- credits ---- */

int dr_path_credits_init(struct dr_path_base *b)
{
	if (b->par.sender)
		b->credits = dr_calloc(DR_PATH_RING, sizeof(*b->credits));
	return b->par.sender && !b->credits ? -ENOMEM : 0;
}

struct dr_path_credit *dr_path_grant(struct dr_path_base *b, uint32_t epoch, uint64_t seq,
	uint32_t skip, const struct dr_credit *c)
{
	struct dr_path_credit *at = &b->credits[seq % DR_PATH_RING];

	if (at->used && at->epoch == epoch && (at->c.todo || at->seq >= seq))
		return NULL;
	b->credit_epoch = epoch;
	*at = (struct dr_path_credit){
		.used = true, .skip = (uint8_t)skip, .epoch = epoch, .seq = seq, .c = *c
	};
	return at;
}

static struct dr_path_credit *find(const struct dr_path_base *b, uint32_t epoch, uint64_t seq)
{
	struct dr_path_credit *at = b->credits ? &b->credits[seq % DR_PATH_RING] : NULL;

	return at && at->used && at->epoch == epoch && at->seq == seq ? at : NULL;
}

int dr_path_credit(struct dr_path *p, uint32_t epoch, uint64_t seq, struct dr_credit *out)
{
	const struct dr_path_credit *at =
		find(dr_container_of(p, struct dr_path_base, path), epoch, seq);

	if (!at)
		return -EAGAIN;
	*out = at->c;
	return 0;
}

int dr_path_claim(const struct dr_path_base *b, uint32_t epoch, uint64_t seq, unsigned part,
	uint32_t len, struct dr_path_credit **out)
{
	struct dr_path_credit *at = find(b, epoch, seq);

	if (!at)
		return -EAGAIN;
	if (!(at->c.todo & 1u << part))
		return -EINVAL; /* no such part, skipped, or posted before */
	if (len > at->c.cap[part])
		return -EMSGSIZE;
	*out = at;
	return 0;
}

/* ---- the other end ---- */

void dr_path_host(int family, const uint8_t *bytes, struct sockaddr_storage *out)
{
	*out = (struct sockaddr_storage){ .ss_family = (sa_family_t)family };
	if (family == AF_INET6)
		memcpy(&((struct sockaddr_in6 *)out)->sin6_addr, bytes, 16);
	else
		memcpy(&((struct sockaddr_in *)out)->sin_addr, bytes, 4);
}

struct dr_path_ident dr_path_ident(const struct dr_path_params *par)
{
	return (struct dr_path_ident){ .channel = par->channel,
		.gen = par->gen,
		.index = (uint8_t)par->index,
		.sender = par->sender,
		.connector = par->connector };
}

/* Handle: u32 magic | u16 version | u8 index | u8 flags | u32 channel | u32 gen; big endian. */
enum {
	HANDLE_MAGIC = 0x44525450, /* "DRTP" */
	HANDLE_VERSION = 3,
	FLAG_SENDER = 1,
	FLAG_CONNECTOR = 2,
};

void dr_path_ident_put(struct dr_wbuf *w, const struct dr_path_ident *id)
{
	dr_wbuf_u8(w, id->index);
	dr_wbuf_u8(w,
		(uint8_t)((id->sender ? FLAG_SENDER : 0) | (id->connector ? FLAG_CONNECTOR : 0)));
	dr_wbuf_u32(w, id->channel);
	dr_wbuf_u32(w, id->gen);
}

bool dr_path_ident_get(struct dr_rbuf *r, struct dr_path_ident *out)
{
	uint8_t flags = 0;

	*out = (struct dr_path_ident){ 0 };
	dr_rbuf_u8(r, &out->index);
	dr_rbuf_u8(r, &flags);
	dr_rbuf_u32(r, &out->channel);
	dr_rbuf_u32(r, &out->gen);
	out->sender = flags & FLAG_SENDER;
	out->connector = flags & FLAG_CONNECTOR;
	return !r->failed && out->index < DR_PATHS && flags <= (FLAG_SENDER | FLAG_CONNECTOR);
}

int dr_path_handle(struct dr_path *p, void *buf, size_t cap)
{
	const struct dr_path_ident id =
		dr_path_ident(&dr_container_of(p, struct dr_path_base, path)->par);
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, cap);
	dr_wbuf_u32(&w, HANDLE_MAGIC);
	dr_wbuf_u16(&w, HANDLE_VERSION);
	dr_path_ident_put(&w, &id);
	return w.failed ? -EMSGSIZE : (int)w.len;
}

int dr_path_handle_parse(const void *buf, size_t len, struct dr_path_ident *out, const char **why)
{
	uint32_t magic = 0;
	uint16_t version = 0;
	struct dr_rbuf r;

	dr_rbuf_init(&r, buf, len);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u16(&r, &version);
	bool fits = dr_path_ident_get(&r, out);
	*why = NULL;
	if (dr_rbuf_done(&r) || magic != HANDLE_MAGIC || version != HANDLE_VERSION)
		*why = "it is no path handle of this release";
	else if (!fits)
		*why = "its members are out of range";
	return *why ? -EPROTO : 0;
}

bool dr_path_fits(const struct dr_path_params *par, const struct dr_path_ident *peer)
{
	return peer->channel == par->channel && peer->index == par->index &&
	       peer->gen == par->gen && peer->sender != par->sender &&
	       peer->connector != par->connector;
}

int dr_path_check_connect(const struct dr_path_base *b, bool is_new, bool has_peer,
	const void *handle, size_t len, struct dr_err *e)
{
	struct dr_path_ident peer;
	const char *why = NULL;

	if (!is_new)
		return dr_err_set(e, -EINVAL, "channel %u path %u: connect was called before",
			b->par.channel, b->par.index);
	if (b->par.connector && !has_peer)
		return dr_err_set(e, -ENOTCONN, "channel %u path %u: rail %u has no peer yet",
			b->par.channel, b->par.index, b->path.rail->index);
	if (len == 0)
		return 0; /* no news: the rail's handle is enough */
	if (dr_path_handle_parse(handle, len, &peer, &why) == 0 && !dr_path_fits(&b->par, &peer))
		why = "it is of another path or generation, or of the same end";
	if (!why)
		return 0;
	return dr_err_set(e, -EPROTO, "channel %u path %u gen %u: the peer's handle is invalid: %s",
		b->par.channel, b->par.index, b->par.gen, why);
}
