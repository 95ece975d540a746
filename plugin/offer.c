/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/offer.h"

#include "base/text.h"
#include "plugin/match.h"
#include "plugin/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const int64_t SIZE_MAX_BYTES = 1 << 30;

/* ---- JSON ---- */

/* 64 bits as text: JSON's numbers are signed. */
static json_t *hex(uint64_t v)
{
	char buf[20];

	snprintf(buf, sizeof(buf), "%016llx", (unsigned long long)v);
	return json_string(buf);
}

static bool get_hex(const json_t *j, const char *key, uint64_t *out)
{
	const char *s = json_string_value(json_object_get(j, key));
	uint64_t v = 0;

	if (!s || strlen(s) != 16)
		return false;
	for (; *s; s++) {
		const char *digits = "0123456789abcdef", *d = strchr(digits, *s);

		if (!d)
			return false;
		v = v << 4 | (uint64_t)(d - digits);
	}
	*out = v;
	return true;
}

static bool get_int(const json_t *j, const char *key, int64_t min, int64_t max, int64_t *out)
{
	const json_t *v = json_object_get(j, key);

	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
		return false;
	*out = json_integer_value(v);
	return true;
}

static json_t *sizes_to_json(unsigned threads, unsigned lanes, uint64_t chunk, uint64_t eager)
{
	return json_pack("{s:i, s:i, s:I, s:I}", "threads", (int)threads, "lanes", (int)lanes,
		"chunk", (json_int_t)chunk, "eager", (json_int_t)eager);
}

static bool sizes_from_json(
	const json_t *j, unsigned *threads, unsigned *lanes, uint64_t *chunk, uint64_t *eager)
{
	int64_t t, l, c, g;

	if (!get_int(j, "threads", 1, HA_SESSION_THREADS_MAX, &t) ||
		!get_int(j, "lanes", 1, 64, &l) || !get_int(j, "chunk", 1, SIZE_MAX_BYTES, &c) ||
		!get_int(j, "eager", 0, SIZE_MAX_BYTES, &g))
		return false;
	*threads = (unsigned)t;
	*lanes = (unsigned)l;
	*chunk = (uint64_t)c;
	*eager = (uint64_t)g;
	return true;
}

/* ---- offer ---- */

static void to_nics(const struct dr_rdv_addr *in, unsigned n, struct dr_nic *out)
{
	dr_assert(n <= DR_NICS_MAX);
	for (unsigned i = 0; i < n; i++)
		dr_nic_set(&out[i], &in[i].addr.ss, in[i].prefix, in[i].nic, in[i].rank);
}

void ha_offer_nics(struct ha_offer *o, const struct dr_rdv_addr *own, unsigned n)
{
	to_nics(own, n, o->nic);
	o->n_nics = n;
}

json_t *ha_offer_to_json(const struct ha_offer *o)
{
	json_t *j = sizes_to_json(o->threads, o->lanes, o->chunk, o->eager);
	int bad = json_object_set_new(j, "nics", dr_nics_to_json(o->nic, o->n_nics));

	bad |= json_object_set_new(j, "process", hex(o->process));
	bad |= json_object_set_new(j, "session", hex(o->session));
	bad |= json_object_set_new(j, "opens", json_boolean(o->opens));
	bad |= json_object_set_new(j, "comm", json_integer(o->comm));
	bad |= json_object_set_new(j, "device", json_string(o->name));
	bad |= json_object_set_new(j, "transport", json_string(o->transport));
	if (!bad)
		return j;
	json_decref(j);
	return NULL;
}

int ha_offer_from_json(const json_t *j, struct ha_offer *out, struct dr_err *e)
{
	const json_t *opens = json_object_get(j, "opens");
	const char *name = json_string_value(json_object_get(j, "device"));
	const char *transport = json_string_value(json_object_get(j, "transport"));
	int64_t comm;
	bool ok;

	memset(out, 0, sizeof(*out));
	ok = name && transport && json_is_boolean(opens) &&
	     get_int(j, "comm", 0, UINT32_MAX, &comm) && get_hex(j, "process", &out->process) &&
	     get_hex(j, "session", &out->session) &&
	     sizes_from_json(j, &out->threads, &out->lanes, &out->chunk, &out->eager);
	if (!ok)
		return dr_err_set(e, -EPROTO, "the peer's offer of a comm is malformed");
	int n = dr_nics_from_json(json_object_get(j, "nics"), out->nic, e);
	if (n < 0)
		return n;
	out->n_nics = (unsigned)n;
	out->opens = json_is_true(opens);
	out->comm = (uint32_t)comm;
	dr_text_copy(out->name, sizeof(out->name), name);
	dr_text_copy(out->transport, sizeof(out->transport), transport);
	return 0;
}

/* ---- plan ---- */

int ha_answer_choose(const struct ha_offer *o, const struct dr_rdv_addr *own, unsigned n_own,
	bool backup, struct ha_answer *out, struct dr_err *e)
{
	struct dr_nic_pair pair[DR_NICS_MAX];
	struct dr_nic b[DR_NICS_MAX];

	to_nics(own, n_own, b);
	unsigned n = dr_nic_pair_up(o->nic, o->n_nics, b, n_own, pair);

	memset(out, 0, sizeof(*out));
	if (n == 0)
		return dr_err_set(e, -EADDRNOTAVAIL,
			"no rail joins the ends: give two NICs one subnet, or both ends a route");
	/* Pairs are in the order of a: the device's NIC, then its shadow's. */
	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned i = 0; i < n && out->n_rails < (backup ? DR_PATHS : 1u); i++)
			if (pair[i].routed == (pass == 1)) {
				out->rail[out->n_rails] = own[pair[i].b];
				out->peer_nic[out->n_rails++] = pair[i].a;
			}
	return 0;
}

json_t *ha_answer_to_json(const struct ha_answer *p)
{
	json_t *j = sizes_to_json(p->threads, p->lanes, p->chunk, p->eager), *rails = json_array();
	int bad = 0;

	for (unsigned i = 0; i < p->n_rails; i++)
		bad |= json_array_append_new(rails, json_integer(p->peer_nic[i]));
	bad |= json_object_set_new(j, "rails", rails);
	if (!bad)
		return j;
	json_decref(j);
	return NULL;
}

int ha_answer_from_json(const json_t *j, const struct ha_offer *o, const struct dr_rdv_addr *own,
	struct ha_answer *out, struct dr_err *e)
{
	const json_t *rails = json_object_get(j, "rails");
	bool ok;

	memset(out, 0, sizeof(*out));
	ok = sizes_from_json(j, &out->threads, &out->lanes, &out->chunk, &out->eager) &&
	     out->threads <= o->threads && out->lanes <= o->lanes && out->chunk <= o->chunk &&
	     out->eager <= o->eager && json_array_size(rails) >= 1 &&
	     json_array_size(rails) <= DR_PATHS;
	for (size_t i = 0; ok && i < json_array_size(rails); i++) {
		const json_t *v = json_array_get(rails, i);

		ok = json_is_integer(v) && json_integer_value(v) >= 0 &&
		     json_integer_value(v) < o->n_nics;
		if (ok)
			out->rail[i] = own[json_integer_value(v)];
	}
	if (!ok)
		return dr_err_set(e, -EPROTO,
			"the peer's answer to a comm is malformed, or more than was offered");
	out->n_rails = (unsigned)json_array_size(rails);
	return 0;
}
