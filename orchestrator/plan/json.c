/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/plan.h"

#include "base/fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * The plan as JSON: one table of fields per message drives writing, reading and range checks. What is
 * read here comes from a peer: every value is checked, none is asserted.
 */

/* Longer than any option allows; sums with the clock fit in 64 bits. */
#define TIME_MAX_NS (1000000 * DR_NS_PER_S)

#define REQUIRED(name, kind, type, member, ...)                                                    \
	DR_FIELD(name, kind, type, member, .flags = DR_F_REQUIRED, __VA_ARGS__)

/* ---- a rail ---- */

#define WORD(name, type, member)                                                                   \
	DR_FIELD(name, DR_F_STR, type, member, .flags = DR_F_REQUIRED | DR_F_WORD)
#define RAIL_FIELDS                                                                                \
	WORD("name", struct dr_plan_rail, name), WORD("address", struct dr_plan_rail, address),    \
		REQUIRED("prefix", DR_F_UINT, struct dr_plan_rail, prefix, .max = 128),            \
		REQUIRED("speed_mbps", DR_F_SINT, struct dr_plan_rail, speed_mbps),                \
		REQUIRED("nic", DR_F_UINT, struct dr_plan_rail, nic, .max = DR_NICS_MAX - 1),      \
		DR_FIELD("rank", DR_F_UINT, struct dr_plan_rail, rank, .flags = DR_F_OMIT,         \
			.max = DR_NIC_NONE),                                                       \
		DR_FIELD("routed", DR_F_BOOL, struct dr_plan_rail, routed, .flags = DR_F_OMIT),    \
		DR_FIELD("mtu", DR_F_UINT, struct dr_plan_rail, mtu, .flags = DR_F_OMIT,           \
			.max = INT32_MAX),                                                         \
		DR_FIELD("mtu_port", DR_F_UINT, struct dr_plan_rail, mtu_port, .flags = DR_F_OMIT, \
			.max = UINT16_MAX)

static int put_routes(const void *row, json_t *obj)
{
	const struct dr_routes *r = &((const struct dr_plan_rail *)row)->routes;
	json_t *list = r->known ? json_array() : NULL;
	char text[64];

	for (unsigned i = 0; list && i < r->n; i++) {
		dr_prefix_format(&r->to[i], text, sizeof(text));
		json_array_append_new(list, json_string(text));
	}
	return r->known ? json_object_set_new(obj, "routes", list) : 0;
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

static int get_rail(void *row, const json_t *obj, struct dr_err *e)
{
	struct dr_plan_rail *r = row;
	struct dr_prefix subnet;

	if (dr_netdev_addr_parse(r->address, &r->addr) ||
		dr_prefix_of((struct sockaddr *)&r->addr, r->prefix, &subnet))
		return dr_err_set(e, -EPROTO, "rail.address: %s/%u is not an address and a prefix",
			r->address, r->prefix);
	if (!read_routes(json_object_get(obj, "routes"), &r->routes))
		return dr_err_set(e, -EPROTO, "rail.routes: not a list of at most %d prefixes",
			DR_ROUTES_MAX);
	return 0;
}

static const struct dr_field rail_fields[] = { RAIL_FIELDS };
static DR_FIELDS(
	rail_table, "rail", rail_fields, struct dr_plan_rail, .put = put_routes, .get = get_rail);

/* ---- the offer ---- */

/* Both -1: the automatic map. */
#define MAPPED(member)                                                                             \
	REQUIRED(#member, DR_F_SINT, struct dr_plan_map, member, .min = -1, .max = DR_RAILS_MAX - 1)
static const struct dr_field map_fields[] = { MAPPED(primary), MAPPED(shadow) };
static DR_FIELDS(map_table, "map", map_fields, struct dr_plan_map, .tuple = true);

static const struct dr_field spread_fields[] = { { .kind = DR_F_UINT,
	.name = "",
	.len = sizeof(unsigned),
	.flags = DR_F_REQUIRED,
	.max = DR_RAILS_MAX - 1 } };
static DR_FIELDS(spread_table, "spread_list", spread_fields, unsigned);

static const struct dr_field fault_fields[] = {
	{ .kind = DR_F_STR, .name = "", .len = DR_PLAN_FAULT_BYTES, .flags = DR_F_REQUIRED }
};
static DR_FIELDS(fault_table, "server_fault_list", fault_fields, char[DR_PLAN_FAULT_BYTES]);

#define PLAN(name, kind, member, ...) REQUIRED(name, kind, struct dr_plan, member, __VA_ARGS__)
#define PLAN_TIME(member) PLAN(#member, DR_F_NS, member, .max = TIME_MAX_NS)
static const struct dr_field offer_fields[] = {
	PLAN("rails_auto", DR_F_BOOL, rails_auto),
	DR_FIELD_ROWS("map", struct dr_plan, map, n_map, map_table, .flags = DR_F_REQUIRED),
	PLAN("spread", DR_F_UINT, spread, .max = DR_SPREAD_EACH),
	DR_FIELD_ROWS("spread_list", struct dr_plan, spread_list, n_spread, spread_table,
		.flags = DR_F_REQUIRED),
	PLAN("channels", DR_F_UINT, n_each, .min = 1, .max = DR_GPU_CHANNELS_MAX),
	PLAN("forward", DR_F_BOOL, forward),
	PLAN("reverse", DR_F_BOOL, reverse),
	PLAN("lat", DR_F_BOOL, lat),
	PLAN("window", DR_F_UINT, window, .min = 1, .max = DR_CHANNEL_WINDOW_MAX),
	PLAN("chunk_max", DR_F_UINT, chunk_max, .min = 1, .max = DR_PLAN_CHUNK_MAX),
	PLAN("heartbeat_ns", DR_F_NS, heartbeat_ns, .min = DR_NS_PER_MS, .max = TIME_MAX_NS),
	PLAN_TIME(interval_ns),
	PLAN_TIME(hold_down_ns),
	PLAN_TIME(lost_after_ns),
	PLAN("detect", DR_F_UINT, detect, .max = DR_DETECT_TRANSPORT),
	PLAN("failback", DR_F_BOOL, failback),
	PLAN("seed", DR_F_UINT, seed),
	PLAN("sockbuf", DR_F_SINT, sockbuf, .max = 1 << 30),
	PLAN("dscp", DR_F_SINT, dscp, .max = 63),
	PLAN("server_faults", DR_F_BOOL, server_faults),
	DR_FIELD_ROWS("server_fault_list", struct dr_plan, server_fault, n_server_fault,
		fault_table, .flags = DR_F_REQUIRED, .max = DR_PLAN_FAULTS_MAX),
	DR_FIELD_ROWS("rails", struct dr_plan, offered, n_offered, rail_table,
		.flags = DR_F_REQUIRED, .min = 1, .max = DR_NICS_MAX),
};

static int put_offer(const void *row, json_t *offer)
{
	const struct dr_plan *p = row;

	return json_object_set_new(
		       offer, "near", dr_locality_to_json(&p->locality[DR_PLAN_CLIENT])) ||
			       dr_plan_put_transport(p, offer)
		       ? -1
		       : 0;
}

/* What no range of one field says. */
static int check_offer(const struct dr_plan *p, struct dr_err *e)
{
	if (p->interval_ns > 0 && p->interval_ns < DR_NS_PER_MS)
		return dr_err_set(e, -EPROTO,
			"offer.interval_ns: %lld; 0 or at least one millisecond is possible",
			(long long)p->interval_ns);
	for (unsigned i = 0; i < p->n_map; i++)
		if ((p->map[i].primary == DR_PLAN_AUTO) != (p->map[i].shadow == DR_PLAN_AUTO))
			return dr_err_set(e, -EPROTO,
				"offer.map: the entry of GPU %u has one rail; 0 or 2 are possible",
				i);
	return 0;
}

static int get_offer(void *row, const json_t *offer, struct dr_err *e)
{
	struct dr_plan *p = row;

	return check_offer(p, e) || dr_plan_read_transport(p, offer, e) ||
			       dr_locality_from_json(&p->locality[DR_PLAN_CLIENT],
				       json_object_get(offer, "near"), e)
		       ? -EPROTO
		       : 0;
}

static DR_FIELDS(
	offer_table, "offer", offer_fields, struct dr_plan, .put = put_offer, .get = get_offer);

json_t *dr_plan_offer(const struct dr_plan *p)
{
	return dr_fields_to_json(&offer_table, p);
}

int dr_plan_read_offer(struct dr_plan *p, const json_t *offer, struct dr_err *e)
{
	return dr_fields_from_json(&offer_table, p, offer, e);
}

/* ---- the reply ---- */

/* The server's end of each rail, and the address of the client's. */
struct reply {
	unsigned n_rails;
	struct reply_rail {
		struct dr_plan_rail server;
		char client[64];
	} rail[DR_RAILS_MAX];
};
_Static_assert(offsetof(struct reply_rail, server) == 0, "RAIL_FIELDS fit");
static const struct dr_field reply_rail_fields[] = { RAIL_FIELDS,
	WORD("client", struct reply_rail, client) };
static DR_FIELDS(reply_rail_table, "rail", reply_rail_fields, struct reply_rail, .get = get_rail);
static const struct dr_field reply_fields[] = { DR_FIELD_ROWS("rails", struct reply, rail, n_rails,
	reply_rail_table, .flags = DR_F_REQUIRED, .min = 1, .max = DR_RAILS_MAX) };
static DR_FIELDS(reply_table, "reply", reply_fields, struct reply);

json_t *dr_plan_reply(const struct dr_plan *p)
{
	struct reply r = { .n_rails = p->n_rails };

	for (unsigned i = 0; i < p->n_rails; i++) {
		r.rail[i].server = p->rail[i][DR_PLAN_SERVER];
		snprintf(r.rail[i].client, sizeof(r.rail[i].client), "%s",
			p->rail[i][DR_PLAN_CLIENT].address);
	}
	json_t *o = dr_fields_to_json(&reply_table, &r);
	if (json_object_set_new(o, "near", dr_locality_to_json(&p->locality[DR_PLAN_SERVER]))) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* What we offered by this address; NULL: nothing. */
static const struct dr_plan_rail *own_rail(const struct dr_plan *p, const char *address)
{
	for (unsigned i = 0; i < p->n_offered; i++)
		if (p->offered[i].rank != DR_NIC_NONE && !strcmp(p->offered[i].address, address))
			return &p->offered[i];
	return NULL;
}

int dr_plan_read_reply(struct dr_plan *p, const json_t *reply, struct dr_err *e)
{
	bool used[DR_NICS_MAX] = { false };
	struct reply r;

	if (dr_fields_from_json(&reply_table, &r, reply, e))
		return -EPROTO;
	for (unsigned i = 0; i < r.n_rails; i++) {
		const struct dr_plan_rail *own = own_rail(p, r.rail[i].client);

		if (!own || used[own->nic])
			return dr_err_set(e, -EPROTO,
				"reply.rails.client: %s is no rail of ours, or was named before",
				r.rail[i].client);
		used[own->nic] = true;
		p->rail[i][DR_PLAN_CLIENT] = *own;
		p->rail[i][DR_PLAN_CLIENT].routed = r.rail[i].server.routed;
		p->rail[i][DR_PLAN_SERVER] = r.rail[i].server;
	}
	p->n_rails = r.n_rails;
	return dr_locality_from_json(
		&p->locality[DR_PLAN_SERVER], json_object_get(reply, "near"), e);
}
