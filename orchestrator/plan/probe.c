/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/probe.h"

#include "base/fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What is read here comes from a peer: every value is checked, none is asserted. */

#define WORD(name, type, member)                                                                   \
	DR_FIELD(name, DR_F_STR, type, member, .flags = DR_F_REQUIRED | DR_F_WORD)
#define NIC(kind, member, ...)                                                                     \
	DR_FIELD(#member, kind, struct dr_plan_probe_nic, member, .flags = DR_F_REQUIRED,          \
		__VA_ARGS__)

#define SETTING(name, kind, type, member, more, ...)                                               \
	DR_FIELD(name, kind, type, member, .flags = DR_F_OMIT | (more), __VA_ARGS__)

static const struct dr_field nic_fields[] = {
	WORD("name", struct dr_plan_probe_nic, name),
	WORD("address", struct dr_plan_probe_nic, address),
	NIC(DR_F_UINT, prefix),
	NIC(DR_F_UINT, mtu),
	NIC(DR_F_SINT, speed_mbps, .min = -1, .max = INT32_MAX),
	NIC(DR_F_BOOL, running),
	SETTING("tso", DR_F_UINT, struct dr_plan_probe_nic, tso, 0, .max = 2),
	SETTING("gso", DR_F_UINT, struct dr_plan_probe_nic, gso, 0, .max = 2),
	SETTING("gro", DR_F_UINT, struct dr_plan_probe_nic, gro, 0, .max = 2),
};
static DR_FIELDS(nic_table, "nics", nic_fields, struct dr_plan_probe_nic);

/* The object "look" of the reply. */
static const struct dr_field look_fields[] = {
	DR_FIELD("gpus", DR_F_UINT, struct dr_plan_probe, n_gpus, .flags = DR_F_REQUIRED, .min = 1,
		.max = UINT16_MAX),
	DR_FIELD("named", DR_F_BOOL, struct dr_plan_probe, named),
	DR_FIELD("why", DR_F_STR, struct dr_plan_probe, why),
	SETTING("congestion_control", DR_F_STR, struct dr_plan_probe, settings.congestion_control,
		DR_F_WORD),
	SETTING("tcp_rmem_max", DR_F_UINT, struct dr_plan_probe, settings.rmem_max, 0,
		.max = INT64_MAX),
	SETTING("tcp_wmem_max", DR_F_UINT, struct dr_plan_probe, settings.wmem_max, 0,
		.max = INT64_MAX),
	DR_FIELD_ROWS("nics", struct dr_plan_probe, nic, n_nics, nic_table, .flags = DR_F_REQUIRED),
};
static DR_FIELDS(look_table, "look", look_fields, struct dr_plan_probe);

static const struct dr_field reply_fields[] = {
	{ .name = "look", .kind = DR_F_ROW, .row = &look_table, .flags = DR_F_REQUIRED },
};
static DR_FIELDS(reply_table, "reply", reply_fields, struct dr_plan_probe);

int dr_plan_probe_mark(json_t *offer)
{
	return json_object_set_new(offer, "look", json_true());
}

bool dr_plan_probe_marked(const json_t *offer)
{
	return json_is_true(json_object_get(offer, "look"));
}

static void set_nic(struct dr_plan_probe_nic *to, const struct dr_netdev_rail *nic,
	const struct dr_settings_nic *s)
{
	memcpy(to->name, nic->ifname, sizeof(to->name));
	dr_netdev_addr_format(
		(const struct sockaddr *)&nic->addr, to->address, sizeof(to->address));
	to->prefix = nic->prefix;
	to->mtu = nic->mtu;
	to->speed_mbps = nic->speed_mbps;
	to->running = nic->running;
	to->tso = s->tso + 1;
	to->gso = s->gso + 1;
	to->gro = s->gro + 1;
}

json_t *dr_plan_probe_reply(json_t *pairs, const struct dr_plan_probe_own *own)
{
	struct dr_plan_probe p = {
		.n_gpus = (unsigned)own->gpus, .named = own->named, .n_nics = own->n
	};

	snprintf(p.why, sizeof(p.why), "%.*s", (int)sizeof(p.why) - 1, own->why ? own->why : "");
	p.settings = *own->settings;
	for (unsigned i = 0; i < own->n; i++)
		set_nic(&p.nic[i], &own->nic[i], &own->settings->nic[i]);
	if (json_object_set_new(pairs, "look", dr_fields_to_json(&look_table, &p))) {
		json_decref(pairs);
		return NULL;
	}
	return pairs;
}

int dr_plan_probe_read(const json_t *reply, struct dr_plan_probe *out, struct dr_err *e)
{
	struct dr_err why;

	if (dr_fields_from_json(&reply_table, out, reply, &why) == 0)
		return 0;
	memset(out, 0, sizeof(*out));
	return dr_err_set(e, -EPROTO,
		"invalid answer of the server: %.140s; are both builds of one version? dualrail --version",
		why.text);
}
