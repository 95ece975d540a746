/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/agent.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/fault/state.h"
#include "orchestrator/fleet/results.h"
#include "topology/netdev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A child that does not end delays the next order, not the agent: the order waits until it is killed. */

enum { SPAN_DEFAULT = 16 };

static bool is_in(const char *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i], name) == 0)
			return true;
	return false;
}

/*
 * The options of this sweep as a configuration of its runs, which have outputs and ports of their own: those that were
 * given, and those of which a sweep has another default than a client (options/about.c). A default that is given counts as
 * chosen, which runs refuse in some combinations. `way`: both directions are as the options have it.
 */
static char *run_config(const struct dr_options *o, int way)
{
	static const char *const own[] = { "json", "port", "log-json", "quiet" };
	static const char *const differ[] = { "matrix", "bidir", "channels", "size", "duration",
		"warmup", "interval", "connect-timeout", "timeout" };
	json_t *j = dr_opts_to_json(o->table, o->command), *v;
	const char *name;
	char *text;
	void *tmp;

	/* Options that exclude one of these defaults. */
	if (dr_opts_given(o->table, "iters"))
		json_object_del(j, "duration");
	if (dr_opts_given(o->table, "begin"))
		json_object_del(j, "size");
	if (dr_opts_given(o->table, "reverse"))
		json_object_del(j, "bidir");
	json_object_foreach_safe(j, tmp, name, v)
	{
		bool wanted =
			dr_opts_given(o->table, name) || is_in(differ, DR_ARRAY_LEN(differ), name);

		if (!wanted || is_in(own, DR_ARRAY_LEN(own), name))
			json_object_del(j, name);
	}
	if (way != DR_SWEEP_BOTH_WAYS) {
		json_object_del(j, "bidir");
		json_object_set_new(j, "reverse", json_boolean(way == DR_SWEEP_TO_CLIENT));
	}
	text = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	json_decref(j);
	return text;
}

/* ---- NICs ---- */

static json_t *nic_json(const struct dr_netdev *d)
{
	return json_pack("{s:s, s:b, s:b, s:o}", "name", d->name, "up", d->up, "carrier",
		d->running, "speed_mbps",
		d->speed_mbps > 0 ? json_integer(d->speed_mbps) : json_null());
}

/* NICs that may be rails, or could if they were up. The rest of the coordinator's table is for
 * those that runs name. */
static json_t *nics_json(void)
{
	struct dr_netdev_choice c = { .n_devs = 0 };
	struct dr_netdev *devs;
	json_t *a = json_array();
	struct dr_err e;

	if (dr_netdev_list(&devs, &c.n_devs, &e))
		return a;
	c.devs = devs;
	for (size_t i = 0; i < c.n_devs && json_array_size(a) < DR_SWEEP_NICS_MAX / 2; i++) {
		enum dr_netdev_why why = dr_netdev_refused(&c, &devs[i]);

		if (devs[i].n_addrs && (why < DR_NETDEV_LOOPBACK || why > DR_NETDEV_BRIDGE))
			json_array_append_new(a, nic_json(&devs[i]));
	}
	dr_netdev_list_free(devs);
	return a;
}

/* ---- runs ---- */

static void start_next(struct dr_sweep_agent *a);

/* Takes figures over. */
static void report(struct dr_sweep_agent *a, json_t *figures)
{
	json_t *msg = figures ? figures : json_object();

	json_object_set_new(msg, "op", json_string("done"));
	json_object_set_new(msg, "id", json_integer(a->now.id));
	json_object_set_new(msg, "attempt", json_integer(a->now.attempt));
	json_object_set_new(msg, "client", json_boolean(a->now.client));
	json_object_set_new(msg, "nics", nics_json());
	a->report(a->arg, msg);
	json_decref(msg);
}

static void run_ended(void *arg, int status, const json_t *doc, const char *text)
{
	struct dr_sweep_agent *a = arg;

	dr_info("sweep", "pair %lld, %s: exit status %d", (long long)a->now.id,
		a->now.client ? "client" : "server", status);
	report(a, a->now.client ? dr_sweep_figures(doc, status, text) : NULL);
	if (a->has_next)
		start_next(a);
}

static void start_next(struct dr_sweep_agent *a)
{
	struct dr_sweep_order o = { .client = a->next.client,
		.config = (unsigned)a->next.way,
		.port = a->next.client ? a->next.port : a->ports.first };
	struct dr_err e;
	int rc;

	a->now = a->next;
	a->has_next = false;
	/* It becomes a word of a command line. */
	if (dr_addr_parse(a->now.host, &o.host))
		rc = dr_err_set(&e, -EINVAL,
			"the coordinator orders a run with \"%.60s\", which is not an address: see to rank 0",
			a->now.host);
	else
		rc = dr_sweep_child_start(&a->child, &o, a->now.until_ns, &e);
	if (rc) {
		dr_warn("sweep", "%s", e.text);
		report(a, dr_sweep_figures(NULL, 2, e.text));
	}
}

static void order_run(struct dr_sweep_agent *a, const json_t *msg, int64_t now_ns)
{
	const char *host = json_string_value(json_object_get(msg, "host"));
	json_int_t port = json_integer_value(json_object_get(msg, "port"));
	json_int_t ms = json_integer_value(json_object_get(msg, "time_ms"));
	json_int_t way = json_integer_value(json_object_get(msg, "way")); /* none: 0 */

	if (!host || port < 1 || port > UINT16_MAX || ms < 1 || ms > 86400000 || way < 0 ||
		way >= DR_SWEEP_CONFIGS)
		return;
	a->next.id = json_integer_value(json_object_get(msg, "id"));
	a->next.attempt = json_integer_value(json_object_get(msg, "attempt"));
	a->next.client = json_is_true(json_object_get(msg, "client"));
	a->next.way = (int)way;
	a->next.port = (uint16_t)port;
	a->next.until_ns = now_ns + ms * DR_NS_PER_MS;
	snprintf(a->next.host, sizeof(a->next.host), "%s", host);
	a->has_next = true;
	if (a->child.runs)
		dr_sweep_child_stop(&a->child, now_ns);
	else
		start_next(a);
}

static void order_stop(struct dr_sweep_agent *a, const json_t *msg, int64_t now_ns)
{
	json_int_t id = json_integer_value(json_object_get(msg, "id"));

	/* It waits for a child that is being stopped, whose end is its own then. */
	if (a->has_next && a->next.id == id) {
		a->now = a->next;
		a->has_next = false;
	}
	if (a->child.runs && a->now.id == id)
		dr_sweep_child_stop(&a->child, now_ns);
}

void dr_sweep_agent_order(struct dr_sweep_agent *a, const json_t *msg, int64_t now_ns)
{
	const char *op = dr_json_string(msg, "op");

	if (strcmp(op, "run") == 0)
		order_run(a, msg, now_ns);
	else if (strcmp(op, "stop") == 0)
		order_stop(a, msg, now_ns);
}

json_t *dr_sweep_agent_offer(struct dr_sweep_agent *a, uint32_t rank, uint32_t nodes)
{
	char host[256] = "";

	(void)!gethostname(host, sizeof(host) - 1);
	return json_pack("{s:i, s:I, s:I, s:s, s:s, s:i, s:O}", "sweep", 1, "rank",
		(json_int_t)rank, "nodes", (json_int_t)nodes, "host", host, "where", a->where,
		"port", (int)a->ports.first, "nics", a->first_nics);
}

int dr_sweep_agent_init(struct dr_sweep_agent *a, struct dr_err *e)
{
	struct dr_state_where w;

	if (dr_state_where(&w, e) == 0)
		snprintf(a->where, sizeof(a->where), "%s %llu %llu", w.boot,
			(unsigned long long)w.netns, (unsigned long long)w.cookie);
	a->ports.lock_fd = -1;
	a->child.loud = a->opt->verbose > 0;
	a->child.ended = run_ended;
	a->child.arg = a;
	a->first_nics = nics_json();
	for (size_t i = 0; i < DR_ARRAY_LEN(a->child.config); i++) {
		a->child.config[i] = run_config(a->opt, (int)i);
		if (!a->child.config[i])
			return dr_err_set(e, -ENOMEM, "out of memory");
	}
	if (!a->first_nics)
		return dr_err_set(e, -ENOMEM, "out of memory");
	return dr_sweep_child_init(&a->child, e);
}

int dr_sweep_agent_claim(struct dr_sweep_agent *a, struct dr_poller *p, struct dr_err *e)
{
	const struct dr_options *o = a->opt;
	unsigned span = o->gpus.n ? dr_options_gpu_top(o) + 1 : SPAN_DEFAULT;

	a->child.poller = p;
	return dr_ports_claim(&a->ports, (unsigned)o->port + 1, span, e);
}

void dr_sweep_agent_fini(struct dr_sweep_agent *a)
{
	dr_sweep_child_fini(&a->child);
	dr_ports_release(&a->ports);
	for (size_t i = 0; i < DR_ARRAY_LEN(a->child.config); i++) {
		free(a->child.config[i]); /* lint-ok: of jansson */
		a->child.config[i] = NULL;
	}
	json_decref(a->first_nics);
	a->first_nics = NULL;
}
