/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_priv.h"
#include "detect/rules.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Lifecycle of a channel, execution of the core's actions, rail verdicts, statistics. */

enum {
	UNANSWERED_MAX = 2, /* transmissions in a row without an answer: a silent path */
	PATIENCE_RTTS = 8,  /* round trips without progress of a path that works */
	/* Repetitions without an answer of a rail that works otherwise. */
	REPEATED_MAX = 10,
	FENCE_NS = 100 * 1000 * 1000, /* after this time a fence destroys the connection */
};
/* The longest time for these repetitions, where the kernel doubles their interval without a limit. */
static const int64_t REPEATING_NS = 15 * DR_NS_PER_S;

static void path_ready(void *arg, int64_t now)
{
	struct dr_channel_path *cp = arg;

	dr_channel_path_progress(cp->ch, cp->index, now);
	dr_channel_turn(cp->ch, now);
}

static int path_create(struct dr_channel *ch, unsigned i, uint32_t gen, struct dr_err *e)
{
	struct dr_channel_path *cp = &ch->path[i];
	struct dr_path_params p = {
		.channel = ch->prm.id,
		.index = i,
		.gen = gen,
		.sender = ch->prm.sender,
		.connector = ch->prm.connector,
		.ready = path_ready,
		.arg = cp,
	};
	int rc;

	dr_assert(!cp->path);
	rc = ch->prm.rail[i]->ops->create(ch->prm.rail[i], &p, &cp->path, e);
	if (rc != 0)
		return rc;
	cp->path->user = cp;
	cp->gen = gen;
	return 0;
}

static void add_stats(struct dr_path_stats *sum, const struct dr_path_stats *s)
{
	sum->tx_bytes += s->tx_bytes;
	sum->rx_bytes += s->rx_bytes;
	sum->syscalls += s->syscalls;
	sum->retransmits += s->retransmits;
}

/* What could not be destroyed may access buffers until the process ends, also when the path object is gone. */
static void path_stop(struct dr_channel *ch, unsigned i)
{
	struct dr_path *p = ch->path[i].path;
	int rc = p->ops->stop(p);

	if (rc != 0 && ch->unsafe.code == 0)
		dr_err_set(&ch->unsafe, rc,
			"the connection of path %u (rail %u, %s) could not be destroyed: %s", i,
			p->rail->index, p->ops->name, dr_errno_name(rc));
}

static void path_free(struct dr_channel *ch, unsigned i)
{
	struct dr_channel_path *cp = &ch->path[i];
	struct dr_path_stats s = { 0 };

	if (!cp->path)
		return;
	cp->path->ops->stats(cp->path, &s);
	add_stats(&cp->past, &s);
	cp->path->ops->close(cp->path);
	path_stop(ch, i);
	cp->path->ops->fini(cp->path);
	cp->path = NULL;
}

int dr_channel_create(const struct dr_channel_params *p, struct dr_channel **out, struct dr_err *e)
{
	struct dr_channel *ch;
	struct dr_fo_params fp = {
		.sender = p->sender,
		.connector = p->connector,
		.shadow = !!p->rail[1],
		.failback = p->failback,
		.window = p->window,
		.hold_down_ns = p->hold_down_ns,
		.lost_after_ns = p->lost_after_ns,
		.stuck_after_ns = p->stuck_after_ns,
	};
	int rc;

	if (p->window < 1 || p->window > DR_CHANNEL_WINDOW_MAX)
		return dr_err_set(e, -EINVAL, "window %u: 1 to %d messages", p->window,
			DR_CHANNEL_WINDOW_MAX);
	ch = dr_calloc(1, sizeof(*ch) + p->window * sizeof(ch->msg[0]));
	if (!ch)
		return dr_err_set(e, -ENOMEM, "channel %u: out of memory", p->id);
	ch->prm = *p;
	ch->started_ns = DR_NEVER;
	ch->probe_gap_ns = p->rail[0]->ops->caps & DR_CAP_RESET ? DR_CHANNEL_KEEPALIVE_NS
								: DR_CHANNEL_PROBE_NS;
	dr_fo_init(&ch->fo, &fp);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		ch->path[i].ch = ch;
		ch->path[i].index = i;
		ch->path[i].sink.event = dr_channel_on_event;
		rc = p->rail[i] ? path_create(ch, i, 1, e) : 0;
		if (rc != 0)
			goto err_paths;
	}
	*out = ch;
	return 0;
err_paths:
	path_free(ch, 0);
	dr_free(ch);
	return rc;
}

int dr_channel_handle(struct dr_channel *ch, struct dr_handle *out)
{
	uint8_t one[DR_HANDLE_MAX];
	struct dr_wbuf w;

	dr_wbuf_init(&w, out->bytes, sizeof(out->bytes));
	dr_wbuf_u32(&w, ch->prm.id);
	dr_wbuf_u8(&w, ch->prm.sender);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		int n = 0;

		if (ch->path[i].path)
			n = ch->path[i].path->ops->handle(ch->path[i].path, one, sizeof(one));
		if (n < 0)
			return n;
		dr_wbuf_u8(&w, (uint8_t)n);
		dr_wbuf_bytes(&w, one, (size_t)n);
	}
	out->len = (uint8_t)w.len;
	return w.failed ? -EMSGSIZE : 0;
}

int dr_channel_start(
	struct dr_channel *ch, const struct dr_handle *h, int64_t now, struct dr_err *e)
{
	struct dr_rbuf r;
	uint8_t sender, n;
	uint32_t id;

	if (ch->fo.state == DR_FO_DEAD)
		return dr_err_set(e, ch->fo.err, "channel %u has ended", ch->prm.id);
	dr_rbuf_init(&r, h->bytes, h->len);
	dr_rbuf_u32(&r, &id);
	dr_rbuf_u8(&r, &sender);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		if (dr_rbuf_u8(&r, &n) != 0 || n > DR_HANDLE_MAX ||
			dr_rbuf_bytes(&r, ch->path[i].peer, n) != 0)
			break;
		ch->path[i].peer_len = n;
	}
	if (dr_rbuf_done(&r) != 0 || id != ch->prm.id || sender != !ch->prm.sender)
		return dr_err_set(
			e, -EPROTO, "channel %u: the peer's handle is malformed", ch->prm.id);
	ch->started_ns = now;
	dr_fo_start(&ch->fo, now);
	dr_channel_turn(ch, now);
	return 0;
}

int dr_channel_ready(const struct dr_channel *ch)
{
	if (ch->fo.state == DR_FO_DEAD)
		return ch->fo.err;
	return ch->fo.state == DR_FO_RUN;
}

/* No connection uses it. The first error counts. */
static int release(struct dr_channel *ch, struct dr_mem *mem, struct dr_err *why)
{
	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_rail *r = ch->prm.rail[i];
		int rc = r && mem->mr[i] ? r->ops->mr_dereg(r, mem->mr[i]) : 0;

		if (rc != 0 && why->code == 0)
			dr_err_set(why, rc,
				"channel %u: %zu bytes could not be deregistered from rail %u (%s): %s",
				ch->prm.id, mem->len, r->index, r->ops->name, dr_errno_name(rc));
	}
	memset(mem, 0, sizeof(*mem));
	return why->code;
}

/* Also if what is gone may be accessed until the process ends. */
static int tell(const struct dr_channel *ch, const struct dr_err *why, struct dr_err *e)
{
	if (ch->unsafe.code != 0)
		return dr_err_set(
			e, ch->unsafe.code, "channel %u: %s", ch->prm.id, ch->unsafe.text);
	return why->code != 0 ? dr_err_set(e, why->code, "%s", why->text) : 0;
}

int dr_channel_mem_reg(
	struct dr_channel *ch, const struct dr_memory *mem, struct dr_mem *out, struct dr_err *e)
{
	struct dr_mem m = { .base = mem->base, .len = mem->len };

	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_rail *r = ch->prm.rail[i];
		int rc = r ? r->ops->mr_reg(r, mem, &m.mr[i], e) : 0;

		if (rc != 0) {
			struct dr_err why = { 0 };

			/* Nobody was told its key: it stays pinned, but nothing accesses it. */
			if (release(ch, &m, &why) != 0)
				dr_warn("channel", "%s", why.text);
			return rc;
		}
	}
	*out = m;
	return 0;
}

static bool outstanding_in(const struct dr_channel *ch, const struct dr_mem *mem)
{
	for (uint64_t s = ch->fo.head; s < ch->fo.tail; s++) {
		const struct dr_message *m = &ch->msg[s % ch->prm.window];

		for (unsigned i = 0; i < m->n; i++)
			if (m->span[i].mem == mem)
				return true;
	}
	return false;
}

static const char OUTSTANDING[] = "memory was deregistered with messages outstanding";

int dr_channel_mem_dereg(struct dr_channel *ch, struct dr_mem *mem, int64_t now, struct dr_err *e)
{
	struct dr_err why = { 0 };

	if (outstanding_in(ch, mem)) {
		dr_channel_fail(ch, -ECANCELED, OUTSTANDING, now);
		for (unsigned i = 0; i < DR_PATHS; i++)
			path_free(ch, i); /* stop() waits until nothing accesses the memory */
	}
	(void)release(ch, mem, &why);
	return tell(ch, &why, e);
}

int dr_channel_mem_replace(struct dr_channel *ch, struct dr_mem *mem, const struct dr_memory *with,
	int64_t now, struct dr_err *e)
{
	struct dr_err why = { 0 };

	/* The active path, and one that is left and not fenced yet. The core acts later. */
	for (unsigned i = 0; i < DR_PATHS; i++) {
		const struct dr_fo_path *p = &ch->fo.path[i];

		if (p->state != DR_FOP_FENCING && (p->state != DR_FOP_READY || i != ch->fo.active))
			continue;
		path_free(ch, i);
		dr_fo_path_failed(&ch->fo, dr_fo_conn(i, p->gen), DR_SCOPE_PATH, -ECANCELED,
			OUTSTANDING, now);
		dr_fo_fenced(&ch->fo, i, p->gen, now);
	}
	if (release(ch, mem, &why) != 0 || dr_channel_mem_reg(ch, with, mem, &why) != 0)
		dr_fo_die(&ch->fo, -ECANCELED, OUTSTANDING, now);
	dr_channel_turn(ch, now);
	return tell(ch, &why, e);
}

static void act_connect(struct dr_channel *ch, unsigned i, uint32_t gen)
{
	struct dr_channel_path *cp = &ch->path[i];
	struct dr_err e = { 0 };
	int rc = 0;

	if (cp->path && cp->gen != gen)
		path_free(ch, i);
	if (!cp->path)
		rc = path_create(ch, i, gen, &e);
	if (rc == 0)
		rc = cp->path->ops->connect(
			cp->path, cp->peer, gen == 1 ? cp->peer_len : 0, ch->now, &e);
	dr_debug("channel", "channel %u path %u gen %u: %s", ch->prm.id, i, gen,
		rc == 0 ? "connecting" : e.text);
	if (rc != 0)
		dr_fo_path_failed(&ch->fo, dr_fo_conn(i, gen), DR_SCOPE_PATH, rc, e.text, ch->now);
}

static void act_fence(struct dr_channel *ch, const struct dr_fo_act *a)
{
	struct dr_channel_path *cp = &ch->path[a->path];

	if (!cp->path || cp->gen != a->gen) {
		/* There never was a connection, so nothing can access a buffer. */
		dr_fo_fenced(&ch->fo, a->path, a->gen, ch->now);
		return;
	}
	cp->path->ops->fence(cp->path, ch->now + FENCE_NS);
}

/* A frame that is not taken is repeated by a timer. */
static void post_frame(struct dr_path *p, const struct dr_frame *fr, int64_t now)
{
	uint8_t buf[DR_FRAME_LEN];

	dr_frame_encode(fr, buf);
	if (dr_path_post_ctrl(p, buf, sizeof(buf)) == 0)
		dr_path_flush(p, now);
}

static void act_ctrl(struct dr_channel *ch, const struct dr_fo_act *a)
{
	struct dr_channel_path *cp = &ch->path[a->path];

	if (!cp->path || cp->gen != a->gen)
		return;
	dr_debug("channel", "channel %u %s: %s epoch %u path %u gen %u seq %" PRIu64 " on path %u",
		ch->prm.id, ch->prm.sender ? "sender" : "receiver",
		dr_frame_type_name(a->frame.type), a->frame.epoch, a->frame.path, a->frame.gen,
		a->frame.seq, a->path);
	post_frame(cp->path, &a->frame, ch->now);
}

static void act_switched(struct dr_channel *ch)
{
	struct dr_switch_record *r = &ch->fo.done;
	char why[sizeof(r->cause)];

	/* Links and connections that fail are told by the kernel or NIC. */
	if (!r->planned && (r->err == -ETIMEDOUT || !r->self_detected) &&
		r->detect_ns <= ch->late_until_ns &&
		r->detect_ns >= ch->late_until_ns - 2 * ch->late_ns) {
		memcpy(why, r->cause, sizeof(why));
		snprintf(r->cause, sizeof(r->cause), "after an own stall of %.3g ms: %.58s",
			(double)ch->late_ns / 1e6, why);
	}
	ch->replayed_messages += r->replayed_messages;
	r->replayed_bytes = ch->replayed_bytes - ch->replayed_before;
	ch->replayed_before = ch->replayed_bytes;
	if (ch->prm.ops && ch->prm.ops->switched)
		ch->prm.ops->switched(ch->prm.arg, ch, r);
}

static void close_paths(struct dr_channel *ch, bool all)
{
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (ch->path[i].path && (all || ch->fo.path[i].state != DR_FOP_READY))
			ch->path[i].path->ops->close(ch->path[i].path);
}

static void act_dead(struct dr_channel *ch)
{
	close_paths(ch, false); /* the peer is told on the paths that are up */
	if (ch->prm.ops && ch->prm.ops->failed)
		ch->prm.ops->failed(ch->prm.arg, ch, ch->fo.err, ch->fo.why, ch->now);
}

static void act(struct dr_channel *ch, const struct dr_fo_act *a)
{
	switch (a->kind) {
	case DR_FOA_CONNECT:
		act_connect(ch, a->path, a->gen);
		break;
	case DR_FOA_FENCE:
		act_fence(ch, a);
		break;
	case DR_FOA_CTRL:
		act_ctrl(ch, a);
		break;
	case DR_FOA_DGRAM:
		if (ch->prm.host)
			ch->prm.host->datagram(ch->prm.host_arg, &a->frame);
		break;
	case DR_FOA_SWITCHED:
		act_switched(ch);
		break;
	case DR_FOA_PROTECTION:
		if (ch->prm.ops && ch->prm.ops->protection)
			ch->prm.ops->protection(ch->prm.arg, ch, a->prot, a->path, ch->now);
		break;
	case DR_FOA_DEAD:
		act_dead(ch);
		break;
	case DR_FOA_LEAVE:
		close_paths(ch, true);
		break;
	}
}

void dr_channel_settle(struct dr_channel *ch)
{
	struct dr_fo_act todo[DR_FO_ACTS_MAX];
	unsigned n;

	/* Actions may cause events with further actions. Each round advances a path by one step, so
	 * this ends. */
	while ((n = ch->fo.n_act) > 0) {
		memcpy(todo, ch->fo.act, n * sizeof(todo[0]));
		ch->fo.n_act = 0;
		for (unsigned i = 0; i < n; i++)
			act(ch, &todo[i]);
	}
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (ch->path[i].path && ch->fo.path[i].state == DR_FOP_DOWN &&
			ch->fo.path[i].gen == ch->path[i].gen)
			path_free(ch, i);
}

void dr_channel_rail_down(struct dr_channel *ch, unsigned i, int err, const char *why, int64_t now)
{
	dr_fo_rail(&ch->fo, i, false, now);
	dr_fo_path_failed(&ch->fo, dr_fo_conn(i, ch->fo.path[i].gen), DR_SCOPE_RAIL, err, why, now);
	dr_channel_turn(ch, now);
}

void dr_channel_rail_up(struct dr_channel *ch, unsigned i, int64_t now)
{
	dr_fo_rail(&ch->fo, i, true, now);
	dr_channel_turn(ch, now);
}

void dr_channel_incoming(struct dr_channel *ch, unsigned i, uint32_t gen, int64_t now)
{
	if (i >= DR_PATHS)
		return;
	dr_fo_incoming(&ch->fo, i, gen, now);
	dr_channel_turn(ch, now);
}

void dr_channel_datagram(struct dr_channel *ch, const struct dr_frame *fr, int64_t now)
{
	if (fr->type != DR_FRAME_GONE && fr->type != DR_FRAME_ABORT && fr->type != DR_FRAME_CLOSE)
		return; /* of the others, only those that came on a path count */
	dr_fo_frame(&ch->fo, fr->path, fr, now);
	dr_channel_turn(ch, now);
}

void dr_channel_path_dead(struct dr_channel *ch, unsigned i, int err, const char *why, int64_t now)
{
	dr_assert(i < DR_PATHS);
	dr_fo_path_failed(&ch->fo, dr_fo_conn(i, ch->fo.path[i].gen), DR_SCOPE_PATH, err, why, now);
	dr_channel_turn(ch, now);
}

bool dr_channel_path_up(const struct dr_channel *ch, unsigned i)
{
	return ch->path[i].path && ch->fo.state != DR_FO_DEAD &&
	       ch->fo.path[i].state == DR_FOP_READY;
}

void dr_channel_probe_path(struct dr_channel *ch, unsigned i, bool all, int64_t now)
{
	struct dr_frame fr = { .type = DR_FRAME_PROBE, .epoch = ch->fo.epoch };
	struct dr_path *p = ch->path[i].path;

	if (!dr_channel_path_up(ch, i))
		return;
	if (p->ops->probe)
		p->ops->probe(p, all, now);
	else
		post_frame(p, &fr, now);
}

/* An idle path that looks ready may have no other end: the kind does not show the peer's fence, or the reset was lost,
 * for example while both rails were cut and this end's clock stood. A PROBE from time to time makes the kernel or
 * the hardware detect it. */
void dr_channel_keepalive(struct dr_channel *ch, int64_t now)
{
	if (now < ch->probe_ns)
		return;
	ch->probe_ns = now + ch->probe_gap_ns;
	for (unsigned i = 0; i < DR_PATHS; i++) {
		int64_t due = ch->path[i].path ? ch->path[i].path->tx_last_ns + ch->probe_gap_ns
					       : DR_NEVER;

		if (now >= due)
			dr_channel_probe_path(ch, i, false, now);
		else
			ch->probe_ns = DR_MIN(ch->probe_ns, due);
	}
}

bool dr_channel_owed(const struct dr_channel *ch, unsigned *path, int64_t *since_ns)
{
	const struct dr_fo *f = &ch->fo;

	if (!ch->prm.sender || (f->state != DR_FO_RUN && f->state != DR_FO_DRAIN) || !dr_fo_owed(f))
		return false;
	*path = f->active;
	*since_ns = f->moved_ns;
	return true;
}

/* The kernel goes on to repeat what it has sent; each repetition without an answer is evidence. On a connection with
 * losses the peer's kernel may be repeating its answer, which cannot be seen from here. */
static int64_t patience(const struct dr_path_stats *s)
{
	int64_t ns = PATIENCE_RTTS * s->rtt_ns;
	bool lossy = dr_path_loses(s, DR_OWN_LOSS);

	if (!s->repeats || (s->silent_segments == 0 && !lossy) || s->unanswered >= REPEATED_MAX)
		return ns;
	return DR_MAX(ns, REPEATING_NS);
}

/* Credits and acknowledgements that do not arrive stop the sender, to which nothing is owed then. */
static bool waiting_receiver(struct dr_channel *ch, struct dr_channel_stall *out, int64_t now)
{
	const struct dr_path *p;

	if (ch->fo.state != DR_FO_RUN)
		return false;
	out->path = ch->fo.active;
	p = ch->path[out->path].path;
	if (p->tx_last_ns <= ch->heard_tx_ns)
		ch->quiet_ns = now;
	out->since_ns = DR_MAX(ch->quiet_ns, p->rx_last_ns);
	return true;
}

int64_t dr_channel_carried_ns(const struct dr_channel *ch)
{
	return DR_MAX(ch->fo.last_ns, ch->carried_ns);
}

bool dr_channel_stalled_path(
	struct dr_channel *ch, int64_t for_ns, struct dr_channel_stall *stall, int64_t now)
{
	bool waits = ch->prm.sender ? dr_channel_owed(ch, &stall->path, &stall->since_ns)
				    : waiting_receiver(ch, stall, now);
	struct dr_path_stats *st = &stall->st;
	struct dr_channel_path *cp;

	if (!waits || now - stall->since_ns < for_ns)
		return false;
	cp = &ch->path[stall->path];
	*st = (struct dr_path_stats){ .peer_ack_age_ns = -1 };
	cp->path->ops->stats(cp->path, st);
	if (ch->prm.sender) {
		int64_t answer = now - DR_MAX(st->peer_ack_age_ns, 0);

		if (st->acked_bytes > ch->fo.acked_bytes)
			ch->carried_ns = answer;
		dr_fo_transport(&ch->fo, dr_fo_conn(stall->path, cp->gen), st->acked_bytes, answer,
			patience(st), now);
		stall->since_ns = ch->fo.moved_ns;
	} else if (st->unacked_bytes == 0) {
		ch->heard_tx_ns = cp->path->tx_last_ns;
		ch->quiet_ns = stall->since_ns = now;
	}
	return now - stall->since_ns >= for_ns && !ch->fo.stalled;
}

void dr_channel_probe(struct dr_channel *ch, int64_t now)
{
	for (unsigned i = 0; i < DR_PATHS; i++)
		dr_channel_probe_path(ch, i, false, now);
	dr_channel_turn(ch, now);
}

/* One transmission without an answer may be lost, or its answer under way. */
void dr_channel_answers(struct dr_channel *ch, struct dr_channel_answers *out, int64_t now)
{
	*out = (struct dr_channel_answers){ 0 };
	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_path_stats s = { .peer_ack_age_ns = -1 };

		if (!dr_channel_path_up(ch, i))
			continue;
		out->up = true;
		ch->path[i].path->ops->stats(ch->path[i].path, &s);
		if (s.peer_ack_age_ns < 0)
			continue;
		out->at_ns = DR_MAX(out->at_ns, now - s.peer_ack_age_ns);
		out->pending |= s.unanswered < UNANSWERED_MAX;
	}
}

void dr_channel_stalled(struct dr_channel *ch, bool stalled, int64_t now)
{
	dr_fo_stalled(&ch->fo, stalled, now);
	dr_channel_turn(ch, now);
}

void dr_channel_late(struct dr_channel *ch, int64_t for_ns, int64_t now)
{
	if (for_ns > ch->late_ns || now > ch->late_until_ns) {
		ch->late_ns = for_ns;
		ch->late_until_ns = now + for_ns;
	}
	if (for_ns <= DR_CHANNEL_STALL_NS)
		return;
	dr_fo_own_stall(&ch->fo, for_ns, now);
	dr_channel_probe(ch, now);
}

int dr_channel_switch_now(struct dr_channel *ch, int64_t now)
{
	int rc = dr_fo_switch_now(&ch->fo, now);

	if (rc == 0)
		dr_channel_tick(ch, now);
	return rc;
}

void dr_channel_fail(struct dr_channel *ch, int err, const char *why, int64_t now)
{
	dr_fo_die(&ch->fo, err, why, now);
	dr_channel_turn(ch, now);
}

void dr_channel_stats(struct dr_channel *ch, struct dr_channel_stats *out)
{
	const struct dr_fo *f = &ch->fo;

	*out = (struct dr_channel_stats){
		.messages = f->head,
		.bytes = ch->bytes_done,
		.replayed_messages = ch->replayed_messages,
		.replayed_bytes = ch->replayed_bytes,
		.duplicates_dropped = f->dup_dropped,
		.switches = f->switches,
		.failbacks = f->failbacks,
		.heals = f->heals,
		.epoch = f->epoch,
		.active = f->active,
		.last_progress_ns = f->last_ns,
		.closed = f->state == DR_FO_DEAD && f->err == -ESHUTDOWN,
	};
	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_path_stats s = { 0 }, sum = ch->path[i].past;

		if (ch->path[i].path)
			ch->path[i].path->ops->stats(ch->path[i].path, &s);
		add_stats(&sum, &s);
		out->path_bytes[i] = ch->prm.sender ? sum.tx_bytes : sum.rx_bytes;
		out->path_up[i] = f->path[i].state == DR_FOP_READY;
		out->path_connections[i] = ch->path[i].connections;
		out->syscalls += sum.syscalls;
		out->retransmits += sum.retransmits;
	}
}

uint32_t dr_channel_id(const struct dr_channel *ch)
{
	return ch->prm.id;
}

bool dr_channel_is_sender(const struct dr_channel *ch)
{
	return ch->prm.sender;
}

void dr_channel_describe(struct dr_channel *ch, int64_t now, char *buf, size_t len)
{
	const struct dr_fo *f = &ch->fo;
	int n = snprintf(buf, len,
		"channel %u %s: %s epoch %u active %d, head %" PRIu64 " acked %" PRIu64
		" posted %" PRIu64 " on the path, %" PRIu64 " by the user, last progress %" PRId64
		" ms ago",
		ch->prm.id, ch->prm.sender ? "sender" : "receiver", dr_fo_state_name(f->state),
		f->epoch, dr_channel_active(ch), f->head, f->acked, f->cursor, f->tail,
		(int64_t)((now - f->last_ns) / DR_NS_PER_MS));

	for (unsigned i = 0; i < DR_PATHS && n > 0 && (size_t)n < len; i++) {
		struct dr_path_stats s = { .peer_ack_age_ns = -1 };
		const struct dr_path *p = ch->path[i].path;

		if (p)
			p->ops->stats(ch->path[i].path, &s);
		n += snprintf(buf + n, len - (size_t)n,
			"; path %u %s gen %u, heard %" PRId64 " ms ago, %" PRIu64
			" B unacknowledged",
			i, dr_fo_pstate_name(f->path[i].state), f->path[i].gen,
			p && p->rx_last_ns != 0 ? (int64_t)((now - p->rx_last_ns) / DR_NS_PER_MS)
						: -1,
			s.unacked_bytes);
	}
}

struct dr_path *dr_channel_path(struct dr_channel *ch, unsigned i)
{
	return ch->path[i].path;
}

void dr_channel_close(struct dr_channel *ch, int64_t now)
{
	dr_fo_close(&ch->fo, now);
	dr_channel_turn(ch, now);
}

/* Was the path up when the channel ended, and is it still? */
static bool still_up(const struct dr_channel *ch, unsigned i)
{
	const struct dr_channel_path *cp = &ch->path[i];

	return cp->path && ch->fo.path[i].state == DR_FOP_READY && !cp->broken;
}

bool dr_channel_closed(const struct dr_channel *ch)
{
	if (ch->fo.left)
		return true;
	/* The peer knows, and nothing can be confirmed again: its ends of the paths are gone. */
	return dr_channel_ready(ch) == -ESHUTDOWN && ch->fo.peer_knows && !still_up(ch, 0) &&
	       !still_up(ch, 1);
}

int dr_channel_stop(struct dr_channel *ch, struct dr_err *e)
{
	const struct dr_err none = { 0 };

	close_paths(ch, true);
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (ch->path[i].path)
			path_stop(ch, i);
	return tell(ch, &none, e);
}

void dr_channel_fini(struct dr_channel *ch)
{
	if (!ch)
		return;
	for (unsigned i = 0; i < DR_PATHS; i++)
		path_free(ch, i);
	dr_free(ch);
}
