/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The plan as JSON. What is read here comes from a peer: every value is checked, none is asserted. */

/* Longer than any option allows; sums with the clock fit in 64 bits. */
static const json_int_t TIME_MAX_NS = 1000000 * DR_NS_PER_S;

static json_t *rail_json(const struct dr_plan_rail *r)
{
	json_t *o = json_pack("{s:s, s:s, s:i, s:I}", "name", r->name, "address", r->address,
		"prefix", (int)r->prefix, "speed_mbps", (json_int_t)r->speed_mbps);
	json_t *list = r->routes.known ? json_array() : NULL;
	char text[64];

	for (unsigned i = 0; list && i < r->routes.n; i++) {
		dr_prefix_format(&r->routes.to[i], text, sizeof(text));
		json_array_append_new(list, json_string(text));
	}
	if (list && json_object_set_new(o, "routes", list)) {
		json_decref(o);
		o = NULL;
	}
	return o;
}

static json_t *rails_json(const struct dr_plan *p)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < p->n_rails; i++)
		json_array_append_new(list, rail_json(&p->rail[i][DR_PLAN_CLIENT]));
	return list;
}

static int put_transport(json_t *o, const struct dr_plan *p)
{
	const struct dr_plan_ib *ib = &p->ib;
	const char *name = p->transport[0] ? p->transport : "tcp";

	if (json_object_set_new(o, "transport", json_string(name)))
		return -1;
	if (!ib->qps)
		return 0;
	return json_object_set_new(o, "ib",
		json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "qps", (int)ib->qps, "mtu",
			(int)ib->mtu, "sl", (int)ib->sl, "tc", (int)ib->tc, "timeout",
			(int)ib->timeout, "retry", (int)ib->retry));
}

json_t *dr_plan_offer(const struct dr_plan *p)
{
	json_t *map = json_array(), *list = json_array();
	json_t *o;

	for (unsigned i = 0; map && i < p->n_map; i++)
		json_array_append_new(
			map, json_pack("[i, i]", (int)p->map[i].primary, (int)p->map[i].shadow));
	for (unsigned i = 0; list && i < p->n_spread; i++)
		json_array_append_new(list, json_integer(p->spread_list[i]));
	o = json_pack("{s:o, s:b, s:o, s:i, s:o, s:i, s:b, s:b, s:b, s:i, s:I}", "rails",
		rails_json(p), "rails_auto", p->rails_auto, "map", map, "spread", (int)p->spread,
		"spread_list", list, "channels", (int)p->n_each, "forward", p->forward, "reverse",
		p->reverse, "lat", p->lat, "window", (int)p->window, "chunk_max",
		(json_int_t)p->chunk_max);
	if (!o)
		return NULL;
	json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:i, s:b, s:I, s:i, s:i, s:b}",
		"heartbeat_ns", (json_int_t)p->heartbeat_ns, "interval_ns",
		(json_int_t)p->interval_ns, "hold_down_ns", (json_int_t)p->hold_down_ns,
		"lost_after_ns", (json_int_t)p->lost_after_ns, "detect", (int)p->detect, "failback",
		p->failback, "seed", (json_int_t)p->seed, "sockbuf", p->sockbuf, "dscp", p->dscp,
		"server_faults", p->server_faults);
	if (!more || json_object_update(o, more) || put_transport(o, p) ||
		(p->spare.name[0] && json_object_set_new(o, "spare", rail_json(&p->spare))) ||
		json_object_set_new(o, "near", dr_plan_near_json(&p->near[DR_PLAN_CLIENT]))) {
		json_decref(o);
		o = NULL;
	}
	json_decref(more);
	return o;
}

/* A device's name has no blanks and no control bytes; one that has would end up on a terminal. */
static bool name_fits(const char *s, size_t size)
{
	size_t n = 0;

	for (; s[n]; n++)
		if ((unsigned char)s[n] <= ' ' || s[n] == 0x7f)
			return false;
	return n > 0 && n < size;
}

/* Without the key: not known. */
static bool read_routes(const json_t *list, struct dr_routes *out)
{
	if (!list)
		return true;
	if (!json_is_array(list) || json_array_size(list) > DR_ROUTES_MAX)
		return false;
	for (; out->n < json_array_size(list); out->n++) {
		const char *s = json_string_value(json_array_get(list, out->n));

		if (!s || dr_prefix_parse(s, &out->to[out->n]))
			return false;
	}
	out->known = true;
	return true;
}

static int read_rail(const json_t *j, struct dr_plan_rail *out, struct dr_err *e)
{
	struct dr_prefix subnet;
	const char *name, *address;
	json_int_t speed;
	int prefix, routed = 0;

	memset(out, 0, sizeof(*out));
	if (json_unpack((json_t *)j, "{s:s, s:s, s:i, s:I, s?b}", "name", &name, "address",
		    &address, "prefix", &prefix, "speed_mbps", &speed, "routed", &routed) ||
		!name_fits(name, sizeof(out->name)) || strlen(address) >= sizeof(out->address) ||
		dr_netdev_addr_parse(address, &out->addr) || prefix < 0 ||
		dr_prefix_of((struct sockaddr *)&out->addr, (unsigned)prefix, &subnet) ||
		!read_routes(json_object_get(j, "routes"), &out->routes))
		return dr_err_set(e, -EPROTO, "peer: a rail that makes no sense");
	snprintf(out->name, sizeof(out->name), "%s", name);
	snprintf(out->address, sizeof(out->address), "%s", address);
	out->prefix = (unsigned)prefix;
	out->speed_mbps = speed;
	out->routed = routed;
	return 0;
}

static int read_rails(struct dr_plan *p, const json_t *list, struct dr_err *e)
{
	size_t n = json_array_size(list);

	if (n < 1 || n > DR_RAILS_MAX)
		return dr_err_set(
			e, -EPROTO, "peer: %zu rails; 1 to %d are possible", n, DR_RAILS_MAX);
	for (size_t i = 0; i < n; i++)
		if (read_rail(json_array_get(list, i), &p->rail[i][DR_PLAN_CLIENT], e))
			return -EPROTO;
		else
			p->rail[i][DR_PLAN_CLIENT].column = (uint8_t)i;
	p->n_rails = (unsigned)n;
	return 0;
}

static int read_spare(struct dr_plan *p, const json_t *spare, struct dr_err *e)
{
	if (spare && read_rail(spare, &p->spare, e))
		return -EPROTO;
	p->spare.column = DR_PLAN_NO_COLUMN;
	return 0;
}

static int read_maps(struct dr_plan *p, const json_t *map, const json_t *list, struct dr_err *e)
{
	int a, b;

	if (json_array_size(map) > DR_PLAN_GPUS_MAX || json_array_size(list) > DR_RAILS_MAX)
		return dr_err_set(e, -EPROTO, "peer: a map that makes no sense");
	p->n_map = (unsigned)json_array_size(map);
	for (unsigned i = 0; i < p->n_map; i++) {
		if (json_unpack(json_array_get(map, i), "[i, i]", &a, &b) || a < -1 || b < -1 ||
			(a < 0) != (b < 0))
			return dr_err_set(e, -EPROTO, "peer: a map that makes no sense");
		p->map[i] = (struct dr_plan_map){ (unsigned)a, (unsigned)b };
	}
	p->n_spread = (unsigned)json_array_size(list);
	for (unsigned i = 0; i < p->n_spread; i++) {
		json_int_t v = json_integer_value(json_array_get(list, i));
		if (v < 0 || v >= DR_RAILS_MAX)
			return dr_err_set(e, -EPROTO, "peer: a spread that makes no sense");
		p->spread_list[i] = (unsigned)v;
	}
	return 0;
}

/* A client of an earlier version names no transport: it has one. */
static int read_transport(struct dr_plan *p, const json_t *offer, struct dr_err *e)
{
	struct dr_plan_ib *ib = &p->ib;
	int qps = 1, mtu = 0, sl = 0, tc = 0, timeout = 14, retry = 7;
	const char *name = "tcp";

	if (json_unpack((json_t *)offer, "{s?s, s?{s:i, s:i, s:i, s:i, s:i, s:i}}", "transport",
		    &name, "ib", "qps", &qps, "mtu", &mtu, "sl", &sl, "tc", &tc, "timeout",
		    &timeout, "retry", &retry) ||
		!name_fits(name, sizeof(p->transport)))
		return dr_err_set(e, -EPROTO, "peer: a transport that makes no sense");
	if (qps < 1 || qps > 4 || mtu < 0 || mtu > 4096 || sl < 0 || sl > 15 || tc < 0 ||
		tc > 255 || timeout < 0 || timeout > 31 || retry < 0 || retry > 7)
		return dr_err_set(e, -EPROTO, "peer: verbs parameters out of range");
	snprintf(p->transport, sizeof(p->transport), "%s", name);
	*ib = (struct dr_plan_ib){ (unsigned)qps, (unsigned)mtu, (unsigned)sl, (unsigned)tc,
		(unsigned)timeout, (unsigned)retry };
	return 0;
}

/* A client of an earlier version tells nothing of its GPUs' places: its map is even by number. */
static int read_near(struct dr_plan *p, const json_t *offer, struct dr_err *e)
{
	const json_t *near = json_object_get(offer, "near");

	p->near_told = near != NULL;
	if (!near)
		return 0;
	if (dr_plan_read_near(&p->near[DR_PLAN_CLIENT], near, e))
		return -EPROTO;
	if (p->near[DR_PLAN_CLIENT].n_gpus && p->near[DR_PLAN_CLIENT].n_nics != p->n_rails)
		return dr_err_set(e, -EPROTO, "peer: distances to %u rails for %u",
			p->near[DR_PLAN_CLIENT].n_nics, p->n_rails);
	return 0;
}

int dr_plan_read_offer(struct dr_plan *p, const json_t *offer, struct dr_err *e)
{
	json_t *rails, *map, *list;
	int rails_auto, spread, channels, forward, reverse, lat, window, detect, failback, faults;
	json_int_t chunk_max, heartbeat, interval, hold_down, lost, seed;

	memset(p, 0, sizeof(*p));
	if (json_unpack((json_t *)offer,
		    "{s:o, s:b, s:o, s:i, s:o, s:i, s:b, s:b, s:b, s:i, s:I, s:b}", "rails", &rails,
		    "rails_auto", &rails_auto, "map", &map, "spread", &spread, "spread_list", &list,
		    "channels", &channels, "forward", &forward, "reverse", &reverse, "lat", &lat,
		    "window", &window, "chunk_max", &chunk_max, "server_faults", &faults) ||
		json_unpack((json_t *)offer, "{s:I, s:I, s:I, s:I, s:i, s:b, s:I, s:i, s:i}",
			"heartbeat_ns", &heartbeat, "interval_ns", &interval, "hold_down_ns",
			&hold_down, "lost_after_ns", &lost, "detect", &detect, "failback",
			&failback, "seed", &seed, "sockbuf", &p->sockbuf, "dscp", &p->dscp))
		return dr_err_set(e, -EPROTO, "peer: an offer that makes no sense");
	if (channels < 1 || channels > DR_CHANNELS_MAX || window < 1 ||
		window > DR_CHANNEL_WINDOW_MAX || chunk_max < 1 || chunk_max > DR_PLAN_CHUNK_MAX ||
		spread < DR_SPREAD_NEAREST || spread > DR_SPREAD_EACH || lost < 0 ||
		lost > TIME_MAX_NS || hold_down < 0 || hold_down > TIME_MAX_NS || heartbeat < 0 ||
		heartbeat > TIME_MAX_NS || interval < 0 || interval > TIME_MAX_NS ||
		(interval > 0 && interval < DR_NS_PER_MS) || detect < DR_DETECT_FAST ||
		detect > DR_DETECT_CONSERVATIVE || p->sockbuf < 0 || p->sockbuf > 1 << 30 ||
		p->dscp < 0 || p->dscp > 63)
		return dr_err_set(e, -EPROTO, "peer: an offer with values out of range");
	p->rails_auto = rails_auto;
	p->spread = (enum dr_spread)spread;
	p->n_each = (unsigned)channels;
	p->forward = forward;
	p->reverse = reverse;
	p->lat = lat;
	p->window = (unsigned)window;
	p->chunk_max = (uint32_t)chunk_max;
	p->heartbeat_ns = heartbeat;
	p->interval_ns = interval;
	p->hold_down_ns = hold_down;
	p->lost_after_ns = lost;
	p->detect = (enum dr_detect)detect;
	p->failback = failback;
	p->seed = (uint64_t)seed;
	p->server_faults = faults;
	if (read_rails(p, rails, e) || read_spare(p, json_object_get(offer, "spare"), e) ||
		read_transport(p, offer, e) || read_near(p, offer, e))
		return -EPROTO;
	return read_maps(p, map, list, e);
}

json_t *dr_plan_reply(const struct dr_plan *p)
{
	json_t *near = p->near_told ? dr_plan_near_json(&p->near[DR_PLAN_SERVER]) : NULL;
	json_t *list = json_array();

	for (unsigned i = 0; list && i < p->n_rails; i++) {
		const struct dr_plan_rail *r = &p->rail[i][DR_PLAN_SERVER];

		json_array_append_new(
			list, json_pack("{s:s, s:s, s:i, s:I, s:s, s:b}", "name", r->name,
				      "address", r->address, "prefix", (int)r->prefix, "speed_mbps",
				      (json_int_t)r->speed_mbps, "client",
				      p->rail[i][DR_PLAN_CLIENT].address, "routed", r->routed));
	}
	return json_pack("{s:o, s:o*}", "rails", list, "near", near);
}

/* The rail of ours that has this address: one of those from *at on, in the order offered, or the spare. */
static const struct dr_plan_rail *own_rail(
	const struct dr_plan *p, const char *address, unsigned *at)
{
	unsigned i = *at;

	while (i < p->n_rails && strcmp(p->rail[i][DR_PLAN_CLIENT].address, address) != 0)
		i++;
	if (i < p->n_rails) {
		*at = i + 1;
		return &p->rail[i][DR_PLAN_CLIENT];
	}
	*at = p->n_rails; /* the spare is offered last */
	return p->spare.name[0] && strcmp(p->spare.address, address) == 0 ? &p->spare : NULL;
}

int dr_plan_read_reply(struct dr_plan *p, const json_t *reply, struct dr_err *e)
{
	const json_t *list = json_object_get(reply, "rails"),
		     *near = json_object_get(reply, "near");
	size_t n = json_array_size(list);
	unsigned at = 0;

	if (n < 1 || n > p->n_rails + (p->spare.name[0] ? 1u : 0u) || n > DR_RAILS_MAX)
		return dr_err_set(e, -EPROTO, "server: %zu rails for our %u", n, p->n_rails);
	for (size_t i = 0; i < n; i++) {
		const json_t *j = json_array_get(list, i);
		const char *client = json_string_value(json_object_get(j, "client"));
		const struct dr_plan_rail *own;
		struct dr_plan_rail r;

		if (!client || read_rail(j, &r, e))
			return dr_err_set(e, -EPROTO, "server: a rail that makes no sense");
		own = own_rail(p, client, &at);
		if (!own || (own == &p->spare && i + 1 < n))
			return dr_err_set(e, -EPROTO, "server: pairs a rail that is not ours");
		/* In ascending order, so that nothing needed is overwritten. */
		p->rail[i][DR_PLAN_CLIENT] = *own;
		p->rail[i][DR_PLAN_CLIENT].routed = r.routed;
		p->rail[i][DR_PLAN_SERVER] = r;
	}
	p->n_rails = (unsigned)n;
	/* A server that does not answer to it does not use it either. */
	p->near_told = near != NULL;
	return near ? dr_plan_read_near(&p->near[DR_PLAN_SERVER], near, e) : 0;
}
