/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/engine/rail_cuda.h"
#include "topology/reach.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void on_signal(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_loop *l = dr_container_of(po, struct dr_loop, sig);
	struct signalfd_siginfo si;

	(void)revents;
	(void)now_ns;
	while (read(po->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		if (!l->signo)
			l->signo = (int)si.ssi_signo;
}

int dr_loop_init(struct dr_loop *l, struct dr_err *e)
{
	sigset_t set;

	memset(l, 0, sizeof(*l));
	l->sig.fd = -1;
	l->sig.ready = on_signal;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	int rc = -pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (rc)
		return dr_err_set(e, rc, "signals: %s", strerror(-rc));
	rc = dr_poller_create(&l->poller, e);
	if (rc)
		return rc;
	l->sig.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	rc = l->sig.fd < 0 ? -errno : dr_poller_add(l->poller, &l->sig, EPOLLIN);
	if (rc) {
		dr_err_set(e, rc, "signalfd: %s", strerror(-rc));
		dr_loop_fini(l);
	}
	return rc;
}

void dr_loop_fini(struct dr_loop *l)
{
	if (l->sig.fd >= 0) {
		dr_poller_del(l->poller, &l->sig);
		close(l->sig.fd);
	}
	dr_poller_destroy(l->poller);
	l->poller = NULL;
	l->sig.fd = -1;
}

void dr_loop_turn(struct dr_loop *l, int64_t deadline_ns)
{
	int64_t now = dr_now_ns();
	int64_t sleep = deadline_ns == DR_NEVER ? DR_NEVER : DR_MAX(deadline_ns - now, 0);

	dr_poller_wait(l->poller, sleep);
}

const char *dr_loop_interrupted(const struct dr_loop *l)
{
	return l->signo == SIGINT ? "interrupted (SIGINT)" : "interrupted (SIGTERM)";
}

int dr_session_main(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_err e = { 0 };

	dr_live_start(out, rec);
	int rc = dr_options_resolve(o, &e);
	if (rc == 0)
		return o->command == DR_CMDBIT_SERVER ? dr_server_main(o, rec, out)
						      : dr_client_main(o, rec, out);
	dr_output_complain(out, e.text);
	dr_record_error(rec, dr_options_exit(rc), &e);
	return dr_output_finish(out, rec, NULL);
}

/* ---- what both ends do ---- */

int dr_session_open(struct dr_session *s, struct dr_err *e)
{
	int rc = dr_loop_init(&s->loop, e);

	s->inj.po.fd = -1;
	if (rc == 0)
		rc = dr_inject_init(s, e);
	if (rc == 0)
		rc = dr_affinity_load(s->opt, &s->topo, e);
	s->rights = (struct dr_rights){ .opt = s->opt, .out = s->out };
	if (rc == 0)
		dr_rights_restrict(&s->rights);
	return rc;
}

static void warn_of_arp(const struct dr_plan *p, enum dr_plan_end here)
{
	for (unsigned i = 0; i < p->n_rails; i++)
		for (unsigned k = 0; k < p->n_rails; k++) {
			const struct dr_plan_rail *a = &p->rail[i][here], *b = &p->rail[k][here];

			if (strcmp(a->name, b->name) == 0 ||
				!dr_reach_flux("", a->name, &a->addr, &b->addr,
					DR_MAX(a->prefix, b->prefix)))
				continue;
			dr_warn("rails",
				"%s and %s of the %s share a subnet and answer ARP for each other: a "
				"rail is lost when its packets reach the other NIC; sysctl -w "
				"net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 "
				"there, or one subnet per rail",
				a->name, b->name, here == DR_PLAN_CLIENT ? "client" : "server");
			return;
		}
}

void dr_session_warn_rails(const struct dr_session *s)
{
	const struct dr_plan *p = &s->plan;

	if (!s->route.same_host)
		warn_of_arp(p, s->side);
	if (p->n_rails == 1)
		dr_warn("rails",
			"one rail only: every channel is unprotected, a lost link ends the run; "
			"'dualrail doctor HOST' names NICs that are down");
}

void dr_session_close(struct dr_session *s)
{
	dr_local_destroy(s->local);
	if (s->loop.poller) {
		dr_inject_fini(s);
		dr_loop_fini(&s->loop);
	}
	dr_topo_destroy(s->topo);
}

void dr_session_send(struct dr_session *s, const struct dr_message *m)
{
	json_t *j = dr_message_to_json(m);
	int rc = j ? dr_control_send(s->control, j) : -ENOMEM;
	struct dr_err e;

	json_decref(j);
	if (!rc || rc == -ENOTCONN)
		return;
	dr_err_set(&e, rc, "control connection: %s", strerror(-rc));
	if (s->side == DR_PLAN_CLIENT)
		s->ops->failed(s, DR_EXIT_PEER, &e);
	else
		dr_warn("server", "%s", e.text);
}

int dr_session_loss(const struct dr_session *s, int err, const char **what)
{
	bool up = s->local->n_ready == s->plan.n_gpus;

	*what = err != -ENETDOWN ? "channel ended"
		: up		 ? "both paths lost"
				 : "the data paths never came up";
	return err != -ENETDOWN || up ? DR_EXIT_TRANSPORT : DR_EXIT_PEER;
}

enum dr_reason dr_session_reason(enum dr_boot_cause cause)
{
	static const enum dr_reason reason[] = {
		[DR_BOOT_OK] = DR_REASON_LOST,
		[DR_BOOT_EOF] = DR_REASON_DIED,
		[DR_BOOT_RESET] = DR_REASON_DIED,
		[DR_BOOT_SILENT] = DR_REASON_TIMEOUT,
		[DR_BOOT_REFUSED] = DR_REASON_REFUSED,
		[DR_BOOT_UNREACHABLE] = DR_REASON_UNREACHABLE,
		[DR_BOOT_TIMEOUT] = DR_REASON_TIMEOUT,
		[DR_BOOT_PROTOCOL] = DR_REASON_PROTOCOL,
		[DR_BOOT_VERSION] = DR_REASON_VERSION,
		[DR_BOOT_KEY] = DR_REASON_KEY,
		[DR_BOOT_BUSY] = DR_REASON_BUSY,
		[DR_BOOT_DECLINED] = DR_REASON_DECLINED,
		[DR_BOOT_GONE] = DR_REASON_DIED,
		[DR_BOOT_GOODBYE] = DR_REASON_ENDED,
		[DR_BOOT_LOCAL] = DR_REASON_LOCAL,
		[DR_BOOT_EVICTED] = DR_REASON_TIMEOUT,
	};

	dr_assert((size_t)cause < DR_ARRAY_LEN(reason));
	return reason[cause];
}

int dr_session_exit(int err)
{
	return err == -EPROTO ? DR_EXIT_PEER : DR_EXIT_ENV;
}

void dr_session_record_detection(struct dr_session *s)
{
	struct dr_detection *d = &s->rec->detection;
	const struct dr_plan *p = &s->plan;

	snprintf(d->transport, sizeof(d->transport), "%s", p->transport);
	snprintf(d->mode, sizeof(d->mode), "%s", dr_detect_names[p->detect]);
	d->heartbeat_ns = p->heartbeat_ns;
	d->hold_down_ns = p->hold_down_ns;
	d->failback = p->failback;
}

void dr_session_on_handles(void *arg, unsigned k, const struct dr_handle *handles, unsigned n)
{
	struct dr_session *s = arg;
	struct dr_err e;

	if (s->status || !s->local)
		return;
	/* Starting the worker may fail at this end, mostly for lack of memory. */
	if (dr_local_connect(s->local, k, handles, n, &e))
		s->ops->failed(s, dr_session_exit(e.code), &e);
}

void dr_session_on_message(void *arg, const json_t *msg)
{
	struct dr_session *s = arg;
	struct dr_message m;
	struct dr_err e;

	if (!s->local)
		return;
	int rc = dr_message_read(msg, &m, &e);
	if (rc == 0)
		rc = s->ops->take(s, &m, &e);
	if (rc)
		s->ops->bad_message(s, &e);
}

void dr_session_on_lost(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct dr_session *s = arg;

	s->lost = true;
	s->lost_cause = cause;
	dr_record_eventf(s->rec, "control", "lost: %s", text);
	dr_info("session", "control connection lost: %s", text);
}

void dr_session_on_resumed(void *arg)
{
	struct dr_session *s = arg;

	s->lost = false;
	dr_record_eventf(s->rec, "control", "resumed with %s", dr_control_peer(s->control));
	dr_info("session", "control connection resumed");
}
