/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a path: see enum nn_state. Invariants:
 *  1. Events leave from progress alone, in this order: what was read, SENT, FAILED, FENCED.
 *  2. Every call of the sink may change the state (fence, close, posts); code that goes on after one looks at the state
 *     again. Comms are closed by the sink's close, and by progress after the sink has returned.
 *  3. FENCED means that the plugin has closed the comms. Nothing can show that its threads let go of the buffers.
 *  4. A kept failure is reported by the next progress; with a poller, a kick causes it.
 */
#include "transport/ncclnet/net_priv.h"

#include "base/list.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* What is done is taken when a path is fenced; the rest is sent again on the other path, which does not wait longer. */
static const int64_t DRAIN_NS = 5 * DR_NS_PER_MS;
/* For a send, where the owner sets no bound. */
static const int64_t REQUEST_NS = 60 * DR_NS_PER_S;

/* ---- failure and end ---- */

void dr_nn_fail(struct nn_path *p, enum dr_scope scope, int err, const char *fmt, ...)
{
	va_list ap;

	p->broken = err;
	if (p->state >= NN_FAILING)
		return;
	va_start(ap, fmt);
	dr_path_keep_failure(&p->base, scope, err, fmt, ap);
	va_end(ap);
	p->state = NN_FAILING;
	dr_path_wake(&p->base);
}

static void close_queue(struct nn_path *p, struct nn_queue *l)
{
	int rc = dr_nn_queue_close(l);

	p->close_err = p->close_err ? p->close_err : rc;
	p->base.st.syscalls += l->calls;
	l->calls = 0;
}

static void close_comms(struct nn_path *p)
{
	for (int i = 0; i < NN_ROLES; i++) {
		if (p->dial[i])
			dr_nn_dial_drop(nn_path_rail(p), p->dial[i]);
		p->dial[i] = NULL;
	}
	close_queue(p, &p->data);
	close_queue(p, &p->out);
	close_queue(p, &p->in);
	p->told = p->known;
	p->done = p->issued = p->flushed = p->sized = p->known;
}

int dr_nn_may_post(const struct nn_path *p)
{
	if (p->state == NN_UP)
		return p->broken ? -EAGAIN : 0;
	return p->state == NN_FAILING ? -EAGAIN : -ENOTCONN;
}

/* ---- coming up ---- */

static int create(struct dr_rail *br, const struct dr_path_params *par, struct dr_path **out,
	struct dr_err *e)
{
	struct nn_rail *r = nn_rail(br);
	struct nn_path *p = dr_calloc(1, sizeof(*p));

	if (!p)
		return dr_path_no_memory(par, e);
	dr_path_init(&p->base, br, par, r->par.poller, NULL);
	p->base.st.peer_ack_age_ns = -1;
	p->part = dr_calloc(NN_PARTS, sizeof(*p->part));
	if (dr_nn_ctrl_init(p) || !p->part || dr_path_credits_init(&p->base)) {
		dr_nn_ctrl_fini(p);
		dr_free(p->part);
		dr_free(p->base.credits);
		dr_free(p);
		return dr_path_no_memory(par, e);
	}
	p->next = r->paths;
	r->paths = p;
	r->n_paths++;
	*out = &p->base.path;
	return 0;
}

static void start_dial(struct nn_path *p, enum nn_role role)
{
	struct nn_hello hello = { .id = dr_path_ident(&p->base.par), .role = role };
	int rc = dr_nn_dial_start(nn_path_rail(p), &hello, p->base.now_ns, &p->dial[role]);

	if (rc)
		dr_nn_fail(p, rc == -ENOMEM ? DR_SCOPE_LOCAL : DR_SCOPE_PATH, rc,
			"the peer's rail cannot be asked for a handle: %s", dr_errno_name(rc));
}

static void start_dials(struct nn_path *p)
{
	start_dial(p, NN_CTRL);
	if (p->base.par.sender && p->state == NN_OPENING)
		start_dial(p, NN_DATA);
}

static int path_connect(
	struct dr_path *bp, const void *peer, size_t len, int64_t now_ns, struct dr_err *e)
{
	struct nn_path *p = nn_path(bp);
	struct nn_rail *r = nn_path_rail(p);
	int err = dr_path_check_connect(&p->base, p->state == NN_NEW, r->has_peer, peer, len, e);

	if (err)
		return err;
	nn_rail_enter(r);
	p->base.now_ns = now_ns;
	p->state = NN_OPENING;
	if (p->base.par.connector)
		start_dials(p);
	else
		dr_nn_pending_claim(r, p);
	dr_path_wake(&p->base);
	return 0;
}

bool dr_nn_wants(const struct nn_path *p, const struct nn_hello *h)
{
	const struct nn_queue *l = h->role == NN_CTRL ? &p->in : &p->data;

	return p->state == NN_OPENING && dr_path_fits(&p->base.par, &h->id) && !l->comm;
}

void dr_nn_adopt(struct nn_path *p, enum nn_role role, const struct nn_queue *queue)
{
	dr_assert(p->state == NN_OPENING);
	if (role == NN_DATA) {
		p->data = *queue;
	} else {
		p->in = *queue;
		dr_nn_ctrl_listen(p);
		if (!p->base.par.connector && p->state == NN_OPENING)
			start_dials(p);
	}
	dr_path_wake(&p->base);
}

static void go_on_dialling(struct nn_path *p, enum nn_role role)
{
	struct nn_rail *r = nn_path_rail(p);
	struct nn_dial *d = p->dial[role];
	const char *failed = NULL;
	int rc = dr_nn_dial(r, d, p->base.now_ns, role == NN_DATA ? &p->data : &p->out, &failed);

	if (rc == 0)
		return;
	p->dial[role] = NULL;
	if (rc < 0)
		dr_nn_fail(p, DR_SCOPE_PATH, rc, "%s, device %d: %s", failed, r->dev.dev,
			dr_errno_name(rc));
	else
		p->base.st.tx_wire += NN_HELLO_LEN; /* but not tx_last_ns: see path.h */
}

static void open_path(struct nn_path *p)
{
	for (int i = 0; i < NN_ROLES && p->state == NN_OPENING; i++)
		if (p->dial[i])
			go_on_dialling(p, (enum nn_role)i);
	if (p->state != NN_OPENING || !p->in.comm || !p->out.comm || !p->data.comm)
		return;
	p->state = NN_UP;
	nn_path_rail(p)->moved_ns = p->base.now_ns;
	dr_path_tell(&p->base, DR_EV_READY);
}

/* ---- progress ---- */

static void push(struct nn_path *p)
{
	dr_nn_ctrl_push(p);
	dr_nn_data_push(p);
	if (p->in.sizeless && p->base.par.sender) /* lengths of parts */
		dr_nn_ctrl_push(p);
}

static void check_deadline(struct nn_path *p)
{
	int64_t oldest = dr_nn_queue_since(&p->out);

	if (p->base.par.sender)
		oldest = DR_MIN(oldest, dr_nn_queue_since(&p->data));
	if (oldest == DR_NEVER || p->base.now_ns - oldest < REQUEST_NS)
		return;
	dr_nn_fail(p, DR_SCOPE_PATH, -ETIMEDOUT, "the plugin has not completed a send for %.1f s",
		(double)(p->base.now_ns - oldest) / DR_NS_PER_S);
}

static void run_up(struct nn_path *p)
{
	bool moved = dr_nn_ctrl_pull(p);

	if (p->state == NN_UP)
		moved |= dr_nn_data_pull(p);
	if (p->state == NN_UP)
		push(p);
	if (p->state == NN_UP && p->broken) {
		const char *out = p->out.failed, *data = p->data.failed;

		dr_nn_fail(p, DR_SCOPE_PATH, p->broken, "the plugin's %s failed: %s",
			out    ? out
			: data ? data
			       : "call",
			dr_errno_name(p->broken));
	}
	if (p->state == NN_UP)
		check_deadline(p);
	if (moved || p->told != p->done)
		nn_path_rail(p)->moved_ns = p->base.now_ns;
}

static void abort_path(struct nn_path *p)
{
	close_comms(p);
	p->state = NN_ABORTED;
}

static void drain(struct nn_path *p)
{
	bool late = p->base.now_ns >= p->fence_deadline_ns;

	p->broken = 0;
	dr_nn_data_pull(p);
	if (p->state == NN_DRAINING && p->base.par.sender)
		dr_nn_report_sent(p);
	if (p->state == NN_DRAINING && (nn_queue_used(&p->data) == 0 || p->broken || late))
		abort_path(p);
}

static void settle_fence(struct nn_path *p)
{
	struct dr_event bad = { .kind = DR_EV_FAILED,
		.scope = DR_SCOPE_RAIL,
		.err = p->close_err,
		.text = "the plugin could not close a comm, and may still access its buffers" };

	p->fence_due = false;
	p->state = NN_FENCED;
	if (p->close_err)
		dr_path_emit(&p->base, &bad);
	else
		dr_path_tell(&p->base, DR_EV_FENCED);
}

static int progress(struct dr_path *bp, int64_t now_ns, struct dr_sink *sink)
{
	struct nn_path *p = nn_path(bp);

	nn_rail_enter(nn_path_rail(p));
	dr_path_begin(&p->base, now_ns, sink);
	if (p->state == NN_OPENING)
		open_path(p);
	else if (p->state == NN_UP)
		run_up(p);
	if (p->state == NN_UP && p->base.par.sender)
		dr_nn_report_sent(p);
	if (p->state == NN_DRAINING)
		drain(p);
	if (p->state == NN_FAILING) {
		p->state = NN_FAILED;
		dr_path_emit_failure(&p->base);
	}
	if (p->state == NN_ABORTED && p->fence_due)
		settle_fence(p);
	int n = dr_path_end(&p->base);
	if (p->state == NN_FAILING || p->state == NN_DRAINING || p->fence_due)
		dr_path_wake(&p->base);
	return n;
}

static void flush(struct dr_path *bp, int64_t now_ns)
{
	struct nn_path *p = nn_path(bp);

	if (p->state != NN_UP)
		return;
	nn_rail_enter(nn_path_rail(p));
	p->base.now_ns = now_ns;
	p->flushed = p->known;
	p->ctrl.flushed = p->ctrl.end;
	nn_path_rail(p)->moved_ns = now_ns;
	push(p);
}

/* ---- fence and end ---- */

static void fence(struct dr_path *bp, int64_t deadline_ns)
{
	struct nn_path *p = nn_path(bp);

	if (p->state >= NN_DRAINING)
		return;
	nn_rail_enter(nn_path_rail(p));
	p->fence_deadline_ns = DR_MIN(deadline_ns, p->base.now_ns + DRAIN_NS);
	p->fence_due = true;
	if (p->state == NN_UP)
		p->state = NN_DRAINING;
	else
		abort_path(p);
	dr_path_wake(&p->base);
}

static void stats(struct dr_path *bp, struct dr_path_stats *out)
{
	struct nn_path *p = nn_path(bp);

	*out = p->base.st;
	out->syscalls += p->data.calls + p->out.calls + p->in.calls;
	out->acked_bytes = out->tx_bytes;
	for (uint64_t i = p->done; p->base.par.sender && i < p->issued; i++)
		out->unacked_bytes += p->part[i % NN_PARTS].len;
}

static void path_close(struct dr_path *bp)
{
	struct nn_path *p = nn_path(bp);
	struct nn_rail *r = nn_path_rail(p);

	if (p->state == NN_CLOSED)
		return;
	nn_rail_enter(r);
	DR_UNLINK(&r->paths, p, next);
	if (r->cursor == p)
		r->cursor = p->next;
	if (p->base.poller)
		dr_poller_del(p->base.poller, &p->base.po);
	/* What the plugin has may go out still. */
	if (p->state == NN_UP)
		dr_nn_ctrl_push(p);
	p->state = NN_CLOSED;
	p->fence_due = false;
	close_comms(p);
}

static int stop(struct dr_path *bp)
{
	struct nn_path *p = nn_path(bp);

	dr_assert(p->state == NN_CLOSED && !p->base.sink);
	return p->close_err;
}

static void fini(struct dr_path *bp)
{
	struct nn_path *p = nn_path(bp);

	dr_assert(p->state == NN_CLOSED && !p->base.sink);
	nn_path_rail(p)->n_paths--;
	if (p->close_err)
		p->slots = NULL; /* the plugin may write there until the process ends */
	dr_nn_ctrl_fini(p);
	dr_free(p->part);
	dr_free(p->base.credits);
	dr_free(p);
}

const struct dr_transport_ops dr_nccl_ops = {
	sizeof(struct dr_transport_ops),
	"nccl",
	DR_CAP_ORDERED,
	dr_nn_listen,
	dr_nn_rail_handle,
	dr_nn_rail_peer,
	dr_nn_rail_dgram,
	NULL,
	NULL,
	dr_nn_rail_progress,
	dr_nn_rail_close,
	dr_nn_rail_fini,
	dr_nn_mr_reg,
	dr_nn_mr_dereg,
	create,
	dr_path_handle,
	path_connect,
	dr_nn_post_recv,
	dr_nn_post_send,
	dr_nn_post_ctrl,
	flush,
	dr_path_credit,
	progress,
	fence,
	stats,
	NULL,
	path_close,
	stop,
	fini,
};
