/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/ask.h"

#include "base/clock.h"
#include "base/mem.h"
#include "orchestrator/session_client.h"
#include "orchestrator/session_dial.h"

#include <errno.h>
#include <string.h>

/* A client waits for a server that is still to be started; doctor says that there is none. */
#define PATIENCE_NS (5 * DR_NS_PER_S)

/*
 * The first half of a client's conversation: hello, key, offer, answer. The offer is the one that the
 * client with these options would make, so that what the server refuses here it would refuse there.
 * Nothing is exchanged after the answer: this end lets go, and the server is free again.
 */
struct ask {
	struct dr_loop loop;
	struct dr_plan plan;
	struct dr_boot_client *boot;
	struct dr_look *out;
	bool answered, over;
	int64_t patience_ns;
	int rc, status;
	struct dr_err *e;
};

static void fail(struct ask *a, int status, int rc)
{
	if (a->rc)
		return;
	a->rc = rc;
	a->status = status;
}

static void on_accept(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
	unsigned handles_out, unsigned handles_in)
{
	struct ask *a = arg;
	int rc = dr_look_read(reply, a->out, a->e);

	(void)gpus;
	(void)pairs;
	(void)handles_out;
	(void)handles_in;
	a->answered = true;
	if (rc)
		fail(a, DR_EXIT_PEER, rc);
	dr_boot_client_drop(a->boot);
}

static void on_failed(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *err)
{
	struct ask *a = arg;

	(void)cause;
	a->over = true;
	if (a->answered)
		return;
	if (a->e)
		*a->e = *err;
	/* A server that would refuse the run with status 2 answers all the same: that is its finding. */
	fail(a, code > 0 ? code : DR_EXIT_PEER, err->code ? err->code : -ENOTCONN);
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct ask *a = arg;

	(void)cause;
	(void)text;
	a->over = true;
}

/* No session gets so far. */
static void on_handles(void *arg, unsigned k, const struct dr_boot_handle *handles, unsigned n)
{
	(void)arg;
	(void)k;
	(void)handles;
	(void)n;
}

static void on_ready(void *arg)
{
	(void)arg;
}

static void on_message(void *arg, const json_t *msg)
{
	(void)arg;
	(void)msg;
}

static void on_lost(void *arg, enum dr_boot_cause cause, const char *text)
{
	(void)arg;
	(void)cause;
	(void)text;
}

static void on_resumed(void *arg)
{
	(void)arg;
}

static const struct dr_boot_client_ops ops = { on_accept, on_handles, on_ready, on_message, on_lost,
	on_resumed, on_failed, on_closed };

static int dial(struct ask *a, const struct dr_options *o, struct dr_err *e)
{
	struct dr_dial d = { .opt = o,
		.pair = true, /* unequal counts are a finding here, not a refusal */
		.patience_ns = a->patience_ns,
		.ops = &ops,
		.arg = a,
		.poller = a->loop.poller };
	json_t *offer = dr_plan_offer(&a->plan);

	if (offer && dr_look_mark(offer)) {
		json_decref(offer);
		offer = NULL;
	}
	return dr_dial(&d, offer, &a->boot, e);
}

static void converse(struct ask *a, const struct dr_options *o, struct dr_err *e)
{
	int64_t until = dr_now_ns() + a->patience_ns + 5 * DR_NS_PER_S;

	while (!a->over && !a->loop.signo && dr_now_ns() < until) {
		dr_loop_turn(&a->loop, DR_MIN(until, dr_boot_client_deadline(a->boot)));
		dr_boot_client_tick(a->boot, dr_now_ns());
	}
	if (a->loop.signo)
		fail(a, 128 + a->loop.signo,
			dr_err_set(e, -EINTR, "ended by %s", strsignal(a->loop.signo)));
	else if (!a->answered && !a->rc)
		fail(a, DR_EXIT_PEER,
			dr_err_set(e, -ETIMEDOUT,
				"server %s took the connection and did not answer; is it busy or "
				"stopped?",
				o->host));
}

static int run(struct ask *a, const struct dr_options *o, const struct dr_route *route,
	char *peer_version, struct dr_err *e)
{
	int rc = dr_client_plan(o, route, NULL, &a->plan, e);

	/* What only this end lacks (no RDMA device) its own checks have said. */
	if (rc == 0)
		rc = dial(a, o, e);
	if (rc) {
		fail(a,
			rc == -EINVAL  ? DR_EXIT_USAGE
			: rc == -ENXIO ? DR_EXIT_PEER
				       : DR_EXIT_ENV,
			rc);
		return rc;
	}
	converse(a, o, e);
	snprintf(peer_version, 64, "%s", dr_control_peer_version(dr_boot_client_control(a->boot)));
	dr_boot_client_destroy(a->boot);
	return a->rc;
}

int dr_doctor_ask(const struct dr_options *o, const struct dr_route *route, struct dr_look *out,
	char *peer_version, int *status, struct dr_err *e)
{
	struct ask *a = dr_calloc(1, sizeof(*a));
	int rc;

	*status = DR_EXIT_ENV;
	if (!a)
		return dr_err_set(e, -ENOMEM, "out of memory");
	a->out = out;
	a->e = e;
	a->patience_ns =
		dr_opts_given(o->table, "connect-timeout") ? o->connect_timeout_ns : PATIENCE_NS;
	rc = dr_loop_init(&a->loop, e);
	if (rc == 0) {
		rc = run(a, o, route, peer_version, e);
		*status = a->status;
		dr_loop_fini(&a->loop);
	}
	dr_free(a);
	return rc;
}
