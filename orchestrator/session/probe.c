/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/probe.h"

#include "base/clock.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/units.h"
#include "orchestrator/session/offer.h"
#include "orchestrator/session/session_priv.h"
#include "topology/reach.h"
#include "transport/kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* To accept and to answer; the test of the path MTU. */
#define ANSWER_NS (5 * DR_NS_PER_S)
#define TEST_NS (7 * DR_NS_PER_S)
/* A pair that does not answer while another one does; the time where none does, and over IPv6: a
 * NIC that was just set up answers only after duplicate address detection. */
#define PROVE_NS DR_NS_PER_S
#define LONG_NS (3 * DR_NS_PER_S)
/* Then the user is told what it waits for. */
#define SILENT_NS DR_NS_PER_S

static void fail(struct dr_probe *p, int status, enum dr_reason reason, int rc)
{
	if (p->rc)
		return;
	p->rc = rc;
	p->status = status;
	p->reason = reason;
}

static void on_accept(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
	unsigned handles_out, unsigned handles_in)
{
	struct dr_probe *p = arg;
	int rc = dr_plan_probe_read(reply, &p->peer, p->e);

	(void)gpus;
	(void)pairs;
	(void)handles_out;
	(void)handles_in;
	p->answered = true;
	p->answered_ns = dr_now_ns();
	if (rc)
		fail(p, DR_EXIT_PEER, DR_REASON_PROTOCOL, rc);
	/* A server that would refuse a run has no pairs. */
	if (rc == 0 && dr_plan_read_reply(&p->plan, reply, NULL) == 0)
		dr_mtu_check_start(&p->mtu, &p->plan,
			dr_control_token(dr_boot_client_control(p->boot)), p->loop->poller,
			p->answered_ns);
	else
		p->plan.n_rails = 0;
}

/* When it has waited long enough for pairs that do not answer; 0: it waits for nothing. */
static int64_t enough_at(const struct dr_probe *p)
{
	bool open = false, silent = false, v6 = false, any = false, doubt = false;

	for (unsigned i = 0; i < p->mtu.n_rails; i++) {
		const struct dr_mtu_rail *r = p->mtu.rail[i];

		if (!r || r->err)
			continue;
		any |= r->proven;
		silent |= !r->proven;
		v6 |= !r->proven && r->v6;
		doubt |= r->proven && (r->search.own.state == DR_MTU_DOUBT ||
					      r->search.peer.state == DR_MTU_DOUBT);
		open |= r->proven && !(p->brief ? dr_mtu_check_rail_over(&p->mtu, i)
						: dr_mtu_search_over(&r->search));
	}
	if (open && !p->brief)
		return DR_NEVER;
	return open || silent ? p->answered_ns + (any && !v6 && !doubt ? PROVE_NS : LONG_NS) : 0;
}

static int64_t deadline(const struct dr_probe *p)
{
	int64_t next = DR_MIN(dr_boot_client_deadline(p->boot), dr_mtu_check_deadline(&p->mtu));

	return p->answered ? DR_MIN(next, DR_MAX(enough_at(p), 1)) : next;
}

/* Ends the session when enough is known, or there is nothing to test. */
static void test_pairs(struct dr_probe *p, int64_t now)
{
	if (!p->answered || p->over || p->dropped)
		return;
	dr_mtu_check_tick(&p->mtu, now);
	if (now < enough_at(p))
		return;
	p->dropped = true;
	dr_boot_client_drop(p->boot);
}

static void on_failed(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *err)
{
	struct dr_probe *p = arg;

	p->over = true;
	if (p->answered)
		return;
	if (p->e)
		*p->e = *err;
	/* code: the exit status with which the server declined. */
	fail(p, code > 0 ? code : DR_EXIT_PEER, dr_session_reason(cause),
		err->code ? err->code : -ENOTCONN);
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct dr_probe *p = arg;

	(void)cause;
	(void)text;
	p->over = true;
}

/* The session is dropped before anything else happens. */
static const struct dr_boot_ops ops = {
	.on_accept = on_accept, .on_failed = on_failed, .on_closed = on_closed
};

static int dial(struct dr_probe *p, struct dr_err *e)
{
	const struct dr_options *o = p->opt;
	struct dr_dial d = { .opt = o,
		.key = p->key,
		/* Of a run as the run does it; for doctor different numbers are a finding. */
		.pair = !p->brief || o->gpu_names.n == 0,
		.patience_ns = p->patience_ns,
		.wait_busy = p->wait_busy,
		.ops = &ops,
		.arg = p,
		.poller = p->loop->poller };

	dr_mtu_check_open(&p->mtu, &p->plan, DR_PLAN_CLIENT, o->data_port_min, o->data_port_max);
	json_t *offer = dr_plan_offer(&p->plan);
	if (offer && dr_plan_probe_mark(offer)) {
		json_decref(offer);
		offer = NULL;
	}
	return dr_dial(&d, offer, &p->boot, e);
}

void dr_dial_tell(const struct dr_options *o, const struct dr_boot_client *boot)
{
	const char *busy = dr_boot_client_busy(boot);
	char time[32];

	dr_format_duration_exact(o->connect_timeout_ns, time, sizeof(time));
	if (busy)
		dr_say("client", "%.*s; waiting up to %s (--connect-timeout)",
			(int)strcspn(busy, ";"), busy, time);
	else
		dr_say("client",
			"waiting for a server on %s, port %u, for up to %s (--connect-timeout)",
			o->host, (unsigned)o->port, time);
}

static void converse(struct dr_probe *p, struct dr_err *e)
{
	int64_t tell = dr_now_ns() + SILENT_NS;
	int64_t until = dr_now_ns() + p->patience_ns + ANSWER_NS + TEST_NS;
	bool told = !p->brief || p->opt->quiet;

	while (!p->over && !p->loop->signo && dr_now_ns() < until) {
		dr_loop_turn(p->loop, DR_MIN(told ? until : tell, deadline(p)));
		dr_boot_client_tick(p->boot, dr_now_ns());
		test_pairs(p, dr_now_ns());
		if (told || p->answered || p->over || dr_now_ns() < tell)
			continue;
		told = true;
		dr_dial_tell(p->opt, p->boot);
	}
	if (p->loop->signo)
		fail(p, 128 + p->loop->signo, DR_REASON_NONE,
			dr_err_set(e, -EINTR, "%s", dr_loop_interrupted(p->loop)));
	else if (!p->answered && !p->rc)
		fail(p, DR_EXIT_PEER, DR_REASON_TIMEOUT,
			dr_err_set(e, -ETIMEDOUT,
				"server %s accepted the connection but did not answer; check whether "
				"it is busy or stopped",
				p->opt->host));
}

int dr_probe_run(struct dr_probe *p, struct dr_err *e)
{
	int rc;

	p->e = e;
	rc = dial(p, e);
	if (rc == 0 && p->rights) /* the server has said nothing yet */
		rc = dr_rights_become(p->rights, e);
	if (rc) {
		fail(p, rc == -ENXIO ? DR_EXIT_PEER : DR_EXIT_ENV,
			rc == -ENXIO ? DR_REASON_UNREACHABLE : DR_REASON_NONE, rc);
		return rc;
	}
	converse(p, e);
	snprintf(p->version, sizeof(p->version), "%s",
		dr_control_peer_version(dr_boot_client_control(p->boot)));
	dr_boot_client_destroy(p->boot);
	p->boot = NULL;
	return p->rc;
}

void dr_probe_close(struct dr_probe *p)
{
	dr_boot_client_destroy(p->boot);
	p->boot = NULL;
	dr_mtu_check_close(&p->mtu);
}

/* Full packets are lost in a direction: what is known of the first one. */
static bool full_packets_lost(
	const struct dr_plan *p, const struct dr_mtu_check *m, unsigned rail, struct dr_err *text)
{
	return dr_mtu_describe(p, m, rail, DR_PLAN_SERVER, text) == DR_MTU_HOLE ||
	       dr_mtu_describe(p, m, rail, DR_PLAN_CLIENT, text) == DR_MTU_HOLE;
}

bool dr_probe_answers(const struct dr_plan *p, const struct dr_mtu_check *m, unsigned rail)
{
	const struct dr_mtu_rail *r = m->rail[rail];
	const struct dr_transport_kind *k = dr_plan_kind(p);
	struct dr_err text;

	/* Sockets tell nothing of a transport that bypasses the kernel. */
	return !r || ((r->proven || (k && k->bypass)) && !full_packets_lost(p, m, rail, &text));
}

static void describe(const struct dr_plan_rail rail[2], enum dr_plan_end here,
	const struct dr_mtu_rail *test, char *buf, size_t len)
{
	const struct dr_plan_rail *own = &rail[here], *there = &rail[!here];
	const struct dr_reach reach = { .ifname = own->name,
		.local = &own->addr,
		.peer = &there->addr,
		.port = here == DR_PLAN_CLIENT && test ? there->mtu_port : 0,
		.ports = "--data-ports",
		.err = !test	   ? 0
		       : test->err ? test->err
				   : -ETIMEDOUT };

	dr_reach_describe(&reach, buf, len);
}

void dr_probe_why(
	const struct dr_plan *p, const struct dr_mtu_check *m, unsigned rail, char *buf, size_t len)
{
	struct dr_err text;

	if (full_packets_lost(p, m, rail, &text))
		snprintf(buf, len, "%s", text.text);
	else
		describe(p->rail[rail], m->side, m->rail[rail], buf, len);
}

/* The first of the rails with an error, or the first one. */
void dr_rails_why(
	const struct dr_plan *p, enum dr_plan_end here, uint32_t rails, char *buf, size_t len)
{
	char why[300];
	unsigned i = 0, k = 0;

	while (i + 1 < p->n_rails && !(rails & (1u << i)))
		i++;
	for (k = i; k < p->n_rails; k++)
		if ((rails & (1u << k)) &&
			dr_failure_last(&p->rail[k][here].addr, &p->rail[k][!here].addr, NULL))
			break;
	i = k < p->n_rails ? k : i;
	describe(p->rail[i], here, NULL, why, sizeof(why));
	snprintf(buf, len, "%s %s: %s", p->rail[i][here].name, p->rail[i][here].address, why);
}
