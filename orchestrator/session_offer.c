/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session_client.h"

#include "orchestrator/kinds.h"

#include <errno.h>
#include <string.h>

/* What a client with its options offers, before it has heard anything of the server. */

/* Nothing acknowledged on any rail for so long: both are lost. */
#define LOST_AFTER_NS (1500 * DR_NS_PER_MS)

static int parse_maps(const struct dr_options *o, struct dr_plan *p, struct dr_err *e)
{
	char text[2048];
	int rc = 0;

	if (o->map)
		rc = dr_kind_rename(p, o->map, text, sizeof(text))
			     ? dr_plan_parse_map(p, text, e)
			     : dr_err_set(e, -EINVAL, "--map: too long");
	if (rc == 0)
		rc = dr_kind_rename(p, o->spread, text, sizeof(text))
			     ? dr_plan_parse_spread(p, text, e)
			     : dr_err_set(e, -EINVAL, "--spread: too long");
	if (o->matrix)
		p->spread = DR_SPREAD_EACH;
	return rc ? rc : dr_plan_settle(p, e);
}

int dr_client_plan(const struct dr_options *o, const struct dr_route *route,
	const struct dr_topo *topo, struct dr_plan *p, struct dr_err *e)
{
	struct dr_netdev_rail rails[DR_RAILS_MAX], spare;
	int n;

	dr_kind_plan(o, p);
	n = dr_kind_rails(o, p, route, rails, DR_RAILS_MAX, e);
	if (n < 0)
		return n;
	dr_plan_set_rails(p, DR_PLAN_CLIENT, rails, (unsigned)n);
	if (dr_kind_spare(o, p, route, rails, (unsigned)n, &spare))
		dr_plan_set_spare(p, &spare);
	p->rails_auto = !o->rails || strcmp(o->rails, "auto") == 0;
	p->n_gpus = (unsigned)o->gpus.n;
	for (unsigned k = 0; k < p->n_gpus; k++)
		p->gpu[k][DR_PLAN_CLIENT] = o->gpus.v[k];
	p->n_each = (unsigned)o->channels;
	p->forward = !o->reverse;
	p->reverse = o->reverse || o->bidir;
	p->lat = o->test.lat;
	p->window = (unsigned)o->window;
	p->chunk_max = dr_options_chunk_max(o);
	p->heartbeat_ns = o->heartbeat_ns;
	p->interval_ns = o->interval_ns;
	p->hold_down_ns = o->hold_down_ns;
	p->detect = (enum dr_detect)o->detect;
	p->failback = o->failback;
	p->lost_after_ns = LOST_AFTER_NS;
	p->seed = o->seed;
	p->sockbuf = (int)o->sockbuf;
	p->dscp = (int)o->dscp;
	for (unsigned i = 0; i < o->faults.n; i++)
		p->server_faults |= o->faults.v[i].side == DR_FAULT_SERVER;
	p->topo = topo;
	p->near_told = true;
	dr_plan_measure(p, DR_PLAN_CLIENT);
	return parse_maps(o, p, e);
}
