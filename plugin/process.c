/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/process.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "plugin/build.h"
#include "plugin/log.h"
#include "plugin/news.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Start and end of the process's part of the plugin, and what the control thread does in each turn: the rendezvous,
 * comms that are to be opened or closed, sessions that nobody uses.
 */
static const int64_t LOOK_NS = 50 * DR_NS_PER_MS; /* at what is closing */
static const int64_t LOOK_STOPPING_NS = DR_NS_PER_MS;
static const int64_t IDLE_NS = 2 * DR_NS_PER_S; /* a session without comms is closed then */
static const int64_t METRICS_NS = 5 * DR_NS_PER_S;
static const int64_t STOP_NS = 2 * DR_NS_PER_S;

const uint32_t ha_endpoint_magic = 0x48414350;

/* ---- turns of the control thread ---- */

static void endpoint_free(struct ha_process *p, struct ha_endpoint *n)
{
	pthread_mutex_lock(&p->lock);
	DR_UNLINK(&p->endpoints, n, next);
	pthread_mutex_unlock(&p->lock);
	ha_endpoint_detach(n);
	n->magic = 0;
	dr_free(n);
}

/* NCCL does not know it any more: true when it is gone. */
static bool endpoint_close(struct ha_process *p, struct ha_endpoint *n)
{
	if (n->exchange) {
		dr_rdv_cancel(n->exchange);
		n->exchange = NULL;
	}
	if (n->comm && !n->comm->closing)
		ha_comm_close(n->comm);
	if (n->comm && !ha_comm_closed(n->comm))
		return false;
	if (n->comm && ha_comm_free(n->comm) != 0)
		dr_warn("comm", "a connection could not be destroyed; its memory stays allocated");
	n->comm = NULL;
	endpoint_free(p, n);
	return true;
}

enum todo { TODO_NOTHING, TODO_OPEN, TODO_CLOSE, TODO_FAIL };

/* With the lock held. */
static enum todo todo(const struct ha_endpoint *n, int64_t now)
{
	if (n->closed)
		return TODO_CLOSE;
	switch (n->state) {
	case HA_ENDPOINT_NEW:
	case HA_ENDPOINT_WAITING:
		return TODO_OPEN;
	case HA_ENDPOINT_STARTING:
		return !n->taken && now - n->start_ns > n->p->cfg.connect_timeout_ns ? TODO_FAIL
										     : TODO_NOTHING;
	default:
		return TODO_NOTHING;
	}
}

static struct ha_endpoint *next_due(
	struct ha_process *p, struct ha_endpoint *after, enum todo *what, int64_t now)
{
	struct ha_endpoint *n;

	*what = TODO_NOTHING;
	pthread_mutex_lock(&p->lock);
	for (n = after ? after->next : p->endpoints; n; n = n->next)
		if ((*what = todo(n, now)) != TODO_NOTHING)
			break;
	pthread_mutex_unlock(&p->lock);
	return n;
}

/* New endpoints are put in front, and only this thread removes some. */
static void look_at_endpoints(struct ha_process *p, int64_t now)
{
	enum todo what, next_what;
	struct ha_endpoint *n = next_due(p, NULL, &what, now), *next;

	for (; n; n = next, what = next_what) {
		next = next_due(p, n, &next_what, now);
		if (what == TODO_CLOSE)
			(void)endpoint_close(p, n);
		else if (what == TODO_FAIL)
			ha_endpoint_fail(n, -ETIMEDOUT, "its connection did not come up in time");
		else
			ha_open_endpoint(n, now);
	}
}

static void look_at_listens(struct ha_process *p)
{
	struct ha_listen **at, *gone = NULL;

	pthread_mutex_lock(&p->lock);
	for (at = &p->listens; *at;) {
		struct ha_listen *l = *at;

		if (!l->closed) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		l->next = gone;
		gone = l;
	}
	pthread_mutex_unlock(&p->lock);
	while (gone) {
		struct ha_listen *l = gone;

		gone = l->next;
		dr_rdv_listen_close(l->rdv);
		pthread_mutex_lock(&p->lock);
		for (struct ha_endpoint *n = p->endpoints; n; n = n->next)
			if (n->listen == l) { /* NCCL will not accept it */
				n->listen = NULL;
				n->closed = true;
			}
		pthread_mutex_unlock(&p->lock);
		dr_free(l);
	}
}

static void look_at_links(struct ha_process *p, int64_t now)
{
	struct ha_link **at = &p->links;

	while (*at) {
		struct ha_link *l = *at;
		bool idle = l->comms == 0 && (p->stopping || l->lost || now - l->idle_ns > IDLE_NS);

		if (l->s && atomic_load(&l->s->err) != 0)
			l->lost = true;
		if (idle && l->s && !l->closing) {
			l->closing = l->lost = true;
			ha_session_close(l->s);
		}
		if (!idle || (l->s && !ha_session_closed(l->s))) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		if (l->s && l->up)
			ha_session_counters(l->s, &p->past);
		if (l->s && ha_session_destroy(l->s) != 0)
			dr_warn("session", "a connection could not be destroyed");
		dr_free(l);
	}
}

static void write_metrics(struct ha_process *p, int64_t now)
{
	struct ha_counters c = p->past;
	struct dr_err e;

	if (!p->cfg.metrics_file[0])
		return;
	p->metrics_ns = now + METRICS_NS;
	for (struct ha_link *l = p->links; l; l = l->next)
		if (l->s && l->up)
			ha_session_counters(l->s, &c);
	if (ha_counters_write(&c, p->devices, p->cfg.metrics_file, &e) == 0)
		return;
	dr_warn("plugin", "%s; no more attempts", e.text);
	p->cfg.metrics_file[0] = '\0';
}

static void tick(struct ha_member *m, int64_t now)
{
	struct ha_process *p = dr_container_of(m, struct ha_process, member);

	if (now >= dr_rdv_deadline(p->rdv))
		dr_rdv_tick(p->rdv, now);
	for (struct ha_link *l = p->links; l && p->cfg.progress_thread; l = l->next)
		if (l->s && l->up)
			ha_session_tick(l->s, now);
	if (now < p->tick_ns)
		return;
	p->tick_ns = now + (p->stopping ? LOOK_STOPPING_NS : LOOK_NS);
	ha_news_print(now, p->stopping);
	look_at_listens(p);
	look_at_endpoints(p, now);
	look_at_links(p, now);
	if (p->stopping && !p->told && !p->endpoints && !p->links && !p->listens) {
		p->told = true;
		write_metrics(p, now);
		sem_post(&p->empty);
	} else if (now >= p->metrics_ns) {
		write_metrics(p, now);
	}
}

static int64_t deadline(const struct ha_member *m)
{
	const struct ha_process *p = dr_container_of(m, struct ha_process, member);
	int64_t d = DR_MIN(dr_rdv_deadline(p->rdv), p->tick_ns);

	for (const struct ha_link *l = p->links; l && p->cfg.progress_thread; l = l->next)
		if (l->s && l->up)
			d = DR_MIN(d, ha_session_deadline(l->s));
	return d;
}

struct wake {
	struct ha_work work;
	struct ha_process *p;
};

static void woken(struct ha_work *w, int64_t now)
{
	struct wake *k = dr_container_of(w, struct wake, work);

	(void)now;
	k->p->tick_ns = 0;
	dr_free(k);
}

void ha_process_wake(struct ha_process *p)
{
	struct wake *k = dr_calloc(1, sizeof(*k));

	if (!k)
		return; /* it looks every LOOK_NS */
	k->p = p;
	k->work.run = woken;
	ha_thread_post(p->control, &k->work);
}

/* ---- link events ---- */

static void on_link(void *arg, int ifindex, bool up)
{
	struct ha_process *p = arg;

	for (struct ha_link *l = p->links; l; l = l->next)
		if (l->s && l->up)
			ha_session_link(l->s, ifindex, up);
}

/* ---- life ---- */

struct begin {
	struct ha_process *p;
	struct dr_err *e;
	int rc;
};

static void begin(void *arg, int64_t now)
{
	struct begin *b = arg;
	struct ha_process *p = b->p;
	struct dr_poller *poller = ha_thread_poller(p->control);
	struct dr_rdv_opts o = { .process = p->id,
		.port_min = p->cfg.ports[0],
		.port_max = p->cfg.ports[1],
		.version = DR_VERSION };

	(void)now;
	b->rc = dr_rdv_create(&p->rdv, &o, &ha_open_ops, poller, b->e);
	p->nics = (struct dr_link_watch){ .poller = poller, .on_link = on_link, .arg = p };
	if (b->rc == 0)
		b->rc = dr_link_watch_open(&p->nics, b->e);
	if (b->rc != 0)
		return;
	p->member.tick = tick;
	p->member.deadline = deadline;
	ha_thread_add(p->control, &p->member);
}

static void end(void *arg, int64_t now)
{
	struct ha_process *p = arg;

	(void)now;
	if (p->member.tick)
		ha_thread_remove(p->control, &p->member);
	dr_link_watch_close(&p->nics);
	dr_rdv_destroy(p->rdv);
}

static int start_threads(struct ha_process *p, struct dr_err *e)
{
	struct begin b = { .p = p, .e = e };
	int rc = ha_thread_start("ha-control", 0, &p->control, e);

	for (unsigned t = 0; t < p->cfg.threads && rc == 0; t++) {
		char name[24];

		snprintf(name, sizeof(name), "ha-io-%u", t);
		rc = ha_thread_start(name, (int64_t)p->cfg.spin_us * DR_NS_PER_US, &p->io[t], e);
	}
	if (rc != 0)
		return rc;
	ha_thread_call(p->control, begin, &b);
	return b.rc;
}

static void free_process(struct ha_process *p)
{
	if (p->control)
		ha_thread_call(p->control, end, p);
	ha_thread_stop(p->control);
	for (unsigned t = 0; t < HA_SESSION_THREADS_MAX; t++)
		ha_thread_stop(p->io[t]);
	ha_devices_free(p->devices);
	pthread_mutex_destroy(&p->lock);
	sem_destroy(&p->empty);
	dr_free(p);
}

static void log_start(const struct ha_process *p)
{
	char names[300] = "", line[900];
	struct ha_about about = { .version = DR_VERSION, .build = ha_build(), .devices = names };
	size_t at = 0;

	for (unsigned i = 0; i < p->devices->n && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? "," : "",
			p->devices->dev[i].name);
	ha_config_describe(&p->cfg, &about, line, sizeof(line));
	dr_info("plugin", "%s", line);
}

static int configure(struct ha_process *p, bool rdma, struct dr_err *e)
{
	int rc = ha_config_read(&p->cfg, rdma, e);

	if (rc < 0)
		return rc;
	ha_log_set_level(p->cfg.log_level, p->cfg.debug);
	return ha_devices_create(&p->cfg, &p->devices, e);
}

int ha_process_start(struct ha_process **out, struct dr_err *e)
{
	struct ha_process *p = dr_calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return dr_err_set(e, -ENOMEM, "plugin: out of memory");
	pthread_mutex_init(&p->lock, NULL);
	sem_init(&p->empty, 0, 0);
	rc = dr_random_bytes(&p->id, sizeof(p->id));
	p->id >>= 11; /* numbers of JSON have 53 bits */
	if (rc == 0)
		rc = configure(p, true, e);
	/* An RDMA device is there, and it cannot be used, e.g. since it is not of this network namespace. */
	if (rc < 0 && !p->devices && p->cfg.transport == HA_TRANSPORT_AUTO &&
		ha_config_is_verbs(&p->cfg)) {
		dr_info("plugin", "%s; transport tcp", e->text);
		rc = configure(p, false, e);
	}
	if (rc == 0)
		rc = start_threads(p, e);
	if (rc != 0) {
		free_process(p);
		return rc;
	}
	log_start(p);
	*out = p;
	return 0;
}

static void mark_all_closed(struct ha_process *p)
{
	pthread_mutex_lock(&p->lock);
	for (struct ha_endpoint *n = p->endpoints; n; n = n->next)
		n->closed = true;
	for (struct ha_listen *l = p->listens; l; l = l->next)
		l->closed = true;
	pthread_mutex_unlock(&p->lock);
}

/* On the control thread: what is open is closed, and `empty` posted when nothing is left. */
static void begin_stop(void *arg, int64_t now)
{
	struct ha_process *p = arg;

	(void)now;
	p->stopping = true;
	p->tick_ns = 0;
}

/* True: in time. */
static bool wait_empty(struct ha_process *p)
{
	struct timespec until;
	int64_t wall = dr_wall_ns() + STOP_NS;

	until.tv_sec = (time_t)(wall / DR_NS_PER_S);
	until.tv_nsec = (long)(wall % DR_NS_PER_S);
	while (sem_timedwait(&p->empty, &until) != 0)
		if (errno != EINTR)
			return false;
	return true;
}

void ha_process_stop(struct ha_process *p)
{
	if (!p)
		return;
	mark_all_closed(p);
	ha_thread_call(p->control, begin_stop, p);
	if (wait_empty(p)) /* the peers are told, for a bounded time */
		free_process(p);
	else
		dr_warn("plugin",
			"connections did not close within 2 s; their memory stays allocated");
}
