/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/look.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What is read here comes from a peer: every value is checked, none is asserted. */

int dr_look_mark(json_t *offer)
{
	return json_object_set_new(offer, "look", json_true());
}

bool dr_look_marked(const json_t *offer)
{
	return json_is_true(json_object_get(offer, "look"));
}

static json_t *nic_json(const struct dr_netdev_rail *r)
{
	char address[64];

	dr_netdev_addr_format((const struct sockaddr *)&r->addr, address, sizeof(address));
	return json_pack("{s:s, s:s, s:i, s:i, s:I, s:b}", "name", r->ifname, "address", address,
		"prefix", (int)r->prefix, "mtu", (int)r->mtu, "speed_mbps",
		(json_int_t)r->speed_mbps, "running", r->running);
}

json_t *dr_look_reply(
	json_t *pairs, const struct dr_netdev_rail *nic, unsigned n, size_t gpus, const char *why)
{
	json_t *nics = json_array(), *look;

	for (unsigned i = 0; i < n; i++)
		if (json_array_append_new(nics, nic_json(&nic[i]))) {
			json_decref(nics);
			nics = NULL;
		}
	look = json_pack("{s:i, s:s?, s:o}", "gpus", (int)gpus, "why", why, "nics", nics);
	if (json_object_set_new(pairs, "look", look)) {
		json_decref(pairs);
		return NULL;
	}
	return pairs;
}

/* Printable, whole, in its place; false when it is not there or too long. */
static bool copy_text(const json_t *j, char *out, size_t size)
{
	const char *s = json_string_value(j);

	if (!s || strlen(s) >= size)
		return false;
	for (const char *c = s; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	memcpy(out, s, strlen(s) + 1);
	return true;
}

static bool is_address(const char *text)
{
	struct sockaddr_storage sa;

	return dr_netdev_addr_parse(text, &sa) == 0;
}

static bool read_nic(const json_t *j, struct dr_look_nic *out)
{
	json_int_t speed;
	int mtu, running;

	if (json_unpack((json_t *)j, "{s:i, s:I, s:b}", "mtu", &mtu, "speed_mbps", &speed,
		    "running", &running) ||
		!copy_text(json_object_get(j, "name"), out->name, sizeof(out->name)) ||
		!copy_text(json_object_get(j, "address"), out->address, sizeof(out->address)) ||
		!out->name[0] || mtu < 0 || speed < -1)
		return false;
	out->mtu = (unsigned)mtu;
	out->speed_mbps = speed;
	out->running = running;
	return true;
}

static bool read_pairs(const json_t *list, struct dr_look *out)
{
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n > DR_LOOK_NICS_MAX)
		return false;
	for (; out->n_pairs < n; out->n_pairs++) {
		const json_t *j = json_array_get(list, out->n_pairs);
		struct dr_look_pair *p = &out->pair[out->n_pairs];

		if (!copy_text(json_object_get(j, "client"), p->client, sizeof(p->client)) ||
			!copy_text(json_object_get(j, "address"), p->server, sizeof(p->server)) ||
			!is_address(p->server))
			return false;
	}
	return true;
}

static bool read_look(const json_t *look, struct dr_look *out)
{
	const json_t *list = json_object_get(look, "nics"), *why = json_object_get(look, "why");
	json_int_t gpus = json_integer_value(json_object_get(look, "gpus"));

	if (!json_is_array(list) || json_array_size(list) > DR_LOOK_NICS_MAX || gpus < 1 ||
		gpus > UINT16_MAX)
		return false;
	if (why && !json_is_null(why) && !copy_text(why, out->why, sizeof(out->why)))
		return false;
	for (; out->n_nics < json_array_size(list); out->n_nics++)
		if (!read_nic(json_array_get(list, out->n_nics), &out->nic[out->n_nics]))
			return false;
	out->n_gpus = (unsigned)gpus;
	out->tells = true;
	return true;
}

int dr_look_read(const json_t *reply, struct dr_look *out, struct dr_err *e)
{
	const json_t *look = json_object_get(reply, "look");

	memset(out, 0, sizeof(*out));
	if (!read_pairs(json_object_get(reply, "rails"), out) || (look && !read_look(look, out))) {
		memset(out, 0, sizeof(*out));
		return dr_err_set(e, -EPROTO,
			"the server's answer to doctor makes no sense; are both builds of one "
			"version? dualrail --version");
	}
	return 0;
}
