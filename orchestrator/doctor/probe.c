/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/peer.h"

#include "base/clock.h"
#include "orchestrator/session/offer.h"
#include "orchestrator/session/session.h"

#include <errno.h>
#include <string.h>

/* Shorter than a client's: a client may wait for a server that is started later, doctor reports that there is
 * none. */
#define TIMEOUT_NS (5 * DR_NS_PER_S)

/*
 * The first half of a client's bootstrap: hello, key, offer, reply. The offer is the one of a client with the
 * same options, so the server refuses here what it would refuse there. After the reply this end drops the
 * session, and the server is free for the next client.
 */
struct probe {
	struct dr_loop loop;
	struct dr_plan plan;
	struct dr_boot_client *boot;
	struct dr_plan_probe *out;
	bool answered, over;
	int64_t timeout_ns;
	int rc, status;
	struct dr_err *e;
};

static void fail(struct probe *p, int status, int rc)
{
	if (p->rc)
		return;
	p->rc = rc;
	p->status = status;
}

static void on_accept(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
	unsigned handles_out, unsigned handles_in)
{
	struct probe *p = arg;
	int rc = dr_plan_probe_read(reply, p->out, p->e);

	(void)gpus;
	(void)pairs;
	(void)handles_out;
	(void)handles_in;
	p->answered = true;
	if (rc)
		fail(p, DR_EXIT_PEER, rc);
	dr_boot_client_drop(p->boot);
}

static void on_failed(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *err)
{
	struct probe *p = arg;

	(void)cause;
	p->over = true;
	if (p->answered)
		return;
	if (p->e)
		*p->e = *err;
	/* code: the exit status with which the server declined. */
	fail(p, code > 0 ? code : DR_EXIT_PEER, err->code ? err->code : -ENOTCONN);
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct probe *p = arg;

	(void)cause;
	(void)text;
	p->over = true;
}

/* The session is dropped in on_accept: nothing else happens. */
static const struct dr_boot_ops ops = {
	.on_accept = on_accept, .on_failed = on_failed, .on_closed = on_closed
};

static int dial(struct probe *p, const struct dr_options *o, struct dr_err *e)
{
	struct dr_dial d = { .opt = o,
		.pair = true, /* different numbers of GPUs are a finding, not a refusal */
		.patience_ns = p->timeout_ns,
		.ops = &ops,
		.arg = p,
		.poller = p->loop.poller };
	json_t *offer = dr_plan_offer(&p->plan);

	if (offer && dr_plan_probe_mark(offer)) {
		json_decref(offer);
		offer = NULL;
	}
	return dr_dial(&d, offer, &p->boot, e);
}

static void converse(struct probe *p, const struct dr_options *o, struct dr_err *e)
{
	int64_t until = dr_now_ns() + p->timeout_ns + 5 * DR_NS_PER_S;

	while (!p->over && !p->loop.signo && dr_now_ns() < until) {
		dr_loop_turn(&p->loop, DR_MIN(until, dr_boot_client_deadline(p->boot)));
		dr_boot_client_tick(p->boot, dr_now_ns());
	}
	if (p->loop.signo)
		fail(p, 128 + p->loop.signo,
			dr_err_set(p->e, -EINTR, "%s", dr_loop_interrupted(&p->loop)));
	else if (!p->answered && !p->rc)
		fail(p, DR_EXIT_PEER,
			dr_err_set(e, -ETIMEDOUT,
				"server %s accepted the connection but did not answer; check whether "
				"it is busy or stopped",
				o->host));
}

static int run(struct probe *p, const struct dr_options *o, const struct dr_route *route,
	char *peer_version, struct dr_err *e)
{
	int rc = dr_client_plan(o, route, NULL, &p->plan, e);

	if (rc == 0)
		rc = dial(p, o, e);
	if (rc) {
		fail(p,
			rc == -EINVAL  ? DR_EXIT_USAGE
			: rc == -ENXIO ? DR_EXIT_PEER
				       : DR_EXIT_ENV,
			rc);
		return rc;
	}
	converse(p, o, e);
	snprintf(peer_version, 64, "%s", dr_control_peer_version(dr_boot_client_control(p->boot)));
	dr_boot_client_destroy(p->boot);
	return p->rc;
}

int dr_doctor_probe(const struct dr_options *o, const struct dr_route *route,
	struct dr_plan_probe *out, char *peer_version, int *status, struct dr_err *e)
{
	struct probe p = { .out = out, .e = e };

	*status = DR_EXIT_ENV;
	p.timeout_ns =
		dr_opts_given(o->table, "connect-timeout") ? o->connect_timeout_ns : TIMEOUT_NS;
	int rc = dr_loop_init(&p.loop, e);
	if (rc == 0) {
		rc = run(&p, o, route, peer_version, e);
		*status = p.status;
		dr_loop_fini(&p.loop);
	}
	return rc;
}
