/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/client_priv.h"

#include "base/log.h"
#include "base/units.h"

#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/*
 * The only place where the client's main thread waits, and what comes in meanwhile.
 *  1. The first error that ended the run keeps its status; later waits return -ECANCELED.
 *  2. While the run ends (ending), only the condition and the deadline count.
 *  3. The reason why a channel ended may arrive late, and a dead peer has a status of its own. So the
 *     verdict is delayed by DR_SESSION_WHY_NS.
 *  4. A message only updates the struct dr_client, which the waits check. Only ABORT and FAILED end the run, through the
 *     health check of each wait.
 */

#define PROGRESS_NS (250 * DR_NS_PER_MS)

void dr_client_end_for(struct dr_client *c, int status, enum dr_reason reason, const char *fmt, ...)
{
	struct dr_err e = { 0 };
	va_list ap;

	if (c->s.status)
		return;
	va_start(ap, fmt);
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	c->s.status = status;
	dr_record_reason(dr_record_error(c->s.rec, status, &e), reason);
}

/* ---- health ---- */

bool dr_client_peer_dead(enum dr_boot_cause cause)
{
	return cause == DR_BOOT_REFUSED || cause == DR_BOOT_GONE || cause == DR_BOOT_EOF ||
	       cause == DR_BOOT_RESET || cause == DR_BOOT_GOODBYE;
}

static void channels_ended(struct dr_client *c, int64_t now)
{
	const struct dr_local *l = c->s.local;
	const char *text = l->n_failed ? l->fail_text : c->peer_text;
	int err = l->n_failed ? l->fail_err : c->peer_err;
	bool both = l->n_failed && c->peer_failed;
	const char *what;
	int status = dr_session_loss(&c->s, err, &what);

	if (!c->s.failed_ns)
		c->s.failed_ns = now;
	if (c->dead || (c->s.lost && dr_client_peer_dead(c->s.lost_cause)))
		dr_client_end_for(c, DR_EXIT_PEER, DR_REASON_DIED, "server %s died: %s; %s",
			dr_control_peer(c->s.control), dr_boot_cause_text(c->s.lost_cause), text);
	else if (now - c->s.failed_ns >= DR_SESSION_WHY_NS)
		dr_client_end_for(c, status,
			status == DR_EXIT_PEER ? DR_REASON_PATHS : DR_REASON_NONE, "%s: %s%s%s",
			what, text, both ? "; " : "", both ? c->peer_text : "");
}

int dr_client_check(struct dr_client *c)
{
	struct dr_session *s = &c->s;

	if (c->ending)
		return 0;
	if (s->loop.signo)
		dr_client_end(c, 128 + s->loop.signo, "%s", dr_loop_interrupted(&s->loop));
	else if (s->local && (s->local->n_failed || c->peer_failed))
		channels_ended(c, dr_now_ns());
	else if (c->dead)
		dr_client_end_for(c, DR_EXIT_PEER,
			s->lost_cause == DR_BOOT_GOODBYE ? DR_REASON_ENDED : DR_REASON_DIED,
			"server died or ended the session: %s", dr_boot_cause_text(s->lost_cause));
	return s->status ? -ECANCELED : 0;
}

/* ---- waiting ---- */

static void progress(struct dr_client *c, int64_t now)
{
	char line[160];

	if (!c->progress_what[0] || now - c->progress_ns < PROGRESS_NS)
		return;
	struct dr_local_flow flow = dr_local_flow(c->s.local);
	uint64_t bytes = flow.tx_bytes + flow.rx_bytes;
	if (c->progress_ns && bytes >= c->progress_bytes) {
		snprintf(line, sizeof(line), "%s: %.2f Gb/s", c->progress_what,
			(double)(bytes - c->progress_bytes) * 8 / (double)(now - c->progress_ns));
		if (c->progress_until_ns > now)
			dr_append(line, sizeof(line), ", %.0f s left",
				ceil((double)(c->progress_until_ns - now) / 1e9));
		dr_output_progress(c->s.out, line);
	}
	c->progress_ns = now;
	c->progress_bytes = bytes;
}

int dr_client_turn(struct dr_client *c, int64_t deadline_ns, bool needs_server)
{
	int64_t now = dr_now_ns();
	int64_t next = DR_MIN(deadline_ns, dr_boot_client_deadline(c->boot));

	if (now >= deadline_ns)
		return -ETIMEDOUT;
	if (needs_server && c->gone && !c->ending)
		return -ENOTCONN;
	if (c->s.local)
		next = DR_MIN(next, dr_local_deadline(c->s.local));
	if (c->s.failed_ns && !c->ending)
		next = DR_MIN(next, c->s.failed_ns + DR_SESSION_WHY_NS);
	if (c->progress_what[0])
		next = DR_MIN(next, now + PROGRESS_NS);
	dr_loop_turn(&c->s.loop, next);
	now = dr_now_ns();
	dr_boot_client_tick(c->boot, now);
	if (c->s.local) {
		dr_local_tick(c->s.local, now);
		progress(c, now);
	}
	return dr_client_check(c);
}

int dr_client_sleep(struct dr_client *c, int64_t ns)
{
	int rc = dr_client_wait(c, false, ns, false);

	return rc == -ETIMEDOUT ? 0 : rc;
}

/* ---- messages ---- */

static int give_handles(
	struct dr_session *s, unsigned position, const struct dr_handle *h, unsigned n)
{
	return dr_boot_client_handles(dr_client_of(s)->boot, position, h, n);
}

static void failed(struct dr_session *s, int status, const struct dr_err *e)
{
	dr_client_end_for(dr_client_of(s), status,
		status != DR_EXIT_PEER ? DR_REASON_NONE
		: e->code == -EPROTO   ? DR_REASON_PROTOCOL
				       : DR_REASON_LOST,
		"%s", e->text);
}

static void bad_message(struct dr_session *s, const struct dr_err *e)
{
	(void)s;
	dr_warn("client", "message of the server: %s", e->text);
}

/* Rows that came are shown as they come. */
static void merge(const struct dr_session *s, const json_t *part)
{
	size_t i = s->rec->intervals.n, k = s->rec->switches.n, g = s->rec->delivery_gaps.n;
	struct dr_err e;

	if (!part)
		return;
	if (dr_record_merge(s->rec, part, &e))
		dr_warn("client", "results of the server: %s", e.text);
	dr_control_clock(
		s->control, dr_now_ns(), &s->rec->clock_offset_ns, &s->rec->clock_error_ns);
	for (; i < s->rec->intervals.n; i++)
		dr_output_row(s->out, intervals, &s->rec->intervals.v[i]);
	for (; k < s->rec->switches.n; k++) {
		s->rec->switches.v[k].trial = DR_UNSET; /* only the campaign decides on that */
		dr_output_row(s->out, switches, &s->rec->switches.v[k]);
	}
	for (; g < s->rec->delivery_gaps.n; g++)
		dr_output_row(s->out, delivery_gaps, &s->rec->delivery_gaps.v[g]);
}

static void on_fault(struct dr_session *s, const struct dr_fault_report *rep)
{
	struct dr_client *c = dr_client_of(s);

	if (rep->id != c->fault_id)
		return;
	c->fault[rep->undo].rep = *rep;
	c->fault[rep->undo].done = true;
}

static int take(struct dr_session *s, const struct dr_message *m, struct dr_err *e)
{
	struct dr_client *c = dr_client_of(s);

	switch (m->kind) {
	case DR_MSG_UP:
		c->peer_up = true;
		break;
	case DR_MSG_PHASE_OK:
		c->phase_ok = m->index + 1;
		break;
	case DR_MSG_EXPECT:
		return dr_local_take(s->local, m, e);
	case DR_MSG_DONE:
		merge(s, m->part);
		c->phase_done = m->index + 1;
		c->cadence_p50_ns = m->cadence_p50_ns;
		c->cadence_p99_ns = m->cadence_p99_ns;
		break;
	case DR_MSG_FAULT:
		on_fault(s, &m->fault);
		break;
	case DR_MSG_PART:
		merge(s, m->part);
		c->collected = DR_MAX(c->collected, m->token);
		break;
	case DR_MSG_FINISH:
		merge(s, m->part);
		c->finished = true;
		break;
	case DR_MSG_ABORT:
		dr_client_end_for(c, m->status ? m->status : DR_EXIT_PEER,
			m->status == DR_EXIT_ENV ? DR_REASON_NONE : DR_REASON_ENDED,
			"server %s: %s", dr_control_peer(c->s.control), m->text);
		break;
	case DR_MSG_FAILED:
		c->peer_err = m->err;
		snprintf(c->peer_text, sizeof(c->peer_text), "server: %.190s", m->text);
		c->peer_failed = true;
		break;
	default:
		break; /* a client's own */
	}
	return 0;
}

static void alive(void *session)
{
	dr_boot_client_pulse(dr_client_of(session)->boot, dr_now_ns());
}

const struct dr_session_ops dr_client_ops = { NULL, give_handles, take, bad_message, failed,
	on_fault, alive };

int dr_client_collect(struct dr_client *c, int64_t ns)
{
	dr_session_send(
		&c->s, &(struct dr_message){ .kind = DR_MSG_COLLECT, .token = ++c->collect_token });
	return dr_client_wait(c, c->collected >= c->collect_token, ns, true);
}
