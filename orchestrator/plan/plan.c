/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/plan.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned dr_plan_per_direction(const struct dr_plan *p)
{
	return p->spread == DR_SPREAD_EACH ? p->n_each * p->n_rails : p->n_each;
}

unsigned dr_plan_n_bulk(const struct dr_plan *p)
{
	return dr_plan_per_direction(p) * ((p->forward ? 1u : 0u) + (p->reverse ? 1u : 0u));
}

unsigned dr_plan_n_channels(const struct dr_plan *p)
{
	return dr_plan_n_bulk(p) + (p->lat ? 2 : 0);
}

unsigned dr_plan_n_handles(const struct dr_plan *p)
{
	return p->n_rails + dr_plan_n_channels(p) + dr_plan_n_peer_handles(p);
}

unsigned dr_plan_n_peer_handles(const struct dr_plan *p)
{
	const struct dr_transport_kind *kind = dr_plan_kind(p);

	return kind && (kind->ops->caps & DR_CAP_DGRAM) ? p->n_rails : 0;
}

bool dr_plan_from_client(const struct dr_plan *p, unsigned channel)
{
	unsigned n_bulk = dr_plan_n_bulk(p);
	if (channel >= n_bulk)
		return channel == n_bulk;
	return p->forward && channel < dr_plan_per_direction(p);
}

unsigned dr_plan_direct(const struct dr_plan *p, unsigned list[DR_RAILS_MAX])
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->n_rails; i++)
		if (!p->rail[i][DR_PLAN_CLIENT].routed)
			list[n++] = i;
	for (unsigned i = 0; n == 0 && i < p->n_rails; i++)
		list[i] = i;
	return n ? n : p->n_rails;
}

static bool has_channel(
	const struct dr_plan *p, unsigned position, bool from_client, const struct dr_phase *phase)
{
	for (unsigned c = 0; c < dr_plan_n_bulk(p); c++)
		if (dr_plan_from_client(p, c) == from_client &&
			dr_phase_has_rail(phase, dr_plan_paths(p, position, c).primary))
			return true;
	return false;
}

bool dr_plan_fits_phase(const struct dr_plan *p, const struct dr_phase *phase)
{
	unsigned gpus = 0;

	if (phase->kind == DR_PHASE_LAT && (!p->lat || phase->rail_mask))
		return false;
	for (unsigned k = 0; k < p->n_gpus; k++) {
		if (!dr_phase_has_gpu(phase, k))
			continue;
		gpus++;
		if (phase->kind == DR_PHASE_LAT)
			continue;
		if ((p->forward && !has_channel(p, k, true, phase)) ||
			(p->reverse && !has_channel(p, k, false, phase)))
			return false;
	}
	return gpus > 0;
}

static int check_maps(const struct dr_plan *p, struct dr_err *e)
{
	for (unsigned i = 0; i < p->n_map; i++)
		if (p->map[i].primary != DR_PLAN_AUTO &&
			(p->map[i].primary >= p->n_rails || p->map[i].shadow >= p->n_rails))
			return dr_err_set(e, -EINVAL,
				"--map: GPU %u uses a rail that takes no part (%u rails do)",
				p->gpu[i][0], p->n_rails);
	if (p->spread == DR_SPREAD_LIST && p->n_spread == 0)
		return dr_err_set(e, -EINVAL, "--spread: the list of rails is empty");
	for (unsigned i = 0; p->spread == DR_SPREAD_LIST && i < p->n_spread; i++)
		if (p->spread_list[i] >= p->n_rails)
			return dr_err_set(e, -EINVAL,
				"--spread: rail %u takes no part (%u rails do)", p->spread_list[i],
				p->n_rails);
	return 0;
}

int dr_plan_check(const struct dr_plan *p, struct dr_err *e)
{
	if (p->n_gpus < 1 || p->n_gpus > DR_PLAN_GPUS_MAX)
		return dr_err_set(
			e, -EINVAL, "%u GPUs: 1 to %d are possible", p->n_gpus, DR_PLAN_GPUS_MAX);
	if (p->n_rails < 1 || p->n_rails > DR_RAILS_MAX)
		return dr_err_set(
			e, -EINVAL, "%u rails: 1 to %d are possible", p->n_rails, DR_RAILS_MAX);
	if (p->spread == DR_SPREAD_EACH && dr_plan_n_channels(p) > DR_GPU_CHANNELS_MAX)
		return dr_err_set(e, -EINVAL,
			"--matrix: %u channels a direction on each of %u rails make %u per GPU, of %d; use "
			"a smaller --channels, or fewer --rails",
			p->n_each, p->n_rails, dr_plan_n_channels(p), DR_GPU_CHANNELS_MAX);
	if (!(p->forward || p->reverse) || dr_plan_n_channels(p) > DR_GPU_CHANNELS_MAX)
		return dr_err_set(e, -EINVAL,
			"%u channels in each direction make %u per GPU: 1 to %d are possible",
			p->n_each, dr_plan_n_channels(p), DR_GPU_CHANNELS_MAX);
	if (p->n_map > p->n_gpus)
		return dr_err_set(
			e, -EINVAL, "map of %u GPUs, but %u take part", p->n_map, p->n_gpus);
	return check_maps(p, e);
}

void dr_plan_set_rail(struct dr_plan_rail *out, const struct dr_netdev_rail *r)
{
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", r->ifname);
	out->addr = r->addr;
	dr_netdev_addr_format(
		(const struct sockaddr *)&r->addr, out->address, sizeof(out->address));
	out->prefix = r->prefix;
	out->nic = (uint8_t)r->nic;
	out->rank = (uint8_t)r->rank;
	out->speed_mbps = r->speed_mbps;
	out->ifindex = r->ifindex;
	out->mtu = r->mtu;
	out->routes = r->routes;
}

void dr_plan_set_rails(struct dr_plan *p, const struct dr_netdev_rail *r, unsigned n)
{
	dr_assert(n <= DR_NICS_MAX);
	p->n_offered = n;
	p->n_rails = 0;
	for (unsigned i = 0; i < n; i++) {
		dr_plan_set_rail(&p->offered[i], &r[i]);
		if (p->n_rails < DR_RAILS_MAX && r[i].rank == r[0].rank &&
			(i == 0 || r[i].nic != r[i - 1].nic))
			p->rail[p->n_rails++][DR_PLAN_CLIENT] = p->offered[i];
	}
}

/* ---- --map and --spread ---- */

static int find_rail(const struct dr_plan *p, const char *s, unsigned *out, struct dr_err *e)
{
	struct sockaddr_storage sa;
	bool is_addr = dr_netdev_addr_parse(s, &sa) == 0;
	uint64_t n;

	for (unsigned i = 0; i < p->n_rails; i++) {
		const struct dr_plan_rail *r = &p->rail[i][DR_PLAN_CLIENT];

		if (strcmp(r->name, s) == 0 ||
			(is_addr && dr_netdev_addr_equal((const struct sockaddr *)&sa,
					    (const struct sockaddr *)&r->addr))) {
			*out = i;
			return 0;
		}
	}
	if (dr_parse_u64(s, 0, p->n_rails - 1, &n, NULL) == 0) {
		*out = (unsigned)n;
		return 0;
	}
	return dr_err_set(e, -EINVAL,
		"rail \"%s\" is none of the %u rails; name a device, an address or a number from 0",
		s, p->n_rails);
}

/* One "GPU=RAIL[,RAIL]"; s is scratch. */
static int parse_map_item(struct dr_plan *p, char *s, struct dr_err *e)
{
	char *eq = strchr(s, '='), *comma;
	uint64_t gpu;
	unsigned k;

	if (!eq)
		return dr_err_set(e, -EINVAL, "--map: \"%s\" is not GPU=RAIL,RAIL", s);
	*eq = 0;
	if (dr_parse_u64(s, 0, UINT32_MAX, &gpu, e))
		return dr_err_prefix(e, "--map");
	for (k = 0; k < p->n_gpus && p->gpu[k][0] != gpu; k++)
		;
	if (k == p->n_gpus)
		return dr_err_set(e, -EINVAL, "--map: GPU %s takes no part (see --gpus)", s);
	comma = strchr(eq + 1, ',');
	if (comma)
		*comma = 0;
	if (find_rail(p, eq + 1, &p->map[k].primary, e))
		return dr_err_prefix(e, "--map");
	p->map[k].shadow = p->map[k].primary;
	if (comma && find_rail(p, comma + 1, &p->map[k].shadow, e))
		return dr_err_prefix(e, "--map");
	return 0;
}

int dr_plan_parse_map(struct dr_plan *p, const char *s, struct dr_err *e)
{
	char buf[2048], *save = NULL;

	if (strlen(s) >= sizeof(buf))
		return dr_err_set(e, -EINVAL, "--map: longer than %zu characters", sizeof(buf) - 1);
	memcpy(buf, s, strlen(s) + 1);
	p->n_map = 0;
	for (unsigned k = 0; k < p->n_gpus; k++)
		p->map[k] = (struct dr_plan_map){ DR_PLAN_AUTO, DR_PLAN_AUTO };
	for (char *t = strtok_r(buf, ";", &save); t; t = strtok_r(NULL, ";", &save)) {
		int rc = parse_map_item(p, t, e);
		if (rc)
			return rc;
	}
	p->n_map = p->n_gpus;
	return 0;
}

int dr_plan_parse_spread(struct dr_plan *p, const char *s, struct dr_err *e)
{
	char buf[1024], *save = NULL;

	p->n_spread = 0;
	if (strcmp(s, "nearest") == 0 || strcmp(s, "all") == 0) {
		p->spread = s[0] == 'n' ? DR_SPREAD_NEAREST : DR_SPREAD_ALL;
		return 0;
	}
	if (strlen(s) >= sizeof(buf))
		return dr_err_set(
			e, -EINVAL, "--spread: longer than %zu characters", sizeof(buf) - 1);
	memcpy(buf, s, strlen(s) + 1);
	p->spread = DR_SPREAD_LIST;
	for (char *t = strtok_r(buf, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		if (p->n_spread == DR_RAILS_MAX)
			return dr_err_set(e, -EINVAL, "--spread: more than %d rails", DR_RAILS_MAX);
		if (find_rail(p, t, &p->spread_list[p->n_spread++], e))
			return dr_err_prefix(e, "--spread (nearest, all or a list of rails)");
	}
	return p->n_spread ? 0 : dr_err_set(e, -EINVAL, "--spread: empty list");
}

/* ---- for the ChannelManager and for people ---- */

void dr_plan_manager(const struct dr_plan *p, enum dr_plan_end end, struct dr_manager_params *out)
{
	const struct dr_transport_kind *kind = dr_plan_kind(p);

	memset(out, 0, sizeof(*out));
	out->transport = kind ? kind->ops : NULL;
	if (kind && kind->params_size)
		out->kind_params = &p->kind_params;
	if (kind && kind->windows)
		kind->windows(&p->kind_params, &out->hw_window_ns, &out->hw_retry_ns);
	out->n_rails = p->n_rails;
	for (unsigned r = 0; r < p->n_rails; r++) {
		const struct dr_plan_rail *rail = &p->rail[r][end];

		out->rail[r].ifname = rail->name;
		out->rail[r].local = rail->addr;
		out->rail[r].ifindex = rail->ifindex;
	}
	out->connector = end == DR_PLAN_CLIENT;
	out->window = p->window;
	out->heartbeat_ns = p->heartbeat_ns;
	out->detect = p->detect;
	out->failback = p->failback;
	out->hold_down_ns = p->hold_down_ns;
	out->lost_after_ns = p->lost_after_ns;
	out->sockbuf = p->sockbuf;
	out->dscp = p->dscp;
}

unsigned dr_plan_channels(const struct dr_plan *p, enum dr_plan_end end, unsigned position,
	struct dr_manager_channel out[DR_GPU_CHANNELS_MAX])
{
	unsigned n = dr_plan_n_channels(p);

	for (unsigned c = 0; c < n; c++) {
		struct dr_plan_map m = dr_plan_paths(p, position, c);

		out[c] = (struct dr_manager_channel){ .primary = m.primary,
			.shadow = m.shadow,
			.sender = dr_plan_from_client(p, c) == (end == DR_PLAN_CLIENT) };
	}
	return n;
}

static void describe_paths(const struct dr_plan *p, enum dr_plan_end end, unsigned position,
	bool tell_why, char *buf, size_t len)
{
	struct dr_plan_map m = dr_plan_paths(p, position, 0);
	const struct dr_plan_rail *a = &p->rail[m.primary][end], *b = &p->rail[m.shadow][end];
	bool more = false;
	char why[96];

	if (p->spread == DR_SPREAD_EACH) {
		snprintf(buf, len, "%u channels a direction on each of %u rails%s", p->n_each,
			p->n_rails, p->n_rails == 1 ? ", no shadow: unprotected" : "");
		return;
	}
	for (unsigned c = 1; c < p->n_each; c++)
		more = more || dr_plan_paths(p, position, c).primary != m.primary;
	dr_plan_reason(p, position, why, sizeof(why));
	snprintf(buf, len, "primary %s %s%s, ", a->name, a->address, a->routed ? " (routed)" : "");
	if (m.primary == m.shadow)
		dr_append(buf, len, "no shadow: unprotected");
	else
		dr_append(buf, len, "shadow %s %s%s", b->name, b->address,
			b->routed ? " (routed)" : "");
	dr_append(buf, len, "%s", more ? "; its other channels over other rails too" : "");
	if (tell_why)
		dr_append(buf, len, " (%s)", why);
}

bool dr_plan_describe(const struct dr_plan *p, enum dr_plan_end end, unsigned position, bool why,
	char *buf, size_t len)
{
	char own[256], other[256], list[2][160];
	unsigned gpu[2][DR_PLAN_GPUS_MAX], n = 0;

	describe_paths(p, end, position, why, own, sizeof(own));
	for (unsigned k = 0; k < p->n_gpus; k++) {
		describe_paths(p, end, k, why, other, sizeof(other));
		if (strcmp(own, other) != 0)
			continue;
		if (k < position)
			return false;
		for (int side = 0; side < 2; side++)
			gpu[side][n] = p->gpu[k][side];
		n++;
	}
	for (int side = 0; side < 2; side++)
		dr_format_list(gpu[side], n, list[side], sizeof(list[side]));
	snprintf(buf, len, "GPU %s <-> %s: %s", list[DR_PLAN_CLIENT], list[DR_PLAN_SERVER], own);
	return true;
}

bool dr_plan_on_spare(const struct dr_plan *p)
{
	unsigned list[DR_RAILS_MAX];

	return dr_plan_direct(p, list) == 1 &&
	       p->rail[list[0]][DR_PLAN_CLIENT].rank == DR_NIC_MANAGEMENT;
}

bool dr_plan_describe_routed(const struct dr_plan *p, unsigned rail, char *buf, size_t len)
{
	const struct dr_plan_rail *c = &p->rail[rail][DR_PLAN_CLIENT],
				  *s = &p->rail[rail][DR_PLAN_SERVER];

	if (c->routed)
		snprintf(buf, len,
			"rail %u is routed: %s %s <-> %s %s share no subnet, gateways lie between",
			rail, c->name, c->address, s->name, s->address);
	return c->routed;
}
