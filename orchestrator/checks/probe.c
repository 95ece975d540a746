/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/peer.h"

#include "base/clock.h"
#include "orchestrator/session/offer.h"
#include "orchestrator/session/session.h"

#include <errno.h>
#include <string.h>

/* To accept and to answer; the test of the path MTU. */
#define ANSWER_NS (5 * DR_NS_PER_S)
#define TEST_NS (7 * DR_NS_PER_S)

/*
 * The first half of a client's bootstrap: hello, key, offer, reply. The offer is the one of a client with the
 * same options, so the server refuses here what it would refuse there. After the reply both ends test the path
 * MTU. Then this end drops the session, and the server is free for the next client.
 */
struct probe {
	struct dr_loop loop;
	struct dr_plan plan;
	struct dr_boot_client *boot;
	struct dr_doctor_peer *out;
	struct dr_mtu_check mtu;
	bool answered, dropped, over;
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
	int rc = dr_plan_probe_read(reply, &p->out->probe, p->e);

	(void)gpus;
	(void)pairs;
	(void)handles_out;
	(void)handles_in;
	p->answered = true;
	if (rc)
		fail(p, DR_EXIT_PEER, rc);
	/* A server that would refuse a run has no pairs. */
	if (rc == 0 && p->out->probe.tells && dr_plan_read_reply(&p->plan, reply, NULL) == 0)
		dr_mtu_check_start(&p->mtu, &p->plan,
			dr_control_token(dr_boot_client_control(p->boot)), p->loop.poller,
			dr_now_ns());
}

/* Ends the session when the results are final, or there is nothing to test. */
static void test_paths(struct probe *p, int64_t now)
{
	if (!p->answered || p->over || p->dropped)
		return;
	dr_mtu_check_tick(&p->mtu, now);
	if (!dr_mtu_check_over(&p->mtu))
		return;
	for (unsigned i = 0; i < p->mtu.n_rails; i++)
		dr_doctor_path_mtu(&p->plan, &p->mtu, i, &p->out->paths.v[i]);
	p->out->paths.n = p->mtu.n_rails;
	p->dropped = true;
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

/* The session is dropped before anything else happens. */
static const struct dr_boot_ops ops = {
	.on_accept = on_accept, .on_failed = on_failed, .on_closed = on_closed
};

static int dial(struct probe *p, const struct dr_options *o, struct dr_err *e)
{
	struct dr_dial d = { .opt = o,
		.pair = true, /* different numbers of GPUs are a finding, not a refusal */
		.patience_ns = p->timeout_ns,
		.wait_busy = o->command == DR_CMDBIT_PREFLIGHT, /* as the client after it */
		.ops = &ops,
		.arg = p,
		.poller = p->loop.poller };

	dr_mtu_check_open(&p->mtu, &p->plan, DR_PLAN_CLIENT, o->data_port_min, o->data_port_max);
	json_t *offer = dr_plan_offer(&p->plan);
	if (offer && dr_plan_probe_mark(offer)) {
		json_decref(offer);
		offer = NULL;
	}
	return dr_dial(&d, offer, &p->boot, e);
}

static void converse(struct probe *p, const struct dr_options *o, struct dr_err *e)
{
	int64_t until = dr_now_ns() + p->timeout_ns + ANSWER_NS + TEST_NS;

	while (!p->over && !p->loop.signo && dr_now_ns() < until) {
		int64_t next =
			DR_MIN(dr_boot_client_deadline(p->boot), dr_mtu_check_deadline(&p->mtu));

		dr_loop_turn(&p->loop, DR_MIN(until, next));
		dr_boot_client_tick(p->boot, dr_now_ns());
		test_paths(p, dr_now_ns());
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
	const struct dr_rights *r, struct dr_err *e)
{
	int rc = dr_client_plan(o, route, NULL, &p->plan, e);

	if (rc == 0)
		rc = dial(p, o, e);
	if (rc == 0 && o->run_as.name[0]) /* the server has said nothing yet */
		rc = dr_rights_become(r, e);
	if (rc) {
		fail(p,
			rc == -EINVAL  ? DR_EXIT_USAGE
			: rc == -ENXIO ? DR_EXIT_PEER
				       : DR_EXIT_ENV,
			rc);
		return rc;
	}
	converse(p, o, e);
	snprintf(p->out->version, sizeof(p->out->version), "%s",
		dr_control_peer_version(dr_boot_client_control(p->boot)));
	dr_boot_client_destroy(p->boot);
	return p->rc;
}

int dr_doctor_probe(const struct dr_options *o, const struct dr_route *route,
	const struct dr_rights *r, struct dr_doctor_peer *out, int *status, struct dr_err *e)
{
	struct probe p = { .out = out, .e = e };

	*status = DR_EXIT_ENV;
	p.timeout_ns = o->connect_timeout_ns;
	int rc = dr_loop_init(&p.loop, e);
	if (rc == 0) {
		rc = run(&p, o, route, r, e);
		*status = p.status;
		dr_mtu_check_close(&p.mtu);
		dr_loop_fini(&p.loop);
	}
	return rc;
}
