/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/session_priv.h"

#include "base/limits.h"
#include "orchestrator/engine/engine.h"

#include <errno.h>

/*
 * What a run takes of this process's limits, before it begins. The numbers are what its channels
 * need at least: what else runs here is found when it is in the way.
 */
enum {
	CHANNEL_BYTES = 256 << 10, /* with two connections; 200 KiB as measured */
};
static const uint64_t MEMORY_DEFAULT = (uint64_t)8 << 30; /* of --max-memory */

static const char *end_name(const struct dr_session *s)
{
	return s->side == DR_PLAN_SERVER ? "server" : "client";
}

/* Message buffers (engine/engine.c) and the channels' own memory. */
static int check_memory(const struct dr_session *s, uint64_t channels, struct dr_err *e)
{
	const struct dr_plan *p = &s->plan;
	bool server = s->side == DR_PLAN_SERVER;
	uint64_t bytes = channels * (p->window * dr_engine_stride(p->chunk_max) + CHANNEL_BYTES);
	uint64_t unused = s->opt->cuda ? UINT64_MAX : dr_limit_memory(""), allowed = unused;

	if (server)
		allowed = s->opt->max_memory ? s->opt->max_memory
					     : DR_MIN(unused / 2, MEMORY_DEFAULT);
	if (bytes <= DR_MIN(allowed, unused))
		return 0;
	return dr_err_set(e, -ENOBUFS,
		"the run needs %.1f MiB for channels at the %s, which %s %.1f MiB; use fewer --channels, a "
		"smaller --window or --chunk, or raise %s",
		(double)bytes / (1 << 20), end_name(s),
		allowed < unused ? "allows" : "has free, in the host and its cgroup,",
		(double)DR_MIN(allowed, unused) / (1 << 20),
		allowed < unused ? "--max-memory of the server" : "memory.max of the cgroup");
}

static int check_files(const struct dr_session *s, struct dr_err *e)
{
	const struct dr_plan *p = &s->plan;
	uint64_t need = dr_plan_files(p->n_gpus, dr_plan_n_channels(p), p->n_rails);
	/* While a quarter is free, connections that wait to be admitted are kept (base/source.c). */
	uint64_t limit = dr_limit_files(need + need / 2);

	if (limit >= need)
		return 0;
	return dr_err_set(e, -EMFILE,
		"the run needs about %llu open files at the %s, whose hard limit is %llu; raise it (ulimit -Hn, "
		"LimitNOFILE= of systemd), or use fewer --gpus or --channels",
		(unsigned long long)need, end_name(s), (unsigned long long)limit);
}

/* On each rail a listener of each GPU, one of the peer, and the test of its MTU. Connections
 * from one address to one listener have none of their ports. */
static int check_ports(const struct dr_session *s, struct dr_err *e)
{
	const struct dr_options *o = s->opt;
	const struct dr_plan *p = &s->plan;
	bool range = o->data_port_min > 0;
	unsigned listeners = p->n_gpus + 2, connections = dr_plan_n_channels(p),
		 have = range ? o->data_port_max - o->data_port_min + 1u : dr_limit_ports(""),
		 need = range ? listeners : listeners * p->n_rails + connections;

	if (have >= need || !dr_plan_kind(p)->retransmits)
		return 0;
	return dr_err_set(e, -EADDRINUSE, "the run needs %u ports at the %s, where %s has %u; %s",
		need, end_name(s), range ? "--data-ports" : "net.ipv4.ip_local_port_range", have,
		range ? "name more" : "widen it with sysctl -w, or use fewer --gpus or --channels");
}

int dr_session_check_limits(const struct dr_session *s, struct dr_err *e)
{
	int rc = check_memory(s, (uint64_t)s->plan.n_gpus * dr_plan_n_channels(&s->plan), e);

	rc = rc ? rc : check_files(s, e);
	return rc ? rc : check_ports(s, e);
}
