/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * The endpoint and its thread.
 *  1. The thread sleeps in poll(2) on the poller's descriptor without the lock, and works in dr_poller_wait(0) with it.
 *  2. dr_poller_rest before each unlock makes that descriptor readable if there is work that no descriptor shows.
 *  3. A user's call may make the next deadline earlier, so its unlock wakes the thread.
 *  4. A user who calls again and again gives way to the thread, which a mutex alone does not ensure.
 */

const char *dualrail_version(void)
{
	return DR_VERSION;
}

int dr_lib_error(struct dualrail_error *to, const struct dr_err *e)
{
	if (to) {
		to->code = e->code;
		snprintf(to->text, sizeof(to->text), "%s", e->text);
	}
	return e->code;
}

void dr_lib_lock(struct dualrail *d)
{
	while (atomic_load(&d->thread_waits))
		sched_yield();
	pthread_mutex_lock(&d->lock);
}

void dr_lib_unlock(struct dualrail *d)
{
	dr_poller_rest(d->poller);
	dr_poller_wake(d->poller);
	pthread_mutex_unlock(&d->lock);
}

/* ---- thread ---- */

static void on_link(void *arg, int ifindex, bool up)
{
	struct dualrail *d = arg;

	for (struct dualrail_peer *p = d->peers; p; p = p->next)
		if (p->m)
			dr_manager_link(p->m, ifindex, up, dr_now_ns());
}

/* One turn. Returns when the next one is due. */
static int64_t turn(struct dualrail *d)
{
	int64_t due, now;

	(void)dr_poller_wait(d->poller, 0);
	now = dr_now_ns();
	dr_rdv_tick(d->rdv, now);
	due = dr_rdv_deadline(d->rdv);
	for (struct dualrail_peer *p = d->peers; p; p = p->next) {
		dr_lib_tick(p, now);
		if (p->m)
			due = DR_MIN(due, dr_manager_deadline(p->m));
		if (p->state == DR_LIB_STARTING)
			due = DR_MIN(due, p->until_ns);
	}
	return due;
}

static void sleep_until(struct dualrail *d, int64_t due)
{
	struct pollfd pfd = { .fd = dr_poller_fd(d->poller), .events = POLLIN };
	int64_t left = DR_MIN(due - dr_now_ns(), DR_NS_PER_S);
	struct timespec ts = { .tv_sec = left / DR_NS_PER_S, .tv_nsec = left % DR_NS_PER_S };

	if (left > 0)
		(void)ppoll(&pfd, 1, &ts, NULL);
}

static void *thread_main(void *arg)
{
	struct dualrail *d = arg;

	pthread_mutex_lock(&d->lock);
	while (!d->quit) {
		int64_t due = turn(d);

		dr_poller_rest(d->poller);
		pthread_mutex_unlock(&d->lock);
		sleep_until(d, due);
		atomic_store(&d->thread_waits, true);
		pthread_mutex_lock(&d->lock);
		atomic_store(&d->thread_waits, false);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

static int start_thread(struct dualrail *d, struct dr_err *e)
{
	int rc = dr_thread_start(&d->thread, "dualrail", thread_main, d);

	if (rc != 0)
		return dr_err_set(e, rc, "cannot start the endpoint's thread: %s; see ulimit -u",
			strerror(-rc));
	return 0;
}

/* ---- options ---- */

/* The kind's own options have the defaults of the program's options. */
static int set_params(struct dualrail *d, struct dr_err *e)
{
	static const struct dr_opt_command commands[] = {
		{ .name = "library", .bit = DR_CMDBIT_RUN }, { .name = NULL }
	};
	const struct dr_opt_group *const groups[] = { &d->kind->options, NULL };
	const struct dr_opts_spec spec = {
		.program = "libdualrail", .groups = groups, .commands = commands
	};
	struct dr_opts *o = NULL;
	int rc;

	if (!d->kind->options.n)
		return 0;
	rc = dr_opts_create(&o, &spec, &d->params);
	if (rc < 0)
		return dr_err_set(e, rc, "options: out of memory");
	rc = dr_opts_defaults(o, DR_CMDBIT_RUN, e);
	dr_opts_destroy(o);
	return rc;
}

static int set_options(struct dualrail *d, const struct dualrail_options *o, struct dr_err *e)
{
	static const struct dualrail_options defaults = {
		.heartbeat_us = 10000, .hold_down_ms = 1000, .connect_timeout_ms = 30000
	};
	char names[64];

	memset(&d->o, 0, sizeof(d->o));
	if (o && (o->size < sizeof(o->size) || o->size > sizeof(d->o)))
		return dr_err_set(e, -EINVAL,
			"options: size is %zu, this library knows %zu bytes of them", o->size,
			sizeof(d->o));
	if (o)
		memcpy(&d->o, o, o->size);
	if (d->o.lanes > DUALRAIL_LANES_MAX)
		return dr_err_set(e, -EINVAL, "options: lanes is %u, the maximum is %u", d->o.lanes,
			DUALRAIL_LANES_MAX);
	if (d->o.flags & ~(uint32_t)(DUALRAIL_NO_FAILBACK | DUALRAIL_CONSERVATIVE))
		return dr_err_set(e, -EINVAL, "options: unknown flags in 0x%x", d->o.flags);
	d->o.heartbeat_us = d->o.heartbeat_us ? d->o.heartbeat_us : defaults.heartbeat_us;
	d->o.hold_down_ms = d->o.hold_down_ms ? d->o.hold_down_ms : defaults.hold_down_ms;
	if (!d->o.connect_timeout_ms)
		d->o.connect_timeout_ms = defaults.connect_timeout_ms;
	d->kind = dr_transport_kind(d->o.transport ? d->o.transport : "tcp");
	if (!d->kind || d->kind->argument)
		return dr_err_set(e, -ENOTSUP, "no transport %s for this library (built: %s)",
			d->o.transport, dr_transport_names(names, sizeof(names)));
	return set_params(d, e);
}

static int find_nics(struct dualrail *d, struct dr_err *e)
{
	int n = dr_netdev_rails(d->o.nics, NULL, d->nic, DR_NICS_MAX, e);

	if (n < 0)
		return n;
	d->n_nics = (unsigned)n;
	dr_netdev_rail_routes(d->nic, d->n_nics);
	for (unsigned i = 0; i < d->n_nics && d->n_addrs < DR_RDV_ADDRS_MAX; i++) {
		struct dr_rdv_addr *a = &d->addr[d->n_addrs];

		if (d->nic[i].rank == DR_NIC_NONE)
			break;
		d->n_addrs++;
		a->addr.ss = d->nic[i].addr;
		a->addr.len = dr_sa_len(&a->addr.ss);
		a->prefix = (uint8_t)d->nic[i].prefix;
		a->nic = (uint8_t)d->nic[i].nic;
		static_assert(sizeof(a->device) == sizeof(d->nic[i].ifname), "names of interfaces");
		memcpy(a->device, d->nic[i].ifname, sizeof(a->device));
	}
	return 0;
}

/* ---- life ---- */

static int open_all(struct dualrail *d, const struct dualrail_options *o, struct dr_err *e)
{
	struct dr_rdv_opts ro = { .version = DR_VERSION };
	int rc = set_options(d, o, e);

	if (rc == 0)
		rc = find_nics(d, e);
	if (rc == 0)
		rc = dr_poller_create(&d->poller, e);
	d->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rc == 0 && d->event_fd < 0)
		rc = dr_err_set(e, -errno, "eventfd: %s", strerror(errno));
	if (rc == 0)
		rc = dr_random_bytes(&ro.process, sizeof(ro.process));
	if (rc == 0)
		rc = dr_rdv_create(&d->rdv, &ro, &dr_lib_rdv_ops, d->poller, e);
	d->links = (struct dr_link_watch){ .poller = d->poller, .on_link = on_link, .arg = d };
	if (rc == 0)
		rc = dr_link_watch_open(&d->links, e);
	return rc == 0 ? start_thread(d, e) : rc;
}

static void free_all(struct dualrail *d)
{
	dr_link_watch_close(&d->links);
	dr_rdv_destroy(d->rdv);
	dr_poller_destroy(d->poller);
	if (d->event_fd >= 0)
		close(d->event_fd);
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
	dr_free(d);
}

int dualrail_open(
	const struct dualrail_options *o, struct dualrail **out, struct dualrail_error *error)
{
	struct dualrail *d = dr_calloc(1, sizeof(*d));
	struct dr_err e = { 0 };
	int rc;

	if (!d)
		return dr_lib_error(
			error, (dr_err_set(&e, -ENOMEM, "endpoint: out of memory"), &e));
	pthread_mutex_init(&d->lock, NULL);
	dr_cond_init(&d->changed);
	d->event_fd = -1;
	STAILQ_INIT(&d->events);
	rc = open_all(d, o, &e);
	if (rc != 0) {
		e.code = rc;
		free_all(d);
		return dr_lib_error(error, &e);
	}
	*out = d;
	return 0;
}

static int close_peers(struct dualrail *d, struct dr_err *e)
{
	struct dualrail_error why = { 0 };
	int rc = 0;

	/* All at once, so that the waits below overlap. No exchange outlives its listener. */
	dr_lib_lock(d);
	if (d->listen)
		dr_rdv_listen_close(d->listen);
	d->listen = NULL;
	for (struct dualrail_peer *p = d->peers; p; p = p->next) {
		if (p->m)
			dr_manager_close(p->m, dr_now_ns());
		if (p->exchange)
			dr_rdv_cancel(p->exchange);
		p->exchange = NULL;
	}
	dr_lib_unlock(d);
	while (d->peers) {
		int err = dualrail_disconnect(d->peers, &why);

		if (err != 0 && rc == 0)
			rc = dr_err_set(e, err, "%s", why.text);
	}
	return rc;
}

int dualrail_close(struct dualrail *d, struct dualrail_error *error)
{
	struct dr_err e = { 0 };
	int rc;

	if (!d)
		return 0;
	rc = close_peers(d, &e);
	dr_lib_lock(d);
	d->quit = true;
	dr_lib_unlock(d);
	pthread_join(d->thread, NULL);
	while (d->puts)
		dr_lib_put_free(d->puts);
	while (d->memories) {
		struct dualrail_memory *m = d->memories;

		d->memories = m->next;
		dr_free(m);
	}
	free_all(d);
	return rc ? dr_lib_error(error, &e) : 0;
}
