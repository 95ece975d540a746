/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * The one place where the client's main thread stops: it turns the loop until something is so.
 *  1. What ended the run first keeps its status; whoever waits then gets -ECANCELED.
 *  2. While the run winds up (ending) nothing but the condition and the deadline counts.
 *  3. It shows late why a channel ended, and a dead peer is a status of its own: WHY_NS are waited.
 */

/* From the first channel that ended until it is clear why: a dead peer's FIN on the control
 * connection may come a little later than those on the data paths. */
#define WHY_NS (400 * DR_NS_PER_MS)
#define PROGRESS_NS (250 * DR_NS_PER_MS)

void dr_client_end(struct dr_client *c, int status, const char *fmt, ...)
{
	struct dr_err e = { 0 };
	va_list ap;

	if (c->status)
		return;
	va_start(ap, fmt);
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	c->status = status;
	dr_record_error(c->rec, status, &e);
}

bool dr_client_peer_dead(enum dr_boot_cause cause)
{
	return cause == DR_BOOT_REFUSED || cause == DR_BOOT_GONE || cause == DR_BOOT_EOF ||
	       cause == DR_BOOT_RESET || cause == DR_BOOT_GOODBYE;
}

static void channels_ended(struct dr_client *c, int64_t now)
{
	const char *text = c->node->n_failed ? c->node->fail_text : c->peer_text;
	int err = c->node->n_failed ? c->node->fail_err : c->peer_err;
	bool both = c->node->n_failed && c->peer_failed;

	if (!c->failed_ns)
		c->failed_ns = now;
	if (c->dead || (c->lost && dr_client_peer_dead(c->lost_cause)))
		dr_client_end(c, DR_EXIT_PEER, "server %s died: %s; %s",
			dr_control_peer(c->control), dr_boot_cause_text(c->lost_cause), text);
	else if (now - c->failed_ns >= WHY_NS)
		dr_client_end(c, DR_EXIT_TRANSPORT, "%s: %s%s%s",
			err == -ENETDOWN ? "both paths lost" : "channel ended", text,
			both ? "; " : "", both ? c->peer_text : "");
}

static void check_health(struct dr_client *c, int64_t now)
{
	if (c->loop.signo)
		dr_client_end(c, 128 + c->loop.signo, "ended by %s", strsignal(c->loop.signo));
	else if (c->node && (c->node->n_failed || c->peer_failed))
		channels_ended(c, now);
	else if (c->dead)
		dr_client_end(c, DR_EXIT_PEER, "server died or ended the session: %s",
			dr_boot_cause_text(c->lost_cause));
}

static void progress(struct dr_client *c, int64_t now)
{
	struct dr_node_flow f;
	char line[160];

	if (!c->node || !c->progress_what[0] || c->opt->quiet || now - c->progress_ns < PROGRESS_NS)
		return;
	dr_node_flow(c->node, &f);
	if (c->progress_ns && f.tx_bytes + f.rx_bytes >= c->progress_bytes) {
		snprintf(line, sizeof(line), "%s: %.2f Gb/s", c->progress_what,
			(double)(f.tx_bytes + f.rx_bytes - c->progress_bytes) * 8 /
				(double)(now - c->progress_ns));
		dr_output_progress(c->out, line);
	}
	c->progress_ns = now;
	c->progress_bytes = f.tx_bytes + f.rx_bytes;
}

int dr_client_wait(struct dr_client *c, dr_client_until until, const void *arg, int64_t deadline_ns,
	bool needs_server)
{
	for (;;) {
		int64_t now = dr_now_ns(), next = deadline_ns;

		if (!c->ending)
			check_health(c, now);
		if (c->status && !c->ending)
			return -ECANCELED;
		if (until && until(c, arg))
			return 0;
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (needs_server && c->gone && !c->ending)
			return -ENOTCONN;
		next = DR_MIN(next, dr_boot_client_deadline(c->boot));
		if (c->node)
			next = DR_MIN(next, dr_node_deadline(c->node));
		if (c->failed_ns && !c->ending)
			next = DR_MIN(next, c->failed_ns + WHY_NS);
		if (c->progress_what[0])
			next = DR_MIN(next, now + PROGRESS_NS);
		dr_loop_turn(&c->loop, next);
		now = dr_now_ns();
		dr_boot_client_tick(c->boot, now);
		if (c->node)
			dr_node_tick(c->node, now);
		progress(c, now);
	}
}

int dr_client_sleep(struct dr_client *c, int64_t ns)
{
	int rc = dr_client_wait(c, NULL, NULL, dr_now_ns() + ns, false);

	return rc == -ETIMEDOUT ? 0 : rc;
}
